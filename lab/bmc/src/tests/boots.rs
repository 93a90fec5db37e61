//! Power and boot: what the host runs, when, and how often.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use super::kit::{Map, SERIAL, ask, config, media_server, message_id, rig, soon, text};
use crate::{
    AlreadyThere, BootSearch, BootSource, Change, Graceful, JournalItem, MediaKind, OverrideEnabled, Power,
    SimBmc,
};

#[tokio::test]
async fn a_host_boots_inserted_media_once_and_then_its_disk() {
    let base = media_server().await;
    let mut rig = rig(config());
    let map = Map::of(&rig.twin).await;
    map.insert(&rig.twin, 0, &format!("{base}/boot.iso")).await;
    map.insert(&rig.twin, 1, &format!("{base}/task.iso")).await;
    assert_eq!(map.boot_once(&rig.twin, "Cd").await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.reset(&rig.twin, "On").await.0, StatusCode::NO_CONTENT);

    let boot = soon(rig.boots.recv()).await.unwrap();
    assert_eq!((boot.serial.as_str(), boot.generation), (SERIAL, 1));
    match &boot.boots_from {
        BootSource::Media { slot, url } => {
            assert_eq!((slot.as_str(), url.as_str()), ("CD1", format!("{base}/boot.iso").as_str()));
        }
        BootSource::Disk => panic!("the medium should have booted"),
    }
    let media: Vec<_> = boot.media.iter().map(|media| (media.slot.as_str(), media.kind)).collect();
    assert_eq!(media, [("CD1", MediaKind::Cd), ("CD2", MediaKind::Cd)]);

    let (_, system) = ask(&rig.twin, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/PowerState"), "On");
    assert_eq!(text(&system, "/Boot/BootSourceOverrideEnabled"), "Disabled");
    assert!(system.get("LastResetTime").is_some());

    assert_eq!(map.reset(&rig.twin, "ForceRestart").await.0, StatusCode::NO_CONTENT);
    assert!(boot.cancel.is_cancelled());
    let again = soon(rig.boots.recv()).await.unwrap();
    assert_eq!((again.boots_from, again.generation), (BootSource::Disk, 2));
    assert_eq!((rig.twin.boots_from_media(), rig.twin.power_ons()), (1, 2));
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
        let twin = rig(config).twin;
        let map = Map::of(&twin).await;
        map.insert(&twin, 0, &format!("{base}/{name}")).await;
        map.insert(&twin, 1, &format!("{base}/boot.iso")).await;
        map.boot_once(&twin, over).await;
        map.reset(&twin, "On").await;
        assert_eq!(twin.boots_from_media(), expected, "{name} {over} {search:?}");
        assert_eq!(twin.snapshot().boot.enabled, OverrideEnabled::Disabled, "consumed in any case");
    }
}

#[tokio::test]
async fn an_eject_under_the_system_that_booted_it_is_recorded() {
    let base = media_server().await;
    let twin = rig(config()).twin;
    let map = Map::of(&twin).await;
    map.insert(&twin, 0, &format!("{base}/boot.iso")).await;
    map.boot_once(&twin, "Cd").await;
    map.reset(&twin, "On").await;
    map.eject(&twin, 0).await;
    assert_eq!(twin.ejected_while_running(), 1);
    let hurt = JournalItem::Change(Change::EjectedWhileRunning { slot: "CD1".to_owned() });
    assert!(twin.journal().iter().any(|entry| entry.what == hurt));

    map.insert(&twin, 0, &format!("{base}/boot.iso")).await;
    map.reset(&twin, "ForceOff").await;
    map.eject(&twin, 0).await;
    assert_eq!(twin.ejected_while_running(), 1, "after power-off it hurts nobody");
}

async fn refusal(twin: &SimBmc, map: &Map, kind: &str) -> (u16, String) {
    let (status, body) = map.reset(twin, kind).await;
    let id = if status == StatusCode::NO_CONTENT { "" } else { message_id(&body) };
    (status.as_u16(), id.to_owned())
}

#[tokio::test]
async fn a_command_to_where_the_host_is_already_is_answered_as_configured() {
    for (policy, status) in
        [(AlreadyThere::Conflict, 409), (AlreadyThere::BadRequest, 400), (AlreadyThere::NoOp, 204)]
    {
        let mut config = config();
        config.power.already_there = policy;
        let twin = rig(config).twin;
        let map = Map::of(&twin).await;
        assert_eq!(refusal(&twin, &map, "ForceOff").await.0, status);
        assert_eq!(
            refusal(&twin, &map, "ForceRestart").await,
            (409, "Base.1.18.ResourceInStandby".to_owned())
        );
        assert_eq!(refusal(&twin, &map, "On").await.0, 204);
        assert_eq!(refusal(&twin, &map, "On").await.0, status);
        assert_eq!(twin.power_ons(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn power_takes_its_time_and_force_overtakes_a_graceful_shutdown() {
    let mut config = config();
    config.power.post_time = Duration::from_secs(90);
    config.power.off_time = Duration::from_secs(5);
    config.power.graceful = Graceful::After(Duration::from_secs(60));
    let mut rig = rig(config);
    let map = Map::of(&rig.twin).await;
    map.reset(&rig.twin, "On").await;
    assert_eq!(rig.twin.snapshot().power, Power::PoweringOn);
    let started = tokio::time::Instant::now();
    rig.twin.wait_for(|state| state.power == Power::On).await;
    assert_eq!(started.elapsed().as_secs(), 90);
    let boot = rig.boots.recv().await.unwrap();

    map.reset(&rig.twin, "GracefulShutdown").await;
    assert_eq!(rig.twin.snapshot().power, Power::On);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(!boot.cancel.is_cancelled());
    map.reset(&rig.twin, "ForceOff").await;
    assert!(boot.cancel.is_cancelled());
    assert_eq!(refusal(&rig.twin, &map, "On").await.0, 409);
    let forced = tokio::time::Instant::now();
    rig.twin.wait_for(|state| state.power == Power::Off).await;
    assert_eq!(forced.elapsed().as_secs(), 5);
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(rig.twin.snapshot().power, Power::Off);
    assert_eq!(rig.twin.power_ons(), 1);
}

#[tokio::test]
async fn a_graceful_shutdown_ends_the_system_or_is_ignored_by_it() {
    for (graceful, power) in
        [(Graceful::After(Duration::ZERO), Power::Off), (Graceful::IgnoredByHost, Power::On)]
    {
        let mut config = config();
        config.starts_on = true;
        config.power.graceful = graceful;
        let twin = rig(config).twin;
        let map = Map::of(&twin).await;
        assert_eq!(map.reset(&twin, "GracefulShutdown").await.0, StatusCode::NO_CONTENT);
        assert_eq!(twin.snapshot().power, power);
        assert_eq!(map.reset(&twin, "ForceOff").await.0.is_success(), power == Power::On);
        assert_eq!(twin.snapshot().power, Power::Off);
    }
}

#[tokio::test]
async fn a_system_moves_its_own_machine_only_while_it_runs() {
    let mut rig = rig(config());
    let map = Map::of(&rig.twin).await;
    map.reset(&rig.twin, "On").await;
    let first = rig.boots.recv().await.unwrap();
    first.reboot();
    let second = rig.boots.recv().await.unwrap();
    assert_eq!((second.generation, rig.twin.power_ons()), (2, 2));
    first.halt();
    assert_eq!(rig.twin.snapshot().power, Power::On, "the first system is no more");
    second.halt();
    assert_eq!(rig.twin.snapshot().power, Power::Off);
}

#[tokio::test]
async fn a_single_slot_and_a_usb_slot_boot_as_well() {
    let base = media_server().await;
    let single = rig(config().with_single_cd()).twin;
    let map = Map::of(&single).await;
    assert_eq!(map.slots.len(), 1);
    map.insert(&single, 0, &format!("{base}/boot.iso")).await;
    map.boot_once(&single, "Cd").await;
    map.reset(&single, "On").await;
    assert_eq!(single.boots_from_media(), 1);

    let both = rig(config().with_cd_and_usb()).twin;
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
async fn a_warm_reset_starts_another_system_and_the_power_stays_on() {
    let base = media_server().await;
    let mut rig = rig(config());
    assert!(!rig.twin.warm_reset(), "nothing runs that could restart");
    let map = Map::of(&rig.twin).await;
    map.insert(&rig.twin, 0, &format!("{base}/boot.iso")).await;
    map.boot_once(&rig.twin, "Cd").await;
    map.reset(&rig.twin, "On").await;
    let first = soon(rig.boots.recv()).await.unwrap();
    let before = ask(&rig.twin, Method::GET, &map.system, None).await.1;
    assert!(rig.twin.warm_reset());
    assert!(first.cancel.is_cancelled());
    let second = soon(rig.boots.recv()).await.unwrap();
    assert_eq!((second.boots_from, second.generation), (BootSource::Disk, 2));
    let after = ask(&rig.twin, Method::GET, &map.system, None).await.1;
    assert_eq!(text(&after, "/PowerState"), "On");
    assert_ne!(text(&after, "/LastResetTime"), text(&before, "/LastResetTime"));
    assert_eq!((rig.twin.power_ons(), rig.twin.boots_from_media()), (1, 1));
}
