//! `GET /api/v1/batches`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanRead, Parameters, page_size};
use super::view::{BatchPage, BatchView};
use model::filter::Test;
use model::{Filter, Subject, Time};
use store::{BatchCursor, BatchFilter};

/// Lists batches in pages, the newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<BatchPage>, ApiError> {
    let page = api.store().batches(batch_filter(&query, api.now())?).await?;
    let mut rows = Vec::new();
    for batch in page.batches {
        rows.push(BatchView::of(&batch, &api.store().batch_counts(batch.id).await?));
    }
    let next = page.next.map(|BatchCursor { created_at, id }| format!("{created_at}_{id}"));
    Ok(Json(BatchPage { batches: rows, next }))
}

/// The filter of the query of a list of batches.
///
/// # Errors
/// 400 with every refused parameter.
fn batch_filter(query: &HashMap<String, String>, now: Time) -> Result<BatchFilter, ApiError> {
    let mut wrong = Vec::new();
    let mut refuse = |name: &str, why: String| wrong.push(Detail::new(name, Rule::Value, why));
    let given = |name: &str| query.get(name).map(String::as_str);
    let mut filter = BatchFilter { limit: page_size(given("limit"), 20, 100)?, ..BatchFilter::default() };
    if let Some(since) = given("since") {
        // A time is written as in the filter of jobs.
        match Filter::of_value(Subject::Jobs, "since", since, now) {
            Ok(term) => {
                filter.since = term.terms().iter().find_map(|term| match term.test {
                    Test::Since(time) => Some(time),
                    _ => None,
                });
            }
            Err(why) => refuse("since", why.message),
        }
    }
    if let Some(id) = given("id") {
        match id.parse() {
            Ok(prefix) => filter.id = Some(prefix),
            Err(why) => refuse("id", format!("{why}")),
        }
    }
    if let Some(text) = given("label") {
        match Filter::selector(text) {
            Ok(labels) => filter.labels = labels,
            Err(why) => refuse("label", why.message),
        }
    }
    if let Some(text) = given("cursor") {
        let after = text.split_once('_').and_then(|(time, id)| {
            Some(BatchCursor { created_at: time.parse().ok()?, id: id.parse().ok()? })
        });
        match after {
            Some(after) => filter.after = Some(after),
            None => refuse("cursor", "not a cursor of a list of batches".to_owned()),
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(ApiError::invalid(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(pairs: &[(&str, &str)]) -> Result<BatchFilter, ApiError> {
        let query = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        batch_filter(&query, "2026-11-20T08:00:00Z".parse().unwrap())
    }

    #[test]
    fn every_parameter_of_the_list_is_read_or_refused() {
        let cursor = "2026-11-20T08:00:00.000Z_01890000-0000-7000-8000-000000000001";
        let read = filter(&[("since", "2h"), ("id", "0189"), ("cursor", cursor), ("limit", "7")]).unwrap();
        assert_eq!(read.since.unwrap().to_string(), "2026-11-20T06:00:00.000Z");
        assert_eq!((read.id.unwrap().as_str(), read.limit), ("0189", 7));
        assert_eq!(read.after.unwrap().id.to_string(), "01890000-0000-7000-8000-000000000001");
        assert_eq!(
            filter(&[("label", "site=a,rack!=7")]).unwrap().labels.to_string(),
            "label:site=a -label:rack=7"
        );
        let wrong = [("since", "yesterday"), ("id", "xyz"), ("label", "=a"), ("cursor", "x"), ("limit", "0")];
        for (name, value) in wrong {
            assert!(filter(&[(name, value)]).is_err(), "{name}");
        }
    }
}
