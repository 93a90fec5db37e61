//! `/api/v1/session` and `/api/v1/sessions`: logins of browsers.
//!
//! ```text
//!   POST /api/v1/session   Authorization: Basic or an API token ──> Set-Cookie, csrf_token
//!   any other request      Cookie (and X-CSRF-Token for changes) ──> the rights that the login has now
//! ```
//!
//! Invariants: a login always makes a new secret and ends the session of the presented cookie; a session cannot make another
//! one, so that none outlives its expiry; a session has the rights that its user or API token has now, and ends with a change
//! of them; a caller sees and ends its own sessions, an administrator all.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

use super::Api;
use super::error::ApiError;
use super::error_code::ErrorCode;
use super::extract::{CanAdminister, OwnAccount, TextPath, peer};
use super::request_audit;
use access::auth::{AuthMethod, Permission, Principal, SessionSecret, remove_cookie};
use model::{NewEvent, Time};
use store::{StoredWebSession, WebSessionLimits};

/// The maximum of sessions of one user or API token; the oldest ends for a new one.
const MAX_SESSIONS: u32 = 16;
/// The maximum of stored characters of a `User-Agent`.
const MAX_AGENT: usize = 128;

/// How long sessions last.
#[derive(Debug)]
pub struct WebSessions {
    /// How long a session lasts without a request.
    pub idle: Duration,
    /// How long a session lasts at most.
    pub lifetime: Duration,
}

/// A web session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebSession")]
pub(super) struct SessionView {
    /// The id, which is no secret.
    session_id: String,
    /// The user or API token that logged in.
    name: String,
    /// How: `password` or `token`.
    login: &'static str,
    /// The address of the client at the login.
    address: String,
    /// The `User-Agent` of the client at the login.
    agent: String,
    /// When the client logged in.
    #[schemars(with = "String", extend("format" = "date-time"))]
    created_at: Time,
    /// When the session was last used, accurate to a minute.
    #[schemars(with = "String", extend("format" = "date-time"))]
    last_used_at: Time,
    /// When the session ends, however much it is used.
    #[schemars(with = "String", extend("format" = "date-time"))]
    expires_at: Time,
    /// Whether it is the session of this request.
    current: bool,
}

impl SessionView {
    fn of(session: StoredWebSession, current: Option<&str>) -> Self {
        Self {
            login: if session.token_id.is_some() { "token" } else { "password" },
            current: current == Some(session.id.as_str()),
            session_id: session.id,
            name: session.name,
            address: session.address,
            agent: session.agent,
            created_at: session.created_at,
            last_used_at: session.last_used_at,
            expires_at: session.expires_at,
        }
    }
}

/// The session of the caller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OwnWebSession")]
pub(super) struct OwnSession {
    #[serde(flatten)]
    view: SessionView,
    /// What changing requests with the cookie send as `X-CSRF-Token`.
    csrf_token: String,
}

/// Web sessions.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebSessionPage")]
pub(super) struct SessionPage {
    sessions: Vec<SessionView>,
    /// Always null: all sessions are in one page.
    next: Option<String>,
}

/// The number of sessions that ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EndedWebSessions")]
pub(super) struct EndedSessions {
    /// How many sessions ended.
    ended: usize,
}

/// `POST /api/v1/session`: logs a browser in with the credentials of the request.
pub(super) async fn create(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
    request: Parts,
) -> Result<Response, ApiError> {
    let (now, peer) = (api.now(), peer(&request));
    let Some(login) = api.auth.login_of(&principal).await? else {
        let message = "a session begins with user and password or with an API token; this login is neither";
        return Err(ApiError::new(ErrorCode::ConflictNoSession, message));
    };
    // The login was read after the credentials were checked. If it changed in between, they are checked against the new one.
    let authorization = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let principal = api.auth.authenticate(authorization, peer, now.timestamp()).await?;
    let secret = SessionSecret::generate().map_err(|error| {
        tracing::error!(error = %model::error_chain(&error), "a web session was not created");
        ApiError::new(ErrorCode::Internal, "see the log")
    })?;
    let session = StoredWebSession {
        id: Uuid::now_v7().to_string(),
        name: principal.name.clone(),
        token_id: login.token_id,
        mark: login.mark,
        address: peer.to_canonical().to_string(),
        agent: agent(&request.headers),
        created_at: now,
        last_used_at: now,
        expires_at: now.plus(api.web.lifetime),
    };
    let limits = WebSessionLimits {
        idle_since: now.minus(api.web.idle),
        of_name: MAX_SESSIONS,
        former: SessionSecret::of(&request.headers).map(|former| former.hash()),
    };
    request_audit::target("session", &session.id);
    let event =
        NewEvent::info("session.created", format!("{} logged in from {}", session.name, session.address))
            .by(&principal.name)
            .with(json!({ "session_id": session.id, "address": session.address }));
    api.store().create_web_session(session.clone(), secret.hash(), limits, event).await?;
    let own = own(session, &secret);
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, secret.set_cookie())], Json(own)).into_response())
}

/// `GET /api/v1/session`: the session of the cookie.
pub(super) async fn show(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
    headers: HeaderMap,
) -> Result<Json<OwnSession>, ApiError> {
    let secret = SessionSecret::of(&headers).filter(|_| session_id(&principal).is_some());
    let secret = secret.ok_or_else(no_session)?;
    let session = api.store().web_session(&secret.hash()).await?.ok_or_else(no_session)?;
    Ok(Json(own(session, &secret)))
}

/// `DELETE /api/v1/session`: logs the browser out.
pub(super) async fn delete(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
) -> Result<Response, ApiError> {
    let id = session_id(&principal).ok_or_else(no_session)?;
    request_audit::target("session", id);
    end(&api, id, None, &principal).await?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, remove_cookie())]).into_response())
}

/// `GET /api/v1/sessions`: the sessions of the caller, or all of them for an administrator.
pub(super) async fn list(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
) -> Result<Json<SessionPage>, ApiError> {
    let now = api.now();
    let idle_since = now.minus(api.web.idle);
    let stored = api.store().web_sessions(owner(&principal)).await?;
    let live =
        stored.into_iter().filter(|session| session.expires_at > now && session.last_used_at >= idle_since);
    let sessions = live.map(|session| SessionView::of(session, session_id(&principal))).collect();
    Ok(Json(SessionPage { sessions, next: None }))
}

/// `DELETE /api/v1/sessions/{id}`: ends one session of the caller; an administrator ends any.
pub(super) async fn revoke(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
    TextPath(id): TextPath,
) -> Result<StatusCode, ApiError> {
    end(&api, &id, owner(&principal), &principal).await.map(|()| StatusCode::NO_CONTENT)
}

/// `DELETE /api/v1/sessions`: ends all sessions of the caller.
pub(super) async fn revoke_own(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
) -> Result<Json<EndedSessions>, ApiError> {
    request_audit::target("user", &principal.name);
    end_all(&api, &principal.name, &principal).await
}

/// `DELETE /api/v1/users/{name}/sessions`: ends all sessions of a user or an API token.
pub(super) async fn revoke_of_user(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    TextPath(name): TextPath,
) -> Result<Json<EndedSessions>, ApiError> {
    end_all(&api, &name, &principal).await
}

async fn end(api: &Api, id: &str, owner: Option<&str>, by: &Principal) -> Result<(), ApiError> {
    let shown: String = id.chars().take(64).collect();
    let event = NewEvent::info("session.ended", format!("a web session was ended by {}", by.name))
        .by(&by.name)
        .with(json!({ "session_id": shown }));
    let ended = api.store().end_web_session(id, owner, event, api.now()).await?;
    if ended { Ok(()) } else { Err(no_session()) }
}

async fn end_all(api: &Api, name: &str, by: &Principal) -> Result<Json<EndedSessions>, ApiError> {
    let event =
        NewEvent::info("session.ended", format!("all web sessions of {name} were ended by {}", by.name))
            .by(&by.name)
            .with(json!({ "user": name }));
    let ended = api.store().end_web_sessions_of(name, event, api.now()).await?;
    Ok(Json(EndedSessions { ended }))
}

/// The name whose sessions the caller may see and end; `None` for all.
fn owner(principal: &Principal) -> Option<&str> {
    let everything = principal.allows(Permission::Administer) && principal.servers().is_everything();
    (!everything).then_some(principal.name.as_str())
}

fn session_id(principal: &Principal) -> Option<&str> {
    match &principal.method {
        AuthMethod::Session { id } => Some(id),
        _ => None,
    }
}

fn own(session: StoredWebSession, secret: &SessionSecret) -> OwnSession {
    let id = session.id.clone();
    let csrf_token = secret.csrf_token().expose_secret().to_owned();
    OwnSession { view: SessionView::of(session, Some(&id)), csrf_token }
}

/// The `User-Agent` of a client as a short printable text.
fn agent(headers: &HeaderMap) -> String {
    let given = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.chars().filter(|character| !character.is_control()).take(MAX_AGENT).collect()
}

fn no_session() -> ApiError {
    ApiError::new(ErrorCode::UnknownSession, "there is no such web session")
}
