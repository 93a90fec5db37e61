//! `shoal selftest`: simulated data centres in which everything goes wrong, one per seed; nothing may be lost or done twice.
//!
//! ```text
//!   seeds --> threads, one world at a time each --> violations? --> the command that plays that world again
//! ```
//!
//! Every fiftieth world is played twice: the same seed must tell the same story, byte for byte.

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

/// Worlds without `--seeds`.
const SEEDS: u64 = 100;
/// Every so many worlds one is played twice.
const TWICE: u64 = 50;
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);
/// Stack of a thread: a world's futures are deep in a debug build.
const STACK: usize = 16 << 20;

/// The options of `shoal selftest`.
#[derive(Args, Clone, Debug)]
pub struct SelftestArgs {
    /// How many worlds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: Option<u64>,
    /// The seed of the first world; alone, of the only one
    #[arg(long)]
    seed: Option<u64>,
    /// Servers in each world, in place of what the seed says
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    servers: Option<u32>,
    /// Days of trouble in each world, in place of some hours
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: Option<u32>,
    /// How much goes wrong, in place of what the seed says
    #[arg(long)]
    faults: Option<Faults>,
    /// Worlds at a time; as many as there are processors without it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Print everything that happens in each world
    #[arg(long)]
    trace: bool,
    /// Measure a controller on this machine instead: 10,000 jobs over real HTTP, or as many as there are --servers
    #[arg(long, conflicts_with_all = ["seeds", "seed", "days", "faults", "threads", "trace"])]
    bench: bool,
    /// How many finished jobs the database holds at the end of the measures
    #[arg(long, value_name = "N", requires = "bench", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    finished: Option<u32>,
    /// How many steps the measured controller works on at once
    #[arg(long, value_name = "N", requires = "bench", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
}

/// How much goes wrong.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Faults {
    None,
    Some,
    Many,
    Storm,
}

impl SelftestArgs {
    /// What is to be measured, if that was asked for.
    pub(super) fn measures(&self) -> Option<bench::Options> {
        self.bench.then(|| bench::Options {
            servers: self.servers.unwrap_or(10_000) as usize,
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

    /// The command that plays a world again.
    fn again(&self, seed: u64) -> String {
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

/// What all worlds came to.
#[derive(Default)]
struct Sum {
    worlds: u64,
    twice: u64,
    jobs: usize,
    succeeded: usize,
    calls: u64,
    lasted: Duration,
    conditions: BTreeSet<String>,
    failed: Vec<u64>,
}

impl Sum {
    fn add(&mut self, report: &WorldReport) {
        self.worlds += 1;
        self.jobs += report.jobs;
        self.succeeded += report.succeeded;
        self.calls += report.calls;
        self.lasted += report.lasted;
        self.conditions.extend(report.conditions.iter().cloned());
        if !report.violations.is_empty() {
            self.failed.push(report.seed);
        }
    }
}

/// Runs the simulation.
pub(super) fn run(args: &SelftestArgs, json: bool) -> anyhow::Result<bool> {
    let first = args.seed.unwrap_or(0);
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.map_or(processors, |threads| threads as usize);
    let threads = threads.min(usize::try_from(count).unwrap_or(usize::MAX));
    let next = AtomicU64::new(0);
    let (began, mut told) = (Instant::now(), Instant::now());
    let mut sum = Sum::default();
    let played = std::thread::scope(|scope| -> anyhow::Result<()> {
        let (send, reports) = mpsc::channel();
        for number in 0..threads {
            let (send, next) = (send.clone(), &next);
            let thread = std::thread::Builder::new().name(format!("world-{number}")).stack_size(STACK);
            thread
                .spawn_scoped(scope, move || play(args, first, count, next, &send))
                .context("start a thread for a world")?;
        }
        drop(send);
        for report in reports {
            let report = report?;
            sum.twice += u64::from(twice(report.seed - first, count));
            sum.add(&report);
            tell(args, &report, json)?;
            if told.elapsed() >= TELL && !args.trace && !json {
                told = Instant::now();
                writeln!(io::stderr(), "{} of {count} worlds, {} s", sum.worlds, began.elapsed().as_secs())?;
            }
        }
        Ok(())
    });
    played?;
    finish(&sum, began.elapsed(), json)?;
    Ok(sum.failed.is_empty())
}

/// Whether the world of this place is played twice.
fn twice(place: u64, count: u64) -> bool {
    count > 1 && place.is_multiple_of(TWICE)
}

/// Plays worlds until there are no more, or nobody listens.
fn play(
    args: &SelftestArgs,
    first: u64,
    count: u64,
    next: &AtomicU64,
    reports: &mpsc::Sender<anyhow::Result<WorldReport>>,
) {
    let folder = match tempfile::tempdir().context("make a folder for a world") {
        Ok(folder) => folder,
        Err(error) => return drop(reports.send(Err(error))),
    };
    loop {
        let place = next.fetch_add(1, Ordering::Relaxed);
        if place >= count {
            return;
        }
        let plan = args.plan(first.wrapping_add(place));
        let world = || simulation::run(&plan, folder.path()).map_err(anyhow::Error::from);
        let mut report = world();
        if twice(place, count)
            && let Ok(once) = &mut report
        {
            match world() {
                Ok(again) if again.digest == once.digest => {}
                Ok(_) => once.violations.push("the same seed told another story the second time".to_owned()),
                Err(error) => report = Err(error),
            }
        }
        if reports.send(report).is_err() {
            return;
        }
    }
}

/// Tells of one world, if there is anything to tell.
fn tell(args: &SelftestArgs, report: &WorldReport, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if json {
        if !report.violations.is_empty() {
            let line = json!({ "seed": report.seed, "violations": report.violations, "replay": args.again(report.seed) });
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    if args.trace {
        write!(out, "{}", report.log)?;
    }
    if !report.violations.is_empty() {
        writeln!(out, "seed {} breaks a rule:", report.seed)?;
        for violation in &report.violations {
            writeln!(out, "  {violation}")?;
        }
        writeln!(out, "replay:  {}", args.again(report.seed))?;
    }
    Ok(())
}

fn finish(sum: &Sum, took: Duration, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if json {
        let line = json!({
            "worlds": sum.worlds, "failed": sum.failed, "jobs": sum.jobs, "succeeded": sum.succeeded,
            "calls": sum.calls, "virtual_seconds": sum.lasted.as_secs(), "seconds": took.as_secs_f64(),
            "conditions": sum.conditions,
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{} worlds ({} of them twice), {} jobs ({} succeeded), {} effects and answers, {} virtual hours in {:.1} s",
        sum.worlds,
        sum.twice,
        sum.jobs,
        sum.succeeded,
        sum.calls,
        sum.lasted.as_secs() / 3600,
        took.as_secs_f64()
    )?;
    writeln!(out, "{} kinds of states explained themselves", sum.conditions.len())?;
    match sum.failed.len() {
        0 => writeln!(out, "no rule was broken")?,
        failed => writeln!(out, "{failed} worlds broke a rule")?,
    }
    Ok(())
}
