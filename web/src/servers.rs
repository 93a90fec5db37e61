//! The list of servers, and the form that registers one.

use std::collections::BTreeSet;

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Map, Value, json};
use ui::data::{ErrorDetail, ServerPage};
use ui::view::{NewServerView, ServersView, Tab};

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The maximum of labels of a form: more are refused by the API.
const MAX_LABELS: usize = 32;
/// The longest label of a form, key and value together.
const MAX_LABEL: usize = 257;
/// Servers on one page.
const PAGE: u32 = 50;

/// Lists servers.
pub(super) async fn list(visit: Visit) -> Response {
    let shown = servers(&visit).await;
    visit.respond(shown).await
}

async fn servers(visit: &Visit) -> Result<Response, Refusal> {
    let query = visit.query.get("q").trim();
    let cursor = visit.query.get("cursor");
    let path = |query: &str| {
        let mut path = format!("/api/v1/servers?limit={PAGE}");
        for (name, value) in [("filter", query), ("cursor", cursor)] {
            if !value.is_empty() {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        path
    };
    let (mut page, refused) = match visit.get::<ServerPage>(&path(query)).await {
        Ok(page) => (page, None),
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            (ServerPage { servers: Vec::new(), next: None, busy: BTreeSet::new() }, Some(refusal.text()))
        }
        Err(refusal) => return Err(refusal),
    };
    if !page.servers.is_empty() {
        // Of one page at most a page is in use, so the first ones after its cursor are enough. A filter with another state has none.
        let busy = visit.get::<ServerPage>(&path(format!("state:busy {query}").trim())).await;
        page.busy = busy
            .map(|busy| busy.servers.into_iter().map(|server| server.serial).collect())
            .unwrap_or_default();
    }
    let frame = visit.live_frame("Servers", Tab::Servers).await?;
    html(&ServersView::of(frame, query, &page, cursor.is_empty(), refused))
}

/// Shows the form that registers a server.
pub(super) async fn new(visit: Visit) -> Response {
    let shown = async {
        let frame = visit.frame("Add a server", Tab::Servers).await?;
        html(&NewServerView::empty(frame))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Registers a server. What was wrong is shown in the form again, without the password.
pub(super) async fn create(visit: Visit, form: Form) -> Response {
    let done = register(&visit, &form).await;
    visit.respond(done).await
}

async fn register(visit: &Visit, form: &Form) -> Result<Response, Refusal> {
    let serial = form.get("serial").trim();
    let mut registered = false;
    let (status, refused) = match labels(form.get("labels")) {
        Err(detail) => (StatusCode::BAD_REQUEST, vec![detail]),
        Ok(labels) => {
            let body = json!({
                "serial": serial, "bmc_address": form.get("bmc_address").trim(),
                "bmc_username": form.get("bmc_username"), "bmc_password": form.get("bmc_password"), "labels": labels,
            });
            let change = Change { method: Method::POST, path: "/api/v1/servers", body: Some(body), form };
            match visit.change(change).await {
                Ok(_) => {
                    let path = format!("/ui/servers/{}?done=server", encoded(serial));
                    return Ok(Redirect::to(&path).into_response());
                }
                Err(refusal) if refusal.body.error == "conflict.server" => {
                    registered = true;
                    let message =
                        format!("the server {serial} is registered with other values; it was left as it is");
                    (refusal.status, vec![ErrorDetail::new("/serial", message)])
                }
                Err(refusal) => (refusal.status, visit.wrong(refusal)?),
            }
        }
    };
    let text = |name: &str| form.get(name).to_owned();
    let view = NewServerView {
        f: visit.frame("Add a server", Tab::Servers).await?,
        serial: serial.to_owned(),
        bmc_address: text("bmc_address"),
        bmc_username: text("bmc_username"),
        labels: text("labels"),
        refused,
        registered,
    };
    Ok((status, html(&view)?).into_response())
}

/// Labels as `key=value` words, at most [`MAX_LABELS`] of at most [`MAX_LABEL`] bytes.
pub(super) fn labels(text: &str) -> Result<Map<String, Value>, ErrorDetail> {
    let mut words = text.split_whitespace();
    if words.nth(MAX_LABELS).is_some() || text.split_whitespace().any(|word| word.len() > MAX_LABEL) {
        let message = format!("at most {MAX_LABELS} labels of at most {MAX_LABEL} bytes are read");
        return Err(ErrorDetail::new("/labels", message));
    }
    let pair = |word: &str| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), Value::from(value))),
        _ => Err(ErrorDetail::new(
            "/labels",
            format!("labels are written KEY=VALUE, divided by blanks; {word:?} is not"),
        )),
    };
    text.split_whitespace().map(pair).collect()
}
