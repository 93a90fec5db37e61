//! The medium of a task with `delivery: media`: the OS image is read from it, and the result is said by reads of it.
//!
//! ```text
//! media in the drives --job.json of this job?--> os-image.000 ... = volume --> index.json, blobs/sha256/..., beacon
//! ```
//!
//! The module shares the code book with the agent, because the sectors are a contract, and nothing else.

use std::{fs::File, io::Write as _, path::Path, sync::Arc, time::Duration};

use beacon::{CodeBook, Message};
use iso9660::{Extent, Image, ReadAt, Window};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{documents::JobDocument, media::chain};
use crate::{
    http_disc::HttpDisc,
    oci::{Layer, PulledImage},
};

const MAX_PARTS: usize = 64;
const MAX_DOCUMENT: u64 = 4 << 20;
const COPY: usize = 1 << 20;

/// The medium of a task.
pub(super) struct TaskMedium {
    disc: Arc<HttpDisc>,
    volume: Image<Window<Arc<HttpDisc>>>,
    /// The offset of the beacon on the disc.
    beacon: u64,
    book: CodeBook,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct Configuration {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl TaskMedium {
    /// Finds the volume on one of the discs: the one whose `job.json`, at the root or in `task`, is that of the job. Blocking.
    pub(super) fn find(discs: &[Arc<HttpDisc>], job: &JobDocument) -> Result<Self, String> {
        for place in ["", "task/"] {
            for disc in discs {
                let Ok(image) = Image::open(Arc::clone(disc)) else { continue };
                let Ok(bytes) = image.read(&format!("{place}job.json"), MAX_DOCUMENT) else { continue };
                let found = serde_json::from_slice::<JobDocument>(&bytes);
                if found.is_ok_and(|found| found.job_id == job.job_id) {
                    return Self::open(disc, &image, place, job);
                }
            }
        }
        Err("no medium in the drives holds the job any more".to_owned())
    }

    fn open(
        disc: &Arc<HttpDisc>,
        image: &Image<Arc<HttpDisc>>,
        place: &str,
        job: &JobDocument,
    ) -> Result<Self, String> {
        let mut parts: Vec<Extent> = Vec::new();
        for number in 0..MAX_PARTS {
            match image.extents(&format!("{place}os-image.{number:03}")) {
                Ok(extents) => parts.extend(extents),
                Err(_) => break,
            }
        }
        let base = parts.first().ok_or("the medium has no OS image")?.offset;
        if parts.windows(2).any(|pair| pair[0].offset + pair[0].len != pair[1].offset) {
            return Err("the parts of the OS image are not adjacent".to_owned());
        }
        let len = parts.iter().map(|part| part.len).sum();
        let window = Window::new(Arc::clone(disc), base, len).map_err(|source| source.to_string())?;
        let volume = Image::open(window).map_err(|source| chain(&source))?;
        let extents = volume.extents(beacon::FILE_NAME).map_err(|source| chain(&source))?;
        let [Extent { offset, len: beacon::FILE_LEN }] = extents[..] else {
            return Err("the beacon has another length".to_owned());
        };
        let book = CodeBook::new(job.webhook_token.as_bytes(), &job.job_id);
        Ok(Self { disc: Arc::clone(disc), volume, beacon: base + offset, book })
    }

    /// Reads and verifies the documents of the image. Blocking.
    pub(super) fn resolve(&self) -> Result<PulledImage, String> {
        let index = self.volume.read("index.json", MAX_DOCUMENT).map_err(|source| chain(&source))?;
        let index: Index = serde_json::from_slice(&index).map_err(|source| source.to_string())?;
        let [manifest] = &index.manifests[..] else {
            return Err(format!("index.json names {} images", index.manifests.len()));
        };
        let bytes = self.document(&manifest.digest)?;
        let parsed: Manifest = serde_json::from_slice(&bytes).map_err(|source| source.to_string())?;
        let config = self.document(&parsed.config.digest)?;
        let config: Configuration = serde_json::from_slice(&config).map_err(|source| source.to_string())?;
        let mut diff_ids = config.rootfs.diff_ids.into_iter();
        let layers = parsed.layers.into_iter().map(|layer| Layer {
            digest: layer.digest,
            size: layer.size,
            gzip: layer.media_type.ends_with("gzip"),
            diff_id: diff_ids.next(),
        });
        Ok(PulledImage {
            repository: "the medium".to_owned(),
            digest: manifest.digest.clone(),
            layers: layers.collect(),
        })
    }

    fn document(&self, digest: &str) -> Result<Vec<u8>, String> {
        let bytes = self.volume.read(&path(digest), MAX_DOCUMENT).map_err(|source| chain(&source))?;
        match format!("sha256:{}", hex::encode(Sha256::digest(&bytes))) {
            actual if actual == digest => Ok(bytes),
            actual => Err(format!("{digest} on the medium hashes to {actual}")),
        }
    }

    /// Copies a layer into a file and verifies its digest. Blocking.
    pub(super) fn fetch_layer(&self, layer: &Layer, file: &Path) -> Result<(), String> {
        let reader = self.volume.open_file(&path(&layer.digest)).map_err(|source| chain(&source))?;
        if reader.len() != layer.size {
            return Err(format!("{} has {} bytes on the medium", layer.digest, reader.len()));
        }
        let mut out = File::create(file).map_err(|source| source.to_string())?;
        let (mut sha256, mut buffer, mut at) = (Sha256::new(), vec![0; COPY], 0);
        while at < layer.size {
            let length = usize::try_from(layer.size - at).unwrap_or(COPY).min(COPY);
            reader.read_exact_at(at, &mut buffer[..length]).map_err(|source| chain(&source))?;
            sha256.update(&buffer[..length]);
            out.write_all(&buffer[..length]).map_err(|source| source.to_string())?;
            at += length as u64;
        }
        match format!("sha256:{}", hex::encode(sha256.finalize())) {
            actual if actual == layer.digest => Ok(()),
            actual => Err(format!("{} on the medium hashes to {actual}", layer.digest)),
        }
    }

    /// Says a message by reads of the disc; failed reads are ignored, as on a machine.
    pub(super) async fn say(&self, message: Message, pause: Duration) {
        for symbol in message.symbols() {
            for sector in self.book.reads(symbol).into_iter().flatten() {
                let _ = self.disc.touch(self.beacon + sector).await;
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn path(digest: &str) -> String {
    format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap_or(digest))
}
