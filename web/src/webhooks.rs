//! Outgoing webhooks: the list, one with its deliveries, a new one, and the verbs on one.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Value, json};
use ui::data::{DeadLetterPage, UserPage, WebhookJson, WebhookPage, WebhookTest};
use ui::view::{FormView, Tab, TableView, WebhookForm};

use super::form::Form;
use super::refusal::Refusal;
use super::servers::labels;
use super::visit::{Change, Visit, encoded, html};

const PATH: &str = "/api/v1/webhooks";
/// The dead letters that a page shows: the oldest.
const LETTERS: u32 = 100;

/// Lists webhooks.
pub(super) async fn list(visit: Visit) -> Response {
    let shown = async {
        let page: WebhookPage = visit.get(PATH).await?;
        html(&TableView::webhooks(visit.frame("Webhooks", Tab::Events).await?, &page))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows one webhook.
pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    let shown = async {
        let path = format!("{PATH}/{}", encoded(&id));
        let letters = format!("{path}/dead-letters?limit={LETTERS}");
        let (webhook, dead) =
            tokio::try_join!(visit.get::<WebhookJson>(&path), visit.get::<DeadLetterPage>(&letters))?;
        html(&TableView::webhook(visit.frame(webhook.target.clone(), Tab::Events).await?, &webhook, &dead))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows the form of a new webhook.
pub(super) async fn new(visit: Visit) -> Response {
    let shown = async {
        // Only an administrator makes a webhook: the list of users refuses every other role.
        let _users: UserPage = visit.get("/api/v1/users").await?;
        let frame = visit.frame("New webhook", Tab::Events).await?;
        html(&FormView::new_webhook(frame, &WebhookForm::default(), Vec::new()))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Makes a webhook. What was wrong is shown in the form again, without URL and secret.
pub(super) async fn create(visit: Visit, sent: Form) -> Response {
    let done = async {
        let made = match request(&sent) {
            Ok(body) => {
                visit.change(Change { method: Method::POST, path: PATH, body: Some(body), form: &sent }).await
            }
            Err(refusal) => Err(refusal),
        };
        match made {
            Ok(response) => {
                let webhook: WebhookJson = response.read()?;
                Ok(Redirect::to(&format!("/ui/webhooks/{}?done=webhook", encoded(&webhook.webhook_id)))
                    .into_response())
            }
            Err(refusal) => {
                let details = refusal.details()?;
                let text = |name: &str| sent.get(name).to_owned();
                let entered = WebhookForm { types: text("types"), labels: text("labels") };
                let frame = visit.frame("New webhook", Tab::Events).await?;
                Ok((StatusCode::BAD_REQUEST, html(&FormView::new_webhook(frame, &entered, details))?)
                    .into_response())
            }
        }
    };
    let done = done.await;
    visit.respond(done).await
}

fn request(sent: &Form) -> Result<Value, Refusal> {
    let labels = labels(sent.get("labels")).map_err(|detail| Refusal::field("labels", &detail.message))?;
    let types: Vec<&str> = sent.get("types").split_whitespace().collect();
    Ok(
        json!({ "url": sent.get("url").trim(), "secret": sent.get("secret"), "types": types, "labels": labels }),
    )
}

/// The position of the event of one dead letter; `None` for all of them.
fn seq(text: &str) -> Result<Option<i64>, Refusal> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Refusal::field("seq", "is the number of an event")),
    }
}

/// Asks before a verb.
pub(super) async fn ask(visit: Visit, Path((id, verb)): Path<(String, String)>) -> Response {
    let shown = async {
        let webhook: WebhookJson = visit.get(&format!("{PATH}/{}", encoded(&id))).await?;
        let seq = seq(visit.query.get("seq"))?;
        let frame = visit.frame(webhook.target.clone(), Tab::Events).await?;
        html(&FormView::webhook_verb(frame, &webhook, &verb, seq).ok_or_else(Refusal::unknown_page)?)
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Carries out a verb.
pub(super) async fn act(visit: Visit, Path((id, verb)): Path<(String, String)>, sent: Form) -> Response {
    let done = async {
        let path = format!("{PATH}/{}", encoded(&id));
        let page = format!("/ui/webhooks/{}", encoded(&id));
        let (method, path, body, place) = match verb.as_str() {
            "disable" => {
                let body = json!({ "reason": sent.get("reason") });
                (Method::POST, format!("{path}/disable"), Some(body), format!("{page}?done=webhook-disabled"))
            }
            "enable" => {
                (Method::POST, format!("{path}/enable"), None, format!("{page}?done=webhook-enabled"))
            }
            "delete" => (Method::DELETE, path, None, "/ui/webhooks?done=webhook-deleted".to_owned()),
            "test" => {
                let path = format!("{path}/test");
                let sent = visit
                    .change(Change { method: Method::POST, path: &path, body: None, form: &sent })
                    .await?;
                let tested: WebhookTest = sent.read()?;
                let webhook: WebhookJson = visit.get(&format!("{PATH}/{}", encoded(&id))).await?;
                let frame = visit.frame(webhook.target.clone(), Tab::Events).await?;
                return html(&TableView::webhook_test(frame, &webhook, &tested));
            }
            "redeliver" => {
                let body = json!({ "seq": seq(sent.get("seq"))? });
                let path = format!("{path}/dead-letters/redeliver");
                (Method::POST, path, Some(body), format!("{page}?done=redeliver"))
            }
            _ => return Err(Refusal::unknown_page()),
        };
        visit.change(Change { method, path: &path, body, form: &sent }).await?;
        Ok(Redirect::to(&place).into_response())
    };
    let done = done.await;
    visit.respond(done).await
}
