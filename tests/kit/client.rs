//! A client of the public API.

use std::sync::LazyLock;
use std::time::Instant;

use lab_machines::{SimulatedServer, http, images, oci};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::contract::{self, Exchange};
use super::{BMC_PASSWORD, BMC_USER, Polls, TIME_LIMIT};

/// The repository of the tests' OS image; the recipe names it.
const REPOSITORY: &str = "os-images/ubuntu-rootfs";
const TAG: &str = "22.04";

/// The Linux recipe of docs/seeds.md S000-120.
pub(crate) fn recipe() -> Value {
    serde_json::from_str(include_str!("../../schemas/recipe-linux.example.json")).unwrap()
}

/// A response with its whole body.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl ApiResponse {
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

    /// Asserts the status and returns the body as JSON.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Asserts an error with this status and code, in the shape that all errors have.
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["error"], json!(code), "{body}");
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        assert!(body["details"].is_array(), "{body}");
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"), "{body}");
        body
    }
}

/// Sends requests to one base URL with the same credentials.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) base: String,
    token: Option<String>,
}

impl Client {
    /// Creates a client without credentials.
    pub(crate) fn anonymous(base: impl Into<String>) -> Self {
        Self { http: http::api_client(None).unwrap(), base: base.into(), token: None }
    }

    /// Creates a client of an https controller that trusts these authorities, in PEM.
    pub(crate) fn trusting(authorities: &str, base: impl Into<String>) -> Self {
        Self { http: http::api_client(Some(authorities)).unwrap(), base: base.into(), token: None }
    }

    /// Returns a client that sends this API token or JWT.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) fn without_token(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().unwrap()
    }

    /// Builds a request to a path of the controller, or to a whole URL.
    pub(crate) fn request(&self, method: Method, place: &str) -> RequestBuilder {
        let url = if place.starts_with('/') { format!("{}{place}", self.base) } else { place.to_owned() };
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request and compares request and response with the OpenAPI document.
    pub(crate) async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<ApiResponse> {
        let (http, request) = request.build_split();
        let request = request?;
        let sent = request.body().and_then(|body| body.as_bytes()).filter(|body| !body.is_empty());
        let mut exchange = Exchange {
            method: request.method().as_str().to_lowercase(),
            path: request.url().path().to_owned(),
            query: request.url().query_pairs().map(|(name, _)| name.into_owned()).collect(),
            sent: sent.map(<[u8]>::to_vec),
            status: 0,
            content_type: String::new(),
            received: Vec::new(),
        };
        let of_controller = request.url().as_str().starts_with(&self.base);
        let response = http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?.to_vec();
        if of_controller {
            let content_type = headers.get("content-type").and_then(|kind| kind.to_str().ok());
            exchange.status = status;
            exchange.content_type = content_type.unwrap_or_default().to_owned();
            exchange.received.clone_from(&body);
            contract::check(&exchange);
        }
        Ok(ApiResponse { status, headers, body })
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> ApiResponse {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn get(&self, place: &str) -> ApiResponse {
        self.send(self.request(Method::GET, place)).await
    }

    pub(crate) async fn post(&self, place: &str, body: &Value) -> ApiResponse {
        self.send(self.request(Method::POST, place).json(body)).await
    }

    pub(crate) async fn patch(&self, place: &str, body: &Value) -> ApiResponse {
        self.send(self.request(Method::PATCH, place).json(body)).await
    }

    pub(crate) async fn delete(&self, place: &str) -> ApiResponse {
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

    /// Creates a job with the Linux recipe.
    pub(crate) async fn create_job(&self, serial: &str) -> String {
        let body = json!({ "server_serial": serial, "recipe": recipe() });
        let job = self.post("/api/v1/jobs", &body).await.expect(202);
        job["job_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{id}")).await.expect(200)
    }

    /// Reads all events of a job, page by page.
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

    /// Reads the explanation of a job. In every state it names what ends the state and what to do (decision D6).
    pub(crate) async fn explain(&self, id: &str) -> Value {
        let why = self.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200);
        let said = |key: &str| why[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(["summary", "ends_by", "next_action", "since"].into_iter().all(said), "{why}");
        let bounded = said("deadline") && said("next_check");
        let open = ["held", "restored", "ended"].iter().any(|condition| why["condition"] == *condition);
        assert!(bounded || open, "{why}");
        why
    }

    /// Waits until a job satisfies `wanted`, for a limited time; fails with the job's events. Every state on the way must have
    /// an explanation.
    pub(crate) async fn wait(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let (deadline, mut polls) = (Instant::now() + TIME_LIMIT, Polls::new());
        loop {
            self.explain(id).await;
            let job = self.job(id).await;
            if wanted(&job) {
                return job;
            }
            if Instant::now() > deadline || (job["status"] == "complete") {
                panic!("timeout: {what}; the job is {}\n{}", job["status"], self.event_log(id).await);
            }
            polls.pause().await;
        }
    }

    /// Waits until a job has ended.
    pub(crate) async fn complete(&self, id: &str) -> Value {
        self.wait(id, "the end", |job| job["status"] == "complete").await
    }

    /// Waits until a job waits for its installation report.
    pub(crate) async fn awaits_report(&self, id: &str) -> Value {
        self.wait(id, "the wait for the report", |job| job["wait"]["reason"] == "report").await
    }

    /// Formats a job's events as lines, for the message of a failed test.
    pub(crate) async fn event_log(&self, id: &str) -> String {
        let events = self.events(id).await;
        let line = |event: &Value| {
            format!("  {} {} {} {}", event["time"], event["step"], event["type"], event["message"])
        };
        events.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Repeats a GET until the response satisfies `wanted`, for a limited time. Some effects of a job's end come a moment
    /// after it.
    pub(crate) async fn until(
        &self,
        place: &str,
        what: &str,
        wanted: impl Fn(&ApiResponse) -> bool,
    ) -> ApiResponse {
        let (deadline, mut polls) = (Instant::now() + TIME_LIMIT, Polls::new());
        loop {
            let response = self.get(place).await;
            if wanted(&response) {
                return response;
            }
            assert!(Instant::now() < deadline, "timeout: {what}: {}\n{}", response.status, response.text());
            polls.pause().await;
        }
    }

    /// Reads a job's task image by the path for users with credentials.
    pub(crate) async fn task_image(&self, id: &str) -> Vec<u8> {
        let response = self.get(&format!("/media/tasks/{id}/task.iso")).await;
        assert_eq!(response.status, 200, "{}", response.text());
        response.body
    }

    /// Reads `job.json` from a job's task image.
    pub(crate) async fn job_document(&self, id: &str) -> Value {
        let image = iso9660::Image::open(self.task_image(id).await).unwrap();
        serde_json::from_slice(&image.read("job.json", 1 << 20).unwrap()).unwrap()
    }

    /// Sends an installation report with this secret.
    pub(crate) async fn report(&self, serial: &str, secret: &str, body: &Value) -> ApiResponse {
        let request = self.request(Method::POST, &format!("/api/v1/status-webhook/{serial}"));
        self.send(request.header("X-Webhook-Secret", secret).json(body)).await
    }
}
