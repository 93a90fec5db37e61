//! Changes of the registry in the audit log. The registry is not in the database, so an entry cannot share the transaction of
//! its change: it is durable after the change and before the response.
//!
//! ```text
//!   PUT manifest ─> blob and tag on disk ─> record ─> task: entry ─┐
//!   response <── 503 if an entry was not stored <── waits for all ─┘
//! ```
//!
//! The task of an entry does not end with its request, so that a client that is gone is recorded too.

use std::sync::Arc;

use registry::{AuditEvent, Audited, Denied};

use super::access::JOB_PREFIX;
use super::waiting::before_response;
use access::audit::{AuditAction, RefusedAttempts, name_of};
use model::audit::{ActorKind, AuditActor, NewAuditEntry};
use model::{Clock, error_chain};
use store::{Store, StoreError};

/// Records changes and refusals of the registry in the audit log.
pub(super) struct RegistryAuditLog {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) refused: Arc<RefusedAttempts>,
}

impl RegistryAuditLog {
    /// Records an event. It never waits; the response to the request does.
    pub(super) fn record(&self, event: &AuditEvent) {
        let entry = self.entry(event);
        if matches!(event.what, Audited::Denied(..)) {
            self.refused.count(entry);
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let store = self.store.clone();
        let recorded = runtime.spawn(async move {
            let entry = with_kind(&store, entry).await?;
            store.record_audit(vec![entry]).await.inspect_err(|error| {
                tracing::error!(error = %error_chain(error), "a change of the registry was not stored in the audit log");
            })
        });
        before_response(recorded);
    }

    fn entry(&self, event: &AuditEvent) -> NewAuditEntry {
        let actor = match event.subject.as_deref() {
            Some(name) => match name.strip_prefix(JOB_PREFIX) {
                Some(id) => AuditActor::new(ActorKind::Job, "pull").with_id(id),
                None => AuditActor::new(ActorKind::User, name),
            },
            None if matches!(event.what, Audited::Denied(..)) => AuditActor::unknown(),
            None => AuditActor::new(ActorKind::Open, "anonymous"),
        };
        let source =
            event.peer.map_or_else(|| "local".to_owned(), |peer| peer.ip().to_canonical().to_string());
        let repository = event.repository.as_ref().map(ToString::to_string).unwrap_or_default();
        let reference = event.reference.as_ref().map(ToString::to_string);
        let digest = event.digest.as_ref().map(ToString::to_string);
        let content = match (reference, digest) {
            (Some(tag), Some(digest)) if tag != digest => format!(":{tag}@{digest}"),
            (Some(one), _) if one.contains(':') => format!("@{one}"),
            (Some(tag), _) => format!(":{tag}"),
            (None, Some(digest)) => format!("@{digest}"),
            (None, None) => String::new(),
        };
        let target = match event.what {
            // The repository of a refused request may be any text.
            Audited::Denied(..) => name_of(&repository),
            _ => format!("{repository}{content}"),
        };
        let result = match event.what {
            Audited::Denied(_, why) => why_name(why),
            _ => "ok",
        };
        NewAuditEntry::new(self.clock.now(), actor, action_of(event.what).as_str())
            .from_source(&source)
            .on("repository", &target)
            .with_result(result)
    }
}

/// The entry with the kind of its actor: users and API tokens share one space of names.
async fn with_kind(store: &Store, mut entry: NewAuditEntry) -> Result<NewAuditEntry, StoreError> {
    if entry.actor.kind == ActorKind::User
        && let Some(token) = store.api_token_named(&entry.actor.name).await?
    {
        entry.actor = AuditActor::new(ActorKind::Token, &token.name).with_id(&token.id);
    }
    Ok(entry)
}

fn action_of(what: Audited) -> AuditAction {
    match what {
        Audited::PushBlob => AuditAction::RegistryPushBlob,
        Audited::MountBlob => AuditAction::RegistryMountBlob,
        Audited::PushManifest => AuditAction::RegistryPushManifest,
        Audited::PushTag => AuditAction::RegistryPushTag,
        Audited::DeleteBlob => AuditAction::RegistryDeleteBlob,
        Audited::DeleteManifest => AuditAction::RegistryDeleteManifest,
        Audited::DeleteTag => AuditAction::RegistryDeleteTag,
        Audited::Denied(..) => AuditAction::RegistryRefused,
    }
}

/// The stable code of a refusal.
pub(super) fn why_name(why: Denied) -> &'static str {
    match why {
        Denied::Unauthorized => "unauthorized",
        Denied::OutOfScope => "out_of_scope",
        Denied::Forbidden => "forbidden",
        Denied::RateLimited => "rate_limited",
        Denied::Unavailable => "unavailable",
    }
}
