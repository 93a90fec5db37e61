//! The images of the demo: a root file system to install and a maintenance ISO to boot, generated at run time.
//!
//! The images are deterministic (decision D14): one version of this program generates identical bytes on every machine,
//! so the digests of two runs can be compared.

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

/// An image could not be generated.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The layer could not be packed.
    #[error("packing the root file system layer")]
    Layer(#[source] std::io::Error),
    /// A document of the image could not be written.
    #[error("writing the image {document}")]
    Document {
        /// Name of the document.
        document: &'static str,
        /// The cause.
        #[source]
        source: oci_spec::OciSpecError,
    },
    /// A document of the image could not be built.
    #[error("building the image")]
    Build(#[source] oci_spec::OciSpecError),
    /// The marker file could not be written.
    #[error("writing the marker of the maintenance ISO")]
    Marker(#[source] serde_json::Error),
    /// The ISO could not be planned.
    #[error("planning the maintenance ISO")]
    Iso(#[from] iso9660::PlanError),
}

/// Pushes an image over HTTP to `registry_url`, as `repository:tag`.
///
/// # Errors
/// Returns an error if the URL is not valid or the registry refuses the push.
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
