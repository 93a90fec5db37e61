//! The search for the task on the block devices of the machine.
//!
//! ```text
//! every second, for two minutes: /sys/class/block --new or changed--> one thread reads the device --> tasks
//!                                                                        (a device that hangs delays nothing)
//! ```
//!
//! Virtual CDs of a BMC appear some seconds after the kernel started, and an empty drive gets its medium later. A device
//! is therefore read again while it had no task.
//!
//! The newest task is taken, so it matters which media have appeared. A job that the controller can refuse is taken at once: after a
//! refusal the search goes on. One with `delivery: media` asks no controller. It waits until no further medium with a task has
//! appeared for [`SETTLE_TIME`], and none is being read, but not for longer than [`SEARCH_TIME`].
//!
//! A task on a fixed disk could be that of a former system of the machine, which can write any date into it. It counts only when no CD, no
//! removable disk and no disk on USB had a task for [`FIXED_TIME`].
//!
//! Invariants: devices are opened for reading only. A device that does not respond is left to its thread, and is not read by another
//! one while that thread waits. What such a thread reads after all counts in the round in which it comes.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use iso9660::ReadAt;
use recipe::Delivery;
use uuid::Uuid;

use crate::clock::Clock;
use crate::discovery::{FoundTask, NoTask, RefusedJobs, choose, read_medium};
use crate::log::Log;
use crate::serials::MachineSerials;
use crate::task::unit;

/// How long a task is searched for.
pub const SEARCH_TIME: Duration = Duration::from_secs(120);
/// How long a task on a fixed disk is left aside.
pub const FIXED_TIME: Duration = Duration::from_secs(90);
/// How long a task that nothing can refuse waits for a newer one after the last medium with a task appeared.
pub const SETTLE_TIME: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_secs(1);
/// How long a round waits for its devices.
const DEVICE_TIME: Duration = Duration::from_secs(45);

/// A block device or an image file as a source of bytes.
struct DeviceSource {
    file: File,
    len: u64,
}

impl DeviceSource {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self { file, len })
    }
}

impl ReadAt for DeviceSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Returns the block devices below `sys`, as paths below `dev`.
#[must_use]
pub fn block_devices(sys: &Path, dev: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(sys.join("class/block")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut paths: Vec<PathBuf> = names
        .filter(|name| !["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| dev.join(name))
        .collect();
    paths.sort();
    paths
}

/// Whether a block device below `sys` is a fixed disk of the machine, or a part of one: no CD, not removable, not on USB.
#[must_use]
pub fn is_fixed(sys: &Path, device: &Path) -> bool {
    let Some(entry) = device.file_name().map(|name| sys.join("class/block").join(name)) else { return false };
    // Such as devices/pci0000:00/…/usb1/…/block/sda/sda1; what is no block device is a file that was named.
    let Ok(place) = fs::canonicalize(&entry) else { return false };
    let disk = if place.join("partition").exists() { place.parent().unwrap_or(&place) } else { &place };
    let removable = fs::read_to_string(disk.join("removable")).is_ok_and(|text| text.trim() == "1");
    let on_usb = place.components().any(|part| part.as_os_str().to_string_lossy().starts_with("usb"));
    !removable && !on_usb
}

/// The result of reading one device: its tasks, or why it has no readable volume.
type Read = (PathBuf, Result<Vec<FoundTask>, String>);

/// The threads that read devices. One value serves all searches of a machine: a virtual CD behind a slow line can take longer than a
/// round, and longer than a search.
pub struct Readers {
    /// The devices that a thread reads.
    hanging: Arc<Mutex<BTreeSet<PathBuf>>>,
    sender: Sender<Read>,
    receiver: Receiver<Read>,
    /// How long a round waits for its devices.
    wait: Duration,
}

impl Readers {
    /// Whether a thread reads a device that is no fixed disk, and that did not respond in time.
    fn are_reading(&self, is_fixed: &dyn Fn(&Path) -> bool) -> bool {
        let hanging = self.hanging.lock().unwrap_or_else(PoisonError::into_inner);
        hanging.iter().any(|path| !is_fixed(path))
    }
}

impl Default for Readers {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self { hanging: Arc::default(), sender, receiver, wait: DEVICE_TIME }
    }
}

/// When movable media with tasks appeared.
#[derive(Default)]
struct Arrivals {
    seen: BTreeSet<(PathBuf, Uuid)>,
    first: Option<Duration>,
    last: Duration,
}

impl Arrivals {
    /// Adds what a round has found.
    fn add(&mut self, tasks: &[FoundTask], now: Duration) {
        for task in tasks {
            if self.seen.insert((task.path.clone(), task.job.job_id)) {
                self.first.get_or_insert(now);
                self.last = now;
            }
        }
    }

    /// Whether the newest task that is there can be taken for the newest one.
    fn have_settled(&self, settle: Duration, is_reading: bool, now: Duration) -> bool {
        let since = |time: Duration| now.saturating_sub(time);
        let is_quiet = !is_reading && since(self.last) >= settle;
        is_quiet || self.first.is_none_or(|first| since(first) >= SEARCH_TIME)
    }
}

/// The block devices of the machine.
pub struct Devices<'run> {
    /// Lists them; called in every round.
    pub list: &'run dyn Fn() -> Vec<PathBuf>,
    /// Whether one is a fixed disk.
    pub is_fixed: &'run dyn Fn(&Path) -> bool,
    /// How long a task that nothing can refuse waits for a newer one: [`SETTLE_TIME`], or zero where an operator named the media.
    pub settle: Duration,
}

impl Devices<'_> {
    /// Whether a task has to wait for a newer one: nothing can refuse it, and it is on a medium beside which another can appear.
    fn waits(&self, task: &FoundTask) -> bool {
        !self.settle.is_zero() && task.delivery() == Delivery::Media && !(self.is_fixed)(&task.path)
    }
}

/// Searches until a task of this machine was found or [`SEARCH_TIME`] has passed. `refused` are jobs that are not taken. Returns the
/// task, and the names of all devices with an ISO 9660 volume: the boot medium, task media and others like them.
///
/// # Errors
/// Returns an error when no medium holds a task of this machine.
pub fn search(
    readers: &Readers,
    devices: &Devices<'_>,
    serials: &MachineSerials,
    refused: &RefusedJobs,
    clock: &dyn Clock,
    log: &Log,
) -> Result<(FoundTask, Vec<String>), NoTask> {
    let begun = clock.elapsed();
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    let mut arrivals = Arrivals::default();
    loop {
        let (tasks, media) = round((devices.list)(), readers, log, &mut reasons);
        let (fixed, tasks): (Vec<FoundTask>, Vec<FoundTask>) =
            tasks.into_iter().partition(|task| (devices.is_fixed)(&task.path));
        let now = clock.elapsed();
        arrivals.add(&tasks, now);
        let is_late = now.saturating_sub(begun) >= FIXED_TIME;
        let chosen = choose(tasks, serials, refused).or_else(|reason| match fixed.is_empty() || !is_late {
            true => Err(reason),
            false => choose(fixed, serials, refused),
        });
        match chosen {
            Ok(task)
                if devices.waits(&task)
                    && !arrivals.have_settled(devices.settle, readers.are_reading(devices.is_fixed), now) =>
            {
                let line = format!("{} holds job {}; a newer one is awaited", task.device, task.job.job_id);
                if reasons.insert(line.clone()) {
                    log.line(unit::DISPATCHER, line);
                }
                clock.sleep(ROUND);
            }
            Ok(task) => {
                log.line(unit::DISPATCHER, format!("{} holds job {}", task.device, task.job.job_id));
                return Ok((task, media));
            }
            Err(reason) if now.saturating_sub(begun) >= SEARCH_TIME => return Err(reason),
            Err(_) => clock.sleep(ROUND),
        }
    }
}

/// Reads the media that are no fixed disks once. Returns the job that replaces a job whose controller is not reached: a newer one, or
/// any if `found` is on a fixed disk.
#[must_use]
pub fn replacement(
    readers: &Readers,
    devices: &Devices<'_>,
    serials: &MachineSerials,
    refused: &RefusedJobs,
    found: &FoundTask,
    log: &Log,
) -> Option<Uuid> {
    let mut movable = (devices.list)();
    movable.retain(|path| !(devices.is_fixed)(path));
    let (tasks, _) = round(movable, readers, log, &mut BTreeSet::new());
    let job = choose(tasks, serials, refused).ok()?.job;
    let is_newer = job.created_at > found.job.created_at || (devices.is_fixed)(&found.path);
    (is_newer && job.job_id != found.job.job_id).then_some(job.job_id)
}

/// Reads all devices that do not hang, each in its thread, and takes what late threads of earlier rounds have read. A reason is logged
/// once. Returns the tasks, and the devices with a volume.
fn round(
    mut devices: Vec<PathBuf>,
    readers: &Readers,
    log: &Log,
    reasons: &mut BTreeSet<String>,
) -> (Vec<FoundTask>, Vec<String>) {
    {
        let mut hanging = readers.hanging.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|path| hanging.insert(path.clone()));
    }
    let mut waiting: BTreeSet<PathBuf> = devices.iter().cloned().collect();
    for path in devices {
        let (sender, hanging) = (readers.sender.clone(), Arc::clone(&readers.hanging));
        std::thread::spawn(move || {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let read = DeviceSource::open(&path)
                .map_err(|source| source.to_string())
                .and_then(|source| read_medium(&name, source));
            // Both in one: a device is read again only when its result is on the way.
            let mut hanging = hanging.lock().unwrap_or_else(PoisonError::into_inner);
            hanging.remove(&path);
            // Without a search there is no receiver.
            let _ = sender.send((path, read));
        });
    }
    let (mut tasks, mut media) = (Vec::new(), Vec::new());
    loop {
        let wait = if waiting.is_empty() { Duration::ZERO } else { readers.wait };
        let Ok((path, read)) = readers.receiver.recv_timeout(wait) else { break };
        waiting.remove(&path);
        match read {
            Ok(mut found) => {
                for task in &mut found {
                    task.path.clone_from(&path);
                }
                media.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
                tasks.extend(found);
            }
            // Disks without an ISO 9660 volume are the rule; a damaged job is worth a line.
            Err(reason) if reason.contains("job.json") => {
                let line = format!("{}: skipped: {reason}", path.display());
                if reasons.insert(line.clone()) {
                    log.line(unit::DISPATCHER, line);
                }
            }
            Err(_) => {}
        }
    }
    for path in waiting {
        let line = format!("{}: skipped: it does not respond", path.display());
        if reasons.insert(line.clone()) {
            log.line(unit::DISPATCHER, line);
        }
    }
    media.sort();
    // A device that was late is read again in the round that takes its result.
    media.dedup();
    (tasks, media)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::{VirtualClock, job_json, task_image};

    fn write(folder: &Path, name: &str, serial: &str) {
        let image = task_image(&job_json(serial, "2026-01-02T03:04:05Z"), "", &[("recipe.json", b"{}")]);
        image.write_to_file(&File::create(folder.join(name)).unwrap()).unwrap();
    }

    fn movable(_: &Path) -> bool {
        false
    }

    fn list(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect()
    }

    #[test]
    fn a_medium_that_appears_late_beside_broken_ones_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("sda"), vec![0; 1 << 20]).unwrap();
        fs::write(folder.path().join("sr1"), b"").unwrap();
        write(folder.path(), "sr0", "OTHER");
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let devices = || {
            if clock.elapsed() >= Duration::from_secs(20) {
                write(folder.path(), "sr2", "SN1");
            }
            list(folder.path())
        };
        let (task, media) = search(
            &Readers::default(),
            &Devices { list: &devices, is_fixed: &movable, settle: SETTLE_TIME },
            &MachineSerials::new(["SN1"]),
            &RefusedJobs::default(),
            &clock,
            &log,
        )
        .unwrap();
        assert_eq!((task.device.as_str(), media), ("sr2", vec!["sr0".to_owned(), "sr2".to_owned()]));
        assert!(clock.elapsed() >= Duration::from_secs(20));
    }

    /// Writes a task whose recipe has these words; its creation is the id of its job.
    fn write_task(folder: &Path, name: &str, created_at: &str, recipe: &str) {
        let mut job = job_json("SN1", created_at);
        job["job_id"] = Uuid::new_v5(&Uuid::nil(), created_at.as_bytes()).to_string().into();
        let image = task_image(&job, "", &[("recipe.json", recipe.as_bytes())]);
        image.write_to_file(&File::create(folder.join(name)).unwrap()).unwrap();
    }

    const BY_MEDIUM: &str = r#"{"delivery":"media"}"#;
    const BY_NETWORK: &str = "{}";

    /// Searches while media appear: seconds, device, creation, recipe. Returns the device of the task, and the seconds that it took.
    fn searched(media: &[(u64, &str, &str, &str)]) -> (String, u64) {
        searched_by(&Readers::default(), SETTLE_TIME, media)
    }

    fn searched_by(readers: &Readers, settle: Duration, media: &[(u64, &str, &str, &str)]) -> (String, u64) {
        let folder = tempfile::tempdir().unwrap();
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let devices = || {
            for (seconds, name, created_at, recipe) in media {
                if clock.elapsed().as_secs() >= *seconds && !folder.path().join(name).exists() {
                    write_task(folder.path(), name, created_at, recipe);
                }
            }
            list(folder.path())
        };
        let devices = Devices { list: &devices, is_fixed: &|path| path.ends_with("sda1"), settle };
        let serials = MachineSerials::new(["SN1"]);
        let found = search(readers, &devices, &serials, &RefusedJobs::default(), &clock, &log);
        (found.unwrap().0.device, clock.elapsed().as_secs())
    }

    #[test]
    fn a_job_that_nothing_can_refuse_is_taken_when_no_further_medium_has_appeared_for_ten_seconds() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z");
        assert_eq!(searched(&[(3, "sr0", old, BY_MEDIUM)]), ("sr0".to_owned(), 13));
        assert_eq!(
            searched(&[(0, "sr0", old, BY_MEDIUM), (8, "sr1", new, BY_MEDIUM)]),
            ("sr1".to_owned(), 18)
        );
        // The controller can refuse the newer one.
        assert_eq!(
            searched(&[(0, "sr0", old, BY_MEDIUM), (8, "sr1", new, BY_NETWORK)]),
            ("sr1".to_owned(), 8)
        );
    }

    #[test]
    fn a_job_that_the_controller_can_refuse_and_one_on_a_fixed_disk_are_taken_at_once() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z");
        assert_eq!(
            searched(&[(0, "sr0", old, BY_NETWORK), (8, "sr1", new, BY_MEDIUM)]),
            ("sr0".to_owned(), 0)
        );
        assert_eq!(searched(&[(0, "sda1", old, BY_MEDIUM)]), ("sda1".to_owned(), FIXED_TIME.as_secs()));
        // What an operator named is all that there is.
        let named = searched_by(&Readers::default(), Duration::ZERO, &[(2, "sr0", old, BY_MEDIUM)]);
        assert_eq!(named, ("sr0".to_owned(), 2));
    }

    #[test]
    fn the_wait_for_a_newer_job_lasts_while_a_medium_is_read_and_ends_after_two_minutes() {
        let old = "2026-01-01T00:00:00Z";
        let with_hanging = |name: &str| {
            let readers = Readers::default();
            readers.hanging.lock().unwrap().insert(Path::new("/dev").join(name));
            searched_by(&readers, SETTLE_TIME, &[(5, "sr0", old, BY_MEDIUM)])
        };
        assert_eq!(with_hanging("sr1"), ("sr0".to_owned(), 5 + SEARCH_TIME.as_secs()));
        // No fixed disk has a task that would count.
        assert_eq!(with_hanging("sda1"), ("sr0".to_owned(), 15));
        // Media that appear one after the other.
        let created: Vec<String> = (0..20).map(|hour| format!("2026-01-01T{hour:02}:00:00Z")).collect();
        let names: Vec<String> = (0..20).map(|number| format!("sr{number}")).collect();
        let media: Vec<_> =
            (0..20).map(|at| (at as u64 * 8, &*names[at], &*created[at], BY_MEDIUM)).collect();
        assert_eq!(searched(&media), ("sr15".to_owned(), SEARCH_TIME.as_secs()));
    }

    #[test]
    fn a_task_on_a_fixed_disk_is_taken_only_when_no_other_medium_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let of_former_system =
            task_image(&job_json("SN1", "2099-01-01T00:00:00Z"), "", &[("recipe.json", b"{}")]);
        of_former_system.write_to_file(&File::create(folder.path().join("sda1")).unwrap()).unwrap();
        let (serials, log) = (MachineSerials::new(["SN1"]), Log::new(Vec::new()));
        let is_fixed = |path: &Path| path.ends_with("sda1");
        let found = |late: Duration| {
            let clock = VirtualClock::default();
            let devices = || {
                if clock.elapsed() >= late {
                    write(folder.path(), "sr0", "SN1");
                }
                list(folder.path())
            };
            let readers = Readers::default();
            let found = search(
                &readers,
                &Devices { list: &devices, is_fixed: &is_fixed, settle: SETTLE_TIME },
                &serials,
                &RefusedJobs::default(),
                &clock,
                &log,
            );
            (found.unwrap().0.device, clock.elapsed())
        };
        assert_eq!(found(Duration::from_secs(1000)), ("sda1".to_owned(), FIXED_TIME));
        assert_eq!(found(Duration::from_secs(80)), ("sr0".to_owned(), Duration::from_secs(80)));
        // Also when both are there from the beginning, though the other is newer by its own words.
        assert_eq!(found(Duration::ZERO), ("sr0".to_owned(), Duration::ZERO));
    }

    #[test]
    fn fixed_are_disks_that_are_not_removable_and_not_on_usb_and_their_partitions() {
        let sys = tempfile::tempdir().unwrap();
        let class = sys.path().join("class/block");
        fs::create_dir_all(&class).unwrap();
        let device = |name: &str, place: &str, removable: &str| {
            let place = sys.path().join(place);
            fs::create_dir_all(&place).unwrap();
            match removable {
                "" => fs::write(place.join("partition"), "1").unwrap(),
                text => fs::write(place.join("removable"), text).unwrap(),
            }
            std::os::unix::fs::symlink(&place, class.join(name)).unwrap();
        };
        device("sda", "devices/pci/ata1/block/sda", "0\n");
        device("sda1", "devices/pci/ata1/block/sda/sda1", "");
        device("sr0", "devices/pci/ata2/block/sr0", "1\n");
        device("sdb", "devices/pci/usb1/1-1/block/sdb", "0\n");
        device("sdc", "devices/pci/ata3/block/sdc", "1\n");
        device("sdc1", "devices/pci/ata3/block/sdc/sdc1", "");
        for (name, wanted) in [
            ("sda", true),
            ("sda1", true),
            ("sr0", false),
            ("sdb", false),
            ("sdc", false),
            ("sdc1", false),
            ("task.iso", false),
        ] {
            assert_eq!(is_fixed(sys.path(), &Path::new("/dev").join(name)), wanted, "{name}");
        }
    }

    #[test]
    fn the_search_ends_after_two_minutes_with_what_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "sr0", "OTHER");
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let (readers, serials) = (Readers::default(), MachineSerials::new(["SN1"]));
        let devices = || list(folder.path());
        let refused = search(
            &readers,
            &Devices { list: &devices, is_fixed: &movable, settle: SETTLE_TIME },
            &serials,
            &RefusedJobs::default(),
            &clock,
            &log,
        )
        .unwrap_err();
        assert!(refused.to_string().contains("OTHER"));
        assert_eq!(clock.elapsed(), SEARCH_TIME);
    }

    #[test]
    fn a_job_whose_controller_is_not_reached_is_replaced_by_a_newer_one_and_by_any_if_it_is_on_a_fixed_disk()
    {
        let folder = tempfile::tempdir().unwrap();
        let (readers, serials, log) =
            (Readers::default(), MachineSerials::new(["SN1"]), Log::new(Vec::new()));
        let all = || list(folder.path());
        let devices = Devices { list: &all, is_fixed: &|path| path.ends_with("sda1"), settle: SETTLE_TIME };
        let of = |found: &FoundTask, refused: &RefusedJobs| {
            replacement(&readers, &devices, &serials, refused, found, &log)
        };
        let at = |path: &str| {
            let source = DeviceSource::open(&folder.path().join(path)).unwrap();
            let mut task = read_medium(path, source).unwrap().remove(0);
            task.path = folder.path().join(path);
            task
        };
        write_task(folder.path(), "sr0", "2026-03-01T00:00:00Z", BY_NETWORK);
        write_task(folder.path(), "sda1", "2026-04-01T00:00:00Z", BY_NETWORK);
        let found = at("sr0");
        assert_eq!(of(&found, &RefusedJobs::default()), None, "what a fixed disk holds replaces nothing");
        assert_eq!(of(&at("sda1"), &RefusedJobs::default()), Some(found.job.job_id));
        write_task(folder.path(), "sr1", "2026-02-01T00:00:00Z", BY_MEDIUM);
        assert_eq!(of(&found, &RefusedJobs::default()), None, "an older one");
        write_task(folder.path(), "sr2", "2026-05-01T00:00:00Z", BY_MEDIUM);
        let newer = at("sr2").job;
        assert_eq!(of(&found, &RefusedJobs::default()), Some(newer.job_id));
        let mut refused = RefusedJobs::default();
        refused.insert(&newer);
        assert_eq!(of(&found, &refused), None, "one that its controller refused");
    }

    #[test]
    fn a_device_that_hangs_has_one_thread_whatever_the_number_of_rounds() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "sr0", "SN1");
        let hangs = folder.path().join("sda");
        let readers = Readers::default();
        // As its thread of an earlier round left it.
        readers.hanging.lock().unwrap().insert(hangs.clone());
        let (log, mut reasons) = (Log::new(Vec::new()), BTreeSet::new());
        for _round in 0..3 {
            let devices = vec![hangs.clone(), folder.path().join("sr0")];
            let (tasks, media) = round(devices, &readers, &log, &mut reasons);
            assert_eq!((tasks.len(), media), (1, vec!["sr0".to_owned()]));
            assert_eq!(readers.hanging.lock().unwrap().iter().collect::<Vec<_>>(), [&hangs]);
        }
    }

    #[test]
    fn a_device_that_takes_longer_than_a_round_and_a_search_is_found_when_its_thread_has_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let slow = folder.path().join("sr0");
        write(folder.path(), "sr0", "SN1");
        let (serials, refused) = (MachineSerials::new(["SN1"]), RefusedJobs::default());
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let readers = Readers { wait: Duration::ZERO, ..Readers::default() };
        // As its thread of an earlier round left it.
        readers.hanging.lock().unwrap().insert(slow.clone());
        let devices = || vec![slow.clone()];
        assert!(
            search(
                &readers,
                &Devices { list: &devices, is_fixed: &movable, settle: SETTLE_TIME },
                &serials,
                &refused,
                &clock,
                &log
            )
            .is_err()
        );
        // Its thread ends before a round of the next search.
        let read = read_medium("sr0", DeviceSource::open(&slow).unwrap());
        let late = || {
            if clock.elapsed() == SEARCH_TIME + Duration::from_secs(50) {
                readers.sender.send((slow.clone(), read.clone())).unwrap();
            }
            vec![slow.clone()]
        };
        let (task, media) = search(
            &readers,
            &Devices { list: &late, is_fixed: &movable, settle: SETTLE_TIME },
            &serials,
            &refused,
            &clock,
            &log,
        )
        .unwrap();
        assert_eq!((task.path, media), (slow.clone(), vec!["sr0".to_owned()]));
        assert_eq!(clock.elapsed(), SEARCH_TIME + Duration::from_secs(50));
    }

    #[test]
    fn block_devices_are_listed_without_loops_and_ram_disks() {
        let sys = tempfile::tempdir().unwrap();
        for name in ["sr0", "sda", "sda1", "loop0", "zram0"] {
            fs::create_dir_all(sys.path().join("class/block").join(name)).unwrap();
        }
        let found = block_devices(sys.path(), Path::new("/dev"));
        assert!(found.iter().map(|path| path.to_str().unwrap()).eq(["/dev/sda", "/dev/sda1", "/dev/sr0"]));
    }
}
