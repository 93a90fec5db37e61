//! Conditional requests: whether the client already has the content.
//!
//! The entity tag of content is its digest in quotes, so it never changes.
//!
//! Specification: RFC 9110 sections 8.8.3 and 13.1.2.

use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use super::{CONTENT_DIGEST, empty};
use crate::digest::Digest;

pub(super) fn entity_tag(digest: &Digest) -> String {
    format!("\"{digest}\"")
}

/// 304, if `If-None-Match` names this content, weakly or not, or is `*`.
pub(super) fn not_modified(headers: &HeaderMap, digest: &Digest) -> Option<Response> {
    let own = entity_tag(digest);
    let known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == own);
    known
        .then(|| empty(StatusCode::NOT_MODIFIED, [(header::ETAG, own), (CONTENT_DIGEST, digest.to_string())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Algorithm;
    use http::HeaderValue;

    #[test]
    fn a_tag_in_a_list_and_a_star_match() {
        let digest = Digest::of(Algorithm::Sha256, b"x");
        let own = entity_tag(&digest);
        let known = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, HeaderValue::from_str(value).unwrap());
            }
            not_modified(&headers, &digest).is_some()
        };
        assert!(known(&[&own]));
        assert!(known(&["*"]));
        assert!(known(&[&format!("\"other\", W/{own}")]));
        assert!(known(&["\"other\"", &own]));
        assert!(!known(&[]));
        assert!(!known(&["\"other\"", &digest.to_string()]));
    }
}
