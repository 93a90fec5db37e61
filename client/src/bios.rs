//! `shoal server bios show` and `set`: the settings of the BIOS and the boot order, read from the BMC now, and their change,
//! which is a condition of the server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::condition::{RequestArgs, RestartArgs};
use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::input;
use super::output::{Output, plain, text};
use super::targets::{Change, Targets};

/// The longest file with settings.
const MAX_FILE: usize = 256 * 1024;

/// Commands for the settings of the BIOS.
#[derive(Debug, Subcommand)]
pub(super) enum BiosCommand {
    /// Show the settings of the BIOS and the boot order as the BMC shows them now; changes nothing
    Show(ShowBios),
    /// Set attributes of the BIOS and the boot order, restart the host if they wait for that, and verify each value
    Set(Box<SetBios>),
}

/// Arguments of `shoal server bios show`.
#[derive(Args, Debug)]
pub(super) struct ShowBios {
    #[command(flatten)]
    targets: Targets,
    /// Only attributes whose name contains one of these texts, without case
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Arguments of `shoal server bios set`.
#[derive(Args, Debug)]
pub(super) struct SetBios {
    #[command(flatten)]
    targets: Targets,
    /// A wanted value; numbers and truth values get the type that the BIOS says
    #[arg(value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// The boot options that come first, with commas between them; the others follow in their present order
    #[arg(long, value_name = "OPTION", value_delimiter = ',')]
    boot_order: Vec<String>,
    /// A JSON file with `attributes` and `boot_order`, `-` for standard input; values of the command line win
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    #[command(flatten)]
    restart: RestartArgs,
    #[command(flatten)]
    request: RequestArgs,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give NAME=VALUE".to_owned()),
    }
}

impl BiosCommand {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        match self {
            Self::Show(show) => show.run(client, output).await,
            Self::Set(set) => set.run(client, output).await,
        }
    }
}

impl ShowBios {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Self { mut targets, mut names } = self;
        let many = targets.are_filtered();
        if many && let Some(first) = targets.serial.take() {
            // With a filter there is no serial number: the first word is a part of a name like the others.
            names.insert(0, first);
        }
        let show = async |serial: &str, output: &mut Output<'_>| {
            let shown = client.get_slow(&["servers", serial, "bios"], &[]).await?.body;
            match (output.json, many) {
                (true, true) => output.row(&shown),
                (true, false) => output.document(&shown),
                (false, _) => Self::show(&shown, &names, output),
            }
        };
        targets.each("BIOS settings", Change::Reads, client, output, show).await
    }

    fn show(shown: &Value, names: &[String], output: &mut Output<'_>) -> Result<(), CliError> {
        output.fields(&[
            ("server", text(shown, "/serial")),
            ("read", text(shown, "/read_at")),
            ("boot order", text(shown, "/boot_order")),
            ("after the restart", text(shown, "/boot_order_pending")),
        ])?;
        for missing in ["/attributes_missing", "/registry_missing", "/boot_order_missing"] {
            let why = text(shown, missing);
            if !why.is_empty() {
                output.note(why);
            }
        }
        let wanted: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        let is_wanted = |row: &&Value| {
            let name = text(row, "/name").to_lowercase();
            wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
        };
        let rows = shown["attributes"].as_array().into_iter().flatten().filter(is_wanted);
        let rows: Vec<Vec<String>> = rows.map(row).collect();
        if rows.is_empty() {
            return match wanted.is_empty() {
                true => Ok(()),
                false => Err(CliError::Local {
                    message: format!("no attribute has a name with {}", plain(&names.join(" or "))),
                    exit: Exit::NotFound,
                }),
            };
        }
        output.line("")?;
        output.table(&["ATTRIBUTE", "VALUE", "AFTER THE RESTART", "TAKES"], &rows)
    }
}

fn row(row: &Value) -> Vec<String> {
    let takes = match (row["secret"] == true, row["read_only"] == true) {
        (true, _) => "a password, not shown".to_owned(),
        (_, true) => "read-only".to_owned(),
        _ => text(row, "/takes"),
    };
    vec![text(row, "/name"), text(row, "/value"), text(row, "/pending"), takes]
}

impl SetBios {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Self { mut targets, mut settings, boot_order, from_file, restart, request } = self;
        if targets.are_filtered()
            && let Some(first) = targets.serial.take()
        {
            // With a filter there is no serial number: the first word is a setting like the others.
            settings.insert(0, setting(&first).map_err(CliError::Usage)?);
        }
        let mut parameters = match from_file {
            Some(path) => file(&path)?,
            None => Map::new(),
        };
        if !settings.is_empty() {
            let attributes = parameters.entry("attributes").or_insert_with(|| json!({}));
            let Some(attributes) = attributes.as_object_mut() else {
                return Err(CliError::failed("attributes in the file is not an object of names and values"));
            };
            attributes.extend(settings.into_iter().map(|(name, value)| (name, json!(value))));
        }
        if !boot_order.is_empty() {
            parameters.insert("boot_order".to_owned(), json!(boot_order));
        }
        if parameters.is_empty() {
            return Err(CliError::Usage("give NAME=VALUE, --boot-order or --from-file".to_owned()));
        }
        let mut parameters = Value::Object(parameters);
        restart.add_to(&mut parameters);
        request.send_to(&targets, "BIOS settings", ("biosApply", parameters), client, output).await
    }
}

fn file(path: &std::path::Path) -> Result<Map<String, Value>, CliError> {
    let parameters = input::object(path, MAX_FILE)?;
    match parameters.keys().find(|key| !["attributes", "boot_order"].contains(&key.as_str())) {
        Some(key) => {
            let why = format!("{key} is not known; a file has attributes and boot_order");
            Err(CliError::failed(format!("{} is not usable: {why}", path.display())))
        }
        None => Ok(parameters),
    }
}
