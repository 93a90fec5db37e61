//! Wires the crates and modules of the controller: one start for `serve`, the demo and the tests.
//!
//! ```text
//!   lock -> key -> store (migrate) -> library, registry -> listen (media first) -> services -> engine -> API
//!   stop:  engine releases its leases -> API closes -> media closes last -> store
//! ```
//!
//! Invariants: no socket is bound before the settings are checked; one process works on a data directory (file lock beside
//! the database); everything that holds the master key is created here and passed down.

mod adapters;
mod controller;
mod listen;
mod lock;
mod pressure;
mod registry;
mod retention;
mod stop_signal;

pub use controller::{Controller, Dependencies, Environment};
pub use registry::OfflineRegistry;
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
use bmc::Addresses;
use engine::Engine;
use engine::model::{Clock, Time};
use engine::store::{Store, StoreError, TakeOver};
use media::MediaGrants;
use provision::Services;
use secrets::{MasterKey, SecretSource, token_hash};

/// The largest maintenance ISO that is imported, in bytes.
const MAX_IMAGE: u64 = 64 << 30;
/// How long workers, connections and the audit writer may take to end at stop, each.
const DRAIN: Duration = Duration::from_secs(10);

/// Why the controller did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory could not be created.
    #[error("create the directory {}; is the disk mounted and writable for this user?", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process works on this data directory.
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
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address is in use, or no interface of this host has it.
    #[error("listen on {address}; is another program using it?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The database could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The storage of the registry could not be opened.
    #[error("open the registry's storage")]
    Registry(#[source] Box<::registry::Error>),
    /// A file, key or value that a setting names cannot be used.
    #[error("{what}")]
    Setting {
        /// The failed action with the name of the setting.
        what: &'static str,
        /// The cause.
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

/// A running controller.
pub struct RunningController {
    /// The address of the API.
    pub api: SocketAddr,
    /// The address of media; the API's unless `MEDIA_HTTP_ADDR` is set.
    pub media: SocketAddr,
    /// The admin token, created at the first start on this database and shown once.
    pub first_token: Option<SecretString>,
    /// The engine, for tests.
    pub engine: Engine,
    parts: RunningParts,
}

struct RunningParts {
    instance: String,
    clock: Arc<dyn Clock>,
    services: Arc<Services>,
    grants: MediaGrants,
    stop_work: CancellationToken,
    stop_api: CancellationToken,
    stop_media: CancellationToken,
    work: TaskTracker,
    connections: TaskTracker,
    stop_audit: CancellationToken,
    audit: TaskTracker,
    _lock: lock::DataLock,
}

impl RunningController {
    /// Stops the workers first, then the API, media last; each within [`DRAIN`].
    pub async fn stop(self) {
        let parts = self.parts;
        parts.stop_work.cancel();
        parts.work.close();
        if tokio::time::timeout(DRAIN, parts.work.wait()).await.is_err() {
            tracing::warn!("a worker did not stop in time; its run continues when its lease ends");
        }
        parts.stop_api.cancel();
        // No worker runs any more; a job that continues after the next start opens a new session.
        parts.services.bmc.connections.close_all().await;
        parts.grants.flush().await;
        parts.stop_media.cancel();
        parts.connections.close();
        if tokio::time::timeout(DRAIN, parts.connections.wait()).await.is_err() {
            tracing::info!("connections still open are closed");
        }
        // After the last request, so that its audit events are stored too.
        parts.stop_audit.cancel();
        if tokio::time::timeout(DRAIN, parts.audit.wait()).await.is_err() {
            tracing::warn!(
                "the last audit events of the registry were not stored; they are in this log only"
            );
        }
        let ended = self.engine.store().end_instance(parts.instance, parts.clock.now()).await;
        if let Err(error) = ended {
            tracing::warn!(error = %engine::model::error_chain(&error), "the end of this controller instance was not stored");
        }
    }
}

/// Starts a controller.
///
/// # Errors
/// When a directory, the data lock, an address, the database, the registry or what a setting names cannot be used.
pub async fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<RunningController, StartError> {
    start_in(settings, Environment::real(clock)).await
}

async fn start_in(settings: Settings, environment: Environment) -> Result<RunningController, StartError> {
    let clock = Arc::clone(&environment.clock);
    for path in [&settings.storage_root, &settings.maintenance_dir()] {
        create_directory(path)?;
    }
    if let Some(folder) = settings.db_path.parent() {
        create_directory(folder)?;
    }
    let lock = lock::DataLock::take(&settings.db_path)?;
    let key = master_key(&settings)?;
    let store = open_store(&settings, clock.now()).await?;
    let registry = match settings.enable_registry {
        true => Some(registry::open(&settings).await?),
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
    let instance = environment.id_source.new_id(clock.now()).to_string();
    store.begin_instance(instance.clone(), clock.now()).await?;
    let stop_work = CancellationToken::new();
    let dependencies = Dependencies {
        settings: &settings,
        key: &key,
        store: &store,
        registry: &registry,
        addresses,
        environment: &environment,
    };
    let Controller { engine, mut api, feed } =
        Controller::assemble(dependencies, &instance, stop_work.clone())?;
    engine.gauge(Arc::new(pressure::HealthGauge {
        storage: settings.storage_root.clone(),
        registry: registry.clone(),
        clock: Arc::clone(&clock),
    }));
    let (stop_api, stop_media) = (CancellationToken::new(), CancellationToken::new());
    let services = Arc::clone(&api.services);
    let (resolver, metrics) = (Arc::clone(&api.resolver), Arc::clone(&api.metrics));
    let webhooks = WebhookDispatcher::new(
        store.clone(),
        Arc::clone(&clock),
        resolver,
        metrics,
        controller::tls_of(&settings)?,
    )
    .map_err(setting("create the HTTP client of webhooks"))?;
    let maintenance = match &registry {
        Some(registry) => {
            let options = registry::MaintenanceSettings::of(&settings);
            Some(
                registry::RegistryMaintenance::new(
                    registry.clone(),
                    store.clone(),
                    Arc::clone(&clock),
                    options,
                )
                .await?,
            )
        }
        None => None,
    };
    api.registry = maintenance.clone().map(|maintenance| Arc::new(maintenance) as Arc<dyn RegistryAdmin>);
    let (recorder, audit_queue) = registry::AuditRecorder::new(Arc::clone(&api.metrics));
    let guarded = match &registry {
        Some(registry) => {
            let access = registry::RegistryAccess {
                settings: &settings,
                auth: Arc::clone(&api.auth),
                store: store.clone(),
                clock: Arc::clone(&clock),
                token_key: key.derive("registry-tokens"),
                audit: recorder,
            };
            Some(access.guard(registry).await?)
        }
        None => None,
    };
    // The last step that can fail, so that a stored token is always shown.
    let first_token = first_token(&settings, &store, clock.now()).await?;
    let connections = TaskTracker::new();
    // Media first: a BMC that was reading when the previous process ended reads again at once.
    if let Some(listener) = media_listener {
        let router = crate::api::media_router(api.clone());
        connections.spawn(listen::serve(listener, router, stop_media.clone(), connections.clone()));
    }
    let (registry_router, rules) =
        guarded.map_or((None, None), |guarded| (Some(guarded.router), guarded.rules));
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
        work.spawn(async move { webhooks.run(stop).await });
    }
    {
        let (services, stop) = (Arc::clone(&services), stop_work.clone());
        work.spawn(async move {
            stop.run_until_cancelled(services.bmc.close_orphaned_sessions()).await;
        });
    }
    if settings.job_retention_days > 0 {
        let keep = std::time::Duration::from_secs(u64::from(settings.job_retention_days) * 86_400);
        let (store, clock, stop) = (store.clone(), Arc::clone(&clock), stop_work.clone());
        work.spawn(retention::run(store, clock, keep, settings.task_iso_dir.clone(), stop));
    }
    if let Some(maintenance) = maintenance {
        work.spawn(maintenance.clone().run(stop_work.clone()));
        work.spawn(maintenance.run_scrubs(stop_work.clone()));
    }
    if let Some(rules) = rules {
        work.spawn(rules.watch(stop_work.clone()));
    }
    let (stop_audit, audit) = (CancellationToken::new(), TaskTracker::new());
    audit.spawn(registry::write_audit_events(
        audit_queue,
        store.clone(),
        Arc::clone(&clock),
        stop_audit.clone(),
    ));
    audit.close();
    Ok(RunningController {
        api: api_address,
        media: media_address,
        first_token,
        engine,
        parts: RunningParts {
            instance,
            clock,
            grants: services.grants.clone(),
            services: Arc::clone(&services),
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

fn create_directory(path: &std::path::Path) -> Result<(), StartError> {
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

/// Creates an admin token at the first start, unless a user is configured; without it no client could log in.
async fn first_token(
    settings: &Settings,
    store: &Store,
    now: Time,
) -> Result<Option<SecretString>, StartError> {
    if settings.auth_mode == AuthMode::None || settings.basic_user.is_some() || settings.jwt_secret.is_some()
    {
        return Ok(None);
    }
    let token = crate::auth::generate_token().map_err(setting("create the first admin token"))?;
    let hash = token_hash(token.expose_secret());
    let stored = store.first_token(uuid::Uuid::now_v7().to_string(), hash, now).await?;
    Ok(stored.then_some(token))
}
