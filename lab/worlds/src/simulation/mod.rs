//! The seeded simulation: the real engine, workflow, API and BMC client with simulated BMCs, on virtual time in one thread.
//!
//! ```text
//!              seed
//!                | rng
//!   +------------+-----------------------------------------------------------------------------+
//!   |  operators --jobs, verbs--> controller --Redfish--> BMCs --power--> machines             |
//!   |                            |  ^  media <--ranges--- BMCs, machines      |                |
//!   |   fault_injector: faults,  |  +----------- reports: lost, repeated, late                 |
//!   |   crashes, clock jumps     |--events--> receiver of an outgoing webhook                  |
//!   |   drain_actions: drains    +-- database in memory, every transaction audited             |
//!   +------------------------------------------------------------------------------------------+
//!                | checker: rules after every change, promises at the end
//!             WorldReport { violations, log, digest }
//! ```
//!
//! The simulation copies no code of the controller: [`controller::app::Controller`] assembles it as for `serve`. Only the
//! environment (clock, ids, network, in-memory database) belongs to the world.
//!
//! [`commits`] is separate: it measures the store on a real disk.
//!
//! Invariants of the simulation
//! - One seed always gives one log, byte for byte. There is no thread, no socket and no wall clock. The file system (the
//!   library of maintenance images) does not influence the order of events.
//! - A crash loses everything except committed transactions and requests that a BMC received.
//! - After the faults end, every job ends within its deadlines. Cleanup that no job could do is recorded on its server.

mod boundary;
mod checker;
mod clock;
mod commits;
mod conditions;
mod drain_actions;
mod fault_injector;
mod firmware_files;
mod firmware_shelf;
mod installations;
mod life;
mod machine;
mod network;
mod operator;
mod orders;
mod received;
mod receiver;
mod rescues;
mod rng;
mod run_ends;
mod settings;
mod state;
mod supervisor;
mod watched;
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
use model::{JsonText, Outcome, error_chain};
use store::{EventFilter, StoreError};

/// The rate of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultLevel {
    /// No faults.
    None,
    /// One fault every half hour.
    Some,
    /// One fault every few minutes.
    Many,
    /// About one fault every minute. Most jobs are cancelled or held, often while a BMC is being changed.
    Storm,
    /// The seed chooses the level.
    Seeded,
}

/// The parameters of a world.
#[derive(Clone, Debug)]
pub struct WorldPlan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of servers.
    pub servers: usize,
    /// Maximum number of jobs per server.
    pub jobs: u64,
    /// The time in which faults occur and jobs are created.
    pub fault_time: Duration,
    /// The mean interval between two faults. `None` means no faults.
    pub fault_interval: Option<Duration>,
    /// Number of workers of a controller.
    pub workers: usize,
    /// The number of a thousand jobs that an operator holds or cancels.
    pub operator_actions: u64,
    /// The number of a thousand operator actions that wait until a BMC is being changed.
    pub actions_during_bmc_change: u64,
    /// The number of a thousand installations that hang without a report.
    pub silent: u64,
    /// The number of a thousand installations that fail.
    pub failing: u64,
    /// The number of a thousand jobs that use an installer that cannot report (ESXi).
    pub esxi: u64,
    /// The number of conditions that are requested for a server besides its jobs: power cycles, restarts of the BMC, inventories.
    pub conditions: u64,
    /// The number of installations of firmware that are ordered for each server.
    pub installations: u64,
    /// The number of changes of BIOS settings that are ordered for each server.
    pub settings: u64,
    /// The number of sessions of the rescue system that are ordered for each server.
    pub rescues: u64,
    /// Whether a receiver subscribes to all events with an outgoing webhook.
    pub webhook: bool,
}

impl WorldPlan {
    /// Creates the plan that the seed determines.
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
            // The worlds of recorded seeds are without conditions: they must stay as they were when they broke a rule.
            conditions: if matches!(seed % 7, 1 | 6) || has_all(seed) { 3 } else { 0 },
            installations: if has_all(seed) { 2 } else { 0 },
            settings: if has_all(seed) { 2 } else { 0 },
            rescues: if has_all(seed) { 1 } else { 0 },
            webhook: rng.below(6) == 0,
        }
    }

    /// Returns the plan with another number of servers and enough workers for them.
    #[must_use]
    pub fn with_servers(self, servers: usize) -> Self {
        Self { servers, workers: self.workers.max(servers / 8).min(64), ..self }
    }

    /// The maximum time after the faults have ended: the jobs that are not yet created, then twice the time of a job and its
    /// cleanup.
    fn time_limit(&self) -> Duration {
        // An installation of firmware ends by its deadline, then it lets its last update finish. A change of settings waits as long
        // for a restart of its host.
        let long = self.installations > 0 || self.settings > 0;
        let long = Duration::from_secs(if long { 2 * 9 * 3600 } else { 0 });
        self.fault_time + Duration::from_secs(2 * (3 * 3600 + 600) + 2 * 3600) + long
    }
}

/// Whether the world of a seed has every kind of job. The worlds of recorded seeds do not: they must stay as they were.
fn has_all(seed: u64) -> bool {
    seed % 5 == 4
}

/// The seed of the world with this index among those from `first` on that have every kind of job.
pub fn seed_with_every_kind(first: u64, index: u64) -> u64 {
    let to_next = (0..5).find(|to_next| has_all(first.wrapping_add(*to_next))).unwrap_or(0);
    first.wrapping_add(to_next).wrapping_add(index.wrapping_mul(5))
}

/// The result of one world.
#[derive(Clone, Debug, Default)]
pub struct WorldReport {
    /// The seed of the world.
    pub seed: u64,
    /// Number of acknowledged jobs.
    pub jobs: usize,
    /// Number of jobs that succeeded.
    pub succeeded: usize,
    /// Number of accepted installations of firmware.
    pub installations: u64,
    /// Number of transactions, BMC requests and responses of all controllers.
    pub calls: u64,
    /// The virtual time that passed.
    pub virtual_time: Duration,
    /// The conditions of runs that occurred and were explained.
    pub conditions: BTreeSet<String>,
    /// The rules that were broken.
    pub violations: Vec<String>,
    /// SHA-256 of the log.
    pub digest: String,
    /// The log of the world.
    pub log: String,
}

/// A world could not be simulated.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A file could not be created.
    #[error("prepare the folder of the simulation at {folder}")]
    Folder {
        /// The folder.
        folder: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The maintenance image could not be generated.
    #[error("generate the maintenance image of the simulation")]
    Image(#[from] lab_machines::images::ImageError),
    /// The in-memory database failed.
    #[error("use the database of the simulation")]
    Store(#[from] StoreError),
}

/// Simulates a world. `folder` holds temporary files. Worlds may use it one after another, but not at the same time.
///
/// # Errors
/// Returns an error if files or database cannot be prepared. Violations inside the world are in the report.
pub fn run(plan: &WorldPlan, folder: &Path) -> Result<WorldReport, WorldError> {
    Ok(run_world(plan, folder)?.0)
}

/// Simulates a world. The weak reference shows whether the world was dropped.
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
        let world = life::create(plan.clone(), folder.to_owned())?;
        life::run(&world).await?;
        Ok((report(&world).await?, Arc::downgrade(&world)))
    })
}

async fn report(world: &World) -> Result<WorldReport, WorldError> {
    let mut log = String::new();
    for note in world.notes() {
        // Writing to a string cannot fail.
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
        installations: world.installations(),
        calls: world.calls(),
        virtual_time: world.clock.passed(),
        conditions: world.checker.conditions(),
        violations: world.checker.violations(),
        digest: hex::encode(Sha256::digest(log.as_bytes())),
        log,
    })
}
