//! The cost of a commit and the commits it delays, counted in disk operations and not in time; and commits that rely on
//! others that are not durable yet.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::Store;
use super::disk::{Disk, DiskHook, DiskOp, HookAction};
use super::faults::recorder::{DurabilityChoice, Recorder};
use super::faults::script::{IMAGE, about, image, push, put};
use super::faults::{config, directory, expected, open};
use super::{GcOptions, MANIFESTS};
use crate::digest::{Algorithm, Digest};
use crate::name::{RepositoryName, Tag};

/// Counts disk operations, and on request delays the first fsync of a file.
#[derive(Default)]
struct Counter {
    steps: Mutex<usize>,
    hold: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl DiskHook for Counter {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        *self.steps.lock() += 1;
        if matches!(op, DiskOp::SyncFile(_)) {
            let held = self.hold.lock().take();
            if let Some((reached, released)) = held {
                reached.send(()).unwrap();
                let _ = released.recv();
            }
        }
        HookAction::Go
    }

    fn after(&self, _: DiskOp<'_>) {}
}

fn counted() -> (tempfile::TempDir, Arc<Store>, Arc<Counter>) {
    let (root, counter) = (directory(), Arc::new(Counter::default()));
    let disk = Disk { hook: Some(Arc::clone(&counter) as _) };
    let store = Arc::new(Store::open_on(disk, config(root.path())).unwrap());
    (root, store, counter)
}

fn sha256(content: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, content)
}

#[test]
fn moving_a_tag_costs_the_same_for_any_number_of_tags() {
    let (_root, store, counter) = counted();
    let name: RepositoryName = "a".parse().unwrap();
    push(&store, &name, &sha256(b"{}"), &[b"{}"]).unwrap();
    let tagged = |tag: &str, note: &str| {
        let before = *counter.steps.lock();
        put(&store, &name, &[tag.parse::<Tag>().unwrap()], &image(b"{}", &[], note), IMAGE).unwrap();
        *counter.steps.lock() - before
    };
    tagged("moved", "one");
    let with_one = tagged("moved", "two");
    for number in 0..300 {
        tagged(&format!("v{number}"), "one");
    }
    assert_eq!(tagged("moved", "three"), with_one);
}

#[test]
fn a_commit_that_waits_for_the_disk_delays_no_other() {
    let (_root, store, counter) = counted();
    let name: RepositoryName = "a".parse().unwrap();
    push(&store, &name, &sha256(b"{}"), &[b"{}"]).unwrap();
    let ((reached, waits), (release, released)) = (channel(), channel());
    *counter.hold.lock() = Some((reached, released));
    let slow = thread::spawn({
        let (store, name) = (Arc::clone(&store), name.clone());
        move || push(&store, &name, &sha256(b"slow"), &[b"slow"])
    });
    waits.recv().unwrap();
    // The same repository, the same content, and a manifest: each completes while the other waits.
    for content in [b"quick".as_slice(), b"slow"] {
        push(&store, &name, &sha256(content), &[content]).unwrap();
    }
    put(&store, &name, &["v1".parse().unwrap()], &image(b"{}", &[b"quick", b"slow"], ""), IMAGE).unwrap();
    assert!(!slow.is_finished());
    release.send(()).unwrap();
    slow.join().unwrap().unwrap();
    assert!(store.blob_in(&name, &sha256(b"slow")).is_ok());
}

/// A disk whose power can be cut, on which one push waits before its content is durable.
struct PausedPush {
    recorder: Recorder,
    hold: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl DiskHook for PausedPush {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        if matches!(op, DiskOp::SyncDirectory(path) if path.ends_with("blobs/sha256")) {
            let held = self.hold.lock().take();
            if let Some((reached, released)) = held {
                reached.send(()).unwrap();
                let _ = released.recv();
            }
        }
        self.recorder.before(op)
    }

    fn after(&self, op: DiskOp<'_>) {
        self.recorder.after(op);
    }
}

#[test]
fn a_mounted_blob_whose_push_is_not_yet_durable_survives_a_loss_of_power() {
    let (root, remains) = (directory(), directory());
    let recorder = Recorder::new(root.path(), None, None);
    let paused = Arc::new(PausedPush { recorder, hold: Mutex::default() });
    let disk = Disk { hook: Some(Arc::clone(&paused) as _) };
    let store = Arc::new(Store::open_on(disk, config(root.path())).unwrap());
    let [a, b] = ["a", "b"].map(|name| name.parse::<RepositoryName>().unwrap());
    let ((reached, waits), (release, released)) = (channel(), channel());
    *paused.hold.lock() = Some((reached, released));
    let pushing = thread::spawn({
        let (store, a) = (Arc::clone(&store), a.clone());
        move || push(&store, &a, &sha256(b"slow"), &[b"slow"])
    });
    waits.recv().unwrap();
    assert!(store.mount(&a, &b, &sha256(b"slow")).unwrap());
    paused.recorder.cut_power(remains.path(), &mut DurabilityChoice::new(0));
    release.send(()).unwrap();
    pushing.join().unwrap().unwrap();
    let after = open(remains.path(), None).unwrap();
    after.blob_in(&b, &sha256(b"slow")).unwrap();
}

/// Lets a collection come to the pool, and continue there when a manifest's record was removed.
#[derive(Default)]
struct PoolAfterDelete {
    pool: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    removed: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl DiskHook for PoolAfterDelete {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        if matches!(op, DiskOp::Observe(path) if path.ends_with("blobs")) {
            let held = self.pool.lock().take();
            if let Some((reached, released)) = held {
                reached.send(()).unwrap();
                let _ = released.recv();
            }
        }
        HookAction::Go
    }

    fn after(&self, op: DiskOp<'_>) {
        let of_a_manifest =
            |path: &std::path::Path| path.components().any(|part| part.as_os_str() == MANIFESTS);
        if matches!(op, DiskOp::Remove(path) if of_a_manifest(path)) {
            let held = self.removed.lock().take();
            if let Some((release, ended)) = held {
                release.send(()).unwrap();
                // A collection that waits for this delete does not end.
                let _ = ended.recv_timeout(Duration::from_millis(50));
            }
        }
    }
}

#[test]
fn a_delete_counts_and_unlists_its_manifest_before_a_collection_removes_the_content() {
    let (root, hook) = (directory(), Arc::new(PoolAfterDelete::default()));
    let disk = Disk { hook: Some(Arc::clone(&hook) as _) };
    let store = Arc::new(Store::open_on(disk, config(root.path())).unwrap());
    let name: RepositoryName = "a".parse().unwrap();
    push(&store, &name, &sha256(b"{}"), &[b"{}"]).unwrap();
    let subject = image(b"{}", &[], "subject");
    // The collection pauses in the first part of the pool; the manifest is in a later one.
    let document = (0..).map(|n| about(&subject, &image(b"{}", &[], &n.to_string())));
    let document = document.into_iter().find(|document| !sha256(document).hex().starts_with('0')).unwrap();
    let digest = sha256(&document);
    put(&store, &name, &[], &document, IMAGE).unwrap();

    let ((reached, at_the_pool), (continues, continued)) = (channel(), channel());
    let (ends, ended) = channel();
    *hook.pool.lock() = Some((reached, continued));
    let collecting = thread::spawn({
        let store = Arc::clone(&store);
        move || {
            let later = SystemTime::now() + Duration::from_secs(24 * 3600);
            let collected = store.collect(&GcOptions::at(later));
            let _ = ends.send(());
            collected
        }
    });
    at_the_pool.recv().unwrap();
    *hook.removed.lock() = Some((continues, ended));
    store.delete_manifest(&name, &crate::name::Reference::Digest(digest)).unwrap();
    collecting.join().unwrap().unwrap();
    expected::counted(&store).unwrap();
    let list = store.repository(&name).join("_referrers/sha256").join(sha256(&subject).hex());
    assert_eq!(list.read_dir().unwrap().count(), 0, "the manifest is in no list of referrers");
}
