//! How an installation ended.

use beacon::Class;

use crate::rescue::RescueReach;
use crate::task::unit;

/// The end of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Success,
    /// The machine is in the rescue system, and an operator works on it.
    Reachable(RescueReach),
    /// A step failed.
    Failed {
        /// The name of the unit.
        step: String,
        /// One sentence for the operator.
        message: String,
    },
}

/// Returns why a step failed, for the controller: the fault of the reader of the image, if it left one, else by the step.
#[must_use]
pub fn class(fault: Option<Class>, step: &str) -> Class {
    match fault {
        Some(class) => class,
        None if step == unit::SELECT_DISK => Class::Disk,
        None => Class::Machine,
    }
}
