use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::Path,
};

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;

/// A layer as the tar library writes it.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn header(kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_700_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size as u64);
        header
    }

    fn file(mut self, path: &str, content: &[u8]) -> Self {
        let mut header = Self::header(EntryType::Regular, 0o640, content.len());
        self.0.append_data(&mut header, path, content).unwrap();
        self
    }

    fn folder(mut self, path: &str, mode: u32) -> Self {
        self.0.append_data(&mut Self::header(EntryType::Directory, mode, 0), path, &b""[..]).unwrap();
        self
    }

    fn link(mut self, kind: EntryType, path: &str, target: &str) -> Self {
        self.0.append_link(&mut Self::header(kind, 0o777, 0), path, target).unwrap();
        self
    }

    fn pax(mut self, pairs: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(pairs.iter().copied()).unwrap();
        self
    }

    /// A member whose name is written without the checks of the library.
    fn raw(mut self, kind: EntryType, path: &[u8], target: &[u8]) -> Self {
        let mut header = Self::header(kind, 0o644, 0);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target);
        header.set_cksum();
        self.0.append(&header, &b""[..]).unwrap();
        self
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn ownership() -> Ownership {
    if is_root() { Ownership::Keep } else { Ownership::Ignore }
}

fn apply_to(root: &Path, layer: Layer) -> Result<Applied, String> {
    let tree = LayerTree::open(root, ownership()).unwrap();
    apply(&layer.bytes()[..], &tree, &mut |_| ()).map_err(|error| crate::discovery::chain(&error))
}

/// A folder with `root`, the tree, and `outside`, which no layer may change.
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/file"), "untouched").unwrap();
        Self(folder)
    }

    fn root(&self) -> std::path::PathBuf {
        self.0.path().join("root")
    }

    fn apply(&self, layer: Layer) -> Result<Applied, String> {
        apply_to(&self.root(), layer)
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }

    fn outside_is_untouched(&self) -> bool {
        let names: Vec<_> = fs::read_dir(self.0.path().join("outside")).unwrap().flatten().collect();
        let beside = fs::read_dir(self.0.path()).unwrap().count();
        let file = self.0.path().join("outside/file");
        names.len() == 1
            && beside == 2
            && fs::read(&file).unwrap() == b"untouched"
            && fs::metadata(file).unwrap().nlink() == 1
    }
}

#[test]
fn files_links_folders_and_times_are_those_of_the_layer() {
    let ground = Ground::new();
    let long = format!("deep/{}/name", "x".repeat(150));
    let layer = Layer::new()
        .folder("etc", 0o2750)
        .file("etc/a", b"content")
        .file(&long, b"long")
        .link(EntryType::Symlink, "etc/link", "/etc/a")
        .link(EntryType::Link, "etc/hard", "etc/a")
        .file("empty", b"");
    let applied = ground.apply(layer).unwrap();
    assert_eq!((applied.members, applied.bytes), (6, 11));
    assert_eq!(
        (ground.read("etc/a").unwrap(), ground.read(&long).unwrap()),
        ("content".to_owned(), "long".to_owned())
    );
    let metadata = fs::metadata(ground.root().join("etc/a")).unwrap();
    assert_eq!(
        (metadata.permissions().mode() & 0o7777, metadata.mtime(), metadata.nlink()),
        (0o640, 1_700_000_000, 2)
    );
    let folder = fs::metadata(ground.root().join("etc")).unwrap();
    assert_eq!((folder.permissions().mode() & 0o7777, folder.mtime()), (0o2750, 1_700_000_000));
    assert_eq!(fs::read_link(ground.root().join("etc/link")).unwrap(), Path::new("/etc/a"));
}

#[test]
fn whiteouts_remove_what_lower_layers_left_and_nothing_of_their_own_layer() {
    let ground = Ground::new();
    let lower =
        Layer::new().file("a/one", b"1").file("a/two", b"2").file("b/c/deep", b"3").file("keep", b"4");
    ground.apply(lower).unwrap();
    let upper = Layer::new()
        .file("a/new", b"5")
        .file("a/.wh..wh..opq", b"")
        .file(".wh.b", b"")
        .file("new", b"6")
        .file(".wh.new", b"")
        .file("gone/.wh.nothing", b"");
    ground.apply(upper).unwrap();
    assert_eq!((ground.read("a/one"), ground.read("a/two"), ground.read("b/c/deep")), (None, None, None));
    assert!(!ground.root().join("b").exists());
    for (path, content) in [("a/new", "5"), ("keep", "4"), ("new", "6")] {
        assert_eq!(ground.read(path).as_deref(), Some(content));
    }
}

#[test]
fn an_upper_layer_replaces_files_folders_and_links_by_each_other() {
    let ground = Ground::new();
    let lower = Layer::new().file("was-file", b"1").file("was-folder/x", b"2").link(
        EntryType::Symlink,
        "was-link",
        "was-file",
    );
    ground.apply(lower).unwrap();
    let upper = Layer::new().file("was-file/inside", b"never").raw(EntryType::Directory, b"was-file/", b"");
    assert!(ground.apply(upper).is_err(), "a file is no folder until the layer says so");
    let upper = Layer::new()
        .folder("was-file", 0o755)
        .file("was-file/inside", b"3")
        .file("was-folder", b"4")
        .file("was-link", b"5");
    ground.apply(upper).unwrap();
    assert_eq!(ground.read("was-file/inside").as_deref(), Some("3"));
    assert_eq!(ground.read("was-folder").as_deref(), Some("4"));
    assert_eq!(ground.read("was-link").as_deref(), Some("5"));
    assert!(fs::symlink_metadata(ground.root().join("was-link")).unwrap().is_file());
}

#[test]
fn a_file_system_without_links_gets_copies_of_hard_links_and_advice_about_symbolic_ones() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "content").unwrap();
    let tree = LayerTree::open(folder.path(), Ownership::Ignore).unwrap();
    let place = |name: &'static [u8]| tree.place(&[name]).unwrap();
    assert_eq!(place(b"a").copy_to(&place(b"b")).unwrap(), 7);
    assert_eq!(fs::read(folder.path().join("b")).unwrap(), b"content");
    assert!(place(b"a").copy_to(&place(b"b")).is_err(), "nothing is written over");
    std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
    assert!(place(b"link").copy_to(&place(b"c")).is_err(), "no link is followed");
    let advice = super::apply::of_links(rustix::io::Errno::PERM).to_string();
    assert!(advice.contains("use ext4 for this volume"), "{advice}");
}

#[test]
fn a_hard_link_reaches_into_a_lower_layer_and_writing_its_file_again_does_not_change_the_other_name() {
    let ground = Ground::new();
    ground.apply(Layer::new().file("one", b"old")).unwrap();
    ground.apply(Layer::new().link(EntryType::Link, "two", "one").file("one", b"new")).unwrap();
    assert_eq!((ground.read("one").as_deref(), ground.read("two").as_deref()), (Some("new"), Some("old")));
    assert!(
        ground
            .apply(Layer::new().link(EntryType::Link, "x", "missing"))
            .unwrap_err()
            .contains("does not exist")
    );
}

#[test]
fn a_folder_that_is_a_link_is_followed_inside_of_the_root() {
    let ground = Ground::new();
    let lower = Layer::new().folder("usr/lib", 0o755).link(EntryType::Symlink, "lib", "/usr/lib");
    ground.apply(lower).unwrap();
    ground.apply(Layer::new().file("lib/module", b"m")).unwrap();
    assert_eq!(ground.read("usr/lib/module").as_deref(), Some("m"));
}

#[test]
fn hostile_layers_change_nothing_outside_of_the_root_and_each_is_refused_in_words_or_stays_inside() {
    const CLIMBS: Option<&str> = Some("the path climbs out by \"..\"");
    const NOWHERE: Option<&str> = Some("a link to what does not exist in the new system");
    const DEEP: Option<&str> = Some("the path has more than 256 names");
    let absolute = Ground::new();
    let outside = absolute.0.path().join("outside");
    let outside = outside.to_str().unwrap();
    let climbing = || Layer::new().link(EntryType::Symlink, "l", "../outside");
    let file = |layer: Layer, path: &[u8]| layer.raw(EntryType::Regular, path, b"");
    let layers: Vec<(Layer, Option<&str>)> = vec![
        (file(Layer::new(), b"../outside/file"), CLIMBS),
        (file(Layer::new(), b"a/../../outside/file"), CLIMBS),
        (Layer::new().raw(EntryType::Directory, b"..", b""), CLIMBS),
        (file(climbing(), b"l/file"), NOWHERE),
        (file(Layer::new().link(EntryType::Symlink, "l", outside), b"l/file"), NOWHERE),
        (file(Layer::new().raw(EntryType::Link, b"l", b"../outside/file"), b"l"), CLIMBS),
        (
            climbing().raw(EntryType::Link, b"h", b"l/file"),
            Some("it is a hard link to \"l/file\": that does not exist"),
        ),
        // What a lower layer does not have is not removed.
        (file(climbing(), b"l/.wh.file"), None),
        (file(climbing(), b"l/.wh..wh..opq"), None),
        (file(Layer::new(), b".wh..."), Some("a whiteout names no file")),
        (file(Layer::new(), b".wh.."), Some("a whiteout names no file")),
        (
            file(Layer::new().link(EntryType::Symlink, "l", "l"), b"l/x"),
            Some("the path leads through links that never end, or through more than forty"),
        ),
        (file(Layer::new().file("l", b""), b"l/x"), Some("the path leads through what is no directory")),
        // The second header belongs to no member.
        (file(Layer::new(), &b"d/".repeat(40)).pax(&[("path", "d/".repeat(1000).as_bytes())]), None),
        (Layer::new().pax(&[("path", "d/".repeat(1000).as_bytes())]).file("x", b""), DEEP),
    ];
    for (number, (layer, refusal)) in layers.into_iter().enumerate() {
        let ground = if number == 4 { &absolute } else { &Ground::new() };
        let applied = ground.apply(layer);
        match (&applied, refusal) {
            (Ok(_), None) => {}
            (Err(words), Some(refusal)) => {
                let is_whole = words.contains(refusal) && words.contains("build the image again");
                assert!(is_whole, "layer {number}: {words}");
            }
            _ => panic!("layer {number}: {applied:?}"),
        }
        assert!(ground.outside_is_untouched(), "layer {number}");
    }
}

#[test]
fn a_write_through_a_link_of_the_same_name_replaces_the_link() {
    let ground = Ground::new();
    let target = ground.0.path().join("outside/file");
    let layer = Layer::new().link(EntryType::Symlink, "l", target.to_str().unwrap()).file("l", b"mine");
    ground.apply(layer).unwrap();
    assert_eq!(ground.read("l").as_deref(), Some("mine"));
    assert!(ground.outside_is_untouched());
}

/// A device of a lower layer may be a disk of the machine.
#[test]
fn a_file_in_the_place_of_a_device_never_reaches_the_device() {
    if !is_root() {
        // Only root makes devices, in a layer too.
        return;
    }
    let ground = Ground::new();
    let mut lower = Layer::new();
    let mut header = Layer::header(EntryType::Char, 0o666, 0);
    // Every write to it fails: `/dev/full`.
    header.set_device_major(1).unwrap();
    header.set_device_minor(7).unwrap();
    lower.0.append_data(&mut header, "etc/fstab", &b""[..]).unwrap();
    ground.apply(lower).unwrap();
    let place = ground.root().join("etc/fstab");
    assert!(fs::write(&place, "x").is_err(), "a write through the name reaches the device");
    ground.apply(Layer::new().file("etc/fstab", b"of the upper layer")).unwrap();
    assert!(fs::symlink_metadata(&place).unwrap().is_file());
    assert_eq!(ground.read("etc/fstab").as_deref(), Some("of the upper layer"));
}

#[test]
fn more_members_than_the_limit_are_refused() {
    let ground = Ground::new();
    let tree = LayerTree::open(&ground.root(), ownership()).unwrap();
    let layer = Layer::new().file("a", b"1").file("b", b"2").file("c", b"3").bytes();
    assert_eq!(apply::apply_members(3, &layer[..], &tree, &mut |_| ()).unwrap().members, 3);
    let error = apply::apply_members(2, &layer[..], &tree, &mut |_| ()).unwrap_err();
    assert!(matches!(error, LayerError::TooMany), "{error}");
}

#[test]
fn extended_attributes_and_devices_are_kept() {
    let ground = Ground::new();
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut layer = Layer::new()
        .pax(&[("SCHILY.xattr.user.note", b"kept"), ("mtime", b"1600000000.25")])
        .file("noted", b"x");
    if is_root() {
        layer = layer
            .pax(&[("SCHILY.xattr.security.capability", &capability), ("uid", b"1000")])
            .file("ping", b"x");
        let mut header = Layer::header(EntryType::Char, 0o666, 0);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        layer.0.append_data(&mut header, "null", &b""[..]).unwrap();
        layer = layer.raw(EntryType::Fifo, b"pipe", b"");
    }
    let applied = ground.apply(layer).unwrap();
    let mut value = [0; 64];
    let noted = ground.root().join("noted");
    if applied.skipped_attributes == 0 {
        let length = rustix::fs::getxattr(&noted, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
    let metadata = fs::metadata(noted).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_600_000_000, 250_000_000));
    if is_root() {
        let ping = ground.root().join("ping");
        assert_eq!(fs::metadata(&ping).unwrap().uid(), 1000);
        let length = rustix::fs::getxattr(&ping, "security.capability", &mut value[..]).unwrap();
        assert_eq!(&value[..length], capability, "the capability was set after the owner");
        let null = fs::metadata(ground.root().join("null")).unwrap();
        assert!(null.file_type().is_char_device() && null.rdev() == rustix::fs::makedev(1, 3));
        assert!(fs::metadata(ground.root().join("pipe")).unwrap().file_type().is_fifo());
    }
}

#[test]
fn sparse_files_of_pax_1_0_and_old_gnu_have_their_size_and_holes() {
    let ground = Ground::new();
    let mut map = b"2\n0\n4\n1048576\n4\n".to_vec();
    map.resize(512, 0);
    map.extend(b"headtail");
    let layer = Layer::new()
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"sparse"),
            ("GNU.sparse.realsize", b"2097152"),
        ])
        .file("GNUSparseFile.0/sparse", &map);
    ground.apply(layer).unwrap();
    let bytes = fs::read(ground.root().join("sparse")).unwrap();
    assert_eq!(
        (bytes.len(), &bytes[..4], &bytes[1 << 20..(1 << 20) + 4]),
        (2 << 20, b"head".as_slice(), b"tail".as_slice())
    );
    assert!(fs::metadata(ground.root().join("sparse")).unwrap().blocks() * 512 < 1 << 20);

    let mut header = Layer::header(EntryType::GNUSparse, 0o644, 4);
    header.set_path("old").unwrap();
    let raw = header.as_mut_bytes();
    raw[386..398].copy_from_slice(b"00004000000\0");
    raw[398..410].copy_from_slice(b"00000000004\0");
    raw[483..495].copy_from_slice(b"00004000010\0");
    header.set_cksum();
    let mut layer = Layer::new();
    layer.0.append(&header, &b"tail"[..]).unwrap();
    ground.apply(layer).unwrap();
    let bytes = fs::read(ground.root().join("old")).unwrap();
    assert_eq!((bytes.len(), &bytes[1 << 20..(1 << 20) + 4]), ((1 << 20) + 8, b"tail".as_slice()));
}

#[test]
fn damaged_archives_and_headers_that_claim_too_much_are_refused() {
    let ground = Ground::new();
    let whole = Layer::new().file("a", &[7; 2000]).bytes();
    let tree = LayerTree::open(&ground.root(), Ownership::Ignore).unwrap();
    for length in [100, 700, 1600] {
        assert!(apply(&whole[..length], &tree, &mut |_| ()).is_err(), "{length}");
    }
    let mut wrong = whole.clone();
    wrong[0] ^= 1;
    assert!(apply(&wrong[..], &tree, &mut |_| ()).unwrap_err().to_string().contains("reading the layer"));
    let mut bomb = Layer::header(EntryType::XHeader, 0o644, 0);
    bomb.set_size(8 << 30);
    bomb.set_cksum();
    let refused = apply(&bomb.as_bytes()[..], &tree, &mut |_| ()).unwrap_err();
    assert!(crate::discovery::chain(&refused).contains("longer than 1 MiB"));
    let old = Layer::new().pax(&[("GNU.sparse.map", b"0,4")]).file("x", b"data");
    assert!(ground.apply(old).unwrap_err().contains("not supported"));
}

#[test]
fn what_is_no_regular_file_is_not_opened_for_reading() {
    let folder = tempfile::tempdir().unwrap();
    let tree = LayerTree::open(folder.path(), Ownership::Ignore).unwrap();
    // To open a socket is an error of its own: here it is seen that it is none before that. A device would act when it is opened.
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("os-release")).unwrap();
    assert_eq!(tree.open_file("os-release").unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert!(!tree.has_file("os-release"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_layer_of_any_names_stays_inside_and_its_last_files_are_there(
        members in proptest::collection::vec((0_u8..4, "[ab./]{1,12}", "[ab./]{1,12}"), 1..12),
    ) {
        let ground = Ground::new();
        let mut expected: BTreeMap<String, String> = BTreeMap::new();
        for (number, (kind, path, target)) in members.iter().enumerate() {
            let layer = match kind {
                0 => {
                    let mut header = Layer::header(EntryType::Regular, 0o644, 1);
                    header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
                    header.set_cksum();
                    let mut layer = Layer::new();
                    layer.0.append(&header, &[b'0' + number as u8][..]).unwrap();
                    layer
                }
                1 => Layer::new().raw(EntryType::Directory, path.as_bytes(), b""),
                2 => Layer::new().raw(EntryType::Symlink, path.as_bytes(), target.as_bytes()),
                _ => Layer::new().raw(EntryType::Link, path.as_bytes(), target.as_bytes()),
            };
            let applied = ground.apply(layer);
            expected.clear();
            if *kind == 0 && applied.is_ok() && !path.ends_with('/') {
                expected.insert(path.trim_start_matches('/').to_owned(), char::from(b'0' + number as u8).to_string());
            }
            prop_assert!(ground.outside_is_untouched());
        }
        for (path, content) in expected {
            // Links inside of the root are read as the kernel resolves them there, so only plain paths are compared.
            let real = fs::canonicalize(ground.root().join(&path));
            if let Ok(real) = real && real.starts_with(fs::canonicalize(ground.root()).unwrap()) {
                prop_assert_eq!(fs::read_to_string(real).unwrap(), content);
            }
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_or_members_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let mut archive = Archive::new(&bytes[..]);
        while let Ok(Some(_)) = archive.next_member() {}
    }
}

/// Folders with a file system of their own, unmounted at the end.
struct Mounted(Vec<std::path::PathBuf>);

impl Mounted {
    fn new(folders: &[std::path::PathBuf]) -> Self {
        let mut mounted = Self(Vec::new());
        for folder in folders {
            fs::create_dir(folder).unwrap();
            rustix::mount::mount("none", folder, "tmpfs", rustix::mount::MountFlags::NODEV, c"").unwrap();
            mounted.0.push(folder.clone());
        }
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = rustix::mount::unmount(folder, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

#[test]
#[ignore = "needs root; run by .ci/run"]
fn a_whiteout_over_a_mounted_volume_empties_it_and_the_same_inode_on_another_volume_is_another_file() {
    let ground = Ground::new();
    let root = ground.root();
    let _mounted = Mounted::new(&["var", "srv"].map(|name| root.join(name)));
    ground.apply(Layer::new().file("srv/old", b"2")).unwrap();
    // File systems of one kind number their files alike: what the layer makes in /var has the inode of /srv/old.
    ground.apply(Layer::new().file("var/new", b"1").file("srv/.wh.old", b"")).unwrap();
    let inode = |path: &str| fs::metadata(root.join(path)).map(|found| found.ino()).ok();
    assert!(inode("var/new").is_some() && inode("srv/old").is_none());
    ground.apply(Layer::new().file(".wh.var", b"")).unwrap();
    assert_eq!(fs::read_dir(root.join("var")).unwrap().count(), 0);
    ground.apply(Layer::new().file("srv/d", b"x")).unwrap();
    ground.apply(Layer::new().file(".wh..wh..opq", b"")).unwrap();
    assert_eq!(fs::read_dir(root.join("srv")).unwrap().count(), 0);
    let refused = ground.apply(Layer::new().link(EntryType::Symlink, "srv", "/var")).unwrap_err();
    assert!(refused.contains("a volume of partition_layout is mounted here"), "{refused}");
    let linked = Layer::new().file("srv/d", b"x").link(EntryType::Link, "var/d", "srv/d");
    let refused = ground.apply(linked).unwrap_err();
    assert!(refused.contains("keep both in one volume of partition_layout"), "{refused}");
}
