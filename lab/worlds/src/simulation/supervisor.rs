//! The controllers of a world: one at a time, mostly.
//!
//! ```text
//!   begin -> alive --crash--> dead --downtime--> the next one, over the same database, takes over
//!               \--freeze--> stands still; another one begins beside it --thaw--> both --> the first one is ended
//! ```

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::boundary::Boundary;
use super::clock::WorldWallClock;
use super::network::BmcNetwork;
use super::receiver::ReceiverTransport;
use super::rng::WorldRng;
use super::world::{ControllerFault, World};
use controller::app::{Controller, Dependencies, Environment};
use controller::config::{Settings, Sources};
use controller::webhooks::WebhookDispatcher;
use engine::model::{Clock, IdSource, SteadyClock};
use engine::store::{Store, TakeOver};
use provision::Addresses;
use secrets::MasterKey;

/// Within this time a controller that begins has taken over what its predecessor held.
const TAKEN_OVER: Duration = Duration::from_secs(1);

/// Who is in charge.
pub(super) struct Supervisor {
    world: Arc<World>,
    rng: WorldRng,
    settings: Settings,
    key: MasterKey,
    count: u64,
    current: Option<LiveController>,
    /// One that stood still and came back.
    zombies: Vec<LiveController>,
}

/// A controller at work.
struct LiveController {
    boundary: Arc<Boundary>,
    clock: Arc<dyn Clock>,
    /// When it began, in the time of the world.
    began: Duration,
    tasks: Vec<JoinHandle<()>>,
}

impl LiveController {
    /// Whether its clock has caught up with the wall's. While it has not, its leases look older than they are to whoever
    /// starts beside it with the wall's time: that is known, and not played.
    fn on_time(&self, world: &World) -> bool {
        let (ours, wall) = (self.clock.now(), WorldWallClock(Arc::clone(&world.clock)).now());
        wall.since(ours).max(ours.since(wall)) < Duration::from_secs(30)
    }

    /// Whether another one can start beside it. Who was alone when it began takes over everything, because the file lock that
    /// it gained kept all others out; one that is started before that was done would find the lock held and end.
    fn has_taken_over(&self, world: &World) -> bool {
        world.clock.passed() >= self.began + TAKEN_OVER
    }

    /// It is gone, with everything it was doing.
    fn end(&self) {
        self.boundary.end();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Supervisor {
    /// The first controller begins.
    pub(super) async fn begin(world: &Arc<World>) -> Self {
        let mut supervisor = Self {
            rng: WorldRng::keyed(world.plan.seed, STREAM),
            settings: settings(world),
            key: key(world.plan.seed),
            count: 0,
            current: None,
            zombies: Vec::new(),
            world: Arc::clone(world),
        };
        supervisor.start_next(TakeOver::Everything);
        supervisor
    }

    /// Waits for the next fault and deals with it.
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
                self.world.note("crash, now");
                self.restart_later().await;
            }
            None => self.restart_later().await,
        }
    }

    /// The current one is dead: after a while the next one begins.
    async fn restart_later(&mut self) {
        self.world.set_endpoint(None);
        if let Some(live) = self.current.take() {
            live.end();
        }
        self.lose_all_sessions();
        tokio::time::sleep(self.rng.time(Duration::ZERO, Duration::from_secs(300))).await;
        self.start_next(TakeOver::Everything);
    }

    /// The current one stands still. Somebody starts another one beside it, and later it wakes up. The end of all fault may
    /// come at any await here: who stands still is then where [`Supervisor::settle`] finds it, or it would be asked for ever.
    async fn pause_current(&mut self, time: Duration) {
        let Some(live) = &self.current else { return };
        let boundary = Arc::clone(&live.boundary);
        let alone = !live.on_time(&self.world) || !live.has_taken_over(&self.world);
        self.world.note(&format!("{} stands still for {} s", boundary.owner, time.as_secs()));
        boundary.set_paused(true);
        self.lose_all_sessions();
        if self.rng.below(3) == 0 || alone {
            // Nobody notices.
            tokio::time::sleep(time).await;
            boundary.set_paused(false);
            return;
        }
        self.zombies.extend(self.current.take());
        self.world.set_endpoint(None);
        tokio::time::sleep(self.rng.seconds(0, 20)).await;
        self.start_next(TakeOver::ExpiredOnly);
        tokio::time::sleep(time).await;
        self.zombies.iter().for_each(|live| live.boundary.set_paused(false));
        self.world.note("who stood still goes on");
        tokio::time::sleep(self.rng.seconds(1, 600)).await;
        self.zombies.drain(..).for_each(|live| live.end());
    }

    /// All fault is over: exactly one controller, in good health.
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

    /// Waits for the end of the current one.
    pub(super) async fn died(&self) {
        ended(self.current.as_ref().map(|live| live.boundary.death.clone())).await;
    }

    /// Nobody is in charge any more.
    pub(super) fn end(&mut self) {
        self.world.set_endpoint(None);
        self.current.take().iter().for_each(LiveController::end);
    }

    /// A session that was opened and not yet written down is one that nobody can close.
    fn lose_all_sessions(&self) {
        self.world.bmcs().for_each(|(serial, _)| self.world.sessions_lost(&serial));
    }

    /// The next controller begins.
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
        let boundary = Boundary::new(world, format!("controller-{instance}"), self.count);
        world.note(&format!("{} begins ({take_over:?})", boundary.owner));
        let store = Store::open_in_place(&world.memory, Arc::clone(&boundary) as _, clock.now())?;
        let environment = Environment {
            clock: Arc::clone(&clock),
            id_source: Arc::clone(&world.id_source) as Arc<dyn IdSource>,
            connector: Arc::new(BmcNetwork { boundary: Arc::clone(&boundary), world: Arc::clone(world) }),
            jitter_seed: Some(world.plan.seed),
        };
        let listen = self.settings.controller_http_addr;
        let dependencies = Dependencies {
            settings: &self.settings,
            key: &self.key,
            store: &store,
            registry: &None,
            addresses: Addresses {
                api: listen,
                media: listen,
                public_url: self.settings.controller_public_url.clone(),
                media_base_url: self.settings.media_base_url.clone(),
            },
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
        world.set_endpoint(Some((controller::api::router(api, None), Arc::clone(&boundary))));
        let (stopped, now) = (stop.clone(), clock.now());
        let work = tokio::spawn(async move {
            if let Err(why) = store.begin_instance(instance, now).await {
                tracing::debug!(%why, "the beginning was not written down");
            }
            engine.run(take_over, stop).await;
        });
        let feeding = tokio::spawn(async move { feed.run().await });
        let posting = dispatcher.map(|dispatcher| tokio::spawn(dispatcher.run(stopped)));
        let tasks = [work, feeding].into_iter().chain(posting).collect();
        Ok(LiveController { boundary, clock, began: world.clock.passed(), tasks })
    }
}

async fn ended(death: Option<CancellationToken>) {
    match death {
        Some(death) => death.cancelled().await,
        None => std::future::pending().await,
    }
}

/// The settings of every controller of a world.
#[expect(
    clippy::expect_used,
    reason = "the flags are constants; the test of every world would find a wrong one"
)]
fn settings(world: &World) -> Settings {
    let folder = world.folder.display();
    let flags = [
        ("STORAGE_ROOT", format!("{folder}/data")),
        ("CONTROLLER_HTTP_ADDR", "127.0.0.1:8080".to_owned()),
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
        file: None,
    })
    .expect("the settings of a world are good")
}

#[expect(clippy::expect_used, reason = "64 digits are a key")]
fn key(seed: u64) -> MasterKey {
    MasterKey::from_hex(&SecretString::from(format!("{seed:064x}"))).expect("a key of 64 digits")
}
