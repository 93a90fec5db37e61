//! Reports to the controller: progress as a wish, the final report until it is acknowledged.
//!
//! ```text
//! progress(step, percent) --one attempt, at most one per 5 s and step--> POST webhook_url
//! begin_writing(step)     --200--> the disk may be written    --refused, or no response for ten minutes--> nothing is written
//! progress after the first write --401 404 409 of the controller, for 30 s--> the step ends, and the job with it
//! deliver(final or reachable) --200--> acknowledged      --400 401 404 409 of the controller--> refused, not repeated
//!                --429, 5xx, no response, another program refuses--> pause 1 s, 2 s, 4 s … 60 s or Retry-After, and again
//! ```
//!
//! Invariants: the token is in the header and nowhere else. A report has at most 64 KiB: the tail of the log fills what
//! the other fields leave. A repetition has the same `delivery_id`. docs/maintenance-os.md, section "Reporting".

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use beacon::Class;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Clock;
use crate::erase::Erased;
use crate::facts::DiskFacts;
use crate::http::{Http, Method, Request};
use crate::inventory::Inventory;
use crate::job::Job;
use crate::log::Log;
use crate::medium::MediumVolume;
use crate::outcome::{self, Outcome};
use crate::rescue::RescueReach;
use crate::transmit::{Fault, Transmitter};

const SECRET_HEADER: &str = "x-webhook-secret";
const VERSION: &str = concat!("shoal-agent/", env!("CARGO_PKG_VERSION"));
/// The unit under which delivery is logged.
const UNIT: &str = "provision-report.service";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a progress report without a response: a controller that is away must not slow the installation.
const PROGRESS_PAUSE_AWAY: Duration = Duration::from_secs(120);
/// How long the controller is waited for before the first write.
const CONFIRM_TIME: Duration = Duration::from_secs(600);
/// How long refusals without the error of the controller are repeated: a proxy gives them while its controller starts.
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// Maximum length of an error of the controller in bytes.
const MAX_ERROR: u64 = 64 * 1024;
/// Maximum length of `message` in characters, as the controller keeps it.
const MAX_MESSAGE: usize = 1000;
/// Maximum length of `failed_step` in characters.
const MAX_STEP: usize = 256;
/// Maximum length of the line of another disk in characters, and the number of such lines.
const MAX_DISK: usize = 100;
const MAX_MORE: usize = 6;
/// Bytes of the log in a report. JSON can make two bytes of one, an inventory has up to 32 KiB, and the limit of the
/// controller is 64 KiB for all.
const LOG_BYTES: usize = 12 * 1024;

/// How the delivery of the final report ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportDelivery {
    /// The controller acknowledged the report.
    Acknowledged,
    /// The controller refused the report for good, with this status.
    Refused(u16),
    /// The time for the delivery ended.
    GaveUp,
    /// The report was sent as reads of the medium, which nothing acknowledges.
    Said,
}

/// The response to the report that a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The controller accepts reports of this job.
    Accepted,
    /// The controller does not await this job, with this status.
    Refused(u16),
    /// Another status, or one that is not the controller's: a proxy in front of it refuses while it starts.
    Other(u16),
}

/// Why a repeated report was not acknowledged.
enum Unacknowledged {
    /// The controller refused the report for good, with this status.
    Refused(u16),
    /// The time for the delivery ended; the last reason.
    GaveUp(String),
}

/// The response to a report.
struct Reply {
    status: u16,
    retry_after: Option<Duration>,
    /// Whether the body has the form of an error of the controller: a proxy in front of it can refuse too.
    is_own: bool,
}

/// The fields that every error of the controller has. docs/errors.md
#[derive(Deserialize)]
struct ControllerError {
    #[serde(rename = "error")]
    _code: String,
    #[serde(rename = "request_id")]
    _request: String,
}

#[derive(Serialize)]
struct Body<'a> {
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The failure class.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u8>,
    /// The bytes of the OS image that were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// The bytes of the OS image.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    job_id: Uuid,
    delivery_id: Uuid,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    schema_id: &'a str,
    dispatcher_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inventory: Option<Inventory>,
    /// How the machine is reached, of the report `reachable`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    reach: Option<&'a RescueReach>,
}

/// The disk of a run, for the record of the server.
#[derive(Clone, Serialize)]
struct DiskIdentity {
    name: String,
    bytes: u64,
    serial: Option<String>,
    wwn: Option<String>,
    model: Option<String>,
    /// Whether a step that writes has begun.
    written: bool,
    /// The other disks of the run, each as one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<String>,
    /// How `erase.target` erased it.
    #[serde(skip_serializing_if = "Option::is_none")]
    erased: Option<Erased>,
}

/// The way of the reports.
enum Channel<'run> {
    Http(&'run dyn Http),
    Medium(Box<Transmitter<'run>>),
}

/// How long the controller must refuse progress until the job has ended for it: one that starts can refuse what it accepts later.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Refusals of progress, one after the other.
#[derive(Clone, Copy)]
struct Refusals {
    first: Duration,
    last: Duration,
    status: u16,
}

/// Sends the reports of one run.
pub struct Reporter<'run> {
    channel: Channel<'run>,
    /// Why the OS image could not be read, as far as its reader knows it.
    fault: Fault,
    clock: &'run dyn Clock,
    job: &'run Job,
    log: &'run Log,
    started_at: Timestamp,
    /// The step of the last progress report, and when the next one is sent.
    last: Mutex<Option<(String, Duration)>>,
    disk: Mutex<Option<DiskIdentity>>,
    inventory: Mutex<Option<Inventory>>,
    /// The time that the controller said in its last response.
    date: Mutex<Option<Timestamp>>,
    /// The refusals of progress after the first write, without an accepted report between them.
    refusals: Mutex<Option<Refusals>>,
}

impl<'run> Reporter<'run> {
    /// Creates the reporter of a job.
    #[must_use]
    pub fn new(http: &'run dyn Http, clock: &'run dyn Clock, job: &'run Job, log: &'run Log) -> Self {
        Self::by(Channel::Http(http), clock, job, log)
    }

    /// Creates the reporter of a job that reports by reads of its medium.
    #[must_use]
    pub fn by_medium(
        clock: &'run dyn Clock,
        job: &'run Job,
        log: &'run Log,
        volume: Result<&MediumVolume, String>,
    ) -> Self {
        Self::by(Channel::Medium(Box::new(Transmitter::new(clock, job, log, volume))), clock, job, log)
    }

    /// Returns the place in which a reader of the OS image leaves the class of its failure.
    pub fn fault(&self) -> Fault {
        Fault::clone(&self.fault)
    }

    /// Keeps the class of the failure that follows. The first one is the cause of the others.
    pub fn has_failed(&self, class: Class) {
        let _ = self.fault.set(class);
    }

    fn by(channel: Channel<'run>, clock: &'run dyn Clock, job: &'run Job, log: &'run Log) -> Self {
        let fault = match &channel {
            Channel::Http(_) => Fault::default(),
            Channel::Medium(transmitter) => transmitter.fault(),
        };
        Self {
            channel,
            fault,
            clock,
            job,
            log,
            started_at: clock.now(),
            last: Mutex::new(None),
            disk: Mutex::new(None),
            inventory: Mutex::new(None),
            date: Mutex::new(None),
            refusals: Mutex::new(None),
        }
    }

    /// Sets the disk of the run, and the others that it writes. Every later report names them.
    pub fn set_disk(&self, disk: &DiskFacts, more: &[DiskFacts]) {
        // The controller keeps a bounded text; the log names each disk.
        let more = more.iter().map(|disk| disk.shown().chars().take(MAX_DISK).collect()).take(MAX_MORE);
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(DiskIdentity {
            name: disk.name.clone(),
            bytes: disk.bytes,
            serial: disk.serial.clone(),
            wwn: disk.wwn.clone(),
            model: disk.model.clone(),
            written: false,
            more: more.collect(),
            erased: None,
        });
    }

    /// Reports that a step begins to write to the disks of the run. The first time it returns when the controller has stored which
    /// disk is written, so that no later run of the job writes another one. Later it is a report of progress.
    ///
    /// # Errors
    /// Returns the reason why nothing may be written: the controller refuses it, or has not responded for ten minutes, or has ended the
    /// job since.
    pub fn begin_writing(&self, step: &str, percent: u8) -> Result<(), String> {
        let first = self.set_written(true);
        match &self.channel {
            // Nothing is written after a failure, and no later report may say so: a retry would keep to this disk.
            Channel::Http(_) if first => self.confirm(step, percent).inspect_err(|_| {
                self.set_written(false);
            }),
            _ => {
                self.progress(step, percent);
                self.is_awaited()
            }
        }
    }

    /// Checks that the controller has not ended the job since the first write: it refuses progress of a job that was cancelled, and
    /// cannot switch off a machine whose BMC is away. Steps that write for hours call this on their way.
    ///
    /// # Errors
    /// Returns a sentence with the status of the refusal.
    pub fn is_awaited(&self) -> Result<(), String> {
        match *self.refusals.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Refusals { first, last, status }) if last.saturating_sub(first) >= REFUSED_FOR => {
                Err(format!(
                    "the controller ended this job: it refuses reports with {status}; the disk is not complete"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Sets whether a step that writes has begun. Returns whether that is new; `false` before the disk is set.
    fn set_written(&self, written: bool) -> bool {
        match &mut *self.disk.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(disk) => std::mem::replace(&mut disk.written, written) != written,
            None => false,
        }
    }

    /// Repeats a report of progress until the controller acknowledges it.
    fn confirm(&self, step: &str, percent: u8) -> Result<(), String> {
        let body = Body { step: Some(step), percent: Some(percent.min(100)), ..self.body("progress") };
        self.repeat(&body, Some(CONFIRM_TIME)).map_err(|unacknowledged| match unacknowledged {
            Unacknowledged::Refused(status) => {
                format!("nothing was written: the controller refuses with {status} that this run writes to the disk")
            }
            Unacknowledged::GaveUp(reason) => {
                format!("nothing was written: the controller does not know the disk of this run: {reason}")
            }
        })
    }

    /// Sets how the disk of the run was erased. Does nothing before the disk is set.
    pub fn set_erased(&self, erased: Erased) {
        if let Some(disk) = &mut *self.disk.lock().unwrap_or_else(PoisonError::into_inner) {
            disk.erased = Some(erased);
        }
    }

    /// Returns the time that the controller said in its last response.
    #[must_use]
    pub fn date(&self) -> Option<Timestamp> {
        *self.date.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the inventory, which the final report carries.
    pub fn set_inventory(&self, inventory: Inventory) {
        *self.inventory.lock().unwrap_or_else(PoisonError::into_inner) = Some(inventory);
    }

    /// Reports the progress of a step. One attempt; a failure is ignored. Returns at once when the step was reported less
    /// than five seconds ago, or two minutes after a failure.
    pub fn progress(&self, step: &str, percent: u8) {
        self.report(step, percent, None);
    }

    /// Reports the progress of a step that reads the OS image, as [`Reporter::progress`] does: of `total` bytes `bytes` were read.
    pub fn reading(&self, step: &str, percent: u8, bytes: u64, total: u64) {
        self.report(step, percent, Some((bytes, total)));
    }

    fn report(&self, step: &str, percent: u8, read: Option<(u64, u64)>) {
        if let Channel::Medium(transmitter) = &self.channel {
            transmitter.progress(step);
            return;
        }
        let now = self.clock.elapsed();
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((known, next)) = &*last
                && known == step
                && now < *next
            {
                return;
            }
            *last = Some((step.to_owned(), now + PROGRESS_PAUSE));
        }
        let (bytes, total) = read.unzip();
        let body =
            Body { step: Some(step), percent: Some(percent.min(100)), bytes, total, ..self.body("progress") };
        match self.post(&body) {
            // Only the controller itself says so, not a proxy while its controller starts.
            Ok(Reply { status: status @ (401 | 404 | 409), is_own: true, .. })
                if body.disk.as_ref().is_some_and(|disk| disk.written) =>
            {
                let now = self.clock.elapsed();
                let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
                let first = refusals.map_or(now, |known| known.first);
                *refusals = Some(Refusals { first, last: now, status });
            }
            Ok(Reply { status: 200..300, .. }) => {
                *self.refusals.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            Ok(_) => {}
            Err(_) => {
                let next = self.clock.elapsed() + PROGRESS_PAUSE_AWAY;
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((step.to_owned(), next));
            }
        }
    }

    /// Reports that a step begins, in one attempt, and returns whether the controller accepts reports of this job.
    ///
    /// # Errors
    /// Returns the reason when there is no response.
    pub fn announce(&self, step: &str) -> Result<Announced, String> {
        let body = Body { step: Some(step), percent: Some(0), ..self.body("progress") };
        let Reply { status, is_own, .. } = self.post(&body)?;
        Ok(match status {
            200..=299 => Announced::Accepted,
            400 | 401 | 403 | 404 | 409 | 410 if is_own => Announced::Refused(status),
            status => Announced::Other(status),
        })
    }

    /// Sends the final report, or the one that the machine is reachable, until the controller acknowledges or refuses it, or until `limit` has passed.
    #[must_use]
    pub fn deliver(&self, outcome: &Outcome, limit: Option<Duration>) -> ReportDelivery {
        if let Channel::Medium(transmitter) = &self.channel {
            transmitter.deliver(outcome, limit);
            return ReportDelivery::Said;
        }
        let ended = |status| Body {
            finished_at: Some(self.clock.now()),
            inventory: self.inventory.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            log: Some(self.log.tail(LOG_BYTES)),
            ..self.body(status)
        };
        let body = match outcome {
            Outcome::Success => ended("success"),
            Outcome::Failed { step, message } => {
                let class = outcome::class(self.fault.get().copied(), step).failure_class();
                let (failed_step, message) =
                    (Some(bounded(step, MAX_STEP)), Some(bounded(message, MAX_MESSAGE)));
                Body { failed_step, message, class: Some(class), ..ended("failed") }
            }
            // The run goes on: this report ends nothing.
            Outcome::Reachable(reach) => Body { reach: Some(reach), ..self.body("reachable") },
        };
        match self.repeat(&body, limit) {
            Ok(()) => {
                self.log.line(UNIT, "the controller acknowledged the report");
                ReportDelivery::Acknowledged
            }
            Err(Unacknowledged::Refused(status)) => {
                self.log.line(UNIT, format!("the controller refused the report with {status}"));
                ReportDelivery::Refused(status)
            }
            Err(Unacknowledged::GaveUp(_)) => ReportDelivery::GaveUp,
        }
    }

    /// Sends a report until the controller acknowledges or refuses it, or until `limit` has passed. A refusal without the error of the
    /// controller counts when nothing else was responded for [`REFUSAL_TIME`].
    fn repeat(&self, body: &Body<'_>, limit: Option<Duration>) -> Result<(), Unacknowledged> {
        let begun = self.clock.elapsed();
        let mut pause = FIRST_PAUSE;
        // When the refusals that follow each other began.
        let mut refused = None;
        loop {
            let now = self.clock.elapsed();
            let (reason, wait) = match self.post(body) {
                Ok(Reply { status: 200..=299, .. }) => return Ok(()),
                Ok(Reply { status, is_own, .. }) if is_refusal(status) => {
                    let since = *refused.get_or_insert_with(|| {
                        pause = FIRST_PAUSE;
                        now
                    });
                    if is_own || now.saturating_sub(since) >= REFUSAL_TIME {
                        return Err(Unacknowledged::Refused(status));
                    }
                    (format!("{status} without the error of a controller"), pause)
                }
                Ok(Reply { status, retry_after, .. }) => {
                    refused = None;
                    (format!("the controller responded with {status}"), retry_after.unwrap_or(pause))
                }
                Err(reason) => {
                    refused = None;
                    (reason, pause)
                }
            };
            self.log.line(UNIT, format!("{reason}; the report is repeated"));
            // Whatever a proxy asks for: the wait before the first write has its whole time.
            let wait = wait.min(LONGEST_PAUSE);
            if limit.is_some_and(|limit| self.clock.elapsed().saturating_sub(begun) + wait > limit) {
                return Err(Unacknowledged::GaveUp(reason));
            }
            self.clock.sleep(wait);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn body<'a>(&'a self, status: &'a str) -> Body<'a> {
        // Derived from job and start: a repetition keeps it, another run of the same job has another.
        let name = format!("{}/{}/{status}", self.job.job_id, self.started_at);
        Body {
            status,
            failed_step: None,
            message: None,
            class: None,
            step: None,
            percent: None,
            bytes: None,
            total: None,
            job_id: self.job.job_id,
            delivery_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            started_at: self.started_at,
            finished_at: None,
            schema_id: &self.job.recipe_schema_id,
            dispatcher_version: VERSION,
            log: None,
            inventory: None,
            reach: None,
            disk: self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn post(&self, body: &Body<'_>) -> Result<Reply, String> {
        let bytes = serde_json::to_vec(body).map_err(|source| source.to_string())?;
        let request = Request { method: Method::Post, body: bytes, ..Request::get(&self.job.webhook_url) }
            .with("content-type", "application/json")
            .with(SECRET_HEADER, &self.job.webhook_token);
        let Channel::Http(http) = &self.channel else { return Err("there is no network".to_owned()) };
        let response = http.send(&request).map_err(|source| source.to_string())?;
        let retry_after = response
            .header("retry-after")
            .and_then(|value| value.trim().parse().ok())
            .map(Duration::from_secs);
        let date = response.header("date").and_then(|value| jiff::fmt::rfc2822::parse(value.trim()).ok());
        if let Some(date) = date {
            *self.date.lock().unwrap_or_else(PoisonError::into_inner) = Some(date.timestamp());
        }
        let status = response.status;
        let is_own = is_refusal(status)
            && response
                .bytes(MAX_ERROR)
                .is_ok_and(|bytes| serde_json::from_slice::<ControllerError>(&bytes).is_ok());
        Ok(Reply { status, retry_after, is_own })
    }
}

/// Whether a status is one that a repetition does not change.
fn is_refusal(status: u16) -> bool {
    !matches!(status, 200..=299 | 408 | 425 | 429) && status < 500
}

/// Cuts a text to a number of characters by leaving out its middle: the beginning says what failed, and the end why.
fn bounded(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head = most / 2;
    let tail = most - head - 1;
    let kept = |(index, letter)| match index {
        _ if index < head || index >= count - tail => Some(letter),
        _ if index == head => Some('…'),
        _ => None,
    };
    text.chars().enumerate().filter_map(kept).collect()
}

#[cfg(test)]
mod tests;
