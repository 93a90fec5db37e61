//! The examples of the documents for operators, by the program itself.

use std::collections::BTreeSet;

use super::{read, shoal};

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// README and every document of `docs/` but the pages of the commands, which are generated from the program.
fn documents() -> Vec<String> {
    let folder = std::fs::read_dir(format!("{}/docs", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let written = names.filter(|name| name.ends_with(".md") && name != "cli.md");
    written.map(|name| format!("docs/{name}")).chain(["README.md".to_owned()]).collect()
}

/// What the crates and the builders of the program have beside `docs/`.
fn of_builders() -> Vec<String> {
    let root = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
    let folders = root.map(|entry| entry.unwrap().path()).filter(|path| path.join("Cargo.toml").is_file());
    let names = folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    let readmes = names.map(|name| format!("{name}/README.md")).chain(["lab/README.md".to_owned()]);
    let there = |name: &String| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name).is_file();
    readmes.filter(there).chain(["CONTRIBUTING.md".to_owned()]).collect()
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// The text without its fenced blocks.
fn outside_of_blocks(text: &str) -> String {
    let mut inside = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    });
    prose.collect::<Vec<&str>>().join("\n")
}

/// Whether a value is a name such as JOB, or is cut off.
fn stands_for_another(value: &str) -> bool {
    value.ends_with("...") || value.chars().all(|letter| letter.is_ascii_uppercase() || letter == '-')
}

#[test]
fn every_recipe_of_the_documents_is_valid_and_every_target_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recipe.json");
    let mut targets = BTreeSet::new();
    for recipe in blocks(&document("docs/recipes.md"), "json") {
        std::fs::write(&path, &recipe).unwrap();
        let ran = shoal(&["recipe", "validate", path.to_str().unwrap(), "--json"]).ends_with(0);
        assert_eq!(ran.json()["warnings"], serde_json::json!([]), "{recipe}\n{}", ran.out);
        let recipe: serde_json::Value = serde_json::from_str(&recipe).unwrap();
        targets.insert(recipe["task_target"].as_str().unwrap().to_owned());
    }
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../schemas/recipe-v2.schema.json")).unwrap();
    let known = schema["properties"]["task_target"]["enum"].as_array().unwrap();
    let known: BTreeSet<String> = known.iter().map(|target| target.as_str().unwrap().to_owned()).collect();
    assert_eq!(targets, known, "left: docs/recipes.md, right: the schema");
}

#[test]
fn every_recipe_and_every_setting_beside_them_is_taken_as_it_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recipes, mut settings) = (0, 0);
    for name in documents().into_iter().filter(|name| name != "docs/recipes.md") {
        let text = document(&name);
        for block in blocks(&text, "json").into_iter().filter(|block| block.contains("\"task_target\"")) {
            let path = folder.path().join("recipe.json");
            std::fs::write(&path, &block).unwrap();
            let read: serde_json::Value = serde_json::from_str(&block).unwrap();
            assert!(read["task_target"].is_string(), "{name}: {block}");
            shoal(&["recipe", "validate", path.to_str().unwrap()]).ends_with(0);
            recipes += 1;
        }
        for block in blocks(&text, "toml") {
            // The folders and files of an example are on the machine of its reader.
            let keys: Vec<&str> =
                block.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key).collect();
            let known = shoal(&["config", "reference", "--json"]).ends_with(0).json();
            let known: BTreeSet<&str> =
                known["settings"].as_array().unwrap().iter().filter_map(|one| one["key"].as_str()).collect();
            for key in &keys {
                assert!(known.contains(key), "{name}: no setting has the key {key}");
            }
            settings += keys.len();
        }
    }
    assert!(recipes >= 2 && settings >= 8, "{recipes} recipes, {settings} settings");
}

#[test]
fn the_rules_of_the_registry_are_taken_as_they_are_printed() {
    let text = document("docs/operating.md");
    let rules = blocks(&text, "text").into_iter().find(|block| block.starts_with("os-images/**")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    let check = |rules: &str| {
        std::fs::write(&path, rules).unwrap();
        let data = folder.path().join("data");
        let place =
            ["--registry-access-file", path.to_str().unwrap(), "--storage-root", data.to_str().unwrap()];
        shoal(&[&["config", "check"][..], &place].concat())
    };
    check(&rules).ends_with(0);
    check(&rules.replace("authenticated", "unknown-subject")).ends_with(64);
}

#[test]
fn every_command_of_the_documents_is_one_that_the_program_knows() {
    let (mut checked, mut faults) = (0, Vec::new());
    for name in documents().into_iter().chain(of_builders()) {
        let text = document(&name);
        let of_blocks = [blocks(&text, "console"), blocks(&text, "sh")]
            .concat()
            .into_iter()
            .flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<String>>());
        let prose = outside_of_blocks(&text);
        let inline = prose.split('`').skip(1).step_by(2).map(str::to_owned);
        for line in of_blocks.chain(inline) {
            // The words from `shoal` to the end of the command, with a word in place of each quoted text.
            let Some(at) = line.find("shoal ").filter(|at| *at == 0 || line[..*at].ends_with(' ')) else {
                continue;
            };
            let command = line[at..].split(['|', ';', '>', '<', '#', '&']).next().unwrap();
            let unquoted = |command: &str, quote: char| -> String {
                let parts = command.split(quote).enumerate();
                parts.map(|(index, part)| if index % 2 == 0 { part } else { "TEXT" }).collect()
            };
            let command = unquoted(&unquoted(command, '\''), '"');
            let words: Vec<&str> = command.split_whitespace().skip(1).collect();
            let known = super::super::command_words();
            let is_command = words.first().is_some_and(|first| known.contains(&(*first).to_owned()));
            if !is_command {
                continue;
            }
            // Only unknown commands and flags are faults here: values such as JOB stand for others.
            let with_help: Vec<&str> =
                words.iter().copied().filter(|word| *word != "…").chain(["--help"]).collect();
            // A command that passes its arguments to another program takes `--help` as one of them.
            let said = read(&with_help).map_or_else(|help| help.to_string(), |_| String::new());
            let value = said.strip_prefix("error: invalid value '").and_then(|rest| rest.split('\'').next());
            if said.starts_with("error:") && !value.is_some_and(stands_for_another) {
                faults.push(format!("{name}: `{command}`: {said}"));
            }
            checked += 1;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(checked > 150, "only {checked} commands were found");
}
