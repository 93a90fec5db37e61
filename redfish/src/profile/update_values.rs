//! Types of the values of the flags for firmware updates. Profile files and overrides use the `serde` names.

use serde::{Deserialize, Serialize};

/// A way in which a firmware image reaches the BMC.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UpdateWay {
    /// The BMC reads the image from a URL (`SimpleUpdate`).
    Simple,
    /// The image is uploaded to `MultipartHttpPushUri`.
    Multipart,
    /// The image is uploaded to `HttpPushUri`, which the specification marks as deprecated.
    Push,
}

impl UpdateWay {
    /// The name in profiles and in explanations.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The form in which `SimpleUpdate` names the image.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageUri {
    /// A URL with its scheme.
    Url,
    /// Host, port and path; `TransferProtocol` names the scheme.
    WithoutScheme,
}

/// The body of an upload to `HttpPushUri`; the specification leaves it open.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PushBody {
    /// The bytes of the image.
    Raw,
    /// A form with the session token, parameters and the image; the token is also sent as a cookie.
    SessionForm,
    /// A form with the image, and `If-Match`. The upload only stores the image; `SimpleUpdate` with its path starts the update.
    StagedForm,
}

/// The apply time that a profile asks for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyTimeRule {
    /// None is sent: the BMC decides.
    Unset,
    /// The apply time `Immediate`, if the BMC lists it or lists none.
    Immediate,
    /// The apply time `OnReset`, if the BMC lists it or lists none.
    OnReset,
    /// `OnStartUpdateRequest`: the upload is checked first, then a second request starts the update.
    OnStartUpdateRequest,
}

/// The place in which a BMC shows the progress of an update.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateStateAt {
    /// A task shows the progress.
    Task,
    /// An OEM object of the update service shows the progress in `State`; there is no task.
    Service,
}
