//! The client of the public API that the demo uses.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use reqwest::{Client, Method, RequestBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use lab_machines::http::api_client;

/// An API client with the admin token.
pub(super) struct DemoApi {
    /// Base URL of the controller.
    pub(super) base: String,
    http: Client,
    token: SecretString,
}

impl DemoApi {
    pub(super) fn new(address: SocketAddr, token: &SecretString) -> anyhow::Result<Self> {
        let token = SecretString::from(token.expose_secret().to_owned());
        Ok(Self { base: format!("http://{address}"), http: api_client(None)?, token })
    }

    /// Registers a server. `record` holds additional fields.
    pub(super) async fn register(
        &self,
        serial: &str,
        address: &str,
        user: &str,
        password: &SecretString,
        record: Value,
    ) -> anyhow::Result<()> {
        let mut body = record;
        body["serial"] = json!(serial);
        body["bmc_address"] = json!(address);
        body["bmc_username"] = json!(user);
        body["bmc_password"] = json!(password.expose_secret());
        self.send(self.request(Method::POST, "/api/v1/servers").json(&body), "register a server")
            .await
            .map(drop)
    }

    pub(super) async fn create_job(&self, serial: &str, recipe: &str) -> anyhow::Result<String> {
        let recipe: Value = serde_json::from_str(recipe)?;
        let body = json!({ "server_serial": serial, "recipe": recipe });
        let job = self.send(self.request(Method::POST, "/api/v1/jobs").json(&body), "create a job").await?;
        job["job_id"].as_str().map(str::to_owned).context("the response has no job_id")
    }

    pub(super) async fn job(&self, id: &str) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, &format!("/api/v1/jobs/{id}")), "read a job").await
    }

    pub(super) async fn events(&self, id: &str, after: i64) -> anyhow::Result<Value> {
        let path = format!("/api/v1/jobs/{id}/events?after={after}&limit=1000");
        self.send(self.request(Method::GET, &path), "read events").await
    }

    /// Reads the record of what was read of the images of a job.
    pub(super) async fn media(&self, id: &str) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, &format!("/api/v1/jobs/{id}/media")), "read the media of a job")
            .await
    }

    /// Sends a document.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        operation: &'static str,
    ) -> anyhow::Result<Value> {
        self.send(self.request(Method::POST, path).json(body), operation).await
    }

    /// Pushes bytes as a blob into a repository, in one request.
    pub(super) async fn push_blob(
        &self,
        repository: &str,
        sha256: &str,
        bytes: Vec<u8>,
    ) -> anyhow::Result<()> {
        const OPERATION: &str = "push a firmware file";
        let path = format!("/v2/{repository}/blobs/uploads/?digest=sha256:{sha256}");
        let request = self.request(Method::POST, &path).header("content-type", "application/octet-stream");
        let response = request.body(bytes).send().await.context(OPERATION)?;
        if response.status() != 201 {
            bail!("{OPERATION}: {}", response.status());
        }
        Ok(())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).bearer_auth(self.token.expose_secret())
    }

    async fn send(&self, request: RequestBuilder, operation: &'static str) -> anyhow::Result<Value> {
        let response = request.send().await.context(operation)?;
        let status = response.status();
        let body: Value = response.json().await.with_context(|| format!("{operation}: read the response"))?;
        if !status.is_success() {
            bail!("{operation}: {status}: {}", body["message"].as_str().unwrap_or("no message"));
        }
        Ok(body)
    }
}
