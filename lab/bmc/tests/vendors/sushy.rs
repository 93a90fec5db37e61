//! Simulated BMCs with foreign clients: sushy boots each of the vendors it supports once, and updates the BIOS of those that read an
//! image by HTTP; redfishtool reads what we read.

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{NullHost, Power, SimBmc, firmware_image};

use crate::kit::{Bmc, IMAGE, Memory, PASSWORD, USER, config};

/// Vendors whose virtual media sushy can use. Excluded are vendors whose slots need an OEM action, whose virtual CD is not
/// the target `Cd`, that refuse HTTP, or whose ETags sushy does not handle.
const SUPPORTED: [&str; 12] = [
    "generic",
    "dell-idrac9-6",
    "dell-idrac10",
    "hpe-ilo5",
    "hpe-ilo6",
    "lenovo-xcc",
    "lenovo-xcc3",
    "smc-x12",
    "nvidia-gb200",
    "cisco-ucs",
    "fujitsu-irmc",
    "sushy",
];

#[tokio::test]
#[ignore = "needs Python with sushy, run by .ci/run"]
async fn sushy_discovers_inserts_boots_and_ejects() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sushy/drive.py");
    for vendor in SUPPORTED {
        let mut config = config(vendor).in_time(0.02);
        // The delay after a reset is not tested here.
        config.power.quiet_after_reset = Duration::ZERO;
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Memory::bootable());
        let server = sim_bmc.serve_on_loopback().await.unwrap();
        let run = tokio::process::Command::new("python3")
            .args(["-B", script, &server.url(), USER, PASSWORD, IMAGE])
            .kill_on_drop(true)
            .output();
        let run = tokio::time::timeout(Duration::from_secs(180), run).await.expect("sushy hangs").unwrap();
        let (printed, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{vendor}:\n{printed}\n{errors}\n{:#?}", sim_bmc.journal());
        let end = sim_bmc.snapshot();
        assert_eq!(end.boots_from_media, 1, "{vendor}:\n{printed}\n{:#?}", sim_bmc.journal());
        assert!(end.slots.iter().all(|slot| slot.image.is_none()), "{vendor}: {end:?}");
        server.stop().await;
    }
}

/// Vendors whose BMC reads an image of firmware by HTTP in the way that sushy asks for it, and names its task in `Location`.
const UPDATED: [&str; 4] = ["generic", "dell-idrac9-6", "dell-idrac10", "lenovo-xcc3"];

#[tokio::test]
#[ignore = "needs Python with sushy, run by .ci/run"]
async fn sushy_reads_the_inventory_and_follows_an_update_of_the_bios_to_its_end() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sushy/update.py");
    for vendor in UPDATED {
        let mut config = config(vendor).in_time(0.005);
        config.power.quiet_after_reset = Duration::ZERO;
        let image = Memory::of(firmware_image("bios", "99.1", None, 4000));
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), image);
        let server = sim_bmc.serve_on_loopback().await.unwrap();
        let run = tokio::process::Command::new("python3")
            .args(["-B", script, &server.url(), USER, PASSWORD, "http://192.0.2.1/tabc/bios.bin", "99.1"])
            .kill_on_drop(true)
            .output();
        let run = tokio::time::timeout(Duration::from_secs(180), run).await.expect("sushy hangs").unwrap();
        let (printed, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{vendor}:\n{printed}\n{errors}\n{:#?}", sim_bmc.journal());
        let updates = sim_bmc.updates();
        assert!(updates.len() == 1 && updates[0].applied, "{vendor}:\n{printed}\n{updates:?}");
        server.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs redfishtool, run by .ci/run"]
async fn redfishtool_reads_the_update_service_and_the_system_as_we_do() {
    for vendor in UPDATED {
        let mut config = config(vendor).in_time(0.005);
        config.power.quiet_after_reset = Duration::ZERO;
        let sim_bmc = SimBmc::new(config, Arc::new(NullHost), Memory::bootable());
        let server = sim_bmc.serve_on_loopback().await.unwrap();
        let host = server.url().replace("http://", "");
        let bmc = Bmc::of(vendor).await;
        for path in ["/redfish/v1/UpdateService", "/redfish/v1/UpdateService/FirmwareInventory", &bmc.system]
        {
            let run = tokio::process::Command::new("redfishtool")
                .args(["-n", "-r", &host, "-u", USER, "-p", PASSWORD, "-A", "Basic", "-S", "Never"])
                .args(["raw", "GET", path])
                .kill_on_drop(true)
                .output();
            let run =
                tokio::time::timeout(Duration::from_secs(60), run).await.expect("redfishtool hangs").unwrap();
            let printed = String::from_utf8_lossy(&run.stdout);
            let read: serde_json::Value = serde_json::from_str(&printed).unwrap_or_else(|error| {
                panic!("{vendor} {path}: {error}\n{printed}\n{}", String::from_utf8_lossy(&run.stderr))
            });
            assert_eq!(read, bmc.get(path).await.body, "{vendor} {path}");
        }
        // Commands that find the resource and its action by themselves.
        for (command, power) in [("On", Power::On), ("ForceOff", Power::Off)] {
            let run = tokio::process::Command::new("redfishtool")
                .args(["-n", "-r", &host, "-u", USER, "-p", PASSWORD, "-A", "Basic", "-S", "Never"])
                .args(["Systems", "-1", "reset", command])
                .kill_on_drop(true)
                .output();
            let run =
                tokio::time::timeout(Duration::from_secs(60), run).await.expect("redfishtool hangs").unwrap();
            assert!(run.status.success(), "{vendor}: {}", String::from_utf8_lossy(&run.stderr));
            let changed = sim_bmc.wait_for(|sim_bmc| sim_bmc.power == power);
            tokio::time::timeout(Duration::from_secs(60), changed).await.expect("the power changes");
        }
        server.stop().await;
    }
}
