//! What a setting is: the row of the table, and its typed reading.

use std::fmt;
use std::time::Duration;

use super::values::{Unusable, duration_text, size_text};

/// One row of the table of settings.
#[derive(Debug)]
pub struct Definition {
    /// The environment variable. Flag and file key are made from it.
    pub name: &'static str,
    /// What its text must be.
    pub kind: Kind,
    /// What holds when nobody says anything.
    pub default: SettingDefault,
    /// One sentence for people.
    pub doc: &'static str,
    /// A second spelling of the flag.
    pub flag_alias: Option<&'static str>,
}

/// What the text of a setting must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `IP:PORT` or `:PORT`.
    Address,
    /// `true`, `false`, `1`, `0`.
    Switch,
    /// A whole number within bounds.
    Count {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A length of time within bounds.
    Duration {
        /// The least.
        min: Duration,
        /// The most.
        max: Duration,
    },
    /// A number of bytes within bounds.
    Size {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A number of bytes, or a part of a disk.
    Reserve,
    /// Entries of this form, separated by commas.
    Entries(&'static str),
    /// A path.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `scheme://host[:port]`.
    BaseUrl,
    /// Where an image can be had.
    ImageUrl,
    /// The name of a user.
    UserName,
    /// A password hash; secret.
    PasswordHash,
    /// `env:NAME`, `file:PATH` or the secret itself.
    Secret,
    /// A filter of `tracing`.
    LogFilter,
    /// `STEP=TIME`, more than one with commas between them.
    StepTimes,
}

/// What holds when nobody says anything.
#[derive(Clone, Copy, Debug)]
pub enum SettingDefault {
    /// Nothing.
    Unset,
    /// This text.
    Text(&'static str),
    /// This path below `STORAGE_ROOT`.
    UnderStorageRoot(&'static str),
}

/// A row with the reading that belongs to it.
pub(super) struct Setting<T> {
    pub(super) definition: Definition,
    pub(super) parse: fn(Kind, &str) -> Result<T, Unusable>,
}

/// A [`Setting`] of whatever type.
pub(super) trait AnySetting: Sync {
    /// The row.
    fn definition(&self) -> &Definition;
    /// Whether a text can be this setting's value.
    fn check(&self, text: &str) -> Result<(), Unusable>;
}

impl<T> AnySetting for Setting<T> {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn check(&self, text: &str) -> Result<(), Unusable> {
        (self.parse)(self.definition.kind, text).map(|_| ())
    }
}

impl Definition {
    /// The flag, without the dashes before it.
    pub fn flag(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }

    /// The key in the configuration file.
    pub fn key(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// Whether its value is never shown.
    pub fn secret(&self) -> bool {
        matches!(self.kind, Kind::Secret | Kind::PasswordHash)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
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
            Self::ImageUrl => f.write_str("path or URL"),
            Self::UserName => f.write_str("name"),
            Self::PasswordHash => f.write_str("argon2id hash (secret)"),
            Self::Secret => f.write_str("env:NAME, file:PATH or text (secret)"),
            Self::LogFilter => f.write_str("log filter"),
            Self::StepTimes => f.write_str("step=time,step=time"),
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
