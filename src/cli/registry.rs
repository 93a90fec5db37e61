//! `shoal registry`: commands for the OS images of a data directory on which no controller runs. `status`, `delete`, `read-only`,
//! `uploads` and commands with `--online` are requests to a running controller (`registry_online`).

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use registry::{GcOptions, Registry, RepositoryName, Tag};
use serde_json::{Value, json};

use access::audit::AuditAction;
use client::error::CliError;
use client::exit::Exit;
use client::input;
use client::live::WatchArgs;
use client::output::{Output, plain};
use client::progress::{Direction, ProcessProgress};
use client::registry_online::RegistryRequest;
use controller::app::{OfflineRegistry, StartError};
use model::{Clock as _, SystemClock, error_chain};
use settings::Settings;

/// Commands for OS images. `delete`, `status`, `read-only`, `uploads`, `cancel-upload` and `--online` use a running controller; all
/// others need a stopped one.
#[derive(Debug, Subcommand)]
pub(super) enum RegistryCommand {
    /// List repositories and tags; online with sizes, and for one repository with what each tag is and what holds its content
    Ls {
        /// Only this repository
        repository: Option<String>,
        /// Ask the running controller (--url, --token)
        #[arg(long)]
        online: bool,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Delete tags, or manifests with every tag that names them, through a running controller
    Delete {
        /// What is deleted: REPOSITORY:TAG, REPOSITORY:GLOB for all tags like it, or REPOSITORY@DIGEST; may be given more than once
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
        /// Delete them; without this only a preview is shown
        #[arg(long)]
        yes: bool,
        /// The number of images that the preview showed; if it has changed, nothing is deleted
        #[arg(long, value_name = "N", requires = "yes")]
        expect: Option<usize>,
    },
    /// Collect garbage: remove content that no tag, manifest or pin needs
    Gc {
        /// Only show what would be removed
        #[arg(long)]
        dry_run: bool,
        /// Seconds for which unreferenced content is kept [default: REGISTRY_GC_GRACE_PERIOD]
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u32>,
        /// Also remove untagged manifests
        #[arg(long)]
        untagged: bool,
        /// Request it from the running controller (--url, --token)
        #[arg(long)]
        online: bool,
    },
    /// Remove the tags that REGISTRY_RETENTION does not keep
    Retain {
        /// Only show which tags would be removed
        #[arg(long)]
        dry_run: bool,
        /// Request it from the running controller (--url, --token)
        #[arg(long)]
        online: bool,
    },
    /// Hash all content again and quarantine corrupted content; ends with 1 if there is any
    Scrub {
        /// The maximum read rate in MiB per second
        #[arg(long, value_name = "N", default_value_t = 256)]
        rate: u64,
        /// Request it from the running controller, which reads at REGISTRY_SCRUB_RATE; `status` shows the result
        #[arg(long)]
        online: bool,
    },
    /// Show the status of the registry of a running controller
    Status,
    /// Make the registry of a running controller read-only (pushes and deletes are refused), or end that
    ReadOnly {
        /// `on` refuses pushes and deletes, also after a restart; `off` accepts them again
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(["on", "off"]))]
        state: String,
        /// The reason, sent to refused clients
        #[arg(long, required_if_eq("state", "on"))]
        reason: Option<String>,
    },
    /// List the open upload sessions of a running controller
    Uploads {
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Cancel upload sessions of a running controller; later requests of their clients are refused
    CancelUpload {
        /// The ids, as `uploads` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// List pins: manifests that are kept for a job or another owner
    Pins,
    /// Rebuild the indexes and image layouts from the content on disk
    Rebuild,
    /// Write a repository as a tar of an OCI image layout; equal content gives equal bytes
    Export {
        /// The repository
        repository: String,
        /// The new file; an existing one is not overwritten
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// Only these tags; may be given more than once
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Import images from an OCI image layout (directory or tar), a `docker save` archive, or the directory of a docker-registry
    Import {
        /// The directory or archive
        source: PathBuf,
        /// The target repository; not for the directory of a docker-registry, which names its repositories
        #[arg(long, value_name = "NAME")]
        repository: Option<String>,
    },
}

impl RegistryCommand {
    /// The request to a running controller; `None` for a command that works on the data directory.
    pub(super) fn online(&self) -> Option<RegistryRequest> {
        match self {
            Self::Ls { repository, online: true, watch } => {
                Some(RegistryRequest::List(repository.clone(), *watch))
            }
            Self::Delete { images, yes, expect } => {
                Some(RegistryRequest::Delete { images: images.clone(), yes: *yes, expect: *expect })
            }
            Self::Status => Some(RegistryRequest::Status),
            Self::ReadOnly { state, reason } => {
                Some(RegistryRequest::ReadOnly((state == "on").then(|| reason.clone().unwrap_or_default())))
            }
            Self::Gc { dry_run, grace, untagged, online: true } => {
                Some(RegistryRequest::Gc { dry_run: *dry_run, grace: *grace, untagged: *untagged })
            }
            Self::Retain { dry_run, online: true } => Some(RegistryRequest::Retain { dry_run: *dry_run }),
            Self::Scrub { online: true, .. } => Some(RegistryRequest::Scrub),
            Self::Uploads { watch } => Some(RegistryRequest::Uploads(*watch)),
            Self::CancelUpload { ids } => Some(RegistryRequest::CancelUploads(ids.clone())),
            _ => None,
        }
    }

    /// The action of the audit log; `None` for a command that changes nothing.
    fn action(&self) -> Option<AuditAction> {
        match self {
            Self::Gc { dry_run: false, .. } => Some(AuditAction::RegistryCollect),
            Self::Retain { dry_run: false, .. } => Some(AuditAction::RegistryRetain),
            Self::Scrub { .. } => Some(AuditAction::RegistryScrub),
            Self::Rebuild => Some(AuditAction::RegistryRebuild),
            Self::Import { .. } => Some(AuditAction::RegistryImport),
            _ => None,
        }
    }

    /// The command line for the same operation through a running controller, if there is one.
    fn online_form(&self) -> Option<&'static str> {
        match self {
            Self::Ls { .. } => Some("shoal registry ls --online"),
            Self::Gc { .. } => Some("shoal registry gc --online"),
            Self::Retain { .. } => Some("shoal registry retain --online"),
            Self::Scrub { .. } => Some("shoal registry scrub --online"),
            _ => None,
        }
    }
}

/// Runs a command.
pub(super) async fn run(
    command: RegistryCommand,
    settings: Settings,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if matches!(command, RegistryCommand::Ls { watch, .. } if watch.is_given()) {
        return Err(CliError::Usage(
            "--watch follows the registry of a running controller; without one nothing changes: give --online too"
                .to_owned(),
        ));
    }
    let folder = &settings.registry_storage;
    // Opening creates what is missing: only an import begins a registry.
    let is_missing = || match folder.metadata() {
        Ok(found) => !found.is_dir(),
        // What cannot be looked at is reported by the opening, with its cause.
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if !matches!(command, RegistryCommand::Import { .. }) && is_missing() {
        let message = format!(
            "there is no registry in {}: give the data directory of a controller (--data, STORAGE_ROOT) or REGISTRY_STORAGE",
            folder.display()
        );
        return Err(CliError::Local { message: plain(&message), exit: Exit::NotFound });
    }
    let opened = OfflineRegistry::open(&settings).await.map_err(|error| {
        let message = plain(&error_chain(&error).to_string());
        match (error, command.online_form()) {
            (StartError::InUse { .. }, Some(form)) => {
                CliError::failed(format!("{message}; or use the running controller: `{form}`"))
            }
            _ => CliError::failed(message),
        }
    })?;
    let registry = &opened.registry;
    let action = command.action();
    let outcome = run_offline(command, registry, &settings, output).await;
    // Also after a failed command, so that the layouts on disk match the content.
    let flushed = registry.flush_layouts().await.map_err(|error| failed(&error));
    // Also after a failed command, which may have changed a part.
    let recorded = match action {
        Some(action) => opened.record(action, SystemClock.now()).map_err(|error| {
            CliError::failed(format!(
                "the change is made and is not in the audit log: {}",
                error_chain(&error)
            ))
        }),
        None => Ok(()),
    };
    outcome.and(flushed).and(recorded)
}

fn failed(error: &registry::Error) -> CliError {
    let exit = match error {
        registry::Error::RepositoryUnknown
        | registry::Error::ManifestUnknown
        | registry::Error::BlobUnknown => Exit::NotFound,
        _ => Exit::Failed,
    };
    CliError::Local { message: plain(&error_chain(error).to_string()), exit }
}

fn named<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, CliError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|why| CliError::Usage(format!("{what} {text:?}: {why}")))
}

async fn run_offline(
    command: RegistryCommand,
    registry: &Registry,
    settings: &Settings,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        RegistryCommand::Ls { repository, .. } => list(registry, repository.as_deref(), output).await,
        // Handled by `registry_online`.
        RegistryCommand::Delete { .. }
        | RegistryCommand::Status
        | RegistryCommand::ReadOnly { .. }
        | RegistryCommand::Uploads { .. }
        | RegistryCommand::CancelUpload { .. } => Ok(()),
        RegistryCommand::Retain { dry_run, online: _ } => retain(registry, settings, dry_run, output).await,
        RegistryCommand::Gc { dry_run, grace, untagged, online: _ } => {
            let configured = settings.registry_gc_grace_period;
            let grace = grace.map_or(configured, |seconds| Duration::from_secs(seconds.into()));
            let untagged = untagged || settings.registry_gc_untagged;
            let options = GcOptions { grace, untagged, dry_run, ..GcOptions::at(SystemTime::now()) };
            let collected = reading("collecting garbage", registry.collect(options), output).await;
            let report = collected.map_err(|error| failed(&error))?;
            let corrupted: Vec<String> = report.corrupted.iter().map(ToString::to_string).collect();
            if output.json {
                return output.document(&json!({
                    "dry_run": dry_run, "manifests": report.manifests, "layers": report.layers,
                    "blobs": report.blobs, "bytes": report.bytes, "corrupted": corrupted,
                }));
            }
            for name in corrupted {
                output.note(format!(
                    "{name}: a manifest is corrupted, so nothing of this repository was removed; push its image again"
                ));
            }
            let verb = if dry_run { "would remove" } else { "removed" };
            output.line(format!(
                "{verb} {} manifests and {} layers from their repositories, {} blobs of {} bytes from the disk",
                report.manifests, report.layers, report.blobs, report.bytes
            ))
        }
        RegistryCommand::Scrub { rate, online: _ } => {
            let rate = NonZeroU64::new(rate.saturating_mul(1 << 20)).unwrap_or(NonZeroU64::MIN);
            let scrubbed = reading("hashing all content", registry.scrub(rate), output).await;
            let scrubbed = scrubbed.map_err(|error| failed(&error))?;
            let corrupted: Vec<String> = scrubbed.corrupted.iter().map(ToString::to_string).collect();
            let unreadable: Vec<String> = scrubbed.unreadable.iter().map(ToString::to_string).collect();
            if output.json {
                output.document(&json!({
                    "blobs": scrubbed.blobs, "bytes": scrubbed.bytes, "corrupted": corrupted, "unreadable": unreadable,
                }))?;
            } else {
                output.line(format!("{} blobs verified, {} bytes", scrubbed.blobs, scrubbed.bytes))?;
                corrupted
                    .iter()
                    .for_each(|digest| output.note(format!("{digest} is corrupted and was quarantined")));
                unreadable.iter().for_each(|digest| output.note(format!("{digest} could not be opened")));
            }
            match (corrupted.is_empty(), unreadable.is_empty()) {
                (true, true) => return Ok(()),
                (true, false) => {
                    return Err(CliError::failed(
                        "content could not be opened: check the disk of the registry",
                    ));
                }
                _ => {}
            }
            Err(CliError::failed("corrupted content was quarantined: push the images that contain it again"))
        }
        RegistryCommand::Pins => {
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
            output.table(&["REPOSITORY", "DIGEST", "OWNER"], &rows)
        }
        RegistryCommand::Rebuild => {
            let rebuilt = reading("rebuilding the indexes", registry.rebuild(), output).await;
            let rebuilt = rebuilt.map_err(|error| failed(&error))?;
            if output.json {
                return output.document(&json!({
                    "repositories": rebuilt.repositories, "manifests": rebuilt.manifests, "corrupted": rebuilt.corrupted,
                }));
            }
            output.line(format!(
                "{} repositories with {} manifests rebuilt, {} manifests corrupted",
                rebuilt.repositories, rebuilt.manifests, rebuilt.corrupted
            ))
        }
        RegistryCommand::Export { repository, output: path, tags } => {
            export(registry, &repository, path, &tags, output).await
        }
        RegistryCommand::Import { source, repository } => {
            import(registry, &source, repository.as_deref(), output).await
        }
    }
}

/// Waits for work that reads the registry, and shows what it has read when it takes long.
async fn reading<T>(what: &str, work: impl Future<Output = T>, output: &mut Output<'_>) -> T {
    ProcessProgress::new(what, Direction::Read, None).while_waiting(&mut *output.err, work).await
}

async fn retain(
    registry: &Registry,
    settings: &Settings,
    dry_run: bool,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if settings.registry_retention.is_empty() {
        return Err(CliError::Usage("there are no retention rules: set REGISTRY_RETENTION".to_owned()));
    }
    let rules = settings.registry_retention.clone();
    let expired = registry.retain(rules, SystemTime::now(), dry_run);
    let expired = reading("reading the tags", expired, output).await.map_err(|error| failed(&error))?;
    let tags: Vec<String> =
        expired.iter().map(|expired| format!("{}:{}", expired.repository, expired.tag)).collect();
    if output.json {
        return output.document(&json!({ "dry_run": dry_run, "tags": tags }));
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    output.note(format!("{verb} {} tags", tags.len()));
    tags.iter().try_for_each(|tag| output.line(tag))
}

async fn list(registry: &Registry, only: Option<&str>, output: &mut Output<'_>) -> Result<(), CliError> {
    let repositories = match only {
        Some(name) => vec![named::<RepositoryName>("repository", name)?],
        None => registry.repositories().await,
    };
    let mut rows = Vec::new();
    for repository in repositories {
        let tags = registry.tags(&repository).await.map_err(|error| failed(&error))?;
        rows.push((repository.to_string(), tags.iter().map(ToString::to_string).collect::<Vec<_>>()));
    }
    if output.json {
        // The members of the controller's list that are known without it.
        let row =
            |(name, tags): &(String, Vec<String>)| json!({ "name": name, "names": tags, "tags": tags.len() });
        let rows: Vec<Value> = rows.iter().map(row).collect();
        return output.document(&json!({ "repositories": rows, "next": null }));
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
    if path.as_os_str() == "-" {
        return Err(CliError::Usage("an archive is written to a file: give another name than -".to_owned()));
    }
    let repository: RepositoryName = named("repository", repository)?;
    let only = tags.iter().map(|tag| named("tag", tag)).collect::<Result<BTreeSet<Tag>, _>>()?;
    let only = (!only.is_empty()).then_some(only);
    let refused =
        |error: &std::io::Error| CliError::failed(format!("cannot write {}: {error}", path.display()));
    // An image may contain secrets.
    let mut new = std::fs::OpenOptions::new();
    let file = new.write(true).create_new(true).mode(0o600).open(&path).map_err(|error| refused(&error))?;
    let progress = ProcessProgress::new(format!("writing {}", path.display()), Direction::Write, None);
    let file = match progress.while_waiting(&mut *output.err, registry.export(&repository, only, file)).await
    {
        Ok(file) => file,
        Err(error) => {
            // An incomplete archive is removed.
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
    input::exists(source)?;
    if repository.is_none() && !source.join("docker/registry/v2/repositories").is_dir() {
        return Err(CliError::Usage(format!(
            "{} is not the directory of a docker-registry, which names its repositories: give --repository NAME",
            source.display()
        )));
    }
    let size = std::fs::metadata(source).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let progress = ProcessProgress::new(format!("reading {}", source.display()), Direction::Read, size);
    let work = async {
        Ok::<_, CliError>(match repository {
            Some(repository) => {
                let repository: RepositoryName = named("repository", repository)?;
                let imported = registry.import(source, &repository).await.map_err(|error| failed(&error))?;
                [(repository, imported)].into()
            }
            None => registry.import_registry(source).await.map_err(|error| failed(&error))?,
        })
    };
    let imported = progress.while_waiting(&mut *output.err, work).await?;
    let skipped: Vec<String> = imported
        .iter()
        .flat_map(|(repository, imported)| {
            imported.skipped.iter().map(move |name| format!("{repository}: {:?}", plain(name)))
        })
        .collect();
    let broken: Vec<String> = imported
        .iter()
        .flat_map(|(repository, imported)| {
            imported.failed.iter().map(move |(tag, why)| format!("{repository}:{tag}: {}", plain(why)))
        })
        .collect();
    let nothing = imported.values().all(|imported| imported.manifests == 0);
    if output.json {
        let rows: Vec<Value> = imported
            .iter()
            .map(|(repository, imported)| {
                let tags: Vec<String> = imported.tags.iter().map(ToString::to_string).collect();
                let failed: Vec<Value> = imported
                    .failed
                    .iter()
                    .map(|(tag, why)| json!({ "tag": tag.to_string(), "why": why }))
                    .collect();
                json!({
                    "repository": repository.to_string(), "tags": tags, "skipped": imported.skipped, "failed": failed,
                })
            })
            .collect();
        output.document(&json!({ "imported": rows }))?;
    } else {
        for (repository, imported) in imported.iter().filter(|(_, imported)| imported.manifests > 0) {
            let tags: Vec<String> = imported.tags.iter().map(ToString::to_string).collect();
            let tags = if tags.is_empty() { "(no tag)".to_owned() } else { tags.join(" ") };
            output.line(format!("{repository}: {tags}"))?;
        }
    }
    let mut left_out = Vec::new();
    if !broken.is_empty() {
        left_out.push(format!(
            "these images cannot be imported: {}; repair them in the source, then import it again",
            broken.join("; ")
        ));
    }
    if !skipped.is_empty() {
        left_out.push(format!(
            "these names are no tags, so their images were not imported: {}; rename them in the source, then import it \
             again (a tag has letters, digits, '_', '.' and '-', and does not begin with '.' or '-')",
            skipped.join(", ")
        ));
    }
    if !left_out.is_empty() {
        return Err(CliError::failed(left_out.join(". Also, ")));
    }
    if nothing {
        return Err(CliError::failed(format!("nothing was imported: {} has no image", source.display())));
    }
    Ok(())
}
