//! Finds the slots of a host: their collection, the usable ones, and the feature that must be enabled first.

use super::{ManagerInfo, OPERATION, is_absent};
use crate::collection::Member;
use crate::error::{ErrorKind, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource, last_segment};
use crate::media::{InsertVia, Slot, oem};
use crate::profile::{MediaCollection, MediaMethod, Profile};

const MAX_SLOTS: usize = 16;
/// Value of an attach attribute with which the host sees no virtual media.
const DETACHED: &str = "Detached";

/// Result of the search for virtual media.
#[derive(Default)]
pub(super) struct Media {
    pub(super) slots: Vec<Slot>,
    pub(super) collection: Option<String>,
    pub(super) pre: Option<String>,
    pub(super) licence_missing: Option<String>,
}

impl Core {
    /// Returns the slots of the first collection with a usable slot, else of the first collection with any slot.
    pub(super) async fn media(
        &self,
        system: &Resource,
        managers: &[Resource],
    ) -> Result<Media, RedfishError> {
        let profile = self.profile();
        let mut owners: Vec<&Resource> = managers.iter().collect();
        match profile.vm_path {
            MediaCollection::System => owners.insert(0, system),
            MediaCollection::Manager => owners.push(system),
        }
        let mut collections: Vec<String> = Vec::new();
        let mut media = Media::default();
        for owner in owners {
            let Some(collection) = json::link(&owner.fields, "VirtualMedia") else { continue };
            if collections.contains(&collection) {
                continue;
            }
            let mut slots = match self.slots_in(&collection, &profile).await {
                Ok(slots) => slots,
                Err(error) if is_absent(&error) => {
                    if let ErrorKind::License { message } = error.kind {
                        media.licence_missing.get_or_insert(message);
                    }
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            self.disable_forbidden_slots(&mut slots, &profile);
            let usable = slots.iter().any(Slot::takes_media);
            if usable || media.slots.is_empty() {
                media.slots = slots;
                media.collection = Some(collection.clone());
            }
            collections.push(collection);
            if usable {
                media.licence_missing = None;
                return Ok(media);
            }
        }
        media.pre = managers.iter().find_map(|manager| oem::pre_action(&profile, manager));
        Ok(media)
    }

    /// Returns the attribute of the manager that keeps inserted media from the host, if the profile names one and it
    /// does. Such a BMC accepts every insert.
    pub(super) async fn detaching_attribute(
        &self,
        manager: Option<&ManagerInfo>,
    ) -> Result<Option<String>, RedfishError> {
        let profile = self.profile();
        let Some(manager) = manager.filter(|_| !profile.attach_attribute.is_empty()) else { return Ok(None) };
        let attributes = match self.attributes(OPERATION, &manager.attributes_path(), true).await {
            Ok(attributes) => attributes,
            Err(error) if error.is_transient() => return Err(error),
            // An account that may not read the settings of the manager may still use virtual media.
            Err(_) => None,
        };
        let value = attributes.and_then(|attributes| json::word(&attributes, &profile.attach_attribute));
        let detached = value.is_some_and(|value| value.eq_ignore_ascii_case(DETACHED));
        Ok(detached.then(|| profile.attach_attribute.clone()))
    }

    /// Reads the slots of one collection; a slot that cannot be read is left out.
    pub(crate) async fn slots_in(
        &self,
        collection: &str,
        profile: &Profile,
    ) -> Result<Vec<Slot>, RedfishError> {
        // Newer firmware of such boards has standard slots instead of the `IsoConfig` resource.
        if profile.vm_method == MediaMethod::IsoConfigAction
            && let Some(slot) = self.config_slot(OPERATION, &oem::config_path(collection)).await?
        {
            return Ok(vec![slot]);
        }
        let members = self.members(OPERATION, collection).await?;
        // Slots whose path already says that they may not be used are not read.
        let allowing = members.iter().any(|member| listed(&profile.slot_allow, last_segment(&member.path)));
        let may_be_used = |member: &Member| {
            let id = last_segment(&member.path);
            !listed(&profile.slot_deny, id) && (!allowing || listed(&profile.slot_allow, id))
        };
        let mut slots = Vec::new();
        for member in members.into_iter().filter(may_be_used).take(MAX_SLOTS) {
            // A member read with the collection lacks its `Allow` header, which shows whether PATCH is allowed. It is read
            // again unless the slot has an action or the profile uses PATCH.
            let patched = profile.vm_method == MediaMethod::Patch;
            let complete =
                |resource: &Resource| patched || Slot::of(resource, profile).insert != InsertVia::Patch;
            let resource = match member.resource.filter(complete) {
                Some(resource) => Some(resource),
                None => self.read_optional(&member.path).await?,
            };
            slots.extend(resource.as_ref().map(|resource| Slot::of(resource, profile)));
        }
        Ok(slots)
    }

    /// Marks slots that may not be used as unusable. If no slot matches `slot_allow`, that list is ignored.
    pub(crate) fn disable_forbidden_slots(&self, slots: &mut [Slot], profile: &Profile) {
        let refusing = self.active_profile.learned().refusing_slots;
        let allowing = slots.iter().any(|slot| listed(&profile.slot_allow, &slot.id));
        for slot in slots {
            let denied = listed(&profile.slot_deny, &slot.id);
            if denied || (allowing && !listed(&profile.slot_allow, &slot.id)) || refusing.contains(&slot.uri)
            {
                slot.insert = InsertVia::Nothing;
            }
        }
    }
}

/// Whether an id matches one of the patterns.
fn listed(patterns: &[String], id: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, id))
}

/// Whether an id matches a pattern: equal, or with this prefix when the pattern ends with `*`.
fn matches(pattern: &str, id: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => id.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix)),
        None => id.eq_ignore_ascii_case(pattern),
    }
}
