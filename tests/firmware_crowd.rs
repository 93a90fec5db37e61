//! What many installations of firmware at once cost the controller: open files and memory, measured from outside of its
//! process.
//!
//! ```text
//!   100 simulated BMCs ── GET of one 64 MB image each, slowly ──> controller (a process): files of the registry, sockets, memory
//!                      <── upload of one 64 MB image each ──────  the other way
//! ```
//!
//! The promise: an open image is one descriptor of its file for each BMC, and nothing of it is copied into memory. For 100 BMCs the
//! process grew by 162 MB: connections, TLS and buffers, of which a BMC has its own.

#![allow(clippy::print_stdout, reason = "the measured figures are for the reader of the run")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab_bmc::{Fault, FaultEffect, FaultTrigger, FetchFault, JournalItem, SimBmc, SimBmcConfig};
use lab_machines::HostKind;
use serde_json::json;

use crate::firmware_install::{File, NEW, set_named};
use crate::kit::{BMC_PASSWORD, BMC_USER, ControllerProcess, DataDir, silent, start_farm};

/// The number of bytes of the image.
const IMAGE: usize = 64_000_000;
/// The longest time of one measurement.
const LIMIT: Duration = Duration::from_secs(1800);

/// What the process holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    memory: u64,
    files: usize,
    /// Open files of blobs of the registry.
    images: usize,
    sockets: usize,
}

impl Held {
    fn of(served: &ControllerProcess) -> Self {
        let proc = std::path::PathBuf::from(format!("/proc/{}", served.pid()));
        let status = std::fs::read_to_string(proc.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        let mut held = Self { memory: kib * 1024, ..Self::default() };
        for entry in std::fs::read_dir(proc.join("fd")).unwrap().flatten() {
            held.files += 1;
            let target = std::fs::read_link(entry.path()).unwrap_or_default().display().to_string();
            held.sockets += usize::from(target.starts_with("socket:"));
            held.images += usize::from(target.contains("/registry/") || target.contains("sha256"));
        }
        held
    }

    fn peak(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            files: self.files.max(other.files),
            images: self.images.max(other.images),
            sockets: self.sockets.max(other.sockets),
        }
    }
}

fn serial(number: usize) -> String {
    format!("CROWD-{number}")
}

/// The requests of a BMC: those of polls of the update, and the others.
fn requests(bmc: &SimBmc) -> (usize, usize) {
    let paths = bmc.journal().into_iter().filter_map(|entry| match entry.what {
        JournalItem::Request { path, .. } => Some(path),
        JournalItem::Change(_) => None,
    });
    let (polls, others): (Vec<String>, Vec<String>) = paths.partition(|path| path.contains("/TaskService"));
    (polls.len(), others.len())
}

/// Installs one image on all servers at once. Returns what the idle process holds, and the peak.
async fn crowd(vendor: &str, servers: usize) -> (Held, Held) {
    let specs = (0..servers).map(|number| {
        let serial = serial(number);
        let bmc = SimBmcConfig::vendor(vendor, &serial, BMC_USER, BMC_PASSWORD).unwrap();
        let mut bmc = bmc.in_time(0.01);
        bmc.starts_on = true;
        bmc.journal_capacity = 2048;
        bmc.update.check_time = Duration::from_millis(30);
        bmc.update.flash_time = Duration::from_millis(150);
        let slow = FaultEffect::Fetch(FetchFault::Slow(Duration::from_millis(5)));
        bmc.faults.push(Fault::once(FaultTrigger::Update, slow));
        let mut spec = silent(&serial);
        spec.host = HostKind::Idle;
        spec.bmc = Some(Box::new(bmc));
        spec
    });
    let workers = servers.to_string();
    let mut data = DataDir::new()
        .with("LOG_LEVEL", "warn")
        .with("WORKER_CONCURRENCY", &workers)
        .with("REDFISH_RATE", "1000")
        .with("CONTROLLER_HTTPS_ADDR", "off");
    let controller = data.serve().await;
    let farm = start_farm(specs.collect(), data.path()).await;
    for server in farm.servers() {
        controller.admin.register(server).await;
    }
    set_named("all", &controller.admin, vendor, &[File::sized("bios", NEW, IMAGE)]).await;
    let idle = Held::of(&controller);
    let began = Instant::now();
    let mut jobs = BTreeMap::new();
    for number in 0..servers {
        let body = json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": "all" } });
        let place = format!("/api/v1/servers/{}/condition", serial(number));
        let created = controller.admin.post(&place, &body).await.expect(200);
        jobs.insert(created["id"].as_str().unwrap().to_owned(), ());
    }
    let mut peak = idle;
    while !jobs.is_empty() {
        assert!(began.elapsed() < LIMIT, "{} installations have not ended", jobs.len());
        for _ in 0..20 {
            peak = peak.peak(Held::of(&controller));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for id in jobs.keys().cloned().collect::<Vec<_>>() {
            let job = controller.admin.job(&id).await;
            if job["status"] == "complete" {
                assert_eq!(job["outcome"], "succeeded", "{job:#}");
                jobs.remove(&id);
            }
        }
    }
    let (polls, others) =
        farm.servers().iter().map(|server| requests(&server.bmc)).max_by_key(|(_, others)| *others).unwrap();
    println!(
        "{vendor}: {servers} BMCs, {} MB each, {:.0} s: idle {:.0} MB, {} files; peak {:.0} MB, {} files: {} of images, {} sockets; \
         the busiest BMC had {others} requests of one installation beside {polls} to its tasks",
        IMAGE / 1_000_000,
        began.elapsed().as_secs_f64(),
        idle.memory as f64 / 1e6,
        idle.files,
        peak.memory as f64 / 1e6,
        peak.files,
        peak.images,
        peak.sockets,
    );
    assert!(
        farm.servers().iter().all(|server| server.bmc.snapshot().images == 1),
        "every image arrived once"
    );
    farm.shutdown().await;
    controller.kill();
    (idle, peak)
}

/// The memory by which the process may grow: what every run costs, and connections and buffers for each BMC. A copy for each BMC would be
/// 64 MB for each.
fn most_growth(servers: usize) -> u64 {
    100_000_000 + 2_000_000 * servers as u64
}

/// Judges one file of an image for each BMC, and no copy in memory.
fn judge(servers: usize, (idle, peak): (Held, Held)) {
    assert!(peak.images > idle.images, "no open file of an image was seen: {idle:?} {peak:?}");
    assert!(peak.images - idle.images <= servers, "one open file of an image for each BMC: {peak:?}");
    let (grown, most) = (peak.memory - idle.memory, most_growth(servers));
    assert!(grown < most, "the images are not in memory: it grew by {grown} of {most} bytes");
}

fn servers() -> usize {
    std::env::var("CROWD_SERVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: CROWD_SERVERS (100) BMCs read 64 MB each; run by .ci/long"]
async fn an_image_that_many_bmcs_read_costs_one_file_each_and_no_copy() {
    let servers = servers();
    judge(servers, crowd("fujitsu-irmc", servers).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: 64 MB are uploaded to CROWD_SERVERS (100) BMCs; run by .ci/long"]
async fn an_image_that_is_uploaded_to_many_bmcs_costs_one_file_each_and_no_copy() {
    let servers = servers();
    judge(servers, crowd("generic", servers).await);
}
