//! Files and directories that the program creates are open to its user only, whatever the umask.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::kit::{DataDir, silent, start_farm};

/// Builds a command of the program with the umask 000.
fn without_umask(arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_shoal")]).args(arguments);
    command.env_clear().stdin(Stdio::null());
    command
}

/// A name without the parts that differ from run to run.
fn shape(name: &str) -> String {
    let hex = |text: &str| text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let part = |text: &str| match text {
        text if uuid::Uuid::try_parse(text).is_ok() && text.contains('-') => "UUID".to_owned(),
        text if hex(text) => "DIGEST".to_owned(),
        text => text.to_owned(),
    };
    match name.split_once('.') {
        Some((stem, rest)) => format!("{}.{rest}", part(stem)),
        None => part(name),
    }
}

/// Adds `path kind mode` of everything below a folder.
fn collect(folder: &Path, shown: &str, table: &mut BTreeSet<String>) {
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    table.insert(format!("{shown}/  {:04o}", mode(folder)));
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = shape(&entry.file_name().to_string_lossy());
        let place = format!("{shown}/{name}");
        match entry.file_type().unwrap() {
            // What is in it is there for moments.
            kind if kind.is_dir() && matches!(name.as_str(), "tmp" | "trash" | "uploads" | "states") => {
                table.insert(format!("{place}/  {:04o}", mode(&entry.path())));
            }
            kind if kind.is_dir() => collect(&entry.path(), &place, table),
            kind if kind.is_file() => drop(table.insert(format!("{place}  {:04o}", mode(&entry.path())))),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_and_directory_is_open_to_the_user_of_the_program_only() {
    let mut data = DataDir::new().run_by(|| without_umask(&["serve"])).with("TASK_ISO_MODE", "file");
    let controller = data.serve().await;
    let admin = &controller.admin;
    let farm = start_farm(vec![silent("MODE-1")], data.path()).await;
    admin.register(&farm.servers()[0]).await;
    admin.push_image().await;
    let id = admin.create_job("MODE-1").await;
    admin.awaits_report(&id).await;

    let mut table = BTreeSet::new();
    let root = data.path().join("data");
    collect(&root, "data", &mut table);
    farm.shutdown().await;
    assert!(controller.terminate().await.success());
    let backup = data.path().join("backup");
    let archive = data.path().join("image.tar");
    for arguments in [
        vec!["backup", backup.to_str().unwrap(), "--with-master-key"],
        vec!["registry", "export", "os-images/ubuntu-rootfs", "--output", archive.to_str().unwrap()],
    ] {
        let mut command = without_umask(&arguments);
        command.env("STORAGE_ROOT", &root);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    collect(&backup, "backup", &mut table);
    let mode = std::fs::metadata(&archive).unwrap().permissions().mode() & 0o7777;
    table.insert(format!("exported image  {mode:04o}"));

    for line in &table {
        let mode = line.rsplit_once("  ").unwrap().1;
        assert!(matches!(mode, "0700" | "0600" | "0400"), "{line}");
    }
    // Derived some time after a push, or by a scrub: their modes are checked above, but not that they are there.
    let later =
        |line: &&String| ["index.json", "oci-layout", "scrub.json"].iter().any(|name| line.contains(name));
    let text: String = table.iter().filter(|line| !later(line)).map(|line| format!("{line}\n")).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/file-modes.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_others_could_open_is_closed_at_the_start_with_a_line_in_the_log() {
    let mut data = DataDir::new();
    data.serve().await.terminate().await;
    let root = data.path().join("data");
    let open =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(&root, 0o755);
    open(&root.join("provisioner.db"), 0o644);
    let controller = data.serve().await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&root), mode(&root.join("provisioner.db"))), (0o700, 0o600));
    assert!(controller.terminate().await.success());
    assert_eq!(data.logs().matches("group and others had access").count(), 2, "{}", data.logs());

    // A directory that also has files of others is not changed.
    let shared = data.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("notes.txt"), "").unwrap();
    open(&shared, 0o755);
    let refused = data.command().env("STORAGE_ROOT", &shared).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("STORAGE_ROOT") && said.contains("chmod 700"), "{said}");
    assert_eq!(mode(&shared), 0o755);
}
