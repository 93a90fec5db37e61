//! Commands that a text tells an operator to type: each is one that the program has.
//!
//! ```text
//!  "… `shoal batch continue {0}`, or shoal batch retry {0} --failed"
//!         words of the command, then options and values ──> clap
//! ```
//!
//! A text that names a command without an argument refers to it; with an argument it is a line to type, and clap must accept it. What
//! stands in backticks names a command with every word.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use super::Cli;

/// The folders whose texts are read: the sources of every crate of the workspace, so that a new crate is read too, and the pages.
fn rooms(root: &Path) -> Vec<PathBuf> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let folders = members.split(',').map(|folder| folder.trim().trim_matches('"'));
    let crates = folders.filter(|folder| !folder.is_empty()).map(|folder| root.join(folder).join("src"));
    crates.chain([root.join("src"), root.join("ui/templates")]).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if (name.ends_with(".rs") || name.ends_with(".html")) && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The texts of a source without its comments and unit tests, each line of a string joined with the next.
fn texts(source: &str) -> String {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut joined = String::new();
    for line in lines {
        match line.trim_end().strip_suffix('\\') {
            Some(begin) => joined.push_str(begin.trim_start()),
            None => {
                joined.push_str(line.trim_start());
                joined.push('\n');
            }
        }
    }
    joined
}

/// Whether a word stands for a value: `SERIAL`, `{job}`, `…`, `XF-7`.
fn is_value(word: &str) -> bool {
    word == "…"
        || word.starts_with('{')
        || word.chars().any(|c| c.is_ascii_uppercase()) && !word.chars().any(|c| c.is_ascii_lowercase())
}

/// The words of the command at the beginning of a text, and whether it has an argument. Without a command there is no word but the
/// first. `opened` says that a backtick is before the text.
fn line(root: &Command, text: &str, opened: bool) -> (Vec<String>, bool) {
    let end = text.find(['`', '"', '\n', ',', ';', '<']).unwrap_or(text.len());
    let whole = text[end..].starts_with('`');
    let mut command = root;
    let (mut words, mut given, mut value_of_option) = (vec!["shoal".to_owned()], false, false);
    for word in text[..end].split_whitespace() {
        let word = word.trim_end_matches([')', '.', ':', '\\', '|']);
        // As a shell takes it.
        let word = word.strip_prefix('\'').and_then(|word| word.strip_suffix('\'')).unwrap_or(word);
        let is_option = word.starts_with('-') && word.len() > 1;
        match command.find_subcommand(word).filter(|_| !given) {
            Some(inner) => command = inner,
            // The group has no such command.
            None if opened && whole && !is_option && !is_value(word) && command.has_subcommands() => {
                given = true
            }
            None if words.len() == 1 => break,
            None if is_option || is_value(word) || value_of_option || whole && given => given = true,
            None => break,
        }
        let option = command.get_arguments().find(|option| {
            let names = option.get_all_aliases().into_iter().flatten().chain(option.get_long());
            let long = names.into_iter().any(|name| word == format!("--{name}"));
            long || option.get_short().is_some_and(|name| word == format!("-{name}"))
        });
        value_of_option = option.is_some_and(|option| option.get_action().takes_values());
        words.push(word.to_owned());
    }
    // An option without its value is named, not typed.
    if value_of_option {
        words.pop();
        given = words.iter().any(|word| word.starts_with('-'));
    }
    (words, given)
}

/// Returns the error of clap for a line of a text.
fn wrong(root: &Command, words: &[String], given: bool) -> Option<String> {
    // `…` stands for the rest; a value in braces is written at run time.
    if words.iter().any(|word| word == "…") {
        return None;
    }
    let words = words.iter().map(|word| match word.as_str() {
        "{seed}" => "7",
        word if word.starts_with('{') => "0192f3a4-5b6c-7abc-8def-0123456789ab",
        "N" => "7",
        word => word,
    });
    let refused = root.clone().try_get_matches_from(words).err()?;
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        // The name of a command, or of a group of commands.
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if !given =>
        {
            None
        }
        _ => Some(refused.to_string()),
    }
}

fn built() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

#[test]
fn every_command_that_a_text_names_is_one_that_the_program_has() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for room in rooms(root) {
        sources(&room, &mut files);
    }
    let root_command = built();
    let (mut seen, mut refused) = (0, Vec::new());
    for file in files {
        let text = texts(&std::fs::read_to_string(&file).unwrap());
        for (at, _) in text.match_indices("shoal ") {
            let quoted = text[..at].chars().next_back().is_none_or(|c| " `\"(>".contains(c));
            let opened = text[..at].ends_with('`');
            let (words, given) = line(&root_command, &text[at + "shoal ".len()..], opened);
            if !quoted || words.len() < 2 {
                continue;
            }
            seen += 1;
            if let Some(why) = wrong(&root_command, &words, given) {
                refused.push(format!("{}: {}\n{why}", file.display(), words.join(" ")));
            }
        }
    }
    assert!(seen > 150, "{seen} commands were found");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_line_that_clap_refuses_is_found() {
    let root = built();
    for (text, is_wrong) in [
        ("batch retry {0}\"", true),
        ("batch retry {0} --failed\"", false),
        ("batch retry`", false),
        ("batch continue {} starts them now", false),
        ("job cancel ID --nonsense;", true),
        ("server update {serial} --tls pinned --bmc-password-stdin`", false),
        ("firmware import`", true),
        ("firmware set import`", false),
        ("firmwares list`", true),
        ("firmware …`", false),
    ] {
        let (words, given) = line(&root, text, true);
        assert_eq!(wrong(&root, &words, given).is_some(), is_wrong, "{text}: {words:?}");
    }
}
