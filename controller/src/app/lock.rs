//! The locks of a controller: it is the only process that works on what its settings name (decision D7).
//!
//! ```text
//!   STORAGE_ROOT            --+
//!   directory of DB_PATH    --+--> the directory itself (device, inode) --flock--> held until the process ends
//!   REGISTRY_STORAGE        --+    two settings that lead to one directory share one lock
//!
//!   every second: does each path still lead to what was locked?  no --> this controller stops
//! ```
//!
//! Invariants
//! - A lock belongs to a directory, not to a name. A symbolic link, a bind mount of the directory and another spelling of a path lead to
//!   one lock. A bind mount of the database file alone has another directory, and is not noticed.
//! - There is no lock file that could be removed. Only where a file system has no locks on directories (NFS), the lock is a
//!   file in the directory, and its removal stops the holder.
//! - A database with two names (hard links) is refused: SQLite would use two write-ahead logs for one file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::{StartError, create_directory};
use settings::Settings;

/// The file that is locked in a directory whose file system has no locks on directories.
pub(super) const LOCK_FILE: &str = ".shoal-lock";
/// The interval at which a controller compares its paths with what it locked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum of symbolic links in a row, as in the kernel.
const MAX_LINKS: usize = 40;

/// The file or directory that a path leads to, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl From<Metadata> for Identity {
    fn from(metadata: Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A path that must lead to one identity for as long as the locks are held.
#[derive(Debug)]
struct Watched {
    what: &'static str,
    path: PathBuf,
    identity: Identity,
}

/// A held lock of one directory.
#[derive(Debug)]
struct Held {
    directory: Identity,
    file: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Unlocked explicitly: a child process that is starting holds a copy of the descriptor, so closing is not enough.
        let _released_on_close = flock(&self.file, FlockOperation::Unlock);
    }
}

/// A path of this controller leads to something else than what the controller locked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {} was removed, renamed or replaced while this controller used it, so another controller could use its place: \
     this controller stopped; put the original back or start on the new data",
    path.display()
)]
pub struct LostLock {
    what: &'static str,
    path: PathBuf,
}

/// The held locks of one controller. The kernel releases them when the process ends, also after a crash.
#[derive(Debug)]
pub(super) struct DataLock {
    held: Vec<Held>,
    watched: Vec<Watched>,
    database: PathBuf,
}

impl DataLock {
    /// Creates the directories of these settings and locks them.
    ///
    /// # Errors
    /// [`StartError::ForeignData`] when this is root and the data belongs to another user, [`StartError::InUse`] when another
    /// process holds one of the locks, [`StartError::HardLinks`] when the database has two names, and others when a directory
    /// cannot be created or locked.
    pub(super) fn take(settings: &Settings) -> Result<Self, StartError> {
        // Before anything is created.
        refuse_foreign(settings)?;
        create_directory(&settings.storage_root)?;
        let database = real_path(&settings.db_path)
            .map_err(|source| StartError::Lock { path: settings.db_path.clone(), source })?;
        let beside = database.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let mut shared =
            vec![("STORAGE_ROOT", settings.storage_root.clone()), ("the directory of DB_PATH", beside)];
        if settings.enable_registry {
            shared.push(("REGISTRY_STORAGE", settings.registry_storage.clone()));
        }
        let mut locks = Self { held: Vec::new(), watched: Vec::new(), database };
        for (what, path) in shared {
            create_directory(&path)?;
            locks.take_directory(what, path)?;
        }
        match fs::metadata(&locks.database) {
            Ok(file) if file.nlink() > 1 => Err(StartError::HardLinks { path: locks.database }),
            _ => Ok(locks),
        }
    }

    /// The database file, with all symbolic links resolved.
    pub(super) fn database(&self) -> &Path {
        &self.database
    }

    /// Also watches the database file, which exists now.
    pub(super) fn watch_database(&mut self) -> Result<(), StartError> {
        let path = self.database.clone();
        let found = fs::metadata(&path);
        let identity = found.map_err(|source| StartError::Lock { path: path.clone(), source })?.into();
        self.watched.push(Watched { what: "the database", path, identity });
        Ok(())
    }

    fn take_directory(&mut self, what: &'static str, path: PathBuf) -> Result<(), StartError> {
        let failed = |source: io::Error| StartError::Lock { path: path.clone(), source };
        let directory = File::open(&path).map_err(failed)?;
        let identity = Identity::from(directory.metadata().map_err(failed)?);
        self.watched.push(Watched { what, path: path.clone(), identity });
        if self.held.iter().any(|held| held.directory == identity) {
            return Ok(());
        }
        let file = match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => directory,
            Err(Errno::WOULDBLOCK) => return Err(StartError::InUse { what, path }),
            // Network file systems lock only files that are open for writing.
            Err(_no_locks_on_directories) => self.take_file(what, &path)?,
        };
        self.held.push(Held { directory: identity, file });
        Ok(())
    }

    /// Locks a file in a directory that cannot be locked itself.
    fn take_file(&mut self, what: &'static str, directory: &Path) -> Result<File, StartError> {
        let path = directory.join(LOCK_FILE);
        let failed = |source: io::Error| StartError::Lock { path: path.clone(), source };
        let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = open.map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let identity = Identity::from(file.metadata().map_err(failed)?);
                self.watched.push(Watched { what: "the lock file", path, identity });
                Ok(file)
            }
            Err(Errno::WOULDBLOCK) => Err(StartError::InUse { what, path: directory.to_owned() }),
            Err(errno) => Err(StartError::Lock { path, source: errno.into() }),
        }
    }

    /// Compares every path with what was locked.
    fn check(&self) -> Result<(), LostLock> {
        let moved = |watched: &&Watched| match fs::metadata(&watched.path) {
            Ok(found) => Identity::from(found) != watched.identity,
            // A file system that does not respond for a moment has not lost the lock.
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        match self.watched.iter().find(moved) {
            Some(Watched { what, path, .. }) => Err(LostLock { what, path: path.clone() }),
            None => Ok(()),
        }
    }

    /// Returns what was lost, as soon as a path leads to something else; `None` when `stop` comes first.
    pub(super) async fn lost(self: std::sync::Arc<Self>, stop: CancellationToken) -> Option<LostLock> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let locks = std::sync::Arc::clone(&self);
            let checked = tokio::task::spawn_blocking(move || locks.check()).await;
            if let Ok(Err(lost)) = checked {
                return Some(lost);
            }
        }
    }
}

/// Refuses root on data of another user: a file of root there stops the next start of that user.
pub(super) fn refuse_foreign(settings: &Settings) -> Result<(), StartError> {
    match owned(settings) {
        Some((path, owner)) if is_foreign(owner, rustix::process::geteuid().as_raw()) => {
            Err(StartError::ForeignData { path, owner })
        }
        _ => Ok(()),
    }
}

/// Returns the path that shows the owner of the data, and its user: the database, or STORAGE_ROOT before there is one. `None`
/// before there is either.
fn owned(settings: &Settings) -> Option<(PathBuf, u32)> {
    [&settings.db_path, &settings.storage_root]
        .into_iter()
        .find_map(|path| Some((path.clone(), fs::metadata(path).ok()?.uid())))
}

/// Whether this user would leave files in the data of `owner` that `owner` cannot open. Only root can write there at all.
fn is_foreign(owner: u32, user: u32) -> bool {
    user == 0 && owner != 0
}

/// A path with all symbolic links resolved, also when the file does not exist yet. Creates the missing directories.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            resolved => return resolved,
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        match path.read_link() {
            // A link to a file that does not exist yet: SQLite creates the file there.
            Ok(target) => path = folder.join(target),
            Err(_not_a_link) => {
                create_directory(&folder).map_err(|error| match error {
                    StartError::Folder { source, .. } => source,
                    other => io::Error::other(other.to_string()),
                })?;
                let name = path.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
                return Ok(folder.canonicalize()?.join(name));
            }
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;
    use settings::Sources;

    /// The settings of a controller on `data`, with some settings changed.
    fn settings(data: &Path, changed: &[(&str, &Path)]) -> Settings {
        let flags = [("STORAGE_ROOT", data)].into_iter().chain(changed.iter().copied());
        Settings::load(&Sources {
            flags: flags.map(|(name, path)| (name.to_owned(), path.display().to_string())).collect(),
            environment: &|_| None,
            variables: Vec::new(),
            file: None,
        })
        .unwrap()
    }

    fn refused(settings: &Settings) -> &'static str {
        match DataLock::take(settings) {
            Err(StartError::InUse { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_second_controller_on_a_data_directory_is_refused_until_the_first_ends() {
        let folder = tempfile::tempdir().unwrap();
        let data = settings(&folder.path().join("data"), &[]);
        let first = DataLock::take(&data).unwrap();
        assert_eq!(refused(&data), "STORAGE_ROOT");
        drop(first);
        assert!(DataLock::take(&data).is_ok());
    }

    #[test]
    fn a_database_behind_a_symbolic_link_is_the_same_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let first = DataLock::take(&settings(&path("one"), &[])).unwrap();
        // A link to the file, which does not exist yet, and a link to its directory.
        symlink(path("one/provisioner.db"), path("link.db")).unwrap();
        symlink(path("one"), path("linked")).unwrap();
        for database in [path("link.db"), path("linked/provisioner.db"), path("linked/../one/provisioner.db")]
        {
            let second = settings(&path("two"), &[("DB_PATH", &database)]);
            assert_eq!(refused(&second), "the directory of DB_PATH", "{database:?}");
        }
        fs::write(path("one/provisioner.db"), "").unwrap();
        assert_eq!(
            refused(&settings(&path("two"), &[("DB_PATH", &path("link.db"))])),
            "the directory of DB_PATH"
        );
        drop(first);
        let second = DataLock::take(&settings(&path("two"), &[("DB_PATH", &path("link.db"))])).unwrap();
        assert_eq!(second.database(), path("one/provisioner.db").canonicalize().unwrap());
    }

    #[test]
    fn another_database_does_not_open_the_storage_of_a_running_controller() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _first = DataLock::take(&settings(&path("one"), &[])).unwrap();
        assert_eq!(
            refused(&settings(&path("one"), &[("DB_PATH", &path("elsewhere/other.db"))])),
            "STORAGE_ROOT"
        );
        let registry = settings(&path("two"), &[("REGISTRY_STORAGE", &path("one/oci"))]);
        assert_eq!(refused(&registry), "REGISTRY_STORAGE");
        let mut disabled = registry;
        disabled.enable_registry = false;
        assert!(
            DataLock::take(&disabled).is_ok(),
            "a controller without a registry does not use that directory"
        );
    }

    #[test]
    fn removing_files_of_the_data_directory_frees_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let data = settings(&folder.path().join("data"), &[]);
        let _first = DataLock::take(&data).unwrap();
        for entry in fs::read_dir(&data.storage_root).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
        }
        assert_eq!(refused(&data), "STORAGE_ROOT");
    }

    #[test]
    fn only_root_is_refused_and_only_on_data_of_another_user() {
        assert!(is_foreign(990, 0), "root on the data of shoal");
        assert!(!is_foreign(0, 0) && !is_foreign(990, 990));
        // A volume that the group of the user may write.
        assert!(!is_foreign(0, 990));
    }

    #[test]
    fn root_is_refused_on_data_of_another_user_before_a_file_is_written() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = settings(&folder.path().join("data"), &[]);
        fs::create_dir(&data.storage_root).unwrap();
        let names = || fs::read_dir(&data.storage_root).unwrap().count();
        std::os::unix::fs::chown(&data.storage_root, Some(990), Some(990)).unwrap();
        let refused = DataLock::take(&data).unwrap_err();
        let StartError::ForeignData { path, owner: 990 } = &refused else { panic!("{refused:?}") };
        assert_eq!(path, &data.storage_root);
        assert!(refused.to_string().contains("setpriv --reuid shoal"), "{refused}");
        assert_eq!(names(), 0);
        // A container whose root has made its database in a volume of another user continues to work.
        fs::write(&data.db_path, "").unwrap();
        assert!(DataLock::take(&data).is_ok());
        std::os::unix::fs::chown(&data.db_path, Some(990), Some(990)).unwrap();
        assert!(
            matches!(DataLock::take(&data), Err(StartError::ForeignData { path, .. }) if path == data.db_path)
        );
    }

    #[test]
    fn a_database_with_two_names_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = settings(&folder.path().join("data"), &[]);
        fs::create_dir_all(&data.storage_root).unwrap();
        fs::write(&data.db_path, "").unwrap();
        fs::hard_link(&data.db_path, folder.path().join("second-name.db")).unwrap();
        let refused = DataLock::take(&data);
        assert!(matches!(refused, Err(StartError::HardLinks { .. })), "{refused:?}");
    }

    #[test]
    fn a_directory_that_cannot_be_locked_is_locked_by_a_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let none = || DataLock { held: Vec::new(), watched: Vec::new(), database: PathBuf::new() };
        let (mut first, mut second) = (none(), none());
        let held = first.take_file("STORAGE_ROOT", folder.path()).unwrap();
        let refused = second.take_file("STORAGE_ROOT", folder.path());
        assert!(matches!(refused, Err(StartError::InUse { .. })), "{refused:?}");
        assert_eq!(first.check(), Ok(()));
        fs::remove_file(folder.path().join(LOCK_FILE)).unwrap();
        assert_eq!(first.check().unwrap_err().what, "the lock file");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_gone_from_under_its_holder_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let data = settings(&folder.path().join("data"), &[]);
        let mut locks = DataLock::take(&data).unwrap();
        fs::write(&data.db_path, "").unwrap();
        locks.watch_database().unwrap();
        assert_eq!(locks.check(), Ok(()));
        let aside = folder.path().join("aside.db");
        fs::rename(&data.db_path, &aside).unwrap();
        fs::write(&data.db_path, "").unwrap();
        assert_eq!(locks.check().unwrap_err().what, "the database");
        fs::rename(&aside, &data.db_path).unwrap();
        assert_eq!(locks.check(), Ok(()));
        fs::rename(&data.storage_root, folder.path().join("moved")).unwrap();
        let lost = Arc::new(locks).lost(CancellationToken::new()).await;
        assert_eq!(lost.unwrap().what, "STORAGE_ROOT");
    }
}
