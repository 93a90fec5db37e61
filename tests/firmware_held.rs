//! What an installation of firmware keeps while it is open, and what it does with an upload that breaks off.

use lab_bmc::{Fault, FaultEffect, FaultTrigger};
use serde_json::json;

use crate::firmware_install::{File, NEW, SERIAL, installed, log, order, scene, set_of, version};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_keeps_the_set_and_the_files_that_it_was_given_until_its_end() {
    let scene = scene("generic", |_| {}).await;
    set_of(&scene.admin, "generic", &[File::of("bios", NEW)]).await;
    let listed = scene.admin.get("/api/v1/firmware").await.expect(200);
    let file = format!("/api/v1/firmware/{}", listed["firmware"][0]["digest"].as_str().unwrap());
    // Without its BMC the job waits behind the step that holds its files.
    scene.bmc(SERIAL).set_reachable(false);
    let id = order(&scene, json!({ "firmware_set": "all" })).await;
    scene.wait_skipping(&id, "the BMC", |job| job["step"] == "firmware.identify").await;
    assert_eq!(scene.admin.delete("/api/v1/firmware-sets/all").await.status, 204);
    scene.admin.delete(&file).await.refused(409, "conflict.firmware_in_use");
    scene.bmc(SERIAL).set_reachable(true);
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert_eq!(version(scene.bmc(SERIAL), "bios"), NEW, "{log}");
    assert_eq!(scene.admin.delete(&file).await.status, 204, "nothing holds it any more");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_upload_breaks_off_is_sent_again_and_arrives_once() {
    let scene = scene("generic", |_| {}).await;
    // Larger than what sockets buffer, so that the last piece is not sent before the break is seen.
    set_of(&scene.admin, "generic", &[File::sized("bios", NEW, 24 << 20)]).await;
    let bmc = scene.bmc(SERIAL);
    bmc.inject(Fault::once(FaultTrigger::Update, FaultEffect::CutUpload(70_000)));
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert!(log.contains("the BMC closed the connection"), "{log}");
    let end = bmc.snapshot();
    assert_eq!((end.images, end.uploads_cut, version(bmc, "bios").as_str()), (1, 1, NEW), "{log}");
    scene.end().await;
}
