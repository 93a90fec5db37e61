//! From links to a controller that accepts reports of the job.
//!
//! ```text
//! every round: links on -> record: its steps | no record: DHCP on every link at once -> packets -> leases
//! every 2 s, and at each new lease: report of the job to the controller
//!    accepted: this link is kept
//!    refused: the refusals of one link are added up       30 s of them: the job is not carried out
//!    another response: this link begins to count anew     no response: nothing is counted
//!    the lease of the next link is tried
//! every round, also while the task is carried out: a lease that ended, was refused or lost its link is not used any more
//! ```
//!
//! Without a record one lease at a time is in use, so it is never open which link a connection takes. A link that does not
//! lead to the controller gives way to the next one. With a record each link has its lease, and routes with its own metric.
//!
//! A link is known by its MAC address: a card that was inserted again has another number in the kernel, and gets its network again.
//!
//! Invariants: [`Connector::connect`] returns only when the controller responded to the job, or a newer job replaces it. A controller
//! that never responds is tried for as long as the machine is on, and no disk is touched meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net};

use super::dhcp::{self, Client, Lease, Reply};
use super::record::Record;
use super::{Change, Kernel, Link, Mac, Route, UNIT, plan, resolver};
use crate::clock::Clock;
use crate::log::Log;

/// After this time without the controller the log says what is missing.
pub const PATIENCE: Duration = Duration::from_secs(120);
const ROUND: Duration = Duration::from_millis(500);
const PROBE_PAUSE: Duration = Duration::from_secs(2);
/// How long a job is refused by one link before it is not carried out.
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// The most that the time between two refusals counts. The leases of other links are tried meanwhile, which can take minutes: silence
/// is no refusal.
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
    /// There was a response that decides nothing: that of another program, or of a controller that is busy.
    Other(String),
    /// There was no response.
    Away(String),
    /// A newer job is there.
    Replaced,
}

/// The DHCP of one link.
struct LinkClient {
    client: Client,
    carrier: bool,
    carrier_changes: u32,
}

/// A lease that its link uses.
struct UsedLease {
    lease: Lease,
    /// What the kernel was given for the lease, and gives back.
    made: Vec<Change>,
    /// The metric of the routes.
    metric: u32,
}

/// The refusals that came by one link without another response between them.
struct RefusalRow {
    last: Duration,
    time: Duration,
}

/// Brings the network up and keeps it up.
pub struct Connector<K> {
    kernel: K,
    record: Option<Record>,
    log: Log,
    seed: u32,
    /// The interfaces of the record with the links that were configured for them.
    configured: BTreeMap<String, u32>,
    clients: BTreeMap<u32, LinkClient>,
    /// The leases in use by link; without a record one at most.
    active: BTreeMap<u32, UsedLease>,
    /// Once the controller was reached, the links that lead to it: no other one is tried.
    kept: Option<BTreeSet<Mac>>,
    links: Vec<Link>,
    said: BTreeSet<String>,
    /// The configuration of the resolver.
    resolver: String,
}

impl<K: Kernel> Connector<K> {
    /// Creates a connector; `seed` is a random number.
    pub fn new(kernel: K, record: Option<Record>, seed: u32, log: Log) -> Self {
        Self {
            kernel,
            record,
            log,
            seed,
            configured: BTreeMap::new(),
            clients: BTreeMap::new(),
            active: BTreeMap::new(),
            kept: None,
            links: Vec::new(),
            said: BTreeSet::new(),
            resolver: String::new(),
        }
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Works until the controller accepted or refused a report of the job, or another job replaces it.
    pub fn connect(
        &mut self,
        clock: &dyn Clock,
        is_replaced: &dyn Fn() -> bool,
        probe: &dyn Fn() -> Reach,
    ) -> Reach {
        let begun = clock.elapsed();
        let (mut next_probe, mut next_word) = (begun, begun + PATIENCE);
        let mut refusals: BTreeMap<Option<u32>, RefusalRow> = BTreeMap::new();
        loop {
            let leased = self.round(clock);
            if leased || clock.elapsed() >= next_probe {
                // By the record the kernel chooses the link of each connection.
                let path = self.active.keys().next().copied().filter(|_| self.record.is_none());
                refusals.retain(|path, _| {
                    path.is_none_or(|path| self.links.iter().any(|link| link.index == path))
                });
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
                        // One early refusal decides nothing: a controller that starts can refuse what it accepts later.
                        let now = clock.elapsed();
                        let row =
                            refusals.entry(path).or_insert(RefusalRow { last: now, time: Duration::ZERO });
                        row.time += now.saturating_sub(row.last).min(REFUSAL_GAP);
                        row.last = now;
                        if row.time >= REFUSAL_TIME {
                            self.keep();
                            return Reach::Refused(status);
                        }
                    }
                    Reach::Other(reason) => {
                        refusals.remove(&path);
                        self.say(format!("the controller is not reached yet: {reason}"));
                    }
                    Reach::Away(reason) => self.say(format!("the controller is not reached yet: {reason}")),
                    Reach::Replaced => return Reach::Replaced,
                }
                // Only while there is no controller that could say which job it awaits.
                if is_replaced() {
                    return Reach::Replaced;
                }
                self.give_way(clock.elapsed());
                next_probe = clock.elapsed() + PROBE_PAUSE;
            }
            if clock.elapsed() >= next_word {
                self.complain(begun, clock.elapsed());
                next_word = clock.elapsed() + PATIENCE * 5;
            }
        }
    }

    /// Undoes what was configured, by leases and by the record: a connector for another job follows.
    pub fn release(&mut self) {
        let used: Vec<u32> = self.active.keys().copied().collect();
        used.into_iter().for_each(|index| self.drop_lease(index));
        if let (Some(record), Ok(links)) = (&self.record, self.kernel.links()) {
            for change in plan::undo(record, &links, &self.configured) {
                // Such as a VLAN that went with its bond.
                let _ = self.kernel.change(&change);
            }
        }
        self.configured.clear();
    }

    /// Carries out one round: links, steps of the record, packets, leases. Returns whether there is a new lease.
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
        // Before anything waits, and after what came.
        self.drop_lost(clock.elapsed());
        let leased = self.exchange(clock);
        self.drop_lost(clock.elapsed());
        self.choose(clock.elapsed());
        leased
    }

    fn carry_out(&mut self, record: &Record) {
        for step in plan::next(record, &self.links, &self.configured) {
            let made = step.changes.iter().all(|change| self.change(change));
            if let (true, Some((label, index))) = (made, step.configures) {
                self.log.line(UNIT, format!("{label} is configured by the server's record"));
                self.configured.insert(label, index);
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
                let is_wanted = |link: &Link| match (&self.kept, link.mac) {
                    (Some(kept), Some(mac)) => kept.contains(&mac),
                    (kept, _) => kept.is_none(),
                };
                hardware.filter(|link| is_wanted(link)).cloned().collect()
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
                carrier_changes: 0,
            });
            if link.carrier && (!known.carrier || known.carrier_changes != link.carrier_changes) {
                known.client.signal(now);
            }
            known.carrier = link.carrier;
            known.carrier_changes = link.carrier_changes;
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
            let index = *index;
            let name = self.links.iter().find(|link| link.index == index).map_or("?", |link| &link.name);
            let before = known.client.lease(now).map(|lease| lease.address);
            let Some(lease) = known.client.receive(reply, now) else {
                if let (Some(address), None) = (before, known.client.lease(now)) {
                    self.log.line(UNIT, format!("{name}: a DHCP server refused the lease of {address}"));
                }
                continue;
            };
            let same = before == Some(lease.address);
            if !same {
                let server = lease
                    .server
                    .map_or_else(|| "a server without address".to_owned(), |server| server.to_string());
                self.log.line(UNIT, format!("{name} has a lease of {} from {server}", lease.address));
            }
            // Of a renewal too: the kernel forgets routes of a link that was switched off, and a server can change them.
            if self.record.is_some() || self.active.contains_key(&index) {
                self.use_lease(index, lease);
            }
            return !same;
        }
        false
    }

    /// Drops the leases in use that ended, that a server refused, or whose link is gone.
    fn drop_lost(&mut self, now: Duration) {
        let is_held = |index: &u32| self.clients.get(index).is_some_and(|it| it.client.lease(now).is_some());
        let lost: Vec<u32> = self.active.keys().filter(|index| !is_held(index)).copied().collect();
        for index in &lost {
            let name = self.links.iter().find(|link| link.index == *index);
            let name = name.map_or_else(|| "a link that is gone".to_owned(), |link| link.name.clone());
            if let Some(used) = self.active.get(index) {
                let line = format!("{name}: the lease of {} is not used any more", used.lease.address);
                self.log.line(UNIT, line);
            }
            self.drop_lease(*index);
        }
        if !lost.is_empty() {
            self.set_resolver();
        }
    }

    /// Without a record: takes a lease into use when none is.
    fn choose(&mut self, now: Duration) {
        if self.record.is_none() && self.active.is_empty() {
            let mut clients = self.clients.iter();
            let candidate =
                clients.find_map(|(index, known)| Some((*index, known.client.lease(now)?.clone())));
            if let Some((index, lease)) = candidate {
                self.use_lease(index, lease);
            }
        }
    }

    /// Without a record: the lease in use did not lead to the controller, so the next link is tried.
    fn give_way(&mut self, now: Duration) {
        if self.record.is_some() {
            return;
        }
        let Some(present) = self.active.keys().next().copied() else { return };
        let has_lease = |known: &LinkClient| known.client.lease(now).is_some();
        let with_lease: Vec<u32> =
            self.clients.iter().filter(|(_, known)| has_lease(known)).map(|(index, _)| *index).collect();
        let next = with_lease.iter().find(|index| **index > present).or(with_lease.first()).copied();
        if let Some(next) = next.filter(|next| *next != present)
            && let Some(lease) = self.clients.get(&next).and_then(|known| known.client.lease(now).cloned())
        {
            self.drop_lease(present);
            self.use_lease(next, lease);
        }
    }

    fn use_lease(&mut self, index: u32, lease: Lease) {
        let interface = self.record.as_ref().and_then(|record| {
            let mut labels = record.interfaces.iter();
            let of_link =
                |label: &str| plan::link(record, label, &self.links).is_some_and(|it| it.index == index);
            labels.find(|(label, interface)| interface.dhcp && of_link(label))
        });
        let metric = match (&self.record, interface) {
            (Some(record), Some((label, _))) => record.lease_metric(label),
            _ => dhcp::METRIC,
        };
        let wanted = lease_changes(index, &lease, metric);
        // What the record has too is not of the lease, and stays when the lease ends.
        let is_static = |change: &Change| match (change, interface) {
            (Change::Address { address, .. }, Some((_, interface))) => interface.addresses.contains(address),
            _ => false,
        };
        let own: Vec<bool> = wanted.iter().map(|change| !is_static(change)).collect();
        let former = self.active.remove(&index).map(|used| used.made).unwrap_or_default();
        self.undo(former.into_iter().filter(|change| !wanted.contains(change)).collect());
        if let Some(mtu) = lease.mtu {
            self.change(&Change::Mtu { index, mtu });
        }
        let mut made = Vec::new();
        for (change, is_own) in wanted.into_iter().zip(own) {
            if self.change(&change) && is_own {
                made.push(change);
            }
        }
        self.active.insert(index, UsedLease { lease, made, metric });
        self.set_resolver();
    }

    fn drop_lease(&mut self, index: u32) {
        if let Some(used) = self.active.remove(&index) {
            self.undo(used.made);
        }
    }

    /// Removes what was added, the last first.
    fn undo(&self, made: Vec<Change>) {
        for mut change in made.into_iter().rev() {
            if let Change::Address { add, .. } | Change::Route { add, .. } = &mut change {
                *add = false;
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
        // The name servers of the preferred link are asked first.
        let mut used: Vec<&UsedLease> = self.active.values().collect();
        used.sort_by_key(|used| used.metric);
        for UsedLease { lease, .. } in used {
            servers.extend(&lease.name_servers);
            search.extend(lease.domain.clone());
        }
        let text = resolver::configuration(&servers, &search);
        // A renewal writes nothing: a program could read half of the file.
        if text == self.resolver {
            return;
        }
        match self.kernel.set_resolver(&text) {
            Ok(()) => self.resolver = text,
            Err(source) => self.say(format!("writing the configuration of the resolver: {source}")),
        }
    }

    /// The controller was reached: what is in use stays.
    fn keep(&mut self) {
        let clients = self.active.keys().filter_map(|index| self.clients.get(index));
        self.kept = Some(clients.map(|known| known.client.mac()).collect());
        let used: Vec<String> = self.active.values().map(|used| used.lease.address.to_string()).collect();
        let used = if used.is_empty() {
            "the addresses of the kernel and the record".to_owned()
        } else {
            used.join(", ")
        };
        self.log.line(UNIT, format!("the controller responds; in use: {used}"));
    }

    fn complain(&mut self, begun: Duration, now: Duration) {
        let seconds = now.saturating_sub(begun).as_secs();
        let hint = "check cables, switch ports and the network of the server's record";
        self.log.line(
            UNIT,
            format!("the controller is not reached after {seconds} s; no disk is touched; {hint}"),
        );
        if self.links.iter().all(|link| !link.hardware) {
            self.log.line(UNIT, "this machine has no network link: no driver of the medium found a card");
        }
        for link in self.links.iter().filter(|link| link.hardware) {
            let lease = self.clients.get(&link.index).and_then(|known| known.client.lease(now));
            let mac = link.mac.map_or_else(|| "no address".to_owned(), |mac| mac.to_string());
            let signal = if link.carrier { "signal" } else { "no signal" };
            let lease = lease.map_or_else(|| "no lease".to_owned(), |lease| lease.address.to_string());
            self.log.line(UNIT, format!("{}: {mac}, {signal}, {lease}", link.name));
        }
    }
}

/// Returns the addresses and routes of a lease as changes that add them.
fn lease_changes(index: u32, lease: &Lease, metric: u32) -> Vec<Change> {
    let mut changes = vec![Change::Address { index, address: IpNet::V4(lease.address), add: true }];
    for route in &lease.routes {
        if let Some(IpAddr::V4(via)) = route.via
            && !lease.address.contains(&via)
            && let Ok(host) = Ipv4Net::new(via, 32)
        {
            // A router outside of the network is on the link all the same.
            let route = Route { to: IpNet::V4(host), via: None, metric };
            changes.push(Change::Route { index, route, add: true });
        }
        changes.push(Change::Route { index, route: Route { metric, ..route.clone() }, add: true });
    }
    changes
}

#[cfg(test)]
#[path = "connect/tests.rs"]
mod tests;
