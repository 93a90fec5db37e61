//! Tools of the tests of the network: a DHCP server, and a kernel with links.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    io,
    net::Ipv4Addr,
    time::Duration,
};

use super::{Change, Kernel, Link, Mac, Route};
use crate::clock::Clock as _;
use crate::test_kit::VirtualClock;

/// A server that offers and grants one address, and refuses every other one.
pub(crate) struct DhcpServer {
    pub(crate) address: Cell<Ipv4Addr>,
    /// How long its leases last.
    pub(crate) seconds: Cell<u32>,
    pub(crate) is_silent: Cell<bool>,
    pub(crate) router: Cell<Ipv4Addr>,
}

impl DhcpServer {
    pub(crate) fn new(address: &str, router: &str) -> Self {
        Self {
            address: Cell::new(address.parse().unwrap()),
            seconds: Cell::new(3600),
            is_silent: Cell::new(false),
            router: Cell::new(router.parse().unwrap()),
        }
    }

    /// The address that a request is for: an option, or the field of a client that uses it.
    fn requested(message: &[u8]) -> [u8; 4] {
        let option = message.windows(6).skip(240).find(|part| part[..2] == [50, 4]);
        option.map_or(&message[12..16], |part| &part[2..]).try_into().unwrap()
    }

    pub(crate) fn reply(&self, message: &[u8]) -> Option<Vec<u8>> {
        let address = self.address.get().octets();
        let kind = match message[242] {
            _ if self.is_silent.get() => return None,
            1 => 2,
            3 if Self::requested(message) == address => 5,
            3 => 6,
            _ => return None,
        };
        let mut bytes = message[..240].to_vec();
        bytes[0] = 2;
        bytes[16..20].copy_from_slice(&address);
        let [a, b, c, d] = self.router.get().octets();
        bytes.extend([
            53, 1, kind, 54, 4, a, b, c, d, 1, 4, 255, 255, 255, 0, 3, 4, a, b, c, d, 6, 4, a, b, c, 3,
        ]);
        bytes.extend([51, 4]);
        bytes.extend(self.seconds.get().to_be_bytes());
        bytes.extend([15, 8]);
        bytes.extend(b"lab.test");
        bytes.push(255);
        Some(bytes)
    }

    /// The message in UDP and IPv4, without checksums.
    pub(crate) fn packet(&self, message: &[u8]) -> Vec<u8> {
        let length = |extra: usize| u16::try_from(message.len() + extra).unwrap().to_be_bytes();
        let mut bytes = vec![0x45, 0];
        bytes.extend(length(28));
        bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        bytes.extend(self.router.get().octets());
        bytes.extend([255; 4]);
        bytes.extend([0, 67, 0, 68]);
        bytes.extend(length(8));
        bytes.extend([0, 0]);
        bytes.extend(message);
        bytes
    }
}

/// A kernel with links, DHCP servers behind some of them, and a record of what was changed.
pub(crate) struct FakeKernel<'test> {
    pub(crate) clock: &'test VirtualClock,
    pub(crate) links: RefCell<Vec<Link>>,
    pub(crate) servers: BTreeMap<u32, DhcpServer>,
    pub(crate) changes: RefCell<Vec<Change>>,
    pub(crate) resolver: RefCell<String>,
    /// When all links get their signal.
    pub(crate) signal_at: Option<Duration>,
    inbox: RefCell<VecDeque<Vec<u8>>>,
    sent: RefCell<Vec<(u32, Vec<u8>)>>,
}

impl<'test> FakeKernel<'test> {
    pub(crate) fn new(clock: &'test VirtualClock, links: Vec<Link>) -> Self {
        Self {
            clock,
            links: RefCell::new(links),
            servers: BTreeMap::new(),
            changes: RefCell::default(),
            resolver: RefCell::default(),
            signal_at: None,
            inbox: RefCell::default(),
            sent: RefCell::default(),
        }
    }

    pub(crate) fn sent_on(&self, index: u32) -> usize {
        self.sent.borrow().iter().filter(|(link, _)| *link == index).count()
    }

    /// The messages that were sent on a link.
    pub(crate) fn messages_on(&self, index: u32) -> Vec<Vec<u8>> {
        let sent = self.sent.borrow();
        sent.iter().filter(|(link, _)| *link == index).map(|(_, message)| message.clone()).collect()
    }

    /// The addresses of links in the messages that were sent on a link.
    pub(crate) fn senders_on(&self, index: u32) -> Vec<Mac> {
        let sent = self.sent.borrow();
        let messages = sent.iter().filter(|(link, _)| *link == index);
        messages.map(|(_, message)| Mac(message[28..34].try_into().unwrap())).collect()
    }

    /// The addresses that are set now.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let mut set = Vec::new();
        for change in self.changes.borrow().iter() {
            if let Change::Address { index, address, add } = change {
                let text = format!("{index}: {address}");
                set.retain(|known| *known != text);
                if *add {
                    set.push(text);
                }
            }
            if let Change::Remove { index } = change {
                set.retain(|known| !known.starts_with(&format!("{index}: ")));
            }
        }
        set
    }

    /// The routes that are set now. The kernel replaces a route to the same network with the same metric, of whatever link.
    pub(crate) fn routes(&self) -> Vec<String> {
        let mut set: Vec<(u32, Route)> = Vec::new();
        for change in self.changes.borrow().iter() {
            if let Change::Remove { index } = change {
                set.retain(|(link, _)| link != index);
            }
            if let Change::Route { index, route, add } = change {
                set.retain(|(link, known)| match add {
                    true => (known.to, known.metric) != (route.to, route.metric),
                    false => (link, known) != (index, route),
                });
                if *add {
                    set.push((*index, route.clone()));
                }
            }
        }
        let router = |route: &Route| route.via.map_or_else(|| "the link".to_owned(), |via| via.to_string());
        set.iter()
            .map(|(link, route)| format!("{link}: {} by {}, {}", route.to, router(route), route.metric))
            .collect()
    }
}

/// A link of hardware with a signal.
pub(crate) fn link(index: u32) -> Link {
    Link {
        index,
        name: format!("eth{index}"),
        mac: Some(Mac([2, 0, 0, 0, 0, u8::try_from(index).unwrap()])),
        hardware: true,
        up: false,
        carrier: true,
        carrier_changes: 1,
        master: None,
    }
}

impl Kernel for &FakeKernel<'_> {
    fn links(&self) -> io::Result<Vec<Link>> {
        // A connector that never reaches its controller would work forever.
        assert!(self.clock.elapsed() < Duration::from_secs(3600), "the controller is not reached in an hour");
        if self.signal_at.is_some_and(|at| self.clock.elapsed() >= at) {
            self.links.borrow_mut().iter_mut().for_each(|link| link.carrier = true);
        }
        Ok(self.links.borrow().clone())
    }

    fn change(&self, change: &Change) -> io::Result<()> {
        self.changes.borrow_mut().push(change.clone());
        let mut links = self.links.borrow_mut();
        let next = links.iter().map(|link| link.index).max().unwrap_or(0) + 1;
        match change {
            Change::Switch { index, up } => {
                links.iter_mut().filter(|link| link.index == *index).for_each(|link| link.up = *up);
            }
            Change::Join { index, bond } => {
                let is_first = links.iter().all(|link| link.master != Some(*bond));
                let member = links.iter_mut().find(|link| link.index == *index).unwrap();
                member.master = Some(*bond);
                let (mac, carrier) = (member.mac, member.carrier);
                let bond = links.iter_mut().find(|link| link.index == *bond).unwrap();
                bond.carrier |= carrier;
                if is_first {
                    bond.mac = mac;
                }
            }
            Change::Bond { name, .. } => {
                // A random address, and no signal, until it has a member.
                let mac = Some(Mac([0x8a, 1, 2, 3, 4, 5]));
                links.push(Link { index: next, name: name.clone(), mac, ..Link::default() });
            }
            Change::Vlan { name, .. } => {
                links.push(Link { index: next, name: name.clone(), carrier: true, ..Link::default() });
            }
            Change::Remove { index } => {
                links.retain(|link| link.index != *index);
                links
                    .iter_mut()
                    .filter(|link| link.master == Some(*index))
                    .for_each(|link| link.master = None);
            }
            _ => {}
        }
        Ok(())
    }

    fn broadcast(&self, index: u32, message: &[u8]) -> io::Result<()> {
        self.sent.borrow_mut().push((index, message.to_vec()));
        let reply = self.servers.get(&index).and_then(|server| server.reply(message));
        self.inbox.borrow_mut().extend(reply);
        Ok(())
    }

    fn receive(&self, wait: Duration) -> Option<Vec<u8>> {
        let message = self.inbox.borrow_mut().pop_front();
        if message.is_none() && !wait.is_zero() {
            self.clock.sleep(wait);
        }
        message
    }

    fn set_resolver(&self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.resolver.borrow_mut());
        Ok(())
    }
}
