//! Damaged images: every program that shows the damaged tree must report it.
//!
//! ```text
//! two extents swapped in Joliet | one letter of a name changed in Rock Ridge | one size changed in Joliet
//! one letter changed in each tree of an image of xorriso
//! ```

use std::collections::BTreeSet;
use std::fs;

use iso9660::{Hierarchy, ImageOptions, ImagePlan, Namespace, Part, Profile, SegmentData, Tree};

use crate::generate::{Node, Random, Source};
use crate::readers::{self, Finding, Subject};
use crate::{Bench, EPOCH, compare_foreign, ours, stream, writers};

const NAMES: [&str; 3] = ["alpha.txt", "gamma.txt", "some/other.txt"];

fn source() -> Source {
    let mut source = Source::default();
    source.0.insert("some".to_owned(), Node::Directory);
    for (index, name) in NAMES.into_iter().enumerate() {
        source.0.insert(name.to_owned(), Node::File(vec![b'a' + index as u8; 3000].into()));
    }
    source
}

/// Returns the offset of the record of a name in the root of a tree.
fn record(image: &[u8], plan: &ImagePlan, hierarchy: Hierarchy, name: &[u8]) -> usize {
    let root = plan.segments().find(|segment| segment.part == Part::Directory(hierarchy, 1)).unwrap();
    assert!(matches!(root.data, SegmentData::Bytes(_)));
    let start = usize::try_from(root.offset).unwrap();
    let at = image[start..].windows(name.len()).position(|window| window == name).unwrap();
    start + at
}

fn joliet(name: &str) -> Vec<u8> {
    name.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// Returns the findings of every program in a written image after a change.
fn findings(change: impl Fn(&mut [u8], &ImagePlan)) -> Vec<Finding> {
    let source = source();
    let mut tree = Tree::new();
    for (path, bytes) in source.files() {
        tree.add_file(path, bytes.clone()).unwrap();
    }
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "MUTANT", EPOCH)).unwrap();
    let good = stream(&plan);
    let image =
        iso9660::Image::open_with(good.as_slice(), Some(Namespace::Plain), Default::default()).unwrap();
    let trees = vec![
        (Namespace::RockRidge, source.listing()),
        (Namespace::Joliet, source.listing()),
        (Namespace::Plain, ours::listing(&image).unwrap()),
    ];
    let mut bytes = good.clone();
    change(&mut bytes, &plan);
    assert!(bytes != good);
    let mut bench = Bench::new();
    let path = bench.directory.path().join("mutant.iso");
    fs::write(&path, &bytes).unwrap();
    let subject = Subject { path: &path, bytes: &bytes, trees };
    readers::disagreements(&subject, &mut bench.worker, &mut Random::new(0))
}

/// Returns the programs with findings, each with the tree.
fn reported(findings: &[Finding]) -> BTreeSet<(&'static str, Option<String>)> {
    findings
        .iter()
        .map(|finding| (finding.program, finding.namespace.map(|namespace| namespace.to_string())))
        .collect()
}

/// Checks that every program that shows the damaged tree has a finding, and that no program has one for another tree.
fn assert_reported(findings: &[Finding], namespace: Namespace, programs: &[&'static str]) {
    let reported = reported(findings);
    for program in programs {
        assert!(reported.contains(&(*program, Some(namespace.to_string()))), "{program} in {reported:?}");
    }
    let other =
        reported.iter().find(|(_, tree)| tree.as_ref().is_some_and(|tree| *tree != namespace.to_string()));
    assert_eq!(other, None, "{findings:?}");
}

#[test]
#[ignore = "needs xorriso, genisoimage, libarchive-tools, p7zip-full, libcdio-utils, pycdlib; run by .ci/run"]
fn two_extents_swapped_in_joliet_only_are_reported() {
    let found = findings(|image, plan| {
        // The extent is at 2..10 of a record, the identifier at 33.
        let [left, right] =
            ["alpha.txt", "gamma.txt"].map(|name| record(image, plan, Hierarchy::Joliet, &joliet(name)) - 33);
        for byte in 2..10 {
            image.swap(left + byte, right + byte);
        }
    });
    let programs = ["this crate", "xorriso", "bsdtar", "isoinfo", "iso-info", "pycdlib", "7z"];
    assert_reported(&found, Namespace::Joliet, &programs);
}

#[test]
#[ignore = "needs xorriso, genisoimage, libarchive-tools, p7zip-full, libcdio-utils, pycdlib; run by .ci/run"]
fn a_name_changed_in_rock_ridge_only_is_reported() {
    let found = findings(|image, plan| {
        let at = record(image, plan, Hierarchy::Primary, b"alpha.txt");
        image[at] = b'A';
    });
    // 7z prefers Joliet, so it cannot detect this.
    let programs = ["this crate", "xorriso", "bsdtar", "isoinfo", "iso-info", "pycdlib"];
    assert_reported(&found, Namespace::RockRidge, &programs);
}

#[test]
#[ignore = "needs xorriso, genisoimage, libarchive-tools, p7zip-full, libcdio-utils, pycdlib; run by .ci/run"]
fn a_size_changed_in_joliet_only_is_reported() {
    let found = findings(|image, plan| {
        let at = record(image, plan, Hierarchy::Joliet, &joliet("gamma.txt")) - 33;
        let size = 2999_u32;
        image[at + 10..at + 14].copy_from_slice(&size.to_le_bytes());
        image[at + 14..at + 18].copy_from_slice(&size.to_be_bytes());
    });
    let programs = ["this crate", "xorriso", "bsdtar", "isoinfo", "iso-info", "pycdlib", "7z"];
    assert_reported(&found, Namespace::Joliet, &programs);
}

#[test]
#[ignore = "needs xorriso, genisoimage, libarchive-tools, p7zip-full, libcdio-utils, pycdlib; run by .ci/run"]
fn a_name_changed_in_an_image_of_another_program_is_reported() {
    let (mut bench, source) = (Bench::new(), source());
    let (root, path) = (bench.directory.path().join("root"), bench.directory.path().join("foreign.iso"));
    source.write(&root, EPOCH);
    let writer = &writers::WRITERS[0][0];
    writer.make(&mut bench.worker, &root, &path).unwrap();
    let good = fs::read(&path).unwrap();
    assert_eq!(compare_foreign(writer, &source, &path, &good), Ok(()));
    for name in [joliet("gamma.txt"), b"gamma.txt".to_vec(), b"GAMMA.TXT;1".to_vec()] {
        let mut bytes = good.clone();
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let compared = compare_foreign(writer, &source, &path, &bytes);
        // A plain name is compared with the output of isoinfo for the damaged image, so it is no difference there.
        let plain = name == b"GAMMA.TXT;1";
        assert_eq!(compared.is_ok(), plain, "{name:?}: {compared:?}");
    }
}
