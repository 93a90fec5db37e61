//! Slots and images: accepted, shown, lost and read.

use std::time::Duration;

use lab_bmc::{
    Fault, FaultCondition, FaultEffect, FaultTrigger, ImageShown, JournalItem, MediaVia, Power, ReadStyle,
    RequestKind, ResetType, SimBmcConfig, SlotConfig, SlotTree,
};
use serde_json::json;

use super::{SERIAL, finished, responds, run_job, says, scene, until_the_deadline, vendor};
use crate::kit::{Scene, silent, soon, with_bmc};

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

fn reads(bmc: &mut SimBmcConfig, change: impl FnOnce(&mut ReadStyle)) {
    change(&mut bmc.media.read);
}

recovers! {
    an_insert_that_fails_while_an_eject_runs(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Insert, says(500, "Base.1.18.InternalError")).times(2));
    }
    an_insert_that_is_busy_for_longer_than_the_attempts_last(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Insert, says(503, "Base.1.18.ServiceTemporarilyUnavailable")).times(12));
    }
    an_eject_that_is_busy_for_longer_than_the_attempts_last(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Eject, says(500, "IDRAC.2.8.SYS518")).times(12));
    }
    an_eject_that_conflicts_for_longer_than_the_attempts_last(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Eject, says(409, "Base.1.18.GeneralError")).times(12));
    }
    a_second_insert_that_is_busy_for_longer_than_the_attempts_last(bmc) {
        let busy = says(503, "Base.1.18.ServiceTemporarilyUnavailable");
        bmc.faults.push(Fault::once(FaultTrigger::Insert, busy).after(1).times(12));
    }
    an_eject_that_is_repeated_and_finds_no_media_with_an_internal_error(bmc) {
        bmc.media.eject_time = Duration::from_millis(60);
        bmc.faults.push(Fault::once(FaultTrigger::Eject, says(500, "IDRAC.2.9.VRM0009")).after(1).times(1));
    }
    a_slot_that_shows_its_image_after_the_eject_for_a_while(bmc) {
        bmc.media.eject_time = Duration::from_millis(30);
    }
    a_slot_that_shows_its_image_late(bmc) {
        bmc.media.attach_time = Duration::from_millis(30);
    }
    a_slot_whose_image_sticks(bmc) {
        bmc.media.image_sticks = true;
    }
    a_slot_that_shows_the_name_of_its_image_only(bmc) {
        bmc.media.image_shown = ImageShown::FileName;
    }
    a_slot_that_shows_the_name_of_its_image_for_good(bmc) {
        bmc.media.image_shown = ImageShown::FileName;
        bmc.media.image_sticks = true;
        bmc.media.eject_time = Duration::from_millis(30);
    }
    a_slot_that_shows_its_image_elsewhere(bmc) {
        bmc.media.image_shown = ImageShown::Nothing;
    }
    a_slot_that_refuses_to_be_emptied_when_it_is(bmc) {
        bmc.media.eject_empty = lab_bmc::EjectEmpty::Refused;
    }
    media_lost_before_the_first_insert(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Insert, FaultEffect::LoseMedia));
    }
    media_lost_in_cleanup(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Eject, FaultEffect::LoseMedia));
    }
    a_bmc_that_reads_https_only(bmc) {
        bmc.media.url.schemes = words(&["https"]);
    }
    a_bmc_that_holds_one_image_at_a_time(bmc) {
        bmc.media.at_most = 1;
    }
    only_the_third_slot_takes_images(bmc) {
        let first = SlotConfig { refuses: Some(405), ..SlotConfig::cd("A") };
        let second = SlotConfig { insertable: false, ..SlotConfig::cd("B") };
        bmc.slots = vec![first, second, SlotConfig::cd("C")];
    }
    an_insert_that_takes_the_image_and_nothing_else(bmc) {
        bmc.media.insert.accepted = words(&["Image"]);
    }
    an_insert_that_wants_the_protocol(bmc) {
        bmc.media.insert.required = words(&["Image", "TransferProtocolType"]);
    }
    an_insert_that_wants_all_flags(bmc) {
        bmc.media.insert.required = words(&["Image", "Inserted", "WriteProtected", "TransferMethod"]);
    }
    an_insert_that_wants_credentials(bmc) {
        bmc.media.insert.required = words(&["Image", "UserName", "Password"]);
        bmc.media.credentials_in_pairs = true;
    }
    an_insert_that_refuses_credentials_and_flags(bmc) {
        bmc.media.insert.accepted = words(&["Image", "TransferProtocolType"]);
        bmc.media.insert.required = words(&["Image", "TransferProtocolType"]);
    }
    an_eject_that_wants_a_body(bmc) {
        bmc.media.body_required = true;
    }
    the_strictest_rules_for_urls(bmc) {
        let url = &mut bmc.media.url;
        (url.max_bytes, url.max_depth) = (127, 1);
        (url.query, url.hyphens, url.at_root) = (false, false, false);
        (url.schemes, url.suffixes) = (words(&["http"]), words(&[".iso"]));
    }
    slots_below_the_system(bmc) {
        bmc.slot_tree = SlotTree::System;
    }
    slots_in_both_trees(bmc) {
        bmc.slot_tree = SlotTree::Both;
    }
    images_inserted_by_patch(bmc) {
        bmc.media.via = vec![MediaVia::Patch];
    }
    images_inserted_by_patch_with_a_flag(bmc) {
        bmc.media.via = vec![MediaVia::Patch];
        bmc.media.patch_needs_inserted = true;
    }
    images_inserted_by_patch_without_flags(bmc) {
        bmc.media.via = vec![MediaVia::Patch];
        bmc.media.patch_accepted = words(&["Image"]);
    }
    an_image_by_host_and_path(bmc) {
        *bmc = vendor("smc-x11-cfgcd");
    }
    an_image_read_from_another_address(bmc) {
        reads(bmc, |read| read.other_address = true);
    }
    an_image_read_in_an_old_http(bmc) {
        reads(bmc, |read| read.http_1_0 = true);
    }
    an_image_read_whole(bmc) {
        reads(bmc, |read| read.ranges = false);
    }
    an_image_read_without_asking_for_its_length(bmc) {
        reads(bmc, |read| read.head = false);
    }
    an_image_read_in_four_places_at_once(bmc) {
        reads(bmc, |read| read.parallel = true);
    }
    an_image_read_in_two_attempts(bmc) {
        reads(bmc, |read| read.aborts = true);
    }
}

fails! {
    a_bmc_that_takes_images_and_never_shows_them(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Insert, FaultEffect::AcceptButIgnore));
    } => "redfish.mount.maintenance", "bmc_refused", ["accepted the image twice and never showed it"];
    an_insert_that_always_fails(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Insert, says(500, "Base.1.18.InternalError")));
    } => "redfish.mount.maintenance", "bmc_refused", ["reason in the words of the service"];
    a_bmc_that_reads_from_another_port_only(bmc) {
        bmc.media.url.ports = Some(vec![80]);
    } => "redfish.mount.maintenance", "bmc_refused", ["CD1"];
    no_slot_that_takes_images(bmc) {
        bmc.slots = vec![SlotConfig { insertable: false, ..SlotConfig::cd("A") }];
    } => "redfish.discover", "unsupported", [];
    a_bmc_without_slots(bmc) {
        bmc.slots = Vec::new();
    } => "redfish.discover", "unsupported", [];
    an_insert_that_responds_with_a_redirect(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Insert, responds(302, &[("location", "/login")], "")));
    } => "redfish.mount.maintenance", "bmc_refused", ["redirect"];
}

/// The time of the power-on self-test. A real host takes minutes before it looks for boot media.
const SELF_TEST: Duration = Duration::from_millis(1500);

/// A regression: the response counted as one that may have been carried out, and the slot was polled for 90 s per insert.
#[tokio::test(flavor = "multi_thread")]
async fn an_insert_that_says_busy_with_a_server_error_is_sent_again_soon() {
    let busy = says(500, "IDRAC.2.8.SYS518");
    let ended = run_job(|bmc| bmc.faults.push(Fault::once(FaultTrigger::Insert, busy).times(2))).await;
    let time = |kind: &str| {
        let events = ended.events.iter().filter(|event| event["type"] == kind);
        let times = events.map(|event| event["time"].as_str().unwrap().parse::<model::Time>().unwrap());
        times.collect::<Vec<_>>()
    };
    let (from, to) = (time("redfish.discovered")[0], time("redfish.mounted")[1]);
    let journal = ended.scene.bmc(SERIAL).journal();
    let inserts = |entry: &lab_bmc::JournalEntry| {
        matches!(&entry.what, JournalItem::Request { operation: RequestKind::Insert, .. })
    };
    let first = journal.iter().position(inserts).unwrap();
    let last = journal.iter().rposition(inserts).unwrap();
    let requests =
        journal[first..=last].iter().filter(|entry| matches!(entry.what, JournalItem::Request { .. }));
    let requests = requests.count();
    ended.assert_succeeded().await;
    assert!(to.since(from) < Duration::from_secs(60), "both images were inserted after {:?}", to.since(from));
    assert!(requests <= 20, "{requests} requests from the first insert to the last");
}

#[tokio::test(flavor = "multi_thread")]
async fn media_lost_at_power_on_are_reinserted_while_the_host_tests_itself() {
    let lost = Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::LoseMedia)
        .only_if(FaultCondition::AnyMedium);
    for (at_each_power_on, faults) in [(true, vec![]), (false, vec![lost])] {
        let scene = scene(|bmc| {
            bmc.media.lost_at_power_on = at_each_power_on;
            bmc.faults = faults;
            bmc.power.post_time = SELF_TEST;
        })
        .await;
        let id = scene.admin.create_job(SERIAL).await;
        scene.complete_skipping(&id).await;
        let on = scene.bmc(SERIAL).wait_for(|machine| machine.power == Power::On);
        soon("the start of the installed system", on).await;
        let ended = finished(scene, &id).await;
        assert!(ended.event_log.contains("redfish.media-reinserted"), "{}", ended.event_log);
        ended.assert_succeeded().await;
    }
}

/// The first power-on fails, and the slots are empty at the second one.
fn loses_its_media_before_the_power_on(bmc: &mut SimBmcConfig) {
    let busy = says(503, "Base.1.18.ServiceTemporarilyUnavailable");
    bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), busy));
    bmc.faults.push(
        Fault::once(super::get(super::SYSTEM), FaultEffect::LoseMedia)
            .only_if(FaultCondition::OverrideSet)
            .after(1),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn media_lost_before_the_power_on_are_reinserted_with_the_override() {
    let ended = run_job(loses_its_media_before_the_power_on).await;
    assert!(ended.event_log.contains("redfish.media-reinserted"), "{}", ended.event_log);
    ended.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reinsertion_that_is_busy_for_longer_than_the_attempts_last() {
    let ended = run_job(|bmc| {
        loses_its_media_before_the_power_on(bmc);
        // The two inserts before are those of the mount steps.
        let busy = says(503, "Base.1.18.ServiceTemporarilyUnavailable");
        bmc.faults.push(Fault::once(FaultTrigger::Insert, busy).after(2).times(12));
    })
    .await;
    assert_eq!(ended.event_log.matches("redfish.media-reinserted").count(), 2, "{}", ended.event_log);
    ended.assert_succeeded().await;
}

/// The host finds no boot media: no report comes, and cleanup is complete at the deadline.
#[tokio::test(flavor = "multi_thread")]
async fn media_lost_at_power_on_for_good_end_the_job_at_its_deadline() {
    let refused = Fault::always(FaultTrigger::Insert, says(400, "Base.1.18.ActionNotSupported"))
        .only_if(FaultCondition::PowerOns(1));
    let ended = until_the_deadline(|bmc| {
        bmc.media.lost_at_power_on = true;
        bmc.power.post_time = Duration::from_millis(300);
        bmc.faults.push(refused);
    })
    .await;
    assert!(ended.event_log.contains("dropped the media at power-on"), "{}", ended.event_log);
    ended.assert_failed("webhook.wait", "deadline", &["no report"]).await;
}

async fn mounted() -> (Scene, String, Vec<String>) {
    let scene = Scene::start(vec![with_bmc(silent(SERIAL), |_| {})]).await;
    let id = scene.admin.create_job(SERIAL).await;
    scene.admin.awaits_report(&id).await;
    let slots = scene.bmc(SERIAL).snapshot().slots;
    let urls = slots.iter().filter_map(|slot| Some(slot.image.as_ref()?.as_str().to_owned()));
    let urls = urls.collect();
    (scene, id, urls)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_media_url_contains_nothing_that_a_bmc_refuses() {
    let (scene, _id, urls) = mounted().await;
    assert_eq!(urls.len(), 2, "{urls:?}");
    for url in urls {
        let parsed = url::Url::parse(&url).unwrap();
        assert_eq!((parsed.scheme(), parsed.query(), parsed.fragment()), ("http", None, None), "{url}");
        let segments: Vec<&str> = parsed.path_segments().unwrap().collect();
        let [directory, name] = segments.as_slice() else { panic!("exactly one directory: {url}") };
        assert!(
            directory.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte)),
            "{url}"
        );
        assert!(name.ends_with(".iso") && !name.contains(['-', '_', '%', '~']), "{url}");
        assert!(url.len() < 128, "{url}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_media_url_is_valid_as_long_as_its_job() {
    let (scene, id, urls) = mounted().await;
    // Much later the host still reads from it.
    scene.skip(Duration::from_secs(40 * 60));
    for url in &urls {
        assert_eq!(scene.anonymous().get(url).await.status, 200, "{url}");
    }
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&id).await;
    for url in &urls {
        scene.anonymous().until(url, "the end of the grant", |response| response.status == 404).await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_medium_is_ejected_before_the_insert() {
    let first = scene(|bmc| bmc.media.eject_time = Duration::from_millis(30)).await;
    // The image of a cancelled job stays inserted, because every eject failed during cleanup.
    first.bmc(SERIAL).inject(Fault::always(FaultTrigger::Eject, says(500, "Base.1.18.InternalError")));
    let id = first.admin.create_job(SERIAL).await;
    let job = first.complete_skipping(&id).await;
    assert_eq!(job["cleanup"]["state"], "incomplete", "{job:#}");
    first.bmc(SERIAL).clear_faults();
    let id = first.admin.create_job(SERIAL).await;
    let job = first.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", first.admin.event_log(&id).await);
    let machine = first.bmc(SERIAL).snapshot();
    assert_eq!((machine.power, machine.boots_from_media), (Power::On, 2));
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}");
    first.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_refuses_costs_a_job_one_attempt() {
    let ended = run_job(|bmc| {
        bmc.slots = vec![SlotConfig { refuses: Some(405), ..SlotConfig::cd("A") }, SlotConfig::cd("B")];
    })
    .await;
    assert!(ended.event_log.contains("redfish.slot-fallback"), "{}", ended.event_log);
    ended.assert_succeeded().await;
}
