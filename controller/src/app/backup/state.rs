//! The record of the backups of this controller: one row of the table of settings.
//!
//! ```text
//!   records   what it made and has not removed, in the order of their numbers
//!   pending   written before a backup gets its name; a controller that was killed then looks whether the backup is there
//!   failure   the last attempt, if it failed
//! ```
//!
//! Invariant: only a record makes a backup one that this controller may remove. Restored data has no such row: a copy of the data
//! did not make the backups of its original.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::summary::{BackupSummary, SeriesPlace};
use model::Time;

/// The row. `store` removes it from restored data.
pub(super) const KEY: &str = store::BACKUPS;

/// A backup that this controller made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupRecord {
    pub(super) name: String,
    pub(super) number: u64,
    /// The target in the form of its setting.
    pub(super) target: String,
    pub(super) made_at: Time,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) jobs: u64,
    pub(super) servers: u64,
    /// The digest of `backup.json` in a folder, of the manifest in a registry.
    pub(super) digest: String,
    /// The last time at which the whole backup was read and was right.
    pub(super) verified_at: Time,
    /// The damage of the backup, in words, if a verification found any.
    pub(super) damage: Option<String>,
    /// The disk on which the backup was made.
    #[serde(flatten)]
    pub(super) disk: BackupDisk,
    /// The number of pieces of content that were damaged or missing in the data directory and are not in it.
    #[serde(default)]
    pub(super) left_out: usize,
}

/// How the disk of a backup is known to be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupDisk {
    /// The disk is not that of the data.
    pub(super) apart: bool,
    /// Where the disk is mounted, without links; `None` when that is not known.
    #[serde(default)]
    pub(super) mount: Option<String>,
}

impl BackupDisk {
    /// The disk of a registry, which no folder of this host leads to.
    pub(super) const ELSEWHERE: Self = Self { apart: true, mount: None };

    /// Whether `now`, which the same folder leads to, is the disk above an empty mount point of this one.
    pub(super) fn is_unmounted_in(&self, now: &Self) -> bool {
        let places = self.mount.as_deref().map(Path::new).zip(now.mount.as_deref().map(Path::new));
        places.is_some_and(|(before, now)| before != now && before.starts_with(now))
    }
}

impl BackupRecord {
    pub(super) fn of(
        summary: &BackupSummary,
        (name, target): (&str, &str),
        digest: String,
        disk: BackupDisk,
        verified_at: Time,
    ) -> Self {
        Self {
            name: name.to_owned(),
            number: summary.series.as_ref().map_or(0, |series| series.number),
            target: target.to_owned(),
            made_at: summary.made_at,
            bytes: summary.bytes,
            files: summary.files,
            jobs: summary.jobs,
            servers: summary.servers,
            digest,
            verified_at,
            damage: None,
            disk,
            left_out: summary.damaged.len(),
        }
    }
}

/// Why the last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupFailure {
    pub(super) at: Time,
    pub(super) message: String,
    /// How many attempts in a row have failed.
    pub(super) attempts: u32,
}

/// The record of the backups of this controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupState {
    /// The id of the series.
    pub(super) series: String,
    pub(super) next_number: u64,
    pub(super) records: Vec<BackupRecord>,
    #[serde(default)]
    pub(super) pending: Option<BackupRecord>,
    #[serde(default)]
    pub(super) failure: Option<BackupFailure>,
}

impl BackupState {
    /// The state before the first backup.
    pub(super) fn new(series: String) -> Self {
        Self { series, next_number: 1, ..Self::default() }
    }

    /// The place of the next backup. Its number is not used again.
    pub(super) fn next_place(&mut self) -> SeriesPlace {
        let number = self.next_number;
        self.next_number += 1;
        SeriesPlace { id: self.series.clone(), number }
    }

    /// The newest backup that is not damaged.
    pub(super) fn last(&self) -> Option<&BackupRecord> {
        self.records.iter().rev().find(|record| record.damage.is_none())
    }

    /// The backups at this target, the newest one last, with damaged ones. One at a former target says nothing about it.
    pub(super) fn made_at(&self, target: &str) -> Vec<BackupRecord> {
        self.records.iter().filter(|record| record.target == target).cloned().collect()
    }

    /// Adds a backup that has its name. What is known about another target is forgotten: nothing is removed there.
    pub(super) fn add(&mut self, record: BackupRecord) {
        self.records.retain(|kept| kept.target == record.target && kept.number != record.number);
        self.records.push(record);
        self.records.sort_by_key(|record| record.number);
        self.failure = None;
    }

    /// The backups that are older than the newest `keep` ones without damage, the oldest first.
    pub(super) fn surplus(&self, keep: usize) -> Vec<BackupRecord> {
        let good = self.records.iter().rev().filter(|record| record.damage.is_none());
        let Some(oldest_kept) = good.map(|record| record.number).nth(keep.max(1) - 1) else {
            return Vec::new();
        };
        self.records.iter().filter(|record| record.number < oldest_kept).cloned().collect()
    }

    /// Records a failed attempt.
    pub(super) fn failed(&mut self, message: String, at: Time) {
        let attempts = self.failure.as_ref().map_or(0, |failure| failure.attempts).saturating_add(1);
        self.failure = Some(BackupFailure { at, message, attempts });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(number: u64, damaged: bool) -> BackupRecord {
        BackupRecord {
            name: format!("shoal-00000000-{number:06}-20260101T000000Z"),
            number,
            target: "/srv/backups".to_owned(),
            made_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            bytes: 1,
            files: 1,
            jobs: 0,
            servers: 0,
            digest: "sha256:0".to_owned(),
            verified_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            damage: damaged.then(|| "damaged".to_owned()),
            disk: BackupDisk::ELSEWHERE,
            left_out: 0,
        }
    }

    proptest! {
        #[test]
        fn the_newest_good_backups_stay_and_everything_older_is_removed(
            damaged in prop::collection::vec(any::<bool>(), 0..20),
            keep in 1_usize..6,
        ) {
            let mut state = BackupState::new("00000000".to_owned());
            for damaged in &damaged {
                let number = state.next_place().number;
                state.add(record(number, *damaged));
            }
            let removed = state.surplus(keep);
            let left: Vec<_> = state.records.iter().filter(|record| !removed.contains(record)).collect();
            let good = left.iter().filter(|record| record.damage.is_none()).count();
            let all_good = damaged.iter().filter(|damaged| !**damaged).count();
            prop_assert_eq!(good, keep.min(all_good));
            if let Some(last) = state.last() {
                prop_assert!(left.contains(&last));
            }
            let newest_removed = removed.iter().map(|record| record.number).max().unwrap_or(0);
            prop_assert!(left.iter().all(|record| record.number > newest_removed));
        }
    }

    #[test]
    fn backups_at_a_former_target_are_forgotten_and_not_removed() {
        let mut state = BackupState::new("00000000".to_owned());
        for number in 1..=3 {
            state.add(record(number, false));
        }
        let moved = BackupRecord { target: "/mnt/other".to_owned(), ..record(4, false) };
        state.add(moved.clone());
        assert_eq!(state.records, [moved]);
        assert_eq!(state.surplus(1), []);
    }
}
