//! Every setting once: its variable, flag, file key, kind, default and doc line, and how the four sources are joined.
//!
//! ```text
//! flag --db-path     >  variable DB_PATH  >  db_path in the TOML file  >  default        one text per setting
//!        │                    │                    │                      │
//!        └────────────────────┴─────────┬──────────┴──────────────────────┘
//!                                 parse by kind ──> rules between settings ──> Settings   (or every problem at once)
//! ```
//!
//! Flag and file key are derived from the variable's name, so that a setting has one name in three spellings. A name
//! nobody knows is an error with a suggestion: a mistyped setting must not silently keep its default.
//!
//! Invariants:
//! - [`DEFINITIONS`] is the only list; `config reference`, the flags of `serve` and [`Settings::show`] are made from it.
//! - Nothing here opens a socket or writes a file. [`Settings::load`] reads the configuration file and nothing else;
//!   [`Settings::check_references`] also reads the secrets and certificates the settings point at.
//! - What the registry understands (rules, quotas, patterns) is read by its own types, here, so that it cannot start with
//!   settings it does not understand.
//! - No value of a secret setting is shown, neither by `show` nor in a problem.
//!
//! DESIGN section 11.

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

pub use definition::{Definition, Kind, SettingDefault};
pub use error::{ConfigErrors, Origin, Problem};
pub use images::read_rules;
pub use load::Sources;
pub use table::{DEFINITIONS, reference};
pub use values::{LogFormat, TaskIsoMode, UnknownWord, duration_text};

use registry::{ImmutableTags, Quota, RepositoryPattern, RetentionRule};

use crate::auth::AuthMode;
use secrets::SecretSource;

/// The longest a single call of a step may take. A lease that were shorter could end in the middle of one.
pub const LONGEST_STEP_CALL: Duration = Duration::from_secs(150);

/// The settings of a controller, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where API, registry and, unless [`Self::media_http_addr`] is set, media listen.
    pub controller_http_addr: SocketAddr,
    /// A listener for media alone.
    pub media_http_addr: Option<SocketAddr>,
    /// The base of the media URLs given to BMCs.
    pub media_base_url: Option<String>,
    /// The base of the URLs given to the maintenance OS.
    pub controller_public_url: Option<String>,
    /// The CA the maintenance OS believes when it talks to us.
    pub controller_ca_file: Option<PathBuf>,
    /// The data directory.
    pub storage_root: PathBuf,
    /// The database.
    pub db_path: PathBuf,
    /// Where task images are written when they are.
    pub task_iso_dir: PathBuf,
    /// Whether task images are written.
    pub task_iso_mode: TaskIsoMode,
    /// The maintenance image of jobs that name none.
    pub maintenance_iso_url: Option<String>,
    /// The ESXi installer of jobs that name none.
    pub esxi_installer_url: Option<String>,
    /// Whether there is a registry.
    pub enable_registry: bool,
    /// The registry's directory.
    pub registry_storage: PathBuf,
    /// The largest blob the registry takes.
    pub registry_max_blob_size: u64,
    /// How callers prove who they are.
    pub auth_mode: AuthMode,
    /// Room on the registry's disk that pushes never touch: bytes as digits, or a percentage.
    pub registry_reserve: String,
    /// How often garbage of the registry is collected.
    pub registry_gc_interval: Duration,
    /// How long garbage is kept.
    pub registry_gc_grace_period: Duration,
    /// Whether images without a tag are garbage.
    pub registry_gc_untagged: bool,
    /// How often all images are verified.
    pub registry_scrub_interval: Duration,
    /// How many bytes a second that may read.
    pub registry_scrub_rate: u64,
    /// Which tags stay; none removes nothing.
    pub registry_retention: Vec<RetentionRule>,
    /// How much repositories may hold.
    pub registry_quotas: Vec<Quota>,
    /// Whether the registry refuses changes from the start.
    pub registry_read_only: bool,
    /// Users of the registry beside ours.
    pub registry_htpasswd_file: Option<PathBuf>,
    /// Who may do what in the registry.
    pub registry_access_file: Option<PathBuf>,
    /// Whether everybody may pull where no rule fits.
    pub registry_anonymous_read: bool,
    /// Whether everybody may push where no rule fits.
    pub registry_anonymous_write: bool,
    /// Tags that stay as they are.
    pub registry_immutable_tags: Vec<ImmutableTags>,
    /// Repositories that take images without all of their blobs.
    pub registry_sparse_images: Vec<RepositoryPattern>,
    /// Whether [`AuthMode::None`] may be used beyond loopback.
    pub auth_none_allow_remote: bool,
    /// The configured user; present exactly when [`Self::basic_pass_hash`] is.
    pub basic_user: Option<String>,
    /// The configured user's password, hashed.
    pub basic_pass_hash: Option<String>,
    /// The key of JSON Web Tokens; present in mode jwt.
    pub jwt_secret: Option<SecretSource>,
    /// The shared webhook secret.
    pub webhook_secret: Option<SecretSource>,
    /// The one before it, accepted beside it.
    pub webhook_secret_old: Option<SecretSource>,
    /// The master key, when it is not kept in the data directory.
    pub master_key: Option<SecretSource>,
    /// Whether `/metrics` answers without credentials.
    pub metrics_anonymous: bool,
    /// The largest request body of the API.
    pub max_body_bytes: usize,
    /// Steps at work at once; 0 starts none.
    pub worker_concurrency: usize,
    /// Hosts that may be powering on at once; 0 for no limit.
    pub max_power_ons: u32,
    /// How long a host counts as powering on.
    pub power_on_settle: Duration,
    /// Jobs that may be under way at one site; 0 for no limit.
    pub site_limit: u32,
    /// How long steps may take, if not as usual.
    pub step_timeouts: Vec<(String, Duration)>,
    /// The deadline of a read from a BMC.
    pub redfish_timeout: Duration,
    /// How often a failed read from a BMC is repeated.
    pub redfish_retries: u32,
    /// Requests a second to one BMC; 0 for no limit.
    pub redfish_rate: u32,
    /// Requests in flight to all BMCs together.
    pub redfish_max_in_flight: usize,
    /// Failures in a row after which a BMC is left alone; 0 for never.
    pub redfish_breaker_failures: u32,
    /// How long such a BMC is left alone.
    pub redfish_breaker_open_time: Duration,
    /// The CA of BMC certificates.
    pub redfish_ca_file: Option<PathBuf>,
    /// How long a lease lasts without progress.
    pub job_lease_ttl: Duration,
    /// How long a job may take from its acceptance to its outcome.
    pub job_stuck_timeout: Duration,
    /// How many days after its end a job is kept; 0 for ever.
    pub job_retention_days: u32,
    /// How long signs that an installer has finished do not count.
    pub install_min_time: Duration,
    /// How long such signs are waited for.
    pub install_window: Duration,
    /// How long cleaning up may take.
    pub cleanup_timeout: Duration,
    /// What is logged, as a filter of `tracing`.
    pub log_level: String,
    /// How it is logged.
    pub log_format: LogFormat,
    shown: Vec<Shown>,
}

/// One setting as it may be shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// The variable.
    pub name: &'static str,
    /// Its value; empty when there is none, a placeholder when it is secret.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
}

impl Settings {
    /// Every setting with its value and origin, in the order of [`DEFINITIONS`]. Secrets are redacted.
    pub fn show(&self) -> &[Shown] {
        &self.shown
    }

    /// Where imported maintenance images are kept.
    pub fn maintenance_dir(&self) -> PathBuf {
        self.storage_root.join("maintenance")
    }

    /// Where the master key is kept unless [`Self::master_key`] says otherwise.
    pub fn master_key_file(&self) -> PathBuf {
        self.storage_root.join("master.key")
    }
}

#[cfg(test)]
mod tests;
