//! The tree in an order that depends on its names alone.
//!
//! ```text
//! level by level; inside a level by parent, inside a parent by the bytes of the name
//! directories: 0 = root, 1.. ; files: 0.. and symbolic links: 0.. in the order of their directories
//! ```
//!
//! Everything numbered in an image (serial numbers, addresses of contents, suffixes of colliding names) comes from this
//! order, so the order of insertion has no way into the bytes. Lengths are taken here, once. Names and contents stay
//! where the tree has them.

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
    /// For each content: its first file, and how many files have it.
    owners: Vec<(u32, u32)>,
}

pub(crate) struct Directory {
    name: Text,
    /// The root is its own parent.
    pub(crate) parent: u32,
    /// The root is on level 1.
    pub(crate) level: u32,
    /// In byte-wise order of their names.
    pub(crate) children: Vec<Child>,
    /// How many of the children are directories.
    pub(crate) subdirectories: u32,
}

pub(crate) struct File {
    name: Text,
    parent: u32,
    content: u32,
    pub(crate) executable: bool,
    pub(crate) len: u64,
}

pub(crate) struct Link {
    name: Text,
    parent: u32,
    target: Text,
}

/// An index into one of the lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Child {
    Directory(u32),
    File(u32),
    Link(u32),
}

impl Nodes {
    /// Puts the nodes of a tree in order.
    pub(crate) fn new(tree: &Tree) -> Result<Nodes, PlanError> {
        let mut nodes = Nodes {
            names: tree.names.clone(),
            contents: tree.contents.clone(),
            directories: Vec::with_capacity(tree.directories.len()),
            files: Vec::with_capacity(tree.contents.len()),
            links: Vec::new(),
            owners: vec![(u32::MAX, 0); tree.contents.len()],
        };
        let root = Text::default();
        let (children, subdirectories) = (Vec::new(), 0);
        nodes.directories.push(Directory { name: root, parent: 0, level: 1, children, subdirectories });
        // The index in the tree of every directory that has a place in the order.
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
                    Node::File(content) => nodes.add_file(name, parent, content, false)?,
                    Node::Executable(content) => nodes.add_file(name, parent, content, true)?,
                    Node::Link(target) => {
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

    fn add_file(
        &mut self,
        name: Text,
        parent: u32,
        content: u32,
        executable: bool,
    ) -> Result<Child, PlanError> {
        let file = number(self.files.len())?;
        let len = self.contents[content as usize].len();
        let (owner, count) = &mut self.owners[content as usize];
        *owner = file.min(*owner);
        *count += 1;
        self.files.push(File { name, parent, content, executable, len });
        Ok(Child::File(file))
    }

    /// The content of a file.
    pub(crate) fn content(&self, file: u32) -> &Content {
        &self.contents[self.files[file as usize].content as usize]
    }

    /// The first of the files that have this file's content.
    pub(crate) fn owner(&self, file: u32) -> u32 {
        self.owners[self.files[file as usize].content as usize].0
    }

    /// How many names the content of a file has.
    pub(crate) fn names_of_content(&self, file: u32) -> u32 {
        self.owners[self.files[file as usize].content as usize].1
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, link: u32) -> &str {
        self.links[link as usize].target.of(&self.names)
    }

    /// The name of a node.
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

    /// The path of a node, empty for the root.
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

    /// The file with a path, if there is one. A leading `/` is allowed, as it is in [`Tree::add_file`].
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

/// An index in 32 bits; a tree with more nodes has no image.
fn number(index: usize) -> Result<u32, PlanError> {
    u32::try_from(index).map_err(|_| PlanError::TooLarge { path: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_forgets_the_order_of_insertion() {
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
