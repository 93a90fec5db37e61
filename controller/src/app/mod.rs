//! Wires the crates and modules of the controller: one start for `serve`, the demo and the tests.
//!
//! ```text
//!   locks -> key -> store (migrate) -> origin -> library, registry -> listen -> services -> first token -> media -> engine -> API
//!   stop:  engine releases its leases -> API closes -> media closes last -> store
//! ```
//!
//! Invariants: no socket is bound before the settings are checked; one process works on the directories that the settings name
//! ([`lock`]); data that is a copy or old is marked before the engine exists ([`origin`]); everything that holds the master key is created here and passed down.

mod adapters;
pub mod backup;
mod connections;
mod controller;
mod firmware_store;
mod firmware_urls;
mod inherited;
mod key_set;
mod listen;
mod lock;
mod offline_accounts;
mod offline_secrets;
mod origin;
mod os_medium;
mod pressure;
mod private;
mod purposes;
mod registry;
mod reload;
mod retention;
mod service_manager;
mod signals;
mod sockets;

pub use controller::{Controller, Dependencies, Environment};
pub use inherited::InheritedSockets;
pub use lock::LostLock;
pub use offline_accounts::OfflineAccounts;
pub use offline_secrets::OfflineSecrets;
pub use private::make_private;
pub use registry::OfflineRegistry;
pub use service_manager::ServiceManager;
pub use signals::{ProcessSignal, ProcessSignals, stop_signal};
pub use sockets::tls_options;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nats_carrier::ServerUrl;
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::carrier::Carrier;
use crate::webhooks::WebhookDispatcher;
use access::audit::AuditAction;
use access::tls::{Certificates, TlsError};
use api::{Api, RegistryAdmin};
use connections::AdmissionParts;
use engine::Engine;
use keys::{Keys, MasterKeySource};
use media::MediaGrants;
use model::audit::NewAuditEntry;
use model::{Clock, Time};
use provision::Services;
use secrets::{MasterKey, SecretSource, token_hash};
use settings::descriptors::{self, DescriptorBudget};
use settings::{Settings, read_credentials};
use store::{AuditTrail, Store, StoreError, TakeOver, audited};
use telemetry::Metrics;

/// The largest maintenance ISO that is imported, in bytes.
const MAX_IMAGE: u64 = 64 << 30;
/// How long workers, connections and the audit writer may take to end at stop, each.
const DRAIN: Duration = Duration::from_secs(10);

/// Returns the hint for an operator when an address cannot be listened on.
fn listen_hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::AddrInUse => "another program uses it",
        std::io::ErrorKind::AddrNotAvailable => "no interface of this host has the address",
        std::io::ErrorKind::PermissionDenied => {
            "a port below 1024 needs a right: use shoal.socket, or give CAP_NET_BIND_SERVICE"
        }
        _ => "check the address",
    }
}

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
    /// Another process works on this directory.
    #[error(
        "{what} ({}) is in use by another controller or command; stop it first, use its API, or give this one a directory of its own",
        path.display()
    )]
    InUse {
        /// The setting that names the directory.
        what: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// Root works on the data of another user, who could not open what root writes.
    #[error(
        "{} belongs to user {owner}, and this is root: a file that root writes there stops the next start of that user; run this \
         command as the user of the controller, for example: setpriv --reuid shoal --regid shoal --clear-groups shoal …",
        path.display()
    )]
    ForeignData {
        /// The database, or the data directory.
        path: PathBuf,
        /// The user that owns the path.
        owner: u32,
    },
    /// A directory could not be locked.
    #[error("lock {}", path.display())]
    Lock {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A restore into this data directory was interrupted.
    #[error(
        "the restore into {} is not complete: run shoal restore again, or start with an empty directory",
        path.display()
    )]
    RestoreIncomplete {
        /// The data directory.
        path: PathBuf,
    },
    /// The database file has more than one name.
    #[error(
        "the database {} has a second name (a hard link), under which another program could use it with another write-ahead log; \
         remove the second name",
        path.display()
    )]
    HardLinks {
        /// The database.
        path: PathBuf,
    },
    /// The settings name no database.
    #[error(
        "there is no database at {}; is STORAGE_ROOT or DB_PATH right? The first start of a controller creates it",
        path.display()
    )]
    NoDatabase {
        /// The database.
        path: PathBuf,
    },
    /// The origin file could not be read or written.
    #[error("use the origin file {}; is the disk full or read-only?", path.display())]
    Origin {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address is in use, no interface of this host has it, or a low port needs a right.
    #[error("listen on {address}; {}", listen_hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The service manager passed a descriptor that is no TCP listener.
    #[error("take descriptor {number} of LISTEN_FDS; list TCP sockets only in the .socket unit")]
    PassedDescriptor {
        /// The number of the descriptor.
        number: usize,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The service manager passed a socket that no setting names.
    #[error(
        "the service manager passed a socket for {address}, and no setting names this address: make ListenStream= of the .socket \
         unit equal to CONTROLLER_HTTPS_ADDR, CONTROLLER_HTTP_ADDR, MEDIA_HTTP_ADDR or MEDIA_HTTPS_ADDR"
    )]
    UnusedSocket {
        /// The address of the socket.
        address: SocketAddr,
    },
    /// The certificate of the TLS listeners could not be read or made.
    #[error("prepare TLS for the listeners")]
    Tls(#[source] TlsError),
    /// A directory or the database is open to other users and cannot be closed safely.
    #[error(
        "{} ({setting}) has mode {mode:04o}, so that other users have access to secrets; it is shared, of another user, or has \
         files that are not of shoal: give shoal a directory of its own and run chmod 700 on it",
        path.display()
    )]
    OpenToOthers {
        /// The directory or file.
        path: PathBuf,
        /// The setting that names the path.
        setting: &'static str,
        /// The permission bits of the path.
        mode: u32,
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
    /// The address of the API for plain HTTP.
    pub api: SocketAddr,
    /// The address of the API for HTTPS, unless it is off.
    pub https: Option<SocketAddr>,
    /// The address of media; the API's unless `MEDIA_HTTP_ADDR` is set.
    pub media: SocketAddr,
    /// The certificate of the TLS listeners, if there are any.
    pub certificates: Option<Arc<Certificates>>,
    /// The admin token, created at the first start on this database and shown once.
    pub first_token: Option<SecretString>,
    /// The engine, for tests.
    pub engine: Engine,
    parts: RunningParts,
}

struct RunningParts {
    instance: String,
    /// The settings of the start.
    settings: Settings,
    api: Api,
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
    lost: tokio::sync::watch::Receiver<Option<LostLock>>,
    _lock: Arc<lock::DataLock>,
}

impl RunningController {
    /// Returns when a lock of this controller is gone. It has closed its sockets and its workers stop then; the caller stops it.
    pub fn lost(&self) -> impl Future<Output = LostLock> + use<> {
        let mut lost = self.parts.lost.clone();
        async move {
            match lost.wait_for(Option::is_some).await.map(|lost| lost.clone()) {
                Ok(Some(lost)) => lost,
                // The watch ended with the controller.
                Ok(None) | Err(_) => std::future::pending().await,
            }
        }
    }

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
        // What was read while the connections ended.
        parts.grants.flush().await;
        // After the last request, so that its audit events are stored too.
        parts.stop_audit.cancel();
        if tokio::time::timeout(DRAIN, parts.audit.wait()).await.is_err() {
            tracing::warn!(
                "the last audit events of the registry and refused requests were not stored; they are in this log only"
            );
        }
        let ended = self.engine.store().end_instance(parts.instance, parts.clock.now()).await;
        if let Err(error) = ended {
            tracing::warn!(error = %model::error_chain(&error), "the end of this controller instance was not stored");
        }
    }
}

/// Starts a controller.
///
/// # Errors
/// When a directory, the data lock, an address, the database, the registry or what a setting names cannot be used.
pub async fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<RunningController, StartError> {
    start_in(settings, Environment::real(clock), None, InheritedSockets::none()).await
}

/// Shows the first admin token and the address of the API to the operator, on a thread that may block.
pub type ShowToken = Box<dyn FnOnce(&SecretString, SocketAddr) -> io::Result<()> + Send>;

/// Starts a controller that shows its first admin token before it responds to a client. A token that was not shown is not
/// stored, so the next start shows another one. A socket that the service manager passed is used in place of a new one.
///
/// # Errors
/// When [`start`] cannot start a controller.
pub async fn start_showing(
    settings: Settings,
    clock: Arc<dyn Clock>,
    show: ShowToken,
    inherited: InheritedSockets,
) -> Result<RunningController, StartError> {
    start_in(settings, Environment::real(clock), Some(show), inherited).await
}

async fn start_in(
    settings: Settings,
    environment: Environment,
    show: Option<ShowToken>,
    inherited: InheritedSockets,
) -> Result<RunningController, StartError> {
    let budget = descriptor_budget(&settings);
    let clock = Arc::clone(&environment.clock);
    purposes::check(&settings)?;
    // Before anything is created in a directory that may be of others.
    private::close_to_others(&settings)?;
    let mut lock = lock::DataLock::take(&settings)?;
    backup::refuse_incomplete(&settings)?;
    create_directory(&settings.maintenance_dir())?;
    if settings.image_dir.starts_with(&settings.storage_root) {
        create_directory(&settings.image_dir)?;
    }
    let (keys, store) = open_data(&settings, &lock, clock.now()).await?;
    lock.watch_database()?;
    // What is written from here on is not earlier than what the controller before has written.
    store.resume_clock(&*clock).await?;
    let lock = Arc::new(lock);
    let origin = origin::Origin::begin(&settings.storage_root, &store, clock.now()).await?;
    let registry = match settings.enable_registry {
        true => Some(registry::open(&settings).await?),
        false => None,
    };
    let sockets = sockets::Sockets::bind(&settings, inherited).await?;
    let addresses = sockets.addresses(&settings);
    let (api_address, https, media_address) = (addresses.api, addresses.api_tls, addresses.media);
    let certificates = match sockets.has_tls() {
        true => Some(sockets::certificates(&settings, &clock).await?),
        false => None,
    };
    let instance = environment.id_source.new_id(clock.now()).to_string();
    let last_seen = store.begin_instance(instance.clone(), clock.now(), Some(Arc::clone(&clock))).await?;
    let stop_work = CancellationToken::new();
    let dependencies = Dependencies {
        settings: &settings,
        keys: &keys,
        store: &store,
        registry: &registry,
        addresses,
        certificates: certificates.clone(),
        environment: &environment,
    };
    let Controller { engine, mut api, feed } =
        Controller::assemble(dependencies, &instance, stop_work.clone())?;
    engine.resume_after(last_seen);
    if let Some(seen) = last_seen
        && !store.former_instance_ended(&instance).await?
    {
        api.services.grants.former_was_killed(seen);
    }
    engine.gauge(Arc::new(pressure::HealthGauge {
        storage: settings.storage_root.clone(),
        database: settings.db_path.clone(),
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
        controller::address_policy(&settings),
    )
    .map_err(setting("create the HTTP client of webhooks"))?;
    api.webhook_tests = Some(webhooks.tester(Arc::clone(&environment.id_source)));
    let carrier = settings.events.clone().map(|server| carrier(server, &settings, &engine, &api.metrics));
    let carrier = carrier.transpose()?;
    let maintenance = match &registry {
        Some(registry) => {
            let options = registry::MaintenanceSettings::of(&settings);
            Some(
                registry::RegistryMaintenance::new(
                    registry.clone(),
                    store.clone(),
                    Arc::clone(&clock),
                    Arc::clone(&api.metrics),
                    options,
                )
                .await?,
            )
        }
        None => None,
    };
    let backups = backup::BackupService::open(&settings, &store, &clock, &api.metrics).await?;
    api.backups = Some(Arc::new(backups.clone()));
    api.registry = maintenance.clone().map(|maintenance| Arc::new(maintenance) as Arc<dyn RegistryAdmin>);
    let (recorder, audit_queue) = registry::AuditRecorder::new(
        Arc::clone(&api.metrics),
        store.clone(),
        Arc::clone(&clock),
        Arc::clone(&api.refused),
    );
    if let Some(registry) = &registry {
        registry::remove_pins_of_ended_jobs(registry, &store).await?;
    }
    if let Some(files) = &api.firmware {
        // Before the first response: what a set holds must not be deleted by a request.
        let reconciled = files.reconcile(&store.firmware_sets().await?).await;
        reconciled.map_err(setting("make the holds of firmware sets equal to the sets"))?;
    }
    let guarded = match &registry {
        Some(registry) => {
            let access = registry::RegistryAccess {
                settings: &settings,
                auth: Arc::clone(&api.auth),
                store: store.clone(),
                clock: Arc::clone(&clock),
                token_key: keys.signing().derive("registry-tokens"),
                audit: recorder,
            };
            Some(access.guard(registry).await?)
        }
        None => None,
    };
    // Before the first response: a client that finds the controller ready can rely on the token.
    let elsewhere = api.auth.logins().elsewhere;
    let first_token = match elsewhere {
        true => None,
        false => first_token(&store, clock.now(), api_address, show).await?,
    };
    let api = Api::new(api);
    let of_running = api.clone();
    let denials = Arc::clone(api.auth.denials());
    let admission = AdmissionParts {
        budget,
        proxies: settings.trusted_proxies.clone(),
        denials: Arc::clone(&denials),
        clock: Arc::clone(&clock),
        metrics: Arc::clone(&of_running.metrics),
    };
    let connections = TaskTracker::new();
    let (registry_router, rules) =
        guarded.map_or((None, None), |guarded| (Some(guarded.router), guarded.rules));
    sockets.serve(&settings, api, registry_router, &admission, (&stop_api, &stop_media), &connections)?;
    let work = TaskTracker::new();
    if let Some(certificates) = &certificates {
        work.spawn(Arc::clone(certificates).watch(stop_work.clone()));
    }
    if let Some(certificates) = &of_running.report_certificates {
        work.spawn(Arc::clone(certificates).watch(stop_work.clone()));
    }
    {
        let (engine, stop) = (engine.clone(), stop_work.clone());
        work.spawn(async move { engine.run(TakeOver::Everything, stop).await });
    }
    work.spawn(async move { feed.run().await });
    {
        let (clock, stop) = (Arc::clone(&clock), stop_work.clone());
        work.spawn(async move { denials.run(|| clock.now().timestamp(), stop).await });
    }
    {
        let (keys, clock, stop) = (Arc::clone(&keys), Arc::clone(&clock), stop_work.clone());
        let renew = Arc::clone(&of_running.renew_report_secrets);
        work.spawn(keys.watch(store.clone(), clock, move || renew(), stop));
    }
    work.spawn(Arc::new(origin).follow(store.clone(), stop_work.clone()));
    let (report_lost, lost) = tokio::sync::watch::channel(None);
    {
        let (watched, stop) = (Arc::clone(&lock), stop_work.clone());
        let stops = [stop_work.clone(), stop_api.clone(), stop_media.clone()];
        work.spawn(async move {
            if let Some(why) = watched.lost(stop).await {
                tracing::error!("{why}");
                stops.iter().for_each(CancellationToken::cancel);
                report_lost.send_replace(Some(why));
            }
        });
    }
    {
        let stop = stop_work.clone();
        work.spawn(async move { webhooks.run(stop).await });
    }
    if let Some(carrier) = carrier {
        work.spawn(carrier.run(stop_work.clone()));
    }
    {
        let (services, stop) = (Arc::clone(&services), stop_work.clone());
        work.spawn(async move {
            stop.run_until_cancelled(services.bmc.close_orphaned_sessions()).await;
        });
    }
    let age = retention::AgeClock::new(Arc::clone(&clock), last_seen);
    if settings.job_retention_days > 0 {
        let keep = std::time::Duration::from_secs(u64::from(settings.job_retention_days) * 86_400);
        let (store, age, stop) = (store.clone(), age.clone(), stop_work.clone());
        work.spawn(retention::run(store, age, keep, settings.task_iso_dir.clone(), stop));
    }
    let (days, entries) = (settings.audit_retention_days, settings.audit_max_entries);
    work.spawn(retention::run_audit(store.clone(), age, days, entries, stop_work.clone()));
    if let Some(maintenance) = maintenance {
        work.spawn(maintenance.clone().run(stop_work.clone()));
        work.spawn(maintenance.run_scrubs(stop_work.clone()));
    }
    work.spawn(backups.run(stop_work.clone()));
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
    {
        let (refused, store, clock, stop) =
            (Arc::clone(&of_running.refused), store.clone(), Arc::clone(&clock), stop_audit.clone());
        audit.spawn(async move { refused.run(store, clock, stop).await });
    }
    audit.close();
    Ok(RunningController {
        api: api_address,
        https,
        media: media_address,
        certificates,
        first_token,
        engine,
        parts: RunningParts {
            instance,
            settings,
            api: of_running,
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
            lost,
            _lock: lock,
        },
    })
}

/// The carrier to the server of `EVENTS`.
fn carrier(
    server: ServerUrl,
    settings: &Settings,
    engine: &Engine,
    metrics: &Arc<Metrics>,
) -> Result<Box<Carrier>, StartError> {
    let credentials = settings.events_credentials_file.as_deref().map(read_credentials).transpose();
    let credentials = credentials.map_err(setting("read EVENTS_CREDENTIALS_FILE"))?;
    let tls = controller::tls_of(settings)?;
    // On the heap: it would make the start a larger future.
    Ok(Box::new(Carrier::new(server, credentials, tls, engine.clone(), Arc::clone(metrics))))
}

/// Raises the limit of open files and divides it.
fn descriptor_budget(settings: &Settings) -> DescriptorBudget {
    let budget = DescriptorBudget::of(descriptors::raise(), settings.redfish_max_in_flight);
    let DescriptorBudget { limit, storage, outgoing, open, active } = budget;
    match budget.problem() {
        None => tracing::info!(limit, storage, outgoing, open, active, "the limit of open files is divided"),
        Some(why) => tracing::warn!(limit, storage, outgoing, open, active, "{why}"),
    }
    budget
}

fn create_directory(path: &std::path::Path) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| StartError::Folder { path: path.to_owned(), source })
}

fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn load(what: &'static str, source: &Option<SecretSource>) -> Result<Option<SecretString>, StartError> {
    source.as_ref().map(|source| source.load(&environment)).transpose().map_err(setting(what))
}

/// Reads the keys of a locked data directory and opens its database.
async fn open_data(
    settings: &Settings,
    lock: &lock::DataLock,
    now: Time,
) -> Result<(Arc<Keys>, Store), StartError> {
    let text = load("read MASTER_KEY", &settings.master_key)?;
    let given = text.map(|text| MasterKey::from_hex(&text)).transpose().map_err(setting("use MASTER_KEY"))?;
    let master = MasterKeySource::open(settings, given)
        .map_err(setting("use the master key of this data directory"))?;
    let store = open_store(lock.database(), master.ring(), now).await?;
    let keys = Keys::open(settings, master, &store, now).await;
    Ok((Arc::new(keys.map_err(setting("use the keys of this data directory"))?), store))
}

async fn open_store(path: &std::path::Path, key: &MasterKey, now: Time) -> Result<Store, StartError> {
    let path = path.to_owned();
    let seal = Arc::new(adapters::MasterKeySeal::new(key));
    let opened = tokio::task::spawn_blocking(move || Store::open_sealed(&path, seal, now)).await;
    Ok(opened.map_err(|_panic| StoreError::Closed)??)
}

/// Creates an admin token at the first start; without it no client could log in unless the settings let one in. The token is
/// shown before it is stored: a crash in between costs a token, and not the only login.
async fn first_token(
    store: &Store,
    now: Time,
    api: SocketAddr,
    show: Option<ShowToken>,
) -> Result<Option<SecretString>, StartError> {
    if store.has_login().await? {
        return Ok(None);
    }
    let token = access::auth::generate_token().map_err(setting("create the first admin token"))?;
    if let Some(show) = show {
        let shown = token.clone();
        let shown = tokio::task::spawn_blocking(move || show(&shown, api)).await;
        if let Err(error) = shown.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            tracing::error!(
                %error,
                "the first admin token could not be shown and was not stored, so no client can log in: make standard output \
                 writable and start the controller again, or set BASIC_USER and BASIC_PASS_HASH"
            );
            return Ok(None);
        }
    }
    let hash = token_hash(token.expose_secret());
    let entry = NewAuditEntry::new(now, access::audit::controller(), AuditAction::TokenCreate.as_str());
    let trail = AuditTrail::new(entry.on("token", "first-start"), true);
    trail.identify(access::audit::controller());
    let stored = audited(trail, store.first_token(uuid::Uuid::now_v7().to_string(), hash, now)).await?;
    Ok(stored.then_some(token))
}
