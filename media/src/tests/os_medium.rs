//! Task images with an OS image: what is in them, and that they are rebuilt or refused.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use iso9660::{Image, ReadAt, Window};
use sha2::{Digest as _, Sha256};

use super::task_input;
use crate::os_medium::{OpenBlob, OpenOsImage, OsBlob, OsBlobs, OsBlobsUnavailable, OsImage, OsImageRefused};
use crate::task_image::{TaskInputs, record_inputs_with_os_image};
use crate::task_image_error::TaskImageError;
use crate::{ImageDigest, OS_IMAGE_MAX};

struct Blobs(HashMap<ImageDigest, OpenBlob>);

#[async_trait]
impl OsBlobs for Blobs {
    async fn open(&self, digest: &ImageDigest) -> Result<OpenBlob, OsBlobsUnavailable> {
        let unknown = || OsBlobsUnavailable { reason: format!("no {digest}"), gone: true };
        self.0.get(digest).cloned().ok_or_else(unknown)
    }
}

fn stored(contents: &[&[u8]]) -> (Blobs, Vec<OsBlob>) {
    let mut blobs = Blobs(HashMap::new());
    let mut list = Vec::new();
    for bytes in contents {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let digest = ImageDigest::new(Sha256::digest(bytes).into());
        let len = bytes.len();
        blobs.0.insert(digest, OpenBlob { file: Arc::new(file), len });
        list.push(OsBlob { digest, len });
    }
    (blobs, list)
}

async fn opened(contents: &[&[u8]]) -> OpenOsImage {
    let (blobs, list) = stored(contents);
    let image =
        OsImage::new("application/vnd.oci.image.manifest.v1+json", list[0], list[1..].to_vec()).unwrap();
    OpenOsImage::open(image, &blobs).await.unwrap()
}

#[tokio::test]
async fn the_image_holds_the_task_files_and_an_image_layout_with_a_beacon() {
    let layer = vec![7; 5000];
    let os_image = opened(&[b"{manifest}", b"{}", &layer]).await;
    let inputs = record_inputs_with_os_image(&task_input(), &os_image).unwrap();
    assert!(inputs.len() > beacon::FILE_LEN);
    let (body, beacon_at) = inputs.rebuild_with(&os_image).unwrap();
    assert!(!body.in_memory() && body.etag().starts_with("\"task-"));
    let image = Image::open(body.clone()).unwrap();
    assert!(image.lookup("job.json").is_ok());
    let part = image.extents("os-image.000").unwrap()[0];
    let volume = Image::open(Window::new(body, part.offset, part.len).unwrap()).unwrap();
    assert_eq!(volume.read("oci-layout", 100).unwrap(), br#"{"imageLayoutVersion":"1.0.0"}"#);
    let index: serde_json::Value = serde_json::from_slice(&volume.read("index.json", 4096).unwrap()).unwrap();
    let digest = |bytes: &[u8]| hex::encode(Sha256::digest(bytes));
    assert_eq!(index["manifests"][0]["digest"], format!("sha256:{}", digest(b"{manifest}")));
    for bytes in [b"{manifest}".as_slice(), b"{}", &layer] {
        assert_eq!(volume.read(&format!("blobs/sha256/{}", digest(bytes)), 1 << 20).unwrap(), bytes);
    }
    assert_eq!(volume.extents("beacon").unwrap()[0].offset + part.offset, beacon_at);
    assert_eq!(volume.open_file("beacon").unwrap().len(), beacon::FILE_LEN);
}

#[tokio::test]
async fn equal_inputs_give_the_same_image_and_another_content_another_identity() {
    let os_image = opened(&[b"m", b"c", b"layer"]).await;
    let first = record_inputs_with_os_image(&task_input(), &os_image).unwrap();
    let again = TaskInputs::from_bytes(&first.to_bytes().unwrap()).unwrap();
    assert_eq!(again, first);
    assert_eq!(again.rebuild_with(&os_image).unwrap().0.digest(), first.digest());
    assert!(matches!(again.rebuild(), Err(TaskImageError::OsImageClosed)));
    // The same lengths, so the same addresses.
    let other = opened(&[b"m", b"c", b"reyal"]).await;
    assert_ne!(record_inputs_with_os_image(&task_input(), &other).unwrap().digest(), first.digest());
    assert!(matches!(first.rebuild_with(&other), Err(TaskImageError::Changed { .. })));
}

#[tokio::test]
async fn a_content_that_is_gone_or_has_another_length_is_refused_with_words() {
    let (mut blobs, list) = stored(&[b"m", b"layer"]);
    let image = OsImage::new("x", list[0], [list[1]]).unwrap();
    blobs.0.get_mut(&list[1].digest).unwrap().len = 4;
    let refused = OpenOsImage::open(image.clone(), &blobs).await.err().unwrap();
    assert!(refused.gone && refused.reason.contains("push the image again"), "{refused}");
    blobs.0.remove(&list[0].digest);
    assert!(OpenOsImage::open(image, &blobs).await.err().unwrap().gone);
}

#[test]
fn an_image_above_the_limits_is_refused_and_a_repeated_blob_counts_once() {
    let blob = |n: u16, len| OsBlob { digest: ImageDigest::new(Sha256::digest(n.to_le_bytes()).into()), len };
    let refused = OsImage::new("x", blob(0, 1), [blob(1, OS_IMAGE_MAX)]).unwrap_err();
    assert_eq!(refused, OsImageRefused::TooLarge { bytes: OS_IMAGE_MAX + 1 });
    let many = OsImage::new("x", blob(0, 1), (1..1000).map(|n| blob(n, 1)));
    assert!(matches!(many, Err(OsImageRefused::TooManyBlobs { .. })));
    let twice = OsImage::new("x", blob(0, 1), [blob(1, 5), blob(1, 5)]).unwrap();
    assert_eq!((twice.blobs().len(), twice.bytes()), (2, 6));
}
