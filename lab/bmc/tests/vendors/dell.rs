//! The generations of Dell's iDRAC.

use std::time::Duration;

use serde_json::json;

use crate::kit::{Bmc, IMAGE, SERIAL, once};

#[tokio::test(start_paused = true)]
async fn the_service_tag_is_the_sku_and_differs_from_the_serial_number() {
    for vendor in ["dell-idrac8", "dell-idrac9-5", "dell-idrac9-6", "dell-idrac10"] {
        let bmc = Bmc::of(vendor).await;
        let system = bmc.get(&bmc.system).await;
        assert_eq!(system.text("/SKU"), SERIAL, "{vendor}");
        assert_ne!(system.text("/SerialNumber"), SERIAL, "{vendor}");
        assert!(system.header("etag").is_none(), "{vendor}");
        assert_eq!(bmc.root.text("/Vendor"), "Dell");
    }
}

#[tokio::test(start_paused = true)]
async fn before_6_00_cd_is_the_physical_drive_and_server_boot_chooses_the_virtual_one() {
    for vendor in ["dell-idrac8", "dell-idrac9-5"] {
        let bmc = Bmc::of(vendor).await;
        let slots = bmc.slots().await;
        assert_eq!(slots.len(), 2);
        assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 204);
        assert_eq!(bmc.patch(&bmc.system, once("Cd", None)).await.status, 200);
        assert!(!bmc.boots_from_media().await, "{vendor} booted the virtual CD");
        bmc.power("ForceOff").await;
        let attributes = format!("{}/Attributes", bmc.manager);
        let chosen = json!({ "Attributes": {
            "ServerBoot.1.BootOnce": "Enabled", "ServerBoot.1.FirstBootDevice": "VCD-DVD",
        }});
        assert_eq!(bmc.patch(&attributes, chosen).await.status, 200);
        assert!(bmc.boots_from_media().await, "{vendor} did not boot the virtual CD");
        // The choice is for one boot only.
        bmc.power("ForceOff").await;
        assert!(!bmc.boots_from_media().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_configuration_profile_is_a_job_and_is_refused_with_space_between_its_tags() {
    let bmc = Bmc::of("dell-idrac8").await;
    let slots = bmc.slots().await;
    bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    let manager = bmc.get(&bmc.manager).await;
    let target = manager.text("/Actions/Oem/#OemManager.ImportSystemConfiguration/target").to_owned();
    let profile = |gap: &str| {
        let attribute = |name: &str, value: &str| format!("<Attribute Name=\"{name}\">{value}</Attribute>");
        json!({
            "ShareParameters": { "Target": "ALL" },
            "ImportBuffer": format!(
                "<SystemConfiguration>{gap}<Component FQDD=\"iDRAC.Embedded.1\">{}{}</Component></SystemConfiguration>",
                attribute("ServerBoot.1#BootOnce", "Enabled"),
                attribute("ServerBoot.1#FirstBootDevice", "VCD-DVD"),
            ),
        })
    };
    for (gap, state) in [("\n  ", "Exception"), ("", "Completed")] {
        let job = bmc.post(&target, profile(gap)).await;
        assert_eq!(job.status, 202);
        let monitor = job.header("location").unwrap().to_owned();
        assert!(monitor.contains("JID_"), "{monitor}");
        assert_eq!(bmc.get(&monitor).await.status, 202);
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(bmc.get(&monitor).await.status, 404, "the monitor of a finished job does not exist");
        let task = bmc.get(&monitor.replace("TaskMonitors", "Tasks")).await;
        assert_eq!(task.text("/TaskState"), state);
    }
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn the_usb_slot_before_6_00_accepts_only_names_that_end_in_img() {
    for vendor in ["dell-idrac8", "dell-idrac9-5"] {
        let bmc = Bmc::of(vendor).await;
        let slots = bmc.slots().await;
        assert_eq!(bmc.insert(&slots[1], json!({ "Image": IMAGE })).await.status, 400);
        let disk = json!({ "Image": "http://192.0.2.1/tabc/task.img" });
        assert_eq!(bmc.insert(&slots[1], disk).await.status, 204);
    }
}

#[tokio::test(start_paused = true)]
async fn from_6_00_on_the_system_has_two_slots_and_an_eject_takes_some_seconds() {
    let bmc = Bmc::of("dell-idrac9-6").await;
    let slots = bmc.slots().await;
    assert!(slots[0].contains("/Systems/") && slots[0].ends_with("/VirtualMedia/1"), "{}", slots[0]);
    assert!(bmc.get(&bmc.manager).await.body.get("VirtualMedia").is_none());
    for slot in &slots {
        assert_eq!(bmc.insert(slot, json!({ "Image": IMAGE })).await.status, 204);
    }
    let again = bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    assert!(again.status == 400 && again.says("SYS446"));
    assert!(again.body["error"]["@Message.ExtendedInfo"].is_object(), "iDRAC sends an object, not a list");
    assert_eq!(bmc.eject(&slots[0]).await.status, 204);
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], true, "stale while the eject runs");
    assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 500);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], false);
    assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 204);
    bmc.patch(&bmc.system, once("Cd", None)).await;
    assert!(bmc.boots_from_media().await);
    let boot = bmc.boot().await;
    assert_eq!(boot["BootSourceOverrideEnabled"], "Disabled", "Once is consumed");
}

#[tokio::test(start_paused = true)]
async fn idrac10_accepts_the_override_at_its_settings_and_refuses_on_for_a_minute_after_off() {
    let bmc = Bmc::of("dell-idrac10").await;
    assert_eq!(bmc.slots().await.len(), 1);
    let refused = bmc.patch(&bmc.system, once("Cd", None)).await;
    assert!(refused.status == 400 && refused.says("PropertyNotWritable"));
    let system = bmc.get(&bmc.system).await;
    let settings = system.text("/@Redfish.Settings/SettingsObject/@odata.id").to_owned();
    assert_eq!(bmc.patch(&settings, once("Cd", None)).await.status, 200);
    assert_eq!(bmc.boot().await["BootSourceOverrideTarget"], "Cd");
    assert_eq!(bmc.power("On").await.status, 204);
    assert_eq!(bmc.power("ForceOff").await.status, 204);
    tokio::time::sleep(Duration::from_secs(50)).await;
    let early = bmc.power("On").await;
    assert!(early.status == 409 && early.says("ActionParameterValueConflict"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(bmc.power("On").await.status, 204);
}
