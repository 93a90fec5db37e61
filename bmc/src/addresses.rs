//! The addresses that BMCs and machines use to reach the controller, and checks of the addresses in a server's record.
//!
//! ```text
//!   CONTROLLER_PUBLIC_URL, MEDIA_BASE_URL or the server's media_base_url   -> used as given
//!   none of them                                                          -> the local address that routes to the BMC:
//!                                                                            API by https, media by http, and by https for
//!                                                                            BMCs that read nothing else
//! ```

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use model::{MEDIA_BASE_MAX, Server};

/// The addresses of the controller for BMCs and for the machines behind them.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The listen address of the API for plain HTTP.
    pub api: SocketAddr,
    /// The listen address of the media server for plain HTTP.
    pub media: SocketAddr,
    /// The listen address of the API for HTTPS; none without TLS.
    pub api_tls: Option<SocketAddr>,
    /// The listen address of the media server for HTTPS; none without TLS.
    pub media_tls: Option<SocketAddr>,
    /// Whether machines elsewhere may use the API over plain HTTP.
    pub plain_api: bool,
    /// `CONTROLLER_PUBLIC_URL`.
    pub public_url: Option<String>,
    /// `MEDIA_BASE_URL`.
    pub media_base_url: Option<String>,
}

impl Addresses {
    /// Returns the base URL of the API as the machine behind this BMC reaches it.
    ///
    /// # Errors
    /// Returns a message that names the setting when no reachable address is found.
    pub fn controller_for(&self, bmc: SocketAddr) -> Result<String, String> {
        match &self.public_url {
            Some(url) => Ok(url.clone()),
            // Machines behind a BMC on this host are simulated, and on this host too.
            None if self.plain_api || bmc.ip().is_loopback() => {
                base_url("http", self.api, bmc, "CONTROLLER_PUBLIC_URL")
            }
            None => match self.api_tls {
                Some(listen) => base_url("https", listen, bmc, "CONTROLLER_PUBLIC_URL"),
                None => Err("machines cannot reach the API: CONTROLLER_HTTPS_ADDR is off, and plain HTTP is for this host \
                             only; set CONTROLLER_PUBLIC_URL or CONTROLLER_HTTP_ALLOW_REMOTE=true"
                    .to_owned()),
            },
        }
    }

    /// Returns the base URLs of media as this BMC reaches them.
    ///
    /// # Errors
    /// Returns a message that names the setting when no reachable address is found.
    pub fn media_for(&self, server: &Server, bmc: SocketAddr) -> Result<MediaBases, String> {
        match server.media_base_url.as_ref().or(self.media_base_url.as_ref()) {
            Some(url) => Ok(MediaBases { first: url.clone(), secure: None }),
            None => {
                let of = |scheme, listen| base_url(scheme, listen, bmc, "MEDIA_BASE_URL");
                let secure = self.media_tls.and_then(|listen| of("https", listen).ok());
                match (of("http", self.media), secure) {
                    (Ok(first), secure) => Ok(MediaBases { first, secure }),
                    // Plain HTTP for this host only, and HTTPS for all.
                    (Err(_), Some(secure)) => Ok(MediaBases { first: secure, secure: None }),
                    (Err(why), None) => Err(why),
                }
            }
        }
    }
}

/// The base URLs of media for one BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaBases {
    /// The configured one, or plain HTTP, which every BMC can verify: there is nothing to verify (decision D16).
    pub first: String,
    /// By HTTPS, for a BMC that does not read the first.
    pub secure: Option<String>,
}

/// Builds a base URL from the local address that routes to a BMC and the listen port.
fn base_url(scheme: &str, listen: SocketAddr, bmc: SocketAddr, setting: &str) -> Result<String, String> {
    let ours = if listen.ip().is_unspecified() { local_towards(bmc, setting)? } else { listen.ip() };
    if ours.is_loopback() && !bmc.ip().is_loopback() {
        return Err(format!(
            "the controller listens on {listen}, which the BMC at {} cannot reach: set {setting} or listen on an \
             address of the BMC's network",
            bmc.ip()
        ));
    }
    Ok(format!("{scheme}://{}", SocketAddr::new(ours, listen.port())))
}

/// Returns the base URL under which a BMC reaches a listener of the command line tool.
///
/// # Errors
/// Returns a message that names the option `--listen` when no reachable address is found.
pub fn base_url_towards(listen: SocketAddr, bmc: SocketAddr) -> Result<String, String> {
    base_url("http", listen, bmc, "--listen")
}

/// Normalizes a BMC address: host, host:port or URL; the default scheme is https.
///
/// # Errors
/// Returns a message when the address cannot be parsed.
pub fn checked_bmc_address(text: &str) -> Result<String, String> {
    text.parse::<redfish::Endpoint>().map(|endpoint| endpoint.to_string()).map_err(|why| why.to_string())
}

/// Normalizes the SHA-256 fingerprint of a certificate to its stored form.
///
/// # Errors
/// Returns a message when the fingerprint cannot be parsed.
pub fn checked_fingerprint(text: &str) -> Result<String, String> {
    text.parse::<redfish::Fingerprint>().map(|print| print.to_string()).map_err(|why| why.to_string())
}

/// Checks a base URL for media: scheme, address and port only (decision D1).
///
/// # Errors
/// Returns a message when the URL has any other part, or is so long that media URLs become longer than BMCs accept.
pub fn checked_base_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|why| format!("not a URL: {why}"))?;
    if url.as_str().trim_end_matches('/').len() > MEDIA_BASE_MAX {
        return Err(format!(
            "at most {MEDIA_BASE_MAX} bytes: BMCs refuse long media URLs; give a shorter name, or the address"
        ));
    }
    let bare = matches!(url.scheme(), "http" | "https")
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if bare {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("write scheme://address[:port], nothing more".to_owned())
    }
}

fn local_towards(bmc: SocketAddr, setting: &str) -> Result<IpAddr, String> {
    let any: SocketAddr =
        if bmc.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { (std::net::Ipv6Addr::UNSPECIFIED, 0).into() };
    // Connecting a datagram socket sends nothing; the kernel only selects the route.
    UdpSocket::bind(any)
        .and_then(|socket| {
            socket.connect(bmc)?;
            socket.local_addr()
        })
        .map(|address| address.ip())
        .map_err(|why| format!("no route from here to the BMC at {}: {why}; set {setting}", bmc.ip()))
}

/// Resolves the address of a server's BMC, to find the local address that routes to it.
///
/// # Errors
/// Returns a message when the address cannot be parsed or its name does not resolve.
pub async fn bmc_address(server: &Server) -> Result<SocketAddr, String> {
    let endpoint: redfish::Endpoint =
        server.bmc_address.parse().map_err(|why| format!("the BMC address is unusable: {why}"))?;
    let (host, port) = (endpoint.host(), endpoint.port());
    // An address literal needs no resolver.
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let name = format!("{host}:{port}");
    let resolved = tokio::task::spawn_blocking(move || {
        (host.trim_matches(['[', ']']), port).to_socket_addrs().map(|mut addresses| addresses.next())
    })
    .await;
    match resolved {
        Ok(Ok(Some(address))) => Ok(address),
        _ => Err(format!("the BMC's name {name} does not resolve")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(listen: &str) -> Addresses {
        crate::test_support::addresses(listen.parse().unwrap())
    }

    #[test]
    fn a_bmc_on_this_machine_gets_the_loopback_address() {
        let given = addresses("0.0.0.0:8080").controller_for("127.0.0.1:443".parse().unwrap());
        assert_eq!(given.unwrap(), "http://127.0.0.1:8080");
    }

    #[test]
    fn loopback_towards_a_bmc_elsewhere_is_an_error_that_names_the_setting() {
        let refused =
            addresses("127.0.0.1:8080").controller_for("192.0.2.7:443".parse().unwrap()).unwrap_err();
        assert!(refused.contains("CONTROLLER_PUBLIC_URL"), "{refused}");
    }

    #[test]
    fn a_machine_elsewhere_reaches_the_api_by_https_unless_plain_http_is_allowed() {
        let tls: SocketAddr = "192.0.2.1:8443".parse().unwrap();
        let mut addresses = Addresses { api_tls: Some(tls), plain_api: false, ..addresses("192.0.2.1:8080") };
        let elsewhere: SocketAddr = "192.0.2.7:443".parse().unwrap();
        assert_eq!(addresses.controller_for(elsewhere).unwrap(), "https://192.0.2.1:8443");
        let here = addresses.controller_for("127.0.0.1:443".parse().unwrap());
        assert_eq!(here.unwrap(), "http://192.0.2.1:8080");
        addresses.api_tls = None;
        let refused = addresses.controller_for(elsewhere).unwrap_err();
        assert!(refused.contains("CONTROLLER_HTTP_ALLOW_REMOTE"), "{refused}");
        addresses.plain_api = true;
        assert_eq!(addresses.controller_for(elsewhere).unwrap(), "http://192.0.2.1:8080");
    }

    #[test]
    fn a_configured_url_wins() {
        let mut addresses = addresses("127.0.0.1:8080");
        addresses.public_url = Some("https://shoal.example:8443".to_owned());
        let given = addresses.controller_for("192.0.2.7:443".parse().unwrap());
        assert_eq!(given.unwrap(), "https://shoal.example:8443");
    }
}
