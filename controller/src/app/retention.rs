//! Deletes jobs that ended before the retention time, files before rows, and prunes the audit log: hourly, in small transactions.
//!
//! Invariant: what is deleted is never brought back by a corrected clock, so age is not judged by the clock alone. A start with a
//! clock that is years ahead (a dead battery, a wrong time server) deletes nothing that would not be due without that jump.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use model::{Clock, Time, error_chain};
use provision::remove_task_images;
use store::{AuditRetention, Store, StoreError};

/// The interval of deletion.
const EVERY: Duration = Duration::from_secs(3600);
/// Run trees deleted in one transaction.
const AT_ONCE: u32 = 50;
/// Entries of the audit log pruned in one transaction.
const AUDIT_AT_ONCE: u64 = 5000;
/// Fewer entries than this are pruned later, with others: each pruning is an entry itself.
const AUDIT_AT_LEAST: u64 = 100;
/// The pause between two transactions, in which other writers proceed.
const PAUSE: Duration = Duration::from_millis(20);

/// The time by which age is judged: the clock, but at most as far after the last sign of life of the controllers before as this
/// controller has run.
#[derive(Clone)]
pub(super) struct AgeClock {
    clock: Arc<dyn Clock>,
    last_seen: Option<Time>,
    started: Duration,
}

impl AgeClock {
    /// The time of a controller that starts now. Without a controller before, the data has nothing that a wrong clock makes old.
    pub(super) fn new(clock: Arc<dyn Clock>, last_seen: Option<Time>) -> Self {
        let started = clock.elapsed();
        Self { clock, last_seen, started }
    }

    fn now(&self) -> Time {
        let ran = self.clock.elapsed().saturating_sub(self.started);
        let now = self.clock.now();
        self.last_seen.map_or(now, |seen| now.min(seen.plus(ran)))
    }
}

/// Deletes, until `stop`, what ended more than `keep` ago by `age`. The interval uses the runtime's timer.
pub(super) async fn run(
    store: Store,
    age: AgeClock,
    keep: Duration,
    task_iso_dir: PathBuf,
    stop: CancellationToken,
) {
    loop {
        let before = age.now().minus(keep);
        let swept = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            swept = sweep(&store, before, &task_iso_dir) => swept,
        };
        match swept {
            Ok(0) => {}
            Ok(jobs) => tracing::info!(jobs, %before, "deleted jobs that ended before the retention time"),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "old jobs were not deleted; the next attempt is in an hour")
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Prunes the audit log, until `stop`, to the entries of the last `days` (zero: no limit) and to a number of entries.
pub(super) async fn run_audit(store: Store, age: AgeClock, days: u32, entries: u32, stop: CancellationToken) {
    loop {
        match prune(&store, &age, days, entries).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "pruned the oldest entries of the audit log"),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "the audit log was not pruned; the next attempt is in an hour")
            }
        }
        // The log of the process is often kept on another machine: with this line a cut end of the audit log is noticed.
        if let Ok(head) = store.audit_head().await {
            tracing::info!(%head, "head of the audit log");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Prunes what is due and returns the number of pruned entries. A day is pruned at once, not each hour a few entries.
async fn prune(store: &Store, age: &AgeClock, days: u32, entries: u32) -> Result<u64, StoreError> {
    let (days, entries) = (u64::from(days), u64::from(entries));
    let before = (days > 0).then(|| age.now().minus(Duration::from_secs(days * 86_400)));
    let keep = AuditRetention { before, entries, at_least: AUDIT_AT_LEAST, at_most: AUDIT_AT_ONCE };
    let mut pruned = 0;
    loop {
        let of_round = store.prune_audit(keep, age.clock.now()).await?;
        pruned += of_round;
        if of_round < AUDIT_AT_ONCE {
            return Ok(pruned);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Deletes everything that ended before a time and returns the number of deleted jobs.
pub(super) async fn sweep(store: &Store, before: Time, task_iso_dir: &Path) -> Result<usize, StoreError> {
    let mut deleted = 0;
    loop {
        let expired = store.expired(before, AT_ONCE).await?;
        if expired.is_empty() {
            break;
        }
        deleted += expired.len();
        remove_task_images(task_iso_dir, &expired).await;
        store.delete_ended(expired).await?;
        tokio::time::sleep(PAUSE).await;
    }
    while store.delete_orphans(before, AT_ONCE * 20).await? > 0 {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::audit::NewAuditEntry;
    use model::{ManualClock, NewEvent, RunId};

    const DAY: Duration = Duration::from_secs(86_400);

    #[tokio::test]
    async fn the_audit_log_is_pruned_by_age_and_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let age = AgeClock::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
        let store = Store::open(&folder.path().join("shoal.db"), clock.now()).unwrap();
        let entry = NewAuditEntry::new(clock.now(), access::audit::controller(), "test.change");
        store.record_audit(vec![entry; 150]).await.unwrap();
        assert_eq!(prune(&store, &age, 1, 1000).await.unwrap(), 0);
        clock.advance(DAY * 2);
        assert_eq!(prune(&store, &age, 0, 1000).await.unwrap(), 0, "no limit of age");
        assert_eq!(prune(&store, &age, 1, 1000).await.unwrap(), 150);
        let entry = NewAuditEntry::new(clock.now(), access::audit::controller(), "test.change");
        store.record_audit(vec![entry; 150]).await.unwrap();
        assert_eq!(prune(&store, &age, 0, 100).await.unwrap(), 0, "few entries wait for others");
        assert_eq!(prune(&store, &age, 0, 20).await.unwrap(), 131);
    }

    #[tokio::test]
    async fn a_start_with_a_clock_far_ahead_deletes_nothing_that_is_young() {
        let folder = tempfile::tempdir().unwrap();
        let today: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&folder.path().join("shoal.db"), today).unwrap();
        assert_eq!(store.begin_instance("before".to_owned(), today, None).await.unwrap(), None);
        store.append(None, None, vec![NewEvent::info("test.old", "old")], today).await.unwrap();
        let entry = NewAuditEntry::new(today, access::audit::controller(), "test.change");
        store.record_audit(vec![entry; 150]).await.unwrap();

        let clock = Arc::new(ManualClock::new(today.plus(DAY * 365 * 70)));
        let last_seen = store.begin_instance("ahead".to_owned(), clock.now(), None).await.unwrap();
        assert_eq!(last_seen, Some(today));
        let age = AgeClock::new(Arc::clone(&clock) as Arc<dyn Clock>, last_seen);
        let events = || store.events(store::EventFilter { run: None, after: 0, limit: 10 });
        sweep(&store, age.now().minus(DAY * 90), folder.path()).await.unwrap();
        assert_eq!(prune(&store, &age, 90, 1000).await.unwrap(), 0);
        assert_eq!(events().await.unwrap().len(), 3);

        clock.advance(DAY * 91);
        sweep(&store, age.now().minus(DAY * 90), folder.path()).await.unwrap();
        assert_eq!(prune(&store, &age, 90, 1000).await.unwrap(), 150);
        let kinds: Vec<_> = events().await.unwrap().into_iter().map(|event| event.time).collect();
        assert_eq!(kinds, [today.plus(DAY * 365 * 70)], "only the start with the wrong clock is younger");

        // The clock is right again: the heartbeat of that start does not stay the last sign of life.
        store.begin_instance("right".to_owned(), today.plus(DAY), None).await.unwrap();
        assert_eq!(
            store.begin_instance("next".to_owned(), today.plus(DAY * 2), None).await.unwrap(),
            Some(today.plus(DAY))
        );
    }

    #[tokio::test]
    async fn the_task_images_of_deleted_jobs_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let (deleted, kept, without_image) = (RunId::new(), RunId::new(), RunId::new());
        let images = |job: RunId| folder.path().join(job.to_string());
        for job in [deleted, kept] {
            std::fs::create_dir(images(job)).unwrap();
            std::fs::write(images(job).join("task.iso"), "an image").unwrap();
        }
        remove_task_images(folder.path(), &[without_image, deleted]).await;
        assert_eq!((images(deleted).exists(), images(kept).exists()), (false, true));
    }

    #[tokio::test]
    async fn sweep_deletes_old_events_and_keeps_newer_ones() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap());
        let store = Store::open(&folder.path().join("shoal.db"), clock.now()).unwrap();
        for _ in 0..3 {
            store.append(None, None, vec![NewEvent::info("test.old", "old")], clock.now()).await.unwrap();
            clock.advance(Duration::from_secs(86_400));
        }
        let before = clock.now().minus(Duration::from_secs(86_400 * 2));
        sweep(&store, before, folder.path()).await.unwrap();
        let left = store.events(store::EventFilter { run: None, after: 0, limit: 10 }).await.unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(store.last_seq().await.unwrap(), 3, "sequence numbers are not reused");
    }
}
