//! `shoal serve`: runs the controller until SIGTERM, SIGINT or SIGQUIT, or until a lock of its data is gone.
//!
//! ```text
//!  settings --> log --> signals --> start (shows the first token) --> running --+-- HUP: reload   USR1: state
//!                                                                               |-- TERM, INT, QUIT: stop
//!                                                                               `-- a lock is lost: stop, exit code 1
//! ```
//!
//! Invariants: nothing here waits for standard error; errors of the start are written through the log's queue. The service manager is
//! notified of each of these states, and its watchdog is fed by the rounds of the dispatcher only.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::settings_args::SettingsArgs;
use client::error::CliError;
use client::exit::Exit;
use controller::app::{
    self, InheritedSockets, ProcessSignal, ProcessSignals, RunningController, ServiceManager,
};
use model::{SteadyClock, SystemClock, error_chain};
use secrecy::{ExposeSecret, SecretString};
use settings::Settings;
use telemetry::{self, Logs};
use tokio::runtime::Builder;

/// How long threads that may block, such as a read of a file, may take to end after the stop.
const BLOCKED: Duration = Duration::from_secs(5);

/// Runs the controller and returns its exit code.
pub(super) fn run(args: &SettingsArgs) -> Result<ExitCode, CliError> {
    let settings = args.clone().load()?;
    let logs = match telemetry::init(&settings.log_level, settings.log_format) {
        Ok(logs) => logs,
        Err(error) => {
            let message = error_chain(&error).to_string();
            return Err(CliError::Local { message, exit: Exit::Configuration });
        }
    };
    telemetry::log_panics();
    let runtime =
        Builder::new_multi_thread().enable_all().build().map_err(|error| client::no_runtime(&error))?;
    let code = runtime.block_on(Box::pin(serve(args, settings, &logs)));
    runtime.shutdown_timeout(BLOCKED);
    Ok(code)
}

async fn serve(args: &SettingsArgs, settings: Settings, logs: &Logs) -> ExitCode {
    let mut signals = match ProcessSignals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            logs.say(&format!("error: handle the signals of the process: {error}"));
            return Exit::Failed.into();
        }
    };
    let manager = ServiceManager::of_process();
    manager.status("opening the data directory");
    let inherited = match InheritedSockets::of_process() {
        Ok(inherited) => inherited,
        Err(error) => {
            logs.say(&format!("error: {}", error_chain(&error)));
            return Exit::Failed.into();
        }
    };
    let data = settings.storage_root.clone();
    let clock = Arc::new(SteadyClock::new(SystemClock));
    let starting = app::start_showing(settings, clock, Box::new(show_token), inherited);
    let started = tokio::select! {
        started = Box::pin(starting) => started,
        signal = signals.stop() => {
            tracing::info!(signal, "stopped before the controller was ready");
            return ExitCode::SUCCESS;
        }
    };
    let running = match started {
        Ok(running) => running,
        Err(error) => {
            logs.say(&format!("error: {}", error_chain(&error)));
            return Exit::Failed.into();
        }
    };
    let https = running.https.map(|https| https.to_string());
    tracing::info!(api = %running.api, https, media = %running.media, data = %data.display(), "controller started");
    manager.ready(&status(&running));
    let mut lock_lost = std::pin::pin!(running.lost());
    let mut rounds = running.engine.rounds();
    let lost = loop {
        let signal = tokio::select! {
            signal = signals.next() => signal,
            lost = &mut lock_lost => break Some(lost),
            Ok(()) = rounds.changed() => {
                manager.alive();
                manager.status(&status(&running));
                continue;
            }
        };
        match signal {
            ProcessSignal::Stop(signal) => {
                tracing::info!(signal, "stopping");
                break None;
            }
            ProcessSignal::Reload => {
                manager.reloading();
                let result = reload(args, &running, logs);
                running.record_reload(result).await;
                manager.ready(&status(&running));
            }
            ProcessSignal::State => running.log_state().await,
        }
    };
    manager.stopping(match &lost {
        None => "ending steps and connections; jobs continue at the next start",
        Some(_) => "a lock of the data directory is lost",
    });
    tokio::select! {
        () = Box::pin(running.stop()) => tracing::info!("stopped"),
        signal = signals.stop() => tracing::warn!(signal, "stopped at once by a second signal"),
    }
    match lost {
        None => ExitCode::SUCCESS,
        Some(why) => {
            logs.say(&format!("error: {why}"));
            Exit::Failed.into()
        }
    }
}

/// Describes what the controller does, for people who read it in the service manager.
fn status(running: &RunningController) -> String {
    let address = running.https.unwrap_or(running.api);
    let shortage = running.engine.pressure();
    let shortage = shortage.map(|short| format!("; no job starts: {}", short.detail)).unwrap_or_default();
    format!("serving on {address}, {} jobs in work{shortage}", running.engine.active_runs())
}

/// Reads the settings again and puts in force what can change in a running controller. Settings with a problem change nothing.
/// Returns the result for the audit log.
fn reload(args: &SettingsArgs, running: &RunningController, logs: &Logs) -> &'static str {
    let settings = match args.clone().load() {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!(%error, "nothing was reloaded, because the settings have problems; correct them, then send SIGHUP again");
            return "invalid";
        }
    };
    let later = match running.reload(&settings) {
        Ok(later) => later,
        Err(error) => {
            tracing::error!(error = %error_chain(&error), "nothing was reloaded; correct the setting, then send SIGHUP again");
            return "failed";
        }
    };
    if let Err(error) = logs.set_filter(&settings.log_level) {
        tracing::error!(error = %error_chain(&error), "the log filter stays as it was");
    }
    tracing::info!(
        log_level = settings.log_level,
        "log filter, users, keys, report secrets, authorities of BMCs and the certificate were reloaded"
    );
    for setting in later {
        tracing::warn!(setting, "the setting has changed; the change takes effect at the next start");
    }
    "ok"
}

/// Shows the first admin token. The token is shown only once: the database stores its hash.
fn show_token(token: &SecretString, api: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(
        out,
        "admin token, shown only now: {}\nuse it with:  export SHOAL_URL=http://{} SHOAL_TOKEN=<token>",
        token.expose_secret(),
        reachable(api),
    )?;
    out.flush()
}

/// The listening address as a client on this host can use it: loopback instead of a wildcard address.
pub(super) fn reachable(listening: SocketAddr) -> SocketAddr {
    match listening.ip() {
        ip if !ip.is_unspecified() => listening,
        ip if ip.is_ipv4() => (std::net::Ipv4Addr::LOCALHOST, listening.port()).into(),
        _ => (std::net::Ipv6Addr::LOCALHOST, listening.port()).into(),
    }
}
