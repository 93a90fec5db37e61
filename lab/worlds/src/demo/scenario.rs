//! The servers of the demo: their BMCs, and the expected ends of their jobs.
//!
//! ```text
//!   --servers 3                three strict standard BMCs
//!   --vendors five             five vendors: two CD slots (by action or PATCH), CD and USB, one slot
//!   --vendors NAME,NAME        these vendors, by the names in `shoal sim --list`
//!   --vendors all              every vendor; jobs of BMCs that take no media by HTTP, or on one port only, fail
//! ```

use lab_bmc::{DEMO_VENDORS, SerialShown, SimBmcConfig, VENDORS, Vendor};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::DemoArgs;
use crate::sim::numbered;

/// Factor for the delays of a vendor's BMC, so that the demo takes seconds and not minutes.
const TIME: f64 = 0.02;

/// The expected end of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ExpectedEnd {
    /// The machine is installed.
    Installed,
    /// The installer fails on purpose.
    InstallerFails,
    /// The BMC cannot take the media. The job fails before any power request.
    Refused,
}

/// One server of the demo.
#[derive(Debug)]
pub(super) struct ScenarioServer {
    pub(super) serial: String,
    vendor: Option<Vendor>,
    pub(super) expected: ExpectedEnd,
}

/// The servers of the demo.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) servers: Vec<ScenarioServer>,
}

impl Scenario {
    pub(super) fn of(args: &DemoArgs) -> anyhow::Result<Self> {
        let mut servers = if args.vendors.is_empty() {
            let plain = |serial| ScenarioServer { serial, vendor: None, expected: ExpectedEnd::Installed };
            numbered(args.servers).map(plain).collect()
        } else {
            of_vendors(&args.vendors)?
        };
        if let Some(last) = servers.last_mut().filter(|_| args.fail_one) {
            last.expected = ExpectedEnd::InstallerFails;
        }
        Ok(Self { servers })
    }
}

impl ScenarioServer {
    /// The configuration of the BMC; `None` for the standard BMC.
    pub(super) fn bmc(&self, user: &str, password: &SecretString) -> anyhow::Result<Option<SimBmcConfig>> {
        let Some(vendor) = self.vendor else { return Ok(None) };
        let bmc = SimBmcConfig::vendor(vendor.name, &self.serial, user, password.expose_secret())?;
        Ok(Some(bmc.in_time(TIME)))
    }
}

impl ScenarioServer {
    /// Additional fields of the server record. A BMC without a readable serial number is trusted, and no settle time is
    /// needed because the delays of the BMC are short.
    pub(super) fn record(&self) -> anyhow::Result<Value> {
        let Some(vendor) = self.vendor else { return Ok(json!({})) };
        let shown = SimBmcConfig::vendor(vendor.name, "", "", "")?.identity.serial;
        let hidden = matches!(shown, SerialShown::Chassis | SerialShown::Nowhere);
        Ok(json!({ "allow_unverified_serial": hidden, "quirks": { "settle_after_mount_s": 0 } }))
    }
}

fn of_vendors(names: &[String]) -> anyhow::Result<Vec<ScenarioServer>> {
    let mut servers: Vec<ScenarioServer> = Vec::new();
    for name in names {
        let vendors = match name.as_str() {
            "all" => VENDORS.to_vec(),
            "five" => DEMO_VENDORS.iter().copied().map(Vendor::named).collect::<Result<_, _>>()?,
            name => vec![Vendor::named(name)?],
        };
        for vendor in vendors {
            let bmc = SimBmcConfig::vendor(vendor.name, "", "", "")?;
            let rules = &bmc.media.url;
            // The demo serves media on free ports, with and without TLS.
            let served = |scheme: &String| scheme == "http" || scheme == "https";
            let takes_media = rules.ports.is_none() && rules.schemes.iter().any(served);
            let serial = format!("{}-{}", vendor.name.to_uppercase(), servers.len() + 1);
            let expected = if takes_media { ExpectedEnd::Installed } else { ExpectedEnd::Refused };
            servers.push(ScenarioServer { serial, vendor: Some(vendor), expected });
        }
    }
    Ok(servers)
}
