//! Puts the rooms together: one start for `serve`, the demo and the tests. The only room that wires.
//!
//! ```text
//!   lock -> key -> store (migrate) -> library, registry -> listen (media answers first) -> site -> engine -> API
//!   stop:  engine gives its leases back -> API closes -> media closes last -> store
//! ```
//!
//! Invariants: nothing is bound before the settings are known to be good; one process works on a data directory (file lock
//! beside the database); what holds the master key is made here and handed down.

mod adapters;
mod controller;
mod images;
mod listen;
mod lock;
mod pressure;
mod retention;
mod stop_signal;

pub use controller::{Controller, Dependencies, Environment};
pub use images::Offline;
pub use stop_signal::stop_signal;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::RegistryAdmin;
use crate::auth::AuthMode;
use crate::config::Settings;
use crate::webhooks::WebhookDispatcher;
use engine::Engine;
use engine::model::{Clock, Time};
use engine::store::{Store, StoreError, TakeOver};
use media::Grants;
use provision::{Addresses, Site};
use secrets::{MasterKey, SecretSource, token_hash};

/// The longest maintenance ISO that is imported.
const MAX_IMAGE: u64 = 64 << 30;
/// How long connections may take to end at stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Why the controller did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A folder could not be made.
    #[error("make the folder {}; is the disk mounted and writable for this user?", path.display())]
    Folder {
        /// Which one.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another process works on this data.
    #[error("{} is in use by another controller; stop it first, or use its API", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock file could not be used.
    #[error("lock {}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The address is taken or not ours.
    #[error("listen on {address}; is another program using it?")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The registry's storage.
    #[error("open the registry's storage")]
    Registry(#[source] Box<registry::Error>),
    /// Something that the settings name cannot be used.
    #[error("{what}")]
    Setting {
        /// What was being done with which setting.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn setting<E>(what: &'static str) -> impl FnOnce(E) -> StartError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| StartError::Setting { what, source: source.into() }
}

/// A controller at work.
pub struct Running {
    /// Where the API answers.
    pub api: SocketAddr,
    /// Where media are served; the same unless there is a listener of its own.
    pub media: SocketAddr,
    /// The admin token, made at the first start on this database; shown once.
    pub first_token: Option<SecretString>,
    /// The engine, for tests that look inside.
    pub engine: Engine,
    parts: Parts,
}

struct Parts {
    incarnation: String,
    clock: Arc<dyn Clock>,
    site: Arc<Site>,
    grants: Grants,
    stop_work: CancellationToken,
    stop_api: CancellationToken,
    stop_media: CancellationToken,
    work: TaskTracker,
    connections: TaskTracker,
    stop_audit: CancellationToken,
    audit: TaskTracker,
    _lock: lock::DataLock,
}

impl Running {
    /// Stops: workers first, then the API, media last; bounded in time.
    pub async fn stop(self) {
        let parts = self.parts;
        parts.stop_work.cancel();
        parts.work.close();
        if tokio::time::timeout(DRAIN, parts.work.wait()).await.is_err() {
            tracing::warn!("a worker did not stop in time; its lease decides");
        }
        parts.stop_api.cancel();
        // Nobody works any more; what a job was in the middle of logs in again at the next start.
        parts.site.bmcs.close_all().await;
        parts.grants.flush().await;
        parts.stop_media.cancel();
        parts.connections.close();
        if tokio::time::timeout(DRAIN, parts.connections.wait()).await.is_err() {
            tracing::info!("connections still open at the end are cut");
        }
        // After the last request: what it did is written down too.
        parts.stop_audit.cancel();
        if tokio::time::timeout(DRAIN, parts.audit.wait()).await.is_err() {
            tracing::warn!("what happened last in the registry is in this log only");
        }
        let ended = self.engine.store().end_instance(parts.incarnation, parts.clock.now()).await;
        if let Err(error) = ended {
            tracing::warn!(error = %engine::model::error_chain(&error), "the end was not written down");
        }
    }
}

/// Starts a controller.
pub async fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    start_in(settings, Environment::real(clock)).await
}

async fn start_in(settings: Settings, environment: Environment) -> Result<Running, StartError> {
    let clock = Arc::clone(&environment.clock);
    for path in [&settings.storage_root, &settings.maintenance_dir()] {
        make_folder(path)?;
    }
    if let Some(folder) = settings.db_path.parent() {
        make_folder(folder)?;
    }
    let lock = lock::DataLock::take(&settings.db_path)?;
    let key = master_key(&settings)?;
    let store = open_store(&settings, clock.now()).await?;
    let registry = match settings.enable_registry {
        true => Some(images::open(&settings).await?),
        false => None,
    };
    let bind = |address: SocketAddr| async move {
        tokio::net::TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
    };
    let listener = bind(settings.controller_http_addr).await?;
    let media_listener = match settings.media_http_addr {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let bound = |listener: &tokio::net::TcpListener| {
        listener
            .local_addr()
            .map_err(|source| StartError::Listen { address: settings.controller_http_addr, source })
    };
    let api_address = bound(&listener)?;
    let media_address = media_listener.as_ref().map_or(Ok(api_address), bound)?;
    let addresses = Addresses {
        api: api_address,
        media: media_address,
        public_url: settings.controller_public_url.clone(),
        media_base_url: settings.media_base_url.clone(),
    };
    let incarnation = environment.chance.id(clock.now()).to_string();
    store.begin_instance(incarnation.clone(), clock.now()).await?;
    let stop_work = CancellationToken::new();
    let given = Dependencies {
        settings: &settings,
        key: &key,
        store: &store,
        registry: &registry,
        addresses,
        environment: &environment,
    };
    let Controller { engine, mut api, feed } = Controller::assemble(given, &incarnation, stop_work.clone())?;
    engine.gauge(Arc::new(pressure::Gauge {
        storage: settings.storage_root.clone(),
        registry: registry.clone(),
        clock: Arc::clone(&clock),
    }));
    let (stop_api, stop_media) = (CancellationToken::new(), CancellationToken::new());
    let site = Arc::clone(&api.site);
    let (resolver, counted) = (Arc::clone(&api.resolver), Arc::clone(&api.metrics));
    let outbox = WebhookDispatcher::new(
        store.clone(),
        Arc::clone(&clock),
        resolver,
        counted,
        controller::tls_of(&settings)?,
    )
    .map_err(setting("make the HTTP client of webhooks"))?;
    let caretaker = match &registry {
        Some(registry) => {
            let care = images::Care::of(&settings);
            Some(
                images::RegistryMaintenance::new(registry.clone(), store.clone(), Arc::clone(&clock), care)
                    .await?,
            )
        }
        None => None,
    };
    api.images = caretaker.clone().map(|caretaker| Arc::new(caretaker) as Arc<dyn RegistryAdmin>);
    let (recorder, heard) = images::Recorder::new(Arc::clone(&api.metrics));
    let doors = match &registry {
        Some(registry) => {
            let entrance = images::RegistryAccess {
                settings: &settings,
                auth: Arc::clone(&api.auth),
                store: store.clone(),
                clock: Arc::clone(&clock),
                token_key: key.derive("registry-tokens"),
                audit: recorder,
            };
            Some(entrance.open(registry).await?)
        }
        None => None,
    };
    // The last thing that can fail: a token that is stored is also shown.
    let first_token = first_token(&settings, &store, clock.now()).await?;
    let connections = TaskTracker::new();
    // Media answer first: a BMC that was reading when the predecessor died asks again at once.
    if let Some(listener) = media_listener {
        let router = crate::api::media_router(api.clone());
        connections.spawn(listen::serve(listener, router, stop_media.clone(), connections.clone()));
    }
    let (registry_router, rules) = doors.map_or((None, None), |doors| (Some(doors.router), doors.rules));
    let router = crate::api::router(api, registry_router);
    let stop_main = if media_address == api_address { stop_media.clone() } else { stop_api.clone() };
    connections.spawn(listen::serve(listener, router, stop_main, connections.clone()));
    let work = TaskTracker::new();
    {
        let (engine, stop) = (engine.clone(), stop_work.clone());
        work.spawn(async move { engine.run(TakeOver::Everything, stop).await });
    }
    work.spawn(async move { feed.run().await });
    {
        let stop = stop_work.clone();
        work.spawn(async move { outbox.run(stop).await });
    }
    {
        let (site, stop) = (Arc::clone(&site), stop_work.clone());
        work.spawn(async move {
            stop.run_until_cancelled(site.bmcs.close_orphaned_sessions(site.directory.as_ref())).await;
        });
    }
    if settings.job_retention_days > 0 {
        let keep = std::time::Duration::from_secs(u64::from(settings.job_retention_days) * 86_400);
        let (store, clock, stop) = (store.clone(), Arc::clone(&clock), stop_work.clone());
        work.spawn(retention::run(store, clock, keep, settings.task_iso_dir.clone(), stop));
    }
    if let Some(caretaker) = caretaker {
        work.spawn(caretaker.clone().keep(stop_work.clone()));
        work.spawn(caretaker.keep_verified(stop_work.clone()));
    }
    if let Some(rules) = rules {
        work.spawn(rules.follow(stop_work.clone()));
    }
    let (stop_audit, audit) = (CancellationToken::new(), TaskTracker::new());
    audit.spawn(images::write_audit(heard, store.clone(), Arc::clone(&clock), stop_audit.clone()));
    audit.close();
    Ok(Running {
        api: api_address,
        media: media_address,
        first_token,
        engine,
        parts: Parts {
            incarnation,
            clock,
            grants: site.grants.clone(),
            site: Arc::clone(&site),
            stop_work,
            stop_api,
            stop_media,
            work,
            connections,
            stop_audit,
            audit,
            _lock: lock,
        },
    })
}

fn make_folder(path: &std::path::Path) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(path)
        .map_err(|source| StartError::Folder { path: path.to_owned(), source })
}

fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn load(what: &'static str, source: &Option<SecretSource>) -> Result<Option<SecretString>, StartError> {
    source.as_ref().map(|source| source.load(&environment)).transpose().map_err(setting(what))
}

fn master_key(settings: &Settings) -> Result<MasterKey, StartError> {
    match load("read MASTER_KEY", &settings.master_key)? {
        Some(text) => MasterKey::from_hex(&text).map_err(setting("use MASTER_KEY")),
        None => MasterKey::load_or_create(&settings.master_key_file())
            .map_err(setting("use the master key of this data directory")),
    }
}

async fn open_store(settings: &Settings, now: Time) -> Result<Store, StartError> {
    let path = settings.db_path.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&path, now)).await;
    Ok(opened.map_err(|_panic| StoreError::Closed)??)
}

/// Makes an admin token at the first start, unless a user is configured: somebody must be able to get in.
async fn first_token(
    settings: &Settings,
    store: &Store,
    now: Time,
) -> Result<Option<SecretString>, StartError> {
    if settings.auth_mode == AuthMode::None || settings.basic_user.is_some() || settings.jwt_secret.is_some()
    {
        return Ok(None);
    }
    let token = crate::auth::generate_token().map_err(setting("make the first admin token"))?;
    let hash = token_hash(token.expose_secret());
    let stored = store.first_token(uuid::Uuid::now_v7().to_string(), hash, now).await?;
    Ok(stored.then_some(token))
}
