//! `shoal firmware set`.

use clap::Subcommand;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::live::{Source, WatchArgs};
use super::super::output::{Output, text};
use super::import::ImportCatalogue;
use super::set_view::{create, show};
use super::{list_of, named};

/// Commands for firmware sets.
#[derive(Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// Create a set; its files are held until the set is deleted
    Create {
        /// The name of the set
        name: String,
        /// A file by its digest or the first 6 digits or more; may be given more than once
        #[arg(long = "file", value_name = "DIGEST", required = true)]
        files: Vec<String>,
        /// A label; vendor=… and model=… say for which servers the set is
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::label)]
        labels: Vec<(String, String)>,
    },
    /// List the sets
    List(WatchArgs),
    /// Show a set with its files in the order of installation
    Show {
        /// The name of the set
        set: String,
    },
    /// Delete a set; its files stay
    Delete {
        /// The name of the set
        set: String,
    },
    /// Show the one set that fits servers of a vendor and model
    Match {
        /// The vendor of the server
        #[arg(long)]
        vendor: String,
        /// The model of the server
        #[arg(long)]
        model: String,
        /// Only sets with this label; may be given more than once
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::label)]
        labels: Vec<(String, String)>,
    },
    /// Add the files of a vendor's catalogue that are in a folder, after a preview
    Import(ImportCatalogue),
}

pub(super) async fn run(
    command: SetCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        SetCommand::Create { name, files, labels } => {
            let mut digests = Vec::new();
            for file in &files {
                digests.push(named(file, client).await?);
            }
            let created = create(&name, &digests, &labels, client).await?;
            show(&created, output)
        }
        SetCommand::List(watch) => {
            let show = async |output: &mut Output<'_>| {
                let page = client.get(&["firmware-sets"], &[]).await?.body;
                list(&page, output)
            };
            watch.list(Source::Pauses, output, show).await
        }
        SetCommand::Show { set } => {
            let shown = client.get(&["firmware-sets", &set], &[]).await?.body;
            show(&shown, output)
        }
        SetCommand::Delete { set } => {
            client.delete(&["firmware-sets", &set], HeaderMap::new()).await?;
            output.note(format!("firmware set {set} deleted"));
            Ok(())
        }
        SetCommand::Match { vendor, model, labels } => {
            let mut query = vec![("vendor", vendor), ("model", model)];
            query.extend(labels.into_iter().map(|(key, value)| ("label", format!("{key}={value}"))));
            let found = client.get(&["firmware-match"], &query).await?.body;
            show(&found, output)
        }
        SetCommand::Import(import) => import.run(client, output).await,
    }
}

fn list(page: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(page);
    }
    let rows = list_of(page, "sets").iter().map(|set| {
        let files = list_of(set, "files").len().to_string();
        vec![
            text(set, "/name"),
            files,
            text(set, "/labels"),
            text(set, "/created_at"),
            text(set, "/created_by"),
        ]
    });
    output.table(&["SET", "FILES", "LABELS", "CREATED", "BY"], &rows.collect::<Vec<_>>())
}
