//! `shoal webhook`: who is told of events.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::error::CliError;
use super::input;
use super::output::{Output, text};

/// What to do with webhooks.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Have events posted somewhere, from now on
    Add(Add),
    /// List the webhooks
    List,
    /// Show a webhook and the jobs whose events it has not taken yet
    Show {
        /// The webhook
        webhook: String,
    },
    /// Remove a webhook with all it had yet to deliver
    Remove {
        /// The webhook
        webhook: String,
    },
    /// Send nothing until it is enabled again
    Disable {
        /// The webhook
        webhook: String,
        /// Why
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Go on where it stopped
    Enable {
        /// The webhook
        webhook: String,
    },
    /// List what was given up
    Dead {
        /// The webhook
        webhook: String,
    },
    /// Try once more what was given up
    Retry {
        /// The webhook
        webhook: String,
        /// One event by its number; all of them when absent
        #[arg(long, value_name = "N")]
        seq: Option<i64>,
    },
}

/// A new webhook.
#[derive(Args, Debug)]
pub(super) struct Add {
    /// Where events are posted to
    target: String,
    /// A file with the secret that signs them, at least 16 bytes
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "secret_stdin",
        conflicts_with = "secret_stdin"
    )]
    secret_file: Option<PathBuf>,
    /// Read the secret from standard input
    #[arg(long)]
    secret_stdin: bool,
    /// Only events of this type, such as job.created or report.*; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only events of jobs with this label; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = super::server::label)]
    labels: Vec<(String, String)>,
}

/// Runs a command.
pub(super) async fn run(command: Command, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        Command::Add(add) => add.run(client, output).await,
        Command::List => list(client, output).await,
        Command::Show { webhook } => {
            let shown = client.get(&["webhooks", &webhook], &[]).await?.body;
            show(&shown, output)
        }
        Command::Remove { webhook } => {
            client.delete(&["webhooks", &webhook], HeaderMap::new()).await?;
            output.note(format!("webhook {webhook} removed"));
            Ok(())
        }
        Command::Disable { webhook, reason } => {
            let body = json!({ "reason": reason });
            let shown = client.post(&["webhooks", &webhook, "disable"], &body, HeaderMap::new()).await?.body;
            show(&shown, output)
        }
        Command::Enable { webhook } => {
            let shown = client.ask(&["webhooks", &webhook, "enable"], &[]).await?.body;
            show(&shown, output)
        }
        Command::Dead { webhook } => dead(&webhook, client, output).await,
        Command::Retry { webhook, seq } => {
            let body = json!({ "seq": seq });
            let path = ["webhooks", &webhook, "dead", "retry"];
            let answer = client.post(&path, &body, HeaderMap::new()).await?.body;
            if output.json {
                return output.document(&answer);
            }
            let number = text(&answer, "/retried");
            output.line(format!("{number} tried once more; `shoal webhook dead {webhook}` shows what stays"))
        }
    }
}

impl Add {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let secret = match &self.secret_file {
            Some(path) => input::password_file(path)?,
            None => input::password_stdin()?,
        };
        let labels: Map<String, Value> =
            self.labels.into_iter().map(|(key, value)| (key, json!(value))).collect();
        let body = json!({
            "url": self.target, "secret": secret.expose_secret(), "types": self.types, "labels": labels,
        });
        let made = client.post(&["webhooks"], &body, HeaderMap::new()).await?.body;
        show(&made, output)
    }
}

async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let answer = client.get(&["webhooks"], &[]).await?.body;
    if output.json {
        return output.document(&answer);
    }
    let row = |hook: &Value| {
        let part = |pointer: &str| text(hook, pointer);
        let state = if hook["disabled"].is_null() { "on" } else { "disabled" };
        vec![
            part("/webhook_id"),
            part("/target"),
            state.to_owned(),
            part("/behind"),
            part("/late"),
            part("/dead"),
        ]
    };
    let rows: Vec<Vec<String>> = list_of(&answer, "webhooks").iter().map(row).collect();
    output.table(&["WEBHOOK", "TARGET", "STATE", "BEHIND", "LATE", "DEAD"], &rows)
}

async fn dead(webhook: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let answer = client.get(&["webhooks", webhook, "dead"], &[("limit", "1000".to_owned())]).await?.body;
    if output.json {
        return output.document(&answer);
    }
    let row = |dead: &Value| {
        ["/seq", "/type", "/job_id", "/attempts", "/died_at", "/error"]
            .map(|field| text(dead, field))
            .to_vec()
    };
    let rows: Vec<Vec<String>> = list_of(&answer, "dead").iter().map(row).collect();
    output.table(&["EVENT", "TYPE", "JOB", "TRIES", "GIVEN UP", "ERROR"], &rows)
}

fn show(hook: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(hook);
    }
    let part = |pointer: &str| text(hook, pointer);
    output.fields(&[
        ("webhook", part("/webhook_id")),
        ("target", part("/target")),
        ("types", part("/types")),
        ("labels", part("/labels")),
        ("disabled", part("/disabled")),
        ("delivered", part("/delivered")),
        ("behind", part("/behind")),
        ("late jobs", part("/late")),
        ("dead", part("/dead")),
        ("failing since", part("/failing_since")),
        ("last error", part("/last_error")),
    ])?;
    let row = |late: &Value| {
        ["/job_id", "/seq", "/attempts", "/next_at", "/error"].map(|field| text(late, field)).to_vec()
    };
    let rows: Vec<Vec<String>> = list_of(hook, "late_jobs").iter().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    output.table(&["JOB", "EVENT", "TRIES", "NEXT TRY", "ERROR"], &rows)
}

fn list_of<'a>(answer: &'a Value, key: &str) -> &'a [Value] {
    answer[key].as_array().map(Vec::as_slice).unwrap_or_default()
}
