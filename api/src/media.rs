//! Media: grants for BMCs (`/t<token>/…`), and the path of docs/seeds.md S000-19 for administrators and their tools.
//!
//! ```text
//!   /media/tasks/ID/task.iso ─┬─ expires, sig in the query ── valid ───────────────────────> image
//!                             │                            `─ expired, anything else ──────> 403
//!                             ├─ client in MEDIA_ALLOW_CIDRS ──────────────────────────────> image
//!                             └─ credentials of an administrator (not on plain listeners) ─> image
//! ```
//!
//! A task image contains the report token and the pull password of its job. A caller that reads it can report the result of
//! the job, so reading it needs [`Permission::Administer`](access::auth::Permission::Administer), or what an administrator
//! gave out: a signed URL, a network.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::Api;
use super::error::{ApiError, too_many, unknown_path};
use super::error_code::ErrorCode;
use super::extract::{CanAdminister, JobPath, peer, unknown_job};
use access::auth::{Denial, Networks, RateLimiter, Standing, TrustedProxies, prove};
use media::{GrantError, ImageDigest, MediaPath, MediaToken, ReadObserver, SignedQuery, UrlSigner, respond};
use model::{Artifact, Job, NewEvent, RunId, Time};
use telemetry::request_span;

/// The path of the task image of a job.
pub(super) const TASK_IMAGE: &str = "/media/tasks/{id}/task.iso";

/// Who reads task images by the path of their job, besides administrators.
#[derive(Debug)]
pub struct MediaAccess {
    /// Signs and verifies URLs.
    pub signer: UrlSigner,
    /// How long a signed URL is valid.
    pub url_ttl: Duration,
    /// The clients that need no login.
    pub allow: Networks,
    /// Proxies, whose addresses are those of no client.
    pub proxies: TrustedProxies,
    /// Limits wrong signatures per address.
    pub failures: RateLimiter,
}

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
            request_span::of_job(grant.run, api.engine.owner());
            request_span::of_server(grant.server.as_ref());
            respond(&grant.body, &request, grant.clone())
        }
        Ok(_) => no_grant().into_response(),
        Err(error) => refused(&api, &path.token, error).await.into_response(),
    }
}

/// `GET /media/tasks/{id}/task.iso`: by a signed URL, from a network of `MEDIA_ALLOW_CIDRS`, or with the credentials of an
/// administrator, because the image holds the secrets of its job.
pub(super) async fn task_image(State(api): State<Api>, mut request: Parts) -> Result<Response, ApiError> {
    if let Some(opened) = without_login(&api, &mut request).await {
        return opened;
    }
    let _admin = CanAdminister::from_request_parts(&mut request, &api).await?;
    let JobPath(id) = JobPath::from_request_parts(&mut request, &api).await?;
    open_image(&api, id, image_of(&api, id).await?, &request).await
}

/// The task image on a listener for BMCs, which takes no credentials: without a signed URL the path does not exist.
pub(super) async fn task_image_of_listener(
    State(api): State<Api>,
    mut request: Parts,
) -> Result<Response, ApiError> {
    match without_login(&api, &mut request).await {
        Some(opened) => opened,
        None => Err(unknown_path(&request.uri)),
    }
}

/// The response to a request for a task image that needs no login; `None` for every other request.
pub(super) async fn without_login(api: &Api, request: &mut Parts) -> Option<Result<Response, ApiError>> {
    if request.uri.query().is_some_and(SignedQuery::is_meant) {
        return Some(by_signed_url(api, request).await);
    }
    let peer = peer(request);
    // An address of a proxy stands for every client behind it.
    if !api.media.allow.contains(peer) || api.media.proxies.contains(peer) {
        return None;
    }
    prove(Standing::Media);
    let id = match JobPath::from_request_parts(request, api).await {
        Ok(JobPath(id)) => id,
        Err(error) => return Some(Err(error)),
    };
    Some(match image_of(api, id).await {
        Ok(digest) => open_image(api, id, digest, request).await,
        Err(error) => Err(error),
    })
}

/// The response to a signed URL. Everything but an expiry, which the URL itself states, is one and the same refusal: it says
/// neither which part is wrong nor whether the job exists.
async fn by_signed_url(api: &Api, request: &mut Parts) -> Result<Response, ApiError> {
    let (peer, now) = (peer(request), api.now().timestamp());
    let denied = |why: &'static str| api.auth.denials().denied(Denial::MediaUrl, peer, &why, now);
    let query = request.uri.query().and_then(SignedQuery::parse);
    if query.as_ref().is_some_and(|query| query.has_expired(now)) {
        denied("it has expired");
        let message = "this URL has expired; request another one with POST /api/v1/jobs/JOB/media-url";
        return Err(ApiError::new(ErrorCode::MediaUrlExpired, message));
    }
    let job = JobPath::from_request_parts(request, api).await.ok();
    if let (Some(query), Some(JobPath(id))) = (query, job)
        && let Some(digest) = stored_image(api, id).await?
        && api.media.signer.verify(&query, id, &digest, now)
    {
        prove(Standing::Media);
        let mut response = open_image(api, id, digest, request).await?;
        let fresh = HeaderValue::from_static("private, max-age=0");
        response.headers_mut().insert(header::CACHE_CONTROL, fresh);
        return Ok(response);
    }
    if let Err(limited) = api.media.failures.check(peer, now) {
        return Err(too_many(limited.retry_after));
    }
    api.media.failures.record_failure(peer, now);
    denied("its signature does not match");
    let message = "this URL is not valid; request another one with POST /api/v1/jobs/JOB/media-url";
    Err(ApiError::new(ErrorCode::MediaUrlInvalid, message))
}

/// A signed URL of a task image.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MediaUrl")]
pub(super) struct MediaUrlView {
    /// Path and query, to be appended to a base URL of the controller. It is a secret: it reads the image until it expires.
    url: String,
    /// When the URL expires. A response that has begun by then is sent to its end.
    #[schemars(with = "String", extend("format" = "date-time"))]
    expires_at: Time,
}

/// `POST /api/v1/jobs/{id}/media-url`: a URL that reads the task image of the job without a login, until it expires.
pub(super) async fn issue_url(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    JobPath(id): JobPath,
) -> Result<(StatusCode, Json<MediaUrlView>), ApiError> {
    let digest = image_of(&api, id).await?;
    let now = api.now();
    // A URL states whole seconds.
    let seconds = now.plus(api.media.url_ttl).unix_seconds();
    let expires_at = Timestamp::from_second(seconds).map_or(now, Time::from_timestamp);
    let event = NewEvent::info(
        "media.url-issued",
        format!("signed URL of the task image issued, valid until {expires_at}"),
    )
    .by(&principal.name)
    .with(json!({ "expires_at": expires_at }));
    api.store().append(Some(id), None, vec![event], now).await?;
    let url = api.media.signer.sign(id, &digest, expires_at);
    Ok((StatusCode::CREATED, Json(MediaUrlView { url, expires_at })))
}

/// The digest of the task image of a job.
async fn image_of(api: &Api, id: RunId) -> Result<ImageDigest, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    digest_of(job).ok_or_else(|| {
        let message = "this job has no task image; the step iso.build of an installation creates it";
        ApiError::new(ErrorCode::NoTaskImage, message)
    })
}

/// The digest of the task image of a job; `None` when there is no such job or image.
async fn stored_image(api: &Api, id: RunId) -> Result<Option<ImageDigest>, ApiError> {
    Ok(api.store().job(id).await?.and_then(digest_of))
}

fn digest_of(job: Job) -> Option<ImageDigest> {
    job.provision.and_then(|record| record.task_iso_sha256).and_then(|digest| ImageDigest::parse(&digest))
}

/// The response to a permitted request for the task image of a job.
async fn open_image(
    api: &Api,
    id: RunId,
    digest: ImageDigest,
    request: &Parts,
) -> Result<Response, ApiError> {
    let snapshot = api.store().snapshot(id).await?.ok_or_else(unknown_job)?;
    let token = api.services.media_token(&snapshot, Artifact::Task, &digest.to_hex());
    let token = token.map_err(|why| ApiError::new(ErrorCode::NoTaskImage, why.to_string()))?;
    match api.services.grants.open_token(&token).await {
        Ok(grant) => Ok(respond(&grant.body, request, Arc::new(UnrecordedReads(grant.clone())))),
        Err(error) => Err(refused(api, &token, error).await),
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
        GrantError::StillRefused => changed(),
        error => {
            let sentence = model::error_chain(&error).to_string();
            if let Ok(Some(stored)) = api.store().grant(&token.hash()).await {
                let event = NewEvent::error("media.refused", sentence).by("media");
                let run: RunId = stored.grant.run;
                request_span::of_job(run, api.engine.owner());
                request_span::of_server(stored.server.as_ref());
                if let Err(error) = api.store().append(Some(run), None, vec![event], api.now()).await {
                    // The next request has its reason again.
                    api.services.grants.forget(&token.hash());
                    tracing::error!(error = %model::error_chain(&error), "the event of a refused medium could not be stored");
                }
            }
            changed()
        }
    }
}

fn changed() -> ApiError {
    ApiError::new(
        ErrorCode::MediaChanged,
        "the content of this medium does not match its grant; see the events of the job",
    )
}
