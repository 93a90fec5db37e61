//! The origin file: outside of the database, it shows at a start whether the data is what the last controller left (decision D26).
//!
//! ```text
//!   STORAGE_ROOT/origin     {"token", "seq", "machine"}     a new file at every start; seq follows the event log
//!   database                [mark, former mark]             mark = token + birth of the file + machine
//!
//!   start:  judge -> write origin.new, fsync -> database: its mark, and the former one -> rename -> fsync
//! ```
//!
//! | what happened | what differs |
//! |---|---|
//! | the directory was copied, also back into its place | the birth of the file: a copy is another file |
//! | the database alone was copied or restored | the token, or the file is missing |
//! | an older database of the same start was put in place | `seq` is behind the file's |
//! | the disk is in another machine | the machine id |
//!
//! A restart changes none of these, nor do `chown`, `chmod`, a rename of the directory, another mount or another kernel. Outside of a
//! container the machine id is that of the machine; in a container it may change with every start, so it is not compared there.
//! Not visible: a snapshot of the whole disk or of its file system (btrfs, ZFS, LVM) that is rolled back or cloned on the same machine. An
//! operator removes the origin file then.
//!
//! Invariant: a crash between any two operations of a start leaves a file whose mark is in the database, or a missing file beside a
//! database in which no server is registered.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::StartError;
use model::{Time, error_chain};
use store::Store;

/// The origin file in the data directory.
const FILE: &str = "origin";
/// The file that replaces the origin file at a start.
const NEXT: &str = "origin.new";
/// The length of the origin file: one write of less than a disk sector, so that no crash leaves half of it.
const LENGTH: usize = 384;
/// The interval at which `seq` is written.
const INTERVAL: Duration = Duration::from_secs(5);

/// The content of the origin file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// Random, of one start.
    token: String,
    /// An event number that the database has reached.
    seq: i64,
}

/// The record of an origin file in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    token: String,
    birth: Birth,
    machine: Option<String>,
}

/// The properties by which a file differs from every copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Birth {
    /// The time of creation in nanoseconds since 1970, which no program can set. `None` where file system, kernel or the filter of
    /// system calls of a container have none: another version of them may have one for the same file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<u64>,
    /// The inode. A mark of an earlier version has it only without a time of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
}

impl Birth {
    fn of(metadata: &Metadata) -> Self {
        let created = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let created = created.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Self { created, inode: Some(metadata.ino()) }
    }

    /// Whether both are of one file. The inode decides only where a time of creation is missing, because a restored file can have the
    /// inode of its original.
    fn is_of_the_file_of(self, other: Self) -> bool {
        match (self.created, other.created) {
            (Some(one), Some(another)) => one == another,
            _ => self.inode.is_some() && self.inode == other.inode,
        }
    }
}

/// The judgement about the data, from the origin file.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The database has no origin yet.
    New,
    /// The data is what the last controller left.
    Same,
    /// The data is a copy or old, for this reason.
    Copied(String),
}

/// The origin file of a running controller.
pub(super) struct Origin {
    file: File,
    content: Mutex<Content>,
    path: PathBuf,
}

impl Origin {
    /// Judges the data directory and writes the origin file of this start. Data that is a copy or old is marked as restored in the
    /// database before this returns.
    pub(super) async fn begin(storage: &Path, store: &Store, now: Time) -> Result<Self, StartError> {
        Self::begin_on(storage, store, machine_id(Path::new("/")), now).await
    }

    async fn begin_on(
        storage: &Path,
        store: &Store,
        machine: Option<String>,
        now: Time,
    ) -> Result<Self, StartError> {
        let path = storage.join(FILE);
        let failed = |source| StartError::Origin { path: path.clone(), source };
        let marks: Vec<Mark> =
            store.origin().await?.iter().filter_map(|mark| serde_json::from_str(mark).ok()).collect();
        let seq = store.last_seq().await?;
        let verdict = judge(&marks, read(&path).map_err(failed)?, machine.as_deref(), seq);
        let next = storage.join(NEXT);
        let content = Content { token: uuid::Uuid::new_v4().to_string(), seq };
        let file = create(&next, &content).map_err(failed)?;
        let birth = Birth::of(&file.metadata().map_err(failed)?);
        let mark = Mark { token: content.token.clone(), birth, machine };
        let mark = serde_json::to_string(&mark).map_err(|error| failed(error.into()))?;
        let copied = match &verdict {
            Verdict::Copied(reason) => Some(reason.clone()),
            Verdict::New | Verdict::Same => None,
        };
        let restored = store.set_origin(mark, copied, now).await?;
        if let Verdict::Copied(reason) = verdict {
            tracing::warn!(
                servers = restored,
                "{reason}; nothing is done to a server until an operator releases it: shoal controller restored; its users and \
                 API tokens are refused until they are confirmed: shoal user confirm, shoal token confirm"
            );
        }
        fs::rename(&next, &path).and_then(|()| File::open(storage)?.sync_all()).map_err(failed)?;
        Ok(Self { file, content: Mutex::new(content), path })
    }

    /// Lets the file follow the event log, until `stop`. A file that is behind is no problem: it only shows less.
    pub(super) async fn follow(self: Arc<Self>, store: Store, stop: CancellationToken) {
        loop {
            let stopped = stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none();
            if let Ok(seq) = store.last_seq().await {
                let origin = Arc::clone(&self);
                let written = tokio::task::spawn_blocking(move || origin.reached(seq)).await;
                if let Ok(Err(error)) = written {
                    tracing::warn!(file = %self.path.display(), error = %error_chain(&error), "the origin file was not written");
                }
            }
            if stopped {
                return;
            }
        }
    }

    /// Records that the database has reached this event.
    fn reached(&self, seq: i64) -> io::Result<()> {
        let mut content = self.content.lock();
        if seq <= content.seq {
            return Ok(());
        }
        let next = Content { seq, ..content.clone() };
        self.file.write_all_at(&encode(&next)?, 0)?;
        self.file.sync_data()?;
        *content = next;
        Ok(())
    }
}

fn judge(
    marks: &[Mark],
    file: Option<(Option<Content>, Birth)>,
    machine: Option<&str>,
    last_seq: i64,
) -> Verdict {
    let copied = |reason: &str| Verdict::Copied(reason.to_owned());
    if marks.is_empty() {
        return Verdict::New;
    }
    let Some((content, birth)) = file else {
        return copied("the database was copied or restored: its data directory has no origin file");
    };
    let Some(content) = content else {
        return copied("the origin file of the data directory cannot be read");
    };
    let Some(mark) = marks.iter().find(|mark| mark.token == content.token) else {
        return copied(
            "the database and the data directory are not from the same time: one of them is older",
        );
    };
    if !mark.birth.is_of_the_file_of(birth) {
        return copied("the data directory is a copy of the one that the last controller used");
    }
    if last_seq < content.seq {
        return Verdict::Copied(format!(
            "the database is older than the data directory: it ends at event {last_seq}, and event {} was written",
            content.seq
        ));
    }
    match (&mark.machine, machine) {
        (Some(then), Some(now)) if then != now => {
            copied("the last controller on this data ran on another machine")
        }
        _ => Verdict::Same,
    }
}

/// The content of an origin file and its birth; `None` when there is no file. Unreadable content is `None` inside.
fn read(path: &Path) -> io::Result<Option<(Option<Content>, Birth)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::with_capacity(LENGTH);
    (&file).take(LENGTH as u64).read_to_end(&mut text)?;
    Ok(Some((serde_json::from_slice(&text).ok(), Birth::of(&file.metadata()?))))
}

fn create(path: &Path, content: &Content) -> io::Result<File> {
    match fs::remove_file(path) {
        // A start that crashed left it. The file of this start must be a new one.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&encode(content)?)?;
    file.sync_all()?;
    Ok(file)
}

/// The content, filled up with spaces to the length of the file.
fn encode(content: &Content) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(content)?;
    text.resize(LENGTH - 1, b' ');
    text.push(b'\n');
    Ok(text)
}

/// The id of the machine; `None` in a container, and where there is none.
fn machine_id(root: &Path) -> Option<String> {
    let container = ["run/.containerenv", ".dockerenv"].iter().any(|name| root.join(name).exists())
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        || std::env::var_os("container").is_some();
    if container {
        return None;
    }
    let id = fs::read_to_string(root.join("etc/machine-id")).ok()?;
    let id = id.trim();
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{NewEvent, Server};

    /// A data directory with one registered server.
    struct Data {
        folder: tempfile::TempDir,
    }

    impl Data {
        async fn new() -> Self {
            let data = Self { folder: tempfile::tempdir().unwrap() };
            data.start("one", Some("A")).await;
            let store = data.store("one");
            let server = Server::unknown("S-1".parse().unwrap(), now());
            store.create_server(server, NewEvent::info("server.created", "x")).await.unwrap();
            drop(store);
            data.closed("one").await;
            data
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn store(&self, name: &str) -> Store {
            fs::create_dir_all(self.path(name)).unwrap();
            Store::open(&self.path(name).join("provisioner.db"), now()).unwrap()
        }

        /// Starts a controller on a directory and stops it; returns why its servers are restored, if they are.
        async fn start(&self, name: &str, machine: Option<&str>) -> Option<String> {
            let store = self.store(name);
            let origin =
                Origin::begin_on(&self.path(name), &store, machine.map(str::to_owned), now()).await.unwrap();
            store.append(None, None, vec![NewEvent::info("test", "x")], now()).await.unwrap();
            origin.reached(store.last_seq().await.unwrap()).unwrap();
            let restored = store.restored_servers().await.unwrap();
            for server in &restored {
                let released =
                    store.release_server(&server.serial, None, Vec::new(), "ann", now()).await.unwrap();
                assert!(matches!(released, store::ReleasedServer::Released(_)));
            }
            drop(store);
            self.closed(name).await;
            restored.into_iter().next().map(|server| server.restoration.reason)
        }

        /// Waits until the threads of a dropped store have closed the database: SQLite then removes the write-ahead log. Of connections
        /// that close at one moment each takes another one for open, and none removes it: a further one does.
        async fn closed(&self, name: &str) {
            let file = self.path(name).join("provisioner.db");
            for round in 1..2_000 {
                if !self.path(name).join("provisioner.db-wal").exists() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                if round % 200 == 0 {
                    let last = rusqlite::Connection::open(&file).unwrap();
                    last.query_row("SELECT count(*) FROM settings", [], |row| row.get::<_, i64>(0)).unwrap();
                }
            }
            panic!("the database is still open");
        }

        fn copy(&self, from: &str, to: &str) {
            fs::create_dir_all(self.path(to)).unwrap();
            for entry in fs::read_dir(self.path(from)).unwrap() {
                let entry = entry.unwrap();
                // Overwrites an existing file in place, as cp does.
                fs::copy(entry.path(), self.path(to).join(entry.file_name())).unwrap();
            }
        }
    }

    fn now() -> Time {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn says(reason: Option<String>, words: &str) {
        assert!(reason.as_ref().is_some_and(|reason| reason.contains(words)), "{words}: {reason:?}");
    }

    #[tokio::test]
    async fn a_restart_is_no_restore_also_after_chown_chmod_and_a_move_of_the_directory() {
        use std::os::unix::fs::PermissionsExt;
        let data = Data::new().await;
        for _ in 0..3 {
            assert_eq!(data.start("one", Some("A")).await, None);
        }
        fs::set_permissions(data.path("one/origin"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(data.start("one", Some("A")).await, None);
        fs::rename(data.path("one"), data.path("moved")).unwrap();
        assert_eq!(data.start("moved", Some("A")).await, None);
        assert_eq!(data.start("moved", None).await, None, "a machine without an id is not another machine");
    }

    #[tokio::test]
    async fn a_copy_of_the_data_directory_is_restored_and_after_its_release_it_is_the_data() {
        let data = Data::new().await;
        data.copy("one", "two");
        says(data.start("two", Some("A")).await, "is a copy");
        assert_eq!(data.start("two", Some("A")).await, None);
        assert_eq!(data.start("one", Some("A")).await, None, "the original is as it was");
    }

    #[tokio::test]
    async fn an_old_copy_in_the_place_of_the_data_is_restored() {
        let data = Data::new().await;
        data.copy("one", "aside");
        data.start("one", Some("A")).await;
        data.copy("aside", "one");
        says(data.start("one", Some("A")).await, "is a copy");
    }

    #[tokio::test]
    async fn an_old_database_beside_the_newer_directory_is_restored() {
        let data = Data::new().await;
        let database = data.path("one/provisioner.db");
        fs::copy(&database, data.path("former.db")).unwrap();
        data.start("one", Some("A")).await;
        fs::copy(data.path("former.db"), &database).unwrap();
        says(data.start("one", Some("A")).await, "one of them is older");
        // Of the same start: the copy was made while the controller ran.
        let store = data.store("one");
        let origin = Origin::begin_on(&data.path("one"), &store, None, now()).await.unwrap();
        drop(store);
        data.closed("one").await;
        fs::copy(&database, data.path("former.db")).unwrap();
        let store = data.store("one");
        for _ in 0..2 {
            store.append(None, None, vec![NewEvent::info("test", "x")], now()).await.unwrap();
        }
        origin.reached(store.last_seq().await.unwrap()).unwrap();
        drop(store);
        data.closed("one").await;
        fs::copy(data.path("former.db"), &database).unwrap();
        says(data.start("one", None).await, "is older than the data directory");
    }

    #[tokio::test]
    async fn a_database_without_its_origin_file_and_a_disk_in_another_machine_are_restored() {
        let data = Data::new().await;
        fs::remove_file(data.path("one/origin")).unwrap();
        says(data.start("one", Some("A")).await, "no origin file");
        says(data.start("one", Some("B")).await, "another machine");
        fs::write(data.path("one/origin"), "{").unwrap();
        says(data.start("one", Some("B")).await, "cannot be read");
        assert_eq!(data.start("one", Some("B")).await, None);
    }

    #[tokio::test]
    async fn a_start_that_crashed_between_any_two_operations_is_no_restore() {
        let data = Data::new().await;
        // Before the database knows the new file.
        fs::write(data.path("one/origin.new"), "left by a crash").unwrap();
        assert_eq!(data.start("one", Some("A")).await, None);
        // After the database has the new mark and before the rename: the file is the one of the start before.
        let store = data.store("one");
        let mark =
            Mark { token: "t".to_owned(), birth: Birth { created: None, inode: Some(1) }, machine: None };
        store.set_origin(serde_json::to_string(&mark).unwrap(), None, now()).await.unwrap();
        drop(store);
        assert_eq!(data.start("one", Some("A")).await, None);
    }

    #[test]
    fn a_kernel_that_reports_other_properties_of_the_same_file_makes_no_copy() {
        let birth = |created, inode| Birth { created, inode };
        let verdict = |then: Birth, now: Birth| {
            let text = format!(
                r#"{{"token":"t","birth":{},"machine":null}}"#,
                serde_json::to_string(&then).unwrap()
            );
            let mark: Mark = serde_json::from_str(&text).unwrap();
            judge(&[mark], Some((Some(Content { token: "t".to_owned(), seq: 1 }), now)), None, 1)
        };
        for (then, now, same) in [
            (birth(None, Some(7)), birth(Some(1), Some(7)), true),
            (birth(Some(1), Some(7)), birth(None, Some(7)), true),
            (birth(Some(1), Some(7)), birth(Some(1), Some(8)), true),
            (birth(Some(1), Some(7)), birth(Some(2), Some(7)), false),
            (birth(None, Some(7)), birth(Some(1), Some(8)), false),
            (birth(None, Some(7)), birth(None, Some(8)), false),
            // The marks of an earlier version.
            (birth(Some(1), None), birth(Some(1), Some(7)), true),
            (birth(Some(1), None), birth(Some(2), Some(7)), false),
            (birth(Some(1), None), birth(None, Some(7)), false),
        ] {
            assert_eq!(verdict(then, now) == Verdict::Same, same, "{then:?} {now:?}");
        }
        for (text, expected) in
            [(r#"{"created":1}"#, birth(Some(1), None)), (r#"{"inode":7}"#, birth(None, Some(7)))]
        {
            assert_eq!(serde_json::from_str::<Birth>(text).unwrap(), expected);
        }
    }

    #[test]
    fn the_machine_id_is_not_compared_in_a_container() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        if std::env::var_os("container").is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
            assert_eq!(machine_id(root.path()).as_deref(), Some("0123456789abcdef0123456789abcdef"));
        }
        fs::write(root.path().join(".dockerenv"), "").unwrap();
        assert_eq!(machine_id(root.path()), None);
    }
}
