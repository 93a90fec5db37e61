//! The other way to boot a slot, when the first one did not boot it.

use http::Method;
use redfish::{Bmc, BootTarget, BootWay, Discovery, Profile, SystemSelector};
use serde_json::{Value, json};

use crate::fake::{Fake, MANAGER, Reply, SLOT, SYSTEM, builder, client};

const OPTIONS: &str = "/redfish/v1/Systems/1/BootOptions";
const CD_PATH: &str = "PciRoot(0x0)/Pci(0x14,0x0)/USB(0xD,0x0)/USB(0x0,0x0)";

fn lists(fake: &Fake, targets: Value) {
    fake.merge(SYSTEM, json!({ "Boot": { "BootSourceOverrideTarget@Redfish.AllowableValues": targets } }));
}

fn cd() -> BootWay {
    BootWay::Override(BootTarget::Cd)
}

async fn other(bmc: &Bmc, first: &BootWay) -> (Discovery, Option<BootWay>) {
    let found = bmc.discover(&SystemSelector::default()).await.unwrap();
    let way = bmc.other_boot_way(&found, SLOT, first).await.unwrap();
    (found, way)
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_lists_one_target_for_a_cd_has_no_other_way() {
    let fake = Fake::new();
    assert_eq!(other(&client(&fake), &cd()).await.1, None);
    // A BMC that lists nothing says nothing about other targets.
    lists(&fake, Value::Null);
    assert_eq!(other(&client(&fake), &cd()).await.1, None);
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_target_for_a_cd_is_another_way() {
    let fake = Fake::new();
    lists(&fake, json!(["None", "Cd", "UsbCd", "Hdd"]));
    let bmc = client(&fake);
    let (found, way) = other(&bmc, &cd()).await;
    let way = way.unwrap();
    assert_eq!(
        (&way, way.to_string().as_str()),
        (&BootWay::Override(BootTarget::UsbCd), "boot override UsbCd")
    );
    let usb_cd =
        json!({ "Boot": { "BootSourceOverrideTarget": "UsbCd", "BootSourceOverrideEnabled": "Once" } });
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, usb_cd)]);
    assert!(bmc.boot_media_once_by(&found, SLOT, &way).await.unwrap().confirmed);
    // The order of the ways does not depend on the order of the list.
    assert_eq!(other(&bmc, &way).await.1, Some(cd()));

    // What is learned is the first way of the next job, with the same firmware.
    bmc.boots_by(&way);
    let next_job = builder(&fake, Profile::generic()).learned(bmc.learned()).build();
    let found = next_job.discover(&SystemSelector::default()).await.unwrap();
    let set = next_job.boot_media_once(&found, SLOT).await.unwrap();
    assert_eq!(next_job.boot_way(&set.observed), way);
}

#[tokio::test(start_paused = true)]
async fn mechanisms_that_name_the_virtual_cd_come_first() {
    let fake = Fake::new();
    lists(&fake, json!(["None", "Cd", "UsbCd"]));
    fake.merge(SLOT, json!({ "Oem": { "Contoso": { "BootOnNextServerReset": false } } }));
    let bmc = client(&fake);
    assert_eq!(other(&bmc, &cd()).await.1, Some(BootWay::BootOnNextServerReset));
    let name = "OemManager.v1_0_0#OemManager.ImportSystemConfiguration";
    let action = json!({ "Actions": { "Oem": { name: { "target": "/redfish/v1/Managers/1/Import" } } } });
    fake.merge(MANAGER, action);
    // A manager that imports configurations and does not show its boot device cannot be read back.
    assert_eq!(other(&client(&fake), &cd()).await.1, Some(BootWay::BootOnNextServerReset));
    let attributes = json!({ "ServerBoot.1.BootOnce": "Disabled", "ServerBoot.1.FirstBootDevice": "Normal" });
    fake.put(&format!("{MANAGER}/Attributes"), json!({ "Attributes": attributes }));
    assert_eq!(other(&client(&fake), &cd()).await.1, Some(BootWay::ConfigurationImport));
    assert_eq!(
        other(&client(&fake), &BootWay::ConfigurationImport).await.1,
        Some(BootWay::BootOnNextServerReset)
    );
}

#[tokio::test(start_paused = true)]
async fn the_boot_option_of_the_virtual_cd_is_the_last_way() {
    let fake = Fake::new();
    lists(&fake, json!(["None", "Cd", "UefiTarget"]));
    let link = |path: &str| json!({ "@odata.id": path });
    fake.merge(SYSTEM, json!({ "Boot": { "BootOptions": link(OPTIONS) } }));
    let options = [
        ("Disk", json!({ "DisplayName": "UEFI: disk", "UefiDevicePath": "HD(1)" })),
        ("Drive", json!({ "DisplayName": "DVD drive", "UefiDevicePath": "Sata(2)" })),
        (
            "Off",
            json!({ "DisplayName": "Virtual CD", "UefiDevicePath": "USB(9)", "BootOptionEnabled": false }),
        ),
        ("Cd", json!({ "DisplayName": "UEFI: AMI Virtual CDROM0 1.00", "UefiDevicePath": CD_PATH })),
    ];
    let paths = options.each_ref().map(|(id, _)| format!("{OPTIONS}/{id}"));
    fake.put(OPTIONS, json!({ "Members": paths.each_ref().map(|path| link(path)) }));
    for (path, (id, mut option)) in paths.iter().zip(options) {
        option["Id"] = json!(id);
        fake.put(path, option);
    }
    let bmc = builder(&fake, Profile::generic()).build();
    let (found, way) = other(&bmc, &cd()).await;
    assert_eq!(way, Some(BootWay::Option(CD_PATH.to_owned())));
    let boot =
        json!({ "Boot": { "BootSourceOverrideTarget": "UefiTarget", "BootSourceOverrideEnabled": "Once" } });
    fake.on(Method::PATCH, SYSTEM, [Reply::status(204).effect(SYSTEM, boot)]);
    assert!(bmc.boot_media_once_by(&found, SLOT, &way.unwrap()).await.unwrap().confirmed);
    let sent = fake.mutations()[0].body.clone().unwrap();
    assert_eq!(sent["Boot"]["UefiTargetBootSourceOverride"], CD_PATH);
}
