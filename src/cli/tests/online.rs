//! Commands that show what a running controller has: the content of its registry, its events, its settings, what it keeps of a
//! server, and the task image of a job.

use axum::http::Method;
use serde_json::{Value, json};

use super::super::Cli;
use super::{Controller, Seen};

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const HELD: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn tag(name: &str, digest: &str, immutable: bool) -> Value {
    let held: &[&str] = if digest == HELD { &["job J-1"] } else { &[] };
    json!({
        "tag": name, "digest": digest, "bytes": 4096, "immutable": immutable, "kind": "image", "platforms": ["linux/amd64"],
        "held_by": held, "problem": null, "pushed_at": "2026-01-02T00:00:00.000Z",
    })
}

/// A controller whose registry has one repository with its tags on two pages.
fn registry() -> Controller {
    Controller::start(|seen| match (seen.method.as_str(), seen.uri.path(), seen.uri.query()) {
        ("GET", "/api/v1/registry/repositories", _) => {
            let repository = json!({
                "name": "os/debian", "bytes": 9000, "tags": 3, "names": ["13", "v1"], "pins": 1,
                "changed_at": "2026-01-02T00:00:00.000Z",
            });
            (200, json!({ "repositories": [repository], "next": null }))
        }
        ("GET", "/api/v1/registry/repositories/os%2Fdebian", query) => {
            let (tags, next) = match query.unwrap_or_default().contains("cursor=used") {
                true => (vec![tag("v1", DIGEST, true)], Value::Null),
                false => (vec![tag("13", DIGEST, false), tag("used", HELD, false)], json!("used")),
            };
            let held = json!([{ "digest": HELD, "owner": "job J-1", "job_id": "J-1", "since": null }]);
            (
                200,
                json!({ "name": "os/debian", "bytes": 9000, "tags": tags, "next": next, "held": held, "more_held": 0 }),
            )
        }
        ("DELETE", _, _) => (202, Value::Null),
        _ => (404, json!({ "error": "not_found", "message": "none", "details": [], "request_id": "r" })),
    })
}

fn deletions(controller: &Controller) -> Vec<String> {
    let deletions = controller.seen().into_iter().filter(|seen: &Seen| seen.method == Method::DELETE);
    deletions.map(|seen| seen.uri.path().to_owned()).collect()
}

#[test]
fn repositories_and_tags_of_a_running_controller_are_listed_with_their_sizes() {
    let controller = registry();
    let all = controller.shoal(&["registry", "ls", "--online"]).ends_with(0).out;
    for part in ["os/debian", "9000", "13 v1", "1 pin"] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let one = controller.shoal(&["registry", "ls", "os/debian", "--online"]).ends_with(0);
    for part in ["13", "used", "v1", "4096", "linux/amd64", "immutable", "job J-1", DIGEST] {
        assert!(one.out.contains(part), "{part} in {}", one.out);
    }
    assert!(one.err.contains(&format!("{HELD} is held by job J-1")), "{}", one.err);
    let json = controller.shoal(&["registry", "ls", "os/debian", "--online", "--json"]).ends_with(0).json();
    assert_eq!((json["tags"].as_array().unwrap().len(), &json["next"]), (3, &Value::Null));
    controller.shoal(&["registry", "ls", "other", "--online"]).ends_with(3);
}

#[test]
fn a_tag_is_deleted_after_a_preview_and_with_consent_only() {
    let controller = registry();
    let preview = controller.shoal(&["registry", "delete", "os/debian:13"]).ends_with(0);
    assert!(preview.out.contains("would delete the tag os/debian:13"), "{}", preview.out);
    assert!(preview.err.contains("other tags: v1") && preview.err.contains("add --yes"), "{}", preview.err);
    assert!(deletions(&controller).is_empty());
    let gone = controller.shoal(&["registry", "delete", "os/debian:13", "--yes", "--json"]).ends_with(0);
    assert_eq!((&gone.json()["dry_run"], &gone.json()["tags"]), (&json!(false), &json!(["13"])));
    assert_eq!(deletions(&controller), ["/v2/os/debian/manifests/13"]);
    assert!(controller.seen().iter().all(|seen| seen.header("authorization") == Some("Bearer shoal_canary")));
}

#[test]
fn many_tags_are_previewed_together_and_deleted_only_while_their_number_is_that_of_the_preview() {
    let controller = registry();
    let many = ["registry", "delete", "os/debian:*", "os/debian:13"];
    let preview = controller.shoal(&many).ends_with(0);
    for part in ["os/debian:13", "os/debian:used", "job J-1", "would delete 2 images"] {
        assert!(preview.out.contains(part), "{part} in {}", preview.out);
    }
    assert!(!preview.out.contains("os/debian:v1"), "an immutable tag: {}", preview.out);
    assert!(preview.err.contains("--yes --expect 2"), "{}", preview.err);
    let other = controller.shoal(&[&many[..], &["--yes", "--expect", "3"]].concat()).ends_with(4);
    assert!(other.err.contains("2 now and 3 were expected"), "{}", other.err);
    assert!(deletions(&controller).is_empty());
    let gone = controller.shoal(&[&many[..], &["--yes", "--expect", "2", "--json"]].concat()).ends_with(0);
    assert_eq!(gone.json()["images"].as_array().unwrap().len(), 2, "{}", gone.out);
    assert_eq!(deletions(&controller), ["/v2/os/debian/manifests/13", "/v2/os/debian/manifests/used"]);
    // A tag of a manifest that goes too is left out; the manifest of this one has an immutable tag.
    controller
        .shoal(&["registry", "delete", "os/debian:13", &format!("os/debian@{DIGEST}"), "--yes"])
        .ends_with(1);
    // A glob that finds one image has the form of several.
    let one = controller.shoal(&["registry", "delete", "os/debian:1?", "--json"]).ends_with(0);
    assert_eq!(one.json()["images"].as_array().unwrap().len(), 1, "{}", one.out);
    // What the registry keeps is refused before the first deletion.
    controller.shoal(&["registry", "delete", "os/debian:13", "os/debian:v1", "--yes"]).ends_with(1);
    assert_eq!(deletions(&controller).len(), 2);
}

#[test]
fn what_the_registry_keeps_is_not_deleted() {
    let controller = registry();
    for (image, reason, code) in [
        ("os/debian:v1", "immutable", 1),
        (&*format!("os/debian@{DIGEST}"), "immutable", 1),
        (&*format!("os/debian@{HELD}"), "held by job J-1", 1),
        ("os/debian:none", "has no tag none", 3),
        ("os/debian", "REPOSITORY:TAG", 2),
    ] {
        let ran = controller.shoal(&["registry", "delete", image, "--yes"]).ends_with(code);
        assert!(ran.err.contains(reason), "{image}: {}", ran.err);
    }
    assert!(deletions(&controller).is_empty());
    let refuses = Controller::start(|seen| match seen.method {
        Method::DELETE => (
            403,
            json!({ "errors": [{ "code": "DENIED", "message": "this login may not delete", "detail": null }] }),
        ),
        _ => {
            let tags = [tag("13", DIGEST, false)];
            (200, json!({ "name": "os/debian", "tags": tags, "next": null, "held": [], "more_held": 0 }))
        }
    });
    let ran = refuses.shoal(&["registry", "delete", "os/debian:13", "--yes"]);
    assert!(ran.err.contains("refused to delete it: this login may not delete"), "{}", ran.err);
    let ran = refuses.shoal(&["registry", "delete", "os/debian:1*", "--yes"]).ends_with(1);
    assert!(
        ran.err.contains("image os/debian:13: ") && ran.err.contains("1 of 1 images did not succeed"),
        "{}",
        ran.err
    );
}

/// An event of the log at a position.
fn event(seq: u64) -> Value {
    let (kind, server) =
        if seq.is_multiple_of(3) { ("registry.push-tag", "XF-1") } else { ("job.created", "XF-2") };
    json!({
        "seq": seq, "time": format!("2026-01-02T00:{:02}:{:02}.000Z", seq / 60 % 60, seq % 60), "type": kind, "server_serial": server,
        "level": "info", "message": format!("event {seq}"), "actor": "ada", "job_id": null, "step": null, "attempt": 0, "data": null,
    })
}

/// A controller with events at the positions 1 to 40 and 3961 to 4000, which reads 1,000 positions for one request.
fn log() -> Controller {
    Controller::start(|seen| {
        let query: std::collections::HashMap<String, String> =
            url::form_urlencoded::parse(seen.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let of = |name: &str| query.get(name).map(String::as_str);
        let wanted = |seq: &u64| {
            let event = event(*seq);
            let is = |name: &str, want: &str| {
                event[name].as_str().unwrap().starts_with(want.trim_end_matches('*'))
            };
            of("server").is_none_or(|server| is("server_serial", server))
                && of("type").is_none_or(|types| types.split(',').any(|glob| is("type", glob)))
                && of("since").is_none_or(|since| event["time"].as_str().unwrap()[..19] >= since[..19])
        };
        let limit: usize = of("limit").unwrap().parse().unwrap();
        let log = (1..=40).chain(3961..=4000).filter(wanted);
        if let Some(after) = of("after") {
            let after: u64 = after.parse().unwrap();
            let events: Vec<Value> = log.filter(|seq| *seq > after).take(limit).map(event).collect();
            return (200, json!({ "events": events, "next": 4000, "previous": null }));
        }
        let before: u64 = of("before").unwrap().parse().unwrap_or(4001);
        let low = before.saturating_sub(1000).max(1);
        let positions: Vec<u64> = log.filter(|seq| (low..before).contains(seq)).collect();
        let shown = &positions[positions.len().saturating_sub(limit)..];
        let previous = if shown.len() == limit { shown[0] } else { low };
        let events: Vec<Value> = shown.iter().copied().map(event).collect();
        (200, json!({ "events": events, "next": before - 1, "previous": (previous > 1).then_some(previous) }))
    })
}

#[test]
fn the_newest_events_are_listed_also_across_a_part_of_the_log_that_was_removed() {
    let controller = log();
    let listed = |more: &[&str]| {
        let ran = controller.shoal(&[&["event", "list", "--json"][..], more].concat()).ends_with(0).json();
        assert_eq!((&ran["next"], &ran["read_back_to"]), (&json!(4000), &Value::Null));
        ran["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect::<Vec<u64>>()
    };
    assert_eq!(listed(&["--limit", "2"]), [3999, 4000]);
    assert_eq!(listed(&["--limit", "80"]).len(), 80);
    assert_eq!(listed(&["--limit", "80"])[..2], [1, 2], "the oldest is first");
    assert_eq!(listed(&["--type", "registry.*", "--limit", "15"]).len(), 15);
    let unknown = controller.shoal(&["event", "list", "--type", "bogus"]).ends_with(0);
    assert!(unknown.err.contains("--type bogus: this version has no such event"), "{}", unknown.err);
    assert!(listed(&["--server", "XF-2"]).iter().all(|seq| seq % 3 != 0));
    assert!(listed(&["--server", "XF-2", "--type", "registry.*"]).is_empty());
    assert_eq!(
        listed(&["--since", "2026-01-02T00:06:39Z"]),
        [3999, 4000],
        "3999 is 66 minutes, which is 06:39"
    );
    let text = controller.shoal(&["event", "list", "--utc", "--limit", "1"]).ends_with(0).out;
    for part in ["2026-01-02T00:06:40Z", "job.created", "XF-2", "event 4000"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_settings_of_a_running_controller_are_shown_with_their_origin() {
    let controller = Controller::start(|_| {
        let setting = json!({ "name": "JOB_RETENTION_DAYS", "value": "90", "origin": "environment" });
        (200, json!({ "settings": [setting], "next": null }))
    });
    let ran = controller.shoal(&["config", "show", "--online"]).ends_with(0).out;
    assert!(ran.contains("JOB_RETENTION_DAYS") && ran.contains("90") && ran.contains("environment"), "{ran}");
    assert_eq!(controller.seen()[0].uri.path(), "/api/v1/settings");
}

#[test]
fn what_is_kept_of_a_server_is_shown_without_a_new_run() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/servers" => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        "/api/v1/servers/XF-1/diagnostics" => (
            200,
            json!({ "server_serial": "XF-1", "diagnostics_id": "D-1", "ended_at": "2026-01-02T00:00:00.000Z", "verdict": "fail",
                    "checks": [{ "name": "clock", "status": "fail", "found": "400 s behind", "next_action": "set it" }] }),
        ),
        "/api/v1/servers/XF-1/card" => (
            200,
            json!({ "server_serial": "XF-1", "probed_at": "2026-01-02T00:00:00.000Z", "card": { "address": "https://192.0.2.7" } }),
        ),
        path if path.ends_with("/diagnostics") => (
            200,
            json!({ "server_serial": "XF-2", "diagnostics_id": null, "ended_at": null, "verdict": null, "checks": [] }),
        ),
        _ => (200, json!({ "server_serial": "XF-2", "probed_at": null, "card": null })),
    });
    let last = controller.shoal(&["bmc", "doctor", "XF-1", "--last", "--utc"]).ends_with(1).out;
    assert!(last.contains("400 s behind") && last.contains("2026-01-02"), "{last}");
    let none = controller.shoal(&["bmc", "doctor", "XF-2", "--last"]).ends_with(3).err;
    assert!(none.contains("`shoal bmc doctor XF-2`"), "{none}");
    let many = controller.shoal(&["bmc", "doctor", "-l", "site=a", "--last"]).ends_with(1);
    assert!(many.out.contains("server XF-1") && many.err.contains("2 of 2"), "{} {}", many.out, many.err);
    assert!(controller.shoal(&["bmc", "probe", "XF-1", "--last"]).ends_with(0).out.contains("192.0.2.7"));
    controller.shoal(&["bmc", "probe", "XF-2", "--last"]).ends_with(3);
    controller.shoal(&["bmc", "doctor", "192.0.2.7", "--last"]).ends_with(2);
    assert!(controller.seen().iter().all(|seen| seen.method == Method::GET), "nothing is run");
}

#[test]
fn the_task_image_of_a_job_is_a_url_or_a_file() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/jobs/j-1/media-url" => (
            201,
            json!({ "url": "/media/tasks/j-1/task.iso?expires=1&sig=x", "expires_at": "2026-01-02T00:00:00.000Z" }),
        ),
        "/media/tasks/j-1/task.iso" => (200, json!("the bytes of an image")),
        _ => (404, json!({ "error": "no_task_image", "message": "none", "details": [], "request_id": "r" })),
    });
    let url = controller.shoal(&["job", "media-url", "j-1"]).ends_with(0);
    assert_eq!(url.out, format!("{}/media/tasks/j-1/task.iso?expires=1&sig=x\n", controller.url));
    assert!(url.err.contains("is a secret"), "{}", url.err);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("task.iso").display().to_string();
    let saved = controller.shoal(&["job", "media-url", "j-1", "-o", &file]).ends_with(0);
    assert_eq!(saved.out, format!("{file}: 21 bytes\n"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the bytes of an image");
    let image = controller.seen().into_iter().find(|seen| seen.uri.path().starts_with("/media/")).unwrap();
    assert_eq!(image.header("authorization"), None, "the signature is the login");
    let again = controller.shoal(&["job", "media-url", "j-1", "-o", &file]).ends_with(1);
    assert!(again.err.contains("exists"), "{}", again.err);
    controller.shoal(&["job", "media-url", "j-2"]).ends_with(3);
    // What another program writes beside it is not touched.
    std::fs::remove_file(&file).unwrap();
    std::fs::write(format!("{file}.part"), "the bytes of an im").unwrap();
    controller.shoal(&["job", "media-url", "j-1", "-o", &file]).ends_with(0);
    assert_eq!(std::fs::read_to_string(format!("{file}.part")).unwrap(), "the bytes of an im");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the image has its name");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the bytes of an image");
}

#[test]
fn one_user_and_one_token_are_shown() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/users/ann" => (
            200,
            json!({ "name": "ann", "role": "operator", "disabled_at": null, "unconfirmed": true, "created_by": "ada" }),
        ),
        "/api/v1/tokens/ci" => (
            200,
            json!({ "token_id": "T-1", "name": "ci", "role": "viewer", "labels": { "site": "a" }, "registry": ["pull:os/**"],
                    "unconfirmed": true, "expires_at": null, "last_used_at": null, "created_by": "ada" }),
        ),
        _ => (404, json!({ "error": "unknown_user", "message": "none", "details": [], "request_id": "r" })),
    });
    let user = controller.shoal(&["user", "show", "ann"]).ends_with(0).out;
    assert!(user.contains("operator") && user.contains("shoal user confirm"), "{user}");
    let token = controller.shoal(&["token", "show", "ci"]).ends_with(0).out;
    for part in ["viewer", "site=a", "pull:os/**", "T-1", "shoal token confirm"] {
        assert!(token.contains(part), "{part} in {token}");
    }
    controller.shoal(&["user", "show", "bob"]).ends_with(3);
}

#[test]
fn a_search_for_events_has_a_bound_of_requests() {
    // A hundred million positions, of which each request reads a part in vain.
    let controller = Controller::start(|seen| {
        let query = seen.uri.query().unwrap();
        let before = query.split('&').find_map(|part| part.strip_prefix("before=")).unwrap();
        let before: u64 = before.parse().unwrap_or(100_000_000);
        (200, json!({ "events": [], "next": before, "previous": before - 100_000 }))
    });
    let ran = controller.shoal(&["event", "list", "--type", "disk.*", "--json"]).ends_with(0);
    assert_eq!(ran.json()["events"], json!([]));
    assert!(ran.err.contains("for older events give --since"), "{}", ran.err);
    assert_eq!(controller.seen().len(), 101);
}

#[test]
fn the_controller_finds_the_events_of_a_filter() {
    let controller = log();
    let filters =
        ["--level", "warn", "--until", "2026-01-02", "--type", "a.*", "--type", "b", "--server", "XF-1"];
    controller.shoal(&[&["event", "list", "--since", "99999d"][..], &filters].concat()).ends_with(0);
    let asked = controller.seen()[0].uri.query().unwrap().to_owned();
    for part in [
        "before=latest",
        "level=warn",
        "type=a.*%2Cb",
        "server=XF-1",
        "since=1970-01-01T00%3A00%3A00Z",
        "until=2026-01-02T00%3A00%3A00Z",
    ] {
        assert!(asked.split('&').any(|given| given == part), "{part} in {asked}");
    }
    for wrong in [
        &["--level", "bad"][..],
        &["--type", ""],
        &["--type", "job.*,run.*"],
        &["--type", "job.[ab]"],
        // What becomes old enough while the list is followed would never be shown.
        &["--until", "1h", "--watch"],
    ] {
        assert!(Cli::read(["shoal", "event", "list"].iter().chain(wrong)).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_manifest_that_does_not_exist_has_no_preview_of_its_deletion() {
    let (none, untagged) = ("c".repeat(64), "d".repeat(64));
    let there = format!("/v2/os/debian/manifests/sha256:{untagged}");
    let known = std::sync::Arc::clone(&registry().fake);
    let controller = Controller::start(move |seen| match seen.method {
        Method::HEAD if seen.uri.path() == there => (200, Value::Null),
        _ => (known.script)(seen),
    });
    let image = format!("os/debian@sha256:{none}");
    for more in [&[][..], &["--yes"]] {
        let ran = controller.shoal(&[&["registry", "delete", &image][..], more].concat()).ends_with(3);
        assert!(ran.err.contains("has no manifest") && ran.out.is_empty(), "{} {}", ran.out, ran.err);
    }
    assert!(deletions(&controller).is_empty());
    let image = format!("os/debian@sha256:{untagged}");
    let ran = controller.shoal(&["registry", "delete", &image]).ends_with(0);
    assert!(ran.out.contains("would delete the manifest"), "{}", ran.out);
}

#[test]
fn a_list_of_the_audit_log_that_goes_on_says_so() {
    let entry = json!({ "seq": 5, "action": "job.cancel", "actor": "ann", "actor_kind": "user", "count": 1 });
    let controller = Controller::start(move |seen| {
        let next =
            if seen.uri.query().unwrap_or_default().contains("actor") { Value::Null } else { json!("4") };
        (200, json!({ "entries": [entry], "head": "5:aa", "next": next }))
    });
    let ran = controller.shoal(&["audit", "list", "--limit", "1"]).ends_with(0);
    assert!(ran.err.contains("there are more entries; give a larger --limit"), "{}", ran.err);
    let ran = controller.shoal(&["audit", "list", "--limit", "1", "--actor", "ann"]).ends_with(0);
    assert!(!ran.err.contains("there are more"), "{}", ran.err);
}

#[test]
fn no_control_character_of_a_response_reaches_the_terminal() {
    // ESC, DEL, CSI as one character of C1, and a change of the text direction.
    const HOSTILE: &str = "a\u{1b}[2J\u{7f}\u{9b}2J\u{202e}b";
    let bare = |ran: &super::Ran| {
        for text in [&ran.out, &ran.err] {
            let hostile = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
            assert!(!text.contains(hostile), "{text:?}");
        }
    };
    let controller =
        Controller::start(|_| (500, json!({ "error": HOSTILE, "message": HOSTILE, HOSTILE: 1 })));
    for command in [&["job", "list"][..], &["job", "list", "--json"], &["session", "end", "A", "B"]] {
        bare(&controller.shoal(command).ends_with(1));
    }
    let controller = Controller::start(|_| {
        (
            200,
            json!({ "name": HOSTILE, "login": HOSTILE, "role": "admin", "labels": { HOSTILE: HOSTILE }, "registry": [HOSTILE] }),
        )
    });
    for format in ["text", "json", "yaml", "name"] {
        let ran = controller.shoal(&["whoami", "-o", format]).ends_with(0);
        bare(&ran);
        if format == "json" {
            assert_eq!(ran.json()["login"], HOSTILE, "the document is the same");
        }
    }
}

#[test]
fn a_support_bundle_names_the_files_whose_beginning_is_missing() {
    let controller = Controller::start(|_| {
        let file = |name: &str, cut: bool| json!({ "name": name, "text": "x\n", "cut": cut });
        (
            200,
            json!({ "made_at": "2026-01-02T10:00:00.000Z", "files": [file("a.json", false), file("b.jsonl", true)] }),
        )
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bundle.tar.gz");
    let ran = controller.shoal(&["support-bundle", "-o", path.to_str().unwrap(), "--json"]).ends_with(0);
    assert_eq!(ran.json()["files"], json!(["a.json", "b.jsonl", "cut.txt"]));
    assert!(ran.err.contains("too long") && ran.err.contains("b.jsonl"), "{}", ran.err);
}
