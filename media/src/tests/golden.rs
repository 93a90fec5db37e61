//! The bytes of a task image: equal on every machine and in every version with the same format number.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use iso9660::{Image, Namespace, ReadLimits};
use proptest::prelude::*;

use super::*;

fn describe(bytes: &[u8]) -> String {
    let mut text = String::new();
    writeln!(text, "digest {}", ImageDigest::of(&bytes.to_vec()).unwrap()).unwrap();
    writeln!(text, "length {}", bytes.len()).unwrap();
    for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
        let image = Image::open_with(bytes, Some(namespace), ReadLimits::default()).unwrap();
        let volume = image.volume();
        writeln!(text, "\n{namespace}: {} / {:?}", volume.volume_id, volume.joliet_volume_id).unwrap();
        image
            .walk(|path, entry| {
                let mode = entry.mode.map_or("-".to_owned(), |mode| format!("{mode:o}"));
                let content = if entry.is_file() {
                    ImageDigest::of(&image.read(path, 1 << 20).unwrap()).unwrap().to_hex()[..16].to_owned()
                } else {
                    "directory".to_owned()
                };
                writeln!(text, "{mode:>6} {:>6} {:?} {content} {path}", entry.len, entry.modified).unwrap();
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    text
}

#[test]
fn the_task_image_of_a_fixed_job_never_changes() {
    let found = describe(&bytes_of(&plan(&task_input()).unwrap()));
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/task-image.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).expect("golden/task-image.txt; UPDATE_GOLDEN=1 writes it");
    assert_eq!(
        found, golden,
        "the bytes of task images changed: raise INPUTS_FORMAT, then run with UPDATE_GOLDEN=1"
    );
}

#[test]
fn a_stored_task_is_rebuilt_with_the_same_bytes() {
    let recorded = record_inputs(&task_input()).unwrap();
    let restored = TaskInputs::from_bytes(&recorded.to_bytes().unwrap()).unwrap();
    assert_eq!(restored, recorded);
    let body = restored.rebuild().unwrap();
    assert!(bytes_of(&body) == bytes_of(&plan(&task_input()).unwrap()));
    assert_eq!((body.digest(), body.len()), (recorded.digest(), recorded.len()));
    assert!(body.in_memory());
}

#[test]
fn a_task_that_is_rebuilt_with_other_bytes_is_refused() {
    let text = String::from_utf8(record_inputs(&task_input()).unwrap().to_bytes().unwrap()).unwrap();
    let moved = text.replacen("\"epoch\":1767323045", "\"epoch\":1767323046", 1);
    assert_ne!(moved, text);
    let rebuilt = TaskInputs::from_bytes(moved.as_bytes()).unwrap().rebuild();
    assert!(matches!(rebuilt, Err(TaskImageError::Changed { .. })));
}

#[test]
fn malformed_task_inputs_are_a_typed_error() {
    let text = String::from_utf8(record_inputs(&task_input()).unwrap().to_bytes().unwrap()).unwrap();
    let newer = text.replacen("\"format\":1", "\"format\":3", 1);
    assert!(matches!(TaskInputs::from_bytes(newer.as_bytes()), Err(TaskImageError::Format { found: 3 })));
    for broken in [
        &text[..text.len() / 2],
        "",
        "{}",
        "[]",
        &text.replacen("\"job.json\",\"", "\"job.json\",{\"base64\":\"!", 1),
    ] {
        assert!(matches!(TaskInputs::from_bytes(broken.as_bytes()), Err(TaskImageError::Inputs { .. })));
    }
    assert!(matches!(
        TaskInputs::from_bytes(&vec![b' '; INPUTS_MAX + 1]),
        Err(TaskImageError::Inputs { .. })
    ));
}

#[test]
fn a_task_image_accepts_only_known_files_and_labels() {
    let with = |change: &dyn Fn(&mut TaskImageInput)| {
        let mut input = task_input();
        change(&mut input);
        plan(&input).map(|plan| Image::open(plan).unwrap().volume_id().to_owned())
    };
    assert_eq!(with(&|_| ()).unwrap(), "TASK_123456789AB");
    assert_eq!(with(&|input| input.volume_id = Some("CIDATA".into())).unwrap(), "CIDATA");
    assert_eq!(with(&|input| input.volume_id = Some("CONFIG-2".into())).unwrap(), "CONFIG-2");
    let label = with(&|input| input.volume_id = Some("cidata".into()));
    assert!(matches!(label, Err(TaskImageError::Label { .. })));
    let unknown = with(&|input| input.files.push(("../x".into(), Vec::new())));
    assert!(matches!(unknown, Err(TaskImageError::UnknownFile { .. })));
    let twice = with(&|input| input.files.push(("ks.cfg".into(), Vec::new())));
    assert!(matches!(twice, Err(TaskImageError::DuplicateFile { .. })));
    let missing = with(&|input| input.files.retain(|(name, _)| name != "recipe.json"));
    assert!(matches!(missing, Err(TaskImageError::MissingFile { name: "recipe.json" })));
    let large = with(&|input| input.files[0].1 = vec![0; TASK_FILES_MAX + 1]);
    assert!(matches!(large, Err(TaskImageError::TooLarge { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn the_order_of_files_does_not_change_the_image(order in Just(task_input().files).prop_shuffle()) {
        let shuffled = TaskImageInput { files: order, ..task_input() };
        prop_assert_eq!(record_inputs(&shuffled).unwrap().digest(), record_inputs(&task_input()).unwrap().digest());
    }
}
