//! The profile in force: detected, fixed, refined by learned behaviour, overridden; and the obstacles to a job, reported
//! before anything is changed.

use http::Method;
use redfish::profile::{Flags, InsertMember, Learned};
use redfish::{InsertOptions, Profile, SystemSelector};
use serde_json::{Value, json};

use crate::fake::{
    EJECT, Fake, INSERT, MANAGER, MEDIA, ROOT, Reply, SESSIONS, SLOT, SYSTEM, URL, builder, client, inserted,
};

fn learned_from(value: Value) -> Learned {
    serde_json::from_value(value).unwrap()
}

fn any_system() -> SystemSelector {
    SystemSelector::default()
}

fn first_body(fake: &Fake) -> Value {
    fake.mutations()[0].body.clone().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_identity_chooses_the_profile_unless_the_record_does() {
    let fake = Fake::new();
    fake.merge(ROOT, json!({ "Vendor": "Dell", "Product": "Integrated Dell Remote Access Controller" }));
    fake.merge(MANAGER, json!({ "FirmwareVersion": "5.10.50.00", "Model": "14G Monolithic" }));
    let bmc = builder(&fake, Profile::generic()).detecting().build();
    assert_eq!(bmc.profile().name, "generic");
    let found = bmc.discover(&any_system()).await.unwrap();
    assert_eq!((bmc.profile().name, found.profile.as_str()), ("dell-idrac9-5", "dell-idrac9-5"));

    // A process that continues with a stored discovery has the profile without a request.
    let stored: redfish::Discovery = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    let before = fake.journal().len();
    let next = builder(&fake, Profile::generic()).detecting().build();
    next.recall(&stored);
    assert_eq!((next.profile().name, fake.journal().len()), ("dell-idrac9-5", before));
    // The service root, which its first request reads, would lead to the newest one.
    next.power_state(&stored.system).await.unwrap();
    assert_eq!(next.profile().name, "dell-idrac9-5");

    let fixed = builder(&fake, Profile::named("smc-x12").unwrap()).build();
    fixed.discover(&any_system()).await.unwrap();
    assert_eq!(fixed.profile().name, "smc-x12");
}

#[tokio::test(start_paused = true)]
async fn the_service_root_alone_decides_how_to_log_in() {
    let fake = Fake::new();
    fake.merge(ROOT, json!({ "Vendor": "Huawei", "Oem": { "Huawei": {} } }));
    let bmc = builder(&fake, Profile::generic()).detecting().build();
    let found = bmc.discover(&any_system()).await.unwrap();
    let login = fake.sent(Method::POST, SESSIONS)[0].body.clone().unwrap();
    assert_eq!(login["Oem"]["Huawei"]["Domain"], "LocaliBMC");
    let said = bmc.check(&found, URL).unwrap_err().to_string();
    assert!(said.contains("NFS and CIFS only"), "{said}");
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn overrides_take_precedence_over_a_detected_profile() {
    let fake = Fake::new();
    fake.merge(ROOT, json!({ "Vendor": "AMI" }));
    let flags = json!({ "url_port": 0, "settle_after_mount_s": 5 });
    let flags = Flags::parse(flags.as_object().unwrap()).unwrap();
    let bmc = builder(&fake, Profile::generic()).detecting().overrides(flags).build();
    let found = bmc.discover(&any_system()).await.unwrap();
    let profile = bmc.profile();
    assert_eq!((profile.name, profile.url_port, profile.settle_after_mount.as_secs()), ("ami-megarac", 0, 5));
    bmc.check(&found, "http://10.0.0.1:8080/").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_demanded_member_is_sent_at_once_in_the_next_insert() {
    let fake = Fake::new();
    let asks = Reply::error(400, "Base.1.8.ActionParameterMissing", "TransferProtocolType is missing");
    fake.on(Method::POST, INSERT, [asks, Reply::status(204).effect(SLOT, inserted())]);
    let bmc = client(&fake);
    bmc.discover(&any_system()).await.unwrap();
    assert!(bmc.learned().is_empty());
    bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    let learned = bmc.learned();
    assert_eq!(learned.wants, [InsertMember::Protocol].into());
    assert_eq!(learned.firmware_version, Some("7.1".into()));

    for (firmware, expected) in
        [("7.1", json!({ "Image": URL, "TransferProtocolType": "HTTP" })), ("7.2", json!({ "Image": URL }))]
    {
        let fake = Fake::new();
        fake.merge(MANAGER, json!({ "FirmwareVersion": firmware }));
        fake.on(Method::POST, INSERT, [Reply::status(204).effect(SLOT, inserted())]);
        let bmc = builder(&fake, Profile::generic()).learned(learned.clone()).build();
        bmc.discover(&any_system()).await.unwrap();
        bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
        assert_eq!(first_body(&fake), expected, "firmware {firmware}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_refused_in_a_patch_is_left_out_of_the_next_insert() {
    let fake = Fake::new();
    fake.merge(SLOT, json!({ "Actions": null }));
    let refuses = Reply::error(400, "Base.0.10.PropertyUnknown", "the property Inserted is unknown");
    let also = Reply::error(400, "Base.0.10.PropertyUnknown", "the property WriteProtected is unknown");
    fake.on(Method::PATCH, SLOT, [refuses, also, Reply::status(200).effect(SLOT, inserted())]);
    let bmc = client(&fake);
    bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    assert_eq!(bmc.learned().refuses, [InsertMember::Inserted, InsertMember::WriteProtected].into());
    let fake = Fake::new();
    fake.merge(SLOT, json!({ "Actions": null }));
    fake.on(Method::PATCH, SLOT, [Reply::status(200).effect(SLOT, inserted())]);
    let next = builder(&fake, Profile::generic()).learned(bmc.learned()).build();
    next.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    assert_eq!(first_body(&fake), json!({ "Image": URL }));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_refused_an_image_is_unusable_in_the_next_discovery() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [Reply::status(405)]);
    let bmc = client(&fake);
    bmc.discover(&any_system()).await.unwrap();
    assert_eq!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err().code(), "not_supported");
    let found = bmc.discover(&any_system()).await.unwrap();
    assert!(!found.slots[0].takes_media());
    let said = bmc.check(&found, URL).unwrap_err().to_string();
    assert!(said.contains("none of its slots (CD1) accepts an image; check the licence"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_login_is_not_tried_in_the_next_job() {
    let fake = Fake::new();
    fake.on(Method::POST, SESSIONS, [Reply::status(405)]);
    let bmc = client(&fake);
    bmc.discover(&any_system()).await.unwrap();
    assert!(bmc.learned().basic_only);
    let fake = Fake::new();
    let learned = learned_from(json!({ "firmware_version": "7.1", "basic_only": true }));
    let next = builder(&fake, Profile::generic()).learned(learned).build();
    next.discover(&any_system()).await.unwrap();
    assert!(fake.sent(Method::POST, SESSIONS).is_empty());
    // A session limit is temporary and is not learned.
    let fake = Fake::new();
    fake.on(Method::POST, SESSIONS, [Reply::error(503, "IDRAC.2.4.RAC0218", "maximum sessions")]);
    let bmc = client(&fake);
    bmc.discover(&any_system()).await.unwrap();
    assert!(!bmc.learned().basic_only);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_accepts_only_a_star_is_learned() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "@odata.etag": "W/\"a\"" }));
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    let no = || Reply::status(412);
    fake.on(Method::PATCH, SYSTEM, [no(), no(), Reply::status(200).effect(SYSTEM, boot)]);
    let bmc = client(&fake);
    let found = bmc.discover(&any_system()).await.unwrap();
    assert!(bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed);
    let tags: Vec<_> =
        fake.mutations().iter().map(|sent| sent.header("if-match").map(str::to_owned)).collect();
    assert_eq!(tags, ["W/\"a\"", "\"a\"", "*"].map(|tag| Some(tag.to_owned())));
    assert!(bmc.learned().etag_star);
}

#[tokio::test(start_paused = true)]
async fn a_mode_that_is_reset_with_the_target_is_set_again() {
    let fake = Fake::new();
    let set = |mode: &str| {
        json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once",
            "BootSourceOverrideMode": mode } })
    };
    let falls_back = Reply::status(200).effect(SYSTEM, set("Legacy"));
    fake.on(Method::PATCH, SYSTEM, [falls_back, Reply::status(200).effect(SYSTEM, set("UEFI"))]);
    let bmc = client(&fake);
    let found = bmc.discover(&any_system()).await.unwrap();
    let done = bmc.boot_media_once(&found, SLOT).await.unwrap();
    assert!(done.changed && done.confirmed);
    assert_eq!(fake.mutations()[1].body, Some(set("UEFI")));

    // If the BMC keeps Legacy, the change is not confirmed.
    let fake = Fake::new();
    let falls_back = || Reply::status(200).effect(SYSTEM, set("Legacy"));
    fake.on(Method::PATCH, SYSTEM, [falls_back(), falls_back()]);
    let bmc = client(&fake);
    let found = bmc.discover(&any_system()).await.unwrap();
    assert!(!bmc.boot_media_once(&found, SLOT).await.unwrap().confirmed);
    assert_eq!(fake.mutations().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_obstacle_is_one_sentence_with_the_next_action() {
    let licence = Reply::error(403, "SMC.1.0.OemLicenseNotPassed", "Not licensed to perform this request");
    type Breaks = Box<dyn Fn(&Fake)>;
    let cases: [(&str, Breaks); 3] = [
        (
            "licence missing: Not licensed to perform this request; install the BMC licence",
            Box::new(move |fake| fake.on(Method::GET, MEDIA, [licence.clone()])),
        ),
        (
            "no virtual media: neither the system nor its manager shows a slot; check the licence",
            Box::new(|fake| fake.merge(MANAGER, json!({ "VirtualMedia": null }))),
        ),
        (
            "not supported: the system has no Reset action",
            Box::new(|fake| fake.merge(SYSTEM, json!({ "Actions": null }))),
        ),
    ];
    for (sentence, breaks) in cases {
        let fake = Fake::new();
        breaks(&fake);
        let bmc = client(&fake);
        let found = bmc.discover(&any_system()).await.unwrap();
        let said = bmc.check(&found, URL).unwrap_err().to_string();
        assert!(said.contains(sentence), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_read_on_the_wire_shows_that_nothing_is_to_do() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let found = bmc.discover(&any_system()).await.unwrap();
    // Another client inserts an image right after the slot was read as empty.
    fake.merge(SLOT, json!({ "Inserted": true, "Image": "http://10.0.0.9/other.iso" }));
    let gone = json!({ "Inserted": false, "Image": null });
    fake.on(Method::POST, EJECT, [Reply::status(204).effect(SLOT, gone)]);
    assert!(bmc.eject(SLOT).await.unwrap().changed);
    fake.merge(SYSTEM, json!({ "PowerState": "On" }));
    assert_eq!(bmc.power_state_cached(&found.system).await.unwrap(), redfish::PowerState::Off);
    let off = redfish::ResetType::ForceOff;
    fake.on(
        Method::POST,
        crate::fake::RESET,
        [Reply::status(204).effect(SYSTEM, json!({ "PowerState": "Off" }))],
    );
    assert!(bmc.reset(&found.system, off).await.unwrap().changed);
}

#[tokio::test(start_paused = true)]
async fn slots_are_read_in_one_request_where_the_bmc_supports_expand() {
    let fake = Fake::new();
    let (a, b) = (format!("{MEDIA}/A"), format!("{MEDIA}/B"));
    let slot = |path: &str, inserted: bool| {
        json!({ "@odata.id": path, "Id": path, "MediaTypes": ["CD"], "Inserted": inserted,
            "Actions": { "#VirtualMedia.InsertMedia": { "target": INSERT } } })
    };
    let together = format!("{MEDIA}?$expand=*($levels=1)");
    fake.merge(ROOT, json!({ "ProtocolFeaturesSupported": { "ExpandQuery": { "ExpandAll": true } } }));
    fake.put("/redfish/v1/Systems?$expand=*($levels=1)", json!({ "Members": [{ "@odata.id": SYSTEM }] }));
    fake.put(&together, json!({ "Members": [slot(&a, false), slot(&b, false)] }));
    let bmc = client(&fake);
    let found = bmc.discover(&any_system()).await.unwrap();
    fake.put(&together, json!({ "Members": [slot(&a, true), slot(&b, false)] }));
    let before = fake.journal().len();
    let slots = bmc.slots(&found, &[a, b]).await.unwrap();
    assert_eq!(slots.iter().map(|slot| slot.inserted).collect::<Vec<_>>(), [Some(true), Some(false)]);
    assert_eq!(fake.journal().len() - before, 1);
}
