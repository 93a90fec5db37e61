//! `shoal firmware plan` and `shoal firmware install`: what a set means for a server or each of a filter, and its
//! installation, which is a condition of the server.

use clap::Args;
use serde_json::{Value, json};

use super::super::condition::{RequestArgs, RestartArgs, preview, would_succeed};
use super::super::connection::Client;
use super::super::error::CliError;
use super::super::output::{Output, plain};
use super::super::plan_view::show_plan;
use super::super::targets::{Change, FilterTargets};

/// The set for a server.
#[derive(Args, Debug)]
pub(super) struct SetArgs {
    /// The set; without it the one set that fits the vendor and model of the server
    #[arg(long, value_name = "NAME", conflicts_with = "labels")]
    set: Option<String>,
    /// Only a set with this label; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::label)]
    labels: Vec<(String, String)>,
}

impl SetArgs {
    pub(super) fn parameters(self) -> Value {
        let labels: serde_json::Map<String, Value> =
            self.labels.into_iter().map(|(key, value)| (key, json!(value))).collect();
        let mut parameters = json!({ "labels": labels });
        if let Some(set) = self.set {
            parameters["firmware_set"] = json!(set);
        }
        parameters
    }
}

/// What is installed.
#[derive(Args, Debug)]
pub(super) struct WhatArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Also install what is older than the installed version, or has no order to it
    #[arg(long)]
    allow_downgrade: bool,
}

impl WhatArgs {
    fn parameters(self) -> Value {
        let mut parameters = self.set.parameters();
        parameters["allow_downgrade"] = json!(self.allow_downgrade);
        parameters
    }
}

/// Arguments of `shoal firmware plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanFirmware {
    #[command(flatten)]
    targets: FilterTargets,
    #[command(flatten)]
    what: WhatArgs,
}

impl PlanFirmware {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let body = json!({ "kind": "firmwareInstall", "parameters": self.what.parameters() });
        let many = self.targets.are_filtered();
        let show = async |serial: &str, output: &mut Output<'_>| {
            let preview = preview(serial, &body, client).await?;
            match (output.json, many) {
                (true, true) => output.row(&preview)?,
                (true, false) => output.document(&preview)?,
                (false, true) => output.line(format!("server {}", plain(serial)))?,
                (false, false) => {}
            }
            if !output.json {
                show_plan(&preview, output)?;
            }
            would_succeed(&preview)
        };
        self.targets.each("plan", Change::Reads, client, output, show).await
    }
}

/// Arguments of `shoal firmware install`.
#[derive(Args, Debug)]
pub(crate) struct InstallFirmware {
    #[command(flatten)]
    targets: FilterTargets,
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    restart: RestartArgs,
    #[command(flatten)]
    request: RequestArgs,
}

impl InstallFirmware {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Self { targets, what, restart, request } = self;
        let mut parameters = what.parameters();
        restart.add_to(&mut parameters);
        let many = targets.are_filtered();
        let change = request.change(many)?;
        let send = async |serial: &str, output: &mut Output<'_>| {
            request.send(serial, "firmwareInstall", (&parameters, many), client, output).await
        };
        targets.each("firmware install", change, client, output, send).await
    }
}
