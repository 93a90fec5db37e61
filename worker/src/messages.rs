//! The bodies of the routes of workers elsewhere, as JSON. What a call is, is in [`engine::CallMessage`].
//!
//! ```text
//!   hello        Hello       -> Welcome       versions; the settings of Redfish requests
//!   claim        ClaimOrder  -> Claims        calls, each with the record of its server
//!   progress     Progressing -> Progressed    whether the lease is held
//!   report       Reporting   -> Reported      what follows
//!   release      Releasing   -> (nothing)
//!   interrupted  ClaimList   -> ClaimList     the claims that must stop
//!   firmware     FileOrder   -> bytes         of a file of the run
//!   hardware     Releasing   -> StoredHardware
//! ```
//!
//! Invariant: a BMC password is in the record of a server beside a call for it, and in no other message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use engine::{CallKey, CallMessage, ReportMessage};
use model::{RunId, Serial, Server, Time, TlsMode, WorkflowVersion};

/// The header that names the process of a worker.
pub const WORKER_HEADER: &str = "shoal-worker";
/// The longest wait of a request for something to do, in seconds.
pub const LONGEST_POLL_S: u64 = 20;
/// The most claims of one worker.
pub const MAX_CLAIMS: usize = 256;

/// The first message of a worker: its versions, workflows and queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the messages.
    pub protocol: u32,
    /// The version of the program.
    pub version: String,
    /// The workflows that the worker knows, with their versions.
    pub workflows: BTreeMap<String, WorkflowVersion>,
    /// The queues that the worker serves.
    pub queues: BTreeSet<String>,
}

/// The settings that a worker receives from the controller, and the time there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The name of the token.
    pub name: String,
    /// The version of the controller.
    pub version: String,
    /// How long a lease lasts without progress, in milliseconds.
    pub lease_ms: u64,
    /// The time at the controller.
    pub now: Time,
    /// The settings of Redfish requests.
    pub redfish: RedfishSettings,
}

/// The settings of Redfish requests, as the controller has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RedfishSettings {
    /// `REDFISH_TIMEOUT`, in milliseconds.
    pub timeout_ms: u64,
    /// `REDFISH_RETRIES`.
    pub retries: u32,
    /// `REDFISH_RATE`.
    pub rate: u32,
    /// `REDFISH_BREAKER_FAILURES`.
    pub breaker_failures: u32,
    /// `REDFISH_BREAKER_OPEN_TIME`, in milliseconds.
    pub breaker_open_ms: u64,
    /// `REDFISH_MAX_IN_FLIGHT`.
    pub in_flight: usize,
    /// `MAX_POWER_ONS`.
    pub power_ons: Option<u32>,
    /// The content of `REDFISH_CA_FILE`.
    pub authorities: Option<String>,
}

/// An order of calls.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimOrder {
    /// How many calls the worker can make; with 0 an earlier order of the same worker ends at once.
    pub limit: usize,
    /// Whether the order ends at once when nothing is due: the worker is woken for the next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_once: bool,
}

/// Claimed calls.
#[derive(Debug, Serialize, Deserialize)]
pub struct Claims {
    /// The calls.
    pub calls: Vec<Parcel>,
    /// How long the order waited before its claim, in milliseconds: the leases began then, and not when it was sent.
    pub waited_ms: u64,
    /// The time at the controller.
    pub now: Time,
}

/// A call with what it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Parcel {
    /// The call.
    pub call: CallMessage,
    /// The server of the call's run.
    pub server: Option<ServerRecord>,
}

/// The record of a server, as far as a step at its BMC needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerRecord {
    id: Uuid,
    /// The serial number.
    pub serial: Serial,
    bmc_address: String,
    bmc_username: String,
    /// The password of the BMC, or why the controller cannot read it.
    pub password: Result<Password, String>,
    vendor: Option<String>,
    bmc_profile: Option<String>,
    quirks: Option<Map<String, Value>>,
    tls: TlsMode,
    tls_fingerprint: Option<String>,
    allow_unverified_serial: bool,
    revision: i64,
    learned: Option<Value>,
    /// The update that an earlier run has left to the BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update: Option<Value>,
}

impl ServerRecord {
    /// The record of a server with the password of its BMC.
    pub fn of(server: &Server, password: Result<Password, String>) -> Self {
        let server = server.clone();
        Self {
            id: server.id,
            serial: server.serial,
            bmc_address: server.bmc_address,
            bmc_username: server.bmc_username,
            password,
            vendor: server.vendor,
            bmc_profile: server.bmc_profile,
            quirks: server.quirks,
            tls: server.tls,
            tls_fingerprint: server.tls_fingerprint,
            allow_unverified_serial: server.allow_unverified_serial,
            revision: server.revision,
            learned: server.learned,
            update: server.observed.and_then(|mut observed| observed.get_mut("update").map(Value::take)),
        }
    }

    /// The server of this record, with a reference to its password.
    pub fn server(self, bmc_password: String, now: Time) -> Server {
        Server {
            id: self.id,
            bmc_address: self.bmc_address,
            bmc_username: self.bmc_username,
            bmc_password,
            vendor: self.vendor,
            bmc_profile: self.bmc_profile,
            quirks: self.quirks,
            tls: self.tls,
            tls_fingerprint: self.tls_fingerprint,
            allow_unverified_serial: self.allow_unverified_serial,
            revision: self.revision,
            learned: self.learned,
            observed: self.update.map(|update| serde_json::json!({ "update": update })),
            ..Server::unknown(self.serial, now)
        }
    }
}

/// The password of a BMC on its way to a worker. It is not shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    /// A password.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, to be sealed at once.
    pub fn reveal(self) -> String {
        self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(redacted)")
    }
}

/// The output of a running step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progressing {
    /// The call.
    pub key: CallKey,
    /// The number of the checkpoint: higher than that of the one before; a repetition has the number of the first try.
    pub number: u64,
    /// The output.
    pub output: Value,
}

/// The response to the output of a running step.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Progressed {
    /// Whether the worker has the lease. Otherwise nothing was written.
    pub held: bool,
    /// The time at the controller.
    pub now: Time,
}

/// The report of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reporting {
    /// The call.
    pub key: CallKey,
    /// The report.
    pub report: ReportMessage,
}

/// The response to a report.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reported {
    /// The next call, or the end of the lease.
    pub next: Next,
    /// The time at the controller.
    pub now: Time,
}

/// The next call or the end of the lease, after a report.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// The lease is kept, and this call is next.
    Call(Box<Parcel>),
    /// The run is parked or has ended; the lease is given back.
    Released,
    /// Nothing was written: the lease is lost.
    Lost,
}

/// Names a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Releasing {
    /// The call.
    pub key: CallKey,
}

/// Claims, as runs with the epochs of their claims.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimList {
    /// The claims.
    pub claims: Vec<(RunId, i64)>,
}

/// An order of the bytes of a firmware file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileOrder {
    /// The call that needs the bytes.
    pub key: CallKey,
    /// The digest of the artifact, as the order of the run names it.
    pub digest: String,
}

/// The stored inventory of the server of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredHardware {
    /// The inventory; null when there is none.
    pub hardware: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown_and_a_record_is_the_same_at_the_other_side() {
        let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        let server = Server {
            bmc_address: "https://192.0.2.7".to_owned(),
            bmc_username: "root".to_owned(),
            bmc_password: "sealed:v1:x".to_owned(),
            learned: Some(serde_json::json!({ "a": 1 })),
            observed: Some(serde_json::json!({ "update": { "what": "bios 2.19" } })),
            ..Server::unknown("S-1".parse().unwrap(), now)
        };
        let record = ServerRecord::of(&server, Ok(Password::new("calvin")));
        assert!(!format!("{record:?}").contains("calvin"));
        let sent: ServerRecord = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(sent.password.clone().unwrap().reveal(), "calvin");
        assert!(sent.server("sealed:v1:x".to_owned(), now) == server);
    }
}
