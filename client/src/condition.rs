//! `shoal server power-cycle`, `reset-bmc`, `bios set`, `inventory --refresh` and `conditions`: actions requested for a server, or for each
//! of a filter ([`super::targets`]).
//!
//! ```text
//!   POST condition ── --dry-run ──> preview
//!        │
//!        ├── id of the condition, which is a job: `shoal job watch`, `explain`, `cancel`
//!        └── --watch ──> events until its end; the exit code is 0 only if it succeeded
//! ```

use std::cell::{OnceCell, RefCell};

use clap::Args;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::job::watch_to_the_end;
use super::output::{Column, Format, Output, counted, join, plain, text};
use super::plan_view;
use super::repeat::RepeatKey;
use super::targets::{Change, Targets};
use super::watch::PollInterval;

/// What every request for a condition has.
#[derive(Args, Debug)]
pub(super) struct RequestArgs {
    /// Show what would be done; nothing is written and nothing is changed on the BMC. Ends as the request would: 1 if a part is refused, 4 if
    /// the request is
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Follow the condition until its end
    #[arg(long, visible_alias = "wait")]
    watch: bool,
    /// Wait behind an open condition of another kind instead of being refused
    #[arg(long)]
    queue: bool,
    /// The priority, from -100 to 100; of those that wait for the server, a greater one gets it first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The deadline as RFC 3339; a condition that has not ended by then fails [default: four hours; twelve for firmware and BIOS, from the end of the maintenance window on; a week more with --no-restart]
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// At most N of such conditions run at once on servers with the same value of the label --per; the others wait
    #[arg(long, value_name = "N", requires = "per", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_parallel: Option<u32>,
    /// The label for --max-parallel, such as rack
    #[arg(long, value_name = "LABEL", requires = "max_parallel")]
    per: Option<String>,
    /// Request it only if the newest condition of this kind has this revision, 0 for none; otherwise end with 4
    #[arg(long, value_name = "N")]
    if_revision: Option<u64>,
    /// A repetition with the same key creates no second condition
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The key of the command: of each server, because the controller keeps keys by server.
    #[arg(skip)]
    key: OnceCell<RepeatKey>,
}

/// Whether a condition may restart the host.
#[derive(Args, Debug)]
pub(super) struct RestartArgs {
    /// Do not restart the host; wait until an operator has restarted it
    #[arg(long, conflicts_with_all = ["restart_from", "restart_until"])]
    no_restart: bool,
    /// Do not restart the host before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    restart_from: Option<String>,
    /// Do not restart the host after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    restart_until: Option<String>,
}

impl RestartArgs {
    /// Adds the parameters to those of a condition.
    pub(super) fn add_to(self, parameters: &mut Value) {
        if self.no_restart {
            parameters["restart"] = json!("forbidden");
        }
        for (name, time) in [("restart_from", self.restart_from), ("restart_until", self.restart_until)] {
            if let Some(time) = time {
                parameters[name] = json!(time);
            }
        }
    }
}

/// Arguments of `shoal server power-cycle`.
#[derive(Args, Debug)]
pub(super) struct PowerCycle {
    #[command(flatten)]
    targets: Targets,
    /// Force the host off at once, without a shutdown of its operating system
    #[arg(long, conflicts_with_all = ["force", "grace"])]
    hard: bool,
    /// Force the host off if its operating system does not shut down in time; otherwise the condition fails
    #[arg(long)]
    force: bool,
    /// The seconds that the operating system gets to shut down [default: 120]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
    /// Also power on a host that is off; otherwise it stays off
    #[arg(long)]
    power_on: bool,
    #[command(flatten)]
    request: RequestArgs,
}

/// Arguments of `shoal server reset-bmc`.
#[derive(Args, Debug)]
pub(super) struct ResetBmc {
    #[command(flatten)]
    targets: Targets,
    /// Restart the BMC at once, without the end of its own work
    #[arg(long)]
    forced: bool,
    #[command(flatten)]
    request: RequestArgs,
}

/// Arguments of `shoal server inventory`.
#[derive(Args, Debug)]
pub(super) struct Inventory {
    #[command(flatten)]
    targets: Targets,
    /// Read the hardware from the BMC first; with --watch or --dry-run, as for other conditions
    #[arg(long)]
    refresh: bool,
    #[command(flatten)]
    request: RequestArgs,
}

impl PowerCycle {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Self { targets, hard, force, grace, power_on, request } = self;
        let (kind, parameters) = match hard {
            true => ("powerCycleHard", json!({ "power_on": power_on })),
            false => {
                let mut parameters = json!({ "power_on": power_on, "force": force });
                if let Some(grace) = grace {
                    parameters["grace_seconds"] = json!(grace);
                }
                ("powerCycleSoft", parameters)
            }
        };
        request.send_to(&targets, "power cycle", (kind, parameters), client, output).await
    }
}

impl ResetBmc {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let how = if self.forced { "forced" } else { "graceful" };
        let what = ("bmcReset", json!({ "type": how }));
        self.request.send_to(&self.targets, "restart of the BMC", what, client, output).await
    }
}

impl Inventory {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        if self.refresh {
            let what = ("inventoryOOB", json!({}));
            return self.request.send_to(&self.targets, "inventory", what, client, output).await;
        }
        if self.request.is_given() {
            return Err(CliError::Usage(
                "these options need --refresh: without it nothing is requested".to_owned(),
            ));
        }
        let show = async |serial: &str, output: &mut Output<'_>| {
            super::inventory::show(serial, client, output).await
        };
        self.targets.each("inventory", Change::Reads, client, output, show).await
    }
}

impl RequestArgs {
    fn is_given(&self) -> bool {
        self.dry_run
            || self.watch
            || self.queue
            || self.priority.is_some()
            || self.deadline.is_some()
            || self.max_parallel.is_some()
            || self.if_revision.is_some()
            || self.idempotency_key.is_some()
    }

    /// Requests a condition of the servers of a command, or previews it.
    pub(super) async fn send_to(
        &self,
        targets: &Targets,
        verb: &str,
        (kind, parameters): (&str, Value),
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let change = self.change(targets.are_filtered())?;
        let send = async |serial: &str, output: &mut Output<'_>| {
            self.send(serial, kind, (&parameters, targets.are_filtered()), client, output).await
        };
        targets.each(verb, change, client, output, send).await
    }

    /// Whether the request changes something. Refuses options that belong to one server.
    pub(super) fn change(&self, many: bool) -> Result<Change, CliError> {
        if many && (self.watch || self.if_revision.is_some()) {
            return Err(CliError::Usage(
                "--watch and --if-revision belong to one server; `shoal job list --watch` follows many"
                    .to_owned(),
            ));
        }
        Ok(if self.dry_run { Change::Reads } else { Change::Changes })
    }

    /// The key of the command, made at the first server.
    fn key(&self) -> Result<RepeatKey, CliError> {
        match self.key.get() {
            Some(key) => Ok(key.clone()),
            None => {
                let made = RepeatKey::one(self.idempotency_key.as_deref())?;
                Ok(self.key.get_or_init(|| made).clone())
            }
        }
    }

    /// Requests a condition of one server, or previews it; `many` says that it is one of several.
    pub(super) async fn send(
        &self,
        serial: &str,
        kind: &str,
        (parameters, many): (&Value, bool),
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let path = ["servers", serial, "condition"];
        let mut body = json!({ "kind": kind, "parameters": parameters, "queue": self.queue });
        for (name, value) in [
            ("priority", self.priority.map(|priority| json!(priority))),
            ("deadline", self.deadline.as_ref().map(|deadline| json!(deadline))),
            ("max_parallel", self.max_parallel.map(|most| json!(most))),
            ("per", self.per.as_ref().map(|label| json!(label))),
            ("revision", self.if_revision.map(|revision| json!(revision))),
        ] {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        if self.dry_run {
            let headers = RepeatKey::of_preview(self.idempotency_key.as_deref())?;
            let preview = preview_with(serial, &body, headers, client).await?;
            match (output.json, many) {
                (true, true) => output.row(&preview)?,
                (true, false) => output.document(&preview)?,
                (false, _) => show_preview(&preview, output)?,
            }
            plan_view::would_be_accepted(&preview, "/refused")?;
            return would_succeed(&preview);
        }
        let condition = self.key()?.post(client, &path, &body, output).await?.body;
        let Some(id) = condition["id"].as_str() else {
            return Err(client.unexpected_response(&path, "id is missing"));
        };
        if output.json {
            output.row(&condition)?;
        } else {
            output.line(format!(
                "{kind} of server {} is {}: job {}",
                plain(serial),
                text(&condition, "/state"),
                plain(id)
            ))?;
            output.note(text(&condition, "/status/message"));
        }
        if self.watch { watch_to_the_end(client, id, PollInterval::default(), output).await } else { Ok(()) }
    }
}

/// Shows the newest condition of every kind of one server, or of each of many.
pub(super) async fn list(
    targets: &Targets,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let many = targets.are_filtered();
    let rows: RefCell<Vec<Vec<String>>> = RefCell::default();
    let read = async |serial: &str, output: &mut Output<'_>| {
        let found = client.get(&["servers", serial, "conditions"], &[]).await?.body;
        let conditions = || found["conditions"].as_array().into_iter().flatten();
        match (output.format, many) {
            // Each also names its server.
            (Format::Name, _) => {
                return output.document(&conditions().map(|condition| condition["id"].clone()).collect());
            }
            (_, true) if output.json => return output.row(&found),
            (_, false) if output.json => return output.document(&found),
            _ => {}
        }
        let columns =
            ["/kind", "/state", "/revision", "/controller", "/updated_at", "/id", "/status/message"];
        let cells = conditions().map(|condition| {
            let server = many.then(|| plain(serial));
            server.into_iter().chain(columns.map(|pointer| text(condition, pointer))).collect()
        });
        rows.borrow_mut().extend(cells);
        Ok(())
    };
    let read = targets.each("conditions", Change::Reads, client, output, read).await;
    let rows = rows.into_inner();
    if !output.json && (read.is_ok() || !rows.is_empty()) {
        const COLUMNS: [Column<'_>; 8] = [
            Column::new("SERVER", 0),
            Column::new("KIND", 0),
            Column::new("STATE", 1),
            Column::new("REVISION", 5),
            Column::new("CONTROLLER", 6),
            Column::new("CHANGED", 4),
            Column::new("JOB", 3),
            Column::new("STATUS", 2),
        ];
        output.columns(&COLUMNS[usize::from(!many)..], &rows)?;
    }
    read
}

/// The preview of a condition of one server.
pub(super) async fn preview(serial: &str, body: &Value, client: &Client) -> Result<Value, CliError> {
    preview_with(serial, body, HeaderMap::new(), client).await
}

async fn preview_with(
    serial: &str,
    body: &Value,
    headers: HeaderMap,
    client: &Client,
) -> Result<Value, CliError> {
    let query = [("dry_run", "true".to_owned())];
    Ok(client.post_query_slow(&["servers", serial, "condition"], &query, body, headers).await?.body)
}

/// Fails if a preview refuses a component of the firmware or a setting: the condition would change nothing then, and fail.
pub(super) fn would_succeed(preview: &Value) -> Result<(), CliError> {
    match refused_items(preview) {
        Some(refused) => Err(CliError::failed(format!("would fail: {refused}"))),
        None => Ok(()),
    }
}

/// The number of components or settings of a preview that are refused, in words; `None` if none is.
fn refused_items(preview: &Value) -> Option<String> {
    let items = |key: &str| preview[key].as_array().map(Vec::as_slice).unwrap_or_default();
    ["plan", "settings"].into_iter().find_map(|key| {
        let refused = items(key).iter().filter(|item| item["decision"] == "refuse").count();
        let what = if key == "plan" { ("component", "components") } else { ("setting", "settings") };
        let are = if refused == 1 { "is" } else { "are" };
        let all = counted(items(key).len() as u64, what.0, what.1);
        (refused > 0).then(|| format!("{refused} of {all} {are} refused"))
    })
}

fn show_preview(preview: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let would = match refused_items(preview) {
        Some(refused) => format!("fail: {refused}"),
        None => text(preview, "/would"),
    };
    // The files of a set are in the plan, by component.
    let mut parameters = preview["parameters"].clone();
    if let Some(parameters) = parameters.as_object_mut() {
        parameters.remove("files");
    }
    let list = |pointer: &str| {
        let list = preview.pointer(pointer).and_then(Value::as_array);
        let words: Vec<String> = list.into_iter().flatten().map(|word| text(word, "")).collect();
        join(&words, ", ")
    };
    output.fields(&[
        ("would", would),
        ("refused", text(preview, "/refused")),
        ("server", text(preview, "/server_serial")),
        ("kind", text(preview, "/kind")),
        ("does", text(preview, "/does")),
        ("parameters", text(&parameters, "")),
        ("steps", list("/steps")),
        ("waits for", text(preview, "/waits_for")),
        ("gates", list("/gates")),
        ("priority", text(preview, "/priority")),
        ("deadline", text(preview, "/deadline_at")),
    ])?;
    if preview["settings"].is_array() {
        return plan_view::show_settings(preview, output);
    }
    match preview["plan"].is_array() || preview["plan_missing"].is_string() {
        true => plan_view::show_plan(preview, output),
        false => Ok(()),
    }
}
