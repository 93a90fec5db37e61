//! Media and boot override that a BMC has dropped between being read back and the host's start: a restart of the BMC and some
//! firmware at power-on empty the slots.
//!
//! ```text
//!   mounted, read back -> override, read back -> On                      -> on its way -> webhook.wait
//!                                             | a look at the slots:     | a look at the boot slot:
//!                                             | empty? inserted, override| empty? inserted; a host in its self-test
//!                                             | set again                | still boots from it
//! ```
//!
//! The first look costs nothing in a good job: the slots were read a moment ago. The second is one request, made of hosts
//! that take their time; one that is on at once has lost nothing yet. Nothing here resets a host.

use std::sync::Arc;

use redfish::{InsertOptions, Slot};
use serde_json::json;

use super::super::classify::{from_redfish, from_redfish_change};
use super::super::outputs::{Built, Discovered, PowerRequest, Validated};
use super::super::services::Site;
use super::super::waits;
use super::mount::{Image, lost as lease_lost};
use super::{Host, left, settling};
use engine::model::NewEvent;
use engine::{StepContext, StepReport};

/// Before the host is told to power on. What was read back within seconds is believed, except by who comes again. Of a host
/// that was told before and is off the boot override may be lost too.
pub(super) async fn before(
    step: &str,
    site: &Arc<Site>,
    context: &StepContext,
    (host, found): (&Host, &Discovered),
    asked: &mut PowerRequest,
) -> Result<Vec<NewEvent>, StepReport> {
    let told = asked.sent > 0;
    let failed = |error: redfish::RedfishError| from_redfish(step, &error);
    let uris = slots_of(found);
    let again = context.waited.is_some() || context.reentered || context.record.attempt > 1;
    let mut shown = Vec::new();
    match again {
        true => shown = host.bmc.slots(&found.discovery, &uris).await.map_err(failed)?,
        false => {
            for uri in &uris {
                shown.push(host.bmc.slot_cached(uri).await.map_err(failed)?);
            }
        }
    }
    let put = insert(step, site, context, (host, found), asked, &shown).await?;
    if !put.is_empty() || told {
        let (discovery, slot) = (&found.discovery, &found.boot_slot);
        let set = host
            .bmc
            .boot_media_once(discovery, slot)
            .await
            .map_err(|error| from_redfish_change(step, &error))?;
        if !set.confirmed {
            let detail = "the one-time boot was set again, a read does not show it yet";
            return Err(settling(&waits::BOOT_OVERRIDE, host.bmc.profile().read_back_lag, detail));
        }
    }
    Ok(put)
}

/// After the host is on. What fails here is told, the host may have all it needs.
pub(super) async fn after(
    step: &str,
    site: &Arc<Site>,
    context: &StepContext,
    (host, found): (&Host, &Discovered),
    asked: &mut PowerRequest,
) -> Vec<NewEvent> {
    let unseen = |why: String| vec![NewEvent::warn("redfish.observe-failed", why)];
    match host.bmc.slot(&found.boot_slot).await {
        Ok(slot) if !slot.is_empty() => return Vec::new(),
        Ok(_) => {}
        Err(error) => return unseen(error.to_string()),
    }
    let uris = slots_of(found);
    let shown = match host.bmc.slots(&found.discovery, &uris).await {
        Ok(shown) => shown,
        Err(error) => return unseen(error.to_string()),
    };
    match insert(step, site, context, (host, found), asked, &shown).await {
        Ok(events) => events,
        Err(_) => {
            unseen("the BMC dropped the media at power-on and does not show them inserted again".to_owned())
        }
    }
}

/// Whether the slot the host boots from is empty by now.
pub(super) async fn lost(step: &str, host: &Host, found: &Discovered) -> Result<bool, StepReport> {
    let slot = host.bmc.slot(&found.boot_slot).await.map_err(|error| from_redfish(step, &error))?;
    Ok(slot.is_empty())
}

/// The slots of the job, the one it boots from first.
fn slots_of(found: &Discovered) -> Vec<String> {
    std::iter::once(&found.boot_slot).chain(&found.task_slots).cloned().collect()
}

/// Inserts what should be in these slots into those that are empty.
async fn insert(
    step: &str,
    site: &Arc<Site>,
    context: &StepContext,
    (host, found): (&Host, &Discovered),
    asked: &mut PowerRequest,
    shown: &[Slot],
) -> Result<Vec<NewEvent>, StepReport> {
    let validated: Validated = left(step, context, "validate")?;
    let built: Built = left(step, context, "iso.build")?;
    let images = std::iter::once(Image::to_boot(&validated, found)).chain(Image::of_task(&built, found));
    let mut events = Vec::new();
    for image in images {
        let Some(slot) = shown.iter().find(|slot| slot.uri == image.slot && slot.is_empty()) else {
            continue;
        };
        let url = image.url(step, site, context, host, found)?;
        // Cleanup is to know that a slot which looks empty may be about to show it.
        asked.reinserted_at = Some(context.now());
        context.checkpoint(json!(asked)).await.map_err(|_lost| lease_lost(step))?;
        let put = host.bmc.insert(&slot.uri, &url, InsertOptions::default()).await;
        if !put.map_err(|error| from_redfish(step, &error))?.confirmed {
            let detail =
                format!("slot {} lost the {} and does not show it inserted again yet", slot.id, image.what);
            return Err(settling(&waits::MOUNT, host.bmc.profile().read_back_lag, detail));
        }
        let message = format!("slot {} had lost the {}; inserted again and read back", slot.id, image.what);
        events.push(NewEvent::warn("redfish.media-reinserted", message));
    }
    Ok(events)
}
