//! `shoal selftest`: simulates data centres with faults, one per seed, and checks that no job is lost or done twice.
//!
//! ```text
//!   seeds --> threads, each simulates one world at a time --> violations? --> the command that replays the world
//! ```
//!
//! Every fiftieth world is simulated twice: both runs of a seed must give one log, byte for byte.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::bench;
use crate::simulation::{self, FaultLevel, WorldPlan, WorldReport};

/// Number of worlds without `--seeds`.
const SEEDS: u64 = 100;
/// One of this many worlds is simulated twice.
const REPEAT_EVERY: u64 = 50;
/// Interval of the progress output.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Stack size of a thread: the futures of a world need a large stack in a debug build.
const STACK: usize = 16 << 20;

/// The options of `shoal selftest`.
#[derive(Args, Clone, Debug)]
pub struct SelftestArgs {
    /// How many worlds to simulate
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: Option<u64>,
    /// The seed of the first world; without --seeds only this world is simulated
    #[arg(long)]
    seed: Option<u64>,
    /// Number of servers in each world; by default the seed chooses
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    servers: Option<u32>,
    /// Days with faults in each world; by default some hours
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: Option<u32>,
    /// How often faults occur; by default the seed chooses
    #[arg(long)]
    faults: Option<Faults>,
    /// Only worlds with every kind of job, such as installations of firmware: each fifth seed has one
    #[arg(long)]
    every_kind: bool,
    /// Worlds simulated at the same time; by default the number of processors
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Print the log of each world
    #[arg(long)]
    trace: bool,
    /// Run the benchmark instead: measure a controller on this machine with 10,000 jobs (or --servers) over HTTP
    #[arg(long, conflicts_with_all = ["seeds", "seed", "days", "faults", "every_kind", "threads", "trace"])]
    bench: bool,
    /// Measure installations of firmware only: one set on 2,000 servers (or --servers), 100 at a time
    #[arg(long, requires = "bench", conflicts_with = "finished")]
    firmware: bool,
    /// How many finished jobs the database holds at the end of the benchmark
    #[arg(long, value_name = "N", requires = "bench", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    finished: Option<u32>,
    /// How many steps the measured controller runs at the same time
    #[arg(long, value_name = "N", requires = "bench", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
}

/// How often faults occur.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Faults {
    None,
    Some,
    Many,
    Storm,
}

impl SelftestArgs {
    /// The options of the benchmark, if `--bench` was given.
    pub(super) fn bench_options(&self) -> Option<bench::Options> {
        self.bench.then(|| bench::Options {
            servers: self
                .servers
                .map_or(if self.firmware { 2000 } else { 10_000 }, |servers| servers as usize),
            firmware: self.firmware,
            finished: self.finished.unwrap_or(0) as usize,
            workers: self.workers.unwrap_or(64) as usize,
        })
    }

    fn plan(&self, seed: u64) -> WorldPlan {
        let level = match self.faults {
            Some(Faults::None) => FaultLevel::None,
            Some(Faults::Some) => FaultLevel::Some,
            Some(Faults::Many) => FaultLevel::Many,
            Some(Faults::Storm) => FaultLevel::Storm,
            None => FaultLevel::Seeded,
        };
        let mut plan = WorldPlan::of(seed, level);
        if let Some(servers) = self.servers {
            plan = plan.with_servers(servers as usize);
        }
        if let Some(days) = self.days {
            plan.fault_time = Duration::from_secs(86_400) * days;
        }
        plan
    }

    /// The seed of the world with this index.
    fn seed_of(&self, index: u64) -> u64 {
        let first = self.seed.unwrap_or(0);
        match self.every_kind {
            true => simulation::seed_with_every_kind(first, index),
            false => first.wrapping_add(index),
        }
    }

    /// The command that replays a world.
    fn replay_command(&self, seed: u64) -> String {
        let mut command = format!("shoal selftest --seed {seed}");
        if let Some(servers) = self.servers {
            command += &format!(" --servers {servers}");
        }
        if let Some(days) = self.days {
            command += &format!(" --days {days}");
        }
        if let Some(faults) = self.faults.and_then(|faults| faults.to_possible_value()) {
            command += &format!(" --faults {}", faults.get_name());
        }
        command + " --trace"
    }
}

/// The totals of all worlds.
#[derive(Default)]
struct Totals {
    worlds: u64,
    repeated: u64,
    /// The worlds in which an installation of firmware was accepted.
    with_firmware: u64,
    jobs: usize,
    succeeded: usize,
    calls: u64,
    virtual_time: Duration,
    conditions: BTreeSet<String>,
    failed: Vec<u64>,
}

impl Totals {
    fn add(&mut self, report: &WorldReport) {
        self.worlds += 1;
        self.with_firmware += u64::from(report.installations > 0);
        self.jobs += report.jobs;
        self.succeeded += report.succeeded;
        self.calls += report.calls;
        self.virtual_time += report.virtual_time;
        self.conditions.extend(report.conditions.iter().cloned());
        if !report.violations.is_empty() {
            self.failed.push(report.seed);
        }
    }
}

/// Runs the simulation.
pub(super) fn run(args: &SelftestArgs, json: bool) -> anyhow::Result<bool> {
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.map_or(processors, |threads| threads as usize);
    let threads = threads.min(usize::try_from(count).unwrap_or(usize::MAX));
    let next = AtomicU64::new(0);
    let (began, mut last_progress) = (Instant::now(), Instant::now());
    let mut totals = Totals::default();
    let result = std::thread::scope(|scope| -> anyhow::Result<()> {
        let (send, reports) = mpsc::channel();
        for number in 0..threads {
            let (send, next) = (send.clone(), &next);
            let thread = std::thread::Builder::new().name(format!("world-{number}")).stack_size(STACK);
            thread
                .spawn_scoped(scope, move || run_worlds(args, count, next, &send))
                .context("start a thread for a world")?;
        }
        drop(send);
        for report in reports {
            let (index, report) = report?;
            totals.repeated += u64::from(is_repeated(index, count));
            totals.add(&report);
            print_report(args, &report, json)?;
            if last_progress.elapsed() >= PROGRESS_INTERVAL && !args.trace && !json {
                last_progress = Instant::now();
                writeln!(
                    io::stderr(),
                    "{} of {count} worlds, {} s",
                    totals.worlds,
                    began.elapsed().as_secs()
                )?;
            }
        }
        Ok(())
    });
    result?;
    finish(&totals, began.elapsed(), json)?;
    // Worlds that should have installations and have none prove nothing about them.
    anyhow::ensure!(
        !args.every_kind || totals.with_firmware > 0,
        "no world accepted an installation of firmware"
    );
    Ok(totals.failed.is_empty())
}

/// Whether the world with this index is simulated twice.
fn is_repeated(index: u64, count: u64) -> bool {
    count > 1 && index.is_multiple_of(REPEAT_EVERY)
}

/// Simulates worlds until none are left or the receiver is closed.
fn run_worlds(
    args: &SelftestArgs,
    count: u64,
    next: &AtomicU64,
    reports: &mpsc::Sender<anyhow::Result<(u64, WorldReport)>>,
) {
    let folder = match tempfile::tempdir().context("create a folder for a world") {
        Ok(folder) => folder,
        Err(error) => return drop(reports.send(Err(error))),
    };
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return;
        }
        let plan = args.plan(args.seed_of(index));
        let world = || simulation::run(&plan, folder.path()).map_err(anyhow::Error::from);
        let mut report = world();
        if is_repeated(index, count)
            && let Ok(first_run) = &mut report
        {
            match world() {
                Ok(second) if second.digest == first_run.digest => {}
                Ok(_) => first_run.violations.push("the second run of the seed gave another log".to_owned()),
                Err(error) => report = Err(error),
            }
        }
        if reports.send(report.map(|report| (index, report))).is_err() {
            return;
        }
    }
}

/// Prints the log or the violations of one world.
fn print_report(args: &SelftestArgs, report: &WorldReport, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if json {
        if !report.violations.is_empty() {
            let line = json!({ "seed": report.seed, "violations": report.violations, "replay": args.replay_command(report.seed) });
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    if args.trace {
        write!(out, "{}", report.log)?;
    }
    if !report.violations.is_empty() {
        writeln!(out, "seed {} broke a rule:", report.seed)?;
        for violation in &report.violations {
            writeln!(out, "  {violation}")?;
        }
        writeln!(out, "replay:  {}", args.replay_command(report.seed))?;
    }
    Ok(())
}

fn finish(totals: &Totals, took: Duration, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if json {
        let line = json!({
            "worlds": totals.worlds, "with_firmware": totals.with_firmware, "failed": totals.failed, "jobs": totals.jobs, "succeeded": totals.succeeded,
            "calls": totals.calls, "virtual_seconds": totals.virtual_time.as_secs(), "seconds": took.as_secs_f64(),
            "conditions": totals.conditions,
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{} worlds ({} run twice, {} with installations of firmware), {} jobs ({} succeeded), {} calls, {} virtual hours in {:.1} s",
        totals.worlds,
        totals.repeated,
        totals.with_firmware,
        totals.jobs,
        totals.succeeded,
        totals.calls,
        totals.virtual_time.as_secs() / 3600,
        took.as_secs_f64()
    )?;
    writeln!(out, "{} different run conditions were explained", totals.conditions.len())?;
    match totals.failed.len() {
        0 => writeln!(out, "no rule was broken")?,
        failed => writeln!(out, "{failed} worlds broke a rule")?,
    }
    Ok(())
}
