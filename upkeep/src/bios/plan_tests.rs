use std::fmt::Write;

use super::*;

fn seen(bios: Value, pending: Value, registry: bool) -> BiosShown {
    let map = |value: &Value| value.as_object().cloned();
    let settings = SettingsView {
        current: map(&bios).unwrap_or_default(),
        pending: map(&pending),
        apply_times: Vec::new(),
    };
    let order = json!({ "BootOrder": ["Boot0001", "Boot0002", "Boot0003"] });
    let attributes = json!({ "RegistryEntries": { "Attributes": [
        { "AttributeName": "BootMode", "Type": "Enumeration", "Value": [{ "ValueName": "Uefi" }, { "ValueName": "Legacy" }] },
        { "AttributeName": "FanOffset", "Type": "Integer", "LowerBound": 0, "UpperBound": 9 },
        { "AttributeName": "Turbo", "Type": "Boolean" },
        { "AttributeName": "Revision", "Type": "String", "ReadOnly": true },
        { "AttributeName": "SetupLock", "Type": "Password" },
    ]}});
    BiosShown {
        bios: Ok(Bios { uri: "/bios".to_owned(), registry: None, settings }),
        registry: match registry {
            true => AttributeRegistry::parse(&attributes).ok_or_else(String::new),
            false => Err("the BIOS names no attribute registry".to_owned()),
        },
        boot_order: Ok(SettingsView { current: map(&order).unwrap_or_default(), ..SettingsView::default() }),
    }
}

fn order(attributes: Value, boot_order: &[&str]) -> ApplyBios {
    let boot_order = boot_order.iter().map(|option| (*option).to_owned()).collect();
    let attributes = serde_json::from_value(attributes).unwrap();
    ApplyBios { attributes, boot_order, ..ApplyBios::default() }
}

fn lines(text: &mut String, title: &str, items: &[SettingItem]) {
    writeln!(text, "# {title}").unwrap();
    for item in items {
        writeln!(
            text,
            "{:<10} {:<12} -> {:<12} {}: {}",
            item.name,
            plain(&item.now),
            plain(&item.then),
            item.decision,
            item.reason
        )
        .unwrap();
    }
    writeln!(text, "{}\n", summary(items)).unwrap();
}

#[test]
fn every_decision_of_a_plan_matches_the_golden_file() {
    let current = json!({
        "BootMode": "Uefi", "FanOffset": 3, "Turbo": true, "Revision": "P79", "SetupLock": "", "Extra": "a",
    });
    let known = seen(current.clone(), json!({ "Turbo": false }), true);
    let mut text = String::new();
    let good = order(
        json!({ "BootMode": "Legacy", "FanOffset": "3", "Turbo": "false", "Extra": "b" }),
        &["Boot0003"],
    );
    lines(&mut text, "values that are taken", &planned(&good, &known));
    let bad = order(
        json!({
            "BootMode": "uefi", "FanOffset": 10, "Turbo": "often", "Revision": "P80", "SetupLock": "hunter2",
            "bootmode": "Uefi", "Watchdog": "On",
        }),
        &["Boot0003", "Boot0009"],
    );
    lines(&mut text, "values that are refused", &planned(&bad, &known));
    let unverified = seen(current, Value::Null, false);
    let typed = order(json!({ "FanOffset": "5", "Turbo": "true", "BotMode": "Legacy" }), &[]);
    lines(&mut text, "without a registry", &planned(&typed, &unverified));
    let mut none = unverified;
    none.bios = Err("the BMC shows no attributes of the BIOS".to_owned());
    none.boot_order = Err("the system shows no boot order".to_owned());
    lines(
        &mut text,
        "a BMC that shows nothing",
        &planned(&order(json!({ "Turbo": true }), &["Boot0001"]), &none),
    );
    assert!(!text.contains("hunter2"), "{text}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/bios-plan.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[test]
fn no_row_has_the_value_of_a_password() {
    let mut known =
        seen(json!({ "SetupLock": "hunter2", "AdminPassword": "hunter2", "Turbo": true }), Value::Null, true);
    if let Ok(bios) = &mut known.bios {
        bios.settings.pending = Some(Map::from_iter([("SetupLock".to_owned(), json!("hunter2"))]));
    }
    let rows = known.attributes().unwrap();
    assert!(!format!("{rows:?}").contains("hunter2"), "{rows:?}");
    let shown: Vec<(&str, bool)> = rows.iter().map(|row| (row.name.as_str(), row.secret)).collect();
    assert_eq!(shown, [("AdminPassword", true), ("SetupLock", true), ("Turbo", false)]);
    assert_eq!(rows[2].value, true);
}
