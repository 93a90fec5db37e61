//! The files of all packages as one tree, with their contents in one unnamed temporary file.
//!
//! ```text
//! ./bin/busybox, /usr//bin/busybox  -> usr/bin/busybox      /bin, /sbin and /lib are /usr/bin, /usr/sbin and /usr/lib
//! usr/sbin/mkfs.ext4                -> link to mke2fs       resolved in this tree only, never on this machine
//! ```
//!
//! Invariants: no path has `..` or an empty part; nothing is created under the name of an entry; a link is followed a limited
//! number of times and never out of the tree; each path belongs to one owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

/// The folders that distributions moved into `/usr`.
const MERGED: [&str; 5] = ["bin", "sbin", "lib", "lib64", "lib32"];
/// The longest path.
const MOST_PATH_BYTES: usize = 1024;
/// The most links that are followed for one path, as in Linux.
const MOST_LINKS: usize = 40;
/// The longest file.
pub(crate) const MOST_FILE_BYTES: u64 = 512 << 20;
/// The most bytes of all files.
const MOST_BYTES: u64 = 8 << 30;
/// The most entries.
const MOST_ENTRIES: usize = 1_000_000;

/// An entry of the tree. Directories exist by what is in them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Node {
    /// A file: its place in the temporary file, and whether it can be executed.
    File {
        /// The offset of the content in the temporary file.
        at: u64,
        /// The number of bytes of the content.
        len: u64,
        /// Whether the file is a program.
        executable: bool,
    },
    /// A symbolic link with its target as written.
    Link(String),
}

/// All files of all inputs.
pub(crate) struct Tree {
    nodes: BTreeMap<String, (Node, usize)>,
    contents: File,
    length: u64,
}

/// The end of a path, with the links that lead to it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Resolved {
    /// The links that were followed.
    pub(crate) links: Vec<String>,
    /// The path of the file, without links.
    pub(crate) file: String,
}

/// Makes a path of an archive a path of the tree; empty for the root.
///
/// # Errors
/// When the path is not text, has `..` or is too long.
pub(crate) fn clean(raw: &[u8]) -> Result<String, String> {
    let text = str::from_utf8(raw).map_err(|_| "a path in it is not UTF-8 text".to_owned())?;
    if text.len() > MOST_PATH_BYTES {
        return Err(format!("a path in it has {} bytes", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("the path {text:?} in it has a control character"));
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(format!("the path {text:?} in it leaves its folder"));
    }
    Ok(merged(&parts))
}

fn merged(parts: &[&str]) -> String {
    let path = parts.join("/");
    let moved = parts.first().is_some_and(|first| MERGED.contains(first));
    if moved { format!("usr/{path}") } else { path }
}

impl Tree {
    /// An empty tree.
    ///
    /// # Errors
    /// When no temporary file can be created.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { nodes: BTreeMap::new(), contents: tempfile::tempfile()?, length: 0 })
    }

    /// Stores a file.
    ///
    /// # Errors
    /// A sentence: the content cannot be read or stored, is too large, or another owner has the path.
    pub(crate) fn add_file(
        &mut self,
        path: &str,
        content: impl Read,
        executable: bool,
        owner: usize,
    ) -> Result<(), String> {
        let at = self.length;
        let mut content = content.take(MOST_FILE_BYTES + 1);
        let mut to = Appender { file: &self.contents, at };
        let len = io::copy(&mut content, &mut to).map_err(|error| format!("{path}: {error}"))?;
        if len > MOST_FILE_BYTES || at + len > MOST_BYTES {
            return Err(format!("{path} is larger than allowed"));
        }
        self.length += len;
        self.add(path, Node::File { at, len, executable }, owner)
    }

    /// Stores a symbolic link. A link that leads to its own path is what the merge of `/usr` left over, and is skipped.
    ///
    /// # Errors
    /// A sentence: another owner has the path.
    pub(crate) fn add_link(&mut self, path: &str, target: &str, owner: usize) -> Result<(), String> {
        if follow(path, target).is_ok_and(|goal| goal == path) {
            return Ok(());
        }
        self.add(path, Node::Link(target.to_owned()), owner)
    }

    /// Stores a second name of a file of the same owner.
    ///
    /// # Errors
    /// A sentence: the file does not exist.
    pub(crate) fn add_hard_link(&mut self, path: &str, existing: &str, owner: usize) -> Result<(), String> {
        match self.nodes.get(existing) {
            Some((node, of)) if *of == owner => {
                let node = node.clone();
                self.add(path, node, owner)
            }
            _ => Err(format!("{path} is a link to {existing}, which does not come before it")),
        }
    }

    fn add(&mut self, path: &str, node: Node, owner: usize) -> Result<(), String> {
        if path.is_empty() || self.nodes.len() >= MOST_ENTRIES {
            return Err(format!("there is no room for {path:?}"));
        }
        match self.nodes.insert(path.to_owned(), (node, owner)) {
            None => Ok(()),
            Some(_) => Err(format!("{path} exists already")),
        }
    }

    /// The owner of a path.
    pub(crate) fn owner(&self, path: &str) -> Option<usize> {
        self.nodes.get(path).map(|(_, owner)| *owner)
    }

    /// The entry at a path; links are not followed.
    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path).map(|(node, _)| node)
    }

    /// The paths below a folder, which ends with a slash, in order.
    pub(crate) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        self.nodes
            .range(folder.to_owned()..)
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(folder))
    }

    /// The names directly in a folder, which ends with a slash.
    pub(crate) fn names_in(&self, folder: &str) -> BTreeSet<String> {
        self.below(folder)
            .filter_map(|path| path[folder.len()..].split('/').next())
            .map(str::to_owned)
            .collect()
    }

    /// The content of the file at a path; links are not followed.
    ///
    /// # Errors
    /// A sentence: there is no such file, or the temporary file cannot be read.
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let Some(Node::File { at, len, .. }) = self.node(path) else {
            return Err(format!("{path} is no file of the packages"));
        };
        let mut bytes = vec![0; usize::try_from(*len).map_err(|error| error.to_string())?];
        self.contents.read_exact_at(&mut bytes, *at).map_err(|error| format!("{path}: {error}"))?;
        Ok(bytes)
    }

    /// Follows all links of a path.
    ///
    /// # Errors
    /// A sentence: nothing is there, or the links do not end.
    pub(crate) fn resolve(&self, path: &str) -> Result<Resolved, String> {
        let mut links = Vec::new();
        let mut path = path.to_owned();
        'again: loop {
            let ends: Vec<usize> =
                path.match_indices('/').map(|(at, _)| at).chain(std::iter::once(path.len())).collect();
            for end in ends {
                let Some((Node::Link(target), _)) = self.nodes.get(&path[..end]) else { continue };
                if links.len() == MOST_LINKS {
                    return Err(format!("the links of {} do not end", links[0]));
                }
                links.push(path[..end].to_owned());
                path = format!("{}{}", follow(&path[..end], target)?, &path[end..]);
                continue 'again;
            }
            return match self.nodes.get(&path) {
                Some(_) => Ok(Resolved { links, file: path }),
                None => Err(format!("{path} is in no package")),
            };
        }
    }
}

/// The path to which a link at `path` leads.
fn follow(path: &str, target: &str) -> Result<String, String> {
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { path.split('/').collect() };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| format!("the link {path} leads out of the tree"))?;
            }
            _ => parts.push(part),
        }
    }
    let goal = merged(&parts);
    if goal.len() > MOST_PATH_BYTES {
        return Err(format!("the link {path} leads to a path of {} bytes", goal.len()));
    }
    Ok(goal)
}

/// Writes at an offset of a shared file.
struct Appender<'a> {
    file: &'a File,
    at: u64,
}

impl Write for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_and_those_that_climb_are_refused() {
        assert_eq!(clean(b"./bin/busybox").unwrap(), "usr/bin/busybox");
        assert_eq!(clean(b"/usr//lib/./x").unwrap(), "usr/lib/x");
        assert_eq!(clean(b"./").unwrap(), "");
        assert_eq!(clean(b"boot/vmlinuz").unwrap(), "boot/vmlinuz");
        for bad in [&b"../x"[..], b"a/../../x", b"a/..", b"\xff", b"a\nb"] {
            assert!(clean(bad).is_err(), "{bad:?}");
        }
        assert!(clean("a/".repeat(600).as_bytes()).is_err());
    }

    #[test]
    fn links_are_followed_in_the_tree_only() {
        let mut tree = Tree::new().unwrap();
        tree.add_file("usr/lib/real/file", &b"content"[..], false, 0).unwrap();
        tree.add_link("usr/lib/folder", "real", 0).unwrap();
        tree.add_link("etc/name", "/lib/folder/file", 0).unwrap();
        tree.add_link("usr/bin/up", "../../etc/name", 0).unwrap();
        tree.add_link("usr/lib/x", "/lib/x", 0).unwrap();
        let found = tree.resolve("usr/bin/up").unwrap();
        assert_eq!(found.links, ["usr/bin/up", "etc/name", "usr/lib/folder"]);
        assert_eq!(tree.read(&found.file).unwrap(), b"content");
        assert_eq!(tree.node("usr/lib/x"), None, "a link to itself is what the merge of /usr leaves over");
    }

    #[test]
    fn links_in_a_circle_and_out_of_the_tree_are_refused() {
        let mut tree = Tree::new().unwrap();
        tree.add_link("a", "b", 0).unwrap();
        tree.add_link("b", "a", 0).unwrap();
        tree.add_link("deep", "deep2/x", 0).unwrap();
        tree.add_link("deep2", "deep/y", 0).unwrap();
        tree.add_link("out", "../../etc/passwd", 0).unwrap();
        for (path, why) in
            [("a", "do not end"), ("deep", "do not end"), ("out", "out of the tree"), ("no", "no package")]
        {
            assert!(tree.resolve(path).unwrap_err().contains(why), "{path}");
        }
    }

    #[test]
    fn a_path_has_one_owner() {
        let mut tree = Tree::new().unwrap();
        tree.add_file("usr/bin/x", &b"1"[..], true, 0).unwrap();
        assert!(tree.add_file("usr/bin/x", &b"2"[..], true, 1).unwrap_err().contains("exists already"));
        assert!(tree.add_hard_link("usr/bin/y", "usr/bin/none", 1).is_err());
    }
}
