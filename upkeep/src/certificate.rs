//! The hold of a run whose BMC shows another certificate than the registered one.
//!
//! A certificate that changed is never accepted by itself: behind a restart of the BMC an attacker would be believed.

use std::time::Duration;

use redfish::{RedfishError, TransportErrorKind};

use super::names;
use engine::{StepContext, StepOutcome, StepReport};
use model::{Hold, Server};

/// The interval between two reminders of a hold.
const REMIND: Duration = Duration::from_secs(24 * 3600);

/// The hold of a BMC that returned with another certificate.
pub(super) fn hold(context: &StepContext, server: &Server, shown: &str) -> StepReport {
    let serial = &server.serial;
    let detail = format!(
        "the BMC of {serial} returned with another certificate: {} is registered, {shown} is shown. Nothing is sent to it. \
         Compare the fingerprint with the one in the BMC's web interface or on its console; if it is the BMC's, \
         `shoal server update {serial} --tls-fingerprint {shown} --bmc-password-stdin`, then `shoal job resume {}`",
        server.tls_fingerprint.as_deref().unwrap_or("none"),
        context.snapshot.run.id,
    );
    let now = context.now();
    StepReport::new(StepOutcome::Hold(Hold {
        class: names::CERTIFICATE_CHANGED,
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail,
    }))
}

/// The fingerprint that the BMC shows.
pub(super) fn shown_fingerprint(error: &RedfishError) -> &str {
    match &error.kind {
        redfish::ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, detail } => {
            detail.rsplit_once("shown ").map_or("…", |(_, shown)| shown)
        }
        _ => "…",
    }
}
