//! The distribution API: one catch-all route with a parser for its paths.
//!
//! ```text
//!  request -> path -> method table (405 + Allow) -> authorize (401, 403) -> one handler -> response
//! ```
//!
//! A client that uses this registry as a mirror sends the upstream registry in `ns`. If the repository `<ns>/<name>`
//! exists, it is read, and `OCI-Namespace` says so; otherwise `ns` is ignored. A challenge names both repositories, so
//! that it does not reveal which of them exists and the client's next token covers either.
//!
//! | endpoint       | GET, HEAD | POST | PATCH | PUT  | DELETE |
//! |----------------|-----------|------|-------|------|--------|
//! | `/v2/`         | pull      |      |       |      |        |
//! | blob           | pull, ask |      |       |      | delete |
//! | upload start   |           | push |       |      |        |
//! | upload session | push      |      | push  | push | push   |
//! | manifest       | pull, ask |      |       | push | delete |
//! | tags           | pull      |      |       |      |        |
//! | referrers      | pull      |      |       |      |        |
//! | catalog        | list      |      |       |      |        |
//! | extensions     | pull      |      |       |      |        |
//!
//! Specification: distribution-spec "API" (end-1 to end-14).

mod blob_stream;
mod blobs;
mod body;
pub(crate) mod caller;
mod catalog;
mod completed;
mod conditional;
pub(crate) mod error;
mod manifests;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod range;
mod referrers;
mod tags;
mod uploads;

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use self::blob_stream::Buffers;
pub use self::body::READ_BUFFER;
use self::caller::caller;
pub use self::caller::{client_host, is_proxied};
use self::error::{ApiError, Code};
use self::path::Endpoint;
use crate::Registry;
use crate::access::{Access, Action, Audit, AuditEvent, Audited, Authorizer, Denied};
use crate::name::RepositoryName;

const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");
const NAMESPACE: HeaderName = HeaderName::from_static("oci-namespace");
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
const TAG: HeaderName = HeaderName::from_static("oci-tag");

/// The state shared by all handlers. Clones share it.
#[derive(Clone)]
struct Api {
    registry: Registry,
    authorizer: Arc<dyn Authorizer>,
    audit: Arc<dyn Audit>,
    buffers: Arc<Buffers>,
}

pub(crate) fn router(registry: Registry, authorizer: Arc<dyn Authorizer>, audit: Arc<dyn Audit>) -> Router {
    Router::new()
        .route("/v2", any(serve))
        .route("/v2/", any(serve))
        .route("/v2/{*endpoint}", any(serve))
        .with_state(Arc::new(Api { registry, authorizer, audit, buffers: Arc::default() }))
}

async fn serve(State(api): State<Arc<Api>>, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    let mut response = match Box::pin(api.response(&parts, &mut body)).await {
        Ok(response) => response,
        Err(error) => {
            let mut response = error.into_response();
            // A client that sent the body too slowly gets no more time for it.
            let gave_up = response.status() == StatusCode::REQUEST_TIMEOUT;
            if gave_up || !body::drain(&mut body, api.registry.config()).await {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    // Docker's clients recognise a registry by this header.
    response.headers_mut().insert(API_VERSION, HeaderValue::from_static("registry/2.0"));
    response
}

impl Api {
    async fn response(&self, parts: &Parts, body: &mut Body) -> Result<Response, ApiError> {
        let mut endpoint = Endpoint::parse(parts.uri.path())?;
        let methods = methods(&endpoint);
        let action = methods
            .iter()
            .find_map(|(method, action)| (*method == parts.method).then_some(*action))
            .ok_or_else(|| method_not_allowed(methods))?;
        let namespace = self.enter_namespace(parts, &mut endpoint, action).await?;
        if namespace.is_none() {
            self.authorize(parts, endpoint.repository(), action).await?;
        }
        let mut response = self.dispatch(&endpoint, parts, body).await?;
        if let Some(namespace) = namespace {
            insert(&mut response, [(NAMESPACE, namespace)]);
        }
        Ok(response)
    }

    async fn dispatch(
        &self,
        endpoint: &Endpoint,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let asked = parts.uri.query();
        match (endpoint, &parts.method) {
            (Endpoint::Base, _) => Ok(self.version_check(parts)),
            (Endpoint::Blob { repository, digest }, &Method::DELETE) => {
                self.delete_blob(repository, digest, parts).await
            }
            (Endpoint::Blob { repository, digest }, _) => self.get_blob(repository, digest, parts).await,
            (Endpoint::UploadStart { repository }, _) => self.start_upload(repository, parts, body).await,
            (Endpoint::Upload { repository, id }, method) => match *method {
                Method::PATCH => self.append_upload(repository, *id, parts, body).await,
                Method::PUT => self.close_upload(repository, *id, parts, body).await,
                Method::DELETE => self.cancel_upload(repository, *id).await,
                _ => self.upload_status(repository, *id),
            },
            (Endpoint::Manifest { repository, reference }, method) => match *method {
                Method::PUT => self.put_manifest(repository, reference, parts, body).await,
                Method::DELETE => self.delete_manifest(repository, reference, parts).await,
                _ => self.get_manifest(repository, reference, parts).await,
            },
            (Endpoint::Tags { repository }, _) => self.list_tags(repository, asked).await,
            (Endpoint::Referrers { repository, subject }, _) => {
                self.list_referrers(repository, subject, asked).await
            }
            (Endpoint::Catalog, _) => self.list_repositories(parts).await,
            (Endpoint::Extensions { repository }, _) => Ok(catalog::discover(repository.as_ref())),
        }
    }

    /// Changes a read of `<name>` to one of `<ns>/<name>`, when that repository exists and the caller may read it; the
    /// response does not reveal which of the two failed. Returns the namespace.
    ///
    /// A caller whose token does not cover a repository that its user may read is asked for another token: with the
    /// content of `<name>` in its place, the client would not notice.
    async fn enter_namespace(
        &self,
        parts: &Parts,
        endpoint: &mut Endpoint,
        action: Action,
    ) -> Result<Option<String>, ApiError> {
        let Some((namespace, scoped)) = namespaced(parts, endpoint.repository(), action) else {
            return Ok(None);
        };
        if !self.registry.store.has_repository(&scoped) {
            return Ok(None);
        }
        let access = Access { repository: Some(&scoped), action };
        match self.authorizer.authorize(caller(parts), access).await {
            Ok(()) => {}
            Err(denied @ Denied::OutOfScope) => {
                return Err(self.refuse(parts, endpoint.repository(), action, denied).await);
            }
            Err(_) => return Ok(None),
        }
        let Some(named) = endpoint.repository_mut() else { return Ok(None) };
        *named = scoped;
        Ok(Some(namespace))
    }

    async fn authorize(
        &self,
        parts: &Parts,
        repository: Option<&RepositoryName>,
        action: Action,
    ) -> Result<(), ApiError> {
        let asked = self.authorizer.authorize(caller(parts), Access { repository, action }).await;
        match asked {
            Ok(()) => Ok(()),
            Err(denied) => Err(self.refuse(parts, repository, action, denied).await),
        }
    }

    /// The response to a denied request.
    async fn refuse(
        &self,
        parts: &Parts,
        repository: Option<&RepositoryName>,
        action: Action,
        denied: Denied,
    ) -> ApiError {
        let caller = caller(parts);
        let is_version_check = repository.is_none() && caller.authorization.is_none();
        if !is_version_check {
            self.record(parts, repository, Audited::Denied(action, denied), |_| {}).await;
        }
        match denied {
            Denied::Unauthorized | Denied::OutOfScope => {
                // A mount reads its source, and a request through a mirror may be for either repository, so the
                // challenge asks for a scope for both.
                let asked = parts.uri.query().filter(|_| action == Action::Push);
                let source = query::value(asked, "from");
                let any = source.is_none() && query::value(asked, "mount").is_some();
                let source: Option<RepositoryName> = source.and_then(|source| source.parse().ok());
                let also = source.or_else(|| Some(namespaced(parts, repository, action)?.1));
                let mut wanted = vec![Access { repository, action }];
                wanted
                    .extend(also.iter().map(|also| Access { repository: Some(also), action: Action::Pull }));
                wanted.extend(any.then_some(Access { repository: None, action: Action::PullAny }));
                let challenge = HeaderValue::try_from(self.authorizer.challenge(caller, &wanted))
                    .unwrap_or(HeaderValue::from_static("Basic"));
                ApiError::new(StatusCode::UNAUTHORIZED, Code::Unauthorized, denied.to_string())
                    .with_header(header::WWW_AUTHENTICATE, challenge)
            }
            Denied::Forbidden => ApiError::new(StatusCode::FORBIDDEN, Code::Denied, denied.to_string()),
            Denied::RateLimited => ApiError::rate_limited(denied),
            Denied::Unavailable => ApiError::unavailable(denied),
        }
    }

    fn version_check(&self, parts: &Parts) -> Response {
        let mut response = json("{}");
        let caller = caller(parts);
        let challenge = self.authorizer.optional_challenge(caller).filter(|_| caller.authorization.is_none());
        if let Some(challenge) = challenge {
            insert(&mut response, [(header::WWW_AUTHENTICATE, challenge)]);
        }
        response
    }

    /// Writes an event to the log and the audit; `more` adds the details known for the kind.
    async fn record(
        &self,
        parts: &Parts,
        repository: Option<&RepositoryName>,
        what: Audited,
        more: impl FnOnce(&mut AuditEvent),
    ) {
        let caller = caller(parts);
        let subject = match what {
            // An unauthorized caller has no name, and authenticating again would count as another attempt.
            Audited::Denied(_, Denied::Unauthorized | Denied::RateLimited | Denied::Unavailable) => None,
            _ => self.authorizer.identify(caller).await,
        };
        let mut event = AuditEvent {
            time: SystemTime::now(),
            subject,
            peer: caller.peer,
            what,
            repository: repository.cloned(),
            reference: None,
            digest: None,
            size: None,
        };
        more(&mut event);
        event.log();
        self.audit.record(&event);
    }
}

/// The namespace of a read through a mirror, and the repository it means: `<ns>/<name>`.
fn namespaced(
    parts: &Parts,
    named: Option<&RepositoryName>,
    action: Action,
) -> Option<(String, RepositoryName)> {
    let namespace = query::value(parts.uri.query(), "ns")?;
    let reads = matches!(action, Action::Pull | Action::Exists);
    let scoped = format!("{namespace}/{}", named.filter(|_| reads)?).parse().ok()?;
    Some((namespace.into_owned(), scoped))
}

/// The methods of an endpoint and the action each of them needs.
fn methods(endpoint: &Endpoint) -> &'static [(Method, Action)] {
    match endpoint {
        Endpoint::Base | Endpoint::Tags { .. } | Endpoint::Referrers { .. } | Endpoint::Extensions { .. } => {
            const { &[(Method::GET, Action::Pull), (Method::HEAD, Action::Pull)] }
        }
        Endpoint::Catalog => const { &[(Method::GET, Action::List), (Method::HEAD, Action::List)] },
        Endpoint::Blob { .. } => {
            const {
                &[
                    (Method::GET, Action::Pull),
                    (Method::HEAD, Action::Exists),
                    (Method::DELETE, Action::Delete),
                ]
            }
        }
        Endpoint::UploadStart { .. } => const { &[(Method::POST, Action::Push)] },
        Endpoint::Upload { .. } => {
            const {
                &[
                    (Method::GET, Action::Push),
                    (Method::HEAD, Action::Push),
                    (Method::PATCH, Action::Push),
                    (Method::PUT, Action::Push),
                    (Method::DELETE, Action::Push),
                ]
            }
        }
        Endpoint::Manifest { .. } => {
            const {
                &[
                    (Method::GET, Action::Pull),
                    (Method::HEAD, Action::Exists),
                    (Method::PUT, Action::Push),
                    (Method::DELETE, Action::Delete),
                ]
            }
        }
    }
}

fn method_not_allowed(methods: &[(Method, Action)]) -> ApiError {
    let names: Vec<&str> = methods.iter().map(|(method, _)| method.as_str()).collect();
    let allow = names.join(", ");
    let message = format!("this endpoint supports {allow}");
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, Code::Unsupported, message);
    match HeaderValue::try_from(allow) {
        Ok(allow) => error.with_header(header::ALLOW, allow),
        Err(_) => error,
    }
}

/// A response without a body.
fn empty<const N: usize>(status: StatusCode, headers: [(HeaderName, String); N]) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    insert(&mut response, headers);
    response
}

/// Adds headers made of paths, digests and numbers, which are always valid values.
fn insert<const N: usize>(response: &mut Response, headers: [(HeaderName, String); N]) {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
}

fn json(document: impl Into<Body>) -> Response {
    let mut response = Response::new(document.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A header as text; `None` when absent or not text.
pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
