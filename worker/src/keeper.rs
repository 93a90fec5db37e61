//! The memory of a worker elsewhere: the calls that it has, and the records of their servers with sealed passwords.
//!
//! Invariants: a password is sealed, with a key that was made at the start of the process, before anything else sees it; the
//! record of a server is dropped when no call needs it and its connection was idle for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use secrecy::SecretString;

use super::messages::{Parcel, ServerRecord};
use bmc::{SealedSession, ServerLookup, SessionStore, Unavailable};
use engine::{CallKey, StepCall};
use model::{Clock, RunId, Serial, Server, Snapshot, error_chain};
use secrets::Resolver;

/// How long the connection to a BMC stays after its last call: a run that waits for a BMC comes back soon.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// The calls and servers of a worker.
pub(super) struct Keeper {
    resolver: Resolver,
    clock: Arc<dyn Clock>,
    calls: Mutex<HashMap<RunId, HeldCall>>,
    servers: Mutex<HashMap<Serial, KnownServer>>,
    sessions: Mutex<HashMap<Serial, SealedSession>>,
}

/// A call that the worker has.
#[derive(Clone)]
pub(super) struct HeldCall {
    pub(super) key: CallKey,
    pub(super) snapshot: Arc<Snapshot>,
}

struct KnownServer {
    record: Result<Server, String>,
    /// When its last call began or ended, in elapsed time.
    used: Duration,
}

impl Keeper {
    pub(super) fn new(resolver: Resolver, clock: Arc<dyn Clock>) -> Self {
        let (calls, servers, sessions) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { resolver, clock, calls, servers, sessions }
    }

    /// Keeps a call with its server, and returns it for the worker.
    pub(super) fn take(&self, parcel: Parcel) -> StepCall {
        let call = parcel.call.call();
        if let Some(server) = parcel.server {
            let serial = server.serial.clone();
            let known = KnownServer { record: self.sealed(server), used: self.clock.elapsed() };
            self.servers.lock().insert(serial, known);
        }
        let held = HeldCall { key: CallKey::of(&call), snapshot: Arc::clone(&call.snapshot) };
        self.calls.lock().insert(call.snapshot.run.id, held);
        call
    }

    /// The record of a server with its password sealed by the key of this process.
    fn sealed(&self, record: ServerRecord) -> Result<Server, String> {
        let password = SecretString::from(record.password.clone()?.reveal());
        let sealed = self.resolver.seal(record.serial.as_str(), &password);
        let sealed =
            sealed.map_err(|why| format!("the BMC password cannot be sealed: {}", error_chain(&why)))?;
        Ok(record.server(sealed.to_string(), self.clock.now()))
    }

    /// Forgets a claim that has ended.
    pub(super) fn done(&self, run: RunId, epoch: i64) {
        let mut calls = self.calls.lock();
        let Some(held) = calls.get(&run).filter(|held| held.key.epoch == epoch) else { return };
        let serial = held.snapshot.run.server.clone();
        calls.remove(&run);
        drop(calls);
        if let Some(serial) = serial
            && let Some(known) = self.servers.lock().get_mut(&serial)
        {
            known.used = self.clock.elapsed();
        }
    }

    /// A call that satisfies a condition.
    pub(super) fn call_where(&self, wanted: impl Fn(&Snapshot) -> bool) -> Option<HeldCall> {
        self.calls.lock().values().find(|held| wanted(&held.snapshot)).cloned()
    }

    /// Takes out the servers that no call needs and that were idle for [`IDLE`].
    pub(super) fn idle(&self) -> Vec<Serial> {
        let calls = self.calls.lock();
        let used =
            |serial: &Serial| calls.values().any(|held| held.snapshot.run.server.as_ref() == Some(serial));
        let now = self.clock.elapsed();
        let mut servers = self.servers.lock();
        let idle =
            servers.iter().filter(|(serial, known)| now.saturating_sub(known.used) >= IDLE && !used(serial));
        let idle: Vec<Serial> = idle.map(|(serial, _)| serial.clone()).collect();
        for serial in &idle {
            servers.remove(serial);
        }
        idle
    }
}

/// The servers of the calls.
pub(super) struct KeptServers(pub(super) Arc<Keeper>);

#[async_trait]
impl ServerLookup for KeptServers {
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable> {
        match self.0.servers.lock().get(serial).map(|known| known.record.clone()) {
            Some(Ok(server)) => Ok(Some(server)),
            Some(Err(why)) => Err(Unavailable(why)),
            None => Ok(None),
        }
    }
}

/// The BMC sessions of this process. They are in memory: those of a worker that was killed time out at their BMCs.
pub(super) struct KeptSessions(pub(super) Arc<Keeper>);

#[async_trait]
impl SessionStore for KeptSessions {
    async fn save(&self, server: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable> {
        let mut sessions = self.0.sessions.lock();
        match session {
            Some(session) => sessions.insert(server.clone(), session),
            None => sessions.remove(server),
        };
        Ok(())
    }

    async fn load(&self, server: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        Ok(self.0.sessions.lock().get(server).cloned())
    }

    async fn list(&self) -> Result<Vec<Serial>, Unavailable> {
        Ok(self.0.sessions.lock().keys().cloned().collect())
    }
}
