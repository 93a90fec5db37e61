//! The packages of a program, as other programs read them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use packaging::{DATE, Order, PackageError, make};

/// The smallest file that is recognised as a static program for x86-64.
fn static_program() -> Vec<u8> {
    let mut bytes = vec![0; 0x40 + 56];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (bytes[0x12], bytes[0x20], bytes[0x36], bytes[0x38], bytes[0x40]) = (62, 0x40, 56, 1, 1);
    bytes
}

fn agent_in(folder: &Path) -> PathBuf {
    let agent = folder.join("agent");
    fs::write(&agent, [&static_program()[..], b"agent"].concat()).unwrap();
    agent
}

fn packages(out: &Path, version: &str) -> BTreeMap<String, Vec<u8>> {
    let program = out.join("program");
    fs::create_dir_all(out).unwrap();
    fs::write(&program, static_program()).unwrap();
    let agent = agent_in(out);
    let folder = out.join("packages");
    let sums = make(&Order {
        program,
        agent,
        out: folder.clone(),
        version: version.to_owned(),
        date: DATE,
        pages_of: None,
    })
    .unwrap();
    assert_eq!(sums.lines().count(), 3);
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

#[test]
fn two_builds_have_the_same_bytes_and_another_version_has_others() {
    let folder = tempfile::tempdir().unwrap();
    let one = packages(&folder.path().join("one"), "1.2.3");
    assert_eq!(one, packages(&folder.path().join("other"), "1.2.3"));
    let names: Vec<&str> = one.keys().map(String::as_str).collect();
    let wanted = [
        "SHA256SUMS",
        "shoal-1.2.3-linux-amd64.oci.tar",
        "shoal-1.2.3-linux-amd64.tar.gz",
        "shoal_1.2.3_amd64.deb",
    ];
    assert_eq!(names, wanted);
    assert_ne!(one["SHA256SUMS"], packages(&folder.path().join("later"), "1.2.4")["SHA256SUMS"]);
}

#[test]
fn dpkg_reads_the_package_and_knows_its_settings_file_and_scripts() {
    let folder = tempfile::tempdir().unwrap();
    packages(folder.path(), "1.2.3");
    let deb = folder.path().join("packages/shoal_1.2.3_amd64.deb");
    let Ok(shown) = Command::new("dpkg-deb").arg("--info").arg(&deb).output() else {
        return; // A host without dpkg; CI has it.
    };
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();
    for part in [
        "Package: shoal",
        "Version: 1.2.3",
        "Architecture: amd64",
        "conffiles",
        "postinst",
        "prerm",
        "postrm",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = Command::new("dpkg-deb").arg("--contents").arg(&deb).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for line in [
        "root/root",
        "./usr/bin/shoal",
        "./usr/lib/shoal/shoal-agent",
        "./etc/shoal/shoal.toml",
        "./usr/lib/systemd/system/shoal.service",
    ] {
        assert!(listed.contains(line), "{line}: {listed}");
    }
    assert!(!listed.contains("var/lib"), "the data directory is not dpkg's: {listed}");
}

#[test]
fn what_is_not_static_and_a_version_for_another_path_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    let agent = agent_in(folder.path());
    let out = folder.path().join("out");
    let order = Order {
        program: program.clone(),
        agent: agent.clone(),
        out,
        version: "1".to_owned(),
        date: 0,
        pages_of: None,
    };
    assert!(matches!(make(&order), Err(PackageError::Program { .. })));
    // An agent for another machine than the program, and an agent that needs a loader.
    let mut other = static_program();
    other[0x12] = 183;
    fs::write(folder.path().join("other"), other).unwrap();
    for (program, agent) in [("other", &agent), ("agent", &program)] {
        let order = Order { program: folder.path().join(program), agent: agent.clone(), ..order.clone() };
        assert!(matches!(make(&order), Err(PackageError::Program { path, .. }) if path == *agent));
    }
    for version in ["", "../x", "1/2", "v1", "1 2", &"1".repeat(65)] {
        let order = Order { version: version.to_owned(), ..order.clone() };
        assert!(matches!(make(&order), Err(PackageError::Version(_))), "{version:?}");
    }
    assert!(!order.out.exists(), "nothing was written");
}

#[cfg(unix)]
#[test]
fn manual_pages_and_completions_are_those_that_the_program_writes() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let (program, writer) = (folder.path().join("program"), folder.path().join("writer"));
    fs::write(&program, static_program()).unwrap();
    // Stands for a build for this machine: what it gets of the environment would be in the page.
    let script = "#!/bin/sh\nif [ $1 = man ]; then /bin/mkdir -p $2; echo page $HOME >$2/shoal-job.1; else echo completes $2; fi\n";
    fs::write(&writer, script).unwrap();
    fs::set_permissions(&writer, fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.path().join("out");
    let agent = agent_in(folder.path());
    let order = Order {
        program,
        agent,
        out: out.clone(),
        version: "1".to_owned(),
        date: DATE,
        pages_of: Some(writer),
    };
    make(&order).unwrap();
    assert!(!out.join(".pages").exists(), "the work folder is removed");
    let packed = fs::read(out.join("shoal-1-linux-amd64.tar.gz")).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&packed[..]));
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut text).unwrap();
        found.insert(entry.path().unwrap().to_str().unwrap().to_owned(), text);
    }
    assert_eq!(found["shoal-1-linux-amd64/man/man1/shoal-job.1"], b"page\n");
    assert_eq!(found["shoal-1-linux-amd64/completions/_shoal"], b"completes zsh\n");
    assert!(found.contains_key("shoal-1-linux-amd64/doc/operating.md"));

    fs::write(order.pages_of.as_ref().unwrap(), "#!/bin/sh\nexit 3\n").unwrap();
    let error = make(&order).unwrap_err();
    assert!(error.to_string().contains("--pages-of"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_purge_succeeds_when_something_is_mounted_below_the_data_directory() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    // The only programs that the script can start. A real rm fails like this one at a mount point.
    for (name, script) in
        [("rm", "#!/bin/sh\necho \"$*\" >&2\nexit 1\n"), ("systemctl", "#!/bin/sh\nexit 0\n")]
    {
        let path = folder.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = |argument| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/files/postrm");
        let done = Command::new("/bin/sh").arg(script).arg(argument).env("PATH", folder.path()).output();
        let done = done.unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    let (succeeded, said) = run("purge");
    assert!(succeeded, "{said}");
    assert!(said.contains("--one-file-system /var/lib/shoal\n"), "{said}");
    assert!(said.contains("what is mounted there stays"), "{said}");
    assert_eq!(run("remove"), (true, String::new()));
}
