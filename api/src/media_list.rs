//! `GET /api/v1/media`: which images are and were served to which servers, and what was read of them.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::Rule;
use super::extract::{CanRead, Parameters, page_size};
use super::jobs::media::MediaRead;
use super::openapi::types;
use model::{Artifact, RunId, Serial, Time};
use store::{MediaFilter, MediaRow};

/// For how long after its last read an image counts as being read. Reads are recorded every ten seconds.
const READING: Duration = Duration::from_secs(30);

/// One page of images.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MediaPage")]
pub(crate) struct MediaPage {
    /// One row per use of an image, the newest first.
    media: Vec<MediaView>,
    /// The cursor of the following page; null on the last page.
    next: Option<String>,
}

/// The use of an image by a job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Media")]
struct MediaView {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    /// The workflow of the job.
    workflow: String,
    /// The server whose BMC reads the image.
    #[schemars(with = "Option<types::SerialNumber>")]
    server_serial: Option<Serial>,
    state: MediaState,
    #[serde(flatten)]
    read: MediaRead,
    /// The deadline of the job: after it and the cleanup, the URL of the image ends. Null when it has ended, and while no deadline
    /// counts: the job is held, or of restored data.
    #[schemars(with = "Option<types::Timestamp>")]
    ends_by: Option<Time>,
}

/// Whether an image is served, and whether it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "MediaState")]
#[serde(rename_all = "lowercase")]
enum MediaState {
    /// The image is served, and no range of it was read.
    Unread,
    /// A range of the image was read within the last 30 seconds.
    Reading,
    /// The image is served, and its last read was more than 30 seconds ago.
    Idle,
    /// The image is not served, because its job is of restored data whose server is not released.
    Withheld,
    /// The URL of the image has ended.
    Ended,
}

impl MediaState {
    fn of(row: &MediaRow, now: Time) -> Self {
        match (row.stored.ended_at, row.restored, row.stored.reads.last_read_at) {
            (Some(_), _, _) => Self::Ended,
            (None, true, _) => Self::Withheld,
            (None, false, None) => Self::Unread,
            (None, false, Some(last)) if now.since(last) <= READING => Self::Reading,
            (None, false, Some(_)) => Self::Idle,
        }
    }
}

impl MediaView {
    fn of(row: MediaRow, now: Time) -> Self {
        let counts = row.stored.ended_at.is_none() && !row.held && !row.restored;
        Self {
            job_id: row.stored.grant.run,
            server_serial: row.stored.server.clone(),
            state: MediaState::of(&row, now),
            ends_by: counts.then_some(row.deadline_at),
            workflow: row.workflow,
            read: MediaRead::from(row.stored),
        }
    }
}

/// Lists the uses of images in pages, the newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    CanRead(servers): CanRead,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<MediaPage>, ApiError> {
    let filter = MediaFilter { server_labels: servers.0, ..media_filter(&query)? };
    let page = api.store().media(filter).await?;
    let now = api.now();
    let media = page.media.into_iter().map(|row| MediaView::of(row, now)).collect();
    Ok(Json(MediaPage { media, next: page.next.map(|position| position.to_string()) }))
}

/// The filter of the query of a list of images.
///
/// # Errors
/// 400 with every refused parameter.
fn media_filter(query: &HashMap<String, String>) -> Result<MediaFilter, ApiError> {
    let mut wrong = Vec::new();
    let mut refuse = |name: &str, why: &str| wrong.push(Detail::new(name, Rule::Value, why));
    let given = |name: &str| query.get(name).map(String::as_str);
    let mut filter = MediaFilter { limit: page_size(given("limit"), 50, 500)?, ..MediaFilter::default() };
    match given("served") {
        None => {}
        Some("true") => filter.open = Some(true),
        Some("false") => filter.open = Some(false),
        Some(_) => refuse("served", "served is true or false"),
    }
    if let Some(name) = given("image") {
        filter.artifact = Artifact::parse(name);
        if filter.artifact.is_none() {
            refuse("image", "image is one of boot, task, firmware");
        }
    }
    if let Some(text) = given("server_serial") {
        match text.parse() {
            Ok(serial) => filter.server = Some(serial),
            Err(_) => refuse("server_serial", "not a serial number"),
        }
    }
    if let Some(text) = given("cursor") {
        filter.after = text.parse().ok().filter(|position: &i64| *position >= 0);
        if filter.after.is_none() {
            refuse("cursor", "not a cursor of a list of images");
        }
    }
    if wrong.is_empty() { Ok(filter) } else { Err(ApiError::invalid(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Grant, GrantReads, StoredGrant};

    fn filter(pairs: &[(&str, &str)]) -> Result<MediaFilter, ApiError> {
        media_filter(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn every_parameter_of_the_list_is_read_or_refused() {
        let read = filter(&[
            ("served", "true"),
            ("image", "boot"),
            ("server_serial", "A"),
            ("cursor", "7"),
            ("limit", "9"),
        ])
        .unwrap();
        assert_eq!(
            (read.open, read.artifact, read.after, read.limit),
            (Some(true), Some(Artifact::Boot), Some(7), 9)
        );
        assert_eq!(read.server.unwrap().as_str(), "A");
        for (name, value) in [("served", "yes"), ("image", "cd"), ("cursor", "-1"), ("limit", "0")] {
            assert!(filter(&[(name, value)]).is_err(), "{name}");
        }
    }

    #[test]
    fn the_state_of_an_image_says_whether_it_is_served_and_read() {
        let at =
            |second: u64| "2026-11-20T08:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second));
        let row = |last_read_at: Option<Time>, ended_at: Option<Time>, restored| MediaRow {
            stored: StoredGrant {
                grant: Grant {
                    token_hash: "t".to_owned(),
                    run: RunId::new(),
                    artifact: Artifact::Boot,
                    inputs: None,
                    sha256: "d".to_owned(),
                    size: 7,
                    created_at: at(0),
                },
                server: None,
                ended_at,
                reads: GrantReads { last_read_at, ..GrantReads::default() },
            },
            workflow: model::PROVISION.to_owned(),
            deadline_at: at(900),
            held: false,
            restored,
        };
        for (row, state) in [
            (row(None, None, false), MediaState::Unread),
            (row(Some(at(70)), None, false), MediaState::Reading),
            (row(Some(at(69)), None, false), MediaState::Idle),
            (row(Some(at(70)), None, true), MediaState::Withheld),
            (row(Some(at(70)), Some(at(80)), false), MediaState::Ended),
        ] {
            assert_eq!(MediaState::of(&row, at(100)), state);
            let ends_by = |row| MediaView::of(row, at(100)).ends_by;
            let has_none = matches!(state, MediaState::Ended | MediaState::Withheld);
            assert_eq!(ends_by(row.clone()).is_none(), has_none);
            assert_eq!(ends_by(MediaRow { held: true, ..row }), None, "a held job has no deadline");
        }
    }
}
