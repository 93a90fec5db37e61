//! One repository as an operator sees it: its tags with sizes and platforms, and what holds its content.
//!
//! ```text
//!   a page of tags ──> manifest of each ──┬─ image: the sizes in it; its platform from the configuration
//!   (records only)     (from memory)      └─ index: its platforms; the sizes of at most 16 images below it
//! ```
//!
//! Invariant: the work is bounded by the page: no blob is read except small configurations, and nothing is listed that is not
//! below a tag of the page.

use std::collections::BTreeSet;
use std::time::SystemTime;

use registry::{Digest, Error, Manifest, Pin, Reference, Registry, RepositoryName, TagEntry};
use serde_json::Value;

use super::times::rfc3339;
use api::{HeldView, ImageTagView, RepositoryDetailView};

/// The maximum of images of an index whose sizes are read.
const MAX_CHILDREN: usize = 16;
/// The maximum of platforms of a tag.
const MAX_PLATFORMS: usize = 16;
/// The longest configuration that is read for its platform.
const MAX_CONFIG: u64 = 256 << 10;
/// The maximum of pins that are named.
const MAX_HELD: usize = 100;
/// The prefix of the owner of a pin that is a job.
const JOB: &str = "job ";
/// The longest text of a manifest that is shown.
const MAX_TEXT: usize = 100;

/// A repository with up to `limit` tags after `after`.
pub(super) async fn repository(
    registry: &Registry,
    name: &RepositoryName,
    after: Option<String>,
    limit: usize,
) -> Result<RepositoryDetailView, Error> {
    let (entries, more) = registry.tag_entries(name, after, limit).await?;
    let pins: Vec<Pin> = registry.pins().into_iter().filter(|pin| pin.repository == *name).collect();
    let next = entries.last().filter(|_| more).map(|entry| entry.tag.to_string());
    let mut tags = Vec::with_capacity(entries.len());
    for entry in entries {
        tags.push(tag(registry, name, entry, &pins).await?);
    }
    let held = pins.iter().take(MAX_HELD).map(|pin| {
        let owner = pin.owner.to_string();
        HeldView {
            digest: pin.digest.to_string(),
            job_id: owner.strip_prefix(JOB).map(str::to_owned),
            owner,
            since: rfc3339(pin.since),
        }
    });
    Ok(RepositoryDetailView {
        name: name.to_string(),
        bytes: registry.size_of(name).0,
        tags,
        next,
        held: held.collect(),
        more_held: pins.len().saturating_sub(MAX_HELD),
    })
}

async fn tag(
    registry: &Registry,
    name: &RepositoryName,
    entry: TagEntry,
    pins: &[Pin],
) -> Result<ImageTagView, Error> {
    let held = pins.iter().filter(|pin| pin.digest == entry.digest).map(|pin| pin.owner.to_string());
    let mut view = ImageTagView {
        tag: entry.tag.to_string(),
        digest: entry.digest.to_string(),
        kind: "unknown".to_owned(),
        bytes: None,
        platforms: Vec::new(),
        pushed_at: entry.pushed.filter(|at| *at > SystemTime::UNIX_EPOCH).and_then(rfc3339),
        immutable: entry.immutable,
        held_by: held.collect(),
        problem: None,
    };
    let manifest = match registry.resolve(name, &Reference::Digest(entry.digest)).await {
        Ok(manifest) => manifest,
        Err(Error::ManifestUnknown) => {
            view.problem = Some("the manifest is gone; push the tag again".to_owned());
            return Ok(view);
        }
        Err(Error::Corrupted(_)) => {
            view.problem = Some("the manifest is corrupted; push the tag again".to_owned());
            return Ok(view);
        }
        Err(other) => return Err(other),
    };
    let Some(document) = parsed(&manifest) else { return Ok(view) };
    match document["manifests"].as_array() {
        Some(children) => {
            view.kind = artifact(&document).unwrap_or_else(|| "index".to_owned());
            view.platforms = platforms(children.iter().filter_map(|child| platform(&child["platform"])));
            view.bytes = below(registry, name, children).await?.map(|sum| sum + manifest.bytes.len() as u64);
        }
        None => {
            view.kind = artifact(&document).unwrap_or_else(|| "image".to_owned());
            view.bytes = Some(own(&document) + manifest.bytes.len() as u64);
            view.platforms = platforms(configured(registry, &document["config"]).await.into_iter());
        }
    }
    Ok(view)
}

fn parsed(manifest: &Manifest) -> Option<Value> {
    serde_json::from_slice(&manifest.bytes).ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.chars().take(MAX_TEXT).collect())
}

/// The type of an artifact; `None` for an image that runs.
fn artifact(document: &Value) -> Option<String> {
    let config = text(&document["config"]["mediaType"]).filter(|kind| {
        !kind.contains("image.config")
            && !kind.contains("container.image")
            && !kind.ends_with("empty.v1+json")
    });
    text(&document["artifactType"]).filter(|kind| !kind.is_empty()).or(config)
}

/// The sizes that an image names: its configuration and its layers.
fn own(document: &Value) -> u64 {
    let layers = document["layers"].as_array().into_iter().flatten();
    let sizes = std::iter::once(&document["config"]).chain(layers).filter_map(|part| part["size"].as_u64());
    sizes.fold(0, u64::saturating_add)
}

/// The sizes of the images of an index; `None` when one is not here, or when there are too many to read.
async fn below(registry: &Registry, name: &RepositoryName, children: &[Value]) -> Result<Option<u64>, Error> {
    if children.len() > MAX_CHILDREN {
        return Ok(None);
    }
    let mut sum = 0_u64;
    for child in children {
        let Some(digest) = child["digest"].as_str().and_then(|digest| digest.parse::<Digest>().ok()) else {
            return Ok(None);
        };
        let manifest = match registry.resolve(name, &Reference::Digest(digest)).await {
            Ok(manifest) => manifest,
            Err(Error::ManifestUnknown | Error::Corrupted(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        let Some(document) = parsed(&manifest) else { return Ok(None) };
        sum = sum.saturating_add(own(&document)).saturating_add(manifest.bytes.len() as u64);
    }
    Ok(Some(sum))
}

/// A platform as `linux/arm64/v8`.
fn platform(platform: &Value) -> Option<String> {
    let part = |key: &str| text(&platform[key]).filter(|part| !part.is_empty() && part != "unknown");
    let parts = [Some(part("os")?), Some(part("architecture")?), part("variant")];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join("/"))
}

fn platforms(all: impl Iterator<Item = String>) -> Vec<String> {
    all.collect::<BTreeSet<_>>().into_iter().take(MAX_PLATFORMS).collect()
}

/// The platform in the configuration of an image.
async fn configured(registry: &Registry, config: &Value) -> Option<String> {
    let digest: Digest = config["digest"].as_str()?.parse().ok()?;
    let blob = registry.blob(&digest).await.ok().filter(|blob| blob.length() <= MAX_CONFIG)?;
    let bytes = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(blob.length()).ok()?];
        blob.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    });
    platform(&serde_json::from_slice(&bytes.await.ok()??).ok()?)
}
