//! docs/troubleshooting.md names waits, failure classes, error codes and checks that the program has.

use std::collections::BTreeSet;

use crate::sources::{product_code, read, root, tracked};

/// What the program knows: `kind name`.
fn known() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    // A page per code, which a test of the controller generates.
    for page in std::fs::read_dir(root().join("docs/errors")).unwrap() {
        let name = page.unwrap().file_name().to_string_lossy().into_owned();
        all.insert(format!("error {}", name.trim_end_matches(".md")));
    }
    for golden in ["golden/waits.txt", "golden/upkeep-waits.txt"] {
        let text = read(&root().join(golden));
        let names = text.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
        all.extend(names.map(|name| format!("wait {name}")));
    }
    let alerts = read(&root().join("telemetry/observability/alerts.yml"));
    let alerts = alerts.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: "));
    all.extend(alerts.map(|name| format!("alert {name}")));
    let events = read(&root().join("docs/events.md"));
    let events = events.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    all.extend(events.map(|name| format!("event {name}")));
    let holds = read(&root().join("model/src/names.rs"));
    let holds = holds.split("impl HoldClass {").nth(1).unwrap().split("\n}\n").next().unwrap();
    all.extend(
        holds.split("Self::new(\"").skip(1).map(|rest| format!("hold {}", rest.split('"').next().unwrap())),
    );
    for file in tracked(&["rs"]) {
        let code = product_code(&file);
        for (kind, opening) in [("failure", "FailureClass::new(\""), ("check", "Finding::new(\"")] {
            for rest in code.split(opening).skip(1) {
                all.insert(format!("{kind} {}", rest.split('"').next().unwrap()));
            }
        }
        // The formatter may break the line after the parenthesis.
        for rest in code.split("Finding::new(\n").skip(1) {
            all.insert(format!("check {}", rest.split('"').nth(1).unwrap()));
        }
    }
    all
}

/// The names of a line `Shows as: kind `name`, kind `name``.
fn named(line: &str) -> Vec<String> {
    let parts = line.trim_start_matches("Shows as:").split(',');
    parts.map(|part| part.trim().replace('`', "")).collect()
}

#[test]
fn every_symptom_is_tied_to_something_that_the_program_shows() {
    let page = read(&root().join("docs/troubleshooting.md"));
    let known = known();
    let mut symptoms = 0;
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        if title == "Asking for help" {
            continue;
        }
        let line = section.lines().find(|line| line.starts_with("Shows as:"));
        let line = line.unwrap_or_else(|| panic!("{title:?} has no line \"Shows as:\""));
        for name in named(line) {
            assert!(known.contains(&name), "{title}: the program has no {name:?}");
        }
        symptoms += 1;
    }
    assert!(symptoms >= 15, "only {symptoms} symptoms were found");
}

#[test]
fn every_wait_failure_and_hold_has_a_symptom() {
    let page = read(&root().join("docs/troubleshooting.md"));
    let lines = page.lines().filter(|line| line.starts_with("Shows as:"));
    let named: BTreeSet<String> = lines.flat_map(named).collect();
    let known = known();
    let seen =
        known.iter().filter(|name| ["wait ", "failure ", "hold "].iter().any(|kind| name.starts_with(kind)));
    let missing: Vec<&String> = seen.filter(|name| !named.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md says nothing of {missing:?}");
}

#[test]
fn a_name_that_the_program_does_not_have_is_noticed() {
    let known = known();
    for name in named(
        "Shows as: wait `mount`, failure `media`, error `busy`, check `port`, hold `operator`, alert `ShoalDown`, event `job.created`",
    ) {
        assert!(known.contains(&name), "{name}");
    }
    for name in ["wait monut", "failure mediums", "error bussy", "check ports"] {
        assert!(!known.contains(name), "{name}");
    }
}

#[test]
fn a_command_that_pins_a_certificate_gives_the_password_of_the_bmc() {
    // The controller sends the password to no BMC with another certificate, unless the operator gives it again.
    for file in tracked(&["md"]).into_iter().filter(|file| !file.ends_with("docs/cli.md")) {
        let text = read(&file).replace('\n', " ");
        for command in text.split("shoal server update ").skip(1) {
            let command = command.split(['`', ';']).next().unwrap();
            assert!(
                !command.contains("tls-fingerprint") || command.contains("--bmc-password-"),
                "{}: shoal server update {command}",
                file.display()
            );
        }
    }
}
