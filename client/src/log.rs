//! `shoal log`: the log filter of a running controller.

use clap::Subcommand;
use reqwest::header::HeaderMap;
use serde_json::json;

use super::connection::Client;
use super::error::CliError;
use super::output::{Output, text};

/// A command about the log of a controller.
#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// Show or change what the controller writes to its log; a change ends with a reload or the controller
    Level {
        /// A level (error, warn, info, debug, trace), or levels for parts such as info,engine=debug
        filter: Option<String>,
        /// Return to the setting LOG_LEVEL
        #[arg(long, conflicts_with = "filter")]
        reset: bool,
    },
}

/// Runs a command of `shoal log`.
pub(super) async fn run(
    command: LogCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    const PATH: [&str; 1] = ["log-level"];
    let LogCommand::Level { filter, reset } = command;
    let level = match filter {
        Some(filter) => client.post(&PATH, &json!({ "filter": filter }), HeaderMap::new()).await?.body,
        None if reset => client.delete(&PATH, HeaderMap::new()).await?.body,
        None => client.get(&PATH, &[]).await?.body,
    };
    if output.json {
        return output.document(&level);
    }
    let changed = level["changed"] == true;
    let setting = if changed { text(&level, "/setting") } else { String::new() };
    output.fields(&[("filter", text(&level, "/filter")), ("instead of the setting", setting)])
}
