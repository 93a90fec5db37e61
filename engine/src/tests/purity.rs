//! The engine serves every workflow: its code contains no word of a single workflow (docs/architecture.md).

use std::path::Path;

fn sources() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(found.len() > 5, "the sources of the engine were not found");
    found
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::to_ascii_lowercase)
}

#[test]
fn the_engine_does_not_know_what_any_step_is_about() {
    for (file, text) in sources() {
        for word in words(&text) {
            assert!(!["redfish", "iso", "webhook"].contains(&word.as_str()), "{file} contains {word:?}");
        }
    }
}
