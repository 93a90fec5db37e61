//! The own certificate authority of a controller: made once, and it issues the certificate of the listeners.
//!
//! ```text
//!  ca.key   ECDSA P-256, mode 0600, never leaves the data directory
//!  ca.pem   the authority, for clients: ten years
//!  server.pem   key and certificate of the listeners: 397 days, issued again before its end and for another name
//! ```
//!
//! ECDSA P-256 with SHA-256, because every client of the last ten years verifies it, a signature costs a tenth of one with RSA,
//! and the TLS library makes no RSA keys. A client that knows RSA only needs a given pair (`TLS_CERT_FILE`). A certificate
//! is valid from a day before it is made: clocks of BMCs and of fresh machines are often behind.
//!
//! The authority signs itself again, with its key and name, when it is not valid now or would end before a certificate that it issues:
//! a controller that was first started with a wrong clock has one that no client accepts. Clients that have the former one verify
//! certificates as before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use model::Time;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::der;
use super::error::TlsError;
use super::files;

const DAY: Duration = Duration::from_secs(86_400);
/// The time from the begin of the validity of a certificate to its issue.
const BACKDATED: Duration = DAY;
/// The validity of the authority in days.
const AUTHORITY_DAYS: u32 = 3650;
/// The validity of a certificate in days: the most that every browser accepts.
const CERTIFICATE_DAYS: u32 = 397;
/// The longest common name (RFC 5280, ub-common-name).
const MAX_COMMON_NAME: usize = 64;

/// The authority of a data directory.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority in PEM.
    pub(super) pem: String,
    /// The file of the certificate.
    file: PathBuf,
    /// The file of the key.
    key_file: PathBuf,
    since: Time,
    until: Time,
}

impl Authority {
    /// The file with the certificate of the authority.
    pub(super) fn certificate_file(directory: &Path) -> PathBuf {
        directory.join("ca.pem")
    }

    /// Reads the authority of a directory, or makes it. The key is on disk before the certificate.
    pub(super) fn load_or_create(directory: &Path, now: Time) -> Result<Self, TlsError> {
        files::create_directory(directory)?;
        let (key_file, file) = (directory.join("ca.key"), Self::certificate_file(directory));
        let (stored_key, stored) = (files::read_if_present(&key_file)?, files::read_if_present(&file)?);
        let key = match (&stored_key, &stored) {
            (Some(pem), _) => {
                let text = str::from_utf8(pem).map_err(|_| TlsError::NoKey { path: key_file.clone() })?;
                KeyPair::from_pem(text).map_err(TlsError::Make)?
            }
            (None, Some(_)) => {
                return Err(TlsError::AuthorityKeyMissing { certificate: file, key: key_file });
            }
            (None, None) => {
                let key = KeyPair::generate().map_err(TlsError::Make)?;
                files::write(&key_file, Zeroizing::new(key.serialize_pem()).as_bytes())?;
                key
            }
        };
        let params = params(&key, now)?;
        let stored = stored.map(|pem| String::from_utf8_lossy(&pem).into_owned());
        if let Some(pem) = &stored {
            let (since, until) = validity(pem, &file)?;
            if since <= now && until > later(now, CERTIFICATE_DAYS) {
                let issuer = Issuer::new(params, key);
                return Ok(Self { issuer, pem: pem.clone(), file, key_file, since, until });
            }
            tracing::warn!(%since, %until, "the own authority is not valid now or ends soon; it signs itself again with its key");
        }
        let pem = params.self_signed(&key).map_err(TlsError::Make)?.pem();
        files::write(&file, pem.as_bytes())?;
        let (since, until) = validity(&pem, &file)?;
        Ok(Self { issuer: Issuer::new(params, key), pem, file, key_file, since, until })
    }

    /// The error of a certificate that this authority issued and that its own certificate does not verify.
    pub(super) fn not_a_pair(&self, source: rustls::Error) -> TlsError {
        TlsError::AuthorityPair { certificate: self.file.clone(), key: self.key_file.clone(), source }
    }

    /// Whether the authority can issue a certificate now.
    pub(super) fn is_valid_at(&self, now: Time) -> bool {
        self.since <= now && now < self.until
    }

    /// Issues a certificate for these names. Returns key and certificate in PEM.
    pub(super) fn issue(&self, names: &[String], now: Time) -> Result<Zeroizing<String>, TlsError> {
        let mut params = CertificateParams::new(names.to_vec()).map_err(TlsError::Make)?;
        let common = names.iter().find(|name| name.len() <= MAX_COMMON_NAME);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common.map_or("shoal", String::as_str));
        set_validity(&mut params, now, later(now, CERTIFICATE_DAYS).min(self.until));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(TlsError::Make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(TlsError::Make)?;
        let mut pem = Zeroizing::new(key.serialize_pem());
        pem.push_str(&certificate.pem());
        Ok(pem)
    }
}

/// The parameters of the authority. Its name follows from its key, so that a store with the authorities of several
/// controllers holds no two of one name.
fn params(key: &KeyPair, now: Time) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(TlsError::Make)?;
    let print = hex::encode(Sha256::digest(key.public_key_raw()));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Shoal CA {}", &print[..8]));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, later(now, AUTHORITY_DAYS));
    Ok(params)
}

/// The first and the last time at which the authority is valid.
fn validity(pem: &str, file: &Path) -> Result<(Time, Time), TlsError> {
    let chain = files::certificates(pem.as_bytes());
    let found = chain.as_ref().and_then(|chain| der::validity(chain.first()?));
    found.ok_or_else(|| TlsError::NoCertificate { path: file.to_owned() })
}

fn later(now: Time, days: u32) -> Time {
    now.plus(DAY * days)
}

fn set_validity(params: &mut CertificateParams, now: Time, until: Time) {
    let seconds = |time: Time| Duration::from_secs(u64::try_from(time.unix_seconds()).unwrap_or_default());
    // The type of these dates is of a crate that only the certificate library uses.
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + seconds(now.minus(BACKDATED));
    params.not_after = epoch + seconds(until);
}
