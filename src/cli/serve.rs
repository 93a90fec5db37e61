//! `shoal serve`: runs the controller until SIGTERM or SIGINT.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use super::exit::Exit;
use controller::app;
use controller::config::Settings;
use controller::telemetry;
use engine::model::{SteadyClock, SystemClock, error_chain};
use secrecy::ExposeSecret;

/// Runs the controller and returns its exit code.
pub(super) async fn run(settings: Settings) -> ExitCode {
    let mut err = std::io::stderr();
    if let Err(error) = telemetry::init(&settings.log_level, settings.log_format) {
        let _closed = writeln!(err, "error: {}", error_chain(&error));
        return Exit::Configuration.into();
    }
    let data = settings.storage_root.clone();
    let running = match app::start(settings, Arc::new(SteadyClock::new(SystemClock))).await {
        Ok(running) => running,
        Err(error) => {
            let _closed = writeln!(err, "error: {}", error_chain(&error));
            return Exit::Failed.into();
        }
    };
    tracing::info!(api = %running.api, media = %running.media, data = %data.display(), "controller started");
    if let Some(token) = &running.first_token {
        let mut out = std::io::stdout();
        // The token is shown only once: the database stores its hash.
        let shown = writeln!(
            out,
            "admin token, shown only now: {}\nuse it with:  export SHOAL_URL=http://{} SHOAL_TOKEN=<token>",
            token.expose_secret(),
            reachable(running.api),
        );
        if let Err(error) = shown.and_then(|()| out.flush()) {
            let _closed = writeln!(
                err,
                "error: the admin token could not be shown ({error}): set BASIC_USER and BASIC_PASS_HASH, or start with \
                 an empty data directory"
            );
        }
    }
    app::stop_signal().await;
    tracing::info!("stopping");
    running.stop().await;
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

/// The listening address as a client on this host can use it: loopback instead of a wildcard address.
pub(super) fn reachable(listening: SocketAddr) -> SocketAddr {
    match listening.ip() {
        ip if !ip.is_unspecified() => listening,
        ip if ip.is_ipv4() => (std::net::Ipv4Addr::LOCALHOST, listening.port()).into(),
        _ => (std::net::Ipv6Addr::LOCALHOST, listening.port()).into(),
    }
}
