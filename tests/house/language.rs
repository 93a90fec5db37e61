//! The refused words and phrases of `docs/style.md`.

use std::path::PathBuf;

use crate::sources::{read, root, tracked};

/// What is refused: whole words, and phrases in comments, strings and documents.
struct Refused {
    words: Vec<String>,
    phrases: Vec<String>,
}

fn refused() -> Refused {
    let style = read(&root().join("docs/style.md"));
    let list = style.split("## Refused words and phrases").nth(1).unwrap();
    let list = list.split("```text").nth(1).unwrap().split("```").next().unwrap();
    let of =
        |kind: &str| list.lines().filter_map(|line| line.strip_prefix(kind)).map(str::to_owned).collect();
    let found = Refused { words: of("word:"), phrases: of("phrase:") };
    assert!(found.words.len() > 50 && found.phrases.len() > 20, "the list is not where this test looks");
    found
}

impl Refused {
    /// The first refused word or phrase of a line.
    fn of_line(&self, line: &str, is_code: bool) -> Option<&str> {
        let mut words = line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        if let Some(word) = words.find_map(|word| self.words.iter().find(|refused| *refused == word)) {
            return Some(word);
        }
        if is_code && !line.contains("//") && !line.contains('"') {
            return None;
        }
        let line = line.to_lowercase();
        self.phrases.iter().map(String::as_str).find(|phrase| line.contains(phrase))
    }
}

/// The files whose language is checked: code and documents, and what users see beside them.
fn read_files() -> Vec<PathBuf> {
    let mut files = tracked(&["rs", "md", "toml", "sql"]);
    for folder in ["ui/templates", "ui/assets", "packaging/files", "schemas"] {
        let before = files.len();
        let inside = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        // Fonts and pictures are no text.
        files.extend(inside.filter(|path| path.is_file() && std::fs::read_to_string(path).is_ok()));
        assert!(files.len() > before, "{folder} has no files");
    }
    files.sort();
    files.dedup();
    files
}

#[test]
fn retired_words_and_phrases_do_not_come_back() {
    let refused = refused();
    let mut found = Vec::new();
    for file in read_files() {
        let shown = file.strip_prefix(root()).unwrap().display().to_string();
        if ["docs/style.md", "docs/glossary.md", "tests/house/language.rs", "tests/house/documents.rs"]
            .contains(&&*shown)
        {
            continue;
        }
        let is_code = shown.ends_with(".rs");
        for (number, line) in read(&file).lines().enumerate() {
            if let Some(what) = refused.of_line(line, is_code) {
                found.push(format!("{shown}:{}: {what:?}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "docs/style.md refuses these:\n{}", found.join("\n"));
}

#[test]
fn a_retired_word_is_noticed_and_a_longer_one_is_not() {
    let refused = Refused { words: vec!["twin".to_owned()], phrases: vec!["is told".to_owned()] };
    assert_eq!(refused.of_line("let twin = 1;", true), Some("twin"));
    assert_eq!(refused.of_line("// The worker IS TOLD to stop.", true), Some("is told"));
    assert_eq!(refused.of_line("let twins_are = is_told;", true), None);
}
