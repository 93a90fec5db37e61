//! `shoal backup DIRECTORY` and `shoal restore`: commands on the machine of the controller, with its settings. The commands below
//! `shoal backup` are requests to a running controller (`backup_online`).

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use client::backup_online::BackupCommand;
use client::current_thread;
use client::error::CliError;
use client::output::{Output, plain};
use client::progress::{Direction, ProcessProgress};
use controller::app::backup::{self, BackupError, BackupSource, BackupSummary};
use model::{Clock, SystemClock, error_chain};
use settings::Settings;

/// Arguments of `shoal backup`.
#[derive(Args, Debug)]
#[command(subcommand_negates_reqs = true)]
pub(super) struct BackUp {
    #[command(subcommand)]
    pub(super) command: Option<BackupCommand>,
    /// The directory of the backup; it must not exist
    #[arg(required = true)]
    destination: Option<PathBuf>,
    /// Also back up master.key, which decrypts the BMC passwords in the backup
    #[arg(long)]
    with_master_key: bool,
}

/// Arguments of `shoal restore`.
#[derive(Args, Debug)]
pub(super) struct RestoreBackup {
    /// The directory of the backup, a folder of backups (its newest one), or oci://HOST[:PORT]/REPOSITORY[:TAG|@sha256:DIGEST]
    #[arg(value_parser = BackupSource::parse)]
    backup: BackupSource,
    /// Only read the whole backup and compare it with its digests; write nothing
    #[arg(long)]
    verify_only: bool,
}

/// Makes a backup.
pub(super) fn back_up(command: BackUp, settings: &Settings, output: &mut Output<'_>) -> Result<(), CliError> {
    let BackUp { destination, with_master_key, command: _ } = command;
    let destination =
        destination.ok_or_else(|| CliError::Usage("name the directory of the backup".to_owned()))?;
    let progress = ProcessProgress::new("backup", Direction::Write, None);
    let made = progress.during(&mut *output.err, || {
        backup::back_up(settings, &destination, with_master_key, SystemClock.now())
    });
    let summary = made.map_err(|error| failed(&error))?;
    show("backed up", &destination.display().to_string(), &summary, output)?;
    for damaged in &summary.damaged {
        output.note(format!(
            "not in the backup: {}; run shoal registry scrub, with --online while a controller runs",
            plain(damaged)
        ));
    }
    match with_master_key {
        true => output.note("the backup contains the master key: protect it like a password store"),
        false => output.note(
            "the backup does not contain the master key: keep a copy of master.key elsewhere; without it the BMC passwords \
             must be registered again",
        ),
    }
    Ok(())
}

/// Restores or verifies a backup.
pub(super) fn restore(
    command: RestoreBackup,
    settings: &Settings,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if command.verify_only {
        let progress = ProcessProgress::new("verification", Direction::Read, None);
        let verified = progress.during(&mut *output.err, || {
            Ok::<_, CliError>(current_thread()?.block_on(Box::pin(command.backup.verify(settings))))
        })?;
        let (place, summary) = verified.map_err(|error| failed(&error))?;
        return match summary {
            Some(summary) => show("verified", &place, &summary, output),
            None if output.json => output.document(&json!({ "backup": place, "verified": true })),
            None => output.line(format!("verified: {} is complete and unchanged", plain(&place))),
        };
    }
    let progress = ProcessProgress::new("restore", Direction::Write, None);
    let restored = progress.during(&mut *output.err, || {
        let restore = Box::pin(command.backup.restore(settings, SystemClock.now()));
        Ok::<_, CliError>(current_thread()?.block_on(restore))
    })?;
    let (place, summary) = restored.map_err(|error| failed(&error))?;
    show("restored", &place, &summary, output)?;
    if settings.master_key.is_none() && !settings.master_key_file().exists() {
        output.note(format!(
            "there is no master key: put master.key of the old data directory at {} before the first start, or register the \
             BMC passwords again; records of this backup are sealed with the versions: {}",
            settings.master_key_file().display(),
            summary.sealed_with.join(" ")
        ));
    }
    output.note(
        "after the start nothing is done to a server until it is released: shoal controller restored, shoal server restored \
         SERIAL, shoal server release SERIAL",
    );
    output.note(
        "users and API tokens of the backup are refused until they are confirmed, because the backup does not know which of them \
         were taken away since: shoal user list --offline, shoal user confirm NAME --offline, shoal token confirm NAME --offline",
    );
    Ok(())
}

fn show(verb: &str, place: &str, summary: &BackupSummary, output: &mut Output<'_>) -> Result<(), CliError> {
    let BackupSummary { made_at, as_of, servers, jobs, unfinished, files, bytes, .. } = summary;
    if output.json {
        return output.document(&json!(summary));
    }
    let as_of = as_of.map_or(String::new(), |as_of| format!(", last event at {as_of}"));
    output.line(format!(
        "{verb}: {}: {servers} servers, {jobs} jobs of which {unfinished} are unfinished; {files} files, {bytes} bytes; made at \
         {made_at}{as_of}",
        plain(place)
    ))
}

fn failed(error: &BackupError) -> CliError {
    CliError::failed(plain(&error_chain(error).to_string()))
}
