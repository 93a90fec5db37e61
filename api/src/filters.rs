//! Filters of lists as query parameters: `filter` has the whole language, every key is a parameter of its own too.
//!
//! ```text
//!  ?filter=condition:waiting -step:webhook.wait rack!=7      the language of `model::filter`
//!  ?condition=waiting&label=rack!=7&q=carrier                one term each; all must hold, as do those of `filter`
//! ```
//!
//! Invariant: a parameter that cannot be read is refused with its name and what was meant; none is ignored.

use super::Api;
use super::error::Detail;
use super::error_code::Rule;
use model::{Filter, FilterError, Subject};
use store::Present;

/// The parameter with the whole language.
pub(super) const FILTER: &str = "filter";
/// The parameter of a text.
const TEXT: &str = "q";

/// The present time and shortages, on which conditions depend.
pub(super) fn present(api: &Api) -> Present {
    Present { now: api.now(), pressure: api.engine.pressure().is_some() }
}

/// A parameter of a query that is no term of a filter: its name and value.
type OtherParameter<'a> = (&'a str, &'a str);

/// The filter of the query parameters that are terms. Other parameters are returned for the list to read.
///
/// # Errors
/// Every refused parameter.
pub(super) fn of_query(
    subject: Subject,
    query: &[(String, String)],
    present: Present,
) -> Result<(Filter, Vec<OtherParameter<'_>>), Vec<Detail>> {
    let (mut filter, mut others, mut wrong) = (Filter::default(), Vec::new(), Vec::new());
    for (name, value) in query {
        let name = name.as_str();
        let term = match name {
            FILTER => Filter::parse(subject, value, present.now),
            TEXT => Filter::of_value(subject, "text", value, present.now).map_err(|why| vec![why]),
            key if subject.keys().contains(&key) && !has_own_parameter(subject, key) => {
                Filter::of_value(subject, key, value, present.now).map_err(|why| vec![why])
            }
            _ => {
                others.push((name, value.as_str()));
                continue;
            }
        };
        let whole = std::mem::take(&mut filter);
        match term.and_then(|term| whole.and(term).map_err(|why| vec![why])) {
            Ok(joined) => filter = joined,
            Err(errors) => wrong.extend(errors.iter().map(|why| detail(name, why))),
        }
    }
    if wrong.is_empty() { Ok((filter, others)) } else { Err(wrong) }
}

/// Keys that a list has as a typed parameter since before the language existed.
fn has_own_parameter(subject: Subject, key: &str) -> bool {
    subject == Subject::Jobs && matches!(key, "status" | "outcome" | "workflow" | "batch")
}

/// The problem of a parameter.
pub(super) fn detail(parameter: &str, error: &FilterError) -> Detail {
    let rule = if error.unknown { Rule::Unknown } else { Rule::Value };
    Detail::new(parameter, rule, error.to_string())
}
