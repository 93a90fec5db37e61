//! Registries with one rule wrong each: a suite that cannot fail proves nothing.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use std::sync::Arc;

use super::{Suite, servers};
use registry::AllowAll;

/// What is wrong, and a group that must notice.
const MUTANTS: [(Mutant, &str); 11] = [
    (Mutant::TagsBackwards, "tag listing"),
    (Mutant::TagsWithoutEnd, "tag listing"),
    (Mutant::NoReferrersIsNotFound, "empty registry"),
    (Mutant::FilterIgnored, "referrers"),
    (Mutant::SubjectNotTold, "manifest put with subject"),
    (Mutant::OneTagOnly, "manifest put with tags"),
    (Mutant::NoDigest, "blob head"),
    (Mutant::RangeIgnored, "blob get range"),
    (Mutant::ChunksInAnyOrder, "blob push: chunked"),
    (Mutant::DeletedLater, "manifest delete, at once"),
    (Mutant::MountOfNothing, "blob mount"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    TagsBackwards,
    TagsWithoutEnd,
    NoReferrersIsNotFound,
    FilterIgnored,
    SubjectNotTold,
    OneTagOnly,
    NoDigest,
    RangeIgnored,
    ChunksInAnyOrder,
    DeletedLater,
    MountOfNothing,
}

impl Mutant {
    fn spoil(self, router: Router) -> Router {
        router.layer(from_fn(move |request: Request, next: Next| self.answer(request, next)))
    }

    async fn answer(self, mut request: Request, next: Next) -> Response {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        match self {
            Mutant::RangeIgnored => drop(request.headers_mut().remove(header::RANGE)),
            Mutant::ChunksInAnyOrder => drop(request.headers_mut().remove(header::CONTENT_RANGE)),
            Mutant::TagsWithoutEnd if path.ends_with("/tags/list") => {
                *request.uri_mut() = path.parse().unwrap()
            }
            Mutant::FilterIgnored if path.contains("/referrers/") => {
                *request.uri_mut() = path.parse().unwrap()
            }
            Mutant::DeletedLater if request.method() == Method::DELETE && path.contains("/manifests/") => {
                return StatusCode::ACCEPTED.into_response();
            }
            Mutant::MountOfNothing if query.starts_with("mount=") => {
                let location = format!("{}x", path.trim_end_matches("uploads/"));
                return (StatusCode::CREATED, [(header::LOCATION, location)]).into_response();
            }
            _ => {}
        }
        let mut response = next.run(request).await;
        let headers = response.headers_mut();
        match self {
            Mutant::NoDigest => drop(headers.remove("docker-content-digest")),
            Mutant::SubjectNotTold => drop(headers.remove("oci-subject")),
            Mutant::OneTagOnly => {
                if let Some(first) = headers.remove("oci-tag") {
                    headers.insert("oci-tag", first);
                }
            }
            Mutant::FilterIgnored if query.contains("artifactType") => {
                headers.insert("oci-filters-applied", HeaderValue::from_static("artifactType"));
            }
            Mutant::TagsBackwards if path.ends_with("/tags/list") => return backwards(response).await,
            Mutant::NoReferrersIsNotFound if path.contains("/referrers/") => {
                return or_not_found(response).await;
            }
            _ => {}
        }
        response
    }
}

async fn document(response: Response) -> serde_json::Value {
    let body = to_bytes(response.into_body(), 8 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

async fn backwards(response: Response) -> Response {
    let mut listed = document(response).await;
    if let Some(tags) = listed["tags"].as_array_mut() {
        tags.reverse();
    }
    Response::new(Body::from(listed.to_string()))
}

async fn or_not_found(response: Response) -> Response {
    let head = response.headers().clone();
    let listed = document(response).await;
    if listed["manifests"].as_array().is_some_and(Vec::is_empty) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let mut response = Response::new(Body::from(listed.to_string()));
    *response.headers_mut() = head;
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_with_one_rule_wrong_is_reported() {
    let runs = MUTANTS.map(|(mutant, group)| async move {
        let served = servers::serve(|_| Arc::new(AllowAll), |router| mutant.spoil(router)).await;
        let report = Suite::run(served.target(None), false).await;
        assert!(report.failed().contains(&group), "{mutant:?} was not noticed in {group}\n{report}");
        assert!(
            report.failed().len() < report.covered().len(),
            "{mutant:?} broke everything, which proves nothing"
        );
    });
    futures_util::future::join_all(runs).await;
}
