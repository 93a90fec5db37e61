use std::{
    io::{Read, Write},
    path::PathBuf,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    http::api_client,
    test_kit::{FakeController, REPOSITORY},
};

/// One entry of a layer under test.
enum Item {
    File(&'static str, &'static str),
    Directory(&'static str),
    Symlink(&'static str, &'static str),
    HardLink(&'static str, &'static str),
}
use Item::{Directory, File, HardLink, Symlink};

fn layer_tar(items: &[Item]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for item in items {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        match item {
            File(path, text) => {
                header.set_size(text.len() as u64);
                // Written into the raw header, because the builder refuses hostile paths.
                header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
                header.set_cksum();
                tar.append(&header, text.as_bytes()).unwrap();
            }
            Directory(path) => {
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, path, std::io::empty()).unwrap();
            }
            Symlink(path, target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                tar.append_link(&mut header, path, target).unwrap();
            }
            HardLink(path, target) => {
                header.set_entry_type(tar::EntryType::Link);
                tar.append_link(&mut header, path, target).unwrap();
            }
        }
    }
    tar.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Layers {
    directory: tempfile::TempDir,
    layers: Vec<(Layer, PathBuf)>,
}

impl Layers {
    fn new(layers: &[&[Item]]) -> Self {
        let mut all = Self { directory: tempfile::tempdir().unwrap(), layers: Vec::new() };
        for items in layers {
            all.add(&layer_tar(items));
        }
        all
    }

    fn add(&mut self, tar: &[u8]) {
        let blob = gzip(tar);
        let file = self.directory.path().join(self.layers.len().to_string());
        std::fs::write(&file, &blob).unwrap();
        let (digest, diff_id) = (digest_of(&blob), Some(digest_of(tar)));
        self.layers.push((Layer { digest, size: blob.len() as u64, gzip: true, diff_id }, file));
    }

    fn unpack(&self, extra: &[ExtraFile]) -> Result<Vec<String>, UnpackError> {
        self.unpack_within(UnpackLimits { bytes: 1 << 20, paths: 100 }, extra, &CancellationToken::new())
    }

    /// `path=content`, `path/`, `path->target` or `path=>target`, sorted.
    fn unpack_within(
        &self,
        limits: UnpackLimits,
        extra: &[ExtraFile],
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, UnpackError> {
        let mut out = Vec::new();
        let unpacked = unpack(&self.layers, extra, limits, cancel, &mut out)?;
        let mut archive = tar::Archive::new(out.as_slice());
        let mut lines = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let target = entry.link_name().unwrap().map(|target| target.display().to_string());
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            lines.push(match (entry.header().entry_type(), target) {
                (tar::EntryType::Symlink, Some(target)) => format!("{path}->{target}"),
                (_, Some(target)) => format!("{path}=>{target}"),
                (tar::EntryType::Directory, None) => format!("{}/", path.trim_end_matches('/')),
                (_, None) => format!("{path}={text}"),
            });
        }
        assert_eq!(unpacked.entries, lines.len() as u64);
        lines.sort();
        Ok(lines)
    }
}

fn refusal(result: Result<Vec<String>, UnpackError>) -> String {
    let error = result.unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    format!("{error}: {source}")
}

#[test]
fn higher_layers_replace_whiteouts_remove_and_opaque_directories_empty() {
    let layers = Layers::new(&[
        &[
            Directory("./etc"),
            File("./etc/a", "1"),
            File("etc/b", "1"),
            Directory("opt"),
            File("opt/x/y", "1"),
            Symlink("s", "etc/a"),
        ],
        &[
            File("etc/.wh.b", ""),
            File("etc/a", "2"),
            File("opt/.wh..wh..opq", ""),
            File("opt/z", "2"),
            HardLink("h", "etc/a"),
        ],
    ]);
    assert_eq!(layers.unpack(&[]).unwrap(), ["etc/", "etc/a=2", "h=>etc/a", "opt/", "opt/z=2", "s->etc/a"]);
}

#[test]
fn a_whiteout_removes_from_lower_layers_only_and_a_file_replaces_a_directory() {
    let layers = Layers::new(&[
        &[Directory("d"), File("d/old", "1"), File("e/old", "1")],
        &[File("d/new", "2"), File(".wh.d", ""), File("e", "2")],
    ]);
    assert_eq!(layers.unpack(&[]).unwrap(), ["d/new=2", "e=2"]);
}

#[test]
fn files_of_the_installer_replace_files_of_the_image() {
    let layers = Layers::new(&[&[File("seed/user-data", "image"), File("x", "1")]]);
    let extra = [ExtraFile { path: "seed/user-data".into(), bytes: b"job".to_vec() }];
    assert_eq!(layers.unpack(&extra).unwrap(), ["seed/user-data=job", "x=1"]);
}

#[test]
fn hostile_layers_are_refused_and_nothing_is_written() {
    assert!(
        refusal(Layers::new(&[&[File("../etc/passwd", "x")]]).unpack(&[])).contains("a path contains ..")
    );
    let dangling = Layers::new(&[&[File("a", "1"), HardLink("h", "a")], &[File("a", "2")]]);
    assert!(refusal(dangling.unpack(&[])).contains("was replaced by a higher layer"));

    let mut promised = Layers::new(&[&[File("a", "1")]]);
    promised.layers[0].0.diff_id = Some(digest_of(b"something else"));
    assert!(refusal(promised.unpack(&[])).contains("diff_id is sha256:"));

    let mut torn = Layers::new(&[&[File("a", "1")]]);
    let blob = std::fs::read(&torn.layers[0].1).unwrap();
    std::fs::write(&torn.layers[0].1, &blob[..blob.len() - 9]).unwrap();
    torn.layers[0].0.diff_id = None;
    assert!(torn.unpack(&[]).is_err());
}

#[test]
fn an_oversized_name_is_refused_before_it_is_read() {
    let mut layers = Layers::new(&[]);
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(200_000);
    header.set_cksum();
    tar.append(&header, std::io::repeat(b'a').take(200_000)).unwrap();
    layers.add(&tar.into_inner().unwrap());
    assert!(refusal(layers.unpack(&[])).contains("an extended header has 200000 bytes"));
}

#[test]
fn a_gzip_bomb_ends_at_the_limit_and_a_power_cut_ends_unpacking() {
    let mut bomb = Layers::new(&[]);
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(8 << 20);
    tar.append_data(&mut header, "zeros", std::io::repeat(0).take(8 << 20)).unwrap();
    bomb.add(&tar.into_inner().unwrap());
    assert!(bomb.layers[0].0.size < 100_000);
    assert!(refusal(bomb.unpack(&[])).contains("does not fit; make the partition larger"));

    let limits = UnpackLimits { bytes: 64 << 20, paths: 1 };
    let crowd = Layers::new(&[&[File("a", ""), File("b", "")]]);
    let open = CancellationToken::new();
    assert!(refusal(crowd.unpack_within(limits, &[], &open)).contains("more than 1 paths"));
    let cut = CancellationToken::new();
    cut.cancel();
    assert!(refusal(bomb.unpack_within(limits, &[], &cut)).contains("the power went off"));
}

fn client(fake: &FakeController) -> RegistryClient {
    let authorization = Authorization::Basic { username: "pull".into(), password: "pull-token".into() };
    RegistryClient::new(api_client(None).unwrap(), &fake.base, authorization).unwrap()
}

#[tokio::test]
async fn a_pushed_image_is_pulled_by_digest_and_a_second_push_uploads_nothing() {
    let fake = FakeController::start().await;
    let image = fake.push_rootfs().await;
    let client = client(&fake);
    let reference = ImageReference::parse(&format!("any.host/{REPOSITORY}:22.04")).unwrap();
    let pulled = client.resolve(&reference).await.unwrap();
    assert_eq!(pulled.digest, image.digest);
    assert_eq!(
        fake.requests(&format!("GET /v2/{REPOSITORY}/manifests/22.04")),
        0,
        "tags are resolved, never pulled"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = client.fetch_layer(&pulled, &pulled.layers[0], &directory.path().join("0")).await.unwrap();
    assert_eq!(std::fs::read(file).unwrap(), image.blobs[0].bytes);
    let again = client
        .push(REPOSITORY, "again", &image.blobs, image.manifest.clone(), &image.media_type)
        .await
        .unwrap();
    assert_eq!((again.uploaded, again.present), (0, 2));
}

#[tokio::test]
async fn damaged_manifests_configurations_and_layers_are_refused() {
    let fake = FakeController::start().await;
    let image = fake.push_rootfs().await;
    let client = client(&fake);
    let reference = ImageReference::parse(&format!("{REPOSITORY}:22.04")).unwrap();
    let pulled = client.resolve(&reference).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let layer_file = directory.path().join("0");
    let damage = |digest: &str, bytes: Bytes| {
        fake.shared.blobs.lock().unwrap().insert(digest.to_owned(), bytes).unwrap()
    };

    let honest = image.blobs[0].bytes.clone();
    let mut flipped = honest.to_vec();
    flipped[100] ^= 1;
    for (bytes, wanted) in [
        (Bytes::from(flipped), "expected sha256:"),
        (honest.slice(..honest.len() - 1), "bytes, received"),
        (Bytes::from([&honest[..], b"x"].concat()), "bytes, received"),
    ] {
        damage(&image.blobs[0].digest, bytes);
        let refused = client.fetch_layer(&pulled, &pulled.layers[0], &layer_file).await.unwrap_err();
        assert!(refused.to_string().contains(wanted) && !refused.is_transient(), "{refused}");
    }
    damage(&image.blobs[1].digest, Bytes::from_static(b"{}"));
    assert!(matches!(client.resolve(&reference).await, Err(RegistryError::Digest { .. })));
    // The registry still sends the old digest, for the tag and for the manifest.
    let scribble = |manifests: &mut std::collections::BTreeMap<String, (String, Bytes)>| {
        manifests.get_mut(&image.digest).unwrap().1 = Bytes::from_static(b"{\"schemaVersion\":2}");
    };
    scribble(&mut fake.shared.manifests.lock().unwrap());
    let by_digest = ImageReference::parse(&format!("{REPOSITORY}@{}", image.digest)).unwrap();
    assert!(matches!(client.resolve(&by_digest).await, Err(RegistryError::Digest { .. })));
}

#[tokio::test]
async fn an_index_is_resolved_to_its_amd64_image() {
    let fake = FakeController::start().await;
    let image = fake.push_rootfs().await;
    let entry = |architecture: &str, digest: &str| {
        json!({ "mediaType": image.media_type, "digest": digest, "size": image.manifest.len(),
            "platform": { "os": "linux", "architecture": architecture } })
    };
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
        entry("arm64", &format!("sha256:{}", "b".repeat(64))), entry("amd64", &image.digest) ] });
    let client = client(&fake);
    let index_type = "application/vnd.oci.image.index.v1+json";
    client.push(REPOSITORY, "multi", &[], Bytes::from(index.to_string()), index_type).await.unwrap();
    let reference = ImageReference::parse(&format!("{REPOSITORY}:multi")).unwrap();
    assert_eq!(client.resolve(&reference).await.unwrap().digest, image.digest);
}

#[tokio::test]
async fn the_error_of_a_refusal_quotes_the_registry_and_no_credentials() {
    let fake = FakeController::start().await;
    let authorization = Authorization::Basic { username: "pull".into(), password: "canary-password".into() };
    let client = RegistryClient::new(api_client(None).unwrap(), &fake.base, authorization).unwrap();
    let reference = ImageReference::parse(&format!("{REPOSITORY}@sha256:{}", "a".repeat(64))).unwrap();
    let refused = client.resolve(&reference).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("the registry responded with 401: UNAUTHORIZED authentication required"),
        "{refused}"
    );
    assert!(!format!("{refused:?} {client:?}").contains("canary"));
    assert!(RegistryClient::new(api_client(None).unwrap(), "ftp://x/", Authorization::Anonymous).is_err());
}
