//! Schemas of types that are defined in crates below `controller`, which know nothing of HTTP.
//!
//! A field of a view names its schema with `#[schemars(with = "types::NAME")]`. The client of the integration tests compares every
//! response with the document, so a type that changes without its schema fails them. `skip_serializing_if` marks a field that may be
//! absent; an `Option` is always present and may be null.
#![expect(dead_code, reason = "the types are read by the derive macro only")]

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Defines named schemas from JSON.
macro_rules! schemas {
    ($($(#[doc = $doc:literal])* $name:ident = $schema:expr;)*) => {$(
        $(#[doc = $doc])*
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
                let mut schema: Schema = $schema;
                schema.insert("description".to_owned(), json!(concat!($($doc),*).trim()));
                schema
            }
        }
    )*};
}

schemas! {
    /// A time: RFC 3339 in UTC with milliseconds.
    Timestamp = json_schema!({ "type": "string", "format": "date-time" });
    /// The id of a job or run: a UUID of version 7.
    JobId = uuid();
    /// The id of a batch: a UUID of version 7.
    BatchId = uuid();
    /// The id of a webhook: a UUID of version 7.
    WebhookId = uuid();
    /// The serial number of a server as its maker wrote it.
    SerialNumber = json_schema!({
        "type": "string", "minLength": 1, "maxLength": model::Serial::MAX,
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._:+-]*$",
    });
    /// A SHA-256 digest in hexadecimal digits.
    Sha256 = json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    /// Why no further job of a batch starts.
    BatchStopReason = json_schema!({ "type": "string", "enum": ["canary", "stopped"] });
    /// The public state of a job.
    JobStatus = json_schema!({ "type": "string", "enum": model::JobStatus::ALL.map(|status| status.as_str()) });
    /// The phase of a recorded step.
    StepPhase = json_schema!({ "type": "string", "enum": ["intent", "done", "failed", "skipped", "undone", "stuck"] });
    /// How a job ended.
    Outcome = json_schema!({ "type": "string", "enum": ["succeeded", "failed", "cancelled"] });
    /// The kind of state that a run is in.
    Condition = json_schema!({ "type": "string", "enum": [
        "queued", "restored", "gated", "blocked", "working", "cancelling", "abandoned", "waiting", "retrying", "due", "held", "ended",
    ] });
    /// The component that a firmware file is for.
    FirmwareComponent = json_schema!({ "type": "string", "enum": firmware::Component::ALL.map(firmware::Component::as_str) });
    /// Whether the host must restart before a firmware file is in use.
    FirmwareRestart = json_schema!({ "type": "string", "enum": ["none", "host"] });
    /// How the certificate of a BMC is checked.
    TlsMode = json_schema!({ "type": "string", "enum": ["insecure", "pinned", "verify"] });
    /// The status of a check of a BMC.
    CheckStatus = json_schema!({ "type": "string", "enum": ["pass", "warn", "fail", "skip"] });
    /// What to install.
    Recipe = recipe();
}

fn uuid() -> Schema {
    json_schema!({ "type": "string", "format": "uuid" })
}

/// The recipe schema without the keywords that would make it a document of its own.
fn recipe() -> Schema {
    let schemas = recipe::RecipeSchemas::builtin();
    let text = schemas.text(schemas.current_id()).unwrap_or("{}");
    let mut schema: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    for keyword in ["$schema", "$id", "$comment"] {
        schema.remove(keyword);
    }
    schema.into()
}

/// A JSON object whose fields are not part of the API's contract.
pub(crate) struct Object;

impl JsonSchema for Object {
    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// An event of the log.
#[derive(JsonSchema)]
pub(crate) struct Event {
    /// The position in the log; it grows and is never reused.
    seq: i64,
    time: Timestamp,
    /// The job to which the event belongs.
    #[schemars(skip_serializing_if = "absent")]
    job_id: JobId,
    /// The server to which the event belongs.
    #[schemars(skip_serializing_if = "absent")]
    server_serial: SerialNumber,
    /// The type: a dotted name, such as `job.created`.
    #[schemars(rename = "type")]
    kind: String,
    level: EventLevel,
    /// The step to which the event belongs.
    step: Option<String>,
    /// The attempt of the step.
    #[schemars(skip_serializing_if = "absent")]
    attempt: u32,
    /// What caused the event: `engine`, the name of a user, `maintenance-os`.
    actor: String,
    /// One sentence for operators.
    message: String,
    /// Facts for programs; their form depends on the type.
    #[schemars(skip_serializing_if = "absent")]
    data: Value,
}

/// An entry of the audit log. Without `hash` and with its members in this order and no spaces, it is the canonical form that
/// `hash` is the SHA-256 of.
#[derive(JsonSchema)]
pub(crate) struct AuditEntry {
    /// The number of the entry, from 1 without a gap.
    seq: u64,
    time: Timestamp,
    /// What the actor is: `user`, `token`, `jwt`, `certificate`, `job`, `secret`, `open`, `local`, `controller` or `unknown`.
    actor_kind: String,
    /// The name of the user or token; empty for an unknown caller.
    actor: String,
    /// The id of the token or job.
    actor_id: String,
    /// The address of the client; `local` for a command on the machine of the controller.
    source: String,
    /// What was done, such as `user.create`.
    action: String,
    /// To what, such as `user/ann`.
    target: String,
    /// `ok`, or the error code.
    result: String,
    /// The id of the request.
    request_id: String,
    /// For how many attempts the entry stands; more than 1 for a sum of refused requests.
    count: u64,
    /// The hash of the entry before.
    previous: String,
    /// The hash of this entry.
    hash: String,
}

/// The severity of an event.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum EventLevel {
    /// A normal step of the work.
    Info,
    /// A fact that an operator should know.
    Warn,
    /// A failure.
    Error,
}

/// Why a job failed.
#[derive(JsonSchema)]
pub(crate) struct Failure {
    /// The failure class, such as `bmc_unreachable`.
    class: String,
    /// The step that failed.
    step: String,
    /// What happened, in one sentence.
    summary: String,
    /// Facts for programs.
    #[schemars(skip_serializing_if = "absent")]
    detail: Value,
    /// What an operator can do.
    next_action: String,
}

/// What a job waits for.
#[derive(JsonSchema)]
pub(crate) struct Wait {
    /// The reason, such as `report` or `retry`.
    reason: String,
    /// The step that waits.
    step: String,
    since: Timestamp,
    /// When the wait ends at the latest.
    deadline: Timestamp,
    /// The signals that end the wait.
    #[schemars(skip_serializing_if = "absent")]
    signals: Vec<String>,
    /// When the step reads again.
    #[schemars(skip_serializing_if = "absent")]
    poll_at: Timestamp,
    /// The wait in words.
    detail: String,
}

/// What an operator must decide.
#[derive(JsonSchema)]
pub(crate) struct Hold {
    /// The class of the hold.
    class: String,
    since: Timestamp,
    /// When the next reminder event is written.
    remind_at: Timestamp,
    /// The verbs that end the hold.
    verbs: Vec<String>,
    /// The hold in words.
    detail: String,
}

/// A gate that an operator closed.
#[derive(JsonSchema)]
pub(crate) struct GateClosure {
    since: Timestamp,
    /// The operator.
    by: String,
    /// The reason; empty text if none was given.
    reason: String,
}

/// Cleanup that a job could not do.
#[derive(JsonSchema)]
pub(crate) struct PendingCleanup {
    /// The job that left it.
    job_id: JobId,
    /// The steps of the cleanup that failed.
    remaining: Vec<String>,
    /// The virtual media slots that may still hold an image of the job.
    slots: Vec<String>,
    /// Why the steps are not known: the class of the failure with which the job ended without cleanup.
    #[schemars(skip_serializing_if = "absent")]
    unknown: String,
}

/// Why nothing is done to a server: its data is a copy or old.
#[derive(JsonSchema)]
pub(crate) struct Restoration {
    since: Timestamp,
    /// The time of the last event in the data; nothing that happened later is known.
    as_of: Timestamp,
    /// How the controller found it.
    reason: String,
}

/// A shortage during which no job starts.
#[derive(JsonSchema)]
pub(crate) struct Pressure {
    /// What is short.
    name: String,
    since: Timestamp,
    /// The shortage in words.
    detail: String,
    /// What an operator can do.
    next_action: String,
}

/// Why a job is in its state, and what an operator can do.
#[derive(JsonSchema)]
pub(crate) struct Explanation {
    condition: Condition,
    /// The reason of a wait, or the class of a hold or failure.
    reason: Option<String>,
    /// The current step.
    step: Option<String>,
    /// The explanation in one or two sentences.
    summary: String,
    /// When the state began.
    since: Timestamp,
    /// When the state ends at the latest.
    deadline: Option<Timestamp>,
    /// When the engine reads the run again if nothing happens.
    next_check: Option<Timestamp>,
    /// What ends the state.
    ends_by: String,
    /// What an operator can do.
    next_action: String,
    /// The running step, when it may not be interrupted and a cancel has to wait for it.
    #[schemars(skip_serializing_if = "absent")]
    uninterruptible: String,
}

/// A step of a job that would be created.
#[derive(JsonSchema)]
pub(crate) struct PlannedStep {
    stage: Stage,
    /// The name of the step.
    step: String,
    /// The time limit of all attempts together, in seconds.
    budget_s: u64,
    /// The time limit of one call, in seconds.
    call_s: u64,
    /// The time limit of waits, in seconds.
    wait_s: Option<u64>,
    /// The maximum number of attempts.
    attempts: u32,
    /// Whether a cancel interrupts the step.
    interruptible: bool,
}

/// The stage of a step: forward, or the cleanup that follows every end.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// A step towards the installation.
    Forward,
    /// A step of the cleanup.
    Finish,
}

/// An image of a job that would be created.
#[derive(JsonSchema)]
pub(crate) struct PlannedImage {
    /// The source of the image, without its query.
    #[schemars(skip_serializing_if = "absent")]
    location: String,
    /// The digest, if it is known.
    sha256: Option<Sha256>,
    /// The length in bytes, if it is known.
    size: Option<u64>,
}

/// Advice about a valid recipe.
#[derive(JsonSchema)]
pub(crate) struct Warning {
    /// JSON Pointer into the recipe.
    path: String,
    /// The advice.
    message: String,
}

/// One check of a BMC.
#[derive(JsonSchema)]
pub(crate) struct Check {
    /// The name of the check.
    name: String,
    status: CheckStatus,
    /// What the check found.
    found: String,
    /// What an operator can do; empty text when nothing is needed.
    next_action: String,
}

/// The capability card of a BMC.
#[derive(JsonSchema)]
pub(crate) struct BmcCard {
    /// The address of the BMC.
    address: String,
    tls: CardTls,
    identity: CardIdentity,
    host: CardHost,
    profile: CardProfile,
    /// The slots for virtual media.
    slots: Vec<CardSlot>,
    /// The boot settings that the BMC shows.
    boot: Object,
    power: CardPower,
    /// The update service, if the BMC has one.
    update_service: Option<Object>,
    /// The account of the registered user, if the BMC shows it.
    account: Option<Object>,
    clock: CardClock,
    /// Limits of the BMC and of the profile.
    limits: Object,
    /// The URL under which the BMC reads media.
    media_base_url: String,
    /// The slot plan of a job, or the reason why there is none.
    slot_plan: Object,
    requests: CardRequests,
    /// The redacted resources, if `capture` was requested.
    #[schemars(skip_serializing_if = "absent")]
    capture: Object,
}

/// How the connection is protected.
#[derive(JsonSchema)]
struct CardTls {
    mode: String,
    /// The fingerprint of the certificate.
    fingerprint: Option<String>,
    /// Whether the certificate was seen for the first time.
    first_met: bool,
}

/// What the BMC reports about itself and the machine.
#[derive(JsonSchema)]
struct CardIdentity {
    vendor: Option<String>,
    product: Option<String>,
    manufacturer: Option<String>,
    model: Option<String>,
    bios_version: Option<String>,
    bmc_model: Option<String>,
    bmc_firmware: Option<String>,
    redfish_version: Option<String>,
}

/// The machine behind the BMC.
#[derive(JsonSchema)]
struct CardHost {
    uri: String,
    serial: Option<String>,
    sku: Option<String>,
    uuid: Option<String>,
    power: String,
    /// Whether the machine has the registered serial number.
    serial_check: Option<String>,
}

/// The profile in use.
#[derive(JsonSchema)]
struct CardProfile {
    name: String,
    /// Why the profile is in use.
    rule: String,
}

/// A slot for virtual media.
#[derive(JsonSchema)]
struct CardSlot {
    id: String,
    uri: String,
    media_types: Vec<String>,
    empty: bool,
    insert: String,
    /// The transfer protocols that the slot lists.
    transfer_protocols: Value,
}

/// The control of power.
#[derive(JsonSchema)]
struct CardPower {
    reset_types: Option<Vec<String>>,
}

/// The clock of the BMC.
#[derive(JsonSchema)]
struct CardClock {
    bmc: Option<String>,
    skew_seconds: Option<i64>,
}

/// The requests of the probe.
#[derive(JsonSchema)]
struct CardRequests {
    count: u64,
    made: Vec<Value>,
}

/// The report of a garbage collection.
#[derive(JsonSchema)]
pub(crate) struct GcReport {
    /// When the collection ended.
    at: Timestamp,
    /// The user who requested it, or `registry` for the schedule.
    by: String,
    /// Whether nothing was removed.
    dry_run: bool,
    /// Removed manifests.
    manifests: u64,
    /// Removed references from repositories to layers.
    layers: u64,
    /// Removed blobs.
    blobs: u64,
    /// Removed bytes.
    bytes: u64,
    /// Repositories with a corrupted manifest, which were not collected.
    corrupted: Vec<String>,
}

/// The report of a retention run.
#[derive(JsonSchema)]
pub(crate) struct RetentionReport {
    /// When the run ended.
    at: Timestamp,
    /// The user who requested it, or `registry` for the schedule.
    by: String,
    /// Whether nothing was removed.
    dry_run: bool,
    /// The removed tags, as `REPOSITORY:TAG`.
    tags: Vec<String>,
}

/// The report of an installation.
#[derive(JsonSchema)]
pub(crate) struct InstallReport {
    status: ReportStatus,
    /// With `failed`: the name of the unit that failed. Required with `failed`.
    failed_step: Option<String>,
    /// With `progress`: the name of the current unit. Required with `progress`.
    step: Option<String>,
    /// With `progress`: the share of the step that is done.
    #[schemars(range(min = 0, max = 100))]
    percent: Option<f64>,
    /// With `progress`: the bytes of the OS image that were read. Taken together with `total` only.
    bytes: Option<u64>,
    /// With `progress`: the bytes of the OS image.
    total: Option<u64>,
    /// With `reachable`: the addresses of the machine; at most 16 are kept.
    addresses: Option<Vec<String>>,
    /// With `reachable`: the fingerprint of the SSH host key; absent without SSH.
    ssh_host_key: Option<String>,
    /// With `reachable`: the terminals with a shell; at most 16 are kept.
    consoles: Option<Vec<String>>,
    /// One sentence for the operator.
    message: Option<String>,
    /// With `failed`: the failure class: `input`, `media`, `unsupported` or `installer`. Other words are taken as `installer`.
    class: Option<String>,
    /// The job, which must be the job of the token.
    job_id: Option<JobId>,
    /// An id that is stored with the report.
    delivery_id: Option<String>,
}

/// What a report states.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum ReportStatus {
    /// The installation succeeded.
    Success,
    /// The installation failed.
    Failed,
    /// The installation continues.
    Progress,
    /// The machine is in the rescue system and waits for an operator.
    Reachable,
}
