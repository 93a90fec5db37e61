//! `shoal doctor`: checks of this host for a controller with these settings. It changes nothing and needs no controller.
//!
//! ```text
//!   settings ──> checks in order ──> pass | warn | fail, each with what was found, why it matters, what to do
//!                                    a check that fails ends the command with 1; a warning does not
//! ```
//!
//! Invariants: a check is bounded in time and in bytes; what it writes is a file without a name in the data directory, which the kernel
//! removes; no secret is read, only who may read it.

mod backup;
mod disk;
mod files;
mod finding;
mod network;
mod socket;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use settings::Settings;
use settings::descriptors::{self, DescriptorBudget};

use super::settings_args::SettingsArgs;
use client::error::CliError;
use client::exit::Exit;
use client::output::{Output, plain};
use finding::{Finding, State};

/// Arguments of `shoal doctor`.
#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    /// A BMC that this host must reach: a name or an address, with or without a port; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    bmc: Vec<String>,
}

/// Runs all checks and shows them.
pub(super) fn run(
    arguments: &DoctorArgs,
    settings: SettingsArgs,
    output: &mut Output<'_>,
) -> Result<ExitCode, CliError> {
    let settings = settings.load()?;
    let findings = check(&settings, &arguments.bmc);
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (failed, warnings) = (count(State::Fail), count(State::Warn));
    if output.json {
        output.document(&json!({ "checks": findings, "failed": failed, "warnings": warnings }))?;
    } else {
        for finding in &findings {
            show(finding, output)?;
        }
        output.note(format!("{} checks: {failed} failed, {warnings} warnings", findings.len()));
    }
    Ok(if failed > 0 { Exit::Failed.into() } else { ExitCode::SUCCESS })
}

fn show(finding: &Finding, output: &mut Output<'_>) -> Result<(), CliError> {
    output.line(format!("{:<4}  {:<12}  {}", finding.state.as_str(), finding.check, plain(&finding.what)))?;
    if finding.state != State::Pass {
        output.line(format!("{:20}why: {}", "", finding.why))?;
        output.line(format!("{:20}do:  {}", "", plain(&finding.what_to_do)))?;
    }
    Ok(())
}

/// All checks in order.
fn check(settings: &Settings, bmcs: &[String]) -> Vec<Finding> {
    let running = files::is_locked(&settings.storage_root);
    let mut findings = vec![files::data_directory(settings, running)];
    findings.extend(files::secrets(settings));
    findings.push(files::boot_image(settings));
    findings.extend(network::ports(settings, running, &socket::Host::this()));
    findings.push(network::names(settings));
    findings.extend(network::bmcs(settings, bmcs));
    findings.extend(disk::room(settings));
    findings.push(disk::writes(&settings.db_path));
    findings.push(backup::target(settings));
    findings.push(files::clock(settings));
    findings.push(open_files(settings));
    findings.push(files::certificate(settings));
    findings
}

fn open_files(settings: &Settings) -> Finding {
    let budget = DescriptorBudget::of(descriptors::attainable(), settings.redfish_max_in_flight);
    let finding =
        Finding::new("open-files", "each connection and each image that is read uses one open file");
    match budget.problem() {
        None => finding.passed(format!("{} files, {} of them for clients", budget.limit, budget.open)),
        Some(problem) => finding.failed(
            problem.to_string(),
            "raise the hard limit: LimitNOFILE=65536 in the unit, or --ulimit nofile=65536 of a container",
        ),
    }
}

#[cfg(test)]
mod tests;
