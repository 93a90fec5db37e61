//! `shoal bmc`: probe and diagnostics of a BMC, through a controller or directly.
//!
//! ```text
//!   TARGET is a serial number   through the controller, with the registered server; `doctor` takes the server's lock
//!   TARGET is an address        directly: nothing is stored, the media listener runs until the command ends
//!   a filter, no TARGET         through the controller: `probe` reads eight BMCs at a time, `doctor` takes one after the other
//! ```
//!
//! An address contains a dot, a colon or a slash, or is `localhost`; `--direct` declares any other name an address.

mod fleet;
mod last;
mod show;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connection::{Client, ConnectionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::filter::FilterOptions;
use super::many::{self, Selection};
use super::output::{Output, plain};
use super::server::{PasswordArgs, password_from_variable};
use super::watch::{self, PollInterval};
use bmc::probe::BmcProblem;
use bmc::probe::direct::{self, DirectTarget};
use diagnostics::checks::CheckStatus;
use model::{Clock, Subject, SystemClock};

/// Commands for a BMC.
#[derive(Debug, Subcommand)]
pub(super) enum BmcCommand {
    /// Show model, slots, boot and limits of a BMC and the slot plan of a job, or a row for each server of a filter; changes nothing
    Probe(ProbeArgs),
    /// Check everything a job needs, with the action for each problem; inserts a small test image and ejects it
    Doctor(DoctorArgs),
}

/// Arguments of `shoal bmc probe`.
#[derive(Args, Debug)]
pub(super) struct ProbeArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    filter: FilterOptions,
    /// Also write the read resources to a file; serial numbers, names and addresses are replaced
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Show what the last probe of a registered server found; the BMC is not asked. As JSON the document is the card in
    /// `card`, with `probed_at` and `server_serial`
    #[arg(long, conflicts_with_all = ["capture", "direct"])]
    last: bool,
}

/// Arguments of `shoal bmc doctor`.
#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    selection: Selection,
    /// Also set the one-time boot override and clear it again
    #[arg(long)]
    write: bool,
    /// Show the result of the last diagnostics of a registered server; nothing is run
    #[arg(long, conflicts_with_all = ["write", "direct", "listen", "yes"])]
    last: bool,
    /// For an address: where to serve the test image [default: the address of this host that the BMC reaches]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
}

/// The BMC of a command.
#[derive(Args, Debug)]
struct TargetArgs {
    /// The serial number of a registered server, or HOST, HOST:PORT or a URL; without it, the servers of a filter
    #[arg(value_name = "SERIAL|HOST")]
    target: Option<String>,
    /// The target is an address, also without dot, colon or slash
    #[arg(long)]
    direct: bool,
    /// For an address: the user of the BMC
    #[arg(long, value_name = "NAME", env = "SHOAL_BMC_USER")]
    bmc_user: Option<String>,
    #[command(flatten)]
    password: PasswordArgs,
    /// For an address: SHA-256 of the BMC's certificate in hex [default: the first certificate is pinned and shown]
    #[arg(long, value_name = "HEX")]
    tls_fingerprint: Option<String>,
    /// For an address: accept any certificate, without a check
    #[arg(long, conflicts_with = "tls_fingerprint")]
    insecure: bool,
    /// For an address: the expected serial number
    #[arg(long, value_name = "SERIAL")]
    serial: Option<String>,
}

impl TargetArgs {
    /// The address or serial number.
    fn name(&self) -> Result<&str, CliError> {
        self.target.as_deref().ok_or_else(|| {
            CliError::Usage(
                "give the serial number of a server, an address, or a filter: -l, --state, --serial-glob, --not"
                    .to_owned(),
            )
        })
    }

    /// Refuses an address, of which nothing is kept.
    fn expect_serial(&self) -> Result<(), CliError> {
        match self.is_address() {
            true => Err(CliError::Usage(
                "--last shows what is kept of a registered server: give its serial number".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn is_address(&self) -> bool {
        let target = self.target.as_deref().unwrap_or_default();
        self.direct || target == "localhost" || target.contains(['.', ':', '/'])
    }

    fn target(&self) -> Result<DirectTarget, CliError> {
        let password = match self.password.read()? {
            Some(password) => password,
            None => password_from_variable()?,
        };
        let username = self.bmc_user.clone().ok_or_else(|| {
            CliError::Usage("the user of the BMC is missing; give --bmc-user or SHOAL_BMC_USER".to_owned())
        })?;
        Ok(DirectTarget {
            address: self.name()?.to_owned(),
            username,
            password,
            fingerprint: self.tls_fingerprint.clone(),
            insecure: self.insecure,
            serial: self.serial.clone(),
        })
    }
}

/// Runs a command. `doctor` ends with 1 if a check failed.
pub(super) async fn run(
    command: BmcCommand,
    connection: &ConnectionArgs,
    output: &mut Output<'_>,
) -> Result<ExitCode, CliError> {
    match command {
        BmcCommand::Probe(probe) => probe.run(connection, output).await,
        BmcCommand::Doctor(doctor) => doctor.run(connection, output).await,
    }
}

impl ProbeArgs {
    async fn run(self, connection: &ConnectionArgs, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        if self.filter.is_given() {
            if self.target.target.is_some() || self.capture.is_some() || self.last {
                let why =
                    "a filter selects servers: leave out the serial number or address, --capture and --last";
                return Err(CliError::Usage(why.to_owned()));
            }
            let filter = self.filter.text(Subject::Servers)?;
            fleet::probe_all(&filter, &Client::new(connection)?, output).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let target = self.target.name()?;
        if self.last {
            self.target.expect_serial()?;
            return last::card(target, &Client::new(connection)?, output).await;
        }
        let (card, capture) = if self.target.is_address() {
            let now = SystemClock.now();
            let probed = direct::probe(&self.target.target()?, self.capture.is_some(), now).await;
            let probed = probed.map_err(bmc_failed)?;
            (probed.card, probed.capture)
        } else {
            let client = Client::new(connection)?;
            let query = [("capture", self.capture.is_some().to_string())];
            let mut card = client.post_slow(&["servers", target, "probe"], &query).await?.body;
            let capture = card.as_object_mut().and_then(|card| card.remove("capture"));
            (card, capture)
        };
        if let Some(path) = &self.capture {
            write_capture(path, &card, capture.unwrap_or_else(|| json!({})))?;
            output.note(format!(
                "written to {}; check it for confidential data before you send it",
                path.display()
            ));
        }
        if output.json {
            output.document(&card)?;
        } else {
            show::card(&card, output)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl DoctorArgs {
    async fn run(self, connection: &ConnectionArgs, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        if self.last && self.selection.filter.is_given() {
            return self.last_of_many(&Client::new(connection)?, output).await;
        }
        if self.selection.filter.is_given() {
            return self.run_many(&Client::new(connection)?, output).await;
        }
        let target = self.target.name()?;
        if self.last {
            self.target.expect_serial()?;
            return last::diagnostics(target, &Client::new(connection)?, output).await;
        }
        let report = if self.target.is_address() {
            let now = SystemClock.now();
            let found = diagnostics::direct::run(&self.target.target()?, self.write, self.listen, now).await;
            let found = found.map_err(bmc_failed)?;
            json!({ "address": target, "verdict": found.verdict(), "checks": found.checks })
        } else {
            let client = Client::new(connection)?;
            self.check(target, &client, output).await?
        };
        if output.json {
            output.document(&report)?;
        } else {
            show::checks(&report, output)?;
        }
        let failed = report["verdict"] == json!(CheckStatus::Fail);
        Ok(if failed { Exit::Failed.into() } else { ExitCode::SUCCESS })
    }
}

impl DoctorArgs {
    /// The checks of a registered server.
    ///
    /// Diagnostics that have not ended within the time of a request are followed to their end: they may wait behind a drain, or
    /// for a slow BMC.
    async fn check(&self, serial: &str, client: &Client, output: &mut Output<'_>) -> Result<Value, CliError> {
        let (path, query) = (["servers", serial, "diagnostics"], [("write", self.write.to_string())]);
        let report = client.post_slow(&path, &query).await?.body;
        if !report["verdict"].is_null() {
            return Ok(report);
        }
        let Some(id) = report["diagnostics_id"].as_str() else {
            return Err(client.unexpected_response(&path, "diagnostics_id is missing"));
        };
        let id = plain(id);
        output.note(format!(
            "the diagnostics of {} have no result yet: shoal job explain {id} says why",
            plain(serial)
        ));
        watch::until(client, &["jobs", &id], PollInterval::default(), output, &mut |job, _| {
            job["status"] == "complete"
        })
        .await?;
        let last = client.get(&path, &[]).await?.body;
        match last["diagnostics_id"] == report["diagnostics_id"] && !last["verdict"].is_null() {
            true => Ok(last),
            false => Err(CliError::failed(format!(
                "the diagnostics {id} have ended without a result: shoal job show {id}"
            ))),
        }
    }

    /// The last diagnostics of the servers of a filter; nothing is run, so no consent is needed.
    async fn last_of_many(&self, client: &Client, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        let target = self.target.target.as_deref();
        let filter = self.selection.or_one(Subject::Servers, target, "serial number of the server")?;
        let serials = many::some_serials(&filter, client).await?;
        let show = async |serial: &str, output: &mut Output<'_>| {
            let report = last::kept(serial, client).await?;
            last::show_one_of_many(serial, &report, output)
        };
        many::each(&serials, output, show).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// Checks the servers of a filter, one after the other: the image is inserted into one BMC at a time.
    async fn run_many(&self, client: &Client, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        let target = self.target.target.as_deref();
        let filter = self.selection.or_one(Subject::Servers, target, "serial number of the server")?;
        let Some(serials) = self.selection.servers("bmc doctor", &filter, client, output).await? else {
            return Ok(ExitCode::SUCCESS);
        };
        let check = async |serial: &str, output: &mut Output<'_>| {
            let report = self.check(serial, client, output).await?;
            last::show_one_of_many(serial, &report, output)
        };
        many::each(&serials, output, check).await?;
        Ok(ExitCode::SUCCESS)
    }
}

fn bmc_failed(why: BmcProblem) -> CliError {
    CliError::failed(format!("{}; {}", why.sentence, why.next_action))
}

/// Writes the read resources with identity, profile and slot plan of the card.
fn write_capture(path: &Path, card: &Value, resources: Value) -> Result<(), CliError> {
    let capture = json!({
        "shoal_capture": 1,
        "identity": card["identity"], "profile": card["profile"], "slot_plan": card["slot_plan"],
        "resources": resources,
    });
    std::fs::write(path, format!("{capture:#}\n"))
        .map_err(|why| CliError::failed(format!("cannot write {}: {why}", path.display())))
}
