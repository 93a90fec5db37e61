//! The rescue system on the medium: busybox on the consoles, dropbear for SSH.
//!
//! ```text
//! /usr/bin/busybox   a link for each applet, /etc/passwd, /etc/profile      a shell on each console, started again when it ends
//! /usr/sbin/dropbear authorized_keys of root, /run/rescue/host_key            started again when it ends; its log: /run/rescue/ssh.log
//! ```
//!
//! Invariants: SSH takes keys only, and forwards nothing. The host key is made once for each start of the machine and never leaves it.
//! Everything is in memory.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use super::hotplug::Drivers;
use super::{consoles, mounts};
use crate::log::Log;
use crate::rescue::{Keys, RescueHost, RescueReach};
use crate::task::unit;

const BUSYBOX: &str = "usr/bin/busybox";
const DROPBEAR: &str = "usr/sbin/dropbear";
const DROPBEAR_KEY: &str = "usr/bin/dropbearkey";
const HOST_KEY: &str = "run/rescue/host_key";
const SSH_LOG: &str = "run/rescue/ssh.log";
const PATH_OF_PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// The pause before a shell or the SSH server is started again.
const PAUSE: Duration = Duration::from_secs(2);
/// The time in which an SSH server that cannot work ends.
const SETTLE: Duration = Duration::from_millis(700);
/// Most applets that get a link, and most addresses that are reported.
const MAX_APPLETS: usize = 1000;
const MAX_ADDRESSES: usize = 16;
/// The drivers of what an operator finds on disks. Without `modprobe` no program can load them later.
const STORAGE_DRIVERS: [&str; 14] = [
    "md_mod",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "dm_mod",
    "dm_mirror",
    "dm_snapshot",
    "dm_thin_pool",
    "dm_crypt",
    "bcache",
    "fuse",
    "ntfs3",
    "udf",
];

/// The rescue system of this machine.
pub struct Rescue<'run> {
    /// The drivers of the medium.
    pub drivers: Option<&'run Drivers>,
}

impl RescueHost for Rescue<'_> {
    fn start(&self, keys: &Keys, log: &Log) -> Result<RescueReach, String> {
        let root = Path::new("/");
        let applets = applets(root)?;
        prepare(root, keys, &applets)
            .map_err(|source| format!("writing the files of the rescue system: {source}"))?;
        if let Some(drivers) = self.drivers {
            drivers.load_named(&STORAGE_DRIVERS);
        }
        let ssh_host_key = if keys.is_empty() { None } else { Some(start_ssh(root, log)?) };
        let consoles = terminals(&mounts::small_file(Path::new("/sys/class/tty/console/active")));
        for name in &consoles {
            let (name, log) = (name.clone(), log.clone());
            std::thread::spawn(move || keep(&log, &format!("the shell on {name}"), &|| shell(&name)));
        }
        let listed = output(Command::new(root.join(BUSYBOX)).args(["ip", "-o", "addr"]))?;
        Ok(RescueReach { addresses: addresses(&listed), ssh_host_key, consoles })
    }
}

/// Returns the applets of busybox.
fn applets(root: &Path) -> Result<Vec<String>, String> {
    let busybox = root.join(BUSYBOX);
    if !busybox.exists() {
        return Err("this medium has no shell: build it with the profile full".to_owned());
    }
    let listed = output(Command::new(busybox).arg("--list"))?;
    let name =
        |line: &&str| line.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') && !line.is_empty();
    Ok(listed.lines().filter(name).take(MAX_APPLETS).map(str::to_owned).collect())
}

/// Writes the files of the rescue system below `root`.
fn prepare(root: &Path, keys: &Keys, applets: &[String]) -> io::Result<()> {
    for applet in applets {
        let known = ["usr/sbin", "usr/bin"]
            .iter()
            .any(|folder| root.join(folder).join(applet).symlink_metadata().is_ok());
        if !known {
            symlink("busybox", root.join("usr/bin").join(applet))?;
        }
    }
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true).mode(0o700);
    for folder in ["root/.ssh", "run/rescue", "etc"] {
        folders.create(root.join(folder))?;
    }
    for (path, text) in [
        ("etc/passwd", "root:*:0:0:root:/root:/bin/sh\n".to_owned()),
        ("etc/group", "root:x:0:\ntty:x:5:\n".to_owned()),
        ("etc/shells", "/bin/sh\n".to_owned()),
        ("etc/profile", format!("export PATH={PATH_OF_PROGRAMS}\nPS1='rescue:\\w# '\ncd /root\n")),
        ("root/.ssh/authorized_keys", keys.file()),
    ] {
        let mode = if path.starts_with("root") { 0o600 } else { 0o644 };
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(root.join(path))?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Starts the SSH server, and returns the fingerprint of its host key.
fn start_ssh(root: &Path, log: &Log) -> Result<String, String> {
    if let Some(missing) = [DROPBEAR, DROPBEAR_KEY].iter().find(|path| !root.join(path).exists()) {
        return Err(format!(
            "the recipe has ssh_authorized_keys, and this medium has no SSH server (/{missing}): build it with the profile full from a \
             folder that has the package dropbear-bin, or remove the keys to use the console only"
        ));
    }
    let (program, key) = (root.join(DROPBEAR_KEY), root.join(HOST_KEY));
    if !key.exists() {
        output(Command::new(&program).args(["-t", "ed25519", "-f"]).arg(&key))?;
    }
    let fingerprint = fingerprint(&output(Command::new(&program).arg("-y").arg("-f").arg(&key))?)?;
    let mut first = ssh(root).map_err(|source| format!("starting the SSH server: {source}"))?;
    std::thread::sleep(SETTLE);
    if let Ok(Some(status)) = first.try_wait() {
        let said = mounts::small_file(&root.join(SSH_LOG));
        return Err(format!("the SSH server ended at once ({status}): {}", said.trim()));
    }
    let (log, root) = (log.clone(), root.to_owned());
    std::thread::spawn(move || {
        let _ = first.wait();
        keep(&log, "the SSH server", &|| ssh(&root));
    });
    Ok(fingerprint)
}

/// Starts dropbear in the foreground: no passwords, no forwarding.
fn ssh(root: &Path) -> io::Result<Child> {
    let said = OpenOptions::new().create(true).append(true).open(root.join(SSH_LOG))?;
    Command::new(root.join(DROPBEAR))
        .args(["-F", "-E", "-s", "-j", "-k", "-p", "22", "-P", "/run/rescue/dropbear.pid", "-r"])
        .arg(root.join(HOST_KEY))
        .env("PATH", PATH_OF_PROGRAMS)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
}

/// Starts a shell on a terminal, which becomes its controlling terminal.
fn shell(name: &str) -> io::Result<Child> {
    let path = PathBuf::from("/dev").join(name);
    let terminal =
        || OpenOptions::new().read(true).write(true).custom_flags(no_controlling_terminal()).open(&path);
    let open: [File; 3] = [terminal()?, terminal()?, terminal()?];
    let [input, out, errors] = open;
    Command::new(Path::new("/").join(BUSYBOX))
        .args(["setsid", "-c", "/usr/bin/busybox", "sh", "-l"])
        .env("PATH", PATH_OF_PROGRAMS)
        .env("HOME", "/root")
        .env("TERM", if name.starts_with("ttyS") { "vt102" } else { "linux" })
        .stdin(input)
        .stdout(out)
        .stderr(errors)
        .spawn()
}

fn no_controlling_terminal() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap_or(0)
}

/// Starts a program again and again, for as long as the machine is on. A reason that it cannot be started is logged once.
fn keep(log: &Log, what: &str, start: &dyn Fn() -> io::Result<Child>) {
    let mut said = false;
    loop {
        match start() {
            Ok(mut child) => {
                let _ = child.wait();
            }
            Err(source) if !said => {
                log.line(unit::RESCUE, format!("{what} cannot be started: {source}"));
                said = true;
            }
            Err(_) => {}
        }
        std::thread::sleep(PAUSE);
    }
}

/// Runs a program to its end, and returns what it printed.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|source| format!("{program}: {source}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{program} ended with {}: {}", done.status, said.lines().last().unwrap_or_default()))
}

/// Returns the terminals of the kernel's consoles, from the text of `/sys/class/tty/console/active`.
fn terminals(active: &str) -> Vec<String> {
    let found = consoles::devices(active, Path::new(""));
    let names = found.iter().filter_map(|path| path.file_name()?.to_str());
    // tty0 is whichever virtual terminal is shown; a shell needs one of its own.
    names.map(|name| if name == "tty0" { "tty1" } else { name }.to_owned()).collect()
}

/// Returns the fingerprint of a public key as OpenSSH shows it, from what `dropbearkey -y` prints.
fn fingerprint(printed: &str) -> Result<String, String> {
    let key = printed.lines().find_map(|line| line.strip_prefix("ssh-ed25519 ")?.split(' ').next());
    let key = key.and_then(|key| STANDARD.decode(key).ok());
    let key = key.ok_or("dropbearkey printed no public key of the host")?;
    Ok(format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key))))
}

/// Returns the addresses of the machine, from what `ip -o addr` prints. Addresses of links only are left out unless there are no others.
fn addresses(printed: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for line in printed.lines() {
        let mut words = line.split_whitespace();
        let address = words.find(|word| matches!(*word, "inet" | "inet6")).and_then(|_| words.next());
        let address = address.and_then(|address| address.split('/').next()?.parse::<IpAddr>().ok());
        found.extend(address.filter(|address| !address.is_loopback()));
    }
    found.sort();
    found.dedup();
    let of_link = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if !found.iter().all(of_link) {
        found.retain(|address| !of_link(address));
    }
    found.truncate(MAX_ADDRESSES);
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn addresses_are_read_and_those_of_links_only_count_when_there_are_no_others() {
        let local = "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever\n\
                     1: lo    inet6 ::1/128 scope host \\       valid_lft forever\n\
                     2: eth0    inet6 fe80::5054:ff:fe12:3456/64 scope link \\       valid_lft forever\n";
        assert_eq!(addresses(local), ["fe80::5054:ff:fe12:3456".parse::<IpAddr>().unwrap()]);
        let all = format!(
            "{local}2: eth0    inet 10.0.2.15/24 brd 10.0.2.255 scope global eth0\\ valid_lft forever\n\
             2: eth0    inet6 fec0::15/64 scope site dynamic \\ valid_lft 86395sec\nnonsense inet\ninet x/y\n"
        );
        let wanted = ["10.0.2.15", "fec0::15"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(addresses(&all), wanted);
        assert!(addresses("").is_empty());
    }

    #[test]
    fn the_fingerprint_is_that_of_openssh() {
        // `ssh-keygen -lf` of this key.
        let printed = "Public key portion is:\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGVleGFtcGxlZXhhbXBsZWV4YW1wbGU= root@x\nFingerprint: md5 x\n";
        let fingerprint = fingerprint(printed).unwrap();
        assert!(fingerprint.starts_with("SHA256:") && fingerprint.len() == 50, "{fingerprint}");
        assert!(super::fingerprint("ssh-ed25519 !!! x\n").is_err());
        assert!(super::fingerprint("").is_err());
    }

    #[test]
    fn each_console_gets_a_shell_on_a_terminal_of_its_own() {
        assert_eq!(terminals("tty0 ttyS0\n"), ["tty1", "ttyS0"]);
        assert_eq!(terminals(""), ["console"]);
    }

    #[test]
    fn the_files_are_private_and_a_program_of_the_medium_is_not_replaced_by_an_applet() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in ["usr/bin", "usr/sbin"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("usr/sbin/blkid"), "the real one").unwrap();
        let keys =
            Keys::parse(vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGV4 a@b".to_owned()]).unwrap();
        let applets = ["sh", "blkid", "ip"].map(str::to_owned);
        for _ in 0..2 {
            prepare(root, &keys, &applets).unwrap();
        }
        assert_eq!(fs::read_link(root.join("usr/bin/sh")).unwrap(), Path::new("busybox"));
        assert!(!root.join("usr/bin/blkid").exists());
        let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode("root"), mode("root/.ssh"), mode("root/.ssh/authorized_keys")),
            (0o700, 0o700, 0o600)
        );
        assert_eq!(fs::read_to_string(root.join("root/.ssh/authorized_keys")).unwrap(), keys.file());
        assert!(start_ssh(root, &Log::new(Vec::new())).unwrap_err().contains("dropbear-bin"));
        assert!(super::applets(root).unwrap_err().contains("profile full"));
    }
}
