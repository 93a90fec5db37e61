//! What is in an image: names and contents, before any address is known.
//!
//! ```text
//! Tree ── directory ── "recipe.json"  -> Content::Bytes
//!            |     └── "boot" ── directory ── "efi.img" -> Content::Source
//! ```
//!
//! Invariants: a name is a non-empty UTF-8 string without `/` and control characters and is neither `.` nor `..`;
//! directories on the way to a path appear by themselves; children are kept in byte-wise order of their names, so that
//! the order of insertion is forgotten.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;
use std::sync::Arc;

use crate::error::PlanError;
use crate::source::ReadAt;

/// The longest path a tree takes, in bytes, and thereby a bound on its depth.
const PATH_LIMIT: usize = 4096;

/// The bytes of a file.
#[derive(Clone)]
pub enum Content {
    /// Bytes in memory, shared with whoever else holds them.
    Bytes(Arc<[u8]>),
    /// Bytes that are read when the image is.
    Source(Arc<dyn ReadAt>),
}

impl Content {
    /// The content that `source` delivers when the image is read.
    pub fn source(source: impl ReadAt + 'static) -> Content {
        Content::Source(Arc::new(source))
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Source(source) => source.len(),
        }
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Content::Bytes(_) => "Bytes",
            Content::Source(_) => "Source",
        };
        // Contents may hold secrets: the length is all that is shown.
        write!(formatter, "{kind}({} bytes)", self.len())
    }
}

impl From<Arc<[u8]>> for Content {
    fn from(bytes: Arc<[u8]>) -> Content {
        Content::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::Bytes(bytes.into())
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Content {
        Content::Bytes(bytes.into())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Bytes(text.into_bytes().into())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Bytes(text.as_bytes().into())
    }
}

impl From<Arc<dyn ReadAt>> for Content {
    fn from(source: Arc<dyn ReadAt>) -> Content {
        Content::Source(source)
    }
}

/// The directories and files of an image to be.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Index 0 is the root. Indices follow insertion and never reach an image.
    pub(crate) directories: Vec<BTreeMap<Box<str>, Node>>,
    pub(crate) files: Vec<Content>,
}

/// A child of a directory: an index into one of the two lists of the tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Node {
    Directory(usize),
    File(usize),
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// A tree with nothing but its root.
    pub fn new() -> Tree {
        Tree { directories: vec![BTreeMap::new()], files: Vec::new() }
    }

    /// Adds a file; directories on the way appear by themselves. A leading `/` is allowed.
    ///
    /// # Errors
    /// When the path is not one, exists already or goes through a file.
    pub fn add_file(&mut self, path: &str, content: impl Into<Content>) -> Result<&mut Tree, PlanError> {
        let (parents, name) = split(path)?;
        let parent = self.directory(path, &parents)?;
        let index = self.files.len();
        match self.directories[parent].entry(name.into()) {
            Slot::Occupied(_) => return Err(PlanError::Duplicate { path: path.to_owned() }),
            Slot::Vacant(slot) => slot.insert(Node::File(index)),
        };
        self.files.push(content.into());
        Ok(self)
    }

    /// Adds a directory, and those on the way to it. Adding one that exists changes nothing.
    ///
    /// # Errors
    /// When the path is not one or goes through a file.
    pub fn add_directory(&mut self, path: &str) -> Result<&mut Tree, PlanError> {
        let (mut names, last) = split(path)?;
        names.push(last);
        self.directory(path, &names)?;
        Ok(self)
    }

    /// The index of the directory with these names, made when missing.
    fn directory(&mut self, path: &str, names: &[&str]) -> Result<usize, PlanError> {
        let mut current = 0;
        for (depth, name) in names.iter().enumerate() {
            let next = self.directories.len();
            current = match *self.directories[current].entry((*name).into()).or_insert(Node::Directory(next))
            {
                Node::Directory(index) => index,
                Node::File(_) => {
                    return Err(PlanError::BelowFile {
                        path: path.to_owned(),
                        file: names[..=depth].join("/"),
                    });
                }
            };
            if current == next {
                self.directories.push(BTreeMap::new());
            }
        }
        Ok(current)
    }
}

/// The names of a path: those of its directories, and the last one.
fn split(path: &str) -> Result<(Vec<&str>, &str), PlanError> {
    let error = |rule| Err(PlanError::Path { path: path.to_owned(), rule });
    if path.len() > PATH_LIMIT {
        return error("it is longer than 4096 bytes; shorten it");
    }
    let mut names: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for name in &names {
        if name.is_empty() {
            return error("it has an empty component; give names separated by single slashes");
        }
        if *name == "." || *name == ".." {
            return error("it has the component `.` or `..`; give a path from the root");
        }
        if name.chars().any(char::is_control) {
            return error("it has a control character; no reader shows those safely");
        }
    }
    match names.pop() {
        Some(last) => Ok((names, last)),
        None => error("it is empty; name a file or directory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_paths_are_refused() {
        let mut tree = Tree::new();
        for path in ["", "/", "a//b", "a/", ".", "..", "a/../b", "a\0b", "a\nb", "\u{7f}"] {
            assert!(matches!(tree.add_file(path, ""), Err(PlanError::Path { .. })), "{path:?}");
        }
        assert!(tree.add_file(&"x".repeat(PATH_LIMIT + 1), "").is_err());
    }

    #[test]
    fn a_path_is_added_once_and_never_below_a_file() {
        let mut tree = Tree::new();
        tree.add_file("/a/b", "1").unwrap();
        assert!(matches!(tree.add_file("a/b", "2"), Err(PlanError::Duplicate { .. })));
        assert!(matches!(tree.add_file("a", "2"), Err(PlanError::Duplicate { .. })));
        assert!(matches!(tree.add_file("a/b/c", "2"), Err(PlanError::BelowFile { .. })));
        assert!(matches!(tree.add_directory("a/b"), Err(PlanError::BelowFile { .. })));
        tree.add_directory("a").unwrap().add_directory("a/d").unwrap();
        assert_eq!(tree.directories.len(), 3);
        assert_eq!(tree.files.len(), 1);
    }

    #[test]
    fn debug_output_never_shows_contents() {
        let content = Content::from("secret");
        assert_eq!(format!("{content:?}"), "Bytes(6 bytes)");
    }
}
