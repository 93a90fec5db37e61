//! Empties a slot.

use redfish::{ErrorKind, RedfishError, Slot};

use super::super::classify::from_redfish_change;
use super::super::step::{ConnectedBmc, wait_after_resend};
use super::super::waits;
use engine::{StepContext, StepError, WaitRequest};
use model::StepName;

/// The end of the id of "No Virtual Media devices are currently connected", which an iDRAC sends with an internal error.
const NOT_CONNECTED_ID: &str = "vrm0009";

/// Ejects the media of a slot; returns a wait while a read does not show the slot empty.
///
/// A refusal after a wait is no failure: a BMC that shows its slots late refuses to repeat the eject, some with an internal error.
/// A BMC that is busy, or refuses the eject for now with a conflict (409), is waited for.
///
/// # Errors
/// Returns what ends the step after a refused or failed request.
pub async fn eject(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    slot: &Slot,
) -> Result<Option<WaitRequest>, StepError> {
    let sent_before = context.previous_wait.as_ref().is_some_and(|wait| wait.reason == waits::EJECT.name);
    match connected.bmc.eject(&slot.uri).await {
        Ok(ejected) if ejected.confirmed => return Ok(None),
        Ok(_) => {}
        Err(error) if sent_before && is_answer(&error) => {}
        Err(error) if says_empty(&error) => {}
        Err(error) => return Err(from_redfish_change(step, &error)),
    }
    let detail = format!("the eject of slot {} was requested; it still shows its media", slot.id);
    let lag = connected.bmc.profile().read_back_lag;
    Ok(Some(wait_after_resend(context, &waits::EJECT, lag, detail)))
}

/// Whether the BMC itself has refused the request, for whatever reason.
fn is_answer(error: &RedfishError) -> bool {
    matches!(error.kind, ErrorKind::Refused { .. } | ErrorKind::Server { .. } | ErrorKind::Busy { .. })
}

/// Whether the BMC says that no media are connected, although a read of the slot still shows them.
fn says_empty(error: &RedfishError) -> bool {
    let (ErrorKind::Refused { message_id, .. }
    | ErrorKind::Server { message_id, .. }
    | ErrorKind::Busy { message_id, .. }) = &error.kind
    else {
        return false;
    };
    message_id.as_deref().is_some_and(|id| id.to_ascii_lowercase().ends_with(NOT_CONNECTED_ID))
}
