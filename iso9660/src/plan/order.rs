//! The nodes of a tree in an order that depends only on their names.
//!
//! ```text
//! level by level; inside a level by parent, inside a parent by the bytes of the name
//! directories: 0 = root, 1.. ; files: 0.. and symbolic links: 0.. in the order of their directories
//! ```
//!
//! All numbers of an image (serial numbers, addresses of contents, suffixes of colliding names) follow this order, so
//! the order of insertion has no effect on the bytes. Lengths are read once, here. Names and contents stay in the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::PlanError;
use crate::tree::{Content, Node, Text, Tree};

/// The nodes of a tree in order.
pub(crate) struct Nodes {
    names: Arc<String>,
    contents: Arc<Vec<Content>>,
    pub(crate) directories: Vec<Directory>,
    pub(crate) files: Vec<File>,
    pub(crate) links: Vec<Link>,
    /// The contents that several files share: the first file, and the number of files.
    shared: BTreeMap<u32, (u32, u32)>,
}

pub(crate) struct Directory {
    name: Text,
    /// The root is its own parent.
    pub(crate) parent: u32,
    /// The root is on level 1.
    pub(crate) level: u32,
    /// In byte-wise order of their names.
    pub(crate) children: Vec<Child>,
    /// The number of children that are directories.
    pub(crate) subdirectories: u32,
}

pub(crate) struct File {
    name: Text,
    parent: u32,
    content: u32,
    pub(crate) len: u64,
}

pub(crate) struct Link {
    name: Text,
    parent: u32,
    target: Text,
}

/// The index of a node in one of the lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Child {
    Directory(u32),
    File(u32),
    Link(u32),
}

impl Nodes {
    /// Sorts the nodes of a tree.
    pub(crate) fn new(tree: &Tree) -> Result<Nodes, PlanError> {
        let mut nodes = Nodes {
            names: tree.names.clone(),
            contents: tree.contents.clone(),
            directories: Vec::with_capacity(tree.directories.len()),
            files: Vec::with_capacity(tree.contents.len()),
            links: Vec::new(),
            shared: BTreeMap::new(),
        };
        // The first file of each content.
        let mut owners = vec![u32::MAX; tree.contents.len()];
        let root = Text::default();
        let (children, subdirectories) = (Vec::new(), 0);
        nodes.directories.push(Directory { name: root, parent: 0, level: 1, children, subdirectories });
        // The index in the tree of each directory that is already in the order.
        let mut origins = vec![0];
        let mut current = 0;
        while let Some(origin) = origins.get(current).copied() {
            let level = nodes.directories[current].level + 1;
            let parent = number(current)?;
            let found = tree.directories[origin as usize].in_order(&tree.names);
            let mut children = Vec::with_capacity(found.len());
            for child in found {
                let name = child.name;
                children.push(match child.node {
                    Node::Directory(index) => {
                        origins.push(index);
                        let (children, subdirectories) = (Vec::new(), 0);
                        nodes.directories.push(Directory { name, parent, level, children, subdirectories });
                        nodes.directories[current].subdirectories += 1;
                        Child::Directory(number(nodes.directories.len() - 1)?)
                    }
                    Node::File(content) => {
                        let file = number(nodes.files.len())?;
                        let len = nodes.contents[content as usize].len();
                        nodes.files.push(File { name, parent, content, len });
                        match &mut owners[content as usize] {
                            vacant @ &mut u32::MAX => *vacant = file,
                            owner => nodes.shared.entry(content).or_insert((*owner, 1)).1 += 1,
                        }
                        Child::File(file)
                    }
                    Node::Link(target) => {
                        let target = tree.targets[target as usize];
                        nodes.links.push(Link { name, parent, target });
                        Child::Link(number(nodes.links.len() - 1)?)
                    }
                });
            }
            nodes.directories[current].children = children;
            current += 1;
        }
        Ok(nodes)
    }

    /// Returns the content of a file.
    pub(crate) fn content(&self, file: u32) -> &Content {
        &self.contents[self.files[file as usize].content as usize]
    }

    /// Returns the first file that has the content of this file.
    pub(crate) fn owner(&self, file: u32) -> u32 {
        self.shared.get(&self.files[file as usize].content).map_or(file, |(owner, _)| *owner)
    }

    /// Returns the number of names of a file's content.
    pub(crate) fn names_of_content(&self, file: u32) -> u32 {
        self.shared.get(&self.files[file as usize].content).map_or(1, |(_, count)| *count)
    }

    /// Returns whether a file is executable.
    pub(crate) fn is_executable(&self, file: u32) -> bool {
        self.files[file as usize].name.flag()
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn target(&self, link: u32) -> &str {
        self.links[link as usize].target.of(&self.names)
    }

    /// Returns the name of a node.
    pub(crate) fn name(&self, child: Child) -> &str {
        self.name_and_parent(child).0
    }

    fn name_and_parent(&self, child: Child) -> (&str, u32) {
        let (name, parent) = match child {
            Child::Directory(index) => {
                let directory = &self.directories[index as usize];
                (directory.name, directory.parent)
            }
            Child::File(index) => {
                let file = &self.files[index as usize];
                (file.name, file.parent)
            }
            Child::Link(index) => {
                let link = &self.links[index as usize];
                (link.name, link.parent)
            }
        };
        (name.of(&self.names), parent)
    }

    /// Returns the path of a node, empty for the root.
    pub(crate) fn path(&self, child: Child) -> String {
        let mut names = Vec::new();
        let mut current = child;
        while current != Child::Directory(0) {
            let (name, parent) = self.name_and_parent(current);
            names.push(name);
            current = Child::Directory(parent);
        }
        names.reverse();
        names.join("/")
    }

    /// Returns the index of the file with a path, if there is one. A leading `/` is allowed, as in [`Tree::add_file`].
    pub(crate) fn find_file(&self, path: &str) -> Option<u32> {
        let mut current = 0;
        let mut names = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
        while let Some(name) = names.next() {
            let children = &self.directories[current as usize].children;
            let at = children.binary_search_by(|child| self.name(*child).cmp(name)).ok()?;
            match children[at] {
                Child::Directory(index) => current = index,
                Child::File(index) => return names.peek().is_none().then_some(index),
                Child::Link(_) => return None,
            }
        }
        None
    }
}

/// Converts an index to 32 bits. A tree with more nodes does not fit into an image.
fn number(index: usize) -> Result<u32, PlanError> {
    u32::try_from(index).map_err(|_| PlanError::TooLarge { path: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_depend_on_the_order_of_insertion() {
        let paths = ["b/y", "a/z", "b/x/deep", "c", "a/a"];
        let order = |paths: &[&str]| {
            let mut tree = Tree::new();
            for path in paths {
                tree.add_file(path, "").unwrap();
            }
            let nodes = Nodes::new(&tree).unwrap();
            (0..5).map(|file| nodes.path(Child::File(file))).collect::<Vec<_>>()
        };
        let mut reversed = paths;
        reversed.reverse();
        assert_eq!(order(&paths), ["c", "a/a", "a/z", "b/y", "b/x/deep"]);
        assert_eq!(order(&paths), order(&reversed));
    }

    #[test]
    fn the_owner_of_a_shared_content_is_first_in_order_not_first_added() {
        let mut tree = Tree::new();
        tree.add_file("z", "shared").unwrap().add_file("m", "own").unwrap().add_hard_link("a", "z").unwrap();
        let nodes = Nodes::new(&tree).unwrap();
        let found: Vec<_> = (0..3).map(|file| (nodes.owner(file), nodes.names_of_content(file))).collect();
        assert_eq!(found, [(0, 2), (1, 1), (0, 2)]);
    }

    #[test]
    fn files_are_found_by_path_and_directories_are_not() {
        let mut tree = Tree::new();
        tree.add_file("boot/efi.img", "").unwrap().add_symlink("link", "boot/efi.img").unwrap();
        let nodes = Nodes::new(&tree).unwrap();
        assert_eq!(nodes.find_file("/boot/efi.img"), Some(0));
        for path in ["boot", "boot/efi.img/x", "efi.img", "", "link"] {
            assert_eq!(nodes.find_file(path), None, "{path:?}");
        }
    }
}
