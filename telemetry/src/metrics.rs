//! The metrics of a controller, under the names of docs/seeds.md S000-93 to S000-97. docs/metrics.md lists them; a test writes it from
//! what is exported. Times are in seconds, sizes in bytes, and names say so; `job_total` is a gauge, because its seed names it so.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::host_metrics::{HostGauges, HostMetrics};
use super::nats_metrics::NatsMetrics;

/// The labels of a metric without labels that has no value before it is set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    op: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Content {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Denial {
    action: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limit {
    repositories: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Delivery {
    result: &'static str,
}

/// All metrics of a controller.
pub struct Metrics {
    registry: Registry,
    jobs: Family<Status, Gauge>,
    job_duration: Family<Outcome, Histogram>,
    redfish_request_duration: Family<Operation, Histogram>,
    iso_build_duration: Histogram,
    iso_size: Histogram,
    webhook_latency: Histogram,
    http_requests: Family<Route, Counter>,
    webhook_deliveries: Family<Delivery, Counter>,
    log_lines_dropped: Counter,
    registry_metrics: RegistryMetrics,
    host: HostMetrics,
    nats: NatsMetrics,
}

/// The counters of the registry, and its gauges at the time of a scrape.
#[derive(Default)]
struct RegistryMetrics {
    pushes: Family<Content, Counter>,
    deletes: Family<Content, Counter>,
    denials: Family<Denial, Counter>,
    uploaded: Counter,
    audit_lost: Counter,
    /// Without a value before it is set: a controller without a registry has no disk of one.
    free: Family<NoLabels, Gauge>,
    read_only: Gauge,
    pins: Gauge,
    quota_limit: Family<Limit, Gauge>,
    quota_used: Family<Limit, Gauge>,
    quarantined: Gauge,
}

/// The gauges of the registry at one time.
#[derive(Clone, Debug, Default)]
pub struct RegistryGauges {
    /// Free bytes of the registry's disk.
    pub free_bytes: u64,
    /// Whether the registry refuses changes.
    pub read_only: bool,
    /// The number of pinned images.
    pub pins: usize,
    /// The number of contents that the last complete scrub moved to quarantine.
    pub quarantined: usize,
    /// Quotas: repository pattern, limit in bytes, used bytes.
    pub quotas: Vec<(String, u64, u64)>,
}

impl RegistryMetrics {
    fn register(&self, registry: &mut Registry) {
        let (pushes, deletes, denials) = (self.pushes.clone(), self.deletes.clone(), self.denials.clone());
        registry.register("registry_pushes", "Pushes to the registry", pushes);
        registry.register("registry_deletes", "Deletions from the registry", deletes);
        registry.register("registry_denials", "Denied requests to the registry", denials);
        let bytes = Unit::Bytes;
        registry.register_with_unit(
            "registry_upload",
            "Bytes of pushed blobs and manifests",
            bytes.clone(),
            self.uploaded.clone(),
        );
        let lost = "Registry events that could not be stored and are only in the log";
        registry.register("registry_audit_lost", lost, self.audit_lost.clone());
        let free = "Free space on the disk of the registry";
        registry.register_with_unit("registry_free", free, bytes.clone(), self.free.clone());
        let read_only = "Whether the registry refuses pushes and deletes";
        registry.register("registry_read_only", read_only, self.read_only.clone());
        registry.register("registry_pins", "Images that are pinned by jobs", self.pins.clone());
        let quarantined = "Corrupted contents that the last complete scrub moved to quarantine";
        registry.register("registry_quarantined", quarantined, self.quarantined.clone());
        let (limit, used) = (self.quota_limit.clone(), self.quota_used.clone());
        registry.register_with_unit(
            "registry_quota_limit",
            "Quota of the repositories that match a pattern",
            bytes.clone(),
            limit,
        );
        registry.register_with_unit(
            "registry_quota_used",
            "Used bytes of the repositories that match a pattern",
            bytes,
            used,
        );
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let minutes = || Histogram::new(exponential_buckets(1.0, 2.0, 15));
        let quick = || Histogram::new(exponential_buckets(0.001, 2.0, 18));
        let mut registry = Registry::default();
        let jobs = Family::default();
        registry.register("job_total", "Jobs in the database by public state", Family::clone(&jobs));
        let job_duration = Family::<Outcome, Histogram>::new_with_constructor(minutes);
        registry.register_with_unit(
            "job_duration",
            "Time from the acceptance of a job to the end of its cleanup",
            Unit::Seconds,
            job_duration.clone(),
        );
        let redfish_request_duration = Family::<Operation, Histogram>::new_with_constructor(quick);
        registry.register_with_unit(
            "redfish_request_duration",
            "Duration of one HTTP request to a BMC",
            Unit::Seconds,
            redfish_request_duration.clone(),
        );
        let iso_build_duration = quick();
        registry.register_with_unit(
            "iso_build_duration",
            "Time to plan and hash one task image",
            Unit::Seconds,
            iso_build_duration.clone(),
        );
        let iso_size = Histogram::new(exponential_buckets(1024.0 * 1024.0, 2.0, 8));
        registry.register_with_unit("iso_size", "Size of a task image", Unit::Bytes, iso_size.clone());
        let webhook_latency = minutes();
        registry.register_with_unit(
            "webhook_latency",
            "Time from the power-on of a machine to its installation report",
            Unit::Seconds,
            webhook_latency.clone(),
        );
        let http_requests = Family::default();
        registry.register(
            "http_requests",
            "HTTP requests by route and status",
            Family::clone(&http_requests),
        );
        let webhook_deliveries = Family::default();
        registry.register(
            "webhook_deliveries",
            "Attempts to deliver an event to a webhook by result; dead counts new dead letters",
            Family::clone(&webhook_deliveries),
        );
        let log_lines_dropped = Counter::default();
        registry.register(
            "log_lines_dropped",
            "Log lines of this process that standard error did not accept",
            log_lines_dropped.clone(),
        );
        // A series that begins at 1 has no increase: the first failure would raise no alert.
        for outcome in ["succeeded", "failed", "cancelled"] {
            drop(job_duration.get_or_create(&Outcome { outcome }));
        }
        let registry_metrics = RegistryMetrics::default();
        registry_metrics.register(&mut registry);
        let host = HostMetrics::default();
        host.register(&mut registry);
        let nats = NatsMetrics::default();
        nats.register(&mut registry);
        Self {
            host,
            nats,
            registry_metrics,
            registry,
            jobs,
            job_duration,
            redfish_request_duration,
            iso_build_duration,
            iso_size,
            webhook_latency,
            http_requests,
            webhook_deliveries,
            log_lines_dropped,
        }
    }
}

impl Metrics {
    /// Sets the number of jobs in a public state.
    pub fn set_jobs(&self, status: &'static str, jobs: u64) {
        self.jobs.get_or_create(&Status { status }).set(i64::try_from(jobs).unwrap_or(i64::MAX));
    }

    /// Sets the number of log lines that were dropped since the start of the process.
    pub fn set_dropped_log_lines(&self, lines: u64) {
        self.log_lines_dropped.inner().store(lines, std::sync::atomic::Ordering::Relaxed);
    }

    /// Counts events that a webhook accepted, attempts that failed, and new dead letters.
    pub fn events_sent(&self, delivered: u64, failed: u64, dead: u64) {
        for (result, number) in [("delivered", delivered), ("failed", failed), ("dead", dead)] {
            if number > 0 {
                self.webhook_deliveries.get_or_create(&Delivery { result }).inc_by(number);
            }
        }
    }

    /// Sets whether there is a connection to the NATS server.
    pub fn set_nats_connected(&self, connected: bool) {
        self.nats.connected(connected);
    }

    /// Counts events that the NATS server has stored.
    pub fn nats_published(&self, events: u64) {
        self.nats.published(events);
    }

    /// Sets how many numbers of the event log the NATS server has not stored.
    pub fn set_nats_waiting(&self, events: u64) {
        self.nats.waiting(events);
    }

    /// Counts the end of a job and its duration.
    pub fn job_ended(&self, outcome: &'static str, duration: Duration) {
        self.job_duration.get_or_create(&Outcome { outcome }).observe(duration.as_secs_f64());
    }

    /// Counts a request to a BMC, with or without a response.
    pub fn redfish_request(&self, op: &'static str, duration: Duration) {
        self.redfish_request_duration.get_or_create(&Operation { op }).observe(duration.as_secs_f64());
        self.host.begin(op);
    }

    /// Counts a request to a BMC that had no response.
    pub fn redfish_unanswered(&self, op: &'static str) {
        self.host.unanswered(op);
    }

    /// Records a backup that failed.
    pub fn backup_failed(&self) {
        self.host.backup_failed();
    }

    /// Counts a request that was refused, because its client or all clients together have too many in progress.
    pub fn overloaded(&self, limit: &'static str) {
        self.host.overloaded(limit);
    }

    /// Sets the queues that wait for a worker elsewhere, with their times in seconds.
    pub fn set_queues_without_worker(&self, queues: impl IntoIterator<Item = (String, u64)>) {
        self.host.without_worker(queues);
    }

    /// Sets the gauges of the controller and its host.
    pub fn set_host(&self, now: &HostGauges) {
        self.host.set(now);
    }

    /// Counts a task image that was planned and hashed.
    pub fn iso_built(&self, duration: Duration, size: u64) {
        self.iso_build_duration.observe(duration.as_secs_f64());
        // A histogram uses floating point, which is exact for sizes below 2^53 bytes.
        self.iso_size.observe(size as f64);
    }

    /// Counts an installation report and the time since power-on.
    pub fn reported(&self, after: Duration) {
        self.webhook_latency.observe(after.as_secs_f64());
    }

    /// Counts a request to the API. `route` is the pattern of the route, never the path.
    pub fn http_request(&self, route: &str, code: u16) {
        self.http_requests.get_or_create(&Route { route: route.to_owned(), code }).inc();
    }

    /// Counts a push to the registry and its uploaded bytes.
    pub fn registry_pushed(&self, kind: &'static str, bytes: u64) {
        self.registry_metrics.pushes.get_or_create(&Content { kind }).inc();
        self.registry_metrics.uploaded.inc_by(bytes);
    }

    /// Counts a deletion from the registry.
    pub fn registry_deleted(&self, kind: &'static str) {
        self.registry_metrics.deletes.get_or_create(&Content { kind }).inc();
    }

    /// Counts a denied request to the registry.
    pub fn registry_denied(&self, action: &'static str, reason: &'static str) {
        self.registry_metrics.denials.get_or_create(&Denial { action, reason }).inc();
    }

    /// Counts a registry event that could not be stored.
    pub fn registry_audit_lost(&self) {
        self.registry_metrics.audit_lost.inc();
    }

    /// Sets the gauges of the registry.
    pub fn set_registry(&self, now: &RegistryGauges) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.registry_metrics.free.get_or_create(&NoLabels {}).set(number(now.free_bytes));
        self.registry_metrics.read_only.set(i64::from(now.read_only));
        self.registry_metrics.pins.set(number(now.pins as u64));
        self.registry_metrics.quarantined.set(number(now.quarantined as u64));
        for (repositories, limit, used) in &now.quotas {
            let label = Limit { repositories: repositories.clone() };
            self.registry_metrics.quota_limit.get_or_create(&label).set(number(*limit));
            self.registry_metrics.quota_used.get_or_create(&label).set(number(*used));
        }
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// Never in practice: writing to a `String` does not fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
