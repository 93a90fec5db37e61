//! The controller is killed and a successor ends the job: the job succeeds, and the host booted from the boot image exactly
//! once.

use std::time::Duration;

use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, JournalItem, Power, ResetType, SimBmc, SimBmcSnapshot, StateChange,
};
use lab_machines::{Farm, InstallerBehaviour, ServerSpec, console::ConsoleLine, maintenance_os::unit};
use serde_json::{Value, json};

use crate::kit::{
    ApiResponse, Client, ControllerProcess, DataDir, all_faults_used, healthy, logged_out, silent, soon,
    start_farm, with_bmc,
};

const SERIAL: &str = "CRASH-1";

/// A condition of a machine to wait for.
type Reached = fn(&SimBmcSnapshot) -> bool;

/// Starts a controller with one registered server and a pushed OS image.
async fn served(spec: ServerSpec) -> (DataDir, ControllerProcess, Farm) {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let farm = start_farm(vec![spec], data.path()).await;
    controller.admin.register(&farm.servers()[0]).await;
    controller.admin.push_image().await;
    (data, controller, farm)
}

/// Sends the machine's report of success as soon as its job waits for it.
async fn report(client: &Client, id: &str) {
    client.awaits_report(id).await;
    let document = client.job_document(id).await;
    let token = document["webhook_token"].as_str().unwrap();
    client.report(SERIAL, token, &json!({ "status": "success", "job_id": id })).await.expect(200);
}

async fn assert_succeeded(job: &Value, bmc: &SimBmc, event_log: &str) {
    assert_eq!((&job["outcome"], &job["status"]), (&json!("succeeded"), &json!("complete")), "{event_log}");
    assert_eq!(job["cleanup"], json!({ "state": "done", "remaining": [] }), "{event_log}");
    let machine = logged_out(bmc).await;
    assert_eq!((machine.boots_from_media, machine.ejected_while_running), (1, 0), "{machine:?}\n{event_log}");
    assert!(machine.slots.iter().all(|slot| slot.image.is_none()), "{machine:?}\n{event_log}");
    assert_eq!(machine.power, Power::On, "{machine:?}\n{event_log}");
}

/// Kills the controller during a request whose response comes late or never, as soon as the machine satisfies `machine`.
/// The successor ends the job.
async fn killed_during(spec: ServerSpec, fault: Fault, machine: impl Fn(&SimBmcSnapshot) -> bool) {
    let (mut data, controller, farm) = served(spec).await;
    let bmc = &farm.servers()[0].bmc;
    bmc.inject(fault);
    let id = controller.admin.create_job(SERIAL).await;
    all_faults_used(bmc).await;
    soon("the effect", bmc.wait_for(machine)).await;
    controller.kill();
    let successor = data.serve().await;
    report(&successor.admin, &id).await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, bmc, &successor.admin.event_log(&id).await).await;
}

fn any(_: &SimBmcSnapshot) -> bool {
    true
}

fn holds(machine: &SimBmcSnapshot, slot: &str) -> bool {
    machine.slot(slot).is_some_and(|slot| slot.image.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_left_open_by_a_killed_controller_is_closed_by_the_next_one() {
    let (mut data, controller, farm) = served(silent(SERIAL)).await;
    let bmc = &farm.servers()[0].bmc;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    // The job is held, so that no worker uses the BMC at the next start.
    controller.admin.post(&format!("/api/v1/jobs/{id}/hold"), &json!({})).await.expect(202);
    controller.admin.wait(&id, "the hold", |job| !job["hold"].is_null()).await;
    assert_eq!(bmc.snapshot().open_sessions, 1);
    controller.kill();
    let _successor = data.serve().await;
    soon("the end of the session", bmc.wait_for(|machine| machine.open_sessions == 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_job_waits_for_its_report() {
    let (mut data, controller, farm) = served(silent(SERIAL)).await;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    let digest = controller.admin.job(&id).await["task_iso_sha256"].clone();
    let image = controller.admin.task_image(&id).await;
    controller.kill();

    let successor = data.serve().await;
    assert_eq!(successor.admin.job(&id).await["task_iso_sha256"], digest);
    assert!(successor.admin.task_image(&id).await == image, "the bytes of an inserted image never change");
    report(&successor.admin, &id).await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, &farm.servers()[0].bmc, &successor.admin.event_log(&id).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_machine_installs_the_report_is_repeated_until_a_controller_responds() {
    let mut spec = healthy(SERIAL);
    spec.behaviour =
        InstallerBehaviour { unit_time: Duration::from_millis(300), ..InstallerBehaviour::default() };
    let (mut data, controller, farm) = served(spec).await;
    let mut console = farm.console();
    let mut printed = async |wanted: fn(&ConsoleLine) -> bool| loop {
        if wanted(&soon("a line on the console", console.recv()).await.unwrap()) {
            return;
        }
    };
    let id = controller.admin.create_job(SERIAL).await;
    // After this the installer needs the controller only for its report.
    printed(|line| line.unit == unit::BOOTLOADER_LINUX && line.text == "started").await;
    controller.kill();
    printed(|line| line.unit == unit::REPORT && line.text.ends_with("installed")).await;
    let successor = data.serve().await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, &farm.servers()[0].bmc, &successor.admin.event_log(&id).await).await;
}

/// A request that the BMC carries out without a response.
fn unsaid(when: FaultTrigger) -> Fault {
    Fault::once(when, FaultEffect::ApplyButTimeout)
}

/// A request that the BMC has not begun when the controller is killed. The successor ends the session, so it never begins.
fn undone(when: FaultTrigger) -> Fault {
    Fault::once(when, FaultEffect::Delay(Duration::from_secs(1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_host_is_switched_off() {
    // A host that is off gets no power-off request, so this host starts on.
    let spec = || with_bmc(silent(SERIAL), |bmc| bmc.starts_on = true);
    let off = || FaultTrigger::ResetTo(ResetType::ForceOff);
    killed_during(spec(), unsaid(off()), |machine| machine.power == Power::Off).await;
    killed_during(spec(), undone(off()), any).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_boot_image_was_inserted_and_before_the_bmc_responded() {
    killed_during(silent(SERIAL), unsaid(FaultTrigger::InsertInto("CD1".to_owned())), |machine| {
        holds(machine, "CD1")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_task_image_was_inserted_and_before_the_bmc_responded() {
    killed_during(silent(SERIAL), unsaid(FaultTrigger::InsertInto("CD2".to_owned())), |machine| {
        holds(machine, "CD2")
    })
    .await;
}

/// Takes a minute: an insert may be in progress that long without being visible, and must not be sent twice meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_bmc_began_an_insert_the_insert_is_sent_again_when_none_can_be_in_progress() {
    killed_during(silent(SERIAL), undone(FaultTrigger::InsertInto("CD2".to_owned())), any).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_boot_override_is_set() {
    killed_during(silent(SERIAL), undone(FaultTrigger::PatchBoot), any).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_bmc_powered_on_and_before_it_responded() {
    killed_during(silent(SERIAL), unsaid(FaultTrigger::ResetTo(ResetType::On)), |machine| {
        machine.power == Power::On
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_bmc_powers_on_slowly() {
    killed_during(silent(SERIAL), undone(FaultTrigger::ResetTo(ResetType::On)), any).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_during_cleanup() {
    for fault in [
        unsaid(FaultTrigger::ResetTo(ResetType::GracefulShutdown)),
        unsaid(FaultTrigger::Eject),
        undone(FaultTrigger::Eject),
        unsaid(FaultTrigger::ResetTo(ResetType::On)),
        undone(FaultTrigger::ResetTo(ResetType::On)),
    ] {
        killed_in_cleanup(silent(SERIAL), fault).await;
    }
}

/// Kills a controller at a fault that only cleanup can meet.
async fn killed_in_cleanup(spec: ServerSpec, fault: Fault) -> (DataDir, Farm) {
    let (mut data, controller, farm) = served(spec).await;
    let bmc = &farm.servers()[0].bmc;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    bmc.inject(fault);
    report(&controller.admin, &id).await;
    all_faults_used(bmc).await;
    controller.kill();
    let successor = data.serve().await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, bmc, &successor.admin.event_log(&id).await).await;
    (data, farm)
}

/// A regression: the successor repeated the request, and took the refusal of a BMC that had carried it out for a failure.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_a_bmc_that_shows_its_power_late_powers_on_again() {
    let late = with_bmc(silent(SERIAL), |bmc| bmc.power.state_lag = Duration::from_secs(4));
    killed_in_cleanup(late, unsaid(FaultTrigger::ResetTo(ResetType::On))).await;
}

/// A regression: the successor waited for a shutdown that had never been requested, and then cut the power.
#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_shutdown_request_the_successor_sends_it() {
    let fault = Fault::once(FaultTrigger::ResetTo(ResetType::GracefulShutdown), FaultEffect::Hang);
    let (_data, farm) = killed_in_cleanup(silent(SERIAL), fault).await;
    let asked = JournalItem::Change(StateChange::Reset(ResetType::GracefulShutdown));
    assert!(farm.servers()[0].bmc.journal().iter().any(|entry| entry.what == asked));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_repeatedly_the_job_still_succeeds() {
    let (mut data, mut controller, farm) = served(silent(SERIAL)).await;
    let bmc = &farm.servers()[0].bmc;
    let id = controller.admin.create_job(SERIAL).await;
    let reached: [(FaultTrigger, Reached); 4] = [
        (FaultTrigger::InsertInto("CD1".to_owned()), |machine| holds(machine, "CD1")),
        (FaultTrigger::InsertInto("CD2".to_owned()), |machine| holds(machine, "CD2")),
        (FaultTrigger::PatchBoot, any),
        (FaultTrigger::ResetTo(ResetType::On), |machine| machine.power == Power::On),
    ];
    for (when, machine) in reached {
        bmc.inject(unsaid(when));
        all_faults_used(bmc).await;
        soon("the effect", bmc.wait_for(machine)).await;
        controller.kill();
        controller = data.serve().await;
    }
    report(&controller.admin, &id).await;
    let job = controller.admin.complete(&id).await;
    assert_succeeded(&job, bmc, &controller.admin.event_log(&id).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_by_sigterm_it_exits_with_success_and_its_successor_continues_the_job() {
    let (mut data, controller, farm) = served(silent(SERIAL)).await;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    let status = tokio::time::timeout(Duration::from_secs(15), controller.terminate()).await.unwrap();
    assert!(status.success(), "{status}\n{}", data.logs());
    let successor = data.serve().await;
    report(&successor.admin, &id).await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, &farm.servers()[0].bmc, &successor.admin.event_log(&id).await).await;
}

/// A deadline is fixed when the job is made: a program that computes it again from the setting would fail this job at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_made_under_a_longer_stuck_timeout_keeps_its_deadline_when_the_setting_is_shortened() {
    let (data, controller, farm) = served(silent(SERIAL)).await;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    let promised = |job: &Value| (job["deadline_at"].clone(), job["wait"]["deadline"].clone());
    let before = promised(&controller.admin.job(&id).await);
    controller.kill();
    // The job becomes two hours old; its deadlines stay where they are.
    let database = rusqlite::Connection::open(data.path().join("data/provisioner.db")).unwrap();
    let long_ago = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-2 hours')";
    let changes = [
        format!(
            "UPDATE runs SET created_at = {long_ago}, wait = json_set(wait, '$.since', {long_ago}) WHERE id = ?1"
        ),
        format!("UPDATE jobs SET created_at = {long_ago} WHERE id = ?1"),
    ];
    for change in changes {
        assert_eq!(database.execute(&change, [&id]).unwrap(), 1);
    }
    drop(database);

    let mut data = data.with("JOB_STUCK_TIMEOUT", "15m");
    let successor = data.serve().await;
    assert_eq!(promised(&successor.admin.job(&id).await), before);
    report(&successor.admin, &id).await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, &farm.servers()[0].bmc, &successor.admin.event_log(&id).await).await;
}

/// No controller ran when the deadline of the wait passed, so the report could not be delivered: the machine repeats it within a minute
/// of the start.
#[tokio::test(flavor = "multi_thread")]
async fn killed_over_the_deadline_of_a_wait_its_successor_waits_until_the_report_can_be_repeated() {
    let (mut data, controller, farm) = served(silent(SERIAL)).await;
    let id = controller.admin.create_job(SERIAL).await;
    controller.admin.awaits_report(&id).await;
    controller.kill();
    // The last sign of life is a heartbeat or an event of a job.
    let database = rusqlite::Connection::open(data.path().join("data/provisioner.db")).unwrap();
    let ago = |minutes: u8| format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{minutes} minutes')");
    let (begun, seen, deadline) = (ago(20), ago(10), ago(5));
    let wait = format!("json_set(wait, '$.since', {seen}, '$.deadline', {deadline})");
    let changes = [
        // The machine has run on since.
        format!(
            "UPDATE controller_instances SET started_at = {begun}, heartbeat_at = {seen}, boot_ms = boot_ms - 600000"
        ),
        format!("UPDATE events SET time = {seen} WHERE run IS NOT NULL"),
        format!(
            "UPDATE runs SET created_at = {begun}, deadline_at = {deadline}, wait = {wait} WHERE wait IS NOT NULL"
        ),
    ];
    for change in changes {
        assert!(database.execute(&change, []).unwrap() > 0, "{change}");
    }
    drop(database);

    let successor = data.serve().await;
    let events = format!("/api/v1/jobs/{id}/events?after=0&limit=1000");
    let judged = ["wait.outage", "run.outcome"];
    let decided = |page: &ApiResponse| {
        page.json()["events"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| judged.iter().any(|kind| event["type"] == *kind))
    };
    successor.admin.until(&events, "the deadline is judged", decided).await;
    let event_log = successor.admin.event_log(&id).await;
    assert!(event_log.contains("wait.outage"), "{event_log}");
    report(&successor.admin, &id).await;
    let job = successor.admin.complete(&id).await;
    assert_succeeded(&job, &farm.servers()[0].bmc, &successor.admin.event_log(&id).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_controller_on_the_same_data_is_refused_and_says_why() {
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let mut second = data.command();
    second.env("CONTROLLER_HTTP_ADDR", "127.0.0.1:0");
    let output = tokio::task::spawn_blocking(move || second.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("in use by another controller"), "{said}");
    assert_eq!(controller.admin.get("/api/v1/jobs").await.status, 200, "the first controller still responds");
}
