//! The network as the server's record has it: the key `network` of job.json, a subset of netplan's version 2.
//!
//! ```text
//! {"version": 2,
//!  "ethernets": {"a": {"match": {"macaddress": "…"}, "mtu": 9000, "dhcp4": true}, "b": {"match": {"macaddress": "…"}}},
//!  "bonds":     {"bond": {"interfaces": ["a", "b"], "parameters": {"mode": "802.3ad"}, "addresses": ["10.0.0.5/24"],
//!                         "routes": [{"to": "default", "via": "10.0.0.1"}], "nameservers": {"addresses": ["10.0.0.1"]}}},
//!  "vlans":     {"v": {"link": "bond", "id": 10, "addresses": ["2001:db8::5/64"]}}}
//! ```
//!
//! Names are labels of the document; the kernel's names are not used. A key that is not known is an error, because a half
//! of a network configuration is worse than DHCP.
//!
//! Invariants: every interface has a link below it that exists in the record, and a link belongs to one bond at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::Deserialize;

use super::{Mac, Route, dhcp};

/// Maximum number of interfaces of a record: as many cards, bonds and VLANs as a recipe may have.
const MAX_INTERFACES: usize = 64 + 16 + 64;
/// Maximum number of addresses and routes of one interface, and of name servers and domains.
const MAX_LIST: usize = 64;
/// The metric of a route that names none.
const METRIC: u32 = 50;
const MONITOR_MS: u32 = 100;

/// How a bond works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BondMode {
    /// One member at a time carries the traffic.
    ActiveBackup {
        /// How often members are checked.
        monitor_ms: u32,
    },
    /// IEEE 802.3ad (LACP).
    Lacp {
        /// How often members are checked.
        monitor_ms: u32,
        /// Whether the partner is asked for a message each second.
        fast: bool,
        /// How packets are spread.
        hash: HashPolicy,
    },
}

/// How a bond spreads packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum HashPolicy {
    /// By MAC addresses.
    #[default]
    #[serde(rename = "layer2")]
    Layer2,
    /// By MAC and IP addresses.
    #[serde(rename = "layer2+3")]
    Layer23,
    /// By IP addresses and ports.
    #[serde(rename = "layer3+4")]
    Layer34,
}

/// The link, members or VLAN that an interface is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Below {
    /// The link with this address.
    Hardware(Mac),
    /// Members, by their labels.
    Bond(BTreeSet<String>, BondMode),
    /// A VLAN on the interface with this label.
    Vlan(String, u16),
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The link, members or VLAN that the interface is made of.
    pub below: Below,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// Whether the interface gets an address by DHCP.
    pub dhcp: bool,
    /// The static addresses of the interface.
    pub addresses: Vec<IpNet>,
    /// The routes through the interface.
    pub routes: Vec<Route>,
}

/// The network of a machine. The default has no interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The interfaces by label.
    pub interfaces: BTreeMap<String, Interface>,
    /// The name servers.
    pub name_servers: Vec<IpAddr>,
    /// Domains that are appended to short names.
    pub search: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default = "version")]
    version: u32,
    #[serde(default, rename = "renderer")]
    _renderer: Option<String>,
    #[serde(default)]
    ethernets: BTreeMap<String, Ethernet>,
    #[serde(default)]
    bonds: BTreeMap<String, Bond>,
    #[serde(default)]
    vlans: BTreeMap<String, Vlan>,
}

fn version() -> u32 {
    2
}

// With `flatten`, unknown keys are refused by the outer structure only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ethernet {
    #[serde(rename = "match")]
    matches: Match,
    #[serde(rename = "set-name", default)]
    _set_name: Option<String>,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    macaddress: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bond {
    interfaces: BTreeSet<String>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(flatten)]
    common: Common,
}

fn active_backup() -> String {
    "active-backup".to_owned()
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Parameters {
    #[serde(default = "active_backup")]
    mode: String,
    mii_monitor_interval: Option<u32>,
    lacp_rate: Option<String>,
    transmit_hash_policy: Option<HashPolicy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vlan {
    id: u16,
    link: String,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
struct Common {
    mtu: Option<u32>,
    #[serde(default)]
    dhcp4: bool,
    /// The kernel configures IPv6 by itself where a router announces it; the words are accepted.
    #[serde(default, rename = "dhcp6")]
    _dhcp6: bool,
    #[serde(default, rename = "accept-ra")]
    _accept_ra: Option<bool>,
    #[serde(default, rename = "optional")]
    _optional: Option<bool>,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    routes: Vec<RouteDocument>,
    gateway4: Option<String>,
    gateway6: Option<String>,
    #[serde(default)]
    nameservers: NameServers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteDocument {
    to: String,
    via: Option<String>,
    metric: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct NameServers {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    search: Vec<String>,
}

impl Record {
    /// Reads the record.
    ///
    /// # Errors
    /// Returns a sentence that names the rule and the interface.
    pub fn parse(document: &serde_json::Value) -> Result<Self, String> {
        let document: Document = Document::deserialize(document)
            .map_err(|source| format!("it is not of the expected form: {source}"))?;
        if document.version != 2 {
            return Err(format!("its version is {}; version 2 is known", document.version));
        }
        let count = document.ethernets.len() + document.bonds.len() + document.vlans.len();
        if count > MAX_INTERFACES {
            return Err(format!("it has more than {MAX_INTERFACES} interfaces"));
        }
        let mut record = Self::default();
        for (label, ethernet) in document.ethernets {
            let mac = ethernet.matches.macaddress.parse().map_err(|reason| format!("{label}: {reason}"))?;
            record.add(label, Below::Hardware(mac), ethernet.common)?;
        }
        for (label, bond) in document.bonds {
            let mode = bond.parameters.mode().map_err(|reason| format!("{label}: {reason}"))?;
            record.add(label, Below::Bond(bond.interfaces, mode), bond.common)?;
        }
        for (label, vlan) in document.vlans {
            if vlan.id == 0 || vlan.id > 4094 {
                return Err(format!("{label}: the number of a VLAN is 1 to 4094"));
            }
            record.add(label, Below::Vlan(vlan.link, vlan.id), vlan.common)?;
        }
        record.check()?;
        Ok(record)
    }

    /// Returns the metric of the routes that an interface gets by DHCP. Each interface has its own one, which no route of the record
    /// has: of two default routes with one metric the kernel keeps one. The first interface by its name is preferred.
    #[must_use]
    pub fn lease_metric(&self, label: &str) -> u32 {
        let mut with_dhcp = self.interfaces.iter().filter(|(_, interface)| interface.dhcp);
        let place = with_dhcp.position(|(known, _)| known == label).unwrap_or(0);
        let routes = self.interfaces.values().flat_map(|interface| &interface.routes);
        let fixed: BTreeSet<u32> = routes.map(|route| route.metric).collect();
        let mut free = (dhcp::METRIC..).filter(|metric| !fixed.contains(metric));
        free.nth(place).unwrap_or(dhcp::METRIC)
    }

    fn add(&mut self, label: String, below: Below, common: Common) -> Result<(), String> {
        let (interface, servers) = common.interface(below).map_err(|reason| format!("{label}: {reason}"))?;
        for server in servers.addresses {
            let address = server.parse().map_err(|_| format!("{label}: a name server is no address"))?;
            if self.name_servers.len() < MAX_LIST && !self.name_servers.contains(&address) {
                self.name_servers.push(address);
            }
        }
        for domain in servers.search {
            if !super::resolver::is_domain(&domain) {
                return Err(format!("{label}: a search domain is no domain name"));
            }
            if self.search.len() < MAX_LIST && !self.search.contains(&domain) {
                self.search.push(domain);
            }
        }
        if self.interfaces.insert(label.clone(), interface).is_some() {
            return Err(format!("{label}: two interfaces have this name"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let (mut macs, mut members) = (BTreeSet::new(), BTreeSet::new());
        for (label, interface) in &self.interfaces {
            match &interface.below {
                Below::Hardware(mac) if !macs.insert(*mac) => {
                    return Err(format!("{label}: another interface has this MAC address"));
                }
                Below::Hardware(_) => {}
                Below::Bond(list, _) if list.is_empty() => {
                    return Err(format!("{label}: the bond has no member"));
                }
                Below::Bond(list, _) => {
                    for member in list {
                        let known = self.interfaces.get(member).is_some_and(|found| {
                            matches!(found.below, Below::Hardware(_))
                                && found.addresses.is_empty()
                                && !found.dhcp
                        });
                        if !known {
                            return Err(format!("{label}: {member} is no ethernet without addresses"));
                        }
                        if !members.insert(member) {
                            return Err(format!("{label}: {member} is a member of another bond"));
                        }
                    }
                }
                Below::Vlan(link, _) => {
                    let known = self
                        .interfaces
                        .get(link)
                        .is_some_and(|found| !matches!(found.below, Below::Vlan(..)));
                    if !known {
                        return Err(format!("{label}: {link} is no ethernet and no bond"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            mode: active_backup(),
            mii_monitor_interval: None,
            lacp_rate: None,
            transmit_hash_policy: None,
        }
    }
}

impl Parameters {
    fn mode(self) -> Result<BondMode, String> {
        let monitor_ms = self.mii_monitor_interval.unwrap_or(MONITOR_MS);
        if !(10..=10_000).contains(&monitor_ms) {
            return Err("mii-monitor-interval is 10 to 10000 milliseconds".to_owned());
        }
        let fast = match self.lacp_rate.as_deref() {
            None | Some("slow") => false,
            Some("fast") => true,
            Some(_) => return Err("lacp-rate is slow or fast".to_owned()),
        };
        match self.mode.as_str() {
            "active-backup" => Ok(BondMode::ActiveBackup { monitor_ms }),
            "802.3ad" => {
                Ok(BondMode::Lacp { monitor_ms, fast, hash: self.transmit_hash_policy.unwrap_or_default() })
            }
            _ => Err("the mode of a bond is active-backup or 802.3ad".to_owned()),
        }
    }
}

impl Common {
    fn interface(self, below: Below) -> Result<(Interface, NameServers), String> {
        if self.addresses.len() > MAX_LIST || self.routes.len() > MAX_LIST {
            return Err(format!("it has more than {MAX_LIST} addresses or routes"));
        }
        if self.mtu.is_some_and(|mtu| !(576..=65_535).contains(&mtu)) {
            return Err("its mtu is not 576 to 65535".to_owned());
        }
        let address = |text: &String| text.parse().map_err(|_| "an address is not ADDRESS/LENGTH".to_owned());
        let addresses: Vec<IpNet> = self.addresses.iter().map(address).collect::<Result<_, String>>()?;
        let mut routes = Vec::new();
        for gateway in [&self.gateway4, &self.gateway6].into_iter().flatten() {
            routes.push(route("default", Some(gateway), None)?);
        }
        for given in &self.routes {
            routes.push(route(&given.to, given.via.as_deref(), given.metric)?);
        }
        Ok((Interface { below, mtu: self.mtu, dhcp: self.dhcp4, addresses, routes }, self.nameservers))
    }
}

fn route(to: &str, via: Option<&str>, metric: Option<u32>) -> Result<Route, String> {
    let via: Option<IpAddr> =
        via.map(str::parse).transpose().map_err(|_| "the router of a route is no address".to_owned())?;
    let to: IpNet = match (to, via) {
        ("default", Some(IpAddr::V4(_))) => IpNet::default(),
        ("default", Some(IpAddr::V6(_))) => "::/0".parse().map_err(|_| "no default route".to_owned())?,
        ("default", None) => return Err("a default route has a router in `via`".to_owned()),
        (network, _) => {
            network.parse().map_err(|_| "a route is not to `default` or NETWORK/LENGTH".to_owned())?
        }
    };
    if via.is_some_and(|via| via.is_ipv4() != matches!(to, IpNet::V4(_))) {
        return Err("a route and its router have different kinds of addresses".to_owned());
    }
    Ok(Route { to, via, metric: metric.unwrap_or(METRIC) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ethernet(mac: &str) -> serde_json::Value {
        json!({"match": {"macaddress": mac}})
    }

    #[test]
    fn a_record_with_a_bond_and_a_vlan_is_read() {
        let record = Record::parse(&json!({
            "version": 2,
            "ethernets": {"a": ethernet("02:00:00:00:00:01"), "b": ethernet("02:00:00:00:00:02")},
            "bonds": {"bond": {
                "interfaces": ["a", "b"],
                "parameters": {"mode": "802.3ad", "lacp-rate": "fast", "transmit-hash-policy": "layer3+4"},
                "mtu": 9000,
            }},
            "vlans": {"v": {
                "id": 10,
                "link": "bond",
                "addresses": ["10.0.0.5/24", "2001:db8::5/64"],
                "routes": [{"to": "default", "via": "10.0.0.1"}, {"to": "10.9.0.0/16", "via": "10.0.0.2", "metric": 7}],
                "nameservers": {"addresses": ["10.0.0.1"], "search": ["lab.test"]},
            }},
        }));
        let record = record.unwrap();
        let vlan = &record.interfaces["v"];
        assert_eq!((vlan.addresses.len(), vlan.routes.len()), (2, 2));
        assert_eq!(vlan.routes[1].metric, 7);
        assert_eq!(record.name_servers, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        let mode = BondMode::Lacp { monitor_ms: 100, fast: true, hash: HashPolicy::Layer34 };
        let members = ["a".to_owned(), "b".to_owned()].into();
        assert_eq!(record.interfaces["bond"].below, Below::Bond(members, mode));
    }

    #[test]
    fn each_interface_with_dhcp_has_a_metric_that_no_other_route_of_the_record_has() {
        let with_dhcp = |last: u8| {
            let mut ethernet = ethernet(&format!("02:00:00:00:00:0{last}"));
            ethernet["dhcp4"] = json!(true);
            ethernet
        };
        let mut static_one = ethernet("02:00:00:00:00:09");
        static_one["routes"] = json!([
            {"to": "default", "via": "10.0.0.1", "metric": 101},
            {"to": "10.9.0.0/16", "via": "10.0.0.1", "metric": 100},
        ]);
        let mut ethernets = json!({"b": with_dhcp(2), "a": with_dhcp(1), "c": static_one, "d": with_dhcp(4)});
        let metrics = |ethernets: &serde_json::Value| {
            let record = Record::parse(&json!({"version": 2, "ethernets": ethernets})).unwrap();
            ["a", "b", "d"].map(|label| record.lease_metric(label))
        };
        assert_eq!(metrics(&ethernets), [102, 103, 104]);
        ethernets["c"] = ethernet("02:00:00:00:00:09");
        assert_eq!(metrics(&ethernets), [100, 101, 102]);
    }

    #[test]
    fn a_record_that_cannot_be_carried_out_is_refused_as_a_whole() {
        let a = ethernet("02:00:00:00:00:01");
        let bond = |mode: &str| json!({"interfaces": ["a"], "parameters": {"mode": mode}});
        let with = |key: &str, value: serde_json::Value| {
            let mut ethernet = a.clone();
            ethernet[key] = value;
            json!({"version": 2, "ethernets": {"a": ethernet}})
        };
        let cases = [
            (json!({"version": 1}), "version"),
            (json!({"version": 2, "ethernets": {"a": {"match": {"name": "en*"}}}}), "macaddress"),
            (json!({"version": 2, "ethernets": {"a": a, "b": a}}), "another interface"),
            (json!({"version": 2, "bridges": {}}), "bridges"),
            (
                json!({"version": 2, "ethernets": {"a": a}, "bonds": {"x": bond("balance-rr")}}),
                "active-backup",
            ),
            (json!({"version": 2, "bonds": {"x": bond("802.3ad")}}), "a is no ethernet"),
            (
                json!({"version": 2, "ethernets": {"a": a}, "bonds": {"x": bond("802.3ad"), "y": bond("802.3ad")}}),
                "another bond",
            ),
            (json!({"version": 2, "vlans": {"v": {"id": 5, "link": "a"}}}), "a is no ethernet"),
            (json!({"version": 2, "ethernets": {"a": a}, "vlans": {"v": {"id": 4095, "link": "a"}}}), "4094"),
            (with("addresses", json!(["10.0.0.5"])), "ADDRESS/LENGTH"),
            (with("routes", json!([{"to": "default"}])), "via"),
            (with("routes", json!([{"to": "10.0.0.0/8", "via": "fe80::1"}])), "different"),
            (with("mtu", json!(70000)), "mtu"),
            (with("wakeonlan", json!(true)), "wakeonlan"),
            (with("nameservers", json!({"search": ["a\nnameserver 9.9.9.9"]})), "search"),
        ];
        for (document, expected) in cases {
            let reason = Record::parse(&document).unwrap_err();
            assert!(reason.contains(expected), "{reason} does not have {expected}");
        }
    }
}

#[cfg(test)]
mod from_recipe;
