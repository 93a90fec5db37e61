//! One server: its page, the probe of its BMC, its maintenance.

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;
use ui::State;
use ui::data::{
    ConditionList, ExplanationJson, FirmwareSetJson, InventoryJson, JobJson, JobPageJson, KeptCard,
    LastDiagnostics, ServerJson,
};
use ui::view::{Ask, AskEffect, ServerPageView, ServerParts, Tab};

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The newest jobs that the page of a server shows.
const JOBS: u32 = 10;
/// The newest open jobs of a server that are looked at.
const OPEN_JOBS: u32 = 100;

/// Shows one server.
pub(super) async fn show(visit: Visit, Path(serial): Path<String>) -> Response {
    let shown = server(&visit, &encoded(&serial), None).await;
    visit.respond(shown).await
}

/// The page of a server; `refused` is the reason why its BMC could not be read now.
async fn server(visit: &Visit, serial: &str, refused: Option<String>) -> Result<Response, Refusal> {
    let path = format!("/api/v1/servers/{serial}");
    let (jobs, card) = (format!("/api/v1/jobs?server_serial={serial}&limit={JOBS}"), format!("{path}/card"));
    // Newer jobs may have ended before the one that the server is busy with.
    let open = format!("/api/v1/jobs?server_serial={serial}&limit={OPEN_JOBS}&filter=-condition%3Aended");
    let (inventory, conditions, diagnostics) =
        (format!("{path}/inventory"), format!("{path}/conditions"), format!("{path}/diagnostics"));
    let server: ServerJson = visit.get(&path).await?;
    let (jobs, open, card, inventory, conditions, diagnostics) = tokio::try_join!(
        visit.get::<JobPageJson>(&jobs),
        visit.get::<JobPageJson>(&open),
        visit.get::<KeptCard>(&card),
        visit.get_if_permitted::<InventoryJson>(&inventory),
        visit.get_if_permitted::<ConditionList>(&conditions),
        visit.get_if_permitted::<LastDiagnostics>(&diagnostics),
    )?;
    let fitting = fitting(visit, &inventory).await;
    let open = ServerParts::next(&open.jobs).cloned();
    let begins = why_not_begun(visit, open.as_ref()).await;
    let parts = ServerParts { inventory, conditions, diagnostics, fitting, open, begins, refused };
    let mut frame = visit.live_frame(server.serial.clone(), Tab::Servers).await?;
    if parts.refused.is_some() {
        // The page is the response to a form: its address cannot be read again.
        (frame.stream, frame.path) = (None, format!("/ui/servers/{serial}"));
    }
    html(&ServerPageView::of(frame, &server, &jobs, &card, &parts))
}

/// The name of the firmware set that fits a server by its inventory, or the reason why none does.
async fn fitting(visit: &Visit, inventory: &InventoryJson) -> Option<Result<String, String>> {
    let system = &inventory.out_of_band.as_ref()?["system"];
    let (vendor, model) = (system["manufacturer"].as_str()?, system["model"].as_str()?);
    let path = format!("/api/v1/firmware-match?vendor={}&model={}", encoded(vendor), encoded(model));
    match visit.get::<FirmwareSetJson>(&path).await {
        Ok(set) => Some(Ok(set.name)),
        Err(refusal) if refusal.status.is_client_error() => Some(Err(refusal.text())),
        Err(_unknown) => None,
    }
}

/// The reason why the open job of a server has not begun; `None` for a job that has begun.
async fn why_not_begun(visit: &Visit, open: Option<&JobJson>) -> Option<String> {
    let open = open.filter(|job| job.status == "queued")?;
    let path = format!("/api/v1/jobs/{}/explain", encoded(&open.job_id));
    visit.get::<ExplanationJson>(&path).await.ok().map(|why| why.summary)
}

/// Reads the BMC of a server. The error of a BMC that cannot be read is a note on the page of the server.
pub(super) async fn probe(visit: Visit, Path(serial): Path<String>, form: Form) -> Response {
    let done = match change(&visit, &serial, (Method::POST, "probe", "probed"), false, &form).await {
        Err(refusal) if refusal.body.error == "bmc" => {
            let page = server(&visit, &encoded(&serial), Some(refusal.text())).await;
            page.map(|page| (refusal.status, page).into_response())
        }
        done => done,
    };
    visit.respond(done).await
}

/// Asks before a maintenance.
pub(super) async fn ask_maintenance(visit: Visit, Path(serial): Path<String>) -> Response {
    let effects = vec![
        AskEffect {
            state: State::Held,
            text: "No job starts on the server until the maintenance ends.".to_owned(),
        },
        AskEffect { state: State::Working, text: "A job that runs continues to its end.".to_owned() },
    ];
    let shown = question(&visit, &serial, ("Begin maintenance", "maintenance", true), effects).await;
    visit.respond(shown).await
}

/// Asks before the end of a maintenance.
pub(super) async fn ask_end(visit: Visit, Path(serial): Path<String>) -> Response {
    let effects =
        vec![AskEffect { state: State::Working, text: "Jobs that wait for it start at once.".to_owned() }];
    let shown = question(&visit, &serial, ("End maintenance", "maintenance/end", false), effects).await;
    visit.respond(shown).await
}

async fn question(
    visit: &Visit,
    serial: &str,
    (words, path, reason): (&str, &str, bool),
    effects: Vec<AskEffect>,
) -> Result<Response, Refusal> {
    let segment = encoded(serial);
    let server: ServerJson = visit.get(&format!("/api/v1/servers/{segment}")).await?;
    let f = visit.frame(format!("{words}?"), Tab::Servers).await?;
    html(&Ask {
        f,
        question: format!("{words} of {}?", server.serial),
        intro: String::new(),
        effects,
        action: format!("/ui/servers/{segment}/{path}"),
        key: String::new(),
        revision: String::new(),
        reason,
        yes: words.to_owned(),
        no: "Not now",
        back: format!("/ui/servers/{segment}"),
        risk: false,
    })
}

/// Begins a maintenance.
pub(super) async fn begin_maintenance(visit: Visit, Path(serial): Path<String>, form: Form) -> Response {
    let done = change(&visit, &serial, (Method::POST, "maintenance", "maintenance"), true, &form).await;
    visit.respond(done).await
}

/// Ends a maintenance.
pub(super) async fn end_maintenance(visit: Visit, Path(serial): Path<String>, form: Form) -> Response {
    let done =
        change(&visit, &serial, (Method::DELETE, "maintenance", "maintenance-end"), false, &form).await;
    visit.respond(done).await
}

async fn change(
    visit: &Visit,
    serial: &str,
    (method, action, done): (Method, &str, &str),
    reason: bool,
    form: &Form,
) -> Result<Response, Refusal> {
    let segment = encoded(serial);
    let path = format!("/api/v1/servers/{segment}/{action}");
    let body = reason.then(|| json!({ "reason": form.get("reason") }));
    visit.change(Change { method, path: &path, body, form }).await?;
    Ok(Redirect::to(&format!("/ui/servers/{segment}?done={done}")).into_response())
}
