//! Paths and what stands behind them.
//!
//! ```text
//!   /redfish                                            versions (open)
//!   /redfish/v1/                                        service root (open)
//!   /redfish/v1/SessionService[/Sessions[/{n}]]         POST Sessions is open
//!   /redfish/v1/Systems[/{system}]                      …/Actions/ComputerSystem.Reset
//!   /redfish/v1/Managers[/{manager}]
//!   {system or manager}/VirtualMedia[/{slot}]           …/Actions/VirtualMedia.{InsertMedia,EjectMedia}
//! ```
//!
//! Invariant: [`uri`] and [`resolve`] are inverse. A trailing slash is taken and ignored; case matters.

use http::Method;

use super::config::{SlotTree, TwinConfig};

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

/// Everything a twin has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Resource {
    Versions,
    Root,
    SessionService,
    Sessions,
    Session(u64),
    Systems,
    System,
    Managers,
    Manager,
    Slots(Tree),
    Slot(Tree, usize),
    Reset,
    Insert(Tree, usize),
    Eject(Tree, usize),
}

impl Resource {
    /// What may be done with it.
    pub(super) fn methods(&self) -> &'static [Method] {
        const READ: &[Method] = &[Method::GET, Method::HEAD];
        match self {
            Self::Sessions => &[Method::GET, Method::HEAD, Method::POST],
            Self::Session(_) => &[Method::GET, Method::HEAD, Method::DELETE],
            Self::System => &[Method::GET, Method::HEAD, Method::PATCH],
            Self::Reset | Self::Insert(..) | Self::Eject(..) => &[Method::POST],
            _ => READ,
        }
    }

    /// Whether it answers without credentials.
    pub(super) fn is_open(&self, method: &Method) -> bool {
        match self {
            Self::Versions | Self::Root => true,
            Self::Sessions => method == Method::POST,
            _ => false,
        }
    }
}

/// Whether slots are linked from this resource.
pub(super) fn shows_slots(config: &TwinConfig, tree: Tree) -> bool {
    config.slot_tree.shows(tree)
}

/// The path of a resource.
pub(super) fn uri(config: &TwinConfig, resource: &Resource) -> String {
    let system = || format!("/redfish/v1/Systems/{}", config.identity.system_id);
    let manager = || format!("/redfish/v1/Managers/{}", config.identity.manager_id);
    let slots = |tree: Tree| match tree {
        Tree::Manager => format!("{}/VirtualMedia", manager()),
        Tree::System => format!("{}/VirtualMedia", system()),
    };
    let slot = |tree: Tree, index: usize| format!("{}/{}", slots(tree), config.slots[index].id);
    match resource {
        Resource::Versions => "/redfish".to_owned(),
        Resource::Root => "/redfish/v1/".to_owned(),
        Resource::SessionService => "/redfish/v1/SessionService".to_owned(),
        Resource::Sessions => "/redfish/v1/SessionService/Sessions".to_owned(),
        Resource::Session(id) => format!("/redfish/v1/SessionService/Sessions/{id}"),
        Resource::Systems => "/redfish/v1/Systems".to_owned(),
        Resource::System => system(),
        Resource::Managers => "/redfish/v1/Managers".to_owned(),
        Resource::Manager => manager(),
        Resource::Slots(tree) => slots(*tree),
        Resource::Slot(tree, index) => slot(*tree, *index),
        Resource::Reset => format!("{}/Actions/ComputerSystem.Reset", system()),
        Resource::Insert(tree, index) => format!("{}/Actions/VirtualMedia.InsertMedia", slot(*tree, *index)),
        Resource::Eject(tree, index) => format!("{}/Actions/VirtualMedia.EjectMedia", slot(*tree, *index)),
    }
}

/// What stands behind a path.
pub(super) fn resolve(config: &TwinConfig, path: &str) -> Option<Resource> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut segments = path.strip_prefix('/')?.split('/');
    if segments.next()? != "redfish" {
        return None;
    }
    let segments: Vec<&str> = segments.take(9).collect();
    let (version, rest) = match segments.split_first() {
        None => return Some(Resource::Versions),
        Some((version, rest)) => (*version, rest),
    };
    if version != "v1" {
        return None;
    }
    match rest {
        [] => Some(Resource::Root),
        ["SessionService"] => Some(Resource::SessionService),
        ["SessionService", "Sessions"] => Some(Resource::Sessions),
        // Only the canonical spelling of the number is a path of ours.
        ["SessionService", "Sessions", id] => {
            id.parse().ok().filter(|number: &u64| number.to_string() == *id).map(Resource::Session)
        }
        ["Systems"] => Some(Resource::Systems),
        ["Managers"] => Some(Resource::Managers),
        ["Systems", id, below @ ..] if *id == config.identity.system_id => match below {
            [] => Some(Resource::System),
            ["Actions", "ComputerSystem.Reset"] => Some(Resource::Reset),
            ["VirtualMedia", slot @ ..] => resolve_slot(config, Tree::System, slot),
            _ => None,
        },
        ["Managers", id, below @ ..] if *id == config.identity.manager_id => match below {
            [] => Some(Resource::Manager),
            ["VirtualMedia", slot @ ..] => resolve_slot(config, Tree::Manager, slot),
            _ => None,
        },
        _ => None,
    }
}

fn resolve_slot(config: &TwinConfig, tree: Tree, below: &[&str]) -> Option<Resource> {
    if !config.slot_tree.shows(tree) {
        return None;
    }
    let (id, below) = match below.split_first() {
        None => return Some(Resource::Slots(tree)),
        Some((id, below)) => (*id, below),
    };
    let index = config.slots.iter().position(|slot| slot.id == id)?;
    match below {
        [] => Some(Resource::Slot(tree, index)),
        ["Actions", "VirtualMedia.InsertMedia"] => Some(Resource::Insert(tree, index)),
        ["Actions", "VirtualMedia.EjectMedia"] => Some(Resource::Eject(tree, index)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_found_under_its_own_uri() {
        let mut config = TwinConfig::new("S1", "root", "calvin");
        config.slot_tree = SlotTree::Both;
        let mut all = vec![
            Resource::Versions,
            Resource::Root,
            Resource::SessionService,
            Resource::Sessions,
            Resource::Session(7),
            Resource::Systems,
            Resource::System,
            Resource::Managers,
            Resource::Manager,
            Resource::Reset,
        ];
        for tree in [Tree::Manager, Tree::System] {
            all.push(Resource::Slots(tree));
            for index in 0..config.slots.len() {
                all.extend([
                    Resource::Slot(tree, index),
                    Resource::Insert(tree, index),
                    Resource::Eject(tree, index),
                ]);
            }
        }
        for resource in all {
            let uri = uri(&config, &resource);
            assert_eq!(resolve(&config, &uri), Some(resource), "{uri}");
        }
    }

    #[test]
    fn paths_that_are_not_ours_are_unknown() {
        let config = TwinConfig::new("S1", "root", "calvin");
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
            assert_eq!(resolve(&config, path), None, "{path}");
        }
    }
}
