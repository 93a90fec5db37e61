//! Requests that create jobs: each has an idempotency key, so that a repetition creates nothing twice.
//!
//! ```text
//!   POST with --idempotency-key, or with a new key ── response ──> done
//!        └── no response ──> a pause, then once again with the same key ── response ──> done
//!                                     └── no response, no connection, busy, stopping ──> error, with the option to repeat the command with
//! ```
//!
//! Invariants: both requests have the same body and key, so the controller creates what the first one did not, and finds the rest; after a
//! lost response every error by which the outcome stays unknown names the key.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::Serialize;

use super::connection::{ApiResponse, Client, header};
use super::error::CliError;
use super::output::Output;

/// The header.
const NAME: &str = "idempotency-key";
/// The pause before the second request: a controller that restarts listens again soon.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });

/// The key of one creating command.
#[derive(Clone, Debug)]
pub(super) struct RepeatKey {
    key: String,
    is_many: bool,
}

impl RepeatKey {
    /// The given key, or a new one, for a request that creates one job.
    pub(super) fn one(given: Option<&str>) -> Result<Self, CliError> {
        Self::new(given, false)
    }

    /// The given key, or a new one, for a request that creates many jobs and may take long.
    pub(super) fn many(given: Option<&str>) -> Result<Self, CliError> {
        Self::new(given, true)
    }

    /// The headers of a preview: with the given key it is the preview of the request that had this key.
    pub(super) fn of_preview(given: Option<&str>) -> Result<HeaderMap, CliError> {
        given.map_or_else(|| Ok(HeaderMap::new()), |key| header(NAME, key))
    }

    /// The headers of a request.
    pub(super) fn headers(&self) -> Result<HeaderMap, CliError> {
        header(NAME, &self.key)
    }

    fn new(given: Option<&str>, is_many: bool) -> Result<Self, CliError> {
        let key = match given {
            Some(key) => key.to_owned(),
            None => {
                let mut random = [0_u8; 16];
                getrandom::fill(&mut random).map_err(|error| {
                    CliError::failed(format!(
                        "cannot make an idempotency key: {error}; give --idempotency-key"
                    ))
                })?;
                format!("cli-{}", hex::encode(random))
            }
        };
        Ok(Self { key, is_many })
    }

    /// Sends a request, and once again if its response is lost.
    ///
    /// # Errors
    /// When the request fails; [`CliError::Lost`] when the second request leaves open whether the first was processed: there is no response, no
    /// connection, or the controller is busy or stopping.
    pub(super) async fn post(
        &self,
        client: &Client,
        path: &[&str],
        body: &impl Serialize,
        output: &mut Output<'_>,
    ) -> Result<ApiResponse, CliError> {
        let send = async || -> Result<ApiResponse, CliError> {
            let headers = self.headers()?;
            if self.is_many {
                client.post_long(path, body, headers).await
            } else {
                client.post(path, body, headers).await
            }
        };
        let first = match send().await {
            Err(error) if error.is_lost() => error,
            other => return other,
        };
        output.note(format!("{first}; sending the request once again with the same idempotency key"));
        tokio::time::sleep(PAUSE).await;
        match send().await {
            Err(error) if error.is_transient() => {
                Err(CliError::Lost { cause: Box::new(error), key: self.key.clone(), is_batch: self.is_many })
            }
            other => other,
        }
    }
}
