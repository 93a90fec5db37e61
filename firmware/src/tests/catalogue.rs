//! Catalogues of vendors: what is read, what is refused, and what of a folder is ready.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use md5::Md5;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::catalogue::{
    Additions, CatalogueError, CatalogueProblem, Format, Listed, Malformed, check, find, read,
};
use crate::{Component, Restart, fuzz};

fn dell(md5: &str, size: usize) -> String {
    format!(
        r#"<?xml version="1.0" encoding="utf-16"?>
<Manifest baseLocation="downloads.example" version="26.11.00">
  <InventoryComponent path="FOLDER0/inv.BIN" hashMD5="00"/>
  <SoftwareComponent path="FOLDER1/1/BIOS_R640_2.19.1.EXE" hashMD5="{md5}" size="{size}" packageType="LW64"
      vendorVersion="2.19.1" dellVersion="A00" rebootRequired="true">
    <Name><Display lang="en"><![CDATA[BIOS & Utilities]]></Display></Name>
    <ComponentType value="BIOS"><Display lang="en">BIOS</Display></ComponentType>
    <Category value="BI"><Display lang="en">BIOS</Display></Category>
    <SupportedDevices><Device componentID="159" embedded="1"><Display lang="en">BIOS</Display></Device></SupportedDevices>
    <SupportedSystems><Brand key="3" prefix="PE"><Display lang="en">PowerEdge</Display>
      <Model systemID="0716"><Display lang="en">R640</Display></Model>
      <Model systemID="0717"><Display lang="en">R740 &#38; R740xd</Display></Model></Brand></SupportedSystems>
  </SoftwareComponent>
  <SoftwareComponent path="FOLDER2/1/BIOS_R640_2.19.1.BIN" vendorVersion="2.19.1"><ComponentType value="BIOS"/></SoftwareComponent>
  <SoftwareComponent path="FOLDER3/1/Driver.EXE" vendorVersion="1.0"><ComponentType value="DRVR"/></SoftwareComponent>
  <SoftwareComponent path="FOLDER4/1/iDRAC.EXE" vendorVersion="7.00" rebootRequired="false">
    <Name><Display lang="en">Controller 9</Display></Name><ComponentType value="FRMW"/>
    <Category value="ES"><Display lang="en">iDRAC with Lifecycle Controller</Display></Category>
    <SupportedSystems><Brand><Display>PowerEdge</Display><Model><Display>R640</Display></Model></Brand></SupportedSystems>
  </SoftwareComponent>
  <SoftwareComponent path="FOLDER5/1/Network.EXE" vendorVersion="22.0"><ComponentType value="FRMW"/>
    <Category value="NI"><Display lang="en">Network</Display></Category>
    <SupportedDevices><Device><Display lang="en">X710 10GbE</Display></Device></SupportedDevices>
    <SupportedSystems><Brand><Display>PowerEdge</Display><Model><Display>R640</Display></Model></Brand></SupportedSystems>
  </SoftwareComponent>
</Manifest>"#
    )
}

const HPE: &str = r#"{
  "U30_2.36.fwpkg": { "date": "2026", "description": "System ROM Flash for Gen10 (U30) Servers", "deviceclass": "g",
    "minimum_active_version": "null", "reboot_required": "yes", "target": ["a", "b"], "version": "2.36" },
  "ilo5_272.fwpkg": { "description": "Online ROM Flash - iLO 5", "reboot_required": "no", "target": "c", "version": "2.72" }
}"#;

const LENOVO: &str = r#"<?xml version="1.0"?><INSTANCE CLASSNAME="Fix">
  <PROPERTY NAME="Version" TYPE="string"><VALUE>IVE176H 3.20</VALUE></PROPERTY>
  <PROPERTY NAME="payload" TYPE="string"><VALUE>lnvgy_fw_uefi_ive176h-3.20_anyos_32-64.uxz</VALUE></PROPERTY>
  <PROPERTY.ARRAY NAME="applicableMachineTypes" TYPE="string"><VALUE.ARRAY>
    <VALUE>[7X06]</VALUE><VALUE>[7X05][7Y51]</VALUE></VALUE.ARRAY></PROPERTY.ARRAY>
</INSTANCE>"#;

fn listed(folder: &Path) -> Result<Vec<Listed>, CatalogueError> {
    let mut all = Vec::new();
    read(&find(folder)?, &mut |one| all.push(one))?;
    Ok(all)
}

fn with(name: &str, content: &[u8]) -> (tempfile::TempDir, Result<Vec<Listed>, CatalogueError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    let found = listed(folder.path());
    (folder, found)
}

fn refused(name: &str, content: &[u8]) -> Malformed {
    match with(name, content).1 {
        Err(CatalogueError::Malformed { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn utf16(text: &str, big: bool) -> Vec<u8> {
    let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
    units.flat_map(|unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

#[test]
fn the_catalogue_of_all_systems_is_read_alike_in_utf_8_in_utf_16_and_compressed() {
    let text = dell(&"ab".repeat(16), 7);
    let plain = with("Catalog.xml", text.as_bytes()).1.unwrap();
    assert_eq!(plain.len(), 3, "the package for another system and the driver are left out: {plain:?}");
    let bios = &plain[0];
    assert_eq!((bios.component, bios.version.as_str()), (Some(Component::Bios), "2.19.1"));
    assert_eq!((bios.size, bios.restart), (Some(7), Some(Restart::Host)));
    assert_eq!(bios.title, "BIOS & Utilities");
    let models: Vec<&str> = bios.systems.iter().map(crate::Model::as_str).collect();
    assert_eq!(models, ["PowerEdge R640", "PowerEdge R740 & R740xd", "R640", "R740 & R740xd"]);
    assert_eq!((plain[1].component, plain[1].restart), (Some(Component::Bmc), Some(Restart::None)));
    let nic = plain[2].models(plain[2].component);
    let nic: Vec<&str> = nic.iter().map(crate::Model::as_str).collect();
    assert_eq!(
        (plain[2].component, nic),
        (Some(Component::Nic), vec!["X710 10GbE"]),
        "the devices, not the systems"
    );
    for (name, bytes) in [
        ("Catalog.xml", utf16(&text, false)),
        ("Catalog.xml", utf16(&text, true)),
        ("Catalog.xml.gz", gzip(&utf16(&text, false))),
        ("Catalog.gz", gzip(text.as_bytes())),
    ] {
        assert_eq!(with(name, &bytes).1.unwrap(), plain, "{name}");
    }
}

#[test]
fn the_index_of_a_repository_and_the_files_of_packages_are_read() {
    let hpe = with("fwrepodata/fwrepo.json", HPE.as_bytes()).1.unwrap();
    let rows: Vec<_> = hpe.iter().map(|one| (one.path.as_str(), one.component, one.restart)).collect();
    let expected = [
        ("U30_2.36.fwpkg", Some(Component::Bios), Some(Restart::Host)),
        ("ilo5_272.fwpkg", Some(Component::Bmc), Some(Restart::None)),
    ];
    assert_eq!(rows, expected);
    assert!(hpe.iter().all(|one| one.models(None).is_empty() && one.checksum.is_none()));

    let package = with("lnvgy_fw_uefi_ive176h-3.20_anyos_32-64.xml", LENOVO.as_bytes()).1.unwrap();
    let [one] = package.as_slice() else { panic!("{package:?}") };
    assert_eq!((one.component, one.version.as_str()), (Some(Component::Bios), "3.20"));
    let models: Vec<&str> = one.systems.iter().map(crate::Model::as_str).collect();
    assert_eq!(models, ["7X05", "7X06", "7Y51"]);

    let index = format!(
        r#"{{"Data": [{{"FixID": "lnvgy_fw_xcc_cdi388m-7.80_anyos_noarch", "ComponentID": "XCC", "RequisitesFixIDs": [],
            "Files": [{{"Type": "ReadMe", "URL": "https://x/readme.txt"}},
                      {{"Type": "Fix", "URL": "https://x/y/lnvgy_fw_xcc.uxz?z=1", "FileHash": "{}"}}]}}]}}"#,
        "cd".repeat(32)
    );
    let index = with("lnvgy_index.json", index.as_bytes()).1.unwrap();
    let [one] = index.as_slice() else { panic!("{index:?}") };
    assert_eq!(
        (one.path.as_str(), one.component, one.version.as_str()),
        ("lnvgy_fw_xcc.uxz", Some(Component::Bmc), "7.80")
    );
    assert!(one.checksum.is_some() && one.models(None).is_empty());
}

#[test]
fn hostile_xml_is_refused() {
    let entity = br#"<!DOCTYPE m [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Manifest>&b;</Manifest>"#;
    assert!(matches!(refused("Catalog.xml", entity), Malformed::Entity));
    let external = br#"<!DOCTYPE m SYSTEM "file:///etc/passwd"><Manifest/>"#;
    assert!(matches!(refused("Catalog.xml", external), Malformed::Entity));
    assert!(matches!(refused("Catalog.xml", b"<Manifest>&unknown;</Manifest>"), Malformed::Entity));
    assert!(matches!(refused("Catalog.xml", br#"<Manifest a="&unknown;"/>"#), Malformed::Entity));
    let deep = [b"<a>".repeat(65), b"</a>".repeat(65)].concat();
    assert!(matches!(refused("Catalog.xml", &deep), Malformed::Depth));
    for long in [
        [b"<Manifest>".to_vec(), vec![b'x'; 1 << 20], b"</Manifest>".to_vec()].concat(),
        [b"<Manifest a=\"".to_vec(), vec![b'x'; 1 << 20], b"\"/>".to_vec()].concat(),
        [b"<!--".to_vec(), vec![b'x'; 1 << 20], b"--><Manifest/>".to_vec()].concat(),
    ] {
        let why = refused("Catalog.xml", &long);
        assert!(matches!(why, Malformed::Size), "{why}");
    }
    let many = [
        b"<Manifest ".to_vec(),
        (0..65).flat_map(|i| format!("a{i}='' ").into_bytes()).collect(),
        b"/>".to_vec(),
    ]
    .concat();
    assert!(matches!(refused("Catalog.xml", &many), Malformed::Size));
    for broken in
        [&b"<Manifest>"[..], b"<Manifest></a>", b"\xff\xfe<", b"<Manifest>\xc3\x28</Manifest>", b"{}"]
    {
        let why = refused("Catalog.xml", broken);
        assert!(matches!(why, Malformed::Xml(_) | Malformed::Empty | Malformed::Io(_)), "{why}");
    }
    assert!(matches!(refused("fwrepo.json", b"[]"), Malformed::Json(_)));
    assert!(matches!(refused("fwrepo.json", b"{}"), Malformed::Empty));
    let nested =
        [b"{\"a\":{\"version\":".to_vec(), b"[".repeat(100_000), b"]".repeat(100_000), b"}}".to_vec()]
            .concat();
    assert!(matches!(refused("fwrepo.json", &nested), Malformed::Json(_)));
}

#[test]
fn a_folder_without_a_catalogue_says_which_names_are_expected() {
    let (_folder, found) = with("other.txt", b"");
    let message = found.unwrap_err().to_string();
    assert!(message.contains("Catalog.xml") && message.contains("fwrepo.json"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("renamed");
    fs::write(&path, HPE).unwrap();
    let mut count = 0;
    read(&[(path, Format::Hpe)], &mut |_| count += 1).unwrap();
    assert_eq!(count, 2, "a named catalogue needs no known name");
}

#[test]
fn a_preview_says_what_is_ready_missing_damaged_and_incomplete() {
    let bytes = b"a bios file";
    let md5 = hex::encode(Md5::digest(bytes));
    let (folder, found) = with("Catalog.xml", dell(&md5, bytes.len()).as_bytes());
    let found = found.unwrap();
    let none = Additions::default();
    let state = |listed: &Listed, additions: &Additions| check(folder.path(), listed, additions);
    assert!(matches!(state(&found[0], &none), Err(CatalogueProblem::Missing)));
    let place = folder.path().join("BIOS_R640_2.19.1.EXE");
    fs::write(&place, bytes).unwrap();
    let ready = state(&found[0], &none).unwrap();
    assert_eq!((ready.path.as_path(), ready.verified), (place.as_path(), true), "found by its name alone");
    assert_eq!(ready.file.sha256.hex(), hex::encode(Sha256::digest(bytes)));
    fs::write(&place, b"a bios filE").unwrap();
    assert!(matches!(state(&found[0], &none), Err(CatalogueProblem::OtherChecksum)));
    fs::write(&place, b"short").unwrap();
    assert!(matches!(state(&found[0], &none), Err(CatalogueProblem::OtherSize { stated: 11, actual: 5 })));

    let nested = folder.path().join("FOLDER1/1");
    fs::create_dir_all(&nested).unwrap();
    fs::write(nested.join("BIOS_R640_2.19.1.EXE"), bytes).unwrap();
    assert!(state(&found[0], &none).is_ok(), "the path of the catalogue comes before the name");

    let hpe = with("fwrepo.json", HPE.as_bytes()).1.unwrap();
    fs::write(folder.path().join("U30_2.36.fwpkg"), bytes).unwrap();
    assert!(matches!(state(&hpe[0], &none), Err(CatalogueProblem::NoModel)));
    let given = Additions { models: ["Gen10".parse().unwrap()].into(), component: None };
    assert!(!state(&hpe[0], &given).unwrap().verified, "this catalogue has no checksum");
    let unknown = Listed { component: None, ..hpe[0].clone() };
    assert!(matches!(state(&unknown, &given), Err(CatalogueProblem::NoComponent)));
}

/// An entry of firmware that no table knows, with these devices and systems.
fn unknown(devices: &[String], systems: &[String]) -> String {
    let shown = |name: &str, of: &[String]| {
        of.iter().map(|text| format!("<{name}><Display>{text}</Display></{name}>")).collect::<String>()
    };
    format!(
        r#"<Manifest><SoftwareComponent path="Widget.EXE" vendorVersion="1.0"><Name><Display>Widget</Display></Name>
        <ComponentType value="FRMW"/><SupportedDevices>{}</SupportedDevices>
        <SupportedSystems><Brand><Display>PowerEdge</Display>{}</Brand></SupportedSystems></SoftwareComponent></Manifest>"#,
        shown("Device", devices),
        shown("Model", systems),
    )
}

/// The models of the only file of a catalogue, with the operator's component and models.
fn models_of(
    name: &str,
    catalogue: &str,
    component: Component,
    models: &[&str],
) -> Result<Vec<String>, CatalogueProblem> {
    let (folder, found) = with(name, catalogue.as_bytes());
    let [listed] = found.unwrap().try_into().unwrap();
    fs::write(folder.path().join(&listed.path), b"bytes").unwrap();
    let models = models.iter().map(|model| model.parse().unwrap()).collect();
    let checked = check(folder.path(), &listed, &Additions { models, component: Some(component) });
    checked.map(|ready| ready.file.models().iter().map(|model| model.as_str().to_owned()).collect())
}

#[test]
fn a_file_of_an_unknown_component_has_the_models_that_belong_to_the_component_of_the_operator() {
    let [device, system] = [["A widget".to_owned()], ["R640".to_owned()]];
    let both = unknown(&device, &system);
    let of =
        |catalogue: &str, component, models: &[&str]| models_of("Catalog.xml", catalogue, component, models);
    assert_eq!(of(&both, Component::Psu, &["R750"]).unwrap(), ["PowerEdge R640", "R640"]);
    assert_eq!(of(&both, Component::Gpu, &["Another"]).unwrap(), ["A widget"]);
    let device = unknown(&device, &[]);
    assert_eq!(of(&device, Component::Psu, &["R750"]).unwrap(), ["R750"], "a device is no model of a server");
    assert!(matches!(of(&device, Component::Psu, &[]), Err(CatalogueProblem::NoModel)));
    let system = unknown(&[], &system);
    assert_eq!(of(&system, Component::Gpu, &["A widget"]).unwrap(), ["A widget"]);
    // A choice by model comes before the component is known.
    let listed = &with("Catalog.xml", both.as_bytes()).1.unwrap()[0];
    assert_eq!((listed.component, listed.models(None).len()), (None, 3));
}

#[test]
fn a_file_of_more_models_than_one_can_have_is_refused_and_none_is_left_out() {
    let names = |count: usize| (0..count).map(|number| format!("M{number}")).collect::<Vec<String>>();
    let lenovo = |count: usize| {
        let types: String = names(count).iter().map(|name| format!("[{name}]")).collect();
        LENOVO.replace("<VALUE>[7X06]</VALUE>", "").replace("[7X05][7Y51]", &types)
    };
    let package = "lnvgy_fw_uefi_ive176h-3.20_anyos_32-64.xml";
    // The name of a system counts with its brand and without.
    for (name, catalogue, component, count) in [
        ("Catalog.xml", unknown(&names(500), &[]), Component::Gpu, Some(500)),
        ("Catalog.xml", unknown(&names(501), &[]), Component::Gpu, None),
        ("Catalog.xml", unknown(&names(501), &names(3)), Component::Psu, Some(6)),
        ("Catalog.xml", unknown(&[], &names(250)), Component::Psu, Some(500)),
        ("Catalog.xml", unknown(&[], &names(251)), Component::Psu, None),
        (package, lenovo(500), Component::Bios, Some(500)),
        (package, lenovo(9_000), Component::Bios, None),
    ] {
        match (models_of(name, &catalogue, component, &[]), count) {
            (Ok(models), Some(count)) => assert_eq!(models.len(), count, "{name}"),
            (Err(CatalogueProblem::TooManyModels), None) => {}
            (other, count) => panic!("{name}: {count:?}, not {other:?}"),
        }
    }
}

#[test]
fn a_path_that_leaves_the_folder_is_not_followed() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("inner");
    fs::create_dir(&folder).unwrap();
    fs::write(outer.path().join("U30_2.36.fwpkg"), b"outside").unwrap();
    let hpe = with("fwrepo.json", HPE.as_bytes()).1.unwrap();
    for path in ["../U30_2.36.fwpkg", "/etc/passwd", "a/../../U30_2.36.fwpkg", "..\\U30_2.36.fwpkg", ""] {
        let listed = Listed { path: path.to_owned(), ..hpe[0].clone() };
        let refused = check(&folder, &listed, &Additions::default());
        assert!(matches!(refused, Err(CatalogueProblem::Outside)), "{path}: {refused:?}");
    }
}

#[test]
fn the_fuzz_targets_accept_their_own_formats() {
    fuzz::catalogue_dell(dell("", 1).as_bytes());
    fuzz::catalogue_hpe(HPE.as_bytes());
    fuzz::catalogue_lenovo(LENOVO.as_bytes());
    fuzz::artifact(&crate::manifest(&super::file("v", "m", Component::Bmc, "1.0")));
}

proptest! {
    #[test]
    fn no_damage_of_a_catalogue_makes_its_reader_panic(at in 0_usize..3_000, byte in any::<u8>(), cut in 0_usize..3_000) {
        let damaged = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut % bytes.len());
            bytes
        };
        fuzz::catalogue_dell(&damaged(&dell("00", 1)));
        fuzz::catalogue_dell(&utf16(&String::from_utf8_lossy(&damaged(&dell("00", 1))), false));
        fuzz::catalogue_hpe(&damaged(HPE));
        fuzz::catalogue_lenovo(&damaged(LENOVO));
        let manifest = crate::manifest(&super::file("v", "m", Component::Bmc, "1.0"));
        fuzz::artifact(&damaged(&String::from_utf8(manifest).unwrap()));
    }
}
