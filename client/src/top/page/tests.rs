//! The page at the sizes of terminals.

use jiff::Timestamp;

use super::*;

fn now() -> Timestamp {
    "2026-01-02T10:00:00Z".parse().unwrap()
}

fn page() -> Page {
    let failure = |jobs: u64, class: &str, step: &str, summary: &str, action: &str| {
        json!({"jobs": jobs, "class": class, "step": step, "summary": summary, "next_action": action,
               "servers": ["XF-2041", "XF-2042", "XF-2043"], "newest_at": "2026-01-02T09:58:00.000Z"})
    };
    let wait = |jobs: u64, reason: &str| {
        json!({"jobs": jobs, "reason": reason, "since": "2026-01-02T09:40:00.000Z",
               "next_deadline": "2026-01-02T10:25:00.000Z"})
    };
    let open =
        |jobs: u64, state: &str| json!({"jobs": jobs, "state": state, "since": "2026-01-02T09:30:00.000Z"});
    // The fields are those of an event of the controller, as `shoal job events --json` shows it.
    let sample: Value =
        serde_json::from_str(include_str!("../../../../golden/cli-json/job-events.json")).unwrap();
    let sample = sample["events"][0].clone();
    let event = |seq: u64, level: &str, message: &str| {
        let mut event = sample.clone();
        for (name, value) in [
            ("seq", json!(seq)),
            ("time", json!(format!("2026-01-02T09:59:{seq:02}.000Z"))),
            ("level", json!(level)),
            ("server_serial", json!("XF-2041")),
            ("step", json!("redfish.mount.boot")),
            ("message", json!(message)),
        ] {
            assert!(event.get(name).is_some(), "an event of the controller has no {name}");
            event[name] = value;
        }
        event
    };
    Page {
        overview: json!({
            "at": "2026-01-02T10:00:00.000Z", "servers": 512, "last_seq": 99, "succeeded": 120, "failed": 14,
            "open": [open(3, "queued"), open(40, "waiting"), open(12, "working"), open(1, "held")],
            "failures": [
                failure(11, "media", "redfish.mount.boot", "the BMC read no byte of the image", "check the network from the BMC to MEDIA_BASE_URL"),
                failure(3, "bmc_unreachable", "redfish.probe", "no response of the BMC", "check power and cable of the BMC"),
            ],
            "holds": [{"jobs": 1, "class": "operator", "detail": "held by ann: the rack is being moved", "since": "2026-01-02T08:00:00.000Z"}],
            "waits": [wait(30, "webhook"), wait(6, "power_permit"), wait(3, "limit"), wait(1, "eject")],
        }),
        readiness: json!({"status": "ready", "checks": {"disk": {"ok": true, "free_bytes": 120_u64 << 30}}}),
        registry: json!({"read_only": null, "accepts_pushes": true, "free_bytes": 96_u64 << 30, "scrub": {"quarantined": []}}),
        events: (1..=20)
            .map(|seq| event(seq, if seq % 5 == 0 { "warn" } else { "info" }, "inserted the boot medium"))
            .collect(),
        stale: None,
    }
}

#[test]
fn the_page_fits_every_terminal_and_shows_first_what_needs_a_person() {
    let times = Times { utc: false, now };
    let mut all = String::new();
    for (columns, rows) in [(80, 24), (120, 40), (200, 60)] {
        let screen = Screen { width: Some(columns), height: rows, live: true, ..Screen::PIPE };
        let lines = page().lines(screen, times);
        assert!(lines.len() <= rows, "{} lines in {rows}", lines.len());
        assert!(lines.iter().all(|line| width(line) <= columns), "{lines:#?}");
        all.push_str(&format!("==== {columns}x{rows}\n{}\n\n", lines.join("\n")));
    }
    let once = Screen { height: usize::MAX, ..Screen::PIPE };
    all.push_str(&format!("==== a pipe\n{}\n", page().lines(once, times).join("\n")));
    let mut quiet = page();
    for key in ["failures", "holds", "open", "waits"] {
        quiet.overview[key] = json!([]);
    }
    quiet.readiness = json!({"status": "not ready", "checks": {"disk": {"ok": false, "free_bytes": 5, "message": "the data disk has less than 256 MiB free"}}});
    quiet.registry = Value::Null;
    all.push_str(&format!("\n==== nothing to do, on a full disk\n{}\n", quiet.lines(once, times).join("\n")));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/cli-top.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    assert_eq!(all, std::fs::read_to_string(path).unwrap_or_default(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[test]
fn a_small_terminal_shows_the_causes_before_anything_else() {
    let screen = Screen { width: Some(40), height: 10, live: true, ..Screen::PIPE };
    let lines = page().lines(screen, Times { utc: false, now });
    assert!(lines.len() <= 10);
    assert!(lines[2].starts_with("NEEDS A PERSON") && lines[3].contains("held"), "{lines:#?}");
}

#[test]
fn a_page_that_is_not_new_says_so() {
    let stale = Page { stale: Some("cannot reach the controller".to_owned()), ..page() };
    let lines = stale.lines(Screen::PIPE, Times { utc: false, now });
    assert!(lines[0].starts_with("not refreshed: cannot reach"), "{}", lines[0]);
}

#[test]
fn holds_of_several_reasons_say_how_many_have_the_shown_one() {
    let held = |alike: u64| {
        let mut page = page();
        page.overview["holds"][0]["jobs"] = json!(40);
        page.overview["holds"][0]["alike"] = json!(alike);
        let lines = page.lines(Screen { height: usize::MAX, ..Screen::PIPE }, Times { utc: false, now });
        lines.into_iter().find(|line| line.contains("held    operator")).unwrap()
    };
    assert!(held(3).ends_with("the rack is being moved (3 of 40)"), "{}", held(3));
    assert!(held(40).ends_with("the rack is being moved"), "{}", held(40));
}

#[test]
fn stopped_batches_and_what_keeps_queued_jobs_are_on_the_page() {
    let (mut page, times) = (page(), Times { utc: false, now });
    page.overview["stopped_batches"] =
        json!([{"batch_id": "b-7", "since": "2026-01-02T09:30:00.000Z", "failures": 2, "queued": 12}]);
    page.overview["blocked"] = json!([{"blocker": "maintenance", "jobs": 3, "since": "2026-01-02T09:30:00.000Z",
                                       "next_deadline": "2026-01-02T10:25:00.000Z"}]);
    page.overview["cleanup"] = json!({"servers": 4, "named": ["A"], "since": null});
    let person = page.needs_a_person(times);
    assert!(person.iter().any(|line| matches!(line, Line::Bad(text) if text.contains("4 to clean up"))));
    assert!(person.iter().any(|line| matches!(line, Line::Bad(text) if text.contains("12 queued") && text.contains("shoal batch continue b-7"))));
    let waits = page.waits(times);
    assert!(
        waits.iter().any(|line| matches!(line, Line::Plain(text) if text.contains("queued: maintenance")))
    );
}
