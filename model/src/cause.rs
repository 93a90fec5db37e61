//! Failures grouped by cause: what many failed jobs have in common, said once.
//!
//! ```text
//!  failed jobs --> key: class, step, summary without what names one machine --> causes, the largest group first
//!      "no answer from 10.0.0.7 in 30 s", "no answer from 10.0.0.9 in 30 s"  -->  one cause, two servers
//! ```
//!
//! Invariants: every failed job is counted in exactly one cause or in the rest; the number of causes and of the servers that a
//! cause names is bounded; the same jobs give the same causes in the same order.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::ids::{RunId, Serial};
use super::names::{FailureClass, StepName};

/// The maximum of causes; further ones are only counted.
pub const MAX_CAUSES: usize = 50;
/// The characters of the id of a cause.
const CAUSE_ID: usize = 16;
/// The maximum of jobs that one cause names.
pub const MAX_NAMED: usize = 20;

/// A failed job with its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedJob {
    /// The id of the job.
    pub id: RunId,
    /// The server of the job, if it has one.
    pub server: Option<Serial>,
    /// The class of the failure.
    pub class: FailureClass,
    /// The step that failed.
    pub step: StepName,
    /// The cause in one sentence.
    pub summary: String,
    /// The next action of an operator.
    pub next_action: String,
    /// Whether a newer installation of the server exists, so that a retry leaves the job out.
    pub superseded: bool,
}

impl FailedJob {
    /// The key of the cause of this job.
    pub fn key(&self) -> CauseKey {
        CauseKey {
            class: self.class.clone(),
            step: self.step.clone(),
            words: common(&self.summary, self.server.as_ref()),
        }
    }

    /// The id of the cause: jobs have equal ids if they have one cause.
    pub fn cause(&self) -> String {
        self.key().id()
    }
}

/// What the failed jobs of one cause have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CauseKey {
    /// The class of the failures.
    pub class: FailureClass,
    /// The step that failed.
    pub step: StepName,
    /// The summary without what names one machine. Empty in a key that stands for all failures of a class at a step.
    pub words: String,
}

impl CauseKey {
    /// The beginning of the digest of a cause. Each part is preceded by its length, so that no two causes are one text.
    fn id(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.class.as_str(), self.step.as_str(), &self.words] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hex::encode(hash.finalize()).chars().take(CAUSE_ID).collect()
    }
}

/// A cause of failures: what some failed jobs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The id, which the same cause has in every batch.
    pub id: String,
    /// The class of the failures.
    pub class: FailureClass,
    /// The step that failed.
    pub step: StepName,
    /// The summary of the first of the jobs.
    pub summary: String,
    /// The next action of an operator.
    pub next_action: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The number of jobs that a newer installation of their server has followed.
    pub superseded: u64,
    /// The first of the jobs, with their servers.
    pub first: Vec<(RunId, Option<Serial>)>,
}

/// The causes of failed jobs, the one with the most jobs first, and the number of jobs of the causes that are left out.
pub fn causes(failed: impl IntoIterator<Item = FailedJob>) -> (Vec<Cause>, u64) {
    let mut places: HashMap<CauseKey, usize> = HashMap::new();
    let mut causes: Vec<Cause> = Vec::new();
    for job in failed {
        let key = job.key();
        let id = key.id();
        let place = *places.entry(key).or_insert_with(|| {
            causes.push(Cause {
                id,
                class: job.class,
                step: job.step,
                summary: job.summary,
                next_action: job.next_action,
                jobs: 0,
                superseded: 0,
                first: Vec::new(),
            });
            causes.len() - 1
        });
        if let Some(cause) = causes.get_mut(place) {
            cause.jobs += 1;
            cause.superseded += u64::from(job.superseded);
            if cause.first.len() < MAX_NAMED {
                cause.first.push((job.id, job.server));
            }
        }
    }
    // A stable sort: causes of the same size stay in the order of their first job.
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.jobs));
    let rest = causes.get(MAX_CAUSES..).unwrap_or_default().iter().map(|cause| cause.jobs).sum();
    causes.truncate(MAX_CAUSES);
    (causes, rest)
}

/// A summary without the words that differ from machine to machine: its serial number, and every word with a digit.
fn common(summary: &str, server: Option<&Serial>) -> String {
    let names_machine = |word: &str| {
        let bare = word.trim_matches(|character: char| !character.is_alphanumeric());
        word.contains(|character: char| character.is_ascii_digit())
            || server.is_some_and(|serial| serial.as_str() == bare)
    };
    let word = |word| if names_machine(word) { "#" } else { word };
    summary.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(server: &str, class: &str, step: &str, summary: &str) -> FailedJob {
        FailedJob {
            id: RunId::new(),
            server: Some(server.parse().unwrap()),
            class: class.into(),
            step: step.into(),
            summary: summary.to_owned(),
            next_action: "look at the network".to_owned(),
            superseded: false,
        }
    }

    #[test]
    fn failures_that_differ_only_in_their_machine_have_one_cause() {
        let (causes, rest) = causes([
            job("A", "media", "mount", "BMC of A at https://10.0.0.7/redfish refused the image"),
            job("B", "bmc", "power", "no answer in 30 s"),
            job("C", "media", "mount", "BMC of C at https://10.0.0.9/redfish refused the image"),
            job("D", "media", "mount", "the slot is locked"),
        ]);
        let shown: Vec<(&str, u64, usize)> =
            causes.iter().map(|cause| (&*cause.summary, cause.jobs, cause.first.len())).collect();
        assert_eq!(
            shown,
            [
                ("BMC of A at https://10.0.0.7/redfish refused the image", 2, 2),
                ("no answer in 30 s", 1, 1),
                ("the slot is locked", 1, 1),
            ]
        );
        assert_eq!(rest, 0);
    }

    #[test]
    fn a_cause_has_an_id_that_only_its_jobs_have() {
        let one = job("A", "media", "mount", "A refused 10.0.0.7").cause();
        assert_eq!(one.len(), CAUSE_ID);
        assert_eq!(one, job("B", "media", "mount", "B refused 10.0.0.9").cause());
        for (class, step, summary) in [
            ("media", "mount", "the slot is locked"),
            ("media", "eject", "A refused 10.0.0.7"),
            ("bmc", "mount", "A refused 10.0.0.7"),
            ("mediam", "ount", "A refused 10.0.0.7"),
        ] {
            assert_ne!(one, job("A", class, step, summary).cause(), "{class} {step} {summary}");
        }
        let followed = FailedJob { superseded: true, ..job("C", "media", "mount", "C refused 10.0.0.1") };
        let (causes, _) = causes([job("A", "media", "mount", "A refused 10.0.0.7"), followed]);
        assert_eq!((&causes[0].id, causes[0].jobs, causes[0].superseded), (&one, 2, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_failed_job_is_counted_once(kinds in proptest::collection::vec((0_u8..90, 0_u8..3), 0..300)) {
            let letters = |number: u8| format!("{}{}", char::from(b'a' + number % 26), "x".repeat(usize::from(number / 26)));
            let failed: Vec<FailedJob> =
                kinds.iter().map(|(summary, step)| job("A", "c", &letters(*step), &letters(*summary))).collect();
            let (causes, rest) = causes(failed);
            prop_assert_eq!(causes.iter().map(|cause| cause.jobs).sum::<u64>() + rest, kinds.len() as u64);
            prop_assert!(causes.len() <= MAX_CAUSES);
            prop_assert!(causes.iter().all(|cause| (1..=MAX_NAMED).contains(&cause.first.len())));
            prop_assert!(causes.is_sorted_by(|a, b| a.jobs >= b.jobs));
        }
    }
}
