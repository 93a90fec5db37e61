//! The names that operators and programs meet are in the documents: steps and tables in the glossary, settings in settings.md.

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

#[test]
fn a_name_that_is_missing_is_noticed() {
    let names = ["a.b".to_owned(), "c".to_owned(), "d".to_owned()];
    assert_eq!(missing(&names, "| x | `a.b`, `c.e` | d |"), ["d"]);
    assert_eq!(tables("CREATE TABLE a (\nCREATE TABLE \"b\" ("), ["a", "b"]);
}
