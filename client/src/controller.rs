//! `shoal controller`: readiness and drain of a controller, and the release of restored data.

use std::time::Duration;

use clap::Subcommand;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::live::{Source, WatchArgs};
use super::output::{Output, join, text};
use super::{ready, restored};

/// Commands for the controller.
#[derive(Debug, Subcommand)]
pub(super) enum ControllerCommand {
    /// Start a drain: no job starts until `undrain`, also after a restart; running jobs continue to their end
    Drain {
        /// The reason, shown with every waiting job
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End the drain; queued jobs start
    Undrain,
    /// Show whether jobs start, and how many run or wait
    Status,
    /// Show whether the controller can do its work, and which check fails
    Ready {
        /// Wait up to this many seconds until all checks pass, for example after a start
        #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true,
            value_parser = clap::value_parser!(u64).range(0..=86_400))]
        wait: u64,
    },
    /// List the servers to which nothing is done because their data is a copy, was restored, or is old
    Restored(WatchArgs),
    /// Release all servers of restored data, for example after a move to a new host
    Release {
        /// Confirm that no other controller uses this data or its servers
        #[arg(long, required = true)]
        old_controller_is_off: bool,
        /// Servers with unfinished jobs too, and what happens to these jobs
        #[arg(long, value_name = "WHAT")]
        jobs: Option<restored::Jobs>,
    },
}

/// Runs a command of `shoal controller`.
pub(super) async fn run(
    command: ControllerCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let response = match command {
        ControllerCommand::Ready { wait } => {
            return ready::run(client, Duration::from_secs(wait), output).await;
        }
        ControllerCommand::Restored(watch) => {
            let show = async |output: &mut Output<'_>| restored::list(client, output).await;
            return watch.list(Source::Events(client), output, show).await;
        }
        ControllerCommand::Release { jobs, .. } => return restored::release_all(jobs, client, output).await,
        ControllerCommand::Drain { reason } => {
            let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            client.post(&["drain"], &body, HeaderMap::new()).await?
        }
        ControllerCommand::Undrain => client.delete(&["drain"], HeaderMap::new()).await?,
        ControllerCommand::Status => client.get(&["drain"], &[]).await?,
    };
    if output.json { output.document(&response.body) } else { show(&response.body, output) }
}

fn show(response: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(response, pointer);
    let starts = match (&response["drained"], &response["pressure"]) {
        (Value::Bool(true), _) => "no: the controller is drained",
        (_, Value::Null) => "yes",
        _ => "no: the controller is short of a resource",
    };
    output.fields(&[
        ("jobs start", starts.to_owned()),
        ("drained", join(&[part("/drain/since"), part("/drain/by"), part("/drain/reason")], ", ")),
        ("short of", join(&[part("/pressure/name"), part("/pressure/detail")], ": ")),
        ("what to do", part("/pressure/next_action")),
        ("active runs", part("/active_runs")),
        ("running jobs", part("/running")),
        ("queued jobs", part("/queued")),
    ])
}
