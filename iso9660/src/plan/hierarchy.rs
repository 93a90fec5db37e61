//! One hierarchy of the image: the tree with the identifiers of a namespace.
//!
//! ```text
//! directories in path-table order: level, number of the parent, identifier  (6.9.1)
//! entries of a directory in the order of 9.3, of code units in Joliet, of bytes in ISO 9660:1999
//!
//! relocation:  1/2/3/4/5/6/7/8/leaf     the directory `8` would be on level 9
//!              1/2/3/4/5/6/7/8          an empty file that points to it                                (CL)
//!              RR_MOVED/8/leaf          the directory, marked as relocated (RE), with its parent       (PL)
//! ```
//!
//! Relocated directories are stored before the others, and a directory relocated from inside a relocated one before
//! that one. Readers that never seek back, such as libarchive, take directories in the order of their addresses: they
//! have read a relocated directory completely when they find the place where it belongs.
//!
//! Visiting directories in the order found and appending the sorted subdirectories of each results in path-table order,
//! and numbers the subdirectories of a directory consecutively. Therefore only directories are stored; the entries of a
//! directory are computed when needed, always in the same order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ecma119::path_table::MAX_DIRECTORIES;
use crate::ecma119::{Hierarchy, identifier, record};
use crate::error::PlanError;
use crate::joliet;
use crate::options::{DeepDirectories, ImageOptions, JolietNames};
use crate::rockridge;

use super::order::{Child, Nodes};

/// 6.8.2.1: the deepest level of directories.
const MAX_LEVEL: u32 = 8;
/// 6.8.2.1: the longest path, as the sum of its identifiers with one byte between them.
const MAX_PATH: usize = 255;
/// The directory for relocated directories, on level 2. Readers of Rock Ridge know its name.
pub(crate) const RELOCATION: &str = "rr_moved";
/// ISO 9660:1999, 7.5.1: the longest name in bytes.
const ENHANCED_NAME: usize = 207;

/// A hierarchy with its identifiers.
pub(crate) struct Named {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) directories: Vec<Directory>,
    /// The relocated directories in the order of their names, as indices in [`Nodes::directories`].
    moved: Vec<u32>,
    /// The relocated directories in the order of their names, each with its index in [`Named::directories`].
    pub(crate) relocated: BTreeMap<u32, u32>,
}

pub(crate) struct Directory {
    /// The index in [`Nodes::directories`]; `None` for the relocation directory.
    pub(crate) node: Option<u32>,
    /// The index of the parent in [`Named::directories`]; the root is its own parent.
    pub(crate) parent: u32,
    /// The index of the directory from which this one was relocated.
    pub(crate) moved_from: Option<u32>,
    /// The index of the first subdirectory, if there is one.
    first_child: u32,
    pub(crate) identifier: Box<[u8]>,
}

pub(crate) struct Entry {
    pub(crate) identifier: Vec<u8>,
    pub(crate) target: Target,
}

/// The target of an entry.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The index in [`Named::directories`].
    Directory(u32),
    /// The index in [`Nodes::directories`] of a directory that was relocated.
    Moved(u32),
    /// The index in [`Nodes::files`].
    File(u32),
    /// The index in [`Nodes::links`].
    Link(u32),
}

/// The content of a directory of this hierarchy, before identifiers are assigned.
#[derive(Clone, Copy)]
enum Member {
    Child(Child),
    /// A directory that was relocated: only its name remains here.
    Moved(u32),
    /// The relocation directory.
    Relocation,
}

impl Named {
    /// Assigns the identifiers of a hierarchy.
    pub(crate) fn new(
        nodes: &Nodes,
        hierarchy: Hierarchy,
        options: &ImageOptions,
    ) -> Result<Named, PlanError> {
        let moved = match hierarchy {
            Hierarchy::Primary => relocations(nodes, options)?,
            Hierarchy::Joliet | Hierarchy::Enhanced => Vec::new(),
        };
        let count = nodes.directories.len() + usize::from(!moved.is_empty());
        if count > MAX_DIRECTORIES {
            return Err(PlanError::TooManyDirectories { count, limit: MAX_DIRECTORIES });
        }
        let directories = Vec::with_capacity(count);
        let mut named = Named { hierarchy, directories, moved, relocated: BTreeMap::new() };
        named.add(Some(0), 0, record::SELF);
        // The sum of the identifiers from the root to each directory, each with one byte more.
        let mut path_lengths = vec![0];
        let mut origins = Vec::new();
        let mut current = 0;
        while current < named.directories.len() {
            named.directories[current].first_child = number(named.directories.len());
            for (identifier, member) in named.identified(nodes, options, current)? {
                let length = path_lengths[current] + identifier.len();
                if hierarchy == Hierarchy::Primary && length > MAX_PATH {
                    return Err(PlanError::PathTooLong {
                        path: path_of(nodes, member),
                        length,
                        limit: MAX_PATH,
                    });
                }
                let node = match member {
                    Member::Child(Child::Directory(node)) => Some(node),
                    Member::Relocation => None,
                    Member::Moved(node) => {
                        origins.push((node, number(current)));
                        continue;
                    }
                    Member::Child(_) => continue,
                };
                path_lengths.push(length + 1);
                let index = named.add(node, number(current), &identifier);
                if let (None, Some(node)) = (named.directories[current].node, node) {
                    named.relocated.insert(node, index);
                }
            }
            current += 1;
        }
        for (node, origin) in origins {
            if let Some(index) = named.relocated.get(&node) {
                named.directories[*index as usize].moved_from = Some(origin);
            }
        }
        Ok(named)
    }

    /// Returns the entries of a directory in their order.
    pub(crate) fn entries(
        &self,
        nodes: &Nodes,
        options: &ImageOptions,
        index: usize,
    ) -> Result<Vec<Entry>, PlanError> {
        let mut next = self.directories[index].first_child;
        let entry = |(identifier, member)| {
            let target = match member {
                Member::Child(Child::File(file)) => Target::File(file),
                Member::Child(Child::Link(link)) => Target::Link(link),
                Member::Moved(node) => Target::Moved(node),
                Member::Child(Child::Directory(_)) | Member::Relocation => {
                    next += 1;
                    Target::Directory(next - 1)
                }
            };
            Entry { identifier, target }
        };
        Ok(self.identified(nodes, options, index)?.into_iter().map(entry).collect())
    }

    /// Returns the directories in the order of their addresses. Without relocated directories this is path-table order.
    pub(crate) fn placement(&self, nodes: &Nodes) -> Vec<usize> {
        let group = |index: &usize| match self.directories[*index].node {
            None => (1, Reverse(0)),
            Some(0) => (0, Reverse(0)),
            Some(_) if self.moved.is_empty() => (2, Reverse(0)),
            Some(node) => (2, Reverse(moves(nodes, node))),
        };
        let mut order: Vec<usize> = (0..self.directories.len()).collect();
        order.sort_by_key(group);
        order
    }

    fn add(&mut self, node: Option<u32>, parent: u32, identifier: &[u8]) -> u32 {
        let (moved_from, first_child, identifier) = (None, 0, identifier.into());
        self.directories.push(Directory { node, parent, moved_from, first_child, identifier });
        number(self.directories.len() - 1)
    }

    /// Returns the members of a directory with their identifiers, in the order of these.
    fn identified(
        &self,
        nodes: &Nodes,
        options: &ImageOptions,
        index: usize,
    ) -> Result<Vec<(Vec<u8>, Member)>, PlanError> {
        let members = self.members(nodes, index);
        let mut children = match self.hierarchy {
            Hierarchy::Primary => primary(nodes, &members, options)?,
            Hierarchy::Joliet => supplementary(nodes, &members, options.joliet_names)?,
            Hierarchy::Enhanced => enhanced(nodes, &members)?,
        };
        children.sort_unstable_by(|(left, _), (right, _)| match self.hierarchy {
            Hierarchy::Primary => identifier::sort_key(left).cmp(&identifier::sort_key(right)),
            Hierarchy::Joliet | Hierarchy::Enhanced => left.cmp(right),
        });
        Ok(children)
    }

    /// Returns the content of the directory with an index, in byte-wise order of the names.
    fn members(&self, nodes: &Nodes, index: usize) -> Vec<Member> {
        let moved = &self.moved;
        let Some(node) = self.directories[index].node else {
            return moved.iter().map(|node| Member::Child(Child::Directory(*node))).collect();
        };
        let children = &nodes.directories[node as usize].children;
        let mut members: Vec<Member> = Vec::with_capacity(children.len() + 1);
        for child in children {
            match *child {
                Child::Directory(child) if is_relocated(nodes, child) && !moved.is_empty() => {
                    members.push(Member::Moved(child));
                }
                // Only Rock Ridge can represent a link, and only the primary hierarchy has Rock Ridge.
                Child::Link(_) if self.hierarchy != Hierarchy::Primary => {}
                child => members.push(Member::Child(child)),
            }
        }
        if node == 0 && !moved.is_empty() {
            let at = members.partition_point(|member| name_of(nodes, *member) < RELOCATION);
            members.insert(at, Member::Relocation);
        }
        members
    }
}

/// The index of a directory. There are at most 65,535.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn name_of(nodes: &Nodes, member: Member) -> &str {
    match member {
        Member::Child(child) => nodes.name(child),
        Member::Moved(node) => nodes.name(Child::Directory(node)),
        Member::Relocation => RELOCATION,
    }
}

fn path_of(nodes: &Nodes, member: Member) -> String {
    match member {
        Member::Child(child) => nodes.path(child),
        Member::Moved(node) => nodes.path(Child::Directory(node)),
        Member::Relocation => RELOCATION.to_owned(),
    }
}

/// Returns the directories to relocate, in the order of their names. A relocated directory is on level 3, so every
/// sixth level below it is relocated too.
fn relocations(nodes: &Nodes, options: &ImageOptions) -> Result<Vec<u32>, PlanError> {
    let deepest = nodes.directories.iter().position(|directory| directory.level > MAX_LEVEL);
    let Some(first) = deepest else { return Ok(Vec::new()) };
    let possible = options.rock_ridge && options.depth == DeepDirectories::Relocate;
    if !possible {
        let path = nodes.path(Child::Directory(number(first)));
        return Err(PlanError::TooDeep {
            path,
            level: nodes.directories[first].level as usize,
            limit: MAX_LEVEL as usize,
        });
    }
    let root = &nodes.directories[0].children;
    if let Some(child) = root.iter().find(|child| nodes.name(**child).eq_ignore_ascii_case(RELOCATION)) {
        return Err(PlanError::RelocationName { path: nodes.path(*child) });
    }
    let mut moved: Vec<u32> =
        (0..number(nodes.directories.len())).filter(|node| is_relocated(nodes, *node)).collect();
    // The sort is stable: equal names stay in the order of the tree.
    moved
        .sort_by(|left, right| nodes.name(Child::Directory(*left)).cmp(nodes.name(Child::Directory(*right))));
    Ok(moved)
}

/// Returns whether a directory is on a relocated level: 9, then every sixth, because a relocated directory is on level
/// 3.
fn is_relocated(nodes: &Nodes, node: u32) -> bool {
    let level = nodes.directories[node as usize].level;
    level > MAX_LEVEL && (level - MAX_LEVEL - 1).is_multiple_of(MAX_LEVEL - 2)
}

/// Returns the number of relocated directories on the path to a directory, including itself.
fn moves(nodes: &Nodes, node: u32) -> u32 {
    let level = nodes.directories[node as usize].level;
    level.checked_sub(MAX_LEVEL + 1).map_or(0, |below| below / (MAX_LEVEL - 2) + 1)
}

/// Returns the identifiers of a directory's members in ISO 9660, and checks their limits.
fn primary(
    nodes: &Nodes,
    members: &[Member],
    options: &ImageOptions,
) -> Result<Vec<(Vec<u8>, Member)>, PlanError> {
    let directory =
        |member: &Member| matches!(member, Member::Child(Child::Directory(_)) | Member::Relocation);
    let names: Vec<(&str, bool)> =
        members.iter().map(|member| (name_of(nodes, *member), directory(member))).collect();
    let mut named = Vec::with_capacity(names.len());
    for ((identifier, member), (name, _)) in
        identifier::assign(&names, options.level).into_iter().zip(members).zip(&names)
    {
        let path = || path_of(nodes, *member);
        if options.rock_ridge && name.len() > rockridge::WRITTEN_NAME_LIMIT {
            return Err(PlanError::NameTooLong {
                path: path(),
                namespace: "Rock Ridge",
                length: name.len(),
                limit: rockridge::WRITTEN_NAME_LIMIT,
                unit: "bytes",
            });
        }
        if !options.rock_ridge && matches!(member, Member::Child(Child::Link(_))) {
            return Err(PlanError::SymlinkWithoutRockRidge { path: path() });
        }
        named.push((identifier, *member));
    }
    Ok(named)
}

/// Returns the identifiers of a directory's members in Joliet. Different names have different identifiers.
fn supplementary(
    nodes: &Nodes,
    members: &[Member],
    names: JolietNames,
) -> Result<Vec<(Vec<u8>, Member)>, PlanError> {
    let mut named = Vec::with_capacity(members.len());
    let mut folded = BTreeMap::new();
    for member in members {
        let path = || path_of(nodes, *member);
        let name = name_of(nodes, *member);
        let identifier = joliet::identifier(name, names, path)?;
        if names == JolietNames::Strict {
            let (length, limit) = (path().encode_utf16().count(), joliet::STRICT_PATH_LIMIT);
            if length > limit {
                return Err(PlanError::JolietPathTooLong { path: path(), length, limit });
            }
            if let Some(other) = folded.insert(name.to_lowercase(), *member) {
                return Err(PlanError::SameInJoliet { path: path(), other: path_of(nodes, other) });
            }
        }
        named.push((identifier, *member));
    }
    Ok(named)
}

/// Returns the identifiers of a directory's members in ISO 9660:1999, which are their names.
fn enhanced(nodes: &Nodes, members: &[Member]) -> Result<Vec<(Vec<u8>, Member)>, PlanError> {
    let name = |member: &Member| {
        let name = name_of(nodes, *member);
        if name.len() > ENHANCED_NAME {
            return Err(PlanError::NameTooLong {
                path: path_of(nodes, *member),
                namespace: "ISO 9660:1999",
                length: name.len(),
                limit: ENHANCED_NAME,
                unit: "bytes",
            });
        }
        Ok((name.as_bytes().to_vec(), *member))
    };
    members.iter().map(name).collect()
}
