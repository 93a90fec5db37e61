//! The units of `install-linux.target`, in order.
//!
//! ```text
//! select-disk.service -> partition.service -> image-linux.service -> bootloader-linux.service -> (config-drive.service)
//! ```
//!
//! The first unit that fails ends the run, and the report names it. Blocking work runs on the blocking pool under a
//! permit, so that a thousand machines do not need a thousand threads.

use std::{path::PathBuf, sync::Arc};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Tools,
    behaviour::{InstallerBehaviour, unit},
    dispatcher::Task,
    documents::{FormerDisk, PullAccess},
    media::chain,
    medium::TaskMedium,
    report::Reporter,
    select_disk::{self, ChosenDisks, DiskIdentity},
};
use crate::{
    console::MachineConsole,
    disk::{self, DiskImage, Installed, RecordKind},
    gpt::{GptEntry, GptTable, SECTOR},
    machine::{DiskSpec, Machine},
    oci::{
        Authorization, ExtraFile, Layer, PulledImage, RegistryClient, RegistryError, UnpackLimits, unpack,
    },
};
use beacon::{BeaconStep, Message};
use recipe::{Partition, partition};

/// Directory in the root file system where cloud-init looks for a seed.
const SEED_DIRECTORY: &str = "var/lib/cloud/seed/nocloud";
const MAX_PATHS: usize = 500_000;
const ON_PURPOSE: &str = "failed on purpose, as the simulation is configured";

/// A failed unit and the reason.
#[derive(Debug)]
pub(super) struct UnitFailure {
    pub(super) unit: &'static str,
    pub(super) reason: String,
}

/// One run of the installer.
pub(super) struct Installer<'run> {
    pub(super) machine: &'run Machine,
    pub(super) behaviour: &'run InstallerBehaviour,
    pub(super) tools: &'run Tools,
    pub(super) http: &'run reqwest::Client,
    pub(super) reporter: &'run Reporter,
    pub(super) medium: Option<&'run Arc<TaskMedium>>,
    pub(super) console: &'run MachineConsole,
    pub(super) cancel: &'run CancellationToken,
    pub(super) tracker: &'run TaskTracker,
}

impl Installer<'_> {
    /// Carries out the task, then reads the disk back and verifies it.
    pub(super) async fn install(
        &self,
        task: &Task,
        registry: Option<&PullAccess>,
        former: Option<&FormerDisk>,
    ) -> Result<Installed, UnitFailure> {
        let chosen = self.select(task, former).await?;
        self.reporter.set_written();
        let (disk, file) = self.unit(unit::PARTITION, 10, self.partition_all(task, &chosen)).await?;
        let image = self.unit(unit::IMAGE_LINUX, 30, self.image(task, registry, &disk)).await?;
        let installed = self.unit(unit::BOOTLOADER_LINUX, 80, self.bootloader(&disk, file, image)).await?;
        if !task.cloud_init.is_empty() && disk.config_drive().is_some() {
            self.unit(unit::CONFIG_DRIVE, 95, self.config_drive(task, &disk)).await?;
        }
        Ok(installed)
    }

    /// Chooses the disks, names them in every later report, and compares the first one with that of the attempt before.
    async fn select(&self, task: &Task, former: Option<&FormerDisk>) -> Result<ChosenDisks<'_>, UnitFailure> {
        let failed = |reason: String| UnitFailure { unit: unit::SELECT_DISK, reason };
        if self.behaviour.fail_at.as_deref() == Some(unit::SELECT_DISK) {
            return Err(failed(ON_PURPOSE.to_owned()));
        }
        let chosen = select_disk::choose(self.machine, task).map_err(failed)?;
        self.reporter.set_disk(DiskIdentity::of(self.machine, &chosen));
        let devices: Vec<&str> = std::iter::once(chosen.first)
            .chain(chosen.more.iter().copied())
            .map(|disk| disk.device.as_str())
            .collect();
        self.console.print(unit::SELECT_DISK, format!("chosen: {}", devices.join(", ")));
        if let Some(former) = former {
            select_disk::check_former(former, self.machine, chosen.first).map_err(failed)?;
        }
        if self.behaviour.report_progress && self.medium.is_none() {
            self.reporter.progress(unit::SELECT_DISK, 1).await;
        }
        Ok(chosen)
    }

    /// Runs one unit: prints and reports its start, waits the configured time, and fails if configured so.
    async fn unit<T>(
        &self,
        unit: &'static str,
        percent: u8,
        work: impl Future<Output = Result<T, String>>,
    ) -> Result<T, UnitFailure> {
        self.console.print(unit, "started");
        if self.behaviour.report_progress && self.medium.is_none() {
            self.reporter.progress(unit, percent).await;
        }
        tokio::time::sleep(self.behaviour.unit_time).await;
        let result = if self.behaviour.fail_at.as_deref() == Some(unit) {
            Err(ON_PURPOSE.to_owned())
        } else {
            Box::pin(work).await
        };
        if let (Ok(_), Some(medium), Some(step)) = (&result, self.medium, BeaconStep::of_unit(unit)) {
            medium.say(Message::Done(step), self.behaviour.beacon_pause).await;
        }
        result.map_err(|reason| UnitFailure { unit, reason })
    }

    /// Writes the partition table of every chosen disk; returns the first disk.
    async fn partition_all(
        &self,
        task: &Task,
        chosen: &ChosenDisks<'_>,
    ) -> Result<(Arc<DiskImage>, PathBuf), String> {
        let first = self.partition(chosen.first, &task.layout).await?;
        for (disk, (_, layout)) in chosen.more.iter().zip(&task.more_disks) {
            self.partition(disk, layout).await?;
        }
        Ok(first)
    }

    async fn partition(
        &self,
        spec: &DiskSpec,
        layout: &[Partition],
    ) -> Result<(Arc<DiskImage>, PathBuf), String> {
        let resolved = partition::resolve(layout, spec.bytes, SECTOR).map_err(|source| source.to_string())?;
        let entries = resolved.into_iter().enumerate().map(|(index, part)| GptEntry {
            type_guid: part.type_guid,
            unique_guid: self.machine.guid(&format!("{}/{}", spec.device, index + 1)),
            first_lba: part.first_lba,
            last_lba: part.last_lba,
            attributes: 0,
            name: part.name,
        });
        let disk_guid = self.machine.guid(&spec.device);
        let table = GptTable::new(disk_guid, spec.bytes / SECTOR, entries.collect())
            .map_err(|source| source.to_string())?;
        let parts = table.entries().len();
        let (file, bytes) = (self.machine.disk_file(spec), spec.bytes);
        let path = file.clone();
        let disk = self
            .blocking(move || {
                let mut disk = DiskImage::create(&path, bytes)?;
                disk.write_table(table)?;
                Ok::<_, disk::DiskError>(disk)
            })
            .await?;
        self.console
            .print(unit::PARTITION, format!("{}: GPT {disk_guid} with {parts} partitions", spec.device));
        Ok((Arc::new(disk), file))
    }

    async fn image(
        &self,
        task: &Task,
        registry: Option<&PullAccess>,
        disk: &Arc<DiskImage>,
    ) -> Result<PulledImage, String> {
        let root = disk.root().map_err(|source| source.to_string())?;
        let client = match self.medium {
            Some(_) => None,
            None => Some(self.registry(task, registry).map_err(|source| chain(&source))?),
        };
        let image = match (&client, self.medium) {
            (Some(client), _) => self.retry_pull(|| client.resolve(&task.image)).await?,
            (None, Some(medium)) => {
                let medium = Arc::clone(medium);
                self.tools.blocking(self.tracker, move || medium.resolve()).await??
            }
            (None, None) => return Err("there is no source of the image".to_owned()),
        };
        self.console.print(unit::IMAGE_LINUX, format!("{} is {}", image.repository, image.digest));
        let room = root.bytes().saturating_sub(disk::HEADER_BYTES as u64);
        let size = image.layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.size));
        if size > room {
            return Err(format!(
                "the image has {size} bytes, the root partition has room for {room}; make the partition larger"
            ));
        }
        let scratch = tempfile::Builder::new().prefix("pull-").tempdir_in(&self.machine.directory);
        let scratch = scratch.map_err(|source| format!("creating a directory for layers: {source}"))?;
        let mut layers: Vec<(Layer, PathBuf)> = Vec::with_capacity(image.layers.len());
        for (index, layer) in image.layers.iter().enumerate() {
            let file = scratch.path().join(index.to_string());
            match (&client, self.medium) {
                (Some(client), _) => {
                    self.retry_pull(|| client.fetch_layer(&image, layer, &file)).await?;
                }
                (None, Some(medium)) => {
                    let (medium, layer, file) = (Arc::clone(medium), layer.clone(), file.clone());
                    self.tools.blocking(self.tracker, move || medium.fetch_layer(&layer, &file)).await??;
                }
                (None, None) => {}
            }
            self.console
                .print(unit::IMAGE_LINUX, format!("layer {} verified, {} bytes", layer.digest, layer.size));
            layers.push((layer.clone(), file));
        }
        // Without a config drive the seed is written into the root file system.
        let seed = match disk.config_drive() {
            Some(_) => Vec::new(),
            None => self.seed(task, SEED_DIRECTORY),
        };
        let mut writer =
            disk.begin_record(&root, RecordKind::Content).map_err(|source| source.to_string())?;
        let (cancel, digest) = (self.cancel.clone(), image.digest.clone());
        let entries = self
            .blocking(move || {
                let limits = UnpackLimits { bytes: room, paths: MAX_PATHS };
                let unpacked = unpack(&layers, &seed, limits, &cancel, &mut writer)?;
                writer.finish(&digest, unpacked.entries).map_err(crate::oci::UnpackError::Write)?;
                drop(scratch);
                Ok::<_, crate::oci::UnpackError>(unpacked.entries)
            })
            .await?;
        self.console.print(unit::IMAGE_LINUX, format!("{entries} entries unpacked"));
        Ok(image)
    }

    async fn bootloader(
        &self,
        disk: &Arc<DiskImage>,
        file: PathBuf,
        image: PulledImage,
    ) -> Result<Installed, String> {
        let disk = Arc::clone(disk);
        let installed = self
            .blocking(move || {
                disk.write_loader(&image.digest)?;
                disk::verify(&file)
            })
            .await?;
        self.console.print(
            unit::BOOTLOADER_LINUX,
            format!("{} on partition {}, read back and verified", installed.os_name, installed.root),
        );
        Ok(installed)
    }

    async fn config_drive(&self, task: &Task, disk: &Arc<DiskImage>) -> Result<(), String> {
        let Some(partition) = disk.config_drive() else { return Ok(()) };
        let (disk, files, cancel) = (Arc::clone(disk), self.seed(task, ""), self.cancel.clone());
        let limits = UnpackLimits { bytes: 0, paths: 0 };
        self.blocking(move || {
            let failed =
                |source| disk::DiskError::Record { what: disk::CONFIG_DRIVE_NAME, rule: chain(&source) };
            let mut writer = disk.begin_record(&partition, RecordKind::ConfigDrive)?;
            let unpacked = unpack(&[], &files, limits, &cancel, &mut writer).map_err(failed)?;
            writer
                .finish("nocloud", unpacked.entries)
                .map_err(|source| failed(crate::oci::UnpackError::Write(source)))
        })
        .await
    }

    /// The NoCloud files under `directory`. cloud-init requires `meta-data`: it is generated if the task has none.
    fn seed(&self, task: &Task, directory: &str) -> Vec<ExtraFile> {
        if task.cloud_init.is_empty() {
            return Vec::new();
        }
        let path =
            |name: &str| if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
        let sources = task.cloud_init.iter();
        let mut files: Vec<ExtraFile> =
            sources.map(|file| ExtraFile { path: path(&file.path), bytes: file.bytes.clone() }).collect();
        if !task.cloud_init.iter().any(|file| file.path == "meta-data") {
            let serial = &self.machine.serial;
            let text = format!("instance-id: {serial}\nlocal-hostname: {serial}\n");
            files.push(ExtraFile { path: path("meta-data"), bytes: text.into_bytes() });
        }
        files
    }

    /// The registry in `job.json`; without one, the host of `oci_url`, without credentials.
    fn registry(&self, task: &Task, access: Option<&PullAccess>) -> Result<RegistryClient, RegistryError> {
        let Some(access) = access else {
            let host = task.image.host.as_deref().unwrap_or_default();
            return RegistryClient::new(
                self.http.clone(),
                &format!("https://{host}"),
                Authorization::Anonymous,
            );
        };
        let authorization = match (&access.username, &access.password) {
            (Some(username), Some(password)) => {
                Authorization::Basic { username: username.clone(), password: password.clone() }
            }
            _ => Authorization::Anonymous,
        };
        RegistryClient::new(self.http.clone(), &access.url, authorization)
    }

    async fn retry_pull<T, F: Future<Output = Result<T, RegistryError>>>(
        &self,
        once: impl Fn() -> F,
    ) -> Result<T, String> {
        let mut attempt = 1;
        loop {
            let failure = match once().await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let delay = self.behaviour.pull_backoff.delay_after(attempt).filter(|_| failure.is_transient());
            let Some(delay) = delay else { return Err(chain(&failure)) };
            self.console.print(unit::IMAGE_LINUX, format!("{}; retrying", chain(&failure)));
            tokio::time::sleep(delay).await;
            attempt += 1;
        }
    }

    async fn blocking<T: Send + 'static, E: std::error::Error + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, String> {
        let done = self.tools.blocking(self.tracker, move || work().map_err(|source| chain(&source))).await;
        done.and_then(|result| result)
    }
}
