//! Tests of the profile files: every file parses, every row deviates, every BMC identity gets its profile.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::files::{FILES, ProfileFile, profile_files};
use super::*;

fn flags(value: Value) -> Result<Flags, OverrideError> {
    Flags::parse(value.as_object().unwrap())
}

#[test]
fn every_file_parses_and_is_embedded_and_the_generic_profile_is_first() {
    for (name, text) in FILES {
        if let Err(why) = ProfileFile::parse(name, text) {
            panic!("{why}");
        }
    }
    assert_eq!(FILES[0].0, "generic");
    assert_eq!(Profile::named("generic"), Some(Profile::generic()));
    let embedded: BTreeSet<String> = FILES.iter().map(|(name, _)| format!("{name}.toml")).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let there: BTreeSet<String> = entries.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(there, embedded);
}

#[test]
fn a_file_with_an_unknown_key_does_not_parse() {
    for text in [
        "title = 'x'\ncolour = 'red'",
        "title = 'x'\n[[detect]]\nvendors = ['x']",
        "title = 'x'\n[flags]\nvm_pth = { value = 'system', source = 's', verified = true }",
        "title = 'x'\n[flags]\nvm_path = { value = 'system', source = 's' }",
        "title = 'x'\n[flags]\nvm_path = { value = 'system', verified = true }",
        "title = 'x'\n[flags]\nvm_path = { value = 'nowhere', source = 's', verified = true }",
        "title = 'x'\n[flags]\ninsert_fields = { value = { colour = 'always' }, source = 's', verified = true }",
    ] {
        assert!(ProfileFile::parse("x", text).is_err(), "{text}");
    }
}

#[test]
fn every_row_has_a_source_and_deviates_and_every_deviation_is_a_row() {
    for file in profile_files() {
        let name = file.profile.name;
        assert!(!file.profile.title.is_empty());
        for row in &file.rows {
            assert!(row.source.len() >= 8, "{name}: {} has no source", row.flag);
        }
        let rows: BTreeSet<&str> = file.rows.iter().map(|row| row.flag.as_str()).collect();
        let differing: BTreeSet<&str> = file.profile.differing(&Profile::generic()).into_iter().collect();
        assert_eq!(rows, differing, "{name}");
    }
}

/// Values that no capture or document confirms keep `verified = false`.
#[test]
fn an_unconfirmed_value_stays_marked_as_not_verified() {
    let unverified: BTreeSet<(&str, &str)> = profile_files()
        .iter()
        .flat_map(|file| file.rows.iter().map(|row| (file.profile.name, row)))
        .filter(|(_, row)| !row.verified)
        .map(|(name, row)| (name, row.flag.as_str()))
        .collect();
    for row in [
        ("dell-idrac10", "slot_allow"),
        ("hpe-ilo6", "vm_path"),
        ("cisco-ucs", "insert_fields"),
        ("nvidia-gb200", "url_schemes"),
    ] {
        assert!(unverified.contains(&row), "{row:?}");
    }
}

/// Decision D20: what differs between vendors is data, so code outside of tests names mechanisms, never vendors.
#[test]
fn only_profiles_and_tests_name_vendors() {
    const VENDORS: [&str; 18] = [
        "ami",
        "cisco",
        "dell",
        "fujitsu",
        "h3c",
        "hp",
        "hpe",
        "huawei",
        "ibmc",
        "idrac",
        "ilo",
        "irmc",
        "lenovo",
        "megarac",
        "nvidia",
        "smc",
        "supermicro",
        "xclarity",
    ];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // The list of profile files consists of their names, which name vendors.
            if path.ends_with("profile/tests.rs") || path.ends_with("profile/files.rs") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            // A wire name such as `AMIVirtualMedia.EnableRMedia` is one word and is not a vendor's name.
            for word in code.split(|char: char| !char.is_ascii_alphanumeric()) {
                let named = VENDORS.contains(&word.to_ascii_lowercase().as_str());
                assert!(!named, "{} names {word}", path.display());
            }
        }
    }
}

#[test]
fn rules_are_valid_and_every_profile_but_the_generic_one_has_some() {
    for file in profile_files() {
        assert_eq!(file.detect.is_empty(), file.profile.name == "generic", "{}", file.profile.name);
        for rule in &file.detect {
            assert!(rule.is_valid(), "{}: {rule:?}", file.profile.name);
        }
    }
}

/// Vendor, product, OEM names, manufacturer, model, manager, firmware and media path, as a BMC shows them.
type Shown = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const IDENTITIES: &[(Shown, &str)] = &[
    (("", "", &[], "", "", "", "", ""), "generic"),
    (("Contoso", "BMC", &["Contoso"], "Contoso", "3500", "C", "1.0", "/redfish/v1/Managers/1/VirtualMedia"), "generic"),
    (("Dell", "Integrated Dell Remote Access Controller", &["Dell"], "Dell Inc.", "PowerEdge R730", "13G Monolithic", "2.75.75.75", ""), "dell-idrac8"),
    (("Dell", "Integrated Dell Remote Access Controller", &["Dell"], "Dell Inc.", "PowerEdge R640", "14G Monolithic", "5.10.50.00", ""), "dell-idrac9-5"),
    (("Dell", "Integrated Dell Remote Access Controller", &["Dell"], "Dell Inc.", "PowerEdge R750", "15G Monolithic", "6.10.30.00", ""), "dell-idrac9-6"),
    (("Dell", "Integrated Dell Remote Access Controller", &["Dell"], "Dell Inc.", "PowerEdge R760", "16G Monolithic", "7.10.70.00", ""), "dell-idrac9-6"),
    (("Dell", "Integrated Dell Remote Access Controller", &["Dell"], "Dell Inc.", "PowerEdge R770", "17G Monolithic", "1.20.50.50", ""), "dell-idrac10"),
    (("Dell", "Integrated Dell Remote Access Controller", &["Dell"], "Dell Inc.", "PowerEdge R770", "17G Monolithic", "2.10.20.00", ""), "dell-idrac10"),
    (("Dell", "", &["Dell"], "", "", "", "", ""), "dell-idrac9-6"),
    (("", "ProLiant DL380 Gen9", &["Hp"], "HPE", "ProLiant DL380 Gen9", "iLO 4", "iLO 4 v2.80", ""), "hpe-ilo4"),
    (("HPE", "ProLiant DL360 Gen10", &["Hpe"], "HPE", "ProLiant DL360 Gen10", "iLO 5", "iLO 5 v2.72", ""), "hpe-ilo5"),
    (("HPE", "ProLiant DL380 Gen11", &["Hpe"], "HPE", "ProLiant DL380 Gen11", "iLO 6", "iLO 6 v1.57", ""), "hpe-ilo6"),
    (("HPE", "ProLiant Compute DL380 Gen12", &["Hpe"], "HPE", "ProLiant Compute DL380 Gen12", "iLO 7", "1.11.00", ""), "hpe-ilo6"),
    (("HPE", "", &["Hpe"], "", "", "", "", ""), "hpe-ilo5"),
    (("", "", &["Hp"], "", "", "", "", ""), "hpe-ilo5"),
    (("HPE", "AMI Redfish Server", &["Ami"], "HPE", "HPE Cray XD670", "", "1.19", "/redfish/v1/Managers/Self/VirtualMedia"), "ami-megarac"),
    (("AMI", "AMI Redfish Server", &["Ami", "Hpe"], "HPE", "HPE Cray XD670", "", "1.19", ""), "ami-megarac"),
    (("HPE", "", &["OpenBmc"], "HPE", "HPE Cray EX254n", "OpenBmc", "nc-2.9", ""), "openbmc"),
    (("HPE", "", &["Hpe"], "HPE", "HPE Cray EX254n", "OpenBmc", "nc-2.9", ""), "openbmc"),
    (("HPE", "", &[], "HPE", "HPE Cray XD225v", "Joo Janta", "1.0", ""), "generic"),
    (("Lenovo", "", &["Lenovo"], "Lenovo", "ThinkSystem SR650", "Lenovo XClarity Controller", "CDI3A4A 6.10", ""), "lenovo-xcc"),
    (("Lenovo", "", &["Lenovo"], "Lenovo", "ThinkSystem SR650 V3", "Lenovo XClarity Controller 2", "ESX3 2.10", ""), "lenovo-xcc3"),
    (("Lenovo", "", &["Lenovo"], "Lenovo", "ThinkSystem SR650 V4", "Lenovo XClarity Controller 3", "1.00", ""), "lenovo-xcc3"),
    (("Lenovo", "", &["Ami"], "Lenovo", "ThinkSystem SR655", "", "4.80", "/redfish/v1/Managers/Self/VirtualMedia"), "lenovo-tsm"),
    (("AMI", "AMI Redfish Server", &["Ami"], "Lenovo", "ThinkSystem SR635", "", "4.80", "/redfish/v1/Managers/Self/VirtualMedia"), "lenovo-tsm"),
    (("", "", &["Supermicro"], "Supermicro", "Super Server", "", "01.73.11", "/redfish/v1/Managers/1/VM1"), "smc-x11-cfgcd"),
    (("", "", &["Supermicro"], "Supermicro", "X11DPH-T", "", "01.73.11", ""), "smc-x11-cfgcd"),
    (("", "", &["Supermicro"], "Supermicro", "SYS-821GE-TNHR", "ASPEED", "01.03.12", "/redfish/v1/Managers/1/VirtualMedia"), "smc-x12"),
    (("Supermicro", "", &[], "Super Micro Computer", "AS-1125HS", "", "01.00.35", ""), "smc-x12"),
    (("Supermicro", "", &["Supermicro"], "Supermicro", "SYS-222H-TN", "", "01.02.04", ""), "smc-x12"),
    (("AMI", "AMI Redfish Server", &["Ami"], "GIGABYTE", "R282-Z90", "", "13.06.10", "/redfish/v1/Managers/Self/VirtualMedia"), "ami-megarac"),
    (("", "", &[], "", "", "OpenBmc", "2.14.0-dev", "/redfish/v1/Managers/bmc/VirtualMedia"), "openbmc"),
    (("OpenBMC", "", &["OpenBMC"], "", "", "", "", ""), "openbmc"),
    (("Cisco Systems Inc.", "UCSC-C845A-M8", &[], "Cisco Systems Inc.", "UCSC-C845A-M8", "OpenBmc", "1.1", ""), "openbmc"),
    (("NVIDIA", "GB200 NVL", &["Nvidia"], "NVIDIA", "GB200 NVL", "OpenBmc", "GB200Nvl-25.01", ""), "nvidia-gb200"),
    (("NVIDIA", "P3809", &["Nvidia"], "NVIDIA", "", "OpenBmc", "GH200-24.05-2", ""), "nvidia-gb200"),
    (("NVIDIA", "P3809", &[], "", "", "", "", ""), "nvidia-gb200"),
    (("", "", &["Nvidia"], "NVIDIA", "", "OpenBmc", "GH200-24.05-2", ""), "nvidia-gb200"),
    (("AMI", "AMI Redfish Server", &["Ami"], "NVIDIA", "DGXH100", "", "24.01.05", ""), "nvidia-dgx-h100"),
    (("Cisco Systems Inc.", "UCSC-C220-M6S", &["Cisco"], "Cisco Systems Inc", "UCSC-C220-M6S", "Cisco IMC", "4.3(2.230207)", ""), "cisco-ucs"),
    (("FUJITSU", "", &["ts_fujitsu"], "FUJITSU", "PRIMERGY RX2540 M6", "iRMC S5", "3.37P", ""), "fujitsu-irmc"),
    (("Huawei", "", &["Huawei"], "Huawei", "2288H V5", "iBMC", "6.28", ""), "huawei-ibmc"),
    (("", "", &["xFusion"], "xFusion", "2288H V6", "", "", ""), "huawei-ibmc"),
    (("", "", &["Public"], "H3C", "UniServer R4900", "HDM", "2.10", ""), "huawei-ibmc"),
    (("", "", &["Public"], "Inspur", "NF5280M6", "", "4.26.15", ""), "generic"),
    (("", "", &["Public"], "KAYTUS", "KR2280V2", "", "5.10.00", ""), "generic"),
    (("", "", &["Public"], "ZTE", "R5300 G4", "", "04.21.01", ""), "generic"),
    (("", "", &["Public"], "", "", "", "", ""), "generic"),
    (("", "", &[], "Sushy Emulator", "", "", "", ""), "sushy"),
];

fn identity(shown: &Shown) -> BmcIdentity {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (vendor, product, oem, manufacturer, model, manager, firmware, media) = *shown;
    BmcIdentity {
        vendor: some(vendor).or_else(|| some(manufacturer)),
        product: some(product),
        oem: oem.iter().map(|name| (*name).to_owned()).collect(),
        manufacturer: some(manufacturer),
        model: some(model),
        manager: some(manager),
        firmware: some(firmware).map(Into::into),
        media: some(media),
    }
}

#[test]
fn each_identity_gets_its_profile_and_each_profile_has_an_identity() {
    let mut seen = BTreeSet::new();
    for (shown, name) in IDENTITIES {
        assert_eq!(Profile::detect(&identity(shown)).name, *name, "{shown:?}");
        seen.insert(*name);
    }
    assert_eq!(seen, Profile::names().collect());
}

#[test]
fn no_two_profiles_match_one_identity_with_one_weight() {
    for (shown, name) in IDENTITIES {
        let identity = identity(shown);
        let matching = profile_files().iter().filter_map(|file| {
            let rules = file.detect.iter().filter(|rule| rule.matches(&identity));
            Some((rules.map(|rule| rule.weight()).max()?, file.profile.name))
        });
        let mut matching: Vec<(usize, &str)> = matching.collect();
        matching.sort_unstable();
        if let [.., (second, other), (first, _)] = matching.as_slice() {
            assert!(first > second, "{shown:?}: {name}, {other}: {matching:?}");
        }
    }
}

#[test]
fn overrides_set_what_they_name_and_nothing_else() {
    let overrides = flags(json!({
        "vm_path": "manager", "settle_after_mount_s": 90, "insert_fields": { "creds": "always" },
        "slot_deny": ["RDOC*"], "boot_targets": ["UsbCd"], "login_oem": { "Huawei": { "Domain": "x" } },
    }));
    let profile = Profile::generic().with(&overrides.unwrap());
    assert_eq!(profile.settle_after_mount.as_secs(), 90);
    assert_eq!(profile.insert_fields.creds, Include::Always);
    assert_eq!(profile.insert_fields.method, Include::WhenAsked);
    assert_eq!(
        profile.differing(&Profile::generic()),
        ["login_oem", "settle_after_mount_s", "vm_path", "slot_deny", "insert_fields", "boot_targets"]
    );
}

#[test]
fn an_invalid_override_is_named_with_the_reason() {
    for (value, message) in [
        (json!({ "vm_pth": "system" }), "there is no flag \"vm_pth\"; did you mean vm_path?"),
        (json!({ "settle": 1 }), "there is no flag \"settle\"; the flags are session, login_oem"),
        (
            json!({ "vm_path": "cellar" }),
            "flag vm_path: unknown variant `cellar`, expected `system` or `manager`",
        ),
        (json!({ "settle_after_mount_s": 99999 }), "flag settle_after_mount_s: a time of more than an hour"),
        (
            json!({ "update_timeout_s": 14401 }),
            "flag update_timeout_s: a time of more than 4 hours (14400 s)",
        ),
        (json!({ "settle_after_mount_s": "long" }), "flag settle_after_mount_s: invalid type"),
        (json!({ "url_schemes": ["gopher"] }), "flag url_schemes: a list of http, https, nfs or cifs"),
        (json!({ "url_schemes": [] }), "flag url_schemes: "),
        (json!({ "boot_targets": [] }), "flag boot_targets: at least one"),
        (json!({ "slot_allow": [""] }), "flag slot_allow: each entry has"),
        (json!({ "url_suffix_cd": "exe" }), "flag url_suffix_cd: iso or img"),
    ] {
        let shown = flags(value.clone()).unwrap_err().to_string();
        assert!(shown.starts_with(message), "{value}: {shown}");
    }
    assert_eq!(
        Profile::find("dell-idrac9").unwrap_err(),
        "there is no BMC profile \"dell-idrac9\"; did you mean dell-idrac8?"
    );
    assert!(Profile::find("generic").is_ok());
}

#[test]
fn learned_behaviour_refines_and_never_overrides() {
    let learned = Learned {
        wants: [InsertMember::Protocol].into(),
        refuses: [InsertMember::Inserted, InsertMember::Method].into(),
        basic_only: true,
        etag_star: true,
        ..Learned::default()
    };
    let fixed = flags(json!({ "insert_fields": { "method": "always" }, "if_match": "none" })).unwrap();
    let profile = Profile::generic().refined(&learned).with(&fixed);
    assert_eq!(profile.insert_fields.protocol, Include::Always);
    assert_eq!(profile.insert_fields.inserted, Include::Never);
    assert_eq!(profile.insert_fields.method, Include::Always);
    assert_eq!((profile.session, profile.if_match), (Auth::Basic, IfMatch::Without));
}

#[test]
fn behaviour_learned_from_another_firmware_is_discarded() {
    let mut learned =
        Learned { firmware_version: Some("1.0".into()), basic_only: true, ..Learned::default() };
    learned.on_firmware(Some(&"1.0".into()));
    assert!(learned.basic_only);
    learned.on_firmware(Some(&"1.1".into()));
    assert!(learned.is_empty());
    assert_eq!(learned.firmware_version, Some("1.1".into()));
    let stored: Learned =
        serde_json::from_value(json!({ "firmware_version": "1.1", "of_later": 1 })).unwrap();
    assert_eq!(stored, learned);
}
