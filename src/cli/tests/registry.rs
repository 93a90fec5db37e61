//! `shoal registry`: commands on the images of a data directory.

use std::fs;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::shoal;

/// An OCI image layout with one image of one layer, tagged `v1`.
fn layout(root: &std::path::Path) -> String {
    let layout = root.join("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8]| {
        let hex = hex::encode(Sha256::digest(bytes));
        fs::write(layout.join("blobs/sha256").join(&hex), bytes).unwrap();
        (format!("sha256:{hex}"), bytes.len())
    };
    let (config, config_size) =
        blob(br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#);
    let (layer, layer_size) = blob(b"a layer, opaque to a registry");
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": layer_size }],
    });
    let (manifest, manifest_size) = blob(manifest.to_string().as_bytes());
    let index = json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": manifest_size,
        "annotations": { "org.opencontainers.image.ref.name": "v1" },
    }] });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    layout.to_str().unwrap().to_owned()
}

#[test]
fn images_are_imported_listed_scrubbed_and_exported_with_equal_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let storage = dir.path().join("data").to_str().unwrap().to_owned();
    let on = |arguments: &[&str]| shoal(&[&["registry", "--storage-root", &storage], arguments].concat());
    let layout = layout(dir.path());
    let ran = on(&["import", &layout, "--repository", "os-images/tiny"]).ends_with(0);
    assert_eq!(ran.out, "os-images/tiny: v1\n");
    let listed = on(&["ls", "--json"]).ends_with(0).json();
    let row = json!({ "name": "os-images/tiny", "names": ["v1"], "tags": 1 });
    assert_eq!(listed, json!({ "repositories": [row], "next": null }));
    assert_eq!(on(&["ls", "os-images/tiny", "--json"]).ends_with(0).json(), listed);
    assert!(on(&["ls", "os-images/none"]).ends_with(3).err.contains("repository"));
    let scrubbed = on(&["scrub", "--json"]).ends_with(0).json();
    assert_eq!((&scrubbed["blobs"], &scrubbed["corrupted"]), (&json!(3), &json!([])));
    let collected = on(&["gc", "--grace", "0", "--json"]).ends_with(0).json();
    assert_eq!((&collected["blobs"], &collected["dry_run"]), (&json!(0), &json!(false)));
    assert_eq!(on(&["pins", "--json"]).ends_with(0).json()["pins"], json!([]));
    on(&["rebuild"]).ends_with(0);

    let archives = ["one.tar", "two.tar"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    for archive in &archives {
        on(&["export", "os-images/tiny", "-o", archive]).ends_with(0);
    }
    assert!(fs::read(&archives[0]).unwrap() == fs::read(&archives[1]).unwrap());
    on(&["export", "os-images/tiny", "-o", &archives[0]]).ends_with(1);
    on(&["import", &archives[0], "--repository", "copies/tiny", "--json"]).ends_with(0);
    let ran = on(&["import", &archives[0]]).ends_with(2);
    assert!(ran.err.contains("give --repository NAME"), "{}", ran.err);
    on(&["export", "os-images/tiny", "-o", "-"]).ends_with(2);
    assert!(on(&["ls"]).ends_with(0).out.contains("copies/tiny"));
}

#[test]
fn a_registry_at_a_wrong_path_is_refused_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nonexist");
    let storage = missing.to_str().unwrap();
    let archive = dir.path().join("a.tar");
    for command in [
        &["ls"][..],
        &["gc", "--dry-run"],
        &["gc"],
        &["pins"],
        &["scrub"],
        &["rebuild"],
        &["export", "a", "-o", archive.to_str().unwrap()],
    ] {
        let ran = shoal(&[&["registry", "--storage-root", storage], command].concat()).ends_with(3);
        assert!(ran.err.contains("there is no registry in"), "{command:?}: {}", ran.err);
    }
    assert!(!missing.exists() && !archive.exists());
}

#[test]
fn an_import_that_leaves_something_out_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let storage = dir.path().join("data").to_str().unwrap().to_owned();
    let on = |arguments: &[&str]| shoal(&[&["registry", "--storage-root", &storage], arguments].concat());
    let layout = layout(dir.path());
    let index = dir.path().join("layout/index.json");
    let renamed = fs::read_to_string(&index).unwrap().replace("\"v1\"", "\"not a tag\"");
    fs::write(&index, renamed).unwrap();
    let ran = on(&["import", &layout, "--repository", "os-images/tiny"]).ends_with(1);
    assert!(
        ran.out.is_empty() && ran.err.contains("os-images/tiny: \"not a tag\""),
        "{} {}",
        ran.out,
        ran.err
    );
    fs::write(&index, r#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
    let ran = on(&["import", &layout, "--repository", "os-images/tiny"]).ends_with(1);
    assert!(ran.err.contains("nothing was imported"), "{}", ran.err);
    assert_eq!(on(&["ls", "--json"]).ends_with(0).json()["repositories"], json!([]));
}

#[test]
fn scrub_reports_corrupted_content() {
    let dir = tempfile::tempdir().unwrap();
    let storage = dir.path().join("data").to_str().unwrap().to_owned();
    let on = |arguments: &[&str]| shoal(&[&["registry", "--storage-root", &storage], arguments].concat());
    on(&["import", &layout(dir.path()), "--repository", "tiny"]).ends_with(0);
    let pool = dir.path().join("data/oci/blobs/sha256");
    let layer = fs::read_dir(&pool)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| fs::read(path).unwrap().starts_with(b"a layer"))
        .unwrap();
    let mut writable = fs::metadata(&layer).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut writable, 0o644);
    fs::set_permissions(&layer, writable).unwrap();
    fs::write(&layer, b"A layer, opaque to a registry").unwrap();
    let ran = on(&["scrub"]).ends_with(1);
    assert!(ran.err.contains("is corrupted and was quarantined"), "{}", ran.err);
    assert!(!layer.exists());
}

#[test]
fn commands_are_refused_while_a_controller_runs_on_the_data_directory() {
    let dir = tempfile::tempdir().unwrap();
    let storage = dir.path().to_str().unwrap().to_owned();
    let sources = settings::Sources {
        flags: vec![("STORAGE_ROOT".to_owned(), storage.clone())],
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    };
    let settings = settings::Settings::load(&sources).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let busy = runtime.block_on(controller::app::OfflineRegistry::open(&settings)).unwrap();
    let ran = shoal(&["registry", "--storage-root", &storage, "gc"]).ends_with(1);
    assert!(ran.err.contains("`shoal registry gc --online`"), "{}", ran.err);
    drop(busy);
    shoal(&["registry", "--storage-root", &storage, "gc"]).ends_with(0);
    shoal(&["registry", "--storage-root", &storage, "export", "UPPER", "-o", "/nowhere/x.tar"]).ends_with(2);
    shoal(&["registry", "--storage-root", &storage, "import", "/nowhere"]).ends_with(3);
}

#[test]
fn online_commands_are_requests_to_the_controller() {
    let controller = super::Controller::start(|seen| match seen.uri.path() {
        "/api/v1/registry/gc" => {
            (200, json!({ "manifests": 1, "layers": 2, "blobs": 3, "bytes": 4, "dry_run": true }))
        }
        "/api/v1/registry/retention" => (200, json!({ "tags": ["a:nightly-1"], "dry_run": true })),
        "/api/v1/registry/scrub" => (202, json!({ "running": true, "started": true })),
        "/api/v1/registry/uploads" => (
            200,
            json!({ "uploads": [{
                "id": "0f8f", "repository": "team/app", "uploader": "ci", "received_bytes": 7, "active": true,
                "begun": "2026-01-01T00:00:00.000Z", "written": "2026-01-02T00:00:00.000Z",
            }] }),
        ),
        "/api/v1/registry/uploads/0f8f" if seen.method == "DELETE" => (200, json!({ "uploads": [] })),
        "/api/v1/registry/read-only" if seen.method == "DELETE" => (200, json!({ "read_only": null })),
        "/api/v1/registry/read-only" => (200, json!({ "read_only": seen.json()["reason"] })),
        "/api/v1/registry" => (
            200,
            json!({
                "accepts_pushes": true, "free_bytes": 7, "pins": 0, "gc": { "running": true },
                "scrub": { "last_verified": "2026-01-01T00:00:00.000Z", "quarantined": ["sha256:ab\u{1b}"] },
                "quotas": [{ "repositories": "os/**", "limit_bytes": 9, "used_bytes": 4, "reserved_bytes": 0 }],
            }),
        ),
        _ => (404, json!({})),
    });
    let gc = controller.shoal(&["registry", "gc", "--online", "--dry-run", "--grace", "0"]).ends_with(0);
    assert!(gc.out.contains("would remove 1 manifests and 2 layers"), "{}", gc.out);
    assert_eq!(controller.seen()[0].uri.query(), Some("dry_run=true&grace=0"));
    assert_eq!(
        controller.shoal(&["registry", "retain", "--online", "--dry-run"]).ends_with(0).out,
        "a:nightly-1\n"
    );
    controller.shoal(&["registry", "scrub", "--online"]).ends_with(0);
    let on = controller.shoal(&["registry", "read-only", "on", "--reason", "the disk is moved"]).ends_with(0);
    assert_eq!(on.out, "the registry is read-only: the disk is moved\n");
    assert!(controller.shoal(&["registry", "read-only", "off"]).ends_with(0).out.contains("accepts pushes"));
    let uploads = controller.shoal(&["registry", "uploads", "--utc"]).ends_with(0).out;
    for part in ["0f8f", "team/app", "ci", "2026-01-02"] {
        assert!(uploads.contains(part), "{part} in {uploads}");
    }
    let cancelled = controller.shoal(&["registry", "cancel-upload", "0f8f"]).ends_with(0);
    assert_eq!(cancelled.out, "the upload session 0f8f is cancelled\n");
    assert!(super::refused(&["registry", "cancel-upload"]).contains("<ID>"));
    let status = controller.shoal(&["registry", "status"]).ends_with(0);
    for part in ["2026-01-01", "os/**", "running now"] {
        assert!(status.out.contains(part), "{part} in {}", status.out);
    }
    assert!(status.err.contains("is corrupted") && !status.err.contains('\u{1b}'), "{}", status.err);
    assert!(super::refused(&["registry", "read-only", "on"]).contains("--reason"));
    assert!(controller.seen().iter().all(|seen| seen.header("authorization") == Some("Bearer shoal_canary")));
}

#[test]
fn retention_with_dry_run_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let storage = dir.path().join("data").to_str().unwrap().to_owned();
    let on = |arguments: &[&str]| shoal(&[&["registry", "--storage-root", &storage], arguments].concat());
    on(&["import", &layout(dir.path()), "--repository", "tiny"]).ends_with(0);
    on(&["retain"]).ends_with(2);
    let rule = ["registry", "--storage-root", &storage, "--registry-retention", "**:v* newest=0", "retain"];
    let dry = shoal(&[&rule[..], &["--dry-run"]].concat()).ends_with(0);
    assert_eq!(dry.out, "tiny:v1\n");
    assert!(on(&["ls"]).ends_with(0).out.contains("v1"));
    assert_eq!(shoal(&rule).ends_with(0).out, "tiny:v1\n");
    assert!(!on(&["ls"]).ends_with(0).out.contains("v1"));
}
