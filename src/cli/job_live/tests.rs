//! The timeline of a job as an operator sees it.

use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-02T10:00:00Z".parse().unwrap()
}

fn scene() -> JobScene {
    let step = |name: &str, phase: &str, attempt: u64, from: &str, to: Option<&str>| {
        json!({"step": name, "phase": phase, "attempt": attempt, "started_at": format!("2026-01-02T{from}Z"),
               "ended_at": to.map(|to| format!("2026-01-02T{to}Z"))})
    };
    let job = json!({
        "job_id": "0192f3a4-5b6c-7abc-8def-0123456789ab", "server_serial": "XF-2041", "status": "provisioning",
        "outcome": null, "step": "install.wait", "created_at": "2026-01-02T09:57:10.000Z",
        "deadline_at": "2026-01-02T11:57:10.000Z",
        "wait": {"reason": "webhook", "detail": "the installer runs", "deadline": "2026-01-02T11:02:00.000Z"},
        "steps": [
            step("validate", "done", 1, "09:57:10.000", Some("09:57:10.100")),
            step("iso.build", "skipped", 1, "09:57:10.100", Some("09:57:10.100")),
            step("redfish.mount.boot", "done", 3, "09:57:11.000", Some("09:57:25.200")),
            step("install.wait", "intent", 1, "09:57:30.000", None),
        ],
    });
    let explanation = json!({
        "summary": "waiting for the installation report of the maintenance OS",
        "ends_by": "the report, or a completion sign of the recipe",
        "next_action": "nothing: the installer runs; its console shows more if it stands still for long",
    });
    let mut scene = JobScene { job, explanation, ..JobScene::default() };
    let reads = |bytes: u64| {
        json!({"media": [
            {"image": "boot", "size": 1_300_000_000_u64, "bytes": bytes, "first_read_at": "2026-01-02T09:58:00.000Z",
             "ended_at": null},
            {"image": "task", "size": 2_000_000, "bytes": 0, "first_read_at": null, "ended_at": null},
        ]})
    };
    for second in 0..=10 {
        let at = now() - jiff::SignedDuration::from_secs(10 - second);
        scene.read_media(&reads(400_000_000 + second.unsigned_abs() * 10_000_000), at);
    }
    for (time, percent) in [("09:59:00", 10), ("09:59:40", 50)] {
        scene.read_event(&json!({
            "type": "report.progress", "time": format!("2026-01-02T{time}.000Z"),
            "data": {"step": "write-image", "percent": percent},
        }));
    }
    scene
}

#[test]
fn the_timeline_shows_steps_waits_bytes_and_what_to_do() {
    let times = Times { utc: false, now };
    let mut all = String::new();
    let mut add = |title: &str, scene: &JobScene, screen: Screen| {
        all.push_str(&format!("==== {title}\n{}\n\n", scene.lines(screen, times).join("\n")));
    };
    let of_width = |width| Screen { width: Some(width), ..Screen::PIPE };
    add("60 columns", &scene(), of_width(60));
    add("80 columns, without Unicode", &scene(), Screen { ellipsis: "..", ..of_width(80) });
    add("120 columns", &scene(), of_width(120));
    let mut ended = scene();
    ended.job["status"] = json!("complete");
    ended.job["outcome"] = json!("failed");
    ended.job["last_update"] = json!("2026-01-02T10:03:10.000Z");
    ended.job["steps"][3]["phase"] = json!("failed");
    ended.job["steps"][3]["ended_at"] = json!("2026-01-02T10:03:00.000Z");
    ended.explanation = json!({
        "summary": "failed at install.wait: the installer reported: no disk of 480 GB", "ends_by": "nothing: the run has ended",
        "next_action": "check the disks of the machine, then shoal job retry",
    });
    add("the end", &ended, of_width(100));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/cli-job-watch.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    assert_eq!(all, std::fs::read_to_string(path).unwrap_or_default(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[test]
fn no_line_is_longer_than_the_terminal_and_colours_change_no_letter() {
    let times = Times { utc: false, now };
    for room in [40, 60, 80, 200] {
        let screen = Screen { width: Some(room), ..Screen::PIPE };
        let lines = scene().lines(screen, times);
        assert!(lines.iter().all(|line| width(line) <= room), "{room}: {lines:#?}");
        let painted = scene().lines(Screen { colour: true, ..screen }, times);
        let bare: Vec<String> = painted.iter().map(|line| crate::cli::output::bare(line)).collect();
        assert_eq!(bare, lines);
    }
}

#[test]
fn an_image_that_is_no_longer_served_shows_no_bytes() {
    let mut scene = scene();
    scene.read_media(
        &json!({"media": [{"image": "boot", "size": 10, "bytes": 10, "first_read_at": "2026-01-02T09:58:00.000Z",
                           "ended_at": "2026-01-02T09:59:00.000Z"}]}),
        now(),
    );
    assert!(scene.media.is_empty());
}

#[test]
fn a_step_that_begins_again_is_measured_from_there() {
    let mut scene = scene();
    scene.read_event(&json!({
        "type": "report.progress", "time": "2026-01-02T09:59:50.000Z", "data": {"step": "write-image", "percent": 5},
    }));
    assert_eq!(scene.installer.unwrap().text(now()), "write-image, 5 %");
}
