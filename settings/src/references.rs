//! Checks of the files and variables to which settings refer: secrets, certificates, users and rules. They are read once at
//! the start, so that a missing file is an error of the start and not a failed job hours later.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use nats_carrier::NatsCredentials;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use access::auth::{JwtKeyError, check_key_set, check_public_keys, check_secret, lists_in};
use model::error_chain;
use secrets::{MasterKey, SecretSource};

use super::Settings;
use super::definition::AnySetting;
use super::error::{ConfigErrors, Origin, Problem};
use super::images::read_rules;
use super::table;
use super::values::KeySetLocation;

/// The maximum size of a file of certificates.
const MAX_CERTIFICATES_BYTES: u64 = 4 << 20;
/// The maximum size of a file of public keys.
const MAX_KEYS_BYTES: u64 = 1 << 20;

impl Settings {
    /// Reads every secret, certificate and file to which a setting refers and discards the content.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every reference that is missing or cannot be used.
    pub fn check_references(
        &self,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(), ConfigErrors> {
        let secrets: [(&dyn AnySetting, &Option<SecretSource>, SecretCheck); 5] = [
            (&table::JWT_SECRET, &self.jwt_secret, |secret| {
                check_secret(secret).err().map(|error| error.to_string())
            }),
            (&table::WEBHOOK_SECRET, &self.webhook_secret, |_| None),
            (&table::WEBHOOK_SECRET_OLD, &self.webhook_secret_old, |_| None),
            (&table::MASTER_KEY, &self.master_key, |secret| {
                MasterKey::from_hex(secret).err().map(|error| error.to_string())
            }),
            (&table::BACKUP_REGISTRY_PASSWORD, &self.backup_registry_password, |_| None),
        ];
        let certificates = [
            (&table::CONTROLLER_CA_FILE, &self.controller_ca_file),
            (&table::JWT_CA_FILE, &self.jwt_ca_file),
            (&table::REDFISH_CA_FILE, &self.redfish_ca_file),
            (&table::REPORT_CLIENT_CA_FILE, &self.report_client_ca_file),
            (&table::BACKUP_CA_FILE, &self.backup_ca_file),
        ];
        let mut problems = Vec::new();
        for (setting, source, check) in secrets {
            let Some(source) = source else { continue };
            let problem = match source.load(environment) {
                Ok(secret) => check(&secret),
                Err(error) => Some(error.to_string()),
            };
            problems.extend(problem.map(|message| self.problem(setting, message)));
        }
        for (setting, path) in certificates {
            let Some(path) = path else { continue };
            let problem = certificates_in(path).err();
            problems.extend(problem.map(|message| self.problem(setting, message)));
        }
        if let Some(path) = &self.report_client_crl_file
            && let Err(error) = lists_in(path)
        {
            problems.push(self.problem(&table::REPORT_CLIENT_CRL_FILE, error_chain(&error).to_string()));
        }
        if let Some(path) = &self.tls_cert_file
            && let Err(message) = certificates_in(path)
        {
            problems.push(self.problem(&table::TLS_CERT_FILE, message));
        }
        if let Some(path) = &self.tls_key_file
            && let Err(error) = File::open(path)
        {
            let message =
                format!("cannot read {}: {error}; give a file with a PEM private key", path.display());
            problems.push(self.problem(&table::TLS_KEY_FILE, message));
        }
        if let Some(path) = &self.jwt_public_key_file {
            let problem = read_keys(path).and_then(|pem| unusable(path, check_public_keys(&pem)));
            problems.extend(problem.err().map(|message| self.problem(&table::JWT_PUBLIC_KEY_FILE, message)));
        }
        if let Some(KeySetLocation::File(path)) = &self.jwt_jwks {
            let problem = read_keys(path).and_then(|json| unusable(path, check_key_set(&json)));
            problems.extend(problem.err().map(|message| self.problem(&table::JWT_JWKS, message)));
        }
        if let Some(path) = &self.registry_htpasswd_file
            && let Err(message) = users_in(path)
        {
            problems.push(self.problem(&table::REGISTRY_HTPASSWD_FILE, message));
        }
        if let Some(path) = &self.registry_access_file
            && let Err(found) = read_rules(path)
        {
            let found = found.into_iter();
            problems.extend(found.map(|message| self.problem(&table::REGISTRY_ACCESS_FILE, message)));
        }
        if let Some(path) = &self.events_credentials_file {
            let plain = self.events.as_ref().is_some_and(|server| !server.is_tls() && !server.is_loopback());
            let problem = match read_credentials(path) {
                Ok(credentials) if plain && credentials.are_sent() => {
                    Some("they would cross the network in the clear; give EVENTS as tls://".to_owned())
                }
                Ok(_) => None,
                Err(message) => Some(message),
            };
            problems.extend(problem.map(|message| self.problem(&table::EVENTS_CREDENTIALS_FILE, message)));
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigErrors(problems)) }
    }

    fn problem(&self, setting: &dyn AnySetting, message: String) -> Problem {
        let name = setting.definition().name;
        let origin = self
            .show()
            .iter()
            .find(|shown| shown.name == name)
            .map_or(Origin::Default, |shown| shown.origin.clone());
        Problem::Conflict { origin, message: format!("{name}: {message}") }
    }
}

/// Returns why a secret that could be read cannot be used.
type SecretCheck = fn(&SecretString) -> Option<String>;

/// Reads the file of `EVENTS_CREDENTIALS_FILE`, or of the same for a worker elsewhere.
///
/// # Errors
/// A message that names the file, when it cannot be read or holds no credentials.
pub fn read_credentials(path: &Path) -> Result<NatsCredentials, String> {
    let text = SecretSource::File(path.to_owned()).load(&|_| None);
    let text = text.map_err(|error| error_chain(&error).to_string())?;
    NatsCredentials::parse(text.expose_secret())
        .map_err(|why| format!("cannot use {}: {why}", path.display()))
}

/// Reads a file of public keys.
///
/// # Errors
/// A message that names the file, when it cannot be read or is too large.
pub fn read_keys(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| {
        format!("cannot read {}: {error}; give a file of public keys", path.display())
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_KEYS_BYTES {
        return Err(format!("{} is not a file of at most 1 MiB; give a file of public keys", path.display()));
    }
    let mut content = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_KEYS_BYTES).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

fn unusable(path: &Path, checked: Result<(), JwtKeyError>) -> Result<(), String> {
    checked.map_err(|error| format!("{} cannot be used: {error}", path.display()))
}

/// Checks that a file of users can be read, and no more. A malformed line denies the login of its user and affects no other user.
fn users_in(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("cannot read {}: {error}; give a file made by `htpasswd -B`", path.display())
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{} is not a file; give a file made by `htpasswd -B`", path.display()));
    }
    File::open(path).map(drop).map_err(failed)
}

fn certificates_in(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("cannot read {}: {error}; give a file of PEM certificates", path.display())
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_CERTIFICATES_BYTES {
        return Err(format!(
            "{} is not a file of at most 4 MiB; give a file of PEM certificates",
            path.display()
        ));
    }
    let mut pem = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_CERTIFICATES_BYTES).read_to_end(&mut pem).map_err(failed)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(()),
        Ok(_) => Err(format!("{} contains no PEM certificate; add one or more", path.display())),
        Err(error) => {
            Err(format!("{} is not PEM ({error}); give a file of PEM certificates", path.display()))
        }
    }
}
