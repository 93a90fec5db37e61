//! The twin itself: a handle that takes requests, keeps the state and lets time pass.
//!
//! ```text
//!   connect ─ fault? ─ taken, cut, or another handshake
//!   handle ── Call::understand ── fault? ─┬─ before: Status, Raw, Answer, RateLimit, Hang, Drop, Reset, BmcRestart
//!                                         └─ carry_out (a task of its own for mutations)
//!                                               delay ─ authenticate ─ method ─ read or action ─ mangle
//!   settle ── timer of zero: at once, else a task that sleeps and holds the twin weakly
//! ```
//!
//! Invariants
//! - The mutex is never held while the [`Host`], the media reader or a timer runs.
//! - Each request ends in exactly one journal entry, even when the client goes away.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    boot,
    call::Call,
    config::SimBmcConfig,
    faults::{Circumstances, Effect, Fault},
    host::{BootContext, BootSource, Host},
    journal::{Change, Entry, JournalItem},
    media_reader::MediaReader,
    power::{Elapsed, Running, Timer},
    reply::{Refused, Reply},
    resources::View,
    response_faults::{canned, mangle},
    routes::Paths,
    state::{NextBoot, SimBmcSnapshot, State},
    tls::Certificates,
};

/// There is no answer: the connection is to be cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConnectionCut {
    /// Before the request: nobody listens.
    #[error("the twin takes no connection")]
    Refused,
    /// After the request.
    #[error("the twin closed the connection without an answer")]
    Closed,
    /// After the request, or in the middle of the answer.
    #[error("the twin reset the connection")]
    Reset,
    /// Before the request: there is no common version of TLS.
    #[error("the TLS handshake with the twin failed")]
    Handshake,
}

pub(super) struct Inner {
    pub(super) config: SimBmcConfig,
    pub(super) certificates: Certificates,
    paths: Paths,
    pub(super) media: Arc<dyn MediaReader>,
    pub(super) host: Arc<dyn Host>,
    state: Mutex<State>,
    changed: Notify,
    started: Instant,
}

/// A simulated BMC. Clones are handles to the same one.
#[derive(Clone)]
pub struct SimBmc {
    pub(super) inner: Arc<Inner>,
}

impl fmt::Debug for SimBmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimBmc").field("serial", &self.inner.config.serial).finish_non_exhaustive()
    }
}

/// Why a connection is not taken as it should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Connection {
    /// Cut at once.
    Cut,
    /// Cut in the handshake, where there is one.
    FailHandshake,
    /// Refused in the handshake as by a server that ends at TLS 1.0, where there is one.
    LegacyTls,
}

/// A handle that does not keep the twin alive.
#[derive(Clone)]
pub(super) struct WeakSimBmc(Weak<Inner>);

impl fmt::Debug for WeakSimBmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSimBmc")
    }
}

impl WeakSimBmc {
    pub(super) fn host_stops(&self, generation: u64, restart: bool) {
        if let Some(inner) = self.0.upgrade() {
            SimBmc { inner }.host_stops(generation, restart);
        }
    }
}

impl SimBmc {
    /// A new twin. `host` and `media` are shared by as many twins as the embedding program likes.
    pub fn new(config: SimBmcConfig, host: Arc<dyn Host>, media: Arc<dyn MediaReader>) -> Self {
        let state = Mutex::new(State::new(&config));
        let (changed, started) = (Notify::new(), Instant::now());
        let (certificates, paths) = (Certificates::default(), Paths::new(&config));
        Self { inner: Arc::new(Inner { config, certificates, paths, media, host, state, changed, started }) }
    }

    /// What the twin is.
    pub fn config(&self) -> &SimBmcConfig {
        &self.inner.config
    }

    /// Takes one request and answers it as the BMC would.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ConnectionCut> {
        let call = Arc::new(Call::understand(&self.inner.config, &self.inner.paths, request));
        let mut flight = Flight::begin(self, &call);
        let effect = {
            let mut state = self.state();
            if !state.reachable {
                return Err(ConnectionCut::Refused);
            }
            let now = self.circumstances(&state);
            state.faults.strike(Some(&call), &now)
        };
        let errors = &self.inner.config.errors;
        let mut reply = match &effect {
            Some(Effect::Drop | Effect::FailHandshake | Effect::LegacyTls) => {
                return Err(ConnectionCut::Closed);
            }
            Some(Effect::Reset) => return Err(ConnectionCut::Reset),
            Some(Effect::Hang) => return Err(self.hang().await),
            Some(Effect::BmcRestart(time)) => {
                self.restart_bmc(*time);
                return Err(ConnectionCut::Closed);
            }
            Some(Effect::Status { status, message_id, message }) => {
                let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Refused::new(status, message_id, message).reply(errors)
            }
            Some(Effect::Raw { status, content_type, body }) => Reply::raw(*status, content_type, body),
            Some(Effect::Answer { status, headers, body }) => canned(*status, headers, body),
            Some(Effect::RateLimit { retry_after_seconds }) => {
                rate_limited(*retry_after_seconds).reply(errors)
            }
            effect => self.carry_out(&call, effect.clone()).await,
        };
        match &effect {
            Some(Effect::ApplyButTimeout) => return Err(self.hang().await),
            Some(Effect::ApplyButDrop) => return Err(ConnectionCut::Closed),
            Some(effect) => reply = mangle(reply, effect),
            None => {}
        }
        flight.status = Some(reply.status.as_u16());
        Ok(reply.into_response(&call.method))
    }

    /// A new connection: whether it is taken as it should be.
    pub(super) fn connect(&self) -> Result<(), Connection> {
        let mut state = self.state();
        if !state.reachable {
            return Err(Connection::Cut);
        }
        let now = self.circumstances(&state);
        match state.faults.strike(None, &now) {
            Some(Effect::Drop | Effect::Reset) => Err(Connection::Cut),
            Some(Effect::FailHandshake) => Err(Connection::FailHandshake),
            Some(Effect::LegacyTls) => Err(Connection::LegacyTls),
            Some(Effect::NewCertificate) => {
                state.certificate += 1;
                Ok(())
            }
            _ if self.inner.config.service.legacy_tls => Err(Connection::LegacyTls),
            _ => Ok(()),
        }
    }

    fn circumstances(&self, state: &State) -> Circumstances {
        Circumstances {
            power: state.machine.power(),
            media: state.slots.iter().any(|slot| slot.medium.is_some()),
            override_set: state.boot.enabled != boot::OverrideEnabled::Disabled || state.next_boot.is_some(),
            power_ons: state.machine.power_ons,
            at: self.elapsed(),
        }
    }

    // === What a test or a simulated data centre does with it ===

    /// The state now.
    pub fn snapshot(&self) -> SimBmcSnapshot {
        self.state().snapshot(&self.inner.config)
    }

    /// Waits, as long as it takes, for a state; returns it. Bound it with `tokio::time::timeout`.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&SimBmcSnapshot) -> bool) -> SimBmcSnapshot {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change falls between the look and the wait.
            changed.as_mut().enable();
            let snapshot = self.snapshot();
            if wanted(&snapshot) {
                return snapshot;
            }
            changed.await;
        }
    }

    /// All the journal holds, oldest first.
    pub fn journal(&self) -> Vec<Entry> {
        self.state().journal.entries().cloned().collect()
    }

    /// The requests meant to change the host, a slot or the boot override, whatever their answer.
    pub fn mutations(&self) -> Vec<Entry> {
        let is_mutation = |what: &JournalItem| matches!(what, JournalItem::Request { operation, .. } if operation.is_mutation());
        self.state().journal.entries().filter(|entry| is_mutation(&entry.what)).cloned().collect()
    }

    /// How many boots were from media.
    pub fn boots_from_media(&self) -> u64 {
        self.state().counters.boots_from_media
    }

    /// How often the power came on, restarts included.
    pub fn power_ons(&self) -> u64 {
        self.state().machine.power_ons
    }

    /// How often a medium was taken from an operating system that was booted with it.
    pub fn ejected_while_running(&self) -> u64 {
        self.state().counters.ejected_while_running
    }

    /// Adds a fault behind those in force.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.add(fault);
    }

    /// The faults that can still strike.
    pub fn faults(&self) -> Vec<Fault> {
        self.state().faults.list()
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// An unreachable twin takes no connection and cuts those it has; its host runs on.
    pub fn set_reachable(&self, reachable: bool) {
        self.state().reachable = reachable;
        self.notify();
    }

    /// From now on there is another certificate.
    pub fn renew_certificate(&self) {
        self.state().certificate += 1;
    }

    /// The BMC restarts: sessions, media, boot override and tasks are lost, the host runs on.
    pub fn reset_bmc(&self) {
        let config = &self.inner.config;
        let mut state = self.state();
        state.sessions.clear();
        state.tasks.clear();
        state.enabled = None;
        state.next_boot = None;
        self.lose_media(&mut state);
        let mode = config.boot.modes.first().map_or("UEFI", String::as_str);
        state.boot = boot::BootOverride::none(mode);
        state.system_revision += 1;
        drop(state);
        self.notify();
    }

    /// The same, and the BMC takes no connection for this long.
    pub fn restart_bmc(&self, time: Duration) {
        self.reset_bmc();
        self.set_reachable(false);
        let twin = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(inner) = twin.upgrade() {
                Self { inner }.set_reachable(true);
            }
        });
    }

    pub(super) fn lose_media(&self, state: &mut State) {
        let at = self.elapsed();
        for index in 0..state.slots.len() {
            if state.slots[index].medium.is_some() {
                self.remove_medium(state, index, at);
            }
        }
    }

    // === Requests ===

    /// Delay, credentials, method, then the thing itself. Mutations run in a task of their own: a BMC finishes what
    /// it began although nobody waits for the answer.
    async fn carry_out(&self, call: &Arc<Call>, effect: Option<Effect>) -> Reply {
        if !call.operation.is_mutation() {
            return self.answer(call, effect).await;
        }
        let (twin, call) = (self.clone(), Arc::clone(call));
        match tokio::spawn(async move { twin.answer(&call, effect).await }).await {
            Ok(reply) => reply,
            Err(_) => Refused::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "The request failed due to an internal service error. The service is still operational.",
            )
            .reply(&self.inner.config.errors),
        }
    }

    async fn hang(&self) -> ConnectionCut {
        tokio::time::sleep(self.inner.config.hang_limit).await;
        ConnectionCut::Closed
    }

    // === State, time and the host ===

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not silence the twin: the state is plain data and valid after every statement.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.inner.started.elapsed()
    }

    pub(super) fn notify(&self) {
        self.inner.changed.notify_waiters();
    }

    /// Tells those who wait, when something that takes this long will be over.
    pub(super) fn notify_after(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let twin = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(inner) = twin.upgrade() {
                Self { inner }.notify();
            }
        });
    }

    /// Waits until connections are taken, or are not.
    pub(super) async fn until_reachable(&self, wanted: bool) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state().reachable == wanted {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn view<T>(&self, serial: &str, show: impl FnOnce(&View<'_>) -> T) -> T {
        let config = &self.inner.config;
        let now = config.started_at.checked_add(self.elapsed()).unwrap_or(config.started_at);
        show(&View { config, state: &self.state(), serial, now, at: self.elapsed() })
    }

    /// Changes the machine and tells everyone what came of it.
    pub(super) fn drive<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let at = self.elapsed();
        let mut state = self.state();
        let (power, power_ons) = (state.machine.power(), state.machine.power_ons);
        let was_running = state.machine.running.is_some();
        let result = act(&mut state);
        let stopped = was_running && state.machine.running.is_none();
        if state.machine.power_ons != power_ons {
            state.last_reset = Some(at);
            if self.inner.config.media.lost_at_power_on {
                self.lose_media(&mut state);
            }
        }
        if state.machine.power() != power {
            let now = state.machine.power();
            state.log_power(at);
            state.system_revision += 1;
            state.changed(at, Change::Power(now));
        }
        drop(state);
        if stopped {
            self.inner.host.power_off(&self.inner.config.serial);
        }
        self.notify();
        result
    }

    /// Lets a timer run out: at once if it is due now, else in a task.
    pub(super) fn settle(&self, mut timer: Option<Timer>) {
        while let Some(due) = timer {
            if !due.after.is_zero() {
                let twin = Arc::downgrade(&self.inner);
                tokio::spawn(async move {
                    tokio::time::sleep(due.after).await;
                    if let Some(inner) = twin.upgrade() {
                        let twin = Self { inner };
                        let next = twin.elapse(due.epoch);
                        twin.settle(next);
                    }
                });
                return;
            }
            timer = self.elapse(due.epoch);
        }
    }

    fn elapse(&self, epoch: u64) -> Option<Timer> {
        let config = &self.inner.config;
        let at = self.elapsed();
        let (timer, boot) = self.drive(|state| match state.machine.elapse(epoch, &config.power) {
            Elapsed::Stale | Elapsed::Off => (None, None),
            Elapsed::ShutDown(next) | Elapsed::OffAndOn(next) => (Some(next), None),
            Elapsed::Boot => (None, Some(self.boot(state, at))),
        });
        if let Some(boot) = boot {
            self.inner.host.power_on(boot);
        }
        timer
    }

    /// The end of Post: the firmware chooses, the override is consumed, the host starts.
    pub(super) fn boot(&self, state: &mut State, at: Duration) -> BootContext {
        let config = &self.inner.config;
        let media = state.inserted(config, at);
        let candidates = state.candidates(config, at);
        let chosen = match state.next_boot.take() {
            Some(NextBoot::First(kind)) => boot::first(&candidates, |other| other == kind, &config.boot),
            Some(NextBoot::Slot(index)) => {
                Some(index).filter(|&index| candidates[index].bootable == Some(true))
            }
            None => boot::choose(&state.boot, &candidates, &config.boot),
        };
        let source = chosen
            .and_then(|index| {
                let url = state.slots[index].attached(at)?.url.clone();
                Some(BootSource::Media { slot: config.slots[index].id.clone(), url })
            })
            .unwrap_or(BootSource::Disk);
        let slots = match &source {
            // What runs from the disk is not hurt by an eject.
            BootSource::Disk => Vec::new(),
            BootSource::Media { .. } => {
                (0..state.slots.len()).filter(|&index| state.slots[index].attached(at).is_some()).collect()
            }
        };
        match &source {
            BootSource::Disk => {
                state.counters.boots_from_disk += 1;
                state.changed(at, Change::BootedDisk);
            }
            BootSource::Media { slot, .. } => {
                state.counters.boots_from_media += 1;
                state.changed(at, Change::BootedMedia { slot: slot.clone() });
            }
        }
        let before = state.boot.clone();
        state.boot.consume();
        if state.boot != before {
            let (target, enabled) = (state.boot.target.clone(), state.boot.enabled.as_str());
            state.changed(at, Change::BootOverride { target, enabled });
        }
        let cancel = CancellationToken::new();
        let running = Running { source: source.clone(), slots, cancel: cancel.clone() };
        let generation = state.machine.started(running);
        let machine = WeakSimBmc(Arc::downgrade(&self.inner));
        BootContext { serial: config.serial.clone(), boots_from: source, media, cancel, generation, machine }
    }

    fn host_stops(&self, generation: u64, restart: bool) {
        let at = self.elapsed();
        let timer = self.drive(|state| {
            let timer = state.machine.host_stops(generation, restart, &self.inner.config.power)?;
            state.changed(at, Change::HostStopped { restart });
            Some(timer)
        });
        self.settle(timer);
    }

    /// Takes a medium out of a slot that has one.
    pub(super) fn remove_medium(&self, state: &mut State, index: usize, at: Duration) {
        let slot = self.inner.config.slots[index].id.clone();
        if state.machine.running.as_ref().is_some_and(|running| running.slots.contains(&index)) {
            state.counters.ejected_while_running += 1;
            state.changed(at, Change::EjectedWhileRunning { slot: slot.clone() });
        }
        let gone = state.slots[index].medium.take();
        state.slots[index].last = gone.map(|medium| (medium.url, at));
        state.slots[index].revision += 1;
        state.changed(at, Change::Ejected { slot });
    }
}

fn rate_limited(retry_after_seconds: Option<u64>) -> Refused {
    let refused = Refused::new(
        StatusCode::TOO_MANY_REQUESTS,
        "ServiceTemporarilyUnavailable",
        "The service is temporarily unavailable. Retry later.",
    );
    match retry_after_seconds {
        Some(seconds) => refused.with(header::RETRY_AFTER, seconds.to_string()),
        None => refused,
    }
}

/// A request under way; its end is journalled however it ends.
struct Flight {
    twin: SimBmc,
    call: Arc<Call>,
    status: Option<u16>,
}

impl Flight {
    fn begin(twin: &SimBmc, call: &Arc<Call>) -> Self {
        twin.state().begin(call.operation);
        twin.notify();
        Self { twin: twin.clone(), call: Arc::clone(call), status: None }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let at = self.twin.elapsed();
        let mut state = self.twin.state();
        state.end(self.call.operation);
        state.journal.add(
            at,
            JournalItem::Request {
                method: self.call.method.to_string(),
                path: self.call.path.clone(),
                operation: self.call.operation,
                status: self.status,
            },
        );
        drop(state);
        self.twin.notify();
    }
}
