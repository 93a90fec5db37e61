//! A server as registered: the map from a serial number to a BMC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::gate::Closed;
use super::ids::Serial;
use super::time::Time;

/// How far the BMC's certificate is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// Any certificate; its fingerprint is not looked at.
    Insecure,
    /// Exactly the certificate with the registered fingerprint.
    Pinned,
    /// A chain to one of the public roots or the configured CA.
    #[default]
    Verify,
}

impl TlsMode {
    /// The mode's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insecure => "insecure",
            Self::Pinned => "pinned",
            Self::Verify => "verify",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Insecure, Self::Pinned, Self::Verify].into_iter().find(|mode| mode.as_str() == name)
    }
}

/// A registered server. The password is a credential reference (`sealed:`, `env:`, `file:`) and is never shown.
#[derive(Clone, PartialEq)]
pub struct Server {
    /// Its id, which survives a change of serial.
    pub id: Uuid,
    /// Its serial number.
    pub serial: Serial,
    /// The BMC's base URL, as given or completed with `https://`.
    pub bmc_address: String,
    /// The BMC's user.
    pub bmc_username: String,
    /// Reference to the BMC's password.
    pub bmc_password: String,
    /// The vendor hint of seed 000.
    pub vendor: Option<String>,
    /// The profile its BMC is spoken to by; found out when absent.
    pub bmc_profile: Option<String>,
    /// Flags of the profile that the operator has set.
    pub quirks: Option<Map<String, Value>>,
    /// Operator's labels.
    pub labels: BTreeMap<String, String>,
    /// How far the BMC's certificate is trusted.
    pub tls: TlsMode,
    /// SHA-256 of the BMC's certificate in hex, for [`TlsMode::Pinned`].
    pub tls_fingerprint: Option<String>,
    /// Whether a BMC that shows no serial at all may still be driven (lock L3a).
    pub allow_unverified_serial: bool,
    /// The base URL this BMC fetches media from, when it is not the default.
    pub media_base_url: Option<String>,
    /// Counts changes by operators.
    pub revision: i64,
    /// When it was registered.
    pub created_at: Time,
    /// When an operator last changed it.
    pub updated_at: Time,
    /// When its BMC last answered.
    pub last_seen: Option<Time>,
    /// What was last observed of it.
    pub observed: Option<Value>,
    /// What its BMC has taught, with the firmware version it is true of.
    pub learned: Option<Value>,
    /// What an earlier job could not clean up on it.
    pub debt: Option<Value>,
    /// Why no job may begin on it.
    pub maintenance: Option<Closed>,
}

impl Server {
    /// A server as it is before anybody says more of it than its serial. Without a CA of its own, a BMC's certificate is
    /// trusted as it is first met, and only that one from then on.
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
            debt: None,
            maintenance: None,
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
