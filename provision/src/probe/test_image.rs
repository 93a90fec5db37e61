//! The tiny image that a BMC is made to read: a task image without a task.

use std::sync::Arc;

use engine::model::Time;
use media::{TaskImageError, TaskImageInput, TaskInputs, freeze};

/// The image of one examination.
pub(crate) fn image(id: uuid::Uuid, now: Time) -> Result<Arc<TaskInputs>, TaskImageError> {
    // No machine finds itself in it: there is no serial number.
    let file = |name: &str| (name.to_owned(), b"{\"doctor\": true}\n".to_vec());
    let files = ["job.json", "recipe.json", "recipe.schema.json"].map(file).into();
    freeze(&TaskImageInput { job_id: id, created_at: now.timestamp(), files, volume_id: None }).map(Arc::new)
}
