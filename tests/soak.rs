//! The soak: a controller under load that is killed every few seconds. No acknowledged write is lost, no job is stuck, no
//! host boots twice from its boot image, and the memory and open files of the process do not grow.
//!
//! ```text
//!   a client per server: request -> (report | failure | cancel) -> end, each repeated until it is acknowledged
//!   a listener         : every event once and in order, over all crashes        ledger: what was acknowledged
//!   the kills          : SIGKILL, every few seconds                             check:  whether it is stored
//! ```
//!
//! `SOAK_SECONDS` sets the length. The last quarter is without kills, to measure growth. Decisions D5, D6, D7 and D8.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab_machines::{Farm, HostKind, ServerSpec};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::kit::{Client, ControllerProcess, DataDir, POLL_INTERVAL, recipe, start_farm};

const SERVERS: usize = 8;
const SECRET: &str = "the-secret-of-all-reports-of-the-soak";
/// The maximum time without a response or an end. It is longer than a job takes while controllers are killed.
const STUCK: Duration = Duration::from_secs(90);
/// The shortest time until a kill. The others are up to `LIVES` times as long.
const LIFE: Duration = Duration::from_millis(1500);
const LIVES: u32 = 4;
/// The memory that the last controller may gain while it runs undisturbed.
const GROWTH: u64 = 24 << 20;

/// The end that a client wants for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WantedEnd {
    Succeeds,
    Fails,
    Cancelled,
}

/// A job whose creation was acknowledged.
#[derive(Clone, Debug)]
struct Entry {
    server: usize,
    id: String,
    wanted_end: WantedEnd,
    /// Whether a report was acknowledged: then its host has booted.
    reported: bool,
    /// The time from its request to its end.
    took: Duration,
}

type Ledger = Arc<Mutex<Vec<Entry>>>;

/// Repeats a request until the response is neither a server error nor a rate limit.
async fn acknowledged(client: &Client, what: &str, request: impl Fn() -> RequestBuilder) -> (u16, Value) {
    let began = Instant::now();
    loop {
        if let Ok(response) = client.try_send(request()).await
            && response.status < 500
            && response.status != 429
        {
            return (response.status, if response.body.is_empty() { Value::Null } else { response.json() });
        }
        assert!(began.elapsed() < STUCK, "{what} gets no response");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a job satisfies `wanted` or has ended.
async fn reached(client: &Client, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let (status, job) = acknowledged(client, "a read of a job", || {
            client.request(Method::GET, &format!("/api/v1/jobs/{id}"))
        })
        .await;
        assert_eq!(status, 200, "job {id} was acknowledged and is gone: {job}");
        if wanted(&job) || job["status"] == "complete" {
            return job;
        }
        assert!(began.elapsed() < STUCK, "timeout: {what} of job {id}: {job:#}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Runs one job after another on one server.
async fn client(client: Client, server: usize, ledger: Ledger, over: CancellationToken) {
    let serial = serial(server);
    for number in 0.. {
        if over.is_cancelled() {
            return;
        }
        let wanted_end = match (server + number) % 5 {
            0 => WantedEnd::Fails,
            1 => WantedEnd::Cancelled,
            _ => WantedEnd::Succeeds,
        };
        let began = Instant::now();
        let order = json!({ "server_serial": serial, "recipe": external_recipe() });
        let (status, job) = acknowledged(&client, "a job request", || {
            let request = client.request(Method::POST, "/api/v1/jobs").json(&order);
            request.header("Idempotency-Key", format!("{serial}-{number}"))
        })
        .await;
        assert!(status == 202 || status == 200, "a job request is refused: {status} {job}");
        let id = job["job_id"].as_str().unwrap().to_owned();
        let place = {
            let mut ledger = ledger.lock().unwrap();
            ledger.push(Entry { server, id: id.clone(), wanted_end, reported: false, took: Duration::ZERO });
            ledger.len() - 1
        };
        match wanted_end {
            WantedEnd::Cancelled => {
                // The cancel comes at a random point of the job.
                reached(&client, &id, "the start", |job| job["status"] != "queued" || number % 2 == 0).await;
                let cancel = format!("/api/v1/jobs/{id}/cancel");
                let (status, response) = acknowledged(&client, "a cancel", || {
                    client.request(Method::POST, &cancel).json(&json!({}))
                })
                .await;
                assert!((200..300).contains(&status), "a cancel is refused: {status} {response}");
            }
            WantedEnd::Succeeds | WantedEnd::Fails => {
                let waits =
                    reached(&client, &id, "the wait for the report", |job| job["wait"]["reason"] == "report")
                        .await;
                let report = match wanted_end {
                    WantedEnd::Fails => {
                        json!({ "status": "failed", "failed_step": "partition.service", "job_id": id })
                    }
                    _ => json!({ "status": "success", "job_id": id }),
                };
                let webhook = format!("/api/v1/status-webhook/{serial}");
                let (status, response) = acknowledged(&client, "a report", || {
                    client.request(Method::POST, &webhook).header("X-Webhook-Secret", SECRET).json(&report)
                })
                .await;
                assert_eq!(status, 200, "a report is refused: {response}; the job was seen as {waits:#}");
                ledger.lock().unwrap()[place].reported = true;
            }
        }
        reached(&client, &id, "the end", |_| false).await;
        ledger.lock().unwrap()[place].took = began.elapsed();
    }
}

/// Asserts that every event comes once and in order over all kills. Returns their number.
async fn listener(client: Client, over: CancellationToken) -> i64 {
    let mut last = 0;
    while !over.is_cancelled() {
        let request = client
            .request(Method::GET, "/api/v1/events")
            .header("accept", "text/event-stream")
            .header("last-event-id", last.to_string());
        let Ok(mut stream) = request.send().await else {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        };
        let mut text = String::new();
        loop {
            let part = tokio::select! {
                () = over.cancelled() => break,
                part = stream.chunk() => part,
            };
            let Ok(Some(part)) = part else { break };
            text.push_str(std::str::from_utf8(&part).unwrap());
            while let Some(end) = text.find("\n\n") {
                let block: String = text.drain(..end + 2).collect();
                let Some(id) = block.lines().find_map(|line| line.strip_prefix("id: ")) else { continue };
                let id: i64 = id.parse().unwrap();
                assert_eq!(id, last + 1, "an event is missing or duplicated");
                last = id;
            }
        }
    }
    last
}

/// Returns the resident bytes and open files of a process.
fn used(served: &ControllerProcess) -> (u64, usize) {
    let proc = std::path::PathBuf::from(format!("/proc/{}", served.pid()));
    let status = std::fs::read_to_string(proc.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    (kib * 1024, std::fs::read_dir(proc.join("fd")).unwrap().count())
}

fn serial(server: usize) -> String {
    format!("SOAK-{server}")
}

/// Returns a recipe whose OS image is in another registry, so that no image is needed.
fn external_recipe() -> Value {
    let mut recipe = recipe();
    recipe["oci_url"] = json!("registry.example/os-images/ubuntu-rootfs:22.04");
    recipe
}

/// The result of a soak: its data, its machines, and what was acknowledged.
struct Soaked {
    data: DataDir,
    last: ControllerProcess,
    farm: Farm,
    ledger: Vec<Entry>,
    kills: usize,
}

#[expect(clippy::print_stdout, reason = "the result of a soak is printed")]
async fn soak(length: Duration) -> Soaked {
    let mut data = DataDir::new()
        .with("LOG_LEVEL", "info")
        .with("REDFISH_RATE", "0")
        .with("WORKER_CONCURRENCY", "8")
        .with("SOAK_SECRET", SECRET)
        .with("WEBHOOK_SECRET", "env:SOAK_SECRET");
    let mut served = data.serve().await;
    let specs = (0..SERVERS).map(|server| {
        let mut spec = ServerSpec::new(serial(server));
        spec.host = HostKind::Idle;
        spec
    });
    let farm = start_farm(specs.collect(), data.path()).await;
    for server in farm.servers() {
        served.admin.register(server).await;
    }

    let began = Instant::now();
    let (ledger, over, quiet) = (Ledger::default(), CancellationToken::new(), CancellationToken::new());
    let mut clients = JoinSet::new();
    for server in 0..SERVERS {
        clients.spawn(client(served.admin.clone(), server, Arc::clone(&ledger), over.clone()));
    }
    let listener = tokio::spawn(listener(served.admin.clone(), quiet.clone()));
    // The first client that fails ends the soak.
    let watched = async |clients: &mut JoinSet<()>, time: Duration| {
        if let Ok(Some(ended)) = tokio::time::timeout(time, clients.join_next()).await {
            ended.unwrap();
            panic!("a client ended early");
        }
    };

    let mut kills = 0;
    while began.elapsed() < length * 3 / 4 {
        watched(&mut clients, LIFE * (1 + kills as u32 % LIVES)).await;
        served.kill();
        kills += 1;
        served = data.serve().await;
    }
    let rest = length.saturating_sub(began.elapsed());
    watched(&mut clients, rest / 3).await;
    let before = used(&served);
    watched(&mut clients, rest * 2 / 3).await;
    let after = used(&served);
    assert!(after.0 < before.0 + GROWTH, "memory grew from {} to {} bytes", before.0, after.0);
    assert!(after.1 <= before.1 + 2 * SERVERS, "open files grew from {} to {}", before.1, after.1);

    over.cancel();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    quiet.cancel();
    let received = listener.await.unwrap();
    let ledger = ledger.lock().unwrap().clone();
    let longest = ledger.iter().max_by_key(|entry| entry.took).unwrap();
    println!("the longest job, {:?}:\n{}", longest.took, served.admin.event_log(&longest.id).await);
    println!(
        "soak: {} s, {kills} kills, {} jobs, {received} events received, {:.1} -> {:.1} MB, {} -> {} files",
        began.elapsed().as_secs(),
        ledger.len(),
        before.0 as f64 / 1e6,
        after.0 as f64 / 1e6,
        before.1,
        after.1
    );
    Soaked { data, last: served, farm, ledger, kills }
}

/// Checks all that was acknowledged against the database and the machines.
async fn check_acknowledged(client: &Client, farm: &Farm, ledger: &[Entry]) -> Result<(), String> {
    for entry in ledger {
        let response = client.get(&format!("/api/v1/jobs/{}", entry.id)).await;
        if response.status != 200 {
            return Err(format!("job {} was acknowledged and is gone", entry.id));
        }
        let job = response.json();
        let expected = match entry.wanted_end {
            WantedEnd::Succeeds => "succeeded",
            WantedEnd::Fails => "failed",
            WantedEnd::Cancelled => "cancelled",
        };
        if job["status"] != "complete" || job["outcome"] != expected || job["cleanup"]["state"] != "done" {
            return Err(format!("job {} is not {expected}: {job:#}", entry.id));
        }
    }
    for (number, server) in farm.servers().iter().enumerate() {
        let machine = server.bmc.snapshot();
        let of = |wanted: &dyn Fn(&Entry) -> bool| {
            ledger.iter().filter(|entry| entry.server == number && wanted(entry)).count()
        };
        let (reported, all) = (of(&|entry| entry.reported), of(&|_| true));
        let boots = usize::try_from(machine.boots_from_media).unwrap();
        if boots < reported || boots > all || machine.ejected_while_running > 0 {
            return Err(format!(
                "{} booted {boots} times for {reported} to {all} jobs: {machine:?}",
                server.serial
            ));
        }
        if machine.slots.iter().any(|slot| slot.image.is_some()) {
            return Err(format!("{} still holds an image: {machine:?}", server.serial));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute of load, run by .ci/run"]
async fn nothing_acknowledged_is_lost_however_often_the_controller_is_killed() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(60, |text| text.parse().unwrap());
    let soaked = soak(Duration::from_secs(seconds)).await;
    check_acknowledged(&soaked.last.admin, &soaked.farm, &soaked.ledger).await.unwrap();
    assert!(soaked.kills > 0 && soaked.ledger.len() > SERVERS);
    soaked.farm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten seconds of load, run by .ci/run"]
async fn the_soak_detects_a_lost_job() {
    let Soaked { mut data, last, farm, ledger, .. } = soak(Duration::from_secs(8)).await;
    check_acknowledged(&last.admin, &farm, &ledger).await.unwrap();
    last.kill();
    let lost = &ledger[ledger.len() / 2].id;
    let database = rusqlite::Connection::open(data.path().join("data/provisioner.db")).unwrap();
    let rows = database.execute("DELETE FROM runs WHERE id = ?1", [lost]).unwrap();
    assert_eq!(rows, 1);
    drop(database);
    let successor = data.serve().await;
    let found = check_acknowledged(&successor.admin, &farm, &ledger).await.unwrap_err();
    assert!(found.contains(lost.as_str()), "{found}");
    farm.shutdown().await;
}
