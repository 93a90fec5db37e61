//! The one-time boot: only the next boot of a host is from the boot media.

use redfish::Discovery;

use super::classify::from_redfish_change;
use super::step::{ConnectedBmc, wait_for_bmc};
use super::waits;
use engine::StepError;
use engine::model::StepName;

/// Sets the one-time boot from the media in `slot` and reads it back. Returns the boot target that the BMC shows.
///
/// # Errors
/// Returns a wait, with `detail`, while a read does not show the setting, and what ends the step after a refused or failed request.
pub async fn set_once(
    step: &StepName,
    connected: &ConnectedBmc,
    (discovery, slot): (&Discovery, &str),
    detail: &str,
) -> Result<String, StepError> {
    let set = connected
        .bmc
        .boot_media_once(discovery, slot)
        .await
        .map_err(|error| from_redfish_change(step, &error))?;
    if !set.confirmed {
        let wait = wait_for_bmc(&waits::BOOT_OVERRIDE, connected.bmc.profile().read_back_lag, detail);
        return Err(StepError::wait(wait));
    }
    Ok(set.observed.target.as_ref().map_or("Cd", |target| target.as_str()).to_owned())
}

/// Clears a one-time boot that was not consumed and reads it back. Returns whether one was set.
///
/// # Errors
/// Returns a wait while a read still shows the setting, and what ends the step after a refused or failed request.
pub async fn clear_once(
    step: &StepName,
    connected: &ConnectedBmc,
    (discovery, slot): (&Discovery, &str),
) -> Result<bool, StepError> {
    let failed = |error: redfish::RedfishError| from_redfish_change(step, &error);
    let source = connected.bmc.next_boot_source_cached(discovery, slot).await.map_err(failed)?;
    if source.is_none_or(|source| !source.is_active()) {
        return Ok(false);
    }
    let cleared = connected.bmc.clear_next_boot_source(discovery, slot).await.map_err(failed)?;
    if !cleared.confirmed {
        let detail = "the one-time boot was cleared; a read still shows it";
        let wait = wait_for_bmc(&waits::BOOT_OVERRIDE, connected.bmc.profile().read_back_lag, detail);
        return Err(StepError::wait(wait));
    }
    Ok(true)
}
