//! Follows a job: shows its events until it is complete.
//!
//! ```text
//! GET job ──> GET events after the last seen, page by page ──> complete? ──> done
//!    ^                                                            │ no
//!    └── the next event, or a pause where there is no stream <────┘
//! ```
//!
//! The job is read before its events, so that the last event is never missed. A controller that does not respond for a
//! while (a restart, an upgrade) does not end the watch; one that does not respond for about five minutes does.

use std::time::Duration;

use serde_json::Value;

use super::connection::{Changes, Client};
use super::error::CliError;
use super::output::{Output, text};

/// The pauses between requests and the number of failures before the watch ends.
#[derive(Clone, Copy, Debug)]
pub struct PollInterval {
    /// The pause after an event.
    pub shortest: Duration,
    /// The longest pause without events.
    pub longest: Duration,
    /// The maximum of consecutive failed requests.
    pub max_failures: u32,
    /// Wait for events of the controller; the pauses are for one that sends none.
    pub stream: bool,
}

impl Default for PollInterval {
    /// Waits about five minutes for an unreachable controller.
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(200),
            longest: Duration::from_secs(3),
            max_failures: 100,
            stream: true,
        }
    }
}

/// The longest wait for an event.
const LONGEST: Duration = Duration::from_secs(60);
/// The maximum of events per page.
const PAGE: usize = 500;
/// The maximum of pages of events between two reads of the job.
const MAX_PAGES: usize = 1000;

/// Passes every event after `seq` to `show` until the job is complete, and returns the job.
pub(super) async fn follow(
    client: &Client,
    job: &str,
    mut seq: u64,
    interval: PollInterval,
    output: &mut Output<'_>,
    show: &mut Show<'_>,
) -> Result<Value, CliError> {
    let mut retry = RetryState::new(interval);
    let mut changes = match interval.stream {
        true => Changes::of(client, &["jobs", job, "events"]),
        false => Changes::by_pauses(),
    };
    let mut said = String::new();
    loop {
        if let Some((state, events, next)) = retry.accept(job_and_events(client, job, seq).await, output)? {
            events.iter().try_for_each(|event| show(event, output))?;
            if state["status"] == "complete" {
                return Ok(state);
            }
            // The position moves with the events of all jobs.
            retry.record(!events.is_empty());
            seq = next;
        } else {
            changes.read_failed(retry.pause);
        }
        while !changes.changed(retry.pause, LONGEST).await {
            // A minute without an event: each wait is said once. An error is met by the next read.
            if output.json {
                continue;
            }
            let waits = client.get(&["jobs", job], &[]).await.map(|job| waits(&job.body)).unwrap_or_default();
            if !waits.is_empty() && waits != said {
                output.note(&waits);
                said = waits;
            }
        }
    }
}

/// The wait of a job with its deadline, in words; empty for a job that does not wait.
fn waits(job: &Value) -> String {
    let part = |pointer: &str| text(job, pointer);
    match part("/wait/reason") {
        reason if reason.is_empty() => reason,
        reason => {
            format!("waits at {} for {reason} until {} at the latest", part("/step"), part("/wait/deadline"))
        }
    }
}

/// Reads a document until `done` returns true, and returns it.
pub(super) async fn until(
    client: &Client,
    path: &[&str],
    interval: PollInterval,
    output: &mut Output<'_>,
    done: &mut dyn FnMut(&Value, &mut Output<'_>) -> bool,
) -> Result<Value, CliError> {
    let mut retry = RetryState::new(interval);
    let mut last = Value::Null;
    loop {
        if let Some(response) = retry.accept(client.get(path, &[]).await, output)? {
            if done(&response.body, output) {
                return Ok(response.body);
            }
            retry.record(response.body != last);
            last = response.body;
        }
        tokio::time::sleep(retry.pause).await;
    }
}

/// Shows one event.
type Show<'a> = dyn FnMut(&Value, &mut Output<'_>) -> Result<(), CliError> + 'a;

/// The next pause and the number of consecutive failures.
struct RetryState {
    interval: PollInterval,
    pause: Duration,
    failures: u32,
}

impl RetryState {
    fn new(interval: PollInterval) -> Self {
        Self { interval, pause: interval.shortest, failures: 0 }
    }

    /// Counts failures. Returns `None` for a transient error below the maximum.
    fn accept<T>(
        &mut self,
        response: Result<T, CliError>,
        output: &mut Output<'_>,
    ) -> Result<Option<T>, CliError> {
        match response {
            Ok(response) => {
                if self.failures > 0 {
                    output.note("the controller responds again");
                }
                self.failures = 0;
                Ok(Some(response))
            }
            Err(error) if error.is_transient() && self.failures < self.interval.max_failures => {
                if self.failures == 0 {
                    output.note(format!("{error}; trying again"));
                }
                self.failures += 1;
                self.record(false);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn record(&mut self, any: bool) {
        self.pause = if any { self.interval.shortest } else { (self.pause * 2).min(self.interval.longest) };
    }
}

/// Reads the job and then its events.
async fn job_and_events(
    client: &Client,
    job: &str,
    after: u64,
) -> Result<(Value, Vec<Value>, u64), CliError> {
    let state = client.get(&["jobs", job], &[]).await?.body;
    let (events, next) = events(client, &["jobs", job, "events"], after).await?;
    Ok((state, events, next))
}

/// Reads all events of a path of the API after `after`. Returns them with the position after which to continue.
pub(super) async fn events(
    client: &Client,
    path: &[&str],
    after: u64,
) -> Result<(Vec<Value>, u64), CliError> {
    let mut events = Vec::new();
    let mut seq = after;
    for _ in 0..MAX_PAGES {
        let query = [("after", seq.to_string()), ("limit", PAGE.to_string())];
        let mut page = client.get(path, &query).await?.body;
        let Some(Value::Array(mut found)) = page.get_mut("events").map(Value::take) else {
            return Err(client.unexpected_response(path, "the list of events is missing"));
        };
        let last = found.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap_or(seq);
        let next = page["next"].as_u64().unwrap_or(last).max(last);
        let done = found.is_empty() || next <= seq;
        // Events up to `seq` were shown already.
        found.retain(|event| event["seq"].as_u64().is_none_or(|number| number > seq));
        events.append(&mut found);
        seq = seq.max(next);
        if done {
            break;
        }
    }
    Ok((events, seq))
}
