//! The audit entry of the request or command that is being handled. The first transaction of its task that changes a row
//! records the entry too.
//!
//! ```text
//!   request ── audited(trail) ──> handler: who, on what ──> write ── same transaction ──> change + entry     trail: recorded
//!                                        └─ no row changed, or no write ─────────────────────────────────> trail: open
//!   the caller of `audited` records an open trail itself, with its result, before the response is sent
//! ```
//!
//! A trail is known to the task, without a parameter in every layer between the route and the database. Writes of other tasks,
//! such as those of workers, have none.

use std::sync::Arc;

use parking_lot::Mutex;

use model::audit::{AuditActor, NewAuditEntry};

tokio::task_local! {
    static CURRENT: Arc<AuditTrail>;
}

/// The entry of one request or command, until it is recorded.
#[derive(Debug)]
pub struct AuditTrail(Mutex<TrailState>);

#[derive(Debug)]
struct TrailState {
    entry: NewAuditEntry,
    /// Whether a change records the entry: the actor is known, and the request is one that changes something.
    changes: bool,
    identified: bool,
    recorded: bool,
}

impl AuditTrail {
    /// A trail whose actor is not known yet. `changes`: what is done changes something, so that its first change records the
    /// entry.
    pub fn new(entry: NewAuditEntry, changes: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(TrailState { entry, changes, identified: false, recorded: false })))
    }

    /// Sets the actor. Changes before this, such as the time of the last use of a token, record no entry.
    pub fn identify(&self, actor: AuditActor) {
        let mut state = self.0.lock();
        state.entry.actor = actor;
        state.identified = true;
    }

    /// Sets the target: its kind and its name.
    pub fn target(&self, kind: &str, name: &str) {
        let mut state = self.0.lock();
        let entry = state.entry.clone();
        state.entry = entry.on(kind, name);
    }

    /// Marks a request that changes nothing, such as a dry run, so that no change records the entry.
    pub fn changes_nothing(&self) {
        self.0.lock().changes = false;
    }

    /// Whether the actor is known.
    pub fn is_identified(&self) -> bool {
        self.0.lock().identified
    }

    /// Whether a change by a known actor was not recorded yet.
    pub fn is_open(&self) -> bool {
        let state = self.0.lock();
        state.changes && state.identified && !state.recorded
    }

    /// Whether a change was recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.lock().recorded
    }

    /// The entry with a result.
    pub fn entry(&self, result: &str) -> NewAuditEntry {
        self.0.lock().entry.clone().with_result(result)
    }

    /// The entry is durable.
    pub fn recorded(&self) {
        self.0.lock().recorded = true;
    }
}

/// Carries out `work`; its first change records the entry of `trail` in the same transaction.
pub async fn audited<T>(trail: Arc<AuditTrail>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(trail, work).await
}

/// The trail of the current task.
pub fn audit_trail() -> Option<Arc<AuditTrail>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// The open trail of the current task, with its entry.
pub(super) fn pending() -> Option<(Arc<AuditTrail>, NewAuditEntry)> {
    let trail = audit_trail().filter(|trail| trail.is_open())?;
    let entry = trail.entry("ok");
    Some((trail, entry))
}
