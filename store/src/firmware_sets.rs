//! Sets of firmware files.
//!
//! ```text
//!   firmware_sets (name) 1 ──> n firmware_set_files (manifest of a file) 1 ──> n firmware_set_models (component, vendor, model)
//! ```
//!
//! The store knows texts; what a manifest says is checked by the caller before. Invariant: a set and its files are created and
//! deleted in one transaction, and the table refuses a second file for one component, vendor and model of a set.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::rows::{Columns, all, append_events, execute, first, to_json};
use super::{Store, StoreError};
use model::{NewEvent, Time};

/// A set of firmware files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFirmwareSet {
    /// The name.
    pub name: String,
    /// The id, which differs from that of a former set with the name.
    pub id: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The name of the user or token that created the set.
    pub created_by: String,
    /// When the set was created.
    pub created_at: Time,
    /// The files.
    pub files: Vec<StoredFirmwareFile>,
}

/// A file of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFirmwareFile {
    /// The repository of the registry.
    pub repository: String,
    /// The digest of the manifest.
    pub digest: String,
    /// The manifest.
    pub manifest: String,
    /// The targets of the file, each as component, vendor and model in lower case.
    pub models: Vec<[String; 3]>,
}

/// The result of creating a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreatedFirmwareSet {
    /// The set was created.
    New,
    /// A set has the name.
    NameTaken,
    /// The maximum of sets exists.
    Full,
}

impl Store {
    /// Creates a set with its files.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then. A name in use is no error.
    pub async fn create_firmware_set(
        &self,
        set: StoredFirmwareSet,
        most: u32,
        event: NewEvent,
    ) -> Result<CreatedFirmwareSet, StoreError> {
        const OPERATION: &str = "create a firmware set";
        self.writer
            .write(OPERATION, move |connection| {
                if named(connection, &set.name)?.is_some() {
                    return Ok(CreatedFirmwareSet::NameTaken);
                }
                let written = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO firmware_sets (name, id, labels, created_by, created_at)
                     SELECT ?1, ?2, ?3, ?4, ?5 WHERE (SELECT count(*) FROM firmware_sets) < ?6",
                    params![
                        set.name,
                        set.id,
                        to_json(OPERATION, &set.labels)?,
                        set.created_by,
                        set.created_at.to_string(),
                        most
                    ],
                )?;
                if written == 0 {
                    return Ok(CreatedFirmwareSet::Full);
                }
                set.files.iter().try_for_each(|file| insert_file(connection, &set.name, file))?;
                append_events(connection, OPERATION, None, None, set.created_at, &[event])?;
                Ok(CreatedFirmwareSet::New)
            })
            .await
    }

    /// The set with this name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn firmware_set(&self, name: &str) -> Result<Option<StoredFirmwareSet>, StoreError> {
        let name = name.to_owned();
        self.read("read a firmware set", move |connection| named(connection, &name)).await
    }

    /// All sets by name.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn firmware_sets(&self) -> Result<Vec<StoredFirmwareSet>, StoreError> {
        const OPERATION: &str = "list firmware sets";
        self.read(OPERATION, move |connection| {
            let sql = "SELECT name, id, labels, created_by, created_at FROM firmware_sets ORDER BY name";
            let mut sets = all(connection, OPERATION, sql, &[], set)?;
            for set in &mut sets {
                set.files = files(connection, &set.name)?;
            }
            Ok(sets)
        })
        .await
    }

    /// The names of the sets with a file, by the digest of its manifest.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn firmware_sets_with(&self, digest: &str) -> Result<Vec<String>, StoreError> {
        const OPERATION: &str = "find the firmware sets with a file";
        let digest = digest.to_owned();
        self.read(OPERATION, move |connection| {
            let sql = "SELECT set_name FROM firmware_set_files WHERE digest = ?1 ORDER BY set_name";
            all(connection, OPERATION, sql, &[&digest], |columns| columns.get("set_name"))
        })
        .await
    }

    /// Deletes a set; returns what it was.
    ///
    /// # Errors
    /// When the database cannot be written, or the set cannot be read; it is not deleted then.
    pub async fn delete_firmware_set(
        &self,
        name: &str,
        event: NewEvent,
        now: Time,
    ) -> Result<Option<StoredFirmwareSet>, StoreError> {
        const OPERATION: &str = "delete a firmware set";
        let name = name.to_owned();
        self.writer
            .write(OPERATION, move |connection| {
                let Some(found) = named(connection, &name)? else { return Ok(None) };
                for sql in [
                    "DELETE FROM firmware_set_models WHERE set_name = ?1",
                    "DELETE FROM firmware_set_files WHERE set_name = ?1",
                    "DELETE FROM firmware_sets WHERE name = ?1",
                ] {
                    execute(connection, OPERATION, sql, &[&name])?;
                }
                append_events(connection, OPERATION, None, None, now, &[event])?;
                Ok(Some(found))
            })
            .await
    }
}

fn insert_file(connection: &Connection, set: &str, file: &StoredFirmwareFile) -> Result<(), StoreError> {
    const OPERATION: &str = "create a firmware set";
    execute(
        connection,
        OPERATION,
        "INSERT INTO firmware_set_files (set_name, repository, digest, manifest) VALUES (?1, ?2, ?3, ?4)",
        params![set, file.repository, file.digest, file.manifest],
    )?;
    for [component, vendor, model] in &file.models {
        execute(
            connection,
            OPERATION,
            "INSERT INTO firmware_set_models (set_name, component, vendor, model, digest) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![set, component, vendor, model, file.digest],
        )?;
    }
    Ok(())
}

fn named(connection: &Connection, name: &str) -> Result<Option<StoredFirmwareSet>, StoreError> {
    const OPERATION: &str = "read a firmware set";
    let sql = "SELECT name, id, labels, created_by, created_at FROM firmware_sets WHERE name = ?1";
    let Some(mut found) = first(connection, OPERATION, sql, &[&name], set)? else { return Ok(None) };
    found.files = files(connection, name)?;
    Ok(Some(found))
}

fn set(columns: &Columns<'_>) -> Result<StoredFirmwareSet, StoreError> {
    Ok(StoredFirmwareSet {
        name: columns.get("name")?,
        id: columns.get("id")?,
        labels: columns.json("labels")?,
        created_by: columns.get("created_by")?,
        created_at: columns.time("created_at")?,
        files: Vec::new(),
    })
}

fn files(connection: &Connection, set: &str) -> Result<Vec<StoredFirmwareFile>, StoreError> {
    const OPERATION: &str = "read the files of a firmware set";
    let sql =
        "SELECT repository, digest, manifest FROM firmware_set_files WHERE set_name = ?1 ORDER BY digest";
    let mut files = all(connection, OPERATION, sql, &[&set], |columns| {
        Ok(StoredFirmwareFile {
            repository: columns.get("repository")?,
            digest: columns.get("digest")?,
            manifest: columns.get("manifest")?,
            models: Vec::new(),
        })
    })?;
    for file in &mut files {
        let sql =
            "SELECT component, vendor, model FROM firmware_set_models WHERE set_name = ?1 AND digest = ?2
                   ORDER BY component, vendor, model";
        file.models = all(connection, OPERATION, sql, params![set, file.digest], |columns| {
            Ok([columns.get("component")?, columns.get("vendor")?, columns.get("model")?])
        })?;
    }
    Ok(files)
}
