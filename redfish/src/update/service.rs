//! The offer of an update service: ways to send an image, limits, apply times, and whether it is busy now.
//!
//! ```text
//!   ServiceRoot -> UpdateService   Actions #UpdateService.SimpleUpdate   protocols at the action, else in its ActionInfo
//!                                  MultipartHttpPushUri, HttpPushUri (+ Options, Targets, …Busy), MaxImageSizeBytes
//!                                  Oem.<any>.State                       progress of BMCs without a task
//!               -> Tasks           the TaskService, to find a task whose path did not arrive
//! ```
//!
//! Specification: DSP0268 UpdateService, DSP2062.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::bmc::Bmc;
use crate::endpoint::SERVICE_ROOT;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::json::{self, Resource};

const OPERATION: Operation = Operation::UpdateService;

/// The time at which a BMC applies an image.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, strum::IntoStaticStr, strum::EnumString,
)]
#[non_exhaustive]
#[strum(ascii_case_insensitive)]
pub enum ApplyTime {
    /// The image is applied as soon as it is there; some BMCs restart the host for it.
    Immediate,
    /// The image is applied at the next restart of the host or the device.
    OnReset,
    /// The image is applied when the action `StartUpdate` is requested.
    OnStartUpdateRequest,
    /// The image is applied at the start of a maintenance window.
    AtMaintenanceWindowStart,
    /// The image is applied at a restart within a maintenance window.
    InMaintenanceWindowOnReset,
    /// The image is applied at the next restart of the updated device.
    OnTargetReset,
}

impl ApplyTime {
    /// The value in the specification.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The known values in a list.
    pub(crate) fn of(fields: &Map<String, Value>, name: &str) -> Vec<Self> {
        let mut times: Vec<Self> =
            json::texts(fields, name).iter().filter_map(|name| name.parse().ok()).collect();
        times.dedup();
        times
    }
}

/// The action `SimpleUpdate`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SimpleUpdateAction {
    /// The path for the POST.
    pub target: String,
    /// The protocols that the BMC lists, in upper case; empty if it lists none.
    pub protocols: Vec<String>,
    /// Whether the BMC lists the parameter `Targets`; `None` if it lists no parameters.
    pub takes_targets: Option<bool>,
    /// Apply times the BMC lists for this action.
    pub apply_times: Vec<ApplyTime>,
}

/// The offer of an update service at the time of the read.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct UpdateCapability {
    /// Path of the service.
    pub uri: String,
    /// Whether the service is enabled, `ServiceEnabled`; true if it is not shown.
    pub enabled: bool,
    /// The reason why the service accepts no update now, if it shows one.
    pub busy: Option<String>,
    /// The action `SimpleUpdate`.
    pub simple: Option<SimpleUpdateAction>,
    /// Path of `MultipartHttpPushUri`.
    pub multipart: Option<String>,
    /// Path of `HttpPushUri`.
    pub push: Option<String>,
    /// Apply times of `HttpPushUriOptions`; `None` if the service has no such options.
    pub push_apply_times: Option<Vec<ApplyTime>>,
    /// Whether the service shows `HttpPushUriTargets`.
    pub push_targets: bool,
    /// The path for the POST of the action `StartUpdate`.
    pub start: Option<String>,
    /// `MaxImageSizeBytes`, in bytes.
    pub max_image_bytes: Option<u64>,
    /// Path of the firmware inventory.
    pub firmware_inventory: Option<String>,
    /// Path of the software inventory.
    pub software_inventory: Option<String>,
    /// `State` of an OEM object of the service, where the BMC shows progress there.
    pub shown_state: Option<String>,
    /// Path of the task service.
    pub task_service: Option<String>,
}

impl UpdateCapability {
    /// Reads the members of an update service; unknown and invalid members are left out.
    pub(crate) fn of(service: &Resource) -> Self {
        let fields = &service.fields;
        let path = |name: &str| json::word(fields, name).and_then(|path| json::path_of(&path));
        let target = |name: &str| {
            let action = json::action(fields, name)?;
            json::path_of(&json::word(action, "target")?)
        };
        let options = json::member(fields, "HttpPushUriOptions");
        let push_apply_times = options.map(|options| {
            let time = json::member(options, "HttpPushUriApplyTime");
            time.map(|time| ApplyTime::of(time, "ApplyTime@Redfish.AllowableValues")).unwrap_or_default()
        });
        let shown_state = oem_state(fields);
        UpdateCapability {
            uri: service.path.clone(),
            enabled: json::flag(fields, "ServiceEnabled") != Some(false),
            busy: busy(fields, shown_state.as_deref()),
            simple: json::action(fields, "#UpdateService.SimpleUpdate").and_then(simple_update),
            multipart: path("MultipartHttpPushUri"),
            push: path("HttpPushUri"),
            push_apply_times,
            push_targets: fields.contains_key("HttpPushUriTargets"),
            start: target("#UpdateService.StartUpdate"),
            max_image_bytes: fields
                .get("MaxImageSizeBytes")
                .and_then(Value::as_u64)
                .filter(|bytes| *bytes > 0),
            firmware_inventory: json::link(fields, "FirmwareInventory"),
            software_inventory: json::link(fields, "SoftwareInventory"),
            shown_state,
            task_service: None,
        }
    }
}

fn simple_update(action: &Map<String, Value>) -> Option<SimpleUpdateAction> {
    let target = json::path_of(&json::word(action, "target")?)?;
    let support = json::member(action, "@Redfish.OperationApplyTimeSupport");
    Some(SimpleUpdateAction {
        target,
        protocols: upper(json::texts(action, "TransferProtocol@Redfish.AllowableValues")),
        takes_targets: None,
        apply_times: support.map(|support| ApplyTime::of(support, "SupportedValues")).unwrap_or_default(),
    })
}

fn upper(mut words: Vec<String>) -> Vec<String> {
    words.iter_mut().for_each(|word| word.make_ascii_uppercase());
    words
}

/// `State` of the first OEM object that has one.
pub(crate) fn oem_state(fields: &Map<String, Value>) -> Option<String> {
    oem_objects(fields).find_map(|oem| json::word(oem, "State"))
}

/// The objects below `Oem`.
pub(crate) fn oem_objects(fields: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let oem = json::member(fields, "Oem").into_iter().flat_map(|oem| oem.values().take(json::MAX_ENTRIES));
    oem.filter_map(Value::as_object)
}

fn busy(fields: &Map<String, Value>, state: Option<&str>) -> Option<String> {
    let set = ["HttpPushUriTargetsBusy", "HttpPushUriOptionsBusy"].into_iter();
    let mut set = set.filter(|name| json::flag(fields, name) == Some(true));
    if let Some(name) = set.next() {
        return Some(format!("{name} is true: another client uploads an image"));
    }
    let state = state?;
    let works = ["updating", "uploading", "verifying", "writing", "flashing"];
    works
        .contains(&state.to_ascii_lowercase().as_str())
        .then(|| format!("its state is {}", json::clip(state, 64)))
}

/// Adds what an `ActionInfo` lists about `SimpleUpdate`.
pub(crate) fn add_action_info(action: &mut SimpleUpdateAction, info: &Map<String, Value>) {
    let parameters = info.get("Parameters").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let named: Vec<(&Map<String, Value>, String)> = parameters
        .iter()
        .take(json::MAX_ENTRIES)
        .filter_map(Value::as_object)
        .filter_map(|parameter| Some((parameter, json::word(parameter, "Name")?)))
        .collect();
    if named.is_empty() {
        return;
    }
    action.takes_targets = Some(named.iter().any(|(_, name)| name == "Targets"));
    for (parameter, name) in named {
        match name.as_str() {
            "TransferProtocol" if action.protocols.is_empty() => {
                action.protocols = upper(json::texts(parameter, "AllowableValues"));
            }
            "@Redfish.OperationApplyTime" if action.apply_times.is_empty() => {
                action.apply_times = ApplyTime::of(parameter, "AllowableValues");
            }
            _ => {}
        }
    }
}

impl Bmc {
    /// Reads what the update service offers: two requests, a third one where an `ActionInfo` lists the protocols.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the BMC has no update service or it is disabled; else when a read fails.
    pub async fn update_capability(&self) -> Result<UpdateCapability, RedfishError> {
        let core = &self.core;
        core.request_auth().await?;
        let root = core.cached(OPERATION, SERVICE_ROOT).await?;
        let Some(path) = json::link(&root.fields, "UpdateService") else {
            return Err(RedfishError::not_supported(OPERATION, "the BMC has no update service"));
        };
        let service = core.read(OPERATION, &path).await?;
        let mut found = UpdateCapability::of(&service);
        found.task_service = json::link(&root.fields, "Tasks");
        if !found.enabled {
            return Err(RedfishError::not_supported(
                OPERATION,
                "the update service is disabled (ServiceEnabled)",
            ));
        }
        let info = json::action(&service.fields, "#UpdateService.SimpleUpdate")
            .and_then(|action| json::path_of(&json::word(action, "@Redfish.ActionInfo")?));
        if let (Some(info), Some(action)) = (info, &mut found.simple) {
            match core.read(OPERATION, &info).await {
                Ok(info) => add_action_info(action, &info.fields),
                // Some BMCs link to an ActionInfo they do not have; the action works without it.
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Whether the error means that the BMC does not have the resource or cannot show it.
pub(crate) fn is_absent(error: &RedfishError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound { .. }
            | ErrorKind::NotSupported { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::License { .. }
            | ErrorKind::BadAnswer { .. }
    )
}
