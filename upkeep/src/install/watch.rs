//! `firmware.watch`: follows an update by one poll for each wake-up, and holds nothing in between.
//!
//! ```text
//!   queued, running          wait                                   longer than update_timeout ─► failure `update_stuck`
//!   uploaded                 second request, once                   (a checkpoint before it; after a crash: look first)
//!   needs a host restart     done, word HostRestart; for firmware of the BMC itself the version decides, as for a task that is gone
//!   needs a BMC restart      restart it, once; then the new version? done : wait
//!   as before the upload     wait, a minute at most: it may be the state of an earlier update (services without tasks)
//!   done                     done, word Done                        firmware.verify reads the version
//!   failed                   the new version? done : failure `update_failed`
//!   gone                     the new version? done : wait for update_timeout, then done, word Gone
//!   failed or gone, and the server lost power                       done, word PowerLost: see `power_loss`
//!   away, other certificate, login refused                          see `absent`
//! ```

use std::time::Duration;

use redfish::{Bmc, ManagerReset, RedfishError, UpdateHandle, UpdatePoll, UpdateStart, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::{self, Absence, Absent, away_limit};
use super::super::identified::{Identified, input};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::{self, Current, sibling};
use super::power_loss::{HostPower, Sign};
use super::sending::Upload;
use bmc::{failure, from_redfish, from_redfish_change, lease_lost, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use firmware::Component;
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName, Time};

const STEP: &StepName = names::FW_WATCH;
/// The time in which a BMC that has received the second request shows its task.
const START_SHOWN: Duration = Duration::from_secs(60);
/// How long a service may show the state of an earlier update.
const STATE_SHOWN: Duration = Duration::from_secs(60);
/// How often the second request is sent at most.
const MAX_STARTS: u32 = 2;
/// The longest delay between two polls that a BMC can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// How long a BMC may take to begin a restart.
const RESTART_BEGINS: Duration = Duration::from_secs(180);
/// A progress event is written for each step of this many percent.
const EVENT_STEP: u8 = 25;

/// The end of the task, as the BMC reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// Nothing final.
    #[default]
    None,
    /// The task succeeded.
    Done,
    /// The update continues with the restart of the host.
    HostRestart,
    /// The task vanished.
    Gone,
    /// The server lost power, and its BMC shows no update.
    PowerLost,
}

/// The output of the step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Watched {
    /// The last known handle of the update; [`Watched::handle`] is that of what the BMC may do now.
    pub(super) handle: UpdateHandle,
    pub(super) accepted_at: Time,
    pub(super) limit_s: u64,
    pub(super) word: Word,
    /// The state that the service showed before the upload, until it shows another one.
    #[serde(default)]
    before: Option<UpdateState>,
    /// The last messages of the task.
    pub(super) messages: Vec<String>,
    /// The last progress.
    percent: Option<u8>,
    /// The progress of the last event.
    logged: u8,
    /// The second request may have been sent, and its task is not known.
    starting: bool,
    /// When the second request was sent last; stored before it is sent.
    #[serde(default)]
    started_at: Option<Time>,
    /// How often the second request was sent.
    #[serde(default)]
    starts: u32,
    /// The restart of the BMC that the update needs.
    bmc_restart: BmcRestart,
    absent: Absent,
    #[serde(default)]
    power: HostPower,
}

/// A restart of the BMC that an update needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct BmcRestart {
    /// When the restart was requested last; stored before the request.
    sent_at: Option<Time>,
    sent: u32,
    /// Whether the request has left this program for certain.
    answered: bool,
}

impl BmcRestart {
    /// Whether the request is sent now. When the worker died with the request, it is sent once more after a BMC that has it would
    /// have begun to restart.
    fn is_due(&self, now: Time) -> bool {
        match self.sent_at {
            None => true,
            Some(sent_at) => !self.answered && self.sent < 2 && now.since(sent_at) >= RESTART_BEGINS,
        }
    }
}

impl Watched {
    /// The begin of the watch: what the upload stored.
    pub(super) fn of(upload: Upload) -> Option<Self> {
        Some(Self {
            handle: upload.handle?,
            accepted_at: upload.accepted_at?,
            limit_s: upload.limit_s,
            word: Word::None,
            before: upload.before,
            messages: Vec::new(),
            percent: None,
            logged: 0,
            starting: false,
            started_at: None,
            starts: 0,
            bmc_restart: BmcRestart::default(),
            absent: Absent::default(),
            power: HostPower::default(),
        })
    }

    /// The handle of what the BMC may do now. Once the second request may have arrived, the uploaded image may be flashed without a
    /// task that is known: the version decides.
    pub(super) fn handle(&self) -> UpdateHandle {
        if self.starting { self.handle.after_start() } else { self.handle.clone() }
    }

    /// Whether a state may be that of an earlier update.
    pub(super) fn may_be_of_before(&self, state: &UpdateState, now: Time) -> bool {
        self.before.as_ref() == Some(state) && now.since(self.accepted_at) < STATE_SHOWN
    }

    /// Whether the restart of the BMC that the update needs was requested.
    pub(super) fn has_restarted_bmc(&self) -> bool {
        self.bmc_restart.sent_at.is_some()
    }

    /// Whether the update has taken longer than an update may take.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        now.since(self.accepted_at) >= Duration::from_secs(self.limit_s)
    }

    /// How long the BMC was away, to follow what its task says. Empty for its own firmware: it restarts for that.
    pub(super) fn absence(&self, current: &Current, now: Time) -> String {
        let away = self.absent.away(now).filter(|_| current.item.component != Component::Bmc);
        away.map_or_else(String::new, |away| {
            format!(" (the BMC was away for {} min meanwhile)", away.time().as_secs().div_ceil(60))
        })
    }

    /// How far the update is, for operators.
    pub(super) fn sentence(&self, what: &str, now: Time) -> String {
        let minutes = now.since(self.accepted_at).as_secs() / 60;
        let said = match self.percent {
            Some(percent) => format!("its task says {percent} %"),
            None => "it shows no progress".to_owned(),
        };
        let limit = self.limit_s / 60;
        format!(
            "the BMC has been flashing {what} for {minutes} min; {said}; after {limit} min it counts as stuck"
        )
    }
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let current = Current::of(STEP, context)?;
    let begun = || sibling::<Upload>(context, names::FW_UPLOAD).and_then(Watched::of);
    let Some(mut watched) = context.own_output::<Watched>().or_else(begun) else {
        return Ok(StepReport::skipped());
    };
    let seen = match absent::connect((STEP, names::FW_IDENTIFY), services, context).await? {
        Ok((bmc, found)) => {
            let seen = look(context, &current, &bmc, &found, &mut watched).await;
            bmc.release_idle();
            seen?
        }
        Err(absence) => Err(absence),
    };
    match seen {
        Ok(report) => Ok(report),
        Err(absence) => {
            let what = watched.sentence(&current.item.what(), context.now());
            let mut absent = watched.absent.clone();
            let parts = (STEP, services, context);
            let limit = away_limit(Duration::from_secs(watched.limit_s));
            absent.report(parts, absence, (&what, limit), |absent| json!(Watched { absent, ..watched })).await
        }
    }
}

type Seen = Result<Result<StepReport, Absence>, StepError>;

/// Polls once and decides.
async fn look(
    context: &StepContext,
    current: &Current,
    bmc: &Bmc,
    found: &Identified,
    watched: &mut Watched,
) -> Seen {
    let poll = match bmc.poll_update(&watched.handle).await {
        Ok(poll) => poll,
        Err(error) => return Err(from_redfish(STEP, &error).with_output(json!(watched))),
    };
    if let Some(absence) = Absence::of_state(&poll.state) {
        return Ok(Err(absence));
    }
    watched.absent.over(context.now());
    if watched.may_be_of_before(&poll.state, context.now()) {
        return Ok(Ok(go_on(context, current, watched, &poll)));
    }
    watched.before = None;
    if let Some(found) = &poll.found {
        watched.handle = (**found).clone();
    }
    if !poll.messages.is_empty() {
        watched.messages.clone_from(&poll.messages);
    }
    let done = |watched: &Watched, event: NewEvent| {
        Ok(Ok(StepReport::done().with_output(json!(watched)).event(event)))
    };
    let what = current.item.what();
    match &current.meaning(&poll.state) {
        UpdateState::Uploaded => start_uploaded(context, current, bmc, watched).await,
        UpdateState::NeedsBmcRestart if watched.bmc_restart.is_due(context.now()) => {
            restart_bmc(context, bmc, found, watched).await?;
            Ok(Ok(go_on(context, current, watched, &poll)))
        }
        UpdateState::NeedsHostRestart if current.may_need_host() => {
            watched.word = Word::HostRestart;
            let message =
                format!("{what} is stored; the BMC says that it is used after a restart of the host");
            done(watched, NewEvent::info("firmware.stored", message))
        }
        UpdateState::Running { .. } if mutant::active(Mutant::IgnoresFlash) => {
            watched.word = Word::HostRestart;
            Ok(Ok(StepReport::done().with_output(json!(watched))))
        }
        UpdateState::Done => {
            watched.word = Word::Done;
            let message =
                format!("the BMC says that the update to {what} succeeded; the version is read next");
            done(watched, NewEvent::info("firmware.flashed", message))
        }
        // After the restart some tasks say for ever what they said before it.
        UpdateState::Failed
        | UpdateState::Gone
        | UpdateState::NeedsBmcRestart
        | UpdateState::NeedsHostRestart => ended(context, current, (bmc, found), watched, &poll).await,
        UpdateState::Running { percent } => {
            watched.percent = *percent;
            Ok(Ok(go_on(context, current, watched, &poll)))
        }
        _ => Ok(Ok(go_on(context, current, watched, &poll))),
    }
    .map(|seen| seen.map(|report| stuck_after(context, current, watched, report)))
}

/// The report of an update that goes on.
fn go_on(context: &StepContext, current: &Current, watched: &mut Watched, poll: &UpdatePoll) -> StepReport {
    let now = context.now();
    let asked = poll.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
    let detail = watched.sentence(&current.item.what(), now);
    let percent = watched.percent.unwrap_or_default();
    let log = percent >= watched.logged.saturating_add(EVENT_STEP);
    if log {
        watched.logged = percent;
    }
    let limit = Duration::from_secs(watched.limit_s);
    let mut wait = wait_for_bmc(&waits::FLASHING, limit * 2 + Duration::from_secs(3600), detail.clone());
    wait.poll = Some(interval(now.since(watched.accepted_at)).max(asked));
    let report = StepReport::wait(wait).with_output(json!(watched));
    if log { report.event(NewEvent::info("firmware.progress", detail)) } else { report }
}

/// The delay between two polls, which grows with the time that an update takes.
pub(super) fn interval(since: Duration) -> Duration {
    match since.as_secs() {
        0..60 => Duration::from_secs(5),
        60..600 => Duration::from_secs(15),
        _ => Duration::from_secs(30),
    }
}

/// A wait of an update that takes longer than updates take is a failure.
fn stuck_after(
    context: &StepContext,
    current: &Current,
    watched: &Watched,
    report: StepReport,
) -> StepReport {
    let waits = matches!(report.outcome, engine::StepOutcome::Wait(_));
    if !waits || !watched.is_overdue(context.now()) || watched.power.is_unclear() {
        return report;
    }
    let said = watched.messages.first().map_or(String::new(), |message| format!("; it says: {message}"));
    let summary =
        format!("{}: it has not ended{said}", watched.sentence(&current.item.what(), context.now()));
    let next = "do not remove power yet: look into the web interface of the BMC. A BMC that shows no progress for hours needs a \
                restart: `shoal server reset-bmc SERIAL --forced`; update_timeout_s in the quirks of the server changes the limit";
    StepReport::fail(failure(names::class::UPDATE_STUCK, STEP, summary, next)).with_output(json!(watched))
}

/// Decides by the installed version when the task failed, vanished, or has nothing more to say.
async fn ended(
    context: &StepContext,
    current: &Current,
    (bmc, found): (&Bmc, &Identified),
    watched: &mut Watched,
    poll: &UpdatePoll,
) -> Seen {
    let serial = input(STEP, context)?.server;
    let shown = match component::shown(bmc, &serial, &current.item, current.target()).await {
        Ok(shown) => shown.and_then(|one| one.installed.version),
        Err(error) => return absent_or_error(error),
    };
    let what = current.item.what();
    if current.is_target(shown.as_ref()) {
        watched.word = Word::Done;
        let message =
            format!("the task of the update to {what} shows no success, and the new version is installed");
        return Ok(Ok(StepReport::done()
            .with_output(json!(watched))
            .event(NewEvent::info("firmware.flashed", message))));
    }
    let installed = shown.map_or_else(|| "no shown version".to_owned(), |version| version.to_string());
    if matches!(poll.state, UpdateState::Failed | UpdateState::Gone) {
        let part = (current, &watched.absent);
        let sign = match watched.power.look(context, (bmc, found), part).await {
            Ok(sign) => sign,
            Err(error) => return absent_or_error(error),
        };
        match sign {
            Sign::None => {}
            Sign::Unclear => {
                let detail = format!(
                    "the BMC was away in the middle of the update to {what} and shows no end of it; the host is off although this run \
                     left it on, and is read for two minutes"
                );
                let mut wait = wait_for_bmc(&waits::FLASHING, Duration::from_secs(watched.limit_s), detail);
                wait.poll = Some(interval(Duration::ZERO));
                return Ok(Ok(StepReport::wait(wait).with_output(json!(watched))));
            }
            Sign::Lost(lost) => {
                watched.word = Word::PowerLost;
                return Ok(Ok(StepReport::done().with_output(json!(watched)).event(lost.event(&what))));
            }
        }
    }
    if poll.state == UpdateState::Failed {
        let said = watched.messages.join("; ");
        let said = if said.is_empty() { "without a message".to_owned() } else { format!("it says: {said}") };
        let summary =
            format!("the BMC failed to install {what}, {said}; {installed} is installed, as before");
        let next = "read the log of the BMC; an image that is not signed for this model, or that needs another version first, is \
                    refused this way";
        return Ok(Ok(StepReport::fail(failure(names::class::UPDATE_FAILED, STEP, summary, next))
            .with_output(json!(watched))));
    }
    if !watched.is_overdue(context.now()) {
        // A vanished task says nothing: the flash may still run.
        watched.percent = None;
        return Ok(Ok(go_on(context, current, watched, poll)));
    }
    watched.word = Word::Gone;
    let end = match poll.state {
        UpdateState::Gone => "vanished",
        UpdateState::NeedsHostRestart => {
            "still asks for a restart of the host, which firmware of the BMC does not need"
        }
        _ => "still asks for a restart of the BMC, which was restarted",
    };
    let away = watched.absence(current, context.now());
    let message = format!("the task of the update to {what} {end}{away}; {installed} is installed");
    Ok(Ok(StepReport::done()
        .with_output(json!(watched))
        .event(NewEvent::warn("firmware.task-gone", message))))
}

fn absent_or_error(error: RedfishError) -> Seen {
    Ok(Err(Absence::of(STEP, Look::of(error))?))
}

/// Sends the request that starts an uploaded image. Without a clear response its task is looked for; a BMC that shows none after
/// [`START_SHOWN`] gets the request once more, and then the version decides.
async fn start_uploaded(context: &StepContext, current: &Current, bmc: &Bmc, watched: &mut Watched) -> Seen {
    let queued =
        || UpdatePoll { state: UpdateState::Queued, messages: Vec::new(), retry_after: None, found: None };
    if watched.starting {
        let sent = watched.handle.after_start();
        let found = match bmc.find_update(&sent).await {
            Ok(found) => found,
            Err(error) => return absent_or_error(error),
        };
        let is_early = watched.started_at.is_some_and(|at| context.now().since(at) < START_SHOWN);
        match found {
            Some(found) => watched.handle = found,
            None if is_early => return Ok(Ok(go_on(context, current, watched, &queued()))),
            None if watched.starts >= MAX_STARTS => watched.handle = sent,
            None => return send_start(context, current, bmc, watched, &queued()).await,
        }
        watched.starting = false;
        return Ok(Ok(go_on(context, current, watched, &queued())));
    }
    send_start(context, current, bmc, watched, &queued()).await
}

/// Sends the second request. The record of it is durable before.
async fn send_start(
    context: &StepContext,
    current: &Current,
    bmc: &Bmc,
    watched: &mut Watched,
    queued: &UpdatePoll,
) -> Seen {
    let is_repeat = watched.starting;
    watched.starting = true;
    watched.started_at = Some(context.now());
    watched.starts += 1;
    context.checkpoint(json!(watched)).await.map_err(|_lost| lease_lost(STEP))?;
    match bmc.start_uploaded(&watched.handle).await {
        Ok(UpdateStart::Accepted(handle)) => {
            watched.handle = handle;
            watched.starting = false;
        }
        Ok(UpdateStart::MaybeAccepted { .. }) => {}
        // The first request has arrived: no image waits for its start any more.
        Err(error) if is_repeat && !error.is_transient() => {
            watched.handle = watched.handle.after_start();
            watched.starting = false;
        }
        Err(error) => {
            if !is_repeat && !error.maybe_applied() {
                (watched.starting, watched.started_at, watched.starts) = (false, None, 0);
            }
            return Err(from_redfish_change(STEP, &error).with_output(json!(watched)));
        }
    }
    Ok(Ok(go_on(context, current, watched, queued)))
}

/// Restarts the BMC, because the update continues with its restart.
async fn restart_bmc(
    context: &StepContext,
    bmc: &Bmc,
    found: &Identified,
    watched: &mut Watched,
) -> Result<(), StepError> {
    let unsent = watched.clone();
    let restart = &mut watched.bmc_restart;
    restart.sent_at = Some(context.now());
    restart.sent += 1;
    let Some(manager) = &found.discovery.manager else {
        // Without a manager only an operator restarts the BMC; the version shows it.
        restart.answered = true;
        return Ok(());
    };
    let failed = |error: RedfishError| from_redfish(STEP, &error);
    let status = bmc.manager_status(manager).await.map_err(failed)?;
    let reset = bmc.manager_reset_type(&status, ManagerReset::Graceful).await.map_err(failed)?;
    context.checkpoint(json!(watched)).await.map_err(|_lost| lease_lost(STEP))?;
    match bmc.reset_manager(&status, reset).await {
        // Nothing was restarted: the next run of the step sends the request.
        Err(error) if !error.maybe_applied() => {
            Err(from_redfish_change(STEP, &error).with_output(json!(unsent)))
        }
        _ => {
            watched.bmc_restart.answered = true;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_between_two_polls_grows_with_the_time_that_an_update_takes() {
        let seconds = Duration::from_secs;
        let delays = [0, 59, 60, 599, 600, 14_400].map(|since| interval(seconds(since)).as_secs());
        assert_eq!(delays, [5, 5, 15, 15, 30, 30]);
    }
}
