//! The simulated BMC: a handle that takes requests, holds the state and runs the timers.
//!
//! ```text
//!   connect ─ fault? ─ accepted, cut, or a failing handshake
//!   handle ── Call::parse ── fault? ─┬─ before: Status, Raw, Answer, RateLimit, Hang, Drop, Reset, BmcRestart
//!                                    └─ carry_out (a separate task for mutations)
//!                                          delay ─ authenticate ─ method ─ read or action ─ apply_effect
//!   settle ── timer of zero: at once, else a task that sleeps and holds a weak handle
//! ```
//!
//! Invariants
//! - The mutex is never held while the [`Host`], the media reader or a timer runs.
//! - Each request ends in exactly one journal entry, even when the client goes away.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    boot,
    call::Call,
    config::SimBmcConfig,
    fault_list::FaultContext,
    faults::{Fault, FaultEffect},
    host::{BootContext, BootSource, Host, HostControl},
    journal::{JournalEntry, JournalItem, StateChange},
    media_reader::MediaReader,
    power::{Elapsed, Running, Timer},
    reply::{ErrorReply, Reply},
    resources::View,
    response_faults::{apply_effect, canned},
    routes::{Paths, Resource},
    state::{NextBoot, SimBmcSnapshot, State},
    tls::Certificates,
    types::OverrideEnabled,
};

/// The request gets no response: the connection is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConnectionCut {
    /// The connection was refused before the request.
    #[error("the simulated BMC refused the connection")]
    Refused,
    /// The connection was closed after the request.
    #[error("the simulated BMC closed the connection without a response")]
    Closed,
    /// The connection was reset after the request, or in the middle of the response.
    #[error("the simulated BMC reset the connection")]
    Reset,
    /// The handshake failed before the request: there is no common version of TLS.
    #[error("the TLS handshake with the simulated BMC failed")]
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

/// A simulated BMC. A clone is another handle to it.
#[derive(Clone)]
pub struct SimBmc {
    pub(super) inner: Arc<Inner>,
}

impl fmt::Debug for SimBmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimBmc").field("serial", &self.inner.config.serial).finish_non_exhaustive()
    }
}

/// The cut of a new connection by a fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Connection {
    /// The connection is cut at once.
    Cut,
    /// The TLS handshake is cut. A connection without TLS is accepted.
    FailHandshake,
    /// The TLS handshake fails as with a server limited to TLS 1.0. A connection without TLS is accepted.
    LegacyTls,
}

/// A handle that does not keep the simulated BMC alive.
#[derive(Clone)]
struct WeakSimBmc(Weak<Inner>);

impl fmt::Debug for WeakSimBmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSimBmc")
    }
}

impl HostControl for WeakSimBmc {
    fn host_stops(&self, generation: u64, restart: bool) {
        if let Some(inner) = self.0.upgrade() {
            SimBmc { inner }.host_stops(generation, restart);
        }
    }
}

impl SimBmc {
    /// Creates a simulated BMC. Any number of them may share `host` and `media`.
    pub fn new(config: SimBmcConfig, host: Arc<dyn Host>, media: Arc<dyn MediaReader>) -> Self {
        let state = Mutex::new(State::new(&config));
        let (changed, started) = (Notify::new(), Instant::now());
        let (certificates, paths) = (Certificates::default(), Paths::new(&config));
        Self { inner: Arc::new(Inner { config, certificates, paths, media, host, state, changed, started }) }
    }

    /// The identity and behaviour of this BMC.
    pub fn config(&self) -> &SimBmcConfig {
        &self.inner.config
    }

    /// Carries out one request and returns the response of the BMC.
    ///
    /// # Errors
    /// When the connection is cut without a response: the BMC is unreachable, or a fault in force says so.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ConnectionCut> {
        let call = Arc::new(Call::parse(&self.inner.config, &self.inner.paths, request));
        self.settle_update();
        let mut guard = RequestGuard::begin(self, &call);
        let effect = {
            let mut state = self.state();
            if !state.reachable {
                return Err(ConnectionCut::Refused);
            }
            let now = self.fault_context(&state);
            state.faults.apply(Some(&call), &now)
        };
        let errors = &self.inner.config.errors;
        let mut reply = match &effect {
            Some(FaultEffect::Drop | FaultEffect::FailHandshake | FaultEffect::LegacyTls) => {
                return Err(ConnectionCut::Closed);
            }
            Some(FaultEffect::Reset) => return Err(ConnectionCut::Reset),
            Some(FaultEffect::Hang) => return Err(self.hang().await),
            Some(FaultEffect::BmcRestart(time)) => {
                self.restart_bmc(*time);
                return Err(ConnectionCut::Closed);
            }
            Some(FaultEffect::Status { status, message_id, message }) => {
                let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                ErrorReply::new(status, message_id, message).reply(errors)
            }
            Some(FaultEffect::Raw { status, content_type, body }) => Reply::raw(*status, content_type, body),
            Some(FaultEffect::Answer { status, headers, body }) => canned(*status, headers, body),
            Some(FaultEffect::RateLimit { retry_after_seconds }) => {
                rate_limited(*retry_after_seconds).reply(errors)
            }
            effect => self.carry_out(&call, effect.clone()).await,
        };
        match &effect {
            Some(FaultEffect::ApplyButTimeout) => return Err(self.hang().await),
            Some(FaultEffect::ApplyButDrop) => return Err(ConnectionCut::Closed),
            Some(effect) => reply = apply_effect(reply, effect),
            None => {}
        }
        guard.status = Some(reply.status.as_u16());
        Ok(reply.into_response(&call.method))
    }

    /// Decides whether a new connection is accepted, and applies a fault for `FaultTrigger::Connect`.
    pub(super) fn connect(&self) -> Result<(), Connection> {
        let mut state = self.state();
        if !state.reachable {
            return Err(Connection::Cut);
        }
        let now = self.fault_context(&state);
        match state.faults.apply(None, &now) {
            Some(FaultEffect::Drop | FaultEffect::Reset) => Err(Connection::Cut),
            Some(FaultEffect::FailHandshake) => Err(Connection::FailHandshake),
            Some(FaultEffect::LegacyTls) => Err(Connection::LegacyTls),
            Some(FaultEffect::NewCertificate) => {
                state.certificate += 1;
                Ok(())
            }
            _ if self.inner.config.service.legacy_tls => Err(Connection::LegacyTls),
            _ => Ok(()),
        }
    }

    /// Whether a request is an upload of firmware, whose body is read as a stream.
    pub(super) fn takes_upload(&self, method: &http::Method, path: &str) -> bool {
        let resource = self.inner.paths.resolve(&self.inner.config, path);
        method == http::Method::POST
            && matches!(resource, Some(Resource::UpdateMultipart | Resource::UpdatePush))
    }

    /// The number of bytes after which a fault cuts an upload; `None` without such a fault.
    pub(super) fn upload_cut(&self, request: Request<Bytes>) -> Option<u64> {
        let call = Call::parse(&self.inner.config, &self.inner.paths, request);
        let mut state = self.state();
        let now = self.fault_context(&state);
        state.faults.cut_upload(&call, &now)
    }

    fn fault_context(&self, state: &State) -> FaultContext {
        FaultContext {
            power: state.machine.power(),
            media: state.slots.iter().any(|slot| slot.medium.is_some()),
            override_set: state.boot.enabled != OverrideEnabled::Disabled || state.next_boot.is_some(),
            power_ons: state.machine.power_ons,
            at: self.elapsed(),
        }
    }

    // === For tests and simulated data centres ===

    /// The current state.
    pub fn snapshot(&self) -> SimBmcSnapshot {
        self.state().snapshot(&self.inner.config)
    }

    /// Waits for a state without a limit of time and returns it. Bound the wait with `tokio::time::timeout`.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&SimBmcSnapshot) -> bool) -> SimBmcSnapshot {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read: a change between the read and the wait is not missed.
            changed.as_mut().enable();
            let snapshot = self.snapshot();
            if wanted(&snapshot) {
                return snapshot;
            }
            changed.await;
        }
    }

    /// The entries of the journal, oldest first.
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.state().journal.entries().cloned().collect()
    }

    /// The requests that would change the host, a slot or the boot override, with any status.
    pub fn mutations(&self) -> Vec<JournalEntry> {
        let is_mutation = |what: &JournalItem| matches!(what, JournalItem::Request { operation, .. } if operation.is_mutation());
        self.state().journal.entries().filter(|entry| is_mutation(&entry.what)).cloned().collect()
    }

    /// The number of boots from virtual media.
    pub fn boots_from_media(&self) -> u64 {
        self.state().counters.boots_from_media
    }

    /// The number of restarts of the BMC, those after its own update included.
    pub fn bmc_restarts(&self) -> u64 {
        self.state().counters.bmc_restarts
    }

    /// The number of power-ons of the host, restarts included.
    pub fn power_ons(&self) -> u64 {
        self.state().machine.power_ons
    }

    /// The number of media that were removed while an operating system booted with them was running.
    pub fn ejected_while_running(&self) -> u64 {
        self.state().counters.ejected_while_running
    }

    /// Adds a fault after those in force.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.add(fault);
    }

    /// The faults in force.
    pub fn faults(&self) -> Vec<Fault> {
        self.state().faults.list()
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// An unreachable BMC refuses connections and cuts open ones; its host keeps running.
    pub fn set_reachable(&self, reachable: bool) {
        self.state().reachable = reachable;
        self.notify();
    }

    /// Replaces the certificate.
    pub fn renew_certificate(&self) {
        self.state().certificate += 1;
    }

    /// Restarts the BMC: sessions, media, boot override and, at most vendors, tasks are lost, the host keeps running.
    pub fn reset_bmc(&self) {
        let config = &self.inner.config;
        let mut state = self.state();
        state.sessions.clear();
        if !config.update.keeps_tasks {
            state.tasks.clear();
        }
        state.updates.interrupt();
        state.enabled = None;
        state.next_boot = None;
        self.lose_media(&mut state);
        let mode = config.boot.modes.first().map_or("UEFI", String::as_str);
        state.boot = boot::OverrideState::none(mode);
        state.system_revision += 1;
        drop(state);
        self.notify();
    }

    /// Restarts the BMC, which then refuses connections for this long.
    pub fn restart_bmc(&self, time: Duration) {
        self.reset_bmc();
        let at = self.elapsed();
        let mut state = self.state();
        state.restart_manager(at + time);
        state.counters.bmc_restarts += 1;
        drop(state);
        self.refuse_for(time);
    }

    /// The server loses mains power for this long. BMC and host end at once; an image that is being written is lost, and so is every
    /// task. The BMC responds again when the power is back, and the host is off then.
    pub fn lose_power(&self, time: Duration) {
        self.set_reachable(false);
        self.reset_bmc();
        let at = self.elapsed();
        self.drive(|state| {
            state.tasks.clear();
            state.restart_manager(at + time);
            state.machine.lose_power();
        });
        self.refuse_for(time);
    }

    /// The host goes off at once, as by its power button; the BMC is not concerned.
    pub fn switch_host_off(&self) {
        self.drive(|state| state.machine.lose_power());
    }

    /// The host powers on, as by its power button; a host that is on stays as it is.
    pub fn switch_host_on(&self) {
        // The power button asks no BMC, so there is no refusal that a caller could read.
        let _on_already = self.reset_now(crate::ResetType::On);
    }

    fn refuse_for(&self, time: Duration) {
        self.set_reachable(false);
        let bmc = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(inner) = bmc.upgrade() {
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

    /// Carries out a request. A mutation runs in a separate task: a BMC finishes it even if the client no longer waits
    /// for the response.
    async fn carry_out(&self, call: &Arc<Call>, effect: Option<FaultEffect>) -> Reply {
        if !call.operation.is_mutation() {
            return self.respond(call, effect).await;
        }
        let (bmc, call) = (self.clone(), Arc::clone(call));
        match tokio::spawn(async move { bmc.respond(&call, effect).await }).await {
            Ok(reply) => reply,
            Err(_) => ErrorReply::new(
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
        self.inner.state.lock()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.inner.started.elapsed()
    }

    pub(super) fn notify(&self) {
        self.inner.changed.notify_waiters();
    }

    /// Wakes the waiters of [`SimBmc::wait_for`] after this time.
    pub(super) fn notify_after(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let bmc = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(inner) = bmc.upgrade() {
                Self { inner }.notify();
            }
        });
    }

    /// Waits until the BMC is reachable, or until it is not.
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

    /// Changes the state of the host and reports the result to the journal, the [`Host`] and the waiters.
    pub(super) fn drive<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let at = self.elapsed();
        let mut state = self.state();
        let (power, power_ons) = (state.machine.power(), state.machine.power_ons);
        let was_running = state.machine.running.is_some();
        let result = act(&mut state);
        let stopped = was_running && state.machine.running.is_none();
        let restarted = state.machine.power_ons != power_ons;
        if restarted {
            state.last_reset = Some(at);
            self.update_at_restart(&mut state, at);
            if self.inner.config.media.lost_at_power_on {
                self.lose_media(&mut state);
            }
        }
        if state.machine.power() != power {
            let now = state.machine.power();
            state.log_power(at);
            state.system_revision += 1;
            state.changed(at, StateChange::Power(now));
        }
        drop(state);
        if restarted {
            self.schedule_update();
        }
        if stopped {
            self.inner.host.power_off(&self.inner.config.serial);
        }
        self.notify();
        result
    }

    /// Runs a timer: at once if it is due, else in a task.
    pub(super) fn settle(&self, mut timer: Option<Timer>) {
        while let Some(due) = timer {
            if !due.after.is_zero() {
                let bmc = Arc::downgrade(&self.inner);
                tokio::spawn(async move {
                    tokio::time::sleep(due.after).await;
                    if let Some(inner) = bmc.upgrade() {
                        let bmc = Self { inner };
                        let next = bmc.elapse(due.epoch);
                        bmc.settle(next);
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

    /// The end of POST: the firmware chooses the boot source, the override is consumed, the host starts.
    pub(super) fn boot(&self, state: &mut State, at: Duration) -> BootContext {
        let config = &self.inner.config;
        state.apply_bios(config, at);
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
            // An eject does not affect a system that runs from the disk.
            BootSource::Disk => Vec::new(),
            BootSource::Media { .. } => {
                (0..state.slots.len()).filter(|&index| state.slots[index].attached(at).is_some()).collect()
            }
        };
        match &source {
            BootSource::Disk => {
                state.counters.boots_from_disk += 1;
                state.changed(at, StateChange::BootedDisk);
            }
            BootSource::Media { slot, .. } => {
                state.counters.boots_from_media += 1;
                state.changed(at, StateChange::BootedMedia { slot: slot.clone() });
            }
        }
        let before = state.boot.clone();
        state.boot.consume(&config.boot);
        if state.boot != before {
            let (target, enabled) = (state.boot.target.clone(), state.boot.enabled.as_str());
            state.changed(at, StateChange::BootOverride { target, enabled });
        }
        let cancel = CancellationToken::new();
        let running = Running { source: source.clone(), slots, cancel: cancel.clone() };
        let generation = state.machine.started(running);
        let machine = Arc::new(WeakSimBmc(Arc::downgrade(&self.inner)));
        BootContext { serial: config.serial.clone(), boots_from: source, media, cancel, generation, machine }
    }

    fn host_stops(&self, generation: u64, restart: bool) {
        let at = self.elapsed();
        let timer = self.drive(|state| {
            let timer = state.machine.host_stops(generation, restart, &self.inner.config.power)?;
            state.changed(at, StateChange::HostStopped { restart });
            Some(timer)
        });
        self.settle(timer);
    }

    /// Removes the medium from a slot that has one.
    pub(super) fn remove_medium(&self, state: &mut State, index: usize, at: Duration) {
        let slot = self.inner.config.slots[index].id.clone();
        if state.machine.running.as_ref().is_some_and(|running| running.slots.contains(&index)) {
            state.counters.ejected_while_running += 1;
            state.changed(at, StateChange::EjectedWhileRunning { slot: slot.clone() });
        }
        let gone = state.slots[index].medium.take();
        state.slots[index].last = gone.map(|medium| (medium.url, at));
        state.slots[index].revision += 1;
        state.changed(at, StateChange::Ejected { slot });
    }
}

fn rate_limited(retry_after_seconds: Option<u64>) -> ErrorReply {
    let refused = ErrorReply::new(
        StatusCode::TOO_MANY_REQUESTS,
        "ServiceTemporarilyUnavailable",
        "The service is temporarily unavailable. Retry later.",
    );
    match retry_after_seconds {
        Some(seconds) => refused.with(header::RETRY_AFTER, seconds.to_string()),
        None => refused,
    }
}

/// A request in flight; its end is recorded in the journal in every case.
struct RequestGuard {
    bmc: SimBmc,
    call: Arc<Call>,
    status: Option<u16>,
}

impl RequestGuard {
    fn begin(bmc: &SimBmc, call: &Arc<Call>) -> Self {
        bmc.state().begin(call.operation);
        bmc.notify();
        Self { bmc: bmc.clone(), call: Arc::clone(call), status: None }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let at = self.bmc.elapsed();
        let mut state = self.bmc.state();
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
        self.bmc.notify();
    }
}
