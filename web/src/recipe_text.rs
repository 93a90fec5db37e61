//! The text of a recipe in a form: the line of a problem, and the change that a person chose.
//!
//! The text stays as the person wrote it: its order, its blanks and its other lines.
//!
//! ```text
//!   problem at /recipe/task_target ──> bytes of the value in the text ──> its line, beside the problem
//!   button "Use install-linux.target": {"path", "repair"} ──> these bytes, or the name before them, are replaced ──> preview
//! ```

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use ui::data::{ErrorDetail, RepairJson};

use super::form::Form;

/// The field of a form with the text of a recipe, and the beginning of the paths of its problems.
const FIELD: &str = "recipe";
/// The field with the change that a person chose.
const REPAIR: &str = "repair";

/// The change that a button stands for.
#[derive(Deserialize, Serialize)]
struct Chosen {
    path: String,
    repair: RepairJson,
}

/// The form with the change that the person chose, which is previewed and not carried out; `None` when none was chosen, or it does not
/// fit the text any more.
pub(super) fn with_repair(form: &Form) -> Option<Form> {
    let chosen: Chosen = serde_json::from_str(form.get(REPAIR)).ok()?;
    let recipe = repaired(form.get(FIELD), &chosen.path, &chosen.repair)?;
    Some(form.with(FIELD, recipe).with("do", "preview".to_owned()))
}

/// The problems with the lines of the text in which they are. A repair that does not fit the text is left out.
pub(super) fn with_lines(text: &str, details: Vec<ErrorDetail>) -> Vec<ErrorDetail> {
    let located = |mut detail: ErrorDetail| {
        let within = detail.path.trim_start_matches('/').strip_prefix(FIELD).map(str::to_owned);
        let Some(within) = within.filter(|within| within.is_empty() || within.starts_with('/')) else {
            return ErrorDetail { repair: None, ..detail };
        };
        detail.line = line(text, &within);
        let fits = |repair: &RepairJson| repaired(text, &within, repair).is_some();
        detail.choice = detail.repair.as_ref().filter(|repair| fits(repair)).and_then(|repair| {
            serde_json::to_string(&Chosen { path: within.clone(), repair: repair.clone() }).ok()
        });
        detail
    };
    details.into_iter().map(located).collect()
}

/// The line of the value at a pointer, counted from one. For a member that is missing it is the line of its owner.
fn line(text: &str, pointer: &str) -> Option<usize> {
    let owner = || pointer.rsplit_once('/').and_then(|(owner, _)| place(text, owner));
    let found = place(text, pointer).or_else(owner)?;
    Some(1 + text.get(..found.start)?.matches('\n').count())
}

/// The text with a change; `None` when the text has no such value.
fn repaired(text: &str, pointer: &str, repair: &RepairJson) -> Option<String> {
    let value = place(text, pointer)?;
    let (before, after) = (text.get(..value.start)?, text.get(value.end..)?);
    match repair {
        RepairJson::Set(new) => Some(format!("{before}{new}{after}")),
        RepairJson::Rename(name) => {
            let old = serde_json::to_string(&segment(pointer.rsplit_once('/')?.1)).ok()?;
            let named = before.trim_end().strip_suffix(':')?.trim_end();
            let (owner, between) = (named.strip_suffix(&old)?, before.get(named.len()..)?);
            let new = serde_json::to_string(name).ok()?;
            Some(format!("{owner}{new}{between}{}{after}", text.get(value)?))
        }
    }
}

/// The bytes of the value at a pointer (RFC 6901).
fn place(text: &str, pointer: &str) -> Option<Range<usize>> {
    let mut value: &RawValue = serde_json::from_str(text).ok()?;
    for name in pointer.split('/').skip(1) {
        value = match value.get().as_bytes().first()? {
            b'{' => serde_json::from_str::<HashMap<String, &RawValue>>(value.get())
                .ok()?
                .remove(&segment(name))?,
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

/// A segment of a pointer without its escapes.
fn segment(text: &str) -> String {
    text.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const TEXT: &str =
        "{\n  \"task_targt\" : \"install-linus.target\",\n  \"list\": [1, {\"a/b\": \"x\"}]\n}\n";

    #[test]
    fn a_repair_changes_its_bytes_only_and_a_problem_has_the_line_of_its_value() {
        let set = RepairJson::Set(json!("install-linux.target"));
        let changed = repaired(TEXT, "/task_targt", &set).unwrap();
        assert_eq!(changed, TEXT.replace("linus", "linux"));
        let renamed = repaired(TEXT, "/task_targt", &RepairJson::Rename("task_target".to_owned())).unwrap();
        assert_eq!(renamed, TEXT.replace("task_targt", "task_target"));
        let nested = repaired(TEXT, "/list/1/a~1b", &RepairJson::Rename("c".to_owned())).unwrap();
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
        let set = RepairJson::Set(json!(1));
        for (text, pointer) in
            [("{", "/a"), ("{}", "/a"), ("[1]", "/1"), ("[1]", "/x"), ("7", "/a"), ("", "")]
        {
            assert_eq!(repaired(text, pointer, &set), None, "{text} {pointer}");
        }
        assert_eq!(repaired("[1]", "/0", &RepairJson::Rename("a".to_owned())), None);
        // A name that is written with escapes is another text than its name.
        assert_eq!(repaired(r#"{"\u0061": 1}"#, "/a", &RepairJson::Rename("b".to_owned())), None);
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
                pointers(member, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
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
                let changed = repaired(&text, &pointer, &RepairJson::Set(json!("new"))).unwrap();
                let mut expected = value.clone();
                *expected.pointer_mut(&pointer).unwrap() = json!("new");
                prop_assert_eq!(serde_json::from_str::<Value>(&changed).unwrap(), expected);
            }
        }
    }
}
