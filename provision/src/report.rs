//! What the maintenance OS reports (DESIGN section 13): parsing, and telling the job exactly once.
//!
//! ```text
//!   success | failed  --signal "report" (one key: the first report wins)-->  the job
//!   the same again    -> duplicate, answered as such, also after the end
//!   the opposite      -> contradiction: refused, an event, nothing changes
//!   progress          -> an event
//! ```

use serde::Deserialize;
use serde_json::json;

use engine::model::{Job, NewEvent, Outcome, Snapshot, StepPhase, Time};
use engine::{Delivery, Engine, SignalError};

/// The signal that carries a report.
pub(super) const SIGNAL: &str = "report";
/// Characters of a reported name or message that are kept.
const MAX_TEXT: usize = 256;

/// A report as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The machine is installed.
    Success(Details),
    /// It is not.
    Failed {
        /// The unit that failed, verbatim.
        failed_step: String,
        /// More of it.
        details: Details,
    },
    /// It is being installed.
    Progress {
        /// The unit at work.
        step: String,
        /// How far it is.
        percent: Option<u8>,
        /// The job it speaks for.
        job_id: Option<String>,
    },
}

/// What a final report may carry besides its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The job it speaks for.
    pub job_id: Option<String>,
    /// The same for a repeated delivery.
    pub delivery_id: Option<String>,
    /// A sentence of the installer.
    pub message: Option<String>,
}

/// Why a report cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// No JSON object.
    #[error("the report is not a JSON object: {0}")]
    NotJson(String),
    /// A status nobody knows.
    #[error("status must be success, failed or progress")]
    Status,
    /// A failure without its step.
    #[error("failed_step is required when status is failed: the name of the unit that failed")]
    NoFailedStep,
    /// Progress without its step.
    #[error("step is required when status is progress")]
    NoStep,
}

impl ReportError {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "",
            Self::Status => "status",
            Self::NoFailedStep => "failed_step",
            Self::NoStep => "step",
        }
    }
}

/// Reads a report. Unknown members are ignored; texts are cut to a bound.
pub fn parse(body: &[u8]) -> Result<Report, ReportError> {
    #[derive(Deserialize)]
    struct Body {
        status: Option<serde_json::Value>,
        failed_step: Option<String>,
        step: Option<String>,
        percent: Option<f64>,
        job_id: Option<String>,
        delivery_id: Option<String>,
        message: Option<String>,
    }
    let body: Body = serde_json::from_slice(body).map_err(|why| ReportError::NotJson(why.to_string()))?;
    let cut = |text: String| text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect::<String>();
    let filled = |text: Option<String>| text.map(cut).filter(|text| !text.is_empty());
    let details = Details {
        job_id: filled(body.job_id),
        delivery_id: filled(body.delivery_id),
        message: filled(body.message),
    };
    match body.status.as_ref().and_then(serde_json::Value::as_str) {
        Some("success") => Ok(Report::Success(details)),
        Some("failed") => {
            let failed_step = filled(body.failed_step).ok_or(ReportError::NoFailedStep)?;
            Ok(Report::Failed { failed_step, details })
        }
        Some("progress") => Ok(Report::Progress {
            step: filled(body.step).ok_or(ReportError::NoStep)?,
            // A percentage outside of its range says nothing.
            job_id: details.job_id,
            percent: body.percent.filter(|p| (0.0..=100.0).contains(p)).map(|p| p as u8),
        }),
        _ => Err(ReportError::Status),
    }
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// Taken.
    Accepted {
        /// When the machine was last told to start; for a final report.
        powered_on: Option<Time>,
    },
    /// Said before.
    Duplicate,
    /// The opposite was said before.
    Contradiction {
        /// What was said first.
        first: String,
    },
    /// The job is not at a point where a machine could report.
    NotStarted,
}

impl Report {
    /// The job the report speaks for, if it says so.
    pub fn job_id(&self) -> Option<&str> {
        match self {
            Self::Success(details) | Self::Failed { details, .. } => details.job_id.as_deref(),
            Self::Progress { job_id, .. } => job_id.as_deref(),
        }
    }

    /// Tells the job; durable when it answers.
    pub async fn deliver(self, engine: &Engine, job: &Job) -> Result<ReportOutcome, SignalError> {
        let id = job.run.id;
        let (status, event, payload) = match self {
            Self::Progress { step, percent, .. } => {
                if job.run.outcome.is_some() {
                    return Ok(ReportOutcome::Duplicate);
                }
                if started(engine, job).await?.is_none() {
                    return Ok(ReportOutcome::NotStarted);
                }
                let done = percent.map_or(String::new(), |percent| format!(", {percent} %"));
                let event = NewEvent::info("report.progress", format!("{step}{done}"))
                    .by("maintenance-os")
                    .with(json!({ "step": step, "percent": percent }));
                engine
                    .store()
                    .append(Some(id), Some(job.server.clone()), vec![event], engine.clock().now())
                    .await?;
                return Ok(ReportOutcome::Accepted { powered_on: None });
            }
            Self::Success(details) => (
                "success",
                NewEvent::info("report.success", "the maintenance OS reported success"),
                json!({ "status": "success", "delivery_id": details.delivery_id, "message": details.message }),
            ),
            Self::Failed { failed_step, details } => (
                "failed",
                NewEvent::error(
                    "report.failed",
                    format!("the maintenance OS reported a failure of {failed_step}"),
                ),
                json!({
                    "status": "failed", "failed_step": failed_step, "delivery_id": details.delivery_id,
                    "message": details.message,
                }),
            ),
        };
        let Some((snapshot, powered_on)) = started(engine, job).await? else {
            return Ok(ReportOutcome::NotStarted);
        };
        let event = event.by("maintenance-os");
        let first = match job.run.outcome {
            // Concluded already, by a report or without one (a deadline, an operator): nothing new is taken.
            Some(outcome) => implied_by(outcome).to_owned(),
            None => match engine.deliver(snapshot, SIGNAL, "", payload, vec![event]).await? {
                Delivery::Stored(run) if run.outcome.is_none_or(|outcome| implied_by(outcome) == status) => {
                    return Ok(ReportOutcome::Accepted { powered_on: Some(powered_on) });
                }
                Delivery::Stored(run) => run.outcome.map_or("", implied_by).to_owned(),
                Delivery::NoRun => return Ok(ReportOutcome::NotStarted),
                Delivery::Duplicate(first) => {
                    let said = first.payload.get("status").and_then(|status| status.as_str());
                    said.unwrap_or_default().to_owned()
                }
            },
        };
        if first == status {
            return Ok(ReportOutcome::Duplicate);
        }
        let event = NewEvent::warn(
            "report.contradiction",
            format!("a report of {status} was refused: {first} was reported before"),
        )
        .by("maintenance-os");
        engine.store().append(Some(id), Some(job.server.clone()), vec![event], engine.clock().now()).await?;
        Ok(ReportOutcome::Contradiction { first })
    }
}

/// The report that would have led to an outcome.
fn implied_by(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "success",
        Outcome::Failed | Outcome::Cancelled => "failed",
    }
}

/// The job as it is, once it has at least announced to start the machine, and when it last did: from there on a report is
/// valid in every step.
async fn started(engine: &Engine, job: &Job) -> Result<Option<(Snapshot, Time)>, SignalError> {
    let Some(snapshot) = engine.store().snapshot(job.run.id).await? else { return Ok(None) };
    let announced = snapshot
        .evidence("redfish.power-on")
        .filter(|record| !matches!(record.phase, StepPhase::Skipped | StepPhase::Undone));
    let last = announced.map(|record| record.started_at).max();
    Ok(last.map(|last| (snapshot, last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_the_contract_are_understood() {
        assert_eq!(parse(br#"{"status":"success"}"#), Ok(Report::Success(Details::default())));
        let failed = parse(br#"{"status":"failed","failed_step":"bootloader-linux.service","unknown":1}"#);
        assert!(
            matches!(failed, Ok(Report::Failed { failed_step, .. }) if failed_step == "bootloader-linux.service")
        );
        let progress = parse(br#"{"status":"progress","step":"image-linux.service","percent":41.7}"#);
        assert_eq!(
            progress,
            Ok(Report::Progress { step: "image-linux.service".to_owned(), percent: Some(41), job_id: None })
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(parse(b"{}"), Err(ReportError::Status));
        assert_eq!(parse(br#"{"status":"done"}"#), Err(ReportError::Status));
        assert_eq!(parse(br#"{"status":7}"#), Err(ReportError::Status));
        assert_eq!(parse(br#"{"status":"failed"}"#), Err(ReportError::NoFailedStep));
        assert_eq!(parse(br#"{"status":"failed","failed_step":""}"#), Err(ReportError::NoFailedStep));
        assert!(matches!(parse(b"nope"), Err(ReportError::NotJson(_))));
    }

    #[test]
    fn foreign_texts_are_bounded_and_without_control_characters() {
        let body = format!(r#"{{"status":"failed","failed_step":"a\n{}"}}"#, "x".repeat(5000));
        let Ok(Report::Failed { failed_step, .. }) = parse(body.as_bytes()) else { panic!("not understood") };
        assert_eq!(failed_step.len(), MAX_TEXT);
        assert!(!failed_step.contains('\n'));
    }
}
