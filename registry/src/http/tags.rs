//! Listing tags, in pages.
//!
//! `last` is exclusive and need not exist; a `Link` header leads to the next page. A page without one is the last.
//!
//! Specification: distribution-spec "Listing Tags" (end-8).

use axum::response::Response;
use http::header;

use super::error::ApiError;
use super::{Api, insert, json, query};
use crate::name::RepositoryName;

impl Api {
    pub(super) async fn list_tags(
        &self,
        repository: &RepositoryName,
        asked: Option<&str>,
    ) -> Result<Response, ApiError> {
        let limit = query::page_size(asked)?;
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
