//! The addresses that BMCs and machines use to reach the controller, and checks of the addresses in a server's record.
//!
//! ```text
//!   CONTROLLER_PUBLIC_URL, MEDIA_BASE_URL or the server's media_base_url   -> used as given
//!   none of them                                                          -> the local address that routes to the BMC
//! ```

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use engine::model::Server;

/// The addresses of the controller for BMCs and for the machines behind them.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The listen address of the API.
    pub api: SocketAddr,
    /// The listen address of the media server.
    pub media: SocketAddr,
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
            None => base_url(self.api, bmc, "CONTROLLER_PUBLIC_URL"),
        }
    }

    /// Returns the base URL of media as this BMC reaches it.
    ///
    /// # Errors
    /// Returns a message that names the setting when no reachable address is found.
    pub fn media_for(&self, server: &Server, bmc: SocketAddr) -> Result<String, String> {
        match server.media_base_url.as_ref().or(self.media_base_url.as_ref()) {
            Some(url) => Ok(url.clone()),
            None => base_url(self.media, bmc, "MEDIA_BASE_URL"),
        }
    }
}

/// Builds a base URL from the local address that routes to a BMC and the listen port.
fn base_url(listen: SocketAddr, bmc: SocketAddr, setting: &str) -> Result<String, String> {
    let ours = if listen.ip().is_unspecified() { local_towards(bmc, setting)? } else { listen.ip() };
    if ours.is_loopback() && !bmc.ip().is_loopback() {
        return Err(format!(
            "the controller listens on {listen}, which the BMC at {} cannot reach: set {setting} or listen on an \
             address of the BMC's network",
            bmc.ip()
        ));
    }
    Ok(format!("http://{}", SocketAddr::new(ours, listen.port())))
}

/// Returns the base URL under which a BMC reaches a listener of the command line tool.
///
/// # Errors
/// Returns a message that names the option `--listen` when no reachable address is found.
pub fn base_url_towards(listen: SocketAddr, bmc: SocketAddr) -> Result<String, String> {
    base_url(listen, bmc, "--listen")
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
/// Returns a message when the URL has any other part.
pub fn checked_base_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|why| format!("not a URL: {why}"))?;
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
        let listen = listen.parse().unwrap();
        Addresses { api: listen, media: listen, public_url: None, media_base_url: None }
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
    fn a_configured_url_wins() {
        let mut addresses = addresses("127.0.0.1:8080");
        addresses.public_url = Some("https://shoal.example:8443".to_owned());
        let given = addresses.controller_for("192.0.2.7:443".parse().unwrap());
        assert_eq!(given.unwrap(), "https://shoal.example:8443");
    }
}
