//! Connections to BMCs: one client per server, its session kept across crashes, its mutations fenced by the lease.
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
use redfish::{
    Bmc, Credentials, Endpoint, Fence, Fingerprint, HttpOptions, HttpTransport, Observer, Options,
    SessionHandle, SessionKeeper, TlsMode as BmcTls, Transport,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc;

use super::profiles;
use super::site::Unavailable;
use crate::engine::LeaseGuard;
use crate::model::{Serial, Server, TlsMode};
use crate::secrets::{CredentialRef, Key, Resolver, open, seal};

/// Changes of kept sessions that wait for the disk at most; more are dropped, the session then simply times out.
const BACKLOG: usize = 1024;
/// How long a certificate's fingerprint may take to be read.
const FINGERPRINT: Duration = Duration::from_secs(10);

/// A session as it is kept, sealed.
pub type KeptSession = String;

/// Where sessions are kept so that the next incarnation can close them.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Keeps (or forgets) the session of a server.
    async fn keep(&self, server: &Serial, session: Option<KeptSession>) -> Result<(), Unavailable>;
    /// The session kept for a server.
    async fn kept(&self, server: &Serial) -> Result<Option<KeptSession>, Unavailable>;
}

/// The way to BMCs. Passed in, so that a simulation can be the network (lock L10).
#[async_trait]
pub trait Network: Send + Sync {
    /// What carries requests to the BMC at `endpoint`.
    ///
    /// # Errors
    /// When nothing can be sent with these settings.
    fn transport(&self, endpoint: &Endpoint, tls: &BmcTls) -> Result<Arc<dyn Transport>, String>;
    /// The fingerprint of the certificate at `endpoint`.
    ///
    /// # Errors
    /// When nobody answers with one.
    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, String>;
}

/// Real sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

#[async_trait]
impl Network for Sockets {
    fn transport(&self, endpoint: &Endpoint, tls: &BmcTls) -> Result<Arc<dyn Transport>, String> {
        match HttpTransport::new(endpoint, tls, HttpOptions::default()) {
            Ok(transport) => Ok(Arc::new(transport)),
            Err(why) => Err(why.to_string()),
        }
    }

    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, String> {
        redfish::read_fingerprint(endpoint, FINGERPRINT).await.map_err(|why| why.to_string())
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
    Unreachable(String),
}

/// A connection, and the certificate fingerprint learned when it was made.
pub(super) struct Connected {
    pub(super) bmc: Bmc,
    pub(super) learned_fingerprint: Option<String>,
}

/// All connections of a controller.
pub struct Bmcs {
    resolver: Resolver,
    key: Arc<Key>,
    sessions: Arc<dyn Sessions>,
    observer: Arc<dyn Observer>,
    network: Arc<dyn Network>,
    options: Options,
    ca: Option<Vec<u8>>,
    changes: mpsc::Sender<(Serial, Option<KeptSession>)>,
    open: Mutex<HashMap<Serial, Open>>,
}

struct Open {
    revision: i64,
    bmc: Bmc,
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
        ca: Option<Vec<u8>>,
    ) -> Self {
        let (changes, queue) = mpsc::channel(BACKLOG);
        tokio::spawn(write_changes(Arc::clone(&sessions), queue));
        Self {
            resolver,
            key: Arc::new(key),
            sessions,
            observer,
            network: Arc::new(Sockets),
            options,
            ca,
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
        let endpoint: Endpoint = server.bmc_address.parse().map_err(|why| {
            ConnectError::Record(format!("the BMC address of {} is unusable: {why}", server.serial))
        })?;
        let (tls, learned_fingerprint) = self.tls(server, &endpoint).await?;
        let password = self.password(server)?;
        let transport = self.network.transport(&endpoint, &tls).map_err(ConnectError::Unreachable)?;
        let shared = Arc::new(SharedLease(Mutex::new(Some(lease.clone()))));
        let builder = Bmc::builder(
            endpoint,
            Credentials::new(server.bmc_username.clone(), password),
            transport,
            profiles::first(server),
        );
        let bmc = profiles::choose(builder, server)
            .options(self.options)
            .observer(Arc::clone(&self.observer))
            .fence(Arc::clone(&shared) as Arc<dyn Fence>)
            .session_keeper(Arc::new(Keeper {
                server: server.serial.clone(),
                key: Arc::clone(&self.key),
                changes: self.changes.clone(),
            }))
            .build();
        self.close_kept(&server.serial, &bmc).await;
        let open = Open {
            revision: server.revision,
            bmc: bmc.clone(),
            learned_fingerprint: learned_fingerprint.clone(),
            lease: shared,
        };
        self.open().insert(server.serial.clone(), open);
        Ok(Connected { bmc, learned_fingerprint })
    }

    fn reuse(&self, server: &Server, lease: &LeaseGuard) -> Option<Connected> {
        let open = self.open();
        let found = open.get(&server.serial).filter(|found| found.revision == server.revision)?;
        found.lease.set(lease);
        let learned_fingerprint =
            found.learned_fingerprint.clone().filter(|_| server.tls_fingerprint.is_none());
        Some(Connected { bmc: found.bmc.clone(), learned_fingerprint })
    }

    /// Logs out and forgets the connection; best effort, a session also ends by itself.
    pub(super) async fn close(&self, serial: &Serial) {
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
                let seen = self.network.fingerprint(endpoint).await.map_err(ConnectError::Unreachable)?;
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
            .map_err(|why| ConnectError::Record(format!("{}", crate::model::chain(&why))))
    }

    /// Closes the session a crashed incarnation left open, so that the BMC's few places do not fill up.
    async fn close_kept(&self, serial: &Serial, bmc: &Bmc) {
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

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<Serial, Open>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What a sealed session is bound to.
fn context(serial: &Serial) -> String {
    format!("bmc-session/{serial}")
}

async fn write_changes(
    sessions: Arc<dyn Sessions>,
    mut queue: mpsc::Receiver<(Serial, Option<KeptSession>)>,
) {
    while let Some((server, session)) = queue.recv().await {
        if let Err(error) = sessions.keep(&server, session).await {
            tracing::warn!(%server, %error, "a BMC session was not kept; after a crash it times out by itself");
        }
    }
}

struct Keeper {
    server: Serial,
    key: Arc<Key>,
    changes: mpsc::Sender<(Serial, Option<KeptSession>)>,
}

impl SessionKeeper for Keeper {
    fn opened(&self, session: &SessionHandle) {
        let plain = format!("{}\n{}", session.uri, session.token.expose_secret());
        if let Ok(sealed) = seal(&self.key, &context(&self.server), plain.as_bytes()) {
            // A full backlog only means that this session is not closed after a crash.
            let _dropped = self.changes.try_send((self.server.clone(), Some(sealed)));
        }
    }

    fn closed(&self, _uri: &str) {
        let _dropped = self.changes.try_send((self.server.clone(), None));
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
    fn allows(&self, deadline: Duration) -> bool {
        let lease = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lease.as_ref().is_some_and(|lease| lease.outlives(deadline).is_ok())
    }
}
