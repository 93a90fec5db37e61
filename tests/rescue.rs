//! `rescue.target`: a machine that reports itself reachable, the session of an operator, and its end.

use std::time::Duration;

use lab_bmc::Power;
use serde_json::{Value, json};

use crate::kit::{Scene, recipe, silent};

pub(crate) const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGVleGFtcGxlZXhhbXBsZWV4YW1wbGU a@b";
const FINGERPRINT: &str = "SHA256:YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY";

fn rescue(more: Value) -> Value {
    let mut recipe = json!({ "task_target": "rescue.target", "ssh_authorized_keys": [KEY] });
    recipe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    recipe
}

fn reachable(address: &str) -> Value {
    json!({
        "status": "reachable", "addresses": [address], "ssh_host_key": FINGERPRINT, "consoles": ["tty1", "ttyS0"],
    })
}

/// A scene with a job that waits for its report.
struct Rescue {
    scene: Scene,
    serial: &'static str,
    id: String,
    token: String,
}

impl Rescue {
    async fn start(serial: &'static str, recipe: Value) -> Self {
        let scene = Scene::start(vec![silent(serial)]).await;
        let body = json!({ "server_serial": serial, "recipe": recipe });
        let job = scene.admin.post("/api/v1/jobs", &body).await.expect(202);
        let id = job["job_id"].as_str().unwrap().to_owned();
        scene.admin.awaits_report(&id).await;
        let token = scene.admin.job_document(&id).await["webhook_token"].as_str().unwrap().to_owned();
        Self { scene, serial, id, token }
    }

    async fn report(&self, body: &Value) -> Value {
        self.scene.admin.report(self.serial, &self.token, body).await.expect(200)
    }

    /// Waits until the session has begun.
    async fn in_session(&self) -> Value {
        let begun = |job: &Value| job["wait"]["reason"] == "rescue_session";
        self.scene.admin.wait(&self.id, "the session", begun).await
    }

    fn path(&self, verb: &str) -> String {
        format!("/api/v1/jobs/{}/{verb}", self.id)
    }

    async fn events_of(&self, kind: &str) -> Vec<Value> {
        let events = self.scene.admin.events(&self.id).await;
        events.into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// The power of the host after the end, when no slot has an image.
    fn power_after(&self) -> Power {
        let bmc = self.scene.bmc(self.serial).snapshot();
        assert!(bmc.slots.iter().all(|slot| slot.image.is_none()));
        bmc.power
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rescue_session_begins_when_the_machine_is_reachable_and_lasts_until_an_operator_finishes_it() {
    let rescue = Rescue::start("RES-1", rescue(json!({}))).await;
    let admin = &rescue.scene.admin;
    admin.post(&rescue.path("finish"), &json!({})).await.refused(409, "conflict.phase");
    assert_eq!(rescue.report(&reachable("192.0.2.7")).await, json!({ "ok": true }));
    let job = rescue.in_session().await;
    assert_eq!((&job["step"], &job["outcome"]), (&json!("rescue.wait"), &Value::Null));
    assert!(job["verbs"].as_array().unwrap().contains(&json!("finish")), "{job}");
    let why = admin.explain(&rescue.id).await;
    let summary = why["summary"].as_str().unwrap();
    assert!(
        summary.contains("192.0.2.7") && summary.contains(FINGERPRINT) && summary.contains("ttyS0"),
        "{why}"
    );
    assert!(why["next_action"].as_str().unwrap().contains("shoal job finish"), "{why}");

    // A repetition changes nothing; another address is known to operators.
    assert_eq!(rescue.report(&reachable("192.0.2.7")).await["idempotent"], json!(true));
    assert_eq!(rescue.report(&reachable("192.0.2.8")).await, json!({ "ok": true }));
    let reported = rescue.events_of("report.reachable").await;
    let addresses: Vec<&Value> = reported.iter().map(|event| &event["data"]["addresses"][0]).collect();
    assert_eq!(addresses, ["192.0.2.7", "192.0.2.8"]);
    assert_eq!(rescue.scene.bmc("RES-1").snapshot().power, Power::On);

    let body = json!({ "reason": "disk replaced" });
    admin.post(&rescue.path("finish"), &body).await.expect(202);
    let job = admin.complete(&rescue.id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", admin.event_log(&rescue.id).await);
    admin.post(&rescue.path("finish"), &body).await.expect(202);
    let ended = rescue.events_of("verb.finish").await;
    assert_eq!(ended.len(), 1);
    assert!(ended[0]["message"].as_str().unwrap().ends_with("disk replaced"), "{ended:?}");
    assert_eq!(rescue.power_after(), Power::On);
    rescue.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_after_the_minutes_of_the_recipe_and_leaves_the_host_off_if_the_recipe_says_so() {
    let rescue = Rescue::start("RES-2", rescue(json!({ "session_minutes": 30, "after": "off" }))).await;
    rescue.report(&reachable("192.0.2.7")).await;
    let job = rescue.in_session().await;
    let time = |name: &str| job["wait"][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time("deadline").duration_since(time("since")).as_mins(), 30);
    rescue.scene.skip(Duration::from_secs(31 * 60));
    let job = rescue.scene.complete_skipping(&rescue.id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", rescue.scene.admin.event_log(&rescue.id).await);
    assert_eq!(rescue.events_of("rescue.timed-out").await.len(), 1);
    assert_eq!(rescue.power_after(), Power::Off);
    rescue.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rescue_system_that_fails_before_or_in_its_session_fails_the_job_with_its_words() {
    for (serial, reaches) in [("RES-3", false), ("RES-4", true)] {
        let rescue = Rescue::start(serial, rescue(json!({}))).await;
        if reaches {
            rescue.report(&reachable("192.0.2.7")).await;
            rescue.in_session().await;
        }
        let failed = json!({
            "status": "failed", "failed_step": "rescue.service",
            "message": "this medium has no SSH server",
        });
        rescue.report(&failed).await;
        let job = rescue.scene.admin.complete(&rescue.id).await;
        assert_eq!((&job["outcome"], &job["failed_step"]), (&json!("failed"), &json!("rescue.service")));
        assert!(job["failure"]["summary"].as_str().unwrap().contains("no SSH server"), "{job}");
        rescue.scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_can_be_cancelled_and_a_rescue_system_without_a_session_reports_its_end_itself() {
    let cancelled = Rescue::start("RES-5", rescue(json!({}))).await;
    cancelled.report(&reachable("192.0.2.7")).await;
    cancelled.in_session().await;
    cancelled.scene.admin.post(&cancelled.path("cancel"), &json!({})).await.expect(202);
    assert_eq!(cancelled.scene.admin.complete(&cancelled.id).await["outcome"], "cancelled");
    cancelled.power_after();
    cancelled.scene.end().await;

    let other = Rescue::start("RES-6", rescue(json!({}))).await;
    other.report(&json!({ "status": "success" })).await;
    let job = other.scene.admin.complete(&other.id).await;
    assert_eq!(job["outcome"], "succeeded");
    let session = job["steps"].as_array().unwrap().iter().find(|step| step["step"] == "rescue.wait").unwrap();
    assert_eq!(session["phase"], "skipped");
    other.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_reachable_ends_no_installation() {
    let install = Rescue::start("RES-7", recipe()).await;
    install.report(&reachable("192.0.2.7")).await;
    assert_eq!(install.events_of("report.reachable").await.len(), 1);
    let job = install.scene.admin.job(&install.id).await;
    assert_eq!((&job["wait"]["reason"], &job["outcome"]), (&json!("report"), &Value::Null));
    install.report(&json!({ "status": "success" })).await;
    assert_eq!(install.scene.admin.complete(&install.id).await["outcome"], "succeeded");
    install.scene.end().await;
}
