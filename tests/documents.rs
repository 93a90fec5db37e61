//! Every command of the documents for operators: each line of a `console` block is run word for word by a shell, with the real
//! program, against a controller with simulated servers; or it is on the list of what another harness runs, with its name.
//!
//! ```text
//!   docs/*.md --blocks--> lines --+-- runs here: names that stand for others are replaced, exit code 0
//!                                 `-- elsewhere: the list names the harness; an entry without a line is refused
//! ```
//!
//! The commands of docs/cli.md are generated from the program; those of README and docs/operating.md in `sh` blocks are run by
//! `.ci/readme`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use lab_bmc::SimBmcConfig;
use lab_machines::ServerSpec;
use serde_json::{Value, json};
use settings::BackupTarget;

use crate::disk_images;
use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, recipe, silent, with_bmc};

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

/// What cannot run beside a simulated controller: how the command begins, and the harness that runs it.
const ELSEWHERE: &[(&str, &str)] = &[
    // The package, its service and the seven commands to a first installation: `.ci/install`.
    ("dpkg -i", ".ci/install"),
    ("systemctl ", ".ci/install"),
    ("export SHOAL_URL=", ".ci/install"),
    ("shoal maintenance build packages --push", ".ci/vm/short, .ci/install"),
    ("shoal maintenance push", ".ci/install"),
    ("skopeo copy ", ".ci/install, .ci/readme"),
    ("SHOAL_BMC_PASSWORD=$(cat bmc.password) shoal server add", ".ci/install"),
    ("shoal job create --server XF-12345ABC", ".ci/install"),
    ("shoal doctor --config", ".ci/install"),
    ("tar -xzf shoal-VERSION", ".ci/install"),
    ("install -", ".ci/install"),
    ("setpriv ", ".ci/install"),
    ("podman run", ".ci/install"),
    ("podman logs", ".ci/install"),
    // Programs that CI builds itself.
    ("cargo ", ".ci/run"),
    (".ci/", ".ci/run"),
    ("shoal selftest", ".ci/run"),
    // Debian's mirror, and machines in QEMU.
    ("shoal maintenance fetch", ".ci/run"),
    ("shoal maintenance build packages -o", ".ci/vm/short"),
    ("shoal maintenance inspect", "maintenance/tests"),
    ("mmdebstrap ", ".ci/vm"),
    ("umoci ", ".ci/vm"),
    ("shoal demo --vm", ".ci/vm/short"),
    ("ssh ", ".ci/vm"),
    ("shoal job finish JOB", "tests/rescue.rs"),
    // Clients of the registry, with a certificate of its own.
    ("oras ", ".ci/oci"),
    ("mkdir -p /etc/containers", "tests/registry.rs"),
    ("cp ca.pem /etc/containers", "tests/registry.rs"),
    ("podman login", "tests/registry.rs"),
    ("skopeo login", "tests/registry.rs"),
    // A second process beside the controller.
    ("shoal worker --controller", "tests/workers.rs"),
    ("shoal serve", "tests/process.rs"),
    // Restored data, and what its operator decides.
    ("shoal controller restored", "tests/restored.rs"),
    ("shoal server restored", "tests/restored.rs"),
    ("shoal server release", "tests/restored.rs"),
    ("shoal controller release", "tests/restored.rs"),
    ("shoal user confirm", "tests/taken_away.rs"),
    ("shoal token confirm", "tests/taken_away.rs"),
    ("cp /safe/master.key", "tests/backups.rs"),
    ("shoal restore oci://", "tests/backups.rs"),
];

/// The words of the documents that stand for others, and what they stand for here.
type Words = BTreeMap<&'static str, String>;

/// The commands of the `console` blocks of a text; a line that ends with a backslash goes on in the next one.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let joined = blocks.flat_map(|block| {
        let block = block.replace("\\\n", " ");
        block.lines().map(|line| line.trim().to_owned()).collect::<Vec<String>>()
    });
    joined.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

fn elsewhere(command: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(start, _)| command.starts_with(start)).map(|(start, _)| *start)
}

/// Runs a command as an operator types it. Standard input is the password file.
fn run(command: &str, folder: &Path, words: &Words, environment: &[(&str, String)]) -> Result<String, String> {
    let program = Path::new(env!("CARGO_BIN_EXE_shoal")).parent().unwrap().display().to_string();
    let typed = words.iter().fold(command.to_owned(), |typed, (word, other)| typed.replace(word, other));
    let ran = Command::new("sh")
        .args(["-euc", &typed])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{program}:/usr/bin:/bin"))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(std::fs::File::open(folder.join("bmc.txt")).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    match ran.status.success() {
        true => Ok(out.into_owned()),
        false => Err(format!("{typed}\n{:?}\n{out}{err}", ran.status.code())),
    }
}

/// The servers that the documents name.
fn servers() -> Vec<ServerSpec> {
    let mut with_bios = silent("XF-2041");
    let bios = SimBmcConfig::vendor("dell-idrac9", "XF-2041", BMC_USER, BMC_PASSWORD).unwrap();
    with_bios.bmc = Some(Box::new(bios));
    let others = ["SH-2", "SH-3", "SH-4", "SH-5", "FB-17", "SERIAL"].map(silent);
    [with_bios, healthy("SH-1")].into_iter().chain(others).collect()
}

/// The files that the commands read, and empty folders for what they write.
fn files(folder: &Path) {
    let write = |name: &str, text: &[u8]| std::fs::write(folder.join(name), text).unwrap();
    let recipe = recipe();
    let rescue = json!({ "task_target": "rescue.target", "ssh_authorized_keys": ["ssh-ed25519 AAAA a@b"] });
    write("recipe.json", recipe.to_string().as_bytes());
    write("rescue.json", rescue.to_string().as_bytes());
    write("bmc.txt", BMC_PASSWORD.as_bytes());
    write("password", b"a password of a person");
    write("serials.txt", b"SH-1\n");
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
    let order = json!({ "recipe": recipe(), "rows": rows, "canary": 1 });
    let batch = scene.admin.post("/api/v1/batches", &order).await.expect(202);
    let (id, job) = (text(&batch["batch_id"]), text(&batch["rows"][0]["job_id"]));
    scene.admin.awaits_report(&job).await;
    let token = text(&scene.admin.job_document(&job).await["webhook_token"]);
    let report = json!({ "status": "failed", "failed_step": "image-linux.service", "job_id": job });
    scene.admin.report("SH-2", &token, &report).await.expect(200);
    scene.complete_skipping(&job).await;
    let batch = scene.admin.get(&format!("/api/v1/batches/{id}")).await.expect(200);
    (id, text(&batch["failures"][0]["cause"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// What the names in the documents stand for on this controller.
async fn words(scene: &Scene) -> Words {
    for serial in ["SH-2", "SH-3", "SH-4"] {
        let labels = json!({ "labels": { "site": "north", "rack": "7" } });
        scene.admin.patch(&format!("/api/v1/servers/{serial}"), &labels).await.expect(200);
    }
    let (batch, cause) = stopped_batch(scene).await;
    let job = scene.admin.create_job("SH-5").await;
    let upload = scene.admin.post("/v2/os-images/begun/blobs/uploads/", &json!({})).await;
    let upload = upload.header("docker-upload-uuid").unwrap().to_owned();
    let https = scene.running.https.unwrap().to_string();
    let fingerprint = scene.running.certificates.as_ref().unwrap().authority_fingerprint();
    BTreeMap::from([
        ("BATCH", batch),
        ("3f9a1c2b7d60e581", cause),
        ("explain JOB", format!("explain {job}")),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", upload),
        ("10.0.0.0/24", "127.0.0.1/32".to_owned()),
        ("controller:8443", https),
        ("--fingerprint SHA256", format!("--fingerprint {fingerprint}")),
        ("/backup/", format!("{}/by-hand/", scene.folder.path().display())),
        ("/srv/backups", format!("{}/backups", scene.folder.path().display())),
    ])
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
    let data = folder.join("data").display().to_string();
    let environment = [
        ("SHOAL_URL", scene.admin.base.clone()),
        ("SHOAL_TOKEN", scene.admin.token().to_owned()),
        ("STORAGE_ROOT", data),
    ];
    let (mut faults, mut ran, mut used) = (Vec::new(), 0, BTreeMap::new());
    for document in DOCUMENTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
        for command in commands(&std::fs::read_to_string(path).unwrap()) {
            if let Some(start) = elsewhere(&command) {
                *used.entry(start).or_insert(0) += 1;
                continue;
            }
            if command.contains(" --offline") {
                continue;
            }
            ran += 1;
            if let Err(said) = run(&command, &folder, &words, &environment) {
                faults.push(format!("{document}: {command}\n{said}"));
            }
        }
    }
    scene.end().await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
