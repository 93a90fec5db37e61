//! `shoal maintenance`: what is refused, and why.

use std::fs;

use super::{refused, shoal};

#[test]
fn an_image_of_another_maker_and_an_empty_folder_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("agent"), "#!/bin/sh\n").unwrap();
    shoal(&["iso", "build", &path("empty"), "-o", &path("a.iso")]).ends_with(0);
    let ran = shoal(&["maintenance", "inspect", &path("a.iso")]).ends_with(1);
    assert!(ran.err.contains("was not built by `shoal maintenance build`"), "{}", ran.err);
    let build = |agent: &str| {
        shoal(&["maintenance", "build", &path("empty"), "--agent", &path(agent), "-o", &path("m.iso")])
    };
    assert!(build("agent").ends_with(1).err.contains("it is no program"));
    build("gone").ends_with(3);
    assert!(!fs::exists(path("m.iso")).unwrap());
}

#[test]
fn a_fetch_without_certificates_of_its_https_mirror_is_refused() {
    let ran =
        shoal(&["maintenance", "fetch", "--list", "--mirror", "https://mirror.example/debian"]).ends_with(2);
    assert!(ran.err.contains("--ca-file"), "{}", ran.err);
    assert!(refused(&["maintenance", "fetch"]).contains("FOLDER"));
    assert!(refused(&["maintenance", "fetch", "--list", "--suite", "../etc"]).contains("code name"));
}
