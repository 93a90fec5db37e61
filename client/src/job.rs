//! `shoal job`: creates, shows, follows and changes jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::batch::{self, StopArgs};
use super::connection::Client;
use super::dry_runs::{DryRuns, NextLine};
use super::error::CliError;
use super::exit::Exit;
use super::filter::FilterArgs;
use super::ids;
use super::input;
use super::job_live;
use super::job_media::MediaUrl;
use super::job_verbs::SelectedJobs;
use super::live::{Source, WatchArgs};
use super::many::{self, ServerFilter};
use super::output::{Column, Output, Since, is_since, join, plain, text};
use super::plan_view::would_be_accepted;
use super::repeat::RepeatKey;
use super::timeline;
use super::watch::{self, PollInterval, follow};
use model::Subject;

/// Commands for jobs.
#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// Create a job that installs a server, or one for each of many
    Create(Box<CreateJob>),
    /// List jobs, the newest first
    List(Box<ListJobs>),
    /// Show a job
    Show {
        /// The id of the job, or its beginning
        job: String,
    },
    /// Show the events of a job
    Events {
        /// The id of the job, or its beginning
        job: String,
        /// Only events after this event number
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
        /// Only events of this time or later: a duration before now, such as 2h, a date, or a time as RFC 3339
        #[arg(long, value_name = "TIME")]
        since: Option<Since>,
        /// Continue until the job is complete
        #[arg(long)]
        follow: bool,
    },
    /// Follow a job until it is complete; the exit code is 0 only if it succeeded
    Watch {
        /// The id of the job, or its beginning
        job: String,
    },
    /// Explain the state of a job: reason, deadline, what ends it, and what to do
    Explain {
        /// The id of the job, or its beginning
        job: String,
    },
    /// Show the end of the log of the maintenance OS, which its final report carried
    Log {
        /// The id of the job, or its beginning
        job: String,
    },
    /// Print a signed URL that reads the task image of a job without a login, or read the image into a file
    MediaUrl(MediaUrl),
    /// Cancel a job, or all jobs that a filter selects; the cleanup ejects media and restores boot settings
    Cancel(SelectedJobs),
    /// Hold a queued or waiting job, or all that a filter selects, until they are resumed or cancelled; a hold has no deadline
    Hold(SelectedJobs),
    /// Resume a held job, or all that a filter selects
    Resume(SelectedJobs),
    /// End the rescue session of a job, or of all that a filter selects, with success; the cleanup ejects media and powers the host as the recipe says
    Finish(SelectedJobs),
    /// Create a new job with the server and recipe of an ended job, or a batch with those of all that a filter selects
    Retry {
        #[command(flatten)]
        args: SelectedJobs,
        /// A repetition with the same key creates no second job or batch
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// Follow the new job until it is complete
        #[arg(long)]
        watch: bool,
    },
}

/// Arguments of `shoal job create`.
#[derive(Args, Debug)]
pub(super) struct CreateJob {
    /// The serial number of the server; given more than once, or with a filter, the jobs are one batch
    #[arg(
        long = "server",
        value_name = "SERIAL",
        required_unless_present_any = ["filter", "state", "serial_glob"],
        conflicts_with_all = ["filter", "state", "serial_glob"]
    )]
    servers: Vec<String>,
    #[command(flatten)]
    filter: ServerFilter,
    /// The recipe: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    recipe: PathBuf,
    /// The URL of the maintenance image [default: MAINTENANCE_ISO_URL of the controller]
    #[arg(long, value_name = "URL")]
    maintenance_iso: Option<String>,
    /// The deadline of the job as RFC 3339; a job that has not ended by then fails
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// A label of the job; may be given more than once
    #[arg(long = "label", short = 'l', value_name = "KEY=VALUE", value_parser = super::filter::label)]
    labels: Vec<(String, String)>,
    /// The priority from -100 to 100; a greater one starts first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The time limit of a step in seconds, such as webhook.wait=7200; may be given more than once
    #[arg(long = "timeout", value_name = "STEP=SECONDS", value_parser = timeout)]
    timeouts: Vec<(String, u64)>,
    /// How many jobs of many servers may run at the same time [default: no limit by the batch]
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    #[command(flatten)]
    limits: StopArgs,
    /// A repetition with the same key creates no second job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Show steps, slot plan and images of the job; of several servers, whether the controller would accept the job of each of the first
    /// 200. Nothing is written and nothing is sent to a BMC. Ends with 4 if the controller would refuse a job
    #[arg(long, conflicts_with_all = ["watch", "yes"])]
    dry_run: bool,
    /// Follow the job until it is complete
    #[arg(long)]
    watch: bool,
}

/// Arguments of `shoal job list`.
#[derive(Args, Debug)]
pub(super) struct ListJobs {
    #[command(flatten)]
    filter: FilterArgs,
    /// What needs a person first: held jobs and failures of the last day, then unfinished jobs, then the rest
    #[arg(long)]
    attention: bool,
    /// Only jobs with this status: queued, provisioning, running, succeeded, failed or complete
    #[arg(long)]
    status: Option<String>,
    /// Only jobs of this workflow, such as provision or diagnostics
    #[arg(long)]
    workflow: Option<String>,
    /// The jobs that this job started
    #[arg(long, value_name = "JOB")]
    parent: Option<String>,
    /// Only jobs with this outcome: succeeded, failed or cancelled
    #[arg(long)]
    outcome: Option<String>,
    /// Only jobs of this server
    #[arg(long, value_name = "SERIAL")]
    server: Option<String>,
    /// Only jobs with this failure class, such as media or bmc_unreachable
    #[arg(long, value_name = "CLASS")]
    failure_class: Option<String>,
    /// Only jobs of this batch
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only jobs created at this time or later: a duration before now, such as 2h, a date, or a time as RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// The maximum of listed jobs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = many::rows)]
    limit: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

/// The body of `POST /api/v1/jobs`. The recipe is sent as it was written, because the controller stores its text.
#[derive(Serialize)]
struct NewJob<'a> {
    server_serial: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance_iso_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    timeouts: BTreeMap<&'a str, u64>,
}

/// The body of `POST /api/v1/batches`: one row per server, and the recipe of all.
#[derive(Serialize)]
struct NewBatch<'a> {
    rows: Vec<NewJob<'a>>,
    recipe: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_parallel: Option<u32>,
    #[serde(skip_serializing_if = "is_zero")]
    canary: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_after: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Parses the time limit of a step.
fn timeout(text: &str) -> Result<(String, u64), String> {
    let parsed =
        text.split_once('=').and_then(|(step, seconds)| Some((step.to_owned(), seconds.parse().ok()?)));
    parsed.filter(|(step, _)| !step.is_empty()).ok_or_else(|| "give STEP=SECONDS".to_owned())
}

/// Runs a command of `shoal job`.
pub(super) async fn run(
    command: JobCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        JobCommand::Create(create) => create.run(client, output).await,
        JobCommand::List(list) => {
            let watch = list.watch;
            watch.list(Source::Events(client), output, async |output| list.run(client, output).await).await
        }
        JobCommand::Show { job } => {
            let job = ids::job(client, &job).await?;
            let job = client.get(&["jobs", &job], &[]).await?.body;
            if output.json { output.document(&job) } else { show(&job, output) }
        }
        JobCommand::Events { job, after, since, follow } => {
            let job = ids::job(client, &job).await?;
            events(client, &job, after, since, follow, output).await
        }
        JobCommand::Watch { job } => {
            let job = ids::job(client, &job).await?;
            watch_to_the_end(client, &job, PollInterval::default(), output).await
        }
        JobCommand::Explain { job } => {
            let job = ids::job(client, &job).await?;
            let response = client.get(&["jobs", &job, "explain"], &[]).await?.body;
            if output.json { output.document(&response) } else { explain(&response, output) }
        }
        JobCommand::Log { job } => {
            let job = ids::job(client, &job).await?;
            log(client, &job, output).await
        }
        JobCommand::MediaUrl(media) => media.run(client, output).await,
        JobCommand::Cancel(args) => args.cancel(client, output).await,
        JobCommand::Hold(args) => args.apply("hold", "is held", client, output).await,
        JobCommand::Resume(args) => args.apply("resume", "is resumed", client, output).await,
        JobCommand::Finish(args) => args.apply("finish", "is being finished", client, output).await,
        JobCommand::Retry { args, idempotency_key, watch } => {
            args.retry(idempotency_key.as_deref(), watch, client, output).await
        }
    }
}

/// Shows the events of a job, of a time or later.
async fn events(
    client: &Client,
    job: &str,
    after: u64,
    since: Option<Since>,
    following: bool,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let from = since.map(|since| since.time((output.times.now)()));
    let is_recent = |event: &Value| from.is_none_or(|from| is_since(event, "/time", from));
    if following {
        let mut show = |event: &Value, output: &mut Output<'_>| {
            if is_recent(event) { show_event(event, output) } else { Ok(()) }
        };
        return follow(client, job, after, PollInterval::default(), output, &mut show).await.map(|_| ());
    }
    let (mut events, next) = watch::events(client, &["jobs", job, "events"], after).await?;
    events.retain(is_recent);
    if output.json {
        return output.document(&json!({"events": events, "next": next}));
    }
    events.iter().try_for_each(|event| output.line(timeline::line(event)))
}

/// Shows the log of the final report.
async fn log(client: &Client, job: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let response = client.get(&["jobs", job, "log"], &[]).await?.body;
    if output.json {
        return output.document(&response);
    }
    match response["log"].as_str() {
        Some(log) => log.lines().try_for_each(|line| output.line(plain(line))),
        None => output.line("no log: the maintenance OS has sent no final report, or one without a log"),
    }
}

/// Shows an explanation, with the last events below it.
fn explain(response: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(response, pointer);
    output.fields(&[
        ("job", join(&[part("/job_id"), part("/server_serial"), part("/status")], ", ")),
        ("condition", join(&[part("/condition"), part("/reason")], ": ")),
        ("step", part("/step")),
        ("why", part("/summary")),
        ("since", part("/since")),
        ("next check", part("/next_check")),
        ("deadline", part("/deadline")),
        ("ends by", part("/ends_by")),
        ("not interruptible", part("/uninterruptible")),
        ("what to do", part("/next_action")),
    ])?;
    let evidence = response["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !evidence.is_empty() {
        output.line("")?;
        output.line("last events:")?;
    }
    evidence.iter().try_for_each(|event| output.line(timeline::line(event)))
}

/// Shows the preview of a job.
fn dry_run(response: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(response, pointer);
    let listed = |pointer: &str, inner: &str| {
        let items = response.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
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
        ("blocked by", listed("/blocked_by", "")),
        ("warnings", listed("/warnings", "/message")),
    ])?;
    let columns = ["/stage", "/step", "/attempts", "/call_s", "/budget_s"];
    let steps = response["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<String>> =
        steps.iter().map(|step| columns.map(|pointer| text(step, pointer)).to_vec()).collect();
    output.line("")?;
    output.table(&["STAGE", "STEP", "ATTEMPTS", "CALL S", "BUDGET S"], &rows)
}

impl CreateJob {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let recipe = input::recipe(&self.recipe)?;
        let [server] = &*self.servers else { return self.batch(&recipe, client, output).await };
        self.filter.expect_none()?;
        if self.max_parallel.is_some() || self.limits.canary > 0 || self.limits.stop_after.is_some() {
            let message = "--max-parallel, --canary and --stop-after are of the jobs of many servers: give more than one --server, \
                           or a filter";
            return Err(CliError::Local { message: message.to_owned(), exit: Exit::Usage });
        }
        let body = self.job(server, Some(&recipe));
        if self.dry_run {
            let headers = RepeatKey::of_preview(self.idempotency_key.as_deref())?;
            let query = [("dry_run", "true".to_owned())];
            let response = client.post_query(&["jobs"], &query, &body, headers).await?.body;
            if output.json { output.document(&response) } else { dry_run(&response, output) }?;
            return would_be_accepted(&response, "/refused/error/message");
        }
        let key = RepeatKey::one(self.idempotency_key.as_deref())?;
        let response = key.post(client, &["jobs"], &body, output).await?;
        let Some(job) = response.body["job_id"].as_str() else {
            return Err(client.unexpected_response(&["jobs"], "job_id is missing"));
        };
        if output.json {
            output.row(&response.body)?;
        } else {
            let verb = if response.status == 200 { "exists already" } else { "accepted" };
            output.line(format!("job {} {verb} for server {}", plain(job), plain(server)))?;
            for warning in response.body["warnings"].as_array().into_iter().flatten() {
                output.note(format!("warning: {} {}", text(warning, "/path"), text(warning, "/message")));
            }
        }
        if self.watch { watch_to_the_end(client, job, PollInterval::default(), output).await } else { Ok(()) }
    }

    /// Creates one batch with a job for each server.
    async fn batch(
        &self,
        recipe: &RawValue,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        const VERB: &str = "job create";
        let (serials, next) = if self.filter.is_given() {
            let selected = self.filter.servers(VERB, self.dry_run, client, output).await?;
            (selected, NextLine::YesWithoutDryRun)
        } else {
            self.filter.expect_none()?;
            (Some(self.servers.clone()), NextLine::WithoutDryRun)
        };
        let Some(serials) = serials else { return Ok(()) };
        if self.dry_run {
            let rows = serials.iter().map(|serial| (serial.clone(), self.job(serial, Some(recipe))));
            let dry_runs = DryRuns { verb: VERB, next, key: self.idempotency_key.as_deref() };
            return dry_runs.show(rows, client, output).await;
        }
        let rows = serials.iter().map(|serial| self.job(serial, None)).collect();
        let key = RepeatKey::many(self.idempotency_key.as_deref())?;
        let StopArgs { canary, stop_after } = self.limits;
        let new = NewBatch { rows, recipe, max_parallel: self.max_parallel, canary, stop_after };
        let response = key.post(client, &["batches"], &new, output).await?.body;
        batch::created(&response, self.watch, client, output).await
    }

    /// The body of a job, or a row of a batch.
    fn job<'a>(&'a self, server: &'a str, recipe: Option<&'a RawValue>) -> NewJob<'a> {
        NewJob {
            server_serial: server,
            recipe,
            maintenance_iso_url: self.maintenance_iso.as_deref(),
            deadline: self.deadline.as_deref(),
            labels: self.labels.iter().map(|(key, value)| (&**key, &**value)).collect(),
            priority: self.priority,
            timeouts: self.timeouts.iter().map(|(step, seconds)| (&**step, *seconds)).collect(),
        }
    }
}

impl ListJobs {
    async fn run(&self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let mut wanted = vec![self.filter.text(Subject::Jobs)?];
        wanted.retain(|filter| !filter.is_empty());
        // The controller filters: rows in the order of --attention are not in the order of their times.
        wanted.extend(self.since.map(|since| format!("since:{}", since.time((output.times.now)()))));
        let parent = match &self.parent {
            Some(parent) => Some(ids::job(client, parent).await?),
            None => None,
        };
        let batch = match &self.batch {
            Some(batch) => Some(ids::batch(client, batch).await?),
            None => None,
        };
        let filters: Vec<(&str, String)> = [
            ("status", self.status.clone()),
            ("outcome", self.outcome.clone()),
            ("workflow", self.workflow.clone()),
            ("parent", parent),
            ("server_serial", self.server.clone()),
            ("failure_class", self.failure_class.clone()),
            ("batch", batch),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .chain((!wanted.is_empty()).then(|| ("filter", wanted.join(" "))))
        .chain(self.attention.then(|| ("order", "attention".to_owned())))
        .collect();
        let jobs = client.list(&["jobs"], "jobs", &filters, self.limit).await?;
        if output.json {
            return output.document(&jobs);
        }
        list(&jobs, output)
    }
}

/// Shows jobs as a table.
fn list(jobs: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    const COLUMNS: [Column<'_>; 12] = [
        Column::new("JOB", 0),
        Column::new("WORKFLOW", 6),
        Column::new("SERVER", 1),
        Column::new("STATUS", 2),
        Column::new("OUTCOME", 3),
        Column::new("STEP", 5),
        Column::new("WAITS FOR", 7),
        Column::new("FAILED STEP", 8),
        Column::new("CREATED", 4),
        Column::wide("CHANGED"),
        Column::wide("DEADLINE"),
        Column::wide("BATCH"),
    ];
    let row = |job: &Value, output: &Output<'_>| {
        let part = |pointer| text(job, pointer);
        vec![
            output.id(job, "/short_id", "/job_id"),
            part("/workflow"),
            part("/server_serial"),
            part("/status"),
            part("/outcome"),
            part("/step"),
            waits_for(job),
            part("/failed_step"),
            part("/created_at"),
            part("/last_update"),
            deadline(job),
            part("/batch"),
        ]
    };
    let rows: Vec<Vec<String>> =
        jobs["jobs"].as_array().into_iter().flatten().map(|job| row(job, output)).collect();
    output.columns(&COLUMNS, &rows)?;
    if !jobs["next"].is_null() {
        output.note("there are more jobs; give a larger --limit");
    }
    Ok(())
}

/// The reason of a wait, or the decision of an operator that a held job waits for.
fn waits_for(job: &Value) -> String {
    match text(job, "/hold/class") {
        class if class.is_empty() => text(job, "/wait/reason"),
        class => format!("held: {class}"),
    }
}

/// Follows a job and shows its end.
///
/// # Errors
/// Unless the job succeeded.
pub async fn watch_to_the_end(
    client: &Client,
    job: &str,
    interval: PollInterval,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let in_place = output.screen.live && !output.json;
    let ended = if in_place {
        job_live::follow(client, job, output).await?
    } else {
        follow(client, job, 0, interval, output, &mut show_event).await?
    };
    if output.json {
        output.row(&ended)?;
    } else if !in_place {
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

/// The deadline of a job that has no outcome yet: later the field is the limit of its cleanup.
fn deadline(job: &Value) -> String {
    if job["outcome"].is_null() { text(job, "/deadline_at") } else { String::new() }
}

/// Shows a job.
fn show(job: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(job, pointer);
    let labelled = |label: &str, pointer: &str| match part(pointer) {
        value if value.is_empty() => value,
        value => format!("{label} {value}"),
    };
    output.fields(&[
        ("job", part("/job_id")),
        ("workflow", part("/workflow")),
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
        ("detail", part("/failure/detail")),
        ("cleanup", join(&[part("/cleanup/state"), part("/cleanup/remaining")], " ")),
        ("maintenance", part("/maintenance_iso_url")),
        ("task image", join(&[part("/task_iso_sha256"), part("/task_iso_path")], " ")),
        ("recipe schema", part("/recipe_schema_id")),
        ("started by", part("/parent")),
        ("retry of", part("/retry_of")),
        ("batch", part("/batch")),
        ("verbs", part("/verbs")),
        ("priority", part("/priority")),
        ("labels", part("/labels")),
        ("created", part("/created_at")),
        ("changed", part("/last_update")),
        ("deadline", deadline(job)),
    ])?;
    let steps = job["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if steps.is_empty() {
        return Ok(());
    }
    let columns = ["/phase", "/attempt", "/started_at", "/ended_at"];
    let rows: Vec<Vec<String>> = steps
        .iter()
        .map(|step| {
            let others = columns.iter().map(|pointer| text(step, pointer));
            std::iter::once(job_live::step_name(step)).chain(others).collect()
        })
        .collect();
    output.line("")?;
    output.table(&["STEP", "PHASE", "ATTEMPT", "STARTED", "ENDED"], &rows)
}
