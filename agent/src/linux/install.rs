//! The steps of `install-linux.target` on one disk.
//!
//! ```text
//! open (exclusive) --is_partitioned--> [wipe, GPT] --closed--> partitions shown by the kernel
//!   --observe: root mounts and has the stamp of this job--> keep : file systems made, mounted, layers, fstab, stamp
//!   --> boot loader --> seed --> log, flush, unmount
//! ```
//!
//! Invariant: the stamp is written after everything of the image is on the medium, so it is never there without the image.

use std::{
    collections::BTreeMap,
    io::Read,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    time::Duration,
};

use recipe::FsFormat;
use serde_json::json;
use uuid::Uuid;

use super::host::{Host, Program};
use super::layout::{Layout, Volume};
use super::loader::{self, BootLoader};
use super::nvram::{BootEntry, Nvram};
use super::{swap, texts};
use crate::device::{Disk, FileDisk};
use crate::gpt::Table;
use crate::job::Job;
use crate::layer::{self, Ownership, Tree};
use crate::log::Log;
use crate::task::unit;

const STAMP: &str = "var/lib/shoal/installed.json";
const SEED: &str = "var/lib/cloud/seed/nocloud";
const LOG_FILE: &str = "var/log/shoal-install/agent.log";
const GRUB_LIMIT: Duration = Duration::from_secs(600);

/// One installation.
pub struct Installation<'run> {
    /// The machine.
    pub host: &'run dyn Host,
    /// The log.
    pub log: &'run Log,
    /// The job.
    pub job: &'run Job,
    /// The kernel's name of the disk.
    pub disk: &'run str,
    /// The sector size of the disk.
    pub sector: u64,
    /// The volumes.
    pub layout: Layout,
    /// The digest of the image, which the stamp names.
    pub image: String,
    devices: Vec<PathBuf>,
    gone: Vec<Uuid>,
}

impl<'run> Installation<'run> {
    /// Creates the installation of a layout.
    #[must_use]
    pub fn new(
        host: &'run dyn Host,
        log: &'run Log,
        job: &'run Job,
        (disk, sector): (&'run str, u64),
        layout: Layout,
        image: String,
    ) -> Self {
        Self { host, log, job, disk, sector, layout, image, devices: Vec::new(), gone: Vec::new() }
    }

    /// Returns whether the disk has exactly the table of this job.
    ///
    /// # Errors
    /// Returns the error of the disk.
    pub fn is_partitioned(&self, disk: &dyn Disk) -> Result<bool, String> {
        // A damaged table is one that is written again.
        let Ok(Some(found)) = Table::read(disk) else { return Ok(false) };
        let wanted = self.table(disk)?;
        Ok(found.disk_guid == wanted.disk_guid && found.entries == wanted.entries)
    }

    /// Remembers the partitions of the table that is about to be replaced: boot entries of theirs are deleted later.
    pub fn remember_old(&mut self, disk: &dyn Disk) {
        if let Ok(Some(old)) = Table::read(disk) {
            self.gone = old.entries.iter().flatten().map(|entry| entry.unique_guid).collect();
        }
    }

    /// Writes the table.
    ///
    /// # Errors
    /// Returns a sentence when the disk refuses it.
    pub fn write_table(&self, disk: &dyn Disk) -> Result<(), String> {
        let table = self.table(disk)?;
        table.write(disk).map_err(|source| crate::discovery::chain(&source))
    }

    fn table(&self, disk: &dyn Disk) -> Result<Table, String> {
        Table::new(disk, &self.layout.placed, self.layout.guids())
            .map_err(|source| crate::discovery::chain(&source))
    }

    /// Finds the devices of the partitions.
    ///
    /// # Errors
    /// Returns a sentence when the kernel does not show them.
    pub fn find_devices(&mut self) -> Result<(), String> {
        let unit = self.sector / 512;
        let expected: Vec<(u64, u64)> = self
            .layout
            .placed
            .iter()
            .map(|part| (part.first_lba * unit, (part.last_lba + 1 - part.first_lba) * unit))
            .collect();
        self.devices = self.host.partitions(self.disk, &expected)?;
        Ok(())
    }

    /// Mounts the file systems and returns whether they hold the whole image of this job. If not, nothing stays mounted.
    ///
    /// # Errors
    /// Returns a sentence when the root cannot be unmounted.
    pub fn is_installed(&self) -> Result<bool, String> {
        self.unmount()?;
        if self.mount().is_ok_and(|tree| {
            let stamp = tree.read_file(STAMP, 4096).unwrap_or_default();
            stamp == self.stamp()
        }) {
            return Ok(true);
        }
        self.unmount()?;
        Ok(false)
    }

    fn stamp(&self) -> Vec<u8> {
        let mut text = json!({"job_id": self.job.job_id, "image": self.image}).to_string().into_bytes();
        text.push(b'\n');
        text
    }

    /// Makes the file systems.
    ///
    /// # Errors
    /// Returns a sentence when a program fails.
    pub fn make_file_systems(&self) -> Result<(), String> {
        for (volume, device) in self.layout.volumes.iter().zip(&self.devices) {
            if volume.format == FsFormat::Swap {
                let made = FileDisk::open(device, self.sector)
                    .and_then(|disk| swap::make(&disk, volume.uuid, volume.label.as_deref()));
                made.map_err(|source| format!("making swap on {}: {source}", device.display()))?;
                self.log.line(unit::PARTITION, format!("partition {} is swap", volume.number));
            } else if let Some(program) = volume.mkfs(device) {
                self.host.run(&program)?;
                let text = format!("partition {} is {}", volume.number, volume.format.as_str());
                self.log.line(unit::PARTITION, text);
            }
        }
        Ok(())
    }

    /// Mounts all file systems. Returns the root.
    ///
    /// # Errors
    /// Returns a sentence when one cannot be mounted.
    pub fn mount(&self) -> Result<Tree, String> {
        let mut tree = None;
        for volume in self.layout.mounted() {
            let device = self
                .devices
                .get(volume.number - 1)
                .ok_or_else(|| format!("partition {} has no device", volume.number))?;
            let mount = volume.mount.as_deref().unwrap_or_default();
            let data = if volume.format == FsFormat::Vfat { "umask=0077" } else { "" };
            let failed = |source: std::io::Error| {
                let hint = match source.raw_os_error() {
                    // ENODEV
                    Some(19) => "; the kernel of this medium has no driver for it",
                    _ => "",
                };
                let kind = volume.format.as_str();
                format!("mounting {} as {kind} at {mount}: {source}{hint}", device.display())
            };
            match &tree {
                None => {
                    self.host
                        .mount(device, volume.format.as_str(), data, self.host.root())
                        .map_err(failed)?;
                    let ownership =
                        if self.host.is_privileged() { Ownership::Keep } else { Ownership::Ignore };
                    tree = Some(Tree::open(self.host.root(), ownership).map_err(failed)?);
                }
                Some(root) => {
                    // The open directory is the mount point: a link of the image cannot lead elsewhere.
                    let folder = root.make_folder(mount).map_err(failed)?;
                    let at = format!("/proc/self/fd/{}", folder.as_raw_fd());
                    self.host.mount(device, volume.format.as_str(), data, Path::new(&at)).map_err(failed)?;
                }
            }
        }
        tree.ok_or_else(|| "the layout has no root".to_owned())
    }

    /// Opens the root that is mounted.
    ///
    /// # Errors
    /// Returns a sentence when it cannot be opened.
    pub fn tree(&self) -> Result<Tree, String> {
        let ownership = if self.host.is_privileged() { Ownership::Keep } else { Ownership::Ignore };
        Tree::open(self.host.root(), ownership).map_err(|source| format!("opening the new root: {source}"))
    }

    /// Applies one layer.
    ///
    /// # Errors
    /// Returns a sentence when the layer is damaged or the file system refuses it.
    pub fn apply(&self, tree: &Tree, layer: impl Read, progress: &mut dyn FnMut(u64)) -> Result<(), String> {
        let applied =
            layer::apply(layer, tree, progress).map_err(|source| crate::discovery::chain(&source))?;
        let mut text = format!("{} members, {} bytes of files", applied.members, applied.bytes);
        if applied.skipped_attributes > 0 {
            text += &format!("; {} attributes are not supported here", applied.skipped_attributes);
        }
        self.log.line(unit::IMAGE_LINUX, text);
        Ok(())
    }

    /// Writes fstab, flushes, and writes the stamp.
    ///
    /// # Errors
    /// Returns a sentence when the file system refuses it, or when the image is no root file system.
    pub fn finish_image(&self, tree: &Tree) -> Result<(), String> {
        if tree.list("etc").is_empty() {
            return Err("the image is no root file system: it has no /etc".to_owned());
        }
        let failed = |source: std::io::Error| format!("writing to the new root: {source}");
        tree.write_file("etc/fstab", texts::fstab(&self.layout).as_bytes(), Some(0o644)).map_err(failed)?;
        tree.sync().map_err(failed)?;
        tree.write_file(STAMP, &self.stamp(), Some(0o600)).map_err(failed)
    }

    /// Installs the boot loader of the image.
    ///
    /// # Errors
    /// Returns a sentence when the image has none that starts on this machine's firmware.
    pub fn install_boot_loader(&self, tree: &Tree) -> Result<(), String> {
        let system = loader::system_of(tree);
        let words = loader::words_of(tree);
        let kernels = loader::kernels_of(tree)?;
        let found = loader::find(tree, &system);
        let efi = self.layout.efi_system();
        let variables = self.host.efi_variables();
        if variables.is_none() || !matches!(found, Some(BootLoader::SystemdBoot { .. })) {
            loader::write_menu(tree, &self.layout, &system, &kernels, &words)?;
        }
        match (&found, efi) {
            (Some(found), Some(volume)) => {
                let mount = volume.mount.as_deref().unwrap_or_default().trim_start_matches('/');
                let file = loader::install(tree, mount, found, &self.layout, &system, &kernels, &words)?;
                self.log.line(unit::BOOTLOADER, format!("{} is started by {file}", system.name));
                if let Some(folder) = variables {
                    self.write_boot_entry(folder, volume, &system.name, file);
                }
            }
            (Some(_), None) if variables.is_some() => {
                return Err(
                    "the layout has no EFI system partition (ef00, vfat), and this machine starts by \
                     UEFI; add one"
                        .to_owned(),
                );
            }
            (None, _) if variables.is_some() => {
                return Err(
                    "the image has no boot loader for UEFI: neither shim and GRUB nor systemd-boot; \
                     install one in it"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if variables.is_none() {
            self.install_for_bios(tree)?;
        }
        Ok(())
    }

    fn write_boot_entry(&self, folder: &Path, volume: &Volume, name: &str, file: String) {
        let Some(part) = self.layout.placed.get(volume.number - 1) else { return };
        let entry = BootEntry {
            description: name.to_owned(),
            partition: u32::try_from(volume.number).unwrap_or(u32::MAX),
            first_lba: part.first_lba,
            sectors: part.last_lba + 1 - part.first_lba,
            guid: self.layout.guid(volume.number),
            file,
        };
        let text = match Nvram::new(folder).install(&entry, &self.gone) {
            Ok(number) => format!("boot entry {number:04X} is the first of the firmware"),
            // The loader at EFI/BOOT starts without an entry.
            Err(reason) => format!("warning: the firmware refused the boot entry: {reason}"),
        };
        self.log.line(unit::BOOTLOADER, text);
    }

    fn install_for_bios(&self, tree: &Tree) -> Result<(), String> {
        let names = ["grub-install", "grub2-install"];
        let folders = ["usr/sbin", "usr/bin"];
        let name = names
            .into_iter()
            .find(|name| folders.iter().any(|folder| tree.has_file(&format!("{folder}/{name}"))));
        let modules = tree.list("usr/lib/grub/i386-pc");
        let Some(name) = name.filter(|_| !modules.is_empty()) else {
            return Err("the image has no boot loader for BIOS, by which this machine starts: it needs \
                 grub-install and the modules i386-pc (package grub-pc-bin, grub2-pc)"
                .to_owned());
        };
        self.host.bind_kernel().map_err(|source| format!("showing /dev to the new system: {source}"))?;
        self.host.run(&Program {
            name: name.to_owned(),
            arguments: vec![
                "--target=i386-pc".to_owned(),
                "--boot-directory=/boot".to_owned(),
                format!("/dev/{}", self.disk),
            ],
            in_root: true,
            limit: GRUB_LIMIT,
        })
    }

    /// Writes the seed of cloud-init and what the first start of a copy needs.
    ///
    /// # Errors
    /// Returns a sentence when the file system refuses it.
    pub fn write_seed(&self, tree: &Tree, files: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        let meta_data = format!("instance-id: {}\n", self.job.job_id).into_bytes();
        let write = |name: &str, bytes: &[u8]| {
            let path = format!("{SEED}/{name}");
            tree.write_file(&path, bytes, Some(0o600)).map_err(|source| format!("writing /{path}: {source}"))
        };
        write("meta-data", files.get("meta-data").unwrap_or(&meta_data))?;
        write("user-data", files.get("user-data").map_or(b"#cloud-config\n", Vec::as_slice))?;
        for name in ["network-config", "vendor-data"] {
            if let Some(bytes) = files.get(name) {
                write(name, bytes)?;
            }
        }
        let other = |path: &str, bytes: &[u8], mode| {
            tree.write_file(path, bytes, Some(mode)).map_err(|source| format!("writing /{path}: {source}"))
        };
        // An empty file makes systemd create an id at the first start; a copied one would be on two machines.
        other("etc/machine-id", b"", 0o444)?;
        if tree.has_file("etc/selinux/config") {
            // Layers have no labels. The system sets them at its first start.
            other(".autorelabel", b"-F\n", 0o644)?;
        }
        Ok(())
    }

    /// Copies the log into the new system, flushes and unmounts everything.
    ///
    /// # Errors
    /// Returns a sentence when the disk refuses it.
    pub fn finish(&self, tree: Tree) -> Result<(), String> {
        let log = self.log.tail(crate::log::RING_BYTES);
        let failed = |source: std::io::Error| format!("flushing the new system: {source}");
        tree.write_file(LOG_FILE, log.as_bytes(), Some(0o600)).map_err(failed)?;
        tree.sync().map_err(failed)?;
        drop(tree);
        rustix::fs::sync();
        self.unmount()
    }

    /// Unmounts everything.
    ///
    /// # Errors
    /// Returns a sentence when something stays in use.
    pub fn unmount(&self) -> Result<(), String> {
        self.host.unmount_all().map_err(|source| format!("unmounting the new root: {source}"))
    }
}
