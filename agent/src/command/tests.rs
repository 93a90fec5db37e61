//! The program as a process of an operator's own system, not process 1: a task image as a file, a controller on loopback.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::test_kit::{FakeSys, Received, Server, VirtualClock, job_json, task_image};

/// A machine whose firmware names another serial number than the job, with one disk that cannot be opened.
struct Site {
    sys: FakeSys,
    folder: tempfile::TempDir,
    server: Server,
    reports: Arc<Mutex<Vec<(String, Value)>>>,
    output: Output,
}

/// The standard error of the program.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Site {
    /// Creates the machine; its controller responds to every report with this status.
    fn new(status: u16) -> Self {
        let sys = FakeSys::default();
        sys.file("class/dmi/id/product_serial", "FIRMWARE-1\n");
        sys.disk("sda", "pci0000:00/0000:00:05.0/ata1", 100, &[("device/vpd_pg80", "")]);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&reports);
        let server = Server::start(move |request: &Received| {
            let secret = request.header("x-webhook-secret").unwrap_or_default();
            let first = request.head.lines().next().unwrap_or_default();
            let report = serde_json::from_slice(&request.body).unwrap();
            received.lock().unwrap().push((format!("{first} {secret}"), report));
            (status, Vec::new(), Vec::new())
        });
        Self { sys, folder: tempfile::tempdir().unwrap(), server, reports, output: Output::default() }
    }

    /// Writes a task image for the serial number `SN1`, and runs the program on it with these further arguments.
    fn run(&self, recipe: &Value, more: &[&str]) -> ExitCode {
        let mut job = job_json("SN1", "2026-05-31T00:00:00Z");
        job["webhook_url"] = json!(format!("{}/api/v1/status-webhook/SN1", self.server.url()));
        let path = self.folder.path().join("task.iso");
        let image = task_image(&job, "", &[("recipe.json", recipe.to_string().as_bytes())]);
        image.write_to_file(&fs::File::create(&path).unwrap()).unwrap();
        let medium = ["--medium", path.to_str().unwrap()];
        let given = medium.iter().chain(more).map(|word| (*word).to_owned());
        let clock = VirtualClock::default();
        // The folder has no device: a disk that is opened is an error.
        let dev = self.folder.path().join("dev");
        let system = System { sys: self.sys.path(), proc: self.sys.path(), dev: &dev, clock: &clock };
        program(given.collect::<Vec<_>>().into_iter(), &system, self.output.clone())
    }

    fn last(&self) -> (String, Value) {
        self.reports.lock().unwrap().last().cloned().unwrap()
    }
}

#[test]
fn an_inventory_under_another_system_is_reported_to_the_controller_of_the_job_and_opens_no_disk() {
    let site = Site::new(200);
    let code = site.run(&json!({"task_target": "inventory.target"}), &["--serial", "sn1"]);
    assert_eq!(code, ExitCode::SUCCESS, "{}", site.output.text());
    let (request, report) = site.last();
    assert_eq!(request, "POST /api/v1/status-webhook/SN1 HTTP/1.1 report-secret");
    assert_eq!(
        [&report["status"], &report["job_id"], &report["failed_step"]],
        [&json!("success"), &json!("01890a5d-ac96-774b-bcce-b302099a8057"), &Value::Null]
    );
    assert_eq!(
        [&report["inventory"]["serials"], &report["inventory"]["disks"][0]["name"]],
        [&json!(["FIRMWARE-1"]), &json!("sda")]
    );
    assert!(report["log"].as_str().unwrap().contains("task.iso holds job"), "{report}");
    assert!(site.output.text().contains("the controller acknowledged the report"), "{}", site.output.text());
}

#[test]
fn a_task_that_fails_or_whose_report_is_not_acknowledged_ends_with_1() {
    let site = Site::new(200);
    let rescue = site.run(&json!({"task_target": "rescue.target"}), &["--serial", "SN1"]);
    assert_eq!(rescue, ExitCode::FAILURE);
    let (_, report) = site.last();
    assert_eq!(
        [&report["status"], &report["failed_step"], &report["class"]],
        [&json!("failed"), &json!("rescue.service"), &json!("installer")]
    );
    assert!(report["message"].as_str().unwrap().contains("a program of another system"), "{report}");
    let busy = Site::new(503);
    let more = ["--serial", "SN1", "--report-limit", "60"];
    assert_eq!(busy.run(&json!({"task_target": "inventory.target"}), &more), ExitCode::FAILURE);
    assert_eq!(busy.last().1["status"], "success", "the task itself succeeded");
}

#[test]
fn a_medium_without_a_job_of_this_machine_ends_with_10_and_nothing_is_sent() {
    let site = Site::new(200);
    // The serial number is that of the firmware.
    let code = site.run(&json!({"task_target": "inventory.target"}), &[]);
    assert_eq!(code, ExitCode::from(NO_TASK));
    let text = site.output.text();
    assert!(text.contains("FIRMWARE-1") && text.contains("no disk was touched"), "{text}");
    assert!(site.reports.lock().unwrap().is_empty());
}

#[test]
fn an_unknown_argument_or_one_without_its_value_ends_with_64_and_the_usage() {
    for more in [&["--disk", "sda"][..], &["--serial"], &["--report-limit", "soon"]] {
        let site = Site::new(200);
        assert_eq!(
            site.run(&json!({"task_target": "inventory.target"}), more),
            ExitCode::from(WRONG_ARGUMENTS)
        );
        assert!(site.output.text().contains("usage: shoal-agent"), "{more:?}");
        assert!(site.reports.lock().unwrap().is_empty());
    }
}
