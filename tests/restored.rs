//! Data that is a copy or old: no machine is touched before an operator releases its server; backup and restore; and the locks that
//! keep a second controller away.

use std::path::Path;
use std::process::Output;

use lab_bmc::{Power, SimBmc};
use lab_machines::Farm;
use serde_json::{Value, json};

use crate::command_line::shoal;
use crate::kit::{Client, ControllerProcess, DataDir, binary, healthy, silent, soon, start_farm};

const SERIAL: &str = "OLD-1";

/// Copies a directory as `cp -r` does.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(std::fs::copy(entry.path(), target).unwrap()),
            _ => std::os::unix::fs::symlink(std::fs::read_link(entry.path()).unwrap(), target).unwrap(),
        }
    }
}

/// Runs a command of the program to its end, outside of the runtime's threads.
async fn ran(arguments: &[&str]) -> Output {
    let mut command = binary(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn succeeds(arguments: &[&str]) -> String {
    let output = ran(arguments).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}\n{out}\n{err}");
    format!("{out}{err}")
}

/// Accepts the first admin token of restored data, as an operator does on the machine of the controller.
async fn confirm_first_token(data: &DataDir) {
    let mut command = data.command_of(&["token", "confirm", "first-start", "--offline"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A controller whose job waits for the report of its machine, which is on.
async fn waiting_for_a_report() -> (DataDir, ControllerProcess, Farm, String) {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let farm = start_farm(vec![silent(SERIAL), healthy("NEW-1")], data.path()).await;
    controller.admin.register(farm.server(SERIAL).unwrap()).await;
    controller.admin.push_image().await;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    (data, controller, farm, id)
}

/// The token with which the machine of a job reports.
async fn report_token(client: &Client, id: &str) -> String {
    client.job_document(id).await["webhook_token"].as_str().unwrap().to_owned()
}

async fn report(client: &Client, id: &str, token: &str) -> u16 {
    client.report(SERIAL, token, &json!({ "status": "success", "job_id": id })).await.status
}

fn changes(bmc: &SimBmc) -> usize {
    bmc.mutations().len()
}

/// The readiness check of the data.
async fn data_check(client: &Client) -> (u16, Value) {
    let ready = client.get("/readyz").await;
    (ready.status, ready.json()["checks"]["data"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_data_directory_touches_no_machine_until_its_server_is_released() {
    let (mut data, controller, farm, id) = waiting_for_a_report().await;
    controller.kill();
    let (place, aside) = (data.path().join("data"), data.path().join("aside"));
    copy(&place, &aside);
    // A plain restart is no restore.
    let controller = data.serve().await;
    assert_eq!(data_check(&controller.admin).await, (200, json!({ "ok": true })));
    let token = report_token(&controller.admin, &id).await;
    assert_eq!(report(&controller.admin, &id, &token).await, 200);
    controller.admin.complete(&id).await;
    controller.terminate().await;
    std::fs::remove_dir_all(&place).unwrap();
    copy(&aside, &place);
    let bmc = &farm.server(SERIAL).unwrap().bmc;
    let before = changes(bmc);
    assert_eq!(bmc.snapshot().power, Power::On);

    confirm_first_token(&data).await;
    let revived = data.serve().await;
    let admin = &revived.admin;
    let (status, check) = data_check(admin).await;
    assert!(status == 503 && check["message"].as_str().unwrap().contains("is a copy"), "{check}");
    let explained = admin.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200);
    assert_eq!(explained["condition"], "restored", "{explained:#}");
    assert!(
        explained["next_action"].as_str().unwrap().contains("shoal server release OLD-1"),
        "{explained:#}"
    );
    for verb in ["cancel", "hold", "resume"] {
        admin.post(&format!("/api/v1/jobs/{id}/{verb}"), &json!({})).await.refused(409, "conflict.restored");
    }
    admin
        .post(&format!("/api/v1/servers/{SERIAL}/diagnostics"), &json!({}))
        .await
        .refused(409, "conflict.restored");
    // A server that is registered now is not restored. Its whole job runs while the other one rests.
    admin.register(farm.server("NEW-1").unwrap()).await;
    let other = admin.create_job("NEW-1").await;
    assert_eq!(admin.complete(&other).await["outcome"], "succeeded");
    assert_eq!(admin.job(&id).await["step"], "webhook.wait");

    let shown = admin.get(&format!("/api/v1/servers/{SERIAL}/restored")).await.expect(200);
    assert_eq!(shown["believed"]["jobs"][0]["step"], "webhook.wait", "{shown:#}");
    assert_eq!(shown["observed"]["power"], "On", "{shown:#}");
    assert_eq!(shown["observed"]["serial_check"], "match", "{shown:#}");
    let slots = shown["observed"]["media"].as_array().unwrap();
    assert!(slots.iter().all(|slot| slot["empty"] == true), "the real job has ended: {shown:#}");
    let listed = admin.get("/api/v1/restored").await.expect(200);
    assert_eq!(listed["servers"][0]["jobs"], json!([id]), "{listed:#}");

    let release = format!("/api/v1/servers/{SERIAL}/release");
    admin.post(&release, &json!({})).await.refused(409, "conflict.restored");
    let released = shoal(admin, &["server", "release", SERIAL, "--jobs", "end"]).await;
    assert!(released.status.success(), "{released:?}");
    assert!(admin.get(&format!("/api/v1/servers/{SERIAL}")).await.expect(200)["restored"].is_null());
    let ended = admin.job(&id).await;
    assert_eq!((&ended["status"], &ended["outcome"]), (&json!("complete"), &json!("cancelled")));
    assert_eq!(data_check(admin).await.0, 200);
    assert_eq!((changes(bmc), bmc.snapshot().power), (before, Power::On), "nothing was sent to the machine");
    // Released: the server works as any other.
    revived.terminate().await;
    let restarted = data.serve().await;
    assert_eq!(data_check(&restarted.admin).await.0, 200, "a restart of the released data is no restore");
    farm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_controller_moves_its_jobs_to_a_new_place() {
    let (mut data, controller, farm, id) = waiting_for_a_report().await;
    let path = |name: &str| data.path().join(name).display().to_string();
    let (old, new, backup) = (path("data"), path("new"), path("backup"));
    let said = succeeds(&["backup", &backup, "--data", &old]).await;
    assert!(said.contains("does not contain the master key"), "{said}");
    assert_eq!(controller.admin.job(&id).await["step"], "webhook.wait", "the controller was not stopped");
    succeeds(&["restore", &backup, "--data", &new, "--verify-only"]).await;
    assert!(!Path::new(&new).exists(), "a verification writes nothing");
    let refused = ran(&["restore", &backup, "--data", &old]).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by another controller"));
    let report_token = report_token(&controller.admin, &id).await;
    controller.terminate().await;

    let said = succeeds(&["restore", &backup, "--data", &new]).await;
    assert!(said.contains("there is no master key"), "{said}");
    std::fs::copy(format!("{old}/master.key"), format!("{new}/master.key")).unwrap();
    data = data.with("STORAGE_ROOT", &new);
    confirm_first_token(&data).await;
    let moved = data.serve().await;
    let bmc = &farm.server(SERIAL).unwrap().bmc;
    let before = changes(bmc);
    let explained = moved.admin.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200);
    assert!(explained["summary"].as_str().unwrap().contains("restored from the backup of"), "{explained:#}");
    // The machine reports while nothing is released: the report is kept.
    assert_eq!(report(&moved.admin, &id, &report_token).await, 200);
    assert_eq!(changes(bmc), before);
    let listed = shoal(&moved.admin, &["controller", "restored"]).await;
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&id), "{listed:?}");
    let shown = shoal(&moved.admin, &["server", "restored", SERIAL]).await;
    assert!(String::from_utf8_lossy(&shown.stdout).contains("OBSERVED"), "{shown:?}");
    let unconfirmed = shoal(&moved.admin, &["controller", "release", "--jobs", "continue"]).await;
    assert_eq!(unconfirmed.status.code(), Some(2), "{unconfirmed:?}");
    let undecided = shoal(&moved.admin, &["controller", "release", "--old-controller-is-off"]).await;
    assert!(String::from_utf8_lossy(&undecided.stderr).contains("--jobs continue"), "{undecided:?}");
    let released =
        shoal(&moved.admin, &["controller", "release", "--old-controller-is-off", "--jobs", "continue"])
            .await;
    assert!(released.status.success(), "{released:?}");
    let job = moved.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", moved.admin.event_log(&id).await);
    assert_eq!(job["cleanup"]["state"], "done", "{job:#}");
    assert_eq!(bmc.snapshot().boots_from_media, 1);
    farm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_data_directory_is_replaced_stops() {
    let mut data = DataDir::new();
    let mut controller = data.serve().await;
    let place = data.path().join("data");
    std::fs::rename(&place, data.path().join("moved")).unwrap();
    std::fs::create_dir(&place).unwrap();
    soon("the end of the controller", async {
        while controller.running() {
            tokio::time::sleep(crate::kit::POLL_INTERVAL).await;
        }
    })
    .await;
    let logs = data.logs();
    assert!(logs.contains("was removed, renamed or replaced"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_controller_is_refused_on_whatever_it_shares_with_the_first() {
    let mut data = DataDir::new();
    let _controller = data.serve().await;
    let place = data.path().join("data");
    std::os::unix::fs::symlink(place.join("provisioner.db"), data.path().join("link.db")).unwrap();
    let text = |name: &str| data.path().join(name).display().to_string();
    let (link, other) = (text("link.db"), text("other"));
    let database = format!("{}/provisioner.db", text("data"));
    let registry = format!("{}/oci", text("data"));
    let (own, elsewhere) = (text("data"), text("elsewhere.db"));
    for changed in [
        [("STORAGE_ROOT", &other), ("DB_PATH", &link)],
        [("STORAGE_ROOT", &other), ("DB_PATH", &database)],
        [("STORAGE_ROOT", &other), ("REGISTRY_STORAGE", &registry)],
        [("STORAGE_ROOT", &own), ("DB_PATH", &elsewhere)],
    ] {
        let mut second = data.command();
        second.env("CONTROLLER_HTTP_ADDR", "127.0.0.1:0").envs(changed);
        let output = tokio::task::spawn_blocking(move || second.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("in use by another controller"),
            "{changed:?}: {said}"
        );
    }
}
