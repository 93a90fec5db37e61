//! The recipe of a job as the store keeps it. The engine does not read it.

use std::fmt;

/// The recipe of a job as it was accepted. Only the row of the job contains it, and it never changes.
#[derive(Clone, PartialEq, Eq)]
pub struct JobRecipe {
    /// The text, byte for byte as submitted. It may contain secrets, so `Debug` shows only its size.
    pub json: String,
    /// The `$id` of the schema against which the recipe was validated.
    pub schema_id: String,
}

impl fmt::Debug for JobRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobRecipe({} bytes, {})", self.json.len(), self.schema_id)
    }
}
