//! OEM resources and actions for virtual media: the `IsoConfig` resource, and enabling remote media.
//!
//! ```text
//!   IsoConfig      <collection>/CfgCD {Host, Path, Actions: Mount, UnMount}    the configured image
//!                  <collection>/CD1   {Inserted, ConnectedVia}; absent: empty  the mounted image
//!                  UnMount -> 2 s -> PATCH {"Host": "http://ip", "Path": "/t…/boot.iso", …} -> 3 s -> Mount
//!   EnableRMedia   <manager>/Actions/Oem/AMIVirtualMedia.EnableRMedia {"RMediaState": "Enable"} -> 5 s -> slots
//! ```
//!
//! The paths of `CfgCD`, `CD1` and `EnableRMedia` are built here, because some firmware has no link to them.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::sleep;
use url::Url;

use super::{ImageUrl, Slot};
use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::Discovery;
use crate::error::{ErrorKind, Operation, RedfishError, mark_maybe_applied};
use crate::exchange::{BmcResponse, Call, Core};
use crate::json::{self, Resource};
use crate::profile::{MediaPrepare, Profile};

/// Wait after an unmount: the BMC still holds the old image for a moment.
const AFTER_UNMOUNT: Duration = Duration::from_secs(2);
/// Wait after a change of host and path: an immediate mount uses the old values.
const AFTER_CONFIG: Duration = Duration::from_secs(3);
/// Time between two reads of the slots after remote media was enabled.
const AFTER_ENABLE: Duration = Duration::from_secs(5);
/// Maximum number of these reads.
const MAX_POLLS: u32 = 4;

/// Path of the resource in which the image of a collection is configured.
pub(crate) fn config_path(collection: &str) -> String {
    format!("{}/CfgCD", collection.trim_end_matches('/'))
}

/// Target of the action that a manager needs before its slots accept images; `None` when none is needed.
pub(crate) fn pre_action(profile: &Profile, manager: &Resource) -> Option<String> {
    match profile.vm_pre {
        MediaPrepare::Nothing => None,
        MediaPrepare::EnableRemoteMedia => {
            let built =
                || format!("{}/Actions/Oem/AMIVirtualMedia.EnableRMedia", manager.path.trim_end_matches('/'));
            Some(json::oem_action(&manager.fields, "AMIVirtualMedia.EnableRMedia").unwrap_or_else(built))
        }
    }
}

impl Bmc {
    /// Enables remote media if discovery found that the BMC needs it, and returns the slots that appear. Otherwise
    /// nothing is sent.
    ///
    /// # Errors
    ///
    /// When a request fails or is refused.
    pub async fn prepare_media(&self, found: &Discovery) -> Result<ChangeResult<Vec<Slot>>, RedfishError> {
        const OPERATION: Operation = Operation::PrepareMedia;
        let core = &self.core;
        let Some(target) = &found.media_prepare else {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: found.slots.clone() });
        };
        let profile = core.profile();
        let body = json!({ "RMediaState": "Enable" });
        let collection = found.identity.media.as_deref().unwrap_or_default();
        // It changes the collection, whose slots are read below, and not the system.
        let call = Call::mutation(OPERATION, Method::POST, target, profile.mutation_timeout)
            .body(&body)
            .touching(collection);
        let response = core.perform(&call, 1).await?;
        if !response.status.is_success() {
            return Err(core.refusal(OPERATION, &response, &[]));
        }
        core.follow(OPERATION, &response, &[]).await?;
        let mut slots = Vec::new();
        for _ in 0..MAX_POLLS {
            sleep(AFTER_ENABLE).await;
            slots = core.slots_in(collection, &profile).await.map_err(mark_maybe_applied)?;
            core.disable_forbidden_slots(&mut slots, &profile);
            if slots.iter().any(Slot::takes_media) {
                break;
            }
        }
        let confirmed = slots.iter().any(Slot::takes_media);
        Ok(ChangeResult { changed: true, confirmed, observed: slots })
    }
}

impl Core {
    /// Reads the single slot of a BMC with the `IsoConfig` resource; `None` when the resource does not exist.
    pub(crate) async fn config_slot(
        &self,
        operation: Operation,
        path: &str,
    ) -> Result<Option<Slot>, RedfishError> {
        match self.read(operation, path).await {
            Ok(resource) => self.complete_config_slot(operation, &resource, false).await.map(Some),
            Err(error) if matches!(error.kind, ErrorKind::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Builds the slot from the configured image and the mounted image. `from_cache`: the configured image comes from the
    /// cache, so the mounted one may too.
    pub(crate) async fn complete_config_slot(
        &self,
        operation: Operation,
        config: &Resource,
        from_cache: bool,
    ) -> Result<Slot, RedfishError> {
        let mut slot = Slot::of(config, &self.profile());
        let path = mounted_path(&config.path);
        let read = match from_cache {
            true => self.cached(operation, &path).await,
            false => self.read(operation, &path).await,
        };
        let mounted = match read {
            Ok(mounted) => Some(Slot::of(&mounted, &self.profile())),
            Err(error) if matches!(error.kind, ErrorKind::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let (host, path) = (json::word(&config.fields, "Host"), json::word(&config.fields, "Path"));
        let configured = host.zip(path).map(|(host, path)| ImageUrl(format!("{host}{path}")));
        let empty = mounted.as_ref().is_none_or(Slot::is_empty);
        slot.inserted = Some(!empty);
        // After an unmount the BMC still shows the old host and path; they are ignored.
        slot.image = mounted.and_then(|slot| slot.image).or(configured).filter(|_| !empty);
        if slot.media_types.is_empty() {
            slot.media_types = vec!["CD".to_owned()];
        }
        Ok(slot)
    }

    /// Unmounts the present image, configures the new one, and mounts it.
    pub(crate) async fn mount_config(
        &self,
        config: &Resource,
        slot: &Slot,
        mount: &str,
        url: &str,
    ) -> Result<BmcResponse, RedfishError> {
        const OPERATION: Operation = Operation::Insert;
        let profile = self.profile();
        let changed = config.path.as_str();
        // These requests change the configured and the mounted image and nothing else.
        self.cache.remove(Some(&mounted_path(changed)));
        let post = async |target: &str, body: Option<&serde_json::Value>| {
            let call =
                Call::mutation(OPERATION, Method::POST, target, profile.insert_timeout).touching(changed);
            self.perform(&if let Some(body) = body { call.body(body) } else { call }, 1).await
        };
        if let Some(unmount) = slot.eject.as_deref().filter(|_| !slot.is_empty()) {
            let response = post(unmount, None).await?;
            if !response.status.is_success() {
                return Ok(response);
            }
            sleep(AFTER_UNMOUNT).await;
        }
        let Some((host, path)) = split(url) else {
            let detail = "media URL: not an absolute URL".to_owned();
            return Err(RedfishError::new(OPERATION, ErrorKind::Config { detail }));
        };
        let body = json!({ "Host": host, "Path": path, "Username": "", "Password": "" });
        let response = self.patch(OPERATION, config, &body, profile.mutation_timeout, Some(changed)).await?;
        if !response.status.is_success() {
            return Ok(response);
        }
        sleep(AFTER_CONFIG).await;
        post(mount, Some(&json!({}))).await
    }
}

/// Path of the resource that shows the mounted image, beside the one in which it is configured.
fn mounted_path(config: &str) -> String {
    let folder = config.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/CD1")
}

/// Splits a URL into scheme with authority, and path.
fn split(url: &str) -> Option<(String, String)> {
    let parsed = Url::parse(url).ok()?;
    let path = parsed.path().to_owned();
    let host = url.strip_suffix(path.as_str())?;
    Some((host.to_owned(), path))
}
