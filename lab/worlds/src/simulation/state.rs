//! The state of a world: its clock, random numbers, database, BMCs and notes. It refers to no controller and no task.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lab_bmc::SimBmc;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::WorldPlan;
use super::checker::InvariantChecker;
use super::clock::{WorldClock, WorldWallClock};
use super::firmware_shelf::FirmwareShelf;
use super::received::WebhookReceiver;
use super::rng::{SeededIds, WorldRng};
use super::watched::WatchedRuns;
use model::{Serial, Time};
use store::{HookDecision, Memory, Store, StoreError, StoreHooks, Violation};

/// More calls than the controllers of any world need. A controller that exceeds the limit is in an endless loop.
const CALLS_PER_SERVER_AND_HOUR: u64 = 60_000;

/// A fault of a controller.
#[derive(Clone, Copy, Debug)]
pub(super) enum ControllerFault {
    /// The controller crashes now.
    Crash,
    /// The controller crashes after this number of calls.
    CrashAfter(u64),
    /// The controller is paused for this time. Another one may take over; afterwards both run for a while.
    Pause(Duration),
}

/// The state of a simulated data centre. It refers to no controller.
pub(super) struct WorldState {
    pub(super) plan: WorldPlan,
    pub(super) folder: PathBuf,
    pub(super) clock: Arc<WorldClock>,
    pub(super) id_source: Arc<SeededIds>,
    pub(super) memory: Memory,
    pub(super) checker: InvariantChecker,
    pub(super) rng: WorldRng,
    pub(super) machine_rng: WorldRng,
    pub(super) receiver: WebhookReceiver,
    pub(super) firmware: FirmwareShelf,
    pub(super) watched: WatchedRuns,
    /// Reads the database without hooks.
    observer: Store,
    bmcs: OnceLock<BTreeMap<Serial, SimBmc>>,
    faults_ended: AtomicBool,
    database: Mutex<HookDecision>,
    controller_faults: Mutex<VecDeque<ControllerFault>>,
    pub(super) controller_fault_queued: Notify,
    /// Notified when a request that changes a BMC is sent.
    pub(super) bmc_changes: Notify,
    /// Servers on whose BMC a session may remain open.
    lost_sessions: Mutex<BTreeSet<Serial>>,
    /// Machines that restart by themselves, with the number of the restart.
    restarts: Mutex<BTreeMap<Serial, u32>>,
    calls: AtomicU64,
    notes: Mutex<Vec<String>>,
}

/// The wall time at the start of every world.
pub(super) fn start() -> Time {
    Time::from_timestamp(jiff::Timestamp::constant(1_800_000_000, 0))
}

impl WorldState {
    /// The state of a world at its start, without BMCs.
    pub(super) fn new(plan: WorldPlan, folder: PathBuf) -> Result<Self, StoreError> {
        let start = start();
        let seed = plan.seed;
        let memory = Memory::new()?;
        let observer = Store::open_in_place(&memory, Arc::new(NoHooks), start)?;
        Ok(Self {
            clock: WorldClock::new(start, seed.is_multiple_of(2)),
            id_source: Arc::new(SeededIds::new(seed)),
            memory,
            checker: InvariantChecker::default(),
            rng: WorldRng::new(seed, "people"),
            machine_rng: WorldRng::new(seed, "machines"),
            receiver: WebhookReceiver::new(seed),
            firmware: FirmwareShelf::new(seed),
            watched: WatchedRuns::default(),
            observer,
            bmcs: OnceLock::new(),
            faults_ended: AtomicBool::new(false),
            database: Mutex::new(HookDecision::Proceed),
            controller_faults: Mutex::default(),
            controller_fault_queued: Notify::new(),
            bmc_changes: Notify::new(),
            lost_sessions: Mutex::default(),
            restarts: Mutex::default(),
            calls: AtomicU64::new(0),
            notes: Mutex::default(),
            plan,
            folder,
        })
    }

    /// Adds the BMCs to a new world.
    pub(super) fn set_bmcs(&self, bmcs: BTreeMap<Serial, SimBmc>) {
        // The cell is empty: no other task has the world yet.
        let _first = self.bmcs.set(bmcs);
    }

    pub(super) fn wall_clock(&self) -> WorldWallClock {
        WorldWallClock(Arc::clone(&self.clock))
    }

    pub(super) fn observer(&self) -> &Store {
        &self.observer
    }

    pub(super) fn bmcs(&self) -> impl Iterator<Item = (Serial, SimBmc)> + '_ {
        self.bmcs.get().into_iter().flatten().map(|(serial, bmc)| (serial.clone(), bmc.clone()))
    }

    /// The BMC of a server.
    pub(super) fn bmc(&self, serial: &Serial) -> Option<SimBmc> {
        self.bmcs.get()?.get(serial).cloned()
    }

    /// The address of the BMC of a server.
    pub(super) fn address(number: usize) -> String {
        format!("http://10.1.{}.{}", number / 250, number % 250 + 1)
    }

    /// The server and BMC at an address.
    pub(super) fn bmc_at(&self, host: &str) -> Option<(Serial, SimBmc)> {
        let mut parts = host.split('.').skip(2).map(str::parse::<usize>);
        let (high, low) = (parts.next()?.ok()?, parts.next()?.ok()?);
        self.bmcs().nth(high * 250 + low - 1)
    }

    pub(super) fn any_bmc(&self, rng: &WorldRng) -> Option<(Serial, SimBmc)> {
        let all: Vec<_> = self.bmcs().collect();
        rng.choose(&all).cloned()
    }

    /// Whether the fault time is over.
    pub(super) fn is_quiet(&self) -> bool {
        self.faults_ended.load(Ordering::Relaxed)
    }

    pub(super) fn end_faults(&self) {
        self.faults_ended.store(true, Ordering::Relaxed);
        self.set_database(HookDecision::Proceed);
        self.controller_faults.lock().clear();
        self.note("the fault time is over");
    }

    /// Whether faults may occur now.
    pub(super) fn faults_active(&self) -> bool {
        !self.is_quiet() && self.plan.fault_interval.is_some()
    }

    /// Decides whether a fault occurs, with a probability per mille. No fault occurs after the fault time.
    pub(super) fn fault_occurs(&self, per_mille: u64) -> bool {
        self.faults_active() && self.rng.chance_per_mille(per_mille)
    }

    pub(super) fn database(&self) -> HookDecision {
        *self.database.lock()
    }

    pub(super) fn set_database(&self, how: HookDecision) {
        *self.database.lock() = how;
    }

    pub(super) fn queue_controller_fault(&self, fault: ControllerFault) {
        self.controller_faults.lock().push_back(fault);
        self.controller_fault_queued.notify_one();
    }

    pub(super) fn next_controller_fault(&self) -> Option<ControllerFault> {
        self.controller_faults.lock().pop_front()
    }

    /// Records that a session on this BMC may remain open until its idle timeout.
    pub(super) fn sessions_lost(&self, serial: &Serial) {
        self.lost_sessions.lock().insert(serial.clone());
    }

    pub(super) fn lost_sessions(&self, serial: &Serial) -> bool {
        self.lost_sessions.lock().contains(serial)
    }

    /// Restarts a machine as its installer does: a warm reset, with the power on. [`WorldState::restarted`] returns the number of
    /// the restart.
    pub(super) fn restart(&self, serial: &Serial, time: u32) {
        let Some(bmc) = self.bmcs.get().and_then(|bmcs| bmcs.get(serial)) else { return };
        self.restarts.lock().insert(serial.clone(), time);
        self.note(&format!("{serial} restarts by itself"));
        if !bmc.warm_reset() {
            self.restarts.lock().remove(serial);
        }
    }

    /// Returns the number of the restart if this boot is a restart by the machine itself.
    pub(super) fn restarted(&self, serial: &Serial) -> Option<u32> {
        self.restarts.lock().remove(serial)
    }

    /// Counts a call. A controller in an endless loop is stopped.
    pub(super) fn count_call(&self, owner: &str, death: &CancellationToken) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let hours = self.plan.fault_time.as_secs() / 3600 + 12;
        let limit = CALLS_PER_SERVER_AND_HOUR * hours * self.plan.servers as u64;
        if calls > limit {
            self.checker.violation(format!("{owner} is in an endless loop: {calls} calls"));
            death.cancel();
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Adds a line to the log of the world.
    pub(super) fn note(&self, what: &str) {
        let at = self.clock.passed();
        let line = format!("{:>7}.{:03}  {what}", at.as_secs(), at.subsec_millis());
        self.notes.lock().push(line);
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.lock().clone()
    }
}

/// Store hooks that do nothing.
struct NoHooks;

#[async_trait]
impl StoreHooks for NoHooks {
    async fn before(&self, _operation: &'static str, _writes: bool) -> HookDecision {
        HookDecision::Proceed
    }
    async fn after(&self, _operation: &'static str, _writes: bool) {}
    fn violated(&self, _violation: Violation) {}
    fn seen(&self, _snapshot: &model::Snapshot) {}
}
