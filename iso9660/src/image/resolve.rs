//! Path lookup, directory listing and tree walk.
//!
//! ```text
//! lookup "a/b":   root --children--> a --children--> b        reads a large directory only until the name is found
//! symbolic link:  the target replaces the link in the rest of the path, at most `ReadLimits::links` times
//! walk:           stack of directories to read; a directory found twice is invalid
//! ```

use std::borrow::Cow;
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
    /// The errors of [`Image::lookup`]; [`ReadError::NotADirectory`] when the path does not name a directory.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>, ReadError> {
        let directory = match self.resolve(path) {
            Err(error @ ReadError::NotFound { .. }) => {
                let boot = if is_boot_directory(path) { self.boot_images()? } else { Vec::new() };
                let boot: Vec<Entry> = boot.iter().map(BootImage::entry).collect();
                return if boot.is_empty() { Err(error) } else { Ok(boot) };
            }
            outcome => outcome?,
        };
        if !directory.is_dir() {
            return Err(ReadError::NotADirectory { path: path.to_owned() });
        }
        let medium = Medium::new(&*self.source, self.limits.one_call());
        let mut children = self.view.children(&medium, &directory, &self.limits)?;
        let mut list = Vec::new();
        while let Some(child) = children.next(|_| true)? {
            if list.len() as u64 == self.limits.entries {
                return Err(ReadError::Limit { what: "entries", limit: self.limits.entries });
            }
            list.push(self.view.entry(&medium, child)?);
        }
        Ok(list)
    }

    /// Calls `visit` with the path and entry of everything below the root, until `visit` breaks. A directory comes
    /// before its content.
    ///
    /// # Errors
    /// The error of the image.
    pub fn walk(&self, mut visit: impl FnMut(&str, &Entry) -> ControlFlow<()>) -> Result<(), ReadError> {
        let budget = self.source.len().saturating_mul(4).saturating_add(WALK_BYTES);
        let medium = Medium::new(&*self.source, budget);
        let mut stack = vec![(String::new(), 0_usize, self.view.root.clone())];
        let mut visited = HashSet::new();
        let (mut count, mut bytes) = (0_u64, 0_u64);
        while let Some((mut path, depth, directory)) = stack.pop() {
            let offset = directory.first_extent().offset;
            let invalid = |rule| ReadError::Invalid { offset, rule };
            if !visited.insert(offset) {
                return Err(invalid("a directory is in one place of the tree only"));
            }
            // The sum of directories that do not overlap is smaller than the image.
            bytes = bytes.saturating_add(directory.len);
            if bytes > self.source.len() {
                return Err(invalid("directories do not overlap"));
            }
            if depth > self.limits.depth {
                return Err(ReadError::Limit {
                    what: "levels of directories",
                    limit: self.limits.depth as u64,
                });
            }
            let mut children = self.view.children(&medium, &directory, &self.limits)?;
            let first_child = stack.len();
            if !path.is_empty() {
                path.push('/');
            }
            let above = path.len();
            while let Some(child) = children.next(|_| true)? {
                count += 1;
                if count > self.limits.entries {
                    return Err(ReadError::Limit { what: "entries", limit: self.limits.entries });
                }
                let entry = self.view.entry(&medium, child)?;
                path.truncate(above);
                path.push_str(&entry.name);
                if visit(&path, &entry).is_break() {
                    return Ok(());
                }
                if entry.is_dir() {
                    stack.push((path.clone(), depth + 1, entry));
                }
            }
            // The first directory is read next.
            stack[first_child..].reverse();
        }
        Ok(())
    }

    /// Returns the child with a name. Except in Rock Ridge, a name that differs in case matches too, unless another
    /// name matches exactly.
    fn find(&self, medium: &Medium<'_>, directory: &Entry, name: &str) -> Result<Option<Entry>, ReadError> {
        let similar = CaseFold::new(self.view.namespace(), name);
        if let Some(children) = self.kept(medium, directory) {
            let exact = children.iter().find(|child| child.name() == name);
            let found = exact.or_else(|| children.iter().find(|child| similar.matches(child.name())));
            return found.map(|child| self.view.entry(medium, child.clone())).transpose();
        }
        let mut children = self.view.children(medium, directory, &self.limits)?;
        let mut found: Option<Child> = None;
        loop {
            let accept = |other: &str| other == name || (found.is_none() && similar.matches(other));
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
        while let Some(child) = children.next(|_| true).ok()? {
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

/// Matches names that differ from the wanted one in case or form.
struct CaseFold<'a> {
    name: Option<Cow<'a, str>>,
}

impl<'a> CaseFold<'a> {
    fn new(namespace: Namespace, name: &'a str) -> CaseFold<'a> {
        CaseFold {
            name: match namespace {
                Namespace::RockRidge => None,
                Namespace::Udf | Namespace::Joliet => Some(Cow::Borrowed(name)),
                // A path such as `KS.CFG;1` gives the complete identifier.
                Namespace::Plain => Some(Cow::Owned(identifier::plain_name(name.as_bytes()))),
            },
        }
    }

    fn matches(&self, other: &str) -> bool {
        let lower = |name: &str| name.chars().flat_map(char::to_lowercase).collect::<String>();
        self.name.as_deref().is_some_and(|name| match name.is_ascii() && other.is_ascii() {
            true => name.eq_ignore_ascii_case(other),
            false => lower(name) == lower(other),
        })
    }
}
