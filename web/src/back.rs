//! The page to which a login leads back.
//!
//! ```text
//!   GET  ──> its own page
//!   POST ──> the page with the form, as Referer names it ──elsewhere or absent──> the page of the path itself
//!                 `───────────── a path that takes forms only: the page above it ───────────┘
//! ```
//!
//! Invariant: the place is a page of this controller that answers a GET. What was entered in a form is not kept.

use axum::http::{HeaderMap, Method, header};
use url::{Url, form_urlencoded};

use access::origin::sole;

/// The longest `Referer` that is read.
const MAX_REFERER: usize = 2048;

/// The page that a login shows after this request: a path with its query.
pub(super) fn after_login(method: &Method, place: &str, headers: &HeaderMap) -> String {
    if *method != Method::POST {
        return place.to_owned();
    }
    with_form(headers).unwrap_or_else(|| shown(place.split('?').next().unwrap_or_default()).to_owned())
}

/// The page that the form was on, if the browser names it and it is a page of this controller.
fn with_form(headers: &HeaderMap) -> Option<String> {
    let text = sole(headers, header::REFERER.as_str()).filter(|text| text.len() <= MAX_REFERER)?;
    let page = Url::parse(text).ok().filter(|page| matches!(page.scheme(), "http" | "https"))?;
    // The scheme is unknown behind a proxy.
    let own = format!("{}://{}", page.scheme(), sole(headers, header::HOST.as_str())?);
    let own = Url::parse(&own).ok()?;
    let is_plain = page.username().is_empty() && page.password().is_none();
    if page.origin() != own.origin() || !is_plain || !page.path().starts_with("/ui/") {
        return None;
    }
    let path = shown(page.path());
    // What was done before is said once; the form that was sent now did nothing.
    let kept = page.query_pairs().filter(|(name, _)| name != "done");
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish();
    Some(if path != page.path() || query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
}

/// The page that is shown for a path: for a path that takes forms only, the page above it.
fn shown(path: &str) -> &str {
    let segments: Vec<&str> = path.split('/').skip(2).collect();
    let above = |count: usize| {
        let end = path.match_indices('/').nth(count).map_or(path.len(), |(end, _)| end);
        &path[..end]
    };
    match segments.as_slice() {
        ["logout" | "theme"] => "/ui/",
        ["account", "sessions", _, "end"] => above(2),
        ["drain", "end"] => above(2),
        ["servers", "import", "confirm"] => above(3),
        ["servers", "selection", "probe"] => path,
        ["servers", _, "probe"] => above(3),
        ["servers", _, "edit", "confirm"] => above(4),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn after(place: &str, referer: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("shoal.example:8443"));
        if !referer.is_empty() {
            headers.insert(header::REFERER, HeaderValue::from_str(referer).unwrap());
        }
        after_login(&Method::POST, place, &headers)
    }

    #[test]
    fn a_form_leads_back_to_the_page_that_it_was_on() {
        let own = "https://shoal.example:8443";
        for (page, expected) in [
            ("/ui/jobs/new?server=A%20b&done=created", "/ui/jobs/new?server=A+b"),
            ("/ui/servers/S?done=server", "/ui/servers/S"),
            ("/ui/servers/S/edit/confirm", "/ui/servers/S/edit"),
            ("/ui/servers/import/confirm?x=1", "/ui/servers/import"),
        ] {
            assert_eq!(after("/ui/servers/S/probe", &format!("{own}{page}")), expected);
        }
    }

    #[test]
    fn a_form_of_an_unknown_page_leads_to_the_page_nearest_to_its_path() {
        let long = format!("https://shoal.example:8443/ui/{}", "x".repeat(MAX_REFERER));
        for referer in [
            "",
            "https://elsewhere.example/ui/jobs",
            "https://shoal.example:8443.elsewhere.example/ui/jobs",
            "https://ann@shoal.example:8443/ui/jobs",
            "https://shoal.example/ui/jobs",
            "https://shoal.example:8443/api/v1/me",
            "https://shoal.example:8443/ui/../api",
            "javascript://shoal.example:8443/ui/jobs",
            "/ui/jobs",
            &long,
        ] {
            assert_eq!(after("/ui/servers/S/probe?x=1", referer), "/ui/servers/S", "{referer}");
        }
        for (place, expected) in [
            ("/ui/logout", "/ui/"),
            ("/ui/account/sessions/7/end", "/ui/account"),
            ("/ui/account/sessions/end", "/ui/account/sessions/end"),
            ("/ui/drain/end", "/ui/drain"),
            ("/ui/servers/import/confirm", "/ui/servers/import"),
            ("/ui/servers/selection/probe", "/ui/servers/selection/probe"),
            ("/ui/servers/S/maintenance/end", "/ui/servers/S/maintenance/end"),
            ("/ui/servers/S/edit/confirm", "/ui/servers/S/edit"),
            ("/ui/jobs/new", "/ui/jobs/new"),
        ] {
            assert_eq!(after(place, ""), expected);
        }
        assert_eq!(after_login(&Method::GET, "/ui/jobs?q=a", &HeaderMap::new()), "/ui/jobs?q=a");
    }
}
