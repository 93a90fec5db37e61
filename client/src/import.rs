//! `shoal server import`: registers many servers from a table, a JSON document or the answers of BMCs in a range of addresses.
//!
//! ```text
//!  CSV  --header--> fields --+
//!  JSON --rows------> fields +--> rows --preview--> a result per row --(--yes)--> registered, a result per row
//!  range --probes--> serial -+        (the controller checks; nothing is written)
//! ```
//!
//! Invariants: without `--yes` nothing is written; a second run registers nothing twice; a password comes from a file, from standard
//! input, from the environment or from a column of the table, never from an argument, and is in no output.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::addresses;
use super::bmc_password::{PasswordArgs, optional_password_from_variable};
use super::connection::Client;
use super::error::CliError;
use super::filter::label;
use super::input;
use super::output::{Column, Format, Output, counted, join, text};
use super::progress::Progress;
use bmc::probe::BmcProblem;
use bmc::probe::direct::{self, DirectTarget};
use model::{Clock, SystemClock};
use roster::{DividedRows, UnreadRows};

/// The longest file of servers, in bytes: the default request limit of a controller.
const MAX_FILE_BYTES: usize = 8 << 20;
/// The rows of one request.
const MAX_ROWS: usize = 5000;
/// The result of an address of a range at which nothing responded.
const SILENT: &str = "silent";
/// The result of a BMC of a range that could not be read, such as one that refused the password.
const FAILED: &str = "failed";
/// The result of a row without a response: its request failed, or was not sent after one that failed.
const UNKNOWN: &str = "unknown";
/// The maximum of refused and of other rows that are shown as text.
const SHOWN: usize = 200;

/// Arguments of `shoal server import`.
#[derive(Args, Debug)]
pub(super) struct ImportServers {
    /// A table with a header (.csv) or a JSON document (.json): a list of servers, or {"rows": [...]}
    #[arg(value_name = "FILE", conflicts_with = "range")]
    file: Option<PathBuf>,
    /// Probe each address of this range and import the BMCs that respond: 10.0.0.0/24 or 10.0.0.10-10.0.0.20
    #[arg(long, value_name = "RANGE")]
    range: Option<String>,
    /// The port of the BMCs of the range [default: 443, or 80 with --http]
    #[arg(long, value_name = "PORT", requires = "range")]
    port: Option<u16>,
    /// The BMCs of the range speak plain HTTP, as `shoal sim` does: the password is sent readably
    #[arg(long, requires = "range")]
    http: bool,
    /// How many addresses are probed at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    probes: u16,
    /// The column of a field, where its header has another name; may be given more than once
    #[arg(long = "map", value_name = "FIELD=HEADER", value_parser = label)]
    map: Vec<(String, String)>,
    /// A label of every row that has no such label; may be given more than once
    #[arg(long = "label", short = 'l', value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// The user of the BMC of every row without one
    #[arg(long, value_name = "NAME", env = "SHOAL_BMC_USER")]
    bmc_user: Option<String>,
    #[command(flatten)]
    password: PasswordArgs,
    /// Register the servers; without it only a preview is shown
    #[arg(long)]
    yes: bool,
}

impl ImportServers {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let password = match self.password.read()? {
            Some(password) => Some(password),
            None => optional_password_from_variable(),
        };
        let mut without = Vec::new();
        let DividedRows { mut rows, unread } = match (&self.file, &self.range) {
            (Some(file), _) => self.file_rows(file)?.into_iter().collect(),
            (None, Some(range)) => {
                let probed = self.probed_rows(range, password.as_ref(), output).await?;
                without = probed.without;
                DividedRows { rows: probed.rows, unread: UnreadRows::default() }
            }
            (None, None) => return Err(CliError::Usage("give a FILE or --range".to_owned())),
        };
        let user = self.bmc_user.as_deref().map(|user| ("bmc_username", user));
        let secret = password.as_ref().map(|password| ("bmc_password", password.expose_secret()));
        let fields: Vec<(&str, &str)> = user.into_iter().chain(secret).collect();
        let labels = self.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        for row in &mut rows {
            roster::complete(row, &fields, &labels);
        }
        let mut all = Map::new();
        if rows.is_empty() && unread.is_empty() {
            if self.range.is_some() {
                self.show(&with_probes(all, without), output)?;
            }
            return Err(CliError::failed("there is no server to import"));
        }
        let mut ended = Ok(());
        for chunk in rows.chunks(MAX_ROWS) {
            let page = match &ended {
                Ok(()) => self.send(chunk, client).await,
                Err(_) => Ok(without_response(chunk, "the request with this row was not sent")),
            };
            let page = match page {
                Ok(page) => page,
                // Without any result there is nothing to show.
                Err(error) if all.is_empty() && without.is_empty() => return Err(error),
                Err(error) => {
                    ended = Err(error);
                    without_response(chunk, "the request with this row failed")
                }
            };
            add(&mut all, page, chunk);
        }
        all.entry("dry_run").or_insert(json!(!self.yes));
        with_unread(&mut all, unread);
        let all = match self.range {
            Some(_) => with_probes(all, without),
            None => Value::Object(all),
        };
        let shown = self.show(&all, output);
        // The request that failed is why the other rows have no result.
        ended.and(shown)
    }

    /// Sends the rows of one request.
    async fn send(&self, rows: &[Map<String, Value>], client: &Client) -> Result<Value, CliError> {
        let query = [("dry_run", (!self.yes).to_string())];
        let body = json!({ "rows": rows });
        Ok(client.post_query_slow(&["server-imports"], &query, &body, HeaderMap::new()).await?.body)
    }

    /// The rows of a file.
    fn file_rows(&self, path: &Path) -> Result<Vec<roster::ReadRow>, CliError> {
        let failed = |why: String| CliError::failed(format!("{}: {why}", path.display()));
        let bytes = input::read(path, MAX_FILE_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|_| failed("the file is not UTF-8 text".to_owned()))?;
        let is_json = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
            || roster::is_json(&text);
        if is_json { roster::of_json(&text) } else { roster::of_table(&text, &self.map) }.map_err(failed)
    }

    /// Probes every address of a range, a bounded number at a time.
    async fn probed_rows(
        &self,
        text: &str,
        password: Option<&SecretString>,
        output: &mut Output<'_>,
    ) -> Result<Probed, CliError> {
        let addresses = addresses::range(text).map_err(CliError::Usage)?;
        let user = self.bmc_user.as_ref().zip(password).ok_or_else(|| {
            CliError::Usage(
                "a probe needs the user and the password of the BMCs; give --bmc-user, and --bmc-password-file, \
                 --bmc-password-stdin or SHOAL_BMC_PASSWORD"
                    .to_owned(),
            )
        })?;
        let addressed = counted(addresses.len() as u64, "address", "addresses");
        output.note(format!("probing {addressed}, {} at a time", self.probes));
        let probe = async |address: std::net::Ipv4Addr| {
            let target = DirectTarget {
                address: self.bmc_address(address),
                username: user.0.clone(),
                password: user.1.clone(),
                fingerprint: None,
                insecure: false,
                serial: None,
            };
            let probed = direct::probe(&target, false, SystemClock.now()).await;
            Ok(match probed {
                Ok(probed) => row_of_card(&target.address, &probed.card).ok_or_else(|| {
                    let why = "the BMC shows no serial number; register it by hand";
                    without_row(&target.address, FAILED, why)
                }),
                Err(problem) => Err(row_of_problem(&target.address, &problem)),
            })
        };
        let probes = addresses.into_iter().map(probe);
        let at_once = usize::from(self.probes);
        let results = Progress::of_things("probing").each(probes, at_once, output.err).await?;
        let mut found = Probed::default();
        for result in results {
            match result {
                Ok(row) => found.rows.push(row),
                Err(row) => found.without.push(row),
            }
        }
        Ok(found)
    }

    /// The address of a BMC of the range.
    fn bmc_address(&self, address: std::net::Ipv4Addr) -> String {
        let scheme = if self.http { "http" } else { "https" };
        let port = self.port.map_or_else(String::new, |port| format!(":{port}"));
        format!("{scheme}://{address}{port}")
    }

    fn show(&self, all: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
        let refused = all["refused"].as_u64().unwrap_or(0);
        let count = |result: &str| all[result].as_u64().unwrap_or(0);
        let (silent, failed, unknown) = (count(SILENT), count(FAILED), count(UNKNOWN));
        if output.format == Format::Name {
            let wrong = ["refused", FAILED, SILENT, UNKNOWN];
            let rows = all["rows"].as_array().into_iter().flatten();
            let named = rows.filter(|row| !wrong.contains(&row["result"].as_str().unwrap_or_default()));
            output.document(&named.cloned().collect())?;
        } else if output.json {
            output.document(all)?;
        } else {
            let rows: Vec<&Value> = all["rows"].as_array().into_iter().flatten().collect();
            let is_wrong = |row: &&&Value| row["result"] == "refused" || row["result"] == FAILED;
            let is_shown = |row: &&&Value| match row["result"].as_str() {
                // Their number is a line.
                Some(UNKNOWN) => false,
                Some(SILENT) => true,
                _ => !self.yes,
            };
            let refused_rows = rows.iter().filter(is_wrong).take(SHOWN);
            let others = rows.iter().filter(|row| !is_wrong(row)).filter(is_shown).take(SHOWN);
            let shown: Vec<Vec<String>> = refused_rows.chain(others).map(|row| cells(row)).collect();
            let hidden = rows.len() - shown.len();
            // After --yes only rows with a problem are shown; without one the sum says all.
            if !shown.is_empty() {
                const COLUMNS: [Column<'_>; 5] = [
                    Column::new("ROW", 1),
                    Column::new("SERIAL", 0),
                    Column::new("BMC", 4),
                    Column::new("RESULT", 2),
                    Column::new("WHY", 3),
                ];
                output.columns(&COLUMNS, &shown)?;
            }
            if hidden > 0 && !shown.is_empty() {
                let more = counted(hidden as u64, "more row is", "more rows are");
                output.note(format!("{more} not shown; --json shows all"));
            }
            let (created, exists) = (text(all, "/created"), text(all, "/exists"));
            match self.yes {
                true => output.line(format!(
                    "{created} registered, {exists} were registered before, {refused} refused"
                ))?,
                false => {
                    output.line(format!(
                        "{created} to register, {exists} are registered, {refused} would be refused"
                    ))?;
                    output.note("nothing was changed; --yes registers them");
                }
            }
            if unknown > 0 {
                let rows = counted(unknown, "row has", "rows have");
                output.note(format!(
                    "{rows} no result, because a request failed; run the import again: a server that is registered is not registered twice"
                ));
            }
            if silent + failed > 0 {
                let silent = counted(silent, "address", "addresses");
                let failed = counted(failed, "BMC", "BMCs");
                output.line(format!("{silent} did not respond, {failed} could not be read"))?;
            }
        }
        match (refused, failed) {
            (0, 0) => Ok(()),
            (0, _) => Err(CliError::failed(format!(
                "{} of the range could not be read; the column WHY says why and what to do",
                counted(failed, "BMC", "BMCs")
            ))),
            _ => Err(CliError::failed(format!(
                "{} refused; correct what the column WHY names and run the import again",
                counted(refused, "row was", "rows were")
            ))),
        }
    }
}

/// Puts the rows of the file that cannot be read into the results, each at its place, and numbers all again.
fn with_unread(all: &mut Map<String, Value>, unread: UnreadRows) {
    if unread.is_empty() {
        return;
    }
    let refused = all.get("refused").and_then(Value::as_u64).unwrap_or(0) + unread.len() as u64;
    all.insert("refused".to_owned(), json!(refused));
    for result in ["created", "exists"] {
        all.entry(result).or_insert(json!(0));
    }
    let Value::Array(rows) = all.entry("rows").or_insert_with(|| json!([])) else { return };
    unread.merge(rows, |why| {
        let error = json!({ "error": "unreadable_row", "message": why });
        json!({ "serial": null, "bmc_address": null, "result": "refused", "error": error })
    });
    for (index, row) in rows.iter_mut().enumerate() {
        row["index"] = json!(index);
        row["row"] = json!(index + 1);
    }
}

/// The cells of a row of the result.
fn cells(row: &Value) -> Vec<String> {
    let details = row.pointer("/error/details").and_then(Value::as_array);
    let details: Vec<String> = details
        .into_iter()
        .flatten()
        .map(|detail| join(&[text(detail, "/field"), text(detail, "/message")], ": "))
        .collect();
    let why = if details.is_empty() { text(row, "/error/message") } else { details.join("; ") };
    vec![text(row, "/row"), text(row, "/serial"), text(row, "/bmc_address"), text(row, "/result"), why]
}

/// The results of rows without a response.
fn without_response(rows: &[Map<String, Value>], why: &str) -> Value {
    let result = |(index, row): (usize, &Map<String, Value>)| {
        let error = json!({ "error": UNKNOWN, "message": why });
        json!({ "index": index, "serial": row.get("serial"), "result": UNKNOWN, "error": error })
    };
    json!({ UNKNOWN: rows.len(), "rows": rows.iter().enumerate().map(result).collect::<Vec<Value>>() })
}

/// Adds the results of one request to those of all, with the number and the address of each row.
fn add(all: &mut Map<String, Value>, page: Value, chunk: &[Map<String, Value>]) {
    let Value::Object(mut page) = page else { return };
    let before = all.get("rows").and_then(Value::as_array).map_or(0, Vec::len);
    let mut rows = match page.remove("rows") {
        Some(Value::Array(rows)) => rows,
        _ => Vec::new(),
    };
    for (index, row) in rows.iter_mut().enumerate() {
        row["row"] = json!(before + index + 1);
        row["bmc_address"] =
            chunk.get(index).and_then(|sent| sent.get("bmc_address")).cloned().unwrap_or(Value::Null);
    }
    for (key, value) in page {
        let sum = value.as_u64().map(|more| all.get(&key).and_then(Value::as_u64).unwrap_or(0) + more);
        all.insert(key, sum.map_or(value, Value::from));
    }
    match all.get_mut("rows") {
        Some(Value::Array(earlier)) => earlier.extend(rows),
        _ => drop(all.insert("rows".to_owned(), Value::Array(rows))),
    }
}

/// The results of the probes of a range.
#[derive(Default)]
struct Probed {
    /// The BMCs that responded with a serial number.
    rows: Vec<Map<String, Value>>,
    /// The results of the other addresses.
    without: Vec<Value>,
}

/// The result of an address that has no row.
fn without_row(address: &str, result: &str, why: &str) -> Value {
    json!({ "bmc_address": address, "result": result, "error": { "message": why } })
}

/// The result of an address whose probe failed.
fn row_of_problem(address: &str, problem: &BmcProblem) -> Value {
    let BmcProblem { code, sentence, next_action } = problem;
    match &**code {
        "unreachable" | "timeout" => without_row(address, SILENT, "no BMC responded at this address"),
        "unauthorized" => {
            let next = "give the login of this BMC: --bmc-user and SHOAL_BMC_PASSWORD";
            without_row(address, FAILED, &format!("{sentence}; {next}"))
        }
        _ => without_row(address, FAILED, &format!("{sentence}; {next_action}")),
    }
}

/// The results of an import with those of the addresses that have no row.
fn with_probes(mut all: Map<String, Value>, without: Vec<Value>) -> Value {
    for result in [SILENT, FAILED] {
        let count = without.iter().filter(|row| row["result"] == result).count();
        all.insert(result.to_owned(), json!(count));
    }
    for result in ["created", "exists", "refused"] {
        all.entry(result).or_insert(json!(0));
    }
    match all.get_mut("rows") {
        Some(Value::Array(rows)) => rows.extend(without),
        _ => drop(all.insert("rows".to_owned(), Value::Array(without))),
    }
    Value::Object(all)
}

/// The row of a BMC that responded to a probe; `None` when it shows no serial number.
fn row_of_card(address: &str, card: &Value) -> Option<Map<String, Value>> {
    let serial = card.pointer("/host/serial").and_then(Value::as_str).filter(|serial| !serial.is_empty())?;
    let mut row = Map::new();
    row.insert("serial".to_owned(), json!(serial));
    row.insert("bmc_address".to_owned(), json!(address));
    let vendor = card.pointer("/identity/manufacturer").or_else(|| card.pointer("/identity/vendor"));
    if let Some(vendor) = vendor.and_then(Value::as_str).filter(|vendor| !vendor.is_empty()) {
        row.insert("vendor".to_owned(), json!(vendor));
    }
    let fingerprint = card.pointer("/tls/fingerprint").and_then(Value::as_str);
    if let Some(fingerprint) = fingerprint {
        // The certificate that the probe met is the one that jobs accept.
        row.insert("tls".to_owned(), json!("pinned"));
        row.insert("tls_fingerprint".to_owned(), json!(fingerprint));
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_a_refused_row_at_its_place() {
        let good = |serial: &str| Ok(json!({ "serial": serial }).as_object().unwrap().clone());
        let all = [good("A"), Err("line 3 has 1 field".to_owned()), good("B"), Err("x".to_owned())];
        let DividedRows { rows: read, unread } = all.into_iter().collect();
        let mut all = Map::new();
        let page = json!({ "created": 2, "refused": 0, "rows": [{ "serial": "A" }, { "serial": "B" }] });
        add(&mut all, page, &read);
        with_unread(&mut all, unread);
        let rows: Vec<(&Value, &Value)> =
            all["rows"].as_array().unwrap().iter().map(|row| (&row["row"], &row["serial"])).collect();
        let (a, b) = (json!("A"), json!("B"));
        let numbers: Vec<Value> = (1..=4).map(|number| json!(number)).collect();
        assert_eq!(
            rows,
            [(&numbers[0], &a), (&numbers[1], &Value::Null), (&numbers[2], &b), (&numbers[3], &Value::Null)]
        );
        assert_eq!((&all["refused"], &all["created"]), (&json!(2), &json!(2)));
        assert_eq!(cells(&all["rows"][1])[4], "line 3 has 1 field");
    }

    #[test]
    fn addresses_without_a_row_are_rows_of_the_result() {
        let without = vec![
            without_row("10.0.0.1", SILENT, "no BMC responded at this address"),
            without_row("10.0.0.2", FAILED, "the password was refused"),
        ];
        let all = with_probes(Map::new(), without);
        assert_eq!((&all["silent"], &all["failed"], &all["created"]), (&json!(1), &json!(1), &json!(0)));
        assert_eq!(cells(&all["rows"][1])[2..], ["10.0.0.2", "failed", "the password was refused"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_that_takes_longer_than_two_seconds_shows_how_many_addresses_were_probed() {
        // The system accepts the connection; nothing responds until the probe gives up, on virtual time.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port().to_string();
        let words =
            ["import", "--range", "127.0.0.1-127.0.0.1", "--http", "--port", &port, "--bmc-user", "admin"];
        let matches = ImportServers::augment_args(clap::Command::new("import")).get_matches_from(words);
        let import = ImportServers::from_arg_matches(&matches).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err, Format::Text);
        let password = SecretString::from("canary");
        let probed = import.probed_rows("127.0.0.1-127.0.0.1", Some(&password), &mut output).await.unwrap();
        assert_eq!((probed.rows.len(), probed.without.len()), (0, 1));
        let said = String::from_utf8(err).unwrap();
        assert!(said.contains("probing: 0 of 1 (0 %)"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_many_rows_has_the_time_of_a_slow_one() {
        // The system accepts the connection; nothing responds, on virtual time.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = crate::test_kit::client(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("servers.csv");
        std::fs::write(&file, "serial\nXF-1\n").unwrap();
        let matches = ImportServers::augment_args(clap::Command::new("import"))
            .get_matches_from(["import", file.to_str().unwrap()]);
        let import = ImportServers::from_arg_matches(&matches).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err, Format::Text);
        let began = tokio::time::Instant::now();
        let error = import.run(&client, &mut output).await.unwrap_err();
        assert!(matches!(error, CliError::Unreachable { .. }), "{error}");
        assert!(began.elapsed() > std::time::Duration::from_secs(100), "{:?}", began.elapsed());
    }

    #[test]
    fn a_probed_bmc_becomes_a_row_with_the_certificate_it_showed() {
        let card = json!({
            "host": { "serial": "S-1" }, "identity": { "manufacturer": "Dell Inc." }, "tls": { "fingerprint": "ab" },
        });
        assert_eq!(
            json!(row_of_card("10.0.0.1", &card)),
            json!({ "serial": "S-1", "bmc_address": "10.0.0.1", "vendor": "Dell Inc.", "tls": "pinned", "tls_fingerprint": "ab" })
        );
        assert_eq!(row_of_card("10.0.0.1", &json!({ "host": { "serial": null } })), None);
    }
}
