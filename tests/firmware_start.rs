//! Installations of firmware whose start is a second request, on BMCs whose response to it is lost.

use lab_bmc::{Fault, FaultEffect, FaultTrigger, JournalItem, SimBmc};
use serde_json::{Value, json};

use crate::firmware_install::{File, NEW, SERIAL, log, order, scene, set_of, version};
use crate::kit::Scene;

const START: &str = "/UpdateService.StartUpdate";

/// A server whose BMC stores an image and flashes it at a second request, with a fault at that request.
async fn started(effect: FaultEffect, times: Option<u32>) -> (Scene, SimBmc, String) {
    // The polls of an hour of the clock of the controller are in it.
    let scene = scene("smc-x12", |bmc| bmc.journal_capacity = 1 << 16).await;
    set_of(&scene.admin, "smc-x12", &[File::of("bios", NEW)]).await;
    let bmc = scene.bmc(SERIAL).clone();
    let trigger = FaultTrigger::Request { method: "POST".to_owned(), path_ends_with: START.to_owned() };
    bmc.inject(match times {
        Some(times) => Fault::once(trigger, effect).times(times),
        None => Fault::always(trigger, effect),
    });
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    (scene, bmc, id)
}

/// How often the BMC received the request.
fn starts(bmc: &SimBmc) -> usize {
    let is_start =
        |what: &JournalItem| matches!(what, JournalItem::Request { path, .. } if path.ends_with(START));
    bmc.journal().iter().filter(|entry| is_start(&entry.what)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_carried_out_without_a_response_is_found_and_one_that_was_lost_is_sent_again() {
    for (effect, expected) in [(FaultEffect::ApplyButDrop, 1), (FaultEffect::Drop, 2)] {
        let (scene, bmc, id) = started(effect, Some(1)).await;
        let job = scene.complete_skipping(&id).await;
        let log = log(&scene, &job).await;
        assert_eq!((&job["outcome"], version(&bmc, "bios").as_str()), (&json!("succeeded"), NEW), "{log}");
        assert_eq!((starts(&bmc), bmc.snapshot().images), (expected, 1), "{log}");
        scene.end().await;
    }
}

/// A regression: the request was repeated at every poll, and the cleanup took an image that was perhaps flashed for one that was not
/// installed.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_any_response_is_sent_twice_and_a_cancel_waits_for_what_the_bmc_may_flash() {
    let (scene, bmc, id) = started(FaultEffect::Drop, None).await;
    let second = |_: &Value| starts(&bmc) == 2;
    scene.wait_skipping(&id, "the second start", second).await;
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.wait_skipping(&id, "the wait for the flash", |job| job["wait"]["reason"] == "flash_ends").await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert!(!log.contains("was uploaded and not installed"), "{log}");
    assert!(log.contains("firmware.left-running"), "{log}");
    assert_eq!(starts(&bmc), 2, "{log}");
    scene.end().await;
}
