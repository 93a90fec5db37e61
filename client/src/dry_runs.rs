//! The dry runs of the jobs of many servers: `shoal job create` and `shoal batch create` with `--dry-run`.
//!
//! ```text
//!   rows ──> the first 200, eight at a time ──> POST /api/v1/jobs?dry_run=true ──> accepted, exists or refused, with the reason
//!      └───> the others: counted, and not checked
//! ```
//!
//! Invariants: nothing is written and nothing is sent to a BMC; a refusal of one row is its result, and the others go on; an error that every
//! row would have, such as of the login, ends the command; the results are in the order of the rows.

use std::collections::HashSet;

use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::{CliError, reason};
use super::exit::Exit;
use super::output::{Format, Output, counted, items, plain, text};
use super::progress::Progress;
use super::repeat::RepeatKey;

/// The number of dry runs that are requested at the same time.
const AT_ONCE: usize = 8;
/// The maximum of rows that are checked.
const CHECKED: usize = 200;

/// The change of the command that the operator types next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    /// The command without `--dry-run`.
    WithoutDryRun,
    /// The command with its consent and without `--dry-run`.
    YesWithoutDryRun,
}

impl NextLine {
    fn words(self, servers: usize) -> String {
        match self {
            Self::WithoutDryRun => "leave out --dry-run".to_owned(),
            Self::YesWithoutDryRun => format!("leave out --dry-run and add --yes --expect {servers}"),
        }
    }
}

/// A command whose jobs are previewed.
#[derive(Clone, Copy, Debug)]
pub(super) struct DryRuns<'a> {
    /// The command, as the summary names it.
    pub(super) verb: &'a str,
    /// What the operator types next.
    pub(super) next: NextLine,
    /// The idempotency key of the batch.
    pub(super) key: Option<&'a str>,
}

/// The result of one row.
#[derive(Debug, Serialize)]
struct DryRunRow {
    index: usize,
    server_serial: String,
    /// `accepted`, `exists` or `refused`, as in the response to the request without `--dry-run`.
    result: &'static str,
    /// Why the row would be refused; null if it would not.
    error: Value,
    /// What the job would fail at now.
    blocked_by: Value,
    /// What would keep the job in the queue.
    gates: Value,
}

impl DryRuns<'_> {
    /// Asks the controller for the rows, each a serial number with the body of its job, and shows what it would do with them.
    ///
    /// # Errors
    /// When a row would be refused, or the controller cannot be asked.
    pub(super) async fn show<B: Serialize>(
        self,
        rows: impl ExactSizeIterator<Item = (String, B)>,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let count = rows.len();
        if count == 0 {
            return Err(CliError::failed("no server is given, so there is no job to preview"));
        }
        let checked = count.min(CHECKED);
        let requests = rows.zip(0..checked).map(async |((serial, body), index)| {
            let headers = self.headers(index)?;
            let query = [("dry_run", "true".to_owned())];
            let response = client.post_query(&["jobs"], &query, &body, headers).await;
            DryRunRow::of(index, serial, response.map(|response| response.body))
        });
        let asking = Progress::of_things("asking the controller");
        let mut rows = asking.each(requests, AT_ONCE, output.err).await?;
        refuse_repeated(&mut rows);
        let refused = rows.iter().filter(|row| row.is_refused()).count();
        if output.format == Format::Name {
            let named = rows.iter().filter(|row| !row.is_refused());
            output.document(&named.map(|row| json!({ "server_serial": row.server_serial })).collect())?;
        } else if output.json {
            output.document(&json!({
                "dry_run": true, "count": count, "checked": checked, "accepted": checked - refused, "refused": refused,
                "rows": rows,
            }))?;
        } else {
            self.table(&rows, count, refused, output)?;
            output.note(format!("nothing was changed; {}", self.next.words(count)));
        }
        // A document has both numbers; its names do not show that there are more.
        if count > checked && (!output.json || output.format == Format::Name) {
            output.note(format!(
                "the controller checked the first {checked} servers and not the other {}; give at most {CHECKED} at a time to check all",
                count - checked
            ));
        }
        match refused {
            0 => Ok(()),
            refused => Err(CliError::Local {
                message: format!(
                    "{refused} of {} would be refused; correct what the row names, or leave its server out",
                    counted(checked as u64, "job", "jobs")
                ),
                exit: Exit::Conflict,
            }),
        }
    }

    /// The headers of a row. The controller gives the row this key when the batch has one, so it finds the job of an earlier request.
    fn headers(&self, index: usize) -> Result<HeaderMap, CliError> {
        RepeatKey::of_preview(self.key.map(|key| format!("{key}#{index}")).as_deref())
    }

    fn table(
        &self,
        rows: &[DryRunRow],
        count: usize,
        refused: usize,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| vec![plain(&row.server_serial), row.result.to_owned(), row.why()])
            .collect();
        output.table(&["SERVER", "RESULT", "WHY"], &cells)?;
        let selected = counted(count as u64, "server", "servers");
        let not_checked = match count - rows.len() {
            0 => String::new(),
            others => format!(", {others} not checked"),
        };
        output.line(format!(
            "{}: {selected} selected, {} accepted, {refused} refused{not_checked}",
            self.verb,
            rows.len() - refused
        ))
    }
}

impl DryRunRow {
    /// The row of a response, or of a refusal of this row.
    fn of(index: usize, serial: String, response: Result<Value, CliError>) -> Result<Self, CliError> {
        let row = |result, error, preview: &Value| Self {
            index,
            server_serial: serial.clone(),
            result,
            error,
            blocked_by: list(preview, "blocked_by"),
            gates: list(preview, "gates"),
        };
        match response {
            Ok(preview) => match preview["would"].as_str() {
                Some("refuse") => Ok(row("refused", preview["refused"]["error"].clone(), &preview)),
                Some("replay") => Ok(row("exists", Value::Null, &preview)),
                _ => Ok(row("accepted", Value::Null, &preview)),
            },
            Err(CliError::Refused { status, body }) if is_of_row(status, &body) => {
                Ok(row("refused", body, &Value::Null))
            }
            Err(error) => Err(error),
        }
    }

    fn is_refused(&self) -> bool {
        self.result == "refused"
    }

    /// The reason of a refusal, or what an accepted job would fail at or wait for.
    fn why(&self) -> String {
        if self.is_refused() {
            return reason(&self.error);
        }
        let fails = items(&self.blocked_by).into_iter().map(|why| format!("would fail: {why}"));
        let gates = self.gates.as_array().into_iter().flatten();
        let waits = gates.map(|gate| format!("would wait: {}", text(gate, "/name")));
        fails.chain(waits).collect::<Vec<String>>().join("; ")
    }
}

/// Whether a refusal is of one row. The other rows would have the same error of the login, of the limit of requests and of a controller that
/// is not there.
fn is_of_row(status: u16, body: &Value) -> bool {
    (400..500).contains(&status) && !matches!(status, 401 | 403 | 429) && body["message"].is_string()
}

/// Refuses each later row of a server whose earlier row is accepted: a server has one unfinished job, and each dry run knows of no other.
fn refuse_repeated(rows: &mut [DryRunRow]) {
    let mut earlier: HashSet<String> = HashSet::new();
    for row in rows.iter_mut().filter(|row| row.result == "accepted") {
        if !earlier.insert(row.server_serial.clone()) {
            row.result = "refused";
            row.error = json!({
                "error": "conflict.active_job",
                "message": "an earlier row is of this server too, and a server has one unfinished job at a time",
            });
        }
    }
}

/// A list of a preview; an empty one without a preview.
fn list(preview: &Value, name: &str) -> Value {
    preview.get(name).filter(|list| list.is_array()).cloned().unwrap_or_else(|| json!([]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn dry_runs_that_take_longer_than_two_seconds_show_how_many_have_a_result() {
        // The system accepts the connection; the requests pass their time limit, on virtual time.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = crate::test_kit::client(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err, Format::Text);
        let rows = ["XF-1", "XF-2"].map(|serial| (serial.to_owned(), json!({})));
        let dry_runs = DryRuns { verb: "job create", next: NextLine::WithoutDryRun, key: None };
        let error = dry_runs.show(rows.into_iter(), &client, &mut output).await.unwrap_err();
        assert!(matches!(error, CliError::Unreachable { .. }), "{error}");
        let said = String::from_utf8(err).unwrap();
        assert!(said.contains("asking the controller: 0 of 2 (0 %)"), "{said}");
    }
}
