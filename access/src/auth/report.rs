//! Authentication of installation reports: the `X-Webhook-Secret` header.
//!
//! ```text
//! presented ──SHA-256──┬─ = hash of the job's token ───────> JobToken
//!                      ├─ = shared secret, current ────────> SharedSecret
//!                      ├─ = shared secret, previous ───────> SharedSecret    while rotating
//!                      └─ otherwise ───────────────────────> Wrong          the API then looks for a report-only token
//! ```
//!
//! All three comparisons are always made, on digests and in constant time. A shared secret that is unset or empty
//! matches nothing. The API, which knows the job, decides whether a shared secret is enough for it, and whether a client
//! certificate stands in for a secret (`client_certificate`).
//!
//! Decision D12; docs/maintenance-os.md.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use subtle::{Choice, ConstantTimeEq};

use secrets::{sha256, token_matches};

/// The shared report secrets as digests.
#[derive(Clone, Default)]
pub struct ReportSecrets {
    current: Option<[u8; 32]>,
    previous: Option<[u8; 32]>,
}

impl ReportSecrets {
    /// The secrets `WEBHOOK_SECRET` and `WEBHOOK_SECRET_OLD`; an empty one counts as unset.
    pub fn new(current: Option<&SecretString>, previous: Option<&SecretString>) -> Self {
        let digest = |secret: Option<&SecretString>| {
            secret.map(|secret| secret.expose_secret()).filter(|text| !text.is_empty()).map(sha256)
        };
        Self { current: digest(current), previous: digest(previous) }
    }
}

impl fmt::Debug for ReportSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportSecrets")
            .field("current", &self.current.is_some())
            .field("previous", &self.previous.is_some())
            .finish()
    }
}

/// The proof that the secret of a report gives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReportAuth {
    /// The secret is the report token of this job.
    JobToken,
    /// The secret is the current or the previous shared secret.
    SharedSecret,
    /// The secret is a report-only API token.
    ReportToken,
    /// There is no secret, and the client certificate is for this server.
    Certificate,
    /// The report has no secret.
    Missing,
    /// The secret is unknown.
    Wrong,
}

/// Compares the secret of a report with the report token of the job (its stored hash) and the shared secrets.
pub fn verify_report_secret(
    presented: Option<&str>,
    job_token_hash: Option<&str>,
    secrets: &ReportSecrets,
) -> ReportAuth {
    let Some(presented) = presented.filter(|text| !text.is_empty()) else {
        return ReportAuth::Missing;
    };
    let digest = sha256(presented);
    let is_job_token = job_token_hash.is_some_and(|hash| token_matches(presented, hash));
    let is_shared = matches(&digest, secrets.current.as_ref()) | matches(&digest, secrets.previous.as_ref());
    match (is_job_token, bool::from(is_shared)) {
        (true, _) => ReportAuth::JobToken,
        (false, true) => ReportAuth::SharedSecret,
        (false, false) => ReportAuth::Wrong,
    }
}

fn matches(digest: &[u8; 32], secret: Option<&[u8; 32]>) -> Choice {
    secret.map_or(Choice::from(0), |secret| digest.ct_eq(secret))
}
