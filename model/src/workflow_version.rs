//! The version of a workflow.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of a workflow. It grows when a plan of an older version may no longer be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkflowVersion(pub u32);

impl fmt::Display for WorkflowVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
