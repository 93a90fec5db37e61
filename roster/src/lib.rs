//! A roster: the servers of a table or a JSON document, as rows of `POST /api/v1/server-imports`.
//!
//! ```text
//!   CSV   --header--> fields, labels --+
//!   JSON  ------------- rows ----------+--> rows of JSON objects; the API checks their values
//! ```
//!
//! The command line and the page of an import read the same forms. Invariants: no text makes the reader panic; a column that is no
//! field and no label is refused, so that a mistyped one is not left out.

mod csv;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

/// The maximum of rows of one request.
pub const MAX_ROWS: usize = 5000;

/// One server, as the API takes it.
pub type RosterRow = Map<String, Value>;

/// The fields of a server that a column may have, with the other names of the column.
const FIELDS: [(&str, &[&str]); 9] = [
    ("serial", &["serial_number", "serialnumber", "service_tag", "sn"]),
    ("bmc_address", &["bmc", "address", "bmc_ip", "ip", "host"]),
    ("bmc_username", &["bmc_user", "user", "username", "login"]),
    ("bmc_password", &["password"]),
    ("vendor", &["manufacturer", "make"]),
    ("bmc_profile", &["profile"]),
    ("tls", &[]),
    ("tls_fingerprint", &["fingerprint"]),
    ("media_base_url", &[]),
];

/// Whether a text is JSON rather than a table.
pub fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['[', '{'])
}

/// The rows of a text in either form, at most [`MAX_ROWS`].
///
/// # Errors
/// What is wrong with it, or that it has too many rows.
pub fn read(text: &str) -> Result<Vec<RosterRow>, String> {
    if !is_json(text) {
        return rows_of_table(text, &[], MAX_ROWS);
    }
    let rows = of_json(text)?;
    match rows.len() {
        0..=MAX_ROWS => Ok(rows),
        many => {
            Err(format!("the document has {many} servers, at most {MAX_ROWS} are read at once; divide it"))
        }
    }
}

/// The rows of a JSON document: a list of servers, or an object that has one as `rows` or `servers`.
///
/// # Errors
/// What is wrong with the document.
pub fn of_json(text: &str) -> Result<Vec<RosterRow>, String> {
    let document: Value = serde_json::from_str(text).map_err(|why| format!("not JSON: {why}"))?;
    let rows = match document {
        Value::Array(rows) => rows,
        Value::Object(mut document) => match document.remove("rows").or_else(|| document.remove("servers")) {
            Some(Value::Array(rows)) => rows,
            _ => {
                return Err(
                    "the document is a list of servers, or has one as \"rows\" or \"servers\"".to_owned()
                );
            }
        },
        _ => return Err("the document is a list of servers".to_owned()),
    };
    let row = |(index, row): (usize, Value)| match row {
        Value::Object(row) => Ok(row),
        _ => Err(format!("entry {} is not an object", index + 1)),
    };
    rows.into_iter().enumerate().map(row).collect()
}

/// What a column of a table is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Column {
    Field(&'static str),
    Label(String),
}

/// The rows of a table with a header. `map` names the column of a field, or of `label:KEY`, whose header has another name.
///
/// # Errors
/// What is wrong with the table, with its line or its column.
pub fn of_table(text: &str, map: &[(String, String)]) -> Result<Vec<RosterRow>, String> {
    rows_of_table(text, map, usize::MAX - 1)
}

fn rows_of_table(text: &str, map: &[(String, String)], most: usize) -> Result<Vec<RosterRow>, String> {
    let table = csv::read(text, most)?;
    let columns = columns(&table.header, map)?;
    let mut rows = Vec::with_capacity(table.rows.len());
    for (_, cells) in table.rows {
        let (mut row, mut labels) = (Map::new(), Map::new());
        for (column, cell) in columns.iter().zip(cells) {
            // A password may begin or end with a blank.
            let value = if *column == Column::Field("bmc_password") { cell } else { cell.trim().to_owned() };
            if value.is_empty() {
                continue;
            }
            match column {
                Column::Field(name) => drop(row.insert((*name).to_owned(), json!(value))),
                Column::Label(key) => drop(labels.insert(key.clone(), json!(value))),
            }
        }
        if !labels.is_empty() {
            row.insert("labels".to_owned(), Value::Object(labels));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The columns of a header: a field by its name, a label by `label:KEY`.
fn columns(header: &[String], map: &[(String, String)]) -> Result<Vec<Column>, String> {
    let known = || FIELDS.map(|(name, _)| name).join(", ");
    let mut mapped: BTreeMap<String, Column> = BTreeMap::new();
    for (field, column) in map {
        let target = match field.strip_prefix("label:").filter(|key| !key.is_empty()) {
            Some(key) => Column::Label(key.to_owned()),
            None => match FIELDS.iter().find(|(name, _)| name == field) {
                Some((name, _)) => Column::Field(name),
                None => return Err(format!("--map {field}: the fields are {}, label:KEY", known())),
            },
        };
        if !header.contains(column) {
            return Err(format!("--map {field}={column}: the header has no column {column:?}"));
        }
        mapped.insert(column.clone(), target);
    }
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for name in header {
        let column = match mapped.get(name) {
            Some(column) => column.clone(),
            None => column(name).ok_or_else(|| {
                format!(
                    "the column {name:?} is no field; the fields are {}; name a label label:{name}, or map the column \
                     (`shoal server import` with --map FIELD=\"{name}\")",
                    known()
                )
            })?,
        };
        if !seen.insert(column.clone()) {
            return Err(format!("the column {name:?} is there twice, perhaps under another name"));
        }
        found.push(column);
    }
    Ok(found)
}

fn column(name: &str) -> Option<Column> {
    let label = name.strip_prefix("label:").or_else(|| name.strip_prefix("label."));
    if let Some(key) = label {
        return (!key.is_empty()).then(|| Column::Label(key.to_owned()));
    }
    let plain = name.to_lowercase().replace([' ', '-'], "_");
    let field = FIELDS.iter().find(|(field, others)| *field == plain || others.contains(&&*plain));
    field.map(|(field, _)| Column::Field(field))
}

/// The body of the fuzz target `roster`.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(rows) = read(&String::from_utf8_lossy(data)) else { return };
    assert!(rows.len() <= data.len(), "more rows than bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_header() {
        let text = "Serial Number,IP,User,label:site,Raum\nA,10.0.0.1,root,north, 7 \nB,10.0.0.2,,,\n";
        assert!(of_table(text, &[]).unwrap_err().contains("the column \"Raum\" is no field"));
        let map = [("label:room".to_owned(), "Raum".to_owned())];
        let rows = of_table(text, &map).unwrap();
        assert_eq!(
            json!(rows),
            json!([
                { "serial": "A", "bmc_address": "10.0.0.1", "bmc_username": "root", "labels": { "site": "north", "room": "7" } },
                { "serial": "B", "bmc_address": "10.0.0.2" },
            ])
        );
        assert!(of_table("serial,sn\nA,B\n", &[]).unwrap_err().contains("twice"));
        assert!(columns(&["serial".to_owned()], &[("x".to_owned(), "serial".to_owned())]).is_err());
        assert!(columns(&["serial".to_owned()], &[("tls".to_owned(), "nix".to_owned())]).is_err());
    }

    #[test]
    fn a_text_with_more_servers_than_one_request_takes_is_refused() {
        for (rows, fits) in [(MAX_ROWS, true), (MAX_ROWS + 1, false)] {
            let table = format!("serial\n{}", "A\n".repeat(rows));
            let document = format!("[{}{{}}]", "{},".repeat(rows - 1));
            assert_eq!((read(&table).is_ok(), read(&document).is_ok()), (fits, fits), "{rows}");
            assert_eq!(of_table(&table, &[]).unwrap().len(), rows, "the command line divides a table");
        }
    }

    #[test]
    fn a_document_is_a_list_of_servers_or_has_one() {
        for text in [
            "[{\"serial\":\"A\"}]",
            "{\"rows\":[{\"serial\":\"A\"}]}",
            "{\"servers\":[{\"serial\":\"A\"}],\"next\":null}",
        ] {
            assert_eq!(json!(of_json(text).unwrap()), json!([{ "serial": "A" }]));
        }
        for text in ["{}", "7", "[7]", "["] {
            assert!(of_json(text).is_err(), "{text}");
        }
    }
}
