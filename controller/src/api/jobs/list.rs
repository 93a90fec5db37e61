//! `GET /api/v1/jobs`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanRead, Parameters, page_size};
use super::MAX_LABELS;
use super::view::{JobPage, JobRowView};
use engine::model::{JobStatus, Outcome, RunId, Time};
use engine::store::JobFilter;

/// Lists jobs in pages, the newest first.
pub(in crate::api) async fn list(
    State(api): State<Api>,
    CanRead(servers): CanRead,
    Parameters(query): Parameters<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let filter = JobFilter { server_labels: servers.0, ..filter(&query)? };
    let page = api.store().jobs(filter).await?;
    let next = page.next.map(|(time, id)| format!("{time}_{id}"));
    let lengths = api.store().distinct_lengths(page.jobs.iter().map(|job| job.run.id).collect()).await?;
    let row = |(job, length): (_, usize)| JobRowView::of(job, length);
    Ok(Json(JobPage { jobs: page.jobs.iter().zip(lengths).map(row).collect(), next }).into_response())
}

fn filter(query: &[(String, String)]) -> Result<JobFilter, ApiError> {
    let limit = query.iter().find(|(name, _)| name == "limit").map(|(_, value)| value.as_str());
    let mut filter = JobFilter { limit: page_size(limit, 50, 500)?, ..JobFilter::default() };
    let mut wrong = Vec::new();
    for (name, value) in query {
        let problem = |why: &str| Detail::new(name, Rule::Value, why);
        match name.as_str() {
            "status" => match JobStatus::parse(value) {
                Some(status) => filter.status = Some(status),
                None => {
                    let known = JobStatus::ALL.map(JobStatus::as_str).join(", ");
                    wrong.push(problem(&format!("status is one of {known}")));
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
            "parent" => match value.parse() {
                Ok(parent) => filter.parent = Some(parent),
                Err(_) => wrong.push(problem("not the id of a job")),
            },
            "id" => match value.parse() {
                Ok(prefix) => filter.id = Some(prefix),
                Err(why) => wrong.push(problem(&format!("{why}"))),
            },
            "label" => match value.split_once('=') {
                Some((key, _)) if key.is_empty() || filter.labels.len() >= MAX_LABELS => {
                    wrong.push(problem(&format!("label is KEY=VALUE, at most {MAX_LABELS} times")));
                }
                Some((key, value)) => filter.labels.push((key.to_owned(), value.to_owned())),
                None => wrong.push(problem("label is KEY=VALUE")),
            },
            "workflow" => filter.workflow = Some(value.clone()),
            "failure_class" => filter.failure_class = Some(value.clone()),
            "cursor" => match cursor(value) {
                Some(after) => filter.after = Some(after),
                None => wrong.push(problem("not a cursor of a list of jobs")),
            },
            "limit" => {}
            _ => wrong.push(Detail::new(
                name,
                Rule::Unknown,
                "the parameters are status, outcome, workflow, server_serial, failure_class, batch, parent, id, label, limit, cursor",
            )),
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(ApiError::invalid(wrong)) }
}

fn cursor(text: &str) -> Option<(Time, RunId)> {
    let (time, id) = text.split_once('_')?;
    Some((time.parse().ok()?, id.parse().ok()?))
}
