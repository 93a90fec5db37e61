//! The stages of the benchmark, in order.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::client::{Api, Latencies, at_rate};
use super::processes::{BenchHome, Bmc, Controller, SimProcess};
use super::{Figures, Options, milliseconds};

/// Concurrent requests of the benchmark.
pub(super) const CONCURRENCY: usize = 16;
/// Number of jobs for one measurement of the cost of a job.
const SAMPLE: usize = 200;
/// Number of parked jobs per server.
const PARKED_PER_SERVER: usize = 5;
/// Reads of jobs per second.
const READS: usize = 5000;
/// Number of active jobs when the controller is killed.
pub(super) const JOBS_AT_KILL: usize = 100;
/// Number of concurrent event streams.
const SUBSCRIBERS: usize = 1000;
/// Interval for polling a state.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The benchmark fails after this time without progress.
const NO_PROGRESS_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of rows of a batch (the limit of the API).
const ROWS: usize = 10_000;

const RECIPE: &str = include_str!("../../../../schemas/recipe-linux.example.json");

/// The position in the event log, and the number of hosts started up to it.
pub(super) struct LogPosition {
    pub(super) after: i64,
    pub(super) started: usize,
}

/// A running benchmark.
pub(super) struct BenchRun<'a> {
    pub(super) options: Options,
    pub(super) figures: Figures,
    pub(super) folder: &'a Path,
    pub(super) iso: &'a Path,
    pub(super) home: BenchHome,
    pub(super) controller: Controller,
    pub(super) sim: SimProcess,
    pub(super) password: SecretString,
}

impl BenchRun<'_> {
    pub(super) async fn all(mut self) -> anyhow::Result<()> {
        self.figures.show("memory, idle", &self.memory()?, "")?;
        self.register().await?;
        self.job_cost(0).await?;
        let jobs = self.queue().await?;
        let provisioning = self.provision().await?;
        self.reads(&jobs).await?;
        self.streams().await?;
        self.killed().await?;
        self.reports(jobs, provisioning).await?;
        self.busy().await?;
        self.job_cost(self.options.servers).await?;
        self.batches().await
    }

    /// The servers that are provisioned; the others are used when the controller is killed.
    pub(super) fn bmcs(&self) -> &[Bmc] {
        &self.sim.bmcs[..self.options.servers]
    }

    pub(super) fn api(&self) -> &Api {
        &self.controller.api
    }

    /// The processor time of the controller and of the BMCs since `before`.
    fn used(&self, before: (Duration, Duration)) -> anyhow::Result<(Duration, Duration)> {
        let (controller, sim) = self.cpu()?;
        Ok((controller.saturating_sub(before.0), sim.saturating_sub(before.1)))
    }

    fn cpu(&self) -> anyhow::Result<(Duration, Duration)> {
        Ok((self.controller.cpu()?, self.sim.cpu()?))
    }

    fn memory(&self) -> anyhow::Result<String> {
        let (memory, files) = (self.controller.memory()? as f64 / 1e6, self.controller.open_files()?);
        Ok(format!("{memory:.1} MB, {files} open files"))
    }

    async fn register(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut waits = at_rate(self.sim.bmcs.iter().collect(), None, CONCURRENCY, |bmc| async move {
            let body = json!({
                "serial": bmc.serial, "bmc_address": bmc.address, "bmc_username": "admin",
                "bmc_password": self.password.expose_secret(),
            });
            self.api().post("/api/v1/servers", &body).await.map(drop)
        })
        .await?;
        let rate = self.sim.bmcs.len() as f64 / began.elapsed().as_secs_f64();
        self.figures.show("servers registered", &format!("{rate:.0}/s, {}", waits.shown()), "")
    }

    pub(super) async fn create(&self, serial: &str) -> anyhow::Result<String> {
        let job = self.api().post("/api/v1/jobs", &order(serial)?).await?;
        job["job_id"].as_str().map(str::to_owned).context("the response has no job_id")
    }

    pub(super) async fn report(&self, serial: &str, job: &str) -> anyhow::Result<()> {
        let body = json!({ "status": "success", "job_id": job, "delivery_id": format!("bench-{job}") });
        let request = self
            .api()
            .request(Method::POST, &format!("/api/v1/status-webhook/{serial}"))
            .header("x-webhook-secret", self.home.webhook_secret.expose_secret());
        self.api().send(request.json(&body)).await.map(drop)
    }

    /// Sends a report and reads the job until it shows the report.
    pub(super) async fn report_until_visible(&self, serial: &str, job: &str) -> anyhow::Result<()> {
        self.report(serial, job).await?;
        let began = Instant::now();
        loop {
            let state = self.api().get(&format!("/api/v1/jobs/{job}")).await?;
            if state["status"] != "provisioning" || state["outcome"] != Value::Null {
                return Ok(());
            }
            if began.elapsed() > NO_PROGRESS_TIMEOUT {
                bail!("the report of job {job} has no effect");
            }
        }
    }

    pub(super) async fn drain(&self, on: bool) -> anyhow::Result<()> {
        let method = if on { Method::POST } else { Method::DELETE };
        self.api().send(self.api().request(method, "/api/v1/drain").json(&json!({}))).await.map(drop)
    }

    /// Waits until `count` jobs are in a state. Fails if there is no progress.
    pub(super) async fn until(&self, status: &str, count: usize) -> anyhow::Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let now = self.api().jobs_in(status).await?;
            if now >= count {
                return Ok(());
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > NO_PROGRESS_TIMEOUT {
                bail!("{now} of {count} jobs are {status}, and there is no progress");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until `count` hosts have been started: their jobs then wait for a report.
    pub(super) async fn started(&self, log: &mut LogPosition, count: usize) -> anyhow::Result<()> {
        let mut since = Instant::now();
        while log.started < count {
            let page = self.api().get(&format!("/api/v1/events?after={}&limit=1000", log.after)).await?;
            let next = page["next"].as_i64().unwrap_or(log.after);
            if next != log.after {
                (log.after, since) = (next, Instant::now());
            } else if since.elapsed() > NO_PROGRESS_TIMEOUT {
                bail!("{} of {count} hosts were started, and there is no progress", log.started);
            } else {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let events = page["events"].as_array().into_iter().flatten();
            log.started += events
                .filter(|event| event["type"] == "redfish.power" && event["step"] == "redfish.power-on")
                .count();
        }
        Ok(())
    }

    /// Measures the cost of a job for the controller, with `finished` jobs in the database.
    async fn job_cost(&self, finished: usize) -> anyhow::Result<()> {
        let complete = self.api().jobs_in("complete").await?;
        let mut log = LogPosition { after: self.last_event(0).await?, started: 0 };
        let before = self.cpu()?;
        let began = Instant::now();
        let sample = SAMPLE.min(self.options.servers);
        let jobs = Mutex::new(Vec::new());
        at_rate(self.bmcs().iter().take(sample).collect(), None, CONCURRENCY, |bmc| async {
            let job = self.create(&bmc.serial).await?;
            jobs.lock().push((bmc.serial.clone(), job));
            Ok(())
        })
        .await?;
        self.started(&mut log, sample).await?;
        let jobs = jobs.into_inner();
        at_rate(jobs, None, CONCURRENCY, |(serial, job)| async move { self.report(&serial, &job).await })
            .await?;
        self.until("complete", complete + sample).await?;
        let (controller, _) = self.used(before)?;
        let found = format!(
            "{:.2} ms processor time, {:.1} jobs/s",
            controller.as_secs_f64() * 1e3 / sample as f64,
            sample as f64 / began.elapsed().as_secs_f64()
        );
        self.figures.show(&format!("cost of a job with {finished} finished jobs"), &found, "constant")
    }

    /// Creates one job for every server, at the rate of the target, while the controller drains.
    async fn queue(&self) -> anyhow::Result<Vec<(String, String)>> {
        self.drain(true).await?;
        let jobs = Mutex::new(Vec::with_capacity(self.options.servers));
        let mut waits = at_rate(self.bmcs().iter().collect(), Some(500.0), 256, |bmc| async {
            let job = self.create(&bmc.serial).await?;
            jobs.lock().push((bmc.serial.clone(), job));
            Ok(())
        })
        .await?;
        self.figures.waits("POST of a job, 500/s", &mut waits, "p99 10 ms")?;
        let memory = self.memory()?;
        self.figures.show(&format!("memory, {} jobs queued", self.options.servers), &memory, "")?;
        Ok(jobs.into_inner())
    }

    /// Lets all jobs run until they wait for their report. Returns the time.
    async fn provision(&self) -> anyhow::Result<Duration> {
        let servers = self.options.servers;
        let mut log = LogPosition { after: self.last_event(0).await?, started: 0 };
        let before = self.cpu()?;
        let began = Instant::now();
        self.drain(false).await?;
        self.started(&mut log, servers).await?;
        let took = began.elapsed();
        let (controller, sim) = self.used(before)?;
        let each = |time: Duration| time.as_secs_f64() * 1e3 / servers as f64;
        let found = format!(
            "{:.1} s; processor {:.2} ms per job, BMCs {:.2} ms",
            took.as_secs_f64(),
            each(controller),
            each(sim)
        );
        self.figures.show(&format!("{servers} jobs until the wait for the report"), &found, "")?;
        self.figures.show(&format!("memory, {servers} active jobs"), &self.memory()?, "10,000: 120 MB")?;
        Ok(took)
    }

    /// Kills the controller while jobs are active and all other jobs wait, and starts it again. The active jobs then end as
    /// all others.
    async fn killed(&mut self) -> anyhow::Result<()> {
        let mut log = LogPosition { after: self.last_event(0).await?, started: 0 };
        let complete = self.api().jobs_in("complete").await?;
        let mut jobs = Vec::new();
        for bmc in &self.sim.bmcs[self.options.servers..] {
            jobs.push((bmc.serial.clone(), self.create(&bmc.serial).await?));
        }
        self.started(&mut log, jobs.len() / 4).await?;
        let last = self.last_event(log.after).await?;
        let killed = Timestamp::now();
        self.controller.kill();
        self.controller = self.home.start(self.iso).await?;

        self.started(&mut log, jobs.len()).await?;
        let back = milliseconds(self.controller.first_response);
        let taken = self.taken_over(last, killed).await?;
        let found = format!("first response after {back}; {taken}");
        self.figures.show("controller killed and started", &found, "takeover: 1 s")?;
        let (count, run) = (jobs.len(), &*self);
        at_rate(jobs, None, CONCURRENCY, |(serial, job)| async move { run.report(&serial, &job).await })
            .await?;
        self.until("complete", complete + count).await?;
        self.quiet(log.after).await
    }

    /// Waits until there are no new events: after a start every waiting job checks its machine once.
    async fn quiet(&self, mut after: i64) -> anyhow::Result<()> {
        loop {
            let last = self.last_event(after).await?;
            if last == after {
                return Ok(());
            }
            after = last;
            tokio::time::sleep(POLL_INTERVAL * 20).await;
        }
    }

    /// Returns the sequence number of the newest event. Reads all events after `after`.
    pub(super) async fn last_event(&self, mut after: i64) -> anyhow::Result<i64> {
        loop {
            let page = self.api().get(&format!("/api/v1/events?after={after}&limit=1000")).await?;
            let next = page["next"].as_i64().unwrap_or(after);
            if next == after {
                return Ok(after);
            }
            after = next;
        }
    }

    /// Returns how many active jobs the new controller took over, and when it took over the last of them.
    async fn taken_over(&self, mut after: i64, killed: Timestamp) -> anyhow::Result<String> {
        let mut times: Vec<Timestamp> = Vec::new();
        loop {
            let page = self.api().get(&format!("/api/v1/events?after={after}&limit=1000")).await?;
            let next = page["next"].as_i64().unwrap_or(after);
            if next == after {
                break;
            }
            after = next;
            let taken = page["events"].as_array().into_iter().flatten();
            let taken = taken.filter(|event| event["type"] == "lease.taken-over");
            times.extend(taken.filter_map(|event| event["time"].as_str()?.parse::<Timestamp>().ok()));
        }
        let last = times.iter().max().map(|last| last.duration_since(killed));
        let last = last.and_then(|span| Duration::try_from(span).ok()).unwrap_or_default();
        Ok(format!("{} jobs taken over after {}", times.len(), milliseconds(last)))
    }

    /// Reads jobs at the rate of the target: for one second each job for the first time, then for some seconds again.
    async fn reads(&self, jobs: &[(String, String)]) -> anyhow::Result<()> {
        let few = self.options.servers.min(1000);
        let mut asked = jobs.iter().take(few).cycle();
        for (when, seconds) in [("first read", 1), ("repeated", 5)] {
            let some = asked.by_ref().take(READS * seconds).collect();
            let mut waits = at_rate(some, Some(READS as f64), 64, |(_, job)| async move {
                let page = self.api().request(Method::GET, &format!("/api/v1/jobs/{job}"));
                self.api().bytes(page).await.map(drop)
            })
            .await?;
            self.figures.waits(&format!("GET of a job, 5,000/s, {when}"), &mut waits, "p99 2 ms")?;
        }
        Ok(())
    }

    /// Measures the delivery of one event to a thousand event streams.
    async fn streams(&self) -> anyhow::Result<()> {
        let after = self.last_event(0).await?;
        let mut listening: FuturesUnordered<_> = FuturesUnordered::new();
        let (ready, mut all) = tokio::sync::mpsc::channel::<()>(SUBSCRIBERS);
        for _ in 0..SUBSCRIBERS {
            let request = self
                .api()
                .request(Method::GET, "/api/v1/events")
                .header("accept", "text/event-stream")
                .header("last-event-id", after.to_string());
            let ready = ready.clone();
            listening.push(async move {
                let mut response = request.send().await?;
                let (mut text, mut read_old) = (String::new(), false);
                ready.send(()).await?;
                while let Some(part) = response.chunk().await? {
                    text.push_str(std::str::from_utf8(&part)?);
                    if text.contains("\nevent: server.maintenance-ended\n") {
                        return anyhow::Ok(Instant::now());
                    }
                    if !read_old && text.contains("\nevent: server.maintenance\n") {
                        read_old = true;
                        ready.send(()).await?;
                    }
                }
                bail!("an event stream ended")
            });
        }
        drop(ready);
        let serial = &self.bmcs()[0].serial;
        let maintenance = format!("/api/v1/servers/{serial}/maintenance");
        let publish = async {
            let mut all_streams = async || {
                for _ in 0..SUBSCRIBERS {
                    all.recv().await.context("an event stream ended")?;
                }
                anyhow::Ok(())
            };
            all_streams().await?;
            // After the first event every stream has read all older events. The second event is measured.
            self.api().post(&maintenance, &json!({ "reason": "event of the benchmark" })).await?;
            all_streams().await?;
            let sent = Instant::now();
            self.api().send(self.api().request(Method::DELETE, &maintenance).json(&json!({}))).await?;
            anyhow::Ok(sent)
        };
        let received = async {
            let mut received = Vec::with_capacity(SUBSCRIBERS);
            while let Some(one) = listening.next().await {
                received.push(one?);
            }
            anyhow::Ok(received)
        };
        let (sent, received) = tokio::try_join!(publish, received)?;
        let mut waits = Latencies::default();
        received.iter().for_each(|received| waits.add(sent, received.saturating_duration_since(sent)));
        self.figures.waits("an event to 1,000 streams, from its request", &mut waits, "p99 50 ms")
    }

    /// Sends the reports of all hosts, first some at a fixed rate, and waits for the end of all jobs.
    async fn reports(&self, mut jobs: Vec<(String, String)>, provisioning: Duration) -> anyhow::Result<()> {
        let complete = self.api().jobs_in("complete").await?;
        let rest = jobs.split_off(SAMPLE.min(jobs.len()));
        let mut visible = at_rate(jobs, Some(50.0), CONCURRENCY, |(serial, job)| async move {
            self.report_until_visible(&serial, &job).await
        })
        .await?;
        self.figures.waits("a report until the job shows it", &mut visible, "p99 10 ms")?;

        let before = self.cpu()?;
        let began = Instant::now();
        let mut waits =
            at_rate(rest, None, CONCURRENCY, |(serial, job)| async move { self.report(&serial, &job).await })
                .await?;
        self.figures.waits("reports, as fast as possible", &mut waits, "")?;
        self.until("complete", complete + self.options.servers).await?;
        let (controller, sim) = self.used(before)?;
        let took = began.elapsed();
        let servers = self.options.servers as f64;
        let found = format!(
            "{:.1} s; processor {:.2} ms per job, BMCs {:.2} ms",
            took.as_secs_f64(),
            controller.as_secs_f64() * 1e3 / servers,
            sim.as_secs_f64() * 1e3 / servers
        );
        self.figures.show(
            &format!("{} jobs from the report to the end", self.options.servers),
            &found,
            "",
        )?;
        let whole = (provisioning + took).as_secs_f64();
        let found = format!("{whole:.1} s, {:.0} jobs/s", servers / whole);
        self.figures.show(&format!("{} jobs in total", self.options.servers), &found, "10,000: 60 s")
    }

    async fn batch(&self, serials: impl Iterator<Item = &String>) -> anyhow::Result<String> {
        let rows: Vec<Value> = serials.map(|serial| json!({ "server_serial": serial })).collect();
        let body = json!({ "rows": rows, "recipe": recipe()? });
        let response = self.api().post("/api/v1/batches", &body).await?;
        response["batch_id"].as_str().map(str::to_owned).context("the response has no batch_id")
    }

    async fn cancel(&self, batch: &str) -> anyhow::Result<()> {
        self.api().post(&format!("/api/v1/batches/{batch}/cancel"), &json!({})).await.map(drop)
    }

    /// Measures the memory of five parked jobs per server, which may not start, and the time to cancel one batch of them.
    async fn park(&self) -> anyhow::Result<()> {
        let count = PARKED_PER_SERVER * self.options.servers;
        let serials: Vec<String> = (0..count).map(|number| format!("PARKED-{number}")).collect();
        at_rate(serials.clone(), None, CONCURRENCY, |serial| async move {
            // No BMC has this address, and no request is sent to it.
            let body = json!({
                "serial": serial, "bmc_address": "https://192.0.2.1", "bmc_username": "admin",
                "bmc_password": self.password.expose_secret(),
            });
            self.api().post("/api/v1/servers", &body).await.map(drop)
        })
        .await?;
        self.drain(true).await?;
        let mut last = String::new();
        for some in serials.chunks(ROWS) {
            last = self.batch(some.iter()).await?;
        }
        self.figures.show(&format!("memory, {count} parked jobs"), &self.memory()?, "")?;
        let began = Instant::now();
        self.cancel(&last).await?;
        let rows = (count - 1) % ROWS + 1;
        self.figures.show(
            &format!("cancel of a batch of {rows} parked jobs"),
            &milliseconds(began.elapsed()),
            "30 s",
        )
    }

    /// Creates and cancels batches until the database holds the wanted number of finished jobs.
    async fn batches(&self) -> anyhow::Result<()> {
        let mut finished = self.api().jobs_in("complete").await?;
        let mut waits = Latencies::default();
        let mut next = finished * 2;
        self.drain(true).await?;
        while waits.is_empty() || finished < self.options.finished {
            let count = self.options.servers.min(ROWS);
            let began = Instant::now();
            let batch = self.batch(self.bmcs().iter().map(|bmc| &bmc.serial).take(ROWS)).await?;
            waits.add(began, began.elapsed());
            self.cancel(&batch).await?;
            finished += count;
            self.until("complete", finished).await?;
            if finished >= next || finished >= self.options.finished {
                self.drain(false).await?;
                self.job_cost(finished).await?;
                finished += SAMPLE.min(count);
                next = finished * 2;
                self.drain(true).await?;
            }
        }
        self.drain(false).await?;
        self.figures.waits(
            &format!("batch of {} rows", self.options.servers.min(ROWS)),
            &mut waits,
            "3 s",
        )?;
        let size = std::fs::metadata(self.folder.join("data/provisioner.db"))?.len();
        let each = size as f64 / finished as f64;
        let found = format!("{:.1} MB, {each:.0} bytes per job", size as f64 / 1e6);
        self.figures.show("the database", &found, "")?;
        self.park().await
    }
}

fn order(serial: &str) -> anyhow::Result<Value> {
    Ok(json!({ "server_serial": serial, "recipe": recipe()? }))
}

fn recipe() -> anyhow::Result<Value> {
    let mut recipe: Value = serde_json::from_str(RECIPE)?;
    // An image of another registry: pulls are not measured.
    recipe["oci_url"] = json!("registry.example/os-images/ubuntu-rootfs:22.04");
    Ok(recipe)
}
