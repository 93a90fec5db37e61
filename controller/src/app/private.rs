//! Directories and files of the controller are open to its user only.
//!
//! ```text
//!   a directory with group or other bits
//!     ours and recognised (empty, or files of the controller in it) ──> chmod 0700, one line in the log
//!     of another user, sticky, or with other files only            ──> refused, with what to do
//!   a database file with group or other bits                       ──> chmod 0600, one line in the log
//! ```
//!
//! What the program creates has no such bits from the beginning: each creation names its mode, and [`make_private`] sets the umask
//! of the process for libraries that do not.
//!
//! Invariant: a directory is changed only if it is recognised as one of the controller, so that `STORAGE_ROOT=/var/lib` started
//! by root closes no system directory.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::StartError;
use settings::{Settings, TaskIsoMode};

/// The bits of group and others.
const OTHERS: u32 = 0o077;
const STICKY: u32 = 0o1000;
/// The directory that a file system itself puts into its root directory.
const LOST_AND_FOUND: &str = "lost+found";

/// Sets the umask of this process: files are 0600 and directories 0700, unless a mode is named.
pub fn make_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// A directory of the settings.
struct Directory<'a> {
    path: &'a Path,
    setting: &'static str,
    /// Names of which the controller creates one or more in it.
    is_ours: fn(&str) -> bool,
}

/// Closes directories and database files of these settings that are open to others. Directories that do not exist are left out.
///
/// # Errors
/// [`StartError::OpenToOthers`] for a directory that cannot be closed safely, [`StartError::Folder`] when one cannot be read or
/// changed.
pub(super) fn close_to_others(settings: &Settings) -> Result<(), StartError> {
    let mut directories = vec![Directory {
        path: &settings.storage_root,
        setting: "STORAGE_ROOT",
        is_ours: |name| {
            matches!(
                name,
                "provisioner.db" | "master.key" | "origin" | "oci" | "maintenance" | "images" | "task-isos"
            )
        },
    }];
    if settings.enable_registry {
        directories.push(Directory {
            path: &settings.registry_storage,
            setting: "REGISTRY_STORAGE",
            is_ours: |name| matches!(name, "blobs" | "repos" | "uploads" | "tmp"),
        });
    }
    if settings.task_iso_mode == TaskIsoMode::File {
        directories.push(Directory {
            path: &settings.task_iso_dir,
            setting: "TASK_ISO_DIR",
            is_ours: |name| uuid::Uuid::try_parse(name).is_ok(),
        });
    }
    for directory in directories {
        directory.close()?;
    }
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut file = settings.db_path.as_os_str().to_owned();
        file.push(suffix);
        close_file(Path::new(&file))?;
    }
    Ok(())
}

impl Directory<'_> {
    fn close(&self) -> Result<(), StartError> {
        let failed = |source: io::Error| StartError::Folder { path: self.path.to_owned(), source };
        let metadata = match fs::metadata(self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let mode = metadata.permissions().mode();
        if mode & OTHERS == 0 {
            return Ok(());
        }
        if !is_own(&metadata) || mode & STICKY != 0 || !self.is_recognised().map_err(failed)? {
            return Err(StartError::OpenToOthers {
                path: self.path.to_owned(),
                setting: self.setting,
                mode: mode & 0o7777,
            });
        }
        close(self.path, mode).map_err(failed)
    }

    /// Whether the directory is empty or contains files of the controller.
    fn is_recognised(&self) -> io::Result<bool> {
        let mut empty = true;
        for entry in fs::read_dir(self.path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if (self.is_ours)(&name) {
                return Ok(true);
            }
            empty &= name == LOST_AND_FOUND;
        }
        Ok(empty)
    }
}

fn close_file(path: &Path) -> Result<(), StartError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // SQLite reports what is wrong with a database that cannot be read.
        Err(_) => return Ok(()),
    };
    let mode = metadata.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    if !is_own(&metadata) {
        return Err(StartError::OpenToOthers {
            path: path.to_owned(),
            setting: "DB_PATH",
            mode: mode & 0o7777,
        });
    }
    close(path, mode).map_err(|source| StartError::Folder { path: PathBuf::from(path), source })
}

fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

fn close(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7700))?;
    tracing::warn!(
        path = %path.display(),
        before = format!("{:04o}", mode & 0o7777),
        now = format!("{:04o}", mode & 0o7700),
        "group and others had access; it was removed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn directory(path: &Path) -> Directory<'_> {
        Directory { path, setting: "STORAGE_ROOT", is_ours: |name| name == "provisioner.db" }
    }

    #[test]
    fn a_directory_of_the_controller_that_is_open_to_others_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in
            [("empty", None), ("mounted", Some("lost+found")), ("used", Some("provisioner.db"))]
        {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            content.into_iter().for_each(|content| fs::write(path.join(content), "").unwrap());
            fs::set_permissions(&path, Permissions::from_mode(0o775)).unwrap();
            directory(&path).close().unwrap();
            assert_eq!(mode(&path), 0o700, "{name}");
        }
        directory(&folder.path().join("absent")).close().unwrap();
    }

    #[test]
    fn a_directory_with_other_files_or_of_several_users_is_refused_and_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content, bits) in [("others", Some("passwd"), 0o755), ("shared", None, 0o1777)] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            content.into_iter().for_each(|content| fs::write(path.join(content), "").unwrap());
            fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
            let refused = directory(&path).close().unwrap_err().to_string();
            assert!(refused.contains("STORAGE_ROOT") && refused.contains("chmod 700"), "{refused}");
            assert_eq!(mode(&path), bits, "{name}");
        }
    }

    #[test]
    fn a_database_that_is_open_to_others_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        close_file(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }
}
