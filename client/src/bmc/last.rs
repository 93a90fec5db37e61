//! `--last` of `shoal bmc doctor` and `shoal bmc probe`: what the controller keeps of a registered server. Nothing is run.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::exit::Exit;
use super::super::output::{Output, plain, text};
use super::show;
use diagnostics::checks::CheckStatus;

/// Shows the last diagnostics of a server; ends with 1 if a check had failed.
pub(super) async fn diagnostics(
    serial: &str,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<ExitCode, CliError> {
    let report = kept(serial, client).await?;
    show_report(&report, output)?;
    let failed = report["verdict"] == json!(CheckStatus::Fail);
    Ok(if failed { Exit::Failed.into() } else { ExitCode::SUCCESS })
}

/// The last diagnostics of a server.
///
/// # Errors
///
/// There are none, or the first have no result yet.
pub(super) async fn kept(serial: &str, client: &Client) -> Result<Value, CliError> {
    let report = client.get(&["servers", serial, "diagnostics"], &[]).await?.body;
    let serial = plain(serial);
    match (&report["diagnostics_id"], &report["verdict"]) {
        (Value::Null, _) => {
            Err(none(format!("no diagnostics of {serial} are kept; `shoal bmc doctor {serial}` runs them")))
        }
        (_, Value::Null) => {
            let id = text(&report, "/diagnostics_id");
            Err(none(format!(
                "the diagnostics {id} of {serial} have no result; `shoal job explain {id}` says why"
            )))
        }
        _ => Ok(report),
    }
}

/// Shows the diagnostics of a server among others; fails if a check had failed.
pub(super) fn show_one_of_many(
    serial: &str,
    report: &Value,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if output.json {
        output.row(report)?;
    } else {
        output.line(format!("server {}", plain(serial)))?;
        show_report(report, output)?;
    }
    match report["verdict"] == json!(CheckStatus::Fail) {
        true => Err(CliError::failed("a check has failed")),
        false => Ok(()),
    }
}

/// Shows the card of the last probe of a server.
pub(super) async fn card(
    serial: &str,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<ExitCode, CliError> {
    let kept = client.get(&["servers", serial, "card"], &[]).await?.body;
    let serial = plain(serial);
    if kept["card"].is_null() {
        return Err(none(format!(
            "no card of {serial} is kept; `shoal bmc probe {serial}` reads one from the BMC"
        )));
    }
    if output.json {
        output.document(&kept)?;
    } else {
        output.fields(&[("read", text(&kept, "/probed_at"))])?;
        show::card(&kept["card"], output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show_report(report: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(report);
    }
    output.fields(&[("ended", text(report, "/ended_at"))])?;
    show::checks(report, output)
}

fn none(message: String) -> CliError {
    CliError::Local { message, exit: Exit::NotFound }
}
