//! Installations on BMCs whose inventories are not clear: two images that both look as if they ran, entries that cannot be shown.

use std::time::Duration;

use lab_bmc::{Component as Kind, Fault, FaultEffect, FaultTrigger, FirmwareItem};
use serde_json::{Value, json};

use firmware::Component;
use model::Outcome;
use upkeep::UpkeepAction;

use crate::firmware::{NEW, nic, of_another_maker, order, order_of_nics, plan_of, vendor};
use crate::kit::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_image_with_the_new_or_the_old_version_is_not_taken_for_the_one_that_runs() {
    let config = vendor("generic");
    let old =
        config.service.firmware.iter().find(|item| item.component == Kind::Bios).unwrap().version.clone();
    for (id, version) in [("AAA", NEW), ("ZZZ", NEW), ("AAA", &old), ("ZZZ", &old)] {
        let mut config = vendor("generic");
        config.service.firmware.push(FirmwareItem {
            id: id.to_owned(),
            name: "BIOS".to_owned(),
            version: version.to_owned(),
            updateable: true,
            ..FirmwareItem::default()
        });
        let (files, action) = order(&config, &[Component::Bios]);
        let bench = Bench::with_files(config, files).await;
        let run = bench.order(action).await;
        let ended = bench.run_to_end(&bench.worker("w1"), run).await;
        assert_eq!(ended.outcome, Some(Outcome::Succeeded), "{id}: {}", bench.stored(run).await);
        assert_eq!(bench.sim_bmc.snapshot().images, 1, "{id}: {}", bench.stored(run).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_the_bmc_cannot_show_is_left_and_the_plan_says_so() {
    let mut config = vendor("generic");
    config.service.firmware.retain(|item| matches!(item.component, Kind::Bmc | Kind::Bios));
    config.service.firmware.push(nic("NIC9"));
    let (files, action) = order(&config, &[Component::Bios]);
    let UpkeepAction::Firmware(mut install) = action else { panic!("another action") };
    install.files.push(of_another_maker(&format!("sha256:{}", "7".repeat(64))));
    let bench = Bench::with_files(config, files).await;
    let member = FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: "/NIC9".to_owned() };
    let gone = FaultEffect::Status {
        status: 404,
        message_id: "Base.1.8.ResourceMissingAtURI".to_owned(),
        message: "The resource is missing.".to_owned(),
    };
    bench.sim_bmc.inject(Fault::always(member, gone));
    let run = bench.order(UpkeepAction::Firmware(install)).await;
    let began = bench.clock_now();
    let ended = bench.run_to_end(&bench.worker("w1"), run).await;
    let stored = bench.stored(run).await;
    assert_eq!(ended.outcome, Some(Outcome::Succeeded), "{stored}");
    assert_eq!(bench.sim_bmc.snapshot().images, 1, "{stored}");
    let plan = plan_of(&bench, run).await;
    let decisions: Vec<(&Value, &Value)> =
        plan.as_array().unwrap().iter().map(|item| (&item["component"], &item["decision"])).collect();
    let expected = [(json!("bios"), json!("install")), (json!("nic"), json!("unknown"))];
    assert_eq!(decisions, expected.each_ref().map(|(component, decision)| (component, decision)), "{plan:#}");
    assert!(bench.clock_now().since(began).as_secs() >= 120, "a BMC that has just restarted gets its time");
    let events = bench.store.last_events(run, 1000).await.unwrap();
    let planned = events.iter().find(|event| event.kind == "firmware.planned").unwrap();
    assert_eq!(planned.level, model::EventLevel::Warn, "{planned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_two_equal_devices_gets_its_own_image() {
    let mut config = vendor("generic");
    config.service.firmware.retain(|item| matches!(item.component, Kind::Bmc | Kind::Bios));
    for id in ["NIC1", "NIC2"] {
        config.service.firmware.push(nic(id));
    }
    let (files, action) = order_of_nics("Contoso", "Network adapter");
    let bench = Bench::with_files(config, files).await;
    let run = bench.order(action).await;
    let ended = bench.run_to_end(&bench.worker("w1"), run).await;
    let stored = bench.stored(run).await;
    assert_eq!(ended.outcome, Some(Outcome::Succeeded), "{stored}");
    let updates = bench.sim_bmc.updates();
    let mut done: Vec<(&str, bool)> =
        updates.iter().map(|update| (update.item.as_str(), update.applied)).collect();
    done.sort_unstable();
    assert_eq!(done, [("NIC1", true), ("NIC2", true)], "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_an_earlier_update_is_not_taken_for_the_end_of_this_one() {
    let config = vendor("hpe-ilo5");
    let (files, action) = order(&config, &[Component::Bios]);
    let bench = Bench::with_files(config, files).await;
    let service =
        FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: "/UpdateService".to_owned() };
    let failed = FaultEffect::Lie(json!({ "Oem": { "Hpe": { "State": "Error" } } }));
    bench.sim_bmc.inject(Fault::always(service, failed));
    let run = bench.order(action).await;
    let worker = bench.worker("w1");
    let mut looks = 0;
    while looks < 4 {
        worker.run_until_idle().await;
        looks += usize::from(bench.sim_bmc.snapshot().images == 1);
        bench.clock.advance(Duration::from_secs(6));
    }
    let story = bench.stored(run).await;
    assert!(!bench.has_ended(run).await, "the state before the upload was believed: {story}");
    bench.sim_bmc.clear_faults();
    let ended = bench.run_to_end(&worker, run).await;
    assert_eq!(ended.outcome, Some(Outcome::Succeeded), "{}", bench.stored(run).await);
}
