//! `shoal webhook`: outgoing HTTP subscriptions to events.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::connection::Client;
use super::error::CliError;
use super::ids;
use super::input;
use super::live::{Source, WatchArgs};
use super::output::{Format, Output, counted, text};

/// The most dead letters that the controller lists.
const MOST_LETTERS: usize = 1000;

/// Commands for webhooks.
#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    /// Create a webhook: later events are posted to a URL
    Add(AddWebhook),
    /// List the webhooks
    List(WatchArgs),
    /// Show a webhook, its progress and the deliveries that are retried
    Show {
        /// The id of the webhook, or the beginning of it
        webhook: String,
    },
    /// Delete a webhook; its undelivered events and dead letters are lost
    Remove {
        /// The id of the webhook, or the beginning of it
        webhook: String,
    },
    /// Stop deliveries until `enable`; events are kept up to JOB_RETENTION_DAYS
    Disable {
        /// The id of the webhook, or the beginning of it
        webhook: String,
        /// The reason, shown with the webhook
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Start deliveries again after the last delivered event
    Enable {
        /// The id of the webhook, or the beginning of it
        webhook: String,
    },
    /// Send one test delivery and show what the receiver responds; ends with 1 if it is not accepted
    Test {
        /// The id of the webhook, or the beginning of it
        webhook: String,
    },
    /// List dead letters: events that were not accepted within 24 hours
    DeadLetters {
        /// The id of the webhook, or the beginning of it
        webhook: String,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Request one more delivery of dead letters under their delivery ids
    Redeliver {
        /// The id of the webhook, or the beginning of it
        webhook: String,
        /// The event number of one dead letter [default: all dead letters]
        #[arg(long, value_name = "N")]
        seq: Option<i64>,
    },
}

/// Arguments of `shoal webhook add`.
#[derive(Args, Debug)]
pub(super) struct AddWebhook {
    /// The URL that receives the events
    target: String,
    /// A file with the secret that signs deliveries, 16 to 1024 bytes
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
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::label)]
    labels: Vec<(String, String)>,
}

/// Runs a command of `shoal webhook`.
pub(super) async fn run(
    command: WebhookCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        WebhookCommand::Add(add) => add.run(client, output).await,
        WebhookCommand::List(watch) => {
            watch.list(Source::Events(client), output, async |output| list(client, output).await).await
        }
        WebhookCommand::Show { webhook } => {
            let webhook = ids::webhook(client, &webhook).await?;
            let shown = client.get(&["webhooks", &webhook], &[]).await?.body;
            show(&shown, output)
        }
        WebhookCommand::Remove { webhook } => {
            let webhook = ids::webhook(client, &webhook).await?;
            client.delete(&["webhooks", &webhook], HeaderMap::new()).await?;
            output.note(format!("webhook {webhook} removed"));
            Ok(())
        }
        WebhookCommand::Disable { webhook, reason } => {
            let webhook = ids::webhook(client, &webhook).await?;
            let body = json!({ "reason": reason });
            let shown = client.post(&["webhooks", &webhook, "disable"], &body, HeaderMap::new()).await?.body;
            show(&shown, output)
        }
        WebhookCommand::Enable { webhook } => {
            let webhook = ids::webhook(client, &webhook).await?;
            let shown = client.post_empty(&["webhooks", &webhook, "enable"], &[]).await?.body;
            show(&shown, output)
        }
        WebhookCommand::Test { webhook } => {
            test(&ids::webhook(client, &webhook).await?, client, output).await
        }
        WebhookCommand::DeadLetters { webhook, watch } => {
            let webhook = ids::webhook(client, &webhook).await?;
            let show = async |output: &mut Output<'_>| dead_letters(&webhook, client, output).await;
            watch.list(Source::Events(client), output, show).await
        }
        WebhookCommand::Redeliver { webhook, seq } => {
            let webhook = ids::webhook(client, &webhook).await?;
            let body = json!({ "seq": seq });
            let path = ["webhooks", &webhook, "dead-letters", "redeliver"];
            let response = client.post(&path, &body, HeaderMap::new()).await?.body;
            if output.json {
                return output.document(&response);
            }
            let letters = counted(response["requested"].as_u64().unwrap_or(0), "dead letter", "dead letters");
            output.line(format!(
                "redelivery of {letters} requested; `shoal webhook dead-letters {webhook}` lists those that fail again"
            ))
        }
    }
}

impl AddWebhook {
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
        let created = client.post(&["webhooks"], &body, HeaderMap::new()).await?.body;
        show(&created, output)
    }
}

async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let response = client.get(&["webhooks"], &[]).await?.body;
    if output.json {
        return output.document(&response);
    }
    let row = |hook: &Value| {
        let part = |pointer: &str| text(hook, pointer);
        let state = if hook["disabled"].is_null() { "on" } else { "disabled" };
        vec![
            part("/webhook_id"),
            part("/target"),
            state.to_owned(),
            behind(hook),
            part("/retrying"),
            part("/dead_letters"),
        ]
    };
    let rows: Vec<Vec<String>> = list_of(&response, "webhooks").iter().map(row).collect();
    output.table(&["WEBHOOK", "TARGET", "STATE", "BEHIND", "RETRYING", "DEAD LETTERS"], &rows)
}

async fn test(webhook: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    // A receiver may take ten seconds to respond.
    let tested = client.post_slow(&["webhooks", webhook, "test"], &[]).await?.body;
    let part = |pointer: &str| text(&tested, pointer);
    if output.json {
        output.document(&tested)?;
    } else {
        output.fields(&[
            ("webhook", part("/webhook_id")),
            ("delivery", part("/delivery_id")),
            ("sent", part("/sent_at")),
            ("took", format!("{} ms", part("/took_ms"))),
            ("accepted", part("/accepted")),
            ("status", part("/status")),
            ("error", part("/error")),
        ])?;
    }
    match tested["accepted"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(CliError::failed(format!("the test delivery was not accepted: {}", part("/error")))),
    }
}

/// Shows the dead letters, the oldest first, and how many are left out.
async fn dead_letters(webhook: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let limit = [("limit", MOST_LETTERS.to_string())];
    let mut response = client.get(&["webhooks", webhook, "dead-letters"], &limit).await?.body;
    let listed = list_of(&response, "dead_letters").len();
    // The list has no second page; the webhook has their number.
    let left_out = match listed < MOST_LETTERS {
        true => 0,
        false => {
            let hook = client.get(&["webhooks", webhook], &[]).await?.body;
            hook["dead_letters"].as_u64().unwrap_or(0).saturating_sub(listed as u64)
        }
    };
    response["left_out"] = json!(left_out);
    if output.json {
        output.list_document(&response, "dead_letters")?;
    } else {
        let row = |dead: &Value| {
            ["/seq", "/type", "/job_id", "/attempts", "/given_up_at", "/error"]
                .map(|field| text(dead, field))
                .to_vec()
        };
        let rows: Vec<Vec<String>> = list_of(&response, "dead_letters").iter().map(row).collect();
        output.table(&["EVENT", "TYPE", "JOB", "ATTEMPTS", "GIVEN UP", "ERROR"], &rows)?;
    }
    // A document has the number; its names do not show that there are more.
    if left_out > 0 && (!output.json || output.format == Format::Name) {
        let letters = counted(left_out, "newer dead letter is", "newer dead letters are");
        output.note(format!("{letters} not shown; `shoal webhook redeliver {webhook}` sends all again"));
    }
    Ok(())
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
        ("events behind", behind(hook)),
        ("jobs retrying", part("/retrying")),
        ("dead letters", part("/dead_letters")),
        ("failing since", part("/failing_since")),
        ("last error", part("/last_error")),
    ])?;
    let row = |stream: &Value| {
        ["/job_id", "/seq", "/attempts", "/next_at", "/error"].map(|field| text(stream, field)).to_vec()
    };
    let rows: Vec<Vec<String>> = list_of(hook, "retry_streams").iter().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    output.table(&["JOB", "EVENT", "ATTEMPTS", "NEXT ATTEMPT", "ERROR"], &rows)
}

/// The number of events behind; the controller counts 10,000 at most.
fn behind(hook: &Value) -> String {
    let more = if hook["behind"].as_u64().is_some_and(|behind| behind >= 10_000) { " or more" } else { "" };
    format!("{}{more}", text(hook, "/behind"))
}

fn list_of<'a>(response: &'a Value, key: &str) -> &'a [Value] {
    response[key].as_array().map(Vec::as_slice).unwrap_or_default()
}
