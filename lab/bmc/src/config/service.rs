//! The protocol side of a vendor: sessions, resources, ETags, answers, tasks, errors.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;

/// Sessions and lock-out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionPolicy {
    /// Whether there are sessions at all.
    pub offered: bool,
    /// Sessions at a time; a further login is answered with 503.
    pub limit: usize,
    /// The `MessageId` of that answer.
    pub limit_message: String,
    /// A session unused for this long is gone.
    #[serde(with = "time")]
    pub timeout: Duration,
    /// Whether Basic authentication is taken.
    pub basic: bool,
    /// After so many wrong passwords in a row the account is locked; `None` never.
    pub lockout_after: Option<u32>,
    /// How long it is locked.
    #[serde(with = "time")]
    pub lockout_time: Duration,
    /// Whether a login is answered with a `Location`; else the session is named in the body only.
    pub location: bool,
    /// What a login has to have below `Oem`.
    pub login_oem: Option<LoginOem>,
    /// Whether the account has to change its password before it may do anything else.
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
    /// Its value.
    pub value: String,
}

/// Paths, collections and what else the service has.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServicePolicy {
    /// Whether a path without a final slash is answered with 308.
    pub slash_redirect: bool,
    /// Whether paths are taken in any case.
    pub any_case: bool,
    /// Whether `$expand` is offered for collections.
    pub expand: bool,
    /// Members in one page of a collection; `None` is all.
    pub page: Option<usize>,
    /// The name of the collection of slots in its path.
    pub slots_name: String,
    /// Whether the manager links to the slots of the system, having none itself.
    pub manager_links_system_slots: bool,
    /// Whether there is a chassis.
    pub chassis: bool,
    /// Whether there is an update service, and what is installed.
    pub firmware: Vec<FirmwareItem>,
    /// Systems behind the same BMC that are not the host.
    pub extra_systems: Vec<ExtraSystem>,
    /// Paths with an answer of their own.
    pub odd: Vec<OddPath>,
    /// Whether TLS ends at version 1.0: every handshake fails.
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
            odd: Vec::new(),
            legacy_tls: false,
        }
    }
}

/// One member of the firmware inventory.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FirmwareItem {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether it can be updated.
    #[serde(default)]
    pub updateable: bool,
}

/// A system that is not the host: a baseboard, an accelerator tray.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraSystem {
    /// Its id.
    pub id: String,
    /// Whether it comes before the host in the collection.
    #[serde(default)]
    pub first: bool,
    /// Whether it has a `Boot` object (with nothing in it that can be set).
    #[serde(default)]
    pub boot: bool,
    /// What a GET of it is answered with while the host is off.
    #[serde(default)]
    pub status_while_off: Option<u16>,
}

/// A path with an answer of its own.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OddPath {
    /// The end of the path.
    pub ends_with: String,
    /// The status.
    pub status: u16,
}

/// How ETags are given and what is asked of `If-Match`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EtagPolicy {
    /// What a GET gives.
    pub kind: EtagKind,
    /// What a PATCH needs.
    pub if_match: IfMatch,
}

impl Default for EtagPolicy {
    fn default() -> Self {
        Self { kind: EtagKind::Strong, if_match: IfMatch::Optional }
    }
}

/// What ETag a GET gives.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EtagKind {
    /// `"5"`.
    Strong,
    /// `W/"5"`, which matches itself.
    Weak,
    /// `W/"5"`, of which only the strong form `"5"` matches.
    WeakMatchesStrong,
    /// The header is there and empty.
    Empty,
    /// None.
    Absent,
}

/// What a PATCH needs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IfMatch {
    /// Checked if it is there.
    Optional,
    /// Not looked at.
    Ignored,
    /// 428 without it.
    Required,
    /// 412 without it.
    RequiredSays412,
    /// 412 unless it is `*`.
    OnlyStar,
}

/// What a success is answered with.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerPolicy {
    /// A PATCH of the system or its settings.
    pub patch: Success,
    /// A reset.
    pub reset: Success,
    /// An insert.
    pub insert: Success,
    /// An eject.
    pub eject: Success,
}

/// One success.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Success {
    /// 204.
    #[default]
    NoContent,
    /// 200 and the message `Success`, as an error would be told.
    Message,
    /// 200 and `{"Success": …}`.
    SuccessObject,
    /// 200 and the resource as it is now.
    Resource,
    /// 202, and nothing that could be followed.
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

/// How tasks run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskPolicy {
    /// What comes before the number in an id.
    pub prefix: String,
    /// The least time a task takes.
    #[serde(with = "time")]
    pub time: Duration,
    /// `TaskState` while it runs.
    pub running: String,
    /// `TaskState` when it went well.
    pub completed: String,
    /// What the task monitor answers when it is over.
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

/// What a task monitor answers when the task is over.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorAfter {
    /// What the operation itself would have answered.
    Result,
    /// 404.
    Gone,
    /// 202 with a task that is completed.
    StillAccepted,
}

/// How errors look.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorPolicy {
    /// The registry and version before the ids of standard messages; empty is none.
    pub registry: String,
    /// The shape of the body.
    pub shape: ErrorShape,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        Self { registry: "Base.1.18".to_owned(), shape: ErrorShape::Standard }
    }
}

/// The shape of an error's body.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorShape {
    /// As the specification has it.
    #[default]
    Standard,
    /// `@Message.ExtendedInfo` is an object.
    InfoIsObject,
    /// `@Message.ExtendedInfo` at the top, no `error`.
    NoEnvelope,
    /// Without `error.code`.
    NoCode,
    /// Only `error.code` and `error.message`.
    NoInfo,
    /// Plain text that says it is JSON.
    Text,
}
