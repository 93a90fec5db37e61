//! The blocks of the documents that are no commands of a shell, and the commands that need a server with a firmware inventory: each is
//! taken from its document as it is printed and given to a controller.
//!
//! `tests/documents.rs` runs the other commands, and `src/cli/tests/documents.rs` checks recipes, settings and names of flags.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::command_line::shoal;
use crate::firmware_install::{File, NEW, SERIAL, scene, set_named};
use crate::kit::{Client, Scene, recipe, silent};
use crate::rescue;

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The only fenced block of a language in a document that begins with this text.
fn block(name: &str, language: &str, beginning: &str) -> String {
    let text = document(name);
    let opening = format!("```{language}\n");
    let mut found = text.split(&opening).skip(1).filter(|rest| rest.starts_with(beginning));
    let block =
        found.next().unwrap_or_else(|| panic!("{name} has no {language} block that begins with {beginning}"));
    assert!(found.next().is_none(), "{name} has two");
    block.split("\n```").next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_the_document_are_accepted_as_they_are_printed() {
    let scene = Scene::start(vec![silent("SERIAL")]).await;
    let mut sent = 0;
    for line in block("docs/operating.md", "http", "POST /api/v1/servers/").lines() {
        let mut words = line.splitn(2, ' ');
        let (method, rest) = (words.next().unwrap(), words.next().unwrap().trim());
        let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut request = scene.admin.request(method.parse::<Method>().unwrap(), path);
        if !body.is_empty() {
            request = request.json(&serde_json::from_str::<Value>(body.trim()).unwrap());
        }
        scene.admin.send(request).await.expect(200);
        sent += 1;
    }
    assert_eq!(sent, 3);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_of_the_document_is_stored_as_it_is_printed() {
    let scene = Scene::start(vec![silent("NET-1")]).await;
    let network: Value =
        serde_json::from_str(&block("docs/operating.md", "json", "{\n  \"ethernets\": { \"lan\"")).unwrap();
    let changed =
        scene.admin.patch("/api/v1/servers/NET-1", &json!({ "network": network })).await.expect(200);
    assert_eq!(changed["network"], network, "{changed:#}");
    let mut wrong = network;
    wrong["vlans"]["vlan70"]["link"] = json!("no such link");
    scene
        .admin
        .patch("/api/v1/servers/NET-1", &json!({ "network": wrong }))
        .await
        .refused(400, "validation_error");
    scene.end().await;
}

/// A job of the recipe that waits for its report, and the token of the report.
async fn reporting(client: &Client, serial: &str, recipe: Value) -> String {
    let order = json!({ "server_serial": serial, "recipe": recipe });
    let job = client.post("/api/v1/jobs", &order).await.expect(202);
    let id = job["job_id"].as_str().unwrap();
    client.awaits_report(id).await;
    client.job_document(id).await["webhook_token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_report_of_the_document_is_accepted_and_one_without_a_required_field_is_not() {
    let lines = block("docs/maintenance-os.md", "json", "{\"status\": \"success\"}");
    let reports: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let serials = ["RPT-1", "RPT-2", "RPT-3", "RPT-4"];
    assert_eq!(reports.len(), serials.len());
    let scene = Scene::start(serials.map(silent).to_vec()).await;
    for (serial, report) in serials.into_iter().zip(reports) {
        let recipe = match report["status"].as_str() {
            Some("reachable") => {
                json!({ "task_target": "rescue.target", "ssh_authorized_keys": [rescue::KEY] })
            }
            _ => recipe(),
        };
        let token = reporting(&scene.admin, serial, recipe).await;
        let mut lacking = report.clone();
        let required = match report["status"].as_str() {
            Some("failed") => "failed_step",
            Some("progress") => "step",
            _ => "status",
        };
        lacking.as_object_mut().unwrap().remove(required).unwrap();
        scene.admin.report(serial, &token, &lacking).await.refused(400, "validation_error");
        scene.admin.report(serial, &token, &report).await.expect(200);
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_firmware_commands_of_the_document_end_as_it_says() {
    let scene = scene("openbmc", |_| {}).await;
    set_named("r640", &scene.admin, "openbmc", &[File::of("bmc", NEW), File::of("bios", NEW)]).await;
    let labels = json!({ "labels": { "rack": "7" } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &labels).await.expect(200);
    let commands = block("docs/operating.md", "console", "shoal server inventory R640-1");
    let mut run = 0;
    for line in commands.lines() {
        let typed = line.replace("R640-1", SERIAL);
        let words: Vec<String> = typed.split_whitespace().skip(1).map(str::to_owned).collect();
        // The window of its restarts is in 2030: of this one only the words are checked.
        let waits = typed.contains("--restart-from");
        let words: Vec<&str> = words.iter().map(String::as_str).chain(waits.then_some("--help")).collect();
        let ran = scene.while_skipping(shoal(&scene.admin, &words)).await;
        let wanted = if words[1] == "drift" { 7 } else { 0 };
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(wanted), "{line}\n{out}\n{err}");
        run += 1;
    }
    assert_eq!(run, 6);
    scene.end().await;
}
