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

use super::ids::{RunId, Serial};

/// The maximum of causes; further ones are only counted.
pub const MAX_CAUSES: usize = 50;
/// The maximum of jobs that one cause names.
pub const MAX_NAMED: usize = 20;

/// A failed job with what its failure says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedJob {
    /// The job.
    pub id: RunId,
    /// Its server.
    pub server: Option<Serial>,
    /// The class of the failure.
    pub class: String,
    /// The step that failed.
    pub step: String,
    /// The cause in one sentence.
    pub summary: String,
    /// What an operator should do next.
    pub next_action: String,
}

/// What some failed jobs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The class of the failures.
    pub class: String,
    /// The step that failed.
    pub step: String,
    /// The summary of the first of the jobs.
    pub summary: String,
    /// What an operator should do next.
    pub next_action: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The first of the jobs, with their servers.
    pub first: Vec<(RunId, Option<Serial>)>,
}

/// The causes of failed jobs, the one with the most jobs first, and the number of jobs of the causes that are left out.
pub fn causes(failed: impl IntoIterator<Item = FailedJob>) -> (Vec<Cause>, u64) {
    let mut places: HashMap<(String, String, String), usize> = HashMap::new();
    let mut causes: Vec<Cause> = Vec::new();
    for job in failed {
        let key = (job.class.clone(), job.step.clone(), common(&job.summary, job.server.as_ref()));
        let place = *places.entry(key).or_insert_with(|| {
            causes.push(Cause {
                class: job.class,
                step: job.step,
                summary: job.summary,
                next_action: job.next_action,
                jobs: 0,
                first: Vec::new(),
            });
            causes.len() - 1
        });
        if let Some(cause) = causes.get_mut(place) {
            cause.jobs += 1;
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

/// A summary without what differs from machine to machine: its serial number, and every word with a digit.
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
            class: class.to_owned(),
            step: step.to_owned(),
            summary: summary.to_owned(),
            next_action: "look at the network".to_owned(),
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
