//! The expected state: after an acknowledged change the new state, after a failed one either.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::super::{LAYERS, MANIFESTS, Store, disk};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{Reference, RepositoryName, Tag};

/// A thing whose state a client can read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicySubject {
    Blob(RepositoryName, Digest),
    Manifest(RepositoryName, Digest),
    Tag(RepositoryName, Tag),
    Pin(RepositoryName, Digest, String),
}

/// The digest of the content a subject leads to, or none.
type State = Option<Digest>;

#[derive(Debug, Default)]
pub(crate) struct Expected {
    states: BTreeMap<PolicySubject, Vec<State>>,
    refusals: Vec<String>,
}

impl Expected {
    /// Records the result of an operation that was to bring each subject into the state beside it.
    pub(crate) fn after<T>(&mut self, done: &Result<T, Error>, changes: Vec<(PolicySubject, State)>) {
        if let Err(error) = done {
            let text = error.to_string();
            assert!(!text.is_empty());
            self.refusals.push(text);
        }
        for (subject, state) in changes {
            let allowed = self.states.entry(subject).or_insert_with(|| vec![None]);
            if done.is_ok() {
                allowed.clear();
            }
            allowed.push(state);
        }
    }

    /// Whether every operation succeeded.
    pub(crate) fn complete(&self) -> Result<(), String> {
        if self.refusals.is_empty() { Ok(()) } else { Err(format!("refused: {:?}", self.refusals)) }
    }

    /// Compares every subject with the store.
    pub(crate) fn compare(&self, store: &Store) -> Result<(), String> {
        for (subject, allowed) in &self.states {
            let shown = show(store, subject).map_err(|error| format!("{subject:?}: {error:?}"))?;
            if !allowed.contains(&shown) {
                return Err(format!("{subject:?} shows {shown:?}, not one of {allowed:?}"));
            }
        }
        Ok(())
    }
}

fn show(store: &Store, subject: &PolicySubject) -> Result<State, Error> {
    match subject {
        PolicySubject::Blob(name, digest) => absent(store.blob_in(name, digest).map(|blob| {
            let mut bytes = vec![0; blob.length() as usize];
            blob.read_exact_at(&mut bytes, 0).unwrap();
            Digest::of(digest.algorithm(), &bytes)
        })),
        PolicySubject::Manifest(name, digest) => {
            absent(store.resolve(name, &Reference::Digest(digest.clone())).map(|manifest| manifest.digest))
        }
        PolicySubject::Tag(name, tag) => {
            absent(store.resolve(name, &Reference::Tag(tag.clone())).map(|manifest| manifest.digest))
        }
        PolicySubject::Pin(name, digest, owner) => {
            let pins = store.pins();
            let there = pins.iter().any(|pin| {
                pin.repository == *name && pin.digest == *digest && pin.owner.to_string() == *owner
            });
            Ok(there.then(|| digest.clone()))
        }
    }
}

fn absent<T: Debug>(shown: Result<T, Error>) -> Result<Option<T>, Error> {
    match shown {
        Ok(shown) => Ok(Some(shown)),
        Err(Error::BlobUnknown | Error::ManifestUnknown | Error::RepositoryUnknown) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that nothing half-written is visible: content hashes to its name, every tag leads to a manifest or nowhere, and every
/// manifest with a subject is among the referrers of it.
pub(crate) fn whole(store: &Store) -> Result<(), String> {
    for algorithm in Algorithm::ALL {
        let directory = store.pool().join(algorithm.as_str());
        for file in disk::names(&directory).unwrap() {
            let file = file.unwrap();
            let actual = Digest::of(algorithm, &std::fs::read(directory.join(&file)).unwrap());
            if actual.hex() != file {
                return Err(format!("content {file} hashes to {actual}"));
            }
        }
    }
    for name in store.repositories() {
        for tag in store.tags(&name, None, usize::MAX).unwrap().tags {
            show(store, &PolicySubject::Tag(name.clone(), tag)).map_err(|error| format!("{error:?}"))?;
        }
        for digest in store.recorded(&name, MANIFESTS).unwrap() {
            let digest = digest.unwrap();
            let Ok(Some(links)) = store.links(&name, &digest) else { continue };
            let Some(subject) = links.subject else { continue };
            let listed =
                store.referrers(&name, &subject, None, None, 100).map_err(|error| format!("{error:?}"))?;
            if !listed.referrers.iter().any(|referrer| referrer.digest() == digest.to_string()) {
                return Err(format!("{digest} is not among the referrers of {subject}"));
            }
        }
    }
    Ok(())
}

/// Checks that the bytes that each repository is said to use are those of its records.
pub(crate) fn counted(store: &Store) -> Result<(), String> {
    for name in store.repositories() {
        let mut bytes = 0;
        for kind in [LAYERS, MANIFESTS] {
            for digest in store.recorded(&name, kind).unwrap() {
                bytes += store.content(&digest.unwrap()).metadata().map_or(0, |metadata| metadata.len());
            }
        }
        let used = store.bytes_of(&name);
        if used != bytes {
            return Err(format!("{name} is said to use {used} bytes and uses {bytes}"));
        }
    }
    Ok(())
}
