//! `install-linux.target`: the steps of one run, with their reports. What they do is in [`crate::linux`].

use std::io::{self, Read};
use std::ops::Range;

use beacon::Class;
use recipe::PartitionType;

use crate::device::Disk;
use crate::facts::DiskFacts;
use crate::gpt::Table;
use crate::linux::{Installation, Layout, LinuxTarget, Place};
use crate::medium::MediumVolume;
use crate::oci::{BlobReader, ImageSource, LayerReader, OciImage};
use crate::plan::{Failure, Plan, Step};
use crate::task::{LinuxTask, unit};

use super::{FoundTask, Machine, Reporter, Run, with_image};

/// The context that the steps of one installation of Linux share.
pub(super) struct LinuxRun<'run> {
    pub(super) machine: &'run Machine<'run>,
    pub(super) reporter: &'run Reporter<'run>,
    pub(super) plan: &'run Plan,
    pub(super) volume: Option<&'run MediumVolume>,
}

impl LinuxRun<'_> {
    /// Zeroes the places of old signatures on the open disks, but not those that `kept` returns for a disk.
    fn wipe(
        &self,
        installation: &Installation<'_>,
        disks: &[Box<dyn Disk>],
        kept: fn(&dyn Disk) -> Vec<Range<u64>>,
    ) -> Result<(), String> {
        for ((index, disk), facts) in disks.iter().enumerate().zip(self.facts()) {
            let (machine, reporter, plan) = (self.machine, self.reporter, self.plan);
            let run = Run { machine, reporter, plan, facts, disk: &**disk };
            run.wipe(installation.new_partitions(index), &kept(&**disk))?;
        }
        Ok(())
    }

    /// Zeroes the places of old signatures on the open disks, then writes their tables. No disk has a new table while another one
    /// still has old signatures.
    fn write_tables(&self, installation: &Installation<'_>, disks: &[Box<dyn Disk>]) -> Result<(), String> {
        self.wipe(installation, disks, |_| Vec::new())?;
        for (index, disk) in disks.iter().enumerate() {
            installation.write_table(index, &**disk)?;
        }
        Ok(())
    }

    /// Returns the disks of the plan, the first one first.
    fn facts(&self) -> impl Iterator<Item = &DiskFacts> {
        std::iter::once(&self.plan.disk).chain(&self.plan.more)
    }

    fn step<T>(&self, step: Step, work: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
        self.machine.log.line(step.unit(), "started");
        let written = self.reporter.begin_writing(step.unit(), step.percent());
        written.and_then(|()| work()).map_err(|message| Failure { unit: step.unit(), message })
    }
}

/// Installs Linux on the disks, which are open exclusively until their tables are written.
pub(super) fn install(
    run: &LinuxRun<'_>,
    disks: Vec<Box<dyn Disk>>,
    task: &LinuxTask,
    found: &FoundTask,
) -> Result<(), Failure> {
    let failed = |step: &'static str| move |message: String| Failure { unit: step, message };
    let machine = run.machine;
    // The image and the layout are checked before the first write.
    let source = (found, run.reporter, run.volume);
    with_image(machine, source, &task.image, |source, image| {
        install_from(run, disks, task, found, source, &image)
    })
    .map_err(failed(unit::IMAGE_LINUX))?
}

fn install_from(
    run: &LinuxRun<'_>,
    disks: Vec<Box<dyn Disk>>,
    task: &LinuxTask,
    found: &FoundTask,
    source: &dyn ImageSource,
    image: &OciImage,
) -> Result<(), Failure> {
    let failed = |step: &'static str| move |message: String| Failure { unit: step, message };
    let machine = run.machine;
    machine
        .log
        .line(unit::IMAGE_LINUX, format!("the image is {} with {} layers", image.digest, image.layers.len()));
    let sizes: Vec<(u64, u64)> = disks.iter().map(|disk| (disk.size(), disk.sector())).collect();
    // The recipe is another one than these disks, or the way this machine was started, need.
    let unfit = |message: String| {
        run.reporter.has_failed(Class::Disk);
        failed(unit::PARTITION)(message)
    };
    let layout = Layout::over(&task.layout, &task.storage, &sizes, found.job.job_id).map_err(unfit)?;
    if machine.linux.efi_variables().is_none() {
        check_for_bios(&layout, &sizes).map_err(unfit)?;
    } else if layout.efi_system().is_none() {
        return Err(unfit(
            "the layout has no EFI system partition (ef00, vfat), and this machine starts by UEFI; add one; nothing was written"
                .to_owned(),
        ));
    }
    let targets =
        run.facts().map(|disk| LinuxTarget { name: disk.name.clone(), sector: disk.sector }).collect();
    let mut installation =
        Installation::new(machine.linux, machine.log, &found.job, targets, layout, image.digest.clone());
    installation.prepare_host().map_err(failed(unit::PARTITION))?;
    // First: the group of another disk can be the one that an earlier run of this job made there.
    check_former(run, &disks, &installation).map_err(failed(unit::SELECT_DISK))?;
    installation.check_groups().map_err(failed(unit::PARTITION))?;
    installation.check_arrays().map_err(failed(unit::PARTITION))?;
    let outcome = carry_out(run, disks, &mut installation, source, image, found);
    if outcome.is_err()
        && let Err(reason) = installation.unmount()
    {
        machine.log.line(unit::PARTITION, reason);
    }
    outcome
}

/// Refuses a second run of a job that would write to another disk than the first one: hints by size or model match another disk when
/// one is broken or absent.
fn check_former(
    run: &LinuxRun<'_>,
    disks: &[Box<dyn Disk>],
    installation: &Installation<'_>,
) -> Result<(), String> {
    installation.check_former(disks)?;
    let chosen: Vec<&str> = run.facts().map(|disk| disk.name.as_str()).collect();
    let others = (run.machine.disks)();
    for other in others.iter().filter(|other| other.bytes > 0 && !chosen.contains(&other.name.as_str())) {
        // A disk that cannot be read was not written either.
        let is_former = (run.machine.peek)(other).is_ok_and(|disk| installation.is_of_job(&*disk));
        if is_former {
            return Err(format!(
                "an earlier run of this job wrote {}, and the recipe selects {} now; nothing was written. Name the disk in \
                 disk_hints, or create a new job",
                other.shown(),
                chosen.join(", ")
            ));
        }
    }
    Ok(())
}

/// Refuses a layout that a machine started by BIOS cannot start from.
fn check_for_bios(layout: &Layout, sizes: &[(u64, u64)]) -> Result<(), String> {
    let mut started = layout.disks.iter().zip(sizes).filter(|(disk, _)| disk.has_bios_boot);
    if let Some((_, (_, sector))) = started.find(|(_, (_, sector))| *sector != 512) {
        return Err(format!(
            "this machine was started by BIOS, which starts no disk with sectors of {sector} bytes; start the machine by UEFI; \
             nothing was written"
        ));
    }
    let missing = |disks: &str| {
        format!(
            "this machine was started by BIOS, and partition_layout has no BIOS boot partition{disks}; add one of 1M with the type_guid {}, \
             or start the machine by UEFI; nothing was written",
            PartitionType::BIOS_BOOT
        )
    };
    if !layout.disks.iter().any(|disk| disk.has_bios_boot) {
        return Err(missing(""));
    }
    // A copy of /boot is worth nothing on a disk that the firmware cannot start.
    if let Place::Array(index) = layout.boot().0.place
        && let Some(array) = layout.arrays.get(index)
    {
        for place in &array.members {
            if let Place::Partition { disk, .. } = place
                && layout.disks.get(*disk).is_some_and(|disk| !disk.has_bios_boot)
            {
                return Err(missing(&format!(" on disk {}, which has a copy of /boot", disk + 1)));
            }
        }
    }
    Ok(())
}

fn carry_out(
    run: &LinuxRun<'_>,
    disks: Vec<Box<dyn Disk>>,
    installation: &mut Installation<'_>,
    source: &dyn ImageSource,
    image: &OciImage,
    found: &FoundTask,
) -> Result<(), Failure> {
    let log = run.machine.log;
    let is_installed = run.step(Step::Partition, || {
        if installation.is_partitioned(&disks)? {
            drop(disks);
            installation.find_devices()?;
            if installation.is_installed()? {
                log.line(unit::PARTITION, "an earlier run of this job wrote partitions and image; they stay");
                return Ok(true);
            }
            let mut again = Vec::new();
            for facts in run.facts() {
                // Its name can have moved since it was closed.
                again.push(super::open(run.machine, facts).map_err(|failure| failure.message)?);
            }
            // The tables stay, so that a third run knows the disks of this job whenever this one ends.
            run.wipe(installation, &again, |disk| Table::written(disk).into())?;
        } else {
            for disk in &disks {
                installation.remember_old(&**disk);
            }
            run.write_tables(installation, &disks)?;
            // The kernel gives no partition to a program while this one has the whole disk.
            drop(disks);
        }
        installation.find_devices()?;
        installation.make_storage()?;
        installation.make_file_systems()?;
        Ok(false)
    })?;
    if !is_installed {
        run.step(Step::WriteLayers, || {
            let tree = installation.mount()?;
            let total = image.layers.iter().map(|layer| layer.size).sum::<u64>().max(1);
            let mut done = 0_u64;
            for layer in &image.layers {
                let mut read = done;
                let blob = Watched::new(BlobReader::new(source, layer), |bytes| {
                    read += bytes;
                    let share = u8::try_from(read.saturating_mul(70) / total).unwrap_or(70);
                    let percent = Step::WriteLayers.percent() + share.min(70);
                    run.reporter.reading(unit::IMAGE_LINUX, percent, read, total);
                    run.reporter.is_awaited()
                });
                let mut stream = LayerReader::new(blob, layer.diff_id.as_deref())
                    .map_err(|source| crate::discovery::chain(&source))?;
                installation.apply(&tree, &mut stream, &mut |_| ())?;
                // What follows the archive in its stream counts for the digests.
                stream.finish().map_err(|source| crate::discovery::chain(&source))?;
                done += layer.size;
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

/// A stream that says how many bytes each read returned, and ends with the error of the closure. The closure is boxed, so that the
/// decoders behind it exist once: the agent
/// travels on every medium.
pub(super) struct Watched<'run, R> {
    inner: R,
    seen: Box<dyn FnMut(u64) -> Result<(), String> + 'run>,
}

impl<'run, R: Read> Watched<'run, R> {
    pub(super) fn new(inner: R, seen: impl FnMut(u64) -> Result<(), String> + 'run) -> Self {
        Self { inner, seen: Box::new(seen) }
    }
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        (self.seen)(read as u64).map_err(io::Error::other)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_stream_says_what_was_read_and_ends_when_the_job_ends() {
        let mut seen = Vec::new();
        let mut all = Vec::new();
        let mut watched = Watched::new(&[7; 20][..], |bytes| {
            seen.push(bytes);
            if seen.iter().sum::<u64>() > 12 { Err("the job ended".to_owned()) } else { Ok(()) }
        });
        watched.by_ref().take(12).read_to_end(&mut all).unwrap();
        assert_eq!(watched.read_exact(&mut [0; 8]).unwrap_err().to_string(), "the job ended");
        drop(watched);
        assert_eq!((all.len(), seen.iter().sum::<u64>()), (12, 20));
    }
}
