//! The address of a BMC: scheme, host and port, in the forms an operator uses.
//!
//! ```text
//!   10.0.0.7   10.0.0.7:8443   [fd00::7]:443   bmc7.example   http://10.0.0.7   https://bmc7.example/redfish/v1
//! ```
//!
//! The default scheme is `https`. A path is accepted only if it is the service root, whose path is fixed
//! (DSP0266 6.2). Credentials in the URL are refused, because they would appear in logs.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// The service root, the only path that does not come from a link.
pub(crate) const SERVICE_ROOT: &str = "/redfish/v1/";

/// The origin of a BMC.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Endpoint {
    secure: bool,
    host: Host<String>,
    port: u16,
}

/// The text is not the address of a BMC.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("BMC address is not usable: {reason}; write a host, host:port or https:// URL")]
pub struct EndpointError {
    reason: &'static str,
}

impl Endpoint {
    /// Whether requests go over TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host in the form used in URLs (an IPv6 literal in brackets).
    pub fn host(&self) -> String {
        self.host.to_string()
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether a URL has this origin.
    pub(crate) fn is_origin_of(&self, url: &Url) -> bool {
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return false,
        };
        secure == self.secure
            && url.host().map(|host| host.to_owned()).as_ref() == Some(&self.host)
            && url.port_or_known_default() == Some(self.port)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let fail = |reason| Err(EndpointError { reason });
        let text = text.trim();
        if text.is_empty() || text.len() > 300 {
            return fail("it is empty or too long");
        }
        let url = if text.contains("://") {
            Url::parse(text)
        } else if text.parse::<std::net::Ipv6Addr>().is_ok() {
            Url::parse(&format!("https://[{text}]"))
        } else {
            Url::parse(&format!("https://{text}"))
        };
        let Ok(url) = url else { return fail("it does not parse") };
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return fail("its scheme is neither https nor http"),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return fail("it contains credentials, which belong in their own fields");
        }
        if !matches!(url.path().trim_end_matches('/'), "" | "/redfish" | "/redfish/v1")
            || url.query().is_some()
        {
            return fail("it has a path or query");
        }
        let Some(host) = url.host().map(|host| host.to_owned()) else { return fail("it has no host") };
        let port = url.port_or_known_default().unwrap_or(if secure { 443 } else { 80 });
        Ok(Endpoint { secure, host, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        let default = if self.secure { 443 } else { 80 };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port == default { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_in_every_form_operators_use() {
        for (text, shown) in [
            ("10.0.0.7", "https://10.0.0.7"),
            (" 10.0.0.7:8443 ", "https://10.0.0.7:8443"),
            ("fd00::7", "https://[fd00::7]"),
            ("[fd00::7]:444", "https://[fd00::7]:444"),
            ("bmc7.example", "https://bmc7.example"),
            ("http://10.0.0.7/", "http://10.0.0.7"),
            ("https://bmc7.example/redfish/v1/", "https://bmc7.example"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn addresses_with_paths_queries_credentials_or_odd_schemes_are_refused() {
        for text in ["", "ftp://a", "https://u:p@a", "https://a/b", "https://a/?x", "a b", "https://"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
