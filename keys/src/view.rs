//! The view of keys that operators receive: names, ids and times, and no value.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Keys, REPORT_OVERLAP, RotateError, Source};
use access::tls::Certificates;
use model::Time;
use secrets::{KeyRing, KeyVersion};

/// The name of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretName {
    /// Seals what is stored.
    Master,
    /// Signs issued tokens, and makes the seeds from which the tokens of new jobs are derived.
    Signing,
    /// The shared secret of installation reports.
    Report,
    /// The certificate of the TLS listeners, issued by the own authority.
    Certificate,
}

impl SecretName {
    /// Every name.
    pub const ALL: [Self; 4] = [Self::Master, Self::Signing, Self::Report, Self::Certificate];

    /// The name as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Signing => "signing",
            Self::Report => "report",
            Self::Certificate => "certificate",
        }
    }

    fn purpose(self) -> &'static str {
        match self {
            Self::Master => "seals stored credentials, recipes, inputs and sessions",
            Self::Signing => "signs registry tokens; seeds the tokens of new jobs",
            Self::Report => "shared secret of installation reports (WEBHOOK_SECRET)",
            Self::Certificate => "identifies the TLS listeners, issued by the own authority",
        }
    }
}

impl FromStr for SecretName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or(())
    }
}

/// A former version of a key that is still accepted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FormerKey {
    /// The id of the version.
    pub key_id: String,
    /// When the version was made; null when it is unknown.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub made_at: Option<Time>,
    /// The end of the time in which it is accepted; null: until `shoal secret rotate` has ended.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub accepted_until: Option<Time>,
}

/// A key, without its value.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Secret")]
pub struct SecretView {
    /// The name.
    pub name: SecretName,
    /// What it is for.
    pub purpose: &'static str,
    /// The id of the version in force. It does not reveal the key.
    pub key_id: String,
    /// When the version in force was made; null when it is unknown.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub made_at: Option<Time>,
    /// The file or setting that holds it.
    pub held_in: String,
    /// Former versions that are still accepted.
    pub former: Vec<FormerKey>,
}

/// Where a rotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RotationState {
    /// The new version is in force; records of the former one are sealed again. Repeat the request.
    Sealing,
    /// The new version is in force; the former one is accepted until its end and removed then.
    Overlap,
    /// The former version is no longer accepted.
    Ended,
}

/// The state of a rotation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SecretRotation")]
pub struct RotationView {
    /// The name of the key.
    pub name: SecretName,
    /// Where the rotation is.
    pub state: RotationState,
    /// The id of the version in force.
    pub key_id: String,
    /// The id of the version that is left.
    pub from: String,
    /// How many records this request sealed again.
    pub resealed: u64,
    /// At the end of a rotation of the master key: how many records were counted. None of them names a former version.
    pub checked: Option<u64>,
    /// The end of the time in which the former version is accepted.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub accepted_until: Option<Time>,
    /// What the operator has to do.
    pub next_action: Option<String>,
}

/// The first digits of a fingerprint, as the id of a certificate.
pub(super) fn short(fingerprint: &str) -> &str {
    fingerprint.get(..16).unwrap_or(fingerprint)
}

/// The view of a ring.
fn view(ring: &KeyRing, name: SecretName, held_in: String) -> SecretView {
    let version = ring.in_force();
    let time = |time: Option<jiff::Timestamp>| time.map(Time::from_timestamp);
    let former = |version: KeyVersion| FormerKey {
        key_id: version.id.to_string(),
        made_at: time(version.made),
        accepted_until: time(version.until),
    };
    SecretView {
        name,
        purpose: name.purpose(),
        key_id: version.id.to_string(),
        made_at: time(version.made),
        held_in,
        former: ring.accepted().into_iter().map(former).collect(),
    }
}

impl Keys {
    /// Every key that is in use, without a value.
    ///
    /// # Errors
    /// When the file of the report secret cannot be read.
    pub fn list(&self, certificates: Option<&Certificates>) -> Result<Vec<SecretView>, RotateError> {
        let held_in = match &self.master.source {
            Source::File(path) => path.display().to_string(),
            Source::Setting => "the setting MASTER_KEY".to_owned(),
            Source::Memory => "memory".to_owned(),
        };
        let mut all = vec![
            view(&self.master.ring, SecretName::Master, held_in),
            view(&self.signing, SecretName::Signing, "the database, sealed".to_owned()),
        ];
        if let (Some(file), Some(key_id)) = (self.report_file(), self.report_id()?) {
            let former = self.former_report()?;
            // A rotation made the present secret and gave the former one its time.
            let made_at = former.as_ref().map(|(_, until)| until.minus(REPORT_OVERLAP));
            let former = former.map(|(key_id, until)| FormerKey {
                key_id,
                made_at: None,
                accepted_until: Some(until),
            });
            all.push(SecretView {
                name: SecretName::Report,
                purpose: SecretName::Report.purpose(),
                key_id,
                made_at,
                held_in: file.path.display().to_string(),
                former: former.into_iter().collect(),
            });
        }
        if let Some(state) = certificates.map(Certificates::state) {
            all.push(SecretView {
                name: SecretName::Certificate,
                purpose: SecretName::Certificate.purpose(),
                key_id: short(&state.certificate_sha256).to_owned(),
                made_at: state.since,
                held_in: match state.own_authority {
                    true => "STORAGE_ROOT/tls".to_owned(),
                    false => "the setting TLS_CERT_FILE".to_owned(),
                },
                former: Vec::new(),
            });
        }
        Ok(all)
    }
}
