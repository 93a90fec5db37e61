//! DHCP for IPv4 (RFC 2131, 2132, 3396, 3442): messages, and the client of one link as a state machine.
//!
//! ```text
//!             offer                ack
//! Discover ----------> Request ----------> Bound: from half of the lease on requests, until acknowledged
//!    ^  every 2..16 s     |                  |  | ^
//!    |                    |           signal |  | | ack
//!    |                    |          returns v  | |
//!    |                    |               Reboot: a request whether the lease holds on this network
//!    |  4 attempts, nak   |   4 attempts, nak|  |end of the lease, nak
//!    +--------------------+------------------+--+
//! ```
//!
//! The machine has no socket and no clock: [`Client::poll`] returns what is to be sent, [`Client::receive`] takes what came, and
//! [`Client::lease`] is what the link may use.
//!
//! A lease is used until its end or until a server refuses it (RFC 2131, 4.4.5), whatever is asked for meanwhile: a network whose
//! server does not respond to `Reboot` is searched for another lease beside the one in use.
//!
//! Invariants: a reply counts only with the transaction and the MAC address of the client. Every list is bounded. A lease has
//! an address that a host can have. In two seconds at most two messages are sent, whatever servers and cables do.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net};

use super::{Mac, Route};

/// The port of servers, to which a client sends.
pub const SERVER_PORT: u16 = 67;
/// The port of clients.
pub const CLIENT_PORT: u16 = 68;

const MAGIC: [u8; 4] = [99, 130, 83, 99];
const FIXED: usize = 240;
/// The message that asks for offers, and the one that asks for an address.
const DISCOVERY: u8 = 1;
const REQUEST: u8 = 3;
/// Bytes of one option, of all its pieces together.
const MAX_OPTION: usize = 1024;
const MAX_LIST: usize = 32;
/// Some relays drop shorter messages.
const SHORTEST: usize = 300;
/// The metric of routes of a lease. Where several leases are in use each has its own, from this one on.
pub(super) const METRIC: u32 = 100;

const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
const REQUESTS: u32 = 4;
const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// The time of a lease whose server names none.
const LEASE_TIME: Duration = Duration::from_secs(3600);

mod option {
    pub(super) const PAD: u8 = 0;
    pub(super) const MASK: u8 = 1;
    pub(super) const ROUTERS: u8 = 3;
    pub(super) const NAME_SERVERS: u8 = 6;
    pub(super) const DOMAIN: u8 = 15;
    pub(super) const MTU: u8 = 26;
    pub(super) const ADDRESS: u8 = 50;
    pub(super) const LEASE_TIME: u8 = 51;
    pub(super) const OVERLOAD: u8 = 52;
    pub(super) const KIND: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const PARAMETERS: u8 = 55;
    pub(super) const LARGEST: u8 = 57;
    pub(super) const RENEWAL: u8 = 58;
    pub(super) const REBINDING: u8 = 59;
    pub(super) const CLASS: u8 = 60;
    pub(super) const CLIENT: u8 = 61;
    pub(super) const ROUTES: u8 = 121;
    pub(super) const END: u8 = 255;
}

/// The kind of a DHCP server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// An address is offered.
    Offer,
    /// The request is granted.
    Ack,
    /// The request is refused.
    Nak,
}

/// An address for a time, and what comes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address with the length of its network.
    pub address: Ipv4Net,
    /// The server.
    pub server: Option<Ipv4Addr>,
    /// The routes.
    pub routes: Vec<Route>,
    /// The name servers.
    pub name_servers: Vec<IpAddr>,
    /// The domain of the machine.
    pub domain: Option<String>,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// How long the lease lasts.
    pub time: Duration,
    /// After which time the lease is renewed.
    pub renewal: Duration,
    /// After which time another server may renew the lease.
    pub rebinding: Duration,
}

/// A message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The kind of the message.
    pub kind: ReplyKind,
    /// The transaction that the message belongs to.
    pub transaction: u32,
    /// The client that the message is for.
    pub mac: Mac,
    /// The lease; of a refusal there is none.
    pub lease: Option<Lease>,
}

/// Returns the DHCP message in an IPv4 packet to a client.
#[must_use]
pub fn of_packet(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let header = usize::from(first & 15) * 4;
    let total = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff;
    // UDP, version 4, no fragment.
    if first >> 4 != 4 || header < 20 || fragment != 0 || *packet.get(9)? != 17 {
        return None;
    }
    let udp = packet.get(header..total)?;
    let port = |at: usize| Some(u16::from_be_bytes(udp.get(at..at + 2)?.try_into().ok()?));
    let length = usize::from(port(4)?);
    if port(0)? != SERVER_PORT || port(2)? != CLIENT_PORT {
        return None;
    }
    udp.get(8..length)
}

impl Reply {
    /// Parses a message.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        // A reply, over Ethernet.
        if bytes.get(..3)? != [2, 1, 6] || bytes.get(236..FIXED)? != MAGIC {
            return None;
        }
        let mut options = BTreeMap::new();
        collect(bytes.get(FIXED..)?, &mut options);
        // Options can go on in the fields of file and server name.
        let overload = options.get(&option::OVERLOAD).and_then(|value| value.first()).copied().unwrap_or(0);
        if overload & 1 != 0 {
            collect(bytes.get(108..236)?, &mut options);
        }
        if overload & 2 != 0 {
            collect(bytes.get(44..108)?, &mut options);
        }
        let kind = match options.get(&option::KIND)?[..] {
            [2] => ReplyKind::Offer,
            [5] => ReplyKind::Ack,
            [6] => ReplyKind::Nak,
            _ => return None,
        };
        let lease = match kind {
            ReplyKind::Nak => None,
            _ => Some(lease(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(16..20)?).ok()?), &options)?),
        };
        Some(Self {
            kind,
            transaction: u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?),
            mac: Mac(bytes.get(28..34)?.try_into().ok()?),
            lease,
        })
    }
}

/// Reads options up to their end; pieces of one option are joined.
fn collect(mut bytes: &[u8], options: &mut BTreeMap<u8, Vec<u8>>) {
    while let Some((&code, rest)) = bytes.split_first() {
        match code {
            option::PAD => bytes = rest,
            option::END => return,
            _ => {
                let Some((&length, rest)) = rest.split_first() else { return };
                let Some((value, rest)) = rest.split_at_checked(usize::from(length)) else { return };
                let whole = options.entry(code).or_default();
                if whole.len() + value.len() <= MAX_OPTION {
                    whole.extend(value);
                }
                bytes = rest;
            }
        }
    }
}

fn addresses(options: &BTreeMap<u8, Vec<u8>>, code: u8) -> Vec<Ipv4Addr> {
    let value = options.get(&code).map(Vec::as_slice).unwrap_or_default();
    let all = value.chunks_exact(4).map(|part| Ipv4Addr::new(part[0], part[1], part[2], part[3]));
    all.filter(|address| is_host(*address)).take(MAX_LIST).collect()
}

fn is_host(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback())
        && address.octets()[0] != 0
}

fn lease(address: Ipv4Addr, options: &BTreeMap<u8, Vec<u8>>) -> Option<Lease> {
    if !is_host(address) {
        return None;
    }
    let number = |code| Some(u32::from_be_bytes(options.get(&code)?.as_slice().try_into().ok()?));
    let length = match number(option::MASK) {
        Some(mask) if mask != 0 && mask.leading_ones() + mask.trailing_zeros() == 32 => mask.leading_ones(),
        Some(_) => return None,
        // Without a mask the class of the address decides.
        None => [(128, 8), (192, 16), (255, 24)].into_iter().find(|(end, _)| address.octets()[0] < *end)?.1,
    };
    let address = Ipv4Net::new(address, u8::try_from(length).ok()?).ok()?;
    let seconds = |code| number(code).map(|seconds| Duration::from_secs(u64::from(seconds)));
    let time = seconds(option::LEASE_TIME).unwrap_or(LEASE_TIME);
    if time.is_zero() {
        return None;
    }
    let renewal = seconds(option::RENEWAL).filter(|renewal| !renewal.is_zero() && *renewal < time);
    // A server that wants a renewal every second of a long lease does not get it.
    let renewal = renewal.unwrap_or(time / 2).max(shortest_pause(time));
    let rebinding = seconds(option::REBINDING).filter(|rebinding| (renewal..time).contains(rebinding));
    let domain = options.get(&option::DOMAIN).and_then(|text| std::str::from_utf8(text).ok());
    let domain = domain
        .map(|text| text.trim_end_matches('\0').to_owned())
        .filter(|text| super::resolver::is_domain(text));
    let mtu = options.get(&option::MTU).and_then(|value| <[u8; 2]>::try_from(value.as_slice()).ok());
    Some(Lease {
        address,
        server: addresses(options, option::SERVER).first().copied(),
        routes: routes(options),
        name_servers: addresses(options, option::NAME_SERVERS).into_iter().map(IpAddr::V4).collect(),
        domain,
        mtu: mtu.map(|bytes| u32::from(u16::from_be_bytes(bytes))).filter(|mtu| *mtu >= 576),
        time,
        renewal,
        rebinding: rebinding.unwrap_or(time / 8 * 7).max(renewal),
    })
}

/// The routes of a lease: the classless ones, or without them a default route by the first router.
fn routes(options: &BTreeMap<u8, Vec<u8>>) -> Vec<Route> {
    let Some(mut bytes) = options.get(&option::ROUTES).map(Vec::as_slice) else {
        let router = addresses(options, option::ROUTERS).first().copied();
        let via = router.map(IpAddr::V4);
        return via
            .map(|via| Route { to: IpNet::default(), via: Some(via), metric: METRIC })
            .into_iter()
            .collect();
    };
    let mut routes = Vec::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let bytes_of_network = usize::from(length.div_ceil(8));
        let Some((network, rest)) = rest.split_at_checked(bytes_of_network).filter(|_| length <= 32) else {
            break;
        };
        let Some((router, rest)) = rest.split_at_checked(4) else { break };
        let mut octets = [0; 4];
        octets[..network.len()].copy_from_slice(network);
        let via = Ipv4Addr::new(router[0], router[1], router[2], router[3]);
        if let Ok(to) = Ipv4Net::new(octets.into(), length)
            && routes.len() < MAX_LIST
            && (via.is_unspecified() || is_host(via))
        {
            let via = (!via.is_unspecified()).then_some(IpAddr::V4(via));
            routes.push(Route { to: IpNet::V4(to.trunc()), via, metric: METRIC });
        }
        bytes = rest;
    }
    // Routes on the link come first: a router may be reached through one.
    routes.sort_by_key(|route| route.via.is_some());
    routes
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Discover,
    Request(Lease),
    Reboot,
    Bound,
}

/// A lease that a server granted.
#[derive(Clone, Debug)]
struct Held {
    lease: Lease,
    /// When the request was sent: the lease lasts from then.
    from: Duration,
}

impl Held {
    fn ends(&self) -> Duration {
        self.from + self.lease.time
    }

    /// The pause after a request to renew the lease: half of the time that is left until T2 or the end, with a lower bound.
    fn pause(&self, now: Duration) -> Duration {
        let Lease { time, rebinding, .. } = self.lease;
        let passed = now.saturating_sub(self.from);
        let left = if passed < rebinding { rebinding } else { time }.saturating_sub(passed);
        (left / 2).max(shortest_pause(time)).min(left)
    }
}

/// What a client asks for. All messages are broadcast, so a request to the server of the lease (before T2) and one to any server
/// (after T2) are the same.
enum Wish<'a> {
    Discover,
    Select(&'a Lease),
    Verify(&'a Lease),
    Renew(&'a Lease),
}

/// Returns the shortest pause between two requests to renew a lease of this time: a minute, or an eighth of a short lease.
fn shortest_pause(time: Duration) -> Duration {
    (time / 8).clamp(FIRST_PAUSE, RENEWAL_PAUSE)
}

/// The client of one link.
#[derive(Clone, Debug)]
pub struct Client {
    mac: Mac,
    transaction: u32,
    state: State,
    held: Option<Held>,
    /// When something is sent next.
    next: Duration,
    /// When something was sent last.
    sent: Option<Duration>,
    attempt: u32,
    /// When the present exchange began.
    begun: Duration,
}

impl Client {
    /// Creates the client of a link; `seed` is a random number.
    #[must_use]
    pub fn new(mac: Mac, seed: u32, now: Duration) -> Self {
        Self {
            mac,
            transaction: seed,
            state: State::Discover,
            held: None,
            next: now,
            sent: None,
            attempt: 0,
            begun: now,
        }
    }

    /// Returns the lease that the link may use.
    #[must_use]
    pub fn lease(&self, now: Duration) -> Option<&Lease> {
        self.held.as_ref().filter(|held| now < held.ends()).map(|held| &held.lease)
    }

    /// Begins anew without waiting: the link has a signal again, which can be that of another network. A lease is verified.
    pub fn signal(&mut self, now: Duration) {
        let state = if self.lease(now).is_some() { State::Reboot } else { State::Discover };
        self.begin(state, now);
    }

    fn begin(&mut self, state: State, now: Duration) {
        self.state = state;
        self.transaction = self.transaction.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.attempt = 0;
        self.next = now;
        self.begun = now;
    }

    /// Returns the address of the link, which is in every message.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns the message that is to be sent now.
    pub fn poll(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.held.as_ref().is_some_and(|held| now >= held.ends()) {
            self.held = None;
            if matches!(self.state, State::Bound | State::Reboot) {
                self.begin(State::Discover, now);
            }
        }
        // Only a request that follows its offer is sent at once.
        let follows = matches!(self.state, State::Request(_)) && self.attempt == 0;
        let is_early = self.sent.is_some_and(|sent| now < sent + FIRST_PAUSE);
        if now < self.next || (is_early && !follows) {
            return None;
        }
        if matches!(self.state, State::Request(_) | State::Reboot) && self.attempt >= REQUESTS {
            self.begin(State::Discover, now);
        }
        let (pause, wish) = match (&self.state, &self.held) {
            (State::Request(lease), _) => (self.pause(), Wish::Select(lease)),
            (State::Reboot, Some(held)) => (self.pause(), Wish::Verify(&held.lease)),
            (State::Bound, Some(held)) => (held.pause(now), Wish::Renew(&held.lease)),
            _ => (self.pause(), Wish::Discover),
        };
        let message = self.message(&wish, now);
        self.attempt = self.attempt.saturating_add(1);
        self.next = now + pause;
        self.sent = Some(now);
        Some(message)
    }

    /// The pause doubles; machines that start together do not send together.
    fn pause(&self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.attempt.min(8)).min(LONGEST_PAUSE);
        pause + Duration::from_millis(u64::from(self.transaction.rotate_left(self.attempt) % 500))
    }

    /// Takes a reply. Returns the lease when there is a new one or its renewal.
    pub fn receive(&mut self, reply: &Reply, now: Duration) -> Option<Lease> {
        if reply.transaction != self.transaction || reply.mac != self.mac {
            return None;
        }
        match (&self.state, reply.kind, &reply.lease) {
            (State::Discover, ReplyKind::Offer, Some(lease)) => {
                self.state = State::Request(lease.clone());
                self.attempt = 0;
                self.next = now;
                None
            }
            (State::Request(_) | State::Reboot | State::Bound, ReplyKind::Ack, Some(lease)) => {
                let held = Held { lease: lease.clone(), from: self.sent.unwrap_or(now) };
                self.state = State::Bound;
                self.next = held.from + lease.renewal;
                self.begun = self.next;
                self.attempt = 0;
                self.held = Some(held);
                // A message can have waited for longer than its lease lasts.
                self.lease(now).cloned()
            }
            (State::Request(_) | State::Reboot | State::Bound, ReplyKind::Nak, _) => {
                self.held = None;
                self.begin(State::Discover, now);
                None
            }
            _ => None,
        }
    }

    /// Builds a message. Of a lease that is renewed the address is in the field of the client, otherwise in an option.
    fn message(&self, wish: &Wish<'_>, now: Duration) -> Vec<u8> {
        let (kind, present, wanted, server) = match wish {
            Wish::Discover => (DISCOVERY, None, None, None),
            Wish::Select(lease) => (REQUEST, None, Some(lease.address.addr()), lease.server),
            Wish::Verify(lease) => (REQUEST, None, Some(lease.address.addr()), None),
            Wish::Renew(lease) => (REQUEST, Some(lease.address.addr()), None, None),
        };
        let seconds = u16::try_from(now.saturating_sub(self.begun).as_secs()).unwrap_or(u16::MAX);
        let mut bytes = vec![1, 1, 6, 0];
        bytes.extend(self.transaction.to_be_bytes());
        bytes.extend(seconds.to_be_bytes());
        // Replies are broadcast: the kernel takes no packet to an address that the link does not have.
        bytes.extend([0x80, 0]);
        bytes.extend(present.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        bytes.resize(28, 0);
        bytes.extend(self.mac.0);
        bytes.resize(236, 0);
        bytes.extend(MAGIC);
        let mut add = |code: u8, value: &[u8]| {
            bytes.extend([code, u8::try_from(value.len()).unwrap_or(0)]);
            bytes.extend(value);
        };
        add(option::KIND, &[kind]);
        add(option::CLIENT, &[&[1], &self.mac.0[..]].concat());
        if let Some(address) = wanted {
            add(option::ADDRESS, &address.octets());
        }
        if let Some(server) = server {
            add(option::SERVER, &server.octets());
        }
        add(option::LARGEST, &1472_u16.to_be_bytes());
        add(option::CLASS, b"shoal-agent");
        let wanted = [
            option::MASK,
            option::ROUTES,
            option::ROUTERS,
            option::NAME_SERVERS,
            option::DOMAIN,
            option::MTU,
            option::LEASE_TIME,
            option::RENEWAL,
            option::REBINDING,
        ];
        add(option::PARAMETERS, &wanted);
        bytes.push(option::END);
        bytes.resize(bytes.len().max(SHORTEST), 0);
        bytes
    }
}

#[cfg(test)]
#[path = "dhcp/tests.rs"]
mod tests;
