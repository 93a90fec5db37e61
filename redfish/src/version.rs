//! Versions of firmware, as BMCs show them.
//!
//! ```text
//!   FirmwareVersion  "Controller 5 v2.72"   the text of the BMC; equal only to the same text
//!   VersionNumbers   2.72            its first dotted number; has an order, within one generation of one vendor
//! ```
//!
//! DSP0266 gives version properties no form, so a text without a dotted number is a version too: it has no numbers.
//!
//! Invariant: numbers are never made up. A text whose numbers cannot be read has none and is in no range.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most numbers of a version that are read.
const MAX_NUMBERS: usize = 6;

/// A version as the BMC shows it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct FirmwareVersion(String);

impl FirmwareVersion {
    /// The text of the BMC.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The numbers of the first dotted version in the text: `Controller 5 v2.72` is 2.72. `None` without a dot.
    pub fn numbers(&self) -> Option<VersionNumbers> {
        VersionNumbers::find(&self.0)
    }
}

impl From<String> for FirmwareVersion {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for FirmwareVersion {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The numbers of a dotted version, compared one after the other.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(try_from = "String")]
pub struct VersionNumbers(Vec<u64>);

impl VersionNumbers {
    fn find(text: &str) -> Option<Self> {
        let words = text.split(|char: char| !char.is_ascii_digit() && char != '.');
        let dotted = words.map(|word| word.trim_matches('.')).find(|word| word.contains('.'))?;
        let numbers = dotted.split('.').take(MAX_NUMBERS).map(|part| part.parse().ok());
        numbers.collect::<Option<Vec<u64>>>().map(Self)
    }
}

impl TryFrom<String> for VersionNumbers {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::find(&text).ok_or_else(|| format!("{text:?} has no dotted version; write it as 2.72"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_every_form_bmcs_use() {
        for (text, numbers) in [
            ("6.10.30.00", Some(vec![6, 10, 30, 0])),
            ("Controller 5 v2.72", Some(vec![2, 72])),
            ("01.03.12 (build 4)", Some(vec![1, 3, 12])),
            ("CDI3A4A-6.10", Some(vec![6, 10])),
            ("7", None),
            ("", None),
            ("99999999999999999999.1", None),
        ] {
            assert_eq!(FirmwareVersion::from(text).numbers(), numbers.map(VersionNumbers), "{text}");
        }
    }

    #[test]
    fn versions_have_the_order_of_their_numbers_and_a_rule_without_numbers_is_refused() {
        let numbers = |text: &str| VersionNumbers::try_from(text.to_owned());
        assert!(numbers("2.9") < numbers("2.10"));
        assert!(numbers("2.10") < numbers("2.10.1"));
        assert!(numbers("seven").unwrap_err().contains("seven"));
    }
}
