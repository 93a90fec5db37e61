//! `POST /api/v1/servers`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody};
use super::super::request_audit;
use super::change::ServerFields;
use super::view::{self, ServerView};
use model::{NewEvent, Serial, Server};
use secrets::{CredentialRef, same_secret};
use store::ServerChange;

/// Registers a server. A repetition with equal fields changes nothing and returns 200.
pub(crate) async fn create(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let fields: ServerFields = body.read()?;
    let mut wrong = fields.missing();
    let serial = match fields.serial.as_deref().map(str::parse::<Serial>) {
        Some(Ok(serial)) => Some(serial),
        Some(Err(why)) => {
            wrong.push(Detail::new("/serial", Rule::Pattern, why.to_string()));
            None
        }
        None => None,
    };
    let Some(serial) = serial.filter(|_| wrong.is_empty()) else { return Err(ApiError::invalid(wrong)) };
    request_audit::target("server", serial.as_str());
    let password = fields.password();
    let mut server = Server::unknown(serial, api.now());
    fields.apply(&api, &mut server)?;
    let event =
        NewEvent::info("server.created", format!("server {} registered", server.serial)).by(&principal.name);
    match api.store().create_server(server.clone(), event).await? {
        ServerChange::Created(server) => {
            Ok((StatusCode::CREATED, view::etag(&server), axum::Json(ServerView::of(&server)))
                .into_response())
        }
        ServerChange::Exists(existing) if same(&api, &existing, &server, password.as_ref()) => {
            Ok((StatusCode::OK, view::etag(&existing), axum::Json(ServerView::of(&existing))).into_response())
        }
        ServerChange::Exists(existing) => Err(ApiError::new(
            ErrorCode::ConflictServer,
            format!("server {} is registered with other values; update it to change them", existing.serial),
        )),
    }
}

/// Whether a request equals the registered server, with its password. A fingerprint pinned since then is no difference.
pub(super) fn same(api: &Api, existing: &Server, new: &Server, password: Option<&SecretString>) -> bool {
    let stored = existing
        .bmc_password
        .parse::<CredentialRef>()
        .ok()
        .and_then(|reference| api.resolver.resolve(&reference, existing.serial.as_str()).ok());
    let same_password = stored
        .zip(password)
        .is_some_and(|(stored, given)| same_secret(stored.expose_secret(), given.expose_secret()));
    same_password
        && existing.bmc_address == new.bmc_address
        && existing.bmc_username == new.bmc_username
        && existing.vendor == new.vendor
        && existing.bmc_profile == new.bmc_profile
        && existing.quirks == new.quirks
        && existing.network == new.network
        && existing.labels == new.labels
        && existing.tls == new.tls
        && (new.tls_fingerprint.is_none() || existing.tls_fingerprint == new.tls_fingerprint)
        && existing.allow_unverified_serial == new.allow_unverified_serial
        && existing.media_base_url == new.media_base_url
}
