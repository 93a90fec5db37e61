//! An entry of the audit log, its canonical form, and its line in an export.
//!
//! ```text
//!   {"seq":7,"time":"…","actor_kind":"user","actor":"ann","actor_id":"","source":"192.0.2.1","action":"user.create",
//!    "target":"user/bob","result":"ok","request_id":"…","count":1,"previous":"…"}                     canonical form
//!   the same with ,"hash":"…"} at its end                                                              line of an export
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hash::{AuditHash, AuditHead};
use crate::time::Time;

/// The longest text of an entry in characters; a longer one is cut.
pub const MAX_AUDIT_TEXT: usize = 256;

/// The kind of an actor.
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
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ActorKind {
    /// A user with a password.
    User,
    /// An API token.
    Token,
    /// A caller with a JWT of another system.
    Jwt,
    /// A browser with a web session; the name is that of its user or token.
    Session,
    /// A caller with a client certificate.
    Certificate,
    /// A job, by its report token or its pull password.
    Job,
    /// An installation that reported with the shared secret.
    Secret,
    /// A caller without credentials, where none are required.
    Open,
    /// A command on the machine of the controller.
    Local,
    /// The controller itself.
    Controller,
    /// A caller whose credentials were refused or missing.
    Unknown,
}

impl ActorKind {
    /// The name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The actor of an audit entry: who made a request or ran a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuditActor {
    /// The kind of the actor.
    pub kind: ActorKind,
    /// The name of the user or token, or the `sub` of a JWT; empty for an unknown caller.
    pub name: String,
    /// The id of the token or job; empty for actors that have none.
    pub id: String,
}

impl AuditActor {
    /// An actor without an id.
    pub fn new(kind: ActorKind, name: &str) -> Self {
        Self { kind, name: bounded(name), id: String::new() }
    }

    /// Sets the id of the token or job.
    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = bounded(id);
        self
    }

    /// A caller whose credentials were refused or missing. The name that it gave is not recorded: it may be a password in the
    /// wrong field.
    pub fn unknown() -> Self {
        Self::new(ActorKind::Unknown, "")
    }
}

/// An entry to be recorded. The store gives the entry its number and its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAuditEntry {
    /// When the request or command began.
    pub time: Time,
    /// The actor who made the request or ran the command.
    pub actor: AuditActor,
    /// The address of the client; `local` for the machine of the controller.
    pub source: String,
    /// The action: a stable dotted name, such as `user.create`.
    pub action: &'static str,
    /// The object of the action, such as `server/SERIAL`; empty when the action has no target.
    pub target: String,
    /// `ok`, or the stable code of the error.
    pub result: String,
    /// The id of the request; empty outside of requests.
    pub request_id: String,
    /// The number of attempts for which the entry stands: 1, or the number of refused attempts that it sums.
    pub count: u64,
}

impl NewAuditEntry {
    /// A successful action on the machine of the controller.
    pub fn new(time: Time, actor: AuditActor, action: &'static str) -> Self {
        Self {
            time,
            actor,
            source: "local".to_owned(),
            action,
            target: String::new(),
            result: "ok".to_owned(),
            request_id: String::new(),
            count: 1,
        }
    }

    /// Sets the address of the client.
    #[must_use]
    pub fn from_source(mut self, source: &str) -> Self {
        self.source = bounded(source);
        self
    }

    /// Sets the target: its kind and its name.
    #[must_use]
    pub fn on(mut self, kind: &str, name: &str) -> Self {
        self.target = bounded(&format!("{kind}/{name}"));
        self
    }

    /// Sets the result.
    #[must_use]
    pub fn with_result(mut self, result: &str) -> Self {
        self.result = bounded(result);
        self
    }

    /// Sets the id of the request.
    #[must_use]
    pub fn of_request(mut self, id: &str) -> Self {
        self.request_id = bounded(id);
        self
    }

    /// The entry that follows `head`.
    pub fn after(&self, head: AuditHead) -> AuditEntry {
        let mut entry = AuditEntry {
            seq: head.seq + 1,
            time: self.time,
            actor_kind: self.actor.kind,
            actor: self.actor.name.clone(),
            actor_id: self.actor.id.clone(),
            source: self.source.clone(),
            action: self.action.to_owned(),
            target: self.target.clone(),
            result: self.result.clone(),
            request_id: self.request_id.clone(),
            count: self.count,
            previous: head.hash,
            hash: head.hash,
        };
        entry.hash = entry.computed_hash();
        entry
    }
}

/// A recorded entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEntry {
    /// The number of the entry, from 1 without a gap.
    pub seq: u64,
    /// When the request or command began.
    pub time: Time,
    /// The kind of the actor.
    pub actor_kind: ActorKind,
    /// The name of the actor.
    pub actor: String,
    /// The id of the actor's token or job.
    pub actor_id: String,
    /// The address of the client, or `local`.
    pub source: String,
    /// The action, such as `user.create`.
    pub action: String,
    /// The object of the action, such as `server/SERIAL`.
    pub target: String,
    /// `ok`, or the stable code of the error.
    pub result: String,
    /// The id of the request.
    pub request_id: String,
    /// The number of attempts for which the entry stands.
    pub count: u64,
    /// The hash of the entry before.
    pub previous: AuditHash,
    /// The hash of the canonical form.
    pub hash: AuditHash,
}

impl AuditEntry {
    /// The number and hash.
    pub fn head(&self) -> AuditHead {
        AuditHead { seq: self.seq, hash: self.hash }
    }

    /// The members of the canonical form, in its order and without its braces.
    fn members(&self) -> String {
        let text = |value: &str| Value::from(value).to_string();
        format!(
            r#""seq":{},"time":"{}","actor_kind":"{}","actor":{},"actor_id":{},"source":{},"action":{},"target":{},"result":{},"request_id":{},"count":{},"previous":"{}""#,
            self.seq,
            self.time,
            self.actor_kind.as_str(),
            text(&self.actor),
            text(&self.actor_id),
            text(&self.source),
            text(&self.action),
            text(&self.target),
            text(&self.result),
            text(&self.request_id),
            self.count,
            self.previous,
        )
    }

    /// The hash of the canonical form.
    pub fn computed_hash(&self) -> AuditHash {
        AuditHash::of(&format!("{{{}}}", self.members()))
    }

    /// The entry as a line of an export, without the line feed.
    pub fn to_line(&self) -> String {
        format!(r#"{{{},"hash":"{}"}}"#, self.members(), self.hash)
    }

    /// The entry of a line of an export.
    ///
    /// # Errors
    /// When the line is not the text that [`Self::to_line`] returns for its entry: with another spelling, two texts would have
    /// one hash.
    pub fn of_line(line: &str) -> Result<Self, String> {
        let entry: Self = serde_json::from_str(line).map_err(|why| format!("it is no entry: {why}"))?;
        match entry.to_line() == line {
            true => Ok(entry),
            false => Err("it is not in the form that shoal audit export writes".to_owned()),
        }
    }
}

/// A text of an entry: no control characters, and not longer than [`MAX_AUDIT_TEXT`].
fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_AUDIT_TEXT).collect()
}
