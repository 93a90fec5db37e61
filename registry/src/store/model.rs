//! Random operations on the store and on a model of one page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::faults::script::{IMAGE, INDEX, image, index, push, put};
use super::faults::{directory, open};
use super::{GcOptions, GcReport, PinOwner, Store};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{Reference, RepositoryName, Tag};

const REPOSITORIES: [&str; 2] = ["a", "a/index.json"];
const TAGS: [&str; 3] = ["v1", "v2", "latest"];
const BLOBS: usize = 4;
/// Documents 0 to 3 are images, 4 and 5 list two of them each.
const DOCUMENTS: usize = 6;

#[derive(Clone, Debug)]
enum Operation {
    Push {
        repository: usize,
        blob: usize,
    },
    Mount {
        from: usize,
        to: usize,
        blob: usize,
    },
    Put {
        repository: usize,
        document: usize,
        tag: Option<usize>,
    },
    DeleteTag {
        repository: usize,
        tag: usize,
    },
    DeleteManifest {
        repository: usize,
        document: usize,
    },
    DeleteBlob {
        repository: usize,
        blob: usize,
    },
    Pin {
        repository: usize,
        document: usize,
    },
    Unpin {
        repository: usize,
        document: usize,
    },
    /// Makes all records old, or all young.
    Collect {
        untagged: bool,
        later: bool,
    },
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let repository = 0..REPOSITORIES.len();
    let tag = 0..TAGS.len();
    prop_oneof![
        4 => (repository.clone(), 0..BLOBS).prop_map(|(repository, blob)| Operation::Push { repository, blob }),
        2 => (repository.clone(), repository.clone(), 0..BLOBS)
            .prop_map(|(from, to, blob)| Operation::Mount { from, to, blob }),
        6 => (repository.clone(), 0..DOCUMENTS, proptest::option::of(tag.clone()))
            .prop_map(|(repository, document, tag)| Operation::Put { repository, document, tag }),
        1 => (repository.clone(), tag).prop_map(|(repository, tag)| Operation::DeleteTag { repository, tag }),
        2 => (repository.clone(), 0..DOCUMENTS)
            .prop_map(|(repository, document)| Operation::DeleteManifest { repository, document }),
        1 => (repository.clone(), 0..BLOBS)
            .prop_map(|(repository, blob)| Operation::DeleteBlob { repository, blob }),
        1 => (repository.clone(), 0..DOCUMENTS)
            .prop_map(|(repository, document)| Operation::Pin { repository, document }),
        1 => (repository, 0..DOCUMENTS)
            .prop_map(|(repository, document)| Operation::Unpin { repository, document }),
        2 => (any::<bool>(), any::<bool>())
            .prop_map(|(untagged, later)| Operation::Collect { untagged, later }),
        1 => Just(Operation::Restart),
    ]
}

/// The content of one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    blobs: BTreeSet<usize>,
    manifests: BTreeSet<usize>,
    tags: BTreeMap<usize, usize>,
    pins: BTreeSet<usize>,
}

/// The blobs of an image: its configuration is the first.
fn blobs_of(document: usize) -> Vec<usize> {
    if document < BLOBS { vec![document, (document + 1) % BLOBS] } else { Vec::new() }
}

fn children_of(document: usize) -> Vec<usize> {
    if document < BLOBS { Vec::new() } else { vec![document - BLOBS, document - BLOBS + 1] }
}

impl Model {
    /// `documents`, and their children as far as they are there.
    fn with_children(&self, documents: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        for document in documents {
            reached.insert(document);
            reached.extend(children_of(document).into_iter().filter(|child| self.manifests.contains(child)));
        }
        reached
    }

    fn blobs_below(&self, documents: &BTreeSet<usize>) -> BTreeSet<usize> {
        documents.iter().flat_map(|document| blobs_of(*document)).collect()
    }

    fn pinned(&self) -> BTreeSet<usize> {
        self.with_children(self.pins.iter().copied())
    }

    fn collect(&mut self, untagged: bool) {
        if untagged {
            let roots: Vec<usize> = self.tags.values().chain(&self.pins).copied().collect();
            let kept = self.with_children(roots);
            self.manifests.retain(|document| kept.contains(document));
        }
        let reached = self.blobs_below(&self.manifests);
        self.blobs.retain(|blob| reached.contains(blob));
    }
}

fn blob(number: usize) -> Vec<u8> {
    format!("blob {number}").into_bytes()
}

fn document(number: usize) -> (Vec<u8>, &'static str) {
    let children = children_of(number);
    if children.is_empty() {
        let blobs: Vec<Vec<u8>> = blobs_of(number).into_iter().map(blob).collect();
        (image(&blobs[0], &[&blobs[1]], &number.to_string()), IMAGE)
    } else {
        let children: Vec<Vec<u8>> = children.into_iter().map(|child| document(child).0).collect();
        (index(&[&children[0], &children[1]]), INDEX)
    }
}

fn sha256(content: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, content)
}

fn name(number: usize) -> RepositoryName {
    REPOSITORIES[number].parse().unwrap()
}

/// The content of a repository as the store shows it.
fn shown(store: &Store, repository: usize) -> Model {
    let name = name(repository);
    let digests: Vec<Digest> = (0..DOCUMENTS).map(|number| sha256(&document(number).0)).collect();
    let number_of = |digest: &Digest| digests.iter().position(|known| known == digest).unwrap();
    // Like the server.
    let resolve = |reference| {
        let remembered = store.resolve_from_memory(&name, &reference);
        remembered.map_or_else(|| store.resolve(&name, &reference), Ok)
    };
    let there = |reference: Reference| match resolve(reference) {
        Ok(manifest) => Some(number_of(&manifest.digest)),
        Err(Error::ManifestUnknown) => None,
        Err(error) => panic!("{error:?}"),
    };
    let tags = TAGS.iter().enumerate();
    Model {
        blobs: (0..BLOBS).filter(|number| store.blob_in(&name, &sha256(&blob(*number))).is_ok()).collect(),
        manifests: digests.iter().filter_map(|digest| there(Reference::Digest(digest.clone()))).collect(),
        tags: tags
            .filter_map(|(number, tag)| Some((number, there(Reference::Tag(tag.parse().unwrap()))?)))
            .collect(),
        pins: store
            .pins()
            .iter()
            .filter(|pin| pin.repository == name)
            .map(|pin| number_of(&pin.digest))
            .collect(),
    }
}

/// Runs operations on the store, whose collector's clock may be `ahead`, and on the model.
fn run(operations: Vec<Operation>, ahead: bool) -> Result<(), TestCaseError> {
    let root = directory();
    let mut store = open(root.path(), None).unwrap();
    let mut models = [Model::default(), Model::default()];
    let owner: PinOwner = "an owner".parse().unwrap();
    for operation in operations {
        apply(&mut store, root.path(), &mut models, &owner, &operation, ahead)?;
        for (repository, model) in models.iter().enumerate() {
            prop_assert_eq!(&shown(&store, repository), model, "after {:?}", operation);
        }
    }
    Ok(())
}

fn apply(
    store: &mut Arc<Store>,
    root: &std::path::Path,
    models: &mut [Model; 2],
    owner: &PinOwner,
    operation: &Operation,
    ahead: bool,
) -> Result<(), TestCaseError> {
    match *operation {
        Operation::Push { repository, blob: number } => {
            let content = blob(number);
            push(store, &name(repository), &sha256(&content), &[&content]).unwrap();
            models[repository].blobs.insert(number);
        }
        Operation::Mount { from, to, blob: number } => {
            let mounted = store.mount(&name(from), &name(to), &sha256(&blob(number))).unwrap();
            prop_assert_eq!(mounted, models[from].blobs.contains(&number));
            if mounted {
                models[to].blobs.insert(number);
            }
        }
        Operation::Put { repository, document: number, tag } => {
            let (document, kind) = document(number);
            let tags: Vec<Tag> = tag.iter().map(|tag| TAGS[*tag].parse().unwrap()).collect();
            let model = &mut models[repository];
            let complete = blobs_of(number).iter().all(|blob| model.blobs.contains(blob));
            let done = put(store, &name(repository), &tags, &document, kind);
            prop_assert_eq!(done.is_ok(), complete);
            if complete {
                model.manifests.insert(number);
                model.tags.extend(tag.map(|tag| (tag, number)));
            }
        }
        Operation::DeleteTag { repository, tag } => {
            let done = store.delete_manifest(&name(repository), &Reference::Tag(TAGS[tag].parse().unwrap()));
            prop_assert_eq!(done.is_ok(), models[repository].tags.remove(&tag).is_some());
        }
        Operation::DeleteManifest { repository, document: number } => {
            let digest = sha256(&document(number).0);
            let model = &mut models[repository];
            let may = model.manifests.contains(&number) && !model.pinned().contains(&number);
            let done = store.delete_manifest(&name(repository), &Reference::Digest(digest));
            prop_assert_eq!(done.is_ok(), may);
            if may {
                model.manifests.remove(&number);
                model.tags.retain(|_, named| *named != number);
            }
        }
        Operation::DeleteBlob { repository, blob: number } => {
            let model = &mut models[repository];
            let pinned = model.blobs_below(&model.pinned());
            let may = model.blobs.contains(&number) && !pinned.contains(&number);
            let done = store.delete_blob(&name(repository), &sha256(&blob(number)));
            prop_assert_eq!(done.is_ok(), may);
            if may {
                model.blobs.remove(&number);
            }
        }
        Operation::Pin { repository, document: number } => {
            let digest = sha256(&document(number).0);
            let done = store.pin(&name(repository), &digest, owner, SystemTime::now());
            prop_assert_eq!(done.is_ok(), models[repository].manifests.contains(&number));
            if done.is_ok() {
                models[repository].pins.insert(number);
            }
        }
        Operation::Unpin { repository, document: number } => {
            let there = store.unpin(&name(repository), &sha256(&document(number).0), owner).unwrap();
            prop_assert_eq!(there, models[repository].pins.remove(&number));
        }
        Operation::Collect { untagged, later } => {
            let now = SystemTime::now() + Duration::from_secs(if later || ahead { 24 * 3600 } else { 0 });
            let options = GcOptions { untagged, ..GcOptions::at(now) };
            let expected = store.collect(&GcOptions { dry_run: true, ..options.clone() }).unwrap();
            let report = store.collect(&options).unwrap();
            prop_assert_eq!(
                GcReport { repositories: 0, ..report },
                expected,
                "a dry run reports what a run does"
            );
            if later {
                models.iter_mut().for_each(|model| model.collect(untagged));
            }
        }
        Operation::Restart => *store = open(root, None).unwrap(),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_the_model(operations in proptest::collection::vec(operation(), 1..40)) {
        run(operations, false)?;
    }
}

#[test]
fn a_collector_that_removes_young_content_is_detected() {
    let config = ProptestConfig {
        cases: 200,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let operations = proptest::collection::vec(operation(), 1..40);
    assert!(runner.run(&operations, |operations| run(operations, true)).is_err());
}
