//! Garbage collection against each kind of client, with every interleaving of their steps.
//!
//! ```text
//!  collection  ──look──remove──look──rename──sync──unlink──>        client  ──create──write──rename──record──sync──>
//!                 ^             ^                                                      ^
//!        first half of     second half of                                       a whole collection
//!        a client's work, at every pair of steps                                at every step
//! ```
//!
//! A half that needs a lock of the other side waits for it, as in production, and the other side continues: that is one
//! more interleaving. The client's guarantees must hold at its second half and at the end: content that it saw,
//! mounted, pushed or pinned may be referred to. The mutant, a collector whose clock is ahead, must be detected.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::disk::{Disk, DiskHook, DiskOp, HookAction};
use super::faults::script::{IMAGE, image, push, put};
use super::faults::{config, directory, expected};
use super::{GcOptions, LAYERS, MANIFESTS, PinOwner, Store};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{Reference, RepositoryName, Tag};

/// Every n-th interleaving is tested, of both halves; 1 tests all of them, and takes minutes.
const STRIDE: &str = "REGISTRY_INTERLEAVE_STRIDE";
/// The time that one side waits for the other before it counts as blocked.
const PATIENCE: Duration = Duration::from_millis(4);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Garbage, unless a client refers to it.
const LOOSE: &[u8] = b"not referenced";
/// A layer of an image without a tag.
const UNTAGGED: &[u8] = b"a layer of an image without a tag";
const KEPT: &[u8] = b"a layer of an image with a tag";
const CONFIG: &[u8] = b"{}";

/// The work of a client, in two halves.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// The client checks for a blob, uploads it only if it is missing, and refers to it.
    AsksAndSkips,
    Mounts,
    Pushes,
    /// The client reads a manifest that has no tag and tags it.
    TagsWhatItRead,
    /// The client tags a manifest without reading it, after a check for its layer.
    TagsWhatItAskedFor,
    /// The client moves a tag away and back again.
    MovesAndReturns,
    DeletesAndPushesAgain,
    DeletesTheBlobAndPushesAgain,
    Pins,
    /// The client pushes to a repository that exists and has nothing.
    FillsAnEmptyRepository,
}

const CLIENTS: [Client; 10] = [
    Client::AsksAndSkips,
    Client::Mounts,
    Client::Pushes,
    Client::TagsWhatItRead,
    Client::TagsWhatItAskedFor,
    Client::MovesAndReturns,
    Client::DeletesAndPushesAgain,
    Client::DeletesTheBlobAndPushesAgain,
    Client::Pins,
    Client::FillsAnEmptyRepository,
];

/// The client's first half with its result, and the second half, which relies on it.
struct ClientRun {
    client: Client,
    store: Arc<Store>,
    promised: bool,
}

/// The manifest at the end, its repository and the blobs it needs.
type Guarantee = (RepositoryName, Vec<u8>, Vec<&'static [u8]>);

impl ClientRun {
    fn guarantee(&self) -> Guarantee {
        let [a, b] = ["a", "b"].map(|name| name.parse::<RepositoryName>().unwrap());
        match self.client {
            Client::Mounts => (b, image(LOOSE, &[LOOSE], "new"), vec![LOOSE]),
            Client::FillsAnEmptyRepository => {
                ("empty".parse().unwrap(), image(LOOSE, &[LOOSE], "new"), vec![LOOSE])
            }
            Client::TagsWhatItRead | Client::TagsWhatItAskedFor | Client::Pins => {
                (a, untagged(), vec![CONFIG, UNTAGGED])
            }
            Client::MovesAndReturns | Client::DeletesAndPushesAgain => (a, kept(), vec![CONFIG, KEPT]),
            _ => (a, image(CONFIG, &[LOOSE], "new"), vec![CONFIG, LOOSE]),
        }
    }

    fn first(&mut self) -> Result<(), Error> {
        let (name, document, _) = self.guarantee();
        let by_digest = Reference::Digest(sha256(&document));
        self.promised = match self.client {
            Client::AsksAndSkips => there(self.store.blob_in(&name, &sha256(LOOSE)))?,
            Client::TagsWhatItAskedFor => there(self.store.blob_in(&name, &sha256(UNTAGGED)))?,
            Client::Mounts => self.store.mount(&"a".parse().unwrap(), &name, &sha256(LOOSE))?,
            Client::Pushes | Client::FillsAnEmptyRepository => {
                push(&self.store, &name, &sha256(LOOSE), &[LOOSE]).map(|()| true)?
            }
            Client::TagsWhatItRead => there(self.store.resolve(&name, &by_digest))?,
            Client::MovesAndReturns => {
                let other = image(CONFIG, &[], "other");
                put(&self.store, &name, &[tag("v1")], &other, IMAGE).map(|()| false)?
            }
            Client::DeletesAndPushesAgain => self.store.delete_manifest(&name, &by_digest).map(|()| false)?,
            Client::DeletesTheBlobAndPushesAgain => {
                there(self.store.delete_blob(&name, &sha256(LOOSE)))?;
                false
            }
            Client::Pins => there(self.store.pin(&name, &sha256(&document), &owner(), SystemTime::now()))?,
        };
        Ok(())
    }

    fn second(&mut self) -> Result<(), Error> {
        let (name, document, blobs) = self.guarantee();
        if !self.promised {
            for blob in blobs {
                if !there(self.store.blob_in(&name, &sha256(blob)))? {
                    push(&self.store, &name, &sha256(blob), &[blob])?;
                }
            }
        }
        match self.client {
            Client::Pins if self.promised => Ok(()),
            _ => put(&self.store, &name, &[tag("v1")], &document, IMAGE),
        }
    }

    /// Checks the state at the end.
    fn hold(&self) -> Result<(), String> {
        let (name, document, blobs) = self.guarantee();
        let other = kept();
        let manifests = [(name.clone(), document), ("b".parse().unwrap(), other)];
        for (name, document) in manifests {
            let reference = Reference::Digest(sha256(&document));
            self.store
                .resolve(&name, &reference)
                .map_err(|error| format!("the manifest of {name}: {error}"))?;
        }
        for blob in blobs {
            let found = self.store.blob_in(&name, &sha256(blob));
            let found = found.map_err(|error| format!("{:?}: {error}", String::from_utf8_lossy(blob)))?;
            let mut content = vec![0; found.length() as usize];
            found.read_exact_at(&mut content, 0).unwrap();
            assert_eq!(content, blob);
        }
        expected::whole(&self.store)
    }
}

fn sha256(content: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, content)
}

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

fn owner() -> PinOwner {
    "job 1".parse().unwrap()
}

fn untagged() -> Vec<u8> {
    image(CONFIG, &[UNTAGGED], "untagged")
}

fn kept() -> Vec<u8> {
    image(CONFIG, &[KEPT], "kept")
}

fn there<T>(found: Result<T, Error>) -> Result<bool, Error> {
    match found {
        Ok(_) => Ok(true),
        Err(Error::BlobUnknown | Error::ManifestUnknown) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A disk hook that lets the other side run at chosen steps of one thread.
#[derive(Default)]
struct Interleaver {
    chosen: Mutex<Option<Chosen>>,
    steps: AtomicUsize,
}

struct Chosen {
    thread: ThreadId,
    at: Vec<usize>,
    go: Sender<()>,
    done: Receiver<()>,
}

impl DiskHook for Interleaver {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        let mut chosen = self.chosen.lock();
        if let Some(chosen) = chosen.as_mut().filter(|chosen| chosen.thread == thread::current().id()) {
            let number = self.steps.fetch_add(1, Ordering::Relaxed);
            for _ in chosen.at.iter().filter(|at| **at == number) {
                // The other side has ended and sends nothing more.
                let _ = chosen.go.send(());
                let _ = chosen.done.recv_timeout(PATIENCE);
            }
        }
        match op {
            DiskOp::SyncFile(_) | DiskOp::SyncDirectory(_) => HookAction::Believe,
            _ => HookAction::Go,
        }
    }

    fn after(&self, _: DiskOp<'_>) {}
}

impl Interleaver {
    /// Observes the calling thread until [`Interleaver::stop`].
    fn listen(&self, at: Vec<usize>, go: Sender<()>, done: Receiver<()>) {
        *self.chosen.lock() = Some(Chosen { thread: thread::current().id(), at, go, done });
    }

    /// Ends the observation and releases the other side.
    fn stop(&self) -> usize {
        *self.chosen.lock() = None;
        self.steps.load(Ordering::Relaxed)
    }
}

/// A store with content of every kind, all of it two hours old.
fn store(root: &Path) -> (Arc<Store>, Arc<Interleaver>) {
    let interleaver = Arc::new(Interleaver::default());
    let disk = Disk { hook: Some(Arc::clone(&interleaver) as _) };
    let store = Arc::new(Store::open_on(disk, config(root)).unwrap());
    let [a, b] = ["a", "b"].map(|name| name.parse::<RepositoryName>().unwrap());
    for (name, blob) in [(&a, LOOSE), (&a, UNTAGGED), (&a, KEPT), (&a, CONFIG), (&b, KEPT), (&b, CONFIG)] {
        push(&store, name, &sha256(blob), &[blob]).unwrap();
    }
    put(&store, &a, &[], &untagged(), IMAGE).unwrap();
    for (name, text) in [(&a, "v1"), (&b, "stays")] {
        put(&store, name, &[tag(text)], &kept(), IMAGE).unwrap();
    }
    store.ensure_repository(&"empty".parse().unwrap()).unwrap();
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    let records = [&a, &b].map(|name| [LAYERS, MANIFESTS].map(|kind| store.repository(name).join(kind)));
    for directory in records.into_iter().flatten().chain([store.pool()]) {
        for file in directory.join("sha256").read_dir().unwrap() {
            std::fs::File::open(file.unwrap().path()).unwrap().set_modified(old).unwrap();
        }
    }
    (store, interleaver)
}

fn options(ahead: Duration) -> GcOptions {
    GcOptions { untagged: true, ..GcOptions::at(SystemTime::now() + ahead) }
}

/// Runs a collection with the halves of `client` at these two of its steps; returns how many steps it has.
fn into_collection(client: Client, at: [usize; 2], ahead: Duration) -> Result<usize, String> {
    let root = directory();
    let (store, interleaver) = store(root.path());
    let ((go, gone), (done, ready)) = (channel(), channel());
    let run = thread::spawn({
        let store = Arc::clone(&store);
        move || -> Result<ClientRun, String> {
            let mut run = ClientRun { client, store, promised: false };
            // An error means: the collection has ended, and there are no further interleavings.
            let _ = gone.recv();
            run.first().map_err(|error| format!("first half: {error:?}"))?;
            let _ = done.send(());
            let _ = gone.recv();
            run.second().map_err(|error| format!("second half: {error:?}"))?;
            let _ = done.send(());
            Ok(run)
        }
    });
    interleaver.listen(at.to_vec(), go, ready);
    let collected = store.collect(&options(ahead));
    let steps = interleaver.stop();
    let run = run.join().unwrap()?;
    collected.map_err(|error| format!("the collection: {error:?}"))?;
    run.hold()?;
    // A second collection directly afterwards: the client still relies on what it saw a moment ago.
    store.collect(&options(Duration::ZERO)).map_err(|error| format!("the next collection: {error:?}"))?;
    run.hold()?;
    Ok(steps)
}

/// Runs a client with a whole collection at this step of its work; returns how many steps the client has.
fn into_client(client: Client, at: usize) -> Result<usize, String> {
    let root = directory();
    let (store, interleaver) = store(root.path());
    let ((go, gone), (done, ready)) = (channel(), channel());
    let collecting = thread::spawn({
        let store = Arc::clone(&store);
        move || {
            let _ = gone.recv();
            let collected = store.collect(&options(Duration::ZERO));
            let _ = done.send(());
            collected
        }
    });
    let mut run = ClientRun { client, store, promised: false };
    interleaver.listen(vec![at], go, ready);
    let result = run.first().and_then(|()| run.second());
    let steps = interleaver.stop();
    let collected = collecting.join().unwrap();
    result.map_err(|error| format!("{error:?}"))?;
    collected.map_err(|error| format!("the collection: {error:?}"))?;
    run.hold()?;
    Ok(steps)
}

/// Runs every client at every pair of steps of a collection; returns the first violation.
fn everywhere(ahead: Duration, stride: usize) -> Result<usize, String> {
    let mut tried = 0;
    for client in CLIENTS {
        let steps = into_collection(client, [usize::MAX; 2], Duration::ZERO)?;
        assert!(steps > 30, "a collection has only {steps} steps");
        for first in (0..steps).step_by(stride) {
            for second in (first..=steps).step_by(stride) {
                let outcome = into_collection(client, [first, second], ahead);
                outcome.map_err(|why| format!("{client:?} at {first} and {second}: {why}"))?;
                tried += 1;
            }
        }
    }
    Ok(tried)
}

#[test]
fn what_a_client_saw_during_a_collection_holds() {
    let stride = std::env::var(STRIDE).map_or(4, |text| text.parse().unwrap());
    let tried = everywhere(Duration::ZERO, stride).unwrap();
    println!("{tried} interleavings");
    assert!(tried * stride * stride > 3000, "only {tried} interleavings");
}

#[test]
fn a_collection_during_a_client_s_work_removes_nothing_it_needs() {
    for client in CLIENTS {
        let mut at = 0;
        loop {
            let steps = into_client(client, at).unwrap_or_else(|why| panic!("{client:?} at {at}: {why}"));
            at += 1;
            if at > steps {
                break;
            }
        }
    }
}

#[test]
fn a_collector_whose_clock_is_ahead_is_detected() {
    let noticed = everywhere(DAY, 4).unwrap_err();
    assert!(noticed.contains("AsksAndSkips"), "{noticed}");
}
