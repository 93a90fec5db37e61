//! The file systems that the kernel has to offer.

use std::{fs, io, path::Path};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, mount};

/// The variables of UEFI firmware, which need a module.
pub const EFI_VARIABLES: Mount = Mount {
    kind: "efivarfs",
    place: "/sys/firmware/efi/efivars",
    options: None,
    flags: MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC),
};

/// The file systems that are mounted first, in this order.
const FIRST: [Mount; 6] = [
    Mount { kind: "devtmpfs", place: "/dev", options: None, flags: MountFlags::NOSUID },
    Mount { kind: "proc", place: "/proc", options: None, flags: EFI_VARIABLES.flags },
    Mount { kind: "sysfs", place: "/sys", options: None, flags: EFI_VARIABLES.flags },
    Mount {
        kind: "tmpfs",
        place: "/run",
        options: Some(c"mode=755"),
        flags: MountFlags::NOSUID.union(MountFlags::NODEV),
    },
    Mount {
        kind: "tmpfs",
        place: "/tmp",
        options: Some(c"mode=1777"),
        flags: MountFlags::NOSUID.union(MountFlags::NODEV),
    },
    Mount {
        kind: "devpts",
        place: "/dev/pts",
        options: Some(c"mode=620,ptmxmode=666"),
        flags: MountFlags::NOSUID.union(MountFlags::NOEXEC),
    },
];

/// One file system of the kernel.
#[derive(Clone, Debug)]
pub struct Mount {
    kind: &'static str,
    place: &'static str,
    options: Option<&'static std::ffi::CStr>,
    flags: MountFlags,
}

/// Mounts a file system of the kernel.
///
/// # Errors
/// Returns the error of the kernel.
pub fn mount_now(what: &Mount) -> io::Result<()> {
    let _ = rustix::fs::mkdirat(CWD, what.place, rustix::fs::Mode::from_raw_mode(0o755));
    Ok(mount(what.kind, what.place, what.kind, what.flags, what.options)?)
}

/// Mounts what is needed first. Returns a sentence for each failure; one that is there already is none.
pub fn mount_first(mount: &dyn Fn(&Mount) -> io::Result<()>) -> Vec<String> {
    let busy = |source: &io::Error| source.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error());
    let failures =
        FIRST.iter().filter_map(|what| Some((what, mount(what).err().filter(|source| !busy(source))?)));
    failures.map(|(what, source)| format!("mounting {} at {}: {source}", what.kind, what.place)).collect()
}

/// Mounts the variables of UEFI firmware. Returns `true` when there is nothing left to do: a machine that was started by BIOS
/// has none, and before the driver is loaded the kernel does not know them.
///
/// # Errors
/// When the kernel refuses the mount, with the reason in words.
pub fn mount_variables(sys: &Path, mount: &dyn Fn(&Mount) -> io::Result<()>) -> Result<bool, String> {
    if !sys.join("firmware/efi").is_dir() {
        return Ok(true);
    }
    match mount(&EFI_VARIABLES).map_err(|source| (source.raw_os_error(), source)) {
        Ok(()) => Ok(true),
        Err((Some(number), _)) if number == rustix::io::Errno::BUSY.raw_os_error() => Ok(true),
        Err((Some(number), _)) if number == rustix::io::Errno::NODEV.raw_os_error() => Ok(false),
        Err((_, source)) => Err(format!("mounting the variables of the firmware: {source}")),
    }
}

/// Returns the folder of the modules of the running kernel.
#[must_use]
pub fn module_folder() -> std::path::PathBuf {
    let name = rustix::system::uname();
    Path::new("/lib/modules").join(name.release().to_string_lossy().as_ref())
}

/// Reads a small file of the kernel; what cannot be read is empty.
#[must_use]
pub fn small_file(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn file_systems_are_mounted_in_order_and_one_that_fails_does_not_stop_the_others() {
        let seen = RefCell::new(Vec::new());
        let failures = mount_first(&|what| {
            seen.borrow_mut().push(what.place);
            match what.place {
                "/dev" => Err(rustix::io::Errno::BUSY.into()),
                "/run" => Err(rustix::io::Errno::NODEV.into()),
                _ => Ok(()),
            }
        });
        assert_eq!(seen.into_inner(), ["/dev", "/proc", "/sys", "/run", "/tmp", "/dev/pts"]);
        assert!(failures.len() == 1 && failures[0].starts_with("mounting tmpfs at /run: "), "{failures:?}");
    }

    #[test]
    fn variables_of_the_firmware_are_mounted_when_there_is_uefi_and_its_driver() {
        let sys = tempfile::tempdir().unwrap();
        let refusing = |errno: rustix::io::Errno| move |_: &Mount| Err::<(), io::Error>(errno.into());
        assert_eq!(mount_variables(sys.path(), &refusing(rustix::io::Errno::NODEV)), Ok(true));
        std::fs::create_dir_all(sys.path().join("firmware/efi")).unwrap();
        assert_eq!(mount_variables(sys.path(), &refusing(rustix::io::Errno::NODEV)), Ok(false));
        assert_eq!(mount_variables(sys.path(), &refusing(rustix::io::Errno::BUSY)), Ok(true));
        assert_eq!(mount_variables(sys.path(), &|_| Ok(())), Ok(true));
        assert!(mount_variables(sys.path(), &refusing(rustix::io::Errno::PERM)).is_err());
    }
}
