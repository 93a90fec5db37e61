//! The table: every setting the controller has, once.
//!
//! A new setting is a row here, an entry in [`SETTINGS`], a field of [`super::Settings`] and a line where it is read;
//! a test holds them together.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use registry::{ImmutableTags, Quota, RepositoryPattern, RetentionRule};

use crate::auth::AuthMode;
use secrets::SecretSource;

use super::definition::{AnySetting, Definition, Kind, Setting, SettingDefault};
use super::images;
use super::values::{self, LogFormat, TaskIsoMode};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const fn row(name: &'static str, kind: Kind, default: SettingDefault, doc: &'static str) -> Definition {
    Definition { name, kind, default, doc, flag_alias: None }
}

pub(super) static CONTROLLER_HTTP_ADDR: Setting<SocketAddr> = Setting {
    definition: row(
        "CONTROLLER_HTTP_ADDR",
        Kind::Address,
        SettingDefault::Text(":8080"),
        "Where API and registry listen; media too unless MEDIA_HTTP_ADDR is set. :8080 means 0.0.0.0:8080.",
    ),
    parse: values::address,
};
pub(super) static MEDIA_HTTP_ADDR: Setting<SocketAddr> = Setting {
    definition: row(
        "MEDIA_HTTP_ADDR",
        Kind::Address,
        SettingDefault::Unset,
        "A listener of its own for media, such as :80 for BMCs that know no other port.",
    ),
    parse: values::address,
};
pub(super) static MEDIA_BASE_URL: Setting<String> = Setting {
    definition: row(
        "MEDIA_BASE_URL",
        Kind::BaseUrl,
        SettingDefault::Unset,
        "How BMCs reach our media; by default the local address used towards each BMC. A server may have its own.",
    ),
    parse: values::base_url,
};
pub(super) static CONTROLLER_PUBLIC_URL: Setting<String> = Setting {
    definition: row(
        "CONTROLLER_PUBLIC_URL",
        Kind::BaseUrl,
        SettingDefault::Unset,
        "How the maintenance OS reaches API and registry; by default the local address used towards each BMC.",
    ),
    parse: values::base_url,
};
pub(super) static CONTROLLER_CA_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "CONTROLLER_CA_FILE",
        Kind::Path,
        SettingDefault::Unset,
        "PEM certificates the maintenance OS believes when CONTROLLER_PUBLIC_URL is https.",
    ),
    parse: values::path,
};
pub(super) static STORAGE_ROOT: Setting<PathBuf> = Setting {
    definition: Definition {
        name: "STORAGE_ROOT",
        kind: Kind::Path,
        default: SettingDefault::Text("/var/lib/shoal"),
        doc: "The data directory. An empty one is enough to start.",
        flag_alias: Some("data"),
    },
    parse: values::path,
};
pub(super) static DB_PATH: Setting<PathBuf> = Setting {
    definition: row(
        "DB_PATH",
        Kind::Path,
        SettingDefault::UnderStorageRoot("provisioner.db"),
        "The database file, on a local file system.",
    ),
    parse: values::path,
};
pub(super) static TASK_ISO_DIR: Setting<PathBuf> = Setting {
    definition: row(
        "TASK_ISO_DIR",
        Kind::Path,
        SettingDefault::UnderStorageRoot("task-isos"),
        "Where task images are written with TASK_ISO_MODE=file.",
    ),
    parse: values::path,
};
pub(super) static TASK_ISO_MODE: Setting<TaskIsoMode> = Setting {
    definition: row(
        "TASK_ISO_MODE",
        Kind::Choice(&["computed", "file"]),
        SettingDefault::Text("computed"),
        "Whether task images are only computed when read, or also written to TASK_ISO_DIR.",
    ),
    parse: values::choice,
};
pub(super) static MAINTENANCE_ISO_URL: Setting<String> = Setting {
    definition: row(
        "MAINTENANCE_ISO_URL",
        Kind::ImageUrl,
        SettingDefault::Unset,
        "The maintenance image of jobs that name none: an absolute path, file:, http: or https: URL.",
    ),
    parse: values::image_url,
};
pub(super) static ESXI_INSTALLER_URL: Setting<String> = Setting {
    definition: row(
        "ESXI_INSTALLER_URL",
        Kind::ImageUrl,
        SettingDefault::Unset,
        "The installer of install-esxi.target jobs that name none: an absolute path, file:, http: or https: URL.",
    ),
    parse: values::image_url,
};
pub(super) static ENABLE_REGISTRY: Setting<bool> = Setting {
    definition: row(
        "ENABLE_REGISTRY",
        Kind::Switch,
        SettingDefault::Text("true"),
        "Whether the OCI registry answers under /v2/.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_STORAGE: Setting<PathBuf> = Setting {
    definition: row(
        "REGISTRY_STORAGE",
        Kind::Path,
        SettingDefault::UnderStorageRoot("oci"),
        "Where the registry keeps its blobs.",
    ),
    parse: values::path,
};
pub(super) static REGISTRY_MAX_BLOB_SIZE: Setting<u64> = Setting {
    definition: row(
        "REGISTRY_MAX_BLOB_SIZE",
        Kind::Size { min: MIB, max: 16 * 1024 * GIB },
        SettingDefault::Text("20GiB"),
        "The largest blob the registry takes.",
    ),
    parse: values::size,
};
pub(super) static REGISTRY_RESERVE: Setting<String> = Setting {
    definition: row(
        "REGISTRY_RESERVE",
        Kind::Reserve,
        SettingDefault::Text("64MiB"),
        "Room on the registry's disk that pushes never touch: a size, or a part of the disk such as 2%.",
    ),
    parse: values::reserve,
};
pub(super) static REGISTRY_GC_INTERVAL: Setting<Duration> = Setting {
    definition: row(
        "REGISTRY_GC_INTERVAL",
        Kind::Duration { min: seconds(60), max: seconds(90 * 86_400) },
        SettingDefault::Text("1h"),
        "How often what no image needs is removed from the registry.",
    ),
    parse: values::duration,
};
pub(super) static REGISTRY_GC_GRACE_PERIOD: Setting<Duration> = Setting {
    definition: row(
        "REGISTRY_GC_GRACE_PERIOD",
        Kind::Duration { min: seconds(0), max: seconds(90 * 86_400) },
        SettingDefault::Text("1h"),
        "How long the registry keeps what no image needs after it was last pushed or asked for.",
    ),
    parse: values::duration,
};
pub(super) static REGISTRY_GC_UNTAGGED: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_GC_UNTAGGED",
        Kind::Switch,
        SettingDefault::Text("false"),
        "Whether that takes images no tag leads to as well, once they are older than REGISTRY_GC_GRACE_PERIOD.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_SCRUB_INTERVAL: Setting<Duration> = Setting {
    definition: row(
        "REGISTRY_SCRUB_INTERVAL",
        Kind::Duration { min: seconds(3600), max: seconds(365 * 86_400) },
        SettingDefault::Text("7d"),
        "How often all images are hashed once more to find what has rotted on the disk.",
    ),
    parse: values::duration,
};
pub(super) static REGISTRY_SCRUB_RATE: Setting<u64> = Setting {
    definition: row(
        "REGISTRY_SCRUB_RATE",
        Kind::Size { min: MIB, max: 16 * GIB },
        SettingDefault::Text("32MiB"),
        "How much of them is read in a second at most.",
    ),
    parse: values::size,
};
pub(super) static REGISTRY_RETENTION: Setting<Vec<RetentionRule>> = Setting {
    definition: row(
        "REGISTRY_RETENTION",
        Kind::Entries("repositories:tags newest=N younger=DURATION"),
        SettingDefault::Unset,
        "Which tags stay when REGISTRY_GC_INTERVAL is over: the first entry that fits a tag decides, others stay.",
    ),
    parse: images::retention,
};
pub(super) static REGISTRY_QUOTAS: Setting<Vec<Quota>> = Setting {
    definition: row(
        "REGISTRY_QUOTAS",
        Kind::Entries("repositories=SIZE"),
        SettingDefault::Unset,
        "How much repositories may hold together, such as os-images/**=500GiB, tools/**=20GiB.",
    ),
    parse: images::quotas,
};
pub(super) static REGISTRY_READ_ONLY: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_READ_ONLY",
        Kind::Switch,
        SettingDefault::Text("false"),
        "Whether the registry refuses pushes and deletes; a running one is told by `shoal registry read-only`.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_HTPASSWD_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "REGISTRY_HTPASSWD_FILE",
        Kind::Path,
        SettingDefault::Unset,
        "Users of the registry beside ours, as `htpasswd -B` writes them; read again when it changes.",
    ),
    parse: values::path,
};
pub(super) static REGISTRY_ACCESS_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "REGISTRY_ACCESS_FILE",
        Kind::Path,
        SettingDefault::Unset,
        "Who may do what in which repositories, a rule a line; read again when it changes.",
    ),
    parse: values::path,
};
pub(super) static REGISTRY_ANONYMOUS_READ: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_ANONYMOUS_READ",
        Kind::Switch,
        SettingDefault::Text("false"),
        "Whether everybody may pull where no rule of REGISTRY_ACCESS_FILE fits.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_ANONYMOUS_WRITE: Setting<bool> = Setting {
    definition: row(
        "REGISTRY_ANONYMOUS_WRITE",
        Kind::Switch,
        SettingDefault::Text("false"),
        "Whether everybody may push where no rule of REGISTRY_ACCESS_FILE fits.",
    ),
    parse: values::switch,
};
pub(super) static REGISTRY_IMMUTABLE_TAGS: Setting<Vec<ImmutableTags>> = Setting {
    definition: row(
        "REGISTRY_IMMUTABLE_TAGS",
        Kind::Entries("repositories:tags"),
        SettingDefault::Unset,
        "Tags that neither move nor go once they exist, such as os-images/**:v*.",
    ),
    parse: images::immutable_tags,
};
pub(super) static REGISTRY_SPARSE_IMAGES: Setting<Vec<RepositoryPattern>> = Setting {
    definition: row(
        "REGISTRY_SPARSE_IMAGES",
        Kind::Entries("repositories"),
        SettingDefault::Unset,
        "Repositories that take an image although some of its blobs are not there, such as mirror/**.",
    ),
    parse: images::repositories,
};
pub(super) static AUTH_MODE: Setting<AuthMode> = Setting {
    definition: row(
        "AUTH_MODE",
        Kind::Choice(&["basic", "jwt", "none"]),
        SettingDefault::Text("basic"),
        "How callers prove who they are. API tokens work in every mode; none is for loopback.",
    ),
    parse: values::choice,
};
pub(super) static AUTH_NONE_ALLOW_REMOTE: Setting<bool> = Setting {
    definition: row(
        "AUTH_NONE_ALLOW_REMOTE",
        Kind::Switch,
        SettingDefault::Text("false"),
        "Allows AUTH_MODE=none on addresses others can reach: everybody is admin then.",
    ),
    parse: values::switch,
};
pub(super) static BASIC_USER: Setting<String> = Setting {
    definition: row(
        "BASIC_USER",
        Kind::UserName,
        SettingDefault::Unset,
        "An administrator's name for AUTH_MODE=basic; needs BASIC_PASS_HASH.",
    ),
    parse: values::user_name,
};
pub(super) static BASIC_PASS_HASH: Setting<String> = Setting {
    definition: row(
        "BASIC_PASS_HASH",
        Kind::PasswordHash,
        SettingDefault::Unset,
        "The password of BASIC_USER as an argon2id hash ($argon2id$v=19$m=...).",
    ),
    parse: values::password_hash,
};
pub(super) static JWT_SECRET: Setting<SecretSource> = Setting {
    definition: row(
        "JWT_SECRET",
        Kind::Secret,
        SettingDefault::Unset,
        "The key that signs tokens (HS256) for AUTH_MODE=jwt, at least 32 bytes.",
    ),
    parse: values::secret,
};
pub(super) static WEBHOOK_SECRET: Setting<SecretSource> = Setting {
    definition: row(
        "WEBHOOK_SECRET",
        Kind::Secret,
        SettingDefault::Unset,
        "A secret shared with maintenance systems that are not ours. Unset: only each job's own token counts.",
    ),
    parse: values::secret,
};
pub(super) static WEBHOOK_SECRET_OLD: Setting<SecretSource> = Setting {
    definition: row(
        "WEBHOOK_SECRET_OLD",
        Kind::Secret,
        SettingDefault::Unset,
        "The shared secret before WEBHOOK_SECRET, accepted beside it while it is replaced.",
    ),
    parse: values::secret,
};
pub(super) static MASTER_KEY: Setting<SecretSource> = Setting {
    definition: row(
        "MASTER_KEY",
        Kind::Secret,
        SettingDefault::Unset,
        "64 hex digits that seal credentials and derive tokens; by default made once in STORAGE_ROOT/master.key.",
    ),
    parse: values::secret,
};
pub(super) static METRICS_ANONYMOUS: Setting<bool> = Setting {
    definition: row(
        "METRICS_ANONYMOUS",
        Kind::Switch,
        SettingDefault::Text("false"),
        "Whether /metrics answers without credentials.",
    ),
    parse: values::switch,
};
pub(super) static MAX_BODY_BYTES: Setting<usize> = Setting {
    definition: row(
        "MAX_BODY_BYTES",
        Kind::Size { min: 64 << 10, max: 256 * MIB },
        SettingDefault::Text("8MiB"),
        "The largest request body of the API; the registry's blobs have their own bound.",
    ),
    parse: values::memory,
};
pub(super) static WORKER_CONCURRENCY: Setting<usize> = Setting {
    definition: row(
        "WORKER_CONCURRENCY",
        Kind::Count { min: 0, max: 1024 },
        SettingDefault::Text("4"),
        "How many steps are at work at once; a waiting job needs none. 0 accepts jobs and starts no step.",
    ),
    parse: values::count,
};
pub(super) static MAX_POWER_ONS: Setting<u32> = Setting {
    definition: row(
        "MAX_POWER_ONS",
        Kind::Count { min: 0, max: 100_000 },
        SettingDefault::Text("0"),
        "How many hosts may be powering on at once, from the request until they boot or POWER_ON_SETTLE; 0 is no limit.",
    ),
    parse: values::small_count,
};
pub(super) static POWER_ON_SETTLE: Setting<Duration> = Setting {
    definition: row(
        "POWER_ON_SETTLE",
        Kind::Duration { min: seconds(1), max: seconds(3600) },
        SettingDefault::Text("2m"),
        "How long a host counts for MAX_POWER_ONS after it was powered on, unless it reads its boot image earlier.",
    ),
    parse: values::duration,
};
pub(super) static SITE_LIMIT: Setting<u32> = Setting {
    definition: row(
        "SITE_LIMIT",
        Kind::Count { min: 0, max: 100_000 },
        SettingDefault::Text("0"),
        "How many jobs may be under way at once among servers with the same label site; 0 is no limit.",
    ),
    parse: values::small_count,
};
pub(super) static STEP_TIMEOUTS: Setting<Vec<(String, Duration)>> = Setting {
    definition: row(
        "STEP_TIMEOUTS",
        Kind::StepTimes,
        SettingDefault::Unset,
        "How long steps may take, waiting included, if not as usual: webhook.wait=90m,redfish.mount.task=5m.",
    ),
    parse: values::step_times,
};
pub(super) static REDFISH_TIMEOUT: Setting<Duration> = Setting {
    definition: row(
        "REDFISH_TIMEOUT",
        Kind::Duration { min: seconds(1), max: seconds(120) },
        SettingDefault::Text("30s"),
        "The deadline of one read from a BMC. Inserting media and the like have their own, longer ones.",
    ),
    parse: values::duration,
};
pub(super) static REDFISH_RETRIES: Setting<u32> = Setting {
    definition: row(
        "REDFISH_RETRIES",
        Kind::Count { min: 0, max: 20 },
        SettingDefault::Text("5"),
        "How often a failed read from a BMC is repeated. What changes something is observed, never blindly repeated.",
    ),
    parse: values::small_count,
};
pub(super) static REDFISH_RATE: Setting<u32> = Setting {
    definition: row(
        "REDFISH_RATE",
        Kind::Count { min: 0, max: 1000 },
        SettingDefault::Text("10"),
        "Requests a second to one BMC in the long run; four times as many at once after a pause. 0 sets no limit.",
    ),
    parse: values::small_count,
};
pub(super) static REDFISH_MAX_IN_FLIGHT: Setting<usize> = Setting {
    definition: row(
        "REDFISH_MAX_IN_FLIGHT",
        Kind::Count { min: 1, max: 65_536 },
        SettingDefault::Text("256"),
        "Requests in flight to all BMCs together; to one there are at most two, one of them changing something.",
    ),
    parse: values::count,
};
pub(super) static REDFISH_BREAKER_FAILURES: Setting<u32> = Setting {
    definition: row(
        "REDFISH_BREAKER_FAILURES",
        Kind::Count { min: 0, max: 1000 },
        SettingDefault::Text("5"),
        "After so many requests in a row without an answer a BMC is left alone, and its jobs wait. 0: never.",
    ),
    parse: values::small_count,
};
pub(super) static REDFISH_BREAKER_OPEN_TIME: Setting<Duration> = Setting {
    definition: row(
        "REDFISH_BREAKER_OPEN_TIME",
        Kind::Duration { min: seconds(1), max: seconds(3600) },
        SettingDefault::Text("30s"),
        "How long such a BMC is left alone before one request is tried.",
    ),
    parse: values::duration,
};
pub(super) static REDFISH_CA_FILE: Setting<PathBuf> = Setting {
    definition: row(
        "REDFISH_CA_FILE",
        Kind::Path,
        SettingDefault::Unset,
        "PEM certificates that sign those of the BMCs.",
    ),
    parse: values::path,
};
pub(super) static JOB_LEASE_TTL: Setting<Duration> = Setting {
    definition: row(
        "JOB_LEASE_TTL",
        Kind::Duration { min: seconds(120), max: seconds(86_400) },
        SettingDefault::Text("10m"),
        "How long a job belongs to a worker that makes no progress; longer than the longest call of a step (150s).",
    ),
    parse: values::duration,
};
pub(super) static JOB_STUCK_TIMEOUT: Setting<Duration> = Setting {
    definition: row(
        "JOB_STUCK_TIMEOUT",
        Kind::Duration { min: seconds(60), max: seconds(30 * 86_400) },
        SettingDefault::Text("4h"),
        "How long a job may take, queue included, before it fails.",
    ),
    parse: values::duration,
};
pub(super) static INSTALL_MIN_TIME: Setting<Duration> = Setting {
    definition: row(
        "INSTALL_MIN_TIME",
        Kind::Duration { min: seconds(60), max: seconds(86_400) },
        SettingDefault::Text("10m"),
        "How long after power-on no sign counts as the end of an installer that cannot report (ESXi).",
    ),
    parse: values::duration,
};
pub(super) static INSTALL_WINDOW: Setting<Duration> = Setting {
    definition: row(
        "INSTALL_WINDOW",
        Kind::Duration { min: seconds(60), max: seconds(7 * 86_400) },
        SettingDefault::Text("90m"),
        "How long such an end is waited for; without a sign by then the installation is assumed to have succeeded.",
    ),
    parse: values::duration,
};
pub(super) static CLEANUP_TIMEOUT: Setting<Duration> = Setting {
    definition: row(
        "CLEANUP_TIMEOUT",
        Kind::Duration { min: seconds(10), max: seconds(86_400) },
        SettingDefault::Text("10m"),
        "How long cleaning up after a job is tried before what remains is left to the operator.",
    ),
    parse: values::duration,
};
pub(super) static JOB_RETENTION_DAYS: Setting<u32> = Setting {
    definition: row(
        "JOB_RETENTION_DAYS",
        Kind::Count { min: 0, max: 3650 },
        SettingDefault::Text("90"),
        "Days after its end that a job, its events and its idempotency key are kept; 0 keeps them for ever.",
    ),
    parse: values::small_count,
};
pub(super) static LOG_LEVEL: Setting<String> = Setting {
    definition: row(
        "LOG_LEVEL",
        Kind::LogFilter,
        SettingDefault::Text("info"),
        "What is logged: error, warn, info, debug, trace, or by part, such as info,shoal::engine=debug.",
    ),
    parse: values::log_filter,
};
pub(super) static LOG_FORMAT: Setting<LogFormat> = Setting {
    definition: row(
        "LOG_FORMAT",
        Kind::Choice(&["auto", "text", "json"]),
        SettingDefault::Text("auto"),
        "How it is logged; auto is text on a terminal and JSON elsewhere.",
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

/// The table as text, for people.
pub fn reference() -> String {
    let mut text = String::from(
        "Settings of the controller. A flag wins over the environment, that over the file, that over the default.\n",
    );
    for definition in DEFINITIONS.iter() {
        let alias = definition.flag_alias.map(|alias| format!(", --{alias}")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{}\n    {}\n    flag --{}{alias}   file key {}   kind {}   default {}\n",
            definition.name,
            definition.doc,
            definition.flag(),
            definition.key(),
            definition.kind,
            definition.default,
        );
    }
    text
}
