//! The settings: variable, flag, file key, kind, default and description of each, and the precedence of the four sources.
//!
//! ```text
//! flag --db-path     >  variable DB_PATH  >  db_path in the TOML file  >  default        one text per setting
//!        │                    │                    │                      │
//!        └────────────────────┴─────────┬──────────┴──────────────────────┘
//!                                 parse by kind ──> rules between settings ──> Settings   (or every problem at once)
//! ```
//!
//! Flag and file key are derived from the name of the variable, so that a setting has one name in three spellings. An
//! unknown name is an error with a suggestion: a mistyped setting must not silently keep its default.
//!
//! Invariants:
//! - [`DEFINITIONS`] is the only list; `config reference`, the flags of `serve` and [`Settings::show`] are derived from it.
//! - This module opens no socket and writes no file. [`Settings::load`] reads only the configuration file;
//!   [`Settings::check_references`] also reads the secrets and certificates to which settings refer.
//! - Settings of the registry (rules, quotas, patterns) are parsed here by the types of the registry, so that the
//!   controller does not start with settings that the registry cannot use.
//! - The value of a secret setting is never shown, neither by `show` nor in a problem.
//!
//! See docs/operating.md.

mod definition;
mod error;
mod file;
mod images;
mod load;
mod references;
mod rules;
mod suggest;
mod table;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use definition::{Definition, SettingDefault, SettingKind};
pub use error::{ConfigErrors, Origin, Problem};
pub use images::read_rules;
pub use load::Sources;
pub use table::{DEFINITIONS, reference};
pub use values::{LogFormat, TaskIsoMode, UnknownChoice, duration_text};

use registry::{ImmutableTags, Quota, RepositoryPattern, RetentionRule};

use crate::auth::AuthMode;
use secrets::SecretSource;

/// The maximum duration of a single call of a step. A shorter lease could end during a call.
pub const LONGEST_STEP_CALL: Duration = Duration::from_secs(150);

/// The validated settings of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The listen address of API, registry and, unless [`Self::media_http_addr`] is set, media.
    pub controller_http_addr: SocketAddr,
    /// The separate listen address of media.
    pub media_http_addr: Option<SocketAddr>,
    /// The base of the media URLs for BMCs.
    pub media_base_url: Option<String>,
    /// The base of the URLs for the maintenance OS.
    pub controller_public_url: Option<String>,
    /// The CA that the maintenance OS trusts for the controller.
    pub controller_ca_file: Option<PathBuf>,
    /// The data directory.
    pub storage_root: PathBuf,
    /// The database file.
    pub db_path: PathBuf,
    /// The directory for task images in [`TaskIsoMode::File`].
    pub task_iso_dir: PathBuf,
    /// Whether task images are written to files.
    pub task_iso_mode: TaskIsoMode,
    /// The maintenance image of jobs that name none.
    pub maintenance_iso_url: Option<String>,
    /// The ESXi installer of jobs that name none.
    pub esxi_installer_url: Option<String>,
    /// Whether the registry is enabled.
    pub enable_registry: bool,
    /// The directory of the registry.
    pub registry_storage: PathBuf,
    /// The maximum size of a blob in bytes.
    pub registry_max_blob_size: u64,
    /// How API callers authenticate.
    pub auth_mode: AuthMode,
    /// Disk space of the registry that pushes never use: bytes in digits, or a percentage.
    pub registry_reserve: String,
    /// The time between two garbage collections of the registry.
    pub registry_gc_interval: Duration,
    /// The time for which unreferenced content is kept.
    pub registry_gc_grace_period: Duration,
    /// Whether garbage collection removes images without a tag.
    pub registry_gc_untagged: bool,
    /// The time between two scrubs of the registry.
    pub registry_scrub_interval: Duration,
    /// The maximum number of bytes that a scrub reads per second.
    pub registry_scrub_rate: u64,
    /// The rules that decide which tags are kept; without rules all tags are kept.
    pub registry_retention: Vec<RetentionRule>,
    /// The limits of bytes for repositories.
    pub registry_quotas: Vec<Quota>,
    /// Whether the registry refuses changes from the start.
    pub registry_read_only: bool,
    /// The htpasswd file with further users of the registry.
    pub registry_htpasswd_file: Option<PathBuf>,
    /// The file with the access rules of the registry.
    pub registry_access_file: Option<PathBuf>,
    /// Whether pulls without login are allowed where no rule matches.
    pub registry_anonymous_read: bool,
    /// Whether pushes without login are allowed where no rule matches.
    pub registry_anonymous_write: bool,
    /// Tags that can be neither moved nor deleted.
    pub registry_immutable_tags: Vec<ImmutableTags>,
    /// Repositories that accept images with missing blobs.
    pub registry_sparse_images: Vec<RepositoryPattern>,
    /// Whether [`AuthMode::None`] is allowed on other addresses than loopback.
    pub auth_none_allow_remote: bool,
    /// The configured user; present exactly when [`Self::basic_pass_hash`] is.
    pub basic_user: Option<String>,
    /// The password hash of the configured user.
    pub basic_pass_hash: Option<String>,
    /// The key of JSON Web Tokens; present in mode jwt.
    pub jwt_secret: Option<SecretSource>,
    /// The shared report secret.
    pub webhook_secret: Option<SecretSource>,
    /// The previous shared report secret, accepted in addition.
    pub webhook_secret_old: Option<SecretSource>,
    /// The master key, if it is not in the data directory.
    pub master_key: Option<SecretSource>,
    /// Whether `/metrics` is served without login.
    pub metrics_anonymous: bool,
    /// The maximum size of a request body of the API.
    pub max_body_bytes: usize,
    /// The maximum number of steps that run at once; with 0 no step starts.
    pub worker_concurrency: usize,
    /// The maximum number of hosts that power on at once; 0 is no limit.
    pub max_power_ons: u32,
    /// The time for which a host counts as powering on.
    pub power_on_settle: Duration,
    /// The maximum number of jobs in progress at one site; 0 is no limit.
    pub site_limit: u32,
    /// Time limits of steps that replace the built-in ones.
    pub step_timeouts: Vec<(String, Duration)>,
    /// The timeout of a read from a BMC.
    pub redfish_timeout: Duration,
    /// The maximum number of attempts of a step that uses a BMC.
    pub redfish_retries: u32,
    /// The maximum average of requests per second to one BMC; 0 is no limit.
    pub redfish_rate: u32,
    /// The maximum number of requests in flight to all BMCs together.
    pub redfish_max_in_flight: usize,
    /// The number of failures in a row that opens the circuit of a BMC; 0 means never.
    pub redfish_breaker_failures: u32,
    /// The time for which the circuit of a BMC stays open.
    pub redfish_breaker_open_time: Duration,
    /// The CA of BMC certificates.
    pub redfish_ca_file: Option<PathBuf>,
    /// The duration of a lease without progress.
    pub job_lease_ttl: Duration,
    /// The time limit of a job from its acceptance to its outcome.
    pub job_stuck_timeout: Duration,
    /// The number of days for which an ended job is kept; 0 means that it is never deleted.
    pub job_retention_days: u32,
    /// The time after power-on in which completion signs do not count.
    pub install_min_time: Duration,
    /// The time to wait for a completion sign.
    pub install_window: Duration,
    /// The time limit of cleanup.
    pub cleanup_timeout: Duration,
    /// The log filter in the syntax of `tracing`.
    pub log_level: String,
    /// The format of log lines.
    pub log_format: LogFormat,
    shown: Vec<Shown>,
}

/// One setting in a form that may be shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// The environment variable of the setting.
    pub name: &'static str,
    /// The value; empty when the setting is unset, a placeholder when it is secret.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
}

impl Settings {
    /// Every setting with its value and origin, in the order of [`DEFINITIONS`]. Secrets are redacted.
    pub fn show(&self) -> &[Shown] {
        &self.shown
    }

    /// The directory of the library of maintenance images.
    pub fn maintenance_dir(&self) -> PathBuf {
        self.storage_root.join("maintenance")
    }

    /// The file of the master key if [`Self::master_key`] is unset.
    pub fn master_key_file(&self) -> PathBuf {
        self.storage_root.join("master.key")
    }
}

#[cfg(test)]
mod tests;
