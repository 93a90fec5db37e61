//! rtnetlink messages: requests as bytes, and links from bytes.
//!
//! ```text
//! Change --request--> nlmsghdr { length, type, flags, sequence, 0 } + ifinfomsg | ifaddrmsg | rtmsg + attributes
//! bytes  --messages--> Message { type, sequence, payload } --link--> Link
//! ```
//!
//! Numbers are in the byte order of the machine, as the kernel has them; addresses are in that of the network.
//!
//! Invariants: lengths of the kernel are checked before they are used. Nothing is allocated by a length in a message.

use std::net::IpAddr;

use ipnet::IpNet;

use super::record::{BondMode, HashPolicy};
use super::{Change, Link, Mac};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
/// The list changed while it was written: it can lack an entry.
const DUMP_INTERRUPTED: u16 = 0x10;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const IF_UP: u32 = 1;
const IF_LOWER_UP: u32 = 1 << 16;
const ETHERNET: u16 = 1;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_LINK: u16 = 5;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const LINK_CARRIER_CHANGES: u16 = 35;
const LINK_PERMANENT_ADDRESS: u16 = 54;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const BOND_MODE: u16 = 1;
const BOND_MII_MONITOR: u16 = 3;
const BOND_HASH_POLICY: u16 = 14;
const BOND_LACP_RATE: u16 = 21;
const VLAN_ID: u16 = 1;
const ADDRESS_ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
/// No duplicate address detection: the address can be used at once.
const NO_DAD: u32 = 2;
const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const ROUTE_VIA: u16 = 5;
const ROUTE_METRIC: u16 = 6;
const TABLE_MAIN: u8 = 254;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_LINK: u8 = 253;
const UNICAST: u8 = 1;

const HEADER: usize = 16;
const LINK_HEADER: usize = 16;

/// A request under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, sequence: u32, header: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(header);
        Self(bytes)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        append(&mut self.0, kind, value);
        self
    }

    fn bytes(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Appends an attribute, padded to four bytes.
fn append(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn attributes(list: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in list {
        append(&mut bytes, *kind, value);
    }
    bytes
}

fn link_header(index: u32, flags: u32, mask: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(mask.to_ne_bytes());
    bytes
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn family(network: &IpNet) -> u8 {
    if matches!(network, IpNet::V4(_)) { FAMILY_V4 } else { FAMILY_V6 }
}

/// Returns the request for all links.
#[must_use]
pub fn list_links(sequence: u32) -> Vec<u8> {
    Request::new(GET_LINK, DUMP, sequence, &link_header(0, 0, 0)).bytes()
}

/// Returns the request for a change. The kernel acknowledges it.
#[must_use]
pub fn request(change: &Change, sequence: u32) -> Vec<u8> {
    let link = |flags, header: &[u8]| Request::new(NEW_LINK, ACKNOWLEDGE | flags, sequence, header);
    match change {
        Change::Switch { index, up } => {
            link(0, &link_header(*index, if *up { IF_UP } else { 0 }, IF_UP)).bytes()
        }
        Change::Mtu { index, mtu } => {
            link(0, &link_header(*index, 0, 0)).with(LINK_MTU, &mtu.to_ne_bytes()).bytes()
        }
        Change::Join { index, bond } => {
            link(0, &link_header(*index, 0, 0)).with(LINK_MASTER, &bond.to_ne_bytes()).bytes()
        }
        Change::Bond { name, mode } => {
            created(link(CREATE | EXCLUSIVE, &link_header(0, 0, 0)), name, b"bond", &bond(mode))
        }
        Change::Vlan { name, link: below, id } => {
            let request =
                link(CREATE | EXCLUSIVE, &link_header(0, 0, 0)).with(LINK_LINK, &below.to_ne_bytes());
            created(request, name, b"vlan", &attributes(&[(VLAN_ID, &id.to_ne_bytes())]))
        }
        Change::Remove { index } => {
            Request::new(DELETE_LINK, ACKNOWLEDGE, sequence, &link_header(*index, 0, 0)).bytes()
        }
        Change::Address { index, address, add } => {
            let (kind, flags) = if *add { (NEW_ADDRESS, CREATE | REPLACE) } else { (DELETE_ADDRESS, 0) };
            let mut header = vec![family(address), address.prefix_len(), 0, 0];
            header.extend(index.to_ne_bytes());
            let octets = octets(address.addr());
            Request::new(kind, ACKNOWLEDGE | flags, sequence, &header)
                .with(ADDRESS_LOCAL, &octets)
                .with(ADDRESS_ADDRESS, &octets)
                .with(ADDRESS_FLAGS, &NO_DAD.to_ne_bytes())
                .bytes()
        }
        Change::Route { index, route, add } => {
            let (kind, flags) = if *add { (NEW_ROUTE, CREATE | REPLACE) } else { (DELETE_ROUTE, 0) };
            let scope = if route.via.is_none() && matches!(route.to, IpNet::V4(_)) { SCOPE_LINK } else { 0 };
            let header =
                [family(&route.to), route.to.prefix_len(), 0, 0, TABLE_MAIN, PROTOCOL_BOOT, scope, UNICAST];
            let mut request =
                Request::new(kind, ACKNOWLEDGE | flags, sequence, &[&header[..], &[0; 4]].concat())
                    .with(ROUTE_LINK, &index.to_ne_bytes())
                    .with(ROUTE_METRIC, &route.metric.to_ne_bytes());
            if route.to.prefix_len() > 0 {
                request = request.with(ROUTE_TO, &octets(route.to.network()));
            }
            if let Some(via) = route.via {
                request = request.with(ROUTE_VIA, &octets(via));
            }
            request.bytes()
        }
    }
}

fn created(request: Request, name: &str, kind: &[u8], data: &[u8]) -> Vec<u8> {
    let info = attributes(&[(INFO_KIND, kind), (INFO_DATA, data)]);
    request.with(LINK_NAME, &[name.as_bytes(), &[0]].concat()).with(LINK_INFO, &info).bytes()
}

fn bond(mode: &BondMode) -> Vec<u8> {
    let monitor = |milliseconds: &u32| milliseconds.to_ne_bytes();
    match mode {
        BondMode::ActiveBackup { monitor_ms } => {
            attributes(&[(BOND_MODE, &[1]), (BOND_MII_MONITOR, &monitor(monitor_ms))])
        }
        BondMode::Lacp { monitor_ms, fast, hash } => {
            let hash = match hash {
                HashPolicy::Layer2 => 0,
                HashPolicy::Layer34 => 1,
                HashPolicy::Layer23 => 2,
            };
            attributes(&[
                (BOND_MODE, &[4]),
                (BOND_MII_MONITOR, &monitor(monitor_ms)),
                (BOND_HASH_POLICY, &[hash]),
                (BOND_LACP_RATE, &[u8::from(*fast)]),
            ])
        }
    }
}

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetlinkMessage {
    /// A link, or `None` where it cannot be read.
    Link(Option<Link>),
    /// The end of a list, or the result of a request: 0 or the number of an error.
    End(i32),
    /// The list that this message belongs to changed while it was written, and can lack an entry.
    Interrupted,
    /// Another message.
    Other,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_ne_bytes)
}

/// Returns the messages of a datagram with their sequence numbers. A damaged length ends the list.
#[must_use]
pub fn messages(mut bytes: &[u8]) -> Vec<(u32, NetlinkMessage)> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind), Some(flags), Some(sequence)) =
        (u32_at(bytes, 0), u16_at(bytes, 4), u16_at(bytes, 6), u32_at(bytes, 8))
    {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(payload) = bytes.get(HEADER..length) else { break };
        let message = match kind {
            NEW_LINK => NetlinkMessage::Link(link(payload)),
            ERROR => NetlinkMessage::End(number(payload, 0).map_or(0, i32::from_ne_bytes)),
            DONE => NetlinkMessage::End(0),
            _ => NetlinkMessage::Other,
        };
        if matches!(kind, NEW_LINK | DONE) && flags & DUMP_INTERRUPTED != 0 {
            found.push((sequence, NetlinkMessage::Interrupted));
        }
        found.push((sequence, message));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Iterates over the attributes in `bytes`; a damaged length ends it.
fn each_attribute<'a>(mut bytes: &'a [u8], mut visit: impl FnMut(u16, &'a [u8])) {
    while let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        let length = usize::from(length);
        let Some(value) = bytes.get(4..length) else { return };
        // The two highest bits are flags.
        visit(kind & 0x3fff, value);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn link(payload: &[u8]) -> Option<Link> {
    let (kind, index, flags) = (u16_at(payload, 2)?, u32_at(payload, 4)?, u32_at(payload, 8)?);
    let mac = |value: &[u8]| value.try_into().ok().map(Mac).filter(|mac| mac.0 != [0; 6]);
    let mut found = Link {
        index,
        up: flags & IF_UP != 0,
        carrier: flags & IF_LOWER_UP != 0,
        hardware: kind == ETHERNET,
        ..Link::default()
    };
    let mut permanent = None;
    each_attribute(payload.get(LINK_HEADER..)?, |kind, value| match kind {
        LINK_ADDRESS => found.mac = mac(value),
        LINK_PERMANENT_ADDRESS => permanent = mac(value),
        LINK_NAME => {
            let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
            found.name = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
        }
        LINK_MASTER => found.master = u32_at(value, 0),
        LINK_CARRIER_CHANGES => found.carrier_changes = u32_at(value, 0).unwrap_or(0),
        // Hardware has no kind; a bond, a VLAN or a bridge has one.
        LINK_INFO => each_attribute(value, |kind, _| found.hardware &= kind != INFO_KIND),
        _ => {}
    });
    found.mac = permanent.or(found.mac);
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::net::Route;

    fn hex(bytes: &[u8]) -> String {
        hex::encode(bytes)
    }

    #[test]
    fn requests_have_the_bytes_that_the_kernel_reads() {
        let up = request(&Change::Switch { index: 2, up: true }, 7);
        assert_eq!(
            hex(&up),
            "20000000100005000700000000000000000000000200000001000000".to_owned() + "01000000"
        );
        let remove = request(&Change::Remove { index: 5 }, 7);
        assert_eq!(
            hex(&remove),
            "20000000110005000700000000000000000000000500000000000000".to_owned() + "00000000"
        );
        let address =
            request(&Change::Address { index: 2, address: "10.0.2.15/24".parse().unwrap(), add: true }, 1);
        assert_eq!(
            hex(&address),
            "30000000140005050100000000000000021800000200000008000200".to_owned()
                + "0a00020f080001000a00020f0800080002000000"
        );
        let route = Route { to: "0.0.0.0/0".parse().unwrap(), via: "10.0.2.2".parse().ok(), metric: 100 };
        let route = request(&Change::Route { index: 2, route, add: true }, 1);
        assert_eq!(
            hex(&route),
            "3400000018000505010000000000000002000000fe0300010000000008000400".to_owned()
                + "020000000800060064000000080005000a000202"
        );
    }

    #[test]
    fn a_bond_and_a_vlan_carry_their_kind_and_their_data() {
        let mode = BondMode::Lacp { monitor_ms: 100, fast: true, hash: HashPolicy::Layer34 };
        let bond = request(&Change::Bond { name: "b0".to_owned(), mode }, 1);
        assert!(hex(&bond).contains(&hex(b"bond")), "{}", hex(&bond));
        assert!(hex(&bond).ends_with("0500010004000000080003006400000005000e00010000000500150001000000"));
        let vlan = request(&Change::Vlan { name: "v0".to_owned(), link: 3, id: 10 }, 1);
        assert!(
            hex(&vlan).ends_with("06000100".to_owned().as_str()) || hex(&vlan).contains("060001000a000000")
        );
    }

    fn reply(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Request::new(kind, 0, 5, body).bytes();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn links_are_read_with_their_permanent_address_and_software_is_not_hardware() {
        let mut header = link_header(3, IF_UP | IF_LOWER_UP, 0);
        header[2..4].copy_from_slice(&ETHERNET.to_ne_bytes());
        let plain = attributes(&[
            (LINK_NAME, b"eth0\0"),
            (LINK_ADDRESS, &[2, 0, 0, 0, 0, 9]),
            (LINK_PERMANENT_ADDRESS, &[2, 0, 0, 0, 0, 1]),
            (LINK_MASTER, &9_u32.to_ne_bytes()),
            (LINK_CARRIER_CHANGES, &4_u32.to_ne_bytes()),
        ]);
        let info = attributes(&[(INFO_KIND, b"bond\0")]);
        let software = attributes(&[(LINK_NAME, b"bond0\0"), (LINK_INFO, &info)]);
        let mut bytes = reply(NEW_LINK, &[&header[..], &plain].concat());
        bytes.extend(reply(NEW_LINK, &[&header[..], &software].concat()));
        bytes.extend(reply(ERROR, &(-17_i32).to_ne_bytes()));
        let found = messages(&bytes);
        let [
            (5, NetlinkMessage::Link(Some(eth0))),
            (5, NetlinkMessage::Link(Some(bond0))),
            (5, NetlinkMessage::End(-17)),
        ] = &found[..]
        else {
            panic!("{found:?}");
        };
        assert_eq!(
            (eth0.name.as_str(), eth0.mac, eth0.master),
            ("eth0", Some(Mac([2, 0, 0, 0, 0, 1])), Some(9))
        );
        assert!(eth0.hardware && eth0.up && eth0.carrier && !bond0.hardware);
        assert_eq!((eth0.carrier_changes, bond0.carrier_changes), (4, 0));
    }

    #[test]
    fn a_list_that_changed_while_it_was_written_is_marked() {
        let mut end = reply(DONE, &[0; 4]);
        assert_eq!(messages(&end), [(5, NetlinkMessage::End(0))]);
        end[6..8].copy_from_slice(&(2 | DUMP_INTERRUPTED).to_ne_bytes());
        assert_eq!(messages(&end), [(5, NetlinkMessage::Interrupted), (5, NetlinkMessage::End(0))]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = messages(&bytes);
        }

        #[test]
        fn a_message_that_is_cut_anywhere_is_read_without_a_panic(cut in 0_usize..200, at in 0_usize..200, value: u8) {
            let mut header = link_header(3, IF_UP, 0);
            header[2..4].copy_from_slice(&ETHERNET.to_ne_bytes());
            let list = attributes(&[(LINK_NAME, b"eth0\0"), (LINK_INFO, &attributes(&[(INFO_KIND, b"bond\0")]))]);
            let mut bytes = reply(NEW_LINK, &[&header[..], &list].concat());
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut);
            let _ = messages(&bytes);
        }
    }
}
