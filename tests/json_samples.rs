//! A real sample of the JSON of each command that shows something, from one controller with simulated servers, in the order of
//! a walk through the program. `golden/cli-json` has the samples and docs/cli.md shows them; which commands have none, and why, is
//! in `src/cli/tests/without_json.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use settings::BackupTarget;

use crate::command_line::shoal;
use crate::kit::{Scene, healthy, recipe};

/// A command of the walk.
struct Sample {
    /// The words of the command.
    command: &'static str,
    /// All of its arguments. A word in capitals with a dollar stands for a value of the walk.
    arguments: &'static str,
    /// The exit code.
    code: i32,
}

const fn ok(command: &'static str, arguments: &'static str) -> Sample {
    Sample { command, arguments, code: 0 }
}

/// The walk. The jobs and the batch of the lists have ended; after `controller drain` no further job begins.
const WALK: &[Sample] = &[
    ok("server list", "server list"),
    ok("server show", "server show CLI-1"),
    ok("server inventory", "server inventory CLI-1"),
    ok("server conditions", "server conditions CLI-1"),
    ok("job list", "job list"),
    ok("job show", "job show $JOB"),
    ok("job events", "job events $JOB"),
    ok("job explain", "job explain $JOB"),
    ok("job log", "job log $JOB"),
    ok("job watch", "job watch $JOB"),
    ok("batch list", "batch list"),
    ok("batch show", "batch show $BATCH"),
    ok("batch watch", "batch watch $BATCH"),
    ok("media list", "media list"),
    ok("top", "top --once"),
    ok("about", "about"),
    ok("controller status", "controller status"),
    ok("controller ready", "controller ready"),
    ok("controller restored", "controller restored"),
    ok("user list", "user list"),
    ok("token list", "token list"),
    ok("session list", "session list"),
    ok("whoami", "whoami"),
    ok("secret list", "secret list"),
    ok("audit list", "audit list"),
    ok("webhook list", "webhook list"),
    ok("firmware list", "firmware list"),
    ok("firmware set list", "firmware set list"),
    // BMCs.
    ok("bmc probe", "bmc probe CLI-1"),
    ok("bmc doctor", "bmc doctor CLI-1"),
    ok("server bios show", "server bios show CLI-1"),
    // Servers.
    ok("server add", "server add CLI-9 --bmc-address 192.0.2.9 --bmc-user admin --bmc-password-file $SECRET"),
    ok("server import", "server import $TABLE --bmc-user admin --bmc-password-file $SECRET"),
    ok("server update", "server update CLI-9 --vendor contoso --label rack=7 --dry-run"),
    ok("server maintenance begin", "server maintenance begin CLI-9 --reason memory"),
    ok("server maintenance end", "server maintenance end CLI-9"),
    ok("server remove", "server remove CLI-9"),
    ok("server restored", "server restored CLI-1"),
    ok("server power-cycle", "server power-cycle CLI-1 --dry-run"),
    ok("server reset-bmc", "server reset-bmc CLI-1 --dry-run"),
    ok("server bios set", "server bios set CLI-1 BootMode=Uefi --dry-run"),
    // Jobs that do not begin.
    ok("controller drain", "controller drain --reason upgrade"),
    ok("job create", "job create --server CLI-1 --recipe $RECIPE"),
    ok("job hold", "job hold $OPEN --reason rack"),
    ok("job resume", "job resume $OPEN"),
    ok("job finish", "job finish --serial-glob CLI-1"),
    ok("job cancel", "job cancel $OPEN"),
    ok("job retry", "job retry $OPEN"),
    ok("batch create", "batch create --servers $SERIALS --recipe $RECIPE --canary 1 --stop-after 3"),
    ok("batch continue", "batch continue $WAITING"),
    ok("batch cancel", "batch cancel $WAITING"),
    ok("controller undrain", "controller undrain"),
    // Webhooks. Port 9 of this machine has no listener.
    ok("webhook add", "webhook add http://127.0.0.1:9/in --secret-file $SECRET --type no.such"),
    ok("webhook show", "webhook show $HOOK"),
    Sample { command: "webhook test", arguments: "webhook test $HOOK", code: 1 },
    ok("webhook disable", "webhook disable $HOOK"),
    ok("webhook enable", "webhook enable $HOOK"),
    ok("webhook dead-letters", "webhook dead-letters $HOOK"),
    ok("webhook redeliver", "webhook redeliver $HOOK"),
    // Firmware.
    ok("firmware add", "firmware add $FILE --vendor contoso --model M1 --component bios --version 2.19"),
    ok("firmware show", "firmware show $FIRMWARE"),
    ok(
        "firmware set create",
        "firmware set create spring --file $FIRMWARE --label vendor=contoso --label model=M1",
    ),
    ok("firmware set show", "firmware set show spring"),
    ok("firmware set match", "firmware set match --vendor contoso --model M1"),
    ok("firmware plan", "firmware plan CLI-1 --set spring"),
    Sample { command: "firmware drift", arguments: "firmware drift CLI-1 --set spring", code: 7 },
    ok("firmware install", "firmware install CLI-1 --set spring --dry-run"),
    ok("firmware history", "firmware history CLI-1"),
    // Accounts.
    ok("user add", "user add ann --role operator --password-file $SECRET"),
    ok("user role", "user role ann viewer"),
    ok("user disable", "user disable ann"),
    ok("user enable", "user enable ann"),
    ok("token create", "token create ci --role operator --label site=a"),
    ok("token rotate", "token rotate ci"),
    ok("worker token create", "worker token create b --queue facility-b"),
    ok("worker token list", "worker token list"),
    ok("worker list", "worker list"),
    // Registry and backups.
    ok("registry status", "registry status"),
    ok("registry uploads", "registry uploads"),
    ok("registry gc", "registry gc --online --dry-run"),
    ok("registry retain", "registry retain --online --dry-run"),
    ok("registry scrub", "registry scrub --online"),
    ok("registry read-only", "registry read-only on --reason move"),
    ok("backup status", "backup status"),
    ok("backup now", "backup now"),
    ok("backup list", "backup list"),
    ok("backup verify", "backup verify"),
    // Without a controller.
    ok("recipe validate", "recipe validate $RECIPE"),
    ok("iso build", "iso build $FOLDER --output $ISO"),
    ok("iso ls", "iso ls $ISO"),
    ok("iso info", "iso info $ISO"),
    ok("iso check", "iso check $ISO"),
];

/// What a later command of the walk needs of the document of an earlier one.
const FOUND: [(&str, &str, &str); 4] = [
    ("job create", "/job_id", "$OPEN"),
    ("batch create", "/batch_id", "$WAITING"),
    ("webhook add", "/webhook_id", "$HOOK"),
    ("firmware add", "/digest", "$FIRMWARE"),
];

/// The files that commands read.
fn files(folder: &Path) -> BTreeMap<&'static str, String> {
    let write = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let content = folder.join("content");
    std::fs::create_dir(&content).unwrap();
    std::fs::write(content.join("README.TXT"), "text\n").unwrap();
    BTreeMap::from([
        ("$SECRET", write("secret", "a secret of the walk\n")),
        ("$TABLE", write("servers.csv", "serial,bmc_address\nCLI-8,192.0.2.8\n")),
        ("$RECIPE", write("recipe.json", &recipe().to_string())),
        ("$SERIALS", write("serials.txt", "CLI-2\n")),
        ("$FILE", write("bios_2.19.bin", "the bytes of a BIOS")),
        ("$FOLDER", content.display().to_string()),
        ("$ISO", folder.join("image.iso").display().to_string()),
    ])
}

/// The document of a command; of a stream the first one.
fn document(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(text.lines().next().unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_shows_something_has_the_json_of_its_sample() {
    let scene = Scene::start_with(vec![healthy("CLI-1"), healthy("CLI-2")], |settings, folder| {
        let target = folder.join("backups");
        std::fs::create_dir(&target).unwrap();
        settings.backup_target = Some(BackupTarget::Folder(target));
    })
    .await;
    let rows = json!([{"server_serial": "CLI-1"}, {"server_serial": "CLI-2"}]);
    let batch = json!({"recipe": recipe(), "rows": rows});
    let batch = scene.admin.post("/api/v1/batches", &batch).await.expect(202);
    let jobs = batch["rows"].as_array().unwrap().iter().map(|row| row["job_id"].as_str().unwrap());
    for job in jobs.clone() {
        assert_eq!(scene.admin.complete(job).await["outcome"], "succeeded");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut words = files(folder.path());
    words.insert("$JOB", jobs.clone().next().unwrap().to_owned());
    words.insert("$BATCH", batch["batch_id"].as_str().unwrap().to_owned());

    let mut faults = BTreeMap::new();
    for Sample { command, arguments, code } in WALK {
        if *command == "job retry" {
            // A job is retried when its cleanup has ended.
            scene.complete_skipping(&words["$OPEN"]).await;
        }
        let condition = match *command {
            "firmware plan" => Some(json!({ "kind": "inventoryOOB" })),
            // The set is for another model, so the job ends with its plan.
            "firmware history" => {
                Some(json!({ "kind": "firmwareInstall", "parameters": { "firmware_set": "spring" } }))
            }
            _ => None,
        };
        if let Some(condition) = condition {
            let made = scene.admin.post("/api/v1/servers/CLI-1/condition", &condition).await.expect(200);
            scene.complete_skipping(made["id"].as_str().unwrap()).await;
        }
        let word = |word: &str| words.get(word).cloned().unwrap_or_else(|| word.to_owned());
        let given: Vec<String> = arguments.split(' ').map(word).collect();
        let arguments: Vec<&str> = given.iter().map(String::as_str).chain(["--json"]).collect();
        let ran = shoal(&scene.admin, &arguments).await;
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let document = match document(&out) {
            Ok(document) if ran.status.code() == Some(*code) => document,
            _ => {
                faults.insert(*command, format!("code {:?}\n{out}\n{err}", ran.status.code()));
                continue;
            }
        };
        for (_, pointer, name) in FOUND.iter().filter(|(of, ..)| of == command) {
            let found = document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            words.insert(name, found.to_owned());
        }
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("golden/cli-json")
            .join(format!("{}.json", command.replace(' ', "-")));
        let now = sample(&document, "");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, format!("{now:#}\n")).unwrap();
        }
        let known: Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap_or_default()).unwrap_or_default();
        match known.is_null() {
            true => drop(faults.insert(*command, "there is no sample".to_owned())),
            false => drop(difference(&known, &now, command).map(|place| faults.insert(*command, place))),
        }
    }
    assert!(faults.is_empty(), "UPDATE_GOLDEN=1 rewrites golden/cli-json: {faults:#?}");

    // YAML and names come from the same document.
    for arguments in [["job", "list"], ["server", "list"], ["media", "list"], ["webhook", "list"]] {
        for format in ["yaml", "name"] {
            let ran = shoal(&scene.admin, &[&arguments[..], &["-o", format]].concat()).await;
            assert!(ran.status.success() && !ran.stdout.is_empty(), "{arguments:?} -o {format}");
        }
    }
    let error = shoal(&scene.admin, &["server", "show", "NONE", "-o", "json"]).await;
    assert_eq!(error.status.code(), Some(3));
    let error: Value = serde_json::from_slice(&error.stderr).unwrap();
    assert_eq!((&error["status"], &error["error"]["error"]), (&json!(404), &json!("unknown_server")));
    scene.end().await;
}

#[test]
fn every_sample_has_its_command_in_the_walk() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/cli-json");
    let walked: Vec<String> = WALK.iter().map(|sample| sample.command.replace(' ', "-")).collect();
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let command = name.strip_suffix(".json").unwrap();
        assert!(
            walked.iter().any(|walked| walked == command),
            "{name} is of no command of the walk: delete it"
        );
    }
    for sample in WALK {
        assert!(sample.arguments.starts_with(sample.command), "{}", sample.command);
    }
}

#[test]
fn a_sample_that_lacks_a_member_or_has_another_type_is_noticed() {
    let known = json!({"jobs": [{"job_id": "a", "wait": null, "steps": 3}], "next": null});
    assert_eq!(difference(&known, &known, ""), None);
    for (other, place) in [
        (json!({"jobs": [{"job_id": "a", "wait": {"reason": "x"}, "steps": 3}], "next": "c"}), None),
        (json!({"jobs": [{"job_id": "a", "wait": null}], "next": null}), Some("/jobs/0")),
        (json!({"jobs": [{"job_id": 1, "wait": null, "steps": 3}], "next": null}), Some("/jobs/0/job_id")),
        (json!({"jobs": [], "next": null}), None),
        (json!([]), Some("")),
    ] {
        assert_eq!(difference(&known, &other, "").as_deref(), place, "{other}");
    }
}

/// A document with the values that differ from run to run replaced, and of each list the first row.
fn sample(document: &Value, key: &str) -> Value {
    const NUMBERS: [&str; 9] =
        ["seq", "next", "free_bytes", "size", "bytes", "uptime_s", "revision", "schema_version", "pid"];
    match document {
        Value::Object(members) => {
            members.iter().map(|(key, member)| (key.clone(), sample(member, key))).collect()
        }
        Value::Array(rows) => rows.iter().take(1).map(|row| sample(row, key)).collect(),
        Value::String(text) => json!(steady(text, key)),
        Value::Number(_) if NUMBERS.contains(&key) => json!(7),
        other => other.clone(),
    }
}

fn steady(text: &str, key: &str) -> String {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text {
        _ if key == "short_id" => "0192f3a4".to_owned(),
        _ if key == "token" && text.starts_with("shoal") => "shoal_…".to_owned(),
        _ if key == "delivery_id" => "0192f3a4-5b6c-7abc-8def-0123456789ab-test-0192f3a4".to_owned(),
        _ if text.starts_with("sha256:") => format!("sha256:{}", "0".repeat(64)),
        _ if text.starts_with("shoal-") && text.ends_with('Z') => {
            "shoal-3f9a1c2b-000012-20260102T100000Z".to_owned()
        }
        _ if text.len() == 36 && text.matches('-').count() == 4 => {
            "0192f3a4-5b6c-7abc-8def-0123456789ab".to_owned()
        }
        _ if text.len() == 64 && is_hex(text) => "0".repeat(64),
        _ if text.len() >= 20 && text.ends_with('Z') && text.contains('T') => {
            "2026-01-02T10:00:00.000Z".to_owned()
        }
        _ if text.contains("127.0.0.1:") => "192.0.2.41".to_owned(),
        _ if text.starts_with('/') && text.contains("/.tmp") => {
            format!("/var/lib/shoal/{}", text.rsplit('/').next().unwrap_or_default())
        }
        _ if text.contains("/.tmp") => {
            let words = text.split(' ').map(|word| match word.split_once("/.tmp") {
                Some((_, rest)) => format!("/srv/{}", rest.split_once('/').map_or("", |(_, name)| name)),
                None => word.to_owned(),
            });
            words.collect::<Vec<String>>().join(" ")
        }
        _ if key == "head" => format!("7:{}", "0".repeat(64)),
        "127.0.0.1" => "192.0.2.1".to_owned(),
        _ => text.to_owned(),
    }
}

/// The first place at which two documents have other members or types. Null and an empty list stand for every type.
fn difference(known: &Value, now: &Value, place: &str) -> Option<String> {
    match (known, now) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Object(one), Value::Object(other)) => {
            // Maps with keys of their own, such as labels, are equal in type only.
            if place.ends_with("/labels") || place.ends_with("/data") || place.ends_with("/observed") {
                return None;
            }
            if !one.keys().eq(other.keys()) {
                return Some(place.to_owned());
            }
            one.iter().find_map(|(key, member)| difference(member, &other[key], &format!("{place}/{key}")))
        }
        (Value::Array(one), Value::Array(other)) => match (one.first(), other.first()) {
            (Some(one), Some(other)) => difference(one, other, &format!("{place}/0")),
            _ => None,
        },
        _ if std::mem::discriminant(known) == std::mem::discriminant(now) => None,
        _ => Some(place.to_owned()),
    }
}
