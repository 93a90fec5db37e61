//! Short ids of jobs and batches.

use serde_json::{Value, json};

use super::{Controller, Seen};

const ONE: &str = "0192f3a4-5b6c-7abc-8def-0123456789ab";

fn jobs(found: usize) -> impl Fn(&Seen) -> (u16, Value) {
    move |seen| {
        if seen.uri.path() != "/api/v1/jobs" {
            return (200, json!({"job_id": ONE, "status": "queued"}));
        }
        let job = |number: usize| {
            json!({
                "job_id": ONE, "short_id": format!("0192f3a4-{number:02}"), "server_serial": "XF-1",
                "status": "queued", "created_at": "2026-01-01T00:00:00.000Z",
            })
        };
        (200, json!({"jobs": (0..found).map(job).collect::<Vec<_>>(), "next": null}))
    }
}

#[test]
fn the_beginning_of_an_id_names_the_only_job_that_begins_so() {
    for command in ["show", "explain", "cancel", "hold", "resume"] {
        let controller = Controller::start(jobs(1));
        controller.shoal(&["job", command, "0192F3A4"]).ends_with(0);
        let seen = controller.seen();
        assert_eq!(seen[0].uri.to_string(), "/api/v1/jobs?id=0192F3A4&limit=11");
        assert!(seen[1].uri.path().starts_with(&format!("/api/v1/jobs/{ONE}")), "{}", seen[1].uri);
    }
}

#[test]
fn a_whole_id_costs_no_search() {
    let controller = Controller::start(jobs(1));
    controller.shoal(&["job", "show", ONE]).ends_with(0);
    assert_eq!(controller.seen().len(), 1);
}

#[test]
fn an_ambiguous_beginning_is_refused_with_its_candidates() {
    let controller = Controller::start(jobs(2));
    let ran = controller.shoal(&["job", "cancel", "0192"]).ends_with(2);
    assert_eq!(
        ran.err,
        "shoal: 2 jobs have an id that begins with 0192:\n  \
         0192f3a4-00  XF-1  queued  2026-01-01T00:00:00.000Z\n  \
         0192f3a4-01  XF-1  queued  2026-01-01T00:00:00.000Z\n\
         hint: give more characters of the id, as the first column shows them\n"
    );
    assert_eq!(controller.seen().len(), 1, "nothing was cancelled");
    let controller = Controller::start(jobs(11));
    let ran = controller.shoal(&["job", "cancel", "0192", "--json"]).ends_with(2);
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(error["error"]["error"], "ambiguous_id");
    assert_eq!(error["error"]["candidates"].as_array().unwrap().len(), 10);
    assert!(error["error"]["message"].as_str().unwrap().starts_with("more than 10 jobs"), "{error}");
}

#[test]
fn a_beginning_of_no_id_ends_with_3() {
    let controller = Controller::start(jobs(0));
    let ran = controller.shoal(&["job", "show", "0192f3a4"]).ends_with(3);
    assert!(ran.err.contains("no job has an id that begins with 0192f3a4"), "{}", ran.err);
}

#[test]
fn a_batch_is_found_by_the_beginning_of_its_id_too() {
    let controller = Controller::start(|seen| {
        let batch =
            |id: &str| json!({"batch_id": id, "progress": {}, "created_at": "2026-01-01T00:00:00.000Z"});
        match seen.uri.path() {
            "/api/v1/batches" => {
                let other = batch("0192ffff-5b6c-7abc-8def-0123456789ab");
                let one_only = seen.uri.query() == Some("id=0192f3&limit=11");
                let batches = if one_only { vec![batch(ONE)] } else { vec![batch(ONE), other] };
                (200, json!({"batches": batches, "next": null}))
            }
            path if path.contains(ONE) => (200, batch(ONE)),
            _ => (404, json!({"error": "unknown_batch", "message": "no such batch"})),
        }
    });
    controller.shoal(&["batch", "show", "0192f3"]).ends_with(0);
    controller.shoal(&["batch", "show", "0192f"]).ends_with(2);
    let ran = controller.shoal(&["batch", "list"]).ends_with(0);
    assert!(ran.out.lines().nth(1).unwrap().starts_with("0192f3a4  "), "{}", ran.out);
    let ran = controller.shoal(&["batch", "list", "-o", "wide"]).ends_with(0);
    assert!(ran.out.contains(ONE), "{}", ran.out);
}

#[test]
fn a_list_shows_short_ids_ages_and_names() {
    let controller = Controller::start(|_| {
        let now = jiff::Timestamp::now();
        let job = |short: &str, minutes: i64| {
            let created = now - jiff::SignedDuration::from_mins(minutes);
            json!({"job_id": format!("{short}-whole"), "short_id": short, "server_serial": "XF-1", "status": "queued",
                   "created_at": created.to_string()})
        };
        (200, json!({"jobs": [job("0192f3a4", 3), job("0192f3a1", 119), job("0192e3a1", 200)], "next": null}))
    });
    let ran = controller.shoal(&["job", "list"]).ends_with(0);
    assert!(
        ran.out.contains("0192f3a4 ") && ran.out.contains("  3m") && ran.out.contains("  1h59m"),
        "{}",
        ran.out
    );
    let ran = controller
        .shoal(&["job", "list", "site=a", "--attention", "--since", "2h", "-o", "name"])
        .ends_with(0);
    assert_eq!(ran.out, "0192f3a4-whole\n0192f3a1-whole\n0192e3a1-whole\n", "the controller filters");
    let sent = controller.seen().pop().unwrap().uri.to_string();
    assert!(sent.contains("filter=site%3Da+since%3A20") && sent.contains("order=attention"), "{sent}");
    let ran = controller.shoal(&["job", "list", "--utc", "-o", "wide"]).ends_with(0);
    assert!(
        ran.out.contains("0192f3a4-whole") && ran.out.contains("Z\n") && ran.out.contains("DEADLINE"),
        "{}",
        ran.out
    );
}

#[test]
fn a_command_that_writes_a_file_keeps_its_own_option() {
    let controller = Controller::start(|_| (200, json!({})));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("json");
    let ran =
        controller.shoal(&["audit", "export", "-o", file.to_str().unwrap(), "--database", "/nowhere.db"]);
    assert!(!ran.err.contains("invalid value"), "{}", ran.err);
    let text = super::refused(&["job", "list", "-o", "xml"]);
    assert!(text.contains("possible values: text, wide, json, yaml, name"), "{text}");
}
