//! Reads the record of an image.

use std::path::Path;

use iso9660::{FileSource, Image};

use crate::error::Error;
use crate::record::{RECORD_FORMAT, RECORD_PATH, Record};

/// The largest record that is read.
const MOST_RECORD_BYTES: u64 = 16 << 20;

/// Returns the record of an image.
///
/// # Errors
/// [`Error::File`] when the image cannot be opened, [`Error::Input`] when it is no image of this crate.
pub fn inspect(path: &Path) -> Result<Record, Error> {
    let source = FileSource::open(path).map_err(Error::file(path))?;
    let image = Image::open(source).map_err(|error| Error::input(path, error))?;
    let bytes = image.read(RECORD_PATH, MOST_RECORD_BYTES).map_err(|error| {
        Error::input(path, format!("it was not built by `shoal maintenance build`: /{RECORD_PATH}: {error}"))
    })?;
    let record: Record = serde_json::from_slice(&bytes)
        .map_err(|error| Error::input(path, format!("/{RECORD_PATH} cannot be read: {error}")))?;
    if record.format != RECORD_FORMAT {
        let form = record.format;
        return Err(Error::input(
            path,
            format!("/{RECORD_PATH} has the form {form}, of a newer version of Shoal"),
        ));
    }
    Ok(record)
}
