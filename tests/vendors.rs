//! A whole job on the simulated BMC of every vendor: installed where the BMC can read the media, refused with a reason before
//! any change where it cannot.

use std::time::Duration;

use lab_bmc::{Power, SerialShown, SimBmcConfig};
use serde_json::{Value, json};

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, logged_out, soon};

/// The factor for all delays of the simulated BMC. Waits of the controller are skipped.
const TIME: f64 = 0.01;

/// Runs a job on this vendor's BMC and returns its end.
async fn job_on(vendor: &str) -> (Scene, Value) {
    job_with(vendor, |_| {}).await
}

/// Runs a job with changed settings of the controller.
async fn job_with(vendor: &str, change: impl FnOnce(&mut settings::Settings)) -> (Scene, Value) {
    let (scene, id) = ordered_with(vendor, change).await;
    let job = scene.complete_skipping(&id).await;
    (scene, job)
}

/// Creates a job on this vendor's BMC.
async fn ordered(vendor: &str) -> (Scene, String) {
    ordered_with(vendor, |_| {}).await
}

async fn ordered_with(vendor: &str, change: impl FnOnce(&mut settings::Settings)) -> (Scene, String) {
    let serial = "VENDOR-1";
    let bmc = SimBmcConfig::vendor(vendor, serial, BMC_USER, BMC_PASSWORD).unwrap();
    let hidden = bmc.identity.serial == SerialShown::Nowhere;
    let mut spec = healthy(serial);
    spec.bmc = Some(Box::new(bmc.in_time(TIME)));
    let scene = Scene::start_with(vec![spec], |settings, _| change(settings)).await;
    let allow = json!({ "allow_unverified_serial": hidden });
    scene.admin.patch(&format!("/api/v1/servers/{serial}"), &allow).await.expect(200);
    let id = scene.admin.create_job(serial).await;
    (scene, id)
}

async fn installs(vendor: &str, plan: &str) {
    let (scene, job) = job_on(vendor).await;
    let event_log = scene.admin.event_log(job["job_id"].as_str().unwrap()).await;
    assert_eq!(job["outcome"], "succeeded", "{event_log}");
    assert_eq!(job["cleanup"]["state"], "done", "{event_log}");
    assert_eq!(job["slot_plan"]["plan"], plan, "{event_log}");
    let machine = logged_out(scene.bmc("VENDOR-1")).await;
    assert_eq!((machine.boots_from_media, machine.ejected_while_running), (1, 0), "{event_log}");
    assert_eq!(machine.power, Power::On, "{event_log}");
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}\n{event_log}");
    assert!(machine.max_in_flight <= 2 && machine.max_mutating_in_flight <= 1, "{machine:?}");
    scene.end().await;
}

/// Installs by the second way to boot: by the first one the host boots its disk.
async fn installs_by_second_way(vendor: &str, way: &str) {
    let (scene, id) = ordered(vendor).await;
    scene.wait_skipping(&id, "the wait for the report", |job| job["wait"]["reason"] == "report").await;
    soon("a boot", scene.bmc("VENDOR-1").wait_for(|bmc| bmc.boots_from_disk > 0)).await;
    scene.skip(Duration::from_secs(601));
    let job = scene.complete_skipping(&id).await;
    let event_log = scene.admin.event_log(&id).await;
    assert_eq!(
        (&job["outcome"], &job["cleanup"]["state"]),
        (&json!("succeeded"), &json!("done")),
        "{event_log}"
    );
    assert!(event_log.contains(&format!("second way to boot: {way}, because")), "{event_log}");
    let machine = logged_out(scene.bmc("VENDOR-1")).await;
    assert_eq!((machine.boots_from_media, machine.ejected_while_running), (1, 0), "{event_log}");
    assert_eq!(machine.power, Power::On, "{event_log}");
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}\n{event_log}");

    // The next job begins with the way that boots the media.
    let id = scene.admin.create_job("VENDOR-1").await;
    let job = scene.complete_skipping(&id).await;
    let event_log = scene.admin.event_log(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{event_log}");
    assert!(!event_log.contains("second way"), "{event_log}");
    scene.end().await;
}

async fn refused(vendor: &str, because: &str) {
    let (scene, job) = job_on(vendor).await;
    refused_job(scene, job, because).await;
}

async fn refused_job(scene: Scene, job: Value, because: &str) {
    let event_log = scene.admin.event_log(job["job_id"].as_str().unwrap()).await;
    assert_eq!(
        (&job["outcome"], &job["failed_step"]),
        (&json!("failed"), &json!("redfish.discover")),
        "{event_log}"
    );
    let summary = job["failure"]["summary"].as_str().unwrap();
    assert!(summary.contains(because), "{summary}");
    assert!(job["failure"]["next_action"].as_str().is_some_and(|next| !next.is_empty()), "{job:#}");
    assert_eq!(scene.bmc("VENDOR-1").mutations(), [], "{event_log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_reads_https_only_is_refused_without_a_tls_listener() {
    let change = |settings: &mut settings::Settings| {
        settings.controller_https_addr = settings::Listener::Off;
    };
    let (scene, job) = job_with("openbmc", change).await;
    refused_job(scene, job, "https only").await;
}

macro_rules! vendors {
    ($every:ident $list:ident: $($test:ident $vendor:literal $ending:ident $what:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            $ending($vendor, $what).await;
        })*

        #[test]
        fn $every() {
            let tested = [$($vendor),*];
            let all: Vec<&str> = lab_bmc::$list.iter().map(|vendor| vendor.name).collect();
            assert_eq!(all, tested);
        }
    };
}

vendors! {
    every_simulated_vendor_has_a_job VENDORS:
    generic "generic" installs "dual";
    dell_idrac8 "dell-idrac8" installs "cd+usb";
    dell_idrac9_before_6 "dell-idrac9-5" installs "cd+usb";
    dell_idrac9_from_6 "dell-idrac9-6" installs "dual";
    dell_idrac10 "dell-idrac10" installs "single";
    hpe_ilo4 "hpe-ilo4" installs "cd+usb";
    hpe_ilo5 "hpe-ilo5" installs "cd+usb";
    hpe_ilo6 "hpe-ilo6" installs "cd+usb";
    lenovo_xcc "lenovo-xcc" installs "dual";
    lenovo_xcc3 "lenovo-xcc3" installs "dual";
    lenovo_tsm "lenovo-tsm" installs "dual";
    supermicro_cfgcd "smc-x11-cfgcd" installs "single";
    supermicro_x12 "smc-x12" installs "dual";
    ami_megarac "ami-megarac" refused "port 80 only";
    openbmc "openbmc" installs "dual";
    nvidia_gb200 "nvidia-gb200" installs "dual";
    nvidia_dgx_h100 "nvidia-dgx-h100" installs "dual";
    cisco_ucs "cisco-ucs" installs "single";
    fujitsu_irmc "fujitsu-irmc" installs "dual";
    huawei_ibmc "huawei-ibmc" refused "NFS and CIFS";
    sushy "sushy" installs "dual";
}

// BMCs that differ from those of their vendor, as captures and field reports show them.
vendors! {
    every_variant_has_a_job VARIANTS:
    idrac10_with_the_firmware_numbers_of_an_idrac8 "dell-idrac10-2" installs "single";
    idrac9_whose_media_are_detached "dell-idrac9-detached" refused "VirtualMedia.1.Attached is Detached";
    idrac9_whose_cd_is_the_physical_drive "dell-idrac9-physical-cd" installs_by_second_way "first boot device VCD-DVD of the BMC's configuration";
    ilo6_that_refuses_every_override "hpe-ilo6-no-override" installs "cd+usb";
    hpe_chassis_with_openbmc "hpe-openbmc" installs "dual";
    hpe_chassis_with_megarac "hpe-xd670" refused "port 80 only";
    inspur_with_the_oem_name_public "inspur" installs "dual";
    nvidia_gh200_without_a_model "nvidia-gh200" installs "dual";
    supermicro_x12_whose_usb_cd_is_the_disk "smc-x12-cd" installs_by_second_way "boot override Cd";
}
