//! The audit log of the controller: which actions it has, and how an entry is recorded.
//!
//! ```text
//!   request that changes something ── api::request_audit ──> one entry, in the transaction of its first change
//!   refused request ──────────────── RefusedAttempts ──────> one entry, then sums of five minutes
//!   change of the registry ────────── app::registry ───────> one entry, durable before the response
//!   anything else ─────────────────── record ──────────────> one entry
//! ```
//!
//! Another action is one row of [`AuditAction`]; a route that changes something is a row of [`AuditAction::of_route`] too. The
//! chain and the table are `model::audit` and `store`.
//!
//! Invariant: an entry has no secret. A name that a client chose freely is recorded only if it has the form of a name
//! ([`name_of`]).

mod action;
mod refused;

use model::Time;
use model::audit::{ActorKind, AuditActor, NewAuditEntry};
use store::{Store, StoreError};

pub use action::AuditAction;
pub use refused::RefusedAttempts;

/// The maximum of characters of a name in a target: a repository of 200, a colon, and a tag of 128.
const MAX_NAME: usize = 329;

/// Records what `actor` did, such as `record(store, AuditAction::SettingsReload, &controller(), "settings/reloaded", "ok", now)`.
/// Returns when the entry is durable. A request does not call this: its entry is recorded with its change.
///
/// # Errors
/// When the entry cannot be stored. What was done must not be reported as done then.
pub async fn record(
    store: &Store,
    action: AuditAction,
    actor: &AuditActor,
    (kind, name): (&str, &str),
    result: &str,
    now: Time,
) -> Result<(), StoreError> {
    let entry = NewAuditEntry::new(now, actor.clone(), action.as_str()).on(kind, &name_of(name));
    store.record_audit(vec![entry.with_result(result)]).await
}

/// The controller as an actor.
pub fn controller() -> AuditActor {
    AuditActor::new(ActorKind::Controller, "controller")
}

/// A command on the machine of the controller as an actor, with the user that ran it.
pub fn local() -> AuditActor {
    let user = rustix::process::getuid().as_raw();
    AuditActor::new(ActorKind::Local, "local").with_id(&format!("uid {user}"))
}

/// The entry of a successful command on the machine of the controller.
pub fn local_entry(action: AuditAction, kind: &str, name: &str, now: Time) -> NewAuditEntry {
    NewAuditEntry::new(now, local(), action.as_str()).on(kind, &name_of(name))
}

/// A name for a target; `?` for a text that has not the form of a name, or that may be a token in the wrong place.
pub fn name_of(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@:/+ ".contains(&byte);
    let is_name = !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(plain);
    // API tokens begin so, and a JWT has two dots between long parts.
    let may_be_jwt = text.len() > 40 && text.starts_with("ey") && text.matches('.').count() == 2;
    let may_be_token = may_be_jwt || text.contains(crate::auth::API_TOKEN_PREFIX);
    if is_name && !may_be_token { text.to_owned() } else { "?".to_owned() }
}
