//! HPE, Lenovo, Supermicro, AMI, OpenBMC, NVIDIA, Cisco, Fujitsu, Huawei and the emulator of sushy-tools.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::kit::{Bmc, IMAGE, SERIAL, ask, config, once};

#[tokio::test(start_paused = true)]
async fn ilo4_accepts_its_oem_action_and_a_patch_of_the_image_alone() {
    let bmc = Bmc::of("hpe-ilo4").await;
    let slots = bmc.slots().await;
    let cd = bmc.get(&slots[1]).await;
    assert!(cd.body.pointer("/Actions").is_none(), "the standard insert does not exist");
    let strict = bmc.patch(&slots[1], json!({ "Image": IMAGE, "Inserted": true })).await;
    assert!(strict.status == 400 && strict.says("Base.0.10.PropertyUnknown"));
    assert_eq!(bmc.patch(&slots[1], json!({ "Image": IMAGE })).await.status, 200);
    assert_eq!(bmc.patch(&slots[1], json!({ "Image": null })).await.status, 200);
    let own = cd.text("/Oem/Hp/Actions/#HpiLOVirtualMedia.InsertVirtualMedia/target").to_owned();
    assert_eq!(bmc.post(&own, json!({ "Image": IMAGE })).await.status, 200);
    assert!(bmc.boot().await.get("BootSourceOverrideMode").is_none(), "the mode cannot be read");
    assert_eq!(bmc.patch(&bmc.system, once("Cd", None)).await.status, 200);
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn ilo5_redirects_to_the_final_slash_and_locks_the_override_during_post() {
    let mut config = config("hpe-ilo5");
    config.power.post_time = Duration::from_secs(60);
    let bmc = Bmc::with(config).await;
    let moved = bmc.get("/redfish/v1/Systems/1").await;
    assert_eq!((moved.status, moved.header("location")), (308, Some("/redfish/v1/Systems/1/")));
    assert!(bmc.system.ends_with('/') && bmc.reset.ends_with('/'));
    let etag = bmc.get(&bmc.system).await.header("etag").unwrap().to_owned();
    assert!(etag.starts_with("W/\""), "{etag}");
    assert_eq!(bmc.patch_if(&bmc.system, &etag, once("Cd", None)).await.status, 200);
    assert_eq!(bmc.power("On").await.status, 200);
    let locked = bmc.patch(&bmc.system, once("Cd", None)).await;
    assert!(locked.status == 400 && locked.says("UnableToModifyDuringSystemPOST"));
    let busy = bmc.power("ForceOff").await;
    assert!(busy.status == 400 && busy.says("InvalidOperationForSystemState"));
}

#[tokio::test(start_paused = true)]
async fn ilo5_and_ilo6_eject_with_a_body_only_and_boot_a_slot_at_the_next_reset() {
    for vendor in ["hpe-ilo5", "hpe-ilo6"] {
        let bmc = Bmc::of(vendor).await;
        let slots = bmc.slots().await;
        assert_eq!(bmc.get(&slots[0]).await.body["MediaTypes"], json!(["Floppy", "USBStick"]));
        assert_eq!(bmc.insert(&slots[1], json!({ "Image": IMAGE })).await.status, 200);
        let target = bmc.get(&slots[1]).await.text("/Actions/#VirtualMedia.EjectMedia/target").to_owned();
        assert_eq!(ask(&bmc.sim_bmc, Method::POST, &target, None, &[]).await.unwrap().status, 415);
        let next = json!({ "Oem": { "Hpe": { "BootOnNextServerReset": true } } });
        assert_eq!(bmc.patch(&slots[1], next).await.status, 200);
        assert!(bmc.boots_from_media().await, "{vendor}");
        assert_eq!(bmc.eject(&slots[1]).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn xcc_inserts_by_patch_of_an_ext_slot_with_inserted_true() {
    let bmc = Bmc::of("lenovo-xcc").await;
    let slots = bmc.slots().await;
    assert_eq!(slots.len(), 8, "the collection is paged");
    assert!(slots[0].ends_with("RDOC1"));
    assert_eq!(bmc.patch(&slots[0], json!({ "Image": IMAGE, "Inserted": true })).await.status, 405);
    let ext = &slots[2];
    let shown = bmc.get(ext).await;
    assert!(shown.header("allow").unwrap().contains("PATCH") && shown.body.get("Actions").is_none());
    assert_eq!(bmc.patch(ext, json!({ "Image": IMAGE })).await.status, 200);
    assert_eq!(bmc.get(ext).await.body["Inserted"], false, "accepted, not inserted");
    let secure = json!({ "Image": "https://192.0.2.1/tabc/boot.iso", "Inserted": true });
    assert_eq!(bmc.patch(ext, secure).await.status, 400, "XCC refuses HTTPS");
    let done = bmc.patch(ext, json!({ "Image": IMAGE, "Inserted": true })).await;
    assert!(done.status == 200 && done.body["Inserted"] == true);
    let continuous = json!({ "Boot": { "BootSourceOverrideEnabled": "Continuous" } });
    assert_eq!(bmc.patch(&bmc.system, continuous).await.status, 400);
    bmc.patch(&bmc.system, once("Cd", None)).await;
    assert!(bmc.boots_from_media().await);
    assert_eq!(bmc.patch(ext, json!({ "Image": null, "Inserted": false })).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn xcc3_shows_one_set_of_slots_under_two_trees_and_requires_if_match() {
    let bmc = Bmc::of("lenovo-xcc3").await;
    let slots = bmc.slots().await;
    let other = slots[0].replace("/Systems/", "/Managers/");
    let body = json!({ "Image": IMAGE, "Inserted": true });
    assert_eq!(bmc.patch(&slots[0], body.clone()).await.status, 428);
    let etag = bmc.get(&slots[0]).await.header("etag").unwrap().to_owned();
    assert_eq!(bmc.patch_if(&slots[0], &etag, body.clone()).await.status, 200);
    assert_eq!(bmc.get(&other).await.body["Inserted"], true, "both paths show one slot");
    assert_eq!(bmc.patch_if(&slots[0], &etag, body).await.status, 412, "an old ETag");
    let pending = bmc.get(&format!("{}/Pending", bmc.system)).await;
    let etag = pending.header("etag").unwrap().to_owned();
    assert_ne!(Some(etag.as_str()), bmc.get(&bmc.system).await.header("etag"));
    let done = bmc.patch_if(&format!("{}/Pending", bmc.system), &etag, once("Cd", None)).await;
    assert_eq!(done.status, 200);
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn cfg_cd_mounts_the_written_image_and_paths_ignore_case() {
    let bmc = Bmc::of("smc-x11-cfgcd").await;
    assert!(bmc.root.body.get("Vendor").is_none() && bmc.root.body["Oem"].get("Supermicro").is_some());
    let manager = bmc.get(&bmc.manager).await;
    let slots = bmc.get(&manager.text("/VirtualMedia/@odata.id").to_lowercase()).await;
    let cfg = slots.text("/Oem/Supermicro/VirtualMediaConfig/@odata.id").to_owned();
    let cfg_cd = bmc.get(&cfg).await;
    let mount = cfg_cd.text("/Actions/#IsoConfig.Mount/target").to_owned();
    let unmount = cfg_cd.text("/Actions/#IsoConfig.UnMount/target").to_owned();
    assert_eq!(bmc.post(&unmount, json!({})).await.status, 200);
    let image =
        json!({ "Host": "http://192.0.2.1", "Path": "/tabc/boot.iso", "Username": "", "Password": "" });
    let done = bmc.patch(&cfg, image).await;
    assert!(done.status == 200 && done.body.get("Success").is_some());
    assert_eq!(bmc.post(&mount, json!({})).await.status, 200);
    let cd = bmc.get("/redfish/v1/Managers/1/VM1/CD1").await;
    assert!(cd.body["Inserted"] == true && cd.body.get("Actions").is_none());
    assert_eq!(bmc.patch(&bmc.system, once("UsbCd", Some("UEFI"))).await.status, 200);
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn x12_shows_the_image_after_an_eject_and_resets_the_mode_to_legacy() {
    let bmc = Bmc::of("smc-x12").await;
    let slots = bmc.slots().await;
    assert!(bmc.get(&slots[0]).await.body.pointer("/Actions/#VirtualMedia.EjectMedia").is_none());
    let strict = bmc.insert(&slots[0], json!({ "Image": IMAGE, "Inserted": true })).await;
    assert!(strict.status == 400 && strict.says("Inserted"));
    assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 202);
    bmc.until(|now| now.slots[0].image.is_some()).await;
    assert_eq!(bmc.eject(&slots[0]).await.status, 200);
    let empty = bmc.get(&slots[0]).await;
    assert_eq!((empty.text("/Image"), empty.text("/ConnectedVia")), (IMAGE, "NotConnected"));
    assert_eq!(empty.body["Inserted"], false);
    let target_alone = json!({ "Boot": { "BootSourceOverrideTarget": "UsbCd" } });
    assert_eq!(bmc.patch(&bmc.system, target_alone).await.status, 200);
    assert_eq!(bmc.boot().await["BootSourceOverrideEnabled"], "Disabled", "accepted without effect");
    bmc.patch(&bmc.system, once("UsbCd", None)).await;
    assert_eq!(bmc.boot().await["BootSourceOverrideMode"], "Legacy");
    bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    bmc.until(|now| now.slots[0].image.is_some()).await;
    bmc.patch(&bmc.system, once("Cd", Some("UEFI"))).await;
    assert!(!bmc.boots_from_media().await, "Cd is the physical drive");
    bmc.power("ForceOff").await;
    bmc.patch(&bmc.system, once("UsbCd", Some("UEFI"))).await;
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn ami_has_no_slots_until_they_are_enabled_and_its_task_ends_before_the_cd_is_there() {
    let bmc = Bmc::of("ami-megarac").await;
    assert!(bmc.slots().await.is_empty());
    let manager = bmc.get(&bmc.manager).await;
    let enable = manager.text("/Actions/Oem/#AMIVirtualMedia.EnableRMedia/target").to_owned();
    assert_eq!(bmc.post(&enable, json!({ "RMediaState": "Enable" })).await.status, 204);
    assert!(bmc.slots().await.is_empty(), "enabling takes some seconds");
    tokio::time::sleep(Duration::from_secs(6)).await;
    let slots = bmc.slots().await;
    assert_eq!(slots.len(), 4);
    let body = |url: &str| json!({ "Image": url, "TransferProtocolType": "HTTP" });
    for refused in
        ["http://192.0.2.1:8080/tabc/boot.iso", "http://192.0.2.1/boot.iso", "http://u:p@192.0.2.1/t/b.iso"]
    {
        assert_eq!(bmc.insert(&slots[0], body(refused)).await.status, 400, "{refused}");
    }
    assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 400, "the protocol is missing");
    let task = bmc.insert(&slots[0], body(IMAGE)).await;
    assert_eq!(task.status, 202);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bmc.get(task.text("/@odata.id")).await.text("/TaskState"), "Completed");
    assert_eq!(
        bmc.get(&slots[0]).await.body["Inserted"],
        false,
        "the task completed before the slot shows the image"
    );
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], true);
    assert_eq!(bmc.patch(&bmc.system, once("Cd", Some("UEFI"))).await.status, 412);
    let etag = bmc.get(&bmc.system).await.header("etag").unwrap().to_owned();
    assert_eq!(bmc.patch_if(&bmc.system, &etag, once("Cd", None)).await.status, 204);
    assert_eq!(
        bmc.boot().await["BootSourceOverrideEnabled"],
        "Disabled",
        "without the mode the PATCH has no effect"
    );
    let etag = bmc.get(&bmc.system).await.header("etag").unwrap().to_owned();
    bmc.patch_if(&bmc.system, &etag, once("Cd", Some("UEFI"))).await;
    assert!(bmc.boots_from_media().await);
    bmc.sim_bmc.reset_bmc();
    assert!(bmc.slots().await.is_empty(), "a restart of the BMC disables the slots");
}

#[tokio::test(start_paused = true)]
async fn the_second_system_of_ami_returns_500_while_the_host_is_off() {
    for (vendor, id) in [("ami-megarac", "Baseboard"), ("nvidia-dgx-h100", "HGX_Baseboard_0")] {
        let bmc = Bmc::of(vendor).await;
        let path = format!("/redfish/v1/Systems/{id}");
        assert_eq!(bmc.get(&path).await.status, 500, "{vendor}");
        bmc.power("On").await;
        bmc.until(|now| now.generation == 1).await;
        let board = bmc.get(&path).await;
        assert!(board.status == 200 && board.body.pointer("/Actions").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn tsm_has_as_many_cds_as_configured() {
    let bmc = Bmc::of("lenovo-tsm").await;
    let manager = bmc.get(&bmc.manager).await;
    let action =
        |name: &str| manager.text(&format!("/Actions/Oem/#AMIVirtualMedia.{name}/target")).to_owned();
    bmc.post(&action("EnableRMedia"), json!({ "RMediaState": "Enable" })).await;
    assert_eq!(bmc.post(&action("ConfigureCDInstance"), json!({ "CDInstance": 9 })).await.status, 400);
    assert_eq!(bmc.post(&action("ConfigureCDInstance"), json!({ "CDInstance": 2 })).await.status, 204);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let slots = bmc.slots().await;
    assert_eq!(slots.len(), 2);
    let body = json!({ "Image": IMAGE, "TransferProtocolType": "HTTP" });
    assert_eq!(bmc.insert(&slots[0], body).await.status, 204);
}

#[tokio::test(start_paused = true)]
async fn openbmc_accepts_https_only_and_its_first_slots_have_no_action() {
    let bmc = Bmc::of("openbmc").await;
    let slots = bmc.slots().await;
    assert!(bmc.get(&slots[0]).await.body.get("Actions").is_none());
    assert_eq!(bmc.insert(&slots[2], json!({ "Image": IMAGE })).await.status, 400);
    let secure = json!({ "Image": "https://192.0.2.1/tabc/boot.iso", "Inserted": true });
    assert_eq!(bmc.insert(&slots[2], secure).await.status, 204);
}

#[tokio::test(start_paused = true)]
async fn gb200_lists_the_baseboard_first_and_accepts_the_override_at_its_settings() {
    let bmc = Bmc::of("nvidia-gb200").await;
    let systems = bmc.get("/redfish/v1/Systems").await;
    assert!(systems.text("/Members/0/@odata.id").ends_with("HGX_Baseboard_0"));
    assert!(bmc.get(systems.text("/Members/0/@odata.id")).await.body.get("Boot").is_none());
    let system = bmc.get(&bmc.system).await;
    assert!(system.body.get("SerialNumber").is_none());
    let chassis = bmc.get(system.text("/Links/Chassis/0/@odata.id")).await;
    assert_eq!(chassis.text("/SerialNumber"), SERIAL);
    let reset = &system.body["Actions"]["#ComputerSystem.Reset"];
    assert!(reset.get("ResetType@Redfish.AllowableValues").is_none());
    let info = bmc.get(reset["@Redfish.ActionInfo"].as_str().unwrap()).await;
    assert!(info.body["Parameters"][0]["AllowableValues"].as_array().unwrap().contains(&json!("ForceOff")));
    let slots = bmc.slots().await;
    let upload = json!({ "Image": IMAGE, "TransferMethod": "Upload" });
    assert_eq!(bmc.insert(&slots[0], upload).await.status, 400, "Upload is refused");
    let body = json!({ "Image": IMAGE, "TransferMethod": "Stream" });
    assert_eq!(bmc.insert(&slots[0], body).await.status, 202);
    bmc.until(|now| now.slots[0].image.is_some()).await;
    assert_eq!(bmc.patch(&bmc.system, once("Cd", None)).await.status, 400);
    assert_eq!(bmc.patch(&format!("{}/Settings", bmc.system), once("Cd", None)).await.status, 204);
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn dgx_requires_credentials_in_an_insert_and_a_star_in_if_match() {
    let bmc = Bmc::of("nvidia-dgx-h100").await;
    let manager = bmc.get(&bmc.manager).await;
    let enable = manager.text("/Actions/Oem/#AMIVirtualMedia.EnableRMedia/target").to_owned();
    let enabled =
        ask(&bmc.sim_bmc, Method::POST, &enable, Some(json!({ "RMediaState": "Enable" })), &[]).await;
    assert_eq!(enabled.unwrap().status, 204);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let slots = bmc.slots().await;
    let refused = bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    assert!(refused.status == 400 && refused.says("UserName") && refused.body["error"].get("code").is_none());
    let body = json!({ "Image": IMAGE, "UserName": "none", "Password": "none" });
    assert_eq!(bmc.insert(&slots[0], body).await.status, 202);
    bmc.until(|now| now.slots[0].image.is_some()).await;
    let settings = format!("{}/SD", bmc.system);
    let etag = bmc.get(&settings).await.header("etag").unwrap().to_owned();
    let boot = || once("Cd", Some("UEFI"));
    assert_eq!(bmc.patch_if(&settings, &etag, boot()).await.status, 412);
    assert_eq!(bmc.patch_if(&settings, "*", boot()).await.status, 204);
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn cisco_lists_slots_of_its_console_that_refuse_an_insert() {
    let bmc = Bmc::of("cisco-ucs").await;
    let slots = bmc.slots().await;
    let body = json!({ "Image": IMAGE, "TransferProtocolType": "HTTP" });
    assert_eq!(bmc.insert(&slots[0], body.clone()).await.status, 405);
    assert_eq!(bmc.insert(&slots[1], body.clone()).await.status, 400);
    assert_eq!(bmc.insert(&slots[2], json!({ "Image": IMAGE })).await.status, 400);
    assert_eq!(bmc.insert(&slots[2], body).await.status, 204);
    assert_eq!(bmc.get(&slots[2]).await.body["MediaTypes"], json!(["DVD"]));
    let etag = bmc.get(&bmc.system).await.header("etag").unwrap().to_owned();
    assert_eq!(
        bmc.patch_if(&bmc.system, &etag, once("Cd", None)).await.status,
        412,
        "the weak ETag does not match"
    );
    let strong = etag.trim_start_matches("W/");
    assert_eq!(bmc.patch_if(&bmc.system, strong, once("Cd", None)).await.status, 204);
    assert!(bmc.boots_from_media().await);
}

#[tokio::test(start_paused = true)]
async fn irmc_shows_media_and_power_late() {
    let bmc = Bmc::of("fujitsu-irmc").await;
    let slots = bmc.slots().await;
    let body = json!({ "Image": IMAGE, "TransferProtocolType": "HTTP" });
    assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 400);
    assert_eq!(bmc.insert(&slots[0], body).await.status, 204);
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], true);
    assert_eq!(bmc.patch(&bmc.system, once("Cd", None)).await.status, 428);
    bmc.power("On").await;
    tokio::time::sleep(Duration::from_secs(44)).await;
    assert_eq!(bmc.get(&bmc.system).await.text("/PowerState"), "Off", "45 s late");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bmc.get(&bmc.system).await.text("/PowerState"), "On");
}

#[tokio::test(start_paused = true)]
async fn ibmc_has_no_standard_insert_and_refuses_http() {
    let bmc = Bmc::of("huawei-ibmc").await;
    let slots = bmc.slots().await;
    let cd = bmc.get(&slots[0]).await;
    assert!(cd.body.get("Actions").is_none());
    let control = cd.text("/Oem/Huawei/Actions/#VirtualMedia.VmmControl/target").to_owned();
    let refused = bmc.post(&control, json!({ "VmmControlType": "Connect", "Image": IMAGE })).await;
    assert!(refused.status == 400 && refused.says("FileTransferProtocolMismatch"));
    let sessions = bmc.root.text("/Links/Sessions/@odata.id").to_owned();
    let login = |oem: bool| {
        let mut body = json!({ "UserName": crate::kit::USER, "Password": crate::kit::PASSWORD });
        if oem {
            body["Oem"] = json!({ "Huawei": { "Domain": "LocaliBMC" } });
        }
        body
    };
    let refused = bmc.post(&sessions, login(false)).await;
    assert!(refused.status == 400 && refused.says("AuthorizationFailed"));
    assert_eq!(bmc.post(&sessions, login(true)).await.status, 201);
    assert_eq!(bmc.power("PowerCycle").await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn the_sushy_emulator_has_no_sessions_keeps_the_override_and_acts_late() {
    let bmc = Bmc::of("sushy").await;
    assert!(bmc.root.body.get("SessionService").is_none() && bmc.root.body.get("Vendor").is_none());
    let system = bmc.get(&bmc.system).await;
    assert!(system.body.get("SerialNumber").is_none() && system.body.get("SKU").is_none());
    let manager = bmc.get(&bmc.manager).await;
    assert!(manager.text("/VirtualMedia/@odata.id").contains("/Systems/"));
    assert_eq!(bmc.get(&format!("{}/VirtualMedia", bmc.manager)).await.status, 404);
    assert_eq!(bmc.get(&format!("{}/Processors", bmc.system)).await.status, 501);
    let slots = bmc.slots().await;
    let query = json!({ "Image": "http://192.0.2.1/b.iso?sig=abc&exp=1" });
    assert_eq!(bmc.insert(&slots[0], query).await.status, 204);
    assert_eq!(bmc.insert(&slots[0], json!({ "Image": IMAGE })).await.status, 204, "no conflict");
    let alone = bmc.insert(&slots[1], json!({ "Image": IMAGE, "UserName": "a" })).await;
    assert_eq!(alone.status, 400);
    assert_eq!(bmc.patch(&bmc.system, once("Cd", Some("UEFI"))).await.status, 204);
    assert_eq!(bmc.boot().await["BootSourceOverrideEnabled"], "Continuous");
    let text = bmc.patch(&bmc.system, json!({ "Boot": { "BootSourceOverrideEnabled": "Disabled" } })).await;
    assert!(
        text.status == 400 && text.body.is_null() && text.header("content-type").unwrap().contains("json")
    );
    assert_eq!(bmc.power("On").await.status, 204);
    assert_eq!(bmc.get(&bmc.system).await.text("/PowerState"), "Off");
    let booted = bmc.until(|now| now.generation == 1).await;
    assert_eq!(booted.boots_from_media, 1);
    assert_eq!(bmc.boot().await["BootSourceOverrideEnabled"], "Continuous", "never consumed");
    assert_eq!(bmc.power("Nmi").await.status, 501);
}
