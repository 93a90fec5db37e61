//! The test image of diagnostics: a small task image without a task.

use std::sync::Arc;

use media::{TaskImageError, TaskImageInput, TaskInputs, record_inputs};
use model::Time;

/// Plans the test image of one diagnostics run.
pub(crate) fn image(id: uuid::Uuid, now: Time) -> Result<Arc<TaskInputs>, TaskImageError> {
    // The image has no serial number, so no machine takes it for its task.
    let file = |name: &str| (name.to_owned(), b"{\"diagnostics\": true}\n".to_vec());
    let files = ["job.json", "recipe.json", "recipe.schema.json"].map(file).into();
    record_inputs(&TaskImageInput { job_id: id, created_at: now.timestamp(), files, volume_id: None })
        .map(Arc::new)
}
