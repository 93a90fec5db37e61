use std::time::Duration;

use lab_bmc::{Power, SimBmcSnapshot};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::*;
use crate::{
    http::api_client,
    maintenance_os::{InstallOutcome, ReportDelivery},
    test_kit::{FakeController, recipe},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A minimal Redfish client that follows links.
struct Controller {
    http: reqwest::Client,
    base: String,
    system: String,
    slots: Vec<String>,
}

impl Controller {
    async fn of(server: &SimulatedServer) -> Self {
        let http = api_client(None).unwrap();
        let mut controller =
            Self { http, base: server.bmc_url.clone(), system: String::new(), slots: Vec::new() };
        let root = controller.get("/redfish/v1/").await;
        let first = |collection: &Value| collection["Members"][0]["@odata.id"].as_str().unwrap().to_owned();
        controller.system = first(&controller.get(root["Systems"]["@odata.id"].as_str().unwrap()).await);
        let manager = first(&controller.get(root["Managers"]["@odata.id"].as_str().unwrap()).await);
        let manager = controller.get(&manager).await;
        let slots = controller.get(manager["VirtualMedia"]["@odata.id"].as_str().unwrap()).await;
        let members = slots["Members"].as_array().unwrap().iter();
        controller.slots = members.map(|slot| slot["@odata.id"].as_str().unwrap().to_owned()).collect();
        controller
    }

    async fn get(&self, path: &str) -> Value {
        let request = self.http.get(format!("{}{path}", self.base)).basic_auth("admin", Some("simulated"));
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Value) {
        let request = self.http.request(method, format!("{}{path}", self.base));
        let response = request.basic_auth("admin", Some("simulated")).json(&body).send().await.unwrap();
        let status = response.status();
        assert!(status.is_success(), "{path}: {status} {}", response.text().await.unwrap());
    }

    async fn act(&self, resource: &str, action: &str, body: Value) {
        let target = self.get(resource).await["Actions"][action]["target"].as_str().unwrap().to_owned();
        self.send(reqwest::Method::POST, &target, body).await;
    }

    async fn insert(&self, slot: usize, url: &str) {
        self.act(&self.slots[slot], "#VirtualMedia.InsertMedia", json!({ "Image": url })).await;
    }

    async fn boot_once_from_cd(&self) {
        let boot =
            json!({ "Boot": { "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Cd" } });
        self.send(reqwest::Method::PATCH, &self.system, boot).await;
    }

    async fn reset(&self, kind: &str) {
        self.act(&self.system, "#ComputerSystem.Reset", json!({ "ResetType": kind })).await;
    }
}

async fn farm(servers: Vec<ServerSpec>) -> (Farm, tempfile::TempDir) {
    let disks = tempfile::tempdir().unwrap();
    let config = FarmConfig::new(servers, "admin", SecretString::from("simulated"), disks.path());
    (Farm::start(config).await.unwrap(), disks)
}

async fn boot_from_media(fake: &FakeController, server: &SimulatedServer) -> Controller {
    let controller = Controller::of(server).await;
    let task = fake.task("task.iso", &fake.job(&server.serial), &recipe(), &[("user-data", "#!/bin/bash\n")]);
    controller.insert(0, &fake.maintenance()).await;
    controller.insert(1, &task).await;
    controller.boot_once_from_cd().await;
    controller.reset("On").await;
    controller
}

async fn boot_number(server: &SimulatedServer, generation: u64) -> BootResult {
    let boot = server.wait_for_boot(|boot| boot.generation == generation);
    tokio::time::timeout(PATIENCE, boot).await.unwrap().unwrap().result
}

async fn until(server: &SimulatedServer, wanted: impl FnMut(&SimBmcSnapshot) -> bool) {
    tokio::time::timeout(PATIENCE, server.bmc.wait_for(wanted)).await.unwrap();
}

#[tokio::test]
async fn a_machine_is_installed_through_its_bmc_and_then_boots_its_disk() {
    let fake = FakeController::start().await;
    let image = fake.push_rootfs().await;
    let (farm, _disks) = farm(vec![ServerSpec::new("S1"), ServerSpec::new("S2")]).await;
    let server = farm.server("S1").unwrap();
    let mut console = farm.console();

    let blank = Controller::of(server).await;
    blank.reset("On").await;
    assert!(matches!(boot_number(server, 1).await, BootResult::Blank(_)));
    blank.reset("ForceOff").await;

    let controller = boot_from_media(&fake, server).await;
    let BootResult::Maintenance(report) = boot_number(server, 2).await else {
        panic!("{:?}", server.history())
    };
    assert_eq!(report.delivery, ReportDelivery::Acknowledged { attempts: 1 });
    let InstallOutcome::Succeeded(installed) = report.outcome else { panic!("{report:?}") };
    assert_eq!(installed.image_digest, image.digest);

    controller.reset("ForceOff").await;
    for slot in [0, 1] {
        controller.act(&controller.slots[slot], "#VirtualMedia.EjectMedia", json!({})).await;
    }
    controller.reset("On").await;
    assert_eq!(
        boot_number(server, 3).await,
        BootResult::Disk { device: "/dev/sda".into(), installed: installed.clone() }
    );
    assert_eq!(server.boots_from_disk().unwrap().1, *installed);
    assert!(farm.server("S2").unwrap().history().is_empty());
    assert!(farm.server("S2").unwrap().boots_from_disk().is_err());
    let mut units = Vec::new();
    while let Ok(line) = console.try_recv() {
        assert_eq!(line.serial, "S1");
        units.push(line.unit);
    }
    assert!(units.contains(&unit::IMAGE_LINUX), "{units:?}");
    farm.shutdown().await;
}

#[tokio::test]
async fn a_machine_whose_dmi_serial_number_differs_refuses_its_task() {
    let fake = FakeController::start().await;
    let mut spec = ServerSpec::new("S1");
    spec.dmi_serial = Some("ANOTHER".into());
    let (farm, disks) = farm(vec![spec]).await;
    let server = farm.server("S1").unwrap();
    boot_from_media(&fake, server).await;
    let BootResult::Maintenance(report) = boot_number(server, 1).await else {
        panic!("{:?}", server.history())
    };
    assert!(matches!(report.outcome, InstallOutcome::Refused { .. }), "{report:?}");
    assert_eq!(std::fs::read_dir(disks.path()).unwrap().count(), 0);
    farm.shutdown().await;
}

#[tokio::test]
async fn power_off_by_the_bmc_stops_the_installer_and_the_next_boot_starts_from_the_beginning() {
    let fake = FakeController::start().await;
    fake.push_rootfs().await;
    let (farm, _disks) = farm(vec![ServerSpec::new("S1")]).await;
    let server = farm.server("S1").unwrap();
    *fake.shared.stall.lock().unwrap() = Some("/v2/os-images/ubuntu-rootfs/blobs/".into());
    let controller = boot_from_media(&fake, server).await;
    let mut stalled = fake.stalled.clone();
    stalled.wait_for(|count| *count > 0).await.unwrap();
    controller.reset("ForceOff").await;
    let BootResult::Maintenance(report) = boot_number(server, 1).await else {
        panic!("{:?}", server.history())
    };
    assert_eq!(report.outcome, InstallOutcome::PowerLost);
    *fake.shared.stall.lock().unwrap() = None;
    controller.boot_once_from_cd().await;
    controller.reset("On").await;
    let BootResult::Maintenance(report) = boot_number(server, 2).await else {
        panic!("{:?}", server.history())
    };
    assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{report:?}");
    assert_eq!(server.bmc.ejected_while_running(), 0);
    farm.shutdown().await;
}

#[tokio::test]
async fn after_its_report_a_machine_can_power_off_or_restart_itself() {
    let fake = FakeController::start().await;
    fake.push_rootfs().await;
    let mut off = ServerSpec::new("OFF");
    off.behaviour.after_report = AfterReport::PowerOff;
    let mut again = ServerSpec::new("AGAIN");
    again.behaviour.after_report = AfterReport::Reboot;
    let (farm, _disks) = farm(vec![off, again]).await;
    let (off, again) = (farm.server("OFF").unwrap(), farm.server("AGAIN").unwrap());
    boot_from_media(&fake, off).await;
    until(off, |state| state.generation == 1 && state.power == Power::Off).await;
    boot_from_media(&fake, again).await;
    // The override was for one boot: the restart boots the new disk although the media are still inserted.
    let second = boot_number(again, 2).await;
    assert!(matches!(second, BootResult::Disk { .. }), "{second:?}");
    farm.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_machines_during_an_installation() {
    let fake = FakeController::start().await;
    fake.push_rootfs().await;
    let (farm, _disks) = farm(vec![ServerSpec::new("S1")]).await;
    *fake.shared.stall.lock().unwrap() = Some("/v2/".into());
    boot_from_media(&fake, farm.server("S1").unwrap()).await;
    let mut stalled = fake.stalled.clone();
    stalled.wait_for(|count| *count > 0).await.unwrap();
    tokio::time::timeout(PATIENCE, farm.shutdown()).await.unwrap();
}

#[tokio::test]
async fn two_servers_with_one_serial_number_and_ports_above_65535_are_refused() {
    let disks = tempfile::tempdir().unwrap();
    let config = |servers, base_port| {
        let mut config = FarmConfig::new(servers, "admin", SecretString::from("simulated"), disks.path());
        config.base_port = base_port;
        config
    };
    let twice =
        Farm::start(config(vec![ServerSpec::new("S"), ServerSpec::new("S")], None)).await.unwrap_err();
    assert!(twice.to_string().contains("two servers have the serial number S"), "{twice}");
    assert_eq!(port(Some(8000), 5).unwrap(), 8005);
    assert!(port(Some(65_535), 1).is_err());
    assert_eq!(port(None, 9).unwrap(), 0);
}
