//! The hold of a run whose BMC shows another certificate than the registered one, or one that is not trusted.
//!
//! A certificate that changed is never accepted by itself: behind a restart of the BMC an attacker would be believed.

use std::time::Duration;

use redfish::{ErrorKind, RedfishError, TransportErrorKind};

use super::{UpkeepServices, names};
use engine::{StepContext, StepOutcome, StepReport};
use model::{Hold, RunId, Server, TlsMode};

/// The interval between two reminders of a hold.
const REMIND: Duration = Duration::from_secs(24 * 3600);
/// Stands for a fingerprint that is not known.
const UNKNOWN: &str = "…";

/// A certificate that is not accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownCertificate {
    /// The fingerprint of the certificate, if it is known.
    pub(super) fingerprint: Option<String>,
    /// Why it is not trusted, in the words of the TLS library; `None` for one that is not the pinned one.
    pub(super) why: Option<String>,
}

impl ShownCertificate {
    /// The certificate that an error names.
    pub(super) fn of(error: &RedfishError) -> Self {
        match &error.kind {
            ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, detail } => {
                let shown = detail.rsplit_once("shown ").map(|(_, shown)| shown.to_owned());
                Self { fingerprint: shown, why: None }
            }
            ErrorKind::Tls { detail, .. } => Self { fingerprint: None, why: Some(detail.clone()) },
            _ => Self::default(),
        }
    }
}

/// The hold of a BMC that returned with a certificate that is not accepted.
pub(super) async fn hold(
    services: &UpkeepServices,
    context: &StepContext,
    server: &Server,
    shown: &ShownCertificate,
) -> StepReport {
    let read = match shown.fingerprint {
        None => services.bmc.connections.shown_fingerprint(server).await,
        Some(_) => None,
    };
    let fingerprint = shown.fingerprint.as_deref().or(read.as_deref()).unwrap_or(UNKNOWN);
    let now = context.now();
    StepReport::new(StepOutcome::Hold(Hold {
        class: names::CERTIFICATE_CHANGED,
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail: detail(server, fingerprint, shown.why.as_deref(), context.snapshot.run.id),
    }))
}

fn detail(server: &Server, shown: &str, why: Option<&str>, run: RunId) -> String {
    let serial = &server.serial;
    let compare = "Compare the fingerprint with the one in the BMC's web interface or on its console; if it is the BMC's";
    if server.tls == TlsMode::Verify {
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        return format!(
            "the BMC of {serial} returned with a certificate that is not trusted{why}: its fingerprint is {shown}, and the server has \
             tls `verify`. Nothing is sent to it. Install a certificate on the BMC that is valid now, for its address, and signed by a \
             known authority, then `shoal job resume {run}`. {compare}, it can be pinned: `shoal server update {serial} --tls pinned --tls-fingerprint {shown} --bmc-password-stdin`, \
             then resume the job"
        );
    }
    format!(
        "the BMC of {serial} returned with another certificate: {} is registered, {shown} is shown. Nothing is sent to it. \
         {compare}, `shoal server update {serial} --tls-fingerprint {shown} --bmc-password-stdin`, then `shoal job resume {run}`",
        server.tls_fingerprint.as_deref().unwrap_or("none"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_names_the_certificate_that_is_shown_and_what_the_server_asks_for() {
        let mut server = Server::unknown("S-1".parse().unwrap(), "2026-11-20T08:00:00Z".parse().unwrap());
        server.tls_fingerprint = Some("ab".to_owned());
        let run = RunId::new();
        let pinned = detail(&server, "cd", None, run);
        assert!(pinned.contains("ab is registered, cd is shown"), "{pinned}");
        server.tls = TlsMode::Verify;
        let expired = RedfishError {
            operation: redfish::Operation::Connect,
            request: None,
            kind: ErrorKind::Tls {
                problem: TransportErrorKind::Untrusted,
                detail: "invalid peer certificate: Expired".to_owned(),
            },
            maybe_applied: false,
        };
        let shown = ShownCertificate::of(&expired);
        let verified = detail(&server, "cd", shown.why.as_deref(), run);
        let said = "not trusted (invalid peer certificate: Expired): its fingerprint is cd";
        assert!(verified.contains(said) && !verified.contains("no known authority"), "{verified}");
        assert!(verified.contains("--tls pinned") && !verified.contains("ab is registered"), "{verified}");
        for said in [&pinned, &verified] {
            assert!(
                said.contains("--tls-fingerprint cd ") && said.contains(&format!("shoal job resume {run}")),
                "{said}"
            );
        }
    }
}
