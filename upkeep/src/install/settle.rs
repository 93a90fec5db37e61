//! `firmware.settle`: the first step of every end. A running update is always let finish, also when the run was cancelled.
//!
//! ```text
//!   no image was sent, or the version was verified                  -> skipped
//!   an image may have arrived, and a look finds no update           -> done
//!   queued, running                                                 -> wait `flash_ends`
//!   uploaded and never started, waiting for a restart of the host   -> done, with a warning
//!   not ended after update_timeout, or no response for half an hour -> done: the power of the host is left as it is
//! ```

use std::time::Duration;

use redfish::{UpdateHandle, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::{self, Absence};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::record;
use super::sending::Upload;
use super::watch::Watched;
use bmc::wait_for_bmc;
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName, StepPhase, Time};

const STEP: &StepName = names::FW_SETTLE;
/// How long a BMC that does not respond is waited for.
const AWAY_LIMIT: Duration = Duration::from_secs(30 * 60);
const POLL: Duration = Duration::from_secs(10);

/// The output of the step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Settled {
    /// Whether an update may still run.
    pub(super) is_running: bool,
    away_since: Option<Time>,
}

/// The last update of the run that was not verified.
struct Open {
    handle: UpdateHandle,
    until: Option<Time>,
    component: String,
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let Some(open) = open(context) else { return Ok(StepReport::skipped()) };
    let mut settled: Settled = context.own_output().unwrap_or_default();
    let now = context.now();
    settled.is_running = true;
    let limit = open.until.unwrap_or_else(|| context.record.started_at.plus(AWAY_LIMIT));
    if now >= limit {
        let message = format!("the update of {} has not ended; it is left to the BMC", open.component);
        let event = NewEvent::warn("firmware.left-running", message);
        return Ok(StepReport::done().with_output(json!(settled)).event(event));
    }
    let seen = match absent::connect((STEP, names::FW_IDENTIFY), services, context).await? {
        Ok((bmc, _)) => {
            let seen = bmc.poll_update(&open.handle).await;
            bmc.release_idle();
            match seen {
                Ok(poll) => Absence::of_state(&poll.state).map_or(Ok(poll.state), Err),
                Err(error) => Err(Absence::of(STEP, Look::of(error))?),
            }
        }
        Err(absence) => Err(absence),
    };
    let detail = match seen {
        Ok(UpdateState::Queued | UpdateState::Running { percent: None }) => {
            settled.away_since = None;
            format!("the BMC flashes {}; it is let finish", open.component)
        }
        Ok(UpdateState::Running { percent: Some(percent) }) => {
            settled.away_since = None;
            format!("the BMC flashes {}, {percent} %; it is let finish", open.component)
        }
        Ok(state) => return Ok(ended(&open.component, &state)),
        Err(absence) => {
            let since = *settled.away_since.get_or_insert(now);
            if now.since(since) >= AWAY_LIMIT {
                let message =
                    format!("the BMC does not respond; the update of {} is left to it", open.component);
                let event = NewEvent::warn("firmware.left-running", message);
                return Ok(StepReport::done().with_output(json!(settled)).event(event));
            }
            format!("the BMC may flash {} and does not respond: {absence:?}", open.component)
        }
    };
    let mut wait = wait_for_bmc(&waits::FLASH_ENDS, limit.since(now) + AWAY_LIMIT * 2, detail);
    wait.poll = Some(POLL);
    Ok(StepReport::wait(wait).with_output(json!(settled)))
}

/// The report of an update that has ended, one way or the other.
fn ended(component: &str, state: &UpdateState) -> StepReport {
    let report = StepReport::done().with_output(json!(Settled::default()));
    let message = match state {
        UpdateState::NeedsHostRestart => {
            format!("the image of {component} is stored and is used after the next restart of the host")
        }
        UpdateState::NeedsBmcRestart => {
            format!("the image of {component} is stored and is used after the next restart of the BMC")
        }
        UpdateState::Uploaded => format!("the image of {component} was uploaded and not installed"),
        UpdateState::Done => {
            format!("the BMC says that the update of {component} succeeded; it was not verified")
        }
        UpdateState::Failed => format!("the BMC says that the update of {component} failed"),
        _ => return report,
    };
    report.event(NewEvent::warn("firmware.unverified", message))
}

/// The update that may run at the end of the run: the last one that was begun and not verified.
fn open(context: &StepContext) -> Option<Open> {
    let upload = context.snapshot.records_of(names::FW_UPLOAD).next_back()?;
    let ended =
        |step| record(context, step, &upload.key).is_some_and(|record| record.phase == StepPhase::Done);
    if upload.phase == StepPhase::Skipped || ended(names::FW_VERIFY) {
        return None;
    }
    let stored = Upload::deserialize(&upload.output).ok()?;
    let watched = record(context, names::FW_WATCH, &upload.key)
        .and_then(|record| Watched::deserialize(&record.output).ok());
    let limit = Duration::from_secs(stored.limit_s);
    let handle = match watched {
        Some(watched) => watched.handle,
        None => stored.handle.or_else(|| stored.prepared.map(|prepared| prepared.handle()))?,
    };
    Some(Open {
        handle,
        // An image that is still read has not been accepted: the update may take its whole time from the end of the run on.
        until: match stored.accepted_at {
            None if stored.fetch.is_some() => Some(context.record.started_at.plus(limit)),
            accepted => accepted.map(|accepted| accepted.plus(limit)),
        },
        component: upload.key.clone(),
    })
}
