//! Installation reports of the maintenance OS (docs/maintenance-os.md): parsing, and delivery to the job exactly once.
//!
//! ```text
//!   success | failed  --signal "report" (one key: the first report wins)-->  the job
//!   the same again    -> duplicate, accepted as idempotent, also after the end of the job
//!   the opposite      -> contradiction: refused, with an event; the job does not change
//!   progress          -> an event; the first one with a disk that is written --signal "disk"--> the job
//!   reachable         -> `reachable.rs`: the machine waits for an operator
//!
//!   success | failed after the end of the job, and none before: an event; the job does not change
//!
//!   with the first final report:   log -> the job's log     inventory -> the server     disk -> data of the event
//! ```
//!
//! Invariants: a reported text is cut to its bound and has no control characters; a reported object is stored as it came or, above
//! its bound, left out. A report never contains the secret that authorised it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::former_disk;
use super::reachable::{self, Reach};
use super::report_outcome::{ReportOutcome, over, started};
use engine::{Engine, SignalDelivery, SignalError};
use model::{Effect, Job, NewEvent, Outcome, Snapshot, cut_middle};
use recipe::{Recipe, TaskTarget};

/// The signal that carries a report.
pub(super) const SIGNAL: &str = "report";
/// The signal that records that the machine has reported progress. No wait ends by it.
pub(super) const PROGRESS: &str = "progress";
/// The number of last events that are searched for an earlier delivery of a late report.
const LATE_LOOK: u32 = 20;
/// The unit that chooses the disk, before the first write.
const SELECT_DISK: &str = "select-disk.service";
/// Reported names are cut to this number of characters.
const MAX_TEXT: usize = 256;
/// The longest message that is stored whole. Of a longer one the beginning and the end stay: the end names the cause.
const MAX_MESSAGE: usize = 1000;
/// The number of bytes of a reported log that are stored, from its end.
const MAX_LOG: usize = 16 * 1024;
/// The largest inventory that is stored, in bytes of its JSON.
const MAX_INVENTORY: usize = 48 * 1024;
/// The largest identity of a disk that is stored, in bytes of its JSON.
const MAX_DISK: usize = 1024;

/// A parsed installation report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallReport {
    /// The machine is installed.
    Success(Details),
    /// The installation failed.
    Failed {
        /// The name of the failed unit, as reported.
        failed_step: String,
        /// The optional members.
        details: Details,
    },
    /// The machine is in the rescue system and waits for an operator.
    Reachable {
        /// The addresses by which the machine is reached.
        reach: Reach,
        /// The job of the report.
        job_id: Option<String>,
    },
    /// The installation is running.
    Progress {
        /// The name of the running unit.
        step: String,
        /// The progress in percent.
        percent: Option<u8>,
        /// The progress of the OS image: the bytes that were read, and all bytes.
        image: Option<(u64, u64)>,
        /// The identity of the disk that is written, or will be.
        disk: Option<Map<String, Value>>,
        /// The job of the report.
        job_id: Option<String>,
    },
}

/// The optional members of a final report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The job of the report.
    pub job_id: Option<String>,
    /// The delivery id; a repeated delivery carries the same id.
    pub delivery_id: Option<String>,
    /// A message of the installer.
    pub message: Option<String>,
    /// The failure class.
    pub class: Option<String>,
    /// The end of the installer's log, lines divided by line feeds.
    pub log: Option<String>,
    /// The identity of the disk that was written.
    pub disk: Option<Map<String, Value>>,
    /// The inventory of the machine.
    pub inventory: Option<Map<String, Value>>,
}

/// The reason why a report cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The body is not a JSON object.
    #[error("the report is not a JSON object: {0}")]
    NotJson(String),
    /// The status is missing or unknown.
    #[error("status must be success, failed, progress or reachable")]
    Status,
    /// A failure report without `failed_step`.
    #[error("failed_step is required when status is failed: the name of the unit that failed")]
    NoFailedStep,
    /// A progress report without `step`.
    #[error("step is required when status is progress")]
    NoStep,
}

impl ReportError {
    /// Returns the name of the wrong field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "",
            Self::Status => "status",
            Self::NoFailedStep => "failed_step",
            Self::NoStep => "step",
        }
    }
}

/// Parses a report. Unknown members are ignored; long texts are cut. `secret`, which authorised the report, is removed from all that
/// it says: an installer that prints its settings, or the command that failed, would store it otherwise.
///
/// # Errors
/// Returns an error when the body is not JSON, or when the status or a required member is missing.
pub fn parse(body: &[u8], secret: Option<&str>) -> Result<InstallReport, ReportError> {
    #[derive(Deserialize)]
    struct Body {
        status: Option<Value>,
        failed_step: Option<String>,
        step: Option<String>,
        percent: Option<f64>,
        bytes: Option<Value>,
        total: Option<Value>,
        job_id: Option<String>,
        delivery_id: Option<String>,
        message: Option<String>,
        class: Option<Value>,
        log: Option<Value>,
        disk: Option<Value>,
        inventory: Option<Value>,
        addresses: Option<Value>,
        ssh_host_key: Option<Value>,
        consoles: Option<Value>,
    }
    let body: Body = serde_json::from_slice(body).map_err(|why| ReportError::NotJson(why.to_string()))?;
    // Before the text is cut, so that no part of the secret stays.
    let clean = |text: String| {
        let printed: String = text.chars().filter(|c| !c.is_control()).collect();
        without(&printed, secret).to_string()
    };
    let cut = |text: String| clean(text).chars().take(MAX_TEXT).collect::<String>();
    let filled = |text: Option<String>| text.map(cut).filter(|text| !text.is_empty());
    let details = Details {
        job_id: filled(body.job_id),
        delivery_id: filled(body.delivery_id),
        message: body
            .message
            .map(|text| cut_middle(&clean(text), MAX_MESSAGE).into_owned())
            .filter(|text| !text.is_empty()),
        class: filled(body.class.as_ref().and_then(Value::as_str).map(str::to_owned)),
        log: body
            .log
            .as_ref()
            .and_then(Value::as_str)
            .map(|log| end_of_log(log, secret))
            .filter(|log| !log.is_empty()),
        disk: object(body.disk, MAX_DISK, secret),
        inventory: object(body.inventory, MAX_INVENTORY, secret),
    };
    match body.status.as_ref().and_then(Value::as_str) {
        Some("success") => Ok(InstallReport::Success(details)),
        Some("failed") => {
            let failed_step = filled(body.failed_step).ok_or(ReportError::NoFailedStep)?;
            Ok(InstallReport::Failed { failed_step, details })
        }
        Some("progress") => Ok(InstallReport::Progress {
            step: filled(body.step).ok_or(ReportError::NoStep)?,
            // A percentage outside of 0 to 100 is dropped.
            job_id: details.job_id,
            percent: body.percent.filter(|p| (0.0..=100.0).contains(p)).map(|p| p as u8),
            image: number(body.bytes.as_ref())
                .zip(number(body.total.as_ref()))
                .filter(|(_, total)| *total > 0),
            disk: details.disk,
        }),
        Some("reachable") => Ok(InstallReport::Reachable {
            reach: Reach::reported(
                body.addresses.as_ref(),
                body.ssh_host_key.as_ref(),
                body.consoles.as_ref(),
            ),
            job_id: details.job_id,
        }),
        _ => Err(ReportError::Status),
    }
}

/// Returns a reported number of bytes. Anything else is no error: the member is a wish.
fn number(reported: Option<&Value>) -> Option<u64> {
    reported.and_then(Value::as_u64)
}

/// Returns the end of a log without control characters and without `secret`. It begins with a whole line.
fn end_of_log(log: &str, secret: Option<&str>) -> String {
    let clean: String = log.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let clean = without(&clean, secret);
    if clean.len() <= MAX_LOG {
        return clean.into_owned();
    }
    let mut from = clean.len() - MAX_LOG;
    while !clean.is_char_boundary(from) {
        from += 1;
    }
    let tail = &clean[from..];
    tail.split_once('\n').map_or(tail, |(_, lines)| lines).to_owned()
}

/// Returns what identifies a reported disk, for operators.
fn shown(disk: &Map<String, Value>) -> String {
    let text = |key: &str| disk.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let named = [("", "name"), ("model ", "model"), ("serial ", "serial"), ("wwn ", "wwn")];
    let words = named.into_iter().filter_map(|(word, key)| Some(format!("{word}{}", text(key)?)));
    let shown: String = words.collect::<Vec<_>>().join(", ");
    shown.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

/// Returns a text with `[redacted]` in the places of the secret.
fn without<'a>(text: &'a str, secret: Option<&str>) -> Cow<'a, str> {
    match secret {
        Some(secret) if !secret.is_empty() && text.contains(secret) => {
            Cow::Owned(text.replace(secret, "[redacted]"))
        }
        _ => Cow::Borrowed(text),
    }
}

/// Replaces the secret in each name and text of a value.
fn redact(value: &mut Value, secret: &str) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = without(text, Some(secret)) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, secret)),
        Value::Object(members) => {
            *members = std::mem::take(members)
                .into_iter()
                .map(|(name, mut member)| {
                    redact(&mut member, secret);
                    (without(&name, Some(secret)).into_owned(), member)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a reported object without `secret` if its JSON has at most `most` bytes.
fn object(mut reported: Option<Value>, most: usize, secret: Option<&str>) -> Option<Map<String, Value>> {
    if let (Some(value), Some(secret)) = (&mut reported, secret) {
        redact(value, secret);
    }
    let Some(Value::Object(object)) = reported else { return None };
    let length = serde_json::to_string(&object).map_or(usize::MAX, |text| text.len());
    (length <= most).then_some(object)
}

/// The way of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A request of the machine.
    Network,
    /// Reads of the machine's medium.
    Media,
}

impl InstallReport {
    /// Returns the job id in the report, if it has one.
    pub fn job_id(&self) -> Option<&str> {
        match self {
            Self::Success(details) | Self::Failed { details, .. } => details.job_id.as_deref(),
            Self::Progress { job_id, .. } | Self::Reachable { job_id, .. } => job_id.as_deref(),
        }
    }

    /// Delivers the report to the job; `by` is the actor of its events. The report is durable when this function returns.
    ///
    /// # Errors
    /// Returns an error when the store fails.
    pub async fn deliver(self, engine: &Engine, job: &Job, by: &str) -> Result<ReportOutcome, SignalError> {
        self.deliver_via(engine, job, by, Via::Network).await
    }

    /// Delivers the report as [`InstallReport::deliver`] does; its signal and event name the way.
    ///
    /// # Errors
    /// Returns an error when the store fails.
    pub async fn deliver_via(
        self,
        engine: &Engine,
        job: &Job,
        by: &str,
        via: Via,
    ) -> Result<ReportOutcome, SignalError> {
        let id = job.run.id;
        let (status, event, details, failed_step) = match self {
            Self::Reachable { reach, .. } => return reachable::deliver(reach, engine, job, by).await,
            Self::Progress { step, percent, image, disk, .. } => {
                let Some((snapshot, _)) = started(engine, job).await? else {
                    return Ok(ReportOutcome::NotStarted);
                };
                if let Some(over) = over(&snapshot.run) {
                    return Ok(over);
                }
                let done = percent.map_or(String::new(), |percent| format!(", {percent} %"));
                let written = disk.as_ref().and_then(former_disk::written);
                let now_shown = disk.as_ref().map(shown).unwrap_or_default();
                let began = disk.as_ref().map(|disk| {
                    let message = format!("the maintenance OS begins to write to {now_shown}");
                    NewEvent::info("report.disk", message).by(by).with(json!({ "disk": disk }))
                });
                // Every later report has the disk too; its choice is worth a sentence.
                let chosen = disk.as_ref().filter(|_| step == SELECT_DISK);
                let chosen = chosen.map_or(String::new(), |disk| format!("; the disk is {}", shown(disk)));
                let mut data = json!({ "step": step, "percent": percent });
                if let Some((bytes, total)) = image {
                    data["bytes"] = bytes.into();
                    data["total"] = total.into();
                }
                if let Some(disk) = disk {
                    data["disk"] = disk.into();
                }
                let event =
                    NewEvent::info("report.progress", format!("{step}{done}{chosen}")).by(by).with(data);
                if let Some(first) =
                    written.as_ref().and_then(|now| former_disk::other_than_written(&snapshot, now))
                {
                    let message = format!(
                        "{step}: a write to {now_shown} was refused, because this job has written the disk with {first}"
                    );
                    let refused = NewEvent::warn("report.other-disk", message).by(by);
                    let event = NewEvent { data: event.data, ..refused };
                    engine
                        .store()
                        .append(Some(id), job.run.server.clone(), vec![event], engine.clock().now())
                        .await?;
                    return Ok(ReportOutcome::OtherDisk { first });
                }
                let has = |name: &str| snapshot.signals.iter().any(|signal| signal.name == name);
                if let (Some(payload), Some(began)) = (written.filter(|_| !has(former_disk::WRITTEN)), began)
                {
                    let events = vec![event.clone(), began];
                    let delivery = engine
                        .deliver(snapshot, former_disk::WRITTEN, "", payload, events, Vec::new())
                        .await?;
                    if let SignalDelivery::Stored(run) = delivery {
                        return Ok(over(&run).unwrap_or(ReportOutcome::Accepted { powered_on: None }));
                    }
                } else if !has(PROGRESS)
                    && let SignalDelivery::Stored(run) = engine
                        .deliver(snapshot, PROGRESS, "", json!({}), vec![event.clone()], Vec::new())
                        .await?
                {
                    return Ok(over(&run).unwrap_or(ReportOutcome::Accepted { powered_on: None }));
                }
                engine
                    .store()
                    .append(Some(id), job.run.server.clone(), vec![event], engine.clock().now())
                    .await?;
                // The job may have ended since it was read: the machine goes by what is stored when the response is sent.
                let now = engine.store().snapshot(id).await?;
                let ended = now.as_ref().and_then(|now| over(&now.run));
                return Ok(ended.unwrap_or(ReportOutcome::Accepted { powered_on: None }));
            }
            Self::Success(details) => (
                "success",
                NewEvent::info("report.success", "the maintenance OS reported success"),
                details,
                None,
            ),
            Self::Failed { failed_step, details } => (
                "failed",
                NewEvent::error(
                    "report.failed",
                    format!("the maintenance OS reported a failure of {failed_step}"),
                ),
                details,
                Some(failed_step),
            ),
        };
        let mut payload = json!({
            "status": status, "delivery_id": details.delivery_id, "message": details.message,
        });
        if let Some(class) = details.class {
            payload["class"] = Value::String(class);
        }
        // The report of progress that said so can be lost.
        if let Some(mut written) = details.disk.as_ref().and_then(former_disk::written) {
            payload["disk"] = written["disk"].take();
        }
        if let Some(step) = failed_step {
            payload["failed_step"] = Value::String(step);
        }
        let event = match (details.disk, via) {
            (_, Via::Media) => event.with(json!({ "via": "media" })),
            (Some(disk), Via::Network) => event.with(json!({ "disk": disk })),
            (None, Via::Network) => event,
        };
        if via == Via::Media {
            payload["via"] = Value::from("media");
        }
        let mut effects = Vec::new();
        effects.extend(details.log.map(|text| Effect::InstallLogged { text }));
        if let (Some(serial), Some(inventory)) = (&job.run.server, details.inventory) {
            effects.push(Effect::ServerInventoried { serial: serial.clone(), inventory: inventory.into() });
        }
        let Some((snapshot, powered_on)) = started(engine, job).await? else {
            return Ok(ReportOutcome::NotStarted);
        };
        let event = event.by(by);
        let stored = snapshot.signals.iter().find(|signal| signal.name == SIGNAL);
        let target = target(&snapshot);
        if let Some(outcome) = snapshot.run.outcome.filter(|_| !stored.is_some_and(|signal| signal.consumed))
        {
            // No report ended the job: the deadline, an operator or an observation did. What a report that is stored brought was kept with it.
            if stored.is_some() {
                effects.clear();
            }
            let message = late_report(outcome, target, &payload);
            return record_late(engine, job, message, effects, by).await.map(|()| late(outcome, status));
        }
        let first = match snapshot.run.outcome {
            Some(outcome) => implied_by(outcome).to_owned(),
            None => {
                match engine.deliver(snapshot, SIGNAL, "", payload.clone(), vec![event], effects).await? {
                    SignalDelivery::Stored(run) => match run.outcome {
                        // The job ended otherwise after it was read: the report is stored, and no step has read it.
                        Some(outcome) if !is_consumed(engine, job).await? => {
                            let message = late_report(outcome, target, &payload);
                            record_late(engine, job, message, Vec::new(), by).await?;
                            return Ok(late(outcome, status));
                        }
                        _ => return Ok(ReportOutcome::Accepted { powered_on: Some(powered_on) }),
                    },
                    SignalDelivery::NoRun => return Ok(ReportOutcome::NotStarted),
                    SignalDelivery::Duplicate(first) => {
                        let said = first.payload.get("status").and_then(|status| status.as_str());
                        said.unwrap_or_default().to_owned()
                    }
                }
            }
        };
        if first == status {
            return Ok(ReportOutcome::Duplicate);
        }
        let event = NewEvent::warn(
            "report.contradiction",
            format!("a report of {status} was refused: {first} was reported before"),
        )
        .by(by);
        engine.store().append(Some(id), job.run.server.clone(), vec![event], engine.clock().now()).await?;
        Ok(ReportOutcome::Contradiction { first })
    }
}

/// Returns the target of the job's recipe, if it can be read.
fn target(snapshot: &Snapshot) -> Option<TaskTarget> {
    let stored = snapshot.recipe.as_ref()?;
    Recipe::accepted(&stored.json, &stored.schema_id).ok().map(|recipe| recipe.task_target)
}

/// Returns whether a step has read the report.
async fn is_consumed(engine: &Engine, job: &Job) -> Result<bool, SignalError> {
    let signals = engine.store().signals(job.run.id).await?;
    Ok(signals.iter().any(|signal| signal.name == SIGNAL && signal.consumed))
}

/// Says what a machine reported after its job had ended without a report.
fn late_report(outcome: Outcome, target: Option<TaskTarget>, payload: &Value) -> String {
    let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
    let ended = format!("after the job had ended ({})", outcome.as_str());
    if text("status") == "success" {
        let follows = match target {
            Some(TaskTarget::Erase) => ": the disk is erased",
            Some(TaskTarget::InstallEsxi) => ": the disk is written",
            Some(target) if target.writes_a_disk() => ": the disk is written",
            _ => "",
        };
        return format!("the maintenance OS reported success {ended}{follows}");
    }
    let reason = match text("message") {
        "" => String::new(),
        message => format!(": {message}"),
    };
    format!("the maintenance OS reported a failure of {} {ended}{reason}", text("failed_step"))
}

/// Returns the result of the delivery of a late report.
fn late(outcome: Outcome, status: &str) -> ReportOutcome {
    match implied_by(outcome) {
        implied if implied == status => ReportOutcome::Duplicate,
        implied => ReportOutcome::Contradiction { first: implied.to_owned() },
    }
}

/// Writes the event of a late report with its log and inventory, once: the machine repeats it until it is acknowledged.
async fn record_late(
    engine: &Engine,
    job: &Job,
    message: String,
    effects: Vec<Effect>,
    by: &str,
) -> Result<(), SignalError> {
    let known = engine.store().last_events(job.run.id, LATE_LOOK).await?;
    if known.iter().any(|event| event.kind == "report.late" && event.message == message) {
        return Ok(());
    }
    let event = NewEvent::warn("report.late", message).by(by);
    let now = engine.clock().now();
    engine.store().append_with(job.run.id, job.run.server.clone(), vec![event], effects, now).await?;
    Ok(())
}

/// Returns the report status that corresponds to an outcome.
fn implied_by(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "success",
        Outcome::Failed | Outcome::Cancelled => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_reports_are_understood() {
        assert_eq!(parse(br#"{"status":"success"}"#, None), Ok(InstallReport::Success(Details::default())));
        let failed =
            parse(br#"{"status":"failed","failed_step":"bootloader-linux.service","unknown":1}"#, None);
        assert!(
            matches!(failed, Ok(InstallReport::Failed { failed_step, .. }) if failed_step == "bootloader-linux.service")
        );
        let progress = parse(br#"{"status":"progress","step":"image-linux.service","percent":41.7}"#, None);
        assert_eq!(
            progress,
            Ok(InstallReport::Progress {
                step: "image-linux.service".to_owned(),
                percent: Some(41),
                image: None,
                disk: None,
                job_id: None
            })
        );
        for (members, image) in [
            (r#""bytes":7,"total":9"#, Some((7, 9))),
            (r#""bytes":7"#, None),
            (r#""bytes":7,"total":0"#, None),
            (r#""bytes":-7,"total":"9""#, None),
            (r#""bytes":0.5,"total":null"#, None),
        ] {
            let body = format!(r#"{{"status":"progress","step":"image-linux.service",{members}}}"#);
            let Ok(InstallReport::Progress { image: found, .. }) = parse(body.as_bytes(), None) else {
                panic!("{members}")
            };
            assert_eq!(found, image, "{members}");
        }
        let disk = br#"{"status":"progress","step":"select-disk.service","disk":{"name":"sda","serial":"S1\u0007","wwn":""}}"#;
        let Ok(InstallReport::Progress { disk: Some(disk), .. }) = parse(disk, None) else {
            panic!("no disk")
        };
        assert_eq!(shown(&disk), "sda, serial S1");
    }

    #[test]
    fn the_error_names_the_missing_member() {
        assert_eq!(parse(b"{}", None), Err(ReportError::Status));
        assert_eq!(parse(br#"{"status":"done"}"#, None), Err(ReportError::Status));
        assert_eq!(parse(br#"{"status":7}"#, None), Err(ReportError::Status));
        assert_eq!(parse(br#"{"status":"failed"}"#, None), Err(ReportError::NoFailedStep));
        assert_eq!(parse(br#"{"status":"failed","failed_step":""}"#, None), Err(ReportError::NoFailedStep));
        assert!(matches!(parse(b"nope", None), Err(ReportError::NotJson(_))));
    }

    #[test]
    fn reported_texts_are_cut_and_control_characters_removed() {
        let body = format!(r#"{{"status":"failed","failed_step":"a\n{}"}}"#, "x".repeat(5000));
        let Ok(InstallReport::Failed { failed_step, .. }) = parse(body.as_bytes(), None) else {
            panic!("not parsed")
        };
        assert_eq!(failed_step.len(), MAX_TEXT);
        assert!(!failed_step.contains('\n'));
    }

    #[test]
    fn the_end_of_a_log_is_kept_by_whole_lines_without_control_characters_and_without_the_secret() {
        let lines: Vec<String> =
            (0..2000).map(|line| format!("line {line} \u{1b}[31mtoken=s3cret")).collect();
        let body = json!({ "status": "success", "log": lines.join("\n") }).to_string();
        let Ok(InstallReport::Success(Details { log: Some(log), .. })) =
            parse(body.as_bytes(), Some("s3cret"))
        else {
            panic!("not parsed")
        };
        assert!(
            log.len() <= MAX_LOG
                && log.starts_with("line 1")
                && log.ends_with("line 1999 [31mtoken=[redacted]"),
            "{log}"
        );
        assert!(!log.contains("s3cret") && !log.contains('\u{1b}'));
        let one_line = json!({ "status": "success", "log": "é".repeat(MAX_LOG) }).to_string();
        let Ok(InstallReport::Success(details)) = parse(one_line.as_bytes(), None) else {
            panic!("not parsed")
        };
        assert_eq!(details.log.unwrap().len(), MAX_LOG);
    }

    #[test]
    fn a_late_report_says_what_the_target_of_its_job_has_changed() {
        let success = json!({ "status": "success" });
        let of = |target| late_report(Outcome::Succeeded, Some(target), &success);
        for (target, end) in [
            (TaskTarget::InstallLinux, "(succeeded): the disk is written"),
            (TaskTarget::InstallEsxi, "(succeeded): the disk is written"),
            (TaskTarget::Erase, "(succeeded): the disk is erased"),
            (TaskTarget::Inventory, "(succeeded)"),
            (TaskTarget::Rescue, "(succeeded)"),
        ] {
            assert!(of(target).ends_with(end), "{}", of(target));
        }
        let failed = json!({ "status": "failed", "failed_step": "a.service", "message": "no host" });
        assert_eq!(
            late_report(Outcome::Cancelled, None, &failed),
            "the maintenance OS reported a failure of a.service after the job had ended (cancelled): no host"
        );
    }

    #[test]
    fn objects_above_their_bound_and_other_types_are_left_out() {
        let parsed = |body: Value| match parse(body.to_string().as_bytes(), None) {
            Ok(InstallReport::Success(details)) => details,
            other => panic!("{other:?}"),
        };
        let kept =
            parsed(json!({ "status": "success", "disk": { "name": "sda" }, "inventory": { "cpus": 4 } }));
        assert_eq!(
            (kept.disk.unwrap()["name"].as_str(), kept.inventory.unwrap()["cpus"].as_u64()),
            (Some("sda"), Some(4))
        );
        let wrong =
            parsed(json!({ "status": "success", "disk": "sda", "inventory": [1], "log": 7, "class": 7 }));
        assert_eq!(wrong, Details::default());
        let large = parsed(json!({ "status": "success", "disk": { "name": "x".repeat(MAX_DISK) } }));
        assert_eq!(large.disk, None);
    }
}
