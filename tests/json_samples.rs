//! A real sample of the JSON of each command that shows something, from one controller with simulated servers, in the order of
//! a walk through the program; then from its data directory, and from a controller of its restored data. `golden/cli-json` has the samples and docs/cli.md shows them; which commands have none, and why, is
//! in `src/cli/tests/without_json.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use controller::app::{self, RunningController};
use lab_machines::InstallerBehaviour;
use lab_machines::maintenance_os::unit;
use model::SystemClock;
use serde_json::{Map, Value, json};
use settings::{BackupTarget, Settings, Sources};

use crate::command_line::shoal;
use crate::kit::{Client, Scene, binary, healthy, recipe, silent};

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

/// The exit code of a command whose result depends on the host.
const ANY: i32 = -1;

/// The walk through a controller with jobs: two succeeded, one failed, one waits, one is held. After `controller drain` no further
/// job begins. Lists come after what makes their rows.
const WALK: &[Sample] = &[
    ok("server list", "server list"),
    ok("server show", "server show CLI-1"),
    ok("server inventory", "server inventory CLI-1"),
    ok("server conditions", "server conditions CLI-1"),
    ok("job list", "job list --state held"),
    ok("job show", "job show $JOB"),
    ok("job events", "job events $JOB"),
    ok("job explain", "job explain $JOB"),
    ok("job log", "job log $JOB"),
    ok("job watch", "job watch $JOB"),
    ok("job media-url", "job media-url $RUNNING"),
    ok("batch list", "batch list"),
    ok("batch show", "batch show $BATCH"),
    Sample { command: "batch watch", arguments: "batch watch $BATCH", code: 1 },
    ok("event list", "event list --type job.created --limit 1"),
    ok("media list", "media list"),
    ok("top", "top --once"),
    ok("about", "about"),
    ok("controller status", "controller status"),
    ok("controller ready", "controller ready"),
    ok("whoami", "whoami"),
    ok("secret list", "secret list"),
    ok("audit list", "audit list"),
    ok("session list", "session list"),
    ok("session end", "session end $SESSION"),
    ok("support-bundle", "support-bundle --output $BUNDLE"),
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
    ok("server restored", "server restored CLI-4"),
    ok("server power-cycle", "server power-cycle CLI-1 --dry-run"),
    ok("server reset-bmc", "server reset-bmc CLI-1 --dry-run"),
    Sample {
        command: "server bios set",
        arguments: "server bios set CLI-1 BootMode=Uefi --dry-run",
        code: 1,
    },
    // Jobs that do not begin.
    ok("controller drain", "controller drain --reason upgrade"),
    ok("job create", "job create --server CLI-1 --recipe $RECIPE"),
    Sample {
        command: "job create --dry-run",
        arguments: "job create --dry-run --server CLI-4 --server CLI-2 --recipe $RECIPE",
        code: 4,
    },
    ok("job hold", "job hold $OPEN --reason rack"),
    ok("job resume", "job resume $OPEN"),
    ok("job finish", "job finish --serial-glob CLI-1"),
    ok("job cancel", "job cancel $OPEN"),
    ok("job retry", "job retry $OPEN"),
    ok("batch retry", "batch retry $BATCH --failed"),
    ok("batch create", "batch create --servers $SERIALS --recipe $RECIPE --canary 1 --stop-after 3"),
    ok("batch continue", "batch continue $WAITING"),
    ok("batch cancel", "batch cancel $WAITING"),
    ok("controller undrain", "controller undrain"),
    // Webhooks. Port 9 of this machine has no listener.
    ok("webhook add", "webhook add http://127.0.0.1:9/in --secret-file $SECRET --type backup.damaged"),
    ok("webhook list", "webhook list"),
    ok("webhook show", "webhook show $HOOK"),
    Sample { command: "webhook test", arguments: "webhook test $HOOK", code: 1 },
    ok("webhook disable", "webhook disable $HOOK"),
    ok("webhook enable", "webhook enable $HOOK"),
    ok("webhook dead-letters", "webhook dead-letters $HOOK"),
    ok("webhook redeliver", "webhook redeliver $HOOK"),
    // Firmware.
    ok("firmware add", "firmware add $FILE --vendor contoso --model M1 --component bios --version 2.19"),
    ok("firmware list", "firmware list"),
    ok(
        "firmware set create",
        "firmware set create spring --file $FIRMWARE --label vendor=contoso --label model=M1",
    ),
    ok("firmware show", "firmware show $FIRMWARE"),
    ok("firmware set list", "firmware set list"),
    ok("firmware set show", "firmware set show spring"),
    ok("firmware set match", "firmware set match --vendor contoso --model M1"),
    Sample { command: "firmware plan", arguments: "firmware plan CLI-1 --set spring", code: 1 },
    Sample { command: "firmware drift", arguments: "firmware drift CLI-1 --set spring", code: 7 },
    Sample {
        command: "firmware install",
        arguments: "firmware install CLI-1 --set spring --dry-run",
        code: 1,
    },
    ok("firmware history", "firmware history CLI-1"),
    // Accounts.
    ok("user add", "user add ann --role operator --password-file $SECRET"),
    ok("user list", "user list"),
    ok("user show", "user show ann"),
    ok("user role", "user role ann viewer"),
    ok("user disable", "user disable ann"),
    ok("user enable", "user enable ann"),
    ok("token create", "token create ci --role operator --label site=a --registry pull:os-images/**"),
    ok("token list", "token list"),
    ok("token show", "token show ci"),
    ok("token rotate", "token rotate ci"),
    ok("worker token create", "worker token create b --queue facility-b"),
    ok("worker token list", "worker token list"),
    ok("worker list", "worker list"),
    // Without a controller.
    ok("recipe validate", "recipe validate $RECIPE"),
    ok("iso build", "iso build $FOLDER --output $ISO"),
    ok("iso ls", "iso ls $ISO"),
    ok("iso info", "iso info $ISO"),
    ok("iso check", "iso check $ISO"),
    ok("iso extract", "iso extract $ISO --output $EXTRACTED"),
    ok("iso splice", "iso splice $ISO $RECIPE --output $SPLICED"),
    // Registry and backups.
    ok("maintenance push", "maintenance push $ISO"),
    ok("image add", "image add $DISK --name os-images/disk:2"),
    ok("image add", "image add $DISK --name os-images/disk:1"),
    ok("registry ls", "registry ls --online"),
    ok("registry delete", "registry delete os-images/disk:1 --yes"),
    ok("registry status", "registry status"),
    ok("registry uploads", "registry uploads"),
    ok("registry cancel-upload", "registry cancel-upload $UPLOAD"),
    ok("registry gc", "registry gc --online --dry-run"),
    ok("registry retain", "registry retain --online --dry-run"),
    ok("registry scrub", "registry scrub --online"),
    ok("registry read-only", "registry read-only on --reason move"),
    ok("backup status", "backup status"),
    ok("backup now", "backup now"),
    ok("backup list", "backup list"),
    ok("backup verify", "backup verify"),
];

/// What `tests/service.rs` runs: a controller that is a process of its own and writes a log.
const OF_SERVICE: &[Sample] = &[ok("log level", "log level")];

/// The walk on the data directory of that controller, after it has stopped.
const OFFLINE: &[Sample] = &[
    ok("registry pins", "registry pins"),
    ok("registry rebuild", "registry rebuild"),
    ok("registry export", "registry export os-images/disk --output $ARCHIVE"),
    ok("registry import", "registry import $ARCHIVE --repository copies/disk"),
    ok("ca export", "ca export"),
    ok("audit verify", "audit verify"),
    ok("audit export", "audit export"),
    ok("secret rotate", "secret rotate signing --offline"),
    ok("config show", "config show"),
    ok("config check", "config check"),
    ok("config reference", "config reference"),
    Sample { command: "doctor", arguments: "doctor", code: ANY },
    ok("dashboards export", "dashboards export $DASHBOARDS"),
    ok("backup", "backup $BACKUP"),
];

/// The restore of that backup.
const RESTORED: &[Sample] = &[ok("restore", "restore $BACKUP")];

/// The walk on the restored data, before its controller starts.
const CONFIRMED: &[Sample] =
    &[ok("user confirm", "user confirm ann --offline"), ok("token confirm", "token confirm ci --offline")];

/// The walk through the controller of the restored data.
const RELEASE: &[Sample] = &[
    ok("controller restored", "controller restored"),
    ok("server release", "server release CLI-1 --jobs end"),
    ok("controller release", "controller release --old-controller-is-off --jobs end"),
];

/// The samples.
fn samples() -> impl Iterator<Item = &'static Sample> {
    [WALK, OF_SERVICE, OFFLINE, RESTORED, CONFIRMED, RELEASE].into_iter().flatten()
}

/// Lists that are empty in a sample, with the reason: the command, the place, or only the name of the list for all commands.
const EMPTY: &[(&str, &str, &str)] = &[
    ("", "gates", "no gate is closed for it"),
    ("", "remaining", "the cleanup is done"),
    ("", "warnings", "nothing is wrong"),
    ("", "blocked_by", "the job would not fail"),
    ("", "quarantined", "no content is corrupted"),
    ("", "quotas", "the controller of the walk has no quota"),
    ("", "refused", "nothing is refused"),
    ("", "corrupted", "no content is corrupted"),
    ("", "skipped", "all names are tags"),
    ("", "failed", "all images are whole"),
    ("", "damaged", "no content is damaged"),
    ("", "incomplete", "everything was read"),
    ("controller release", "/left", "what happens to their jobs was said"),
    ("controller restored", "/servers/0/jobs", "the first server has no unfinished job"),
    ("firmware list", "/unusable", "every file is usable"),
    ("firmware history", "/installations/0/components", "the set is for another model"),
    ("iso check", "/findings", "the image is right"),
    ("iso info", "/boot", NO_BOOT),
    ("iso info", "/boot_faults", NO_BOOT),
    ("iso info", "/boot_images", NO_BOOT),
    ("iso info", "/unreadable", NO_BOOT),
    ("recipe validate", "/errors", "the recipe is right"),
    ("registry delete", "/held_by", "no job holds it"),
    ("registry retain", "/tags", "the controller of the walk has no retention rules"),
    ("top", "/overview/blocked", "no job is queued"),
    ("top", "/overview/stopped_batches", "no batch has stopped"),
    ("secret list", "/secrets/0/former", "no key was rotated"),
    ("server bios set", "/parameters/boot_order", "none was given"),
    ("server inventory", "/out_of_band/firmware", "the simulated BMC lists none"),
    ("server inventory", "/out_of_band/power_supplies", "the simulated BMC lists none"),
    ("webhook dead-letters", "/dead_letters", "an event is a dead letter after 24 hours"),
    ("webhook show", "/retry_streams", "its type has no event"),
    ("worker list", "/workers", "a worker is a process of its own; tests/workers.rs"),
    ("worker token list", "/workers", "a worker is a process of its own; tests/workers.rs"),
    ("whoami", "/registry", "the token has no limits"),
];

const NO_BOOT: &str = "an image that boots is in tests/boot_images.rs";

/// What a later command of the walk needs of the document of an earlier one.
const FOUND: [(&str, &str, &str); 6] = [
    ("job create", "/job_id", "$OPEN"),
    ("batch create", "/batch_id", "$WAITING"),
    ("webhook add", "/webhook_id", "$HOOK"),
    ("firmware add", "/digest", "$FIRMWARE"),
    ("session list", "/sessions/0/session_id", "$SESSION"),
    ("registry uploads", "/uploads/0/id", "$UPLOAD"),
];

/// The files that commands read.
fn files(folder: &Path) -> BTreeMap<&'static str, String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let write_bytes = |name: &str, content: &[u8]| {
        std::fs::write(folder.join(name), content).unwrap();
        path(name)
    };
    let write = |name: &str, content: &str| write_bytes(name, content.as_bytes());
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
        ("$DISK", write_bytes("disk.raw", &crate::disk_images::disk())),
        ("$ISO", path("image.iso")),
        ("$EXTRACTED", path("extracted")),
        ("$SPLICED", path("spliced.iso")),
        ("$BUNDLE", path("support.tar.gz")),
        ("$ARCHIVE", path("disk.tar")),
        ("$BACKUP", path("backup")),
        ("$DASHBOARDS", path("dashboards")),
    ])
}

/// The document of a command; of a stream the first one.
fn document(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(text.lines().next().unwrap_or_default()))
}

/// A walk: the values of its words, and what was wrong so far.
struct Walk {
    words: BTreeMap<&'static str, String>,
    faults: BTreeMap<&'static str, String>,
}

impl Walk {
    /// The arguments of a command with the values of its words.
    fn arguments(&self, sample: &Sample) -> Vec<String> {
        let word = |word: &str| self.words.get(word).cloned().unwrap_or_else(|| word.to_owned());
        sample.arguments.split(' ').map(word).chain(["--json".to_owned()]).collect()
    }

    /// Compares what a command has written with its sample.
    fn look(&mut self, sample: &Sample, ran: &Output) {
        let Sample { command, code, .. } = sample;
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let document = match document(&out) {
            Ok(document) if *code == ANY || ran.status.code() == Some(*code) => document,
            _ => {
                self.faults.insert(command, format!("code {:?}\n{out}\n{err}", ran.status.code()));
                return;
            }
        };
        for (_, pointer, name) in FOUND.iter().filter(|(of, ..)| of == command) {
            let found = document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            self.words.insert(name, found.to_owned());
        }
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("golden/cli-json")
            .join(format!("{}.json", command.replace(' ', "-")));
        let now = steady_sample(&document, "");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, format!("{now:#}\n")).unwrap();
        }
        let known: Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap_or_default()).unwrap_or_default();
        let fault = match known.is_null() {
            true => Some("there is no sample".to_owned()),
            false => difference(&known, &now, command),
        };
        self.faults.extend(fault.map(|fault| (*command, fault)));
    }

    /// Runs commands as clients of a controller.
    async fn online(
        &mut self,
        samples: &'static [Sample],
        client: &Client,
        mut before: impl AsyncFnMut(&Sample, &Self),
    ) {
        for sample in samples {
            before(sample, self).await;
            let arguments = self.arguments(sample);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.look(sample, &shoal(client, &arguments).await);
        }
    }

    /// Runs commands on a data directory.
    fn offline(&mut self, samples: &'static [Sample], data: &Path) {
        for sample in samples {
            let ran = tokio::task::block_in_place(|| offline(data, &self.arguments(sample)));
            self.look(sample, &ran);
        }
    }
}

/// Compares the JSON of `shoal log level` with its sample.
pub(crate) async fn log_level(client: &Client) {
    let mut walk = Walk { words: BTreeMap::new(), faults: BTreeMap::new() };
    walk.online(OF_SERVICE, client, async |_, _| {}).await;
    assert!(walk.faults.is_empty(), "UPDATE_GOLDEN=1 rewrites golden/cli-json: {:#?}", walk.faults);
}

/// Runs the program on a data directory.
fn offline(data: &Path, arguments: &[String]) -> Output {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = binary(&arguments);
    command.env("STORAGE_ROOT", data).env("CONTROLLER_HTTP_ADDR", "127.0.0.1:0");
    command.env("CONTROLLER_HTTPS_ADDR", "off");
    command.output().unwrap()
}

/// A controller with two succeeded jobs, a failed, a waiting and a held one, an upload and a login of a browser.
async fn scene() -> (Scene, [(&'static str, String); 3]) {
    let mut failing = healthy("CLI-3");
    failing.behaviour = InstallerBehaviour::failing_at(unit::IMAGE_LINUX);
    let servers = vec![healthy("CLI-1"), healthy("CLI-2"), failing, silent("CLI-4"), silent("CLI-5")];
    let scene = Scene::start_with(servers, |settings, folder| {
        let target = folder.join("backups");
        std::fs::create_dir(&target).unwrap();
        settings.backup_target = Some(BackupTarget::Folder(target));
    })
    .await;
    let rows = json!([{"server_serial": "CLI-1"}, {"server_serial": "CLI-2"}, {"server_serial": "CLI-3"}]);
    let batch = json!({"recipe": recipe(), "rows": rows});
    let batch = scene.admin.post("/api/v1/batches", &batch).await.expect(202);
    let (waiting, held) = (scene.admin.create_job("CLI-4").await, scene.admin.create_job("CLI-5").await);
    let jobs: Vec<&str> =
        batch["rows"].as_array().unwrap().iter().map(|row| row["job_id"].as_str().unwrap()).collect();
    for (job, outcome) in jobs.iter().zip(["succeeded", "succeeded", "failed"]) {
        assert_eq!(scene.admin.complete(job).await["outcome"], outcome);
    }
    scene.admin.awaits_report(&waiting).await;
    scene.admin.awaits_report(&held).await;
    scene.admin.post(&format!("/api/v1/jobs/{held}/hold"), &json!({"reason": "rack"})).await.expect(202);
    let ran = shoal(&scene.admin, &["server", "inventory", "CLI-1", "--refresh", "--watch"]).await;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(scene.admin.post("/v2/os-images/begun/blobs/uploads/", &Value::Null).await.status, 202);
    scene.admin.post("/api/v1/session", &json!({})).await.expect(201);
    let batch = batch["batch_id"].as_str().unwrap().to_owned();
    let job = jobs[0].to_owned();
    (scene, [("$JOB", job), ("$RUNNING", waiting), ("$BATCH", batch)])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_shows_something_has_the_json_of_its_sample() {
    let (scene, made) = scene().await;
    let folder = tempfile::tempdir().unwrap();
    let mut words = files(folder.path());
    words.extend(made);
    let mut walk = Walk { words, faults: BTreeMap::new() };
    walk.online(WALK, &scene.admin, async |sample, walk| {
        if sample.command == "job retry" {
            // A job is retried when its cleanup has ended.
            scene.complete_skipping(&walk.words["$OPEN"]).await;
        }
        let condition = match sample.command {
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
    })
    .await;

    // YAML and names come from the same document.
    for arguments in [["job", "list"], ["server", "list"], ["media", "list"], ["webhook", "list"]] {
        for format in ["yaml", "name"] {
            let ran = shoal(&scene.admin, &[&arguments[..], &["-o", format]].concat()).await;
            assert!(ran.status.success() && !ran.stdout.is_empty(), "{arguments:?} -o {format}: {ran:?}");
        }
    }
    let error = shoal(&scene.admin, &["server", "show", "NONE", "-o", "json"]).await;
    assert_eq!(error.status.code(), Some(3));
    let error: Value = serde_json::from_slice(&error.stderr).unwrap();
    assert_eq!((&error["status"], &error["error"]["error"]), (&json!(404), &json!("unknown_server")));

    let kept = scene.end_keeping().await;
    let (data, restored) = (kept.path().join("data"), folder.path().join("restored"));
    walk.offline(OFFLINE, &data);
    walk.offline(RESTORED, &restored);
    // A backup has no master key.
    std::fs::copy(data.join("master.key"), restored.join("master.key")).unwrap();
    walk.offline(CONFIRMED, &restored);
    let created = ["token", "create", "walk", "--role", "admin", "--offline"].map(str::to_owned);
    let created = tokio::task::block_in_place(|| offline(&restored, &created));
    let token = String::from_utf8(created.stdout).unwrap();
    let (running, client) = controller_of(&restored).await;
    walk.online(RELEASE, &client.with_token(token.trim()), async |_, _| {}).await;
    Box::pin(running.stop()).await;
    assert!(walk.faults.is_empty(), "UPDATE_GOLDEN=1 rewrites golden/cli-json: {:#?}", walk.faults);
}

/// Starts a controller on a data directory, with a client without a token.
async fn controller_of(data: &Path) -> (RunningController, Client) {
    let flags = [
        ("STORAGE_ROOT", data.display().to_string()),
        ("CONTROLLER_HTTP_ADDR", "127.0.0.1:0".to_owned()),
        ("CONTROLLER_HTTPS_ADDR", "off".to_owned()),
    ];
    let settings = Settings::load(&Sources {
        flags: flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    });
    let running = Box::pin(app::start(settings.unwrap(), Arc::new(SystemClock))).await.unwrap();
    let client = Client::anonymous(format!("http://{}", running.api));
    (running, client)
}

/// The lists of a document that have no row.
fn empty_lists(document: &Value, place: &str, found: &mut Vec<String>) {
    match document {
        Value::Array(rows) if rows.is_empty() => found.push(place.to_owned()),
        Value::Array(rows) => {
            rows.iter().take(1).for_each(|row| empty_lists(row, &format!("{place}/0"), found))
        }
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| empty_lists(member, &format!("{place}/{key}"), found));
        }
        _ => {}
    }
}

#[test]
fn a_list_of_a_sample_has_a_row_or_a_reason_why_it_has_none() {
    let mut used = BTreeSet::new();
    for Sample { command, .. } in samples() {
        let file = format!("golden/cli-json/{}.json", command.replace(' ', "-"));
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let mut empty = Vec::new();
        empty_lists(&document, "", &mut empty);
        for place in empty {
            let name = place.rsplit('/').next().unwrap_or_default();
            let reason = EMPTY.iter().position(|(of, at, _)| of == command && **at == *place);
            let reason = reason.or_else(|| EMPTY.iter().position(|(of, at, _)| of.is_empty() && *at == name));
            let reason =
                reason.unwrap_or_else(|| panic!("{command} {place}: a list without a row documents nothing"));
            used.insert(reason);
        }
    }
    let unused = EMPTY.iter().enumerate().filter(|(place, _)| !used.contains(place));
    let unused: Vec<_> = unused.map(|(_, (command, place, _))| (command, place)).collect();
    assert!(unused.is_empty(), "these have rows: {unused:?}");
}

#[test]
fn every_sample_has_its_command_in_the_walk() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/cli-json");
    let walked: Vec<String> = samples().map(|sample| sample.command.replace(' ', "-")).collect();
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let command = name.strip_suffix(".json").unwrap();
        assert!(
            walked.iter().any(|walked| walked == command),
            "{name} is of no command of the walk: delete it"
        );
    }
    for sample in samples() {
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
fn steady_sample(document: &Value, key: &str) -> Value {
    const NUMBERS: [&str; 9] =
        ["seq", "next", "free_bytes", "size", "bytes", "uptime_s", "revision", "schema_version", "pid"];
    match document {
        Value::Object(members) => {
            members.iter().map(|(key, member)| (key.clone(), steady_sample(member, key))).collect()
        }
        Value::Array(rows) => rows.iter().take(1).map(|row| steady_sample(row, key)).collect(),
        Value::String(text) => json!(steady(text, key)),
        Value::Number(_) if NUMBERS.contains(&key) => json!(7),
        other => other.clone(),
    }
}

const ID: &str = "0192f3a4-5b6c-7abc-8def-0123456789ab";
const TIME: &str = "2026-01-02T10:00:00.000Z";

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.contains('T') && !text.contains(' ')
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && text.matches('-').count() == 4
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
        _ if is_id(text) => ID.to_owned(),
        _ if text.len() == 64 && is_hex(text) => "0".repeat(64),
        _ if is_time(text) => TIME.to_owned(),
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
        _ if key == "pem" => "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n".to_owned(),
        _ if key == "sealed_with" => "34df17cd4849bb9f".to_owned(),
        _ if text.contains("&sig=") => {
            "/media/tasks/0192f3a4-5b6c-7abc-8def-0123456789ab/task.iso?expires=1767348000&sig=…".to_owned()
        }
        // Ids and times within a sentence or a path.
        _ if text.split([' ', '/']).any(|word| is_id(word) || is_time(word)) => {
            let words =
                text.split_inclusive([' ', '/']).map(|word| match word.trim_end_matches([' ', '/']) {
                    bare if is_id(bare) => word.replace(bare, ID),
                    bare if is_time(bare) => word.replace(bare, TIME),
                    _ => word.to_owned(),
                });
            words.collect()
        }
        _ if ["key_id", "from"].contains(&key) && text.len() == 16 && is_hex(text) => {
            "6ba4ead349521f89".to_owned()
        }
        _ if ["head", "anchor"].contains(&key) => format!("7:{}", "0".repeat(64)),
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
            // An event has no data if its type has none, no step and attempt if no step sent it, no job or server if it is about none, and
            // which event is the first one differs. An explanation names a step that may not be interrupted only while one runs: a free
            // worker may have begun it.
            let optional: &[&str] = match place.ends_with("/events/0") {
                true => &["data", "attempt", "step", "job_id", "server_serial"],
                false => &["data", "attempt", "uninterruptible"],
            };
            let members = |map: &Map<String, Value>| {
                map.keys().filter(|key| !optional.contains(&key.as_str())).cloned().collect::<Vec<String>>()
            };
            if members(one) != members(other) {
                return Some(place.to_owned());
            }
            let now = |key: &String| other.get(key).unwrap_or(&Value::Null);
            one.iter().find_map(|(key, member)| difference(member, now(key), &format!("{place}/{key}")))
        }
        (Value::Array(one), Value::Array(other)) => match (one.first(), other.first()) {
            (Some(one), Some(other)) => difference(one, other, &format!("{place}/0")),
            _ => None,
        },
        _ if std::mem::discriminant(known) == std::mem::discriminant(now) => None,
        _ => Some(place.to_owned()),
    }
}
