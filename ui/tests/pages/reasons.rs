//! What pages say of why: queued jobs and stopped batches on the overview, racks in need, a full registry, an ended job, and as of when a
//! page is.

use askama::Template;
use serde_json::{Value, json};
use ui::data::{MediaRead, OverviewJson};
use ui::view::{BatchView, CallerRole, Frame, JobView, OverviewView, TableView};

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
    let media: Vec<MediaRead> = of(media);
    JobView::of(frame(CallerRole::Operator), &of(job), &of(why), &media, None).render().unwrap()
}

#[test]
fn the_times_of_a_job_move_and_an_ended_one_waits_for_no_read() {
    let unread = json!([{
        "image": "boot", "size": 1000, "bytes": 0, "first_read_at": null, "boot_read_at": null, "last_read_at": null, "ended_at": null,
    }]);
    let open = job_page(waiting(), json!([]), unread.clone());
    assert!(open.contains("<dt>Created</dt><dd><time datetime=\"2026-11-23T14:06:54Z\""), "{open}");
    assert!(open.contains("First read <span>not yet</span>"), "{open}");
    let step = json!([{
        "step": "validate", "phase": "done", "attempt": 1, "started_at": "2026-11-23T14:06:54.000Z",
        "ended_at": "2026-11-23T14:06:54.040Z",
    }]);
    let ended = job_page(job("failed"), step, unread);
    assert!(ended.contains("First read <span>never</span>"), "{ended}");
    assert!(ended.contains("the disk stays as it was written") && !ended.contains("is undone"), "{ended}");
}

#[test]
fn a_registry_whose_disk_is_full_says_so_and_its_commands_reach_it() {
    let status = |accepts: bool| {
        json!({
            "accepts_pushes": accepts, "free_bytes": 20_971_520, "read_only": null, "pins": 0, "quotas": [],
            "scrub": { "last_verified": null, "blobs": 0, "bytes": 0, "quarantined": [] },
        })
    };
    let page = |accepts, over_tls| {
        let (frame, none) = (frame(CallerRole::Operator), of(json!({ "repositories": [] })));
        TableView::registry(frame, &of(status(accepts)), &none, place(over_tls)).render().unwrap()
    };
    let full = page(false, false);
    assert!(full.contains("20.0 MiB on the disk of the registry; <code>REGISTRY_RESERVE</code>"), "{full}");
    assert!(full.contains("></svg>Full"), "{full}");
    assert!(full.contains("skopeo copy --dest-tls-verify=false oci:"), "{full}");
    let sound = page(true, true);
    assert!(sound.contains("></svg>Free") && !sound.contains("tls-verify=false"), "{sound}");
    assert!(sound.contains("shoal ca export") && sound.contains("--dest-cert-dir shoal-ca"), "{sound}");
}

#[test]
fn a_batch_that_stopped_at_its_canaries_says_so() {
    let page = |succeeded: u64| {
        let mut batch = batch("why");
        batch["progress"]["succeeded"] = json!(succeeded);
        BatchView::of(frame(CallerRole::Operator), &of(batch)).render().unwrap()
    };
    assert!(page(1).contains("A canary did not succeed"), "{}", page(1));
    assert!(page(100).contains("The batch stopped after 6 failures"), "{}", page(100));
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
            page.contains("data-state=\"stands\" href=\"/ui/jobs\">As of 14:32 UTC"),
            stands,
            "{page}"
        );
    }
}
