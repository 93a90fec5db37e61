//! `shoal registry`: work on the images of a data directory while no controller runs on it.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use registry::{GcOptions, Registry, RepositoryName, Tag};
use serde_json::{Value, json};

use super::error::CliError;
use super::output::{Output, plain};
use crate::app::Offline;
use crate::config::Settings;
use crate::model::chain;

/// What to do with the images. A running controller does the same by itself, or over `/v2/`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List repositories and tags
    Ls,
    /// Remove what no tag, no job and no pin needs
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
        /// How long what nobody refers to is kept, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        grace: u64,
        /// Also images no tag leads to
        #[arg(long)]
        untagged: bool,
    },
    /// Hash everything once more, and put aside what has rotted
    Scrub {
        /// MiB a second that are read at most
        #[arg(long, value_name = "N", default_value_t = 256)]
        rate: u64,
    },
    /// List what is kept for somebody
    Pins,
    /// Make all that is derived anew from what is on disk
    Rebuild,
    /// Write a repository as an OCI image layout in a tar: the same content gives the same bytes
    Export {
        /// The repository
        repository: String,
        /// The file
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// Only these tags; may be given more than once
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Take over images: an OCI image layout (directory or tar), what `docker save` wrote, or a docker-registry's directory
    Import {
        /// Where they are
        source: PathBuf,
        /// The repository they come into; not for a docker-registry's directory, which has its own names
        #[arg(long, value_name = "NAME")]
        repository: Option<String>,
    },
}

/// Runs a command.
pub(super) async fn run(
    command: Command,
    settings: Settings,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let said = |error: &dyn std::error::Error| CliError::failed(plain(&chain(error).to_string()));
    let offline = Offline::open(&settings).await.map_err(|error| said(&error))?;
    let registry = &offline.registry;
    let outcome = carry_out(command, registry, output).await;
    // Whatever the command did, tools that read the layouts from the disk see it.
    let flushed = registry.flush_layouts().await.map_err(|error| failed(&error));
    outcome.and(flushed)
}

fn failed(error: &registry::Error) -> CliError {
    CliError::failed(plain(&chain(error).to_string()))
}

fn named<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, CliError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|why| CliError::Usage(format!("{what} {text:?}: {why}")))
}

async fn carry_out(command: Command, registry: &Registry, output: &mut Output<'_>) -> Result<(), CliError> {
    match command {
        Command::Ls => list(registry, output).await,
        Command::Gc { dry_run, grace, untagged } => {
            let options =
                GcOptions { grace: Duration::from_secs(grace), untagged, dry_run, now: SystemTime::now() };
            let report = registry.collect(options).await.map_err(|error| failed(&error))?;
            let damaged: Vec<String> = report.damaged.iter().map(ToString::to_string).collect();
            if output.json {
                return output.document(&json!({
                    "dry_run": dry_run, "manifests": report.manifests, "layers": report.layers,
                    "blobs": report.blobs, "bytes": report.bytes, "damaged": damaged,
                }));
            }
            for name in damaged {
                output.note(format!(
                    "{name}: a manifest is damaged, so nothing of it was removed; push it again"
                ));
            }
            let verb = if dry_run { "would remove" } else { "removed" };
            output.line(format!(
                "{verb} {} manifests and {} layers from their repositories, {} blobs of {} bytes from the disk",
                report.manifests, report.layers, report.blobs, report.bytes
            ))
        }
        Command::Scrub { rate } => {
            let rate = NonZeroU64::new(rate.saturating_mul(1 << 20)).unwrap_or(NonZeroU64::MIN);
            let scrubbed = registry.scrub(rate).await.map_err(|error| failed(&error))?;
            let damaged: Vec<String> = scrubbed.damaged.iter().map(ToString::to_string).collect();
            if output.json {
                output.document(
                    &json!({ "blobs": scrubbed.blobs, "bytes": scrubbed.bytes, "damaged": damaged }),
                )?;
            } else {
                output.line(format!("{} blobs of {} bytes verified", scrubbed.blobs, scrubbed.bytes))?;
                damaged
                    .iter()
                    .for_each(|digest| output.note(format!("{digest} has rotted and was put aside")));
            }
            if damaged.is_empty() {
                return Ok(());
            }
            Err(CliError::failed("content has rotted on the disk: push the images it belongs to again"))
        }
        Command::Pins => {
            let pins = registry.pins();
            let row = |pin: &registry::Pin| {
                [pin.repository.to_string(), pin.digest.to_string(), pin.owner.to_string()]
            };
            if output.json {
                let rows: Vec<Value> = pins
                    .iter()
                    .map(row)
                    .map(|[repository, digest, owner]| {
                        json!({ "repository": repository, "digest": digest, "owner": owner })
                    })
                    .collect();
                return output.document(&json!({ "pins": rows }));
            }
            let rows: Vec<Vec<String>> =
                pins.iter().map(|pin| row(pin).map(|text| plain(&text)).to_vec()).collect();
            output.table(&["REPOSITORY", "DIGEST", "KEPT FOR"], &rows)
        }
        Command::Rebuild => {
            let rebuilt = registry.rebuild().await.map_err(|error| failed(&error))?;
            if output.json {
                return output.document(&json!({
                    "repositories": rebuilt.repositories, "manifests": rebuilt.manifests, "damaged": rebuilt.damaged,
                }));
            }
            output.line(format!(
                "{} repositories with {} manifests made anew, {} manifests damaged",
                rebuilt.repositories, rebuilt.manifests, rebuilt.damaged
            ))
        }
        Command::Export { repository, output: path, tags } => {
            export(registry, &repository, path, &tags, output).await
        }
        Command::Import { source, repository } => {
            import(registry, &source, repository.as_deref(), output).await
        }
    }
}

async fn list(registry: &Registry, output: &mut Output<'_>) -> Result<(), CliError> {
    let mut rows = Vec::new();
    for repository in registry.repositories().await {
        let tags = registry.tags(&repository).await.map_err(|error| failed(&error))?;
        rows.push((repository.to_string(), tags.iter().map(ToString::to_string).collect::<Vec<_>>()));
    }
    if output.json {
        let rows: Vec<Value> =
            rows.iter().map(|(repository, tags)| json!({ "repository": repository, "tags": tags })).collect();
        return output.document(&json!({ "repositories": rows }));
    }
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(repository, tags)| vec![repository, tags.join(" ")]).collect();
    output.table(&["REPOSITORY", "TAGS"], &rows)
}

async fn export(
    registry: &Registry,
    repository: &str,
    path: PathBuf,
    tags: &[String],
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let repository: RepositoryName = named("repository", repository)?;
    let only = tags.iter().map(|tag| named("tag", tag)).collect::<Result<BTreeSet<Tag>, _>>()?;
    let only = (!only.is_empty()).then_some(only);
    let refused =
        |error: &std::io::Error| CliError::failed(format!("cannot write {}: {error}", path.display()));
    let file = std::fs::File::create_new(&path).map_err(|error| refused(&error))?;
    let file = match registry.export(&repository, only, file).await {
        Ok(file) => file,
        Err(error) => {
            // Half an archive is worse than none.
            let _left = std::fs::remove_file(&path);
            return Err(failed(&error));
        }
    };
    file.sync_all().map_err(|error| refused(&error))?;
    let bytes = file.metadata().map_err(|error| refused(&error))?.len();
    if output.json {
        return output.document(&json!({ "file": path, "bytes": bytes }));
    }
    output.line(format!("{}: {bytes} bytes", path.display()))
}

async fn import(
    registry: &Registry,
    source: &std::path::Path,
    repository: Option<&str>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let imported = match repository {
        Some(repository) => {
            let repository: RepositoryName = named("repository", repository)?;
            let imported = registry.import(source, &repository).await.map_err(|error| failed(&error))?;
            [(repository, imported)].into()
        }
        None => registry.import_registry(source).await.map_err(|error| failed(&error))?,
    };
    if output.json {
        let rows: Vec<Value> = imported
            .iter()
            .map(|(repository, imported)| {
                let tags: Vec<String> = imported.tags.iter().map(ToString::to_string).collect();
                json!({ "repository": repository.to_string(), "tags": tags })
            })
            .collect();
        return output.document(&json!({ "imported": rows }));
    }
    for (repository, imported) in imported {
        let tags: Vec<String> = imported.tags.iter().map(ToString::to_string).collect();
        output.line(format!("{repository}: {}", tags.join(" ")))?;
    }
    Ok(())
}
