//! The kill matrix: a controller is killed at every effect of a job, one effect after the other, and its successor ends the
//! job with the same result as without the kill.
//!
//! ```text
//!   effect             killed                                   enumerated by
//!   commit, file       right before it, right after it          the controller itself (`model::failpoint`)
//!   request to a BMC   before it is carried out; after it,      the simulated BMC: the n-th request of the job is
//!                      before its response                      gets no response
//! ```
//!
//! Each kind of death is tried at its first point, at its second, and so on until a job ends before the point is reached.
//! The end is compared with the end of an undisturbed job: the job record, its other rows, and all changes of the machine, in
//! order (so no image is inserted twice and no host is started twice). One other end is right: an upload of firmware that was sent whole
//! and did not arrive, because the controller was killed before the BMC took it, stays unknown and is not sent again.
//!
//! A controller runs many jobs on one server, one after another. Several such lanes share the points.

#![expect(clippy::print_stdout, reason = "the output lists the deaths with a wrong end and their number")]

mod controller;
mod work;

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lab_bmc::{Fault, FaultEffect, FaultTrigger, JournalItem, SimBmc};
use lab_machines::maintenance_os::unit;
use lab_machines::{Farm, InstallerBehaviour, ServerSpec};
use model::{Clock, SystemClock};
use reqwest::Method;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::firmware_install::NIC;
use crate::kit::{
    BMC_PASSWORD, BMC_USER, Client, ControllerProcess, DataDir, Polls, SESSIONS_END, TIME_LIMIT, soon,
    start_farm, with_bmc,
};
use work::Work;

const SERIAL: &str = "KILL-1";
const REPORT_SECRET: &str = "what-the-maintenance-os-says";
/// The number of requests that the description of a job without an end shows.
const LAST_REQUESTS: usize = 40;

/// The point at which a controller is killed.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// At the n-th failpoint, before or after a commit or a file operation.
    Point(u32),
    /// At the n-th request to the BMC, before the BMC carries it out.
    Unsent(u32),
    /// At the n-th request to the BMC, after the BMC carried it out.
    Unanswered(u32),
    /// At the n-th request that changes the machine, after the BMC carried it out.
    UnansweredChange(u32),
}

/// Makes the death at a point, counted from 0.
type Kind = fn(u32) -> Death;

/// The kinds of death of a matrix.
const DEATHS: &[Kind] = &[Death::Point, Death::Unsent, Death::Unanswered];
/// The kind of death of a mutant: what it forgets matters after a change.
const CHANGES: &[Kind] = &[Death::UnansweredChange];

/// Hands out points until each kind of death has reached its last one.
struct Points {
    kinds: &'static [Kind],
    stride: u32,
    /// The next point of each kind.
    next: Vec<u32>,
    /// Whether the last point of each kind was reached.
    over: Vec<bool>,
}

impl Points {
    /// Hands out every `stride`-th point of these kinds of death.
    fn every(stride: u32, kinds: &'static [Kind]) -> Arc<Mutex<Self>> {
        // The kinds start at different offsets, so that a stride does not test the same effects three times.
        let next = [0, stride / 3, 2 * stride / 3].into_iter().take(kinds.len()).collect();
        Arc::new(Mutex::new(Self { kinds, stride, next, over: vec![false; kinds.len()] }))
    }

    fn next(&mut self) -> Option<(usize, Death)> {
        let kind = self.over.iter().position(|over| !over)?;
        let point = self.next[kind];
        self.next[kind] += self.stride;
        Some((kind, self.kinds[kind](point)))
    }
}

/// The end of a job: its record, its rows and its machine.
#[derive(PartialEq)]
struct End {
    job: Value,
    rows: Vec<(&'static str, i64)>,
    machine: Vec<String>,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().into_iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl End {
    fn lines(&self) -> Vec<String> {
        let steps = self.job["steps"].as_array().unwrap().iter().map(Value::to_string);
        let others = self.job.as_object().unwrap().iter().filter(|(key, _)| *key != "steps");
        let others = others.map(|(key, value)| format!("{key}: {value}"));
        let rows = self.rows.iter().map(|row| format!("{row:?}"));
        steps.chain(others).chain(rows).chain(self.machine.iter().cloned()).collect()
    }

    /// Formats the differences from another end.
    fn unlike(&self, other: &Self) -> String {
        let (ours, theirs) = (self.lines(), other.lines());
        let more = ours.iter().filter(|line| !theirs.contains(line)).map(|line| format!("  + {line}"));
        let less = theirs.iter().filter(|line| !ours.contains(line)).map(|line| format!("  - {line}"));
        let mut unlike: Vec<String> = more.chain(less).collect();
        if unlike.is_empty() {
            unlike.push(format!("in another order or number:\n{self:?}"));
        }
        unlike.join("\n")
    }
}

/// A server, a data directory and the controllers that are killed on it.
struct Lane {
    data: DataDir,
    controller: Option<ControllerProcess>,
    farm: Farm,
    work: Work,
    runs: u32,
    /// BMC sessions that no controller knows: the controller was killed before it stored the session.
    unknown: usize,
}

impl Lane {
    async fn start(spec: ServerSpec, work: Work) -> Self {
        let data = DataDir::new().run_by(controller::command);
        let folder = data.path().display().to_string();
        let mut data = data
            .with(controller::FOLDER, &folder)
            .with(controller::BEGAN, &SystemClock.now().to_string())
            .with("LOG_LEVEL", "info")
            .with("TASK_ISO_MODE", "file")
            .with("REPORT_SECRET", REPORT_SECRET)
            .with("WEBHOOK_SECRET", "env:REPORT_SECRET")
            // Measured by the fast clock; a loaded machine must not exceed it.
            .with("JOB_LEASE_TTL", "2h")
            .with("CLEANUP_TIMEOUT", "2h");
        let controller = data.serve().await;
        let farm = start_farm(vec![spec], data.path()).await;
        controller.admin.register(&farm.servers()[0]).await;
        controller.admin.push_image().await;
        work.prepare(&controller.admin).await;
        Self { data, controller: Some(controller), farm, work, runs: 0, unknown: 0 }
    }

    fn bmc(&self) -> &SimBmc {
        &self.farm.servers()[0].bmc
    }

    fn client(&self) -> Client {
        self.controller.as_ref().unwrap().admin.clone()
    }

    /// Runs one job. The controller is killed at `death` if it gets that far; `between` runs before its successor starts. The error
    /// describes a job that has no end within [`TIME_LIMIT`].
    async fn run(
        &mut self,
        death: Option<Death>,
        between: impl Fn(&DataDir),
    ) -> Result<(End, Option<String>), String> {
        self.runs += 1;
        let run = format!("run-{}", self.runs);
        let seen = self.bmc().journal().last().map_or(0, |entry| entry.sequence);
        let resets = self.work.count(self.bmc());
        match death {
            Some(Death::Point(point)) => controller::order(self.data.path(), &run, point.into()),
            Some(Death::Unsent(point)) => {
                self.bmc().inject(Fault::once(FaultTrigger::Anything, FaultEffect::Hang).after(point));
            }
            Some(Death::Unanswered(point)) => {
                self.bmc()
                    .inject(Fault::once(FaultTrigger::Anything, FaultEffect::ApplyButTimeout).after(point));
            }
            Some(Death::UnansweredChange(point)) => {
                self.bmc()
                    .inject(Fault::once(FaultTrigger::Mutation, FaultEffect::ApplyButTimeout).after(point));
            }
            None => {}
        }
        let mut died = None;
        let (mut id, mut reported, mut finished) = (None, false, false);
        let (deadline, mut polls) = (Instant::now() + TIME_LIMIT, Polls::new());
        loop {
            if Instant::now() >= deadline {
                return Err(format!("{death:?}, {died:?}: no end\n{}", self.unended(id.as_deref()).await));
            }
            if died.is_none() && self.is_dying(death) {
                died = Some(self.succeed(&between).await);
            }
            let client = self.client();
            match &id {
                None => id = self.work.order(&client, &run).await,
                Some(id) => {
                    let Some(job) = shown(&client, id).await else { continue };
                    if job["status"] == "complete" {
                        break;
                    }
                    if !reported && job["wait"]["reason"] == "report" {
                        reported = report(&client, &self.work.report(id)).await;
                    }
                    if !finished && job["wait"]["reason"] == "rescue_session" {
                        finished = finish(&client, id).await;
                    }
                }
            }
            polls.pause().await;
        }
        let id = id.unwrap();
        controller::withdraw(self.data.path());
        // A point after the job's end may have been passed in this moment.
        if died.is_none() && shown(&self.client(), &id).await.is_none() {
            died = Some(self.succeed(&between).await);
        }
        self.bmc().clear_faults();
        let end = self.end(&id, seen, resets).await;
        if self.unknown > 0 {
            // These sessions would time out; the test does not wait for that.
            self.bmc().reset_bmc();
            self.unknown = 0;
        }
        Ok((end, died))
    }

    /// Describes a job that has no end: what it waits for, the last requests to its BMC, and the log.
    async fn unended(&self, id: Option<&str>) -> String {
        let explained = match id {
            Some(id) => explained(&self.client(), id).await,
            None => "the job was not accepted".to_owned(),
        };
        let journal = self.bmc().journal();
        let last = journal.iter().rev().take(LAST_REQUESTS).rev();
        let requests: Vec<String> = last.map(|entry| format!("{:?}", entry.what)).collect();
        format!("{explained}\n{}\n{}", requests.join("\n"), self.data.logs())
    }

    fn is_dying(&mut self, death: Option<Death>) -> bool {
        match death {
            None => false,
            Some(Death::Point(_)) => !self.controller.as_mut().unwrap().running(),
            Some(Death::Unsent(_) | Death::Unanswered(_) | Death::UnansweredChange(_)) => {
                self.bmc().faults().is_empty()
            }
        }
    }

    /// Kills the controller if it still runs and starts its successor. Returns the last point or request of the killed one.
    async fn succeed(&mut self, between: impl Fn(&DataDir)) -> String {
        // A request without a response may still be in progress.
        soon("the last request", self.bmc().wait_for(|bmc| bmc.slots.iter().all(|slot| !slot.busy))).await;
        self.controller.take().unwrap().kill();
        let passed = controller::withdraw(self.data.path());
        let known = count(&self.data, "SELECT count(*) FROM bmc_sessions WHERE server = ?1", SERIAL);
        // A restart of the BMC ends the session of the stored row, so the row says nothing about the session that is open.
        if known == 0 || self.work.restarts_bmc() {
            self.unknown += self.bmc().snapshot().open_sessions;
        }
        between(&self.data);
        self.controller = Some(self.data.serve().await);
        let requests = self.bmc().journal();
        let last = requests.iter().rev().find(|entry| matches!(entry.what, JournalItem::Request { .. }));
        passed.last().cloned().unwrap_or_else(|| format!("{:?}", last.map(|entry| &entry.what)))
    }

    async fn end(&self, id: &str, seen: u64, resets: u64) -> End {
        let client = self.client();
        // The logout is the last request, and the controller does not wait for it.
        let ended = self.bmc().wait_for(|bmc| bmc.open_sessions <= self.unknown);
        let machine = tokio::time::timeout(SESSIONS_END, ended).await.unwrap_or(self.bmc().snapshot());
        let job = client.job(id).await;
        let changes = self.bmc().journal().into_iter().filter(|entry| entry.sequence > seen);
        let mut changes: Vec<String> = changes
            .filter_map(|entry| match entry.what {
                JournalItem::Change(change) => Some(format!("{change:?}")),
                JournalItem::Request { .. } => None,
            })
            .collect();
        let sessions = machine.open_sessions.saturating_sub(self.unknown);
        changes.push(format!("in the end {:?}, {:?}, {sessions} sessions", machine.power, machine.boot));
        changes.extend(machine.slots.iter().map(|slot| format!("{} holds {:?}", slot.id, slot.image)));
        changes.extend(self.work.counted(self.bmc(), resets));
        End { job: work::kept(&job), rows: rows(&self.data, id), machine: changes }
    }
}

fn count(data: &DataDir, question: &str, about: &str) -> i64 {
    let path = data.path().join("data/provisioner.db");
    // The write-ahead log of a killed controller can be read only by a connection that may write.
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    database.busy_timeout(TIME_LIMIT).unwrap();
    database.query_row(question, [about], |row| row.get(0)).unwrap()
}

/// Counts the rows of a job in the database.
fn rows(data: &DataDir, id: &str) -> Vec<(&'static str, i64)> {
    let questions = [
        "SELECT count(*) FROM locks WHERE root = ?1",
        // An attempt of a BMC to read a firmware image that a death cut off has a grant of its own.
        "SELECT count(*) FROM media_grants WHERE run = ?1 AND artifact <> 'firmware'",
        "SELECT count(*) FROM media_grants WHERE run = ?1 AND ended_at IS NULL",
        "SELECT count(*) FROM pull_grants WHERE run = ?1",
        "SELECT count(*) FROM pull_grants WHERE run = ?1 AND ended_at IS NULL",
        "SELECT count(*) FROM signals WHERE run = ?1",
        "SELECT count(*) FROM signals WHERE run = ?1 AND consumed = 0",
        "SELECT count(*) FROM runs WHERE id = ?1 AND lease_owner IS NOT NULL",
        "SELECT count(*) FROM server_observed WHERE pending_cleanup IS NOT NULL AND ?1 = ?1",
        "SELECT count(*) FROM events WHERE run = ?1 AND type = 'run.ended'",
        "SELECT count(*) FROM events WHERE run = ?1 AND type = 'report.success'",
        "SELECT count(*) FROM events WHERE run = ?1 AND type = 'report.reachable'",
        "SELECT count(*) FROM events WHERE run = ?1 AND type = 'verb.finish'",
    ];
    questions.into_iter().map(|question| (question, count(data, question, id))).collect()
}

async fn shown(client: &Client, id: &str) -> Option<Value> {
    let response = client.try_send(client.request(Method::GET, &format!("/api/v1/jobs/{id}"))).await.ok()?;
    Some(response.expect(200))
}

async fn explained(client: &Client, id: &str) -> String {
    let request = client.request(Method::GET, &format!("/api/v1/jobs/{id}/explain"));
    match client.try_send(request).await {
        Ok(response) => response.text(),
        Err(error) => format!("no response: {error}"),
    }
}

/// Sends the machine's report. Returns `false` without a response.
async fn report(client: &Client, body: &Value) -> bool {
    let request = client.request(Method::POST, &format!("/api/v1/status-webhook/{SERIAL}"));
    let sent = client.try_send(request.header("X-Webhook-Secret", REPORT_SECRET).json(body)).await;
    sent.is_ok_and(|response| response.expect(200)["ok"] == true)
}

/// Ends the rescue session of a job. Returns `false` without a response.
async fn finish(client: &Client, id: &str) -> bool {
    let request = client.request(Method::POST, &format!("/api/v1/jobs/{id}/finish")).json(&json!({}));
    client.try_send(request).await.is_ok_and(|response| response.status == 202)
}

/// Describes a machine that does nothing: the test sends the report.
fn machine(change: impl FnOnce(&mut lab_bmc::SimBmcConfig)) -> ServerSpec {
    let mut spec = with_bmc(ServerSpec::new(SERIAL), change);
    spec.behaviour = InstallerBehaviour {
        fail_at: Some(unit::DISPATCHER.to_owned()),
        never_report: true,
        ..InstallerBehaviour::default()
    };
    spec
}

/// The number of deaths of each kind, of ends that an operator decides, and of wrong ends.
#[derive(Default)]
struct Tally {
    deaths: Vec<u32>,
    unknown: u32,
    wrong: u32,
}

/// When a matrix stops.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    AtTheEnd,
    AtTheFirstWrong,
}

/// Kills controllers at the points until none are left.
async fn kill(
    (spec, work): (ServerSpec, Work),
    points: Arc<Mutex<Points>>,
    tally: Arc<Mutex<Tally>>,
    between: fn(&DataDir),
    stop: Stop,
) {
    let mut lane = Lane::start(spec, work).await;
    let has_end = |ran: Result<_, String>| ran.unwrap_or_else(|why| panic!("{why}"));
    // The first job finds the machine off. All later ones find it on and are comparable.
    let (first, _) = has_end(lane.run(None, between).await);
    work.golden(&first, lane.bmc());
    let (undisturbed, _) = has_end(lane.run(None, between).await);
    work.golden(&undisturbed, lane.bmc());
    loop {
        let next = points.lock().unwrap().next();
        let Some((kind, death)) = next else { break };
        if stop == Stop::AtTheFirstWrong && tally.lock().unwrap().wrong > 0 {
            break;
        }
        let ran = lane.run(Some(death), between).await;
        if ran.is_err() && stop == Stop::AtTheFirstWrong {
            // What a mutant forgot may be waited for much longer than a job takes: such an image waits for a restart that was.
            tally.lock().unwrap().wrong += 1;
            println!("killed at {death:?}: no end");
            break;
        }
        let (end, died) = has_end(ran);
        let Some(died) = died else {
            points.lock().unwrap().over[kind] = true;
            continue;
        };
        let mut tally = tally.lock().unwrap();
        tally.deaths[kind] += 1;
        if work.is_unknown(&end) {
            tally.unknown += 1;
        } else if end != undisturbed {
            tally.wrong += 1;
            println!("killed at {death:?} ({died}):\n{}", end.unlike(&undisturbed));
        }
    }
    drop(lane.controller.take());
    lane.farm.shutdown().await;
}

/// Runs the matrix on one machine.
async fn matrix(
    (spec, work): (ServerSpec, Work),
    lanes: usize,
    points: Arc<Mutex<Points>>,
    between: fn(&DataDir),
    stop: Stop,
) -> Tally {
    let began = Instant::now();
    let kinds = points.lock().unwrap().kinds.len();
    let tally = Arc::new(Mutex::new(Tally { deaths: vec![0; kinds], ..Tally::default() }));
    let mut at_work = tokio::task::JoinSet::new();
    for _ in 0..lanes {
        at_work.spawn(kill((spec.clone(), work), Arc::clone(&points), Arc::clone(&tally), between, stop));
    }
    while let Some(lane) = at_work.join_next().await {
        lane.unwrap();
    }
    let tally = std::mem::take(&mut *tally.lock().unwrap());
    println!(
        "killed at {:?} points in {:?}; {} uploads stayed unknown; {} with a wrong end",
        tally.deaths,
        began.elapsed(),
        tally.unknown,
        tally.wrong
    );
    tally
}

/// Asserts that every death of the matrix has the same end. `KILL_STRIDE` overrides `stride`.
async fn all_ends_are_the_same(spec: ServerSpec, lanes: usize, stride: u32) {
    ends_of_work_are_the_same(spec, Work::Install, lanes, stride).await;
}

/// Asserts that every death of the matrix has the same end, for this work.
async fn ends_of_work_are_the_same(spec: ServerSpec, work: Work, lanes: usize, stride: u32) {
    let stride = std::env::var("KILL_STRIDE").map_or(stride, |stride| stride.parse().unwrap());
    let points = Points::every(stride, DEATHS);
    let tally = matrix((spec, work), lanes, points, |_| {}, Stop::AtTheEnd).await;
    assert_eq!(tally.wrong, 0, "the output lists them");
    assert!(tally.unknown <= work.most_unknown(), "{} uploads stayed unknown", tally.unknown);
    assert!(tally.deaths.iter().all(|deaths| *deaths > 0), "{:?}", tally.deaths);
}

/// Describes a machine whose BMC shows the power state 45 s late, by the clock of the controllers.
fn late() -> ServerSpec {
    machine(|bmc| bmc.power.state_lag = Duration::from_secs(45) / controller::RATE)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_a_few_effects_the_end_is_the_same() {
    all_ends_are_the_same(machine(|_| {}), 3, 16).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; run by .ci/run at every third effect, by .ci/long at every one"]
async fn killed_at_every_effect_the_end_is_the_same() {
    all_ends_are_the_same(machine(|_| {}), 4, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; run by .ci/run at every fifth effect, by .ci/long at every one"]
async fn killed_with_a_single_slot_the_end_is_the_same() {
    all_ends_are_the_same(machine(|bmc| *bmc = bmc.clone().with_single_cd()), 4, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes, alone: its clock is fast; run by .ci/run at every fifteenth effect, by .ci/long at every one"]
async fn killed_with_a_bmc_that_shows_its_power_late_the_end_is_the_same() {
    all_ends_are_the_same(late(), 8, 15).await;
}

/// Describes a machine whose BMC restarts in a moment, by the clock of the controllers.
fn restarting() -> ServerSpec {
    machine(|bmc| {
        bmc.manager.begins_after = Duration::ZERO;
        bmc.manager.away = Duration::from_millis(200);
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_a_few_effects_of_a_condition_the_end_is_the_same() {
    for kind in ["powerCycleHard", "bmcReset"] {
        ends_of_work_are_the_same(restarting(), Work::Condition(kind), 2, 7).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: every condition; run by .ci/run at every third effect, by .ci/long at every one"]
async fn killed_at_every_effect_of_a_condition_the_end_is_the_same() {
    for kind in ["powerCycleHard", "powerCycleSoft", "bmcReset"] {
        ends_of_work_are_the_same(restarting(), Work::Condition(kind), 4, 3).await;
    }
}

/// Describes a machine of a vendor whose flash takes a moment, by the clock of the controllers.
fn flashing(vendor: &str) -> ServerSpec {
    let bmc = lab_bmc::SimBmcConfig::vendor(vendor, SERIAL, BMC_USER, BMC_PASSWORD).unwrap();
    let mut bmc = bmc.in_time(0.01);
    bmc.starts_on = true;
    bmc.journal_capacity = 4096;
    bmc.update.check_time = Duration::from_millis(30);
    bmc.update.flash_time = Duration::from_millis(120);
    bmc.update.restart_time = Duration::from_millis(200);
    let mut spec = machine(|_| {});
    spec.host = lab_machines::HostKind::Idle;
    spec.bmc = Some(Box::new(bmc));
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_a_few_effects_of_a_rescue_the_end_is_the_same() {
    ends_of_work_are_the_same(machine(|_| {}), Work::Rescue, 2, 30).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; run by .ci/run at every twentieth effect, by .ci/long at every one"]
async fn killed_at_every_effect_of_a_rescue_the_end_is_the_same() {
    ends_of_work_are_the_same(machine(|_| {}), Work::Rescue, 4, 20).await;
}

/// The vendors of the matrix: a task that vanishes when the BMC restarts, progress at the service without any task, and a BMC
/// that reads the image from the controller that is killed. `KILL_VENDORS=all`, or a list with commas, replaces them.
fn flashed() -> Vec<String> {
    match std::env::var("KILL_VENDORS").as_deref() {
        Ok("all") => lab_bmc::VENDORS
            .iter()
            .filter(|vendor| !components_of(vendor.name).is_empty())
            .map(|vendor| vendor.name.to_owned())
            .collect(),
        Ok(list) => list.split(',').map(str::to_owned).collect(),
        Err(_) => ["generic", "hpe-ilo6", "fujitsu-irmc"].map(str::to_owned).into(),
    }
}

/// The components for which the BMC of a vendor takes images, sent or read from a URL: BMC and BIOS as far as it shows them, and one device
/// of the generic one.
fn components_of(vendor: &str) -> Vec<&'static str> {
    let bmc = lab_bmc::SimBmcConfig::vendor(vendor, SERIAL, BMC_USER, BMC_PASSWORD).unwrap();
    if !bmc.update.takes_images() {
        return Vec::new();
    }
    let has = |component| bmc.service.firmware.iter().any(|item| item.component == component);
    let all = [
        ("bmc", has(lab_bmc::Component::Bmc)),
        ("bios", has(lab_bmc::Component::Bios)),
        ("nic", vendor == "generic"),
    ];
    all.into_iter().filter(|(_, is_shown)| *is_shown).map(|(name, _)| name).collect()
}

/// The machine of [`flashing`] with a network adapter of another maker.
fn flashing_with_nic(vendor: &str) -> ServerSpec {
    let mut spec = flashing(vendor);
    let nic = lab_bmc::FirmwareItem {
        id: "NIC1".to_owned(),
        name: NIC.1.to_owned(),
        version: "22.1".to_owned(),
        updateable: true,
        manufacturer: Some(NIC.0.to_owned()),
        ..lab_bmc::FirmwareItem::default()
    };
    spec.bmc.as_mut().unwrap().service.firmware.push(nic);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_a_few_effects_of_an_installation_of_firmware_every_image_arrives_once() {
    ends_of_work_are_the_same(flashing("generic"), Work::Firmware("generic", &["bios"]), 2, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_a_few_effects_while_the_bmc_reads_the_image_every_image_arrives_once() {
    let work = Work::Firmware("fujitsu-irmc", &["bios"]);
    ends_of_work_are_the_same(flashing("fujitsu-irmc"), work, 2, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: three vendors, BMC, BIOS and a device; run by .ci/run at every sixtieth effect, by .ci/long at every one"]
async fn killed_at_every_effect_of_an_installation_of_firmware_every_image_arrives_once() {
    for vendor in flashed() {
        println!("{vendor}");
        // The work of a lane is copied, so the name lives as long as the test program.
        let vendor: &'static str = vendor.leak();
        let components: &'static [&'static str] = components_of(vendor).leak();
        let spec = if components.contains(&"nic") { flashing_with_nic(vendor) } else { flashing(vendor) };
        ends_of_work_are_the_same(spec, Work::Firmware(vendor, components), 4, 60).await;
    }
}

/// A machine of a vendor whose host runs, and the change of its BIOS settings.
fn setting(vendor: &str, name: &'static str, values: [&'static str; 2]) -> (ServerSpec, Work) {
    (flashing(vendor), Work::Bios(name, values))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_a_few_effects_of_a_change_of_bios_settings_they_are_written_once() {
    let (spec, work) = setting("generic", "BootMode", ["Uefi", "Legacy"]);
    ends_of_work_are_the_same(spec, work, 2, 24).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: two vendors; run by .ci/run at every fourth effect, by .ci/long at every one"]
async fn killed_at_every_effect_of_a_change_of_bios_settings_they_are_written_once() {
    let vendors = [
        ("generic", "BootMode", ["Uefi", "Legacy"]),
        ("dell-idrac10", "LogicalProc", ["Enabled", "Disabled"]),
    ];
    for (vendor, name, values) in vendors {
        println!("{vendor}");
        let (spec, work) = setting(vendor, name, values);
        ends_of_work_are_the_same(spec, work, 4, 4).await;
    }
}

/// The mutant: a BMC that does not show what waits for a restart, so that a successor cannot find what arrived without a
/// response and sends the same values again. The matrix counts the writes and detects it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute: killed at every change until it is detected; run by .ci/run"]
async fn settings_that_a_bmc_hides_are_written_twice_and_detected() {
    let changes = Points::every(1, CHANGES);
    let (spec, work) = setting("smc-x12", work::HIDDEN.0, work::HIDDEN.1);
    let tally = matrix((spec, work), 1, changes, |_| {}, Stop::AtTheFirstWrong).await;
    assert!(tally.wrong > 0, "the matrix did not detect the second write");
}

/// The mutant: the records of all steps, intents included, are missing after the death, as if they were written after the effect.
/// A lost intent alone is harmless on this BMC: its repeated request is refused as a conflict, which is waited for.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute: killed at every change until it is detected; run by .ci/run"]
async fn a_store_that_loses_the_records_of_steps_is_detected() {
    let changes = Points::every(1, CHANGES);
    let forgets = |data: &DataDir| {
        let database = Connection::open(data.path().join("data/provisioner.db")).unwrap();
        database.execute("DELETE FROM run_steps", []).unwrap();
    };
    let tally = matrix((late(), Work::Install), 1, changes, forgets, Stop::AtTheFirstWrong).await;
    assert!(tally.wrong > 0, "the matrix did not detect the lost records");
}

/// The mutant of the installation of firmware: without the record of the upload, nothing says that an image was sent.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute: killed at every change until it is detected; run by .ci/run"]
async fn a_store_that_loses_the_record_of_an_upload_is_detected() {
    let changes = Points::every(1, CHANGES);
    let forgets = |data: &DataDir| {
        let database = Connection::open(data.path().join("data/provisioner.db")).unwrap();
        database.execute("DELETE FROM run_steps WHERE step = 'firmware.upload'", []).unwrap();
    };
    let work = Work::Firmware("generic", &["bios"]);
    let tally = matrix((flashing("generic"), work), 1, changes, forgets, Stop::AtTheFirstWrong).await;
    assert!(tally.wrong > 0, "the matrix did not detect the lost record");
}

/// This mutant where the BMC reads the image: without the record, the installation asks it to read the image again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute: killed at every change until it is detected; run by .ci/run"]
async fn a_store_that_loses_the_record_of_an_image_that_is_read_is_detected() {
    let changes = Points::every(1, CHANGES);
    let forgets = |data: &DataDir| {
        let database = Connection::open(data.path().join("data/provisioner.db")).unwrap();
        database.execute("DELETE FROM run_steps WHERE step = 'firmware.upload'", []).unwrap();
    };
    let work = Work::Firmware("fujitsu-irmc", &["bios"]);
    let tally = matrix((flashing("fujitsu-irmc"), work), 1, changes, forgets, Stop::AtTheFirstWrong).await;
    assert!(tally.wrong > 0, "the matrix did not detect the lost record");
}
