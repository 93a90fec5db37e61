//! The seal of values that a form carries from a preview to its change, when the browser must not be able to read them.
//!
//! ```text
//!   rows with passwords --compressed, sealed--> hidden field --sent back--> opened --> the change
//!                       key: of the master key    context: the session
//! ```
//!
//! Nothing is kept between the two requests. Invariants: only this installation opens the text, only for the session that it was sealed
//! for, and only for [`LASTS`]; a page never shows a password, not even in a hidden field.

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use jiff::Timestamp;
use secrets::{ColumnSeal, KeyRing};

/// The time for which a preview can be confirmed, in seconds.
const LASTS: i64 = 1800;
/// The longest text that is opened, in bytes.
const MAX_TEXT: u64 = 16 << 20;

/// The seal of an installation.
#[derive(Debug)]
pub(super) struct Seal(ColumnSeal);

/// The text cannot be used; the preview has to be made again.
#[derive(Debug)]
pub(super) struct Stale;

impl Seal {
    /// The seal of the pages of an installation.
    pub(super) fn new(master: &KeyRing) -> Self {
        Self(ColumnSeal::new(master))
    }

    /// Seals a text for a session.
    pub(super) fn seal(&self, session: &str, text: &str, now: Timestamp) -> Result<String, Stale> {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        let packed = packed.write_all(text.as_bytes()).and_then(|()| packed.finish()).map_err(|_| Stale)?;
        let text = format!("{}\n{}", now.as_second(), URL_SAFE_NO_PAD.encode(packed));
        self.0.seal(&context(session), &text).map_err(|_| Stale)
    }

    /// Opens a text that was sealed for this session.
    pub(super) fn open(&self, session: &str, sealed: &str, now: Timestamp) -> Result<String, Stale> {
        let text = self.0.open(&context(session), sealed).map_err(|_| Stale)?;
        let (at, packed) = text.split_once('\n').ok_or(Stale)?;
        let age = now.as_second().saturating_sub(at.parse().map_err(|_| Stale)?);
        if !(0..=LASTS).contains(&age) {
            return Err(Stale);
        }
        let packed = URL_SAFE_NO_PAD.decode(packed).map_err(|_| Stale)?;
        let mut text = String::new();
        ZlibDecoder::new(packed.as_slice()).take(MAX_TEXT).read_to_string(&mut text).map_err(|_| Stale)?;
        Ok(text)
    }
}

fn context(session: &str) -> String {
    format!("page {session}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_text_is_opened_for_its_session_by_its_installation_and_for_half_an_hour() {
        let (seal, other) =
            (Seal::new(&KeyRing::from_bytes(&[1; 32])), Seal::new(&KeyRing::from_bytes(&[2; 32])));
        let text = "a password, ".repeat(1000);
        let sealed = seal.seal("one", &text, at(1000)).unwrap();
        assert!(sealed.len() < 1000 && !sealed.contains("password"), "{sealed}");
        assert_eq!(seal.open("one", &sealed, at(2800)).unwrap(), text);
        assert!(seal.open("one", &sealed, at(2801)).is_err(), "too old");
        assert!(seal.open("one", &sealed, at(999)).is_err(), "of the future");
        assert!(seal.open("two", &sealed, at(1000)).is_err(), "of another session");
        assert!(other.open("one", &sealed, at(1000)).is_err(), "of another installation");
        assert!(seal.open("one", "sealed:v1:0123", at(1000)).is_err());
    }
}
