//! Cancel: the signal that requests it, and the failure with which the run ends. Pure functions.

use serde_json::{Value, json};

use model::{Failure, Signal, Snapshot, StepName, Time, class};
use store::CANCEL;

/// The signal of a cancel.
pub(super) fn signal(actor: &str, reason: &str, now: Time) -> Signal {
    Signal {
        name: CANCEL.to_owned(),
        key: String::new(),
        payload: json!({ "by": actor, "reason": reason }),
        received_at: now,
        consumed: false,
    }
}

/// Whether a cancel was requested for a run that is not ending yet.
pub(super) fn is_pending(snapshot: &Snapshot) -> bool {
    snapshot.run.phase.is_forward() && request(snapshot).is_some()
}

/// The cancel signal that is not consumed yet.
pub(super) fn request(snapshot: &Snapshot) -> Option<&Signal> {
    snapshot.pending().find(|signal| signal.name == CANCEL)
}

/// The failure with which a cancelled run ends.
pub(super) fn failure(snapshot: &Snapshot) -> Failure {
    let payload = request(snapshot).map(|signal| &signal.payload);
    let text_of = |key: &str| {
        payload.and_then(|payload| payload.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let reason = text_of("reason");
    Failure {
        class: class::CANCELLED,
        step: snapshot.run.step.clone().unwrap_or(StepName::QUEUED),
        summary: if reason.is_empty() {
            format!("cancelled by {}", text_of("by"))
        } else {
            format!("cancelled by {}: {reason}", text_of("by"))
        },
        detail: None,
        next_action: "create a new job if it is still needed".to_owned(),
    }
}
