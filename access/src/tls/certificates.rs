//! The certificate in force: read from a given pair or issued by the own authority, and replaced while connections go on.
//!
//! ```text
//!  given pair   files changed, unchanged for one check ──> read ──+── usable: in force
//!                                                                 `── not: the former one stays; log, readiness
//!  own pair     an address that it does not name, its end is near, or the authority did not sign it ──> issued again, stored, in force
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{Clock, Time, error_chain};
use parking_lot::{Mutex, RwLock};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DistinguishedName, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::authority::Authority;
use super::client_auth::AskForCertificate;
use super::der;
use super::error::TlsError;
use super::files::{self, Stamp};
use super::machines::MachineTrust;

/// The interval of checks for changed files and for the end of the own certificate.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time before the end of the own certificate at which it is issued again.
const RENEW_BEFORE: Duration = Duration::from_secs(60 * 86_400);
/// The interval of attempts to issue the own certificate again.
const RENEW_INTERVAL: Duration = Duration::from_secs(3600);
/// The time before the end of a certificate from which on readiness mentions it.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 86_400);
/// The own certificate and its key, in the directory of the own authority.
const OWN_FILE: &str = "server.pem";
/// The maximum of names to which connections add addresses in the own certificate.
const MAX_NAMES: usize = 128;

/// A certificate and its key that the operator gives.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The file of the certificate, `TLS_CERT_FILE`.
    pub certificate: PathBuf,
    /// The file of the key, `TLS_KEY_FILE`.
    pub key: PathBuf,
}

/// The source of the certificate of the listeners.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The given pair; without it the own authority issues one.
    pub given: Option<CertificateFiles>,
    /// The directory of the own authority.
    pub directory: PathBuf,
    /// The names and addresses of the own certificate.
    pub names: Vec<String>,
    /// The certificates that machines trust which reach these listeners by https; `None` when no machine does.
    pub machines: Option<MachineTrust>,
}

/// The state of the certificate of the listeners.
#[derive(Clone, Debug)]
pub struct TlsState {
    /// Whether the own authority issued the certificate.
    pub own_authority: bool,
    /// SHA-256 of the certificate in force, in hex.
    pub certificate_sha256: String,
    /// SHA-256 of the certificate that clients are given to trust, in hex.
    pub authority_sha256: String,
    /// The begin of the validity of the certificate in force.
    pub since: Option<Time>,
    /// The end of the certificate in force.
    pub until: Option<Time>,
    /// The reason why a newer certificate is not in force, or the problem of the certificate in force.
    pub trouble: Option<String>,
    /// The certificate ends soon.
    pub ends_soon: bool,
}

/// The certificate of the listeners.
pub struct Certificates {
    source: Source,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<Current>>,
    /// The reason why the last attempt to replace the certificate failed.
    trouble: Mutex<Option<String>>,
    clock: Arc<dyn Clock>,
}

enum Source {
    Files(GivenPair, Box<Mutex<Watched>>),
    Own(Box<Own>),
}

/// The given pair, and what machines trust.
struct GivenPair {
    pair: CertificateFiles,
    machines: Option<MachineTrust>,
    /// The certificates that machines are given since the start, in PEM; `None` for the last certificate of the chain.
    authorities: Option<Vec<u8>>,
}

/// The own authority, and the names for which it issues the certificate.
struct Own {
    authority: Mutex<Authority>,
    /// The directory of the authority.
    directory: PathBuf,
    /// The file of the certificate and its key.
    file: PathBuf,
    names: Mutex<BTreeSet<String>>,
    /// The time at which the certificate was last issued, or could not be.
    tried: Mutex<Option<Time>>,
}

/// The stamps of the given files.
#[derive(Default)]
struct Watched {
    read: (Stamp, Stamp),
    seen: (Stamp, Stamp),
}

struct Current {
    key: Arc<CertifiedKey>,
    /// The certificate that clients are given to trust, in PEM.
    authority: String,
    since: Option<Time>,
    until: Option<Time>,
    /// The reason why machines cannot verify the certificate; `None` when they can.
    unverifiable: Option<String>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("state", &self.state()).finish()
    }
}

impl Certificates {
    /// Reads or makes the certificate. May block on the disk.
    ///
    /// # Errors
    /// When a file cannot be read, written or used.
    pub fn open(options: TlsOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(default_provider());
        let (source, current) = match options.given {
            Some(pair) => {
                let watched = Watched { read: stamps(&pair), seen: stamps(&pair) };
                let given = GivenPair::new(pair, options.machines)?;
                let current = given.read(&provider)?;
                (Source::Files(given, Box::new(Mutex::new(watched))), current)
            }
            None => {
                let now = clock.wall();
                let authority = Authority::load_or_create(&options.directory, now)?;
                let file = options.directory.join(OWN_FILE);
                let names: BTreeSet<String> = options.names.into_iter().filter(|name| usable(name)).collect();
                let stored = files::read_if_present(&file)?;
                let stored = stored.and_then(|pem| of_pem(&pem, &file, &authority.pem, &provider).ok());
                let current = match stored {
                    Some(current)
                        if current.serves(&names, now) && current.verify(now, &provider).is_ok() =>
                    {
                        current
                    }
                    _ => issue(&authority, &file, &names, now, &provider)?,
                };
                let own = Own {
                    authority: Mutex::new(authority),
                    directory: options.directory,
                    file,
                    names: Mutex::new(names),
                    tried: Mutex::default(),
                };
                (Source::Own(Box::new(own)), current)
            }
        };
        let current = RwLock::new(Arc::new(current));
        Ok(Arc::new(Self { source, provider, current, trouble: Mutex::default(), clock }))
    }

    /// The TLS configuration of the listeners: TLS 1.2 and 1.3, HTTP/1.1. With `authorities` clients are asked for a certificate of
    /// them.
    ///
    /// # Errors
    /// When the TLS library refuses it.
    pub fn server_config(
        self: &Arc<Self>,
        authorities: Option<Vec<DistinguishedName>>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(hints) => {
                let provider = Arc::clone(&self.provider);
                builder.with_client_cert_verifier(Arc::new(AskForCertificate { provider, hints }))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver(Arc::clone(self))));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The certificates that clients trust to reach these listeners, in PEM: the own authority, or the last certificate of
    /// `TLS_CERT_FILE`.
    pub fn authority(&self) -> String {
        self.current.read().authority.clone()
    }

    /// The certificates that machines trust, in PEM: the given ones, and the own authority if it issues the certificate of the
    /// listeners. Without given ones it is [`Certificates::authority`].
    pub fn trusted_with(&self, given: Option<&str>) -> String {
        match (given, &self.source) {
            (None, _) => self.authority(),
            (Some(given), Source::Files(..)) => given.to_owned(),
            (Some(given), Source::Own(_)) => format!("{}\n{}", given.trim_end(), self.authority()),
        }
    }

    /// The present state of the certificate of the listeners.
    pub fn state(&self) -> TlsState {
        let current = Arc::clone(&self.current.read());
        let now = self.clock.wall();
        let own_authority = matches!(self.source, Source::Own(_));
        let dates = current.wrong_dates(own_authority, now);
        let trouble = self.trouble.lock().clone().or(dates).or_else(|| current.unverifiable.clone());
        TlsState {
            own_authority,
            certificate_sha256: current.key.cert.first().map(|der| fingerprint(der)).unwrap_or_default(),
            authority_sha256: files::certificates(current.authority.as_bytes())
                .and_then(|chain| chain.first().map(|der| fingerprint(der)))
                .unwrap_or_default(),
            since: current.since,
            until: current.until,
            ends_soon: current.until.is_some_and(|until| until <= now.plus(WARN_BEFORE)),
            trouble,
        }
    }

    /// Reads the given pair again. An own certificate is not changed.
    ///
    /// # Errors
    /// When the pair cannot be used; then the former certificate stays in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        let Source::Files(given, watched) = &self.source else { return Ok(()) };
        let now = stamps(&given.pair);
        *watched.lock() = Watched { read: now, seen: now };
        self.apply(given.read(&self.provider)).inspect_err(|error| {
            tracing::error!(
                error = %error_chain(error),
                "the new certificate cannot be used; the former one stays in force. Correct TLS_CERT_FILE and TLS_KEY_FILE"
            );
        })
    }

    /// Makes sure that the own certificate names this address of the machine. May block on the disk.
    pub fn name_address(&self, address: IpAddr) {
        let Source::Own(own) = &self.source else { return };
        {
            let mut names = own.names.lock();
            if self.names_address(address) || names.len() >= MAX_NAMES {
                return;
            }
            names.insert(address.to_canonical().to_string());
        }
        self.issue_again(own);
    }

    /// Issues the own certificate again, with a new key pair. Connections that exist are not changed. May block on the disk.
    ///
    /// # Errors
    /// When it cannot be issued; then the former certificate stays in force.
    pub fn renew(&self) -> Result<(), TlsError> {
        let Source::Own(own) = &self.source else { return Ok(()) };
        let names = own.names.lock();
        let now = self.clock.wall();
        *own.tried.lock() = Some(now);
        self.apply(own.issue(&names, now, &self.provider))
    }

    fn issue_again(&self, own: &Own) {
        let names = own.names.lock();
        *own.tried.lock() = Some(self.clock.wall());
        let issued = own.issue(&names, self.clock.wall(), &self.provider);
        match self.apply(issued) {
            Ok(()) => tracing::info!(
                certificate_sha256 = self.state().certificate_sha256,
                "a certificate of the listeners was issued"
            ),
            Err(error) => tracing::error!(
                error = %error_chain(&error),
                "no certificate of the listeners could be issued; the former one stays in force"
            ),
        }
    }

    /// Whether no certificate has to be issued before a handshake at this address.
    pub fn names_address(&self, address: IpAddr) -> bool {
        let current = Arc::clone(&self.current.read());
        matches!(self.source, Source::Files(..)) || current.covers(&address.to_canonical().to_string())
    }

    /// Follows changed files, and the end of the own certificate, until `stop`.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        while tokio::time::timeout(CHECK_INTERVAL, stop.cancelled()).await.is_err() {
            if self.is_due() {
                let this = Arc::clone(&self);
                // A panic of the check is logged like any other; the certificate in force stays.
                let _ = tokio::task::spawn_blocking(move || this.follow()).await;
            }
        }
    }

    /// Whether the files of the given pair have changed and rest, or the own certificate is not valid now or ends soon.
    fn is_due(&self) -> bool {
        match &self.source {
            Source::Files(given, watched) => {
                let (mut watched, now) = (watched.lock(), stamps(&given.pair));
                // Certificate and key are two files: a pair that still changes is read at a later check.
                let rests = std::mem::replace(&mut watched.seen, now) == now;
                rests && now != watched.read
            }
            Source::Own(own) => {
                let now = self.clock.wall();
                // An attempt of a clock that was ahead does not delay the next one.
                let tried = *own.tried.lock();
                let rests = tried.is_none_or(|tried| tried > now || tried.plus(RENEW_INTERVAL) <= now);
                rests && !self.current.read().lasts(now)
            }
        }
    }

    fn follow(&self) {
        match &self.source {
            Source::Files(..) => {
                if self.reload().is_ok() {
                    tracing::info!(
                        certificate_sha256 = self.state().certificate_sha256,
                        "the certificate of the listeners was replaced"
                    );
                }
            }
            Source::Own(own) => self.issue_again(own),
        }
    }

    fn apply(&self, made: Result<Current, TlsError>) -> Result<(), TlsError> {
        match made {
            Ok(current) => {
                *self.current.write() = Arc::new(current);
                *self.trouble.lock() = None;
                Ok(())
            }
            Err(error) => {
                let why = format!("the former certificate stays in force: {}", error_chain(&error));
                *self.trouble.lock() = Some(why);
                Err(error)
            }
        }
    }
}

impl Own {
    /// Issues a certificate for these names. An authority that is not valid now signs itself again before.
    fn issue(
        &self,
        names: &BTreeSet<String>,
        now: Time,
        provider: &CryptoProvider,
    ) -> Result<Current, TlsError> {
        let mut authority = self.authority.lock();
        if !authority.is_valid_at(now) {
            *authority = Authority::load_or_create(&self.directory, now)?;
        }
        issue(&authority, &self.file, names, now, provider)
    }
}

impl GivenPair {
    fn new(pair: CertificateFiles, machines: Option<MachineTrust>) -> Result<Self, TlsError> {
        let authorities = machines.as_ref().map(MachineTrust::read).transpose()?.flatten();
        Ok(Self { pair, machines, authorities })
    }

    /// Reads the given pair, and judges whether machines can verify its certificate.
    fn read(&self, provider: &CryptoProvider) -> Result<Current, TlsError> {
        let mut current = read_given(&self.pair, provider)?;
        current.unverifiable = self.machines.as_ref().and_then(|machines| {
            let validity = (current.since, current.until);
            machines.refusal(&current.key.cert, self.authorities.as_deref(), validity, provider)
        });
        Ok(current)
    }
}

/// Gives each handshake the certificate in force.
#[derive(Debug)]
struct Resolver(Arc<Certificates>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.current.read().key))
    }
}

impl Current {
    /// Whether the certificate is for a name or address.
    fn covers(&self, name: &str) -> bool {
        let Some(certificate) = self.key.cert.first() else { return false };
        let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(name))
        else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }

    /// Whether the certificate is valid now and for a while.
    fn lasts(&self, now: Time) -> bool {
        let ends = self.until.is_some_and(|until| until <= now.plus(RENEW_BEFORE));
        !ends && !self.begins_after(now)
    }

    /// Whether the certificate is not valid yet: it was made by a clock that was ahead.
    fn begins_after(&self, now: Time) -> bool {
        self.since.is_some_and(|since| since > now)
    }

    /// The problem of the dates of the certificate at the time `now`, in words.
    fn wrong_dates(&self, own_authority: bool, now: Time) -> Option<String> {
        let what = match (self.since, self.until) {
            (Some(since), _) if since > now => format!("the certificate is not valid before {since}"),
            (_, Some(until)) if until <= now => format!("the certificate ended at {until}"),
            _ => return None,
        };
        let next = match own_authority {
            true => {
                "the controller issues it again within an hour; start it again to have that at once, and check its clock"
            }
            false => {
                "replace the files of TLS_CERT_FILE and TLS_KEY_FILE, or correct the clock of the controller"
            }
        };
        Some(format!("{what}; clients that check it refuse this controller: {next}"))
    }

    /// Verifies the certificate as clients do that are given its authority. Its names are not judged.
    fn verify(&self, now: Time, provider: &CryptoProvider) -> Result<(), rustls::Error> {
        let Some((leaf, intermediates)) = self.key.cert.split_first() else {
            return Err(CertificateError::BadEncoding.into());
        };
        let parsed = ParsedCertificate::try_from(leaf)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(files::certificates(self.authority.as_bytes()).unwrap_or_default());
        let seconds = u64::try_from(now.unix_seconds()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let algorithms = provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms)
    }

    /// Whether dates and names of a stored certificate let it stay in force.
    fn serves(&self, names: &BTreeSet<String>, now: Time) -> bool {
        self.lasts(now) && names.iter().all(|name| self.covers(name))
    }
}

/// The certificates that clients of a controller with these options trust, in PEM, without a change on the disk. `None` when
/// there is no authority yet.
///
/// # Errors
/// When a file cannot be read or used.
pub fn authority_of(options: &TlsOptions) -> Result<Option<String>, TlsError> {
    match &options.given {
        Some(pair) => read_given(pair, &Arc::new(default_provider())).map(|current| Some(current.authority)),
        None => {
            let file = Authority::certificate_file(&options.directory);
            let stored = files::read_if_present(&file)?;
            Ok(stored.map(|pem| String::from_utf8_lossy(&pem).into_owned()))
        }
    }
}

/// The end of the certificate that a controller with these options shows, without a change on the disk. `None` when there is none
/// yet, or it does not say.
///
/// # Errors
/// When a file cannot be read or used.
pub fn certificate_end(options: &TlsOptions) -> Result<Option<Time>, TlsError> {
    if let Some(pair) = &options.given {
        return read_given(pair, &Arc::new(default_provider())).map(|current| current.until);
    }
    let stored = files::read_if_present(&options.directory.join(OWN_FILE))?;
    let chain = stored.and_then(|pem| files::certificates(&pem));
    Ok(chain.and_then(|chain| der::validity(chain.first()?)).map(|(_, until)| until))
}

/// The reason why machines of a controller with these options cannot verify the given certificate; `None` when they can.
///
/// # Errors
/// When a file cannot be read or used.
pub fn unverifiable(options: &TlsOptions) -> Result<Option<String>, TlsError> {
    let Some(pair) = options.given.clone() else { return Ok(None) };
    let given = GivenPair::new(pair, options.machines.clone())?;
    Ok(given.read(&default_provider())?.unverifiable)
}

fn issue(
    authority: &Authority,
    file: &Path,
    names: &BTreeSet<String>,
    now: Time,
    provider: &CryptoProvider,
) -> Result<Current, TlsError> {
    let names: Vec<String> = names.iter().cloned().collect();
    let pem = authority.issue(&names, now)?;
    let current = of_pem(pem.as_bytes(), file, &authority.pem, provider)?;
    // The files of an authority are two, and each can be replaced without the other.
    current.verify(now, provider).map_err(|source| authority.not_a_pair(source))?;
    files::write(file, pem.as_bytes())?;
    Ok(current)
}

/// The certificate and key of one file, issued by this authority.
fn of_pem(pem: &[u8], file: &Path, authority: &str, provider: &CryptoProvider) -> Result<Current, TlsError> {
    current((pem, file), (pem, file), Some(authority), provider)
}

fn read_given(pair: &CertificateFiles, provider: &CryptoProvider) -> Result<Current, TlsError> {
    let (certificate, key) = (files::read(&pair.certificate)?, files::read(&pair.key)?);
    current((&certificate, &pair.certificate), (&key, &pair.key), None, provider)
}

fn current(
    (certificate, certificate_file): (&[u8], &Path),
    (key, key_file): (&[u8], &Path),
    authority: Option<&str>,
    provider: &CryptoProvider,
) -> Result<Current, TlsError> {
    let chain = files::certificates(certificate)
        .ok_or_else(|| TlsError::NoCertificate { path: certificate_file.to_owned() })?;
    let key = files::private_key(key).ok_or_else(|| TlsError::NoKey { path: key_file.to_owned() })?;
    let validity = chain.first().and_then(|der| der::validity(der));
    let (since, until) = (validity.map(|(since, _)| since), validity.map(|(_, until)| until));
    let authority = match authority {
        Some(pem) => pem.to_owned(),
        None => chain.last().map(|der| certificate_pem(der)).unwrap_or_default(),
    };
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Pair {
        certificate: certificate_file.to_owned(),
        key: key_file.to_owned(),
        source,
    })?;
    Ok(Current { key: Arc::new(key), authority, since, until, unverifiable: None })
}

fn stamps(pair: &CertificateFiles) -> (Stamp, Stamp) {
    (files::stamp(&pair.certificate), files::stamp(&pair.key))
}

/// Whether a certificate can hold this name.
fn usable(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    hex::encode(Sha256::digest(certificate))
}

/// A certificate as PEM.
pub fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
