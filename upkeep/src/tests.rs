//! Tests of the tables: plans, steps, locks, children, texts of waits.

use std::fmt::Write;

use serde_json::{Value, json};

use super::*;
use bmc::test_support::{self, SharedSessions};
use model::{OnConflict, RunId, Time};

struct NoHardware;

#[async_trait]
impl HardwareLookup for NoHardware {
    async fn hardware(&self, _: &Serial) -> Result<Option<Value>, Unavailable> {
        Ok(None)
    }
}

struct NoFirmware;

#[async_trait]
impl FirmwareStore for NoFirmware {
    async fn hold(&self, _: RunId, _: &[firmware::Entry]) -> Result<(), FirmwareFileError> {
        Ok(())
    }

    async fn open(&self, _: &firmware::Entry) -> Result<firmware::VerifiedFirmware, FirmwareFileError> {
        Err(FirmwareFileError::Unusable("there is no file".to_owned()))
    }

    async fn release(&self, _: RunId) -> Result<(), FirmwareFileError> {
        Ok(())
    }
}

struct NoUrls;

#[async_trait]
impl ImageUrls for NoUrls {
    fn issue(&self, _: &UrlOrder<'_>) -> Result<IssuedUrl, String> {
        Err("nothing is served".to_owned())
    }

    async fn reads(&self, _: &str) -> Result<ImageReads, Unavailable> {
        Ok(ImageReads::default())
    }

    fn ended(&self, _: RunId) {}
}

fn now() -> Time {
    "2026-11-20T08:00:00Z".parse().unwrap()
}

fn workflows() -> Vec<Arc<dyn Workflow>> {
    let server = test_support::server("XF-1".parse().unwrap(), "http://192.0.2.7".to_owned(), now()).unwrap();
    let bmc = Arc::new(test_support::services(server, SharedSessions::default()));
    Upkeep::workflows(&Arc::new(UpkeepServices {
        bmc,
        hardware: Box::new(NoHardware),
        firmware: Arc::new(NoFirmware),
        urls: Arc::new(NoUrls),
        power_ons: None,
    }))
}

fn order(kind: ConditionKind) -> UpkeepOrder {
    let parameters = match kind {
        ConditionKind::BiosApply => json!({ "attributes": { "Turbo": true } }),
        _ => Value::Null,
    };
    UpkeepOrder::new("XF-1".parse().unwrap(), UpkeepAction::of(kind, parameters).unwrap())
}

#[tokio::test]
async fn every_kind_has_a_workflow_that_knows_each_step_of_its_plan_and_no_other() {
    let workflows = workflows();
    for kind in ConditionKind::all() {
        let workflow = workflows.iter().find(|workflow| workflow.name() == kind.workflow()).unwrap();
        let run = order(*kind).run(RunId::new(), "ann", now());
        assert_eq!((run.workflow.as_str(), run.workflow_version), (workflow.name(), workflow.version()));
        assert!(!run.plan.forward.is_empty() && !run.plan.finish.is_empty(), "{kind}");
        for step in run.plan.forward.iter().chain(&run.plan.finish) {
            assert!(workflow.step(&step.name).is_some(), "{}", step.name);
        }
        let others = WORKFLOWS.iter().filter(|name| **name != workflow.name());
        for step in others.flat_map(|name| names::plan(name).forward) {
            assert!(workflow.step(step).is_none(), "{} is no step of {}", step, workflow.name());
        }
    }
}

#[test]
fn an_order_waits_for_the_server_and_is_alone_with_its_kind() {
    let locks = |order: UpkeepOrder| {
        let locks = order.run(RunId::new(), "ann", now()).locks;
        locks.into_iter().map(|lock| (lock.resource, lock.on_conflict)).collect::<Vec<_>>()
    };
    use OnConflict::{RefuseQueued, Wait};
    let named = |resource: &str, on_conflict| (resource.to_owned(), on_conflict);
    for kind in ConditionKind::all() {
        assert_eq!(
            locks(order(*kind)),
            [
                named(&format!("condition/XF-1/{kind}"), RefuseQueued),
                named("condition/XF-1", RefuseQueued),
                named("server/XF-1", Wait),
            ]
        );
    }
    let shared_bmc = Some("https://192.0.2.7".to_owned());
    let queued = UpkeepOrder { queue: true, shared_bmc, ..order(ConditionKind::BmcReset) };
    assert_eq!(
        locks(queued)[1..],
        [named("condition/XF-1", Wait), named("server/XF-1", Wait), named("bmc/https://192.0.2.7", Wait),]
    );
}

#[test]
fn the_label_queue_moves_every_step_at_the_bmc_and_no_step_that_holds_files() {
    let labels = BTreeMap::from([(order::QUEUE_LABEL.to_owned(), "facility-b".to_owned())]);
    let queues = |order: UpkeepOrder| -> BTreeMap<String, String> {
        let plan = order.run(RunId::new(), "ann", now()).plan;
        let steps = plan.forward.into_iter().chain(plan.finish);
        steps.map(|step| (step.name.to_string(), step.queue)).collect()
    };
    for kind in ConditionKind::all() {
        assert!(queues(order(*kind)).values().all(|queue| queue == bmc::QUEUE), "{kind}");
        for (step, queue) in queues(order(*kind).in_facility_of(&labels)) {
            let holds_files = ["firmware.validate", "firmware.release"].contains(&step.as_str());
            assert_eq!(queue, if holds_files { bmc::QUEUE } else { "facility-b" }, "{kind}: {step}");
        }
    }
    let empty = BTreeMap::from([(order::QUEUE_LABEL.to_owned(), String::new())]);
    assert!(
        queues(order(ConditionKind::BmcReset).in_facility_of(&empty))
            .values()
            .all(|queue| queue == bmc::QUEUE)
    );
}

#[tokio::test]
async fn a_child_has_the_lock_of_its_server_and_its_parent() {
    let workflows = workflows();
    let (parent, root) = (RunId::new(), RunId::new());
    let request = |input: Value| ChildRequest {
        id: RunId::new(),
        parent: (parent, root),
        input,
        created_by: "ann".to_owned(),
        now: now(),
    };
    let input = json!(UpkeepInput {
        server: "XF-1".parse().unwrap(),
        action: UpkeepAction::of(ConditionKind::BmcReset, Value::Null).unwrap(),
        parallel: None,
    });
    let workflow = |name: &str| workflows.iter().find(|workflow| workflow.name() == name).unwrap();
    let child = workflow(BMC_RESET).prepare_child(request(input.clone())).unwrap();
    assert_eq!((child.parent, child.locks.len()), (Some((parent, root)), 1));
    assert_eq!(child.locks[0].resource, "server/XF-1");
    assert!(workflow(POWER_CYCLE).prepare_child(request(input)).is_err(), "another workflow's input");
    assert!(workflow(POWER_CYCLE).prepare_child(request(json!({}))).is_err());
}

#[test]
fn a_repeated_order_has_the_parameters_of_the_ended_run() {
    let action = UpkeepAction::of(ConditionKind::PowerCycleSoft, json!({ "grace_seconds": 7 })).unwrap();
    let run = UpkeepOrder::new("XF-1".parse().unwrap(), action.clone()).run(RunId::new(), "ann", now());
    let ended = model::Snapshot::new(&run, now());
    let again = UpkeepOrder::repeat(&ended).unwrap();
    assert_eq!((again.input.action, again.retry_of), (action, Some(run.id)));
}

fn per_rack(count: u32, servers: u32) -> Option<ParallelLimit> {
    Some(ParallelLimit { label: "rack".to_owned(), value: "r1".to_owned(), count, servers })
}

#[test]
fn a_repeated_order_runs_under_the_limit_of_the_ended_run() {
    let first =
        order(ConditionKind::FirmwareInstall).limited(per_rack(2, 40)).run(RunId::new(), "ann", now());
    let again = UpkeepOrder::repeat(&model::Snapshot::new(&first, now())).unwrap();
    let again = again.run(RunId::new(), "ann", now());
    let limit = "parallel/firmwareInstall/rack=r1";
    let of = |run: &NewRun| run.locks.iter().find(|lock| lock.resource == limit).map(|lock| lock.capacity);
    assert_eq!((of(&first), of(&again)), (Some(2), Some(2)));
    assert_eq!(again.deadline_at, first.deadline_at);
    let free = order(ConditionKind::FirmwareInstall).run(RunId::new(), "ann", now());
    let again = UpkeepOrder::repeat(&model::Snapshot::new(&free, now())).unwrap();
    assert_eq!(again.input.parallel, None);
}

#[test]
fn the_default_deadline_has_the_time_of_each_round_of_a_limit() {
    let hours = |kind, limit| {
        let run = order(kind).limited(limit).run(RunId::new(), "ann", now());
        run.deadline_at.since(now()).as_secs() / 3600
    };
    use ConditionKind::{FirmwareInstall, PowerCycleHard};
    assert_eq!(hours(FirmwareInstall, None), 12);
    assert_eq!(hours(FirmwareInstall, per_rack(2, 40)), 12 * 20);
    assert_eq!(hours(FirmwareInstall, per_rack(40, 40)), 12);
    assert_eq!(hours(PowerCycleHard, per_rack(2, 3)), 8);
    assert_eq!(hours(PowerCycleHard, per_rack(2, 0)), 4, "a server that lost its label meanwhile");
}

#[test]
fn the_texts_of_the_wait_reasons_match_the_golden_file() {
    let mut text = String::new();
    for WaitReason { name, means, ends_by, next_action } in waits::ALL {
        writeln!(text, "{name}\n  waiting for {means}\n  ends by: {ends_by}\n  to do: {next_action}\n")
            .unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/upkeep-waits.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}
