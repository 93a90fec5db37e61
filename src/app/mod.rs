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
mod images;
mod listen;
mod lock;
mod pressure;
mod retention;

pub use images::Offline;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::api::{Api, ApiSettings, Feed, ImageCare};
use crate::auth::{AuthConfig, AuthMode, Authenticator, JwtKey, RateLimit, RateLimiter, WebhookSecrets};
use crate::config::{Settings, TaskIsoMode};
use crate::engine::{Engine, EngineConfig, Kinds};
use crate::media::{Grants, Library, LibraryOptions};
use crate::model::recipe::RecipeSchemas;
use crate::model::{Clock, Time};
use crate::outbox::Outbox;
use crate::provision::{
    Addresses, BmcLimits, Bmcs, Checkup, Limits, Provision, QUEUE, Site, SiteSettings, step_names,
};
use crate::secrets::{JobTokens, MasterKey, Resolver, SecretSource, token_hash};
use crate::store::{Store, StoreError, TakeOver};
use crate::telemetry::Metrics;

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
        let ended = self.engine.store().end_incarnation(parts.incarnation, parts.clock.now()).await;
        if let Err(error) = ended {
            tracing::warn!(error = %crate::model::chain(&error), "the end was not written down");
        }
    }
}

/// Starts a controller.
pub async fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    for path in [&settings.storage_root, &settings.maintenance_dir()] {
        make_folder(path)?;
    }
    if let Some(folder) = settings.db_path.parent() {
        make_folder(folder)?;
    }
    let lock = lock::DataLock::take(&settings.db_path)?;
    let key = master_key(&settings)?;
    let store = open_store(&settings, clock.now()).await?;
    let metrics = Arc::new(Metrics::default());
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
    let site = Arc::new(make_site(&settings, &key, &store, &registry, &metrics, addresses, &clock)?);
    let kinds = Kinds::default()
        .with(Arc::new(Provision::new(Arc::clone(&site))))
        .with(Arc::new(Checkup::new(Arc::clone(&site))));
    let incarnation = Uuid::now_v7().to_string();
    store.begin_incarnation(incarnation.clone(), clock.now()).await?;
    let engine = Engine::new(
        store.clone(),
        kinds,
        Arc::clone(&clock),
        EngineConfig {
            owner: format!("controller-{incarnation}"),
            queues: vec![QUEUE.to_owned()],
            concurrency: settings.worker_concurrency,
            lease: settings.job_lease_ttl,
            // Long enough for the last request of a lost worker, and for a clock that is followed a tenth faster.
            grace: settings.redfish_timeout.max(settings.job_lease_ttl / 8),
        },
    );
    engine.gauge(Arc::new(pressure::Gauge {
        storage: settings.storage_root.clone(),
        registry: registry.clone(),
        clock: Arc::clone(&clock),
    }));
    let auth = Arc::new(authenticator(&settings, &store)?);
    let (stop_work, stop_api, stop_media) =
        (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let feed = Feed::new(store.clone(), stop_work.clone());
    let (resolver, counted) = (Arc::new(Resolver::new(&key)), Arc::clone(&metrics));
    let outbox = Outbox::new(store.clone(), Arc::clone(&clock), resolver, counted, tls_of(&settings)?)
        .map_err(setting("make the HTTP client of webhooks"))?;
    let caretaker = match &registry {
        Some(registry) => {
            let care = images::Care::of(&settings);
            Some(images::Caretaker::new(registry.clone(), store.clone(), Arc::clone(&clock), care).await?)
        }
        None => None,
    };
    let (recorder, heard) = images::Recorder::new(Arc::clone(&metrics));
    let doors = match &registry {
        Some(registry) => {
            let entrance = images::Entrance {
                settings: &settings,
                auth: Arc::clone(&auth),
                store: store.clone(),
                clock: Arc::clone(&clock),
                token_key: key.derive("registry-tokens"),
                audit: recorder,
            };
            Some(entrance.open(registry).await?)
        }
        None => None,
    };
    let api = Api {
        images: caretaker.clone().map(|caretaker| Arc::new(caretaker) as Arc<dyn ImageCare>),
        feed: feed.clone(),
        engine: engine.clone(),
        site: Arc::clone(&site),
        auth: Arc::clone(&auth),
        webhook_secrets: Arc::new(webhook_secrets(&settings)?),
        webhook_failures: Arc::new(RateLimiter::new(RateLimit::default())),
        resolver: Arc::new(Resolver::new(&key)),
        metrics: Arc::clone(&metrics),
        storage: settings.storage_root.clone(),
        settings: ApiSettings {
            max_body_bytes: settings.max_body_bytes,
            metrics_anonymous: settings.metrics_anonymous,
        },
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
            stop.run_until_cancelled(site.bmcs.close_left_behind(site.directory.as_ref())).await;
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

fn make_site(
    settings: &Settings,
    key: &MasterKey,
    store: &Store,
    registry: &Option<registry::Registry>,
    metrics: &Arc<Metrics>,
    addresses: Addresses,
    clock: &Arc<dyn Clock>,
) -> Result<Site, StartError> {
    let ca = settings.redfish_ca_file.as_ref().map(std::fs::read).transpose();
    let ca = ca.map_err(setting("read REDFISH_CA_FILE"))?;
    let controller_ca = settings.controller_ca_file.as_ref().map(std::fs::read_to_string).transpose();
    let controller_ca = controller_ca.map_err(setting("read CONTROLLER_CA_FILE"))?;
    let options = LibraryOptions { tls: tls_of(settings)?, max_image_bytes: MAX_IMAGE };
    let library = Library::open(&settings.maintenance_dir(), options)
        .map_err(setting("open the library of maintenance ISOs"))?;
    let media_key = Arc::new(key.derive("media-grants"));
    let ledger = adapters::Ledger::new(store.clone(), Arc::clone(&media_key), Arc::clone(clock));
    let wall = Arc::clone(clock);
    let grants = Grants::new(Arc::new(ledger), library.clone(), Arc::new(move || wall.now().timestamp()));
    let directory = Arc::new(adapters::StoreDirectory(store.clone()));
    let bmcs = Bmcs::new(
        Resolver::new(key),
        key.derive("bmc-sessions"),
        Arc::clone(&directory) as Arc<dyn crate::provision::Sessions>,
        Arc::new(adapters::RedfishMeter(Arc::clone(metrics))),
        redfish::Options {
            read_timeout: settings.redfish_timeout,
            // The engine tries again too, durably and visibly; here only what a lost packet costs is bridged.
            read_attempts: 2,
            ..redfish::Options::default()
        },
        BmcLimits {
            each: redfish::LimitOptions {
                rate: settings.redfish_rate,
                burst: settings.redfish_rate.saturating_mul(4),
                breaker_failures: settings.redfish_breaker,
                breaker_rest: settings.redfish_breaker_rest,
            },
            in_flight: settings.redfish_max_in_flight,
        },
        ca,
    );
    Ok(Site {
        schemas: RecipeSchemas::builtin(),
        directory: Box::new(adapters::StoreDirectory(store.clone())),
        images: Box::new(adapters::RegistryImages(registry.clone())),
        bmcs,
        grants,
        library,
        tokens: JobTokens::new(key),
        media_key,
        meter: Arc::new(adapters::JobMeter(Arc::clone(metrics))),
        addresses,
        settings: SiteSettings {
            maintenance_iso_url: settings.maintenance_iso_url.clone(),
            esxi_installer_url: settings.esxi_installer_url.clone(),
            install_min_time: settings.install_min_time,
            install_window: settings.install_window,
            job_timeout: settings.job_stuck_timeout,
            cleanup_timeout: settings.cleanup_timeout,
            bmc_tries: settings.redfish_retries.max(1),
            task_iso_dir: (settings.task_iso_mode == TaskIsoMode::File)
                .then(|| settings.task_iso_dir.clone()),
            controller_ca,
            registry: registry.is_some(),
            limits: limits(settings)?,
        },
    })
}

/// Whom our own HTTP clients believe: the authorities of `CONTROLLER_CA_FILE` and no others.
fn tls_of(settings: &Settings) -> Result<rustls::ClientConfig, StartError> {
    let roots = settings.controller_ca_file.as_ref().map(std::fs::read).transpose();
    let roots = roots.map_err(setting("read CONTROLLER_CA_FILE"))?.unwrap_or_default();
    crate::media::tls_config(&roots).map_err(setting("use CONTROLLER_CA_FILE"))
}

/// The limits of the settings; a step that does not exist is a setting that means nothing.
fn limits(settings: &Settings) -> Result<Limits, StartError> {
    let unknown = settings.step_timeouts.iter().find(|(step, _)| !step_names().any(|known| known == step));
    if let Some((step, _)) = unknown {
        let known = step_names().collect::<Vec<_>>().join(", ");
        return Err(setting("use STEP_TIMEOUTS")(format!("there is no step {step}; the steps are {known}")));
    }
    let some = |limit: u32| (limit > 0).then_some(limit);
    Ok(Limits {
        power_ons: some(settings.max_power_ons),
        power_on_settle: settings.power_on_settle,
        per_site: some(settings.site_limit),
        steps: settings.step_timeouts.iter().cloned().collect(),
    })
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
    let stored = store.first_token(Uuid::now_v7().to_string(), hash, now).await?;
    Ok(stored.then_some(token))
}

fn authenticator(settings: &Settings, store: &Store) -> Result<Authenticator, StartError> {
    let jwt = load("read JWT_SECRET", &settings.jwt_secret)?
        .map(|secret| JwtKey::hs256(&secret))
        .transpose()
        .map_err(setting("use JWT_SECRET"))?;
    let config = AuthConfig {
        mode: settings.auth_mode,
        basic_user: settings.basic_user.clone().zip(settings.basic_pass_hash.clone()),
        jwt,
        failures: RateLimit::default(),
    };
    Authenticator::new(config, Arc::new(adapters::StoreCredentials(store.clone())))
        .map_err(setting("set up authentication"))
}

fn webhook_secrets(settings: &Settings) -> Result<WebhookSecrets, StartError> {
    let current = load("read WEBHOOK_SECRET", &settings.webhook_secret)?;
    let previous = load("read WEBHOOK_SECRET_OLD", &settings.webhook_secret_old)?;
    Ok(WebhookSecrets::new(current.as_ref(), previous.as_ref()))
}
