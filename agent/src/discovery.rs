//! Finding the task of this machine on its media.
//!
//! ```text
//! every block device --read_medium--> (rank 0: /job.json | rank 1: /task/job.json) + all files beside it, in memory
//!                                           |
//!                                        choose: serial number matches, not refused, newest created_at, lowest rank
//! ```
//!
//! The ISO 9660 volume is read from the device directly, without a mount: no kernel module is needed, nothing stays
//! busy, and the medium may disappear once it was read. Volume labels and device names are ignored.
//!
//! Invariants: only the small files beside `job.json` are read, at most [`MAX_TASK_BYTES`] of them. A medium that cannot
//! be read is skipped with a reason. A job for another machine is never returned. docs/maintenance-os.md, decision D3a.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use iso9660::{Image, ReadAt, ReadError};
use jiff::Timestamp;
use recipe::Delivery;
use serde::Deserialize;
use uuid::Uuid;

use crate::job::{Job, MAX_JOB_BYTES};
use crate::serials::MachineSerials;

/// Maximum length of all files of a task together.
pub const MAX_TASK_BYTES: u64 = 20 * 1024 * 1024;

/// Folders that can hold a task, the preferred one first.
const PLACES: [&str; 2] = ["", "task/"];

/// The files of a task that an installer uses; a boot medium has others.
const NAMES: [&str; 10] = [
    "recipe.json",
    "recipe.schema.json",
    "user-data",
    "meta-data",
    "network-config",
    "vendor-data",
    "unattend.xml",
    "autounattend.xml",
    "ks.cfg",
    "network.json",
];

/// A job with the files beside it.
#[derive(Clone, Debug)]
pub struct FoundTask {
    /// The device, for the log.
    pub device: String,
    /// The content of `job.json`.
    pub job: Job,
    /// The files by name, or the reason why one of them cannot be read. The job can then report the reason.
    pub files: Result<BTreeMap<String, Vec<u8>>, String>,
    /// The path of the device.
    pub path: PathBuf,
    rank: usize,
}

impl FoundTask {
    /// Returns the folder of the medium that holds the task: empty, or with a slash at its end.
    #[must_use]
    pub fn place(&self) -> &'static str {
        PLACES.get(self.rank).copied().unwrap_or_default()
    }

    /// Returns how the OS image and the result travel. Without a readable recipe it is the network.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        #[derive(Deserialize)]
        struct Recipe {
            delivery: Option<String>,
        }
        let bytes = self.files.as_ref().ok().and_then(|files| files.get("recipe.json"));
        let recipe = bytes.and_then(|bytes| serde_json::from_slice::<Recipe>(bytes).ok());
        recipe.and_then(|recipe| Delivery::parse(&recipe.delivery?)).unwrap_or_default()
    }
}

/// The jobs that the controller did not await.
#[derive(Clone, Debug, Default)]
pub struct RefusedJobs {
    jobs: BTreeSet<Uuid>,
    /// When the newest of the refused jobs was created.
    newest: Option<Timestamp>,
}

impl RefusedJobs {
    /// Adds a job.
    pub fn insert(&mut self, job: &Job) {
        self.jobs.insert(job.job_id);
        self.newest = self.newest.max(Some(job.created_at));
    }

    /// Whether a task may not be taken: it was refused, or it is older than a refused one and asks no controller, so that a forgotten
    /// medium would install the machine again.
    fn exclude(&self, task: &FoundTask) -> bool {
        let is_older = || Some(task.job.created_at) < self.newest && task.delivery() == Delivery::Media;
        self.jobs.contains(&task.job.job_id) || is_older()
    }
}

/// No medium holds a task of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTask {
    /// No medium holds a job at all.
    #[error("no medium holds a job.json; insert the task medium of this machine")]
    Nothing,
    /// The controller refused the only job of this machine that it could be asked for.
    #[error(
        "the controller refused job {0}, and no medium holds another one that may follow; insert the medium of the machine's new job"
    )]
    Refused(Uuid),
    /// The jobs are for other machines.
    #[error(
        "this machine is {machine}; the media hold jobs for {declared}. Compare the serial number of the server's \
         record with the one of the machine"
    )]
    OtherMachines {
        /// The serial numbers of this machine, or a text that says that it has none.
        machine: String,
        /// The serial numbers of the jobs.
        declared: String,
    },
}

/// Reads the tasks of one medium. A volume without a job gives an empty list.
///
/// # Errors
/// Returns the reason when the medium has no readable ISO 9660 volume, or a job in it is damaged.
pub fn read_medium(device: &str, source: impl ReadAt) -> Result<Vec<FoundTask>, String> {
    let image = Image::open(source).map_err(|source| chain(&source))?;
    let mut found = Vec::new();
    for (rank, place) in PLACES.iter().enumerate() {
        let path = format!("{place}job.json");
        if !exists(&image, &path).map_err(|source| format!("/{path}: {}", chain(&source)))? {
            continue;
        }
        let bytes =
            image.read(&path, MAX_JOB_BYTES).map_err(|source| format!("/{path}: {}", chain(&source)))?;
        let job = Job::parse(&bytes).map_err(|reason| format!("/{path}: {reason}"))?;
        let files = match read_files(&image, place) {
            Ok(files) => Ok(files),
            // Another read may succeed: without this file the machine would be installed in another way, or the job fail for good.
            Err(Unread { why, medium_failed: true }) => return Err(why),
            Err(Unread { why, .. }) => Err(why),
        };
        found.push(FoundTask { device: device.to_owned(), path: PathBuf::from(device), job, files, rank });
    }
    Ok(found)
}

/// Whether a medium has a file. A read that fails says nothing.
fn exists<S: ReadAt>(image: &Image<S>, path: &str) -> Result<bool, ReadError> {
    match image.lookup(path) {
        Ok(_) => Ok(true),
        Err(ReadError::NotFound { .. } | ReadError::NotADirectory { .. }) => Ok(false),
        Err(source) => Err(source),
    }
}

/// Why a file of a task was not read.
struct Unread {
    why: String,
    /// Whether the medium failed, not the file.
    medium_failed: bool,
}

fn read_files<S: ReadAt>(image: &Image<S>, place: &str) -> Result<BTreeMap<String, Vec<u8>>, Unread> {
    let mut files = BTreeMap::new();
    let mut left = MAX_TASK_BYTES;
    for name in NAMES {
        let path = format!("{place}{name}");
        let unread = |source: ReadError| Unread {
            why: format!("reading /{path}: {}", chain(&source)),
            medium_failed: matches!(source, ReadError::Io { .. }),
        };
        if !exists(image, &path).map_err(unread)? {
            continue;
        }
        let bytes = image.read(&path, left).map_err(unread)?;
        left = left.saturating_sub(bytes.len() as u64);
        files.insert(name.to_owned(), bytes);
    }
    Ok(files)
}

/// Chooses the newest task of this machine: a medium of an earlier job may be left in a drive. Of equal ones the first place counts.
/// `refused` are jobs that the controller does not await.
///
/// # Errors
/// Returns an error when no task is for this machine. No disk may be touched then.
pub fn choose(
    tasks: Vec<FoundTask>,
    serials: &MachineSerials,
    refused: &RefusedJobs,
) -> Result<FoundTask, NoTask> {
    let mut others: Vec<String> = Vec::new();
    let mut known = None;
    let mut best: Option<FoundTask> = None;
    for task in tasks {
        if !serials.matches(&task.job.server_serial) {
            others.push(task.job.server_serial);
            continue;
        }
        if refused.exclude(&task) {
            known = refused.jobs.last().copied();
            continue;
        }
        let better = best.as_ref().is_none_or(|best| {
            (std::cmp::Reverse(task.job.created_at), task.rank)
                < (std::cmp::Reverse(best.job.created_at), best.rank)
        });
        if better {
            best = Some(task);
        }
    }
    if let Some(best) = best {
        return Ok(best);
    }
    if let Some(job) = known {
        return Err(NoTask::Refused(job));
    }
    if others.is_empty() {
        return Err(NoTask::Nothing);
    }
    others.sort();
    others.dedup();
    let machine = match serials.all() {
        [] => "without a serial number".to_owned(),
        all => all.join(" / "),
    };
    Err(NoTask::OtherMachines { machine, declared: others.join(", ") })
}

/// Formats an error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::test_kit::{job_json, task_image};

    fn choose(tasks: Vec<FoundTask>, serials: &MachineSerials) -> Result<FoundTask, NoTask> {
        super::choose(tasks, serials, &RefusedJobs::default())
    }

    fn serials() -> MachineSerials {
        MachineSerials::new(["SN1", "CH1"])
    }

    fn medium(serial: &str, created_at: &str, place: &str) -> Vec<FoundTask> {
        let image = task_image(&job_json(serial, created_at), place, &[("recipe.json", b"{}")]);
        read_medium("/dev/x", image).unwrap()
    }

    /// A medium of which one read fails.
    struct Flaky<'medium, S> {
        medium: &'medium S,
        reads: AtomicU32,
        broken: u32,
    }

    impl<S: ReadAt> ReadAt for Flaky<'_, S> {
        fn len(&self) -> u64 {
            self.medium.len()
        }

        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
            if self.reads.fetch_add(1, Ordering::Relaxed) == self.broken {
                return Err(std::io::Error::other("input/output error"));
            }
            self.medium.read_exact_at(offset, buffer)
        }
    }

    #[test]
    fn a_read_that_fails_leaves_no_file_of_a_task_out() {
        let files: &[(&str, &[u8])] = &[("recipe.json", b"{}"), ("user-data", b"#cloud-config\n")];
        for place in PLACES {
            let medium = task_image(&job_json("SN1", "2026-01-01T00:00:00Z"), place, files);
            let read = |broken| {
                let flaky = Flaky { medium: &medium, reads: AtomicU32::new(0), broken };
                let found = read_medium("/dev/x", &flaky);
                (found, flaky.reads.load(Ordering::Relaxed))
            };
            let (whole, reads) = read(u32::MAX);
            let whole = whole.unwrap().remove(0).files.unwrap();
            assert_eq!(whole.len(), 2);
            for broken in 0..reads {
                match read(broken).0 {
                    Ok(found) => assert_eq!(found[0].files.as_ref(), Ok(&whole), "read {broken} of {reads}"),
                    Err(refused) => {
                        assert!(refused.contains("input/output error"), "read {broken}: {refused}")
                    }
                }
            }
        }
    }

    #[test]
    fn the_newest_job_of_this_machine_is_taken() {
        let mut tasks = medium("SN1", "2026-01-01T00:00:00Z", "");
        tasks.extend(medium("SN2", "2026-03-01T00:00:00Z", ""));
        tasks.extend(medium("CH1", "2026-02-01T00:00:00Z", ""));
        let task = choose(tasks, &serials()).unwrap();
        assert_eq!(task.job.created_at.to_string(), "2026-02-01T00:00:00Z");
        assert_eq!(task.files.unwrap()["recipe.json"], b"{}");
    }

    #[test]
    fn an_earlier_job_is_not_taken_wherever_it_is_and_of_equal_ones_the_task_medium_counts() {
        let time = |tasks: Vec<FoundTask>| choose(tasks, &serials()).unwrap().job.created_at.to_string();
        let mut tasks = medium("SN1", "2026-05-01T00:00:00Z", "task/");
        assert_eq!(time(tasks.clone()), "2026-05-01T00:00:00Z");
        tasks.extend(medium("SN1", "2026-01-01T00:00:00Z", ""));
        assert_eq!(time(tasks.clone()), "2026-05-01T00:00:00Z");
        tasks.extend(medium("SN1", "2026-05-01T00:00:00Z", ""));
        let chosen = choose(tasks, &serials()).unwrap();
        assert_eq!(chosen.rank, medium("SN1", "2026-05-01T00:00:00Z", "").remove(0).rank);
    }

    #[test]
    fn a_job_that_the_controller_refused_is_not_taken_again() {
        let tasks = medium("SN1", "2026-05-01T00:00:00Z", "");
        let mut refused = RefusedJobs::default();
        refused.insert(&tasks[0].job);
        let none = super::choose(tasks.clone(), &serials(), &refused).unwrap_err();
        assert_eq!(none, NoTask::Refused(tasks[0].job.job_id));
        let mut other = tasks.clone();
        other[0].job.job_id = Uuid::nil();
        let both = [tasks, other].concat();
        assert_eq!(super::choose(both, &serials(), &refused).unwrap().job.job_id, Uuid::nil());
    }

    #[test]
    fn a_forgotten_medium_that_asks_no_controller_does_not_follow_a_newer_job_that_was_refused() {
        let of = |created_at: &str, recipe: &[u8]| {
            let image = task_image(&job_json("SN1", created_at), "", &[("recipe.json", recipe)]);
            let mut found = read_medium("/dev/x", image).unwrap().remove(0);
            found.job.job_id = Uuid::new_v5(&Uuid::nil(), created_at.as_bytes());
            found
        };
        let by_medium = br#"{"delivery":"media"}"#;
        let newest = of("2026-05-01T00:00:00Z", b"{}");
        let mut refused = RefusedJobs::default();
        refused.insert(&newest.job);
        let choose = |tasks: Vec<FoundTask>| super::choose(tasks, &serials(), &refused);
        let older = of("2026-04-01T00:00:00Z", by_medium);
        assert_eq!(choose(vec![newest.clone(), older]).unwrap_err(), NoTask::Refused(newest.job.job_id));
        // The controller is asked for an older job of the network, and a newer medium was not forgotten.
        for next in [of("2026-04-01T00:00:00Z", b"{}"), of("2026-06-01T00:00:00Z", by_medium)] {
            let id = next.job.job_id;
            assert_eq!(choose(vec![newest.clone(), next]).unwrap().job.job_id, id);
        }
    }

    #[test]
    fn a_job_of_another_machine_is_never_taken() {
        let refused = choose(medium("SN2", "2026-01-01T00:00:00Z", ""), &serials()).unwrap_err();
        assert!(
            refused.to_string().contains("SN1 / CH1") && refused.to_string().contains("SN2"),
            "{refused}"
        );
        assert_eq!(choose(Vec::new(), &serials()).unwrap_err(), NoTask::Nothing);
        let unnamed = MachineSerials::default();
        assert!(choose(medium("SN2", "2026-01-01T00:00:00Z", ""), &unnamed).is_err());
    }

    #[test]
    fn a_device_without_a_volume_or_with_a_damaged_job_is_a_reason() {
        assert!(read_medium("/dev/x", vec![0_u8; 1 << 20]).is_err());
        let image = task_image(&serde_json::json!({"job_id": 1}), "", &[]);
        assert!(read_medium("/dev/x", image).unwrap_err().contains("/job.json: not a job"));
    }

    #[test]
    fn too_many_bytes_beside_the_job_are_a_reason_that_the_job_can_report() {
        let big = vec![b'#'; (MAX_TASK_BYTES + 1) as usize];
        let image = task_image(&job_json("SN1", "2026-01-01T00:00:00Z"), "", &[("user-data", &big)]);
        let task = read_medium("/dev/x", image).unwrap().remove(0);
        assert!(task.files.unwrap_err().contains("/user-data"));
    }
}
