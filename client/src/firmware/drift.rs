//! `shoal firmware drift`: which servers do not have the firmware of their set, by their stored inventories.
//!
//! ```text
//!   item of the plan                                       the component
//!   skip                                                   has what the set wants, or the set wants nothing of it
//!   install, refuse with two versions                      differs
//!   refuse without an installed version or without a file  unknown
//!   unknown: a part of the inventory is unread             unknown
//!
//!   server   differs  one component differs        unknown  no inventory, no set, several sets, an unknown component
//! ```
//!
//! Invariants: each server is a dry run of an installation; nothing is changed, and no BMC is asked; of many servers a refusal of one is its
//! row.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::condition::preview;
use super::super::connection::Client;
use super::super::error::CliError;
use super::super::exit::Exit;
use super::super::filter::FilterOptions;
use super::super::many;
use super::super::output::{Output, join, text};
use super::super::progress::Progress;
use super::install::SetArgs;
use model::Subject;

/// The number of servers that are planned at the same time.
const AT_ONCE: usize = 8;

/// Arguments of `shoal firmware drift`.
#[derive(Args, Debug)]
pub(crate) struct Drift {
    /// The serial number of the server; without it, the servers of a filter, or all
    #[arg(conflicts_with_all = ["filter", "state", "serial_glob"])]
    serial: Option<String>,
    /// The servers for which this holds: KEY:VALUE (such as state:free), LABEL=VALUE, LABEL!=VALUE, or a text; may be
    /// repeated
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    filter: Vec<String>,
    /// The servers in this state: free, busy, maintenance, restored, pending-cleanup or unseen
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// The servers with this serial number; * stands for any characters, ? for one
    #[arg(long, value_name = "GLOB")]
    serial_glob: Option<String>,
    #[command(flatten)]
    set: SetArgs,
}

/// Whether a server has the firmware of its set.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Current,
    Unknown,
    Differs,
}

/// A component that differs or is unknown.
#[derive(Debug, Serialize)]
struct Difference {
    component: String,
    id: Value,
    now: Value,
    then: Value,
    verdict: Verdict,
    reason: String,
}

/// One server.
#[derive(Debug, Serialize)]
struct Row {
    serial: String,
    state: Verdict,
    /// The set; null when none was found.
    firmware_set: Value,
    /// When the BMC was read.
    inventory_read_at: Value,
    components: Vec<Difference>,
    /// The reason why the server is unknown as a whole.
    reason: Value,
}

impl Drift {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Self { serial, filter, state, serial_glob, set } = self;
        let filter = FilterOptions::of_servers(state, serial_glob).text_with(Subject::Servers, &filter)?;
        let serials = match serial {
            Some(serial) => vec![serial],
            None if filter.is_empty() => many::all_serials(client).await?,
            None => many::some_serials(&filter, client).await?,
        };
        let body = json!({ "kind": "firmwareInstall", "parameters": set.parameters() });
        show(&rows(serials, &body, client, output.err).await?, output)
    }
}

/// The rows of the servers, in their order. `body` is the order of an installation.
async fn rows(
    serials: Vec<String>,
    body: &Value,
    client: &Client,
    err: &mut dyn Write,
) -> Result<Vec<Row>, CliError> {
    let many = serials.len() > 1;
    let requests = serials.into_iter().map(async |serial| match preview(&serial, body, client).await {
        Ok(preview) => Ok(Row::of(serial, &preview)),
        Err(error) => Row::without_plan(serial, many, error),
    });
    Progress::of_things("planning").each(requests, AT_ONCE, err).await
}

impl Row {
    /// The row of a server with a preview.
    fn of(serial: String, preview: &Value) -> Self {
        let plan = preview["plan"].as_array();
        let components: Vec<Difference> = plan.into_iter().flatten().filter_map(Difference::of).collect();
        let worst = components.iter().map(|one| one.verdict).max();
        Self {
            serial,
            state: if plan.is_none() { Verdict::Unknown } else { worst.unwrap_or(Verdict::Current) },
            firmware_set: preview["parameters"]["firmware_set"].clone(),
            inventory_read_at: preview["inventory_read_at"].clone(),
            components,
            reason: preview["plan_missing"].clone(),
        }
    }

    /// The row of a server for which no set was found, or which is one of many and was refused. A refusal of all of them, such as of
    /// the login or of the set, ends the command.
    fn without_plan(serial: String, many: bool, error: CliError) -> Result<Self, CliError> {
        let CliError::Refused { status, body } = &error else { return Err(error) };
        let message = match body["error"].as_str() {
            Some("firmware.no_set" | "firmware.several_sets") => body["message"].clone(),
            // Without vendor and model no set can be chosen.
            Some("validation_error") if body["details"][0]["path"] == "/parameters/firmware_set" => {
                body["details"][0]["message"].clone()
            }
            Some("unknown_firmware_set") => return Err(error),
            _ if !many || matches!(status, 401 | 403) => return Err(error),
            // The text of the error has the id of the request below it, which a cell does not show.
            _ if body["message"].is_string() => body["message"].clone(),
            _ => json!(error.to_string()),
        };
        Ok(Self {
            serial,
            state: Verdict::Unknown,
            firmware_set: Value::Null,
            inventory_read_at: Value::Null,
            components: Vec::new(),
            reason: message,
        })
    }

    /// The text of a cell of the table.
    fn words(&self) -> String {
        let components: Vec<String> = self.components.iter().map(Difference::words).collect();
        join(&[join(&components, "; "), text(&self.reason, "")], "; ")
    }
}

impl Difference {
    /// The difference of an item of a plan; `None` when there is none.
    fn of(item: &Value) -> Option<Self> {
        let verdict = match item["decision"].as_str() {
            Some("skip") => return None,
            _ if item["now"].is_string() && item["then"].is_string() => Verdict::Differs,
            _ => Verdict::Unknown,
        };
        Some(Self {
            component: text(item, "/component"),
            id: item["id"].clone(),
            now: item["now"].clone(),
            then: item["then"].clone(),
            verdict,
            reason: text(item, "/reason"),
        })
    }

    fn words(&self) -> String {
        match self.verdict {
            Verdict::Differs => {
                format!("{} {} → {}", self.component, text(&self.now, ""), text(&self.then, ""))
            }
            _ => format!("{}: {}", self.component, self.reason),
        }
    }
}

/// How many servers there are of each verdict.
fn totals(rows: &[Row]) -> BTreeMap<Verdict, usize> {
    let mut totals =
        BTreeMap::from([Verdict::Current, Verdict::Differs, Verdict::Unknown].map(|one| (one, 0)));
    for row in rows {
        *totals.entry(row.state).or_default() += 1;
    }
    totals
}

/// Shows the servers and the total, and fails if one differs or is unknown.
fn show(rows: &[Row], output: &mut Output<'_>) -> Result<(), CliError> {
    let totals = totals(rows);
    let of = |verdict| totals.get(&verdict).copied().unwrap_or(0);
    let (current, differs, unknown) = (of(Verdict::Current), of(Verdict::Differs), of(Verdict::Unknown));
    if output.json {
        let total =
            json!({ "servers": rows.len(), "current": current, "differs": differs, "unknown": unknown });
        output.list_document(&json!({ "servers": rows, "total": total }), "servers")?;
    } else {
        let cells = rows.iter().map(|row| {
            let shown = json!(row);
            vec![
                text(&shown, "/serial"),
                text(&shown, "/state"),
                text(&shown, "/firmware_set"),
                text(&shown, "/inventory_read_at"),
                row.words(),
            ]
        });
        output.table(&["SERVER", "STATE", "SET", "INVENTORY", "DIFFERENCES"], &cells.collect::<Vec<_>>())?;
        output.line(format!(
            "{} servers: {current} current, {differs} differ, {unknown} unknown",
            rows.len()
        ))?;
    }
    if differs + unknown == 0 {
        return Ok(());
    }
    let message = match differs {
        0 => format!("it is not known of {unknown} servers whether they have the firmware of their sets"),
        _ => {
            format!("{differs} servers do not have the firmware of their sets; of {unknown} it is not known")
        }
    };
    Err(CliError::Local { message, exit: Exit::Differs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(decision: &str, now: Option<&str>, then: Option<&str>) -> Value {
        json!({ "component": "bios", "id": "BIOS", "now": now, "then": then, "decision": decision, "reason": "why" })
    }

    fn state(plan: Value) -> Verdict {
        Row::of("XF-1".to_owned(), &json!({ "plan": plan })).state
    }

    #[tokio::test(start_paused = true)]
    async fn drift_that_takes_longer_than_two_seconds_shows_how_many_servers_were_planned() {
        // The system accepts the connection; the requests pass their time limit, on virtual time.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = crate::test_kit::client(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
        let mut err = Vec::new();
        let serials = ["XF-1", "XF-2"].map(str::to_owned).to_vec();
        let error = rows(serials, &json!({}), &client, &mut err).await.unwrap_err();
        assert!(matches!(error, CliError::Unreachable { .. }), "{error}");
        let said = String::from_utf8(err).unwrap();
        assert!(said.contains("planning: 0 of 2 (0 %)"), "{said}");
    }

    #[test]
    fn a_server_differs_when_one_component_does_and_is_unknown_without_a_version_or_a_file() {
        let current = item("skip", Some("1"), Some("1"));
        let older = item("install", Some("1"), Some("2"));
        let newer = item("refuse", Some("3"), Some("2"));
        let no_version = item("refuse", None, Some("2"));
        let no_file = item("refuse", Some("1"), None);
        for (plan, verdict) in [
            (json!([]), Verdict::Current),
            (json!([current]), Verdict::Current),
            (json!([current, older]), Verdict::Differs),
            (json!([newer]), Verdict::Differs),
            (json!([no_version]), Verdict::Unknown),
            (json!([no_file, current]), Verdict::Unknown),
            (json!([no_file, older]), Verdict::Differs),
            (json!([current, item("unknown", None, None)]), Verdict::Unknown),
            (Value::Null, Verdict::Unknown),
        ] {
            assert_eq!(state(plan.clone()), verdict, "{plan}");
        }
    }
}
