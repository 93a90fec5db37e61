//! The rows of a text, divided: those that can be read go to the API, the others come back into its results.
//!
//! ```text
//!   A  unreadable  B        divide ──> [A, B] ──request──> [created, exists]
//!                                  └─> place 1, why ─────────────┴──merge──> [created, refused, exists]
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{ReadRow, RosterRow};

/// The rows of a text that can be read, in their order, and the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DividedRows {
    /// The rows that can be read.
    pub rows: Vec<RosterRow>,
    /// The rows that cannot be read.
    pub unread: UnreadRows,
}

/// The rows that cannot be read: the place of each among all rows, from 0, and why. The places ascend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnreadRows(Vec<(usize, String)>);

impl FromIterator<ReadRow> for DividedRows {
    fn from_iter<I: IntoIterator<Item = ReadRow>>(all: I) -> Self {
        let mut divided = Self::default();
        for (place, row) in all.into_iter().enumerate() {
            match row {
                Ok(row) => divided.rows.push(row),
                Err(why) => divided.unread.0.push((place, why)),
            }
        }
        divided
    }
}

impl UnreadRows {
    /// The number of unread rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether every row can be read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Inserts a result for each row that cannot be read into the results of the others, at its place. `result` makes it of the reason.
    pub fn merge<T>(self, results: &mut Vec<T>, result: impl Fn(String) -> T) {
        // The places ascend, so each is right when it is used.
        for (place, why) in self.0 {
            results.insert(place.min(results.len()), result(why));
        }
    }
}

/// Gives a row the values that stand beside the table, where it has none: fields, and labels.
pub fn complete(row: &mut RosterRow, fields: &[(&str, &str)], labels: &Map<String, Value>) {
    for (name, value) in fields {
        row.entry(*name).or_insert_with(|| json!(value));
    }
    if labels.is_empty() {
        return;
    }
    // A row whose labels are no object is left for the API to refuse.
    if let Value::Object(own) = row.entry("labels").or_insert_with(|| Value::Object(Map::new())) {
        for (key, value) in labels {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: Value) -> RosterRow {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_row_that_cannot_be_read_has_a_result_at_its_place() {
        let good = |serial: &str| Ok(row(json!({ "serial": serial })));
        for (all, expected) in [
            (vec![good("A"), Err("x".to_owned()), good("B"), Err("y".to_owned())], "A x B y"),
            (vec![Err("x".to_owned()), Err("y".to_owned()), good("A")], "x y A"),
            (vec![Err("x".to_owned())], "x"),
            (vec![], ""),
        ] {
            let divided: DividedRows = all.into_iter().collect();
            let kept: DividedRows = serde_json::from_value(json!(divided)).unwrap();
            assert_eq!(kept, divided, "the second step of a preview reads what the first has written");
            let mut results: Vec<String> =
                divided.rows.iter().map(|row| row["serial"].as_str().unwrap().to_owned()).collect();
            divided.unread.merge(&mut results, |why| why);
            assert_eq!(results.join(" "), expected);
        }
    }

    #[test]
    fn what_stands_beside_the_table_completes_a_row_and_changes_nothing_in_it() {
        let labels = row(json!({ "site": "a", "rack": "7" }));
        let fields = [("bmc_username", "root"), ("bmc_password", "p")];
        let mut bare = row(json!({ "serial": "A" }));
        complete(&mut bare, &fields, &Map::new());
        assert_eq!(json!(bare), json!({ "serial": "A", "bmc_username": "root", "bmc_password": "p" }));
        let mut full = row(json!({ "bmc_username": "ann", "labels": { "site": "b" } }));
        complete(&mut full, &fields[..1], &labels);
        assert_eq!(json!(full), json!({ "bmc_username": "ann", "labels": { "site": "b", "rack": "7" } }));
        let mut wrong = row(json!({ "labels": 7 }));
        complete(&mut wrong, &[], &labels);
        assert_eq!(json!(wrong), json!({ "labels": 7 }), "the API refuses it");
    }
}
