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
mod divided;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

pub use divided::{DividedRows, UnreadRows, complete};

/// The maximum of rows of one request.
pub const MAX_ROWS: usize = 5000;

/// One server, as the API takes it.
pub type RosterRow = Map<String, Value>;

/// The fields of a server that a column may have, with the other names of the column.
const FIELDS: [(&str, &[&str]); 14] = [
    ("serial", &["serial_number", "serialnumber", "service_tag", "sn"]),
    ("bmc_address", &["bmc", "address", "bmc_ip", "ip", "host"]),
    ("bmc_username", &["bmc_user", "user", "username", "login"]),
    ("bmc_password", &["password"]),
    ("vendor", &["manufacturer", "make"]),
    ("bmc_profile", &["profile"]),
    ("tls", &[]),
    ("tls_fingerprint", &["fingerprint"]),
    ("media_base_url", &[]),
    ("network_mac", &["mac", "mac_address"]),
    ("network_address", &[]),
    ("network_gateway", &["gateway"]),
    ("network_dns", &["dns", "nameservers"]),
    ("network_vlan", &["vlan"]),
];

/// Whether a text is JSON rather than a table.
pub fn is_json(text: &str) -> bool {
    without_mark(text).trim_start().starts_with(['[', '{'])
}

/// A text without the byte order mark with which some programs begin a file.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A row, or why it cannot be read.
pub type ReadRow = Result<RosterRow, String>;

/// The rows of a text in either form, at most [`MAX_ROWS`]. A row that cannot be read stops no other.
///
/// # Errors
/// What is wrong with the text, or that it has too many rows.
pub fn read(text: &str) -> Result<Vec<ReadRow>, String> {
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
pub fn of_json(text: &str) -> Result<Vec<ReadRow>, String> {
    let document: Value =
        serde_json::from_str(without_mark(text)).map_err(|why| format!("not JSON: {why}"))?;
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
    Ok(rows.into_iter().enumerate().map(row).collect())
}

/// The field or label that a column of a table gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Column {
    Field(&'static str),
    Label(String),
}

/// The rows of a table with a header. `map` names the column of a field, or of `label:KEY`, whose header has another name.
///
/// # Errors
/// What is wrong with the table, with its line or its column.
pub fn of_table(text: &str, map: &[(String, String)]) -> Result<Vec<ReadRow>, String> {
    rows_of_table(text, map, usize::MAX - 1)
}

fn rows_of_table(text: &str, map: &[(String, String)], most: usize) -> Result<Vec<ReadRow>, String> {
    let table = csv::read(text, most)?;
    let columns = columns(&table.header, map)?;
    Ok(table.rows.into_iter().map(|(line, cells)| row_of(&columns, line, cells)).collect())
}

/// The row of one line of a table.
fn row_of(columns: &[Column], line: usize, cells: Vec<String>) -> ReadRow {
    if cells.len() != columns.len() {
        let fields = if cells.len() == 1 { "field" } else { "fields" };
        return Err(format!("line {line} has {} {fields}, the header has {}", cells.len(), columns.len()));
    }
    let (mut row, mut labels, mut network) = (Map::new(), Map::new(), BTreeMap::new());
    for (column, cell) in columns.iter().zip(cells) {
        // A password in quotation marks may begin or end with a blank.
        let value = if *column == Column::Field("bmc_password") { cell } else { cell.trim().to_owned() };
        if value.is_empty() {
            continue;
        }
        match column {
            Column::Field(name) => match name.strip_prefix("network_") {
                Some(part) => drop(network.insert(part, value)),
                None => drop(row.insert((*name).to_owned(), json!(value))),
            },
            Column::Label(key) => drop(labels.insert(key.clone(), json!(value))),
        }
    }
    if !labels.is_empty() {
        row.insert("labels".to_owned(), Value::Object(labels));
    }
    if !network.is_empty() {
        let network = one_card(&network).map_err(|why| format!("line {line}: {why}"))?;
        row.insert("network".to_owned(), network);
    }
    Ok(row)
}

/// The network of a machine with one card, in the form of a recipe's `network`. The API checks addresses and numbers.
fn one_card(columns: &BTreeMap<&str, String>) -> Result<Value, String> {
    let mac =
        columns.get("mac").ok_or("a row with a network has a network_mac, by which the card is found")?;
    let mut addressing = match columns.get("address") {
        Some(address) => json!({ "addresses": [address] }),
        None => json!({ "dhcp4": true }),
    };
    if let Some(gateway) = columns.get("gateway") {
        addressing["routes"] = json!([{ "to": "default", "via": gateway }]);
    }
    if let Some(dns) = columns.get("dns") {
        let servers: Vec<&str> = dns.split([' ', ',', ';']).filter(|server| !server.is_empty()).collect();
        addressing["nameservers"] = json!({ "addresses": servers });
    }
    let mut card = json!({ "match": { "macaddress": mac.replace('-', ":") } });
    let Some(vlan) = columns.get("vlan") else {
        if let (Some(card), Some(addressing)) = (card.as_object_mut(), addressing.as_object_mut()) {
            card.append(addressing);
        }
        return Ok(json!({ "version": 2, "ethernets": { "lan": card } }));
    };
    let id: u16 =
        vlan.parse().map_err(|_| format!("network_vlan is a number from 1 to 4094, not {vlan:?}"))?;
    addressing["id"] = json!(id);
    addressing["link"] = json!("lan");
    Ok(json!({ "version": 2, "ethernets": { "lan": card }, "vlans": { format!("vlan{id}"): addressing } }))
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

    fn good(rows: Result<Vec<ReadRow>, String>) -> Vec<RosterRow> {
        rows.unwrap().into_iter().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_line_with_too_few_fields_stops_no_other() {
        let rows = of_table("serial,bmc\nA\nB,10.0.0.2\n", &[]).unwrap();
        assert_eq!(rows[0].clone().unwrap_err(), "line 2 has 1 field, the header has 2");
        assert_eq!(rows[1].clone().unwrap()["serial"], "B");
        assert_eq!(read("serial,bmc\nA\nB,10.0.0.2\n").unwrap(), rows);
    }

    #[test]
    fn columns_are_found_by_their_header() {
        let text = "Serial Number,IP,User,label:site,Raum\nA,10.0.0.1,root,north, 7 \nB,10.0.0.2,,,\n";
        assert!(of_table(text, &[]).unwrap_err().contains("the column \"Raum\" is no field"));
        let map = [("label:room".to_owned(), "Raum".to_owned())];
        let rows = good(of_table(text, &map));
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
    fn columns_of_a_network_become_the_network_of_one_card() {
        let header = "sn,mac,network_address,gateway,dns,vlan\n";
        let table = format!(
            "{header}A,52-54-00-00-00-01,192.0.2.7/24,192.0.2.1,192.0.2.2 192.0.2.3,\nB,52:54:00:00:00:02,,,,\n\
             C,52:54:00:00:00:03,192.0.2.9/24,,,70\nD,,,,,\n"
        );
        let rows = good(of_table(&table, &[]));
        let networks: Vec<Option<&Value>> = rows.iter().map(|row| row.get("network")).collect();
        let first = json!({ "version": 2, "ethernets": { "lan": {
            "match": { "macaddress": "52:54:00:00:00:01" }, "addresses": ["192.0.2.7/24"],
            "routes": [{ "to": "default", "via": "192.0.2.1" }],
            "nameservers": { "addresses": ["192.0.2.2", "192.0.2.3"] },
        } } });
        let card = json!({ "match": { "macaddress": "52:54:00:00:00:02" }, "dhcp4": true });
        let second = json!({ "version": 2, "ethernets": { "lan": card } });
        let third = json!({
            "version": 2, "ethernets": { "lan": { "match": { "macaddress": "52:54:00:00:00:03" } } },
            "vlans": { "vlan70": { "addresses": ["192.0.2.9/24"], "id": 70, "link": "lan" } },
        });
        assert_eq!(networks, [Some(&first), Some(&second), Some(&third), None]);
        for (row, said) in
            [("A,,192.0.2.7/24,,,", "network_mac"), ("A,52:54:00:00:00:01,,,,x", "network_vlan")]
        {
            let rows = of_table(&format!("{header}{row}\nB,52:54:00:00:00:02,,,,\n"), &[]).unwrap();
            assert!(rows[1].is_ok(), "a wrong row stops no other");
            let refused = rows[0].clone().unwrap_err();
            assert!(refused.starts_with("line 2: ") && refused.contains(said), "{refused}");
        }
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
            assert_eq!(json!(good(of_json(text))), json!([{ "serial": "A" }]));
        }
        let mixed = of_json("[7, {\"serial\":\"A\"}]").unwrap();
        assert!(mixed[0].is_err() && mixed[1].is_ok());
        assert!(read("[7]").unwrap()[0].is_err());
        for text in ["{}", "7", "["] {
            assert!(of_json(text).is_err(), "{text}");
        }
    }
}
