//! Boot images, task images and firmware images that are or were served, as the API returns them.

use jiff::Timestamp;
use serde::Deserialize;

use super::MediaRead;

/// One page of the uses of images.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MediaPage {
    /// The uses, the newest first.
    pub media: Vec<Media>,
    /// The cursor of the following page.
    pub next: Option<String>,
}

/// The use of an image by a job.
#[derive(Clone, Debug, Deserialize)]
pub struct Media {
    /// The job.
    pub job_id: String,
    /// The workflow of the job.
    pub workflow: String,
    /// The server whose BMC reads the image.
    pub server_serial: Option<String>,
    /// `unread`, `reading`, `idle`, `withheld` or `ended`.
    pub state: String,
    /// The SHA-256 of the image.
    pub sha256: String,
    /// When the image was first served.
    pub since: Timestamp,
    /// The reads of the image.
    #[serde(flatten)]
    pub read: MediaRead,
    /// The deadline of the job; the URL ends after the cleanup that follows it. `None` while no deadline counts.
    pub ends_by: Option<Timestamp>,
}
