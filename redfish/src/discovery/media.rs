//! The slots of a host: which tree they are in, which of them may be used, and what has to be switched on first.

use super::{OPERATION, is_absent};
use crate::error::{ErrorKind, RedfishError};
use crate::exchange::Core;
use crate::json::{self, Resource};
use crate::media::{InsertVia, Slot, oem};
use crate::profile::{MediaCollection, MediaMethod, Profile};

const MAX_SLOTS: usize = 16;

/// What is known of virtual media.
#[derive(Default)]
pub(super) struct Media {
    pub(super) slots: Vec<Slot>,
    pub(super) collection: Option<String>,
    pub(super) pre: Option<String>,
    pub(super) licence_missing: Option<String>,
}

impl Core {
    /// The slots of the first place that has any which take media; else of the first that has any.
    pub(super) async fn media(
        &self,
        system: &Resource,
        managers: &[Resource],
    ) -> Result<Media, RedfishError> {
        let profile = self.profile();
        let mut homes: Vec<&Resource> = managers.iter().collect();
        match profile.vm_path {
            MediaCollection::System => homes.insert(0, system),
            MediaCollection::Manager => homes.push(system),
        }
        let mut collections: Vec<String> = Vec::new();
        let mut media = Media::default();
        for home in homes {
            let Some(collection) = json::link(&home.fields, "VirtualMedia") else { continue };
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
            self.close_forbidden(&mut slots, &profile);
            let useful = slots.iter().any(Slot::takes_media);
            if useful || media.slots.is_empty() {
                media.slots = slots;
                media.collection = Some(collection.clone());
            }
            collections.push(collection);
            if useful {
                media.licence_missing = None;
                return Ok(media);
            }
        }
        media.pre = managers.iter().find_map(|manager| oem::pre_action(&profile, manager));
        Ok(media)
    }

    /// The slots of one collection; one that fails is left out.
    pub(crate) async fn slots_in(
        &self,
        collection: &str,
        profile: &Profile,
    ) -> Result<Vec<Slot>, RedfishError> {
        // Newer firmware of the same boards has slots by the book in its place.
        if profile.vm_method == MediaMethod::SmcCfgCd
            && let Some(slot) = self.config_slot(OPERATION, &oem::config_path(collection)).await?
        {
            return Ok(vec![slot]);
        }
        let members = self.members(OPERATION, collection).await?;
        let mut slots = Vec::new();
        for member in members.into_iter().take(MAX_SLOTS) {
            // What came with the collection lacks the header that says whether PATCH is allowed; a profile may know.
            let patched = profile.vm_method == MediaMethod::Patch;
            let told =
                |resource: &Resource| patched || Slot::of(resource, profile).insert != InsertVia::Patch;
            let resource = match member.resource.filter(told) {
                Some(resource) => Some(resource),
                None => self.read_optional(&member.path).await?,
            };
            slots.extend(resource.as_ref().map(|resource| Slot::of(resource, profile)));
        }
        Ok(slots)
    }

    /// Closes slots that may not be used. A list of allowed slots of which none is there is not obeyed.
    pub(crate) fn close_forbidden(&self, slots: &mut [Slot], profile: &Profile) {
        let refusing = self.choice.learned().refusing_slots;
        let listed = |slot: &Slot| profile.slot_allow.iter().any(|pattern| fits(pattern, &slot.id));
        let allowing = slots.iter().any(listed);
        for slot in slots {
            let denied = profile.slot_deny.iter().any(|pattern| fits(pattern, &slot.id));
            if denied || (allowing && !listed(slot)) || refusing.contains(&slot.uri) {
                slot.insert = InsertVia::Nothing;
            }
        }
    }
}

/// Whether an id fits a pattern: the same word, or the same begin when the pattern ends with `*`.
fn fits(pattern: &str, id: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => id.get(..begin.len()).is_some_and(|head| head.eq_ignore_ascii_case(begin)),
        None => id.eq_ignore_ascii_case(pattern),
    }
}
