//! `shoal firmware history`: the installations of firmware on a server, with the versions before and after.
//!
//! ```text
//!   jobs of firmware.install ── events of each ──> firmware.planned: the components      firmware.verified: those that were read back
//! ```

use std::collections::HashMap;

use clap::Args;
use serde_json::{Value, json};

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::live::{Source, WatchArgs};
use super::super::many;
use super::super::output::{Output, join, text};
use super::super::watch;

/// The name of the workflow.
const WORKFLOW: &str = "firmware.install";

/// Arguments of `shoal firmware history`.
#[derive(Args, Debug)]
pub(crate) struct History {
    /// The serial number of the server
    serial: String,
    /// Show at most this many installations, the newest first
    #[arg(long, value_name = "N", default_value = "20", value_parser = many::rows)]
    limit: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

impl History {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        // The events of an ended job are read once, however often a watch reads the list.
        let mut ended = HashMap::new();
        let show = async |output: &mut Output<'_>| self.list(&mut ended, client, output).await;
        self.watch.list(Source::Events(client), output, show).await
    }

    /// Shows the installations. `ended` has those whose jobs have ended, by the id of the job.
    async fn list(
        &self,
        ended: &mut HashMap<String, Value>,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        // A server that was deleted has a history too, and a mistyped one has none.
        let filters = [("server_serial", self.serial.clone()), ("workflow", WORKFLOW.to_owned())];
        let found = client.list(&["jobs"], "jobs", &filters, self.limit).await?;
        let jobs = found["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
        if jobs.is_empty() {
            client.get(&["servers", &self.serial], &[]).await?;
        }
        let mut installations = Vec::new();
        let mut still_listed = HashMap::new();
        for job in jobs {
            let id = text(job, "/job_id");
            let one = match ended.remove(&id) {
                Some(one) => one,
                None => {
                    let (events, _) = watch::events(client, &["jobs", &id, "events"], 0).await?;
                    installation(job, &events)
                }
            };
            if job["status"] == "complete" {
                still_listed.insert(id, one.clone());
            }
            installations.push(one);
        }
        *ended = still_listed;
        if output.json {
            let document = json!({
                "server_serial": self.serial, "installations": installations, "next": found["next"],
            });
            return output.list_document(&document, "installations");
        }
        let rows: Vec<Vec<String>> =
            installations.iter().zip(jobs).map(|(one, job)| row(one, job, output)).collect();
        output.table(&["JOB", "BEGUN", "ENDED", "OUTCOME", "COMPONENTS", "WHY"], &rows)?;
        if !found["next"].is_null() {
            output.note("there are older ones; --limit shows more");
        }
        Ok(())
    }
}

/// An installation as JSON.
fn installation(job: &Value, events: &[Value]) -> Value {
    let ended = job["status"] == "complete";
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let planned = of("firmware.planned").next_back().map(|event| &event["data"]["items"]);
    let verified: Vec<&Value> = of("firmware.verified").map(|event| &event["data"]).collect();
    let items = planned.and_then(Value::as_array).into_iter().flatten();
    let components = items.filter(|item| item["decision"] == "install").map(|item| {
        let is_this = |read: &Value| {
            // Events of an earlier version of the program have no id.
            read["component"] == item["component"] && (read["id"].is_null() || read["id"] == item["id"])
        };
        json!({
            "component": item["component"],
            "id": item["id"],
            "from": item["now"],
            "to": item["then"],
            "verified": verified.iter().any(|read| is_this(read)),
        })
    });
    json!({
        "job_id": job["job_id"],
        "status": job["status"],
        "outcome": job["outcome"],
        "created_at": job["created_at"],
        "ended_at": if ended { job["last_update"].clone() } else { Value::Null },
        "failure": job["failure"],
        "components": components.collect::<Vec<Value>>(),
    })
}

fn row(one: &Value, job: &Value, output: &Output<'_>) -> Vec<String> {
    let components = one["components"].as_array().into_iter().flatten().map(|component| {
        let change = format!(
            "{} {} → {}",
            text(component, "/component"),
            text(component, "/from"),
            text(component, "/to")
        );
        if component["verified"] == true { change } else { format!("{change} (not verified)") }
    });
    let outcome = text(one, "/outcome");
    vec![
        output.id(job, "/short_id", "/job_id"),
        text(one, "/created_at"),
        text(one, "/ended_at"),
        if outcome.is_empty() { text(one, "/status") } else { outcome },
        join(&components.collect::<Vec<String>>(), "; "),
        text(one, "/failure/summary"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_counts_as_installed_only_when_its_own_version_was_read_back() {
        let item = |id: &str| json!({ "component": "nic", "id": id, "now": "1", "then": "2", "decision": "install" });
        let skipped = json!({ "component": "bios", "id": "B", "now": "1", "then": "1", "decision": "skip" });
        let events = [
            json!({ "type": "firmware.planned", "data": { "items": [item("NIC1"), item("NIC2"), skipped] } }),
            json!({ "type": "firmware.verified", "data": { "component": "nic", "id": "NIC2", "is": "2" } }),
        ];
        let job = json!({
            "job_id": "J", "status": "complete", "outcome": "failed", "created_at": "T1", "last_update": "T2",
            "failure": { "summary": "the update failed" },
        });
        let shown = installation(&job, &events);
        let read: Vec<(&str, bool)> = shown["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["id"].as_str().unwrap(), one["verified"] == true))
            .collect();
        assert_eq!(read, [("NIC1", false), ("NIC2", true)]);
        assert_eq!((&shown["ended_at"], &shown["outcome"]), (&json!("T2"), &json!("failed")));
        let open = installation(&json!({ "status": "running", "last_update": "T2" }), &[]);
        assert!(open["ended_at"].is_null() && open["components"] == json!([]), "{open}");
    }
}
