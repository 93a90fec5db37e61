//! Connections to BMCs: one client per server, its session kept across crashes, everything it sends fenced by the lease.
//!
//! ```text
//!   step --(server, lease)--> Bmcs --> client (reused while the record's revision stands)
//!                               |         sessions: opened -> sealed on disk ; closed -> forgotten
//!                               |         fence:    the lease of whoever connected last
//!                               +--> end of a job: log out, forget
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use redfish::{
    Bmc, Credentials, Endpoint, Fence, Fingerprint, HttpOptions, HttpTransport, Observer, Options, Recorder,
    SessionHandle, SessionKeeper, TlsMode as BmcTls, Transport, TransportError,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc;

use super::bmc_state::{BmcState, BmcStates};
use super::profiles;
use super::services::Unavailable;
use engine::LeaseGuard;
use engine::model::{Serial, Server, TlsMode};
use secrets::{CredentialRef, Key, Resolver, open, seal};

/// Changes of kept sessions that wait for the disk at most; more are dropped, the session then simply times out.
const BACKLOG: usize = 1024;
/// How long a certificate's fingerprint may take to be read.
const FINGERPRINT: Duration = Duration::from_secs(10);

/// How long one logout may take when the program stops.
const LOGOUT: Duration = Duration::from_secs(5);
/// How long closing one old session may take.
const LEFT_BEHIND: Duration = Duration::from_secs(60);
/// How many sessions are closed at once.
const CLOSING: usize = 64;

/// A session as it is kept, sealed.
pub type SealedSession = String;

/// Where sessions are kept so that the next incarnation can close them.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Keeps (or forgets) the session of a server.
    async fn keep(&self, server: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable>;
    /// The session kept for a server.
    async fn kept(&self, server: &Serial) -> Result<Option<SealedSession>, Unavailable>;
    /// The servers for which one is kept.
    async fn all_kept(&self) -> Result<Vec<Serial>, Unavailable>;
}

/// The way to BMCs. Passed in, so that a simulation can be the network (lock L10).
#[async_trait]
pub trait Network: Send + Sync {
    /// What carries requests to the BMC at `endpoint`.
    ///
    /// # Errors
    /// When nothing can be sent with these settings.
    fn transport(&self, endpoint: &Endpoint, tls: &BmcTls) -> Result<Arc<dyn Transport>, TransportError>;
    /// The fingerprint of the certificate at `endpoint`.
    ///
    /// # Errors
    /// When nobody answers with one.
    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, TransportError>;
}

/// Real sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketConnector;

#[async_trait]
impl Network for SocketConnector {
    fn transport(&self, endpoint: &Endpoint, tls: &BmcTls) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(HttpTransport::new(endpoint, tls, HttpOptions::default())?))
    }

    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, TransportError> {
        redfish::read_fingerprint(endpoint, FINGERPRINT).await
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The server's record is not usable.
    #[error("{0}")]
    Record(String),
    /// The BMC could not be spoken to.
    #[error("connect to the BMC: {0}")]
    Bmc(Box<redfish::RedfishError>),
}

/// A connection, and the certificate fingerprint learned when it was made.
pub(super) struct Connected {
    pub(super) bmc: Bmc,
    pub(super) learned_fingerprint: Option<String>,
}

/// How much BMCs are asked.
#[derive(Clone, Copy, Debug)]
pub struct BmcLimits {
    /// Each of them.
    pub each: redfish::LimitOptions,
    /// Requests in flight to all of them together.
    pub in_flight: usize,
}

/// All connections of a controller.
pub struct Bmcs {
    resolver: Resolver,
    key: Arc<Key>,
    sessions: Arc<dyn Sessions>,
    observer: Arc<dyn Observer>,
    network: Arc<dyn Network>,
    options: Options,
    states: BmcStates,
    ca: Option<Arc<[u8]>>,
    changes: mpsc::Sender<Change>,
    pub(super) open: Mutex<HashMap<Serial, Open>>,
}

pub(super) struct Open {
    revision: i64,
    pub(super) bmc: Bmc,
    /// Repeated until the record holds it: the report that carried it may not have been written.
    learned_fingerprint: Option<String>,
    lease: Arc<SharedLease>,
}

impl Bmcs {
    /// No connections yet. Must be called inside a runtime: kept sessions are written by a task of its own.
    pub fn new(
        resolver: Resolver,
        key: Key,
        sessions: Arc<dyn Sessions>,
        observer: Arc<dyn Observer>,
        options: Options,
        limits: BmcLimits,
        ca: Option<Vec<u8>>,
    ) -> Self {
        let (changes, queue) = mpsc::channel(BACKLOG);
        tokio::spawn(write_changes(Arc::clone(&sessions), queue));
        Self {
            resolver,
            key: Arc::new(key),
            sessions,
            observer,
            network: Arc::new(SocketConnector),
            options,
            states: BmcStates::new(limits.each, limits.in_flight),
            ca: ca.map(Arc::from),
            changes,
            open: Mutex::new(HashMap::new()),
        }
    }

    /// The same over another network than real sockets.
    #[must_use]
    pub fn over(self, network: Arc<dyn Network>) -> Self {
        Self { network, ..self }
    }

    /// The connection to a server's BMC; mutations are sent only while `lease` outlives them.
    pub(super) async fn connect(
        &self,
        server: &Server,
        lease: &LeaseGuard,
    ) -> Result<Connected, ConnectError> {
        if let Some(connected) = self.reuse(server, lease) {
            return Ok(connected);
        }
        let state = self.states.of(server);
        let _one_at_a_time = state.connecting.lock().await;
        let shared = Arc::new(SharedLease(Mutex::new(Some(lease.clone()))));
        let fence = Arc::clone(&shared) as Arc<dyn Fence>;
        let (bmc, learned_fingerprint) = self.handle(server, &state, fence, None).await?;
        self.close_saved(&server.serial, &bmc).await;
        let open = Open {
            revision: server.revision,
            bmc: bmc.clone(),
            learned_fingerprint: learned_fingerprint.clone(),
            lease: shared,
        };
        self.open().insert(server.serial.clone(), open);
        Ok(Connected { bmc, learned_fingerprint })
    }

    /// A handle of its own that changes nothing on the host: for probes. Its session is to be closed by whoever asked.
    pub(super) async fn reader(
        &self,
        server: &Server,
        recorded: Option<&mut Option<Recorder>>,
    ) -> Result<Connected, ConnectError> {
        let state = self.states.of(server);
        let _one_at_a_time = state.connecting.lock().await;
        let (bmc, learned_fingerprint) =
            self.handle(server, &state, Arc::new(ReadOnlyFence), recorded).await?;
        let job = self.open().get(&server.serial).map(|open| open.bmc.clone());
        match job {
            // A job is at work there: its session serves both, a BMC has few places.
            Some(job) => {
                if let Some(session) = job.session().await {
                    bmc.adopt_session(session).await;
                }
            }
            None => self.close_saved(&server.serial, &bmc).await,
        }
        Ok(Connected { bmc, learned_fingerprint })
    }

    /// Ends what [`Bmcs::reader`] began: its session is closed unless it is a job's.
    pub(super) async fn give_back(&self, serial: &Serial, reader: &Bmc) {
        let job = self.open().get(serial).map(|open| open.bmc.clone());
        let jobs = match job {
            Some(job) => job.session().await.map(|session| session.uri),
            None => None,
        };
        let ours = reader.session().await.map(|session| session.uri);
        if ours != jobs
            && let Err(error) = reader.logout().await
        {
            tracing::debug!(server = %serial, %error, "a BMC session was not closed; it times out");
        }
    }

    /// A new handle; nothing is sent but what the first look at a certificate needs.
    async fn handle(
        &self,
        server: &Server,
        state: &Arc<BmcState>,
        fence: Arc<dyn Fence>,
        recorded: Option<&mut Option<Recorder>>,
    ) -> Result<(Bmc, Option<String>), ConnectError> {
        let endpoint: Endpoint = server.bmc_address.parse().map_err(|why| {
            ConnectError::Record(format!("the BMC address of {} is unusable: {why}", server.serial))
        })?;
        let (tls, learned_fingerprint) = self.tls(server, &endpoint, state).await?;
        let password = self.password(server)?;
        let mut transport = self
            .network
            .transport(&endpoint, &tls)
            .map_err(|why| ConnectError::Bmc(Box::new(redfish::RedfishError::connecting(why))))?;
        if let Some(recorded) = recorded {
            let recorder = recorded.insert(Recorder::over(transport));
            transport = Arc::new(recorder.clone());
        }
        let credentials = Credentials::new(server.bmc_username.clone(), password);
        let builder = Bmc::builder(endpoint, credentials, transport, profiles::first(server));
        let bmc = profiles::choose(builder, server)
            .options(self.options)
            .limits(state.limits.clone())
            .observer(Arc::clone(&self.observer))
            .fence(fence)
            .session_keeper(Arc::new(Keeper {
                server: server.serial.clone(),
                state: Arc::clone(state),
                key: Arc::clone(&self.key),
                changes: self.changes.clone(),
            }))
            .build();
        Ok((bmc, learned_fingerprint))
    }

    fn reuse(&self, server: &Server, lease: &LeaseGuard) -> Option<Connected> {
        let open = self.open();
        let found = open.get(&server.serial).filter(|found| found.revision == server.revision)?;
        found.lease.set(lease);
        let learned_fingerprint =
            found.learned_fingerprint.clone().filter(|_| server.tls_fingerprint.is_none());
        Some(Connected { bmc: found.bmc.clone(), learned_fingerprint })
    }

    /// Nothing is asked for a while: what is kept for the next request is let go, the session stays.
    pub(super) fn rest(&self, server: &Serial) {
        if let Some(found) = self.open().get(server) {
            found.bmc.rest();
        }
    }

    /// Logs out and forgets the connection; best effort, a session also ends by itself. Without a connection there may be
    /// the session of a predecessor that died before it could log out: connecting closes it.
    pub(super) async fn close(&self, server: &Server, lease: &LeaseGuard) {
        let serial = &server.serial;
        let unconnected = !self.open().contains_key(serial);
        if unconnected
            && matches!(self.sessions.kept(serial).await, Ok(Some(_)))
            && let Err(error) = self.connect(server, lease).await
        {
            tracing::info!(server = %serial, %error, "an old BMC session could not be closed; it times out");
        }
        let found = self.open().remove(serial);
        if let Some(found) = found
            && let Err(error) = found.bmc.logout().await
        {
            tracing::debug!(server = %serial, %error, "a BMC session was not closed; it times out");
        }
    }

    async fn tls(
        &self,
        server: &Server,
        endpoint: &Endpoint,
        state: &BmcState,
    ) -> Result<(BmcTls, Option<String>), ConnectError> {
        if !endpoint.is_secure() {
            return Ok((BmcTls::Insecure, None));
        }
        match (server.tls, &server.tls_fingerprint) {
            (TlsMode::Insecure, _) => Ok((BmcTls::Insecure, None)),
            (TlsMode::Verify, _) => match &self.ca {
                Some(ca) => Ok((BmcTls::Ca(ca.clone()), None)),
                None => Err(ConnectError::Record(
                    "the server asks for a verified certificate but REDFISH_CA_FILE is not set: set it, or register \
                     the server with tls pinned"
                        .to_owned(),
                )),
            },
            (TlsMode::Pinned, Some(fingerprint)) => fingerprint
                .parse()
                .map(|pin| (BmcTls::Pin(pin), None))
                .map_err(|_| ConnectError::Record("the registered certificate fingerprint is unusable".to_owned())),
            (TlsMode::Pinned, None) => {
                let bmc = |error| ConnectError::Bmc(Box::new(error));
                let passed = state.limits.pass(self.network.fingerprint(endpoint)).await;
                let read = passed.map_err(|resting| bmc(redfish::RedfishError::resting(resting)))?;
                let seen = read.map_err(|why| match state.limits.resting() {
                    Some(resting) => bmc(redfish::RedfishError::resting(resting)),
                    None => bmc(redfish::RedfishError::connecting(why)),
                })?;
                Ok((BmcTls::Pin(seen), Some(seen.to_string())))
            }
        }
    }

    fn password(&self, server: &Server) -> Result<SecretString, ConnectError> {
        let reference: CredentialRef = server
            .bmc_password
            .parse()
            .map_err(|_| ConnectError::Record("the BMC password is not a credential reference".to_owned()))?;
        self.resolver
            .resolve(&reference, server.serial.as_str())
            .map_err(|why| ConnectError::Record(format!("{}", engine::model::error_chain(&why))))
    }

    /// Closes the session a crashed incarnation left open, so that the BMC's few places do not fill up.
    async fn close_saved(&self, serial: &Serial, bmc: &Bmc) {
        let kept = match self.sessions.kept(serial).await {
            Ok(kept) => kept,
            Err(error) => {
                return tracing::warn!(server = %serial, %error, "the kept BMC session cannot be read");
            }
        };
        let Some(handle) = kept.and_then(|sealed| self.unseal(serial, &sealed)) else { return };
        if let Err(error) = bmc.delete_session(&handle).await {
            tracing::info!(server = %serial, %error, "an old BMC session could not be closed; it times out");
        }
    }

    fn unseal(&self, serial: &Serial, sealed: &str) -> Option<SessionHandle> {
        let plain = open(&self.key, &context(serial), sealed).ok()?;
        let text = std::str::from_utf8(&plain).ok()?;
        let (uri, token) = text.split_once('\n')?;
        Some(SessionHandle { uri: uri.to_owned(), token: SecretString::from(token.to_owned()) })
    }

    /// Closes all sessions, each within a few seconds and all at once: for the stop of the program.
    pub async fn close_all(&self) {
        let open: Vec<(Serial, Open)> = self.open().drain().collect();
        let closing = open.into_iter().map(|(serial, open)| async move {
            match tokio::time::timeout(LOGOUT, open.bmc.logout()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::info!(server = %serial, %error, "a BMC session was not closed"),
                Err(_elapsed) => tracing::info!(server = %serial, "a BMC took too long to close a session"),
            }
        });
        futures_util::stream::iter(closing).buffer_unordered(CLOSING).collect::<Vec<()>>().await;
        // What was closed is also forgotten on disk before the store goes.
        let (done, written) = tokio::sync::oneshot::channel();
        if self.changes.try_send(Change::Flush(done)).is_ok() {
            let _elapsed = tokio::time::timeout(LOGOUT, written).await;
        }
    }

    /// Closes what a former incarnation left open on BMCs that no job is about to use: a BMC has few places.
    pub async fn close_orphaned_sessions(&self, directory: &dyn super::Directory) {
        let left = match self.sessions.all_kept().await {
            Ok(left) => left,
            Err(error) => return tracing::warn!(%error, "kept BMC sessions cannot be read"),
        };
        let closing = left.into_iter().map(|serial| async move {
            let Ok(Some(server)) = directory.server(&serial).await else { return };
            if self.open().contains_key(&serial) {
                return;
            }
            match tokio::time::timeout(LEFT_BEHIND, self.reader(&server, None)).await {
                Ok(Ok(_closed)) => {}
                Ok(Err(error)) => {
                    tracing::info!(server = %serial, %error, "an old BMC session is left to time out")
                }
                Err(_elapsed) => tracing::info!(server = %serial, "an old BMC session is left to time out"),
            }
        });
        futures_util::stream::iter(closing).buffer_unordered(CLOSING).collect::<Vec<()>>().await;
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<Serial, Open>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What a sealed session is bound to.
fn context(serial: &Serial) -> String {
    format!("bmc-session/{serial}")
}

/// What is to be written about kept sessions.
enum Change {
    /// The session of a server, or that there is none.
    Kept(Serial, Option<SealedSession>),
    /// Answer when all before is written.
    Flush(tokio::sync::oneshot::Sender<()>),
}

async fn write_changes(sessions: Arc<dyn Sessions>, mut queue: mpsc::Receiver<Change>) {
    while let Some(change) = queue.recv().await {
        match change {
            Change::Kept(server, session) => {
                if let Err(error) = sessions.keep(&server, session).await {
                    tracing::warn!(%server, %error, "a BMC session was not kept; after a crash it times out by itself");
                }
            }
            // Nobody waits any more: then nobody needs to know.
            Change::Flush(done) => drop(done.send(())),
        }
    }
}

/// Nothing is changed through this handle.
struct ReadOnlyFence;

impl Fence for ReadOnlyFence {
    fn allows(&self, owned_for: Duration) -> bool {
        // What changes something asks for as long as it may take, reads and logins for this moment.
        owned_for.is_zero()
    }
}

struct Keeper {
    server: Serial,
    state: Arc<BmcState>,
    key: Arc<Key>,
    changes: mpsc::Sender<Change>,
}

impl SessionKeeper for Keeper {
    fn opened(&self, session: &SessionHandle) {
        self.state.session_opened(&session.uri);
        let plain = format!("{}\n{}", session.uri, session.token.expose_secret());
        if let Ok(sealed) = seal(&self.key, &context(&self.server), plain.as_bytes()) {
            // A full backlog only means that this session is not closed after a crash.
            let _dropped = self.changes.try_send(Change::Kept(self.server.clone(), Some(sealed)));
        }
    }

    fn closed(&self, uri: &str) {
        if self.state.session_closed(uri) {
            let _dropped = self.changes.try_send(Change::Kept(self.server.clone(), None));
        }
    }
}

/// The lease of the worker that uses the connection now.
struct SharedLease(Mutex<Option<LeaseGuard>>);

impl SharedLease {
    fn set(&self, lease: &LeaseGuard) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(lease.clone());
    }
}

impl Fence for SharedLease {
    fn allows(&self, owned_for: Duration) -> bool {
        let lease = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lease.as_ref().is_some_and(|lease| lease.outlives(owned_for).is_ok())
    }
}
