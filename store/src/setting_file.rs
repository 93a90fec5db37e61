//! A setting of a database file without a store: for commands that change nothing, beside a running controller or without one.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::StoreError;
use super::rows::first;

/// Reads a setting of a database file. Neither the file nor its directory is changed. Blocks on the disk.
///
/// # Errors
/// When the file cannot be opened, or has no settings.
pub fn setting_in_file(database: &Path, key: &str) -> Result<Option<String>, StoreError> {
    const OPERATION: &str = "read a setting";
    let refused = |source| StoreError::Open { path: database.to_owned(), source: Arc::new(source) };
    let connection = open(database).map_err(refused)?;
    first(&connection, OPERATION, "SELECT value FROM settings WHERE key = ?1", &[&key], |columns| {
        columns.get("value")
    })
}

fn open(database: &Path) -> rusqlite::Result<Connection> {
    // The write-ahead log is beside the file that a link leads to.
    let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut log = database.clone().into_os_string();
    log.push("-wal");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match (Path::new(&log).exists(), database.to_str()) {
        // Without a log no process uses the database. A reader would create the files of one, as its own user.
        (false, Some(path)) => {
            let escaped = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
            let uri = format!("file:{escaped}?immutable=1");
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
        }
        _ => Connection::open_with_flags(&database, flags)?,
    };
    connection.execute_batch("PRAGMA busy_timeout=5000; PRAGMA trusted_schema=OFF;")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    fn names(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_setting_is_read_with_and_without_a_store_and_no_file_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("50% of #1?");
        std::fs::create_dir(&data).unwrap();
        let database = data.join("x.db");
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let store = Store::open(&database, now).unwrap();
        store.set_setting("k", Some("v".to_owned()), Vec::new(), now).await.unwrap();
        assert_eq!(setting_in_file(&database, "k").unwrap().as_deref(), Some("v"));
        assert_eq!(setting_in_file(&database, "other").unwrap(), None);
        // As a clean end leaves it: one file.
        let copy = folder.path().join("copy.db");
        crate::back_up(&database, &copy, "test", now).unwrap();
        Connection::open(&copy).unwrap().execute_batch("PRAGMA journal_mode=WAL").unwrap();
        let before = names(folder.path());
        assert_eq!(setting_in_file(&copy, "k").unwrap().as_deref(), Some("v"));
        assert_eq!(names(folder.path()), before);
        setting_in_file(&folder.path().join("none.db"), "k").unwrap_err();
        assert_eq!(names(folder.path()), before);
    }
}
