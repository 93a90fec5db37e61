//! `shoal token`: the API tokens of a controller.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::accounts::{LOCAL, Place, PlaceArgs, document, failed, now};
use access::accounts::{NewToken, TokenView};
use access::audit::AuditAction;
use access::auth::Role;
use client::error::CliError;
use client::live::{Source, WatchArgs};
use client::output::{Format, Output, items, labels, text};
use model::Time;

/// The command that ends the refusal of a token of restored data.
const CONFIRMED: &str = "confirmed, because the data was restored: shoal token confirm";

/// Commands for API tokens.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create an API token and print it; it is not shown again
    Create(CreateToken),
    /// List the API tokens, without their texts
    List(WatchArgs),
    /// Show an API token, without its text
    Show {
        /// The name of the token
        name: String,
    },
    /// Revoke an API token; it is refused with the next request
    Revoke {
        /// The name of the token
        name: String,
    },
    /// Accept API tokens of restored data again
    Confirm {
        /// The names of the tokens
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Give an API token another text and print it; the former one is refused with the next request
    Rotate {
        /// The name of the token
        name: String,
        /// When the token expires from now on: a number of days (90d) or hours (12h), or a time [default: as before]
        #[arg(long, value_name = "WHEN", value_parser = expiry)]
        expires: Option<Expiry>,
    },
}

/// Arguments of `shoal token create`.
#[derive(Args, Debug)]
pub(super) struct CreateToken {
    /// The name, which events show as their actor [default: the role and the time]
    name: Option<String>,
    /// What the token may do
    #[arg(long, value_name = "ROLE")]
    role: TokenRole,
    /// Only servers with this label, and their jobs; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = client::label)]
    labels: Vec<(String, String)>,
    /// What the token may do in the registry, such as pull,push:os-images/**; may be given more than once
    #[arg(long = "registry", value_name = "ACTIONS:REPOSITORIES")]
    registry: Vec<String>,
    /// When the token expires: a number of days (90d) or hours (12h), or a time [default: never]
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Expiry>,
}

/// The role of an API token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum TokenRole {
    /// Everything, users and tokens included
    Admin,
    /// Reads everything; operates servers, jobs and batches
    Operator,
    /// Reads everything
    Viewer,
    /// Sends installation reports (X-Webhook-Secret) and does nothing else
    ReportOnly,
    /// Does in the registry what --registry says and nothing else
    RegistryOnly,
}

impl From<TokenRole> for Role {
    fn from(role: TokenRole) -> Self {
        match role {
            TokenRole::Admin => Self::Admin,
            TokenRole::Operator => Self::Operator,
            TokenRole::Viewer => Self::Viewer,
            TokenRole::ReportOnly => Self::ReportOnly,
            TokenRole::RegistryOnly => Self::RegistryOnly,
        }
    }
}

/// When a token expires.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expiry {
    In(Duration),
    At(Time),
}

impl Expiry {
    pub(super) fn after(self, now: Time) -> Time {
        match self {
            Self::In(time) => now.plus(time),
            Self::At(time) => time,
        }
    }
}

pub(super) fn expiry(text: &str) -> Result<Expiry, String> {
    let refusal =
        || "give a number of days (90d) or hours (12h), or a time such as 2027-01-31T00:00:00Z".to_owned();
    if let Ok(time) = text.parse() {
        return Ok(Expiry::At(time));
    }
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(refusal)?;
    let number: u32 = number.parse().map_err(|_| refusal())?;
    let seconds: u32 = match unit {
        "d" => 86_400,
        "h" => 3_600,
        _ => return Err(refusal()),
    };
    Ok(Expiry::In(Duration::from_secs(u64::from(number) * u64::from(seconds))))
}

/// Runs a command.
pub(super) async fn run(
    command: TokenCommand,
    place: PlaceArgs,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        TokenCommand::Create(create) => create.run(place, output).await,
        TokenCommand::List(watch) => {
            let place = Place::open(place).await?;
            watch.list(Source::Pauses, output, async |output| list(&place, output).await).await
        }
        TokenCommand::Show { name } => {
            let token = match Place::open(place).await? {
                Place::Online(client) => client.get(&["tokens", &name], &[]).await?.body,
                Place::Offline(offline) => document(offline.accounts().token(&name).await.map_err(failed)?),
            };
            show_token(&token, output)
        }
        TokenCommand::Confirm { names } => confirm(&names, place, output).await,
        TokenCommand::Revoke { name } => {
            match Place::open(place).await? {
                Place::Online(client) => {
                    client.delete(&["tokens", &name], HeaderMap::new()).await?;
                }
                Place::Offline(offline) => {
                    let (accounts, now) = (offline.accounts(), now());
                    let revoked = accounts.revoke_token(&name, LOCAL, now);
                    let revoked =
                        offline.audited(AuditAction::TokenRevoke, ("token", &name), now, revoked).await;
                    revoked.map_err(failed)?;
                }
            }
            output.note(format!("token {name} revoked"));
            Ok(())
        }
        TokenCommand::Rotate { name, expires } => {
            let expires_at = expires.map(|expires| expires.after(now()));
            let issued = match Place::open(place).await? {
                Place::Online(client) => {
                    let body = json!({ "expires_at": expires_at });
                    client.post(&["tokens", &name, "rotate"], &body, HeaderMap::new()).await?.body
                }
                Place::Offline(offline) => {
                    let (accounts, now) = (offline.accounts(), now());
                    let rotated = accounts.rotate_token(&name, expires_at, LOCAL, now);
                    let rotated =
                        offline.audited(AuditAction::TokenRotate, ("token", &name), now, rotated).await;
                    with_text(rotated.map_err(failed)?)
                }
            };
            show(&issued, output)
        }
    }
}

impl CreateToken {
    async fn run(self, place: PlaceArgs, output: &mut Output<'_>) -> Result<(), CliError> {
        let (role, now) = (Role::from(self.role), now());
        let digits: String = now.to_string().chars().filter(char::is_ascii_digit).take(14).collect();
        let new = NewToken {
            name: self.name.unwrap_or_else(|| format!("{role}-{digits}")),
            role,
            labels: self.labels.into_iter().collect::<BTreeMap<_, _>>(),
            registry: self.registry,
            expires_at: self.expires.map(|expires| expires.after(now)),
        };
        let issued = match Place::open(place).await? {
            Place::Online(client) => {
                let body = json!({
                    "name": new.name, "role": new.role, "labels": new.labels, "registry": new.registry,
                    "expires_at": new.expires_at,
                });
                client.post(&["tokens"], &body, HeaderMap::new()).await?.body
            }
            Place::Offline(offline) => {
                let (accounts, name) = (offline.accounts(), new.name.clone());
                let created = accounts.create_token(new, LOCAL, now);
                let created = offline.audited(AuditAction::TokenCreate, ("token", &name), now, created).await;
                with_text(created.map_err(failed)?)
            }
        };
        show(&issued, output)
    }
}

/// Confirms tokens one after another. One that cannot be confirmed is shown, and the others go on.
async fn confirm(names: &[String], place: PlaceArgs, output: &mut Output<'_>) -> Result<(), CliError> {
    let place = Place::open(place).await?;
    let confirm = async |name: &str, output: &mut Output<'_>| {
        let confirmed = match &place {
            Place::Online(client) => {
                client.post(&["tokens", name, "confirm"], &json!({}), HeaderMap::new()).await?.body
            }
            Place::Offline(offline) => {
                let (accounts, now) = (offline.accounts(), now());
                let confirmed = accounts.confirm_token(name, LOCAL, now);
                let confirmed =
                    offline.audited(AuditAction::TokenConfirm, ("token", name), now, confirmed).await;
                document(confirmed.map_err(failed)?)
            }
        };
        match output.json {
            true => output.row(&confirmed)?,
            false => output.note(format!("token {name} is confirmed and accepted")),
        }
        Ok(())
    };
    match names {
        [name] => confirm(name, output).await,
        _ => client::each_of(("token", "tokens"), names, output, confirm).await,
    }
}

/// The view of a token with its text, as in the response of a controller.
fn with_text((view, secret): (TokenView, SecretString)) -> Value {
    let mut issued = document(view);
    issued["token"] = json!(secret.expose_secret());
    issued
}

/// Prints the text of a token alone on standard output, for a file or a variable. With `-o name` too: it is shown only now.
fn show(issued: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json && output.format != Format::Name {
        return output.document(issued);
    }
    let part = |pointer: &str| text(issued, pointer);
    let until = match part("/expires_at") {
        end if end.is_empty() => "does not expire".to_owned(),
        end => format!("expires at {end}"),
    };
    output.note(format!(
        "token {} with role {} {until}; it is stored as a hash and not shown again",
        part("/name"),
        part("/role")
    ));
    output.line(part("/token"))
}

/// The labels and registry scopes that limit a token.
fn limits(token: &Value) -> String {
    [labels(&token["labels"]), items(&token["registry"])].concat().join(" ")
}

fn show_token(token: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(token);
    }
    let part = |pointer: &str| text(token, pointer);
    output.fields(&[
        ("token", part("/name")),
        ("role", part("/role")),
        ("limits", limits(token)),
        (
            "refused until",
            if token["unconfirmed"] == json!(true) { CONFIRMED.to_owned() } else { String::new() },
        ),
        ("expires", part("/expires_at")),
        ("last used", part("/last_used_at")),
        ("created by", part("/created_by")),
        ("created", part("/created_at")),
        ("id", part("/token_id")),
    ])
}

/// Whether a token is accepted at the time `now`, in a word. One whose end has passed is refused also after it is confirmed.
pub(super) fn state(token: &Value, now: Time) -> &'static str {
    let end = token["expires_at"].as_str().and_then(|end| end.parse::<Time>().ok());
    match end.is_some_and(|end| end <= now) {
        true => "expired",
        false if token["unconfirmed"] == json!(true) => "unconfirmed",
        false => "on",
    }
}

async fn list(place: &Place, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = match place {
        Place::Online(client) => client.get(&["tokens"], &[]).await?.body,
        Place::Offline(offline) => {
            json!({ "tokens": offline.accounts().tokens().await.map_err(failed)?, "next": null })
        }
    };
    if output.json {
        return output.document(&page);
    }
    let now = now();
    let row = |token: &Value| {
        let part = |pointer: &str| text(token, pointer);
        vec![
            part("/name"),
            part("/role"),
            limits(token),
            state(token, now).to_owned(),
            part("/expires_at"),
            part("/last_used_at"),
            part("/created_by"),
        ]
    };
    let rows: Vec<Vec<String>> = page["tokens"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["TOKEN", "ROLE", "LIMITS", "STATE", "EXPIRES", "LAST USED", "CREATED BY"], &rows)
}
