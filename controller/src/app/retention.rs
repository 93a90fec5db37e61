//! Deletes jobs that ended before the retention time: hourly, in small transactions, files before rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use engine::model::{Clock, RunId, Time, error_chain};
use engine::store::{Store, StoreError};

/// The interval of deletion.
const EVERY: Duration = Duration::from_secs(3600);
/// Run trees deleted in one transaction.
const AT_ONCE: u32 = 50;
/// The pause between two transactions, in which other writers proceed.
const PAUSE: Duration = Duration::from_millis(20);

/// Deletes, until `stop`, what ended more than `keep` ago by `clock`. The interval uses the runtime's timer.
pub(super) async fn run(
    store: Store,
    clock: Arc<dyn Clock>,
    keep: Duration,
    task_iso_dir: PathBuf,
    stop: CancellationToken,
) {
    loop {
        let before = clock.now().minus(keep);
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

/// Deletes everything that ended before a time and returns the number of deleted jobs.
pub(super) async fn sweep(store: &Store, before: Time, task_iso_dir: &Path) -> Result<usize, StoreError> {
    let mut deleted = 0;
    loop {
        let expired = store.expired(before, AT_ONCE).await?;
        if expired.is_empty() {
            break;
        }
        deleted += expired.len();
        remove_files(task_iso_dir, &expired).await;
        store.delete_ended(expired).await?;
        tokio::time::sleep(PAUSE).await;
    }
    while store.delete_orphans(before, AT_ONCE * 20).await? > 0 {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(deleted)
}

/// Removes the task images that `TASK_ISO_MODE=file` wrote to files.
async fn remove_files(folder: &Path, jobs: &[RunId]) {
    for job in jobs {
        let folder = folder.join(job.to_string());
        match tokio::fs::remove_dir_all(&folder).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "a task image was not removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::model::{ManualClock, NewEvent};

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
        let left = store.events(engine::store::EventFilter { run: None, after: 0, limit: 10 }).await.unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(store.last_seq().await.unwrap(), 3, "sequence numbers are not reused");
    }
}
