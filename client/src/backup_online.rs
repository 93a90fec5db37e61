//! `shoal backup now|list|verify|status`: the backups that a running controller makes at BACKUP_TARGET.
//!
//! ```text
//!   POST /backups ── 202 ──> GET /backup-status until nothing runs ──> the backup, exit code 0
//!                                  └── progress on standard error       or why it failed, exit code 1
//! ```

use std::time::Duration;

use clap::Subcommand;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::live::{Source, WatchArgs};
use super::output::{Format, Output, join, plain, text};
use super::progress::{Progress, bytes};

/// The pause between two looks at the status.
const PAUSE: Duration = Duration::from_millis(500);

/// The backups that a running controller makes.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Make a backup at BACKUP_TARGET of the running controller now, and wait for its end
    Now {
        /// Only start it; `status` shows its end
        #[arg(long)]
        no_wait: bool,
    },
    /// List the backups at BACKUP_TARGET, also those that others made
    List {
        // Its documents would be help.
        #[allow(missing_docs)]
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Read all of a backup at BACKUP_TARGET and compare it with its digests; ends with 1 if it is damaged
    Verify {
        /// The name, as `list` shows it [default: the newest one of this controller]
        name: Option<String>,
        /// Only start it; `status` shows its end
        #[arg(long)]
        no_wait: bool,
    },
    /// Show the age of the last backup, when the next one is due, and what failed
    Status,
}

/// Sends a request and shows its result.
///
/// # Errors
/// When the controller cannot be reached or refuses, or the backup failed or is damaged.
pub async fn run(command: BackupCommand, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        BackupCommand::Status => show(&status(client).await?, output),
        BackupCommand::List { watch } => {
            watch.list(Source::Pauses, output, async |output| list(client, output).await).await
        }
        BackupCommand::Now { no_wait } => {
            let before = status(client).await?;
            let started = client.post(&["backups"], &json!({}), HeaderMap::new()).await?.body;
            if no_wait {
                return only_started(&started, "the backup", output);
            }
            made(&before, &finished(client, output).await?, output)
        }
        BackupCommand::Verify { name, no_wait } => {
            let name = match name {
                Some(name) => name,
                None => newest(&status(client).await?)?,
            };
            let path = ["backups", &name, "verify"];
            let started = client.post(&path, &json!({}), HeaderMap::new()).await?.body;
            if no_wait {
                return only_started(&started, "the verification", output);
            }
            let after = finished(client, output).await?;
            if after.pointer("/verification/error").is_some_and(Value::is_string) {
                expect_listed(&name, client).await?;
            }
            verified(&name, &after, output)
        }
    }
}

/// Refuses a name that the list of backups does not have.
async fn expect_listed(name: &str, client: &Client) -> Result<(), CliError> {
    let page = client.get(&["backups"], &[]).await?.body;
    match page["backups"].as_array() {
        Some(backups) if !backups.iter().any(|backup| backup["name"] == *name) => Err(CliError::Local {
            message: format!("there is no backup {}; `shoal backup list` shows them", plain(name)),
            exit: Exit::NotFound,
        }),
        _ => Ok(()),
    }
}

async fn status(client: &Client) -> Result<Value, CliError> {
    Ok(client.get(&["backup-status"], &[]).await?.body)
}

fn newest(status: &Value) -> Result<String, CliError> {
    last(status).map(str::to_owned).ok_or_else(|| {
        CliError::failed("this controller has made no backup; make one with `shoal backup now`")
    })
}

/// Writes a status as a document. It is named by a backup.
fn document(status: &Value, name: Option<&str>, output: &mut Output<'_>) -> Result<(), CliError> {
    match output.format {
        Format::Name => output.document(&json!(name.into_iter().collect::<Vec<_>>())),
        _ => output.document(status),
    }
}

/// The name of the last backup.
fn last(status: &Value) -> Option<&str> {
    status.pointer("/last/name").and_then(Value::as_str)
}

fn only_started(status: &Value, what: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        // What is under way has no name yet.
        return document(status, None, output);
    }
    output.line(format!("{what} is under way; `shoal backup status` shows its end"))
}

/// Waits until nothing is under way, and returns the status then.
async fn finished(client: &Client, output: &mut Output<'_>) -> Result<Value, CliError> {
    let mut progress: Option<(String, Progress)> = None;
    loop {
        let now = status(client).await?;
        let Some(phase) = now.pointer("/running/phase").and_then(Value::as_str) else {
            if let Some((_, mut progress)) = progress {
                progress.end(output.err);
            }
            return Ok(now);
        };
        if progress.as_ref().is_none_or(|(of, _)| of != phase) {
            progress = Some((phase.to_owned(), Progress::new(format!("backup: {}", plain(phase)), None)));
        }
        if let Some((_, progress)) = &mut progress {
            let done = now.pointer("/running/done_bytes").and_then(Value::as_u64).unwrap_or(0);
            progress.report(done, output.err);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn made(before: &Value, after: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if after.pointer("/last/name") == before.pointer("/last/name") || after["last"].is_null() {
        let message = text(after, "/failure/message");
        let message =
            if message.is_empty() { "see `shoal backup status`".to_owned() } else { plain(&message) };
        return Err(CliError::failed(format!("no backup was made: {message}")));
    }
    if output.json {
        return document(after, last(after), output);
    }
    let part = |pointer: &str| plain(&text(after, pointer));
    output.line(format!(
        "backed up and verified: {} at {}, {} servers, {} jobs, {} files, {}",
        part("/last/name"),
        part("/target"),
        part("/last/servers"),
        part("/last/jobs"),
        part("/last/files"),
        size(&after["last"]),
    ))?;
    warn(after, output);
    Ok(())
}

fn verified(name: &str, after: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let result = &after["verification"];
    if result["name"] != name {
        return Err(CliError::failed("the verification was interrupted; start it again"));
    }
    if let Some(damage) = result["damage"].as_str() {
        let damage = plain(damage);
        return Err(CliError::failed(format!(
            "the backup {name} is damaged: {damage}; make another one with `shoal backup now`"
        )));
    }
    if let Some(error) = result["error"].as_str() {
        return Err(CliError::failed(format!("the backup {name} could not be read: {}", plain(error))));
    }
    if output.json {
        return document(after, Some(name), output);
    }
    output.line(format!("the backup {name} was read and is right"))
}

async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = client.get(&["backups"], &[]).await?.body;
    if output.format == Format::Name {
        let names = page["backups"].as_array().into_iter().flatten().map(|backup| backup["name"].clone());
        return output.document(&names.collect());
    }
    if output.json {
        return output.document(&page);
    }
    let row = |backup: &Value| {
        let part = |pointer: &str| text(backup, pointer);
        let state = match (backup["damage"].is_null(), backup["verified_at"].is_null()) {
            (false, _) => "damaged",
            (true, true) => "",
            (true, false) => "verified",
        };
        let maker = if backup["own"] == true { "this controller" } else { "others" };
        vec![part("/name"), part("/made_at"), size(backup), state.to_owned(), maker.to_owned(), part("/jobs")]
    };
    let rows: Vec<Vec<String>> = page["backups"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["NAME", "MADE", "SIZE", "STATE", "MADE BY", "JOBS"], &rows)
}

/// The size of a backup; empty if it is not known.
fn size(backup: &Value) -> String {
    backup["bytes"].as_u64().map(bytes).unwrap_or_default()
}

fn show(status: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return document(status, last(status), output);
    }
    let part = |pointer: &str| text(status, pointer);
    let running = join(&[part("/running/what"), part("/running/phase")], ": ");
    let attempts = match status.pointer("/failure/attempts").and_then(Value::as_u64) {
        None => String::new(),
        Some(1) => "1 attempt".to_owned(),
        Some(number) => format!("{number} attempts"),
    };
    output.fields(&[
        ("schedule", part("/schedule")),
        ("target", part("/target")),
        ("keep", part("/keep")),
        ("last backup", part("/last/made_at")),
        ("name", part("/last/name")),
        ("size", size(&status["last"])),
        ("digest", part("/last/digest")),
        ("verified", part("/last/verified_at")),
        ("next", part("/next")),
        ("under way", running),
        ("failed", part("/failure/at")),
        ("why", join(&[attempts, part("/failure/message")], ": ")),
        ("verification", verification(status)),
        ("damage", part("/verification/damage")),
    ])?;
    warn(status, output);
    Ok(())
}

/// The last verification: the backup, and its result.
fn verification(status: &Value) -> String {
    let part = |pointer: &str| text(status, pointer);
    let result = match (part("/verification/damage").is_empty(), part("/verification/error")) {
        (false, _) => "damaged".to_owned(),
        (true, error) if error.is_empty() => String::new(),
        (true, error) => format!("could not be read: {error}"),
    };
    join(&[part("/verification/name"), result], ": ")
}

fn warn(status: &Value, output: &mut Output<'_>) {
    for warning in status["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output.note(format!("warning: {}", plain(warning)));
    }
}
