//! Selectors of commands that take one server or job: a preview first, then a result for each.

use axum::http::Method;
use serde_json::json;

use super::{Controller, refused};

/// A controller with two servers, of which the second refuses every change, and with two jobs that wait.
fn controller() -> Controller {
    Controller::start(|seen| match (seen.method.as_str(), seen.uri.path()) {
        ("GET", "/api/v1/servers") => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        ("GET", "/api/v1/jobs") => {
            let jobs = json!([{ "job_id": "J-1", "server_serial": "XF-1" }, { "job_id": "J-2", "server_serial": "XF-2" }]);
            (200, json!({ "jobs": jobs, "next": null }))
        }
        ("POST" | "DELETE", path) if path.contains("XF-2") || path.contains("J-2") => (
            409,
            json!({ "error": "conflict.phase", "message": "not now", "details": [], "request_id": "r" }),
        ),
        ("POST", path) if path.ends_with("/diagnostics") => (200, json!({ "verdict": "pass", "checks": [] })),
        ("POST", path) if path.starts_with("/api/v1/jobs/") => {
            (202, json!({ "job_id": "J-1", "status": "queued" }))
        }
        ("DELETE", _) => (204, json!({})),
        ("POST", _) => (202, json!({ "id": "C-1", "state": "pending", "plan": [] })),
        _ => (200, json!({ "inventory": null })),
    })
}

/// The requests that change something.
fn changes(controller: &Controller) -> Vec<String> {
    let changes = controller.seen().into_iter().filter(|seen| seen.method != Method::GET);
    changes.map(|seen| seen.uri.to_string()).collect()
}

#[test]
fn a_disruptive_command_for_a_filter_is_a_preview_until_it_has_consent() {
    for command in [
        &["server", "power-cycle"][..],
        &["server", "reset-bmc"],
        &["server", "remove"],
        &["server", "inventory", "--refresh"],
        &["server", "bios", "set", "BootMode=Uefi"],
        &["bmc", "doctor"],
        &["job", "hold"],
        &["job", "resume"],
        &["job", "finish"],
    ] {
        let controller = controller();
        let command = [command, &["-l", "site=a"]].concat();
        let ran = controller.shoal(&command).ends_with(0);
        assert!(ran.out.contains("XF-1") && ran.out.contains("XF-2"), "{command:?}: {}", ran.out);
        assert!(ran.err.contains("nothing was changed"), "{command:?}: {}", ran.err);
        assert_eq!(changes(&controller), Vec::<String>::new(), "{command:?}");

        let ran = controller.shoal(&[&command[..], &["--yes", "--expect", "3"]].concat()).ends_with(4);
        assert!(ran.err.contains("2") && ran.err.contains("3 were expected"), "{command:?}: {}", ran.err);
        assert_eq!(changes(&controller), Vec::<String>::new(), "{command:?}");

        let ran = controller.shoal(&[&command[..], &["--yes"]].concat()).ends_with(1);
        assert_eq!(changes(&controller).len(), 2, "{command:?}");
        assert!(ran.err.contains("not now") && ran.err.contains("1 of 2"), "{command:?}: {}", ran.err);
        let rows = controller.shoal(&[&command[..], &["--yes", "--json"]].concat()).ends_with(1).out;
        let rows: Vec<serde_json::Value> =
            rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 2, "{command:?}: a document for each");
        assert!(rows[1]["error"].as_str().unwrap().contains("not now"), "{command:?}");
    }
}

#[test]
fn firmware_of_a_filter_is_planned_without_and_installed_with_consent() {
    let controller = controller();
    let filter = ["--filter", "site=a"];
    let plan = controller.shoal(&[&["firmware", "plan"][..], &filter].concat()).ends_with(1);
    assert!(plan.out.contains("server XF-1"), "{}", plan.out);
    assert!(changes(&controller).iter().all(|uri| uri.ends_with("dry_run=true")));
    let install = [&["firmware", "install"][..], &filter].concat();
    let before = changes(&controller).len();
    let ran = controller.shoal(&install).ends_with(0);
    assert!(ran.out.contains("firmware install: 2 servers selected"), "{}", ran.out);
    assert_eq!(changes(&controller).len(), before);
    controller.shoal(&[&install[..], &["--yes"]].concat()).ends_with(1);
    assert_eq!(changes(&controller).len(), before + 2);
}

#[test]
fn a_dry_run_or_a_read_of_a_filter_needs_no_consent() {
    let controller = controller();
    controller.shoal(&["server", "power-cycle", "--serial-glob", "XF-*", "--dry-run"]).ends_with(1);
    assert!(
        changes(&controller).iter().all(|uri| uri.ends_with("dry_run=true")),
        "{:?}",
        changes(&controller)
    );
    controller.shoal(&["server", "inventory", "--state", "free"]).ends_with(0);
    // Its controller refuses the second one; both were sent.
    controller.shoal(&["bmc", "probe", "-l", "site=a", "--json"]).ends_with(1);
    let probed = controller.seen().into_iter().filter(|seen| seen.uri.path().ends_with("/probe")).count();
    assert_eq!(probed, 2);
}

/// The number of a preview does not say that the jobs are the same.
#[test]
fn a_verb_for_many_jobs_is_sent_for_the_jobs_of_its_own_preview() {
    for selection in [Some("0123456789abcdef"), None] {
        let controller = Controller::start(move |seen| match seen.uri.query() {
            Some(_dry_run) => {
                let mut preview = json!({ "dry_run": true, "count": 2, "first": [], "superseded": 0 });
                // A controller of an earlier version has none.
                preview
                    .as_object_mut()
                    .unwrap()
                    .extend(selection.map(|it| ("selection".to_owned(), json!(it))));
                (200, preview)
            }
            None => (
                202,
                json!({ "cancelled_now": 2, "batch_id": "B-1", "accepted": 2, "refused": 0, "rows": [] }),
            ),
        });
        for verb in ["cancel", "retry"] {
            controller.shoal(&["job", verb, "-l", "site=a", "--yes"]).ends_with(0);
            let sent = controller.seen().pop().unwrap().json();
            assert_eq!(
                (&sent["expected"], sent["selection"].as_str()),
                (&json!(2), selection),
                "{verb}: {sent}"
            );
            controller.shoal(&["job", verb, "-l", "site=a", "--yes", "--expect", "3"]).ends_with(0);
            let sent = controller.seen().pop().unwrap().json();
            assert_eq!((&sent["expected"], &sent["selection"]), (&json!(3), &json!(null)), "{verb}: {sent}");
        }
    }
}

#[test]
fn what_belongs_to_one_server_is_refused_with_a_filter() {
    let controller = controller();
    let cycle = ["server", "power-cycle", "-l", "site=a"];
    for one in [&["--watch"][..], &["--if-revision", "1"]] {
        controller.shoal(&[&cycle[..], one].concat()).ends_with(2);
    }
    for both in [
        &["server", "power-cycle", "XF-1", "-l", "site=a"][..],
        &["server", "power-cycle", "XF-1", "--yes"],
        &["server", "power-cycle"],
        &["bmc", "probe"],
        &["bmc", "probe", "XF-1", "-l", "site=a"],
        &["bmc", "doctor", "XF-1", "-l", "site=a"],
        &["job", "hold", "J-1", "-l", "site=a"],
    ] {
        controller.shoal(both).ends_with(2);
    }
    assert!(controller.seen().is_empty());
    assert!(refused(&["firmware", "install", "XF-1", "--filter", "site=a"]).contains("--filter"));
}

#[test]
fn a_dry_run_whose_plan_is_refused_is_no_success() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        path if path.contains("XF-1") => {
            let item = |name: &str, decision: &str| json!({ "name": name, "component": name, "decision": decision, "reason": "because" });
            let items = json!([item("a", "refuse"), item("b", "install")]);
            let key = if seen.json()["kind"] == "biosApply" { "settings" } else { "plan" };
            let parameters = json!({ "firmware_set": "spring", "files": [{ "digest": "sha256:aa" }] });
            (200, json!({ "dry_run": true, "would": "accept", key: items, "parameters": parameters }))
        }
        _ => (200, json!({ "dry_run": true, "would": "accept", "plan": [] })),
    });
    for (command, said) in [
        (&["firmware", "install", "XF-1", "--dry-run"][..], "fail: 1 of 2 components is refused"),
        (&["server", "bios", "set", "XF-1", "a=b", "--dry-run"], "fail: 1 of 2 settings is refused"),
    ] {
        let ran = controller.shoal(command).ends_with(1);
        assert!(ran.out.contains(said) && ran.err.contains(said), "{}\n{}", ran.out, ran.err);
        assert!(!ran.out.contains("sha256:aa"), "{}", ran.out);
        controller.shoal(&[command, &["--json"]].concat()).ends_with(1);
    }
    assert!(controller.shoal(&["firmware", "plan", "XF-1"]).ends_with(1).err.contains("1 of 2 components"));
    controller.shoal(&["firmware", "plan", "XF-2"]).ends_with(0);
}

#[test]
fn a_dry_run_of_a_request_that_would_be_refused_ends_as_the_request_would() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/jobs" => {
            let error = json!({ "error": "active_job", "message": "server XF-1 has an active job" });
            (200, json!({ "dry_run": true, "would": "refuse", "refused": { "status": 409, "error": error } }))
        }
        _ => (200, json!({ "dry_run": true, "would": "refuse", "refused": "a power cycle is open" })),
    });
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("recipe.json").display().to_string();
    std::fs::write(&recipe, "{}").unwrap();
    for (command, said) in [
        (&["server", "power-cycle", "XF-1", "--dry-run"][..], "would be refused: a power cycle is open"),
        (
            &["job", "create", "--server", "XF-1", "--recipe", &recipe, "--dry-run"],
            "would be refused: server XF-1 has an active job",
        ),
    ] {
        let ran = controller.shoal(command).ends_with(4);
        assert!(ran.err.contains(said), "{}\n{}", ran.out, ran.err);
        controller.shoal(&[command, &["--json"]].concat()).ends_with(4);
    }
}

#[test]
fn a_server_is_removed_with_its_history_after_a_preview() {
    let controller = Controller::start(|seen| match seen.uri.query() {
        Some(query) if query.contains("dry_run") => {
            (200, json!({ "dry_run": true, "serial": "XF-1", "jobs": 1 }))
        }
        _ => (204, json!({})),
    });
    let remove = ["server", "remove", "XF-1", "--with-history"];
    let ran = controller.shoal(&[&remove[..], &["--dry-run"]].concat()).ends_with(0);
    assert_eq!(ran.out, "server XF-1 would be removed, with 1 ended job\n");
    assert_eq!(controller.shoal(&remove).ends_with(0).out, "server XF-1 removed\n");
    controller.shoal(&["server", "remove", "XF-1"]).ends_with(0);
    let queries: Vec<Option<String>> =
        controller.seen().iter().map(|seen| seen.uri.query().map(str::to_owned)).collect();
    assert_eq!(
        queries,
        [Some("with_history=true&dry_run=true".to_owned()), Some("with_history=true".to_owned()), None]
    );
}

#[test]
fn an_empty_filter_selects_no_fleet() {
    let controller = controller();
    for command in [
        &["server", "update", "--label", "a=b", "--yes", "--filter"][..],
        &["firmware", "install", "--yes", "--filter"],
        &["firmware", "plan", "--filter"],
        &["firmware", "drift", "--filter"],
        &["server", "remove", "--yes", "--not"],
        &["server", "remove", "--yes", "-l"],
        &["server", "remove", "--yes", "--state"],
        &["server", "remove", "--yes", "--serial-glob"],
    ] {
        for empty in ["", " "] {
            controller.shoal(&[command, &[empty]].concat()).ends_with(2);
        }
    }
    assert!(controller.seen().is_empty());
}

#[test]
fn a_filter_that_selects_nothing_changes_nothing_and_is_no_success() {
    let controller = Controller::start(|seen| match seen.method {
        Method::GET => (200, json!({ "servers": [], "jobs": [], "next": null })),
        _ => (200, json!({ "dry_run": true, "count": 0, "first": [], "superseded": 0 })),
    });
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("recipe.json").display().to_string();
    std::fs::write(&recipe, "{}").unwrap();
    for (command, filter, what) in [
        (&["server", "power-cycle"][..], ["-l", "rak=7"], "server"),
        (&["server", "reset-bmc"], ["-l", "rak=7"], "server"),
        (&["server", "remove"], ["-l", "rak=7"], "server"),
        (&["server", "inventory", "--refresh"], ["-l", "rak=7"], "server"),
        (&["server", "maintenance", "begin"], ["-l", "rak=7"], "server"),
        (&["server", "maintenance", "end"], ["-l", "rak=7"], "server"),
        (&["server", "bios", "set", "BootMode=Uefi"], ["-l", "rak=7"], "server"),
        (&["server", "update", "--label", "a=b"], ["--filter", "rak=7"], "server"),
        (&["firmware", "install"], ["--filter", "rak=7"], "server"),
        (&["bmc", "doctor"], ["-l", "rak=7"], "server"),
        (&["batch", "create", "--recipe", &recipe], ["-l", "rak=7"], "server"),
        (&["job", "create", "--recipe", &recipe], ["--filter", "rak=7"], "server"),
        (&["job", "cancel"], ["-l", "rak=7"], "job"),
        (&["job", "hold"], ["-l", "rak=7"], "job"),
        (&["job", "resume"], ["-l", "rak=7"], "job"),
        (&["job", "finish"], ["-l", "rak=7"], "job"),
        (&["job", "retry"], ["-l", "rak=7"], "job"),
    ] {
        let command = [command, &filter].concat();
        let preview = controller.shoal(&command).ends_with(0);
        assert!(preview.out.contains(&format!("0 {what}s selected")), "{command:?}: {}", preview.out);
        let ran = controller.shoal(&[&command[..], &["--yes"]].concat()).ends_with(1);
        let said = format!("the filter selects no {what}; nothing was changed");
        assert!(ran.err.contains(&said), "{command:?}: {}", ran.err);
    }
    // What only reads shows no preview.
    for command in [
        &["bmc", "probe"][..],
        &["bmc", "doctor", "--last"],
        &["server", "inventory"],
        &["server", "power-cycle", "--dry-run"],
        &["batch", "create", "--recipe", &recipe, "--dry-run"],
    ] {
        let ran = controller.shoal(&[command, &["-l", "rak=7"]].concat()).ends_with(1);
        assert!(ran.err.contains("the filter selects no server"), "{command:?}: {}", ran.err);
    }
    let dry_run = ["job", "create", "--recipe", &recipe, "--filter", "rak=7", "--dry-run"];
    assert!(controller.shoal(&dry_run).ends_with(1).err.contains("the filter selects no server"));
    assert!(changes(&controller).iter().all(|uri| uri.ends_with("dry_run=true")));
}

#[test]
fn diagnostics_without_a_result_yet_are_followed_to_their_end() {
    for (verdict, code) in [("pass", 0), ("fail", 1)] {
        let controller = Controller::start(move |seen| match (seen.method.as_str(), seen.uri.path()) {
            ("POST", "/api/v1/servers/XF-1/diagnostics") => {
                (202, json!({ "server_serial": "XF-1", "diagnostics_id": "d-1", "message": "still running" }))
            }
            ("GET", "/api/v1/servers/XF-1/diagnostics") => (
                200,
                json!({ "server_serial": "XF-1", "diagnostics_id": "d-1", "verdict": verdict, "checks": [] }),
            ),
            ("GET", "/api/v1/jobs/d-1") => (200, json!({ "job_id": "d-1", "status": "complete" })),
            _ => (404, json!({ "error": "not_found", "message": "none", "details": [], "request_id": "r" })),
        });
        let ran = controller.shoal(&["bmc", "doctor", "XF-1", "--json"]).ends_with(code);
        assert!(ran.err.contains("shoal job explain d-1"), "{}", ran.err);
        assert_eq!(ran.json()["verdict"], verdict);
    }
}

/// The commands on servers and jobs without selectors, with the reason.
const WITHOUT_SELECTORS: &[(&str, &str)] = &[
    ("server add", "it names a server that is not registered yet"),
    ("server import", "its table or range names the servers"),
    ("server show", ONE),
    (
        "server restored",
        "its table compares one server with what its BMC shows; `controller restored` lists all",
    ),
    ("job show", ONE),
    ("job events", "`event list` has the events of all"),
    ("job watch", "it follows one job to its end; `job list --watch` and `batch watch` follow many"),
    ("job explain", ONE),
    ("job log", ONE),
    ("job media-url", "a signed URL is a secret of one job"),
    ("batch list", "a batch has many servers; it has the selector of labels, -l"),
    ("batch show", BATCH),
    ("batch watch", BATCH),
    ("batch cancel", BATCH),
    ("batch continue", BATCH),
    ("batch retry", BATCH),
    ("media list", "--server names one; the list is short, for it has what is served"),
    ("event list", "--server names one; the log has no labels"),
];

const ONE: &str = "it shows one in full; the list takes the selectors";
const BATCH: &str = "it is about one batch";

#[test]
fn every_command_on_servers_or_jobs_has_the_selectors_or_a_reason_why_it_has_none() {
    let mut command = super::super::definition().disable_help_subcommand(true);
    command.build();
    let selects = |path: &str| {
        let found =
            path.split(' ').try_fold(&command, |command, name| command.find_subcommand(name)).unwrap();
        let options: Vec<&str> = found.get_arguments().filter_map(|argument| argument.get_long()).collect();
        // `--label` sets labels where servers or jobs get them; there --filter selects by labels.
        let by_label = options.contains(&"filter") || options.contains(&"label") && options.contains(&"not");
        by_label && options.contains(&"state") && options.contains(&"serial-glob")
    };
    let groups =
        ["server ", "job ", "batch ", "bmc ", "media ", "event ", "firmware plan", "firmware install"];
    let commands = super::without_json::commands();
    for path in commands.iter().filter(|path| groups.iter().any(|group| path.starts_with(group))) {
        match WITHOUT_SELECTORS.iter().find(|(known, _)| known == path) {
            Some(_) => assert!(!selects(path), "{path} has selectors: remove its reason"),
            None => assert!(
                selects(path),
                "{path}: flatten Selection, FilterArgs or ServerFilter, or give a reason"
            ),
        }
    }
    for (path, reason) in WITHOUT_SELECTORS {
        assert!(commands.contains(*path) && !reason.is_empty(), "{path} is no command");
    }
}

#[test]
fn a_command_that_sets_labels_selects_servers_by_state_and_serial_number_too() {
    for (command, more) in [
        (&["server", "update"][..], &["--vendor", "contoso"][..]),
        (&["firmware", "install"], &[]),
        (&["server", "release"], &[]),
    ] {
        for (option, value, wanted) in
            [("--state", "free", "filter=state%3Afree"), ("--serial-glob", "XF-*", "filter=serial%3AXF-*")]
        {
            let controller = controller();
            let line = [command, more, &[option, value]].concat();
            let ran = controller.shoal(&line).ends_with(0);
            assert!(ran.out.contains("2 servers selected"), "{line:?}: {}", ran.out);
            assert!(changes(&controller).is_empty(), "{line:?}");
            let asked = controller.seen()[0].uri.query().unwrap_or_default().to_owned();
            assert!(asked.contains(wanted), "{line:?}: {asked}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("recipe.json").display().to_string();
    std::fs::write(&recipe, "{}").unwrap();
    let controller = controller();
    let line = ["job", "create", "--recipe", &recipe, "--serial-glob", "XF-*"];
    assert!(controller.shoal(&line).ends_with(0).out.contains("2 servers selected"));
    controller.shoal(&[&line[..], &["--state", "no such"]].concat()).ends_with(2);
    for both in [
        &["server", "update", "XF-1", "--state", "free", "--vendor", "x"][..],
        &["firmware", "install", "XF-1", "--serial-glob", "XF-*"],
        &["job", "create", "--server", "XF-1", "--state", "free", "--recipe", "-"],
        &["job", "create", "--recipe", "-"],
    ] {
        refused(both);
    }
}

#[test]
fn bios_settings_and_conditions_of_the_servers_of_a_filter_are_shown() {
    let controller = Controller::start(|seen| match seen.uri.path() {
        "/api/v1/servers" => {
            (200, json!({ "servers": [{ "serial": "XF-1" }, { "serial": "XF-2" }], "next": null }))
        }
        path if path.ends_with("/conditions") => {
            (200, json!({ "conditions": [{ "kind": "powerCycle", "state": "done", "id": "C-1" }] }))
        }
        path => {
            let serial = path.split('/').nth(4).unwrap_or_default();
            let attributes =
                json!([{ "name": "BootMode", "value": "Uefi" }, { "name": "Turbo", "value": "On" }]);
            (200, json!({ "serial": serial, "boot_order": [], "attributes": attributes }))
        }
    });
    let bios = controller.shoal(&["server", "bios", "show", "-l", "rack=7", "boot"]).ends_with(0).out;
    assert!(bios.contains("XF-1") && bios.contains("XF-2") && bios.contains("BootMode"), "{bios}");
    assert!(!bios.contains("Turbo"), "{bios}");
    let none = controller.shoal(&["server", "bios", "show", "XF-1", "Nope"]).ends_with(3);
    assert!(none.err.contains("no attribute has a name with Nope"), "{}", none.err);
    let rows =
        controller.shoal(&["server", "bios", "show", "--serial-glob", "XF-*", "--json"]).ends_with(0).out;
    assert_eq!(rows.lines().count(), 2, "a document for each: {rows}");
    let conditions = controller.shoal(&["server", "conditions", "--state", "free"]).ends_with(0).out;
    let lines: Vec<&str> = conditions.lines().collect();
    assert!(lines[0].starts_with("SERVER") && lines.len() == 3, "{conditions}");
    assert!(lines[2].starts_with("XF-2") && lines[2].contains("powerCycle"), "{conditions}");
    let one = controller.shoal(&["server", "conditions", "XF-1"]).ends_with(0).out;
    assert!(one.starts_with("KIND"), "{one}");
}

#[test]
fn a_server_that_is_removed_during_drift_is_a_row() {
    let refusing = |status: u16, code: &'static str| {
        Controller::start(move |seen| match seen.uri.path() {
            "/api/v1/servers" => (
                200,
                json!({ "servers": [{ "serial": "XF-1" }, { "serial": "GONE" }, { "serial": "XF-2" }], "next": null }),
            ),
            path if path.contains("GONE") => {
                (status, json!({ "error": code, "message": "not now", "details": [], "request_id": "r" }))
            }
            _ => (200, json!({ "plan": [], "parameters": { "firmware_set": "all" } })),
        })
    };
    for (status, code) in [(404, "unknown_server"), (503, "busy")] {
        let controller = refusing(status, code);
        let drift = controller.shoal(&["firmware", "drift", "--json"]).ends_with(7).json();
        assert_eq!(drift["total"], json!({ "servers": 3, "current": 2, "differs": 0, "unknown": 1 }));
        let row = &drift["servers"][1];
        assert_eq!((&row["serial"], &row["state"]), (&json!("GONE"), &json!("unknown")), "{row}");
        assert!(row["reason"].as_str().unwrap().contains("not now"), "{row}");
    }
    // What is wrong with all of them, or with the only one.
    refusing(403, "forbidden").shoal(&["firmware", "drift"]).ends_with(5);
    refusing(404, "unknown_firmware_set").shoal(&["firmware", "drift", "--set", "none"]).ends_with(3);
    refusing(404, "unknown_server").shoal(&["firmware", "drift", "GONE"]).ends_with(3);
}
