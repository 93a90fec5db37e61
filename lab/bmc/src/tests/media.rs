//! Insert and eject with real bytes from a real server.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::kit::{Map, ask, config, media_server, message_id, operations, rig, soon, text};
use crate::{EjectEmpty, RequestKind, UrlRules};

#[tokio::test]
async fn an_inserted_image_has_been_read_and_is_shown() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    for (slot, name) in [(0, "boot.iso"), (1, "task.iso"), (2, "usb.img")] {
        let (status, body) = map.insert(&bmc, slot, &format!("{base}/{name}")).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{name}: {body}");
        let (_, shown) = ask(&bmc, Method::GET, &map.slots[slot], None).await;
        assert_eq!(shown["Inserted"], true);
        assert_eq!(text(&shown, "/Image"), format!("{base}/{name}"));
        assert_eq!(text(&shown, "/ImageName"), name);
        assert_eq!(text(&shown, "/ConnectedVia"), "URI");
    }
    let snapshot = bmc.snapshot();
    let boot = snapshot.slot("CD1").unwrap().facts.clone().unwrap();
    assert!(boot.el_torito);
    assert_eq!(boot.volume_id.as_deref(), Some("MAINT"));
    let task = snapshot.slot("CD2").unwrap().facts.clone().unwrap();
    assert!(!task.el_torito);
    assert_eq!((task.length, task.volume_id.as_deref()), (512 * 2048, Some("TASK_0123456789A")));
    assert!(snapshot.slot("USB").unwrap().facts.clone().unwrap().boot_signature);
}

#[tokio::test]
async fn an_image_that_cannot_be_used_is_refused_and_the_slot_stays_empty() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    let closed = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    };
    for (url, status, id) in [
        (format!("{base}/gone.iso"), 400, "ResourceMissingAtURI"),
        (format!("{base}/secret.iso"), 400, "AccessDenied"),
        (format!("{base}/moved.iso"), 400, "ResourceAtUriInUnknownFormat"),
        (format!("{base}/short.iso"), 400, "ResourceAtUriInUnknownFormat"),
        (format!("{base}/odd.iso"), 400, "ResourceAtUriInUnknownFormat"),
        (format!("{base}/chunked.iso"), 400, "ResourceAtUriInUnknownFormat"),
        (format!("{base}/lying.iso"), 400, "ResourceAtUriInUnknownFormat"),
        (format!("http://{closed}/m/boot.iso"), 500, "CouldNotEstablishConnection"),
    ] {
        let (refused, body) = map.insert(&bmc, 0, &url).await;
        assert_eq!(
            (refused.as_u16(), message_id(&body).rsplit('.').next().unwrap()),
            (status, id),
            "{url}: {body}"
        );
        let (_, shown) = ask(&bmc, Method::GET, &map.slots[0], None).await;
        assert_eq!((&shown["Inserted"], &shown["Image"]), (&json!(false), &Value::Null));
        assert_eq!(text(&shown, "/ConnectedVia"), "NotConnected");
    }
    let (status, _) = map.insert(&bmc, 0, &format!("{base}/boot.iso")).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "after refusals the slot still works");
}

#[tokio::test]
async fn an_image_that_is_not_read_in_time_is_refused() {
    let base = media_server().await;
    let mut config = config();
    config.media.timeout = Duration::from_millis(200);
    let bmc = rig(config).bmc;
    let map = Map::of(&bmc).await;
    let (status, body) = soon(map.insert(&bmc, 0, &format!("{base}/slow.iso"))).await;
    assert_eq!((status.as_u16(), message_id(&body)), (500, "Base.1.18.CouldNotEstablishConnection"));
    assert!(!bmc.snapshot().slots[0].busy);
}

#[tokio::test]
async fn a_server_without_ranges_is_read_from_its_beginning() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    assert_eq!(map.insert(&bmc, 0, &format!("{base}/whole.iso")).await.0, StatusCode::NO_CONTENT);
    assert!(bmc.snapshot().slots[0].facts.as_ref().unwrap().el_torito);
}

#[tokio::test]
async fn urls_that_some_bmc_refuses_are_refused_unless_the_simulated_bmc_is_lenient() {
    let base = media_server().await;
    let host = base.strip_suffix("/m").unwrap();
    let long = format!("{base}/{}.iso", "a".repeat(120));
    let refused = [
        format!("{base}/boot.iso?token=1"),
        format!("{base}/boot.iso&x"),
        format!("{host}/boot.iso"),
        format!("{base}/a-b.iso"),
        format!("{base}/boot.bin"),
        "ftp://127.0.0.1/m/boot.iso".to_owned(),
        "http://u:p@127.0.0.1/m/boot.iso".to_owned(),
        "/m/boot.iso".to_owned(),
        long,
    ];
    let strict = rig(config()).bmc;
    let map = Map::of(&strict).await;
    for url in refused {
        let (status, body) = map.insert(&strict, 0, &url).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{url}");
        assert!(message_id(&body).ends_with("ActionParameterValueFormatError"), "{url}: {body}");
    }
    let mut config = config();
    config.media.url = UrlRules::lenient();
    let lenient = rig(config).bmc;
    let (status, body) = map.insert(&lenient, 0, &format!("{base}/boot.iso?token=1&expires=2")).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
}

#[tokio::test]
async fn an_occupied_slot_refuses_an_insert_and_an_ejected_one_accepts_it() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    let url = format!("{base}/boot.iso");
    assert_eq!(map.insert(&bmc, 0, &url).await.0, StatusCode::NO_CONTENT);
    let (status, body) = map.insert(&bmc, 0, &url).await;
    assert_eq!((status, message_id(&body)), (StatusCode::CONFLICT, "Base.1.18.ResourceInUse"));
    assert_eq!(map.eject(&bmc, 0).await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.eject(&bmc, 0).await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.insert(&bmc, 0, &url).await.0, StatusCode::NO_CONTENT);
    use RequestKind::{Eject, Insert};
    let expected = [
        (Insert, Some(204)),
        (Insert, Some(409)),
        (Eject, Some(204)),
        (Eject, Some(204)),
        (Insert, Some(204)),
    ];
    assert_eq!(operations(&bmc), expected);
}

#[tokio::test]
async fn a_slot_whose_image_is_being_read_is_busy() {
    let base = media_server().await;
    let mut config = config();
    config.media.timeout = Duration::from_secs(5);
    let bmc = rig(config).bmc;
    let map = Map::of(&bmc).await;
    let slow = format!("{base}/slow.iso");
    let insert = map.insert(&bmc, 0, &slow);
    let others = async {
        soon(bmc.wait_for(|state| state.slots[0].busy)).await;
        let busy = map.insert(&bmc, 0, &format!("{base}/boot.iso")).await;
        assert_eq!(busy.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(map.eject(&bmc, 0).await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(map.insert(&bmc, 1, &format!("{base}/boot.iso")).await.0, StatusCode::NO_CONTENT);
    };
    tokio::select! {
        _ = insert => panic!("the slow insert ended first"),
        () = others => {}
    }
    assert_eq!(bmc.snapshot().max_mutating_in_flight, 2);
}

#[tokio::test]
async fn ejecting_an_empty_slot_can_be_an_error_and_a_body_can_be_required() {
    let mut config = config();
    config.media.eject_empty = EjectEmpty::Refused;
    config.media.body_required = true;
    let bmc = rig(config).bmc;
    let map = Map::of(&bmc).await;
    assert_eq!(map.eject(&bmc, 0).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(map.act(&bmc, 0, "EjectMedia", None).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn the_journal_and_debug_output_hold_no_secret() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    let url = format!("{}/m/boot.iso", base.strip_suffix("/m").unwrap());
    map.insert(&bmc, 0, &url).await;
    let journal = serde_json::to_string(&bmc.journal()).unwrap();
    assert!(journal.contains("boot.iso"));
    assert!(!journal.contains(&url));
    for text in [journal, format!("{:?} {:?} {:?}", bmc, bmc.snapshot(), bmc.config())] {
        assert!(!text.contains(super::kit::PASSWORD) && !text.contains(&url), "{text}");
    }
}
