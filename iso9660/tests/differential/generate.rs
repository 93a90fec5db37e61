//! Random trees that depend only on their seed.
//!
//! ```text
//! seed -> Random -> shape (wide | deep | mixed) -> names of several kinds, sizes around sector boundaries, links
//! ```
//!
//! The names satisfy [`Rules`]: a program reports or changes a name that it cannot represent, and this behaviour is not
//! compared here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::listing::{Item, Kind, Listing};

/// The longest name of a link in bytes.
const LINK_NAME: usize = 60;

/// The SplitMix64 generator: short, and equal on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    /// Returns true once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn text(&mut self, alphabet: &str, length: usize) -> String {
        let alphabet: Vec<char> = alphabet.chars().collect();
        (0..length).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}

/// The limits of the images of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The longest name in characters.
    pub(crate) name: usize,
    /// The longest path in characters.
    pub(crate) path: usize,
    /// Whether names may have characters that Joliet cannot represent.
    pub(crate) any_character: bool,
    /// Whether the tree may have symbolic links.
    pub(crate) links: bool,
    /// The deepest level of directories.
    pub(crate) depth: usize,
}

#[derive(Clone)]
pub(crate) enum Node {
    Directory,
    File(Arc<[u8]>),
    Link(String),
}

/// The content of a source tree by path; every directory has an entry.
#[derive(Clone, Default)]
pub(crate) struct Source(pub(crate) BTreeMap<String, Node>);

impl Source {
    /// The files, by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Arc<[u8]>)> {
        self.0.iter().filter_map(|(path, node)| match node {
            Node::File(bytes) => Some((path.as_str(), bytes)),
            Node::Directory | Node::Link(_) => None,
        })
    }

    /// Returns the listing that every view by the original names must show.
    pub(crate) fn listing(&self) -> Listing {
        let kind = |node: &Node| match node {
            Node::Directory => Kind::Directory,
            Node::File(bytes) => Kind::file(bytes),
            Node::Link(target) => Kind::Symlink(target.clone()),
        };
        Listing(self.0.iter().map(|(path, node)| Item::new(path, kind(node))).collect())
    }

    /// Creates the tree on disk, with plain modes and `modified` as the date of everything.
    pub(crate) fn write(&self, root: &Path, modified: i64) {
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(modified.unsigned_abs());
        fs::create_dir(root).unwrap();
        // Parents sort before their children.
        for (path, node) in &self.0 {
            let path = root.join(path);
            match node {
                Node::Directory => fs::create_dir(&path).unwrap(),
                Node::Link(target) => symlink(target, &path).unwrap(),
                Node::File(bytes) => {
                    fs::write(&path, bytes).unwrap();
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
                    fs::File::open(&path).unwrap().set_modified(date).unwrap();
                }
            }
        }
        // From the leaves up, because creating a child changes the date of its parent.
        for path in
            self.0.iter().rev().filter(|(_, node)| matches!(node, Node::Directory)).map(|(path, _)| path)
        {
            let path = root.join(path);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
            fs::File::open(&path).unwrap().set_modified(date).unwrap();
        }
    }
}

/// Returns the tree of a seed.
pub(crate) fn tree(random: &mut Random, rules: Rules) -> Source {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    let mut directories: Vec<(String, usize)> = vec![(String::new(), 0)];
    // Shapes: most are small; some have a directory of several sectors; some are as deep as allowed.
    let (directory_count, file_count) = match random.below(8) {
        0 => (random.below(3), 60 + random.below(200)),
        1 => (rules.depth + random.below(6), 5 + random.below(20)),
        2 => (20 + random.below(40), random.below(30)),
        3 => (0, random.below(4)),
        _ => (random.below(8), 1 + random.below(30)),
    };
    let chain = random.one_in(3);
    for _ in 0..directory_count {
        let parent = if chain { directories.len() - 1 } else { random.below(directories.len()) };
        let (parent, depth) = directories[parent].clone();
        let path = join(&parent, &name(random, rules, true));
        if depth < rules.depth
            && path.chars().count() < rules.path
            && nodes.insert(path.clone(), Node::Directory).is_none()
        {
            directories.push((path, depth + 1));
        }
    }
    let mut contents: Vec<Arc<[u8]>> = Vec::new();
    for _ in 0..file_count {
        let parent = random.below(directories.len());
        let path = join(&directories[parent].0, &name(random, rules, false));
        if nodes.contains_key(&path) || path.chars().count() > rules.path {
            continue;
        }
        // A link and its target must fit into one record: iso-info 2.1.0 crashes on links that continue elsewhere.
        let short = path.rsplit('/').next().is_none_or(|name| name.len() <= LINK_NAME);
        let node = if rules.links && short && random.one_in(6) {
            let targets = ["ks.cfg", "../a/b", "/absolute/path", ".", "..", "a b/ü", "x/./y/../z"];
            Node::Link(random.pick(&targets).to_owned())
        } else if !contents.is_empty() && random.one_in(10) {
            // Equal content under two names, which programs may store once.
            Node::File(Arc::clone(&contents[random.below(contents.len())]))
        } else {
            let bytes = content(random);
            contents.push(Arc::clone(&bytes));
            Node::File(bytes)
        };
        nodes.insert(path, node);
    }
    Source(nodes)
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

fn content(random: &mut Random) -> Arc<[u8]> {
    let length = match random.below(12) {
        0 => 0,
        1 => 1,
        2 => 2047,
        3 => 2048,
        4 => 2049,
        5 => 4096,
        6 => random.below(60_000),
        _ => random.below(3_000),
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes.into()
}

/// Returns a name of one of the kinds that are difficult for images.
fn name(random: &mut Random, rules: Rules, directory: bool) -> String {
    const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
    let kind = if rules.any_character { random.below(11) } else { random.below(9) };
    let length = 1 + random.below(10);
    let name = match kind {
        // Names that installers look for.
        0 => random
            .pick(&[
                "ks.cfg",
                "user-data",
                "meta-data",
                "recipe.schema.json",
                "Autounattend.xml",
                "EFI",
                "boot",
            ])
            .to_owned(),
        // Names that collide after conversion.
        1 => random.text("aB-_", length.min(3)),
        2 => format!("{}.{}", random.text("xX+", 2), random.text("yY~", 1)),
        // Of the longest allowed length, or nearly. Not for every directory, so that paths stay within their limit.
        3 if !directory || random.one_in(4) => {
            let length = rules.name - random.below(rules.name / 2);
            random.text("Long-name.", length)
        }
        4 => random.text("äöüßéñ日本語Ωж aB.", length),
        5 => random.text("a .,+=@#~!{}[]()'&%$^-_", length),
        6 => format!(".{}", random.text(LOWER, length)),
        7 => format!("{}.tar.gz", random.text(LOWER, length)),
        9 => random.text("a:*?;\\\"<>|1", length),
        10 => random.text("😀𝄞a.", length.min(4)),
        _ => format!("{}.{}", random.text(LOWER, length), random.text(LOWER, 3)),
    };
    // Real files have no space or dot at either end, and some systems drop it; `.` and `..` are not names.
    match name.trim_matches([' ', '.']) {
        "" => "x".to_owned(),
        trimmed if name.starts_with('.') && !name.starts_with("..") => format!(".{trimmed}"),
        trimmed => trimmed.to_owned(),
    }
}

#[test]
fn the_same_seed_makes_the_same_tree() {
    let rules = Rules { name: 100, path: 600, any_character: true, links: true, depth: 7 };
    let paths = |seed| tree(&mut Random::new(seed), rules).listing().0;
    for seed in 0..50 {
        assert_eq!(paths(seed), paths(seed));
    }
    assert_ne!(paths(1), paths(2));
    // A pinned value: a seed in an older report must give the same tree.
    assert_eq!(Random::new(7).next(), 0x63CB_E1E4_5932_0DD7);
}
