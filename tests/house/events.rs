//! The types of events: docs/events.md lists exactly what the code writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{product_code, read, root, tracked};

/// The types with the levels that the code gives them.
type Types = BTreeMap<String, BTreeSet<String>>;

/// Calls whose type is not written in the call: the file, and the types with their levels. Without types: the call copies an event.
const INDIRECT: [(&str, &[(&str, &str)]); 3] = [
    ("engine/src/wire.rs", &[]),
    ("api/src/webhooks/switch.rs", &[("webhook.enabled", "info"), ("webhook.disabled", "info")]),
    (
        "controller/src/app/registry/audit.rs",
        &[
            ("registry.push-blob", "info"),
            ("registry.mount-blob", "info"),
            ("registry.push-manifest", "info"),
            ("registry.push-tag", "info"),
            ("registry.delete-blob", "info"),
            ("registry.delete-manifest", "info"),
            ("registry.delete-tag", "info"),
            ("registry.denied", "warn"),
        ],
    ),
];

/// The events that a text of code makes, and the number of calls whose type is a variable.
fn made(code: &str, types: &mut Types) -> usize {
    let mut variable = 0;
    for (at, call) in code.match_indices("NewEvent::") {
        let rest = &code[at + call.len()..];
        let Some((level, arguments)) = rest.split_once('(') else { continue };
        if !["info", "warn", "error"].contains(&level) {
            continue;
        }
        match arguments.trim_start().strip_prefix('"').and_then(|text| text.split_once('"')) {
            Some((name, _)) => drop(types.entry(name.to_owned()).or_default().insert(level.to_owned())),
            None => variable += 1,
        }
    }
    variable
}

/// The events that triggers of the schema write: the first two texts of their values are the type and the level.
fn made_by_triggers(sql: &str, types: &mut Types) {
    for statement in sql.split("INSERT INTO events").skip(1) {
        let values = statement.split(';').next().and_then(|text| text.split_once("VALUES"));
        let mut texts = values.into_iter().flat_map(|(_, values)| values.split('\'').skip(1).step_by(2));
        let (Some(name), Some(level)) = (texts.next(), texts.next()) else {
            panic!("write the type of an event in its statement: {statement}")
        };
        types.entry(name.to_owned()).or_default().insert(level.to_owned());
    }
}

/// The rows of the document: type and levels.
fn documented(text: &str) -> Types {
    let mut types = Types::new();
    for line in text.lines() {
        let Some((name, rest)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | ")) else {
            continue;
        };
        let levels = rest.split(" | ").next().unwrap_or_default().split(", ").map(str::to_owned);
        assert!(types.insert(name.to_owned(), levels.collect()).is_none(), "{name} has two rows");
    }
    types
}

/// What is wrong with the document: types without a row, rows without a type, levels that a row lacks.
fn differences(made: &Types, documented: &Types) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, levels) in made {
        match documented.get(name) {
            None => wrong.push(format!("{name} ({levels:?}) has no row")),
            Some(shown) if !levels.is_subset(shown) => wrong.push(format!("{name} is also {levels:?}")),
            Some(_) => {}
        }
    }
    wrong.extend(
        documented.keys().filter(|name| !made.contains_key(*name)).map(|name| format!("{name} is not made")),
    );
    wrong
}

#[test]
fn the_list_of_events_is_that_of_the_code() {
    let mut types = Types::new();
    for file in tracked(&["rs"]) {
        let shown = file.strip_prefix(root()).unwrap().display().to_string();
        let is_product = !["lab/", "tests/", "fuzz/"].iter().any(|folder| shown.starts_with(folder));
        // The type's own file has the functions, and code after `mod tests` is no product.
        if !is_product || shown == "model/src/event.rs" {
            continue;
        }
        if made(&product_code(&file), &mut types) > 0 {
            let known = INDIRECT.iter().find(|(path, _)| *path == shown);
            let (_, indirect) =
                known.unwrap_or_else(|| panic!("{shown}: write the type of an event in its call"));
            for (name, level) in *indirect {
                types.entry((*name).to_owned()).or_default().insert((*level).to_owned());
            }
        }
    }
    for file in tracked(&["sql"]).iter().filter(|file| file.starts_with(root().join("migrations"))) {
        made_by_triggers(&read(file), &mut types);
    }
    assert!(types.contains_key("batch.stopped"), "the triggers are not where this test looks");
    assert!(types.len() > 100, "{} types: the code is not where this test looks", types.len());
    let documented = documented(&read(&root().join("docs/events.md")));
    let wrong = differences(&types, &documented);
    assert!(wrong.is_empty(), "docs/events.md:\n{}", wrong.join("\n"));
    // What a filter of events accepts.
    let listed = read(&root().join("model/src/event_types.rs"));
    let listed: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.strip_prefix("    \"")?.strip_suffix("\",")).collect();
    assert_eq!(listed, documented.keys().map(String::as_str).collect(), "model/src/event_types.rs");
}

#[test]
fn an_event_without_a_row_and_a_row_without_an_event_are_noticed() {
    let mut types = Types::new();
    let code = "NewEvent::warn(\n    \"a.b\", x); NewEvent::info(\"c.d\", y); NewEvent::error(kind, z); NewEvent::info(\"a.b\", x)";
    assert_eq!(made(code, &mut types), 1);
    let sql =
        "INSERT INTO events (time, type, level, message) VALUES (NEW.at, 'g.h', 'warn', 'x; ' || NEW.id);";
    made_by_triggers(sql, &mut types);
    assert_eq!(types.remove("g.h"), Some(["warn".to_owned()].into()));
    let rows =
        documented("| type | level | what |\n|---|---|---|\n| `a.b` | warn | w |\n| `e.f` | info | w |\n");
    let wrong = differences(&types, &rows);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
