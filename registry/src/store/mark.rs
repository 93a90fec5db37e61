//! Reachability: the manifests of one repository as a graph.
//!
//! ```text
//!  tag, pin --> index --manifests--> image --config, layers--> blobs
//!                 ^                    ^
//!                 +------subject-------+----  signatures and other referrers stay while their subject stays
//! ```
//!
//! Everything that a manifest lists is kept (see `links`). A manifest that is missing or corrupted could refer to anything: its
//! repository is not collected until the manifest is pushed again or deleted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::SystemTime;

use super::locks::Key;
use super::manifests::read_record;
use super::order::top_down;
use super::{MANIFESTS, Store, disk};
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::links::Links;
use crate::name::RepositoryName;

/// The manifests of a repository and their references.
pub(super) struct Graph {
    manifests: BTreeMap<Key, Node>,
    /// The manifests by their subject, also by one that is missing.
    referrers: HashMap<Key, Vec<Key>>,
    /// Whether a manifest could not be read.
    pub(super) incomplete: bool,
}

pub(super) struct Node {
    pub(super) digest: Digest,
    /// Blobs and manifests: the records distinguish them.
    content: Vec<Key>,
    pub(super) subject: Option<Key>,
}

impl Graph {
    /// All manifests that stay when `roots` stay: the roots, what they list, and the referrers of any of these.
    pub(super) fn kept(&self, roots: impl IntoIterator<Item = Key>) -> HashSet<Key> {
        let mut kept = HashSet::new();
        self.keep(&mut kept, roots);
        kept
    }

    /// Adds `roots` to what stays, with all that stays because of them.
    pub(super) fn keep(&self, kept: &mut HashSet<Key>, roots: impl IntoIterator<Item = Key>) {
        self.walk(kept, roots, |key| self.referrers.get(&key).into_iter().flatten().copied());
    }

    /// The manifests that are not `kept`, each after all that would keep it (see `order`).
    pub(super) fn top_down(&self, kept: &HashSet<Key>) -> Vec<&Node> {
        let nodes: Vec<(&Key, &Node)> =
            self.manifests.iter().filter(|(key, _)| !kept.contains(key)).collect();
        let places: HashMap<Key, usize> =
            nodes.iter().enumerate().map(|(place, (key, _))| (**key, place)).collect();
        let among =
            |keys: &[Key]| keys.iter().filter_map(|key| places.get(key).copied()).collect::<Vec<usize>>();
        let lists: Vec<Vec<usize>> = nodes.iter().map(|(_, node)| among(&node.content)).collect();
        let referrers: Vec<Vec<usize>> = nodes
            .iter()
            .map(|(key, _)| self.referrers.get(key).map_or_else(Vec::new, |keys| among(keys)))
            .collect();
        top_down(&lists, &referrers).into_iter().map(|place| nodes[place].1).collect()
    }

    /// All content below `roots`, including the roots and blobs.
    pub(super) fn below(&self, roots: impl IntoIterator<Item = Key>) -> HashSet<Key> {
        let mut reached = HashSet::new();
        self.walk(&mut reached, roots, |_| std::iter::empty());
        let manifests: Vec<&Node> = reached.iter().filter_map(|key| self.manifests.get(key)).collect();
        reached.extend(manifests.into_iter().flat_map(|node| node.content.iter().copied()));
        reached
    }

    pub(super) fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.manifests.values().map(|node| &node.digest)
    }

    fn walk<I: Iterator<Item = Key>>(
        &self,
        seen: &mut HashSet<Key>,
        roots: impl IntoIterator<Item = Key>,
        more: impl Fn(Key) -> I,
    ) {
        let mut open: Vec<Key> = roots.into_iter().filter(|root| seen.insert(*root)).collect();
        while let Some(key) = open.pop() {
            let Some(node) = self.manifests.get(&key) else { continue };
            let children = node.content.iter().copied().filter(|child| self.manifests.contains_key(child));
            open.extend(children.chain(more(key)).filter(|next| seen.insert(*next)));
        }
    }
}

impl Store {
    /// Reads every manifest of a repository.
    pub(super) fn graph(&self, name: &RepositoryName) -> Result<Graph, Error> {
        let mut graph = Graph { manifests: BTreeMap::new(), referrers: HashMap::new(), incomplete: false };
        for digest in self.recorded(name, MANIFESTS)? {
            let digest = digest?;
            let links = match self.links(name, &digest) {
                Ok(Some(links)) => links,
                // Deleted since it was listed.
                Ok(None) => continue,
                Err(Error::Corrupted(_) | Error::ManifestUnknown) => {
                    graph.incomplete = true;
                    Links::default()
                }
                Err(error) => return Err(error),
            };
            let node = Node {
                content: links.content.iter().map(Key::of).collect(),
                subject: links.subject.as_ref().map(Key::of),
                digest,
            };
            let key = Key::of(&node.digest);
            if let Some(subject) = node.subject {
                graph.referrers.entry(subject).or_default().push(key);
            }
            graph.manifests.insert(key, node);
        }
        Ok(graph)
    }

    /// The references of a manifest of the repository; `None` when the repository does not have it.
    pub(super) fn links(&self, name: &RepositoryName, digest: &Digest) -> Result<Option<Links>, Error> {
        let Some(record) = read_record(&self.manifest_record(name, digest))? else { return Ok(None) };
        let document = self.document(digest, record.size)?.ok_or(Error::ManifestUnknown)?;
        Links::read_stored(&document).map(Some).map_err(|_| Error::Corrupted(digest.clone()))
    }

    /// The digests of a repository's records of `kind`, in no order.
    pub(super) fn recorded(
        &self,
        name: &RepositoryName,
        kind: &str,
    ) -> Result<impl Iterator<Item = Result<Digest, Error>>, Error> {
        let mut lists = Vec::new();
        for algorithm in Algorithm::ALL {
            let directory = self.repository(name).join(kind).join(algorithm.as_str());
            lists.push(disk::names(&directory)?.map(move |file| (algorithm, file)));
        }
        Ok(lists.into_iter().flatten().filter_map(|(algorithm, file)| match file {
            Ok(file) => format!("{}:{file}", algorithm.as_str()).parse().ok().map(Ok),
            Err(error) => Some(Err(error)),
        }))
    }

    /// The manifests that the tags of a repository name.
    pub(super) fn tagged(&self, name: &RepositoryName) -> Result<HashSet<Key>, Error> {
        let directory = self.tags_directory(name);
        let mut tagged = HashSet::new();
        for file in disk::names(&directory)? {
            if let Some(record) = read_record(&directory.join(file?))? {
                tagged.insert(Key::of(&record.digest));
            }
        }
        Ok(tagged)
    }

    /// The time at which a tag of the repository was last set.
    pub(super) fn newest_tag(&self, name: &RepositoryName) -> Result<Option<SystemTime>, Error> {
        let directory = self.tags_directory(name);
        let mut newest = None;
        for file in disk::names(&directory)? {
            // A tag that was just deleted has no time.
            newest = newest.max(directory.join(file?).metadata().and_then(|found| found.modified()).ok());
        }
        Ok(newest)
    }
}
