//! The names that operators and programs meet are in the documents: steps and tables in the glossary, settings in settings.md.
//! The types that the glossary names are in the code.

use std::collections::BTreeSet;

use crate::sources::{product_code, read, root, tracked};

/// The texts between two marks.
fn between(text: &str, before: &str, after: char) -> Vec<String> {
    text.match_indices(before)
        .filter_map(|(at, mark)| Some(text[at + mark.len()..].split_once(after)?.0.to_owned()))
        .collect()
}

/// The names of the steps of all workflows.
fn steps() -> Vec<String> {
    let mut names: Vec<String> = ["provision", "upkeep", "diagnostics"]
        .iter()
        .flat_map(|room| {
            let files =
                tracked(&["rs"]).into_iter().filter(|file| file.starts_with(root().join(room).join("src")));
            files.flat_map(|file| between(&product_code(&file), "StepName::new(\"", '"')).collect::<Vec<_>>()
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The tables of the schema.
fn tables(schema: &str) -> Vec<String> {
    let names = between(schema, "CREATE TABLE ", '(');
    names.iter().map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

/// The names without a place of their own between backticks.
fn missing<'a>(names: &'a [String], document: &str) -> Vec<&'a str> {
    let is_named = |name: &str| {
        let words = document.split('`').skip(1).step_by(2);
        words
            .flat_map(|quoted| quoted.split([' ', '.', ','].as_slice()).chain([quoted]))
            .any(|word| word == name)
    };
    names.iter().map(String::as_str).filter(|name| !is_named(name)).collect()
}

#[test]
fn every_step_and_every_table_is_in_the_glossary() {
    let glossary = read(&root().join("docs/glossary.md"));
    let steps = steps();
    assert!(steps.len() > 40, "{steps:?}");
    assert_eq!(missing(&steps, &glossary), [""; 0], "steps without a place in docs/glossary.md");
    let tables = tables(&read(&root().join("golden/schema.sql")));
    assert!(tables.len() > 30, "{tables:?}");
    assert_eq!(missing(&tables, &glossary), [""; 0], "tables without a place in docs/glossary.md");
}

#[test]
fn every_setting_is_in_the_list_of_settings() {
    let reference = read(&root().join("golden/config-reference.txt"));
    let page = read(&root().join("docs/settings.md"));
    let is_name = |word: &str| {
        word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    let names: Vec<&str> = reference.lines().filter(|line| is_name(line)).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(
            page.lines().any(|line| line.strip_prefix("## ") == Some(name)),
            "docs/settings.md lacks {name}"
        );
    }
}

/// Whether a word is written as the name of a type.
fn is_type_name(word: &str) -> bool {
    word.starts_with(|sign: char| sign.is_ascii_uppercase())
        && word.chars().all(|sign| sign.is_ascii_alphanumeric())
        && word.chars().any(|sign| sign.is_ascii_lowercase())
}

/// The type that a line of code defines for other files, or the name alone on its line that a macro makes a type of.
fn shared_type(line: &str) -> Option<&str> {
    let Some(rest) = line.strip_prefix("pub") else { return is_type_name(line).then_some(line) };
    let rest = rest.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.1)).unwrap_or(rest);
    let name =
        [" struct ", " enum ", " trait ", " type "].iter().find_map(|kind| rest.strip_prefix(*kind))?;
    name.split(|sign: char| !sign.is_alphanumeric()).next()
}

/// The types in the third column of the tables of words.
fn types_of_words(glossary: &str) -> Vec<&str> {
    let rows = glossary.lines().filter(|line| line.starts_with("| "));
    let columns = rows.map(|row| row.split(" | ").collect::<Vec<_>>()).filter(|cells| cells.len() == 4);
    let quoted = columns.flat_map(|cells| cells[2].split('`').skip(1).step_by(2).collect::<Vec<_>>());
    quoted.filter_map(|name| name.split("::").find(|part| is_type_name(part))).collect()
}

#[test]
fn every_type_of_the_glossary_is_in_the_code() {
    let glossary = read(&root().join("docs/glossary.md"));
    let named = types_of_words(&glossary);
    assert!(named.len() > 250, "only {} types were read", named.len());
    let mut known = BTreeSet::new();
    for file in tracked(&["rs"]) {
        let code = product_code(&file);
        known.extend(code.lines().filter_map(|line| shared_type(line.trim())).map(str::to_owned));
    }
    let unknown: Vec<&str> = named.into_iter().filter(|name| !known.contains(*name)).collect();
    assert_eq!(unknown, [""; 0], "docs/glossary.md names types that no code shares");
}

#[test]
fn a_type_is_read_from_a_definition_and_from_the_glossary() {
    let lines = ["pub struct A1<T>(T);", "pub(crate) enum Bee {", "pub(super) type Cat = u8;", "StepName"];
    assert_eq!(lines.map(shared_type), [Some("A1"), Some("Bee"), Some("Cat"), Some("StepName")]);
    let others = ["struct Own;", "pub fn a() {}", "name!(", "FLAGS", "Row,"];
    assert!(others.iter().all(|line| shared_type(line).is_none()));
    let rows = "| word | definition | type | it is not |\n| a | b `No` | `Bee::c`, `d::Cat`, `STEPS`, table `e` | `No` |\n| `f` | `No` |";
    assert_eq!(types_of_words(rows), ["Bee", "Cat"]);
}

#[test]
fn a_name_that_is_missing_is_noticed() {
    let names = ["a.b".to_owned(), "c".to_owned(), "d".to_owned()];
    assert_eq!(missing(&names, "| x | `a.b`, `c.e` | d |"), ["d"]);
    assert_eq!(tables("CREATE TABLE a (\nCREATE TABLE \"b\" ("), ["a", "b"]);
}
