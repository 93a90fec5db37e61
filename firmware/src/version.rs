//! The order of two versions of one component.
//!
//! ```text
//!   installed                    of the file   order
//!   2.18.1                       2.19.0        Older: the file is newer
//!   U30 v2.36 (07/16/2020)       2.36          Same: the file names the number that the BMC decorates
//!   2.72                         2.72.0        Same: a zero at the end adds nothing
//!   A04                          A05           Unclear: no numbers
//!   2.36 (07/16/2020)            2.36 (08/01)  Unclear: the same number, other builds
//!   U46 v1.56 (11/29/2021)       1.56_11-29-2021  Same: the same number and date, written as HPE's repositories do
//! ```
//!
//! Invariants: equal texts are always [`VersionOrder::Same`], so an installed file is never installed again; an order is stated only
//! between numbers, by [`redfish::FirmwareVersion::numbers`].

use std::cmp::Ordering;

use redfish::FirmwareVersion;

/// How the installed version relates to that of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionOrder {
    /// The installed version is the file's.
    Same,
    /// The installed version is older than the file's.
    Older,
    /// The installed version is newer than the file's.
    Newer,
    /// The versions differ, and which one is newer cannot be said.
    Unclear,
}

/// Compares an installed version with that of a file.
pub fn compare(installed: &FirmwareVersion, of_file: &FirmwareVersion) -> VersionOrder {
    let (left, right) = (plain(installed), plain(of_file));
    if left == right {
        return VersionOrder::Same;
    }
    let (Some(a), Some(b)) = (number(&left), number(&right)) else { return VersionOrder::Unclear };
    let numbers = |text: &str| FirmwareVersion::from(text).numbers();
    let (Some(x), Some(y)) = (numbers(a), numbers(b)) else { return VersionOrder::Unclear };
    match x.cmp(&y) {
        Ordering::Less => VersionOrder::Older,
        Ordering::Greater => VersionOrder::Newer,
        // One of the texts is the number alone; the other says where it comes from.
        Ordering::Equal if is_bare(&left) || is_bare(&right) => VersionOrder::Same,
        Ordering::Equal if is_same_build(build(&left, a), build(&right, b)) => VersionOrder::Same,
        Ordering::Equal => VersionOrder::Unclear,
    }
}

/// The digits behind the number: a date or the number of a build.
fn build<'a>(text: &'a str, number: &str) -> impl Iterator<Item = &'a str> {
    let behind = text.find(number).map_or("", |at| &text[at + number.len()..]);
    // Zeros at the end of the number itself.
    let behind = behind.trim_start_matches(['.', '0']);
    behind.split(|sign: char| !sign.is_ascii_digit()).filter(|digits| !digits.is_empty())
}

/// Whether both have digits, and the same ones.
fn is_same_build<'a>(left: impl Iterator<Item = &'a str>, right: impl Iterator<Item = &'a str>) -> bool {
    let mut left = left.peekable();
    left.peek().is_some() && left.eq(right)
}

fn plain(version: &FirmwareVersion) -> String {
    version.as_str().split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The most parts of a number that are compared; a longer number has no order.
const MAX_PARTS: usize = 6;

/// The first word that is a dotted number, without a leading `v` and without zeros at its end. A word with letters between its
/// digits, as `00.1d.7d`, is no number; the text has no order then.
fn number(text: &str) -> Option<&str> {
    let words = text.split(|sign: char| sign.is_whitespace() || "()_-,/+".contains(sign));
    let word =
        words.map(bare).find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))?;
    let digits =
        word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !digits || word.split('.').count() > MAX_PARTS {
        return None;
    }
    let mut word = word;
    while let Some((rest, last)) = word.rsplit_once('.')
        && rest.contains('.')
        && last.bytes().all(|byte| byte == b'0')
    {
        word = rest;
    }
    Some(word)
}

fn bare(word: &str) -> &str {
    word.strip_prefix('v').unwrap_or(word)
}

/// Whether a text is a dotted number and nothing else.
fn is_bare(text: &str) -> bool {
    bare(text).bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}
