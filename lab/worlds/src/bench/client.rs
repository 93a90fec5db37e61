//! The client of the measurement: as many connections as there are lanes, and waiting times counted from the moment a
//! request was due, so that a controller that stalls does not hide its stall by being asked less.

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
        let answer = self.http.get(format!("{}/readyz", self.base)).send().await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    /// Sends a request and reads the whole answer, which must be a success.
    pub(super) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let body = self.bytes(request).await?;
        if body.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&body)?) }
    }

    /// The same, whatever it says: what a client makes of an answer is not the controller's time.
    pub(super) async fn bytes(&self, request: RequestBuilder) -> anyhow::Result<Bytes> {
        let answer = request.send().await.context("ask the controller")?;
        let status = answer.status();
        let body = answer.bytes().await.context("read the controller's answer")?;
        if !status.is_success() {
            bail!("the controller answered {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, path)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// How many jobs are in a public state.
    pub(super) async fn jobs_in(&self, status: &str) -> anyhow::Result<usize> {
        let answer = self.request(Method::GET, "/metrics").send().await?.text().await?;
        let name = format!("job_total{{status=\"{status}\"}} ");
        let line = answer.lines().find_map(|line| line.strip_prefix(&name));
        Ok(line.and_then(|count| count.trim().parse::<f64>().ok()).map_or(0, |count| count as usize))
    }
}

/// How much later than asked for a timer of this program may ring, because it counts in milliseconds: that is no wait for the
/// controller. What is beyond it is.
const TICK: Duration = Duration::from_millis(1);

/// Waiting times, each with when it began.
#[derive(Default)]
pub(super) struct Latencies(Vec<(Instant, Duration)>);

impl Latencies {
    pub(super) fn add(&mut self, since: Instant, waited: Duration) {
        self.0.push((since, waited));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that this share of all stays under, in milliseconds.
    pub(super) fn at(&mut self, share: f64) -> f64 {
        self.0.sort_unstable_by_key(|(_, waited)| *waited);
        let last = self.0.len().saturating_sub(1);
        let place = ((last as f64) * share).ceil() as usize;
        self.0.get(place).map_or(0.0, |(_, waited)| waited.as_secs_f64() * 1e3)
    }

    /// Half, nearly all and the longest.
    pub(super) fn shown(&mut self) -> String {
        format!("p50 {:.2}, p99 {:.2}, longest {:.1} ms", self.at(0.5), self.at(0.99), self.at(1.0))
    }

    /// What the machine's own stills made of it: nothing, when there were none.
    pub(super) fn beside(&self, stalls: &Stalls) -> String {
        let from = self.0.iter().map(|(since, _)| *since).min();
        let to = self.0.iter().map(|(since, waited)| *since + *waited).max();
        let (Some(from), Some(to)) = (from, to) else { return String::new() };
        let stalls = stalls.during(from, to);
        if stalls.is_empty() {
            return String::new();
        }
        let held_up = |(since, waited): &&(Instant, Duration)| {
            stalls.iter().any(|still| still.held_up(*since, *waited))
        };
        let (held, others): (Vec<_>, Vec<_>) = self.0.iter().partition(held_up);
        let still = format!("the machine stood still for {} ms", stalls::total(&stalls).as_millis());
        match others.is_empty() {
            true => still,
            false => {
                format!("{still}: without the {} it held up p99 {:.2}", held.len(), Self(others).at(0.99))
            }
        }
    }
}

/// Does something for every item, at a fixed rate or as fast as it goes, in at most `lanes` at a time.
pub(super) async fn at_rate<T, F>(
    items: Vec<T>,
    rate: Option<f64>,
    lanes: usize,
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
                    // No lane was free when it was due: all of that is a wait for the controller.
                    Some(due) => due,
                    None => Instant::now(),
                };
                act(item).await.map(|()| (since, since.elapsed()))
            }
        })
        .buffer_unordered(lanes);
    while let Some(waited) = running.next().await {
        let (since, waited) = waited?;
        waits.add(since, waited);
    }
    Ok(waits)
}
