//! Requests that create jobs: each has an idempotency key, so that a repetition creates nothing twice.
//!
//! ```text
//!   POST with --idempotency-key, or with a new key ── response ──> done
//!        └── no response ──> once again with the same key ── no response ──> error, with the option to repeat the command with
//! ```
//!
//! Invariant: both requests have the same body and key, so the controller creates what the first one did not, and finds the rest.

use reqwest::header::HeaderMap;
use serde::Serialize;

use super::client::{ApiResponse, Client, header};
use super::error::CliError;
use super::output::Output;

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
    /// As a request; [`CliError::Lost`] if there is no response to the second request either.
    pub(super) async fn post(
        &self,
        client: &Client,
        path: &[&str],
        body: &impl Serialize,
        output: &mut Output<'_>,
    ) -> Result<ApiResponse, CliError> {
        let send = async || -> Result<ApiResponse, CliError> {
            let headers: HeaderMap = header("idempotency-key", &self.key)?;
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
        match send().await {
            Err(error) if error.is_lost() => {
                Err(CliError::Lost { cause: Box::new(error), key: self.key.clone() })
            }
            other => other,
        }
    }
}
