//! One world: simulated BMCs, machines, people and one controller after another, on virtual time in one thread.
//!
//! ```text
//!   chaos                                              calm                          judgement
//!   orders, faults, crashes, jumps, lost reports       no faults, one controller     every rule, every promise
//!   |--------------- plan.chaos -----------------------|------- until all is over ---|
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
use super::checker::Judge;
use super::clock::{Wall, WorldClock};
use super::machine::WorldMachines;
use super::network::WorldMedia;
use super::receiver::Receiver;
use super::rng::{SeededIds, WorldRng};
use super::{Plan, drain_actions, operator, supervisor};
use engine::model::{RunId, Serial, Time};
use engine::store::{EventFilter, HookDecision, Memory, Store, StoreError, StoreHooks, Violation};

/// The account of every BMC.
pub(super) const BMC_USER: &str = "selftest";
/// Its password.
pub(super) const BMC_PASSWORD: &str = "selftest-password";
/// More crossings than any world of a server needs; beyond it something goes round in circles.
const CROSSINGS_PER_SERVER_AND_HOUR: u64 = 60_000;
/// The stream of random numbers that makes the BMCs. It never changes: recorded seeds replay their worlds with it.
const BMC_STREAM: u64 = 0x88dd_84bf_a885_a340;

/// What may be done to a controller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// It dies now.
    Crash,
    /// It dies at a crossing.
    Fuse(u64),
    /// It stands still for so long, while another takes over; then both are there.
    Freeze(Duration),
}

/// A world.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) folder: PathBuf,
    pub(super) clock: Arc<WorldClock>,
    pub(super) id_source: Arc<SeededIds>,
    pub(super) memory: Memory,
    pub(super) judge: Judge,
    pub(super) rng: WorldRng,
    pub(super) machine_rng: WorldRng,
    pub(super) receiver: Receiver,
    /// Looks at the database without taking part.
    observer: OnceLock<Store>,
    bmcs: OnceLock<BTreeMap<Serial, SimBmc>>,
    calm: AtomicBool,
    database: Mutex<HookDecision>,
    door: Mutex<Option<(Router, Arc<Boundary>)>>,
    trouble: Mutex<VecDeque<Trouble>>,
    pub(super) troubled: Notify,
    /// A BMC is about to be changed.
    pub(super) effects: Notify,
    /// Sessions that no controller could close.
    lost_sessions: Mutex<BTreeSet<Serial>>,
    /// Machines that restart by themselves, and which time it is.
    restarts: Mutex<BTreeMap<Serial, u32>>,
    crossings: AtomicU64,
    notes: Mutex<Vec<String>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Makes a world in which nothing has happened yet.
    pub(super) fn new(plan: Plan, folder: PathBuf) -> Result<Arc<Self>, StoreError> {
        let start: Time = Time::from_timestamp(jiff::Timestamp::constant(1_800_000_000, 0));
        let seed = plan.seed;
        let world = Arc::new(Self {
            clock: WorldClock::new(start),
            id_source: Arc::new(SeededIds::new(seed)),
            memory: Memory::new()?,
            judge: Judge::default(),
            rng: WorldRng::new(seed, "people"),
            machine_rng: WorldRng::new(seed, "machines"),
            receiver: Receiver::new(seed),
            observer: OnceLock::new(),
            bmcs: OnceLock::new(),
            calm: AtomicBool::new(false),
            database: Mutex::new(HookDecision::Proceed),
            door: Mutex::new(None),
            trouble: Mutex::default(),
            troubled: Notify::new(),
            effects: Notify::new(),
            lost_sessions: Mutex::default(),
            restarts: Mutex::default(),
            crossings: AtomicU64::new(0),
            notes: Mutex::default(),
            plan,
            folder,
        });
        let observer = Store::open_in_place(&world.memory, Arc::new(Observer), start)?;
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

    pub(super) fn wall(&self) -> Wall {
        Wall(Arc::clone(&self.clock))
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
        rng.pick(&all).cloned()
    }

    /// Whether all trouble is over.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(super) fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.set_database(HookDecision::Proceed);
        lock(&self.trouble).clear();
        self.note("all is calm");
    }

    /// Whether anything may go wrong now.
    pub(super) fn has_trouble(&self) -> bool {
        !self.is_calm() && self.plan.pause.is_some()
    }

    /// Whether this one goes wrong, in so many of a thousand; nothing does when all is calm.
    pub(super) fn trouble(&self, in_thousand: u64) -> bool {
        self.has_trouble() && self.rng.in_thousand(in_thousand)
    }

    pub(super) fn database(&self) -> HookDecision {
        *lock(&self.database)
    }

    pub(super) fn set_database(&self, how: HookDecision) {
        *lock(&self.database) = how;
    }

    pub(super) fn controller_trouble(&self, trouble: Trouble) {
        lock(&self.trouble).push_back(trouble);
        self.troubled.notify_one();
    }

    pub(super) fn next_trouble(&self) -> Option<Trouble> {
        lock(&self.trouble).pop_front()
    }

    /// Where the controller answers, if it does.
    pub(super) fn door(&self) -> Option<(Router, Arc<Boundary>)> {
        lock(&self.door).clone().filter(|(_, boundary)| !boundary.is_dead())
    }

    pub(super) fn set_door(&self, door: Option<(Router, Arc<Boundary>)>) {
        *lock(&self.door) = door;
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
    pub(super) fn crossed(&self, boundary: &Boundary) {
        let crossings = self.crossings.fetch_add(1, Ordering::Relaxed);
        let hours = self.plan.chaos.as_secs() / 3600 + 12;
        let most = CROSSINGS_PER_SERVER_AND_HOUR * hours * self.plan.servers as u64;
        if crossings > most {
            self.judge.violation(format!("{} goes round in circles: {crossings} crossings", boundary.owner));
            boundary.death.cancel();
        }
    }

    pub(super) fn crossings(&self) -> u64 {
        self.crossings.load(Ordering::Relaxed)
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
struct Observer;

#[async_trait]
impl StoreHooks for Observer {
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
    config.power.already_there = rng.pick(&answers).copied().unwrap_or(AlreadyThere::Conflict);
    config.media.eject_empty = if rng.below(2) == 0 { EjectEmpty::Succeeds } else { EjectEmpty::Refused };
    if rng.below(4) == 0 {
        config.etag.if_match = IfMatchRule::Required;
    }
    let vendor = rng.pick(VENDORS).filter(|_| rng.below(3) == 0);
    if let Some(made) = vendor.and_then(|vendor| made_by(vendor.name, serial)) {
        config = SimBmcConfig { starts_on: config.starts_on, started_at: config.started_at, ..made };
    }
    config.journal_capacity = 64;
    config
}

/// A vendor's BMC.
fn made_by(vendor: &str, serial: &Serial) -> Option<SimBmcConfig> {
    SimBmcConfig::vendor(vendor, serial.as_str(), BMC_USER, BMC_PASSWORD).ok()
}

/// Lets a world happen from its beginning to its end.
pub(super) async fn live(world: &Arc<World>) -> Result<(), StoreError> {
    let people = tokio::spawn(people(Arc::clone(world)));
    let mut reign = supervisor::Supervisor::begin(world).await;
    let chaos = tokio::time::sleep(world.plan.chaos);
    tokio::pin!(chaos);
    loop {
        tokio::select! {
            biased;
            () = &mut chaos => break,
            () = reign.next() => {}
        }
    }
    world.calm_down();
    super::fault_injector::end(world.bmcs());
    reign.settle().await;
    // Whoever still orders or meddles does so in peace; nobody begins anew.
    let mut patience = world.plan.patience();
    loop {
        let over = people.is_finished();
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
            () = reign.died() => {
                world.judge.violation("a controller died in peace".to_owned());
                break;
            }
            () = tokio::time::sleep(pause) => {}
        }
        patience = patience.saturating_sub(pause);
    }
    // What comes late comes now.
    tokio::time::sleep(Duration::from_secs(4000)).await;
    judge(world).await?;
    reign.end();
    Ok(())
}

/// Everybody who orders.
async fn people(world: Arc<World>) {
    for (number, (serial, _)) in world.bmcs().collect::<Vec<_>>().into_iter().enumerate() {
        operator::register(&world, &serial, &World::address(number)).await;
    }
    if world.plan.told {
        operator::subscribe(&world).await;
    }
    let fault_injector = tokio::spawn(super::fault_injector::make(Arc::clone(&world)));
    let drain_actions = tokio::spawn(drain_actions::drain_and_undrain(Arc::clone(&world)));
    let orders: Vec<_> = world
        .bmcs()
        .map(|(serial, _)| {
            let jobs = u32::try_from(1 + world.rng.below(world.plan.jobs.max(1))).unwrap_or(1);
            tokio::spawn(operator::order(Arc::clone(&world), serial, jobs))
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
async fn judge(world: &Arc<World>) -> Result<(), StoreError> {
    let store = world.observer();
    for broken in store.check_invariants().await? {
        world.judge.violation(format!("{}: {}", broken.rule, broken.subject));
    }
    world.receiver.judge(world).await?;
    // The last job of a server by the log: the clock by which jobs are dated was set back perhaps.
    let mut last: BTreeMap<Serial, (i64, Option<engine::model::Outcome>)> = BTreeMap::new();
    for id in world.judge.jobs() {
        match store.job(id).await? {
            Some(job) => {
                world.judge.ended(&job);
                let told = store.events(EventFilter { run: Some(id), after: 0, limit: 1 }).await?;
                let made = (told.first().map_or(0, |event| event.seq), job.run.outcome);
                let newest = last.entry(job.server.clone()).or_insert(made);
                if made.0 >= newest.0 {
                    *newest = made;
                }
            }
            None => world.judge.violation(format!("job {id} was acknowledged and is gone")),
        }
    }
    for (serial, bmc) in world.bmcs() {
        let debt = store.server(&serial).await?.is_some_and(|server| server.pending_cleanup.is_some());
        let outcome = last.get(&serial).and_then(|(_, outcome)| *outcome);
        world.judge.left(&serial, &bmc, debt, outcome, world.lost_sessions(&serial));
    }
    Ok(())
}
