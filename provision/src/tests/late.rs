//! What a BMC shows only after a while, and an operator who does not wait for it; and what one job leaves to the next.

use http::Method;
use lab_bmc::{Effect, Fault, OverrideEnabled, Power, When};

use super::bench::Bench;
use super::*;
use engine::Verb;

/// For so long the BMC shows a slot as empty that has taken an image; real time, longer than a read back takes.
const ATTACH: Duration = Duration::from_secs(3);

/// World 27396: the slot still looked empty when cleanup came to it, and the image stayed.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_shows_only_after_the_cancel_is_ejected_all_the_same() {
    let bench = Bench::new(|twin| twin.media.attach_time = ATTACH).await;
    let engine = bench.sound("one");
    let id = bench.order(&engine).await;
    let before = tokio::time::Instant::now();
    engine.run_until_idle().await.unwrap();
    assert_eq!(bench.snapshot(id).await.run.wait.unwrap().reason, "mount", "{:#?}", bench.events(id).await);
    engine.verb(id, Verb::Cancel, "somebody", "").await.unwrap();
    engine.run_until_idle().await.unwrap();
    let run = bench.snapshot(id).await.run;
    let wait = run.wait.unwrap();
    assert_eq!((wait.step.as_str(), wait.reason.as_str()), ("cleanup.eject", "mount"));
    // The twin tells when it begins to show it.
    bench.twin.wait_for(|_| before.elapsed() >= ATTACH).await;
    let run = bench.carry_out(&engine, id).await;
    assert_eq!(run.outcome, Some(Outcome::Cancelled), "{:#?}", bench.events(id).await);
    assert!(bench.twin.snapshot().slots.iter().all(|slot| slot.image.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_job_owes_is_taken_back_by_one_that_fails_too() {
    let mut bench = Bench::new(|_| ()).await;
    let system = format!("/redfish/v1/Systems/{}", bench.twin.config().identity.system_id);
    let once = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    bench.change_by_hand(Method::PATCH, &system, once).await;
    bench.owe(json!({ "remaining": ["cleanup.boot-override", "cleanup.power-on"], "slots": [] }));
    let refused =
        Effect::Status { status: 400, message_id: "Base.1.18.GeneralError".into(), message: "no".into() };
    bench.twin.inject(Fault::once(When::Insert, refused).times(100));
    let engine = bench.sound("one");
    let id = bench.order(&engine).await;
    let run = bench.carry_out(&engine, id).await;
    assert_eq!(run.failure.unwrap().step, "redfish.mount.maintenance");
    let twin = bench.twin.snapshot();
    assert_eq!(twin.boot.enabled, OverrideEnabled::Disabled, "{:#?}", bench.events(id).await);
    assert_eq!(twin.power, Power::On, "{:#?}", bench.events(id).await);
}
