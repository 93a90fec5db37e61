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
    shoal(&["iso", "build", "/nowhere", "-o", &image]).ends_with(1);
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
    assert!(ran.err.contains("breaks rules: 1 errors"), "{}", ran.err);
    let report = shoal(&["iso", "check", &image, "--json"]).ends_with(1).json();
    assert_eq!((&report["errors"], &report["findings"][0]["severity"]), (&json!(1), &json!("error")));
}
