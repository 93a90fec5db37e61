//! Batches: the list, one with the causes of its failures, its verbs, and a new one.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use ui::State;
use ui::data::{
    BatchDetail, BatchJson, BatchPageJson, BatchRow, CreatedBatchJson, DryRunJson, ErrorBody, ErrorDetail,
    Me, OverviewJson,
};
use ui::view::{BatchForm, BatchPreview, BatchView, FormView, Tab, TableView};
use uuid::Uuid;

use super::form::Form;
use super::new_job::EXAMPLE;
use super::recipe_text;
use super::refusal::Refusal;
use super::selection::{add_limits, limits, serials};
use super::servers::labels;
use super::visit::{Change, Visit, encoded, html};

/// Batches on one page.
const PAGE: i64 = 50;
/// The maximum of servers of a batch that a page makes.
const MAX_SERVERS: usize = 5000;
/// The number of rows that a preview tries: each is a dry run of a job.
const TRIED: usize = 20;

/// Lists batches, the newest first.
pub(super) async fn list(visit: Visit) -> Response {
    let shown = async {
        let cursor = match visit.query.get("cursor") {
            "" => String::new(),
            cursor => format!("&cursor={}", encoded(cursor)),
        };
        let page: BatchPageJson = visit.get(&format!("/api/v1/batches?limit={PAGE}{cursor}")).await?;
        html(&TableView::batches(visit.frame("Batches", Tab::Jobs).await?, &page))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows one batch.
pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    let shown = async {
        let me: Me = visit.get("/api/v1/me").await?;
        let batch: BatchDetail = visit.get(&format!("/api/v1/batches/{}", encoded(&id))).await?;
        let overview: Option<OverviewJson> = visit.get("/api/v1/overview").await.ok();
        let mut frame = visit.framed("Batch".to_owned(), Tab::Jobs, &me, overview.as_ref());
        let open = overview.filter(|_| !batch.batch.complete);
        frame.stream = open.map(|overview| format!("/api/v1/events?after={}", overview.last_seq));
        html(&BatchView::of(frame, &batch))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Asks before a verb of a batch: `cancel`, `continue` or `retry`.
pub(super) async fn ask(visit: Visit, Path((id, verb)): Path<(String, String)>) -> Response {
    let shown = question(&visit, &encoded(&id), &verb, visit.query.get("cause")).await;
    visit.respond(shown).await
}

async fn question(visit: &Visit, id: &str, verb: &str, cause: &str) -> Result<Response, Refusal> {
    html(&asked(visit, id, verb, cause).await?)
}

async fn asked(visit: &Visit, id: &str, verb: &str, cause: &str) -> Result<FormView, Refusal> {
    let detail: BatchDetail = visit.get(&format!("/api/v1/batches/{id}")).await?;
    let frame = visit.frame("Batch", Tab::Jobs).await?;
    let (path, back) = (format!("/ui/batches/{id}/{verb}"), format!("/ui/batches/{id}"));
    let progress = &detail.batch.progress;
    let view = match verb {
        "cancel" => return Ok(FormView::cancel_batch(frame, &detail.batch)),
        "continue" => FormView::new(frame, "Continue the batch?", path, back.clone())
            .effect(
                State::Working,
                format!("{} that have not begun start as permits become free.", progress.queued),
            )
            .effect(State::Queued, "Failures are counted from 0 again.")
            .yes("Continue the batch"),
        "retry" => return Ok(FormView::retry_batch(frame, &detail, cause, &Uuid::now_v7().to_string())),
        _ => return Err(Refusal::unknown_page()),
    };
    Ok(view.below(back, "Batch"))
}

/// Carries a verb out.
pub(super) async fn act(visit: Visit, Path((id, verb)): Path<(String, String)>, form: Form) -> Response {
    let id = encoded(&id);
    let done = match change(&visit, &id, &verb, &form).await {
        // The jobs are others than those of the question: it is asked again.
        Err(refusal) if refusal.status == StatusCode::PRECONDITION_FAILED => {
            asked_again(&visit, &id, &verb, &form, &refusal).await
        }
        done => done,
    };
    visit.respond(done).await
}

async fn asked_again(
    visit: &Visit,
    id: &str,
    verb: &str,
    form: &Form,
    refusal: &Refusal,
) -> Result<Response, Refusal> {
    let view = asked(visit, id, verb, form.get("cause")).await?;
    let page = html(&view.note(State::Failed, refusal.text()))?;
    Ok((refusal.status, page).into_response())
}

async fn change(visit: &Visit, id: &str, verb: &str, form: &Form) -> Result<Response, Refusal> {
    let body = match verb {
        "cancel" => {
            let number = |name: &str| {
                form.get(name).parse::<u64>().map_err(|_| Refusal::field(name, "is a number of the question"))
            };
            let (queued, running) = (number("expected_queued")?, number("expected_running")?);
            json!({
                "reason": form.get("reason"), "all": form.get("which") == "all", "expected_queued": queued,
                "expected_running": running,
            })
        }
        "continue" => json!({}),
        "retry" => {
            let mut body = json!({});
            if !form.get("cause").is_empty() {
                body["cause"] = json!(form.get("cause"));
            }
            let expected: u64 =
                form.get("expected").parse().map_err(|_| Refusal::field("expected", "is a number"))?;
            body["expected"] = json!(expected);
            body["selection"] = json!(form.get("selection"));
            add_limits(&mut body, form)?;
            body
        }
        _ => return Err(Refusal::unknown_page()),
    };
    let path = format!("/api/v1/batches/{id}/{verb}");
    let response = visit.change(Change { method: Method::POST, path: &path, body: Some(body), form }).await?;
    let (shown, done) = match verb {
        "retry" => (response.read::<CreatedBatchJson>()?.batch_id, "batch-retry"),
        "continue" => (response.read::<BatchJson>()?.batch_id, "batch-continue"),
        _ => (response.read::<BatchJson>()?.batch_id, "batch"),
    };
    Ok(Redirect::to(&format!("/ui/batches/{}?done={done}", encoded(&shown))).into_response())
}

/// Shows the form of a new batch.
pub(super) async fn new(visit: Visit) -> Response {
    let shown = async {
        let entered = BatchForm {
            filter: visit.query.get("q").to_owned(),
            recipe: EXAMPLE.to_owned(),
            key: Uuid::now_v7().to_string(),
            ..BatchForm::default()
        };
        form_again(&visit, &entered, Vec::new(), None).await
    };
    let shown = shown.await;
    visit.respond(shown).await
}

async fn form_again(
    visit: &Visit,
    entered: &BatchForm,
    refused: Vec<ErrorDetail>,
    preview: Option<&BatchPreview>,
) -> Result<Response, Refusal> {
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let refused = recipe_text::with_lines(&entered.recipe, refused).await;
    let view = FormView::new_batch(visit.frame("New batch", Tab::Jobs).await?, entered, refused, preview);
    Ok((status, html(&view)?).into_response())
}

/// Previews or creates a batch.
pub(super) async fn create(visit: Visit, form: Form) -> Response {
    let done = submit(&visit, &form).await;
    visit.respond(done).await
}

async fn submit(visit: &Visit, form: &Form) -> Result<Response, Refusal> {
    let repaired = recipe_text::with_repair(form);
    let form = repaired.as_ref().unwrap_or(form);
    let text = |name: &str| form.get(name).to_owned();
    let mut entered = BatchForm {
        filter: text("q"),
        serials: text("serials"),
        recipe: text("recipe"),
        limits: limits(form),
        labels: text("labels"),
        key: text("key"),
    };
    let done = async {
        let (body, serials) = order(visit, form).await?;
        if form.get("do") != "yes" {
            let preview = tried(visit, &body, &serials).await?;
            return form_again(visit, &entered, Vec::new(), Some(&preview)).await;
        }
        if form.get("selection") != model::selection_digest(&serials) {
            let count = serials.len();
            let (field, why) = match form.get("q").trim() {
                "" => ("serials", format!("names {count} servers, not those of a preview; preview it again")),
                _ => ("q", format!("selects {count} servers now, not those of a preview; preview it again")),
            };
            return Err(Refusal::field(field, &why));
        }
        let change = Change { method: Method::POST, path: "/api/v1/batches", body: Some(body), form };
        let created: CreatedBatchJson = visit.change(change).await?.read()?;
        let place = format!("/ui/batches/{}?done=batch-created", encoded(&created.batch_id));
        Ok(Redirect::to(&place).into_response())
    };
    match done.await {
        Err(refusal) if refusal.has_used_key() => {
            entered.key = Uuid::now_v7().to_string();
            form_again(visit, &entered, vec![refusal.sent_before("batch")], None).await
        }
        Err(refusal) => form_again(visit, &entered, visit.wrong(refusal)?, None).await,
        done => done,
    }
}

/// The body of the request that a form asks for, and the serial numbers of its servers.
async fn order(visit: &Visit, form: &Form) -> Result<(Value, Vec<String>), Refusal> {
    let recipe = recipe_text::parsed(form).map_err(Refusal::fields)?;
    let labels = labels(form.get("labels")).map_err(|detail| Refusal::field("labels", &detail.message))?;
    let filter = form.get("q").trim();
    let serials = match filter {
        "" => {
            let named: Vec<String> =
                form.get("serials").split_whitespace().take(MAX_SERVERS + 1).map(str::to_owned).collect();
            if named.len() > MAX_SERVERS {
                let why = format!("names more than {MAX_SERVERS} servers; make several batches");
                return Err(Refusal::field("serials", &why));
            }
            named
        }
        filter => {
            let (serials, more) = serials(visit, filter, MAX_SERVERS).await?;
            if more {
                let why = format!("selects more than {MAX_SERVERS} servers; narrow it");
                return Err(Refusal::field("q", &why));
            }
            serials
        }
    };
    if serials.is_empty() {
        return Err(Refusal::field("q", "selects no server; give a filter or serial numbers"));
    }
    let rows: Vec<Value> = serials.iter().map(|serial| json!({ "server_serial": serial })).collect();
    let mut body = json!({ "rows": rows, "recipe": recipe, "labels": labels });
    add_limits(&mut body, form)?;
    Ok((body, serials))
}

/// Tries the first rows as dry runs of jobs.
async fn tried(visit: &Visit, body: &Value, serials: &[String]) -> Result<BatchPreview, Refusal> {
    let attempt = async |serial: &String| {
        let job = json!({ "server_serial": serial, "recipe": body["recipe"], "labels": body["labels"] });
        match visit.preview::<DryRunJson>("/api/v1/jobs", job).await {
            Ok(plan) => Ok(row_of(serial, plan)),
            // What is wrong with the recipe is wrong for all servers.
            Err(refusal) if refusal.status == StatusCode::FORBIDDEN || refusal.is_of_recipe() => Err(refusal),
            Err(refusal) => Ok(BatchRow {
                server_serial: Some(serial.clone()),
                result: "refuse".to_owned(),
                error: Some(refusal.body),
            }),
        }
    };
    let rows: Vec<Result<BatchRow, Refusal>> =
        stream::iter(&serials[..serials.len().min(TRIED)]).map(attempt).buffered(4).collect().await;
    let selection = model::selection_digest(serials);
    let tried = rows.into_iter().collect::<Result<_, _>>()?;
    Ok(BatchPreview { servers: serials.len() as u64, selection, tried })
}

fn row_of(serial: &str, plan: DryRunJson) -> BatchRow {
    let (result, error) = match (plan.refused, plan.blocked_by) {
        (Some(refused), _) => ("refuse", Some(refused.error)),
        (None, blocked) if !blocked.is_empty() => {
            ("fails", Some(ErrorBody { message: blocked.join("; "), ..ErrorBody::default() }))
        }
        (None, _) => ("accept", None),
    };
    BatchRow { server_serial: Some(serial.to_owned()), result: result.to_owned(), error }
}
