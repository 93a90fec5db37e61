//! A script of every operation of the store, once or twice.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::json;

use super::super::{GcOptions, PinOwner, Store};
use super::expected::{Expected, PolicySubject};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::parse_manifest;
use crate::name::{Reference, RepositoryName, Tag};

pub(crate) const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Runs every operation; each runs whatever the result of the previous one.
pub(super) fn run_script(store: &Arc<Store>, expected: &mut Expected) {
    let [one, two] = ["team/one", "two"].map(|name| name.parse::<RepositoryName>().unwrap());
    let [v1, v2, all] = ["v1", "v2", "all"].map(|tag| tag.parse::<Tag>().unwrap());
    let [config, layer, unused, long] =
        ["{}", "a layer", "unreferenced", "pushed in pieces"].map(|text| text.as_bytes());

    for (name, content) in [(&one, config), (&one, layer), (&one, unused), (&two, config)] {
        let digest = Digest::of(Algorithm::Sha256, content);
        let done = push(store, name, &digest, &[content]);
        expected.after(&done, vec![(PolicySubject::Blob(name.clone(), digest.clone()), Some(digest))]);
    }
    let by_sha512 = Digest::of(Algorithm::Sha512, long);
    let done = push(store, &two, &by_sha512, &[&long[..3], &long[3..9], &long[9..]]);
    expected
        .after(&done, vec![(PolicySubject::Blob(two.clone(), by_sha512.clone()), Some(by_sha512.clone()))]);
    let wrong = Digest::of(Algorithm::Sha256, b"something else");
    assert!(push(store, &two, &wrong, &[layer]).is_err(), "the content does not have the expected digest");

    let layer_digest = Digest::of(Algorithm::Sha256, layer);
    let mounted = store.mount(&one, &two, &layer_digest);
    let done = mounted.and_then(|there| if there { Ok(()) } else { Err(Error::BlobUnknown) });
    let blob = PolicySubject::Blob(two.clone(), layer_digest.clone());
    expected.after(&done, vec![(blob, Some(layer_digest.clone()))]);

    let first = image(config, &[layer], "first");
    let signature = about(b"not here yet", &image(config, &[], "signature"));
    let note = about(&first, &image(config, &[], "note"));
    let second = image(config, &[layer], "second");
    let index = index(&[&first]);
    for (name, tags, document, kind) in [
        (&one, vec![v1.clone()], &first, IMAGE),
        (&one, vec![v2.clone(), v1.clone()], &second, IMAGE),
        (&one, vec!["signature".parse().unwrap()], &signature, IMAGE),
        (&one, vec![], &note, IMAGE),
        (&two, vec![], &first, IMAGE),
        (&two, vec![all.clone()], &index, INDEX),
        (&two, vec![v2.clone()], &second, IMAGE),
    ] {
        let digest = Digest::of(Algorithm::Sha256, document);
        let done = put(store, name, &tags, document, kind);
        let tags = tags.into_iter().map(|tag| (PolicySubject::Tag(name.clone(), tag), Some(digest.clone())));
        let manifest = (PolicySubject::Manifest(name.clone(), digest.clone()), Some(digest.clone()));
        expected.after(&done, tags.chain([manifest]).collect());
    }

    import_one(store, expected);
    expected.after(&store.flush_layouts(), vec![]);
    let owner: PinOwner = "job 1".parse().unwrap();
    let index_digest = Digest::of(Algorithm::Sha256, &index);
    let done = store.pin(&two, &index_digest, &owner, SystemTime::now());
    let pin = PolicySubject::Pin(two.clone(), index_digest.clone(), owner.to_string());
    expected.after(&done, vec![(pin.clone(), Some(index_digest.clone()))]);

    let second_digest = Digest::of(Algorithm::Sha256, &second);
    let second_owner: PinOwner = "job 2".parse().unwrap();
    let done = store.pin(&one, &second_digest, &second_owner, SystemTime::now());
    let lasting = PolicySubject::Pin(one.clone(), second_digest.clone(), second_owner.to_string());
    expected.after(&done, vec![(lasting, Some(second_digest.clone()))]);

    let done = store.delete_manifest(&one, &Reference::Tag(v1.clone()));
    expected.after(&done, vec![(PolicySubject::Tag(one.clone(), v1), None)]);
    let done = store.delete_manifest(&two, &Reference::Digest(second_digest.clone()));
    expected.after(
        &done,
        vec![
            (PolicySubject::Manifest(two.clone(), second_digest.clone()), None),
            (PolicySubject::Tag(two.clone(), v2.clone()), None),
        ],
    );
    let signature = Digest::of(Algorithm::Sha256, &signature);
    let done = store.delete_manifest(&one, &Reference::Digest(signature.clone()));
    expected.after(
        &done,
        vec![
            (PolicySubject::Manifest(one.clone(), signature), None),
            (PolicySubject::Tag(one.clone(), "signature".parse().unwrap()), None),
        ],
    );
    let done = store.delete_blob(&two, &by_sha512);
    expected.after(&done, vec![(PolicySubject::Blob(two.clone(), by_sha512), None)]);

    // Content that an earlier failure left unreferenced may be garbage now; this script does not check it.
    if expected.complete().is_err() {
        return;
    }
    // A day later only tagged and pinned content is left.
    let mut options = GcOptions::at(SystemTime::now() + Duration::from_secs(24 * 3600));
    options.untagged = true;
    let done = store.collect(&options);
    let unused_digest = Digest::of(Algorithm::Sha256, unused);
    let first_digest = Digest::of(Algorithm::Sha256, &first);
    expected.after(
        &done,
        vec![
            (PolicySubject::Blob(one.clone(), unused_digest), None),
            (PolicySubject::Manifest(one.clone(), first_digest.clone()), None),
            (PolicySubject::Manifest(one.clone(), Digest::of(Algorithm::Sha256, &note)), None),
        ],
    );
    if done.is_err() {
        return;
    }
    let done = store.unpin(&two, &index_digest, &owner);
    expected.after(&done, vec![(pin, None)]);
    let done = store.delete_manifest(&two, &Reference::Tag(all.clone()));
    expected.after(&done, vec![(PolicySubject::Tag(two.clone(), all), None)]);
    if expected.complete().is_err() {
        return;
    }
    let done = store.collect(&options);
    expected.after(
        &done,
        vec![
            (PolicySubject::Blob(two.clone(), Digest::of(Algorithm::Sha256, config)), None),
            (PolicySubject::Manifest(two.clone(), index_digest), None),
            (PolicySubject::Manifest(two.clone(), first_digest), None),
            (PolicySubject::Blob(two.clone(), layer_digest), None),
        ],
    );
    let done = store.sweep_uploads(SystemTime::now() + Duration::from_secs(48 * 3600));
    expected.after(&done, vec![]);
}

/// Imports one image from a directory.
fn import_one(store: &Arc<Store>, expected: &mut Expected) {
    let (name, tag) = ("three".parse::<RepositoryName>().unwrap(), "v1".parse::<Tag>().unwrap());
    let document = image(b"{}", &[b"imported"], "third");
    let source = super::directory();
    let blobs = source.path().join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let digests = [document.as_slice(), b"{}", b"imported"].map(|content| {
        let digest = Digest::of(Algorithm::Sha256, content);
        std::fs::write(blobs.join(digest.hex()), content).unwrap();
        digest
    });
    let mut entry = descriptor(IMAGE, &document);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": "v1"});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    std::fs::write(source.path().join("index.json"), index.to_string()).unwrap();
    let done = store.import(source.path(), &name);
    let [manifest, config, layer] = digests;
    let blobs =
        [config, layer].map(|digest| (PolicySubject::Blob(name.clone(), digest.clone()), Some(digest)));
    let named = [PolicySubject::Tag(name.clone(), tag), PolicySubject::Manifest(name, manifest.clone())];
    expected.after(
        &done,
        named.map(|subject| (subject, Some(manifest.clone()))).into_iter().chain(blobs).collect(),
    );
}

/// Pushes one image and an unreferenced blob.
pub(super) fn fill(store: &Arc<Store>, expected: &mut Expected) {
    let name: RepositoryName = "a".parse().unwrap();
    for content in [b"{}".as_slice(), b"layer", b"unused"] {
        let digest = Digest::of(Algorithm::Sha256, content);
        let done = push(store, &name, &digest, &[content]);
        expected.after(&done, vec![(PolicySubject::Blob(name.clone(), digest.clone()), Some(digest))]);
    }
    let document = image(b"{}", &[b"layer"], "");
    let digest = Digest::of(Algorithm::Sha256, &document);
    let tag: Tag = "v1".parse().unwrap();
    let done = put(store, &name, std::slice::from_ref(&tag), &document, IMAGE);
    let manifest = PolicySubject::Manifest(name.clone(), digest.clone());
    expected.after(
        &done,
        vec![(manifest, Some(digest.clone())), (PolicySubject::Tag(name, tag), Some(digest.clone()))],
    );
}

/// Deletes what [`fill`] pushed.
pub(super) fn empty(store: &Arc<Store>, expected: &mut Expected) {
    let name: RepositoryName = "a".parse().unwrap();
    let [config, layer, unused] =
        [b"{}".as_slice(), b"layer", b"unused"].map(|content| Digest::of(Algorithm::Sha256, content));
    let document = Digest::of(Algorithm::Sha256, &image(b"{}", &[b"layer"], ""));
    expected.compare(store).unwrap();
    let later = GcOptions::at(SystemTime::now() + Duration::from_secs(24 * 3600));
    let done = store.delete_blob(&name, &unused);
    expected.after(&done, vec![(PolicySubject::Blob(name.clone(), unused), None)]);
    let done = store.collect(&later);
    expected.after(&done, vec![]);
    expected.compare(store).unwrap();
    let done = store.delete_manifest(&name, &Reference::Digest(document.clone()));
    let tag = PolicySubject::Tag(name.clone(), "v1".parse().unwrap());
    expected.after(&done, vec![(PolicySubject::Manifest(name.clone(), document), None), (tag, None)]);
    let done = store.collect(&later);
    let blobs = [config, layer].map(|digest| (PolicySubject::Blob(name.clone(), digest), None));
    expected.after(&done, blobs.into());
}

/// Pushes a blob in the given pieces, each in its own request.
pub(crate) fn push(
    store: &Arc<Store>,
    name: &RepositoryName,
    digest: &Digest,
    pieces: &[&[u8]],
) -> Result<(), Error> {
    let session = store.begin_upload(name, Algorithm::Sha256)?;
    for piece in pieces {
        let lock = session.try_lock().ok_or(Error::UploadBusy(session.id))?;
        let sink = store.sink(Arc::clone(&session), lock)?;
        drop(sink.append(&Bytes::copy_from_slice(piece))?);
    }
    let lock = session.try_lock().ok_or(Error::UploadBusy(session.id))?;
    store.sink(Arc::clone(&session), lock)?.finish(digest)
}

pub(crate) fn put(
    store: &Store,
    name: &RepositoryName,
    tags: &[Tag],
    document: &[u8],
    kind: &str,
) -> Result<(), Error> {
    let parsed = parse_manifest(Some(kind), document).unwrap();
    store.put_manifest(name, tags, &Digest::of(Algorithm::Sha256, document), &parsed, document)
}

pub(crate) fn image(config: &[u8], layers: &[&[u8]], note: &str) -> Vec<u8> {
    let layers: Vec<_> =
        layers.iter().map(|layer| descriptor("application/vnd.oci.image.layer.v1.tar", layer)).collect();
    let config = descriptor("application/vnd.oci.image.config.v1+json", config);
    let document = json!({
        "schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": layers, "annotations": {"note": note},
    });
    document.to_string().into_bytes()
}

pub(crate) fn index(children: &[&[u8]]) -> Vec<u8> {
    index_of(IMAGE, children)
}

/// An index of manifests of one media type.
pub(crate) fn index_of(kind: &str, children: &[&[u8]]) -> Vec<u8> {
    let children: Vec<_> = children.iter().map(|child| descriptor(kind, child)).collect();
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": children}).to_string().into_bytes()
}

/// The document with an image as its subject.
pub(crate) fn about(subject: &[u8], document: &[u8]) -> Vec<u8> {
    let mut document: serde_json::Value = serde_json::from_slice(document).unwrap();
    document["subject"] = descriptor(IMAGE, subject);
    document.to_string().into_bytes()
}

fn descriptor(kind: &str, content: &[u8]) -> serde_json::Value {
    let digest = Digest::of(Algorithm::Sha256, content).to_string();
    json!({"mediaType": kind, "digest": digest, "size": content.len()})
}
