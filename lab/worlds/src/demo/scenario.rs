//! Who plays in the demo: the servers, whose BMCs they have, and how their jobs are to end.
//!
//! ```text
//!   --servers 3                three strict BMCs of no vendor
//!   --vendors five             five vendors: two CDs by action and by PATCH, CD and USB, one slot
//!   --vendors NAME,NAME        these vendors, by the names in `shoal sim --list`
//!   --vendors all              every vendor; jobs fail on those that refuse plain HTTP
//! ```

use lab_bmc::{DEMO_VENDORS, SerialShown, SimBmcConfig, VENDORS, Vendor};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::DemoArgs;
use crate::sim::numbered;

/// What share of its time everything in a vendor's BMC takes: seconds are for showing, minutes are not.
const TIME: f64 = 0.02;

/// How a job is to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// The machine is installed.
    Installed,
    /// Its installer fails on purpose.
    InstallerFails,
    /// Its BMC cannot take the media, which is found out before the power is touched.
    Refused,
}

/// One server.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) serial: String,
    vendor: Option<Vendor>,
    pub(super) ending: Ending,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) servers: Vec<Part>,
}

impl Scenario {
    pub(super) fn of(args: &DemoArgs) -> anyhow::Result<Self> {
        let mut servers = if args.vendors.is_empty() {
            let plain = |serial| Part { serial, vendor: None, ending: Ending::Installed };
            numbered(args.servers).map(plain).collect()
        } else {
            of_vendors(&args.vendors)?
        };
        if let Some(last) = servers.last_mut().filter(|_| args.fail_one) {
            last.ending = Ending::InstallerFails;
        }
        Ok(Self { servers })
    }
}

impl Part {
    /// Its BMC; `None` is the usual one.
    pub(super) fn bmc(&self, user: &str, password: &SecretString) -> anyhow::Result<Option<SimBmcConfig>> {
        let Some(vendor) = self.vendor else { return Ok(None) };
        let bmc = SimBmcConfig::vendor(vendor.name, &self.serial, user, password.expose_secret())?;
        Ok(Some(bmc.in_time(TIME)))
    }
}

impl Part {
    /// What its record says besides address and account: whose serial number cannot be read is trusted, and a BMC whose time
    /// is short is not given minutes.
    pub(super) fn record(&self) -> anyhow::Result<Value> {
        let Some(vendor) = self.vendor else { return Ok(json!({})) };
        let shown = SimBmcConfig::vendor(vendor.name, "", "", "")?.identity.serial;
        let hidden = matches!(shown, SerialShown::Chassis | SerialShown::Nowhere);
        Ok(json!({ "allow_unverified_serial": hidden, "quirks": { "settle_after_mount_s": 0 } }))
    }
}

fn of_vendors(names: &[String]) -> anyhow::Result<Vec<Part>> {
    let mut servers: Vec<Part> = Vec::new();
    for name in names {
        let vendors = match name.as_str() {
            "all" => VENDORS.to_vec(),
            "five" => DEMO_VENDORS.iter().copied().map(Vendor::named).collect::<Result<_, _>>()?,
            name => vec![Vendor::named(name)?],
        };
        for vendor in vendors {
            let bmc = SimBmcConfig::vendor(vendor.name, "", "", "")?;
            let rules = &bmc.media.url;
            // The demo's media are on a free port of loopback, without TLS.
            let takes_media = rules.ports.is_none() && rules.schemes.iter().any(|scheme| scheme == "http");
            let serial = format!("{}-{}", vendor.name.to_uppercase(), servers.len() + 1);
            let ending = if takes_media { Ending::Installed } else { Ending::Refused };
            servers.push(Part { serial, vendor: Some(vendor), ending });
        }
    }
    Ok(servers)
}
