//! `GET /api/v1/overview`: the whole installation in numbers.
//!
//! The numbers are computed once for all readers of the same event: a copy is used for a second, and no longer than until the
//! next event. A reader that comes because of an event therefore sees what the event says. The pause between two computations
//! is three times as long as the first, however many readers and events there are: a quarter of a core at most, until a computation takes
//! longer than [`LONGEST_PAUSE`] allows.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Mutex;

use super::Api;
use super::error::ApiError;
use super::extract::CanRead;
use super::filters;
use super::openapi::types;
use model::{BatchId, FailureClass, HoldClass, Outcome, RunId, Serial, StepName, Time};
use store::{OpenGroup, Overview, RackGroup};

/// How long the numbers are used for other requests while no event is new: times pass also without events.
const KEPT: Duration = Duration::from_secs(1);
/// The longest time from the end of a computation to the next one: a person who waits for a page sees no more of it.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The numbers of the last request. A second request waits for the first instead of counting again.
#[derive(Clone, Default)]
pub struct OverviewCache(Arc<Mutex<Option<Copied>>>);

/// Numbers as they were sent.
struct Copied {
    /// When they were taken, since the start of the program.
    taken: Duration,
    /// When their computation had ended.
    ended: Duration,
    /// The newest event that they know of.
    last_seq: i64,
    body: Bytes,
}

impl Copied {
    /// The time before the next computation begins.
    fn pause(&self, now: Duration) -> Duration {
        let took = self.ended.saturating_sub(self.taken);
        took.saturating_mul(3).min(LONGEST_PAUSE).saturating_sub(now.saturating_sub(self.ended))
    }
}

/// The whole installation in numbers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Overview")]
pub(super) struct OverviewView {
    /// When the numbers were taken.
    #[schemars(with = "types::Timestamp")]
    at: Time,
    /// The number of registered servers.
    servers: u64,
    /// The newest position of the event log.
    last_seq: i64,
    /// Jobs that were created in the last 24 hours and failed.
    failed: u64,
    /// Jobs that were created in the last 24 hours and succeeded.
    succeeded: u64,
    /// Jobs that have not ended, by state.
    open: Vec<OpenJobs>,
    /// Jobs that failed in the last 24 hours and that no newer job of the server has followed, by cause; the largest
    /// group first.
    failures: Vec<FailedJobs>,
    /// Held jobs by the class of the hold.
    holds: Vec<HeldJobs>,
    /// Waiting jobs by reason; the largest group first.
    waits: Vec<WaitingJobs>,
    /// Queued jobs by what keeps them from their start; the largest group first.
    blocked: Vec<BlockedJobs>,
    /// Batches that have stopped and start no further job until they are continued, the newest first, at most 20.
    stopped_batches: Vec<StoppedBatchView>,
    /// Jobs that wait or work, by step.
    steps: Vec<JobsAtStep>,
    /// Jobs that ended in the last 24 hours, by hour.
    ended: Vec<EndedJobs>,
    /// Servers by the labels `site` and `rack`, and by the state of their newest job.
    racks: Vec<RackView>,
    /// Servers on which a job could not clean up, such as media that are still inserted; null without one. The next job of each begins
    /// with it.
    cleanup: Option<CleanupView>,
}

/// Jobs in one state.
#[derive(Serialize, JsonSchema)]
struct OpenJobs {
    /// `queued`, `waiting`, `working` or `held`; the conditions of each are those of `explain`.
    state: String,
    jobs: u64,
    /// Since when the oldest is in it.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// The next time at which one of them fails, or its wait ends.
    #[schemars(with = "types::Timestamp")]
    next_deadline: Time,
}

/// Jobs that failed of one cause.
#[derive(Serialize, JsonSchema)]
struct FailedJobs {
    /// The class of the failure.
    #[schemars(with = "String")]
    class: FailureClass,
    /// The step that failed.
    #[schemars(with = "String")]
    step: StepName,
    /// What happened to the newest of them.
    summary: String,
    /// What to do.
    next_action: String,
    jobs: u64,
    /// The newest of them.
    #[schemars(with = "types::JobId")]
    newest_job: RunId,
    /// When the newest failed.
    #[schemars(with = "types::Timestamp")]
    newest_at: Time,
    /// The servers of the newest of them, at most five.
    #[schemars(with = "Vec<types::SerialNumber>")]
    servers: Vec<Serial>,
}

/// Jobs that are held for reasons of one class.
#[derive(Serialize, JsonSchema)]
struct HeldJobs {
    /// The class of the hold.
    #[schemars(with = "String")]
    class: HoldClass,
    /// Why the oldest is held.
    detail: String,
    /// How many of the jobs are held with the same words.
    alike: u64,
    jobs: u64,
    /// Since when the oldest is held.
    #[schemars(with = "types::Timestamp")]
    since: Time,
}

/// Jobs that wait for one reason.
#[derive(Serialize, JsonSchema)]
struct WaitingJobs {
    /// The reason of the wait.
    reason: String,
    jobs: u64,
    /// Since when the oldest waits.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// The next deadline.
    #[schemars(with = "types::Timestamp")]
    next_deadline: Time,
}

/// Queued jobs that one thing keeps from their start.
#[derive(Serialize, JsonSchema)]
struct BlockedJobs {
    /// `drain`, `maintenance` of the server, `batch-stopped`, `batch-canary`, `pressure`: a shortage of the controller, `lock` of the
    /// server or its BMC, `limit` of a batch, a site or a kind of job, or `place`: a worker.
    blocker: String,
    jobs: u64,
    /// Since when the oldest is queued.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// The next time at which one of them fails.
    #[schemars(with = "types::Timestamp")]
    next_deadline: Time,
}

/// A batch that starts no further job until it is continued.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StoppedBatch")]
struct StoppedBatchView {
    #[schemars(with = "types::BatchId")]
    batch_id: BatchId,
    /// When the batch stopped.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// The failures that were counted.
    failures: u32,
    /// The jobs of the batch that have not begun.
    queued: u64,
}

/// Servers on which a job could not clean up: those of the filter `state:pending-cleanup`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServersToCleanUp")]
struct CleanupView {
    servers: u64,
    /// The serial numbers of some of the servers, at most five.
    #[schemars(with = "Vec<types::SerialNumber>")]
    named: Vec<Serial>,
    /// When the oldest of their jobs ended; null if these jobs are removed.
    #[schemars(with = "Option<types::Timestamp>")]
    since: Option<Time>,
}

/// Jobs at one step.
#[derive(Serialize, JsonSchema)]
struct JobsAtStep {
    #[schemars(with = "String")]
    step: StepName,
    /// The jobs that wait.
    waiting: u64,
    /// The jobs that a worker works on.
    working: u64,
}

/// Jobs that ended in one hour.
#[derive(Serialize, JsonSchema)]
struct EndedJobs {
    /// The begin of the hour.
    #[schemars(with = "types::Timestamp")]
    hour: Time,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
}

/// The servers of one rack by the state of their newest job.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Rack")]
struct RackView {
    /// The label `site`; empty without one.
    site: String,
    /// The label `rack`; empty without one.
    rack: String,
    failed: u64,
    held: u64,
    waiting: u64,
    working: u64,
    queued: u64,
    /// The newest installation succeeded.
    done: u64,
    /// No installation, or the newest was cancelled.
    idle: u64,
}

/// Counts jobs and servers.
pub(super) async fn show(State(api): State<Api>, _reader: CanRead) -> Result<Response, ApiError> {
    // Before the lock: a request that waits for another one is content with the numbers of that.
    let newest = api.store().last_seq().await?;
    let mut kept = api.overview.0.lock().await;
    let now = api.clock().elapsed();
    let is_new = |copy: &Copied| now.saturating_sub(copy.taken) < KEPT && copy.last_seq >= newest;
    let body = match &*kept {
        Some(copy) if is_new(copy) => copy.body.clone(),
        copy => {
            // The lock is held meanwhile: readers that wait for it are content with what is computed then.
            tokio::time::sleep(copy.as_ref().map_or(Duration::ZERO, |copy| copy.pause(now))).await;
            let (present, now) = (filters::present(&api), api.clock().elapsed());
            let view = OverviewView::of(present.now, api.store().overview(present).await?);
            let body = serde_json::to_vec(&view).map_err(|error| ApiError::unwritable(&error))?;
            let body = Bytes::from(body);
            let ended = api.clock().elapsed();
            *kept = Some(Copied { taken: now, ended, last_seq: view.last_seq, body: body.clone() });
            body
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

impl OverviewView {
    fn of(at: Time, overview: Overview) -> Self {
        let Overview {
            servers,
            last_seq,
            failed,
            succeeded,
            open,
            failures,
            holds,
            ended,
            racks,
            blocked,
            stopped,
            cleanup,
        } = overview;
        Self {
            at,
            servers,
            last_seq,
            failed,
            succeeded,
            waits: waits(&open),
            steps: steps(&open),
            open: by_state(&open),
            failures: failures
                .into_iter()
                .map(|group| FailedJobs {
                    class: group.class,
                    step: group.step,
                    summary: group.summary,
                    next_action: group.next_action,
                    jobs: group.jobs,
                    newest_job: group.newest,
                    newest_at: group.newest_at,
                    servers: group.servers,
                })
                .collect(),
            holds: holds
                .into_iter()
                .map(|group| HeldJobs {
                    class: group.class,
                    detail: group.detail,
                    alike: group.alike,
                    jobs: group.jobs,
                    since: group.since,
                })
                .collect(),
            blocked: blocked
                .into_iter()
                .map(|group| BlockedJobs {
                    blocker: group.blocker,
                    jobs: group.jobs,
                    since: group.since,
                    next_deadline: group.next_deadline,
                })
                .collect(),
            stopped_batches: stopped
                .into_iter()
                .map(|batch| StoppedBatchView {
                    batch_id: batch.id,
                    since: batch.since,
                    failures: batch.failures,
                    queued: batch.queued,
                })
                .collect(),
            ended: ended_by_hour(&ended),
            racks: by_rack(&racks),
            cleanup: cleanup.map(|group| CleanupView {
                servers: group.servers,
                named: group.named,
                since: group.since,
            }),
        }
    }
}

fn by_state(open: &[OpenGroup]) -> Vec<OpenJobs> {
    let mut states: Vec<OpenJobs> = Vec::new();
    for group in open {
        match states.iter_mut().find(|state| state.state == group.state) {
            Some(state) => {
                state.jobs += group.jobs;
                state.since = state.since.min(group.since);
                state.next_deadline = state.next_deadline.min(group.next_deadline);
            }
            None => states.push(OpenJobs {
                state: group.state.clone(),
                jobs: group.jobs,
                since: group.since,
                next_deadline: group.next_deadline,
            }),
        }
    }
    states
}

fn waits(open: &[OpenGroup]) -> Vec<WaitingJobs> {
    let mut waits: Vec<WaitingJobs> = Vec::new();
    for group in open.iter().filter(|group| group.state == "waiting") {
        match waits.iter_mut().find(|wait| wait.reason == group.reason) {
            Some(wait) => {
                wait.jobs += group.jobs;
                wait.since = wait.since.min(group.since);
                wait.next_deadline = wait.next_deadline.min(group.next_deadline);
            }
            None => waits.push(WaitingJobs {
                reason: group.reason.clone(),
                jobs: group.jobs,
                since: group.since,
                next_deadline: group.next_deadline,
            }),
        }
    }
    waits.sort_by(|one, other| other.jobs.cmp(&one.jobs).then(one.reason.cmp(&other.reason)));
    waits
}

fn steps(open: &[OpenGroup]) -> Vec<JobsAtStep> {
    let mut steps: Vec<JobsAtStep> = Vec::new();
    for group in open {
        let Some(name) = &group.step else { continue };
        let at = match steps.iter().position(|step| step.step == *name) {
            Some(at) => at,
            None => {
                steps.push(JobsAtStep { step: name.clone(), waiting: 0, working: 0 });
                steps.len() - 1
            }
        };
        match group.state.as_str() {
            "waiting" => steps[at].waiting += group.jobs,
            "working" => steps[at].working += group.jobs,
            _ => {}
        }
    }
    steps.retain(|step| step.waiting + step.working > 0);
    steps
}

fn ended_by_hour(ended: &[store::EndedGroup]) -> Vec<EndedJobs> {
    let mut hours: Vec<EndedJobs> = Vec::new();
    for group in ended {
        if hours.last().is_none_or(|last| last.hour != group.hour) {
            hours.push(EndedJobs { hour: group.hour, succeeded: 0, failed: 0, cancelled: 0 });
        }
        if let Some(hour) = hours.last_mut() {
            match group.outcome {
                Outcome::Succeeded => hour.succeeded += group.jobs,
                Outcome::Failed => hour.failed += group.jobs,
                Outcome::Cancelled => hour.cancelled += group.jobs,
            }
        }
    }
    hours
}

fn by_rack(groups: &[RackGroup]) -> Vec<RackView> {
    let mut racks: Vec<RackView> = Vec::new();
    for group in groups {
        if racks.last().is_none_or(|last| (&last.site, &last.rack) != (&group.site, &group.rack)) {
            racks.push(RackView {
                site: group.site.clone(),
                rack: group.rack.clone(),
                ..RackView::default()
            });
        }
        if let Some(rack) = racks.last_mut() {
            let number = match group.state.as_str() {
                "failed" => &mut rack.failed,
                "held" => &mut rack.held,
                "waiting" => &mut rack.waiting,
                "working" => &mut rack.working,
                "queued" => &mut rack.queued,
                "succeeded" => &mut rack.done,
                _ => &mut rack.idle,
            };
            *number += group.servers;
        }
    }
    racks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_overview_has_a_pause_after_it() {
        let ms = Duration::from_millis;
        let copy = Copied { taken: ms(1000), ended: ms(1400), last_seq: 1, body: Bytes::new() };
        assert_eq!(copy.pause(ms(1410)), ms(90));
        assert_eq!(copy.pause(ms(1500)), Duration::ZERO);
        let quick = Copied { ended: ms(1010), ..copy };
        assert_eq!(
            quick.pause(ms(1015)),
            ms(25),
            "three times of ten milliseconds, five of which have passed"
        );
    }
}
