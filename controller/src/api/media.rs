//! Media: grants for BMCs (`/t<token>/…`), and the seed's path for people and tools with credentials.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

use super::Api;
use super::error::{ApiError, unknown_path};
use super::extract::{JobId, Reader, unknown_job};
use engine::model::{Artifact, NewEvent, RunId};
use media::{GrantError, MediaPath, MediaToken, ReadObserver, respond};

/// Everything that is no route: a media grant, or a path that is not there.
pub(super) async fn grant_or_unknown(State(api): State<Api>, request: Request) -> Response {
    let Some(path) = MediaPath::parse(request.uri().path()) else {
        return unknown_path(request.uri()).into_response();
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return super::error::wrong_method(request.method().clone(), axum::http::Uri::from_static("/t…"))
            .await
            .header(axum::http::header::ALLOW, "GET, HEAD")
            .into_response();
    }
    let (request, _) = request.into_parts();
    match api.site.grants.open_token(&path.token).await {
        Ok(grant) if grant.artifact == path.artifact => respond(&grant.body, &request, grant.observer),
        Ok(_) => no_grant().into_response(),
        Err(error) => refused(&api, &path.token, error).await.into_response(),
    }
}

/// `GET /media/tasks/{id}/task.iso` with the credentials of the API.
pub(super) async fn task_image(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
    request: Parts,
) -> Result<Response, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let digest = job.task_iso_sha256.ok_or_else(|| {
        ApiError::not_found(
            "no_task_image",
            "this job has no task image yet; it is made at the step iso.build",
        )
    })?;
    let token = api.site.media_token(id, Artifact::Task, &digest).ok_or_else(no_grant)?;
    match api.site.grants.open_token(&token).await {
        Ok(grant) => Ok(respond(&grant.body, &request, Arc::new(Unseen(grant.observer)))),
        Err(error) => Err(refused(&api, &token, error).await),
    }
}

/// Reads by people and tools: they end with the grant, but are no evidence that a machine reads its medium.
struct Unseen(Arc<dyn ReadObserver>);

impl ReadObserver for Unseen {
    fn read(&self, _offset: u64, _len: u64) {}

    fn ended(&self) -> bool {
        self.0.ended()
    }
}

fn no_grant() -> ApiError {
    ApiError::not_found("not_found", "no such medium; grants end with their job")
}

/// What a reader hears; an image that no longer hashes to what was granted is also told in the job's events (lock L2).
async fn refused(api: &Api, token: &MediaToken, error: GrantError) -> ApiError {
    match error {
        GrantError::Unknown | GrantError::Ended => no_grant(),
        error if error.status() == StatusCode::SERVICE_UNAVAILABLE => {
            tracing::warn!(error = %engine::model::error_chain(&error), "a medium cannot be served right now");
            ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "media cannot be served right now; see /readyz, then try again",
            )
            .header(axum::http::header::RETRY_AFTER, "5")
        }
        error => {
            let sentence = engine::model::error_chain(&error).to_string();
            if let Ok(Some(stored)) = api.store().grant(&token.hash()).await {
                let event = NewEvent::error("media.refused", sentence).by("media");
                let run: RunId = stored.grant.run;
                if let Err(error) = api.store().append(Some(run), None, vec![event], api.now()).await {
                    tracing::error!(error = %engine::model::error_chain(&error), "a refused medium was not written down");
                }
            }
            ApiError::new(
                StatusCode::GONE,
                "media.changed",
                "this medium is not what was granted; see the job's events",
            )
        }
    }
}
