//! The disk that a former attempt wrote: a retry writes to it and to no other one.
//!
//! ```text
//! job.json: disk_before { serial, wwn } --check--> the disk that the recipe selects now: the same one | refusal
//!   both have a WWN: it decides       else both have a serial number: it decides       else: not known to be the same
//! ```
//!
//! Between two attempts a disk can be replaced, or disappear behind a broken controller. Hints by size or model then match another
//! disk, which may hold the data of another system.
//!
//! Invariants: pure. Nothing is written before the check.

use serde::Deserialize;

use crate::facts::DiskFacts;

/// Maximum length of a reported serial number or WWN in characters: a message has 256.
const MAX_SHOWN: usize = 40;

/// The identity of the disk that a former attempt wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FormerDisk {
    /// The serial number.
    #[serde(default)]
    pub serial: Option<String>,
    /// The WWN.
    #[serde(default)]
    pub wwn: Option<String>,
}

impl FormerDisk {
    /// Checks that the recipe selects the same disk as before.
    ///
    /// # Errors
    /// Returns a sentence with both disks when it is another one, or when it cannot be known.
    pub fn check(&self, chosen: &DiskFacts) -> Result<(), String> {
        let kinds = [("WWN", &self.wwn, &chosen.wwn), ("serial number", &self.serial, &chosen.serial)];
        let known = kinds.map(|(kind, before, now)| (kind, filled(before.as_ref()), filled(now.as_ref())));
        let both = known.iter().find_map(|(kind, before, now)| Some((kind, (*before)?, (*now)?)));
        let (kind, before, now) = match both {
            Some((_, before, now)) if before.eq_ignore_ascii_case(now) => return Ok(()),
            Some((kind, before, now)) => (*kind, before, now),
            None => match known.iter().find_map(|(kind, before, _)| Some((*kind, (*before)?))) {
                // There is nothing to compare with.
                None => return Ok(()),
                Some((kind, before)) => (kind, before, "not shown"),
            },
        };
        let cut = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
        let (before, now, name) = (cut(before), cut(now), &chosen.name);
        Err(format!(
            "the attempt before wrote the disk with {kind} {before}; {name}, which matches now, has {now}; nothing was \
             written. Name the disk in disk_hints, or create a new job in place of a retry"
        ))
    }
}

/// Returns the text without spaces around it, if it is not empty.
fn filled(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn check(before: (&str, &str), now: (&str, &str)) -> Result<(), String> {
        let chosen = DiskFacts {
            name: "nvme0n1".to_owned(),
            serial: text(now.0),
            wwn: text(now.1),
            ..DiskFacts::default()
        };
        FormerDisk { serial: text(before.0), wwn: text(before.1) }.check(&chosen)
    }

    #[test]
    fn a_retry_writes_to_the_disk_of_the_former_attempt() {
        assert_eq!(check(("S1", "5000c500a1b2c3d4"), ("S1", "5000C500A1B2C3D4")), Ok(()));
        assert_eq!(check((" s1 ", ""), ("S1", "5000c500a1b2c3d4")), Ok(()));
        // The namespaces of a drive share its serial number; the WWN decides.
        assert!(check(("S1", "eui1"), ("S1", "eui2")).is_err());
        assert_eq!(check(("S1", "eui1"), ("S2", "eui1")), Ok(()));
        // A disk without any identity, as of some virtual machines, cannot be compared.
        assert_eq!(check(("", ""), ("", "")), Ok(()));
    }

    #[test]
    fn a_retry_on_another_disk_is_refused_with_both_disks_and_what_to_do() {
        let refused = check(("S1", ""), ("S2", "")).unwrap_err();
        for word in ["serial number S1", "nvme0n1", "S2", "nothing was written", "disk_hints", "a new job"] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
        assert!(check(("S1", ""), ("", "5000c500a1b2c3d4")).unwrap_err().contains("not shown"));
        assert!(check(("", "5000c500a1b2c3d4"), ("S1", "")).is_err());
        let long = "X".repeat(500);
        let refused = check((&long, &long), ("S1", &long.replace('X', "Y"))).unwrap_err();
        assert!(refused.chars().count() <= 256 && refused.ends_with("a retry"), "{}", refused.len());
    }
}
