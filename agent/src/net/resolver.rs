//! The configuration of the resolver: the text of `/etc/resolv.conf`.

use std::{fmt::Write, net::IpAddr};

/// The resolver of the C library reads this many.
const MAX_SERVERS: usize = 3;
const MAX_DOMAINS: usize = 6;

// Nothing else can be in a line of the configuration.
pub use recipe::network::is_domain;

/// Returns the configuration for these name servers and search domains. What is no domain name is left out.
#[must_use]
pub fn configuration(servers: &[IpAddr], search: &[String]) -> String {
    let mut text = String::new();
    for server in servers.iter().take(MAX_SERVERS) {
        let _ = writeln!(text, "nameserver {server}");
    }
    let domains: Vec<&str> =
        search.iter().map(String::as_str).filter(|domain| is_domain(domain)).take(MAX_DOMAINS).collect();
    if !domains.is_empty() {
        let _ = writeln!(text, "search {}", domains.join(" "));
    }
    text.push_str("options timeout:2 attempts:2\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_domains_are_bounded_and_a_line_cannot_be_added() {
        let servers: Vec<IpAddr> = (1..9).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        let text = configuration(
            &servers,
            &["lab.test".to_owned(), "a b".to_owned(), "x\nnameserver 9.9.9.9".to_owned()],
        );
        assert_eq!(
            text,
            "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nsearch lab.test\noptions timeout:2 attempts:2\n"
        );
    }
}
