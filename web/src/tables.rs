//! The pages that are tables and nothing else, and the drain: events, settings, search results.

use std::collections::BTreeSet;

use axum::http::Method;
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;
use ui::State;
use ui::data::{Drain, EventPage, JobPageJson, OverviewJson, ServerPage, SettingPage};
use ui::view::{Ask, AskEffect, Tab, TableView};

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// Rows on one page.
const PAGE: i64 = 50;
/// Rows of each kind that a search shows.
const FOUND: u32 = 8;

/// Shows the event log.
pub(super) async fn events(visit: Visit) -> Response {
    let shown = async {
        let overview: OverviewJson = visit.get("/api/v1/overview").await?;
        let before = visit.query.get("before").parse::<i64>().unwrap_or(overview.last_seq).max(0);
        let after = (before - PAGE).max(0);
        let limit = (before - after).max(1);
        let page: EventPage = visit.get(&format!("/api/v1/events?after={after}&limit={limit}")).await?;
        let mut frame = visit.frame("Events", Tab::Events).await?;
        if visit.query.get("before").is_empty() {
            frame.stream = Some(format!("/api/v1/events?after={}", overview.last_seq));
        }
        html(&TableView::events(frame, &page, (after > 0).then_some(after)))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows the settings.
pub(super) async fn settings(visit: Visit) -> Response {
    let shown = async {
        let page: SettingPage = visit.get("/api/v1/settings").await?;
        html(&TableView::settings(visit.frame("Settings", Tab::Settings).await?, &page))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows what a search finds.
pub(super) async fn find(visit: Visit) -> Response {
    let shown = async {
        let asked = visit.query.get("q").trim();
        let text = encoded(asked);
        let (jobs, servers) = match asked.len() {
            0 | 1 => (
                JobPageJson { jobs: Vec::new(), next: None },
                ServerPage { servers: Vec::new(), next: None, busy: BTreeSet::new() },
            ),
            _ => {
                let (jobs, servers) = (
                    format!("/api/v1/jobs?limit={FOUND}&q={text}"),
                    format!("/api/v1/servers?limit={FOUND}&q={text}"),
                );
                tokio::try_join!(visit.get::<JobPageJson>(&jobs), visit.get::<ServerPage>(&servers))?
            }
        };
        html(&TableView::found(visit.frame("Find", Tab::None).await?, asked, &jobs, &servers))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Asks before a drain or before its end.
pub(super) async fn ask_drain(visit: Visit) -> Response {
    let shown = async {
        let drain: Drain = visit.get("/api/v1/drain").await?;
        let (title, action, text) = match drain.drain {
            None => (
                "Drain the controller?",
                "/ui/drain",
                "No job starts until the drain ends. Running jobs continue.",
            ),
            Some(_) => ("End the drain?", "/ui/drain/end", "Jobs that wait for it start at once."),
        };
        let question = Question {
            title,
            tab: Tab::Overview,
            effects: vec![AskEffect { state: State::Held, text: text.to_owned() }],
            action: action.to_owned(),
            yes: title.trim_end_matches('?').to_owned(),
            back: "/ui/".to_owned(),
            reason: drain.drain.is_none(),
            risk: false,
        };
        question.page(&visit).await
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Begins a drain.
pub(super) async fn drain(visit: Visit, form: Form) -> Response {
    let body = json!({ "reason": form.get("reason") });
    done(&visit, Method::POST, "/api/v1/drain", Some(body), &form, "/ui/?done=drained").await
}

/// Ends a drain.
pub(super) async fn undrain(visit: Visit, form: Form) -> Response {
    done(&visit, Method::DELETE, "/api/v1/drain", None, &form, "/ui/?done=undrained").await
}

/// A question before a change.
struct Question {
    title: &'static str,
    tab: Tab,
    effects: Vec<AskEffect>,
    action: String,
    yes: String,
    back: String,
    reason: bool,
    risk: bool,
}

impl Question {
    async fn page(self, visit: &Visit) -> Result<Response, Refusal> {
        html(&Ask {
            f: visit.frame(self.title, self.tab).await?,
            question: self.title.to_owned(),
            intro: String::new(),
            effects: self.effects,
            action: self.action,
            key: String::new(),
            revision: String::new(),
            reason: self.reason,
            yes: self.yes,
            no: "Not now",
            back: self.back,
            risk: self.risk,
        })
    }
}

async fn done(
    visit: &Visit,
    method: Method,
    path: &str,
    body: Option<serde_json::Value>,
    form: &Form,
    back: &str,
) -> Response {
    let changed = visit.change(Change { method, path, body, form }).await;
    visit.respond(changed.map(|_| Redirect::to(back).into_response())).await
}
