//! `shoal media`.

use serde_json::{Value, json};

use super::{Controller, refused};

fn media(image: &str, state: &str, ended: Value) -> Value {
    json!({
        "job_id": "J-1", "workflow": "provision", "server_serial": "XF-1", "state": state, "image": image,
        "sha256": "0".repeat(64), "size": 400, "bytes": 120, "since": "2026-01-02T10:00:00Z",
        "first_read_at": null, "boot_read_at": null, "last_read_at": "2026-01-02T10:01:00Z", "ended_at": ended,
        "ends_by": if ended.is_null() { json!("2026-01-02T11:00:00Z") } else { Value::Null },
    })
}

#[test]
fn images_are_a_table_of_what_each_server_holds_and_when_its_url_ends() {
    let ended = json!("2026-01-02T10:30:00Z");
    let rows = json!([media("task", "reading", Value::Null), media("boot", "ended", ended)]);
    let controller = Controller::start(move |_| (200, json!({ "media": rows, "next": null })));
    let ran = controller.shoal(&["media", "list", "--utc"]).ends_with(0);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("IMAGE") && lines[0].contains("URL ENDS"), "{}", ran.out);
    assert!(lines[1].contains("reading") && lines[1].contains("2026-01-02T11:00:00"), "{}", ran.out);
    assert!(lines[2].contains("ended") && lines[2].contains("2026-01-02T10:30:00"), "{}", ran.out);
    let json = controller.shoal(&["media", "list", "-o", "json"]).ends_with(0).json();
    assert_eq!(json["media"][0]["state"], "reading");
}

#[test]
fn the_options_are_the_filters_of_the_list() {
    let controller = Controller::start(|_| (200, json!({ "media": [], "next": null })));
    controller.shoal(&["media", "list", "--served", "--image", "boot", "--server", "XF-1"]).ends_with(0);
    let asked = controller.seen()[0].uri.to_string();
    assert_eq!(asked, "/api/v1/media?served=true&image=boot&server_serial=XF-1&limit=100");
    controller.shoal(&["media", "list", "--ended", "--limit", "7"]).ends_with(0);
    assert_eq!(controller.seen()[1].uri.to_string(), "/api/v1/media?served=false&limit=7");
    assert!(refused(&["media", "list", "--served", "--ended"]).contains("--ended"));
    assert!(refused(&["media", "list", "--image", "cd"]).contains("firmware"));
}

#[test]
fn each_image_of_a_job_is_one_name_however_often_it_was_served() {
    let ended = json!("2026-01-02T10:30:00Z");
    let rows: Vec<Value> =
        ["task", "boot", "task", "boot"].map(|image| media(image, "ended", ended.clone())).into();
    let controller = Controller::start(move |_| (200, json!({ "media": rows, "next": null })));
    let names = controller.shoal(&["media", "list", "-o", "name"]).ends_with(0).out;
    assert_eq!(names, "J-1/task\nJ-1/boot\n");
}
