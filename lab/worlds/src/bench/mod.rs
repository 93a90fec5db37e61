//! `shoal selftest --bench`: measures a controller on this machine, over HTTP, with every acknowledgement durable.
//!
//! ```text
//!  this process: clients ---API, reports, streams---> controller (a process) ---Redfish---> BMCs (a process, idle hosts)
//!
//!  disk -> register -> queue at 500/s -> provision -> reads, streams, kill, reports -> end -> busy
//!       -> cost -> batches
//!
//!  --firmware: register -> one set on 2,000 servers, 100 at a time ([`firmware`])
//! ```
//!
//! The hosts do nothing, because only the controller is measured: this process sends their reports. No time fails the
//! benchmark: every line shows the result and the target (docs/testing.md). Lines with latencies also show the influence
//! of stalls of the machine ([`stalls`]). Figures that another load of the machine does not change are judged ([`bound`]).

mod bound;
mod busy;
mod client;
mod firmware;
mod processes;
mod stages;
mod stalls;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use crate::sim::{random_password, write_maintenance_iso};
use crate::simulation;
use client::Latencies;
use processes::{BenchHome, SimProcess};
use stages::BenchRun;
use stalls::Stalls;

/// Number of concurrent callers that commit.
const CALLERS: u32 = 64;

/// The options of the benchmark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Number of servers, and of jobs.
    pub(super) servers: usize,
    /// Number of finished jobs in the database at the end.
    pub(super) finished: usize,
    /// Number of workers of the controller.
    pub(super) workers: usize,
    /// Whether only installations of firmware are measured.
    pub(super) firmware: bool,
}

/// Runs the benchmark and prints each figure as soon as it is measured.
pub(super) async fn run(options: Options, json: bool) -> anyhow::Result<()> {
    let _logs = telemetry::init("warn", settings::LogFormat::Text)?;
    let folder = tempfile::tempdir().context("create a temporary folder")?;
    let figures = Figures { json, stalls: Stalls::watch() };
    let iso = write_maintenance_iso(&folder.path().join("maintenance.iso"))?;
    if options.firmware {
        return firmware::run(options, figures, folder.path(), &iso).await;
    }
    disk(&figures, folder.path()).await?;

    let password = random_password()?;
    let mut home = BenchHome::new(folder.path(), options.workers, random_password()?)?;
    let controller = home.start(&iso).await?;
    figures.show("start until the first response", &milliseconds(controller.first_response), "200 ms")?;
    let sim = SimProcess::start(options.servers + stages::JOBS_AT_KILL, folder.path(), &password)?;
    BenchRun { options, figures, folder: folder.path(), iso: &iso, home, controller, sim, password }
        .all()
        .await
}

/// Prints the figures.
struct Figures {
    json: bool,
    stalls: Stalls,
}

impl Figures {
    /// Prints a figure and its target.
    fn show(&self, what: &str, found: &str, target: &str) -> anyhow::Result<()> {
        self.line(what, found, target, "")
    }

    /// Prints a figure with its bound, and their ratio.
    fn judge(&self, bound: &bound::Bound) -> anyhow::Result<()> {
        self.line(bound.what, &bound.found(), &bound.target(), &bound.verdict())
    }

    /// Prints latencies, their target, and the influence of stalls of the machine.
    fn waits(&self, what: &str, waits: &mut Latencies, target: &str) -> anyhow::Result<()> {
        self.line(what, &waits.shown(), target, &waits.stall_note(&self.stalls))
    }

    fn line(&self, what: &str, found: &str, target: &str, note: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        match self.json {
            true => writeln!(
                out,
                "{}",
                json!({ "figure": what, "result": found, "target": target, "note": note })
            )?,
            false => writeln!(out, "{}", format!("{what:<48} {found:<58} {target:<15} {note}").trim_end())?,
        }
        Ok(out.flush()?)
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Measures the smallest durable write on the disk, and the commit rate of the store in relation to it.
async fn disk(figures: &Figures, folder: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(folder.join("sync-test"))?;
    let mut waits = Latencies::default();
    let (began, mut done) = (Instant::now(), 0_u32);
    while began.elapsed() < Duration::from_millis(500) {
        let one = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        waits.add(one, one.elapsed());
        done += 1;
    }
    let disk_rate = f64::from(done) / began.elapsed().as_secs_f64();
    figures.waits("this disk, 4 KiB appended and synced", &mut waits, "the lower bound")?;
    let one = simulation::commits(folder, 1).await?;
    let many = simulation::commits(folder, CALLERS).await?;
    let found =
        format!("1 caller {one:.0}/s, {:.2} of the disk; {CALLERS} callers {many:.0}/s", one / disk_rate);
    figures.show("durable commits of the store", &found, "")?;
    figures.show(
        &format!("commits of {CALLERS} callers, sharing syncs"),
        &format!("{:.1} times the rate of one caller", many / one),
        "12 times",
    )
}
