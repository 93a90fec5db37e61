//! The messages of a machine without a network, said by reads of its medium: they become reports and signals of its job.
//!
//! ```text
//!  News::Message  Started, Done   --signal "media-step", key = unit--> known to `explain` and to the wait
//!                 Success, Failed --signal "report", via media------> the end of the wait
//!  News::Unusable                 --signal "media-channel"-----------> the power state decides
//! ```
//!
//! Invariants: a message counts after the power-on request only: before it, the BMC itself reads. A repeated message stores nothing.

use beacon::{BeaconStep, Class, ImageKind, Message, News};
use recipe::{Recipe, TaskTarget};
use serde_json::json;

use super::report::{Details, InstallReport, Via};
use super::report_outcome::{ReportOutcome, started};
use engine::{Engine, SignalDelivery, SignalError};
use model::{Job, NewEvent, RunId, Snapshot};

/// The signal of a message about a step.
pub(super) const STEP: &str = "media-step";
/// The key of the signal that the agent runs.
pub(super) const STARTED: &str = "started";
/// The signal that the channel is unusable.
pub(super) const CHANNEL: &str = "media-channel";
/// The actor of the events.
const BY: &str = "media";

/// Delivers what the medium of a run says. It is durable when this function returns.
///
/// # Errors
/// Returns an error when the store fails. The same news can be delivered again.
pub async fn deliver_news(engine: &Engine, run: RunId, news: News) -> Result<ReportOutcome, SignalError> {
    let Some(job) = engine.store().job(run).await? else { return Ok(ReportOutcome::NotStarted) };
    let message = match news {
        News::Message(message) => message,
        News::Unusable(reason) => {
            let event = NewEvent::warn("report.media-unusable", reason.words()).by(BY);
            let Some(snapshot) = engine.store().snapshot(run).await? else {
                return Ok(ReportOutcome::NotStarted);
            };
            return signal(engine, &job, snapshot, (CHANNEL, ""), json!({ "words": reason.words() }), event)
                .await;
        }
    };
    let Some((snapshot, _)) = started(engine, &job).await? else { return Ok(ReportOutcome::NotStarted) };
    let kind = image_kind(&snapshot);
    match message {
        Message::Started => {
            let event = NewEvent::info("report.progress", "the maintenance OS runs and has found its task");
            let payload = json!({ "via": "media" });
            signal(engine, &job, snapshot, (STEP, STARTED), payload, event.by(BY)).await
        }
        Message::Done(step) => {
            let unit = step.unit(kind);
            let event = NewEvent::info("report.progress", format!("{unit} is done"))
                .by(BY)
                .with(json!({ "step": unit, "via": "media" }));
            signal(engine, &job, snapshot, (STEP, unit), json!({ "via": "media" }), event).await
        }
        Message::Failed { step, class } => {
            let class = class.unwrap_or(Class::Machine);
            let (message, class) = (class.words().to_owned(), class.failure_class().to_owned());
            let details = Details { message: Some(message), class: Some(class), ..Details::default() };
            let report = InstallReport::Failed { failed_step: step.unit(kind).to_owned(), details };
            report.deliver_via(engine, &job, BY, Via::Media).await
        }
        Message::Success => {
            InstallReport::Success(Details::default()).deliver_via(engine, &job, BY, Via::Media).await
        }
    }
}

async fn signal(
    engine: &Engine,
    job: &Job,
    snapshot: Snapshot,
    (name, key): (&str, &str),
    payload: serde_json::Value,
    event: NewEvent,
) -> Result<ReportOutcome, SignalError> {
    if job.run.outcome.is_some() {
        return Ok(ReportOutcome::Duplicate);
    }
    Ok(match engine.deliver(snapshot, name, key, payload, vec![event], Vec::new()).await? {
        SignalDelivery::Stored(_) => ReportOutcome::Accepted { powered_on: None },
        SignalDelivery::Duplicate(_) => ReportOutcome::Duplicate,
        SignalDelivery::NoRun => ReportOutcome::NotStarted,
    })
}

/// The kind of the OS image of a run.
fn image_kind(snapshot: &Snapshot) -> ImageKind {
    let recipe = snapshot.recipe.as_ref();
    let recipe = recipe.and_then(|stored| Recipe::accepted(&stored.json, &stored.schema_id).ok());
    match recipe.map(|recipe| recipe.task_target) {
        Some(TaskTarget::InstallImage) => ImageKind::Disk,
        _ => ImageKind::RootFileSystem,
    }
}

/// The messages that a medium has said so far.
pub(super) struct Heard {
    /// The reason why the channel is unusable, if it is.
    pub(super) unusable: Option<String>,
    /// Whether the medium has said anything.
    pub(super) started: bool,
    /// The last step that is done, by its unit.
    pub(super) done: Option<&'static str>,
    /// Whether all steps are done.
    pub(super) complete: bool,
}

/// Returns what the medium of a run has said so far.
pub(super) fn heard(snapshot: &Snapshot) -> Heard {
    let kind = image_kind(snapshot);
    let said = |key: &str| snapshot.signals.iter().any(|signal| signal.name == STEP && signal.key == key);
    let done = BeaconStep::ALL.into_iter().rfind(|step| step.has_end() && said(step.unit(kind)));
    let channel = snapshot.signals.iter().find(|signal| signal.name == CHANNEL);
    let unusable = channel.map(|signal| signal.payload["words"].as_str().unwrap_or_default().to_owned());
    Heard {
        unusable,
        started: done.is_some() || said(STARTED),
        done: done.map(|step| step.unit(kind)),
        complete: done == Some(BeaconStep::last(kind)),
    }
}
