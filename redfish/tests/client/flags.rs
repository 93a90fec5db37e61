//! Every flag of a profile has an effect: set by an override, observed in the requests to the scripted BMC.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use redfish::profile::{FLAGS, Flags};
use redfish::{Bmc, ErrorKind, InsertOptions, InsertVia, Profile, ResetType, SerialMatch, SystemSelector};
use serde_json::{Value, json};

use crate::fake::{
    Fake, INSERT, MANAGER, MEDIA, RESET, ROOT, Reply, SESSIONS, SLOT, SYSTEM, SYSTEMS, URL, builder, inserted,
};

/// Flags that callers read: times they wait, and what they do before an update. The client itself does not wait.
const READ_BY_CALLERS: [&str; 4] =
    ["read_back_lag_s", "boot_read_within_s", "update_bios_host_off", "update_timeout_s"];

macro_rules! obeyed {
    ($($flag:ident),* $(,)?) => {
        const TESTED: &[&str] = &[$(stringify!($flag)),*];
        mod obeyed {
            $(#[tokio::test(start_paused = true)]
            async fn $flag() { super::$flag().await; })*
        }
    };
}

obeyed![
    session,
    login_oem,
    login_timeout_s,
    mutation_timeout_s,
    insert_timeout_s,
    task_timeout_s,
    settle_after_mount_s,
    settle_after_off_s,
    busy_ids,
    system_select,
    sku_is_serial,
    expand,
    vm_path,
    vm_method,
    vm_pre,
    attach_attribute,
    slot_allow,
    slot_deny,
    insert_fields,
    url_schemes,
    url_port,
    url_suffix_cd,
    url_suffix_usb,
    boot_via,
    boot_targets,
    boot_body,
    boot_mode,
    boot_at,
    no_hdd_override,
    if_match,
    restart,
    unsupported,
    update_ways,
    update_push_body,
    update_targets,
    update_apply_time,
    update_oem_parameters,
    update_state_at,
    update_protocol,
    update_uri,
];

use crate::update_flags::{
    update_apply_time, update_oem_parameters, update_protocol, update_push_body, update_state_at,
    update_targets, update_uri, update_ways,
};

#[test]
fn every_flag_has_a_test_of_its_effect() {
    let mut tested: Vec<&str> = TESTED.iter().chain(&READ_BY_CALLERS).copied().collect();
    let mut flags = FLAGS.to_vec();
    tested.sort_unstable();
    flags.sort_unstable();
    assert_eq!(tested, flags);
}

pub(crate) fn with(fake: &Arc<Fake>, flags: Value) -> Bmc {
    let flags = Flags::parse(flags.as_object().unwrap()).unwrap();
    builder(fake, Profile::generic()).overrides(flags).build()
}

pub(crate) async fn discovered(bmc: &Bmc) -> redfish::Discovery {
    bmc.discover(&SystemSelector::serial("SER1")).await.unwrap()
}

pub(crate) fn bodies(fake: &Fake) -> Vec<Value> {
    fake.mutations().into_iter().map(|sent| sent.body.unwrap_or(Value::Null)).collect()
}

pub(crate) fn takes_inserts(fake: &Fake) {
    fake.on(Method::POST, INSERT, [Reply::status(204).effect(SLOT, inserted())]);
}

async fn session() {
    let fake = Fake::new();
    discovered(&with(&fake, json!({ "session": "basic" }))).await;
    assert!(fake.sent(Method::POST, SESSIONS).is_empty());
    assert!(fake.journal().iter().all(|sent| sent.header("authorization").is_some()));
}

async fn login_oem() {
    let fake = Fake::new();
    let oem = json!({ "Huawei": { "Domain": "LocaliBMC" } });
    discovered(&with(&fake, json!({ "login_oem": oem }))).await;
    let body = fake.sent(Method::POST, SESSIONS)[0].body.clone().unwrap();
    assert_eq!(body["Oem"], oem);
    assert_eq!(body["UserName"], "admin");
}

async fn login_timeout_s() {
    let fake = Fake::new();
    fake.on(Method::POST, SESSIONS, [Reply::status(201).after(Duration::from_secs(3))]);
    let bmc = with(&fake, json!({ "login_timeout_s": 2 }));
    let error = bmc.slot(SLOT).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { .. }), "{error}");
}

async fn mutation_timeout_s() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "mutation_timeout_s": 2 }));
    let found = discovered(&bmc).await;
    fake.on(Method::POST, RESET, [Reply::status(204).after(Duration::from_secs(3))]);
    let error = bmc.reset(&found.system, ResetType::On).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { .. }) && error.maybe_applied());
}

async fn insert_timeout_s() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [Reply::status(204).after(Duration::from_secs(150))]);
    let error = with(&fake, json!({})).insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { .. }));
    let slow = Reply::status(204).after(Duration::from_secs(150)).effect(SLOT, inserted());
    fake.on(Method::POST, INSERT, [slow]);
    let patient = with(&fake, json!({ "insert_timeout_s": 200 }));
    assert!(patient.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
}

async fn task_timeout_s() {
    let fake = Fake::new();
    let task = "/redfish/v1/Tasks/1";
    fake.put(task, json!({ "TaskState": "Running" }));
    fake.on(Method::POST, INSERT, [Reply::status(202).header("location", task)]);
    let bmc = with(&fake, json!({ "task_timeout_s": 10 }));
    let error = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("within 10 s"), "{error}");
}

async fn settle_after_mount_s() {
    let profile = with(&Fake::new(), json!({ "settle_after_mount_s": 180 })).profile();
    let seconds = Duration::from_secs;
    assert_eq!(profile.settle_left(Some(seconds(30)), None), seconds(150));
    assert_eq!(profile.settle_left(Some(seconds(200)), None), Duration::ZERO);
    assert_eq!(profile.settle_left(None, None), Duration::ZERO);
}

async fn settle_after_off_s() {
    let flags = json!({ "settle_after_off_s": 60, "settle_after_mount_s": 10 });
    let profile = with(&Fake::new(), flags).profile();
    let seconds = Duration::from_secs;
    assert_eq!(profile.settle_left(Some(seconds(1)), Some(seconds(20))), seconds(40));
}

async fn busy_ids() {
    for (flags, code) in
        [(json!({}), "refused"), (json!({ "busy_ids": ["actionparametervalueconflict"] }), "busy")]
    {
        let fake = Fake::new();
        let bmc = with(&fake, flags);
        let found = discovered(&bmc).await;
        fake.on(
            Method::POST,
            RESET,
            [Reply::error(409, "Base.1.18.ActionParameterValueConflict", "not now")],
        );
        assert_eq!(bmc.reset(&found.system, ResetType::On).await.unwrap_err().code(), code);
    }
}

async fn system_select() {
    let fake = Fake::new();
    let (host, board) = ("/redfish/v1/Systems/System_0", "/redfish/v1/Systems/HGX_Baseboard_0");
    fake.put(SYSTEMS, json!({ "Members": [{ "@odata.id": board }, { "@odata.id": host }] }));
    fake.put(host, json!({ "Id": "System_0", "Links": { "ManagedBy": [{ "@odata.id": MANAGER }] } }));
    fake.on(Method::GET, board, [Reply::status(500)]);
    let bmc = with(&fake, json!({ "system_select": ["DGX", "System_0"] }));
    assert_eq!(discovered(&bmc).await.system.uri, host);
    assert!(fake.sent(Method::GET, board).is_empty(), "the other system is not read");

    // Its serial number is not the expected one: then all systems are read.
    fake.merge(host, json!({ "SerialNumber": "OTHER" }));
    fake.put(board, json!({ "SerialNumber": "SER1" }));
    let again = with(&fake, json!({ "system_select": ["System_0"] }));
    assert_eq!(discovered(&again).await.system.uri, board);

    // It shows the expected serial number: then the collection is not read.
    fake.merge(host, json!({ "SerialNumber": "SER1" }));
    let lists = fake.sent(Method::GET, SYSTEMS).len();
    let at_once = with(&fake, json!({ "system_select": ["System_0"] }));
    assert_eq!(discovered(&at_once).await.system.uri, host);
    assert_eq!(fake.sent(Method::GET, SYSTEMS).len(), lists);
}

async fn sku_is_serial() {
    for (flag, verdict) in [(true, SerialMatch::Match), (false, SerialMatch::Mismatch)] {
        let fake = Fake::new();
        let found = discovered(&with(&fake, json!({ "sku_is_serial": flag }))).await;
        assert_eq!(found.system.matches_serial("tag1"), verdict);
        assert_eq!(found.system.matches_serial("ser1"), SerialMatch::Match);
    }
}

fn offers_expand(fake: &Fake) -> String {
    fake.merge(ROOT, json!({ "ProtocolFeaturesSupported": { "ExpandQuery": { "NoLinks": true } } }));
    let member = json!({
        "@odata.id": SLOT, "Id": "CD1", "Name": "Virtual CD", "MediaTypes": ["CD"], "Inserted": false,
        "Actions": { "#VirtualMedia.InsertMedia": { "target": INSERT } },
    });
    let path = format!("{MEDIA}?$expand=.($levels=1)");
    fake.put(&path, json!({ "Members": [member] }));
    path
}

async fn expand() {
    let fake = Fake::new();
    let expanded = offers_expand(&fake);
    let bmc = with(&fake, json!({}));
    let found = discovered(&bmc).await;
    assert_eq!(found.slots[0].id, "CD1");
    // This BMC could not expand the collection of systems, so no other collection was expanded.
    assert!(fake.sent(Method::GET, &expanded).is_empty());
    assert_eq!(fake.sent(Method::GET, SLOT).len(), 1);

    let fake = Fake::new();
    let expanded = offers_expand(&fake);
    let system = json!({ "@odata.id": SYSTEM, "Id": "1", "SerialNumber": "SER1", "PowerState": "Off",
        "Links": { "ManagedBy": [{ "@odata.id": MANAGER }] } });
    fake.put(&format!("{SYSTEMS}?$expand=.($levels=1)"), json!({ "Members": [system] }));
    let found = discovered(&with(&fake, json!({}))).await;
    assert_eq!((found.slots[0].id.as_str(), fake.sent(Method::GET, &expanded).len()), ("CD1", 1));
    assert!(fake.sent(Method::GET, SLOT).is_empty() && fake.sent(Method::GET, SYSTEM).is_empty());
    assert_eq!(fake.journal().len(), 5, "root, login, systems, manager, media");

    let fake = Fake::new();
    let expanded = offers_expand(&fake);
    discovered(&with(&fake, json!({ "expand": "never" }))).await;
    assert!(fake.sent(Method::GET, &expanded).is_empty());
}

async fn vm_path() {
    let (tree, slot) = ("/redfish/v1/Systems/1/VirtualMedia", "/redfish/v1/Systems/1/VirtualMedia/1");
    for (home, expected) in [("system", slot), ("manager", SLOT)] {
        let fake = Fake::new();
        fake.merge(SYSTEM, json!({ "VirtualMedia": { "@odata.id": tree } }));
        fake.put(tree, json!({ "Members": [{ "@odata.id": slot }] }));
        let action = json!({ "#VirtualMedia.InsertMedia": { "target": INSERT } });
        fake.put(slot, json!({ "Id": "1", "MediaTypes": ["CD"], "Actions": action }));
        let found = discovered(&with(&fake, json!({ "vm_path": home }))).await;
        assert_eq!(found.slots.iter().map(|slot| slot.uri.as_str()).collect::<Vec<_>>(), [expected]);
    }
}

/// Tests of `oem:iso_config` are in `oem`.
async fn vm_method() {
    // PATCH although the slot has an action; and with `action`, a slot without an action is unusable.
    let fake = Fake::new();
    fake.on(Method::PATCH, SLOT, [Reply::status(200).effect(SLOT, inserted())]);
    let bmc = with(&fake, json!({ "vm_method": "patch" }));
    assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
    assert_eq!(bodies(&fake), [json!({ "Image": URL, "Inserted": true, "WriteProtected": true })]);
    fake.on(
        Method::PATCH,
        SLOT,
        [Reply::status(200).effect(SLOT, json!({ "Inserted": false, "Image": null }))],
    );
    assert!(bmc.eject(SLOT).await.unwrap().confirmed);
    assert_eq!(bodies(&fake)[1], json!({ "Image": null, "Inserted": false }));

    let fake = Fake::new();
    fake.merge(SLOT, json!({ "Actions": null }));
    let found = discovered(&with(&fake, json!({ "vm_method": "action" }))).await;
    assert_eq!(found.slots[0].insert, InsertVia::Nothing);

    // OEM actions, in each place where BMCs have them.
    let fake = Fake::new();
    let (hp, away) = ("/redfish/v1/M/Hp/Insert", "/redfish/v1/M/Hp/Eject");
    fake.merge(
        SLOT,
        json!({ "Actions": null, "Oem": { "Hp": { "Actions": {
        "#HpiLOVirtualMedia.InsertVirtualMedia": { "target": hp },
        "#HpiLOVirtualMedia.EjectVirtualMedia": { "target": away },
    } } } }),
    );
    fake.on(Method::POST, hp, [Reply::status(200).effect(SLOT, inserted())]);
    fake.on(
        Method::POST,
        away,
        [Reply::status(200).effect(SLOT, json!({ "Inserted": false, "Image": null }))],
    );
    let bmc = with(&fake, json!({ "vm_method": "oem:insert_virtual_media" }));
    assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
    assert!(bmc.eject(SLOT).await.unwrap().confirmed);
    assert_eq!(bodies(&fake), [json!({ "Image": URL }), json!({})]);

    let fake = Fake::new();
    let vmm = "/redfish/v1/M/Vmm";
    let action = json!({ "Oem": { "Huawei": { "#VirtualMedia.VmmControl": { "target": vmm } } } });
    fake.merge(SLOT, json!({ "Actions": action }));
    fake.merge(
        SLOT,
        json!({ "Actions": { "#VirtualMedia.InsertMedia": null, "#VirtualMedia.EjectMedia": null } }),
    );
    fake.on(
        Method::POST,
        vmm,
        [
            Reply::status(200).effect(SLOT, inserted()),
            Reply::status(200).effect(SLOT, json!({ "Inserted": false, "Image": null })),
        ],
    );
    let bmc = with(&fake, json!({ "vm_method": "oem:vmm_control" }));
    assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
    assert!(bmc.eject(SLOT).await.unwrap().confirmed);
    let sent = bodies(&fake);
    assert_eq!(sent[0], json!({ "VmmControlType": "Connect", "Image": URL }));
    assert_eq!(sent[1], json!({ "VmmControlType": "Disconnect" }));
}

async fn vm_pre() {
    let fake = Fake::new();
    fake.put(MEDIA, json!({ "Members": [] }));
    let enable = format!("{MANAGER}/Actions/Oem/AMIVirtualMedia.EnableRMedia");
    let members = json!({ "Members": [{ "@odata.id": SLOT }] });
    fake.on(Method::POST, &enable, [Reply::status(200).effect(MEDIA, members)]);
    let bmc = with(&fake, json!({ "vm_pre": "oem:enable_rmedia" }));
    let found = discovered(&bmc).await;
    assert!(found.slots.is_empty() && fake.mutations().is_empty(), "discovery reads only");
    bmc.check(&found, URL).unwrap();
    let prepared = bmc.prepare_media(&found).await.unwrap();
    assert!(prepared.changed && prepared.confirmed && prepared.observed[0].takes_media());
    assert_eq!(bodies(&fake), [json!({ "RMediaState": "Enable" })]);

    let found = discovered(&bmc).await;
    assert!(!bmc.prepare_media(&found).await.unwrap().changed, "there are slots now");
}

async fn attach_attribute() {
    let (linked, built) = ("/redfish/v1/M/Oem/X/1", format!("{MANAGER}/Attributes"));
    let shows = |value: &str| json!({ "Attributes": { "VirtualMedia.1.Attached": value } });
    for (path, value, detached) in [
        (linked, "Detached", true),
        (linked, "AutoAttach", false),
        (built.as_str(), "detached", true),
        (built.as_str(), "Attached", false),
    ] {
        let fake = Fake::new();
        if path == linked {
            let list = json!([{ "@odata.id": "/redfish/v1/M/Oem/X/System" }, { "@odata.id": linked }]);
            fake.merge(MANAGER, json!({ "Links": { "Oem": { "X": { "XAttributes": list } } } }));
        }
        fake.put(path, shows(value));
        let bmc = with(&fake, json!({ "attach_attribute": "VirtualMedia.1.Attached" }));
        let found = discovered(&bmc).await;
        assert_eq!(found.media_detached.is_some(), detached, "{path} {value}");
        match bmc.check(&found, URL) {
            Err(error) => {
                let said = error.to_string();
                assert!(detached && error.code() == "media_detached", "{said}");
                assert!(said.contains("VirtualMedia.1.Attached is Detached; set it to AutoAttach"), "{said}");
            }
            Ok(()) => assert!(!detached, "{path} {value}"),
        }
        assert!(fake.mutations().is_empty());
    }
    // A BMC without attributes, an account that may not read them, and a profile that names none.
    let fake = Fake::new();
    fake.on(Method::GET, &built, [Reply::error(403, "Base.1.12.InsufficientPrivilege", "no")]);
    let found = discovered(&with(&fake, json!({ "attach_attribute": "VirtualMedia.1.Attached" }))).await;
    assert_eq!(found.media_detached, None);
    let fake = Fake::new();
    let found = discovered(&with(&fake, json!({ "attach_attribute": "VirtualMedia.1.Attached" }))).await;
    assert_eq!(found.media_detached, None);
    let fake = Fake::new();
    fake.put(&built, shows("Detached"));
    assert_eq!(discovered(&with(&fake, json!({}))).await.media_detached, None);
    assert!(fake.sent(Method::GET, &built).is_empty());
}

async fn takers(flags: Value) -> Vec<String> {
    let fake = Fake::new();
    let ids = ["RDOC1", "Remote1", "EXT1", "EXT2"];
    let uri = |id: &str| format!("{MEDIA}/{id}");
    let members: Vec<Value> = ids.iter().map(|id| json!({ "@odata.id": uri(id) })).collect();
    fake.put(MEDIA, json!({ "Members": members }));
    for id in ids {
        fake.put(&uri(id), json!({ "Id": id, "MediaTypes": ["CD"] }));
    }
    let found = discovered(&with(&fake, flags)).await;
    found.slots.into_iter().filter(|slot| slot.takes_media()).map(|slot| slot.id).collect()
}

async fn slot_allow() {
    assert_eq!(takers(json!({ "slot_allow": ["ext*"] })).await, ["EXT1", "EXT2"]);
    assert_eq!(takers(json!({ "slot_allow": ["EXT2"] })).await, ["EXT2"]);
    assert_eq!(
        takers(json!({ "slot_allow": ["CD*"] })).await.len(),
        4,
        "a list that fits nothing says nothing"
    );
}

async fn slot_deny() {
    assert_eq!(takers(json!({ "slot_deny": ["RDOC*", "Remote1"] })).await, ["EXT1", "EXT2"]);
}

async fn insert_fields() {
    let fake = Fake::new();
    takes_inserts(&fake);
    let all = json!({ "inserted": "always", "write_protected": "always", "protocol": "always", "method": "always",
        "creds": "always", "media_type": "always" });
    let bmc = with(&fake, json!({ "insert_fields": all }));
    bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    assert_eq!(
        bodies(&fake),
        [json!({ "Image": URL, "Inserted": true, "WriteProtected": true, "TransferProtocolType": "HTTP",
            "TransferMethod": "Stream", "UserName": "none", "Password": "none", "MediaType": "CD" })]
    );

    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [Reply::text(400, "TransferMethod is missing")]);
    let never = with(&fake, json!({ "insert_fields": { "method": "never" } }));
    never.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert_eq!(fake.mutations().len(), 1, "a member with `never` is not sent even if the BMC demands it");
}

async fn url_schemes() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "url_schemes": ["https"] }));
    let found = discovered(&bmc).await;
    for error in [
        bmc.check(&found, URL).unwrap_err(),
        bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err(),
    ] {
        let said = error.to_string();
        assert!(said.contains("reads media by https only, but media are served by http;"), "{said}");
        assert!(said.contains("leave media_base_url of this server and MEDIA_BASE_URL unset"), "{said}");
    }
    assert!(fake.mutations().is_empty());
    bmc.check(&found, "https://10.0.0.1/").unwrap();
}

async fn url_port() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "url_port": 80 }));
    let found = discovered(&bmc).await;
    bmc.check(&found, "http://10.0.0.1/").unwrap();
    let said = bmc.check(&found, "http://10.0.0.1:8080/").unwrap_err().to_string();
    assert!(said.contains("by port 80 only, but media are served by port 8080"), "{said}");
}

async fn url_suffix_cd() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "url_suffix_cd": "img" }));
    assert_eq!(bmc.slot(SLOT).await.unwrap().suffix(&bmc.profile()), "img");
}

async fn url_suffix_usb() {
    let fake = Fake::new();
    fake.merge(SLOT, json!({ "MediaTypes": ["USBStick"], "Id": "RemovableDisk" }));
    let bmc = with(&fake, json!({ "url_suffix_usb": "iso" }));
    assert_eq!(bmc.slot(SLOT).await.unwrap().suffix(&bmc.profile()), "iso");
    assert_eq!(bmc.slot(SLOT).await.unwrap().suffix(&Profile::generic()), "img");
}

async fn boot_via() {
    // An imported configuration: a task, confirmed by the attributes.
    let fake = Fake::new();
    let (import, attributes) = (format!("{MANAGER}/Import"), format!("{MANAGER}/Attributes"));
    let name = "OemManager.v1_0_0#OemManager.ImportSystemConfiguration";
    fake.merge(MANAGER, json!({ "Actions": { "Oem": { name: { "target": import } } } }));
    let shows = |once: &str, device: &str| json!({ "Attributes": { "ServerBoot.1.BootOnce": once, "ServerBoot.1.FirstBootDevice": device } });
    fake.put(&attributes, shows("Disabled", "Normal"));
    let job = "/redfish/v1/TaskService/Tasks/JID_1";
    fake.put(job, json!({ "TaskState": "Completed" }));
    fake.on(
        Method::POST,
        &import,
        [
            Reply::status(202).header("location", job).effect(&attributes, shows("Enabled", "VCD-DVD")),
            Reply::status(202).header("location", job).effect(&attributes, shows("Disabled", "Normal")),
        ],
    );
    let bmc = with(&fake, json!({ "boot_via": "oem:configuration_import" }));
    let found = discovered(&bmc).await;
    assert!(!bmc.next_boot_source(&found, SLOT).await.unwrap().unwrap().is_active());
    let set = bmc.boot_media_once(&found, SLOT).await.unwrap();
    assert!(set.changed && set.confirmed);
    assert!(!bmc.boot_media_once(&found, SLOT).await.unwrap().changed);
    assert!(bmc.clear_next_boot_source(&found, SLOT).await.unwrap().confirmed);
    let sent = bodies(&fake);
    assert_eq!(sent.len(), 2);
    let buffer = sent[0]["ImportBuffer"].as_str().unwrap();
    assert!(
        buffer
            .contains("<Component FQDD=\"1\"><Attribute Name=\"ServerBoot.1#BootOnce\">Enabled</Attribute>")
    );
    assert!(!buffer.contains("> <") && buffer.contains("VCD-DVD"));

    // A property of the slot.
    let fake = Fake::new();
    fake.merge(SLOT, json!({ "Oem": { "Hpe": { "BootOnNextServerReset": false } } }));
    let on = json!({ "Oem": { "Hpe": { "BootOnNextServerReset": true } } });
    fake.on(Method::PATCH, SLOT, [Reply::status(200).effect(SLOT, on.clone())]);
    let bmc = with(&fake, json!({ "boot_via": "oem:boot_on_next_server_reset" }));
    let found = discovered(&bmc).await;
    assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed);
    assert!(bmc.next_boot_source(&found, SLOT).await.unwrap().unwrap().is_active());
    assert_eq!(bodies(&fake), [on]);
}

fn takes_boot(fake: &Fake, target: &str) {
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": "Once" } });
    fake.on(Method::PATCH, SYSTEM, [Reply::status(200).effect(SYSTEM, boot)]);
}

async fn boot_targets() {
    let fake = Fake::new();
    let listed = json!({ "Boot": { "BootSourceOverrideTarget@Redfish.AllowableValues": ["Cd", "UsbCd"] } });
    fake.merge(SYSTEM, listed);
    takes_boot(&fake, "UsbCd");
    let bmc = with(&fake, json!({ "boot_targets": ["UsbCd", "Cd"] }));
    let found = discovered(&bmc).await;
    assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed);
    assert_eq!(bodies(&fake)[0]["Boot"]["BootSourceOverrideTarget"], "UsbCd");
}

async fn boot_body() {
    let once = json!({ "Boot": { "BootSourceOverrideEnabled": "Once" } });
    for (body, expected) in [
        ("minimal", json!({ "Boot": { "BootSourceOverrideTarget": "Cd" } })),
        (
            "enabled_always",
            json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } }),
        ),
        (
            "full",
            json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once",
                "BootSourceOverrideMode": "UEFI" } }),
        ),
    ] {
        let fake = Fake::new();
        fake.merge(SYSTEM, once.clone());
        takes_boot(&fake, "Cd");
        let bmc = with(&fake, json!({ "boot_body": body }));
        let found = discovered(&bmc).await;
        assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed, "{body}");
        assert_eq!(bodies(&fake), [expected]);
    }
}

async fn boot_mode() {
    for (rule, body, shown, sent) in [
        // What the BMC shows without an override says nothing where the whole object is sent.
        ("auto", "full", ["Disabled", "None", "Legacy"], "UEFI"),
        ("auto", "full", ["Disabled", "None", "UEFI"], "UEFI"),
        ("auto", "full", ["Once", "Pxe", "Legacy"], "Legacy"),
        ("auto", "enabled_always", ["Disabled", "None", "Legacy"], ""),
        ("legacy", "full", ["Disabled", "None", "UEFI"], "Legacy"),
        ("legacy", "enabled_always", ["Disabled", "None", "UEFI"], "Legacy"),
        ("uefi", "minimal", ["Disabled", "None", "Legacy"], "UEFI"),
    ] {
        let fake = Fake::new();
        let [enabled, target, mode] = shown;
        let boot = json!({ "BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target,
            "BootSourceOverrideMode": mode });
        fake.merge(SYSTEM, json!({ "Boot": boot }));
        let after = if sent.is_empty() { mode } else { sent };
        let set = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once",
            "BootSourceOverrideMode": after } });
        fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set)]);
        let bmc = with(&fake, json!({ "boot_mode": rule, "boot_body": body }));
        let found = discovered(&bmc).await;
        assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed, "{rule} {body}");
        let bodies = bodies(&fake);
        assert_eq!(bodies.len(), 1, "{rule} {body}: {bodies:?}");
        assert_eq!(bodies[0]["Boot"]["BootSourceOverrideMode"].as_str().unwrap_or(""), sent, "{rule} {body}");
    }
}

async fn boot_at() {
    let pending = "/redfish/v1/Systems/1/Settings";
    let link = json!({ "@Redfish.Settings": { "SettingsObject": { "@odata.id": pending } } });
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    let target = json!({ "Boot": { "BootSourceOverrideTarget": "None" } });
    for (at, settings, place) in [
        ("auto", target.clone(), pending),
        ("auto", json!({ "Id": "Settings" }), SYSTEM),
        ("system", target.clone(), SYSTEM),
        ("settings", json!({ "Id": "Settings" }), pending),
    ] {
        let fake = Fake::new();
        fake.merge(SYSTEM, link.clone());
        fake.put(pending, settings);
        fake.on(Method::PATCH, place, [Reply::status(200).effect(place, boot.clone())]);
        let bmc = with(&fake, json!({ "boot_at": at }));
        let found = discovered(&bmc).await;
        assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed, "{at}");
        assert_eq!(fake.mutations()[0].path, place);
        assert_eq!(fake.sent(Method::GET, pending).is_empty(), at == "system");
    }
}

async fn no_hdd_override() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "no_hdd_override": true, "boot_targets": ["Hdd"] }));
    let found = discovered(&bmc).await;
    assert_eq!(bmc.boot_media_once(&found, SLOT).await.unwrap_err().code(), "not_supported");
    assert!(fake.mutations().is_empty());
}

async fn if_match() {
    for (rule, expected) in [("etag", Some("\"a\"")), ("star", Some("*")), ("none", None)] {
        let fake = Fake::new();
        fake.merge(SYSTEM, json!({ "@odata.etag": "\"a\"" }));
        takes_boot(&fake, "Cd");
        let bmc = with(&fake, json!({ "if_match": rule }));
        let found = discovered(&bmc).await;
        assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed);
        assert_eq!(fake.mutations()[0].header("if-match"), expected);
    }
    // A BMC that demands an ETag nevertheless gets one.
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "@odata.etag": "\"a\"" }));
    fake.on(Method::PATCH, SYSTEM, [Reply::status(428)]);
    takes_boot(&fake, "Cd");
    let bmc = with(&fake, json!({ "if_match": "none" }));
    let found = discovered(&bmc).await;
    assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed);
    assert_eq!(fake.mutations()[1].header("if-match"), Some("\"a\""));
}

async fn restart() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "restart": "force_restart" }));
    let found = discovered(&bmc).await;
    assert_eq!(bmc.restart_by(&found.system), [ResetType::ForceRestart]);
    assert_eq!(with(&fake, json!({})).restart_by(&found.system), [ResetType::ForceOff, ResetType::On]);
}

async fn unsupported() {
    let fake = Fake::new();
    let bmc = with(&fake, json!({ "unsupported": "it reads NFS only: use another" }));
    let found = discovered(&bmc).await;
    let said = bmc.check(&found, URL).unwrap_err().to_string();
    assert!(said.contains("cannot be used (profile generic): it reads NFS only: use another;"), "{said}");
}
