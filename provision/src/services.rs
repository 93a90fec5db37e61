//! The services that provisioning steps use. The controller implements their traits.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use async_trait::async_trait;

use super::bmc::Bmcs;
use engine::model::{Outcome, Serial, Server};
use media::{Library, MediaGrants};
use recipe::RecipeSchemas;
use secrets::{JobTokens, Key};

/// A service did not respond. The call can be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Looks up registered servers.
#[async_trait]
pub trait ServerLookup: Send + Sync {
    /// Returns the server with this serial number.
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable>;
}

/// Looks up OS images before a machine is changed.
#[async_trait]
pub trait OsImages: Send + Sync {
    /// Pins an image (`reference` is a tag or a digest) for `owner` if this controller's registry holds it. Returns whether it
    /// does.
    async fn hold(&self, repository: &str, reference: &str, owner: &str) -> Result<bool, Unavailable>;
    /// Returns whether this controller's registry holds this image, without a pin.
    async fn holds(&self, repository: &str, reference: &str) -> Result<bool, Unavailable>;
    /// Removes all pins of `owner`.
    async fn release(&self, owner: &str) -> Result<(), Unavailable>;
    /// Checks that the registry can store images.
    async fn ready(&self) -> Result<(), Unavailable>;
}

/// Metrics of the workflow.
pub trait ProvisionMetrics: Send + Sync {
    /// Counts a task image that was planned and hashed.
    fn image_built(&self, took: Duration, size: u64);
    /// Counts the end of a job.
    fn job_ended(&self, outcome: Outcome, took: Duration);
}

/// The settings of the workflow.
#[derive(Clone, Debug)]
pub struct ProvisionSettings {
    /// The maintenance ISO of jobs that give none.
    pub maintenance_iso_url: Option<String>,
    /// The ESXi installer of jobs that give none.
    pub esxi_installer_url: Option<String>,
    /// The time after power-on in which completion signs do not count.
    pub install_min_time: Duration,
    /// The time to wait for completion signs before success is assumed.
    pub install_window: Duration,
    /// The default time until the deadline of a job.
    pub job_timeout: Duration,
    /// Time limit of cleanup.
    pub cleanup_timeout: Duration,
    /// Maximum number of attempts of a step that uses a BMC.
    pub bmc_tries: u32,
    /// The directory where task images are also written, if set.
    pub task_iso_dir: Option<std::path::PathBuf>,
    /// The controller's CA in PEM, for the maintenance OS.
    pub controller_ca: Option<String>,
    /// Whether the registry of this controller is enabled.
    pub registry: bool,
    /// Limits of concurrency and of step times.
    pub limits: ProvisionLimits,
}

/// Limits of concurrency and of step times.
#[derive(Clone, Debug, Default)]
pub struct ProvisionLimits {
    /// Maximum number of hosts that power on at once.
    pub power_ons: Option<u32>,
    /// The time a host counts as powering on, unless it reads its media earlier.
    pub power_on_settle: Duration,
    /// Maximum number of jobs at once per site.
    pub per_site: Option<u32>,
    /// Time limits of steps, waits included.
    pub steps: BTreeMap<String, Duration>,
}

/// The addresses of the controller for BMCs and for the maintenance OS.
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
pub(super) fn base_url_towards(listen: SocketAddr, bmc: SocketAddr) -> Result<String, String> {
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

/// The services that the steps use.
pub struct Services {
    /// The accepted recipe schemas.
    pub schemas: RecipeSchemas,
    /// Looks up registered servers.
    pub servers: Box<dyn ServerLookup>,
    /// Looks up OS images.
    pub images: Box<dyn OsImages>,
    /// Connections to BMCs.
    pub bmcs: Bmcs,
    /// The media grants.
    pub grants: MediaGrants,
    /// The library of imported maintenance images.
    pub library: Library,
    /// Derives the tokens of a job.
    pub tokens: JobTokens,
    /// The key that seals the recorded inputs of images.
    pub media_key: std::sync::Arc<Key>,
    /// Metrics of the workflow.
    pub metrics: std::sync::Arc<dyn ProvisionMetrics>,
    /// The addresses of the controller.
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
