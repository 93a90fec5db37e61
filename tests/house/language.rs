//! The refused words and phrases (`refused.txt`), and doc lines that stand alone (`docs/style.md`, rule 4).

use std::path::{Path, PathBuf};

use crate::sources::{read, root, tracked};

/// What is refused: whole words, and phrases in comments, strings and documents.
struct Refused {
    words: Vec<String>,
    phrases: Vec<String>,
}

fn refused() -> Refused {
    let list = read(&root().join("tests/house/refused.txt"));
    let of =
        |kind: &str| list.lines().filter_map(|line| line.strip_prefix(kind)).map(str::to_owned).collect();
    let found = Refused { words: of("word:"), phrases: of("phrase:") };
    assert!(found.words.len() > 50 && found.phrases.len() > 20, "the list is not where this test looks");
    let lines = found.words.len() + found.phrases.len();
    assert_eq!(lines, list.lines().count(), "each line begins with `word:` or `phrase:`");
    found
}

/// Whether a line has a phrase that no word continues: "no one" is not in "no one-time boot".
fn has_phrase(line: &str, phrase: &str) -> bool {
    let in_word = |sign: char| sign.is_alphanumeric() || sign == '_' || sign == '-';
    line.match_indices(phrase).any(|(at, _)| {
        let (before, behind) = (&line[..at], &line[at + phrase.len()..]);
        let begins = !(before.ends_with(in_word) && phrase.starts_with(in_word));
        begins && !(behind.starts_with(in_word) && phrase.ends_with(in_word))
    })
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
        self.phrases.iter().map(String::as_str).find(|phrase| has_phrase(&line, phrase))
    }
}

/// The words that refer to something before them. A doc line that begins with one of them does not stand alone.
const REFERRING: [&str; 9] = ["It", "They", "Its", "Their", "Those", "That", "Such", "As", "Of the"];

/// The text of a doc line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    (text.is_empty() || text.starts_with(' ')).then(|| text.trim_start())
}

/// The doc lines that begin the documentation of an item, or a section of it, and refer to something before them; each with its number.
fn referring(code: &str) -> Vec<(usize, &str)> {
    let (mut found, mut begins) = (Vec::new(), true);
    for (number, line) in code.lines().enumerate() {
        let Some(text) = doc_text(line) else {
            begins = true;
            continue;
        };
        let refers =
            |word: &&str| text.strip_prefix(*word).is_some_and(|rest| rest.starts_with([' ', ',', ':', '.']));
        if begins && REFERRING.iter().any(refers) {
            found.push((number + 1, text));
        }
        begins = text.starts_with("# ");
    }
    found
}

/// All files with text below a folder.
fn texts_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            // Fonts and pictures are no text.
            found.extend(std::fs::read_to_string(&path).is_ok().then_some(path));
        } else if path.is_dir() && !["node_modules", "__pycache__"].iter().any(|name| path.ends_with(name)) {
            found.extend(texts_below(&path));
        }
    }
    found
}

/// The files whose language is checked: code, documents and scripts, and what users see beside them.
fn read_files() -> Vec<PathBuf> {
    let mut files = tracked(&["rs", "md", "toml", "sql", "mjs", "yml"]);
    for folder in [".ci", "ui/templates", "ui/assets", "packaging/files", "schemas"] {
        let before = files.len();
        files.extend(texts_below(&root().join(folder)));
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
    assert!(found.is_empty(), "tests/house/refused.txt refuses these:\n{}", found.join("\n"));
}

#[test]
fn the_language_of_scripts_and_rules_is_checked_too() {
    let files = read_files();
    for file in [".ci/run", ".ci/debian.py", ".ci/ui-tests/ui.mjs", "telemetry/observability/alerts.yml"] {
        assert!(files.contains(&root().join(file)), "{file} is not read");
    }
}

#[test]
fn a_first_doc_line_stands_alone() {
    let mut found = Vec::new();
    for file in tracked(&["rs"]) {
        let code = read(&file);
        let shown = file.strip_prefix(root()).unwrap().display();
        found.extend(referring(&code).iter().map(|(number, text)| format!("{shown}:{number}: {text}")));
    }
    assert!(found.is_empty(), "these name no subject (docs/style.md, rule 4):\n{}", found.join("\n"));
}

#[test]
fn a_doc_line_that_refers_to_another_one_is_noticed() {
    let code = "//! As [`a`].\n\n/// The name. It is short.\n/// It may continue so.\n///\n/// # Errors\n/// As [`b`].\nfn c() {}\n    /// Its text.\n    d: u8,\n/// Italic.\n/// \n// It is a comment.\n//// It is a rule.\nfn e() {}\n/// Of the host.";
    assert_eq!(referring(code), [(1, "As [`a`]."), (7, "As [`b`]."), (9, "Its text."), (16, "Of the host.")]);
}

#[test]
fn a_retired_word_is_noticed_and_a_longer_one_is_not() {
    let refused = Refused { words: vec!["twin".to_owned()], phrases: vec!["is told".to_owned()] };
    assert_eq!(refused.of_line("let twin = 1;", true), Some("twin"));
    assert_eq!(refused.of_line("// The worker IS TOLD to stop.", true), Some("is told"));
    assert_eq!(refused.of_line("let twins_are = is_told;", true), None);
    assert_eq!(refused.of_line("// This told the worker what is told-off.", true), None);
    assert!(has_phrase("fn a() {} // answers b", "// answers") && has_phrase("no one.", "no one"));
    assert!(!has_phrase("no one-time boot", "no one") && !has_phrase("those whose name", "those who"));
}
