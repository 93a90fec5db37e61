//! `shoal firmware`: firmware files in the registry of a controller, and sets of them.

mod add;
mod drift;
mod history;
mod import;
mod install;
mod set;
mod set_view;

use clap::Subcommand;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::live::{Source, WatchArgs};
use super::output::{Output, text};

/// The least digits by which a file is named.
const MIN_PREFIX: usize = 6;

/// Commands for firmware files.
#[derive(Debug, Subcommand)]
pub(super) enum FirmwareCommand {
    /// Push a firmware file into the registry and say what it is for
    Add(add::AddFirmware),
    /// List the firmware files
    List {
        /// Only files of this vendor
        #[arg(long)]
        vendor: Option<String>,
        /// Only files for this model
        #[arg(long)]
        model: Option<String>,
        /// Only files for this component, such as bmc or bios
        #[arg(long)]
        component: Option<String>,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Show a firmware file and the sets that hold it
    Show {
        /// The digest of the file or of its manifest, or its first 6 digits or more
        firmware: String,
    },
    /// Remove a firmware file that no set and no open job holds
    Remove {
        /// The digest of the file or of its manifest, or its first 6 digits or more
        firmware: String,
    },
    /// Show what a set means for a server: what is installed, skipped or refused, and why
    Plan(install::PlanFirmware),
    /// Show which servers differ from their set, by their stored inventories; the exit code is 7 if one does or is unknown
    Drift(drift::Drift),
    /// Show the installations on a server, with the versions before and after
    History(history::History),
    /// Install a set on a server: every version is verified, a running update is never cut
    Install(Box<install::InstallFirmware>),
    /// Create, list, match and delete sets of firmware files, and import vendors' catalogues
    Set {
        #[command(subcommand)]
        command: set::SetCommand,
    },
}

/// Runs a command of `shoal firmware`.
pub(super) async fn run(
    command: FirmwareCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        FirmwareCommand::Add(add) => add.run(client, output).await,
        FirmwareCommand::List { vendor, model, component, watch } => {
            let filters = [("vendor", vendor), ("model", model), ("component", component)];
            let query: Vec<(&str, String)> =
                filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let show = async |output: &mut Output<'_>| {
                let page = client.get(&["firmware"], &query).await?.body;
                list(&page, output)
            };
            watch.list(Source::Pauses, output, show).await
        }
        FirmwareCommand::Show { firmware } => {
            let digest = named(&firmware, client).await?;
            let shown = client.get(&["firmware", &digest], &[]).await?.body;
            show(&shown, output)
        }
        FirmwareCommand::Remove { firmware } => {
            let digest = named(&firmware, client).await?;
            client.delete(&["firmware", &digest], HeaderMap::new()).await?;
            output.note(format!("firmware {digest} removed"));
            Ok(())
        }
        FirmwareCommand::Plan(plan) => plan.run(client, output).await,
        FirmwareCommand::Drift(drift) => drift.run(client, output).await,
        FirmwareCommand::History(history) => history.run(client, output).await,
        FirmwareCommand::Install(install) => install.run(client, output).await,
        FirmwareCommand::Set { command } => set::run(command, client, output).await,
    }
}

/// The digest of the manifest of the one file that a text names.
async fn named(given: &str, client: &Client) -> Result<String, CliError> {
    let digits = given.strip_prefix("sha256:").unwrap_or(given).to_ascii_lowercase();
    if digits.len() < MIN_PREFIX || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(CliError::Usage(format!(
            "{given:?} names no firmware file: give {MIN_PREFIX} or more digits of its digest, as `shoal firmware list` shows it"
        )));
    }
    let page = client.get(&["firmware"], &[]).await?.body;
    let begins = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.strip_prefix("sha256:").unwrap_or(text).starts_with(&digits)
    };
    let found: Vec<&Value> = list_of(&page, "firmware")
        .iter()
        .filter(|row| begins(&row["digest"]) || begins(&row["sha256"]))
        .collect();
    match found.as_slice() {
        [one] => Ok(text(one, "/digest")),
        [] => Err(CliError::Local {
            message: format!(
                "no firmware file has the digest {given}; `shoal firmware list` shows the files"
            ),
            exit: Exit::NotFound,
        }),
        many => {
            let names: Vec<String> = many.iter().map(|row| text(row, "/digest")).collect();
            Err(CliError::Usage(format!(
                "{given} is the beginning of {}; give more digits",
                names.join(" and ")
            )))
        }
    }
}

fn list_of<'a>(response: &'a Value, key: &str) -> &'a [Value] {
    response[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn row(file: &Value) -> Vec<String> {
    let part = |pointer: &str| text(file, pointer);
    let models: Vec<String> = list_of(file, "models").iter().map(|model| text(model, "")).collect();
    let shown = match models.as_slice() {
        [first, _, ..] => format!("{first} and {} more", models.len() - 1),
        _ => models.concat(),
    };
    let digest = part("/digest");
    let short: String = digest.strip_prefix("sha256:").unwrap_or(&digest).chars().take(12).collect();
    vec![
        short,
        part("/component"),
        part("/vendor"),
        part("/version"),
        shown,
        part("/size"),
        part("/restart"),
        part("/filename"),
    ]
}

const HEAD: [&str; 8] = ["FIRMWARE", "COMPONENT", "VENDOR", "VERSION", "MODELS", "BYTES", "RESTART", "FILE"];

fn list(page: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.list_document(page, "firmware");
    }
    let rows: Vec<Vec<String>> = list_of(page, "firmware").iter().map(row).collect();
    output.table(&HEAD, &rows)?;
    for unusable in list_of(page, "unusable") {
        let part = |pointer: &str| text(unusable, pointer);
        output.note(format!(
            "{}@{} cannot be used: {}",
            part("/repository"),
            part("/digest"),
            part("/reason")
        ));
    }
    Ok(())
}

fn show(file: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(file);
    }
    let part = |pointer: &str| text(file, pointer);
    output.fields(&[
        ("firmware", part("/digest")),
        ("component", part("/component")),
        ("vendor", part("/vendor")),
        ("models", part("/models")),
        ("version", part("/version")),
        ("file", part("/filename")),
        ("sha256", part("/sha256")),
        ("bytes", part("/size")),
        ("restart", part("/restart")),
        ("repository", part("/repository")),
        ("tags", part("/tags")),
        ("sets", part("/sets")),
    ])
}
