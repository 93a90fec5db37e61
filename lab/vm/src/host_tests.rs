//! Tests of the host of the simulated BMC, without QEMU.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use super::*;

#[test]
fn no_message_of_qemu_shows_the_url_of_a_medium() {
    let url = "http://127.0.0.1:8081/tSECRET/boot.iso".to_owned();
    let text = format!("-blockdev {{\"url\":\"{url}\"}}: CURL: Error opening file");
    assert_eq!(redact(&text, &[url]), "-blockdev {\"url\":\"…/boot.iso\"}: CURL: Error opening file");
}

/// A host with empty files, one CD slot with this medium, and a sender of changes.
fn host(folder: &Path, medium: &str) -> (VmHost, watch::Sender<Media>) {
    let (sender, changes) = watch::channel(vec![Some(medium.to_owned())]);
    let host = VmHost {
        spec: VmSpec::new("VM-1").unwrap(),
        tools: VmTools::for_tests(Path::new("head")),
        files: VmFiles::open(folder, "VM-1").unwrap(),
        runtime: folder.to_owned(),
        console: VmConsole::new(&folder.join("console")).unwrap(),
        slots: vec![SlotConfig::cd("CD1")],
        changes,
        tracker: TaskTracker::new(),
        power_supply: CancellationToken::new(),
        running: tokio::sync::Mutex::default(),
        button: Mutex::default(),
        input: Mutex::default(),
    };
    (host, sender)
}

/// Takes the part of QEMU on its control socket, and returns its commands up to the one that inserts a medium.
async fn commands_to_qemu(control: PathBuf) -> Vec<String> {
    let mut stream = tokio::io::BufReader::new(UnixStream::connect(control).await.unwrap());
    stream.write_all(b"{\"QMP\": {}}\n").await.unwrap();
    let mut commands = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let command: serde_json::Value = serde_json::from_str(&line).unwrap();
        stream
            .write_all(format!("{}\n", json!({ "return": {}, "id": command["id"] })).as_bytes())
            .await
            .unwrap();
        commands.push(command["execute"].as_str().unwrap().to_owned());
        if command["execute"] == json!("blockdev-close-tray") {
            return commands;
        }
    }
}

#[tokio::test]
async fn a_medium_that_is_changed_while_qemu_starts_is_changed_once_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (host, sender) = host(folder.path(), "http://127.0.0.1/old.iso");
    let changes = host.changes_from_now();
    let slots = vec![SlotDrive {
        kind: MediaKind::Cd,
        url: Some("http://127.0.0.1/old.iso".to_owned()),
        boots: true,
    }];
    // Files are prepared and QEMU starts.
    sender.send_replace(vec![Some("http://127.0.0.1/new.iso".to_owned())]);
    let control = folder.path().join("control");
    let listener = listen(&control).unwrap();
    // A program that ends once something is typed.
    let command = process::command(Path::new("setpriv"), Path::new("head"), ["-n", "1"]);
    let process = Process::start(command, "test", |_| {}).await.unwrap();
    let cancel = CancellationToken::new();
    let changed = async {
        let commands = commands_to_qemu(control).await;
        host.input.lock().as_ref().unwrap().send(b"\n".to_vec()).unwrap();
        commands
    };
    let both = async { tokio::join!(host.run(process, listener, slots, &cancel, changes), changed).1 };
    let commands =
        tokio::time::timeout(CONNECT, both).await.expect("QEMU is never asked to change the medium");
    let expected = ["blockdev-open-tray", "blockdev-remove-medium", "blockdev-del", "blockdev-add"];
    assert_eq!(commands[1..5], expected);
    // What was changed before a power-on is in the media of its boot.
    assert!(!host.changes_from_now().has_changed().unwrap());
}

/// The bytes that QEMU sends when the system restarts the machine; with the response to the negotiation.
const RESTART: &[u8] = b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 1}\n\
    {\"event\": \"STOP\"}\n{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": \"guest-reset\"}}\n";

/// The run of a QEMU that restarted its machine and ended; its last events are not read yet.
async fn ended_run(console: &VmConsole, media: Media) -> (Run<'_>, Process) {
    let command = process::command(Path::new("setpriv"), Path::new("true"), [""; 0]);
    let process = Process::start(command, "test", |_| {}).await.unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(RESTART).await.unwrap();
    let kinds = vec![MediaKind::Cd; media.len()];
    let mut run = Run { life: Life::new(), qmp: None, kill_at: None, console, kinds, media };
    run.connected(Qmp::open(ours).await, &process).await;
    (run, process)
}

#[tokio::test]
async fn the_reason_that_qemu_gave_counts_when_a_medium_is_changed_while_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let console = VmConsole::new(&folder.path().join("console")).unwrap();
    let (mut run, mut process) =
        ended_run(&console, vec![Some("http://127.0.0.1/boot.iso".to_owned())]).await;
    run.change_media(vec![None]).await;
    run.input(Input::PowerButton, &process).await;
    process.wait().await;
    run.last_events(&process).await;
    assert_eq!(run.life.end(), End::Restart);
}

#[tokio::test]
async fn the_reason_that_qemu_gave_counts_when_its_end_is_noticed_first() {
    let folder = tempfile::tempdir().unwrap();
    let console = VmConsole::new(&folder.path().join("console")).unwrap();
    let (mut run, mut process) = ended_run(&console, Vec::new()).await;
    process.wait().await;
    run.last_events(&process).await;
    assert_eq!(run.life.end(), End::Restart);
    assert!(run.qmp.is_none());
}

#[tokio::test]
async fn the_control_socket_is_private_and_its_path_fits() {
    use std::os::unix::fs::PermissionsExt;
    let folder = private_folder().unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("vm")), 0o700);
    let path = folder.path().join("vm/control");
    drop(listen(&path).unwrap());
    // A socket of an earlier boot is replaced.
    drop(listen(&path).unwrap());
    let long = folder.path().join("x".repeat(120));
    let refused = listen(&long).unwrap_err().to_string();
    assert!(refused.contains("TMPDIR"), "{refused}");
}
