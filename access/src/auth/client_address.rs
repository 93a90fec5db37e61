//! The address of a client behind trusted proxies.
//!
//! ```text
//!   X-Forwarded-For: 203.0.113.9, 198.51.100.7, 10.0.0.3        peer 10.0.0.2        TRUSTED_PROXIES=10.0.0.0/8
//!                    `-- claimed  `-- the client <-- 10.0.0.3 is trusted <-- 10.0.0.2 is trusted
//! ```
//!
//! The header is read from right to left: each address was appended by the proxy to its right. The first one that is no trusted
//! proxy is the client; what stands left of it is a claim of that client.
//!
//! Invariants: a peer that is not trusted is the client, whatever its headers say. A proxy passes a header that it does not write
//! itself through unchanged: when `Forwarded` and `X-Forwarded-For` name different last addresses, one of them is a claim of the
//! client, and the request counts for the proxy. An element that is no address ends the search at the proxy that wrote it.
//!
//! Specification: RFC 7239.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::{HeaderMap, header};

use super::networks::{Networks, NoNetworks};

/// The maximum number of proxies between client and controller; elements further left are not read.
const MAX_PROXIES: usize = 32;

/// The proxies whose headers name the client, `TRUSTED_PROXIES`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TrustedProxies(Networks);

impl FromStr for TrustedProxies {
    type Err = NoNetworks;

    fn from_str(text: &str) -> Result<Self, NoNetworks> {
        text.parse().map(Self)
    }
}

impl TrustedProxies {
    /// Whether the address is a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    /// Returns the client of a request that `peer` sent with these headers. The port is 0 when it is unknown.
    pub fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if !self.contains(peer.ip()) {
            return peer;
        }
        let forwarded = elements(headers, header::FORWARDED.as_str(), forwarded_for);
        let appended = elements(headers, "x-forwarded-for", node);
        let hops = match (forwarded.first(), appended.first()) {
            (Some(one), Some(other)) if one.map(ip) != other.map(ip) => return peer,
            (Some(_), _) => forwarded,
            (None, _) => appended,
        };
        let mut client = peer;
        for hop in hops {
            let Some(hop) = hop else { break };
            client = hop;
            if !self.contains(hop.ip()) {
                break;
            }
        }
        client
    }
}

fn ip(address: SocketAddr) -> IpAddr {
    address.ip()
}

/// The elements of a list header from right to left; `None` where one is no address.
fn elements(
    headers: &HeaderMap,
    name: &str,
    read: fn(&str) -> Option<SocketAddr>,
) -> Vec<Option<SocketAddr>> {
    let values: Vec<&str> =
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("unreadable")).collect();
    let mut hops = Vec::new();
    for value in values.into_iter().rev() {
        for element in split(value, ',').into_iter().rev() {
            if hops.len() == MAX_PROXIES {
                return hops;
            }
            hops.push(read(element.trim()));
        }
    }
    hops
}

/// The parts of a text between separators outside of quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut quoted, mut begin) = (Vec::new(), false, 0);
    for (at, character) in text.char_indices() {
        if character == '"' {
            quoted = !quoted;
        } else if character == separator && !quoted {
            parts.push(&text[begin..at]);
            begin = at + separator.len_utf8();
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// The parameter `for` of an element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<SocketAddr> {
    let pairs = split(element, ';').into_iter().filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case("for"));
    let (_, value) = values.next()?;
    node(value.trim().trim_matches('"'))
}

/// An address with or without a port; an IPv6 address may be in brackets.
fn node(text: &str) -> Option<SocketAddr> {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(canonical(address));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|address| canonical(SocketAddr::new(address, 0)))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn client(trusted: &str, peer: &str, headers: &[(&str, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        let trusted: TrustedProxies = trusted.parse().unwrap();
        trusted.client(SocketAddr::new(peer.parse().unwrap(), 4000), &map).ip().to_string()
    }

    const XFF: &str = "x-forwarded-for";

    #[test]
    fn the_headers_of_a_peer_that_is_no_trusted_proxy_are_not_believed() {
        for headers in [[(XFF, "203.0.113.9")], [("forwarded", "for=203.0.113.9")]] {
            assert_eq!(client("10.0.0.0/8", "192.0.2.1", &headers), "192.0.2.1");
        }
        let none = TrustedProxies::default();
        let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(XFF, HeaderValue::from_static("203.0.113.9"));
        assert_eq!(none.client(peer, &headers), peer, "nothing is trusted by default, loopback neither");
    }

    #[test]
    fn the_client_is_the_first_address_from_the_right_that_is_no_trusted_proxy() {
        let one = |value: &str| client("10.0.0.0/8, 2001:db8:1::/48", "10.0.0.2", &[(XFF, value)]);
        assert_eq!(one("203.0.113.9"), "203.0.113.9");
        assert_eq!(one("203.0.113.9, 198.51.100.7, 10.0.0.3"), "198.51.100.7");
        assert_eq!(one("198.51.100.7:1234"), "198.51.100.7");
        assert_eq!(one("2001:db8:2::5"), "2001:db8:2::5");
        assert_eq!(one("[2001:db8:2::5]:443, 2001:db8:1::1"), "2001:db8:2::5");
        assert_eq!(one("::ffff:198.51.100.7"), "198.51.100.7");
        assert_eq!(one("10.0.0.4, 10.0.0.3"), "10.0.0.4", "with proxies only, the first of them");
        assert_eq!(
            one("203.0.113.9, unknown, 10.0.0.3"),
            "10.0.0.3",
            "what no proxy vouches for is not read"
        );
        assert_eq!(one("203.0.113.9,"), "10.0.0.2");
        let lines = [(XFF, "203.0.113.9"), (XFF, "198.51.100.7"), (XFF, "10.0.0.3")];
        assert_eq!(
            client("10.0.0.0/8", "10.0.0.2", &lines),
            "198.51.100.7",
            "lines of a header are one list"
        );
        assert_eq!(client("10.0.0.0/8", "::ffff:10.0.0.2", &[(XFF, "198.51.100.7")]), "198.51.100.7");
    }

    #[test]
    fn forwarded_is_read_like_its_older_form() {
        let one = |value: &str| client("10.0.0.2", "10.0.0.2", &[("forwarded", value)]);
        assert_eq!(one("for=203.0.113.9, for=198.51.100.7;proto=https"), "198.51.100.7");
        assert_eq!(one("proto=https;For=\"[2001:db8:2::5]:47011\";host=\"a,b\""), "2001:db8:2::5");
        assert_eq!(one("for=_hidden"), "10.0.0.2");
        assert_eq!(one("proto=https"), "10.0.0.2");
    }

    #[test]
    fn two_headers_that_disagree_name_no_client() {
        let both = |forwarded: &str, appended: &str| {
            client("10.0.0.2", "10.0.0.2", &[("forwarded", forwarded), (XFF, appended)])
        };
        assert_eq!(both("for=203.0.113.9", "198.51.100.7"), "10.0.0.2", "one of them is the client's claim");
        assert_eq!(both("for=\"198.51.100.7:99\"", "198.51.100.7"), "198.51.100.7");
    }

    #[test]
    fn a_list_of_proxies_is_addresses_and_networks() {
        let list: TrustedProxies = "192.0.2.7, 10.1.2.3/8,2001:db8::/64".parse().unwrap();
        for (address, trusted) in [
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("10.255.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("2001:db8::1", true),
            ("2001:db8:0:1::1", false),
        ] {
            assert_eq!(list.contains(address.parse().unwrap()), trusted, "{address}");
        }
        for wrong in ["", ",", "10.0.0.0/33", "proxy.example.org", "0.0.0.0/0", "::/0", "10.0.0.1 10.0.0.2"] {
            assert_eq!(wrong.parse::<TrustedProxies>(), Err(NoNetworks), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_client_cannot_change_what_its_proxy_appends(claim in "[ -~]{0,80}", other in "[ -~]{0,80}") {
            // The proxy writes both headers; the client sent one line of each before.
            let appended = [(XFF, claim.as_str()), (XFF, "198.51.100.7"), ("forwarded", other.as_str()), ("forwarded", "for=198.51.100.7")];
            prop_assert_eq!(client("10.0.0.2", "10.0.0.2", &appended), "198.51.100.7");
            // The proxy writes one of them; then the client is itself or shares the bucket of the proxy.
            let found = client("10.0.0.2", "10.0.0.2", &[appended[0], appended[1], appended[2]]);
            prop_assert!(found == "198.51.100.7" || found == "10.0.0.2", "{}", found);
        }
    }
}
