//! `shoal user`: the users of a controller.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::accounts::{LOCAL, Place, PlaceArgs, document, failed, now};
use access::accounts::{ChangedUser, NewUser};
use access::audit::AuditAction;
use access::auth::Role;
use client::error::CliError;
use client::input;
use client::live::{Source, WatchArgs};
use client::output::{Output, text};

/// The command that ends the refusal of a user of restored data.
const CONFIRMED: &str = "confirmed, because the data was restored: shoal user confirm";

/// Commands for users.
#[derive(Debug, Subcommand)]
pub(super) enum UserCommand {
    /// Create a user
    Add {
        /// The name for the login
        name: String,
        /// What the user may do
        #[arg(long, value_name = "ROLE")]
        role: UserRole,
        #[command(flatten)]
        password: NewPasswordArgs,
    },
    /// List the users
    List(WatchArgs),
    /// Show a user
    Show {
        /// The name of the user
        name: String,
    },
    /// Set another password; the former one is refused with the next request
    Passwd {
        /// The name of the user. Default: the user of --user, who needs no role for it
        name: Option<String>,
        #[command(flatten)]
        password: NewPasswordArgs,
    },
    /// Give a user another role, from the next request on
    Role {
        /// The name of the user
        name: String,
        /// What the user may do
        role: UserRole,
    },
    /// Refuse the logins of a user, from the next request on
    Disable {
        /// The name of the user
        name: String,
    },
    /// Accept the logins of a disabled user again
    Enable {
        /// The name of the user
        name: String,
    },
    /// Accept users of restored data again, with the passwords of that data
    Confirm {
        /// The names of the users
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Remove a user; API tokens that the user created stay
    Remove {
        /// The name of the user
        name: String,
    },
}

/// The role of a user.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum UserRole {
    /// Everything, users and tokens included
    Admin,
    /// Reads everything; operates servers, jobs and batches
    Operator,
    /// Reads everything
    Viewer,
}

impl From<UserRole> for Role {
    fn from(role: UserRole) -> Self {
        match role {
            UserRole::Admin => Self::Admin,
            UserRole::Operator => Self::Operator,
            UserRole::Viewer => Self::Viewer,
        }
    }
}

/// Where a new password comes from; never an argument.
#[derive(Args, Debug)]
pub(super) struct NewPasswordArgs {
    /// A file with the password
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "password_stdin",
        conflicts_with = "password_stdin"
    )]
    password_file: Option<PathBuf>,
    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,
}

impl NewPasswordArgs {
    fn read(&self) -> Result<SecretString, CliError> {
        match &self.password_file {
            Some(path) => input::password_file(path),
            None => input::password_stdin(),
        }
    }
}

/// Runs a command.
pub(super) async fn run(
    command: UserCommand,
    place: PlaceArgs,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let (name, change) = match command {
        UserCommand::List(watch) => {
            let place = Place::open(place).await?;
            return watch.list(Source::Pauses, output, async |output| list(&place, output).await).await;
        }
        UserCommand::Show { name } => {
            let user = match Place::open(place).await? {
                Place::Online(client) => client.get(&["users", &name], &[]).await?.body,
                Place::Offline(offline) => document(offline.accounts().user(&name).await.map_err(failed)?),
            };
            return show(&user, output);
        }
        UserCommand::Remove { name } => return remove(&name, place, output).await,
        UserCommand::Confirm { names } => return confirm(&names, place, output).await,
        UserCommand::Add { name, role, password } => {
            let new = NewUser { name, role: role.into(), password: password.read()? };
            return add(new, place, output).await;
        }
        UserCommand::Passwd { name: None, password } => return own_password(&password, &place, output).await,
        UserCommand::Passwd { name: Some(name), password } => {
            (name, ChangedUser { password: Some(password.read()?), ..ChangedUser::default() })
        }
        UserCommand::Role { name, role } => {
            (name, ChangedUser { role: Some(role.into()), ..ChangedUser::default() })
        }
        UserCommand::Disable { name } => {
            (name, ChangedUser { disabled: Some(true), ..ChangedUser::default() })
        }
        UserCommand::Enable { name } => {
            (name, ChangedUser { disabled: Some(false), ..ChangedUser::default() })
        }
    };
    let user = match Place::open(place).await? {
        Place::Online(client) => {
            let mut body = json!({});
            if let Some(role) = change.role {
                body["role"] = json!(role);
            }
            if let Some(disabled) = change.disabled {
                body["disabled"] = json!(disabled);
            }
            if let Some(password) = &change.password {
                body["password"] = json!(password.expose_secret());
            }
            client.patch(&["users", &name], &body, HeaderMap::new()).await?.body
        }
        Place::Offline(offline) => {
            let (accounts, now) = (offline.accounts(), now());
            let changed = accounts.change_user(&name, change, LOCAL, now);
            let changed = offline.audited(AuditAction::UserChange, ("user", &name), now, changed).await;
            document(changed.map_err(failed)?)
        }
    };
    show(&user, output)
}

async fn add(new: NewUser, place: PlaceArgs, output: &mut Output<'_>) -> Result<(), CliError> {
    let user = match Place::open(place).await? {
        Place::Online(client) => {
            let body =
                json!({ "name": new.name, "role": new.role, "password": new.password.expose_secret() });
            client.post(&["users"], &body, HeaderMap::new()).await?.body
        }
        Place::Offline(offline) => {
            let (accounts, now, name) = (offline.accounts(), now(), new.name.clone());
            let created = accounts.create_user(new, LOCAL, now);
            let created = offline.audited(AuditAction::UserCreate, ("user", &name), now, created).await;
            document(created.map_err(failed)?)
        }
    };
    show(&user, output)
}

/// Sets the password of the user who logs in with the present one.
async fn own_password(
    password: &NewPasswordArgs,
    place: &PlaceArgs,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if place.offline_settings()?.is_some() {
        return Err(CliError::Usage("--offline has no login: give the name of the user".to_owned()));
    }
    let (client, new) = (place.client()?, password.read()?);
    client.post(&["me", "password"], &json!({ "password": new.expose_secret() }), HeaderMap::new()).await?;
    output.note("the password is changed; the former one is refused with the next request");
    Ok(())
}

async fn remove(name: &str, place: PlaceArgs, output: &mut Output<'_>) -> Result<(), CliError> {
    match Place::open(place).await? {
        Place::Online(client) => {
            client.delete(&["users", name], HeaderMap::new()).await?;
        }
        Place::Offline(offline) => {
            let (accounts, now) = (offline.accounts(), now());
            let removed = accounts.remove_user(name, LOCAL, now);
            offline.audited(AuditAction::UserRemove, ("user", name), now, removed).await.map_err(failed)?;
        }
    }
    output
        .note(format!("user {name} removed; `shoal token list` shows the API tokens that the user created"));
    Ok(())
}

/// Confirms users one after another. One that cannot be confirmed is shown, and the others go on.
async fn confirm(names: &[String], place: PlaceArgs, output: &mut Output<'_>) -> Result<(), CliError> {
    let place = Place::open(place).await?;
    let confirm = async |name: &str, output: &mut Output<'_>| {
        let confirmed = match &place {
            Place::Online(client) => {
                client.post(&["users", name, "confirm"], &json!({}), HeaderMap::new()).await?.body
            }
            Place::Offline(offline) => {
                let (accounts, now) = (offline.accounts(), now());
                let confirmed = accounts.confirm_user(name, LOCAL, now);
                let confirmed =
                    offline.audited(AuditAction::UserConfirm, ("user", name), now, confirmed).await;
                document(confirmed.map_err(failed)?)
            }
        };
        match output.json {
            true => output.row(&confirmed)?,
            false => output.note(format!("user {name} is confirmed and can log in")),
        }
        Ok(())
    };
    match names {
        [name] => confirm(name, output).await,
        _ => client::each_of(("user", "users"), names, output, confirm).await,
    }
}

async fn list(place: &Place, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = match place {
        Place::Online(client) => client.get(&["users"], &[]).await?.body,
        Place::Offline(offline) => {
            json!({ "users": offline.accounts().users().await.map_err(failed)?, "next": null })
        }
    };
    if output.json {
        return output.document(&page);
    }
    let row = |user: &Value| {
        let part = |pointer: &str| text(user, pointer);
        let state = match (user["disabled_at"].is_null(), &user["unconfirmed"]) {
            (false, _) => "disabled",
            (true, Value::Bool(true)) => "unconfirmed",
            (true, _) => "on",
        };
        vec![part("/name"), part("/role"), state.to_owned(), part("/created_by"), part("/created_at")]
    };
    let rows: Vec<Vec<String>> = page["users"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["USER", "ROLE", "STATE", "CREATED BY", "CREATED"], &rows)
}

fn show(user: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(user);
    }
    let part = |pointer: &str| text(user, pointer);
    output.fields(&[
        ("user", part("/name")),
        ("role", part("/role")),
        ("disabled since", part("/disabled_at")),
        (
            "refused until",
            if user["unconfirmed"] == json!(true) { CONFIRMED.to_owned() } else { String::new() },
        ),
        ("created by", part("/created_by")),
        ("created", part("/created_at")),
        ("changed", part("/updated_at")),
    ])
}
