//! Firmware files and sets.

mod add;
mod list;
mod remove;
mod set_create;
mod set_delete;
mod set_list;
mod set_match;
pub(super) mod view;

pub(super) use add::{NewFirmware, add};
pub(super) use list::{list, show};
pub(super) use remove::remove;
pub(super) use set_create::{NewFirmwareSet, create as create_set};
pub(super) use set_delete::delete as delete_set;
pub(super) use set_list::{list as list_sets, show as show_set};
pub(super) use set_match::{choose as match_set, refused as no_set};

use firmware::{Entry, FirmwareSet, InvalidIdentity};
use model::error_chain;
use store::StoredFirmwareSet;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::{ErrorCode, Rule};
use crate::firmware_files::{FirmwareError, FirmwareFiles};

pub(crate) fn files(api: &Api) -> Result<&FirmwareFiles, ApiError> {
    api.firmware.as_ref().ok_or_else(no_registry)
}

/// Refuses an installation whose files no store has.
pub(crate) fn files_exist(api: &Api) -> Result<(), ApiError> {
    if api.installs_firmware { Ok(()) } else { Err(no_registry()) }
}

fn no_registry() -> ApiError {
    ApiError::new(
        ErrorCode::NoRegistry,
        "this controller has no registry, which holds the firmware files; ENABLE_REGISTRY=true enables it",
    )
}

fn unknown_firmware() -> ApiError {
    ApiError::new(
        ErrorCode::UnknownFirmware,
        "no firmware file has this digest; `shoal firmware list` shows the files",
    )
}

pub(crate) fn unknown_set() -> ApiError {
    ApiError::new(
        ErrorCode::UnknownFirmwareSet,
        "no firmware set has this name; `shoal firmware set list` shows the sets",
    )
}

/// The problem of a value at a place of the request.
fn invalid(place: &str, why: &InvalidIdentity) -> Detail {
    Detail::new(place, Rule::Format, why.to_string())
}

/// A stored set as a set of files.
pub(crate) fn set_of(stored: &StoredFirmwareSet) -> Result<FirmwareSet, ApiError> {
    let entries: Result<Vec<Entry>, String> = stored
        .files
        .iter()
        .map(|file| {
            let read = firmware::read_manifest(file.manifest.as_bytes()).map_err(|why| why.to_string())?;
            let described = read.ok_or("it is no firmware artifact")?;
            Ok(Entry { repository: file.repository.clone(), digest: file.digest.clone(), file: described })
        })
        .collect();
    let set = entries.and_then(|entries| {
        let name = stored.name.parse().map_err(|why: InvalidIdentity| why.to_string())?;
        FirmwareSet::new(name, stored.labels.clone(), entries).map_err(|why| why.to_string())
    });
    set.map_err(|why| {
        tracing::error!(set = stored.name, why, "a stored firmware set cannot be read");
        ApiError::new(
            ErrorCode::Internal,
            format!("the stored firmware set {} cannot be read; delete it and create it again", stored.name),
        )
    })
}

impl From<FirmwareError> for ApiError {
    fn from(error: FirmwareError) -> Self {
        use registry::Error as R;
        let message = error.to_string();
        match error {
            FirmwareError::Registry(R::ReadOnly(_)) => Self::new(ErrorCode::RegistryReadOnly, message),
            FirmwareError::Registry(
                R::ReferencesUnknown(_) | R::WrongSize { .. } | R::InvalidManifest(_),
            ) => Self::invalid(vec![Detail::new(
                "/sha256",
                Rule::Value,
                format!("{message} (`shoal firmware add` pushes the bytes first)"),
            )]),
            FirmwareError::Registry(R::Pinned { .. } | R::BelowTag { .. } | R::TagKept(_)) => {
                Self::new(ErrorCode::ConflictFirmwareInUse, message)
            }
            FirmwareError::Registry(R::ManifestUnknown | R::RepositoryUnknown) => unknown_firmware(),
            FirmwareError::Registry(R::NoSpace | R::QuotaExceeded { .. }) => {
                Self::new(ErrorCode::RegistryFailed, message)
            }
            FirmwareError::Name(_) => Self::invalid(vec![Detail::new("", Rule::Format, message)]),
            FirmwareError::TooMany => Self::new(ErrorCode::RegistryFailed, message),
            other => {
                tracing::error!(error = %error_chain(&other), "an operation on firmware files failed");
                Self::new(
                    ErrorCode::RegistryFailed,
                    "the operation on firmware files failed; see the log of the controller, then try again",
                )
            }
        }
    }
}
