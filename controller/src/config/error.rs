//! What is wrong with a configuration: every problem, each with the place it comes from.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Where a value comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// A flag, without its dashes.
    Flag(String),
    /// A variable.
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
    /// Nobody said anything.
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

/// One thing that is wrong.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Problem {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is in the way.
        reason: String,
    },
    /// The configuration file is not TOML.
    #[error("{}:{line}: not TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The parser's words.
        reason: String,
    },
    /// No setting has this name.
    #[error("{origin}: there is no such setting{} `shoal config reference` lists them all", instead(suggestion.as_deref()))]
    Unknown {
        /// Where the name stands.
        origin: Origin,
        /// What was probably meant.
        suggestion: Option<String>,
    },
    /// The value cannot be used.
    #[error("{origin}: {}{name} cannot be used; {reason}", quoted(value.as_deref()))]
    Unusable {
        /// The setting.
        name: &'static str,
        /// Where the value comes from.
        origin: Origin,
        /// The value, unless it is secret.
        value: Option<String>,
        /// What to give instead.
        reason: String,
    },
    /// Settings that do not go together.
    #[error("{origin}: {message}")]
    Together {
        /// Where the setting at fault comes from.
        origin: Origin,
        /// Why, and what to do.
        message: String,
    },
}

fn quoted(value: Option<&str>) -> String {
    // A value is shown to be recognised, not to be read in full.
    value
        .map(|value| format!("{:?} for ", value.chars().take(80).collect::<String>()))
        .unwrap_or_else(|| "the value of ".to_owned())
}

fn instead(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(", did you mean {name}?")).unwrap_or_else(|| ".".to_owned())
}

/// Everything that is wrong with a configuration; never empty.
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
