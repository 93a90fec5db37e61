//! Firmware files as OCI artifacts.

use serde_json::{Value, json};

use super::file;
use crate::{ArtifactError, Component, Restart, manifest, read_manifest, tag};

/// The manifest that `oras push` writes with the documented annotations.
fn of_oras() -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.shoal.firmware.v1",
        "config": { "mediaType": "application/vnd.oci.empty.v1+json", "size": 2, "data": "e30=",
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar", "size": 7,
            "digest": format!("sha256:{}", "ab".repeat(32)),
            "annotations": { "org.opencontainers.image.title": "folder/BIOS.EXE" },
        }],
        "annotations": {
            "io.shoal.firmware.vendor": "Dell Inc.", "io.shoal.firmware.model": "PowerEdge R640; PowerEdge R740",
            "io.shoal.firmware.component": "bios", "org.opencontainers.image.version": "2.19.1",
            "org.opencontainers.image.created": "2026-11-23T00:00:00Z",
        },
    })
}

fn read(document: &Value) -> Result<Option<crate::FirmwareFile>, ArtifactError> {
    read_manifest(document.to_string().as_bytes())
}

#[test]
fn what_is_written_is_read_again_and_equal_files_give_equal_manifests() {
    let mut one = file("dell", "R640;R740", Component::Bios, "2.19.1");
    one.restart = Restart::None;
    assert_eq!(read_manifest(&manifest(&one)), Ok(Some(one.clone())));
    let mut again = file("DELL", "R740;R640", Component::Bios, "2.19.1");
    assert_ne!(manifest(&again), manifest(&one), "the restart is a part of the description");
    again.restart = Restart::None;
    assert_eq!(manifest(&again), manifest(&one));
    assert_eq!(tag(&one, &"0123456789abcdef".repeat(4)), "v2.19.1-0123456789ab");
    let odd = file("dell", "M", Component::Drive, "U30 v2.36 (07/16/2020)");
    assert_eq!(tag(&odd, &"f".repeat(64)), "vU30-v2.36--07-16-2020--ffffffffffff");
}

#[test]
fn an_artifact_of_oras_push_is_a_firmware_file() {
    let found = read(&of_oras()).unwrap().unwrap();
    assert_eq!(found.to_string(), "dell bios 2.19.1 (BIOS.EXE)");
    assert_eq!((found.size, found.restart, found.models().len()), (7, Restart::Host, 2));
}

#[test]
fn an_incomplete_artifact_says_which_annotation_is_missing() {
    for (pointer, name) in [
        ("/annotations", "io.shoal.firmware.vendor"),
        ("/annotations", "io.shoal.firmware.model"),
        ("/annotations", "io.shoal.firmware.component"),
        ("/annotations", "org.opencontainers.image.version"),
        ("/layers/0/annotations", "org.opencontainers.image.title"),
    ] {
        let mut document = of_oras();
        document.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name);
        let refused = read(&document).unwrap_err();
        assert_eq!(refused, ArtifactError::Missing(name));
        assert!(refused.to_string().contains(name), "{refused}");
    }
    let mut two = of_oras();
    two["layers"] = json!([two["layers"][0], two["layers"][0]]);
    assert_eq!(read(&two), Err(ArtifactError::Files(2)));
    let mut wrong = of_oras();
    wrong["annotations"]["io.shoal.firmware.component"] = json!("motherboard");
    assert!(matches!(read(&wrong), Err(ArtifactError::Invalid(_))));
    let mut other = of_oras();
    other["artifactType"] = json!("application/vnd.example");
    assert_eq!(read(&other), Ok(None));
    assert!(matches!(read_manifest(b"{"), Err(ArtifactError::Document(_))));
}
