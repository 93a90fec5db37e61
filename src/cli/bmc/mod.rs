//! `shoal bmc`: look at a BMC before anything depends on it, through a controller or straight from here.
//!
//! ```text
//!   TARGET is a serial number   the controller does it, with what is registered; a doctor takes the server's lock
//!   TARGET is an address        straight from here: nothing is stored, the media listener lives as long as the command
//! ```
//!
//! An address has a dot, a colon or a slash in it, or is `localhost`; `--direct` says so of any other name.

mod show;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{Client, ConnectionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::output::Output;
use super::server::{Password, password_from_variable};
use engine::model::{Clock, SystemClock};
use provision::probe::Trouble;
use provision::probe::direct::{self, Target};
use provision::probe::doctor::Mark;

/// What to do with a BMC.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Read what a BMC is and can, and which slot plan a job would follow; changes nothing
    Probe(Probe),
    /// Check everything a job needs, with what to do about it; puts a tiny image in and takes it out again
    Doctor(Doctor),
}

/// A look.
#[derive(Args, Debug)]
pub(super) struct Probe {
    #[command(flatten)]
    target: TargetArgs,
    /// Also write what was read to a file, with serials, names and addresses replaced
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

/// An examination.
#[derive(Args, Debug)]
pub(super) struct Doctor {
    #[command(flatten)]
    target: TargetArgs,
    /// Also set the one-time boot and clear it again
    #[arg(long)]
    write: bool,
    /// Where to serve the tiny image from, for an address [default: the address of this machine the BMC reaches]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
}

/// Which BMC.
#[derive(Args, Debug)]
struct TargetArgs {
    /// The serial number of a registered server, or HOST, HOST:PORT or a URL
    #[arg(value_name = "SERIAL|HOST")]
    target: String,
    /// It is an address, whatever it looks like
    #[arg(long)]
    direct: bool,
    /// The BMC's user, for an address
    #[arg(long, value_name = "NAME", env = "SHOAL_BMC_USER")]
    bmc_user: Option<String>,
    #[command(flatten)]
    password: Password,
    /// SHA-256 of the BMC's certificate in hex; without it the first one met is believed, and shown
    #[arg(long, value_name = "HEX")]
    tls_fingerprint: Option<String>,
    /// Believe any certificate
    #[arg(long, conflicts_with = "tls_fingerprint")]
    insecure: bool,
    /// The serial number an address should have
    #[arg(long, value_name = "SERIAL")]
    serial: Option<String>,
}

impl TargetArgs {
    fn is_address(&self) -> bool {
        self.direct || self.target == "localhost" || self.target.contains(['.', ':', '/'])
    }

    fn target(&self) -> Result<Target, CliError> {
        let password = match self.password.read()? {
            Some(password) => password,
            None => password_from_variable()?,
        };
        let username = self.bmc_user.clone().ok_or_else(|| {
            CliError::Usage("the BMC's user is missing; give --bmc-user or SHOAL_BMC_USER".to_owned())
        })?;
        Ok(Target {
            address: self.target.clone(),
            username,
            password,
            fingerprint: self.tls_fingerprint.clone(),
            insecure: self.insecure,
            serial: self.serial.clone(),
        })
    }
}

/// Runs a command; the exit code of a doctor tells how bad it is.
pub(super) async fn run(
    command: Command,
    connection: &ConnectionArgs,
    output: &mut Output<'_>,
) -> Result<ExitCode, CliError> {
    match command {
        Command::Probe(probe) => probe.run(connection, output).await,
        Command::Doctor(doctor) => doctor.run(connection, output).await,
    }
}

impl Probe {
    async fn run(self, connection: &ConnectionArgs, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        let (card, capture) = if self.target.is_address() {
            let now = SystemClock.now();
            let probed = direct::probe(&self.target.target()?, self.capture.is_some(), now).await;
            let probed = probed.map_err(troubled)?;
            (probed.card, probed.capture)
        } else {
            let client = Client::new(connection)?;
            let query = [("capture", self.capture.is_some().to_string())];
            let mut card = client.get_slow(&["servers", &self.target.target, "probe"], &query).await?.body;
            let capture = card.as_object_mut().and_then(|card| card.remove("capture"));
            (card, capture)
        };
        if let Some(path) = &self.capture {
            write_capture(path, &card, capture.unwrap_or_else(|| json!({})))?;
            output.note(format!("written to {}; read it before you send it to anybody", path.display()));
        }
        if output.json {
            output.document(&card)?;
        } else {
            show::card(&card, output)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Doctor {
    async fn run(self, connection: &ConnectionArgs, output: &mut Output<'_>) -> Result<ExitCode, CliError> {
        let report = if self.target.is_address() {
            let now = SystemClock.now();
            let found = direct::doctor(&self.target.target()?, self.write, self.listen, now).await;
            let found = found.map_err(troubled)?;
            json!({ "address": self.target.target, "verdict": found.verdict(), "checks": found.checks })
        } else {
            let client = Client::new(connection)?;
            let query = [("write", self.write.to_string())];
            client.post_slow(&["servers", &self.target.target, "doctor"], &query).await?.body
        };
        if output.json {
            output.document(&report)?;
        } else {
            show::checks(&report, output)?;
        }
        let failed = report["verdict"] == json!(Mark::Fail);
        Ok(if failed { Exit::Failed.into() } else { ExitCode::SUCCESS })
    }
}

fn troubled(why: Trouble) -> CliError {
    CliError::failed(format!("{}; {}", why.sentence, why.next_action))
}

/// The resources that were read, with what the card says of the BMC's kind.
fn write_capture(path: &Path, card: &Value, resources: Value) -> Result<(), CliError> {
    let capture = json!({
        "shoal_capture": 1,
        "identity": card["identity"], "profile": card["profile"], "slot_plan": card["slot_plan"],
        "resources": resources,
    });
    std::fs::write(path, format!("{capture:#}\n"))
        .map_err(|why| CliError::failed(format!("cannot write {}: {why}", path.display())))
}
