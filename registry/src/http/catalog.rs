//! The list of repositories, and the extensions this registry implements.
//!
//! ```text
//!  GET /v2/_catalog[?n=<count>][&last=<name>]    200 {"repositories":[…]}, Link when more follow
//!  GET /v2/_oci/ext/discover                     200 {"extensions":[…]}, also below a repository
//! ```
//!
//! The catalog shows a caller the repositories it may pull from and no others. A page may be short, even empty, without
//! being the last: the number of repositories checked in one request is limited.
//!
//! Specification: distribution-spec `extensions/README.md`, `extensions/_oci.md`; Docker's registry for the catalog.

use axum::response::Response;
use http::header;
use http::request::Parts;

use super::error::ApiError;
use super::{Api, caller, insert, json, query};
use crate::name::RepositoryName;

/// Repositories checked for one page.
const LOOKED_AT: usize = 10_000;

impl Api {
    pub(super) async fn list_repositories(&self, parts: &Parts) -> Result<Response, ApiError> {
        let asked = parts.uri.query();
        let limit = query::page_size(asked)?;
        let last = query::value(asked, "last").map(|last| last.into_owned());
        let after = if limit == 0 {
            Vec::new()
        } else {
            self.registry
                .run(move |store| Ok(store.repositories_after(last.as_deref(), LOOKED_AT + 1)))
                .await?
        };
        let mut shown: Vec<&RepositoryName> = Vec::new();
        let next_check: Vec<&RepositoryName> = after.iter().take(LOOKED_AT).collect();
        // One more than wanted: a link must not reveal repositories that are not shown.
        let mut rest = next_check.as_slice();
        while shown.len() <= limit && !rest.is_empty() {
            let (asked_about, later) = rest.split_at(rest.len().min(limit + 1 - shown.len()));
            shown.extend(self.authorizer.readable(caller(parts), asked_about).await);
            rest = later;
        }
        let next = if shown.len() > limit {
            shown.truncate(limit);
            shown.last().copied()
        } else {
            after.get(LOOKED_AT).and(after.get(LOOKED_AT - 1))
        };
        let names: Vec<&str> = shown.iter().map(|name| name.as_str()).collect();
        let mut response = json(serde_json::json!({ "repositories": names }).to_string());
        if let Some(last) = next {
            let link = format!("</v2/_catalog?n={limit}&last={last}>; rel=\"next\"");
            insert(&mut response, [(header::LINK, link)]);
        }
        Ok(response)
    }
}

/// The extensions, of the whole registry or of one repository.
pub(super) fn discover(repository: Option<&RepositoryName>) -> Response {
    let discovery = serde_json::json!({
        "name": "_oci",
        "description": "lists the extensions this registry has",
        "url": "https://github.com/opencontainers/distribution-spec/blob/main/extensions/_oci.md",
        "endpoints": ["_oci/ext/discover"],
    });
    let catalog = serde_json::json!({
        "name": "_catalog",
        "description": "lists the repositories the caller may pull from, in pages (n, last)",
        "url": "https://github.com/opencontainers/distribution-spec/blob/main/extensions/README.md",
        "endpoints": ["_catalog"],
    });
    let extensions = if repository.is_some() { vec![discovery] } else { vec![discovery, catalog] };
    json(serde_json::json!({ "extensions": extensions }).to_string())
}
