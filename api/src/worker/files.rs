//! `POST /worker/v1/firmware` and `/worker/v1/hardware`: what a step reads beside its run. Both are for an open call of the worker:
//! a file must be one of the order of the run, and an inventory that of its server.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::Message;
use super::caller::KnownWorker;
use engine::CallKey;
use firmware::{Entry, VerifiedFirmware};
use model::Snapshot;
use upkeep::{FirmwareFileError, UpkeepAction, UpkeepInput};
use worker::messages::{FileOrder, Releasing, StoredHardware};

/// The bytes of one piece.
const PIECE: usize = 256 << 10;

/// Sends the bytes of a firmware file. They are hashed before the first one is sent, and again at the worker.
pub(super) async fn firmware(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(order): Message<FileOrder>,
) -> Result<Response, ApiError> {
    let run = open_run(&api, &worker, &order.key).await?;
    let entry = entry(&run, &order.digest).ok_or_else(|| {
        ApiError::new(
            ErrorCode::UnknownFirmware,
            "the order of the run has no firmware file with this digest",
        )
    })?;
    let file = api.workers.files.open(&entry).await.map_err(|why| match why {
        FirmwareFileError::Unusable(_) => ApiError::new(ErrorCode::UnknownFirmware, why.to_string()),
        FirmwareFileError::Unavailable(_) => {
            ApiError::new(ErrorCode::Unavailable, why.to_string()).header(header::RETRY_AFTER, "5")
        }
    })?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, file.file().size.to_string()),
    ];
    Ok((headers, Body::from_stream(pieces(file, worker.place))).into_response())
}

/// The inventory that is stored of the server of a call.
pub(super) async fn hardware(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(order): Message<Releasing>,
) -> Result<Json<StoredHardware>, ApiError> {
    let run = open_run(&api, &worker, &order.key).await?;
    let hardware = match &run.run.server {
        Some(serial) => api.store().server_hardware(serial).await?.map(|found| found.hardware),
        None => None,
    };
    Ok(Json(StoredHardware { hardware }))
}

async fn open_run(api: &Api, worker: &KnownWorker, key: &CallKey) -> Result<Arc<Snapshot>, ApiError> {
    worker.queues(api)?.open_run(key).await?.ok_or_else(|| {
        let message = "the worker does not have this call any more; another one continues the run";
        ApiError::new(ErrorCode::Forbidden, message)
    })
}

/// The file with this digest in the order of a run.
fn entry(run: &Snapshot, digest: &str) -> Option<Entry> {
    let input = UpkeepInput::deserialize(&*run.input).ok()?;
    let UpkeepAction::Firmware(order) = input.action else { return None };
    order.files.into_iter().find(|entry| entry.digest == digest)
}

/// The bytes of a file in pieces, each read on a thread that may block. The request has its place until the last one.
fn pieces(
    file: VerifiedFirmware,
    place: OwnedSemaphorePermit,
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send {
    futures_util::stream::try_unfold((file, 0_u64, place), |(file, offset, place)| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE];
            let read = file.read_at(&mut piece, offset)?;
            piece.truncate(read);
            Ok::<_, std::io::Error>((Bytes::from(piece), file))
        });
        let (piece, file) = read.await.map_err(std::io::Error::other)??;
        let next = offset + piece.len() as u64;
        Ok((!piece.is_empty()).then_some((piece, (file, next, place))))
    })
}
