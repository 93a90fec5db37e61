//! The gates in front of many runs: the name of the first closed one as SQL, in the order of [`Store::gate`](super::Store::gate).
//!
//! Invariant: for every run the name is that of the gate that `Store::gate` returns; a shortage, which is not in the database, is the
//! last gate.

/// The stored setting of a drain. While it exists, no job starts.
pub(super) const DRAIN: &str = "drain";

/// The name of the closed gate in front of a row of `runs`; NULL when no gate is closed, and for a run that has started. `pressure`
/// says whether there is a shortage.
pub(super) fn name_of_gate(pressure: bool) -> String {
    let pressure = if pressure { "'pressure'" } else { "NULL" };
    format!(
        "CASE
         WHEN runs.lease_epoch > 0 OR runs.phase NOT IN ('queued', 'running', 'waiting', 'held') THEN NULL
         WHEN EXISTS (SELECT 1 FROM settings AS gate WHERE gate.key = '{DRAIN}') THEN 'drain'
         WHEN runs.purpose = 'change' AND EXISTS (SELECT 1 FROM servers AS gate
             WHERE gate.serial = runs.server AND gate.maintenance IS NOT NULL) THEN 'maintenance'
         WHEN runs.batch <> '' AND EXISTS (SELECT 1 FROM batches AS gate
             WHERE gate.id = runs.batch AND gate.gate = 'stopped') THEN 'batch-stopped'
         WHEN runs.batch <> '' AND runs.canary = 0 AND EXISTS (SELECT 1 FROM batches AS gate
             WHERE gate.id = runs.batch AND gate.gate = 'canary') THEN 'batch-canary'
         ELSE {pressure} END"
    )
}
