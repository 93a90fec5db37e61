//! Classifies BMC failures: maps a Redfish error to the step error that the engine acts on.

use std::time::Duration;

use redfish::error::DenialReason;
use redfish::{ErrorKind, RedfishError, TransportErrorKind};
use serde_json::json;

use super::{class, waits};
use engine::{StepContext, StepError, StepOutcome, StepReport, WaitReason, WaitRequest, fail_on_deadline};
use model::{Failure, FailureClass, StepName, StepPhase, Wait};

/// Builds a failure of a step.
pub fn failure(
    class: FailureClass,
    step: &StepName,
    summary: impl Into<String>,
    next_action: impl Into<String>,
) -> Failure {
    Failure {
        class,
        step: step.clone(),
        summary: summary.into(),
        detail: None,
        next_action: next_action.into(),
    }
}

/// Maps an error of the Redfish client to a step error: transient errors are retried, definite refusals fail. A mutation
/// whose effect is unknown is retried too, because the step observes before it acts.
pub fn from_redfish(step: &StepName, error: &RedfishError) -> StepError {
    if let ErrorKind::CircuitOpen(open) = &error.kind {
        return StepError::wait(WaitRequest {
            reason: &waits::BMC_SILENT,
            signals: Vec::new(),
            poll: Some(open.wait.max(Duration::from_secs(1))),
            limit: SILENCE_LIMIT.into(),
            detail: open.to_string(),
        });
    }
    let class = match &error.kind {
        ErrorKind::Unreachable { .. } | ErrorKind::Timeout { .. } | ErrorKind::Tls { .. } => {
            class::BMC_UNREACHABLE
        }
        ErrorKind::NotSupported { .. }
        | ErrorKind::License { .. }
        | ErrorKind::Unsupported { .. }
        | ErrorKind::NoVirtualMedia { .. }
        | ErrorKind::MediaDetached { .. }
        | ErrorKind::MediaUrl { .. } => class::UNSUPPORTED,
        ErrorKind::Unauthorized { .. } | ErrorKind::OtherMachine { .. } | ErrorKind::Config { .. } => {
            class::INPUT
        }
        ErrorKind::Busy { .. }
        | ErrorKind::Server { .. }
        | ErrorKind::TaskFailed { .. }
        | ErrorKind::Fenced => class::TRANSIENT,
        _ => class::BMC_REFUSED,
    };
    let mut detail =
        json!({ "code": error.code(), "status": error.status(), "maybe_applied": error.maybe_applied() });
    if restart_may_explain(error) {
        detail[RESTART_MAY_EXPLAIN] = true.into();
    }
    let failure =
        Failure { detail: Some(detail), ..failure(class, step, error.to_string(), next_action(error)) };
    // After a restart of the BMC, resources can be missing for a while.
    let may_recover = matches!(error.kind, ErrorKind::Fenced | ErrorKind::NotFound { .. });
    let may_recover = may_recover || is_read_in_conflict(error);
    if error.is_transient() || error.maybe_applied() || may_recover {
        StepError::retry(failure)
    } else {
        StepError::fail(failure)
    }
}

/// The member of a failure's detail that [`restart_may_explain`] sets.
const RESTART_MAY_EXPLAIN: &str = "restart_may_explain";

/// Whether a BMC that restarts responds so to a client that it accepted before: its accounts and its certificate are loaded some seconds
/// after its web server. A certificate that was received, and does not fit, is none of these.
fn restart_may_explain(error: &RedfishError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Unauthorized { denial: DenialReason::Credentials | DenialReason::TooManyRejections, .. }
            | ErrorKind::Tls {
                problem: TransportErrorKind::TlsHandshake
                    | TransportErrorKind::NotTls
                    | TransportErrorKind::LegacyTls,
                ..
            }
    )
}

/// Whether a read was refused with a conflict (409): it asks for no other state, so the conflict is that of the moment (RFC 9110,
/// 15.5.10).
fn is_read_in_conflict(error: &RedfishError) -> bool {
    error.is_read() && error.status() == Some(409)
}

/// Whether the BMC refuses a change because of what it or the host does now: it says that it is busy, or reports a
/// conflict (409), whatever its message. That is a conflict with the present state of the host, which changes.
pub(super) fn is_refused_for_now(error: &RedfishError) -> bool {
    match error.kind {
        ErrorKind::Busy { .. } => true,
        ErrorKind::Refused { status: 409, .. } => !error.maybe_applied(),
        _ => false,
    }
}

/// Maps an error of a power or boot change to a step error. A refusal for now becomes a wait and not a failed attempt: some
/// firmware refuses changes while the host is in its self-test, or for a minute after power-off.
pub fn from_redfish_change(step: &StepName, error: &RedfishError) -> StepError {
    if !is_refused_for_now(error) {
        return from_redfish(step, error);
    }
    StepError::wait(WaitRequest {
        reason: &waits::BMC_BUSY,
        signals: Vec::new(),
        poll: Some(error.retry_after().unwrap_or(BUSY_RETRY).max(BUSY_RETRY_AT_LEAST)),
        limit: BUSY_LIMIT.into(),
        detail: error.kind.to_string(),
    })
}

/// Delay between two attempts of a change that the BMC refused as busy.
const BUSY_RETRY: Duration = Duration::from_secs(10);
/// The shortest such delay, whatever the BMC asks for: each attempt sends the change again.
const BUSY_RETRY_AT_LEAST: Duration = Duration::from_secs(2);
/// Time limit for busy responses: the self-test of servers with much memory takes many minutes.
const BUSY_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The time between two attempts to connect to a BMC that may be restarting.
const RESTART_POLL: Duration = Duration::from_secs(60);

/// Time limit for an unreachable BMC: some take twenty minutes to restart.
const SILENCE_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Placeholder in texts for the serial number of the server.
const SERIAL: &str = "SERIAL";

/// Returns the next action for an error of the Redfish client, with the `shoal` command where one helps. May contain
/// [`SERIAL`].
pub(super) fn next_action(error: &RedfishError) -> String {
    let next = error.next_action();
    match &error.kind {
        ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, detail } => {
            let shown = detail.rsplit_once("shown ").map_or("…", |(_, shown)| shown);
            format!("{next}: `shoal server update {SERIAL} --tls-fingerprint {shown} --bmc-password-stdin`")
        }
        ErrorKind::Tls { problem: TransportErrorKind::Untrusted, .. } => {
            format!(
                "{next}: `shoal server update {SERIAL} --tls pinned --bmc-password-stdin`, or REDFISH_CA_FILE"
            )
        }
        ErrorKind::Unauthorized {
            denial:
                DenialReason::Credentials | DenialReason::TooManyRejections | DenialReason::PasswordChangeRequired,
            ..
        } => {
            format!("{next}: `shoal server update {SERIAL} --bmc-password-stdin`")
        }
        ErrorKind::Unreachable {
            problem: TransportErrorKind::Resolve | TransportErrorKind::Refused, ..
        } => {
            format!("{next}: `shoal server update {SERIAL} --bmc-address … --bmc-password-stdin`")
        }
        _ => next.to_owned(),
    }
}

/// Replaces [`SERIAL`] in a text by a serial number.
pub(super) fn with_serial(text: &str, serial: &str) -> String {
    text.replace(SERIAL, serial)
}

/// Completes the report of a step that uses a BMC. A failure that a restart of the BMC may explain becomes a wait once the step
/// `identified` of the run has ended: until then the record of the server may be wrong, afterwards the BMC accepted it. In the
/// next action the serial number of the run's server is filled in.
pub fn finished(mut report: StepReport, context: &StepContext, identified: &[&StepName]) -> StepReport {
    let is_done =
        |step: &&StepName| context.snapshot.records_of(step).any(|record| record.phase == StepPhase::Done);
    if let StepOutcome::Fail(failure) = &report.outcome
        && failure.detail.as_ref().is_some_and(|detail| detail[RESTART_MAY_EXPLAIN] == true)
        && identified.iter().any(is_done)
    {
        report.outcome = StepOutcome::Wait(WaitRequest {
            reason: &waits::BMC_RESTARTS,
            signals: Vec::new(),
            poll: Some(RESTART_POLL),
            limit: SILENCE_LIMIT.into(),
            detail: failure.summary.clone(),
        });
    }
    if let StepOutcome::Fail(failure) | StepOutcome::Retry(failure) = &mut report.outcome
        && let Some(serial) = &context.snapshot.run.server
    {
        failure.next_action = with_serial(&failure.next_action, serial.as_str());
    }
    report
}

/// Builds the report for a wait whose deadline has passed.
pub fn overdue(wait: &Wait) -> StepReport {
    let late = fail_on_deadline(wait);
    // Some waits need nothing while they last; their end is for the operator.
    let advises = |reason: &&&WaitReason| !reason.next_action.starts_with("nothing");
    let Some(reason) = waits::ALL.iter().filter(advises).find(|reason| reason.name == wait.reason) else {
        return StepReport::fail(late);
    };
    let class = match wait.reason.as_str() {
        silent if silent == waits::BMC_SILENT.name => class::BMC_UNREACHABLE,
        restarts if restarts == waits::BMC_RESTARTS.name => class::INPUT,
        _ => late.class,
    };
    StepReport::fail(Failure {
        class,
        next_action: format!("{}; then retry the job", reason.next_action),
        ..late
    })
}

/// Builds a retry because a service of the controller is unavailable.
pub fn unavailable(step: &StepName, why: &impl std::fmt::Display) -> StepError {
    StepError::retry(failure(
        class::TRANSIENT,
        step,
        why.to_string(),
        "see /readyz for what is wrong with the controller",
    ))
}

#[cfg(test)]
mod tests {
    use engine::StepEnd;
    use redfish::Operation;

    use http::Method;

    use super::*;

    const STEP: &StepName = &StepName::new("step");

    fn error(kind: ErrorKind, maybe_applied: bool) -> RedfishError {
        RedfishError { operation: Operation::Insert, request: None, kind, maybe_applied }
    }

    fn class_of(error: &StepError) -> (&'static str, FailureClass) {
        match &*error.end {
            StepEnd::Retry(failure) => ("retry", failure.class.clone()),
            StepEnd::Fail(failure) => ("fail", failure.class.clone()),
            StepEnd::Wait(wait) => ("wait", wait.reason.name.into()),
        }
    }

    fn busy(retry_after: Option<u64>) -> ErrorKind {
        let retry_after = retry_after.map(Duration::from_secs);
        ErrorKind::Busy { status: 503, message_id: None, message: "in POST".to_owned(), retry_after }
    }

    #[test]
    fn transient_errors_are_retried_and_definite_refusals_fail() {
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
            (denied(DenialReason::Credentials), "fail", class::INPUT),
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
            assert_eq!(class_of(&from_redfish(STEP, &error(kind, false))), (verdict, class), "{shown}");
        }
        let refused = ErrorKind::Refused { status: 400, message_id: None, message: text() };
        assert_eq!(class_of(&from_redfish(STEP, &error(refused, true))).0, "retry", "the effect is unknown");
    }

    #[test]
    fn a_busy_response_is_waited_for_as_long_as_the_bmc_says() {
        for (asked, paused) in
            [(Some(7), Duration::from_secs(7)), (Some(0), BUSY_RETRY_AT_LEAST), (None, BUSY_RETRY)]
        {
            let ended = from_redfish_change(STEP, &error(busy(asked), false));
            let StepEnd::Wait(wait) = &*ended.end else { panic!("{ended:?}") };
            assert_eq!((wait.reason.name, wait.poll), (waits::BMC_BUSY.name, Some(paused)));
        }
    }

    #[test]
    fn a_conflict_with_the_state_of_the_host_is_waited_for_like_a_busy_bmc() {
        let refused = |status| ErrorKind::Refused { status, message_id: None, message: "not now".to_owned() };
        let verdict = |status, open| class_of(&from_redfish_change(STEP, &error(refused(status), open))).1;
        assert_eq!(verdict(409, false), waits::BMC_BUSY.name);
        assert_eq!(verdict(400, false), class::BMC_REFUSED);
        assert_eq!(verdict(409, true), class::BMC_REFUSED, "the effect is unknown: the state is read first");
        assert_eq!(
            class_of(&from_redfish(STEP, &error(refused(409), false))).0,
            "fail",
            "media: another slot"
        );
    }

    #[test]
    fn a_read_in_conflict_is_repeated() {
        let refused = |status| ErrorKind::Refused { status, message_id: None, message: "not now".to_owned() };
        let of = |method: Method, status| {
            let request = Some(Box::new((method, "/redfish/v1/Systems/1".to_owned())));
            class_of(&from_redfish(STEP, &RedfishError { request, ..error(refused(status), false) })).0
        };
        assert_eq!(
            [of(Method::GET, 409), of(Method::GET, 400), of(Method::POST, 409)],
            ["retry", "fail", "fail"]
        );
    }

    #[test]
    fn the_next_action_names_the_command_and_the_server() {
        let action = |kind| with_serial(&next_action(&error(kind, false)), "XF-7");
        let tls = |problem, detail: &str| ErrorKind::Tls { problem, detail: detail.to_owned() };
        let pinned = action(tls(TransportErrorKind::PinMismatch, "pinned ab, shown cd:ef"));
        assert!(
            pinned.ends_with("`shoal server update XF-7 --tls-fingerprint cd:ef --bmc-password-stdin`"),
            "{pinned}"
        );
        let untrusted = action(tls(TransportErrorKind::Untrusted, ""));
        assert!(
            untrusted.ends_with(
                "`shoal server update XF-7 --tls pinned --bmc-password-stdin`, or REDFISH_CA_FILE"
            ),
            "{untrusted}"
        );
        let denied =
            action(ErrorKind::Unauthorized { denial: DenialReason::Credentials, message: String::new() });
        assert!(denied.ends_with("`shoal server update XF-7 --bmc-password-stdin`"), "{denied}");
        let nowhere =
            action(ErrorKind::Unreachable { problem: TransportErrorKind::Resolve, detail: String::new() });
        assert!(
            nowhere.ends_with("`shoal server update XF-7 --bmc-address … --bmc-password-stdin`"),
            "{nowhere}"
        );
    }
}
