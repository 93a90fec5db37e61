//! The audit log of a store: recording, reading, and pruning up to an anchor.
//!
//! ```text
//!   prune:  entries 1 .. k          k+1 .. n             one transaction: anchor = k; delete 1 .. k;
//!           deleted, anchor = k:hash   stay, verify      append "audit.prune" on "entry/k:hash"
//! ```
//!
//! Invariants: the newest entry is never pruned without an entry after it; the anchor is in the chain, as the target of the
//! entry that records the pruning.

use rusqlite::{ToSql, params};

use super::audit_rows::{anchor, append, head, head_at, select};
use super::rows::{execute, first};
use super::{Store, StoreError};
use model::Time;
use model::audit::{ActorKind, AuditActor, AuditEntry, AuditHead, NewAuditEntry, PRUNED};

/// A filter for entries, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only entries of the actor with this name.
    pub actor: Option<String>,
    /// Only this action; with `.*` at its end every action that begins so.
    pub action: Option<String>,
    /// Only this target; with `/*` at its end every target that begins so.
    pub target: Option<String>,
    /// Only entries of this time or later.
    pub since: Option<Time>,
    /// Only entries with a smaller number.
    pub before: Option<u64>,
    /// The maximum of entries to return.
    pub limit: u32,
}

/// How much of the audit log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRetention {
    /// Entries before this time may be pruned.
    pub before: Option<Time>,
    /// The maximum of entries.
    pub entries: u64,
    /// Fewer entries than this are not worth a pruning.
    pub at_least: u64,
    /// The maximum of entries that one transaction prunes.
    pub at_most: u64,
}

impl Store {
    /// Records entries that belong to no change of this store. Returns when they are durable.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn record_audit(&self, entries: Vec<NewAuditEntry>) -> Result<(), StoreError> {
        const OPERATION: &str = "record audit entries";
        if entries.is_empty() {
            return Ok(());
        }
        self.writer
            .write(OPERATION, move |connection| {
                entries.iter().try_for_each(|entry| append(connection, OPERATION, entry).map(drop))
            })
            .await
    }

    /// Entries of the audit log, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
        const OPERATION: &str = "read the audit log";
        self.read(OPERATION, move |connection| {
            let (action, actions) = exact_or_prefix(filter.action);
            let (target, targets) = exact_or_prefix(filter.target);
            let before = filter.before.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
            let since = filter.since.map(|time| time.to_string());
            let parameters: &[&dyn ToSql] =
                params![filter.actor, action, actions, target, targets, since, before, filter.limit];
            select(
                connection,
                OPERATION,
                "WHERE (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2)
                 AND (?3 IS NULL OR substr(action, 1, length(?3)) = ?3) AND (?4 IS NULL OR target = ?4)
                 AND (?5 IS NULL OR substr(target, 1, length(?5)) = ?5) AND (?6 IS NULL OR time >= ?6)
                 AND (?7 IS NULL OR seq < ?7) ORDER BY seq DESC LIMIT ?8",
                parameters,
            )
        })
        .await
    }

    /// The newest entry of the audit log.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        const OPERATION: &str = "read the head of the audit log";
        self.read(OPERATION, move |connection| head(connection, OPERATION)).await
    }

    /// Prunes the oldest entries and records that. Returns the number of pruned entries; zero when nothing is due.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is pruned then.
    pub async fn prune_audit(&self, keep: AuditRetention, now: Time) -> Result<u64, StoreError> {
        const OPERATION: &str = "prune the audit log";
        self.writer
            .write(OPERATION, move |connection| {
                let (from, newest) = (anchor(connection, OPERATION)?.seq, head(connection, OPERATION)?.seq);
                let by_number = newest.saturating_sub(keep.entries);
                let by_age = match keep.before {
                    None => 0,
                    // Numbers grow with time except for a clock that was set back: the prefix of entries that are all old.
                    Some(time) => first(
                        connection,
                        OPERATION,
                        "SELECT seq FROM audit_log WHERE time >= ?1 ORDER BY seq LIMIT 1",
                        &[&time.to_string()],
                        |columns| columns.count("seq"),
                    )?
                    .map_or(newest, |first_kept| first_kept.saturating_sub(1)),
                };
                let end = by_number.max(by_age);
                let due = end.saturating_sub(from);
                if due == 0 || due < keep.at_least {
                    return Ok(0);
                }
                let end = end.min(from.saturating_add(keep.at_most));
                let Some(last) = head_at(connection, OPERATION, end)? else { return Ok(0) };
                let pruned = end - from;
                let seq = i64::try_from(last.seq).unwrap_or(i64::MAX);
                append(connection, OPERATION, &pruning(last, pruned, now))?;
                execute(
                    connection,
                    OPERATION,
                    "INSERT INTO audit_anchor (one, seq, hash) VALUES (1, ?1, ?2)
                     ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
                    params![seq, last.hash.to_string()],
                )?;
                execute(connection, OPERATION, "DELETE FROM audit_log WHERE seq <= ?1", &[&seq])?;
                Ok(pruned)
            })
            .await
    }
}

/// The entry that records a pruning.
fn pruning(last: AuditHead, pruned: u64, now: Time) -> NewAuditEntry {
    let mut entry = NewAuditEntry::new(now, AuditActor::new(ActorKind::Controller, "controller"), PRUNED);
    entry.target = model::audit::anchor_target(last);
    entry.count = pruned;
    entry
}

/// A filter as an exact text, or as a prefix with a star behind it.
fn exact_or_prefix(text: Option<String>) -> (Option<String>, Option<String>) {
    match text {
        Some(text) => match text.strip_suffix('*') {
            Some(prefix) => (None, Some(prefix.to_owned())),
            None => (Some(text), None),
        },
        None => (None, None),
    }
}
