//! From links to a controller that accepts reports of the job.
//!
//! ```text
//! every round: links on -> record: its steps | no record: DHCP on every link at once -> packets -> leases
//! every 2 s, and at each new lease: report of the job to the controller
//!    accepted: this link is kept          refused again and again for 30 s: the job is not carried out
//!    no response: the lease of the next link is tried
//! ```
//!
//! Without a record one lease at a time is in use, so it is never open which link a connection takes. A link that does not
//! lead to the controller gives way to the next one.
//!
//! Invariants: [`Connector::connect`] returns only when the controller responded to the job. One that never responds is tried
//! for as long as the machine is on, and no disk is touched meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net};

use super::dhcp::{Client, Lease, Reply};
use super::record::Record;
use super::{Change, Kernel, Link, Route, UNIT, plan, resolver};
use crate::clock::Clock;
use crate::log::Log;

/// After this time without the controller the log says what is missing.
pub const PATIENCE: Duration = Duration::from_secs(120);
const ROUND: Duration = Duration::from_millis(500);
const PROBE_PAUSE: Duration = Duration::from_secs(2);
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// The longest time between two refusals that belong together: the leases of other links are tried meanwhile.
const REFUSAL_GAP: Duration = Duration::from_secs(15);
/// Messages of DHCP servers that are read in a round.
const MAX_MESSAGES: usize = 64;

/// The response of the controller to a report of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The controller accepted the report.
    Accepted,
    /// The controller refused the report with this status: the job is not, or not any more, to be carried out.
    Refused(u16),
    /// There was no response, or one that decides nothing.
    Away(String),
}

/// The DHCP of one link.
struct LinkClient {
    client: Client,
    carrier: bool,
    lease: Option<Lease>,
}

/// Brings the network up and keeps it up.
pub struct Connector<K> {
    kernel: K,
    record: Option<Record>,
    log: Log,
    seed: u32,
    configured: BTreeSet<String>,
    clients: BTreeMap<u32, LinkClient>,
    /// The leases in use by link; without a record one at most.
    active: BTreeMap<u32, Lease>,
    /// Whether the controller was reached: from then no other link is tried.
    kept: bool,
    links: Vec<Link>,
    said: BTreeSet<String>,
}

impl<K: Kernel> Connector<K> {
    /// Creates a connector; `seed` is a random number.
    pub fn new(kernel: K, record: Option<Record>, seed: u32, log: Log) -> Self {
        Self {
            kernel,
            record,
            log,
            seed,
            configured: BTreeSet::new(),
            clients: BTreeMap::new(),
            active: BTreeMap::new(),
            kept: false,
            links: Vec::new(),
            said: BTreeSet::new(),
        }
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Works until the controller accepted or refused a report of the job.
    pub fn connect(&mut self, clock: &dyn Clock, probe: &dyn Fn() -> Reach) -> Reach {
        let begun = clock.elapsed();
        let (mut next_probe, mut next_word) = (begun, begun + PATIENCE);
        // The first and the last of refusals that follow each other.
        let mut refused: Option<(Duration, Duration)> = None;
        loop {
            let leased = self.round(clock);
            let now = clock.elapsed();
            if leased || now >= next_probe {
                self.choose();
                // Without any signal there is nothing that could respond.
                let outcome = if self.links.iter().any(|link| link.hardware && link.carrier) {
                    probe()
                } else {
                    Reach::Away("no link has a signal".to_owned())
                };
                match outcome {
                    Reach::Accepted => {
                        self.keep();
                        return Reach::Accepted;
                    }
                    Reach::Refused(status) => {
                        // One early refusal decides nothing: a proxy refuses while its controller starts.
                        let earlier = refused.filter(|(_, last)| now.saturating_sub(*last) <= REFUSAL_GAP);
                        let since = earlier.map_or(now, |(since, _)| since);
                        if now.saturating_sub(since) >= REFUSAL_TIME {
                            self.keep();
                            return Reach::Refused(status);
                        }
                        refused = Some((since, now));
                    }
                    Reach::Away(reason) => self.say(format!("the controller is not reached yet: {reason}")),
                }
                self.give_way();
                next_probe = clock.elapsed() + PROBE_PAUSE;
            }
            if clock.elapsed() >= next_word {
                self.complain(begun, clock);
                next_word = clock.elapsed() + PATIENCE * 5;
            }
        }
    }

    /// Gives the leases back to the kernel: another connector follows.
    pub fn release(&mut self) {
        let used: Vec<u32> = self.active.keys().copied().collect();
        used.into_iter().for_each(|index| self.drop_lease(index));
    }

    /// Carries out one round: links, steps of the record, packets. Returns whether there is a new lease.
    pub fn round(&mut self, clock: &dyn Clock) -> bool {
        match self.kernel.links() {
            Ok(links) => self.links = links,
            Err(source) => self.say(format!("reading the links: {source}")),
        }
        for change in plan::raise(&self.links) {
            self.change(&change);
        }
        if let Some(record) = self.record.clone() {
            self.carry_out(&record);
        }
        self.set_clients(clock.elapsed());
        self.exchange(clock)
    }

    fn carry_out(&mut self, record: &Record) {
        for step in plan::next(record, &self.links, &self.configured) {
            let made = step.changes.iter().all(|change| self.change(change));
            if let (true, Some(label)) = (made, step.configures) {
                self.log.line(UNIT, format!("{label} is configured by the server's record"));
                self.configured.insert(label);
                self.set_resolver();
            }
        }
    }

    /// Makes a change. A failure is logged once, and the change is tried again in a later round.
    fn change(&mut self, change: &Change) -> bool {
        match self.kernel.change(change) {
            Ok(()) => true,
            Err(source) => {
                self.say(format!("the kernel refuses {change:?}: {source}"));
                false
            }
        }
    }

    /// Logs a line once.
    fn say(&mut self, line: String) {
        const MOST: usize = 256;
        if self.said.len() < MOST && self.said.insert(line.clone()) {
            self.log.line(UNIT, line);
        }
    }

    /// Starts the clients of links that use DHCP, and removes those of links that are gone.
    fn set_clients(&mut self, now: Duration) {
        let wanted: Vec<Link> = match &self.record {
            Some(record) => {
                let dhcp = record.interfaces.iter().filter(|(_, interface)| interface.dhcp);
                dhcp.filter_map(|(label, _)| plan::link(record, label, &self.links)).cloned().collect()
            }
            None => {
                let hardware = self.links.iter().filter(|link| link.hardware && link.master.is_none());
                hardware.filter(|link| !self.kept || self.active.contains_key(&link.index)).cloned().collect()
            }
        };
        self.clients.retain(|index, _| wanted.iter().any(|link| link.index == *index));
        for link in wanted {
            let Some(mac) = link.mac else { continue };
            // A bond takes the address of its first member, in place of a random one. Replies by the old address would be for no link.
            if self.clients.get(&link.index).is_some_and(|known| known.client.mac() != mac) {
                self.clients.remove(&link.index);
            }
            let seed = self.seed.wrapping_add(link.index.wrapping_mul(0x9e37_79b9));
            let known = self.clients.entry(link.index).or_insert_with(|| LinkClient {
                client: Client::new(mac, seed, now),
                carrier: false,
                lease: None,
            });
            if link.carrier && !known.carrier {
                known.client.hurry(now);
            }
            known.carrier = link.carrier;
        }
    }

    /// Sends what is due and takes what comes, for the time of a round. Returns whether there is a new lease.
    fn exchange(&mut self, clock: &dyn Clock) -> bool {
        let begun = clock.elapsed();
        let mut leased = false;
        for _ in 0..MAX_MESSAGES {
            let now = clock.elapsed();
            let mut failures = Vec::new();
            for (index, known) in self.clients.iter_mut().filter(|(_, known)| known.carrier) {
                if let Some(message) = known.client.poll(now)
                    && let Err(source) = self.kernel.broadcast(*index, &message)
                {
                    failures.push(format!("sending to DHCP servers on link {index}: {source}"));
                }
            }
            failures.into_iter().for_each(|line| self.say(line));
            let left = ROUND.saturating_sub(now.saturating_sub(begun));
            let Some(message) = self.kernel.receive(left) else { break };
            if let Some(reply) = Reply::parse(&message) {
                leased |= self.take(&reply, clock.elapsed());
            }
            if left.is_zero() {
                break;
            }
        }
        leased
    }

    fn take(&mut self, reply: &Reply, now: Duration) -> bool {
        for (index, known) in &mut self.clients {
            let Some(lease) = known.client.receive(reply, now) else { continue };
            let index = *index;
            let renewed = known.lease.replace(lease.clone());
            let same = renewed.as_ref().is_some_and(|old| old.address == lease.address);
            if !same {
                let name = self.links.iter().find(|link| link.index == index).map_or("?", |link| &link.name);
                let server = lease
                    .server
                    .map_or_else(|| "a server without address".to_owned(), |server| server.to_string());
                self.log.line(UNIT, format!("{name} has a lease of {} from {server}", lease.address));
            }
            if self.record.is_some() || (self.active.contains_key(&index) && !same) {
                self.use_lease(index, lease);
            }
            return !same;
        }
        false
    }

    /// Without a record: takes a lease into use when none is.
    fn choose(&mut self) {
        if self.record.is_none() && self.active.is_empty() {
            let candidate =
                self.clients.iter().find_map(|(index, known)| Some((*index, known.lease.clone()?)));
            if let Some((index, lease)) = candidate {
                self.use_lease(index, lease);
            }
        }
    }

    /// Without a record: the lease in use did not lead to the controller, so the next link is tried.
    fn give_way(&mut self) {
        if self.record.is_some() {
            return;
        }
        let Some(present) = self.active.keys().next().copied() else { return };
        let with_lease: Vec<u32> =
            self.clients.iter().filter(|(_, known)| known.lease.is_some()).map(|(index, _)| *index).collect();
        let next = with_lease.iter().find(|index| **index > present).or(with_lease.first()).copied();
        if let Some(next) = next.filter(|next| *next != present)
            && let Some(lease) = self.clients.get(&next).and_then(|known| known.lease.clone())
        {
            self.drop_lease(present);
            self.use_lease(next, lease);
        }
    }

    fn use_lease(&mut self, index: u32, lease: Lease) {
        if self.active.get(&index).is_some_and(|old| old.address != lease.address) {
            self.drop_lease(index);
        }
        for change in lease_changes(index, &lease, true) {
            self.change(&change);
        }
        self.active.insert(index, lease);
        self.set_resolver();
    }

    fn drop_lease(&mut self, index: u32) {
        if let Some(lease) = self.active.remove(&index) {
            for change in lease_changes(index, &lease, false).into_iter().rev() {
                // What is not there any more needs no removal.
                let _ = self.kernel.change(&change);
            }
        }
    }

    fn set_resolver(&mut self) {
        let (mut servers, mut search): (Vec<IpAddr>, Vec<String>) = match &self.record {
            Some(record) => (record.name_servers.clone(), record.search.clone()),
            None => (Vec::new(), Vec::new()),
        };
        for lease in self.active.values() {
            servers.extend(&lease.name_servers);
            search.extend(lease.domain.clone());
        }
        if let Err(source) = self.kernel.set_resolver(&resolver::configuration(&servers, &search)) {
            self.say(format!("writing the configuration of the resolver: {source}"));
        }
    }

    /// The controller was reached: what is in use stays.
    fn keep(&mut self) {
        self.kept = true;
        let used: Vec<String> = self.active.values().map(|lease| lease.address.to_string()).collect();
        let used = if used.is_empty() {
            "the addresses of the kernel and the record".to_owned()
        } else {
            used.join(", ")
        };
        self.log.line(UNIT, format!("the controller responds; in use: {used}"));
    }

    fn complain(&mut self, begun: Duration, clock: &dyn Clock) {
        let seconds = clock.elapsed().saturating_sub(begun).as_secs();
        let hint = "check cables, switch ports and the network of the server's record";
        self.log.line(
            UNIT,
            format!("the controller is not reached after {seconds} s; no disk is touched; {hint}"),
        );
        if self.links.iter().all(|link| !link.hardware) {
            self.log.line(UNIT, "this machine has no network link: no driver of the medium found a card");
        }
        for link in self.links.iter().filter(|link| link.hardware) {
            let lease = self.clients.get(&link.index).and_then(|known| known.lease.as_ref());
            let mac = link.mac.map_or_else(|| "no address".to_owned(), |mac| mac.to_string());
            let signal = if link.carrier { "signal" } else { "no signal" };
            let lease = lease.map_or_else(|| "no lease".to_owned(), |lease| lease.address.to_string());
            self.log.line(UNIT, format!("{}: {mac}, {signal}, {lease}", link.name));
        }
    }
}

/// The changes of a lease, to add or to remove it.
fn lease_changes(index: u32, lease: &Lease, add: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    if let (true, Some(mtu)) = (add, lease.mtu) {
        changes.push(Change::Mtu { index, mtu });
    }
    changes.push(Change::Address { index, address: IpNet::V4(lease.address), add });
    for route in &lease.routes {
        if let Some(IpAddr::V4(via)) = route.via
            && !lease.address.contains(&via)
            && let Ok(host) = Ipv4Net::new(via, 32)
        {
            // A router outside of the network is on the link all the same.
            let route = Route { to: IpNet::V4(host), via: None, metric: route.metric };
            changes.push(Change::Route { index, route, add });
        }
        changes.push(Change::Route { index, route: route.clone(), add });
    }
    changes
}

#[cfg(test)]
#[path = "connect/tests.rs"]
mod tests;
