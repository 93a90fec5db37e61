//! The hosts of a world: a maintenance OS that reads its task, works for some minutes, and sends a report over an
//! unreliable network.
//!
//! ```text
//!   boot from a medium -> job.json from the real image -> minutes of work -> report, repeated until a response
//!                              | not readable: hangs          | power off: ends         | lost, repeated, an hour late
//!                              |
//!                              ks.cfg: an installer that cannot report -> two warm restarts
//!                              rescue.target: a report that it is reachable -> until the power is off, or an end of its own
//! ```

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Method;
use lab_bmc::{BootContext, BootSource, Host};
use serde::Deserialize;
use serde_json::{Value, json};

use super::checker::Reported;
use super::network::ApiRequest;
use super::world::World;
use model::{RunId, Serial};

/// Maximum number of attempts to read the media before the machine hangs.
const MEDIA_TRIES: u32 = 12;
/// Maximum number of attempts to send a report.
const REPORT_TRIES: u32 = 40;
/// Maximum length of a document on the media in bytes.
const MAX_DOCUMENT: u64 = 1 << 20;

/// Number of the restart into the second half of an installation.
const FIRST: u32 = 1;
/// Number of the restart into the installed system.
const SECOND: u32 = 2;

/// The hosts of all machines of a world.
pub(super) struct WorldMachines(pub(super) Weak<World>);

/// The fields of `job.json` that a machine uses.
#[derive(Clone, Deserialize)]
struct Task {
    job_id: RunId,
    server_serial: String,
    webhook_url: String,
    webhook_token: String,
}

impl Host for WorldMachines {
    fn power_on(&self, boot: BootContext) {
        let Some(world) = self.0.upgrade() else { return };
        let from = match &boot.boots_from {
            BootSource::Disk => "disk",
            BootSource::Media { .. } => "medium",
        };
        world.note(&format!("{} boots from {from}", boot.serial));
        let Ok(serial) = boot.serial.parse::<Serial>() else { return };
        match world.restarted(&serial) {
            // The installed system does nothing.
            Some(SECOND) => return,
            Some(_) => {
                tokio::spawn(async move {
                    let delay = world.machine_rng.seconds(60, 600);
                    restart_after(&world, &boot, delay, SECOND).await;
                });
                return;
            }
            None => world.checker.booted(world.observer(), &serial, &boot.boots_from),
        }
        if matches!(boot.boots_from, BootSource::Media { .. }) {
            tokio::spawn(async move {
                let cancel = boot.cancel.clone();
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {}
                    () = install(&world, &boot) => {}
                }
            });
        }
    }

    fn power_off(&self, _serial: &str) {}
}

async fn install(world: &Arc<World>, boot: &BootContext) {
    let rng = &world.machine_rng;
    tokio::time::sleep(rng.seconds(5, 90)).await;
    let Some((task, target)) = find_task(world, boot).await else { return };
    if rng.chance_per_mille(world.plan.silent) {
        return world.note(&format!("{} hangs", boot.serial));
    }
    if target == Target::Rescue {
        return rescue(world, boot, &task).await;
    }
    if target == Target::Scripted {
        return restart_after(world, boot, rng.seconds(120, 1500), FIRST).await;
    }
    let minutes = rng.below(25);
    for done in 0..minutes {
        tokio::time::sleep(rng.seconds(30, 90)).await;
        if rng.below(8) == 0 {
            let report =
                json!({ "status": "progress", "step": "install-linux", "percent": done * 100 / minutes });
            send(world, &task, report).await;
        }
    }
    let (reported, report) = if rng.chance_per_mille(world.plan.failing) {
        (
            Reported::Failed,
            json!({ "status": "failed", "failed_step": "image-linux.service", "job_id": task.job_id }),
        )
    } else {
        (Reported::Success, json!({ "status": "success", "job_id": task.job_id }))
    };
    world.note(&format!("{} has finished: {reported:?}", boot.serial));
    send_end(world, &task, &report, reported).await;
}

/// The rescue system: reports that it is reachable, then works until the power goes off or it ends by itself.
async fn rescue(world: &Arc<World>, boot: &BootContext, task: &Task) {
    let rng = &world.machine_rng;
    let reachable = json!({
        "status": "reachable", "addresses": ["10.3.0.7"], "ssh_host_key": "SHA256:c2VsZnRlc3Q", "consoles": ["tty1"],
    });
    let mut delay = Duration::from_secs(1);
    for _ in 0..REPORT_TRIES {
        let lost = world.fault_occurs(150);
        let sent = if lost { None } else { send(world, task, reachable.clone()).await };
        if sent.is_some_and(|(status, _)| status < 500 && status != 429) {
            break;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(300));
    }
    world.note(&format!("{} is reachable", boot.serial));
    let ends = rng.below(6);
    tokio::time::sleep(rng.seconds(60, 3600)).await;
    let (reported, status) = match ends {
        0 => (Reported::Success, "success"),
        1 => (Reported::Failed, "failed"),
        // An operator ends the session, or its time passes: then the power goes off.
        _ => return std::future::pending().await,
    };
    world.note(&format!("{} ends its rescue: {reported:?}", boot.serial));
    let mut report = json!({ "status": status, "job_id": task.job_id });
    if reported == Reported::Failed {
        report["failed_step"] = json!("rescue.service");
    }
    send_end(world, task, &report, reported).await;
}

/// Sends the final report until a response, over a network that loses and repeats reports.
async fn send_end(world: &Arc<World>, task: &Task, report: &Value, reported: Reported) {
    let rng = &world.machine_rng;
    if world.fault_occurs(80) {
        repeat_later(world, task, report.clone(), reported);
    }
    let mut delay = Duration::from_secs(1);
    for _ in 0..REPORT_TRIES {
        // The report or its response is lost.
        let lost = world.fault_occurs(150);
        if !(lost && rng.below(2) == 0) {
            let status = deliver(world, task, report.clone(), reported).await;
            if !lost && status.is_some_and(|status| status < 500 && status != 429) {
                return;
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(300));
    }
}

/// Delivers the report again, much later, whether or not the machine still runs.
fn repeat_later(world: &Arc<World>, task: &Task, report: Value, reported: Reported) {
    let (world, task) = (Arc::clone(world), task.clone());
    let delay = world.machine_rng.seconds(1, 3600);
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        deliver(&world, &task, report, reported).await;
    });
}

/// Sends a final report and records its acknowledgement.
async fn deliver(world: &Arc<World>, task: &Task, report: Value, reported: Reported) -> Option<u16> {
    let response = send(world, task, report).await?;
    if response.0 == 200 && response.1["idempotent"] != json!(true) {
        world.checker.report_acknowledged(task.job_id, reported);
    }
    Some(response.0)
}

async fn send(world: &Arc<World>, task: &Task, report: Value) -> Option<(u16, Value)> {
    let url = url::Url::parse(&task.webhook_url).ok()?;
    let response = world
        .call(ApiRequest {
            method: Method::POST,
            path: url.path(),
            header: Some(("x-webhook-secret", task.webhook_token.clone())),
            body: Some(report),
        })
        .await?;
    Some((response.status, response.body))
}

/// Restarts the machine after a delay, unless it is powered off before.
async fn restart_after(world: &Arc<World>, boot: &BootContext, delay: Duration, time: u32) {
    let Ok(serial) = boot.serial.parse() else { return };
    tokio::select! {
        biased;
        () = boot.cancel.cancelled() => {}
        () = tokio::time::sleep(delay) => world.restart(&serial, time),
    }
}

/// The target of the maintenance OS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The maintenance OS installs and reports.
    Install,
    /// An installer that cannot report.
    Scripted,
    /// The maintenance OS waits for an operator.
    Rescue,
}

/// Finds the task of this machine on its media.
async fn find_task(world: &Arc<World>, boot: &BootContext) -> Option<(Task, Target)> {
    let mut read = false;
    for _ in 0..MEDIA_TRIES {
        for medium in boot.media.iter().rev() {
            let Some(bytes) = world.image(medium.url.as_str()).await else { continue };
            read = true;
            let Ok(image) = iso9660::Image::open(bytes.to_vec()) else { continue };
            for folder in ["", "task/"] {
                let task = image.read(&format!("{folder}job.json"), MAX_DOCUMENT).ok();
                let task = task.and_then(|bytes| serde_json::from_slice::<Task>(&bytes).ok());
                if let Some(task) = task.filter(|task| task.server_serial == boot.serial) {
                    let scripted = image.read(&format!("{folder}ks.cfg"), MAX_DOCUMENT).is_ok();
                    let recipe = image.read(&format!("{folder}recipe.json"), MAX_DOCUMENT).ok();
                    let recipe = recipe.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
                    let rescues = recipe.is_some_and(|recipe| recipe["task_target"] == "rescue.target");
                    let target = match (scripted, rescues) {
                        (true, _) => Target::Scripted,
                        (false, true) => Target::Rescue,
                        (false, false) => Target::Install,
                    };
                    return Some((task, target));
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    world.note(&format!("{} finds no task", boot.serial));
    if let (false, Ok(serial), BootSource::Media { url, .. }) = (read, boot.serial.parse(), &boot.boots_from)
    {
        world.checker.booted_without_a_read(world.observer(), &serial, url.as_str());
    }
    None
}
