//! Slots that refuse an image: the job continues with the next slot plan, and the next job starts with the plan that worked.

use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, JournalEntry, JournalItem, Power, RequestKind, SimBmcConfig, SlotConfig,
};
use serde_json::Value;

use crate::kit::{Scene, healthy, with_bmc};

fn refusing(slot: &str, status: u16, id: &str) -> Fault {
    let effect = FaultEffect::Status {
        status,
        message_id: id.to_owned(),
        message: "The image is not one this slot takes.".to_owned(),
    };
    Fault::always(FaultTrigger::InsertInto(slot.to_owned()), effect)
}

fn plans(events: &[Value]) -> Vec<String> {
    let fallbacks = events.iter().filter(|event| event["type"] == "redfish.slot-fallback");
    fallbacks.map(|event| event["data"]["plan"].as_str().unwrap().to_owned()).collect()
}

struct EndedJob {
    scene: Scene,
    job: Value,
    events: Vec<Value>,
    text: String,
}

async fn job_with(serial: &str, change: impl FnOnce(&mut SimBmcConfig)) -> EndedJob {
    let scene = Scene::start(vec![with_bmc(healthy(serial), change)]).await;
    again(scene, serial).await
}

async fn again(scene: Scene, serial: &str) -> EndedJob {
    let id = scene.admin.create_job(serial).await;
    let job = scene.complete_skipping(&id).await;
    let (events, text) = (scene.admin.events(&id).await, scene.admin.event_log(&id).await);
    EndedJob { scene, job, events, text }
}

fn assert_succeeded(ended: &EndedJob, serial: &str) {
    assert_eq!(ended.job["outcome"], "succeeded", "{}", ended.text);
    assert_eq!(ended.job["cleanup"]["state"], "done", "{}", ended.text);
    let machine = ended.scene.bmc(serial).snapshot();
    assert_eq!((machine.power, machine.ejected_while_running), (Power::On, 0), "{}", ended.text);
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}");
    assert_eq!(machine.boots_from_media, 1, "{}", ended.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_slot_that_refuses_leads_to_one_image_for_both() {
    let ended = job_with("FALL-1", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD2", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    assert_succeeded(&ended, "FALL-1");
    assert_eq!(plans(&ended.events), ["single"], "{}", ended.text);
    let said = ended.events.iter().find(|event| event["type"] == "redfish.slot-fallback").unwrap();
    let message = said["message"].as_str().unwrap();
    for word in ["CD2", "refused the task image", "ImageRefused", "plan single", "CD1"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    // The image in the first slot was ejected before the insert, and the insert had a new URL.
    let into_first = |entry: &&JournalEntry| match &entry.what {
        JournalItem::Request { operation, path, .. } => {
            *operation == RequestKind::Insert && path.contains("CD1")
        }
        _ => false,
    };
    let journal = ended.scene.bmc("FALL-1").journal();
    assert_eq!(journal.iter().filter(into_first).count(), 2, "{journal:#?}");
    assert_eq!(ended.job["slot_plan"]["plan"], "single", "{:#}", ended.job);
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_job_begins_with_the_plan_that_worked() {
    let ended = job_with("FALL-2", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD2", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    assert_succeeded(&ended, "FALL-2");
    let second = again(ended.scene, "FALL-2").await;
    assert_eq!(second.job["outcome"], "succeeded", "{}", second.text);
    assert_eq!(plans(&second.events), [""; 0], "{}", second.text);
    let found = second.events.iter().find(|event| event["type"] == "redfish.discovered").unwrap();
    assert!(found["message"].as_str().unwrap().contains("CD2 refused an image before"), "{found}");
    // A change of the server's record discards the learned plan.
    let labels = serde_json::json!({ "labels": { "rack": "7" } });
    second.scene.admin.patch("/api/v1/servers/FALL-2", &labels).await.expect(200);
    let third = again(second.scene, "FALL-2").await;
    assert_eq!(plans(&third.events), ["single"], "{}", third.text);
    third.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_lead_to_every_plan_in_order() {
    let ended = job_with("FALL-3", |bmc| {
        bmc.faults.push(refusing("CD2", 405, "Base.1.8.ActionNotSupported"));
        bmc.faults.push(refusing("USB", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    assert_succeeded(&ended, "FALL-3");
    assert_eq!(plans(&ended.events), ["cd+usb", "single"], "{}", ended.text);
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usb_slot_gets_the_task_image_under_the_name_of_a_disk() {
    let ended = job_with("FALL-4", |bmc| {
        *bmc = bmc.clone().with_cd_and_usb();
        bmc.faults.push(refusing("CD9", 400, "x"));
    })
    .await;
    assert_succeeded(&ended, "FALL-4");
    assert_eq!(ended.job["slot_plan"]["plan"], "cd+usb", "{:#}", ended.job);
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_holds_one_image_at_a_time_gets_the_single_plan_at_once() {
    let ended = job_with("FALL-5", |bmc| {
        bmc.faults.push(refusing("CD2", 409, "Base.1.8.ResourceExhaustion"));
    })
    .await;
    assert_succeeded(&ended, "FALL-5");
    assert_eq!(plans(&ended.events), ["single"], "the USB slot was tried: {}", ended.text);
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_stays_busy_is_given_up_for_another_plan() {
    let ended = job_with("FALL-6", |bmc| {
        bmc.faults.push(refusing("CD2", 400, "iDRAC.2.8.SYS446"));
    })
    .await;
    assert_succeeded(&ended, "FALL-6");
    // A Dell sends this id for several causes, so it does not mean that the BMC holds one image at a time.
    assert_eq!(plans(&ended.events), ["cd+usb"], "{}", ended.text);
    assert!(ended.events.iter().any(|event| event["type"] == "step.retry"), "the insert was not repeated");
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_takes_an_image_and_never_shows_it_is_given_up_for_another_plan() {
    let ended = job_with("FALL-7", |bmc| {
        bmc.faults
            .push(Fault::always(FaultTrigger::InsertInto("CD2".to_owned()), FaultEffect::AcceptButIgnore));
    })
    .await;
    assert_succeeded(&ended, "FALL-7");
    assert_eq!(plans(&ended.events), ["cd+usb"], "{}", ended.text);
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_slot_that_refuses_is_replaced_by_another_slot() {
    let ended = job_with("FALL-8", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD1", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    assert_succeeded(&ended, "FALL-8");
    assert_eq!(plans(&ended.events), ["single"], "{}", ended.text);
    assert!(ended.job["slot_plan"]["slots"].as_array().unwrap().contains(&Value::from("CD2")));
    ended.scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_refuses_everywhere_ends_the_job_with_every_refusal_in_one_sentence() {
    let ended = job_with("FALL-9", |bmc| {
        bmc.slots = vec![SlotConfig::cd("CD1"), SlotConfig::cd("CD2")];
        bmc.faults.push(refusing("CD1", 400, "Contoso.1.0.ImageRefused"));
        bmc.faults.push(refusing("CD2", 400, "Contoso.1.0.ImageRefused"));
    })
    .await;
    assert_eq!(ended.job["outcome"], "failed");
    assert_eq!(ended.job["failure"]["class"], "bmc_refused", "{:#}", ended.job);
    let summary = ended.job["failure"]["summary"].as_str().unwrap();
    for refusal in ["plan dual (CD1 and CD2): slot CD1 refused", "plan single (CD2): slot CD2 refused"] {
        assert!(summary.contains(refusal), "{refusal}: {summary}");
    }
    assert!(ended.job["failure"]["next_action"].as_str().unwrap().contains("doctor"));
    let machine = ended.scene.bmc("FALL-9").snapshot();
    assert_eq!(machine.boots_from_media, 0);
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()));
    ended.scene.end().await;
}
