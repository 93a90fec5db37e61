//! What is in an image: names and contents, before any address is known.
//!
//! ```text
//! Tree ── directory ── "recipe.json"  -> Content::Bytes
//!            |     ├── "latest"       -> symbolic link "recipe.json"
//!            |     └── "boot" ── directory ── "efi.img" -> Content::Source
//!
//! in memory:  names: one text   directories: sorted children of 16 bytes each   contents   targets: names again
//! ```
//!
//! Invariants: a name is a non-empty UTF-8 string without `/` and control characters and is neither `.` nor `..`;
//! directories on the way to a path appear by themselves; children are kept in byte-wise order of their names, so that
//! the order of insertion is forgotten. A tree of 100,000 files takes some megabytes: names lie side by side in one
//! text, which a plan shares with its tree instead of copying it.

use std::fmt;
use std::sync::Arc;

use crate::error::PlanError;
use crate::scan::ScannedFile;
use crate::source::ReadAt;

/// The longest path a tree takes, in bytes, and thereby a bound on its depth.
pub(crate) const PATH_LIMIT: usize = 4096;
/// The longest target of a symbolic link: with any name it fits into one block of Rock Ridge attributes.
const TARGET_LIMIT: usize = 1024;
/// How many children of a directory may wait outside the sorted list: inserting stays cheap in any order.
const RECENT: usize = 512;

/// The bytes of a file.
#[derive(Clone)]
#[non_exhaustive]
pub enum Content {
    /// Bytes in memory, shared with whoever else holds them.
    Bytes(Arc<[u8]>),
    /// Bytes that are read when the image is.
    Source(Arc<dyn ReadAt>),
    /// A file of a directory that was scanned, opened when it is read: see [`Tree::graft`].
    File(ScannedFile),
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
            Content::File(file) => file.len(),
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
            Content::File(_) => "File",
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

/// The directories, files and symbolic links of an image to be.
#[derive(Clone, Debug)]
pub struct Tree {
    /// All names and targets, one after the other.
    pub(crate) names: Arc<String>,
    /// Index 0 is the root. Indices follow insertion and never reach an image.
    pub(crate) directories: Vec<Children>,
    pub(crate) contents: Arc<Vec<Content>>,
}

/// A part of [`Tree::names`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    start: u32,
    len: u16,
}

/// A child of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) name: Text,
    pub(crate) node: Node,
}

/// What a child is: an index into one of the lists of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Directory(u32),
    /// A file with this content; hard links share one.
    File(u32),
    /// A file that may be executed.
    Executable(u32),
    /// The target of a symbolic link.
    Link(Text),
}

/// The children of a directory. The few in `recent`, sorted too, join the others when there are many of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    sorted: Vec<Child>,
    recent: Vec<Child>,
}

impl Text {
    pub(crate) fn of(self, names: &str) -> &str {
        let start = self.start as usize;
        &names[start..start + usize::from(self.len)]
    }
}

impl Children {
    fn find(&self, names: &str, name: &str) -> Option<Node> {
        let search = |list: &[Child]| {
            let at = list.binary_search_by(|child| child.name.of(names).cmp(name)).ok()?;
            Some(list[at].node)
        };
        search(&self.sorted).or_else(|| search(&self.recent))
    }

    /// Adds a child whose name is new.
    fn insert(&mut self, names: &str, child: Child) {
        let name = child.name.of(names);
        if self.recent.is_empty() && self.sorted.last().is_none_or(|last| last.name.of(names) < name) {
            return self.sorted.push(child);
        }
        let at = self.recent.partition_point(|other| other.name.of(names) < name);
        self.recent.insert(at, child);
        if self.recent.len() > RECENT {
            self.sorted = self.in_order(names);
            self.recent.clear();
        }
    }

    /// All children in byte-wise order of their names.
    pub(crate) fn in_order(&self, names: &str) -> Vec<Child> {
        let mut all = [self.sorted.as_slice(), &self.recent].concat();
        // Two sorted runs: the stable sort merges them.
        all.sort_by(|left, right| left.name.of(names).cmp(right.name.of(names)));
        all
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// A tree with nothing but its root.
    pub fn new() -> Tree {
        Tree { names: Arc::default(), directories: vec![Children::default()], contents: Arc::default() }
    }

    /// Adds a file; directories on the way appear by themselves. A leading `/` is allowed.
    ///
    /// # Errors
    /// When the path is not one, exists already or goes through something that is not a directory.
    pub fn add_file(&mut self, path: &str, content: impl Into<Content>) -> Result<&mut Tree, PlanError> {
        let (parent, name) = self.vacant(path)?;
        let content = self.add_content(path, content.into())?;
        self.add_child(path, parent, name, Node::File(content))
    }

    /// Adds a file that may be executed: it has an `x` wherever [`crate::Options::file_mode`] has an `r`. Rock Ridge
    /// alone can say so.
    ///
    /// # Errors
    /// As [`Tree::add_file`].
    pub fn add_executable(
        &mut self,
        path: &str,
        content: impl Into<Content>,
    ) -> Result<&mut Tree, PlanError> {
        let (parent, name) = self.vacant(path)?;
        let content = self.add_content(path, content.into())?;
        self.add_child(path, parent, name, Node::Executable(content))
    }

    /// Adds another name for a file that was added before: both share one content in the image, and one serial number.
    ///
    /// # Errors
    /// As [`Tree::add_file`], and when `existing` is not a file of the tree.
    pub fn add_hard_link(&mut self, path: &str, existing: &str) -> Result<&mut Tree, PlanError> {
        let (parents, last) = split(existing)?;
        let mut current = 0;
        for parent in parents {
            match self.directories[current].find(&self.names, parent) {
                Some(Node::Directory(index)) => current = index as usize,
                _ => return Err(PlanError::NoSuchFile { path: existing.to_owned() }),
            }
        }
        match self.directories[current].find(&self.names, last) {
            Some(node @ (Node::File(_) | Node::Executable(_))) => {
                let (parent, name) = self.vacant(path)?;
                self.add_child(path, parent, name, node)
            }
            _ => Err(PlanError::NoSuchFile { path: existing.to_owned() }),
        }
    }

    /// Adds a symbolic link. Rock Ridge alone can hold one: the other hierarchies leave it out.
    ///
    /// The target is taken as it is, except that slashes in a row count as one and those at the end as none: Rock Ridge
    /// writes a target as a list of names.
    ///
    /// # Errors
    /// As [`Tree::add_file`], and when the target is empty, longer than 1024 bytes or contains a zero byte.
    pub fn add_symlink(&mut self, path: &str, target: &str) -> Result<&mut Tree, PlanError> {
        let rule = if target.is_empty() {
            "the target of a symbolic link must not be empty"
        } else if target.len() > TARGET_LIMIT {
            "the target of a symbolic link must have at most 1024 bytes"
        } else if target.contains('\0') {
            "the target of a symbolic link must not contain a zero byte"
        } else {
            let (parent, name) = self.vacant(path)?;
            let target = self.add_text(path, target)?;
            return self.add_child(path, parent, name, Node::Link(target));
        };
        Err(PlanError::Path { path: path.to_owned(), rule })
    }

    /// Adds a directory, and those on the way to it. Adding one that exists changes nothing.
    ///
    /// # Errors
    /// When the path is not one or goes through something that is not a directory.
    pub fn add_directory(&mut self, path: &str) -> Result<&mut Tree, PlanError> {
        self.directory_at(path)?;
        Ok(self)
    }

    /// The index of the directory with a path, made when missing.
    pub(crate) fn directory_at(&mut self, path: &str) -> Result<usize, PlanError> {
        let (mut names, last) = split(path)?;
        names.push(last);
        self.directory(path, &names)
    }

    /// The directory for a new child, and the child's name.
    fn vacant<'a>(&mut self, path: &'a str) -> Result<(usize, &'a str), PlanError> {
        let (parents, name) = split(path)?;
        let parent = self.directory(path, &parents)?;
        match self.directories[parent].find(&self.names, name) {
            Some(_) => Err(PlanError::Duplicate { path: path.to_owned() }),
            None => Ok((parent, name)),
        }
    }

    /// The index of the directory with these names, made when missing.
    fn directory(&mut self, path: &str, names: &[&str]) -> Result<usize, PlanError> {
        let mut current = 0;
        for (depth, name) in names.iter().enumerate() {
            current = match self.directories[current].find(&self.names, name) {
                Some(Node::Directory(index)) => index as usize,
                Some(_) => {
                    return Err(PlanError::BelowFile {
                        path: path.to_owned(),
                        file: names[..=depth].join("/"),
                    });
                }
                None => {
                    let next = self.directories.len();
                    let index = index(path, next)?;
                    self.directories.push(Children::default());
                    self.add_child(path, current, name, Node::Directory(index))?;
                    next
                }
            };
        }
        Ok(current)
    }

    /// Adds a child under a name that is new in its directory.
    pub(crate) fn add_child(
        &mut self,
        path: &str,
        parent: usize,
        name: &str,
        node: Node,
    ) -> Result<&mut Tree, PlanError> {
        let name = self.add_text(path, name)?;
        self.directories[parent].insert(&self.names, Child { name, node });
        Ok(self)
    }

    pub(crate) fn add_content(&mut self, path: &str, content: Content) -> Result<u32, PlanError> {
        let index = index(path, self.contents.len())?;
        Arc::make_mut(&mut self.contents).push(content);
        Ok(index)
    }

    /// Appends a text of at most [`PATH_LIMIT`] bytes to the names.
    fn add_text(&mut self, path: &str, text: &str) -> Result<Text, PlanError> {
        let start = index(path, self.names.len())?;
        let len = u16::try_from(text.len()).map_err(|_| PlanError::TooLarge { path: path.to_owned() })?;
        Arc::make_mut(&mut self.names).push_str(text);
        Ok(Text { start, len })
    }
}

/// A number of things as 32 bits, which no tree that fits an image passes.
fn index(path: &str, count: usize) -> Result<u32, PlanError> {
    u32::try_from(count).map_err(|_| PlanError::TooLarge { path: path.to_owned() })
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
        assert!(matches!(tree.add_symlink("a/b", "x"), Err(PlanError::Duplicate { .. })));
        tree.add_directory("a").unwrap().add_directory("a/d").unwrap();
        assert_eq!(tree.directories.len(), 3);
        assert_eq!(tree.contents.len(), 1);
    }

    #[test]
    fn links_need_a_target_that_can_be_written() {
        let mut tree = Tree::new();
        for target in ["", "a\0b", &"x".repeat(TARGET_LIMIT + 1)] {
            assert!(matches!(tree.add_symlink("link", target), Err(PlanError::Path { .. })), "{target:?}");
        }
        tree.add_symlink("link", "../any/where").unwrap();
        assert!(matches!(tree.add_file("link/x", ""), Err(PlanError::BelowFile { .. })));
        assert!(matches!(tree.add_hard_link("b", "link"), Err(PlanError::NoSuchFile { .. })));
        assert!(matches!(tree.add_hard_link("b", "c/d"), Err(PlanError::NoSuchFile { .. })));
    }

    #[test]
    fn children_are_in_byte_order_whatever_the_order_of_insertion() {
        let mut tree = Tree::new();
        // 7 has no common divisor with the count, so this visits every number once, out of order.
        for step in 0..2000 {
            tree.add_file(&format!("{:04}", step * 7 % 2000), "").unwrap();
        }
        let names: Vec<&str> = tree.directories[0]
            .in_order(&tree.names)
            .iter()
            .map(|child| child.name.of(&tree.names))
            .collect();
        assert_eq!(names.len(), 2000);
        assert!(names.is_sorted());
        for name in ["0000", "1234", "1999"] {
            assert!(matches!(tree.add_file(name, ""), Err(PlanError::Duplicate { .. })));
        }
    }

    #[test]
    fn debug_output_never_shows_contents() {
        let content = Content::from("secret");
        assert_eq!(format!("{content:?}"), "Bytes(6 bytes)");
    }
}
