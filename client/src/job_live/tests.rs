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
    let mut firmware = scene();
    firmware.installer = None;
    for (index, step, of) in [(2, "firmware.verify", "bmc"), (3, "firmware.upload", "bios")] {
        firmware.job["steps"][index]["step"] = json!(step);
        firmware.job["steps"][index]["of"] = json!(of);
    }
    firmware.job["step"] = json!("firmware.upload");
    firmware.read_media(
        &json!({"media": [{"image": "firmware", "size": 64 << 20, "bytes": 16 << 20, "since": "2026-01-02T09:58:00.000Z",
                           "first_read_at": "2026-01-02T09:58:00.000Z", "ended_at": null}]}),
        now(),
    );
    add("a firmware image", &firmware, of_width(80));
    let mut image = scene();
    for (second, part) in [(20, 100_u64), (30, 150), (40, 200), (50, 250)] {
        image.read_event(&progress(second, Some((part << 20, 1 << 30))));
    }
    add("the OS image is written", &image, of_width(80));
    image.read_event(&progress(55, None));
    add("a step without bytes", &image, of_width(80));
    add(
        "an installation of fourteen steps on 24 lines",
        &long(),
        Screen { height: 24, live: true, ..of_width(80) },
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/cli-job-watch.txt");
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
        let bare: Vec<String> = painted.iter().map(|line| crate::output::bare(line)).collect();
        assert_eq!(bare, lines);
    }
}

/// A report of the installer, in the last minute.
fn progress(second: u32, read: Option<(u64, u64)>) -> Value {
    let mut data = json!({"step": "image-linux.service", "percent": 40});
    if let Some((bytes, total)) = read {
        data["bytes"] = json!(bytes);
        data["total"] = json!(total);
    }
    json!({"type": "report.progress", "time": format!("2026-01-02T09:59:{second:02}.000Z"), "data": data})
}

/// A job at its fourteenth step.
fn long() -> JobScene {
    let mut scene = scene();
    let (current, first) = (scene.job["steps"][3].clone(), scene.job["steps"][0].clone());
    let mut steps: Vec<Value> = (1..=13)
        .map(|number| {
            let mut step = first.clone();
            step["step"] = json!(format!("step.{number}"));
            step
        })
        .collect();
    steps.push(current);
    scene.job["steps"] = json!(steps);
    scene.explanation["summary"] = json!(
        "waiting for the installation report of the maintenance OS; the machine has read its medium and has reported \
         its progress, and the image is written"
    );
    scene
}

#[test]
fn why_and_what_to_do_fit_the_terminal_whatever_has_been_done() {
    let times = Times { utc: false, now };
    for height in [12, 16, 24, 60] {
        let screen = Screen { width: Some(80), height, live: true, ..Screen::PIPE };
        let lines = long().lines(screen, times);
        let text = lines.join("\n");
        assert!(lines.len() < height, "{height}: {text}");
        for part in ["install.wait", "webhook: the installer runs", "why", "ends by", "what to do"] {
            assert!(text.contains(part), "{height}: {part} is not in\n{text}");
        }
        assert_eq!(text.contains("steps done"), [16, 24].contains(&height), "{height}: {text}");
    }
    // A failure is not among the steps that are done.
    let mut failed = long();
    failed.job["steps"][2]["phase"] = json!("failed");
    let screen = Screen { width: Some(80), height: 24, live: true, ..Screen::PIPE };
    assert!(failed.lines(screen, times).iter().any(|line| line.contains("step.3")));
}

#[test]
fn after_a_fallback_to_another_slot_the_medium_that_is_open_has_a_rate() {
    let mut scene = scene();
    let row = |since: &str, bytes: u64, ended: Option<&str>| {
        json!({"image": "boot", "size": 1 << 30, "bytes": bytes, "since": since, "first_read_at": since,
               "ended_at": ended})
    };
    for second in 0..=4_i64 {
        let first = row("2026-01-02T09:50:00.000Z", 900 << 20, Some("2026-01-02T09:55:00.000Z"));
        let second_row = row("2026-01-02T09:56:00.000Z", (second.unsigned_abs() * 10) << 20, None);
        let at = now() + jiff::SignedDuration::from_secs(second);
        scene.read_media(&json!({"media": [first, second_row]}), at);
    }
    let text = scene.media["boot medium"].rate.text(Some(1 << 30));
    assert_eq!(text, "40.0 MiB of 1.0 GiB (3 %), 10.0 MiB/s, 1m38s left");
}

#[test]
fn reads_that_are_recorded_every_ten_seconds_have_a_steady_rate() {
    let mut scene = JobScene::default();
    let start = now();
    for second in 0..=100_i64 {
        let recorded = second / 10 * 10;
        let at = |second: i64| start + jiff::SignedDuration::from_secs(second);
        let row = json!({"image": "boot", "size": 1_u64 << 40, "bytes": recorded.unsigned_abs() << 20,
            "since": "2026-01-02T09:56:00.000Z", "first_read_at": start.to_string(),
            "last_read_at": at(recorded).to_string(), "ended_at": null});
        // The page is read every two seconds.
        if second % 2 == 0 {
            scene.read_media(&json!({"media": [row]}), at(second));
        }
        if second > 10 {
            let rate = scene.media["boot medium"].rate.per_second();
            assert_eq!(rate, Some(f64::from(1 << 20)), "{second}");
        }
    }
    // A BMC that reads no more.
    let row = json!({"image": "boot", "size": 1_u64 << 40, "bytes": 100_u64 << 20, "since": "2026-01-02T09:56:00.000Z",
        "first_read_at": start.to_string(), "last_read_at": (start + jiff::SignedDuration::from_secs(100)).to_string()});
    for second in (101..200_i64).step_by(2) {
        scene.read_media(&json!({"media": [row]}), start + jiff::SignedDuration::from_secs(second));
    }
    assert_eq!(scene.media["boot medium"].rate.per_second(), Some(0.0));
}

#[test]
fn an_installer_that_is_silent_has_no_rate_but_the_time_of_its_last_report() {
    let mut scene = JobScene::default();
    scene.read_event(&progress(10, Some((100 << 20, 1 << 30))));
    scene.read_event(&progress(20, Some((200 << 20, 1 << 30))));
    let text = scene.installer.unwrap().image_text(now());
    assert_eq!(text.unwrap(), "200.0 MiB of 1.0 GiB (19 %), last report 40s ago");
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
