//! Inserts media again that a BMC dropped between the read-back and the start of the host: a restart of the BMC empties the
//! slots, and so does some firmware at power-on.
//!
//! ```text
//!   mounted, read back -> override, read back -> On                      -> powering on -> webhook.wait
//!                                             | read the slots;          | read the boot slot;
//!                                             | empty: insert again, set | empty: insert again; a host in its
//!                                             | the override again       | self-test still boots from it
//! ```
//!
//! The first read costs no request in a normal job because cached reads of the slots exist; after a pause for the BMC to settle
//! it is one, of the boot slot. The second read is one request too and happens only when the power-on was not confirmed at once.
//! This module never resets a host.

use redfish::{InsertOptions, Slot};
use serde_json::json;

use super::super::outputs::{Built, Discovered, Validated};
use super::super::second_way;
use super::mount::SlotImage;
use super::names;
use bmc::power::{PowerRequest, Reinserted};
use bmc::{
    ConnectedBmc, boot, from_redfish, from_redfish_change, lease_lost, output_of, wait_for_bmc, waits,
};
use engine::{StepContext, StepError};
use model::{NewEvent, StepName};

/// Runs before the power-on request. The first attempt trusts a read-back that is a few seconds old; every later attempt reads
/// the slots again. After an earlier power-on request the boot override may be lost too, so it is set again.
pub(super) async fn before_power_on(
    step: &StepName,
    context: &StepContext,
    (connected, found): (&ConnectedBmc, &Discovered),
    request: &mut PowerRequest,
) -> Result<Vec<NewEvent>, StepError> {
    let sent_before = request.sent > 0;
    let failed = |error: redfish::RedfishError| from_redfish(step, &error);
    let uris = slots_of(found);
    let settled = context.previous_wait.as_ref().is_some_and(|wait| wait.reason == waits::SETTLE.name);
    let mut again = context.previous_wait.is_some() || context.reentered || context.record.attempt > 1;
    if settled && !sent_before && context.record.attempt == 1 {
        // Nothing was sent since the read-backs. A BMC that drops media drops all of them.
        again = connected.bmc.slot(&found.boot_slot).await.map_err(failed)?.is_empty();
        if !again {
            return Ok(Vec::new());
        }
    }
    let mut shown = Vec::new();
    match again {
        true => shown = connected.bmc.slots(&found.discovery, &uris).await.map_err(failed)?,
        false => {
            for uri in &uris {
                shown.push(connected.bmc.slot_cached(uri).await.map_err(failed)?);
            }
        }
    }
    let inserted = insert(step, context, (connected, found), request, &shown).await?;
    // A BMC that drops media may drop the override too, and a slot that was filled by an earlier call shows them only now.
    if !request.reinserted.is_empty() || sent_before {
        let from = (&found.discovery, found.boot_slot.as_str());
        let detail = "the one-time boot was set again; a read does not show it yet";
        let second = second_way::of(&context.snapshot).map(|second| second.second);
        boot::set_once(step, context, connected, from, second.as_ref(), detail).await?;
    }
    Ok(inserted)
}

/// Runs after the host is on. Errors only become events because the host may already have what it needs.
pub(super) async fn after_power_on(
    step: &StepName,
    context: &StepContext,
    (connected, found): (&ConnectedBmc, &Discovered),
    request: &mut PowerRequest,
) -> Vec<NewEvent> {
    let observe_failed = |why: String| vec![NewEvent::warn("redfish.observe-failed", why)];
    match connected.bmc.slot(&found.boot_slot).await {
        Ok(slot) if !slot.is_empty() => return Vec::new(),
        Ok(_) => {}
        Err(error) => return observe_failed(error.to_string()),
    }
    let uris = slots_of(found);
    let shown = match connected.bmc.slots(&found.discovery, &uris).await {
        Ok(shown) => shown,
        Err(error) => return observe_failed(error.to_string()),
    };
    match insert(step, context, (connected, found), request, &shown).await {
        Ok(events) => events,
        Err(_) => observe_failed(
            "the BMC dropped the media at power-on and does not show them inserted again".to_owned(),
        ),
    }
}

/// Returns whether the slot the host boots from is empty.
pub(super) async fn boot_slot_is_empty(
    step: &StepName,
    connected: &ConnectedBmc,
    found: &Discovered,
) -> Result<bool, StepError> {
    let slot = connected.bmc.slot(&found.boot_slot).await.map_err(|error| from_redfish(step, &error))?;
    Ok(slot.is_empty())
}

/// Returns the slots of the job, the boot slot first.
fn slots_of(found: &Discovered) -> Vec<String> {
    std::iter::once(&found.boot_slot).chain(&found.task_slots).cloned().collect()
}

/// Inserts the job's images into those of its slots that are empty. A slot that was filled a moment ago may show it late: it is read, and
/// filled again after the lag of its BMC.
async fn insert(
    step: &StepName,
    context: &StepContext,
    (connected, found): (&ConnectedBmc, &Discovered),
    request: &mut PowerRequest,
    shown: &[Slot],
) -> Result<Vec<NewEvent>, StepError> {
    let validated: Validated = output_of(step, context, names::VALIDATE)?;
    let built: Built = output_of(step, context, names::ISO_BUILD)?;
    let images =
        std::iter::once(SlotImage::to_boot(&validated, found)).chain(SlotImage::of_task(&built, found));
    let mut events = Vec::new();
    for image in images {
        let Some(slot) = shown.iter().find(|slot| slot.uri == image.slot) else { continue };
        let earlier =
            request.reinserted.get(&slot.uri).filter(|media| !media.shown).map(|media| media.sent_at);
        let lag = connected.bmc.profile().read_back_lag;
        let is_shown = match (slot.is_empty(), earlier) {
            (false, None) => continue,
            (false, Some(_)) => true,
            (true, Some(sent)) if context.now().since(sent) < lag => false,
            (true, _) => {
                let url = image.url(step, context, connected, found)?;
                let media = Reinserted { sent_at: context.now(), shown: false };
                // Cleanup must know that a slot which shows no image may show this one later.
                request.reinserted.insert(slot.uri.clone(), media);
                context.checkpoint(json!(request)).await.map_err(|_lost| lease_lost(step))?;
                match connected.bmc.insert(&slot.uri, &url, InsertOptions::default()).await {
                    Ok(inserted) => inserted.confirmed,
                    Err(error) => {
                        if !error.maybe_applied() {
                            request.reinserted.remove(&slot.uri);
                        }
                        return Err(from_redfish_change(step, &error).with_output(json!(request)));
                    }
                }
            }
        };
        if !is_shown {
            let detail =
                format!("slot {} lost the {} and does not show it inserted again yet", slot.id, image.what);
            // A worker may have died before it sent the insert: there is time for another one.
            let wait = wait_for_bmc(&waits::MOUNT, lag.saturating_mul(2), detail);
            return Err(StepError::wait(wait));
        }
        let message = format!("slot {} had lost the {}; inserted again and read back", slot.id, image.what);
        events.push((slot.uri.clone(), NewEvent::warn("redfish.media-reinserted", message)));
    }
    // A call that waits for another slot leaves no event, so the next one says it of both.
    for (uri, _) in &events {
        request.reinserted.entry(uri.clone()).and_modify(|media| media.shown = true);
    }
    Ok(events.into_iter().map(|(_, event)| event).collect())
}
