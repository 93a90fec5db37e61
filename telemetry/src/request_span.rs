//! The span of a request: the fields that every log line of the request carries.
//!
//! ```text
//!   request { request_id, method, route }                    every request
//!           { job_id, worker_id | server_serial }            named by the path, from the start
//!           { job_id, worker_id, server_serial, step }       found by the handler: `about`, `of_job`, `of_server`
//! ```
//!
//! The span has the level `error`, so that no log filter removes the fields while it keeps the line. The fields have the names
//! of the engine's spans, so that one search finds what the engine, the API and the media server wrote about a job: the worker
//! of a request is the controller instance that handles it. A body is sent after its request was handled; the reads of an image
//! have a span of their own (`media::grant_span`).
//!
//! Invariant: a field is recorded only once, because a line of text shows every record of a field.

use tracing::Span;
use tracing::field::{Empty, display};

use model::{Job, RunId, Serial};

/// The span of a request to the route of this pattern. The pattern, never the path: a path may contain a token.
/// `worker_id`: the controller instance.
pub fn of_request(
    request_id: &str,
    method: &str,
    route: &str,
    path: &[(String, String)],
    worker_id: &str,
) -> Span {
    let span = tracing::error_span!(
        "request",
        request_id,
        method,
        route,
        job_id = Empty,
        server_serial = Empty,
        worker_id = Empty,
        step = Empty,
    );
    let segment = |name: &str| path.iter().find(|(known, _)| known == name).map(|(_, text)| text);
    let names_a_job = route.starts_with("/api/v1/jobs/") || route.starts_with("/media/tasks/");
    // A malformed name is no job and no server, and is not copied into the log.
    let job: Option<RunId> = segment("id").filter(|_| names_a_job).and_then(|text| text.parse().ok());
    let server: Option<Serial> = segment("serial").and_then(|text| text.parse().ok());
    if let Some(job) = job {
        span.record("job_id", display(job));
        span.record("worker_id", worker_id);
    }
    if let Some(server) = server {
        span.record("server_serial", server.as_str());
    }
    span
}

/// The request, whose path names a job, is about this job.
pub fn about(job: &Job) {
    of_server(job.run.server.as_ref());
    in_step(job.run.step.as_deref());
}

/// The request, whose path names no job, is about the job with this id. `worker_id`: the controller instance.
pub fn of_job(id: RunId, worker_id: &str) {
    Span::current().record("job_id", display(id)).record("worker_id", worker_id);
}

/// The request is about a job of this server.
pub fn of_server(server: Option<&Serial>) {
    if let Some(server) = server {
        Span::current().record("server_serial", server.as_str());
    }
}

/// The job of the request is in this step.
pub fn in_step(step: Option<&str>) {
    if let Some(step) = step {
        Span::current().record("step", step);
    }
}
