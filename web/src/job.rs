//! One job, and its verbs: each is a question first.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::json;
use ui::INSTALLATION;
use ui::State;
use ui::data::{
    EventJson, EventPage, ExplanationJson, JobDetailJson, JobJson, JobPageJson, LastSuccess, MediaReads,
    ServerJson,
};
use ui::view::{Ask, AskEffect, JOB_FACTS, JobParts, JobView, LogView, Tab};
use uuid::Uuid;

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The step that only a rescue session has; a rescue session writes to no disk.
const RESCUE: &str = "rescue.wait";
/// The events that are read for the recipe and the machine of a job. A step that is tried again makes one more.
const FACTS: u32 = 20;
/// The newest successes among which one is looked for that is older than a job.
const NEWEST: u32 = 20;

/// Shows one job.
pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    let shown = job(&visit, &encoded(&id)).await;
    visit.respond(shown).await
}

async fn job(visit: &Visit, id: &str) -> Result<Response, Refusal> {
    let (path, explain) = (format!("/api/v1/jobs/{id}"), format!("/api/v1/jobs/{id}/explain"));
    let media = format!("/api/v1/jobs/{id}/media");
    let (detail, why, media) = tokio::try_join!(
        visit.get::<JobDetailJson>(&path),
        visit.get::<ExplanationJson>(&explain),
        visit.get::<MediaReads>(&media),
    )?;
    let server = match &detail.job.server_serial {
        Some(serial) => visit.get::<ServerJson>(&format!("/api/v1/servers/{}", encoded(serial))).await.ok(),
        None => None,
    };
    let is_installation = detail.job.workflow == INSTALLATION;
    let begun = if is_installation { begun(visit, id).await? } else { Vec::new() };
    let has_failed = is_installation && detail.job.outcome.as_deref() == Some("failed");
    let success = if has_failed { last_success(visit, &detail.job).await? } else { None };
    let title = detail.job.server_serial.clone().unwrap_or_else(|| "Job".to_owned());
    let mut frame = visit.frame(title, Tab::Jobs).await?;
    if detail.job.status != "complete" {
        let after = detail.events.last().map_or(0, |event| event.seq);
        frame.stream = Some(format!("/api/v1/jobs/{id}/events?after={after}"));
    }
    let observed = server.and_then(|server| server.observed);
    let parts = JobParts { media: media.media, observed, begun, success };
    html(&JobView::of(frame, &detail, &why, &parts))
}

/// Reads the events of an installation that say what it is to install on what machine.
async fn begun(visit: &Visit, id: &str) -> Result<Vec<EventJson>, Refusal> {
    let path = format!("/api/v1/jobs/{id}/events?after=0&type={JOB_FACTS}&limit={FACTS}");
    Ok(visit.get::<EventPage>(&path).await?.events)
}

/// Finds the installation of the server that succeeded last before a job.
async fn last_success(visit: &Visit, job: &JobJson) -> Result<Option<LastSuccess>, Refusal> {
    let Some(serial) = &job.server_serial else { return Ok(None) };
    let successes = successes(visit, serial, NEWEST).await?;
    let Some(success) = successes.into_iter().find(|other| other.created_at < job.created_at) else {
        return Ok(None);
    };
    let begun = match begun(visit, &encoded(&success.job_id)).await {
        // Retention has deleted it since it was listed.
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => return Ok(None),
        read => read?,
    };
    Ok(Some(LastSuccess { job_id: success.job_id, ended_at: success.last_update, begun }))
}

/// Reads the installations of a server that have succeeded, the newest first.
async fn successes(visit: &Visit, serial: &str, limit: u32) -> Result<Vec<JobJson>, Refusal> {
    let path = format!(
        "/api/v1/jobs?server_serial={}&workflow={INSTALLATION}&outcome=succeeded&limit={limit}",
        encoded(serial)
    );
    Ok(visit.get::<JobPageJson>(&path).await?.jobs)
}

/// The end of the log of the maintenance OS.
#[derive(Deserialize)]
struct InstallLog {
    log: Option<String>,
}

/// Shows the end of the log of the maintenance OS.
pub(super) async fn log(visit: Visit, Path(id): Path<String>) -> Response {
    let shown = async {
        let id = encoded(&id);
        let log: InstallLog = visit.get(&format!("/api/v1/jobs/{id}/log")).await?;
        let frame = visit.frame("Log of the maintenance OS", Tab::Jobs).await?;
        html(&LogView { f: frame, back: format!("/ui/jobs/{id}"), log: log.log.unwrap_or_default() })
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// A verb as a question and as a change.
struct Verb {
    word: &'static str,
    question: &'static str,
    yes: &'static str,
    no: &'static str,
    risk: bool,
}

const VERBS: [Verb; 5] = [
    Verb {
        word: "cancel",
        question: "Cancel the job",
        yes: "Cancel the job",
        no: "Let it go on",
        risk: true,
    },
    Verb { word: "hold", question: "Hold the job", yes: "Hold the job", no: "Let it go on", risk: false },
    Verb { word: "resume", question: "Resume the job", yes: "Resume the job", no: "Not now", risk: false },
    Verb {
        word: "finish",
        question: "Finish the rescue session",
        yes: "Finish the session",
        no: "Let it go on",
        risk: false,
    },
    Verb { word: "retry", question: "Retry the job", yes: "Retry", no: "Not now", risk: false },
];

fn verb(word: &str) -> Result<&'static Verb, Refusal> {
    VERBS.iter().find(|verb| verb.word == word).ok_or_else(Refusal::unknown_page)
}

/// Asks before a verb.
pub(super) async fn ask(visit: Visit, Path((id, word)): Path<(String, String)>) -> Response {
    let shown = question(&visit, &encoded(&id), &word, None).await;
    visit.respond(shown).await
}

async fn question(
    visit: &Visit,
    id: &str,
    word: &str,
    changed: Option<&Refusal>,
) -> Result<Response, Refusal> {
    let verb = verb(word)?;
    let (detail, revision) = visit.get_revised::<JobDetailJson>(&format!("/api/v1/jobs/{id}")).await?;
    let of = detail.job.server_serial.as_deref().map(|serial| format!(" of {serial}")).unwrap_or_default();
    let offered = detail.verbs.iter().any(|offered| offered == verb.word);
    let intro = match (offered, changed) {
        (false, _) => "The job has moved on since the page was made: this is not offered in its present state."
            .to_owned(),
        (true, Some(_)) => {
            "The job has changed since the question was asked, and nothing was done. This is the question for its present state."
                .to_owned()
        }
        (true, None) => String::new(),
    };
    // "Nothing was touched" is for a job that has not begun. A running one changes all the time, and its question is for any state.
    let bound = verb.word == "cancel" && detail.steps.is_empty();
    let mut effects = effects(verb.word, &detail);
    if verb.word == "retry" && detail.job.workflow == INSTALLATION {
        let newer = newer_installation(visit, &detail.job).await?;
        effects.splice(0..0, installed_again(&detail, newer.as_ref()));
    }
    let risk = verb.risk || verb.word == "retry" && detail.job.workflow == INSTALLATION;
    let f = visit.frame(format!("{}?", verb.question), Tab::Jobs).await?;
    let page = html(&Ask {
        f,
        question: format!("{}{of}?", verb.question),
        intro,
        effects,
        action: format!("/ui/jobs/{id}/{}", verb.word),
        key: if verb.word == "retry" { Uuid::now_v7().to_string() } else { String::new() },
        revision: if bound { revision } else { String::new() },
        reason: true,
        yes: verb.yes.to_owned(),
        no: verb.no,
        back: format!("/ui/jobs/{id}"),
        risk,
    })?;
    Ok((changed.map_or(StatusCode::OK, |refusal| refusal.status), page).into_response())
}

/// The newest succeeded installation of the server of a job, if it was created after the job.
async fn newer_installation(visit: &Visit, job: &JobJson) -> Result<Option<JobJson>, Refusal> {
    let Some(serial) = &job.server_serial else { return Ok(None) };
    let newest = successes(visit, serial, 1).await?.into_iter().next();
    Ok(newest.filter(|newest| newest.job_id != job.job_id && newest.created_at > job.created_at))
}

/// The effects of another installation on what the server runs.
fn installed_again(detail: &JobDetailJson, newer: Option<&JobJson>) -> Vec<AskEffect> {
    let effect = |state, text: String| AskEffect { state, text };
    let lost = match detail.steps.iter().any(|step| step.step == RESCUE) {
        true => "The host is forced off and starts the rescue system: what runs on it now ends.",
        // The recipe is sealed, and only a session that began shows by its steps that it is one.
        false => {
            "The host is forced off. If the recipe installs, its disk is written again: what is installed there now is lost."
        }
    };
    let mut effects = vec![effect(State::Failed, lost.to_owned())];
    if let Some(newer) = newer {
        let text = format!("A newer installation of this server has succeeded (job {}).", newer.job_id);
        effects.push(effect(State::Waiting, text));
    } else if detail.job.outcome.as_deref() == Some("succeeded") {
        effects.push(effect(
            State::Waiting,
            "This job has succeeded; a retry does its work on the server once more.".to_owned(),
        ));
    }
    effects
}

fn effects(word: &str, detail: &JobDetailJson) -> Vec<AskEffect> {
    let effect = |state, text: &str| AskEffect { state, text: text.to_owned() };
    match word {
        "cancel" if detail.steps.is_empty() => {
            vec![effect(
                State::Queued,
                "The job has not begun: nothing was touched, and nothing needs a cleanup.",
            )]
        }
        "cancel" => vec![
            effect(State::Waiting, "What runs on the host is stopped; a disk may be left half written."),
            effect(
                State::Done,
                "What the job changed is undone: slots emptied, boot setting cleared, and read back.",
            ),
            effect(State::Done, "The tokens of its media and of its image end."),
        ],
        "hold" => {
            vec![effect(State::Held, "The job stops where it is until an operator resumes or cancels it.")]
        }
        "finish" => vec![
            effect(State::Waiting, "The shells on the machine end: its host is powered off."),
            effect(State::Done, "The slots are emptied, and the host starts from its disk."),
            effect(State::Done, "The job ends with success."),
        ],
        "resume" => vec![effect(State::Working, "The job continues with the step at which it was held.")],
        _ => {
            let mut effects =
                vec![effect(State::Queued, "A new job with the same request; this one is unchanged.")];
            if let Some(failure) = &detail.job.failure {
                let text = format!("Unless this was done, it may fail the same way: {}", failure.next_action);
                effects.insert(0, AskEffect { state: State::Waiting, text });
            }
            effects
        }
    }
}

/// The new job of a retry.
#[derive(Deserialize)]
struct Created {
    job_id: String,
}

/// Carries out a verb on a job. When the job has begun since the question said that it had not, the question is asked again.
pub(super) async fn act(visit: Visit, Path((id, word)): Path<(String, String)>, form: Form) -> Response {
    let id = encoded(&id);
    let done = match change(&visit, &id, &word, &form).await {
        Err(refusal) if is_changed(&refusal) => changed(&visit, &id, &word, &form, refusal).await,
        done => done,
    };
    visit.respond(done).await
}

fn is_changed(refusal: &Refusal) -> bool {
    refusal.status == StatusCode::PRECONDITION_FAILED
}

/// The response to a confirmed question about a job that has changed. A job that waits for its start changes too, such as when a
/// place becomes free: the question is right for it until it begins.
async fn changed(
    visit: &Visit,
    id: &str,
    word: &str,
    form: &Form,
    refusal: Refusal,
) -> Result<Response, Refusal> {
    let (detail, revision) = visit.get_revised::<JobDetailJson>(&format!("/api/v1/jobs/{id}")).await?;
    if !detail.steps.is_empty() {
        return question(visit, id, word, Some(&refusal)).await;
    }
    match change(visit, id, word, &form.with("revision", revision)).await {
        Err(refusal) if is_changed(&refusal) => question(visit, id, word, Some(&refusal)).await,
        done => done,
    }
}

async fn change(visit: &Visit, id: &str, word: &str, form: &Form) -> Result<Response, Refusal> {
    let verb = verb(word)?;
    let path = format!("/api/v1/jobs/{id}/{}", verb.word);
    let body = Some(json!({ "reason": form.get("reason") }));
    let response = visit.change(Change { method: Method::POST, path: &path, body, form }).await?;
    let shown = match verb.word {
        "retry" => {
            let created: Created =
                serde_json::from_slice(&response.body).map_err(|error| Refusal::internal(&error))?;
            created.job_id
        }
        _ => id.to_owned(),
    };
    Ok(Redirect::to(&format!("/ui/jobs/{shown}?done={}", verb.word)).into_response())
}
