//! The form of a new job: a preview by a dry run, then the job.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use ui::data::{DryRunJson, ErrorDetail};
use ui::view::{JobForm, NewJobView, Tab};
use uuid::Uuid;

use super::form::Form;
use super::recipe_text;
use super::refusal::Refusal;
use super::servers::labels;
use super::visit::{Change, Visit, html};

/// The recipe that the empty form shows.
pub(super) const EXAMPLE: &str = include_str!("../../schemas/recipe-linux.example.json");

/// Shows the form.
pub(super) async fn new(visit: Visit) -> Response {
    let shown = async {
        let form = JobForm {
            server: visit.query.get("server").to_owned(),
            recipe: EXAMPLE.to_owned(),
            priority: "0".to_owned(),
            labels: String::new(),
            key: Uuid::now_v7().to_string(),
        };
        html(&NewJobView::of(visit.frame("New job", Tab::Jobs).await?, form, Vec::new(), None))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Previews or creates the job.
pub(super) async fn create(visit: Visit, form: Form) -> Response {
    let done = submit(&visit, &form).await;
    visit.respond(done).await
}

/// The id of a job that was created or found.
#[derive(Deserialize)]
struct Created {
    job_id: String,
}

async fn submit(visit: &Visit, form: &Form) -> Result<Response, Refusal> {
    let repaired = recipe_text::with_repair(form);
    let form = repaired.as_ref().unwrap_or(form);
    let body = match order(form) {
        Ok(body) => body,
        Err(details) => return again(visit, form, form.get("key"), details, None).await,
    };
    let preview = form.get("do") != "create";
    let path = if preview { "/api/v1/jobs?dry_run=true" } else { "/api/v1/jobs" };
    let change = Change { method: Method::POST, path, body: Some(body), form };
    match visit.change(change).await {
        Ok(response) if preview => {
            let plan: DryRunJson =
                serde_json::from_slice(&response.body).map_err(|error| Refusal::internal(&error))?;
            again(visit, form, form.get("key"), Vec::new(), Some(&plan)).await
        }
        Ok(response) => {
            let created: Created =
                serde_json::from_slice(&response.body).map_err(|error| Refusal::internal(&error))?;
            Ok(Redirect::to(&format!("/ui/jobs/{}?done=created", created.job_id)).into_response())
        }
        Err(refusal) if refusal.has_used_key() => {
            let key = Uuid::now_v7().to_string();
            again(visit, form, &key, vec![refusal.sent_before("job")], None).await
        }
        Err(refusal) if refusal.body.error == "unauthorized" || refusal.body.error == "csrf" => {
            again(visit, form, form.get("key"), visit.wrong(refusal)?, None).await
        }
        Err(refusal) if refusal.status.is_client_error() => {
            again(visit, form, form.get("key"), refusal.entries(), None).await
        }
        Err(refusal) => Err(refusal),
    }
}

/// The body of the request that a form asks for; a problem names its place as the API does.
fn order(form: &Form) -> Result<Value, Vec<ErrorDetail>> {
    let recipe = recipe_text::parsed(form)?;
    let priority = match form.get("priority").trim() {
        "" => 0,
        text => {
            text.parse::<i32>().map_err(|_| vec![ErrorDetail::new("/priority", "is not a whole number")])?
        }
    };
    let labels = labels(form.get("labels")).map_err(|detail| vec![detail])?;
    Ok(json!({
        "server_serial": form.get("server").trim(), "recipe": recipe, "priority": priority, "labels": labels,
    }))
}

/// The form of a new job again, with the key of its next request, and with the problems or the plan of the dry run.
async fn again(
    visit: &Visit,
    form: &Form,
    key: &str,
    refused: Vec<ErrorDetail>,
    plan: Option<&DryRunJson>,
) -> Result<Response, Refusal> {
    let text = |name: &str| form.get(name).to_owned();
    let fields = JobForm {
        server: text("server"),
        recipe: text("recipe"),
        priority: text("priority"),
        labels: text("labels"),
        key: key.to_owned(),
    };
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let refused = recipe_text::with_lines(&fields.recipe, refused).await;
    let view = NewJobView::of(visit.frame("New job", Tab::Jobs).await?, fields, refused, plan);
    Ok((status, html(&view)?).into_response())
}
