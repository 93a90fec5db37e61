//! Changes of many at once: all jobs or servers of a filter, a batch, an import. Each is a preview first, with the number of rows
//! that it would change and a digest of their names; the change is refused when it would change other rows by then.

use super::form::{Field, FormView};
use super::frame::Frame;
use super::jobs_verb::JobsVerb;
use super::section::{Cell, Section};
use super::table::TableView;
use crate::data::{
    BatchDetail, BatchJson, BatchRow, ErrorBody, ErrorDetail, ImportRow, SelectionJson, ServerImport,
};
use crate::parts::short_id;
use crate::state::State;
use crate::words;

/// The maximum of rows of an import or a batch that a page shows: those that need a person first.
const SHOWN: usize = 100;

/// The limits of a batch as a form has them: jobs that run at once, canaries, failures until it stops.
#[derive(Clone, Debug, Default)]
pub struct LimitFields {
    /// The maximum of jobs that run at once.
    pub max_parallel: String,
    /// The number of first jobs that must succeed.
    pub canary: String,
    /// The number of failures after which no further job starts.
    pub stop_after: String,
}

impl FormView {
    fn limits(self, limits: &LimitFields) -> Self {
        self.field(
            Field::number("max_parallel", "At most this many at once", &limits.max_parallel, (1, 10_000))
                .hint("Empty: as many as the controller permits."),
        )
        .field(
            Field::number("canary", "Canaries: this many first", &limits.canary, (0, 100))
                .hint("The others start when these have succeeded."),
        )
        .field(
            Field::number("stop_after", "Stop after this many failures", &limits.stop_after, (1, 10_000))
                .hint("No further job starts then, until you continue the batch."),
        )
    }

    /// The preview of a verb for all jobs of a filter.
    pub fn jobs_selection(
        f: Frame,
        verb: JobsVerb,
        filter: &str,
        selection: &SelectionJson,
        limits: &LimitFields,
        key: &str,
    ) -> Self {
        let back = super::filter::jobs(filter);
        let count = words::count(selection.count, "job", "jobs");
        let yes = format!("{} {count}", verb.title());
        let rows = selection.first.iter().map(|job| {
            let name = job.server_serial.clone().unwrap_or_else(|| "no server".to_owned());
            vec![
                Cell::Link(format!("/ui/jobs/{}", words::encoded(&job.job_id)), name),
                Cell::Code(short_id(&job.job_id)),
            ]
        });
        let more = selection.count.saturating_sub(selection.first.len() as u64);
        let note = if more > 0 { format!("and {} more", words::thousands(more)) } else { String::new() };
        let section = Section::new("first", "The first of them", &["Server", "Job"], rows.collect())
            .note(note)
            .or("The filter selects no job to which this applies.");
        let view =
            Self::new(f, format!("{yes}?"), format!("/ui/jobs/selection/{}", verb.word()), back.clone())
                .below(back, "Jobs of the filter")
                .intro(format!("The filter: {filter}"))
                .hidden("q", filter)
                .hidden("expected", selection.count.to_string())
                .hidden("selection", selection.selection.clone());
        let view = match (selection.count, verb) {
            (0, JobsVerb::Retry) => view.note(
                State::Queued,
                "Only installations that failed or were cancelled, and that are the newest of their server, are retried here.",
            ),
            (0, JobsVerb::Cancel) => view.note(State::Queued, "Only jobs without an outcome can be cancelled."),
            (0, JobsVerb::Resume) => view.note(State::Queued, "Only held jobs can be resumed."),
            (_, JobsVerb::Retry) => view
                .effect(State::Failed, WRITTEN_AGAIN)
                .risky()
                .effect(
                    State::Queued,
                    format!("A new batch with the requests of {count}; the former jobs are unchanged."),
                )
                .hidden("key", key)
                .limits(limits)
                .yes(yes),
            (_, JobsVerb::Resume) => view
                .effect(State::Working, "Each job tries the step at which it is held again.")
                .effect(State::Held, "A job whose cause is still there is held again.")
                .field(Field::text("reason", "Reason, for events and audit", ""))
                .yes(yes),
            (_, JobsVerb::Cancel) => view
                .effect(State::Queued, "Jobs that have not begun end; nothing was touched.")
                .effect(State::Waiting, "What runs on a host is stopped; a disk may be left half written.")
                .effect(State::Done, "What the jobs changed is undone: slots emptied, boot settings cleared.")
                .field(Field::text("reason", "Reason, for events and audit", ""))
                .risky()
                .yes(yes),
        };
        let view = match followed(selection.superseded) {
            left_out if left_out.is_empty() => view,
            left_out => view.effect(State::Done, format!("{left_out}.")),
        };
        view.section(section)
    }

    /// The question before a batch is cancelled.
    pub fn cancel_batch(f: Frame, batch: &BatchJson) -> Self {
        let (path, back) =
            (format!("/ui/batches/{}/cancel", batch.batch_id), format!("/ui/batches/{}", batch.batch_id));
        let progress = &batch.progress;
        let (queued, running) = (progress.queued, progress.running);
        let view = Self::new(f, "Cancel the batch?", path, back.clone()).below(back, "Batch");
        if queued + running == 0 {
            return view.note(State::Queued, "Every job of the batch has ended; there is nothing to cancel.");
        }
        let choices = [
            ("queued", queued, format!("Not begun: {}", words::count(queued, "job", "jobs"))),
            (
                "all",
                running,
                format!("All that have not ended: {}", words::count(queued + running, "job", "jobs")),
            ),
        ];
        let choices: Vec<(String, String)> = choices
            .into_iter()
            .filter(|(_, number, _)| *number > 0)
            .map(|(value, _, words)| (value.to_owned(), words))
            .collect();
        let chosen = choices.first().map(|(value, _)| value.clone()).unwrap_or_default();
        let have = |number: u64| words::count(number, "job has", "jobs have");
        view.effect(
            State::Queued,
            format!("{} not begun: a cancel ends them, and nothing was touched.", have(queued)),
        )
        .effect(
            State::Waiting,
            format!(
                "{} under way: if you choose all, what runs on their hosts is stopped, a disk may be left half \
                 written, and what the jobs changed is undone.",
                words::count(running, "job is", "jobs are")
            ),
        )
        // The answer is for these numbers: with more jobs the question is asked again.
        .hidden("expected_queued", queued.to_string())
        .hidden("expected_running", running.to_string())
        .field(Field::choice("which", "Which jobs", &chosen, choices))
        .field(Field::text("reason", "Reason, for events and audit", ""))
        .risky()
        .yes("Cancel these jobs")
    }

    /// The question before the failed jobs of a batch are retried: those of one cause, or all.
    pub fn retry_batch(f: Frame, batch: &BatchDetail, cause: &str, key: &str) -> Self {
        let id = &batch.batch.batch_id;
        let known = batch.causes.iter().find(|known| known.cause == cause);
        let number = known.map_or(batch.retriable, |known| known.jobs.saturating_sub(known.superseded));
        let left_out = known
            .map_or(batch.batch.progress.failed.saturating_sub(batch.retriable), |known| known.superseded);
        if !cause.is_empty() && known.is_none() || number == 0 {
            let back = format!("/ui/batches/{id}");
            return Self::new(f, "Nothing to retry", back.clone(), back.clone()).below(back, "Batch").note(
                State::Queued,
                "No failed job of this cause is the newest installation of its server.",
            );
        }
        let cause = known;
        let count = words::count(number, "failed job", "failed jobs");
        let limits = LimitFields {
            max_parallel: batch.batch.max_parallel.map(|limit| limit.to_string()).unwrap_or_default(),
            canary: "1".to_owned(),
            stop_after: batch.batch.stop_after.map(|after| after.to_string()).unwrap_or_default(),
        };
        let view = Self::new(
            f,
            format!("Retry {count}?"),
            format!("/ui/batches/{id}/retry"),
            format!("/ui/batches/{id}"),
        )
        .below(format!("/ui/batches/{id}"), "Batch")
        .hidden("cause", cause.map_or("", |cause| cause.cause.as_str()))
        .hidden("expected", number.to_string())
        .hidden("selection", cause.map_or(&batch.selection, |cause| &cause.selection).clone())
        .hidden("key", key)
        .effect(State::Failed, WRITTEN_AGAIN)
        .effect(State::Queued, format!("A new batch with the requests of {count}; this batch is unchanged."))
        .risky();
        let view = match followed(left_out) {
            left_out if left_out.is_empty() => view,
            left_out => view.effect(State::Done, format!("{left_out}.")),
        };
        let causes = match cause {
            Some(cause) => std::slice::from_ref(cause),
            None => batch.causes.as_slice(),
        };
        let view = causes.iter().take(5).fold(view, |view, cause| {
            let text = format!("Unless this was done, they may fail the same way: {}", cause.next_action);
            view.effect(State::Waiting, words::cut(&text))
        });
        view.limits(&limits).yes(format!("Retry {count}"))
    }

    /// The form of a new batch. `preview` is what a preview found: the rows that it tried, and the number of servers.
    pub fn new_batch(
        f: Frame,
        entered: &BatchForm,
        refused: Vec<ErrorDetail>,
        preview: Option<&BatchPreview>,
    ) -> Self {
        let view = Self::new(f, "New batch", "/ui/batches/new", "/ui/batches")
            .below("/ui/batches", "Batches")
            .intro("One job for each of many servers. Nothing is touched until you create it.")
            .refused(refused)
            .hidden("key", entered.key.clone())
            .field(
                Field::text("q", "Servers of a filter", &entered.filter)
                    .hint("As in the list of servers, such as site=north state:free."),
            )
            .field(
                Field::area("serials", "Or serial numbers, one on each line", &entered.serials, 4)
                    .hint("Used when the filter is empty."),
            )
            .field(Field::area("recipe", "Recipe, as JSON", &entered.recipe, 12).required())
            .limits(&entered.limits)
            .field(Field::text("labels", "Labels of the jobs", &entered.labels).hint("Such as wave=3."))
            .previews("Preview");
        let Some(preview) = preview else { return view };
        let count = words::count(preview.servers, "job", "jobs");
        let row = |row: &BatchRow| {
            let name = row.server_serial.clone().unwrap_or_default();
            let (state, word) = match row.result.as_str() {
                "accept" => (State::Done, "Accepted"),
                "fails" => (State::Waiting, "Would fail now"),
                _ => (State::Failed, "Refused"),
            };
            vec![
                Cell::Link(format!("/ui/servers/{}", words::encoded(&name)), words::cut(&name)),
                Cell::Said(state.badge_saying(word), why(row.error.as_ref())),
            ]
        };
        let rest = preview.servers.saturating_sub(preview.tried.len() as u64);
        let note =
            if rest > 0 { format!("{} more are not tried", words::thousands(rest)) } else { String::new() };
        let section = Section::new(
            "tried",
            "What would happen",
            &["Server", "Result"],
            preview.tried.iter().map(row).collect(),
        )
        .note(note)
        .or("The filter selects no server.");
        let view = match preview.servers {
            0 => view,
            _ => view.hidden("selection", preview.selection.clone()).yes(format!("Create {count}")),
        };
        view.section(section)
    }

    /// The form of an import. A preview shows the result of each row; the button of the second step has them sealed.
    pub fn import(f: Frame, entered: &ImportForm, refused: Vec<ErrorDetail>) -> Self {
        Self::new(f, "Import servers", "/ui/servers/import", "/ui/servers")
            .below("/ui/servers", "Servers")
            .intro("A table with a header, or JSON: serial, bmc_address, bmc_username, bmc_password, label:site … Nothing is registered before you have seen the result of each row.")
            .refused(refused)
            .field(Field::file("file", "A file", ".csv,.json,.txt,text/csv,application/json"))
            .field(
                Field::area("text", "Or paste it here", &entered.text, 8)
                    .hint("serial,bmc_address,label:rack — comma, semicolon or tab; the names of spreadsheets are known too."),
            )
            .field(
                Field::text("bmc_username", "User of the BMCs of rows without one", &entered.bmc_username),
            )
            .field(
                Field::new_password("bmc_password", "Password of the BMCs of rows without one")
                    .hint("Sealed with the master key, and never shown again."),
            )
            .field(Field::text("labels", "Labels of every row", &entered.labels).hint("Such as site=north."))
            .previews("Preview")
    }

    /// The preview of an import. The rows are in `sealed`, which only this controller opens.
    pub fn import_preview(f: Frame, import: &ServerImport, sealed: &str) -> Self {
        let count = words::count(import.created, "server", "servers");
        let view =
            Self::new(f, format!("Import {count}?"), "/ui/servers/import/confirm", "/ui/servers/import")
                .below("/ui/servers/import", "Import servers")
                .effect(State::Done, format!("{count} would be registered. BMCs are not read or changed."));
        let view = match import.exists {
            0 => view,
            exists => view.effect(
                State::Queued,
                format!(
                    "{} registered with equal values: nothing changes.",
                    words::count(exists, "server is", "servers are")
                ),
            ),
        };
        let view = match import.refused {
            0 => view,
            refused => view.effect(
                State::Failed,
                format!(
                    "{} refused: the reasons are below. The others can be imported without them.",
                    words::count(refused, "row would be", "rows would be")
                ),
            ),
        };
        let view = match import.created {
            0 => view,
            _ => view.hidden("rows", sealed).yes(format!("Register {count}")),
        };
        view.section(import_rows(import))
    }
}

/// The fields of the form of a new batch.
#[derive(Clone, Debug, Default)]
pub struct BatchForm {
    /// The filter of servers.
    pub filter: String,
    /// Serial numbers, one on each line.
    pub serials: String,
    /// The recipe, as JSON.
    pub recipe: String,
    /// The limits of the batch.
    pub limits: LimitFields,
    /// Labels as `key=value` words.
    pub labels: String,
    /// The key under which a repetition creates nothing.
    pub key: String,
}

/// The preview of a batch.
#[derive(Clone, Debug, Default)]
pub struct BatchPreview {
    /// The number of servers.
    pub servers: u64,
    /// The digest of their serial numbers, which the confirmation sends back.
    pub selection: String,
    /// The rows that were tried: `accept`, `fails` or `refuse`.
    pub tried: Vec<BatchRow>,
}

/// The fields of the form of an import, without the password.
#[derive(Clone, Debug, Default)]
pub struct ImportForm {
    /// The table or document.
    pub text: String,
    /// The user of the BMCs of rows without one.
    pub bmc_username: String,
    /// Labels as `key=value` words.
    pub labels: String,
}

/// The warning before a retry of installations, which write the disks again.
const WRITTEN_AGAIN: &str = "Each host is forced off. If its recipe installs, its disk is written again: what is installed there now is lost.";

/// The reason why failed jobs are left out of a retry; empty when there are none.
pub(super) fn followed(jobs: u64) -> String {
    match jobs {
        0 => String::new(),
        jobs => format!(
            "{} left out of a retry: a newer installation of its server exists",
            words::count(jobs, "job is", "jobs are")
        ),
    }
}

/// The reason why a row was refused, in words; empty for an accepted row.
fn why(error: Option<&ErrorBody>) -> String {
    let Some(error) = error else { return String::new() };
    let details = error.details.iter().map(|detail| match detail.path.trim_start_matches('/') {
        "" => detail.message.clone(),
        path => format!("{path}: {}", detail.message),
    });
    let details: Vec<String> = details.collect();
    words::cut(if details.is_empty() { error.message.clone() } else { details.join("; ") }.as_str())
}

fn import_rows(import: &ServerImport) -> Section {
    let order = |row: &&ImportRow| (row.result != "refused", row.index);
    let mut rows: Vec<&ImportRow> = import.rows.iter().collect();
    rows.sort_by_key(order);
    let row = |row: &&ImportRow| {
        let (state, word) = match row.result.as_str() {
            "created" => (State::Done, "New"),
            "exists" => (State::Queued, "Registered before"),
            _ => (State::Failed, "Refused"),
        };
        vec![
            Cell::Text(words::cut(row.serial.as_deref().unwrap_or("no serial number"))),
            Cell::Said(state.badge_saying(word), why(row.error.as_ref())),
            Cell::Text(format!("row {}", row.index + 1)),
        ]
    };
    let hidden = rows.len().saturating_sub(SHOWN) as u64;
    let note = if hidden > 0 {
        format!("{} more rows are not shown", words::thousands(hidden))
    } else {
        String::new()
    };
    let rows = rows.iter().take(SHOWN).map(row).collect();
    Section::new("rows", "A result for each row", &["Server", "Result", "Row"], rows).note(note)
}

impl TableView {
    /// The result of an import.
    pub fn imported(f: Frame, import: &ServerImport) -> Self {
        let sub = format!(
            "{} registered, {} registered before, {} refused.",
            words::count(import.created, "server", "servers"),
            words::thousands(import.exists),
            words::thousands(import.refused)
        );
        Self::new(f, "Imported", &sub, vec![import_rows(import)]).below("/ui/servers", "Servers").acts(vec![
            ("/ui/servers/selection/probe?q=state:unseen".to_owned(), "Probe servers never seen…"),
            ("/ui/batches/new".to_owned(), "New batch"),
        ])
    }

    /// The results of probes of many BMCs: the serial number of each, and the error of a BMC that could not be read.
    pub fn probed(f: Frame, filter: &str, results: &[(String, Option<String>)]) -> Self {
        let mut rows: Vec<&(String, Option<String>)> = results.iter().collect();
        rows.sort_by_key(|(_, why)| why.is_none());
        let row = |(serial, why): &&(String, Option<String>)| {
            let (state, word) = match why {
                None => (State::Done, "Read"),
                Some(_) => (State::Failed, "Not read"),
            };
            vec![
                Cell::Link(format!("/ui/servers/{}", words::encoded(serial)), serial.clone()),
                Cell::Said(state.badge_saying(word), words::cut(why.as_deref().unwrap_or_default())),
            ]
        };
        let rows: Vec<Vec<Cell>> = rows.iter().map(row).collect();
        let read = results.iter().filter(|(_, why)| why.is_none()).count();
        let sub = format!("{read} of {} BMCs responded; nothing was changed on them.", results.len());
        let section = Section::new("probed", "A result for each server", &["Server", "Result"], rows);
        Self::new(f, "Probed BMCs", &sub, vec![section]).below(&super::filter::servers(filter), "Servers")
    }
}
