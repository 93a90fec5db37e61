//! Path lookup, directory listing and tree walk.
//!
//! ```text
//! lookup "a/b":   root --children--> a --children--> b        reads a large directory only until the name is found
//! symbolic link:  the target replaces the link in the rest of the path, at most `ReadLimits::links` times
//! walk:           stack of directories to read, and one path; a directory found twice is invalid
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ecma119::identifier;
use crate::error::ReadError;
use crate::source::ReadAt;

use super::boot::{BootImage, is_boot_directory};
use super::cache::MAX_DIRECTORY;
use super::medium::Medium;
use super::path::push_components;
use super::view::Child;
use super::{Entry, EntryKind, Image, Namespace};

/// The largest directory in bytes that a lookup reads completely and caches.
const KEPT_DIRECTORY: u64 = 128 << 10;
/// The number of bytes of directories and attributes that a walk may read beyond four times the image.
const WALK_BYTES: u64 = 16 << 20;

impl<S: ReadAt> Image<S> {
    /// Returns the entry at a path, which may begin with `/`. The empty path is the root. Symbolic links are followed.
    /// A path that is not in the tree may name an El Torito image, see [`Image::boot_images`].
    ///
    /// # Errors
    /// [`ReadError::NotFound`] when no entry has this path; otherwise the error of the image.
    pub fn lookup(&self, path: &str) -> Result<Entry, ReadError> {
        match self.resolve(path) {
            Err(ReadError::NotFound { path }) => self.boot_file(&path)?.ok_or(ReadError::NotFound { path }),
            outcome => outcome,
        }
    }

    /// Returns the entry of the tree at a path.
    fn resolve(&self, path: &str) -> Result<Entry, ReadError> {
        let not_found = || ReadError::NotFound { path: path.to_owned() };
        // The rest of the path, last component first.
        let mut left: Vec<String> = Vec::new();
        push_components(&mut left, path);
        if left.len() > self.limits.depth || left.iter().any(|name| name == "..") {
            return Err(not_found());
        }
        // The directories from the root to the current one.
        let mut trail = vec![self.view.root.clone()];
        let mut links = 0;
        let medium = Medium::new(&*self.source, self.limits.one_call());
        while let Some(name) = left.pop() {
            if name == ".." {
                // Applies to links too: the parent of the root is the root.
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let Some(directory) = trail.last().filter(|entry| entry.is_dir()) else {
                return Err(ReadError::NotADirectory { path: path.to_owned() });
            };
            let entry = self.find(&medium, directory, &name)?.ok_or_else(not_found)?;
            match &entry.kind {
                EntryKind::Symlink(target) => {
                    links += 1;
                    if links > self.limits.links {
                        return Err(ReadError::Limit {
                            what: "symbolic links in one path",
                            limit: self.limits.links as u64,
                        });
                    }
                    if target.starts_with('/') {
                        trail.truncate(1);
                    }
                    push_components(&mut left, target);
                    if left.len() > self.limits.depth {
                        return Err(ReadError::Limit {
                            what: "components in one path",
                            limit: self.limits.depth as u64,
                        });
                    }
                }
                EntryKind::Directory => {
                    self.check_ancestors(&trail, &entry)?;
                    trail.push(entry);
                }
                EntryKind::File | EntryKind::Other if left.is_empty() => return Ok(entry),
                EntryKind::File | EntryKind::Other => {
                    return Err(ReadError::NotADirectory { path: path.to_owned() });
                }
            }
        }
        trail.pop().ok_or_else(not_found)
    }

    /// Returns the entries of a directory, in the order of the image.
    ///
    /// # Errors
    /// The errors of [`Image::visit`].
    pub fn list(&self, path: &str) -> Result<Vec<Entry>, ReadError> {
        let mut list = Vec::new();
        self.visit(path, |entry| {
            list.push(entry.clone());
            ControlFlow::Continue(())
        })?;
        Ok(list)
    }

    /// Calls `visit` with each entry of a directory, in the order of the image, until `visit` breaks. Memory does not grow
    /// with the directory.
    ///
    /// # Errors
    /// The errors of [`Image::lookup`]; [`ReadError::NotADirectory`] when the path does not name a directory. The entries
    /// before a broken one have been visited.
    pub fn visit(
        &self,
        path: &str,
        mut visit: impl FnMut(&Entry) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let directory = match self.resolve(path) {
            Err(error @ ReadError::NotFound { .. }) => {
                let boot = if is_boot_directory(path) { self.boot_images()? } else { Vec::new() };
                let _broken = boot.iter().map(BootImage::entry).try_for_each(|entry| visit(&entry));
                return if boot.is_empty() { Err(error) } else { Ok(()) };
            }
            outcome => outcome?,
        };
        if !directory.is_dir() {
            return Err(ReadError::NotADirectory { path: path.to_owned() });
        }
        let medium = Medium::new(&*self.source, self.limits.one_call());
        let mut children = self.view.children(&medium, &directory, &self.limits)?;
        let mut count = 0;
        while let Some(child) = children.next(|_, _| true)? {
            if count == self.limits.entries {
                return Err(ReadError::Limit { what: "entries", limit: self.limits.entries });
            }
            count += 1;
            if visit(&self.view.entry(&medium, child)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the path and entry of everything below the root, until `visit` breaks. A directory comes
    /// before its content. Memory grows with the number of directories, not of files.
    ///
    /// # Errors
    /// The error of the image. The entries before a broken one have been visited.
    pub fn walk(&self, visit: impl FnMut(&str, &Entry) -> ControlFlow<()>) -> Result<(), ReadError> {
        self.walk_from("", visit)
    }

    /// Calls `visit` as [`Image::walk`] does, with everything below the directory at `path`. The visited paths begin
    /// below that directory.
    ///
    /// # Errors
    /// The errors of [`Image::lookup`] and [`Image::walk`]; [`ReadError::NotADirectory`] when the path does not name a
    /// directory.
    pub fn walk_from(
        &self,
        path: &str,
        mut visit: impl FnMut(&str, &Entry) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let mut failed = Ok(());
        self.tour(path, &mut |found| match found {
            Found::Entry(path, entry) => visit(path, entry),
            Found::Unreadable(_, error) => {
                failed = Err(error);
                ControlFlow::Break(())
            }
        })?;
        failed
    }

    /// Calls `visit` with everything below the directory at `path`, and with the error of each entry that cannot be read and
    /// of each directory that cannot be read to its end.
    ///
    /// # Errors
    /// When the path does not lead to a directory that can be read, or the budget of the walk is exhausted.
    pub(crate) fn tour(
        &self,
        path: &str,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let top = self.resolve(path)?;
        if !top.is_dir() {
            return Err(ReadError::NotADirectory { path: path.to_owned() });
        }
        let budget = self.source.len().saturating_mul(4).saturating_add(WALK_BYTES);
        let medium = Medium::new(&*self.source, budget);
        let mut tour = Tour {
            image: self,
            visited: HashSet::from([top.first_extent().offset]),
            bytes: top.len,
            entries: 0,
            path: String::new(),
            ends: Vec::new(),
            stack: vec![(0, top)],
        };
        while let Some((depth, directory)) = tour.stack.pop() {
            tour.enter(depth, &directory.name);
            match tour.directory(&medium, depth, &directory, visit) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) if ends_tour(&error) => return Err(error),
                Err(error) => {
                    tour.leave(depth);
                    if visit(Found::Unreadable(&tour.path, error)).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the child with a name. Except in Rock Ridge, a name that differs in case matches too, unless another
    /// name matches exactly. A version in the name must be that of the entry.
    fn find(&self, medium: &Medium<'_>, directory: &Entry, name: &str) -> Result<Option<Entry>, ReadError> {
        let wanted = Wanted::new(self.view.namespace(), name);
        if let Some(children) = self.kept(medium, directory) {
            let exact = children.iter().find(|child| child.name() == name);
            let similar = || children.iter().find(|child| wanted.matches(child.name(), child.version()));
            return exact.or_else(similar).map(|child| self.view.entry(medium, child.clone())).transpose();
        }
        let mut children = self.view.children(medium, directory, &self.limits)?;
        let mut found: Option<Child> = None;
        loop {
            let accept =
                |other: &str, version| other == name || (found.is_none() && wanted.matches(other, version));
            match children.next(accept)? {
                Some(child) if child.name() == name => return self.view.entry(medium, child).map(Some),
                Some(child) => found = Some(child),
                None => return found.map(|child| self.view.entry(medium, child)).transpose(),
            }
        }
    }

    /// Returns the children of a small directory from the cache, or reads and caches them. Returns `None` for a large
    /// directory, and for one with an invalid child, so that a lookup can still find the children before it.
    fn kept(&self, medium: &Medium<'_>, directory: &Entry) -> Option<Arc<[Child]>> {
        let offset = directory.first_extent().offset;
        if let Some(children) = self.cache.get(offset) {
            return Some(children);
        }
        if directory.len > KEPT_DIRECTORY {
            return None;
        }
        let mut children = self.view.children(medium, directory, &self.limits).ok()?;
        let (mut list, mut bytes) = (Vec::new(), 0);
        while let Some(child) = children.next(|_, _| true).ok()? {
            bytes += child.footprint();
            if bytes > MAX_DIRECTORY {
                return None;
            }
            list.push(child);
        }
        let list: Arc<[Child]> = list.into();
        self.cache.put(offset, &list, bytes);
        Some(list)
    }

    /// A directory that contains itself would make endless paths.
    fn check_ancestors(&self, trail: &[Entry], entry: &Entry) -> Result<(), ReadError> {
        let offset = entry.first_extent().offset;
        match trail.iter().any(|ancestor| ancestor.first_extent().offset == offset) {
            true => Err(ReadError::Invalid { offset, rule: "a directory does not contain itself" }),
            false => Ok(()),
        }
    }
}

/// Returns whether an error concerns the whole image, not one directory or entry.
fn ends_tour(error: &ReadError) -> bool {
    matches!(error, ReadError::Limit { .. } | ReadError::Io { .. })
}

/// An entry that a tour finds, or the path of one that it cannot read.
pub(crate) enum Found<'a> {
    /// The path and the entry.
    Entry(&'a str, &'a Entry),
    /// The path of an entry that cannot be read, or of a directory that cannot be read to its end.
    Unreadable(&'a str, ReadError),
}

/// The state of a tour through directories.
struct Tour<'a, S> {
    image: &'a Image<S>,
    /// The offsets of the directories found so far.
    visited: HashSet<u64>,
    /// The sum of the lengths of these directories.
    bytes: u64,
    entries: u64,
    /// The path of the current directory or entry, and where the path of each directory above it ends.
    path: String,
    ends: Vec<usize>,
    /// The directories to read, the next one last, with their depth.
    stack: Vec<(usize, Entry)>,
}

impl<S: ReadAt> Tour<'_, S> {
    /// Makes `path` that of a directory, whose parent was entered before.
    fn enter(&mut self, depth: usize, name: &str) {
        self.ends.truncate(depth);
        self.path.truncate(self.ends.last().copied().unwrap_or(0));
        if depth > 0 {
            if !self.path.is_empty() {
                self.path.push('/');
            }
            self.path.push_str(name);
        }
        self.ends.push(self.path.len());
    }

    /// Makes `path` that of the entered directory again.
    fn leave(&mut self, depth: usize) {
        self.path.truncate(self.ends.get(depth).copied().unwrap_or(0));
    }

    /// Visits the entries of the entered directory, and adds the directories among them to the stack.
    fn directory(
        &mut self,
        medium: &Medium<'_>,
        depth: usize,
        directory: &Entry,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let Image { view, limits, .. } = self.image;
        let first_child = self.stack.len();
        let mut children = view.children(medium, directory, limits)?;
        let outcome = loop {
            let child = match children.next(|_, _| true) {
                Ok(Some(child)) => child,
                Ok(None) => break Ok(ControlFlow::Continue(())),
                Err(error) => break Err(error),
            };
            self.entries += 1;
            if self.entries > limits.entries {
                return Err(ReadError::Limit { what: "entries", limit: limits.entries });
            }
            self.leave(depth);
            if !self.path.is_empty() {
                self.path.push('/');
            }
            self.path.push_str(child.name());
            let step = match view.entry(medium, child) {
                Ok(entry) => {
                    let step = visit(Found::Entry(&self.path, &entry));
                    if step.is_continue() && entry.is_dir() { self.admit(depth + 1, entry) } else { Ok(step) }
                }
                Err(error) => Err(error),
            };
            let step = match step {
                Ok(step) => step,
                Err(error) if ends_tour(&error) => return Err(error),
                Err(error) => visit(Found::Unreadable(&self.path, error)),
            };
            if step.is_break() {
                return Ok(step);
            }
        };
        // The first directory is read next.
        self.stack[first_child..].reverse();
        outcome
    }

    /// Adds a directory to the stack, if it is in one place of the tree only.
    fn admit(&mut self, depth: usize, directory: Entry) -> Result<ControlFlow<()>, ReadError> {
        let (offset, limits) = (directory.first_extent().offset, &self.image.limits);
        let invalid = |rule| Err(ReadError::Invalid { offset, rule });
        if depth > limits.depth {
            return Err(ReadError::Limit { what: "levels of directories", limit: limits.depth as u64 });
        }
        if !self.visited.insert(offset) {
            return invalid("a directory is in one place of the tree only");
        }
        // The sum of directories that do not overlap is smaller than the image.
        self.bytes = self.bytes.saturating_add(directory.len);
        if self.bytes > self.image.source.len() {
            return invalid("directories do not overlap");
        }
        self.stack.push((depth, directory));
        Ok(ControlFlow::Continue(()))
    }
}

/// A component of a path, for names that are not equal to it.
struct Wanted {
    /// The name in lower case, without version; `None` when only equal names match.
    folded: Option<String>,
    version: Option<u16>,
}

impl Wanted {
    fn new(namespace: Namespace, name: &str) -> Wanted {
        let (stem, version) = split_version(name);
        match namespace {
            Namespace::RockRidge => Wanted { folded: None, version: None },
            Namespace::Udf => Wanted { folded: Some(name.to_lowercase()), version: None },
            Namespace::Joliet => Wanted { folded: Some(stem.to_lowercase()), version },
            // A path such as `KS.CFG;1` or `README.` gives the complete identifier.
            Namespace::Plain => {
                let stem = stem.strip_suffix('.').unwrap_or(stem);
                Wanted { folded: Some(stem.to_lowercase()), version }
            }
        }
    }

    /// Returns whether a name differs only in case, and has the wanted version. An identifier without a version counts
    /// as version 1.
    fn matches(&self, other: &str, version: Option<u16>) -> bool {
        let stem = if version.is_some() { split_version(other).0 } else { other };
        let same = |wanted: u16| wanted == version.unwrap_or(1);
        self.version.is_none_or(same)
            && self.folded.as_deref().is_some_and(|folded| match folded.is_ascii() && stem.is_ascii() {
                true => folded.eq_ignore_ascii_case(stem),
                false => folded == stem.to_lowercase(),
            })
    }
}

/// Splits the text of a name into the name and its version.
fn split_version(name: &str) -> (&str, Option<u16>) {
    let (stem, version) = identifier::split_version(name.as_bytes());
    // The split is at a `;`, which is a character boundary.
    (name.get(..stem.len()).unwrap_or(name), version)
}
