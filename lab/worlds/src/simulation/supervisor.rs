//! Starts, pauses and ends the controllers of a world. Usually one runs at a time.
//!
//! ```text
//!   start -> alive --crash--> dead --downtime--> the next controller takes over, on the same database
//!               \--pause--> paused; another controller starts --resume--> both run --> the first one is ended
//! ```

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::boundary::Boundary;
use super::clock::WorldWallClock;
use super::firmware_files::WorldFirmware;
use super::network::BmcNetwork;
use super::receiver::ReceiverTransport;
use super::rng::WorldRng;
use super::state::ControllerFault;
use super::world::World;
use bmc::Addresses;
use controller::app::{Controller, Dependencies, Environment};
use controller::webhooks::WebhookDispatcher;
use keys::Keys;
use model::{Clock, IdSource, SteadyClock};
use secrets::MasterKey;
use settings::{Settings, Sources};
use store::{Store, TakeOver};

/// The random stream of this module. It never changes: recorded seeds replay their worlds with it.
const STREAM: u64 = 0xce77_0ff3_2d2a_36ee;
/// The time within which a new controller takes over the leases of its predecessor.
const TAKEOVER_TIME: Duration = Duration::from_secs(1);

/// The controllers of a world.
pub(super) struct Supervisor {
    world: Arc<World>,
    rng: WorldRng,
    settings: Settings,
    keys: Arc<Keys>,
    count: u64,
    current: Option<LiveController>,
    /// Controllers that were paused while another one was started.
    zombies: Vec<LiveController>,
}

/// A running controller.
struct LiveController {
    boundary: Arc<Boundary>,
    clock: Arc<dyn Clock>,
    /// The start of the controller, or the end of a pause in its start, in virtual time of the world.
    started: Duration,
    tasks: Vec<JoinHandle<()>>,
}

impl LiveController {
    /// Whether the clock of the controller agrees with the wall clock. Otherwise its leases look older than they are to a
    /// controller that starts with the wall clock. That limitation is known and not simulated.
    fn on_time(&self, world: &World) -> bool {
        let (own, wall) = (self.clock.now(), WorldWallClock(Arc::clone(&world.clock)).now());
        wall.since(own).max(own.since(wall)) < Duration::from_secs(30)
    }

    /// Whether another controller can start now. A controller that starts alone holds the file lock and takes over all
    /// leases. Before that is done, another controller would find the file lock held and exit.
    fn has_taken_over(&self, world: &World) -> bool {
        self.took_over_before(world.clock.passed())
    }

    fn took_over_before(&self, passed: Duration) -> bool {
        passed >= self.started + TAKEOVER_TIME
    }

    /// Ends the controller and all its tasks.
    fn end(&self) {
        self.boundary.end();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Supervisor {
    /// Starts the first controller.
    pub(super) async fn start_first(world: &Arc<World>) -> Self {
        let mut supervisor = Self {
            rng: WorldRng::keyed(world.plan.seed, STREAM),
            settings: settings(world),
            keys: Arc::new(Keys::in_memory(&key(world.plan.seed))),
            count: 0,
            current: None,
            zombies: Vec::new(),
            world: Arc::clone(world),
        };
        supervisor.start_next(TakeOver::Everything);
        supervisor
    }

    /// Waits for the next fault or crash and handles it.
    pub(super) async fn next(&mut self) {
        let died = self.current.as_ref().map(|live| live.boundary.death.clone());
        let fault = match self.world.next_controller_fault() {
            Some(fault) => Some(fault),
            None => {
                tokio::select! {
                    biased;
                    () = ended(died) => None,
                    () = self.world.controller_fault_queued.notified() => return,
                }
            }
        };
        match fault {
            Some(ControllerFault::CrashAfter(calls)) => {
                self.current.iter().for_each(|live| live.boundary.crash_after(calls));
            }
            Some(ControllerFault::Pause(time)) => self.pause_current(time).await,
            Some(ControllerFault::Crash) => {
                self.world.note("the controller crashes");
                self.restart_later().await;
            }
            None => self.restart_later().await,
        }
    }

    /// Removes the dead controller and starts the next one after a delay.
    async fn restart_later(&mut self) {
        self.world.set_endpoint(None);
        if let Some(live) = self.current.take() {
            live.end();
        }
        self.lose_all_sessions();
        tokio::time::sleep(self.rng.time(Duration::ZERO, Duration::from_secs(300))).await;
        self.start_next(TakeOver::Everything);
    }

    /// Pauses the current controller, may start another one, and resumes the first later. The fault time may end at any
    /// await here: [`Supervisor::leave_one_running`] then finds the paused controller in `current` or `zombies`.
    async fn pause_current(&mut self, time: Duration) {
        let Some(live) = &self.current else { return };
        let boundary = Arc::clone(&live.boundary);
        let alone = !live.on_time(&self.world) || !live.has_taken_over(&self.world);
        self.world.note(&format!("{} is paused for {} s", boundary.owner, time.as_secs()));
        boundary.set_paused(true);
        self.lose_all_sessions();
        if self.rng.below(3) == 0 || alone {
            // No other controller is started.
            tokio::time::sleep(time).await;
            boundary.set_paused(false);
            let now = self.world.clock.passed();
            if let Some(live) = self.current.as_mut().filter(|live| !live.took_over_before(now - time)) {
                // What it had to take over at its start it takes over now.
                live.started = now;
            }
            return;
        }
        let endpoint = self.world.endpoint();
        self.zombies.extend(self.current.take());
        self.world.set_endpoint(None);
        tokio::time::sleep(self.rng.seconds(0, 20)).await;
        if self.zombies.last().is_some_and(|live| !live.on_time(&self.world)) {
            // The wall clock was changed meanwhile: by the clock of another controller, leases would end too early.
            self.current = self.zombies.pop();
            self.world.set_endpoint(endpoint);
            tokio::time::sleep(time).await;
            boundary.set_paused(false);
            return;
        }
        self.start_next(TakeOver::ExpiredOnly);
        tokio::time::sleep(time).await;
        self.zombies.iter().for_each(|live| live.boundary.set_paused(false));
        self.world.note("the paused controller continues");
        tokio::time::sleep(self.rng.seconds(1, 600)).await;
        self.zombies.drain(..).for_each(|live| live.end());
    }

    /// Ends all faults of controllers and leaves exactly one running.
    pub(super) async fn leave_one_running(&mut self) {
        self.zombies.drain(..).for_each(|live| {
            live.boundary.set_paused(false);
            live.end();
        });
        match &self.current {
            Some(live) if !live.boundary.is_dead() => {
                live.boundary.crash_after(u64::MAX);
                live.boundary.set_paused(false);
            }
            _ => {
                self.current.take().iter().for_each(LiveController::end);
                self.lose_all_sessions();
                self.start_next(TakeOver::Everything);
            }
        }
    }

    /// Waits for the end of the current controller.
    pub(super) async fn died(&self) {
        ended(self.current.as_ref().map(|live| live.boundary.death.clone())).await;
    }

    /// Ends the current controller.
    pub(super) fn end(&mut self) {
        self.world.set_endpoint(None);
        self.current.take().iter().for_each(LiveController::end);
    }

    /// Records that sessions may remain open: a session that was not yet stored cannot be closed.
    fn lose_all_sessions(&self) {
        self.world.bmcs().for_each(|(serial, _)| self.world.sessions_lost(&serial));
    }

    /// Starts the next controller.
    fn start_next(&mut self, take_over: TakeOver) {
        self.count += 1;
        match self.start(take_over) {
            Ok(live) => self.current = Some(live),
            Err(why) => self.world.checker.violation(format!("a controller does not start: {why}")),
        }
    }

    fn start(&self, take_over: TakeOver) -> Result<LiveController, Box<dyn std::error::Error>> {
        let world = &self.world;
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new(WorldWallClock(Arc::clone(&world.clock))));
        let instance = world.id_source.new_id(clock.now()).to_string();
        let boundary = Boundary::new(&world.state, format!("controller-{instance}"), self.count);
        world.note(&format!("{} starts ({take_over:?})", boundary.owner));
        world.clock.controller_starts();
        let store = Store::open_in_place(&world.memory, Arc::clone(&boundary) as _, clock.now())?;
        let environment = Environment {
            clock: Arc::clone(&clock),
            id_source: Arc::clone(&world.id_source) as Arc<dyn IdSource>,
            connector: Arc::new(BmcNetwork { boundary: Arc::clone(&boundary), world: Arc::clone(world) }),
            jitter_seed: Some(world.plan.seed),
            firmware: Some(Arc::new(WorldFirmware {
                boundary: Arc::clone(&boundary),
                world: Arc::clone(world),
            })),
        };
        let listen = self.settings.controller_http_addr;
        let dependencies = Dependencies {
            settings: &self.settings,
            keys: &self.keys,
            store: &store,
            registry: &None,
            addresses: Addresses {
                api: listen,
                media: listen,
                api_tls: None,
                media_tls: None,
                plain_api: true,
                public_url: self.settings.controller_public_url.clone(),
                media_base_url: self.settings.media_base_url.clone(),
            },
            certificates: None,
            environment: &environment,
        };
        let stop = CancellationToken::new();
        let Controller { engine, api, feed } = Controller::assemble(dependencies, &instance, stop.clone())?;
        let dispatcher = world.plan.webhook.then(|| {
            let transport =
                Arc::new(ReceiverTransport { boundary: Arc::clone(&boundary), world: Arc::clone(world) });
            let (resolver, metrics) = (Arc::clone(&api.resolver), Arc::clone(&api.metrics));
            WebhookDispatcher::with_transport(store.clone(), Arc::clone(&clock), resolver, metrics, transport)
        });
        boundary.explain_by(engine.workflows().clone());
        world.set_endpoint(Some((api::router(api::Api::new(api), None), Arc::clone(&boundary))));
        let (stopped, its_clock) = (stop.clone(), Arc::clone(&clock));
        let engine_task = tokio::spawn(async move {
            let begins = async {
                store.resume_clock(&*its_clock).await?;
                store.begin_instance(instance, its_clock.now(), Some(Arc::clone(&its_clock))).await
            };
            match begins.await {
                Ok(last_seen) => engine.resume_after(last_seen),
                Err(why) => tracing::debug!(%why, "the start of the controller instance was not stored"),
            }
            engine.run(take_over, stop).await;
        });
        let feed_task = tokio::spawn(async move { feed.run().await });
        let webhook_task = dispatcher.map(|dispatcher| tokio::spawn(dispatcher.run(stopped)));
        let tasks = [engine_task, feed_task].into_iter().chain(webhook_task).collect();
        Ok(LiveController { boundary, clock, started: world.clock.passed(), tasks })
    }
}

async fn ended(death: Option<CancellationToken>) {
    match death {
        Some(death) => death.cancelled().await,
        None => std::future::pending().await,
    }
}

/// The settings of every controller of a world.
#[expect(clippy::expect_used, reason = "the flags are constants; every world would fail if one was wrong")]
fn settings(world: &World) -> Settings {
    let folder = world.folder.display();
    let flags = [
        ("STORAGE_ROOT", format!("{folder}/data")),
        ("CONTROLLER_HTTP_ADDR", "127.0.0.1:8080".to_owned()),
        ("CONTROLLER_HTTPS_ADDR", "off".to_owned()),
        ("CONTROLLER_PUBLIC_URL", "http://10.0.0.1:8080".to_owned()),
        ("MEDIA_BASE_URL", "http://10.0.0.1:8080".to_owned()),
        ("MAINTENANCE_ISO_URL", format!("{folder}/maintenance.iso")),
        ("ESXI_INSTALLER_URL", format!("{folder}/maintenance.iso")),
        ("ENABLE_REGISTRY", "false".to_owned()),
        ("AUTH_MODE", "none".to_owned()),
        ("WORKER_CONCURRENCY", world.plan.workers.to_string()),
        ("JOB_STUCK_TIMEOUT", "3h".to_owned()),
        ("JOB_LEASE_TTL", "5m".to_owned()),
    ];
    Settings::load(&Sources {
        flags: flags.into_iter().map(|(name, text)| (name.to_owned(), text)).collect(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })
    .expect("the settings of a world are valid")
}

#[expect(clippy::expect_used, reason = "64 hex digits are a valid key")]
fn key(seed: u64) -> MasterKey {
    MasterKey::from_hex(&SecretString::from(format!("{seed:064x}"))).expect("64 hex digits are a valid key")
}
