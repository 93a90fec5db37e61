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
    assert_eq!(client.poll(at(1)).unwrap()[242], 1);
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
