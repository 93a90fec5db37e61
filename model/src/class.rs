//! The failure classes of the engine itself.

use crate::FailureClass;

/// A deadline passed.
pub const DEADLINE: FailureClass = FailureClass::new("deadline");
/// An operator cancelled the run.
pub const CANCELLED: FailureClass = FailureClass::new("cancelled");
/// A defect of the program.
pub const INTERNAL: FailureClass = FailureClass::new("internal");
/// A child run could not be created because another run tree has the lock.
pub const CONFLICT: FailureClass = FailureClass::new("conflict");
/// A later attempt may succeed.
pub const TRANSIENT: FailureClass = FailureClass::new("transient");
