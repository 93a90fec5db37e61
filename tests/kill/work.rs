//! What a controller is killed at: an installation, or a condition of the server.

use lab_bmc::{Power, SimBmc};
use reqwest::Method;
use serde_json::{Value, json};

use super::{End, SERIAL};
use crate::kit::{Client, recipe};

/// The work of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A job that installs the server.
    Install,
    /// A condition of the server.
    Condition(&'static str),
}

impl Work {
    /// Requests the work. Returns the id of its job, or `None` without a response.
    pub(super) async fn order(self, client: &Client, run: &str) -> Option<String> {
        let (place, body, id) = match self {
            Self::Install => {
                ("/api/v1/jobs".to_owned(), json!({ "server_serial": SERIAL, "recipe": recipe() }), "job_id")
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
            Self::Condition("bmcReset") => assert_eq!(boots("Booted"), 0, "{end:?}"),
            Self::Condition(_) => assert_eq!(boots("BootedDisk"), 1, "{end:?}"),
        }
        if self != Self::Condition("bmcReset") {
            assert_eq!(bmc.snapshot().power, Power::On, "{end:?}");
        }
    }

    /// What the machine counts besides its changes.
    pub(super) fn counted(self, bmc: &SimBmc, before: u64) -> Option<String> {
        (self == Self::Condition("bmcReset"))
            .then(|| format!("{} restarts of the BMC", bmc.manager_resets() - before))
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
