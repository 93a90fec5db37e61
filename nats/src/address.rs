//! The URL of a NATS server.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

/// The longest URL.
const MAX_BYTES: usize = 1024;

/// The URL of a NATS server: `nats://HOST[:PORT]`, or `tls://HOST[:PORT]` for TLS. It has no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    text: String,
    host: String,
    port: u16,
    tls: bool,
    loopback: bool,
}

/// Why a text is not the URL of a NATS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// The scheme is another one, or the text is no URL.
    #[error("nats://HOST[:PORT], or tls://HOST[:PORT] for TLS, and nothing after it")]
    Form,
    /// There is a user, a password or a token in the URL.
    #[error("a URL without user and password; credentials are in a file of their own")]
    Credentials,
}

impl ServerUrl {
    /// Whether the connection must be encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// The name or the address of the host, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL as a text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_BYTES {
            return Err(ServerUrlError::Form);
        }
        let url = Url::parse(text).map_err(|_| ServerUrlError::Form)?;
        let tls = match url.scheme() {
            "nats" => false,
            "tls" => true,
            _ => return Err(ServerUrlError::Form),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ServerUrlError::Credentials);
        }
        let bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        let (shown, loopback) = match url.host() {
            // The host of a scheme that no browser knows is a text, also when it is an IPv4 address.
            Some(Host::Domain(name)) if is_name(name) => {
                let loopback = name.parse::<IpAddr>().map_or(name == "localhost", |ip| ip.is_loopback());
                (name.to_owned(), loopback)
            }
            Some(Host::Ipv4(ip)) => (ip.to_string(), ip.is_loopback()),
            Some(Host::Ipv6(ip)) => (format!("[{ip}]"), ip.is_loopback()),
            Some(Host::Domain(_)) | None => return Err(ServerUrlError::Form),
        };
        if !bare || url.port() == Some(0) {
            return Err(ServerUrlError::Form);
        }
        let port = url.port().unwrap_or(4222);
        let host = shown.trim_matches(['[', ']']).to_owned();
        Ok(Self { text: format!("{}://{shown}:{port}", url.scheme()), host, port, tls, loopback })
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_perhaps_a_port() {
        for (text, whole) in [
            ("nats://nats.example", "nats://nats.example:4222"),
            ("nats://nats.example:4333/", "nats://nats.example:4333"),
            ("tls://192.0.2.7", "tls://192.0.2.7:4222"),
            ("tls://[2001:db8::1]:5222", "tls://[2001:db8::1]:5222"),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!(url.as_str(), whole);
            assert_eq!(url.is_tls(), text.starts_with("tls"));
            let shown =
                if url.host().contains(':') { format!("[{}]", url.host()) } else { url.host().to_owned() };
            assert!(whole.ends_with(&format!("//{shown}:{}", url.port())), "{whole}");
            assert!(!url.is_loopback());
        }
        for text in ["nats://127.0.0.1", "nats://[::1]", "tls://localhost"] {
            assert!(text.parse::<ServerUrl>().unwrap().is_loopback(), "{text}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_words() {
        let long = format!("nats://{}", "a".repeat(MAX_BYTES));
        for text in [
            "",
            "nats",
            "nats://",
            "http://nats.example",
            "ws://nats.example",
            "nats://nats.example/subject",
            "nats://nats.example?a=b",
            "nats://nats.example:0",
            "nats://a b",
            "nats:nats.example",
            &long,
        ] {
            assert_eq!(text.parse::<ServerUrl>(), Err(ServerUrlError::Form), "{text}");
        }
        for text in ["nats://token@nats.example", "nats://user:password@nats.example"] {
            assert_eq!(text.parse::<ServerUrl>(), Err(ServerUrlError::Credentials), "{text}");
        }
    }
}
