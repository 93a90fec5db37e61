//! Gives installations of firmware the files of the registry.

use async_trait::async_trait;

use api::firmware_files::{FirmwareError, FirmwareFiles};
use firmware::{Entry, VerifiedFirmware, VerifyError};
use model::{RunId, error_chain};
use upkeep::{FirmwareFileError, FirmwareStore};

/// Firmware files in the registry of the controller.
pub(super) struct RegistryFirmware(pub(super) Option<FirmwareFiles>);

impl RegistryFirmware {
    fn files(&self) -> Result<&FirmwareFiles, FirmwareFileError> {
        let none = "this controller has no registry, which holds the firmware files; ENABLE_REGISTRY=true enables it";
        self.0.as_ref().ok_or_else(|| FirmwareFileError::Unusable(none.to_owned()))
    }
}

/// Whether a file can be used later, or is not the recorded one.
fn firmware_file_error(error: &FirmwareError) -> FirmwareFileError {
    use registry::Error as R;
    let text = error_chain(error).to_string();
    match error {
        FirmwareError::Verify(VerifyError::OtherBytes { .. } | VerifyError::OtherSize { .. })
        | FirmwareError::Unusable { .. }
        | FirmwareError::Name(_)
        | FirmwareError::Registry(
            R::ManifestUnknown
            | R::RepositoryUnknown
            | R::BlobUnknown
            | R::Corrupted(_)
            | R::ReferencesUnknown(_),
        ) => FirmwareFileError::Unusable(text),
        _ => FirmwareFileError::Unavailable(text),
    }
}

#[async_trait]
impl FirmwareStore for RegistryFirmware {
    async fn hold(&self, run: RunId, files: &[Entry]) -> Result<(), FirmwareFileError> {
        let named: Vec<(&str, &str)> =
            files.iter().map(|entry| (entry.repository.as_str(), entry.digest.as_str())).collect();
        self.files()?.hold_for_run(run, &named).await.map_err(|error| firmware_file_error(&error))
    }

    async fn open(&self, file: &Entry) -> Result<VerifiedFirmware, FirmwareFileError> {
        let opened = self.files()?.open(&file.repository, &file.digest).await;
        opened.map_err(|error| firmware_file_error(&error))
    }

    async fn release(&self, run: RunId) -> Result<(), FirmwareFileError> {
        // Without a registry nothing is held.
        let Some(files) = &self.0 else { return Ok(()) };
        files.release_run(run).await.map_err(|error| firmware_file_error(&error))
    }
}
