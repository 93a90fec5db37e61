//! The messages of a worker elsewhere: their bytes are golden, and what one side writes the other side reads whole.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::kit::{DRILL, Kit, new_run};
use crate::wire::MAX_PLAN;
use crate::{
    CallKey, CallMessage, PROTOCOL, PermitRequest, ReportMessage, StepCall, StepOutcome, StepPolicy,
    StepReport, WaitLimit, WaitRequest,
};
use model::{
    Effect, Failure, Hold, Lease, NewEvent, Position, Run, RunId, Serial, Signal, Snapshot, Stage,
    StepInstance, StepPhase, StepRecord, Time,
};

fn now() -> Time {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn serial() -> Serial {
    "XF-1".parse().unwrap()
}

/// A call of a step with every part that a call has.
fn call() -> StepCall {
    let mut new = new_run("drill", &["a", "b@far"], now());
    new.id = RunId(Uuid::from_u128(7));
    let mut snapshot = Snapshot::new(&new, now());
    snapshot.input = Arc::new(json!({ "server": "XF-1" }));
    let lease =
        Some(Lease { owner: "worker/w1".to_owned(), expires_at: now().plus(Duration::from_secs(60)) });
    let server = Some(serial());
    snapshot.run = Run { lease, server, epoch: 3, queue: "far".to_owned(), ..snapshot.run };
    let record = StepRecord {
        at: Position { stage: Stage::Forward, index: 1 },
        name: "b".into(),
        key: "bios".to_owned(),
        attempt: 2,
        epoch: 3,
        phase: StepPhase::Intent,
        output: json!({ "sent": 1 }),
        started_at: now(),
        ended_at: None,
    };
    snapshot.steps = vec![record.clone().into()];
    snapshot.signals = vec![Signal {
        name: "permit".to_owned(),
        key: "permit/gate".to_owned(),
        payload: Value::Null,
        received_at: now(),
        consumed: false,
    }];
    let policy = StepPolicy { wait: Some(Duration::from_secs(9)), ..StepPolicy::default() };
    StepCall { snapshot: Arc::new(snapshot), record, reentered: true, undo: false, policy }
}

fn failure() -> Failure {
    Failure {
        class: "shaky".into(),
        step: "b".into(),
        summary: "on purpose".to_owned(),
        detail: Some(json!({ "code": 7 })),
        next_action: "nothing".to_owned(),
    }
}

/// A report of each outcome; the first one has every list.
fn reports() -> Vec<StepReport> {
    let detail = || "not yet".to_owned();
    let wait =
        |limit, poll| WaitRequest { reason: &DRILL, signals: Vec::new(), poll, limit, detail: detail() };
    let permit = PermitRequest {
        resource: "permit/gate".to_owned(),
        capacity: 4,
        reason: &DRILL,
        signals: Vec::new(),
        detail: detail(),
    };
    let hold = Hold {
        class: "decide".into(),
        since: now(),
        remind_at: now(),
        verbs: vec!["resume".to_owned()],
        detail: detail(),
    };
    let effects = [
        Effect::ServerObserved { serial: serial(), observed: json!({ "power": "On" }) },
        Effect::ServerUpdateLeft { serial: serial(), update: Some(json!({ "what": "bios 2.19" })) },
        Effect::ServerUpdateLeft { serial: serial(), update: None },
        Effect::ServerSeen { serial: serial() },
        Effect::ServerLearned { serial: serial(), learned: json!({ "slots": 2 }) },
        Effect::ServerPinned { serial: serial(), fingerprint: "ab".repeat(32) },
        Effect::ServerHardwareRead { serial: serial(), hardware: json!({ "cpus": 2 }) },
        Effect::PermitReleased { resource: "permit/gate".to_owned() },
    ];
    let step = StepInstance { name: "c".into(), key: "bmc".to_owned(), queue: "default".to_owned() };
    let mut done = StepReport::done().with_output(json!({ "sent": 2 }));
    done = done.event(NewEvent::warn("drill.seen", "seen").with(json!({ "by": "eye" })).by("mallory"));
    done = effects.into_iter().fold(done, StepReport::effect);
    done.plan = vec![step];
    done.consumed = vec![("permit".to_owned(), "permit/gate".to_owned())];
    let within = wait(Duration::from_secs(5).into(), Some(Duration::from_secs(1)));
    let outcomes = [
        StepOutcome::Skipped,
        StepOutcome::Wait(within),
        StepOutcome::Wait(wait(WaitLimit::At(now()), None)),
        StepOutcome::Permit(permit),
        StepOutcome::Retry(failure()),
        StepOutcome::Hold(hold),
        StepOutcome::Fail(failure()),
    ];
    [done].into_iter().chain(outcomes.into_iter().map(StepReport::new)).collect()
}

/// Another content of this file needs another number of [`PROTOCOL`], once a program with the old one was released.
#[test]
fn the_messages_of_a_worker_elsewhere_are_golden() {
    let call = call();
    let reports: Vec<ReportMessage> =
        reports().iter().map(|report| ReportMessage::of(&call, report)).collect();
    let message = CallMessage::of(&call, Duration::from_secs(60)).unwrap();
    let all = json!({ "protocol": PROTOCOL, "key": CallKey::of(&call), "call": message, "reports": reports });
    let shown = format!("{all:#}\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/worker-messages.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &shown).unwrap();
    }
    assert_eq!(shown, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[test]
fn a_call_arrives_as_it_was_sent() {
    let call = call();
    let message = CallMessage::of(&call, Duration::from_secs(60)).unwrap();
    let read: CallMessage = serde_json::from_slice(&serde_json::to_vec(&message).unwrap()).unwrap();
    assert_eq!(read.lease_ms, 60_000);
    let read = read.call();
    assert_eq!(*read.snapshot, *call.snapshot);
    assert_eq!((read.record, read.policy), (call.record, call.policy));
    assert_eq!((read.reentered, read.undo), (true, false));
}

#[tokio::test]
async fn a_report_arrives_as_it_was_sent_and_says_nothing_for_others() {
    let kit = Kit::new();
    let drill = kit.engine.workflows().get("drill").unwrap().clone();
    let call = call();
    for report in reports() {
        let message = ReportMessage::of(&call, &report);
        let read = message.clone().report(&call.snapshot.run, "far", &*drill).unwrap();
        assert_eq!((&read.outcome, &read.output), (&report.outcome, &report.output));
        assert_eq!((&read.effects, &read.consumed), (&report.effects, &report.consumed));
        assert!(read.plan.iter().all(|step| step.queue == "far"), "the queue of the reporting step");
        assert!(read.events.iter().all(|event| event.actor == "engine"), "no other actor");
        assert_eq!(ReportMessage::of(&call, &read), message);
    }
}

#[test]
fn a_report_about_another_server_fails_its_step() {
    let call = call();
    let other: Serial = "OTHER-9".parse().unwrap();
    let effects = [
        Effect::ServerPinned { serial: other.clone(), fingerprint: "ab".to_owned() },
        Effect::ServerHardwareRead { serial: other.clone(), hardware: json!({}) },
        Effect::CleanupPending { serial: serial(), pending: None },
        Effect::GrantsEnded,
    ];
    for effect in effects {
        let message = json!(ReportMessage::of(&call, &StepReport::done().effect(effect.clone())));
        let summary = message["outcome"]["fail"]["summary"].as_str().unwrap_or_default().to_owned();
        assert!(summary.contains("cannot be executed elsewhere"), "{effect:?}: {message}");
        assert!(!message.to_string().contains("OTHER-9"));
    }
}

proptest! {
    #[test]
    fn bytes_that_are_read_as_a_report_are_a_report_or_are_refused(
        outcome in prop_oneof![
            Just(json!("done")), Just(json!("restart")),
            ".{0,8}".prop_map(|reason| json!({ "wait": {
                "reason": reason, "poll_ms": u64::MAX, "limit": { "within-ms": u64::MAX }, "detail": "" } })),
        ],
        key in ".{0,70}",
        count in prop_oneof![0_usize..300, MAX_PLAN - 2..MAX_PLAN + 3],
    ) {
        let plan = vec![json!(["c", key]); count];
        let bytes = serde_json::to_vec(&json!({ "outcome": outcome, "plan": plan })).unwrap();
        let Ok(message) = serde_json::from_slice::<ReportMessage>(&bytes) else { return Ok(()) };
        let call = call();
        let workflow = crate::workflow::UnknownWorkflow;
        if let Ok(report) = message.report(&call.snapshot.run, "far", &workflow) {
            prop_assert!(report.plan.len() <= MAX_PLAN);
            prop_assert!(report.outcome == StepOutcome::Done);
        }
    }
}
