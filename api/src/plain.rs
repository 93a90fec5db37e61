//! Plain HTTP for clients on other machines: media, health and the certificate authority, and a refusal of all else.
//!
//! Invariant: no route of this table takes credentials or changes anything.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::error::ApiError;
use super::error_code::ErrorCode;
use super::{Api, error, health, media, middleware};
use ::media::MediaPath;

/// The router of plain HTTP connections from other machines.
pub fn plain_router(api: Api) -> Router {
    let routes = [
        ("/ca.pem", get(authority)),
        ("/healthz", get(health::healthz)),
        ("/readyz", get(health::readyz)),
        (media::TASK_IMAGE, get(task_image)),
    ];
    let table = routes
        .into_iter()
        .fold(Router::new(), |router, (path, handlers)| {
            router.route(path, handlers.fallback(error::wrong_method))
        })
        .fallback(media_or_refusal);
    middleware::wrap(table, &api).with_state(api)
}

/// Returns the certificates that clients trust to reach this controller by https.
pub(super) async fn authority(State(api): State<Api>) -> Result<Response, ApiError> {
    let Some(certificates) = &api.tls else {
        let message = "this controller has no TLS listener (CONTROLLER_HTTPS_ADDR, MEDIA_HTTPS_ADDR)";
        return Err(ApiError::new(ErrorCode::NotFound, message));
    };
    let kind = "application/pem-certificate-chain";
    Ok(([(header::CONTENT_TYPE, kind)], certificates.authority()).into_response())
}

async fn media_or_refusal(State(api): State<Api>, request: Request) -> Response {
    if MediaPath::parse(request.uri().path()).is_some() {
        return media::grant_or_unknown(State(api), request).await;
    }
    https_required().into_response()
}

/// A task image by a signed URL, or for a client of `MEDIA_ALLOW_CIDRS`; with credentials only over HTTPS.
async fn task_image(State(api): State<Api>, mut request: Parts) -> Result<Response, ApiError> {
    match media::without_login(&api, &mut request).await {
        Some(opened) => opened,
        None => Err(https_required()),
    }
}

fn https_required() -> ApiError {
    let message = "API and registry are not served over plain HTTP to other machines; use the https address of this \
                   controller (CONTROLLER_HTTPS_ADDR)";
    ApiError::new(ErrorCode::HttpsRequired, message)
}
