//! `shoal selftest --bench --firmware`: installs one firmware set on many servers, some at a time, and measures what that costs the
//! controller.
//!
//! ```text
//!   register -> one image, one set -> 100 installations at a time, each until its end -> requests to BMCs, memory, open files
//! ```
//!
//! An installation waits for its BMC by the clock, so the time says little; requests and memory are the figures, and they are judged.
//! Images in full size at once: `tests/firmware_crowd.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lab_bmc::{SimBmcConfig, firmware_image};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::bound::{self, Bound};
use super::client::{Latencies, at_rate};
use super::processes::{BenchHome, Bmc, Controller, SimProcess};
use super::stages::CONCURRENCY;
use super::{Figures, Options};
use crate::sim::random_password;

/// The number of installations at a time.
const AT_ONCE: usize = 100;
/// The bytes of the image.
const IMAGE: usize = 4 << 20;
/// The vendor of every BMC.
const VENDOR: &str = "generic";
const COMPONENT: &str = "bios";
const VERSION: &str = "99.1";
/// The name of the set.
const SET: &str = "bench";
/// The name of the counter of requests to BMCs, by operation.
const REQUESTS: &str = "redfish_request_duration_seconds_count{op=\"";
/// The operation that polls an update.
const POLL: &str = "update_state";
/// The most requests of an installation of one component beside the polls of the update: 30 for the component, 60 for what a run
/// does once, and 30 for the three reads of the version. The first two are judged one by one in
/// `upkeep/tests/workflows/firmware.rs`; the metrics of a controller do not tell them apart.
const MOST_REQUESTS: f64 = 120.0;
/// The most memory of the controller, in MB.
const MOST_MEMORY: f64 = 300.0;
/// The interval of reads that search the end of an installation.
const LOOK: Duration = Duration::from_millis(500);
/// The longest time of one installation.
const LIMIT: Duration = Duration::from_secs(1800);

/// The servers and the controller of the stage.
struct Stage {
    figures: Figures,
    controller: Controller,
    sim: SimProcess,
    password: SecretString,
}

/// Runs the stage and prints its figures.
pub(super) async fn run(options: Options, figures: Figures, folder: &Path, iso: &Path) -> anyhow::Result<()> {
    let password = random_password()?;
    let mut home = BenchHome::new(folder, options.workers, random_password()?)?;
    let controller = home.start(iso).await?;
    let sim = SimProcess::start(options.servers, folder, &password)?;
    Stage { figures, controller, sim, password }.all().await
}

impl Stage {
    async fn all(self) -> anyhow::Result<()> {
        self.register().await?;
        self.make_set().await?;
        let (idle, files) = (self.controller.peak_memory()?, self.controller.open_files()?);
        let (before, cpu) = (self.requests().await?, self.controller.cpu()?);
        let began = Instant::now();
        let bmcs = self.sim.bmcs.iter().collect();
        let installing = at_rate(bmcs, None, AT_ONCE, |bmc| self.install(bmc));
        let mut installing = std::pin::pin!(installing);
        let mut most_files = files;
        let mut waits: Latencies = loop {
            tokio::select! {
                waits = &mut installing => break waits?,
                () = tokio::time::sleep(LOOK) => most_files = most_files.max(self.controller.open_files()?),
            }
        };
        let servers = self.sim.bmcs.len();
        let found = format!(
            "{:.0} s; one: p50 {:.1} s, longest {:.1} s; processor {:.1} ms each",
            began.elapsed().as_secs_f64(),
            waits.at(0.5) / 1e3,
            waits.at(1.0) / 1e3,
            self.controller.cpu()?.saturating_sub(cpu).as_secs_f64() * 1e3 / servers as f64
        );
        self.figures.show(&format!("{servers} installations, {AT_ONCE} at a time"), &found, "")?;
        let peak = self.controller.peak_memory()?;
        let found =
            format!("{:.1} MB of memory; {files} open files, then {most_files} at most", idle as f64 / 1e6);
        self.figures.show("before these installations", &found, "")?;
        let memory = Bound {
            what: "most memory, with these installations",
            result: peak as f64 / 1e6,
            most: MOST_MEMORY,
            unit: " MB",
        };
        self.figures.judge(&memory)?;
        let requests = self.show_requests(&before, servers).await?;
        bound::judge(&[memory, requests])
    }

    async fn register(&self) -> anyhow::Result<()> {
        at_rate(self.sim.bmcs.iter().collect(), None, CONCURRENCY, |bmc| async move {
            let body = json!({
                "serial": bmc.serial, "bmc_address": bmc.address, "bmc_username": "admin",
                "bmc_password": self.password.expose_secret(),
            });
            self.controller.api.post("/api/v1/servers", &body).await.map(drop)
        })
        .await
        .map(drop)
    }

    /// Pushes one image and makes the set of it.
    async fn make_set(&self) -> anyhow::Result<()> {
        let identity = SimBmcConfig::vendor(VENDOR, "BENCH", "admin", "")?.identity;
        let maker: firmware::Vendor = identity.manufacturer.parse()?;
        let image = firmware_image(COMPONENT, VERSION, Some(&identity.model), IMAGE);
        let sha256 = hex::encode(Sha256::digest(&image));
        let api = &self.controller.api;
        let path = format!("/v2/firmware/{maker}/{COMPONENT}/blobs/uploads/?digest=sha256:{sha256}");
        let about = json!({
            "vendor": identity.manufacturer, "models": [identity.model], "component": COMPONENT, "version": VERSION,
            "filename": format!("{COMPONENT}-{VERSION}.bin"), "sha256": sha256, "size": image.len(),
        });
        let push = api.request(Method::POST, &path).header("content-type", "application/octet-stream");
        api.bytes(push.body(image)).await.context("push the image")?;
        let added = api.post("/api/v1/firmware", &about).await?;
        let set = json!({ "name": SET, "labels": {}, "files": [added["digest"]] });
        api.post("/api/v1/firmware-sets", &set).await.map(drop)
    }

    /// Orders an installation and waits for its end.
    async fn install(&self, bmc: &Bmc) -> anyhow::Result<()> {
        let parameters = json!({ "firmware_set": SET, "allow_downgrade": true });
        let body = json!({ "kind": "firmwareInstall", "parameters": parameters });
        let place = format!("/api/v1/servers/{}/condition", bmc.serial);
        let created = self.controller.api.post(&place, &body).await?;
        let id = created["id"].as_str().context("the response has no id")?;
        let began = Instant::now();
        loop {
            let job: Value = self.controller.api.get(&format!("/api/v1/jobs/{id}")).await?;
            if job["status"] == "complete" {
                if job["outcome"] != "succeeded" {
                    bail!(
                        "the installation on {} ended as {}: {}",
                        bmc.serial,
                        job["outcome"],
                        job["failure"]
                    );
                }
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                bail!("the installation on {} has not ended: {}", bmc.serial, job["wait"]);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The requests to BMCs so far, by operation.
    async fn requests(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let api = &self.controller.api;
        let metrics = api.bytes(api.request(Method::GET, "/metrics")).await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let counts = metrics.lines().filter_map(|line| {
            let (operation, count) = line.strip_prefix(REQUESTS)?.split_once("\"} ")?;
            Some((operation.to_owned(), count.trim().parse().ok()?))
        });
        Ok(counts.collect())
    }

    /// Shows the requests of an installation; returns the judged part of them.
    async fn show_requests(&self, before: &BTreeMap<String, u64>, servers: usize) -> anyhow::Result<Bound> {
        let after = self.requests().await?;
        let each = |count: u64| count as f64 / servers as f64;
        let since = |operation: &str| {
            let count = |of: &BTreeMap<String, u64>| of.get(operation).copied().unwrap_or(0);
            count(&after) - count(before)
        };
        let all: u64 = after.keys().map(|operation| since(operation)).sum();
        let polls = since(POLL);
        let found = format!("{:.1}, of which {:.1} poll the update", each(all), each(polls));
        self.figures.show("requests to a BMC for an installation", &found, "")?;
        let beside = Bound {
            what: "of these beside the polls of the update",
            // Without a request nothing was measured.
            result: if all == 0 { f64::NAN } else { each(all - polls) },
            most: MOST_REQUESTS,
            unit: "",
        };
        self.figures.judge(&beside)?;
        let parts: Vec<String> = after
            .keys()
            .filter(|operation| since(operation) > 0)
            .map(|operation| format!("{operation} {:.1}", each(since(operation))))
            .collect();
        self.figures.show("by operation", &parts.join(", "), "")?;
        Ok(beside)
    }
}
