//! `shoal controller`: whether jobs begin.

use clap::Subcommand;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::client::Client;
use super::error::CliError;
use super::output::{Output, join, text};

/// What to do with the controller.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Keep jobs from beginning, also over a restart; what has begun goes on to its end
    Drain {
        /// Why, for those who wait
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Let jobs begin again
    Undrain,
    /// Show whether jobs begin, and what is under way
    Status,
}

/// Runs a command.
pub(super) async fn run(command: Command, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let answer = match command {
        Command::Drain { reason } => {
            let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            client.post(&["drain"], &body, HeaderMap::new()).await?
        }
        Command::Undrain => client.delete(&["drain"], HeaderMap::new()).await?,
        Command::Status => client.get(&["drain"], &[]).await?,
    };
    if output.json { output.document(&answer.body) } else { show(&answer.body, output) }
}

fn show(answer: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |pointer: &str| text(answer, pointer);
    let begins = match (&answer["drained"], &answer["pressure"]) {
        (Value::Bool(true), _) => "no, it is drained",
        (_, Value::Null) => "yes",
        _ => "no, it is short of something",
    };
    output.fields(&[
        ("jobs begin", begins.to_owned()),
        ("drained", join(&[part("/drain/since"), part("/drain/by"), part("/drain/reason")], ", ")),
        ("short of", join(&[part("/pressure/name"), part("/pressure/detail")], ": ")),
        ("what to do", part("/pressure/next_action")),
        ("at work", part("/working")),
        ("under way", part("/under_way")),
        ("queued", part("/queued")),
    ])
}
