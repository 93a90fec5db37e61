//! The origin of a request of a browser: a page of this controller, or of another site.
//!
//! ```text
//!   Sec-Fetch-Site sent ──> same-origin only              (every current browser sends it; a page cannot change it)
//!   else Origin sent ─────> its host and port are those of Host
//!   neither ──────────────> the client is no browser
//! ```
//!
//! The API and the web interface both refuse a change that another site caused. Reference: Fetch Metadata Request Headers (W3C),
//! RFC 6454.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use url::Url;

const FETCH_SITE: &str = "sec-fetch-site";

/// Whether nothing says that the request comes from another site.
pub fn same_site(headers: &HeaderMap) -> bool {
    if headers.contains_key(FETCH_SITE) {
        return sole(headers, FETCH_SITE) == Some("same-origin");
    }
    if !headers.contains_key(ORIGIN) {
        return true;
    }
    let origin = sole(headers, ORIGIN.as_str()).and_then(|origin| Url::parse(origin).ok());
    let (Some(origin), Some(host)) = (origin, sole(headers, HOST.as_str())) else { return false };
    // The scheme is unknown behind a proxy; the default port of either is left out as browsers do.
    Url::parse(&format!("{}://{host}", origin.scheme())).is_ok_and(|own| {
        origin.host() == own.host() && origin.port_or_known_default() == own.port_or_known_default()
    })
}

/// The value of a header that was sent once. A header that was sent twice has no value that two readers agree on.
pub fn sole<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
