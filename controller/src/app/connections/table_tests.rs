//! Tests of the table: who is closed, who is refused, and that no order of events breaks a limit.

use std::net::IpAddr;

use proptest::prelude::*;

use super::table::{ConnectionId, Holder, Limits, PoolLimits, Refusal, Table};
use access::auth::Standing;

const LIMITS: Limits = Limits {
    open: 12,
    open_per_address: 6,
    api: PoolLimits { requests: 4, unproved: 3, per_address: 3 },
    media: PoolLimits { requests: 4, unproved: 3, per_address: 3 },
    anonymous: 2,
    unproved_per_address: 2,
};

fn address(last: u8) -> IpAddr {
    [198, 51, 100, last].into()
}

fn client(last: u8) -> Holder {
    Holder::new(address(last), false)
}

fn proxy() -> Holder {
    Holder::new([127, 0, 0, 1].into(), true)
}

/// Admits a connection for which none is closed.
fn open(table: &mut Table, peer: Holder) -> ConnectionId {
    let (id, evicted) = table.admit(peer).unwrap();
    assert_eq!(evicted, None);
    id
}

/// A request whose client proves what it claims.
fn proved(table: &mut Table, peer: Holder, standing: Standing) -> ConnectionId {
    let id = open(table, peer);
    table.begin(id, peer, standing).unwrap();
    table.prove(id, standing);
    id
}

#[test]
fn a_new_connection_takes_the_place_of_the_longest_idle_one_of_the_address_with_most() {
    let mut table = Table::new(LIMITS);
    let few = open(&mut table, client(1));
    let many: Vec<ConnectionId> = (0..6).map(|_| open(&mut table, client(2))).collect();
    let some: Vec<ConnectionId> = (0..5).map(|_| open(&mut table, client(3))).collect();
    assert_eq!(table.admit(client(4)).unwrap().1, Some(many[0]));
    // Two addresses have five now; the connection that is idle for longest goes first.
    assert_eq!(table.admit(client(5)).unwrap().1, Some(many[1]));
    assert_eq!(table.admit(client(6)).unwrap().1, Some(some[0]));
    assert_eq!(table.begin(many[0], client(2), Standing::Anonymous), Err(Refusal::Evicted));
    assert_eq!(table.begin(few, client(1), Standing::Anonymous), Ok(()));
}

#[test]
fn a_request_in_progress_is_never_closed_for_a_new_connection() {
    let limits = Limits { open: 2, ..LIMITS };
    let mut table = Table::new(limits);
    let busy = [open(&mut table, client(1)), open(&mut table, client(2))];
    for (id, peer) in busy.into_iter().zip([client(1), client(2)]) {
        table.begin(id, peer, Standing::Anonymous).unwrap();
    }
    assert_eq!(table.admit(client(3)), Err(Refusal::Full));
    table.end(busy[1]);
    assert_eq!(table.admit(client(3)).unwrap().1, Some(busy[1]));
}

#[test]
fn an_address_that_holds_its_share_replaces_its_own_connections() {
    let mut table = Table::new(LIMITS);
    let own: Vec<ConnectionId> = (0..6).map(|_| open(&mut table, client(1))).collect();
    assert_eq!(table.admit(client(1)).unwrap().1, Some(own[0]));
    // Addresses of one /64 are one client.
    let host = |text: &str| Holder::new(text.parse().unwrap(), false);
    let first = open(&mut table, host("2001:db8::1"));
    for number in 2..=6 {
        open(&mut table, host(&format!("2001:db8::{number}")));
    }
    assert_eq!(table.admit(host("2001:db8::ffff")).unwrap().1, Some(first));
}

#[test]
fn an_address_of_many_clients_has_no_share() {
    let mut table = Table::new(LIMITS);
    let ids: Vec<ConnectionId> = (0..12).map(|_| open(&mut table, proxy())).collect();
    assert_eq!(table.admit(proxy()).unwrap().1, Some(ids[0]), "only the whole table is a limit");
    // Behind the proxy each client has its share.
    table.begin(ids[1], client(1), Standing::Anonymous).unwrap();
    table.begin(ids[2], client(1), Standing::Known).unwrap();
    assert_eq!(table.begin(ids[3], client(1), Standing::Anonymous), Err(Refusal::Share));
    assert_eq!(table.begin(ids[3], client(2), Standing::Anonymous), Ok(()));
}

#[test]
fn idle_connections_of_machines_and_known_clients_stay_longer_than_those_of_unknown_ones() {
    let mut table = Table::new(LIMITS);
    for _ in 0..4 {
        let known = proved(&mut table, client(1), Standing::Known);
        table.end(known);
    }
    for _ in 0..4 {
        let media = proved(&mut table, client(2), Standing::Media);
        table.end(media);
    }
    let unknown: Vec<ConnectionId> = (0..4).map(|_| open(&mut table, client(3))).collect();
    let evicted = |table: &mut Table, last| table.admit(client(last)).unwrap().1;
    assert_eq!(evicted(&mut table, 4), Some(unknown[0]));
    assert_eq!(evicted(&mut table, 5), Some(unknown[1]));
}

#[test]
fn what_one_pool_holds_is_free_in_the_other_and_unknown_clients_leave_room_in_both() {
    let mut table = Table::new(Limits { open: 40, ..LIMITS });
    let mut begin = |last: u8, wanted| {
        let id = open(&mut table, client(last));
        table.begin(id, client(last), wanted)
    };
    assert_eq!(begin(1, Standing::Anonymous), Ok(()));
    assert_eq!(begin(2, Standing::Anonymous), Ok(()));
    assert_eq!(
        begin(3, Standing::Anonymous),
        Err(Refusal::Full),
        "anonymous requests have a part of the pool"
    );
    assert_eq!(begin(4, Standing::Known), Ok(()));
    assert_eq!(begin(5, Standing::Known), Err(Refusal::Full), "claims leave a place for what is proved");
    for last in 6..9 {
        assert_eq!(begin(last, Standing::Media), Ok(()));
    }
    assert_eq!(begin(9, Standing::Media), Err(Refusal::Full));
}

#[test]
fn a_client_that_proved_itself_is_served_beside_claims_that_fill_a_pool() {
    let mut table = Table::new(Limits { open: 40, ..LIMITS });
    let machine = proved(&mut table, client(1), Standing::Media);
    table.end(machine);
    let forged: Vec<ConnectionId> = (2..5).map(|last| open(&mut table, client(last))).collect();
    for (id, last) in forged.iter().zip(2..) {
        table.begin(*id, client(last), Standing::Media).unwrap();
    }
    let late = open(&mut table, client(5));
    assert_eq!(table.begin(late, client(5), Standing::Media), Err(Refusal::Full));
    // The machine reads on, on a new connection too.
    let next = open(&mut table, client(1));
    assert_eq!(table.begin(next, client(1), Standing::Media), Ok(()));
}

#[test]
fn a_proof_through_a_proxy_counts_for_its_client_and_not_for_the_connection() {
    let mut table = Table::new(Limits { api: PoolLimits { unproved: 0, ..LIMITS.api }, ..LIMITS });
    let id = open(&mut table, proxy());
    assert_eq!(table.begin(id, client(1), Standing::Known), Err(Refusal::Full));
    table.remember_for_test(address(1), Standing::Known);
    table.begin(id, client(1), Standing::Known).unwrap();
    table.prove(id, Standing::Known);
    table.end(id);
    assert_eq!(table.begin(id, client(2), Standing::Known), Err(Refusal::Full), "another client");
    assert_eq!(table.begin(id, client(1), Standing::Known), Ok(()));
}

/// An event of a connection table.
#[derive(Clone, Debug)]
enum Event {
    Admit(u8),
    Begin(usize, u8, Standing),
    Prove(usize, Standing),
    End(usize),
    Close(usize),
    Shed,
}

fn standing() -> impl Strategy<Value = Standing> {
    prop_oneof![Just(Standing::Anonymous), Just(Standing::Known), Just(Standing::Media)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..5_u8).prop_map(Event::Admit),
        4 => (0..32_usize, 0..5_u8, standing()).prop_map(|(at, last, wanted)| Event::Begin(at, last, wanted)),
        2 => (0..32_usize, standing()).prop_map(|(at, standing)| Event::Prove(at, standing)),
        2 => (0..32_usize).prop_map(Event::End),
        1 => (0..32_usize).prop_map(Event::Close),
        1 => Just(Event::Shed),
    ]
}

fn holder(last: u8) -> Holder {
    if last == 0 { proxy() } else { client(last) }
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_a_limit_or_closes_a_request(events in proptest::collection::vec(event(), 0..300)) {
        let mut table = Table::new(LIMITS);
        let (mut ids, mut active): (Vec<ConnectionId>, Vec<ConnectionId>) = (Vec::new(), Vec::new());
        for event in events {
            let at = |index: usize, ids: &[ConnectionId]| ids.get(index % ids.len().max(1)).copied();
            match event {
                Event::Admit(last) => if let Ok((id, evicted)) = table.admit(holder(last)) {
                    prop_assert!(evicted.is_none_or(|evicted| !active.contains(&evicted)));
                    ids.retain(|known| Some(*known) != evicted);
                    ids.push(id);
                },
                Event::Begin(index, last, wanted) => if let Some(id) = at(index, &ids) {
                    active.retain(|known| *known != id);
                    if table.begin(id, holder(last), wanted).is_ok() {
                        active.push(id);
                    }
                },
                Event::Prove(index, standing) => at(index, &ids).into_iter().for_each(|id| table.prove(id, standing)),
                Event::End(index) => if let Some(id) = at(index, &ids) {
                    table.end(id);
                    active.retain(|known| *known != id);
                },
                Event::Close(index) => if let Some(id) = at(index, &ids) {
                    table.close(id);
                    active.retain(|known| *known != id);
                    ids.retain(|known| *known != id);
                },
                Event::Shed => if let Some(id) = table.shed() {
                    prop_assert!(!active.contains(&id));
                    ids.retain(|known| *known != id);
                },
            }
            table.check_for_test();
            prop_assert_eq!(table.counts_for_test(), (ids.len(), active.len()));
        }
        ids.into_iter().for_each(|id| table.close(id));
        prop_assert_eq!(table.counts_for_test(), (0, 0));
        prop_assert!(table.is_empty_for_test());
    }
}
