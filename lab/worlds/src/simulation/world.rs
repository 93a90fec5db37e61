//! One world: simulated BMCs, machines, operators and one controller after another, on virtual time in one thread.
//!
//! ```text
//!   fault_time                                              faults_ended                          judgement
//!   orders, faults, crashes, jumps, lost reports       no faults, one controller     every rule, every promise
//!   |--------------- plan.fault_time -----------------------|------- until all is over ---|
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use lab_bmc::{
    AlreadyThere, EjectEmpty, Graceful, Host, IfMatchRule, MediaReader, SimBmc, SimBmcConfig, SlotConfig,
    VENDORS,
};
use tokio::sync::Notify;

use super::boundary::Boundary;
use super::checker::InvariantChecker;
use super::clock::{WorldWallClock, WorldClock};
use super::machine::WorldMachines;
use super::network::WorldMedia;
use super::receiver::WebhookReceiver;
use super::rng::{SeededIds, WorldRng};
use super::{WorldPlan, drain_actions, operator, supervisor};
use engine::model::{RunId, Serial, Time};
use engine::store::{EventFilter, HookDecision, Memory, Store, StoreError, StoreHooks, Violation};

/// The account of every BMC.
pub(super) const BMC_USER: &str = "selftest";
/// Its password.
pub(super) const BMC_PASSWORD: &str = "selftest-password";
/// More calls than any world of a server needs; beyond it something goes round in circles.
const CALLS_PER_SERVER_AND_HOUR: u64 = 60_000;
/// The stream of random numbers that makes the BMCs. It never changes: recorded seeds replay their worlds with it.
const BMC_STREAM: u64 = 0x88dd_84bf_a885_a340;

/// What may be done to a controller.
#[derive(Clone, Copy, Debug)]
pub(super) enum ControllerFault {
    /// It dies now.
    Crash,
    /// It dies at a crossing.
    Fuse(u64),
    /// It stands still for so long, while another takes over; then both are there.
    Freeze(Duration),
}

/// A world.
pub(super) struct World {
    pub(super) plan: WorldPlan,
    pub(super) folder: PathBuf,
    pub(super) clock: Arc<WorldClock>,
    pub(super) id_source: Arc<SeededIds>,
    pub(super) memory: Memory,
    pub(super) checker: InvariantChecker,
    pub(super) rng: WorldRng,
    pub(super) machine_rng: WorldRng,
    pub(super) receiver: WebhookReceiver,
    /// Looks at the database without taking part.
    observer: OnceLock<Store>,
    bmcs: OnceLock<BTreeMap<Serial, SimBmc>>,
    faults_ended: AtomicBool,
    database: Mutex<HookDecision>,
    endpoint: Mutex<Option<(Router, Arc<Boundary>)>>,
    controller_faults: Mutex<VecDeque<ControllerFault>>,
    pub(super) controller_fault_queued: Notify,
    /// A BMC is about to be changed.
    pub(super) bmc_changes: Notify,
    /// Sessions that no controller could close.
    lost_sessions: Mutex<BTreeSet<Serial>>,
    /// Machines that restart by themselves, and which time it is.
    restarts: Mutex<BTreeMap<Serial, u32>>,
    calls: AtomicU64,
    notes: Mutex<Vec<String>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Makes a world in which nothing has happened yet.
    pub(super) fn new(plan: WorldPlan, folder: PathBuf) -> Result<Arc<Self>, StoreError> {
        let start: Time = Time::from_timestamp(jiff::Timestamp::constant(1_800_000_000, 0));
        let seed = plan.seed;
        let world = Arc::new(Self {
            clock: WorldClock::new(start),
            id_source: Arc::new(SeededIds::new(seed)),
            memory: Memory::new()?,
            checker: InvariantChecker::default(),
            rng: WorldRng::new(seed, "people"),
            machine_rng: WorldRng::new(seed, "machines"),
            receiver: WebhookReceiver::new(seed),
            observer: OnceLock::new(),
            bmcs: OnceLock::new(),
            faults_ended: AtomicBool::new(false),
            database: Mutex::new(HookDecision::Proceed),
            endpoint: Mutex::new(None),
            controller_faults: Mutex::default(),
            controller_fault_queued: Notify::new(),
            bmc_changes: Notify::new(),
            lost_sessions: Mutex::default(),
            restarts: Mutex::default(),
            calls: AtomicU64::new(0),
            notes: Mutex::default(),
            plan,
            folder,
        });
        let observer = Store::open_in_place(&world.memory, Arc::new(NoHooks), start)?;
        let host: Arc<dyn Host> = Arc::new(WorldMachines(Arc::downgrade(&world)));
        let media: Arc<dyn MediaReader> = Arc::new(WorldMedia(Arc::downgrade(&world)));
        let rng = WorldRng::keyed(seed, BMC_STREAM);
        let bmcs = (0..world.plan.servers)
            .filter_map(|number| {
                let serial: Serial = format!("SIM-{number:05}").parse().ok()?;
                let config = bmc_config(&serial, &rng, start);
                Some((serial, SimBmc::new(config, Arc::clone(&host), Arc::clone(&media))))
            })
            .collect();
        // Nobody else has the world yet.
        let _first = world.observer.set(observer);
        let _first = world.bmcs.set(bmcs);
        Ok(world)
    }

    pub(super) fn wall(&self) -> WorldWallClock {
        WorldWallClock(Arc::clone(&self.clock))
    }

    #[expect(clippy::expect_used, reason = "set in `new`, before anybody has the world")]
    pub(super) fn observer(&self) -> &Store {
        self.observer.get().expect("a world has its observer")
    }

    pub(super) fn bmcs(&self) -> impl Iterator<Item = (Serial, SimBmc)> + '_ {
        self.bmcs.get().into_iter().flatten().map(|(serial, bmc)| (serial.clone(), bmc.clone()))
    }

    /// The address of a server's BMC.
    pub(super) fn address(number: usize) -> String {
        format!("http://10.1.{}.{}", number / 250, number % 250 + 1)
    }

    /// Who answers at an address.
    pub(super) fn bmc_at(&self, host: &str) -> Option<(Serial, SimBmc)> {
        let mut parts = host.split('.').skip(2).map(str::parse::<usize>);
        let (high, low) = (parts.next()?.ok()?, parts.next()?.ok()?);
        self.bmcs().nth(high * 250 + low - 1)
    }

    pub(super) fn any_bmc(&self, rng: &WorldRng) -> Option<(Serial, SimBmc)> {
        let all: Vec<_> = self.bmcs().collect();
        rng.choose(&all).cloned()
    }

    /// Whether all trouble is over.
    pub(super) fn is_quiet(&self) -> bool {
        self.faults_ended.load(Ordering::Relaxed)
    }

    pub(super) fn end_faults(&self) {
        self.faults_ended.store(true, Ordering::Relaxed);
        self.set_database(HookDecision::Proceed);
        lock(&self.controller_faults).clear();
        self.note("all is faults_ended");
    }

    /// Whether anything may go wrong now.
    pub(super) fn faults_active(&self) -> bool {
        !self.is_quiet() && self.plan.fault_interval.is_some()
    }

    /// Whether this one goes wrong, in so many of a thousand; nothing does when all is faults_ended.
    pub(super) fn fault_occurs(&self, per_mille: u64) -> bool {
        self.faults_active() && self.rng.chance_per_mille(per_mille)
    }

    pub(super) fn database(&self) -> HookDecision {
        *lock(&self.database)
    }

    pub(super) fn set_database(&self, how: HookDecision) {
        *lock(&self.database) = how;
    }

    pub(super) fn queue_controller_fault(&self, trouble: ControllerFault) {
        lock(&self.controller_faults).push_back(trouble);
        self.controller_fault_queued.notify_one();
    }

    pub(super) fn next_controller_fault(&self) -> Option<ControllerFault> {
        lock(&self.controller_faults).pop_front()
    }

    /// Where the controller answers, if it does.
    pub(super) fn endpoint(&self) -> Option<(Router, Arc<Boundary>)> {
        lock(&self.endpoint).clone().filter(|(_, boundary)| !boundary.is_dead())
    }

    pub(super) fn set_endpoint(&self, endpoint: Option<(Router, Arc<Boundary>)>) {
        *lock(&self.endpoint) = endpoint;
    }

    /// A session on this BMC may be one that nobody can close; it ends by itself when nobody uses it.
    pub(super) fn sessions_lost(&self, serial: &Serial) {
        lock(&self.lost_sessions).insert(serial.clone());
    }

    pub(super) fn lost_sessions(&self, serial: &Serial) -> bool {
        lock(&self.lost_sessions).contains(serial)
    }

    /// An installer restarts its machine: warm, so that the power stays on. Which time it is comes back with the boot.
    pub(super) fn restart(&self, serial: &Serial, time: u32) {
        let Some(bmc) = self.bmcs.get().and_then(|bmcs| bmcs.get(serial)) else { return };
        lock(&self.restarts).insert(serial.clone(), time);
        self.note(&format!("{serial} restarts by itself"));
        if !bmc.warm_reset() {
            lock(&self.restarts).remove(serial);
        }
    }

    /// Whether this boot is a restart by the machine itself, and which.
    pub(super) fn restarted(&self, serial: &Serial) -> Option<u32> {
        lock(&self.restarts).remove(serial)
    }

    /// One more crossing; a controller that crosses without end is stopped.
    pub(super) fn count_call(&self, boundary: &Boundary) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let hours = self.plan.fault_time.as_secs() / 3600 + 12;
        let most = CALLS_PER_SERVER_AND_HOUR * hours * self.plan.servers as u64;
        if calls > most {
            self.checker.violation(format!("{} goes round in circles: {calls} calls", boundary.owner));
            boundary.death.cancel();
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Writes down what happened in the world.
    pub(super) fn note(&self, what: &str) {
        let at = self.clock.passed();
        let line = format!("{:>7}.{:03}  {what}", at.as_secs(), at.subsec_millis());
        lock(&self.notes).push(line);
    }

    pub(super) fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }
}

/// Looks on.
struct NoHooks;

#[async_trait]
impl StoreHooks for NoHooks {
    async fn before(&self, _operation: &'static str, _writes: bool) -> HookDecision {
        HookDecision::Proceed
    }
    async fn after(&self, _operation: &'static str, _writes: bool) {}
    fn violated(&self, _violation: Violation) {}
    fn seen(&self, _snapshot: &engine::model::Snapshot) {}
}

/// A BMC of some make.
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
    let answers = [AlreadyThere::Conflict, AlreadyThere::BadRequest, AlreadyThere::NoOp];
    config.power.already_there = rng.choose(&answers).copied().unwrap_or(AlreadyThere::Conflict);
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

/// A vendor's BMC.
fn vendor_config(vendor: &str, serial: &Serial) -> Option<SimBmcConfig> {
    SimBmcConfig::vendor(vendor, serial.as_str(), BMC_USER, BMC_PASSWORD).ok()
}

/// Lets a world happen from its beginning to its end.
pub(super) async fn run(world: &Arc<World>) -> Result<(), StoreError> {
    let operators = tokio::spawn(operators(Arc::clone(world)));
    let mut supervisor = supervisor::Supervisor::begin(world).await;
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
    // Whoever still orders or meddles does so in peace; nobody begins anew.
    let mut patience = world.plan.patience();
    loop {
        let over = operators.is_finished();
        let unfinished = world.observer().peek_unfinished();
        if (over && unfinished.is_empty()) || patience.is_zero() {
            break;
        }
        if over {
            let held: Vec<RunId> = unfinished.iter().filter(|(_, held)| *held).map(|(run, _)| *run).collect();
            operator::resume_all(world, &held).await;
        }
        let pause = Duration::from_secs(60);
        tokio::select! {
            biased;
            () = supervisor.died() => {
                world.checker.violation("a controller died in peace".to_owned());
                break;
            }
            () = tokio::time::sleep(pause) => {}
        }
        patience = patience.saturating_sub(pause);
    }
    // What comes late comes now.
    tokio::time::sleep(Duration::from_secs(4000)).await;
    check_at_end(world).await?;
    supervisor.end();
    Ok(())
}

/// Everybody who orders.
async fn operators(world: Arc<World>) {
    for (number, (serial, _)) in world.bmcs().collect::<Vec<_>>().into_iter().enumerate() {
        operator::register(&world, &serial, &World::address(number)).await;
    }
    if world.plan.webhook {
        operator::subscribe(&world).await;
    }
    let fault_injector = tokio::spawn(super::fault_injector::make(Arc::clone(&world)));
    let drain_actions = tokio::spawn(drain_actions::drain_and_undrain(Arc::clone(&world)));
    let orders: Vec<_> = world
        .bmcs()
        .map(|(serial, _)| {
            let jobs = u32::try_from(1 + world.rng.below(world.plan.jobs.max(1))).unwrap_or(1);
            tokio::spawn(operator::create_jobs(Arc::clone(&world), serial, jobs))
        })
        .collect();
    for order in orders {
        let _over = order.await;
    }
    // Whoever keeps jobs from beginning lets them begin again.
    let _over = drain_actions.await;
    fault_injector.abort();
}

/// What is true at the end.
async fn check_at_end(world: &Arc<World>) -> Result<(), StoreError> {
    let store = world.observer();
    for broken in store.check_invariants().await? {
        world.checker.violation(format!("{}: {}", broken.rule, broken.subject));
    }
    world.receiver.check_deliveries(world).await?;
    // The last job of a server by the log: the clock by which jobs are dated was set back perhaps.
    let mut last: BTreeMap<Serial, (i64, Option<engine::model::Outcome>)> = BTreeMap::new();
    for id in world.checker.jobs() {
        match store.job(id).await? {
            Some(job) => {
                world.checker.check_job_at_end(&job);
                let told = store.events(EventFilter { run: Some(id), after: 0, limit: 1 }).await?;
                let made = (told.first().map_or(0, |event| event.seq), job.run.outcome);
                let newest = last.entry(job.server.clone()).or_insert(made);
                if made.0 >= newest.0 {
                    *newest = made;
                }
            }
            None => world.checker.violation(format!("job {id} was acknowledged and is gone")),
        }
    }
    for (serial, bmc) in world.bmcs() {
        let cleanup_pending = store.server(&serial).await?.is_some_and(|server| server.pending_cleanup.is_some());
        let outcome = last.get(&serial).and_then(|(_, outcome)| *outcome);
        world.checker.check_server_at_end(&serial, &bmc, cleanup_pending, outcome, world.lost_sessions(&serial));
    }
    Ok(())
}
