//! Extractors of handlers: the authenticated caller, a bounded JSON body, path segments.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Api;
use super::browser;
use super::error::{ApiError, Detail};
pub(super) use super::error::{unknown_job, unknown_server};
use super::error_code::{ErrorCode, Rule};
use super::query::refuse_unknown;
use super::{request_audit, shape, visible};
use access::auth::{AuthMethod, Permission, Principal, ServerScope, SessionSecret};
use model::{RunId, Serial};

/// How long a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How many bytes of a body beyond the limit are read before the connection is closed.
const DISCARD: usize = 16 << 20;

/// Requires a caller with a role, for its own login.
pub(super) struct OwnAccount(pub(super) Principal);

/// Requires a caller with read permission. The servers are those that the caller may see; a handler of a list applies them.
pub(super) struct CanRead(pub(super) ServerScope);

/// Requires a caller who may operate.
pub(super) struct CanWrite(pub(super) Principal);

/// Requires a caller who may operate; with `dry_run=true` in the query, a caller with read permission.
pub(super) struct CanPreview {
    pub(super) principal: Principal,
    /// Whether the request is only a preview.
    pub(super) dry_run: bool,
}

impl CanPreview {
    /// Refuses a caller without the permission to operate, for a preview that does more than read what is stored.
    pub(super) fn may_operate(&self) -> Result<(), ApiError> {
        require(&self.principal, Permission::Operate)
    }
}

/// The query of a request that may be a preview.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PreviewQuery {
    dry_run: bool,
}

/// Requires a caller who may administer.
pub(super) struct CanAdminister(pub(super) Principal);

impl FromRequestParts<Api> for OwnAccount {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        principal(parts, api, Permission::OwnAccount).await.map(Self)
    }
}

impl FromRequestParts<Api> for CanRead {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        principal(parts, api, Permission::Read).await.map(|reader| Self(reader.servers()))
    }
}

impl FromRequestParts<Api> for CanWrite {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        principal(parts, api, Permission::Operate).await.map(Self)
    }
}

impl FromRequestParts<Api> for CanPreview {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let query = Parameters::<PreviewQuery>::from_request_parts(parts, api).await;
        // A query that cannot be read is no preview.
        let dry_run = query.as_ref().is_ok_and(|Parameters(query)| query.dry_run);
        let permission = if dry_run { Permission::Read } else { Permission::Operate };
        let principal = principal(parts, api, permission).await?;
        query.map(|Parameters(_)| Self { principal, dry_run })
    }
}

impl FromRequestParts<Api> for CanAdminister {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        principal(parts, api, Permission::Administer).await.map(Self)
    }
}

async fn principal(parts: &mut Parts, api: &Api, permission: Permission) -> Result<Principal, ApiError> {
    let principal = authenticate(parts, api).await?;
    request_audit::by(&principal);
    require(&principal, permission)?;
    visible::check(parts, api, &principal).await?;
    refuse_unknown(parts)?;
    Ok(principal)
}

/// Refuses a caller without a permission.
fn require(principal: &Principal, permission: Permission) -> Result<(), ApiError> {
    if principal.allows(permission) {
        return Ok(());
    }
    let role = match permission {
        Permission::Operate => "an operator or administrator",
        _ => "an administrator",
    };
    Err(ApiError::new(
        ErrorCode::Forbidden,
        format!("{} has no permission for this; use the login of {role}", principal.name),
    ))
}

/// The caller by the header `Authorization`, or else by the cookie of a web session.
async fn authenticate(parts: &Parts, api: &Api) -> Result<Principal, ApiError> {
    let (headers, now) = (&parts.headers, api.now().timestamp());
    let authorization = headers.get(header::AUTHORIZATION);
    let session = if authorization.is_none() { SessionSecret::of(headers) } else { None };
    let found = match &session {
        Some(secret) => api.auth.by_session(secret, api.web.idle, peer(parts), now).await,
        None => {
            let text = authorization.and_then(|value| value.to_str().ok());
            api.auth.authenticate(text, peer(parts), now).await
        }
    };
    let principal = found.map_err(|failure| {
        let error = ApiError::from(failure);
        // With the challenge Basic a browser would ask for a password over the page of the script.
        let asks = error.status() == StatusCode::UNAUTHORIZED && browser::is_script(headers);
        if asks { error.header(header::WWW_AUTHENTICATE, r#"Bearer realm="shoal""#) } else { error }
    })?;
    // Without authentication a cookie of earlier times proves nothing and needs no proof.
    let session = session.filter(|_| matches!(principal.method, AuthMethod::Session { .. }));
    browser::check(parts, session.as_ref())?;
    Ok(principal)
}

/// The client address of a request.
pub(super) fn peer(parts: &Parts) -> IpAddr {
    peer_of(&parts.extensions)
}

/// The client address of a request with these extensions.
pub(super) fn peer_of(extensions: &Extensions) -> IpAddr {
    extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip())
}

/// Extracts the client address of a request.
pub(super) struct Peer(pub(super) IpAddr);

impl FromRequestParts<Api> for Peer {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, Self::Rejection> {
        Ok(Self(peer(parts)))
    }
}

/// A JSON body with the right content type and within the size limit.
pub(super) struct JsonBody(pub(super) Bytes);

impl JsonBody {
    /// Parses the body; an error names the field, line and column, and no value.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.0).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            if error.is_data() {
                let mut detail = shape::refusal::<T>(&self.0, &error);
                detail.message = format!("{} ({place})", detail.message);
                ApiError::invalid(vec![detail])
            } else {
                ApiError::new(ErrorCode::BadJson, format!("the body is not JSON: {error}"))
                    .detail(Detail::new("", Rule::Json, place))
            }
        })
    }
}

impl FromRequest<Api> for JsonBody {
    type Rejection = ApiError;
    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        expect_json(request.headers())?;
        read_body(request, api.settings.max_body_bytes).await.map(Self)
    }
}

/// A JSON body that a client may leave out, as with `curl -X POST`: a request without a body is one with `{}`.
pub(super) struct OptionalJsonBody(pub(super) JsonBody);

impl FromRequest<Api> for OptionalJsonBody {
    type Rejection = ApiError;
    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let json = expect_json(request.headers());
        // A client that sends nothing may still name a media type, and a chunked body shows only at its end that it is empty.
        let body = read_body(request, api.settings.max_body_bytes).await?;
        if body.is_empty() {
            return Ok(Self(JsonBody(Bytes::from_static(b"{}"))));
        }
        json.map(|()| Self(JsonBody(body)))
    }
}

fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let json = essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("application/merge-patch+json");
    if json {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, "send the body as Content-Type: application/json"))
}

/// Reads a whole body within a size limit and [`BODY_TIMEOUT`]. The rest of a longer body is read and discarded up to
/// [`DISCARD`]: a client that is still sending would otherwise see a closed connection instead of the response.
pub(super) async fn read_body(request: Request, limit: usize) -> Result<Bytes, ApiError> {
    let timed_out = |_elapsed| {
        ApiError::new(
            ErrorCode::BodyTimeout,
            format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()),
        )
    };
    match tokio::time::timeout(BODY_TIMEOUT, collect(request.into_body(), limit)).await.map_err(timed_out)? {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(ApiError::new(
            ErrorCode::BodyTooLarge,
            format!("the body is longer than the limit of {limit} bytes"),
        )),
        Err(_broken) => {
            Err(ApiError::new(ErrorCode::BadBody, "the connection ended before the whole body arrived"))
        }
    }
}

/// Reads a body; returns `None` when it is longer than the limit.
async fn collect(mut body: axum::body::Body, limit: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut kept = BytesMut::new();
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen <= limit {
            kept.extend_from_slice(&data);
        } else {
            kept = BytesMut::new();
        }
        if seen > limit.saturating_add(DISCARD) {
            break;
        }
    }
    Ok((seen <= limit).then(|| kept.freeze()))
}

/// The query of a request; a query that cannot be read is refused in the error format of the API.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Parameters<T> {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, api).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(why) => Err(ApiError::invalid(vec![Detail::new("query", Rule::Shape, why.body_text())])),
        }
    }
}

/// The last segment of a path as text; a segment that is not UTF-8 is empty text, which names nothing.
pub(super) struct TextPath(pub(super) String);

impl FromRequestParts<Api> for TextPath {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Self::Rejection> {
        Ok(Self(Path::from_request_parts(parts, api).await.map(|Path(text)| text).unwrap_or_default()))
    }
}

/// Two segments of a path as text, in their order; empty texts, which name nothing, when one is not UTF-8.
pub(super) struct TextPair(pub(super) String, pub(super) String);

impl FromRequestParts<Api> for TextPair {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Self::Rejection> {
        let pair = Path::<(String, String)>::from_request_parts(parts, api).await;
        let (first, second) = pair.map(|Path(pair)| pair).unwrap_or_default();
        Ok(Self(first, second))
    }
}

/// The job id in the path; a malformed id is an unknown job.
pub(super) struct JobPath(pub(super) RunId);

impl FromRequestParts<Api> for JobPath {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text =
            Path::<String>::from_request_parts(parts, api).await.map(|Path(text)| text).unwrap_or_default();
        text.parse().map(Self).map_err(|_| unknown_job())
    }
}

/// The serial number in the path; a malformed serial number is an unknown server.
pub(super) struct SerialPath(pub(super) Serial);

impl FromRequestParts<Api> for SerialPath {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text =
            Path::<String>::from_request_parts(parts, api).await.map(|Path(text)| text).unwrap_or_default();
        text.parse().map(Self).map_err(|_| unknown_server(&text))
    }
}

/// A page size between 1 and `most`.
pub(super) fn page_size(given: Option<&str>, usual: u32, most: u32) -> Result<u32, ApiError> {
    match given {
        None => Ok(usual),
        Some(text) => match text.parse() {
            Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
            _ => Err(ApiError::invalid(vec![Detail::new(
                "limit",
                Rule::Range,
                format!("limit is a number from 1 to {most}"),
            )])),
        },
    }
}
