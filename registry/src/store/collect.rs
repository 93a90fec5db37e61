//! Garbage collection, concurrent with all other operations.
//!
//! ```text
//!  barrier up
//!  for each repository:  manifests, tags, pins --walk, no lock--> reachable content
//!                        a few records at a time, exclusive references lock:
//!                          untagged manifests   (only if requested)    record removed, top down
//!                          unreachable layers                          record removed
//!                        records fsynced ─> records of referrers removed
//!  for the pool:         all records --walk, no lock--> referenced content; the rest, one at a time:
//!                          [rename into trash/]  -> pool fsynced -> unlinked from trash/
//!  empty repositories: removed (see `vacant`)
//!  barrier down
//! ```
//!
//! A record is removed only if all of this holds: it is not reachable, not referred to since the barrier went up, and
//! older than the grace period since a client last pushed it, mounted it or got a successful response for it. The age
//! is checked again under the lock that a HEAD takes to update it: after a 200 the client finds the content for a grace
//! period, otherwise it received 404.
//!
//! A manifest that turns out to stay keeps what it lists and its referrers, and these keep theirs. So manifests are removed
//! top down (see `order`): when the first request for an index arrives during a run, either the index is gone, or nothing below
//! it is. A referrer also stays when its subject was pushed during the run.
//!
//! ```text
//!  a push to the repository is under way:  an upload session was written to within the grace period, or
//!                                          a blob that no manifest refers to was pushed, mounted or seen within it, or
//!                                          a manifest newer than all tags was put within it (an index may follow)
//!     no  ─> the grace period counts
//!     yes ─> everything is kept that was used after its beginning, and during `push_duration` before it
//! ```
//!
//! So the layers of one push may follow each other for longer than the grace period. Only the pause between two of its
//! requests is limited by it. A push that never ends is held for `push_duration` and no longer.
//!
//! The next run completes a run that a crash interrupted: records are removed before content, and content in `trash/`
//! that is referred to after all is restored. The rename is fast for any size; the unlink, which is not, takes no lock.
//! If even a rename finds no space, the file is unlinked in place.
//!
//! Memory: the graph of one repository's manifests, 16 bytes per reference, and a sixteenth of all records at a time.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::disk::{exists, metadata};
use super::locks::{Collecting, Key, References};
use super::manifests::read_record;
use super::mark::Graph;
use super::{LAYERS, MANIFESTS, Store, disk};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::RepositoryName;

/// Records removed under one lock of a repository; tests come in between any two.
const RECORDS_PER_LOCK: usize = if cfg!(test) { 1 } else { 32 };
/// Digests collected before they are removed.
const DIGESTS_PER_PASS: usize = 1024;
const SLICES: u8 = 16;

/// Options of a garbage collection.
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// The time for which unreferenced content is kept after it was last pushed, mounted or read. Default 1 h.
    /// [`Config::touch_interval`](crate::Config::touch_interval) is always added.
    pub grace: Duration,
    /// The longest time that a push takes. While a push is under way, nothing of its repository that was used within this time is
    /// removed. Default 24 h.
    pub push_duration: Duration,
    /// Whether manifests are removed that no tag leads to and that are older than the grace period. Default false.
    pub untagged: bool,
    /// Whether the collection only reports what it would remove.
    pub dry_run: bool,
    /// The current time.
    pub now: SystemTime,
}

impl GcOptions {
    /// The default options at the time `now`.
    pub fn at(now: SystemTime) -> Self {
        GcOptions {
            grace: Duration::from_secs(3600),
            push_duration: Duration::from_secs(24 * 3600),
            untagged: false,
            dry_run: false,
            now,
        }
    }
}

/// The numbers of what a garbage collection removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Manifests removed from a repository.
    pub manifests: u64,
    /// Layers and configurations removed from a repository.
    pub layers: u64,
    /// Contents removed from the pool.
    pub blobs: u64,
    /// The bytes of the removed contents.
    pub bytes: u64,
    /// Repositories that were empty and were removed. A dry run does not count them.
    pub repositories: u64,
    /// Repositories that were skipped because one of their manifests is corrupted.
    pub corrupted: Vec<RepositoryName>,
}

/// The result of the removal of a record.
enum Removal {
    /// The record was removed, of a manifest with this subject.
    Removed(Option<Digest>),
    /// A client removed it before.
    Gone,
    Stayed,
}

/// One run of the collection.
struct Run<'a> {
    store: &'a Store,
    collecting: Collecting<'a>,
    options: &'a GcOptions,
    report: GcReport,
    /// The content that a dry run would have removed from each repository.
    taken: HashMap<RepositoryName, HashSet<Key>>,
}

impl Store {
    /// Removes unreferenced content. One run at a time.
    pub(crate) fn collect(&self, options: &GcOptions) -> Result<GcReport, Error> {
        self.expect_writable()?;
        let mut run = Run {
            store: self,
            collecting: self.locks.collecting(),
            options,
            report: GcReport::default(),
            taken: HashMap::new(),
        };
        let repositories = self.repositories();
        for name in &repositories {
            run.repository(name)?;
        }
        for slice in 0..SLICES {
            run.pool(slice, &repositories)?;
        }
        if !options.dry_run {
            run.empty_trash()?;
            for name in &repositories {
                run.report.repositories += u64::from(self.remove_vacant(name)?);
            }
        }
        Ok(run.report)
    }
}

impl Run<'_> {
    fn repository(&mut self, name: &RepositoryName) -> Result<(), Error> {
        let Some(references) = self.store.references(name) else { return Ok(()) };
        // A put that does not know of the barrier has ended when this lock is free.
        drop(references.exclusive());
        let directory = self.store.repository(name);
        let session = self.store.oldest_push(name, self.grace_ends());
        let observed = || self.store.disk.observed(&directory);
        observed();
        let graph = self.store.graph(name)?;
        observed();
        if graph.incomplete {
            tracing::warn!(repository = %name, "a repository with a corrupted manifest is skipped by garbage collection");
            self.report.corrupted.push(name.clone());
            return Ok(());
        }
        let limit = self.limit(name, session, &graph)?;
        observed();
        let pinned = self.store.pinned(name)?;
        let mut kept: HashSet<Key> = if self.options.untagged {
            let tagged = self.store.tagged(name)?;
            let mut roots: Vec<Key> = tagged.into_iter().chain(pinned.iter().copied()).collect();
            for digest in graph.digests() {
                if !self.old(&self.store.manifest_record(name, digest), limit)? {
                    roots.push(Key::of(digest));
                }
            }
            observed();
            graph.kept(roots)
        } else {
            graph.digests().map(Key::of).collect()
        };
        self.remove_manifests(name, &graph, &mut kept, limit)?;
        self.store.disk.observed(&directory);

        let mut left = Vec::new();
        let taken = self.taken.get(name);
        for digest in graph.digests() {
            let key = Key::of(digest);
            let removed = taken.is_some_and(|taken| taken.contains(&key));
            if !removed && exists(&self.store.manifest_record(name, digest))? {
                left.push(key);
            }
        }
        let reached = graph.below(left);
        self.store.disk.observed(&directory);
        let mut layers = Vec::new();
        for digest in self.store.recorded(name, LAYERS)? {
            let digest = digest?;
            let key = Key::of(&digest);
            if reached.contains(&key) || pinned.contains(&key) {
                continue;
            }
            if self.old(&self.store.layer_record(name, &digest), limit)? {
                layers.push(digest);
            }
            if layers.len() == DIGESTS_PER_PASS {
                self.remove_layers(name, &std::mem::take(&mut layers), limit)?;
            }
        }
        self.store.disk.observed(&directory);
        self.remove_layers(name, &layers, limit)
    }

    /// Removes the manifests that are not `kept`. Adds to these what is needed after all, with what that keeps.
    fn remove_manifests(
        &mut self,
        name: &RepositoryName,
        graph: &Graph,
        kept: &mut HashSet<Key>,
        limit: SystemTime,
    ) -> Result<(), Error> {
        let Some(references) = self.store.references(name) else { return Ok(()) };
        let directory = self.store.repository(name);
        let (mut removed, mut referrers) = (0, Vec::new());
        for nodes in graph.top_down(kept).chunks(RECORDS_PER_LOCK) {
            self.store.disk.observed(&directory);
            let _exclusive = references.exclusive();
            for node in nodes {
                let key = Key::of(&node.digest);
                if kept.contains(&key) {
                    continue;
                }
                let pushed_subject = node.subject.is_some_and(|subject| self.collecting.kept_key(subject));
                let removal = match pushed_subject {
                    true => Removal::Stayed,
                    false => self.remove(name, &references, MANIFESTS, &node.digest, limit)?,
                };
                match removal {
                    Removal::Removed(subject) => {
                        removed += 1;
                        referrers.extend(subject.map(|subject| (node.digest.clone(), subject)));
                    }
                    Removal::Gone => {}
                    Removal::Stayed => graph.keep(kept, [key]),
                }
            }
        }
        self.report.manifests += removed;
        self.removed(name, MANIFESTS, removed)?;
        for records in referrers.chunks(RECORDS_PER_LOCK) {
            let _exclusive = references.exclusive();
            for (digest, subject) in records {
                // It may have been pushed again.
                if !exists(&self.store.manifest_record(name, digest))? {
                    self.store.remove_referrer(name, digest, subject);
                }
            }
        }
        Ok(())
    }

    /// Removes layers and configurations, unless they are needed after all.
    fn remove_layers(
        &mut self,
        name: &RepositoryName,
        digests: &[Digest],
        limit: SystemTime,
    ) -> Result<(), Error> {
        let Some(references) = self.store.references(name) else { return Ok(()) };
        let mut removed = 0;
        for records in digests.chunks(RECORDS_PER_LOCK) {
            let _exclusive = references.exclusive();
            for digest in records {
                let removal = self.remove(name, &references, LAYERS, digest, limit)?;
                removed += u64::from(matches!(removal, Removal::Removed(_)));
            }
        }
        self.report.layers += removed;
        self.removed(name, LAYERS, removed)
    }

    /// Removes a record, unless it is needed after all. The caller holds the exclusive lock of the references.
    fn remove(
        &mut self,
        name: &RepositoryName,
        references: &References,
        kind: &str,
        digest: &Digest,
        limit: SystemTime,
    ) -> Result<Removal, Error> {
        let record = match kind {
            LAYERS => self.store.layer_record(name, digest),
            _ => self.store.manifest_record(name, digest),
        };
        let _transition = self.store.locks.transition(digest);
        if self.collecting.kept(digest) {
            return Ok(Removal::Stayed);
        }
        if !exists(&record)? {
            return Ok(Removal::Gone);
        }
        if !self.old(&record, limit)? {
            return Ok(Removal::Stayed);
        }
        if self.options.dry_run {
            self.taken.entry(name.clone()).or_default().insert(Key::of(digest));
            return Ok(Removal::Removed(None));
        }
        let subject = match kind {
            MANIFESTS => read_record(&record)?.and_then(|record| self.store.subject_of(digest, &record)),
            _ => None,
        };
        {
            let _changing = references.changes.begin();
            self.store.disk.remove(&record)?;
        }
        self.store.touches.forget(&record);
        self.store.uncount(name, digest);
        Ok(Removal::Removed(subject))
    }

    /// Makes the removal of `count` records durable, before any content is removed: a record must not come back without its
    /// content.
    fn removed(&self, name: &RepositoryName, kind: &str, count: u64) -> Result<(), Error> {
        if count == 0 || self.options.dry_run {
            return Ok(());
        }
        self.store.changed(name);
        for algorithm in Algorithm::ALL {
            let directory = self.store.repository(name).join(kind).join(algorithm.as_str());
            self.store.disk.sync_directory(&directory)?;
        }
        Ok(())
    }

    /// Removes content without a record whose digest begins with the four bits of `slice`.
    fn pool(&mut self, slice: u8, repositories: &[RepositoryName]) -> Result<(), Error> {
        let mut referred = HashSet::new();
        for name in repositories {
            let taken = self.taken.get(name);
            for kind in [LAYERS, MANIFESTS] {
                for digest in self.store.recorded(name, kind)? {
                    let key = Key::of(&digest?);
                    if key.nibble() == slice && !taken.is_some_and(|taken| taken.contains(&key)) {
                        referred.insert(key);
                    }
                }
            }
        }
        self.store.disk.observed(&self.store.pool());
        let limit = self.grace_ends();
        for algorithm in Algorithm::ALL {
            for file in disk::names(&self.store.pool().join(algorithm.as_str()))? {
                let Ok(digest) = format!("{}:{}", algorithm.as_str(), file?).parse::<Digest>() else {
                    continue;
                };
                let key = Key::of(&digest);
                if key.nibble() == slice && !referred.contains(&key) {
                    self.discard(&digest, limit)?;
                }
            }
        }
        self.restore_from_trash(slice, &referred)
    }

    /// Renames one content into the trash, unless it was referred to in the meantime.
    fn discard(&mut self, digest: &Digest, limit: SystemTime) -> Result<(), Error> {
        let content = self.store.content(digest);
        let _transition = self.store.locks.transition(digest);
        if self.collecting.kept(digest) {
            return Ok(());
        }
        let Some(metadata) = metadata(&content)? else { return Ok(()) };
        if !older(&metadata, limit) {
            return Ok(());
        }
        if !self.options.dry_run {
            match self.store.disk.rename(&content, &self.store.trash().join(trash_name(digest))) {
                // If the rename finds no space, unlinking is the one operation that needs none.
                Err(Error::NoSpace) => {
                    self.store.disk.remove(&content)?;
                }
                other => other?,
            }
        }
        self.report.blobs += 1;
        self.report.bytes += metadata.len();
        Ok(())
    }

    /// Restores content that an interrupted run left in the trash and a repository refers to.
    fn restore_from_trash(&self, slice: u8, referred: &HashSet<Key>) -> Result<(), Error> {
        for file in disk::names(&self.store.trash())? {
            let file = file?;
            let Some(digest) = in_trash(&file).filter(|digest| Key::of(digest).nibble() == slice) else {
                continue;
            };
            if referred.contains(&Key::of(&digest)) && !self.options.dry_run {
                let content = self.store.content(&digest);
                let _transition = self.store.locks.transition(&digest);
                if !exists(&content)? {
                    self.store.disk.rename(&self.store.trash().join(&file), &content)?;
                    self.store.disk.sync_parent(&content)?;
                }
            }
        }
        Ok(())
    }

    fn empty_trash(&self) -> Result<(), Error> {
        for algorithm in Algorithm::ALL {
            self.store.disk.sync_directory(&self.store.pool().join(algorithm.as_str()))?;
        }
        let trash = self.store.trash();
        for file in disk::names(&trash)? {
            let file = file?;
            if in_trash(&file).is_some() {
                self.store.disk.remove(&trash.join(&file))?;
            }
        }
        Ok(())
    }

    /// The time after which records are kept in every repository.
    fn grace_ends(&self) -> SystemTime {
        let margin = self.options.grace.saturating_add(self.store.touches.margin());
        self.options.now.checked_sub(margin).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// The time after which records are kept in `name`. `session` is the beginning of its oldest active upload session,
    /// read before `graph`: a session ends after its blob is listed.
    fn limit(
        &self,
        name: &RepositoryName,
        session: Option<SystemTime>,
        graph: &Graph,
    ) -> Result<SystemTime, Error> {
        let limit = self.grace_ends();
        let began = match session {
            Some(began) => began.min(self.options.now),
            None if self.unfinished(name, graph, limit)? => self.options.now,
            None => return Ok(limit),
        };
        let held = self.options.push_duration.saturating_add(self.store.touches.margin());
        Ok(limit.min(began.checked_sub(held).unwrap_or(SystemTime::UNIX_EPOCH)))
    }

    /// Whether something younger than `limit` waits for a manifest that refers to it, or for a tag.
    fn unfinished(&self, name: &RepositoryName, graph: &Graph, limit: SystemTime) -> Result<bool, Error> {
        let reached = graph.below(graph.digests().map(Key::of));
        for digest in self.store.recorded(name, LAYERS)? {
            let digest = digest?;
            let record = self.store.layer_record(name, &digest);
            if !reached.contains(&Key::of(&digest)) && exists(&record)? && !self.old(&record, limit)? {
                return Ok(true);
            }
        }
        if !self.options.untagged {
            return Ok(false);
        }
        let tagged = graph.kept(self.store.tagged(name)?);
        let newest_tag = self.store.newest_tag(name)?;
        for digest in graph.digests().filter(|digest| !tagged.contains(&Key::of(digest))) {
            let Some(metadata) = metadata(&self.store.manifest_record(name, digest))? else { continue };
            let put =
                metadata.modified().map_err(Error::io("read the age of", &self.store.repository(name)))?;
            if put >= limit && newest_tag.is_none_or(|newest| put > newest) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn old(&self, record: &Path, limit: SystemTime) -> Result<bool, Error> {
        let old = metadata(record)?.is_some_and(|metadata| older(&metadata, limit));
        Ok(old && !self.store.touches.younger(record, limit))
    }
}

fn older(metadata: &Metadata, limit: SystemTime) -> bool {
    metadata.modified().is_ok_and(|modified| modified < limit)
}

fn trash_name(digest: &Digest) -> PathBuf {
    format!("{}-{}", digest.algorithm().as_str(), digest.hex()).into()
}

fn in_trash(file: &str) -> Option<Digest> {
    file.replacen('-', ":", 1).parse().ok()
}
