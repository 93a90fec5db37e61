//! The twins before a client that is not ours: sushy drives each of the vendors it supports through one boot.

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{NullHost, SimBmc};

use crate::kit::{IMAGE, Memory, PASSWORD, USER, config};

/// Vendors whose virtual media sushy can use as they are. Not among them: those whose slots must be enabled or mounted in
/// the vendor's own way, whose virtual CD is not `Cd`, that take no HTTP, or whose ETags sushy does not get right.
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
        // How the host is powered off is not what is proven here.
        config.power.quiet_after_reset = Duration::ZERO;
        let twin = SimBmc::new(config, Arc::new(NullHost), Memory::bootable());
        let server = twin.serve_on_loopback().await.unwrap();
        let run = tokio::process::Command::new("python3")
            .args(["-B", script, &server.url(), USER, PASSWORD, IMAGE])
            .kill_on_drop(true)
            .output();
        let run = tokio::time::timeout(Duration::from_secs(180), run).await.expect("sushy hangs").unwrap();
        let (told, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{vendor}:\n{told}\n{complained}\n{:#?}", twin.journal());
        let end = twin.snapshot();
        assert_eq!(end.boots_from_media, 1, "{vendor}:\n{told}\n{:#?}", twin.journal());
        assert!(end.slots.iter().all(|slot| slot.image.is_none()), "{vendor}: {end:?}");
        server.stop().await;
    }
}
