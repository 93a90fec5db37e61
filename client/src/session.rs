//! `shoal session`: the logins of browsers.

use std::cell::Cell;

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::live::{Source, WatchArgs};
use super::many;
use super::output::{Output, counted, plain, text};

/// Commands for web sessions.
#[derive(Debug, Subcommand)]
pub(super) enum SessionCommand {
    /// List the web sessions: those of the caller, for an administrator all
    List(WatchArgs),
    /// End web sessions; their cookies are refused with the next request
    End(EndSessions),
}

/// Which sessions end.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct EndSessions {
    /// The ids of the sessions, as `shoal session list` shows them
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All sessions of a user or an API token
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    /// All sessions of the caller
    #[arg(long)]
    mine: bool,
}

/// Runs a command of `shoal session`.
pub(super) async fn run(
    command: SessionCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        SessionCommand::List(watch) => {
            watch.list(Source::Pauses, output, async |output| list(client, output).await).await
        }
        SessionCommand::End(EndSessions { of: Some(name), .. }) => {
            let ended = client.delete(&["users", &name, "sessions"], HeaderMap::new()).await?.body;
            show(&ended, output)?;
            match ended["ended"].as_u64() {
                Some(0) => Err(CliError::Local {
                    message: format!("{} has no web session; `shoal session list` shows them", plain(&name)),
                    exit: Exit::NotFound,
                }),
                _ => Ok(()),
            }
        }
        SessionCommand::End(EndSessions { mine: true, .. }) => {
            let ended = client.delete(&["sessions"], HeaderMap::new()).await?.body;
            show(&ended, output)
        }
        SessionCommand::End(EndSessions { ids, .. }) => {
            let end = async |id: &str| client.delete(&["sessions", id], HeaderMap::new()).await;
            if let [id] = ids.as_slice() {
                end(id).await?;
                return show(&json!({ "ended": 1 }), output);
            }
            let ended = Cell::new(0);
            let all = many::each_of(("session", "web sessions"), &ids, output, async |id, _| {
                end(id).await?;
                ended.set(ended.get() + 1);
                Ok(())
            })
            .await;
            show(&json!({ "ended": ended.get() }), output)?;
            all
        }
    }
}

fn show(ended: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(ended);
    }
    let sessions = counted(ended["ended"].as_u64().unwrap_or(0), "web session", "web sessions");
    output.line(format!("{sessions} ended"))
}

async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = client.get(&["sessions"], &[]).await?.body;
    if output.json {
        return output.document(&page);
    }
    let row = |session: &Value| {
        let part = |pointer: &str| text(session, pointer);
        vec![
            part("/session_id"),
            part("/name"),
            part("/login"),
            part("/address"),
            part("/created_at"),
            part("/last_used_at"),
            part("/expires_at"),
            part("/agent"),
        ]
    };
    let rows: Vec<Vec<String>> = page["sessions"].as_array().into_iter().flatten().map(row).collect();
    output
        .table(&["SESSION", "NAME", "LOGIN", "ADDRESS", "CREATED", "LAST USED", "EXPIRES", "BROWSER"], &rows)
}
