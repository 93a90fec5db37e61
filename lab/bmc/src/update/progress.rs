//! The installed firmware, and the update that runs: data and rules, without requests and timers.
//!
//! ```text
//!   Job { item, version, stage }   Fetching ─► Checking ─► Checked ─► Flashing ─► WaitingForHost ─► Booting ─► applied   Updates::step
//!                                                                             └─► WaitingForBmc ────────────┘
//!   TaskView                       how the stage is shown in a task, or at the service
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::image;
use crate::{
    config::{BiosUpdate, Component, SimBmcConfig, UpdatePolicy},
    faults::FlashFault,
    routes::{self, Resource},
    tasks::Tasks,
};

/// Maximum number of updates that are remembered.
const KEPT: usize = 256;

/// One update that was started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpdateRecord {
    /// `Id` of the member of the firmware inventory at the start.
    pub item: String,
    /// The version of the image.
    pub version: String,
    /// Whether the installed version became that of the image.
    pub applied: bool,
}

/// One installed firmware.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) id: String,
    /// Empty for one whose image was cut in the middle of its write.
    pub(crate) version: String,
    pub(crate) component: Component,
    /// A version that is written and does not run yet.
    pub(super) staged: Option<String>,
}

impl Installed {
    /// Writes another version and returns the old one. The ids of some BMCs contain the version.
    fn write(&mut self, version: &str) -> String {
        if !self.version.is_empty() {
            self.id = self.id.replace(&self.version, version);
        }
        std::mem::replace(&mut self.version, version.to_owned())
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The BMC reads the image; the number tells the reads of a BMC apart.
    Fetching {
        number: u64,
    },
    Checking {
        until: Duration,
    },
    Checked,
    /// The host must restart: then the image is written, or the written image runs.
    WaitingForHost {
        written: bool,
    },
    /// The host boots; then the image is written, or the written image runs.
    Booting {
        until: Duration,
        written: bool,
    },
    /// The image of the BMC is written and runs after a restart that the client requests.
    WaitingForBmc,
    Flashing {
        from: Duration,
        until: Duration,
    },
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) item: usize,
    pub(super) version: String,
    pub(super) record: usize,
    pub(super) task: Option<u64>,
    pub(super) explicit_start: bool,
    pub(super) fault: Option<FlashFault>,
    pub(super) stage: Stage,
}

/// The state that an OEM object of the service shows.
#[derive(Clone, Debug, Default)]
pub(super) struct ShownState {
    pub(super) state: &'static str,
    pub(super) percent: u64,
    pub(super) message: Option<String>,
}

impl ShownState {
    fn idle() -> Self {
        Self { state: "Idle", ..Self::default() }
    }
}

/// Installed firmware and the running update.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    pub(crate) items: Vec<Installed>,
    pub(super) job: Option<Job>,
    pub(super) stored: Option<(String, image::ImageFacts)>,
    pub(super) skipped: Duration,
    pub(super) log: VecDeque<UpdateRecord>,
    pub(super) dropped: usize,
    pub(super) shown: ShownState,
    pub(super) push_options: Value,
    /// Complete images that arrived, by upload or read from a URL.
    pub(crate) images: u64,
    /// Updates that were started.
    pub(crate) started: u64,
    /// Uploads that broke off before their end.
    pub(crate) cut: u64,
    /// Images that the BMC began to read after its response.
    pub(super) fetches: u64,
    /// Component and version of the images that were accepted, oldest first.
    pub(super) accepted: Vec<(String, String)>,
}

/// The work that the caller of [`Updates::step`] must do.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Next {
    Wait,
    Again,
    RestartBmc {
        new_certificate: bool,
        for_ever: bool,
    },
    /// The server loses mains power for this long.
    LosePower(Duration),
}

impl Updates {
    pub(crate) fn new(config: &SimBmcConfig) -> Self {
        let items = config.service.firmware.iter().map(|item| Installed {
            id: item.id.clone(),
            version: item.version.clone(),
            component: item.component,
            staged: None,
        });
        let shown = ShownState::idle();
        Self { items: items.collect(), shown, push_options: json!({}), ..Self::default() }
    }

    /// Whether an update runs, or waits for a restart.
    pub(super) fn has_job(&self) -> bool {
        self.job.is_some()
    }

    /// Whether another update would be refused.
    pub(crate) fn is_busy(&self) -> bool {
        let waits = |job: &Job| {
            matches!(
                job.stage,
                Stage::WaitingForHost { written: true } | Stage::Booting { written: true, .. }
            )
        };
        self.job.as_ref().is_some_and(|job| !waits(job))
    }

    /// The version of the first firmware of this kind, if it differs from the configured one.
    pub(crate) fn replaced(&self, config: &SimBmcConfig, component: Component) -> Option<(String, String)> {
        let at = self.items.iter().position(|item| item.component == component)?;
        let (old, new) = (config.service.firmware[at].version.clone(), self.items[at].version.clone());
        (old != new).then_some((old, new))
    }

    pub(super) fn record(&mut self, item: String, version: String) -> usize {
        if self.log.len() == KEPT {
            self.log.pop_front();
            self.dropped += 1;
        }
        self.log.push_back(UpdateRecord { item, version, applied: false });
        self.dropped + self.log.len() - 1
    }

    pub(super) fn apply(&mut self, job: &Job) {
        let item = &mut self.items[job.item];
        item.write(&job.version);
        item.staged = None;
        if let Some(record) = job.record.checked_sub(self.dropped).and_then(|at| self.log.get_mut(at)) {
            record.applied = true;
        }
    }

    pub(super) fn show(&mut self, tasks: &mut Tasks, job: &Job, task: TaskView<'_>) {
        self.shown = ShownState {
            state: task.service_state,
            percent: task.percent,
            message: Some(task.message.to_owned()).filter(|_| task.service_state == "Error"),
        };
        if let Some(id) = job.task {
            tasks.overlay(id, task.overlay(), task.ended);
        }
    }

    /// Advances the update by at most one stage.
    pub(super) fn step(&mut self, config: &SimBmcConfig, tasks: &mut Tasks, now: Duration) -> Next {
        let now = now + self.skipped;
        let policy = &config.update;
        let Some(mut job) = self.job.take() else { return Next::Wait };
        match job.stage {
            Stage::Fetching { .. } | Stage::Checked | Stage::WaitingForHost { .. } | Stage::WaitingForBmc => {
                self.job = Some(job);
                Next::Wait
            }
            Stage::Booting { until, .. } if now < until => {
                self.job = Some(job);
                Next::Wait
            }
            Stage::Booting { written: true, .. } => {
                self.apply(&job);
                self.show(tasks, &job, TaskView::done());
                Next::Again
            }
            Stage::Booting { until, .. } => {
                self.begin_flash(policy, tasks, &mut job, until);
                self.job = Some(job);
                Next::Again
            }
            Stage::Checking { until } if now < until => {
                self.show(tasks, &job, TaskView::running("Verifying", "Running", 0));
                self.job = Some(job);
                Next::Wait
            }
            Stage::Checking { until } => {
                if job.explicit_start {
                    self.show(tasks, &job, TaskView::done());
                    job.stage = Stage::Checked;
                } else {
                    self.begin_writing(policy, tasks, &mut job, until);
                }
                self.job = Some(job);
                Next::Again
            }
            Stage::Flashing { from, until } => {
                let manager = routes::uri(config, &Resource::Manager);
                self.flash((policy, &manager), tasks, job, (from, until), now)
            }
        }
    }

    /// After the check of the image: writes it, or waits for the host.
    pub(super) fn begin_writing(
        &mut self,
        policy: &UpdatePolicy,
        tasks: &mut Tasks,
        job: &mut Job,
        at: Duration,
    ) {
        let bios = self.items[job.item].component == Component::Bios;
        if bios && policy.bios == BiosUpdate::AtRestart {
            self.show(tasks, job, TaskView::waiting(policy));
            job.stage = Stage::WaitingForHost { written: false };
            return;
        }
        self.begin_flash(policy, tasks, job, at);
    }

    pub(super) fn begin_flash(
        &mut self,
        policy: &UpdatePolicy,
        tasks: &mut Tasks,
        job: &mut Job,
        at: Duration,
    ) {
        if job.fault == Some(FlashFault::LoseTask)
            && let Some(id) = job.task.take()
        {
            tasks.remove(id);
        }
        if policy.lists_staged {
            self.items[job.item].staged = Some(job.version.clone());
        }
        job.stage = Stage::Flashing { from: at, until: at + policy.flash_time };
    }

    pub(super) fn flash(
        &mut self,
        (policy, manager): (&UpdatePolicy, &str),
        tasks: &mut Tasks,
        mut job: Job,
        (from, until): (Duration, Duration),
        now: Duration,
    ) -> Next {
        if let Some(FlashFault::PowerLoss { away, keeps_version }) = &job.fault
            && now >= half(from, until)
        {
            let item = &mut self.items[job.item];
            item.staged = None;
            if !keeps_version {
                item.version.clear();
            }
            self.shown = ShownState::idle();
            return Next::LosePower(*away);
        }
        let whole = (until - from).as_millis().max(1);
        let percent = (now.saturating_sub(from).as_millis() * 100 / whole).min(99);
        if now < until || job.fault == Some(FlashFault::Hang) {
            let percent = u64::try_from(percent).unwrap_or(99);
            self.show(tasks, &job, TaskView::running("Updating", "Running", percent));
            self.job = Some(job);
            return Next::Wait;
        }
        let fault = job.fault.clone();
        let component = self.items[job.item].component;
        match &fault {
            Some(FlashFault::Fail { message }) => {
                self.show(tasks, &job, TaskView::failed("Exception", message))
            }
            Some(FlashFault::Critical { message }) => {
                self.show(tasks, &job, TaskView::failed("Completed", message))
            }
            Some(FlashFault::Lie) => self.show(tasks, &job, TaskView::done()),
            _ if component == Component::Bmc && policy.asks_for_bmc_restart => {
                self.show(tasks, &job, TaskView::asks_for(manager));
                job.stage = Stage::WaitingForBmc;
                self.job = Some(job);
                return Next::Wait;
            }
            _ if component == Component::Bmc => {
                self.show(tasks, &job, TaskView::done());
                self.apply(&job);
                return Next::RestartBmc {
                    new_certificate: fault == Some(FlashFault::NewCertificate),
                    for_ever: fault == Some(FlashFault::StayAway),
                };
            }
            // It was written at the restart of the host, or while the host was off.
            _ if component == Component::Bios && policy.bios == BiosUpdate::Staged => {
                self.show(tasks, &job, TaskView::waiting(policy));
                job.stage = Stage::WaitingForHost { written: true };
                self.job = Some(job);
                return Next::Wait;
            }
            _ => {
                self.show(tasks, &job, TaskView::done());
                self.apply(&job);
            }
        }
        Next::Again
    }

    /// The host restarts: a waiting BIOS is written or runs.
    pub(super) fn host_restarts(&mut self, config: &SimBmcConfig, tasks: &mut Tasks, now: Duration) {
        let now = now + self.skipped;
        let Some(mut job) = self.job.take() else { return };
        let booting = match job.stage {
            Stage::WaitingForHost { written } | Stage::Booting { written, .. } => Some(written),
            _ => None,
        };
        if let Some(written) = booting {
            job.stage = Stage::Booting { until: now + config.update.boot_delay, written };
        }
        self.job = Some(job);
        if booting.is_some() {
            self.step(config, tasks, now.saturating_sub(self.skipped));
        }
    }

    /// The time at which the running stage ends by itself.
    pub(super) fn due(&self) -> Option<Duration> {
        let job = self.job.as_ref()?;
        match job.stage {
            Stage::Checking { until } | Stage::Booting { until, .. } => Some(until),
            Stage::Flashing { from, until } if matches!(job.fault, Some(FlashFault::PowerLoss { .. })) => {
                Some(half(from, until))
            }
            Stage::Flashing { until, .. } if job.fault != Some(FlashFault::Hang) => Some(until),
            _ => None,
        }
        .map(|until| until.saturating_sub(self.skipped))
    }

    /// Forgets the update that runs, as a restart of the BMC does. An image that waited for the restart runs.
    pub(crate) fn interrupt(&mut self) {
        if let Some(job) = self.job.take_if(|job| matches!(job.stage, Stage::WaitingForBmc)) {
            self.apply(&job);
        }
        let waits_for_host =
            |job: &Job| matches!(job.stage, Stage::WaitingForHost { .. } | Stage::Booting { .. });
        if self.job.as_ref().is_some_and(|job| !waits_for_host(job)) {
            self.job = None;
            self.shown = ShownState::idle();
        }
        self.stored = None;
    }

    /// Notes an image that the BMC accepted.
    pub(super) fn accept(&mut self, facts: &image::ImageFacts) {
        if self.accepted.len() < KEPT {
            self.accepted.push((facts.component.clone(), facts.version.clone()));
        }
    }

    /// Ends the fault of an update that hangs.
    pub(super) fn go_on(&mut self) {
        if let Some(job) = self.job.as_mut().filter(|job| job.fault == Some(FlashFault::Hang)) {
            job.fault = None;
        }
    }

    /// Whether an image is being checked or written.
    pub(super) fn is_working(&self, now: Duration) -> bool {
        let now = now + self.skipped;
        self.job.as_ref().is_some_and(|job| match job.stage {
            Stage::Checking { until } => now < until,
            Stage::Flashing { until, .. } => now < until || job.fault == Some(FlashFault::Hang),
            Stage::Fetching { .. }
            | Stage::Checked
            | Stage::WaitingForHost { .. }
            | Stage::Booting { .. }
            | Stage::WaitingForBmc => false,
        })
    }

    /// Writes another version of a component by hand, past the update service. Returns the old version.
    pub(super) fn replace(&mut self, component: Component, version: &str) -> Option<String> {
        let item = self.items.iter_mut().find(|item| item.component == component)?;
        Some(item.write(version))
    }
}

/// When half of an image is written.
fn half(from: Duration, until: Duration) -> Duration {
    from + until.saturating_sub(from) / 2
}

/// The view of a task: the values that its resource shows.
pub(super) struct TaskView<'a> {
    pub(super) service_state: &'static str,
    pub(super) state: &'a str,
    pub(super) status: &'static str,
    pub(super) percent: u64,
    pub(super) id: &'a str,
    pub(super) message: &'a str,
    /// The argument of the message.
    pub(super) argument: Option<&'a str>,
    pub(super) job_state: Option<&'a str>,
    /// Whether the task ended, and whether it succeeded.
    pub(super) ended: Option<bool>,
}

impl<'a> TaskView<'a> {
    pub(super) fn running(service_state: &'static str, state: &'a str, percent: u64) -> Self {
        let (id, message) = ("Update.1.1.InstallingOnComponent", "The image is being processed.");
        let (argument, job_state, ended) = (None, None, None);
        TaskView { service_state, state, status: "OK", percent, id, message, argument, job_state, ended }
    }

    pub(super) fn done() -> Self {
        let (id, message) = ("Update.1.1.UpdateSuccessful", "The update was successful.");
        let ended = Some(true);
        TaskView { id, message, ended, ..TaskView::running("Complete", "Completed", 100) }
    }

    pub(super) fn failed(state: &'a str, message: &'a str) -> Self {
        let (id, status) = ("Update.1.1.ApplyFailed", "Critical");
        TaskView { id, message, status, ended: Some(false), ..TaskView::running("Error", state, 100) }
    }

    pub(super) fn waiting(policy: &'a UpdatePolicy) -> Self {
        let waiting = &policy.waiting;
        let ended = (waiting.state == "Completed").then_some(true);
        TaskView {
            state: &waiting.state,
            id: &waiting.message_id,
            message: &waiting.message,
            job_state: waiting.job_state.as_deref(),
            ended,
            ..TaskView::running("Complete", "", if ended.is_some() { 100 } else { 0 })
        }
    }

    /// The image of the BMC at this path is written, and runs after its restart.
    fn asks_for(manager: &'a str) -> Self {
        let (id, message) =
            ("Base.1.18.ResetRequired", "In order to complete the operation, a component reset is required.");
        TaskView { id, message, argument: Some(manager), ..TaskView::done() }
    }

    pub(super) fn overlay(&self) -> Value {
        let severity = if self.status == "OK" { "OK" } else { "Critical" };
        let mut overlay = json!({
            "TaskState": self.state,
            "TaskStatus": self.status,
            "PercentComplete": self.percent,
            "Messages": [{ "MessageId": self.id, "Message": self.message, "MessageSeverity": severity, "MessageArgs": self.argument.as_slice() }],
        });
        if let Some(state) = self.job_state {
            overlay["Oem"] = json!({ "Vendor": { "JobState": state } });
        }
        overlay
    }
}
