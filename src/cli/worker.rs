//! `shoal worker`: runs the steps of a queue near its BMCs; its tokens, and the list of workers.
//!
//! ```text
//!  shoal worker --controller URL --queue NAME    runs until SIGTERM, SIGINT or SIGQUIT, or until the controller refuses it
//!  shoal worker token …, shoal worker list       clients of a running controller
//! ```
//!
//! Invariant: a worker opens no database and needs no data directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::accounts::now;
use super::token::{self, Expiry, expiry};
use client::connection::{Client, ConnectionArgs, tls_of};
use client::error::CliError;
use client::exit::Exit;
use client::live::{Source, WatchArgs};
use client::output::{Format, Output, text};
use controller::app::ProcessSignals;
use model::error_chain;
use settings::{LogFormat, read_credentials};
use worker::{self, CancellationToken, NatsCredentials, ServerUrl, WakeOptions, WorkerError, WorkerOptions};

/// How long threads that may block may take to end after the stop.
const BLOCKED: Duration = Duration::from_secs(5);
/// The most calls at the same time.
const MOST_CALLS: u16 = 256;
/// The longest name of a process.
const MAX_NAME: usize = 64;

/// Arguments of `shoal worker`.
#[derive(Args, Debug)]
pub(super) struct WorkerArgs {
    #[command(subcommand)]
    pub(super) command: Option<WorkerCommand>,
    /// The https URL of the controller; the same as --url
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    /// A queue: the value of the label `queue` of the servers; may be given more than once [default: all queues of the token]
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
    /// The name of this worker in leases and logs [default: the name of this host]
    #[arg(long, value_name = "NAME", value_parser = process_name)]
    name: Option<String>,
    /// How many steps are executed at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_CALLS)))]
    parallel: u16,
    /// The NATS server that EVENTS of the controller names, for wake-ups: nats://HOST[:PORT], or tls://HOST[:PORT] with the
    /// authorities of --ca-file
    #[arg(long, value_name = "URL")]
    wake: Option<ServerUrl>,
    /// The file with the credentials for --wake: a .creds file, or one line with USER:PASSWORD, an NKEY seed or a token
    #[arg(long, value_name = "FILE", requires = "wake")]
    wake_credentials_file: Option<PathBuf>,
    /// The seconds after which the worker orders calls without a wake-up of --wake
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "wake", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    wake_interval: u32,
    /// The directory for firmware files on their way to a BMC [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    spool: Option<PathBuf>,
    /// Which log lines are written: off, error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "FILTER", env = "LOG_LEVEL", default_value = "info")]
    log_level: String,
}

/// Commands for workers elsewhere.
#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    /// Create, list and revoke the tokens of workers
    #[command(subcommand)]
    Token(WorkerTokenCommand),
    /// List the workers that the controller has heard of within the last hour
    List(WatchArgs),
}

/// Commands for tokens of workers.
#[derive(Debug, Subcommand)]
pub(super) enum WorkerTokenCommand {
    /// Create a token of a worker and print it; it is not shown again
    Create {
        /// The name, which leases and logs show
        name: String,
        /// A queue whose steps the worker may execute; may be given more than once
        #[arg(long = "queue", value_name = "NAME", required = true)]
        queues: Vec<String>,
        /// When the token expires: a number of days (90d) or hours (12h), or a time [default: never]
        #[arg(long, value_name = "WHEN", value_parser = expiry)]
        expires: Option<Expiry>,
    },
    /// List the tokens of workers, without their texts
    List(WatchArgs),
    /// Revoke a token of a worker; it is refused with the next request, and the worker ends
    Revoke {
        /// The name of the token
        name: String,
    },
}

fn process_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("give 1 to {MAX_NAME} letters, digits and characters of -._")),
    }
}

/// The name of this host, as far as it can be the name of a process.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-._".contains(*letter));
    let name: String = name.take(MAX_NAME).collect();
    if name.is_empty() { "worker".to_owned() } else { name }
}

/// Runs a worker and returns its exit code.
pub(super) fn run(arguments: WorkerArgs, connection: &ConnectionArgs) -> Result<ExitCode, CliError> {
    let url = arguments.controller.clone().unwrap_or_else(|| connection.url.clone());
    let mut connection = connection.clone();
    connection.url = url;
    let (controller, tls) = tls_of(&connection)?;
    let token = connection.token()?.ok_or_else(|| {
        CliError::Usage(
            "a worker needs its token: --token env:NAME or file:PATH, or SHOAL_TOKEN; `shoal worker token create` makes one"
                .to_owned(),
        )
    })?;
    let name = arguments.name.unwrap_or_else(host_name);
    let wake = match arguments.wake {
        Some(server) => {
            let interval = Duration::from_secs(arguments.wake_interval.into());
            Some(wake_options(server, arguments.wake_credentials_file.as_deref(), &tls, &name, interval)?)
        }
        None => None,
    };
    let options = WorkerOptions {
        wake,
        controller,
        token,
        tls,
        queues: arguments.queues.into_iter().collect::<BTreeSet<_>>(),
        name,
        parallel: usize::from(arguments.parallel),
        spool: arguments.spool.unwrap_or_else(std::env::temp_dir),
    };
    let logs = telemetry::init(&arguments.log_level, LogFormat::Auto).map_err(|error| {
        let message = error_chain(&error).to_string();
        CliError::Local { message, exit: Exit::Configuration }
    })?;
    telemetry::log_panics();
    let runtime =
        Builder::new_multi_thread().enable_all().build().map_err(|error| client::no_runtime(&error))?;
    let ended = runtime.block_on(until_stopped(options));
    runtime.shutdown_timeout(BLOCKED);
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            logs.say(&format!("error: {error}"));
            let exit = match error {
                WorkerError::Options(_) => Exit::Usage,
                WorkerError::Refused(_) => Exit::Unauthorised,
            };
            Ok(exit.into())
        }
    }
}

fn wake_options(
    server: ServerUrl,
    credentials: Option<&Path>,
    tls: &rustls::ClientConfig,
    name: &str,
    interval: Duration,
) -> Result<WakeOptions, CliError> {
    let usage = |why: String| CliError::Usage(format!("--wake-credentials-file: {why}"));
    let credentials = credentials.map(read_credentials).transpose().map_err(usage)?;
    if credentials.as_ref().is_some_and(NatsCredentials::are_sent)
        && !server.is_tls()
        && !server.is_loopback()
    {
        return Err(usage("it would cross the network in the clear; give --wake as tls://".to_owned()));
    }
    Ok(WakeOptions { server, credentials, tls: tls.clone(), name: name.to_owned(), interval })
}

async fn until_stopped(options: WorkerOptions) -> Result<(), WorkerError> {
    let mut signals = ProcessSignals::listen()
        .map_err(|error| WorkerError::Options(format!("handle the signals of the process: {error}")))?;
    let stop = CancellationToken::new();
    let mut worker = std::pin::pin!(worker::run(options, stop.clone()));
    let signal = tokio::select! {
        ended = &mut worker => return ended,
        signal = signals.stop() => signal,
    };
    tracing::info!(signal, "stopping");
    stop.cancel();
    tokio::select! {
        ended = &mut worker => {
            tracing::info!("stopped");
            ended
        }
        signal = signals.stop() => {
            tracing::warn!(signal, "stopped at once by a second signal; the runs of this worker continue after their leases");
            Ok(())
        }
    }
}

/// Runs a command that is a client of a controller.
pub(super) async fn ask(
    command: WorkerCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match command {
        WorkerCommand::List(watch) => {
            watch.list(Source::Pauses, output, async |output| list(client, output).await).await
        }
        WorkerCommand::Token(WorkerTokenCommand::List(watch)) => {
            watch.list(Source::Pauses, output, async |output| list_tokens(client, output).await).await
        }
        WorkerCommand::Token(WorkerTokenCommand::Create { name, queues, expires }) => {
            let expires_at = expires.map(|expires| expires.after(now()));
            let body = json!({ "name": name, "queues": queues, "expires_at": expires_at });
            let issued = client.post(&["worker-tokens"], &body, HeaderMap::new()).await?.body;
            // The text is shown only now, so that `-o name` prints it too.
            if output.json && output.format != Format::Name {
                return output.document(&issued);
            }
            output.note(format!(
                "token {} of a worker for {}; it is stored as a hash and not shown again",
                text(&issued, "/name"),
                queues_of(&issued)
            ));
            output.line(text(&issued, "/token"))
        }
        WorkerCommand::Token(WorkerTokenCommand::Revoke { name }) => {
            client.delete(&["worker-tokens", &name], HeaderMap::new()).await?;
            output.note(format!("token {name} of a worker revoked"));
            Ok(())
        }
    }
}

fn queues_of(entry: &Value) -> String {
    let queues = entry["queues"].as_array().into_iter().flatten();
    queues.map(|queue| text(queue, "")).collect::<Vec<_>>().join(" ")
}

async fn list_tokens(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = client.get(&["worker-tokens"], &[]).await?.body;
    if output.json {
        return output.list_document(&page, "tokens");
    }
    let now = now();
    let row = |token: &Value| {
        let part = |pointer: &str| text(token, pointer);
        vec![
            part("/name"),
            queues_of(token),
            token::state(token, now).to_owned(),
            part("/expires_at"),
            part("/last_used_at"),
            part("/created_by"),
        ]
    };
    let rows: Vec<Vec<String>> = page["tokens"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["TOKEN", "QUEUES", "STATE", "EXPIRES", "LAST USED", "CREATED BY"], &rows)
}

async fn list(client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
    let page = client.get(&["worker-tokens"], &[]).await?.body;
    if output.format == Format::Name {
        let name = |worker: &Value| format!("{}/{}", text(worker, "/token"), text(worker, "/process"));
        return output.document(&page["workers"].as_array().into_iter().flatten().map(name).collect());
    }
    if output.json {
        return output.document(&page);
    }
    let row = |worker: &Value| {
        let part = |pointer: &str| text(worker, pointer);
        vec![
            part("/token"),
            part("/process"),
            queues_of(worker),
            part("/version"),
            part("/since"),
            part("/last_seen_at"),
        ]
    };
    let rows: Vec<Vec<String>> = page["workers"].as_array().into_iter().flatten().map(row).collect();
    output.table(&["TOKEN", "WORKER", "QUEUES", "VERSION", "SINCE", "LAST SEEN"], &rows)
}
