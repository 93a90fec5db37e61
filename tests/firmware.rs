//! Firmware files and sets: from a file on disk to the registry, to a set that holds it, and to the set that fits a server.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::SystemTime;

use api::firmware_files::FirmwareFiles;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kit::{Client, Scene};

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Pushes bytes as a blob into a repository.
pub(crate) async fn push(client: &Client, repository: &str, bytes: &[u8]) {
    let begun = client.post(&format!("/v2/{repository}/blobs/uploads/"), &Value::Null).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let place = begun.header("location").unwrap().to_owned();
    let joint = if place.contains('?') { '&' } else { '?' };
    let place = format!("{place}{joint}digest=sha256:{}", sha256(bytes));
    let put = client.request(Method::PUT, &place).header("content-type", "application/octet-stream");
    let put = client.send(put.body(bytes.to_vec())).await;
    assert_eq!(put.status, 201, "{}", put.text());
}

/// The description of a pushed BIOS.
pub(crate) fn bios(bytes: &[u8], version: &str, models: &[&str]) -> Value {
    json!({
        "vendor": "Dell Inc.", "models": models, "component": "bios", "version": version,
        "filename": format!("BIOS_{version}.EXE"), "sha256": sha256(bytes), "size": bytes.len(),
    })
}

async fn added(client: &Client, bytes: &[u8], version: &str, models: &[&str]) -> String {
    push(client, "firmware/dell/bios", bytes).await;
    let made = client.post("/api/v1/firmware", &bios(bytes, version, models)).await.expect(201);
    made["digest"].as_str().unwrap().to_owned()
}

async fn scene() -> Scene {
    Scene::bare(vec![], |_, _| {}).await
}

fn shoal(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(arguments).args(["--url", &scene.admin.base, "--token", scene.admin.token()]);
    tokio::task::block_in_place(|| command.output().unwrap())
}

#[track_caller]
fn json_of(output: &Output, code: i32) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "out: {out}\nerr: {err}");
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_pushed_described_listed_and_removed_and_the_same_again_changes_nothing() {
    let scene = scene().await;
    let bytes = b"a bios".to_vec();
    let described = bios(&bytes, "2.19.1", &["PowerEdge R640"]);
    let early = scene.admin.post("/api/v1/firmware", &described).await;
    early.refused(400, "validation_error");
    push(&scene.admin, "firmware/dell/bios", &bytes).await;
    let mut wrong = described.clone();
    wrong["size"] = json!(7);
    scene.admin.post("/api/v1/firmware", &wrong).await.refused(400, "validation_error");

    let made = scene.admin.post("/api/v1/firmware", &described).await.expect(201);
    assert_eq!((&made["vendor"], &made["restart"]), (&json!("dell"), &json!("host")));
    let again = scene.admin.post("/api/v1/firmware", &described).await.expect(200);
    assert_eq!(again, made);
    let digest = made["digest"].as_str().unwrap();
    for (query, count) in [
        ("", 1),
        ("?vendor=DELL", 1),
        ("?model=poweredge%20r640", 1),
        ("?component=bmc", 0),
        ("?vendor=hpe", 0),
    ] {
        let page = scene.admin.get(&format!("/api/v1/firmware{query}")).await.expect(200);
        assert_eq!(page["firmware"].as_array().unwrap().len(), count, "{query}: {page}");
    }
    let shown = scene.admin.get(&format!("/api/v1/firmware/{digest}")).await.expect(200);
    assert_eq!(shown["sets"], json!([]));
    assert_eq!(scene.admin.delete(&format!("/api/v1/firmware/{digest}")).await.status, 204);
    scene.admin.get(&format!("/api/v1/firmware/{digest}")).await.refused(404, "unknown_firmware");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_file_for_the_same_version_of_one_model_is_refused_and_names_the_first() {
    let scene = scene().await;
    let first = added(&scene.admin, b"one", "2.19.1", &["R640", "R740"]).await;
    push(&scene.admin, "firmware/dell/bios", b"two").await;
    let duplicate = bios(b"two", "2.19.1", &["r740"]);
    let refused = scene.admin.post("/api/v1/firmware", &duplicate).await.refused(409, "conflict.firmware");
    assert!(refused["message"].as_str().unwrap().contains(&first), "{refused}");
    scene.admin.post("/api/v1/firmware", &bios(b"two", "2.19.1", &["R940"])).await.expect(201);
    let problems = json!({
        "vendor": "…", "models": ["a;b"], "component": "mainboard", "version": "1", "filename": "a/b", "sha256": "x", "size": 1,
    });
    let all = scene.admin.post("/api/v1/firmware", &problems).await.refused(400, "validation_error");
    let paths: Vec<&str> =
        all["details"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/vendor", "/component", "/filename", "/sha256", "/models/0"], "all problems at once");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_set_names_is_not_removed_until_the_set_is_deleted() {
    let scene = scene().await;
    let digest = added(&scene.admin, b"kept", "2.19.1", &["PowerEdge R640"]).await;
    let place = format!("/api/v1/firmware/{digest}");
    let order = json!({ "name": "r640", "labels": { "ring": "stable" }, "files": [digest] });
    let set = scene.admin.post("/api/v1/firmware-sets", &order).await.expect(201);
    assert_eq!(set["files"][0]["version"], "2.19.1");
    scene.admin.post("/api/v1/firmware-sets", &order).await.refused(409, "conflict.firmware_set");
    let shown = scene.admin.get(&place).await.expect(200);
    assert_eq!(shown["sets"], json!(["r640"]));
    let held = scene.admin.delete(&place).await.refused(409, "conflict.firmware_in_use");
    assert!(held["message"].as_str().unwrap().contains("r640"), "{held}");
    let through = scene.admin.delete(&format!("/v2/firmware/dell/bios/manifests/{digest}")).await;
    assert_eq!(through.status, 409, "the registry itself refuses it too: {}", through.text());

    let pins = || async { scene.admin.get("/api/v1/registry").await.expect(200)["pins"].clone() };
    assert_eq!(pins().await, 1);
    assert_eq!(scene.admin.get("/api/v1/firmware-sets/r640").await.expect(200), set);

    assert_eq!(scene.admin.delete("/api/v1/firmware-sets/r640").await.status, 204);
    scene.admin.delete("/api/v1/firmware-sets/r640").await.refused(404, "unknown_firmware_set");
    assert_eq!(pins().await, 0);
    assert_eq!(scene.admin.delete(&place).await.status, 204, "nothing holds it any more");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_with_two_versions_is_refused_and_the_fitting_set_is_found_or_an_error_says_which() {
    let scene = scene().await;
    let old = added(&scene.admin, b"old", "2.18.1", &["PowerEdge R640"]).await;
    let new = added(&scene.admin, b"new", "2.19.1", &["PowerEdge R640"]).await;
    let create = |name: &str, ring: &str, files: &[&String]| {
        let body = json!({ "name": name, "labels": { "ring": ring }, "files": files });
        let client = scene.admin.clone();
        async move { client.post("/api/v1/firmware-sets", &body).await }
    };
    let two = create("two", "x", &[&old, &new]).await.refused(409, "conflict.firmware_set");
    let message = two["message"].as_str().unwrap();
    assert!(message.contains(&old) && message.contains(&new), "{message}");
    scene.admin.get("/api/v1/firmware-sets/two").await.refused(404, "unknown_firmware_set");
    let unknown = create("none", "x", &[&format!("sha256:{}", "0".repeat(64))]).await;
    unknown.refused(400, "validation_error");

    let ask = |labels: &str| {
        let place = format!("/api/v1/firmware-match?vendor=Dell%20Inc.&model=poweredge%20r640{labels}");
        let client = scene.admin.clone();
        async move { client.get(&place).await }
    };
    ask("").await.refused(404, "firmware.no_set");
    create("stable", "stable", &[&old]).await.expect(201);
    assert_eq!(ask("").await.expect(200)["name"], "stable");
    create("test", "test", &[&new]).await.expect(201);
    let several = ask("").await.refused(409, "firmware.several_sets");
    assert!(several["message"].as_str().unwrap().contains("stable, test"), "{several}");
    assert_eq!(ask("&label=ring=test").await.expect(200)["name"], "test");
    ask("&label=ring=none").await.refused(404, "firmware.no_set");
    scene.admin.get("/api/v1/firmware-match").await.refused(400, "validation_error");
    let listed = scene.admin.get("/api/v1/firmware-sets").await.expect(200);
    assert_eq!(listed["sets"].as_array().unwrap().len(), 2);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_holds_is_not_collected_and_changed_bytes_are_found_before_one_can_reach_a_bmc() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry::Registry::open(registry::Config::new(folder.path())).await.unwrap();
    let files = FirmwareFiles::new(registry.clone());
    let (name, bytes) = ("firmware/dell/bios".parse().unwrap(), b"firmware");
    registry.put_blob(&name, bytes.to_vec().into()).await.unwrap();
    let of = ("dell".parse().unwrap(), ["R640".parse().unwrap()].into(), firmware::Component::Bios);
    let identity = ("f.EXE".parse().unwrap(), sha256(bytes).parse().unwrap(), 8);
    let file = firmware::FirmwareFile::new(of, "1.0", identity).unwrap();
    let api::firmware_files::Added::New(stored) = files.add(file).await.unwrap() else { panic!("it is new") };
    let digest = stored.digest.to_string();
    assert_eq!(files.open(name.as_str(), &digest).await.unwrap().file(), &stored.file);

    let run = model::RunId(uuid::Uuid::now_v7());
    files.hold_for_run(run, &[(name.as_str(), &digest)]).await.unwrap();
    files.remove(&stored).await.unwrap_err();
    let later = SystemTime::now() + std::time::Duration::from_secs(30 * 86_400);
    let options = registry::GcOptions { untagged: true, ..registry::GcOptions::at(later) };
    let stays = registry.collect(options.clone()).await.unwrap();
    assert_eq!((stays.manifests, stays.blobs), (0, 0), "the run holds it");
    damage(folder.path(), &sha256(bytes));
    let refused = files.open(name.as_str(), &digest).await.unwrap_err();
    assert!(refused.to_string().contains("nothing was sent"), "{refused}");
    files.release_run(run).await.unwrap();
    files.remove(&stored).await.unwrap();
    assert!(registry.collect(options).await.unwrap().blobs > 0, "nothing holds it any more");
}

/// Changes one byte of a stored blob.
fn damage(root: &Path, hex: &str) {
    let path = root.join("blobs/sha256").join(hex);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_between_pins_and_rows_the_next_start_makes_them_equal() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry::Registry::open(registry::Config::new(folder.path())).await.unwrap();
    let files = Arc::new(FirmwareFiles::new(registry.clone()));
    let name: registry::RepositoryName = "firmware/dell/bios".parse().unwrap();
    let digest = registry.put_blob(&name, b"x".to_vec().into()).await.unwrap();
    let pin = |owner: &str| {
        let (registry, name, digest) = (registry.clone(), name.clone(), digest.clone());
        let owner = owner.parse().unwrap();
        async move { registry.pin(&name, &digest, &owner).await.unwrap() }
    };
    pin("firmware-set gone").await;
    pin("job 7").await;
    let set = store::StoredFirmwareSet {
        name: "a".to_owned(),
        id: "there".to_owned(),
        labels: Default::default(),
        created_by: "x".to_owned(),
        created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        files: vec![store::StoredFirmwareFile {
            repository: name.to_string(),
            digest: digest.to_string(),
            manifest: "{}".to_owned(),
            models: Vec::new(),
        }],
    };
    files.reconcile(&[set]).await.unwrap();
    let owners: Vec<String> = registry.pins().iter().map(|pin| pin.owner.to_string()).collect();
    assert_eq!(owners, ["firmware-set there", "job 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_adds_a_file_makes_a_set_and_imports_a_catalogue_after_a_preview() {
    let scene = scene().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bmc.d9");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    let path = file.to_str().unwrap();
    let add = [
        "firmware",
        "add",
        path,
        "--vendor",
        "dell",
        "--model",
        "PowerEdge R640",
        "--component",
        "bmc",
        "--version",
        "7.0",
    ];
    let wrong = shoal(&scene, &[&add[..], &["--sha256", &"0".repeat(64)]].concat());
    assert_eq!(wrong.status.code(), Some(1));
    let message = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(message.contains("nothing was pushed"), "{message}");
    let right = sha256(&std::fs::read(&file).unwrap());
    let made = json_of(&shoal(&scene, &[&add[..], &["--sha256", &right, "--json"]].concat()), 0);
    assert_eq!((&made["size"], &made["restart"]), (&json!(3 << 20), &json!("none")));

    let bios = b"from the catalogue";
    let catalogue = format!(
        r#"<Manifest><SoftwareComponent path="F/bios.EXE" size="{}" vendorVersion="2.19.1"><ComponentType value="BIOS"/>
           <SupportedSystems><Brand><Display>PowerEdge</Display><Model><Display>R640</Display></Model></Brand></SupportedSystems>
           </SoftwareComponent><SoftwareComponent path="F/other.EXE" vendorVersion="1.0"><ComponentType value="BIOS"/>
           </SoftwareComponent></Manifest>"#,
        bios.len()
    );
    std::fs::write(folder.path().join("Catalog.xml"), catalogue).unwrap();
    std::fs::write(folder.path().join("bios.EXE"), bios).unwrap();
    let import = ["firmware", "set", "import", folder.path().to_str().unwrap(), "--json"];
    let states = |value: &Value| {
        let entries = value["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let preview = json_of(&shoal(&scene, &[&import[..], &["--dry-run"]].concat()), 0);
    assert_eq!(states(&preview), ["ready", "missing"], "{preview}");
    let listed = scene.admin.get("/api/v1/firmware?component=bios").await.expect(200);
    assert_eq!(listed["firmware"], json!([]), "a preview adds nothing");
    let imported = json_of(&shoal(&scene, &[&import[..], &["--set", "imported"]].concat()), 0);
    assert_eq!(states(&imported), ["added", "missing"], "{imported}");
    assert_eq!(imported["set"]["files"][0]["version"], "2.19.1");

    let short = made["sha256"].as_str().unwrap().get(..8).unwrap().to_owned();
    let other = imported["entries"][0]["digest"].as_str().unwrap().to_owned();
    let create = [
        "firmware", "set", "create", "both", "--file", &short, "--file", &other, "--label", "ring=a",
        "--json",
    ];
    let set = json_of(&shoal(&scene, &create), 0);
    let order: Vec<&str> =
        set["files"].as_array().unwrap().iter().map(|file| file["component"].as_str().unwrap()).collect();
    assert_eq!(order, ["bmc", "bios"]);
    let several =
        shoal(&scene, &["firmware", "set", "match", "--vendor", "dell", "--model", "PowerEdge R640"]);
    assert_eq!(several.status.code(), Some(4), "two sets fit");
    let args = [
        "firmware",
        "set",
        "match",
        "--vendor",
        "dell",
        "--model",
        "PowerEdge R640",
        "--label",
        "ring=a",
        "--json",
    ];
    assert_eq!(json_of(&shoal(&scene, &args), 0)["name"], "both");
    let removed = shoal(&scene, &["firmware", "remove", &short]);
    assert_eq!(removed.status.code(), Some(4), "a set holds it");
    for text in [
        &["firmware", "list"][..],
        &["firmware", "show", &short],
        &["firmware", "set", "list"],
        &["firmware", "set", "show", "both"],
    ] {
        let shown = shoal(&scene, text);
        assert_eq!(shown.status.code(), Some(0), "{text:?}: {}", String::from_utf8_lossy(&shown.stderr));
        assert!(!shown.stdout.is_empty());
    }
    assert_eq!(shoal(&scene, &["firmware", "set", "delete", "both"]).status.code(), Some(0));
    scene.end().await;
}
