//! The page of one job: its media before, during and after their reads; and the causes of holds on the overview.

use askama::Template;
use serde_json::{Value, json};
use ui::view::{CallerRole, Frame, JobParts, JobView, OverviewView};

use super::{drain, event, frame, job, of, ready, waiting};

fn page(job: Value, events: &[Value], media: Value) -> String {
    page_at(frame(CallerRole::Operator).now, job, events, media)
}

fn page_at(now: jiff::Timestamp, mut job: Value, events: &[Value], media: Value) -> String {
    job["slot_plan"] = Value::Null;
    job["verbs"] = json!([]);
    job["steps"] = json!([]);
    job["events"] = json!(events);
    let why = json!({
        "condition": "waiting", "reason": "report", "summary": "it waits", "since": "2026-11-23T14:20:40.000Z",
        "deadline": null, "ends_by": "the report", "next_action": "nothing", "evidence": [],
    });
    let parts = JobParts { media: of(media), ..JobParts::default() };
    let frame = Frame { now, ..frame(CallerRole::Operator) };
    JobView::of(frame, &of(job), &of(why), &parts).render().unwrap()
}

fn medium(image: &str, ended_at: Option<&str>) -> Value {
    json!({
        "image": image, "size": 641_728_512, "bytes": 417_333_248, "first_read_at": "2026-11-23T14:07:46.000Z",
        "boot_read_at": null, "last_read_at": "2026-11-23T14:20:31.000Z", "ended_at": ended_at,
    })
}

/// The card of the media.
fn card(page: &str) -> &str {
    let from = page.find("id=\"media\"").expect("a place for the media");
    &page[from..from + page[from..].find("</section>").unwrap()]
}

#[test]
fn the_place_of_the_media_is_on_the_page_before_the_first_of_them() {
    let begun = page(waiting(), &[], json!([]));
    assert!(card(&begun).starts_with("id=\"media\" data-live>"), "{}", card(&begun));
    assert!(card(&begun).contains("No image is served for this job yet."), "{}", card(&begun));
    let ended = page(job("failed"), &[], json!([]));
    assert!(card(&ended).contains("No image was served for this job."), "{}", card(&ended));
}

#[test]
fn the_page_is_read_again_while_a_medium_is_open_or_the_job_is_queued() {
    let mut queued = waiting();
    queued["status"] = json!("queued");
    let ended = Some("2026-11-23T14:21:00.000Z");
    for (of_job, media, is_read) in [
        (waiting(), json!([medium("boot", ended), medium("task", None)]), true),
        (queued, json!([]), true),
        (waiting(), json!([medium("boot", ended)]), false),
        (job("failed"), json!([medium("boot", None)]), false),
    ] {
        let page = page(of_job, &[], media);
        assert_eq!(card(&page).contains("data-again"), is_read, "{}", card(&page));
    }
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/shoal.js")).unwrap();
    assert!(script.contains("[data-again]"), "the script reads such a page again");
}

fn report(second: u32, step: &str, bytes: Option<u64>) -> Value {
    let mut report = event(i64::from(second), "info", "image-linux.service, 41 %");
    report["type"] = json!("report.progress");
    report["time"] = json!(format!("2026-11-23T14:20:{second:02}.000Z"));
    report["data"] = json!({ "step": step, "percent": 41 });
    if let Some(bytes) = bytes {
        report["data"]["bytes"] = json!(bytes);
        report["data"]["total"] = json!(1_u64 << 30);
    }
    report
}

#[test]
fn the_bytes_of_the_os_image_are_shown_with_rate_and_remaining_time() {
    let image = "image-linux.service";
    let events = [
        report(0, image, Some(0)),
        report(20, image, Some(256 << 20)),
        report(30, image, Some(512 << 20)),
        event(31, "info", "something else"),
    ];
    let now = "2026-11-23T14:20:40Z".parse().unwrap();
    let reading = page_at(now, waiting(), &events, json!([]));
    assert!(card(&reading).contains("OS image"), "{}", card(&reading));
    assert!(card(&reading).contains("512 MiB of 1.0 GiB read, 17.1 MiB/s, 30 s left"), "{}", card(&reading));
    // The next step has no bytes.
    let later =
        page(waiting(), &[&events[..], &[report(40, "bootloader-linux.service", None)]].concat(), json!([]));
    assert!(!card(&later).contains("OS image"), "{}", card(&later));
    let ended = page(job("failed"), &events, json!([]));
    assert!(!card(&ended).contains("OS image"), "{}", card(&ended));
}

#[test]
fn an_installer_that_is_silent_has_no_rate_on_its_page() {
    let image = "image-linux.service";
    let events = [report(0, image, Some(256 << 20)), report(10, image, Some(512 << 20))];
    let at = |time: &str| {
        let shown = page_at(time.parse().unwrap(), waiting(), &events, json!([]));
        card(&shown).to_owned()
    };
    assert!(at("2026-11-23T14:20:29Z").contains("512 MiB of 1.0 GiB read, 25.6 MiB/s, 20 s left"));
    let silent = at("2026-11-23T17:20:30Z");
    assert!(silent.contains("512 MiB of 1.0 GiB read, last report 3 h ago"), "{silent}");
    assert!(!silent.contains("MiB/s") && !silent.contains("left"), "{silent}");
}

#[test]
fn the_holds_of_a_class_link_to_their_jobs_and_say_how_many_have_the_shown_detail() {
    let hold = |alike: u64| {
        let mut overview = json!({
            "at": "2026-11-23T14:32:06.000Z", "servers": 40, "last_seq": 7, "failed": 0, "succeeded": 0, "open": [],
            "failures": [], "waits": [], "steps": [], "ended": [], "racks": [],
        });
        overview["holds"] = json!([{
            "class": "operator", "detail": "rack moved", "alike": alike, "jobs": 40, "since": "2026-11-23T11:20:00.000Z",
        }]);
        let (overview, frame) = (of(overview), frame(CallerRole::Operator));
        OverviewView::of(frame, &overview, &drain(false), &ready(true), &[], "").render().unwrap()
    };
    let mixed = hold(25);
    assert!(mixed.contains("/ui/jobs?q=hold%3Aoperator"), "{mixed}");
    assert!(mixed.contains("so 25 of 40, the others for other reasons"), "{mixed}");
    assert!(!hold(40).contains("for other reasons"), "all for one reason");
}
