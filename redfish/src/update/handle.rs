//! The records of an update: before it is started, and while it runs.
//!
//! ```text
//!   PreparedUpdate   stored before the first byte (the intent): route, parameters, ids of the tasks that exist
//!        | start_update -> Accepted(UpdateHandle) | MaybeAccepted(UpdateHandle without a task)
//!        v
//!   UpdateHandle     stored while the BMC flashes: monitor and Task, or where else the progress is shown
//!        | poll_update, once per wake-up, in any process
//! ```
//!
//! Invariants: neither contains a secret or the URL of an image; a value stored by a later format is refused, not misread.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::RedfishError;
use crate::json;
use crate::update::choice::Choice;
use crate::update::service::ApplyTime;

/// The format of stored updates.
const FORMAT: u32 = 1;
/// Maximum number of task ids that are remembered.
pub(crate) const MAX_TASKS: usize = 256;

/// The format in which an update was stored; only this program's format is accepted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoredFormat;

impl Serialize for StoredFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(FORMAT)
    }
}

impl<'de> Deserialize<'de> for StoredFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            FORMAT => Ok(StoredFormat),
            other => Err(serde::de::Error::custom(format!(
                "this update was stored in format {other} and this controller reads format {FORMAT}: let the version that \
                 stored it finish it"
            ))),
        }
    }
}

/// The wishes of the caller besides the image.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct UpdateRequest {
    /// The paths of the devices or inventory members to update; empty lets the BMC find them by the image.
    pub targets: Vec<String>,
    /// The apply time of the image; `None` takes the profile's rule.
    pub apply_time: Option<ApplyTime>,
    /// Whether the BMC is asked to install an image that it would skip, such as an older version.
    pub force: bool,
    /// The file name in an upload; only letters, digits, dots, hyphens and underscores are kept.
    pub file_name: String,
}

/// An update that can be started: the intent, stored before the first byte is sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PreparedUpdate {
    /// The format of this record.
    pub format: StoredFormat,
    /// Path of the update service.
    pub service: String,
    /// The route by which the image is sent, and the reasons.
    pub choice: Choice,
    /// The file name in an upload.
    pub file_name: String,
    /// The targets that are sent; `None` leaves the member out.
    pub targets: Option<Vec<String>>,
    /// The apply time that is sent.
    pub apply_time: Option<ApplyTime>,
    /// Whether `ForceUpdate` is sent.
    pub force: bool,
    /// Whether the apply time and targets are written to the service before an upload to `HttpPushUri`.
    pub push_options: PushOptions,
    /// The path of `StartUpdate`, if the update starts with a second request.
    pub start: Option<String>,
    /// Whether the progress is shown by the service and not by a task.
    pub state_at_service: bool,
    /// Path of the task service.
    pub task_service: Option<String>,
    /// Ids of the tasks that existed before.
    pub tasks_before: Vec<String>,
    /// The place where the BMC stores an upload that a second request starts.
    pub staged: Option<StagedUpload>,
}

/// A place where the BMC stores uploads, to find an image whose path did not arrive.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StagedUpload {
    /// Path of the collection that lists stored images.
    pub collection: String,
    /// Paths of the images that were stored before.
    pub before: Vec<String>,
    /// The path of `SimpleUpdate`, which starts the update.
    pub target: String,
    /// The apply time that is sent with the upload.
    pub apply_time: Option<ApplyTime>,
}

/// The members of the service that an upload to `HttpPushUri` reads.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct PushOptions {
    /// The service has `HttpPushUriOptions`.
    pub apply_time: bool,
    /// The service has `HttpPushUriTargets`.
    pub targets: bool,
}

impl PreparedUpdate {
    /// The handle of this update as long as no task of it is known; for [`crate::Bmc::find_update`] after a crash.
    pub fn handle(&self) -> UpdateHandle {
        UpdateHandle {
            format: StoredFormat,
            service: self.service.clone(),
            monitor: None,
            task: None,
            then: self.second(None),
            state_at_service: self.state_at_service,
            task_service: self.task_service.clone(),
            tasks_before: self.tasks_before.clone(),
            staged: self.staged.clone(),
        }
    }

    /// The second request of this update, if it has one; `image` is the path under which the BMC stored the upload.
    pub(crate) fn second(&self, image: Option<String>) -> Option<SecondRequest> {
        match (&self.staged, image, &self.start) {
            (Some(staged), Some(image), _) => Some(staged.request(image)),
            (None, _, Some(target)) => Some(SecondRequest::StartUpdate { target: target.clone() }),
            _ => None,
        }
    }
}

/// The request that starts an update whose image was uploaded before.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "request")]
pub enum SecondRequest {
    /// The action `StartUpdate`.
    StartUpdate {
        /// The path for the POST.
        target: String,
    },
    /// `SimpleUpdate` with the path of the stored image.
    SimpleUpdate {
        /// The path for the POST.
        target: String,
        /// The path of the stored image on the BMC.
        image: String,
        /// The apply time that is sent.
        apply_time: Option<ApplyTime>,
    },
}

/// A running update: everything that [`crate::Bmc::poll_update`] needs, in any process.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UpdateHandle {
    /// The format of this record.
    pub format: StoredFormat,
    /// Path of the update service.
    pub service: String,
    /// Path of the task monitor.
    pub monitor: Option<String>,
    /// Path of the Task.
    pub task: Option<String>,
    /// The request that starts the update when the upload is checked.
    pub then: Option<SecondRequest>,
    /// Whether the progress is shown by the service and not by a task.
    pub state_at_service: bool,
    /// Path of the task service.
    pub task_service: Option<String>,
    /// Ids of tasks that are not this update.
    pub tasks_before: Vec<String>,
    /// The place where the BMC stores the upload, as long as its path is not known.
    pub staged: Option<StagedUpload>,
}

impl StagedUpload {
    /// The request that starts the update with this stored image.
    pub(crate) fn request(&self, image: String) -> SecondRequest {
        SecondRequest::SimpleUpdate { target: self.target.clone(), image, apply_time: self.apply_time }
    }
}

impl UpdateHandle {
    /// The handle after the second request was sent, as long as no task of it is known. After a crash between the two, look
    /// for its task with [`crate::Bmc::find_update`] before the request is sent again.
    pub fn after_start(&self) -> Self {
        let mut tasks_before = self.tasks_before.clone();
        for path in [&self.monitor, &self.task].into_iter().flatten() {
            let id = task_id(path);
            if tasks_before.len() < MAX_TASKS && !tasks_before.contains(&id) {
                tasks_before.push(id);
            }
        }
        UpdateHandle { monitor: None, task: None, then: None, staged: None, tasks_before, ..self.clone() }
    }

    /// Whether the BMC named a monitor or a Task.
    pub fn has_task(&self) -> bool {
        self.monitor.is_some() || self.task.is_some()
    }
}

/// The id in the path of a task or of its monitor.
pub(crate) fn task_id(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let last = json::last_segment(path);
    // Some monitors are "/Tasks/7/Monitor".
    let id = if last.eq_ignore_ascii_case("monitor") {
        json::last_segment(path.get(..path.len() - last.len()).unwrap_or_default())
    } else {
        last
    };
    json::clip(id, 128)
}

/// The result of a request that starts an update.
#[derive(Clone, Debug)]
pub enum UpdateStart {
    /// The BMC accepted the image.
    Accepted(UpdateHandle),
    /// The BMC may have accepted the image: the last byte was sent and no clear response came. The image must
    /// not be sent again: [`crate::Bmc::find_update`] and the installed version may show that the BMC has it, and nothing shows that
    /// it does not.
    MaybeAccepted {
        /// The handle without a task; its traces show how to find the task.
        handle: UpdateHandle,
        /// The error of the start.
        error: Box<RedfishError>,
    },
}

impl UpdateStart {
    /// The handle to store.
    pub fn handle(&self) -> &UpdateHandle {
        match self {
            UpdateStart::Accepted(handle) | UpdateStart::MaybeAccepted { handle, .. } => handle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> UpdateHandle {
        UpdateHandle {
            format: StoredFormat,
            service: "/redfish/v1/UpdateService".to_owned(),
            monitor: Some("/redfish/v1/TaskService/Tasks/7/Monitor".to_owned()),
            task: None,
            then: Some(SecondRequest::StartUpdate { target: "/start".to_owned() }),
            state_at_service: false,
            task_service: None,
            tasks_before: vec!["3".to_owned()],
            staged: None,
        }
    }

    #[test]
    fn a_stored_handle_is_read_again_and_one_of_a_later_format_is_refused() {
        let stored = serde_json::to_value(handle()).unwrap();
        assert_eq!(serde_json::from_value::<UpdateHandle>(stored.clone()).unwrap(), handle());
        let mut later = stored;
        later["format"] = 2.into();
        let why = serde_json::from_value::<UpdateHandle>(later).unwrap_err().to_string();
        assert!(why.contains("format 2"), "{why}");
    }

    #[test]
    fn the_task_of_the_upload_is_not_taken_for_the_task_of_the_update() {
        let started = handle().after_start();
        assert_eq!((started.has_task(), started.then), (false, None));
        assert_eq!(started.tasks_before, ["3", "7"]);
    }

    #[test]
    fn task_and_monitor_have_one_id() {
        for path in ["/T/Tasks/JID_1", "/T/TaskMonitors/JID_1", "/T/Tasks/JID_1/Monitor", "/T/Tasks/JID_1/"] {
            assert_eq!(task_id(path), "JID_1");
        }
    }
}
