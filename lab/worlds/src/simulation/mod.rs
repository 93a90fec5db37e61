//! The seeded simulation: the real engine, workflow, API, BMC client and simulated BMCs, on virtual time in one thread.
//!
//! ```text
//!              seed
//!                | dice
//!   +------------+-----------------------------------------------------------------------------+
//!   |  people --orders, verbs--> controller --Redfish--> BMCs --power--> machines              |
//!   |                            |  ^  media <--ranges--- BMCs, machines      |                |
//!   |   mischief: faults,        |  +----------- reports: lost, doubled, late +                |
//!   |   crashes, jumps           |--events--> receiver of an outgoing webhook                  |
//!   |   overseer: drains         +-- database in memory, every transaction audited             |
//!   +------------------------------------------------------------------------------------------+
//!                | judge: rules all the time, promises at the end
//!             WorldReport { violations, log, digest }
//! ```
//!
//! Nothing here is a copy of what it tests: a controller is put together by [`controller::app::Controller`] as for `serve`, only its
//! surroundings (clock, chance, network, database in place) are the world's.
//!
//! [`commits`] stands beside it and measures the store on a real disk.
//!
//! Invariants of the simulation
//! - One seed, one story: the same seed gives the same log, byte for byte. No thread, no socket, no wall clock; what the
//!   file system does (the library of maintenance images) has no part in any order.
//! - A crash loses everything but what was committed and what the BMCs were told.
//! - After the trouble every job ends within its deadlines; what no job could clean up is known on its server.

mod boundary;
mod checker;
mod clock;
mod commits;
mod drain_actions;
mod fault_injector;
mod machine;
mod network;
mod operator;
mod receiver;
mod rng;
mod supervisor;
mod world;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sha2::{Digest, Sha256};

pub use self::commits::commits;
use self::rng::WorldRng;
use self::world::World;
use engine::model::{JsonText, Outcome, error_chain};
use engine::store::{EventFilter, StoreError};

/// How much goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultLevel {
    /// Nothing.
    None,
    /// Something every half hour.
    Some,
    /// Something every few minutes.
    Many,
    /// Something every minute or so, and most operators change their minds, often while a BMC is being changed.
    Storm,
    /// What the seed says.
    Seeded,
}

/// What a world is to be.
#[derive(Clone, Debug)]
pub struct WorldPlan {
    /// All chance comes from it.
    pub seed: u64,
    /// Servers.
    pub servers: usize,
    /// Jobs per server at most.
    pub jobs: u64,
    /// How long there is trouble and jobs are ordered.
    pub fault_time: Duration,
    /// The mean pause between two troubles; none without.
    pub fault_interval: Option<Duration>,
    /// Workers of a controller.
    pub workers: usize,
    /// How many of a thousand jobs somebody meddles with.
    pub operator_actions: u64,
    /// How many of a thousand meddlers wait for the moment in which a BMC is being changed.
    pub actions_during_bmc_change: u64,
    /// How many of a thousand machines never report.
    pub silent: u64,
    /// How many of a thousand installations fail.
    pub failing: u64,
    /// How many of a thousand orders are for an installer that cannot report.
    pub esxi: u64,
    /// Somebody is told of all events, by an outgoing webhook.
    pub webhook: bool,
}

impl WorldPlan {
    /// The plan that belongs to a seed.
    pub fn of(seed: u64, level: FaultLevel) -> Self {
        let rng = WorldRng::new(seed, "plan");
        let level = match (level, rng.below(10)) {
            (FaultLevel::Seeded, 0) => FaultLevel::None,
            (FaultLevel::Seeded, 1..=5) => FaultLevel::Some,
            (FaultLevel::Seeded, _) => FaultLevel::Many,
            (level, _) => level,
        };
        let servers = usize::try_from(1 + rng.below(5)).unwrap_or(1);
        let (jobs, fault_time) = (1 + rng.below(3), rng.seconds(3600, 4 * 3600));
        Self {
            seed,
            servers,
            jobs,
            fault_time,
            fault_interval: match level {
                FaultLevel::None => None,
                FaultLevel::Some => Some(Duration::from_secs(1800)),
                FaultLevel::Many | FaultLevel::Seeded => Some(Duration::from_secs(300)),
                FaultLevel::Storm => Some(Duration::from_secs(80)),
            },
            workers: usize::try_from(1 + rng.below(6)).unwrap_or(1),
            operator_actions: if level == FaultLevel::Storm { 700 } else { 300 },
            actions_during_bmc_change: if level == FaultLevel::Storm { 500 } else { 0 },
            silent: 40,
            failing: 100,
            esxi: 120,
            webhook: rng.below(6) == 0,
        }
    }

    /// The same with so many servers, and workers for them.
    #[must_use]
    pub fn with_servers(self, servers: usize) -> Self {
        Self { servers, workers: self.workers.max(servers / 8).min(64), ..self }
    }

    /// How long everything may take once all is calm: the orders that are still to come, then a job's time and its cleanup,
    /// twice.
    fn patience(&self) -> Duration {
        self.fault_time + Duration::from_secs(2 * (3 * 3600 + 600) + 2 * 3600)
    }
}

/// How a world was.
#[derive(Clone, Debug, Default)]
pub struct WorldReport {
    /// Its seed.
    pub seed: u64,
    /// Jobs that were acknowledged.
    pub jobs: usize,
    /// How many of them succeeded.
    pub succeeded: usize,
    /// Transactions, BMC requests and answers.
    pub calls: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// The conditions that runs were in and that explained themselves.
    pub conditions: BTreeSet<String>,
    /// What must not happen and did.
    pub violations: Vec<String>,
    /// SHA-256 of the log.
    pub digest: String,
    /// Everything that happened.
    pub log: String,
}

/// Why there was no world.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The files it needs.
    #[error("prepare the folder of the simulation at {folder}")]
    Folder {
        /// Where.
        folder: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The maintenance image.
    #[error("make the maintenance image of the simulation")]
    Image(#[from] lab_machines::images::ImageError),
    /// The database.
    #[error("use the database of the simulation")]
    Store(#[from] StoreError),
}

/// Lets a world happen. `folder` holds files of no interest and may be used again by the next one, not by two at once.
///
/// # Errors
/// When there is no place for it. What goes wrong inside is in the report.
pub fn run(plan: &WorldPlan, folder: &Path) -> Result<WorldReport, WorldError> {
    Ok(run_world(plan, folder)?.0)
}

/// The same, with what shows that nothing of the world is left.
fn run_world(plan: &WorldPlan, folder: &Path) -> Result<(WorldReport, Weak<World>), WorldError> {
    let failed = |source| WorldError::Folder { folder: folder.display().to_string(), source };
    let image = folder.join("maintenance.iso");
    if !image.exists() {
        let mut file = std::fs::File::create(&image).map_err(failed)?;
        lab_machines::images::maintenance_iso()?
            .write_to(&mut file)
            .map_err(|why| failed(std::io::Error::other(error_chain(&why).to_string())))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let world = World::new(plan.clone(), folder.to_owned())?;
        world::run(&world).await?;
        Ok((report(&world).await?, Arc::downgrade(&world)))
    })
}

async fn report(world: &World) -> Result<WorldReport, WorldError> {
    let mut log = String::new();
    for note in world.notes() {
        // Writing to a string does not fail.
        let _ = writeln!(log, "{note}");
    }
    let mut after = 0;
    loop {
        let page = world.observer().events(EventFilter { run: None, after, limit: 1000 }).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in &page {
            let run = event.run.map_or_else(String::new, |run| run.to_string());
            let step = event.step.as_deref().unwrap_or("");
            let data = event.data.as_ref().map_or("", JsonText::as_str);
            let _ = writeln!(
                log,
                "{} {} {run} {} {step} {} {}: {} {data}",
                event.seq,
                event.time,
                event.server.as_ref().map_or("", |serial| serial.as_str()),
                event.kind,
                event.actor,
                event.message
            );
        }
    }
    let jobs = world.checker.jobs();
    let mut succeeded = 0;
    for id in &jobs {
        let job = world.observer().job(*id).await?;
        succeeded += usize::from(job.is_some_and(|job| job.run.outcome == Some(Outcome::Succeeded)));
    }
    Ok(WorldReport {
        seed: world.plan.seed,
        jobs: jobs.len(),
        succeeded,
        calls: world.calls(),
        lasted: world.clock.passed(),
        conditions: world.checker.conditions(),
        violations: world.checker.violations(),
        digest: hex::encode(Sha256::digest(log.as_bytes())),
        log,
    })
}
