//! Simulated servers, and how they are told to behave.

use std::path::Path;
use std::time::Instant;

use lab_bmc::{SimBmc, SimBmcConfig};
use lab_machines::{Farm, FarmConfig, InstallerBehaviour, ServerSpec};
use secrecy::SecretString;

use super::{LOOK, PATIENCE};

pub(crate) const BMC_USER: &str = "operator";
/// Distinctive, so that it can be looked for in everything that leaves the program.
pub(crate) const BMC_PASSWORD: &str = "canary-bmc-password-7Qm2";

/// A server without faults.
pub(crate) fn honest(serial: &str) -> ServerSpec {
    ServerSpec::new(serial)
}

/// A server whose installer does its work and never reports: the test reports in its place.
pub(crate) fn silent(serial: &str) -> ServerSpec {
    let mut spec = ServerSpec::new(serial);
    spec.behaviour = InstallerBehaviour { never_report: true, ..InstallerBehaviour::default() };
    spec
}

/// The same server with its BMC changed.
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

/// Waits until every fault of a simulated BMC was used.
pub(crate) async fn struck(bmc: &SimBmc) {
    let deadline = Instant::now() + PATIENCE;
    while !bmc.faults().is_empty() {
        assert!(Instant::now() < deadline, "nothing ran into {:?}", bmc.faults());
        tokio::time::sleep(LOOK).await;
    }
}
