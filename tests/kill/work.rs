//! What a controller is killed at: an installation, a rescue, a condition of the server, an installation of firmware, or a
//! change of BIOS settings.

use lab_bmc::{Power, SimBmc};
use reqwest::Method;
use serde_json::{Value, json};

use super::{End, SERIAL};
use crate::firmware_install::{File, set_named};
use crate::kit::{BMC_PASSWORD, Client, recipe};

/// The work of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A job that installs the server.
    Install,
    /// A job with a rescue session, which an operator ends; its recipe leaves the host off.
    Rescue,
    /// A condition of the server.
    Condition(&'static str),
    /// The firmware of these components of this vendor's server is installed; every run installs other versions.
    Firmware(&'static str, &'static [&'static str]),
    /// An attribute of the BIOS and the boot order are changed; every run sets other values.
    Bios(&'static str, [&'static str; 2]),
}

/// The attribute of a BMC that shows nothing that waits, and has no boot order.
pub(super) const HIDDEN: (&str, [&str; 2]) = ("Hyper-Threading[ALL]#006D", ["Enable", "Disable"]);
/// The versions that runs install in turn.
const VERSIONS: [&str; 2] = ["98.1", "99.2"];

/// The time of an update, by the clock of the controllers.
const UPDATE_TIMEOUT_S: u64 = 600;

impl Work {
    /// Makes what every run needs.
    pub(super) async fn prepare(self, client: &Client) {
        if let Self::Firmware(vendor, components) = self {
            for version in VERSIONS {
                let files: Vec<File<'_>> =
                    components.iter().map(|component| File::of(component, version)).collect();
                set_named(version, client, vendor, &files).await;
            }
            // An image that may have arrived is looked for until then.
            let quirks =
                json!({ "bmc_password": BMC_PASSWORD, "quirks": { "update_timeout_s": UPDATE_TIMEOUT_S } });
            client.patch(&format!("/api/v1/servers/{SERIAL}"), &quirks).await.expect(200);
        }
    }

    /// Whether the BMC restarts, which ends its sessions.
    pub(super) fn restarts_bmc(self) -> bool {
        match self {
            Self::Condition(kind) => kind == "bmcReset",
            Self::Firmware(_, components) => components.contains(&"bmc"),
            Self::Install | Self::Rescue | Self::Bios(..) => false,
        }
    }

    /// What the machine says when the job waits for its report.
    pub(super) fn report(self, id: &str) -> Value {
        match self {
            Self::Rescue => {
                json!({ "status": "reachable", "addresses": ["192.0.2.7"], "consoles": ["tty1"] })
            }
            Self::Install | Self::Condition(_) | Self::Firmware(..) | Self::Bios(..) => {
                json!({ "status": "success", "job_id": id })
            }
        }
    }

    /// Requests the work. Returns the id of its job, or `None` without a response.
    pub(super) async fn order(self, client: &Client, run: &str) -> Option<String> {
        let (place, body, id) = match self {
            Self::Install => {
                ("/api/v1/jobs".to_owned(), json!({ "server_serial": SERIAL, "recipe": recipe() }), "job_id")
            }
            Self::Rescue => {
                let recipe =
                    json!({ "task_target": "rescue.target", "session_minutes": 600, "after": "off" });
                ("/api/v1/jobs".to_owned(), json!({ "server_serial": SERIAL, "recipe": recipe }), "job_id")
            }
            Self::Condition(kind) => {
                let parameters = match kind {
                    "powerCycleHard" => json!({ "power_on": true }),
                    "powerCycleSoft" => json!({ "power_on": true, "force": true }),
                    _ => json!({}),
                };
                let body = json!({ "kind": kind, "parameters": parameters });
                (format!("/api/v1/servers/{SERIAL}/condition"), body, "id")
            }
            Self::Bios(name, values) => {
                let number: usize = run.rsplit('-').next().unwrap().parse().unwrap();
                let order = ["Boot0001", "Boot0003"][number % 2];
                let mut parameters = json!({ "attributes": { name: values[number % 2] } });
                if name != HIDDEN.0 {
                    parameters["boot_order"] = json!([order]);
                }
                let body = json!({ "kind": "biosApply", "parameters": parameters });
                (format!("/api/v1/servers/{SERIAL}/condition"), body, "id")
            }
            Self::Firmware(..) => {
                let number: usize = run.rsplit('-').next().unwrap().parse().unwrap();
                let set = VERSIONS[number % VERSIONS.len()];
                let parameters = json!({ "firmware_set": set, "allow_downgrade": true });
                let body = json!({ "kind": "firmwareInstall", "parameters": parameters });
                (format!("/api/v1/servers/{SERIAL}/condition"), body, "id")
            }
        };
        let request = client.request(Method::POST, &place).header("Idempotency-Key", run).json(&body);
        let response = client.try_send(request).await.ok()?;
        assert!([200, 202].contains(&response.status), "{}", response.text());
        Some(response.json()[id].as_str().unwrap().to_owned())
    }

    /// Asserts the end that undisturbed work must have.
    pub(super) fn golden(self, end: &End, bmc: &SimBmc) {
        let ended = (&end.job["outcome"], &end.job["status"]);
        assert_eq!(ended, (&json!("succeeded"), &json!("complete")), "{end:?}");
        assert_eq!(end.job["cleanup"], json!({ "state": "done", "remaining": [] }), "{end:?}");
        let boots = |from: &str| end.machine.iter().filter(|change| change.starts_with(from)).count();
        assert_eq!(bmc.ejected_while_running(), 0, "{end:?}");
        match self {
            Self::Install => assert_eq!(boots("BootedMedia"), 1, "{end:?}"),
            Self::Rescue => {
                assert_eq!((boots("BootedMedia"), bmc.snapshot().power), (1, Power::Off), "{end:?}");
            }
            Self::Condition("bmcReset") => assert_eq!(boots("Booted"), 0, "{end:?}"),
            Self::Condition(_) => assert_eq!(boots("BootedDisk"), 1, "{end:?}"),
            Self::Bios(..) => assert_eq!(boots("BootedDisk"), 1, "{end:?}"),
            Self::Firmware(..) => {}
        }
        if ![Self::Condition("bmcReset"), Self::Rescue].contains(&self) {
            assert_eq!(bmc.snapshot().power, Power::On, "{end:?}");
        }
    }

    /// What the machine has counted so far besides its changes: restarts of the BMC, or images that arrived.
    pub(super) fn count(self, bmc: &SimBmc) -> u64 {
        match self {
            Self::Firmware(..) => bmc.snapshot().images,
            Self::Bios(..) => bmc.bios_writes(),
            Self::Install | Self::Rescue | Self::Condition(_) => bmc.manager_resets(),
        }
    }

    /// How many points of a matrix may have the end that [`Work::is_unknown`] describes: the upload of each component.
    pub(super) fn most_unknown(self) -> u32 {
        match self {
            Self::Firmware(_, components) => u32::try_from(components.len()).unwrap(),
            Self::Install | Self::Rescue | Self::Condition(_) | Self::Bios(..) => 0,
        }
    }

    /// Whether this is the end of an upload whose response was lost with the controller, and of which the BMC shows nothing: the image is
    /// not sent again, and an operator decides.
    pub(super) fn is_unknown(self, end: &End) -> bool {
        let Self::Firmware(_, components) = self else { return false };
        let arrived = end.machine.iter().find_map(|line| line.split_once(" images arrived"));
        let arrived: usize = arrived.unwrap().0.parse().unwrap();
        end.job["failure"]["class"] == "upload_unknown"
            && end.job["cleanup"] == json!({ "state": "done", "remaining": [] })
            && arrived <= components.len()
    }

    /// What the machine counted in a run.
    pub(super) fn counted(self, bmc: &SimBmc, before: u64) -> Option<String> {
        let count = self.count(bmc) - before;
        match self {
            Self::Condition("bmcReset") => Some(format!("{count} restarts of the BMC")),
            Self::Bios(..) => Some(format!("{count} writes of settings arrived")),
            Self::Firmware(..) => {
                let updates = bmc.updates();
                let last = updates.iter().rev().take(usize::try_from(count).unwrap());
                Some(format!("{count} images arrived, applied: {}", last.filter(|one| one.applied).count()))
            }
            Self::Install | Self::Rescue | Self::Condition(_) => None,
        }
    }
}

/// The value of a job that is compared.
pub(super) fn kept(job: &Value) -> Value {
    let kept = ["status", "outcome", "failed_step", "failure", "cleanup", "step", "wait"];
    let mut kept: serde_json::Map<String, Value> =
        kept.iter().map(|key| ((*key).to_owned(), job[*key].clone())).collect();
    let steps = job["steps"].as_array().unwrap();
    kept.insert("steps".to_owned(), steps.iter().map(|step| json!([step["step"], step["phase"]])).collect());
    Value::Object(kept)
}
