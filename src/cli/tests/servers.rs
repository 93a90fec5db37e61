//! `shoal server`, and the rules of every request.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;
use serde_json::{Value, json};

use super::{Controller, refused, shoal};

const ADD: [&str; 7] = ["server", "add", "XF-1", "--bmc-address", "192.0.2.7", "--bmc-user", "admin"];

fn password_file() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "bmc canary\n").unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn adding_a_server_sends_only_the_given_values() {
    let controller = Controller::start(|seen| (201, json!({"serial": seen.json()["serial"]})));
    let (_dir, path) = password_file();
    let ran = controller.shoal(&[&ADD[..], &["--bmc-password-file", &path]].concat()).ends_with(0);
    assert_eq!(ran.out, "server XF-1 registered\n");
    let seen = controller.seen().remove(0);
    assert_eq!((seen.method.clone(), seen.uri.to_string()), (Method::POST, "/api/v1/servers".to_owned()));
    assert_eq!(seen.header("authorization"), Some("Bearer shoal_canary"));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    let expected = json!({
        "serial": "XF-1", "bmc_address": "192.0.2.7", "bmc_username": "admin", "bmc_password": "bmc canary",
    });
    assert_eq!(seen.json(), expected);
}

#[test]
fn optional_values_are_sent_and_a_fingerprint_implies_pinned() {
    let controller = Controller::start(|seen| (200, json!({"serial": seen.json()["serial"]})));
    let (_dir, path) = password_file();
    let traits = [
        "--bmc-password-file",
        &path,
        "--vendor",
        "dell",
        "--label",
        "rack=7",
        "--label",
        "row=a=b",
        "--tls-fingerprint",
        "aa",
        "--allow-unverified-serial",
        "--media-base-url",
        "http://192.0.2.1",
    ];
    let ran = controller.shoal(&[&ADD[..], &traits[..]].concat()).ends_with(0);
    assert!(ran.out.contains("is already registered with these values"), "{}", ran.out);
    let body = controller.seen()[0].json();
    assert_eq!(body["labels"], json!({"rack": "7", "row": "a=b"}));
    assert_eq!((&body["tls"], &body["tls_fingerprint"]), (&json!("pinned"), &json!("aa")));
    assert_eq!((&body["vendor"], &body["allow_unverified_serial"]), (&json!("dell"), &json!(true)));
    assert_eq!(body["media_base_url"], "http://192.0.2.1");
}

#[test]
fn the_network_of_a_server_is_read_from_a_file_also_in_the_form_of_netplan() {
    let controller = Controller::start(|_| (200, json!({"serial": "XF-1", "revision": 4})));
    let folder = tempfile::tempdir().unwrap();
    let network =
        json!({"ethernets": {"lan": {"match": {"macaddress": "52:54:00:00:00:01"}, "dhcp4": true}}});
    for (name, text) in [("plain.json", network.clone()), ("netplan.json", json!({"network": network}))] {
        let file = folder.path().join(name);
        std::fs::write(&file, text.to_string()).unwrap();
        controller.shoal(&["server", "update", "XF-1", "--network", file.to_str().unwrap()]).ends_with(0);
    }
    assert!(controller.seen().iter().all(|request| request.json() == json!({"network": network})));
    let file = folder.path().join("more.json");
    std::fs::write(&file, json!({"network": network, "user_data": ""}).to_string()).unwrap();
    let ran =
        controller.shoal(&["server", "update", "XF-1", "--network", file.to_str().unwrap()]).ends_with(1);
    assert!(ran.err.contains("has more than a network"), "{}", ran.err);
    controller.shoal(&["server", "update", "XF-1", "--clear", "network"]).ends_with(0);
    assert_eq!(controller.seen().last().unwrap().json(), json!({"network": null}));
}

#[test]
fn a_server_without_a_password_is_a_usage_error() {
    let controller = Controller::start(|_| (201, json!({})));
    let ran = controller.shoal(&ADD).ends_with(2);
    assert!(ran.err.contains("--bmc-password-file"), "{}", ran.err);
    assert!(controller.seen().is_empty());
}

#[test]
fn an_update_is_a_merge_patch_of_what_was_named() {
    let controller = Controller::start(|_| (200, json!({"serial": "XF-1", "revision": 4})));
    let arguments = [
        "server",
        "update",
        "XF-1",
        "--bmc-user",
        "root",
        "--label",
        "a=1",
        "--remove-label",
        "b",
        "--clear",
        "tls-fingerprint",
        "--allow-unverified-serial",
        "false",
        "--if-revision",
        "3",
    ];
    let ran = controller.shoal(&arguments).ends_with(0);
    assert_eq!(ran.out, "server XF-1 is at revision 4\n");
    let seen = controller.seen().remove(0);
    assert_eq!((seen.method.clone(), seen.header("if-match")), (Method::PATCH, Some("\"3\"")));
    let expected = json!({
        "bmc_username": "root", "labels": {"a": "1", "b": null}, "tls_fingerprint": null,
        "allow_unverified_serial": false,
    });
    assert_eq!(seen.json(), expected);
    controller.shoal(&["server", "update", "XF-1"]).ends_with(2);
}

#[test]
fn serials_are_percent_encoded() {
    let controller = Controller::start(|_| (204, Value::Null));
    controller.shoal(&["server", "remove", "a/b ?#%"]).ends_with(0);
    let seen = controller.seen().remove(0);
    assert_eq!(
        (seen.method.clone(), seen.uri.to_string()),
        (Method::DELETE, "/api/v1/servers/a%2Fb%20%3F%23%25".to_owned())
    );
}

#[test]
fn a_list_is_read_to_its_end_page_by_page() {
    let controller = Controller::start(|seen| {
        if seen.uri.query().unwrap().contains("cursor=c%26d") {
            (200, json!({"servers": [{"serial": "XF-2", "labels": {"rack": "7"}}], "next": null}))
        } else {
            (200, json!({"servers": [{"serial": "XF-1", "bmc_address": "https://192.0.2.7"}], "next": "c&d"}))
        }
    });
    let ran = controller.shoal(&["server", "list"]).ends_with(0);
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][0], "SERIAL");
    assert_eq!(lines[1], ["XF-1", "https://192.0.2.7", "?"]);
    assert_eq!(lines[2], ["XF-2", "?", "rack=7"]);
    // This controller has no list of jobs: the servers are shown all the same.
    assert!(ran.err.contains("the jobs of the servers are not shown"), "{}", ran.err);
    let all = controller.shoal(&["server", "list", "--json"]).ends_with(0).json();
    assert_eq!((all["servers"].as_array().unwrap().len(), &all["next"]), (2, &Value::Null));
    let one = controller.shoal(&["server", "list", "--limit", "1"]).ends_with(0);
    assert!(one.err.contains("there are more"), "{}", one.err);
}

#[test]
fn a_list_response_without_a_list_is_an_error() {
    let controller = Controller::start(|_| (200, json!({"jobs": []})));
    controller.shoal(&["server", "list"]).ends_with(1);
}

#[test]
fn control_characters_of_a_response_are_replaced() {
    let controller = Controller::start(|_| (200, json!({"serial": "XF\u{1b}[2J", "vendor": "a\nb\u{202e}"})));
    let ran = controller.shoal(&["server", "show", "XF-1"]).ends_with(0);
    assert!(ran.out.contains("XF\u{fffd}[2J") && ran.out.contains("a\u{fffd}b\u{fffd}"), "{:?}", ran.out);
}

#[test]
fn an_error_of_the_controller_is_shown_with_details_and_a_hint() {
    let controller = Controller::start(|_| {
        let details = json!([{"path": "/bmc_address", "field": "bmc_address", "code": "format", "message": "no\u{7} host"}]);
        (
            409,
            json!({"error": "conflict.server", "message": "it is there", "details": details, "request_id": "r-1"}),
        )
    });
    let ran = controller.shoal(&["server", "show", "XF-1"]).ends_with(4);
    for part in [
        "shoal: it is there (409 conflict.server)",
        "  /bmc_address [format] no\u{fffd} host",
        "  request r-1",
        "hint: change a registered server with `shoal server update`",
    ] {
        assert!(ran.err.contains(part), "{part}\nis not in\n{}", ran.err);
    }
    let ran = controller.shoal(&["server", "show", "XF-1", "--json"]).ends_with(4);
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((&error["status"], &error["error"]["error"]), (&json!(409), &json!("conflict.server")));
    assert!(ran.out.is_empty());
}

#[test]
fn refusals_have_the_exit_code_of_their_status() {
    for (status, exit) in [(401, 5), (403, 5), (404, 3), (412, 4), (422, 1), (500, 1), (503, 6)] {
        let controller = Controller::start(move |_| (status, json!({"error": "x", "message": "m"})));
        controller.shoal(&["server", "show", "XF-1"]).ends_with(exit);
    }
}

#[test]
fn redirects_are_not_followed_and_unexpected_responses_are_reported() {
    let controller = Controller::start(|_| (302, json!("moved")));
    let ran = controller.shoal(&["server", "show", "XF-1"]).ends_with(1);
    assert!(ran.err.contains("the controller responded with 302: moved"), "{}", ran.err);
    assert_eq!(controller.seen().len(), 1);
    let controller = Controller::start(|_| (200, json!("<html>")));
    let ran = controller.shoal(&["server", "show", "XF-1"]).ends_with(1);
    assert!(ran.err.contains("it is not JSON"), "{}", ran.err);
}

#[test]
fn an_unreachable_controller_ends_with_6() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let ran = shoal(&["server", "list", "--url", &url]).ends_with(6);
    assert!(
        ran.err.contains(&url) && ran.err.contains("hint: check that the controller runs"),
        "{}",
        ran.err
    );
}

#[test]
fn a_wrong_address_or_token_is_a_usage_error() {
    for url in ["ftp://a", "http://user@a", "http://a?b=c", "nothing"] {
        shoal(&["server", "list", "--url", url]).ends_with(2);
    }
    shoal(&["server", "list", "--url", "https://192.0.2.1"]).ends_with(2);
    shoal(&["server", "list", "--token", "a\u{7f}b"]).ends_with(2);
}

#[test]
fn the_token_may_be_in_a_file() {
    let controller = Controller::start(|_| (200, json!({"servers": [], "next": null})));
    let (_dir, path) = password_file();
    let token = format!("file:{path}");
    shoal(&["server", "list", "--url", &controller.url, "--token", &token]).ends_with(0);
    assert_eq!(controller.seen()[0].header("authorization"), Some("Bearer bmc canary"));
}

#[test]
fn a_bmc_that_refuses_is_no_trouble_of_the_controller() {
    let message = "the BMC refused the password of user admin; correct it with `shoal server update`";
    let body = json!({"error": "bmc", "message": message, "details": [], "request_id": "r-1"});
    let controller = Controller::start(move |_| (502, body.clone()));
    for command in [["bmc", "probe", "XF-1"], ["bmc", "doctor", "XF-1"]] {
        let ran = controller.shoal(&command).ends_with(1);
        assert!(ran.err.contains(message) && !ran.err.contains("hint:"), "{}", ran.err);
    }
}

#[test]
fn a_proxy_without_a_controller_is_named_as_such() {
    for status in [502, 503, 504] {
        let controller = Controller::start(move |_| (status, json!("<html>Bad Gateway</html>")));
        let ran = controller.shoal(&["server", "list"]).ends_with(6);
        assert!(ran.err.contains("the response of a proxy"), "{}", ran.err);
    }
}

#[test]
fn about_shows_the_controller_beside_this_program() {
    let about = json!({
        "version": "9.8.7", "build": {"commit": "abc123", "target": "x86_64-linux", "optimised": true, "static": true},
        "features": ["registry", "jwt"], "schema_version": 3, "instance": "i-1", "started_at": "2026-01-01T00:00:00Z",
        "workflows": ["provision", "diagnostics"],
    });
    let response = about.clone();
    let controller = Controller::start(move |_| (200, response.clone()));
    let ran = controller.shoal(&["about"]).ends_with(0);
    let line = |label: &str| ran.out.lines().find(|line| line.starts_with(label)).unwrap().to_owned();
    assert!(line("controller").ends_with("9.8.7, x86_64-linux, optimised, static, abc123"), "{}", ran.out);
    assert!(line("features").ends_with("registry, jwt"), "{}", ran.out);
    assert!(line("database schema").ends_with(" 3"), "{}", ran.out);
    assert!(line("this program").contains(env!("CARGO_PKG_VERSION")), "{}", ran.out);
    assert_eq!(controller.shoal(&["about", "--json"]).ends_with(0).json(), about);
    assert_eq!(controller.seen()[0].uri.to_string(), "/about");
}

/// A controller with two servers in a list; a change of the second one is refused.
fn two_servers() -> Controller {
    Controller::start(|seen| match (seen.method.as_str(), seen.uri.path()) {
        ("GET", "/api/v1/servers") => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        ("POST", "/api/v1/servers/XF-1/probe") => (
            200,
            json!({
                "identity": { "manufacturer": "Contoso", "model": "3500RX", "bmc_model": "AST2600", "bmc_firmware": "1.4" },
                "host": { "power": "On" },
                "slot_plan": { "plan": "dual", "reason": "2 CD slots take media" },
            }),
        ),
        ("PATCH", "/api/v1/servers/XF-1") => (200, json!({ "serial": "XF-1", "revision": 4 })),
        ("POST", "/api/v1/batches") => {
            (201, json!({ "batch_id": "B-1", "accepted": 2, "refused": 0, "rows": [] }))
        }
        _ => (409, json!({ "error": "conflict.phase", "message": "not now" })),
    })
}

#[test]
fn an_update_by_a_filter_is_a_preview_without_consent_and_goes_on_after_a_refusal() {
    let controller = two_servers();
    let update = ["server", "update", "--filter", "rack=7", "--label", "owner=storage"];
    let ran = controller.shoal(&update).ends_with(0);
    assert!(ran.out.starts_with("update: 2 servers selected\nXF-1, XF-2\n"), "{}", ran.out);
    assert!(controller.seen().iter().all(|seen| seen.method == Method::GET));

    let other = controller.shoal(&[&update[..], &["--yes", "--expect", "3"]].concat()).ends_with(4);
    assert!(other.err.contains("selects 2 servers now and 3 were expected"), "{}", other.err);
    let ran = controller.shoal(&[&update[..], &["--yes"]].concat()).ends_with(1);
    assert_eq!(ran.out, "server XF-1 is at revision 4\n");
    assert!(ran.err.contains("server XF-2: ") && ran.err.contains("not now"), "{}", ran.err);
    assert!(ran.err.contains("1 of 2 servers did not succeed"), "{}", ran.err);
    let patched = controller.seen().into_iter().filter(|seen| seen.method == Method::PATCH).count();
    assert_eq!(patched, 2);
}

#[test]
fn what_belongs_to_one_bmc_is_not_set_for_many() {
    let update = ["server", "update", "--filter", "rack=7", "--yes"];
    for one in [["--bmc-address", "192.0.2.7"], ["--if-revision", "3"]] {
        assert!(refused(&[&update[..], &one].concat()).contains(one[0]));
    }
    assert!(refused(&["server", "update", "--vendor", "dell"]).contains("SERIAL"));
    let controller = two_servers();
    controller.shoal(&[&update[..], &["--tls-fingerprint", "aa"]].concat()).ends_with(2);
    controller.shoal(&["server", "update", "XF-1", "--yes", "--vendor", "dell"]).ends_with(2);
    assert!(controller.seen().is_empty());
}

#[test]
fn a_probe_of_many_shows_a_row_for_each_and_fails_if_one_could_not_be_read() {
    let controller = two_servers();
    let ran = controller.shoal(&["bmc", "probe", "-l", "rack=7"]).ends_with(1);
    let rows: Vec<&str> = ran.out.lines().collect();
    assert_eq!(rows.len(), 3, "{}", ran.out);
    assert!(rows[1].starts_with("XF-1") && rows[1].contains("Contoso 3500RX"), "{}", ran.out);
    assert!(rows[2].starts_with("XF-2") && rows[2].contains("not now"), "{}", ran.out);
    assert!(ran.err.contains("1 of 2 BMCs could not be read"), "{}", ran.err);
}

#[test]
fn jobs_for_several_servers_are_one_batch_with_the_same_values() {
    let controller = two_servers();
    let dir = tempfile::tempdir().unwrap();
    let recipe = dir.path().join("recipe.json");
    std::fs::write(&recipe, r#"{"task_target": "inventory.target"}"#).unwrap();
    let with = [
        "--recipe",
        recipe.to_str().unwrap(),
        "--priority",
        "7",
        "--label",
        "wave=1",
        "--timeout",
        "webhook.wait=60",
    ];
    let two = ["job", "create", "--server", "XF-1", "--server", "XF-2"];
    let ran = controller.shoal(&[&two[..], &with].concat()).ends_with(0);
    assert_eq!(ran.out, "batch B-1: 2 jobs accepted, 0 refused\n");
    let row = |serial: &str| {
        json!({
            "server_serial": serial, "priority": 7, "labels": { "wave": "1" }, "timeouts": { "webhook.wait": 60 },
        })
    };
    let expected =
        json!({ "rows": [row("XF-1"), row("XF-2")], "recipe": { "task_target": "inventory.target" } });
    assert_eq!(controller.seen().pop().unwrap().json(), expected);

    let filter = ["job", "create", "--filter", "rack=7"];
    let ran = controller.shoal(&[&filter[..], &with].concat()).ends_with(0);
    assert!(ran.out.starts_with("job create: 2 servers selected"), "{}", ran.out);
    controller.shoal(&[&filter[..], &with, &["--yes"]].concat()).ends_with(0);
    assert_eq!(controller.seen().pop().unwrap().json(), expected);
}

#[test]
fn a_dry_run_of_an_update_shows_what_would_change_and_sends_no_other_change() {
    let controller = Controller::start(|seen| {
        let vendor = if seen.method == Method::PATCH { json!("dell") } else { Value::Null };
        (
            200,
            json!({ "serial": "XF-1", "revision": 3, "vendor": vendor, "updated_at": seen.method.as_str() }),
        )
    });
    let update = ["server", "update", "XF-1", "--vendor", "dell", "--dry-run"];
    let ran = controller.shoal(&update).ends_with(0);
    assert!(ran.out.starts_with("server XF-1, revision 3, would change:\n"), "{}", ran.out);
    assert!(ran.out.contains("vendor") && !ran.out.contains("updated_at"), "{}", ran.out);
    let json = controller.shoal(&[&update[..], &["-o", "json"]].concat()).ends_with(0).json();
    assert_eq!(json["changes"], json!([{ "field": "vendor", "now": null, "then": "dell" }]));
    let patches: Vec<String> = controller
        .seen()
        .iter()
        .filter(|seen| seen.method == Method::PATCH)
        .map(|seen| seen.uri.to_string())
        .collect();
    assert_eq!(patches, ["/api/v1/servers/XF-1?dry_run=true"; 2]);
}

#[test]
fn a_dry_run_of_many_shows_each_server_without_consent_and_a_password_is_not_shown() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/servers" => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        path => (200, json!({ "serial": path.rsplit('/').next(), "revision": 1 })),
    });
    let (_dir, path) = password_file();
    let update = ["server", "update", "--filter", "rack=7", "--bmc-password-file", &path, "--dry-run"];
    let ran = controller.shoal(&update).ends_with(0);
    assert!(ran.out.contains("server XF-1") && ran.out.contains("server XF-2"), "{}", ran.out);
    assert!(ran.out.contains("bmc_password") && !ran.out.contains("canary"), "{}", ran.out);
    let changes = controller.seen().into_iter().filter(|seen| seen.method == Method::PATCH);
    assert!(changes.map(|seen| seen.uri.to_string()).all(|uri| uri.ends_with("?dry_run=true")));
}

#[test]
fn a_release_that_leaves_servers_is_a_conflict() {
    for (left, code) in [(json!([]), 0), (json!([{ "serial": "XF-2", "jobs": ["j-1"] }]), 4)] {
        let controller =
            Controller::start(move |_| (200, json!({ "released": [{ "serial": "XF-1" }], "left": left })));
        let release = ["controller", "release", "--old-controller-is-off"];
        let ran = controller.shoal(&release).ends_with(code);
        assert!(ran.out.contains("1 servers released"), "{}", ran.out);
        controller.shoal(&[&release[..], &["--json"]].concat()).ends_with(code);
    }
}

#[test]
fn a_list_of_servers_shows_what_each_does_now() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/jobs" => {
            let job = |id: &str, serial: &str, parent: Value| json!({ "job_id": id, "short_id": id, "server_serial": serial, "parent": parent });
            // The newest is first: the older one is the one that runs.
            let jobs = [
                job("queued", "XF-1", Value::Null),
                job("running", "XF-1", Value::Null),
                job("step", "XF-3", json!("other")),
            ];
            (200, json!({ "jobs": jobs, "next": null }))
        }
        _ => {
            let seen = "2026-01-02T00:00:00.000Z";
            let servers = json!([
                { "serial": "XF-1", "last_seen": seen },
                { "serial": "XF-2", "last_seen": seen, "maintenance": { "since": seen } },
                { "serial": "XF-3", "last_seen": seen },
                { "serial": "XF-4", "last_seen": seen, "restored": { "as_of": seen } },
                { "serial": "XF-5", "last_seen": seen, "pending_cleanup": {} },
                { "serial": "XF-6", "last_seen": null },
            ]);
            (200, json!({ "servers": servers, "next": null }))
        }
    });
    let listed = controller.shoal(&["server", "list"]).ends_with(0).out;
    for (serial, wanted) in [
        ("XF-1", "busy running"),
        ("XF-2", "maintenance"),
        ("XF-3", "free"),
        ("XF-4", "restored"),
        ("XF-5", "pending-cleanup"),
        ("XF-6", "unseen"),
    ] {
        let line = listed.lines().find(|line| line.starts_with(serial)).unwrap();
        let words = line.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert!(words.contains(wanted), "{serial} {wanted}: {words}");
    }
    let asked = controller.seen().into_iter().find(|seen| seen.uri.path() == "/api/v1/jobs").unwrap();
    assert!(asked.uri.query().unwrap().contains("-condition%3Aended"), "{}", asked.uri);
}

#[test]
fn a_server_whose_jobs_are_not_known_is_not_called_free() {
    let servers = || {
        let seen = "2026-01-02T00:00:00.000Z";
        let servers = json!([
            { "serial": "XF-1", "last_seen": seen },
            { "serial": "XF-2", "last_seen": seen, "maintenance": { "since": seen } },
            { "serial": "XF-3", "last_seen": null },
        ]);
        (200, json!({ "servers": servers, "next": null }))
    };
    let stopping = || (503, json!({ "error": "stopping", "message": "the controller stops", "details": [] }));
    let forbidden = || (403, json!({ "error": "forbidden", "message": "not this role", "details": [] }));
    let too_many = || (200, json!({ "jobs": [], "next": "more" }));
    for (jobs, why) in [
        (&stopping as &(dyn Fn() -> (u16, Value) + Sync), "the controller stops"),
        (&forbidden, "not this role"),
        (&too_many, "more than 20000 jobs"),
    ] {
        let jobs = jobs();
        let controller = Controller::start(move |seen| match seen.uri.path() {
            "/api/v1/jobs" => jobs.clone(),
            _ => servers(),
        });
        let ran = controller.shoal(&["server", "list"]).ends_with(0);
        assert!(ran.err.contains(why), "{}", ran.err);
        let state = |serial: &str| {
            let line = ran.out.lines().find(|line| line.starts_with(serial)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(["XF-1", "XF-2", "XF-3"].map(state), ["?", "maintenance", "?"], "{}", ran.out);
    }
    // A watch reads again instead: the first read of the jobs fails, the third list ends the watch.
    let (reads, lists) = (AtomicU64::new(0), AtomicU64::new(0));
    let controller = Controller::start(move |seen| match seen.uri.path() {
        "/api/v1/jobs" if reads.fetch_add(1, Ordering::Relaxed) == 0 => stopping(),
        "/api/v1/jobs" => (200, json!({ "jobs": [], "next": null })),
        "/api/v1/servers" if lists.fetch_add(1, Ordering::Relaxed) < 2 => servers(),
        _ => (404, json!({ "error": "not_found", "message": "the end", "details": [] })),
    });
    let ran = controller.shoal(&["server", "list", "--watch"]).ends_with(3);
    assert!(ran.err.contains("the controller stops (503 stopping); trying again"), "{}", ran.err);
    assert!(ran.out.contains("free") && !ran.out.contains('?'), "{}", ran.out);
}

#[test]
fn a_watch_of_conditions_outlives_an_empty_selection_and_a_restart() {
    let lists = AtomicU64::new(0);
    let controller = Controller::start(move |seen| {
        let list = |serials: &[&str]| {
            let servers: Vec<Value> = serials.iter().map(|serial| json!({ "serial": serial })).collect();
            (200, json!({ "servers": servers, "next": null }))
        };
        match (seen.uri.path(), lists.load(Ordering::Relaxed)) {
            ("/api/v1/servers", read) => {
                lists.store(read + 1, Ordering::Relaxed);
                match read {
                    0 => list(&[]),
                    1 | 2 => list(&["XF-1", "XF-2", "GONE"]),
                    _ => (403, json!({ "error": "forbidden", "message": "the end", "details": [] })),
                }
            }
            ("/api/v1/servers/XF-2/conditions", 2) => {
                (503, json!({ "error": "stopping", "message": "the controller stops", "details": [] }))
            }
            ("/api/v1/servers/XF-1/conditions" | "/api/v1/servers/XF-2/conditions", _) => {
                (200, json!({ "conditions": [{ "kind": "powerCycle", "state": "done", "id": "C-1" }] }))
            }
            _ => (404, json!({ "error": "not_found", "message": "no such server", "details": [] })),
        }
    });
    let ran = controller.shoal(&["server", "conditions", "-l", "site=a", "--watch"]).ends_with(5);
    assert!(ran.err.contains("the controller stops (503 stopping); trying again"), "{}", ran.err);
    let rows: Vec<&str> = ran.out.lines().filter(|line| line.contains("powerCycle")).collect();
    assert_eq!(rows.len(), 2, "{}", ran.out);
    assert!(rows[0].starts_with("XF-1") && rows[1].starts_with("XF-2"), "{}", ran.out);
}
