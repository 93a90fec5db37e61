//! Every command of the documents for operators: each line of a `console` block is run word for word by a shell, with the real
//! program, against a controller with simulated servers; or it is on the list of what another harness runs, with its name.
//!
//! ```text
//!   docs/*.md --blocks--> lines --+-- runs here: names that stand for others are replaced, exit code 0
//!                                 `-- elsewhere: the list names the harness, or says why there is none
//! ```
//!
//! The commands of docs/cli.md are generated from the program; those of README and docs/operating.md in `sh` blocks are run by
//! `.ci/readme`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use lab_bmc::SimBmcConfig;
use lab_machines::ServerSpec;
use serde_json::{Value, json};
use settings::BackupTarget;
use sha2::{Digest, Sha256};

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, recipe, silent, soon};
use crate::{disk_images, fleet, rescue};

/// The documents with commands, in the order in which they are run on one controller.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "docs/install.md",
    "docs/fleet.md",
    "docs/operating.md",
    "docs/maintenance-os.md",
    "docs/air-gap.md",
    "docs/upgrade.md",
    "docs/testing.md",
    "docs/backup.md",
];

/// Where a command is run that cannot run beside a simulated controller.
enum Elsewhere {
    /// This harness runs it, or the same with other values.
    By(&'static str),
    /// Nothing runs it, for this reason; `src/cli/tests/documents.rs` checks the names of commands and flags.
    NameOnly(&'static str),
}

use Elsewhere::{By, NameOnly};

/// How these commands begin. An entry that begins as another one does comes before it.
const ELSEWHERE: &[(&str, Elsewhere)] = &[
    // The package, its service, and the seven commands to a first installation.
    ("dpkg -i", By(".ci/install")),
    ("systemctl edit", NameOnly("opens an editor; `.ci/vm/service` writes the file")),
    ("systemctl enable --now shoal.socket", By(".ci/vm/service")),
    ("systemctl enable --now shoal", By(".ci/install")),
    ("systemctl daemon-reload", By(".ci/install")),
    ("systemctl disable --now shoal.socket", By(".ci/install")),
    ("systemctl ", By(".ci/vm/service")),
    ("export SHOAL_URL=", By(".ci/install")),
    ("shoal maintenance push", By(".ci/install")),
    ("skopeo copy ", By(".ci/install")),
    ("SHOAL_BMC_PASSWORD=$(cat bmc.password) shoal server add", By(".ci/install")),
    ("shoal job create --server XF-12345ABC", By(".ci/install")),
    ("shoal doctor --config", By(".ci/install")),
    // The archive and the image. `podman` is a stand-in for the start of the process only.
    ("tar -xzf shoal-VERSION", By(".ci/install")),
    ("install -d -o shoal -g shoal -m 0700 /srv/oci", By(".ci/vm/service")),
    ("install -", By(".ci/install")),
    ("cp -a /var/lib/shoal/oci", By(".ci/vm/service")),
    ("cp -a /var/lib/shoal.newer", By(".ci/install")),
    ("mv /var/lib/shoal", By(".ci/install")),
    ("rm ", By(".ci/install")),
    ("userdel shoal", By(".ci/install")),
    ("shoal backup --config /etc/shoal", By(".ci/install")),
    ("shoal restore /var/backups", By(".ci/install")),
    ("podman ", By(".ci/install")),
    // Programs that CI builds itself.
    ("cargo ", By(".ci/run")),
    (".ci/", By(".ci/run")),
    ("shoal selftest", By(".ci/run")),
    // Debian's mirror, and machines in QEMU.
    ("shoal maintenance fetch", By(".ci/run")),
    ("shoal maintenance build packages --push", By(".ci/vm/first")),
    ("shoal maintenance build", By(".ci/vm/tiny.py")),
    ("shoal maintenance inspect", By(".ci/vm/tiny.py")),
    ("mmdebstrap ", By(".ci/vm/install")),
    ("umoci ", By(".ci/vm/install")),
    ("shoal demo --vm", By(".ci/vm/install")),
    ("ssh ", By(".ci/vm/agent")),
    ("shoal job finish JOB", By("tests/rescue.rs")),
    // Clients of the registry.
    ("printf %s \"$SHOAL_TOKEN\" | oras login", By("registry/tests/clients/login.rs")),
    ("printf %s \"$SHOAL_TOKEN\" | podman login", By("registry/tests/clients/login.rs")),
    ("printf %s \"$SHOAL_TOKEN\" | skopeo login", By("registry/tests/clients/login.rs")),
    ("oras push", By(".ci/oci")),
    (
        "mkdir -p /etc/containers",
        NameOnly("writes to the folders of the host; `tests/tls.rs` gives podman such a folder"),
    ),
    ("cp ca.pem /etc/containers", NameOnly("writes to the folders of the host")),
    // A second process beside the controller.
    ("shoal worker --controller", By("tests/workers.rs")),
    // Restored data, and what its operator decides.
    ("shoal controller restored", By("tests/restored.rs")),
    ("shoal server restored", By("tests/restored.rs")),
    ("shoal server release", By("tests/restored.rs")),
    ("shoal controller release", By("tests/restored.rs")),
    ("shoal server import --range", By("tests/fleet.rs")),
    ("shoal user confirm", By("tests/taken_away.rs")),
    ("shoal token confirm", By("tests/restored.rs")),
    ("shoal token --config", By("tests/restored.rs")),
    ("shoal restore oci://", By("tests/backups.rs")),
];

/// The words of the documents that stand for others, and what they stand for here.
type Words = BTreeMap<&'static str, String>;

/// The environment of the commands.
type Environment = [(&'static str, String); 3];

/// The commands of the `console` blocks of a text; a line that ends with a backslash goes on in the next one.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let joined = blocks.flat_map(|block| {
        let block = block.replace("\\\n", " ");
        block.lines().map(|line| line.trim().to_owned()).collect::<Vec<String>>()
    });
    joined.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The documents of README and `docs/` that show commands and are not generated from the program.
fn with_commands() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::fs::read_dir(root.join("docs")).unwrap();
    let names = folder.map(|entry| format!("docs/{}", entry.unwrap().file_name().into_string().unwrap()));
    let written =
        names.filter(|name| name.ends_with(".md") && name != "docs/cli.md").chain(["README.md".to_owned()]);
    written
        .filter(|name| std::fs::read_to_string(root.join(name)).unwrap().contains("```console\n"))
        .collect()
}

/// What an administrator types before a command that works on the data of the packaged controller.
const AS_CONTROLLER: &str = "setpriv --reuid shoal --regid shoal --clear-groups ";

fn of_document(name: &'static str) -> Vec<(&'static str, String)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let as_typed_here =
        |command: String| command.strip_prefix(AS_CONTROLLER).map(str::to_owned).unwrap_or(command);
    commands(&text).into_iter().map(|command| (name, as_typed_here(command))).collect()
}

fn elsewhere(command: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(start, _)| command.starts_with(start)).map(|(start, _)| *start)
}

/// Runs a command as an operator types it. Standard input is the password file.
async fn run(
    command: &str,
    folder: &Path,
    words: &Words,
    environment: &Environment,
) -> Result<String, String> {
    let program = Path::new(env!("CARGO_BIN_EXE_shoal")).parent().unwrap().display().to_string();
    let typed = words.iter().fold(command.to_owned(), |typed, (word, other)| typed.replace(word, other));
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", &typed])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{program}:/usr/bin:/bin"))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(std::fs::File::open(folder.join("bmc.txt")).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = soon(command, tokio::task::spawn_blocking(move || shell.output())).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    match ran.status.success() {
        true => Ok(out.into_owned()),
        false => Err(format!("{typed}\n{:?}\n{out}{err}", ran.status.code())),
    }
}

/// The servers that the documents name.
fn servers() -> Vec<ServerSpec> {
    let mut with_bios = silent("XF-2041");
    let bios = SimBmcConfig::vendor("dell-idrac9-6", "XF-2041", BMC_USER, BMC_PASSWORD).unwrap();
    with_bios.bmc = Some(Box::new(bios));
    let others = ["SH-2", "SH-3", "SH-4", "SH-5", "SH-6", "FB-17", "SERIAL"].map(silent);
    [with_bios, healthy("SH-1")].into_iter().chain(others).collect()
}

/// The files that the commands read, and empty folders for what they write.
fn files(folder: &Path) {
    let write = |name: &str, text: &[u8]| std::fs::write(folder.join(name), text).unwrap();
    let recipe = recipe();
    let session = json!({ "task_target": "rescue.target", "ssh_authorized_keys": [rescue::KEY] });
    write("recipe.json", recipe.to_string().as_bytes());
    write("rescue.json", session.to_string().as_bytes());
    write("bmc.txt", BMC_PASSWORD.as_bytes());
    write("password", b"a password of a person");
    write("new", b"another password of a person");
    write("serials.txt", b"SH-1\n");
    // The settings of the commands are variables.
    write("shoal.toml", b"");
    write("servers.csv", b"serial,bmc,user,password\nCSV-1,192.0.2.1,root,one\nCSV-2,192.0.2.2,root,other\n");
    let row = json!({ "serial": "JS-1", "bmc_address": "192.0.2.3", "bmc_username": "root", "bmc_password": "one" });
    write("servers.json", json!([row]).to_string().as_bytes());
    write("bios.json", json!({ "attributes": { "LogicalProc": "Enabled" } }).to_string().as_bytes());
    write("appliance.qcow2", &disk_images::qcow2(&disk_images::disk()));
    for name in ["backups", "by-hand"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
}

/// A batch whose first row has failed, so that it has stopped before the second one. Returns its id and that of the cause.
async fn stopped_batch(scene: &Scene) -> (String, String) {
    let rows = json!([{ "server_serial": "SH-2" }, { "server_serial": "SH-3" }]);
    let order = json!({ "recipe": recipe(), "rows": rows, "canary": 1, "labels": { "site": "north" } });
    let batch = scene.admin.post("/api/v1/batches", &order).await.expect(202);
    let (id, job) = (text(&batch["batch_id"]), text(&batch["rows"][0]["job_id"]));
    fleet::report(&scene.admin, "SH-2", &job, &fleet::failed()).await;
    scene.complete_skipping(&job).await;
    let batch = scene.admin.get(&format!("/api/v1/batches/{id}")).await.expect(200);
    (id, text(&batch["causes"][0]["cause"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The SHA-256 of the certificate in a PEM text.
fn fingerprint(pem: &str) -> String {
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let certificate = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    hex::encode(Sha256::digest(certificate))
}

/// What the names in the documents stand for on this controller.
async fn words(scene: &Scene) -> Words {
    for serial in ["SH-4", "SH-5"] {
        let labels = json!({ "labels": { "site": "north", "rack": "7" } });
        scene.admin.patch(&format!("/api/v1/servers/{serial}"), &labels).await.expect(200);
    }
    let (batch, cause) = stopped_batch(scene).await;
    let job = scene.admin.create_job("SH-6").await;
    let upload = scene.admin.post("/v2/os-images/begun/blobs/uploads/", &json!({})).await;
    let upload = upload.header("docker-upload-uuid").unwrap().to_owned();
    let https = scene.running.https.unwrap().to_string();
    let fingerprint = fingerprint(&scene.admin.get("/ca.pem").await.text());
    BTreeMap::from([
        ("BATCH", batch),
        ("3f9a1c2b7d60e581", cause),
        ("explain JOB", format!("explain {job}")),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", upload),
        ("controller:8443", https),
        ("--fingerprint SHA256", format!("--fingerprint {fingerprint}")),
        ("/backup/", format!("{}/by-hand/", scene.folder.path().display())),
        ("/srv/backups", format!("{}/backups", scene.folder.path().display())),
        ("/etc/shoal/shoal.toml", format!("{}/shoal.toml", scene.folder.path().display())),
    ])
}

/// What a command needs of the commands before it.
async fn prepare(scene: &Scene, command: &str, words: &mut Words, environment: &mut Environment) {
    let folder = scene.folder.path();
    if command.contains("--filter state:free") {
        end_all(scene).await;
        // A server in maintenance is not free.
        run("shoal server maintenance end -l rack=7 --yes", folder, words, environment).await.unwrap();
    } else if command.starts_with("shoal server remove -l rack=9 --with-history") {
        let add = "shoal server add R9-1 --bmc-address 192.0.2.9 --bmc-user root --bmc-password-file bmc.txt --label rack=9";
        run(add, folder, words, environment).await.unwrap();
    } else if command.starts_with("shoal job retry") {
        // Which jobs can be retried is known when all have ended.
        end_all(scene).await;
        let preview = run("shoal job retry -l site=north --json", folder, words, environment).await.unwrap();
        let preview: Value = serde_json::from_str(&preview).unwrap();
        words.insert("--expect 12", format!("--expect {}", preview["count"]));
    } else if command.starts_with("shoal audit verify --head") {
        let verified = run("shoal audit verify --json", folder, words, environment).await.unwrap();
        let verified: Value = serde_json::from_str(&verified).unwrap();
        words.insert("4711:0f3a...", text(&verified["head"]));
    } else if command.starts_with("shoal restore") {
        // On another machine.
        let data = folder.join(format!("restored-{}", command.len())).display().to_string();
        environment
            .iter_mut()
            .filter(|(name, _)| *name == "STORAGE_ROOT")
            .for_each(|(_, value)| *value = data.clone());
        let backups = std::fs::read_dir(folder.join("backups")).unwrap();
        let names = backups.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let newest = names.filter(|name| name.starts_with("shoal-")).max().unwrap();
        words.insert("shoal-3f9a1c2b-000012-20261124T033000Z", newest);
    }
}

/// Cancels the jobs of all servers and waits for their end.
async fn end_all(scene: &Scene) {
    let open = scene.admin.get("/api/v1/jobs?filter=site%3Dnorth%20-condition%3Aended").await.expect(200);
    for job in open["jobs"].as_array().unwrap().iter().map(|job| text(&job["job_id"])) {
        // Refused for a job that the command before has cancelled and that is at its end.
        scene.admin.post(&format!("/api/v1/jobs/{job}/cancel"), &json!({})).await;
        scene.complete_skipping(&job).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_documents_runs_as_written() {
    let scene = Scene::start_with(servers(), |settings, folder| {
        files(folder);
        settings.backup_target = Some(BackupTarget::Folder(folder.join("backups")));
    })
    .await;
    let mut words = words(&scene).await;
    let folder = scene.folder.path().to_owned();
    let environment = [
        ("SHOAL_URL", scene.admin.base.clone()),
        ("SHOAL_TOKEN", scene.admin.token().to_owned()),
        ("STORAGE_ROOT", folder.join("data").display().to_string()),
    ];
    let listed: BTreeSet<String> = DOCUMENTS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed, with_commands(), "left: DOCUMENTS, right: documents with console blocks");
    let all: Vec<(&str, String)> = DOCUMENTS.iter().flat_map(|name| of_document(name)).collect();
    let entries: Vec<&str> = all.iter().filter_map(|(_, command)| elsewhere(command)).collect();
    let unused: Vec<&str> =
        ELSEWHERE.iter().map(|(start, _)| *start).filter(|start| !entries.contains(start)).collect();
    assert_eq!(unused, [""; 0], "these entries of ELSEWHERE are of no command");
    for (start, place) in ELSEWHERE {
        let exists = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists();
        assert!(
            match place {
                By(harness) => exists(harness),
                NameOnly(reason) => !reason.is_empty(),
            },
            "{start}: this harness does not exist"
        );
    }
    let here: Vec<&(&str, String)> = all.iter().filter(|(_, command)| elsewhere(command).is_none()).collect();
    let (offline, online): (Vec<_>, Vec<_>) =
        here.into_iter().partition(|(_, command)| command.contains(" --offline"));
    assert!(online.len() > 60 && !offline.is_empty(), "{} and {} commands", online.len(), offline.len());
    let mut faults = Vec::new();
    for (document, command) in &online {
        let mut environment = environment.clone();
        prepare(&scene, command, &mut words, &mut environment).await;
        let ran = run(command, &folder, &words, &environment).await;
        faults.extend(ran.err().map(|said| format!("{document}: {command}\n{said}")));
    }
    let mutant = run("shoal job list --no-such-flag", &folder, &words, &environment).await;
    assert!(mutant.is_err(), "a wrong command passes too: the check cannot fail");
    // The folder is removed when `kept` is dropped.
    let kept = scene.end_keeping().await;
    for (document, command) in &offline {
        let ran = run(command, &folder, &words, &environment).await;
        faults.extend(ran.err().map(|said| format!("{document}: {command}\n{said}")));
    }
    drop(kept);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
