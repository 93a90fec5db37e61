//! `shoal dashboards`: files for Prometheus and Grafana that fit the metrics of this program.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use telemetry::observability::{ALERTS, DASHBOARD, SCRAPE};

use client::error::CliError;
use client::output::Output;

/// The files, by name.
const FILES: [(&str, &str); 3] =
    [("alerts.yml", ALERTS), ("dashboard.json", DASHBOARD), ("prometheus.yml", SCRAPE)];

/// A command about dashboards.
#[derive(Debug, Subcommand)]
pub(super) enum DashboardsCommand {
    /// Write a Grafana dashboard, Prometheus alert rules and a scrape configuration into a directory
    Export {
        /// The directory; it is created
        directory: PathBuf,
        /// Replace files that exist
        #[arg(long)]
        force: bool,
    },
}

/// Runs a command.
pub(super) fn run(command: DashboardsCommand, output: &mut Output<'_>) -> Result<(), CliError> {
    let DashboardsCommand::Export { directory, force } = command;
    let failed = |path: &Path, error: &io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            CliError::failed(format!("{} exists; give --force to replace it", path.display()))
        }
        _ => CliError::failed(format!("cannot write {}: {error}", path.display())),
    };
    fs::create_dir_all(&directory).map_err(|error| failed(&directory, &error))?;
    let paths = FILES.map(|(name, _)| directory.join(name));
    if !force && let Some(path) = paths.iter().find(|path| path.exists()) {
        return Err(failed(path, &io::ErrorKind::AlreadyExists.into()));
    }
    for (path, (_, text)) in paths.iter().zip(FILES) {
        write(path, text, force).map_err(|error| failed(path, &error))?;
    }
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if output.json {
        return output.document(&json!({ "files": shown }));
    }
    shown.iter().try_for_each(|path| output.line(path))
}

fn write(path: &Path, text: &str, force: bool) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).create_new(!force).truncate(force).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
