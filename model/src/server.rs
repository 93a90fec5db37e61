//! A registered server: the map from a serial number to a BMC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::gate::GateClosure;
use super::ids::{RunId, Serial};
use super::names::{FailureClass, StepName};
use super::restoration::Restoration;
use super::time::Time;

/// The verification of the certificate of a BMC.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TlsMode {
    /// Every certificate is accepted; its fingerprint is not compared.
    Insecure,
    /// Only the certificate with the registered fingerprint is accepted.
    Pinned,
    /// A chain to one of the public roots or the configured CA is required.
    #[default]
    Verify,
}

impl TlsMode {
    /// The mode's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// A registered server. The password is a credential reference (`sealed:`, `env:`, `file:`) and is never shown.
#[derive(Clone, PartialEq)]
pub struct Server {
    /// The id; a change of the serial number keeps it.
    pub id: Uuid,
    /// The serial number.
    pub serial: Serial,
    /// The BMC's base URL, as given or completed with `https://`.
    pub bmc_address: String,
    /// The BMC's user.
    pub bmc_username: String,
    /// The credential reference of the BMC's password.
    pub bmc_password: String,
    /// The vendor, as the operator named it (docs/seeds.md S000-40).
    pub vendor: Option<String>,
    /// The profile of the BMC; `None` to detect it.
    pub bmc_profile: Option<String>,
    /// The flags of the profile that the operator has set.
    pub quirks: Option<Map<String, Value>>,
    /// The network of the machine, in the form of a recipe's `network`, for recipes that have none.
    pub network: Option<Map<String, Value>>,
    /// The operator's labels.
    pub labels: BTreeMap<String, String>,
    /// The verification of the certificate of the BMC.
    pub tls: TlsMode,
    /// SHA-256 of the BMC's certificate in hex, for [`TlsMode::Pinned`].
    pub tls_fingerprint: Option<String>,
    /// Whether a BMC that shows no serial number may still be used (decision D3a).
    pub allow_unverified_serial: bool,
    /// The base URL from which this BMC fetches media, when it is not the default.
    pub media_base_url: Option<String>,
    /// Grows with every change by an operator.
    pub revision: i64,
    /// When the server was registered.
    pub created_at: Time,
    /// When an operator last changed the server.
    pub updated_at: Time,
    /// When the BMC last responded.
    pub last_seen: Option<Time>,
    /// The last observation of the server; `update` is the update that a run has left to its BMC.
    pub observed: Option<Value>,
    /// The learned behaviour of the BMC, with the firmware version to which it applies.
    pub learned: Option<Value>,
    /// The cleanup that an earlier job could not do.
    pub pending_cleanup: Option<PendingCleanup>,
    /// The operator's instruction that no job starts on this server.
    pub maintenance: Option<GateClosure>,
    /// The restoration, because of which nothing is done to the server; `None` for a released server.
    pub restored: Option<Restoration>,
}

/// Cleanup that a run could not do; the next run on the server does it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCleanup {
    /// The run that left the cleanup.
    pub job_id: RunId,
    /// The steps of the cleanup that failed.
    pub remaining: Vec<StepName>,
    /// The virtual media slots that may still hold an image of the run.
    #[serde(default)]
    pub slots: Vec<String>,
    /// The class of the run that ended without cleanup, so that the steps are not known. `remaining` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<FailureClass>,
}

impl PendingCleanup {
    /// The pending cleanup of a run that ended without cleanup, for the reason of this class.
    pub fn unknown(job_id: RunId, why: FailureClass) -> Self {
        Self { job_id, remaining: Vec::new(), slots: Vec::new(), unknown: Some(why) }
    }
}

impl Server {
    /// A server with a serial number and the defaults. A BMC without a CA is pinned: its first certificate is trusted, and later
    /// only that certificate.
    pub fn unknown(serial: Serial, now: Time) -> Self {
        Self {
            id: Uuid::now_v7(),
            serial,
            bmc_address: String::new(),
            bmc_username: String::new(),
            bmc_password: String::new(),
            vendor: None,
            bmc_profile: None,
            quirks: None,
            network: None,
            labels: BTreeMap::new(),
            tls: TlsMode::Pinned,
            tls_fingerprint: None,
            allow_unverified_serial: false,
            media_base_url: None,
            revision: 1,
            created_at: now,
            updated_at: now,
            last_seen: None,
            observed: None,
            learned: None,
            pending_cleanup: None,
            maintenance: None,
            restored: None,
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("serial", &self.serial)
            .field("bmc_address", &self.bmc_address)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
