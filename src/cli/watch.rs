//! Following a job: its events as they happen, until it is complete.
//!
//! ```text
//! GET job ──> GET events after the last seen, page by page ──> complete? ──> done
//!    ^                                                            │ no
//!    └── pause: short after news, longer while nothing happens <──┘
//! ```
//!
//! The job is asked before its events, so that the last event is never missed. A controller that does not answer for
//! a while (a restart, an upgrade) does not end the watch; one that stays away does.

use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::error::CliError;
use super::output::Output;

/// How often is asked, and how long an absent controller is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The pause after something happened.
    pub(super) shortest: Duration,
    /// The pause grows up to this while nothing happens.
    pub(super) longest: Duration,
    /// Questions in a row that may fail.
    pub(super) patience: u32,
}

impl Default for Pace {
    /// An absent controller is waited for about five minutes.
    fn default() -> Self {
        Self { shortest: Duration::from_millis(200), longest: Duration::from_secs(3), patience: 100 }
    }
}

/// How many events one page has at most.
const PAGE: usize = 500;
/// Pages of events that are fetched at most before the job is looked at again.
const MAX_PAGES: usize = 1000;

/// Hands over every event after `seq` until the job is complete, and returns the job.
pub(super) async fn follow(
    client: &Client,
    job: &str,
    mut seq: u64,
    pace: Pace,
    output: &mut Output<'_>,
    show: &mut Show<'_>,
) -> Result<Value, CliError> {
    let mut patience = RetryState::new(pace);
    loop {
        if let Some((state, events, next)) = patience.heard(look(client, job, seq).await, output)? {
            events.iter().try_for_each(|event| show(event, output))?;
            if state["status"] == "complete" {
                return Ok(state);
            }
            patience.news(next > seq);
            seq = next;
        }
        tokio::time::sleep(patience.pause).await;
    }
}

/// Asks for a document until `done` says so, and returns it.
pub(super) async fn until(
    client: &Client,
    path: &[&str],
    pace: Pace,
    output: &mut Output<'_>,
    done: &mut dyn FnMut(&Value, &mut Output<'_>) -> bool,
) -> Result<Value, CliError> {
    let mut patience = RetryState::new(pace);
    let mut last = Value::Null;
    loop {
        if let Some(answer) = patience.heard(client.get(path, &[]).await, output)? {
            if done(&answer.body, output) {
                return Ok(answer.body);
            }
            patience.news(answer.body != last);
            last = answer.body;
        }
        tokio::time::sleep(patience.pause).await;
    }
}

/// Shows one event.
type Show<'a> = dyn FnMut(&Value, &mut Output<'_>) -> Result<(), CliError> + 'a;

/// How long to wait before asking again, and how often the controller was not there.
struct RetryState {
    pace: Pace,
    pause: Duration,
    failures: u32,
}

impl RetryState {
    fn new(pace: Pace) -> Self {
        Self { pace, pause: pace.shortest, failures: 0 }
    }

    /// An answer; nothing when the controller may be back in a moment.
    fn heard<T>(
        &mut self,
        answer: Result<T, CliError>,
        output: &mut Output<'_>,
    ) -> Result<Option<T>, CliError> {
        match answer {
            Ok(answer) => {
                if self.failures > 0 {
                    output.note("the controller answers again");
                }
                self.failures = 0;
                Ok(Some(answer))
            }
            Err(error) if error.passes() && self.failures < self.pace.patience => {
                if self.failures == 0 {
                    output.note(format!("{error}; still trying"));
                }
                self.failures += 1;
                self.news(false);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn news(&mut self, any: bool) {
        self.pause = if any { self.pace.shortest } else { (self.pause * 2).min(self.pace.longest) };
    }
}

/// The job, and then its events.
async fn look(client: &Client, job: &str, after: u64) -> Result<(Value, Vec<Value>, u64), CliError> {
    let state = client.get(&["jobs", job], &[]).await?.body;
    let (events, next) = events(client, job, after).await?;
    Ok((state, events, next))
}

/// All events there are after `seq`, and the place to go on from.
pub(super) async fn events(client: &Client, job: &str, after: u64) -> Result<(Vec<Value>, u64), CliError> {
    let path = ["jobs", job, "events"];
    let mut events = Vec::new();
    let mut seq = after;
    for _ in 0..MAX_PAGES {
        let query = [("after", seq.to_string()), ("limit", PAGE.to_string())];
        let mut page = client.get(&path, &query).await?.body;
        let Some(Value::Array(mut found)) = page.get_mut("events").map(Value::take) else {
            return Err(client.foreign(&path, "there is no list of events in it"));
        };
        let last = found.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap_or(seq);
        let next = page["next"].as_u64().unwrap_or(last).max(last);
        let done = found.is_empty() || next <= seq;
        // A page that goes backwards would be shown twice.
        found.retain(|event| event["seq"].as_u64().is_none_or(|number| number > seq));
        events.append(&mut found);
        seq = seq.max(next);
        if done {
            break;
        }
    }
    Ok((events, seq))
}
