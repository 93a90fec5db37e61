//! Media: grants for BMCs (`/t<token>/…`), and the path of docs/seeds.md S000-19 for administrators and their tools.
//!
//! A task image contains the report token and the pull password of its job. A caller that reads it can report the result of
//! the job, so reading it needs [`Permission::Administer`](crate::auth::Permission::Administer).

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

use super::Api;
use super::error::{ApiError, unknown_path};
use super::error_code::ErrorCode;
use super::extract::{CanAdminister, JobPath, unknown_job};
use super::request_span;
use crate::auth::{Standing, prove};
use engine::model::{Artifact, NewEvent, RunId};
use media::{GrantError, MediaPath, MediaToken, ReadObserver, respond};

/// Handles every path that is no route: a media grant or an unknown path.
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
    match api.services.grants.open_token(&path.token).await {
        Ok(grant) if grant.artifact == path.artifact => {
            prove(Standing::Media);
            request_span::of_job(grant.run);
            request_span::of_server(grant.server.as_ref());
            respond(&grant.body, &request, grant.observer)
        }
        Ok(_) => no_grant().into_response(),
        Err(error) => refused(&api, &path.token, error).await.into_response(),
    }
}

/// `GET /media/tasks/{id}/task.iso` with the credentials of an administrator: the image holds the secrets of its job.
pub(super) async fn task_image(
    State(api): State<Api>,
    _admin: CanAdminister,
    JobPath(id): JobPath,
    request: Parts,
) -> Result<Response, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    let digest = job.provision.and_then(|record| record.task_iso_sha256).ok_or_else(|| {
        let message = "this job has no task image; the step iso.build of an installation creates it";
        ApiError::new(ErrorCode::NoTaskImage, message)
    })?;
    let token = api.services.media_token(id, Artifact::Task, &digest);
    match api.services.grants.open_token(&token).await {
        Ok(grant) => Ok(respond(&grant.body, &request, Arc::new(UnrecordedReads(grant.observer)))),
        Err(error) => Err(refused(&api, &token, error).await),
    }
}

/// Reads by users and tools: they end with the grant, but are not recorded as reads of the machine.
struct UnrecordedReads(Arc<dyn ReadObserver>);

impl ReadObserver for UnrecordedReads {
    fn read(&self, _offset: u64, _len: u64) {}

    fn ended(&self) -> bool {
        self.0.ended()
    }

    fn span(&self) -> tracing::Span {
        self.0.span()
    }
}

fn no_grant() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "this medium does not exist or its grant has ended with the job")
}

/// The response to a refused read. An image whose digest no longer matches the grant is also an event of the job
/// (decision D2).
async fn refused(api: &Api, token: &MediaToken, error: GrantError) -> ApiError {
    match error {
        GrantError::Unknown | GrantError::Ended => no_grant(),
        error if error.status() == StatusCode::SERVICE_UNAVAILABLE => {
            ApiError::new(ErrorCode::Unavailable, "media cannot be served now; see /readyz, then try again")
                .header(axum::http::header::RETRY_AFTER, "5")
        }
        error => {
            let sentence = engine::model::error_chain(&error).to_string();
            if let Ok(Some(stored)) = api.store().grant(&token.hash()).await {
                let event = NewEvent::error("media.refused", sentence).by("media");
                let run: RunId = stored.grant.run;
                request_span::of_job(run);
                request_span::of_server(stored.server.as_ref());
                if let Err(error) = api.store().append(Some(run), None, vec![event], api.now()).await {
                    tracing::error!(error = %engine::model::error_chain(&error), "the event of a refused medium could not be stored");
                }
            }
            ApiError::new(
                ErrorCode::MediaChanged,
                "the content of this medium does not match its grant; see the events of the job",
            )
        }
    }
}
