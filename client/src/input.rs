//! Reads files and standard input with a size limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use secrecy::SecretString;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use recipe::MAX_RECIPE_BYTES;
use secrets::{MAX_SECRET_BYTES, SecretSource};

use super::error::CliError;

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// When the file cannot be read, or has more than `most` bytes.
pub fn read(path: &Path, limit: usize) -> Result<Vec<u8>, CliError> {
    let failed = |source| CliError::Input { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let bound = limit as u64 + 1;
    if path.as_os_str() == "-" {
        io::stdin().lock().take(bound).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path).map_err(failed)?.take(bound).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() > limit {
        return Err(CliError::failed(format!("{} is longer than {limit} bytes", path.display())));
    }
    Ok(bytes)
}

/// Refuses a file or folder that does not exist, as every command does, before something else reads it.
///
/// # Errors
/// When the file does not exist.
pub fn exists(path: &Path) -> Result<(), CliError> {
    match std::fs::metadata(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            Err(CliError::Input { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Reads a recipe without changing its text.
pub(crate) fn recipe(path: &Path) -> Result<Box<RawValue>, CliError> {
    let bytes = read(path, MAX_RECIPE_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        CliError::failed(format!(
            "the recipe {} is not JSON: {error}; `shoal recipe validate` shows details",
            path.display()
        ))
    })
}

/// Reads a JSON object.
pub(crate) fn object(path: &Path, limit: usize) -> Result<Map<String, Value>, CliError> {
    let wrong = |why: String| CliError::failed(format!("{} is not usable: {why}", path.display()));
    match serde_json::from_slice(&read(path, limit)?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(wrong("it is not a JSON object".to_owned())),
        Err(why) => Err(wrong(why.to_string())),
    }
}

/// Reads a password from a file, without a final newline.
///
/// # Errors
/// When the file cannot be read, or has no password.
pub fn password_file(path: &Path) -> Result<SecretString, CliError> {
    exists(path)?;
    SecretSource::File(path.to_owned()).load(&|_| None).map_err(|error| CliError::failed(error.to_string()))
}

/// Reads a password from standard input, without a final newline.
///
/// # Errors
/// When standard input cannot be read, or has no password.
pub fn password_stdin() -> Result<SecretString, CliError> {
    let bytes = Zeroizing::new(read(Path::new("-"), MAX_SECRET_BYTES)?);
    let text = str::from_utf8(&bytes)
        .map_err(|_| CliError::failed("the password on standard input is not UTF-8 text"))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(CliError::Usage("standard input contains no password".to_owned()));
    }
    Ok(SecretString::from(text))
}
