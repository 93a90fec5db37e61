//! `shoal controller ready`: the checks of readiness, at once or as soon as they pass.
//!
//! ```text
//! GET /readyz ─── 200 ──────────────────────────────> the checks, exit code 0
//!     ^      └─── 503 or no response ── time over? ──> the checks, exit code 1; no response: 6
//!     └───────────── pause ────────────── no
//! ```

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::output::{Output, coarse, join, text};

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(200);
/// The wait after which a line says what the command waits for.
const SILENCE: Duration = Duration::from_secs(2);
/// The HTTP status of a controller that is not ready.
const NOT_READY: u16 = 503;

/// Shows the checks of readiness. Waits up to `wait` until all of them pass.
///
/// # Errors
/// When a check fails, or the controller does not respond, at the end of the wait.
pub(super) async fn run(client: &Client, wait: Duration, output: &mut Output<'_>) -> Result<(), CliError> {
    let began = Instant::now();
    let mut said = false;
    loop {
        let over = began.elapsed() >= wait;
        let reason = match client.get_root("readyz").await {
            Ok(response) => return show(&response.body, output),
            Err(CliError::Refused { status: NOT_READY, body }) if body["checks"].is_object() => {
                let error = not_ready(&body);
                if over {
                    show(&body, output)?;
                    return Err(error);
                }
                error
            }
            Err(error @ CliError::Unreachable { .. }) if !over => error,
            Err(error) => return Err(error),
        };
        if !said && began.elapsed() >= SILENCE {
            output.note(format!("waiting up to {} s: {reason}", wait.as_secs()));
            said = true;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The checks that failed, as an error.
fn not_ready(readiness: &Value) -> CliError {
    let failed: Vec<&str> =
        checks(readiness).filter(|(_, check)| check["ok"] != true).map(|(name, _)| name).collect();
    CliError::Local {
        message: format!("the controller is not ready: {}", failed.join(", ")),
        exit: Exit::Failed,
    }
}

fn checks(readiness: &Value) -> impl Iterator<Item = (&str, &Value)> {
    readiness["checks"].as_object().into_iter().flatten().map(|(name, check)| (name.as_str(), check))
}

fn show(readiness: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(readiness);
    }
    let rows: Vec<Vec<String>> = checks(readiness)
        .map(|(name, check)| {
            let passed = if check["ok"] == true { "yes" } else { "no" };
            let age = check["age_seconds"].as_u64().map(|age| format!("the last one is {} old", coarse(age)));
            let message = join(&[age.unwrap_or_default(), text(check, "/message")], "; ");
            vec![name.to_owned(), passed.to_owned(), message]
        })
        .collect();
    output.table(&["CHECK", "PASSES", "MESSAGE"], &rows)
}
