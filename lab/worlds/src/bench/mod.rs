//! `shoal selftest --bench`: what a controller holds on this machine, over real HTTP, with every acknowledgement durable.
//!
//! ```text
//!  this process: clients ---API, webhooks, streams---> controller (a process) ---Redfish---> BMCs (a process, idle hosts)
//!
//!  the disk -> register -> queue at 500/s -> to the report -> reads, streams, killed, reports -> end -> batches -> cost again
//! ```
//!
//! Hosts do nothing, since the controller is measured and not they: this process sends their reports. Nothing is judged;
//! every line shows what is aimed at beside what was found (DESIGN section 14), and waiting times also what the machine's own
//! stills made of them ([`stalls`]).

mod client;
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
use controller::telemetry;
use processes::{Fleet, Place};
use stages::Run;
use stalls::Stalls;

/// Callers that commit at once.
const CALLERS: u32 = 64;

/// What a measurement is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Servers, and jobs.
    pub(super) servers: usize,
    /// How many finished jobs the database holds at the end of the curve.
    pub(super) finished: usize,
    /// Steps at work at once.
    pub(super) workers: usize,
}

/// Measures, and prints a line for every figure as soon as it is known.
pub(super) async fn run(options: Options, json: bool) -> anyhow::Result<()> {
    telemetry::init("warn", controller::config::LogFormat::Text)?;
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let figures = Figures { json, stalls: Stalls::watch() };
    let iso = write_maintenance_iso(&folder.path().join("maintenance.iso"))?;
    disk(&figures, folder.path()).await?;

    let password = random_password()?;
    let mut place = Place::new(folder.path(), options.workers, random_password()?)?;
    let controller = place.start(&iso).await?;
    figures.show("start to the first answer", &milliseconds(controller.first_answer), "200 ms")?;
    let fleet = Fleet::start(options.servers + stages::KILLED, folder.path(), &password)?;
    Run { options, figures, folder: folder.path(), iso: &iso, place, controller, fleet, password }.all().await
}

/// Where figures go.
struct Figures {
    json: bool,
    stalls: Stalls,
}

impl Figures {
    /// One figure, and what is aimed at.
    fn show(&self, what: &str, found: &str, aim: &str) -> anyhow::Result<()> {
        self.line(what, found, aim, "")
    }

    /// Waiting times, and what is aimed at; and whether the machine itself made anybody wait.
    fn waits(&self, what: &str, waits: &mut Latencies, aim: &str) -> anyhow::Result<()> {
        self.line(what, &waits.shown(), aim, &waits.beside(&self.stalls))
    }

    fn line(&self, what: &str, found: &str, aim: &str, beside: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        match self.json {
            true => {
                writeln!(out, "{}", json!({ "what": what, "found": found, "aim": aim, "beside": beside }))?
            }
            false => writeln!(out, "{}", format!("{what:<48} {found:<58} {aim:<15} {beside}").trim_end())?,
        }
        Ok(out.flush()?)
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// What the disk takes for the least that can be made durable, and how far the store gets beside that.
async fn disk(figures: &Figures, folder: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(folder.join("floor"))?;
    let mut waits = Latencies::default();
    let (began, mut done) = (Instant::now(), 0_u32);
    while began.elapsed() < Duration::from_millis(500) {
        let one = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        waits.add(one, one.elapsed());
        done += 1;
    }
    let bare = f64::from(done) / began.elapsed().as_secs_f64();
    figures.waits("this disk, 4 KiB appended and synced", &mut waits, "the floor")?;
    let one = simulation::commits(folder, 1).await?;
    let many = simulation::commits(folder, CALLERS).await?;
    let found = format!("1 caller {one:.0}/s, {:.2} of bare; {CALLERS} callers {many:.0}/s", one / bare);
    figures.show("durable commits of the store", &found, "")?;
    figures.show(
        &format!("a sync shared by {CALLERS} callers"),
        &format!("{:.1} times one caller", many / one),
        "12 times",
    )
}
