//! What this program refuses in a layer, as distinct from errors of its stream and of the file system: only the image can be corrected.

use std::io;

/// The rule that a layer breaks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// Returns the error of a layer that breaks a rule.
pub(super) fn refused(rule: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Refusal(rule.to_owned()))
}

/// Returns whether the layer breaks a rule.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Refusal>())
}
