//! `shoal demo --firmware`: installs firmware on simulated servers of four vendors.
//!
//! ```text
//!   DELL-1     BMC and BIOS      the BMC restarts in the middle, the BIOS needs a restart of the host      installed
//!   HPE-1      BIOS              progress at the service, without a task                                  installed
//!   LENOVO-1   BIOS              a task, and a restart of the host                                        installed
//!   SMC-1      BIOS              the BMC says that it succeeded and keeps the old version                  explained
//! ```
//!
//! Time runs faster for the controller, because it believes an old version for ten minutes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::api::DemoApi;
use super::timeline::Timeline;
use super::{BMC_USER, DemoServer, ExpectedEnd, TIMEOUT, controller_settings, follow, stop};
use crate::DemoArgs;
use crate::sim::random_password;
use controller::app::{self, RunningController};
use lab_bmc::{Fault, FaultEffect, FaultTrigger, FlashFault, Power, SimBmcConfig, firmware_image};
use lab_machines::{Farm, FarmConfig, HostKind, ServerSpec};
use model::{Clock, SystemClock, Time};

/// The factor by which time passes faster for the controller.
const RATE: u32 = 60;
/// The bytes of an image.
const IMAGE: usize = 4 << 20;
/// The version of every image.
const VERSION: &str = "9.20.1";

/// A server of the demo: its serial number, the vendor of its BMC, the components that are installed, and whether its BMC lies.
struct Planned {
    serial: &'static str,
    vendor: &'static str,
    components: &'static [&'static str],
    lies: bool,
}

const SERVERS: [Planned; 4] = [
    Planned { serial: "DELL-1", vendor: "dell-idrac9-6", components: &["bmc", "bios"], lies: false },
    Planned { serial: "HPE-1", vendor: "hpe-ilo6", components: &["bios"], lies: false },
    Planned { serial: "LENOVO-1", vendor: "lenovo-xcc", components: &["bios"], lies: false },
    Planned { serial: "SMC-1", vendor: "smc-x12", components: &["bios"], lies: true },
];

/// A clock that runs [`RATE`] times as fast as the system clock.
struct FastClock {
    began: Time,
}

impl Clock for FastClock {
    fn now(&self) -> Time {
        self.began.plus(SystemClock.now().since(self.began) * RATE)
    }

    fn elapsed(&self) -> Duration {
        SystemClock.elapsed() * RATE
    }
}

/// Runs the demo. Returns whether every job and every server ended as expected.
pub(super) async fn run(args: &DemoArgs, json: bool) -> anyhow::Result<bool> {
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let mut timeline = Timeline::new(json);
    timeline.title(&format!(
        "Shoal {}: installs firmware on four simulated servers of four vendors; time runs {RATE} times as fast",
        env!("CARGO_PKG_VERSION")
    ));
    let mut settings = controller_settings(folder.path())?;
    // Measured by the fast clock, and by the system clock.
    settings.job_lease_ttl = Duration::from_secs(2 * 3600);
    settings.redfish_breaker_open_time = Duration::from_millis(100);
    let clock = Arc::new(FastClock { began: SystemClock.now() });
    let running = app::start(settings, clock).await.context("start the controller")?;
    timeline.note("controller", &format!("listening on {}, data in a temporary folder", running.api));
    let password = random_password()?;
    let farm = start_farm(folder.path(), &password).await?;
    timeline.note("farm", "four simulated BMCs on loopback, hosts on");
    let engine = running.engine.clone();
    let waker = tokio::spawn(async move {
        loop {
            // The engine sleeps by the system clock, so it is woken for what is due by the fast clock.
            tokio::time::sleep(Duration::from_millis(20)).await;
            engine.wake();
        }
    });
    let ended = install(&running, &farm, &password, &mut timeline).await;
    if args.keep && ended.is_ok() {
        super::keep(&running, &farm, &password, json).await?;
    }
    waker.abort();
    stop(running, farm).await;
    ended
}

fn config(planned: &Planned) -> anyhow::Result<SimBmcConfig> {
    Ok(SimBmcConfig::vendor(planned.vendor, planned.serial, BMC_USER, "")?)
}

async fn start_farm(folder: &Path, password: &SecretString) -> anyhow::Result<Farm> {
    let disks = folder.join("disks");
    std::fs::create_dir_all(&disks)?;
    let mut specs = Vec::new();
    for planned in &SERVERS {
        let mut bmc = config(planned)?.in_time(0.01);
        bmc.password = password.clone();
        bmc.starts_on = true;
        bmc.update.check_time = Duration::from_millis(100);
        bmc.update.flash_time = Duration::from_millis(1500);
        bmc.update.restart_time = Duration::from_millis(1000);
        if planned.lies {
            bmc.faults.push(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::Lie)));
        }
        let bmc = Some(Box::new(bmc));
        specs.push(ServerSpec { bmc, host: HostKind::Idle, ..ServerSpec::new(planned.serial) });
    }
    let config = FarmConfig::new(specs, BMC_USER, password.clone(), disks);
    Farm::start(config).await.context("start the simulated servers")
}

async fn install(
    running: &RunningController,
    farm: &Farm,
    password: &SecretString,
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let token = running.first_token.as_ref().context("the controller created no admin token")?;
    let api = DemoApi::new(running.api, token)?;
    let mut servers = Vec::new();
    for (planned, server) in SERVERS.iter().zip(farm.servers()) {
        let record = json!({ "allow_unverified_serial": true });
        api.register(&server.serial, &server.bmc_url, BMC_USER, password, record).await?;
        add_set(&api, planned, timeline).await?;
    }
    for planned in &SERVERS {
        let body = json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": planned.vendor } });
        let path = format!("/api/v1/servers/{}/condition", planned.serial);
        let created = api.post(&path, &body, "order an installation of firmware").await?;
        let job_id = created["id"].as_str().context("the response has no id")?.to_owned();
        let expected = if planned.lies { ExpectedEnd::InstallerFails } else { ExpectedEnd::Installed };
        servers.push(DemoServer { serial: planned.serial.to_owned(), expected, job_id });
    }
    timeline.note("api", &format!("{} installations accepted", servers.len()));
    follow(&api, &servers, timeline, TIMEOUT).await?;
    check(&api, farm, &servers, timeline).await
}

/// Pushes the images for a server and makes a set of them.
async fn add_set(api: &DemoApi, planned: &Planned, timeline: &mut Timeline) -> anyhow::Result<()> {
    let identity = config(planned)?.identity;
    let maker: String = identity.manufacturer.to_ascii_lowercase().split([' ', '.']).take(1).collect();
    let mut digests = Vec::new();
    for component in planned.components {
        let image = firmware_image(component, VERSION, Some(&identity.model), IMAGE);
        let sha256 = hex::encode(Sha256::digest(&image));
        let about = json!({
            "vendor": identity.manufacturer, "models": [identity.model], "component": component,
            "version": VERSION, "filename": format!("{component}-{VERSION}.bin"), "sha256": sha256, "size": image.len(),
        });
        api.push_blob(&format!("firmware/{maker}/{component}"), &sha256, image).await?;
        let added = api.post("/api/v1/firmware", &about, "add a firmware file").await?;
        digests.push(added["digest"].clone());
    }
    let set = json!({ "name": planned.vendor, "labels": {}, "files": digests });
    api.post("/api/v1/firmware-sets", &set, "create a firmware set").await?;
    let what = planned.components.join(" and ");
    timeline.note("registry", &format!("set {}: {what} {VERSION} for {}", planned.vendor, identity.model));
    Ok(())
}

/// Checks that every job and every server ended as expected; explains the one that lies.
async fn check(
    api: &DemoApi,
    farm: &Farm,
    servers: &[DemoServer],
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let mut results = Vec::new();
    let mut as_expected = true;
    for (planned, demo_server) in SERVERS.iter().zip(servers) {
        let job = api.job(&demo_server.job_id).await?;
        let result = check_server(planned, &job, farm);
        if let Err(error) = &result {
            as_expected = false;
            timeline.failed(&demo_server.serial, &format!("{error:#}"));
            timeline.all_events(&job["events"]);
        }
        let sentence = result.as_ref().map_or_else(|error| format!("UNEXPECTED: {error:#}"), Clone::clone);
        results.push(json!({
            "server_serial": demo_server.serial, "job_id": demo_server.job_id, "outcome": job["outcome"],
            "failure": job["failure"], "as_expected": result.is_ok(), "machine": sentence,
        }));
    }
    timeline.summary(&results, as_expected);
    Ok(as_expected)
}

fn check_server(planned: &Planned, job: &Value, farm: &Farm) -> anyhow::Result<String> {
    let bmc = &farm.server(planned.serial).context("a simulated server does not exist")?.bmc;
    let end = bmc.snapshot();
    let sent = u64::try_from(planned.components.len())?;
    if end.images != sent {
        bail!("{} images arrived, expected {sent}", end.images);
    }
    if end.power != Power::On {
        bail!("the host is {:?}, and it was on", end.power);
    }
    let new = bmc.installed().into_iter().filter(|(_, version)| version == VERSION).count();
    if planned.lies {
        let failure = &job["failure"];
        if failure["class"] != json!("version_unchanged") || new > 0 {
            bail!("the BMC lies, and the job ended with {failure}");
        }
        let text = |key: &str| failure[key].as_str().unwrap_or_default().to_owned();
        return Ok(format!("{}. What to do: {}", text("summary"), text("next_action")));
    }
    if job["outcome"] != json!("succeeded") || new != planned.components.len() {
        bail!("outcome {}, {new} components have the new version", job["outcome"]);
    }
    let restarted = match (planned.components.contains(&"bmc"), bmc.bmc_restarts()) {
        (false, 0) => "",
        (true, 1) => "; its BMC restarted in the middle",
        (_, restarts) => bail!("the BMC restarted {restarts} times"),
    };
    Ok(format!(
        "{} {VERSION} installed and verified, each image arrived once{restarted}",
        planned.components.join(" and ")
    ))
}
