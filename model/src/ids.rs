//! Identifiers: a run's id and a server's serial number.
//!
//! Invariant: every [`Serial`] is safe in a URL path, a file name, a log line and an XML or shell comment, because its alphabet
//! has no character with a meaning there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a run; for the workflow `provision` it is the public job id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// A new, time-ordered id (UUID version 7).
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self)
    }
}

/// The beginning of an id: 4 to 36 characters of a UUID in lower case.
///
/// Four characters of a time-ordered id are the ids of seven weeks, so that a search never begins with a single letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix(String);

/// The error of a text that no id begins with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the beginning of an id has 4 to 36 characters of 0-9, a-f and -")]
pub struct InvalidIdPrefix;

impl IdPrefix {
    /// The beginning as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IdPrefix {
    type Err = InvalidIdPrefix;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.to_ascii_lowercase();
        let allowed = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f' | b'-'));
        if allowed && (4..=36).contains(&text.len()) { Ok(Self(text)) } else { Err(InvalidIdPrefix) }
    }
}

/// A server's serial number as its maker wrote it: 1 to 64 of `A-Z a-z 0-9 . _ : + -`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial(String);

/// The error of a text that is not a serial number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a serial number has 1 to 64 characters of A-Z a-z 0-9 . _ : + - and begins with a letter or a digit"
)]
pub struct InvalidSerial;

impl Serial {
    /// The longest serial number accepted, in characters.
    pub const MAX: usize = 64;

    /// The serial number as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Serial {
    type Err = InvalidSerial;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'+' | b'-');
        let bytes = text.as_bytes();
        match bytes.first() {
            Some(first)
                if first.is_ascii_alphanumeric()
                    && bytes.len() <= Self::MAX
                    && bytes.iter().copied().all(allowed) =>
            {
                Ok(Self(text.to_owned()))
            }
            _ => Err(InvalidSerial),
        }
    }
}

impl TryFrom<String> for Serial {
    type Error = InvalidSerial;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> Self {
        serial.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_has_no_character_with_a_meaning_in_a_path_or_a_log() {
        for good in ["XF-12345ABC", "7", "a.b_c:d+e-f"] {
            assert!(good.parse::<Serial>().is_ok(), "{good}");
        }
        for bad in ["", "-x", "../x", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert_eq!(bad.parse::<Serial>(), Err(InvalidSerial), "{bad}");
        }
    }
}
