//! The measures, in the order in which one run makes them.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::client::{Api, Latencies, at_rate};
use super::processes::{Bmc, Controller, Fleet, Place};
use super::{Figures, Options, milliseconds};

/// Requests of the measurement at a time.
const LANES: usize = 16;
/// Jobs for one point of the curve.
const SAMPLE: usize = 200;
/// How many times the hosts there are jobs that wait at once.
const PARKED: usize = 5;
/// Reads of jobs a second.
const READS: usize = 5000;
/// Jobs in work when the controller is killed.
pub(super) const KILLED: usize = 100;
/// Event streams at once.
const SUBSCRIBERS: usize = 1000;
/// How often a state that takes its time is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// After this long without a change something is wrong.
const STUCK: Duration = Duration::from_secs(120);
/// Rows of a batch at most (the API's limit).
const ROWS: usize = 10_000;

const RECIPE: &str = include_str!("../../../../schemas/recipe-linux.example.json");

/// How far the log was read, and how many hosts it says were started.
struct Log {
    after: i64,
    started: usize,
}

/// A run in progress.
pub(super) struct Run<'a> {
    pub(super) options: Options,
    pub(super) figures: Figures,
    pub(super) folder: &'a Path,
    pub(super) iso: &'a Path,
    pub(super) place: Place,
    pub(super) controller: Controller,
    pub(super) fleet: Fleet,
    pub(super) password: SecretString,
}

impl Run<'_> {
    pub(super) async fn all(mut self) -> anyhow::Result<()> {
        self.figures.show("memory, nothing to do", &self.memory()?, "")?;
        self.register().await?;
        self.curve(0).await?;
        let jobs = self.queue().await?;
        let provisioning = self.provision().await?;
        self.reads(&jobs).await?;
        self.streams().await?;
        self.killed().await?;
        self.reports(jobs, provisioning).await?;
        self.curve(self.options.servers).await?;
        self.batches().await
    }

    /// The hosts that are provisioned; the rest is for when the controller is killed.
    fn bmcs(&self) -> &[Bmc] {
        &self.fleet.bmcs[..self.options.servers]
    }

    fn api(&self) -> &Api {
        &self.controller.api
    }

    /// The controller's processor time since `before`, and the BMCs'.
    fn used(&self, before: (Duration, Duration)) -> anyhow::Result<(Duration, Duration)> {
        let (controller, fleet) = self.cpu()?;
        Ok((controller.saturating_sub(before.0), fleet.saturating_sub(before.1)))
    }

    fn cpu(&self) -> anyhow::Result<(Duration, Duration)> {
        Ok((self.controller.cpu()?, self.fleet.cpu()?))
    }

    fn memory(&self) -> anyhow::Result<String> {
        let (memory, files) = (self.controller.memory()? as f64 / 1e6, self.controller.open_files()?);
        Ok(format!("{memory:.1} MB, {files} open files"))
    }

    async fn register(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut waits = at_rate(self.fleet.bmcs.iter().collect(), None, LANES, |bmc| async move {
            let body = json!({
                "serial": bmc.serial, "bmc_address": bmc.address, "bmc_username": "admin",
                "bmc_password": self.password.expose_secret(),
            });
            self.api().post("/api/v1/servers", &body).await.map(drop)
        })
        .await?;
        let rate = self.fleet.bmcs.len() as f64 / began.elapsed().as_secs_f64();
        self.figures.show("servers registered", &format!("{rate:.0}/s, {}", waits.shown()), "")
    }

    async fn create(&self, serial: &str) -> anyhow::Result<String> {
        let job = self.api().post("/api/v1/jobs", &order(serial)?).await?;
        job["job_id"].as_str().map(str::to_owned).context("the answer has no job_id")
    }

    async fn report(&self, serial: &str, job: &str) -> anyhow::Result<()> {
        let body = json!({ "status": "success", "job_id": job, "delivery_id": format!("bench-{job}") });
        let request = self
            .api()
            .request(Method::POST, &format!("/api/v1/status-webhook/{serial}"))
            .header("x-webhook-secret", self.place.webhook_secret.expose_secret());
        self.api().send(request.json(&body)).await.map(drop)
    }

    async fn drain(&self, on: bool) -> anyhow::Result<()> {
        let method = if on { Method::POST } else { Method::DELETE };
        self.api().send(self.api().request(method, "/api/v1/drain").json(&json!({}))).await.map(drop)
    }

    /// Waits until so many jobs are in a state; progress must be seen.
    async fn until(&self, status: &str, count: usize) -> anyhow::Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let now = self.api().jobs_in(status).await?;
            if now >= count {
                return Ok(());
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > STUCK {
                bail!("{now} of {count} jobs are {status}, and nothing happens");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many hosts have been started: then their jobs wait for a report.
    async fn started(&self, log: &mut Log, count: usize) -> anyhow::Result<()> {
        let mut since = Instant::now();
        while log.started < count {
            let page = self.api().get(&format!("/api/v1/events?after={}&limit=1000", log.after)).await?;
            let next = page["next"].as_i64().unwrap_or(log.after);
            if next != log.after {
                (log.after, since) = (next, Instant::now());
            } else if since.elapsed() > STUCK {
                bail!("{} of {count} hosts were started, and nothing happens", log.started);
            } else {
                tokio::time::sleep(LOOK).await;
            }
            let events = page["events"].as_array().into_iter().flatten();
            log.started += events
                .filter(|event| event["type"] == "redfish.power" && event["step"] == "redfish.power-on")
                .count();
        }
        Ok(())
    }

    /// What a job costs the controller beside so many finished ones.
    async fn curve(&self, finished: usize) -> anyhow::Result<()> {
        let complete = self.api().jobs_in("complete").await?;
        let mut log = Log { after: self.last_event(0).await?, started: 0 };
        let before = self.cpu()?;
        let began = Instant::now();
        let sample = SAMPLE.min(self.options.servers);
        let jobs = Mutex::new(Vec::new());
        at_rate(self.bmcs().iter().take(sample).collect(), None, LANES, |bmc| async {
            let job = self.create(&bmc.serial).await?;
            jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((bmc.serial.clone(), job));
            Ok(())
        })
        .await?;
        self.started(&mut log, sample).await?;
        let jobs = jobs.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        at_rate(jobs, None, LANES, |(serial, job)| async move { self.report(&serial, &job).await }).await?;
        self.until("complete", complete + sample).await?;
        let (controller, _) = self.used(before)?;
        let found = format!(
            "{:.2} ms of processor, {:.1} jobs/s",
            controller.as_secs_f64() * 1e3 / sample as f64,
            sample as f64 / began.elapsed().as_secs_f64()
        );
        self.figures.show(&format!("cost of a job beside {finished} finished ones"), &found, "flat")
    }

    /// One job for every server, at the rate of the aim, while none begins.
    async fn queue(&self) -> anyhow::Result<Vec<(String, String)>> {
        self.drain(true).await?;
        let jobs = Mutex::new(Vec::with_capacity(self.options.servers));
        let mut waits = at_rate(self.bmcs().iter().collect(), Some(500.0), 256, |bmc| async {
            let job = self.create(&bmc.serial).await?;
            jobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((bmc.serial.clone(), job));
            Ok(())
        })
        .await?;
        self.figures.waits("POST of a job, 500/s", &mut waits, "p99 10 ms")?;
        let memory = self.memory()?;
        self.figures.show(&format!("memory, {} jobs queued", self.options.servers), &memory, "")?;
        Ok(jobs.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// All jobs to the wait for their report. Answers the time it took.
    async fn provision(&self) -> anyhow::Result<Duration> {
        let servers = self.options.servers;
        let mut log = Log { after: self.last_event(0).await?, started: 0 };
        let before = self.cpu()?;
        let began = Instant::now();
        self.drain(false).await?;
        self.started(&mut log, servers).await?;
        let took = began.elapsed();
        let (controller, fleet) = self.used(before)?;
        let each = |time: Duration| time.as_secs_f64() * 1e3 / servers as f64;
        let found = format!(
            "{:.1} s; processor {:.2} ms a job, BMCs {:.2} ms",
            took.as_secs_f64(),
            each(controller),
            each(fleet)
        );
        self.figures.show(&format!("{servers} jobs to the report"), &found, "")?;
        self.figures.show(&format!("memory, {servers} active jobs"), &self.memory()?, "10,000: 120 MB")?;
        Ok(took)
    }

    /// The controller is killed in the midst of its work, beside all jobs that wait; the jobs in work then end as all others.
    async fn killed(&mut self) -> anyhow::Result<()> {
        let mut log = Log { after: self.last_event(0).await?, started: 0 };
        let complete = self.api().jobs_in("complete").await?;
        let mut jobs = Vec::new();
        for bmc in &self.fleet.bmcs[self.options.servers..] {
            jobs.push((bmc.serial.clone(), self.create(&bmc.serial).await?));
        }
        self.started(&mut log, jobs.len() / 4).await?;
        let last = self.last_event(log.after).await?;
        let killed = Timestamp::now();
        self.controller.kill();
        self.controller = self.place.start(self.iso).await?;

        self.started(&mut log, jobs.len()).await?;
        let back = milliseconds(self.controller.first_answer);
        let taken = self.taken_over(last, killed).await?;
        let found = format!("answers after {back}; {taken}");
        self.figures.show("killed and started", &found, "all re-owned: 1 s")?;
        let (count, run) = (jobs.len(), &*self);
        at_rate(jobs, None, LANES, |(serial, job)| async move { run.report(&serial, &job).await }).await?;
        self.until("complete", complete + count).await?;
        self.quiet(log.after).await
    }

    /// Waits until nothing is told for a while: after a start every job that waits looks at its machine once.
    async fn quiet(&self, mut after: i64) -> anyhow::Result<()> {
        loop {
            let last = self.last_event(after).await?;
            if last == after {
                return Ok(());
            }
            after = last;
            tokio::time::sleep(LOOK * 20).await;
        }
    }

    /// The place of the newest event; all after `after` are read for it.
    async fn last_event(&self, mut after: i64) -> anyhow::Result<i64> {
        loop {
            let page = self.api().get(&format!("/api/v1/events?after={after}&limit=1000")).await?;
            let next = page["next"].as_i64().unwrap_or(after);
            if next == after {
                return Ok(after);
            }
            after = next;
        }
    }

    /// How many jobs in work the new controller took over, and when it had the last of them.
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
        Ok(format!("{} jobs re-owned after {}", times.len(), milliseconds(last)))
    }

    /// Reads at the rate of the aim: a second in which each job is looked at for the first time, and some more.
    async fn reads(&self, jobs: &[(String, String)]) -> anyhow::Result<()> {
        let few = self.options.servers.min(1000);
        let mut asked = jobs.iter().take(few).cycle();
        for (when, seconds) in [("at first", 1), ("then", 5)] {
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

    /// The same news to a thousand listeners.
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
                let mut answer = request.send().await?;
                let (mut text, mut told) = (String::new(), false);
                ready.send(()).await?;
                while let Some(part) = answer.chunk().await? {
                    text.push_str(std::str::from_utf8(&part)?);
                    if text.contains("\nevent: server.maintenance-ended\n") {
                        return anyhow::Ok(Instant::now());
                    }
                    if !told && text.contains("\nevent: server.maintenance\n") {
                        told = true;
                        ready.send(()).await?;
                    }
                }
                bail!("an event stream ended")
            });
        }
        drop(ready);
        let serial = &self.bmcs()[0].serial;
        let maintenance = format!("/api/v1/servers/{serial}/maintenance");
        let news = async {
            let mut everyone = async || {
                for _ in 0..SUBSCRIBERS {
                    all.recv().await.context("an event stream ended")?;
                }
                anyhow::Ok(())
            };
            everyone().await?;
            // The first news shows that all have read what is old; the second is measured.
            self.api().post(&maintenance, &json!({ "reason": "the news of a measurement" })).await?;
            everyone().await?;
            let said = Instant::now();
            self.api().send(self.api().request(Method::DELETE, &maintenance).json(&json!({}))).await?;
            anyhow::Ok(said)
        };
        let heard = async {
            let mut heard = Vec::with_capacity(SUBSCRIBERS);
            while let Some(one) = listening.next().await {
                heard.push(one?);
            }
            anyhow::Ok(heard)
        };
        let (said, heard) = tokio::try_join!(news, heard)?;
        let mut waits = Latencies::default();
        heard.iter().for_each(|heard| waits.add(said, heard.saturating_duration_since(said)));
        self.figures.waits("an event to 1,000 streams, from its request on", &mut waits, "p99 50 ms")
    }

    /// The reports of all hosts, the first of them one by one; then the end of all jobs.
    async fn reports(&self, mut jobs: Vec<(String, String)>, provisioning: Duration) -> anyhow::Result<()> {
        let complete = self.api().jobs_in("complete").await?;
        let rest = jobs.split_off(SAMPLE.min(jobs.len()));
        let mut visible = at_rate(jobs, Some(50.0), LANES, |(serial, job)| async move {
            self.report(&serial, &job).await?;
            let began = Instant::now();
            loop {
                let state = self.api().get(&format!("/api/v1/jobs/{job}")).await?;
                if state["status"] != "provisioning" || state["outcome"] != Value::Null {
                    return Ok(());
                }
                if began.elapsed() > STUCK {
                    bail!("the report of job {job} is not seen");
                }
            }
        })
        .await?;
        self.figures.waits("a report to the state that shows it", &mut visible, "p99 10 ms")?;

        let before = self.cpu()?;
        let began = Instant::now();
        let mut waits =
            at_rate(rest, None, LANES, |(serial, job)| async move { self.report(&serial, &job).await })
                .await?;
        self.figures.waits("reports, all at once", &mut waits, "")?;
        self.until("complete", complete + self.options.servers).await?;
        let (controller, fleet) = self.used(before)?;
        let took = began.elapsed();
        let servers = self.options.servers as f64;
        let found = format!(
            "{:.1} s; processor {:.2} ms a job, BMCs {:.2} ms",
            took.as_secs_f64(),
            controller.as_secs_f64() * 1e3 / servers,
            fleet.as_secs_f64() * 1e3 / servers
        );
        self.figures.show(
            &format!("{} jobs from the report to the end", self.options.servers),
            &found,
            "",
        )?;
        let whole = (provisioning + took).as_secs_f64();
        let found = format!("{whole:.1} s, {:.0} jobs/s", servers / whole);
        self.figures.show(&format!("{} jobs in all", self.options.servers), &found, "10,000: 60 s")
    }

    async fn batch(&self, serials: impl Iterator<Item = &String>) -> anyhow::Result<String> {
        let rows: Vec<Value> = serials.map(|serial| json!({ "server_serial": serial })).collect();
        let body = json!({ "rows": rows, "recipe": recipe()? });
        let answer = self.api().post("/api/v1/batches", &body).await?;
        answer["batch_id"].as_str().map(str::to_owned).context("the answer has no batch_id")
    }

    async fn cancel(&self, batch: &str) -> anyhow::Result<()> {
        self.api().post(&format!("/api/v1/batches/{batch}/cancel"), &json!({})).await.map(drop)
    }

    /// Five times as many jobs as there are hosts, none of which may begin: what they take, and how long it is until those of
    /// one batch are told that they are cancelled.
    async fn parked(&self) -> anyhow::Result<()> {
        let count = PARKED * self.options.servers;
        let serials: Vec<String> = (0..count).map(|number| format!("PARKED-{number}")).collect();
        at_rate(serials.clone(), None, LANES, |serial| async move {
            // Nobody is there, and nobody is asked.
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
        self.figures.show(&format!("cancel of {rows} of them"), &milliseconds(began.elapsed()), "30 s")
    }

    /// Batches of all servers, until the database holds as many finished jobs as it is to hold.
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
                self.curve(finished).await?;
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
        let found = format!("{:.1} MB, {each:.0} bytes a job", size as f64 / 1e6);
        self.figures.show("the database", &found, "")?;
        self.parked().await
    }
}

fn order(serial: &str) -> anyhow::Result<Value> {
    Ok(json!({ "server_serial": serial, "recipe": recipe()? }))
}

fn recipe() -> anyhow::Result<Value> {
    let mut recipe: Value = serde_json::from_str(RECIPE)?;
    // An image of another registry: whether ours has one is not what is measured.
    recipe["oci_url"] = json!("registry.example/os-images/ubuntu-rootfs:22.04");
    Ok(recipe)
}
