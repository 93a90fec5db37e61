//! `shoal sim-bmc`: faults, journals and restarts of the simulated servers of a `shoal sim` that runs with `--admin-port`.
//!
//! The other side is [`lab_machines::admin`]. What it returns is printed as JSON, one value per line: faults and journals have no other form.

use std::fs::File;
use std::io::{Read as _, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lab_bmc::Fault;
use lab_machines::http::{api_client, bounded_body};
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

/// How long a simulation may take to respond.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a file with a fault.
const MOST_OF_A_FAULT: u64 = 64 << 10;
/// The most bytes of a response: the journal of a server is bounded by the simulation.
const MOST: usize = 64 << 20;

/// Arguments of `shoal sim-bmc`.
#[derive(Args, Clone, Debug)]
pub struct ControlArgs {
    /// The URL that `shoal sim --admin-port` shows.
    #[arg(
        long,
        value_name = "URL",
        env = "SHOAL_SIM_ADMIN",
        default_value = "http://127.0.0.1:9000",
        global = true
    )]
    pub admin: Url,
    /// What to do.
    #[command(subcommand)]
    pub control: Control,
}

/// What can be done with a simulated server.
#[derive(Clone, Debug, Subcommand)]
pub enum Control {
    /// Show the simulated servers with power, media and numbers of requests
    Show,
    /// Show the faults that are in force
    Faults {
        /// The serial number of a simulated server.
        serial: String,
    },
    /// Add a fault
    Fault {
        /// The serial number of a simulated server.
        serial: String,
        /// The fault as JSON, or a file with it (- is standard input): when, how often, and its effect.
        #[arg(long, value_name = "JSON|FILE")]
        fault: String,
    },
    /// Remove all faults
    Clear {
        /// The serial number of a simulated server.
        serial: String,
    },
    /// Show the requests that the BMC received and the changes that it made
    Journal {
        /// The serial number of a simulated server.
        serial: String,
    },
    /// Restart the BMC
    Restart {
        /// The serial number of a simulated server.
        serial: String,
    },
    /// Give the BMC another certificate
    Certificate {
        /// The serial number of a simulated server.
        serial: String,
    },
}

impl Control {
    /// What was done, in words.
    fn done(&self) -> String {
        match self {
            Self::Fault { serial, .. } => format!("{serial} has the fault"),
            Self::Clear { serial } => format!("{serial} has no fault"),
            Self::Restart { serial } => format!("the BMC of {serial} restarts"),
            Self::Certificate { serial } => format!("the BMC of {serial} has another certificate"),
            Self::Show | Self::Faults { .. } | Self::Journal { .. } => {
                "the simulation returned nothing".to_owned()
            }
        }
    }

    /// Method, path below `/servers` and body of the request.
    fn request(&self) -> anyhow::Result<(Method, Vec<&str>, Option<Fault>)> {
        Ok(match self {
            Self::Show => (Method::GET, vec![], None),
            Self::Faults { serial } => (Method::GET, vec![serial, "faults"], None),
            Self::Fault { serial, fault } => {
                let text = text_of(fault)?;
                let fault =
                    serde_json::from_str(&text).context("the fault is none; lab/README.md has examples")?;
                (Method::POST, vec![serial, "faults"], Some(fault))
            }
            Self::Clear { serial } => (Method::DELETE, vec![serial, "faults"], None),
            Self::Journal { serial } => (Method::GET, vec![serial, "journal"], None),
            Self::Restart { serial } => (Method::POST, vec![serial, "restart"], None),
            Self::Certificate { serial } => (Method::POST, vec![serial, "certificate"], None),
        })
    }
}

/// The JSON of a fault: itself, or the content of a file.
fn text_of(fault: &str) -> anyhow::Result<String> {
    if fault.starts_with('{') {
        return Ok(fault.to_owned());
    }
    let mut text = String::new();
    match fault {
        "-" => std::io::stdin().lock().take(MOST_OF_A_FAULT + 1).read_to_string(&mut text),
        path => File::open(path).and_then(|file| file.take(MOST_OF_A_FAULT + 1).read_to_string(&mut text)),
    }
    .with_context(|| format!("cannot read the fault from {fault}"))?;
    if text.len() as u64 > MOST_OF_A_FAULT {
        bail!("the fault in {fault} is longer than {MOST_OF_A_FAULT} bytes");
    }
    Ok(text)
}

/// Carries out one command, and prints what the simulation returns.
pub(super) async fn run(args: &ControlArgs, json: bool) -> anyhow::Result<()> {
    let (method, path, fault) = args.control.request()?;
    if path.iter().any(|part| matches!(*part, "." | "..")) {
        bail!("{} is no serial number", path.first().unwrap_or(&""));
    }
    let mut place = args.admin.clone();
    let Ok(mut segments) = place.path_segments_mut() else { bail!("--admin {} is no http URL", args.admin) };
    segments.pop_if_empty().push("servers").extend(path.iter().copied());
    drop(segments);
    let client = api_client(None)?;
    let mut request = client.request(method, place).timeout(PATIENCE);
    if let Some(fault) = &fault {
        request = request.json(fault);
    }
    let unreachable = || {
        format!(
            "cannot reach the simulation at {}; start `shoal sim --admin-port 9000` and name its URL by --admin",
            args.admin
        )
    };
    let response = request.send().await.with_context(unreachable)?;
    match response.status() {
        StatusCode::NOT_FOUND => {
            bail!(
                "the simulation has no server {}; `shoal sim-bmc show` shows them",
                path.first().unwrap_or(&"")
            )
        }
        status if !status.is_success() => bail!("the simulation returned {status}"),
        _ => {}
    }
    let body = bounded_body(response, MOST, "read the response of the simulation").await?;
    if body.is_empty() {
        writeln!(std::io::stderr(), "{}", args.control.done())?;
        return Ok(());
    }
    let shown: Value = serde_json::from_slice(&body).context("the response of the simulation is no JSON")?;
    let mut out = std::io::stdout().lock();
    match &shown {
        Value::Array(values) if !json => values.iter().try_for_each(|value| writeln!(out, "{value}"))?,
        value => writeln!(out, "{value}")?,
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use lab_bmc::{FaultEffect, FaultTrigger};
    use lab_machines::admin::FarmAdmin;
    use lab_machines::{Farm, FarmConfig, ServerSpec};

    use super::*;

    #[tokio::test]
    async fn a_fault_is_added_and_removed_by_the_commands_and_an_unknown_server_is_named() {
        let disks = tempfile::tempdir().unwrap();
        let servers = vec![ServerSpec::new("SIM-1")];
        let config =
            FarmConfig::new(servers, "root", "a password of the test".to_owned().into(), disks.path());
        let farm = Farm::start(config).await.unwrap();
        let admin = FarmAdmin::open(&farm, 0).await.unwrap();
        let url: Url = admin.url().parse().unwrap();
        let run = async |control: Control| run(&ControlArgs { admin: url.clone(), control }, false).await;
        let serial = || "SIM-1".to_owned();
        let fault = Fault::once(FaultTrigger::Insert, FaultEffect::Drop);
        let text = serde_json::to_string(&fault).unwrap();
        run(Control::Fault { serial: serial(), fault: text.clone() }).await.unwrap();
        let bmc = farm.server("SIM-1").unwrap().bmc.clone();
        assert_eq!(bmc.faults(), [fault]);
        for control in [
            Control::Show,
            Control::Faults { serial: serial() },
            Control::Journal { serial: serial() },
            Control::Certificate { serial: serial() },
            Control::Clear { serial: serial() },
            Control::Restart { serial: serial() },
        ] {
            run(control).await.unwrap();
        }
        assert!(bmc.faults().is_empty());
        let unknown = run(Control::Journal { serial: "SIM/2?".to_owned() }).await.unwrap_err();
        assert!(unknown.to_string().contains("no server SIM/2?"), "{unknown}");
        let file = disks.path().join("fault.json");
        std::fs::write(&file, &text).unwrap();
        run(Control::Fault { serial: serial(), fault: file.display().to_string() }).await.unwrap();
        assert_eq!(bmc.faults().len(), 1);
        let wrong = run(Control::Fault { serial: serial(), fault: "{}".to_owned() }).await.unwrap_err();
        assert!(wrong.to_string().contains("the fault is none"), "{wrong}");
        farm.shutdown().await;
        drop(admin);
        let away = run(Control::Show).await.unwrap_err();
        assert!(away.to_string().contains("shoal sim --admin-port"), "{away:#}");
    }
}
