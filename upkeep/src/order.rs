//! From a kind and its parameters to a run.
//!
//! ```text
//!  kind and parameters of a client -> Action (checked, defaults filled) -> UpkeepOrder -> NewRun
//!
//!  locks   condition/SERIAL/KIND   one open condition of a kind; another one is refused, also while this one is queued
//!          condition/SERIAL        one open condition of any kind, unless the order may queue behind others
//!          server/SERIAL           one run tree changes or reads a BMC at a time; waits by priority, then age
//!          bmc/ADDRESS             for servers that share a BMC; waits likewise
//!          parallel/KIND/LABEL=VALUE   for orders that limit how many of their kind run at once; waits likewise
//! ```
//!
//! The label `queue` of the server names the queue of the steps at its BMC. The steps that hold files of the registry stay in the
//! queue of the controller, and so does a child run, because its parent works there.
//!
//! Invariant: a stored action has every parameter, so that a later default does not change an accepted order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::VariantArray;

use super::bios_order::ApplyBios;
use super::install_order::InstallFirmware;
use super::permission::RestartWindow;
use super::{BIOS_APPLY, BMC_RESET, FIRMWARE_INSTALL, INVENTORY, POWER_CYCLE, VERSION, names};
use engine::ChildRequest;
use model::mutant::{self, Mutant};
use model::{
    Idempotency, LockRequest, NewEvent, NewRun, OnConflict, Purpose, RunId, RunRequest, Serial, Snapshot,
    Time, bmc_lock, rounds, server_lock,
};
use redfish::ManagerReset;

/// The time limit of most runs without a deadline, including the time in queues.
const TIME_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// How many conditions of different kinds a server may have open at the same time.
const MAX_OPEN: u32 = 64;
/// The label of a run that names its kind, so that the conditions of a server are found.
pub const KIND_LABEL: &str = "condition";
/// The label of a server that names the queue of the steps at its BMC, for a worker elsewhere (decision D33).
pub const QUEUE_LABEL: &str = "queue";
/// The longest grace period of a soft power cycle, in seconds.
const MAX_GRACE: u64 = 3600;

/// The kind of a server condition: which action a run carries out on the server.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
    strum::Display,
)]
pub enum ConditionKind {
    /// The host is forced off, then powered on.
    #[serde(rename = "powerCycleHard")]
    #[strum(serialize = "powerCycleHard")]
    PowerCycleHard,
    /// The operating system is shut down, then the host is powered on.
    #[serde(rename = "powerCycleSoft")]
    #[strum(serialize = "powerCycleSoft")]
    PowerCycleSoft,
    /// The BMC is restarted; the host keeps running.
    #[serde(rename = "bmcReset")]
    #[strum(serialize = "bmcReset")]
    BmcReset,
    /// The hardware of the server is read from its BMC.
    #[serde(rename = "inventoryOOB")]
    #[strum(serialize = "inventoryOOB")]
    InventoryOob,
    /// The firmware of a set is installed.
    #[serde(rename = "firmwareInstall")]
    #[strum(serialize = "firmwareInstall")]
    FirmwareInstall,
    /// Settings of the BIOS and the persistent boot order are changed.
    #[serde(rename = "biosApply")]
    #[strum(serialize = "biosApply")]
    BiosApply,
}

impl ConditionKind {
    /// The kind of a name: its own spelling, the same with a capital first letter, or `inventory`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut letters = name.chars();
        let first = letters.next()?.to_ascii_lowercase();
        match format!("{first}{}", letters.as_str()).as_str() {
            "inventory" => Some(Self::InventoryOob),
            other => other.parse().ok(),
        }
    }

    /// The spelling that is stored and shown.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The workflow of the kind.
    pub fn workflow(self) -> &'static str {
        match self {
            Self::PowerCycleHard | Self::PowerCycleSoft => POWER_CYCLE,
            Self::BmcReset => BMC_RESET,
            Self::InventoryOob => INVENTORY,
            Self::FirmwareInstall => FIRMWARE_INSTALL,
            Self::BiosApply => BIOS_APPLY,
        }
    }

    /// Every kind, in the order of the documents.
    pub fn all() -> &'static [Self] {
        Self::VARIANTS
    }

    fn purpose(self) -> Purpose {
        match self {
            Self::InventoryOob => Purpose::Observe,
            Self::PowerCycleHard
            | Self::PowerCycleSoft
            | Self::BmcReset
            | Self::FirmwareInstall
            | Self::BiosApply => Purpose::Change,
        }
    }

    /// The time limit of a run without a deadline, including the time in queues and without the wait for a maintenance window.
    fn time_limit(self) -> Duration {
        match self {
            // A component may take an hour, and a server has several.
            Self::FirmwareInstall => TIME_LIMIT * 3,
            // An operator may have to restart the host.
            Self::BiosApply => TIME_LIMIT * 3,
            _ => TIME_LIMIT,
        }
    }
}

/// The parameters of a hard power cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardCycle {
    /// Whether a host that is off is powered on.
    pub power_on: bool,
}

/// The parameters of a soft power cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftCycle {
    /// Whether a host that is off is powered on.
    pub power_on: bool,
    /// Whether power is forced off when the grace period ends.
    pub force: bool,
    /// The time that the operating system gets to shut down.
    pub grace_seconds: u64,
}

impl Default for SoftCycle {
    fn default() -> Self {
        Self { power_on: false, force: false, grace_seconds: 120 }
    }
}

/// The parameters of a restart of a BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResetBmc {
    /// Which restart is asked for first.
    #[serde(rename = "type")]
    pub how: ManagerReset,
}

impl Default for ResetBmc {
    fn default() -> Self {
        Self { how: ManagerReset::Graceful }
    }
}

/// The parameters of an out-of-band inventory: there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadInventory {}

/// A kind with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "parameters")]
pub enum UpkeepAction {
    /// See [`ConditionKind::PowerCycleHard`].
    #[serde(rename = "powerCycleHard")]
    Hard(HardCycle),
    /// See [`ConditionKind::PowerCycleSoft`].
    #[serde(rename = "powerCycleSoft")]
    Soft(SoftCycle),
    /// See [`ConditionKind::BmcReset`].
    #[serde(rename = "bmcReset")]
    Reset(ResetBmc),
    /// See [`ConditionKind::InventoryOob`].
    #[serde(rename = "inventoryOOB")]
    Inventory(ReadInventory),
    /// See [`ConditionKind::FirmwareInstall`].
    #[serde(rename = "firmwareInstall")]
    Firmware(Box<InstallFirmware>),
    /// See [`ConditionKind::BiosApply`].
    #[serde(rename = "biosApply")]
    Bios(Box<ApplyBios>),
}

/// Why parameters are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameters of {kind} are not valid: {why}")]
pub struct BadParameters {
    /// The kind.
    pub kind: ConditionKind,
    /// The reason.
    pub why: String,
}

impl UpkeepAction {
    /// Reads the parameters of a client; absent parameters have their defaults.
    ///
    /// # Errors
    /// When a parameter is unknown, has the wrong type, or is out of its range.
    pub fn of(kind: ConditionKind, parameters: Value) -> Result<Self, BadParameters> {
        let bad = |why: String| BadParameters { kind, why };
        let parameters = if parameters.is_null() { json!({}) } else { parameters };
        // An array would be read as the parameters in their order.
        if !parameters.is_object() {
            return Err(bad("the parameters are a JSON object".to_owned()));
        }
        let action = Self::deserialize(json!({ "kind": kind, "parameters": parameters }))
            .map_err(|why| bad(why.to_string()))?;
        match &action {
            Self::Soft(soft) if !(1..=MAX_GRACE).contains(&soft.grace_seconds) => {
                Err(bad(format!("grace_seconds is a number from 1 to {MAX_GRACE}")))
            }
            Self::Firmware(install) => install.checked().map_err(bad).map(|()| action),
            Self::Bios(apply) => apply.checked().map_err(bad).map(|()| action),
            _ => Ok(action),
        }
    }

    /// The kind.
    pub fn kind(&self) -> ConditionKind {
        match self {
            Self::Hard(_) => ConditionKind::PowerCycleHard,
            Self::Soft(_) => ConditionKind::PowerCycleSoft,
            Self::Reset(_) => ConditionKind::BmcReset,
            Self::Inventory(_) => ConditionKind::InventoryOob,
            Self::Firmware(_) => ConditionKind::FirmwareInstall,
            Self::Bios(_) => ConditionKind::BiosApply,
        }
    }

    /// When the host may be restarted; an action without such parameters may do it at once.
    pub fn restart_window(&self) -> RestartWindow {
        match self {
            Self::Firmware(install) => install.window(),
            Self::Bios(apply) => apply.window(),
            Self::Hard(_) | Self::Soft(_) | Self::Reset(_) | Self::Inventory(_) => RestartWindow::default(),
        }
    }

    /// Every parameter, as it is stored.
    pub fn parameters(&self) -> Value {
        match self {
            Self::Hard(hard) => json!(hard),
            Self::Soft(soft) => json!(soft),
            Self::Reset(reset) => json!(reset),
            Self::Inventory(read) => json!(read),
            Self::Firmware(install) => json!(install),
            Self::Bios(apply) => json!(apply),
        }
    }

    /// The parameters in an event: those of the BIOS without their values, of which one may be a password that only the registry
    /// of the BIOS shows to be one.
    fn logged(&self) -> Value {
        let mut parameters = self.parameters();
        if let Self::Bios(apply) = self {
            parameters["attributes"] = json!(apply.attributes.keys().collect::<Vec<_>>());
        }
        parameters
    }

    /// Describes the action in one sentence, for the operator who orders it.
    pub fn sentence(&self) -> String {
        let off = |power_on: bool| match power_on {
            true => "a host that is off is powered on",
            false => "a host that is off stays off",
        };
        match self {
            Self::Hard(hard) => format!("forces the host off and powers it on; {}", off(hard.power_on)),
            Self::Soft(SoftCycle { power_on, force, grace_seconds }) => {
                let then = if *force { "then forces it off" } else { "then fails" };
                format!(
                    "asks the operating system to shut down, waits {grace_seconds} s, {then}; powers the host on; {}",
                    off(*power_on)
                )
            }
            Self::Reset(_) => {
                "restarts the BMC and waits until it is away and back; the host keeps running".to_owned()
            }
            Self::Inventory(_) => "reads what the server is made of; changes nothing".to_owned(),
            Self::Firmware(install) => install.sentence(),
            Self::Bios(apply) => apply.sentence(),
        }
    }
}

/// The stored input of a run, and the input of a child run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpkeepInput {
    /// The server.
    pub server: Serial,
    /// The action with its parameters.
    pub action: UpkeepAction,
    /// How many orders of this kind run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<ParallelLimit>,
}

/// How many conditions of a kind run at once on servers that have a label in common, such as those of a rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelLimit {
    /// The name of the label.
    pub label: String,
    /// The value of the label on the server.
    pub value: String,
    /// The maximum.
    pub count: u32,
    /// How many servers have the label: as many orders may wait for each other.
    pub servers: u32,
}

/// An order of an operator: the action on one server, and how its run is queued and limited.
#[derive(Clone, Debug)]
pub struct UpkeepOrder {
    /// The server and the action.
    pub input: UpkeepInput,
    /// Whether the order may be created while the server has an open condition of another kind. It then waits for it.
    pub queue: bool,
    /// The priority; a greater one gets the server first.
    pub priority: i32,
    /// When the run must have ended; the default is four hours, twelve for firmware and the BIOS, from the end of the maintenance
    /// window on, or from a week later when an operator restarts the host; and as much again for each round of a parallel limit.
    pub deadline: Option<Time>,
    /// The address of the BMC if the server shares it with another one.
    pub shared_bmc: Option<String>,
    /// The queue of the steps at the BMC; `None` for that of the controller.
    pub facility: Option<String>,
    /// The ended run that this order repeats.
    pub retry_of: Option<RunId>,
    /// The key under which a repetition of the request finds this run.
    pub idempotency: Option<Idempotency>,
}

impl UpkeepOrder {
    /// An order with nothing but an action.
    pub fn new(server: Serial, action: UpkeepAction) -> Self {
        Self {
            input: UpkeepInput { server, action, parallel: None },
            queue: false,
            priority: 0,
            deadline: None,
            shared_bmc: None,
            facility: None,
            retry_of: None,
            idempotency: None,
        }
    }

    /// The order with a limit of how many of its kind run at once.
    #[must_use]
    pub fn limited(self, parallel: Option<ParallelLimit>) -> Self {
        Self { input: UpkeepInput { parallel, ..self.input }, ..self }
    }

    /// The order with the steps at the BMC in the queue that the labels of the server name.
    #[must_use]
    pub fn in_facility_of(self, labels: &BTreeMap<String, String>) -> Self {
        Self { facility: labels.get(QUEUE_LABEL).filter(|queue| !queue.is_empty()).cloned(), ..self }
    }

    /// The order that repeats an ended run, under the same limit; `None` when the input of the run cannot be read.
    pub fn repeat(ended: &Snapshot) -> Option<Self> {
        let UpkeepInput { server, action, parallel } = UpkeepInput::deserialize(&*ended.input).ok()?;
        let order = Self::new(server, action).limited(parallel);
        Some(Self { retry_of: Some(ended.run.id), priority: ended.run.priority, ..order })
    }

    /// The run of the order for the engine.
    pub fn run(self, id: RunId, created_by: &str, now: Time) -> NewRun {
        let kind = self.input.action.kind();
        let locks = self.locks();
        let queue = self.facility.as_deref().unwrap_or(bmc::QUEUE);
        let run = self.input.run(id, created_by, now, queue);
        NewRun {
            locks,
            priority: self.priority,
            deadline_at: self.deadline.unwrap_or(run.deadline_at),
            request: RunRequest {
                labels: BTreeMap::from([(KIND_LABEL.to_owned(), kind.as_str().to_owned())]),
                retry_of: self.retry_of,
                batch: None,
                canary: false,
                idempotency: self.idempotency,
            },
            ..run
        }
    }

    fn locks(&self) -> Vec<LockRequest> {
        let UpkeepInput { server, action, parallel } = &self.input;
        let lock = |resource, capacity, on_conflict| LockRequest { resource, capacity, on_conflict };
        let alone = if self.queue { OnConflict::Wait } else { OnConflict::RefuseQueued };
        if action.kind() == ConditionKind::FirmwareInstall && mutant::active(Mutant::SharesServer) {
            return Vec::new();
        }
        let mut locks = vec![
            lock(format!("condition/{server}/{}", action.kind()), 1, OnConflict::RefuseQueued),
            lock(format!("condition/{server}"), MAX_OPEN, alone),
            lock(server_lock(server), 1, OnConflict::Wait),
        ];
        locks.extend(parallel.iter().map(|ParallelLimit { label, value, count, .. }| {
            lock(format!("parallel/{}/{label}={value}", action.kind()), *count, OnConflict::Wait)
        }));
        locks.extend(self.shared_bmc.iter().map(|address| lock(bmc_lock(address), 1, OnConflict::Wait)));
        locks
    }
}

impl UpkeepInput {
    /// The run of this input, with the locks of its parent only.
    pub(super) fn child(self, request: ChildRequest) -> NewRun {
        let locks = vec![LockRequest {
            resource: server_lock(&self.server),
            capacity: 1,
            on_conflict: OnConflict::Wait,
        }];
        let ChildRequest { id, parent, created_by, now, .. } = request;
        NewRun { parent: Some(parent), locks, ..self.run(id, &created_by, now, bmc::QUEUE) }
    }

    fn run(&self, id: RunId, created_by: &str, now: Time, queue: &str) -> NewRun {
        let kind = self.action.kind();
        let message = format!("{kind} of {}: {}", self.server, self.action.sentence());
        let rounds = self.parallel.as_ref().map_or(1, |limit| rounds(limit.servers, Some(limit.count)));
        let limit = kind.time_limit().saturating_mul(rounds);
        NewRun {
            id,
            workflow: kind.workflow().to_owned(),
            workflow_version: VERSION,
            server: Some(self.server.clone()),
            parent: None,
            purpose: kind.purpose(),
            request: RunRequest::default(),
            priority: 0,
            // The time in which the host is not restarted does not count.
            deadline_at: self.action.restart_window().waits_until(now).plus(limit),
            created_by: created_by.to_owned(),
            created_at: now,
            input: json!(self),
            plan: names::plan(kind.workflow()).of_run(queue),
            locks: Vec::new(),
            effects: Vec::new(),
            events: vec![
                NewEvent::info("condition.requested", message)
                    .by(created_by)
                    .with(json!({ "kind": kind, "parameters": self.action.logged() })),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_name_a_kind_and_one_is_stored() {
        for kind in ConditionKind::all() {
            let capital = format!("{}{}", kind.as_str()[..1].to_uppercase(), &kind.as_str()[1..]);
            assert_eq!(ConditionKind::parse(kind.as_str()), Some(*kind));
            assert_eq!(ConditionKind::parse(&capital), Some(*kind), "{capital}");
            assert_eq!(json!(kind), json!(kind.as_str()));
        }
        assert_eq!(ConditionKind::parse("inventory"), Some(ConditionKind::InventoryOob));
        for other in ["", "powercyclehard", "POWERCYCLEHARD", "firmwareDowngrade", "é"] {
            assert_eq!(ConditionKind::parse(other), None, "{other}");
        }
    }

    #[test]
    fn parameters_are_checked_and_stored_whole() {
        let soft = UpkeepAction::of(ConditionKind::PowerCycleSoft, json!({ "force": true })).unwrap();
        assert_eq!(soft.parameters(), json!({ "power_on": false, "force": true, "grace_seconds": 120 }));
        assert_eq!(
            UpkeepAction::of(ConditionKind::BmcReset, Value::Null).unwrap().parameters(),
            json!({ "type": "graceful" })
        );
        for (kind, parameters) in [
            (ConditionKind::PowerCycleHard, json!({ "force": true })),
            (ConditionKind::PowerCycleSoft, json!({ "grace_seconds": 0 })),
            (ConditionKind::PowerCycleSoft, json!({ "grace_seconds": 3601 })),
            (ConditionKind::PowerCycleSoft, json!([])),
            (ConditionKind::BmcReset, json!({ "type": "sideways" })),
            (ConditionKind::InventoryOob, json!({ "deep": true })),
            (ConditionKind::BiosApply, json!({})),
            (ConditionKind::BiosApply, json!({ "attributes": { "SetupPassword": "x" } })),
            (ConditionKind::BiosApply, json!({ "attributes": { "Turbo": [true] } })),
            (ConditionKind::BiosApply, json!({ "boot_order": ["Boot0001", "Boot0001"] })),
        ] {
            assert!(UpkeepAction::of(kind, parameters.clone()).is_err(), "{kind} {parameters}");
        }
    }

    #[test]
    fn a_stored_action_is_read_again_as_it_was() {
        for kind in ConditionKind::all() {
            let parameters = match kind {
                ConditionKind::BiosApply => {
                    json!({ "attributes": { "Turbo": true }, "boot_order": ["Boot0001"] })
                }
                _ => Value::Null,
            };
            let action = UpkeepAction::of(*kind, parameters).unwrap();
            assert_eq!(action.kind(), *kind);
            assert_eq!(serde_json::from_value::<UpkeepAction>(json!(action)).unwrap(), action);
        }
    }
}
