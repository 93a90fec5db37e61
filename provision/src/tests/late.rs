//! BMCs that show a change late while an operator cancels; and pending cleanup that one job leaves to the next.

use http::Method;
use lab_bmc::{Fault, FaultEffect, FaultTrigger, OverrideEnabled, Power, ResetType};

use super::bench::{Bench, inserts};
use super::*;
use model::{PendingCleanup, Verb};

/// The time the BMC shows a slot with an image as empty: real time, longer than a read-back takes.
const ATTACH: Duration = Duration::from_secs(3);

/// Regression from world 27396: the slot looked empty during cleanup, and the image stayed inserted.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_shows_only_after_the_cancel_is_ejected() {
    let bench = Bench::new(|sim_bmc| sim_bmc.media.attach_time = ATTACH).await;
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    let before = tokio::time::Instant::now();
    engine.run_until_idle().await.unwrap();
    assert_eq!(bench.snapshot(id).await.run.wait.unwrap().reason, "mount", "{:#?}", bench.events(id).await);
    engine.verb(id, Verb::Cancel, "operator", "").await.unwrap();
    engine.run_until_idle().await.unwrap();
    let run = bench.snapshot(id).await.run;
    let wait = run.wait.unwrap();
    assert_eq!((wait.step.as_str(), wait.reason.as_str()), ("cleanup.eject", "mount"));
    // The simulated BMC shows the media after this time.
    bench.sim_bmc.wait_for(|_| before.elapsed() >= ATTACH).await;
    let run = bench.run_to_end(&engine, id).await;
    assert_eq!(run.outcome, Some(Outcome::Cancelled), "{:#?}", bench.events(id).await);
    assert!(bench.sim_bmc.snapshot().slots.iter().all(|slot| slot.image.is_none()));
}

/// A regression: the insert was sent again at every poll until the slot showed the image.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_was_lost_and_is_shown_late_is_inserted_again_once() {
    let bench = Bench::new(|sim_bmc| {
        sim_bmc.media.attach_time = ATTACH;
        let busy = FaultEffect::Status {
            status: 503,
            message_id: "Base.1.18.ServiceTemporarilyUnavailable".to_owned(),
            message: String::new(),
        };
        sim_bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), busy));
    })
    .await;
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    let wait = async || bench.snapshot(id).await.run.wait.map(|wait| (wait.step.to_string(), wait.reason));
    let poll = async || {
        bench.clock.advance(Duration::from_secs(2));
        engine.run_until_idle().await.unwrap();
    };
    // The simulated BMC attaches an image in real time, and nothing notifies of it: a read shows it.
    let attached = async || tokio::time::sleep(ATTACH).await;
    let at = |step: &str, reason: &str| Some((step.to_owned(), reason.to_owned()));
    engine.run_until_idle().await.unwrap();
    attached().await;
    poll().await;
    attached().await;
    // The power-on is refused once, and the media are gone then.
    poll().await;
    assert_eq!(wait().await, at("redfish.power-on", "bmc_busy"), "{:#?}", bench.events(id).await);
    for slot in bench.sim_bmc.snapshot().slots {
        bench.eject(&slot.id).await;
    }
    // As after a restart of the BMC.
    let system = format!("/redfish/v1/Systems/{}", bench.sim_bmc.config().identity.system_id);
    let none = json!({ "Boot": { "BootSourceOverrideEnabled": "Disabled" } });
    bench.send_as_operator(Method::PATCH, &system, none).await;
    bench.clock.advance(Duration::from_secs(10));
    engine.run_until_idle().await.unwrap();
    for inserted in [3, 4] {
        for _ in 0..2 {
            assert_eq!(wait().await, at("redfish.power-on", "mount"), "{:#?}", bench.events(id).await);
            assert_eq!(inserts(&bench), inserted, "{:#?}", bench.events(id).await);
            poll().await;
        }
        attached().await;
        poll().await;
    }
    assert_eq!(wait().await, at("webhook.wait", "report"), "{:#?}", bench.events(id).await);
    assert_eq!(inserts(&bench), 4);
    let events = bench.events(id).await;
    let again = events.iter().filter(|event| event.contains("inserted again and read back")).count();
    assert_eq!(again, 2, "{events:#?}");
    let machine = bench.sim_bmc.snapshot();
    assert_eq!(machine.boots_from_media, 1, "the one-time boot was set again: {machine:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_cleanup_of_an_earlier_job_is_done_even_by_a_job_that_fails() {
    let mut bench = Bench::new(|_| ()).await;
    let system = format!("/redfish/v1/Systems/{}", bench.sim_bmc.config().identity.system_id);
    let once = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    bench.send_as_operator(Method::PATCH, &system, once).await;
    bench.set_pending_cleanup(PendingCleanup {
        job_id: "00000000-0000-0000-0000-000000000001".parse().unwrap(),
        remaining: vec![names::CLEANUP_BOOT_OVERRIDE.clone(), names::CLEANUP_POWER_ON.clone()],
        slots: Vec::new(),
        unknown: None,
    });
    let refused = FaultEffect::Status {
        status: 400,
        message_id: "Base.1.18.GeneralError".into(),
        message: "no".into(),
    };
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Insert, refused).times(100));
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    let run = bench.run_to_end(&engine, id).await;
    assert_eq!(run.failure.unwrap().step, "redfish.mount.maintenance");
    let sim_bmc = bench.sim_bmc.snapshot();
    assert_eq!(sim_bmc.boot.enabled, OverrideEnabled::Disabled, "{:#?}", bench.events(id).await);
    assert_eq!(sim_bmc.power, Power::On, "{:#?}", bench.events(id).await);
}
