//! Which firmware of a BMC's inventory belongs to which component. Pure.
//!
//! ```text
//!   member of the inventory                           component            by
//!   "System ROM", id 2                                bios                 the words of firmware/components.txt in its name
//!   "Management controller", related to a Manager     bmc                  the resource that it is related to
//!   "Software Inventory", related to Systems/…/Bios   bios                 the resource that it is related to
//!   "UEFI-Backup", "Previous-159-…"                   none                 it is stored, and does not run
//! ```
//!
//! A server has one running BMC firmware and one running BIOS. Of several members that look like one, the member wins whose
//! version the manager or the system itself shows ([`running`] says the same of one component). The ids of some BMCs contain the
//! version and change with it; [`Installed::id`] is the id without the version.
//!
//! Invariants: no two entries have the same component and id; the result does not depend on the order of the members; an inventory
//! that was stored and read again has the same components.

use std::collections::BTreeSet;

use redfish::{Discovery, FirmwareVersion, Hardware, SoftwareItem};

use crate::catalogue::component_of;
use crate::identity::{Component, Model, Vendor};
use crate::plan::{Installed, ServerFirmware};
use crate::version::{VersionOrder, compare};

/// Words in the id or name of an image that is stored and does not run.
const STORED: [&str; 10] = [
    "backup",
    "golden",
    "recovery",
    "redundant",
    "staged",
    "pending",
    "previous",
    "available-",
    "rollback",
    "secondary",
];

/// One member of a firmware inventory.
#[derive(Clone, Debug, Default)]
pub struct ShownFirmware {
    /// The path of the member; `None` when an earlier version of the program stored it.
    pub uri: Option<String>,
    /// The `Id` of the member.
    pub id: String,
    /// The `Name` of the member.
    pub name: Option<String>,
    /// The `Version` of the member.
    pub version: Option<FirmwareVersion>,
    /// The `Updateable` of the member.
    pub updateable: Option<bool>,
    /// The `Manufacturer` of the member.
    pub manufacturer: Option<String>,
    /// Paths of the resources that run this firmware.
    pub related: Vec<String>,
    /// Whether the BMC shows the firmware as running.
    pub active: bool,
}

impl From<&SoftwareItem> for ShownFirmware {
    fn from(item: &SoftwareItem) -> Self {
        Self {
            uri: Some(item.uri.clone()).filter(|uri| !uri.is_empty()),
            id: item.id.clone(),
            name: item.name.clone(),
            version: item.version.clone(),
            updateable: item.updateable,
            manufacturer: item.manufacturer.clone(),
            related: item.related.clone(),
            active: item.is_active(),
        }
    }
}

/// The versions that the manager and the system show themselves.
#[derive(Clone, Debug, Default)]
pub struct OwnVersions {
    /// The version of the BMC.
    pub bmc: Option<FirmwareVersion>,
    /// The version of the BIOS.
    pub bios: Option<FirmwareVersion>,
}

impl From<&Discovery> for OwnVersions {
    fn from(found: &Discovery) -> Self {
        Self {
            bmc: found.manager.as_ref().and_then(|manager| manager.firmware.clone()),
            bios: found.system.bios_version.clone(),
        }
    }
}

impl OwnVersions {
    /// The version of a component of which each server has one; `None` for a device.
    pub fn of(&self, component: Component) -> Option<&FirmwareVersion> {
        match component {
            Component::Bmc => self.bmc.as_ref(),
            Component::Bios => self.bios.as_ref(),
            _ => None,
        }
    }
}

impl ServerFirmware {
    /// The firmware in an inventory, read now or stored; `None` when it does not show vendor and model.
    pub fn of(hardware: &Hardware) -> Option<Self> {
        let shown: Vec<ShownFirmware> = hardware.firmware.iter().map(ShownFirmware::from).collect();
        let own = OwnVersions {
            bmc: hardware.manager.firmware_version.clone(),
            bios: hardware.system.bios_version.as_deref().map(Into::into),
        };
        let system = &hardware.system;
        let named = (system.manufacturer.as_deref(), system.model.as_deref());
        Self::of_shown((&shown, hardware.unread_firmware()), &own, named).ok()
    }

    /// The firmware that a BMC shows and the number of members that could not be read, with the versions, the manufacturer and the
    /// model that its manager and its system show.
    ///
    /// # Errors
    /// Returns the name of what is missing, or is no name: the manufacturer or the model.
    pub fn of_shown(
        (shown, unread): (&[ShownFirmware], usize),
        own: &OwnVersions,
        (manufacturer, model): (Option<&str>, Option<&str>),
    ) -> Result<Self, &'static str> {
        Ok(Self {
            vendor: manufacturer.and_then(|text| text.parse().ok()).ok_or("manufacturer")?,
            model: model.and_then(|text| text.parse().ok()).ok_or("model")?,
            installed: recognise(shown, own).into_iter().map(|one| one.installed).collect(),
            unread,
        })
    }
}

/// A recognised firmware with the path under which it is updated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recognised {
    /// The installed firmware.
    pub installed: Installed,
    /// The path of its member in the inventory, which an update may name as its target.
    pub uri: Option<String>,
}

/// Recognises the members of an inventory, in the order of components and ids.
pub fn recognise(shown: &[ShownFirmware], own: &OwnVersions) -> Vec<Recognised> {
    let mut found: Vec<(Component, &ShownFirmware)> =
        shown.iter().filter_map(|item| component(item).map(|component| (component, item))).collect();
    found.sort_by(|a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
    keep_one(&mut found, Component::Bmc, own);
    keep_one(&mut found, Component::Bios, own);
    let mut taken: BTreeSet<(Component, String)> = BTreeSet::new();
    let mut all: Vec<Recognised> = Vec::new();
    for (component, item) in found {
        all.push(member(component, item, &mut taken));
    }
    for (component, version) in [(Component::Bmc, &own.bmc), (Component::Bios, &own.bios)] {
        let shown = all.iter_mut().find(|one| one.installed.component == component);
        match (shown, version) {
            (Some(one), Some(version)) if one.installed.version.is_none() => {
                one.installed.version = Some(version.clone());
            }
            (None, Some(version)) => all.push(Recognised { uri: None, installed: bare(component, version) }),
            _ => {}
        }
    }
    all.sort_by(|a, b| {
        (a.installed.component, &a.installed.id).cmp(&(b.installed.component, &b.installed.id))
    });
    all
}

/// The member that runs, of the [`candidates`] for a component of which each server has one: the one with the version that the
/// manager or the system shows. `None` when it shows none of them, and for a device.
pub fn running<'a>(
    candidates: &'a [Recognised],
    component: Component,
    own: &OwnVersions,
) -> Option<&'a Recognised> {
    let own = own.of(component)?;
    let likeness = |one: &Recognised| likeness(one.installed.version.as_ref(), Some(own));
    candidates.iter().filter(|one| likeness(one) != Likeness::None).min_by_key(|one| likeness(one))
}

/// Every running member that looks like a component, in the order of ids; ids as those of [`recognise`].
pub fn candidates(shown: &[ShownFirmware], component: Component) -> Vec<Recognised> {
    let mut found: Vec<&ShownFirmware> =
        shown.iter().filter(|item| self::component(item) == Some(component)).collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let mut taken = BTreeSet::new();
    found.into_iter().map(|item| member(component, item, &mut taken)).collect()
}

/// A member with an id that no other one of its component has.
fn member(
    component: Component,
    item: &ShownFirmware,
    taken: &mut BTreeSet<(Component, String)>,
) -> Recognised {
    let plain = without_version(&item.id, item.version.as_ref());
    let mut id = plain.clone();
    let mut next = 2;
    while !taken.insert((component, id.clone())) {
        id = format!("{plain}#{next}");
        next += 1;
    }
    Recognised { uri: item.uri.clone(), installed: installed(component, id, item) }
}

fn installed(component: Component, id: String, item: &ShownFirmware) -> Installed {
    let of_device = !component.is_of_server();
    Installed {
        component,
        id,
        vendor: item.manufacturer.as_deref().filter(|_| of_device).and_then(parsed::<Vendor>),
        model: item.name.as_deref().filter(|_| of_device).and_then(parsed::<Model>),
        version: item.version.clone(),
        updateable: item.updateable,
    }
}

fn parsed<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// A firmware that only the manager or the system shows.
fn bare(component: Component, version: &FirmwareVersion) -> Installed {
    Installed {
        component,
        id: component.as_str().to_owned(),
        vendor: None,
        model: None,
        version: Some(version.clone()),
        updateable: None,
    }
}

/// The component of a member that runs.
fn component(item: &ShownFirmware) -> Option<Component> {
    let name = item.name.as_deref().unwrap_or_default();
    let words = format!("{} {}", item.id, name).to_lowercase();
    if !item.active || STORED.iter().any(|stored| words.contains(stored)) {
        return None;
    }
    let related = |part: &str| item.related.iter().any(|path| path.contains(part));
    component_of(&[name])
        .or_else(|| related("/Managers/").then_some(Component::Bmc))
        .or_else(|| {
            // A device of the system has a longer path than the system itself.
            let of_system = |path: &str| path.contains("/Systems/") && path.matches('/').count() <= 4;
            let system = |path: &String| of_system(path.strip_suffix("/Bios").unwrap_or(path));
            item.related.iter().any(system).then_some(Component::Bios)
        })
        .or_else(|| component_of(&[&item.id.replace(['_', '-'], " ")]))
}

/// How much the version of a member looks like the one that the manager or the system shows itself.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Likeness {
    /// The two are the same version.
    Same,
    /// One text is a part of the other.
    Part,
    /// The two differ, or one is missing.
    None,
}

fn likeness(version: Option<&FirmwareVersion>, own: Option<&FirmwareVersion>) -> Likeness {
    let Some((version, own)) = version.zip(own) else { return Likeness::None };
    if compare(version, own) == VersionOrder::Same {
        return Likeness::Same;
    }
    match is_part(version.as_str(), own.as_str()) || is_part(own.as_str(), version.as_str()) {
        true => Likeness::Part,
        false => Likeness::None,
    }
}

/// Whether a text stands in another one and ends there with its number: `2.1` is no part of `2.10`.
fn is_part(part: &str, of: &str) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let (starts, ends) = (digit(part.as_bytes().first()), digit(part.as_bytes().last()));
    !part.is_empty()
        && of.match_indices(part).any(|(at, _)| {
            let (before, behind) = (&of.as_bytes()[..at], &of.as_bytes()[at + part.len()..]);
            !(starts && digit(before.last()) || ends && digit(behind.first()))
        })
}

/// Leaves the one member that the server runs.
fn keep_one(found: &mut Vec<(Component, &ShownFirmware)>, component: Component, own: &OwnVersions) {
    let rank = |item: &ShownFirmware| {
        let likeness = likeness(item.version.as_ref(), own.of(component));
        (likeness, item.related.is_empty(), item.version.is_none())
    };
    let best = found.iter().filter(|(of, _)| *of == component).min_by_key(|(_, item)| (rank(item), &item.id));
    let Some(best) = best.map(|(_, item)| std::ptr::from_ref::<ShownFirmware>(item)) else { return };
    found.retain(|(of, item)| *of != component || std::ptr::eq(*item, best));
}

/// The id without the version that it contains.
fn without_version(id: &str, version: Option<&FirmwareVersion>) -> String {
    let Some(version) = version.map(FirmwareVersion::as_str).filter(|version| version.len() > 2) else {
        return id.to_owned();
    };
    match id.find(version) {
        Some(at) if at > 0 => {
            let rest = &id[at + version.len()..];
            format!("{}{rest}", id[..at].trim_end_matches(['-', '_']))
        }
        _ => id.to_owned(),
    }
}
