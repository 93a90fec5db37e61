//! Chooses the profile of a BMC by its identity.
//!
//! ```text
//!   BmcIdentity (service root, system, manager)  --rules of all profiles-->  rules that match  -->  the most specific
//! ```
//!
//! Every condition of a rule must match. Of several matching rules the one with the greatest weight is taken:
//!
//! ```text
//!   vendor, firmware range            1 each    the maker of the chassis; version numbers start again with each generation
//!   product, oem, model, manager,     2 each    the kind of the manager, or of the machine, by name
//!   media
//! ```
//!
//! So a vendor with a range of firmware precedes the vendor alone, and the name of a generation precedes the range of
//! firmware of another one. If no rule matches, the generic profile is used.

use serde::{Deserialize, Serialize};

use crate::version::{FirmwareVersion, VersionNumbers};

/// The properties of a BMC by which its profile is chosen.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct BmcIdentity {
    /// `Vendor` of the service root, else `Manufacturer` of the system.
    pub vendor: Option<String>,
    /// `Product` of the service root.
    pub product: Option<String>,
    /// Member names of `Oem` in the service root.
    pub oem: Vec<String>,
    /// `Manufacturer` of the system.
    #[serde(default)]
    pub manufacturer: Option<String>,
    /// `Model` of the system.
    pub model: Option<String>,
    /// `Model` of the manager.
    #[serde(default)]
    pub manager: Option<String>,
    /// `FirmwareVersion` of the manager.
    pub firmware: Option<FirmwareVersion>,
    /// The path of the manager's virtual media.
    #[serde(default)]
    pub media: Option<String>,
}

/// One `[[detect]]` rule of a profile. All its conditions must match; texts are compared without case.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rule {
    /// Prefixes of the vendor, the manufacturer or an OEM name.
    vendor: Vec<String>,
    /// Parts of the product name.
    product: Vec<String>,
    /// Prefixes of an OEM name.
    oem: Vec<String>,
    /// Parts of the system's model.
    model: Vec<String>,
    /// Parts of the manager's model or firmware version.
    manager: Vec<String>,
    /// Suffixes of the path of the manager's virtual media.
    media: Vec<String>,
    /// The lowest firmware version.
    firmware_from: Option<VersionNumbers>,
    /// The lowest firmware version above the range.
    firmware_before: Option<VersionNumbers>,
}

impl Rule {
    pub(super) fn matches(&self, identity: &BmcIdentity) -> bool {
        let oem = || identity.oem.iter().map(String::as_str);
        let names = || {
            [&identity.vendor, &identity.manufacturer].into_iter().flatten().map(String::as_str).chain(oem())
        };
        let firmware = identity.firmware.as_ref();
        let manager = || identity.manager.as_deref().into_iter().chain(firmware.map(FirmwareVersion::as_str));
        let version = firmware.and_then(FirmwareVersion::numbers);
        let from = |from: &VersionNumbers| version.as_ref().is_some_and(|version| from <= version);
        let before = |before: &VersionNumbers| version.as_ref().is_some_and(|version| version < before);
        any(&self.vendor, names(), |text, word| text.starts_with(word))
            && any(&self.product, identity.product.as_deref().into_iter(), |text, word| text.contains(word))
            && any(&self.oem, oem(), |text, word| text.starts_with(word))
            && any(&self.model, identity.model.as_deref().into_iter(), |text, word| text.contains(word))
            && any(&self.manager, manager(), |text, word| text.contains(word))
            && any(&self.media, identity.media.as_deref().into_iter(), |text, word| text.ends_with(word))
            && self.firmware_from.as_ref().is_none_or(from)
            && self.firmware_before.as_ref().is_none_or(before)
    }

    /// Weight of the conditions: a name of the manager or of the machine counts twice.
    pub(super) fn weight(&self) -> usize {
        let names = [&self.product, &self.oem, &self.model, &self.manager, &self.media];
        2 * names.iter().filter(|list| !list.is_empty()).count()
            + usize::from(!self.vendor.is_empty())
            + usize::from(self.firmware_from.is_some() || self.firmware_before.is_some())
    }

    /// Whether the rule has a condition, and each condition has a form that can match.
    #[cfg(test)]
    pub(super) fn is_valid(&self) -> bool {
        let lists = [&self.vendor, &self.product, &self.oem, &self.model, &self.manager];
        let lower =
            lists.into_iter().flatten().all(|word| !word.is_empty() && *word == word.to_ascii_lowercase());
        self.weight() > 0 && lower
    }
}

/// Whether one of the words matches one of the texts; an empty list of words matches everything.
fn any<'a>(
    words: &[String],
    texts: impl Iterator<Item = &'a str>,
    matches: impl Fn(&str, &str) -> bool,
) -> bool {
    let texts: Vec<String> = texts.map(|text| text.trim().to_ascii_lowercase()).collect();
    words.is_empty()
        || words.iter().any(|word| texts.iter().any(|text| matches(text, &word.to_ascii_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_firmware_includes_its_start_and_excludes_its_end() {
        let rule = Rule {
            firmware_from: VersionNumbers::try_from("3.00".to_owned()).ok(),
            firmware_before: VersionNumbers::try_from("6.00".to_owned()).ok(),
            ..Rule::default()
        };
        let matches = |firmware: &str| {
            rule.matches(&BmcIdentity { firmware: Some(firmware.into()), ..BmcIdentity::default() })
        };
        assert_eq!(
            ["2.75.75.75", "3.00", "5.10.50.00", "6.00.00.00", "no version"].map(matches),
            [false, true, true, false, false]
        );
        assert!(!rule.matches(&BmcIdentity::default()));
    }
}
