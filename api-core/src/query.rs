//! The query parameters that a route knows. A parameter that it does not know is refused: a mistyped filter would otherwise
//! return a list that looks filtered.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use axum::http::request::Parts;
use strsim::osa_distance;
use url::form_urlencoded;

use super::error::{ApiError, Detail};
use super::error_code::Rule;

/// The maximum of characters of a name that is repeated in an error.
const SHOWN_CHARS: usize = 64;
/// The maximum of refused names in one error.
const MAX_REFUSED: usize = 20;

/// The names of the parameters of all operations, by method (in lower case) and path.
pub type ParameterTable = BTreeMap<(&'static str, &'static str), Vec<String>>;

/// The parameters of the methods of one route, as an extension of its requests.
#[derive(Clone)]
pub struct KnownParameters(Arc<Vec<(&'static str, Vec<String>)>>);

impl KnownParameters {
    /// The parameters of the route with this path.
    pub fn of(table: &ParameterTable, path: &str) -> Self {
        let of_route = table.iter().filter(|((_, of), _)| *of == path);
        Self(Arc::new(of_route.map(|((method, _), names)| (*method, names.clone())).collect()))
    }

    fn of_method(&self, method: &Method) -> &[String] {
        // A HEAD request has the route of GET.
        let name = if method == Method::HEAD { "get" } else { method.as_str() };
        let known = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map_or(&[], |(_, names)| names)
    }
}

/// Refuses a request of the API with a query parameter that its route does not know.
///
/// # Errors
/// When there is such a parameter; the refusal names the known one that is most like it.
pub fn refuse_unknown(parts: &Parts) -> Result<(), ApiError> {
    let (Some(query), Some(known)) = (parts.uri.query(), parts.extensions.get::<KnownParameters>()) else {
        return Ok(());
    };
    // Scrapers and browsers add parameters of their own to the other routes.
    if !parts.uri.path().starts_with("/api/") {
        return Ok(());
    }
    let known = known.of_method(&parts.method);
    let wrong: Vec<Detail> = form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| !known.iter().any(|known| *known == **name))
        .take(MAX_REFUSED)
        .map(|(name, _)| {
            let shown: String = name.chars().take(SHOWN_CHARS).collect();
            let message = unknown(&shown, known);
            Detail::new(&shown, Rule::Unknown, message)
        })
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid(wrong)) }
}

fn unknown(name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return "this request has no query parameters".to_owned();
    }
    let near = |candidate: &&String| osa_distance(name, candidate) <= candidate.len() / 3;
    let nearest = known.iter().filter(near).min_by_key(|candidate| osa_distance(name, candidate));
    let meant = nearest.map(|nearest| format!("did you mean {nearest}? ")).unwrap_or_default();
    format!("{meant}the parameters are {}", known.join(", "))
}
