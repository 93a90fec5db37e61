//! Metrics of the controller itself and its host, which show problems that no job shows.
//!
//! A gauge of a time is in seconds since 1970, and 0 while there is no such time.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    op: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limit {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    queue: String,
}

/// The metrics, registered once.
#[derive(Default)]
pub(super) struct HostMetrics {
    overdue: Gauge,
    held: Gauge,
    stopped_batches: Gauge,
    active: Gauge,
    unanswered: Family<Operation, Counter>,
    overloads: Family<Limit, Counter>,
    free: Gauge,
    size: Gauge,
    database_free: Gauge,
    backup: Gauge,
    backup_success: Gauge,
    backup_age: Gauge,
    backup_size: Gauge,
    backup_failures: Counter,
    certificate_end: Gauge,
    started: Gauge,
    dead_letters: Gauge,
    disabled_webhooks: Gauge,
    without_worker: Family<Queue, Gauge>,
}

/// The gauges at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostGauges {
    /// Jobs that have not ended although their deadline has passed.
    pub overdue_jobs: u64,
    /// Jobs that are held.
    pub held_jobs: u64,
    /// Batches that start no further job.
    pub stopped_batches: u64,
    /// Runs that a worker executes.
    pub active_runs: usize,
    /// Free bytes of the data disk.
    pub free_bytes: u64,
    /// Bytes of the data disk.
    pub size_bytes: u64,
    /// Free bytes of the disk of the database, which is the data disk unless DB_PATH names another one.
    pub database_free_bytes: u64,
    /// The time of the newest backup, in seconds since 1970; one that is known to be damaged is none.
    pub backup: Option<i64>,
    /// The newest verified backup that the controller made itself: its time in seconds since 1970, its age in seconds, its bytes.
    pub own_backup: Option<(i64, u64, u64)>,
    /// The end of the certificate of the TLS listeners, in seconds since 1970.
    pub certificate_end: Option<i64>,
    /// The start of the controller, in seconds since 1970.
    pub started: i64,
    /// The events that no delivery is tried for any more.
    pub dead_letters: u64,
    /// Webhooks that are disabled.
    pub disabled_webhooks: u64,
}

impl HostMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let (bytes, seconds) = (Unit::Bytes, Unit::Seconds);
        let overdue = "Jobs that have not ended although their deadline has passed; a held job has none";
        registry.register("job_overdue", overdue, self.overdue.clone());
        let held = "Jobs that are held until an operator resumes or cancels them";
        registry.register("job_held", held, self.held.clone());
        let stopped = "Batches that start no further job until an operator continues them";
        registry.register("batch_stopped", stopped, self.stopped_batches.clone());
        registry.register("run_active", "Runs that a worker executes now", self.active.clone());
        let unanswered = "HTTP requests to BMCs without a response";
        registry.register("redfish_unanswered", unanswered, self.unanswered.clone());
        for limit in ["share", "all"] {
            drop(self.overloads.get_or_create(&Limit { limit }));
        }
        let overloads = "Requests refused for lack of room, for one client (share) or for all clients (all)";
        registry.register("http_overload", overloads, self.overloads.clone());
        let free = "Free space on the disk of the data directory";
        registry.register_with_unit("data_free", free, bytes.clone(), self.free.clone());
        let size = "Size of the disk of the data directory";
        registry.register_with_unit("data_size", size, bytes.clone(), self.size.clone());
        let free = "Free space on the disk of the database, which is that of the data directory unless DB_PATH names another one";
        registry.register_with_unit("database_free", free, bytes, self.database_free.clone());
        let backup = "Time of the newest backup, 0 without one: with BACKUP_TARGET of the newest one there without damage, otherwise in the audit log";
        registry.register_with_unit("backup_timestamp", backup, seconds.clone(), self.backup.clone());
        let success = "Time of the newest verified backup that the controller made itself, 0 without one";
        let registered = self.backup_success.clone();
        registry.register_with_unit("backup_last_success_timestamp", success, seconds.clone(), registered);
        let age = "Age of the newest verified backup that the controller made itself, 0 without one";
        registry.register_with_unit("backup_age", age, seconds.clone(), self.backup_age.clone());
        let size = "Size of the newest verified backup that the controller made itself, 0 without one";
        registry.register_with_unit("backup_size", size, Unit::Bytes, self.backup_size.clone());
        let failures = "Attempts of the controller to make a backup that failed";
        registry.register("backup_failures", failures, self.backup_failures.clone());
        let end = "End of the certificate of the TLS listeners, 0 without one";
        let certificate = self.certificate_end.clone();
        registry.register_with_unit("tls_certificate_end_timestamp", end, seconds.clone(), certificate);
        let started = "Start of the controller";
        registry.register_with_unit("start_timestamp", started, seconds.clone(), self.started.clone());
        let without = "How long a due run of a queue waits for a worker elsewhere that is not there; of such queues only";
        registry.register_with_unit("queue_without_worker", without, seconds, self.without_worker.clone());
        let dead = "Events for webhooks that are dead letters now";
        registry.register("webhook_dead_letters", dead, self.dead_letters.clone());
        let disabled =
            "Webhooks that are disabled, by an operator or after 24 hours without an accepted event";
        registry.register("webhooks_disabled", disabled, self.disabled_webhooks.clone());
    }

    /// Lets the series of an operation begin at 0, because an increase needs a value before it.
    pub(super) fn begin(&self, op: &'static str) {
        drop(self.unanswered.get_or_create(&Operation { op }));
    }

    pub(super) fn unanswered(&self, op: &'static str) {
        self.unanswered.get_or_create(&Operation { op }).inc();
    }

    /// Sets the queues that wait for a worker, with their times in seconds, and drops all others.
    pub(super) fn without_worker(&self, queues: impl IntoIterator<Item = (String, u64)>) {
        self.without_worker.clear();
        for (queue, seconds) in queues {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            self.without_worker.get_or_create(&Queue { queue }).set(seconds);
        }
    }

    pub(super) fn backup_failed(&self) {
        self.backup_failures.inc();
    }

    pub(super) fn overloaded(&self, limit: &'static str) {
        self.overloads.get_or_create(&Limit { limit }).inc();
    }

    pub(super) fn set(&self, now: &HostGauges) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.overdue.set(number(now.overdue_jobs));
        self.held.set(number(now.held_jobs));
        self.stopped_batches.set(number(now.stopped_batches));
        self.active.set(number(now.active_runs as u64));
        self.free.set(number(now.free_bytes));
        self.size.set(number(now.size_bytes));
        self.database_free.set(number(now.database_free_bytes));
        self.backup.set(now.backup.unwrap_or(0));
        let (made, age, size) = now.own_backup.unwrap_or((0, 0, 0));
        self.backup_success.set(made);
        self.backup_age.set(number(age));
        self.backup_size.set(number(size));
        self.certificate_end.set(now.certificate_end.unwrap_or(0));
        self.started.set(now.started);
        self.dead_letters.set(number(now.dead_letters));
        self.disabled_webhooks.set(number(now.disabled_webhooks));
    }
}
