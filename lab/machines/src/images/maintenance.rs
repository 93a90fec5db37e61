//! A maintenance ISO for simulated machines: an El Torito boot entry and a marker file, and nothing else.
//!
//! ```text
//! /maintenance-os.json     the marker: name and version of the maintenance OS
//! /EFI/BOOT/efiboot.img    the El Torito image: a stub of text and zeros, 64 KiB long
//! ```
//!
//! The stub is not a FAT file system: real firmware finds the boot entry but no program. A simulated machine checks only
//! the boot entry and the marker.

use iso9660::{Boot, ImageOptions, ImagePlan, Profile, Tree, UefiBoot};
use serde::{Deserialize, Serialize};

use super::ImageError;

/// Path of the file that marks an image as a maintenance image.
pub const MARKER_PATH: &str = "maintenance-os.json";
/// Path of the El Torito image for UEFI.
pub const BOOT_IMAGE_PATH: &str = "EFI/BOOT/efiboot.img";

const VOLUME_ID: &str = "SHOAL_MAINT";
const BOOT_IMAGE_BYTES: usize = 64 * 1024;
/// 2025-01-01 00:00 UTC: the date of every file in the image.
const EPOCH: i64 = 1_735_689_600;

/// The content of the marker file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceMarker {
    /// Name of the maintenance OS.
    pub name: String,
    /// Version of the maintenance OS.
    pub version: String,
}

/// Plans the maintenance ISO.
///
/// # Errors
/// Returns an error if the image cannot be planned.
pub fn maintenance_iso() -> Result<ImagePlan, ImageError> {
    let marker = MaintenanceMarker {
        name: "shoal-simulated-maintenance-os".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let marker = serde_json::to_vec_pretty(&marker).map_err(ImageError::Marker)?;
    let mut tree = Tree::new();
    tree.add_file(MARKER_PATH, marker)?;
    tree.add_file(BOOT_IMAGE_PATH, boot_image())?;
    let mut options = ImageOptions::new(Profile::Boot, VOLUME_ID, EPOCH);
    options.boot = Some(Boot::new(None, Some(UefiBoot::new(BOOT_IMAGE_PATH))));
    Ok(ImagePlan::new(&tree, &options)?)
}

fn boot_image() -> Vec<u8> {
    let mut image = b"shoal: a stub for simulated machines, not a file system\n".to_vec();
    image.resize(BOOT_IMAGE_BYTES, 0);
    image
}
