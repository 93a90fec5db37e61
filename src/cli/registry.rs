//! `shoal registry`: work on the images of a data directory while no controller runs on it. `status`, `read-only` and, with
//! `--online`, others ask the controller that does (`registry_online`).

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use registry::{GcOptions, Registry, RepositoryName, Tag};
use serde_json::{Value, json};

use super::error::CliError;
use super::output::{Output, plain};
use super::registry_online::Ask;
use controller::app::{Offline, StartError};
use controller::config::Settings;
use engine::model::error_chain;

/// What to do with the images. `status` and `read-only` ask a running controller, and so does what has `--online`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List repositories and tags
    Ls,
    /// Remove what no tag, no job and no pin needs
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
        /// How long what nobody refers to is kept, in seconds; by default REGISTRY_GC_GRACE_PERIOD
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u32>,
        /// Also images no tag leads to
        #[arg(long)]
        untagged: bool,
        /// Ask the running controller (--url, --token)
        #[arg(long)]
        online: bool,
    },
    /// Remove the tags that REGISTRY_RETENTION does not keep
    Retain {
        /// Only say which would go
        #[arg(long)]
        dry_run: bool,
        /// Ask the running controller (--url, --token)
        #[arg(long)]
        online: bool,
    },
    /// Hash everything once more, and put aside what has rotted
    Scrub {
        /// MiB a second that are read at most
        #[arg(long, value_name = "N", default_value_t = 256)]
        rate: u64,
        /// Ask the running controller (--url, --token), which reads at REGISTRY_SCRUB_RATE; `status` tells the end
        #[arg(long)]
        online: bool,
    },
    /// Show how the registry of a running controller stands
    Status,
    /// Let a running controller refuse pushes and deletes, or take them again
    ReadOnly {
        /// Which of the two
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(["on", "off"]))]
        state: String,
        /// Why, for clients that are refused
        #[arg(long, required_if_eq("state", "on"))]
        reason: Option<String>,
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

impl Command {
    /// What is to be asked of a running controller; nothing when the work is to be done here.
    pub(super) fn online(&self) -> Option<Ask> {
        match self {
            Self::Status => Some(Ask::Status),
            Self::ReadOnly { state, reason } => {
                Some(Ask::ReadOnly((state == "on").then(|| reason.clone().unwrap_or_default())))
            }
            Self::Gc { dry_run, grace, untagged, online: true } => {
                Some(Ask::Gc { dry_run: *dry_run, grace: *grace, untagged: *untagged })
            }
            Self::Retain { dry_run, online: true } => Some(Ask::Retain { dry_run: *dry_run }),
            Self::Scrub { online: true, .. } => Some(Ask::Scrub),
            _ => None,
        }
    }

    /// How the same is asked of a running controller, when it can be.
    fn online_form(&self) -> Option<&'static str> {
        match self {
            Self::Gc { .. } => Some("shoal registry gc --online"),
            Self::Retain { .. } => Some("shoal registry retain --online"),
            Self::Scrub { .. } => Some("shoal registry scrub --online"),
            _ => None,
        }
    }
}

/// Runs a command.
pub(super) async fn run(
    command: Command,
    settings: Settings,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let offline = Offline::open(&settings).await.map_err(|error| {
        let said = plain(&error_chain(&error).to_string());
        match (error, command.online_form()) {
            (StartError::InUse { .. }, Some(form)) => {
                CliError::failed(format!("{said}; a running controller is asked with `{form}`"))
            }
            _ => CliError::failed(said),
        }
    })?;
    let registry = &offline.registry;
    let outcome = carry_out(command, registry, &settings, output).await;
    // Whatever the command did, tools that read the layouts from the disk see it.
    let flushed = registry.flush_layouts().await.map_err(|error| failed(&error));
    outcome.and(flushed)
}

fn failed(error: &registry::Error) -> CliError {
    CliError::failed(plain(&error_chain(error).to_string()))
}

fn named<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, CliError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|why| CliError::Usage(format!("{what} {text:?}: {why}")))
}

async fn carry_out(
    command: Command,
    registry: &Registry,
    settings: &Settings,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        Command::Ls => list(registry, output).await,
        // Asked of a controller before anything is opened here.
        Command::Status | Command::ReadOnly { .. } => Ok(()),
        Command::Retain { dry_run, online: _ } => retain(registry, settings, dry_run, output).await,
        Command::Gc { dry_run, grace, untagged, online: _ } => {
            let configured = settings.registry_gc_grace_period;
            let grace = grace.map_or(configured, |seconds| Duration::from_secs(seconds.into()));
            let untagged = untagged || settings.registry_gc_untagged;
            let options = GcOptions { grace, untagged, dry_run, now: SystemTime::now() };
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
        Command::Scrub { rate, online: _ } => {
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

async fn retain(
    registry: &Registry,
    settings: &Settings,
    dry_run: bool,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if settings.registry_retention.is_empty() {
        return Err(CliError::Usage("no rule says which tags go: set REGISTRY_RETENTION".to_owned()));
    }
    let rules = settings.registry_retention.clone();
    let expired = registry.retain(rules, SystemTime::now(), dry_run).await.map_err(|error| failed(&error))?;
    let tags: Vec<String> =
        expired.iter().map(|expired| format!("{}:{}", expired.repository, expired.tag)).collect();
    if output.json {
        return output.document(&json!({ "dry_run": dry_run, "tags": tags }));
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    output.note(format!("{verb} {} tags", tags.len()));
    tags.iter().try_for_each(|tag| output.line(tag))
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
