//! Admits connections and requests: the table of one listener, and the signals that close a connection for another one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::shares::Serves;
use super::table::{ConnectionId, Holder, Limits, Refusal, Table};
use access::auth::{Denial, Denials, Proof, Standing, TrustedProxies};
use model::Clock;
use settings::descriptors::DescriptorBudget;
use telemetry::Metrics;

/// The maximum of connections that are closed for others and still have their descriptor, before the next one is accepted.
const CLOSING: usize = 32;
/// The number of connections that are closed when the process has no descriptor.
const SHED: usize = 16;

/// The parts that the listeners of a controller share.
#[derive(Clone)]
pub(in crate::app) struct AdmissionParts {
    pub(in crate::app) budget: DescriptorBudget,
    pub(in crate::app) proxies: TrustedProxies,
    pub(in crate::app) denials: Arc<Denials>,
    pub(in crate::app) clock: Arc<dyn Clock>,
    /// Counts the refused requests.
    pub(in crate::app) metrics: Arc<Metrics>,
}

/// Admits the connections of one listener, or of several that share a budget.
#[derive(Clone)]
pub(in crate::app) struct Admission(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    parts: AdmissionParts,
    /// Connections that are closed for others and not gone yet.
    closing: AtomicUsize,
    gone: Notify,
}

struct State {
    table: Table,
    /// Closes a connection for another one.
    closers: HashMap<ConnectionId, CancellationToken>,
}

impl Admission {
    /// An admission for a listener.
    pub(in crate::app) fn new(parts: AdmissionParts, serves: Serves) -> Self {
        Self::with_limits(Limits::of(&parts.budget, serves), parts)
    }

    pub(super) fn with_limits(limits: Limits, parts: AdmissionParts) -> Self {
        let state = State { table: Table::new(limits), closers: HashMap::new() };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            parts,
            closing: AtomicUsize::new(0),
            gone: Notify::new(),
        }))
    }

    /// Waits until connections that were closed for others have released their descriptors. That takes no client.
    pub(in crate::app) async fn ready(&self) {
        loop {
            let gone = self.0.gone.notified();
            if self.0.closing.load(Ordering::Acquire) < CLOSING {
                return;
            }
            gone.await;
        }
    }

    /// Admits a new connection; an idle one may be closed for it. `None` when `peer` holds its share with requests in progress.
    pub(in crate::app) fn admit(&self, peer: SocketAddr) -> Option<ConnectionGuard> {
        let shared = Arc::clone(&self.0);
        let mut state = shared.state.lock();
        match state.table.admit(shared.holder(peer.ip())) {
            Ok((id, evicted)) => {
                shared.evict(&mut state, evicted);
                let closer = CancellationToken::new();
                state.closers.insert(id, closer.clone());
                drop(state);
                Some(ConnectionGuard(Arc::new(Connection {
                    shared,
                    id,
                    peer,
                    closer,
                    standing: Mutex::default(),
                    responded: AtomicBool::new(false),
                    unread: AtomicBool::new(false),
                })))
            }
            Err(why) => {
                drop(state);
                shared.denied(peer.ip(), why);
                None
            }
        }
    }

    /// Closes idle connections, because the process has no descriptor for a new one.
    pub(in crate::app) fn shed(&self) {
        let mut state = self.0.state.lock();
        for _ in 0..SHED {
            let evicted = state.table.shed();
            self.0.evict(&mut state, evicted);
        }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        self.0.state.lock().table.counts_for_test()
    }
}

impl Shared {
    /// Loopback and trusted proxies are addresses of many clients.
    fn holder(&self, address: IpAddr) -> Holder {
        let loopback = address.to_canonical().is_loopback();
        Holder::new(address, loopback || self.parts.proxies.contains(address))
    }

    fn evict(&self, state: &mut State, evicted: Option<ConnectionId>) {
        if let Some(closer) = evicted.and_then(|id| state.closers.remove(&id)) {
            self.closing.fetch_add(1, Ordering::AcqRel);
            closer.cancel();
        }
    }

    fn denied(&self, address: IpAddr, why: Refusal) {
        let now = self.parts.clock.now().timestamp();
        self.parts.denials.denied(Denial::Load, address, &why, now);
    }
}

/// An admitted connection. It is counted until this is dropped.
pub(in crate::app) struct ConnectionGuard(Arc<Connection>);

impl ConnectionGuard {
    /// The connection, for its stream and its requests.
    pub(in crate::app) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.0)
    }

    /// Returns when the connection is closed for another one.
    pub(in crate::app) async fn evicted(&self) {
        self.0.closer.cancelled().await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let Connection { shared, id, closer, .. } = &*self.0;
        let mut state = shared.state.lock();
        state.table.close(*id);
        state.closers.remove(id);
        drop(state);
        if closer.is_cancelled() {
            shared.closing.fetch_sub(1, Ordering::AcqRel);
            shared.gone.notify_waiters();
        }
    }
}

/// An admitted connection, as its stream and its requests see it.
pub(in crate::app) struct Connection {
    shared: Arc<Shared>,
    id: ConnectionId,
    peer: SocketAddr,
    closer: CancellationToken,
    /// The highest standing that the clients of the connection have proved.
    standing: Mutex<Standing>,
    /// Whether the last response was produced completely. The request ends when its bytes are sent.
    responded: AtomicBool,
    /// Whether a response was made before the body of its request had arrived.
    unread: AtomicBool,
}

impl Connection {
    /// The client of a request with these headers.
    pub(super) fn client(&self, headers: &HeaderMap) -> SocketAddr {
        self.shared.parts.proxies.client(self.peer, headers)
    }

    /// Begins a request of `client`.
    pub(super) fn begin(self: &Arc<Self>, client: IpAddr, wanted: Standing) -> Result<RequestGuard, Refusal> {
        self.responded.store(false, Ordering::Release);
        let holder = self.shared.holder(client);
        let begun = self.shared.state.lock().table.begin(self.id, holder, wanted);
        match begun {
            Ok(()) => Ok(RequestGuard(Arc::clone(self))),
            Err(why) => {
                let limit = if why == Refusal::Share { "share" } else { "all" };
                self.shared.parts.metrics.overloaded(limit);
                if why != Refusal::Evicted {
                    self.shared.denied(client, why);
                }
                Err(why)
            }
        }
    }

    /// Called when all bytes so far were handed to the kernel.
    pub(super) fn flushed(&self) {
        if self.responded.swap(false, Ordering::AcqRel) {
            self.shared.state.lock().table.end(self.id);
        }
    }

    /// Notes that the body of a request was not read to its end.
    pub(in crate::app) fn left_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    /// Whether the client may still send a body that no handler reads.
    pub(super) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    /// How long a client may take no byte of a response.
    ///
    /// The kernel reports progress only after a third of its send buffer is free, up to 1.4 MiB. A BMC that reads 2 KiB/s, or that
    /// pauses for minutes, is within the time for media. A client that has proved nothing receives small responses.
    pub(super) fn stall_limit(&self) -> Duration {
        match *self.standing.lock() {
            Standing::Anonymous => Duration::from_secs(120),
            Standing::Known => Duration::from_secs(300),
            Standing::Media => Duration::from_secs(900),
        }
    }
}

impl Proof for Connection {
    fn prove(&self, standing: Standing) {
        let mut own = self.standing.lock();
        *own = standing.max(*own);
        drop(own);
        self.shared.state.lock().table.prove(self.id, standing);
    }
}

/// A request in progress. When it is dropped, its response was produced completely.
pub(super) struct RequestGuard(Arc<Connection>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.responded.store(true, Ordering::Release);
    }
}
