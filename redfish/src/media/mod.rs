//! Virtual media slots: reading them, inserting and ejecting images.
//!
//! ```text
//!   insert(slot, url)   read slot; holds this URL already? nothing is sent
//!                       POST InsertMedia {"Image": url} -> a 400/415 that names a member adds it to the body or
//!                         removes it: TransferProtocolType, TransferMethod, Inserted + WriteProtected, placeholders
//!                       no action, or 405/501: PATCH {"Image", "Inserted", "WriteProtected"} -> … -> {"Image"}
//!                       or an OEM mechanism (profile, vm_method)
//!                       202: before a pause (profile, settle_after_mount) read the slot, and be done if it shows the image;
//!                         else follow the task;  read back -> ChangeResult { changed, confirmed, observed: Slot }
//!   eject(slot)         read slot; empty? nothing is sent
//!                       POST EjectMedia {} -> without body; or PATCH {"Image": null, "Inserted": false}
//!                       read back; refused, but the slot is empty: success
//! ```
//!
//! A slot is empty when it shows `Inserted: false` and either `ConnectedVia: NotConnected` or no image: BMCs keep
//! the old URL after an eject. An insert does not eject: the caller decides about an image in the slot. A
//! confirmed insert means that the BMC shows the image, not that the host can read it; the range reads at the
//! media server prove that. Specification: DSP0268 VirtualMedia.

mod eject;
mod insert;
pub(crate) mod oem;
mod slot;

use url::Url;

pub use self::insert::InsertOptions;
pub use self::slot::{ImageUrl, InsertVia, Slot};

use crate::bmc::Bmc;
use crate::discovery::Discovery;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::profile::{MediaMethod, Profile};

/// Maximum length of a media URL; some BMCs cut or refuse longer ones.
const MAX_URL: usize = 255;

impl Bmc {
    /// Reads a slot.
    ///
    /// # Errors
    ///
    /// When the slot cannot be read.
    pub async fn slot(&self, uri: &str) -> Result<Slot, RedfishError> {
        self.core.slot(Operation::Slot, uri).await.map(|(_, slot)| slot)
    }

    /// Reads slots, in one request where the BMC supports `$expand`.
    ///
    /// # Errors
    ///
    /// When one of the slots cannot be read.
    pub async fn slots(&self, found: &Discovery, uris: &[String]) -> Result<Vec<Slot>, RedfishError> {
        let core = &self.core;
        let expanded = found.media_collection.as_deref().filter(|_| uris.len() > 1 && core.expands());
        if let Some(collection) = expanded {
            uris.iter().for_each(|uri| core.cache.remove(Some(uri)));
            core.members(Operation::Slot, collection).await?;
        }
        let mut slots = Vec::new();
        for uri in uris {
            slots.push(match expanded {
                Some(_) => self.slot_cached(uri).await?,
                None => self.slot(uri).await?,
            });
        }
        Ok(slots)
    }

    /// Returns a slot from the cache, or reads it.
    ///
    /// # Errors
    ///
    /// When the slot cannot be read.
    pub async fn slot_cached(&self, uri: &str) -> Result<Slot, RedfishError> {
        self.core.slot_cached(Operation::Slot, uri).await.map(|(_, slot)| slot)
    }
}

impl Core {
    /// Reads a slot on the wire.
    pub(crate) async fn slot(
        &self,
        operation: Operation,
        uri: &str,
    ) -> Result<(Resource, Slot), RedfishError> {
        self.slot_of(operation, self.read(operation, uri).await?, false).await
    }

    /// Reads a slot before a mutation; a cached slot is used only if `needs_change` holds for it.
    pub(crate) async fn slot_for_update(
        &self,
        operation: Operation,
        uri: &str,
        needs_change: impl Fn(&Slot) -> bool,
    ) -> Result<(Resource, Slot), RedfishError> {
        if self.cache.get(uri).is_some() {
            let known = self.slot_cached(operation, uri).await?;
            if needs_change(&known.1) {
                return Ok(known);
            }
        }
        self.slot(operation, uri).await
    }

    async fn slot_cached(&self, operation: Operation, uri: &str) -> Result<(Resource, Slot), RedfishError> {
        match self.cache.get(uri) {
            Some(resource) => self.slot_of(operation, resource, true).await,
            None => self.slot(operation, uri).await,
        }
    }

    async fn slot_of(
        &self,
        operation: Operation,
        resource: Resource,
        from_cache: bool,
    ) -> Result<(Resource, Slot), RedfishError> {
        let profile = self.profile();
        let configured = json::oem_action(&resource.fields, "IsoConfig.Mount").is_some();
        if configured && profile.vm_method == MediaMethod::IsoConfigAction {
            let slot = self.complete_config_slot(operation, &resource, from_cache).await?;
            return Ok((resource, slot));
        }
        let slot = Slot::of(&resource, &profile);
        Ok((resource, slot))
    }
}

/// Returns the scheme of a media URL in upper case, if the profile allows the scheme, the port and the form of the URL.
pub(crate) fn scheme_of(operation: Operation, profile: &Profile, url: &str) -> Result<String, RedfishError> {
    let refuse = |detail: &str| {
        let kind = ErrorKind::Config { detail: format!("media URL: {detail}") };
        Err(RedfishError::new(operation, kind))
    };
    if url.len() > MAX_URL {
        return refuse("longer than 255 bytes");
    }
    let Some(parsed) = Url::parse(url).ok().filter(Url::has_host) else {
        return refuse("not an absolute URL");
    };
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return refuse("it has a query or fragment, which some BMCs refuse");
    }
    let scheme = parsed.scheme();
    let port = parsed.port_or_known_default();
    if !profile.url_schemes.iter().any(|known| known == scheme) {
        let reads = profile.url_schemes.join(" or ");
        let kind = ErrorKind::MediaUrl { reads, served: scheme.to_owned() };
        return Err(RedfishError::new(operation, kind));
    }
    if profile.url_port != 0 && port != Some(profile.url_port) {
        let reads = format!("port {}", profile.url_port);
        let served = port.map_or("no port".to_owned(), |port| format!("port {port}"));
        return Err(RedfishError::new(operation, ErrorKind::MediaUrl { reads, served }));
    }
    Ok(scheme.to_ascii_uppercase())
}

/// The segments of a URL's path, which may contain a grant and must not be shown.
fn path_words(url: &str) -> Vec<&str> {
    let path =
        url.split_once("://").map_or(url, |(_, rest)| rest).split_once('/').map_or("", |(_, path)| path);
    path.split('/').filter(|word| word.len() >= 8).collect()
}
