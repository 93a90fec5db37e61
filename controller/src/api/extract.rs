//! What handlers take out of a request: who calls, a bounded JSON body, a path part.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::Api;
use super::error::{ApiError, Detail};
use crate::auth::{Permission, Principal};
use engine::model::{RunId, Serial};

/// How long a request body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How much of a body beyond the limit is read before the connection is given up.
const DRAIN: usize = 16 << 20;

/// A caller who may read.
pub(super) struct Reader;

/// A caller who may change things.
pub(super) struct Writer(pub(super) Principal);

impl FromRequestParts<Api> for Reader {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        principal(parts, api, Permission::Read).await.map(|_reader| Self)
    }
}

impl FromRequestParts<Api> for Writer {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        principal(parts, api, Permission::Write).await.map(Self)
    }
}

async fn principal(parts: &Parts, api: &Api, permission: Permission) -> Result<Principal, ApiError> {
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let now = api.now().timestamp();
    let principal = api.auth.authenticate(authorization, peer(parts), now).await?;
    if principal.allows(permission, None) {
        Ok(principal)
    } else {
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            format!("{} may not do this; an administrator may", principal.name),
        ))
    }
}

/// The address a request came from.
pub(super) fn peer(parts: &Parts) -> IpAddr {
    parts
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip())
}

/// The address a request came from, for handlers.
pub(super) struct Peer(pub(super) IpAddr);

impl FromRequestParts<Api> for Peer {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, Self::Rejection> {
        Ok(Self(peer(parts)))
    }
}

/// A JSON body: the right content type, within the limit, and readable.
pub(super) struct Body(pub(super) Bytes);

impl Body {
    /// The body as a type; what is wrong with it names the place.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.0).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            if error.is_data() {
                let text = error.to_string();
                let what = text.split(" at line ").next().unwrap_or_default().to_owned();
                ApiError::invalid(vec![Detail::new("", "shape", format!("{what} ({place})"))])
            } else {
                ApiError::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body is not JSON: {error}"))
                    .detail(Detail::new("", "json", place))
            }
        })
    }
}

impl FromRequest<Api> for Body {
    type Rejection = ApiError;
    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = kind.split(';').next().unwrap_or_default().trim();
        let json = essence.eq_ignore_ascii_case("application/json")
            || essence.eq_ignore_ascii_case("application/merge-patch+json");
        if !json {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "send the body as Content-Type: application/json",
            ));
        }
        read_body(request, api.settings.max_body_bytes).await.map(Self)
    }
}

/// A whole body within a limit and a time. Of one that is too long the rest is read and thrown away, as far as [`DRAIN`]
/// goes: a client that is still sending would otherwise see a broken connection instead of the answer.
pub(super) async fn read_body(request: Request, limit: usize) -> Result<Bytes, ApiError> {
    let timed_out = |_elapsed| {
        ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!("the body did not arrive within {} s", BODY_WITHIN.as_secs()),
        )
    };
    match tokio::time::timeout(BODY_WITHIN, collect(request.into_body(), limit)).await.map_err(timed_out)? {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the body is over the limit of {limit} bytes"),
        )),
        Err(_broken) => Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_body", "the body broke off")),
    }
}

/// The body; `None` when it is longer than the limit.
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
        if seen > limit.saturating_add(DRAIN) {
            break;
        }
    }
    Ok((seen <= limit).then(|| kept.freeze()))
}

/// A job's id out of the path; one that cannot be an id is a job that is not there.
pub(super) struct JobId(pub(super) RunId);

impl FromRequestParts<Api> for JobId {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text =
            Path::<String>::from_request_parts(parts, api).await.map(|Path(text)| text).unwrap_or_default();
        text.parse().map(Self).map_err(|_| unknown_job())
    }
}

/// A server's serial out of the path; one that cannot be a serial is a server that is not there.
pub(super) struct SerialPath(pub(super) Serial);

impl FromRequestParts<Api> for SerialPath {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let text =
            Path::<String>::from_request_parts(parts, api).await.map(|Path(text)| text).unwrap_or_default();
        text.parse().map(Self).map_err(|_| unknown_server(&text))
    }
}

/// 404: no such job.
pub(super) fn unknown_job() -> ApiError {
    ApiError::not_found("unknown_job", "there is no job with this id; `shoal job list` shows them")
}

/// 404: no such server.
pub(super) fn unknown_server(serial: &str) -> ApiError {
    let serial: String = serial.chars().take(Serial::MAX).collect();
    ApiError::not_found(
        "unknown_server",
        format!("server {serial:?} is not registered; `shoal server add` registers it"),
    )
}

/// A page size between 1 and `most`.
pub(super) fn page_size(asked: Option<&str>, usual: u32, most: u32) -> Result<u32, ApiError> {
    match asked {
        None => Ok(usual),
        Some(text) => match text.parse() {
            Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
            _ => Err(ApiError::invalid(vec![Detail::new(
                "limit",
                "range",
                format!("limit is a number from 1 to {most}"),
            )])),
        },
    }
}
