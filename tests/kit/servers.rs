//! Simulated servers and their configuration.

use std::path::Path;
use std::time::Instant;

use lab_bmc::{SimBmc, SimBmcConfig, SimBmcSnapshot};
use lab_machines::{Farm, FarmConfig, InstallerBehaviour, ServerSpec};
use secrecy::SecretString;

use super::{POLL_INTERVAL, SESSIONS_END, TIME_LIMIT};

pub(crate) const BMC_USER: &str = "operator";
/// A distinctive value, so that a test can search all output for it.
pub(crate) const BMC_PASSWORD: &str = "canary-bmc-password-7Qm2";

/// Describes a server without faults.
pub(crate) fn healthy(serial: &str) -> ServerSpec {
    ServerSpec::new(serial)
}

/// Describes a server whose installer never reports: the test sends the report.
pub(crate) fn silent(serial: &str) -> ServerSpec {
    let mut spec = ServerSpec::new(serial);
    spec.behaviour = InstallerBehaviour { never_report: true, ..InstallerBehaviour::default() };
    spec
}

/// Changes the BMC of a server.
pub(crate) fn with_bmc(mut spec: ServerSpec, change: impl FnOnce(&mut SimBmcConfig)) -> ServerSpec {
    let mut bmc = SimBmcConfig::new(&spec.serial, BMC_USER, BMC_PASSWORD);
    change(&mut bmc);
    spec.bmc = Some(Box::new(bmc));
    spec
}

/// Starts servers that keep their disks in `folder`.
pub(crate) async fn start_farm(specs: Vec<ServerSpec>, folder: &Path) -> Farm {
    let disks = folder.join("disks");
    std::fs::create_dir_all(&disks).unwrap();
    let password = SecretString::from(BMC_PASSWORD);
    Farm::start(FarmConfig::new(specs, BMC_USER, password, disks)).await.unwrap()
}

/// Waits until no session of a BMC is open and returns its state. The logout is the last request of a job, and the job's end does
/// not wait for it.
pub(crate) async fn logged_out(bmc: &SimBmc) -> SimBmcSnapshot {
    let ended = bmc.wait_for(|bmc| bmc.open_sessions == 0 && bmc.in_flight == 0);
    match tokio::time::timeout(SESSIONS_END, ended).await {
        Ok(machine) => machine,
        Err(_elapsed) => panic!("a session stays open: {:?}", bmc.snapshot()),
    }
}

/// Waits until every fault of a simulated BMC has been used up.
pub(crate) async fn all_faults_used(bmc: &SimBmc) {
    let deadline = Instant::now() + TIME_LIMIT;
    while !bmc.faults().is_empty() {
        assert!(Instant::now() < deadline, "unused faults: {:?}", bmc.faults());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
