//! The text form of Debian's descriptions: stanzas of `Field: value` lines, divided by empty lines.
//!
//! Also package names, dependencies and the order of versions (Debian policy, chapters 5 and 7).

use std::cmp::Ordering;

/// One stanza of a control file or an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stanza<'a>(&'a str);

/// The stanzas of a text.
pub(crate) fn stanzas(text: &str) -> impl Iterator<Item = Stanza<'_>> {
    text.split("\n\n").map(|part| part.trim_matches('\n')).filter(|part| !part.is_empty()).map(Stanza)
}

impl<'a> Stanza<'a> {
    /// The first line of a field, without spaces around it.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.fields().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All fields with their first lines.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.0
            .lines()
            .filter(|line| !line.starts_with([' ', '\t', '#']))
            .filter_map(|line| line.split_once(':'))
            .map(|(field, value)| (field, value.trim()))
    }

    /// The lines that continue a field.
    pub(crate) fn lines_of(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let begins =
            |line: &str| line.split_once(':').is_some_and(|(field, _)| field.eq_ignore_ascii_case(name));
        let mut lines = self.0.lines();
        let found = lines.by_ref().any(begins);
        lines.take_while(move |line| found && line.starts_with([' ', '\t'])).map(str::trim)
    }
}

/// Whether a text is a package name: at least two of a-z, 0-9, `+`, `-` and `.`.
pub(crate) fn is_package_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    (2..=128).contains(&name.len()) && name.bytes().all(allowed) && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// The alternatives of each dependency of a `Depends` field, without versions and architectures.
pub(crate) fn dependencies(field: &str) -> impl Iterator<Item = Vec<&str>> {
    field.split(',').map(|group| {
        let names =
            group.split('|').map(|name| name.trim().split([' ', '(', ':', '[']).next().unwrap_or_default());
        names.filter(|name| is_package_name(name)).collect()
    })
}

/// Compares two versions: epoch, upstream version, revision.
pub(crate) fn compare_versions(one: &str, other: &str) -> Ordering {
    let parts = |version: &str| {
        let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
        (epoch.parse::<u64>().unwrap_or(0), upstream.to_owned(), revision.to_owned())
    };
    let (one, other) = (parts(one), parts(other));
    one.0
        .cmp(&other.0)
        .then_with(|| compare_parts(one.1.as_bytes(), other.1.as_bytes()))
        .then_with(|| compare_parts(one.2.as_bytes(), other.2.as_bytes()))
}

/// Compares by turns a part without digits and a number. `~` sorts before the end, letters before other signs.
fn compare_parts(mut one: &[u8], mut other: &[u8]) -> Ordering {
    let rank = |byte: Option<&u8>| match byte {
        Some(b'~') => -1,
        None => 0,
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    };
    let is_word = |part: &[u8]| part.first().is_some_and(|byte| !byte.is_ascii_digit());
    while !one.is_empty() || !other.is_empty() {
        while is_word(one) || is_word(other) {
            let order = rank(one.first()).cmp(&rank(other.first()));
            if order.is_ne() {
                return order;
            }
            one = one.get(1..).unwrap_or_default();
            other = other.get(1..).unwrap_or_default();
        }
        let (left, right) = (number(&mut one), number(&mut other));
        let order = left.len().cmp(&right.len()).then_with(|| left.cmp(right));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Takes the number at the beginning, without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    &digits[digits.iter().position(|byte| *byte != b'0').unwrap_or(digits.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_their_continued_lines_are_read() {
        let text = "Package: a\nDepends: libc6 (>= 2.36), bb | cc:any\nSHA256:\n 1 2 x\n 3 4 y\nEnd: z\n\n\nPackage: b\n";
        let all: Vec<_> = stanzas(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("package"), Some("a"));
        assert_eq!(all[0].lines_of("SHA256").collect::<Vec<_>>(), ["1 2 x", "3 4 y"]);
        assert_eq!(all[0].lines_of("None").count(), 0);
        let depends: Vec<_> = dependencies(all[0].get("Depends").unwrap()).collect();
        assert_eq!(depends, [vec!["libc6"], vec!["bb", "cc"]]);
    }

    #[test]
    fn versions_are_ordered_as_the_policy_says() {
        let ordered =
            ["1.0~rc1-1", "1.0-1~bpo1", "1.0-1", "1.0-1+b2", "1.0-2", "1.0+dfsg-1", "1.2", "1.10", "2:0.1"];
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(compare_versions(one, other), at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(compare_versions("1.02-1", "1.2-01"), Ordering::Equal);
    }
}
