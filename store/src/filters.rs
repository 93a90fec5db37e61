//! SQL of filters: each term of a [`Filter`] as a condition on `runs` or `servers`.
//!
//! ```text
//!  condition (explain's word), as one CASE
//!  ended > restored? > held > leased: abandoned | cancelling | working > retrying | waiting > gated > blocked > queued | due
//! ```
//!
//! Invariants: the condition of a row is the one that `explain` returns for it at the same time; a term that only rows of an
//! index can satisfy says so (`phase <> 'ended'`, `outcome IS NOT NULL`), so that no list of open or failed jobs reads the ended
//! ones; values are parameters and never part of the text.

use std::time::Duration;

use rusqlite::types::Value;

use super::gate_names::name_of_gate;
use model::filter::{Glob, LabelTest, ServerState, Term, Test};
use model::{BatchId, CANCEL, Condition, Filter, JobStatus, PROVISION, Time};

/// The reason of a wait between two attempts.
const RETRY: &str = "retry";
/// How long a failure needs a person when no later job of the server took its place.
pub(super) const UNRESOLVED: Duration = Duration::from_secs(24 * 3600);
/// A run that has not ended.
pub(super) const OPEN: &str = "runs.phase <> 'ended'";

/// The time and the pressure on which the condition of a run depends besides the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Present {
    /// The present time.
    pub now: Time,
    /// Whether a shortage keeps jobs from starting.
    pub pressure: bool,
}

/// A condition with its parameters in the order of its text.
#[derive(Debug, Default)]
pub(super) struct Sql {
    pub(super) text: String,
    pub(super) values: Vec<Value>,
}

impl Sql {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    fn with(text: impl Into<String>, values: impl IntoIterator<Item = String>) -> Self {
        Self { text: text.into(), values: values.into_iter().map(Value::Text).collect() }
    }

    /// `column IN (values)`.
    fn one_of(column: &str, list: impl IntoIterator<Item = String>) -> Self {
        let values: Vec<Value> = list.into_iter().map(Value::Text).collect();
        Self { text: format!("{column} IN ({})", marks(values.len())), values }
    }

    fn any(parts: Vec<Self>) -> Self {
        let mut joined = Self::default();
        let mut texts = Vec::new();
        for part in parts {
            texts.push(part.text);
            joined.values.extend(part.values);
        }
        joined.text = format!("({})", texts.join(" OR "));
        joined
    }

    /// This condition behind another one, which has no parameters.
    fn behind(self, first: &str) -> Self {
        Self { text: format!("({first} AND {})", self.text), values: self.values }
    }

    fn negated(self) -> Self {
        // A missing value satisfies no test, so it satisfies the negated one.
        Self { text: format!("NOT coalesce({}, 0)", self.text), values: self.values }
    }
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// A field of a JSON column; NULL for a text that is not JSON, which a list shows as an error of that row alone.
pub(super) fn field(column: &str, path: &str) -> String {
    format!("CASE WHEN json_valid({column}) THEN json_extract({column}, '$.{path}') END")
}

/// The condition of a run as SQL.
pub(super) fn condition(present: Present) -> Sql {
    let reason = field("runs.wait", "reason");
    let gate = name_of_gate(present.pressure);
    Sql::with(
        format!(
            "CASE
             WHEN runs.phase = 'ended' THEN 'ended'
             WHEN runs.restored = 1 THEN 'restored'
             WHEN runs.hold IS NOT NULL THEN 'held'
             WHEN runs.lease_owner IS NOT NULL AND runs.lease_expires_at <= ? THEN 'abandoned'
             WHEN runs.lease_owner IS NOT NULL THEN
                 CASE WHEN runs.phase IN ('queued', 'running', 'waiting', 'held') AND EXISTS (SELECT 1 FROM signals
                          WHERE signals.run = runs.id AND signals.name = '{CANCEL}' AND signals.consumed = 0)
                      THEN 'cancelling' ELSE 'working' END
             WHEN {reason} = '{RETRY}' THEN 'retrying'
             WHEN runs.wait IS NOT NULL THEN 'waiting'
             WHEN {gate} IS NOT NULL THEN 'gated'
             WHEN EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.root AND locks.held = 0) THEN 'blocked'
             WHEN runs.phase = 'queued' THEN 'queued'
             ELSE 'due' END"
        ),
        [present.now.to_string()],
    )
}

/// The condition of a public state.
pub(super) fn status(status: JobStatus) -> Sql {
    const ACTIVE: &str = "runs.phase IN ('running', 'waiting', 'held') AND runs.phase <> 'ended'";
    match status {
        JobStatus::Queued => Sql::new("(runs.phase = 'queued' AND runs.phase <> 'ended')"),
        JobStatus::Provisioning => {
            Sql::with(format!("({ACTIVE} AND runs.workflow = ?)"), [PROVISION.to_owned()])
        }
        JobStatus::Running => Sql::with(format!("({ACTIVE} AND runs.workflow <> ?)"), [PROVISION.to_owned()]),
        JobStatus::Succeeded => Sql::new(
            "(runs.phase IN ('unwinding', 'finishing') AND runs.phase <> 'ended' AND runs.outcome = 'succeeded')",
        ),
        JobStatus::Failed => Sql::new(
            "(runs.phase IN ('unwinding', 'finishing') AND runs.phase <> 'ended' AND runs.outcome <> 'succeeded')",
        ),
        JobStatus::Complete => Sql::new("runs.phase = 'ended'"),
    }
}

/// A term on a row of `runs`.
pub(super) fn of_job(term: &Term, present: Present) -> Sql {
    let test =
        match &term.test {
            Test::Condition(list) => {
                let Sql { text, mut values } = condition(present);
                values.extend(list.iter().map(|condition| Value::Text(condition.as_str().to_owned())));
                let test = Sql { text: format!("{text} IN ({})", marks(list.len())), values };
                let ends = list.contains(&Condition::Ended);
                return match term.negated {
                    false if ends => test,
                    true if !ends => test.negated(),
                    false => test.behind(OPEN),
                    true => test.negated().behind(OPEN),
                };
            }
            Test::Status(list) => {
                let test = Sql::any(list.iter().map(|name| status(*name)).collect());
                let open = !list.contains(&JobStatus::Complete);
                if open && !term.negated { test.behind(OPEN) } else { test }
            }
            Test::Outcome(list) => {
                Sql::one_of("runs.outcome", list.iter().map(|outcome| outcome.as_str().to_owned()))
                    .behind("runs.outcome IS NOT NULL")
            }
            Test::OpenFailure => open_failure(present.now),
            Test::Class(list) => Sql::one_of("runs.failure_class", list.iter().cloned())
                .behind("runs.failure_class IS NOT NULL"),
            Test::FailedStep(list) => Sql::one_of(&field("runs.failure", "step"), list.iter().cloned())
                .behind("runs.failure_class IS NOT NULL"),
            Test::Step(list) => Sql::one_of("runs.step", list.iter().cloned()).behind(OPEN),
            Test::Wait(list) => Sql::one_of(&field("runs.wait", "reason"), list.iter().cloned()).behind(OPEN),
            Test::Hold(list) => Sql::one_of(&field("runs.hold", "class"), list.iter().cloned()).behind(OPEN),
            Test::Serial(list) => globs("runs.server", list),
            Test::Label(list) => Sql::any(list.iter().map(label_of_job).collect()),
            Test::Workflow(list) => Sql::one_of("runs.workflow", list.iter().cloned()),
            Test::Batch(list) => Sql::one_of("runs.batch", list.iter().map(|batch| batch.to_string()))
                .behind("runs.batch <> ''"),
            Test::By(list) => Sql::one_of("runs.created_by", list.iter().cloned()),
            Test::Since(time) => Sql::with("runs.created_at >= ?", [time.to_string()]),
            Test::Until(time) => Sql::with("runs.created_at < ?", [time.to_string()]),
            Test::Text(text) => contains(
                &[
                    "runs.id",
                    "coalesce(runs.server, '')",
                    "runs.workflow",
                    "runs.created_by",
                    &format!("coalesce({}, '')", field("runs.failure", "summary")),
                    &format!("coalesce({}, '')", field("runs.wait", "detail")),
                    &format!("coalesce({}, '')", field("runs.hold", "detail")),
                ],
                text,
            ),
            // The parser gives no job a vendor or a state.
            Test::Vendor(_) | Test::State(_) => Sql::new("0"),
        };
    if term.negated { test.negated() } else { test }
}

/// A selector of labels on a row of `runs`: all of its terms.
pub(super) fn labels_of_job(selector: &Filter) -> Sql {
    let mut joined = Sql::default();
    let mut texts = Vec::new();
    for term in selector.terms() {
        let Test::Label(list) = &term.test else { continue };
        let test = Sql::any(list.iter().map(label_of_job).collect());
        let Sql { text, values } = if term.negated { test.negated() } else { test };
        texts.push(text);
        joined.values.extend(values);
    }
    joined.text = texts.join(" AND ");
    joined
}

/// A failure of the last day that no newer job of its server has followed. The index of ended jobs by their end serves it, so
/// its cost is that of the jobs of one day. A list of ids, so that the order of a list does not choose another index; `+` keeps
/// SQLite from the index of outcomes, which has every failure ever.
pub(super) fn open_failure(now: Time) -> Sql {
    Sql::with(
        format!(
            "(runs.id IN (SELECT ended.id FROM runs AS ended WHERE ended.phase = 'ended' AND ended.parent IS NULL
                 AND ended.updated_at >= ? AND +ended.outcome = 'failed') AND NOT {})",
            followed("")
        ),
        [now.minus(UNRESOLVED).to_string()],
    )
}

/// Whether the server of a run has a newer job for which `and` holds too. Jobs are as new as their rows: the clock may have been wrong
/// when one was created.
pub(super) fn followed(and: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM runs AS newer WHERE newer.server = runs.server AND newer.parent IS NULL
             AND newer.rowid > runs.rowid{and})"
    )
}

/// Whether the server of a run has a newer installation. Those of one batch, the parameter, do not count: a repeated request for
/// that batch finds what its first one found.
pub(super) fn superseded(except: Option<BatchId>) -> Sql {
    let and = format!(" AND newer.workflow = '{PROVISION}' AND newer.batch <> ?");
    // No batch has the id `-`; a job without a batch has the empty one.
    let except = except.map_or_else(|| "-".to_owned(), |batch| batch.to_string());
    Sql::with(followed(&and), [except])
}

/// A term on a row of `servers`.
pub(super) fn of_server(term: &Term, present: Present) -> Sql {
    let test = match &term.test {
        Test::Serial(list) => globs("servers.serial", list),
        Test::Label(list) => Sql::any(list.iter().map(label_of_server).collect()),
        Test::Vendor(list) => Sql::one_of("servers.vendor", list.iter().cloned()),
        Test::State(list) => Sql::any(list.iter().map(|state| Sql::new(state_of_server(*state))).collect()),
        Test::Since(time) => Sql::with("servers.created_at >= ?", [time.to_string()]),
        Test::Until(time) => Sql::with("servers.created_at < ?", [time.to_string()]),
        Test::Text(text) => contains(
            &["servers.serial", "servers.bmc_address", "coalesce(servers.vendor, '')", "servers.labels"],
            text,
        ),
        Test::Condition(_) | Test::Step(_) | Test::Wait(_) => {
            let Sql { text, values } = of_job(&Term { negated: false, test: term.test.clone() }, present);
            let text = format!(
                "servers.serial IN (SELECT runs.server FROM runs WHERE {OPEN} AND runs.parent IS NULL
                     AND runs.server IS NOT NULL AND {text})"
            );
            Sql { text, values }
        }
        // The parser gives no server these.
        Test::Status(_)
        | Test::Outcome(_)
        | Test::OpenFailure
        | Test::Class(_)
        | Test::FailedStep(_)
        | Test::Hold(_)
        | Test::Workflow(_)
        | Test::Batch(_)
        | Test::By(_) => Sql::new("0"),
    };
    if term.negated { test.negated() } else { test }
}

fn state_of_server(state: ServerState) -> &'static str {
    const BUSY: &str = "servers.serial IN (SELECT runs.server FROM runs WHERE runs.phase <> 'ended'
         AND runs.parent IS NULL AND runs.server IS NOT NULL)";
    const FREE: &str = "(servers.maintenance IS NULL AND servers.restored IS NULL
         AND servers.serial NOT IN (SELECT runs.server FROM runs WHERE runs.phase <> 'ended'
             AND runs.parent IS NULL AND runs.server IS NOT NULL))";
    match state {
        ServerState::Free => FREE,
        ServerState::Busy => BUSY,
        ServerState::Maintenance => "servers.maintenance IS NOT NULL",
        ServerState::Restored => "servers.restored IS NOT NULL",
        ServerState::PendingCleanup => {
            "EXISTS (SELECT 1 FROM server_observed AS seen
                     WHERE seen.serial = servers.serial AND seen.pending_cleanup IS NOT NULL)"
        }
        ServerState::Unseen => "servers.last_seen IS NULL",
    }
}

fn globs(column: &str, list: &[Glob]) -> Sql {
    if let Some(exact) = list.iter().map(|glob| glob.exact().map(str::to_owned)).collect::<Option<Vec<_>>>() {
        return Sql::one_of(column, exact);
    }
    let one = |glob: &Glob| {
        // The range of the prefix is what an index serves: a serial number has no character above `z`.
        let prefix = glob.prefix();
        Sql::with(
            format!("({column} >= ? AND {column} < ? AND {column} GLOB ?)"),
            [prefix.to_owned(), format!("{prefix}\u{7f}"), glob.as_str().to_owned()],
        )
    };
    Sql::any(list.iter().map(one).collect())
}

/// The servers with a label, as a list of their serial numbers.
fn servers_with(label: &LabelTest) -> Sql {
    let mut values = vec![label.key.clone()];
    let value = match &label.value {
        Some(value) => {
            values.push(value.clone());
            " AND server_labels.value = ?"
        }
        None => "",
    };
    Sql::with(
        format!("SELECT server_labels.serial FROM server_labels WHERE server_labels.key = ?{value}"),
        values,
    )
}

fn label_of_server(label: &LabelTest) -> Sql {
    let Sql { text, values } = servers_with(label);
    Sql { text: format!("servers.serial IN ({text})"), values }
}

/// A label of the job or of its server. One list of ids, so that both come from an index.
fn label_of_job(label: &LabelTest) -> Sql {
    let Sql { text: servers, values: of_server } = servers_with(label);
    let value = if label.value.is_some() { " AND run_labels.value = ?" } else { "" };
    let mut values = vec![Value::Text(label.key.clone())];
    values.extend(label.value.clone().map(Value::Text));
    values.extend(of_server);
    let text = format!(
        "runs.id IN (SELECT run_labels.run FROM run_labels WHERE run_labels.key = ?{value}
         UNION ALL SELECT labelled.id FROM runs AS labelled WHERE labelled.server IN ({servers}))"
    );
    Sql { text, values }
}

/// Whether one of the texts has `part` in it, without regard to ASCII case. `lower` of SQLite changes ASCII letters only.
fn contains(columns: &[&str], part: &str) -> Sql {
    let part = part.to_ascii_lowercase();
    let parts =
        columns.iter().map(|column| Sql::with(format!("instr(lower({column}), ?) > 0"), [part.clone()]));
    Sql::any(parts.collect())
}
