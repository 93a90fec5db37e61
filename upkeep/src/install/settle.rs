//! `firmware.settle`: the first step of every end. A running update is always let finish, also when the run was cancelled.
//!
//! ```text
//!   no whole image was sent, or the version was verified            -> skipped
//!   queued, running                                                 -> wait `flash_ends`
//!   no task is shown, the new version is installed                  -> done
//!   no task is shown, the old version is installed                  -> wait `flash_ends`: a vanished task says nothing
//!   waiting for a restart of the host, which this run has made      -> wait `flash_ends`: it may flash while the host boots
//!   no task is shown, and the server lost power                     -> done: see `power_loss`
//!   uploaded and never started, waiting for a restart of the host   -> done, with a warning; the record of the server keeps the second
//!   not ended after update_timeout, or no response for that long, half an hour at least
//!                                                                   -> done: the power of the host is left as it is
//! ```
//!
//! Before the first look, the record of the server names the update ([`bmc::updates`]), so that a later run does not cut it, however this
//! step ends. The end of the update ends the record.
//!
//! The time of an update counts from its acceptance, and again from a restart of the host by this run: what was stored for days
//! begins then.
//!
//! Invariant: the step says that no update runs only when the BMC has shown it. Everything else leaves power alone.

use std::time::Duration;

use redfish::{Bmc, UpdateHandle, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::{self, AWAY_LIMIT, Absence, Absent, away_limit};
use super::super::identified::{Identified, input};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::{self, Current};
use super::offer::Planned;
use super::power_loss::{self, HostPower, PowerLoss, Sign};
use super::sending::Upload;
use super::watch::Watched;
use bmc::power::PowerRequest;
use bmc::updates::LeftUpdate;
use bmc::wait_for_bmc;
use engine::{StepContext, StepError, StepReport, WaitRequest};
use model::{Effect, NewEvent, Snapshot, StepName, StepPhase, Time};

const STEP: &StepName = names::FW_SETTLE;
const POLL: Duration = Duration::from_secs(10);
/// The delay between the record of the update and the first look at it.
const AFTER_RECORD: Duration = Duration::from_millis(1);

/// The output of the step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Settled {
    /// Whether an update may still run.
    is_running: bool,
    /// Whether the record of the server was written.
    is_recorded: bool,
    /// Whether the image is stored and is written at the next start of the host.
    is_staged: bool,
    absent: Absent,
    power: HostPower,
}

/// The last update of the run that was not verified.
struct Open {
    handle: UpdateHandle,
    /// When an update that is shown counts as endless.
    until: Time,
    /// When an update that is not shown counts as endless.
    unseen_until: Time,
    /// Whether this run has powered the host on after the image was sent.
    restarted: bool,
    /// Whether this run has requested the restart of the BMC that the update needs.
    bmc_restarted: bool,
    /// The stored progress of the watch, or the one with which the watch would begin.
    watched: Option<Watched>,
    component: String,
    /// How long an update may take.
    limit: Duration,
    /// When the update was accepted, as far as that is known.
    since: Time,
}

impl Open {
    /// Describes the open update for the next run on the server.
    fn left(&self, snapshot: &Snapshot) -> LeftUpdate {
        let plan = snapshot.records_of(names::FW_PLAN).next_back();
        let plan = plan.and_then(|record| Planned::deserialize(&record.output).ok());
        let item = plan.and_then(|plan| plan.items.into_iter().find(|item| item.key() == self.component));
        LeftUpdate {
            run: snapshot.run.id,
            what: item.map_or_else(|| self.component.clone(), |item| item.what()),
            handle: self.handle.clone(),
            since: self.since,
            limit_s: Some(self.limit.as_secs()),
            staged: false,
        }
    }
}

/// The state of the update, as one read showed it.
enum Seen {
    /// The update runs, in words for operators.
    Runs(String),
    /// No task is shown and the new version is not installed: it may run.
    Unseen(String),
    /// The server may have lost power; the power state is read for two minutes.
    Unclear(String),
    Ended(UpdateState),
    /// The server lost power: nothing is flashed any more.
    PowerLost(PowerLoss),
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let Some(open) = open(&context.snapshot, context.record.started_at) else {
        return Ok(StepReport::skipped());
    };
    let serial = input(STEP, context)?.server;
    let mut settled: Settled = context.own_output().unwrap_or_default();
    // The next run on the server looks at what this one leaves to the BMC. It is recorded first: this step may not come to its end.
    if !settled.is_recorded {
        settled = Settled { is_running: true, is_recorded: true, ..Settled::default() };
        let detail = format!("the BMC may flash {}; it is let finish", open.component);
        let report = waiting(&open, context.now(), detail, AFTER_RECORD).with_output(json!(settled));
        return Ok(report.effect(open.left(&context.snapshot).recorded(&serial)));
    }
    let report = settle(services, context, &open, settled).await?;
    let settled = report.output.as_ref().and_then(|output| Settled::deserialize(output).ok());
    Ok(match settled.unwrap_or_default() {
        Settled { is_running: true, .. } => report,
        Settled { is_staged: true, .. } => {
            let left = LeftUpdate { staged: true, ..open.left(&context.snapshot) };
            report.effect(left.recorded(&serial))
        }
        _ => report.effect(LeftUpdate::ended(&serial)),
    })
}

async fn settle(
    services: &UpkeepServices,
    context: &StepContext,
    open: &Open,
    mut settled: Settled,
) -> Result<StepReport, StepError> {
    let now = context.now();
    settled.is_running = true;
    let away_limit = away_limit(open.limit);
    let seen = match absent::connect((STEP, names::FW_IDENTIFY), services, context).await? {
        Ok((bmc, found)) => {
            let seen = look(context, (&bmc, &found), open, &mut settled).await;
            bmc.release_idle();
            seen?
        }
        Err(absence) => Err(absence),
    };
    if seen.is_ok() {
        settled.absent.over(now);
    }
    let detail = match seen {
        Ok(Seen::Ended(state)) => return Ok(ended(&open.component, &state)),
        Ok(Seen::PowerLost(lost)) => {
            let report = StepReport::done().with_output(json!(Settled { is_running: false, ..settled }));
            let is_known = power_loss::found(context).is_some();
            return Ok(if is_known { report } else { report.event(lost.event(&open.component)) });
        }
        Ok(Seen::Unseen(detail)) if now >= open.unseen_until => {
            return Ok(left_running(&settled, format!("{detail}, and is left to the BMC")));
        }
        Ok(Seen::Runs(_)) if now >= open.until => {
            let message = format!("the update of {} has not ended; it is left to the BMC", open.component);
            return Ok(left_running(&settled, message));
        }
        Ok(Seen::Runs(detail) | Seen::Unseen(detail) | Seen::Unclear(detail)) => detail,
        Err(absence) => {
            let since = settled.absent.begin(now);
            if now.since(since) >= away_limit {
                let message =
                    format!("the BMC does not respond; the update of {} is left to it", open.component);
                return Ok(left_running(&settled, message));
            }
            format!("the BMC may flash {} and cannot be read: {}", open.component, absence.words())
        }
    };
    Ok(waiting(open, now, detail, POLL).with_output(json!(settled)))
}

fn waiting(open: &Open, now: Time, detail: String, poll: Duration) -> StepReport {
    let limit = open.until.since(now) + away_limit(open.limit) * 2;
    let wait = wait_for_bmc(&waits::FLASH_ENDS, limit, detail);
    StepReport::wait(WaitRequest { poll: Some(poll), ..wait })
}

/// Whether the step has found that no update runs. A step that failed has found nothing.
pub(super) fn found_no_update(context: &StepContext) -> bool {
    context.snapshot.records_of(STEP).next_back().is_some_and(|record| match record.phase {
        StepPhase::Skipped => true,
        StepPhase::Done => Settled::deserialize(&record.output).is_ok_and(|settled| !settled.is_running),
        _ => false,
    })
}

/// Polls the update; where no task is shown, the installed version decides.
async fn look(
    context: &StepContext,
    (bmc, found): (&Bmc, &Identified),
    open: &Open,
    settled: &mut Settled,
) -> Result<Result<Seen, Absence>, StepError> {
    let absent = |error| Absence::of(STEP, Look::of(error)).map(Err);
    let state = match bmc.poll_update(&open.handle).await {
        Ok(poll) => poll.state,
        Err(error) => return absent(error),
    };
    if let Some(absence) = Absence::of_state(&state) {
        return Ok(Err(absence));
    }
    let component = &open.component;
    if open.watched.as_ref().is_some_and(|watched| watched.may_be_of_before(&state, context.now())) {
        return Ok(Ok(Seen::Runs(format!("the BMC may begin to flash {component}; it is let finish"))));
    }
    let state = match state {
        UpdateState::NeedsRestart => Current::of_key(STEP, context, component)?.meaning(&state),
        state => state,
    };
    Ok(Ok(match state {
        UpdateState::Queued | UpdateState::Running { percent: None } => {
            Seen::Runs(format!("the BMC flashes {component}; it is let finish"))
        }
        UpdateState::Running { percent: Some(percent) } => {
            Seen::Runs(format!("the BMC flashes {component}, {percent} %; it is let finish"))
        }
        state
            if state == UpdateState::Gone
                || (open.restarted && state == UpdateState::NeedsHostRestart)
                || (open.bmc_restarted && state == UpdateState::NeedsBmcRestart) =>
        {
            let current = Current::of_key(STEP, context, component)?;
            let serial = input(STEP, context)?.server;
            let shown = match component::shown(bmc, &serial, &current.item, current.target()).await {
                Ok(shown) => shown.and_then(|one| one.installed.version),
                Err(error) => return absent(error),
            };
            let is_target = current.is_target(shown.as_ref());
            if !is_target && state == UpdateState::Gone {
                let Settled { power, absent: own, .. } = settled;
                match power.look(context, (bmc, found), (&current, own)).await {
                    Ok(Sign::None) => {}
                    Ok(Sign::Unclear) => {
                        let detail = format!(
                            "the BMC was away and shows no task for the update of {component}; the host is off although this run left \
                             it on, and is read for two minutes"
                        );
                        return Ok(Ok(Seen::Unclear(detail)));
                    }
                    Ok(Sign::Lost(lost)) => return Ok(Ok(Seen::PowerLost(lost))),
                    Err(error) => return absent(error),
                }
            }
            match is_target {
                true => Seen::Ended(UpdateState::Gone),
                false if state == UpdateState::Gone => Seen::Unseen(format!(
                    "the BMC shows no task for the update of {component} and not the new version: it may flash it"
                )),
                false if state == UpdateState::NeedsBmcRestart => Seen::Unseen(format!(
                    "the BMC was restarted for the update of {component} and does not show the new version: it may flash it"
                )),
                false => Seen::Unseen(format!(
                    "the host was restarted for the update of {component} and its BMC does not show the new version: it may \
                     flash it while the host boots"
                )),
            }
        }
        state => Seen::Ended(state),
    }))
}

/// The end of the step when it is not known that the update has ended.
fn left_running(settled: &Settled, message: String) -> StepReport {
    StepReport::done().with_output(json!(settled)).event(NewEvent::warn("firmware.left-running", message))
}

/// The report of an update that has ended, one way or the other.
fn ended(component: &str, state: &UpdateState) -> StepReport {
    let is_staged = *state == UpdateState::NeedsHostRestart;
    let report = StepReport::done().with_output(json!(Settled { is_staged, ..Settled::default() }));
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
        // The new version is installed.
        _ => return report,
    };
    report.event(NewEvent::warn("firmware.unverified", message))
}

/// Returns the effect that records the update which may still run, for a run that ends without its steps.
pub(crate) fn left_behind(snapshot: &Snapshot, now: Time) -> Option<Effect> {
    let serial = snapshot.run.server.as_ref()?;
    open(snapshot, now).map(|open| open.left(snapshot).recorded(serial))
}

/// The update that may run at the end of the run, which began at `ending_since`: the last one that was begun and not verified.
fn open(snapshot: &Snapshot, ending_since: Time) -> Option<Open> {
    let upload = snapshot.records_of(names::FW_UPLOAD).next_back()?;
    let record = |step| snapshot.records_of(step).find(|record| record.key == upload.key);
    let ended = |step| record(step).is_some_and(|record| record.phase == StepPhase::Done);
    if upload.phase == StepPhase::Skipped || ended(names::FW_VERIFY) {
        return None;
    }
    let stored = Upload::deserialize(&upload.output).ok()?;
    if stored.incomplete {
        // The last piece was not sent: the BMC has nothing to install.
        return None;
    }
    let watched = record(names::FW_WATCH)
        .and_then(|record| Watched::deserialize(&record.output).ok())
        .or_else(|| Watched::of(stored.clone()));
    let limit = Duration::from_secs(stored.limit_s);
    let bmc_restarted = watched.as_ref().is_some_and(Watched::has_restarted_bmc);
    let handle = match &watched {
        Some(watched) => watched.handle(),
        None => stored.handle.or_else(|| stored.prepared.map(|prepared| prepared.handle()))?,
    };
    let unseen_until =
        stored.accepted_at.map_or(ending_since.plus(AWAY_LIMIT), |accepted| accepted.plus(limit));
    // The checkpoint of the power-on is durable before its request is sent.
    let host_on = record(names::FW_HOST_ON);
    let restarted_at = host_on.and_then(|record| {
        let sent = PowerRequest::deserialize(&record.output).ok().and_then(|request| request.sent_at);
        sent.max(record.ended_at.filter(|_| record.phase == StepPhase::Done))
    });
    let unseen_until = restarted_at.map_or(unseen_until, |at| unseen_until.max(at.plus(limit)));
    Some(Open {
        restarted: restarted_at.is_some(),
        bmc_restarted,
        watched,
        handle,
        // An image that is still read has not been accepted: the update may take its whole time from the end of the run on.
        until: match stored.accepted_at {
            None if stored.fetch.is_some() => ending_since.plus(limit),
            _ => unseen_until,
        },
        unseen_until,
        component: upload.key.clone(),
        limit,
        since: stored.accepted_at.unwrap_or(upload.started_at),
    })
}
