//! The protocol of a vendor: sessions, resources, ETags, success responses, tasks, errors.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{time, update::Component};

/// Sessions and lock-out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionPolicy {
    /// Whether the session service exists.
    pub offered: bool,
    /// Maximum number of open sessions; a further login returns 503.
    pub limit: usize,
    /// The `MessageId` of that 503.
    pub limit_message: String,
    /// The time without use after which a session is closed.
    #[serde(with = "time")]
    pub timeout: Duration,
    /// Whether Basic authentication is accepted.
    pub basic: bool,
    /// Number of wrong passwords in a row that locks the account; `None` for never.
    pub lockout_after: Option<u32>,
    /// The time for which the account stays locked.
    #[serde(with = "time")]
    pub lockout_time: Duration,
    /// Whether the login response has a `Location`; else only the body names the session.
    pub location: bool,
    /// A property below `Oem` that a login must have.
    pub login_oem: Option<LoginOem>,
    /// Whether the password of the account must be changed before any other request.
    pub password_change_required: bool,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            offered: true,
            limit: 8,
            limit_message: "SessionLimitExceeded".to_owned(),
            timeout: Duration::from_secs(1800),
            basic: true,
            lockout_after: Some(5),
            lockout_time: Duration::from_secs(300),
            location: true,
            login_oem: None,
            password_change_required: false,
        }
    }
}

/// `Oem.{vendor}.{property} = {value}` in the body of a login.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoginOem {
    /// The vendor's key below `Oem`.
    pub vendor: String,
    /// The property.
    pub property: String,
    /// The required value.
    pub value: String,
}

/// Paths, collections and further resources of the service.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServicePolicy {
    /// Whether a path without a final slash returns 308.
    pub slash_redirect: bool,
    /// Whether paths are case-insensitive.
    pub any_case: bool,
    /// Whether `$expand` is offered for collections.
    pub expand: bool,
    /// Members in one page of a collection; `None` for all.
    pub page: Option<usize>,
    /// The name of the slot collection in its path.
    pub slots_name: String,
    /// Whether the manager links to the slots of the system and has none itself.
    pub manager_links_system_slots: bool,
    /// Whether the chassis collection exists.
    pub chassis: bool,
    /// The firmware inventory; when empty, there is no update service.
    pub firmware: Vec<FirmwareItem>,
    /// Systems behind the same BMC that are not the host.
    pub extra_systems: Vec<ExtraSystem>,
    /// Paths that return a fixed status.
    pub fixed_status: Vec<FixedStatusPath>,
    /// Whether TLS is limited to version 1.0: every handshake fails.
    pub legacy_tls: bool,
}

impl Default for ServicePolicy {
    fn default() -> Self {
        Self {
            slash_redirect: false,
            any_case: false,
            expand: false,
            page: None,
            slots_name: "VirtualMedia".to_owned(),
            manager_links_system_slots: false,
            chassis: false,
            firmware: Vec::new(),
            extra_systems: Vec::new(),
            fixed_status: Vec::new(),
            legacy_tls: false,
        }
    }
}

/// One member of the firmware inventory.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FirmwareItem {
    /// `Id` of the member.
    pub id: String,
    /// `Name` of the member.
    pub name: String,
    /// `Version` of the member.
    pub version: String,
    /// `Updateable` of the member.
    #[serde(default)]
    pub updateable: bool,
    /// The kind of the member.
    #[serde(default)]
    pub component: Component,
    /// `Manufacturer` of the member.
    #[serde(default)]
    pub manufacturer: Option<String>,
    /// `Status.State` of the member.
    #[serde(default)]
    pub state: Option<String>,
    /// The last segment of the `RelatedItem` of the member, such as `Bios`, below the system; `None` for the system itself.
    #[serde(default)]
    pub related: Option<String>,
}

/// A system that is not the host: a baseboard, an accelerator tray.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraSystem {
    /// `Id` of the system.
    pub id: String,
    /// Whether the system comes before the host in the collection.
    #[serde(default)]
    pub first: bool,
    /// Whether the system has a `Boot` object (without a property that can be set).
    #[serde(default)]
    pub boot: bool,
    /// The status of a GET while the host is off.
    #[serde(default)]
    pub status_while_off: Option<u16>,
}

/// A path that returns a fixed status.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FixedStatusPath {
    /// The end of the path.
    pub ends_with: String,
    /// The status.
    pub status: u16,
}

/// The ETags that the BMC writes, and the `If-Match` that it requires.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EtagPolicy {
    /// The ETag of a GET.
    pub kind: EtagKind,
    /// The `If-Match` that a PATCH needs.
    pub if_match: IfMatchRule,
}

impl Default for EtagPolicy {
    fn default() -> Self {
        Self { kind: EtagKind::Strong, if_match: IfMatchRule::Optional }
    }
}

/// The ETag that a GET returns.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EtagKind {
    /// The tag is `"5"`.
    Strong,
    /// `W/"5"`, which matches itself.
    Weak,
    /// `W/"5"`, of which only the strong form `"5"` matches.
    WeakMatchesStrong,
    /// The header is empty.
    Empty,
    /// There is no header.
    Absent,
}

/// The `If-Match` that a PATCH needs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IfMatchRule {
    /// `If-Match` is compared if the request has it.
    Optional,
    /// `If-Match` is never compared.
    Ignored,
    /// A request without `If-Match` receives 428.
    Required,
    /// A request without `If-Match` receives 412.
    RequiredSays412,
    /// A request receives 412 unless `If-Match` is `*`.
    OnlyStar,
}

/// The success response of each kind of change.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponsePolicy {
    /// The response to a PATCH of the system or its settings.
    pub patch: Success,
    /// The response to a reset.
    pub reset: Success,
    /// The response to an insert.
    pub insert: Success,
    /// The response to an eject.
    pub eject: Success,
}

/// The shape of a success response.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Success {
    /// The status is 204.
    #[default]
    NoContent,
    /// 200 and the message `Success` in the shape of an error.
    Message,
    /// 200 and `{"Success": …}`.
    SuccessObject,
    /// 200 and the changed resource.
    Resource,
    /// 202 without a task.
    Accepted,
    /// 202 and a task named by `Location`.
    TaskLocation,
    /// 202 and a task named in the body only.
    TaskBody,
    /// 202 and a task named by both.
    Task,
}

impl Success {
    pub(crate) fn is_task(self) -> bool {
        matches!(self, Self::TaskLocation | Self::TaskBody | Self::Task)
    }
}

/// The rules of tasks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskPolicy {
    /// Prefix of the number in an id.
    pub prefix: String,
    /// Minimum duration of a task.
    #[serde(with = "time")]
    pub time: Duration,
    /// `TaskState` of a running task.
    pub running: String,
    /// `TaskState` of a successful task.
    pub completed: String,
    /// The response of the monitor of a finished task.
    pub monitor: MonitorAfter,
}

impl Default for TaskPolicy {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            time: Duration::ZERO,
            running: "Running".to_owned(),
            completed: "Completed".to_owned(),
            monitor: MonitorAfter::Result,
        }
    }
}

/// The response of the monitor of a finished task.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorAfter {
    /// The response of the operation.
    Result,
    /// The monitor returns 404.
    Gone,
    /// 202 with a completed task.
    StillAccepted,
}

/// The shape of error responses.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorPolicy {
    /// Registry and version before the ids of standard messages; empty for none.
    pub registry: String,
    /// The shape of the error body.
    pub shape: ErrorShape,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        Self { registry: "Base.1.18".to_owned(), shape: ErrorShape::Standard }
    }
}

/// The shape of an error body.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorShape {
    /// The error has the shape of the specification.
    #[default]
    Standard,
    /// `@Message.ExtendedInfo` is an object.
    InfoIsObject,
    /// `@Message.ExtendedInfo` at the top level, no `error`.
    NoEnvelope,
    /// The error has no `error.code`.
    NoCode,
    /// The error has `error.code` and `error.message` only.
    NoInfo,
    /// Plain text declared as JSON.
    Text,
}
