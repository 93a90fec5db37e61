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
pub(crate) fn with_twin(mut spec: ServerSpec, change: impl FnOnce(&mut SimBmcConfig)) -> ServerSpec {
    let mut twin = SimBmcConfig::new(&spec.serial, BMC_USER, BMC_PASSWORD);
    change(&mut twin);
    spec.twin = Some(Box::new(twin));
    spec
}

/// Starts servers that keep their disks in `folder`.
pub(crate) async fn start_farm(specs: Vec<ServerSpec>, folder: &Path) -> Farm {
    let disks = folder.join("disks");
    std::fs::create_dir_all(&disks).unwrap();
    let password = SecretString::from(BMC_PASSWORD);
    Farm::start(FarmConfig::new(specs, BMC_USER, password, disks)).await.unwrap()
}

/// Waits until the last of a twin's faults has struck.
pub(crate) async fn struck(twin: &SimBmc) {
    let deadline = Instant::now() + PATIENCE;
    while !twin.faults().is_empty() {
        assert!(Instant::now() < deadline, "nothing ran into {:?}", twin.faults());
        tokio::time::sleep(LOOK).await;
    }
}
