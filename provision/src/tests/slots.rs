//! Slots that refuse: the way through all slot plans, and the events of the job about it; and whether the machine booted.

use http::Method;
use lab_bmc::{Fault, FaultEffect, FaultTrigger, Power, SlotConfig};

use super::bench::{Bench, inserts};
use super::*;
use engine::Explanation;
use model::{Artifact, GrantReads, Phase, Run};
use store::CausedByReads;

/// The message of an iDRAC, also for a URL that it cannot read.
const INTERNAL: &str = "The requested operation cannot be completed because of an internal error.";

fn says(status: u16, id: &str, message: &str) -> FaultEffect {
    FaultEffect::Status { status, message_id: id.to_owned(), message: message.to_owned() }
}

fn slots(count: usize) -> Vec<SlotConfig> {
    (1..=count).map(|number| SlotConfig::cd(format!("CD{number}"))).collect()
}

async fn explain(bench: &Bench, engine: &Engine, id: RunId) -> Explanation {
    engine.explain(&bench.snapshot(id).await).await.unwrap()
}

/// Asserts the end of a job whose BMC refused every image, on a host that was on before.
async fn assert_given_up(bench: &Bench, id: RunId, run: &Run, most: usize) {
    let events = bench.events(id).await;
    let failure = run.failure.as_ref().expect("the job fails");
    assert_eq!((run.outcome, failure.class.as_str()), (Some(Outcome::Failed), "bmc_refused"), "{events:#?}");
    let sent = inserts(bench);
    assert!((1..=most).contains(&sent), "{sent} inserts: {events:#?}");
    let machine = bench.sim_bmc.snapshot();
    assert_eq!((machine.power, machine.boots_from_media), (Power::On, 0), "{events:#?}");
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}");
    assert!(events.last().unwrap().ends_with("complete: failed"), "{events:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_calls_its_slots_occupied_ends_the_job_and_the_host_is_on_again() {
    let refusals = [
        says(409, "Base.1.8.ResourceInUse", "in use"),
        says(409, "Base.1.8.GeneralError", "conflict"),
        says(400, "IDRAC.1.6.SYS446", INTERNAL),
        says(400, "IDRAC.2.8.SYS446", "The media is attached already."),
        says(400, "iBMC.1.0.ConnectionOccupied", "occupied"),
    ];
    for refusal in refusals {
        for count in [1, 3] {
            let bench = Bench::new(|sim_bmc| {
                sim_bmc.starts_on = true;
                sim_bmc.slots = slots(count);
            })
            .await;
            bench.sim_bmc.inject(Fault::always(FaultTrigger::Insert, refusal.clone()));
            let engine = bench.plain_engine("one");
            let id = bench.order(&engine).await;
            let run = bench.run_to_end(&engine, id).await;
            assert_given_up(&bench, id, &run, count).await;
            let failure = run.failure.unwrap();
            for slot in 1..=count {
                let named = format!("slot CD{slot} refused the maintenance image");
                assert!(failure.summary.contains(&named), "{failure:#?}");
            }
            assert!(failure.summary.contains("the BMC had read nothing of the image"), "{failure:#?}");
            assert!(failure.next_action.contains("the BMC requested no image"), "{failure:#?}");
            let observed = bench.store.server(&"XF-1".parse().unwrap()).await.unwrap().unwrap().observed;
            assert!(observed.unwrap()["learned"].is_null(), "the boot image shows nothing of the slots");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_stays_busy_is_named_as_the_cause_and_not_the_network() {
    let bench = Bench::new(|sim_bmc| {
        sim_bmc.starts_on = true;
        sim_bmc.slots = slots(1);
    })
    .await;
    let busy = says(503, "Base.1.8.ServiceTemporarilyUnavailable", "an update is in progress");
    bench.sim_bmc.inject(Fault::always(FaultTrigger::Insert, busy));
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    let run = bench.run_to_end(&engine, id).await;
    // Sent again and again until the patience with a busy BMC ends.
    assert_given_up(&bench, id, &run, 100).await;
    let failure = run.failure.unwrap();
    assert!(inserts(&bench) > 2, "the insert was not sent again: {failure:#?}");
    assert!(failure.next_action.contains("the BMC was busy at every insert"), "{failure:#?}");
    // A restart of the BMC would cut the update that makes it busy.
    let (before, after) = failure.next_action.split_once("restart the BMC").unwrap();
    assert!(before.contains("wait for the end of an update"), "{failure:#?}");
    assert!(after.contains("only if its web interface shows no update"), "{failure:#?}");
    assert!(failure.summary.contains("an update is in progress"), "{failure:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_one_place_that_another_session_takes_ends_the_job_too() {
    // The first image is accepted, the second one is refused as occupied, and from then every image is.
    let bench = Bench::new(|sim_bmc| {
        sim_bmc.starts_on = true;
        sim_bmc.slots = slots(2);
    })
    .await;
    let occupied = says(409, "Base.1.8.ResourceInUse", "in use");
    bench.sim_bmc.inject(Fault::always(FaultTrigger::Insert, occupied).after(1));
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    let run = bench.run_to_end(&engine, id).await;
    assert_given_up(&bench, id, &run, 4).await;
    let summary = run.failure.unwrap().summary;
    for named in [
        "plan dual (CD1 and CD2): slot CD2 refused the task image",
        "plan single (CD1): slot CD1 refused the maintenance image with the task in it",
        "plan single (CD2): slot CD2 refused the maintenance image with the task in it",
    ] {
        assert!(summary.contains(named), "{named}: {summary}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_through_all_slot_plans_has_one_budget() {
    const LIMIT: Duration = Duration::from_secs(100);
    let run = async |limited: bool| {
        let bench = Bench::new(|sim_bmc| {
            sim_bmc.starts_on = true;
            sim_bmc.slots = slots(6);
        })
        .await;
        bench.sim_bmc.inject(Fault::always(FaultTrigger::Insert, FaultEffect::AcceptButIgnore));
        let engine = bench.plain_engine("one");
        let timeouts =
            if limited { json!({ "redfish.mount.maintenance": LIMIT.as_secs() }) } else { json!({}) };
        let id = bench.order_with(&engine, timeouts).await;
        let begun = bench.clock.now();
        let run = bench.run_to_end(&engine, id).await;
        let failed = run.failure.clone().unwrap();
        let events = bench.store.last_events(id, 1000).await.unwrap();
        let over = events.iter().find(|event| event.kind == "run.outcome").unwrap().time;
        assert_eq!(bench.sim_bmc.snapshot().power, Power::On, "{failed:#?}");
        (over.since(begun), inserts(&bench), failed)
    };
    let ((limited, few, failure), (unlimited, many, _)) = tokio::join!(run(true), run(false));
    // A plan may take its own waits beyond the end of the budget.
    assert!(limited < 2 * LIMIT && few < many, "{limited:?} of {unlimited:?}, {few} of {many} inserts");
    assert!(failure.summary.contains("plan dual (CD1 and CD2): slot CD1 refused"), "{failure:#?}");
}

/// Regression: a controller that was started again with another `STEP_TIMEOUTS` measured the way by the new value.
#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_all_slot_plans_stays_when_the_setting_behind_it_changes() {
    const SHORT: Duration = Duration::from_secs(100);
    const LONG: Duration = Duration::from_secs(1000);
    let run = async |first: Duration, second: Duration| {
        let bench = Bench::new(|sim_bmc| sim_bmc.slots = slots(6)).await;
        bench.sim_bmc.inject(Fault::always(FaultTrigger::Insert, FaultEffect::AcceptButIgnore));
        let engine = bench.engine_with_limit("one", names::MOUNT_MAINTENANCE, first);
        let id = bench.order(&engine).await;
        let begun = bench.clock.now();
        engine.run_until_idle().await.unwrap();
        assert_eq!(bench.snapshot(id).await.run.step.as_ref(), Some(names::MOUNT_MAINTENANCE));
        drop(engine);
        let engine = bench.engine_with_limit("two", names::MOUNT_MAINTENANCE, second);
        bench.run_to_end(&engine, id).await;
        let events = bench.store.last_events(id, 1000).await.unwrap();
        let over = events.iter().find(|event| event.kind == "run.outcome").unwrap();
        ((over.time.since(begun).as_secs(), inserts(&bench)), over.message.clone())
    };
    let (short, shortened, lengthened, long) =
        tokio::join!(run(SHORT, SHORT), run(LONG, SHORT), run(SHORT, LONG), run(LONG, LONG));
    assert!(short.0.0 < long.0.0 && short.0.1 < long.0.1, "{short:?}, {long:?}");
    assert_eq!((shortened.0, lengthened.0), (long.0, short.0), "{shortened:?}, {lengthened:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_a_job_whose_discovery_stored_none_are_those_of_the_settings() {
    let bench = Bench::new(|_| ()).await;
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    engine.run_until_idle().await.unwrap();
    let limit = Duration::from_secs(100);
    let services = bench.services_with_limit(names::MOUNT_MAINTENANCE, limit);
    let mut snapshot = bench.snapshot(id).await;
    assert_eq!(services.time_limit(names::MOUNT_MAINTENANCE, &snapshot), None, "none when it was discovered");
    // As an older program stored it.
    let mut discovered = snapshot.records_of(names::DISCOVER).next().unwrap().clone();
    discovered.output.as_object_mut().unwrap().remove("slot_plan_limits_ms").expect("stored");
    snapshot.put_record(discovered);
    assert_eq!(services.time_limit(names::MOUNT_MAINTENANCE, &snapshot), Some(limit));
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_names_the_refused_plan_while_the_job_uses_the_next_one() {
    let bench = Bench::new(|_| ()).await;
    let refused = says(400, "Contoso.1.0.ImageRefused", "not this image");
    bench.sim_bmc.inject(Fault::always(FaultTrigger::InsertInto("CD2".to_owned()), refused));
    let ignored = FaultEffect::AcceptButIgnore;
    bench.sim_bmc.inject(Fault::always(FaultTrigger::InsertInto("USB".to_owned()), ignored));
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    engine.run_until_idle().await.unwrap();
    let explained = explain(&bench, &engine, id).await;
    assert_eq!(explained.reason.as_deref(), Some("mount"), "{explained:#?}");
    let named = "refused before: plan dual (CD1 and CD2): slot CD2 refused the task image (refused with 400";
    assert!(explained.summary.contains(named), "{explained:#?}");
}

/// Records reads of an image of the job at this time.
async fn read(bench: &Bench, id: RunId, artifact: Artifact, at: Time) {
    for grant in bench.store.grants(id).await.unwrap() {
        if grant.grant.artifact == artifact {
            let reads = GrantReads {
                first_read_at: Some(at),
                boot_read_at: None,
                last_read_at: Some(at),
                bytes: 4096,
            };
            bench
                .store
                .record_reads(&grant.grant.token_hash, reads, |_| CausedByReads::default(), at)
                .await
                .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_never_booted_is_told_from_one_that_booted_and_never_reported() {
    let minute = Duration::from_secs(60);
    let table: [(Option<i64>, Option<i64>, &str, &str); 4] = [
        (None, None, "has not booted from the media: its BMC has never read the boot image", "network"),
        (Some(-1), None, "has not booted from the media: the boot image was last read at", "console"),
        (Some(1), None, "booted from the media and has not reported", "console"),
        (Some(1), Some(1), "booted from the media and has not reported", "console"),
    ];
    for (boot, task, facts, todo) in table {
        let bench = Bench::new(|_| ()).await;
        let engine = bench.plain_engine("one");
        let id = bench.order(&engine).await;
        engine.run_until_idle().await.unwrap();
        let on = bench.clock.now();
        let time = |at: i64| if at < 0 { on.minus(minute) } else { on.plus(minute) };
        for (artifact, at) in [(Artifact::Boot, boot), (Artifact::Task, task)] {
            if let Some(at) = at {
                read(&bench, id, artifact, time(at)).await;
            }
        }
        bench.clock.advance(2 * minute);
        let waiting = explain(&bench, &engine, id).await;
        assert_eq!(waiting.reason.as_deref(), Some("report"), "{waiting:#?}");
        assert!(waiting.summary.contains(facts) && waiting.next_action.contains(todo), "{waiting:#?}");
        let unread = waiting.summary.contains("it has not read the task image since");
        assert_eq!(unread, boot == Some(1) && task.is_none(), "{waiting:#?}");

        // At the deadline the job says the same, and keeps it.
        let deadline = bench.snapshot(id).await.run.deadline_at;
        bench.clock.advance(deadline.since(bench.clock.now()));
        engine.run_until_idle().await.unwrap();
        let failure = bench.snapshot(id).await.run.failure.expect("the deadline has passed");
        assert_eq!(failure.class, model::class::DEADLINE);
        assert!(failure.summary.contains(facts) && failure.next_action.contains(todo), "{failure:#?}");
        let run = bench.run_to_end(&engine, id).await;
        let ended = explain(&bench, &engine, id).await;
        assert_eq!((run.phase, ended.summary.matches(facts).count()), (Phase::Ended, 1), "{ended:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_tells_at_its_end_whether_the_machine_booted() {
    let bench = Bench::new(|_| ()).await;
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    engine.run_until_idle().await.unwrap();
    engine.verb(id, model::Verb::Cancel, "operator", "").await.unwrap();
    bench.run_to_end(&engine, id).await;
    let ended = explain(&bench, &engine, id).await;
    assert!(ended.summary.contains("its BMC has never read the boot image"), "{ended:#?}");
    assert_eq!(ended.next_action, "create a new job if it is still needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_goes_off_while_it_installs_is_noticed_once_and_explained() {
    let bench = Bench::new(|_| ()).await;
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    engine.run_until_idle().await.unwrap();
    let look = Duration::from_secs(600);
    let system = bench.sim_bmc.config().identity.system_id.clone();
    let reset = format!("/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset");
    let power =
        async |how: &str| bench.send_as_operator(Method::POST, &reset, json!({ "ResetType": how })).await;
    let offs = async || {
        bench.events(id).await.iter().filter(|event| event.contains("the host is off although")).count()
    };
    power("ForceOff").await;
    // The look at how the machine booted is the first one.
    bench.clock.advance(look);
    engine.run_until_idle().await.unwrap();
    for _ in 0..2 {
        bench.clock.advance(look);
        engine.run_until_idle().await.unwrap();
        let waiting = explain(&bench, &engine, id).await;
        assert_eq!(waiting.reason.as_deref(), Some("report"), "{waiting:#?}");
        assert!(waiting.summary.contains("the host is off since"), "{waiting:#?}");
    }
    assert_eq!(offs().await, 1);
    power("On").await;
    // The pause has grown.
    bench.clock.advance(look * 2);
    engine.run_until_idle().await.unwrap();
    let waiting = explain(&bench, &engine, id).await;
    assert!(!waiting.summary.contains("the host is off since"), "{waiting:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_look_before_the_deadline_decides_what_the_failure_says() {
    for (before, after) in [("On", "ForceOff"), ("ForceOff", "On")] {
        let bench = Bench::new(|_| ()).await;
        let engine = bench.plain_engine("one");
        let id = bench.order(&engine).await;
        engine.run_until_idle().await.unwrap();
        let system = bench.sim_bmc.config().identity.system_id.clone();
        let reset = format!("/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset");
        let power =
            async |how: &str| bench.send_as_operator(Method::POST, &reset, json!({ "ResetType": how })).await;
        if before == "ForceOff" {
            power(before).await;
        }
        // The looks at how the machine booted and at its power, up to a quarter of an hour before the deadline.
        let deadline = bench.snapshot(id).await.run.deadline_at;
        let (look, rest) = (Duration::from_secs(600), Duration::from_secs(900));
        while deadline.since(bench.clock.now()) > rest + look {
            bench.clock.advance(look);
            engine.run_until_idle().await.unwrap();
        }
        let is_off = async || explain(&bench, &engine, id).await.summary.contains("the host is off since");
        assert_eq!(is_off().await, before == "ForceOff");
        power(after).await;
        bench.clock.advance(deadline.since(bench.clock.now()).saturating_sub(Duration::from_secs(29)));
        engine.run_until_idle().await.unwrap();
        assert_eq!(is_off().await, after == "ForceOff", "seen half a minute before the deadline");
        bench.clock.advance(Duration::from_secs(30));
        engine.run_until_idle().await.unwrap();
        let failure = bench.snapshot(id).await.run.failure.expect("the deadline has passed");
        assert_eq!(failure.class, model::class::DEADLINE);
        assert_eq!(failure.summary.contains("the host is off since"), after == "ForceOff", "{failure:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_protocol_leads_to_https_and_a_quoted_url_does_not() {
    let refusals = [
        (says(400, "IDRAC.2.8.FileTransferProtocolMismatch", "The protocol does not match."), true),
        (says(400, "iLO.2.15.UnsupportedOperation", "HTTP is not supported, use HTTPS."), true),
        (says(400, "Base.1.8.GeneralError", "protocol HTTP not supported"), true),
        (says(400, "Base.1.8.GeneralError", "The image http://192.0.2.1/boot.iso is not supported."), false),
        (says(400, "Base.1.8.ActionParameterNotSupported", "Image 'https://bmc.example/boot.iso'"), false),
    ];
    for (refusal, is_protocol) in refusals {
        let bench = Bench::new(|sim_bmc| {
            sim_bmc.starts_on = true;
            sim_bmc.slots = slots(1);
        })
        .await;
        bench.sim_bmc.inject(Fault::always(FaultTrigger::Insert, refusal.clone()));
        let engine = bench.plain_engine("one");
        let id = bench.order(&engine).await;
        let run = bench.run_to_end(&engine, id).await;
        let failure = run.failure.expect("the job fails");
        for part in ["serve them by https", "media_base_url"] {
            assert_eq!(failure.next_action.contains(part), is_protocol, "{part}: {refusal:?}: {failure:#?}");
        }
        assert_eq!(failure.next_action.contains("the BMC requested no image"), !is_protocol, "{failure:#?}");
    }
}
