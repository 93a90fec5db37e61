//! Tests of the content that garbage collection removes and keeps, one rule at a time.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::faults::recorder::Recorder;
use super::faults::script::{IMAGE, INDEX, about, image, index, push, put};
use super::faults::{config, directory, open};
use super::{GcOptions, GcReport, PinOwner, Store};
use crate::config::Config;
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::manifest::parse_manifest;
use crate::name::{Reference, RepositoryName, Tag};

struct Fixture {
    store: Arc<Store>,
    root: tempfile::TempDir,
    name: RepositoryName,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let root = directory();
        let mut config = config(root.path());
        change(&mut config);
        Fixture { store: Arc::new(Store::open(config).unwrap()), root, name: "a".parse().unwrap() }
    }

    fn push(&self, content: &[u8]) -> Digest {
        let digest = sha256(content);
        push(&self.store, &self.name, &digest, &[content]).unwrap();
        digest
    }

    /// Pushes an image with one layer whose content is `note`.
    fn image(&self, note: &str, tags: &[&str]) -> (Digest, Digest) {
        self.push(b"{}");
        let layer = self.push(note.as_bytes());
        let document = image(b"{}", &[note.as_bytes()], note);
        put(&self.store, &self.name, &parsed(tags), &document, IMAGE).unwrap();
        (sha256(&document), layer)
    }

    fn collect(&self, change: impl FnOnce(&mut GcOptions)) -> GcReport {
        let mut options = GcOptions::at(SystemTime::now() + Duration::from_secs(24 * 3600));
        change(&mut options);
        self.store.collect(&options).unwrap()
    }

    fn has(&self, digest: &Digest) -> bool {
        self.store.blob_in(&self.name, digest).is_ok()
    }

    fn has_manifest(&self, digest: &Digest) -> bool {
        self.store.resolve(&self.name, &Reference::Digest(digest.clone())).is_ok()
    }

    /// Makes the repository's record of a blob two hours old.
    fn age(&self, digest: &Digest) {
        self.age_by(digest, 2);
    }

    fn age_by(&self, digest: &Digest, hours: u64) {
        make_old(&self.store.layer_record(&self.name, digest), hours);
    }

    /// Collects at the present time, also untagged manifests.
    fn collect_now(&self) -> GcReport {
        self.collect(|options| (options.now, options.untagged) = (SystemTime::now(), true))
    }
}

fn make_old(path: &Path, hours: u64) {
    let old = SystemTime::now() - Duration::from_secs(hours * 3600);
    File::options().read(true).open(path).unwrap().set_modified(old).unwrap();
}

fn sha256(content: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, content)
}

fn parsed(tags: &[&str]) -> Vec<Tag> {
    tags.iter().map(|tag| tag.parse().unwrap()).collect()
}

#[test]
fn unreachable_content_is_removed_and_its_space_is_freed() {
    let fixture = Fixture::new();
    let (manifest, layer) = fixture.image("kept", &[]);
    let garbage = fixture.push(b"garbage");
    assert_eq!(
        fixture.collect(|options| options.dry_run = true),
        GcReport { layers: 1, blobs: 1, bytes: 7, ..GcReport::default() }
    );
    assert!(fixture.has(&garbage), "a dry run removes nothing");
    let report = fixture.collect(|_| ());
    assert_eq!(report, GcReport { layers: 1, blobs: 1, bytes: 7, ..GcReport::default() });
    assert!(!fixture.has(&garbage) && fixture.has(&layer) && fixture.has_manifest(&manifest));
    assert!(!fixture.store.content(&garbage).exists());
    assert_eq!(fixture.root.path().join("trash").read_dir().unwrap().count(), 0);
    assert_eq!(fixture.collect(|_| ()), GcReport::default(), "nothing is left to remove");
}

#[test]
fn content_of_another_repository_stays_in_the_pool() {
    let fixture = Fixture::new();
    let shared = fixture.push(b"shared");
    let other: RepositoryName = "b".parse().unwrap();
    fixture.store.mount(&fixture.name, &other, &shared).unwrap();
    put(&fixture.store, &other, &[], &index(&[]), INDEX).unwrap();
    fixture.store.pin(&other, &shared, &"an owner".parse().unwrap(), SystemTime::now()).unwrap();
    fixture.collect(|_| ());
    assert!(!fixture.has(&shared) && fixture.store.blob_in(&other, &shared).is_ok());
}

#[test]
fn a_blob_that_a_client_saw_is_kept_for_the_grace_period() {
    let fixture = Fixture::new();
    let [asked, unasked] = [fixture.push(b"asked"), fixture.push(b"not asked")];
    fixture.age(&asked);
    fixture.age(&unasked);
    assert!(fixture.has(&asked), "HEAD returns 200 and the client skips the upload");
    fixture.collect(|options| (options.now, options.push_duration) = (SystemTime::now(), Duration::ZERO));
    let document = image(b"asked", &[b"asked"], "");
    put(&fixture.store, &fixture.name, &[], &document, IMAGE).unwrap();
    assert!(!fixture.has(&unasked));
}

#[test]
fn reading_protects_a_blob_on_a_disk_that_cannot_record_it() {
    let root = directory();
    let recorder = Arc::new(Recorder::new(root.path(), None, None));
    let store = open(root.path(), Some(Arc::clone(&recorder))).unwrap();
    let fixture = Fixture { store, root, name: "a".parse().unwrap() };
    let [asked, unasked] = [fixture.push(b"asked"), fixture.push(b"not asked")];
    fixture.age(&asked);
    fixture.age(&unasked);
    recorder.fill_the_disk();
    assert!(fixture.has(&asked));
    fixture.collect(|options| (options.now, options.push_duration) = (SystemTime::now(), Duration::ZERO));
    assert!(fixture.has(&asked) && !fixture.has(&unasked));
}

#[test]
fn content_that_is_stored_or_imported_again_is_kept_like_content_that_is_pushed_again() {
    let fixture = Fixture::new();
    let [stored, imported, other] =
        [fixture.push(b"stored"), fixture.push(b"imported"), fixture.push(b"other")];
    [&stored, &imported, &other].into_iter().for_each(|digest| fixture.age(digest));
    let collecting = fixture.store.locks.collecting();
    fixture.store.put_blob(&fixture.name, &Bytes::from_static(b"stored")).unwrap();
    // An image whose second layer is nowhere: the import ends after the first one was found.
    let source = directory();
    let document = image(b"imported", &[b"nowhere"], "");
    let blobs = source.path().join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(sha256(&document).hex()), &document).unwrap();
    std::fs::write(blobs.join(imported.hex()), b"imported").unwrap();
    let entry = serde_json::json!({"mediaType": IMAGE, "digest": sha256(&document).to_string(), "size": document.len()});
    let layout = serde_json::json!({"schemaVersion": 2, "manifests": [entry]});
    std::fs::write(source.path().join("index.json"), layout.to_string()).unwrap();
    assert!(matches!(fixture.store.import(source.path(), &fixture.name), Err(Error::ReferencesUnknown(_))));
    assert_eq!([&stored, &imported, &other].map(|digest| collecting.kept(digest)), [true, true, false]);
    drop(collecting);
    fixture.collect(|options| (options.now, options.push_duration) = (SystemTime::now(), Duration::ZERO));
    assert!(fixture.has(&stored) && fixture.has(&imported) && !fixture.has(&other));
}

#[test]
fn a_push_under_way_keeps_the_content_found_at_its_start() {
    let fixture = Fixture::new();
    let found = fixture.push(b"found by the client");
    let session = fixture.store.begin_upload(&fixture.name, Algorithm::Sha256).unwrap();
    let hours = |hours: u64| SystemTime::now() + Duration::from_secs(hours * 3600);
    // Still being written to, two hours later.
    File::options().write(true).open(session_path(&fixture)).unwrap().set_modified(hours(2)).unwrap();
    fixture.collect(|options| options.now = hours(2));
    assert!(fixture.has(&found));
    fixture.store.sink(Arc::clone(&session), session.try_lock().unwrap()).unwrap().cancel();
    fixture.collect(|options| options.now = hours(2));
    assert!(!fixture.has(&found));
}

#[test]
fn the_first_layers_of_a_push_stay_while_later_ones_arrive() {
    let fixture = Fixture::new();
    fixture.image("an earlier image", &["v1"]);
    let layers = [fixture.push(b"first"), fixture.push(b"second"), fixture.push(b"third")];
    let abandoned = fixture.push(b"of a push that never ended");
    for (layer, hours) in layers.iter().zip([5, 3, 0]) {
        fixture.age_by(layer, hours);
    }
    fixture.age_by(&abandoned, 30);
    fixture.collect_now();
    assert!(layers.iter().all(|layer| fixture.store.has_blob(&fixture.name, layer).unwrap()));
    assert!(!fixture.has(&abandoned), "a push is held for a day and no longer");

    // The last layer is being uploaded, and takes longer than the grace period.
    fixture.age_by(&layers[2], 2);
    let session = fixture.store.begin_upload(&fixture.name, Algorithm::Sha256).unwrap();
    fixture.collect_now();
    assert!(layers.iter().all(|layer| fixture.store.has_blob(&fixture.name, layer).unwrap()));
    fixture.store.sink(Arc::clone(&session), session.try_lock().unwrap()).unwrap().cancel();

    // Without any request for longer than the grace period the push is over.
    fixture.collect_now();
    assert!(!layers.iter().any(|layer| fixture.has(layer)));
}

#[test]
fn after_its_manifest_a_push_no_longer_holds_the_clock() {
    let fixture = Fixture::new();
    let old = fixture.push(b"garbage of an earlier push");
    fixture.age(&old);
    let young = fixture.push(b"note");
    fixture.collect_now();
    assert!(fixture.store.has_blob(&fixture.name, &old).unwrap(), "a push is under way");
    fixture.image("note", &["v1"]);
    fixture.collect_now();
    assert!(!fixture.has(&old) && fixture.has(&young));
}

#[test]
fn the_images_of_an_index_stay_until_the_index_is_pushed() {
    let fixture = Fixture::new();
    let tag: Tag = "before".parse().unwrap();
    fixture.image("an earlier image", &["before"]);
    make_old(&fixture.store.tag_record(&fixture.name, &tag), 9);
    let first = fixture.image("amd64", &[]);
    make_old(&fixture.store.manifest_record(&fixture.name, &first.0), 3);
    fixture.age_by(&first.1, 3);
    let second = fixture.image("arm64", &[]);
    fixture.collect_now();
    let there = |manifest: &Digest| fixture.store.has_manifest(&fixture.name, manifest).unwrap();
    assert!(there(&first.0) && there(&second.0));
    // The tag of another push comes later than both: nothing shows that an index will follow.
    make_old(&fixture.store.manifest_record(&fixture.name, &second.0), 0);
    fixture.image("another", &["v2"]);
    fixture.collect_now();
    assert!(!there(&first.0) && there(&second.0));
}

fn session_path(fixture: &Fixture) -> std::path::PathBuf {
    fixture.root.path().join("uploads").read_dir().unwrap().next().unwrap().unwrap().path()
}

#[test]
fn untagged_manifests_are_removed_only_on_request_together_with_their_layers() {
    let fixture = Fixture::new();
    let (moved, moved_layer) = fixture.image("first", &["v1"]);
    let (tagged, tagged_layer) = fixture.image("second", &["v1"]);
    let child = fixture.image("child", &[]);
    let listing = index(&[&image(b"{}", &[b"child"], "child")]);
    put(&fixture.store, &fixture.name, &parsed(&["all"]), &listing, INDEX).unwrap();
    fixture.collect(|_| ());
    assert!(fixture.has_manifest(&moved), "keeping them is the default");
    let report = fixture.collect(|options| options.untagged = true);
    assert_eq!((report.manifests, report.layers, report.blobs), (1, 1, 2));
    assert!(!fixture.has_manifest(&moved) && !fixture.has(&moved_layer));
    assert!(fixture.has_manifest(&tagged) && fixture.has(&tagged_layer));
    assert!(fixture.has_manifest(&child.0) && fixture.has(&child.1), "an index lists it");
    // Young ones stay, tagged or not.
    let (young, _) = fixture.image("young", &[]);
    fixture.collect(|options| (options.untagged, options.now) = (true, SystemTime::now()));
    assert!(fixture.has_manifest(&young));
}

#[test]
fn referrers_stay_and_are_removed_with_their_subject() {
    let fixture = Fixture::new();
    let (subject, _) = fixture.image("signed", &["v1"]);
    let document = image(b"{}", &[b"signed"], "signed");
    let signature = about(&document, &image(b"{}", &[b"signed"], "signature"));
    put(&fixture.store, &fixture.name, &[], &signature, IMAGE).unwrap();
    let list = || fixture.store.referrers(&fixture.name, &subject, None, None, 10).unwrap().referrers.len();
    fixture.collect(|options| options.untagged = true);
    assert!(fixture.has_manifest(&sha256(&signature)));
    assert_eq!(list(), 1);
    fixture.store.delete_manifest(&fixture.name, &Reference::Tag("v1".parse().unwrap())).unwrap();
    fixture.collect(|options| options.untagged = true);
    assert!(!fixture.has_manifest(&subject) && !fixture.has_manifest(&sha256(&signature)));
    assert_eq!(list(), 0);
}

#[test]
fn an_index_whose_subject_is_the_image_that_it_lists_is_removed_with_it() {
    let fixture = Fixture::new();
    let (subject, _) = fixture.image("signed", &["v1"]);
    let document = image(b"{}", &[b"signed"], "signed");
    let listing = about(&document, &index(&[&document]));
    put(&fixture.store, &fixture.name, &[], &listing, INDEX).unwrap();
    assert_eq!(fixture.collect(|options| options.untagged = true).manifests, 0);
    fixture.store.delete_manifest(&fixture.name, &Reference::Tag("v1".parse().unwrap())).unwrap();
    let dry = fixture.collect(|options| (options.untagged, options.dry_run) = (true, true));
    assert_eq!((dry.manifests, dry.layers), (2, 2), "what a dry run would remove leads to no layer");
    assert_eq!(fixture.collect(|options| options.untagged = true).manifests, 2);
    assert!(!fixture.has_manifest(&subject) && !fixture.has_manifest(&sha256(&listing)));
}

#[test]
fn a_pin_protects_everything_below_it_from_delete_and_collection() {
    let fixture = Fixture::new();
    let owner: PinOwner = "job 7".parse().unwrap();
    let (child, layer) = fixture.image("pinned", &[]);
    let listing = index(&[&image(b"{}", &[b"pinned"], "pinned")]);
    put(&fixture.store, &fixture.name, &[], &listing, INDEX).unwrap();
    let listing = sha256(&listing);
    fixture.store.pin(&fixture.name, &listing, &owner, SystemTime::now()).unwrap();
    let unknown = sha256(b"unknown");
    let refused = fixture.store.pin(&fixture.name, &unknown, &owner, SystemTime::now());
    assert!(matches!(refused, Err(Error::ManifestUnknown)));

    let refusals = |store: &Store| {
        for manifest in [&listing, &child] {
            let reference = Reference::Digest(manifest.clone());
            let refused = store.delete_manifest(&fixture.name, &reference);
            assert!(matches!(refused, Err(Error::Pinned { .. })), "{refused:?}");
        }
        assert!(matches!(store.delete_blob(&fixture.name, &layer), Err(Error::Pinned { .. })));
    };
    refusals(&fixture.store);
    fixture.collect(|options| options.untagged = true);
    assert!(fixture.has_manifest(&listing) && fixture.has_manifest(&child) && fixture.has(&layer));

    // Also after a restart.
    let again = open(fixture.root.path(), None).unwrap();
    assert_eq!(again.pins(), fixture.store.pins());
    refusals(&again);
    assert!(again.unpin(&fixture.name, &listing, &owner).unwrap());
    assert!(!again.unpin(&fixture.name, &listing, &owner).unwrap());
    again.delete_manifest(&fixture.name, &Reference::Digest(listing)).unwrap();
    again.delete_blob(&fixture.name, &layer).unwrap();
}

#[test]
fn a_repository_with_a_corrupted_manifest_is_not_collected() {
    let fixture = Fixture::new();
    let (manifest, layer) = fixture.image("corrupted", &["v1"]);
    let garbage = fixture.push(b"garbage");
    let content = fixture.store.content(&manifest);
    let whole = std::fs::read(&content).unwrap();
    std::fs::remove_file(&content).unwrap();
    std::fs::write(&content, &whole[..whole.len() - 1]).unwrap();
    let report = fixture.collect(|_| ());
    assert_eq!((report.corrupted.as_slice(), report.layers), ([fixture.name.clone()].as_slice(), 0));
    assert!(fixture.has(&layer) && fixture.has(&garbage));
}

#[test]
fn a_manifest_that_an_earlier_version_took_neither_stops_collection_nor_deletes_pins_and_exports() {
    for fields in [r#""blobs":5"#, r#""blobs":[{"x":1}]"#, r#""blobs":[],"blobs":null"#] {
        let fixture = Fixture::with(|config| {
            config.immutable_tags = vec!["**:v*".parse().unwrap()];
        });
        let (_, layer) = fixture.image("earlier", &[]);
        let garbage = fixture.push(b"garbage");
        let document = image(b"{}", &[b"earlier"], "earlier");
        let taken = parse_manifest(Some(IMAGE), &document).unwrap();
        let text = String::from_utf8(document).unwrap();
        let document = format!("{},{fields}}}", &text[..text.len() - 1]).into_bytes();
        let digest = sha256(&document);
        fixture.store.put_manifest(&fixture.name, &parsed(&["v1"]), &digest, &taken, &document).unwrap();
        let (other, _) = fixture.image("other", &[]);

        let report = fixture.collect(|_| ());
        assert_eq!((report.corrupted, report.layers), (vec![], 1), "{fields}");
        assert!(fixture.has(&layer) && !fixture.has(&garbage));
        fixture.store.delete_manifest(&fixture.name, &Reference::Digest(other)).unwrap();
        let refused = fixture.store.delete_blob(&fixture.name, &layer);
        assert!(matches!(refused, Err(Error::BelowTag { .. })), "{refused:?}");
        fixture.store.pin(&fixture.name, &digest, &"job".parse().unwrap(), SystemTime::now()).unwrap();
        fixture.store.export(&fixture.name, None, &mut std::io::sink()).unwrap();
    }
}

#[test]
fn a_repository_that_has_nothing_is_removed_and_a_push_creates_it_again() {
    let fixture = Fixture::new();
    let other: RepositoryName = "b".parse().unwrap();
    push(&fixture.store, &other, &sha256(b"garbage"), &[b"garbage"]).unwrap();
    let (manifest, layer) = fixture.image("kept", &["v1"]);
    fixture.store.flush_layouts().unwrap();
    let in_use = fixture.store.references(&other).unwrap();
    assert_eq!(fixture.collect(|_| ()).repositories, 0, "an operation uses it");
    drop(in_use);
    assert_eq!(fixture.collect(|_| ()).repositories, 1);
    assert_eq!(fixture.store.repositories(), std::slice::from_ref(&fixture.name));
    assert_eq!(fixture.root.path().join("repos").read_dir().unwrap().count(), 1);
    fixture.store.changed(&other);
    fixture.store.flush_layouts().unwrap();
    assert!(!fixture.store.repository(&other).exists());
    assert!(fixture.has(&layer) && fixture.has_manifest(&manifest));

    // Nothing of the removed repository is served from memory under the name of the new one.
    let reference = Reference::Tag("v1".parse().unwrap());
    fixture.store.resolve(&fixture.name, &reference).unwrap();
    fixture.store.delete_manifest(&fixture.name, &Reference::Digest(manifest)).unwrap();
    assert_eq!(fixture.collect(|_| ()).repositories, 1);
    fixture.image("new", &["v2"]);
    assert!(fixture.store.resolve_from_memory(&fixture.name, &reference).is_none());
    assert!(matches!(fixture.store.resolve(&fixture.name, &reference), Err(Error::ManifestUnknown)));
}

#[test]
fn trash_of_an_interrupted_run_is_restored_or_removed() {
    let fixture = Fixture::new();
    let (_, layer) = fixture.image("wanted", &["v1"]);
    let trash = fixture.root.path().join("trash");
    std::fs::rename(fixture.store.content(&layer), trash.join(format!("sha256-{}", layer.hex()))).unwrap();
    let unwanted = sha256(b"unwanted");
    std::fs::write(trash.join(format!("sha256-{}", unwanted.hex())), b"unwanted").unwrap();
    fixture.collect(|_| ());
    assert!(fixture.has(&layer));
    assert_eq!(trash.read_dir().unwrap().count(), 0);
}

#[test]
fn content_referred_to_during_a_collection_is_kept() {
    let fixture = Fixture::new();
    let blob = fixture.push(b"late");
    // As the collection sees it: read, found unreachable and old, and then referred to by a client.
    let collecting = fixture.store.locks.collecting();
    assert!(!collecting.kept(&blob));
    put(&fixture.store, &fixture.name, &[], &image(b"late", &[b"late"], ""), IMAGE).unwrap();
    assert!(collecting.kept(&blob));
    for (other, act) in [("b", true), ("c", false)] {
        let again = sha256(other.as_bytes());
        let name: RepositoryName = other.parse().unwrap();
        if act {
            push(&fixture.store, &name, &again, &[other.as_bytes()]).unwrap();
        }
        assert_eq!(collecting.kept(&again), act);
    }
}
