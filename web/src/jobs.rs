//! The list of jobs.

use axum::http::StatusCode;
use axum::response::Response;
use ui::data::{JobPageJson, Me, OverviewJson};
use ui::view::{JobsQuery, JobsView, Tab};

use super::refusal::Refusal;
use super::visit::{Visit, encoded, html};

/// Jobs on one page.
const PAGE: u32 = 50;

/// Lists jobs.
pub(super) async fn list(visit: Visit) -> Response {
    let shown = jobs(&visit).await;
    visit.respond(shown).await
}

async fn jobs(visit: &Visit) -> Result<Response, Refusal> {
    let me: Me = visit.get("/api/v1/me").await?;
    let overview = match me.labels.is_empty() {
        true => Some(visit.get::<OverviewJson>("/api/v1/overview").await?),
        false => None,
    };
    let query = JobsQuery::parse(visit.query.get("q"));
    let cursor = Some(visit.query.get("cursor")).filter(|cursor| !cursor.is_empty());
    let mut path = format!("/api/v1/jobs?limit={PAGE}&order=attention");
    for (name, value) in [("filter", query.text().as_str()), ("cursor", cursor.unwrap_or_default())] {
        if !value.is_empty() {
            path.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    // A filter that is not understood is explained beside its field, above an empty list.
    let (page, refused) = match visit.get::<JobPageJson>(&path).await {
        Ok(page) => (page, None),
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            (JobPageJson { jobs: Vec::new(), next: None }, Some(refusal.text()))
        }
        Err(refusal) => return Err(refusal),
    };
    let mut frame = visit.framed("Jobs".to_owned(), Tab::Jobs, &me, overview.as_ref());
    frame.stream = overview.as_ref().map(|overview| format!("/api/v1/events?after={}", overview.last_seq));
    html(&JobsView::of(frame, &query, &page, overview.as_ref(), cursor, refused))
}
