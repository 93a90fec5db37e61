//! File and directory identifiers of the primary hierarchy (7.5, 7.6, interchange levels of 10).
//!
//! ```text
//! name in the tree     identifier                  how
//! ks.cfg               KS.CFG;1                    upper case, version 1
//! user-data            USER_DATA.;1                other characters than A-Z 0-9 _ become _; a file always has a dot
//! a.tar.gz             A_TAR.GZ;1                  the last dot separates the extension
//! .hidden              _HIDDEN.;1                  a leading dot does not separate an extension
//! boot                 BOOT                        a directory: no dot, no version
//! a-b, a_b             A_B0.;1, A_B1.;1            equal results are all numbered, in byte-wise order of the names
//! ```
//!
//! A name and its extension have 30 characters together, a directory has 31; on level 1 the limits are 8, 3 and 8. The
//! result depends only on the set of names in the directory, not on their order of insertion. Readers that drop the dot
//! show a directory `x` and a file `x.` under one name, so files and directories share one set of results.

use std::collections::{BTreeMap, BTreeSet};

use crate::escape::escape_name;
use crate::options::InterchangeLevel;

/// The limits of identifiers.
#[derive(Clone, Copy, Debug)]
struct IdentifierLimits {
    /// The longest name of a file without its extension.
    stem: usize,
    extension: usize,
    /// The longest name of a file together with its extension.
    file: usize,
    directory: usize,
}

/// The limits of level 1 (10.1).
const LEVEL_ONE: IdentifierLimits = IdentifierLimits { stem: 8, extension: 3, file: 11, directory: 8 };
/// The limits of levels 2 and 3 (7.5.1, 7.6.3). The limit on extensions is specific to this crate: it reserves the
/// larger half for the name.
const LEVEL_TWO: IdentifierLimits = IdentifierLimits { stem: 30, extension: 14, file: 30, directory: 31 };

/// A name and its extension in d-characters.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Parts {
    // The derived order equals that of 9.3: d-characters sort after the padding character, so comparing without padding
    // gives the same result.
    stem: String,
    extension: String,
}

/// Returns the identifiers of the children of one directory, in the order of `names`, which must be sorted byte-wise.
/// The flag is true for a directory.
pub(crate) fn assign(names: &[(&str, bool)], level: InterchangeLevel) -> Vec<Vec<u8>> {
    let limits = match level {
        InterchangeLevel::One => LEVEL_ONE,
        InterchangeLevel::Two | InterchangeLevel::Three => LEVEL_TWO,
    };
    let natural: Vec<Parts> = names.iter().map(|(name, directory)| limits.mangle(name, *directory)).collect();
    let mut sharers: BTreeMap<&Parts, usize> = BTreeMap::new();
    for parts in &natural {
        *sharers.entry(parts).or_default() += 1;
    }
    let mut taken: BTreeSet<Parts> =
        sharers.iter().filter(|(_, count)| **count == 1).map(|(parts, _)| (*parts).clone()).collect();
    let mut next_numbers: BTreeMap<(Parts, u32), u32> = BTreeMap::new();
    natural
        .iter()
        .zip(names)
        .map(|(parts, (_, directory))| {
            if sharers.get(parts) == Some(&1) {
                render(parts, *directory)
            } else {
                let limit = limits.stem(parts, *directory);
                render(&number(parts, limit, &mut taken, &mut next_numbers), *directory)
            }
        })
        .collect()
}

/// Returns the first unused numbered form of `parts` whose stem has at most `limit` characters. One counter per
/// shortened stem keeps the cost linear for a directory full of equal long names.
fn number(
    parts: &Parts,
    limit: usize,
    taken: &mut BTreeSet<Parts>,
    next_numbers: &mut BTreeMap<(Parts, u32), u32>,
) -> Parts {
    for digits in 1..=u32::try_from(limit.min(9)).unwrap_or(9) {
        let stem: String = parts.stem.chars().take(limit - digits as usize).collect();
        let short = Parts { stem, extension: parts.extension.clone() };
        let first = if digits == 1 { 0 } else { 10_u32.pow(digits - 1) };
        let next = next_numbers.entry((short.clone(), digits)).or_insert(first);
        while *next < 10_u32.pow(digits) {
            let candidate =
                Parts { stem: format!("{}{next}", short.stem), extension: short.extension.clone() };
            *next += 1;
            if taken.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
    // Unreachable: eight digits number more names than fit in a directory of 2^32 bytes.
    parts.clone()
}

impl IdentifierLimits {
    /// Returns the identifier of a name before numbering.
    fn mangle(&self, name: &str, directory: bool) -> Parts {
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) if !directory && !stem.is_empty() => (stem, extension),
            _ => (name, ""),
        };
        let mut parts = Parts { stem: String::new(), extension: d_characters(extension, self.extension) };
        parts.stem = d_characters(stem, self.stem(&parts, directory));
        parts
    }

    /// Returns the longest stem for an extension.
    fn stem(&self, parts: &Parts, directory: bool) -> usize {
        if directory { self.directory } else { self.stem.min(self.file - parts.extension.len()) }
    }
}

/// Returns the first characters of a text as d-characters (7.4.1).
fn d_characters(text: &str, limit: usize) -> String {
    text.chars()
        .take(limit)
        .map(|character| match character.to_ascii_uppercase() {
            upper @ ('A'..='Z' | '0'..='9' | '_') => upper,
            _ => '_',
        })
        .collect()
}

fn render(parts: &Parts, directory: bool) -> Vec<u8> {
    if directory {
        parts.stem.clone().into_bytes()
    } else {
        format!("{}.{};1", parts.stem, parts.extension).into_bytes()
    }
}

/// Compares two identifiers as in a directory (9.3): name, then extension, each padded with spaces. All versions are 1.
pub(crate) fn sort_key(identifier: &[u8]) -> (&[u8], &[u8]) {
    let name = identifier.strip_suffix(b";1").unwrap_or(identifier);
    match name.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&name[..dot], &name[dot + 1..]),
        None => (name, b""),
    }
}

/// Returns the name that a reader without extensions shows: lower case, without version and without a trailing dot.
pub(crate) fn plain_name(identifier: &[u8]) -> String {
    let (name, _) = split_version(identifier);
    let name = name.strip_suffix(b".").unwrap_or(name);
    match std::str::from_utf8(name) {
        Ok(text) => escape_name(text.to_lowercase().as_bytes()).into_owned(),
        Err(_) => escape_name(&name.to_ascii_lowercase()).into_owned(),
    }
}

/// Splits an identifier at `;` into the name and the version (7.5.1), if a number or nothing follows.
pub(crate) fn split_version(identifier: &[u8]) -> (&[u8], Option<u16>) {
    let Some(at) = identifier.iter().rposition(|byte| *byte == b';').filter(|at| *at > 0) else {
        return (identifier, None);
    };
    let (name, digits) = (&identifier[..at], &identifier[at + 1..]);
    let number =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match number.map(str::parse) {
        Some(Ok(version)) => (name, Some(version)),
        Some(Err(_)) if digits.is_empty() => (name, None),
        _ => (identifier, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(names: &[&str]) -> Vec<String> {
        let mut names: Vec<(&str, bool)> = names.iter().map(|name| (*name, false)).collect();
        names.sort_unstable();
        let identifiers = assign(&names, InterchangeLevel::Three).into_iter();
        identifiers.map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn level_one_names_have_eight_and_three_characters() {
        let names = [("longfilename1.json", false), ("longfilename2.json", false), ("x.tar.gz", false)];
        assert_eq!(
            assign(&names, InterchangeLevel::One),
            [b"LONGFIL0.JSO;1".to_vec(), b"LONGFIL1.JSO;1".to_vec(), b"X_TAR.GZ;1".to_vec()]
        );
        assert_eq!(assign(&[("a.directory", true)], InterchangeLevel::One), [b"A_DIRECT".to_vec()]);
        let many: Vec<String> = (0..2000).map(|n| format!("samename{n:04}")).collect();
        let many: Vec<(&str, bool)> = many.iter().map(|name| (name.as_str(), true)).collect();
        assert_eq!(assign(&many, InterchangeLevel::One).into_iter().collect::<BTreeSet<_>>().len(), 2000);
    }

    #[test]
    fn names_that_installers_look_for_have_expected_identifiers() {
        assert_eq!(
            files(&["ks.cfg", "meta-data", "recipe.json", "recipe.schema.json", "unattend.xml", "user-data"]),
            [
                "KS.CFG;1",
                "META_DATA.;1",
                "RECIPE.JSON;1",
                "RECIPE_SCHEMA.JSON;1",
                "UNATTEND.XML;1",
                "USER_DATA.;1"
            ]
        );
    }

    #[test]
    fn odd_names_become_d_characters() {
        assert_eq!(files(&[".hidden"]), ["_HIDDEN.;1"]);
        assert_eq!(files(&["no.of.dots.tar.gz"]), ["NO_OF_DOTS_TAR.GZ;1"]);
        assert_eq!(files(&["ünïcode.txt"]), ["_N_CODE.TXT;1"]);
        assert_eq!(files(&["dot."]), ["DOT.;1"]);
        assert_eq!(files(&[&"x".repeat(40)]), [format!("{}.;1", "X".repeat(30))]);
        assert_eq!(
            files(&[&format!("{}.{}", "n".repeat(40), "e".repeat(40))]),
            [format!("{}.{};1", "N".repeat(16), "E".repeat(14))]
        );
        assert_eq!(assign(&[("v1.2", true)], InterchangeLevel::Three), [b"V1_2".to_vec()]);
    }

    #[test]
    fn equal_results_are_all_numbered_in_byte_order() {
        assert_eq!(files(&["a_b", "a-b"]), ["A_B0.;1", "A_B1.;1"]);
        // `a_b0` exists, so its number is skipped.
        assert_eq!(files(&["a-b", "a_b", "a_b0"]), ["A_B1.;1", "A_B2.;1", "A_B0.;1"]);
        assert_eq!(
            assign(&[("x", true), ("x.", false)], InterchangeLevel::Three),
            [b"X0".to_vec(), b"X1.;1".to_vec()]
        );
    }

    #[test]
    fn thousands_of_equal_long_names_stay_distinct_and_take_linear_time() {
        let names: Vec<String> = (0..12_000).map(|n| format!("{}{n:05}", "long".repeat(10))).collect();
        let names: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
        let distinct: BTreeSet<Vec<u8>> = assign(&names, InterchangeLevel::Three).into_iter().collect();
        assert_eq!(distinct.len(), 12_000);
        assert!(distinct.iter().all(|identifier| identifier.len() <= 33));
    }

    #[test]
    fn plain_names_drop_version_and_trailing_dot() {
        assert_eq!(plain_name(b"KS.CFG;1"), "ks.cfg");
        assert_eq!(plain_name(b"USER_DATA.;1"), "user_data");
        assert_eq!(plain_name(b"A;B"), "a;b");
        assert_eq!(plain_name(b";1"), ";1");
        assert_eq!(plain_name(b"CAF\xC9.TXT;1"), "caf\\xC9.txt");
        assert_eq!(split_version(b"A;65535"), (b"A".as_slice(), Some(65_535)));
        assert_eq!(split_version(b"A;65536"), (b"A;65536".as_slice(), None));
        assert_eq!(split_version(b"A;+1"), (b"A;+1".as_slice(), None));
    }

    proptest! {
        #[test]
        fn identifiers_are_legal_and_distinct(
            names in proptest::collection::btree_map("[a-cA-C.\\-_é]{1,40}", any::<bool>(), 1..60)
        ) {
            let names: Vec<(&str, bool)> = names.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
            let identifiers = assign(&names, InterchangeLevel::Two);
            let mut folded = BTreeSet::new();
            for (identifier, (_, directory)) in identifiers.iter().zip(&names) {
                let (stem, extension) = sort_key(identifier);
                prop_assert!(!stem.is_empty());
                let limit = if *directory { 31 } else { 30 };
                prop_assert!(stem.len() + extension.len() <= limit);
                prop_assert!(stem.iter().chain(extension).all(
                    |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_'));
                prop_assert!(folded.insert(plain_name(identifier)), "{:?}", String::from_utf8_lossy(identifier));
            }
        }
    }
}
