//! Commands that need no controller.

use std::path::Path;

use iso9660::{Boot, ImageOptions, ImagePlan, Profile, Tree, UefiBoot};
use serde_json::json;

use super::shoal;

const ESXI: &str = r#"{"task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\n"}"#;

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_file_that_is_missing_ends_with_3_for_every_command() {
    let missing = "/nowhere/file";
    let url = ["--url", "http://127.0.0.1:1", "--token", "t"];
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    for command in [
        &["image", "add", missing, "--name", "a:1"][..],
        &["firmware", "set", "import", missing],
        &["webhook", "add", "http://a", "--secret-file", missing],
        &["user", "add", "bea", "--role", "viewer", "--password-file", missing],
        &["server", "add", "S", "--bmc-address", "h", "--bmc-user", "u", "--bmc-password-file", missing],
    ] {
        let ran = shoal(&[command, &url].concat()).ends_with(3);
        assert!(ran.err.contains(missing), "{command:?}: {}", ran.err);
    }
    let image = dir.path().join("x.iso");
    shoal(&["iso", "build", missing, "-o", image.to_str().unwrap()]).ends_with(3);
    shoal(&["registry", "--storage-root", data, "import", missing]).ends_with(3);
    shoal(&["recipe", "validate", missing]).ends_with(3);
}

#[test]
fn a_document_is_written_in_the_format_that_is_asked_for() {
    for command in [&["openapi"][..], &["about", "--sbom"]] {
        assert!(shoal(command).ends_with(0).out.starts_with('{'));
        let yaml = shoal(&[command, &["-o", "yaml"]].concat()).ends_with(0).out;
        assert!(!yaml.starts_with('{'), "{command:?}");
        shoal(&[command, &["-o", "name"]].concat()).ends_with(2);
    }
}

#[test]
fn a_valid_recipe_ends_with_0() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "recipe.json", ESXI);
    let ran = shoal(&["recipe", "validate", &path]).ends_with(0);
    assert!(ran.out.contains("is valid: install-esxi.target by https://"), "{}", ran.out);
    let ran = shoal(&["recipe", "validate", &path, "--json"]).ends_with(0);
    assert_eq!((&ran.json()["valid"], &ran.json()["errors"]), (&json!(true), &json!([])));
}

#[test]
fn the_example_recipe_of_the_readme_gives_no_warning() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/recipe-linux.example.json");
    let ran = shoal(&["recipe", "validate", path]).ends_with(0);
    assert!(!format!("{}{}", ran.out, ran.err).contains("warning"), "{}{}", ran.out, ran.err);
    let ran = shoal(&["recipe", "validate", path, "--json"]).ends_with(0);
    assert_eq!(ran.json()["warnings"], json!([]), "{}", ran.out);
}

#[test]
fn an_invalid_recipe_ends_with_1_and_names_the_paths() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "recipe.json", r#"{"task_target": "install-esxi.target", "size": 1}"#);
    let ran = shoal(&["recipe", "validate", &path]).ends_with(1);
    assert!(ran.out.contains("/ks_cfg [required] "), "{}", ran.out);
    assert!(ran.err.contains("is not valid: 2 problems"), "{}", ran.err);
    let ran = shoal(&["recipe", "validate", &path, "--json"]).ends_with(1);
    assert_eq!((&ran.json()["valid"], ran.json()["errors"].as_array().unwrap().len()), (&json!(false), 2));
}

#[test]
fn a_missing_or_endless_recipe_is_refused() {
    shoal(&["recipe", "validate", "/nowhere/recipe.json"]).ends_with(3);
    let ran = shoal(&["recipe", "validate", "/dev/zero"]).ends_with(1);
    assert!(ran.err.contains("is longer than"), "{}", ran.err);
}

fn image(dir: &Path) -> String {
    let mut tree = Tree::new();
    tree.add_file("job.json", "{}\n").unwrap();
    tree.add_file("EFI/boot/bootx64.efi", vec![7; 100_000]).unwrap();
    let mut options = ImageOptions::new(Profile::Boot, "TASK_1", 1_767_225_600);
    options.boot = Some(Boot::new(None, Some(UefiBoot::new("EFI/boot/bootx64.efi"))));
    let mut bytes = Vec::new();
    ImagePlan::new(&tree, &options).unwrap().write_to(&mut bytes).unwrap();
    write(dir, "task.iso", bytes)
}

#[test]
fn an_image_is_listed_with_modes_sizes_and_dates() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let ran = shoal(&["iso", "ls", &image]).ends_with(0);
    assert!(ran.out.contains("-r--r--r--"), "{}", ran.out);
    assert!(ran.out.lines().any(|line| line.ends_with("2026-01-01T00:00:00Z  job.json")), "{}", ran.out);
    let all = shoal(&["iso", "ls", "-R", &image, "--json"]).ends_with(0).json();
    let paths: Vec<&str> =
        all["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"EFI/boot/bootx64.efi") && paths.contains(&"EFI"), "{paths:?}");
    let yaml = shoal(&["iso", "ls", "-R", &image, "-o", "yaml"]).ends_with(0).out;
    assert!(yaml.starts_with("entries:\n  - kind: "), "{yaml}");
    let names = shoal(&["iso", "ls", "-R", &image, "-o", "name"]).ends_with(0).out;
    assert_eq!(names.lines().count(), all["entries"].as_array().unwrap().len(), "{names}");
    let one = shoal(&["iso", "ls", &image, "/job.json"]).ends_with(0);
    assert_eq!(one.out.lines().count(), 1);
}

#[test]
fn cat_writes_the_bytes_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    assert_eq!(shoal(&["iso", "cat", &image, "/job.json"]).ends_with(0).out, "{}\n");
    let ran = shoal(&["iso", "cat", &image, "EFI/boot/bootx64.efi"]).ends_with(0);
    assert!(ran.out.len() == 100_000 && ran.out.bytes().all(|byte| byte == 7));
    shoal(&["iso", "cat", &image, "/missing"]).ends_with(3);
    shoal(&["iso", "cat", &image, "/EFI"]).ends_with(1);
}

#[test]
fn info_shows_volume_namespaces_and_boot_entries() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let ran = shoal(&["iso", "info", &image]).ends_with(0);
    assert!(
        ran.out.contains("TASK_1") && ran.out.contains("Rock Ridge") && ran.out.contains("UEFI"),
        "{}",
        ran.out
    );
    let info = shoal(&["iso", "info", &image, "--json"]).ends_with(0).json();
    assert_eq!((&info["volume_id"], &info["boot"][0]["platform"]), (&json!("TASK_1"), &json!("UEFI")));
}

#[test]
fn a_file_that_is_no_image_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "not.iso", vec![0; 100_000]);
    shoal(&["iso", "info", &path]).ends_with(1);
    shoal(&["iso", "info", "/nowhere/image.iso"]).ends_with(3);
}

#[test]
fn the_reference_names_every_setting() {
    let ran = shoal(&["config", "reference"]).ends_with(0);
    assert!(ran.out.contains("\nWEBHOOK_SECRET\n"), "{}", ran.out);
    let all = shoal(&["config", "reference", "--json"]).ends_with(0).json();
    assert_eq!(all["settings"].as_array().unwrap().len(), settings::DEFINITIONS.len());
}
