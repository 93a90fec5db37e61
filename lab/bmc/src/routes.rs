//! Paths and their resources.
//!
//! ```text
//!   /redfish                                            versions (open)
//!   /redfish/v1/                                        service root (open)
//!   /redfish/v1/SessionService[/Sessions[/{n}]]         POST Sessions is open
//!   /redfish/v1/Systems[/{system}[/{settings}]]         …/Bios[/{settings}], …/Actions/ComputerSystem.Reset, …/ResetActionInfo, parts (parts.rs)
//!   /redfish/v1/Managers[/{manager}[/Attributes]]       …/Actions/Manager.Reset, …/Actions/Oem/…
//!   {system or manager}/{VirtualMedia}[/{slot}]         …/Actions/VirtualMedia.{InsertMedia,EjectMedia}
//!   /redfish/v1/Chassis[/{system}]                      UpdateService[/FirmwareInventory[/{item}]]
//!   /redfish/v1/TaskService[/{Tasks,TaskMonitors}[/{id}]]
//!   UpdateService/Actions/UpdateService.{SimpleUpdate,StartUpdate}, and the vendor's paths of uploads
//! ```
//!
//! Invariant: [`uri`] and [`Paths::resolve`] are inverse. A trailing slash is ignored; paths are case-sensitive unless the
//! vendor ignores case.

use http::Method;

use super::config::{BootOem, MediaVia, SimBmcConfig, SlotTree};
use super::parts::{self, Part};

/// The parent under which slots are shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tree {
    Manager,
    System,
}

impl SlotTree {
    fn shows(self, tree: Tree) -> bool {
        matches!(
            (self, tree),
            (Self::Both, _) | (Self::Manager, Tree::Manager) | (Self::System, Tree::System)
        )
    }
}

/// The resources of a simulated BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Resource {
    Versions,
    Root,
    SessionService,
    Sessions,
    Session(u64),
    Systems,
    System,
    ExtraSystem(usize),
    Settings,
    Bios,
    BiosSettings,
    Registries,
    RegistryFile,
    RegistryDocument,
    Reset,
    ResetInfo,
    Managers,
    Manager,
    ManagerReset,
    Part(Part),
    Slots(Tree),
    Slot(Tree, usize),
    Insert(Tree, usize),
    InsertInfo(Tree, usize),
    Eject(Tree, usize),
    ChassisAll,
    Chassis,
    UpdateService,
    Firmware,
    FirmwareNamed(String),
    UpdateSimple,
    UpdateSimpleInfo,
    UpdateMultipart,
    UpdatePush,
    UpdateStart,
    TaskService,
    Tasks,
    Task(u64),
    TaskMonitor(u64),
    Oem(Oem),
}

/// Resources and actions of some vendors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Oem {
    /// AMI: enables the slots.
    EnableMedia,
    /// AMI: sets the number of slots.
    ConfigureCds,
    /// HPE before the standard action.
    HpInsert(Tree, usize),
    HpEject(Tree, usize),
    /// Supermicro: the location of the image, mount, unmount.
    CfgCd,
    CfgCdMount,
    CfgCdUnmount,
    /// Huawei: connect and disconnect.
    Vmm(Tree, usize),
    /// Dell: the boot device in attributes, or in a configuration profile.
    Attributes,
    ImportProfile,
}

impl Resource {
    /// The methods that the resource allows.
    pub(super) fn methods(&self, config: &SimBmcConfig) -> &'static [Method] {
        const READ: &[Method] = &[Method::GET, Method::HEAD];
        const CHANGE: &[Method] = &[Method::GET, Method::HEAD, Method::PATCH];
        const ACT: &[Method] = &[Method::POST];
        match self {
            Self::Sessions => &[Method::GET, Method::HEAD, Method::POST],
            Self::Session(_) => &[Method::GET, Method::HEAD, Method::DELETE],
            Self::System | Self::Settings | Self::Oem(Oem::CfgCd | Oem::Attributes) => CHANGE,
            Self::BiosSettings => CHANGE,
            Self::Bios if config.bios.settings.is_none() && !config.bios.attributes.is_empty() => CHANGE,
            Self::Slot(_, slot) if slot_takes_patch(config, *slot) => CHANGE,
            Self::UpdateService if config.update.push_options => CHANGE,
            // Some vendors take an upload at the inventory itself.
            Self::UpdatePush if config.update.push.as_deref() == Some(INVENTORY) => {
                &[Method::GET, Method::HEAD, Method::POST]
            }
            Self::UpdateSimple
            | Self::UpdateMultipart
            | Self::UpdatePush
            | Self::UpdateStart
            | Self::ManagerReset => ACT,
            Self::Reset | Self::Insert(..) | Self::Eject(..) | Self::Oem(_) => ACT,
            _ => READ,
        }
    }

    /// Whether the resource needs no credentials.
    pub(super) fn is_open(&self, method: &Method) -> bool {
        match self {
            Self::Versions | Self::Root => true,
            Self::Sessions => method == Method::POST,
            _ => false,
        }
    }

    /// The slot without which the resource does not exist.
    pub(super) fn slot(&self) -> Option<usize> {
        match self {
            Self::Slot(_, slot)
            | Self::Insert(_, slot)
            | Self::InsertInfo(_, slot)
            | Self::Eject(_, slot)
            | Self::Oem(Oem::HpInsert(_, slot) | Oem::HpEject(_, slot) | Oem::Vmm(_, slot)) => Some(*slot),
            _ => None,
        }
    }
}

/// Whether a slot takes a PATCH: of its image, or of its use at the next reset.
pub(super) fn slot_takes_patch(config: &SimBmcConfig, slot: usize) -> bool {
    let image = config.media.via.contains(&MediaVia::Patch) && config.slots[slot].insertable;
    image || config.boot.oem == Some(BootOem::HpeNextServerReset)
}

/// Whether the manager has attributes.
pub(super) fn shows_attributes(config: &SimBmcConfig) -> bool {
    config.media.attached.is_some() || config.boot.oem == Some(BootOem::DellServerBoot)
}

/// Whether this parent links to the slots.
pub(super) fn shows_slots(config: &SimBmcConfig, tree: Tree) -> bool {
    config.slot_tree.shows(tree)
}

const SERVICE: &str = "/redfish/v1";
const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const IMPORT: &str = "EID_674_Manager.ImportSystemConfiguration";

/// The path of a resource.
pub(super) fn uri(config: &SimBmcConfig, resource: &Resource) -> String {
    let system = || format!("{SERVICE}/Systems/{}", config.identity.system_id);
    let manager = || format!("{SERVICE}/Managers/{}", config.identity.manager_id);
    let chassis = || format!("{SERVICE}/Chassis/{}", config.identity.system_id);
    let registry = || config.bios.registry.as_deref().unwrap_or_default();
    let slots = |tree: Tree| {
        let parent = match tree {
            Tree::Manager => manager(),
            Tree::System => system(),
        };
        format!("{parent}/{}", config.service.slots_name)
    };
    let slot = |tree: Tree, index: usize| format!("{}/{}", slots(tree), config.slots[index].id);
    let path = match resource {
        Resource::Versions => return "/redfish".to_owned(),
        Resource::Root => return format!("{SERVICE}/"),
        Resource::SessionService => format!("{SERVICE}/SessionService"),
        Resource::Sessions => format!("{SERVICE}/SessionService/Sessions"),
        Resource::Session(id) => format!("{SERVICE}/SessionService/Sessions/{id}"),
        Resource::Systems => format!("{SERVICE}/Systems"),
        Resource::System => system(),
        Resource::ExtraSystem(index) => {
            format!("{SERVICE}/Systems/{}", config.service.extra_systems[*index].id)
        }
        Resource::Settings => {
            let id = config.boot.settings.as_ref().map_or("Settings", |settings| settings.id.as_str());
            format!("{}/{id}", system())
        }
        Resource::Bios => format!("{}/Bios", system()),
        Resource::BiosSettings => {
            format!("{}/Bios/{}", system(), config.bios.settings.as_deref().unwrap_or_default())
        }
        Resource::Registries => format!("{SERVICE}/Registries"),
        Resource::RegistryFile => {
            format!("{SERVICE}/Registries/{}", registry().split('.').next().unwrap_or_default())
        }
        Resource::RegistryDocument => format!("{SERVICE}/RegistryStore/{}", registry()),
        Resource::Reset => format!("{}/Actions/ComputerSystem.Reset", system()),
        Resource::ResetInfo => format!("{}/ResetActionInfo", system()),
        Resource::Managers => format!("{SERVICE}/Managers"),
        Resource::Manager => manager(),
        Resource::ManagerReset => format!("{}/Actions/Manager.Reset", manager()),
        Resource::Part(part) if parts::is_of_chassis(*part) => {
            format!("{}/{}", chassis(), parts::path(*part))
        }
        Resource::Part(part) => format!("{}/{}", system(), parts::path(*part)),
        Resource::Slots(tree) => slots(*tree),
        Resource::Slot(tree, index) => slot(*tree, *index),
        Resource::Insert(tree, index) => format!("{}/Actions/VirtualMedia.InsertMedia", slot(*tree, *index)),
        Resource::InsertInfo(tree, index) => format!("{}/InsertMediaActionInfo", slot(*tree, *index)),
        Resource::Eject(tree, index) => format!("{}/Actions/VirtualMedia.EjectMedia", slot(*tree, *index)),
        Resource::ChassisAll => format!("{SERVICE}/Chassis"),
        Resource::Chassis => chassis(),
        Resource::UpdateService => format!("{SERVICE}/UpdateService"),
        Resource::Firmware => format!("{SERVICE}/UpdateService/FirmwareInventory"),
        Resource::FirmwareNamed(id) => format!("{INVENTORY}/{id}"),
        Resource::UpdateSimple => format!("{SERVICE}/UpdateService/Actions/UpdateService.SimpleUpdate"),
        Resource::UpdateSimpleInfo => format!("{SERVICE}/UpdateService/SimpleUpdateActionInfo"),
        Resource::UpdateStart => format!("{SERVICE}/UpdateService/Actions/UpdateService.StartUpdate"),
        // The paths of uploads are the vendor's; some are outside of the service.
        Resource::UpdateMultipart => return config.update.multipart.clone().unwrap_or_default(),
        Resource::UpdatePush => return config.update.push.clone().unwrap_or_default(),
        Resource::TaskService => format!("{SERVICE}/TaskService"),
        Resource::Tasks => format!("{SERVICE}/TaskService/Tasks"),
        Resource::Task(id) => format!("{SERVICE}/TaskService/Tasks/{}{id}", config.tasks.prefix),
        Resource::TaskMonitor(id) => {
            format!("{SERVICE}/TaskService/TaskMonitors/{}{id}", config.tasks.prefix)
        }
        Resource::Oem(oem) => match oem {
            Oem::EnableMedia => format!("{}/Actions/Oem/AMIVirtualMedia.EnableRMedia", manager()),
            Oem::ConfigureCds => format!("{}/Actions/Oem/AMIVirtualMedia.ConfigureCDInstance", manager()),
            Oem::HpInsert(tree, index) => {
                format!("{}/Actions/Oem/{}InsertVirtualMedia", slot(*tree, *index), hp_action(config))
            }
            Oem::HpEject(tree, index) => {
                format!("{}/Actions/Oem/{}EjectVirtualMedia", slot(*tree, *index), hp_action(config))
            }
            Oem::CfgCd => format!("{}/CfgCD", slots(Tree::Manager)),
            Oem::CfgCdMount => format!("{}/CfgCD/Actions/IsoConfig.Mount", slots(Tree::Manager)),
            Oem::CfgCdUnmount => format!("{}/CfgCD/Actions/IsoConfig.UnMount", slots(Tree::Manager)),
            Oem::Vmm(tree, index) => {
                format!("{}/Oem/Huawei/Actions/VirtualMedia.VmmControl", slot(*tree, *index))
            }
            Oem::Attributes => format!("{}/Attributes", manager()),
            Oem::ImportProfile => format!("{}/Actions/Oem/{IMPORT}", manager()),
        },
    };
    // A vendor that redirects to the final slash also writes it in its links.
    if config.service.slash_redirect { path + "/" } else { path }
}

/// HPE's key below `Oem` and the prefix of its action names.
fn hp_action(config: &SimBmcConfig) -> &'static str {
    if config.media.via.contains(&MediaVia::HpAction) {
        "Hp/HpiLOVirtualMedia."
    } else {
        "Hpe/HpeiLOVirtualMedia."
    }
}

/// The resources that exist from the start.
pub(super) fn all(config: &SimBmcConfig) -> Vec<Resource> {
    use Resource as R;
    let mut all = vec![R::Versions, R::Root, R::Systems, R::System, R::Reset, R::Managers, R::Manager];
    all.extend(parts::all(config).into_iter().map(R::Part));
    if !config.manager.reset_types.is_empty() {
        all.push(R::ManagerReset);
    }
    if config.session.offered {
        all.extend([R::SessionService, R::Sessions]);
    }
    all.extend((0..config.service.extra_systems.len()).map(R::ExtraSystem));
    if config.boot.settings.is_some() {
        all.push(R::Settings);
    }
    if config.bios.is_shown() {
        all.push(R::Bios);
        all.extend(config.bios.settings.is_some().then_some(R::BiosSettings));
    }
    if config.bios.registry.is_some() {
        all.extend([R::Registries, R::RegistryFile, R::RegistryDocument]);
    }
    if config.power.action_info {
        all.push(R::ResetInfo);
    }
    if config.service.chassis {
        all.extend([R::ChassisAll, R::Chassis]);
    }
    if !config.service.firmware.is_empty() {
        all.extend([R::UpdateService, R::Firmware]);
    }
    all.extend(update_resources(config));
    let via = |way: MediaVia| config.media.via.contains(&way);
    if config.media.enable.is_some() {
        all.extend([R::Oem(Oem::EnableMedia), R::Oem(Oem::ConfigureCds)]);
    }
    if via(MediaVia::SmcIsoConfig) {
        all.extend([Oem::CfgCd, Oem::CfgCdMount, Oem::CfgCdUnmount].map(R::Oem));
    }
    if shows_attributes(config) {
        all.push(R::Oem(Oem::Attributes));
    }
    if config.boot.oem == Some(BootOem::DellServerBoot) {
        all.push(R::Oem(Oem::ImportProfile));
    }
    for tree in [Tree::Manager, Tree::System].into_iter().filter(|tree| config.slot_tree.shows(*tree)) {
        all.push(R::Slots(tree));
        for (index, slot) in config.slots.iter().enumerate() {
            all.push(R::Slot(tree, index));
            if !slot.insertable {
                continue;
            }
            if via(MediaVia::Action) {
                all.extend([R::Insert(tree, index), R::Eject(tree, index)]);
            }
            if config.media.action_info {
                all.push(R::InsertInfo(tree, index));
            }
            if via(MediaVia::HpAction) || via(MediaVia::HpeAction) {
                all.extend([R::Oem(Oem::HpInsert(tree, index)), R::Oem(Oem::HpEject(tree, index))]);
            }
            if via(MediaVia::HuaweiVmmControl) {
                all.push(R::Oem(Oem::Vmm(tree, index)));
            }
        }
    }
    all
}

/// The resources of updates that exist from the start.
fn update_resources(config: &SimBmcConfig) -> Vec<Resource> {
    use Resource as R;
    let policy = &config.update;
    if !policy.takes_images() {
        return Vec::new();
    }
    let mut all = vec![R::TaskService, R::Tasks];
    if let Some(simple) = &policy.simple {
        all.push(R::UpdateSimple);
        all.extend(simple.action_info.then_some(R::UpdateSimpleInfo));
    }
    all.extend(policy.multipart.is_some().then_some(R::UpdateMultipart));
    all.extend(policy.push.is_some().then_some(R::UpdatePush));
    all.extend(policy.start_action.then_some(R::UpdateStart));
    all
}

/// The map from paths to resources, built once.

#[derive(Debug)]
pub(super) struct Paths(std::collections::HashMap<String, Resource>);

impl Paths {
    pub(super) fn new(config: &SimBmcConfig) -> Self {
        let key = |resource: Resource| (Self::key(config, &uri(config, &resource)), resource);
        Self(all(config).into_iter().map(key).collect())
    }

    fn key(config: &SimBmcConfig, path: &str) -> String {
        let path = path.strip_suffix('/').unwrap_or(path);
        if config.service.any_case { path.to_ascii_lowercase() } else { path.to_owned() }
    }

    /// The resource of a path.
    pub(super) fn resolve(&self, config: &SimBmcConfig, path: &str) -> Option<Resource> {
        let path = Self::key(config, path);
        if let Some(resource) = self.0.get(&path) {
            return Some(resource.clone());
        }
        // Only the canonical form of a number names a resource.
        let (parent, id) = path.rsplit_once('/')?;
        let number = |prefix: &str| {
            let digits = id.strip_prefix(prefix)?;
            digits.parse().ok().filter(|number: &u64| number.to_string() == digits)
        };
        let of = |collection: &str| match config.service.any_case {
            true => parent.eq_ignore_ascii_case(collection),
            false => parent == collection,
        };
        if of(INVENTORY) && !config.service.firmware.is_empty() {
            Some(Resource::FirmwareNamed(id.to_owned()))
        } else if of("/redfish/v1/SessionService/Sessions") && config.session.offered {
            number("").map(Resource::Session)
        } else if of("/redfish/v1/TaskService/Tasks") {
            number(&config.tasks.prefix).map(Resource::Task)
        } else if of("/redfish/v1/TaskService/TaskMonitors") {
            number(&config.tasks.prefix).map(Resource::TaskMonitor)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendors::VENDORS;

    #[test]
    fn every_resource_is_found_under_its_own_uri() {
        let vendors = VENDORS.iter().map(|vendor| {
            let config = SimBmcConfig::vendor(vendor.name, "S1", "root", "calvin").unwrap();
            (vendor.name, config)
        });
        let mut both = SimBmcConfig::new("S1", "root", "calvin");
        both.slot_tree = SlotTree::Both;
        for (name, config) in vendors.chain([("both trees", both)]) {
            let paths = Paths::new(&config);
            let mut all = all(&config);
            all.push(Resource::Task(7));
            all.push(Resource::TaskMonitor(7));
            // Where uploads go to the inventory, one path names two resources and the method decides.
            if config.update.push.as_deref() == Some(INVENTORY) {
                all.retain(|resource| *resource != Resource::Firmware);
            }
            if config.session.offered {
                all.push(Resource::Session(7));
            }
            for resource in all {
                let uri = uri(&config, &resource);
                assert_eq!(paths.resolve(&config, &uri), Some(resource), "{name}: {uri}");
            }
        }
    }

    #[test]
    fn unknown_paths_resolve_to_no_resource() {
        let config = SimBmcConfig::new("S1", "root", "calvin");
        let paths = Paths::new(&config);
        for path in [
            "",
            "/",
            "/redfish/v2",
            "/redfish/v1/Systems/1",
            "/redfish/v1/systems",
            "/redfish/v1/SessionService/Sessions/007",
            "/redfish/v1/Systems/437XR1138R2/VirtualMedia",
            "/redfish/v1//Systems",
        ] {
            assert_eq!(paths.resolve(&config, path), None, "{path}");
        }
    }
}
