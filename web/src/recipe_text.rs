//! The text of a recipe in a form: the line of a problem, and the change that a person chose.
//!
//! The text stays as the person wrote it: its order, its blanks and its other lines.
//!
//! ```text
//!   problem at /recipe/task_target ──> bytes of the value in the text ──> its line, beside the problem
//!   button "Use install-linux.target": {"path", "repair", "replaced"?} ──> these bytes, or the name before them, are replaced
//!       ──> preview; nothing is changed in a text that has another value there
//! ```

use std::collections::HashMap;
use std::ops::Range;

use recipe::{member_of_segment, pointer_to_member};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use ui::data::{ErrorDetail, RepairJson};

use super::form::{self, Form};

/// The field of a form with the text of a recipe, and the beginning of the paths of its problems.
const FIELD: &str = "recipe";
/// The field with the change that a person chose.
const REPAIR: &str = "repair";

/// The maximum of problems with a line and a repair. Each reads the text again.
const LOCATED: usize = 8;
/// The maximum of levels between the recipe and a value. Each reads the value again.
const MAX_LEVELS: usize = 16;

/// The longest value that a repair replaces, in bytes.
const MAX_REPLACED: usize = 1 << 10;

/// The change that a button stands for.
#[derive(Deserialize, Serialize)]
struct Chosen {
    path: String,
    repair: RepairJson,
    /// The value that is replaced, as the text has it. In another text the place may be that of another value.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<String>,
}

/// The form with the change that the person chose, which is previewed and not carried out; `None` when none was chosen, or it does not
/// fit the text any more.
pub(super) fn with_repair(form: &Form) -> Option<Form> {
    let chosen: Chosen = serde_json::from_str(form.get(REPAIR)).ok()?;
    let recipe = repaired(form.get(FIELD), &chosen)?;
    Some(form.with(FIELD, recipe).with("do", "preview".to_owned()))
}

/// The recipe of a form. A key that an object has twice is a problem, as it is for the API: of two disks one would be wiped.
pub(super) fn parsed(form: &Form) -> Result<Value, Vec<ErrorDetail>> {
    let problem =
        |error: recipe::FieldError| ErrorDetail::new(format!("/{FIELD}{}", error.path), error.message);
    recipe::parse_recipe(form.get(FIELD)).map_err(|errors| errors.into_iter().map(problem).collect())
}

/// The problems; the first ones with the lines of the text in which they are, and with repairs that fit the text.
pub(super) async fn with_lines(text: &str, details: Vec<ErrorDetail>) -> Vec<ErrorDetail> {
    if details.is_empty() {
        return details;
    }
    let (owned, plain) = (text.to_owned(), details.clone());
    form::parsed(text.len(), move || located(&owned, details)).await.unwrap_or(plain)
}

fn located(text: &str, mut details: Vec<ErrorDetail>) -> Vec<ErrorDetail> {
    let of_recipe = |path: &str| Some(path.strip_prefix('/')?.strip_prefix(FIELD)?.to_owned());
    let within = details.iter_mut().filter_map(|detail| Some((of_recipe(&detail.path)?, detail)));
    for (path, detail) in within.filter(|(path, _)| path.starts_with('/')).take(LOCATED) {
        detail.line = line(text, &path);
        detail.choice = detail.repair.clone().and_then(|repair| {
            let replaced = match repair {
                RepairJson::Set(_) => Some(text.get(place(text, &path)?)?.to_owned()),
                RepairJson::Rename(_) => None,
            };
            let chosen = Chosen { path, repair, replaced };
            repaired(text, &chosen)?;
            serde_json::to_string(&chosen).ok()
        });
    }
    details
}

/// The line of the value at a pointer, counted from one. For a member that is missing it is the line of its owner.
fn line(text: &str, pointer: &str) -> Option<usize> {
    let owner = || pointer.rsplit_once('/').and_then(|(owner, _)| place(text, owner));
    let found = place(text, pointer).or_else(owner)?;
    Some(1 + text.get(..found.start)?.matches('\n').count())
}

/// The text with a change; `None` when the text has no such value, or has the new name already.
fn repaired(text: &str, chosen: &Chosen) -> Option<String> {
    let value = place(text, &chosen.path)?;
    let (before, after) = (text.get(..value.start)?, text.get(value.end..)?);
    match &chosen.repair {
        RepairJson::Set(new) => {
            let old = text.get(value)?;
            let is_meant = old.len() <= MAX_REPLACED && chosen.replaced.as_deref() == Some(old);
            is_meant.then(|| format!("{before}{new}{after}"))
        }
        RepairJson::Rename(name) => {
            let (owner, old) = chosen.path.rsplit_once('/')?;
            if place(text, &pointer_to_member(owner, name)).is_some() {
                return None;
            }
            let old = serde_json::to_string(&member_of_segment(old)).ok()?;
            let named = before.trim_end().strip_suffix(':')?.trim_end();
            let (owner, between) = (named.strip_suffix(&old)?, before.get(named.len()..)?);
            let new = serde_json::to_string(name).ok()?;
            Some(format!("{owner}{new}{between}{}{after}", text.get(value)?))
        }
    }
}

/// The bytes of the value at a pointer (RFC 6901); `None` for one that is below [`MAX_LEVELS`].
fn place(text: &str, pointer: &str) -> Option<Range<usize>> {
    if pointer.matches('/').count() > MAX_LEVELS {
        return None;
    }
    let mut value: &RawValue = serde_json::from_str(text).ok()?;
    for name in pointer.split('/').skip(1) {
        value = match value.get().as_bytes().first()? {
            b'{' => serde_json::from_str::<HashMap<String, &RawValue>>(value.get())
                .ok()?
                .remove(&member_of_segment(name))?,
            b'[' => {
                *serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?.get(name.parse::<usize>().ok()?)?
            }
            _ => return None,
        };
    }
    // The value is borrowed from the text.
    let start = value.get().as_ptr().addr() - text.as_ptr().addr();
    Some(start..start + value.get().len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const TEXT: &str =
        "{\n  \"task_targt\" : \"install-linus.target\",\n  \"list\": [1, {\"a/b\": \"x\"}]\n}\n";

    fn set(path: &str, old: &str, new: Value) -> Chosen {
        Chosen { path: path.to_owned(), repair: RepairJson::Set(new), replaced: Some(old.to_owned()) }
    }

    fn rename(path: &str, new: &str) -> Chosen {
        Chosen { path: path.to_owned(), repair: RepairJson::Rename(new.to_owned()), replaced: None }
    }

    #[test]
    fn a_repair_changes_its_bytes_only_and_a_problem_has_the_line_of_its_value() {
        let target = set("/task_targt", "\"install-linus.target\"", json!("install-linux.target"));
        assert_eq!(repaired(TEXT, &target).unwrap(), TEXT.replace("linus", "linux"));
        let renamed = repaired(TEXT, &rename("/task_targt", "task_target")).unwrap();
        assert_eq!(renamed, TEXT.replace("task_targt", "task_target"));
        let nested = repaired(TEXT, &rename("/list/1/a~1b", "c")).unwrap();
        assert_eq!(nested, TEXT.replace("a/b", "c"));
        for (pointer, expected) in [
            ("", Some(1)),
            ("/task_targt", Some(2)),
            ("/list/1/a~1b", Some(3)),
            ("/list/1/no", Some(3)),
            ("/no/no", None),
        ] {
            assert_eq!(line(TEXT, pointer), expected, "{pointer}");
        }
    }

    #[test]
    fn a_text_that_has_changed_since_is_not_repaired() {
        for (text, pointer) in
            [("{", "/a"), ("{}", "/a"), ("[1]", "/1"), ("[1]", "/x"), ("7", "/a"), ("", "")]
        {
            assert_eq!(repaired(text, &set(pointer, "1", json!(1))), None, "{text} {pointer}");
        }
        assert_eq!(repaired("[1]", &rename("/0", "a")), None);
        // A name that is written with escapes is another text than its name.
        assert_eq!(repaired(r#"{"\u0061": 1}"#, &rename("/a", "b")), None);
        // A partition was inserted before the one with the mistake: the place is that of another value.
        let format = set("/0/format", "\"ext5\"", json!("ext4"));
        assert!(repaired(r#"[{"format": "ext5"}]"#, &format).is_some());
        assert_eq!(repaired(r#"[{"format": "vfat"}, {"format": "ext5"}]"#, &format), None);
        // The name was given to another member.
        let disk = rename("/targetDisk", "target_disk");
        assert!(repaired(r#"{"targetDisk": "/dev/sda"}"#, &disk).is_some());
        assert_eq!(repaired(r#"{"target_disk": "/dev/sdb", "targetDisk": "/dev/sda"}"#, &disk), None);
    }

    #[test]
    fn what_a_form_sends_decides_no_amount_of_work() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let path = "/0".repeat(MAX_LEVELS);
        assert!(place(&deep, &path).is_some());
        assert_eq!(place(&deep, &(path + "/0")), None);
        let many = vec![ErrorDetail::new("/recipe/task_targt", "is wrong"); 50];
        let lines = located(TEXT, many).iter().filter(|detail| detail.line == Some(2)).count();
        assert_eq!(lines, LOCATED);
        let others = ["/labels", "/recipes/a", "recipe/task_targt", "/recipe"];
        let others = others.map(|path| ErrorDetail::new(path, "is wrong")).to_vec();
        assert!(located(TEXT, others).iter().all(|detail| detail.line.is_none()));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map(".{0,4}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
        match value {
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(index, item)| pointers(item, format!("{at}/{index}"), found));
            }
            Value::Object(members) => members.iter().for_each(|(name, member)| {
                pointers(member, pointer_to_member(&at, name), found);
            }),
            _ => {}
        }
        found.push(at);
    }

    proptest! {
        #[test]
        fn a_replaced_value_is_the_value_at_its_pointer(value in values(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let mut all = Vec::new();
            pointers(&value, String::new(), &mut all);
            for pointer in all {
                let old = text[place(&text, &pointer).unwrap()].to_owned();
                let changed = repaired(&text, &set(&pointer, &old, json!("new"))).unwrap();
                let mut expected = value.clone();
                *expected.pointer_mut(&pointer).unwrap() = json!("new");
                prop_assert_eq!(serde_json::from_str::<Value>(&changed).unwrap(), expected);
            }
        }
    }
}
