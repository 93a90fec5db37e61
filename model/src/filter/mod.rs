//! The filter of a list of jobs or servers: one small language for the API, the command line and the pages.
//!
//! ```text
//!  condition:waiting,retrying -step:webhook.wait rack!=7 serial:SH-* since:2h "lost carrier"
//!  ------- one term ---------  ----- without ----- label  ---- glob --- --age--- ---- text ---
//!
//!  filter = term { blank term }          a row is listed if every term holds
//!  term   = [-] test                     a minus in front: the test must not hold
//!  test   = KEY:VALUE{,VALUE}            one of the values
//!         | LABEL=VALUE | LABEL!=VALUE   the same as label:LABEL=VALUE, with or without a minus
//!         | TEXT                         a part of the texts of the row, without regard to ASCII case
//!  VALUE, TEXT                           in quotation marks if it has a blank, a comma or a quotation mark; \ before " and \
//! ```
//!
//! Invariants: a parsed filter has a bounded number of terms and values; its text, parsed again, is the same filter; every
//! refused text names the place and, for a misspelt key or name, the nearest known one.

mod glob;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use super::batch::BatchId;
use super::condition::Condition;
use super::job::JobStatus;
use super::run::Outcome;
use super::time::Time;

pub use glob::Glob;
pub use parse::FilterError;

/// The longest text of a filter, in bytes.
pub const MAX_FILTER_BYTES: usize = 2048;
/// The maximum of terms of a filter.
pub const MAX_TERMS: usize = 32;
/// The maximum of values of one term.
pub const MAX_VALUES: usize = 32;

/// The value of the key `failure`.
const OPEN_FAILURE: &str = "open";

/// The rows that a list shows, which decide the keys that a filter may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Jobs.
    Jobs,
    /// Registered servers.
    Servers,
}

impl Subject {
    /// The keys of this subject, in the order of the documents.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Jobs => &[
                "condition",
                "status",
                "outcome",
                "failure",
                "class",
                "failed_step",
                "step",
                "wait",
                "hold",
                "serial",
                "label",
                "workflow",
                "batch",
                "by",
                "since",
                "until",
            ],
            Self::Servers => {
                &["state", "serial", "label", "vendor", "condition", "step", "wait", "since", "until"]
            }
        }
    }
}

/// The state of a server as filters name it. A server can be in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum ServerState {
    /// No job that has not ended, no maintenance, and not restored: a new job starts at once.
    Free,
    /// A job of the server has not ended.
    Busy,
    /// An operator has put the server into maintenance.
    Maintenance,
    /// The data of the server was restored, and no operator has released it.
    Restored,
    /// The next job must do a cleanup that an earlier one could not do.
    #[strum(serialize = "pending-cleanup")]
    PendingCleanup,
    /// The BMC has never responded.
    Unseen,
}

impl ServerState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Free, Self::Busy, Self::Maintenance, Self::Restored, Self::PendingCleanup, Self::Unseen];

    /// The state's name in filters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The state of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// A label, with a value or with any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelTest {
    /// The key.
    pub key: String,
    /// The value; `None` for any.
    pub value: Option<String>,
}

/// The test of one term. A list of values holds when one of them does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The condition of the job; of a server, of one of its jobs that have not ended.
    Condition(Vec<Condition>),
    /// The public state of the job.
    Status(Vec<JobStatus>),
    /// The outcome of the job, or its outcome after the cleanup that still runs.
    Outcome(Vec<Outcome>),
    /// The job failed within the last day, and no newer job of its server exists: it needs a person.
    OpenFailure,
    /// The class of the failure.
    Class(Vec<String>),
    /// The step that failed.
    FailedStep(Vec<String>),
    /// The current step of a job that has not ended.
    Step(Vec<String>),
    /// The reason of the wait of a job that has not ended.
    Wait(Vec<String>),
    /// The class of the hold.
    Hold(Vec<String>),
    /// The serial number of the server.
    Serial(Vec<Glob>),
    /// A label of the server, or of the job itself.
    Label(Vec<LabelTest>),
    /// The workflow.
    Workflow(Vec<String>),
    /// The batch.
    Batch(Vec<BatchId>),
    /// The user that created the job.
    By(Vec<String>),
    /// The vendor, as the operator gave it.
    Vendor(Vec<String>),
    /// The state of the server.
    State(Vec<ServerState>),
    /// Created at this time or later.
    Since(Time),
    /// Created before this time.
    Until(Time),
    /// A part of the texts of the row, without regard to ASCII case.
    Text(String),
}

/// One term of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Whether the test must not hold.
    pub negated: bool,
    /// The test.
    pub test: Test,
}

/// A parsed filter. The default lists everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

impl Filter {
    /// The terms; a row is listed if every term holds.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether the filter lists everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Both filters in one.
    ///
    /// # Errors
    /// When there are more than [`MAX_TERMS`] terms.
    pub fn and(mut self, other: Self) -> Result<Self, FilterError> {
        self.terms.extend(other.terms);
        if self.terms.len() > MAX_TERMS { Err(FilterError::too_many_terms()) } else { Ok(self) }
    }
}

impl Test {
    /// The key and the values as texts; no key for a text.
    fn words(&self) -> (Option<&'static str>, Vec<String>) {
        fn names<T: Copy>(list: &[T], name: impl Fn(T) -> &'static str) -> Vec<String> {
            list.iter().map(|value| name(*value).to_owned()).collect()
        }
        match self {
            Self::Condition(list) => (Some("condition"), names(list, Condition::as_str)),
            Self::Status(list) => (Some("status"), names(list, JobStatus::as_str)),
            Self::Outcome(list) => (Some("outcome"), names(list, Outcome::as_str)),
            Self::OpenFailure => (Some("failure"), vec![OPEN_FAILURE.to_owned()]),
            Self::Class(list) => (Some("class"), list.clone()),
            Self::FailedStep(list) => (Some("failed_step"), list.clone()),
            Self::Step(list) => (Some("step"), list.clone()),
            Self::Wait(list) => (Some("wait"), list.clone()),
            Self::Hold(list) => (Some("hold"), list.clone()),
            Self::Serial(list) => {
                (Some("serial"), list.iter().map(|glob| glob.as_str().to_owned()).collect())
            }
            Self::Label(list) => (
                Some("label"),
                list.iter()
                    .map(|label| match &label.value {
                        Some(value) => format!("{}={value}", label.key),
                        None => label.key.clone(),
                    })
                    .collect(),
            ),
            Self::Workflow(list) => (Some("workflow"), list.clone()),
            Self::Batch(list) => (Some("batch"), list.iter().map(BatchId::to_string).collect()),
            Self::By(list) => (Some("by"), list.clone()),
            Self::Vendor(list) => (Some("vendor"), list.clone()),
            Self::State(list) => (Some("state"), names(list, ServerState::as_str)),
            Self::Since(time) => (Some("since"), vec![time.to_string()]),
            Self::Until(time) => (Some("until"), vec![time.to_string()]),
            Self::Text(text) => (None, vec![text.clone()]),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negated {
            f.write_str("-")?;
        }
        let (key, values) = self.test.words();
        match key {
            Some(key) => write!(f, "{key}:")?,
            // Always in quotation marks: a text with a colon would be read as a key.
            None => return values.iter().try_for_each(|text| write!(f, "{}", Quoted(text))),
        }
        for (index, value) in values.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let special = |c: char| c.is_whitespace() || matches!(c, ',' | '"' | '\\');
            if value.is_empty() || value.contains(special) {
                write!(f, "{comma}{}", Quoted(value))?;
            } else {
                write!(f, "{comma}{value}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// A text in quotation marks.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}
