//! The list of media grants of all jobs: which image is served to which server, and what was read of it.
//!
//! Invariants: a page costs what its rows cost, because it is read in the order of the table, or of the index of the images that are
//! served; with another filter it costs at most the rows between two pages. A token is never in a row, and its hash does not leave this crate.

use std::collections::BTreeMap;

use rusqlite::ToSql;
use rusqlite::types::Value;

use super::grants::{WITHOUT_INPUTS, grant};
use super::rows::all;
use super::{Store, StoreError};
use model::{Artifact, Serial, StoredGrant, Time};

/// A filter for a list of media grants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MediaFilter {
    /// Only images that are served (`true`), or that are no longer served (`false`).
    pub open: Option<bool>,
    /// Only images of this kind.
    pub artifact: Option<Artifact>,
    /// Only images for this server.
    pub server: Option<Serial>,
    /// Only images for servers with all of these labels.
    pub server_labels: BTreeMap<String, String>,
    /// The maximum of rows to return.
    pub limit: u32,
    /// Only rows after this position in the order of the list.
    pub after: Option<i64>,
}

/// A row of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaRow {
    /// The grant with its reads.
    pub stored: StoredGrant,
    /// The workflow of the job.
    pub workflow: String,
    /// The deadline of the job; the grant ends after the cleanup that follows it.
    pub deadline_at: Time,
    /// Whether the job is held. Its deadline does not count then.
    pub held: bool,
    /// Whether the job is of restored data whose server is not released. Its images are not served.
    pub restored: bool,
}

/// One page of a list of media grants, the newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaPage {
    /// The rows.
    pub media: Vec<MediaRow>,
    /// The position of the last row, as `after` of the next page; `None` on the last page.
    pub next: Option<i64>,
}

impl Store {
    /// One page of the media grants of all jobs, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn media(&self, filter: MediaFilter) -> Result<MediaPage, StoreError> {
        const OPERATION: &str = "list media grants";
        self.read(OPERATION, move |connection| {
            let (sql, values) = filter.page();
            let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            let mut rows = all(connection, OPERATION, &sql, &values, |columns| {
                let row = MediaRow {
                    workflow: columns.get("workflow")?,
                    deadline_at: columns.time("deadline_at")?,
                    held: columns.get("held")?,
                    restored: columns.get("restored")?,
                    stored: grant(columns)?,
                };
                Ok((columns.get::<i64>("position")?, row))
            })?;
            let limit = filter.limit as usize;
            let more = rows.len() > limit;
            rows.truncate(limit);
            let next = rows.last().filter(|_| more).map(|(position, _)| *position);
            Ok(MediaPage { media: rows.into_iter().map(|(_, row)| row).collect(), next })
        })
        .await
    }
}

impl MediaFilter {
    /// The query of a page with its parameters.
    pub(super) fn page(&self) -> (String, Vec<Value>) {
        let (conditions, values) = self.conditions();
        let sql = format!(
            "SELECT media_grants.rowid AS position,
                 (SELECT workflow FROM runs WHERE runs.id = media_grants.run) AS workflow,
                 (SELECT deadline_at FROM runs WHERE runs.id = media_grants.run) AS deadline_at,
                 (SELECT phase = 'held' FROM runs WHERE runs.id = media_grants.run) AS held,
                 (SELECT restored FROM runs WHERE runs.id = media_grants.run) AS restored, {WITHOUT_INPUTS}
             WHERE {conditions} ORDER BY media_grants.rowid DESC LIMIT ?"
        );
        (sql, values)
    }

    /// The SQL condition with its parameters, and after them the number of rows to read.
    fn conditions(&self) -> (String, Vec<Value>) {
        let mut texts = vec!["1".to_owned()];
        let mut values = Vec::new();
        let mut add = |text: &str, list: Vec<Value>| {
            texts.push(text.to_owned());
            values.extend(list);
        };
        match self.open {
            Some(true) => add("ended_at IS NULL", Vec::new()),
            Some(false) => add("ended_at IS NOT NULL", Vec::new()),
            None => {}
        }
        if let Some(artifact) = self.artifact {
            add("artifact = ?", vec![Value::Text(artifact.as_str().to_owned())]);
        }
        if let Some(server) = &self.server {
            // By the index of the runs of a server.
            let text = "run IN (SELECT id FROM runs WHERE runs.server = ?)";
            add(text, vec![Value::Text(server.to_string())]);
        }
        for (key, value) in &self.server_labels {
            add(
                "run IN (SELECT id FROM runs WHERE runs.server IN
                     (SELECT serial FROM server_labels WHERE key = ? AND value = ?))",
                vec![Value::Text(key.clone()), Value::Text(value.clone())],
            );
        }
        if let Some(after) = self.after {
            add("media_grants.rowid < ?", vec![Value::Integer(after)]);
        }
        values.push(Value::Integer(i64::from(self.limit) + 1));
        (texts.join(" AND "), values)
    }
}
