//! `install-linux.target`: the steps of one run, with their reports. What they do is in [`crate::linux`].

use recipe::PartitionType;

use crate::device::Disk;
use crate::linux::{Installation, Layout};
use crate::medium::MediumVolume;
use crate::oci::{BlobReader, Image, ImageSource, LayerReader};
use crate::plan::{Failure, Plan, Step};
use crate::task::{LinuxTask, unit};

use super::{FoundTask, Machine, Reporter, Run, with_image};

/// What the steps of an installation share.
pub(super) struct LinuxRun<'run> {
    pub(super) machine: &'run Machine<'run>,
    pub(super) reporter: &'run Reporter<'run>,
    pub(super) plan: &'run Plan,
    pub(super) volume: Option<&'run MediumVolume>,
}

impl LinuxRun<'_> {
    /// Zeroes the places of old signatures on an open disk.
    fn wipe(&self, disk: &dyn Disk) -> Result<(), String> {
        Run { machine: self.machine, reporter: self.reporter, plan: self.plan, disk }.wipe().map(drop)
    }

    fn step<T>(&self, step: Step, work: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
        self.machine.log.line(step.unit(), "started");
        self.reporter.progress(step.unit(), step.percent());
        work().map_err(|message| Failure { unit: step.unit(), message })
    }
}

/// Installs Linux on the disk, which is open exclusively until its table is written.
pub(super) fn install(
    run: &LinuxRun<'_>,
    disk: Box<dyn Disk>,
    task: &LinuxTask,
    found: &FoundTask,
) -> Result<(), Failure> {
    let failed = |step: &'static str| move |message: String| Failure { unit: step, message };
    let machine = run.machine;
    // The image and the layout are checked before the first write.
    let source = (found, run.reporter, run.volume);
    with_image(machine, source, &task.image, |source, image| {
        install_from(run, disk, task, found, source, &image)
    })
    .map_err(failed(unit::IMAGE_LINUX))?
}

fn install_from(
    run: &LinuxRun<'_>,
    disk: Box<dyn Disk>,
    task: &LinuxTask,
    found: &FoundTask,
    source: &dyn ImageSource,
    image: &Image,
) -> Result<(), Failure> {
    let failed = |step: &'static str| move |message: String| Failure { unit: step, message };
    let machine = run.machine;
    machine
        .log
        .line(unit::IMAGE_LINUX, format!("the image is {} with {} layers", image.digest, image.layers.len()));
    let layout = Layout::new(&task.layout, disk.size(), disk.sector(), found.job.job_id)
        .map_err(failed(unit::PARTITION))?;
    let embeds = task.layout.iter().any(|part| part.type_guid == PartitionType::BIOS_BOOT);
    if machine.linux.efi_variables().is_none() && !embeds {
        return Err(failed(unit::PARTITION)(format!(
            "this machine was started by BIOS, and partition_layout has no BIOS boot partition; add one of 1M with the type_guid {}, \
             or start the machine by UEFI; nothing was written",
            PartitionType::BIOS_BOOT
        )));
    }
    let place = (run.plan.disk.name.as_str(), disk.sector());
    let mut installation =
        Installation::new(machine.linux, machine.log, &found.job, place, layout, image.digest.clone());
    let outcome = carry_out(run, disk, &mut installation, source, image, found);
    if outcome.is_err()
        && let Err(reason) = installation.unmount()
    {
        machine.log.line(unit::PARTITION, reason);
    }
    outcome
}

fn carry_out(
    run: &LinuxRun<'_>,
    disk: Box<dyn Disk>,
    installation: &mut Installation<'_>,
    source: &dyn ImageSource,
    image: &Image,
    found: &FoundTask,
) -> Result<(), Failure> {
    let log = run.machine.log;
    let is_installed = run.step(Step::Partition, || {
        if installation.is_partitioned(&*disk)? {
            drop(disk);
            installation.find_devices()?;
            if installation.is_installed()? {
                log.line(unit::PARTITION, "an earlier run of this job wrote partitions and image; they stay");
                return Ok(true);
            }
            let again = (run.machine.open)(&run.plan.disk)
                .map_err(|source| format!("opening {} again: {source}", run.plan.disk.name))?;
            run.wipe(&*again)?;
            installation.write_table(&*again)?;
        } else {
            installation.remember_old(&*disk);
            run.wipe(&*disk)?;
            installation.write_table(&*disk)?;
            // The kernel gives no partition to a program while this one has the whole disk.
            drop(disk);
        }
        installation.find_devices()?;
        installation.make_file_systems()?;
        Ok(false)
    })?;
    if !is_installed {
        run.step(Step::WriteLayers, || {
            let tree = installation.mount()?;
            let total = image.layers.iter().map(|layer| layer.size).sum::<u64>().max(1);
            let mut done = 0_u64;
            for layer in &image.layers {
                let blob = BlobReader::new(source, layer);
                let mut stream = LayerReader::new(blob, layer.diff_id.as_deref())
                    .map_err(|source| crate::discovery::chain(&source))?;
                installation.apply(&tree, &mut stream, &mut |_| ())?;
                // What follows the archive in its stream counts for the digests.
                stream.finish().map_err(|source| crate::discovery::chain(&source))?;
                done += layer.size;
                let share = u8::try_from(done.saturating_mul(70) / total).unwrap_or(70);
                run.reporter.progress(unit::IMAGE_LINUX, Step::WriteLayers.percent() + share.min(70));
            }
            installation.finish_image(&tree)
        })?;
    }
    let tree = installation.tree().map_err(|message| Failure { unit: unit::BOOTLOADER, message })?;
    run.step(Step::BootLoader, || installation.install_boot_loader(&tree))?;
    run.step(Step::ConfigDrive, || {
        let files = found.files.as_ref().map_err(Clone::clone)?;
        installation.write_seed(&tree, files)?;
        installation.finish(tree)
    })
}
