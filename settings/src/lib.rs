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
//! - The rows of `table.rs` are the only list; [`Settings`], [`DEFINITIONS`], `config reference`, the flags of `serve` and
//!   [`Settings::show`] are derived from it.
//! - This module opens no socket and writes no file. [`Settings::load`] reads only the configuration file;
//!   [`Settings::check_references`] also reads the secrets and certificates to which settings refer.
//! - Settings of the registry (rules, quotas, patterns) are parsed here by the types of the registry, so that the
//!   controller does not start with settings that the registry cannot use.
//! - The value of a secret setting is never shown, neither by `show` nor in a problem.
//!
//! See docs/operating.md.

mod backups;
mod definition;
pub mod descriptors;
mod error;
mod file;
pub mod fuzz;
mod images;
mod load;
mod references;
mod rules;
mod suggest;
mod table;
mod values;

use std::path::PathBuf;
use std::time::Duration;

pub use backups::{BackupReference, BackupSchedule, BackupTarget, RegistryTarget};
pub use definition::{Definition, SettingDefault, SettingKind};
pub use error::{ConfigErrors, Origin, Problem};
pub use images::read_rules;
pub use load::Sources;
pub use references::{read_credentials, read_keys};
pub use table::{DEFINITIONS, Settings, reference};
pub use values::{KeySetLocation, Listener, LogFormat, TaskIsoMode, duration_text};

/// The maximum duration of a single call of a step. A shorter lease could end during a call.
pub const LONGEST_STEP_CALL: Duration = Duration::from_secs(150);

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

    /// The directory of the own certificate authority and its certificate.
    pub fn tls_dir(&self) -> PathBuf {
        self.storage_root.join("tls")
    }

    /// The file of the master key if [`Self::master_key`] is unset.
    pub fn master_key_file(&self) -> PathBuf {
        self.storage_root.join("master.key")
    }
}

#[cfg(test)]
mod document;
#[cfg(test)]
mod tests;
