//! A pattern of serial numbers or of event types: `*` stands for any characters, `?` for one.

use std::fmt;
use std::str::FromStr;

use crate::Serial;

/// A pattern of serial numbers, or of event types.
///
/// Invariant: it has only characters of a serial number, `*` and `?`, so it has no bracket, which GLOB of SQLite would read as
/// a set of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

/// The error of a text that is not a pattern of serial numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a serial number, or a pattern of it: 1 to 64 characters of A-Z a-z 0-9 . _ : + - with * for any characters and ? for one"
)]
pub struct InvalidGlob;

impl Glob {
    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The serial number, if the pattern is one.
    pub fn exact(&self) -> Option<&str> {
        (!self.0.contains(['*', '?'])).then_some(&*self.0)
    }

    /// The characters before the first `*` or `?`.
    pub fn prefix(&self) -> &str {
        self.0.split(['*', '?']).next().unwrap_or_default()
    }
}

impl FromStr for Glob {
    type Err = InvalidGlob;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'+' | b'-' | b'*' | b'?');
        if text.is_empty() || text.len() > Serial::MAX || !text.bytes().all(allowed) {
            return Err(InvalidGlob);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
