//! Reports by client certificate: who a certificate names, and for which servers it may report.
//!
//! ```text
//!  handshake   the client proves that it has the key of its certificate; any certificate is taken (`tls::client_auth`)
//!  report      chain to REPORT_CLIENT_CA_FILE, time, usage,
//!              not revoked by REPORT_CLIENT_CRL_FILE (`revocation`) ──> names: subject CN, subject serialNumber, DNS names
//!                name in REPORT_CERTIFICATES ──> the serial numbers that it is mapped to
//!                any other name ───────────────> the serial number that it is equal to
//! ```
//!
//! Invariants: a certificate gives no right but the report for its servers; one that was presented and is not accepted is
//! refused, whatever else the request contains; names are compared byte by byte.
//!
//! Decision D12; docs/operating.md.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::{Serial, error_chain};
use parking_lot::{Mutex, RwLock};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::header::is_name;
use super::revocation::{RevocationFile, RevocationListsError};
use crate::tls::{PresentedCertificate, der};

/// The maximum of authorities in `REPORT_CLIENT_CA_FILE`.
const MAX_AUTHORITIES: usize = 64;
/// The interval of checks for a changed file of revocation lists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One entry `NAME=SERIAL` of `REPORT_CERTIFICATES`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateEntry {
    name: String,
    server: Serial,
}

/// A text is no entry of `REPORT_CERTIFICATES`.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "an entry is NAME=SERIAL, such as installer.example=SN-1: a name in a certificate and the serial number of a server"
)]
pub struct InvalidCertificateEntry;

impl FromStr for CertificateEntry {
    type Err = InvalidCertificateEntry;

    fn from_str(text: &str) -> Result<Self, InvalidCertificateEntry> {
        let (name, server) = text.rsplit_once('=').ok_or(InvalidCertificateEntry)?;
        let name = name.trim();
        let server = server.trim().parse().map_err(|_| InvalidCertificateEntry)?;
        is_name(name).then(|| Self { name: name.to_owned(), server }).ok_or(InvalidCertificateEntry)
    }
}

/// `REPORT_CLIENT_CA_FILE` cannot be used.
#[derive(Debug, Error)]
pub enum ReportAuthoritiesError {
    /// The text contains no certificate, or too many.
    #[error("it contains not 1 to {MAX_AUTHORITIES} PEM certificates")]
    Certificates,
    /// The TLS library refuses an authority.
    #[error("an authority in it cannot be used")]
    Authority(#[source] rustls::Error),
    /// The TLS library refuses the authorities together.
    #[error("the authorities in it cannot be used")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// The revocation lists cannot be used.
    #[error(transparent)]
    Revocation(#[from] RevocationListsError),
}

/// The reason why a client certificate is refused.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CertificateRefused {
    /// No authority of the settings issued the certificate, or not for clients.
    #[error("no authority of REPORT_CLIENT_CA_FILE issued it for clients")]
    Untrusted,
    /// The authority of the certificate has revoked it.
    #[error("its authority has revoked it")]
    Revoked,
    /// No revocation list is of the authority of the certificate.
    #[error("REPORT_CLIENT_CRL_FILE has no list of its authority; add one, also one that revokes nothing")]
    NoList,
    /// The revocation list of the authority of the certificate has expired.
    #[error(
        "the revocation list of its authority has expired; put the current one into REPORT_CLIENT_CRL_FILE"
    )]
    ListExpired,
    /// The certificate has expired.
    #[error("it has expired")]
    Expired,
    /// The certificate is not valid yet.
    #[error("it is not valid yet")]
    NotYet,
    /// The certificate names no server, or another one.
    #[error("it does not name this server")]
    OtherServer,
}

/// Decides which client certificate may report for which server.
pub struct ReportCertificates {
    roots: Arc<RootCertStore>,
    verifier: RwLock<Arc<dyn ClientCertVerifier>>,
    revocation: Option<Mutex<RevocationFile>>,
    servers: Vec<CertificateEntry>,
}

/// Revocation lists that were read and are not in force yet.
pub struct ReadLists(Option<Arc<dyn ClientCertVerifier>>);

impl fmt::Debug for ReportCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportCertificates").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl ReportCertificates {
    /// Certificates that these authorities issued.
    ///
    /// # Errors
    /// [`ReportAuthoritiesError`] when the PEM text contains no usable authority.
    pub fn new(authorities: &[u8], servers: Vec<CertificateEntry>) -> Result<Self, ReportAuthoritiesError> {
        let found: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(authorities)
            .take(MAX_AUTHORITIES + 1)
            .collect::<Result<_, _>>()
            .map_err(|_| ReportAuthoritiesError::Certificates)?;
        if found.is_empty() || found.len() > MAX_AUTHORITIES {
            return Err(ReportAuthoritiesError::Certificates);
        }
        let mut roots = RootCertStore::empty();
        for authority in found {
            roots.add(authority).map_err(ReportAuthoritiesError::Authority)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider).build();
        let verifier = RwLock::new(verifier.map_err(ReportAuthoritiesError::Verifier)?);
        Ok(Self { roots, verifier, revocation: None, servers })
    }

    /// Adds the revocation lists of a file. Blocks on the disk.
    ///
    /// # Errors
    /// [`ReportAuthoritiesError::Revocation`] when the file has no usable list.
    pub fn with_revocation_lists(mut self, path: PathBuf) -> Result<Self, ReportAuthoritiesError> {
        self.revocation = Some(Mutex::new(RevocationFile::new(path)));
        let read = self.read_lists()?;
        self.apply(read);
        Ok(self)
    }

    /// Reads the file of the revocation lists again, without effect before [`Self::apply`]. Blocks on the disk.
    ///
    /// # Errors
    /// When the file has no usable list.
    pub fn read_lists(&self) -> Result<ReadLists, RevocationListsError> {
        let Some(file) = &self.revocation else { return Ok(ReadLists(None)) };
        let mut file = file.lock();
        let lists = file.read()?;
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider)
            .with_crls(lists)
            .enforce_revocation_expiration()
            .build()
            .map_err(|source| RevocationListsError::Verifier { path: file.path().to_owned(), source })?;
        Ok(ReadLists(Some(verifier)))
    }

    /// Puts lists in force.
    pub fn apply(&self, read: ReadLists) {
        if let Some(verifier) = read.0 {
            *self.verifier.write() = verifier;
        }
    }

    /// Follows the file of the revocation lists until `stop`. A file that cannot be used is logged and changes nothing.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        if self.revocation.is_none() {
            return;
        }
        while stop.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_some() {
            let certificates = Arc::clone(&self);
            // The disk may be slow. A check that panicked is repeated.
            let _panicked = tokio::task::spawn_blocking(move || certificates.check_file()).await;
        }
    }

    fn check_file(&self) {
        let Some(file) = &self.revocation else { return };
        if !file.lock().has_settled() {
            return;
        }
        match self.read_lists() {
            Ok(read) => {
                self.apply(read);
                tracing::info!("the revocation lists of REPORT_CLIENT_CRL_FILE are in force");
            }
            Err(error) => tracing::error!(
                error = %error_chain(&error),
                "REPORT_CLIENT_CRL_FILE cannot be used; the former revocation lists stay in force until they expire"
            ),
        }
    }

    /// The names of the authorities, by which clients select a certificate.
    pub fn hints(&self) -> Vec<DistinguishedName> {
        self.verifier.read().root_hint_subjects().to_vec()
    }

    /// Returns the name by which a certificate may report for a server.
    ///
    /// # Errors
    /// [`CertificateRefused`] when the certificate is not valid now, or not for this server.
    pub fn reporter(
        &self,
        presented: &PresentedCertificate,
        server: &Serial,
        now: Timestamp,
    ) -> Result<String, CertificateRefused> {
        use rustls::CertificateError as Wrong;
        let (own, intermediates) = presented.0.split_first().ok_or(CertificateRefused::Untrusted)?;
        // A time before 1970 is before every certificate.
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verifier = Arc::clone(&self.verifier.read());
        verifier.verify_client_cert(own, intermediates, time).map_err(|error| match error {
            rustls::Error::InvalidCertificate(Wrong::Revoked) => CertificateRefused::Revoked,
            rustls::Error::InvalidCertificate(Wrong::UnknownRevocationStatus) => CertificateRefused::NoList,
            rustls::Error::InvalidCertificate(
                Wrong::ExpiredRevocationList | Wrong::ExpiredRevocationListContext { .. },
            ) => CertificateRefused::ListExpired,
            rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
                CertificateRefused::Expired
            }
            rustls::Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
                CertificateRefused::NotYet
            }
            _ => CertificateRefused::Untrusted,
        })?;
        let names = der::names(own).ok_or(CertificateRefused::OtherServer)?;
        let for_server = |name: &String| is_name(name) && self.may_report(name, server);
        names.into_iter().find(for_server).ok_or(CertificateRefused::OtherServer)
    }

    fn may_report(&self, name: &str, server: &Serial) -> bool {
        let mut mapped = self.servers.iter().filter(|entry| entry.name == name).peekable();
        match mapped.peek() {
            Some(_) => mapped.any(|entry| entry.server == *server),
            None => name == server.as_str(),
        }
    }
}
