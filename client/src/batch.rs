//! `shoal batch`: many jobs created by one request.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::connection::Client;
use super::dry_runs::{DryRuns, NextLine};
use super::error::CliError;
use super::filter::FilterOptions;
use super::ids;
use super::input;
use super::live::{Source, WatchArgs};
use super::many::{self, Consent};
use super::output::{Column, Format, Output, Since, join, plain, text};
use super::repeat::RepeatKey;
use super::watch::{self, PollInterval};
use model::Subject;

/// The longest file of a batch or list of servers, in bytes: the default request limit of a controller.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// The maximum of batches on one page of the controller.
const MAX_PAGE: usize = 100;

/// Commands for batches.
#[derive(Debug, Subcommand)]
pub(super) enum BatchCommand {
    /// Create one job per server, in one request
    Create(CreateBatch),
    /// List batches, the newest first
    List(ListBatches),
    /// Show the progress of a batch and the causes of its failures; `shoal job list --batch` lists its jobs
    Show {
        /// The id of the batch, or its beginning
        batch: String,
    },
    /// Follow a batch until all its jobs are complete; the exit code is 0 only if all succeeded
    Watch {
        /// The id of the batch, or its beginning
        batch: String,
    },
    /// Cancel the queued jobs of a batch; running jobs continue
    Cancel {
        /// The id of the batch, or its beginning
        batch: String,
        /// Also cancel running jobs; their cleanup runs
        #[arg(long)]
        all: bool,
        /// The reason, stored in the events of the jobs
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Continue a batch that has stopped: its further jobs start, and its failures are counted from 0 again
    Continue {
        /// The id of the batch, or its beginning
        batch: String,
    },
    /// Create a new batch with the servers and recipes of the failed jobs of another one
    Retry(RetryBatch),
}

/// Arguments of `shoal batch retry`.
#[derive(Args, Debug)]
pub(super) struct RetryBatch {
    /// The id of the batch, or its beginning
    batch: String,
    /// Retry the jobs that failed; nothing else can be retried, and the word is for the reader of a script
    #[arg(long, required = true)]
    failed: bool,
    /// Only jobs of this cause, by the id that `shoal batch show` names
    #[arg(long, value_name = "CAUSE", conflicts_with_all = ["class", "step"])]
    cause: Option<String>,
    /// Retry nothing unless this number of jobs would be repeated
    #[arg(long, value_name = "N")]
    expect: Option<u64>,
    /// Only jobs that failed for a reason of this class, as `shoal batch show` names it
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Only jobs that failed at this step
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// How many jobs may run at the same time [default: as in the batch]
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    #[command(flatten)]
    limits: StopArgs,
    /// A repetition with the same key creates no second batch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Follow the new batch until all its jobs are complete
    #[arg(long)]
    watch: bool,
}

/// When a batch starts no further job.
#[derive(Args, Debug)]
pub(super) struct StopArgs {
    /// The first N jobs must succeed before the others start
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) canary: u32,
    /// After N failed jobs no further job starts until the batch is continued
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) stop_after: Option<u32>,
}

/// Arguments of `shoal batch list`.
#[derive(Args, Debug)]
pub(super) struct ListBatches {
    /// Only batches created at this time or later: a duration before now, such as 2h, a date, or a time as RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only batches with a job for which these labels hold: KEY=VALUE, KEY!=VALUE, KEY or !KEY, with commas between
    #[arg(long = "label", short = 'l', value_name = "SELECTOR")]
    labels: Vec<String>,
    /// The maximum of listed batches
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = many::rows)]
    limit: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

impl ListBatches {
    async fn run(&self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let since = self.since.map(|since| ("since", since.time((output.times.now)()).to_string()));
        let labels = (!self.labels.is_empty()).then(|| ("label", self.labels.join(",")));
        let filters: Vec<(&str, String)> = since.into_iter().chain(labels).collect();
        let batches = client.list_in_pages(&["batches"], "batches", &filters, self.limit, MAX_PAGE).await?;
        if output.json { output.document(&batches) } else { list(&batches, output) }
    }
}

/// Arguments of `shoal batch create`.
#[derive(Args, Debug)]
pub(super) struct CreateBatch {
    /// The body of `POST /api/v1/batches` as JSON: a file, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["servers", "recipe"])]
    from: Option<PathBuf>,
    /// The serial numbers of the servers, one per line: a file, or - for standard input
    #[arg(long, value_name = "FILE", requires = "recipe")]
    servers: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterOptions,
    #[command(flatten)]
    consent: Consent,
    /// Show whether the controller would accept the job of each of the first 200 servers of the filter, of --servers or of --from; nothing
    /// is created. Ends with 4 if the controller would refuse a job
    #[arg(long, conflicts_with_all = ["watch", "yes"])]
    dry_run: bool,
    /// The recipe of all servers of --servers or of the filter
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// How many jobs of the batch may run at the same time [default: no limit by the batch]
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    #[command(flatten)]
    limits: StopArgs,
    /// A repetition with the same key creates no second batch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Follow the batch until all its jobs are complete
    #[arg(long)]
    watch: bool,
}

/// Runs a command of `shoal batch`.
pub(super) async fn run(
    command: BatchCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        BatchCommand::Create(create) => create.run(client, output).await,
        BatchCommand::List(list) => {
            let watch = list.watch;
            watch.list(Source::Events(client), output, async |output| list.run(client, output).await).await
        }
        BatchCommand::Show { batch } => {
            let batch = ids::batch(client, &batch).await?;
            let batch = client.get(&["batches", &batch], &[]).await?.body;
            if output.json { output.document(&batch) } else { show(&batch, output) }
        }
        BatchCommand::Watch { batch } => {
            let batch = ids::batch(client, &batch).await?;
            watch_to_the_end(client, &batch, output).await
        }
        BatchCommand::Cancel { batch, all, reason } => {
            let batch = ids::batch(client, &batch).await?;
            let body = json!({ "all": all, "reason": reason });
            let response = client.post(&["batches", &batch, "cancel"], &body, HeaderMap::new()).await?.body;
            if output.json {
                return output.document(&response);
            }
            let ended = text(&response, "/cancelled_now");
            output.line(format!("{ended} jobs of batch {} are being cancelled", plain(&batch)))
        }
        BatchCommand::Continue { batch } => {
            let batch = ids::batch(client, &batch).await?;
            let path = ["batches", &*batch, "continue"];
            let response = client.post(&path, &json!({}), HeaderMap::new()).await?;
            if output.json {
                return output.document(&response.body);
            }
            let now = if response.status == 202 { "continues" } else { "had not stopped" };
            output.line(format!("batch {} {now}", plain(&batch)))
        }
        BatchCommand::Retry(retry) => retry.run(client, output).await,
    }
}

/// Shows batches as a table.
fn list(page: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let batches = page["batches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known: Vec<&str> = batches.iter().filter_map(|batch| batch["batch_id"].as_str()).collect();
    let length = if output.format == Format::Wide { usize::MAX } else { ids::distinct(&known) };
    let row = |batch: &Value| {
        let id: String = text(batch, "/batch_id").chars().take(length).collect();
        vec![
            id,
            progress(batch),
            text(batch, "/jobs"),
            text(batch, "/created_at"),
            text(batch, "/created_by"),
        ]
    };
    let rows: Vec<Vec<String>> = batches.iter().map(row).collect();
    let columns = [
        Column::new("BATCH", 0),
        Column::new("PROGRESS", 1),
        Column::new("JOBS", 3),
        Column::new("CREATED", 2),
        Column::wide("CREATED BY"),
    ];
    output.columns(&columns, &rows)?;
    if !page["next"].is_null() {
        output.note("there are more batches; give a larger --limit");
    }
    Ok(())
}

/// The body of `POST /api/v1/batches`, each field as it was written.
type BatchOrder = BTreeMap<String, Box<RawValue>>;

/// What a row without a value of its own has from the order.
const DEFAULTS: [&str; 5] = ["recipe", "maintenance_iso_url", "labels", "priority", "deadline"];

/// The body of a job, each field as it was written.
type RowOrder<'a> = BTreeMap<String, &'a RawValue>;

/// The jobs of an order, as the controller makes them of its rows: each with its serial number.
fn jobs<'a>(order: &'a BatchOrder) -> Result<Vec<(String, RowOrder<'a>)>, CliError> {
    let rows = order.get("rows").map_or("[]", |rows| rows.get());
    let rows: Vec<RowOrder<'a>> = serde_json::from_str(rows).map_err(|error| {
        CliError::failed(format!("the rows of the batch are no list of objects: {error}"))
    })?;
    let with_defaults = |mut row: RowOrder<'a>| {
        let serial = row.get("server_serial").and_then(|serial| serde_json::from_str(serial.get()).ok());
        for name in DEFAULTS {
            let own = row.get(name).filter(|value| value.get() != "null");
            if let (None, Some(value)) = (own, order.get(name)) {
                row.insert(name.to_owned(), value);
            }
        }
        (serial.unwrap_or_default(), row)
    };
    Ok(rows.into_iter().map(with_defaults).collect())
}

impl CreateBatch {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let filter = self.filter.text(Subject::Servers)?;
        if !filter.is_empty() && (self.from.is_some() || self.servers.is_some()) {
            return Err(CliError::Usage("give a filter, --servers or --from, not two of them".to_owned()));
        }
        const VERB: &str = "batch create";
        let (mut order, next) = if filter.is_empty() {
            self.consent.expect_none()?;
            (self.order()?, NextLine::WithoutDryRun)
        } else {
            // A recipe that cannot be read is said before the servers are shown, and not after the consent.
            let recipe = self.recipe_of_all()?;
            let selected = self.consent.servers(VERB, &filter, self.dry_run, client, output).await?;
            let Some(serials) = selected else { return Ok(()) };
            (Self::order_of(&serials, recipe)?, NextLine::YesWithoutDryRun)
        };
        if self.dry_run {
            let dry_runs = DryRuns { verb: VERB, next, key: self.idempotency_key.as_deref() };
            return dry_runs.show(jobs(&order)?.into_iter(), client, output).await;
        }
        if let Some(max_parallel) = self.max_parallel {
            order.insert("max_parallel".to_owned(), raw(&max_parallel.to_string())?);
        }
        if self.limits.canary > 0 {
            order.insert("canary".to_owned(), raw(&self.limits.canary.to_string())?);
        }
        if let Some(stop_after) = self.limits.stop_after {
            order.insert("stop_after".to_owned(), raw(&stop_after.to_string())?);
        }
        let key = RepeatKey::many(self.idempotency_key.as_deref())?;
        let response = key.post(client, &["batches"], &order, output).await?.body;
        created(&response, self.watch, client, output).await
    }

    /// The request body. A recipe is sent as it was written, because the controller stores its text.
    fn order(&self) -> Result<BatchOrder, CliError> {
        if let Some(path) = &self.from {
            let bytes = input::read(path, MAX_BATCH_BYTES)?;
            return serde_json::from_slice(&bytes).map_err(|error| {
                CliError::failed(format!("{} is not a JSON object: {error}", path.display()))
            });
        }
        let Some(servers) = &self.servers else {
            return Err(CliError::Usage("give --from, or --servers or a filter with --recipe".to_owned()));
        };
        let list = input::read(servers, MAX_BATCH_BYTES)?;
        let list = String::from_utf8(list)
            .map_err(|_| CliError::failed(format!("{} is not text", servers.display())))?;
        let serials = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let serials: Vec<String> = serials.map(str::to_owned).collect();
        Self::order_of(&serials, self.recipe_of_all()?)
    }

    /// The request body for these servers.
    fn order_of(serials: &[String], recipe: Box<RawValue>) -> Result<BatchOrder, CliError> {
        let rows: Vec<Value> = serials.iter().map(|serial| json!({ "server_serial": serial })).collect();
        Ok([("rows".to_owned(), raw(&Value::Array(rows).to_string())?), ("recipe".to_owned(), recipe)].into())
    }

    /// The recipe of all servers, which standard input may have once.
    fn recipe_of_all(&self) -> Result<Box<RawValue>, CliError> {
        match &self.recipe {
            Some(recipe) => input::recipe(recipe),
            None => Err(CliError::Usage("give the recipe of the servers with --recipe".to_owned())),
        }
    }
}

impl RetryBatch {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let batch = ids::batch(client, &self.batch).await?;
        let mut body = serde_json::Map::new();
        body.extend(self.cause.map(|cause| ("cause".to_owned(), json!(cause))));
        body.extend(self.expect.map(|expected| ("expected".to_owned(), json!(expected))));
        body.extend(self.class.map(|class| ("class".to_owned(), json!(class))));
        body.extend(self.step.map(|step| ("step".to_owned(), json!(step))));
        body.extend(self.max_parallel.map(|most| ("max_parallel".to_owned(), json!(most))));
        body.extend((self.limits.canary > 0).then(|| ("canary".to_owned(), json!(self.limits.canary))));
        body.extend(self.limits.stop_after.map(|most| ("stop_after".to_owned(), json!(most))));
        let key = RepeatKey::many(self.idempotency_key.as_deref())?;
        let response = key.post(client, &["batches", &batch, "retry"], &body, output).await?.body;
        created(&response, self.watch, client, output).await
    }
}

/// Shows a created batch with its refused rows, and follows it if `watch` is set. Fails if a row was refused.
pub(super) async fn created(
    response: &Value,
    watch: bool,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let batch = many::show_created(response, client, output)?;
    if watch {
        watch_to_the_end(client, &batch, output).await?;
    }
    many::none_refused(response)
}

fn raw(json: &str) -> Result<Box<RawValue>, CliError> {
    RawValue::from_string(json.to_owned())
        .map_err(|error| CliError::failed(format!("cannot write the request as JSON: {error}")))
}

async fn watch_to_the_end(client: &Client, batch: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let (mut shown, mut noted) = (String::new(), None);
    let path = ["batches", batch];
    let ended = watch::until(client, &path, PollInterval::default(), output, &mut |batch, output| {
        let now = progress(batch);
        if now != shown && !output.json {
            output.note(&now);
        }
        shown = now;
        let stop = stopped(batch);
        if stop != noted {
            stop.iter().for_each(|stop| output.note(stop));
            noted = stop;
        }
        batch["complete"] == true
    })
    .await?;
    if output.json {
        output.row(&ended)?;
    } else {
        show(&ended, output)?;
    }
    let count = |key: &str| ended["progress"][key].as_u64().unwrap_or(0);
    let number = |key: &str| ended[key].as_u64().unwrap_or(0);
    match (count("failed"), count("cancelled"), number("total").saturating_sub(number("jobs"))) {
        (0, 0, 0) => Ok(()),
        (failed, cancelled, without_job) => {
            let rows = match without_job {
                0 => String::new(),
                rows => format!(", and {rows} rows without a job"),
            };
            let outcome = format!("with {failed} failed and {cancelled} cancelled jobs{rows}");
            Err(CliError::BatchEnded { batch: plain(batch), outcome })
        }
    }
}

/// The reason why no further job of a batch starts, with the next action; `None` for a batch that has not stopped.
fn stopped(batch: &Value) -> Option<String> {
    let stop = batch.get("stop").filter(|stop| !stop.is_null())?;
    Some(format!("no further job starts ({}): {}", text(stop, "/reason"), text(stop, "/next_action")))
}

/// The progress of a batch in one line.
fn progress(batch: &Value) -> String {
    let names = ["queued", "running", "succeeded", "failed", "cancelled"];
    let parts: Vec<String> = names
        .iter()
        .map(|name| (name, batch["progress"][name].as_u64().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    join(&parts, ", ")
}

fn show(batch: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(batch, pointer);
    output.fields(&[
        ("batch", part("/batch_id")),
        ("progress", progress(batch)),
        ("rows", part("/total")),
        ("jobs", part("/jobs")),
        ("max parallel", part("/max_parallel")),
        ("canary rows", Some(part("/canary")).filter(|rows| rows != "0").unwrap_or_default()),
        ("stop after", part("/stop_after")),
        ("retry of", part("/retry_of")),
        ("created by", part("/created_by")),
        ("created", part("/created_at")),
        ("stopped", join(&[stop(batch), part("/stop/since")], ", since ")),
        ("what to do", part("/stop/next_action")),
    ])?;
    let causes = batch["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().try_for_each(|cause| show_cause(cause, output))?;
    match batch["more_failed"].as_u64() {
        Some(more) if more > 0 => output.line(format!("and {more} failed jobs of further causes")),
        _ => Ok(()),
    }
}

/// The reason why no further job of a batch starts, in words; empty for a batch that has not stopped.
fn stop(batch: &Value) -> String {
    match batch["stop"]["reason"].as_str() {
        Some("canary") => "the others wait until the canary rows have succeeded".to_owned(),
        Some(_) => format!("after {} failed jobs; no further job starts", text(batch, "/stop/failures")),
        None => String::new(),
    }
}

/// Shows one cause of failures: the number of jobs, the reason, the next action, and their servers.
fn show_cause(cause: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(cause, pointer);
    let first = cause["first"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut servers: Vec<String> = first.iter().map(|job| text(job, "/server_serial")).collect();
    let more = cause["jobs"].as_u64().unwrap_or(0).saturating_sub(first.len() as u64);
    if more > 0 {
        servers.push(format!("and {more} more"));
    }
    output.line("")?;
    output.line(format!("{} failed with {} at {}", part("/jobs"), part("/class"), part("/step")))?;
    output.line(format!("  cause: {}", part("/cause")))?;
    output.line(format!("  {}", part("/summary")))?;
    output.line(format!("  what to do: {}", part("/next_action")))?;
    output.line(format!("  servers: {}", join(&servers, ", ")))?;
    match cause["superseded"].as_u64() {
        Some(superseded) if superseded > 0 => {
            output.line(format!("  a retry leaves out: {}", many::superseded(superseded)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn progress_leaves_out_zero_counts() {
        let batch = json!({ "progress": { "queued": 2, "running": 0, "succeeded": 3, "failed": 0 } });
        assert_eq!(progress(&batch), "2 queued, 3 succeeded");
        assert_eq!(progress(&Value::Object(Map::new())), "");
    }
}
