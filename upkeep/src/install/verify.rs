//! `firmware.verify`: reads the inventory until it shows the new version three times. The word of the BMC is no proof.
//!
//! ```text
//!   new version     three reads, one after the other      ─► done
//!   old version     the task still runs                   ─► wait, update_timeout at most
//!                   it still waits for the restart that took place: it may flash while the host boots ─► wait as long
//!                   ten minutes after the end, half an hour after a restart of the host
//!                                                         ─► failure `version_unchanged`: what it said, what is installed
//!   the BMC was away and the host is off           the server may have lost power: see `power_loss`
//!   no response     see `absent`
//! ```

use std::time::Duration;

use redfish::{Bmc, RedfishError, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::{self, Absence, Absent, away_limit};
use super::super::identified::{Identified, input};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::component::{self, Current, record, sibling};
use super::fetch;
use super::power_loss::{self, HostPower, Sign};
use super::sending::Upload;
use super::watch::{Watched, Word};
use bmc::{failure, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use firmware::FirmwareVersion;
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName, StepPhase, Time};

const STEP: &StepName = names::FW_VERIFY;
/// Reads with the new version, one after the other, that prove it. A BMC that restarts shows old and new ones in turn.
const GOOD_READS: u32 = 3;
/// The delay between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// How long an inventory may show the old version after the end of an update.
const SHOWN_WITHIN: Duration = Duration::from_secs(10 * 60);
/// How long it may do so after a restart of the host: a machine with much memory tests and trains it anew after a new BIOS.
const SHOWN_AFTER_RESTART: Duration = Duration::from_secs(30 * 60);

/// The output of the step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Verified {
    /// Good reads so far.
    good: u32,
    /// The version of the last read.
    version: Option<String>,
    /// When the update was last seen running.
    running_at: Option<Time>,
    /// When the BMC was back after an absence: the time before it is none in which it could show the version.
    back_at: Option<Time>,
    absent: Absent,
    power: HostPower,
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let current = Current::of(STEP, context)?;
    let mut verified: Verified = context.own_output().unwrap_or_default();
    let watched = sibling::<Watched>(context, names::FW_WATCH);
    if mutant::active(Mutant::TrustsTask) {
        return Ok(StepReport::done());
    }
    let seen = match absent::connect((STEP, names::FW_IDENTIFY), services, context).await? {
        Ok((bmc, found)) => {
            let seen = read(context, &current, (&bmc, &found), watched.as_ref(), &mut verified).await;
            bmc.release_idle();
            match seen {
                Ok(seen) => seen,
                Err(error) => Err(Absence::of(STEP, Look::of(error))?),
            }
        }
        Err(absence) => Err(absence),
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(absence) => {
            verified.good = 0;
            let what = format!("the version of {} is read", current.item.what());
            let mut absent = verified.absent.clone();
            let parts = (STEP, services, context);
            let limit = watched.as_ref().map_or(0, |watched| watched.limit_s);
            let limit = away_limit(Duration::from_secs(limit));
            return absent
                .report(parts, absence, (&what, limit), |absent| json!(Verified { absent, ..verified }))
                .await;
        }
    };
    if verified.absent.over(context.now()) {
        verified.back_at = Some(context.now());
    }
    verified.version = seen.version.as_ref().map(ToString::to_string);
    if current.is_target(seen.version.as_ref()) {
        verified.good = (verified.good + 1).min(GOOD_READS);
        let report = with_loss(context, &current, seen.sign, good(&current, verified, seen.sign));
        let by_url = sibling::<Upload>(context, names::FW_UPLOAD).is_some_and(|upload| upload.is_by_url());
        let done = matches!(report.outcome, engine::StepOutcome::Done);
        return Ok(if by_url && done { fetch::end(services, context, report) } else { report });
    }
    verified.good = 0;
    let host_on = record(context, names::FW_HOST_ON, &context.record.key);
    let restarted =
        host_on.filter(|record| record.phase == StepPhase::Done).and_then(|record| record.ended_at);
    let task = match seen.task {
        // Before the restart of the host it would be the truth; this step runs after it.
        Task::Scheduled if restarted.is_none() => Task::Over,
        task => task,
    };
    if task == Task::Running {
        verified.running_at = Some(context.now());
    }
    let report = not_yet(context, &current, watched.as_ref(), verified, (task, restarted), seen.sign);
    Ok(with_loss(context, &current, seen.sign, report))
}

/// The state that the task of the update shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Running,
    /// The task waits for a restart of the host.
    Scheduled,
    Over,
}

/// The installed version and the state of the task, as one read showed them.
struct Seen {
    version: Option<FirmwareVersion>,
    task: Task,
    sign: Sign,
}

async fn read(
    context: &StepContext,
    current: &Current,
    (bmc, found): (&Bmc, &Identified),
    watched: Option<&Watched>,
    verified: &mut Verified,
) -> Result<Result<Seen, Absence>, RedfishError> {
    let unseen = |version, task| Seen { version, task, sign: Sign::None };
    let Ok(serial) = input(STEP, context).map(|input| input.server) else {
        return Ok(Ok(unseen(None, Task::Over)));
    };
    let shown = component::shown(bmc, &serial, &current.item, current.target()).await?;
    let version = shown.and_then(|one| one.installed.version);
    let is_target = current.is_target(version.as_ref());
    let state = match watched.filter(|_| !is_target) {
        Some(watched) => Some(bmc.poll_update(&watched.handle).await?.state),
        None => None,
    };
    if let Some(absence) = state.as_ref().and_then(Absence::of_state) {
        return Ok(Err(absence));
    }
    let task = match state.map(|state| current.meaning(&state)) {
        Some(UpdateState::Queued | UpdateState::Running { .. }) => Task::Running,
        Some(UpdateState::NeedsHostRestart) => Task::Scheduled,
        _ => Task::Over,
    };
    let is_last = is_target && verified.good + 1 >= GOOD_READS;
    let sign = match is_last || (!is_target && task == Task::Over) {
        true => {
            let Verified { power, absent, .. } = verified;
            power.look(context, (bmc, found), (current, absent)).await?
        }
        false => Sign::None,
    };
    Ok(Ok(Seen { version, task, sign }))
}

/// Adds the event of a loss of power that this step has found.
fn with_loss(context: &StepContext, current: &Current, sign: Sign, report: StepReport) -> StepReport {
    match sign {
        Sign::Lost(lost) if power_loss::found(context).is_none() => {
            report.event(lost.event(&current.item.what()))
        }
        _ => report,
    }
}

fn good(current: &Current, verified: Verified, sign: Sign) -> StepReport {
    let what = current.item.what();
    if verified.good < GOOD_READS || sign == Sign::Unclear {
        let detail = match sign {
            Sign::Unclear => format!(
                "{what} is installed; the host is off although this run left it on, and is read for two minutes"
            ),
            _ => format!("{what} is shown as installed; it is read {GOOD_READS} times"),
        };
        let mut wait = wait_for_bmc(&waits::VERSION, SHOWN_WITHIN * 2, detail);
        wait.poll = Some(READ_INTERVAL);
        return StepReport::wait(wait).with_output(json!(verified));
    }
    let message =
        format!("{what} is installed (it was {}), read {GOOD_READS} times", current.item.version_now());
    let event = NewEvent::info("firmware.verified", message).with(
        json!({
            "component": current.item.component, "id": current.item.id, "was": current.item.now, "is": verified.version,
        }),
    );
    StepReport::done().with_output(json!(verified)).event(event)
}

/// The report of a read with another version.
fn not_yet(
    context: &StepContext,
    current: &Current,
    watched: Option<&Watched>,
    verified: Verified,
    (task, restarted): (Task, Option<Time>),
    sign: Sign,
) -> StepReport {
    let now = context.now();
    let ended = [names::FW_WATCH, names::FW_HOST_ON, names::FW_SHUT_DOWN]
        .into_iter()
        .filter_map(|step| record(context, step, &context.record.key)?.ended_at)
        .chain(verified.running_at)
        .chain(verified.back_at)
        .max();
    let since = now.since(ended.unwrap_or(context.record.started_at));
    let installed = verified.version.clone().unwrap_or_else(|| "no version".to_owned());
    let what = current.item.what();
    let boots = restarted.is_some() && !matches!(sign, Sign::Lost(_));
    let shown_within = if boots { SHOWN_AFTER_RESTART } else { SHOWN_WITHIN };
    let limit = watched.map_or(SHOWN_WITHIN, |watched| Duration::from_secs(watched.limit_s));
    // An update that begins with the restart of the host has its own time.
    let began = restarted.or(watched.map(|watched| watched.accepted_at));
    let stuck = task == Task::Running && began.is_some_and(|began| now.since(began) >= limit);
    let may_come = match task {
        Task::Running => true,
        Task::Scheduled => since < limit.max(shown_within),
        Task::Over => since < shown_within,
    };
    if !stuck && may_come {
        let detail = match (task, watched) {
            (Task::Running, Some(watched)) => watched.sentence(&what, now),
            (Task::Scheduled, _) => format!(
                "the host was restarted for {what}; its task waits for that restart still, and the BMC shows {installed}"
            ),
            _ => format!("{what} was installed; the BMC shows {installed}"),
        };
        let reason = if task == Task::Running { &waits::FLASHING } else { &waits::VERSION };
        let mut wait = wait_for_bmc(reason, limit * 2 + SHOWN_AFTER_RESTART, detail);
        wait.poll = Some(READ_INTERVAL);
        return StepReport::wait(wait).with_output(json!(verified));
    }
    if stuck {
        let summary = format!("the update to {what} has not ended after {} min", limit.as_secs() / 60);
        let next = "do not remove power yet: look into the web interface of the BMC";
        return StepReport::fail(failure(names::class::UPDATE_STUCK, STEP, summary, next))
            .with_output(json!(verified));
    }
    if let Sign::Lost(lost) = sign {
        let messages = watched.map(|watched| watched.messages.join("; ")).unwrap_or_default();
        let said = match messages.trim_end_matches('.') {
            "" => "shows no update since".to_owned(),
            messages => format!("shows no update since (its task said: {messages})"),
        };
        return StepReport::fail(lost.failure(STEP, current, &said, &installed)).with_output(json!(verified));
    }
    let said = match watched.map(|watched| watched.word) {
        Some(Word::Done) => "says that the update succeeded",
        Some(Word::HostRestart) => "asked for a restart of the host, which took place",
        Some(Word::Gone) => "lost the task of the update",
        Some(Word::PowerLost | Word::None) | None => "shows no end of the update",
    };
    let away = watched.map(|watched| watched.absence(current, now)).unwrap_or_default();
    let summary = format!(
        "{what} is not installed: the BMC {said}{away}, and {} minutes later its inventory shows {installed}",
        since.as_secs() / 60
    );
    let next = "restart the BMC (`shoal server reset-bmc SERIAL`), read the inventory (`shoal server inventory SERIAL --refresh`); \
                if it still shows the old version, install the image in the web interface and read what it says";
    StepReport::fail(failure(names::class::VERSION_UNCHANGED, STEP, summary, next))
        .with_output(json!(verified))
}
