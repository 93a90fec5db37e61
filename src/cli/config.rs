//! `shoal config`: the effective settings of this host or of a running controller, and their reference.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use access::tls::unverifiable;
use controller::app::backup::beside_data_in_time;
use controller::app::tls_options;
use settings::descriptors::{self, DescriptorBudget};
use settings::{DEFINITIONS, reference};

use super::settings_args::SettingsArgs;
use client::connection::{Client, ConnectionArgs};
use client::error::CliError;
use client::output::{Output, plain, text};

/// Commands for the settings.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Show every setting with its value and the source of the value
    Show(Box<ShowSettings>),
    /// Check settings and the files and secrets they name, as `serve` does at its start
    Check(Box<SettingsArgs>),
    /// Describe every setting
    Reference,
}

/// Arguments of `shoal config show`.
#[derive(Args, Debug)]
pub(super) struct ShowSettings {
    /// Show the settings with which the controller runs (--url, --token), instead of those of this host
    #[arg(long)]
    online: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl ConfigCommand {
    /// The connection to the controller whose settings are shown; `None` for a command about this host.
    pub(super) fn online(&self) -> Option<&ConnectionArgs> {
        match self {
            Self::Show(show) if show.online => Some(&show.connection),
            _ => None,
        }
    }
}

/// Shows the settings of a running controller.
pub(super) async fn show_online(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = client.get(&["settings"], &[]).await?.body;
    if output.json {
        return output.document(&page);
    }
    let row = |setting: &Value| ["/name", "/value", "/origin"].map(|field| text(setting, field)).to_vec();
    let rows: Vec<Vec<String>> = page["settings"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["SETTING", "VALUE", "FROM"], &rows)
}

/// Runs a command.
pub(super) fn run(command: ConfigCommand, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        ConfigCommand::Show(shown) => show(shown.settings, output),
        ConfigCommand::Check(settings) => {
            let settings = settings.load()?;
            let budget = DescriptorBudget::of(descriptors::attainable(), settings.redfish_max_in_flight);
            let files = budget.problem().map(|why| why.to_string());
            // A file that cannot be used is an error of the start, with its own words.
            let certificate = unverifiable(&tls_options(&settings)).ok().flatten();
            let warnings: Vec<String> =
                files.into_iter().chain(beside_data_in_time(&settings)).chain(certificate).collect();
            if output.json {
                return output.document(&json!({"valid": true, "warnings": warnings}));
            }
            output.line("the configuration is valid")?;
            warnings.iter().try_for_each(|why| output.line(format!("warning: {}", plain(why))))
        }
        ConfigCommand::Reference => describe(output),
    }
}

fn show(settings: SettingsArgs, output: &mut Output<'_>) -> Result<(), CliError> {
    let settings = settings.load()?;
    if output.json {
        let rows: Vec<Value> = settings
            .show()
            .iter()
            .map(
                |shown| json!({"name": shown.name, "value": shown.value, "origin": shown.origin.to_string()}),
            )
            .collect();
        return output.document(&json!({"settings": rows}));
    }
    let rows: Vec<Vec<String>> = settings
        .show()
        .iter()
        .map(|shown| vec![shown.name.to_owned(), plain(&shown.value), plain(&shown.origin.to_string())])
        .collect();
    output.table(&["SETTING", "VALUE", "FROM"], &rows)
}

fn describe(output: &mut Output<'_>) -> Result<(), CliError> {
    if !output.json {
        return output.line(reference().trim_end());
    }
    let rows: Vec<Value> = DEFINITIONS
        .iter()
        .map(|row| {
            json!({
                "name": row.name,
                "flag": format!("--{}", row.flag()),
                "key": row.key(),
                "kind": row.kind.to_string(),
                "default": row.default.to_string(),
                "secret": row.secret(),
                "doc": row.doc,
            })
        })
        .collect();
    output.document(&json!({"settings": rows}))
}
