//! Workers elsewhere: the real program near simulated BMCs, over sockets. A worker is killed, stopped, paused and refused; its runs are
//! continued by another one, and nothing is written by one that is late.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lab_bmc::{Fault, FaultCondition, FaultEffect, FaultTrigger, Graceful, Power, SimBmc, SimBmcConfig};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use settings::{Settings, Sources};

use crate::firmware_install::{self as install, File as Image, NEW};
use crate::kit::{
    BMC_PASSWORD, Client, DataDir, POLL_INTERVAL, Scene, TIME_LIMIT, binary, healthy, logged_out, silent,
    soon, start_farm, with_bmc,
};

pub(crate) const SERIAL: &str = "FAR-1";
pub(crate) const FAR: &str = "facility-b";
/// More than the lease and the time that another worker waits after it.
const LEASE_OVER: Duration = Duration::from_secs(700);

/// A worker in its own process.
pub(crate) struct Elsewhere {
    child: Option<Child>,
    log: PathBuf,
}

/// How a worker reaches its controller.
pub(crate) struct Place<'a> {
    url: String,
    authority: Option<PathBuf>,
    folder: &'a std::path::Path,
}

impl Elsewhere {
    fn start(place: &Place<'_>, name: &str, token: &str, queue: &str) -> Self {
        Self::start_with(place, name, token, queue, &[])
    }

    pub(crate) fn start_with(place: &Place<'_>, name: &str, token: &str, queue: &str, more: &[&str]) -> Self {
        let log = place.folder.join(format!("{name}.log"));
        let mut command = binary(&["worker", "--controller", &place.url, "--queue", queue, "--name", name]);
        command.env("SHOAL_TOKEN", token).env("LOG_LEVEL", "trace").env("STORAGE_ROOT", "/nonexistent");
        if let Some(authority) = &place.authority {
            command.arg("--ca-file").arg(authority);
        }
        command.arg("--spool").arg(place.folder).args(more);
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        Self { child: Some(child), log }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// Ends the process with SIGKILL.
    fn kill(self) {
        drop(self);
    }

    async fn ended(mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().unwrap();
        let waited = tokio::task::spawn_blocking(move || child.wait());
        let status = soon("the end of the worker", waited).await.unwrap().unwrap();
        (status, self.log())
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    pub(crate) async fn logged(&self, text: &str) {
        let deadline = Instant::now() + TIME_LIMIT;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} is not in the log:\n{}", self.log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended already.
            let _gone = child.kill();
            child.wait().unwrap();
        }
    }
}

pub(crate) fn plain(scene: &Scene) -> Place<'_> {
    Place { url: scene.admin.base.clone(), authority: None, folder: scene.folder.path() }
}

/// The label `queue` of a server.
pub(crate) async fn put_in_queue(client: &Client, serial: &str) {
    let body = json!({ "labels": { "queue": FAR }, "bmc_password": BMC_PASSWORD });
    client.patch(&format!("/api/v1/servers/{serial}"), &body).await.expect(200);
}

pub(crate) async fn token(client: &Client, name: &str, queue: &str) -> String {
    let body = json!({ "name": name, "queues": [queue] });
    let issued = client.post("/api/v1/worker-tokens", &body).await.expect(201);
    issued["token"].as_str().unwrap().to_owned()
}

/// A server of the queue, whose host runs.
async fn scene(change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    let spec = with_bmc(healthy(SERIAL), |bmc| {
        bmc.starts_on = true;
        change(bmc);
    });
    let scene = Scene::start_with(vec![spec], |settings, _| install::quick(settings)).await;
    put_in_queue(&scene.admin, SERIAL).await;
    scene
}

pub(crate) async fn power_cycle(client: &Client) -> String {
    let body = json!({ "kind": "powerCycleHard" });
    let created = client.post(&format!("/api/v1/servers/{SERIAL}/condition"), &body).await.expect(200);
    created["id"].as_str().unwrap().to_owned()
}

pub(crate) async fn succeeded(scene: &Scene, id: &str) -> Value {
    let job = scene.complete_skipping(id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(id).await);
    job
}

/// Sends a message as a worker.
async fn message(scene: &Scene, token: &str, name: &str, body: Value) -> (u16, Value) {
    let request = scene.anonymous().request(Method::POST, &format!("/worker/v1/{name}"));
    let sent = request.bearer_auth(token).header("shoal-worker", "by-hand").json(&body);
    let response = scene.anonymous().send(sent).await;
    let read = serde_json::from_slice(&response.body).unwrap_or_default();
    (response.status, read)
}

fn hello() -> Value {
    json!({ "protocol": engine::PROTOCOL, "version": "by hand", "workflows": worker::workflows(), "queues": [] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cycle_runs_at_a_worker_over_https_and_no_secret_is_logged() {
    let scene = scene(|_| {}).await;
    let id = power_cycle(&scene.admin).await;
    let why = scene.admin.explain(&id).await;
    assert!(
        why["summary"].as_str().unwrap().contains("no worker serves the queue \"facility-b\""),
        "{why:#}"
    );
    assert!(why["next_action"].as_str().unwrap().contains("shoal worker"), "{why:#}");
    let metrics = scene.admin.get("/metrics").await.text();
    let gauge = "queue_without_worker_seconds{queue=\"facility-b\"}";
    assert!(metrics.lines().any(|line| line.starts_with(gauge)), "{metrics}");

    let token = token(&scene.admin, "b", FAR).await;
    let authority = scene.folder.path().join("ca.pem");
    std::fs::write(&authority, scene.running.certificates.as_ref().unwrap().authority()).unwrap();
    let url = format!("https://{}", scene.running.https.unwrap());
    let place = Place { url, authority: Some(authority), folder: scene.folder.path() };
    let worker = Elsewhere::start(&place, "w1", &token, FAR);
    succeeded(&scene, &id).await;
    let bmc = logged_out(scene.bmc(SERIAL)).await;
    assert_eq!((bmc.power, scene.bmc(SERIAL).power_ons()), (Power::On, 1));
    let events = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let connected = |event: &&Value| event["type"] == "worker.connected";
    let connected: Vec<&Value> = events["events"].as_array().unwrap().iter().filter(connected).collect();
    assert_eq!(connected.len(), 1, "{events:#}");
    assert!(connected[0]["message"].as_str().unwrap().contains("it serves: facility-b"), "{connected:?}");
    let listed = scene.admin.get("/api/v1/worker-tokens").await.expect(200);
    assert_eq!(
        (&listed["workers"][0]["token"], &listed["workers"][0]["queues"]),
        (&json!("b"), &json!([FAR])),
        "{listed:#}"
    );
    assert!(listed["workers"][0]["process"].as_str().unwrap().starts_with("w1-"), "{listed:#}");
    assert!(!listed.to_string().contains(&token));

    worker.signal(Signal::TERM);
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    for secret in [BMC_PASSWORD, &token] {
        assert!(!log.contains(secret), "a secret is in the log of the worker:\n{log}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_power_cycle_of_a_killed_worker_is_continued_by_another() {
    let scene = scene(|bmc| bmc.power.off_time = Duration::from_millis(1500)).await;
    let token = token(&scene.admin, "b", FAR).await;
    let first = Elsewhere::start(&plain(&scene), "w1", &token, FAR);
    let id = power_cycle(&scene.admin).await;
    soon("the request", scene.bmc(SERIAL).wait_for(|bmc| bmc.power == Power::PoweringOff)).await;
    first.kill();
    let _second = Elsewhere::start(&plain(&scene), "w2", &token, FAR);
    scene.skip(LEASE_OVER);
    succeeded(&scene, &id).await;
    assert_eq!((scene.bmc(SERIAL).snapshot().power, scene.bmc(SERIAL).power_ons()), (Power::On, 1));
    scene.end().await;
}

/// The field `controller` of the power cycle, while the run is parked or has ended: no worker has its lease.
async fn last_worker(scene: &Scene) -> String {
    let shown = scene.admin.get(&format!("/api/v1/servers/{SERIAL}/condition?kind=powerCycleSoft")).await;
    shown.expect(200)["controller"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_condition_names_the_worker_that_worked_on_it_last() {
    let scene = scene(|bmc| bmc.power.graceful = Graceful::IgnoredByHost).await;
    let token = token(&scene.admin, "b", FAR).await;
    let body = json!({ "kind": "powerCycleSoft", "parameters": { "force": true, "grace_seconds": 600 } });
    let created = scene.admin.post(&format!("/api/v1/servers/{SERIAL}/condition"), &body).await.expect(200);
    assert_eq!(created["controller"], Value::Null, "no worker serves the queue yet: {created:#}");
    let id = created["id"].as_str().unwrap();
    let first = Elsewhere::start(&plain(&scene), "w1", &token, FAR);
    let parked = |job: &Value| job["wait"]["reason"] == "graceful_shutdown";
    scene.wait_skipping(id, "the grace period", parked).await;
    let name = last_worker(&scene).await;
    assert!(name.starts_with("worker/b/w1-"), "{name}");
    first.kill();
    let _second = Elsewhere::start(&plain(&scene), "w2", &token, FAR);
    scene.skip(LEASE_OVER);
    succeeded(&scene, id).await;
    let name = last_worker(&scene).await;
    assert!(name.starts_with("worker/b/w2-"), "{name}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_firmware_installation_of_a_killed_worker_is_continued_and_its_image_is_sent_once() {
    let scene = install::scene("generic", |bmc| bmc.update.flash_time = Duration::from_secs(2)).await;
    put_in_queue(&scene.admin, install::SERIAL).await;
    install::set_of(&scene.admin, "generic", &[Image::of("bios", NEW)]).await;
    let token = token(&scene.admin, "b", FAR).await;
    let first = Elsewhere::start(&plain(&scene), "w1", &token, FAR);
    let id = install::order(&scene, json!({ "firmware_set": "all" })).await;
    let bmc: SimBmc = scene.bmc(install::SERIAL).clone();
    let sent = scene.wait_skipping(&id, "the upload", |_| bmc.snapshot().images == 1);
    sent.await;
    first.kill();
    let _second = Elsewhere::start(&plain(&scene), "w2", &token, FAR);
    scene.skip(LEASE_OVER);
    succeeded(&scene, &id).await;
    assert_eq!((bmc.snapshot().images, install::version(&bmc, "bios").as_str()), (1, NEW));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_a_killed_worker_are_written_once_and_verified_by_another() {
    let scene = install::scene("generic", |_| {}).await;
    put_in_queue(&scene.admin, install::SERIAL).await;
    let token = token(&scene.admin, "b", FAR).await;
    let first = Elsewhere::start(&plain(&scene), "w1", &token, FAR);
    let body = json!({ "kind": "biosApply", "parameters": { "attributes": { "BootMode": "Legacy" } } });
    let created = scene.admin.post(&install::place("condition"), &body).await.expect(200);
    let id = created["id"].as_str().unwrap();
    let bmc: SimBmc = scene.bmc(install::SERIAL).clone();
    soon("the write", bmc.wait_for(|bmc| bmc.bios_writes == 1)).await;
    first.kill();
    let _second = Elsewhere::start(&plain(&scene), "w2", &token, FAR);
    scene.skip(LEASE_OVER);
    succeeded(&scene, id).await;
    let end = bmc.snapshot();
    assert_eq!((end.bios_writes, end.power_ons, end.power), (1, 1, Power::On));
    assert_eq!(bmc.bios_attributes()["BootMode"], "Legacy");
    let events = scene.admin.event_log(id).await;
    assert!(events.contains("took over from worker/b/w1-"), "{events}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_continues_after_its_lease_writes_nothing() {
    let scene = scene(|bmc| bmc.power.off_time = Duration::from_millis(1500)).await;
    // The worker is in a call when it is stopped, and has its lease: it reads the power state back.
    let slow = Fault::once(FaultTrigger::Read, FaultEffect::Delay(Duration::from_secs(3)));
    scene.bmc(SERIAL).inject(slow.only_if(FaultCondition::Power(Power::PoweringOff)));
    let token = token(&scene.admin, "b", FAR).await;
    let late = Elsewhere::start(&plain(&scene), "late", &token, FAR);
    let id = power_cycle(&scene.admin).await;
    soon("the request", scene.bmc(SERIAL).wait_for(|bmc| bmc.power == Power::PoweringOff)).await;
    late.signal(Signal::STOP);
    // Its order of further calls stays open, and must not be given its own run again.
    let _second = Elsewhere::start(&plain(&scene), "w2", &token, FAR);
    scene.skip(LEASE_OVER);
    succeeded(&scene, &id).await;
    let (events, job) = (scene.admin.event_log(&id).await, scene.admin.job(&id).await);
    assert_eq!(events.matches("took over from worker/b/late-").count(), 1, "{events}");
    assert!(!events.contains("took over from worker/b/w2-"), "{events}");
    let sent = scene.bmc(SERIAL).mutations().len();
    late.signal(Signal::CONT);
    late.signal(Signal::TERM);
    let (status, log) = late.ended().await;
    assert!(status.success(), "{log}");
    assert_eq!(scene.admin.event_log(&id).await, events, "{log}");
    assert_eq!(scene.admin.job(&id).await["revision"], job["revision"], "{log}");
    assert_eq!(scene.bmc(SERIAL).mutations().len(), sent, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_leaves_its_run_to_another_at_once() {
    let scene = scene(|bmc| bmc.power.off_time = Duration::from_millis(500)).await;
    let token = token(&scene.admin, "b", FAR).await;
    let first = Elsewhere::start(&plain(&scene), "w1", &token, FAR);
    let id = power_cycle(&scene.admin).await;
    soon("the request", scene.bmc(SERIAL).wait_for(|bmc| bmc.power == Power::PoweringOff)).await;
    first.signal(Signal::TERM);
    let (status, log) = first.ended().await;
    assert!(status.success(), "{log}");
    let _second = Elsewhere::start(&plain(&scene), "w2", &token, FAR);
    // Nothing but the waits of the run is skipped: the lease was given back.
    succeeded(&scene, &id).await;
    assert_eq!(scene.bmc(SERIAL).power_ons(), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_its_worker_with_words_and_opens_nothing() {
    let scene = scene(|_| {}).await;
    let token = token(&scene.admin, "b", FAR).await;
    let worker = Elsewhere::start(&plain(&scene), "w1", &token, FAR);
    worker.logged("the worker is connected").await;
    scene.admin.delete("/api/v1/worker-tokens/b").await.expect(204);
    scene.admin.delete("/api/v1/worker-tokens/b").await.refused(404, "unknown_worker_token");
    let (status, log) = worker.ended().await;
    assert_eq!(status.code(), Some(5), "{log}");
    assert!(log.contains("was revoked") && log.contains("shoal worker token create"), "{log}");
    assert_eq!(message(&scene, &token, "hello", hello()).await.0, 401);
    let listed = scene.admin.get("/api/v1/worker-tokens").await.expect(200);
    assert_eq!((&listed["tokens"], &listed["workers"]), (&json!([]), &json!([])));
    let audit = scene.admin.get("/api/v1/audit?action=worker-token.*").await.expect(200);
    let actions: Vec<&str> =
        audit["entries"].as_array().unwrap().iter().filter_map(|entry| entry["action"].as_str()).collect();
    assert!(
        actions.contains(&"worker-token.create") && actions.contains(&"worker-token.revoke"),
        "{audit:#}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_one_queue_receives_nothing_of_another() {
    let scene = scene(|_| {}).await;
    let other = token(&scene.admin, "c", "facility-c").await;
    let id = power_cycle(&scene.admin).await;
    let wrong = Elsewhere::start(&plain(&scene), "w1", &other, FAR);
    let (status, log) = wrong.ended().await;
    assert_eq!(status.code(), Some(5), "{log}");
    assert!(
        log.contains("is not for the queue \\\"facility-b\\\"")
            || log.contains("is not for the queue \"facility-b\""),
        "{log}"
    );

    assert_eq!(message(&scene, &other, "hello", hello()).await.0, 200);
    let waiting = message(&scene, &other, "claim", json!({ "limit": 10 }));
    // An order ends the one before it, in whatever order the two arrive.
    let ending = async {
        loop {
            message(&scene, &other, "claim", json!({ "limit": 0 })).await;
        }
    };
    let (status, claims) = tokio::select! {
        answered = waiting => answered,
        _ = ending => unreachable!("the orders have no end"),
    };
    assert_eq!((status, &claims["calls"]), (200, &json!([])));
    assert_eq!(scene.admin.job(&id).await["status"], "queued");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_and_other_credentials_are_refused_with_words() {
    let scene = scene(|_| {}).await;
    let token = token(&scene.admin, "b", FAR).await;
    let mut newer = hello();
    newer["protocol"] = json!(engine::PROTOCOL + 1);
    let (status, body) = message(&scene, &token, "hello", newer).await;
    assert_eq!((status, &body["error"]), (409, &json!("conflict.worker_version")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("run version"), "{body}");
    let mut other = hello();
    other["workflows"] = json!({ "power.cycle": 1 });
    let (status, body) = message(&scene, &token, "hello", other).await;
    assert_eq!((status, &body["error"]), (409, &json!("conflict.worker_version")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("does not have the workflow"), "{body}");
    let mut other = hello();
    other["workflows"]["power.cycle"] = json!(99);
    let (status, body) = message(&scene, &token, "hello", other).await;
    assert_eq!(status, 409, "{body}");
    assert!(body["message"].as_str().unwrap().contains("power.cycle"), "{body}");

    let (status, body) = message(&scene, &token, "claim", json!({ "limit": 1 })).await;
    assert_eq!((status, &body["error"]), (409, &json!("conflict.worker_hello")), "{body}");
    assert_eq!(message(&scene, scene.admin.token(), "hello", hello()).await.0, 401, "an API token");
    scene.admin.with_token(&token).get("/api/v1/me").await.refused(401, "unauthorized");
    let own = json!({ "name": "own", "queues": ["default"] });
    scene.admin.post("/api/v1/worker-tokens", &own).await.refused(400, "validation_error");
    let twice = json!({ "name": "b", "queues": [FAR] });
    scene.admin.post("/api/v1/worker-tokens", &twice).await.refused(409, "conflict.name");

    assert_eq!(message(&scene, &token, "hello", hello()).await.0, 200);
    let key = json!({ "run": uuid::Uuid::now_v7(), "epoch": 1, "at": { "stage": "forward", "index": 0 }, "attempt": 1 });
    let (status, body) = message(&scene, &token, "hardware", json!({ "key": key })).await;
    assert!(matches!(status, 400 | 403), "an inventory of no call: {status} {body}");
    let long = "x".repeat(engine::MAX_MESSAGE + 1);
    assert_eq!(message(&scene, &token, "claim", json!({ "limit": long })).await.0, 413);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_that_the_database_refused_is_announced_by_the_next_one() {
    let scene = scene(|_| {}).await;
    let token = token(&scene.admin, "b", FAR).await;
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.type = 'worker.connected' \
                  BEGIN SELECT RAISE(ABORT, 'no'); END";
    database.execute_batch(refuse).unwrap();
    let (status, body) = message(&scene, &token, "hello", hello()).await;
    assert!(status >= 500, "{status} {body}");
    database.execute_batch("DROP TRIGGER refuse").unwrap();
    for _ in 0..2 {
        assert_eq!(message(&scene, &token, "hello", hello()).await.0, 200);
    }
    let events = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let events = events["events"].as_array().unwrap();
    let connected = events.iter().filter(|event| event["type"] == "worker.connected").count();
    assert_eq!(connected, 1, "{events:#?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_connects_again_after_a_restart_of_the_controller() {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let farm = start_farm(vec![with_bmc(silent(SERIAL), |bmc| bmc.starts_on = true)], data.path()).await;
    controller.admin.register(farm.server(SERIAL).unwrap()).await;
    put_in_queue(&controller.admin, SERIAL).await;
    let token = token(&controller.admin, "b", FAR).await;
    let url = data.base().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let worker = Elsewhere::start(&Place { url, authority: None, folder: folder.path() }, "w1", &token, FAR);
    worker.logged("the worker is connected").await;
    controller.kill();
    worker.logged("the controller cannot be reached").await;
    let controller = data.serve().await;
    let id = power_cycle(&controller.admin).await;
    let job = controller.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", controller.admin.event_log(&id).await);
    worker.signal(Signal::TERM);
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log}");
    let logs = data.logs();
    for secret in [BMC_PASSWORD, &token] {
        assert!(!logs.contains(secret), "a secret is in the log of the controller");
    }
    farm.shutdown().await;
    assert!(controller.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_queue_needs_the_password_of_the_bmc() {
    let scene = scene(|_| {}).await;
    let place = format!("/api/v1/servers/{SERIAL}");
    let label = |queue: Value| json!({ "labels": { "queue": queue } });
    let refused = scene.admin.patch(&place, &label(json!("facility-c"))).await;
    let body = refused.refused(422, "bmc_password_needed");
    assert!(body["message"].as_str().unwrap().contains("workers of another queue"), "{body}");
    // Nothing is sent to another machine by these.
    scene.admin.patch(&place, &json!({ "labels": { "rack": "r1" } })).await.expect(200);
    scene.admin.patch(&place, &label(json!(FAR))).await.expect(200);
    scene.admin.patch(&place, &label(Value::Null)).await.expect(200);
    scene.admin.patch(&place, &label(json!(FAR))).await.refused(422, "bmc_password_needed");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_of_workers_is_open_without_the_token_of_a_worker() {
    let scene = scene(|_| {}).await;
    let asked = async |client: &Client, route: &str| {
        let request = client.request(Method::POST, route).header("shoal-worker", "by-hand");
        client.send(request.json(&json!({}))).await.status
    };
    for route in include_str!("../golden/worker-routes.txt").lines() {
        assert_eq!(asked(&scene.anonymous(), route).await, 401, "{route} without a token");
    }
    // A few more wrong tokens of one address are refused unread.
    for route in include_str!("../golden/worker-routes.txt").lines() {
        let status = asked(&scene.admin, route).await;
        assert!([401, 429].contains(&status), "{route} with an API token: {status}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_of_an_address_refuse_no_worker_with_its_token_behind_it() {
    let scene = scene(|_| {}).await;
    let right = token(&scene.admin, "far", FAR).await;
    let mut refused = 0;
    for _guess in 0..50 {
        let (status, _) = message(&scene, "wrong", "hello", hello()).await;
        refused += u32::from(status == 429);
    }
    assert!(refused > 0, "guesses are limited");
    let (status, body) = message(&scene, &right, "hello", hello()).await;
    assert_eq!(status, 200, "{body}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_gives_connected_workers_the_new_authorities_of_bmcs() {
    let scene = scene(|_| {}).await;
    let token = token(&scene.admin, "b", FAR).await;
    let (status, welcome) = message(&scene, &token, "hello", hello()).await;
    assert_eq!((status, &welcome["redfish"]["authorities"]), (200, &Value::Null), "{welcome}");
    let authority = scene.running.certificates.as_ref().unwrap().authority();
    let file = scene.folder.path().join("bmc-ca.pem");
    std::fs::write(&file, &authority).unwrap();
    let flags = [("STORAGE_ROOT", scene.folder.path().join("data")), ("REDFISH_CA_FILE", file)];
    let sources = Sources {
        flags: flags.map(|(name, path)| (name.to_owned(), path.display().to_string())).into(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    };
    scene.running.reload(&Settings::load(&sources).unwrap()).unwrap();
    let (status, body) = message(&scene, &token, "claim", json!({ "limit": 1 })).await;
    assert_eq!((status, &body["error"]), (409, &json!("conflict.worker_hello")), "{body}");
    let (_, welcome) = message(&scene, &token, "hello", hello()).await;
    assert_eq!(welcome["redfish"]["authorities"], json!(authority));
    scene.end().await;
}
