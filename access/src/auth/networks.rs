//! Lists of networks in settings: proxies that are believed, clients that need no login for media.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Addresses and networks of a setting.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Networks(Vec<IpNet>);

/// The text is no list of networks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "addresses or networks separated by commas, such as 192.0.2.7, 10.0.0.0/8, 2001:db8::/64; not a network of all addresses"
)]
pub struct NoNetworks;

impl FromStr for Networks {
    type Err = NoNetworks;

    fn from_str(text: &str) -> Result<Self, NoNetworks> {
        let network = |text: &str| {
            let one = |address: IpAddr| IpNet::from(address.to_canonical());
            let network = text.parse::<IpAddr>().map(one).or_else(|_| text.parse::<IpNet>());
            // A network of all addresses would make the setting mean every client.
            network.ok().filter(|network| network.prefix_len() > 0).map(|network| network.trunc())
        };
        text.split(',').map(|part| network(part.trim()).ok_or(NoNetworks)).collect::<Result<_, _>>().map(Self)
    }
}

impl Networks {
    /// Whether an address is in one of the networks. An IPv4 address in IPv6 form counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}
