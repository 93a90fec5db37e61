//! The parsers of what clients send before they are known, driven with arbitrary bytes. Thin fuzz targets and
//! the tests call the same function.

use std::hint::black_box;

use crate::http::path::Endpoint;
use crate::http::range::{ChunkRange, Selection, select};
use crate::http::{path, query};

/// Reads `data` as a path, a reference, a query and both range headers, and checks what the rest of the crate
/// relies on: a parsed path leads back to itself, and a selected part lies inside the representation.
///
/// # Panics
///
/// When one of these does not hold.
pub fn request_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Endpoint::parse(text) {
        Ok(Endpoint::Blob { repository, digest }) => {
            let canonical = path::blob_path(&repository, &digest);
            assert_eq!(Endpoint::parse(&canonical), Ok(Endpoint::Blob { repository, digest }));
        }
        Ok(Endpoint::Upload { repository, id }) => {
            let canonical = path::upload_path(&repository, id);
            assert_eq!(Endpoint::parse(&canonical), Ok(Endpoint::Upload { repository, id }));
        }
        Ok(endpoint) => {
            if let Some(name) = endpoint.repository() {
                assert!(!name.to_directory().contains(['/', '%']));
            }
        }
        Err(_) => {}
    }
    if let Ok(reference) = text.parse::<crate::Reference>() {
        assert_eq!(reference.to_string().parse(), Ok(reference));
    }
    black_box(query::value(Some(text), "digest"));
    for length in [0, 1, data.len() as u64, u64::MAX] {
        if let Selection::Part { first, last } = select(Some(text), length) {
            assert!(first <= last && last < length);
        }
    }
    if let Some(chunk) = ChunkRange::parse(text) {
        assert!(chunk.length() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::request_path;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_break_nothing(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            request_path(&data);
        }

        #[test]
        fn nearly_right_requests_break_nothing(
            data in "(/v2/[a-z0-9._/-]{0,30}/(blobs|manifests|blobs/uploads|tags)/[a-z0-9:%._-]{0,80})|(bytes=)?[0-9]{0,21}-[0-9]{0,21}"
        ) {
            request_path(data.as_bytes());
        }
    }
}
