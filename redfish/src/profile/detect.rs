//! Which BMC gets which profile.
//!
//! ```text
//!   Identity (service root, system, manager)  --rules of all profiles-->  those that fit  -->  the most special
//! ```
//!
//! All that a rule says must fit; of several fitting rules the one that says most wins, so `dell` with a range
//! of firmware comes before `dell`. Nothing fits: the generic profile.

use serde::{Deserialize, Serialize};

/// What a BMC says of itself, as far as it chooses a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identity {
    /// `Vendor` of the service root, else `Manufacturer` of the system.
    pub vendor: Option<String>,
    /// `Product` of the service root.
    pub product: Option<String>,
    /// Names in `Oem` of the service root.
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
    pub firmware: Option<String>,
    /// The path of the manager's virtual media.
    #[serde(default)]
    pub media: Option<String>,
}

/// When a profile is the right one. All that is given must fit; texts are compared without case.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rule {
    /// One of these begins the vendor, the manufacturer or an OEM name.
    vendor: Vec<String>,
    /// One of these is part of the product name.
    product: Vec<String>,
    /// One of these begins an OEM name.
    oem: Vec<String>,
    /// One of these is part of the system's model.
    model: Vec<String>,
    /// One of these is part of the manager's model or of its firmware version.
    manager: Vec<String>,
    /// One of these ends the path of the manager's virtual media.
    media: Vec<String>,
    /// The lowest firmware version.
    firmware_from: Option<String>,
    /// The first firmware version that is too high.
    firmware_before: Option<String>,
}

impl Rule {
    pub(super) fn fits(&self, identity: &Identity) -> bool {
        let oem = || identity.oem.iter();
        let names = || [&identity.vendor, &identity.manufacturer].into_iter().flatten().chain(oem());
        let manager = || [&identity.manager, &identity.firmware].into_iter().flatten();
        let version = identity.firmware.as_deref().and_then(version);
        any(&self.vendor, names(), |text, word| text.starts_with(word))
            && any(&self.product, identity.product.iter(), |text, word| text.contains(word))
            && any(&self.oem, oem(), |text, word| text.starts_with(word))
            && any(&self.model, identity.model.iter(), |text, word| text.contains(word))
            && any(&self.manager, manager(), |text, word| text.contains(word))
            && any(&self.media, identity.media.iter(), |text, word| text.ends_with(word))
            && self
                .firmware_from
                .as_deref()
                .is_none_or(|from| version.is_some() && self::version(from) <= version)
            && self
                .firmware_before
                .as_deref()
                .is_none_or(|before| version.is_some() && version < self::version(before))
    }

    /// How much it says.
    pub(super) fn weight(&self) -> usize {
        let lists = [&self.vendor, &self.product, &self.oem, &self.model, &self.manager, &self.media];
        lists.iter().filter(|list| !list.is_empty()).count()
            + usize::from(self.firmware_from.is_some() || self.firmware_before.is_some())
    }

    /// Whether it says anything, and everything in a form that can fit.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let lists = [&self.vendor, &self.product, &self.oem, &self.model, &self.manager];
        let lower =
            lists.into_iter().flatten().all(|word| !word.is_empty() && *word == word.to_ascii_lowercase());
        let versions = [&self.firmware_from, &self.firmware_before].into_iter().flatten();
        self.weight() > 0 && lower && versions.into_iter().all(|text| version(text).is_some())
    }
}

/// Whether one of the words fits one of the texts; no words fit everything.
fn any<'a>(
    words: &[String],
    texts: impl Iterator<Item = &'a String>,
    fits: impl Fn(&str, &str) -> bool,
) -> bool {
    let texts: Vec<String> = texts.map(|text| text.trim().to_ascii_lowercase()).collect();
    words.is_empty()
        || words.iter().any(|word| texts.iter().any(|text| fits(text, &word.to_ascii_lowercase())))
}

/// The numbers of the first dotted version in a text: `iLO 5 v2.72` is 2.72.
fn version(text: &str) -> Option<Vec<u64>> {
    let words = text.split(|char: char| !char.is_ascii_digit() && char != '.');
    let dotted = words.map(|word| word.trim_matches('.')).find(|word| word.contains('.'))?;
    dotted.split('.').take(6).map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_the_ways_bmcs_write_it() {
        for (text, numbers) in [
            ("6.10.30.00", Some(vec![6, 10, 30, 0])),
            ("iLO 5 v2.72", Some(vec![2, 72])),
            ("01.03.12 (build 4)", Some(vec![1, 3, 12])),
            ("CDI3A4A-6.10", Some(vec![6, 10])),
            ("7", None),
            ("", None),
            ("99999999999999999999.1", None),
        ] {
            assert_eq!(version(text), numbers, "{text}");
        }
    }

    #[test]
    fn a_range_of_firmware_takes_its_begin_and_not_its_end() {
        let rule = Rule {
            firmware_from: Some("3.00".to_owned()),
            firmware_before: Some("6.00".to_owned()),
            ..Rule::default()
        };
        let fits = |firmware: &str| {
            rule.fits(&Identity { firmware: Some(firmware.to_owned()), ..Identity::default() })
        };
        assert_eq!(
            ["2.75.75.75", "3.00", "5.10.50.00", "6.00.00.00", "no version"].map(fits),
            [false, true, true, false, false]
        );
        assert!(!rule.fits(&Identity::default()));
    }
}
