//! `rescue.target`: the report that the machine is reachable, and the end of its session by an operator.
//!
//! ```text
//!   webhook.wait --report "reachable"--> rescue.wait --"finish" of an operator, report, deadline of the session--> cleanup
//!                --report of an end--------------------> cleanup    (a maintenance OS that does not report "reachable")
//! ```
//!
//! Invariants: the first report of "reachable" is stored; a later one is an event, because addresses can change. In a job of another
//! target it is an event and ends no wait. What a machine reports is
//! bounded, addresses are addresses, and a text has no control characters.

use std::net::IpAddr;

use recipe::{Recipe, TaskTarget};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names;
use super::report_outcome::{ReportOutcome, started};
use engine::{Engine, SignalDelivery, SignalError};
use model::{Job, NewEvent, Outcome, Phase, Snapshot};

/// The signal that the machine is reachable.
pub(super) const REACHABLE: &str = "reachable";
/// The signal that an operator ended the session.
pub(super) const FINISH: &str = "finish";
/// The largest number of reported addresses and of reported consoles.
const MAX_LIST: usize = 16;
/// Characters of the name of a console.
const MAX_CONSOLE: usize = 32;
/// Characters of a fingerprint: OpenSSH's form of SHA-256 has 50.
const MAX_FINGERPRINT: usize = 128;

/// The addresses by which a machine in the rescue system is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    /// The addresses of the machine.
    pub addresses: Vec<IpAddr>,
    /// The fingerprint of the SSH host key; without one there is no SSH server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_host_key: Option<String>,
    /// The terminals with a shell.
    pub consoles: Vec<String>,
}

impl Reach {
    /// Builds the value from the members of a report. Malformed members are left out; long ones are cut.
    pub(super) fn reported(
        addresses: Option<&Value>,
        ssh_host_key: Option<&Value>,
        consoles: Option<&Value>,
    ) -> Self {
        let texts = |list: Option<&Value>| -> Vec<String> {
            let items = list.and_then(Value::as_array).into_iter().flatten().take(MAX_LIST);
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let clean = |text: &str, most: usize| -> String {
            text.chars().filter(|letter| letter.is_ascii_graphic()).take(most).collect()
        };
        let ssh_host_key = ssh_host_key.and_then(Value::as_str).map(|text| clean(text, MAX_FINGERPRINT));
        let consoles = texts(consoles).iter().map(|name| clean(name, MAX_CONSOLE)).collect::<Vec<_>>();
        Self {
            addresses: texts(addresses).iter().filter_map(|text| text.parse().ok()).collect(),
            ssh_host_key: ssh_host_key.filter(|text| !text.is_empty()),
            consoles: consoles.into_iter().filter(|name| !name.is_empty()).collect(),
        }
    }

    /// Describes how the machine is reached, as the end of a sentence.
    pub(super) fn describe(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let mut ways = Vec::new();
        match (&self.ssh_host_key, &addresses[..]) {
            (Some(key), []) => {
                ways.push(format!("by SSH as root at an address it did not report, host key {key}"))
            }
            (Some(key), all) => ways.push(format!("by SSH as root at {}, host key {key}", all.join(" or "))),
            (None, []) => {}
            (None, all) => ways.push(format!("at {} without SSH", all.join(" or "))),
        }
        if !self.consoles.is_empty() {
            ways.push(format!("by a shell on its console ({})", self.consoles.join(", ")));
        }
        if ways.is_empty() {
            return "in a way it did not report; see its console".to_owned();
        }
        ways.join(", and ")
    }
}

/// Delivers a report of "reachable"; `by` is the actor of its event. It is durable when this function returns.
///
/// # Errors
/// Returns an error when the store fails.
pub(super) async fn deliver(
    reach: Reach,
    engine: &Engine,
    job: &Job,
    by: &str,
) -> Result<ReportOutcome, SignalError> {
    if job.run.outcome.is_some() {
        return Ok(ReportOutcome::Duplicate);
    }
    let Some((snapshot, _)) = started(engine, job).await? else { return Ok(ReportOutcome::NotStarted) };
    let message = format!("the machine is reachable {}", reach.describe());
    let event = NewEvent::info("report.reachable", message).by(by).with(json!(reach));
    if !is_rescue(&snapshot) {
        // No other job waits for it: the end of an installation is a report of success or failure.
        let (server, now) = (job.run.server.clone(), engine.clock().now());
        engine.store().append(Some(job.run.id), server, vec![event], now).await?;
        return Ok(ReportOutcome::Accepted { powered_on: None });
    }
    let payload = json!(reach);
    match engine.deliver(snapshot, REACHABLE, "", payload.clone(), vec![event.clone()], Vec::new()).await? {
        SignalDelivery::Stored(_) => Ok(ReportOutcome::Accepted { powered_on: None }),
        SignalDelivery::NoRun => Ok(ReportOutcome::NotStarted),
        SignalDelivery::Duplicate(first) if first.payload == payload => Ok(ReportOutcome::Duplicate),
        SignalDelivery::Duplicate(_) => {
            let (server, now) = (job.run.server.clone(), engine.clock().now());
            engine.store().append(Some(job.run.id), server, vec![event], now).await?;
            Ok(ReportOutcome::Accepted { powered_on: None })
        }
    }
}

fn is_rescue(snapshot: &Snapshot) -> bool {
    let recipe = snapshot.recipe.as_ref();
    let recipe = recipe.and_then(|stored| Recipe::accepted(&stored.json, &stored.schema_id).ok());
    recipe.is_some_and(|recipe| recipe.task_target == TaskTarget::Rescue)
}

/// Returns the addresses of the machine of a run, once the machine has reported them.
pub(super) fn reach(snapshot: &Snapshot) -> Option<Reach> {
    let signal = snapshot.signals.iter().find(|signal| signal.name == REACHABLE)?;
    Reach::deserialize(&signal.payload).ok()
}

/// The result of [`finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The session ends, or has ended.
    Accepted,
    /// The job has no session now.
    NoSession,
}

/// Returns whether a job is in a rescue session, which an operator can end.
#[must_use]
pub fn may_finish(job: &Job) -> bool {
    job.run.step.as_ref() == Some(names::AWAIT_SESSION)
        && matches!(job.run.phase, Phase::Running | Phase::Waiting)
        && !job.run.restored
}

/// Ends the rescue session of a job with success; its cleanup runs. It is durable when this function returns, and a repetition changes
/// nothing. With `revision` the job must still be at it.
///
/// # Errors
/// Returns an error when the job has changed since `revision`, or the store fails.
pub async fn finish(
    engine: &Engine,
    job: &Job,
    revision: Option<i64>,
    by: &str,
    reason: &str,
) -> Result<Finished, SignalError> {
    let Some(snapshot) = engine.store().snapshot(job.run.id).await? else { return Ok(Finished::NoSession) };
    let before = snapshot.signals.iter().any(|signal| signal.name == FINISH);
    if before && job.run.outcome.is_none_or(|outcome| outcome == Outcome::Succeeded) {
        return Ok(Finished::Accepted);
    }
    if !may_finish(job) {
        return Ok(Finished::NoSession);
    }
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let event = NewEvent::info("verb.finish", format!("the rescue session was ended by {by}{why}")).by(by);
    let payload = json!({ "by": by, "reason": reason });
    match engine.deliver_at(snapshot, revision, FINISH, "", payload, vec![event], Vec::new()).await? {
        SignalDelivery::Stored(_) | SignalDelivery::Duplicate(_) => Ok(Finished::Accepted),
        SignalDelivery::NoRun => Ok(Finished::NoSession),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(body: &Value) -> Reach {
        Reach::reported(body.get("addresses"), body.get("ssh_host_key"), body.get("consoles"))
    }

    #[test]
    fn what_a_machine_reports_is_bounded_and_described() {
        let reach = reported(&json!({
            "addresses": ["192.0.2.7", "not an address", "fe80::1", 7],
            "ssh_host_key": "SHA256:abc\n\u{1b}[2J", "consoles": ["tty1", "ttyS0"],
        }));
        assert_eq!(
            reach.describe(),
            "by SSH as root at 192.0.2.7 or fe80::1, host key SHA256:abc[2J, and by a shell on its console (tty1, ttyS0)"
        );
        assert_eq!(reported(&json!({ "addresses": ["::1"] })).describe(), "at ::1 without SSH");
        assert_eq!(reported(&json!({})).describe(), "in a way it did not report; see its console");
        let many = reported(
            &json!({ "addresses": vec!["::1"; 99], "ssh_host_key": "k".repeat(999), "consoles": 3 }),
        );
        assert_eq!((many.addresses.len(), many.ssh_host_key.unwrap().len()), (MAX_LIST, MAX_FINGERPRINT));
    }
}
