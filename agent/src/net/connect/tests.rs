use std::cell::Cell;

use serde_json::json;

use super::*;
use crate::net::test_kit::{DhcpServer, FakeKernel, link};
use crate::test_kit::VirtualClock;

fn log() -> Log {
    Log::new(Vec::new())
}

fn never() -> bool {
    false
}

fn away() -> Reach {
    Reach::Away("the connection was refused".to_owned())
}

#[test]
fn dhcp_runs_on_all_links_at_once_and_the_link_that_reaches_the_controller_is_kept() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![link(2), link(3), link(4)]);
    kernel.servers.insert(2, DhcpServer::new("192.168.9.9", "192.168.9.1"));
    kernel.servers.insert(4, DhcpServer::new("10.0.2.15", "10.0.2.2"));
    let mut connector = Connector::new(&kernel, None, 7, log());
    // The controller is behind the link 4 only.
    let probe = || if kernel.addresses() == ["4: 10.0.2.15/24"] { Reach::Accepted } else { away() };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    assert!(clock.elapsed() < Duration::from_secs(10), "{:?}", clock.elapsed());
    assert!(kernel.links.borrow().iter().all(|link| link.up));
    assert!(kernel.resolver.borrow().contains("nameserver 10.0.2.3"));
    assert!(kernel.sent_on(3) > 0);
    // Afterwards the other links are left alone.
    let before = kernel.sent_on(3);
    for _ in 0..200 {
        connector.round(&clock);
    }
    assert_eq!((kernel.sent_on(3), kernel.addresses()), (before, vec!["4: 10.0.2.15/24".to_owned()]));
}

#[test]
fn a_job_that_a_newer_one_replaces_is_given_up_while_the_controller_is_not_reached_with_or_without_a_link() {
    for links in [vec![], vec![link(2)]] {
        let clock = VirtualClock::default();
        let kernel = FakeKernel::new(&clock, links);
        let mut connector = Connector::new(&kernel, None, 7, log());
        let is_replaced = || clock.elapsed() >= Duration::from_secs(40);
        assert_eq!(connector.connect(&clock, &is_replaced, &away), Reach::Replaced);
        assert!(clock.elapsed() < Duration::from_secs(45), "{:?}", clock.elapsed());
    }
}

#[test]
fn without_a_dhcp_server_the_controller_is_tried_by_the_addresses_that_the_kernel_makes_itself() {
    let clock = VirtualClock::default();
    let kernel = FakeKernel::new(&clock, vec![link(2), link(3)]);
    let log = log();
    let mut connector = Connector::new(&kernel, None, 7, log.clone());
    // The kernel makes an address of a link that is on, from router advertisements or as link-local; that takes it some seconds.
    let probe = || {
        let is_on = kernel.links.borrow().iter().all(|link| link.up);
        if is_on && clock.elapsed() >= Duration::from_secs(5) { Reach::Accepted } else { away() }
    };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    assert!(clock.elapsed() < Duration::from_secs(10), "no lease is waited for: {:?}", clock.elapsed());
    let asked = [2, 3].map(|index| kernel.sent_on(index));
    assert!(asked.iter().all(|sent| *sent > 0), "a lease is asked for meanwhile: {asked:?}");
    assert!(log.tail(8192).contains("in use: the addresses of the kernel"), "{}", log.tail(8192));
    // What reaches the controller stays as it is: no lease is asked for or taken any more.
    for _ in 0..200 {
        connector.round(&clock);
    }
    assert_eq!([2, 3].map(|index| kernel.sent_on(index)), asked);
    let switched = |change: &Change| matches!(change, Change::Switch { up: true, .. });
    assert!(kernel.changes.borrow().iter().all(switched), "{:?}", kernel.changes.borrow());
}

#[test]
fn a_signal_after_a_minute_is_waited_for_and_used_at_once() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![Link { carrier: false, ..link(2) }]);
    kernel.servers.insert(2, DhcpServer::new("10.0.2.15", "10.0.2.2"));
    let mut connector = Connector::new(&kernel, None, 7, log());
    for _ in 0..120 {
        connector.round(&clock);
    }
    assert!(clock.elapsed() >= Duration::from_secs(60) && kernel.sent_on(2) == 0);
    kernel.links.borrow_mut()[0].carrier = true;
    let begun = clock.elapsed();
    let probe = || if kernel.addresses().is_empty() { away() } else { Reach::Accepted };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    assert!(clock.elapsed() - begun < Duration::from_secs(3));
}

#[test]
fn without_a_signal_the_controller_is_waited_for_and_the_log_says_what_is_missing() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![Link { carrier: false, ..link(2) }]);
    kernel.signal_at = Some(Duration::from_secs(600));
    let log = log();
    let mut connector = Connector::new(&kernel, None, 7, log.clone());
    let probes = Cell::new(0);
    let probe = || {
        probes.set(probes.get() + 1);
        Reach::Accepted
    };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    assert!(clock.elapsed() >= Duration::from_secs(600));
    assert_eq!(probes.get(), 1);
    let text = log.tail(8192);
    assert!(text.contains("no disk is touched") && text.contains("02:00:00:00:00:02, no signal"), "{text}");
}

#[test]
fn a_refused_job_is_refused_after_half_a_minute_unless_another_link_accepts_it() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![link(2), link(3)]);
    kernel.servers.insert(2, DhcpServer::new("192.168.9.9", "192.168.9.1"));
    kernel.servers.insert(3, DhcpServer::new("10.0.2.15", "10.0.2.2"));
    let probe =
        || if kernel.addresses() == ["3: 10.0.2.15/24"] { Reach::Accepted } else { Reach::Refused(404) };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Accepted);
    let begun = clock.elapsed();
    let mut connector = Connector::new(&kernel, None, 7, log());
    assert_eq!(connector.connect(&clock, &never, &|| Reach::Refused(409)), Reach::Refused(409));
    assert!(clock.elapsed() - begun >= REFUSAL_TIME);
}

#[test]
fn a_refusal_before_the_controller_was_away_does_not_count() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![link(2)]);
    kernel.servers.insert(2, DhcpServer::new("10.0.2.15", "10.0.2.2"));
    // A proxy refuses once, then its controller starts for two minutes, then it refuses for as long as is asked.
    let refusals = Cell::new(0);
    let probe = || {
        let seconds = clock.elapsed().as_secs();
        if (1..120).contains(&seconds) && refusals.get() > 0 {
            return Reach::Other("502".to_owned());
        }
        refusals.set(refusals.get() + 1);
        Reach::Refused(404)
    };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Refused(404));
    assert!(clock.elapsed() >= Duration::from_secs(120) + REFUSAL_TIME, "{:?}", clock.elapsed());
}

#[test]
fn refusals_by_one_link_count_although_another_link_reaches_nothing() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![link(2)]);
    kernel.servers.insert(2, DhcpServer::new("10.0.2.15", "10.0.2.2"));
    let probes = Cell::new(0);
    let probe = || {
        probes.set(probes.get() + 1);
        if probes.get() % 2 == 0 { away() } else { Reach::Refused(404) }
    };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Refused(404));
    assert!(clock.elapsed() >= REFUSAL_TIME && clock.elapsed() < REFUSAL_TIME * 3, "{:?}", clock.elapsed());
}

#[test]
fn a_record_is_used_without_dhcp_and_its_name_servers_are_set() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![link(2), link(3)]);
    kernel.servers.insert(3, DhcpServer::new("10.9.9.9", "10.9.9.1"));
    let record = |dhcp: bool| {
        Record::parse(&json!({"version": 2, "ethernets": {"a": {
            "match": {"macaddress": "02:00:00:00:00:03"}, "dhcp4": dhcp, "addresses": ["10.0.0.5/24"],
            "routes": [{"to": "default", "via": "10.0.0.1"}], "nameservers": {"addresses": ["10.0.0.53"]},
        }}}))
        .unwrap()
    };
    let mut connector = Connector::new(&kernel, Some(record(false)), 7, log());
    assert_eq!(connector.connect(&clock, &never, &|| Reach::Accepted), Reach::Accepted);
    assert_eq!(kernel.addresses(), ["3: 10.0.0.5/24"]);
    assert!(kernel.resolver.borrow().starts_with("nameserver 10.0.0.53\n"));
    assert_eq!(kernel.sent_on(2) + kernel.sent_on(3), 0);
    // With `dhcp4` the lease comes beside the address.
    let mut connector = Connector::new(&kernel, Some(record(true)), 7, log());
    let probe = || if kernel.addresses().len() == 2 { Reach::Accepted } else { away() };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    assert_eq!((kernel.sent_on(2), kernel.addresses().len()), (0, 2));
}

#[test]
fn a_bond_asks_for_its_lease_with_the_address_that_its_first_member_gave_it() {
    let clock = VirtualClock::default();
    let mut kernel = FakeKernel::new(&clock, vec![link(2), link(3)]);
    kernel.servers.insert(4, DhcpServer::new("10.0.2.15", "10.0.2.2"));
    let record = Record::parse(&json!({
        "version": 2,
        "ethernets": {
            "a": {"match": {"macaddress": "02:00:00:00:00:02"}},
            "b": {"match": {"macaddress": "02:00:00:00:00:03"}},
        },
        "bonds": {"bond": {"interfaces": ["a", "b"], "dhcp4": true, "parameters": {"mode": "active-backup"}}},
    }))
    .unwrap();
    let mut connector = Connector::new(&kernel, Some(record), 7, log());
    let probe = || if kernel.addresses() == ["4: 10.0.2.15/24"] { Reach::Accepted } else { away() };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    let senders = kernel.senders_on(4);
    assert!(!senders.is_empty() && senders.iter().all(|mac| Some(*mac) == link(2).mac), "{senders:?}");
}

#[test]
fn a_router_outside_of_the_network_gets_a_route_of_its_own() {
    let lease = Lease {
        address: "10.0.0.5/32".parse().unwrap(),
        server: None,
        routes: vec![Route { to: IpNet::default(), via: "10.0.0.1".parse().ok(), metric: 100 }],
        name_servers: Vec::new(),
        domain: None,
        mtu: None,
        time: PATIENCE,
        renewal: PATIENCE,
        rebinding: PATIENCE,
    };
    let changes = lease_changes(2, &lease, 100);
    let [Change::Address { .. }, Change::Route { route: host, .. }, Change::Route { route: default, .. }] =
        &changes[..]
    else {
        panic!("{changes:?}");
    };
    assert_eq!((host.to.to_string(), host.via), ("10.0.0.1/32".to_owned(), None));
    assert_eq!(default.to.prefix_len(), 0);
}

/// Runs rounds for this time.
fn run(connector: &mut Connector<&FakeKernel<'_>>, clock: &VirtualClock, time: Duration) {
    let begun = clock.elapsed();
    while clock.elapsed() - begun < time {
        connector.round(clock);
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A kernel with links and a server behind each of them; those of the link N lease 10.N.0.5.
fn with_servers(clock: &VirtualClock, links: impl IntoIterator<Item = u32>) -> FakeKernel<'_> {
    let links: Vec<Link> = links.into_iter().map(link).collect();
    let mut kernel = FakeKernel::new(clock, links.clone());
    for Link { index, .. } in links {
        let server = DhcpServer::new(&format!("10.{index}.0.5"), &format!("10.{index}.0.1"));
        kernel.servers.insert(index, server);
    }
    kernel
}

#[test]
fn each_link_of_the_record_with_dhcp_has_its_own_routes_and_loses_no_others_with_its_lease() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2, 3]);
    kernel.servers[&3].seconds.set(60);
    let record = Record::parse(&json!({"version": 2, "ethernets": {
        "a": {"match": {"macaddress": "02:00:00:00:00:03"}, "dhcp4": true},
        "b": {"match": {"macaddress": "02:00:00:00:00:02"}, "dhcp4": true},
    }}))
    .unwrap();
    let mut connector = Connector::new(&kernel, Some(record), 7, log());
    run(&mut connector, &clock, seconds(3));
    let (first, second) = ("3: 0.0.0.0/0 by 10.3.0.1, 100", "2: 0.0.0.0/0 by 10.2.0.1, 101");
    let mut routes = kernel.routes();
    routes.sort();
    assert_eq!(routes, [second, first]);
    assert!(kernel.resolver.borrow().starts_with("nameserver 10.3.0.3\nnameserver 10.2.0.3\n"));
    kernel.servers[&3].is_silent.set(true);
    run(&mut connector, &clock, seconds(62));
    assert_eq!(
        (kernel.routes(), kernel.addresses()),
        (vec![second.to_owned()], vec!["2: 10.2.0.5/24".to_owned()])
    );
    assert!(!kernel.resolver.borrow().contains("10.3.0.3"), "{}", kernel.resolver.borrow());
}

#[test]
fn a_renewal_replaces_the_routes_and_the_end_of_a_lease_takes_nothing_that_the_record_has() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2]);
    kernel.servers[&2].seconds.set(60);
    let record = Record::parse(&json!({"version": 2, "ethernets": {"a": {
        "match": {"macaddress": "02:00:00:00:00:02"}, "dhcp4": true, "addresses": ["10.2.0.5/24"],
        "routes": [{"to": "default", "via": "10.2.0.9", "metric": 100}],
    }}}))
    .unwrap();
    let mut connector = Connector::new(&kernel, Some(record), 7, log());
    run(&mut connector, &clock, seconds(3));
    let of_the_record = "2: 0.0.0.0/0 by 10.2.0.9, 100";
    assert_eq!(kernel.routes(), [of_the_record, "2: 0.0.0.0/0 by 10.2.0.1, 101"]);
    kernel.servers[&2].router.set("10.2.0.2".parse().unwrap());
    run(&mut connector, &clock, seconds(30));
    assert_eq!(kernel.routes(), [of_the_record, "2: 0.0.0.0/0 by 10.2.0.2, 101"]);
    kernel.servers[&2].is_silent.set(true);
    run(&mut connector, &clock, seconds(70));
    assert!(connector.active.is_empty());
    assert_eq!(
        (kernel.routes(), kernel.addresses()),
        (vec![of_the_record.to_owned()], vec!["2: 10.2.0.5/24".to_owned()])
    );
}

#[test]
fn a_lease_that_ended_is_not_used_any_more_and_the_next_one_is() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2, 3]);
    kernel.servers[&2].seconds.set(60);
    let log = log();
    let mut connector = Connector::new(&kernel, None, 7, log.clone());
    run(&mut connector, &clock, seconds(3));
    assert_eq!(kernel.addresses(), ["2: 10.2.0.5/24"]);
    kernel.servers[&2].is_silent.set(true);
    run(&mut connector, &clock, seconds(62));
    assert_eq!((kernel.addresses(), kernel.routes().len()), (vec!["3: 10.3.0.5/24".to_owned()], 1));
    assert!(kernel.resolver.borrow().starts_with("nameserver 10.3.0.3\n"), "{}", kernel.resolver.borrow());
    assert!(log.tail(8192).contains("10.2.0.5/24 is not used any more"), "{}", log.tail(8192));
}

#[test]
fn a_lease_that_ended_or_was_refused_during_the_work_is_replaced_by_the_next_one_of_its_link() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2, 3]);
    kernel.servers[&2].seconds.set(60);
    let mut connector = Connector::new(&kernel, None, 7, log());
    let probe = || if kernel.addresses() == ["2: 10.2.0.5/24"] { Reach::Accepted } else { away() };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    kernel.servers[&2].is_silent.set(true);
    run(&mut connector, &clock, seconds(62));
    assert!(kernel.addresses().is_empty() && kernel.routes().is_empty(), "{:?}", kernel.addresses());
    kernel.servers[&2].is_silent.set(false);
    run(&mut connector, &clock, seconds(20));
    assert_eq!(kernel.addresses(), ["2: 10.2.0.5/24"]);
    // Its server has another address for the link, and refuses the renewal.
    kernel.servers[&2].address.set("10.2.0.6".parse().unwrap());
    run(&mut connector, &clock, seconds(36));
    assert_eq!((kernel.addresses(), kernel.routes().len()), (vec!["2: 10.2.0.6/24".to_owned()], 1));
    assert!(!kernel.addresses().iter().any(|address| address.starts_with("3:")));
}

#[test]
fn a_cable_that_is_moved_to_another_network_brings_the_lease_of_that_network() {
    // The round sees the link without its signal, or only that the signal has changed.
    for is_seen in [true, false] {
        let clock = VirtualClock::default();
        let kernel = with_servers(&clock, [2]);
        let mut connector = Connector::new(&kernel, None, 7, log());
        let probe = || if kernel.addresses().is_empty() { away() } else { Reach::Accepted };
        assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
        kernel.servers[&2].address.set("10.2.0.77".parse().unwrap());
        if is_seen {
            kernel.links.borrow_mut()[0].carrier = false;
            run(&mut connector, &clock, seconds(3));
            assert_eq!(kernel.addresses(), ["2: 10.2.0.5/24"], "its network may be back in a moment");
            kernel.links.borrow_mut()[0].carrier = true;
        }
        kernel.links.borrow_mut()[0].carrier_changes += 2;
        let before = kernel.sent_on(2);
        run(&mut connector, &clock, seconds(5));
        // The first message asks whether the lease holds.
        assert_eq!(kernel.messages_on(2)[before][242], 3);
        assert_eq!((kernel.addresses(), kernel.routes().len()), (vec!["2: 10.2.0.77/24".to_owned()], 1));
    }
}

#[test]
fn a_card_that_returns_under_another_number_gets_its_network_again() {
    let clock = VirtualClock::default();
    let mut kernel = with_servers(&clock, [2, 3]);
    kernel.servers.insert(9, DhcpServer::new("10.2.0.5", "10.2.0.1"));
    let kernel = kernel;
    let mut connector = Connector::new(&kernel, None, 7, log());
    let probe = || if kernel.addresses() == ["2: 10.2.0.5/24"] { Reach::Accepted } else { away() };
    assert_eq!(connector.connect(&clock, &never, &probe), Reach::Accepted);
    let before = kernel.sent_on(3);
    let card = kernel.links.borrow_mut().remove(0);
    run(&mut connector, &clock, seconds(3));
    assert!(connector.active.is_empty(), "{:?}", connector.active.keys());
    kernel.links.borrow_mut().push(Link { index: 9, up: false, ..card });
    run(&mut connector, &clock, seconds(5));
    assert_eq!((kernel.addresses(), kernel.sent_on(3)), (vec!["9: 10.2.0.5/24".to_owned()], before));
}

#[test]
fn a_job_is_refused_although_another_link_drops_every_packet() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2, 3]);
    let probe = || {
        if kernel.addresses() == ["2: 10.2.0.5/24"] {
            return Reach::Refused(404);
        }
        clock.sleep(seconds(30));
        Reach::Away("timeout".to_owned())
    };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Refused(404));
    assert!(clock.elapsed() >= REFUSAL_TIME && clock.elapsed() < seconds(180), "{:?}", clock.elapsed());
}

#[test]
fn another_program_behind_one_link_saves_no_job_that_the_controller_refuses_by_another_link() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2, 3]);
    let by_first = || kernel.addresses() == ["2: 10.2.0.5/24"];
    let probe = || if by_first() { Reach::Refused(404) } else { Reach::Other("404 of a printer".to_owned()) };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Refused(404));
    assert!(clock.elapsed() >= REFUSAL_TIME && clock.elapsed() < seconds(60), "{:?}", clock.elapsed());
    // Behind the same link it is a proxy, and the controller behind it is not always there.
    let begun = clock.elapsed();
    let probe = || match clock.elapsed() - begun {
        passed if passed >= seconds(300) => Reach::Accepted,
        passed if by_first() && passed.as_secs() % 20 < 10 => Reach::Refused(404),
        _ => Reach::Other("503".to_owned()),
    };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Accepted);
}

#[test]
fn one_early_refusal_and_a_long_silence_are_no_half_minute_of_refusals() {
    let clock = VirtualClock::default();
    let kernel = with_servers(&clock, [2]);
    let refusals = Cell::new(0);
    let probe = || {
        if refusals.get() > 0 && clock.elapsed() < seconds(120) {
            return away();
        }
        refusals.set(refusals.get() + 1);
        Reach::Refused(404)
    };
    assert_eq!(Connector::new(&kernel, None, 7, log()).connect(&clock, &never, &probe), Reach::Refused(404));
    assert!(
        refusals.get() > 6 && clock.elapsed() >= seconds(135),
        "{} {:?}",
        refusals.get(),
        clock.elapsed()
    );
}
