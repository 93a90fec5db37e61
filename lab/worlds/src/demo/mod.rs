//! `shoal demo`: runs a controller and simulated servers on this machine, pushes an OS image, creates one job per server,
//! and checks at the end that every machine is in the expected state.
//!
//! ```text
//!   controller (app::start, as serve)  <--API, /v2/--  this command  --starts-->  farm of simulated servers
//!            \------------- Redfish, media, pull, report -------------------------/
//! ```
//!
//! The demo uses the public API only. The controller does not know that it runs in a demo.

mod api;
mod firmware;
mod numbers;
mod scenario;
mod timeline;
mod vm;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::DemoArgs;
use crate::sim::{random_password, write_maintenance_iso};
use api::DemoApi;
use controller::app::stop_signal;
use controller::app::{self, RunningController};
use lab_machines::{
    Farm, FarmConfig, InstallerBehaviour, ServerSpec, SimulatedServer, images, maintenance_os, oci,
};
use model::{SteadyClock, SystemClock};
use scenario::{ExpectedEnd, Scenario};
use settings::{Settings, Sources};
use timeline::Timeline;

/// The recipe of docs/seeds.md S000-120.
const RECIPE: &str = include_str!("../../../../schemas/recipe-linux.example.json");
/// The repository of the OS image. The recipe refers to it.
const REPOSITORY: &str = "os-images/ubuntu-rootfs";
const TAG: &str = "22.04";
const BMC_USER: &str = "admin";
/// The unit at which the installer with `--fail-one` fails.
const FAILING_UNIT: &str = maintenance_os::unit::BOOTLOADER_LINUX;
/// The time within which all jobs must end.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval for reading new events of the jobs.
const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// A server of the demo, its job, and the expected end of the job.
struct DemoServer {
    serial: String,
    expected: ExpectedEnd,
    job_id: String,
}

/// Runs the demo. Returns whether every job and every machine ended as expected.
pub(super) async fn run(args: &DemoArgs, json: bool) -> anyhow::Result<bool> {
    let _logs = telemetry::init("warn", settings::LogFormat::Text)?;
    if args.vm {
        return vm::run(args, json).await;
    }
    if args.firmware {
        return firmware::run(args, json).await;
    }
    let scenario = Scenario::of(args)?;
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let mut timeline = Timeline::new(json);
    timeline.title(&format!(
        "Shoal {}: installs {} simulated servers on this machine",
        env!("CARGO_PKG_VERSION"),
        scenario.servers.len()
    ));
    let running = start_controller(folder.path()).await?;
    timeline.note("controller", &format!("listening on {}, data in a temporary folder", running.api));
    let password = random_password()?;
    let farm = start_farm(&scenario, folder.path(), &password).await?;
    timeline.note("farm", &format!("{} simulated BMCs on loopback, hosts off", scenario.servers.len()));
    let ended = provision(&scenario, &running, &farm, &password, &mut timeline).await;
    let as_expected = match ended {
        Ok(as_expected) => as_expected,
        Err(error) => {
            stop(running, farm).await;
            return Err(error);
        }
    };
    if args.keep {
        keep(&running, &farm, &password, json).await?;
    }
    stop(running, farm).await;
    Ok(as_expected)
}

async fn stop(running: RunningController, farm: Farm) {
    farm.shutdown().await;
    running.stop().await;
}

/// Starts a controller as `serve` does, on a free port of loopback.
async fn start_controller(folder: &Path) -> anyhow::Result<RunningController> {
    let settings = controller_settings(folder)?;
    app::start(settings, Arc::new(SteadyClock::new(SystemClock))).await.context("start the controller")
}

/// The settings of the controller of a demo.
fn controller_settings(folder: &Path) -> anyhow::Result<Settings> {
    let iso = write_maintenance_iso(&folder.join("maintenance.iso")).context("build the maintenance ISO")?;
    let flags = [
        ("STORAGE_ROOT", folder.join("data").display().to_string()),
        ("CONTROLLER_HTTP_ADDR", "127.0.0.1:0".to_owned()),
        ("CONTROLLER_HTTPS_ADDR", "127.0.0.1:0".to_owned()),
        ("MAINTENANCE_ISO_URL", iso.display().to_string()),
    ];
    Ok(Settings::load(&Sources {
        flags: flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })?)
}

async fn start_farm(scenario: &Scenario, folder: &Path, password: &SecretString) -> anyhow::Result<Farm> {
    let disks = folder.join("disks");
    std::fs::create_dir_all(&disks)?;
    let mut specs = Vec::with_capacity(scenario.servers.len());
    for planned in &scenario.servers {
        let mut spec = ServerSpec::new(&planned.serial);
        spec.bmc = planned.bmc(BMC_USER, password)?.map(Box::new);
        if planned.expected == ExpectedEnd::InstallerFails {
            spec.behaviour = InstallerBehaviour::failing_at(FAILING_UNIT);
        }
        specs.push(spec);
    }
    Farm::start(FarmConfig::new(specs, BMC_USER, password.clone(), disks))
        .await
        .context("start the simulated servers")
}

async fn provision(
    scenario: &Scenario,
    running: &RunningController,
    farm: &Farm,
    password: &SecretString,
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let token = running.first_token.as_ref().context("the controller created no admin token")?;
    let api = DemoApi::new(running.api, token)?;
    for (planned, server) in scenario.servers.iter().zip(farm.servers()) {
        api.register(&server.serial, &server.bmc_url, BMC_USER, password, planned.record()?).await?;
    }
    timeline.note("api", &format!("{} servers registered", scenario.servers.len()));
    let image = images::rootfs_image(&images::RootfsSpec::default())?;
    let authorization =
        oci::Authorization::Basic { username: "demo".to_owned(), password: token.expose_secret().to_owned() };
    let receipt = images::push(
        lab_machines::http::api_client(None)?,
        &api.base,
        REPOSITORY,
        TAG,
        authorization,
        &image,
    )
    .await?;
    timeline.note("registry", &format!("pushed {REPOSITORY}:{TAG} as {}", receipt.digest));
    let mut servers = Vec::new();
    for planned in &scenario.servers {
        let job_id = api.create_job(&planned.serial, RECIPE).await?;
        servers.push(DemoServer { serial: planned.serial.clone(), expected: planned.expected, job_id });
    }
    timeline.note("api", &format!("{} jobs accepted", servers.len()));
    follow(&api, &servers, timeline, TIMEOUT).await?;
    check_results(&api, farm, &servers, timeline).await
}

/// Prints new events of the jobs until all jobs are complete.
async fn follow(
    api: &DemoApi,
    servers: &[DemoServer],
    timeline: &mut Timeline,
    limit: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let mut cursors = vec![0_i64; servers.len()];
    loop {
        let mut open = 0;
        for (demo_server, cursor) in servers.iter().zip(&mut cursors) {
            // Read the status before the events: a complete job has no further events.
            let complete = api.job(&demo_server.job_id).await?["status"] == json!("complete");
            let page = api.events(&demo_server.job_id, *cursor).await?;
            for event in page["events"].as_array().into_iter().flatten() {
                timeline.event(&demo_server.serial, event);
            }
            *cursor = page["next"].as_i64().unwrap_or(*cursor);
            open += usize::from(!complete);
        }
        if open == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{open} job(s) did not end within {} s", limit.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Checks that every job and every machine ended as expected.
async fn check_results(
    api: &DemoApi,
    farm: &Farm,
    servers: &[DemoServer],
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let mut results = Vec::new();
    let mut as_expected = true;
    for demo_server in servers {
        let job = api.job(&demo_server.job_id).await?;
        let server = farm.server(&demo_server.serial).context("a simulated server does not exist")?;
        let result = check_machine(demo_server, &job, server).await;
        if let Err(error) = &result {
            as_expected = false;
            timeline.failed(&demo_server.serial, &format!("{error:#}"));
            timeline.all_events(&job["events"]);
        }
        let sentence = match &result {
            Ok(sentence) => sentence.clone(),
            Err(error) => format!("UNEXPECTED: {error:#}"),
        };
        results.push(json!({
            "server_serial": demo_server.serial, "job_id": demo_server.job_id, "outcome": job["outcome"],
            "failed_step": job["failed_step"], "as_expected": result.is_ok(), "machine": sentence,
        }));
    }
    timeline.summary(&results, as_expected);
    Ok(as_expected)
}

async fn check_machine(
    demo_server: &DemoServer,
    job: &Value,
    server: &SimulatedServer,
) -> anyhow::Result<String> {
    let bmc = server.bmc.snapshot();
    if bmc.slots.iter().any(|slot| slot.image.is_some()) {
        bail!("a virtual media slot is not empty");
    }
    if bmc.ejected_while_running > 0 {
        bail!("a medium was ejected while the OS was running");
    }
    if demo_server.expected == ExpectedEnd::Refused {
        if job["outcome"] != json!("failed") || bmc.power_ons > 0 {
            bail!("outcome {}, powered on {} times; expected a refusal", job["outcome"], bmc.power_ons);
        }
        return Ok(
            "refused as expected: the BMC takes no media by HTTP on this port; the host was not powered on"
                .to_owned(),
        );
    }
    if bmc.boots_from_media != 1 {
        bail!("the host booted {} times from the medium, expected 1", bmc.boots_from_media);
    }
    if demo_server.expected == ExpectedEnd::InstallerFails {
        if job["outcome"] != json!("failed") || job["failed_step"] != json!(FAILING_UNIT) {
            bail!(
                "outcome {} at {}; expected a failure of {FAILING_UNIT}",
                job["outcome"],
                job["failed_step"]
            );
        }
        return Ok(format!("failed at {FAILING_UNIT} as expected; slots empty, host powered off again"));
    }
    if job["outcome"] != json!("succeeded") {
        bail!("outcome {} at {}; expected a success", job["outcome"], job["failed_step"]);
    }
    if !server.is_on() {
        bail!("the host is not powered on");
    }
    // Reading and hashing the disk file blocks this thread. No other task runs now.
    let disk = tokio::task::block_in_place(|| server.boots_from_disk());
    let (device, installed) = disk.map_err(|error| anyhow::anyhow!("the disk does not boot: {error}"))?;
    Ok(format!("powered on, slots empty, boots {} from {device}", installed.os_name))
}

/// Keeps running until a stop signal and prints how to access the controller and the BMCs.
async fn keep(
    running: &RunningController,
    farm: &Farm,
    password: &SecretString,
    json: bool,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let token = running.first_token.as_ref().map_or("", |token| token.expose_secret());
    if json {
        let bmcs: Vec<Value> = farm
            .servers()
            .iter()
            .map(|server| json!({ "server_serial": server.serial, "bmc_address": server.bmc_url }))
            .collect();
        let open = json!({
            "url": format!("http://{}", running.api), "token": token, "bmcs": bmcs, "bmc_user": BMC_USER,
            "bmc_password": password.expose_secret(),
        });
        writeln!(out, "{}", json!({ "keep": open }))?;
        out.flush()?;
        stop_signal().await;
        return Ok(());
    }
    writeln!(out, "\nThe controller is still running. Press Ctrl-C to stop it. To look around:")?;
    writeln!(out, "  export SHOAL_URL=http://{} SHOAL_TOKEN={token}", running.api)?;
    writeln!(out, "  shoal job list")?;
    writeln!(out, "  curl -H \"Authorization: Bearer $SHOAL_TOKEN\" $SHOAL_URL/metrics")?;
    for server in farm.servers() {
        writeln!(
            out,
            "  BMC of {}: {} ({BMC_USER} / {})",
            server.serial,
            server.bmc_url,
            password.expose_secret()
        )?;
    }
    out.flush()?;
    stop_signal().await;
    Ok(())
}
