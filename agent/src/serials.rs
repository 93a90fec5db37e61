//! The serial numbers of this machine, as its firmware declares them in the DMI tables.
//!
//! ```text
//! /sys/class/dmi/id/{product,chassis,board}_serial --> trimmed, without placeholders --> match with `server_serial`
//! ```
//!
//! Invariant: a placeholder such as `To Be Filled By O.E.M.` is no serial number, so it never matches a job.

use std::{fs, path::Path};

/// Texts that firmware writes when the manufacturer set no serial number, in lower case.
const PLACEHOLDERS: [&str; 14] = [
    "to be filled by o.e.m.",
    "to be filled by o.e.m",
    "default string",
    "not specified",
    "not applicable",
    "not available",
    "system serial number",
    "chassis serial number",
    "base board serial number",
    "serial number",
    "unknown",
    "none",
    "n/a",
    "empty",
];

/// The serial numbers of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSerials(Vec<String>);

impl MachineSerials {
    /// Creates the set from texts; placeholders and repetitions are left out.
    #[must_use]
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut serials = Vec::new();
        for text in texts {
            let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
            if is_serial(text) && !serials.iter().any(|known| known == text) {
                serials.push(text.to_owned());
            }
        }
        Self(serials)
    }

    /// Reads the DMI tables below `sys`, which is `/sys` on a machine. A file that cannot be read counts as absent.
    #[must_use]
    pub fn read(sys: &Path) -> Self {
        let folder = sys.join("class/dmi/id");
        let texts: Vec<String> = ["product_serial", "chassis_serial", "board_serial"]
            .iter()
            .filter_map(|name| fs::read(folder.join(name)).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect();
        Self::new(texts.iter().map(String::as_str))
    }

    /// Returns whether `declared` is one of the serial numbers. Letters match without case, as they do in the controller: a BMC can
    /// show a serial number in capitals that the DMI tables have in small letters.
    #[must_use]
    pub fn matches(&self, declared: &str) -> bool {
        let declared = declared.trim();
        is_serial(declared) && self.0.iter().any(|serial| serial.eq_ignore_ascii_case(declared))
    }

    /// Returns the serial numbers, that of the product first.
    #[must_use]
    pub fn all(&self) -> &[String] {
        &self.0
    }
}

fn is_serial(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let plain = lower.chars().any(|letter| letter.is_ascii_alphanumeric() && letter != '0');
    plain && !PLACEHOLDERS.contains(&&*lower) && !["0123456789", "123456789", "1234567890"].contains(&&*lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_no_serial_numbers() {
        let serials =
            MachineSerials::new([" SN-1 \n", "To Be Filled By O.E.M.", "00000000", "", "SN-1", "..."]);
        assert_eq!(serials.all(), ["SN-1"]);
        assert!(serials.matches("SN-1") && !serials.matches("SN-2") && !serials.matches(""));
        assert!(!MachineSerials::new(["Default string"]).matches("Default string"));
    }

    #[test]
    fn serial_numbers_match_without_case_as_in_the_controller() {
        let serials = MachineSerials::new(["Abc-1"]);
        assert!(serials.matches("aBC-1") && serials.matches("Abc-1") && !serials.matches("Abc-2"));
    }

    #[test]
    fn the_dmi_tables_are_read_below_any_root() {
        let sys = tempfile::tempdir().unwrap();
        let folder = sys.path().join("class/dmi/id");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("product_serial"), "Not Specified\n").unwrap();
        fs::write(folder.join("chassis_serial"), "CH7\n").unwrap();
        assert_eq!(MachineSerials::read(sys.path()).all(), ["CH7"]);
        assert!(MachineSerials::read(Path::new("/does/not/exist")).all().is_empty());
    }
}
