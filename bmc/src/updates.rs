//! An update of firmware that an earlier run has left to the BMC: every run that changes power, restarts the BMC or installs looks
//! at it before its first change. A cut update may leave a server that does not start.
//!
//! ```text
//!   the record of the server names none              -> clear
//!   the order goes on in spite of it                 -> clear, with a warning; the record ends when the BMC has restarted
//!   it runs, or its state cannot be read,
//!   or the BMC cannot be read within a day of it     -> wait `update_runs`, for as long as an update may take,
//!                                                       then failure `update_running`
//!   the BMC cannot be read after that day            -> the failure of its connection; the record stays
//!   three reads show its end, or no trace of it      -> clear; the record ends
//!   it is stored and waits for a restart of the host -> clear for a power cycle and the like, and the record stays;
//!                                                       failure `update_running` for a run that may cut it
//! ```
//!
//! An image that is stored and waits for a restart of the host is written at the next start of the host, whatever starts it. So a run
//! that starts the host and may force it off soon after, such as an installation, does not begin. The update is read at the
//! present address of the server, whose machine is verified before: a BMC keeps its update when its address changes.
//!
//! Invariant: the record ends only with reads of the BMC, or with a forced restart of the BMC that was seen to happen.

use std::time::Duration;

use redfish::{Discovery, SystemSelector, UpdateHandle, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::class;
use super::classify::{failure, from_redfish};
use super::connections::ConnectError;
use super::identity;
use super::services::{BmcServices, not_connected};
use super::step::{ConnectedBmc, wait_for_bmc};
use super::waits;
use engine::{StepContext, StepError, StepReport, WaitRequest};
use model::{Effect, NewEvent, RunId, Serial, Server, StepName, Time};

/// Reads without the update, one after the other, that show that it has ended: a BMC that restarts shows it in turn.
const ENDED_READS: u32 = 3;
/// The delay between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(15);
/// The delay after a refused login: a BMC that locks accounts must not be asked often.
const AFTER_DENIAL: Duration = Duration::from_secs(60);
/// How long a BMC that cannot be read is taken for one that may carry out a left update. An update takes hours at most, and a BMC is
/// away for its end and restart; after a day it is silent for another reason, which is the one to name.
const MAY_FLASH_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long an update may take whose record does not say it.
const USUAL_LIMIT: Duration = Duration::from_secs(3600);

/// An update that a run has left to the BMC; a part of the record of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftUpdate {
    /// The run that began the update.
    pub run: RunId,
    /// The component, version and device, in a few words.
    pub what: String,
    /// The handle of the update, with its task if one is known.
    pub handle: UpdateHandle,
    /// The time since which the update runs.
    pub since: Time,
    /// The time that the update may take, in seconds.
    #[serde(default)]
    pub limit_s: Option<u64>,
    /// Whether the image was stored and waited for a restart of the host.
    #[serde(default)]
    pub staged: bool,
}

/// What a run does on a server whose BMC has stored an image that it writes at the next start of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedImage {
    /// The run goes on: it starts the host and lets it be, or does not touch its power.
    Allowed,
    /// The run does not begin: it may force the host off while the image is written.
    Refused,
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

    /// Ends the record of a server whose BMC was restarted in spite of an update; `None` when the record names no update.
    pub fn cut(server: &Server) -> Option<Effect> {
        Self::of(server).map(|_| Self::ended(&server.serial))
    }

    /// The update in the record of a server.
    fn of(server: &Server) -> Option<Result<Self, serde_json::Error>> {
        Some(Self::deserialize(server.observed.as_ref()?.get("update")?))
    }

    /// Names the update, to follow "an update".
    fn words(&self) -> String {
        format!(" of {}, which job {} left running since {}", self.what, self.run, self.since)
    }

    /// The time that the update may take when its BMC cannot be read.
    fn limit(&self) -> Duration {
        self.limit_s.map_or(USUAL_LIMIT, Duration::from_secs)
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

/// The result of the first read of a machine by a run.
pub enum FirstLook {
    /// An update may run, or the BMC cannot be read and one may run: the step ends with this wait.
    Wait(Box<StepReport>),
    /// The machine is verified, and no update runs.
    Ready(Box<VerifiedMachine>),
}

/// A machine that is verified and on which no update runs.
pub struct VerifiedMachine {
    /// The connection to the BMC of the machine.
    pub connected: ConnectedBmc,
    /// The host and manager that the BMC shows.
    pub discovery: Discovery,
    events: Vec<NewEvent>,
    effects: Vec<Effect>,
}

impl VerifiedMachine {
    /// Adds what the look showed to the report of the step.
    pub fn report(&self, mut report: StepReport) -> StepReport {
        report.events.extend(self.events.iter().cloned());
        report.effects.extend(self.effects.iter().cloned());
        self.connected.report(report)
    }
}

/// Connects to the BMC of a server, verifies its machine, and looks at the update that an earlier run has left to it. `regardless`:
/// the order goes on although it may run. `staged`: whether it goes on when the update begins with the next start of the host.
///
/// # Errors
/// A failure when the machine is another one, or when the update has not ended after the time that an update may take; what ends the
/// step when the BMC cannot be read and the record names no update.
pub async fn first_look(
    step: &StepName,
    services: &BmcServices,
    context: &StepContext,
    serial: &Serial,
    (regardless, staged): (bool, StagedImage),
) -> Result<FirstLook, StepError> {
    let server = services.server(step, serial).await?;
    let left = LeftUpdate::of(&server);
    let overridden = left.as_ref().filter(|_| regardless).map(|left| {
        let what = left.as_ref().map_or_else(|_| String::new(), LeftUpdate::words);
        let message =
            format!("an earlier job left an update running{what}; the order goes on in spite of it");
        NewEvent::warn("redfish.update-overridden", message)
    });
    let left = match left.filter(|_| !regardless).transpose() {
        Ok(left) => left,
        Err(why) => {
            let summary = format!("the record of an update that was left running cannot be read: {why}");
            return Err(StepError::fail(failure(class::UPDATE_RUNNING, step, summary, NEXT)));
        }
    };
    let (connected, discovery) = match discovered(services, context, server).await {
        Ok(found) => found,
        Err(why) => {
            services.connections.release_idle(serial);
            let recent = left.as_ref().filter(|left| context.now() < left.since.plus(MAY_FLASH_FOR));
            if let (Some(left), Some(state)) = (recent, absence(&why))
                && let Some(report) = left.after_look(step, context, left.limit(), &state)?
            {
                return Ok(FirstLook::Wait(Box::new(report)));
            }
            return Err(not_connected(step, serial, why));
        }
    };
    let unverified = identity::verify(step, &connected.server, &discovery)?;
    let mut events: Vec<NewEvent> = unverified.into_iter().chain(overridden).collect();
    let mut effects = Vec::new();
    if let Some(left) = left {
        let poll = connected.bmc.poll_update(&left.handle).await;
        let state = poll.map_err(|error| from_redfish(step, &error))?.state;
        let limit = connected.bmc.profile().update_timeout;
        if left.is_staged(&state) {
            if staged == StagedImage::Allowed {
                return Ok(FirstLook::Ready(Box::new(VerifiedMachine {
                    connected,
                    discovery,
                    events,
                    effects,
                })));
            }
            let summary = format!(
                "the BMC has stored an image of {}, by job {} of {}, and writes it at the next start of the host; this job would start the \
                 host and may cut its power then, so nothing was changed",
                left.what, left.run, left.since
            );
            return Err(StepError::fail(failure(class::UPDATE_RUNNING, step, summary, NEXT_STAGED)));
        }
        if let Some(report) = left.after_look(step, context, limit, &state)? {
            connected.bmc.release_idle();
            return Ok(FirstLook::Wait(Box::new(connected.report(report))));
        }
        let message = format!(
            "the update of {}, which job {} left running, has ended, read {ENDED_READS} times; it was not verified",
            left.what, left.run
        );
        events.push(NewEvent::info("redfish.update-ended", message));
        effects.push(LeftUpdate::ended(serial));
    }
    Ok(FirstLook::Ready(Box::new(VerifiedMachine { connected, discovery, events, effects })))
}

async fn discovered(
    services: &BmcServices,
    context: &StepContext,
    server: Server,
) -> Result<(ConnectedBmc, Discovery), ConnectError> {
    let selector = SystemSelector::serial(server.serial.as_str());
    let connected = services.connect_to(context, server).await?;
    let discovery =
        connected.bmc.discover(&selector).await.map_err(|why| ConnectError::Bmc(Box::new(why)))?;
    Ok((connected, discovery))
}

/// Returns the state that an error shows of an update which may run: a BMC that flashes may be silent, busy or without logins.
/// Another certificate is no absence: only an operator registers it.
fn absence(why: &ConnectError) -> Option<UpdateState> {
    match why {
        ConnectError::Record(_) => None,
        ConnectError::Bmc(error) => UpdateState::of_absence(error)
            .filter(|state| !matches!(state, UpdateState::CertificateChanged { .. })),
    }
}

impl LeftUpdate {
    /// Whether the image begins to be written with the next start of the host.
    fn is_staged(&self, state: &UpdateState) -> bool {
        match state {
            UpdateState::NeedsHostRestart => true,
            UpdateState::NeedsRestart => self.staged,
            _ => false,
        }
    }

    /// The wait for the end of the update after a look that showed `state`; `None` when enough looks showed that it has ended.
    fn after_look(
        &self,
        step: &StepName,
        context: &StepContext,
        limit: Duration,
        state: &UpdateState,
    ) -> Result<Option<StepReport>, StepError> {
        let now = context.now();
        let mut looking: Looking =
            context.own_output().unwrap_or(Looking { looking_since: now, ended_reads: 0 });
        let seen = match state {
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
            return Ok(None);
        }
        let seen = seen.unwrap_or_else(|| format!("no task of it is shown; it is read {ENDED_READS} times"));
        let (words, minutes) = (self.words(), limit.as_secs() / 60);
        if looking.ended_reads == 0 && now.since(looking.looking_since) >= limit {
            let summary = format!(
                "the BMC may still carry out an update{words}: {seen}; it was waited for {minutes} min, and nothing was changed"
            );
            return Err(StepError::fail(failure(class::UPDATE_RUNNING, step, summary, NEXT)));
        }
        let detail =
            format!("the BMC may carry out an update{words}: {seen}; after {minutes} min the job fails");
        let wait = wait_for_bmc(&waits::UPDATE_RUNS, limit * 2, detail);
        let poll = Some(match state {
            UpdateState::LoginRefused { .. } => AFTER_DENIAL,
            _ => READ_INTERVAL,
        });
        Ok(Some(StepReport::wait(WaitRequest { poll, ..wait }).with_output(json!(looking))))
    }
}

/// The next action while an update runs that no run follows.
const NEXT: &str = "do not remove power: look into the web interface of the BMC. If the update hangs there, \
                    `shoal server reset-bmc SERIAL --forced` restarts the BMC in spite of it; then order this again";
/// The next action while an image waits for a restart of the host.
const NEXT_STAGED: &str = "let it be written first: `shoal server power-cycle SERIAL` restarts the host, and this order then waits for the end \
                           of the update; or remove the job of the image in the web interface of the BMC, then order this again";
