//! A maintenance ISO for simulated machines: bootable by the rules of El Torito, marked, and otherwise empty.
//!
//! ```text
//! /maintenance-os.json     the marker: name and version of what would run
//! /EFI/BOOT/efiboot.img    the UEFI boot image: a stub of one 512-byte sector of text and zeros, padded to 64 KiB
//! ```
//!
//! The stub is no FAT file system: real firmware finds the boot entry and then nothing to start. A simulated machine
//! looks at the boot entry and the marker only, which is what this image is for.

use iso9660::{Boot, Options, Plan, Profile, Tree, UefiBoot};
use serde::{Deserialize, Serialize};

use super::ImageError;

/// The file that says "this is a maintenance medium".
pub const MARKER_PATH: &str = "maintenance-os.json";
/// The UEFI boot image.
pub const BOOT_IMAGE_PATH: &str = "EFI/BOOT/efiboot.img";

const VOLUME_ID: &str = "SHOAL_MAINT";
const BOOT_IMAGE_BYTES: usize = 64 * 1024;
/// 2025-01-01 00:00 UTC: the one date of everything in the image.
const EPOCH: i64 = 1_735_689_600;

/// What the marker file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceMarker {
    /// Name of the maintenance OS.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Plans the maintenance ISO.
///
/// # Errors
/// When the plan cannot be made.
pub fn maintenance_iso() -> Result<Plan, ImageError> {
    let marker = MaintenanceMarker {
        name: "shoal-simulated-maintenance-os".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let marker = serde_json::to_vec_pretty(&marker).map_err(ImageError::Marker)?;
    let mut tree = Tree::new();
    tree.add_file(MARKER_PATH, marker)?;
    tree.add_file(BOOT_IMAGE_PATH, boot_image())?;
    let mut options = Options::new(Profile::Boot, VOLUME_ID, EPOCH);
    options.boot = Some(Boot { bios: None, uefi: Some(UefiBoot { path: BOOT_IMAGE_PATH.to_owned() }) });
    Ok(Plan::new(&tree, &options)?)
}

fn boot_image() -> Vec<u8> {
    let mut image = b"shoal: a stub for simulated machines, not a file system\n".to_vec();
    image.resize(BOOT_IMAGE_BYTES, 0);
    image
}
