//! An update of firmware that an earlier run has left to the BMC: every run that changes power, restarts the BMC or installs looks
//! at it before its first change. A cut update may leave a server that does not start.
//!
//! ```text
//!   the record of the server names none              -> clear
//!   the order goes on in spite of it                 -> clear, with a warning; the record ends
//!   it was left to a BMC at another address          -> clear; the record ends
//!   it runs, or its state cannot be read             -> wait `update_runs`, for as long as an update may take,
//!                                                       then failure `update_running`
//!   three reads show its end, or no trace of it      -> clear; the record ends
//! ```
//!
//! An image that is stored and waits for a restart is no update that runs: nothing is written until then.
//!
//! Invariant: the record ends only with reads of the BMC, or with an order that names the update as the one to go over.

use std::time::Duration;

use redfish::{UpdateHandle, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::class;
use super::classify::{failure, from_redfish};
use super::step::{ConnectedBmc, wait_for_bmc};
use super::waits;
use engine::{StepContext, StepError, StepReport, WaitRequest};
use model::{Effect, NewEvent, RunId, Serial, Server, StepName, Time};

/// Reads without the update, one after the other, that show that it has ended: a BMC that restarts shows it in turn.
const ENDED_READS: u32 = 3;
/// The delay between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(15);

/// An update that a run has left to the BMC; a part of the record of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftUpdate {
    /// The run that began it.
    pub run: RunId,
    /// What is installed, in a few words.
    pub what: String,
    /// The address of the BMC.
    pub bmc_address: String,
    /// What is known of its task.
    pub handle: UpdateHandle,
    /// Since when it runs.
    pub since: Time,
}

impl LeftUpdate {
    /// Writes this update to the record of a server.
    pub fn recorded(&self, serial: &Serial) -> Effect {
        Effect::ServerUpdateLeft { serial: serial.clone(), update: Some(json!(self)) }
    }

    /// Ends the record of a server.
    pub fn ended(serial: &Serial) -> Effect {
        Effect::ServerUpdateLeft { serial: serial.clone(), update: None }
    }

    /// The update in the record of a server.
    fn of(server: &Server) -> Option<Result<Self, serde_json::Error>> {
        Some(Self::deserialize(server.observed.as_ref()?.get("update")?))
    }
}

/// The output of a step that looks at such an update.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Looking {
    /// Since when the run waits.
    looking_since: Time,
    /// Reads without the update so far.
    ended_reads: u32,
}

/// What the look showed.
pub enum LeftOver {
    /// The update may run: the step ends with this wait.
    Wait(Box<StepReport>),
    /// No update runs.
    Clear(Cleared),
}

/// What the report of a step says about an update that no longer stops it.
#[must_use]
pub struct Cleared(Option<Box<(NewEvent, Effect)>>);

impl Cleared {
    /// Adds the end of the record to a report.
    pub fn report(self, report: StepReport) -> StepReport {
        match self.0 {
            Some(said) => {
                let (event, effect) = *said;
                report.event(event).effect(effect)
            }
            None => report,
        }
    }
}

/// Looks at the update that an earlier run has left to a BMC whose machine is verified. `regardless`: the order goes on although it
/// may run.
///
/// # Errors
/// A failure when the update has not ended after the time that an update may take; what ends the step when the BMC cannot be read.
pub async fn left_over(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    regardless: bool,
) -> Result<LeftOver, StepError> {
    let server = &connected.server;
    let clear = |event: NewEvent| {
        Ok(LeftOver::Clear(Cleared(Some(Box::new((event, LeftUpdate::ended(&server.serial)))))))
    };
    let left = match LeftUpdate::of(server) {
        None => return Ok(LeftOver::Clear(Cleared(None))),
        _ if regardless => {
            let what =
                LeftUpdate::of(server).and_then(Result::ok).map_or_else(String::new, |left| left.words());
            let message =
                format!("an earlier job left an update running{what}; the order goes on in spite of it");
            return clear(NewEvent::warn("redfish.update-overridden", message));
        }
        Some(Err(why)) => {
            let summary = format!("the record of an update that was left running cannot be read: {why}");
            return Err(StepError::fail(failure(class::UPDATE_RUNNING, step, summary, NEXT)));
        }
        Some(Ok(left)) => left,
    };
    if left.bmc_address != server.bmc_address {
        let message = format!(
            "{} was left to the BMC at {}, which this server no longer has",
            left.what, left.bmc_address
        );
        return clear(NewEvent::info("redfish.update-ended", message));
    }
    let now = context.now();
    let mut looking: Looking = context.own_output().unwrap_or(Looking { looking_since: now, ended_reads: 0 });
    let poll = connected.bmc.poll_update(&left.handle).await.map_err(|error| from_redfish(step, &error))?;
    let seen = match poll.state {
        UpdateState::Queued | UpdateState::Running { percent: None } => {
            Some("it shows no progress".to_owned())
        }
        UpdateState::Running { percent: Some(percent) } => Some(format!("its task says {percent} %")),
        UpdateState::Away { why } | UpdateState::LoginRefused { why } => {
            Some(format!("it cannot be read: {why}"))
        }
        UpdateState::CertificateChanged { .. } => Some("the BMC shows another certificate".to_owned()),
        _ => None,
    };
    looking.ended_reads = if seen.is_some() { 0 } else { looking.ended_reads + 1 };
    if looking.ended_reads >= ENDED_READS {
        let message = format!(
            "the update of {}, which job {} left running, has ended, read {ENDED_READS} times; it was not verified",
            left.what, left.run
        );
        return clear(NewEvent::info("redfish.update-ended", message));
    }
    let limit = connected.bmc.profile().update_timeout;
    let seen = seen.unwrap_or_else(|| format!("no task of it is shown; it is read {ENDED_READS} times"));
    let minutes = limit.as_secs() / 60;
    if looking.ended_reads == 0 && now.since(looking.looking_since) >= limit {
        let summary = format!(
            "the BMC still carries out an update{}: {seen}; it was waited for {minutes} min, and nothing was changed",
            left.words()
        );
        return Err(StepError::fail(failure(class::UPDATE_RUNNING, step, summary, NEXT)));
    }
    connected.bmc.release_idle();
    let detail =
        format!("the BMC carries out an update{}: {seen}; after {minutes} min the job fails", left.words());
    let wait = wait_for_bmc(&waits::UPDATE_RUNS, limit * 2, detail);
    let wait = WaitRequest { poll: Some(READ_INTERVAL), ..wait };
    Ok(LeftOver::Wait(Box::new(connected.report(StepReport::wait(wait).with_output(json!(looking))))))
}

/// The next action while an update runs that no run follows.
const NEXT: &str = "do not remove power: look into the web interface of the BMC. If the update hangs there, \
                    `shoal server reset-bmc SERIAL --forced` restarts the BMC in spite of it; then order this again";

impl LeftUpdate {
    /// Which update it is, to follow "an update".
    fn words(&self) -> String {
        format!(" of {}, which job {} left running since {}", self.what, self.run, self.since)
    }
}
