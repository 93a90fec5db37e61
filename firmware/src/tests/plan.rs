//! The plan of an installation.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{entry, file, golden, set};
use crate::{
    Component, FirmwareSet, Installed, Plan, PlanDecision, PlanOptions, Restart, ServerFirmware, plan,
};

const STRICT: PlanOptions = PlanOptions { allow_downgrade: false };
const ALLOWED: PlanOptions = PlanOptions { allow_downgrade: true };

fn installed(component: Component, id: &str, model: Option<&str>, version: Option<&str>) -> Installed {
    Installed {
        component,
        id: id.to_owned(),
        vendor: None,
        model: model.map(|model| model.parse().unwrap()),
        version: version.map(Into::into),
        updateable: Some(true),
    }
}

fn server(installed: Vec<Installed>) -> ServerFirmware {
    let model = "PowerEdge R640".parse().unwrap();
    ServerFirmware { vendor: "dell".parse().unwrap(), model, installed, unread: 0 }
}

/// The whole set of cases of the module's table.
fn case() -> (ServerFirmware, FirmwareSet) {
    use Component::{BackplaneExpander, Bios, Bmc, Cpld, Drive, Gpu, Nic, Psu, StorageController, Tpm};
    let mut fixed = installed(BackplaneExpander, "BP", None, Some("1.0"));
    fixed.updateable = Some(false);
    let server = server(vec![
        installed(Nic, "NIC.2", Some("X710"), Some("9.00")),
        installed(Nic, "NIC.1", Some("X550"), Some("9.20")),
        installed(Bios, "BIOS", None, Some("2.18.1")),
        installed(Bmc, "BMC", None, Some("7.00.00.00")),
        installed(Drive, "Disk.0", Some("PM1733"), Some("GPK6")),
        installed(Cpld, "CPLD", None, Some("1.1.4")),
        installed(StorageController, "RAID", Some("H755"), Some("52.1")),
        installed(Psu, "PSU.1", None, None),
        fixed,
    ]);
    let of_server = "PowerEdge R640;PowerEdge R740";
    let set = set(vec![
        file("dell", of_server, Bmc, "7.00.00.00"),
        file("dell", of_server, Bios, "2.19.0"),
        file("dell", of_server, Cpld, "1.1.3"),
        file("dell", of_server, BackplaneExpander, "2.0"),
        file("dell", of_server, Psu, "00.1B.53"),
        file("dell", of_server, Tpm, "1.3"),
        file("dell", "PM1733", Drive, "GPK7"),
        file("dell", "H330", StorageController, "25.5"),
        file("dell", "X710", Nic, "9.20"),
        file("dell", "A100", Gpu, "92.0"),
    ]);
    (server, set)
}

fn table(plan: &Plan) -> String {
    let mut text = String::new();
    for item in &plan.items {
        let version = |version: &Option<crate::FirmwareVersion>| {
            version.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
        };
        let decision = match &item.decision {
            PlanDecision::Install(entry) => {
                format!(
                    "install {} ({} bytes, restart {})",
                    entry.file.filename,
                    entry.file.size,
                    entry.file.restart.as_str()
                )
            }
            PlanDecision::Skip(reason) => format!("skip: {reason}"),
            PlanDecision::Refuse(refusal) => format!("refuse: {refusal}"),
            PlanDecision::Unknown => "unknown".to_owned(),
        };
        let id = item.id.as_deref().unwrap_or("-");
        writeln!(
            text,
            "{:<18} {id:<7} {:<11} {:<11} {decision}",
            item.component.as_str(),
            version(&item.now),
            version(&item.then)
        )
        .unwrap();
    }
    writeln!(text, "{} bytes, restart {}", plan.size(), plan.restart().as_str()).unwrap();
    text
}

#[test]
fn every_case_of_a_plan_has_its_line_in_the_golden_table() {
    let (server, set) = case();
    let mut text = String::new();
    for (title, options) in [("without --allow-downgrade", STRICT), ("with --allow-downgrade", ALLOWED)] {
        writeln!(text, "# {title}\n{}", table(&plan(&server, &set, options))).unwrap();
    }
    let unread = ServerFirmware { unread: 2, ..server.clone() };
    let title = "# a server whose BMC cannot show two members of its inventory";
    writeln!(text, "{title}\n{}", table(&plan(&unread, &set, STRICT))).unwrap();
    let bare = ServerFirmware { installed: Vec::new(), ..server };
    writeln!(text, "# a server whose BMC shows nothing\n{}", table(&plan(&bare, &set, STRICT))).unwrap();
    golden("firmware-plan.txt", &text);
}

#[test]
fn the_bmc_comes_before_the_bios_and_only_the_bios_restarts_the_host() {
    let of = |component| file("dell", "PowerEdge R640", component, "2.0");
    let both = vec![
        installed(Component::Bios, "B", None, Some("1.0")),
        installed(Component::Bmc, "A", None, Some("1.0")),
    ];
    let made = plan(&server(both.clone()), &set(vec![of(Component::Bios), of(Component::Bmc)]), STRICT);
    let order: Vec<Component> = made.installs().map(|(item, _)| item.component).collect();
    assert_eq!(order, [Component::Bmc, Component::Bios]);
    assert_eq!((made.restart(), made.size()), (Restart::Host, 2_000));
    let only = plan(&server(both), &set(vec![of(Component::Bmc)]), STRICT);
    assert_eq!(only.restart(), Restart::None);
}

#[test]
fn a_file_of_another_vendor_or_for_another_model_is_never_installed() {
    let host = vec![
        installed(Component::Bios, "B", None, Some("1.0")),
        installed(Component::Nic, "N", Some("X710"), Some("1.0")),
    ];
    for (vendor, model, component) in [
        ("hpe", "PowerEdge R640", Component::Bios),
        ("dell", "PowerEdge R740", Component::Bios),
        // The file of a device is for the model of the device, not for the server's.
        ("dell", "PowerEdge R640", Component::Nic),
        ("broadcom", "X710", Component::Nic),
    ] {
        let made = plan(&server(host.clone()), &set(vec![file(vendor, model, component, "2.0")]), ALLOWED);
        assert_eq!(made.installs().count(), 0, "{vendor} {model} {component}: {}", table(&made));
        assert_eq!(made.refusals().count(), 1, "{vendor} {model} {component}: {}", table(&made));
    }
}

#[test]
fn the_file_of_a_device_s_own_vendor_wins_over_that_of_the_server_s_vendor() {
    let mut nic = installed(Component::Nic, "N", Some("X710"), Some("1.0"));
    nic.vendor = Some("intel".parse().unwrap());
    let files =
        vec![file("dell", "X710", Component::Nic, "2.0"), file("intel", "X710", Component::Nic, "3.0")];
    let made = plan(&server(vec![nic]), &set(files), STRICT);
    let versions: Vec<String> = made.installs().map(|(_, entry)| entry.file.version().to_string()).collect();
    assert_eq!(versions, ["3.0"]);
}

fn component() -> impl Strategy<Value = Component> {
    prop::sample::select(Component::ALL.to_vec())
}

fn any_installed() -> impl Strategy<Value = Installed> {
    let version = prop::option::of("[0-3]\\.[0-3]|A0[1-3]");
    (component(), "[A-C]", prop::option::of("[XY]"), version, prop::option::of(any::<bool>())).prop_map(
        |(component, id, model, version, updateable)| Installed {
            updateable,
            ..installed(component, &id, model.as_deref(), version.as_deref())
        },
    )
}

fn any_files() -> impl Strategy<Value = Vec<(Component, String, String)>> {
    prop::collection::vec((component(), "X|Y|PowerEdge R640", "[0-3]\\.[0-3]|A0[1-3]"), 1..12)
}

/// A set of the files that fit together.
fn made(files: &[(Component, String, String)]) -> FirmwareSet {
    let mut kept: Vec<crate::FirmwareFile> = Vec::new();
    for (component, model, version) in files {
        let one = file("dell", model, *component, version);
        if !kept.iter().any(|other| other.overlaps(&one)) {
            kept.push(one);
        }
    }
    set(kept)
}

proptest! {
    #[test]
    fn the_order_of_files_and_components_does_not_change_the_plan(
        installed in prop::collection::vec(any_installed(), 0..12),
        files in any_files(),
        turn in 0_usize..12,
        allow_downgrade in any::<bool>(),
    ) {
        let options = PlanOptions { allow_downgrade };
        let set = made(&files);
        let mut entries = set.entries().to_vec();
        let middle = turn % entries.len();
        entries.rotate_left(middle);
        entries.reverse();
        let again = FirmwareSet::new(set.name().clone(), set.labels().clone(), entries).unwrap();
        let mut turned = installed.clone();
        turned.reverse();
        if !turned.is_empty() {
            let middle = turn % turned.len();
            turned.rotate_left(middle);
        }
        prop_assert_eq!(plan(&server(installed), &set, options), plan(&server(turned), &again, options));
    }

    #[test]
    fn a_plan_that_is_carried_out_installs_nothing_the_second_time(
        installed in prop::collection::vec(any_installed(), 0..12),
        files in any_files(),
        allow_downgrade in any::<bool>(),
    ) {
        let options = PlanOptions { allow_downgrade };
        let set = made(&files);
        let mut host = server(installed);
        // One BMC names a firmware once.
        host.installed.sort_by(|a, b| (a.component, &a.id).cmp(&(b.component, &b.id)));
        host.installed.dedup_by(|a, b| (a.component, &a.id) == (b.component, &b.id));
        let first = plan(&host, &set, options);
        for (item, entry) in first.installs() {
            let mut of = host.installed.iter_mut();
            let found = of.find(|one| one.component == item.component && Some(&one.id) == item.id.as_ref());
            found.unwrap().version = Some(entry.file.version().clone());
        }
        let second = plan(&host, &set, options);
        prop_assert_eq!(second.installs().count(), 0);
        prop_assert_eq!(second.refusals().count(), first.refusals().count());
        prop_assert_eq!(second.restart(), Restart::None);
    }

    #[test]
    fn without_permission_nothing_older_and_nothing_without_an_order_is_installed(
        installed in prop::collection::vec(any_installed(), 0..12),
        files in any_files(),
    ) {
        for (item, entry) in plan(&server(installed), &made(&files), STRICT).installs() {
            let now = item.now.as_ref().unwrap();
            prop_assert_eq!(crate::compare(now, entry.file.version()), crate::VersionOrder::Older);
        }
    }
}

#[test]
fn an_entry_names_the_repository_of_its_vendor_and_component() {
    assert_eq!(entry(file("Dell Inc.", "M", Component::Bios, "1.0")).repository, "firmware/dell/bios");
}
