//! The consoles of the kernel: every `console=` of its command line gets the log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Most consoles that are written.
const MAX_CONSOLES: usize = 8;

/// Returns the devices of the consoles, from the text of `/sys/class/tty/console/active`.
#[must_use]
pub fn devices(active: &str, dev: &Path) -> Vec<PathBuf> {
    let names =
        active.split_whitespace().filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let mut found: Vec<PathBuf> = names.take(MAX_CONSOLES).map(|name| dev.join(name)).collect();
    if found.is_empty() {
        found.push(dev.join("console"));
    }
    found
}

/// A console. One that takes nothing, such as a serial line that is held, loses text and stops nothing.
struct Console(File);

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(source) if source.kind() == io::ErrorKind::WouldBlock => Ok(bytes.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the consoles; those that cannot be opened are left out.
#[must_use]
pub fn open(sys: &Path, dev: &Path) -> Vec<Box<dyn Write + Send>> {
    let active = super::mounts::small_file(&sys.join("class/tty/console/active"));
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let files = devices(&active, dev)
        .into_iter()
        .filter_map(|path| OpenOptions::new().write(true).custom_flags(flags).open(path).ok());
    files.map(|file| Box::new(Console(file)) as Box<dyn Write + Send>).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_console_is_written_and_without_a_list_the_first_one() {
        let dev = Path::new("/dev");
        assert_eq!(devices("tty0 ttyS1\n", dev), [dev.join("tty0"), dev.join("ttyS1")]);
        assert_eq!(devices("", dev), [dev.join("console")]);
        assert_eq!(devices("../sda\n", dev), [dev.join("console")]);
    }

    #[test]
    fn the_log_is_on_every_console() {
        let (sys, dev) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(sys.path().join("class/tty/console")).unwrap();
        std::fs::write(sys.path().join("class/tty/console/active"), "tty0 ttyS0 ttyS9\n").unwrap();
        for name in ["tty0", "ttyS0"] {
            std::fs::write(dev.path().join(name), "").unwrap();
        }
        let log = crate::log::Log::new(open(sys.path(), dev.path()));
        log.line("unit", "seen");
        for name in ["tty0", "ttyS0"] {
            assert!(std::fs::read_to_string(dev.path().join(name)).unwrap().ends_with("unit: seen\r\n"));
        }
    }
}
