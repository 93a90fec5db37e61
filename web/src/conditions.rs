//! Conditions of a server: power cycles, restarts of the BMC, inventories and firmware installations, each previewed first; and
//! diagnostics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Value, json};
use ui::State;
use ui::data::{ConditionJson, ConditionPreview, FirmwareSetPage, ServerJson};
use ui::view::{FormView, Tab};
use uuid::Uuid;

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The time for which a page waits for diagnostics. They continue without it.
const DIAGNOSTICS_WAIT: Duration = Duration::from_secs(20);

/// Shows what can be requested, or what a request with `kind` would do.
pub(super) async fn ask(visit: Visit, Path(serial): Path<String>) -> Response {
    let (kind, set) = (visit.query.get("kind"), visit.query.get("set"));
    let shown = match kind {
        "" => question(&visit, &serial, "inventoryOOB", set, false).await,
        kind => question(&visit, &serial, kind, set, true).await,
    };
    visit.respond(shown).await
}

async fn question(
    visit: &Visit,
    serial: &str,
    kind: &str,
    set: &str,
    previewed: bool,
) -> Result<Response, Refusal> {
    let segment = encoded(serial);
    let server: ServerJson = visit.get(&format!("/api/v1/servers/{segment}")).await?;
    let frame = visit.frame(server.serial.clone(), Tab::Servers).await?;
    // A controller without a registry has no sets; the other kinds need none.
    let sets: Vec<String> = match visit.get::<FirmwareSetPage>("/api/v1/firmware-sets").await {
        Ok(page) => page.sets.into_iter().map(|set| set.name).collect(),
        Err(_none) => Vec::new(),
    };
    let choice = (set, sets.as_slice());
    if !previewed {
        return html(&FormView::condition(frame, &server.serial, kind, choice, None, ""));
    }
    let path = format!("/api/v1/servers/{segment}/condition");
    match visit.preview::<ConditionPreview>(&path, request(kind, set)).await {
        Ok(preview) => {
            let key = Uuid::now_v7().to_string();
            html(&FormView::condition(frame, &server.serial, kind, choice, Some(&preview), &key))
        }
        Err(refusal) => {
            let details = refusal.details()?;
            html(&FormView::condition(frame, &server.serial, kind, choice, None, "").refused(details))
        }
    }
}

fn request(kind: &str, set: &str) -> Value {
    let mut body = json!({ "kind": kind });
    if kind == "firmwareInstall" && !set.is_empty() {
        body["parameters"] = json!({ "firmware_set": set });
    }
    body
}

/// Previews or creates a condition.
pub(super) async fn submit(visit: Visit, Path(serial): Path<String>, form: Form) -> Response {
    let done = async {
        let (kind, set) = (form.get("kind"), form.get("set"));
        if form.get("do") != "yes" {
            let query = format!("kind={}&set={}", encoded(kind), encoded(set));
            let place = format!("/ui/servers/{}/condition?{query}", encoded(&serial));
            return Ok(Redirect::to(&place).into_response());
        }
        let path = format!("/api/v1/servers/{}/condition", encoded(&serial));
        let change =
            Change { method: Method::POST, path: &path, body: Some(request(kind, set)), form: &form };
        let made: ConditionJson = visit.change(change).await?.read()?;
        Ok(Redirect::to(&format!("/ui/jobs/{}?done=condition", encoded(&made.id))).into_response())
    };
    let done = done.await;
    visit.respond(done).await
}

/// Asks before diagnostics.
pub(super) async fn ask_diagnostics(visit: Visit, Path(serial): Path<String>) -> Response {
    let shown = async {
        let segment = encoded(&serial);
        let server: ServerJson = visit.get(&format!("/api/v1/servers/{segment}")).await?;
        let frame = visit.frame("Diagnose", Tab::Servers).await?;
        let (path, back) = (format!("/ui/servers/{segment}/diagnostics"), format!("/ui/servers/{segment}"));
        html(
            &FormView::new(frame, format!("Diagnose the BMC of {}?", server.serial), path, back.clone())
                .below(back, server.serial)
                .effect(
                    State::Working,
                    "Everything that a job needs of the BMC is tried under the lock of the server.",
                )
                .effect(
                    State::Waiting,
                    "A small image is inserted and ejected again; the host is not touched.",
                )
                .yes("Diagnose"),
        )
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Runs diagnostics. Those that take longer than the page waits continue, and so does their request: it is audited at its end.
pub(super) async fn diagnose(visit: Visit, Path(serial): Path<String>, form: Form) -> Response {
    let visit = Arc::new(visit);
    let segment = encoded(&serial);
    let request = tokio::spawn({
        let (visit, path) = (Arc::clone(&visit), format!("/api/v1/servers/{segment}/diagnostics"));
        async move {
            let change = Change { method: Method::POST, path: &path, body: None, form: &form };
            visit.change(change).await.map(|_| "diagnosed")
        }
    });
    let done = match tokio::time::timeout(DIAGNOSTICS_WAIT, request).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(stopped)) => Err(Refusal::internal(&stopped)),
        Err(_elapsed) => Ok("diagnosing"),
    };
    let place = |done| Redirect::to(&format!("/ui/servers/{segment}?done={done}")).into_response();
    visit.respond(done.map(place)).await
}
