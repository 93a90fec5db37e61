//! Discovery: only links are followed, the host is found among several systems, slots in both places, wrong types.

use http::Method;
use redfish::{ErrorKind, InsertVia, PowerState, Profile, ResetType, SerialMatch, SystemSelector};
use serde_json::{Value, json};

use crate::fake::{Fake, INSERT, MANAGER, MEDIA, RESET, ROOT, Reply, SLOT, SYSTEM, SYSTEMS, builder, client};

const BOARD: &str = "/redfish/v1/Systems/Board";
const INFO: &str = "/redfish/v1/Systems/1/ResetInfo";

fn link(path: &str) -> Value {
    json!({ "@odata.id": path })
}

#[tokio::test(start_paused = true)]
async fn a_standard_bmc_is_discovered_in_few_requests() {
    let fake = Fake::new();
    let found = client(&fake).discover(&SystemSelector::default()).await.unwrap();
    assert_eq!(found.system.uri, SYSTEM);
    assert_eq!(found.system.power_state, PowerState::Off);
    assert_eq!(found.system.matches_serial("ser1"), SerialMatch::Match);
    assert_eq!(found.system.matches_serial(" SER1 "), SerialMatch::Match);
    assert_eq!(found.system.matches_serial("OTHER"), SerialMatch::Mismatch);
    assert_eq!(found.identity.vendor.as_deref(), Some("Contoso"));
    assert_eq!(found.manager.as_ref().unwrap().firmware, Some("7.1".into()));
    let reset = found.system.reset.as_ref().unwrap();
    assert_eq!(reset.target, RESET);
    assert!(reset.allows(ResetType::On) && !reset.allows(ResetType::Nmi));
    let [slot] = found.slots.as_slice() else { panic!("one slot") };
    assert_eq!((slot.uri.as_str(), &slot.insert), (SLOT, &InsertVia::Action(INSERT.to_owned())));
    assert!(slot.is_cd() && !slot.is_usb() && slot.is_empty() && slot.takes_media());
    assert_eq!(fake.journal().len(), 7, "root, login, systems, system, manager, media, slot");
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_discovery_can_be_stored_and_loaded() {
    let fake = Fake::new();
    let found = client(&fake).discover(&SystemSelector::default()).await.unwrap();
    let stored = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<redfish::Discovery>(&stored).unwrap(), found);
}

#[tokio::test(start_paused = true)]
async fn the_serial_number_selects_one_of_several_systems() {
    let fake = Fake::new();
    fake.put(SYSTEMS, json!({ "Members": [link(SYSTEM), link(BOARD)] }));
    fake.put(BOARD, json!({ "Id": "Board", "SerialNumber": "SER2", "PowerState": "On" }));
    let bmc = client(&fake);
    for (serial, uri) in [("SER2", BOARD), ("SER1", SYSTEM)] {
        assert_eq!(bmc.discover(&SystemSelector::serial(serial)).await.unwrap().system.uri, uri);
    }
}

/// All machines of a model share a product number; it identifies none of them.
#[tokio::test(start_paused = true)]
async fn a_product_number_is_no_serial_number_and_a_service_tag_is_one() {
    let sku = "P28948-B21";
    for (vendor, product, tag) in
        [("HPE", "ProLiant DL360 Gen10", None), ("Lenovo", "XCC", None), ("Dell", "iDRAC", Some(sku))]
    {
        let fake = Fake::new();
        fake.merge(ROOT, json!({ "Vendor": vendor, "Product": product, "Oem": { vendor: {} } }));
        fake.merge(SYSTEM, json!({ "Manufacturer": vendor, "SKU": sku }));
        let bmc = builder(&fake, Profile::generic()).detecting().build();
        let found = bmc.discover(&SystemSelector::serial(sku)).await.unwrap().system;
        assert_eq!(found.service_tag.as_deref(), tag, "{vendor}");
        assert_eq!(found.shown_serial(), Some(tag.unwrap_or("SER1")), "{vendor}");
        let verdict = if tag.is_some() { SerialMatch::Match } else { SerialMatch::Mismatch };
        assert_eq!(found.matches_serial(sku), verdict, "{vendor}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_system_without_a_serial_number_takes_that_of_its_chassis() {
    const CHASSIS: [&str; 2] = ["/redfish/v1/Chassis/Tray", "/redfish/v1/Chassis/Rack"];
    for (shown, expected, verdict) in [
        (["TRAY7", "RACK1"], "tray7", SerialMatch::Match),
        (["TRAY7", "RACK1"], "RACK1", SerialMatch::Match),
        (["TRAY7", "RACK1"], "TRAY8", SerialMatch::Unknown),
        (["To be filled by O.E.M.", "TRAY7"], "TRAY7", SerialMatch::Match),
        (["none", ""], "TRAY7", SerialMatch::Unknown),
    ] {
        let fake = Fake::new();
        fake.merge(SYSTEM, json!({ "SerialNumber": null, "SKU": null }));
        fake.merge(SYSTEM, json!({ "Links": { "Chassis": CHASSIS.map(link) } }));
        for (path, serial) in CHASSIS.iter().zip(shown) {
            fake.put(path, json!({ "Id": "C", "SerialNumber": serial }));
        }
        let found = client(&fake).discover(&SystemSelector::serial(expected)).await.unwrap();
        assert_eq!(found.system.matches_serial(expected), verdict, "{shown:?} {expected}");
    }
    // A system with a serial number keeps it; its chassis are not read.
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "Links": { "Chassis": CHASSIS.map(link) } }));
    client(&fake).discover(&SystemSelector::serial("OTHER")).await.unwrap();
    assert!(CHASSIS.iter().all(|path| fake.sent(Method::GET, path).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn the_only_system_with_the_properties_of_a_host_is_selected() {
    let fake = Fake::new();
    fake.put(SYSTEMS, json!({ "Members": [link(BOARD), link(SYSTEM)] }));
    fake.put(
        BOARD,
        json!({ "Id": "Board", "Boot": {}, "Actions": { "#ComputerSystem.Reset": { "target": "/x" } } }),
    );
    assert_eq!(client(&fake).discover(&SystemSelector::default()).await.unwrap().system.uri, SYSTEM);
}

#[tokio::test(start_paused = true)]
async fn a_system_that_always_fails_does_not_hide_the_host() {
    let fake = Fake::new();
    fake.put(SYSTEMS, json!({ "Members": [link(BOARD), link(SYSTEM)] }));
    fake.on(Method::GET, BOARD, (0..50).map(|_| Reply::status(500)));
    assert_eq!(client(&fake).discover(&SystemSelector::default()).await.unwrap().system.uri, SYSTEM);
    assert_eq!(fake.sent(Method::GET, BOARD).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_hosts_without_an_expected_serial_are_an_error_that_names_both() {
    let fake = Fake::new();
    fake.put(SYSTEMS, json!({ "Members": [link(BOARD), link(SYSTEM)] }));
    let mut other = json!({ "Links": { "ManagedBy": [link(MANAGER)] }, "SerialNumber": "SER9" });
    other["Boot"] = json!({ "BootSourceOverrideTarget": "None" });
    other["Actions"] = json!({ "#ComputerSystem.Reset": { "target": "/x" } });
    fake.put(BOARD, other);
    let bmc = client(&fake);
    let error = bmc.discover(&SystemSelector::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Config { .. }));
    assert!(error.to_string().contains(BOARD) && error.to_string().contains(SYSTEM), "{error}");
    let named = SystemSelector { serial: None, uri: Some(BOARD.to_owned()) };
    assert_eq!(bmc.discover(&named).await.unwrap().system.uri, BOARD);
}

#[tokio::test(start_paused = true)]
async fn collections_are_read_page_by_page_and_a_cycle_ends() {
    let fake = Fake::new();
    let second = "/redfish/v1/Systems?page=2";
    fake.put(SYSTEMS, json!({ "Members": [], "Members@odata.nextLink": second }));
    fake.put(second, json!({ "Members": [link(SYSTEM), link(SYSTEM)], "Members@odata.nextLink": SYSTEMS }));
    assert_eq!(client(&fake).discover(&SystemSelector::default()).await.unwrap().system.uri, SYSTEM);
    assert_eq!(fake.sent(Method::GET, second).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn empty_or_null_members_right_after_a_bmc_reset_are_transient() {
    for members in [json!([]), Value::Null] {
        let fake = Fake::new();
        fake.put(SYSTEMS, json!({ "Members": members }));
        let error = client(&fake).discover(&SystemSelector::default()).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn slots_linked_from_system_and_manager_are_read_once() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "VirtualMedia": link(MEDIA) }));
    let found = client(&fake).discover(&SystemSelector::default()).await.unwrap();
    assert_eq!((found.slots.len(), fake.sent(Method::GET, SLOT).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_other_collection_is_used_when_one_fails_or_has_no_usable_slot() {
    let fake = Fake::new();
    let dead = "/redfish/v1/Systems/1/VirtualMedia";
    fake.merge(SYSTEM, json!({ "VirtualMedia": link(dead) }));
    let bmc = client(&fake);
    assert_eq!(bmc.discover(&SystemSelector::default()).await.unwrap().slots[0].uri, SLOT);

    let internal = "/redfish/v1/Systems/1/VirtualMedia/kvm";
    fake.put(dead, json!({ "Members": [link(internal)] }));
    let read_only =
        Reply::json(200, json!({ "Id": "kvm", "MediaTypes": ["CD"] })).header("allow", "GET, HEAD");
    fake.on(Method::GET, internal, [read_only]);
    assert_eq!(bmc.discover(&SystemSelector::default()).await.unwrap().slots[0].uri, SLOT);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_fails_is_left_out() {
    let fake = Fake::new();
    fake.put(MEDIA, json!({ "Members": [link("/redfish/v1/gone"), link(SLOT)] }));
    assert_eq!(client(&fake).discover(&SystemSelector::default()).await.unwrap().slots.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_managed_by_the_collection_of_managers_is_used() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "Links": { "ManagedBy": null } }));
    let found = client(&fake).discover(&SystemSelector::default()).await.unwrap();
    assert_eq!(found.manager.unwrap().uri, MANAGER);
    assert_eq!(found.slots.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reset_types_that_only_action_info_lists_are_read_when_one_is_refused() {
    let fake = Fake::new();
    fake.merge(
        SYSTEM,
        json!({ "Actions": { "#ComputerSystem.Reset": {
            "ResetType@Redfish.AllowableValues": null, "@Redfish.ActionInfo": INFO,
        }}}),
    );
    let types = json!({ "Parameters": [{ "Name": "ResetType", "AllowableValues": ["ForceOn", "ForceOff", "OemThing"] }] });
    fake.put(INFO, types);
    let bmc = client(&fake);
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    assert!(fake.sent(Method::GET, INFO).is_empty());
    assert_eq!(bmc.reset_types(&system).await.unwrap(), [ResetType::ForceOn, ResetType::ForceOff]);
    let refused = Reply::error(400, "Base.1.8.ActionParameterNotSupported", "On is not supported");
    let on = Reply::status(204).effect(SYSTEM, json!({ "PowerState": "On" }));
    fake.on(Method::POST, RESET, [refused.clone(), on, refused]);
    assert!(bmc.reset(&system, ResetType::On).await.unwrap().confirmed);
    let sent: Vec<_> = fake.mutations().into_iter().filter_map(|sent| sent.body).collect();
    assert_eq!(sent, [json!({ "ResetType": "On" }), json!({ "ResetType": "ForceOn" })]);
    let error = bmc.reset(&system, ResetType::GracefulShutdown).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotSupported { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_board_is_not_read_when_a_host_shows_the_expected_serial_number() {
    let fake = Fake::new();
    fake.put(SYSTEMS, json!({ "Members": [link(BOARD), link(SYSTEM)] }));
    fake.put(BOARD, json!({ "Id": "Board" }));
    let found = client(&fake).discover(&SystemSelector::serial("SER1")).await.unwrap();
    assert_eq!((found.system.uri.as_str(), fake.sent(Method::GET, BOARD).len()), (SYSTEM, 0));
    // Any other system may be the host until all were read.
    let other = client(&fake).discover(&SystemSelector::serial("SER2")).await.unwrap();
    assert_eq!((other.system.uri.as_str(), fake.sent(Method::GET, BOARD).len()), (SYSTEM, 1));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_type_affects_only_its_field() {
    let fake = Fake::new();
    fake.merge(
        SYSTEM,
        json!({
            "SerialNumber": 12345, "Model": [], "PowerState": {}, "Boot": "no", "SKU": "  ", "UUID": null,
        }),
    );
    fake.merge(SLOT, json!({ "Inserted": "false", "MediaTypes": "CD", "Name": 3, "Image": {} }));
    let found = client(&fake).discover(&SystemSelector::default()).await.unwrap();
    assert_eq!(found.system.serial.as_deref(), Some("12345"));
    assert_eq!((&found.system.model, &found.system.boot), (&None, &None));
    assert_eq!(found.system.power_state, PowerState::Unknown);
    assert!(found.slots[0].is_cd() && found.slots[0].is_empty());
}

#[tokio::test(start_paused = true)]
async fn placeholder_serials_count_as_none() {
    for serial in
        [json!("To be filled by O.E.M."), json!("Default string"), json!(""), json!("0000"), Value::Null]
    {
        let fake = Fake::new();
        fake.merge(SYSTEM, json!({ "SerialNumber": serial, "SKU": "" }));
        let system = client(&fake).discover(&SystemSelector::default()).await.unwrap().system;
        assert_eq!(system.matches_serial("SER1"), SerialMatch::Unknown, "{serial}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_without_redfish_service_is_reported() {
    let fake = Fake::new();
    fake.put(ROOT, json!({ "hello": "world" }));
    let error = client(&fake).discover(&SystemSelector::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotSupported { .. }), "{error}");
}
