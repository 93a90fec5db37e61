//! The files of the repository, and code without its tests and comments.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file's text.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// All files below the workspace with one of these extensions, without build output and fuzz corpora.
pub(crate) fn tracked(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(root(), extensions, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let skipped =
            name.starts_with('.') || ["target", "corpus", "artifacts", "node_modules"].contains(&&*name);
        if skipped {
            continue;
        }
        if path.is_dir() {
            collect(&path, extensions, found);
        } else if path.extension().is_some_and(|end| extensions.contains(&&*end.to_string_lossy())) {
            found.push(path);
        }
    }
}

/// Product code: whole files without comments, and without the items marked `#[cfg(test)]`. Test files give nothing.
pub(crate) fn product_code(path: &Path) -> String {
    let relative = path.strip_prefix(root()).unwrap();
    let name = path.file_name().unwrap().to_string_lossy();
    let in_test_folder = relative
        .components()
        .any(|part| ["tests", "benches"].contains(&&*part.as_os_str().to_string_lossy()));
    if in_test_folder || ["tests.rs", "test_kit.rs"].contains(&&*name) {
        return String::new();
    }
    without_tests_and_comments(&read(path))
}

/// Drops comment lines and every item, field or statement that follows a `#[cfg(test)]` line. Formatted code ends it on a
/// line with the same indentation, or with a semicolon outside of all brackets.
pub(crate) fn without_tests_and_comments(text: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") {
            continue;
        }
        if trimmed != "#[cfg(test)]" {
            kept.push(line);
            continue;
        }
        let indentation = &line[..line.len() - trimmed.len()];
        let mut depth = 0_i32;
        for item in lines.by_ref() {
            depth += item
                .chars()
                .map(|sign| i32::from("([{".contains(sign)) - i32::from(")]}".contains(sign)))
                .sum::<i32>();
            let rest = item.strip_prefix(indentation).unwrap_or_default();
            let same_indentation = !rest.is_empty() && !rest.starts_with([' ', '#']);
            if same_indentation && rest.ends_with([';', ',', '}']) || depth == 0 && item.ends_with(';') {
                break;
            }
        }
    }
    kept.join("\n")
}

#[test]
fn what_follows_a_test_module_is_still_read() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nuse b;\n#[cfg(test)]\nmod inner {\n    use c;\n}\nfn d() {}\n// e\n";
    assert_eq!(without_tests_and_comments(text), "use a;\nuse b;\nfn d() {}");
    let text = "struct A {\n    #[cfg(test)]\n    b: u8,\n    c: u8,\n}\n#[cfg(test)]\n#[path = \"e.rs\"]\nmod d;\nfn f(\n    #[cfg(test)]\n    g: u8,\n) {\n    #[cfg(test)]\n    let h =\n        i();\n    j();\n}";
    assert_eq!(without_tests_and_comments(text), "struct A {\n    c: u8,\n}\nfn f(\n) {\n    j();\n}");
}
