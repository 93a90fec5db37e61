//! From what a BMC did to what the engine should do: the one place that classifies failures.

use std::time::Duration;

use redfish::error::Denial;
use redfish::{ErrorKind, RedfishError, TransportErrorKind};
use serde_json::json;

use super::{class, waits};
use engine::model::{Failure, Wait};
use engine::{StepContext, StepReport, Verdict, WaitRequest, fail_on_deadline};

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
pub(super) fn from_redfish(step: &str, error: &RedfishError) -> StepReport {
    if let ErrorKind::CircuitOpen(resting) = &error.kind {
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
pub(super) fn from_redfish_change(step: &str, error: &RedfishError) -> StepReport {
    let ErrorKind::Busy { retry_after, .. } = &error.kind else { return from_redfish(step, error) };
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
        ErrorKind::Unauthorized { denial: Denial::Credentials | Denial::TooManyRejections, .. } => {
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
    let late = fail_on_deadline(wait);
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

#[cfg(test)]
mod tests {
    use redfish::Operation;

    use super::*;

    fn error(kind: ErrorKind, maybe_applied: bool) -> RedfishError {
        RedfishError { operation: Operation::Insert, request: None, kind, maybe_applied }
    }

    fn class_of(report: &StepReport) -> (&'static str, String) {
        match &report.verdict {
            Verdict::Retry(failure) => ("retry", failure.class.clone()),
            Verdict::Fail(failure) => ("fail", failure.class.clone()),
            Verdict::Wait(wait) => ("wait", wait.reason.name.to_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn busy(retry_after: Option<u64>) -> ErrorKind {
        let retry_after = retry_after.map(Duration::from_secs);
        ErrorKind::Busy { status: 503, message_id: None, message: "in POST".to_owned(), retry_after }
    }

    #[test]
    fn what_may_pass_is_tried_again_and_a_definite_no_is_the_end() {
        let text = String::new;
        let tls = |problem| ErrorKind::Tls { problem, detail: text() };
        let denied = |denial| ErrorKind::Unauthorized { denial, message: text() };
        let unreachable = |problem| ErrorKind::Unreachable { problem, detail: text() };
        let table = [
            (unreachable(TransportErrorKind::Refused), "retry", class::BMC_UNREACHABLE),
            (ErrorKind::Timeout { detail: text() }, "retry", class::BMC_UNREACHABLE),
            (tls(TransportErrorKind::PinMismatch), "fail", class::BMC_UNREACHABLE),
            (ErrorKind::NotSupported { what: text() }, "fail", class::UNSUPPORTED),
            (ErrorKind::License { message: text() }, "fail", class::UNSUPPORTED),
            (ErrorKind::NoVirtualMedia { detail: text() }, "fail", class::UNSUPPORTED),
            (denied(Denial::Credentials), "fail", class::INPUT),
            (ErrorKind::Config { detail: text() }, "fail", class::INPUT),
            (busy(None), "retry", class::TRANSIENT),
            (ErrorKind::Server { status: 500, message_id: None, message: text() }, "retry", class::TRANSIENT),
            (ErrorKind::Fenced, "retry", class::TRANSIENT),
            (ErrorKind::NotFound { message: text() }, "retry", class::BMC_REFUSED),
            (
                ErrorKind::Refused { status: 400, message_id: None, message: text() },
                "fail",
                class::BMC_REFUSED,
            ),
        ];
        for (kind, verdict, class) in table {
            let shown = format!("{kind:?}");
            assert_eq!(
                class_of(&from_redfish("step", &error(kind, false))),
                (verdict, class.to_owned()),
                "{shown}"
            );
        }
        let refused = ErrorKind::Refused { status: 400, message_id: None, message: text() };
        assert_eq!(class_of(&from_redfish("step", &error(refused, true))).0, "retry", "its fate is unknown");
    }

    #[test]
    fn a_change_that_comes_too_early_is_waited_for_as_long_as_the_bmc_says() {
        for (asked, paused) in [(Some(7), Duration::from_secs(7)), (None, BUSY_AGAIN)] {
            let report = from_redfish_change("step", &error(busy(asked), false));
            let Verdict::Wait(wait) = report.verdict else { panic!("{report:?}") };
            assert_eq!((wait.reason.name, wait.poll), (waits::BMC_BUSY.name, Some(paused)));
        }
    }

    #[test]
    fn the_next_action_names_the_command_and_the_server() {
        let action = |kind| about(&next_action(&error(kind, false)), "XF-7");
        let tls = |problem, detail: &str| ErrorKind::Tls { problem, detail: detail.to_owned() };
        let pinned = action(tls(TransportErrorKind::PinMismatch, "pinned ab, shown cd:ef"));
        assert!(pinned.ends_with("`shoal server update XF-7 --tls-fingerprint cd:ef`"), "{pinned}");
        let untrusted = action(tls(TransportErrorKind::Untrusted, ""));
        assert!(
            untrusted.ends_with("`shoal server update XF-7 --tls pinned`, or REDFISH_CA_FILE"),
            "{untrusted}"
        );
        let denied = action(ErrorKind::Unauthorized { denial: Denial::Credentials, message: String::new() });
        assert!(denied.ends_with("`shoal server update XF-7 --bmc-password-stdin`"), "{denied}");
        let nowhere =
            action(ErrorKind::Unreachable { problem: TransportErrorKind::Resolve, detail: String::new() });
        assert!(nowhere.ends_with("`shoal server update XF-7 --bmc-address …`"), "{nowhere}");
    }
}
