//! The definition of a setting: its row in the table and the parser of its value.

use std::fmt;
use std::time::Duration;

use super::values::{InvalidValue, duration_text, size_text};

/// One row of the table of settings.
#[derive(Debug)]
pub struct Definition {
    /// The environment variable of the setting. Flag and file key are derived from it.
    pub name: &'static str,
    /// The form of the value.
    pub kind: SettingKind,
    /// The value without a flag, a variable or a line in the file.
    pub default: SettingDefault,
    /// The description for operators: effect, reason of the default, consequence.
    pub doc: &'static str,
    /// A second name of the flag.
    pub flag_alias: Option<&'static str>,
}

/// The form of the value of a setting.
#[derive(Clone, Copy, Debug)]
pub enum SettingKind {
    /// A listen address: `IP:PORT` or `:PORT`.
    Address,
    /// A boolean: `true`, `false`, `1`, `0`.
    Switch,
    /// A whole number within bounds.
    Count {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A duration within bounds.
    Duration {
        /// The minimum.
        min: Duration,
        /// The maximum.
        max: Duration,
    },
    /// A number of bytes within bounds.
    Size {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A number of bytes, or a share of a disk.
    Reserve,
    /// An address, or `off`.
    Listener,
    /// Entries of this form, separated by commas.
    Entries(&'static str),
    /// A path.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A URL without a path: `scheme://host[:port]`.
    BaseUrl,
    /// The path or URL of an image.
    ImageUrl,
    /// The path or https URL of a key set.
    KeySet,
    /// A text.
    Text,
    /// The name of a user.
    UserName,
    /// A password hash; secret.
    PasswordHash,
    /// A secret: `env:NAME`, `file:PATH` or the text of the secret.
    Secret,
    /// A filter of `tracing`.
    LogFilter,
    /// Entries `STEP=TIME`, separated by commas.
    StepTimes,
    /// `off`, an interval, or a time of day.
    Schedule,
    /// A folder, or a repository of an OCI registry.
    BackupTarget,
    /// The URL of a NATS server.
    NatsServer,
}

/// The default of a setting.
#[derive(Clone, Copy, Debug)]
pub enum SettingDefault {
    /// The setting is unset.
    Unset,
    /// The setting has this value.
    Text(&'static str),
    /// The setting is this path below `STORAGE_ROOT`.
    UnderStorageRoot(&'static str),
}

/// A row with the parser of its value.
pub(super) struct Setting<T> {
    pub(super) definition: Definition,
    pub(super) parse: fn(SettingKind, &str) -> Result<T, InvalidValue>,
}

/// A [`Setting`] of any type.
pub(super) trait AnySetting: Sync {
    /// The row of the setting.
    fn definition(&self) -> &Definition;
    /// Checks that a text is a valid value of the setting.
    fn check(&self, text: &str) -> Result<(), InvalidValue>;
}

impl<T> AnySetting for Setting<T> {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn check(&self, text: &str) -> Result<(), InvalidValue> {
        (self.parse)(self.definition.kind, text).map(|_| ())
    }
}

impl Definition {
    /// The flag without its leading dashes.
    pub fn flag(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }

    /// The key in the configuration file.
    pub fn key(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// Whether the value is secret and never shown.
    pub fn secret(&self) -> bool {
        matches!(self.kind, SettingKind::Secret | SettingKind::PasswordHash)
    }
}

impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Listener => f.write_str("address, or off"),
            Self::Switch => f.write_str("true|false"),
            Self::Count { min, max } => write!(f, "count, {min} to {max}"),
            Self::Duration { min, max } => {
                write!(f, "duration, {} to {}", duration_text(*min), duration_text(*max))
            }
            Self::Size { min, max } => write!(f, "size, {} to {}", size_text(*min), size_text(*max)),
            Self::Reserve => f.write_str("size, or 0% to 99%"),
            Self::Entries(form) => write!(f, "{form}, ..."),
            Self::Path => f.write_str("path"),
            Self::Choice(words) => f.write_str(&words.join("|")),
            Self::BaseUrl => f.write_str("http(s)://host[:port]"),
            Self::NatsServer => f.write_str("nats://host[:port] or tls://host[:port]"),
            Self::ImageUrl => f.write_str("path or URL"),
            Self::KeySet => f.write_str("path or https URL"),
            Self::Text => f.write_str("text"),
            Self::UserName => f.write_str("name"),
            Self::PasswordHash => f.write_str("argon2id hash (secret)"),
            Self::Secret => f.write_str("env:NAME, file:PATH or text (secret)"),
            Self::LogFilter => f.write_str("log filter"),
            Self::StepTimes => f.write_str("step=time,step=time"),
            Self::Schedule => f.write_str("off, duration or HH:MM"),
            Self::BackupTarget => f.write_str("path or oci://host[:port]/repository"),
        }
    }
}

impl fmt::Display for SettingDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("unset"),
            Self::Text(text) => f.write_str(text),
            Self::UnderStorageRoot(path) => write!(f, "STORAGE_ROOT/{path}"),
        }
    }
}
