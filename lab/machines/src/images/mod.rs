//! Material for the demo: a root file system to install and a maintenance ISO to boot, both made here and now.
//!
//! Everything is deterministic (L14): the same version of this program makes the same bytes on every machine, so the
//! demo's digests can be compared between two runs.

mod maintenance;
mod rootfs;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub use self::{
    maintenance::{BOOT_IMAGE_PATH, MARKER_PATH, MaintenanceMarker, maintenance_iso},
    rootfs::{RootfsImage, RootfsSpec, rootfs_image},
};
use crate::oci::{Authorization, PushReceipt, RegistryClient, RegistryError};

/// Why the material could not be made.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The layer could not be packed.
    #[error("packing the root file system layer")]
    Layer(#[source] std::io::Error),
    /// A document of the image could not be written.
    #[error("writing the image {document}")]
    Document {
        /// Which one.
        document: &'static str,
        /// Why.
        #[source]
        source: oci_spec::OciSpecError,
    },
    /// A document of the image could not be put together.
    #[error("putting the image together")]
    Build(#[source] oci_spec::OciSpecError),
    /// The marker file could not be written.
    #[error("writing the marker of the maintenance ISO")]
    Marker(#[source] serde_json::Error),
    /// The ISO could not be planned.
    #[error("planning the maintenance ISO")]
    Iso(#[from] iso9660::PlanError),
}

/// Pushes an image to `registry_url` under `repository:tag`, over HTTP as any client would.
///
/// # Errors
/// When the address is not usable or the registry refuses.
pub async fn push(
    http: reqwest::Client,
    registry_url: &str,
    repository: &str,
    tag: &str,
    authorization: Authorization,
    image: &RootfsImage,
) -> Result<PushReceipt, RegistryError> {
    let registry = RegistryClient::new(http, registry_url, authorization)?;
    registry.push(repository, tag, &image.blobs, image.manifest.clone(), &image.media_type).await
}
