//! The network of the maintenance OS: links, addresses and routes, by the server's record or by DHCP.
//!
//! ```text
//! job.json `network` --record--> Record --plan--+
//!                                               +--> Change --netlink--> kernel        connect: the first link that
//! no record: DHCP on every link --dhcp--> Lease +                                       reaches the controller is kept
//! ```
//!
//! What is decided is decided by pure functions: `plan` (record and links to changes), `dhcp` (a state machine over packets
//! and time) and `connect` (which link is tried). The kernel is behind [`Kernel`]; `system` is its implementation.
//!
//! Invariants: links are found by MAC address only, also after their card was inserted again. Parsers of foreign bytes (DHCP, netlink) are bounded, and have fuzz
//! targets. IPv6 autoconfiguration and link-local addresses are the kernel's own.

use std::{io, net::IpAddr, time::Duration};

use ipnet::IpNet;

pub mod connect;
pub mod dhcp;
pub mod netlink;
pub mod plan;
pub mod record;
pub mod resolver;
pub mod system;

#[cfg(test)]
mod test_kit;

/// The unit under which the network is logged and reported.
pub const UNIT: &str = "network.service";

/// The address of an Ethernet link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::fmt::Debug for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'));
            *byte = part
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or("a MAC address has six pairs of hexadecimal digits")?;
        }
        if parts.next().is_some() {
            return Err("a MAC address has six pairs of hexadecimal digits".to_owned());
        }
        Ok(Self(bytes))
    }
}

/// A link of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The number by which the kernel knows the link.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The address of the hardware: the permanent one where the driver knows it.
    pub mac: Option<Mac>,
    /// Whether the link is of hardware: an Ethernet link that is no bond, no VLAN and no other software.
    pub hardware: bool,
    /// Whether the link is switched on.
    pub up: bool,
    /// Whether the link has a signal.
    pub carrier: bool,
    /// How often the signal came or went: a cable can be moved between two looks.
    pub carrier_changes: u32,
    /// The number of the bond that the link is a member of.
    pub master: Option<u32>,
}

/// One change of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Switches a link on or off.
    Switch {
        /// The link.
        index: u32,
        /// On or off.
        up: bool,
    },
    /// Sets the largest packet.
    Mtu {
        /// The link.
        index: u32,
        /// Bytes.
        mtu: u32,
    },
    /// Makes a link a member of a bond.
    Join {
        /// The link.
        index: u32,
        /// The bond.
        bond: u32,
    },
    /// Creates a bond.
    Bond {
        /// The name of the bond.
        name: String,
        /// The way in which the bond uses its members.
        mode: record::BondMode,
    },
    /// Creates a VLAN.
    Vlan {
        /// The name of the VLAN.
        name: String,
        /// The link below the VLAN.
        link: u32,
        /// The number of the VLAN.
        id: u16,
    },
    /// Removes a bond or a VLAN, and with it what is on it. The members of a bond are free then.
    Remove {
        /// The link.
        index: u32,
    },
    /// Adds or removes an address.
    Address {
        /// The link.
        index: u32,
        /// The address, with the length of its network.
        address: IpNet,
        /// Whether the address is added.
        add: bool,
    },
    /// Adds or removes a route.
    Route {
        /// The link.
        index: u32,
        /// Where the route leads.
        route: Route,
        /// Whether the route is added.
        add: bool,
    },
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network; a length of 0 is the default route.
    pub to: IpNet,
    /// The router; without it the network is on the link.
    pub via: Option<IpAddr>,
    /// Of two routes to a network, that with the smaller number is used.
    pub metric: u32,
}

/// The functions of the kernel that the network uses: links, changes, DHCP messages, resolver.
pub trait Kernel {
    /// Returns the links.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn links(&self) -> io::Result<Vec<Link>>;

    /// Makes a change. One that was made before is a success.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn change(&self, change: &Change) -> io::Result<()>;

    /// Sends a DHCP message to every host on a link.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn broadcast(&self, index: u32, message: &[u8]) -> io::Result<()>;

    /// Returns the next DHCP message to a client, of any link, after at most this time.
    fn receive(&self, wait: Duration) -> Option<Vec<u8>>;

    /// Replaces the configuration of the resolver.
    ///
    /// # Errors
    /// Returns the error of the file system.
    fn set_resolver(&self, text: &str) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_six_pairs_and_nothing_else() {
        let mac: Mac = "52:54:00:AB:cd:01".parse().unwrap();
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:01");
        assert_eq!("52-54-00-ab-cd-01".parse::<Mac>().unwrap(), mac);
        for bad in
            ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "52:54:00:ab:cd:+1", "52:54:00:ab:cd:1", "x"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
