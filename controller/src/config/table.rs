//! The table of all settings of the controller.
//!
//! A new setting needs a row here, an entry in [`SETTINGS`], a field of [`super::Settings`] and a line in
//! [`super::Settings::load`]; a test checks that they agree.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use registry::{ImmutableTags, Quota, RepositoryPattern, RetentionRule};

use crate::auth::AuthMode;
use secrets::SecretSource;

use super::definition::{AnySetting, Definition, Setting, SettingDefault, SettingKind};
use super::images;
use super::values::{self, LogFormat, TaskIsoMode};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The maximum width of a line of a description in the reference.
const REFERENCE_WIDTH: usize = 100;

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const fn row(
    name: &'static str,
    kind: SettingKind,
    default: SettingDefault,
    doc: &'static str,
) -> Definition {
    Definition { name, kind, default, doc, flag_alias: None }
}

pub(super) static CONTROLLER_HTTP_ADDR: Setting<SocketAddr> = Setting {
    definition: row(
        "CONTROLLER_HTTP_ADDR",
        SettingKind::Address,
        SettingDefault::Text(":8080"),
        "The address on which API and registry listen, and media too unless MEDIA_HTTP_ADDR is set. The default :8080 means 0.0.0.0:8080, all IPv4 addresses.",
    ),
    parse: values::address,
};
pub(super) static MEDIA_HTTP_ADDR: Setting<SocketAddr> = Setting {
    definition: row(
        "MEDIA_HTTP_ADDR",
        SettingKind::Address,
        SettingDefault::Unset,
        "A separate listen address for media, for example :80 for BMCs that support no other port. Unset: media share CONTROLLER_HTTP_ADDR.",
    ),
    parse: values::address,
};
pub(super) static MEDIA_BASE_URL: Setting<String> = Setting {
    definition: row(
        "MEDIA_BASE_URL",
        SettingKind::BaseUrl,
        SettingDefault::Unset,
        "The base of the media URLs that BMCs receive. Unset: the local address from which the controller reaches the BMC. A server can override it.",
    ),
    parse: values::base_url,
};
pub(super) static CONTROLLER_PUBLIC_URL: Setting<String> = Setting {
    definition: row(
        "CONTROLLER_PUBLIC_URL",
        SettingKind::BaseUrl,
        SettingDefault::Unset,
        "The base URL at which the maintenance OS reaches API and registry. Unset: the local address from which the controller reaches the BMC. Set it when a TLS proxy is in front of the controller.",
    ),
    parse: values::base_url,
};
pub(super) static CONTROLLER_CA_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "CONTROLLER_CA_FILE",
        SettingKind::Path,
        SettingDefault::Unset,
        "PEM certificates that the maintenance OS trusts when CONTROLLER_PUBLIC_URL is https. The controller trusts them, and no others, for https images and webhooks.",
    ),
    parse: values::path,
};
pub(super) static STORAGE_ROOT: Setting<PathBuf> = Setting {
    definition: Definition {
        name: "STORAGE_ROOT",
        kind: SettingKind::Path,
        default: SettingDefault::Text("/var/lib/shoal"),
        doc: "The data directory: database, images, keys. An empty directory is enough to start.",
        flag_alias: Some("data"),
    },
    parse: values::path,
};
pub(super) static DB_PATH: Setting<PathBuf> = Setting {
    definition: row(
        "DB_PATH",
        SettingKind::Path,
        SettingDefault::UnderStorageRoot("provisioner.db"),
        "The database file. It must be on a local file system, because SQLite cannot rely on locks of network file systems.",
    ),
    parse: values::path,
};
pub(super) static TASK_ISO_DIR: Setting<PathBuf> = Setting {
    definition: row(
        "TASK_ISO_DIR",
        SettingKind::Path,
        SettingDefault::UnderStorageRoot("task-isos"),
        "The directory for task images with TASK_ISO_MODE=file. The files contain secrets of their jobs.",
    ),
    parse: values::path,
};
pub(super) static TASK_ISO_MODE: Setting<TaskIsoMode> = Setting {
    definition: row(
        "TASK_ISO_MODE",
        SettingKind::Choice(&["computed", "file"]),
        SettingDefault::Text("computed"),
        "computed: task images are computed when a BMC reads them and not written to disk. file: they are also written to TASK_ISO_DIR, for inspection.",
    ),
    parse: values::choice,
};
pub(super) static MAINTENANCE_ISO_URL: Setting<String> = Setting {
    definition: row(
        "MAINTENANCE_ISO_URL",
        SettingKind::ImageUrl,
        SettingDefault::Unset,
        "The maintenance image of jobs that name none: an absolute path or a file:, http: or https: URL. Unset: such jobs are refused, except install-esxi.target.",
    ),
    parse: values::image_url,
};
pub(super) static ESXI_INSTALLER_URL: Setting<String> = Setting {
    definition: row(
        "ESXI_INSTALLER_URL",
        SettingKind::ImageUrl,
        SettingDefault::Unset,
        "The installer image of install-esxi.target jobs that name none: an absolute path or a file:, http: or https: URL. Unset: such jobs are refused.",
    ),
    parse: values::image_url,
};
pub(super) static ENABLE_REGISTRY: Setting<bool> = Setting {
    definition: row(
        "ENABLE_REGISTRY",
        SettingKind::Switch,
        SettingDefault::Text("true"),
        "Enables the OCI registry under /v2/. With false, recipes can only use images of other registries.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_STORAGE: Setting<PathBuf> = Setting {
    definition: row(
        "REGISTRY_STORAGE",
        SettingKind::Path,
        SettingDefault::UnderStorageRoot("oci"),
        "The directory of the registry: one OCI image layout per repository. It can be on another disk than STORAGE_ROOT.",
    ),
    parse: values::path,
};
pub(super) static REGISTRY_MAX_BLOB_SIZE: Setting<u64> = Setting {
    definition: row(
        "REGISTRY_MAX_BLOB_SIZE",
        SettingKind::Size { min: MIB, max: 16 * 1024 * GIB },
        SettingDefault::Text("20GiB"),
        "Maximum size of one blob. A larger upload is refused, so that one push cannot fill the disk.",
    ),
    parse: values::size,
};
pub(super) static REGISTRY_RESERVE: Setting<String> = Setting {
    definition: row(
        "REGISTRY_RESERVE",
        SettingKind::Reserve,
        SettingDefault::Text("64MiB"),
        "Free space that pushes never use on the disk of the registry: a size, or a share of the disk such as 2%. A push that would use it is refused.",
    ),
    parse: values::reserve,
};
pub(super) static REGISTRY_GC_INTERVAL: Setting<Duration> = Setting {
    definition: row(
        "REGISTRY_GC_INTERVAL",
        SettingKind::Duration { min: seconds(60), max: seconds(90 * 86_400) },
        SettingDefault::Text("1h"),
        "Time between two garbage collections of the registry, which remove content that no image needs. Each one also applies REGISTRY_RETENTION.",
    ),
    parse: values::duration,
};
pub(super) static REGISTRY_GC_GRACE_PERIOD: Setting<Duration> = Setting {
    definition: row(
        "REGISTRY_GC_GRACE_PERIOD",
        SettingKind::Duration { min: seconds(0), max: seconds(90 * 86_400) },
        SettingDefault::Text("1h"),
        "Time that unreferenced content is kept after its last push or request. It must be longer than one push takes: a collection could otherwise remove blobs of an incomplete push.",
    ),
    parse: values::duration,
};
pub(super) static REGISTRY_GC_UNTAGGED: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_GC_UNTAGGED",
        SettingKind::Switch,
        SettingDefault::Text("false"),
        "Garbage collection also removes images without a tag once REGISTRY_GC_GRACE_PERIOD has passed. With false they stay until they are deleted.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_SCRUB_INTERVAL: Setting<Duration> = Setting {
    definition: row(
        "REGISTRY_SCRUB_INTERVAL",
        SettingKind::Duration { min: seconds(3600), max: seconds(365 * 86_400) },
        SettingDefault::Text("7d"),
        "Time between two scrubs of the registry. A scrub hashes all content again and moves corrupted content to quarantine.",
    ),
    parse: values::duration,
};
pub(super) static REGISTRY_SCRUB_RATE: Setting<u64> = Setting {
    definition: row(
        "REGISTRY_SCRUB_RATE",
        SettingKind::Size { min: MIB, max: 16 * GIB },
        SettingDefault::Text("32MiB"),
        "Maximum bytes that a scrub reads per second. The default leaves the disk free for pushes and pulls; a higher rate finishes a scrub earlier.",
    ),
    parse: values::size,
};
pub(super) static REGISTRY_RETENTION: Setting<Vec<RetentionRule>> = Setting {
    definition: row(
        "REGISTRY_RETENTION",
        SettingKind::Entries("repositories:tags newest=N younger=DURATION"),
        SettingDefault::Unset,
        "Tags to keep, applied after each REGISTRY_GC_INTERVAL. The first entry that matches a tag decides; tags that no entry matches stay. Unset: all tags stay.",
    ),
    parse: images::retention,
};
pub(super) static REGISTRY_QUOTAS: Setting<Vec<Quota>> = Setting {
    definition: row(
        "REGISTRY_QUOTAS",
        SettingKind::Entries("repositories=SIZE"),
        SettingDefault::Unset,
        "Maximum bytes of all repositories that match a pattern, for example os-images/**=500GiB, tools/**=20GiB. A push over a quota is refused. Unset: no quotas.",
    ),
    parse: images::quotas,
};
pub(super) static REGISTRY_READ_ONLY: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_READ_ONLY",
        SettingKind::Switch,
        SettingDefault::Text("false"),
        "Refuses pushes and deletes from the start of the controller. `shoal registry read-only on` does so while it runs.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_HTPASSWD_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "REGISTRY_HTPASSWD_FILE",
        SettingKind::Path,
        SettingDefault::Unset,
        "A file of further registry users made with `htpasswd -B`. A change is read without a restart. Unset: only users and API tokens of the controller.",
    ),
    parse: values::path,
};
pub(super) static REGISTRY_ACCESS_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "REGISTRY_ACCESS_FILE",
        SettingKind::Path,
        SettingDefault::Unset,
        "A file of access rules for the registry, one rule per line. A change is read without a restart. Unset: administrators have full access, other users may pull.",
    ),
    parse: values::path,
};
pub(super) static REGISTRY_ANONYMOUS_READ: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_ANONYMOUS_READ",
        SettingKind::Switch,
        SettingDefault::Text("false"),
        "Allows pulls without login where no rule of REGISTRY_ACCESS_FILE matches. Images may contain secrets, so the default denies it.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_ANONYMOUS_WRITE: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_ANONYMOUS_WRITE",
        SettingKind::Switch,
        SettingDefault::Text("false"),
        "Allows pushes without login where no rule of REGISTRY_ACCESS_FILE matches. Every client on the network can then replace images that machines install.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_IMMUTABLE_TAGS: Setting<Vec<ImmutableTags>> = Setting {
    definition: row(
        "REGISTRY_IMMUTABLE_TAGS",
        SettingKind::Entries("repositories:tags"),
        SettingDefault::Unset,
        "Tags that can be neither moved nor deleted once they exist, for example os-images/**:v*. Unset: every tag can change.",
    ),
    parse: images::immutable_tags,
};
pub(super) static REGISTRY_SPARSE_IMAGES: Setting<Vec<RepositoryPattern>> = Setting {
    definition: row(
        "REGISTRY_SPARSE_IMAGES",
        SettingKind::Entries("repositories"),
        SettingDefault::Unset,
        "Repositories that accept an image although some of its blobs are missing, for partial mirrors, for example mirror/**. Unset: an image needs all its blobs.",
    ),
    parse: images::repositories,
};
pub(super) static AUTH_MODE: Setting<AuthMode> = Setting {
    definition: row(
        "AUTH_MODE",
        SettingKind::Choice(&["basic", "jwt", "none"]),
        SettingDefault::Text("basic"),
        "How API callers authenticate: basic (user and password), jwt (tokens signed with JWT_SECRET), none (every caller is an administrator; loopback only). API tokens work in every mode.",
    ),
    parse: values::choice,
};
pub(super) static AUTH_NONE_ALLOW_REMOTE: Setting<bool> = Setting {
    definition: row(
        "AUTH_NONE_ALLOW_REMOTE",
        SettingKind::Switch,
        SettingDefault::Text("false"),
        "Allows AUTH_MODE=none on addresses other than loopback. Every client that reaches the address is then an administrator.",
    ),
    parse: values::switch,
};
pub(super) static BASIC_USER: Setting<String> = Setting {
    definition: row(
        "BASIC_USER",
        SettingKind::UserName,
        SettingDefault::Unset,
        "Name of an administrator for AUTH_MODE=basic. It needs BASIC_PASS_HASH and takes precedence over a stored user of this name.",
    ),
    parse: values::user_name,
};
pub(super) static BASIC_PASS_HASH: Setting<String> = Setting {
    definition: row(
        "BASIC_PASS_HASH",
        SettingKind::PasswordHash,
        SettingDefault::Unset,
        "The password of BASIC_USER as an argon2id hash in PHC form ($argon2id$v=19$m=...).",
    ),
    parse: values::password_hash,
};
pub(super) static JWT_SECRET: Setting<SecretSource> = Setting {
    definition: row(
        "JWT_SECRET",
        SettingKind::Secret,
        SettingDefault::Unset,
        "The HS256 key for AUTH_MODE=jwt, at least 32 bytes, as RFC 7518 requires. A new key invalidates all tokens signed with the old one.",
    ),
    parse: values::secret,
};
pub(super) static WEBHOOK_SECRET: Setting<SecretSource> = Setting {
    definition: row(
        "WEBHOOK_SECRET",
        SettingKind::Secret,
        SettingDefault::Unset,
        "A shared secret for installation reports of systems that cannot read the token in job.json. Unset: only the report token of each job is accepted.",
    ),
    parse: values::secret,
};
pub(super) static WEBHOOK_SECRET_OLD: Setting<SecretSource> = Setting {
    definition: row(
        "WEBHOOK_SECRET_OLD",
        SettingKind::Secret,
        SettingDefault::Unset,
        "The previous WEBHOOK_SECRET, accepted in addition while the secret is replaced. Remove it when all systems use the new one.",
    ),
    parse: values::secret,
};
pub(super) static MASTER_KEY: Setting<SecretSource> = Setting {
    definition: row(
        "MASTER_KEY",
        SettingKind::Secret,
        SettingDefault::Unset,
        "The key that seals credentials and derives the tokens of jobs: 64 hex digits. Unset: created once in STORAGE_ROOT/master.key. If it is lost, BMC passwords must be entered again.",
    ),
    parse: values::secret,
};
pub(super) static METRICS_ANONYMOUS: Setting<bool> = Setting {
    definition: row(
        "METRICS_ANONYMOUS",
        SettingKind::Switch,
        SettingDefault::Text("false"),
        "Serves /metrics without login. Metrics name routes and repositories, so the default requires a login.",
    ),
    parse: values::switch,
};
pub(super) static MAX_BODY_BYTES: Setting<usize> = Setting {
    definition: row(
        "MAX_BODY_BYTES",
        SettingKind::Size { min: 64 << 10, max: 256 * MIB },
        SettingDefault::Text("8MiB"),
        "Maximum size of a request body of the API; larger requests receive status 413. Registry uploads have REGISTRY_MAX_BLOB_SIZE instead.",
    ),
    parse: values::memory,
};
pub(super) static WORKER_CONCURRENCY: Setting<usize> = Setting {
    definition: row(
        "WORKER_CONCURRENCY",
        SettingKind::Count { min: 0, max: 1024 },
        SettingDefault::Text("4"),
        "Maximum number of steps that run at once. A job that waits occupies no worker, so a few are enough. With 0 jobs are accepted and no step starts.",
    ),
    parse: values::count,
};
pub(super) static MAX_POWER_ONS: Setting<u32> = Setting {
    definition: row(
        "MAX_POWER_ONS",
        SettingKind::Count { min: 0, max: 100_000 },
        SettingDefault::Text("0"),
        "Maximum number of hosts that power on at once, for example to limit the inrush current. A host counts from the request until it reads its boot image or POWER_ON_SETTLE has passed. 0 is no limit.",
    ),
    parse: values::small_count,
};
pub(super) static POWER_ON_SETTLE: Setting<Duration> = Setting {
    definition: row(
        "POWER_ON_SETTLE",
        SettingKind::Duration { min: seconds(1), max: seconds(3600) },
        SettingDefault::Text("2m"),
        "Time that a host counts for MAX_POWER_ONS after its power-on, unless it reads its boot image earlier. A longer time starts the hosts of a large batch more slowly.",
    ),
    parse: values::duration,
};
pub(super) static SITE_LIMIT: Setting<u32> = Setting {
    definition: row(
        "SITE_LIMIT",
        SettingKind::Count { min: 0, max: 100_000 },
        SettingDefault::Text("0"),
        "Maximum number of jobs in progress among servers with an equal label `site`; others stay queued. 0 is no limit.",
    ),
    parse: values::small_count,
};
pub(super) static STEP_TIMEOUTS: Setting<Vec<(String, Duration)>> = Setting {
    definition: row(
        "STEP_TIMEOUTS",
        SettingKind::StepTimes,
        SettingDefault::Unset,
        "Time limits of steps, waits included, that replace the built-in ones, for example webhook.wait=90m,redfish.mount.task=5m. A step that exceeds its limit fails the job.",
    ),
    parse: values::step_times,
};
pub(super) static REDFISH_TIMEOUT: Setting<Duration> = Setting {
    definition: row(
        "REDFISH_TIMEOUT",
        SettingKind::Duration { min: seconds(1), max: seconds(120) },
        SettingDefault::Text("30s"),
        "Timeout of one read from a BMC. Slow operations such as inserting media have longer fixed timeouts.",
    ),
    parse: values::duration,
};
pub(super) static REDFISH_RETRIES: Setting<u32> = Setting {
    definition: row(
        "REDFISH_RETRIES",
        SettingKind::Count { min: 0, max: 20 },
        SettingDefault::Text("5"),
        "Maximum attempts of a step that uses a BMC before the step fails; cleanup steps have four times as many. 0 counts as 1. A change is read back before it is requested again.",
    ),
    parse: values::small_count,
};
pub(super) static REDFISH_RATE: Setting<u32> = Setting {
    definition: row(
        "REDFISH_RATE",
        SettingKind::Count { min: 0, max: 1000 },
        SettingDefault::Text("10"),
        "Maximum average of requests per second to one BMC; after a pause four times as many are sent at once. A higher rate can overload slow BMCs. 0 is no limit.",
    ),
    parse: values::small_count,
};
pub(super) static REDFISH_MAX_IN_FLIGHT: Setting<usize> = Setting {
    definition: row(
        "REDFISH_MAX_IN_FLIGHT",
        SettingKind::Count { min: 1, max: 65_536 },
        SettingDefault::Text("256"),
        "Maximum number of requests in flight to all BMCs together. One BMC has at most two in flight, and only one of them changes something.",
    ),
    parse: values::count,
};
pub(super) static REDFISH_BREAKER_FAILURES: Setting<u32> = Setting {
    definition: row(
        "REDFISH_BREAKER_FAILURES",
        SettingKind::Count { min: 0, max: 1000 },
        SettingDefault::Text("5"),
        "Number of requests in a row without a response after which the circuit of a BMC opens: no request is sent and its jobs wait. 0: never.",
    ),
    parse: values::small_count,
};
pub(super) static REDFISH_BREAKER_OPEN_TIME: Setting<Duration> = Setting {
    definition: row(
        "REDFISH_BREAKER_OPEN_TIME",
        SettingKind::Duration { min: seconds(1), max: seconds(3600) },
        SettingDefault::Text("30s"),
        "Time that the circuit of a BMC stays open before one request tests the BMC.",
    ),
    parse: values::duration,
};
pub(super) static REDFISH_CA_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "REDFISH_CA_FILE",
        SettingKind::Path,
        SettingDefault::Unset,
        "PEM certificates of the authorities that sign BMC certificates, for servers registered with `--tls verify`. Servers with pinned certificates need none.",
    ),
    parse: values::path,
};
pub(super) static JOB_LEASE_TTL: Setting<Duration> = Setting {
    definition: row(
        "JOB_LEASE_TTL",
        SettingKind::Duration { min: seconds(120), max: seconds(86_400) },
        SettingDefault::Text("10m"),
        "Time after which another worker takes over a job whose worker makes no progress. It must exceed the longest call of a step (150s); a longer time delays recovery after a crash.",
    ),
    parse: values::duration,
};
pub(super) static JOB_STUCK_TIMEOUT: Setting<Duration> = Setting {
    definition: row(
        "JOB_STUCK_TIMEOUT",
        SettingKind::Duration { min: seconds(60), max: seconds(30 * 86_400) },
        SettingDefault::Text("4h"),
        "Time limit of a job from its acceptance to its outcome, time in the queue included. A job that exceeds it fails and is cleaned up.",
    ),
    parse: values::duration,
};
pub(super) static INSTALL_MIN_TIME: Setting<Duration> = Setting {
    definition: row(
        "INSTALL_MIN_TIME",
        SettingKind::Duration { min: seconds(60), max: seconds(86_400) },
        SettingDefault::Text("10m"),
        "Time after power-on in which no observation counts as the end of an installer that cannot report (ESXi). Restarts during the installation would otherwise end the job too early.",
    ),
    parse: values::duration,
};
pub(super) static INSTALL_WINDOW: Setting<Duration> = Setting {
    definition: row(
        "INSTALL_WINDOW",
        SettingKind::Duration { min: seconds(60), max: seconds(7 * 86_400) },
        SettingDefault::Text("90m"),
        "Time to wait for an observation that an installer that cannot report (ESXi) has ended. Without one the job is recorded as succeeded with completion `assumed` and a warning.",
    ),
    parse: values::duration,
};
pub(super) static CLEANUP_TIMEOUT: Setting<Duration> = Setting {
    definition: row(
        "CLEANUP_TIMEOUT",
        SettingKind::Duration { min: seconds(10), max: seconds(86_400) },
        SettingDefault::Text("10m"),
        "Time limit of the cleanup of a job. What remains is recorded as pending cleanup, and the next job of the server does it.",
    ),
    parse: values::duration,
};
pub(super) static JOB_RETENTION_DAYS: Setting<u32> = Setting {
    definition: row(
        "JOB_RETENTION_DAYS",
        SettingKind::Count { min: 0, max: 3650 },
        SettingDefault::Text("90"),
        "Days after its end that a job is kept with its events and its idempotency key. 0: never deleted.",
    ),
    parse: values::small_count,
};
pub(super) static LOG_LEVEL: Setting<String> = Setting {
    definition: row(
        "LOG_LEVEL",
        SettingKind::LogFilter,
        SettingDefault::Text("info"),
        "Log filter: error, warn, info, debug or trace, or levels for parts of the program such as info,engine=debug.",
    ),
    parse: values::log_filter,
};
pub(super) static LOG_FORMAT: Setting<LogFormat> = Setting {
    definition: row(
        "LOG_FORMAT",
        SettingKind::Choice(&["auto", "text", "json"]),
        SettingDefault::Text("auto"),
        "Format of log lines on standard error. auto: text on a terminal, JSON otherwise.",
    ),
    parse: values::choice,
};

/// The settings in the order of the reference.
pub(super) static SETTINGS: [&dyn AnySetting; 59] = [
    &CONTROLLER_HTTP_ADDR,
    &MEDIA_HTTP_ADDR,
    &MEDIA_BASE_URL,
    &CONTROLLER_PUBLIC_URL,
    &CONTROLLER_CA_FILE,
    &STORAGE_ROOT,
    &DB_PATH,
    &TASK_ISO_DIR,
    &TASK_ISO_MODE,
    &MAINTENANCE_ISO_URL,
    &ESXI_INSTALLER_URL,
    &ENABLE_REGISTRY,
    &REGISTRY_STORAGE,
    &REGISTRY_MAX_BLOB_SIZE,
    &REGISTRY_RESERVE,
    &REGISTRY_GC_INTERVAL,
    &REGISTRY_GC_GRACE_PERIOD,
    &REGISTRY_GC_UNTAGGED,
    &REGISTRY_SCRUB_INTERVAL,
    &REGISTRY_SCRUB_RATE,
    &REGISTRY_RETENTION,
    &REGISTRY_QUOTAS,
    &REGISTRY_READ_ONLY,
    &REGISTRY_HTPASSWD_FILE,
    &REGISTRY_ACCESS_FILE,
    &REGISTRY_ANONYMOUS_READ,
    &REGISTRY_ANONYMOUS_WRITE,
    &REGISTRY_IMMUTABLE_TAGS,
    &REGISTRY_SPARSE_IMAGES,
    &AUTH_MODE,
    &AUTH_NONE_ALLOW_REMOTE,
    &BASIC_USER,
    &BASIC_PASS_HASH,
    &JWT_SECRET,
    &WEBHOOK_SECRET,
    &WEBHOOK_SECRET_OLD,
    &MASTER_KEY,
    &METRICS_ANONYMOUS,
    &MAX_BODY_BYTES,
    &WORKER_CONCURRENCY,
    &MAX_POWER_ONS,
    &POWER_ON_SETTLE,
    &SITE_LIMIT,
    &STEP_TIMEOUTS,
    &REDFISH_TIMEOUT,
    &REDFISH_RETRIES,
    &REDFISH_RATE,
    &REDFISH_MAX_IN_FLIGHT,
    &REDFISH_BREAKER_FAILURES,
    &REDFISH_BREAKER_OPEN_TIME,
    &REDFISH_CA_FILE,
    &JOB_LEASE_TTL,
    &JOB_STUCK_TIMEOUT,
    &INSTALL_MIN_TIME,
    &INSTALL_WINDOW,
    &CLEANUP_TIMEOUT,
    &JOB_RETENTION_DAYS,
    &LOG_LEVEL,
    &LOG_FORMAT,
];

/// The rows of the table.
pub static DEFINITIONS: LazyLock<Vec<&'static Definition>> =
    LazyLock::new(|| SETTINGS.iter().map(|setting| setting.definition()).collect());

/// The table as text, for `shoal config reference`.
pub fn reference() -> String {
    let mut text = String::from(
        "Settings of the controller. Precedence: flag, environment variable, configuration file, default.\n",
    );
    for definition in DEFINITIONS.iter() {
        let alias = definition.flag_alias.map(|alias| format!(", --{alias}")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{}\n{}    flag --{}{alias}   file key {}   kind {}   default {}\n",
            definition.name,
            wrapped(definition.doc),
            definition.flag(),
            definition.key(),
            definition.kind,
            definition.default,
        );
    }
    text
}

/// Breaks a description into indented lines.
fn wrapped(doc: &str) -> String {
    let mut lines = vec![String::new()];
    for word in doc.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = format!("    {word}"),
            Some(line) if line.len() + 1 + word.len() <= REFERENCE_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
