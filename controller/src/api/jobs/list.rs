//! `GET /api/v1/jobs`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanRead, Parameters, page_size};
use super::view::{JobPage, JobView};
use engine::model::{JobStatus, Outcome, RunId, Time};
use engine::store::JobFilter;

/// Lists jobs in pages, the newest first.
pub(in crate::api) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    let page = api.store().jobs(filter(&query)?).await?;
    let next = page.next.map(|(time, id)| format!("{time}_{id}"));
    Ok(Json(JobPage { jobs: page.jobs.iter().map(JobView::of).collect(), next }).into_response())
}

fn filter(query: &HashMap<String, String>) -> Result<JobFilter, ApiError> {
    let mut filter = JobFilter {
        limit: page_size(query.get("limit").map(String::as_str), 50, 500)?,
        ..JobFilter::default()
    };
    let mut wrong = Vec::new();
    for (name, value) in query {
        let problem = |why: &str| Detail::new(name, Rule::Value, why);
        match name.as_str() {
            "status" => match JobStatus::parse(value) {
                Some(status) => filter.status = Some(status),
                None => {
                    wrong.push(problem("status is one of queued, provisioning, succeeded, failed, complete"))
                }
            },
            "outcome" => match Outcome::parse(value) {
                Some(outcome) => filter.outcome = Some(outcome),
                None => wrong.push(problem("outcome is one of succeeded, failed, cancelled")),
            },
            "server_serial" => match value.parse() {
                Ok(serial) => filter.server = Some(serial),
                Err(_) => wrong.push(problem("not a serial number")),
            },
            "batch" => match value.parse() {
                Ok(batch) => filter.batch = Some(batch),
                Err(_) => wrong.push(problem("not the id of a batch")),
            },
            "failure_class" => filter.failure_class = Some(value.clone()),
            "cursor" => match cursor(value) {
                Some(after) => filter.after = Some(after),
                None => wrong.push(problem("not a cursor of a list of jobs")),
            },
            "limit" => {}
            _ => wrong.push(Detail::new(
                name,
                Rule::Unknown,
                "the parameters are status, outcome, server_serial, failure_class, batch, limit, cursor",
            )),
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(ApiError::invalid(wrong)) }
}

fn cursor(text: &str) -> Option<(Time, RunId)> {
    let (time, id) = text.split_once('_')?;
    Some((time.parse().ok()?, id.parse().ok()?))
}
