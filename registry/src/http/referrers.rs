//! Listing the referrers of a manifest.
//!
//! ```text
//!  GET /v2/<name>/referrers/<digest>[?artifactType=<type>][&n=<count>][&last=<digest>]    200, an image index
//! ```
//!
//! The response is never 404: a subject without referrers, or one that is not stored, has an empty list. `n` and `last`
//! are ours; a client follows the `Link` header and need not know them.
//!
//! Specification: distribution-spec "Listing Referrers" (end-12a, end-12b).

use axum::response::Response;
use http::header;
use oci_spec::image::MediaType;

use super::error::ApiError;
use super::path::referrers_path;
use super::{Api, FILTERS_APPLIED, insert, json, query};
use crate::digest::Digest;
use crate::name::RepositoryName;

impl Api {
    pub(super) async fn list_referrers(
        &self,
        repository: &RepositoryName,
        subject: &Digest,
        asked: Option<&str>,
    ) -> Result<Response, ApiError> {
        let wanted = query::value(asked, "artifactType").filter(|kind| !kind.is_empty());
        let limit = query::page_size(asked)?;
        let after = query::value(asked, "last").map(|last| last.into_owned());
        let (name, digest, kind) =
            (repository.clone(), subject.clone(), wanted.clone().map(|kind| kind.into_owned()));
        let listed = self
            .registry
            .run(move |store| store.referrers(&name, &digest, kind.as_deref(), after.as_deref(), limit));
        let page = listed.await?;
        let media_type = MediaType::ImageIndex.to_string();
        let index = serde_json::json!({
            "schemaVersion": 2, "mediaType": media_type, "manifests": page.referrers,
        });
        let mut response = json(index.to_string());
        insert(&mut response, [(header::CONTENT_TYPE, media_type)]);
        if wanted.is_some() {
            insert(&mut response, [(FILTERS_APPLIED, "artifactType".to_owned())]);
        }
        if let Some(next) = page.next {
            let filter =
                wanted.map_or_else(String::new, |kind| format!("artifactType={}&", query::encode(&kind)));
            let path = referrers_path(repository, subject);
            let next = query::encode(&next.to_string());
            insert(
                &mut response,
                [(header::LINK, format!("<{path}?{filter}n={limit}&last={next}>; rel=\"next\""))],
            );
        }
        Ok(response)
    }
}
