//! The life of a world: simulated BMCs, machines, operators and one controller after another, on virtual time in one thread.
//!
//! ```text
//!   fault time                                         quiet time                    checks
//!   jobs, faults, crashes, jumps, lost reports         no faults, one controller     every rule, every promise
//!   |--------------- plan.fault_time ------------------|------- until all jobs end --|
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{
    AlreadyThere, EjectEmpty, Graceful, Host, IfMatchRule, MediaReader, SimBmc, SimBmcConfig, SlotConfig,
    VENDORS,
};

use super::machine::WorldMachines;
use super::network::WorldMedia;
use super::operator::{BMC_PASSWORD, BMC_USER};
use super::rng::WorldRng;
use super::state::{WorldState, start};
use super::world::World;
use super::{
    WorldPlan, conditions, drain_actions, firmware_files, installations, operator, rescues, settings,
    supervisor,
};
use model::{PROVISION, RunId, Serial, Time};
use store::{EventFilter, StoreError};
use upkeep::{BIOS_APPLY, FIRMWARE_INSTALL};

/// The random stream that chooses the BMCs. It never changes: recorded seeds replay their worlds with it.
const BMC_STREAM: u64 = 0x88dd_84bf_a885_a340;

/// The random stream that chooses the times of updates.
const UPDATE_STREAM: u64 = 0x61d3_28b5_f4e7_0c9a;

/// Creates a world with its BMCs.
pub(super) fn create(plan: WorldPlan, folder: PathBuf) -> Result<Arc<World>, StoreError> {
    let world = Arc::new(World::new(WorldState::new(plan, folder)?));
    let host: Arc<dyn Host> = Arc::new(WorldMachines(Arc::downgrade(&world)));
    let media: Arc<dyn MediaReader> = Arc::new(WorldMedia(Arc::downgrade(&world)));
    let rng = WorldRng::keyed(world.plan.seed, BMC_STREAM);
    let updates = WorldRng::keyed(world.plan.seed, UPDATE_STREAM);
    let settings = WorldRng::keyed(world.plan.seed, settings::BIOS);
    let bmcs = (0..world.plan.servers)
        .filter_map(|number| {
            let serial: Serial = format!("SIM-{number:05}").parse().ok()?;
            let mut config = bmc_config(&serial, &rng, start());
            if world.plan.installations > 0 {
                add_update_service(&mut config, &updates);
            }
            if world.plan.settings > 0 {
                settings::add_bios(&mut config, &settings);
            }
            Some((serial, SimBmc::new(config, Arc::clone(&host), Arc::clone(&media))))
        })
        .collect();
    world.set_bmcs(bmcs);
    Ok(world)
}

/// Creates the configuration of a random BMC.
fn bmc_config(serial: &Serial, rng: &WorldRng, start: Time) -> SimBmcConfig {
    let mut config = SimBmcConfig::new(serial.as_str(), BMC_USER, BMC_PASSWORD);
    match rng.below(4) {
        0 => config = config.with_single_cd(),
        1 => config = config.with_cd_and_usb(),
        2 => config.slots = vec![SlotConfig::cd("1"), SlotConfig::cd("2")],
        _ => {}
    }
    config.started_at = start.timestamp();
    config.starts_on = rng.below(2) == 0;
    config.power.post_time = rng.seconds(0, 90);
    config.power.off_time = rng.seconds(0, 12);
    config.power.graceful = match rng.below(4) {
        0 => Graceful::IgnoredByHost,
        _ => Graceful::After(rng.seconds(0, 70)),
    };
    let responses = [AlreadyThere::Conflict, AlreadyThere::BadRequest, AlreadyThere::NoOp];
    config.power.already_there = rng.choose(&responses).copied().unwrap_or(AlreadyThere::Conflict);
    config.media.eject_empty = if rng.below(2) == 0 { EjectEmpty::Succeeds } else { EjectEmpty::Refused };
    if rng.below(4) == 0 {
        config.etag.if_match = IfMatchRule::Required;
    }
    let vendor = rng.choose(VENDORS).filter(|_| rng.below(3) == 0);
    if let Some(vendor_bmc) = vendor.and_then(|vendor| vendor_config(vendor.name, serial)) {
        config = SimBmcConfig { starts_on: config.starts_on, started_at: config.started_at, ..vendor_bmc };
    }
    config.journal_capacity = 64;
    config
}

/// Gives a BMC without a vendor the update service of the generic one, and each its own times.
fn add_update_service(config: &mut SimBmcConfig, rng: &WorldRng) {
    if let Ok(generic) = SimBmcConfig::vendor("generic", &config.serial, BMC_USER, BMC_PASSWORD)
        && config.identity.manufacturer == generic.identity.manufacturer
    {
        config.update = generic.update;
        config.service.firmware = generic.service.firmware;
    }
    config.update.check_time = rng.seconds(1, 60);
    config.update.flash_time = rng.seconds(20, 900);
    config.update.restart_time = rng.seconds(20, 600);
}

/// The configuration of a BMC of a vendor.
fn vendor_config(vendor: &str, serial: &Serial) -> Option<SimBmcConfig> {
    SimBmcConfig::vendor(vendor, serial.as_str(), BMC_USER, BMC_PASSWORD).ok()
}

/// Runs a world from start to end.
pub(super) async fn run(world: &Arc<World>) -> Result<(), StoreError> {
    if world.plan.installations > 0 {
        firmware_files::fill(world).await?;
    }
    let operators = tokio::spawn(operators(Arc::clone(world)));
    let mut supervisor = supervisor::Supervisor::start_first(world).await;
    let fault_time = tokio::time::sleep(world.plan.fault_time);
    tokio::pin!(fault_time);
    loop {
        tokio::select! {
            biased;
            () = &mut fault_time => break,
            () = supervisor.next() => {}
        }
    }
    world.end_faults();
    super::fault_injector::end(world.bmcs());
    supervisor.leave_one_running().await;
    // Operators finish their work without faults.
    let mut time_left = world.plan.time_limit();
    loop {
        let finished = operators.is_finished();
        let unfinished = world.observer().peek_unfinished();
        if (finished && unfinished.is_empty()) || time_left.is_zero() {
            break;
        }
        if finished {
            let held: Vec<RunId> = unfinished.iter().filter(|(_, held)| *held).map(|(run, _)| *run).collect();
            operator::resume_all(world, &held).await;
        }
        let interval = Duration::from_secs(60);
        tokio::select! {
            biased;
            () = supervisor.died() => {
                world.checker.violation("a controller died after the fault time".to_owned());
                break;
            }
            () = tokio::time::sleep(interval) => {}
        }
        time_left = time_left.saturating_sub(interval);
    }
    // Wait for late reports and deliveries.
    tokio::time::sleep(Duration::from_secs(4000)).await;
    check_at_end(world).await?;
    supervisor.end();
    Ok(())
}

/// Registers the servers and runs all operators.
async fn operators(world: Arc<World>) {
    for (number, (serial, _)) in world.bmcs().collect::<Vec<_>>().into_iter().enumerate() {
        operator::register(&world, &serial, &WorldState::address(number)).await;
    }
    if world.plan.webhook {
        operator::subscribe(&world).await;
    }
    let fault_injector = tokio::spawn(super::fault_injector::inject_faults(Arc::clone(&world)));
    let drain_actions = tokio::spawn(drain_actions::drain_and_undrain(Arc::clone(&world)));
    let creators: Vec<_> = world
        .bmcs()
        .map(|(serial, _)| {
            let jobs = u32::try_from(1 + world.rng.below(world.plan.jobs.max(1))).unwrap_or(1);
            tokio::spawn(operator::create_jobs(Arc::clone(&world), serial, jobs))
        })
        .collect();
    let requesters: Vec<_> = (0_u64..)
        .zip(world.bmcs())
        .filter(|_| world.plan.conditions > 0)
        .map(|(number, (serial, _))| {
            tokio::spawn(conditions::request_conditions(Arc::clone(&world), number, serial))
        })
        .collect();
    let others = more_operators(&world);
    let update_faults = (world.plan.installations > 0)
        .then(|| tokio::spawn(installations::inject_faults(Arc::clone(&world))));
    for creator in creators.into_iter().chain(requesters).chain(others) {
        let _ended = creator.await;
    }
    update_faults.iter().for_each(tokio::task::JoinHandle::abort);
    // Drains and maintenance end before the checks.
    let _ended = drain_actions.await;
    fault_injector.abort();
}

/// The operators who install firmware, change settings and use rescue systems, where the plan has them.
fn more_operators(world: &Arc<World>) -> Vec<tokio::task::JoinHandle<()>> {
    let mut tasks = Vec::new();
    for (number, (serial, _)) in (0_u64..).zip(world.bmcs()) {
        if world.plan.installations > 0 {
            tasks.push(tokio::spawn(installations::install(Arc::clone(world), number, serial.clone())));
        }
        if world.plan.settings > 0 {
            tasks.push(tokio::spawn(settings::apply(Arc::clone(world), number, serial.clone())));
        }
        if world.plan.rescues > 0 {
            tasks.push(tokio::spawn(rescues::rescue(Arc::clone(world), number, serial)));
        }
    }
    tasks
}

/// Checks all rules at the end.
async fn check_at_end(world: &Arc<World>) -> Result<(), StoreError> {
    let store = world.observer();
    for violation in store.check_invariants().await? {
        world.checker.violation(format!("{}: {}", violation.rule, violation.subject));
    }
    world.receiver.check_deliveries(world).await?;
    // The log decides which job of a server is the last: the wall clock may have been set back.
    let mut last: BTreeMap<Serial, (i64, Option<model::Outcome>)> = BTreeMap::new();
    let mut power_left: BTreeSet<Serial> = BTreeSet::new();
    for id in world.checker.jobs() {
        match store.job(id).await? {
            Some(job) => {
                world.checker.check_job_at_end(&job);
                if [FIRMWARE_INSTALL, BIOS_APPLY].contains(&&*job.run.workflow)
                    && job.run.outcome != Some(model::Outcome::Succeeded)
                {
                    // It may have been created before the last installation and have run after it.
                    power_left.extend(job.run.server.clone());
                }
                let events = store.events(EventFilter { run: Some(id), after: 0, limit: 1 }).await?;
                // Only a job that installs, and a power cycle with `power_on`, promise that the host is on.
                let installs = job.run.workflow == PROVISION && !world.checker.leaves_off(id);
                let promised = job.run.outcome.filter(|_| installs || world.checker.promises_power(id));
                let created = (events.first().map_or(0, |event| event.seq), promised);
                if let Some(server) = &job.run.server {
                    let newest = last.entry(server.clone()).or_insert(created);
                    if created.0 >= newest.0 {
                        *newest = created;
                    }
                }
            }
            None => world.checker.violation(format!("job {id} was acknowledged and does not exist")),
        }
    }
    for (serial, bmc) in world.bmcs() {
        let cleanup_pending =
            store.server(&serial).await?.is_some_and(|server| server.pending_cleanup.is_some());
        let outcome =
            last.get(&serial).and_then(|(_, outcome)| *outcome).filter(|_| !power_left.contains(&serial));
        world.checker.check_server_at_end(
            &serial,
            &bmc,
            cleanup_pending,
            outcome,
            world.lost_sessions(&serial),
        );
    }
    Ok(())
}
