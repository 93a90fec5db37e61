//! `shoal batch`: many jobs created by one request.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Client, header};
use super::error::CliError;
use super::ids;
use super::input;
use super::job;
use super::live::{Source, WatchArgs};
use super::output::{Column, Format, Output, Since, join, plain, text};
use super::watch::{self, PollInterval};

/// The longest file of a batch or list of servers, in bytes: the default request limit of a controller.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Commands for batches.
#[derive(Debug, Subcommand)]
pub(super) enum BatchCommand {
    /// Create one job per server, in one request
    Create(CreateBatch),
    /// List the newest batches
    List(ListBatches),
    /// Show the progress of a batch; `shoal job list --batch` lists its jobs
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
}

/// Arguments of `shoal batch list`.
#[derive(Args, Debug)]
pub(super) struct ListBatches {
    /// Only batches created at this time or later: a duration before now, such as 2h, or a time as RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    #[command(flatten)]
    watch: WatchArgs,
}

impl ListBatches {
    async fn run(&self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let mut batches = client.get(&["batches"], &[]).await?.body;
        if let (Some(since), Some(rows)) = (self.since, batches["batches"].as_array_mut()) {
            let from = since.time((output.times.now)());
            rows.retain(|batch| job::is_since(batch, "/created_at", from));
        }
        if output.json { output.document(&batches) } else { list(&batches, output) }
    }
}

/// Arguments of `shoal batch create`.
#[derive(Args, Debug)]
pub(super) struct CreateBatch {
    /// The body of `POST /api/v1/batches` as JSON: a file, or - for standard input
    #[arg(long, value_name = "FILE", required_unless_present = "servers", conflicts_with_all = ["servers", "recipe"])]
    from: Option<PathBuf>,
    /// The serial numbers of the servers, one per line: a file, or - for standard input
    #[arg(long, value_name = "FILE", requires = "recipe")]
    servers: Option<PathBuf>,
    /// The recipe of all servers of --servers
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// How many jobs of the batch may run at the same time [default: no limit by the batch]
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    /// A repetition with the same key creates no second batch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Follow the batch until all its jobs are complete
    #[arg(long)]
    watch: bool,
}

/// Runs a command.
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
    }
}

/// Shows batches as a table.
fn list(batches: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let batches = batches["batches"].as_array().map(Vec::as_slice).unwrap_or_default();
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
    output.columns(&columns, &rows)
}

impl CreateBatch {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let mut order = self.order()?;
        if let Some(max_parallel) = self.max_parallel {
            order.insert("max_parallel".to_owned(), raw(&max_parallel.to_string())?);
        }
        let headers = match &self.idempotency_key {
            Some(key) => header("idempotency-key", key)?,
            None => HeaderMap::new(),
        };
        let response = client.post(&["batches"], &order, headers).await?.body;
        let Some(batch) = response["batch_id"].as_str() else {
            return Err(client.unexpected_response(&["batches"], "batch_id is missing"));
        };
        if output.json {
            output.row(&response)?;
        } else {
            let (accepted, refused) = (text(&response, "/accepted"), text(&response, "/refused"));
            output.line(format!("batch {}: {accepted} jobs accepted, {refused} refused", plain(batch)))?;
            for row in response["rows"].as_array().into_iter().flatten().filter(|row| row["job_id"].is_null())
            {
                let place = text(row, "/index");
                output.note(format!(
                    "row {place}: {} {}",
                    text(row, "/server_serial"),
                    text(row, "/error/message")
                ));
            }
        }
        if self.watch { watch_to_the_end(client, batch, output).await } else { Ok(()) }
    }

    /// The request body. A recipe is sent as it was written, because the controller stores its text.
    fn order(&self) -> Result<std::collections::BTreeMap<String, Box<RawValue>>, CliError> {
        if let Some(path) = &self.from {
            let bytes = input::read(path, MAX_BATCH_BYTES)?;
            return serde_json::from_slice(&bytes).map_err(|error| {
                CliError::failed(format!("{} is not a JSON object: {error}", path.display()))
            });
        }
        let (Some(servers), Some(recipe)) = (&self.servers, &self.recipe) else {
            return Err(CliError::Usage("give --from, or --servers with --recipe".to_owned()));
        };
        let list = input::read(servers, MAX_BATCH_BYTES)?;
        let list = String::from_utf8(list)
            .map_err(|_| CliError::failed(format!("{} is not text", servers.display())))?;
        let serials = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rows: Vec<Value> = serials.map(|serial| json!({ "server_serial": serial })).collect();
        Ok([
            ("rows".to_owned(), raw(&Value::Array(rows).to_string())?),
            ("recipe".to_owned(), job::recipe(recipe)?),
        ]
        .into())
    }
}

fn raw(json: &str) -> Result<Box<RawValue>, CliError> {
    RawValue::from_string(json.to_owned())
        .map_err(|error| CliError::failed(format!("cannot write the request as JSON: {error}")))
}

async fn watch_to_the_end(client: &Client, batch: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let mut shown = String::new();
    let path = ["batches", batch];
    let ended = watch::until(client, &path, PollInterval::default(), output, &mut |batch, output| {
        let now = progress(batch);
        if now != shown && !output.json {
            output.note(&now);
        }
        shown = now;
        batch["complete"] == true
    })
    .await?;
    if output.json {
        output.row(&ended)?;
    } else {
        show(&ended, output)?;
    }
    let count = |key: &str| ended["progress"][key].as_u64().unwrap_or(0);
    match (count("failed"), count("cancelled")) {
        (0, 0) => Ok(()),
        (failed, cancelled) => {
            let outcome = format!("with {failed} failed and {cancelled} cancelled jobs");
            Err(CliError::BatchEnded { batch: plain(batch), outcome })
        }
    }
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
        ("created by", part("/created_by")),
        ("created", part("/created_at")),
    ])
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
