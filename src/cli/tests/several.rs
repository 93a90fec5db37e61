//! Commands for several things: a failure of one hides nothing of the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Method;
use serde_json::{Deserializer, Value, json};

use super::{Controller, Ran, Seen};

/// The documents that a command wrote one after the other.
fn documents(ran: &Ran) -> Vec<Value> {
    Deserializer::from_str(&ran.out).into_iter().map(Result::unwrap).collect()
}

/// The paths of the requests with this method.
fn paths(controller: &Controller, method: &Method) -> Vec<String> {
    let seen = controller.seen();
    seen.iter().filter(|seen| seen.method == *method).map(|seen| seen.uri.path().to_owned()).collect()
}

/// A controller that has done what each request asks for, but not for `B`.
fn without_b(success: impl Fn(&Seen) -> (u16, Value) + Send + Sync + 'static) -> Controller {
    Controller::start(move |seen| match seen.uri.path().split('/').any(|part| part == "B") {
        true => (404, json!({ "error": "unknown_thing", "message": "there is no B" })),
        false => success(seen),
    })
}

#[test]
fn sessions_end_one_by_one_and_the_count_is_of_those_that_ended() {
    let controller = without_b(|_| (204, Value::Null));
    let ran = controller.shoal(&["session", "end", "A", "B", "C"]).ends_with(1);
    assert_eq!(ran.out, "2 web sessions ended\n");
    assert!(ran.err.contains("session B: there is no B"), "{}", ran.err);
    assert!(ran.err.contains("1 of 3 web sessions did not succeed"), "{}", ran.err);
    assert_eq!(
        paths(&controller, &Method::DELETE),
        ["A", "B", "C"].map(|id| format!("/api/v1/sessions/{id}"))
    );
    let ran = controller.shoal(&["session", "end", "A", "B", "C", "--json"]).ends_with(1);
    let documents = documents(&ran);
    assert_eq!(documents[0]["session"], "B");
    assert_eq!(documents[1], json!({ "ended": 2 }));
    // One session is one request: its error is the error of the command.
    controller.shoal(&["session", "end", "B"]).ends_with(3);
}

#[test]
fn an_error_that_all_would_have_ends_the_command_at_the_first_one() {
    let controller =
        Controller::start(|_| (401, json!({ "error": "unauthorized", "message": "no such token" })));
    for (command, one) in [(["session", "end"], "web session"), (["token", "confirm"], "token")] {
        let ran = controller.shoal(&[&command[..], &["A", "B", "C"]].concat()).ends_with(5);
        assert_eq!(ran.err.matches(&format!("{} A: ", command[0])).count(), 1, "{}", ran.err);
        assert!(ran.err.contains(&format!("2 {one}s not tried")), "{}", ran.err);
    }
    assert_eq!(controller.seen().len(), 2, "one request for each command");
}

#[test]
fn upload_sessions_are_cancelled_one_by_one_and_those_that_are_not_are_named() {
    let controller = without_b(|_| (204, Value::Null));
    let ran = controller.shoal(&["registry", "cancel-upload", "A", "B", "C"]).ends_with(1);
    assert_eq!(ran.out, "the upload session A is cancelled\nthe upload session C is cancelled\n");
    assert!(ran.err.contains("upload session B: there is no B"), "{}", ran.err);
    let ran = controller.shoal(&["registry", "cancel-upload", "A", "B", "C", "--json"]).ends_with(1);
    assert_eq!(documents(&ran)[1], json!({ "cancelled": ["A", "C"] }));
    controller.shoal(&["registry", "cancel-upload", "B"]).ends_with(3);
}

#[test]
fn users_and_tokens_after_one_that_cannot_be_confirmed_are_confirmed_too() {
    let controller = without_b(|_| (200, json!({ "name": "x" })));
    for what in ["user", "token"] {
        let ran = controller.shoal(&[what, "confirm", "A", "B", "C"]).ends_with(1);
        for part in ["A is confirmed", "C is confirmed", "B: there is no B", "1 of 3"] {
            assert!(ran.err.contains(part), "{part} in {}", ran.err);
        }
        controller.shoal(&[what, "confirm", "B"]).ends_with(3);
    }
}

#[test]
fn images_that_were_deleted_are_shown_although_another_one_was_refused() {
    let tag = |tag: &str| json!({ "tag": tag, "digest": format!("sha256:{tag}"), "bytes": 7, "immutable": false, "held_by": [] });
    let controller = Controller::start(move |seen| match (&seen.method, seen.uri.path()) {
        (&Method::DELETE, path) if path.ends_with("/12") => {
            (403, json!({ "errors": [{ "code": "DENIED", "message": "not this one", "detail": null }] }))
        }
        (&Method::DELETE, _) => (202, Value::Null),
        _ => {
            let tags = ["11", "12", "13"].map(tag);
            (200, json!({ "name": "os/debian", "tags": tags, "next": null, "held": [], "more_held": 0 }))
        }
    });
    let delete = ["registry", "delete", "os/debian:1*", "--yes"];
    let ran = controller.shoal(&delete).ends_with(1);
    for part in ["os/debian:11", "os/debian:13", "deleted 2 images"] {
        assert!(ran.out.contains(part), "{part} in {}", ran.out);
    }
    assert!(!ran.out.contains("os/debian:12"), "{}", ran.out);
    assert!(ran.err.contains("image os/debian:12: ") && ran.err.contains("1 of 3 images"), "{}", ran.err);
    let ran = controller.shoal(&[&delete[..], &["--json"]].concat()).ends_with(1);
    let documents = documents(&ran);
    assert_eq!(documents[0]["image"], "os/debian:12");
    let deleted: Vec<&Value> =
        documents[1]["images"].as_array().unwrap().iter().map(|image| &image["reference"]).collect();
    assert_eq!(deleted, ["11", "13"]);
}

#[test]
fn an_import_shows_what_was_registered_before_a_request_failed() {
    let requests = AtomicUsize::new(0);
    let controller = Controller::start(move |seen| {
        if requests.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            return (503, json!({ "error": "stopping", "message": "the controller stops" }));
        }
        let rows = seen.json()["rows"].as_array().unwrap().len();
        let row = |row: usize| json!({ "index": row, "serial": format!("S-{row}"), "result": "created" });
        let rows: Vec<Value> = (0..rows).map(row).collect();
        (200, json!({ "dry_run": false, "created": rows.len(), "exists": 0, "refused": 0, "rows": rows }))
    });
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    // The second line has a value too many, and the first request has 5000 rows.
    let lines: String =
        (0..5002).map(|row| format!("S-{row}{}\n", if row == 1 { ",x" } else { "" })).collect();
    std::fs::write(&table, format!("serial\n{lines}")).unwrap();
    let import = ["server", "import", table.to_str().unwrap(), "--yes"];
    let ran = controller.shoal(&import).ends_with(6);
    assert!(ran.out.contains("5000 registered, 0 were registered before, 1 refused"), "{}", ran.out);
    assert!(ran.err.contains("1 row has no result"), "{}", ran.err);
    assert!(ran.err.contains("the controller stops"), "{}", ran.err);
    let ran = controller.shoal(&[&import[..], &["--json"]].concat()).ends_with(6);
    let document = ran.json();
    assert_eq!((&document["created"], &document["unknown"]), (&json!(5000), &json!(1)));
    let rows = document["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[1]["result"]), (5002, &json!("refused")));
    assert_eq!((&rows[5001]["serial"], &rows[5001]["result"]), (&json!("S-5001"), &json!("unknown")));
    let ran = controller.shoal(&[&import[..], &["-o", "name"]].concat()).ends_with(6);
    assert_eq!(ran.out.lines().count(), 5000);
}

#[test]
fn a_catalogue_whose_import_fails_midway_shows_which_files_were_added() {
    let dir = tempfile::tempdir().unwrap();
    let component = |name: &str| {
        format!(
            r#"<SoftwareComponent path="F/{name}" vendorVersion="1.0" size="{}"><ComponentType value="BIOS"/>
            <SupportedSystems><Brand><Display>PowerEdge</Display><Model><Display>R640</Display></Model></Brand></SupportedSystems>
            </SoftwareComponent>"#,
            name.len()
        )
    };
    let names = ["a.EXE", "b.EXE", "c.EXE"];
    for name in names {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let all: String = names.map(component).concat();
    std::fs::write(dir.path().join("Catalog.xml"), format!("<Manifest>{all}</Manifest>")).unwrap();
    let controller = Controller::start(|seen| match (&seen.method, seen.body.contains("b.EXE")) {
        (&Method::HEAD, _) => (200, Value::Null),
        (_, true) => (503, json!({ "error": "stopping", "message": "the controller stops" })),
        _ => (201, json!({ "digest": "sha256:aa" })),
    });
    let import = ["firmware", "set", "import", dir.path().to_str().unwrap()];
    let ran = controller.shoal(&[&import[..], &["--json", "--set", "spring"]].concat()).ends_with(6);
    let document = ran.json();
    let states: Vec<&Value> =
        document["entries"].as_array().unwrap().iter().map(|entry| &entry["state"]).collect();
    assert_eq!(states, ["added", "failed", "ready"], "{document}");
    assert_eq!(document["set"], Value::Null);
    assert!(ran.err.contains("the controller stops"), "{}", ran.err);
    let ran = controller.shoal(&import).ends_with(6);
    assert!(ran.out.contains("added") && ran.out.contains("ready"), "{}", ran.out);
}
