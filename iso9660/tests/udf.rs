//! UDF file systems in every layout of optical media: their files are found, listed and read.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use common::udf::{FLAVOURS, Flavour, files, image};
use iso9660::{EntryKind, Image, Namespace, ReadAt, ReadError, ReadLimits};

fn open(bytes: Vec<u8>) -> Image<Vec<u8>> {
    Image::open_with(bytes, Some(Namespace::Udf), ReadLimits::default()).unwrap()
}

#[test]
fn every_file_is_readable_in_every_partition_layout() {
    for flavour in FLAVOURS {
        let image = open(image(flavour).bytes);
        let (mut found, mut directories, mut links) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        image
            .walk(|path, entry| {
                match &entry.kind {
                    EntryKind::File => {
                        let content = image.read(path, 1 << 20).unwrap();
                        assert_eq!(content.len() as u64, entry.len, "{flavour:?} {path}");
                        found.insert(path.to_owned(), content);
                    }
                    EntryKind::Directory => directories.push(path.to_owned()),
                    EntryKind::Symlink(target) => drop(links.insert(path.to_owned(), target.clone())),
                    other => panic!("{other:?}"),
                }
                assert_eq!(entry.modified, Some(common::EPOCH));
                assert_eq!(entry.mode.unwrap() & 0o777, 0o555);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(found == files(), "{flavour:?}: {:?}", found.keys());
        assert_eq!(directories, ["sources"]);
        let wanted = [("climb", "/../README.TXT"), ("link", "sources/inline.txt")];
        assert_eq!(links, wanted.map(|(path, target)| (path.to_owned(), target.to_owned())).into());
    }
}

#[test]
fn a_volume_without_iso_9660_has_its_label_and_revision() {
    for (flavour, revision) in FLAVOURS.into_iter().zip([0x0102, 0x0250, 0x0201, 0x0201]) {
        let image = Image::open(image(flavour).bytes).unwrap();
        assert_eq!(image.namespaces(), [Namespace::Udf]);
        let volume = image.volume();
        assert_eq!((image.volume_id(), volume.udf_volume_id.as_deref()), ("UDF_LABEL", Some("UDF_LABEL")));
        assert_eq!((volume.udf_revision, volume.has_udf), (Some(revision), true));
        assert_eq!((volume.created, volume.sectors), (Some(common::EPOCH), 320));
        assert_eq!(image.boot_images().unwrap(), []);
    }
}

#[test]
fn names_match_exactly_or_in_any_case_and_links_are_followed() {
    let image = open(image(Flavour::Physical).bytes);
    assert_eq!(image.lookup("README.TXT").unwrap().name, "readme.txt");
    assert_eq!(image.lookup("NÄME").unwrap().name, "näme");
    assert_eq!(image.read("link", 1000).unwrap(), files()["sources/inline.txt"]);
    assert_eq!(image.lookup("climb").unwrap().name, "readme.txt", "the parent of the root is the root");
    assert!(matches!(image.lookup("deleted.txt"), Err(ReadError::NotFound { .. })));
}

#[test]
fn extents_are_returned_unless_a_file_has_holes() {
    for flavour in FLAVOURS {
        let bytes = image(flavour).bytes;
        let image = open(bytes.clone());
        for (path, content) in files() {
            if path.ends_with("sparse.bin") {
                assert!(matches!(image.extents(&path), Err(ReadError::Unsupported { .. })));
                assert!(!image.lookup(&path).unwrap().is_stored());
                continue;
            }
            let extents = image.extents(&path).unwrap();
            let range = |extent: &iso9660::Extent| {
                usize::try_from(extent.offset).unwrap()..usize::try_from(extent.offset + extent.len).unwrap()
            };
            let joined: Vec<u8> = extents.iter().flat_map(|extent| bytes[range(extent)].to_vec()).collect();
            assert!(joined == content, "{flavour:?} {path}");
        }
        let pieces = |path: &str| image.extents(path).unwrap().len();
        assert_eq!((pieces("sources/install.wim"), pieces("empty")), (2, 0));
        if flavour != Flavour::Sparable {
            assert_eq!(pieces("sources/chain.bin"), 1, "adjacent extents are merged");
        }
    }
}

#[test]
fn files_are_readable_at_any_offset() {
    let image = open(image(Flavour::Metadata).bytes);
    for (path, content) in files() {
        let file = image.open_file(&path).unwrap();
        for (offset, length) in [(0, 1), (2047, 2), (2000, 3000), (4095, 2), (5000, 1)] {
            let mut buffer = vec![0xAA; length];
            let outcome = file.read_exact_at(offset as u64, &mut buffer);
            match content.get(offset..offset + length) {
                Some(wanted) => assert!(outcome.is_ok() && buffer == wanted, "{path} {offset}"),
                None => assert!(outcome.is_err(), "{path} {offset}"),
            }
        }
    }
}

#[test]
fn the_second_copy_of_a_structure_is_used_when_the_first_is_broken() {
    let breaks: [(Flavour, &str); 5] = [
        (Flavour::Physical, "anchor"),
        (Flavour::Physical, "main logical"),
        (Flavour::Physical, "main partition"),
        (Flavour::Metadata, "metadata file"),
        (Flavour::Sparable, "anchor"),
    ];
    for (flavour, place) in breaks {
        let mut image = image(flavour);
        let at = image.at(place);
        image.bytes[at + 20] ^= 1;
        assert_eq!(open(image.bytes).read("readme.txt", 10_000).unwrap(), files()["readme.txt"], "{place}");
    }
}

#[test]
fn reads_follow_the_table_of_moved_blocks() {
    let mut moved = image(Flavour::Sparable);
    moved.change("sparing table", 56, &96_u32.to_le_bytes());
    assert_ne!(open(moved.bytes).read("readme.txt", 10_000).unwrap(), files()["readme.txt"]);
    let mut virtual_image = image(Flavour::Virtual);
    virtual_image.change("allocation table", 176 + 152 + 4, &[0; 4]);
    assert!(Image::open(virtual_image.bytes).is_err(), "the root is elsewhere");
}
