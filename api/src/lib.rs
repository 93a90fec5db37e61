//! The HTTP API: one table of routes, one file per action, one error format.
//!
//! ```text
//!   request -> request id, audit -> route -> [permission] -> handler -> engine | store | services -> JSON
//!                                                      error  -> {"error", "message", "details", "request_id"}
//! ```
//!
//! Invariants: bodies are bounded; unknown paths are JSON 404s, wrong methods 405 with `Allow`; without credentials only
//! health, readiness, the OpenAPI document, the certificate authority and media grants respond, and installation reports, which carry their own secret;
//! a query parameter that the OpenAPI document does not name is refused.

mod about;
mod accounts;
mod audit;
mod backups;
mod batches;
mod conditions;
mod disks;
mod drain;
mod events;
mod extract;
mod filters;
mod firmware;
pub mod firmware_files;
mod gauges;
mod health;
mod jobs;
mod log_level;
mod media;
mod media_list;
mod middleware;
mod openapi;
mod overview;
mod plain;
mod registry;
mod report;
mod request_audit;
mod restored;
mod secrets;
mod servers;
mod session;
mod settings;
mod support;
mod visible;
mod webhooks;
mod worker;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post};
use parking_lot::{Mutex, RwLock};

use crate::firmware_files::FirmwareFiles;
use ::media::AddressPolicy;
use ::secrets::Resolver;
use ::settings::Shown;
use access::audit::RefusedAttempts;
use access::auth::{Authenticator, RateLimiter, ReportCertificates, ReportSecrets};
use access::tls::Certificates;
use api_core::{browser, error, error_code, feed, labels, overload, query, response_headers, shape};
use engine::Engine;
use keys::Keys;
use model::{Clock, Time};
use provision::Services;
use query::KnownParameters;
use store::Store;
use telemetry::Metrics;

pub use about::{About, AboutTls, Build, Feature};
pub use api_core::host::host_refusal;
pub use backups::{
    BackupAdmin, BackupAdminError, BackupFailureView, BackupProgress, BackupStatus, BackupVerification,
    BackupView,
};
pub use error::{ApiError, Detail};
pub use error_code::{ErrorCode, ErrorText, Rule};
pub use feed::Feed;
pub use media::MediaAccess;
pub use openapi::openapi;
pub use overload::{Overload, overload_response};
pub use overview::OverviewCache;
pub use plain::plain_router;
pub use registry::{
    GcRequest, HeldView, ImageTagView, PeriodicStatus, QuotaStatus, RESPONSE_WAIT, RegistryAdmin,
    RegistryAdminError, RegistryStatus, RepositoryDetailView, RepositoryView, ScrubStatus, TagToDelete,
    UploadView, UploadsStatus,
};
pub use session::WebSessions;
pub use webhooks::{TestDelivery, WebhookTester};
pub use worker::{ReadAuthorities, Workers};

/// The shared state of the handlers. A request clones it several times.
#[derive(Clone)]
pub struct Api(Arc<ApiParts>);

/// The parts of [`Api`].
pub struct ApiParts {
    /// The engine and its store.
    pub engine: Engine,
    /// The services of provisioning: BMCs, grants, library.
    pub services: Arc<Services>,
    /// Authenticates callers.
    pub auth: Arc<Authenticator>,
    /// The shared secrets of installation reports, which a reload replaces.
    pub report_secrets: Arc<RwLock<ReportSecrets>>,
    /// Which client certificates may report, if `REPORT_CLIENT_CA_FILE` is set.
    pub report_certificates: Option<Arc<ReportCertificates>>,
    /// Limits wrong report secrets per address.
    pub report_failures: Arc<RateLimiter>,
    /// The keys of the installation.
    pub keys: Arc<Keys>,
    /// Reads the shared report secrets again.
    pub renew_report_secrets: Arc<dyn Fn() + Send + Sync>,
    /// Held from the read of the files of the report secrets until they are in force. A rotation and a reload do both one after the
    /// other, so neither brings back what the other one replaced.
    pub report_renewal: Arc<Mutex<()>>,
    /// Who reads task images by the path of their job.
    pub media: Arc<MediaAccess>,
    /// The workers elsewhere.
    pub workers: Arc<Workers>,
    /// The sessions of browsers.
    pub web: Arc<WebSessions>,
    /// The refused requests that the audit log sums.
    pub refused: Arc<RefusedAttempts>,
    /// Seals BMC passwords.
    pub resolver: Arc<Resolver>,
    /// The registry, if `ENABLE_REGISTRY` is set.
    pub registry: Option<Arc<dyn RegistryAdmin>>,
    /// The backups that the controller makes.
    pub backups: Option<Arc<dyn BackupAdmin>>,
    /// Sends test deliveries of webhooks.
    pub webhook_tests: Option<Arc<dyn WebhookTester>>,
    /// The firmware files, if `ENABLE_REGISTRY` is set.
    pub firmware: Option<FirmwareFiles>,
    /// Whether an installation of firmware finds its files: in the registry, or where the environment has them.
    pub installs_firmware: bool,
    /// The live event stream.
    pub feed: Feed,
    /// The certificate of the TLS listeners, if there are any.
    pub tls: Option<Arc<Certificates>>,
    /// The metrics of the controller.
    pub metrics: Arc<Metrics>,
    /// The data directory; readiness needs free space on its disk.
    pub storage: PathBuf,
    /// The database file; readiness needs free space on its disk too.
    pub database: PathBuf,
    /// The directory of task images that were written to files, by this start or an earlier one.
    pub task_iso_dir: PathBuf,
    /// The addresses to which webhooks may be delivered.
    pub addresses: AddressPolicy,
    /// The settings of the API.
    pub settings: ApiSettings,
    /// The settings of the start with their origins, without secrets.
    pub configuration: Arc<[Shown]>,
    /// The numbers of the overview.
    pub overview: OverviewCache,
    /// The description of this controller: version, build and features.
    pub about: Arc<About>,
}

/// The settings of the API.
#[derive(Clone, Copy, Debug)]
pub struct ApiSettings {
    /// The largest request body of the JSON API, in bytes.
    pub max_body_bytes: usize,
    /// Whether `/metrics` needs no credentials.
    pub metrics_anonymous: bool,
}

impl Api {
    /// The state with these parts.
    pub fn new(parts: ApiParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.0
    }
}

impl ApiParts {
    fn store(&self) -> &Store {
        self.engine.store()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.engine.clock()
    }

    fn now(&self) -> Time {
        self.clock().now()
    }
}

/// Every route of the API except those of the registry and of media grants.
fn routes() -> Vec<(&'static str, MethodRouter<Api>)> {
    vec![
        ("/api/v1/jobs", post(jobs::create).get(jobs::list)),
        ("/api/v1/jobs/{id}", get(jobs::show)),
        ("/api/v1/jobs/{id}/events", get(jobs::events)),
        ("/api/v1/jobs/{id}/explain", get(jobs::explain)),
        ("/api/v1/jobs/{id}/log", get(jobs::log)),
        ("/api/v1/jobs/{id}/media", get(jobs::media)),
        ("/api/v1/jobs/{id}/cancel", post(jobs::cancel)),
        ("/api/v1/jobs/{id}/hold", post(jobs::hold)),
        ("/api/v1/jobs/{id}/resume", post(jobs::resume)),
        ("/api/v1/jobs/{id}/finish", post(jobs::finish)),
        ("/api/v1/jobs/{id}/retry", post(jobs::retry)),
        ("/api/v1/jobs/{id}/media-url", post(media::issue_url)),
        ("/api/v1/job-selections/cancel", post(jobs::cancel_selected)),
        ("/api/v1/job-selections/retry", post(jobs::retry_selected)),
        ("/api/v1/backups", post(backups::create).get(backups::list)),
        ("/api/v1/backups/{name}/verify", post(backups::verify)),
        ("/api/v1/backup-status", get(backups::show)),
        ("/api/v1/batches", post(batches::create).get(batches::list)),
        ("/api/v1/batches/{id}", get(batches::show)),
        ("/api/v1/batches/{id}/cancel", post(batches::cancel)),
        ("/api/v1/batches/{id}/continue", post(batches::resume)),
        ("/api/v1/batches/{id}/retry", post(batches::retry)),
        ("/api/v1/users", post(accounts::users::create).get(accounts::users::list)),
        (
            "/api/v1/users/{name}",
            get(accounts::users::show).patch(accounts::users::update).delete(accounts::users::delete),
        ),
        ("/api/v1/users/{name}/confirm", post(accounts::users::confirm)),
        ("/api/v1/users/{name}/sessions", delete(session::revoke_of_user)),
        ("/api/v1/session", post(session::create).get(session::show).delete(session::delete)),
        ("/api/v1/sessions", get(session::list).delete(session::revoke_own)),
        ("/api/v1/sessions/{id}", delete(session::revoke)),
        ("/api/v1/tokens", post(accounts::tokens::create).get(accounts::tokens::list)),
        ("/api/v1/tokens/{name}", get(accounts::tokens::show).delete(accounts::tokens::revoke)),
        ("/api/v1/tokens/{name}/confirm", post(accounts::tokens::confirm)),
        ("/api/v1/tokens/{name}/rotate", post(accounts::tokens::rotate)),
        ("/api/v1/worker-tokens", post(accounts::worker_tokens::create).get(accounts::worker_tokens::list)),
        ("/api/v1/worker-tokens/{name}", delete(accounts::worker_tokens::revoke)),
        ("/api/v1/me", get(accounts::me::show)),
        ("/api/v1/me/password", post(accounts::me::set_password)),
        ("/api/v1/audit", get(audit::list)),
        ("/api/v1/drain", post(drain::begin).get(drain::show).delete(drain::end)),
        ("/api/v1/events", get(events::events)),
        ("/api/v1/firmware", post(firmware::add).get(firmware::list)),
        ("/api/v1/firmware/{digest}", get(firmware::show).delete(firmware::remove)),
        ("/api/v1/firmware-sets", post(firmware::create_set).get(firmware::list_sets)),
        ("/api/v1/firmware-sets/{name}", get(firmware::show_set).delete(firmware::delete_set)),
        ("/api/v1/firmware-match", get(firmware::match_set)),
        ("/api/v1/media", get(media_list::list)),
        ("/api/v1/overview", get(overview::show)),
        ("/api/v1/log-level", post(log_level::set).get(log_level::show).delete(log_level::reset)),
        ("/api/v1/registry", get(registry::show)),
        ("/api/v1/registry/gc", post(registry::collect)),
        ("/api/v1/registry/read-only", post(registry::begin_read_only).delete(registry::end_read_only)),
        ("/api/v1/registry/repositories", get(registry::list_repositories)),
        ("/api/v1/registry/repositories/{name}", get(registry::show_repository)),
        ("/api/v1/registry/repositories/{name}/tags/{tag}", delete(registry::delete_tag)),
        ("/api/v1/registry/retention", post(registry::retain)),
        ("/api/v1/registry/scrub", post(registry::scrub)),
        ("/api/v1/registry/uploads", get(registry::list_uploads)),
        ("/api/v1/registry/uploads/{id}", delete(registry::cancel_upload)),
        ("/api/v1/restored", get(restored::list)),
        ("/api/v1/restored/release", post(restored::release_all)),
        ("/api/v1/secrets", get(secrets::list)),
        ("/api/v1/secrets/{name}/rotate", post(secrets::rotate)),
        ("/api/v1/servers", post(servers::create).get(servers::list)),
        ("/api/v1/servers/{serial}", get(servers::show).patch(servers::update).delete(servers::delete)),
        ("/api/v1/server-imports", post(servers::import)),
        (
            "/api/v1/servers/{serial}/maintenance",
            post(servers::begin_maintenance).delete(servers::end_maintenance),
        ),
        ("/api/v1/servers/{serial}/probe", get(servers::look).post(servers::probe)),
        ("/api/v1/servers/{serial}/card", get(servers::card)),
        ("/api/v1/servers/{serial}/diagnostics", post(servers::diagnose).get(servers::last_diagnostics)),
        ("/api/v1/servers/{serial}/inventory", get(servers::inventory)),
        ("/api/v1/servers/{serial}/bios", get(servers::bios::bios)),
        ("/api/v1/servers/{serial}/condition", post(conditions::create).get(conditions::show)),
        ("/api/v1/servers/{serial}/conditions", get(conditions::list)),
        ("/api/v1/servers/{serial}/restored", get(servers::show_restored)),
        ("/api/v1/servers/{serial}/release", post(servers::release)),
        ("/api/v1/settings", get(settings::show)),
        ("/api/v1/support-bundle", post(support::make)),
        ("/api/v1/status-webhook/{serial}", post(report::report)),
        ("/api/v1/webhooks", post(webhooks::create).get(webhooks::list)),
        ("/api/v1/webhooks/{id}", get(webhooks::show).delete(webhooks::delete)),
        ("/api/v1/webhooks/{id}/dead-letters", get(webhooks::list_dead_letters)),
        ("/api/v1/webhooks/{id}/dead-letters/redeliver", post(webhooks::redeliver)),
        ("/api/v1/webhooks/{id}/disable", post(webhooks::disable)),
        ("/api/v1/webhooks/{id}/enable", post(webhooks::enable)),
        ("/api/v1/webhooks/{id}/test", post(webhooks::test)),
        (media::TASK_IMAGE, get(media::task_image)),
        ("/about", get(about::show)),
        ("/ca.pem", get(plain::authority)),
        ("/healthz", get(health::healthz)),
        ("/readyz", get(health::readyz)),
        ("/metrics", get(health::metrics)),
        ("/openapi.json", get(openapi::serve)),
    ]
}

/// The router of the API and of media, with the registry if it is enabled.
pub fn router(api: Api, registry: Option<Router>) -> Router {
    let parameters = openapi::query_parameters();
    let table = routes().into_iter().fold(Router::new(), |router, (path, handlers)| {
        let known = KnownParameters::of(&parameters, path);
        router.route(path, handlers.fallback(error::wrong_method).layer(axum::Extension(known)))
    });
    let table = worker::routes()
        .into_iter()
        .fold(table, |router, (path, handlers)| router.route(path, handlers.fallback(error::wrong_method)))
        .fallback(media::grant_or_unknown);
    let table = middleware::wrap(table, &api).with_state(api);
    match registry {
        // The registry has the error format and limits of the OCI distribution specification.
        Some(registry) => middleware::with_headers(registry).merge(table),
        None => table,
    }
}

/// The router of a listener for BMCs: media grants and task images that need no login; no route that takes credentials.
pub fn media_router(api: Api) -> Router {
    let image = get(media::task_image_of_listener).fallback(error::wrong_method);
    let table = Router::new().route(media::TASK_IMAGE, image).fallback(media::grant_or_unknown);
    middleware::wrap(table, &api).with_state(api)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_golden_table() {
        let table: String = routes().iter().map(|(path, _)| format!("{path}\n")).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/routes.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }
}
