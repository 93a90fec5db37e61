//! `shoal server`: registered servers with the address and credentials of their BMCs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::bios::BiosCommand;
pub(super) use super::bmc_password::{PasswordArgs, password_from_variable};
use super::condition;
use super::connection::{Client, header};
use super::error::CliError;
use super::filter::FilterArgs;
use super::import::ImportServers;
use super::input;
use super::live::{Source, WatchArgs};
use super::many::{self, Selection, ServerFilter};
use super::output::{Column, Output, counted, join, labels, plain, text};
use super::restored;
use super::server_preview;
use super::targets::{Change, Targets};
use model::Subject;

/// The maximum of unfinished jobs that a list of servers looks at.
const MAX_JOBS: usize = 20_000;
const TLS_MODES: [&str; 3] = ["verify", "pinned", "insecure"];

/// Commands for servers.
#[derive(Debug, Subcommand)]
pub(super) enum ServerCommand {
    /// Register a server
    Add(AddServer),
    /// Register many servers from a table, a JSON document, or a range of addresses; a preview without --yes
    Import(ImportServers),
    /// List the servers
    List {
        #[command(flatten)]
        filter: FilterArgs,
        /// The maximum of listed servers
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = super::many::rows)]
        limit: usize,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Show a server, without its password
    Show {
        /// The serial number of the server
        serial: String,
    },
    /// Show what the machine is made of, as it reported and as its BMC shows it: processors, memory, disks, interfaces
    Inventory(condition::Inventory),
    /// Shut the operating system down, or force the host off, and power it on again
    PowerCycle(condition::PowerCycle),
    /// Restart the BMC and wait until it is back; the host keeps running
    ResetBmc(condition::ResetBmc),
    /// Show and set the settings of the BIOS and the boot order
    #[command(subcommand)]
    Bios(BiosCommand),
    /// Show the newest condition of every kind: power cycles, restarts of the BMC, reads of its inventory
    Conditions {
        #[command(flatten)]
        targets: Targets,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Change a server, or all that a filter selects; values without an argument are unchanged
    Update(Box<UpdateServer>),
    /// Start or end maintenance of a server; during maintenance no job starts on it
    #[command(subcommand)]
    Maintenance(MaintenanceCommand),
    /// Compare what restored data says about a server with what its BMC shows now; changes nothing
    Restored {
        /// The serial number of the server
        serial: String,
    },
    /// Release a server of restored data, or the servers of a filter, so that jobs run on them
    Release {
        #[command(flatten)]
        targets: Targets,
        /// What happens to unfinished jobs; needed only if there are any
        #[arg(long, value_name = "WHAT")]
        jobs: Option<restored::Jobs>,
    },
    /// Delete a server, or the servers of a filter; refused while the database has jobs of it, unless --with-history
    Remove(RemoveServer),
}

/// Commands for maintenance of a server. A running job continues to its end.
#[derive(Debug, Subcommand)]
pub(super) enum MaintenanceCommand {
    /// Start maintenance: no job starts on the server; a running job continues
    Begin {
        /// The serial number of the server
        serial: Option<String>,
        #[command(flatten)]
        selection: Selection,
        /// The reason, shown with waiting jobs
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End maintenance: queued jobs of the server start
    End {
        /// The serial number of the server
        serial: Option<String>,
        #[command(flatten)]
        selection: Selection,
    },
}

/// The longest file with a network, in bytes.
const MAX_NETWORK: usize = 64 << 10;

/// Arguments of `shoal server add`.
#[derive(Args, Debug)]
pub(super) struct AddServer {
    /// The serial number of the server, as its BMC shows it
    serial: String,
    /// The address of the BMC: HOST, HOST:PORT or a URL; https by default
    #[arg(long, value_name = "ADDRESS")]
    bmc_address: String,
    /// The user of the BMC
    #[arg(long, value_name = "NAME")]
    bmc_user: String,
    #[command(flatten)]
    password: PasswordArgs,
    #[command(flatten)]
    args: ServerArgs,
    /// Also run jobs if the BMC shows no serial number; then the machine behind the address is not verified
    #[arg(long)]
    allow_unverified_serial: bool,
}

/// Optional values of a server.
#[derive(Args, Debug)]
struct ServerArgs {
    /// The vendor of the server
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
    /// The BMC profile [default: the profile that the BMC's identity selects]
    #[arg(long, value_name = "NAME")]
    bmc_profile: Option<String>,
    /// Set a flag of the BMC profile, as JSON or as a word (`vm_path=system`); may be given more than once
    #[arg(long = "quirk", value_name = "FLAG=VALUE", value_parser = quirk)]
    quirks: Vec<(String, Value)>,
    /// A file with the network of the machine, for recipes that have none: the field `network` of a recipe as JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// A label; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::label)]
    labels: Vec<(String, String)>,
    /// How the BMC's certificate is checked; pinned if --tls-fingerprint is given
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(TLS_MODES))]
    tls: Option<String>,
    /// SHA-256 of the BMC's certificate in hex
    #[arg(long, value_name = "HEX")]
    tls_fingerprint: Option<String>,
    /// The base URL from which this BMC reads media [default: MEDIA_BASE_URL of the controller]
    #[arg(long, value_name = "URL")]
    media_base_url: Option<String>,
}

/// Arguments of `shoal server update`.
#[derive(Args, Debug)]
pub(super) struct UpdateServer {
    /// The serial number of the server
    #[arg(required_unless_present_any = ["filter", "state", "serial_glob"], conflicts_with_all = ["filter", "state", "serial_glob"])]
    serial: Option<String>,
    #[command(flatten)]
    filter: ServerFilter,
    /// The address of the BMC: HOST, HOST:PORT or a URL
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["filter", "state", "serial_glob"])]
    bmc_address: Option<String>,
    /// The user of the BMC
    #[arg(long, value_name = "NAME")]
    bmc_user: Option<String>,
    #[command(flatten)]
    password: PasswordArgs,
    #[command(flatten)]
    args: ServerArgs,
    /// Remove a label; may be given more than once
    #[arg(long = "remove-label", value_name = "KEY")]
    removed_labels: Vec<String>,
    /// Also run jobs if the BMC shows no serial number; then the machine behind the address is not verified
    #[arg(long, value_name = "true|false")]
    allow_unverified_serial: Option<bool>,
    /// Remove a value; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(["vendor", "bmc-profile", "quirks", "network", "tls-fingerprint", "media-base-url"]))]
    clear: Vec<String>,
    /// Show what would change; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change the server only if it has this revision; otherwise end with 4
    #[arg(long, value_name = "N", conflicts_with_all = ["filter", "state", "serial_glob"])]
    if_revision: Option<u64>,
}

/// Arguments of `shoal server remove`.
#[derive(Args, Debug)]
pub(super) struct RemoveServer {
    #[command(flatten)]
    targets: Targets,
    /// Delete its ended jobs as well, with their events, steps and reports; refused while a job has not ended
    #[arg(long)]
    with_history: bool,
    /// Show how many jobs would be deleted with it; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs a command of `shoal server`.
pub(super) async fn run(
    command: ServerCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        ServerCommand::Add(add) => add.run(client, output).await,
        ServerCommand::Import(import) => import.run(client, output).await,
        ServerCommand::List { filter, limit, watch } => {
            watch
                .list(Source::Events(client), output, async |output| {
                    list(&filter, limit, client, output).await
                })
                .await
        }
        ServerCommand::Show { serial } => {
            let server = client.get(&["servers", &serial], &[]).await?.body;
            show(&server, output)
        }
        ServerCommand::Update(update) => update.run(client, output).await,
        ServerCommand::Inventory(inventory) => inventory.run(client, output).await,
        ServerCommand::PowerCycle(cycle) => cycle.run(client, output).await,
        ServerCommand::ResetBmc(reset) => reset.run(client, output).await,
        ServerCommand::Bios(bios) => bios.run(client, output).await,
        ServerCommand::Conditions { targets, watch } => {
            let show = async |output: &mut Output<'_>| condition::list(&targets, client, output).await;
            watch.list(Source::Events(client), output, show).await
        }
        ServerCommand::Restored { serial } => restored::show(&serial, client, output).await,
        ServerCommand::Release { targets, jobs } => {
            let many = targets.are_filtered();
            let release = async |serial: &str, output: &mut Output<'_>| {
                restored::release(serial, jobs, many, client, output).await
            };
            targets.each("release", Change::Changes, client, output, release).await
        }
        ServerCommand::Maintenance(maintenance) => maintenance.run(client, output).await,
        ServerCommand::Remove(remove) => remove.run(client, output).await,
    }
}

impl MaintenanceCommand {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let (serial, selection, verb) = match &self {
            Self::Begin { serial, selection, .. } => (serial, selection, "maintenance begin"),
            Self::End { serial, selection } => (serial, selection, "maintenance end"),
        };
        let filter = selection.or_one(Subject::Servers, serial.as_deref(), "serial number of the server")?;
        if let Some(serial) = serial {
            return self.change(serial, client, output).await;
        }
        let Some(serials) = selection.servers(verb, &filter, client, output).await? else { return Ok(()) };
        many::each(&serials, output, async |serial, output| self.change(serial, client, output).await).await
    }

    async fn change(&self, serial: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let path = ["servers", serial, "maintenance"];
        let (server, now) = match self {
            Self::Begin { reason, .. } => {
                let body = reason.as_ref().map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
                let response = client.post(&path, &body, HeaderMap::new()).await?;
                (response.body, "is in maintenance; no job starts on it")
            }
            Self::End { .. } => {
                let response = client.delete(&path, HeaderMap::new()).await?;
                (response.body, "is no longer in maintenance; jobs start on it")
            }
        };
        if output.json { output.row(&server) } else { output.line(format!("server {serial} {now}")) }
    }
}

impl RemoveServer {
    async fn run(&self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let (verb, change) = match (self.with_history, self.dry_run) {
            (_, true) => ("remove", Change::Reads),
            (true, false) => ("remove with the ended jobs", Change::Changes),
            (false, false) => ("remove", Change::Changes),
        };
        self.targets
            .each(verb, change, client, output, async |serial, output| self.one(serial, client, output).await)
            .await
    }

    async fn one(&self, serial: &str, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let flags = [("with_history", self.with_history), ("dry_run", self.dry_run)];
        let query: Vec<(&str, String)> =
            flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, "true".to_owned())).collect();
        let removed = client.delete_query(&["servers", serial], &query).await?.body;
        match (output.json, self.dry_run) {
            (true, true) => output.row(&removed),
            (true, false) => output.row(&json!({ "serial": serial, "removed": true })),
            (false, true) => {
                let jobs = counted(removed["jobs"].as_u64().unwrap_or(0), "ended job", "ended jobs");
                output.line(format!("server {} would be removed, with {jobs}", plain(serial)))
            }
            (false, false) => output.line(format!("server {} removed", plain(serial))),
        }
    }
}

impl AddServer {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let password = match self.password.read()? {
            Some(password) => password,
            None => password_from_variable()?,
        };
        let mut body = Map::new();
        body.insert("serial".to_owned(), json!(self.serial));
        body.insert("bmc_address".to_owned(), json!(self.bmc_address));
        body.insert("bmc_username".to_owned(), json!(self.bmc_user));
        body.insert("bmc_password".to_owned(), json!(password.expose_secret()));
        if self.allow_unverified_serial {
            body.insert("allow_unverified_serial".to_owned(), json!(true));
        }
        self.args.put_into(&mut body)?;
        let response = client.post(&["servers"], &body, HeaderMap::new()).await?;
        if output.json {
            return output.document(&response.body);
        }
        let verb =
            if response.status == 201 { "registered" } else { "is already registered with these values" };
        output.line(format!("server {} {verb}", text(&response.body, "/serial")))
    }
}

impl UpdateServer {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let headers = match self.if_revision {
            Some(revision) => header("if-match", &format!("\"{revision}\""))?,
            None => HeaderMap::new(),
        };
        let body = self.patch()?;
        if body.is_empty() {
            return Err(CliError::Usage(
                "there is nothing to change; see `shoal server update --help`".to_owned(),
            ));
        }
        if let Some(serial) = &self.serial {
            self.filter.expect_none()?;
            if self.dry_run {
                let preview = server_preview::preview(serial, &body, headers, client).await?;
                return if output.json {
                    output.document(&preview)
                } else {
                    server_preview::show(&preview, output)
                };
            }
            let server = client.patch(&["servers", serial], &body, headers).await?.body;
            return if output.json { output.document(&server) } else { output.line(changed(&server)) };
        }
        if self.args.tls_fingerprint.is_some() {
            let why = "a certificate belongs to one BMC; give --tls-fingerprint with a serial number";
            return Err(CliError::Usage(why.to_owned()));
        }
        if self.dry_run {
            let serials = self.filter.selected(client).await?;
            return many::each(&serials, output, async |serial, output| {
                let preview = server_preview::preview(serial, &body, HeaderMap::new(), client).await?;
                if output.json { output.row(&preview) } else { server_preview::show(&preview, output) }
            })
            .await;
        }
        let Some(serials) = self.filter.servers("update", false, client, output).await? else {
            return Ok(());
        };
        many::each(&serials, output, async |serial, output| {
            let server = client.patch(&["servers", serial], &body, HeaderMap::new()).await?.body;
            if output.json { output.row(&server) } else { output.line(changed(&server)) }
        })
        .await
    }

    /// The changes as a merge patch (RFC 7396), where null removes a value.
    fn patch(&self) -> Result<Map<String, Value>, CliError> {
        let mut body = Map::new();
        let texts = [("bmc_address", &self.bmc_address), ("bmc_username", &self.bmc_user)];
        for (key, value) in texts {
            body.extend(value.as_ref().map(|value| (key.to_owned(), json!(value))));
        }
        if let Some(password) = self.password.read()? {
            body.insert("bmc_password".to_owned(), json!(password.expose_secret()));
        }
        if let Some(allow) = self.allow_unverified_serial {
            body.insert("allow_unverified_serial".to_owned(), json!(allow));
        }
        self.args.put_into(&mut body)?;
        if !self.removed_labels.is_empty() {
            let labels = body.entry("labels").or_insert_with(|| json!({}));
            for key in &self.removed_labels {
                labels[key.as_str()] = Value::Null;
            }
        }
        body.extend(self.clear.iter().map(|name| (name.replace('-', "_"), Value::Null)));
        Ok(body)
    }
}

fn changed(server: &Value) -> String {
    format!("server {} is at revision {}", text(server, "/serial"), text(server, "/revision"))
}

impl ServerArgs {
    fn put_into(&self, body: &mut Map<String, Value>) -> Result<(), CliError> {
        let pinned = self.tls_fingerprint.as_ref().map(|_| "pinned".to_owned());
        let texts = [
            ("vendor", self.vendor.clone()),
            ("bmc_profile", self.bmc_profile.clone()),
            ("tls", self.tls.clone().or(pinned)),
            ("tls_fingerprint", self.tls_fingerprint.clone()),
            ("media_base_url", self.media_base_url.clone()),
        ];
        for (key, value) in texts {
            body.extend(value.map(|value| (key.to_owned(), json!(value))));
        }
        if !self.quirks.is_empty() {
            body.insert("quirks".to_owned(), Value::Object(self.quirks.iter().cloned().collect()));
        }
        if !self.labels.is_empty() {
            let labels: Map<String, Value> =
                self.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
            body.insert("labels".to_owned(), Value::Object(labels));
        }
        if let Some(file) = &self.network {
            body.insert("network".to_owned(), Value::Object(network(file)?));
        }
        Ok(())
    }
}

/// Reads the network of a machine. The key `network` around it, which a file of netplan has, is accepted.
fn network(file: &Path) -> Result<Map<String, Value>, CliError> {
    let mut document = input::object(file, MAX_NETWORK)?;
    match document.remove("network") {
        Some(Value::Object(network)) if document.is_empty() => Ok(network),
        Some(_) => Err(CliError::failed(format!("{} has more than a network", file.display()))),
        None => Ok(document),
    }
}

/// Parses a flag and its value: JSON, or else a word.
fn quirk(text: &str) -> Result<(String, Value), String> {
    let (flag, value) =
        text.split_once('=').filter(|(flag, _)| !flag.is_empty()).ok_or("give FLAG=VALUE".to_owned())?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((flag.to_owned(), value))
}

/// The job of each server that has not ended. Of several that queue for one server, the oldest. `None` if there are more jobs
/// than a list looks at: then a server that is not in them may be busy too.
async fn current_jobs(client: &Client) -> Result<Option<BTreeMap<String, Value>>, CliError> {
    let filters = [("filter", "-condition:ended".to_owned())];
    let mut found = client.list(&["jobs"], "jobs", &filters, MAX_JOBS).await?;
    if !found["next"].is_null() {
        return Ok(None);
    }
    let jobs = found["jobs"].as_array_mut().map(std::mem::take).unwrap_or_default();
    // The newest is first, so that an older one takes its place.
    let jobs = jobs.into_iter().filter(|job| job["parent"].is_null());
    Ok(Some(jobs.map(|job| (text(&job, "/server_serial"), job)).collect()))
}

/// The state of a server in a word of `--state`: of several, the one that keeps jobs from it. `has_job` is `None` if its jobs are
/// not known.
fn state(server: &Value, has_job: Option<bool>) -> &'static str {
    let has = |name: &str| server.get(name).is_some_and(|value| !value.is_null());
    let states = [
        ("restored", has("restored")),
        ("maintenance", has("maintenance")),
        ("?", has_job.is_none()),
        ("busy", has_job == Some(true)),
        ("pending-cleanup", has("pending_cleanup")),
        ("unseen", !has("last_seen")),
    ];
    states.into_iter().find_map(|(state, holds)| holds.then_some(state)).unwrap_or("free")
}

async fn list(
    filter: &FilterArgs,
    limit: usize,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let wanted = filter.text(Subject::Servers)?;
    let filters: Vec<(&str, String)> =
        (!wanted.is_empty()).then_some(("filter", wanted)).into_iter().collect();
    let servers = client.list(&["servers"], "servers", &filters, limit).await?;
    if output.json {
        return output.document(&servers);
    }
    let not_shown = "the jobs of the servers are not shown, and which are busy";
    let jobs = match current_jobs(client).await {
        // A watch reads all of it again.
        Err(error) if output.record.is_some() && error.is_transient() => return Err(error),
        Err(error) => {
            output.note(format!("{not_shown}: {error}"));
            None
        }
        Ok(None) => {
            output.note(format!("{not_shown}: more than {MAX_JOBS} jobs have not ended"));
            None
        }
        Ok(jobs) => jobs,
    };
    const COLUMNS: [Column<'_>; 8] = [
        Column::new("SERIAL", 0),
        Column::new("BMC", 1),
        Column::new("STATE", 2),
        Column::new("JOB", 3),
        Column::new("VENDOR", 5),
        Column::new("TLS", 7),
        Column::new("LAST SEEN", 4),
        Column::new("LABELS", 6),
    ];
    let rows: Vec<Vec<String>> = servers["servers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|server| {
            let part = |pointer: &str| text(server, pointer);
            let job = jobs.as_ref().and_then(|jobs| jobs.get(&part("/serial")));
            vec![
                part("/serial"),
                part("/bmc_address"),
                state(server, jobs.is_some().then_some(job.is_some())).to_owned(),
                job.map(|job| output.id(job, "/short_id", "/job_id")).unwrap_or_default(),
                part("/vendor"),
                part("/tls"),
                part("/last_seen"),
                labels(&server["labels"]).join(" "),
            ]
        })
        .collect();
    output.columns(&COLUMNS, &rows)?;
    if !servers["next"].is_null() {
        output.note("there are more servers; give a larger --limit");
    }
    Ok(())
}

fn show(server: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(server);
    }
    let tls = [text(server, "/tls"), text(server, "/tls_fingerprint")];
    output.fields(&[
        ("serial", text(server, "/serial")),
        ("id", text(server, "/id")),
        ("bmc", text(server, "/bmc_address")),
        ("bmc user", text(server, "/bmc_username")),
        ("vendor", text(server, "/vendor")),
        ("bmc profile", text(server, "/bmc_profile")),
        ("quirks", text(server, "/quirks")),
        ("network", text(server, "/network")),
        ("tls", join(&tls, " ")),
        ("unverified serial", text(server, "/allow_unverified_serial")),
        ("media from", text(server, "/media_base_url")),
        ("labels", labels(&server["labels"]).join(" ")),
        ("revision", text(server, "/revision")),
        ("registered", text(server, "/created_at")),
        ("changed", text(server, "/updated_at")),
        ("last seen", text(server, "/last_seen")),
        ("observed", text(server, "/observed")),
        ("learned", text(server, "/learned")),
        ("pending cleanup", pending_cleanup(server)),
        (
            "restored",
            join(&[text(server, "/restored/reason"), text(server, "/restored/as_of")], "; data ends at "),
        ),
        (
            "maintenance",
            join(
                &[
                    text(server, "/maintenance/since"),
                    text(server, "/maintenance/by"),
                    text(server, "/maintenance/reason"),
                ],
                ", ",
            ),
        ),
    ])
}

/// The cleanup that the next job does, in words.
fn pending_cleanup(server: &Value) -> String {
    let Some(pending) = server.get("pending_cleanup").filter(|pending| !pending.is_null()) else {
        return String::new();
    };
    let words = |pointer| {
        let list = pending.pointer(pointer).and_then(Value::as_array);
        let names: Vec<String> = list.into_iter().flatten().map(|name| text(name, "")).collect();
        join(&names, ", ")
    };
    let what = match text(pending, "/unknown").as_str() {
        "" => words("/remaining"),
        why => format!("not known ({why})"),
    };
    let mut slots = words("/slots");
    if !slots.is_empty() {
        slots.insert_str(0, "slots ");
    }
    let job = format!("of job {}", text(pending, "/job_id"));
    join(&[what, slots, job], "; ")
}
