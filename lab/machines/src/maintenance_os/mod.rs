//! The simulated maintenance OS: what an installer does between power-on and its report.
//!
//! ```text
//! power on ──► boot medium ──► task volume ──► recipe ──► partition ──► image ──► bootloader ──► report
//!                 │                │             │            └───────────┴───────────┘             │
//!             NotBootable       Refused        failed: provision-dispatcher      failed: the unit   ▼
//!            (hangs, silent)   (silent)                                                       InstallResult
//!
//! power off, at any time: all work stops, nothing more is written or sent (PowerLost)
//! ```
//!
//! Invariants
//! - The maintenance OS knows only what a machine knows: DMI serial number, disks, drives. It reads the task from an ISO
//!   9660 image by HTTP ranges, pulls the OS image from a real registry, and validates the recipe against the schema in
//!   the task image.
//! - A disk is written only after the serial number was compared and the recipe was accepted.
//! - No task outlives its boot: [`MaintenanceOs::run`] returns after its last blocking task has ended.
//! - No document type is shared with the controller: module `documents` has separate types.
//!
//! What an installer may do wrong is data: [`InstallerBehaviour`]. `install-linux.target` and `rescue.target` exist. The
//! dispatcher refuses any other target, as on a maintenance OS that lacks its units.
//!
//! See docs/maintenance-os.md.

mod behaviour;
mod dispatcher;
mod documents;
mod install;
mod media;
mod medium;
mod report;
mod select_disk;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use beacon::{BeaconStep, Class, Message};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    behaviour::{AfterReport, InstallerBehaviour, unit},
    report::ReportDelivery,
};
use self::{
    dispatcher::{Dispatched, RescueTask},
    documents::{JobDocument, TaskFiles},
    install::{Installer, UnitFailure},
    media::{Drive, FoundMedia, chain, find_task},
    medium::TaskMedium,
    report::Reporter,
};
use crate::{
    console::{Console, MachineConsole},
    disk::Installed,
    http::{self, HttpError},
    http_disc::{DiscOptions, HttpDisc},
    machine::Machine,
};

/// Limit of concurrent blocking tasks of all machines.
const BLOCKING_PERMITS: usize = 64;
/// Maximum length of a reason in characters.
const MAX_REASON_CHARS: usize = 1000;

/// The tools that all machines of a farm share: HTTP clients and a limit of blocking tasks.
#[derive(Clone, Debug)]
pub struct Tools {
    media: reqwest::Client,
    api: reqwest::Client,
    permits: Arc<Semaphore>,
    /// Limits for reading virtual CDs.
    pub disc: DiscOptions,
}

impl Tools {
    /// Creates the clients and default limits.
    ///
    /// # Errors
    /// Returns an error if TLS cannot be configured.
    pub fn new() -> Result<Self, HttpError> {
        Ok(Self {
            media: http::media_client()?,
            api: http::api_client(None)?,
            permits: Arc::new(Semaphore::new(BLOCKING_PERMITS)),
            disc: DiscOptions::default(),
        })
    }

    /// Runs blocking work when a permit is free. Returns an error if the work did not run to its end.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        tracker: &TaskTracker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|source| source.to_string())?;
        let task = tracker.spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        task.await.map_err(|source| format!("the work did not end: {source}"))
    }
}

/// A medium that is in a drive at boot.
#[derive(Clone)]
pub struct Medium {
    /// Name of the drive.
    pub slot: String,
    /// URL of the image. The URL is a secret and never appears in output.
    pub url: String,
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Medium({}: …/{})", self.slot, self.url.rsplit('/').next().unwrap_or_default())
    }
}

/// A boot from media.
#[derive(Clone, Debug)]
pub struct MediaBoot {
    /// Number of the machine's boot, counted from 1.
    pub generation: u64,
    /// Name of the drive that was booted.
    pub booted: String,
    /// All media in drives, including the boot medium.
    pub media: Vec<Medium>,
    /// Cancelled when the power goes off.
    pub cancel: CancellationToken,
}

/// The end of a run of the maintenance OS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallOutcome {
    /// The disk holds the OS image and boots.
    Succeeded(Box<Installed>),
    /// The rescue system ended by itself. No disk was written.
    Rescued,
    /// A unit failed.
    Failed {
        /// Name of the unit.
        failed_step: String,
        /// The reason.
        reason: String,
    },
    /// There is no task for this machine. No disk was written.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The boot medium is not a maintenance image. The machine hangs.
    NotBootable {
        /// The reason.
        reason: String,
    },
    /// The power went off before the run ended.
    PowerLost,
}

/// The result of one run of the maintenance OS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallResult {
    /// The job, if its task was found.
    pub job_id: Option<String>,
    /// The end of the run.
    pub outcome: InstallOutcome,
    /// Whether the controller acknowledged the report.
    pub delivery: ReportDelivery,
}

/// The maintenance OS of one machine.
#[derive(Clone, Debug)]
pub struct MaintenanceOs {
    machine: Arc<Machine>,
    behaviour: InstallerBehaviour,
    tools: Tools,
    console: Console,
}

/// The state after the installation and before the report.
struct Attempt {
    outcome: InstallOutcome,
    /// The medium by which the machine reports; `None` when it reports by the network.
    medium: Option<Arc<TaskMedium>>,
    reporter: Option<Reporter>,
    target: Option<String>,
}

impl Attempt {
    fn silent(outcome: InstallOutcome) -> Self {
        Self { outcome, medium: None, reporter: None, target: None }
    }
}

impl MaintenanceOs {
    /// Creates the maintenance OS of `machine`.
    #[must_use]
    pub fn new(machine: Arc<Machine>, behaviour: InstallerBehaviour, tools: Tools, console: Console) -> Self {
        Self { machine, behaviour, tools, console }
    }

    /// Runs from power-on to the report, or until the power goes off.
    pub async fn run(&self, boot: MediaBoot) -> InstallResult {
        let console = self.console.of(&self.machine.serial, boot.generation);
        let tracker = TaskTracker::new();
        let mut job_id = None;
        let mut attempt = tokio::select! {
            biased;
            attempt = Box::pin(self.attempt(&boot, &console, &tracker, &mut job_id)) => attempt,
            () = boot.cancel.cancelled() => Attempt::silent(InstallOutcome::PowerLost),
        };
        if boot.cancel.is_cancelled() && !matches!(attempt.outcome, InstallOutcome::Succeeded(_)) {
            // A read that failed because the power went off is not a failure of the medium or of a unit.
            attempt = Attempt::silent(InstallOutcome::PowerLost);
        }
        let (unit, text) = summary(&attempt.outcome);
        console.print(unit, text);
        let delivery = self.report(&attempt, &console).await;
        // Blocking tasks that still run end when they see the cancelled token; no task may outlive this boot.
        tracker.close();
        tracker.wait().await;
        InstallResult { job_id, outcome: attempt.outcome, delivery }
    }

    async fn attempt(
        &self,
        boot: &MediaBoot,
        console: &MachineConsole,
        tracker: &TaskTracker,
        job_id: &mut Option<String>,
    ) -> Attempt {
        let started_at = Timestamp::now();
        let found = match self.read_media(boot, console, tracker).await {
            Ok(found) => found,
            Err(reason) => FoundMedia::NotBootable { reason },
        };
        let (job, files) = match found {
            FoundMedia::Task(files) => (files.job.clone(), Ok(files)),
            FoundMedia::Damaged { job, reason } => (*job, Err(reason)),
            FoundMedia::Refused { reason } => return Attempt::silent(InstallOutcome::Refused { reason }),
            FoundMedia::NotBootable { reason } => {
                return Attempt::silent(InstallOutcome::NotBootable { reason });
            }
        };
        *job_id = Some(job.job_id.clone());
        let http = match &job.controller_ca {
            None => self.tools.api.clone(),
            Some(ca) => match http::api_client(Some(ca)) {
                Ok(client) => client,
                // Without a trusted CA no report can be sent.
                Err(source) => return Attempt::silent(failed(unit::DISPATCHER, chain(&source))),
            },
        };
        let reporter = Reporter::new(http.clone(), job, boot.generation, started_at, boot.cancel.clone());
        let mut medium = None;
        let (outcome, target) = match files {
            Err(reason) => (failed(unit::DISPATCHER, reason), None),
            Ok(files) => match self.medium_of(boot, tracker, &files).await {
                Ok(found) => {
                    medium = found;
                    self.carry_out(boot, console, tracker, &http, (&reporter, medium.as_ref()), *files).await
                }
                Err(reason) => (failed(unit::DISPATCHER, reason), None),
            },
        };
        Attempt { outcome, medium, reporter: Some(reporter), target }
    }

    async fn read_media(
        &self,
        boot: &MediaBoot,
        console: &MachineConsole,
        tracker: &TaskTracker,
    ) -> Result<FoundMedia, String> {
        let mut drives: Vec<Drive<Arc<HttpDisc>>> = Vec::with_capacity(boot.media.len());
        let mut booted = None;
        for medium in &boot.media {
            let opened =
                HttpDisc::open(self.tools.media.clone(), &medium.url, self.tools.disc, boot.cancel.clone())
                    .await;
            match opened {
                Ok(disc) => {
                    if medium.slot == boot.booted {
                        booted = Some(drives.len());
                    }
                    drives.push(Drive { slot: medium.slot.clone(), disc: Arc::new(disc) });
                }
                Err(source) if medium.slot == boot.booted => {
                    return Err(format!("{} cannot be read: {}", medium.slot, chain(&source)));
                }
                Err(source) => {
                    console.print(unit::KERNEL, format!("{}: skipped: {}", medium.slot, chain(&source)))
                }
            }
        }
        let booted = booted.ok_or_else(|| format!("{} is not one of the media", boot.booted))?;
        let discs: Vec<_> =
            drives.iter().map(|drive| (drive.slot.clone(), Arc::clone(&drive.disc))).collect();
        let (serial, machine_console) = (self.machine.serial.clone(), console.clone());
        let found = self
            .tools
            .blocking(tracker, move || find_task(drives, booted, &serial, &machine_console))
            .await?;
        for (slot, disc) in discs {
            let counters = disc.counters();
            let text = format!("{slot}: {} bytes read in {} requests", counters.bytes, counters.requests);
            console.print(unit::DISPATCHER, text);
        }
        Ok(found)
    }

    /// Opens the medium of a task with `delivery: media`; `None` for the others.
    async fn medium_of(
        &self,
        boot: &MediaBoot,
        tracker: &TaskTracker,
        files: &TaskFiles,
    ) -> Result<Option<Arc<TaskMedium>>, String> {
        if !documents::is_by_media(&files.recipe) {
            return Ok(None);
        }
        let mut discs = Vec::with_capacity(boot.media.len());
        for medium in &boot.media {
            let client = self.tools.media.clone();
            let opened = HttpDisc::open(client, &medium.url, self.tools.disc, boot.cancel.clone()).await;
            discs.extend(opened.ok().map(Arc::new));
        }
        let job = files.job.clone();
        let found = self.tools.blocking(tracker, move || TaskMedium::find(&discs, &job)).await??;
        found.say(Message::Started, self.behaviour.beacon_pause).await;
        Ok(Some(Arc::new(found)))
    }

    async fn carry_out(
        &self,
        boot: &MediaBoot,
        console: &MachineConsole,
        tracker: &TaskTracker,
        http: &reqwest::Client,
        (reporter, medium): (&Reporter, Option<&Arc<TaskMedium>>),
        files: TaskFiles,
    ) -> (InstallOutcome, Option<String>) {
        if self.behaviour.fail_at.as_deref() == Some(unit::DISPATCHER) {
            let reason = "failed on purpose, as the simulation is configured".to_owned();
            return (failed(unit::DISPATCHER, reason), None);
        }
        let JobDocument { registry, disk_before, .. } = files.job.clone();
        let dispatched = self.tools.blocking(tracker, move || dispatcher::dispatch(&files)).await;
        let task = match dispatched.and_then(|task| task) {
            Ok(task) => task,
            Err(reason) => return (failed(unit::DISPATCHER, reason), None),
        };
        let target = task.target().to_owned();
        console.print(unit::DISPATCHER, format!("recipe accepted, starting {target}"));
        let task = match task {
            Dispatched::Rescue(rescue) => {
                return (self.rescue(console, reporter, &rescue).await, Some(target));
            }
            Dispatched::Install(task) => task,
        };
        let installer = Installer {
            machine: &self.machine,
            behaviour: &self.behaviour,
            tools: &self.tools,
            http,
            reporter,
            medium,
            console,
            cancel: &boot.cancel,
            tracker,
        };
        let outcome = match installer.install(&task, registry.as_ref(), disk_before.as_ref()).await {
            Ok(installed) => InstallOutcome::Succeeded(Box::new(installed)),
            Err(UnitFailure { unit, reason }) => failed(unit, reason),
        };
        (outcome, Some(target))
    }

    /// The rescue system: reports how it is reached, then runs until it ends by itself or the power goes off.
    async fn rescue(
        &self,
        console: &MachineConsole,
        reporter: &Reporter,
        task: &RescueTask,
    ) -> InstallOutcome {
        if self.behaviour.fail_at.as_deref() == Some(unit::RESCUE) {
            return failed(unit::RESCUE, "failed on purpose, as the simulation is configured".to_owned());
        }
        if !self.behaviour.never_report {
            let report = reporter.reachable(task.has_ssh);
            let delivery = reporter.deliver(&report, self.behaviour.report_backoff).await;
            console.print(unit::RESCUE, format!("reachable for an operator; reported: {delivery:?}"));
        }
        match self.behaviour.rescue_ends_after {
            Some(time) => tokio::time::sleep(time).await,
            // The end of the power ends the whole run.
            None => std::future::pending().await,
        }
        InstallOutcome::Rescued
    }

    async fn report(&self, attempt: &Attempt, console: &MachineConsole) -> ReportDelivery {
        let Some(reporter) = attempt.reporter.as_ref().filter(|_| !self.behaviour.never_report) else {
            return ReportDelivery::NotSent;
        };
        if let Some(medium) = &attempt.medium {
            let message = match &attempt.outcome {
                InstallOutcome::Succeeded(_) => Message::Success,
                InstallOutcome::Failed { failed_step, .. } => Message::Failed {
                    step: BeaconStep::of_unit(failed_step).unwrap_or(BeaconStep::Dispatcher),
                    class: Some(if failed_step == unit::SELECT_DISK { Class::Disk } else { Class::Machine }),
                },
                InstallOutcome::Rescued
                | InstallOutcome::Refused { .. }
                | InstallOutcome::NotBootable { .. }
                | InstallOutcome::PowerLost => return ReportDelivery::NotSent,
            };
            medium.say(message, self.behaviour.beacon_pause).await;
            console.print(unit::REPORT, format!("said by reads of the medium: {message:?}"));
            return ReportDelivery::Said;
        }
        let report = match &attempt.outcome {
            InstallOutcome::Succeeded(_) | InstallOutcome::Rescued => {
                reporter.success(attempt.target.as_deref().unwrap_or_default())
            }
            InstallOutcome::Failed { failed_step, reason } => {
                reporter.failed(attempt.target.as_deref(), failed_step, reason)
            }
            InstallOutcome::Refused { .. }
            | InstallOutcome::NotBootable { .. }
            | InstallOutcome::PowerLost => {
                return ReportDelivery::NotSent;
            }
        };
        let delivery = reporter.deliver(&report, self.behaviour.report_backoff).await;
        if self.behaviour.report_twice {
            // The result of the second delivery is ignored: it does not change the result of the first.
            let _ = reporter.deliver(&report, self.behaviour.report_backoff).await;
        }
        console.print(
            unit::REPORT,
            match &delivery {
                ReportDelivery::NotSent => "not sent".to_owned(),
                ReportDelivery::Said => "said by reads of the medium".to_owned(),
                ReportDelivery::Acknowledged { attempts } => {
                    format!("acknowledged after {attempts} attempts")
                }
                ReportDelivery::Refused { status } => format!("refused with {status}"),
                ReportDelivery::GaveUp { attempts, reason } => {
                    format!("gave up after {attempts} attempts: {reason}")
                }
            },
        );
        delivery
    }
}

fn failed(unit: &str, reason: String) -> InstallOutcome {
    let reason = reason.chars().take(MAX_REASON_CHARS).collect();
    InstallOutcome::Failed { failed_step: unit.to_owned(), reason }
}

fn summary(outcome: &InstallOutcome) -> (&'static str, String) {
    match outcome {
        InstallOutcome::Succeeded(installed) => (unit::REPORT, format!("{} installed", installed.os_name)),
        InstallOutcome::Failed { failed_step, reason } => {
            (unit::REPORT, format!("{failed_step} failed: {reason}"))
        }
        InstallOutcome::Refused { reason } => (unit::DISPATCHER, format!("refused: {reason}")),
        InstallOutcome::NotBootable { reason } => (unit::KERNEL, format!("not bootable: {reason}")),
        InstallOutcome::Rescued => (unit::REPORT, "the rescue system has ended".to_owned()),
        InstallOutcome::PowerLost => (unit::KERNEL, "power lost".to_owned()),
    }
}
