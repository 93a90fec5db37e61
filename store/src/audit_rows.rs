//! The rows of the audit log: appending in the transaction of a change, and reading in order.

use rusqlite::{Connection, ToSql, params};

use super::StoreError;
use super::rows::{Columns, all, execute, first};
use model::audit::{AuditEntry, AuditHead, NewAuditEntry};

const COLUMNS: &str = "seq, time, actor_kind, actor, actor_id, source, action, target, result, request_id, count, previous, hash";

/// Appends an entry to the chain. The caller's transaction holds the lock for writing, so the newest row stays the newest.
pub(super) fn append(
    connection: &Connection,
    operation: &'static str,
    new: &NewAuditEntry,
) -> Result<AuditHead, StoreError> {
    let entry = new.after(head(connection, operation)?);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    execute(
        connection,
        operation,
        &format!(
            "INSERT INTO audit_log ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
        ),
        params![
            number(entry.seq),
            entry.time.to_string(),
            entry.actor_kind.as_str(),
            entry.actor,
            entry.actor_id,
            entry.source,
            entry.action,
            entry.target,
            entry.result,
            entry.request_id,
            number(entry.count),
            entry.previous.to_string(),
            entry.hash.to_string(),
        ],
    )?;
    Ok(entry.head())
}

/// The newest entry, or what the first one will follow.
pub(super) fn head(connection: &Connection, operation: &'static str) -> Result<AuditHead, StoreError> {
    let newest = "SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1";
    match first(connection, operation, newest, &[], head_of)? {
        Some(head) => Ok(head),
        None => anchor(connection, operation),
    }
}

/// The last pruned entry; the genesis when none was pruned.
pub(super) fn anchor(connection: &Connection, operation: &'static str) -> Result<AuditHead, StoreError> {
    let anchor = first(connection, operation, "SELECT seq, hash FROM audit_anchor", &[], head_of)?;
    Ok(anchor.unwrap_or_else(AuditHead::genesis))
}

/// The number and hash of one entry.
pub(super) fn head_at(
    connection: &Connection,
    operation: &'static str,
    seq: u64,
) -> Result<Option<AuditHead>, StoreError> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    first(connection, operation, "SELECT seq, hash FROM audit_log WHERE seq = ?1", &[&seq], head_of)
}

/// Entries that a condition selects. The condition ends with an order and a limit.
pub(super) fn select(
    connection: &Connection,
    operation: &'static str,
    condition: &str,
    parameters: &[&dyn ToSql],
) -> Result<Vec<AuditEntry>, StoreError> {
    all(connection, operation, &format!("SELECT {COLUMNS} FROM audit_log {condition}"), parameters, entry)
}

fn head_of(columns: &Columns<'_>) -> Result<AuditHead, StoreError> {
    Ok(AuditHead { seq: columns.count("seq")?, hash: columns.parse("hash", str::parse)? })
}

fn entry(columns: &Columns<'_>) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        seq: columns.count("seq")?,
        time: columns.time("time")?,
        actor_kind: columns.parse("actor_kind", |name| {
            name.parse().map_err(|_unknown: strum::ParseError| format!("unknown kind of actor {name:?}"))
        })?,
        actor: columns.get("actor")?,
        actor_id: columns.get("actor_id")?,
        source: columns.get("source")?,
        action: columns.get("action")?,
        target: columns.get("target")?,
        result: columns.get("result")?,
        request_id: columns.get("request_id")?,
        count: columns.count("count")?,
        previous: columns.parse("previous", str::parse)?,
        hash: columns.parse("hash", str::parse)?,
    })
}
