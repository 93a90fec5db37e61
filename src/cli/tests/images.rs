//! `shoal iso`: build, check, extract and splice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::shoal;

/// A directory with deep paths, long names, links and modes.
fn directory(root: &Path) -> String {
    let directory = root.join("dir");
    fs::create_dir_all(directory.join("deep/1/2/3/4/5/6/7/8/9")).unwrap();
    fs::write(directory.join("deep/1/2/3/4/5/6/7/8/9/leaf"), "deep\n").unwrap();
    fs::write(directory.join("user-data"), "#cloud-config\n").unwrap();
    fs::write(directory.join("ünïcode name.txt"), "text\n").unwrap();
    fs::write(directory.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(directory.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("user-data", directory.join("link")).unwrap();
    directory.to_str().unwrap().to_owned()
}

fn path(root: &Path, name: &str) -> String {
    root.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_built_image_passes_the_check_and_extracts_to_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let (from, image, to) = (directory(dir.path()), path(dir.path(), "a.iso"), path(dir.path(), "out"));
    let ran = shoal(&["iso", "build", &from, "-o", &image, "--label", "MINE", "--digest"]).ends_with(0);
    assert!(ran.out.contains("a.iso: 1048576 bytes, sha256:"), "{}", ran.out);
    let checked = shoal(&["iso", "check", &image, "--strict"]).ends_with(0);
    assert!(checked.out.contains("0 errors, 0 warnings, 0 notes"), "{}", checked.out);
    let info = shoal(&["iso", "info", &image, "--digest", "--json"]).ends_with(0).json();
    assert_eq!(info["volume_id"], "MINE");
    assert!(ran.out.contains(info["sha256"].as_str().unwrap()));

    let done = shoal(&["iso", "extract", &image, "-o", &to, "--json"]).ends_with(0).json();
    assert_eq!((&done["files"], &done["links"], &done["skipped"]), (&json!(5), &json!(1), &json!(0)));
    let out = Path::new(&to);
    assert_eq!(fs::read_to_string(out.join("deep/1/2/3/4/5/6/7/8/9/leaf")).unwrap(), "deep\n");
    assert_eq!(fs::read_to_string(out.join("ünïcode name.txt")).unwrap(), "text\n");
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("user-data"));
    assert_ne!(fs::metadata(out.join("run.sh")).unwrap().permissions().mode() & 0o111, 0);
    assert_eq!(fs::metadata(out.join("user-data")).unwrap().permissions().mode() & 0o111, 0);
    // Existing files are not overwritten.
    let again = shoal(&["iso", "extract", &image, "-o", &to]).ends_with(1);
    assert!(again.err.contains("extract to an empty directory"), "{}", again.err);
    let part = path(dir.path(), "part");
    let done = shoal(&["iso", "extract", &image, "/deep/1", "-o", &part, "--json"]).ends_with(0).json();
    assert_eq!(done["files"], 1);
    assert!(Path::new(&part).join("2/3/4/5/6/7/8/9/leaf").exists());
    let one = path(dir.path(), "one");
    shoal(&["iso", "extract", &image, "user-data", "-o", &one]).ends_with(0);
    assert_eq!(fs::read_to_string(Path::new(&one).join("user-data")).unwrap(), "#cloud-config\n");
}

#[test]
fn equal_directories_give_equal_bytes_in_a_file_and_on_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (one, two) = (directory(dir.path()), directory(other.path()));
    let images = [path(dir.path(), "1.iso"), path(dir.path(), "2.iso")];
    // Only ASCII names: the test reads standard output as text.
    fs::remove_file(Path::new(&one).join("ünïcode name.txt")).unwrap();
    fs::remove_file(Path::new(&two).join("ünïcode name.txt")).unwrap();
    for (from, image) in [(&one, &images[0]), (&two, &images[1])] {
        shoal(&["iso", "build", from, "-o", image]).ends_with(0);
    }
    let bytes = fs::read(&images[0]).unwrap();
    assert!(bytes == fs::read(&images[1]).unwrap());
    assert!(
        fs::read_dir(dir.path())
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().contains("partial") })
    );
}

#[test]
fn an_image_that_cannot_be_made_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let from = directory(dir.path());
    let image = path(dir.path(), "a.iso");
    let ran = shoal(&["iso", "build", &from, "-o", &image, "--label", "white space"]).ends_with(1);
    assert!(ran.err.contains("white space"), "{}", ran.err);
    shoal(&["iso", "build", &from, "-o", &image, "--profile", "boot"]).ends_with(1);
    shoal(&["iso", "build", "/nowhere", "-o", &image]).ends_with(3);
    let ran = shoal(&["iso", "build", &from, "-o", "/nowhere/a.iso"]).ends_with(1);
    assert!(ran.err.contains("/nowhere/a.iso"), "{}", ran.err);
    assert!(!Path::new(&image).exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn splice_adds_and_replaces_files_of_an_existing_image() {
    let dir = tempfile::tempdir().unwrap();
    let (from, image, spliced) =
        (directory(dir.path()), path(dir.path(), "a.iso"), path(dir.path(), "b.iso"));
    shoal(&["iso", "build", &from, "-o", &image]).ends_with(0);
    let job = path(dir.path(), "job.json");
    fs::write(&job, "{\"job\":1}\n").unwrap();
    let named = format!("recipe.json={job}");
    let replaced = format!("user-data={job}");
    shoal(&["iso", "splice", &image, &job, &named, "--replace", &replaced, "-o", &spliced]).ends_with(0);
    shoal(&["iso", "check", &spliced]).ends_with(0);
    for file in ["/task/job.json", "/task/recipe.json", "/user-data"] {
        assert_eq!(shoal(&["iso", "cat", &spliced, file]).ends_with(0).out, "{\"job\":1}\n");
    }
    assert_eq!(shoal(&["iso", "cat", &spliced, "/run.sh"]).ends_with(0).out, "#!/bin/sh\n");
    let again = path(dir.path(), "c.iso");
    shoal(&["iso", "splice", &spliced, &job, "-o", &again]).ends_with(1);
    shoal(&["iso", "splice", &spliced, &job, "-o", &again, "--replace-directory", "--json"]).ends_with(0);
    shoal(&["iso", "cat", &again, "/task/recipe.json"]).ends_with(3);
}

#[test]
fn check_reports_the_place_of_a_broken_rule() {
    let dir = tempfile::tempdir().unwrap();
    let (from, image) = (directory(dir.path()), path(dir.path(), "a.iso"));
    shoal(&["iso", "build", &from, "-o", &image]).ends_with(0);
    let mut bytes = fs::read(&image).unwrap();
    // The big-endian half of the volume space size.
    bytes[16 * 2048 + 87] ^= 1;
    fs::write(&image, bytes).unwrap();
    let ran = shoal(&["iso", "check", &image]).ends_with(1);
    assert!(ran.out.contains("sector 16+0x050"), "{}", ran.out);
    assert!(ran.err.contains("breaks rules: 1 error,"), "{}", ran.err);
    let report = shoal(&["iso", "check", &image, "--json"]).ends_with(1).json();
    assert_eq!((&report["errors"], &report["findings"][0]["severity"]), (&json!(1), &json!("error")));
}

/// The offset of the only record or entry in an image that contains these bytes.
fn only(image: &[u8], bytes: &[u8]) -> usize {
    let mut found = (0..image.len() - bytes.len()).filter(|at| image[*at..].starts_with(bytes));
    let at = found.next().unwrap();
    assert_eq!(found.next(), None);
    at
}

#[test]
fn another_tree_is_read_when_one_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    let (from, image) = (directory(dir.path()), path(dir.path(), "a.iso"));
    shoal(&["iso", "build", &from, "-o", &image]).ends_with(0);
    for (tree, file) in [("rock-ridge", "user-data"), ("joliet", "USER-DATA"), ("plain", "USER_DATA.;1")] {
        let ran = shoal(&["iso", "cat", &image, file, "--tree", tree]).ends_with(0);
        assert_eq!(ran.out, "#cloud-config\n", "{tree}");
    }
    shoal(&["iso", "ls", &image, "--tree", "udf"]).ends_with(1);
    // The primary record of the directory `deep` points outside of the image, in both byte orders.
    let mut bytes = fs::read(&image).unwrap();
    let record = only(&bytes, b"\x04DEEP") - 32;
    bytes[record + 2..record + 10].copy_from_slice(&[0, 0, 0, 1, 1, 0, 0, 0]);
    fs::write(&image, bytes).unwrap();
    let ran = shoal(&["iso", "ls", "-R", &image, "--json"]).ends_with(1);
    assert!(ran.err.contains("try --tree joliet or --tree plain"), "{}", ran.err);
    // What was read before is listed, and the list is complete JSON.
    assert_eq!(ran.json()["entries"].as_array().unwrap().len(), 6);
    let all = shoal(&["iso", "ls", "-R", &image, "--tree", "joliet", "--json"]).ends_with(0).json();
    assert_eq!(all["entries"].as_array().unwrap().len(), 15);
    let below = shoal(&["iso", "ls", "-R", &image, "/deep/1/2/3/4/5/6/7/8", "--tree", "joliet"]).ends_with(0);
    assert!(below.out.contains("  deep/1/2/3/4/5/6/7/8/9/leaf\n"), "{}", below.out);

    let to = path(dir.path(), "out");
    let ran = shoal(&["iso", "extract", &image, "-o", &to, "--json"]).ends_with(1);
    assert_eq!((&ran.json()["files"], &ran.json()["missing"]), (&json!(4), &json!(1)));
    assert!(ran.err.contains("skipped deep: ") && ran.err.contains("1 entries of"), "{}", ran.err);
    let to = path(dir.path(), "joliet");
    let done =
        shoal(&["iso", "extract", &image, "-o", &to, "--tree", "joliet", "--json"]).ends_with(0).json();
    assert_eq!((&done["files"], &done["missing"]), (&json!(5), &json!(0)));
}

#[test]
fn info_shows_the_rest_of_an_image_with_a_broken_boot_entry_or_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (from, image) = (directory(dir.path()), path(dir.path(), "a.iso"));
    // Bootable images do not relocate deep directories.
    fs::remove_dir_all(Path::new(&from).join("deep")).unwrap();
    fs::write(Path::new(&from).join("efi.img"), [1; 4096]).unwrap();
    let boot = ["--profile", "boot", "--bios", "run.sh", "--uefi", "efi.img"];
    shoal(&[["iso", "build", &from, "-o", &image].as_slice(), &boot].concat()).ends_with(0);
    let mut bytes = fs::read(&image).unwrap();
    let catalog = only(&bytes, &[0x91, 0xEF, 1, 0]) - 64;
    // An unknown medium in the first entry, and other blocks than those of 2048 bytes in Joliet.
    bytes[catalog + 33] = 9;
    bytes[18 * 2048 + 128] ^= 1;
    fs::write(&image, bytes).unwrap();
    let info = shoal(&["iso", "info", &image, "--json"]).ends_with(0).json();
    assert_eq!((info["boot"].as_array().unwrap().len(), &info["boot"][0]["platform"]), (1, &json!("UEFI")));
    assert!(info["boot_faults"][0].as_str().unwrap().contains("known media type"), "{info}");
    assert_eq!(info["namespaces"], json!(["Rock Ridge", "plain ISO 9660"]));
    let ran = shoal(&["iso", "info", &image]).ends_with(0);
    assert!(ran.out.contains("boot faults") && ran.out.contains("unreadable"), "{}", ran.out);
}

#[test]
fn names_that_are_not_utf_8_are_listed_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let (from, image) = (path(dir.path(), "from"), path(dir.path(), "a.iso"));
    fs::create_dir(&from).unwrap();
    fs::write(Path::new(&from).join("caf1"), "acute\n").unwrap();
    fs::write(Path::new(&from).join("caf2"), "grave\n").unwrap();
    shoal(&["iso", "build", &from, "-o", &image, "--no-joliet"]).ends_with(0);
    let mut bytes = fs::read(&image).unwrap();
    for (name, last) in [(b"caf1", 0xE9), (b"caf2", 0xE8)] {
        let at = only(&bytes, name);
        bytes[at + 3] = last;
    }
    fs::write(&image, bytes).unwrap();
    let listed = shoal(&["iso", "ls", &image, "--json"]).ends_with(0).json();
    assert_eq!(
        (&listed["entries"][0]["path"], &listed["entries"][1]["path"]),
        (&json!(r"caf\xE9"), &json!(r"caf\xE8"))
    );
    assert_eq!(shoal(&["iso", "cat", &image, r"caf\xE8"]).ends_with(0).out, "grave\n");
    let raw = std::os::unix::ffi::OsStrExt::from_bytes(b"/caf\xE9".as_slice());
    let arguments: Vec<&std::ffi::OsStr> =
        vec!["shoal".as_ref(), "iso".as_ref(), "cat".as_ref(), image.as_ref(), raw];
    let cli = <super::Cli as clap::Parser>::try_parse_from(arguments).unwrap();
    assert!(format!("{:?}", cli.command).contains(r#""/caf\\xE9""#), "{:?}", cli.command);
}
