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

use std::ops::Not;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::disk::{Disk, DiskHook, DiskOp, HookAction};
use super::faults::script::{IMAGE, INDEX, about, image, index, index_of, push, put};
use super::faults::{config, directory, expected};
use super::{GcOptions, LAYERS, MANIFESTS, PinOwner, Store};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{Reference, RepositoryName, Tag};

/// Every n-th interleaving is tested, of both halves; 1 tests all of them, and takes minutes.
const STRIDE: &str = "REGISTRY_INTERLEAVE_STRIDE";
/// The first steps of a collection, which decide about manifests; a client comes to each of them.
const WITH_MANIFESTS: usize = 10;
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
    /// The embedding program stores a blob that the repository has.
    StoresAgain,
    /// The client reads an index that has no tag and tags it.
    TagsAnIndexItRead,
    TagsAnIndexOfAnIndexItRead,
    /// The client reads an index and pushes an index that lists it.
    ListsAnIndexItRead,
    /// The client tags an index of an index, moves the tag away and reads the index by its digest.
    TagsAnIndexAndReadsIt,
    /// The client reads an image that has a signature and tags it.
    TagsASignedImageItRead,
    /// The client pushes an image whose signature was there before it.
    PushesWhatIsSigned,
    /// The client reads an index whose subject is the image that it lists, and tags it.
    TagsAnIndexAboutItsImageItRead,
}

const CLIENTS: [Client; 18] = [
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
    Client::StoresAgain,
    Client::TagsAnIndexItRead,
    Client::TagsAnIndexOfAnIndexItRead,
    Client::ListsAnIndexItRead,
    Client::TagsAnIndexAndReadsIt,
    Client::TagsASignedImageItRead,
    Client::PushesWhatIsSigned,
    Client::TagsAnIndexAboutItsImageItRead,
];

/// The client's first half with its result, and the second half, which relies on it.
struct ClientRun {
    client: Client,
    store: Arc<Store>,
    promised: bool,
}

/// What a client relies on at the end.
struct Guarantee {
    name: RepositoryName,
    blobs: Vec<&'static [u8]>,
    /// Manifests below the document or about it, in the order of a push, each with its media type.
    others: Vec<(Vec<u8>, &'static str)>,
    document: Vec<u8>,
    kind: &'static str,
}

impl Client {
    fn guarantee(self) -> Guarantee {
        let [a, b] = ["a", "b"].map(|name| name.parse::<RepositoryName>().unwrap());
        let of = |name: RepositoryName, document: Vec<u8>, blobs: Vec<&'static [u8]>| Guarantee {
            name,
            blobs,
            others: Vec::new(),
            document,
            kind: IMAGE,
        };
        // The last of these manifests is the document.
        let with = |mut manifests: Vec<(Vec<u8>, &'static str)>| {
            let (document, kind) = manifests.pop().unwrap();
            let blobs = vec![CONFIG, UNTAGGED];
            Guarantee { others: manifests, kind, ..of(a.clone(), document, blobs) }
        };
        let image_of = || (untagged(), IMAGE);
        let index_of_it = || (index(&[&untagged()]), INDEX);
        let nested = || (index_of(INDEX, &[&index(&[&untagged()])]), INDEX);
        let signature = || (about(&untagged(), &image(CONFIG, &[], "signature")), IMAGE);
        match self {
            Client::Mounts => of(b, image(LOOSE, &[LOOSE], "new"), vec![LOOSE]),
            Client::FillsAnEmptyRepository => {
                of("empty".parse().unwrap(), image(LOOSE, &[LOOSE], "new"), vec![LOOSE])
            }
            Client::TagsWhatItRead | Client::TagsWhatItAskedFor | Client::Pins => with(vec![image_of()]),
            Client::MovesAndReturns | Client::DeletesAndPushesAgain => of(a, kept(), vec![CONFIG, KEPT]),
            Client::TagsAnIndexItRead => with(vec![image_of(), index_of_it()]),
            Client::TagsAnIndexOfAnIndexItRead
            | Client::ListsAnIndexItRead
            | Client::TagsAnIndexAndReadsIt => with(vec![image_of(), index_of_it(), nested()]),
            Client::TagsASignedImageItRead | Client::PushesWhatIsSigned => {
                with(vec![signature(), image_of()])
            }
            Client::TagsAnIndexAboutItsImageItRead => {
                with(vec![image_of(), (about(&untagged(), &index(&[&untagged()])), INDEX)])
            }
            _ => of(a, image(CONFIG, &[LOOSE], "new"), vec![CONFIG, LOOSE]),
        }
    }

    /// Whether the manifest is in the repository before the client begins. The image without a tag always is.
    fn finds(self, guarantee: &Guarantee, manifest: &[u8]) -> bool {
        match self {
            Client::PushesWhatIsSigned | Client::ListsAnIndexItRead => manifest != guarantee.document,
            _ => true,
        }
    }
}

impl ClientRun {
    fn first(&mut self) -> Result<(), Error> {
        let Guarantee { name, document, others, kind, .. } = self.client.guarantee();
        let by_digest = |document: &[u8]| Reference::Digest(sha256(document));
        let read = |document: &[u8]| there(self.store.resolve(&name, &by_digest(document)));
        self.promised = match self.client {
            Client::AsksAndSkips => there(self.store.blob_in(&name, &sha256(LOOSE)))?,
            Client::StoresAgain => self.store.put_blob(&name, &Bytes::from_static(LOOSE)).map(|_| true)?,
            Client::TagsWhatItAskedFor => there(self.store.blob_in(&name, &sha256(UNTAGGED)))?,
            Client::Mounts => self.store.mount(&"a".parse().unwrap(), &name, &sha256(LOOSE))?,
            Client::Pushes | Client::FillsAnEmptyRepository => {
                push(&self.store, &name, &sha256(LOOSE), &[LOOSE]).map(|()| true)?
            }
            Client::TagsWhatItRead
            | Client::TagsAnIndexItRead
            | Client::TagsAnIndexOfAnIndexItRead
            | Client::TagsASignedImageItRead
            | Client::TagsAnIndexAboutItsImageItRead => read(&document)?,
            Client::ListsAnIndexItRead => read(&others[1].0)?,
            Client::TagsAnIndexAndReadsIt => {
                let tagged = put(&self.store, &name, &[tag("v1")], &document, kind);
                match tagged {
                    Ok(()) => {
                        put(&self.store, &name, &[tag("v1")], &image(CONFIG, &[], "other"), IMAGE)?;
                        assert!(read(&document)?, "it was put a moment ago");
                        true
                    }
                    Err(Error::ReferencesUnknown(_)) => false,
                    Err(error) => return Err(error),
                }
            }
            Client::PushesWhatIsSigned => {
                for blob in [CONFIG, UNTAGGED] {
                    push(&self.store, &name, &sha256(blob), &[blob])?;
                }
                put(&self.store, &name, &[tag("v1")], &document, kind)?;
                let listed = self.store.referrers(&name, &sha256(&document), None, None, 10)?;
                !listed.referrers.is_empty()
            }
            Client::MovesAndReturns => {
                let other = image(CONFIG, &[], "other");
                put(&self.store, &name, &[tag("v1")], &other, IMAGE).map(|()| false)?
            }
            Client::DeletesAndPushesAgain => {
                self.store.delete_manifest(&name, &by_digest(&document)).map(|()| false)?
            }
            Client::DeletesTheBlobAndPushesAgain => {
                there(self.store.delete_blob(&name, &sha256(LOOSE)))?;
                false
            }
            Client::Pins => there(self.store.pin(&name, &sha256(&document), &owner(), SystemTime::now()))?,
        };
        Ok(())
    }

    fn second(&mut self) -> Result<(), Error> {
        let Guarantee { name, document, blobs, others, kind } = self.client.guarantee();
        if !self.promised {
            for blob in blobs {
                if !there(self.store.blob_in(&name, &sha256(blob)))? {
                    push(&self.store, &name, &sha256(blob), &[blob])?;
                }
            }
            for (other, kind) in others {
                put(&self.store, &name, &[], &other, kind)?;
            }
        }
        match self.client {
            Client::Pins if self.promised => Ok(()),
            _ => put(&self.store, &name, &[tag("v1")], &document, kind),
        }
    }

    /// Checks the state at the end.
    fn hold(&self) -> Result<(), String> {
        let Guarantee { name, document, blobs, others, .. } = self.client.guarantee();
        let of_the_client = others.into_iter().map(|(other, _)| other).chain([document]);
        let manifests = of_the_client.map(|document| (name.clone(), document));
        for (name, document) in manifests.chain([("b".parse().unwrap(), kept())]) {
            let reference = Reference::Digest(sha256(&document));
            self.store.resolve(&name, &reference).map_err(|error| {
                format!("the manifest {} of {name}: {error}", String::from_utf8_lossy(&document))
            })?;
        }
        for blob in blobs {
            let found = self.store.blob_in(&name, &sha256(blob));
            let found = found.map_err(|error| format!("{:?}: {error}", String::from_utf8_lossy(blob)))?;
            let mut content = vec![0; found.length() as usize];
            found.read_exact_at(&mut content, 0).unwrap();
            assert_eq!(content, blob);
        }
        expected::whole(&self.store)?;
        expected::counted(&self.store)
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

/// A store with content of every kind, and with what the client finds, all of it two hours old.
fn store(root: &Path, client: Client) -> (Arc<Store>, Arc<Interleaver>) {
    let interleaver = Arc::new(Interleaver::default());
    let disk = Disk { hook: Some(Arc::clone(&interleaver) as _) };
    let mut config = config(root);
    // An index is accepted only while everything that it lists is there.
    config.sparse_indexes.clear();
    let store = Arc::new(Store::open_on(disk, config).unwrap());
    let [a, b] = ["a", "b"].map(|name| name.parse::<RepositoryName>().unwrap());
    for (name, blob) in [(&a, LOOSE), (&a, UNTAGGED), (&a, KEPT), (&a, CONFIG), (&b, KEPT), (&b, CONFIG)] {
        push(&store, name, &sha256(blob), &[blob]).unwrap();
    }
    let guarantee = client.guarantee();
    let found = [(untagged(), IMAGE)].into_iter().chain(guarantee.others.clone());
    let found =
        found.chain(guarantee.others.is_empty().not().then(|| (guarantee.document.clone(), guarantee.kind)));
    for (document, kind) in found.filter(|(document, _)| client.finds(&guarantee, document)) {
        put(&store, &a, &[], &document, kind).unwrap();
    }
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
    let (store, interleaver) = store(root.path(), client);
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
    let (store, interleaver) = store(root.path(), client);
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
        let alone = into_collection(client, [usize::MAX; 2], Duration::ZERO);
        let steps = alone.map_err(|why| format!("{client:?} after the collection: {why}"))?;
        assert!(steps > 30, "a collection has only {steps} steps");
        let pairs = (0..steps).step_by(stride);
        let pairs =
            pairs.flat_map(|first| (first..=steps).step_by(stride).map(move |second| [first, second]));
        let others = (0..WITH_MANIFESTS).filter(|first| first % stride > 0).map(|first| [first; 2]);
        for at in pairs.chain(others) {
            into_collection(client, at, ahead).map_err(|why| format!("{client:?} at {at:?}: {why}"))?;
            tried += 1;
        }
    }
    Ok(tried)
}

#[test]
fn what_a_client_saw_during_a_collection_holds() {
    let stride = std::env::var(STRIDE).map_or(5, |text| text.parse().unwrap());
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
