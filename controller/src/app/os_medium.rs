//! OS images on media: looks them up in the registry of the controller, and opens their contents.
//!
//! ```text
//! name --resolve--> manifest | index --linux/amd64--> manifest --> configuration: platform? --> every blob: stored, its length?
//! digest --> file of the registry, read by range while a BMC reads the medium
//! ```
//!
//! Invariants: documents have at most 4 MiB; nothing of a layer is read here. A blob that is open stays readable after a
//! collection, and the pin of the job keeps it from one.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;

use bmc::Unavailable;
use media::{
    BeaconListener, BeaconNews, ImageDigest, OpenBlob, OsBlob, OsBlobs, OsBlobsUnavailable, OsImage,
    OwnImages, OwnName,
};
use model::error_chain;
use provision::MediumImage;
use registry::{Digest, Error, Manifest, Reference, Registry, RepositoryName};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use engine::Engine;
use model::RunId;

/// The platform of the maintenance OS.
const PLATFORM: (&str, &str) = ("linux", "amd64");
/// The largest configuration that is read.
const CONFIG_MAX: u64 = 4 << 20;
const IMAGE_CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

#[derive(Deserialize)]
struct Document {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

/// Why a lookup has no image.
enum Stop {
    Refused(String),
    Failed(Unavailable),
}

/// Looks up the image that a medium would hold.
pub(super) async fn find(
    registry: &Registry,
    repository: &str,
    reference: &str,
) -> Result<MediumImage, Unavailable> {
    let (Ok(name), Ok(wanted)) = (repository.parse::<RepositoryName>(), reference.parse::<Reference>())
    else {
        return Ok(MediumImage::Missing);
    };
    let top = match registry.resolve(&name, &wanted).await {
        Ok(manifest) => manifest,
        Err(Error::ManifestUnknown | Error::RepositoryUnknown) => return Ok(MediumImage::Missing),
        Err(error) => return Err(Unavailable(error_chain(&error).to_string())),
    };
    let digest = top.digest.to_string();
    match image_of(registry, &name, top).await {
        Ok(image) => Ok(MediumImage::Found { digest, image }),
        Err(Stop::Refused(why)) => Ok(MediumImage::Refused(format!("{repository}:{reference}: {why}"))),
        Err(Stop::Failed(why)) => Err(why),
    }
}

async fn image_of(registry: &Registry, name: &RepositoryName, top: Manifest) -> Result<OsImage, Stop> {
    let mut manifest = top;
    let mut document = parse(&manifest)?;
    if let Some(manifests) = &document.manifests {
        let digest = choose(manifests)?;
        manifest = match registry.resolve(name, &Reference::Digest(digest.clone())).await {
            Ok(manifest) => manifest,
            Err(Error::ManifestUnknown | Error::RepositoryUnknown) => {
                return Err(Stop::Refused(format!(
                    "its index names the manifest {digest}, which is not in the registry; push the whole image"
                )));
            }
            Err(error) => return Err(failed(&error)),
        };
        document = parse(&manifest)?;
    }
    let layers = document.layers.unwrap_or_default();
    if layers.is_empty() {
        return Err(Stop::Refused("it has no layers, so there is nothing to install".to_owned()));
    }
    if let Some(config) =
        document.config.as_ref().filter(|config| IMAGE_CONFIGS.contains(&&*config.media_type))
    {
        check_platform(registry, config).await?;
    }
    let mut blobs = Vec::with_capacity(layers.len() + 1);
    for descriptor in document.config.iter().chain(&layers) {
        blobs.push(blob(registry, descriptor).await?);
    }
    let digest = sha256(&manifest.digest.to_string())?;
    let own = OsBlob { digest, len: manifest.bytes.len() as u64 };
    OsImage::new(&manifest.media_type, own, blobs).map_err(|why| Stop::Refused(why.to_string()))
}

fn failed(error: &Error) -> Stop {
    Stop::Failed(Unavailable(error_chain(error).to_string()))
}

fn parse(manifest: &Manifest) -> Result<Document, Stop> {
    let parsed = serde_json::from_slice(&manifest.bytes);
    parsed.map_err(|why| Stop::Refused(format!("its manifest {} cannot be read: {why}", manifest.digest)))
}

/// The manifest of an index for the platform of the maintenance OS, as the agent chooses it.
fn choose(manifests: &[Descriptor]) -> Result<Digest, Stop> {
    let (os, architecture) = PLATFORM;
    let fits = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|platform| platform.os == os && platform.architecture == architecture)
    };
    let plain = || manifests.iter().find(|descriptor| descriptor.platform.is_none());
    let chosen = manifests.iter().find(fits).or_else(plain).ok_or_else(|| {
        let named = manifests.iter().take(8).filter_map(|descriptor| descriptor.platform.as_ref());
        let named: Vec<String> =
            named.map(|platform| shown(&format!("{}/{}", platform.os, platform.architecture))).collect();
        Stop::Refused(format!(
            "its index has no image for {os}/{architecture}, only for {}",
            named.join(", ")
        ))
    })?;
    chosen.digest.parse().map_err(|_| Stop::Refused("a digest of its index is malformed".to_owned()))
}

/// Refuses an image whose configuration names another platform.
async fn check_platform(registry: &Registry, config: &Descriptor) -> Result<(), Stop> {
    let unreadable = |why: String| Stop::Refused(format!("its configuration cannot be read: {why}"));
    if config.size > CONFIG_MAX {
        return Err(unreadable(format!("it has {} bytes", config.size)));
    }
    let digest: Digest =
        config.digest.parse().map_err(|_| unreadable("its digest is malformed".to_owned()))?;
    let file = open(registry, &digest).await?;
    if file.length() > CONFIG_MAX {
        return Err(unreadable(format!("it has {} bytes", file.length())));
    }
    let read = media::offload(move || {
        let mut bytes = vec![0; usize::try_from(file.length()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    });
    let bytes = match read.await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(why)) => {
            return Err(Stop::Failed(Unavailable(format!("reading {digest} in the registry: {why}"))));
        }
        Err(why) => return Err(Stop::Failed(Unavailable(why.to_string()))),
    };
    let platform: Platform = serde_json::from_slice(&bytes).map_err(|why| unreadable(why.to_string()))?;
    if (platform.os.as_str(), platform.architecture.as_str()) == PLATFORM {
        return Ok(());
    }
    let found = shown(&format!("{}/{}", platform.os, platform.architecture));
    let (os, architecture) = PLATFORM;
    Err(Stop::Refused(format!(
        "it is for {found}, and the maintenance OS installs images for {os}/{architecture}"
    )))
}

/// A blob of a manifest, if it is stored with the length that the manifest declares.
async fn blob(registry: &Registry, descriptor: &Descriptor) -> Result<OsBlob, Stop> {
    let digest = sha256(&descriptor.digest)?;
    let stored: Digest = descriptor
        .digest
        .parse()
        .map_err(|_| Stop::Refused("a digest of its manifest is malformed".to_owned()))?;
    let file = open(registry, &stored).await?;
    if file.length() != descriptor.size {
        return Err(Stop::Refused(format!(
            "its blob {stored} has {} bytes and the manifest declares {}; push the image again",
            file.length(),
            descriptor.size
        )));
    }
    Ok(OsBlob { digest, len: descriptor.size })
}

async fn open(registry: &Registry, digest: &Digest) -> Result<registry::BlobFile, Stop> {
    match registry.blob(digest).await {
        Ok(file) => Ok(file),
        Err(Error::BlobUnknown) => {
            Err(Stop::Refused(format!("its blob {digest} is not in the registry; push the whole image")))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn sha256(digest: &str) -> Result<ImageDigest, Stop> {
    let parsed = digest.starts_with("sha256:").then(|| ImageDigest::parse(digest)).flatten();
    parsed.ok_or_else(|| Stop::Refused(format!("its digest {} is not a sha256", shown(digest))))
}

/// A text of a document as an error shows it.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// The contents of OS images: the blobs of the registry.
pub(super) struct RegistryBlobs(pub(super) Registry);

#[async_trait]
impl OsBlobs for RegistryBlobs {
    async fn open(&self, digest: &ImageDigest) -> Result<OpenBlob, OsBlobsUnavailable> {
        let malformed = |_| OsBlobsUnavailable { reason: format!("{digest} is no digest"), gone: true };
        let wanted: Digest = digest.to_string().parse().map_err(malformed)?;
        match self.0.blob(&wanted).await {
            Ok(blob) => Ok(OpenBlob { file: Arc::clone(blob.file()), len: blob.length() }),
            Err(error) => Err(OsBlobsUnavailable {
                reason: format!("blob {digest}: {}", error_chain(&error)),
                gone: matches!(error, Error::BlobUnknown),
            }),
        }
    }
}

/// Images for BMCs: artifacts with one blob, such as `shoal maintenance push` makes.
pub(super) struct RegistryImages(pub(super) Registry);

#[async_trait]
impl OwnImages for RegistryImages {
    async fn open(&self, name: &OwnName) -> Result<(ImageDigest, OpenBlob), String> {
        let (Ok(repository), Ok(reference)) =
            (name.repository.parse::<RepositoryName>(), name.reference.parse::<Reference>())
        else {
            return Err("the repository, the tag or the digest has characters that none has".to_owned());
        };
        let manifest = match self.0.resolve(&repository, &reference).await {
            Ok(manifest) => manifest,
            Err(Error::ManifestUnknown | Error::RepositoryUnknown) => {
                return Err(
                    "the registry does not have it; `shoal maintenance push IMAGE` puts it there".to_owned()
                );
            }
            Err(error) => return Err(error_chain(&error).to_string()),
        };
        let found = one_blob(&self.0, &manifest).await;
        found.map_err(|stop| match stop {
            Stop::Refused(why) | Stop::Failed(Unavailable(why)) => why,
        })
    }
}

async fn one_blob(registry: &Registry, manifest: &Manifest) -> Result<(ImageDigest, OpenBlob), Stop> {
    let layers = parse(manifest)?.layers.unwrap_or_default();
    let [layer] = layers.as_slice() else {
        let count = layers.len();
        return Err(Stop::Refused(format!(
            "a boot image is an artifact with one layer; this one has {count}"
        )));
    };
    let OsBlob { digest, .. } = blob(registry, layer).await?;
    let wanted: Digest =
        layer.digest.parse().map_err(|_| Stop::Refused("its layer has no digest".to_owned()))?;
    let file = open(registry, &wanted).await?;
    Ok((digest, OpenBlob { file: Arc::clone(file.file()), len: file.length() }))
}

/// The messages that wait for their delivery; the machine repeats what gets lost.
const QUEUE: usize = 1024;
/// The attempts to store a message, with pauses of 1, 2, 4 and 8 seconds between them.
const ATTEMPTS: u32 = 5;

/// A message of a medium, with the span of its grant: the ids of the job for lines of the log.
pub(super) struct Heard {
    run: RunId,
    news: BeaconNews,
    span: Span,
}

/// Takes what beacons say from the threads of media requests.
pub(super) struct Beacons(mpsc::Sender<Heard>);

/// Returns the listener of beacons, and the other end of its queue.
pub(super) fn beacons() -> (Beacons, mpsc::Receiver<Heard>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Beacons(sender), receiver)
}

impl BeaconListener for Beacons {
    fn heard(&self, run: RunId, news: BeaconNews) {
        if self.0.try_send(Heard { run, news, span: Span::current() }).is_err() {
            tracing::warn!("a message of a medium was dropped: too many wait; the machine repeats it");
        }
    }
}

/// Delivers what beacons say to their jobs until `stop`.
pub(super) async fn deliver(engine: Engine, mut queue: mpsc::Receiver<Heard>, stop: CancellationToken) {
    while let Some(Some(Heard { run, news, span })) = stop.run_until_cancelled(queue.recv()).await {
        for attempt in 0..ATTEMPTS {
            let Err(error) = provision::deliver_news(&engine, run, news).await else { break };
            let error = error_chain(&error).to_string();
            span.in_scope(|| tracing::warn!(error, attempt, "a message of a medium was not stored"));
            let pause = std::time::Duration::from_secs(1 << attempt.min(3));
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }
}
