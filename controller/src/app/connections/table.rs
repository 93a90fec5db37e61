//! Who holds what: a pure table of connections and of the requests in progress on them.
//!
//! ```text
//!             admit                      begin                       end
//!   new ───────────────> idle ──────────────────────> active ──────────────────> idle ──> …
//!                         |  head arrives, or          |  request until the last byte of its response
//!                         |  kept alive                |
//!                         `── evicted for a new one    `── never evicted
//!
//!   requests:   [ anonymous | claims | known       API pool ]  [ claims | media         media pool ]
//! ```
//!
//! A new connection is always admitted while one is idle: the group (address and standing) with the greatest weight of idle
//! connections loses the longest idle one. There are fewer requests in the pools than connections, so one is idle whenever the
//! table is full.
//!
//! A request is *claimed* when its head has the form of one with credentials or of a media read, and *proved* when these were
//! verified, on this connection or before at this address. Claims and anonymous requests never use a whole pool, and one
//! address never all of them.
//!
//! Invariants: no counter is above its limit; an active connection is never evicted; the sums are those of the entries; addresses
//! that many clients share (loopback, trusted proxies) have no limits of their own. The order of events is the only clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use access::auth::Standing;

/// The maximum number of addresses whose standing is remembered.
const REMEMBERED: usize = 4096;

/// The limits of one pool of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PoolLimits {
    /// Requests in progress.
    pub(super) requests: usize,
    /// Of these, requests whose client has proved nothing.
    pub(super) unproved: usize,
    /// Proved requests of one address.
    pub(super) per_address: usize,
}

/// The limits of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Limits {
    /// Open connections.
    pub(super) open: usize,
    /// Open connections of one address.
    pub(super) open_per_address: usize,
    /// Requests that are no media reads.
    pub(super) api: PoolLimits,
    /// Media reads.
    pub(super) media: PoolLimits,
    /// Requests without a claim.
    pub(super) anonymous: usize,
    /// Requests of one address that has proved nothing, in both pools together.
    pub(super) unproved_per_address: usize,
}

/// An address to which connections are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Holder {
    address: IpAddr,
    shared: bool,
}

impl Holder {
    /// The holder with this address; `shared` if many clients have it. IPv6 addresses of one /64 are one holder, because one
    /// host can choose from the whole /64.
    pub(super) fn new(address: IpAddr, shared: bool) -> Self {
        let address = match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 @ IpAddr::V4(_) => v4,
        };
        Self { address, shared }
    }
}

/// A connection of the table.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct ConnectionId(u64);

/// Why a connection or request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Refusal {
    /// The client holds its share.
    #[error("the address holds its share of the connections")]
    Share,
    /// All clients together hold the pool.
    #[error("all requests of the pool are in use")]
    Full,
    /// The connection was closed for another one.
    #[error("the connection was closed for another one")]
    Evicted,
}

/// How a request in progress is counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Slot {
    Anonymous,
    KnownClaim,
    Known,
    MediaClaim,
    Media,
}

impl Slot {
    fn of(wanted: Standing, proved: bool) -> Self {
        match (wanted, proved) {
            (Standing::Anonymous, _) => Self::Anonymous,
            (Standing::Known, false) => Self::KnownClaim,
            (Standing::Known, true) => Self::Known,
            (Standing::Media, false) => Self::MediaClaim,
            (Standing::Media, true) => Self::Media,
        }
    }

    /// The slot after a proof during the request.
    fn proved(self, standing: Standing) -> Self {
        match (self, standing) {
            (Self::Anonymous | Self::KnownClaim, Standing::Known | Standing::Media) => Self::Known,
            (Self::MediaClaim, Standing::Media) => Self::Media,
            (slot, _) => slot,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Since this event.
    Idle(u64),
    Active(Holder, Slot),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    peer: Holder,
    standing: Standing,
    state: State,
}

/// The idle connections of one address with one standing.
type GroupKey = (IpAddr, Standing);

#[derive(Debug, Default)]
struct Group {
    shared: bool,
    since: BTreeMap<u64, ConnectionId>,
}

impl Group {
    /// The weight of the group: an idle connection of an unknown client weighs most.
    fn rank(&self, key: GroupKey) -> Option<(usize, Reverse<u64>, GroupKey)> {
        let (oldest, _) = self.since.first_key_value()?;
        let weight = match key.1 {
            Standing::Anonymous => 16,
            Standing::Known => 4,
            Standing::Media => 1,
        };
        // The connections of a proxy are those of many clients.
        let weight = if self.shared { (weight / 4).max(1) } else { weight };
        Some((self.since.len() * weight, Reverse(*oldest), key))
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    limits: Limits,
    events: u64,
    connections: HashMap<ConnectionId, Entry>,
    open: HashMap<IpAddr, usize>,
    idle: HashMap<GroupKey, Group>,
    /// The groups by weight.
    ranking: BTreeSet<(usize, Reverse<u64>, GroupKey)>,
    requests: HashMap<Slot, usize>,
    requests_of: HashMap<(IpAddr, Slot), usize>,
    /// The standing that clients of an address have proved, with the event of the proof.
    proved: HashMap<IpAddr, (Standing, u64)>,
}

impl Table {
    /// An empty table.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            events: 0,
            connections: HashMap::new(),
            open: HashMap::new(),
            idle: HashMap::new(),
            ranking: BTreeSet::new(),
            requests: HashMap::new(),
            requests_of: HashMap::new(),
            proved: HashMap::new(),
        }
    }

    /// Admits a new connection, and returns the one that is closed for it.
    ///
    /// # Errors
    /// [`Refusal::Share`] when the address holds its share and none of it is idle, [`Refusal::Full`] when no connection is idle.
    pub(super) fn admit(&mut self, peer: Holder) -> Result<(ConnectionId, Option<ConnectionId>), Refusal> {
        let held = self.open.get(&peer.address).copied().unwrap_or(0);
        let evicted = if !peer.shared && held >= self.limits.open_per_address {
            Some(self.longest_idle_of(peer.address).ok_or(Refusal::Share)?)
        } else if self.connections.len() >= self.limits.open {
            Some(self.heaviest().ok_or(Refusal::Full)?)
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.close(evicted);
        }
        let id = ConnectionId(self.event());
        let standing = self.standing_of(peer);
        self.connections.insert(id, Entry { peer, standing, state: State::Idle(id.0) });
        *self.open.entry(peer.address).or_default() += 1;
        self.insert_idle(peer, standing, id.0, id);
        Ok((id, evicted))
    }

    /// Closes the connection that would be closed for a new one.
    pub(super) fn shed(&mut self) -> Option<ConnectionId> {
        let id = self.heaviest()?;
        self.close(id);
        Some(id)
    }

    /// Counts a request of `client` on a connection.
    ///
    /// # Errors
    /// When a limit is reached, or the connection is closed already. The connection stays idle.
    pub(super) fn begin(
        &mut self,
        id: ConnectionId,
        client: Holder,
        wanted: Standing,
    ) -> Result<(), Refusal> {
        self.end(id);
        let Entry { peer, standing, state } = *self.connections.get(&id).ok_or(Refusal::Evicted)?;
        // A connection of a proxy carries requests of many clients: what one has proved counts for no other.
        let own = if client == peer { standing } else { Standing::Anonymous };
        let slot = Slot::of(wanted, own.max(self.standing_of(client)) >= wanted);
        self.check(slot, client)?;
        if let State::Idle(since) = state {
            self.remove_idle(peer, standing, since);
        }
        self.count(client, slot, true);
        self.set(id, standing, State::Active(client, slot));
        Ok(())
    }

    /// Counts the request in progress, and later ones, as those of a client that has proved `standing`.
    pub(super) fn prove(&mut self, id: ConnectionId, proved: Standing) {
        let Some(Entry { standing, state, .. }) = self.connections.get(&id).copied() else { return };
        let State::Active(client, slot) = state else { return };
        self.count(client, slot, false);
        let slot = slot.proved(proved);
        self.count(client, slot, true);
        self.set(id, standing.max(proved), State::Active(client, slot));
        if !client.shared {
            self.remember(client.address, proved);
        }
    }

    /// Ends the request in progress: its response was sent.
    pub(super) fn end(&mut self, id: ConnectionId) {
        let Some(Entry { peer, standing, state: State::Active(client, slot) }) =
            self.connections.get(&id).copied()
        else {
            return;
        };
        self.count(client, slot, false);
        let since = self.event();
        self.insert_idle(peer, standing, since, id);
        self.set(id, standing, State::Idle(since));
    }

    /// Removes a connection.
    pub(super) fn close(&mut self, id: ConnectionId) {
        let Some(Entry { peer, standing, state }) = self.connections.remove(&id) else { return };
        match state {
            State::Idle(since) => self.remove_idle(peer, standing, since),
            State::Active(client, slot) => self.count(client, slot, false),
        }
        decrement(&mut self.open, &peer.address);
    }

    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn set(&mut self, id: ConnectionId, standing: Standing, state: State) {
        if let Some(entry) = self.connections.get_mut(&id) {
            (entry.standing, entry.state) = (standing, state);
        }
    }

    /// Returns the standing that clients of an address have proved. Of a shared address nothing is known.
    fn standing_of(&self, holder: Holder) -> Standing {
        let known = self.proved.get(&holder.address).filter(|_| !holder.shared);
        known.map_or(Standing::Anonymous, |(standing, _)| *standing)
    }

    fn remember(&mut self, address: IpAddr, proved: Standing) {
        let event = self.event();
        if self.proved.len() >= REMEMBERED && !self.proved.contains_key(&address) {
            let oldest = self.proved.iter().min_by_key(|(_, (_, event))| *event).map(|(address, _)| *address);
            oldest.map(|oldest| self.proved.remove(&oldest));
        }
        let known = self.proved.entry(address).or_insert((proved, event));
        *known = (known.0.max(proved), event);
    }

    /// Whether one more request fits.
    fn check(&self, slot: Slot, client: Holder) -> Result<(), Refusal> {
        let of = |slot: Slot| self.requests.get(&slot).copied().unwrap_or(0);
        let held = |slot: Slot| self.requests_of.get(&(client.address, slot)).copied().unwrap_or(0);
        let Limits { api, media, anonymous, unproved_per_address, .. } = self.limits;
        let unproved = of(Slot::Anonymous) + of(Slot::KnownClaim);
        let in_api = unproved + of(Slot::Known) < api.requests;
        let in_media = of(Slot::MediaClaim) + of(Slot::Media) < media.requests;
        let fits = match slot {
            Slot::Anonymous => in_api && of(Slot::Anonymous) < anonymous && unproved < api.unproved,
            Slot::KnownClaim => in_api && unproved < api.unproved,
            Slot::Known => in_api,
            Slot::MediaClaim => in_media && of(Slot::MediaClaim) < media.unproved,
            Slot::Media => in_media,
        };
        let share = match slot {
            Slot::Known => held(Slot::Known) < api.per_address,
            Slot::Media => held(Slot::Media) < media.per_address,
            Slot::Anonymous | Slot::KnownClaim | Slot::MediaClaim => {
                let claims = held(Slot::KnownClaim) + held(Slot::MediaClaim);
                held(Slot::Anonymous) + claims < unproved_per_address
            }
        };
        match (client.shared || share, fits) {
            (false, _) => Err(Refusal::Share),
            (true, false) => Err(Refusal::Full),
            (true, true) => Ok(()),
        }
    }

    fn count(&mut self, client: Holder, slot: Slot, begins: bool) {
        if begins {
            *self.requests.entry(slot).or_default() += 1;
            *self.requests_of.entry((client.address, slot)).or_default() += 1;
        } else {
            decrement(&mut self.requests, &slot);
            decrement(&mut self.requests_of, &(client.address, slot));
        }
    }

    fn insert_idle(&mut self, peer: Holder, standing: Standing, since: u64, id: ConnectionId) {
        let key = (peer.address, standing);
        let group = self.idle.entry(key).or_default();
        if let Some(rank) = group.rank(key) {
            self.ranking.remove(&rank);
        }
        group.shared = peer.shared;
        group.since.insert(since, id);
        self.ranking.extend(group.rank(key));
    }

    fn remove_idle(&mut self, peer: Holder, standing: Standing, since: u64) {
        let key = (peer.address, standing);
        let Some(group) = self.idle.get_mut(&key) else { return };
        if let Some(rank) = group.rank(key) {
            self.ranking.remove(&rank);
        }
        group.since.remove(&since);
        match group.rank(key) {
            Some(rank) => {
                self.ranking.insert(rank);
            }
            None => {
                self.idle.remove(&key);
            }
        }
    }

    /// The longest idle connection of the group with the greatest weight.
    fn heaviest(&self) -> Option<ConnectionId> {
        let (_, Reverse(oldest), key) = self.ranking.last()?;
        self.idle.get(key)?.since.get(oldest).copied()
    }

    /// The longest idle connection of an address, of one that has proved nothing first.
    fn longest_idle_of(&self, address: IpAddr) -> Option<ConnectionId> {
        let standings = [Standing::Anonymous, Standing::Known, Standing::Media];
        let mut groups = standings.into_iter().filter_map(|standing| self.idle.get(&(address, standing)));
        groups.find_map(|group| group.since.values().next().copied())
    }
}

/// Takes one from a counter, which is removed at zero.
fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
impl Table {
    pub(super) fn remember_for_test(&mut self, address: IpAddr, proved: Standing) {
        self.remember(address, proved);
    }

    /// The numbers of connections and of requests in progress.
    pub(super) fn counts_for_test(&self) -> (usize, usize) {
        (self.connections.len(), self.requests.values().sum())
    }

    /// Whether nothing but what addresses proved is left.
    pub(super) fn is_empty_for_test(&self) -> bool {
        self.open.is_empty() && self.idle.is_empty() && self.ranking.is_empty() && self.requests_of.is_empty()
    }

    /// Panics when a limit is broken or a sum is wrong.
    pub(super) fn check_for_test(&self) {
        let of = |slot: Slot| self.requests.get(&slot).copied().unwrap_or(0);
        assert!(self.connections.len() <= self.limits.open);
        assert!(of(Slot::Anonymous) + of(Slot::KnownClaim) <= self.limits.api.unproved);
        assert!(of(Slot::MediaClaim) <= self.limits.media.unproved);
        let idle: usize = self.idle.values().map(|group| group.since.len()).sum();
        assert_eq!(idle + self.requests.values().sum::<usize>(), self.connections.len());
        assert_eq!(self.open.values().sum::<usize>(), self.connections.len());
        assert_eq!(self.ranking.len(), self.idle.len());
        assert_eq!(self.requests_of.values().sum::<usize>(), self.requests.values().sum::<usize>());
    }
}
