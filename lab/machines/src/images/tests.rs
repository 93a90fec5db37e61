use iso9660::Image;

use super::*;
use crate::test_kit::bytes_of;

#[test]
fn the_os_image_is_reproducible() {
    let spec = RootfsSpec::default();
    let (one, two) = (rootfs_image(&spec).unwrap(), rootfs_image(&spec).unwrap());
    assert_eq!((&one.digest, &one.manifest), (&two.digest, &two.manifest));
    let larger = rootfs_image(&RootfsSpec { payload_bytes: 300 * 1024, ..spec }).unwrap();
    assert_ne!(one.digest, larger.digest);
    let total: usize = one.blobs.iter().map(|blob| blob.bytes.len()).sum();
    assert!((200_000..2_000_000).contains(&total), "{total} bytes");
}

#[test]
fn the_maintenance_iso_is_bootable_marked_and_reproducible() {
    let bytes = bytes_of(&maintenance_iso().unwrap());
    assert_eq!(bytes, bytes_of(&maintenance_iso().unwrap()));
    let image = Image::open(bytes).unwrap();
    assert_eq!(image.boot_entries().unwrap().len(), 1);
    let marker: MaintenanceMarker = serde_json::from_slice(&image.read(MARKER_PATH, 4096).unwrap()).unwrap();
    assert_eq!(marker.name, "shoal-simulated-maintenance-os");
}

#[test]
fn a_written_layout_holds_every_blob_under_its_digest() {
    let image = rootfs_image(&RootfsSpec::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    image.write_layout(folder.path(), "22.04").unwrap();
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("index.json")).unwrap()).unwrap();
    assert_eq!(index["manifests"][0]["digest"], image.digest);
    assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "22.04");
    for entry in std::fs::read_dir(folder.path().join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let found = crate::oci::digest_of(&std::fs::read(&path).unwrap());
        assert_eq!(found, format!("sha256:{}", path.file_name().unwrap().to_string_lossy()));
    }
}
