//! The pages that are tables: events, batches, users and tokens, settings, the audit log, the registry, search results.

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;
use ui::State;
use ui::data::{
    AuditPage, Batch, BatchPage, Drain, EventPage, JobPage, Overview, Registry, Repositories, ServerPage,
    SettingPage, TokenPage, UserPage,
};
use ui::view::{Ask, Effect, Tab, TableView};

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
        let overview: Overview = visit.get("/api/v1/overview").await?;
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

/// Lists the newest batches.
pub(super) async fn batches(visit: Visit) -> Response {
    let shown = async {
        let page: BatchPage = visit.get(&format!("/api/v1/batches?limit={PAGE}")).await?;
        html(&TableView::batches(visit.frame("Batches", Tab::Jobs).await?, &page))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows one batch.
pub(super) async fn batch(visit: Visit, Path(id): Path<String>) -> Response {
    let shown = async {
        let batch: Batch = visit.get(&format!("/api/v1/batches/{}", encoded(&id))).await?;
        html(&TableView::batch(visit.frame("Batch", Tab::Jobs).await?, &batch))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Asks before the jobs of a batch are cancelled.
pub(super) async fn ask_batch(visit: Visit, Path(id): Path<String>) -> Response {
    let shown = async {
        let id = encoded(&id);
        let batch: Batch = visit.get(&format!("/api/v1/batches/{id}")).await?;
        let effect = |state, number, text: &str| Effect { state, text: format!("{number} {text}") };
        let question = Question {
            title: "Cancel the batch?",
            tab: Tab::Jobs,
            effects: vec![
                effect(
                    State::Queued,
                    batch.progress.queued,
                    "have not begun: they are cancelled, and nothing was touched",
                ),
                effect(State::Working, batch.progress.running, "are under way: they go on to their end"),
            ],
            action: format!("/ui/batches/{id}/cancel"),
            yes: format!("Cancel {} jobs", batch.progress.queued),
            back: format!("/ui/batches/{id}"),
            reason: true,
            risk: true,
        };
        question.page(&visit).await
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Cancels the jobs of a batch that have not begun.
pub(super) async fn cancel_batch(visit: Visit, Path(id): Path<String>, form: Form) -> Response {
    let id = encoded(&id);
    let (path, body) = (format!("/api/v1/batches/{id}/cancel"), json!({ "reason": form.get("reason") }));
    let back = format!("/ui/batches/{id}?done=batch");
    done(&visit, Method::POST, &path, Some(body), &form, &back).await
}

/// Shows users and tokens.
pub(super) async fn accounts(visit: Visit) -> Response {
    let shown = async {
        let (users, tokens) = tokio::try_join!(
            visit.get::<UserPage>("/api/v1/users"),
            visit.get::<TokenPage>("/api/v1/tokens")
        )?;
        html(&TableView::accounts(visit.frame("Users and tokens", Tab::Settings).await?, &users, &tokens))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Asks before a token is revoked.
pub(super) async fn ask_token(visit: Visit, Path(name): Path<String>) -> Response {
    let name = encoded(&name);
    let question = Question {
        title: "Revoke the token?",
        tab: Tab::Settings,
        effects: vec![Effect {
            state: State::Failed,
            text: "The next request with it is refused, and its logins end. It cannot be brought back."
                .to_owned(),
        }],
        action: format!("/ui/tokens/{name}/revoke"),
        yes: "Revoke the token".to_owned(),
        back: "/ui/users".to_owned(),
        reason: false,
        risk: true,
    };
    let shown = question.page(&visit).await;
    visit.respond(shown).await
}

/// Revokes a token.
pub(super) async fn revoke(visit: Visit, Path(name): Path<String>, form: Form) -> Response {
    let path = format!("/api/v1/tokens/{}", encoded(&name));
    done(&visit, Method::DELETE, &path, None, &form, "/ui/users?done=token").await
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

/// Shows the audit log.
pub(super) async fn audit(visit: Visit) -> Response {
    let shown = async {
        let cursor = visit.query.get("cursor");
        let from = if cursor.is_empty() { String::new() } else { format!("&cursor={}", encoded(cursor)) };
        let page: AuditPage = visit.get(&format!("/api/v1/audit?limit={PAGE}{from}")).await?;
        html(&TableView::audit(visit.frame("Audit log", Tab::Settings).await?, &page))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows the registry.
pub(super) async fn registry(visit: Visit) -> Response {
    let shown = async {
        let (status, repositories) = tokio::try_join!(
            visit.get::<Registry>("/api/v1/registry"),
            visit.get::<Repositories>("/api/v1/registry/repositories"),
        )?;
        let frame = visit.frame("Registry", Tab::Registry).await?;
        html(&TableView::registry(frame, &status, &repositories, visit.host()))
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
            0 | 1 => {
                (JobPage { jobs: Vec::new(), next: None }, ServerPage { servers: Vec::new(), next: None })
            }
            _ => {
                let (jobs, servers) = (
                    format!("/api/v1/jobs?limit={FOUND}&q={text}"),
                    format!("/api/v1/servers?limit={FOUND}&q={text}"),
                );
                tokio::try_join!(visit.get::<JobPage>(&jobs), visit.get::<ServerPage>(&servers))?
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
            effects: vec![Effect { state: State::Held, text: text.to_owned() }],
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
    effects: Vec<Effect>,
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
