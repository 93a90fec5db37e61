//! The plan of an installation: what a set means for the components of one server. Pure.
//!
//! ```text
//!   component of the set      on the server                       decision
//!   ────────────────────      ──────────────────────────────      ──────────────────────────────────────
//!   file for its model        same version                        skip: AlreadyInstalled
//!                             older version                       install
//!                             newer version                       refuse: Downgrade        (allow_downgrade: install)
//!                             version without order               refuse: OrderUnknown     (allow_downgrade: install)
//!                             no version shown                    refuse: VersionUnknown   (allow_downgrade: install)
//!                             BMC says not updateable             refuse: NotUpdateable
//!   files for other models    no device matches any file          refuse: NoFileForModel
//!                             another device matches one          skip: NoFileForModel
//!   any                       a server always has it, not shown   refuse: UnknownComponent
//!                             not there                           skip: NotPresent
//!   any but BMC and BIOS      a part of the inventory is unread   unknown, beside what is shown
//! ```
//!
//! Items are in the order of [`Component`]: the BMC before the BIOS before the rest, then by the id of the device.
//!
//! Invariants: the order of the inputs changes nothing; a plan made of the versions that a plan installs installs nothing; an item
//! of a plan that refuses something names what the operator can do.

use std::collections::BTreeSet;
use std::fmt;

use redfish::FirmwareVersion;
use serde::Serialize;

use crate::file::{FirmwareFile, Restart};
use crate::identity::{Component, Model, Vendor};
use crate::set::{Entry, FirmwareSet};
use crate::version::{VersionOrder, compare};

/// The firmware of one server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerFirmware {
    /// The vendor of the server.
    pub vendor: Vendor,
    /// The model of the server.
    pub model: Model,
    /// The installed firmware.
    pub installed: Vec<Installed>,
    /// How many members of the inventory could not be read. Each may be firmware of a device.
    pub unread: usize,
}

/// The firmware of one component or device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Installed {
    /// The component.
    pub component: Component,
    /// The id by which the BMC names the firmware; it differs for two devices.
    pub id: String,
    /// The vendor of the device, if the BMC shows it.
    pub vendor: Option<Vendor>,
    /// The model of the device, if the BMC shows it.
    pub model: Option<Model>,
    /// The version, if the BMC shows it.
    pub version: Option<FirmwareVersion>,
    /// Whether the BMC can update the firmware; `None` when it does not say.
    pub updateable: Option<bool>,
}

/// The permissions of an operator for a plan.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PlanOptions {
    /// Install also what is older than the installed version, or has no order to it.
    pub allow_downgrade: bool,
}

/// Why a component is left as it is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The version is installed.
    AlreadyInstalled,
    /// The server has no such component.
    NotPresent,
    /// The set has no file for this device, but for another device of the server.
    NoFileForModel,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyInstalled => "the version is installed",
            Self::NotPresent => "the server has no such component",
            Self::NoFileForModel => "the set has no file for this device",
        })
    }
}

/// Why a component must not be changed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The installed version is newer.
    Downgrade,
    /// The versions have no order.
    OrderUnknown,
    /// The BMC shows no version.
    VersionUnknown,
    /// The BMC says that it cannot update the component.
    NotUpdateable,
    /// The set has files for the component, none of them for the server's models.
    NoFileForModel,
    /// The inventory shows no such component, and every server has it.
    UnknownComponent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Downgrade => "the installed version is newer; --allow-downgrade permits the older one",
            Self::OrderUnknown => "which version is newer cannot be said; --allow-downgrade installs it",
            Self::VersionUnknown => "the BMC shows no installed version; --allow-downgrade installs it",
            Self::NotUpdateable => "the BMC says that it cannot update this; leave it out of the set",
            Self::NoFileForModel => "the files of the set are for other models; add the file for this model",
            Self::UnknownComponent => "the BMC shows no such component; read its inventory again",
        })
    }
}

/// The decision about one component.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PlanDecision {
    /// The file is installed.
    Install(Entry),
    /// The component is left as it is.
    Skip(SkipReason),
    /// The component must not be changed.
    Refuse(Refusal),
    /// Whether the server has such a device, or another one, is not known. It is left as it is.
    Unknown,
}

/// One component of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedItem {
    /// The component.
    pub component: Component,
    /// The id by which the BMC names the firmware; `None` when the server does not have it.
    pub id: Option<String>,
    /// The installed version.
    pub now: Option<FirmwareVersion>,
    /// The version of the file of the set, if there is one for the component's model.
    pub then: Option<FirmwareVersion>,
    /// The decision about the component.
    pub decision: PlanDecision,
}

/// The decisions of an installation, in its order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// The components.
    pub items: Vec<PlannedItem>,
}

impl Plan {
    /// The files to install, in order, with the id of the component.
    pub fn installs(&self) -> impl Iterator<Item = (&PlannedItem, &Entry)> {
        self.items.iter().filter_map(|item| match &item.decision {
            PlanDecision::Install(entry) => Some((item, entry)),
            PlanDecision::Skip(_) | PlanDecision::Refuse(_) | PlanDecision::Unknown => None,
        })
    }

    /// The components that must not be changed, with the reason; an installation does not begin while there is any.
    pub fn refusals(&self) -> impl Iterator<Item = (&PlannedItem, &Refusal)> {
        self.items.iter().filter_map(|item| match &item.decision {
            PlanDecision::Refuse(refusal) => Some((item, refusal)),
            PlanDecision::Install(_) | PlanDecision::Skip(_) | PlanDecision::Unknown => None,
        })
    }

    /// Whether the host must restart.
    pub fn restart(&self) -> Restart {
        self.installs().map(|(_, entry)| entry.file.restart).max().unwrap_or(Restart::None)
    }

    /// The bytes that are sent to the BMC. A file for two devices is sent twice.
    pub fn size(&self) -> u64 {
        self.installs().fold(0, |sum, (_, entry)| sum.saturating_add(entry.file.size))
    }
}

/// Plans the installation of a set on a server.
pub fn plan(server: &ServerFirmware, set: &FirmwareSet, options: PlanOptions) -> Plan {
    let components: BTreeSet<Component> = set.entries().iter().map(|entry| entry.file.component).collect();
    let items = components.into_iter().flat_map(|component| of_component(component, server, set, options));
    Plan { items: items.collect() }
}

fn of_component(
    component: Component,
    server: &ServerFirmware,
    set: &FirmwareSet,
    options: PlanOptions,
) -> Vec<PlannedItem> {
    let mut installed: Vec<&Installed> =
        server.installed.iter().filter(|installed| installed.component == component).collect();
    installed.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
    let without_device = |decision| PlannedItem { component, id: None, now: None, then: None, decision };
    let may_have_more = server.unread > 0 && !component.is_in_every_server();
    if installed.is_empty() {
        return vec![without_device(match component.is_in_every_server() {
            true => PlanDecision::Refuse(Refusal::UnknownComponent),
            false if may_have_more => PlanDecision::Unknown,
            false => PlanDecision::Skip(SkipReason::NotPresent),
        })];
    }
    let of_set = || set.entries().iter().filter(|entry| entry.file.component == component);
    let found: Vec<Option<&Entry>> =
        installed.iter().map(|installed| best(of_set(), server, installed)).collect();
    let any = found.iter().any(Option::is_some);
    let items = installed.into_iter().zip(found).map(|(installed, entry)| PlannedItem {
        component,
        id: Some(installed.id.clone()),
        now: installed.version.clone(),
        then: entry.map(|entry| entry.file.version().clone()),
        decision: match entry {
            Some(entry) => decide(installed, entry, options),
            None if any => PlanDecision::Skip(SkipReason::NoFileForModel),
            None => PlanDecision::Refuse(Refusal::NoFileForModel),
        },
    });
    items.chain(may_have_more.then(|| without_device(PlanDecision::Unknown))).collect()
}

/// The order of two devices of one component; ids of one BMC differ, the rest orders what a BMC names twice.
fn order_of(installed: &Installed) -> (&str, Option<&Vendor>, Option<&Model>, Option<&str>, Option<bool>) {
    let version = installed.version.as_ref().map(FirmwareVersion::as_str);
    (&installed.id, installed.vendor.as_ref(), installed.model.as_ref(), version, installed.updateable)
}

/// The file for a component: one for the model of the device before one for the model of the server, and of these the one of
/// the vendor of the device. Within that the set has only one.
fn best<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    server: &ServerFirmware,
    installed: &Installed,
) -> Option<&'a Entry> {
    let rank = |file: &FirmwareFile| {
        let own_model = installed.model.as_ref().is_some_and(|model| file.models().contains(model));
        let server_model = file.component.is_of_server() && file.models().contains(&server.model);
        let own_vendor = installed.vendor.as_ref() == Some(&file.vendor);
        let fits = (own_model || server_model) && (own_vendor || file.vendor == server.vendor);
        fits.then_some((own_model, own_vendor))
    };
    let fitting = entries.filter_map(|entry| rank(&entry.file).map(|rank| (rank, entry)));
    fitting.max_by(|(a, x), (b, y)| a.cmp(b).then_with(|| y.digest.cmp(&x.digest))).map(|(_, entry)| entry)
}

fn decide(installed: &Installed, entry: &Entry, options: PlanOptions) -> PlanDecision {
    let install = || PlanDecision::Install(entry.clone());
    let unless_allowed =
        |refusal| if options.allow_downgrade { install() } else { PlanDecision::Refuse(refusal) };
    let order = installed.version.as_ref().map(|version| compare(version, entry.file.version()));
    match order {
        Some(VersionOrder::Same) => PlanDecision::Skip(SkipReason::AlreadyInstalled),
        _ if installed.updateable == Some(false) => PlanDecision::Refuse(Refusal::NotUpdateable),
        Some(VersionOrder::Older) => install(),
        Some(VersionOrder::Newer) => unless_allowed(Refusal::Downgrade),
        Some(VersionOrder::Unclear) => unless_allowed(Refusal::OrderUnknown),
        None => unless_allowed(Refusal::VersionUnknown),
    }
}
