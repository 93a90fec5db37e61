//! Settings of the BIOS, the boot order and the restart of the BMC against the scripted BMC.

use std::sync::Arc;

use http::Method;
use redfish::settings::AttributeProblem;
use redfish::{ApplyTime, BiosCheck, ErrorKind, ManagerReset, ResetType};
use serde_json::{Map, Value, json};

use crate::fake::{Fake, MANAGER, ROOT, Reply, SYSTEM, client};
use crate::flags::discovered;

const BIOS: &str = "/redfish/v1/Systems/1/Bios";
const PENDING: &str = "/redfish/v1/Systems/1/Bios/Settings";

fn link(path: &str) -> Value {
    json!({ "@odata.id": path })
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn fake() -> Arc<Fake> {
    let fake = Fake::new();
    fake.merge(ROOT, json!({ "Registries": link("/redfish/v1/Registries") }));
    fake.merge(SYSTEM, json!({ "Bios": link(BIOS) }));
    fake.put(
        BIOS,
        json!({
            "AttributeRegistry": "BiosAttributeRegistry.v1_0_0",
            "Attributes": { "BootMode": "Uefi", "Turbo": "Enabled", "Fan": 3 },
            "@Redfish.Settings": { "SettingsObject": link(PENDING), "SupportedApplyTimes": ["OnReset", "Immediate"] },
        }),
    );
    fake.put(PENDING, json!({ "@odata.etag": "\"pending\"", "Attributes": {} }));
    let file = "/redfish/v1/Registries/BiosAttributeRegistry";
    fake.put(
        "/redfish/v1/Registries",
        json!({ "Members": [link("/redfish/v1/Registries/Base"), link(file)] }),
    );
    fake.put(file, json!({ "Location": [{ "Language": "ja", "Uri": "/reg/ja" }, { "Language": "en", "Uri": "/reg/en" }] }));
    fake.put(
        "/reg/en",
        json!({ "RegistryEntries": { "Attributes": [
            { "AttributeName": "BootMode", "Type": "Enumeration", "Value": [{ "ValueName": "Uefi" }, { "ValueName": "Bios" }] },
            { "AttributeName": "Fan", "Type": "Integer", "LowerBound": 1, "UpperBound": 5, "ReadOnly": true },
        ]}}),
    );
    fake
}

#[tokio::test(start_paused = true)]
async fn only_values_that_differ_are_written_to_the_settings_object_with_its_etag() {
    let fake = fake();
    fake.on(
        Method::PATCH,
        PENDING,
        [Reply::status(200).effect(PENDING, json!({ "Attributes": { "BootMode": "Bios" } }))],
    );
    let bmc = client(&fake);
    let system = discovered(&bmc).await.system;
    let bios = bmc.bios(&system).await.unwrap();
    let wanted = map(json!({ "BootMode": "Bios", "Turbo": "Enabled" }));
    let set = bmc.set_bios(&bios, &wanted, None).await.unwrap();
    assert!(set.changed && set.confirmed);
    let sent = fake.sent(Method::PATCH, PENDING);
    let body = sent[0].body.clone().unwrap();
    assert_eq!(body["Attributes"], json!({ "BootMode": "Bios" }));
    assert_eq!(body["@Redfish.SettingsApplyTime"]["ApplyTime"], "OnReset");
    assert_eq!(sent[0].header("if-match"), Some("\"pending\""));
    let diff = set.observed.compare(&wanted);
    assert!(diff.is_set() && !diff.is_in_force(), "a restart applies it");
    let again = bmc.set_bios(&bios, &wanted, Some(ApplyTime::Immediate)).await.unwrap();
    assert!(!again.changed && fake.sent(Method::PATCH, PENDING).len() == 1);
}

/// A task that waits for the restart of the host ends with it, so the client does not wait for its end.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_the_restart_is_not_followed() {
    let fake = fake();
    let accepted = Reply::status(202).header("location", "/redfish/v1/TaskService/TaskMonitors/7");
    fake.on(
        Method::PATCH,
        PENDING,
        [accepted.effect(PENDING, json!({ "Attributes": { "BootMode": "Bios" } }))],
    );
    let bmc = client(&fake);
    let system = discovered(&bmc).await.system;
    let bios = bmc.bios(&system).await.unwrap();
    let set = bmc.set_bios(&bios, &map(json!({ "BootMode": "Bios" })), None).await.unwrap();
    assert!(set.changed && set.confirmed);
    assert!(fake.sent(Method::GET, "/redfish/v1/TaskService/TaskMonitors/7").is_empty());
}

#[tokio::test(start_paused = true)]
async fn wanted_attributes_are_checked_against_the_registry_of_the_bios() {
    let fake = fake();
    let bmc = client(&fake);
    let system = discovered(&bmc).await.system;
    let bios = bmc.bios(&system).await.unwrap();
    assert_eq!(bmc.check_bios(&bios, &map(json!({ "BootMode": "Bios" }))).await.unwrap(), BiosCheck::Fits);
    let BiosCheck::Problems(problems) =
        bmc.check_bios(&bios, &map(json!({ "BootMode": "bios", "Fan": 2 }))).await.unwrap()
    else {
        panic!("problems")
    };
    assert!(matches!(&problems[0], AttributeProblem::Value { name, .. } if name == "BootMode"));
    assert!(matches!(&problems[1], AttributeProblem::ReadOnly { name } if name == "Fan"));
    fake.on(Method::GET, "/reg/en", [Reply::status(404)]);
    let check = bmc.check_bios(&bios, &map(json!({ "BootMode": "Bios" }))).await.unwrap();
    assert!(matches!(check, BiosCheck::Unverified { .. }));
    let error = bmc.set_bios(&bios, &map(json!({ "bootmode": "Bios" })), None).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Config { .. }) && fake.mutations().is_empty(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_boot_order_is_written_where_it_is_shown() {
    for in_settings in [false, true] {
        let fake = fake();
        let order = json!({ "Boot": { "BootOrder": ["Boot0001", "Boot0002"] } });
        fake.merge(SYSTEM, order.clone());
        fake.merge(SYSTEM, json!({ "@Redfish.Settings": { "SettingsObject": link("/settings") } }));
        fake.put("/settings", if in_settings { order } else { json!({ "Boot": {} }) });
        let place = if in_settings { "/settings" } else { SYSTEM };
        let wanted = ["Boot0002".to_owned(), "Boot0001".to_owned()];
        let effect = json!({ "Boot": { "BootOrder": wanted } });
        fake.on(Method::PATCH, place, [Reply::status(204).effect(place, effect)]);
        let bmc = client(&fake);
        let system = discovered(&bmc).await.system;
        let set = bmc.set_boot_order(&system, &wanted, None).await.unwrap();
        assert!(set.changed && set.confirmed, "{in_settings}");
        assert!(!bmc.set_boot_order(&system, &wanted, None).await.unwrap().changed);
        let unknown = bmc.set_boot_order(&system, &["Boot0009".to_owned()], None).await.unwrap_err();
        assert!(matches!(unknown.kind, ErrorKind::Config { .. }));
        assert_eq!(fake.mutations().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_restart_is_sent_once_and_a_lost_response_may_have_been_applied() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let manager = discovered(&bmc).await.manager.unwrap();
    let without = bmc.manager_status(&manager).await.unwrap();
    let error = bmc.manager_reset_type(&without, ManagerReset::Graceful).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotSupported { .. }), "{error}");
    let action = json!({ "target": "/reset-bmc", "ResetType@Redfish.AllowableValues": ["ForceRestart", "GracefulRestart"] });
    fake.merge(MANAGER, json!({ "Actions": { "#Manager.Reset": action } }));
    fake.on(Method::POST, "/reset-bmc", [Reply::status(204), Reply::times_out(), Reply::status(400)]);
    let status = bmc.manager_status(&manager).await.unwrap();
    let kind = bmc.manager_reset_type(&status, ManagerReset::Graceful).await.unwrap();
    assert_eq!(kind, ResetType::GracefulRestart);
    bmc.reset_manager(&status, kind).await.unwrap();
    assert!(bmc.reset_manager(&status, ResetType::ForceRestart).await.unwrap_err().maybe_applied);
    assert!(!bmc.reset_manager(&status, kind).await.unwrap_err().maybe_applied);
    assert_eq!(fake.sent(Method::POST, "/reset-bmc").len(), 3);
}
