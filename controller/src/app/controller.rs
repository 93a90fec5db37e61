//! A controller put together from its parts: nothing listens yet and nothing works.
//!
//! ```text
//!   settings, key, store, registry, addresses, surroundings --assemble--> engine + API + feed
//!                                                                            |       |
//!                        `start`: sockets, tasks, a lock on the data <-------+-------+------> the simulation: neither
//! ```
//!
//! Invariant: what differs between a real controller and a simulated one is in its [`Environment`] and its store; every
//! line of the rest is the same.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{MAX_IMAGE, StartError, adapters, load, setting};
use crate::api::{Api, ApiSettings, Feed};
use crate::auth::{AuthConfig, Authenticator, JwtKey, RateLimit, RateLimiter, ReportSecrets};
use crate::config::{Settings, TaskIsoMode};
use crate::telemetry::Metrics;
use engine::model::{Chance, Clock, system_id_source};
use engine::store::Store;
use engine::{Engine, EngineConfig, WorkflowRegistry};
use media::{Grants, Library, LibraryOptions};
use provision::{
    Addresses, BmcLimits, Bmcs, DiagnosticsWorkflow, Limits, Network, Provision, ProvisionSettings, QUEUE,
    Site, SocketConnector, step_names,
};
use recipe::RecipeSchemas;
use secrets::{JobTokens, MasterKey, Resolver};

/// What a controller finds around it and does not make itself (lock L10).
#[derive(Clone)]
pub struct Environment {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids and jitter.
    pub chance: Arc<dyn Chance>,
    /// The way to BMCs.
    pub network: Arc<dyn Network>,
    /// Makes the pauses of BMC clients repeatable.
    pub jitter_seed: Option<u64>,
}

impl Environment {
    /// The real world, with a clock.
    pub fn real(clock: Arc<dyn Clock>) -> Self {
        Self { clock, chance: system_id_source(), network: Arc::new(SocketConnector), jitter_seed: None }
    }
}

/// What a controller is made of.
#[derive(Clone)]
pub struct Dependencies<'a> {
    /// Its settings.
    pub settings: &'a Settings,
    /// The key everything else is derived from.
    pub key: &'a MasterKey,
    /// Its database.
    pub store: &'a Store,
    /// Its registry, if it has one.
    pub registry: &'a Option<registry::Registry>,
    /// The addresses it hands out.
    pub addresses: Addresses,
    /// What is around it.
    pub environment: &'a Environment,
}

/// The parts of a controller, wired.
pub struct Controller {
    /// Carries jobs out once it is run.
    pub engine: Engine,
    /// What the routers answer with.
    pub api: Api,
    /// Tells subscribers of events once it is run.
    pub feed: Feed,
}

impl Controller {
    /// Wires a controller. Must be called inside a runtime.
    ///
    /// # Errors
    /// When something the settings name cannot be used.
    pub fn assemble(
        given: Dependencies<'_>,
        incarnation: &str,
        stop: CancellationToken,
    ) -> Result<Self, StartError> {
        let Dependencies { settings, key, store, environment, .. } = given.clone();
        let metrics = Arc::new(Metrics::default());
        let site = Arc::new(make_site(given, &metrics)?);
        let engine = Engine::with_id_source(
            store.clone(),
            WorkflowRegistry::default()
                .with(Arc::new(Provision::new(Arc::clone(&site))))
                .with(Arc::new(DiagnosticsWorkflow::new(Arc::clone(&site)))),
            Arc::clone(&environment.clock),
            Arc::clone(&environment.chance),
            EngineConfig {
                owner: format!("controller-{incarnation}"),
                queues: vec![QUEUE.to_owned()],
                concurrency: settings.worker_concurrency,
                lease: settings.job_lease_ttl,
                // Long enough for the last request of a lost worker, and for a clock that is followed a tenth faster.
                grace: settings.redfish_timeout.max(settings.job_lease_ttl / 8),
            },
        );
        let feed = Feed::new(store.clone(), stop);
        let api = Api {
            images: None,
            feed: feed.clone(),
            engine: engine.clone(),
            site,
            auth: Arc::new(authenticator(settings, store)?),
            report_secrets: Arc::new(report_secrets(settings)?),
            report_failures: Arc::new(RateLimiter::new(RateLimit::default())),
            resolver: Arc::new(Resolver::new(key)),
            metrics,
            storage: settings.storage_root.clone(),
            settings: ApiSettings {
                max_body_bytes: settings.max_body_bytes,
                metrics_anonymous: settings.metrics_anonymous,
            },
        };
        Ok(Self { engine, api, feed })
    }
}

fn make_site(given: Dependencies<'_>, metrics: &Arc<Metrics>) -> Result<Site, StartError> {
    let Dependencies { settings, key, store, registry, addresses, environment } = given;
    let clock = &environment.clock;
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
    let directory = Arc::new(adapters::StoreServers(store.clone()));
    let bmcs = Bmcs::new(
        Resolver::new(key),
        key.derive("bmc-sessions"),
        Arc::clone(&directory) as Arc<dyn provision::Sessions>,
        Arc::new(adapters::RedfishMetrics(Arc::clone(metrics))),
        redfish::Options {
            read_timeout: settings.redfish_timeout,
            // The engine tries again too, durably and visibly; here only what a lost packet costs is bridged.
            read_attempts: 2,
            jitter_seed: environment.jitter_seed,
            ..redfish::Options::default()
        },
        BmcLimits {
            each: redfish::LimitOptions {
                rate: settings.redfish_rate,
                burst: settings.redfish_rate.saturating_mul(4),
                breaker_failures: settings.redfish_breaker_failures,
                breaker_rest: settings.redfish_breaker_open_time,
            },
            in_flight: settings.redfish_max_in_flight,
        },
        ca,
    )
    .over(Arc::clone(&environment.network));
    Ok(Site {
        schemas: RecipeSchemas::builtin(),
        directory: Box::new(adapters::StoreServers(store.clone())),
        images: Box::new(adapters::RegistryOsImages(registry.clone())),
        bmcs,
        grants,
        library,
        tokens: JobTokens::new(key),
        media_key,
        meter: Arc::new(adapters::JobMetrics(Arc::clone(metrics))),
        addresses,
        settings: ProvisionSettings {
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
pub(super) fn tls_of(settings: &Settings) -> Result<rustls::ClientConfig, StartError> {
    let roots = settings.controller_ca_file.as_ref().map(std::fs::read).transpose();
    let roots = roots.map_err(setting("read CONTROLLER_CA_FILE"))?.unwrap_or_default();
    media::tls_config(&roots).map_err(setting("use CONTROLLER_CA_FILE"))
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

fn report_secrets(settings: &Settings) -> Result<ReportSecrets, StartError> {
    let current = load("read WEBHOOK_SECRET", &settings.webhook_secret)?;
    let previous = load("read WEBHOOK_SECRET_OLD", &settings.webhook_secret_old)?;
    Ok(ReportSecrets::new(current.as_ref(), previous.as_ref()))
}
