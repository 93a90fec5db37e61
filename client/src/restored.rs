//! `shoal server restored`, `shoal server release`, `shoal controller restored` and `shoal controller release`: the servers of
//! restored data, and their release.

use clap::ValueEnum;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::output::{Output, join, plain, text};

/// What happens to the unfinished jobs of a released server.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Jobs {
    /// The jobs continue where the data says they were
    Continue,
    /// The jobs end at once, and nothing is sent to the BMC
    End,
}

impl Jobs {
    fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::End => "end",
        }
    }
}

/// Shows the state of one server by the data beside the state that its BMC shows.
pub(super) async fn show(serial: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let found = client.get_slow(&["servers", serial, "restored"], &[]).await?.body;
    if output.json {
        return output.document(&found);
    }
    let part = |pointer: &str| text(&found, pointer);
    let state = match found["restored"].is_null() {
        true => "released: jobs run on it",
        false => "restored: nothing is done to it until it is released",
    };
    output.fields(&[
        ("server", part("/serial")),
        ("state", state.to_owned()),
        ("why", part("/restored/reason")),
        ("the data ends at", part("/restored/as_of")),
        ("BMC", part("/problem")),
    ])?;
    let jobs = found["believed"]["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let job = |job: &Value| {
        let at = |pointer: &str| text(job, pointer);
        let place = join(&[at("/phase"), at("/step")], " at ");
        let done = at("/completed");
        let done = if done.is_empty() { done } else { format!("{done} was done") };
        join(&[at("/job_id"), place, done, at("/waiting")], ", ")
    };
    let believed_jobs = match jobs.is_empty() {
        true => "none unfinished".to_owned(),
        false => jobs.iter().map(job).collect::<Vec<_>>().join("; "),
    };
    let slots = found["observed"]["media"].as_array().map(Vec::as_slice).unwrap_or_default();
    let slot = |slot: &Value| {
        let state = if slot["empty"] == json!(true) { "empty" } else { "in use" };
        format!("{} {state}", text(slot, "/id"))
    };
    let media = slots.iter().map(slot).collect::<Vec<_>>().join(", ");
    let row = |what: &str, believed: String, observed: String| vec![what.to_owned(), believed, observed];
    output.table(
        &["", "BELIEVED", "OBSERVED"],
        &[
            row("time", part("/restored/as_of"), part("/observed/at")),
            row("machine", part("/serial"), part("/observed/serial_check")),
            row("job", believed_jobs, String::new()),
            row("power", part("/believed/observed/power"), part("/observed/power")),
            row("boot", String::new(), part("/observed/boot")),
            row("media", String::new(), media),
        ],
    )
}

/// Releases one server, or one of `many`.
pub(super) async fn release(
    serial: &str,
    jobs: Option<Jobs>,
    many: bool,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let body = jobs.map_or_else(|| json!({}), |jobs| json!({ "jobs": jobs.as_str() }));
    let server = client.post(&["servers", serial, "release"], &body, HeaderMap::new()).await?.body;
    match (output.json, many) {
        (true, true) => output.row(&server),
        (true, false) => output.document(&server),
        (false, _) => output.line(format!("server {} is released; jobs run on it", plain(serial))),
    }
}

/// Lists the servers that are not released.
pub(super) async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let found = client.get(&["restored"], &[]).await?.body;
    if output.json {
        return output.document(&found);
    }
    let servers = found["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    match servers.first() {
        None => output.note("no server is restored: jobs run on all servers"),
        Some(first) => {
            output.note(format!("{}: nothing is done to these servers", text(first, "/restored/reason")))
        }
    }
    output.table(&["SERVER", "DATA ENDS AT", "UNFINISHED JOBS"], &rows(servers))
}

/// Releases all servers.
pub(super) async fn release_all(
    jobs: Option<Jobs>,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let mut body = json!({ "old_controller_is_off": true });
    if let Some(jobs) = jobs {
        body["jobs"] = json!(jobs.as_str());
    }
    let found = client.post(&["restored", "release"], &body, HeaderMap::new()).await?.body;
    let servers = |name: &str| found[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let left = servers("left");
    if output.json {
        output.document(&found)?;
    } else {
        output.line(format!("{} servers released", servers("released").len()))?;
        if !left.is_empty() {
            output.note("these servers have unfinished jobs: give --jobs continue or --jobs end");
            output.table(&["SERVER", "DATA ENDS AT", "UNFINISHED JOBS"], &rows(left))?;
        }
    }
    match left.len() {
        0 => Ok(()),
        left => Err(CliError::Local {
            message: format!("{left} servers have unfinished jobs and were not released"),
            exit: Exit::Conflict,
        }),
    }
}

fn rows(servers: &[Value]) -> Vec<Vec<String>> {
    let row = |server: &Value| {
        let jobs = server["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let jobs = jobs.iter().map(|job| text(job, "")).collect::<Vec<_>>().join(" ");
        vec![text(server, "/serial"), text(server, "/restored/as_of"), jobs]
    };
    servers.iter().map(row).collect()
}
