//! `rescue.wait`: waits for the end of a rescue session, while an operator works on the machine.
//!
//! ```text
//!   no report of "reachable"            -> skipped: the maintenance OS has reported the end itself
//!   "finish" of an operator             -> done
//!   report: success -> done   failed    -> failed
//!   the deadline of the session         -> done, with a warning
//! ```
//!
//! Invariant: the BMC is not touched. The wait costs one row, and holds neither a permit nor a connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::super::reachable::{FINISH, reach};
use super::super::report::SIGNAL;
use super::super::services::Services;
use super::super::waits;
use super::reported::conclude;
use super::{names, own_policy, recipe};
use bmc::power::power_on_permit;
use engine::{Step, StepContext, StepOutcome, StepPolicy, StepReport, WaitRequest};
use model::{Effect, NewEvent, Signal, Snapshot, StepName, Wait};

const STEP: &StepName = names::AWAIT_SESSION;

/// A session ends before the deadline of its job: a passed deadline fails the job, and the end of a session is a success.
const BEFORE_DEADLINE: Duration = Duration::from_secs(5);

/// The step that waits for the end of a rescue session.
pub(crate) struct AwaitSession(pub(crate) Arc<Services>);

#[async_trait]
impl Step for AwaitSession {
    fn policy(&self) -> StepPolicy {
        own_policy(&self.0)
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let Some(reach) = reach(&context.snapshot) else { return StepReport::skipped() };
        let ended = |name: &str| context.snapshot.pending().find(|signal| signal.name == name);
        if let Some(signal) = ended(SIGNAL).or_else(|| ended(FINISH)) {
            return end(signal);
        }
        let session = match recipe(STEP, context) {
            Ok(recipe) => recipe.session(),
            Err(error) => return error.into(),
        };
        let left = context.snapshot.run.deadline_at.since(context.now());
        let within = session.min(left.saturating_sub(BEFORE_DEADLINE));
        context.snapshot.run.server.iter().for_each(|server| self.0.bmc.connections.release_idle(server));
        let report = StepReport::new(StepOutcome::Wait(WaitRequest {
            reason: &waits::RESCUE_SESSION,
            signals: vec![SIGNAL, FINISH],
            poll: None,
            limit: within.into(),
            detail: format!("the machine is reachable {}", reach.describe()),
        }));
        // The machine has booted, so it does not count as powering on.
        match context.has_permit(&power_on_permit()) {
            true => report.effect(Effect::PermitReleased { resource: power_on_permit() }),
            false => report,
        }
    }

    fn on_signal(&self, _snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        matches!(&*signal.name, SIGNAL | FINISH).then(|| end(signal))
    }

    fn on_wait_deadline(&self, _snapshot: &Snapshot, wait: &Wait) -> StepReport {
        let message = format!("the time of the rescue session, which began at {}, is over", wait.since);
        StepReport::done()
            .with_output(json!({ "ended_by": "deadline", "at": wait.deadline }))
            .event(NewEvent::warn("rescue.timed-out", message))
    }
}

/// The report of the step that follows from a signal.
fn end(signal: &Signal) -> StepReport {
    if signal.name == SIGNAL {
        return conclude(signal);
    }
    let mut report =
        StepReport::done().with_output(json!({ "ended_by": signal.payload["by"], "at": signal.received_at }));
    report.consumed.push((signal.name.clone(), signal.key.clone()));
    report
}
