//! A controller assembled from its parts: it does not listen yet and no worker runs.
//!
//! ```text
//!   settings, key, store, registry, addresses, environment --assemble--> engine + API + feed
//!                                                                           |       |
//!                        `start`: sockets, tasks, a lock on the data <------+-------+------> the simulation: neither
//! ```
//!
//! Invariant: a real controller and a simulated one differ only in their [`Environment`] and store; all other code is shared.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::key_set::HttpsKeySet;
use super::{MAX_IMAGE, StartError, adapters, firmware_store, firmware_urls, load, os_medium, setting};
use access::auth::{
    AuthConfig, AuthMode, Authenticator, JwtKeys, JwtRules, JwtVerifier, KeySet, RateLimit, RateLimiter,
    ReportCertificates, ReportSecrets,
};
use access::tls::Certificates;
use api::firmware_files::FirmwareFiles;
use api::{
    About, ApiParts, ApiSettings, Build, Feature, Feed, MediaAccess, OverviewCache, ReadAuthorities,
    WebSessions, Workers,
};
use bmc::{Addresses, BmcConnector, BmcLimits, BmcServices, Bmcs, QUEUE, SocketConnector};
use diagnostics::{DiagnosticsServices, DiagnosticsWorkflow};
use engine::{Engine, EngineConfig, WorkflowRegistry};
use keys::{Keys, ReportSource, previous_report_secret};
use media::{AddressPolicy, FilePolicy, Library, LibraryOptions, MediaGrants, SourcePolicy, UrlSigner};
use model::{Clock, IdSource, Time, error_chain, system_id_source};
use provision::{ControllerAuthorities, Provision, ProvisionLimits, ProvisionSettings, Services};
use recipe::RecipeSchemas;
use secrets::{Resolver, TokenSeeds};
use settings::{KeySetLocation, Settings, TaskIsoMode, read_keys};
use store::Store;
use telemetry::Metrics;
use upkeep::{FirmwareStore, Upkeep, UpkeepServices};
use worker::messages::RedfishSettings;

/// The clock, the ids and the network, which a controller does not create itself (decision D10).
#[derive(Clone)]
pub struct Environment {
    /// The source of wall time and elapsed time.
    pub clock: Arc<dyn Clock>,
    /// The source of ids and jitter.
    pub id_source: Arc<dyn IdSource>,
    /// Connects the controller to BMCs.
    pub connector: Arc<dyn BmcConnector>,
    /// The seed of the pauses of BMC clients; a seed makes them repeatable.
    pub jitter_seed: Option<u64>,
    /// The firmware files that are installed; `None` for those of the registry.
    pub firmware: Option<Arc<dyn FirmwareStore>>,
}

impl Environment {
    /// The environment of a real controller: sockets and random ids, with the given clock.
    pub fn real(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            id_source: system_id_source(),
            connector: Arc::new(SocketConnector),
            jitter_seed: None,
            firmware: None,
        }
    }
}

/// The parts from which a controller is built: settings, keys, database, registry and addresses.
#[derive(Clone)]
pub struct Dependencies<'a> {
    /// The settings of the controller.
    pub settings: &'a Settings,
    /// The keys of the installation.
    pub keys: &'a Arc<Keys>,
    /// The database of the controller.
    pub store: &'a Store,
    /// The registry, if `ENABLE_REGISTRY` is set.
    pub registry: &'a Option<registry::Registry>,
    /// The addresses that machines and BMCs receive.
    pub addresses: Addresses,
    /// The certificate of the TLS listeners, if there are any.
    pub certificates: Option<Arc<Certificates>>,
    /// Clock, ids and network.
    pub environment: &'a Environment,
}

/// The parts of a controller, wired.
pub struct Controller {
    /// Executes jobs once it is run.
    pub engine: Engine,
    /// The state of the HTTP handlers.
    pub api: ApiParts,
    /// Sends events to subscribers once it is run.
    pub feed: Feed,
}

impl Controller {
    /// Wires a controller. Must be called inside a runtime.
    ///
    /// # Errors
    /// When a file, key or value that a setting names cannot be used.
    pub fn assemble(
        dependencies: Dependencies<'_>,
        instance: &str,
        stop: CancellationToken,
    ) -> Result<Self, StartError> {
        let Dependencies { settings, keys, store, registry, environment, certificates, .. } =
            dependencies.clone();
        let metrics = Arc::new(Metrics::default());
        let bmc = Arc::new(bmc_services(dependencies.clone(), &metrics)?);
        let services = Arc::new(provision_services(dependencies, bmc, &metrics)?);
        let diagnostics =
            Arc::new(DiagnosticsServices { bmc: Arc::clone(&services.bmc), grants: services.grants.clone() });
        let files: Arc<dyn FirmwareStore> = match &environment.firmware {
            Some(given) => Arc::clone(given),
            None => Arc::new(firmware_store::RegistryFirmware(registry.clone().map(FirmwareFiles::new))),
        };
        let upkeep = Arc::new(UpkeepServices {
            bmc: Arc::clone(&services.bmc),
            hardware: Box::new(adapters::StoreHardware(store.clone())),
            firmware: Arc::clone(&files),
            urls: Arc::new(firmware_urls::MediaUrls {
                grants: services.grants.clone(),
                seeds: TokenSeeds::new(keys.signing()),
            }),
            power_ons: services.settings.limits.power_ons,
        });
        let workflows = WorkflowRegistry::default()
            .with(Arc::new(Provision::new(Arc::clone(&services))))
            .with(Arc::new(DiagnosticsWorkflow::new(diagnostics)));
        let workflows = Upkeep::workflows(&upkeep).into_iter().fold(workflows, WorkflowRegistry::with);
        let engine = Engine::with_id_source(
            store.clone(),
            workflows,
            Arc::clone(&environment.clock),
            Arc::clone(&environment.id_source),
            EngineConfig {
                owner: format!("controller-{instance}"),
                queues: vec![QUEUE.to_owned()],
                concurrency: settings.worker_concurrency,
                lease: settings.job_lease_ttl,
                // Long enough for the last request of a worker that lost its lease, and for a clock that runs 10 % faster.
                grace: settings.redfish_timeout.max(settings.job_lease_ttl / 8),
            },
        );
        let ended_jobs = Arc::clone(&metrics);
        engine.observe_ends(move |outcome, took| ended_jobs.job_ended(outcome.as_str(), took));
        let (beacons, said) = os_medium::beacons();
        services.grants.set_beacon_listener(Arc::new(beacons));
        services.grants.set_worker_id(engine.owner());
        tokio::spawn(os_medium::deliver(engine.clone(), said, stop.clone()));
        let workers = Arc::new(Workers::new(
            redfish_settings(settings, services.settings.limits.power_ons),
            authorities_of(settings),
            files,
            Arc::clone(&environment.clock),
            stop.clone(),
        ));
        engine.queue_workers(Arc::clone(&workers) as Arc<dyn engine::QueueWorkers>);
        let feed = Feed::new(store.clone(), stop);
        let report_secrets =
            Arc::new(RwLock::new(report_secrets(&keys.report_source(), environment.clock.now())?));
        let report_renewal = Arc::new(Mutex::new(()));
        let renew_report_secrets = {
            let (keys, clock) = (Arc::clone(keys), Arc::clone(&environment.clock));
            let (secrets, renewal) = (Arc::clone(&report_secrets), Arc::clone(&report_renewal));
            Arc::new(move || {
                let _renewal = renewal.lock();
                renew_report_secrets(&keys.report_source(), &secrets, clock.now());
            })
        };
        let api = ApiParts {
            registry: None,
            backups: None,
            webhook_tests: None,
            firmware: registry.clone().map(FirmwareFiles::new),
            installs_firmware: registry.is_some() || environment.firmware.is_some(),
            tls: certificates,
            feed: feed.clone(),
            engine: engine.clone(),
            services,
            auth: Arc::new(authenticator(settings, store)?.with_clock(Arc::clone(&environment.clock))),
            report_secrets,
            report_certificates: report_certificates(settings)?.map(Arc::new),
            report_failures: Arc::new(RateLimiter::new(RateLimit::default())),
            refused: Arc::default(),
            workers,
            media: Arc::new(MediaAccess {
                signer: UrlSigner::new(keys.signing()),
                url_ttl: settings.media_url_ttl,
                allow: settings.media_allow_cidrs.clone(),
                proxies: settings.trusted_proxies.clone(),
                failures: RateLimiter::new(RateLimit::default()),
            }),
            web: Arc::new(WebSessions {
                idle: settings.session_idle_time,
                lifetime: settings.session_lifetime,
            }),
            resolver: Arc::new(Resolver::new(keys.master())),
            keys: Arc::clone(keys),
            renew_report_secrets,
            report_renewal,
            metrics,
            storage: settings.storage_root.clone(),
            database: settings.db_path.clone(),
            task_iso_dir: settings.task_iso_dir.clone(),
            addresses: address_policy(settings),
            settings: ApiSettings {
                max_body_bytes: settings.max_body_bytes,
                metrics_anonymous: settings.metrics_anonymous,
            },
            configuration: settings.show().into(),
            overview: OverviewCache::default(),
            about: Arc::new(about(settings, instance, environment)),
        };
        Ok(Self { engine, api, feed })
    }
}

/// The settings of Redfish requests for workers elsewhere.
fn redfish_settings(settings: &Settings, power_ons: Option<u32>) -> RedfishSettings {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    RedfishSettings {
        timeout_ms: millis(settings.redfish_timeout),
        retries: settings.redfish_retries,
        rate: settings.redfish_rate,
        breaker_failures: settings.redfish_breaker_failures,
        breaker_open_ms: millis(settings.redfish_breaker_open_time),
        in_flight: settings.redfish_max_in_flight,
        power_ons,
        authorities: None,
    }
}

/// Reads `REDFISH_CA_FILE` for a worker elsewhere, so that a worker that connects later has the content of then.
pub(super) fn authorities_of(settings: &Settings) -> ReadAuthorities {
    let file = settings.redfish_ca_file.clone();
    Arc::new(move || {
        let read = std::fs::read_to_string(file.as_ref()?);
        read.inspect_err(
            |error| tracing::error!(%error, "REDFISH_CA_FILE cannot be read for a worker elsewhere"),
        )
        .ok()
    })
}

/// Describes the controller for the API and the log: version, build, features and schema.
fn about(settings: &Settings, instance: &str, environment: &Environment) -> About {
    let features = [
        (Feature::Registry, settings.enable_registry),
        (Feature::Tls, settings.controller_https_addr.address().is_some()),
        (Feature::PlainHttpForAll, settings.controller_http_allow_remote),
        (Feature::MediaListener, settings.media_http_addr.is_some() || settings.media_https_addr.is_some()),
        (Feature::Passwords, settings.auth_mode == AuthMode::Basic),
        (Feature::Jwt, settings.auth_mode == AuthMode::Jwt),
        (Feature::NoAuthentication, settings.auth_mode == AuthMode::None),
        (Feature::TaskImageFiles, settings.task_iso_mode == TaskIsoMode::File),
        (Feature::SharedReportSecret, settings.webhook_secret.is_some()),
        (Feature::AnonymousMetrics, settings.metrics_anonymous),
    ];
    About {
        version: env!("CARGO_PKG_VERSION"),
        build: Build::THIS,
        features: features.into_iter().filter(|(_, on)| *on).map(|(feature, _)| feature).collect(),
        schema_version: Store::SCHEMA_VERSION,
        instance: instance.to_owned(),
        started_at: environment.clock.now(),
        workflows: [provision::WORKFLOW, diagnostics::WORKFLOW]
            .into_iter()
            .chain(upkeep::WORKFLOWS)
            .collect(),
        tls: None,
    }
}

/// The services that all workflows share.
fn bmc_services(dependencies: Dependencies<'_>, metrics: &Arc<Metrics>) -> Result<BmcServices, StartError> {
    let Dependencies { settings, keys, store, addresses, environment, .. } = dependencies;
    let key = keys.master();
    let ca = bmc_authorities(settings)?;
    let connections = Bmcs::new(
        Resolver::new(key),
        key.derive("bmc-sessions"),
        Arc::new(adapters::StoreServers(store.clone())),
        Arc::new(adapters::RedfishMetrics(Arc::clone(metrics))),
        redfish::ClientOptions {
            read_timeout: settings.redfish_timeout,
            // The engine retries durably and visibly; the client only bridges a lost packet.
            read_attempts: 2,
            jitter_seed: environment.jitter_seed,
            ..redfish::ClientOptions::default()
        },
        BmcLimits {
            each: redfish::LimitOptions {
                rate: settings.redfish_rate,
                burst: settings.redfish_rate.saturating_mul(4),
                breaker_failures: settings.redfish_breaker_failures,
                breaker_open_time: settings.redfish_breaker_open_time,
            },
            in_flight: settings.redfish_max_in_flight,
        },
        ca,
    )
    .with_connector(Arc::clone(&environment.connector));
    Ok(BmcServices {
        servers: Box::new(adapters::StoreServers(store.clone())),
        connections,
        addresses,
        tries: settings.redfish_retries.max(1),
    })
}

fn provision_services(
    dependencies: Dependencies<'_>,
    bmc: Arc<BmcServices>,
    metrics: &Arc<Metrics>,
) -> Result<Services, StartError> {
    let Dependencies { settings, keys, store, registry, environment, certificates, .. } = dependencies;
    let clock = &environment.clock;
    let given = controller_authorities(settings)?;
    let controller_ca: ControllerAuthorities =
        Arc::new(move || machine_authorities(given.as_deref(), certificates.as_deref()));
    let sources = SourcePolicy { addresses: address_policy(settings), files: file_policy(settings) };
    let options = LibraryOptions { tls: tls_of(settings)?, max_image_bytes: MAX_IMAGE, sources };
    let library = Library::open(&settings.maintenance_dir(), options)
        .map_err(setting("open the library of maintenance ISOs"))?;
    let grant_store = Arc::new(adapters::StoreGrants::new(store.clone(), Arc::clone(clock)));
    let grants = MediaGrants::new(grant_store, library.clone(), keys.master(), Arc::clone(clock));
    if let Some(registry) = registry {
        grants.set_os_blobs(Arc::new(os_medium::RegistryBlobs(registry.clone())));
        library.set_own(Arc::new(os_medium::RegistryImages(registry.clone())));
    }
    Ok(Services {
        bmc,
        schemas: RecipeSchemas::builtin(),
        images: Box::new(adapters::RegistryOsImages(registry.clone())),
        grants,
        library,
        seeds: TokenSeeds::new(keys.signing()),
        metrics: Arc::new(adapters::JobMetrics(Arc::clone(metrics))),
        settings: ProvisionSettings {
            maintenance_iso_url: settings.maintenance_iso_url.clone(),
            esxi_installer_url: settings.esxi_installer_url.clone(),
            install_min_time: settings.install_min_time,
            install_window: settings.install_window,
            job_timeout: settings.job_stuck_timeout,
            cleanup_timeout: settings.cleanup_timeout,
            task_iso_dir: (settings.task_iso_mode == TaskIsoMode::File)
                .then(|| settings.task_iso_dir.clone()),
            controller_ca,
            registry: registry.is_some(),
            limits: limits(settings),
        },
    })
}

/// Where the controller connects to on behalf of others.
pub(super) fn address_policy(settings: &Settings) -> AddressPolicy {
    AddressPolicy::allowing(&settings.fetch_allow_cidrs)
}

/// Which local files jobs may name.
fn file_policy(settings: &Settings) -> FilePolicy {
    let configured = [&settings.maintenance_iso_url, &settings.esxi_installer_url].into_iter().flatten();
    let path = |location: &String| match location.starts_with('/') {
        true => Some(PathBuf::from(location)),
        false => url::Url::parse(location).ok()?.to_file_path().ok(),
    };
    FilePolicy::below(settings.image_dir.clone(), configured.filter_map(path).collect())
}

/// The content of `REDFISH_CA_FILE`.
pub(super) fn bmc_authorities(settings: &Settings) -> Result<Option<Vec<u8>>, StartError> {
    let ca = settings.redfish_ca_file.as_ref().map(std::fs::read).transpose();
    ca.map_err(setting("read REDFISH_CA_FILE"))
}

/// The content of `CONTROLLER_CA_FILE`.
pub(super) fn controller_authorities(settings: &Settings) -> Result<Option<String>, StartError> {
    let ca = settings.controller_ca_file.as_ref().map(std::fs::read_to_string).transpose();
    ca.map_err(setting("read CONTROLLER_CA_FILE"))
}

/// Returns the certificates that machines trust which reach this controller by https, in PEM; `None` without any certificate.
pub(super) fn machine_authorities(
    given: Option<&str>,
    certificates: Option<&Certificates>,
) -> Option<String> {
    match certificates {
        Some(certificates) => Some(certificates.trusted_with(given)),
        None => given.map(str::to_owned),
    }
}

/// TLS of the HTTP clients of the controller: they accept the authorities of `CONTROLLER_CA_FILE` and no others.
pub(super) fn tls_of(settings: &Settings) -> Result<rustls::ClientConfig, StartError> {
    let roots = settings.controller_ca_file.as_ref().map(std::fs::read).transpose();
    let roots = roots.map_err(setting("read CONTROLLER_CA_FILE"))?.unwrap_or_default();
    media::tls_config(&roots).map_err(setting("use CONTROLLER_CA_FILE"))
}

fn limits(settings: &Settings) -> ProvisionLimits {
    let some = |limit: u32| (limit > 0).then_some(limit);
    ProvisionLimits {
        power_ons: some(settings.max_power_ons),
        power_on_settle: settings.power_on_settle,
        per_site: some(settings.site_limit),
        steps: settings.step_timeouts.iter().cloned().collect(),
    }
}

fn authenticator(settings: &Settings, store: &Store) -> Result<Authenticator, StartError> {
    Authenticator::new(auth_config(settings)?, Arc::new(adapters::StoreCredentials(store.clone())))
        .map_err(setting("set up authentication"))
}

/// The users and keys of the settings, read from the files and variables that they name.
pub(super) fn auth_config(settings: &Settings) -> Result<AuthConfig, StartError> {
    let public = settings.jwt_public_key_file.as_deref().map(read_keys).transpose();
    let set = settings.jwt_jwks.as_ref().map(|location| key_set(settings, location)).transpose()?;
    let keys = JwtKeys {
        secret: load("read JWT_SECRET", &settings.jwt_secret)?,
        public: public.map_err(setting("read JWT_PUBLIC_KEY_FILE"))?,
        set,
    };
    let rules = JwtRules {
        issuer: settings.jwt_issuer.clone(),
        audience: settings.jwt_audience.clone(),
        role_claim: settings.jwt_role_claim.clone(),
        roles: settings.jwt_roles.clone(),
    };
    let jwt = JwtVerifier::new(keys, rules).map_err(setting("use JWT_SECRET and JWT_PUBLIC_KEY_FILE"))?;
    Ok(AuthConfig {
        mode: settings.auth_mode,
        basic_user: settings.basic_user.clone().zip(settings.basic_pass_hash.clone()),
        jwt,
        failures: RateLimit::default(),
    })
}

/// The client certificates that may report.
fn report_certificates(settings: &Settings) -> Result<Option<ReportCertificates>, StartError> {
    let Some(path) = &settings.report_client_ca_file else { return Ok(None) };
    let authorities = std::fs::read(path).map_err(setting("read REPORT_CLIENT_CA_FILE"))?;
    let certificates = ReportCertificates::new(&authorities, settings.report_certificates.clone())
        .map_err(setting("use REPORT_CLIENT_CA_FILE"))?;
    match &settings.report_client_crl_file {
        None => Ok(Some(certificates)),
        Some(path) => certificates
            .with_revocation_lists(path.clone())
            .map(Some)
            .map_err(setting("use REPORT_CLIENT_CRL_FILE")),
    }
}

/// The key set of the issuer of JWTs.
fn key_set(settings: &Settings, location: &KeySetLocation) -> Result<KeySet, StartError> {
    match location {
        KeySetLocation::File(path) => {
            let json = read_keys(path).map_err(setting("read JWT_JWKS"))?;
            KeySet::fixed(&json).map_err(setting("use JWT_JWKS"))
        }
        KeySetLocation::Url(url) => {
            let tls = match &settings.jwt_ca_file {
                None => tls_of(settings)?,
                Some(path) => {
                    let roots = std::fs::read(path).map_err(setting("read JWT_CA_FILE"))?;
                    media::tls_config(&roots).map_err(setting("use JWT_CA_FILE"))?
                }
            };
            let document = HttpsKeySet::new(url.clone(), tls, address_policy(settings))
                .map_err(setting("set up the client of JWT_JWKS"))?;
            Ok(KeySet::fetched(Arc::new(document)))
        }
    }
}

/// The shared report secrets, read from the files and variables that the settings name. WEBHOOK_SECRET_OLD, where it is set, is the
/// former secret; otherwise it is the one that a rotation left.
pub(super) fn report_secrets(source: &ReportSource, now: Time) -> Result<ReportSecrets, StartError> {
    let current = load("read WEBHOOK_SECRET", &source.secret)?;
    let previous = match load("read WEBHOOK_SECRET_OLD", &source.former)? {
        None => previous_report_secret(source, now).map_err(setting("read the former report secret"))?,
        given => given,
    };
    Ok(ReportSecrets::new(current.as_ref(), previous.as_ref()))
}

/// Reads the shared report secrets again after a rotation. An error keeps the former ones, so no report is refused because of it.
fn renew_report_secrets(source: &ReportSource, secrets: &RwLock<ReportSecrets>, now: Time) {
    match report_secrets(source, now) {
        Ok(read) => *secrets.write() = read,
        Err(error) => {
            tracing::error!(error = %error_chain(&error), "the report secrets could not be read again")
        }
    }
}
