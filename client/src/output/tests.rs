//! The layer of output at widths from a phone to a wall.

use jiff::Timestamp;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-02T10:00:00Z".parse().unwrap()
}

/// The text that a command writes on a screen of a width.
fn shown(width: Option<usize>, format: Format, colour: bool, show: impl Fn(&mut Output<'_>)) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let screen = Screen { width, colour, ..Screen::PIPE };
    let mut output = Output::new(&mut out, &mut err, format).on(screen, Times { utc: false, now });
    show(&mut output);
    assert!(err.is_empty());
    String::from_utf8(out).unwrap()
}

/// A table as a list of jobs has it, and fields.
fn example(output: &mut Output<'_>) {
    let columns = [
        Column::new("JOB", 0),
        Column::new("SERVER", 1),
        Column::new("STATUS", 2),
        Column::new("STEP", 4),
        Column::new("LABELS", 5),
        Column::new("CREATED", 3),
        Column::wide("BATCH"),
    ];
    let rows = [
        [
            "0192f3a4-5b6c",
            "XF-2041-000017",
            "provisioning",
            "redfish.mount.boot",
            "rack=7 site=lisbon",
            "2026-01-02T09:57:00.000Z",
            "0192f3a4",
        ],
        ["0192f3a4-77", "SGH419XXXX", "failed", "validate", "", "2025-12-31T06:00:00.000Z", ""],
        ["0191aaaa", "東京-0001", "queued", "", "site=tokyo", "2026-01-02T09:59:58.000Z", ""],
    ];
    output.columns(&columns, &rows.map(|row| row.map(str::to_owned).to_vec())).unwrap();
    output.line("").unwrap();
    output
        .fields(&[
            ("job", "0192f3a4-5b6c-7abc-8def-0123456789ab".to_owned()),
            ("status", "failed".to_owned()),
            ("empty", String::new()),
            ("what to do", "check the network from the BMC to port 8080 of this host, then create a new job with `shoal job retry`".to_owned()),
            ("deadline", "2026-01-02T12:00:00.000Z".to_owned()),
        ])
        .unwrap();
}

#[test]
fn tables_and_fields_fit_every_terminal() {
    let mut all = String::new();
    for width in [40, 80, 120, 200] {
        let text = shown(Some(width), Format::Text, false, example);
        // The table; a field is wrapped, but its words stay whole, because they are copied.
        for line in text.lines().take_while(|line| !line.is_empty()) {
            assert!(super::width(line) <= width, "{line}");
        }
        all.push_str(&format!("==== {width} columns\n{text}\n"));
    }
    all.push_str(&format!("==== a pipe\n{}\n", shown(None, Format::Text, false, example)));
    all.push_str(&format!("==== -o wide on 40 columns\n{}\n", shown(Some(40), Format::Wide, false, example)));
    golden(&all);
}

#[test]
fn colours_are_shown_on_a_terminal_only() {
    let painted = shown(Some(80), Format::Text, true, example);
    assert!(painted.contains("\u{1b}[31mfailed\u{1b}[0m"), "{painted}");
    let bare: Vec<String> = painted.lines().map(|line| bare(line).trim_end().to_owned()).collect();
    let without = shown(Some(80), Format::Text, false, example);
    assert_eq!(bare, without.lines().map(str::to_owned).collect::<Vec<_>>());
    assert!(!without.contains('\u{1b}'));
}

#[test]
fn a_document_is_json_yaml_or_names() {
    let document = json!({"jobs": [{"job_id": "a"}, {"job_id": "b"}], "next": null});
    let of = |format| shown(Some(10), format, true, |output| output.document(&document).unwrap());
    assert_eq!(serde_json::from_str::<serde_json::Value>(&of(Format::Json)).unwrap(), document);
    assert_eq!(of(Format::Yaml), "jobs:\n  - job_id: a\n  - job_id: b\nnext: null\n");
    assert_eq!(of(Format::Name), "a\nb\n");
}

#[test]
fn utc_shows_times_instead_of_ages() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err, Format::Text).on(Screen::PIPE, Times { utc: true, now });
    output.table(&["CREATED"], &[vec!["2026-01-02T09:57:00.123Z".to_owned()]]).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "CREATED\n2026-01-02T09:57:00Z\n");
}

/// Compares with `golden/cli-tables.txt`.
fn golden(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/cli-tables.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap_or_default(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[test]
fn a_value_of_json_is_shown_without_brackets_and_quotes() {
    let value = json!({
        "labels": { "rack": "7", "site": "north" }, "empty": {}, "none": [], "null": null,
        "verbs": ["cancel", "retry"], "on": true, "slots": [{ "id": "CD1" }, { "id": "CD2", "media": ["CD", "DVD"] }],
        "network": { "vlan": 7, "dns": ["192.0.2.1", "192.0.2.2"], "bond": { "mode": "lacp", "mtu": null } },
    });
    for (pointer, shown) in [
        ("/labels", "rack=7 site=north"),
        ("/empty", ""),
        ("/none", ""),
        ("/null", ""),
        ("/gone", ""),
        ("/verbs", "cancel, retry"),
        ("/on", "true"),
        ("/slots", "id=CD1; id=CD2 media=CD, DVD"),
        ("/network", "bond.mode=lacp dns=192.0.2.1, 192.0.2.2 vlan=7"),
    ] {
        assert_eq!(text(&value, pointer), shown, "{pointer}");
    }
}
