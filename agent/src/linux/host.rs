//! The functions of the machine that an installation uses and tests replace: programs, mounts, partition devices.
//!
//! ```text
//! Installation --Host--> LinuxHost: BLKRRPART, /sys/class/block, mkfs programs, mount(2), chroot
//!                   `--> tests: folders and a list of the programs
//! ```
//!
//! Invariants: a program runs for a bounded time, and at most the last 2 KiB of its output are kept. It gets no input and the
//! folder `/` as its own, so that no word without a slash names a device.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::fd::BorrowedFd,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::log::Log;
use crate::modules;

/// The word by which this program starts another one in the new root.
const ENTER: &str = "--in-root";
/// Where programs are searched.
const FOLDERS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The end of what a program says that stands in an error.
const KEPT_OUTPUT: usize = 2048;
/// The most bytes of an output that is read, such as a line for each volume of a large machine.
const READ_OUTPUT: usize = 1 << 20;
const POLL: Duration = Duration::from_millis(20);
/// How long a killed program, and the end of what it said, is waited for.
const KILL_TIME: Duration = Duration::from_secs(10);
/// How many times the root can be mounted over itself.
const MAX_STACKED: usize = 16;
/// The most members of one block device that are read.
const MAX_MEMBERS: usize = 1024;
/// How long the kernel is waited for to show partitions.
const PARTITION_TIME: Duration = Duration::from_secs(20);

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name; it is searched in the usual folders.
    pub name: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// Whether the program is one of the new system and runs there.
    pub in_root: bool,
    /// How long the program may take.
    pub limit: Duration,
}

/// The machine.
pub trait Host {
    /// Makes the kernel read the table of a disk. Returns the devices of its partitions, whose places are `expected` in
    /// sectors of 512 bytes: first and count.
    ///
    /// # Errors
    /// Returns a sentence when the kernel does not show exactly these.
    fn partitions(&self, disk: &str, expected: &[(u64, u64)]) -> Result<Vec<PathBuf>, String>;

    /// Makes the kernel read the table of a disk. Returns the device of one partition by its number from 1, whose place is `expected`
    /// in sectors of 512 bytes: first and count.
    ///
    /// # Errors
    /// Returns a sentence when the kernel does not show it.
    fn partition(&self, disk: &str, number: usize, expected: (u64, u64)) -> Result<PathBuf, String>;

    /// Runs a program to its end.
    ///
    /// # Errors
    /// Returns a sentence with the end of its output when the program is missing, fails or takes too long.
    fn run(&self, program: &Program) -> Result<(), String>;

    /// Runs a program to its end, and returns the end of its standard output.
    ///
    /// # Errors
    /// Returns a sentence with the end of its output when the program is missing, fails or takes too long.
    fn output(&self, program: &Program) -> Result<String, String>;

    /// Returns whether the machine has a program of its own.
    fn has_program(&self, name: &str) -> bool;

    /// Loads modules of the kernel. One that it does not have as a module is built in, or its absence is what a program says.
    fn load_modules(&self, names: &[&str]);

    /// Waits until the kernel shows a block device, and returns it.
    ///
    /// # Errors
    /// Returns a sentence when it does not appear.
    fn block_device(&self, device: &Path) -> Result<PathBuf, String>;

    /// Returns the devices of which the kernel makes a block device now; none when it does not exist.
    fn members(&self, device: &Path) -> Vec<PathBuf>;

    /// Mounts a file system. `at` is [`Host::root`] or a folder in it, as an open directory below `/proc/self/fd`.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn mount(&self, device: &Path, kind: &str, data: &str, at: &Path) -> io::Result<()>;

    /// Shows the devices and the processes of this machine in the new system, for its own programs.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn bind_kernel(&self) -> io::Result<()>;

    /// Unmounts the root with everything in it. What is not mounted is no error.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn unmount_all(&self) -> io::Result<()>;

    /// Writes everything of the file system that holds an open folder to its disk.
    ///
    /// # Errors
    /// Returns the error of the disk.
    fn flush(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        rustix::fs::syncfs(folder).map_err(Into::into)
    }

    /// Returns the folder on which the new root is mounted.
    fn root(&self) -> &Path;

    /// Returns the folder of the firmware's variables on a machine that was started by UEFI.
    fn efi_variables(&self) -> Option<&Path>;

    /// Returns whether owners can be set.
    fn is_privileged(&self) -> bool;
}

/// The machine that this program runs on.
#[derive(Debug)]
pub struct LinuxHost {
    root: PathBuf,
    efi: Option<PathBuf>,
}

impl Default for LinuxHost {
    fn default() -> Self {
        let efi = PathBuf::from("/sys/firmware/efi/efivars");
        let efi = efi.parent().is_some_and(Path::exists).then_some(efi);
        Self { root: PathBuf::from("/run/shoal/root"), efi }
    }
}

impl LinuxHost {
    /// Creates a host that mounts on `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), ..Self::default() }
    }

    /// Runs a program. Returns the end of its output if that is wanted.
    fn start(&self, program: &Program, is_read: bool) -> Result<String, String> {
        let mut command = match program.in_root {
            true => {
                let mut command = Command::new("/proc/self/exe");
                command.arg(ENTER).arg(&self.root).arg(&program.name);
                command
            }
            false => Command::new(&program.name),
        };
        command.args(&program.arguments).current_dir("/").env_clear().env("LC_ALL", "C");
        command.env("PATH", FOLDERS);
        bounded(&mut command, &program.name, program.limit, is_read)
    }
}

impl Host for LinuxHost {
    fn partitions(&self, disk: &str, expected: &[(u64, u64)]) -> Result<Vec<PathBuf>, String> {
        let all = expected.iter().enumerate();
        shown(disk, || all.clone().map(|(index, place)| device(disk, index + 1, *place)).collect())
    }

    fn partition(&self, disk: &str, number: usize, expected: (u64, u64)) -> Result<PathBuf, String> {
        shown(disk, || device(disk, number, expected))
    }

    fn run(&self, program: &Program) -> Result<(), String> {
        self.start(program, false).map(drop)
    }

    fn output(&self, program: &Program) -> Result<String, String> {
        self.start(program, true)
    }

    fn has_program(&self, name: &str) -> bool {
        FOLDERS.split(':').any(|folder| Path::new(folder).join(name).exists())
    }

    fn load_modules(&self, names: &[&str]) {
        // A kernel of an operator's own system has no index; it loads what it needs by itself.
        let folder = crate::init::mounts::module_folder();
        let text = fs::read_to_string(folder.join(modules::INDEX)).unwrap_or_default();
        let Ok(index) = modules::ModuleIndex::parse(&text) else { return };
        let log = Log::new(Vec::new());
        modules::Loader::default().load_named(names, &folder, &index, &modules::RunningKernel, &log);
    }

    fn block_device(&self, device: &Path) -> Result<PathBuf, String> {
        let begun = Instant::now();
        while !device.exists() {
            if begun.elapsed() > PARTITION_TIME {
                return Err(format!("the kernel does not show {}", device.display()));
            }
            std::thread::sleep(POLL);
        }
        Ok(device.to_owned())
    }

    fn members(&self, device: &Path) -> Vec<PathBuf> {
        let Some(name) = device.file_name() else { return Vec::new() };
        let listed = fs::read_dir(Path::new("/sys/class/block").join(name).join("slaves"));
        let names = listed.into_iter().flatten().take(MAX_MEMBERS);
        names.filter_map(|entry| Some(Path::new("/dev").join(entry.ok()?.file_name()))).collect()
    }

    fn mount(&self, device: &Path, kind: &str, data: &str, at: &Path) -> io::Result<()> {
        if at == self.root {
            fs::create_dir_all(at)?;
        }
        let data = std::ffi::CString::new(data).map_err(io::Error::other)?;
        rustix::mount::mount(device, at, kind, MountFlags::empty(), data.as_c_str()).map_err(Into::into)
    }

    fn bind_kernel(&self) -> io::Result<()> {
        let tree = crate::layer::LayerTree::open(&self.root, crate::layer::Ownership::Keep)?;
        for folder in ["dev", "proc", "sys"] {
            let at = tree.make_folder(folder)?;
            if !fs::symlink_metadata(self.root.join(folder))?.is_dir() {
                return Err(io::Error::other(format!("/{folder} of the image is a link")));
            }
            let target = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&at));
            rustix::mount::mount_bind_recursive(format!("/{folder}"), &target)?;
            // Without this, unmounting would take the same places from the running system.
            rustix::mount::mount_change(
                self.root.join(folder),
                rustix::mount::MountPropagationFlags::DOWNSTREAM | rustix::mount::MountPropagationFlags::REC,
            )?;
        }
        Ok(())
    }

    fn unmount_all(&self) -> io::Result<()> {
        // Detaching takes everything below with it, without a path that a link of the image could lead elsewhere. Nothing
        // uses it any more, so the kernel frees the devices before the call returns.
        for _ in 0..MAX_STACKED {
            match rustix::mount::unmount(&self.root, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Ok(()) => {}
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return Ok(()),
                Err(source) => return Err(source.into()),
            }
        }
        Err(io::Error::other("it is mounted too often"))
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn efi_variables(&self) -> Option<&Path> {
        self.efi.as_deref()
    }

    fn is_privileged(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// Makes the kernel read the partition table again.
fn reread(disk: &Path) -> Result<(), String> {
    const BLKRRPART: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 95);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(disk, flags, Mode::empty())
        .map_err(|source| format!("opening {}: {source}", disk.display()))?;
    #[expect(unsafe_code, reason = "rustix has no function for this request")]
    // SAFETY: BLKRRPART of linux/fs.h takes no argument and writes no memory of this process. Another file than a block
    // device refuses it with ENOTTY.
    let sent = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::NoArg::<BLKRRPART>::new()) };
    sent.map_err(|source| format!("reading the new table of {}: {source}", disk.display()))
}

/// Reads the table of a disk again until the kernel shows what is expected.
fn shown<T>(disk: &str, find: impl Fn() -> Result<T, String>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match reread(&Path::new("/dev").join(disk)).and_then(|()| find()) {
            Ok(found) => return Ok(found),
            Err(reason) if begun.elapsed() > PARTITION_TIME => {
                return Err(format!("the kernel does not show the partitions of {disk}: {reason}"));
            }
            // Something may still hold an old partition open: a scan of the search for the medium.
            Err(_) => std::thread::sleep(POLL * 10),
        }
    }
}

/// Returns the device of a partition, if sysfs shows it at the expected place.
fn device(disk: &str, number: usize, (start, sectors): (u64, u64)) -> Result<PathBuf, String> {
    let between = if disk.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    let name = format!("{disk}{between}{number}");
    let value = |file: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/class/block/{name}/{file}")).ok()?.trim().parse().ok()
    };
    if (value("start"), value("size")) != (Some(start), Some(sectors)) {
        return Err(format!("{name} is missing or at another place"));
    }
    let device = Path::new("/dev").join(&name);
    if device.exists() { Ok(device) } else { Err(format!("{} does not exist", device.display())) }
}

/// Runs a program for a bounded time. Returns the end of its standard output if that is wanted: what it leaves behind may keep it open.
fn bounded(command: &mut Command, name: &str, limit: Duration, is_read: bool) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: the end of the program is the end of what it started.
    command.process_group(0);
    let mut child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => format!("{name} is not on this medium; use a medium of the full profile"),
        _ => format!("starting {name}: {source}"),
    })?;
    let (sender, texts) = mpsc::channel();
    let pipes = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for (place, pipe) in pipes.into_iter().flatten().enumerate() {
        let sender = sender.clone();
        let kept = if is_read && place == 0 { READ_OUTPUT } else { KEPT_OUTPUT };
        std::thread::spawn(move || sender.send((place, end_of(pipe, kept))));
    }
    drop(sender);
    let failed = |source| format!("waiting for {name}: {source}");
    let status = ended(&mut child, limit).map_err(failed)?;
    let until = Instant::now() + KILL_TIME;
    let left = || until.saturating_duration_since(Instant::now());
    let said =
        || -> BTreeMap<usize, String> { std::iter::from_fn(|| texts.recv_timeout(left()).ok()).collect() };
    if status.is_some_and(|status| status.success()) {
        // What is not read is not waited for: what the program started may keep the pipes open.
        if !is_read {
            return Ok(String::new());
        }
        return match said().remove(&0) {
            Some(text) if text.len() < READ_OUTPUT => Ok(text),
            Some(_) => Err(format!("the output of {name} has more than {READ_OUTPUT} bytes")),
            None => Err(format!("the output of {name} did not end within {} s", KILL_TIME.as_secs())),
        };
    }
    // What it started keeps the pipes open, and a device that does not respond keeps the program.
    if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let Some(status) = status else {
        let _ = ended(&mut child, KILL_TIME).map_err(failed)?;
        return Err(format!("{name} did not end within {} s", limit.as_secs()));
    };
    let said = said();
    let said: Vec<&str> = said.values().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    Err(format!("{name} ended with {status}: {}", said.join(" ")))
}

/// Waits for the end of a program; `None` when it does not end within `limit`.
fn ended(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if begun.elapsed() >= limit => return Ok(None),
            None => std::thread::sleep(POLL),
        }
    }
}

/// Reads to the end and returns at most the last `most` bytes as text.
fn end_of(mut pipe: Box<dyn Read + Send>, most: usize) -> String {
    let mut kept: Vec<u8> = Vec::with_capacity(2 * KEPT_OUTPUT);
    let mut block = [0; KEPT_OUTPUT];
    while let Ok(read) = pipe.read(&mut block) {
        if read == 0 {
            break;
        }
        kept.extend(&block[..read]);
        if kept.len() > most {
            kept.drain(..kept.len() - most);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Becomes a program of another root when the arguments say so: `--in-root ROOT PROGRAM ARGUMENT...`. Returns only when
/// they do not, or when the program cannot be started.
pub fn enter_root(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    if arguments.next()? != ENTER {
        return None;
    }
    let (root, program) = (arguments.next()?, arguments.next()?);
    if rustix::process::chroot(root.as_os_str()).is_err() || rustix::process::chdir("/").is_err() {
        return Some(ExitCode::from(126));
    }
    let _never = Command::new(program).args(arguments).exec();
    Some(ExitCode::from(127))
}
