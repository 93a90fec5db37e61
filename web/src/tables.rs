//! The pages that are tables and nothing else, and the drain: events, settings, search results.

use std::collections::BTreeSet;

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;
use ui::State;
use ui::data::{Drain, EventPage, JobPageJson, OverviewJson, ServerPage, SettingPage};
use ui::view::{Ask, AskEffect, EventsSearch, Tab, TableView};

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// Rows on one page.
const PAGE: u32 = 50;
/// The most parts of the log without events that a page reads.
const PARTS: u32 = 10;
/// Rows of each kind that a search shows.
const FOUND: u32 = 8;

/// Shows the event log, with the filters of the query.
pub(super) async fn events(visit: Visit) -> Response {
    let shown = async {
        let text = |name: &str| visit.query.get(name).trim().to_owned();
        let search = EventsSearch {
            server: text("server"),
            types: text("type"),
            level: text("level"),
            actor: text("actor"),
            since: text("since"),
            until: text("until"),
        };
        let asked_before = Some(text("before")).filter(|before| !before.is_empty());
        let overview: OverviewJson = visit.get("/api/v1/overview").await?;
        let mut is_live = asked_before.is_none();
        let (page, refused) = match found(&visit, &search, asked_before).await {
            // What took several reads is not read again at each event.
            Ok((page, reads)) => {
                is_live &= reads == 1;
                (page, None)
            }
            Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
                is_live = false;
                (EventPage::default(), Some(refusal.text()))
            }
            Err(refusal) => return Err(refusal),
        };
        let status = if refused.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let mut frame = visit.frame("Events", Tab::Events).await?;
        if is_live {
            frame.stream = Some(format!("/api/v1/events?after={}", overview.last_seq));
        }
        Ok((status, html(&TableView::events(frame, &page, &search, refused))?).into_response())
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// The newest events of a search before a position, and the number of reads. One request reads a part of the log: a part without
/// events is followed by the one before it, [`PARTS`] of them at most.
async fn found(
    visit: &Visit,
    search: &EventsSearch,
    before: Option<String>,
) -> Result<(EventPage, u32), Refusal> {
    let mut before = before.unwrap_or_else(|| "latest".to_owned());
    let mut reads = 1;
    loop {
        let mut path = format!("/api/v1/events?limit={PAGE}&before={}", encoded(&before));
        for (name, value) in search.parameters() {
            path.push_str(&format!("&{name}={}", encoded(&value)));
        }
        let page: EventPage = visit.get(&path).await?;
        match page.previous {
            Some(previous) if page.events.is_empty() && reads < PARTS => before = previous.to_string(),
            _ => return Ok((page, reads)),
        }
        reads += 1;
    }
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
