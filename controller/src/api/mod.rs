//! The HTTP API: one table of routes, thin handlers one file per action, one shape of errors.
//!
//! ```text
//!   request -> request id -> route -> [who may] -> handler -> engine | store | site -> JSON
//!                                                   error  -> {"error", "message", "details", "request_id"}
//! ```
//!
//! Invariants: bodies are bounded; unknown paths are JSON 404s, wrong methods 405 with `Allow`; without credentials only
//! health, readiness and media grants answer (and reports, which carry their own secret).

mod batches;
mod drain;
mod error;
mod events;
mod extract;
mod feed;
mod health;
mod images;
mod jobs;
mod media;
mod middleware;
mod report;
mod servers;
mod webhooks;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, get, post};

use crate::auth::{Authenticator, RateLimiter, ReportSecrets};
use crate::telemetry::Metrics;
use engine::Engine;
use engine::model::{Clock, Time};
use engine::store::Store;
use provision::Site;
use secrets::Resolver;

pub use error::{ApiError, Detail};
pub use feed::Feed;
pub use images::{
    Collect, PATIENCE, PeriodicStatus, QuotaStatus, RegistryAdmin, RegistryAdminError, RegistryStatus,
    ScrubStatus,
};

/// What the handlers work with.
#[derive(Clone)]
pub struct Api {
    /// The engine.
    pub engine: Engine,
    /// The provisioning site.
    pub site: Arc<Site>,
    /// Who is who.
    pub auth: Arc<Authenticator>,
    /// The shared secrets of reports.
    pub report_secrets: Arc<ReportSecrets>,
    /// Addresses that guess report secrets.
    pub report_failures: Arc<RateLimiter>,
    /// Seals BMC passwords.
    pub resolver: Arc<Resolver>,
    /// The registry, when there is one.
    pub images: Option<Arc<dyn RegistryAdmin>>,
    /// Events as they happen.
    pub feed: Feed,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The folder whose disk must have room.
    pub storage: PathBuf,
    /// The API's own settings.
    pub settings: ApiSettings,
}

/// The API's own settings.
#[derive(Clone, Copy, Debug)]
pub struct ApiSettings {
    /// The largest request body of the JSON API, in bytes.
    pub max_body_bytes: usize,
    /// Whether `/metrics` answers without credentials.
    pub metrics_anonymous: bool,
}

impl Api {
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

/// Every route of the API but the registry's and the media grants'.
fn routes() -> Vec<(&'static str, MethodRouter<Api>)> {
    vec![
        ("/api/v1/jobs", post(jobs::create).get(jobs::list)),
        ("/api/v1/jobs/{id}", get(jobs::show)),
        ("/api/v1/jobs/{id}/events", get(jobs::events)),
        ("/api/v1/jobs/{id}/explain", get(jobs::explain)),
        ("/api/v1/jobs/{id}/cancel", post(jobs::cancel)),
        ("/api/v1/jobs/{id}/hold", post(jobs::hold)),
        ("/api/v1/jobs/{id}/resume", post(jobs::resume)),
        ("/api/v1/jobs/{id}/retry", post(jobs::retry)),
        ("/api/v1/batches", post(batches::create).get(batches::list)),
        ("/api/v1/batches/{id}", get(batches::show)),
        ("/api/v1/batches/{id}/cancel", post(batches::cancel)),
        ("/api/v1/drain", post(drain::begin).get(drain::show).delete(drain::end)),
        ("/api/v1/events", get(events::events)),
        ("/api/v1/registry", get(images::show)),
        ("/api/v1/registry/gc", post(images::collect)),
        ("/api/v1/registry/read-only", post(images::begin_read_only).delete(images::end_read_only)),
        ("/api/v1/registry/retention", post(images::retain)),
        ("/api/v1/registry/scrub", post(images::scrub)),
        ("/api/v1/servers", post(servers::create).get(servers::list)),
        ("/api/v1/servers/{serial}", get(servers::show).patch(servers::update).delete(servers::delete)),
        (
            "/api/v1/servers/{serial}/maintenance",
            post(servers::begin_maintenance).delete(servers::end_maintenance),
        ),
        ("/api/v1/servers/{serial}/probe", get(servers::probe).post(servers::probe)),
        ("/api/v1/servers/{serial}/doctor", post(servers::doctor)),
        ("/api/v1/status-webhook/{serial}", post(report::report)),
        ("/api/v1/webhooks", post(webhooks::create).get(webhooks::list)),
        ("/api/v1/webhooks/{id}", get(webhooks::show).delete(webhooks::delete)),
        ("/api/v1/webhooks/{id}/dead", get(webhooks::dead)),
        ("/api/v1/webhooks/{id}/dead/retry", post(webhooks::retry)),
        ("/api/v1/webhooks/{id}/disable", post(webhooks::disable)),
        ("/api/v1/webhooks/{id}/enable", post(webhooks::enable)),
        ("/media/tasks/{id}/task.iso", get(media::task_image)),
        ("/healthz", get(health::healthz)),
        ("/readyz", get(health::readyz)),
        ("/metrics", get(health::metrics)),
    ]
}

/// The whole API, with the registry when it is on, and media.
pub fn router(api: Api, registry: Option<Router>) -> Router {
    let table = routes()
        .into_iter()
        .fold(Router::new(), |router, (path, handlers)| {
            router.route(path, handlers.fallback(error::wrong_method))
        })
        .fallback(media::grant_or_unknown);
    let table = middleware::wrap(table, &api).with_state(api);
    match registry {
        // The registry speaks its own error format and has its own limits.
        Some(registry) => registry.merge(table),
        None => table,
    }
}

/// A listener for BMCs only: grants, and nothing that takes credentials.
pub fn media_router(api: Api) -> Router {
    let table = Router::new().fallback(media::grant_or_unknown);
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
