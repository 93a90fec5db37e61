//! The installation report: `POST webhook_url` with the token of the job, until the controller acknowledges or refuses it,
//! or no attempts are left.
//!
//! See docs/maintenance-os.md.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::behaviour::unit;
use super::documents::JobDocument;
use super::select_disk::DiskIdentity;
use crate::backoff::Backoff;

const SECRET_HEADER: &str = "X-Webhook-Secret";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The value of `dispatcher_version`.
const DISPATCHER_VERSION: &str = concat!("shoal-sim/", env!("CARGO_PKG_VERSION"));

/// The address that a simulated rescue system reports; no client can connect there.
const RESCUE_ADDRESS: &str = "192.0.2.7";
const RESCUE_HOST_KEY: &str = "SHA256:c2ltdWxhdGVkIGhvc3Qga2V5IG9mIHRoZSByZXNjdWU";

/// The end of the delivery of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportDelivery {
    /// No report was sent: the installer is configured so, or there is no task.
    NotSent,
    /// The report was said by reads of the medium, which nothing acknowledges.
    Said,
    /// The controller acknowledged the report with 2xx.
    Acknowledged {
        /// Number of attempts.
        attempts: u32,
    },
    /// The controller refused the report with a permanent status.
    Refused {
        /// The status code.
        status: u16,
    },
    /// The controller did not acknowledge the report.
    GaveUp {
        /// Number of attempts.
        attempts: u32,
        /// The failure of the last attempt.
        reason: String,
    },
}

/// The body of a report.
#[derive(Debug, Serialize)]
pub(super) struct ReportBody<'job> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_step: Option<&'job str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'job str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'job str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh_host_key: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consoles: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskIdentity>,
    job_id: &'job str,
    delivery_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_target: Option<&'job str>,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    schema_id: &'job str,
    dispatcher_version: &'static str,
}

/// Sends the reports of one run of the installer.
pub(super) struct Reporter {
    client: reqwest::Client,
    job: JobDocument,
    generation: u64,
    started_at: Timestamp,
    cancel: CancellationToken,
    disk: Mutex<Option<DiskIdentity>>,
}

impl Reporter {
    pub(super) fn new(
        client: reqwest::Client,
        job: JobDocument,
        generation: u64,
        started_at: Timestamp,
        cancel: CancellationToken,
    ) -> Self {
        Self { client, job, generation, started_at, cancel, disk: Mutex::default() }
    }

    /// Sets the disk that the next reports name.
    pub(super) fn set_disk(&self, disk: DiskIdentity) {
        *self.disk.lock() = Some(disk);
    }

    /// Sets that a unit begins to write to the disk.
    pub(super) fn set_written(&self) {
        if let Some(disk) = &mut *self.disk.lock() {
            disk.written = true;
        }
    }

    /// Builds the report of a success.
    pub(super) fn success<'job>(&'job self, task_target: &'job str) -> ReportBody<'job> {
        ReportBody { task_target: Some(task_target), ..self.report("success", "success") }
    }

    /// Builds the report of a failure.
    pub(super) fn failed<'job>(
        &'job self,
        task_target: Option<&'job str>,
        failed_step: &'job str,
        message: &'job str,
    ) -> ReportBody<'job> {
        // The recipe does not fit the disks of this machine.
        let class = (failed_step == unit::SELECT_DISK).then_some("input");
        let (failed_step, message) = (Some(failed_step), Some(message));
        ReportBody { failed_step, message, class, task_target, ..self.report("failed", "failed") }
    }

    /// Builds the report that an operator can reach the rescue system.
    pub(super) fn reachable(&self, has_ssh: bool) -> ReportBody<'_> {
        ReportBody {
            addresses: Some([RESCUE_ADDRESS]),
            ssh_host_key: has_ssh.then_some(RESCUE_HOST_KEY),
            consoles: Some(["tty1"]),
            finished_at: None,
            ..self.report("reachable", "reachable")
        }
    }

    /// Reports that a unit starts. A failed request is ignored.
    pub(super) async fn progress(&self, step: &str, percent: u8) {
        let report = ReportBody {
            step: Some(step),
            percent: Some(percent),
            finished_at: None,
            ..self.report("progress", &format!("progress {step}"))
        };
        let _ = self.post(&report).await;
    }

    /// Sends a report until it is acknowledged or refused, no attempts are left, or the power goes off.
    pub(super) async fn deliver(&self, report: &ReportBody<'_>, backoff: Backoff) -> ReportDelivery {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let posted = tokio::select! {
                biased;
                posted = self.post(report) => posted,
                () = self.cancel.cancelled() => return power_lost(attempts),
            };
            let reason = match posted {
                Ok(status) if (200..300).contains(&status) => {
                    return ReportDelivery::Acknowledged { attempts };
                }
                Ok(status) if !(status >= 500 || matches!(status, 408 | 425 | 429)) => {
                    return ReportDelivery::Refused { status };
                }
                Ok(status) => format!("the controller responded with {status}"),
                Err(source) => super::media::chain(&source),
            };
            let Some(delay) = backoff.delay_after(attempts) else {
                return ReportDelivery::GaveUp { attempts, reason };
            };
            tokio::select! {
                () = self.cancel.cancelled() => return power_lost(attempts),
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    async fn post(&self, report: &ReportBody<'_>) -> Result<u16, reqwest::Error> {
        let response = self
            .client
            .post(&self.job.webhook_url)
            .header(SECRET_HEADER, &self.job.webhook_token)
            .timeout(REQUEST_TIMEOUT)
            .json(report)
            .send()
            .await?;
        Ok(response.status().as_u16())
    }

    fn report(&self, status: &'static str, what: &str) -> ReportBody<'_> {
        // The delivery id is derived, not random: a repeated report keeps it, and a run is reproducible.
        let name = format!("{}/{}/{what}", self.job.job_id, self.generation);
        ReportBody {
            status,
            failed_step: None,
            message: None,
            class: None,
            step: None,
            percent: None,
            addresses: None,
            ssh_host_key: None,
            consoles: None,
            disk: self.disk.lock().clone(),
            job_id: &self.job.job_id,
            delivery_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            task_target: None,
            started_at: self.started_at,
            finished_at: Some(Timestamp::now()),
            schema_id: &self.job.recipe_schema_id,
            dispatcher_version: DISPATCHER_VERSION,
        }
    }
}

fn power_lost(attempts: u32) -> ReportDelivery {
    ReportDelivery::GaveUp { attempts, reason: "the power went off".to_owned() }
}
