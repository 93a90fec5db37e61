//! From a record and the links that are there to the next changes.
//!
//! ```text
//! record + links + what is configured --next--> steps --kernel--> links … and again, until nothing is left to do
//! ```
//!
//! Links appear late and bonds need a look at the kernel between their steps, so a plan is never made as a whole: each round
//! compares the record with the links and returns what can be done now.
//!
//! Invariants: a link that the record does not name gets no address. A member leaves a bond only by [`undo`]. A configured interface is
//! configured again only when its link is another one, such as that of a card that was inserted again, or was switched off: the
//! kernel has forgotten its addresses or routes then.

use std::collections::BTreeMap;

use super::record::{Below, Interface, Record};
use super::{Change, Link};

/// The largest packet of a link that was given no other one.
const ETHERNET_MTU: u32 = 1500;

/// Changes that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkStep {
    /// The interface that is configured when all changes are made, and the index of its link.
    pub configures: Option<(String, u32)>,
    /// The changes in their order.
    pub changes: Vec<Change>,
}

/// Returns the changes that switch on every link of hardware. Members of a bond are left to it.
#[must_use]
pub fn raise(links: &[Link]) -> Vec<Change> {
    let down = links.iter().filter(|link| link.hardware && !link.up && link.master.is_none());
    down.map(|link| Change::Switch { index: link.index, up: true }).collect()
}

/// Returns the name in the kernel of a bond or a VLAN.
fn name(record: &Record, label: &str) -> String {
    let number = record.interfaces.keys().position(|known| known == label).unwrap_or(0);
    format!("shoal{number}")
}

/// Returns the link of an interface, if it is there.
#[must_use]
pub fn link<'a>(record: &Record, label: &str, links: &'a [Link]) -> Option<&'a Link> {
    match &record.interfaces.get(label)?.below {
        Below::Hardware(mac) => links.iter().find(|link| link.hardware && link.mac == Some(*mac)),
        Below::Bond(..) | Below::Vlan(..) => {
            let name = name(record, label);
            links.iter().find(|link| !link.hardware && link.name == name)
        }
    }
}

/// Returns the bond that an interface is a member of.
fn bond_of<'a>(record: &'a Record, label: &str) -> Option<&'a str> {
    record.interfaces.iter().find_map(|(bond, interface)| match &interface.below {
        Below::Bond(members, _) if members.contains(label) => Some(bond.as_str()),
        _ => None,
    })
}

/// Returns the steps that can be made now. `configured` has the interfaces with the links that were configured for them.
#[must_use]
pub fn next(record: &Record, links: &[Link], configured: &BTreeMap<String, u32>) -> Vec<NetworkStep> {
    let mut steps = Vec::new();
    for (label, interface) in &record.interfaces {
        let found = link(record, label, links);
        match (found, &interface.below) {
            (None, Below::Bond(members, mode)) => {
                // A bond without any link would only be an interface that waits.
                if members.iter().any(|member| link(record, member, links).is_some()) {
                    let change = Change::Bond { name: name(record, label), mode: mode.clone() };
                    steps.push(NetworkStep { configures: None, changes: vec![change] });
                }
            }
            (None, Below::Vlan(below, id)) => {
                if let Some(below) = link(record, below, links) {
                    let change = Change::Vlan { name: name(record, label), link: below.index, id: *id };
                    steps.push(NetworkStep { configures: None, changes: vec![change] });
                }
            }
            (None, Below::Hardware(_)) => {}
            (Some(found), _) => match bond_of(record, label) {
                Some(bond) => steps.extend(join(record, bond, interface, found, links)),
                None if found.up && configured.get(label) == Some(&found.index) => {}
                None => steps.push(configure(label, interface, found)),
            },
        }
    }
    steps
}

/// Returns the changes that undo a record, for the record of another job. They are in an order in which none undoes another one.
#[must_use]
pub fn undo(record: &Record, links: &[Link], configured: &BTreeMap<String, u32>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (label, interface) in &record.interfaces {
        let Some(link) = link(record, label, links) else { continue };
        let index = link.index;
        if !link.hardware {
            changes.push(Change::Remove { index });
            continue;
        }
        if interface.mtu.is_some() {
            changes.push(Change::Mtu { index, mtu: ETHERNET_MTU });
        }
        if configured.get(label) == Some(&index) {
            let routes = interface.routes.iter().rev().cloned();
            changes.extend(routes.map(|route| Change::Route { index, route, add: false }));
            let addresses = interface.addresses.iter();
            changes.extend(addresses.map(|address| Change::Address { index, address: *address, add: false }));
        }
    }
    changes
}

/// A link joins a bond only while it is off.
fn join(
    record: &Record,
    bond: &str,
    interface: &Interface,
    member: &Link,
    links: &[Link],
) -> Option<NetworkStep> {
    let bond = link(record, bond, links)?.index;
    if member.master == Some(bond) {
        return None;
    }
    let index = member.index;
    let mut changes = vec![Change::Switch { index, up: false }];
    changes.extend(interface.mtu.map(|mtu| Change::Mtu { index, mtu }));
    changes.extend([Change::Join { index, bond }, Change::Switch { index, up: true }]);
    Some(NetworkStep { configures: None, changes })
}

fn configure(label: &str, interface: &Interface, link: &Link) -> NetworkStep {
    let index = link.index;
    let mut changes: Vec<Change> = interface.mtu.map(|mtu| Change::Mtu { index, mtu }).into_iter().collect();
    changes.push(Change::Switch { index, up: true });
    let addresses = interface.addresses.iter();
    changes.extend(addresses.map(|address| Change::Address { index, address: *address, add: true }));
    let routes = interface.routes.iter().cloned();
    changes.extend(routes.map(|route| Change::Route { index, route, add: true }));
    NetworkStep { configures: Some((label.to_owned(), index)), changes }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Clock as _;
    use crate::net::Kernel as _;
    use crate::net::test_kit::{FakeKernel, link};
    use crate::test_kit::VirtualClock;

    fn bonded() -> Record {
        Record::parse(&json!({
            "version": 2,
            "ethernets": {
                "a": {"match": {"macaddress": "02:00:00:00:00:01"}},
                "b": {"match": {"macaddress": "02:00:00:00:00:02"}},
                "c": {"match": {"macaddress": "02:00:00:00:00:03"}, "addresses": ["10.1.0.5/24"], "mtu": 1400},
            },
            "bonds": {"bond": {"interfaces": ["a", "b"], "parameters": {"mode": "active-backup"}}},
            "vlans": {"v": {"link": "bond", "id": 10, "addresses": ["10.0.0.5/24"],
                            "routes": [{"to": "default", "via": "10.0.0.1"}]}},
        }))
        .unwrap()
    }

    /// Carries steps out until there are none. Returns the number of rounds with steps.
    fn settle(record: &Record, kernel: &&FakeKernel<'_>, configured: &mut BTreeMap<String, u32>) -> usize {
        for round in 0..20 {
            let steps = next(record, &kernel.links().unwrap(), configured);
            if steps.is_empty() {
                return round;
            }
            for step in steps {
                step.changes.iter().for_each(|change| kernel.change(change).unwrap());
                configured.extend(step.configures);
            }
        }
        panic!("it does not settle");
    }

    #[test]
    fn every_link_of_hardware_is_switched_on_and_software_is_not() {
        let mut links = vec![link(2), link(3), link(4), link(5)];
        links[1].up = true;
        links[2].hardware = false;
        links[3].master = Some(9);
        assert_eq!(raise(&links), [Change::Switch { index: 2, up: true }]);
    }

    #[test]
    fn a_bond_with_a_vlan_is_built_from_its_members_and_a_late_member_joins() {
        let clock = VirtualClock::default();
        let kernel = &FakeKernel::new(&clock, vec![link(2), link(3)]);
        kernel.links.borrow_mut()[0].mac = Some("02:00:00:00:00:01".parse().unwrap());
        let (record, mut configured) = (bonded(), BTreeMap::new());
        settle(&record, &kernel, &mut configured);
        assert!(configured.keys().eq(["bond", "c", "v"]), "{configured:?}");
        assert_eq!(kernel.addresses(), ["3: 10.1.0.5/24", "5: 10.0.0.5/24"]);
        let changes = kernel.changes.borrow().clone();
        let at = |wanted: &Change| changes.iter().position(|change| change == wanted).unwrap();
        assert!(at(&Change::Switch { index: 2, up: false }) < at(&Change::Join { index: 2, bond: 4 }));
        assert!(at(&Change::Mtu { index: 3, mtu: 1400 }) < at(&Change::Switch { index: 3, up: true }));
        assert!(changes.iter().any(|change| matches!(change, Change::Vlan { link: 4, id: 10, .. })));
        // Nothing is done twice, and a member that appears later joins.
        assert_eq!(settle(&record, &kernel, &mut configured), 0);
        let late = Link { mac: Some("02:00:00:00:00:02".parse().unwrap()), ..link(9) };
        kernel.links.borrow_mut().push(late);
        assert_eq!(settle(&record, &kernel, &mut configured), 1);
        assert_eq!(kernel.changes.borrow().last(), Some(&Change::Switch { index: 9, up: true }));
        assert_eq!(clock.elapsed().as_secs(), 0);
    }

    #[test]
    fn what_a_record_has_made_is_undone_for_the_record_of_another_job() {
        let clock = VirtualClock::default();
        let kernel = &FakeKernel::new(&clock, vec![link(2), link(3), link(7)]);
        kernel.links.borrow_mut()[0].mac = Some("02:00:00:00:00:01".parse().unwrap());
        let (record, mut configured) = (bonded(), BTreeMap::new());
        settle(&record, &kernel, &mut configured);
        let before = kernel.changes.borrow().len();
        let changes = undo(&record, &kernel.links().unwrap(), &configured);
        changes.iter().for_each(|change| kernel.change(change).unwrap());
        assert!(kernel.links.borrow().iter().all(|link| link.hardware && link.master.is_none()));
        assert_eq!(kernel.addresses(), Vec::<String>::new());
        assert!(kernel.changes.borrow()[before..].contains(&Change::Mtu { index: 3, mtu: 1500 }));
        assert_eq!(undo(&record, &kernel.links().unwrap(), &BTreeMap::new()).len(), 1, "the MTU only");
    }

    #[test]
    fn a_record_whose_links_are_absent_changes_nothing() {
        assert_eq!(next(&bonded(), &[link(7)], &BTreeMap::new()), []);
    }

    #[test]
    fn an_interface_whose_link_returns_under_another_number_or_was_switched_off_is_configured_again() {
        let clock = VirtualClock::default();
        let kernel = &FakeKernel::new(&clock, vec![link(3)]);
        let (record, mut configured) = (bonded(), BTreeMap::new());
        settle(&record, &kernel, &mut configured);
        assert_eq!(settle(&record, &kernel, &mut configured), 0);
        kernel.links.borrow_mut()[0].index = 8;
        assert_eq!(settle(&record, &kernel, &mut configured), 1);
        assert_eq!(kernel.addresses(), ["3: 10.1.0.5/24", "8: 10.1.0.5/24"]);
        kernel.links.borrow_mut()[0].up = false;
        assert_eq!(settle(&record, &kernel, &mut configured), 1);
        assert_eq!(settle(&record, &kernel, &mut configured), 0);
    }
}
