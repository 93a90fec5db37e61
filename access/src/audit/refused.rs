//! Refused requests in the audit log: the first one of its kind as an entry, its repetitions as one sum.
//!
//! ```text
//!   five minutes:  192.0.2.1 job.create unauthorized x 400      ... 5,000 other addresses
//!   log:           an entry at once, and one of 399 at the end  ... one entry with the number of all others
//! ```
//!
//! Invariants: at most [`KINDS`] different refusals are kept, of one source at most [`SHARE`], so that one source does not hide
//! the others; a window gives at most two entries for each of them and one for all others; no refusal is missing from the sums.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::action::AuditAction;
use model::audit::{AuditActor, NewAuditEntry};
use model::{Clock, Time, error_chain};
use store::Store;

/// The time that one sum covers.
const WINDOW: Duration = Duration::from_secs(300);
/// The pause before new entries are written, in which equal ones are collected.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum of different refusals of a window.
const KINDS: usize = 32;
/// The maximum of different refusals of one source in a window.
const SHARE: usize = 8;

/// Refused requests that are equal but for their time and their id.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct RefusalKind {
    source: String,
    actor: AuditActor,
    action: &'static str,
    target: String,
    result: String,
}

/// The equal refusals of a window.
#[derive(Debug)]
struct Counted {
    /// The latest one that has no entry yet.
    latest: NewAuditEntry,
    /// The number of the refusals that have no entry yet.
    unwritten: u64,
    /// Whether the first of the refusals has its entry.
    written: bool,
}

#[derive(Debug, Default)]
struct RefusalWindow {
    ends: Option<Instant>,
    kinds: HashMap<RefusalKind, Counted>,
    others: u64,
}

/// The refused requests of this process.
#[derive(Debug, Default)]
pub struct RefusedAttempts {
    window: Mutex<RefusalWindow>,
    changed: Notify,
}

impl RefusedAttempts {
    /// Counts a refused request. It never waits.
    pub fn count(&self, entry: NewAuditEntry) {
        let kind = RefusalKind {
            source: entry.source.clone(),
            actor: entry.actor.clone(),
            action: entry.action,
            target: entry.target.clone(),
            result: entry.result.clone(),
        };
        let mut window = self.window.lock();
        window.ends.get_or_insert_with(|| Instant::now() + WINDOW);
        match window.kinds.get_mut(&kind) {
            Some(counted) => {
                counted.latest = entry;
                counted.unwritten += 1;
            }
            None => {
                let of_source = window.kinds.keys().filter(|known| known.source == kind.source).count();
                if window.kinds.len() < KINDS && of_source < SHARE {
                    window.kinds.insert(kind, Counted { latest: entry, unwritten: 1, written: false });
                } else {
                    window.others += 1;
                }
            }
        }
        drop(window);
        self.changed.notify_one();
    }

    /// The entries that are due: those of new kinds, and at the end of the window all sums.
    fn due(&self, at_end: bool, now: Time) -> Vec<NewAuditEntry> {
        let mut window = self.window.lock();
        let over = at_end || window.ends.is_some_and(|ends| ends <= Instant::now());
        let mut due = Vec::new();
        for counted in window.kinds.values_mut() {
            if counted.unwritten > 0 && (over || !counted.written) {
                let mut entry = counted.latest.clone();
                entry.count = std::mem::take(&mut counted.unwritten);
                if entry.count > 1 {
                    // A sum has the id of no single request.
                    entry.request_id.clear();
                }
                counted.written = true;
                due.push(entry);
            }
        }
        if over {
            if window.others > 0 {
                let action = AuditAction::RefusedOthers.as_str();
                let others = NewAuditEntry::new(now, AuditActor::unknown(), action).from_source("others");
                due.push(NewAuditEntry { count: window.others, ..others.with_result("refused") });
            }
            *window = RefusalWindow::default();
        }
        due.sort_by_key(|entry| entry.time);
        due
    }

    /// Writes the entries until `stop`, and then those of the open window.
    pub async fn run(&self, store: Store, clock: Arc<dyn Clock>, stop: CancellationToken) {
        loop {
            let ends = self.window.lock().ends;
            let end = async {
                match ends {
                    Some(ends) => tokio::time::sleep_until(ends).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.changed.notified() => {}
                () = end => {}
            }
            // At stop the entries are written without a pause.
            let stopped = tokio::time::timeout(PAUSE, stop.cancelled()).await.is_ok();
            let due = self.due(stopped, clock.now());
            let entries = due.len();
            if let Err(error) = store.record_audit(due).await {
                tracing::error!(error = %error_chain(&error), entries, "refused requests were not stored in the audit log");
            }
            if stopped {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        "2026-11-23T08:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second))
    }

    fn refusal(source: u64, action: AuditAction, second: u64) -> NewAuditEntry {
        NewAuditEntry::new(at(second), AuditActor::unknown(), action.as_str())
            .from_source(&format!("192.0.2.{source}"))
            .with_result("unauthorized")
            .of_request("r")
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_of_one_source_are_an_entry_and_a_sum() {
        let refused = RefusedAttempts::default();
        refused.count(refusal(1, AuditAction::JobCreate, 0));
        let first = refused.due(false, at(1));
        assert_eq!((first.len(), first[0].count, first[0].request_id.as_str()), (1, 1, "r"));
        for second in 1..1000 {
            refused.count(refusal(1, AuditAction::JobCreate, second));
            assert!(refused.due(false, at(second)).is_empty(), "one row per packet");
        }
        tokio::time::advance(WINDOW).await;
        let sum = refused.due(false, at(300));
        assert_eq!((sum.len(), sum[0].count, sum[0].request_id.as_str()), (1, 999, ""));
        assert_eq!(sum[0].time, at(999));
        assert!(refused.due(true, at(301)).is_empty(), "a sum is written once");
        refused.count(refusal(1, AuditAction::JobCreate, 302));
        assert_eq!(refused.due(false, at(302)).len(), 1, "the next window begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_a_bounded_number_of_entries_and_no_source_takes_the_places_of_others() {
        let refused = RefusedAttempts::default();
        let actions = [
            AuditAction::JobCreate,
            AuditAction::JobCancel,
            AuditAction::JobHold,
            AuditAction::UserCreate,
            AuditAction::UserRemove,
            AuditAction::TokenCreate,
            AuditAction::TokenRevoke,
            AuditAction::Read,
            AuditAction::ServerCreate,
            AuditAction::ServerRemove,
        ];
        for action in actions {
            refused.count(refusal(1, action, 0));
        }
        assert_eq!(refused.due(false, at(1)).len(), SHARE);
        for source in 2..5000 {
            refused.count(refusal(source, AuditAction::Read, 1));
        }
        assert!(refused.window.lock().kinds.len() <= KINDS);
        assert_eq!(refused.due(false, at(2)).len(), KINDS - SHARE);
        tokio::time::advance(WINDOW).await;
        let sums = refused.due(false, at(300));
        assert_eq!(sums.len(), 1, "{sums:?}");
        assert_eq!(sums[0].action, "api.refused-others");
        assert_eq!(sums[0].count, 4998 + 10 - KINDS as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn the_open_window_is_written_at_stop() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(model::ManualClock::new(at(0)));
        let store = Store::open(&folder.path().join("shoal.db"), at(0)).unwrap();
        let refused = Arc::new(RefusedAttempts::default());
        let stop = CancellationToken::new();
        for _ in 0..3 {
            refused.count(refusal(1, AuditAction::Read, 0));
        }
        stop.cancel();
        refused.run(store.clone(), clock, stop).await;
        let log = store.audit(store::AuditFilter { limit: 10, ..Default::default() }).await.unwrap();
        assert_eq!((log.len(), log[0].count, log[0].result.as_str()), (1, 3, "unauthorized"));
    }
}
