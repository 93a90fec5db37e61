//! The web interface at `/ui/`: pages that are clients of the JSON API.
//!
//! ```text
//!   browser ──> page route ──> visit ──in this process──> the router of the API ──> JSON ──> view ──> HTML
//!               form (csrf)  ──> the same, with X-CSRF-Token ─────────────────────> 303 to a page
//! ```
//!
//! Invariants: a page has no permission and no data of its own: each request that it makes carries the credentials of the
//! browser and is authenticated, audited and limited by the API; the body of a form is read after its caller is known
//! ([`login_first`]); a change is a form with the proof of the session, and its response is a redirect; every response has the
//! headers of [`headers`].

mod account;
mod accounts;
mod assets;
mod audit;
mod back;
mod batches;
mod conditions;
mod firmware;
mod form;
mod headers;
mod import;
mod job;
mod jobs;
mod login;
mod login_first;
mod media;
#[doc(hidden)]
pub mod multipart;
mod new_job;
mod overview;
mod recipe_text;
mod refusal;
mod registry;
mod role_first;
mod seal;
mod selection;
mod server;
mod server_edit;
mod servers;
mod tables;
mod visit;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use model::Clock;
use seal::Seal;
use secrets::KeyRing;
use ui::view::CallerRole;
use visit::Visit;

/// The dependencies of all pages.
#[derive(Clone)]
pub struct Pages {
    /// The router of the API.
    api: Router,
    clock: Arc<dyn Clock>,
    /// Seals what a form carries and a browser must not read.
    seal: Arc<Seal>,
    /// The host and port of `CONTROLLER_PUBLIC_URL`, if it is an `https` URL.
    public_https_host: Option<Arc<str>>,
}

/// Adds the pages to the router of the API. What forms carry is sealed with a key of the master key. `public_url` is
/// `CONTROLLER_PUBLIC_URL`.
pub fn with_pages(api: Router, clock: Arc<dyn Clock>, master: &KeyRing, public_url: Option<&str>) -> Router {
    let https = public_url.and_then(|url| url.strip_prefix("https://"));
    let public_https_host = https.and_then(|rest| rest.split('/').next()).map(Arc::from);
    let pages = Pages { api: api.clone(), clock, seal: Arc::new(Seal::new(master)), public_https_host };
    let routes = Router::new()
        .route("/", get(async || Redirect::to("/ui/")))
        .route("/ui", get(async || Redirect::to("/ui/")))
        .route("/ui/", get(overview::show))
        .route("/ui/login", get(login::show).post(login::log_in))
        .route("/ui/login/done", get(login::done))
        .route("/ui/logout", post(login::log_out))
        .route("/ui/theme", post(account::theme))
        .route("/ui/account", get(account::show))
        .route("/ui/account/sessions/{id}/end", post(account::end_session))
        .route("/ui/account/sessions/end", get(account::ask_end_others).post(account::end_others))
        .route("/ui/account/password", get(account::ask_password).post(account::change_password))
        .route("/ui/jobs", get(jobs::list))
        .route("/ui/jobs/{id}", get(job::show))
        .route("/ui/jobs/{id}/log", get(job::log))
        .route("/ui/servers", get(servers::list))
        .route("/ui/servers/import/confirm", post(import::confirm))
        .route("/ui/servers/{serial}", get(server::show))
        .route("/ui/servers/{serial}/probe", post(server::probe))
        .route("/ui/servers/{serial}/edit/confirm", post(server_edit::change))
        .route("/ui/events", get(tables::events))
        .route("/ui/batches", get(batches::list))
        .route("/ui/batches/{id}", get(batches::show))
        .route("/ui/users", get(accounts::show))
        .route("/ui/users/{name}", get(accounts::user).post(accounts::change_user))
        .route("/ui/settings", get(tables::settings))
        .route("/ui/audit", get(audit::show))
        .route("/ui/audit/{file}", get(audit::download))
        .route("/ui/webhooks", get(webhooks::list))
        .route("/ui/webhooks/{id}", get(webhooks::show))
        .route("/ui/registry", get(registry::show))
        .route("/ui/registry/{*name}", get(registry::repository))
        .route("/ui/media", get(media::list))
        .route("/ui/firmware", get(firmware::list))
        .route("/ui/firmware/sets/{name}", get(firmware::set))
        .route("/ui/find", get(tables::find))
        .route("/ui/drain/end", post(tables::undrain))
        .route("/ui/assets/{name}", get(assets::serve))
        .route("/ui/{*rest}", get(unknown))
        .merge(for_role(&pages, CallerRole::Operator, operated()))
        .merge(for_role(&pages, CallerRole::Admin, administered()))
        .layer(axum::middleware::from_fn_with_state(pages.clone(), login_first::check))
        .layer(axum::middleware::from_fn(headers::around))
        .with_state(pages);
    api.merge(routes)
}

/// The forms and questions of changes of servers and jobs.
fn operated() -> Router<Pages> {
    Router::new()
        .route("/ui/jobs/selection/{verb}", get(selection::ask_jobs).post(selection::jobs))
        .route("/ui/jobs/new", get(new_job::new).post(new_job::create))
        .route("/ui/jobs/{id}/{verb}", get(job::ask).post(job::act))
        .route("/ui/servers/new", get(servers::new).post(servers::create))
        .route("/ui/servers/import", get(import::show).post(import::preview))
        .route("/ui/servers/selection/probe", get(selection::ask_probe).post(selection::probe))
        .route("/ui/servers/{serial}/condition", get(conditions::ask).post(conditions::submit))
        .route(
            "/ui/servers/{serial}/diagnostics",
            get(conditions::ask_diagnostics).post(conditions::diagnose),
        )
        .route(
            "/ui/servers/{serial}/maintenance",
            get(server::ask_maintenance).post(server::begin_maintenance),
        )
        .route("/ui/servers/{serial}/maintenance/end", get(server::ask_end).post(server::end_maintenance))
        .route("/ui/servers/{serial}/edit", get(server_edit::ask).post(server_edit::preview))
        .route("/ui/servers/{serial}/release", get(server_edit::ask_release).post(server_edit::release))
        .route("/ui/servers/{serial}/delete", get(server_edit::ask_delete).post(server_edit::delete))
        .route("/ui/batches/new", get(batches::new).post(batches::create))
        .route("/ui/batches/{id}/{verb}", get(batches::ask).post(batches::act))
        .route("/ui/drain", get(tables::ask_drain).post(tables::drain))
}

/// The forms and questions of changes of accounts, webhooks and the registry.
fn administered() -> Router<Pages> {
    Router::new()
        .route("/ui/users/new", get(accounts::new_user).post(accounts::create_user))
        .route("/ui/users/{name}/{verb}", get(accounts::ask_user).post(accounts::act_user))
        .route("/ui/tags/delete", get(registry::ask_delete_tag).post(registry::delete_tag))
        .route("/ui/tokens/new", get(accounts::new_token).post(accounts::create_token))
        .route("/ui/tokens/{name}/{verb}", get(accounts::ask_token).post(accounts::act_token))
        .route("/ui/webhooks/new", get(webhooks::new).post(webhooks::create))
        .route("/ui/webhooks/{id}/{verb}", get(webhooks::ask).post(webhooks::act))
}

/// Pages that are shown to a role and those above it.
fn for_role(pages: &Pages, least: CallerRole, routes: Router<Pages>) -> Router<Pages> {
    let check = axum::middleware::from_fn_with_state((pages.clone(), least), role_first::check);
    routes.route_layer(check)
}

/// The page of a path that no page has.
async fn unknown(visit: Visit) -> Response {
    let refused = refusal::Refusal::unknown_page();
    visit.respond(Err(refused)).await.into_response()
}
