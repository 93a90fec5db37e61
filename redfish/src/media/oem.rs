//! What vendors have in place of slots, or in front of them.
//!
//! ```text
//!   IsoConfig   <collection>/CfgCD {Host, Path, Actions: Mount, UnMount}    what is to be mounted
//!               <collection>/CD1   {Inserted, ConnectedVia}; absent: empty  what is mounted
//!               UnMount -> 2 s -> PATCH {"Host": "http://ip", "Path": "/t…/boot.iso", …} -> 3 s -> Mount
//!   RMedia      <manager>/Actions/Oem/AMIVirtualMedia.EnableRMedia {"RMediaState": "Enable"} -> 5 s -> slots
//! ```
//!
//! The two paths are the only ones that are built and not followed: no resource links to them on all firmware.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::sleep;
use url::Url;

use super::{ImageUrl, Slot};
use crate::bmc::{Applied, Bmc};
use crate::discovery::Discovery;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::{Answer, Call, Core};
use crate::json::{self, Resource};
use crate::power::mark_maybe_applied;
use crate::profile::{MediaPrepare, Profile};

/// After an unmount the old image is still held for a moment.
const AFTER_UNMOUNT: Duration = Duration::from_secs(2);
/// A mount right after the change mounts the image before.
const AFTER_CONFIG: Duration = Duration::from_secs(3);
/// Slots appear so long after remote media was enabled.
const AFTER_ENABLE: Duration = Duration::from_secs(5);
/// So often slots are looked for then.
const LOOKS: u32 = 4;

/// Where the image of a collection is configured.
pub(crate) fn config_path(collection: &str) -> String {
    format!("{}/CfgCD", collection.trim_end_matches('/'))
}

/// What has to be sent to a manager before its slots take media.
pub(crate) fn pre_action(profile: &Profile, manager: &Resource) -> Option<String> {
    match profile.vm_pre {
        MediaPrepare::Nothing => None,
        MediaPrepare::AmiEnableRMedia => {
            let built =
                || format!("{}/Actions/Oem/AMIVirtualMedia.EnableRMedia", manager.path.trim_end_matches('/'));
            Some(json::oem_action(&manager.fields, "AMIVirtualMedia.EnableRMedia").unwrap_or_else(built))
        }
    }
}

impl Bmc {
    /// Switches virtual media on where discovery found that it must be, and shows the slots there are then.
    /// Without need nothing is sent.
    pub async fn prepare_media(&self, found: &Discovery) -> Result<Applied<Vec<Slot>>, RedfishError> {
        const OPERATION: Operation = Operation::PrepareMedia;
        let core = &self.core;
        let Some(target) = &found.media_prepare else {
            return Ok(Applied { changed: false, confirmed: true, observed: found.slots.clone() });
        };
        let profile = core.profile();
        let body = json!({ "RMediaState": "Enable" });
        let call = Call::mutation(OPERATION, Method::POST, target, profile.mutation_timeout).body(&body);
        let answer = core.perform(&call, 1).await?;
        if !answer.status.is_success() {
            return Err(core.refusal(OPERATION, &answer, &[]));
        }
        core.follow(OPERATION, &answer, &[]).await?;
        let collection = found.identity.media.as_deref().unwrap_or_default();
        let mut slots = Vec::new();
        for _ in 0..LOOKS {
            sleep(AFTER_ENABLE).await;
            slots = core.slots_in(collection, &profile).await.map_err(mark_maybe_applied)?;
            core.close_forbidden(&mut slots, &profile);
            if slots.iter().any(Slot::takes_media) {
                break;
            }
        }
        let confirmed = slots.iter().any(Slot::takes_media);
        Ok(Applied { changed: true, confirmed, observed: slots })
    }
}

impl Core {
    /// The one slot of a BMC with an `IsoConfig`, if it has one.
    pub(crate) async fn config_slot(
        &self,
        operation: Operation,
        path: &str,
    ) -> Result<Option<Slot>, RedfishError> {
        match self.read(operation, path).await {
            Ok(resource) => self.complete_config_slot(operation, &resource).await.map(Some),
            Err(error) if matches!(error.kind, ErrorKind::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Joins what is configured with what is mounted.
    pub(crate) async fn complete_config_slot(
        &self,
        operation: Operation,
        config: &Resource,
    ) -> Result<Slot, RedfishError> {
        let mut slot = Slot::of(config, &self.profile());
        let folder = config.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mounted = match self.read(operation, &format!("{folder}/CD1")).await {
            Ok(mounted) => Some(Slot::of(&mounted, &self.profile())),
            Err(error) if matches!(error.kind, ErrorKind::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let (host, path) = (json::word(&config.fields, "Host"), json::word(&config.fields, "Path"));
        let configured = host.zip(path).map(|(host, path)| ImageUrl(format!("{host}{path}")));
        let empty = mounted.as_ref().is_none_or(Slot::is_empty);
        slot.inserted = Some(!empty);
        // The old host and path stay after an unmount and say nothing then.
        slot.image = mounted.and_then(|slot| slot.image).or(configured).filter(|_| !empty);
        if slot.media_types.is_empty() {
            slot.media_types = vec!["CD".to_owned()];
        }
        Ok(slot)
    }

    /// Unmounts what is there, says what is to be mounted, and mounts it.
    pub(crate) async fn mount_config(
        &self,
        config: &Resource,
        slot: &Slot,
        mount: &str,
        url: &str,
    ) -> Result<Answer, RedfishError> {
        const OPERATION: Operation = Operation::Insert;
        let profile = self.profile();
        let post = async |target: &str, body: Option<&serde_json::Value>| {
            let call = Call::mutation(OPERATION, Method::POST, target, profile.insert_timeout);
            self.perform(&if let Some(body) = body { call.body(body) } else { call }, 1).await
        };
        if let Some(unmount) = slot.eject.as_deref().filter(|_| !slot.is_empty()) {
            let answer = post(unmount, None).await?;
            if !answer.status.is_success() {
                return Ok(answer);
            }
            sleep(AFTER_UNMOUNT).await;
        }
        let Some((host, path)) = split(url) else {
            let detail = "media URL: not an absolute URL".to_owned();
            return Err(RedfishError::new(OPERATION, ErrorKind::Config { detail }));
        };
        let body = json!({ "Host": host, "Path": path, "Username": "", "Password": "" });
        let answer = self.patch(OPERATION, config, &body, profile.mutation_timeout, None).await?;
        if !answer.status.is_success() {
            return Ok(answer);
        }
        sleep(AFTER_CONFIG).await;
        post(mount, Some(&json!({}))).await
    }
}

/// Scheme and authority of a URL, and its path.
fn split(url: &str) -> Option<(String, String)> {
    let parsed = Url::parse(url).ok()?;
    let path = parsed.path().to_owned();
    let host = url.strip_suffix(path.as_str())?;
    Some((host.to_owned(), path))
}
