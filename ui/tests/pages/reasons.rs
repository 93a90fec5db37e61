//! What pages say of why: queued jobs and stopped batches on the overview, racks in need, a full registry, an ended job, and as of when a
//! page is.

use askama::Template;
use serde_json::{Value, json};
use ui::data::OverviewJson;
use ui::view::{BatchView, CallerRole, Frame, JobParts, JobView, OverviewView, RegistryTls, TableView};

use super::{BATCH, batch, drain, frame, job, of, place, ready, waiting};

fn overview(change: impl FnOnce(&mut Value)) -> String {
    let mut overview = json!({
        "at": "2026-11-23T14:32:06.000Z", "servers": 40, "last_seq": 7, "failed": 0, "succeeded": 0, "open": [], "failures": [],
        "holds": [], "waits": [], "steps": [], "ended": [], "racks": [],
    });
    change(&mut overview);
    let overview: OverviewJson = of(overview);
    OverviewView::of(frame(CallerRole::Operator), &overview, &drain(false), &ready(true), &[], "")
        .render()
        .unwrap()
}

#[test]
fn the_overview_says_what_keeps_queued_jobs_and_which_batches_have_stopped() {
    let since = "2026-11-23T14:00:00.000Z";
    let blocked = |blocker: &str, jobs: u64| json!({ "blocker": blocker, "jobs": jobs, "since": since, "next_deadline": since });
    let page = overview(|overview| {
        overview["blocked"] = json!([blocked("maintenance", 3), blocked("place", 1)]);
        overview["stopped_batches"] =
            json!([{ "batch_id": BATCH, "since": since, "failures": 2, "queued": 12 }]);
    });
    for part in [
        "queued: until the maintenance of their servers ends",
        "queued: for a worker",
        "/ui/jobs?q=condition%3Agated",
        &format!("href=\"/ui/batches/{BATCH}\""),
        "2 failures were counted; 12 jobs do not start",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn servers_that_no_job_could_clean_up_need_a_person() {
    let page = |servers: u64, named: &[&str], since: Value| {
        overview(|overview| {
            overview["cleanup"] = json!({ "servers": servers, "named": named, "since": since })
        })
    };
    let one = page(1, &["XF-1"], json!("2026-11-23T14:00:00.000Z"));
    for part in ["1 server is to clean up", "href=\"/ui/servers/XF-1\"", "media may be inserted still"] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let many = page(7, &["A", "B", "C", "D", "E"], Value::Null);
    for part in ["7 servers are to clean up", "A, B, C, D, E and 2 more", "state%3Apending-cleanup"] {
        assert!(many.contains(part), "{part}: {many}");
    }
}

#[test]
fn stopped_batches_push_no_failure_and_no_hold_off_the_overview() {
    let at = "2026-11-23T14:00:00.000Z";
    let stopped =
        |n: usize| json!({ "batch_id": format!("{BATCH}-{n}"), "since": at, "failures": 2, "queued": 12 });
    let failed = |n: usize| {
        json!({ "class": format!("class-{n}"), "step": "webhook.wait", "summary": "s", "next_action": "n", "jobs": 1,
                "newest_job": "01a205f1-1b43-71f3-9bb7-46f5185387f1", "newest_at": at, "servers": ["A"] })
    };
    let held = |n: usize| json!({ "class": format!("hold-{n}"), "detail": "d", "jobs": 1, "since": at });
    let shown = |failures: usize, holds: usize, batches: usize| {
        let page = overview(|overview| {
            overview["failures"] = (0..failures).map(failed).collect();
            overview["holds"] = (0..holds).map(held).collect();
            overview["stopped_batches"] = (0..batches).map(stopped).collect();
        });
        let found = ["class class-", "class hold-", "has stopped</a>"].map(|part| page.matches(part).count());
        (found, page)
    };
    for ([failures, holds, batches], expected) in [
        ([3, 2, 20], [3, 2, 3]),
        ([20, 20, 20], [4, 2, 2]),
        ([0, 0, 20], [0, 0, 8]),
        ([20, 1, 0], [7, 1, 0]),
        ([1, 1, 1], [1, 1, 1]),
    ] {
        let (found, page) = shown(failures, holds, batches);
        assert_eq!(found, expected, "{failures} {holds} {batches}: {page}");
        let more = failures + holds + batches - expected.iter().sum::<usize>();
        assert_eq!(page.contains("<a href=\"/ui/batches\">all batches</a>"), more > 0, "{page}");
        let capped = page.contains("of the stopped batches only the newest 20 are counted");
        assert_eq!(capped, more > 0 && batches == 20, "{page}");
    }
}

#[test]
fn racks_that_need_something_are_not_those_that_are_left_out() {
    let rack = |number: usize, failed: u64| {
        json!({ "site": "north", "rack": format!("r{number:03}"), "failed": failed, "held": 0, "waiting": 0, "working": 0, "queued": 0,
                "done": 1, "idle": 0 })
    };
    let page = overview(|overview| {
        overview["racks"] = (0..200).map(|number| rack(number, u64::from(number == 199))).collect();
    });
    assert!(page.contains("140 more racks"), "{page}");
    assert!(page.contains("rack%3Dr199") && !page.contains("rack%3Dr198"), "{page}");
}

#[test]
fn what_failed_and_what_to_do_are_two_paragraphs_and_each_is_cut_alone() {
    let page = overview(|overview| {
        overview["failures"] = json!([{
            "class": "media", "step": "webhook.wait", "summary": "x".repeat(900), "next_action": "run `shoal bmc probe A`", "jobs": 1,
            "newest_job": "01a205f1-1b43-71f3-9bb7-46f5185387f1", "newest_at": "2026-11-23T13:54:12.000Z", "servers": ["A"],
        }]);
    });
    assert!(page.contains("<p><b>What to do:</b> Run <code>shoal bmc probe A</code></p>"), "{page}");
}

fn job_page(mut job: Value, steps: Value, media: Value) -> String {
    job["slot_plan"] = Value::Null;
    (job["verbs"], job["steps"], job["events"]) = (json!([]), steps, json!([]));
    let why = json!({
        "condition": "ended", "reason": null, "summary": "it ended", "since": "2026-11-23T14:20:40.000Z", "deadline": null,
        "ends_by": "nothing", "next_action": "nothing", "evidence": [],
    });
    let parts = JobParts { media: of(media), ..JobParts::default() };
    JobView::of(frame(CallerRole::Operator), &of(job), &of(why), &parts).render().unwrap()
}

#[test]
fn the_times_of_a_job_move_and_an_ended_one_waits_for_no_read() {
    let unread = json!([{
        "image": "boot", "size": 1000, "bytes": 0, "first_read_at": null, "boot_read_at": null, "last_read_at": null, "ended_at": null,
    }]);
    let open = job_page(waiting(), json!([]), unread.clone());
    assert!(open.contains("<dt>Created</dt><dd><time datetime=\"2026-11-23T14:06:54Z\""), "{open}");
    assert!(open.contains("First read <span>not yet</span>"), "{open}");
    let ended = job_page(job("failed"), json!([]), unread);
    assert!(ended.contains("First read <span>never</span>"), "{ended}");
    assert!(!ended.contains("is undone"), "{ended}");
}

/// Rows of steps by name and phase.
fn steps(rows: &[(&str, &str)]) -> Value {
    let at = "2026-11-23T14:06:54.000Z";
    let row = |(step, phase): &(&str, &str)| json!({ "step": step, "phase": phase, "attempt": 1, "started_at": at, "ended_at": at });
    rows.iter().map(row).collect()
}

#[test]
fn an_ended_job_says_what_it_left_of_its_machine_by_the_steps_that_changed_something() {
    const NOTHING: &str = "<dd>nothing was changed</dd>";
    const NOT_STARTED: &str = "media ejected, boot setting cleared; the job did not start its boot image";
    const STARTED: &str = "media ejected, boot setting cleared; the disk stays as it was written";
    let cleanup = [("cleanup.power-off", "skipped"), ("cleanup.grant", "done")];
    for (forward, said) in [
        (vec![], NOTHING),
        (vec![("validate", "failed")], NOTHING),
        (
            vec![("validate", "done"), ("redfish.discover", "failed"), ("redfish.power-off", "skipped")],
            NOTHING,
        ),
        (vec![("redfish.discover", "done"), ("redfish.mount.task", "intent")], NOT_STARTED),
        (vec![("redfish.mount.task", "done"), ("redfish.power-on", "intent")], STARTED),
    ] {
        let page = job_page(job("failed"), steps(&[&forward[..], &cleanup].concat()), json!([]));
        assert!(page.contains(said), "{forward:?} {said}: {page}");
    }
    for class in ["unreadable", "restored"] {
        let mut left = job("failed");
        left["failure"]["class"] = json!(class);
        let page = job_page(left, steps(&[("redfish.power-on", "done")]), json!([]));
        assert!(page.contains("not cleaned up: the job was ended without its cleanup"), "{page}");
    }
}

#[test]
fn a_registry_whose_disk_is_full_says_so_even_when_it_is_read_only() {
    let page = registry_page(json!(null), false, RegistryTls::None);
    assert!(page.contains("20.0 MiB on the disk of the registry; <code>REGISTRY_RESERVE</code>"), "{page}");
    assert!(page.contains("></svg>Full"), "{page}");
    let both = registry_page(json!("a scrub found damage"), false, RegistryTls::None);
    assert!(both.contains("></svg>Read-only") && both.contains("></svg>Full"), "{both}");
    let sound = registry_page(json!(null), true, RegistryTls::None);
    assert!(sound.contains("></svg>Free") && !sound.contains("></svg>Full"), "{sound}");
}

/// The page of the registry, whose disk has room if it accepts pushes.
fn registry_page(read_only: Value, accepts: bool, tls: RegistryTls) -> String {
    let status = json!({
        "accepts_pushes": accepts, "free_bytes": 20_971_520, "read_only": read_only, "pins": 0, "quotas": [],
        "scrub": { "last_verified": null, "blobs": 0, "bytes": 0, "quarantined": [] },
    });
    let (frame, none) = (frame(CallerRole::Operator), of(json!({ "repositories": [] })));
    TableView::registry(frame, &of(status), &none, place(tls)).render().unwrap()
}

#[test]
fn the_commands_of_the_registry_check_the_certificate_that_a_client_meets() {
    let page = |tls| registry_page(json!(null), true, tls);
    let plain = page(RegistryTls::None);
    assert!(plain.contains("skopeo copy --dest-tls-verify=false oci:"), "{plain}");
    let elsewhere = page(RegistryTls::Elsewhere);
    assert!(elsewhere.contains("skopeo login 10.20.0.5:8080"), "{elsewhere}");
    let own = page(RegistryTls::OwnListener);
    assert!(
        own.contains("--dest-cert-dir shoal-ca oci:") && own.contains("<code>authority_sha256</code>"),
        "{own}"
    );
    // The authority is read from the controller, and a failed read leaves no file that a client would take for it.
    let read =
        "shoal ca export --from https://10.20.0.5:8080 --fingerprint SHA256 &#62; shoal-ca/new &#38;&#38; mv";
    assert!(own.contains(read), "{own}");
    for checked in [own, elsewhere] {
        assert!(!checked.contains("tls-verify=false"), "{checked}");
    }
}

#[test]
fn a_stopped_batch_blames_its_canaries_only_when_they_stopped_it() {
    // 240 jobs, 2 canaries, a stop after 5 failures.
    let page = |failures: u64, progress: Value| {
        let mut batch = batch("why");
        (batch["stop"]["failures"], batch["progress"]) = (json!(failures), progress);
        BatchView::of(frame(CallerRole::Operator), &of(batch)).render().unwrap()
    };
    let progress = |queued: u64, running: u64, succeeded: u64, failed: u64, cancelled: u64| json!({ "queued": queued, "running": running, "succeeded": succeeded, "failed": failed, "cancelled": cancelled });
    let limit = |failures: u64| format!("The batch stopped after {failures} failures");
    let canary = || "A canary did not succeed".to_owned();
    for (failures, progress, said) in [
        (1, progress(238, 1, 0, 1, 0), canary()),
        (5, progress(238, 0, 0, 2, 0), canary()),
        // Jobs behind the canaries were cancelled; they have not begun.
        (1, progress(200, 0, 0, 1, 39), canary()),
        // The operator continued the batch after a canary had failed.
        (5, progress(200, 0, 34, 6, 0), limit(5)),
        (5, progress(233, 0, 1, 6, 0), limit(5)),
        (6, progress(112, 20, 100, 6, 2), limit(6)),
    ] {
        let page = page(failures, progress.clone());
        assert!(page.contains(&said), "{failures} {progress} {said}: {page}");
    }
}

#[test]
fn a_page_without_a_stream_says_as_of_when_it_is_and_the_response_to_a_form_has_no_way_to_read_it_again() {
    let batches = of(json!({ "batches": [] }));
    for (stream, reads, stands) in
        [(None, true, true), (None, false, false), (Some("/events".to_owned()), true, false)]
    {
        let frame = Frame { stream, reads, ..frame(CallerRole::Viewer) };
        let page = TableView::batches(frame, &batches).render().unwrap();
        assert_eq!(
            page.contains("data-state=\"stands\" href=\"/ui/jobs\"><span>As of 14:32 UTC"),
            stands,
            "{page}"
        );
    }
}
