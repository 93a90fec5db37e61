//! The bodies of the fuzz targets, so that ordinary tests can replay the seeds. Each panics when a promise is broken.

use crate::archive;
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
                [("maintenance_package", package as fn(&[u8])), ("maintenance_elf", elf), ("maintenance_signed", signed)]
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
        write("maintenance_signed", "release", include_bytes!("../../golden/maintenance/InRelease"));
        write("maintenance_signed", "keyring", include_bytes!("../../golden/maintenance/rsa.asc"));
        write(
            "maintenance_signed",
            "packages",
            b"Package: xfsprogs\nVersion: 1-1\nDepends: libc6 (>= 2), a | b\nSize: 1\n",
        );
    }
}
