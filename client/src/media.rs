//! `shoal media`: the boot, task and firmware images that a controller serves to BMCs.

use std::collections::HashSet;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::live::{Source, WatchArgs};
use super::output::{Column, Format, Output, text};

/// Commands for images that are served.
#[derive(Debug, Subcommand)]
pub(super) enum MediaCommand {
    /// List the images that are and were served: to which server, whether they are read, when their URL ends
    List(ListMedia),
}

/// Arguments of `shoal media list`.
#[derive(Args, Debug)]
pub(super) struct ListMedia {
    /// Only images whose URL is open
    #[arg(long)]
    served: bool,
    /// Only images whose URL has ended
    #[arg(long, conflicts_with = "served")]
    ended: bool,
    /// Only images of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(["boot", "task", "firmware"]))]
    image: Option<String>,
    /// Only images for this server
    #[arg(long, value_name = "SERIAL")]
    server: Option<String>,
    /// The maximum of listed images
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::many::rows)]
    limit: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Runs a command of `shoal media`.
pub(super) async fn run(
    command: MediaCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let MediaCommand::List(list) = command;
    let show = async |output: &mut Output<'_>| list.show(client, output).await;
    list.watch.list(Source::Pauses, output, show).await
}

impl ListMedia {
    async fn show(&self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let served = match (self.served, self.ended) {
            (true, _) => Some("true".to_owned()),
            (false, true) => Some("false".to_owned()),
            (false, false) => None,
        };
        let filters =
            [("served", served), ("image", self.image.clone()), ("server_serial", self.server.clone())];
        let filters: Vec<(&str, String)> =
            filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let page = client.list(&["media"], "media", &filters, self.limit).await?;
        if output.format == Format::Name {
            // An image that was served more than once is one name.
            let rows = page["media"].as_array().into_iter().flatten();
            let names = rows.map(|media| format!("{}/{}", text(media, "/job_id"), text(media, "/image")));
            let mut seen = HashSet::new();
            let names: Vec<String> = names.filter(|name| seen.insert(name.clone())).collect();
            return output.document(&json!({ "media": names, "next": page["next"] }));
        }
        if output.json {
            return output.document(&page);
        }
        const COLUMNS: [Column<'_>; 9] = [
            Column::new("IMAGE", 0),
            Column::new("SERVER", 0),
            Column::new("STATE", 1),
            Column::new("SENT", 3),
            Column::new("OF", 4),
            Column::new("LAST READ", 2),
            Column::new("URL ENDS", 2),
            Column::new("JOB", 5),
            Column::new("SHA256", 6),
        ];
        let rows: Vec<Vec<String>> = page["media"].as_array().into_iter().flatten().map(row).collect();
        output.columns(&COLUMNS, &rows)?;
        if !page["next"].is_null() {
            output.note("there are more images; give a larger --limit");
        }
        Ok(())
    }
}

fn row(media: &Value) -> Vec<String> {
    let part = |pointer: &str| text(media, pointer);
    // An open URL ends after the cleanup of its job, whose deadline is this time.
    let ends = if media["ended_at"].is_null() { part("/ends_by") } else { part("/ended_at") };
    vec![
        part("/image"),
        part("/server_serial"),
        part("/state"),
        part("/bytes"),
        part("/size"),
        part("/last_read_at"),
        ends,
        part("/job_id"),
        part("/sha256"),
    ]
}
