//! One hierarchy of the image: the tree with the identifiers of a namespace.
//!
//! ```text
//! directories in path-table order: level, number of the parent, identifier  (6.9.1)
//! entries of a directory in the order of 9.3, or of code units in Joliet
//! ```
//!
//! Visiting directories in the order found and appending the sorted subdirectories of each *is* path-table order.

use crate::ecma119::path_table::MAX_DIRECTORIES;
use crate::ecma119::{Hierarchy, identifier, record};
use crate::error::PlanError;
use crate::joliet;
use crate::options::Options;
use crate::rockridge;

use super::order::{Child, Nodes};

/// 6.8.2.1: the levels of directories.
const MAX_LEVEL: usize = 8;
/// 6.8.2.1: the identifiers of a path, with one byte between them.
const MAX_PATH: usize = 255;

/// A hierarchy with its identifiers.
pub(crate) struct Named {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) directories: Vec<Directory>,
}

pub(crate) struct Directory {
    /// The index in [`Nodes::directories`].
    pub(crate) node: usize,
    /// The index in [`Named::directories`]; the root is its own parent.
    pub(crate) parent: usize,
    pub(crate) identifier: Box<[u8]>,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) struct Entry {
    pub(crate) identifier: Box<[u8]>,
    pub(crate) target: Target,
}

/// What an entry leads to.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The index in [`Named::directories`].
    Directory(usize),
    /// The index in [`Nodes::files`].
    File(usize),
}

impl Named {
    /// Names the nodes for a hierarchy.
    pub(crate) fn new(nodes: &Nodes, hierarchy: Hierarchy, options: &Options) -> Result<Named, PlanError> {
        let count = nodes.directories.len();
        if count > MAX_DIRECTORIES {
            return Err(PlanError::TooManyDirectories { count, limit: MAX_DIRECTORIES });
        }
        let root = Directory { node: 0, parent: 0, identifier: record::SELF.into(), entries: Vec::new() };
        let mut directories = vec![root];
        // The bytes that the identifiers on the way to each directory take, each with one more.
        let mut path_lengths = vec![0];
        let mut current = 0;
        while current < directories.len() {
            let node = directories[current].node;
            let mut children = match hierarchy {
                Hierarchy::Primary => primary(nodes, node, path_lengths[current], options)?,
                Hierarchy::Joliet => supplementary(nodes, node)?,
            };
            children.sort_unstable_by(|(left, _), (right, _)| match hierarchy {
                Hierarchy::Primary => identifier::sort_key(left).cmp(&identifier::sort_key(right)),
                Hierarchy::Joliet => left.cmp(right),
            });
            let mut entries = Vec::with_capacity(children.len());
            for (identifier, child) in children {
                let identifier = identifier.into_boxed_slice();
                let target = match child {
                    Child::File(file) => Target::File(file),
                    Child::Directory(node) => {
                        path_lengths.push(path_lengths[current] + identifier.len() + 1);
                        let (identifier, entries) = (identifier.clone(), Vec::new());
                        directories.push(Directory { node, parent: current, identifier, entries });
                        Target::Directory(directories.len() - 1)
                    }
                };
                entries.push(Entry { identifier, target });
            }
            directories[current].entries = entries;
            current += 1;
        }
        Ok(Named { hierarchy, directories })
    }
}

/// The identifiers of a directory's children in ISO 9660, and their limits.
fn primary(
    nodes: &Nodes,
    node: usize,
    path_length: usize,
    options: &Options,
) -> Result<Vec<(Vec<u8>, Child)>, PlanError> {
    let directory = &nodes.directories[node];
    if directory.level > MAX_LEVEL {
        let (path, level) = (nodes.directory_path(node), directory.level);
        return Err(PlanError::TooDeep { path, level, limit: MAX_LEVEL });
    }
    let names: Vec<(&str, bool)> = directory
        .children
        .iter()
        .map(|child| (nodes.name(*child), matches!(child, Child::Directory(_))))
        .collect();
    let mut named = Vec::with_capacity(names.len());
    for ((identifier, child), (name, _)) in
        identifier::assign(&names).into_iter().zip(&directory.children).zip(&names)
    {
        let length = path_length + identifier.len();
        if length > MAX_PATH {
            return Err(PlanError::PathTooLong { path: nodes.path(*child), length, limit: MAX_PATH });
        }
        if options.rock_ridge && name.len() > rockridge::NAME_LIMIT {
            return Err(PlanError::NameTooLong {
                path: nodes.path(*child),
                namespace: "Rock Ridge",
                length: name.len(),
                limit: rockridge::NAME_LIMIT,
                unit: "bytes",
            });
        }
        named.push((identifier, *child));
    }
    Ok(named)
}

/// The identifiers of a directory's children in Joliet. Different names have different identifiers.
fn supplementary(nodes: &Nodes, node: usize) -> Result<Vec<(Vec<u8>, Child)>, PlanError> {
    let name = |child: &Child| Ok((joliet::identifier(nodes.name(*child), || nodes.path(*child))?, *child));
    nodes.directories[node].children.iter().map(name).collect()
}
