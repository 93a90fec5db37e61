//! Connections to BMCs: one client per server. Its session survives a crash of the controller; the lease fences its mutations.
//!
//! ```text
//!   step --(server, lease)--> Bmcs --> client (reused until the record's revision changes)
//!                               |         sessions: opened -> sealed on disk -> used ; closed -> deleted
//!                               |         fence:    the lease of the worker that connected last
//!                               +--> end of a job: log out, remove the client
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use parking_lot::{Mutex, RwLock};
use redfish::{
    Bmc, BmcCredentials, ClientOptions, Endpoint, Fence, Fingerprint, HttpOptions, HttpTransport, Observer,
    RecordingTransport, SessionHandle, SessionKeeper, TlsVerification, Transport, TransportError,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{mpsc, oneshot};

use super::lookup::{ServerLookup, Unavailable};
use super::probe::{BmcProblem, bmc_problem};
use super::profiles;
use super::state::{BmcState, BmcStates};
use engine::LeaseGuard;
use model::{Serial, Server, TlsMode};
use secrets::{CredentialRef, Key, Resolver, open, seal};

/// Limit of session changes that wait to be written. The deletion of a closed session is dropped beyond it: the next connection
/// then closes a session that no longer exists.
const MAX_PENDING_CHANGES: usize = 1024;
/// How long the first request with a new session waits until the session is stored.
const STORED: Duration = Duration::from_secs(10);
/// Timeout of reading a certificate's fingerprint.
const FINGERPRINT: Duration = Duration::from_secs(10);

/// Timeout of one logout when the controller stops.
const LOGOUT: Duration = Duration::from_secs(5);
/// Timeout of closing one session of a previous controller instance.
const CLOSE_ORPHAN: Duration = Duration::from_secs(60);
/// Number of sessions that are closed in parallel.
const CLOSING: usize = 64;

/// A BMC session sealed with the controller's key, as it is stored.
pub type SealedSession = String;

/// The durable store of open BMC sessions. The next controller instance reads it to close sessions after a crash.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Stores the session of a server; `None` deletes it.
    async fn save(&self, server: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable>;
    /// Returns the stored session of a server.
    async fn load(&self, server: &Serial) -> Result<Option<SealedSession>, Unavailable>;
    /// Lists the servers with a stored session.
    async fn list(&self) -> Result<Vec<Serial>, Unavailable>;
}

/// Connects the controller to BMCs: by sockets, or by a simulation (decision D10).
#[async_trait]
pub trait BmcConnector: Send + Sync {
    /// Creates the transport for requests to the BMC at `endpoint`.
    ///
    /// # Errors
    /// Returns an error when the TLS settings cannot be used.
    fn transport(
        &self,
        endpoint: &Endpoint,
        tls: &TlsVerification,
    ) -> Result<Arc<dyn Transport>, TransportError>;
    /// Reads the fingerprint of the certificate at `endpoint`.
    ///
    /// # Errors
    /// Returns an error when no TLS server responds at `endpoint`.
    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, TransportError>;
}

/// The connector that uses TCP and TLS sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketConnector;

#[async_trait]
impl BmcConnector for SocketConnector {
    fn transport(
        &self,
        endpoint: &Endpoint,
        tls: &TlsVerification,
    ) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(HttpTransport::new(endpoint, tls, HttpOptions::default())?))
    }

    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, TransportError> {
        redfish::read_fingerprint(endpoint, FINGERPRINT).await
    }
}

/// The reason why a BMC could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server's record is not usable.
    #[error("{0}")]
    Record(String),
    /// The BMC did not respond, or refused the connection.
    #[error("connect to the BMC: {0}")]
    Bmc(Box<redfish::RedfishError>),
}

impl ConnectError {
    /// Describes the error for the operator of a registered server.
    pub fn problem(self, serial: &Serial) -> BmcProblem {
        match self {
            Self::Record(why) => BmcProblem::record(why, serial.as_str()),
            Self::Bmc(error) => bmc_problem(&error, Some(serial.as_str())),
        }
    }
}

/// A connected client, with the certificate fingerprint if this connection read it for the first time.
pub struct Connected {
    /// The client.
    pub bmc: Bmc,
    /// The fingerprint, until the server's record holds it.
    pub learned_fingerprint: Option<String>,
}

/// Limits of requests to BMCs.
#[derive(Clone, Copy, Debug)]
pub struct BmcLimits {
    /// The limits for each BMC.
    pub each: redfish::LimitOptions,
    /// The maximum of requests in flight to all BMCs together.
    pub in_flight: usize,
}

/// All BMC connections of a controller.
pub struct Bmcs {
    resolver: Resolver,
    key: Arc<Key>,
    sessions: Arc<dyn SessionStore>,
    observer: Arc<dyn Observer>,
    connector: Arc<dyn BmcConnector>,
    options: ClientOptions,
    states: BmcStates,
    /// The authorities of `REDFISH_CA_FILE`, which a reload replaces.
    ca: RwLock<Option<Arc<[u8]>>>,
    changes: mpsc::Sender<Change>,
    open: Mutex<HashMap<Serial, Open>>,
}

struct Open {
    revision: i64,
    bmc: Bmc,
    /// Returned with every connection until the server's record holds it: the step report that carried it may be lost.
    learned_fingerprint: Option<String>,
    lease: Arc<SharedLease>,
}

impl Bmcs {
    /// Creates an empty set of connections. Needs a Tokio runtime: a background task stores the sessions.
    pub fn new(
        resolver: Resolver,
        key: Key,
        sessions: Arc<dyn SessionStore>,
        observer: Arc<dyn Observer>,
        options: ClientOptions,
        limits: BmcLimits,
        ca: Option<Vec<u8>>,
    ) -> Self {
        let (changes, queue) = mpsc::channel(MAX_PENDING_CHANGES);
        tokio::spawn(write_changes(Arc::clone(&sessions), queue));
        Self {
            resolver,
            key: Arc::new(key),
            sessions,
            observer,
            connector: Arc::new(SocketConnector),
            options,
            states: BmcStates::new(limits.each, limits.in_flight),
            ca: RwLock::new(ca.map(Arc::from)),
            changes,
            open: Mutex::new(HashMap::new()),
        }
    }

    /// Replaces the socket connector, for example by a simulation.
    #[must_use]
    pub fn with_connector(self, connector: Arc<dyn BmcConnector>) -> Self {
        Self { connector, ..self }
    }

    /// Replaces the authorities that sign certificates of BMCs. Open connections stay as they are.
    pub fn trust(&self, ca: Option<Vec<u8>>) {
        *self.ca.write() = ca.map(Arc::from);
    }

    /// Connects to a server's BMC, or reuses the open connection. A mutation is sent only if `lease` outlasts it.
    ///
    /// # Errors
    /// Returns an error when the record is not usable, or the BMC did not respond or refused the connection.
    pub async fn connect(&self, server: &Server, lease: &LeaseGuard) -> Result<Connected, ConnectError> {
        if let Some(connected) = self.reuse(server, lease) {
            return Ok(connected);
        }
        let state = self.states.of(server);
        let _one_at_a_time = state.connecting.lock().await;
        let shared = Arc::new(SharedLease(Mutex::new(Some(lease.clone()))));
        let fence = Arc::clone(&shared) as Arc<dyn Fence>;
        let (bmc, learned_fingerprint) = self.handle(server, &state, fence, None).await?;
        self.close_saved(server, &bmc).await;
        let open = Open {
            revision: server.revision,
            bmc: bmc.clone(),
            learned_fingerprint: learned_fingerprint.clone(),
            lease: shared,
        };
        self.open.lock().insert(server.serial.clone(), open);
        Ok(Connected { bmc, learned_fingerprint })
    }

    /// Connects a separate client whose fence refuses mutations, for probes. The caller ends it with [`Bmcs::release`].
    pub(super) async fn reader(
        &self,
        server: &Server,
        recorded: Option<&mut Option<RecordingTransport>>,
    ) -> Result<Connected, ConnectError> {
        let state = self.states.of(server);
        let _one_at_a_time = state.connecting.lock().await;
        let (bmc, learned_fingerprint) =
            self.handle(server, &state, Arc::new(ReadOnlyFence), recorded).await?;
        let job = self.open.lock().get(&server.serial).map(|open| open.bmc.clone());
        match job {
            // A running job has a session. The probe shares it because a BMC allows few sessions.
            Some(job) => {
                if let Some(session) = job.session().await {
                    bmc.adopt_session(session).await;
                }
            }
            None => self.close_saved(server, &bmc).await,
        }
        Ok(Connected { bmc, learned_fingerprint })
    }

    /// Releases a client of [`Bmcs::reader`]. Its session is closed unless a job uses it.
    pub(super) async fn release(&self, serial: &Serial, reader: &Bmc) {
        let job = self.open.lock().get(serial).map(|open| open.bmc.clone());
        let jobs = match job {
            Some(job) => job.session().await.map(|session| session.uri),
            None => None,
        };
        let ours = reader.session().await.map(|session| session.uri);
        if ours != jobs
            && let Err(error) = reader.logout().await
        {
            tracing::debug!(server_serial = %serial, %error, "a BMC session was not closed; it times out");
        }
    }

    /// Builds a client. The only request it may send is the first read of the certificate.
    async fn handle(
        &self,
        server: &Server,
        state: &Arc<BmcState>,
        fence: Arc<dyn Fence>,
        recorded: Option<&mut Option<RecordingTransport>>,
    ) -> Result<(Bmc, Option<String>), ConnectError> {
        let endpoint: Endpoint = server.bmc_address.parse().map_err(|why| {
            ConnectError::Record(format!("the BMC address of {} is unusable: {why}", server.serial))
        })?;
        let (tls, learned_fingerprint) = self.tls(server, &endpoint, state).await?;
        let password = self.password(server)?;
        let mut transport = self
            .connector
            .transport(&endpoint, &tls)
            .map_err(|why| ConnectError::Bmc(Box::new(redfish::RedfishError::connecting(why))))?;
        if let Some(recorded) = recorded {
            let recorder = recorded.insert(RecordingTransport::over(transport));
            transport = Arc::new(recorder.clone());
        }
        let credentials = BmcCredentials::new(server.bmc_username.clone(), password);
        let builder = Bmc::builder(endpoint, credentials, transport, profiles::first(server));
        let bmc = profiles::choose(builder, server)
            .options(self.options)
            .limits(state.limits.clone())
            .observer(Arc::clone(&self.observer))
            .fence(fence)
            .session_keeper(Arc::new(SealingSessionKeeper {
                server: server.serial.clone(),
                context: seal_context(server),
                state: Arc::clone(state),
                key: Arc::clone(&self.key),
                changes: self.changes.clone(),
            }))
            .build();
        Ok((bmc, learned_fingerprint))
    }

    fn reuse(&self, server: &Server, lease: &LeaseGuard) -> Option<Connected> {
        let open = self.open.lock();
        let found = open.get(&server.serial).filter(|found| found.revision == server.revision)?;
        found.lease.set(lease);
        let learned_fingerprint =
            found.learned_fingerprint.clone().filter(|_| server.tls_fingerprint.is_none());
        Some(Connected { bmc: found.bmc.clone(), learned_fingerprint })
    }

    /// Frees the idle sockets and buffers of a connection before a long wait. The session stays open.
    pub fn release_idle(&self, server: &Serial) {
        if let Some(found) = self.open.lock().get(server) {
            found.bmc.release_idle();
        }
    }

    /// Logs out and removes the connection. Failures are only logged because a session also times out. Without a connection
    /// a worker that died may have left a session: connecting closes it.
    pub async fn close(&self, server: &Server, lease: &LeaseGuard) {
        let serial = &server.serial;
        let unconnected = !self.open.lock().contains_key(serial);
        if unconnected
            && matches!(self.sessions.load(serial).await, Ok(Some(_)))
            && let Err(error) = self.connect(server, lease).await
        {
            tracing::info!(server_serial = %serial, %error, "an old BMC session could not be closed; it times out");
        }
        self.close_open(serial).await;
    }

    /// Logs out and removes the connection, if there is one. Failures are only logged because a session also times out.
    pub async fn close_open(&self, serial: &Serial) {
        let found = self.open.lock().remove(serial);
        if let Some(found) = found
            && let Err(error) = found.bmc.logout().await
        {
            tracing::debug!(server_serial = %serial, %error, "a BMC session was not closed; it times out");
        }
    }

    /// Whether the BMC at the address of `server` shows the pinned certificate of `server`. Sends no credentials.
    pub async fn shows_pin(&self, server: &Server) -> bool {
        let shown = self.shown_fingerprint(server).await;
        shown.is_some() && shown == server.tls_fingerprint
    }

    /// The fingerprint of the certificate at the BMC address of `server`; `None` when none can be read. Sends no credentials.
    pub async fn shown_fingerprint(&self, server: &Server) -> Option<String> {
        let endpoint = server.bmc_address.parse::<Endpoint>().ok()?;
        self.connector.fingerprint(&endpoint).await.ok().map(|shown| shown.to_string())
    }

    async fn tls(
        &self,
        server: &Server,
        endpoint: &Endpoint,
        state: &BmcState,
    ) -> Result<(TlsVerification, Option<String>), ConnectError> {
        if !endpoint.is_secure() {
            return Ok((TlsVerification::Insecure, None));
        }
        match (server.tls, &server.tls_fingerprint) {
            (TlsMode::Insecure, _) => Ok((TlsVerification::Insecure, None)),
            (TlsMode::Verify, _) => match self.ca.read().clone() {
                Some(ca) => Ok((TlsVerification::Ca(ca), None)),
                None => Err(ConnectError::Record(
                    "the server asks for a verified certificate but REDFISH_CA_FILE is not set: set it, or register \
                     the server with tls pinned"
                        .to_owned(),
                )),
            },
            (TlsMode::Pinned, Some(fingerprint)) => fingerprint
                .parse()
                .map(|pin| (TlsVerification::Pin(pin), None))
                .map_err(|_| ConnectError::Record("the registered certificate fingerprint cannot be parsed; register it again".to_owned())),
            (TlsMode::Pinned, None) => {
                let bmc = |error| ConnectError::Bmc(Box::new(error));
                let passed = state.limits.pass(self.connector.fingerprint(endpoint)).await;
                let read = passed.map_err(|open| bmc(redfish::RedfishError::circuit_open(open)))?;
                let seen = read.map_err(|why| match state.limits.circuit_open() {
                    Some(open) => bmc(redfish::RedfishError::circuit_open(open)),
                    None => bmc(redfish::RedfishError::connecting(why)),
                })?;
                Ok((TlsVerification::Pin(seen), Some(seen.to_string())))
            }
        }
    }

    fn password(&self, server: &Server) -> Result<SecretString, ConnectError> {
        let reference: CredentialRef = server.bmc_password.parse().map_err(|_| {
            ConnectError::Record(
                "the BMC password in the server's record is not a credential reference; register it again"
                    .to_owned(),
            )
        })?;
        self.resolver
            .resolve(&reference, server.serial.as_str())
            .map_err(|why| ConnectError::Record(format!("{}", model::error_chain(&why))))
    }

    /// Closes the session that a crashed controller instance left open: a BMC allows few sessions.
    /// The session of another address is not opened, so its token is sent to no other BMC.
    async fn close_saved(&self, server: &Server, bmc: &Bmc) {
        let serial = &server.serial;
        let stored = match self.sessions.load(serial).await {
            Ok(stored) => stored,
            Err(error) => {
                return tracing::warn!(server_serial = %serial, %error, "the stored BMC session cannot be read");
            }
        };
        let Some(handle) = stored.and_then(|sealed| self.unseal(server, &sealed)) else { return };
        if let Err(error) = bmc.delete_session(&handle).await {
            tracing::info!(server_serial = %serial, %error, "an old BMC session could not be closed; it times out");
        }
    }

    fn unseal(&self, server: &Server, sealed: &str) -> Option<SessionHandle> {
        let plain = open(&self.key, &seal_context(server), sealed).ok()?;
        let text = std::str::from_utf8(&plain).ok()?;
        let (uri, token) = text.split_once('\n')?;
        Some(SessionHandle { uri: uri.to_owned(), token: SecretString::from(token.to_owned()) })
    }

    /// Closes all sessions in parallel, each with a timeout. For the stop of the controller.
    pub async fn close_all(&self) {
        let open: Vec<(Serial, Open)> = self.open.lock().drain().collect();
        let closing = open.into_iter().map(|(serial, open)| async move {
            match tokio::time::timeout(LOGOUT, open.bmc.logout()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::info!(server_serial = %serial, %error, "a BMC session was not closed")
                }
                Err(_elapsed) => {
                    tracing::info!(server_serial = %serial, "a BMC took too long to close a session")
                }
            }
        });
        futures_util::stream::iter(closing).buffer_unordered(CLOSING).collect::<Vec<()>>().await;
        // The closed sessions are also deleted from the store before the store closes.
        let (done, written) = oneshot::channel();
        if self.changes.try_send(Change::Flush(done)).is_ok() {
            let _elapsed = tokio::time::timeout(LOGOUT, written).await;
        }
    }

    /// Closes sessions of previous controller instances on BMCs without a running job: a BMC allows few sessions.
    pub(super) async fn close_orphaned_sessions(&self, servers: &dyn ServerLookup) {
        let orphans = match self.sessions.list().await {
            Ok(orphans) => orphans,
            Err(error) => return tracing::warn!(%error, "stored BMC sessions cannot be read"),
        };
        let closing = orphans.into_iter().map(|serial| async move {
            let Ok(Some(server)) = servers.server(&serial).await else { return };
            if self.open.lock().contains_key(&serial) {
                return;
            }
            match tokio::time::timeout(CLOSE_ORPHAN, self.reader(&server, None)).await {
                Ok(Ok(_closed)) => {}
                Ok(Err(error)) => {
                    tracing::info!(server_serial = %serial, %error, "an old BMC session is left to time out")
                }
                Err(_elapsed) => {
                    tracing::info!(server_serial = %serial, "an old BMC session is left to time out")
                }
            }
        });
        futures_util::stream::iter(closing).buffer_unordered(CLOSING).collect::<Vec<()>>().await;
    }
}

/// The context a sealed session is bound to: a server and the address of its BMC.
fn seal_context(server: &Server) -> String {
    format!("bmc-session/{}/{}", server.serial, server.bmc_address)
}

/// A change for the session store. Both kinds go through one queue, so that a deletion never overtakes what was stored before.
enum Change {
    /// The new session of a server, or `None` after it was closed, with the span of what opened or closed it: the ids of the job.
    Session(Serial, Option<SealedSession>, tracing::Span),
    /// Notifies the sender when all earlier changes are written.
    Flush(oneshot::Sender<()>),
}

async fn write_changes(sessions: Arc<dyn SessionStore>, mut queue: mpsc::Receiver<Change>) {
    while let Some(change) = queue.recv().await {
        match change {
            Change::Session(server, session, span) => {
                if let Err(error) = sessions.save(&server, session).await {
                    span.in_scope(|| not_stored(&server, &error));
                }
            }
            // The receiver may have stopped waiting; then the notification is not needed.
            Change::Flush(done) => drop(done.send(())),
        }
    }
}

fn not_stored(server: &Serial, error: &dyn std::fmt::Display) {
    tracing::warn!(server_serial = %server, %error, "a BMC session was not stored; after a crash it stays open until it times out");
}

/// The fence of clients that must not change anything.
struct ReadOnlyFence;

impl Fence for ReadOnlyFence {
    fn allows(&self, owned_for: Duration) -> bool {
        // Mutations ask for ownership for their whole timeout; reads and logins ask for zero.
        owned_for.is_zero()
    }
}

struct SealingSessionKeeper {
    server: Serial,
    context: String,
    state: Arc<BmcState>,
    key: Arc<Key>,
    changes: mpsc::Sender<Change>,
}

impl SealingSessionKeeper {
    fn change(&self, session: Option<SealedSession>) -> Change {
        Change::Session(self.server.clone(), session, tracing::Span::current())
    }

    /// Stores a session. Only a queue that has ended returns an error: the controller stops.
    async fn store(&self, session: SealedSession) -> Result<(), oneshot::error::RecvError> {
        let (done, written) = oneshot::channel();
        for change in [self.change(Some(session)), Change::Flush(done)] {
            // A change that is not queued drops `done`.
            let _ended = self.changes.send(change).await;
        }
        written.await
    }
}

#[async_trait]
impl SessionKeeper for SealingSessionKeeper {
    async fn opened(&self, session: &SessionHandle) {
        self.state.session_opened(&session.uri);
        let plain = format!("{}\n{}", session.uri, session.token.expose_secret());
        let Ok(sealed) = seal(&self.key, &self.context, plain.as_bytes()) else { return };
        match tokio::time::timeout(STORED, self.store(sealed)).await {
            Ok(Ok(())) => {}
            Ok(Err(ended)) => not_stored(&self.server, &ended),
            Err(elapsed) => not_stored(&self.server, &elapsed),
        }
    }

    fn closed(&self, uri: &str) {
        if self.state.session_closed(uri) {
            let _dropped = self.changes.try_send(self.change(None));
        }
    }
}

/// The lease of the worker that uses the connection.
struct SharedLease(Mutex<Option<LeaseGuard>>);

impl SharedLease {
    fn set(&self, lease: &LeaseGuard) {
        *self.0.lock() = Some(lease.clone());
    }
}

impl Fence for SharedLease {
    fn allows(&self, owned_for: Duration) -> bool {
        let lease = self.0.lock();
        lease.as_ref().is_some_and(|lease| lease.allows_until(owned_for).is_ok())
    }
}
