//! `shoal secret`: the keys of a controller and their rotation. No output contains a key.
//!
//! `rotate` repeats one request until the rotation has ended or only time is left. It names the version to leave, so a command
//! that was interrupted continues, and a request that is repeated begins no second rotation.

use clap::{Subcommand, ValueEnum};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::accounts::{PlaceArgs, document, now};
use client::connection::Client;
use client::error::CliError;
use client::live::{Source, WatchArgs};
use client::output::{Output, plain, text};
use controller::app::OfflineSecrets;
use keys::{RotateError, SecretName};
use model::{Time, error_chain};

/// Commands for the keys of a controller.
#[derive(Debug, Subcommand)]
pub(super) enum SecretCommand {
    /// List the keys: name, purpose, id and age, never a value
    List(WatchArgs),
    /// Replace a key by a new one without losing a request; run it again to continue after an interruption
    Rotate {
        /// The name of the key
        name: Name,
    },
}

/// The name of a key that can be rotated.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Name {
    /// The key that seals what is stored
    Master,
    /// The key that signs issued tokens
    Signing,
    /// The shared secret of installation reports, in the file of WEBHOOK_SECRET
    Report,
    /// The certificate of the TLS listeners
    Certificate,
}

impl From<Name> for SecretName {
    fn from(name: Name) -> Self {
        match name {
            Name::Master => Self::Master,
            Name::Signing => Self::Signing,
            Name::Report => Self::Report,
            Name::Certificate => Self::Certificate,
        }
    }
}

/// Where the keys are.
enum Place {
    Online(Client),
    Offline(Box<OfflineSecrets>),
}

impl Place {
    async fn open(arguments: PlaceArgs) -> Result<Self, CliError> {
        let Some(settings) = arguments.offline_settings()? else {
            return Ok(Self::Online(arguments.client()?));
        };
        let opened = OfflineSecrets::open(&settings, now()).await;
        let opened = opened.map_err(|error| CliError::failed(plain(&error_chain(&error).to_string())))?;
        Ok(Self::Offline(Box::new(opened)))
    }

    async fn list(&self) -> Result<Value, CliError> {
        match self {
            Self::Online(client) => Ok(client.get(&["secrets"], &[]).await?.body),
            Self::Offline(offline) => Ok(json!({ "secrets": offline.list().map_err(failed)?, "next": null })),
        }
    }

    async fn rotate(&self, name: SecretName, from: &str) -> Result<Value, CliError> {
        match self {
            Self::Online(client) => {
                let path = ["secrets", name.as_str(), "rotate"];
                Ok(client.post(&path, &json!({ "from": from }), HeaderMap::new()).await?.body)
            }
            Self::Offline(offline) => Ok(document(offline.rotate(name, from, now()).await.map_err(failed)?)),
        }
    }
}

fn failed(error: RotateError) -> CliError {
    CliError::failed(plain(&error_chain(&error).to_string()))
}

/// Runs a command.
pub(super) async fn run(
    command: SecretCommand,
    place: PlaceArgs,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let place = Place::open(place).await?;
    match command {
        SecretCommand::List(watch) => {
            let show = async |output: &mut Output<'_>| list(&place.list().await?, output);
            watch.list(Source::Pauses, output, show).await
        }
        SecretCommand::Rotate { name } => rotate(&place, name.into(), output).await,
    }
}

fn list(page: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(page);
    }
    let row = |secret: &Value| {
        let part = |pointer: &str| text(secret, pointer);
        let former = secret["former"].as_array().into_iter().flatten().map(|former| {
            match text(former, "/accepted_until") {
                until if until.is_empty() => format!("{} until rotate has ended", text(former, "/key_id")),
                until => format!("{} until {until}", text(former, "/key_id")),
            }
        });
        let former: Vec<String> = former.collect();
        vec![
            part("/name"),
            part("/key_id"),
            age(&part("/made_at")),
            plain(former.join(", ").trim()),
            part("/held_in"),
            part("/purpose"),
        ]
    };
    let rows: Vec<Vec<String>> = page["secrets"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["KEY", "ID", "AGE", "ALSO ACCEPTED", "HELD IN", "PURPOSE"], &rows)
}

/// The age of a key in days.
fn age(made_at: &str) -> String {
    let Ok(made) = made_at.parse::<Time>() else { return "unknown".to_owned() };
    format!("{}d", now().since(made).as_secs() / 86_400)
}

async fn rotate(place: &Place, name: SecretName, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = place.list().await?;
    let secrets = page["secrets"].as_array().into_iter().flatten();
    let secret = secrets.into_iter().find(|secret| secret["name"] == name.as_str()).ok_or_else(|| {
        CliError::failed(format!(
            "this installation does not use the key {}; see `shoal secret list`",
            name.as_str()
        ))
    })?;
    // A rotation of the master key that was interrupted is continued. A former version of another key only waits for its end.
    let unfinished =
        secret["former"].as_array().into_iter().flatten().find(|former| former["accepted_until"].is_null());
    // A second rotation of the report secret would end the time of the former one, for example after a lost response.
    let overlaps = secret["former"].as_array().into_iter().flatten().find(|former| {
        let until = former["accepted_until"].as_str().and_then(|until| until.parse::<Time>().ok());
        name == SecretName::Report && until.is_some_and(|until| now() < until)
    });
    let from = match (unfinished, overlaps) {
        (Some(former), _) => {
            let from = text(former, "/key_id");
            output.note(format!("continuing the rotation that leaves {from}"));
            from
        }
        (None, Some(former)) => {
            output.note(format!(
                "already rotated at {}, the former is accepted until {}; nothing was changed",
                text(secret, "/made_at"),
                text(former, "/accepted_until")
            ));
            text(former, "/key_id")
        }
        (None, None) => text(secret, "/key_id"),
    };
    let mut resealed = 0;
    let ended = loop {
        let mut state = place.rotate(name, &from).await?;
        resealed += state["resealed"].as_u64().unwrap_or(0);
        if state["state"] != "sealing" {
            state["resealed"] = json!(resealed);
            break state;
        }
        output.note(format!("{resealed} records are sealed with {}", text(&state, "/key_id")));
    };
    if output.json {
        return output.document(&ended);
    }
    let part = |pointer: &str| text(&ended, pointer);
    output.line(format!("{}: {} is in force", name.as_str(), part("/key_id")))?;
    if ended["checked"].is_u64() {
        output.line(format!(
            "{resealed} records were sealed again; of {} records none names {from}",
            part("/checked")
        ))?;
    }
    match part("/accepted_until") {
        until if until.is_empty() => output.line(format!("{from} is no longer accepted"))?,
        until => output.line(format!("{from} is accepted until {until} and removed then"))?,
    }
    match part("/next_action") {
        next if next.is_empty() => Ok(()),
        next => output.line(next),
    }
}
