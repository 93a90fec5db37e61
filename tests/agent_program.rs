//! The program `shoal-agent` under an operator's own system: not process 1, with the rights of an ordinary user. It finds its task on a
//! file and reports the end to the controller of the job.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};

use iso9660::{ImageOptions, ImagePlan, Profile, Tree};
use serde_json::{Value, json};

/// A controller that acknowledges every report. Returns its URL and the reports.
fn controller() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, reports) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut length, mut has_secret) = (0, false);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let line = line.trim().to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                has_secret |= line == "x-webhook-secret: report-secret";
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            assert!(has_secret, "a report without the token of its job");
            // Before the response: the program ends when it has the last one.
            let _ = sender.send(serde_json::from_slice(&body).unwrap());
            stream
                .get_mut()
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .unwrap();
        }
    });
    (url, reports)
}

/// Runs the program on a task for the serial number `SN1`. Returns its output and the last report.
fn run(target: &str, serial: &str) -> (Output, Option<Value>) {
    let (url, reports) = controller();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("task.iso");
    write_task(&path, &url, target);
    // Beside the other program: a shell between cargo and the compiler drops variables whose name has a hyphen.
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_shoal")).with_file_name("shoal-agent"));
    command.env_clear();
    // A run with line counters says where they are written.
    if let Some(counters) = std::env::var_os("LLVM_PROFILE_FILE") {
        command.env("LLVM_PROFILE_FILE", counters);
    }
    command.args(["--serial", serial, "--report-limit", "60", "--medium"]).arg(&path);
    let output = command.output().unwrap();
    (output, reports.try_iter().last())
}

fn write_task(path: &Path, url: &str, target: &str) {
    let job = json!({
        "job_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "server_serial": "SN1",
        "controller_url": url,
        "webhook_url": format!("{url}/api/v1/status-webhook/SN1"),
        "webhook_token": "report-secret",
        "recipe_schema_id": "https://shoal.dev/provisioner/recipe.schema.json",
        // A job of another time would set the clock of this machine, when the test runs as root.
        "created_at": jiff::Timestamp::now().to_string(),
    });
    let mut tree = Tree::new();
    tree.add_file("job.json", job.to_string()).unwrap();
    tree.add_file("recipe.json", json!({"task_target": target}).to_string()).unwrap();
    let image = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TASK_1", 1_700_000_000)).unwrap();
    image.write_to_file(&std::fs::File::create(path).unwrap()).unwrap();
}

#[test]
fn a_target_that_needs_the_medium_fails_in_the_report_and_in_the_exit_code() {
    let (output, report) = run("rescue.target", "sn1");
    let report = report.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!([&report["status"], &report["failed_step"]], [&json!("failed"), &json!("rescue.service")]);
    assert!(report["message"].as_str().unwrap().contains("a program of another system"), "{report}");
}

#[test]
#[ignore = "needs ten seconds of looks at the disks of this machine, a minute without any"]
fn an_inventory_of_this_machine_is_reported_and_needs_no_root() {
    let (output, report) = run("inventory.target", "SN1");
    let report = report.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!([&report["status"], &report["failed_step"]], [&json!("success"), &Value::Null]);
    assert!(report["inventory"]["cpus"].as_u64().unwrap() > 0, "{report}");
    assert!(report["log"].as_str().unwrap().contains("task.iso holds job"), "{report}");
}
