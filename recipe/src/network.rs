//! The network of the installer: the part of netplan's format, version 2, that the maintenance OS carries out.
//!
//! ```text
//! network ── schema (shapes) ──► check (addresses, names, links) ──► Network ──► job.json, key `network`
//!
//! ethernets NAME: match.macaddress          the card with this MAC, whatever its name is in this boot
//! bonds     NAME: interfaces, parameters    over ethernets
//! vlans     NAME: id, link                  over an ethernet or a bond
//! each:           dhcp4 dhcp6 addresses routes nameservers mtu
//! ```
//!
//! Invariants of a [`Network`] of an accepted recipe: names are unique over all three tables, a MAC is named once, every
//! `link` and member exists, a card is in at most one bond, and a member of a bond has no addresses of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::error::{FieldError, child, display};

/// The network of the installer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The version of netplan's format, always 2.
    #[serde(default = "version")]
    pub version: u8,
    /// The cards by a name of the author.
    pub ethernets: BTreeMap<String, Ethernet>,
    /// Bonds by the name of the link.
    #[serde(default)]
    pub bonds: BTreeMap<String, Bond>,
    /// VLANs by the name of the link.
    #[serde(default)]
    pub vlans: BTreeMap<String, Vlan>,
}

fn version() -> u8 {
    2
}

impl Network {
    /// Returns the number of links.
    #[must_use]
    pub fn links(&self) -> usize {
        self.ethernets.len() + self.bonds.len() + self.vlans.len()
    }
}

/// A network card of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ethernet {
    /// The property by which the card is found.
    #[serde(rename = "match")]
    pub matches: Match,
    /// The addresses of the card.
    #[serde(flatten)]
    pub addressing: Addressing,
}

/// The property by which a card is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// The MAC address, six pairs of hex digits with colons.
    pub macaddress: String,
}

/// Several cards as one link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// The names of the cards.
    pub interfaces: Vec<String>,
    /// The parameters.
    #[serde(default)]
    pub parameters: BondParameters,
    /// The addresses of the bond.
    #[serde(flatten)]
    pub addressing: Addressing,
}

/// The parameters of a bond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BondParameters {
    /// The mode.
    pub mode: BondMode,
    /// The rate at which LACP frames are requested.
    #[serde(default)]
    pub lacp_rate: LacpRate,
    /// Milliseconds between two looks at the links.
    #[serde(default = "mii_monitor_interval")]
    pub mii_monitor_interval: u32,
}

fn mii_monitor_interval() -> u32 {
    100
}

impl Default for BondParameters {
    fn default() -> Self {
        Self {
            mode: BondMode::ActiveBackup,
            lacp_rate: LacpRate::Slow,
            mii_monitor_interval: mii_monitor_interval(),
        }
    }
}

/// The mode of a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BondMode {
    /// One card is used, the others wait.
    #[serde(rename = "active-backup")]
    ActiveBackup,
    /// The cards form one link by LACP (`802.3ad`).
    #[serde(rename = "802.3ad")]
    Lacp,
}

/// The rate at which LACP frames are requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LacpRate {
    /// LACP frames are requested every 30 s.
    #[default]
    Slow,
    /// LACP frames are requested every second.
    Fast,
}

/// A VLAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlan {
    /// The number, 1 to 4094.
    pub id: u16,
    /// The name of the ethernet or bond that carries the VLAN.
    pub link: String,
    /// The addresses of the VLAN.
    #[serde(flatten)]
    pub addressing: Addressing,
}

/// The addresses of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addressing {
    /// Whether DHCP gives an IPv4 address.
    #[serde(default)]
    pub dhcp4: bool,
    /// Whether router advertisements or DHCPv6 give an IPv6 address.
    #[serde(default)]
    pub dhcp6: bool,
    /// Static addresses with their prefix length.
    #[serde(default, with = "texts")]
    pub addresses: Vec<IpNet>,
    /// Routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The DNS servers and search domains.
    #[serde(default)]
    pub nameservers: Nameservers,
    /// The largest packet in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Addressing {
    /// Returns whether the link gets no address at all.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        !self.dhcp4 && !self.dhcp6 && self.addresses.is_empty()
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination.
    pub to: Destination,
    /// The router.
    pub via: IpAddr,
    /// The metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// The destination of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Destination {
    /// Everything without another route.
    Default,
    /// A network.
    Network(IpNet),
}

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "default" => Ok(Self::Default),
            network => network.parse().map(Self::Network).map_err(|_| format!("{network:?} is no network")),
        }
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        match destination {
            Destination::Default => "default".to_owned(),
            Destination::Network(network) => network.to_string(),
        }
    }
}

/// The DNS servers and search domains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nameservers {
    /// The name servers.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The domains that are tried.
    #[serde(default)]
    pub search: Vec<String>,
}

/// Networks as texts.
mod texts {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer, T: Display>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: FromStr>(from: D) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts
            .iter()
            .map(|text| text.parse().map_err(|_| D::Error::custom("not an address with a prefix length")))
            .collect()
    }
}

/// Reads the network at the pointer `at`. The schema has checked the shapes.
pub(super) fn read(at: &str, value: &serde_json::Value) -> Result<Network, Vec<FieldError>> {
    let errors = unreadable_addresses(at, value);
    if !errors.is_empty() {
        return Err(errors);
    }
    serde_json::from_value(value.clone()).map_err(|_| {
        let message = format!("{} has a shape this controller does not know; see the schema.", display(at));
        vec![FieldError::new(at, "type", message)]
    })
}

/// The patterns of the schema allow texts such as `999.0.0.1/77`, which are no addresses.
fn unreadable_addresses(at: &str, value: &serde_json::Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut expect = |path: String, value: &serde_json::Value, wanted: &str, is_one: fn(&str) -> bool| {
        if value.as_str().is_some_and(|text| !is_one(text)) {
            errors.push(FieldError::new(&path, "address", format!("{} is not {wanted}.", display(&path))));
        }
    };
    let network: fn(&str) -> bool = |text| text.parse::<IpNet>().is_ok();
    let address: fn(&str) -> bool = |text| text.parse::<IpAddr>().is_ok();
    let items = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    for table in ["ethernets", "bonds", "vlans"] {
        for (name, link) in value[table].as_object().into_iter().flatten() {
            let at = child(&child(at, table), name);
            for (index, value) in items(&link["addresses"]).iter().enumerate() {
                let wanted = "an address with a prefix length such as 192.0.2.10/24";
                expect(format!("{at}/addresses/{index}"), value, wanted, network);
            }
            for (index, value) in items(&link["nameservers"]["addresses"]).iter().enumerate() {
                expect(format!("{at}/nameservers/addresses/{index}"), value, "an IP address", address);
            }
            for (index, route) in items(&link["routes"]).iter().enumerate() {
                let at = format!("{at}/routes/{index}");
                expect(format!("{at}/via"), &route["via"], "an IP address", address);
                let destination = |text: &str| text == "default" || text.parse::<IpNet>().is_ok();
                expect(format!("{at}/to"), &route["to"], "default or a network", destination);
            }
        }
    }
    errors
}

/// Returns the errors of names and links.
pub(super) fn errors(at: &str, network: &Network) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut fail = |path: &str, message: String| found.push(FieldError::new(path, "network", message));
    let place = |table: &str, name: &str| child(&child(at, table), name);
    let mut macs = BTreeMap::new();
    for (name, card) in &network.ethernets {
        let at = place("ethernets", name);
        if let Some(other) = macs.insert(card.matches.macaddress.to_ascii_lowercase(), name) {
            let path = format!("{at}/match/macaddress");
            fail(&path, format!("{} is the MAC address of `{other}` too.", display(&path)));
        }
    }
    let mut used: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names: BTreeSet<&str> = network.ethernets.keys().map(String::as_str).collect();
    for (name, bond) in &network.bonds {
        let at = place("bonds", name);
        if !names.insert(name) {
            fail(&at, format!("{} is the name of another link too.", display(&at)));
        }
        for (index, member) in bond.interfaces.iter().enumerate() {
            let path = format!("{at}/interfaces/{index}");
            match network.ethernets.get(member) {
                None => fail(&path, format!("{} is none of the ethernets.", display(&path))),
                Some(card) if !card.addressing.is_silent() || !card.addressing.routes.is_empty() => {
                    fail(
                        &path,
                        format!(
                            "{} has addresses or routes of its own; give them to the bond.",
                            display(&path)
                        ),
                    );
                }
                Some(_) => {}
            }
            if let Some(other) = used.insert(member, name) {
                fail(&path, format!("{} is in the bond `{other}` already.", display(&path)));
            }
        }
    }
    let links = names.clone();
    for (name, vlan) in &network.vlans {
        let at = place("vlans", name);
        if !names.insert(name) {
            fail(&at, format!("{} is the name of another link too.", display(&at)));
        }
        let path = format!("{at}/link");
        if !links.contains(vlan.link.as_str()) {
            fail(&path, format!("{} is none of the ethernets and bonds.", display(&path)));
        } else if used.contains_key(vlan.link.as_str()) {
            fail(&path, format!("{} is a member of a bond; name the bond.", display(&path)));
        }
    }
    let links = network.ethernets.iter().map(|(name, link)| (place("ethernets", name), &link.addressing));
    let links =
        links.chain(network.bonds.iter().map(|(name, link)| (place("bonds", name), &link.addressing)));
    let links =
        links.chain(network.vlans.iter().map(|(name, link)| (place("vlans", name), &link.addressing)));
    for (at, addressing) in links {
        for (index, domain) in addressing.nameservers.search.iter().enumerate() {
            if !is_domain(domain) {
                let path = format!("{at}/nameservers/search/{index}");
                let what =
                    "is no domain name: its labels have 1 to 63 letters, digits, dashes and underscores";
                fail(&path, format!("{} {what}.", display(&path)));
            }
        }
        for (index, route) in addressing.routes.iter().enumerate() {
            if let Destination::Network(network) = route.to
                && network.addr().is_ipv4() != route.via.is_ipv4()
            {
                let path = format!("{at}/routes/{index}/via");
                fail(&path, format!("{} is not of the family of `to`.", display(&path)));
            }
        }
    }
    found
}

/// Returns whether a text is a domain name: labels of 1 to 63 letters, digits, dashes and underscores, together at most 253.
/// A dot at the end is accepted.
#[must_use]
pub fn is_domain(text: &str) -> bool {
    let label = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&part.len()) && part.bytes().all(plain)
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}
