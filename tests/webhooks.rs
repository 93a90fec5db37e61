//! Outgoing webhooks, received by a small server on a real socket whose responses the test sets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio_util::sync::CancellationToken;

use crate::kit::{ApiResponse, Client, DataDir, POLL_INTERVAL, Scene, TIME_LIMIT};

pub(crate) const SECRET: &str = "canary-signing-secret-5Vb7";

/// One received delivery.
#[derive(Clone, Debug)]
struct Received {
    id: String,
    job: String,
    seq: i64,
    kind: String,
    status: u16,
}

type Script = dyn Fn(&Value) -> Reaction + Send + Sync;

/// How a receiver responds to a delivery.
pub(crate) enum Reaction {
    Respond(u16),
    /// Redirects to this URL.
    Redirect(String),
    /// Sends no response.
    Silence,
}

/// A receiver of deliveries that checks each signature.
pub(crate) struct Receiver {
    pub(crate) url: String,
    got: Arc<Mutex<Vec<Received>>>,
    script: Arc<Mutex<Box<Script>>>,
    _stop: tokio_util::sync::DropGuard,
}

#[derive(Clone)]
struct Shared {
    got: Arc<Mutex<Vec<Received>>>,
    script: Arc<Mutex<Box<Script>>>,
}

impl Receiver {
    async fn start(script: impl Fn(&Value) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        Self::on(listener, script).await
    }

    async fn on(
        listener: tokio::net::TcpListener,
        script: impl Fn(&Value) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}/hook/token-in-path", listener.local_addr().unwrap());
        let script: Box<Script> = Box::new(script);
        let shared = Shared { got: Arc::default(), script: Arc::new(Mutex::new(script)) };
        let stop = CancellationToken::new();
        let router = Router::new().fallback(receive).with_state(shared.clone());
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
        Self { url, got: shared.got, script: shared.script, _stop: stop.drop_guard() }
    }

    pub(crate) async fn good() -> Self {
        Self::start(|_| Reaction::Respond(204)).await
    }

    pub(crate) fn now(&self, script: impl Fn(&Value) -> Reaction + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    fn got(&self) -> Vec<Received> {
        self.got.lock().unwrap().clone()
    }

    fn taken(&self) -> Vec<Received> {
        self.got().into_iter().filter(|got| got.status < 300).collect()
    }

    /// Waits until the deliveries satisfy `wanted`.
    async fn until(&self, what: &str, wanted: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let got = self.got();
            if wanted(&got) {
                return got;
            }
            assert!(Instant::now() < deadline, "timeout: {what}: {got:#?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn hook(&self, client: &Client, more: Value) -> String {
        let mut body = json!({ "url": self.url, "secret": SECRET });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = client.post("/api/v1/webhooks", &body).await.expect(201);
        made["webhook_id"].as_str().unwrap().to_owned()
    }
}

/// Verifies a signature as docs/operating.md describes it.
fn verify(headers: &HeaderMap, body: &[u8]) {
    let signature = headers["x-shoal-signature"].to_str().unwrap();
    let parts: HashMap<&str, &str> = signature.split(',').map(|part| part.split_once('=').unwrap()).collect();
    let mut tag = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    tag.update(parts["t"].as_bytes());
    tag.update(b".");
    tag.update(body);
    tag.verify_slice(&hex::decode(parts["v1"]).unwrap()).unwrap();
}

async fn receive(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    verify(&headers, &body);
    let value: Value = serde_json::from_slice(&body).unwrap();
    let reaction = (shared.script.lock().unwrap())(&value["event"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id = headers["x-shoal-delivery"].to_str().unwrap().to_owned();
    assert_eq!(text(&value["delivery_id"]), id);
    assert_eq!(text(&value["event"]["type"]), headers["x-shoal-event"].to_str().unwrap());
    let status = match &reaction {
        Reaction::Respond(status) => *status,
        Reaction::Redirect(_) => 307,
        Reaction::Silence => 599,
    };
    shared.got.lock().unwrap().push(Received {
        id,
        job: text(&value["event"]["job_id"]),
        seq: value["event"]["seq"].as_i64().unwrap(),
        kind: text(&value["event"]["type"]),
        status,
    });
    match reaction {
        Reaction::Respond(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Reaction::Redirect(place) => (StatusCode::TEMPORARY_REDIRECT, [("location", place)]).into_response(),
        Reaction::Silence => std::future::pending().await,
    }
}

/// Starts a controller that accepts jobs and starts none.
pub(crate) async fn scene() -> Scene {
    Scene::bare(vec![], |settings, _| settings.worker_concurrency = 0).await
}

pub(crate) async fn job(client: &Client, serial: &str) -> String {
    client.register_at(serial, "127.0.0.1:9").await;
    client.create_job(serial).await
}

/// Holds and resumes a job, which records two events.
pub(crate) async fn stir(client: &Client, id: &str) {
    for verb in ["hold", "resume"] {
        client.post(&format!("/api/v1/jobs/{id}/{verb}"), &json!({ "reason": "stir" })).await.expect(202);
    }
}

fn seqs(got: &[Received], job: &str) -> Vec<i64> {
    got.iter().filter(|got| got.job == job).map(|got| got.seq).collect()
}

async fn shown(client: &Client, hook: &str) -> Value {
    client.get(&format!("/api/v1/webhooks/{hook}")).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_a_job_arrives_signed_once_and_in_order() {
    let scene = scene().await;
    let receiver = Receiver::good().await;
    let hook = receiver.hook(&scene.admin, json!({})).await;
    let id = job(&scene.admin, "OUT-1").await;
    // More than one page.
    for _ in 0..60 {
        stir(&scene.admin, &id).await;
    }
    let events = scene.admin.events(&id).await;
    let wanted: Vec<i64> = events.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert!(wanted.len() > 100, "{wanted:?}");
    let got = receiver.until("every event", |got| seqs(got, &id).len() >= wanted.len()).await;
    assert_eq!(seqs(&got, &id), wanted);
    assert!(got.iter().any(|got| got.kind == "server.created"), "events without a job are sent too");
    assert!(got.iter().all(|got| !got.kind.starts_with("webhook.")), "{got:?}");
    let place = format!("/api/v1/webhooks/{hook}");
    // The row and its counts are read one after the other.
    let delivered =
        |shown: &Value| shown["behind"] == 0 && shown["delivered"].as_u64() >= u64::try_from(got.len()).ok();
    let response = scene.admin.until(&place, "an empty queue", |response| delivered(&response.json())).await;
    assert_eq!(response.json()["delivered"], got.len(), "{}", response.text());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_delivery_is_signed_marked_sent_once_and_shows_what_the_receiver_responded() {
    let scene = scene().await;
    let receiver = Receiver::good().await;
    let hook = receiver.hook(&scene.admin, json!({ "types": ["report.*"] })).await;
    let place = format!("/api/v1/webhooks/{hook}");
    // A disabled webhook can be tested before it is enabled.
    scene.admin.post(&format!("{place}/disable"), &json!({})).await.expect(200);
    let test = async || scene.admin.post(&format!("{place}/test"), &json!({})).await.expect(200);

    let accepted = test().await;
    assert_eq!(
        (&accepted["accepted"], &accepted["status"], &accepted["error"]),
        (&json!(true), &json!(204), &Value::Null)
    );
    receiver.now(|event| {
        assert_eq!(event["data"]["test"], true);
        Reaction::Respond(500)
    });
    let refused = test().await;
    assert_eq!((&refused["accepted"], &refused["status"]), (&json!(false), &json!(500)));
    assert_eq!(refused["error"], "the receiver responded with 500");
    let ids = [&accepted, &refused].map(|tested| tested["delivery_id"].as_str().unwrap().to_owned());
    assert_ne!(ids[0], ids[1], "a receiver leaves out an id that it has seen");
    // The receiver has verified both signatures.
    let got: Vec<(String, String)> = receiver.got().into_iter().map(|got| (got.id, got.kind)).collect();
    assert_eq!(got, ids.map(|id| (id, "webhook.test".to_owned())));

    let shown = shown(&scene.admin, &hook).await;
    assert_eq!(
        (&shown["delivered"], &shown["dead_letters"], &shown["failing_since"]),
        (&json!(0), &json!(0), &Value::Null),
        "a test changes nothing of the webhook"
    );
    let events = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let levels: Vec<&Value> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "webhook.tested")
        .map(|event| &event["level"])
        .collect();
    assert_eq!(levels, [&json!("info"), &json!("warn")]);
    assert_eq!(
        scene.admin.post(&format!("/api/v1/webhooks/{}/test", uuid_of_none()), &json!({})).await.status,
        404
    );
    let operator = json!({ "name": "op", "role": "operator" });
    let made = scene.admin.post("/api/v1/tokens", &operator).await.expect(201);
    let operator = scene.admin.with_token(made["token"].as_str().unwrap());
    assert_eq!(operator.post(&format!("{place}/test"), &json!({})).await.status, 403);
    scene.end().await;
}

/// The id of no webhook.
fn uuid_of_none() -> &'static str {
    "0192f3a4-5b6c-7abc-8def-0123456789ab"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_delays_its_own_job_and_no_other() {
    let scene = scene().await;
    let receiver = Receiver::good().await;
    let (first, second) = (job(&scene.admin, "OUT-1").await, job(&scene.admin, "OUT-2").await);
    let hook = receiver.hook(&scene.admin, json!({ "types": ["run.*"] })).await;
    let ill = first.clone();
    receiver.now(move |event| Reaction::Respond(if event["job_id"] == json!(ill) { 500 } else { 200 }));
    stir(&scene.admin, &first).await;
    stir(&scene.admin, &second).await;
    stir(&scene.admin, &first).await;
    let got = receiver.until("the other job", |got| {
        seqs(got, &second).len() >= 2 && got.iter().any(|got| got.job == first)
    });
    got.await;
    let refused = receiver.got().into_iter().find(|got| got.job == first).unwrap();
    let place = format!("/api/v1/webhooks/{hook}");
    let is_retried = |response: &ApiResponse| response.json()["retry_streams"][0]["job_id"] == json!(first);
    let retried = scene.admin.until(&place, "a retried job", is_retried).await.json();
    assert_eq!(retried["retry_streams"][0]["error"], "the receiver responded with 500");
    receiver.now(|_| Reaction::Respond(200));
    receiver
        .until("the retried events", |got| {
            seqs(got, &first).iter().filter(|seq| **seq > refused.seq).count() >= 3
        })
        .await;
    let taken: Vec<Received> = receiver.taken();
    let in_order = seqs(&taken, &first);
    assert!(in_order.is_sorted() && in_order[0] == refused.seq, "{in_order:?}");
    let again = taken.iter().find(|got| got.seq == refused.seq).unwrap();
    assert_eq!(again.id, refused.id, "every attempt has the same delivery id");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_receiver_times_out_after_ten_seconds_and_delays_no_other() {
    let scene = scene().await;
    let (slow, quick) = (Receiver::start(|_| Reaction::Silence).await, Receiver::good().await);
    let hook = slow.hook(&scene.admin, json!({})).await;
    quick.hook(&scene.admin, json!({})).await;
    let id = job(&scene.admin, "OUT-1").await;
    slow.until("a try", |got| !got.is_empty()).await;
    stir(&scene.admin, &id).await;
    quick.until("the events of the job", |got| seqs(got, &id).len() >= 3).await;
    assert_eq!(shown(&scene.admin, &hook).await["delivered"], 0);
    let place = format!("/api/v1/webhooks/{hook}");
    let response =
        scene.admin.until(&place, "a timeout", |response| response.json()["retrying"] != json!(0)).await;
    assert!(response.text().contains("timed out"), "{}", response.text());
    slow.now(|_| Reaction::Respond(200));
    scene.skip(Duration::from_secs(5));
    slow.until("the events after the timeout", |got| {
        seqs(got, &id).iter().collect::<std::collections::BTreeSet<_>>().len() >= 3
    })
    .await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let scene = scene().await;
    let elsewhere = Receiver::good().await;
    let place = elsewhere.url.clone();
    let receiver = Receiver::start(move |_| Reaction::Redirect(place.clone())).await;
    let hook = receiver.hook(&scene.admin, json!({})).await;
    scene.admin.register_at("OUT-1", "127.0.0.1:9").await;
    let place = format!("/api/v1/webhooks/{hook}");
    let response =
        scene.admin.until(&place, "a refusal", |response| response.json()["retrying"] == json!(1)).await;
    assert!(response.text().contains("redirects are not followed"), "{}", response.text());
    assert!(elsewhere.got().is_empty());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_refused_for_a_day_is_a_dead_letter_until_it_is_redelivered() {
    let scene = scene().await;
    let receiver = Receiver::good().await;
    let id = job(&scene.admin, "OUT-1").await;
    let hook = receiver.hook(&scene.admin, json!({})).await;
    receiver.now(|event| Reaction::Respond(if event["type"] == "run.held" { 400 } else { 200 }));
    stir(&scene.admin, &id).await;
    let place = format!("/api/v1/webhooks/{hook}");
    scene.admin.until(&place, "a retried job", |response| response.json()["retrying"] == json!(1)).await;
    let refused = receiver
        .got()
        .into_iter()
        .find(|got| got.status == 400)
        .unwrap_or_else(|| panic!("nothing was refused: {:?}", receiver.got()));
    scene.skip(Duration::from_secs(25 * 3600));
    scene.admin.until(&place, "a dead letter", |response| response.json()["dead_letters"] == json!(1)).await;
    // Later events are delivered.
    receiver.until("the next event", |got| seqs(got, &id).iter().any(|seq| *seq > refused.seq)).await;
    let dead = scene.admin.get(&format!("{place}/dead-letters")).await.expect(200);
    assert_eq!(dead["dead_letters"][0]["seq"], refused.seq, "{dead}");
    assert!(scene.admin.event_log(&id).await.contains("webhook.dead-letter"));
    assert!(
        scene.admin.get("/metrics").await.text().contains(r#"webhook_deliveries_total{result="dead"} 1"#)
    );
    // The receiver accepts the event now.
    let retry = format!("{place}/dead-letters/redeliver");
    scene.admin.post(&retry, &json!({ "seq": 1 })).await.refused(404, "unknown_dead_letter");
    receiver.now(|_| Reaction::Respond(200));
    scene.admin.post(&retry, &json!({ "seq": refused.seq })).await.expect(202);
    scene.admin.until(&place, "no dead letter", |response| response.json()["dead_letters"] == json!(0)).await;
    let redelivered = receiver.taken().into_iter().find(|got| got.seq == refused.seq).unwrap();
    assert_eq!(redelivered.id, refused.id);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_without_a_response_for_a_day_is_disabled_and_loses_nothing() {
    let scene = scene().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_url = format!("http://{}/", listener.local_addr().unwrap());
    // Every connection is cut until the receiver starts.
    let (open, mut opened) = tokio::sync::oneshot::channel::<()>();
    let closed = tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = &mut opened => return listener,
                cut = listener.accept() => drop(cut),
            }
        }
    });
    let made = json!({ "url": closed_url, "secret": SECRET });
    let made = scene.admin.post("/api/v1/webhooks", &made).await.expect(201);
    let place = format!("/api/v1/webhooks/{}", made["webhook_id"].as_str().unwrap());
    let id = job(&scene.admin, "OUT-1").await;
    scene.admin.until(&place, "a failure", |response| response.json()["retrying"] != json!(0)).await;
    scene.skip(Duration::from_secs(25 * 3600));
    let response =
        scene.admin.until(&place, "the end", |response| !response.json()["disabled"].is_null()).await;
    assert_eq!(response.json()["dead_letters"], 0, "{}", response.text());
    assert!(scene.admin.get("/api/v1/events?limit=1000").await.text().contains("webhook.disabled"));
    // The waiting events are delivered once the webhook is enabled and its receiver responds.
    open.send(()).unwrap();
    let receiver = Receiver::on(closed.await.unwrap(), |_| Reaction::Respond(200)).await;
    scene
        .admin
        .send(scene.admin.request(reqwest::Method::POST, &format!("{place}/enable")))
        .await
        .expect(200);
    receiver.until("the events of the job", |got| !seqs(got, &id).is_empty()).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_webhook_sends_nothing_and_continues_where_it_stopped() {
    let scene = scene().await;
    let receiver = Receiver::good().await;
    let hook = receiver.hook(&scene.admin, json!({ "types": ["job.*", "run.*"] })).await;
    let id = job(&scene.admin, "OUT-1").await;
    receiver.until("the first event", |got| !got.is_empty()).await;
    let place = format!("/api/v1/webhooks/{hook}");
    let off = scene.admin.post(&format!("{place}/disable"), &json!({ "reason": "moving" })).await.expect(200);
    assert!(off["disabled"].as_str().unwrap().ends_with(": moving"), "{off}");
    let before = receiver.got().len();
    let watching = Receiver::good().await;
    watching.hook(&scene.admin, json!({})).await;
    stir(&scene.admin, &id).await;
    // The disabled webhook would have received the events by now, as the other one has.
    watching.until("the events elsewhere", |got| seqs(got, &id).len() >= 2).await;
    assert_eq!(receiver.got().len(), before);
    scene
        .admin
        .send(scene.admin.request(reqwest::Method::POST, &format!("{place}/enable")))
        .await
        .expect(200);
    let got = receiver.until("the events meanwhile", |got| got.len() >= before + 2).await;
    assert!(seqs(&got, &id).is_sorted());
    assert_eq!(scene.admin.delete(&place).await.status, 204);
    scene.admin.get(&place).await.refused(404, "unknown_webhook");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_select_jobs_and_all_errors_of_a_webhook_are_reported_at_once() {
    let scene = scene().await;
    let receiver = Receiver::good().await;
    receiver.hook(&scene.admin, json!({ "labels": { "site": "bern" }, "types": ["job.created"] })).await;
    let mut ids = Vec::new();
    for (serial, site) in [("OUT-1", "genf"), ("OUT-2", "bern")] {
        scene.admin.register_at(serial, "127.0.0.1:9").await;
        let body =
            json!({ "server_serial": serial, "recipe": crate::kit::recipe(), "labels": { "site": site } });
        let made = scene.admin.post("/api/v1/jobs", &body).await.expect(202);
        ids.push(made["job_id"].as_str().unwrap().to_owned());
    }
    let got = receiver.until("the job in Bern", |got| !got.is_empty()).await;
    assert!(got.iter().all(|got| got.job == ids[1]), "{got:?}");
    let wrong =
        json!({ "url": "http://user:pass@h/", "secret": "short", "types": ["a b"], "labels": { "": "" } });
    let refused = scene.admin.post("/api/v1/webhooks", &wrong).await.refused(400, "validation_error");
    let paths: Vec<&str> = refused["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| detail["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/url", "/secret", "/types", "/labels"]);
    assert!(!refused.to_string().contains("pass@") && !refused.to_string().contains("short"), "{refused}");
    let unknown = json!({ "url": "https://receiver.example/", "secret": "0123456789abcdef", "types": ["run.*", "run.outcom"] });
    let refused = scene.admin.post("/api/v1/webhooks", &unknown).await.refused(400, "validation_error");
    assert!(refused["message"].as_str().unwrap().contains("run.outcom"), "{refused}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_controller_loses_no_event_and_repeats_under_the_same_id() {
    let mut data = DataDir::new().with("WORKER_CONCURRENCY", "0");
    let receiver = Receiver::good().await;
    let controller = data.serve().await;
    receiver.hook(&controller.admin, json!({ "types": ["job.*", "run.*"] })).await;
    // Operators are notified that the process died: the next start is a warning.
    let of_starts =
        Receiver::start(|event| Reaction::Respond(if event["level"] == "warn" { 204 } else { 200 })).await;
    of_starts.hook(&controller.admin, json!({ "types": ["controller.started"] })).await;
    let id = job(&controller.admin, "OUT-1").await;
    receiver.until("the first event", |got| !got.is_empty()).await;
    // The receiver gets the deliveries, and the controller is killed before a response.
    receiver.now(|_| Reaction::Silence);
    stir(&controller.admin, &id).await;
    let got = receiver.until("a delivery under way", |got| got.iter().any(|got| got.status == 599)).await;
    let under_way = got.into_iter().find(|got| got.status == 599).unwrap();
    controller.kill();
    receiver.now(|_| Reaction::Respond(200));
    let controller = data.serve().await;
    of_starts.until("the start after the kill", |got| got.iter().any(|got| got.status == 204)).await;
    stir(&controller.admin, &id).await;
    let events = controller.admin.events(&id).await;
    let wanted: Vec<i64> = events
        .iter()
        .filter(|event| ["job.", "run."].iter().any(|kind| event["type"].as_str().unwrap().starts_with(kind)))
        .map(|event| event["seq"].as_i64().unwrap())
        .collect();
    receiver.until("the last event", |got| got.iter().any(|got| Some(&got.seq) == wanted.last())).await;
    let mut taken = seqs(&receiver.taken(), &id);
    assert!(taken.is_sorted(), "{taken:?}");
    taken.dedup();
    assert_eq!(taken, wanted);
    let repeated = receiver.taken().into_iter().find(|got| got.seq == under_way.seq).unwrap();
    assert_eq!(repeated.id, under_way.id);
    controller.terminate().await;
}
