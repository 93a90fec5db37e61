//! Any faults of a BMC, in any order: the job ends, and what it could not clean up is recorded.
//!
//! ```text
//!   script = 0..=5 faults, each (which requests, which effect, after how many, how often), on one of three BMCs, host on or off
//!   ──► whole job ──► ended · slots empty or their cleanup pending · no reset repeated without a read · booted from media once
//! ```
//!
//! `PROPTEST_CASES` sets the number of scripts. A false power state "Off" is left out: no client can detect it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, JournalEntry, JournalItem, RequestKind, ResetType, SimBmcConfig,
    SimBmcSnapshot, StateChange,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{SERIAL, SYSTEM, get, says, scene};
use crate::kit::Scene;

/// The real time a machine of these tests gets to report. It needs a small part of it.
const REPORTS_WITHIN: Duration = Duration::from_millis(1500);
/// The number of scripts when `PROPTEST_CASES` is not set.
const CASES: u32 = 16;

/// The BMC of one job and its faults.
#[derive(Clone, Debug)]
struct Script {
    slots: &'static str,
    starts_on: bool,
    faults: Vec<Fault>,
}

impl Script {
    fn onto(self, bmc: &mut SimBmcConfig) {
        *bmc = match self.slots {
            "dual" => bmc.clone(),
            "cd+usb" => bmc.clone().with_cd_and_usb(),
            _ => bmc.clone().with_single_cd(),
        };
        bmc.starts_on = self.starts_on;
        bmc.faults = self.faults;
    }
}

fn triggers() -> impl Strategy<Value = FaultTrigger> {
    prop::sample::select(vec![
        FaultTrigger::Anything,
        FaultTrigger::Read,
        FaultTrigger::Mutation,
        FaultTrigger::Login,
        FaultTrigger::Insert,
        FaultTrigger::Eject,
        FaultTrigger::PatchBoot,
        FaultTrigger::Reset,
        FaultTrigger::ResetTo(ResetType::On),
        FaultTrigger::ResetTo(ResetType::ForceOff),
        FaultTrigger::ResetTo(ResetType::GracefulShutdown),
        FaultTrigger::Connect,
        get(SYSTEM),
    ])
}

fn effects() -> impl Strategy<Value = FaultEffect> {
    let page = |status| FaultEffect::Raw {
        status,
        content_type: "text/html".to_owned(),
        body: "<html>Service unavailable</html>".to_owned(),
    };
    prop::sample::select(vec![
        says(400, "Base.1.18.ActionParameterNotSupported"),
        says(400, "IDRAC.2.8.SYS518"),
        says(401, "Base.1.18.NoValidSession"),
        says(404, "Base.1.18.ResourceMissingAtURI"),
        says(405, "Base.1.18.OperationNotAllowed"),
        says(409, "Base.1.18.ResourceInUse"),
        says(412, "Base.1.18.PreconditionFailed"),
        says(500, "Base.1.18.InternalError"),
        says(503, "Base.1.18.ServiceTemporarilyUnavailable"),
        FaultEffect::RateLimit { retry_after_seconds: Some(1) },
        page(200),
        page(503),
        FaultEffect::Hang,
        FaultEffect::Drop,
        FaultEffect::Reset,
        FaultEffect::BmcRestart(Duration::from_millis(50)),
        FaultEffect::LoseMedia,
        FaultEffect::Delay(Duration::from_millis(50)),
        FaultEffect::AcceptButIgnore,
        FaultEffect::ApplyButTimeout,
        FaultEffect::ApplyButDrop,
        FaultEffect::CutBody(20),
        FaultEffect::Lie(json!({ "PowerState": null })),
        FaultEffect::Lie(json!({ "PowerState": "PoweringOff" })),
    ])
}

fn scripts() -> impl Strategy<Value = Script> {
    let fault = (triggers(), effects(), 0..4_u32, 1..=3_u32)
        .prop_map(|(when, effect, skip, times)| Fault::once(when, effect).after(skip).times(times));
    let slots = prop::sample::select(vec!["dual", "cd+usb", "single"]);
    (slots, any::<bool>(), prop::collection::vec(fault, 0..=5))
        .prop_map(|(slots, starts_on, faults)| Script { slots, starts_on, faults })
}

/// The end of a job and the journal of its BMC.
struct Ended {
    job: Value,
    machine: SimBmcSnapshot,
    journal: Vec<JournalEntry>,
    /// Whether the BMC drops media by itself, even of a running system.
    drops_media: bool,
}

async fn run_script(script: Script) -> (Ended, String) {
    let drops = |fault: &Fault| matches!(fault.effect, FaultEffect::BmcRestart(_) | FaultEffect::LoseMedia);
    let drops_media = script.faults.iter().any(drops);
    let scene = scene(|bmc| script.onto(bmc)).await;
    let id = scene.admin.create_job(SERIAL).await;
    let job = to_the_end(&scene, &id).await;
    let event_log = scene.admin.event_log(&id).await;
    let bmc = scene.bmc(SERIAL);
    let ended = Ended { job, machine: bmc.snapshot(), journal: bmc.journal(), drops_media };
    scene.end().await;
    (ended, event_log)
}

/// Skips pauses, and the wait for a report that the machine will not send.
async fn to_the_end(scene: &Scene, id: &str) -> Value {
    loop {
        let since = Cell::new(None::<Instant>);
        let silent = |job: &Value| {
            let waits = job["wait"]["reason"] == "report";
            since.set(since.get().or(Some(Instant::now())).filter(|_| waits));
            since.get().is_some_and(|since| since.elapsed() > REPORTS_WITHIN)
        };
        let over = |job: &Value| job["status"] == "complete";
        let job = scene.wait_skipping(id, "the end", |job| over(job) || silent(job)).await;
        if over(&job) {
            return job;
        }
        scene.skip_deadline(&job);
    }
}

/// Checks the end of a job. Returns what is wrong with it.
fn wrong(ended: &Ended) -> Option<String> {
    let Ended { job, machine, journal, drops_media } = ended;
    if job["status"] != "complete" || !["succeeded", "failed"].map(Value::from).contains(&job["outcome"]) {
        return Some(format!("no end: {} {}", job["status"], job["outcome"]));
    }
    let pending = job["cleanup"]["state"] == "incomplete"
        && job["cleanup"]["remaining"].as_array().is_some_and(|left| !left.is_empty());
    if !pending && machine.slots.iter().any(|slot| slot.image.is_some()) {
        return Some("an image is left in a slot and no cleanup is pending".to_owned());
    }
    if machine.boots_from_media > 1 {
        return Some(format!("booted from media {} times", machine.boots_from_media));
    }
    if machine.ejected_while_running > 0 && !drops_media {
        return Some("media of a running system were ejected".to_owned());
    }
    if machine.max_in_flight > 2 || machine.max_mutating_in_flight > 1 {
        return Some(format!("{} requests at once", machine.max_in_flight));
    }
    reset_twice(journal)
}

/// Finds a reset that was carried out twice without a read of the power state in between.
fn reset_twice(journal: &[JournalEntry]) -> Option<String> {
    let mut unread: Option<ResetType> = None;
    for entry in journal {
        match &entry.what {
            JournalItem::Change(StateChange::Reset(kind)) => {
                if unread == Some(*kind) {
                    return Some(format!("{kind:?} twice without a read of the host in between"));
                }
                unread = Some(*kind);
            }
            JournalItem::Request { operation: RequestKind::Read, path, .. } if path.ends_with(SYSTEM) => {
                unread = None
            }
            JournalItem::Request { .. } | JournalItem::Change(_) => {}
        }
    }
    None
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_script_of_faults_ends_clean_or_with_recorded_cleanup(script in scripts()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (ended, event_log) = runtime.block_on(run_script(script));
        let wrong = wrong(&ended);
        prop_assert!(wrong.is_none(), "{}\n{:#}\n{event_log}", wrong.unwrap(), ended.job);
    }
}

/// The check of ends detects wrong ends.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_ends_are_detected() {
    let script = Script { slots: "dual", starts_on: false, faults: Vec::new() };
    let (good, _) = run_script(script).await;
    assert_eq!(wrong(&good), None);
    let bad = |change: &dyn Fn(&mut Ended)| {
        let mut ended = Ended {
            job: good.job.clone(),
            machine: good.machine.clone(),
            journal: good.journal.clone(),
            drops_media: false,
        };
        change(&mut ended);
        wrong(&ended).unwrap()
    };
    assert!(bad(&|ended| ended.job["status"] = json!("provisioning")).contains("no end"));
    assert!(bad(&|ended| ended.machine.boots_from_media = 2).contains("2 times"));
    assert!(bad(&|ended| ended.machine.ejected_while_running = 1).contains("running system"));
    assert!(bad(&|ended| ended.machine.max_mutating_in_flight = 2).contains("at once"));
    let again = |ended: &mut Ended| {
        let reset = |entry: &JournalEntry| matches!(entry.what, JournalItem::Change(StateChange::Reset(_)));
        let at = ended.journal.iter().position(reset).unwrap();
        ended.journal.insert(at, ended.journal[at].clone());
    };
    assert!(bad(&again).contains("twice"));
    // An image may stay in a slot only while its cleanup is pending.
    let stuck = Fault::always(FaultTrigger::Eject, says(500, "Base.1.18.InternalError"));
    let (mut left, _) = run_script(Script { slots: "dual", starts_on: false, faults: vec![stuck] }).await;
    assert_eq!((wrong(&left), &left.job["cleanup"]["state"]), (None, &json!("incomplete")));
    left.job["cleanup"]["state"] = json!("done");
    assert!(wrong(&left).unwrap().contains("left in a slot"));
}
