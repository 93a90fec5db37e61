//! Simulated BMCs with a foreign client: sushy boots each of the vendors it supports once.

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{NullHost, SimBmc};

use crate::kit::{IMAGE, Memory, PASSWORD, USER, config};

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
