//! The two range headers: `Range` of a pull and `Content-Range` of a chunk.
//!
//! ```text
//! Range: bytes=500-1499 | bytes=500- | bytes=-500          of a representation with a known length
//! Content-Range: 0-1048575                                 of a chunk: no unit, both ends inclusive
//! ```
//!
//! A `Range` with another unit, with several ranges or with a syntax error is ignored, as RFC 9110 allows. A single
//! range outside of the representation is 416, also when its end is before its beginning.
//!
//! Specification: RFC 9110 section 14; distribution-spec "Pushing a blob in chunks".

/// The part of a representation to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Whole,
    /// First and last byte, inclusive, both inside the representation.
    Part {
        first: u64,
        last: u64,
    },
    Unsatisfiable,
}

/// Applies a `Range` header to a representation of this length.
pub(crate) fn select(header: Option<&str>, length: u64) -> Selection {
    let Some(set) = header.and_then(|header| header.trim().strip_prefix("bytes=")) else {
        return Selection::Whole;
    };
    let Some((first, last)) = set.split_once('-') else { return Selection::Whole };
    let end = length.saturating_sub(1);
    let (first, last) = match (first.trim(), last.trim()) {
        ("", suffix) => match decimal(suffix) {
            Some(0) => return Selection::Unsatisfiable,
            Some(suffix) => (length.saturating_sub(suffix), end),
            None => return Selection::Whole,
        },
        (first, "") => match decimal(first) {
            Some(first) => (first, end),
            None => return Selection::Whole,
        },
        (first, last) => match (decimal(first), decimal(last)) {
            (Some(first), Some(last)) => (first, last.min(end)),
            _ => return Selection::Whole,
        },
    };
    if length == 0 || first > last { Selection::Unsatisfiable } else { Selection::Part { first, last } }
}

/// The position of a chunk in its blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    pub(crate) first: u64,
    /// Inclusive, never before `first`.
    pub(crate) last: u64,
}

impl ChunkRange {
    /// Parses the `Content-Range` of a chunk.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let (first, last) = header.split_once('-')?;
        let (first, last) = (decimal(first)?, decimal(last)?);
        // `last + 1` is computed later, so the largest number is not allowed.
        (first <= last && last < u64::MAX).then_some(ChunkRange { first, last })
    }

    /// The number of bytes in the chunk.
    pub(crate) fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Parses decimal digits; a number too large for any file counts as the largest number.
fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ranges_of_the_conformance_suite() {
        let of_2048 = |header| select(Some(header), 2048);
        assert_eq!(of_2048("bytes=500-1499"), Selection::Part { first: 500, last: 1499 });
        assert_eq!(of_2048("bytes=500-"), Selection::Part { first: 500, last: 2047 });
        assert_eq!(of_2048("bytes=-500"), Selection::Part { first: 1548, last: 2047 });
        assert_eq!(of_2048("bytes=2000-5000"), Selection::Part { first: 2000, last: 2047 });
        assert_eq!(of_2048("bytes=-5000"), Selection::Part { first: 0, last: 2047 });
        assert_eq!(of_2048("bytes=0-0"), Selection::Part { first: 0, last: 0 });
        for unsatisfiable in ["bytes=500-0", "bytes=5000-10000", "bytes=2048-", "bytes=-0"] {
            assert_eq!(of_2048(unsatisfiable), Selection::Unsatisfiable, "{unsatisfiable}");
        }
        for ignored in ["lines=1-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,5-6", "bytes=+1-2", "0-1"] {
            assert_eq!(of_2048(ignored), Selection::Whole, "{ignored}");
        }
        assert_eq!(select(None, 2048), Selection::Whole);
        assert_eq!(select(Some("bytes=0-"), 0), Selection::Unsatisfiable);
        assert_eq!(of_2048("bytes=0-99999999999999999999999"), Selection::Part { first: 0, last: 2047 });
    }

    #[test]
    fn a_chunk_range_has_no_unit_and_ordered_ends() {
        assert_eq!(ChunkRange::parse("0-0"), Some(ChunkRange { first: 0, last: 0 }));
        assert_eq!(ChunkRange::parse("5-14").map(ChunkRange::length), Some(10));
        for refused in
            ["", "-", "1", "5-4", "bytes 0-1", "bytes=0-1", "0-1/2", "-1-2", "0-99999999999999999999999"]
        {
            assert_eq!(ChunkRange::parse(refused), None, "{refused}");
        }
    }

    proptest! {
        #[test]
        fn a_selection_equals_slicing(first in 0u64..60, last in 0u64..60, length in 0u64..50) {
            let bytes: Vec<u64> = (0..length).collect();
            let inside: Vec<u64> = bytes.iter().copied().filter(|byte| (first..=last).contains(byte)).collect();
            let selected = match select(Some(&format!("bytes={first}-{last}")), length) {
                Selection::Part { first, last } => bytes[first as usize..=last as usize].to_vec(),
                Selection::Unsatisfiable => Vec::new(),
                Selection::Whole => bytes.clone(),
            };
            prop_assert_eq!(selected, inside);
        }

        #[test]
        fn a_selected_part_is_inside_the_representation(header in "bytes=[0-9]{0,22}-[0-9]{0,22}", length in any::<u64>()) {
            if let Selection::Part { first, last } = select(Some(&header), length) {
                prop_assert!(first <= last && last < length);
            }
        }
    }
}
