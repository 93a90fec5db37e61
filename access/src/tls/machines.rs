//! The trust of machines in the certificate of the listeners. The maintenance OS trusts only what `job.json` gives it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use model::Time;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;

use super::error::TlsError;
use super::files;

/// The certificates that machines trust which reach the listeners by https.
#[derive(Clone, Debug, Default)]
pub struct MachineTrust {
    /// The host by which machines reach the controller, if the settings have one.
    pub host: Option<String>,
    /// The file `CONTROLLER_CA_FILE`. Without it, machines trust the last certificate of the given chain.
    pub authorities: Option<PathBuf>,
}

impl MachineTrust {
    /// The certificates that machines are given, in PEM; `None` for the last one of the chain.
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, TlsError> {
        self.authorities.as_deref().map(|path: &Path| files::read(path).map(|pem| pem.to_vec())).transpose()
    }

    /// Returns why machines that are given these authorities cannot verify this chain. A certificate without the host of the
    /// settings is not judged: a proxy in front shows another one. Dates are not judged here.
    pub(super) fn refusal(
        &self,
        chain: &[CertificateDer<'static>],
        authorities: Option<&[u8]>,
        (since, until): (Option<Time>, Option<Time>),
        provider: &CryptoProvider,
    ) -> Option<String> {
        let (leaf, intermediates) = chain.split_first()?;
        let parsed = ParsedCertificate::try_from(leaf).ok()?;
        let named = |host: &String| {
            ServerName::try_from(host.as_str()).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
        };
        if !self.host.as_ref().is_none_or(named) {
            return None;
        }
        let given = match authorities {
            Some(pem) => files::certificates(pem).unwrap_or_default(),
            None => chain.last().cloned().into_iter().collect(),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(given);
        let at = within(since, until);
        let algorithms = provider.signature_verification_algorithms.all;
        let verified =
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, at, algorithms);
        verified.err().map(|why| {
            let trusted = match authorities {
                Some(_) => "CONTROLLER_CA_FILE",
                None => "the last certificate of TLS_CERT_FILE",
            };
            format!(
                "machines cannot verify the certificate in TLS_CERT_FILE, so that no installation succeeds: they trust {trusted} ({why}); \
                 add the intermediates and the root to TLS_CERT_FILE, or set CONTROLLER_CA_FILE to the authority that signed it"
            )
        })
    }
}

/// A time at which the certificate is valid: its end is reported elsewhere.
fn within(since: Option<Time>, until: Option<Time>) -> UnixTime {
    let second = |time: Time| u64::try_from(time.unix_seconds()).unwrap_or_default();
    let (since, until) = (since.map_or(0, second), until.map_or(u64::MAX, second));
    let now = UnixTime::now().as_secs();
    UnixTime::since_unix_epoch(Duration::from_secs(now.max(since).min(until)))
}
