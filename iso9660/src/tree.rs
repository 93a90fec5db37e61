//! The files, directories and links of an image before addresses are assigned.
//!
//! ```text
//! Tree ── directory ── "recipe.json"  -> Content::Bytes
//!            |     ├── "latest"       -> symbolic link "recipe.json"
//!            |     └── "boot" ── directory ── "efi.img" -> Content::Source
//!
//! in memory:  names: one text   directories: sorted children of 16 bytes each   contents   targets: names again
//! ```
//!
//! Invariants: a name is a non-empty UTF-8 string without `/` and control characters and is neither `.` nor `..`.
//! Adding a path creates its missing parent directories. Children are kept in byte-wise order of their names, so the
//! order of insertion has no effect. A tree of 100,000 files takes a few megabytes: all names lie in one text, which a
//! plan shares with its tree.

use std::fmt;
use std::sync::Arc;

use crate::error::PlanError;
use crate::scan::ScannedFile;
use crate::source::ReadAt;

/// The longest path of a tree in bytes, which bounds the depth too.
pub(crate) const PATH_LIMIT: usize = 4096;
/// The longest target of a symbolic link: together with any name it fits into one block of Rock Ridge attributes.
const TARGET_LIMIT: usize = 1024;
/// The number of children that a directory keeps outside its sorted list, so that inserting is cheap in any order.
const RECENT: usize = 512;

/// The content of a file.
#[derive(Clone)]
#[non_exhaustive]
pub enum Content {
    /// Bytes in memory, possibly shared with other owners.
    Bytes(Arc<[u8]>),
    /// Bytes that are read when the image is read.
    Source(Arc<dyn ReadAt>),
    /// A file of a scanned directory, which is opened when it is read: see [`Tree::graft`].
    File(ScannedFile),
}

impl Content {
    /// Returns a content whose bytes `source` delivers when the image is read.
    pub fn source(source: impl ReadAt + 'static) -> Content {
        Content::Source(Arc::new(source))
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Source(source) => source.len(),
            Content::File(file) => file.len(),
        }
    }

    /// Returns whether the content has no bytes.
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
        // Contents may hold secrets, so only the length is shown.
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

/// The directories, files and symbolic links of a future image.
#[derive(Clone, Debug)]
pub struct Tree {
    /// All names and targets, concatenated.
    pub(crate) names: Arc<String>,
    /// Index 0 is the root. Indices follow the order of insertion and do not affect the image.
    pub(crate) directories: Vec<Children>,
    pub(crate) contents: Arc<Vec<Content>>,
    /// The targets of symbolic links.
    pub(crate) targets: Vec<Text>,
}

/// A range of [`Tree::names`] with one flag, which on a file name means that the file is executable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    start: u32,
    len: u16,
    flag: bool,
}

/// A child of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) name: Text,
    pub(crate) node: Node,
}

/// The type of a child, with an index into a list of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Directory(u32),
    /// An index in [`Tree::contents`], which hard links share.
    File(u32),
    /// An index in [`Tree::targets`].
    Link(u32),
}

/// The children of a directory. `recent` is sorted too; it is merged into the other list when it is full.
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

    pub(crate) fn flag(self) -> bool {
        self.flag
    }
}

impl Children {
    fn find(&self, names: &str, name: &str) -> Option<Child> {
        let search = |list: &[Child]| {
            let at = list.binary_search_by(|child| child.name.of(names).cmp(name)).ok()?;
            Some(list[at])
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
        // Both lists are sorted, so the stable sort merges them.
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
    /// Returns a tree that has only its root.
    pub fn new() -> Tree {
        Tree {
            names: Arc::default(),
            directories: vec![Children::default()],
            contents: Arc::default(),
            targets: Vec::new(),
        }
    }

    /// Adds a file and its missing parent directories. A leading `/` is allowed.
    ///
    /// # Errors
    /// [`PlanError`] when the path is not valid, exists already or goes through something that is not a directory.
    pub fn add_file(&mut self, path: &str, content: impl Into<Content>) -> Result<&mut Tree, PlanError> {
        let (parent, name) = self.vacant(path)?;
        let content = self.add_content(path, content.into())?;
        self.add_child(path, parent, name, Node::File(content), false)
    }

    /// Adds an executable file: it has an `x` wherever [`crate::ImageOptions::file_mode`] has an `r`. Only Rock Ridge
    /// shows this.
    ///
    /// # Errors
    /// The errors of [`Tree::add_file`].
    pub fn add_executable(
        &mut self,
        path: &str,
        content: impl Into<Content>,
    ) -> Result<&mut Tree, PlanError> {
        let (parent, name) = self.vacant(path)?;
        let content = self.add_content(path, content.into())?;
        self.add_child(path, parent, name, Node::File(content), true)
    }

    /// Adds another name for a file of the tree. Both names share one content and one serial number in the image.
    ///
    /// # Errors
    /// The errors of [`Tree::add_file`], and an error when `existing` is not a file of the tree.
    pub fn add_hard_link(&mut self, path: &str, existing: &str) -> Result<&mut Tree, PlanError> {
        let (parents, last) = split(existing)?;
        let mut current = 0;
        for parent in parents {
            match self.directories[current].find(&self.names, parent) {
                Some(Child { node: Node::Directory(index), .. }) => current = index as usize,
                _ => return Err(PlanError::NoSuchFile { path: existing.to_owned() }),
            }
        }
        match self.directories[current].find(&self.names, last) {
            Some(Child { name: linked, node: node @ Node::File(_) }) => {
                let (parent, name) = self.vacant(path)?;
                self.add_child(path, parent, name, node, linked.flag)
            }
            _ => Err(PlanError::NoSuchFile { path: existing.to_owned() }),
        }
    }

    /// Adds a symbolic link. Only Rock Ridge can represent one; the other hierarchies omit it.
    ///
    /// The target is kept as given, except that repeated slashes become one and trailing slashes are removed: Rock
    /// Ridge stores a target as a list of names.
    ///
    /// # Errors
    /// The errors of [`Tree::add_file`], and an error when the target is empty, longer than 1024 bytes or contains a
    /// zero byte.
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
            let link = index(path, self.targets.len())?;
            self.targets.push(target);
            return self.add_child(path, parent, name, Node::Link(link), false);
        };
        Err(PlanError::Path { path: path.to_owned(), rule })
    }

    /// Adds a directory and its missing parent directories. Adding an existing directory has no effect.
    ///
    /// # Errors
    /// [`PlanError`] when the path is not valid or goes through something that is not a directory.
    pub fn add_directory(&mut self, path: &str) -> Result<&mut Tree, PlanError> {
        let (mut names, last) = split(path)?;
        names.push(last);
        self.directory(path, &names)?;
        Ok(self)
    }

    /// Returns the directory for a new child, and the child's name.
    fn vacant<'a>(&mut self, path: &'a str) -> Result<(usize, &'a str), PlanError> {
        let (parents, name) = split(path)?;
        let parent = self.directory(path, &parents)?;
        match self.directories[parent].find(&self.names, name) {
            Some(_) => Err(PlanError::Duplicate { path: path.to_owned() }),
            None => Ok((parent, name)),
        }
    }

    /// Returns the index of the directory with these names; creates it if it is missing.
    fn directory(&mut self, path: &str, names: &[&str]) -> Result<usize, PlanError> {
        let mut current = 0;
        for (depth, name) in names.iter().enumerate() {
            current = match self.directories[current].find(&self.names, name) {
                Some(Child { node: Node::Directory(index), .. }) => index as usize,
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
                    self.add_child(path, current, name, Node::Directory(index), false)?;
                    next
                }
            };
        }
        Ok(current)
    }

    /// Adds a child under a name that is new in its directory.
    fn add_child(
        &mut self,
        path: &str,
        parent: usize,
        name: &str,
        node: Node,
        executable: bool,
    ) -> Result<&mut Tree, PlanError> {
        let name = Text { flag: executable, ..self.add_text(path, name)? };
        self.directories[parent].insert(&self.names, Child { name, node });
        Ok(self)
    }

    fn add_content(&mut self, path: &str, content: Content) -> Result<u32, PlanError> {
        let index = index(path, self.contents.len())?;
        Arc::make_mut(&mut self.contents).push(content);
        Ok(index)
    }

    /// Appends a text of at most [`PATH_LIMIT`] bytes to the names.
    fn add_text(&mut self, path: &str, text: &str) -> Result<Text, PlanError> {
        let start = index(path, self.names.len())?;
        let len = u16::try_from(text.len()).map_err(|_| PlanError::TooLarge { path: path.to_owned() })?;
        Arc::make_mut(&mut self.names).push_str(text);
        Ok(Text { start, len, flag: false })
    }
}

/// Converts a count to 32 bits. No tree that fits into an image has more.
fn index(path: &str, count: usize) -> Result<u32, PlanError> {
    u32::try_from(count).map_err(|_| PlanError::TooLarge { path: path.to_owned() })
}

/// Splits a path into the names of its directories and the last name.
fn split(path: &str) -> Result<(Vec<&str>, &str), PlanError> {
    let error = |rule| Err(PlanError::Path { path: path.to_owned(), rule });
    if path.len() > PATH_LIMIT {
        return error("it is longer than 4096 bytes; shorten it");
    }
    let mut names: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for name in &names {
        if name.is_empty() {
            return error("it has an empty component; separate names with single slashes");
        }
        if *name == "." || *name == ".." {
            return error("it has the component `.` or `..`; pass a path from the root");
        }
        if name.chars().any(char::is_control) {
            return error("it has a control character; readers cannot show those safely; rename it");
        }
    }
    match names.pop() {
        Some(last) => Ok((names, last)),
        None => error("it is empty; pass the name of a file or directory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_paths_are_refused() {
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
        // 7 and the count have no common divisor, so this visits every number once, out of order.
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
