//! `GET /api/v1/jobs`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanRead, Parameters, page_size};
use super::super::filters;
use super::view::{JobPage, JobRowView};
use model::{JobStatus, Outcome, Subject};
use store::{JobCursor, JobFilter, JobListOrder, Present};

/// Lists jobs in pages, the newest first or what needs a person first.
pub(crate) async fn list(
    State(api): State<Api>,
    CanRead(servers): CanRead,
    Parameters(query): Parameters<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let filter = JobFilter { server_labels: servers.0, ..job_filter(&query, filters::present(&api))? };
    let page = api.store().jobs(filter).await?;
    let next = page.next.map(cursor_text);
    let lengths = api.store().distinct_lengths(page.jobs.iter().map(|job| job.run.id).collect()).await?;
    let row = |(job, length): (_, usize)| JobRowView::of(job, length);
    Ok(Json(JobPage { jobs: page.jobs.iter().zip(lengths).map(row).collect(), next }).into_response())
}

/// The filter of the query of a list of jobs.
///
/// # Errors
/// 400 with every refused parameter.
pub(crate) fn job_filter(query: &[(String, String)], present: Present) -> Result<JobFilter, ApiError> {
    let (terms, others) = filters::of_query(Subject::Jobs, query, present).map_err(ApiError::invalid)?;
    let limit = others.iter().find(|(name, _)| *name == "limit").map(|(_, value)| *value);
    let mut filter = JobFilter {
        limit: page_size(limit, 50, 500)?,
        filter: terms,
        present: Some(present),
        ..JobFilter::default()
    };
    let mut wrong = Vec::new();
    for (name, value) in others {
        let problem = |why: &str| Detail::new(name, Rule::Value, why);
        match name {
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
            "workflow" => filter.workflow = Some(value.to_owned()),
            "failure_class" => filter.failure_class = Some(value.to_owned()),
            "order" => match JobListOrder::parse(value) {
                Some(order) => filter.order = order,
                None => wrong.push(problem("order is newest or attention")),
            },
            "id" => match value.parse() {
                Ok(prefix) => filter.id = Some(prefix),
                Err(why) => wrong.push(problem(&format!("{why}"))),
            },
            "cursor" => match cursor(value) {
                Some(after) => filter.after = Some(after),
                None => wrong.push(problem("not a cursor of a list of jobs")),
            },
            "limit" => {}
            _ => wrong.push(Detail::new(name, Rule::Unknown, "not a parameter of a list of jobs")),
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(ApiError::invalid(wrong)) }
}

/// A cursor: `TIME_ID` in the order of the newest, `RANK_TIME_ID` in the other.
fn cursor_text(JobCursor { rank, created_at, id }: JobCursor) -> String {
    match rank {
        0 => format!("{created_at}_{id}"),
        _ => format!("{rank}_{created_at}_{id}"),
    }
}

fn cursor(text: &str) -> Option<JobCursor> {
    let (first, rest) = text.split_once('_')?;
    let (rank, time, id) = match rest.split_once('_') {
        Some((time, id)) => (first.parse().ok()?, time, id),
        None => (0, first, rest),
    };
    Some(JobCursor { rank, created_at: time.parse().ok()?, id: id.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Result<JobFilter, ApiError> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        job_filter(&pairs, Present { now: "2026-11-20T08:00:00Z".parse().unwrap(), pressure: false })
    }

    #[test]
    fn parameters_and_the_filter_are_joined() {
        let filter = query(&[
            ("filter", "condition:held -step:a"),
            ("label", "rack!=7"),
            ("label", "site=a"),
            ("q", "a b"),
            ("outcome", "failed"),
            ("order", "attention"),
        ])
        .unwrap();
        assert_eq!(filter.filter.to_string(), "condition:held -step:a -label:rack=7 label:site=a \"a b\"");
        assert_eq!((filter.outcome, filter.order), (Some(Outcome::Failed), JobListOrder::Attention));
    }

    #[test]
    fn every_refused_term_is_named_with_its_parameter_and_what_was_meant() {
        let refused = query(&[("filter", "sevrer:x outcom:y"), ("condition", "hold")]).unwrap_err();
        let shown = format!("{:?}", refused.body());
        assert!(shown.contains("did you mean outcome?"), "{shown}");
        assert!(shown.contains("at character 10"), "{shown}");
        assert!(shown.contains("did you mean held?"), "{shown}");
        assert!(query(&[("order", "oldest")]).is_err());
        assert!(query(&[("cursor", "x")]).is_err());
    }

    #[test]
    fn a_cursor_names_rank_time_and_job() {
        for text in [
            "2026-11-20T08:00:00.000Z_01890000-0000-7000-8000-000000000001",
            "3_2026-11-20T08:00:00.000Z_01890000-0000-7000-8000-000000000001",
        ] {
            assert_eq!(cursor_text(cursor(text).unwrap()), text);
        }
    }
}
