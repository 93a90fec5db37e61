//! Conversion between rows and values, shared by all files of the store.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rusqlite::types::FromSql;
use rusqlite::{Connection, Row, ToSql, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;
use super::sealing::unopened;
use model::{
    JobRecipe, Lease, NewEvent, Outcome, Phase, Position, Purpose, Run, RunId, Serial, Signal, Snapshot,
    Stage, StepName, StepPhase, StepRecord, Time, WorkflowVersion,
};

/// The columns of `runs` in the order [`run`] reads them.
pub(super) const RUN: &str = "runs.id, runs.workflow, runs.workflow_version, runs.server, runs.parent, runs.root, runs.purpose, \
     runs.phase, runs.outcome, runs.step, runs.wait, runs.hold, runs.failure, runs.queue, runs.priority, runs.next_run_at, \
     runs.deadline_at, runs.progress_at, runs.lease_owner, runs.lease_expires_at, runs.lease_epoch, \
     runs.last_worker, runs.cancel_requested_at, runs.restored, runs.created_by, runs.revision, runs.created_at, runs.updated_at";

/// The indexes of the columns of one query, in the order in which a row is read. All rows are read in one order, so a name is
/// looked up once per query, not once per row. A lookup compares the name of every column.
#[derive(Default)]
struct ColumnIndexes {
    found: RefCell<Vec<(&'static str, usize)>>,
    next: Cell<usize>,
}

/// Reads the columns of a row by name. An error names the column.
pub(super) struct Columns<'a> {
    row: &'a Row<'a>,
    operation: &'static str,
    indexes: &'a ColumnIndexes,
}

impl<'a> Columns<'a> {
    fn new(row: &'a Row<'a>, operation: &'static str, indexes: &'a ColumnIndexes) -> Self {
        indexes.next.set(0);
        Self { row, operation, indexes }
    }

    /// The column `step`, which must not be NULL.
    pub(super) fn step(&self) -> Result<StepName, StoreError> {
        self.get::<String>("step").map(StepName::from)
    }

    /// The column `step`; `None` when it is NULL.
    pub(super) fn optional_step(&self) -> Result<Option<StepName>, StoreError> {
        Ok(self.get::<Option<String>>("step")?.map(StepName::from))
    }

    pub(super) fn get<T: FromSql>(&self, column: &'static str) -> Result<T, StoreError> {
        let index = self.index(column)?;
        self.row.get(index).map_err(|source| StoreError::sqlite(self.operation, source))
    }

    fn index(&self, column: &'static str) -> Result<usize, StoreError> {
        let next = self.indexes.next.get();
        self.indexes.next.set(next + 1);
        let mut found = self.indexes.found.borrow_mut();
        if let Some((name, index)) = found.get(next)
            && *name == column
        {
            return Ok(*index);
        }
        let index = self.row.as_ref().column_index(column);
        let index = index.map_err(|source| StoreError::sqlite(self.operation, source))?;
        found.truncate(next);
        found.push((column, index));
        Ok(index)
    }

    pub(super) fn parse<T, E>(
        &self,
        column: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, StoreError>
    where
        E: std::fmt::Display,
    {
        parse(self.text(column)?).map_err(|why| self.corrupt(column, why.to_string()))
    }

    pub(super) fn parse_opt<T, E>(
        &self,
        column: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, StoreError>
    where
        E: std::fmt::Display,
    {
        self.text_opt(column)?
            .map(|text| parse(text).map_err(|why| self.corrupt(column, why.to_string())))
            .transpose()
    }

    /// The text of a column, borrowed from the row.
    pub(super) fn text(&self, column: &'static str) -> Result<&'a str, StoreError> {
        self.text_opt(column)?.ok_or_else(|| self.corrupt(column, "it is NULL".to_owned()))
    }

    /// The text of a column, borrowed from the row; `None` for NULL.
    pub(super) fn text_opt(&self, column: &'static str) -> Result<Option<&'a str>, StoreError> {
        let index = self.index(column)?;
        let value = self.row.get_ref(index).map_err(|source| StoreError::sqlite(self.operation, source))?;
        value.as_str_or_null().map_err(|why| self.corrupt(column, why.to_string()))
    }

    pub(super) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        self.parse(column, |text| serde_json::from_str(text))
    }

    pub(super) fn json_opt<T: DeserializeOwned>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, StoreError> {
        self.parse_opt(column, |text| serde_json::from_str(text))
    }

    /// A number that must not be negative.
    pub(super) fn count(&self, column: &'static str) -> Result<u64, StoreError> {
        let number: i64 = self.get(column)?;
        u64::try_from(number).map_err(|_| self.corrupt(column, format!("{number} is negative")))
    }

    pub(super) fn time(&self, column: &'static str) -> Result<Time, StoreError> {
        self.parse(column, str::parse)
    }

    pub(super) fn time_opt(&self, column: &'static str) -> Result<Option<Time>, StoreError> {
        self.parse_opt(column, str::parse)
    }

    /// The error for a column with unreadable content.
    pub(super) fn corrupt(&self, column: &'static str, detail: String) -> StoreError {
        StoreError::Corrupt { operation: self.operation, column, detail }
    }
}

/// A read transaction. All reads until it is dropped see the database at one point in time.
pub(super) struct ReadSnapshot<'a>(&'a Connection);

impl<'a> ReadSnapshot<'a> {
    pub(super) fn begin(connection: &'a Connection, operation: &'static str) -> Result<Self, StoreError> {
        execute(connection, operation, "BEGIN", &[]).map(|_changed| Self(connection))
    }
}

impl Drop for ReadSnapshot<'_> {
    fn drop(&mut self) {
        // A read transaction has nothing to commit.
        let _ended = execute(self.0, "end a read", "ROLLBACK", &[]);
    }
}

/// All rows of a query as values.
pub(super) fn all<T>(
    connection: &Connection,
    operation: &'static str,
    sql: &str,
    parameters: &[&dyn ToSql],
    read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let failed = |source| StoreError::sqlite(operation, source);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(parameters).map_err(failed)?;
    let (mut values, indexes) = (Vec::new(), ColumnIndexes::default());
    while let Some(row) = rows.next().map_err(failed)? {
        values.push(read(&Columns::new(row, operation, &indexes))?);
    }
    Ok(values)
}

/// The first row of a query as a value.
pub(super) fn first<T>(
    connection: &Connection,
    operation: &'static str,
    sql: &str,
    parameters: &[&dyn ToSql],
    read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    Ok(all(connection, operation, sql, parameters, read)?.into_iter().next())
}

/// The JSON of one column of a server; `None` when the column is empty or the server is not registered.
pub(super) fn of_server<T: DeserializeOwned>(
    connection: &Connection,
    operation: &'static str,
    column: &'static str,
    serial: &Serial,
) -> Result<Option<T>, StoreError> {
    let sql = format!("SELECT {column} FROM servers WHERE serial = ?1");
    first(connection, operation, &sql, &[&serial.as_str()], |columns| columns.json_opt(column))
        .map(Option::flatten)
}

/// The JSON of one of the settings that the program stores; `None` when it was never written.
pub(super) fn of_setting<T: DeserializeOwned>(
    connection: &Connection,
    operation: &'static str,
    key: &str,
) -> Result<Option<T>, StoreError> {
    let sql = "SELECT value FROM settings WHERE key = ?1";
    first(connection, operation, sql, &[&key], |columns| columns.json("value"))
}

/// Carries out a statement and returns the number of changed rows.
pub(super) fn execute(
    connection: &Connection,
    operation: &'static str,
    sql: &str,
    parameters: &[&dyn ToSql],
) -> Result<usize, StoreError> {
    let failed = |source| StoreError::sqlite(operation, source);
    connection.prepare_cached(sql).map_err(failed)?.execute(parameters).map_err(failed)
}

/// The JSON text of a value. Serialization of our own types does not fail.
pub(super) fn to_json<T: Serialize + ?Sized>(
    operation: &'static str,
    value: &T,
) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|why| StoreError::Corrupt {
        operation,
        column: "json",
        detail: why.to_string(),
    })
}

/// Adds an error text to the parser of a closed set of names.
pub(super) fn named<T>(parse: impl Fn(&str) -> Option<T>) -> impl Fn(&str) -> Result<T, String> {
    move |text| parse(text).ok_or_else(|| format!("unknown name {text:?}"))
}

/// Reads a run from a row with the columns [`RUN`].
pub(super) fn run(columns: &Columns<'_>) -> Result<Run, StoreError> {
    let owner: Option<String> = columns.get("lease_owner")?;
    let expires_at = columns.time_opt("lease_expires_at")?;
    Ok(Run {
        id: columns.parse("id", str::parse::<RunId>)?,
        workflow: columns.get("workflow")?,
        workflow_version: WorkflowVersion(columns.get("workflow_version")?),
        server: columns.parse_opt("server", str::parse::<Serial>)?,
        parent: columns.parse_opt("parent", str::parse::<RunId>)?,
        root: columns.parse("root", str::parse::<RunId>)?,
        purpose: columns.parse("purpose", named(Purpose::parse))?,
        phase: columns.parse("phase", named(Phase::parse))?,
        outcome: columns.parse_opt("outcome", named(Outcome::parse))?,
        step: columns.optional_step()?,
        wait: columns.json_opt("wait")?,
        hold: columns.json_opt("hold")?,
        failure: columns.json_opt("failure")?,
        queue: columns.get("queue")?,
        priority: columns.get("priority")?,
        next_run_at: columns.time_opt("next_run_at")?,
        deadline_at: columns.time("deadline_at")?,
        progress_at: columns.time("progress_at")?,
        lease: owner.zip(expires_at).map(|(owner, expires_at)| Lease { owner, expires_at }),
        epoch: columns.get("lease_epoch")?,
        last_worker: columns.get("last_worker")?,
        cancel_requested_at: columns.time_opt("cancel_requested_at")?,
        restored: columns.get("restored")?,
        created_by: columns.get("created_by")?,
        revision: columns.get("revision")?,
        created_at: columns.time("created_at")?,
        updated_at: columns.time("updated_at")?,
    })
}

/// The run with this id.
pub(super) fn find_run(
    connection: &Connection,
    operation: &'static str,
    id: RunId,
) -> Result<Option<Run>, StoreError> {
    find_row(connection, operation, &id.to_string())
}

/// The run with this id, given as text.
pub(super) fn find_row(
    connection: &Connection,
    operation: &'static str,
    id: &str,
) -> Result<Option<Run>, StoreError> {
    first(connection, operation, &format!("SELECT {RUN} FROM runs WHERE id = ?1"), &[&id], run)
}

/// The snapshot of a run: input, plan, step records and signals, without the reads of its media.
pub(super) fn snapshot(
    connection: &Connection,
    operation: &'static str,
    run: Run,
) -> Result<Snapshot, StoreError> {
    let id = run.id.to_string();
    let (input, plan, recipe) = first(
        connection,
        operation,
        "SELECT open_text(input, 'run_inputs/' || run || '/input') AS input, plan,
             open_text(recipe_json, 'jobs/' || jobs.id || '/recipe_json') AS recipe_json, recipe_schema_id
         FROM run_inputs LEFT JOIN jobs ON jobs.id = run_inputs.run
         WHERE run = ?1",
        &[&id],
        |columns| {
            let schema_id: Option<String> = columns.get("recipe_schema_id")?;
            let recipe = match (columns.text_opt("recipe_json")?, schema_id) {
                (Some(json), Some(schema_id)) => {
                    Some(Arc::new(JobRecipe { json: json.to_owned(), schema_id }))
                }
                (None, Some(_)) => return Err(unopened(operation, "recipe_json")),
                (_, None) => None,
            };
            if columns.text_opt("input")?.is_none() {
                return Err(unopened(operation, "input"));
            }
            Ok((Arc::new(columns.json("input")?), Arc::new(columns.json("plan")?), recipe))
        },
    )?
    .ok_or_else(|| StoreError::Corrupt {
        operation,
        column: "run_inputs",
        detail: format!("run {id} has no inputs"),
    })?;
    let steps = steps(connection, operation, &id)?;
    let signals = signals(connection, operation, run.id)?;
    Ok(Snapshot { signals, run, input, recipe, plan, steps, media: Vec::new() })
}

/// The records of a run's steps, in the order of its plan.
pub(super) fn steps(
    connection: &Connection,
    operation: &'static str,
    run: &str,
) -> Result<Vec<Arc<StepRecord>>, StoreError> {
    all(
        connection,
        operation,
        "SELECT stage, idx, step, key, attempt, epoch, phase, output, started_at, ended_at
         FROM run_steps WHERE run = ?1 ORDER BY stage DESC, idx",
        &[&run],
        |columns| step_record(columns).map(Arc::new),
    )
}

fn step_record(columns: &Columns<'_>) -> Result<StepRecord, StoreError> {
    let stage = columns.parse(
        "stage",
        named(|name| match name {
            "forward" => Some(Stage::Forward),
            "finish" => Some(Stage::Finish),
            _ => None,
        }),
    )?;
    Ok(StepRecord {
        at: Position { stage, index: columns.get("idx")? },
        name: columns.step()?,
        key: columns.get("key")?,
        attempt: columns.get("attempt")?,
        epoch: columns.get("epoch")?,
        phase: columns.parse("phase", named(StepPhase::parse))?,
        output: columns.json("output")?,
        started_at: columns.time("started_at")?,
        ended_at: columns.time_opt("ended_at")?,
    })
}

/// All signals of a run, in the order of arrival.
pub(super) fn signals(
    connection: &Connection,
    operation: &'static str,
    run: RunId,
) -> Result<Vec<Signal>, StoreError> {
    all(
        connection,
        operation,
        "SELECT name, key, payload, received_at, consumed FROM signals WHERE run = ?1 ORDER BY received_at, name, key",
        &[&run.to_string()],
        |columns| {
            Ok(Signal {
                name: columns.get("name")?,
                key: columns.get("key")?,
                payload: columns.json("payload")?,
                received_at: columns.time("received_at")?,
                consumed: columns.get("consumed")?,
            })
        },
    )
}

/// Appends events to the log.
pub(super) fn append_events(
    connection: &Connection,
    operation: &'static str,
    run: Option<RunId>,
    server: Option<&Serial>,
    now: Time,
    events: &[NewEvent],
) -> Result<(), StoreError> {
    for event in events {
        let data = event.data.as_ref().map(|data| to_json(operation, data)).transpose()?;
        execute(
            connection,
            operation,
            "INSERT INTO events (time, run, server, type, level, step, attempt, actor, message, data)
             VALUES (?1, ?2, coalesce(?3, (SELECT runs.server FROM runs WHERE runs.id = ?2)),
                     ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                now.to_string(),
                run.map(|run| run.to_string()),
                server.map(Serial::as_str),
                event.kind,
                event.level.as_str(),
                event.step.as_ref().map(StepName::as_str),
                event.attempt,
                event.actor,
                event.message,
                data
            ],
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let connection = Connection::open_in_memory().unwrap();
        let sql =
            "SELECT column1 AS a, column2 AS b, column3 AS c FROM (VALUES (1, 2, 3), (4, 5, 6), (7, 8, 9))";
        let rows = all(&connection, "test", sql, &[], |columns| {
            let a: i64 = columns.get("a")?;
            let order = if a == 4 { ["c", "b"] } else { ["b", "c"] };
            let [one, two] = order.map(|name| columns.get::<i64>(name).unwrap());
            assert!(columns.get::<i64>("d").is_err());
            Ok((a, one, two))
        });
        assert_eq!(rows.unwrap(), [(1, 2, 3), (4, 6, 5), (7, 8, 9)]);
    }
}
