//! Every command of the documents for operators: each line of a `console` block is run word for word by a shell, with the real
//! program, against a controller with simulated servers; or its block has a name, under which a script of CI runs it word for word; or it
//! is on the list of what another harness runs with other values, with the text of that harness.
//!
//! ```text
//!   docs/*.md --blocks--> lines --+-- runs here: names that stand for others are replaced, exit code 0
//!                                 |-- of a script: the block has a comment with a name, which the script names too
//!                                 `-- elsewhere: the list names the harness and a text in it, or says why there is none
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

/// Where a command is run that cannot run beside a simulated controller, and that is in no block with the comment of a script.
enum Elsewhere {
    /// The harness with this name runs the same with other values. The second text is in its file, so that an entry is wrong as soon as
    /// its harness does something else.
    By(&'static str, &'static str),
    /// Nothing runs it, for this reason; `src/cli/tests/documents.rs` checks the names of commands and flags.
    NameOnly(&'static str),
}

use Elsewhere::{By, NameOnly};

/// The scripts that run the blocks of the documents that have a comment with a name, word for word (`block` of `.ci/debian.py`).
const SCRIPTS: [&str; 2] = [".ci/install", ".ci/vm/first"];

/// How these commands begin. An entry that begins as another one does comes before it.
const ELSEWHERE: &[(&str, Elsewhere)] = &[
    // The package and its service.
    ("dpkg -i", By(".ci/install", "system.shell(\"dpkg -i newer.deb\")")),
    ("systemctl edit", NameOnly("opens an editor; `.ci/vm/service` writes the file")),
    ("systemctl enable --now shoal.socket", By(".ci/vm/service", "systemctl enable --now shoal.socket")),
    ("systemctl start shoal", By(".ci/vm/service", "systemctl start shoal")),
    ("systemctl stop shoal", By(".ci/vm/service", "systemctl stop shoal.socket shoal.service")),
    (
        "install -d -o shoal -g shoal -m 0700 /srv/oci",
        By(".ci/vm/service", "install -d -o shoal -g shoal -m 0700 /srv/oci"),
    ),
    ("cp -a /var/lib/shoal/oci", By(".ci/vm/service", "cp -a /var/lib/shoal/oci/. /srv/oci/")),
    // Programs that CI builds itself.
    ("cargo run --release -- demo --vm", By(".ci/vm/install", "demo --vm")),
    ("cargo run --release -- demo", By(".ci/run", "cargo run --release -- demo")),
    ("cargo run --release -- maintenance fetch", By(".ci/run", "\"$program\" maintenance fetch")),
    (
        "cargo run --release -p packaging --bin packager",
        By(".ci/install", "run(packager, \"--program\", program, \"--agent\", agent, \"--out\","),
    ),
    ("cargo test --workspace", By(".ci/run", "grep -qx 'cargo test --workspace' README.md")),
    ("cargo static", By(".ci/run", "cargo static\ncargo static-agent")),
    (".ci/fuzz", By(".ci/run", "bash .ci/fuzz 4")),
    ("shoal selftest --every-kind", By(".ci/run", "selftest --every-kind --seeds 1000")),
    ("shoal selftest --seeds 200", By(".ci/run", "selftest --seeds 200 --faults storm")),
    ("shoal selftest --seed 1 ", By(".ci/run", "selftest --seed 1 --servers 1000 --days 1 --faults some")),
    // Debian's mirror, and machines in QEMU.
    ("shoal maintenance fetch", By(".ci/run", "\"$program\" maintenance fetch")),
    ("shoal maintenance build packages -o", By(".ci/vm/tiny.py", "\"maintenance\", \"build\", packages")),
    ("shoal maintenance push", By(".ci/install", "system.shell(four, environment=variables)")),
    ("shoal maintenance inspect", By(".ci/vm/tiny.py", "\"maintenance\", \"inspect\"")),
    ("mmdebstrap ", By(".ci/vm/install", "mmdebstrap --quiet --variant=minbase")),
    ("umoci ", By(".ci/vm/install", "umoci raw add-layer --image image:debian rootfs.tar")),
    ("shoal demo --vm", By(".ci/vm/install", "demo --vm")),
    ("ssh ", By(".ci/vm/agent", "command = [\"ssh\", \"-i\"")),
    ("shoal job finish JOB", By("src/cli/tests/jobs.rs", "\"job\", \"finish\"")),
    // Machines whose BMC updates its firmware.
    ("shoal server inventory R640-1", By("tests/blocks.rs", "shoal server inventory R640-1")),
    ("shoal firmware drift --filter", By("tests/blocks.rs", "\"drift\" { 7 }")),
    ("shoal firmware ", By("tests/blocks.rs", "scene.while_skipping(shoal(")),
    // Clients of the registry.
    ("printf %s \"$SHOAL_TOKEN\" | oras login", By("registry/tests/clients/login.rs", "oras(&[\"login\"")),
    (
        "printf %s \"$SHOAL_TOKEN\" | podman login",
        By("registry/tests/clients/login.rs", "\"podman\", &[\"login\""),
    ),
    (
        "printf %s \"$SHOAL_TOKEN\" | skopeo login",
        By("registry/tests/clients/login.rs", "skopeo(&[\"login\""),
    ),
    ("oras push", By(".ci/oci", "run(oras, words[0], \"--plain-http\", *words[1:]")),
    (
        "mkdir -p /etc/containers",
        NameOnly("writes to the folders of the host; `tests/tls.rs` gives podman such a folder"),
    ),
    ("cp ca.pem /etc/containers", NameOnly("writes to the folders of the host")),
    // A second process beside the controller.
    ("shoal worker --controller", By("tests/workers.rs", "binary(&[\"worker\"")),
    // Restored data, and what its operator decides.
    ("shoal controller restored", By("tests/restored.rs", "\"controller\", \"restored\"")),
    ("shoal server restored", By("tests/restored.rs", "\"server\", \"restored\"")),
    ("shoal server release", By("tests/restored.rs", "\"server\", \"release\"")),
    ("shoal controller release", By("tests/restored.rs", "\"controller\", \"release\"")),
    ("shoal server import --range", By("tests/fleet.rs", "\"import\", \"--range\"")),
    ("shoal user confirm", By("tests/taken_away.rs", "\"user\", \"confirm\"")),
    ("shoal token confirm", By("tests/restored.rs", "\"token\", \"confirm\"")),
    ("shoal restore oci://", By("tests/backups.rs", "oci+http://")),
];

/// The words of the documents that stand for others, and what they stand for here.
type Words = BTreeMap<&'static str, String>;

/// The environment of the commands.
type Environment = [(&'static str, String); 3];

/// A command of a document.
#[derive(Clone)]
struct Shown {
    document: &'static str,
    /// The name in the comment before its block, such as `archive: install`.
    block: Option<String>,
    command: String,
}

/// The commands of the `console` blocks of a text; a line that ends with a backslash goes on in the next one.
fn commands(document: &'static str, text: &str) -> Vec<Shown> {
    let parts: Vec<&str> = text.split("```console\n").collect();
    let blocks = parts.iter().zip(parts.iter().skip(1));
    let joined = blocks.flat_map(|(before, rest)| {
        let above = before.trim_end().rsplit('\n').next().unwrap_or_default().trim();
        let name = above.strip_prefix("<!-- ").and_then(|name| name.strip_suffix(" -->"));
        let block = rest.split("```").next().unwrap_or_default().replace("\\\n", " ");
        let shown = |line: &str| Shown {
            document,
            block: name.map(str::to_owned),
            command: line.strip_prefix(AS_CONTROLLER).unwrap_or(line).to_owned(),
        };
        block.lines().map(|line| shown(line.trim())).collect::<Vec<Shown>>()
    });
    joined.filter(|shown| !shown.command.is_empty() && !shown.command.starts_with('#')).collect()
}

/// Whether one of the scripts runs the block of a document with this name: their text has it, with `{number}` for a number at its end.
fn of_script(document: &str, block: &str, scripts: &str) -> bool {
    let numbered =
        format!("f\"{}{{number}}\"", block.trim_end_matches(|letter: char| letter.is_ascii_digit()));
    let runs = |name: &str| scripts.contains(&format!("block(\"{document}\", {name}"));
    runs(&format!("\"{block}\"")) || runs(&numbered)
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

fn of_document(name: &'static str) -> Vec<Shown> {
    commands(name, &std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap())
}

fn elsewhere(shown: &Shown) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(start, _)| shown.command.starts_with(start)).map(|(start, _)| *start)
}

/// Fails unless each harness of [`ELSEWHERE`] has the text of its entry, and each entry is of a command.
fn harnesses_are_as_listed(all: &[Shown]) {
    let read = |path: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
    };
    let entries: Vec<&str> = all.iter().filter_map(elsewhere).collect();
    let unused: Vec<&str> =
        ELSEWHERE.iter().map(|(start, _)| *start).filter(|start| !entries.contains(start)).collect();
    assert_eq!(unused, [""; 0], "these entries of ELSEWHERE are of no command");
    let wrong: Vec<&str> = ELSEWHERE
        .iter()
        .filter(|(_, place)| match place {
            By(harness, text) => !read(harness).contains(text),
            NameOnly(reason) => reason.is_empty(),
        })
        .map(|(start, _)| *start)
        .collect();
    assert_eq!(wrong, [""; 0], "their harness does not have the text of the entry");
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
    let all: Vec<Shown> = DOCUMENTS.iter().flat_map(|name| of_document(name)).collect();
    let scripts: String = SCRIPTS
        .iter()
        .map(|path| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap())
        .collect();
    let (of_scripts, all): (Vec<Shown>, Vec<Shown>) = all.into_iter().partition(|shown| {
        shown.block.as_ref().is_some_and(|block| of_script(shown.document, block, &scripts))
    });
    assert!(
        of_scripts.len() > 40 && !of_script("README.md", "host", &scripts),
        "{} commands",
        of_scripts.len()
    );
    harnesses_are_as_listed(&all);
    let here = all.into_iter().filter(|shown| elsewhere(shown).is_none());
    let (offline, online): (Vec<Shown>, Vec<Shown>) =
        here.partition(|shown| shown.command.contains(" --offline"));
    assert!(online.len() > 60 && !offline.is_empty(), "{} and {} commands", online.len(), offline.len());
    let mut faults = Vec::new();
    for Shown { document, command, .. } in &online {
        let mut environment = environment.clone();
        prepare(&scene, command, &mut words, &mut environment).await;
        let ran = run(command, &folder, &words, &environment).await;
        faults.extend(ran.err().map(|said| format!("{document}: {command}\n{said}")));
    }
    let mutant = run("shoal job list --no-such-flag", &folder, &words, &environment).await;
    assert!(mutant.is_err(), "a wrong command passes too: the check cannot fail");
    // The folder is removed when `kept` is dropped.
    let kept = scene.end_keeping().await;
    for Shown { document, command, .. } in &offline {
        let ran = run(command, &folder, &words, &environment).await;
        faults.extend(ran.err().map(|said| format!("{document}: {command}\n{said}")));
    }
    drop(kept);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
