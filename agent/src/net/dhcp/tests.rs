use proptest::prelude::*;

use super::*;
use crate::net::test_kit::DhcpServer;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn server() -> DhcpServer {
    DhcpServer::new("10.0.2.15", "10.0.2.2")
}

#[test]
fn a_client_discovers_requests_and_has_a_lease_with_its_routes_and_name_servers() {
    let (mut client, server) = (Client::new(MAC, 7, at(0)), server());
    let discovery = client.poll(at(0)).unwrap();
    assert!(client.poll(at(1)).is_none());
    let offer = Reply::parse(&server.reply(&discovery).unwrap()).unwrap();
    assert_eq!((offer.kind, client.receive(&offer, at(1))), (ReplyKind::Offer, None));
    let request = client.poll(at(1)).unwrap();
    let ack = Reply::parse(&server.reply(&request).unwrap()).unwrap();
    let lease = client.receive(&ack, at(1)).unwrap();
    assert_eq!(lease.address, "10.0.2.15/24".parse().unwrap());
    assert_eq!(lease.routes[0].via, Some("10.0.2.2".parse().unwrap()));
    assert_eq!(lease.name_servers, ["10.0.2.3".parse::<IpAddr>().unwrap()]);
    assert_eq!(lease.domain.as_deref(), Some("lab.test"));
    // Renewed at the half of the lease, with the address in the message and without a choice of the server.
    assert!(client.poll(at(1800)).is_none());
    let renewal = client.poll(at(1801)).unwrap();
    assert_eq!(renewal[12..16], [10, 0, 2, 15]);
    let ack = Reply::parse(&server.reply(&renewal).unwrap()).unwrap();
    assert!(client.receive(&ack, at(1802)).is_some());
    // The end of the lease begins a new search.
    let mut now = 1802;
    while now < 1802 + 3600 {
        now += 1;
        client.poll(at(now));
    }
    assert_eq!(client.state, State::Discover);
}

#[test]
fn a_discovery_is_repeated_with_growing_pauses_and_a_request_is_given_up_after_four() {
    let mut client = Client::new(MAC, 7, at(0));
    let sent: Vec<u64> = (0..120).filter(|second| client.poll(at(*second)).is_some()).collect();
    assert!(sent.len() >= 8 && sent.len() <= 10, "{sent:?}");
    let longest = sent.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest <= 17, "{sent:?}");
    let discovery = client.poll(at(200)).unwrap();
    let offer = Reply::parse(&server().reply(&discovery).unwrap()).unwrap();
    client.receive(&offer, at(200));
    let kinds: Vec<u8> =
        (200..300).filter_map(|second| client.poll(at(second))).map(|sent| sent[242]).collect();
    assert_eq!(kinds[..5], [3, 3, 3, 3, 1]);
}

#[test]
fn replies_to_others_are_ignored_and_a_refusal_begins_anew() {
    let (mut client, server) = (Client::new(MAC, 7, at(0)), server());
    let discovery = client.poll(at(0)).unwrap();
    let offer = Reply::parse(&server.reply(&discovery).unwrap()).unwrap();
    for other in
        [Reply { transaction: 8, ..offer.clone() }, Reply { mac: Mac([2, 0, 0, 0, 0, 2]), ..offer.clone() }]
    {
        client.receive(&other, at(0));
        assert_eq!(client.state, State::Discover);
    }
    client.receive(&offer, at(0));
    let nak = Reply { kind: ReplyKind::Nak, lease: None, ..offer };
    client.receive(&nak, at(0));
    assert_eq!(client.state, State::Discover);
    assert_eq!(client.poll(at(2)).unwrap()[242], 1);
}

/// Exchanges messages with a server at one moment until nothing is sent. Returns the messages of the client.
fn exchange(client: &mut Client, server: &DhcpServer, now: Duration) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(message) = client.poll(now) {
        if let Some(reply) = server.reply(&message) {
            client.receive(&Reply::parse(&reply).unwrap(), now);
        }
        sent.push(message);
    }
    sent
}

/// A client with a lease of this time, that was asked for at 0.
fn bound(server: &DhcpServer, lease: u32) -> Client {
    server.seconds.set(lease);
    let mut client = Client::new(MAC, 7, at(0));
    assert_eq!(exchange(&mut client, server, at(0)).len(), 2);
    assert!(client.lease(at(0)).is_some());
    client
}

/// When a client without a server sends, in seconds of these times, with the kind and whether its address is in use.
fn sent_alone(client: &mut Client, times: std::ops::Range<u64>) -> Vec<(u64, u8, bool)> {
    let sends = times.filter_map(|second| {
        let message = client.poll(at(second))?;
        Some((second, message[242], message[12..16] != [0; 4]))
    });
    sends.collect()
}

#[test]
fn a_short_lease_is_renewed_at_its_half_and_is_not_used_after_its_end() {
    let server = server();
    let mut client = bound(&server, 40);
    let sent = sent_alone(&mut client, 1..42);
    assert_eq!(sent, [(20, 3, true), (28, 3, true), (33, 3, true), (35, 3, true), (40, 1, false)]);
    let client = bound(&server, 40);
    assert_eq!((client.lease(at(39)).is_some(), client.lease(at(40))), (true, None));
    // The lease lasts from its request, however long the message of the server waited.
    let mut client = Client::new(MAC, 7, at(0));
    let offer = server.reply(&client.poll(at(0)).unwrap()).unwrap();
    client.receive(&Reply::parse(&offer).unwrap(), at(0));
    let ack = Reply::parse(&server.reply(&client.poll(at(0)).unwrap()).unwrap()).unwrap();
    assert_eq!(client.clone().receive(&ack, at(41)), None);
    assert!(client.receive(&ack, at(30)).is_some() && client.lease(at(40)).is_none());
}

#[test]
fn a_long_lease_is_renewed_after_half_of_the_time_that_is_left_and_not_more_often_than_each_minute() {
    let mut client = bound(&server(), 3600);
    let times: Vec<u64> = sent_alone(&mut client, 1..3600).into_iter().map(|(second, ..)| second).collect();
    assert_eq!(times[..4], [1800, 2475, 2813, 2982]);
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(times.contains(&3150) && pauses.iter().filter(|pause| **pause < 60).count() <= 2, "{times:?}");
    // A renewal begins the lease anew.
    let server = server();
    let mut client = bound(&server, 3600);
    assert_eq!(exchange(&mut client, &server, at(1900)).len(), 1);
    assert!(client.lease(at(5499)).is_some() && client.lease(at(5500)).is_none());
}

#[test]
fn the_times_of_the_server_are_kept_unless_they_are_none_of_the_lease() {
    let times = |time: u32, renewal: u32, rebinding: u32| {
        let mut bytes = server().reply(&Client::new(MAC, 7, at(0)).poll(at(0)).unwrap()).unwrap();
        let mut put = |code: u8, value: u32| {
            let end = bytes.len() - 1;
            let option = [&[code, 4][..], &value.to_be_bytes()].concat();
            bytes.splice(end..end, option);
        };
        put(option::RENEWAL, renewal);
        put(option::REBINDING, rebinding);
        let place = bytes.windows(2).rposition(|pair| pair == [option::LEASE_TIME, 4]).unwrap() + 2;
        bytes[place..place + 4].copy_from_slice(&time.to_be_bytes());
        let lease = Reply::parse(&bytes)?.lease?;
        Some([lease.time, lease.renewal, lease.rebinding].map(|time| time.as_secs()))
    };
    assert_eq!(times(3600, 600, 900), Some([3600, 600, 900]));
    assert_eq!(times(3600, 4000, 5000), Some([3600, 1800, 3150]));
    assert_eq!(times(3600, 1, 2), Some([3600, 60, 3150]));
    assert_eq!(times(3600, 3500, 2000), Some([3600, 3500, 3500]));
    assert_eq!(times(30, 10, 20), Some([30, 10, 20]));
    assert_eq!(times(u32::MAX, 0, 0), Some([4_294_967_295, 2_147_483_647, 3_758_096_383]));
    assert_eq!(times(0, 0, 0), None);
}

#[test]
fn a_signal_that_returns_asks_whether_the_lease_holds_and_a_refusal_ends_its_use() {
    let server = server();
    let mut client = bound(&server, 3600);
    client.signal(at(100));
    let asked = client.poll(at(100)).unwrap();
    let option = |code: u8| asked[FIXED..].windows(2).position(|pair| pair == [code, 4]);
    assert_eq!((asked[242], &asked[12..16]), (3, &[0; 4][..]));
    assert!(option(option::ADDRESS).is_some() && option(option::SERVER).is_none());
    let ack = Reply::parse(&server.reply(&asked).unwrap()).unwrap();
    assert!(client.receive(&ack, at(100)).is_some());
    assert!(client.lease(at(3699)).is_some() && client.poll(at(1899)).is_none());
    // Another network: its server refuses, and has another address.
    server.address.set("10.9.0.7".parse().unwrap());
    client.signal(at(200));
    assert_eq!(exchange(&mut client, &server, at(200)).len(), 1);
    assert_eq!(client.lease(at(200)), None);
    exchange(&mut client, &server, at(202));
    assert_eq!(client.lease(at(202)).unwrap().address, "10.9.0.7/24".parse().unwrap());
}

#[test]
fn a_lease_that_no_server_confirms_is_used_until_its_end_while_another_one_is_searched() {
    let server = server();
    let mut client = bound(&server, 300);
    client.signal(at(10));
    let sent = sent_alone(&mut client, 10..300);
    assert!(
        sent[..4].iter().all(|(_, kind, _)| *kind == 3) && sent[4..].iter().all(|(_, kind, _)| *kind == 1)
    );
    assert!(client.lease(at(299)).is_some() && client.lease(at(300)).is_none());
    // The offer of another server replaces it.
    let mut client = bound(&server, 300);
    client.signal(at(10));
    sent_alone(&mut client, 10..60);
    server.address.set("10.9.0.7".parse().unwrap());
    let mut now = at(60);
    while client.lease(now).unwrap().address.addr() != server.address.get() {
        exchange(&mut client, &server, now);
        now += at(1);
    }
    assert!(now < at(90), "{now:?}");
}

#[test]
fn classless_routes_replace_the_router_and_options_go_on_in_other_fields() {
    let (mut client, server) = (Client::new(MAC, 7, at(0)), server());
    let mut bytes = server.reply(&client.poll(at(0)).unwrap()).unwrap();
    let end = bytes.iter().rposition(|byte| *byte == option::END).unwrap();
    // In two pieces, the second of them in the field of the file name.
    bytes.splice(end.., [option::OVERLOAD, 1, 1, option::ROUTES, 8, 0, 10, 0, 2, 9, 16, 10, 7, option::END]);
    bytes[108..115].copy_from_slice(&[option::ROUTES, 4, 0, 0, 0, 0, option::END]);
    let routes = Reply::parse(&bytes).unwrap().lease.unwrap().routes;
    assert_eq!(routes.len(), 2, "{routes:?}");
    assert_eq!((routes[0].to.to_string(), routes[0].via), ("10.7.0.0/16".to_owned(), None));
    assert_eq!(routes[1].via, Some("10.0.2.9".parse().unwrap()));
}

#[test]
fn an_address_that_no_host_can_have_is_no_lease() {
    let client = || Client::new(MAC, 7, at(0)).poll(at(0)).unwrap();
    for bad in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "0.1.2.3"] {
        assert_eq!(Reply::parse(&DhcpServer::new(bad, "10.0.2.2").reply(&client()).unwrap()), None, "{bad}");
    }
}

#[test]
fn a_message_is_found_in_its_packet_only() {
    let message = server().reply(&Client::new(MAC, 7, at(0)).poll(at(0)).unwrap()).unwrap();
    let packet = server().packet(&message);
    assert_eq!(of_packet(&packet).unwrap(), message);
    // Another port, another protocol, a fragment, a version, a cut packet.
    for (place, value) in [(22, 9), (9, 6), (6, 0x20), (0, 0x65), (0, 0x42)] {
        let mut other = packet.clone();
        other[place] = value;
        assert_eq!(of_packet(&other), None, "{place}");
    }
    assert_eq!(of_packet(&packet[..packet.len() - 1]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let _ = of_packet(&bytes);
        let _ = Reply::parse(&bytes);
    }

    #[test]
    fn any_options_after_a_valid_start_are_read_without_a_panic(options in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut bytes = server().reply(&Client::new(MAC, 7, at(0)).poll(at(0)).unwrap()).unwrap();
        bytes.truncate(FIXED + 3);
        bytes.extend(options);
        if let Some(Reply { lease: Some(lease), .. }) = Reply::parse(&bytes) {
            prop_assert!(lease.routes.len() <= MAX_LIST && lease.name_servers.len() <= MAX_LIST);
            prop_assert!(is_host(lease.address.addr()));
        }
    }

    #[test]
    fn a_client_sends_at_most_two_messages_in_two_seconds_and_uses_no_lease_after_its_end(
        seed: u32,
        steps in proptest::collection::vec((0_u64..3000, 0_u8..6, 1_u32..200), 1..80),
    ) {
        let (mut client, server) = (Client::new(MAC, seed, at(0)), server());
        let (mut now, mut sent) = (Duration::ZERO, Vec::new());
        // The latest end of a lease that was granted.
        let mut granted = Duration::ZERO;
        for (step, event, seconds) in steps {
            now += Duration::from_millis(step);
            server.seconds.set(seconds);
            match event {
                0 => client.signal(now),
                1 => server.address.set([10, 0, 2, (seconds % 3) as u8 + 5].into()),
                2 => server.is_silent.set(true),
                _ => server.is_silent.set(false),
            }
            while let Some(message) = client.poll(now) {
                sent.push(now);
                let Some(reply) = server.reply(&message).and_then(|reply| Reply::parse(&reply)) else { continue };
                if client.receive(&reply, now).is_some() {
                    granted = now + at(u64::from(seconds));
                }
            }
            prop_assert!(client.lease(now).is_none() || now < granted);
            prop_assert!(client.lease(granted).is_none());
        }
        prop_assert!(sent.windows(3).all(|three| three[2] - three[0] >= FIRST_PAUSE), "{sent:?}");
    }

    #[test]
    fn a_client_sends_at_most_once_in_a_second_and_a_half(seed: u32, steps in proptest::collection::vec(0_u64..3000, 1..60)) {
        let mut client = Client::new(MAC, seed, at(0));
        let (mut now, mut last) = (Duration::ZERO, None);
        for step in steps {
            now += Duration::from_millis(step);
            if client.poll(now).is_some() {
                prop_assert!(last.is_none_or(|last| now - last >= Duration::from_millis(1500)));
                last = Some(now);
            }
        }
    }
}
