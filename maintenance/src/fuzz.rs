//! The bodies of the fuzz targets, so that ordinary tests can replay the seeds. Each panics when a promise is broken.

use crate::archive;
use crate::cpio;
use crate::elf;
use crate::fetch;
use crate::package::PackageFile;
use crate::tree::Tree;

/// The most bytes that the files of a fuzzed package may have; a target has little memory.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a package: archive, description and files. Every path of it stays in the tree.
pub fn package(data: &[u8]) {
    if let Ok(members) = archive::members(data) {
        assert!(members.control.end <= data.len() && members.data.end <= data.len());
    }
    let (Ok(file), Ok(mut tree)) = (PackageFile::parse(data.to_vec()), Tree::new()) else { return };
    if file.unpack_into(&mut tree, 0).is_err() {
        return;
    }
    let paths: Vec<String> = tree.below("").map(str::to_owned).collect();
    let mut left = MOST_BYTES;
    for path in paths {
        assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
        let Ok(found) = tree.resolve(&path) else { continue };
        let bytes = tree.read(&found.file).map(|bytes| bytes.len() as u64).unwrap_or(0);
        let Some(rest) = left.checked_sub(bytes) else { return };
        left = rest;
    }
}

/// Reads an ELF file both ways.
pub fn elf(data: &[u8]) {
    if let Ok(pairs) = elf::modinfo(data) {
        let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes <= data.len());
    }
    let _needs = std::hint::black_box(elf::needs(data));
}

/// Adds entries to an archive, writes it, and reads it back as the kernel does. Each line is an entry: a letter for its kind, its path,
/// and after a blank its content, target or device.
pub fn cpio(data: &[u8]) {
    let mut archive = cpio::Archive::default();
    for line in data.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else { continue };
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (path, content) =
            (String::from_utf8_lossy(&rest[..end]), rest.get(end + 1..).unwrap_or_default());
        let entry = match kind {
            b'd' => cpio::Entry::Directory,
            b'l' => cpio::Entry::Link(String::from_utf8_lossy(content).into_owned()),
            b'c' => {
                cpio::Entry::Device(content.len() as u32, u32::from(content.first().copied().unwrap_or(0)))
            }
            kind => cpio::Entry::File(content.to_vec(), *kind == b'x'),
        };
        // What is refused is not in the archive.
        let _refused = archive.add(&path, entry);
    }
    let mut bytes = Vec::new();
    if archive.write_to(&mut bytes).is_err() {
        panic!("a vector takes every byte");
    }
    let Some(members) = read_back(&bytes) else { panic!("the archive cannot be read: {bytes:02x?}") };
    let mut members = members.into_iter();
    for (path, entry) in archive.entries() {
        let (content, device): (&[u8], _) = match entry {
            cpio::Entry::File(content, _) => (content, (0, 0)),
            cpio::Entry::Link(target) => (target.as_bytes(), (0, 0)),
            cpio::Entry::Directory => (&[], (0, 0)),
            cpio::Entry::Device(major, minor) => (&[], (*major, *minor)),
        };
        let kind = match entry {
            cpio::Entry::Directory => 0o040_000,
            cpio::Entry::File(..) => 0o100_000,
            cpio::Entry::Link(_) => 0o120_000,
            cpio::Entry::Device(..) => 0o020_000,
        };
        let found = members.next();
        let found =
            found.as_ref().map(|(name, mode, bytes, device)| (&**name, mode & 0o170_000, &**bytes, *device));
        assert_eq!(found, Some((path, kind, content, device)));
    }
    assert_eq!(members.next(), None);
}

/// A member of an archive: name, mode, content, device.
type Member = (String, u32, Vec<u8>, (u32, u32));

/// Reads the members of an archive up to its trailer, as the kernel does (`init/initramfs.c`). `None`: the kernel would not read it.
fn read_back(bytes: &[u8]) -> Option<Vec<Member>> {
    let field = |at: usize, number: usize| {
        let digits = bytes.get(at + 6 + 8 * number..)?.get(..8)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut members, mut at) = (Vec::new(), 0);
    loop {
        let (length, name_length) = (field(at, 6)? as usize, field(at, 11)? as usize);
        let name = bytes.get(at + 110..at + 110 + name_length)?.strip_suffix(&[0])?;
        let name = std::str::from_utf8(name).ok()?;
        let content = (at + 110 + name_length).next_multiple_of(4);
        let next = (content + length).next_multiple_of(4);
        if !bytes.get(at..)?.starts_with(b"070701") || name.contains('\0') {
            return None;
        }
        if name == cpio::TRAILER {
            return (length == 0 && next == bytes.len()).then_some(members);
        }
        let content = bytes.get(content..content + length)?.to_vec();
        members.push((name.to_owned(), field(at, 1)?, content, (field(at, 9)?, field(at, 10)?)));
        at = next;
    }
}

/// Opens a signed text with a key that did not make it, and reads the data as a keyring and as an index.
pub fn signed(data: &[u8]) {
    fetch::read_hostile(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of a target's seeds.
    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty());
        files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    #[test]
    fn the_seeds_of_every_target_are_read() {
        for (target, run) in [
            ("maintenance_package", package as fn(&[u8])),
            ("maintenance_elf", elf),
            ("maintenance_signed", signed),
            ("maintenance_cpio", cpio),
        ] {
            for seed in seeds(target) {
                run(&seed);
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        #[test]
        fn a_changed_seed_breaks_no_promise(at in 0_usize..1_000_000, value: u8) {
            for (target, run) in
                [("maintenance_package", package as fn(&[u8])), ("maintenance_elf", elf), ("maintenance_signed", signed), ("maintenance_cpio", cpio)]
            {
                for mut seed in seeds(target) {
                    let at = at % seed.len().max(1);
                    if let Some(byte) = seed.get_mut(at) {
                        *byte = value;
                    }
                    run(&seed);
                }
            }
        }
    }

    #[test]
    fn the_seeds_of_the_corpus_are_those_that_this_crate_makes() {
        use crate::test_kit::{Member, deb_packed, gzip, module, program, xz, zstd};
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let write = |target: &str, name: &str, bytes: &[u8]| {
            let path = folder.join(target).join(name);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::create_dir_all(folder.join(target)).unwrap();
                std::fs::write(&path, bytes).unwrap();
            }
            assert!(std::fs::read(&path).unwrap() == bytes, "UPDATE_GOLDEN=1 rewrites {}", path.display());
        };
        let control = "Package: seed\nVersion: 1\nArchitecture: all\n";
        let long = format!("./usr/lib/{}", "long/".repeat(40));
        let members = [
            Member::File("./usr/bin/program", program(Some("/lib64/ld.so"), &["libc.so.6"])),
            Member::Link("./usr/bin/link", "../../lib/x"),
            Member::Hard("./usr/bin/hard", "./usr/bin/program"),
            Member::File(&long, vec![1]),
        ];
        type Pack = fn(&[u8]) -> Vec<u8>;
        let packings: [(&str, Pack); 4] =
            [("plain", <[u8]>::to_vec), ("gzip", gzip), ("xz", xz), ("zstd", zstd)];
        for (name, pack) in packings {
            write("maintenance_package", name, &deb_packed(control, &members, pack));
        }
        write("maintenance_elf", "module", &module(&["name=a", "depends=b,c", "alias=pci:v*"]));
        write("maintenance_elf", "program", &program(Some("/lib64/ld.so"), &["libc.so.6", "libz.so.1"]));
        write(
            "maintenance_cpio",
            "entries",
            b"xinit program\ndetc\nfetc/passwd root:x:0:0\nlbin usr/bin\ncdev/console 12345\n",
        );
        write(
            "maintenance_cpio",
            "refused",
            b"fTRAILER!!! \nfTRAILER!!!/x y\nda\nfa/b c\nfa/b/c d\nf../x \nl/x y\nla \n",
        );
        write("maintenance_signed", "release", include_bytes!("../../golden/maintenance/InRelease"));
        write("maintenance_signed", "keyring", include_bytes!("../../golden/maintenance/rsa.asc"));
        write(
            "maintenance_signed",
            "packages",
            b"Package: xfsprogs\nVersion: 1-1\nDepends: libc6 (>= 2), a | b\nSize: 1\n",
        );
    }
}
