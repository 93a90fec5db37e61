//! `shoal serve` under a service manager: its messages, the sockets that it passes, the log filter while it runs.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Instant;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use crate::command_line::shoal;
use crate::json_samples;
use crate::kit::{Client, DataDir, POLL_INTERVAL, TIME_LIMIT, binary};

/// The next message that begins so; other messages before it are skipped.
fn message(socket: &UnixDatagram, beginning: &str) -> String {
    socket.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let mut buffer = [0; 2048];
    loop {
        let length = socket.recv(&mut buffer).unwrap_or_else(|why| panic!("no message {beginning:?}: {why}"));
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.starts_with(beginning) {
            return text;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_notified_of_every_state_and_its_watchdog_is_fed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut data =
        DataDir::new().with("NOTIFY_SOCKET", path.to_str().unwrap()).with("WATCHDOG_USEC", "90000000");
    let controller = data.serve().await;
    message(&socket, "STATUS=opening");
    assert!(message(&socket, "READY=1\n").contains("STATUS=serving on 127.0.0.1:"));
    message(&socket, "WATCHDOG=1");
    controller.signal(Signal::HUP);
    assert!(message(&socket, "RELOADING=1\n").contains("MONOTONIC_USEC="));
    message(&socket, "READY=1\n");
    assert!(controller.terminate().await.success());
    message(&socket, "STOPPING=1\n");
}

/// A controller whose descriptor 3 is a socket, as a service manager starts it: only a shell can name its own process.
fn started_with(data: &DataDir, socket: TcpListener, arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 0</dev/null";
    command.args(["-c", script]).arg(binary(&[]).get_program()).arg("serve").args(arguments);
    let of_data = data.command_of(&[]);
    command.env_clear().envs(of_data.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_the_service_manager_keeps_requests_while_no_controller_runs() {
    let data = DataDir::new();
    let address: SocketAddr = data.base().strip_prefix("http://").unwrap().parse().unwrap();
    let held = TcpListener::bind(address).unwrap();
    // No controller runs yet; the request waits in the kernel.
    let early = tokio::spawn(async move {
        let client = Client::anonymous(format!("http://{address}"));
        client.try_send(client.request(Method::GET, "/healthz")).await
    });
    for _ in 0..2 {
        let mut child = started_with(&data, held.try_clone().unwrap(), &[]).spawn().unwrap();
        let client = Client::anonymous(data.base());
        let response = client.send(client.request(Method::GET, "/healthz")).await;
        assert_eq!(response.status, 200, "without a single refused connection");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap().success());
    }
    assert_eq!(early.await.unwrap().unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_no_setting_names_stops_the_start() {
    let data = DataDir::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let child = started_with(&data, other, &[]).spawn().unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("no setting names this address") && said.contains("ListenStream="), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_changes_the_log_filter_while_the_controller_runs() {
    let mut data = DataDir::new().with("LOG_LEVEL", "warn");
    let controller = data.serve().await;
    let admin = &controller.admin;
    let place = "/api/v1/log-level";
    assert_eq!(
        admin.get(place).await.expect(200),
        json!({ "filter": "warn", "changed": false, "setting": "warn" })
    );
    let marked = |text: &str| data.logs().contains(text);
    assert!(!marked("\"level\":\"DEBUG\""));
    let ran = shoal(admin, &["log", "level", "trace"]).await;
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(
        admin.get(place).await.expect(200),
        json!({ "filter": "trace", "changed": true, "setting": "warn" })
    );
    json_samples::log_level(admin).await;
    let deadline = Instant::now() + TIME_LIMIT;
    while !marked("\"level\":\"DEBUG\"") && !marked("\"level\":\"TRACE\"") {
        assert!(Instant::now() < deadline, "no line of the new filter");
        admin.get("/api/v1/jobs").await.expect(200);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    admin.post(place, &json!({ "filter": "engine=loud" })).await.refused(400, "validation_error");
    admin.post(place, &json!({ "filter": "" })).await.refused(400, "validation_error");
    let reset = shoal(admin, &["log", "level", "--reset"]).await;
    assert!(reset.status.success() && String::from_utf8_lossy(&reset.stdout).contains("warn"), "{reset:?}");
    assert_eq!(admin.get(place).await.expect(200)["changed"], false);
    let events = admin.get("/api/v1/events?limit=1000").await.expect(200);
    let said: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "controller.log-level")
        .map(|event| event["message"].as_str().unwrap())
        .collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].contains("from warn to trace by first-start"), "{said:?}");
    let audit = admin.get("/api/v1/audit?action=controller.log-level").await.expect(200);
    assert!(audit["entries"].as_array().unwrap().len() >= 2, "{audit}");

    let operator =
        admin.post("/api/v1/tokens", &json!({ "name": "op", "role": "operator" })).await.expect(201);
    let operator = admin.with_token(operator["token"].as_str().unwrap());
    operator.get(place).await.expect(200);
    operator.post(place, &json!({ "filter": "trace" })).await.refused(403, "forbidden");
    assert!(controller.terminate().await.success());
}

#[test]
fn a_dashboard_is_exported_once_and_replaced_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("monitoring");
    let run = |more: &[&str]| {
        let arguments = [&["dashboards", "export", target.to_str().unwrap()], more].concat();
        binary(&arguments).output().unwrap()
    };
    assert!(run(&[]).status.success());
    for file in ["alerts.yml", "dashboard.json", "prometheus.yml"] {
        assert!(std::fs::metadata(target.join(file)).unwrap().len() > 100, "{file}");
    }
    std::fs::write(target.join("alerts.yml"), "own rules").unwrap();
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    assert_eq!(std::fs::read_to_string(target.join("alerts.yml")).unwrap(), "own rules");
    assert!(run(&["--force"]).status.success());
    assert_ne!(std::fs::read_to_string(target.join("alerts.yml")).unwrap(), "own rules");
}
