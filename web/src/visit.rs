//! One request of a browser: its credentials, and the requests that its page makes at the API in its name.

use std::net::SocketAddr;
use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use bytes::Bytes;
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;
use ui::data::{ErrorDetail, Me, OverviewJson, Readiness};
use ui::view::{CallerRole, ErrorPage, Frame, Tab, Theme};
use url::form_urlencoded;

use super::Pages;
use super::back;
use super::form::Form;
use super::refusal::Refusal;
use super::seal::Seal;
use access::auth::SessionSecret;
use access::origin::same_site;
use registry::{OverTls, client_host, is_proxied};

/// The longest response of the API that a page reads.
const MAX_RESPONSE: usize = 16 << 20;
/// The headers of a browser that the API needs to know who asks, and from where.
const PASSED_ON: [HeaderName; 7] = [
    header::COOKIE,
    header::AUTHORIZATION,
    header::HOST,
    header::ORIGIN,
    header::USER_AGENT,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
];

/// One request of a browser.
pub(super) struct Visit {
    pages: Pages,
    headers: HeaderMap,
    client: Option<ConnectInfo<SocketAddr>>,
    over_tls: bool,
    method: Method,
    /// The path with its query.
    pub(super) place: String,
    /// The fields of the query.
    pub(super) query: Form,
}

impl FromRequestParts<Pages> for Visit {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Self, Self::Rejection> {
        let client = parts.extensions.get::<ConnectInfo<SocketAddr>>().cloned();
        let place = parts.uri.path_and_query().map_or("/ui/", |place| place.as_str()).to_owned();
        Ok(Self {
            pages: pages.clone(),
            headers: parts.headers.clone(),
            method: parts.method.clone(),
            client,
            over_tls: parts.extensions.get::<OverTls>().is_some(),
            query: Form::parse(parts.uri.query().unwrap_or_default().as_bytes()),
            place,
        })
    }
}

/// A change that a form asks for.
pub(super) struct Change<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Option<Value>,
    pub(super) form: &'a Form,
}

/// A successful response of the API.
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// The body as a type of the API.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(&self.body).map_err(|error| Refusal::internal(&error))
    }
}

impl Visit {
    /// The seal of values that a form carries from a preview to its change.
    pub(super) fn seal(&self) -> Arc<Seal> {
        Arc::clone(&self.pages.seal)
    }

    /// The present time by the clock of the controller.
    pub(super) fn now(&self) -> jiff::Timestamp {
        self.pages.clock.now().timestamp()
    }

    /// Whether nothing says that a page of another site sent the request.
    pub(super) fn is_of_this_site(&self) -> bool {
        same_site(&self.headers)
    }

    /// The problems of a form that is shown again, as [`Refusal::details`]. A form that was made before the present login is
    /// shown again with the proof of that login, so that the entered values are not lost; a form of another site is not.
    pub(super) fn wrong(&self, refusal: Refusal) -> Result<Vec<ErrorDetail>, Refusal> {
        if refusal.body.error == "csrf" && self.session().is_some() && self.is_of_this_site() {
            let message = "the form was made before your present login, and nothing was done; look at it, then send it again";
            return Ok(vec![ErrorDetail::new("", message)]);
        }
        refusal.details()
    }

    /// Whether the page came over TLS.
    pub(super) fn is_over_tls(&self) -> bool {
        self.over_tls
    }

    /// The host and port by which the browser reaches the controller, or the proxy in front of it.
    pub(super) fn host(&self) -> &str {
        client_host(&self.headers).unwrap_or("HOST")
    }

    /// Whether a proxy has left its mark on the request.
    pub(super) fn is_proxied(&self) -> bool {
        is_proxied(&self.headers)
    }

    /// The host and port of `CONTROLLER_PUBLIC_URL`, if it is an `https` URL.
    pub(super) fn public_https_host(&self) -> Option<&str> {
        self.pages.public_https_host.as_deref()
    }

    /// The cookie of a session, if the browser has one.
    pub(super) fn session(&self) -> Option<SessionSecret> {
        SessionSecret::of(&self.headers)
    }

    /// Reads a resource of the API.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        let response = self.send(Method::GET, path, HeaderMap::new(), None).await?;
        serde_json::from_slice(&response.body).map_err(|error| Refusal::internal(&error))
    }

    /// Reads a resource of the API, with the revision in its `ETag`.
    pub(super) async fn get_revised<T: DeserializeOwned>(&self, path: &str) -> Result<(T, String), Refusal> {
        let response = self.send(Method::GET, path, HeaderMap::new(), None).await?;
        let etag = response.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        let revision = etag.unwrap_or_default().trim_matches('"').to_owned();
        Ok((response.read()?, revision))
    }

    /// Reads a resource of the API; returns the default for a caller who may not read it, such as a token with labels. The rest
    /// of the page is for that caller too.
    pub(super) async fn get_if_permitted<T: DeserializeOwned + Default>(
        &self,
        path: &str,
    ) -> Result<T, Refusal> {
        match self.get(path).await {
            Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Ok(T::default()),
            got => got,
        }
    }

    /// The readiness, also when the controller is not ready: its status is then an error, and its body is the same.
    pub(super) async fn readiness(&self) -> Result<Readiness, Refusal> {
        let (_, body) = self.exchange(Method::GET, "/readyz", HeaderMap::new(), None).await?;
        serde_json::from_slice(&body).map_err(|error| Refusal::internal(&error))
    }

    /// Makes a change by the API. The proof, the key and the revision of the form are sent with it.
    pub(super) async fn change(&self, change: Change<'_>) -> Result<Answer, Refusal> {
        let mut headers = HeaderMap::new();
        let field = |name: &str| change.form.get(name).to_owned();
        let revision = field("revision");
        let etag = if revision.is_empty() { revision } else { format!("\"{revision}\"") };
        for (name, text) in
            [("x-csrf-token", field("csrf")), ("idempotency-key", field("key")), ("if-match", etag)]
        {
            let value = HeaderValue::from_str(&text).ok().filter(|value| !value.is_empty());
            if let Some(value) = value {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        self.send(change.method, change.path, headers, change.body).await
    }

    /// Reads the preview of a change. The API changes nothing for a request with `dry_run`, so the page asks in its own name: as
    /// a page of this controller, with the proof of the session.
    pub(super) async fn preview<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
        if let Some(proof) = HeaderValue::from_str(&self.csrf()).ok().filter(|proof| !proof.is_empty()) {
            headers.insert("x-csrf-token", proof);
        }
        let response = self.send(Method::POST, &format!("{path}?dry_run=true"), headers, Some(body)).await?;
        response.read()
    }

    /// Sends a request to the API in the name of the browser.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        own: HeaderMap,
        body: Option<Value>,
    ) -> Result<Answer, Refusal> {
        let (parts, body) = self.exchange(method, path, own, body).await?;
        if !parts.status.is_success() {
            return Err(Refusal::of(parts.status, &body));
        }
        Ok(Answer { headers: parts.headers, body })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        own: HeaderMap,
        body: Option<Value>,
    ) -> Result<(axum::http::response::Parts, Bytes), Refusal> {
        let bytes = body.map(|body| body.to_string());
        let json = bytes.is_some();
        let mut request = Request::new(Body::from(bytes.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|error: axum::http::uri::InvalidUri| Refusal::internal(&error))?;
        for name in PASSED_ON {
            for value in self.headers.get_all(&name) {
                request.headers_mut().append(name.clone(), value.clone());
            }
        }
        request.headers_mut().extend(own);
        if json {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.mark(request.extensions_mut());
        let Ok(response) = self.pages.api.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        let body =
            axum::body::to_bytes(body, MAX_RESPONSE).await.map_err(|error| Refusal::internal(&error))?;
        Ok((parts, body))
    }

    /// Marks a request with the origin of the request of the browser. Nothing else is passed on: the API routes the request anew.
    fn mark(&self, extensions: &mut Extensions) {
        if let Some(client) = &self.client {
            extensions.insert(*client);
        }
        if self.over_tls {
            extensions.insert(OverTls);
        }
    }

    /// The frame of a page that does not follow the events.
    pub(super) async fn frame(&self, title: impl Into<String>, tab: Tab) -> Result<Frame, Refusal> {
        Ok(Frame { stream: None, ..self.live_frame(title, tab).await? })
    }

    /// The frame of a page that follows the events. A caller who does not see every server has no stream of all events.
    pub(super) async fn live_frame(&self, title: impl Into<String>, tab: Tab) -> Result<Frame, Refusal> {
        let me: Me = self.get("/api/v1/me").await?;
        let overview = match me.labels.is_empty() {
            true => self.get::<OverviewJson>("/api/v1/overview").await.ok(),
            false => None,
        };
        let stream = overview.as_ref().map(|overview| format!("/api/v1/events?after={}", overview.last_seq));
        Ok(Frame { stream, ..self.framed(title.into(), tab, &me, overview.as_ref()) })
    }

    /// The frame of a page, from the caller and the overview that were read already.
    pub(super) fn framed(&self, title: String, tab: Tab, me: &Me, overview: Option<&OverviewJson>) -> Frame {
        let failed = overview.map(|overview| overview.failures.iter().map(|group| group.jobs).sum());
        Frame {
            title,
            tab,
            path: self.place.clone(),
            user: me.name.clone(),
            role: CallerRole::parse(me.role.as_deref()),
            sees_all: me.labels.is_empty(),
            role_name: me.role.clone().unwrap_or_else(|| "no role".to_owned()),
            failed: failed.unwrap_or_default(),
            theme: Theme::parse(self.cookie("shoal-theme")),
            clock_times: self.cookie("shoal-times") == "abs",
            csrf: self.csrf(),
            version: env!("CARGO_PKG_VERSION"),
            reads: self.method == Method::GET,
            stream: None,
            notice: notice(self.query.get("done")).map(str::to_owned),
            now: self.pages.clock.now().timestamp(),
        }
    }

    /// The proof that a form comes from a page of this session; empty without a session.
    pub(super) fn csrf(&self) -> String {
        self.session().map(|session| session.csrf_token().expose_secret().to_owned()).unwrap_or_default()
    }

    fn cookie(&self, name: &str) -> &str {
        let lines = self.headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(found, _)| *found == name).map_or("", |(_, value)| value)
    }

    /// The response with a page or its refusal. Without credentials the response leads to the login.
    pub(super) async fn respond(&self, shown: Result<Response, Refusal>) -> Response {
        let refusal = match shown {
            Ok(response) => return response,
            Err(refusal) => refusal,
        };
        if refusal.status == StatusCode::UNAUTHORIZED {
            return self.to_login();
        }
        match self.frame("Error", Tab::None).await {
            Ok(frame) => {
                let status = refusal.status;
                let page = ErrorPage::of(frame, status.as_u16(), refusal.body);
                let mut response = html(&page).unwrap_or_else(|refused| refused.status.into_response());
                *response.status_mut() = status;
                response
            }
            Err(unknown) if unknown.status == StatusCode::UNAUTHORIZED => self.to_login(),
            Err(_unknown) => (refusal.status, refusal.body.message).into_response(),
        }
    }

    fn to_login(&self) -> Response {
        let place = back::after_login(&self.method, &self.place, &self.headers);
        let next: String = form_urlencoded::byte_serialize(place.as_bytes()).collect();
        // What a form asked for was not done, and the login page says so.
        let ended = if self.method == Method::POST { "&ended=form" } else { "" };
        Redirect::to(&format!("/ui/login?next={next}{ended}")).into_response()
    }
}

/// A page as a response.
pub(super) fn html(page: &impl Template) -> Result<Response, Refusal> {
    let text = page.render().map_err(|error| Refusal::internal(&error))?;
    Ok(Html(text).into_response())
}

/// A text as a segment or a parameter of a URL.
pub(super) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// The notice of a change just made, by the word of a redirect. The set is closed, so that no link puts words into a page.
fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "cancel" => "The cancel is stored. The cleanup follows.",
        "hold" => "The job is held until an operator resumes or cancels it.",
        "resume" => "The job continues.",
        "finish" => "The end of the session is stored. The cleanup follows.",
        "retry" => "This is the new job. The former one is unchanged.",
        "created" => "The job is stored and queued.",
        "server" => "The server is registered. A probe of its BMC shows whether a job would work.",
        "server-changed" => "The server was changed.",
        "server-deleted" => "The server was deleted.",
        "released" => "The server is released; jobs start on it.",
        "probed" => "The BMC was read just now; nothing was changed on it.",
        "maintenance" => "No job starts on this server until the maintenance ends.",
        "maintenance-end" => "Jobs start on this server again.",
        "drained" => "No job starts until the drain ends. Running jobs continue.",
        "undrained" => "Jobs start again.",
        "batch" => "The cancels of the batch are stored.",
        "session" => "The login has ended.",
        "resumed-all" => "The jobs are resumed. One whose cause is still there is held again.",
        "cancelled-all" => "The cancels are stored. The cleanups follow.",
        "batch-created" => "The batch is stored. Its jobs start in the order of their rows.",
        "batch-retry" => "This is the new batch. The former one is unchanged.",
        "batch-continue" => "Further jobs of the batch start.",
        "condition" => "The request is stored. This is its job.",
        "diagnosed" => "The diagnostics have ended; their checks are below.",
        "diagnosing" => "The diagnostics run. This page shows their checks when they have ended.",
        "user-created" => "The user can log in now.",
        "user" => "The user was changed.",
        "user-confirm" => "The user can log in again.",
        "user-logout" => "All logins of the user have ended.",
        "user-delete" => "The user was deleted.",
        "token" => "The token was revoked; the next request with it is refused.",
        "token-confirm" => "The token is accepted again.",
        "webhook" => "The webhook receives every later event.",
        "webhook-disabled" => "Nothing is sent until the webhook is enabled. Its events are kept.",
        "webhook-enabled" => "The webhook continues after the last delivered event.",
        "webhook-deleted" => "The webhook was deleted.",
        "tag-deleted" => "The tag was deleted.",
        "redeliver" => "The redelivery is stored. What is refused again stays here.",
        "sessions" => "Your other logins have ended.",
        "password" => "Your password was changed. Your other logins have ended.",
        _ => return None,
    })
}
