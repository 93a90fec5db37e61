//! Slots that refuse: the job goes on with the next plan, and the next job knows.

use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, JournalEntry, JournalItem, Power, RequestKind, SimBmcConfig, SlotConfig,
};
use serde_json::Value;

use crate::kit::{Scene, honest, with_bmc};

fn refusing(slot: &str, status: u16, id: &str) -> Fault {
    let effect = FaultEffect::Status {
        status,
        message_id: id.to_owned(),
        message: "The image is not one this slot takes.".to_owned(),
    };
    Fault::always(FaultTrigger::InsertInto(slot.to_owned()), effect)
}

fn plans(events: &[Value]) -> Vec<String> {
    let replanned = events.iter().filter(|event| event["type"] == "redfish.slot-fallback");
    replanned.map(|event| event["data"]["plan"].as_str().unwrap().to_owned()).collect()
}

struct Story {
    scene: Scene,
    job: Value,
    events: Vec<Value>,
    text: String,
}

async fn job_with(serial: &str, change: impl FnOnce(&mut SimBmcConfig)) -> Story {
    let scene = Scene::start(vec![with_bmc(honest(serial), change)]).await;
    again(scene, serial).await
}

async fn again(scene: Scene, serial: &str) -> Story {
    let id = scene.admin.create_job(serial).await;
    let job = scene.complete_skipping(&id).await;
    let (events, text) = (scene.admin.events(&id).await, scene.admin.story(&id).await);
    Story { scene, job, events, text }
}

fn ended_well(story: &Story, serial: &str) {
    assert_eq!(story.job["outcome"], "succeeded", "{}", story.text);
    assert_eq!(story.job["cleanup"]["state"], "done", "{}", story.text);
    let machine = story.scene.bmc(serial).snapshot();
    assert_eq!((machine.power, machine.ejected_while_running), (Power::On, 0), "{}", story.text);
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}");
    assert_eq!(machine.boots_from_media, 1, "{}", story.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_slot_that_refuses_leads_to_one_image_for_both() {
    let story = job_with("FALL-1", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD2", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    ended_well(&story, "FALL-1");
    assert_eq!(plans(&story.events), ["single"], "{}", story.text);
    let said = story.events.iter().find(|event| event["type"] == "redfish.slot-fallback").unwrap();
    let message = said["message"].as_str().unwrap();
    for word in ["CD2", "refused the task image", "ImageRefused", "plan single", "CD1"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    // What was in the first slot was taken out before it was filled anew, under a URL that was never used before.
    let into_first = |entry: &&JournalEntry| match &entry.what {
        JournalItem::Request { operation, path, .. } => {
            *operation == RequestKind::Insert && path.contains("CD1")
        }
        _ => false,
    };
    let journal = story.scene.bmc("FALL-1").journal();
    assert_eq!(journal.iter().filter(into_first).count(), 2, "{journal:#?}");
    assert_eq!(story.job["slot_plan"]["plan"], "single", "{:#}", story.job);
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_job_begins_with_the_plan_that_worked() {
    let story = job_with("FALL-2", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD2", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    ended_well(&story, "FALL-2");
    let second = again(story.scene, "FALL-2").await;
    assert_eq!(second.job["outcome"], "succeeded", "{}", second.text);
    assert_eq!(plans(&second.events), [""; 0], "{}", second.text);
    let found = second.events.iter().find(|event| event["type"] == "redfish.discovered").unwrap();
    assert!(found["message"].as_str().unwrap().contains("CD2 refused an image before"), "{found}");
    // Whoever changes the server's record wants it tried anew.
    let labels = serde_json::json!({ "labels": { "rack": "7" } });
    second.scene.admin.patch("/api/v1/servers/FALL-2", &labels).await.expect(200);
    let third = again(second.scene, "FALL-2").await;
    assert_eq!(plans(&third.events), ["single"], "{}", third.text);
    third.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_lead_through_every_plan_in_order() {
    let story = job_with("FALL-3", |bmc| {
        bmc.faults.push(refusing("CD2", 405, "Base.1.8.ActionNotSupported"));
        bmc.faults.push(refusing("USB", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    ended_well(&story, "FALL-3");
    assert_eq!(plans(&story.events), ["cd+usb", "single"], "{}", story.text);
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usb_slot_gets_the_task_image_under_the_name_of_a_disk() {
    let story = job_with("FALL-4", |bmc| {
        *bmc = bmc.clone().with_cd_and_usb();
        bmc.faults.push(refusing("CD9", 400, "x"));
    })
    .await;
    ended_well(&story, "FALL-4");
    assert_eq!(story.job["slot_plan"]["plan"], "cd+usb", "{:#}", story.job);
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_holds_one_image_at_a_time_is_believed_at_once() {
    let story = job_with("FALL-5", |bmc| {
        bmc.faults.push(refusing("CD2", 409, "Base.1.8.ResourceExhaustion"));
    })
    .await;
    ended_well(&story, "FALL-5");
    assert_eq!(plans(&story.events), ["single"], "not the USB slot either: {}", story.text);
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_stays_busy_is_given_up_for_another_plan() {
    let story = job_with("FALL-6", |bmc| {
        bmc.faults.push(refusing("CD2", 400, "iDRAC.2.8.SYS446"));
    })
    .await;
    ended_well(&story, "FALL-6");
    assert_eq!(plans(&story.events), ["single"], "{}", story.text);
    assert!(story.events.iter().any(|event| event["type"] == "step.retry"), "tried more than once");
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_takes_an_image_and_never_shows_it_is_given_up_for_another_plan() {
    let story = job_with("FALL-7", |bmc| {
        bmc.faults
            .push(Fault::always(FaultTrigger::InsertInto("CD2".to_owned()), FaultEffect::AcceptButIgnore));
    })
    .await;
    ended_well(&story, "FALL-7");
    assert_eq!(plans(&story.events), ["cd+usb"], "{}", story.text);
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_slot_that_refuses_is_left_for_another_one() {
    let story = job_with("FALL-8", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD1", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    ended_well(&story, "FALL-8");
    assert_eq!(plans(&story.events), ["single"], "{}", story.text);
    assert!(story.job["slot_plan"]["slots"].as_array().unwrap().contains(&Value::from("CD2")));
    story.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_refuses_everywhere_ends_the_job_with_every_refusal_in_one_sentence() {
    let story = job_with("FALL-9", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD1", 400, "Contoso.1.0.ImageRefused"));
        bmc.faults.push(refusing("CD2", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    assert_eq!(story.job["outcome"], "failed");
    assert_eq!(story.job["failure"]["class"], "bmc_refused", "{:#}", story.job);
    let summary = story.job["failure"]["summary"].as_str().unwrap();
    assert!(summary.contains("CD1: ") && summary.contains("CD2: "), "{summary}");
    assert!(story.job["failure"]["next_action"].as_str().unwrap().contains("doctor"));
    let machine = story.scene.bmc("FALL-9").snapshot();
    assert_eq!(machine.boots_from_media, 0);
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()));
    story.scene.end().await;
}
