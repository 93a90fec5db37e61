//! The style sheet and the script. Their names change with their content, so a browser keeps them.

use axum::http::Uri;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Serves an asset by the name that has the hash of its content.
pub(super) async fn serve(uri: Uri, headers: HeaderMap) -> Response {
    let Some(asset) = ui::assets::find(uri.path()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let accepted =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let gzip = accepted.split(',').any(|coding| coding.trim() == "gzip") && !asset.gzip.is_empty();
    let kept = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::VARY, "Accept-Encoding"),
    ];
    match gzip {
        true => (kept, [(header::CONTENT_ENCODING, "gzip")], asset.gzip.as_slice()).into_response(),
        false => (kept, asset.content).into_response(),
    }
}
