//! A client of the public API, as an operator's tool would be.

use std::sync::LazyLock;
use std::time::Instant;

use lab_machines::{SimulatedServer, http, images, oci};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{BMC_PASSWORD, BMC_USER, LOOK, PATIENCE};

/// Where the tests' OS image is; the recipe names it.
const REPOSITORY: &str = "os-images/ubuntu-rootfs";
const TAG: &str = "22.04";

/// The Linux recipe of the contract's appendix.
pub(crate) fn recipe() -> Value {
    serde_json::from_str(include_str!("../../schemas/recipe-linux.example.json")).unwrap()
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{}: not JSON: {}", self.status, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The body of an answer with this status.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// An error of this status and code, in the one shape all errors have.
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["error"], json!(code), "{body}");
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert!(body["details"].is_array(), "{body}");
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"), "{body}");
        body
    }
}

/// What is at a base URL, asked with the same credentials every time.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) base: String,
    token: Option<String>,
}

impl Client {
    /// Without credentials.
    pub(crate) fn anonymous(base: impl Into<String>) -> Self {
        Self { http: http::api_client(None).unwrap(), base: base.into(), token: None }
    }

    /// The same place with an API token (or a JWT).
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) fn without_token(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().unwrap()
    }

    /// A request to a path of the controller, or to a whole URL.
    pub(crate) fn request(&self, method: Method, place: &str) -> RequestBuilder {
        let url = if place.starts_with('/') { format!("{}{place}", self.base) } else { place.to_owned() };
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Answer { status, headers, body: response.bytes().await?.to_vec() })
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn get(&self, place: &str) -> Answer {
        self.send(self.request(Method::GET, place)).await
    }

    pub(crate) async fn post(&self, place: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, place).json(body)).await
    }

    pub(crate) async fn patch(&self, place: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PATCH, place).json(body)).await
    }

    pub(crate) async fn delete(&self, place: &str) -> Answer {
        self.send(self.request(Method::DELETE, place)).await
    }

    /// Registers a simulated server.
    pub(crate) async fn register(&self, server: &SimulatedServer) {
        self.register_at(&server.serial, &server.bmc_url).await;
    }

    /// Registers a server with the BMC at this address.
    pub(crate) async fn register_at(&self, serial: &str, bmc_address: &str) {
        let body = json!({
            "serial": serial, "bmc_address": bmc_address, "bmc_username": BMC_USER, "bmc_password": BMC_PASSWORD,
        });
        self.post("/api/v1/servers", &body).await.expect(201);
    }

    /// Pushes the OS image that the recipe names.
    pub(crate) async fn push_image(&self) {
        static IMAGE: LazyLock<images::RootfsImage> =
            LazyLock::new(|| images::rootfs_image(&images::RootfsSpec::default()).unwrap());
        let authorization =
            oci::Authorization::Basic { username: "pusher".to_owned(), password: self.token().to_owned() };
        images::push(self.http.clone(), &self.base, REPOSITORY, TAG, authorization, &IMAGE).await.unwrap();
    }

    /// Creates a job with the usual recipe.
    pub(crate) async fn create_job(&self, serial: &str) -> String {
        let body = json!({ "server_serial": serial, "recipe": recipe() });
        let job = self.post("/api/v1/jobs", &body).await.expect(202);
        job["job_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{id}")).await.expect(200)
    }

    /// All events of a job, read page by page.
    pub(crate) async fn events(&self, id: &str) -> Vec<Value> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let page =
                self.get(&format!("/api/v1/jobs/{id}/events?after={after}&limit=50")).await.expect(200);
            let page_events = page["events"].as_array().unwrap();
            if page_events.is_empty() {
                return events;
            }
            events.extend(page_events.iter().cloned());
            after = page["next"].as_i64().unwrap();
        }
    }

    /// Why a job is where it is. Whatever state it is in, it says what ends the state and what to do (lock L6).
    pub(crate) async fn explain(&self, id: &str) -> Value {
        let why = self.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200);
        let said = |key: &str| why[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(["summary", "ends_by", "next_action", "since"].into_iter().all(said), "{why}");
        let bounded = said("deadline") && said("next_check");
        assert!(bounded || why["condition"] == "held" || why["condition"] == "ended", "{why}");
        why
    }

    /// Waits until a job is as wanted, bounded; fails with the job's story. Every state seen on the way can be explained.
    pub(crate) async fn wait(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.explain(id).await;
            let job = self.job(id).await;
            if wanted(&job) {
                return job;
            }
            if Instant::now() > deadline || (job["status"] == "complete") {
                panic!("{what} did not come; the job is {}\n{}", job["status"], self.story(id).await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a job is over.
    pub(crate) async fn complete(&self, id: &str) -> Value {
        self.wait(id, "the end", |job| job["status"] == "complete").await
    }

    /// Waits until nothing is missing but the report.
    pub(crate) async fn awaits_report(&self, id: &str) -> Value {
        self.wait(id, "the wait for the report", |job| job["wait"]["reason"] == "report").await
    }

    /// A job's events as lines, for people who look at a failed test.
    pub(crate) async fn story(&self, id: &str) -> String {
        let events = self.events(id).await;
        let line = |event: &Value| {
            format!("  {} {} {} {}", event["time"], event["step"], event["type"], event["message"])
        };
        events.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Asks again until the answer is as wanted, bounded: what follows from the end of a job follows a moment after it.
    pub(crate) async fn until(&self, place: &str, what: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(place).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{what} did not come: {}\n{}", answer.status, answer.text());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The bytes of a job's task image, by the path for people.
    pub(crate) async fn task_image(&self, id: &str) -> Vec<u8> {
        let answer = self.get(&format!("/media/tasks/{id}/task.iso")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.body
    }

    /// `job.json` out of a job's task image.
    pub(crate) async fn job_document(&self, id: &str) -> Value {
        let image = iso9660::Image::open(self.task_image(id).await).unwrap();
        serde_json::from_slice(&image.read("job.json", 1 << 20).unwrap()).unwrap()
    }

    /// Reports as the maintenance OS would, under a secret.
    pub(crate) async fn report(&self, serial: &str, secret: &str, body: &Value) -> Answer {
        let request = self.request(Method::POST, &format!("/api/v1/status-webhook/{serial}"));
        self.send(request.header("X-Webhook-Secret", secret).json(body)).await
    }
}
