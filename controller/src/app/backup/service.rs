//! The controller makes backups by itself, by schedule and on request.
//!
//! ```text
//!   due, or requested ──> leftovers removed ──> copied, verified, read back ──> intent in the state ──> name ──> record
//!                                   │                                                                             │
//!                                   └── error: failure in the state, again after 1 min … 1 h          older ones removed
//! ```
//!
//! One task does one operation after the other, so two backups are never made at once. It waits for nothing of a job and no job waits
//! for it. A controller that was killed between the name and the record finds its intent and looks whether the backup is there.
//!
//! Invariants: a failed backup removes nothing; what is removed is older than BACKUP_KEEP good backups and recorded as made by this
//! controller; a stop ends an operation within a piece of a file, or the check of the copied database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::beside::{self, TargetWarning, beside_data};
use super::due;
use super::error::BackupError;
use super::source::remove_left_download;
use super::state::{BackupRecord, BackupState, KEY};
use super::target::{Target, blocking, view};
use super::work::Work;
use crate::app::{StartError, setting};
use access::audit::{AuditAction, controller, record};
use api::{
    BackupAdmin, BackupAdminError, BackupFailureView, BackupProgress, BackupStatus, BackupVerification,
    BackupView,
};
use model::{Clock, NewEvent, Time, error_chain};
use settings::{BackupSchedule, Settings};
use store::{Store, StoreError};
use telemetry::Metrics;

/// The longest pause between two looks at the clock: it may be set.
const PAUSE: Duration = Duration::from_secs(2);
/// How long an operation may take to end after the stop.
const STOP_TIME: Duration = Duration::from_secs(5);
/// The actor of scheduled work.
const SCHEDULE: &str = "schedule";
/// The characters of a stored error.
const MAX_MESSAGE: usize = 500;

/// Makes, verifies and removes the backups of a controller. Clones share one state.
#[derive(Clone)]
pub(in crate::app) struct BackupService(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    store: Store,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    target: Option<Target>,
    started: Time,
    state: Mutex<BackupState>,
    current: Mutex<Current>,
    requested: Notify,
    warning: TargetWarning,
}

/// The operation and the verification that are under way or requested.
#[derive(Default)]
struct Current {
    running: Option<Running>,
    verification: Option<BackupVerification>,
}

/// An operation, from its request to its end.
#[derive(Clone, Debug)]
struct Running {
    order: Order,
    by: String,
    /// Whether the operation was due, and not requested.
    scheduled: bool,
    since: Time,
    work: Work,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Make,
    Verify(String),
}

impl Order {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Make => "backup",
            Self::Verify(_) => "verification",
        }
    }
}

impl BackupService {
    /// Reads what is recorded, without a look at the target: a folder whose server is away delays no start.
    ///
    /// # Errors
    /// When the database, or a file or secret of the settings, cannot be used.
    pub(in crate::app) async fn open(
        settings: &Settings,
        store: &Store,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let settings = Arc::new(settings.clone());
        let target = Target::of(&settings).map_err(setting("use BACKUP_TARGET"))?;
        let stored = store.setting(KEY).await?;
        // A row that this version cannot read is ignored; the backups it lists are kept.
        let known = stored.and_then(|text| serde_json::from_str::<BackupState>(&text).ok());
        let is_new = known.is_none() && target.is_some();
        let state = known.unwrap_or_else(|| BackupState::new(uuid::Uuid::new_v4().to_string()));
        let service = Self(Arc::new(Inner {
            warning: TargetWarning::new(Arc::clone(&settings), Arc::new(beside_data)),
            settings,
            store: store.clone(),
            clock: Arc::clone(clock),
            metrics: Arc::clone(metrics),
            target,
            started: clock.now(),
            state: Mutex::new(state),
            current: Mutex::default(),
            requested: Notify::new(),
        }));
        if is_new {
            // Before the first file has the name of the series: a controller that is killed finds what it left.
            service.save(Vec::new()).await?;
        }
        Ok(service)
    }

    /// Makes and verifies what is due or requested, until `stop`.
    pub(in crate::app) async fn run(self, stop: CancellationToken) {
        self.remove_left_download().await;
        let Some(target) = self.0.target.clone() else { return };
        stop.run_until_cancelled(self.look()).await;
        tokio::join!(self.watch(&stop), self.work(&target, &stop));
    }

    /// Removes what a killed restore has read: a controller that runs on the data needs it no more.
    async fn remove_left_download(&self) {
        let settings = Arc::clone(&self.0.settings);
        match blocking(move || remove_left_download(&settings)).await {
            Ok(false) => {}
            Ok(true) => tracing::info!("removed what an interrupted restore left"),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "what an interrupted restore left was not removed");
            }
        }
    }

    async fn work(&self, target: &Target, stop: &CancellationToken) {
        stop.run_until_cancelled(self.sweep(target)).await;
        while !stop.is_cancelled() {
            if self.step(target, stop).await {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.0.requested.notified() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Looks at the target again and again, also while an operation waits for it.
    async fn watch(&self, stop: &CancellationToken) {
        let rounds = async {
            loop {
                tokio::time::sleep(beside::PAUSE).await;
                self.look().await;
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    /// Looks at the disk of the target, for the warnings.
    pub(super) async fn look(&self) {
        self.0.warning.refresh().await;
    }

    /// Does what is requested or due. Returns `false` when there is nothing.
    pub(super) async fn step(&self, target: &Target, stop: &CancellationToken) -> bool {
        let Some(running) = self.take(stop) else { return false };
        let work = async {
            match &running.order {
                Order::Make => self.make_now(target, &running, stop).await,
                Order::Verify(name) => self.verify_now(target, name, &running, stop).await,
            }
        };
        let over = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_TIME).await;
        };
        tokio::select! {
            biased;
            () = work => {}
            // A registry that does not respond. The next start finds the intent, if there is one.
            () = over => tracing::info!("an operation on a backup was given up by the stop of the controller"),
        }
        self.0.current.lock().running = None;
        true
    }

    /// Does what is requested or due, for tests.
    #[cfg(test)]
    pub(super) async fn step_now(&self) -> bool {
        let target = self.0.target.clone().unwrap();
        self.step(&target, &CancellationToken::new()).await
    }

    /// The record of backups, for tests.
    #[cfg(test)]
    pub(super) fn state(&self) -> BackupState {
        self.0.state.lock().clone()
    }

    /// Removes what a killed controller left, before the next backup is due.
    async fn sweep(&self, target: &Target) {
        let series = self.0.state.lock().series.clone();
        match target.sweep(&series).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed what interrupted backups left"),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "what interrupted backups left was not removed")
            }
        }
    }

    /// The requested operation, or a backup that is due.
    fn take(&self, stop: &CancellationToken) -> Option<Running> {
        let now = self.0.clock.now();
        let mut current = self.0.current.lock();
        if current.running.is_none() && self.next(now).is_some_and(|next| next <= now) {
            current.running = Some(Running { scheduled: true, ..Running::new(Order::Make, SCHEDULE, now) });
        }
        let running = current.running.as_mut()?;
        running.work = Work::until(stop.clone());
        Some(running.clone())
    }

    fn next(&self, now: Time) -> Option<Time> {
        self.0.target.as_ref()?;
        let state = self.0.state.lock();
        let last = state.last().map(|record| record.made_at);
        due::next(self.0.settings.backup_schedule, last, state.failure.as_ref(), now)
    }

    async fn make_now(&self, target: &Target, running: &Running, stop: &CancellationToken) {
        match self.make_one(target, running).await {
            Ok(()) => {}
            // The next start makes it.
            Err(_) if stop.is_cancelled() => {
                tracing::info!("a backup was interrupted by the stop of the controller")
            }
            Err(error) => self.record_failure(&error, &running.by).await,
        }
    }

    async fn record_failure(&self, error: &BackupError, by: &str) {
        let message: String = error_chain(error).to_string().chars().take(MAX_MESSAGE).collect();
        tracing::warn!(error = %message, "the backup failed");
        self.0.metrics.backup_failed();
        let now = self.0.clock.now();
        self.0.state.lock().failed(message.clone(), now);
        let again = match self.next(now) {
            Some(next) => format!("the next attempt is at {next}"),
            None => "try again with `shoal backup now`".to_owned(),
        };
        let event = NewEvent::warn("backup.failed", format!("the backup failed: {message}; {again}"));
        if let Err(error) = self.save(vec![event.by(by)]).await {
            tracing::warn!(error = %error_chain(&error), "the failure of the backup could not be stored");
        }
    }

    async fn make_one(&self, target: &Target, running: &Running) -> Result<(), BackupError> {
        let work = &running.work;
        self.finish_interrupted(target).await?;
        let now = self.0.clock.now();
        if running.scheduled && self.next(now).is_some_and(|next| next > now) {
            // The one that was due has its name already.
            return Ok(());
        }
        target.sweep(&self.series()).await?;
        let (place, newest, former) = {
            let mut state = self.0.state.lock();
            let former = state.last().filter(|record| record.target == target.shown).cloned();
            (state.next_place(), state.made_at(&target.shown).pop(), former)
        };
        let prepared = target.prepare(place, (newest, former), work, now).await?;
        let made = prepared.record.clone();
        // The intent before the effect (decision D8), and no backup without an entry in the audit log.
        self.0.state.lock().pending = Some(made.clone());
        self.save(Vec::new()).await?;
        let entry = ("backup", made.name.as_str());
        record(&self.0.store, AuditAction::DataBackup, &controller(), entry, "ok", now).await?;
        target.publish(prepared).await?;
        let event = made_event(&made).by(&running.by);
        {
            let mut state = self.0.state.lock();
            state.pending = None;
            state.add(made);
        }
        self.save(vec![event]).await?;
        self.remove_surplus(target, work).await;
        Ok(())
    }

    /// Records a backup that was complete when the controller was killed before it had recorded it.
    async fn finish_interrupted(&self, target: &Target) -> Result<(), BackupError> {
        let Some(pending) = self.0.state.lock().pending.clone() else { return Ok(()) };
        let there = pending.target == target.shown && target.contains(&pending).await?;
        let event = there.then(|| made_event(&pending).by(SCHEDULE));
        {
            let mut state = self.0.state.lock();
            state.pending = None;
            if there {
                state.add(pending);
            }
        }
        Ok(self.save(event.into_iter().collect()).await?)
    }

    /// Removes older backups. What cannot be removed stays recorded, and the next backup tries again.
    async fn remove_surplus(&self, target: &Target, work: &Work) {
        work.begin(super::work::Phase::Removing);
        let surplus = self.0.state.lock().surplus(self.0.settings.backup_keep);
        let mut removed = Vec::new();
        for old in surplus {
            match target.remove(&old, &self.series()).await {
                Ok(()) => removed.push(old),
                Err(error) => {
                    tracing::warn!(backup = old.name, error = %error_chain(&error), "an older backup was not removed");
                }
            }
        }
        if removed.is_empty() {
            return;
        }
        let names: Vec<&str> = removed.iter().map(|record| record.name.as_str()).collect();
        let message = format!(
            "{} older backups were removed: BACKUP_KEEP is {}",
            names.len(),
            self.0.settings.backup_keep
        );
        let event = NewEvent::info("backup.removed", message).by(SCHEDULE).with(json!({ "backups": names }));
        self.0.state.lock().records.retain(|record| !removed.contains(record));
        if let Err(error) = self.save(vec![event]).await {
            tracing::warn!(error = %error_chain(&error), "the removal of older backups could not be stored");
        }
    }

    async fn verify_now(&self, target: &Target, name: &str, running: &Running, stop: &CancellationToken) {
        let records = self.0.state.lock().made_at(&target.shown);
        let result = target.verify(name, records, &running.work).await;
        let at = self.0.clock.now();
        let (damage, error) = match &result {
            Ok(()) => (None, None),
            Err(_) if stop.is_cancelled() => return,
            Err(BackupError::Damaged { reason }) => (Some(reason.clone()), None),
            Err(error) => (None, Some(error_chain(error).to_string())),
        };
        let event = match (&damage, &error) {
            (Some(why), _) => NewEvent::error(
                "backup.damaged",
                format!("the backup {name} is damaged: {why}; make another one: shoal backup now"),
            ),
            (None, Some(why)) => {
                NewEvent::warn("backup.unverified", format!("the backup {name} could not be read: {why}"))
            }
            (None, None) => {
                NewEvent::info("backup.verified", format!("the backup {name} was read and is right"))
            }
        };
        if error.is_none() {
            let mut state = self.0.state.lock();
            let own = |record: &&mut BackupRecord| record.name == name && record.target == target.shown;
            if let Some(record) = state.records.iter_mut().find(own) {
                record.damage = damage.clone();
                if damage.is_none() {
                    record.verified_at = at;
                }
            }
        }
        self.0.current.lock().verification =
            Some(BackupVerification { name: name.to_owned(), at, damage, error });
        if let Err(error) = self.save(vec![event.by(&running.by)]).await {
            tracing::warn!(error = %error_chain(&error), "the result of a verification could not be stored");
        }
    }

    async fn save(&self, events: Vec<NewEvent>) -> Result<(), StoreError> {
        let text = serde_json::to_string(&*self.0.state.lock()).unwrap_or_default();
        self.0.store.set_setting(KEY, Some(text), events, self.0.clock.now()).await
    }

    fn series(&self) -> String {
        self.0.state.lock().series.clone()
    }

    /// Requests an operation. Returns `false` when an equal one is under way.
    fn request(&self, order: Order, by: &str) -> Result<bool, BackupAdminError> {
        if self.0.target.is_none() {
            return Err(BackupAdminError::NoTarget);
        }
        let now = self.0.clock.now();
        let mut current = self.0.current.lock();
        match &current.running {
            Some(running) if running.order == order => return Ok(false),
            Some(running) => {
                let message =
                    format!("a {} is under way; `shoal backup status` shows its end", running.order.as_str());
                return Err(BackupAdminError::Busy(message));
            }
            None => {}
        }
        current.running = Some(Running::new(order, by, now));
        drop(current);
        self.0.requested.notify_one();
        Ok(true)
    }

    fn is_old(&self, last: Option<&BackupRecord>, now: Time) -> bool {
        let since = last.map_or(self.0.started, |record| record.made_at);
        due::is_old(self.0.settings.backup_schedule, since, now)
    }

    fn warnings(&self, last: Option<&BackupRecord>, now: Time) -> Vec<String> {
        let age = self.is_old(last, now).then(|| match last {
            Some(record) => {
                format!("the last backup is {} hours old", now.since(record.made_at).as_secs() / 3600)
            }
            None => "no backup has been made".to_owned(),
        });
        let left_out = last.and_then(|record| Some(format!("the last backup: {}", left_out(record)?)));
        age.into_iter().chain(left_out).chain(self.0.warning.text()).collect()
    }
}

impl Running {
    fn new(order: Order, by: &str, since: Time) -> Self {
        Self { order, by: by.to_owned(), scheduled: false, since, work: Work::default() }
    }
}

fn made_event(made: &BackupRecord) -> NewEvent {
    let message =
        format!("the backup {} was made and verified: {} files, {} bytes", made.name, made.files, made.bytes);
    let event = match left_out(made) {
        None => NewEvent::info("backup.made", message),
        Some(why) => NewEvent::warn("backup.made", format!("{message}; {why}")),
    };
    event.with(json!({
        "backup": made.name, "target": made.target, "bytes": made.bytes, "files": made.files, "digest": made.digest,
        "left_out": made.left_out,
    }))
}

/// Describes the content that a backup does not have; `None` when it has everything.
fn left_out(made: &BackupRecord) -> Option<String> {
    (made.left_out > 0).then(|| {
        format!(
            "{} files of the registry or the boot images are damaged in the data directory and not in it: `shoal registry scrub --online` names those of the registry; push or import each again",
            made.left_out
        )
    })
}

#[async_trait]
impl BackupAdmin for BackupService {
    fn status(&self) -> BackupStatus {
        let Inner { settings, target, .. } = &*self.0;
        let now = self.0.clock.now();
        let next = self.next(now);
        let (last, failure) = {
            let state = self.0.state.lock();
            (state.last().cloned(), state.failure.clone())
        };
        let (running, verification) = {
            let current = self.0.current.lock();
            (current.running.clone(), current.verification.clone())
        };
        let running = running.map(|running| {
            let (phase, done_bytes) = running.work.state();
            BackupProgress {
                what: running.order.as_str(),
                phase: phase.as_str(),
                done_bytes,
                since: running.since,
                by: running.by,
            }
        });
        BackupStatus {
            schedule: settings.backup_schedule.to_string(),
            target: target.as_ref().map(|target| target.shown.clone()),
            keep: settings.backup_keep,
            running,
            age_seconds: last.as_ref().map(|record| now.since(record.made_at).as_secs()),
            old: self.is_old(last.as_ref(), now),
            warnings: self.warnings(last.as_ref(), now),
            last: last.as_ref().map(view),
            next: next.filter(|_| settings.backup_schedule != BackupSchedule::Off),
            failure: failure.map(|failure| BackupFailureView {
                at: failure.at,
                message: failure.message,
                attempts: failure.attempts,
            }),
            verification,
        }
    }

    async fn list(&self) -> Result<Vec<BackupView>, BackupAdminError> {
        let target = self.0.target.as_ref().ok_or(BackupAdminError::NoTarget)?;
        let records = self.0.state.lock().records.clone();
        let listed = target.list(&records).await;
        listed.map_err(|error| BackupAdminError::Failed(error_chain(&error).to_string()))
    }

    fn make(&self, by: &str) -> Result<bool, BackupAdminError> {
        self.request(Order::Make, by)
    }

    fn verify(&self, name: &str, by: &str) -> Result<bool, BackupAdminError> {
        // The name becomes a part of a path or URL.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(BackupAdminError::Unknown(
                name.chars().filter(|c| !c.is_control()).take(128).collect(),
            ));
        }
        self.request(Order::Verify(name.to_owned()), by)
    }
}
