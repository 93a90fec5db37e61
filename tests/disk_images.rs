//! `shoal image add`: images of whole disks, from a file into the registry of a running controller.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kit::Scene;

const CLUSTER: usize = 64 << 10;

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A disk of 3 MiB with an MBR, zeros, and text at the end.
pub(crate) fn disk() -> Vec<u8> {
    let mut disk = vec![0; 3 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let end = disk.len() - 8;
    disk[end..].copy_from_slice(b"the end.");
    disk
}

/// The disk as qcow2: header, L1 table, L2 table, then the first and the last cluster of the disk.
pub(crate) fn qcow2(disk: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 3 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &16_u32.to_be_bytes());
    put(24, &(disk.len() as u64).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    put(CLUSTER, &((2 * CLUSTER as u64) | (1 << 63)).to_be_bytes());
    put(2 * CLUSTER, &((3 * CLUSTER as u64) | (1 << 63)).to_be_bytes());
    put(2 * CLUSTER + (disk.len() / CLUSTER - 1) * 8, &((4 * CLUSTER as u64) | (1 << 63)).to_be_bytes());
    file.extend(&disk[..CLUSTER]);
    file.extend(&disk[disk.len() - CLUSTER..]);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn add(scene: &Scene, file: &Path, name: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(["image", "add", "--json", "--name", name]).arg(file);
    command.args(["--url", &scene.admin.base, "--token", scene.admin.token()]);
    tokio::task::block_in_place(|| command.output().unwrap())
}

#[track_caller]
fn added(output: &Output) -> Value {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_qcow2_gzip_and_zstd_files_become_the_same_disk_in_the_registry() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let folder = tempfile::tempdir().unwrap();
    let disk = disk();
    let raw = added(&add(&scene, &written(folder.path(), "disk.raw", &disk), "os-images/disk:raw"));
    let from_qcow2 =
        added(&add(&scene, &written(folder.path(), "disk", &qcow2(&disk)), "os-images/disk:qcow2"));
    let packed = gzip(&disk);
    let as_it_is = added(&add(&scene, &written(folder.path(), "disk.gz", &packed), "os-images/disk:gzip"));
    for (image, form) in [(&raw, "raw"), (&from_qcow2, "qcow2"), (&as_it_is, "gzip")] {
        assert_eq!((&image["form"], &image["disk_bytes"]), (&json!(form), &json!(disk.len())));
        assert_eq!(image["disk_sha256"], json!(sha256(&disk)));
        let oci_url = image["oci_url"].as_str().unwrap();
        let host = scene.admin.base.strip_prefix("http://").unwrap();
        assert_eq!(oci_url, format!("{host}/os-images/disk@{}", image["digest"].as_str().unwrap()));
        // What the agent does: the manifest, its one layer, and the content.
        let path = format!("/v2/os-images/disk/manifests/{}", image["digest"].as_str().unwrap());
        let manifest = scene.admin.get(&path).await.expect(200);
        assert_eq!(manifest["artifactType"], "application/vnd.shoal.disk.v1");
        let [layer] = manifest["layers"].as_array().unwrap().as_slice() else { panic!("{manifest}") };
        assert_eq!(layer["digest"], image["blob"]);
    }
    assert_eq!(raw["blob"], from_qcow2["blob"], "equal content is one blob");
    assert!(raw["blob_bytes"].as_u64().unwrap() < 2000, "{raw}");
    assert_eq!(as_it_is["blob"], json!(format!("sha256:{}", sha256(&packed))));
    let blob = scene.admin.get(&format!("/v2/os-images/disk/blobs/{}", raw["blob"].as_str().unwrap())).await;
    let zstd = written(folder.path(), "disk.zst", &blob.body);
    let again = added(&add(&scene, &zstd, "os-images/disk:zstd"));
    assert_eq!((&again["form"], &again["blob"]), (&json!("zstd"), &raw["blob"]));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_disk_or_is_damaged_leaves_nothing_in_the_registry() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let folder = tempfile::tempdir().unwrap();
    let disk = disk();
    let mut cut = qcow2(&disk);
    cut.truncate(4 * CLUSTER + 100);
    let mut backed = qcow2(&disk);
    backed[15] = 200;
    let mut packed = gzip(&disk);
    packed.truncate(packed.len() - 10);
    for (name, bytes, word) in [
        ("page.raw", b"<html>not found</html>".to_vec(), "neither a GPT nor an MBR"),
        ("cut.qcow2", cut, "cut off"),
        ("backed.qcow2", backed, "backing file"),
        ("disk.vmdk", b"KDMV\x01\0\0\0".to_vec(), "VMDK"),
        ("cut.gz", packed, "cut.gz"),
    ] {
        let refused = add(&scene, &written(folder.path(), name, &bytes), "os-images/disk:1");
        let err = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{name}: {err}");
        assert!(err.contains(word) && err.contains("nothing was added"), "{name}: {err}");
    }
    let none = scene.admin.get("/v2/os-images/disk/manifests/1").await;
    assert_eq!(none.status, 404);
    let uploads = scene.admin.get("/api/v1/registry/uploads").await.expect(200);
    assert_eq!(uploads["uploads"], json!([]), "a push that failed leaves no session");
    let with_host =
        add(&scene, &written(folder.path(), "disk.raw", &disk), "c.internal:8080/os-images/disk:1");
    assert_eq!(with_host.status.code(), Some(2));
    scene.end().await;
}
