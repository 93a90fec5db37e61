//! `shoal top`: what the whole installation does, on one screen.
//!
//! ```text
//!   GET /overview, /readyz, /registry, the last events ──> lines that fit the terminal ──> alternate screen
//!     ^                                                                                      └── q: back to the shell
//!     └── an event of the controller; ages are drawn again every second
//! ```
//!
//! Invariants: the terminal is restored at every end, also of a signal or a panic; on a pipe, and with `--once`, the page is
//! printed once.

mod page;
mod terminal;

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::connection::{Changes, Client};
use super::error::CliError;
use super::output::{Output, Screen};
use page::Page;
use terminal::{FullScreen, Input};

/// The pause between two reads without an event stream.
const PAUSE: Duration = Duration::from_secs(2);
/// The interval in which ages are drawn again.
const TICK: Duration = Duration::from_secs(1);
/// The number of ticks after which readiness and disk, which have no events, are read again.
const READ_EVERY: u32 = 15;
/// The number of the last events that are read.
const EVENTS: i64 = 50;

/// Arguments of `shoal top`.
#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// Print the page once, as on a pipe
    #[arg(long)]
    once: bool,
}

/// Shows the page.
pub(super) async fn run(
    arguments: TopArgs,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if output.json {
        return output.document(&read(client).await?.document());
    }
    if arguments.once || !output.screen.live {
        let page = read(client).await?;
        let lines = page.lines(Screen { height: usize::MAX, ..output.screen }, output.times);
        return lines.iter().try_for_each(|line| output.line(line));
    }
    let first = read(client).await?;
    live(first, client, output).await
}

/// Shows the page until `q`.
async fn live(mut page: Page, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let mut terminal = FullScreen::enter()?;
    let mut changes = Changes::of(client, &["events"]);
    loop {
        for seconds in 1..=READ_EVERY {
            output.screen = Screen::of_stdout();
            let lines = page.lines(output.screen, output.times);
            terminal.draw(&lines, output)?;
            let again = tokio::select! {
                biased;
                input = terminal.input() => match input {
                    Input::Quit => return Ok(()),
                    Input::Redraw => false,
                },
                again = changes.changed(PAUSE, TICK) => again,
            };
            if again || seconds == READ_EVERY {
                break;
            }
        }
        match read(client).await {
            Ok(read) => page = read,
            Err(error) if error.is_transient() => {
                page.stale = Some(error.to_string());
                changes.read_failed(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads what the page shows.
async fn read(client: &Client) -> Result<Page, CliError> {
    let overview = match client.get(&["overview"], &[]).await {
        Ok(overview) => overview.body,
        Err(CliError::Refused { status: 404, .. }) => {
            return Err(CliError::failed(
                "this controller has no overview, because it is older than this program: upgrade it, or use shoal job list",
            ));
        }
        Err(error) => return Err(error),
    };
    let readiness = match client.get_root("readyz").await {
        Ok(ready) => ready.body,
        // A controller that is not ready says why in the body of 503.
        Err(CliError::Refused { body, .. }) if body["checks"].is_object() => body,
        Err(error) => return Err(error),
    };
    let registry = match client.get(&["registry"], &[]).await {
        Ok(registry) => registry.body,
        // Without a registry, or without the permission to see it.
        Err(CliError::Refused { status: 403 | 404 | 409 | 503, .. }) => Value::Null,
        Err(error) => return Err(error),
    };
    let newest = overview["last_seq"].as_i64().unwrap_or(0);
    let query = [("after", (newest - EVENTS).max(0).to_string()), ("limit", EVENTS.to_string())];
    let events = client.get(&["events"], &query).await?.body["events"].take();
    Ok(Page { overview, readiness, registry, events, stale: None })
}
