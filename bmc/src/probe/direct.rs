//! The BMC at an address that is not registered: connected without a controller, a database or a lease.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use redfish::{
    Bmc, BmcCredentials, Endpoint, HttpOptions, HttpTransport, LimitOptions, Profile, RecordingTransport,
    RedfishError, RequestLimits, TlsVerification,
};
use secrecy::SecretString;
use serde_json::json;

use super::super::addresses::base_url_towards;
use super::super::slots::LearnedSlots;
use super::{BmcProblem, ProbeResult, ProbeTarget, bmc_problem, card};
use model::Time;

/// Timeout of reading a certificate.
const FINGERPRINT: Duration = Duration::from_secs(10);

/// A BMC given on the command line.
pub struct DirectTarget {
    /// HOST, HOST:PORT or a URL; the default scheme is https.
    pub address: String,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: SecretString,
    /// The fingerprint of the only accepted certificate; `None` accepts the first one shown.
    pub fingerprint: Option<String>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// The expected serial number, if known.
    pub serial: Option<String>,
}

/// A client of a BMC that is not registered. Its requests are recorded.
pub struct DirectConnection {
    /// The client.
    pub bmc: Bmc,
    recorder: RecordingTransport,
    tls: serde_json::Value,
    /// The address to which the name of the BMC resolves.
    pub peer: SocketAddr,
}

impl DirectConnection {
    /// Connects to a BMC.
    ///
    /// # Errors
    /// Returns the problem when the address, the certificate or the name of the BMC cannot be used.
    pub async fn open(target: &DirectTarget) -> Result<Self, BmcProblem> {
        connect(target).await
    }

    /// Returns the target of a probe or of checks over this connection.
    pub fn probe_target<'a>(
        &self,
        target: &'a DirectTarget,
        media_base: &'a str,
        now: Time,
    ) -> ProbeTarget<'a> {
        ProbeTarget {
            serial: target.serial.as_deref(),
            media_base,
            secure_media_base: None,
            tls: self.tls.clone(),
            learned: LearnedSlots::default(),
            now,
        }
    }

    /// Returns the wildcard address of the BMC's address family, to listen on.
    pub fn wildcard(&self) -> IpAddr {
        match self.peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Closes the session at the BMC. A failure is only logged because a session also times out.
    pub async fn close(self) {
        if let Err(error) = self.bmc.logout().await {
            tracing::debug!(%error, "the BMC session was not closed; it times out");
        }
    }
}

async fn connect(target: &DirectTarget) -> Result<DirectConnection, BmcProblem> {
    let config_problem = |sentence: String, next: &str| BmcProblem {
        code: "config".to_owned(),
        sentence,
        next_action: next.to_owned(),
    };
    let endpoint: Endpoint =
        target.address.parse().map_err(|why| config_problem(format!("{why}"), "correct the address"))?;
    let failed = |error| bmc_problem(&RedfishError::connecting(error), None);
    let (mode, tls) = if !endpoint.is_secure() {
        (TlsVerification::Insecure, json!({ "mode": "none", "fingerprint": null, "first_met": false }))
    } else if target.insecure {
        let seen = redfish::read_fingerprint(&endpoint, FINGERPRINT).await.map_err(failed)?;
        (
            TlsVerification::Insecure,
            json!({ "mode": "insecure", "fingerprint": seen.to_string(), "first_met": false }),
        )
    } else if let Some(pin) = &target.fingerprint {
        let pin =
            pin.parse().map_err(|why| config_problem(format!("{why}"), "give 64 hexadecimal digits"))?;
        (
            TlsVerification::Pin(pin),
            json!({ "mode": "pinned", "fingerprint": pin.to_string(), "first_met": false }),
        )
    } else {
        let seen = redfish::read_fingerprint(&endpoint, FINGERPRINT).await.map_err(failed)?;
        (
            TlsVerification::Pin(seen),
            json!({ "mode": "pinned", "fingerprint": seen.to_string(), "first_met": true }),
        )
    };
    let name = (endpoint.host().trim_matches(['[', ']']).to_owned(), endpoint.port());
    let peer = tokio::net::lookup_host(name).await.ok().and_then(|mut found| found.next());
    let transport = HttpTransport::new(&endpoint, &mode, HttpOptions::default()).map_err(failed)?;
    let recorder = RecordingTransport::over(Arc::new(transport));
    let credentials = BmcCredentials::new(target.username.clone(), target.password.clone());
    let bmc = Bmc::builder(endpoint, credentials, Arc::new(recorder.clone()), Profile::generic())
        .detecting()
        .limits(RequestLimits::new(LimitOptions::recommended(), None))
        .options(redfish::ClientOptions { read_attempts: 2, ..redfish::ClientOptions::default() })
        .build();
    let peer = peer.ok_or_else(|| {
        config_problem(
            "the BMC's host name does not resolve".to_owned(),
            "correct the name, or the DNS of this machine",
        )
    })?;
    Ok(DirectConnection { bmc, recorder, tls, peer })
}

/// Reads a BMC without changing anything.
///
/// # Errors
/// Returns the problem when the BMC cannot be read.
pub async fn probe(target: &DirectTarget, capture: bool, now: Time) -> Result<ProbeResult, BmcProblem> {
    let connection = DirectConnection::open(target).await?;
    let listen = SocketAddr::new(connection.wildcard(), 80);
    let media_base = base_url_towards(listen, connection.peer).map_err(|why| BmcProblem {
        code: "config".to_owned(),
        sentence: why,
        next_action: String::new(),
    })?;
    let probe_target = connection.probe_target(target, &media_base, now);
    let card = card(&connection.bmc, &probe_target, &connection.recorder).await;
    let capture = capture.then(|| connection.recorder.capture(uuid::Uuid::new_v4().as_u64_pair().0));
    connection.close().await;
    Ok(ProbeResult { card: card?, capture, met: None })
}
