//! The process of `shoal serve`: trouble with standard error, signals, the first admin token.

use std::fs::File;
use std::io::{PipeReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;

use crate::kit::{Client, ControllerProcess, DataDir, POLL_INTERVAL, TIME_LIMIT, soon};

/// The number of log lines that the controller has dropped.
async fn dropped(admin: &Client) -> u64 {
    let metrics = admin.get("/metrics").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("log_lines_dropped_total "));
    line.unwrap().parse().unwrap()
}

/// Causes log lines until some were dropped.
async fn log_until_dropped(admin: &Client) {
    let deadline = Instant::now() + TIME_LIMIT;
    while dropped(admin).await == 0 {
        join_all((0..64).map(|_| admin.get("/healthz"))).await;
        assert!(Instant::now() < deadline, "no log line was dropped");
    }
}

/// Asserts that the controller accepts and stores what clients send.
async fn assert_works(admin: &Client) {
    let server = json!({
        "serial": "LOG-1", "bmc_address": "192.0.2.1", "bmc_username": "admin", "bmc_password": "a password",
    });
    admin.post("/api/v1/servers", &server).await.expect(201);
    admin.get("/readyz").await.expect(200);
}

/// Reads a pipe to its end on another thread.
fn read_all(mut pipe: PipeReader) -> tokio::task::JoinHandle<String> {
    tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    })
}

/// Waits until the log contains a text.
async fn logged(data: &DataDir, text: &str) -> String {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let logs = data.logs();
        if logs.contains(text) {
            return logs;
        }
        assert!(Instant::now() < deadline, "{text:?} is not in the log:\n{logs}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_read_stops_nothing_and_says_what_was_dropped_when_it_is_read_again() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut data = DataDir::new();
    let controller = data.serve_logging_to(writer).await;
    log_until_dropped(&controller.admin).await;
    assert_works(&controller.admin).await;
    let log = read_all(reader);
    assert!(controller.terminate().await.success());
    let log = soon("the end of the log", log).await.unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let lost: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
    assert!(lost > 0, "no line says that lines were dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_never_read_does_not_keep_the_process_from_ending() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut data = DataDir::new();
    let controller = data.serve_logging_to(writer).await;
    log_until_dropped(&controller.admin).await;
    assert!(soon("the end of the process", controller.terminate()).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_log_changes_neither_the_work_nor_the_exit_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut data = DataDir::new();
    let controller = data.serve_logging_to(writer).await;
    assert_works(&controller.admin).await;
    assert!(dropped(&controller.admin).await > 0);
    assert!(controller.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_log_changes_neither_the_start_nor_the_exit_code() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut data = DataDir::new();
    let controller = data.serve_logging_to(full()).await;
    assert_works(&controller.admin).await;
    assert!(dropped(&controller.admin).await > 0);
    // The data directory is in use.
    let second = data.command().stdout(Stdio::null()).stderr(full()).status().unwrap();
    assert_eq!(second.code(), Some(1));
    assert!(controller.terminate().await.success());
}

/// A controller with a settings file and a file with the shared report secret.
async fn with_files() -> (DataDir, ControllerProcess) {
    let data = DataDir::new();
    let (settings, secret) = (data.path().join("shoal.toml"), data.path().join("secret"));
    std::fs::write(&settings, "log_level = \"warn\"\nworker_concurrency = 4\n").unwrap();
    std::fs::write(&secret, "the first secret").unwrap();
    let secret = format!("file:{}", secret.display());
    let mut data = data
        .with("LOG_LEVEL", "")
        .with("WEBHOOK_SECRET", &secret)
        .given(&["--config", settings.to_str().unwrap()]);
    let controller = data.serve().await;
    (data, controller)
}

/// The status of a report with a shared secret for a server without jobs: 404 if the secret is right.
async fn report_with(controller: &ControllerProcess, secret: &str) -> u16 {
    let report = json!({ "status": "success" });
    controller.admin.report("NO-JOB", secret, &report).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reloads_filter_and_secrets_and_names_what_needs_a_restart() {
    let (data, controller) = with_files().await;
    assert_eq!(report_with(&controller, "the first secret").await, 404);
    let settings = data.path().join("shoal.toml");
    std::fs::write(&settings, "log_level = \"debug\"\nworker_concurrency = 5\n").unwrap();
    std::fs::write(data.path().join("secret"), "the second secret").unwrap();
    controller.signal(Signal::HUP);
    logged(&data, "were reloaded").await;
    assert_eq!(report_with(&controller, "the first secret").await, 401);
    assert_eq!(report_with(&controller, "the second secret").await, 404);
    let log = logged(&data, "takes effect at the next start").await;
    assert!(log.contains("WORKER_CONCURRENCY"), "{log}");
    assert!(log.contains("\"level\":\"DEBUG\""), "the new filter passes lines of the level debug: {log}");
    assert!(!log.contains("secret\""), "{log}");

    std::fs::write(&settings, "log_level = \"loud\"\n").unwrap();
    std::fs::write(data.path().join("secret"), "the third secret").unwrap();
    controller.signal(Signal::HUP);
    let log = logged(&data, "nothing was reloaded").await;
    assert!(log.contains("loud") && log.contains("LOG_LEVEL"), "{log}");
    assert_eq!(report_with(&controller, "the second secret").await, 404);
    assert!(controller.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_signal_writes_the_state_to_the_log_whatever_the_filter() {
    let mut data = DataDir::new().with("LOG_LEVEL", "error");
    let controller = data.serve().await;
    controller.signal(Signal::USR1);
    controller.signal(Signal::USR2);
    let log = logged(&data, "state of the controller").await;
    let line = log.lines().find(|line| line.contains("state of the controller")).unwrap();
    let state: serde_json::Value = serde_json::from_str(line).unwrap();
    let about = controller.admin.get("/about").await.expect(200);
    assert_eq!((&state["instance"], &state["version"]), (&about["instance"], &about["version"]));
    assert_eq!(
        (&state["queued"], &state["active_runs"], &state["drained"]),
        (&json!(0), &json!(0), &json!(false))
    );
    assert!(controller.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_removes_the_pins_of_jobs_that_it_does_not_know_or_that_have_ended() {
    let mut data = DataDir::new();
    assert!(data.serve().await.terminate().await.success());
    let registry =
        registry::Registry::open(registry::Config::new(data.path().join("data/oci"))).await.unwrap();
    let name: registry::RepositoryName = "os/debian".parse().unwrap();
    let digest = registry.put_blob(&name, b"x".to_vec().into()).await.unwrap();
    for owner in ["job 01890a5d-ac96-774b-bcce-b302099a8057", "job 7", "kept by hand"] {
        registry.pin(&name, &digest, &owner.parse().unwrap()).await.unwrap();
    }
    drop(registry);
    let controller = data.serve().await;
    assert_eq!(controller.admin.get("/api/v1/registry").await.expect(200)["pins"], 1);
    assert!(controller.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stop_signal_stops_in_order() {
    let mut data = DataDir::new();
    for (signal, name) in [(Signal::QUIT, "SIGQUIT"), (Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let controller = data.serve().await;
        assert!(controller.end_by(signal).await.success(), "{name}");
        let log = data.logs();
        assert!(
            log.contains(&format!("\"signal\":\"{name}\"")) && log.contains("\"message\":\"stopped\""),
            "{log}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stop_signal_ends_a_long_stop_at_once() {
    let silent_bmc = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut data = DataDir::new();
    let controller = data.serve().await;
    let address = format!("http://{}", silent_bmc.local_addr().unwrap());
    controller.admin.register_at("SLOW-1", &address).await;
    let admin = controller.admin.clone();
    let probe = tokio::spawn(async move {
        admin.try_send(admin.request(reqwest::Method::POST, "/api/v1/servers/SLOW-1/probe")).await.is_err()
    });
    let _request = soon("the request to the BMC", silent_bmc.accept()).await.unwrap();
    // The handler of the probe is at work, so the stop waits for it.
    controller.signal(Signal::TERM);
    logged(&data, "\"message\":\"stopping\"").await;
    let began = Instant::now();
    assert!(controller.end_by(Signal::TERM).await.success());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(data.logs().contains("stopped at once by a second signal"));
    assert!(probe.await.unwrap(), "the probe had no response");
}

/// Waits until `/readyz` of a controller responds with 200.
async fn ready(client: &Client) {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let response = client.try_send(client.request(reqwest::Method::GET, "/readyz")).await;
        if response.is_ok_and(|response| response.status == 200) {
            return;
        }
        assert!(Instant::now() < deadline, "the controller is not ready");
    }
}

fn token_in(printed: &str) -> Option<&str> {
    printed.split_once("shown only now: ")?.1.split_once('\n').map(|(token, _)| token)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_token_is_printed_and_stored_before_the_controller_is_ready() {
    for _ in 0..3 {
        let data = DataDir::new();
        let output = data.path().join("printed");
        let mut child =
            data.command().stdout(File::create(&output).unwrap()).stderr(Stdio::null()).spawn().unwrap();
        let client = Client::anonymous(data.base());
        ready(&client).await;
        let printed = std::fs::read_to_string(&output).unwrap();
        let token = token_in(&printed);
        let accepted = match token {
            Some(token) => client.with_token(token).get("/api/v1/jobs").await.status == 200,
            None => false,
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(accepted, "{printed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_could_not_be_shown_is_not_stored_and_the_next_start_shows_one() {
    let mut data = DataDir::new();
    let errors = data.path().join("errors");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = data.command().stdout(full).stderr(File::create(&errors).unwrap()).spawn().unwrap();
    ready(&Client::anonymous(data.base())).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let errors = std::fs::read_to_string(&errors).unwrap();
    assert!(errors.contains("could not be shown and was not stored"), "{errors}");
    let controller = data.serve().await;
    controller.admin.get("/api/v1/jobs").await.expect(200);
    assert!(controller.terminate().await.success());
}
