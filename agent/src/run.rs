//! Carrying out a task: the plan's steps in order, the first failure ends them, then the final report.
//!
//! ```text
//! task --plan--> open the disk (exclusive) --> image resolved, its start checked --> first write
//!   each step: log, progress report, work behind a fence of its ranges
//!   end: final report, repeated until it is acknowledged
//! ```
//!
//! Invariants: the identity of the disk is reported before the first write. Until the image was found and its first MiB
//! checked, nothing is written. A second run of the same job does the same again.

use std::{cell::Cell, io, ops::Range, path::Path, sync::Arc, time::Duration};

use recipe::{Delivery, EraseMode};

use crate::ata::AtaDisk;
use crate::clock::Clock;
use crate::device::{Disk, Fence};
use crate::discovery::FoundTask;
use crate::disk_image;
use crate::erase::{self, NoOwnErase, OwnErase};
use crate::facts::DiskFacts;
use crate::file_system::{self, Found, Grown};
use crate::gpt::{GptError, Table};
use crate::http::Http;
use crate::inventory::{self, Inventory};
use crate::linux::Host;
use crate::log::Log;
use crate::medium::{Medium, MediumVolume, NoVolume};
use crate::nvme::NvmeNamespace;
use crate::oci::{BlobReader, ImageReference, ImageSource, LayerReader, MediumLayout, OciImage, Registry};
use crate::oci::{FIRST_PAUSE, LONGEST_PAUSE, PATIENCE};
use crate::outcome::Outcome;
use crate::plan::{self, Failure, Plan, Step};
use crate::report::{ReportDelivery, Reporter};
use crate::rescue::{RescueHost, RescueReach};
use crate::stable_disks::{self, DriverLoads, Shown};
use crate::task::{Target, Task, unit};
use crate::windows::{self, Ntfs};
use crate::wipe;

mod linux;

/// Opens the disk of a plan for writing.
pub type OpenDisk<'run> = dyn Fn(&DiskFacts) -> io::Result<Box<dyn Disk>> + 'run;

/// Opens the medium of a task with `delivery: media`.
pub type OpenMedium<'run> = dyn Fn(&FoundTask) -> io::Result<Arc<dyn Medium>> + 'run;

/// The machine as a run uses it: HTTP, clock, log, disks, drivers and media.
pub struct Machine<'run> {
    /// HTTP for the controller and its registry.
    pub http: &'run dyn Http,
    /// HTTP for a registry that is not the controller's.
    pub foreign_http: &'run dyn Http,
    /// Time.
    pub clock: &'run dyn Clock,
    /// The log.
    pub log: &'run Log,
    /// Reads the disks as the machine shows them now.
    pub disks: &'run dyn Fn() -> Vec<DiskFacts>,
    /// The devices that hold the boot and the task medium.
    pub media: Vec<String>,
    /// Opens a disk.
    pub open: &'run OpenDisk<'run>,
    /// Opens a disk to read it, whatever uses it.
    pub peek: &'run OpenDisk<'run>,
    /// Reads the loads of drivers.
    pub drivers: &'run dyn Fn() -> DriverLoads,
    /// Mounts and programs for an installation of Linux.
    pub linux: &'run dyn Host,
    /// Reads the inventory.
    pub inventory: &'run dyn Fn() -> Inventory,
    /// Starts the rescue system.
    pub rescue: &'run dyn RescueHost,
    /// Opens the medium of a task.
    pub medium: &'run OpenMedium<'run>,
    /// How long the final report is repeated; forever without a limit.
    pub report_limit: Option<Duration>,
}

impl Machine<'_> {
    fn shown(&self) -> Shown<'_> {
        Shown { disks: self.disks, drivers: self.drivers }
    }
}

/// Carries out a task and reports its end.
pub fn run(machine: &Machine<'_>, found: &FoundTask) -> (Outcome, ReportDelivery) {
    let volume = volume(machine.medium, found, machine.clock, machine.log);
    let reporter = reporter(machine, found, &volume);
    let volume = volume.as_ref().map_err(Clone::clone);
    let carried_out = carry_out(machine, found, &reporter, volume);
    // Before the outcome: the log ends with the reason of a failure.
    if let Some(peak) = inventory::peak_memory(Path::new("/proc/self/status")) {
        machine.log.line(unit::DISPATCHER, format!("used at most {} MiB of memory", peak.div_ceil(1 << 20)));
    }
    let outcome = match carried_out {
        Ok(None) => Outcome::Success,
        Ok(Some(reach)) => {
            machine.log.line(unit::RESCUE, reach.shown());
            Outcome::Reachable(reach)
        }
        Err(failure) => {
            machine.log.line(failure.unit, format!("failed: {}", failure.message));
            Outcome::Failed { step: failure.unit.to_owned(), message: failure.message }
        }
    };
    let delivery = reporter.deliver(&outcome, machine.report_limit);
    (outcome, delivery)
}

/// The volume of a task with `delivery: media`; `None` for the others.
type Volume<'run> = Result<&'run Option<MediumVolume>, String>;

/// Opens the volume of a task with `delivery: media`; `None` for the others. Without it the machine could not even say what failed, so a
/// medium that cannot be read is tried again for ten minutes, as every later read of it is.
///
/// # Errors
/// Returns a sentence when the medium cannot be read or has no volume.
pub fn volume(
    medium: &OpenMedium<'_>,
    found: &FoundTask,
    clock: &dyn Clock,
    log: &Log,
) -> Result<Option<MediumVolume>, String> {
    if found.delivery() == Delivery::Network {
        return Ok(None);
    }
    let begun = clock.elapsed();
    let mut pause = FIRST_PAUSE;
    loop {
        let reason = match medium(found).map(|opened| MediumVolume::open(opened, found)) {
            Ok(Ok(volume)) => return Ok(Some(volume)),
            Ok(Err(NoVolume::Refused(reason))) => return Err(reason),
            Ok(Err(NoVolume::Unreadable(reason))) => reason,
            Err(source) => format!("opening the medium {}: {source}", found.device),
        };
        if clock.elapsed().saturating_sub(begun) + pause > PATIENCE {
            return Err(reason);
        }
        log.line(unit::DISPATCHER, format!("{reason}; it is tried again"));
        clock.sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn reporter<'run>(
    machine: &Machine<'run>,
    found: &'run FoundTask,
    volume: &Result<Option<MediumVolume>, String>,
) -> Reporter<'run> {
    match volume {
        Ok(None) => Reporter::new(machine.http, machine.clock, &found.job, machine.log),
        Ok(Some(volume)) => Reporter::by_medium(machine.clock, &found.job, machine.log, Ok(volume)),
        Err(reason) => Reporter::by_medium(machine.clock, &found.job, machine.log, Err(reason.clone())),
    }
}

/// Runs `work` with the source of the OS image: the medium, or the registry.
fn with_image<T>(
    machine: &Machine<'_>,
    (found, reporter, volume): (&FoundTask, &Reporter<'_>, Option<&MediumVolume>),
    reference: &ImageReference,
    work: impl FnOnce(&dyn ImageSource, OciImage) -> T,
) -> Result<T, String> {
    if let Some(volume) = volume {
        let layout = MediumLayout::new(volume, machine.clock, reporter.fault());
        let image = layout.resolve().map_err(|source| source.to_string())?;
        return Ok(work(&layout, image));
    }
    let access = found.job.registry.as_ref();
    let http = if access.is_some() { machine.http } else { machine.foreign_http };
    if access.is_none() && !http.trusts_authorities() {
        return Err(format!(
            "oci_url names the registry {}, which is not the controller's, and this system has no certificate authorities to \
             trust it by; push the image into the controller's registry",
            reference.host.as_deref().unwrap_or("of no host")
        ));
    }
    let registry = Registry::new(http, machine.clock, access, reference)
        .map_err(|source| source.to_string())?
        .with_fault(reporter.fault());
    let image = registry.resolve(reference).map_err(|source| source.to_string())?;
    Ok(work(&registry, image))
}

/// Carries out the task. Returns how the machine is reached when an operator goes on from here.
fn carry_out(
    machine: &Machine<'_>,
    found: &FoundTask,
    reporter: &Reporter<'_>,
    volume: Volume<'_>,
) -> Result<Option<RescueReach>, Failure> {
    let dispatcher = |message: String| Failure { unit: unit::DISPATCHER, message };
    reporter.progress(unit::DISPATCHER, 0);
    let files = found.files.as_ref().map_err(|reason| dispatcher(reason.clone()))?;
    let task = Task::parse(files).map_err(dispatcher)?;
    let volume = volume.map_err(dispatcher)?.as_ref();
    if task.target == Target::Inventory {
        reporter.progress(unit::INVENTORY, 10);
        // Disks that appear late belong to it.
        stable_disks::stable(&machine.shown(), machine.clock, machine.log);
        reporter.set_inventory((machine.inventory)());
        return Ok(None);
    }
    if let Target::Rescue(keys) = &task.target {
        reporter.progress(unit::RESCUE, 10);
        let started = machine.rescue.start(keys, machine.log);
        return started.map(Some).map_err(|message| Failure { unit: unit::RESCUE, message });
    }
    on_disks(machine, found, reporter, &task, volume).map(|()| None)
}

/// Carries out a task that needs disks.
fn on_disks(
    machine: &Machine<'_>,
    found: &FoundTask,
    reporter: &Reporter<'_>,
    task: &Task,
    volume: Option<&MediumVolume>,
) -> Result<(), Failure> {
    let lacks = |disks: &[DiskFacts]| plan::lacks_disk(task, disks, &machine.media);
    let all = stable_disks::awaited(&machine.shown(), &lacks, machine.clock, machine.log);
    // A refusal of all disks is looked at in the inventory of the server.
    reporter.set_inventory((machine.inventory)());
    for disk in &all {
        // A message is bounded; the log of a refusal shows every disk.
        machine.log.line(unit::SELECT_DISK, format!("this machine has {}", disk.shown()));
    }
    let (plan, mut disks) = choose(machine, found, reporter, task, &all)?;
    if let Target::InstallLinux(task) = &task.target {
        // The steps close the disks between the table and the file systems.
        return linux::install(
            &linux::LinuxRun { machine, reporter, plan: &plan, volume },
            disks,
            task,
            found,
        );
    }
    let disk = disks.swap_remove(0);
    let run = Run { machine, reporter, plan: &plan, facts: &plan.disk, disk: &*disk };
    match &task.target {
        Target::InstallImage(reference) => {
            let source = (found, reporter, volume);
            let written = with_image(machine, source, reference, |source, image| {
                run.write_image(Step::WriteImage, source, &image)?;
                run.step(Step::Grow, || run.grow())
            });
            let last = written.map_err(|message| Failure { unit: unit::IMAGE_DISK, message })??;
            drop(disk);
            last.map_or(Ok(()), |(grown, kind)| grow_file_system(machine, &plan.disk, &grown, kind))
        }
        Target::InstallWindows(reference, answer) => {
            if answer.is_some() {
                let has_writer = windows::check(machine.linux);
                has_writer.map_err(|message| Failure { unit: unit::UNATTEND, message })?;
            }
            let source = (found, reporter, volume);
            let written = with_image(machine, source, reference, |source, image| {
                run.write_image(Step::WriteWindows, source, &image)?;
                run.step(Step::Grow, || run.move_backup())
            });
            let partitions = written.map_err(|message| Failure { unit: unit::IMAGE_WINDOWS, message })??;
            drop(disk);
            let answer = answer.as_deref();
            answer.map_or(Ok(()), |answer| write_answer(machine, reporter, &plan.disk, &partitions, answer))
        }
        Target::Erase(EraseMode::Quick) => run.step(Step::Erase, || run.quick_erase()),
        Target::Erase(EraseMode::Secure) => run.step(Step::Erase, || run.secure_erase(&all)),
        Target::InstallLinux(_) | Target::Inventory | Target::Rescue(_) => Ok(()),
    }
}

/// Makes the plan and opens its disks; the first one is that of the plan.
fn choose(
    machine: &Machine<'_>,
    found: &FoundTask,
    reporter: &Reporter<'_>,
    task: &Task,
    all: &[DiskFacts],
) -> Result<(Plan, Vec<Box<dyn Disk>>), Failure> {
    let mut media = machine.media.clone();
    loop {
        let plan = plan::plan(task, all, &media)?;
        let mut disks = vec![open(machine, &plan.disk)?];
        for facts in &plan.more {
            disks.push(open(machine, facts)?);
        }
        // A medium that appeared after the search, or did not respond to it, is one all the same.
        let chosen = std::iter::once(&plan.disk).chain(&plan.more);
        let late =
            chosen.zip(&disks).filter(|(facts, disk)| !media.contains(&facts.name) && has_volume(&***disk));
        let late: Vec<String> = late.map(|(facts, _)| facts.name.clone()).collect();
        if !late.is_empty() {
            media.extend(late);
            continue;
        }
        machine.log.line(unit::SELECT_DISK, format!("the disk is {}", plan.disk.shown()));
        for disk in &plan.more {
            machine.log.line(unit::SELECT_DISK, format!("another disk is {}", disk.shown()));
        }
        reporter.set_disk(&plan.disk, &plan.more);
        if let Some(former) = &found.job.disk_before {
            let same = former.check(&plan.disk);
            same.map_err(|message| Failure { unit: unit::SELECT_DISK, message })?;
        }
        reporter.progress(unit::SELECT_DISK, 1);
        return Ok((plan, disks));
    }
}

/// Whether a disk holds an ISO 9660 volume. ECMA-119, 8.1: its first descriptor is in sector 16.
fn has_volume(disk: &dyn Disk) -> bool {
    let mut identifier = [0; 5];
    disk.read_at(16 * 2048 + 1, &mut identifier).is_ok() && identifier == *b"CD001"
}

/// Opens a disk of the plan for writing.
fn open(machine: &Machine<'_>, facts: &DiskFacts) -> Result<Box<dyn Disk>, Failure> {
    let opened = (machine.open)(facts).and_then(|disk| {
        // The facts were read some time ago, and names can move: what is opened must still be what was chosen.
        if disk.size() / disk.sector() == facts.bytes / disk.sector() && disk.sector() == facts.sector {
            let same = |now: &DiskFacts| {
                (&now.name, &now.serial, &now.wwn) == (&facts.name, &facts.serial, &facts.wwn)
            };
            if (machine.disks)().iter().any(same) {
                return Ok(disk);
            }
            return Err(io::Error::other(
                "it has another serial number or WWN than the disk that was selected",
            ));
        }
        Err(io::Error::other("it has another size than the disk that was selected"))
    });
    opened.map_err(|source| Failure {
        unit: unit::SELECT_DISK,
        message: format!(
            "opening {}: {}; nothing was written",
            facts.shown(),
            crate::discovery::chain(&source)
        ),
    })
}

struct Run<'run> {
    machine: &'run Machine<'run>,
    reporter: &'run Reporter<'run>,
    plan: &'run Plan,
    /// The facts of the open disk, which is one of the plan.
    facts: &'run DiskFacts,
    disk: &'run dyn Disk,
}

impl Run<'_> {
    fn step<T>(&self, step: Step, work: impl FnOnce() -> Result<T, String>) -> Result<T, Failure> {
        debug_assert!(self.plan.steps.contains(&step));
        self.machine.log.line(step.unit(), "started");
        let written = self.reporter.begin_writing(step.unit(), step.percent());
        written.and_then(|()| work()).map_err(|message| Failure { unit: step.unit(), message })
    }

    /// Writes the image of a whole disk; `write` is the step that writes.
    fn write_image(&self, write: Step, source: &dyn ImageSource, image: &OciImage) -> Result<(), Failure> {
        let failed = |message: String| Failure { unit: write.unit(), message };
        let [layer] = &image.layers[..] else {
            let count = image.layers.len();
            return Err(failed(format!("a disk image is an artifact with one layer; this one has {count}")));
        };
        self.machine.log.line(write.unit(), format!("the image is {}, {} bytes", image.digest, layer.size));
        let read = Cell::new(0_u64);
        let blob = linux::Watched::new(BlobReader::new(source, layer), |bytes| {
            read.set(read.get() + bytes);
            self.reporter.is_awaited()
        });
        let mut stream = LayerReader::new(blob, layer.diff_id.as_deref())
            .map_err(|source| failed(crate::discovery::chain(&source)))?;
        let sentence = |error: disk_image::ImageError| {
            let (class, message) = error.into_parts();
            if let Some(class) = class {
                self.reporter.has_failed(class);
            }
            message
        };
        let start =
            disk_image::read_start(&mut stream, self.disk).map_err(|error| failed(sentence(error)))?;
        self.step(Step::Wipe, || self.wipe(Vec::new(), &[]))?;
        let size = self.step(write, || {
            let total = self.disk.size().max(1);
            disk_image::write(&start, &mut stream, self.disk, &mut |at| {
                // The uncompressed size is not known before the end: the share of the disk is a lower bound.
                let done = u8::try_from(at.saturating_mul(90) / total).unwrap_or(90);
                let percent = write.percent() + done.min(89);
                self.reporter.reading(write.unit(), percent, read.get(), layer.size);
            })
            .map_err(sentence)
        })?;
        self.machine.log.line(write.unit(), format!("{size} bytes are written and read back"));
        Ok(())
    }

    /// Reads the table of the image that was written. `None` is one that stays as it is: an MBR, or a GPT that breaks a rule of this
    /// program. Such an image can boot all the same, and what was written is what was asked for.
    fn table_of_image(&self) -> Result<Option<Table>, String> {
        let mut mbr = [0; 512];
        self.disk.read_at(0, &mut mbr).map_err(|source| crate::discovery::chain(&source))?;
        let why = match Table::read(self.disk) {
            // Behind an MBR with partitions of its own it is the rest of an older table, which nothing reads.
            Ok(Some(_)) if disk_file::is_mbr(&mbr) => "the image has an MBR".to_owned(),
            Ok(Some(table)) if table.is_usual => return Ok(Some(table)),
            Ok(Some(_)) => {
                "the GPT of the image is another one than expected: its entries are not 128 at LBA 2"
                    .to_owned()
            }
            Ok(None) => "the image has an MBR".to_owned(),
            Err(GptError::Invalid(reason)) => {
                format!("the GPT of the image is another one than expected: {reason}")
            }
            Err(source) => return Err(crate::discovery::chain(&source)),
        };
        self.machine.log.line(unit::GROW, format!("{why}; the table and its partitions stay as they are"));
        Ok(None)
    }

    /// Moves the backup of the table to the end of the disk, and leaves every partition as it is: Windows extends its own. Returns the
    /// partitions with NTFS.
    fn move_backup(&self) -> Result<Vec<Ntfs>, String> {
        let Some(table) = self.table_of_image()? else { return Ok(Vec::new()) };
        let fence = Fence::new(self.disk, Table::written(self.disk));
        table.write(&fence).map_err(|source| crate::discovery::chain(&source))?;
        let mut found = Vec::new();
        for (number, range) in table.partitions() {
            let is_ntfs = file_system::is_ntfs(self.disk, &range).map_err(|source| {
                format!(
                    "reading partition {number} of {}: {}",
                    self.facts.name,
                    crate::discovery::chain(&source)
                )
            })?;
            found.extend(is_ntfs.then_some(Ntfs { number, range }));
        }
        Ok(found)
    }

    /// Zeroes the places of old signatures on the disk, its old partitions and `new`, but for those of `kept`. Returns the ranges.
    fn wipe(&self, new: Vec<Range<u64>>, kept: &[Range<u64>]) -> Result<Vec<Range<u64>>, String> {
        let failed = |source: io::Error| format!("{}: {}", self.facts.name, crate::discovery::chain(&source));
        let old = wipe::old_partitions(self.disk).map_err(failed)?;
        let ranges = wipe::without(wipe::ranges(self.disk.size(), &[&old[..], &new[..]].concat()), kept);
        let fence = Fence::new(self.disk, ranges.clone());
        for range in &ranges {
            fence.zero(range.clone()).map_err(failed)?;
        }
        fence.flush().map_err(failed)?;
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.machine.log.line(
            unit::PARTITION,
            format!("{} old partitions; {bytes} bytes at {} places are zero", old.len(), ranges.len()),
        );
        Ok(ranges)
    }

    /// Erases every sector by the strongest method that the disk carries out, and reports which one it was.
    fn secure_erase(&self, all: &[DiskFacts]) -> Result<(), String> {
        let disk = Fence::new(self.disk, std::iter::once(0..self.disk.size()));
        let own: Box<dyn OwnErase + '_> = match (self.disk.device(), self.facts.nvme_namespace) {
            (Some(port), None) if self.facts.takes_ata_commands() => Box::new(AtaDisk::new(port)),
            (Some(device), Some(number)) => {
                let others = all.iter().any(|other| other.shares_nvme_drive(self.facts));
                Box::new(NvmeNamespace { device, number, others })
            }
            _ => Box::new(NoOwnErase),
        };
        let erased = erase::secure(&disk, self.facts.rotational, &*own, &mut |method, percent| {
            if percent == 0 {
                self.machine.log.line(unit::ERASE, format!("{}: started", method.name()));
            }
            self.reporter.progress(unit::ERASE, Step::Erase.percent() + percent.min(97));
            self.reporter.is_awaited()
        })?;
        if let Some(prepared) = &erased.prepared {
            self.machine.log.line(unit::ERASE, prepared);
        }
        for reason in &erased.not_used {
            self.machine.log.line(unit::ERASE, format!("not used: {reason}"));
        }
        self.machine.log.line(
            unit::ERASE,
            format!(
                "erased by {} ({}), {} samples prove it; not proven: {}",
                erased.method.name(),
                erased.level,
                erased.samples,
                erased.unproven
            ),
        );
        self.reporter.set_erased(erased);
        Ok(())
    }

    fn quick_erase(&self) -> Result<(), String> {
        let ranges = self.wipe(Vec::new(), &[])?;
        let failed = |source: io::Error| format!("{}: {}", self.facts.name, crate::discovery::chain(&source));
        self.disk.forget_cache().map_err(failed)?;
        let mut block = vec![0; 1 << 20];
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let length = usize::try_from(range.end - at).unwrap_or(block.len()).min(block.len());
                self.disk.read_at(at, &mut block[..length]).map_err(failed)?;
                if !disk_image::is_zero(&block[..length]) {
                    return Err(format!("{} returns other bytes than zeros at {at}", self.facts.shown()));
                }
                at += length as u64;
            }
        }
        Ok(())
    }

    /// Moves the backup of the table to the end of the disk and grows the last partition. Returns it with what is on it; nothing for
    /// a table that stays as it is.
    fn grow(&self) -> Result<Option<(Grown, Found)>, String> {
        let Some(mut table) = self.table_of_image()? else { return Ok(None) };
        let grown = table.grow_last();
        let fence = Fence::new(self.disk, Table::written(self.disk));
        table.write(&fence).map_err(|source| crate::discovery::chain(&source))?;
        if let Some(number) = grown {
            self.machine.log.line(unit::GROW, format!("partition {number} ends at the end of the disk now"));
        }
        let Some(number) = table.last_number() else { return Ok(None) };
        let Some(range) = table.range(number) else { return Ok(None) };
        let found = file_system::read(self.disk, &range).map_err(|source| {
            format!("reading partition {number} of {}: {}", self.facts.name, crate::discovery::chain(&source))
        })?;
        Ok(Some((Grown { number, range }, found)))
    }
}

/// Writes the answer file into the Windows of the disk, which is closed: the kernel gives no partition to a program while it is open whole.
fn write_answer(
    machine: &Machine<'_>,
    reporter: &Reporter<'_>,
    facts: &DiskFacts,
    partitions: &[Ntfs],
    answer: &[u8],
) -> Result<(), Failure> {
    machine.log.line(unit::UNATTEND, "started");
    let begun = reporter.begin_writing(unit::UNATTEND, Step::Unattend.percent());
    let done = begun.and_then(|()| windows::write_answer(machine.linux, &facts.name, partitions, answer));
    let said = done.map_err(|message| Failure { unit: unit::UNATTEND, message })?;
    machine.log.line(unit::UNATTEND, said);
    Ok(())
}

/// Grows the file system of the last partition. The disk is closed: the kernel gives no partition to a program while it is open whole.
fn grow_file_system(
    machine: &Machine<'_>,
    facts: &DiskFacts,
    grown: &Grown,
    found: Found,
) -> Result<(), Failure> {
    let done = file_system::grow(machine.linux, &facts.name, grown, found, &|| (machine.open)(facts));
    let said = done.map_err(|message| Failure { unit: unit::GROW, message })?;
    machine.log.line(unit::GROW, said);
    Ok(())
}

#[cfg(test)]
#[path = "run/tests.rs"]
mod tests;

#[cfg(test)]
mod power_loss;

#[cfg(test)]
#[path = "run/media_tests.rs"]
mod media_tests;
