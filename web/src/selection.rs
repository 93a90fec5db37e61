//! All jobs or all servers of a filter at once: a preview with their number, then the change.
//!
//! Invariant: a confirmation changes what its preview selected. The form has a digest of the selected jobs or servers; when the filter
//! selects others by then, also as many, nothing is done.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::time::Duration;
use ui::State;
use ui::data::{CreatedBatchJson, JobOfServer, JobPageJson, SelectionJson, ServerPage};
use ui::view::{FormView, JobsVerb, LimitFields, Tab, TableView};
use uuid::Uuid;

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The maximum of servers whose BMCs one request reads.
const MAX_PROBES: usize = 200;
/// The number of BMCs that are read at the same time.
const AT_ONCE: usize = 16;
/// The time in which a request begins to read BMCs. The result names each BMC that is left as not read.
const PROBE_TIME: Duration = Duration::from_secs(100);

/// The jobs that one request resumes, one after the other.
const MAX_RESUMED: usize = 200;
/// The time in which a request begins to resume jobs.
const RESUME_TIME: Duration = Duration::from_secs(60);
/// The resumed jobs that a preview names.
const NAMED: usize = 20;

/// The verbs for all jobs of a filter.
fn known(verb: &str) -> Result<JobsVerb, Refusal> {
    JobsVerb::ALL.into_iter().find(|known| known.word() == verb).ok_or_else(Refusal::unknown_page)
}

/// The limits that a form has.
pub(super) fn limits(form: &Form) -> LimitFields {
    let text = |name: &str| form.get(name).trim().to_owned();
    LimitFields { max_parallel: text("max_parallel"), canary: text("canary"), stop_after: text("stop_after") }
}

/// Adds the limits of a form to a request; an empty field is absent.
pub(super) fn add_limits(body: &mut Value, form: &Form) -> Result<(), Refusal> {
    for name in ["max_parallel", "canary", "stop_after"] {
        let text = form.get(name).trim();
        if !text.is_empty() {
            let number: u32 = text.parse().map_err(|_| Refusal::field(name, "is a whole number"))?;
            body[name] = json!(number);
        }
    }
    Ok(())
}

/// Previews a verb for all jobs of a filter.
pub(super) async fn ask_jobs(visit: Visit, Path(verb): Path<String>) -> Response {
    let shown = preview(&visit, &verb, visit.query.get("q"), &LimitFields::default(), None).await;
    visit.respond(shown).await
}

async fn preview(
    visit: &Visit,
    verb: &str,
    filter: &str,
    limits: &LimitFields,
    changed: Option<&Refusal>,
) -> Result<Response, Refusal> {
    let verb = known(verb)?;
    let selection: SelectionJson = match verb {
        JobsVerb::Resume => {
            let mut held = held(visit, filter).await?;
            let (count, selection) = (held.len() as u64, of_jobs(&held));
            held.truncate(NAMED);
            SelectionJson { count, selection, superseded: 0, first: held }
        }
        JobsVerb::Cancel | JobsVerb::Retry => {
            let path = format!("/api/v1/job-selections/{}", verb.word());
            visit.preview(&path, json!({ "filter": filter })).await?
        }
    };
    let frame = visit.frame("Many jobs", Tab::Jobs).await?;
    let view = FormView::jobs_selection(frame, verb, filter, &selection, limits, &Uuid::now_v7().to_string());
    match changed {
        None => html(&view),
        Some(refusal) => {
            let page = html(&view.note(State::Failed, refusal.text()))?;
            Ok((refusal.status, page).into_response())
        }
    }
}

/// Carries out a verb on all jobs of a filter. When they are others than those of the preview, it is shown again.
pub(super) async fn jobs(visit: Visit, Path(verb): Path<String>, form: Form) -> Response {
    let done = match change(&visit, &verb, &form).await {
        Err(refusal) if refusal.status == StatusCode::PRECONDITION_FAILED => {
            preview(&visit, &verb, form.get("q"), &limits(&form), Some(&refusal)).await
        }
        other => other,
    };
    visit.respond(done).await
}

async fn change(visit: &Visit, verb: &str, form: &Form) -> Result<Response, Refusal> {
    let verb = known(verb)?;
    let filter = form.get("q");
    if verb == JobsVerb::Resume {
        return resume(visit, filter, form).await;
    }
    let expected: u64 =
        form.get("expected").parse().map_err(|_| Refusal::field("expected", "is a number"))?;
    let (selection, reason) = (form.get("selection"), form.get("reason"));
    let mut body =
        json!({ "filter": filter, "expected": expected, "selection": selection, "reason": reason });
    add_limits(&mut body, form)?;
    let path = format!("/api/v1/job-selections/{}", verb.word());
    let response = visit.change(Change { method: Method::POST, path: &path, body: Some(body), form }).await?;
    let place = match verb {
        JobsVerb::Retry => {
            let created: CreatedBatchJson = response.read()?;
            format!("/ui/batches/{}?done=batch-retry", encoded(&created.batch_id))
        }
        JobsVerb::Cancel | JobsVerb::Resume => {
            format!("/ui/jobs?q={}&done=cancelled-all", encoded(filter))
        }
    };
    Ok(Redirect::to(&place).into_response())
}

/// The held jobs of a filter.
async fn held(visit: &Visit, filter: &str) -> Result<Vec<JobOfServer>, Refusal> {
    if filter.trim().is_empty() {
        return Err(Refusal::field("q", "is a filter; without a term it would select every job"));
    }
    let filter = format!("{filter} condition:held");
    let path = format!("/api/v1/jobs?limit={MAX_RESUMED}&filter={}", encoded(&filter));
    let page: JobPageJson = visit.get(&path).await?;
    if page.next.is_some() {
        let message = format!("the filter selects more than {MAX_RESUMED} held jobs; narrow it");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "validation_error", &message));
    }
    let jobs = page.jobs.into_iter();
    Ok(jobs.map(|job| JobOfServer { job_id: job.job_id, server_serial: job.server_serial }).collect())
}

/// The digest of the jobs of a selection.
fn of_jobs(jobs: &[JobOfServer]) -> String {
    model::selection_digest(jobs.iter().map(|job| job.job_id.as_str()))
}

/// The refusal of a confirmation whose filter selects others than its preview did.
fn other(selected: &str) -> Refusal {
    let message =
        format!("the filter selects other {selected} than it did; nothing was done: look at it again");
    Refusal::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", &message)
}

/// Resumes the held jobs of a filter. A job that is no longer held is left out.
async fn resume(visit: &Visit, filter: &str, form: &Form) -> Result<Response, Refusal> {
    let held = held(visit, filter).await?;
    if form.get("selection") != of_jobs(&held) {
        return Err(other("held jobs"));
    }
    let until = tokio::time::Instant::now() + RESUME_TIME;
    for job in held {
        if tokio::time::Instant::now() >= until {
            let message = "not every job was resumed in the time of one request; resume the others again";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message));
        }
        let path = format!("/api/v1/jobs/{}/resume", encoded(&job.job_id));
        let body = Some(json!({ "reason": form.get("reason") }));
        match visit.change(Change { method: Method::POST, path: &path, body, form }).await {
            Ok(_resumed) => {}
            Err(refusal) if refusal.status == StatusCode::CONFLICT => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Redirect::to(&format!("/ui/jobs?q={}&done=resumed-all", encoded(filter))).into_response())
}

/// The serial numbers of the servers of a filter: at most `most`, and whether there are more.
pub(super) async fn serials(
    visit: &Visit,
    filter: &str,
    most: usize,
) -> Result<(Vec<String>, bool), Refusal> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/api/v1/servers?limit=1000&filter={}{cursor}", encoded(filter));
        let page: ServerPage = visit.get(&path).await?;
        found.extend(page.servers.into_iter().map(|server| server.serial));
        if found.len() > most {
            found.truncate(most);
            return Ok((found, true));
        }
        match page.next {
            Some(next) => cursor = format!("&cursor={}", encoded(&next)),
            None => return Ok((found, false)),
        }
    }
}

/// Asks before a look at the BMCs of all servers of a filter.
pub(super) async fn ask_probe(visit: Visit) -> Response {
    let shown = async {
        let filter = visit.query.get("q");
        let (serials, more) = serials(&visit, filter, MAX_PROBES).await?;
        let frame = visit.frame("Many servers", Tab::Servers).await?;
        let back = format!("/ui/servers?q={}", encoded(filter));
        let view = FormView::new(frame, "Probe the BMCs?", "/ui/servers/selection/probe", back.clone())
            .below(back, "Servers of the filter")
            .hidden("q", filter)
            .hidden("selection", model::selection_digest(&serials))
            .effect(State::Working, format!("{} BMCs are read; nothing is changed on them.", serials.len()))
            .effect(
                State::Waiting,
                format!("{AT_ONCE} at a time: this takes up to {} seconds.", PROBE_TIME.as_secs()),
            );
        let view = match (serials.is_empty(), more) {
            (true, _) => view.note(State::Queued, "The filter selects no server."),
            (false, true) => view.note(
                State::Failed,
                format!("The filter selects more than {MAX_PROBES} servers; narrow it."),
            ),
            (false, false) => view.yes(format!("Probe {}", serials.len())),
        };
        html(&view)
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Reads the BMCs of all servers of a filter, a bounded number at a time.
pub(super) async fn probe(visit: Visit, form: Form) -> Response {
    let done = probe_all(&visit, &form).await;
    visit.respond(done).await
}

async fn probe_all(visit: &Visit, form: &Form) -> Result<Response, Refusal> {
    let filter = form.get("q");
    let (serials, more) = serials(visit, filter, MAX_PROBES).await?;
    if more || form.get("selection") != model::selection_digest(&serials) {
        return Err(other("servers"));
    }
    let until = tokio::time::Instant::now() + PROBE_TIME;
    let look = async |serial: String| {
        // What has begun ends by its own time limits.
        if tokio::time::Instant::now() >= until {
            return Ok((serial, Some("not probed: the time of this request was over".to_owned())));
        }
        let path = format!("/api/v1/servers/{}/probe", encoded(&serial));
        match visit.change(Change { method: Method::POST, path: &path, body: None, form }).await {
            Ok(_card) => Ok((serial, None)),
            // Without the permission every row is refused; the page says so once.
            Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Err(refusal),
            Err(refusal) => Ok((serial, Some(refusal.text()))),
        }
    };
    let results: Vec<Result<(String, Option<String>), Refusal>> =
        stream::iter(serials).map(look).buffered(AT_ONCE).collect().await;
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    html(&TableView::probed(visit.frame("Probed BMCs", Tab::Servers).await?, filter, &results))
}
