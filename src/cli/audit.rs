//! `shoal audit`: the audit log of a controller, and its check without one.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::settings_args::SettingsArgs;
use client::connection::{Client, ConnectionArgs};
use client::error::CliError;
use client::exit::Exit;
use client::live::{Source, WatchArgs};
use client::output::{Column, Output, Since, plain, text};
use client::progress::{Direction, ProcessProgress};
use model::audit::KnownHead;
use model::error_chain;
use store::AuditFile;
use store::audit_export::{
    AuditExportError, AuditVerifyError, head_of_export, verify_database, verify_export, write_export,
};

/// The first bytes of a database file.
const DATABASE: &[u8] = b"SQLite format 3\0";
/// The largest page of the API.
const PAGE: u64 = 1000;

/// Commands for the audit log.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// List entries of a running controller, the newest first
    List(ListAudit),
    /// Check that no entry was changed, removed, inserted or moved; needs no controller and ends with 1 if one was
    Verify(VerifyAudit),
    /// Write the whole log of a database as JSON lines that `verify` checks on their own; a controller may be running
    Export {
        /// The new file; an existing one is not overwritten [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The database [default: the one of the settings]
        #[arg(long, value_name = "FILE")]
        database: Option<PathBuf>,
    },
}

/// Arguments of `shoal audit list`.
#[derive(Args, Debug)]
pub(super) struct ListAudit {
    /// Only entries of the user or token with this name
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this action, such as user.create, or user.* or backup* for all that begin so
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only this target, such as server/SERIAL, or server/* for all that begin so
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Only entries of this time or later: a duration before now, such as 2h, or a time such as 2026-11-23T08:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// The maximum of entries
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Arguments of `shoal audit verify`.
#[derive(Args, Debug)]
pub(super) struct VerifyAudit {
    /// A database or an export [default: the database of the settings]
    file: Option<PathBuf>,
    /// An earlier head, SEQ:HASH or HASH: its entry must be in the log, so that a cut end is noticed
    #[arg(long, value_name = "HEAD", conflicts_with = "earlier")]
    head: Option<KnownHead>,
    /// An earlier export: its last entry must be in the log, so that a cut end is noticed
    #[arg(long, value_name = "FILE")]
    earlier: Option<PathBuf>,
}

/// Runs a command.
pub(super) async fn run(
    command: AuditCommand,
    settings: SettingsArgs,
    connection: ConnectionArgs,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        AuditCommand::List(list) => {
            let (client, watch) = (Client::new(&connection)?, list.watch);
            watch.list(Source::Pauses, output, async |output| list.run(&client, output).await).await
        }
        AuditCommand::Verify(verify) => verify.run(settings, output),
        AuditCommand::Export { output: file, database } => {
            export(&database_of(database, settings)?, file.as_deref(), output)
        }
    }
}

/// The given database, or the one of the settings.
fn database_of(given: Option<PathBuf>, settings: SettingsArgs) -> Result<PathBuf, CliError> {
    match given {
        Some(path) => Ok(path),
        None => Ok(settings.load()?.db_path),
    }
}

impl ListAudit {
    async fn run(&self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let since = self.since.map(|since| since.time((output.times.now)()).to_string());
        let filters = [
            ("actor", self.actor.clone()),
            ("action", self.action.clone()),
            ("target", self.target.clone()),
            ("since", since),
        ];
        let filters: Vec<(&str, String)> =
            filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let (mut entries, mut cursor) = (Vec::new(), None);
        let head = loop {
            let wanted = self.limit.saturating_sub(entries.len() as u64);
            let mut query = filters.clone();
            query.push(("limit", wanted.clamp(1, PAGE).to_string()));
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page = client.get(&["audit"], &query).await?.body;
            entries.extend(page["entries"].as_array().into_iter().flatten().cloned());
            cursor = page["next"].as_str().map(str::to_owned);
            if cursor.is_none() || entries.len() as u64 >= self.limit {
                break text(&page, "/head");
            }
        };
        if output.json {
            return output.document(&json!({ "entries": entries, "head": head, "next": cursor }));
        }
        let row = |entry: &Value| {
            let part = |pointer: &str| text(entry, pointer);
            let count = entry["count"].as_u64().filter(|count| *count > 1);
            let result = match count {
                Some(count) => format!("{} x {count}", part("/result")),
                None => part("/result"),
            };
            let actor = match part("/actor") {
                name if name.is_empty() => part("/actor_kind"),
                name => format!("{name} ({})", part("/actor_kind")),
            };
            vec![
                part("/seq"),
                part("/time"),
                actor,
                part("/source"),
                part("/action"),
                part("/target"),
                result,
            ]
        };
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        const COLUMNS: [Column<'_>; 7] = [
            Column::new("SEQ", 0),
            Column::new("TIME", 1),
            Column::new("ACTOR", 3),
            Column::new("SOURCE", 6),
            Column::new("ACTION", 2),
            Column::new("TARGET", 4),
            Column::new("RESULT", 5),
        ];
        output.columns(&COLUMNS, &rows)?;
        if cursor.is_some() {
            output.note("there are more entries; give a larger --limit");
        }
        output.note(format!("head {head}: keep it elsewhere for shoal audit verify --head"));
        Ok(())
    }
}

impl VerifyAudit {
    fn run(self, settings: SettingsArgs, output: &mut Output<'_>) -> Result<(), CliError> {
        let path = database_of(self.file, settings)?;
        let known = match &self.earlier {
            None => self.head,
            Some(earlier) => {
                let file = open(earlier)?;
                verify_export(BufReader::new(file), None).map_err(|error| failed(earlier, &error))?;
                let head = head_of_export(BufReader::new(open(earlier)?));
                Some(head.map_err(|error| failed(earlier, &error))?.into())
            }
        };
        let mut begin = Vec::new();
        let length = DATABASE.len() as u64;
        let read = open(&path)?.take(length).read_to_end(&mut begin);
        read.map_err(|source| CliError::Input { path: path.clone(), source })?;
        let progress = ProcessProgress::new(format!("verifying {}", path.display()), Direction::Read, None);
        let verified = match begin == DATABASE {
            true => progress.during(&mut *output.err, || verify_database(&path, known)),
            false => {
                let file = BufReader::new(open(&path)?);
                progress.during(&mut *output.err, || verify_export(file, known))
            }
        };
        let summary = verified.map_err(|error| failed(&path, &error))?;
        let (entries, head) = (summary.entries, summary.head.to_string());
        let pruned = summary.anchor.seq;
        if output.json {
            return output.document(&json!({ "entries": entries, "pruned": pruned, "head": head }));
        }
        let before = match pruned {
            0 => String::new(),
            pruned => format!(", {pruned} older ones were pruned"),
        };
        output.line(format!("{entries} entries are complete and unchanged{before}; head {head}"))?;
        if known.is_none() {
            output.note(
                "a cut end is noticed only with a head that was kept elsewhere: --head or --earlier; keep this one",
            );
        }
        Ok(())
    }
}

fn export(database: &Path, to: Option<&Path>, output: &mut Output<'_>) -> Result<(), CliError> {
    let read = |error: &(dyn std::error::Error + 'static)| {
        CliError::failed(plain(&format!("{}: {}", database.display(), error_chain(error))))
    };
    open(database)?;
    let log = AuditFile::open(database).map_err(|error| read(&error))?;
    let head = match to {
        None => {
            let mut out = BufWriter::new(&mut *output.out);
            write_export(&log, &mut out)
        }
        Some(path) => {
            let create = File::options().write(true).create_new(true).mode(0o600).open(path);
            let file = create.map_err(|error| unwritten(path, &error))?;
            let mut out = BufWriter::new(file);
            let progress =
                ProcessProgress::new(format!("writing {}", path.display()), Direction::Write, None);
            let written = &mut out;
            let head = progress.during(&mut *output.err, move || write_export(&log, written));
            let synced = out.flush().and_then(|()| out.get_ref().sync_all());
            synced.map_err(|error| unwritten(path, &error))?;
            head
        }
    };
    let head = head.map_err(|error| match error {
        AuditExportError::Write(error) => CliError::Output(error),
        AuditExportError::Store(error) => read(&error),
    })?;
    output.note(format!("head {head}"));
    Ok(())
}

fn open(path: &Path) -> Result<File, CliError> {
    File::open(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            CliError::Local { message: format!("there is no file {}", path.display()), exit: Exit::NotFound }
        }
        _ => CliError::Input { path: path.to_owned(), source },
    })
}

fn unwritten(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", path.display()))
}

fn failed(path: &Path, error: &AuditVerifyError) -> CliError {
    let what = plain(&error_chain(error).to_string());
    match error.is_broken() {
        true => CliError::failed(format!("the audit log in {} is broken: {what}", path.display())),
        false => CliError::failed(format!("{}: {what}", path.display())),
    }
}
