//! The overview.

use axum::response::{IntoResponse, Redirect, Response};
use ui::data::{Drain, EventPage, Me, OverviewJson};
use ui::view::{OverviewView, Tab};

use super::refusal::Refusal;
use super::visit::{Visit, html};

/// The number of the newest events that are shown.
const JUST: i64 = 8;

/// Shows the overview.
pub(super) async fn show(visit: Visit) -> Response {
    let shown = overview(&visit).await;
    visit.respond(shown).await
}

async fn overview(visit: &Visit) -> Result<Response, Refusal> {
    let me: Me = visit.get("/api/v1/me").await?;
    if !me.labels.is_empty() {
        // The overview counts everything, and this caller may see some servers only.
        return Ok(Redirect::to("/ui/jobs").into_response());
    }
    let overview: OverviewJson = visit.get("/api/v1/overview").await?;
    let after = (overview.last_seq - JUST).max(0);
    let events = format!("/api/v1/events?after={after}&limit={JUST}");
    let (drain, ready, events) = tokio::try_join!(
        visit.get::<Drain>("/api/v1/drain"),
        visit.readiness(),
        visit.get::<EventPage>(&events),
    )?;
    let mut frame = visit.framed("Fleet".to_owned(), Tab::Overview, &me, Some(&overview));
    frame.stream = Some(format!("/api/v1/events?after={}", overview.last_seq));
    html(&OverviewView::of(frame, &overview, &drain, &ready, &events.events, ""))
}
