//! `shoal job`: creating jobs, looking at them and following them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use recipe::MAX_RECIPE_BYTES;

use super::client::{Client, header};
use super::error::CliError;
use super::input;
use super::output::{Output, join, plain, text};
use super::timeline;
use super::watch::{self, Pace, follow};

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Install a server
    Create(Create),
    /// List jobs, the newest first
    List(List),
    /// Show a job
    Show {
        /// The job
        job: String,
    },
    /// Show what happened in a job
    Events {
        /// The job
        job: String,
        /// Only what happened after this event
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
        /// Go on until the job is complete
        #[arg(long)]
        follow: bool,
    },
    /// Follow a job until it is complete; ends with 0 only if it succeeded
    Watch {
        /// The job
        job: String,
    },
    /// Say why a job is where it is, and what to do about it
    Explain {
        /// The job
        job: String,
    },
    /// End a job; what it holds is cleaned up
    Cancel(JobArgs),
    /// Stop a queued or waiting job until it is resumed or cancelled
    Hold(JobArgs),
    /// Let a held job go on
    Resume(JobArgs),
    /// Make a new job that asks for what an ended one asked for
    Retry {
        #[command(flatten)]
        of: JobArgs,
        /// Follow the new job until it is complete
        #[arg(long)]
        watch: bool,
    },
}

/// A job, and why something is asked of it.
#[derive(Args, Debug)]
pub(super) struct JobArgs {
    /// The job
    job: String,
    /// Why, for its events
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// A new job.
#[derive(Args, Debug)]
pub(super) struct Create {
    /// The serial number of the server
    #[arg(long, value_name = "SERIAL")]
    server: String,
    /// The recipe: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    recipe: PathBuf,
    /// The maintenance image, if not the controller's
    #[arg(long, value_name = "URL")]
    maintenance_iso: Option<String>,
    /// When it must be over, as RFC 3339; a job that has not begun by then fails
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// Asking again with the same key creates no second job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Follow the job until it is complete
    #[arg(long)]
    watch: bool,
}

/// Which jobs.
#[derive(Args, Debug)]
pub(super) struct List {
    /// Only those: queued, provisioning, succeeded, failed or complete
    #[arg(long)]
    status: Option<String>,
    /// Only those: succeeded, failed or cancelled
    #[arg(long)]
    outcome: Option<String>,
    /// Only those of this server
    #[arg(long, value_name = "SERIAL")]
    server: Option<String>,
    /// Only those that failed like this, such as media or bmc_unreachable
    #[arg(long, value_name = "CLASS")]
    failure_class: Option<String>,
    /// Only those of this batch
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = rows)]
    limit: usize,
}

/// The body of `POST /api/v1/jobs`. The recipe travels as it was written: the controller keeps its text.
#[derive(Serialize)]
struct NewJob<'a> {
    server_serial: &'a str,
    recipe: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance_iso_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<&'a str>,
}

/// A number of rows.
pub(super) fn rows(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=1_000_000).contains(number))
        .ok_or_else(|| "give a number from 1 to 1000000".to_owned())
}

/// Runs a command.
pub(super) async fn run(command: Command, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        Command::Create(create) => create.run(client, output).await,
        Command::List(list) => list.run(client, output).await,
        Command::Show { job } => {
            let job = client.get(&["jobs", &job], &[]).await?.body;
            if output.json { output.document(&job) } else { show(&job, output) }
        }
        Command::Events { job, after, follow: false } => {
            let (events, next) = watch::events(client, &job, after).await?;
            if output.json {
                return output.document(&json!({"events": events, "next": next}));
            }
            events.iter().try_for_each(|event| output.line(timeline::line(event)))
        }
        Command::Events { job, after, follow: true } => {
            follow(client, &job, after, Pace::default(), output, &mut show_event).await.map(|_| ())
        }
        Command::Watch { job } => watch_to_the_end(client, &job, Pace::default(), output).await,
        Command::Explain { job } => {
            let answer = client.get(&["jobs", &job, "explain"], &[]).await?.body;
            if output.json { output.document(&answer) } else { explain(&answer, output) }
        }
        Command::Cancel(of) => of.ask("cancel", "is being cancelled", client, output).await,
        Command::Hold(of) => of.ask("hold", "is held", client, output).await,
        Command::Resume(of) => of.ask("resume", "goes on", client, output).await,
        Command::Retry { of, watch } => {
            let answer = of.post("retry", client).await?;
            let Some(job) = answer["job_id"].as_str() else {
                return Err(client.foreign(&["jobs", &of.job, "retry"], "there is no job_id in it"));
            };
            if output.json {
                output.row(&answer)?;
            } else {
                output.line(format!("job {} tries {} again", plain(job), plain(&of.job)))?;
            }
            if watch { watch_to_the_end(client, job, Pace::default(), output).await } else { Ok(()) }
        }
    }
}

impl JobArgs {
    async fn post(&self, verb: &str, client: &Client) -> Result<Value, CliError> {
        let body = self.reason.as_ref().map_or_else(|| json!({}), |reason| json!({"reason": reason}));
        Ok(client.post(&["jobs", &self.job, verb], &body, HeaderMap::new()).await?.body)
    }

    async fn ask(
        self,
        verb: &str,
        done: &str,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let answer = self.post(verb, client).await?;
        if output.json {
            return output.document(&answer);
        }
        output.line(format!("job {} {done} ({})", plain(&self.job), text(&answer, "/status")))
    }
}

/// An explanation for people, with the last events below it.
fn explain(answer: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(answer, pointer);
    output.fields(&[
        ("job", join(&[part("/job_id"), part("/server_serial"), part("/status")], ", ")),
        ("condition", join(&[part("/condition"), part("/reason")], ": ")),
        ("step", part("/step")),
        ("why", part("/summary")),
        ("since", part("/since")),
        ("looked at", part("/next_check")),
        ("deadline", part("/deadline")),
        ("ends by", part("/ends_by")),
        ("not interruptible", part("/uninterruptible")),
        ("what to do", part("/next_action")),
    ])?;
    let evidence = answer["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !evidence.is_empty() {
        output.line("")?;
        output.line("seen last:")?;
    }
    evidence.iter().try_for_each(|event| output.line(timeline::line(event)))
}

/// What a job would do, for people.
fn rehearsal(answer: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(answer, pointer);
    let listed = |pointer: &str, inner: &str| {
        let items = answer.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        items.map(|item| text(item, inner)).collect::<Vec<_>>().join("; ")
    };
    output.fields(&[
        ("would", join(&[part("/would"), part("/job_id"), part("/refused/error/message")], ": ")),
        ("server", part("/server_serial")),
        ("deadline", part("/deadline_at")),
        ("slot plan", part("/slot_plan")),
        ("task image", join(&[part("/task_image/size"), part("/task_image/sha256")], " bytes, sha256 ")),
        ("maintenance", part("/maintenance_image/location")),
        ("", join(&[part("/maintenance_image/size"), part("/maintenance_image/sha256")], " bytes, sha256 ")),
        ("gates", listed("/gates", "/name")),
        ("in the way", listed("/blocked_by", "")),
        ("warnings", listed("/warnings", "/message")),
    ])?;
    let columns = ["/stage", "/step", "/attempts", "/call_s", "/budget_s"];
    let steps = answer["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<String>> =
        steps.iter().map(|step| columns.map(|pointer| text(step, pointer)).to_vec()).collect();
    output.line("")?;
    output.table(&["STAGE", "STEP", "TRIES", "CALL S", "BUDGET S"], &rows)
}

impl Create {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let recipe = recipe(&self.recipe)?;
        let headers = match &self.idempotency_key {
            Some(key) => header("idempotency-key", key)?,
            None => HeaderMap::new(),
        };
        let body = NewJob {
            server_serial: &self.server,
            recipe: &recipe,
            maintenance_iso_url: self.maintenance_iso.as_deref(),
            deadline: self.deadline.as_deref(),
        };
        if self.dry_run {
            let query = [("dry_run", "true".to_owned())];
            let answer = client.post_query(&["jobs"], &query, &body, headers).await?.body;
            return if output.json { output.document(&answer) } else { rehearsal(&answer, output) };
        }
        let answer = client.post(&["jobs"], &body, headers).await?;
        let Some(job) = answer.body["job_id"].as_str() else {
            return Err(client.foreign(&["jobs"], "there is no job_id in it"));
        };
        if output.json {
            output.row(&answer.body)?;
        } else {
            let verb = if answer.status == 200 { "is there already" } else { "accepted" };
            output.line(format!("job {} {verb} for server {}", plain(job), plain(&self.server)))?;
            for warning in answer.body["warnings"].as_array().into_iter().flatten() {
                output.note(format!("warning: {} {}", text(warning, "/path"), text(warning, "/message")));
            }
        }
        if self.watch { watch_to_the_end(client, job, Pace::default(), output).await } else { Ok(()) }
    }
}

impl List {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let filters: Vec<(&str, String)> = [
            ("status", self.status),
            ("outcome", self.outcome),
            ("server_serial", self.server),
            ("failure_class", self.failure_class),
            ("batch", self.batch),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let jobs = client.list(&["jobs"], "jobs", &filters, self.limit).await?;
        if output.json {
            return output.document(&jobs);
        }
        let columns =
            ["/job_id", "/server_serial", "/status", "/outcome", "/step", "/failed_step", "/created_at"];
        let rows: Vec<Vec<String>> = jobs["jobs"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|job| columns.map(|pointer| text(job, pointer)).to_vec())
            .collect();
        output.table(&["JOB", "SERVER", "STATUS", "OUTCOME", "STEP", "FAILED STEP", "CREATED"], &rows)?;
        if !jobs["next"].is_null() {
            output.note("there are more; give a larger --limit");
        }
        Ok(())
    }
}

/// The recipe as its author wrote it.
pub(super) fn recipe(path: &Path) -> Result<Box<RawValue>, CliError> {
    let bytes = input::read(path, MAX_RECIPE_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        CliError::failed(format!(
            "the recipe {} is not JSON: {error}; `shoal recipe validate` says more",
            path.display()
        ))
    })
}

/// Follows a job and says how it ended.
pub(super) async fn watch_to_the_end(
    client: &Client,
    job: &str,
    pace: Pace,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let ended = follow(client, job, 0, pace, output, &mut show_event).await?;
    if output.json {
        output.row(&ended)?;
    } else {
        output.line("")?;
        show(&ended, output)?;
    }
    match ended["outcome"].as_str() {
        Some("succeeded") => Ok(()),
        other => {
            Err(CliError::JobEnded { job: plain(job), outcome: plain(other.unwrap_or("without an outcome")) })
        }
    }
}

fn show_event(event: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json { output.row(event) } else { output.line(timeline::line(event)) }
}

/// A job for people.
fn show(job: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(job, pointer);
    let labelled = |label: &str, pointer: &str| match part(pointer) {
        value if value.is_empty() => value,
        value => format!("{label} {value}"),
    };
    output.fields(&[
        ("job", part("/job_id")),
        ("server", part("/server_serial")),
        ("status", part("/status")),
        ("outcome", part("/outcome")),
        ("step", part("/step")),
        (
            "waits for",
            join(
                &[
                    part("/wait/reason"),
                    labelled("since", "/wait/since"),
                    labelled("until", "/wait/deadline"),
                    part("/wait/detail"),
                ],
                ", ",
            ),
        ),
        ("held", part("/hold")),
        ("completion", join(&[part("/completion/by"), part("/completion/sign")], ": ")),
        ("failed step", part("/failed_step")),
        ("failure", join(&[part("/failure/class"), part("/failure/summary")], ": ")),
        ("what to do", part("/failure/next_action")),
        ("evidence", part("/failure/evidence")),
        ("cleanup", join(&[part("/cleanup/state"), part("/cleanup/remaining")], " ")),
        ("maintenance", part("/maintenance_iso_url")),
        ("task image", join(&[part("/task_iso_sha256"), part("/task_iso_path")], " ")),
        ("recipe schema", part("/recipe_schema_id")),
        ("priority", part("/priority")),
        ("labels", part("/labels")),
        ("created", part("/created_at")),
        ("changed", part("/last_update")),
        ("deadline", part("/deadline_at")),
    ])?;
    let steps = job["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if steps.is_empty() {
        return Ok(());
    }
    let columns = ["/step", "/phase", "/attempt", "/started_at", "/ended_at"];
    let rows: Vec<Vec<String>> =
        steps.iter().map(|step| columns.map(|pointer| text(step, pointer)).to_vec()).collect();
    output.line("")?;
    output.table(&["STEP", "PHASE", "ATTEMPT", "STARTED", "ENDED"], &rows)
}
