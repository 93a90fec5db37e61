//! The audit log: who did what to what, from where, with what result; and the check that it is complete.
//!
//! ```text
//!   genesis ──previous──> entry 1 ──hash──> entry 2 ──hash──> ...  ──hash──> entry n = head
//!                         hash = SHA-256(canonical form: every member but the hash, the previous hash included)
//!
//!   after pruning:  anchor (seq and hash of the last pruned entry) ──> entry k ──> ... ──> head
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `entry` | an entry, its canonical form, and its line in an export |
//! | `hash` | hashes, heads and anchors |
//! | `chain` | the check of entries in their order |
//!
//! Invariant: an entry has no secret. Its texts come from validated names, ids, routes and stable codes.

mod chain;
mod entry;
mod hash;

pub use chain::{ChainCheck, ChainFault, ChainSummary};
pub use entry::{ActorKind, AuditActor, AuditEntry, MAX_AUDIT_TEXT, NewAuditEntry};
pub use hash::{AuditHash, AuditHead, KnownHead};

/// The action of the entry that records a pruning: its target names the anchor, see [`anchor_target`].
pub const PRUNED: &str = "audit.prune";

/// The target of the entry that records a pruning up to `anchor`.
pub fn anchor_target(anchor: AuditHead) -> String {
    format!("entry/{anchor}")
}

#[cfg(test)]
mod tests;
