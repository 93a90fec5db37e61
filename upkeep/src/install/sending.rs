//! The stored state of an image that is sent, or whose URL is given out: the output of `firmware.upload`, which later steps read.

use std::time::Duration;

use redfish::update::UpdateRoute;
use redfish::{PreparedUpdate, UpdateHandle, UpdateState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::Absent;
use super::component::Current;
use super::power_loss::HostPower;
use super::served::Fetch;
use engine::{StepContext, StepReport};
use model::{NewEvent, Time};

/// How long a BMC is looked at before a request to read an image counts as not arrived. A BMC shows a task within seconds.
pub(super) const LOOK_FOR: Duration = Duration::from_secs(60);

/// The output of the step `firmware.upload`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Upload {
    /// The update as it was stored before the first byte.
    pub(super) prepared: Option<PreparedUpdate>,
    /// Whether the last piece of the image was certainly not sent: the BMC cannot have the whole image.
    pub(super) incomplete: bool,
    /// The state that the service showed before, where progress is shown by the service and not by a task.
    pub(super) before: Option<UpdateState>,
    /// The `LastResetTime` of the BMC before the image was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_reset: Option<String>,
    /// Since when the BMC is looked at, because no clear response came.
    pub(super) looked_since: Option<Time>,
    /// The accepted update.
    pub(super) handle: Option<UpdateHandle>,
    /// When the update was accepted.
    pub(super) accepted_at: Option<Time>,
    /// How long the update may take, in seconds.
    pub(super) limit_s: u64,
    /// How the image was sent, and why so.
    pub(super) way: String,
    /// How often the image was sent, or a URL of it.
    pub(super) sent: u32,
    /// How often the BMC could not read the image.
    pub(super) unread: u32,
    /// The image as it is served, where the BMC reads it from a URL.
    pub(super) fetch: Option<Fetch>,
    pub(super) absent: Absent,
    pub(super) power: HostPower,
}

impl Upload {
    /// Whether the BMC reads the image from a URL.
    pub(super) fn is_by_url(&self) -> bool {
        self.prepared
            .as_ref()
            .is_some_and(|prepared| matches!(prepared.choice.route, UpdateRoute::Simple { .. }))
    }
}

/// The report of an update that the BMC has.
pub(super) fn accepted(
    context: &StepContext,
    current: &Current,
    mut upload: Upload,
    handle: UpdateHandle,
    how: &str,
) -> StepReport {
    let way = match upload.prepared.as_ref().map(|prepared| &prepared.choice.route) {
        Some(UpdateRoute::Simple { .. }) => "read by the BMC",
        Some(UpdateRoute::Multipart { .. } | UpdateRoute::Push { .. }) | None => "uploaded",
    };
    upload.handle = Some(handle);
    upload.accepted_at = Some(context.now());
    let message = format!("the image of {} was {way} and is {how}", current.item.what());
    let event = NewEvent::info("firmware.accepted", message)
        .with(json!({ "file": current.entry.digest, "way": upload.way, "bytes": current.entry.file.size }));
    StepReport::done().with_output(json!(upload)).event(event)
}
