//! The software bill of materials (CycloneDX 1.5) that the program carries: which foreign crates it is made of, with
//! versions, digests and licences. Cargo and its lock file are the source; `golden/components.cdx.json` is the result, which
//! `shoal about --sbom` prints.
//!
//! Only what is linked into the program is listed: macros, and dependencies for tests and for the build, are no part of it. The list is that
//! of Linux on x86_64 with the default features; the program without the laboratory contains a part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::sources::{read, root};

const TARGET: &str = "x86_64-unknown-linux-gnu";

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn the_bill_of_materials_in_the_program_is_that_of_the_lock_file() {
    let made = format!("{:#}\n", bill(&metadata(), &digests(&read(&root().join("Cargo.lock")))));
    let path = root().join("golden/components.cdx.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(
        made == read(&path),
        "the dependencies changed; run with UPDATE_GOLDEN=1 and review the difference"
    );
}

#[test]
fn a_crate_that_only_tests_or_the_build_need_is_not_in_the_bill() {
    let package = |name: &str| {
        json!({
            "id": name, "name": name, "version": "1.0.0", "license": "MIT",
            "source": "registry+https://github.com/rust-lang/crates.io-index",
        })
    };
    let uses = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind, "target": null}]});
    let metadata = json!({
        "packages": [package("shoal"), package("linked"), package("deeper"), package("for-tests"), package("for-build")],
        "resolve": {"nodes": [
            {"id": "shoal", "deps": [
                uses("linked", Value::Null), uses("for-tests", json!("dev")), uses("for-build", json!("build")),
            ]},
            {"id": "linked", "deps": [uses("deeper", Value::Null)]},
            {"id": "deeper", "deps": []},
            {"id": "for-tests", "deps": []},
            {"id": "for-build", "deps": []},
        ]},
    });
    let digests = [(("deeper".to_owned(), "1.0.0".to_owned()), "00ff".to_owned())].into();
    let bill = bill(&metadata, &digests);
    let names: Vec<&str> =
        bill["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["deeper", "linked"]);
    assert_eq!(bill["components"][0]["hashes"][0]["content"], "00ff");
    assert_eq!(bill["dependencies"][2]["dependsOn"], json!(["pkg:cargo/linked@1.0.0"]));
}

/// What cargo knows of the packages; without network.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", TARGET])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The SHA-256 of each package of the lock file that comes from a registry, by name and version.
fn digests(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |package: &str, key: &str| {
        let line = package.lines().find(|line| line.starts_with(&format!("{key} = ")))?;
        Some(line.split('"').nth(1)?.to_owned())
    };
    packages
        .filter_map(|package| {
            Some(((value(package, "name")?, value(package, "version")?), value(package, "checksum")?))
        })
        .collect()
}

/// Whether a package runs inside the compiler only.
fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    targets.iter().any(|target| target["kind"] == json!(["proc-macro"]))
}

/// The document: every package that is linked into `shoal`, and which of them uses which.
fn bill(metadata: &Value, digests: &BTreeMap<(String, String), String>) -> Value {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, &Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (text(package, "id"), package))
        .collect();
    let linked: BTreeMap<String, Vec<String>> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let uses = node["deps"].as_array().unwrap().iter().filter(|used| {
                let ordinary =
                    used["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null());
                ordinary && !is_macro(packages[&text(used, "pkg")])
            });
            (text(node, "id"), uses.map(|used| text(used, "pkg")).collect())
        })
        .collect();

    let program = packages.iter().find(|(_, package)| package["name"] == "shoal").unwrap().0.clone();
    let mut reached = BTreeSet::new();
    let mut to_visit = vec![program.clone()];
    while let Some(id) = to_visit.pop() {
        if reached.insert(id.clone()) {
            to_visit.extend(linked[&id].iter().cloned());
        }
    }

    let reference = |id: &str| {
        let package = packages[id];
        format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
    };
    let component = |id: &str| {
        let package = packages[id];
        let (name, version) = (text(package, "name"), text(package, "version"));
        let mut shown = Map::new();
        shown.insert("type".into(), "library".into());
        shown.insert("bom-ref".into(), reference(id).into());
        shown.insert("name".into(), name.clone().into());
        shown.insert("version".into(), version.clone().into());
        shown.insert("purl".into(), reference(id).into());
        // Some old packages separate licences with a slash, which is no SPDX expression.
        let licence = text(package, "license").replace('/', " OR ");
        shown.insert("licenses".into(), json!([{ "expression": licence }]));
        if let Some(digest) = digests.get(&(name, version)) {
            shown.insert("hashes".into(), json!([{"alg": "SHA-256", "content": digest}]));
        }
        Value::Object(shown)
    };
    let mut components: Vec<Value> =
        reached.iter().filter(|id| **id != program).map(|id| component(id)).collect();
    components.sort_by_key(|component| text(component, "bom-ref"));
    let mut dependencies: Vec<Value> = reached
        .iter()
        .map(|id| {
            let uses: BTreeSet<String> = linked[id].iter().map(|used| reference(used)).collect();
            json!({"ref": reference(id), "dependsOn": uses})
        })
        .collect();
    dependencies.sort_by_key(|entry| text(entry, "ref"));
    let mut of_program = component(&program);
    of_program["type"] = "application".into();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": of_program},
        "components": components,
        "dependencies": dependencies,
    })
}
