//! The one-time boot: only the next boot of a host is from the boot media.

use redfish::profile::BootVia;
use redfish::{BootWay, Discovery};

use super::classify::from_redfish_change;
use super::step::{ConnectedBmc, wait_after_resend};
use super::waits;
use engine::{StepContext, StepError};
use model::StepName;

/// Sets the one-time boot from the media in `slot` and reads it back: by `way`, or by the first one the profile knows. Returns
/// the way.
///
/// # Errors
/// Returns a wait, with `detail`, while a read does not show the setting, and what ends the step after a refused or failed request.
pub async fn set_once(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    (discovery, slot): (&Discovery, &str),
    way: Option<&BootWay>,
    detail: &str,
) -> Result<BootWay, StepError> {
    let set = match way {
        Some(way) => connected.bmc.boot_media_once_by(discovery, slot, way).await,
        None => connected.bmc.boot_media_once(discovery, slot).await,
    };
    let set = set.map_err(|error| from_redfish_change(step, &error))?;
    if !set.confirmed {
        let lag = connected.bmc.profile().read_back_lag;
        let wait = wait_after_resend(context, &waits::BOOT_OVERRIDE, lag, detail);
        return Err(StepError::wait(wait));
    }
    Ok(way.cloned().unwrap_or_else(|| connected.bmc.boot_way(&set.observed)))
}

/// Clears a one-time boot that was not consumed and reads it back, for one mechanism. Returns whether one was set.
///
/// # Errors
/// Returns a wait while a read still shows the setting, and what ends the step after a refused or failed request.
pub async fn clear_once(
    step: &StepName,
    context: &StepContext,
    connected: &ConnectedBmc,
    (discovery, slot): (&Discovery, &str),
    via: BootVia,
) -> Result<bool, StepError> {
    let failed = |error: redfish::RedfishError| from_redfish_change(step, &error);
    let source = connected.bmc.next_boot_source_cached(discovery, slot, via).await.map_err(failed)?;
    if source.is_none_or(|source| !source.is_active()) {
        return Ok(false);
    }
    let cleared = connected.bmc.clear_next_boot_source_via(discovery, slot, via).await.map_err(failed)?;
    if !cleared.confirmed {
        let detail = "the one-time boot was cleared; a read still shows it";
        let lag = connected.bmc.profile().read_back_lag;
        let wait = wait_after_resend(context, &waits::BOOT_OVERRIDE, lag, detail);
        return Err(StepError::wait(wait));
    }
    Ok(true)
}
