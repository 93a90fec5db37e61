//! `shoal demo`: the whole job on this machine. A controller, simulated servers, an OS image pushed as a client would, one
//! job per server; and at the end a look at every machine, whether what was promised is true.
//!
//! ```text
//!   controller (app::start, as serve)  <--API, /v2/--  this command  --starts-->  farm of simulated BMCs
//!            \------------- Redfish, media, pull, report -------------------------/
//! ```
//!
//! It uses the public API only, and the product does not know that this is a demo.

mod api;
mod scenario;
mod timeline;

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
use controller::config::{Settings, Sources};
use controller::telemetry;
use engine::model::{SteadyClock, SystemClock};
use lab_machines::{
    Farm, FarmConfig, InstallerBehaviour, ServerSpec, SimulatedServer, images, maintenance_os, oci,
};
use scenario::{Ending, Scenario};
use timeline::Timeline;

/// The recipe of the contract's appendix.
const RECIPE: &str = include_str!("../../../../schemas/recipe-linux.example.json");
/// Where the OS image is pushed to; the recipe names it.
const REPOSITORY: &str = "os-images/ubuntu-rootfs";
const TAG: &str = "22.04";
const BMC_USER: &str = "admin";
/// The installer that fails on purpose fails here.
const FAILING_UNIT: &str = maintenance_os::unit::BOOTLOADER_LINUX;
/// After this long without an end something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the jobs' new events are asked for.
const LOOK: Duration = Duration::from_millis(40);

/// A server of the demo, and how its job is to end.
struct Candidate {
    serial: String,
    ending: Ending,
    job_id: String,
}

/// Runs the demo. Returns whether every job and every machine ended as expected.
pub(super) async fn run(args: &DemoArgs, json: bool) -> anyhow::Result<bool> {
    telemetry::init("warn", controller::config::LogFormat::Text)?;
    let cast = Scenario::of(args)?;
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let mut timeline = Timeline::new(json);
    timeline.title(&format!(
        "Shoal {}: {} simulated servers, everything on this machine",
        env!("CARGO_PKG_VERSION"),
        cast.servers.len()
    ));
    let running = start_controller(folder.path()).await?;
    timeline.note("controller", &format!("listening on {}, data in a temporary folder", running.api));
    let password = random_password()?;
    let farm = start_farm(&cast, folder.path(), &password).await?;
    timeline.note("farm", &format!("{} BMCs on loopback, hosts off", cast.servers.len()));
    let ended = provision(&cast, &running, &farm, &password, &mut timeline).await;
    let good = match ended {
        Ok(good) => good,
        Err(error) => {
            stop(running, farm).await;
            return Err(error);
        }
    };
    if args.keep {
        keep(&running, &farm, &password, json).await?;
    }
    stop(running, farm).await;
    Ok(good)
}

async fn stop(running: RunningController, farm: Farm) {
    farm.shutdown().await;
    running.stop().await;
}

/// A controller as `serve` starts it, on an ephemeral port of loopback.
async fn start_controller(folder: &Path) -> anyhow::Result<RunningController> {
    let iso = write_maintenance_iso(&folder.join("maintenance.iso")).context("build the maintenance ISO")?;
    let flags = [
        ("STORAGE_ROOT", folder.join("data").display().to_string()),
        ("CONTROLLER_HTTP_ADDR", "127.0.0.1:0".to_owned()),
        ("MAINTENANCE_ISO_URL", iso.display().to_string()),
    ];
    let settings = Settings::load(&Sources {
        flags: flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        environment: &|_| None,
        file: None,
    })?;
    app::start(settings, Arc::new(SteadyClock::new(SystemClock))).await.context("start the controller")
}

async fn start_farm(cast: &Scenario, folder: &Path, password: &SecretString) -> anyhow::Result<Farm> {
    let disks = folder.join("disks");
    std::fs::create_dir_all(&disks)?;
    let mut specs = Vec::with_capacity(cast.servers.len());
    for part in &cast.servers {
        let mut spec = ServerSpec::new(&part.serial);
        spec.bmc = part.bmc(BMC_USER, password)?.map(Box::new);
        if part.ending == Ending::InstallerFails {
            spec.behaviour = InstallerBehaviour::failing_at(FAILING_UNIT);
        }
        specs.push(spec);
    }
    Farm::start(FarmConfig::new(specs, BMC_USER, password.clone(), disks))
        .await
        .context("start the simulated servers")
}

async fn provision(
    cast: &Scenario,
    running: &RunningController,
    farm: &Farm,
    password: &SecretString,
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let token = running.first_token.as_ref().context("the controller made no admin token")?;
    let api = DemoApi::new(running.api, token)?;
    for (part, server) in cast.servers.iter().zip(farm.servers()) {
        api.register(&server.serial, &server.bmc_url, BMC_USER, password, part.record()?).await?;
    }
    timeline.note("api", &format!("{} servers registered", cast.servers.len()));
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
    let mut candidates = Vec::new();
    for part in &cast.servers {
        let job_id = api.create_job(&part.serial, RECIPE).await?;
        candidates.push(Candidate { serial: part.serial.clone(), ending: part.ending, job_id });
    }
    timeline.note("api", &format!("{} jobs accepted", candidates.len()));
    follow(&api, &candidates, timeline).await?;
    judge(&api, farm, &candidates, timeline).await
}

/// Shows the jobs' events as they come, until all jobs are complete.
async fn follow(api: &DemoApi, candidates: &[Candidate], timeline: &mut Timeline) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut cursors = vec![0_i64; candidates.len()];
    loop {
        let mut open = 0;
        for (candidate, cursor) in candidates.iter().zip(&mut cursors) {
            // The status first: after it says complete, no event is missing.
            let complete = api.job(&candidate.job_id).await?["status"] == json!("complete");
            let page = api.events(&candidate.job_id, *cursor).await?;
            for event in page["events"].as_array().into_iter().flatten() {
                timeline.event(&candidate.serial, event);
            }
            *cursor = page["next"].as_i64().unwrap_or(*cursor);
            open += usize::from(!complete);
        }
        if open == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{open} job(s) did not end within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether every job and every machine ended as promised.
async fn judge(
    api: &DemoApi,
    farm: &Farm,
    candidates: &[Candidate],
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let mut results = Vec::new();
    let mut good = true;
    for candidate in candidates {
        let job = api.job(&candidate.job_id).await?;
        let server = farm.server(&candidate.serial).context("a server of the farm is gone")?;
        let verdict = verdict(candidate, &job, server).await;
        if let Err(error) = &verdict {
            good = false;
            timeline.failed(&candidate.serial, &format!("{error:#}"));
            timeline.story(&job["events"]);
        }
        let sentence = match &verdict {
            Ok(sentence) => sentence.clone(),
            Err(error) => format!("UNEXPECTED: {error:#}"),
        };
        results.push(json!({
            "server_serial": candidate.serial, "job_id": candidate.job_id, "outcome": job["outcome"],
            "failed_step": job["failed_step"], "as_expected": verdict.is_ok(), "machine": sentence,
        }));
    }
    timeline.summary(&results, good);
    Ok(good)
}

async fn verdict(candidate: &Candidate, job: &Value, server: &SimulatedServer) -> anyhow::Result<String> {
    let bmc = server.bmc.snapshot();
    if bmc.slots.iter().any(|slot| slot.image.is_some()) {
        bail!("a virtual media slot is not empty");
    }
    if bmc.ejected_while_running > 0 {
        bail!("a medium was ejected under a running OS");
    }
    if candidate.ending == Ending::Refused {
        if job["outcome"] != json!("failed") || bmc.power_ons > 0 {
            bail!("outcome {}, {} times powered on, expected a refusal", job["outcome"], bmc.power_ons);
        }
        return Ok("takes no plain HTTP media: refused, and the host was left alone, as expected".to_owned());
    }
    if bmc.boots_from_media != 1 {
        bail!("the host booted {} times from the medium", bmc.boots_from_media);
    }
    if candidate.ending == Ending::InstallerFails {
        if job["outcome"] != json!("failed") || job["failed_step"] != json!(FAILING_UNIT) {
            bail!(
                "outcome {} at {}, expected a failure of {FAILING_UNIT}",
                job["outcome"],
                job["failed_step"]
            );
        }
        return Ok(format!("failed at {FAILING_UNIT} as expected; slots empty, host off as it was found"));
    }
    if job["outcome"] != json!("succeeded") {
        bail!("outcome {} at {}", job["outcome"], job["failed_step"]);
    }
    if !server.is_on() {
        bail!("the host is not on");
    }
    // Reading and hashing the disk file blocks; nothing else is at work by now.
    let disk = tokio::task::block_in_place(|| server.boots_from_disk());
    let (device, installed) = disk.map_err(|error| anyhow::anyhow!("the disk does not boot: {error}"))?;
    Ok(format!("on, slots empty, boots {} from {device}", installed.os_name))
}

/// Stays up and says how to look around.
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
    writeln!(out, "\nStill running; Ctrl-C ends it. Look around:")?;
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
