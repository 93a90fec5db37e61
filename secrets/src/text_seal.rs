//! Sealing of longer texts in the database: recipes, inputs of runs, URLs that may contain credentials.
//!
//! The form is that of [`seal`](super::seal()), with another subkey and a greater limit. The context names table, row and column.

use std::fmt;

use super::key::{Key, KeyRing};
use super::seal::{MAX_TEXT_BYTES, OpenError, SealError, open_within, seal_within};

/// The purpose of the subkey.
const PURPOSE: &str = "seal-columns";

/// Seals the texts of one installation.
pub struct ColumnSeal(Key);

impl ColumnSeal {
    /// The seal of an installation.
    pub fn new(master_key: &KeyRing) -> Self {
        Self(master_key.derive(PURPOSE))
    }

    /// Seals a text for one place.
    ///
    /// # Errors
    /// [`SealError`] when the text is too long or the operating system returns no random bytes.
    pub fn seal(&self, context: &str, text: &str) -> Result<String, SealError> {
        seal_within(&self.0, context, text.as_bytes(), MAX_TEXT_BYTES)
    }

    /// Opens a text that was sealed for this place.
    ///
    /// # Errors
    /// [`OpenError`] when the text is not sealed, was sealed with another key or for another place, or was altered.
    pub fn open(&self, context: &str, sealed: &str) -> Result<String, OpenError> {
        let plain = open_within(&self.0, context, sealed, MAX_TEXT_BYTES)?;
        String::from_utf8(plain.to_vec()).map_err(|_| OpenError::Malformed)
    }
}

impl fmt::Debug for ColumnSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ColumnSeal(redacted)")
    }
}
