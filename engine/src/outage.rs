//! An outage: the time in which no controller instance ran, or in which it stood still: a stopped process, a suspended machine. Messages
//! that were sent meanwhile were not received.
//!
//! ```text
//!   last sign of life ------- no controller runs ------- start ---- min(length, REPORT_INTERVAL) ---- overdue waits are judged
//!                                  ^ deadline of a wait                 ^ the sender repeats its message
//! ```
//!
//! Deadlines stay as they were stored. A wait for a message whose deadline passed is judged only at [`Outage::judged_at`], so
//! that the sender has the time to repeat the message. A wait that no message can end is judged at once (decision D6).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use model::{NewEvent, PERMIT, Run, Time, Wait};

/// The longest pause after which the sender of a message repeats it (docs/maintenance-os.md, section "Reporting").
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The time in which no controller instance ran before this one started, or in which this one stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// The last sign of life before the outage.
    from: Time,
    /// The start of this instance, or its first round.
    until: Time,
}

impl Outage {
    /// When overdue waits for a message are judged.
    fn judged_at(self) -> Time {
        self.until.plus(self.until.since(self.from).min(REPORT_INTERVAL))
    }

    /// Describes for operators when a deadline that passed during the outage is judged, and why so late.
    fn describe(self, deadline: Time) -> String {
        format!(
            "the deadline {deadline} is judged at {}: no controller ran from {} to {}, so the message may be on its way again",
            self.judged_at(),
            self.from,
            self.until
        )
    }
}

/// The last outage, shared by the workers of an engine.
#[derive(Clone, Debug, Default)]
pub(super) struct LastOutage(Arc<Mutex<Option<Outage>>>);

impl LastOutage {
    /// Records the outage between the last sign of life and the next one.
    pub(super) fn record(&self, from: Time, until: Time) {
        *self.0.lock() = (from < until).then_some(Outage { from, until });
    }

    /// The outage, while it still postpones judgements.
    fn recent(&self, now: Time) -> Option<Outage> {
        self.0.lock().filter(|outage| now < outage.judged_at())
    }

    /// Whether an overdue wait of this run is not judged yet.
    pub(super) fn spares(&self, run: &Run, now: Time) -> bool {
        run.phase.is_forward() && run.wait.as_ref().is_some_and(|wait| self.spares_wait(wait, now))
    }

    /// Whether a wait is not judged yet, should its deadline have passed.
    pub(super) fn spares_wait(&self, wait: &Wait, now: Time) -> bool {
        awaits_message(wait) && self.recent(now).is_some()
    }

    /// Makes a parked run whose deadline passed due when it is judged. Returns the event that says so.
    pub(super) fn postpone(&self, run: &mut Run, now: Time) -> Option<NewEvent> {
        let outage = self.recent(now).filter(|_| run.lease.is_none() && self.spares(run, now))?;
        let deadline = run.wait.as_ref()?.deadline.min(run.deadline_at);
        if deadline > now || run.next_run_at.is_some_and(|due| due > now) {
            return None;
        }
        run.next_run_at = Some(outage.judged_at());
        Some(NewEvent::warn("wait.outage", outage.describe(deadline)))
    }

    /// When a passed deadline of a waiting run is judged, with the sentence for operators; `None` when nothing is postponed.
    pub(super) fn postponed(&self, run: &Run, now: Time) -> Option<(Time, String)> {
        let outage = self.recent(now).filter(|_| self.spares(run, now))?;
        let deadline = run.wait.as_ref()?.deadline.min(run.deadline_at);
        (deadline <= now).then(|| (outage.judged_at(), outage.describe(deadline)))
    }
}

/// Whether a message from outside can end a wait. A permit is granted by this controller.
fn awaits_message(wait: &Wait) -> bool {
    wait.signals.iter().any(|signal| signal != PERMIT)
}
