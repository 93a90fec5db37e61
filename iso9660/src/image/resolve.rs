//! Paths: from the root to an entry, and everything below it.
//!
//! ```text
//! lookup "a/b":   root --entries--> a --entries--> b          reads a directory only until the name is found
//! symbolic link:  its target takes the place of its name in what is left of the path, at most `Limits::links` times
//! walk:           stack of directories still to read; a directory met twice is invalid
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::error::ReadError;
use crate::source::ReadAt;

use super::entry::Entries;
use super::{Entry, EntryKind, Extent, Image, Namespace};

/// How many directories of the largest size may be searched for one path. Links can lead through one again and again.
const LOOKUP_DIRECTORIES: u64 = 4;

impl<S: ReadAt> Image<S> {
    /// The entry at a path, which may begin with `/`; the empty path is the root. Symbolic links are followed.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] when there is none; otherwise what is wrong with the image.
    pub fn lookup(&self, path: &str) -> Result<Entry, ReadError> {
        let not_found = || ReadError::NotFound { path: path.to_owned() };
        // What is left of the path, last component first.
        let mut left: Vec<String> = Vec::new();
        push_components(&mut left, path);
        if left.len() > self.limits.depth || left.iter().any(|name| name == "..") {
            return Err(not_found());
        }
        // The directories on the way, the root first.
        let mut trail = vec![Entry::directory("", self.root.extent)];
        let mut links = 0;
        let mut budget = self.limits.directory_bytes.saturating_mul(LOOKUP_DIRECTORIES);
        while let Some(name) = left.pop() {
            if name == ".." {
                // Of a link: the parent of the root is the root.
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let Some(extent) = trail.last().filter(|entry| entry.is_dir()).map(directory_extent) else {
                return Err(ReadError::NotADirectory { path: path.to_owned() });
            };
            budget = budget.checked_sub(extent.len).ok_or(ReadError::Limit {
                what: "bytes of directories for one path",
                limit: self.limits.directory_bytes.saturating_mul(LOOKUP_DIRECTORIES),
            })?;
            let entry = self.find(extent, &name)?.ok_or_else(not_found)?;
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

    /// The entries of a directory, in the order of the image.
    ///
    /// # Errors
    /// As [`Image::lookup`]; [`ReadError::NotADirectory`] when the path names something else.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>, ReadError> {
        let directory = self.lookup(path)?;
        if !directory.is_dir() {
            return Err(ReadError::NotADirectory { path: path.to_owned() });
        }
        let mut entries = self.entries(directory_extent(&directory))?;
        let mut list = Vec::new();
        while let Some(entry) = entries.next()? {
            if list.len() as u64 == self.limits.entries {
                return Err(ReadError::Limit { what: "entries", limit: self.limits.entries });
            }
            list.push(entry);
        }
        Ok(list)
    }

    /// Calls `visit` with the path and entry of everything below the root, until it breaks. A directory comes before
    /// what is in it.
    ///
    /// # Errors
    /// What is wrong with the image.
    pub fn walk(&self, mut visit: impl FnMut(&str, &Entry) -> ControlFlow<()>) -> Result<(), ReadError> {
        let mut stack = vec![(String::new(), 0_usize, self.root.extent)];
        let mut visited = HashSet::new();
        let (mut count, mut bytes) = (0_u64, 0_u64);
        while let Some((path, depth, extent)) = stack.pop() {
            let invalid = |rule| ReadError::Invalid { offset: extent.offset, rule };
            if !visited.insert(extent.offset) {
                return Err(invalid("a directory is in one place of the tree only"));
            }
            // Directories that do not overlap are together smaller than the image.
            bytes = bytes.saturating_add(extent.len);
            if bytes > self.source.len() {
                return Err(invalid("directories do not overlap"));
            }
            if depth > self.limits.depth {
                return Err(ReadError::Limit {
                    what: "levels of directories",
                    limit: self.limits.depth as u64,
                });
            }
            let mut entries = self.entries(extent)?;
            let first_child = stack.len();
            while let Some(entry) = entries.next()? {
                count += 1;
                if count > self.limits.entries {
                    return Err(ReadError::Limit { what: "entries", limit: self.limits.entries });
                }
                let below =
                    if path.is_empty() { entry.name.clone() } else { format!("{path}/{}", entry.name) };
                if visit(&below, &entry).is_break() {
                    return Ok(());
                }
                if entry.is_dir() {
                    stack.push((below, depth + 1, directory_extent(&entry)));
                }
            }
            // The first directory is read next.
            stack[first_child..].reverse();
        }
        Ok(())
    }

    fn entries(&self, extent: Extent) -> Result<Entries<'_>, ReadError> {
        Entries::new(&*self.source, extent, self.namespace, self.root.skip, &self.limits)
    }

    /// The child with a name. In Joliet and plain namespaces a name that differs in case is found as well, unless
    /// another one matches exactly.
    fn find(&self, directory: Extent, name: &str) -> Result<Option<Entry>, ReadError> {
        let mut entries = self.entries(directory)?;
        let folded = name.to_lowercase();
        let mut similar = None;
        while let Some(entry) = entries.next()? {
            if entry.name == name {
                return Ok(Some(entry));
            }
            let folds = self.namespace != Namespace::RockRidge && similar.is_none();
            if folds && entry.name.to_lowercase() == folded {
                similar = Some(entry);
            }
        }
        Ok(similar)
    }

    /// A directory that is its own ancestor makes paths without end.
    fn check_ancestors(&self, trail: &[Entry], entry: &Entry) -> Result<(), ReadError> {
        let Extent { offset, .. } = directory_extent(entry);
        match trail.iter().any(|ancestor| directory_extent(ancestor).offset == offset) {
            true => Err(ReadError::Invalid { offset, rule: "a directory does not contain itself" }),
            false => Ok(()),
        }
    }
}

/// Adds the components of a path to a list that is worked off from its end.
fn push_components(left: &mut Vec<String>, path: &str) {
    let components = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    left.extend(components.rev().map(str::to_owned));
}

/// The one extent of a directory.
fn directory_extent(entry: &Entry) -> Extent {
    entry.extents.first().copied().unwrap_or(Extent { offset: 0, len: 0 })
}
