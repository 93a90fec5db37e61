//! The boot override: targets, bodies, ETags, the settings resource, clearing.

use std::sync::Arc;

use http::Method;
use redfish::{Bmc, BootEnabled, BootMode, BootTarget, ErrorKind, Profile, SystemInfo, SystemSelector};
use serde_json::{Value, json};

use crate::fake::{Fake, Reply, SLOT, SYSTEM, builder, client};

const SETTINGS: &str = "/redfish/v1/Systems/1/Settings";
const TARGETS: &str = "BootSourceOverrideTarget@Redfish.AllowableValues";

fn set_to(target: &str, enabled: &str) -> Value {
    json!({ "Boot": { "BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled } })
}

async fn found(fake: &Arc<Fake>) -> (Bmc, SystemInfo) {
    let bmc = client(fake);
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    (bmc, system)
}

#[tokio::test(start_paused = true)]
async fn a_one_time_cd_boot_is_set_and_read_back() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set_to("Cd", "Once"))]);
    let done = bmc.set_boot_once(&system, &bmc.profile().boot_targets, None).await.unwrap();
    assert!(done.changed && done.confirmed && done.observed.targets(&BootTarget::Cd));
    assert_eq!(fake.mutations()[0].body, Some(set_to("Cd", "Once")));
    assert_eq!(fake.mutations()[0].header("if-match"), None);

    let again = bmc.set_boot_once(&system, &bmc.profile().boot_targets, None).await.unwrap();
    assert!(!again.changed && again.confirmed);
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_accepted_override_that_does_not_show_is_not_confirmed() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204)]);
    let done = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap();
    assert!(done.changed && !done.confirmed);
}

#[tokio::test(start_paused = true)]
async fn continuous_in_the_read_back_counts() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set_to("Cd", "Continuous"))]);
    let done = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap();
    assert!(done.confirmed && done.observed.enabled == Some(BootEnabled::Continuous));
}

#[tokio::test(start_paused = true)]
async fn an_override_that_another_program_left_as_continuous_is_set_to_once() {
    let fake = Fake::new();
    fake.merge(SYSTEM, set_to("Cd", "Continuous"));
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set_to("Cd", "Once"))]);
    let done = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap();
    assert!(done.changed && done.confirmed && done.observed.enabled == Some(BootEnabled::Once), "{done:?}");
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_listed_target_is_taken_and_none_listed_is_an_error() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "Boot": { TARGETS: ["Pxe", "UsbCd"] } }));
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set_to("UsbCd", "Once"))]);
    let done = bmc.set_boot_once(&system, &bmc.profile().boot_targets, None).await.unwrap();
    assert_eq!(done.observed.target, Some(BootTarget::UsbCd));
    let error = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap_err();
    assert!(error.to_string().contains("[Pxe, UsbCd]"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_mode_is_sent_only_when_it_differs() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "Boot": { "BootSourceOverrideMode": "Legacy" } }));
    let (bmc, system) = found(&fake).await;
    let mut shown = set_to("Cd", "Once");
    shown["Boot"]["BootSourceOverrideMode"] = json!("UEFI");
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, shown.clone())]);
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], Some(BootMode::Uefi)).await.unwrap().confirmed);
    assert_eq!(fake.mutations()[0].body, Some(shown));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_wants_the_whole_object_gets_it_after_a_400() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    let refused = Reply::error(400, "Base.1.0.PropertyMissing", "BootSourceOverrideMode is missing");
    fake.on(Method::PATCH, SYSTEM, [refused, Reply::status(200).effect(SYSTEM, set_to("Cd", "Once"))]);
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap().confirmed);
    let mut full = set_to("Cd", "Once");
    full["Boot"]["BootSourceOverrideMode"] = json!("UEFI");
    assert_eq!(fake.mutations()[1].body, Some(full));
}

#[tokio::test(start_paused = true)]
async fn the_first_refusal_is_reported() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::text(400, "first"), Reply::text(400, "second")]);
    let error = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap_err();
    assert!(matches!(&error.kind, ErrorKind::Refused { status: 400, message, .. } if message == "first"));
}

#[tokio::test(start_paused = true)]
async fn a_locked_bios_is_busy_and_the_patch_is_not_repeated() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::error(400, "iLO.2.8.UnableToModifyDuringSystemPOST", "POST")]);
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap_err().is_transient());
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn if_match_falls_back_step_by_step_with_a_read_between() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "@odata.etag": "W/\"1\"" }));
    let (bmc, system) = found(&fake).await;
    let set = Reply::status(204).effect(SYSTEM, set_to("Cd", "Once"));
    fake.on(Method::PATCH, SYSTEM, [Reply::status(412), Reply::status(412), Reply::status(412), set]);
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap().confirmed);
    let sent = fake.mutations();
    let tags: Vec<_> = sent.iter().map(|sent| sent.header("if-match")).collect();
    assert_eq!(tags, [Some("W/\"1\""), Some("\"1\""), Some("*"), None]);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_demands_a_precondition_gets_one() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(
        Method::PATCH,
        SYSTEM,
        [Reply::status(428), Reply::status(204).effect(SYSTEM, set_to("Cd", "Once"))],
    );
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap().confirmed);
    assert_eq!(fake.mutations()[1].header("if-match"), Some("*"));
}

#[tokio::test(start_paused = true)]
async fn profiles_choose_star_and_the_whole_body() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "@odata.etag": "\"1\"" }));
    let bmc = builder(&fake, Profile::named("ami-megarac").unwrap()).build();
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set_to("Cd", "Once"))]);
    bmc.set_boot_once(&system, &bmc.profile().boot_targets, None).await.unwrap();
    let sent = &fake.mutations()[0];
    assert_eq!(sent.header("if-match"), Some("*"));
    assert_eq!(sent.body.as_ref().unwrap()["Boot"].as_object().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_settings_resource_with_a_boot_target_is_written_and_read_instead_of_the_system() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "@Redfish.Settings": { "SettingsObject": { "@odata.id": SETTINGS } } }));
    fake.put(SETTINGS, set_to("None", "Disabled"));
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SETTINGS, [Reply::status(204).effect(SETTINGS, set_to("Cd", "Once"))]);
    assert!(bmc.set_boot_once(&system, &bmc.profile().boot_targets, None).await.unwrap().confirmed);
    assert_eq!(fake.mutations()[0].path, SETTINGS);
}

#[tokio::test(start_paused = true)]
async fn a_settings_resource_whose_content_decides_nothing_is_not_read_before_it_is_written() {
    let fixed = Profile {
        boot_at: redfish::profile::BootResource::Settings,
        boot_body: redfish::profile::BootBody::Full,
        if_match: redfish::profile::IfMatch::Star,
        ..Profile::generic()
    };
    let reading = Profile { if_match: redfish::profile::IfMatch::ETag, ..fixed.clone() };
    for (profile, reads) in [(fixed.clone(), 1), (reading, 2)] {
        let fake = Fake::new();
        fake.merge(SYSTEM, json!({ "@Redfish.Settings": { "SettingsObject": { "@odata.id": SETTINGS } } }));
        fake.put(SETTINGS, set_to("None", "Disabled"));
        let bmc = builder(&fake, profile).build();
        let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
        fake.on(Method::PATCH, SETTINGS, [Reply::status(204).effect(SETTINGS, set_to("Cd", "Once"))]);
        assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap().confirmed);
        assert_eq!(fake.sent(Method::GET, SETTINGS).len(), reads);
    }

    // After a PATCH whose response was lost, the next attempt looks first and sends nothing.
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "@Redfish.Settings": { "SettingsObject": { "@odata.id": SETTINGS } } }));
    fake.put(SETTINGS, set_to("None", "Disabled"));
    let bmc = builder(&fake, fixed).build();
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    fake.on(Method::PATCH, SETTINGS, [Reply::times_out().effect(SETTINGS, set_to("Cd", "Once"))]);
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap_err().maybe_applied());
    let again = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap();
    assert!(!again.changed && again.confirmed);
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_settings_resource_without_boot_or_that_is_missing_is_ignored() {
    for settings in [Some(json!({ "Attributes": {} })), None] {
        let fake = Fake::new();
        fake.merge(SYSTEM, json!({ "@Redfish.Settings": { "SettingsObject": { "@odata.id": SETTINGS } } }));
        settings.into_iter().for_each(|settings| fake.put(SETTINGS, settings));
        let (bmc, system) = found(&fake).await;
        fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, set_to("Cd", "Once"))]);
        assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap().confirmed);
    }
}

#[tokio::test(start_paused = true)]
async fn clearing_disables_and_never_names_a_disk() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    assert!(!bmc.clear_boot_override(&system).await.unwrap().changed);
    fake.merge(SYSTEM, set_to("Cd", "Once"));
    let cleared = Reply::status(204).effect(SYSTEM, set_to("None", "Disabled"));
    fake.on(Method::PATCH, SYSTEM, [Reply::text(400, "None is not in the list"), cleared]);
    let done = bmc.clear_boot_override(&system).await.unwrap();
    assert!(done.changed && done.confirmed);
    let bodies: Vec<_> = fake.mutations().into_iter().filter_map(|sent| sent.body).collect();
    assert_eq!(
        bodies,
        [set_to("None", "Disabled"), json!({ "Boot": { "BootSourceOverrideEnabled": "Disabled" } })]
    );
}

#[tokio::test(start_paused = true)]
async fn an_override_with_an_unknown_outcome_is_not_repeated() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::PATCH, SYSTEM, [Reply::times_out()]);
    assert!(bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap_err().maybe_applied());
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_system_without_a_boot_override_is_not_supported() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "Boot": null }));
    let (bmc, system) = found(&fake).await;
    let error = bmc.boot_override(&system).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotSupported { .. }));
}

/// Firmware that refuses every form of the override and can boot its slot by another property.
#[tokio::test(start_paused = true)]
async fn a_refused_override_gives_way_to_the_property_of_the_slot_and_that_is_learned() {
    let fake = Fake::new();
    fake.merge(SLOT, json!({ "Oem": { "Hpe": { "BootOnNextServerReset": false } } }));
    let refused = || Reply::error(400, "iLO.2.30.UnsupportedOperation", "The operation is not supported.");
    fake.on(Method::PATCH, SYSTEM, (0..9).map(|_| refused()));
    let (on, off) = (json!(true), json!(false));
    let next = |value: &Value| json!({ "Oem": { "Hpe": { "BootOnNextServerReset": value } } });
    let replies = [&on, &off, &on].map(|value| Reply::status(200).effect(SLOT, next(value)));
    fake.on(Method::PATCH, SLOT, replies);
    let bmc = client(&fake);
    let found = bmc.discover(&SystemSelector::default()).await.unwrap();
    let set = bmc.boot_media_once(&found, SLOT).await.unwrap();
    assert!(set.changed && set.confirmed);
    let refusals = fake.sent(Method::PATCH, SYSTEM).len();
    assert!(bmc.next_boot_source(&found, SLOT).await.unwrap().unwrap().is_active());
    assert!(bmc.clear_next_boot_source(&found, SLOT).await.unwrap().confirmed);
    let learned = bmc.learned();
    assert!(!learned.is_empty());

    // The next job does not try the override again, unless the firmware changed.
    let next_job = builder(&fake, Profile::generic()).learned(learned.clone()).build();
    let found = next_job.discover(&SystemSelector::default()).await.unwrap();
    assert!(next_job.boot_media_once(&found, SLOT).await.unwrap().confirmed);
    assert_eq!(fake.sent(Method::PATCH, SYSTEM).len(), refusals);
    let stored = serde_json::to_string(&learned).unwrap();
    assert_eq!(serde_json::from_str::<redfish::profile::Learned>(&stored).unwrap(), learned);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_pass_or_leaves_no_other_way_stays_a_refusal() {
    // No property at the slot: the message of the BMC is returned.
    let fake = Fake::new();
    fake.on(Method::PATCH, SYSTEM, (0..9).map(|_| Reply::error(400, "iLO.2.30.UnsupportedOperation", "no")));
    let bmc = client(&fake);
    let found = bmc.discover(&SystemSelector::default()).await.unwrap();
    let error = bmc.boot_media_once(&found, SLOT).await.unwrap_err();
    assert!(matches!(&error.kind, ErrorKind::Refused { message, .. } if message == "no"), "{error}");
    // Busy, a conflict, or an unknown outcome: the same request may succeed later.
    for reply in [
        Reply::error(400, "iLO.2.30.UnableToModifyDuringSystemPOST", "in POST"),
        Reply::error(409, "Base.1.12.ActionParameterValueConflict", "not yet"),
        Reply::status(500),
    ] {
        let fake = Fake::new();
        fake.merge(SLOT, json!({ "Oem": { "Hpe": { "BootOnNextServerReset": false } } }));
        fake.on(Method::PATCH, SYSTEM, [reply]);
        let bmc = client(&fake);
        let found = bmc.discover(&SystemSelector::default()).await.unwrap();
        bmc.boot_media_once(&found, SLOT).await.unwrap_err();
        assert!(fake.sent(Method::PATCH, SLOT).is_empty() && bmc.learned().is_empty());
    }
}
