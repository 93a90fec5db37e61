//! Discovers the host of a BMC, its manager and its slots, by following links.
//!
//! ```text
//!   /redfish/v1/ -> Systems -> the host -> Links.ManagedBy (else Managers) -> the manager
//!        |                        `------------- VirtualMedia -----------------'  the profile says which one
//!        `-> profile (by the root)                   `-> slots                   is read first
//!                                    profile (by root, system and manager) ----'
//! ```
//!
//! One BMC often shows several systems (accelerator boards are systems too). The host is the system with the
//! expected serial number or service tag, else the one the profile names, else the only one that can be reset,
//! shows a boot override and has a manager. A host without a serial number gets that of its chassis. Slots linked
//! from both the system and the manager are read once. Reading is tolerant: a missing property is `None`, a slot
//! that cannot be read is left out, and so is a system if another one is the host. Nothing is changed.
//! Specification: DSP0266 6.2 (service root), DSP0268.

mod found;
mod host;
mod media;

pub(crate) use self::found::reset_types;
pub use self::found::{Discovery, ManagerInfo, ResetAction, SerialMatch, SystemInfo, SystemSelector};

use serde_json::Map;

use crate::attributes;
use crate::bmc::Bmc;
use crate::collection;
use crate::endpoint::SERVICE_ROOT;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::media::{Slot, scheme_of};
use crate::profile::BmcIdentity;
use crate::version::FirmwareVersion;

const OPERATION: Operation = Operation::Discover;

impl Bmc {
    /// Discovers the host, its manager and its slots, and chooses the profile. Sends no mutation except a login.
    ///
    /// # Errors
    ///
    /// When a required resource cannot be read, or when it is not certain which system is the host (`Config`).
    pub async fn discover(&self, selector: &SystemSelector) -> Result<Discovery, RedfishError> {
        let core = &self.core;
        let root = core.service_root().await?;
        core.active_profile.identify(&identity_of(&root));
        let system = core.find_system(&root, selector).await?;
        let mut info = SystemInfo::of(&system, &core.profile());
        core.complete_serial(&system, &mut info, selector).await?;
        let managers = core.managers(&root, &system).await?;
        let manager = managers.first().map(|manager| ManagerInfo {
            uri: manager.path.clone(),
            model: json::word(&manager.fields, "Model"),
            firmware: json::word(&manager.fields, "FirmwareVersion").map(FirmwareVersion::from),
            date_time: json::word(&manager.fields, "DateTime"),
            attributes: attributes::linked(manager),
        });
        let mut identity = identity_of(&root);
        identity.vendor = identity.vendor.or_else(|| info.manufacturer.clone());
        identity.manufacturer = info.manufacturer.clone();
        identity.model = info.model.clone();
        identity.manager = manager.as_ref().and_then(|manager| manager.model.clone());
        identity.firmware = manager.as_ref().and_then(|manager| manager.firmware.clone());
        identity.media = managers.first().and_then(|manager| json::link(&manager.fields, "VirtualMedia"));
        core.active_profile.identify(&identity);
        core.active_profile.learn(|learned| learned.on_firmware(identity.firmware.as_ref()));
        // The system was read under the profile that the service root alone led to.
        info.judge_sku(&core.profile());
        let media = core.media(&system, &managers).await?;
        let media_detached = core.detaching_attribute(manager.as_ref()).await?;
        Ok(Discovery {
            identity,
            redfish_version: json::word(&root.fields, "RedfishVersion"),
            system: info,
            manager,
            slots: media.slots,
            media_collection: media.collection,
            profile: self.profile().name.to_owned(),
            media_prepare: media.pre,
            media_detached,
            licence_missing: media.licence_missing,
        })
    }

    /// Restores the profile chosen by an earlier discovery, in a process that has not discovered the BMC.
    pub fn recall(&self, discovery: &Discovery) {
        self.core.active_profile.identify(&discovery.identity);
        let firmware = discovery.identity.firmware.as_ref();
        self.core.active_profile.learn(|learned| learned.on_firmware(firmware));
    }

    /// Checks every obstacle to a job that is known before anything is changed, with media served under `media_url`.
    ///
    /// # Errors
    ///
    /// The first obstacle found, as one sentence with the next action.
    pub fn check(&self, found: &Discovery, media_url: &str) -> Result<(), RedfishError> {
        let profile = self.profile();
        let fail = |kind| Err(RedfishError::new(OPERATION, kind));
        if !profile.unsupported.is_empty() {
            return fail(ErrorKind::Unsupported { profile: profile.name, why: profile.unsupported.clone() });
        }
        if let Some(message) = &found.licence_missing {
            return fail(ErrorKind::License { message: message.clone() });
        }
        if let Some(attribute) = &found.media_detached {
            return fail(ErrorKind::MediaDetached { attribute: attribute.clone() });
        }
        if found.slots.is_empty() && found.media_prepare.is_none() {
            let detail = "neither the system nor its manager shows a slot".to_owned();
            return fail(ErrorKind::NoVirtualMedia { detail });
        }
        if found.media_prepare.is_none() && !found.slots.iter().any(Slot::takes_media) {
            let ids: Vec<&str> = found.slots.iter().map(|slot| slot.id.as_str()).take(16).collect();
            let detail = format!("none of its slots ({}) accepts an image", ids.join(", "));
            return fail(ErrorKind::NoVirtualMedia { detail });
        }
        if found.system.reset.is_none() {
            return Err(RedfishError::not_supported(OPERATION, "the system has no Reset action"));
        }
        scheme_of(OPERATION, &profile, media_url).map(drop)
    }
}

impl Core {
    /// Returns the service root: the one read at login if it was complete, else a read.
    async fn service_root(&self) -> Result<Resource, RedfishError> {
        self.request_auth().await?;
        let stored = self.root.lock().clone();
        match stored {
            Some(root) if root.fields.contains_key("Systems") => Ok(root),
            _ => self.read(OPERATION, SERVICE_ROOT).await.map(|root| self.store_root(root)),
        }
    }

    /// Stores the service root and chooses a first profile by it, before the login.
    pub(crate) fn store_root(&self, root: Resource) -> Resource {
        if self.expand.get().is_none() {
            self.active_profile.suppose(&identity_of(&root));
            // A concurrent request may have set it first, to an equal value.
            let _first = self.expand.set(collection::offered(&root.fields));
        }
        self.root.lock().get_or_insert_with(|| root.clone());
        root
    }
}

/// The identity as far as the service root shows it.
fn identity_of(root: &Resource) -> BmcIdentity {
    let oem = json::member(&root.fields, "Oem").into_iter().flat_map(Map::keys);
    BmcIdentity {
        vendor: json::word(&root.fields, "Vendor"),
        product: json::word(&root.fields, "Product"),
        oem: oem.take(8).map(|name| json::clip(name, json::MAX_TEXT)).collect(),
        ..BmcIdentity::default()
    }
}

/// Whether the error means that the BMC does not have the resource or cannot show it.
fn is_absent(error: &RedfishError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound { .. }
            | ErrorKind::NotSupported { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::License { .. }
            | ErrorKind::Server { .. }
    )
}

impl Core {
    /// Reads an optional resource; `None` when the BMC does not have it or cannot show it.
    async fn read_optional(&self, path: &str) -> Result<Option<Resource>, RedfishError> {
        match self.read(OPERATION, path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
