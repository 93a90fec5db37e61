//! Vendors, models, sets, and the set that fits.

use std::collections::BTreeMap;

use super::{entry, file, labelled, set};
use crate::{Component, FirmwareSet, MatchError, Model, SetError, SetName, Vendor, choose};

fn vendor(text: &str) -> Vendor {
    text.parse().unwrap()
}

fn model(text: &str) -> Model {
    text.parse().unwrap()
}

#[test]
fn a_vendor_has_one_name_however_its_bmc_writes_it() {
    for (written, name) in [
        ("Dell Inc.", "dell"),
        ("DELL", "dell"),
        ("Hewlett Packard Enterprise", "hpe"),
        ("HPE", "hpe"),
        ("Super Micro Computer, Inc.", "supermicro"),
        ("Intel(R) Corporation", "intel"),
        ("New Maker GmbH", "new-maker-gmbh"),
    ] {
        assert_eq!(vendor(written).as_str(), name, "{written}");
        assert_eq!(vendor(name).as_str(), name, "the name itself");
    }
    for wrong in ["", "  ", "…", &"x".repeat(65)] {
        wrong.parse::<Vendor>().unwrap_err();
    }
}

#[test]
fn models_are_equal_without_regard_to_case_and_blanks() {
    assert_eq!(model(" PowerEdge  R640 "), model("poweredge r640"));
    assert_ne!(model("R640"), model("R640xd"));
    for wrong in ["", " ", "a;b", "a\u{7}b"] {
        wrong.parse::<Model>().unwrap_err();
    }
    let unknown = "motherboard".parse::<Component>().unwrap_err().to_string();
    assert!(unknown.contains("bmc, bios, cpld"), "{unknown}");
    assert_eq!("Storage_Controller".parse(), Ok(Component::StorageController));
}

#[test]
fn a_set_with_two_versions_of_one_component_is_refused_with_both_named() {
    let files = [
        file("dell", "R640;R740", Component::Bios, "2.19.1"),
        file("dell", "r740", Component::Bios, "2.20.0"),
        file("dell", "R640", Component::Bmc, "7.0"),
    ];
    let name: SetName = "two".parse().unwrap();
    let made = |files: &[crate::FirmwareFile]| {
        FirmwareSet::new(name.clone(), BTreeMap::new(), files.iter().cloned().map(entry).collect())
    };
    let refused = made(&files).unwrap_err();
    assert!(matches!(refused, SetError::TwoFiles { component: Component::Bios, .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("2.19.1") && text.contains("2.20.0") && text.to_lowercase().contains("r740"),
        "{text}"
    );
    made(&files[..1]).unwrap();
    made(&[files[1].clone(), files[2].clone()]).unwrap();
    assert_eq!(made(&[]), Err(SetError::Empty));
    let twice = made(&[files[2].clone(), files[2].clone()]).unwrap_err();
    assert!(matches!(twice, SetError::TwoFiles { .. }), "the same file twice: {twice}");
}

#[test]
fn exactly_one_set_is_chosen_and_none_and_several_are_different_errors() {
    let bios = |models: &str| file("dell", models, Component::Bios, "2.19.1");
    let sets = [
        labelled("r640", &[("vendor", "Dell Inc."), ("model", "PowerEdge R640")], vec![bios("R640")]),
        labelled("r740-stable", &[("ring", "stable")], vec![bios("PowerEdge R740")]),
        labelled("r740-test", &[("ring", "test")], vec![bios("PowerEdge R740")]),
        labelled("disks", &[], vec![file("dell", "PowerEdge R940", Component::Drive, "1.0")]),
    ];
    let chosen = |model_text: &str, labels: &[(&str, &str)]| {
        let wanted = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        choose(&sets, &vendor("dell"), &model(model_text), &wanted).map(|set| set.name().to_string())
    };
    assert_eq!(chosen("poweredge r640", &[]).as_deref(), Ok("r640"));
    assert_eq!(chosen("PowerEdge R740", &[("ring", "test")]).as_deref(), Ok("r740-test"));
    let several = chosen("PowerEdge R740", &[]).unwrap_err();
    assert!(several.to_string().contains("r740-stable, r740-test"), "{several}");
    assert!(matches!(several, MatchError::SeveralSets { .. }), "{several}");
    for (model, labels) in
        [("PowerEdge R940", vec![]), ("PowerEdge R740", vec![("ring", "none")]), ("R640", vec![])]
    {
        let none = chosen(model, &labels).unwrap_err();
        assert!(matches!(none, MatchError::NoSet { .. }), "{model}: {none}");
    }
    let other = choose(&sets, &vendor("hpe"), &model("PowerEdge R640"), &BTreeMap::new()).unwrap_err();
    assert!(matches!(other, MatchError::NoSet { .. }), "the vendor counts too: {other}");
}

#[test]
fn files_of_a_set_are_in_the_order_of_installation() {
    let all = [Component::Nic, Component::Bios, Component::Drive, Component::Bmc];
    let set = set(all.map(|component| file("v", "M", component, "1.0")).to_vec());
    let order: Vec<Component> = set.entries().iter().map(|entry| entry.file.component).collect();
    assert_eq!(order, [Component::Bmc, Component::Bios, Component::Drive, Component::Nic]);
}
