//! What the settings point at: secrets, certificates, users and rules, read once before anything starts, so that a missing file is
//! a message at start and not a failed job at night.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::SecretString;

use crate::auth::JwtKey;
use secrets::{MasterKey, SecretSource};

use super::Settings;
use super::definition::AnySetting;
use super::error::{ConfigErrors, Origin, Problem};
use super::images::read_rules;
use super::table;

/// No file of certificates is longer.
const MAX_CERTIFICATES_BYTES: u64 = 4 << 20;

impl Settings {
    /// Reads every secret and certificate that a setting refers to and throws them away again.
    ///
    /// # Errors
    /// Every one that is missing or cannot be used.
    pub fn check_references(
        &self,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(), ConfigErrors> {
        let secrets: [(&dyn AnySetting, &Option<SecretSource>, Judge); 4] = [
            (&table::JWT_SECRET, &self.jwt_secret, |secret| {
                JwtKey::hs256(secret).err().map(|e| e.to_string())
            }),
            (&table::WEBHOOK_SECRET, &self.webhook_secret, |_| None),
            (&table::WEBHOOK_SECRET_OLD, &self.webhook_secret_old, |_| None),
            (&table::MASTER_KEY, &self.master_key, |secret| {
                MasterKey::from_hex(secret).err().map(|error| error.to_string())
            }),
        ];
        let certificates = [
            (&table::CONTROLLER_CA_FILE, &self.controller_ca_file),
            (&table::REDFISH_CA_FILE, &self.redfish_ca_file),
        ];
        let mut problems = Vec::new();
        for (setting, source, judge) in secrets {
            let Some(source) = source else { continue };
            let problem = match source.load(environment) {
                Ok(secret) => judge(&secret),
                Err(error) => Some(error.to_string()),
            };
            problems.extend(problem.map(|message| self.problem(setting, message)));
        }
        for (setting, path) in certificates {
            let Some(path) = path else { continue };
            let problem = certificates_in(path).err();
            problems.extend(problem.map(|message| self.problem(setting, message)));
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
        if problems.is_empty() { Ok(()) } else { Err(ConfigErrors(problems)) }
    }

    fn problem(&self, setting: &dyn AnySetting, message: String) -> Problem {
        let name = setting.definition().name;
        let origin = self
            .show()
            .iter()
            .find(|shown| shown.name == name)
            .map_or(Origin::Default, |shown| shown.origin.clone());
        Problem::Together { origin, message: format!("{name}: {message}") }
    }
}

/// Why a secret that could be read is still no use.
type Judge = fn(&SecretString) -> Option<String>;

/// Only whether it can be read: a line in it that is none keeps its user out and nobody else.
fn users_in(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("cannot read {}: {error}; name a file made by `htpasswd -B`", path.display())
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{} is not a file; name one made by `htpasswd -B`", path.display()));
    }
    File::open(path).map(drop).map_err(failed)
}

fn certificates_in(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("cannot read {}: {error}; name a file of PEM certificates", path.display())
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_CERTIFICATES_BYTES {
        return Err(format!(
            "{} is not a file of at most 4 MiB; name a file of PEM certificates",
            path.display()
        ));
    }
    let mut pem = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_CERTIFICATES_BYTES).read_to_end(&mut pem).map_err(failed)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(()),
        Ok(_) => Err(format!("{} holds no PEM certificate; put one or more there", path.display())),
        Err(error) => {
            Err(format!("{} is not PEM ({error}); put one or more certificates there", path.display()))
        }
    }
}
