//! The hold of a run whose BMC shows another certificate than the registered one, or one that is not trusted.
//!
//! A certificate that changed is never accepted by itself: behind a restart of the BMC an attacker would be believed.

use std::time::Duration;

use redfish::{RedfishError, TransportErrorKind};

use super::{UpkeepServices, names};
use engine::{StepContext, StepOutcome, StepReport};
use model::{Hold, RunId, Server, TlsMode};

/// The interval between two reminders of a hold.
const REMIND: Duration = Duration::from_secs(24 * 3600);
/// Stands for a fingerprint that is not known.
const UNKNOWN: &str = "…";

/// The hold of a BMC that returned with a certificate that is not accepted. `shown`: its fingerprint, if the error names it.
pub(super) async fn hold(
    services: &UpkeepServices,
    context: &StepContext,
    server: &Server,
    shown: Option<&str>,
) -> StepReport {
    let read = match shown {
        None => services.bmc.connections.shown_fingerprint(server).await,
        Some(_) => None,
    };
    let shown = shown.or(read.as_deref()).unwrap_or(UNKNOWN);
    let now = context.now();
    StepReport::new(StepOutcome::Hold(Hold {
        class: names::CERTIFICATE_CHANGED,
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail: detail(server, shown, context.snapshot.run.id),
    }))
}

fn detail(server: &Server, shown: &str, run: RunId) -> String {
    let serial = &server.serial;
    let compare = "Compare the fingerprint with the one in the BMC's web interface or on its console; if it is the BMC's";
    if server.tls == TlsMode::Verify {
        return format!(
            "the BMC of {serial} returned with a certificate that no known authority has signed: its fingerprint is {shown}, and the \
             server has tls `verify`. Nothing is sent to it. Install a signed certificate on the BMC, then `shoal job resume {run}`. \
             {compare}, it can be pinned: `shoal server update {serial} --tls pinned --tls-fingerprint {shown} --bmc-password-stdin`, \
             then resume the job"
        );
    }
    format!(
        "the BMC of {serial} returned with another certificate: {} is registered, {shown} is shown. Nothing is sent to it. \
         {compare}, `shoal server update {serial} --tls-fingerprint {shown} --bmc-password-stdin`, then `shoal job resume {run}`",
        server.tls_fingerprint.as_deref().unwrap_or("none"),
    )
}

/// The fingerprint that the BMC shows, if the error names it.
pub(super) fn shown_fingerprint(error: &RedfishError) -> Option<&str> {
    match &error.kind {
        redfish::ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, detail } => {
            detail.rsplit_once("shown ").map(|(_, shown)| shown)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_names_the_certificate_that_is_shown_and_what_the_server_asks_for() {
        let mut server = Server::unknown("S-1".parse().unwrap(), "2026-11-20T08:00:00Z".parse().unwrap());
        server.tls_fingerprint = Some("ab".to_owned());
        let run = RunId::new();
        let pinned = detail(&server, "cd", run);
        assert!(pinned.contains("ab is registered, cd is shown"), "{pinned}");
        server.tls = TlsMode::Verify;
        let verified = detail(&server, "cd", run);
        assert!(verified.contains("no known authority has signed: its fingerprint is cd"), "{verified}");
        assert!(verified.contains("--tls pinned") && !verified.contains("ab is registered"), "{verified}");
        for said in [&pinned, &verified] {
            assert!(
                said.contains("--tls-fingerprint cd ") && said.contains(&format!("shoal job resume {run}")),
                "{said}"
            );
        }
    }
}
