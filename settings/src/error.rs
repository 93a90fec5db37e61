//! The problems of a configuration, each with its origin.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// The origin of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// A flag, without its leading dashes.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// A key of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key.
        key: String,
    },
    /// The default of the setting.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag --{flag}"),
            Self::Environment(name) => write!(f, "variable {name}"),
            Self::File { path, line, key } => write!(f, "{}:{line} {key}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One problem of a configuration.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Problem {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason why the file cannot be read.
        reason: String,
    },
    /// The configuration file is not TOML.
    #[error("{}:{line}: not TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The message of the parser.
        reason: String,
    },
    /// No setting has this name.
    #[error("{origin}: there is no such setting{} `shoal config reference` lists them all", instead(suggestion.as_deref()))]
    Unknown {
        /// The origin of the name.
        origin: Origin,
        /// The setting that was probably meant.
        suggestion: Option<String>,
    },
    /// The value of a setting is not valid.
    #[error("{origin}: {}{name} cannot be used; {reason}", quoted(value.as_deref()))]
    InvalidValue {
        /// The name of the setting.
        name: &'static str,
        /// The origin of the value.
        origin: Origin,
        /// The value, unless it is secret.
        value: Option<String>,
        /// The form of a valid value.
        reason: String,
    },
    /// Settings contradict each other, or a setting refers to something that cannot be used.
    #[error("{origin}: {message}")]
    Conflict {
        /// The origin of the wrong setting.
        origin: Origin,
        /// The cause and the remedy.
        message: String,
    },
}

impl Problem {
    /// The line of the configuration file; zero for a problem that is in no line of it.
    pub(super) fn line(&self) -> usize {
        match self {
            Self::Syntax { line, .. } => *line,
            Self::Unknown { origin: Origin::File { line, .. }, .. }
            | Self::InvalidValue { origin: Origin::File { line, .. }, .. }
            | Self::Conflict { origin: Origin::File { line, .. }, .. } => *line,
            _ => 0,
        }
    }
}

fn quoted(value: Option<&str>) -> String {
    // The first 80 characters are enough to recognise a value.
    value
        .map(|value| format!("{:?} for ", value.chars().take(80).collect::<String>()))
        .unwrap_or_else(|| "the value of ".to_owned())
}

fn instead(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(", did you mean {name}?")).unwrap_or_else(|| ".".to_owned())
}

/// All problems of a configuration; never empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigErrors(pub Vec<Problem>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("1 problem in the configuration:")?,
            number => write!(f, "{number} problems in the configuration:")?,
        }
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigErrors {}
