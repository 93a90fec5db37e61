//! Registries with one rule wrong each, which the suite must detect.

use std::io::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use registry::{Algorithm, AllowAll, Digest};
use serde_json::Value;

use super::{Suite, servers};
use crate::support::INDEX;

/// Each mutant with the groups that must detect it.
const MUTANTS: [(Mutant, &[&str]); 22] = [
    (Mutant::TagsBackwards, &["tag listing"]),
    (Mutant::TagsWithoutEnd, &["tag listing"]),
    (Mutant::NoTagsIsText, &["empty registry"]),
    (Mutant::NoReferrersIsNotFound, &["empty registry"]),
    (Mutant::FilterIgnored, &["referrers"]),
    (Mutant::PlainReferrersLeftOut, &["referrers"]),
    (Mutant::NoSubjectHeader, &["manifest put with subject"]),
    (Mutant::OneTagOnly, &["manifest put with tags"]),
    (Mutant::OneAcceptOnly, &["manifest get by digest", "manifest head by tag"]),
    (Mutant::NoDigest, &["blob head"]),
    (Mutant::Compressed, &["blob get", "manifest get by tag"]),
    (Mutant::RangeIgnored, &["blob get range"]),
    (Mutant::LengthRequired, &["blob push: streaming", "blob push: post put", "manifest put by digest"]),
    (Mutant::ChunksInAnyOrder, &["blob push: chunked"]),
    (Mutant::StatusForTheSessionOnly, &["blob push: chunked"]),
    (Mutant::DeletedLater, &["manifest delete, at once"]),
    (Mutant::DeleteOfMissingFails, &["blob upload cancel", "data: bad digest image", "data: invalid digest"]),
    (Mutant::RefusedAndKept, &["data: invalid digest"]),
    (Mutant::MountOfNothing, &["blob mount"]),
    (Mutant::FailedMountSessionUnusable, &["blob mount", "blob mount, without source"]),
    (Mutant::ForbidsWhatAnotherTokenMay, &["blob upload cancel"]),
    (Mutant::ChallengesOnlyWithoutToken, &["blob push: post only"]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    TagsBackwards,
    TagsWithoutEnd,
    NoTagsIsText,
    NoReferrersIsNotFound,
    FilterIgnored,
    /// Referrers without annotations are left out.
    PlainReferrersLeftOut,
    NoSubjectHeader,
    OneTagOnly,
    OneAcceptOnly,
    NoDigest,
    Compressed,
    RangeIgnored,
    LengthRequired,
    ChunksInAnyOrder,
    /// The status is served at the URL of the session only, not with the query of the PUT.
    StatusForTheSessionOnly,
    DeletedLater,
    DeleteOfMissingFails,
    /// A manifest that was refused for its digest exists under its real digest.
    RefusedAndKept,
    MountOfNothing,
    FailedMountSessionUnusable,
    ForbidsWhatAnotherTokenMay,
    ChallengesOnlyWithoutToken,
}

/// The parts of a request that are needed after it was passed on.
struct RequestInfo {
    method: Method,
    path: String,
    query: String,
    has_body: bool,
    accepted: String,
    compressible: bool,
    bearer: bool,
}

impl RequestInfo {
    fn of(request: &Request) -> Self {
        let text =
            |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        RequestInfo {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            has_body: !request.body().is_end_stream(),
            accepted: text(header::ACCEPT).to_owned(),
            compressible: text(header::ACCEPT_ENCODING) == "gzip",
            bearer: text(header::AUTHORIZATION).starts_with("Bearer "),
        }
    }

    fn lists_tags(&self) -> bool {
        self.path.ends_with("/tags/list")
    }

    fn lists_referrers(&self) -> bool {
        self.path.contains("/referrers/")
    }

    fn is_of_manifest(&self) -> bool {
        self.path.contains("/manifests/")
    }
}

impl Mutant {
    fn apply(self, router: Router) -> Router {
        router.layer(from_fn(move |request: Request, next: Next| self.response(request, next)))
    }

    fn needs_login(self) -> bool {
        matches!(self, Mutant::ForbidsWhatAnotherTokenMay | Mutant::ChallengesOnlyWithoutToken)
    }

    async fn response(self, mut request: Request, next: Next) -> Response {
        let asked = RequestInfo::of(&request);
        match self {
            Mutant::RangeIgnored => drop(request.headers_mut().remove(header::RANGE)),
            Mutant::ChunksInAnyOrder => drop(request.headers_mut().remove(header::CONTENT_RANGE)),
            Mutant::TagsWithoutEnd if asked.lists_tags() => {
                *request.uri_mut() = asked.path.parse().unwrap();
            }
            Mutant::FilterIgnored if asked.lists_referrers() => {
                *request.uri_mut() = asked.path.parse().unwrap();
            }
            Mutant::LengthRequired if request.headers().contains_key(header::TRANSFER_ENCODING) => {
                return StatusCode::LENGTH_REQUIRED.into_response();
            }
            Mutant::StatusForTheSessionOnly
                if asked.method == Method::GET && asked.query.starts_with("digest=") =>
            {
                return StatusCode::NOT_FOUND.into_response();
            }
            Mutant::DeletedLater if asked.method == Method::DELETE && asked.is_of_manifest() => {
                return StatusCode::ACCEPTED.into_response();
            }
            Mutant::MountOfNothing if asked.query.starts_with("mount=") => {
                let location = format!("{}x", asked.path.trim_end_matches("uploads/"));
                return (StatusCode::CREATED, [(header::LOCATION, location)]).into_response();
            }
            Mutant::RefusedAndKept if asked.path.ends_with("baddigeststring") && asked.has_body => {
                return keep(&asked.path, request, next).await;
            }
            _ => {}
        }
        self.change(&asked, next.run(request).await).await
    }

    async fn change(self, asked: &RequestInfo, mut response: Response) -> Response {
        let status = response.status();
        let headers = response.headers_mut();
        match self {
            Mutant::NoDigest => drop(headers.remove("docker-content-digest")),
            Mutant::NoSubjectHeader => drop(headers.remove("oci-subject")),
            Mutant::OneTagOnly => {
                if let Some(first) = headers.remove("oci-tag") {
                    headers.insert("oci-tag", first);
                }
            }
            Mutant::OneAcceptOnly if asked.is_of_manifest() && !asked.accepted.is_empty() => {
                let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                if kind.is_some_and(|kind| kind != asked.accepted && asked.accepted == INDEX) {
                    return StatusCode::NOT_ACCEPTABLE.into_response();
                }
            }
            Mutant::FilterIgnored if asked.query.contains("artifactType") => {
                headers.insert("oci-filters-applied", HeaderValue::from_static("artifactType"));
            }
            Mutant::FailedMountSessionUnusable if asked.query.starts_with("mount=") && status == 202 => {
                let nowhere = format!("{}none", asked.path);
                headers.insert(header::LOCATION, nowhere.parse().unwrap());
            }
            Mutant::ChallengesOnlyWithoutToken if asked.has_body => {
                headers.remove(header::WWW_AUTHENTICATE);
            }
            Mutant::ForbidsWhatAnotherTokenMay if asked.bearer && status == 401 => {
                return StatusCode::FORBIDDEN.into_response();
            }
            Mutant::DeleteOfMissingFails if asked.method == Method::DELETE && status == 404 => {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
            Mutant::NoTagsIsText if asked.lists_tags() && status == 404 => return "none".into_response(),
            Mutant::NoReferrersIsNotFound if asked.lists_referrers() => return or_not_found(response).await,
            Mutant::TagsBackwards if asked.lists_tags() => {
                return edited(response, "tags", |tags| tags.reverse()).await;
            }
            Mutant::PlainReferrersLeftOut if asked.lists_referrers() => {
                let annotated = |referrer: &Value| referrer["annotations"].is_object();
                return edited(response, "manifests", |listed| listed.retain(annotated)).await;
            }
            Mutant::Compressed if asked.compressible && status == 200 => return compressed(response).await,
            _ => {}
        }
        response
    }
}

async fn whole(body: Body) -> bytes::Bytes {
    to_bytes(body, 8 << 20).await.unwrap()
}

/// A response whose document has another list.
async fn edited(response: Response, list: &str, edit: impl FnOnce(&mut Vec<Value>)) -> Response {
    let (mut head, body) = response.into_parts();
    let mut document: Value = serde_json::from_slice(&whole(body).await).unwrap();
    if let Some(list) = document[list].as_array_mut() {
        edit(list);
    }
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(document.to_string()))
}

async fn or_not_found(response: Response) -> Response {
    let mut none = false;
    let response = edited(response, "manifests", |listed| none = listed.is_empty()).await;
    if none { StatusCode::NOT_FOUND.into_response() } else { response }
}

async fn compressed(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&whole(body).await).unwrap();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(head, Body::from(encoder.finish().unwrap()))
}

/// Refuses a manifest and stores it nevertheless.
async fn keep(path: &str, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let document = whole(body).await;
    let digest = Digest::of(Algorithm::Sha256, &document).to_string();
    head.uri = path.replace("sha256:baddigeststring", &digest).parse().unwrap();
    let kept = next.run(Request::from_parts(head, Body::from(document))).await;
    assert_eq!(kept.status(), StatusCode::CREATED);
    let refusal = r#"{"errors":[{"code":"DIGEST_INVALID","message":"no digest"}]}"#;
    (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "application/json")], refusal).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_with_one_rule_wrong_is_reported() {
    let runs = MUTANTS.map(|(mutant, groups)| async move {
        let (served, login) = if mutant.needs_login() {
            (servers::behind_bearer(|router| mutant.apply(router)).await, Some(servers::login()))
        } else {
            (servers::serve(|_| Arc::new(AllowAll), |router| mutant.apply(router)).await, None)
        };
        let report = Suite::run(served.target(login), false).await;
        for group in groups {
            assert!(report.failed().contains(group), "{mutant:?} was not detected in {group}\n{report}");
        }
        assert!(
            report.failed().len() < report.covered().len(),
            "{mutant:?} failed every group, which proves nothing"
        );
    });
    futures_util::future::join_all(runs).await;
}
