//! Recorded inputs as the store keeps them: compressed, then sealed.
//!
//! ```text
//! inputs (JSON) ── zlib ──> at most INPUTS_MAX and a little ── seal(key, "media-grant/{run}") ──> text
//! ```
//!
//! A task image contains the schema of its recipe, so that its inputs are many kilobytes of text. Compressed those of a usual recipe fit
//! into one page of the database.
//!
//! Invariants: sealed inputs open for their own run only; they grow to at most [`PLAIN_MAX`] bytes, whatever they say.

use std::io::Read as _;

use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use model::RunId;
use secrets::{Key, SealError};
use zeroize::Zeroizing;

use crate::grant_error::GrantError;
use crate::grants::unreadable;
use crate::task_image::INPUTS_MAX;

/// The maximum of bytes of inputs: those of a task image, and the few of the maintenance image around them.
const PLAIN_MAX: usize = INPUTS_MAX + 4096;

/// Compresses and seals the inputs of an image.
#[expect(
    clippy::expect_used,
    reason = "a slice is read without an error, and the encoder has none of its own"
)]
pub(crate) fn seal(key: &Key, run: RunId, inputs: &[u8]) -> Result<String, SealError> {
    let mut packed = Zeroizing::new(Vec::with_capacity(inputs.len() / 3));
    ZlibEncoder::new(inputs, Compression::fast()).read_to_end(&mut packed).expect("a slice is compressed");
    secrets::seal_document(key, &context_of(run), &packed)
}

/// Opens the sealed inputs of an image.
pub(crate) fn open(key: &Key, run: RunId, sealed: &str) -> Result<Zeroizing<Vec<u8>>, GrantError> {
    let unfit = |why: &dyn std::fmt::Display| {
        unreadable(format!("the recorded inputs of an image cannot be opened: {why}"))
    };
    let packed = secrets::open_document(key, &context_of(run), sealed).map_err(|why| unfit(&why))?;
    let mut inputs = Zeroizing::new(Vec::new());
    let read = ZlibDecoder::new(packed.as_slice()).take(PLAIN_MAX as u64 + 1).read_to_end(&mut inputs);
    read.map_err(|why| unfit(&why))?;
    match inputs.len() > PLAIN_MAX {
        true => Err(unfit(&format_args!("they have more than {PLAIN_MAX} bytes"))),
        false => Ok(inputs),
    }
}

/// The context to which the sealed inputs of a grant are bound.
fn context_of(run: RunId) -> String {
    format!("media-grant/{run}")
}

#[cfg(test)]
mod tests {
    use secrets::{KEY_BYTES, MasterKey};

    use super::*;

    fn key() -> Key {
        MasterKey::from_bytes(&[7; KEY_BYTES]).derive("media-grants")
    }

    fn run(last: u8) -> RunId {
        format!("00000000-0000-7000-8000-0000000000{last:02}").parse().unwrap()
    }

    #[test]
    fn inputs_are_compressed_and_open_for_their_own_run_only() {
        let inputs = b"{\"a\": \"word\"}".repeat(1000);
        let sealed = seal(&key(), run(1), &inputs).unwrap();
        assert!(sealed.len() < inputs.len() / 10, "{} of {}", sealed.len(), inputs.len());
        assert_eq!(*open(&key(), run(1), &sealed).unwrap(), inputs);
        assert!(open(&key(), run(2), &sealed).is_err());
    }

    #[test]
    fn inputs_that_no_compression_makes_short_may_have_megabytes() {
        let mut state = 1_u32;
        let mut inputs = vec![0; 3 << 20];
        inputs.fill_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        });
        let sealed = seal(&key(), run(1), &inputs).unwrap();
        assert!(*open(&key(), run(1), &sealed).unwrap() == inputs);
    }

    #[test]
    fn inputs_that_grow_beyond_their_bound_are_refused() {
        let longest = vec![b'x'; PLAIN_MAX];
        assert_eq!(open(&key(), run(1), &seal(&key(), run(1), &longest).unwrap()).unwrap().len(), PLAIN_MAX);
        let longer = vec![b'x'; 3 * PLAIN_MAX];
        let refused = open(&key(), run(1), &seal(&key(), run(1), &longer).unwrap()).unwrap_err();
        assert!(format!("{refused:?}").contains("more than"), "{refused:?}");
        let text = secrets::seal(&key(), &context_of(run(1)), b"no zlib").unwrap();
        assert!(open(&key(), run(1), &text).is_err());
    }
}
