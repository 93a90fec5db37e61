//! The caller of a request: the facts that its headers and its connection contain.
//!
//! ```text
//!  X-Forwarded-Proto: https, Forwarded: proto=https            https, at the host the proxy received
//!  any other mark of a proxy                                   unknown: proxied
//!  TLS at the listener of the embedding program                https, at the host that the client named
//!  this machine, and Host names the port of this listener      plain HTTP that leaves no machine
//!  otherwise                                                   unknown: a TLS proxy need not leave a mark
//! ```
//!
//! `http` in a header of a proxy is not believed: an inner proxy replaces what an outer one wrote. The headers come from
//! the client or its proxies, and decide only which address that same client is referred to.
//!
//! Specification: RFC 7239; X-Forwarded-Proto and X-Forwarded-Host as proxies send them.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::request::Parts;
use http::{HeaderMap, Version, header};

use super::text;
use crate::access::{Caller, ClientScheme, Credentials, LocalAddress, OverTls};

/// The caller of a request.
pub(crate) fn caller(parts: &Parts) -> Caller<'_> {
    let authorization = text(&parts.headers, header::AUTHORIZATION);
    let host = client_host(&parts.headers);
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let mut caller = Caller {
        authorization: authorization.filter(|header| !Credentials::are_empty(header)),
        host,
        peer,
        scheme: ClientScheme::Unmarked,
    };
    if is_proxied(&parts.headers) {
        let https = forwarded(&parts.headers, "x-forwarded-proto", "proto")
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        caller.scheme = if https { ClientScheme::Https } else { ClientScheme::Proxied };
    } else if parts.extensions.get::<OverTls>().is_some() {
        caller.scheme = ClientScheme::Https;
    } else if is_local(parts, host, peer) {
        caller.scheme = ClientScheme::LocalHttp;
    }
    caller
}

/// The host that a client named: the one that the first proxy received, or `Host`.
pub fn client_host(headers: &HeaderMap) -> Option<&str> {
    let host = text(headers, header::HOST);
    match is_proxied(headers) {
        true => forwarded(headers, "x-forwarded-host", "host").or(host),
        false => host,
    }
}

/// Whether a proxy has left its mark on a request.
pub fn is_proxied(headers: &HeaderMap) -> bool {
    let mark =
        |name: &str| name.starts_with("x-forwarded-") || matches!(name, "forwarded" | "via" | "x-real-ip");
    headers.keys().any(|name| mark(name.as_str()))
}

/// The value that the first proxy received: the first one of `name`, or of the parameter in the first element of `Forwarded`.
fn forwarded<'h>(headers: &'h HeaderMap, name: &str, parameter: &str) -> Option<&'h str> {
    let first =
        |name: &str| Some(headers.get(name)?.to_str().ok()?.split(',').next().unwrap_or_default().trim());
    if let Some(value) = first(name) {
        return Some(value);
    }
    let pairs = first("forwarded")?.split(';').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.map(|(key, value)| (key.trim(), value.trim().trim_matches('"')));
    values.find(|(key, _)| key.eq_ignore_ascii_case(parameter)).map(|(_, value)| value)
}

/// Whether a client on this machine named this listener. Older versions of HTTP are spoken by proxies only.
fn is_local(parts: &Parts, host: Option<&str>, peer: Option<SocketAddr>) -> bool {
    let Some(LocalAddress(listener)) = parts.extensions.get::<LocalAddress>() else { return false };
    let named = host.and_then(|host| host.rsplit_once(':'));
    let Some((name, Ok(port))) = named.map(|(name, port)| (name, port.parse::<u16>())) else { return false };
    let loopback = |address: IpAddr| address.to_canonical().is_loopback();
    let literal = name.trim_matches(['[', ']']).parse::<IpAddr>();
    parts.version >= Version::HTTP_11
        && peer.is_some_and(|peer| loopback(peer.ip()))
        && (name.eq_ignore_ascii_case("localhost") || literal.is_ok_and(loopback))
        && port == listener.port()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn tls_at_the_own_listener_is_https_at_the_named_host_unless_a_proxy_left_a_mark() {
        let mut request = parts("192.0.2.9:4000", Version::HTTP_11, &[("host", "r.example:8443")]);
        assert_eq!(caller(&request).scheme, ClientScheme::Unmarked);
        request.extensions.insert(OverTls);
        assert_eq!(caller(&request).scheme, ClientScheme::Https);
        assert_eq!(caller(&request).host, Some("r.example:8443"));
        request.headers.insert("via", "1.1 proxy".parse().unwrap());
        assert_eq!(caller(&request).scheme, ClientScheme::Proxied);
    }

    fn parts(peer: &str, version: Version, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        parts.extensions.insert(ConnectInfo::<SocketAddr>(peer.parse().unwrap()));
        parts.extensions.insert(LocalAddress("127.0.0.1:8080".parse().unwrap()));
        parts
    }

    fn reached(headers: &[(&str, &str)]) -> (ClientScheme, Option<String>) {
        let parts = parts("127.0.0.1:50000", Version::HTTP_11, headers);
        let caller = caller(&parts);
        (caller.scheme, caller.host.map(str::to_owned))
    }

    #[test]
    fn only_a_client_on_this_machine_that_names_this_listener_counts_as_plain_http() {
        for host in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "127.9.9.9:8080"] {
            assert_eq!(reached(&[("host", host)]).0, ClientScheme::LocalHttp, "{host}");
        }
        // A proxy keeps the name and the port that its client used.
        for host in ["127.0.0.1:8443", "localhost", "127.0.0.1", "[::1]", "registry.example.org:8080", ""] {
            assert_eq!(reached(&[("host", host)]).0, ClientScheme::Unmarked, "{host}");
        }
        let host = [("host", "127.0.0.1:8080")];
        for (peer, version) in [("192.0.2.1:50000", Version::HTTP_11), ("127.0.0.1:50000", Version::HTTP_10)]
        {
            let parts = parts(peer, version, &host);
            assert_eq!(caller(&parts).scheme, ClientScheme::Unmarked, "{peer} {version:?}");
        }
        let mut without = parts("127.0.0.1:50000", Version::HTTP_11, &host);
        without.extensions.remove::<LocalAddress>();
        assert_eq!(caller(&without).scheme, ClientScheme::Unmarked);
    }

    #[test]
    fn a_proxy_that_received_tls_says_so_and_one_that_says_anything_else_is_not_believed() {
        let host = ("host", "127.0.0.1:8080");
        for (headers, expected) in [
            (vec![("x-forwarded-proto", "https")], "127.0.0.1:8080"),
            (
                vec![("x-forwarded-proto", "HTTPS, http"), ("x-forwarded-host", "r.example.org")],
                "r.example.org",
            ),
            (
                vec![("forwarded", "for=192.0.2.1;Proto=https;host=\"r.example.org:8443\", for=x")],
                "r.example.org:8443",
            ),
        ] {
            let found = reached(&[&[host][..], &headers].concat());
            assert_eq!(found, (ClientScheme::Https, Some(expected.to_owned())), "{headers:?}");
        }
        for header in [
            ("x-forwarded-proto", "http"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("via", "1.1 proxy"),
            ("x-real-ip", "192.0.2.1"),
        ] {
            assert_eq!(reached(&[host, header]).0, ClientScheme::Proxied, "{header:?}");
        }
    }

    #[test]
    fn empty_credentials_are_none() {
        for (header, expected) in [("Basic Og==", None), ("Basic YTpi", Some("Basic YTpi"))] {
            let parts = parts("127.0.0.1:1", Version::HTTP_11, &[("authorization", header)]);
            assert_eq!(caller(&parts).authorization, expected);
        }
    }
}
