//! What the workflow needs of its surroundings; `app` fills it in.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use async_trait::async_trait;

use super::bmc::Bmcs;
use engine::model::{Outcome, Serial, Server};
use media::{Grants, Library};
use recipe::RecipeSchemas;
use secrets::{JobTokens, Key};

/// The surroundings did not answer; worth another try.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Where servers are looked up.
#[async_trait]
pub trait Directory: Send + Sync {
    /// The server with that serial.
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable>;
}

/// Where OS images are looked up before a machine is touched for them.
#[async_trait]
pub trait Images: Send + Sync {
    /// Whether our own registry holds this image (`reference` is a tag or a digest). If so it cannot go until it is
    /// released for `owner`.
    async fn hold(&self, repository: &str, reference: &str, owner: &str) -> Result<bool, Unavailable>;
    /// Whether our own registry holds this image right now; nothing is held by asking.
    async fn holds(&self, repository: &str, reference: &str) -> Result<bool, Unavailable>;
    /// Lets go of everything that is held for `owner`.
    async fn release(&self, owner: &str) -> Result<(), Unavailable>;
    /// Whether images can be stored right now.
    async fn ready(&self) -> Result<(), Unavailable>;
}

/// Counts what happens.
pub trait ProvisionMetrics: Send + Sync {
    /// A task image was planned and hashed.
    fn image_built(&self, took: Duration, size: u64);
    /// A job is over.
    fn job_ended(&self, outcome: Outcome, took: Duration);
}

/// The workflow's own settings.
#[derive(Clone, Debug)]
pub struct ProvisionSettings {
    /// The maintenance ISO of jobs that name none.
    pub maintenance_iso_url: Option<String>,
    /// The ESXi installer of jobs that name none.
    pub esxi_installer_url: Option<String>,
    /// How long signs that an installer has finished do not count.
    pub install_min_time: Duration,
    /// How long such signs are waited for before success is assumed.
    pub install_window: Duration,
    /// How long a job may take until its outcome is known.
    pub job_timeout: Duration,
    /// How long cleanup may take.
    pub cleanup_timeout: Duration,
    /// How often a step that talks to a BMC is tried.
    pub bmc_tries: u32,
    /// Where task images are also written, if they are.
    pub task_iso_dir: Option<std::path::PathBuf>,
    /// PEM of the controller's own CA, for the maintenance OS.
    pub controller_ca: Option<String>,
    /// Whether our registry is on.
    pub registry: bool,
    /// How much may happen at once, and how long steps may take.
    pub limits: Limits,
}

/// How much may happen at once, and how long steps may take.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Hosts that may be powering on at once.
    pub power_ons: Option<u32>,
    /// How long a host counts as powering on, unless it is seen to boot.
    pub power_on_settle: Duration,
    /// Jobs that may be under way among servers of one site.
    pub per_site: Option<u32>,
    /// How long steps may take, waiting included.
    pub steps: BTreeMap<String, Duration>,
}

/// The addresses BMCs and the maintenance OS are given.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Where the API listens.
    pub api: SocketAddr,
    /// Where media are served.
    pub media: SocketAddr,
    /// `CONTROLLER_PUBLIC_URL`.
    pub public_url: Option<String>,
    /// `MEDIA_BASE_URL`.
    pub media_base_url: Option<String>,
}

impl Addresses {
    /// The base URL of the API as the machine behind this BMC reaches it.
    pub fn controller_for(&self, bmc: SocketAddr) -> Result<String, String> {
        match &self.public_url {
            Some(url) => Ok(url.clone()),
            None => base_url(self.api, bmc, "CONTROLLER_PUBLIC_URL"),
        }
    }

    /// The base URL of media as this BMC reaches it.
    pub fn media_for(&self, server: &Server, bmc: SocketAddr) -> Result<String, String> {
        match server.media_base_url.as_ref().or(self.media_base_url.as_ref()) {
            Some(url) => Ok(url.clone()),
            None => base_url(self.media, bmc, "MEDIA_BASE_URL"),
        }
    }
}

/// The address of ours that the kernel would use towards a BMC, with the port we listen on.
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

/// The base URL under which a BMC reaches a listener of ours.
pub(super) fn base_url_towards(listen: SocketAddr, bmc: SocketAddr) -> Result<String, String> {
    base_url(listen, bmc, "--listen")
}

/// A BMC's address as it is registered: a host, host:port or URL; https unless it says otherwise.
pub fn checked_bmc_address(text: &str) -> Result<String, String> {
    text.parse::<redfish::Endpoint>().map(|endpoint| endpoint.to_string()).map_err(|why| why.to_string())
}

/// A certificate's SHA-256 fingerprint in the form it is stored in.
pub fn checked_fingerprint(text: &str) -> Result<String, String> {
    text.parse::<redfish::Fingerprint>().map(|print| print.to_string()).map_err(|why| why.to_string())
}

/// A base URL for media: scheme, address and port, nothing more (lock L1).
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
    // Connecting a datagram socket sends nothing; it only asks the kernel for the route.
    UdpSocket::bind(any)
        .and_then(|socket| {
            socket.connect(bmc)?;
            socket.local_addr()
        })
        .map(|address| address.ip())
        .map_err(|why| format!("no route from here to the BMC at {}: {why}; set {setting}", bmc.ip()))
}

/// Everything the steps work with.
pub struct Site {
    /// The accepted recipe schemas.
    pub schemas: RecipeSchemas,
    /// Where servers are looked up.
    pub directory: Box<dyn Directory>,
    /// Where OS images are looked up.
    pub images: Box<dyn Images>,
    /// Connections to BMCs.
    pub bmcs: Bmcs,
    /// Open media grants.
    pub grants: Grants,
    /// Imported maintenance images.
    pub library: Library,
    /// Derives the tokens of a job.
    pub tokens: JobTokens,
    /// Seals what is frozen at rest.
    pub media_key: std::sync::Arc<Key>,
    /// Counts what happens.
    pub meter: std::sync::Arc<dyn ProvisionMetrics>,
    /// Addresses to hand out.
    pub addresses: Addresses,
    /// The workflow's settings.
    pub settings: ProvisionSettings,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(listen: &str) -> Addresses {
        let listen = listen.parse().unwrap();
        Addresses { api: listen, media: listen, public_url: None, media_base_url: None }
    }

    #[test]
    fn a_bmc_on_this_machine_is_given_the_loopback_address() {
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
