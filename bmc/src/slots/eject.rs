//! Empties a slot.

use redfish::{ErrorKind, Slot};

use super::super::classify::from_redfish;
use super::super::step::{ConnectedBmc, wait_for_bmc};
use super::super::waits;
use engine::{StepContext, StepError, WaitRequest};
use model::StepName;

/// Ejects the media of a slot; returns a wait while a read does not show the slot empty.
///
/// A refusal after a wait is no failure: a BMC that shows its slots late refuses to repeat the eject.
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
        Err(error) if sent_before && matches!(error.kind, ErrorKind::Refused { .. }) => {}
        Err(error) => return Err(from_redfish(step, &error)),
    }
    let detail = format!("the eject of slot {} was requested; it still shows its media", slot.id);
    Ok(Some(wait_for_bmc(&waits::EJECT, connected.bmc.profile().read_back_lag, detail)))
}
