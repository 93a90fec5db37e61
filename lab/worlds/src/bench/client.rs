//! The HTTP client of the benchmark. Latencies are measured from the time at which a request was due, so that a slow
//! controller does not hide its delays by receiving fewer requests.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use axum::body::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use reqwest::{Method, RequestBuilder, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::stalls::{self, Stalls};
use lab_machines::http::api_client;

/// The API of a controller.
#[derive(Clone)]
pub(super) struct Api {
    http: reqwest::Client,
    base: String,
    token: Option<SecretString>,
}

impl Api {
    pub(super) fn new(base: &str, token: Option<SecretString>) -> anyhow::Result<Self> {
        Ok(Self { http: api_client(None)?, base: base.to_owned(), token })
    }

    pub(super) async fn is_up(&self) -> bool {
        let response = self.http.get(format!("{}/readyz", self.base)).send().await;
        response.is_ok_and(|response| response.status() == StatusCode::OK)
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    /// Sends a request and parses the response, which must be a success.
    pub(super) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let body = self.bytes(request).await?;
        if body.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&body)?) }
    }

    /// Sends a request and reads the response, which must be a success, without parsing it: parsing is not time of the
    /// controller.
    pub(super) async fn bytes(&self, request: RequestBuilder) -> anyhow::Result<Bytes> {
        let response = request.send().await.context("send a request to the controller")?;
        let status = response.status();
        let body = response.bytes().await.context("read the response of the controller")?;
        if !status.is_success() {
            bail!("the controller responded with {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, path)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// Returns the number of jobs in a public state.
    pub(super) async fn jobs_in(&self, status: &str) -> anyhow::Result<usize> {
        let response = self.request(Method::GET, "/metrics").send().await?.text().await?;
        let name = format!("job_total{{status=\"{status}\"}} ");
        let line = response.lines().find_map(|line| line.strip_prefix(&name));
        Ok(line.and_then(|count| count.trim().parse::<f64>().ok()).map_or(0, |count| count as usize))
    }
}

/// Timers of this program have a resolution of one millisecond. A request that starts late by up to this time did not wait
/// for the controller.
const TICK: Duration = Duration::from_millis(1);

/// Latencies, each with its start.
#[derive(Default)]
pub(super) struct Latencies(Vec<(Instant, Duration)>);

impl Latencies {
    pub(super) fn add(&mut self, since: Instant, waited: Duration) {
        self.0.push((since, waited));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a percentile in milliseconds; `share` is from 0 to 1.
    pub(super) fn at(&mut self, share: f64) -> f64 {
        self.0.sort_unstable_by_key(|(_, waited)| *waited);
        let last = self.0.len().saturating_sub(1);
        let index = ((last as f64) * share).ceil() as usize;
        self.0.get(index).map_or(0.0, |(_, waited)| waited.as_secs_f64() * 1e3)
    }

    /// Formats median, 99th percentile and maximum.
    pub(super) fn shown(&mut self) -> String {
        format!("p50 {:.2}, p99 {:.2}, longest {:.1} ms", self.at(0.5), self.at(0.99), self.at(1.0))
    }

    /// Describes the influence of stalls of the machine. Returns an empty string without stalls.
    pub(super) fn stall_note(&self, stalls: &Stalls) -> String {
        let from = self.0.iter().map(|(since, _)| *since).min();
        let to = self.0.iter().map(|(since, waited)| *since + *waited).max();
        let (Some(from), Some(to)) = (from, to) else { return String::new() };
        let stalls = stalls.during(from, to);
        if stalls.is_empty() {
            return String::new();
        }
        let delayed = |(since, waited): &&(Instant, Duration)| {
            stalls.iter().any(|stall| stall.delayed(*since, *waited))
        };
        let (delayed_requests, others): (Vec<_>, Vec<_>) = self.0.iter().partition(delayed);
        let text = format!("the machine stalled for {} ms", stalls::total(&stalls).as_millis());
        match others.is_empty() {
            true => text,
            false => {
                format!(
                    "{text}; without the {} delayed requests: p99 {:.2}",
                    delayed_requests.len(),
                    Self(others).at(0.99)
                )
            }
        }
    }
}

/// Runs `act` for every item, at a fixed rate or as fast as possible, at most `concurrency` at a time. Returns the latencies.
pub(super) async fn at_rate<T, F>(
    items: Vec<T>,
    rate: Option<f64>,
    concurrency: usize,
    act: impl Fn(T) -> F,
) -> anyhow::Result<Latencies>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let began = Instant::now();
    let mut waits = Latencies::default();
    let mut running = stream::iter(items.into_iter().enumerate())
        .map(|(number, item)| {
            let due = rate.map(|rate| began + Duration::from_secs_f64(number as f64 / rate));
            let act = &act;
            async move {
                let since = match due {
                    Some(due) if due > Instant::now() => {
                        tokio::time::sleep_until(due.into()).await;
                        Instant::now().min(due + TICK)
                    }
                    // All connections were busy when the request was due: the delay counts as latency.
                    Some(due) => due,
                    None => Instant::now(),
                };
                act(item).await.map(|()| (since, since.elapsed()))
            }
        })
        .buffer_unordered(concurrency);
    while let Some(waited) = running.next().await {
        let (since, waited) = waited?;
        waits.add(since, waited);
    }
    Ok(waits)
}
