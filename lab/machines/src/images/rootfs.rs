//! A small root file system as an OCI image: one tar+gzip layer, a configuration, a manifest.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};
use oci_spec::{
    OciSpecError,
    image::{
        Arch, ConfigBuilder, Descriptor, Digest, ImageConfigurationBuilder, ImageManifestBuilder, MediaType,
        Os, RootFsBuilder, SCHEMA_VERSION,
    },
};

use serde_json::json;

use super::ImageError;
use crate::oci::{Blob, digest_of};

/// The content of the root file system.
#[derive(Clone, Debug)]
pub struct RootfsSpec {
    /// `PRETTY_NAME` in the os-release file.
    pub pretty_name: String,
    /// `VERSION_ID` in the os-release file.
    pub version_id: String,
    /// Size in bytes of an incompressible file, which determines the size of the image.
    pub payload_bytes: u64,
}

impl Default for RootfsSpec {
    fn default() -> Self {
        Self {
            pretty_name: "Shoal Demo Linux 22.04".to_owned(),
            version_id: "22.04".to_owned(),
            payload_bytes: 256 * 1024,
        }
    }
}

/// An OS image that is ready to be pushed.
#[derive(Clone, Debug)]
pub struct RootfsImage {
    /// The layer and the configuration.
    pub blobs: Vec<Blob>,
    /// The bytes of the manifest.
    pub manifest: Bytes,
    /// Media type of the manifest.
    pub media_type: String,
    /// Digest of the manifest.
    pub digest: String,
}

impl RootfsImage {
    /// Writes the image into `folder` as an OCI image layout (image-spec, image-layout.md) with a tag. `index.json` is
    /// written last: a program that waits for it finds all other files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write_layout(&self, folder: &Path, tag: &str) -> io::Result<()> {
        let blobs = folder.join("blobs").join("sha256");
        fs::create_dir_all(&blobs)?;
        let name = |digest: &str| blobs.join(digest.trim_start_matches("sha256:"));
        for blob in &self.blobs {
            fs::write(name(&blob.digest), &blob.bytes)?;
        }
        fs::write(name(&self.digest), &self.manifest)?;
        fs::write(folder.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": self.media_type, "digest": self.digest, "size": self.manifest.len(),
                "annotations": { "org.opencontainers.image.ref.name": tag },
            }],
        });
        let partial = folder.join(".index.json.partial");
        fs::write(&partial, index.to_string())?;
        fs::rename(partial, folder.join("index.json"))
    }
}

/// Builds the OS image.
///
/// # Errors
/// Returns an error if a document cannot be built.
pub fn rootfs_image(spec: &RootfsSpec) -> Result<RootfsImage, ImageError> {
    let tar = layer_tar(spec).map_err(ImageError::Layer)?;
    let diff_id = digest_of(&tar);
    let layer = Blob::new(gzip(&tar).map_err(ImageError::Layer)?);
    let document = |document| move |source| ImageError::Document { document, source };
    let config = ImageConfigurationBuilder::default()
        .architecture(Arch::Amd64)
        .os(Os::Linux)
        .config(ConfigBuilder::default().build().map_err(ImageError::Build)?)
        .rootfs(
            RootFsBuilder::default()
                .typ("layers")
                .diff_ids(vec![diff_id])
                .build()
                .map_err(ImageError::Build)?,
        )
        .build()
        .map_err(ImageError::Build)?;
    let config = Blob::new(config.to_string().map_err(document("configuration"))?);
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(descriptor(MediaType::ImageConfig, &config)?)
        .layers(vec![descriptor(MediaType::ImageLayerGzip, &layer)?])
        .build()
        .map_err(ImageError::Build)?;
    let manifest = Bytes::from(manifest.to_string().map_err(document("manifest"))?);
    Ok(RootfsImage {
        digest: digest_of(&manifest),
        media_type: MediaType::ImageManifest.to_string(),
        blobs: vec![layer, config],
        manifest,
    })
}

/// The layer before compression. Every header field is fixed; the date is the Unix epoch.
fn layer_tar(spec: &RootfsSpec) -> io::Result<Vec<u8>> {
    let os_release = format!(
        "NAME=\"Shoal Demo Linux\"\nID=shoal-demo\nVERSION_ID=\"{}\"\nPRETTY_NAME=\"{}\"\n",
        spec.version_id, spec.pretty_name
    );
    let mut tar = tar::Builder::new(Vec::new());
    for directory in ["boot", "etc", "usr", "usr/bin", "usr/lib", "var", "var/lib"] {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        tar.append_data(&mut header, format!("{directory}/"), io::empty())?;
    }
    let mut file = |path: &str, mode: u32, bytes: &[u8]| {
        tar.append_data(&mut header(tar::EntryType::Regular, mode, bytes.len() as u64), path, bytes)
    };
    file("boot/vmlinuz", 0o644, &noise(16 * 1024, 1))?;
    file("boot/initrd.img", 0o644, &noise(32 * 1024, 2))?;
    file("etc/hostname", 0o644, b"shoal-demo\n")?;
    file("usr/bin/hello", 0o755, b"#!/bin/sh\necho hello from an installed machine\n")?;
    file("usr/lib/os-release", 0o644, os_release.as_bytes())?;
    file("etc/os-release", 0o644, os_release.as_bytes())?;
    file("var/lib/payload", 0o644, &noise(spec.payload_bytes, 3))?;
    let mut link = header(tar::EntryType::Symlink, 0o777, 0);
    tar.append_link(&mut link, "usr/bin/hi", "hello")?;
    tar.into_inner()
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn gzip(tar: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    encoder.write_all(tar)?;
    encoder.finish()
}

/// Reproducible pseudo-random bytes (xorshift64, Marsaglia 2003).
fn noise(length: u64, seed: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ seed;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    bytes
}

fn descriptor(media_type: MediaType, blob: &Blob) -> Result<Descriptor, ImageError> {
    let digest: Digest = blob.digest.parse().map_err(|source: OciSpecError| ImageError::Build(source))?;
    Ok(Descriptor::new(media_type, blob.bytes.len() as u64, digest))
}
