//! The update service of a simulated BMC: what is installed, and the update that runs.
//!
//! ```text
//!   image arrives ─► Checking ─┬─► Checked ── StartUpdate ──┐
//!                              ├────────────────────────────┴─► Flashing ─┬─► device: new version, done
//!                              └─► WaitingForHost (at restart) ──► Flashing├─► BIOS: WaitingForHost ─ restart ─► new version
//!                                                                          └─► BMC: restart, unreachable ─► new version
//!   faults: Hang (99 % for ever), Lie (done, old version), Fail, Critical, LoseTask, NewCertificate, StayAway
//! ```
//!
//! Invariants: one update runs at a time; a version changes only at the end of an update whose image arrived whole; every
//! complete image is counted, so that a test proves that none arrived twice.
//!
//! Time is that of the simulated BMC plus what [`SimBmc::skip_flash_time`] skipped: a test over real sockets needs no sleep.

mod actions;
mod image;
mod reader;
mod show;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use image::firmware_image;
pub(super) use reader::{Upload, UploadReader};

use super::{
    config::{BiosUpdate, Component, SimBmcConfig, UpdateAnswer, UpdatePolicy},
    faults::FlashFault,
    sim_bmc::SimBmc,
    state::State,
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
pub(super) struct Installed {
    pub(super) id: String,
    pub(super) version: String,
    component: Component,
    /// A version that is written and does not run yet.
    staged: Option<String>,
}

#[derive(Debug)]
enum Stage {
    Checking {
        until: Duration,
    },
    Checked,
    /// The host must restart: then the image is written, or the written image runs.
    WaitingForHost {
        written: bool,
    },
    Flashing {
        from: Duration,
        until: Duration,
    },
}

#[derive(Debug)]
struct Job {
    item: usize,
    version: String,
    record: usize,
    task: Option<u64>,
    explicit_start: bool,
    fault: Option<FlashFault>,
    stage: Stage,
}

/// The state that an OEM object of the service shows.
#[derive(Clone, Debug, Default)]
struct ShownState {
    state: &'static str,
    percent: u64,
    message: Option<String>,
}

/// Installed firmware and the running update.
#[derive(Debug, Default)]
pub(super) struct Updates {
    pub(super) items: Vec<Installed>,
    job: Option<Job>,
    stored: Option<(String, image::ImageFacts)>,
    skipped: Duration,
    log: VecDeque<UpdateRecord>,
    dropped: usize,
    shown: ShownState,
    push_options: Value,
    /// Complete images that arrived, by upload or read from a URL.
    pub(super) images: u64,
    /// Updates that were started.
    pub(super) started: u64,
    /// Uploads that broke off before their end.
    pub(super) cut: u64,
}

/// What the caller of [`Updates::step`] must do.
#[derive(Debug, Eq, PartialEq)]
enum Next {
    Wait,
    Again,
    RestartBmc { new_certificate: bool, for_ever: bool },
}

impl Updates {
    pub(super) fn new(config: &SimBmcConfig) -> Self {
        let items = config.service.firmware.iter().map(|item| Installed {
            id: item.id.clone(),
            version: item.version.clone(),
            component: item.component,
            staged: None,
        });
        let shown = ShownState { state: "Idle", ..ShownState::default() };
        Self { items: items.collect(), shown, push_options: json!({}), ..Self::default() }
    }

    /// Whether another update would be refused.
    pub(super) fn is_busy(&self) -> bool {
        self.job.as_ref().is_some_and(|job| !matches!(job.stage, Stage::WaitingForHost { written: true }))
    }

    /// The version of the first firmware of this kind, if it differs from the configured one.
    pub(super) fn replaced(&self, config: &SimBmcConfig, component: Component) -> Option<(String, String)> {
        let at = self.items.iter().position(|item| item.component == component)?;
        let (old, new) = (config.service.firmware[at].version.clone(), self.items[at].version.clone());
        (old != new).then_some((old, new))
    }

    fn record(&mut self, item: String, version: String) -> usize {
        if self.log.len() == KEPT {
            self.log.pop_front();
            self.dropped += 1;
        }
        self.log.push_back(UpdateRecord { item, version, applied: false });
        self.dropped + self.log.len() - 1
    }

    fn apply(&mut self, job: &Job) {
        let item = &mut self.items[job.item];
        item.id = item.id.replace(&item.version, &job.version);
        item.version.clone_from(&job.version);
        item.staged = None;
        if let Some(record) = job.record.checked_sub(self.dropped).and_then(|at| self.log.get_mut(at)) {
            record.applied = true;
        }
    }

    fn show(&mut self, tasks: &mut Tasks, job: &Job, task: TaskView<'_>) {
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
    fn step(&mut self, config: &SimBmcConfig, tasks: &mut Tasks, now: Duration) -> Next {
        let now = now + self.skipped;
        let policy = &config.update;
        let Some(mut job) = self.job.take() else { return Next::Wait };
        match job.stage {
            Stage::Checked | Stage::WaitingForHost { .. } => {
                self.job = Some(job);
                Next::Wait
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
            Stage::Flashing { from, until } => self.flash(policy, tasks, job, (from, until), now),
        }
    }

    /// After the check of the image: writes it, or waits for the host.
    fn begin_writing(&mut self, policy: &UpdatePolicy, tasks: &mut Tasks, job: &mut Job, at: Duration) {
        let bios = self.items[job.item].component == Component::Bios;
        if bios && policy.bios == BiosUpdate::AtRestart {
            self.show(tasks, job, TaskView::waiting(policy));
            job.stage = Stage::WaitingForHost { written: false };
            return;
        }
        self.begin_flash(policy, tasks, job, at);
    }

    fn begin_flash(&mut self, policy: &UpdatePolicy, tasks: &mut Tasks, job: &mut Job, at: Duration) {
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

    fn flash(
        &mut self,
        policy: &UpdatePolicy,
        tasks: &mut Tasks,
        mut job: Job,
        (from, until): (Duration, Duration),
        now: Duration,
    ) -> Next {
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
    fn host_restarts(&mut self, config: &SimBmcConfig, tasks: &mut Tasks, now: Duration) {
        let now = now + self.skipped;
        let Some(mut job) = self.job.take() else { return };
        match job.stage {
            Stage::WaitingForHost { written: true } => {
                self.apply(&job);
                self.show(tasks, &job, TaskView::done());
            }
            Stage::WaitingForHost { written: false } => {
                self.begin_flash(&config.update, tasks, &mut job, now);
                self.job = Some(job);
            }
            _ => self.job = Some(job),
        }
    }

    /// The time at which the running stage ends by itself.
    fn due(&self) -> Option<Duration> {
        let job = self.job.as_ref()?;
        match job.stage {
            Stage::Checking { until } => Some(until),
            Stage::Flashing { until, .. } if job.fault != Some(FlashFault::Hang) => Some(until),
            _ => None,
        }
        .map(|until| until.saturating_sub(self.skipped))
    }

    /// Forgets the update that runs, as a restart of the BMC does.
    pub(super) fn interrupt(&mut self) {
        if self.job.as_ref().is_some_and(|job| !matches!(job.stage, Stage::WaitingForHost { .. })) {
            self.job = None;
            self.shown = ShownState { state: "Idle", ..ShownState::default() };
        }
        self.stored = None;
    }
}

/// How a task is shown.
struct TaskView<'a> {
    service_state: &'static str,
    state: &'a str,
    status: &'static str,
    percent: u64,
    id: &'a str,
    message: &'a str,
    job_state: Option<&'a str>,
    /// Whether the task ended, and whether it succeeded.
    ended: Option<bool>,
}

impl<'a> TaskView<'a> {
    fn running(service_state: &'static str, state: &'a str, percent: u64) -> Self {
        let (id, message) = ("Update.1.1.InstallingOnComponent", "The image is being processed.");
        TaskView { service_state, state, status: "OK", percent, id, message, job_state: None, ended: None }
    }

    fn done() -> Self {
        let (id, message) = ("Update.1.1.UpdateSuccessful", "The update was successful.");
        let ended = Some(true);
        TaskView { id, message, ended, ..TaskView::running("Complete", "Completed", 100) }
    }

    fn failed(state: &'a str, message: &'a str) -> Self {
        let (id, status) = ("Update.1.1.ApplyFailed", "Critical");
        TaskView { id, message, status, ended: Some(false), ..TaskView::running("Error", state, 100) }
    }

    fn waiting(policy: &'a UpdatePolicy) -> Self {
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

    fn overlay(&self) -> Value {
        let severity = if self.status == "OK" { "OK" } else { "Critical" };
        let mut overlay = json!({
            "TaskState": self.state,
            "TaskStatus": self.status,
            "PercentComplete": self.percent,
            "Messages": [{ "MessageId": self.id, "Message": self.message, "MessageSeverity": severity, "MessageArgs": [] }],
        });
        if let Some(state) = self.job_state {
            overlay["Oem"] = json!({ "Vendor": { "JobState": state } });
        }
        overlay
    }
}

impl State {
    /// The firmware as an operator of the simulated BMC sees it.
    fn installed(&self) -> Vec<(String, String)> {
        self.updates.items.iter().map(|item| (item.id.clone(), item.version.clone())).collect()
    }
}

impl SimBmc {
    /// The updates that were started, oldest first.
    pub fn updates(&self) -> Vec<UpdateRecord> {
        self.state().updates.log.iter().cloned().collect()
    }

    /// Id and version of each installed firmware.
    pub fn installed(&self) -> Vec<(String, String)> {
        self.state().installed()
    }

    /// Lets this much time pass for the running update only.
    pub fn skip_flash_time(&self, time: Duration) {
        self.state().updates.skipped += time;
        self.settle_update();
    }

    /// Advances the running update to the current time.
    pub(super) fn settle_update(&self) {
        loop {
            let at = self.elapsed();
            let next = {
                let mut state = self.state();
                let State { updates, tasks, .. } = &mut *state;
                updates.step(&self.inner.config, tasks, at)
            };
            match next {
                Next::Wait => break,
                Next::Again => self.notify(),
                Next::RestartBmc { new_certificate, for_ever } => {
                    self.restart_after_update(new_certificate, for_ever);
                }
            }
        }
    }

    /// Advances the update when its stage ends, without a request.
    pub(super) fn schedule_update(&self) {
        let due = self.state().updates.due();
        let Some(due) = due else { return };
        let after = due.saturating_sub(self.elapsed());
        let bmc = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(inner) = bmc.upgrade() {
                let bmc = SimBmc { inner };
                bmc.settle_update();
                // The next stage has its own end; a skipped time may have passed several.
                let left = bmc.state().updates.due().is_some_and(|due| due > bmc.elapsed());
                if left {
                    bmc.schedule_update();
                }
            }
        });
    }

    fn restart_after_update(&self, new_certificate: bool, for_ever: bool) {
        let policy = &self.inner.config.update;
        let kept = policy.keeps_tasks.then(|| std::mem::take(&mut self.state().tasks));
        let time = if for_ever { Duration::from_secs(86_400) } else { policy.restart_time };
        self.restart_bmc(time);
        let mut state = self.state();
        if let Some(kept) = kept {
            state.tasks = kept;
        }
        if new_certificate {
            state.certificate += 1;
        }
    }

    /// The host restarts or is powered on.
    pub(super) fn update_at_restart(&self, state: &mut State, at: Duration) {
        let State { updates, tasks, .. } = state;
        updates.host_restarts(&self.inner.config, tasks, at);
    }

    /// Notes an upload that broke off.
    pub(super) fn upload_was_cut(&self) {
        self.state().updates.cut += 1;
        self.notify();
    }

    /// Whether a response names no task because the service shows the state.
    fn shows_state_at_service(&self) -> bool {
        self.inner.config.update.answer == UpdateAnswer::ServiceState
    }
}
