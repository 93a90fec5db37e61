//! Power and boot: the boot source, the time of a boot and the number of boots.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use super::kit::{Map, SERIAL, ask, config, media_server, message_id, rig, soon, text};
use crate::{
    AlreadyThere, BootSearch, BootSource, Graceful, JournalItem, MediaKind, OverrideEnabled, Power, SimBmc,
    StateChange,
};

#[tokio::test]
async fn a_host_boots_inserted_media_once_and_then_its_disk() {
    let base = media_server().await;
    let mut rig = rig(config());
    let map = Map::of(&rig.bmc).await;
    map.insert(&rig.bmc, 0, &format!("{base}/boot.iso")).await;
    map.insert(&rig.bmc, 1, &format!("{base}/task.iso")).await;
    assert_eq!(map.boot_once(&rig.bmc, "Cd").await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.reset(&rig.bmc, "On").await.0, StatusCode::NO_CONTENT);

    let boot = soon(rig.boots.recv()).await.unwrap();
    assert_eq!((boot.serial.as_str(), boot.generation), (SERIAL, 1));
    match &boot.boots_from {
        BootSource::Media { slot, url } => {
            assert_eq!((slot.as_str(), url.as_str()), ("CD1", format!("{base}/boot.iso").as_str()));
        }
        BootSource::Disk => panic!("the host booted its disk and not the medium"),
    }
    let media: Vec<_> = boot.media.iter().map(|media| (media.slot.as_str(), media.kind)).collect();
    assert_eq!(media, [("CD1", MediaKind::Cd), ("CD2", MediaKind::Cd)]);

    let (_, system) = ask(&rig.bmc, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/PowerState"), "On");
    assert_eq!(text(&system, "/Boot/BootSourceOverrideEnabled"), "Disabled");
    assert!(system.get("LastResetTime").is_some());

    assert_eq!(map.reset(&rig.bmc, "ForceRestart").await.0, StatusCode::NO_CONTENT);
    assert!(boot.cancel.is_cancelled());
    let again = soon(rig.boots.recv()).await.unwrap();
    assert_eq!((again.boots_from, again.generation), (BootSource::Disk, 2));
    assert_eq!((rig.bmc.boots_from_media(), rig.bmc.power_ons()), (1, 2));
    assert_eq!(*rig.power_offs.lock().unwrap(), 1);
}

#[tokio::test]
async fn without_override_or_without_a_boot_record_the_disk_boots() {
    let base = media_server().await;
    for (name, over, search, expected) in [
        ("boot.iso", "Hdd", BootSearch::FirstInserted, 0),
        ("task.iso", "Cd", BootSearch::FirstInserted, 0),
        ("task.iso", "Cd", BootSearch::FirstBootable, 1),
    ] {
        let mut config = config();
        config.boot.search = search;
        let bmc = rig(config).bmc;
        let map = Map::of(&bmc).await;
        map.insert(&bmc, 0, &format!("{base}/{name}")).await;
        map.insert(&bmc, 1, &format!("{base}/boot.iso")).await;
        map.boot_once(&bmc, over).await;
        map.reset(&bmc, "On").await;
        assert_eq!(bmc.boots_from_media(), expected, "{name} {over} {search:?}");
        assert_eq!(
            bmc.snapshot().boot.enabled,
            OverrideEnabled::Disabled,
            "the override is consumed in every case"
        );
    }
}

#[tokio::test]
async fn an_eject_of_the_medium_a_running_system_booted_from_is_recorded() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    map.insert(&bmc, 0, &format!("{base}/boot.iso")).await;
    map.boot_once(&bmc, "Cd").await;
    map.reset(&bmc, "On").await;
    map.eject(&bmc, 0).await;
    assert_eq!(bmc.ejected_while_running(), 1);
    let hurt = JournalItem::Change(StateChange::EjectedWhileRunning { slot: "CD1".to_owned() });
    assert!(bmc.journal().iter().any(|entry| entry.what == hurt));

    map.insert(&bmc, 0, &format!("{base}/boot.iso")).await;
    map.reset(&bmc, "ForceOff").await;
    map.eject(&bmc, 0).await;
    assert_eq!(bmc.ejected_while_running(), 1, "an eject after power-off is harmless");
}

async fn refusal(bmc: &SimBmc, map: &Map, kind: &str) -> (u16, String) {
    let (status, body) = map.reset(bmc, kind).await;
    let id = if status == StatusCode::NO_CONTENT { "" } else { message_id(&body) };
    (status.as_u16(), id.to_owned())
}

#[tokio::test]
async fn a_reset_to_the_current_power_state_gets_the_configured_response() {
    for (policy, status) in
        [(AlreadyThere::Conflict, 409), (AlreadyThere::BadRequest, 400), (AlreadyThere::NoOp, 204)]
    {
        let mut config = config();
        config.power.already_there = policy;
        let bmc = rig(config).bmc;
        let map = Map::of(&bmc).await;
        assert_eq!(refusal(&bmc, &map, "ForceOff").await.0, status);
        assert_eq!(
            refusal(&bmc, &map, "ForceRestart").await,
            (409, "Base.1.18.ResourceInStandby".to_owned())
        );
        assert_eq!(refusal(&bmc, &map, "On").await.0, 204);
        assert_eq!(refusal(&bmc, &map, "On").await.0, status);
        assert_eq!(bmc.power_ons(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn power_changes_take_time_and_a_forced_off_overtakes_a_graceful_shutdown() {
    let mut config = config();
    config.power.post_time = Duration::from_secs(90);
    config.power.off_time = Duration::from_secs(5);
    config.power.graceful = Graceful::After(Duration::from_secs(60));
    let mut rig = rig(config);
    let map = Map::of(&rig.bmc).await;
    map.reset(&rig.bmc, "On").await;
    assert_eq!(rig.bmc.snapshot().power, Power::PoweringOn);
    let started = tokio::time::Instant::now();
    rig.bmc.wait_for(|state| state.power == Power::On).await;
    assert_eq!(started.elapsed().as_secs(), 90);
    let boot = rig.boots.recv().await.unwrap();

    map.reset(&rig.bmc, "GracefulShutdown").await;
    assert_eq!(rig.bmc.snapshot().power, Power::On);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(!boot.cancel.is_cancelled());
    map.reset(&rig.bmc, "ForceOff").await;
    assert!(boot.cancel.is_cancelled());
    assert_eq!(refusal(&rig.bmc, &map, "On").await.0, 409);
    let forced = tokio::time::Instant::now();
    rig.bmc.wait_for(|state| state.power == Power::Off).await;
    assert_eq!(forced.elapsed().as_secs(), 5);
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(rig.bmc.snapshot().power, Power::Off);
    assert_eq!(rig.bmc.power_ons(), 1);
}

#[tokio::test]
async fn a_graceful_shutdown_ends_the_operating_system_or_is_ignored_by_it() {
    for (graceful, power) in
        [(Graceful::After(Duration::ZERO), Power::Off), (Graceful::IgnoredByHost, Power::On)]
    {
        let mut config = config();
        config.starts_on = true;
        config.power.graceful = graceful;
        let bmc = rig(config).bmc;
        let map = Map::of(&bmc).await;
        assert_eq!(map.reset(&bmc, "GracefulShutdown").await.0, StatusCode::NO_CONTENT);
        assert_eq!(bmc.snapshot().power, power);
        assert_eq!(map.reset(&bmc, "ForceOff").await.0.is_success(), power == Power::On);
        assert_eq!(bmc.snapshot().power, Power::Off);
    }
}

#[tokio::test]
async fn an_operating_system_controls_its_machine_only_while_it_runs() {
    let mut rig = rig(config());
    let map = Map::of(&rig.bmc).await;
    map.reset(&rig.bmc, "On").await;
    let first = rig.boots.recv().await.unwrap();
    first.reboot();
    let second = rig.boots.recv().await.unwrap();
    assert_eq!((second.generation, rig.bmc.power_ons()), (2, 2));
    first.halt();
    assert_eq!(rig.bmc.snapshot().power, Power::On, "the first system has ended");
    second.halt();
    assert_eq!(rig.bmc.snapshot().power, Power::Off);
}

#[tokio::test]
async fn a_single_slot_and_a_usb_slot_boot_as_well() {
    let base = media_server().await;
    let single = rig(config().with_single_cd()).bmc;
    let map = Map::of(&single).await;
    assert_eq!(map.slots.len(), 1);
    map.insert(&single, 0, &format!("{base}/boot.iso")).await;
    map.boot_once(&single, "Cd").await;
    map.reset(&single, "On").await;
    assert_eq!(single.boots_from_media(), 1);

    let both = rig(config().with_cd_and_usb()).bmc;
    let map = Map::of(&both).await;
    map.insert(&both, 1, &format!("{base}/usb.img")).await;
    let boot = json!({ "BootSourceOverrideTarget": "Usb", "BootSourceOverrideEnabled": "Continuous" });
    ask(&both, Method::PATCH, &map.system, Some(json!({ "Boot": boot }))).await;
    map.reset(&both, "On").await;
    map.reset(&both, "PowerCycle").await;
    assert_eq!(both.boots_from_media(), 2);
    assert_eq!(both.snapshot().boot.enabled, OverrideEnabled::Continuous);
}

#[tokio::test]
async fn a_warm_reset_boots_again_and_the_power_stays_on() {
    let base = media_server().await;
    let mut rig = rig(config());
    assert!(!rig.bmc.warm_reset(), "no operating system runs");
    let map = Map::of(&rig.bmc).await;
    map.insert(&rig.bmc, 0, &format!("{base}/boot.iso")).await;
    map.boot_once(&rig.bmc, "Cd").await;
    map.reset(&rig.bmc, "On").await;
    let first = soon(rig.boots.recv()).await.unwrap();
    let before = ask(&rig.bmc, Method::GET, &map.system, None).await.1;
    assert!(rig.bmc.warm_reset());
    assert!(first.cancel.is_cancelled());
    let second = soon(rig.boots.recv()).await.unwrap();
    assert_eq!((second.boots_from, second.generation), (BootSource::Disk, 2));
    let after = ask(&rig.bmc, Method::GET, &map.system, None).await.1;
    assert_eq!(text(&after, "/PowerState"), "On");
    assert_ne!(text(&after, "/LastResetTime"), text(&before, "/LastResetTime"));
    assert_eq!((rig.bmc.power_ons(), rig.bmc.boots_from_media()), (1, 1));
}
