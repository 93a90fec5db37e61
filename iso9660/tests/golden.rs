//! The bytes of some images change only intentionally.
//!
//! `golden/iso9660/` holds for each image its digest, its listings and its metadata with field names. `UPDATE_GOLDEN=1
//! cargo test -p iso9660` writes the files again; their diff shows the change field by field.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use common::{EPOCH, annotate::annotate, boot_plan, hybrid_plan, task_plan};
use iso9660::{
    Content, ImageOptions, ImagePlan, InterchangeLevel, JolietNames, Profile, ReadAt, Splice, SpliceOptions,
    Tree,
};

fn compare(name: &str, plan: &ImagePlan) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../golden/iso9660").join(format!("{name}.txt"));
    let found = annotate(plan);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &found).unwrap();
    }
    let golden = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run with UPDATE_GOLDEN=1", path.display()));
    if let Some((number, (golden, found))) = golden
        .lines()
        .zip(found.lines())
        .enumerate()
        .find(|(number, (golden, found))| *number > 0 && golden != found)
    {
        panic!(
            "{name}, line {}:\n golden {golden}\n found  {found}\nrun with UPDATE_GOLDEN=1 if the change is intended",
            number + 1
        );
    }
    assert!(
        golden == found,
        "{name}: a content, the digest or the end differs; run with UPDATE_GOLDEN=1 if that is meant"
    );
}

fn plan(paths: &[&str], change: impl FnOnce(&mut ImageOptions)) -> ImagePlan {
    let mut tree = Tree::new();
    for path in paths {
        tree.add_file(path, format!("this is {path}\n")).unwrap();
    }
    let mut options = ImageOptions::new(Profile::Task, "GOLDEN", EPOCH);
    change(&mut options);
    ImagePlan::new(&tree, &options).unwrap()
}

#[test]
fn a_task_image() {
    compare("task", &task_plan());
}

#[test]
fn a_boot_image() {
    compare("boot", &boot_plan());
}

#[test]
fn a_hybrid_image() {
    compare("hybrid", &hybrid_plan());
}

#[test]
fn a_task_with_the_files_of_cloud_init() {
    let names = ["user-data", "meta-data", "network-config", "vendor-data", "job.json"];
    compare("task_cloud_init", &plan(&names, |options| options.volume_id = "CIDATA".into()));
}

#[test]
fn a_task_with_the_answer_files_of_windows() {
    compare("task_windows", &plan(&["unattend.xml", "autounattend.xml", "job.json"], |_| {}));
}

#[test]
fn a_task_with_a_kickstart_file() {
    compare("task_kickstart", &plan(&["ks.cfg", "job.json"], |options| options.volume_id = "OEMDRV".into()));
}

#[test]
fn links_executables_and_moved_directories() {
    let mut tree = Tree::new();
    tree.add_file("1/2/3/4/5/6/7/8/9/10/leaf", "deep\n").unwrap();
    tree.add_file("b/2/3/4/5/6/7/8/leaf", "another\n").unwrap();
    tree.add_executable("bin/run", "#!/bin/sh\n").unwrap().add_hard_link("bin/again", "bin/run").unwrap();
    tree.add_symlink("current", "bin/run").unwrap().add_symlink("bin/up", "../b/./2").unwrap();
    tree.add_symlink("long", &format!("/{}", "component/".repeat(40))).unwrap();
    compare("links", &ImagePlan::new(&tree, &ImageOptions::new(Profile::Tree, "LINKS", EPOCH)).unwrap());
}

#[test]
fn an_enhanced_descriptor_and_the_names_of_level_one() {
    let paths = ["a directory/recipe.schema.json", "a directory/recipe.schema.jsonl", "üñ", "readme.txt"];
    compare(
        "enhanced",
        &plan(&paths, |options| {
            (options.enhanced, options.level, options.joliet_names) =
                (true, InterchangeLevel::One, JolietNames::Strict)
        }),
    );
}

#[test]
fn a_deep_tree() {
    compare(
        "deep",
        &plan(&["1/2/3/4/5/6/7/leaf", "1/b/leaf", "1/a/leaf", "leaf"], |options| {
            options.volume_id = "cidata".into()
        }),
    );
}

#[test]
fn names_that_are_long_collide_or_are_not_ascii() {
    let long = "n".repeat(100);
    let paths = [
        ".hidden",
        "a-b",
        "a_b",
        "a_b0",
        "no.of.dots.tar.gz",
        "ünïcode.txt",
        "UPPER.TXT",
        "x/in a directory",
        &long,
    ];
    compare("names", &plan(&paths, |options| options.volume_id = "LONGER_THAN_SIXTEEN_CHARACTERS".into()));
}

#[test]
fn rock_ridge_names_that_need_continuations() {
    let names: Vec<String> = (0..9).map(|index| format!("{index}{}", "c".repeat(252))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    compare("continuations", &plan(&names, |options| options.joliet = false));
}

#[test]
fn a_plain_image_without_padding() {
    compare(
        "plain",
        &plan(&["ks.cfg", "kickstart/second.cfg"], |options| {
            (options.joliet, options.rock_ridge, options.min_size) = (false, false, 0);
            options.publisher = "A PUBLISHER".into();
        }),
    );
}

#[test]
fn a_spliced_image() {
    let original: Arc<dyn ReadAt> = Arc::new(boot_plan());
    let files = [("job.json", Content::from("{}\n")), ("user-data", Content::from("#cloud-config\n"))];
    compare("spliced", &Splice::plan(original, &files, &SpliceOptions::new(EPOCH + 86_400)).unwrap().plan);
}

/// Zeros of any length without memory.
struct Zeros(u64);

impl ReadAt for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        buffer.fill(0);
        Ok(())
    }
}

#[test]
fn a_file_over_four_gibibytes() {
    let mut tree = Tree::new();
    tree.add_file("install.wim", Content::source(Zeros(4_831_838_208))).unwrap();
    tree.add_file("z.txt", "after\n").unwrap();
    compare("multi_extent", &ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "BIG", EPOCH)).unwrap());
}

#[test]
fn place_time_zone_and_locale_do_not_reach_the_bytes() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        // The other tests write the files at this moment.
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_task_image", "a_boot_image", "names_that_are_long_collide_or_are_not_ascii"])
        .args(["links_executables_and_moved_directories", "a_hybrid_image"])
        .current_dir(&elsewhere)
        .env_remove("UPDATE_GOLDEN")
        .envs([("TZ", "Pacific/Kiritimati"), ("LC_ALL", "tr_TR.ISO-8859-9"), ("USER", "another")])
        .env("SOURCE_DATE_EPOCH", "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("5 passed"), "{printed}");
}
