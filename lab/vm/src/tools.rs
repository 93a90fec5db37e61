//! The foreign programs and files: found and tried before the first machine starts, so that what is missing has a name.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use crate::{
    command::Acceleration,
    process::{self, Exit, Process},
    spec::{Firmware, OutOfBounds},
};

const QEMU: &str = "qemu-system-x86_64";
const SETPRIV: &str = "setpriv";
/// The folder in which Debian has OVMF.
const OVMF: &str = "/usr/share/OVMF";
const KVM: &str = "/dev/kvm";
/// The time for a trial start of QEMU.
const TRIAL: Duration = Duration::from_secs(20);

/// Something that virtual machines need is missing.
#[derive(Debug, thiserror::Error)]
pub enum MissingTool {
    /// A program is not in `PATH`.
    #[error("{program} is not in PATH; install the Debian package {package}")]
    Program {
        /// The name of the program.
        program: &'static str,
        /// The Debian package that has the program.
        package: &'static str,
    },
    /// The firmware is not there.
    #[error("the firmware {} is missing; install the Debian package ovmf, or use --vm-firmware bios", path.display())]
    Firmware {
        /// The file.
        path: PathBuf,
    },
    /// QEMU cannot read media by HTTP.
    #[error(
        "QEMU cannot read media by HTTP; install the Debian package qemu-block-extra in exactly the version of QEMU's package"
    )]
    HttpDriver,
    /// QEMU does not start.
    #[error("QEMU does not start: {reason}; check the installation of the Debian package qemu-system-x86")]
    Start {
        /// The message of QEMU.
        reason: String,
    },
    /// KVM was demanded and does not work.
    #[error("KVM is not usable: {reason}; use --accel auto or --accel tcg")]
    Kvm {
        /// The reason why KVM is not usable.
        reason: String,
    },
}

/// The choice of the acceleration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccelerationChoice {
    /// KVM if it works, else emulation.
    #[default]
    Auto,
    /// KVM, or an error.
    Kvm,
    /// Emulation.
    Emulation,
}

impl FromStr for AccelerationChoice {
    type Err = OutOfBounds;

    fn from_str(text: &str) -> Result<Self, OutOfBounds> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Emulation),
            _ => Err(OutOfBounds { what: "the acceleration", rule: "give one of auto, kvm, tcg".to_owned() }),
        }
    }
}

/// The programs and files of virtual machines, all present.
#[derive(Clone, Debug)]
pub struct VmTools {
    pub(crate) qemu: PathBuf,
    pub(crate) setpriv: PathBuf,
    /// Program and template of the variables; `None` for BIOS, which QEMU brings along.
    pub(crate) ovmf: Option<(PathBuf, PathBuf)>,
    pub(crate) acceleration: Acceleration,
    /// The reason why there is no KVM.
    reason: Option<String>,
}

impl VmTools {
    /// Tools that were not searched, for tests of the code that uses them.
    #[cfg(test)]
    pub(crate) fn for_tests(qemu: &Path) -> Self {
        let (acceleration, reason) = (Acceleration::Emulation, None);
        Self { qemu: qemu.to_owned(), setpriv: "setpriv".into(), ovmf: None, acceleration, reason }
    }

    /// Finds the programs in `PATH` and the firmware, and tries them: QEMU's HTTP driver, and KVM where it may be used.
    ///
    /// # Errors
    /// Returns an error that names what is missing and the Debian package that has it.
    pub async fn find(firmware: Firmware, choice: AccelerationChoice) -> Result<Self, MissingTool> {
        let qemu = program(QEMU, "qemu-system-x86")?;
        let setpriv = program(SETPRIV, "util-linux")?;
        let ovmf = firmware_files(firmware, Path::new(OVMF))?;
        let trial = Trial { qemu: &qemu, setpriv: &setpriv };
        trial.http().await?;
        let (acceleration, reason) = match choice {
            AccelerationChoice::Emulation => (Acceleration::Emulation, Some("--accel tcg".to_owned())),
            AccelerationChoice::Auto | AccelerationChoice::Kvm => match trial.kvm(Path::new(KVM)).await {
                Ok(()) => (Acceleration::Kvm, None),
                Err(reason) if choice == AccelerationChoice::Kvm => return Err(MissingTool::Kvm { reason }),
                Err(reason) => (Acceleration::Emulation, Some(reason)),
            },
        };
        Ok(Self { qemu, setpriv, ovmf, acceleration, reason })
    }

    /// The way in which instructions are executed.
    #[must_use]
    pub fn acceleration(&self) -> Acceleration {
        self.acceleration
    }
}

impl fmt::Display for VmTools {
    /// Writes the acceleration that is used, and the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.acceleration, &self.reason) {
            (Acceleration::Kvm, _) => f.write_str("KVM"),
            (Acceleration::Emulation, Some(reason)) => write!(f, "emulation, slow ({reason})"),
            (Acceleration::Emulation, None) => f.write_str("emulation, slow"),
        }
    }
}

fn program(name: &'static str, package: &'static str) -> Result<PathBuf, MissingTool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or(MissingTool::Program { program: name, package })
}

fn firmware_files(firmware: Firmware, folder: &Path) -> Result<Option<(PathBuf, PathBuf)>, MissingTool> {
    let (code, variables) = match firmware {
        Firmware::Bios => return Ok(None),
        Firmware::Uefi => ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
        Firmware::SecureBoot => ("OVMF_CODE_4M.ms.fd", "OVMF_VARS_4M.ms.fd"),
    };
    let files = [folder.join(code), folder.join(variables)];
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        return Err(MissingTool::Firmware { path: missing.clone() });
    }
    let [code, variables] = files;
    Ok(Some((code, variables)))
}

/// Short starts of QEMU that show what it can do.
struct Trial<'a> {
    qemu: &'a Path,
    setpriv: &'a Path,
}

impl Trial<'_> {
    /// Whether the HTTP driver is there. The port refuses connections, so the start fails in every case.
    async fn http(&self) -> Result<(), MissingTool> {
        let device = "driver=http,url=http://127.0.0.1:9/x,node-name=trial,read-only=on";
        let exit = self.start(&["-machine", "none", "-blockdev", device, "-S"], b"").await;
        let exit = exit.map_err(|error| MissingTool::Start { reason: error.to_string() })?;
        judge_http(&exit)
    }

    /// Whether a machine starts with KVM. A device that can be opened is not enough: where this computer is itself a
    /// virtual machine, KVM may refuse what QEMU sets.
    async fn kvm(&self, device: &Path) -> Result<(), String> {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(device)
            .map_err(|error| format!("{} cannot be opened: {error}", device.display()))?;
        let mut arguments = vec!["-machine", "q35", "-m", "64", "-S", "-monitor", "stdio"];
        arguments.extend(Acceleration::Kvm.arguments());
        match self.start(&arguments, b"quit\n").await {
            Ok(exit) if exit.success => Ok(()),
            Ok(exit) => Err(format!("a trial with KVM ended with {}", exit.status)),
            Err(error) => Err(format!("a trial with KVM failed: {error}")),
        }
    }

    async fn start(&self, arguments: &[&str], input: &[u8]) -> io::Result<Exit> {
        let common = ["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"];
        let command = process::command(self.setpriv, self.qemu, common.iter().chain(arguments));
        let mut trial = Process::start(command, "vm-trial", |_| {}).await?;
        // A program that ended already takes no input.
        let _ended = trial.input().try_send(input.to_vec());
        match tokio::time::timeout(TRIAL, trial.wait()).await {
            Ok(exit) => Ok(exit),
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end within {} s", TRIAL.as_secs())))
            }
        }
    }
}

fn judge_http(exit: &Exit) -> Result<(), MissingTool> {
    if exit.stderr.contains("Unknown driver") {
        return Err(MissingTool::HttpDriver);
    }
    // The driver was asked for a URL.
    if exit.stderr.contains("CURL") {
        return Ok(());
    }
    let last = exit.stderr.lines().last().unwrap_or(&exit.status);
    Err(MissingTool::Start { reason: last.chars().filter(|c| !c.is_control()).take(300).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let error = program("does-not-exist", "some-package").unwrap_err();
        assert_eq!(
            error.to_string(),
            "does-not-exist is not in PATH; install the Debian package some-package"
        );
        let folder = tempfile::tempdir().unwrap();
        let missing = firmware_files(Firmware::Uefi, folder.path()).unwrap_err().to_string();
        assert!(missing.contains("OVMF_CODE_4M.fd") && missing.contains("package ovmf"), "{missing}");
        std::fs::write(folder.path().join("OVMF_CODE_4M.fd"), b"").unwrap();
        let missing = firmware_files(Firmware::Uefi, folder.path()).unwrap_err().to_string();
        assert!(missing.contains("OVMF_VARS_4M.fd"), "{missing}");
        assert!(firmware_files(Firmware::Bios, folder.path()).unwrap().is_none());
    }

    #[test]
    fn the_message_of_qemu_tells_whether_it_reads_http() {
        let exit = |stderr: &str| Exit {
            success: false,
            status: "exit status: 1".to_owned(),
            stderr: stderr.to_owned(),
        };
        assert!(judge_http(&exit("-blockdev x: CURL: Error opening file: Failed to connect\n")).is_ok());
        let missing = "module block-block-curl not found\n-blockdev x: Unknown driver 'http'\n";
        assert!(judge_http(&exit(missing)).unwrap_err().to_string().contains("qemu-block-extra"));
        let broken = judge_http(&exit("")).unwrap_err().to_string();
        assert!(broken.contains("exit status: 1"), "{broken}");
    }

    #[tokio::test]
    async fn kvm_is_used_where_a_trial_of_it_ends_well_and_only_there() {
        let device = tempfile::NamedTempFile::new().unwrap();
        // In place of `setpriv ... qemu`: what ends well, and what does not.
        let [ends_well, fails] = ["true", "false"].map(|name| program(name, "coreutils").unwrap());
        let trial = |setpriv| Trial { qemu: Path::new("qemu"), setpriv };
        assert_eq!(trial(&ends_well).kvm(device.path()).await, Ok(()));
        let refused = trial(&fails).kvm(device.path()).await.unwrap_err();
        assert!(refused.starts_with("a trial with KVM ended with"), "{refused}");
        assert!(Acceleration::Kvm.arguments().contains(&"kvm"), "{:?}", Acceleration::Kvm.arguments());
        assert!(!Acceleration::Emulation.arguments().contains(&"kvm"));
    }

    #[tokio::test]
    async fn a_kvm_device_that_cannot_be_opened_is_a_reason() {
        let trial = Trial { qemu: Path::new("qemu"), setpriv: Path::new("setpriv") };
        let reason = trial.kvm(Path::new("/does/not/exist")).await.unwrap_err();
        assert!(reason.starts_with("/does/not/exist cannot be opened"), "{reason}");
    }
}
