//! From what a BMC did to what the engine should do: the one place that classifies failures.

use std::time::Duration;

use redfish::error::Denial;
use redfish::{ErrorKind, RedfishError, TransportErrorKind};
use serde_json::json;

use super::{class, waits};
use crate::engine::{StepContext, StepReport, Verdict, WaitRequest, waited_too_long};
use crate::model::{Failure, Wait};

/// A failure of this workflow.
pub(super) fn failure(
    class: &str,
    step: &str,
    summary: impl Into<String>,
    next_action: impl Into<String>,
) -> Failure {
    Failure {
        class: class.to_owned(),
        step: step.to_owned(),
        summary: summary.into(),
        evidence: None,
        next_action: next_action.into(),
    }
}

/// What follows from an error of the Redfish client: try again what may pass, fail on a definite no. A mutation whose
/// fate is unknown is tried again too: the step observes before it acts.
pub(super) fn of_redfish(step: &str, error: &RedfishError) -> StepReport {
    if let ErrorKind::Resting(resting) = &error.kind {
        return StepReport::new(Verdict::Wait(WaitRequest {
            reason: &waits::BMC_SILENT,
            signals: Vec::new(),
            poll: Some(resting.wait.max(Duration::from_secs(1))),
            within: BMC_RETURNS_WITHIN,
            detail: resting.to_string(),
        }));
    }
    let class = match &error.kind {
        ErrorKind::Unreachable { .. } | ErrorKind::Timeout { .. } | ErrorKind::Tls { .. } => {
            class::BMC_UNREACHABLE
        }
        ErrorKind::NotSupported { .. }
        | ErrorKind::License { .. }
        | ErrorKind::Unsupported { .. }
        | ErrorKind::NoVirtualMedia { .. }
        | ErrorKind::MediaUrl { .. } => class::UNSUPPORTED,
        ErrorKind::Unauthorized { .. } | ErrorKind::Config { .. } => class::INPUT,
        ErrorKind::Busy { .. }
        | ErrorKind::Server { .. }
        | ErrorKind::TaskFailed { .. }
        | ErrorKind::Fenced => class::TRANSIENT,
        _ => class::BMC_REFUSED,
    };
    let failure = Failure {
        evidence: Some(json!({
            "code": error.code(), "status": error.status(), "maybe_applied": error.maybe_applied(),
        })),
        ..failure(class, step, error.to_string(), next_action(error))
    };
    // What was there comes back late after a restart of the BMC.
    let passes = matches!(error.kind, ErrorKind::Fenced | ErrorKind::NotFound { .. });
    if error.is_transient() || error.maybe_applied() || passes {
        StepReport::new(Verdict::Retry(failure))
    } else {
        StepReport::fail(failure)
    }
}

/// The same of a change of power or of the boot source. One that comes too early is waited for and is no try that failed:
/// some firmware keeps changes back while a host is in its self-test, or for a minute after it went off.
pub(super) fn unless_busy(step: &str, error: &RedfishError) -> StepReport {
    let ErrorKind::Busy { retry_after, .. } = &error.kind else { return of_redfish(step, error) };
    StepReport::new(Verdict::Wait(WaitRequest {
        reason: &waits::BMC_BUSY,
        signals: Vec::new(),
        poll: Some(retry_after.unwrap_or(BUSY_AGAIN)),
        within: BUSY_WITHIN,
        detail: error.kind.to_string(),
    }))
}

/// Pause between two tries of a change that came too early.
const BUSY_AGAIN: Duration = Duration::from_secs(10);
/// How long changes may be kept back: servers with much memory test themselves for many minutes.
const BUSY_WITHIN: Duration = Duration::from_secs(15 * 60);

/// How long a BMC that does not answer is waited for: some take twenty minutes to restart.
const BMC_RETURNS_WITHIN: Duration = Duration::from_secs(20 * 60);

/// Stands in a text for the serial number of the server it is about.
const SERIAL: &str = "SERIAL";

/// What to do about an error of the Redfish client, in terms of this program. Holds [`SERIAL`].
pub(super) fn next_action(error: &RedfishError) -> String {
    let next = error.next_step();
    match &error.kind {
        ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, detail } => {
            let shown = detail.rsplit_once("shown ").map_or("…", |(_, shown)| shown);
            format!("{next}: `shoal server update {SERIAL} --tls-fingerprint {shown}`")
        }
        ErrorKind::Tls { problem: TransportErrorKind::Untrusted, .. } => {
            format!("{next}: `shoal server update {SERIAL} --tls pinned`, or REDFISH_CA_FILE")
        }
        ErrorKind::Unauthorized { denial: Denial::Credentials | Denial::HeldBack, .. } => {
            format!("{next}: `shoal server update {SERIAL} --bmc-password-stdin`")
        }
        ErrorKind::Unreachable {
            problem: TransportErrorKind::Resolve | TransportErrorKind::Refused, ..
        } => {
            format!("{next}: `shoal server update {SERIAL} --bmc-address …`")
        }
        _ => next.to_owned(),
    }
}

/// The same text about a server.
pub(super) fn about(text: &str, serial: &str) -> String {
    text.replace(SERIAL, serial)
}

/// A report whose texts name the server they are about.
pub(super) fn naming(mut report: StepReport, context: &StepContext) -> StepReport {
    if let Verdict::Fail(failure) | Verdict::Retry(failure) = &mut report.verdict
        && let Some(serial) = &context.snapshot.run.server
    {
        failure.next_action = about(&failure.next_action, serial.as_str());
    }
    report
}

/// What it means that a wait of this workflow is over and nothing came.
pub(super) fn overdue(wait: &Wait) -> StepReport {
    let late = waited_too_long(wait);
    if wait.reason != waits::BMC_SILENT.name {
        return StepReport::fail(late);
    }
    StepReport::fail(Failure {
        class: class::BMC_UNREACHABLE.to_owned(),
        next_action: waits::BMC_SILENT.next_action.to_owned(),
        ..late
    })
}

/// Try again: something of our own did not answer.
pub(super) fn unavailable(step: &str, why: &impl std::fmt::Display) -> StepReport {
    StepReport::new(Verdict::Retry(failure(
        class::TRANSIENT,
        step,
        why.to_string(),
        "see /readyz for what is wrong with the controller",
    )))
}
