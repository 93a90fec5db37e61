//! Listing tags, in pages.
//!
//! `last` is exclusive and need not exist; a `Link` header says where the next page begins. A page without one
//! is the last.
//!
//! Specification: distribution-spec "Listing Tags" (end-8).

use axum::response::Response;
use http::{StatusCode, header};

use super::error::{ApiError, Code};
use super::{Api, insert, json, query};
use crate::name::RepositoryName;

/// Tags in one page, unless the client asks for fewer.
const PAGE: usize = 1000;

impl Api {
    pub(super) async fn list_tags(
        &self,
        repository: &RepositoryName,
        asked: Option<&str>,
    ) -> Result<Response, ApiError> {
        let limit = match query::value(asked, "n") {
            None => PAGE,
            Some(number) => number.parse::<usize>().map_err(|_| not_a_number())?.min(PAGE),
        };
        let last = query::value(asked, "last").map(|last| last.into_owned());
        let name = repository.clone();
        let page = self.registry.run(move |store| store.tags(&name, last.as_deref(), limit)).await?;
        let tags: Vec<&str> = page.tags.iter().map(|tag| tag.as_str()).collect();
        let mut response = json(serde_json::json!({ "name": repository.as_str(), "tags": tags }).to_string());
        if let Some(last) = page.tags.last().filter(|_| page.more) {
            let next = format!("</v2/{repository}/tags/list?n={limit}&last={last}>; rel=\"next\"");
            insert(&mut response, [(header::LINK, next)]);
        }
        Ok(response)
    }
}

fn not_a_number() -> ApiError {
    let message = "n must be the number of tags wanted in one page";
    ApiError::new(StatusCode::BAD_REQUEST, Code::Unsupported, message)
}
