//! The tree in an order that depends on its names alone.
//!
//! ```text
//! level by level; inside a level by parent, inside a parent by the bytes of the name
//! directories: 0 = root, 1.. ; files: 0.. in the order of their directories
//! ```
//!
//! Everything numbered in an image (serial numbers, addresses of contents, suffixes of colliding names) comes from this
//! order, so the order of insertion has no way into the bytes. Lengths are taken here, once.

use crate::tree::{self, Content, Tree};

/// The nodes of a tree in order.
pub(crate) struct Nodes {
    pub(crate) directories: Vec<Directory>,
    pub(crate) files: Vec<File>,
}

pub(crate) struct Directory {
    pub(crate) name: Box<str>,
    /// The root is its own parent.
    pub(crate) parent: usize,
    /// The root is on level 1.
    pub(crate) level: usize,
    /// In byte-wise order of their names.
    pub(crate) children: Vec<Child>,
    /// How many of the children are directories.
    pub(crate) subdirectories: u32,
}

pub(crate) struct File {
    pub(crate) name: Box<str>,
    pub(crate) parent: usize,
    pub(crate) len: u64,
    pub(crate) content: Content,
}

/// An index into one of the two lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Child {
    Directory(usize),
    File(usize),
}

impl Nodes {
    /// Puts the nodes of a tree in order.
    pub(crate) fn new(tree: &Tree) -> Nodes {
        let root =
            Directory { name: "".into(), parent: 0, level: 1, children: Vec::new(), subdirectories: 0 };
        let mut nodes = Nodes { directories: vec![root], files: Vec::with_capacity(tree.files.len()) };
        // The index in the tree of every directory that has a place in the order.
        let mut origins = vec![0];
        let mut current = 0;
        while let Some(origin) = origins.get(current).copied() {
            let level = nodes.directories[current].level + 1;
            let mut children = Vec::with_capacity(tree.directories[origin].len());
            for (name, node) in &tree.directories[origin] {
                let (name, parent) = (name.clone(), current);
                match *node {
                    tree::Node::Directory(index) => {
                        children.push(Child::Directory(nodes.directories.len()));
                        origins.push(index);
                        let directory =
                            Directory { name, parent, level, children: Vec::new(), subdirectories: 0 };
                        nodes.directories.push(directory);
                        nodes.directories[current].subdirectories += 1;
                    }
                    tree::Node::File(index) => {
                        children.push(Child::File(nodes.files.len()));
                        let content = tree.files[index].clone();
                        nodes.files.push(File { name, parent, len: content.len(), content });
                    }
                }
            }
            nodes.directories[current].children = children;
            current += 1;
        }
        nodes
    }

    /// The name of a node.
    pub(crate) fn name(&self, child: Child) -> &str {
        match child {
            Child::Directory(index) => &self.directories[index].name,
            Child::File(index) => &self.files[index].name,
        }
    }

    /// The path of a node.
    pub(crate) fn path(&self, child: Child) -> String {
        match child {
            Child::Directory(index) => self.directory_path(index),
            Child::File(index) => self.file_path(index),
        }
    }

    /// The path of a file.
    pub(crate) fn file_path(&self, file: usize) -> String {
        let File { name, parent, .. } = &self.files[file];
        match self.directory_path(*parent) {
            directory if directory.is_empty() => name.to_string(),
            directory => format!("{directory}/{name}"),
        }
    }

    /// The path of a directory, empty for the root.
    pub(crate) fn directory_path(&self, directory: usize) -> String {
        let mut names = Vec::new();
        let mut current = directory;
        while current != 0 {
            names.push(&*self.directories[current].name);
            current = self.directories[current].parent;
        }
        names.reverse();
        names.join("/")
    }

    /// The file with a path, if there is one. A leading `/` is allowed, as it is in [`Tree::add_file`].
    pub(crate) fn find_file(&self, path: &str) -> Option<usize> {
        let mut current = 0;
        let mut names = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
        while let Some(name) = names.next() {
            let children = &self.directories[current].children;
            let at = children.binary_search_by(|child| self.name(*child).cmp(name)).ok()?;
            match children[at] {
                Child::Directory(index) => current = index,
                Child::File(index) => return names.peek().is_none().then_some(index),
            }
        }
        None
    }
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
            let nodes = Nodes::new(&tree);
            (0..nodes.files.len()).map(|file| nodes.file_path(file)).collect::<Vec<_>>()
        };
        let mut reversed = paths;
        reversed.reverse();
        assert_eq!(order(&paths), ["c", "a/a", "a/z", "b/y", "b/x/deep"]);
        assert_eq!(order(&paths), order(&reversed));
    }

    #[test]
    fn files_are_found_by_path_and_directories_are_not() {
        let mut tree = Tree::new();
        tree.add_file("boot/efi.img", "").unwrap();
        let nodes = Nodes::new(&tree);
        assert_eq!(nodes.find_file("/boot/efi.img"), Some(0));
        for path in ["boot", "boot/efi.img/x", "efi.img", ""] {
            assert_eq!(nodes.find_file(path), None, "{path:?}");
        }
    }
}
