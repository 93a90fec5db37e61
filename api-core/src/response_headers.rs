//! The security headers of responses, by the class of the route.
//!
//! ```text
//!   API       JSON and texts: no content type is guessed, nothing in it is rendered, framed or embedded
//!   registry  the same for content of clients; caching stays as the OCI distribution specification has it
//!   media     images for BMCs: few headers, because BMCs parse them badly
//! ```
//!
//! `Strict-Transport-Security` is sent over TLS only, and not to BMCs. A browser ignores it for addresses, and for a certificate
//! that it does not trust (RFC 6797 section 8.1). A header that a handler has set stays. The table is golden:
//! `golden/response-headers.txt`.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use media::MediaPath;
use registry::OverTls;

/// A class of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteClass {
    /// JSON, metrics and texts.
    Api,
    /// The OCI distribution API.
    Registry,
    /// Images for BMCs and their readers.
    Media,
}

impl RouteClass {
    /// The class of a path.
    pub fn of(path: &str) -> Self {
        if MediaPath::parse(path).is_some() || path.starts_with("/media/") {
            Self::Media
        } else if path == "/v2" || path.starts_with("/v2/") {
            Self::Registry
        } else {
            Self::Api
        }
    }

    /// The headers of the class.
    fn headers(self, over_tls: bool) -> Vec<(HeaderName, &'static str)> {
        const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
        let mut headers =
            vec![(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::REFERRER_POLICY, "no-referrer")];
        if self == Self::Media {
            return headers;
        }
        headers.push((header::CONTENT_SECURITY_POLICY, POLICY));
        headers.push((header::X_FRAME_OPTIONS, "DENY"));
        headers.push((HeaderName::from_static("cross-origin-resource-policy"), "same-origin"));
        if over_tls {
            headers.push((header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"));
        }
        if self == Self::Api {
            headers.push((header::CACHE_CONTROL, "no-store"));
        }
        headers
    }
}

/// Adds the headers of a class, except those that the response has.
pub fn add(headers: &mut HeaderMap, class: RouteClass, over_tls: bool) {
    for (name, value) in class.headers(over_tls) {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if class == RouteClass::Media {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
}

/// The middleware of every router.
pub async fn around(request: Request, next: Next) -> Response {
    let class = RouteClass::of(request.uri().path());
    let over_tls = request.extensions().get::<OverTls>().is_some();
    let mut response = next.run(request).await;
    add(response.headers_mut(), class, over_tls);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_each_class_are_those_of_the_golden_table() {
        let mut table = String::from(
            "# The security headers of responses. A header that a handler has set stays, such as Cache-Control of an image.\n",
        );
        for (class, path) in [
            (RouteClass::Api, "/api/v1/jobs, /about, /metrics, /healthz"),
            (RouteClass::Registry, "/v2/, /v2/os-images/ubuntu/manifests/1"),
            (RouteClass::Media, "/media/tasks/1/task.iso, /tabcdefghijklmnopqrst/boot.iso"),
        ] {
            for over_tls in [false, true] {
                for path in path.split(", ") {
                    assert_eq!(RouteClass::of(path), class, "{path}");
                }
                let scheme = if over_tls { "https" } else { "http" };
                table.push_str(&format!("\n{class:?} over {scheme}: {path}\n"));
                let mut headers = HeaderMap::new();
                add(&mut headers, class, over_tls);
                let mut lines: Vec<String> = headers
                    .iter()
                    .map(|(name, value)| format!("  {name}: {}\n", value.to_str().unwrap()))
                    .collect();
                lines.sort();
                table.push_str(&lines.concat());
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/response-headers.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }

    #[test]
    fn a_header_of_a_handler_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=60"));
        add(&mut headers, RouteClass::Media, false);
        assert_eq!(headers[header::CACHE_CONTROL], "private, max-age=60");
    }
}
