//! Selects the bytes of a representation that one request wants: single byte ranges of RFC 9110 section 14.
//!
//! ```text
//! Range: bytes=FIRST-LAST    both ends inclusive, LAST clamped to the final byte
//! Range: bytes=FIRST-        from FIRST to the end
//! Range: bytes=-COUNT        the last COUNT bytes, or everything when there are fewer
//!
//!   not GET, no Range, If-Range without our strong tag ---------------------> Full          (200)
//!   unknown unit, bad syntax, LAST < FIRST, several ranges -----------------> Full          (200)
//!   FIRST beyond the end, or a suffix of zero bytes ------------------------> Unsatisfiable (416)
//!   otherwise --------------------------------------------------------------> Partial       (206)
//! ```
//!
//! Invariants: `start <= end_inclusive < len` in every `Partial`; a number too large for 64 bits counts as beyond the end
//! and never wraps; nothing is allocated.
//!
//! A request with several ranges receives the whole image, which section 14.2 allows: no BMC sends such requests, and a
//! multipart response has no exact length that the HTTP client of a firmware would understand.

/// The part of a representation that a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The whole representation, status 200.
    Full,
    /// One part of the representation, status 206.
    Partial {
        /// Offset of the first byte.
        start: u64,
        /// Offset of the last byte.
        end_inclusive: u64,
    },
    /// No byte of the representation is in the requested range, status 416.
    Unsatisfiable,
}

/// Decides which part of a representation of `len` bytes with the strong entity tag `etag` the header `range` selects.
///
/// `is_get` is false for every other method: section 14.2 defines ranges for GET only, so a HEAD describes the whole
/// representation. `if_range` holds only when it equals the strong tag; a weak tag or a date does not.
#[must_use]
pub fn evaluate(
    is_get: bool,
    range: Option<&str>,
    if_range: Option<&str>,
    etag: &str,
    len: u64,
) -> Selection {
    let Some(range) = range.filter(|_| is_get) else { return Selection::Full };
    if if_range.is_some_and(|condition| condition.trim() != etag || condition.trim().starts_with("W/")) {
        return Selection::Full;
    }
    match single_range(range) {
        None => Selection::Full,
        Some(Spec::Between(first, _)) if first >= len => Selection::Unsatisfiable,
        Some(Spec::Between(start, last)) => Selection::Partial { start, end_inclusive: last.min(len - 1) },
        Some(Spec::Last(0)) => Selection::Unsatisfiable,
        // A suffix range of an empty representation is satisfiable, but Content-Range cannot express it.
        Some(Spec::Last(_)) if len == 0 => Selection::Full,
        Some(Spec::Last(count)) => {
            Selection::Partial { start: len.saturating_sub(count), end_inclusive: len - 1 }
        }
    }
}

enum Spec {
    Between(u64, u64),
    Last(u64),
}

/// The single range of a header value; `None` when the header is malformed or has several ranges and is ignored.
fn single_range(value: &str) -> Option<Spec> {
    let (unit, set) = value.split_once('=')?;
    if !unit.trim_matches(is_ows).eq_ignore_ascii_case("bytes") {
        return None;
    }
    // Empty list elements are legal and ignored (section 5.6.1.2).
    let mut ranges =
        set.split(',').map(|element| element.trim_matches(is_ows)).filter(|element| !element.is_empty());
    let only = ranges.next()?;
    if ranges.next().is_some() {
        return None;
    }
    let (first, last) = only.split_once('-')?;
    match (first, last) {
        ("", count) => Some(Spec::Last(position(count)?)),
        (first, "") => Some(Spec::Between(position(first)?, u64::MAX)),
        (first, last) => {
            let (first, last) = (position(first)?, position(last)?);
            (first <= last).then_some(Spec::Between(first, last))
        }
    }
}

/// Parses a byte position. A number that does not fit into 64 bits becomes `u64::MAX`, which is beyond every image.
fn position(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(
        digits
            .bytes()
            .fold(0u64, |value, byte| value.saturating_mul(10).saturating_add(u64::from(byte - b'0'))),
    )
}

fn is_ows(character: char) -> bool {
    character == ' ' || character == '\t'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAG: &str = "\"sha256:00\"";

    fn select(range: &str, len: u64) -> Selection {
        evaluate(true, Some(range), None, TAG, len)
    }

    fn part(start: u64, end_inclusive: u64) -> Selection {
        Selection::Partial { start, end_inclusive }
    }

    #[test]
    fn the_three_forms_of_a_range_are_parsed() {
        assert_eq!(select("bytes=0-0", 10), part(0, 0));
        assert_eq!(select("bytes=2-5", 10), part(2, 5));
        assert_eq!(select("bytes=7-", 10), part(7, 9));
        assert_eq!(select("bytes=-3", 10), part(7, 9));
        assert_eq!(select("Bytes = 2-5 ", 10), part(2, 5));
        assert_eq!(select("bytes=, 2-5 ,", 10), part(2, 5));
    }

    #[test]
    fn the_end_is_clamped_and_huge_numbers_do_not_wrap() {
        assert_eq!(select("bytes=4-4096", 10), part(4, 9));
        assert_eq!(select("bytes=-4096", 10), part(0, 9));
        assert_eq!(select("bytes=4-99999999999999999999999999", 10), part(4, 9));
        assert_eq!(select("bytes=-99999999999999999999999999", 10), part(0, 9));
        assert_eq!(select("bytes=99999999999999999999999999-", 10), Selection::Unsatisfiable);
        assert_eq!(select("bytes=18446744073709551615-", u64::MAX), Selection::Unsatisfiable);
    }

    #[test]
    fn a_range_beyond_the_end_is_unsatisfiable() {
        for range in ["bytes=10-", "bytes=10-11", "bytes=-0"] {
            assert_eq!(select(range, 10), Selection::Unsatisfiable, "{range}");
        }
        assert_eq!(select("bytes=0-", 0), Selection::Unsatisfiable);
        assert_eq!(select("bytes=-1", 0), Selection::Full);
    }

    #[test]
    fn malformed_and_multiple_ranges_are_ignored() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=,",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes=1 - 2",
            "bytes 1-2",
            "items=1-2",
            "bytes=0-1,4-5",
            "bytes=0x1-2",
            "bytes=--1",
            "bytes=1-٣",
        ] {
            assert_eq!(select(range, 10), Selection::Full, "{range:?}");
        }
    }

    #[test]
    fn only_get_has_ranges() {
        assert_eq!(evaluate(false, Some("bytes=0-1"), None, TAG, 10), Selection::Full);
        assert_eq!(evaluate(true, None, None, TAG, 10), Selection::Full);
    }

    #[test]
    fn if_range_holds_for_the_strong_tag_only() {
        let with = |condition: &str| evaluate(true, Some("bytes=0-1"), Some(condition), TAG, 10);
        assert_eq!(with(TAG), part(0, 1));
        assert_eq!(with("W/\"sha256:00\""), Selection::Full);
        assert_eq!(with("\"sha256:01\""), Selection::Full);
        assert_eq!(with("Thu, 01 Jan 1970 00:00:00 GMT"), Selection::Full);
        assert_eq!(evaluate(true, Some("bytes=0-1"), Some("W/\"x\""), "W/\"x\"", 10), Selection::Full);
    }

    /// A model of the rules on a byte slice, without arithmetic on the ends.
    fn slice_model(bytes: &[u8], first: Option<u64>, last: Option<u64>) -> Option<Vec<u8>> {
        let numbered = bytes.iter().copied().enumerate();
        let chosen: Vec<u8> = match (first, last) {
            (Some(first), Some(last)) => numbered
                .filter(|(at, _)| *at as u64 >= first && *at as u64 <= last)
                .map(|(_, byte)| byte)
                .collect(),
            (Some(first), None) => {
                numbered.filter(|(at, _)| *at as u64 >= first).map(|(_, byte)| byte).collect()
            }
            (None, Some(count)) => {
                numbered.filter(|(at, _)| (bytes.len() - at) as u64 <= count).map(|(_, byte)| byte).collect()
            }
            (None, None) => return None,
        };
        (!chosen.is_empty()).then_some(chosen)
    }

    proptest! {
        #[test]
        fn a_selection_equals_that_of_the_slice_model(
            bytes in proptest::collection::vec(any::<u8>(), 1..64),
            first in proptest::option::of(0u64..80),
            extra in proptest::option::of(0u64..80),
        ) {
            let last = match (first, extra) {
                (Some(first), Some(extra)) => Some(first + extra),
                (_, extra) => extra,
            };
            prop_assume!(first.is_some() || last.is_some());
            let text = format!(
                "bytes={}-{}",
                first.map(|n| n.to_string()).unwrap_or_default(),
                last.map(|n| n.to_string()).unwrap_or_default(),
            );
            let got = match select(&text, bytes.len() as u64) {
                Selection::Partial { start, end_inclusive } => {
                    Some(bytes[start as usize..=end_inclusive as usize].to_vec())
                }
                Selection::Unsatisfiable => None,
                Selection::Full => return Err(TestCaseError::fail("a valid range was ignored")),
            };
            prop_assert_eq!(got, slice_model(&bytes, first, last));
        }

        #[test]
        fn no_header_breaks_the_invariants(
            range in ".{0,64}",
            bytes_range in "bytes=[0-9,\\- ]{0,48}",
            len in any::<u64>(),
        ) {
            for range in [range, bytes_range] {
                if let Selection::Partial { start, end_inclusive } = select(&range, len) {
                    prop_assert!(start <= end_inclusive && end_inclusive < len);
                }
            }
        }
    }
}
