//! The byte ranges of the El Torito images in a maintenance image.
//!
//! ```text
//! | descriptors | catalog | other files |==== BIOS ====| other files |======== UEFI ========| ...
//!                                            touch()                        touch()
//! ```
//!
//! A BMC that mounts a medium reads its descriptors and directories. The El Torito images are read by the firmware of a
//! host that boots from the medium. A read in one of these ranges therefore proves that the boot override worked.
//!
//! Invariants: the ranges come from one boot catalog; an entry that extends to the end of the image, which is common for
//! UEFI, counts with its first 64 MiB only.

use std::ops::Range;
use std::sync::Arc;

use iso9660::{Image, ReadAt};

/// Bytes counted of an El Torito image whose catalog entry gives no size.
const UNKNOWN_SIZE: u64 = 64 << 20;

/// The byte ranges of the El Torito images of one image. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootExtents(Arc<[Range<u64>]>);

impl BootExtents {
    /// Extents made of the given byte ranges.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self(ranges.into_iter().collect())
    }

    /// The extents of an image. Empty when its catalog cannot be read: then boot reads are not detected, and nothing else
    /// changes.
    #[must_use]
    pub fn of(source: &dyn ReadAt) -> Self {
        match Image::open(source).and_then(|image| image.boot_catalog()) {
            Ok(catalog) => {
                for fault in &catalog.faults {
                    tracing::warn!(error = %fault, "boot catalog has a broken entry: reads of its El Torito image will not be detected");
                }
                Self::new(catalog.entries.into_iter().map(|entry| {
                    let len =
                        if entry.units <= 1 { entry.extent.len.min(UNKNOWN_SIZE) } else { entry.extent.len };
                    entry.extent.offset..entry.extent.offset.saturating_add(len)
                }))
            }
            Err(error) => {
                tracing::warn!(error = %error, "boot catalog not readable: reads of the El Torito images will not be detected");
                Self::default()
            }
        }
    }

    /// Whether `len` bytes at `offset` overlap one of the ranges.
    #[must_use]
    pub fn touch(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        len > 0 && self.0.iter().any(|range| offset < range.end && range.start < end)
    }

    /// Whether there are no ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iso9660::{BiosBoot, Boot, ImageOptions, ImagePlan, Profile, Tree, UefiBoot};

    #[test]
    fn only_reads_that_overlap_a_range_touch_it() {
        let extents = BootExtents::new([10..20, 40..50]);
        for (offset, len, touched) in
            [(0, 10, false), (0, 11, true), (19, 1, true), (20, 20, false), (49, 9, true), (12, 0, false)]
        {
            assert_eq!(extents.touch(offset, len), touched && len > 0, "{len} bytes at {offset}");
        }
        assert!(!BootExtents::default().touch(0, u64::MAX));
    }

    #[test]
    fn the_el_torito_images_of_a_bootable_image_are_found() {
        let mut tree = Tree::new();
        tree.add_file("boot/bios.img", vec![1; 2048]).unwrap();
        tree.add_file("boot/efi.img", vec![2; 8192]).unwrap();
        tree.add_file("other", vec![3; 8192]).unwrap();
        let mut options = ImageOptions::new(Profile::Boot, "BOOT", 0);
        options.boot =
            Some(Boot::new(Some(BiosBoot::new("boot/bios.img")), Some(UefiBoot::new("boot/efi.img"))));
        let plan = ImagePlan::new(&tree, &options).unwrap();
        let extents = BootExtents::of(&plan);
        assert_eq!(extents.0.len(), 2);
        for (range, filling) in extents.0.iter().zip([1, 2]) {
            let mut first = [0];
            plan.read_exact_at(range.start, &mut first).unwrap();
            assert_eq!(first, [filling]);
        }
        assert!(!extents.touch(0, 17 * 2048));
        assert!(BootExtents::of(&vec![0; 1 << 20]).is_empty());
    }
}
