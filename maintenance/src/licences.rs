//! The names of the licences in a package's copyright file.
//!
//! Two forms are read: `License:` fields of the machine-readable form (DEP-5), and names of files in
//! `/usr/share/common-licenses`. The file itself stays the only complete source; it is in the package that the record names.

use std::collections::BTreeSet;

use crate::control;

/// The longest name that is recorded.
const MOST_NAME_BYTES: usize = 80;
/// The most names of one package.
const MOST_NAMES: usize = 64;

/// The names, sorted.
pub(crate) fn names(copyright: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(copyright);
    let mut found = BTreeSet::new();
    if text.trim_start().starts_with("Format:") {
        for stanza in control::stanzas(&text) {
            let fields = stanza.fields().filter(|(name, _)| name.eq_ignore_ascii_case("License"));
            found.extend(fields.map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    } else {
        let folder = "/usr/share/common-licenses/";
        for (at, _) in text.match_indices(folder) {
            let rest = &text[at + folder.len()..];
            let sign = |sign: char| !(sign.is_ascii_alphanumeric() || "+-.".contains(sign));
            found.insert(rest.split(sign).next().unwrap_or_default().trim_end_matches('.').to_owned());
        }
    }
    let printable = |name: &String| {
        !name.is_empty() && name.len() <= MOST_NAME_BYTES && !name.chars().any(char::is_control)
    };
    found.into_iter().filter(printable).take(MOST_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_read_of_both_forms() {
        let machine = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2+\n text\n .\n\
                       more\n\nFiles: lib/*\nLicense: LGPL-2.1 and\n MIT\n\nLicense: GPL-2+\n";
        assert_eq!(names(machine.as_bytes()), ["GPL-2+", "LGPL-2.1 and"]);
        let prose = "On Debian systems, see `/usr/share/common-licenses/GPL-2'.\n/usr/share/common-licenses/LGPL-2.1.\n";
        assert_eq!(names(prose.as_bytes()), ["GPL-2", "LGPL-2.1"]);
        assert!(names(b"\xff no licence").is_empty());
    }
}
