//! `job.json`: who this machine is, where it reports, and the secrets of one job.
//!
//! ```text
//! bytes --parse--> Job { job_id, server_serial, webhook_url + token, registry, controller_ca, created_at }
//! ```
//!
//! Invariants: unknown keys are ignored, so a newer controller serves an older medium. No secret is in `Debug`. The
//! struct is separate from that of the controller on purpose: with a shared one, a misspelt key would go unnoticed.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::former::FormerDisk;

/// Maximum length of a `job.json` in bytes: the certificate authorities of the controller have up to 4 MiB, and a network of many routes
/// some hundred kilobytes.
pub const MAX_JOB_BYTES: u64 = 8 * 1024 * 1024;

/// The content of `job.json`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Job {
    /// The job.
    pub job_id: Uuid,
    /// The serial number of the only machine that may act on the job.
    pub server_serial: String,
    /// The base of the controller's API.
    pub controller_url: String,
    /// The certificate authorities for `https` URLs of the controller, in PEM.
    #[serde(default)]
    pub controller_ca: Option<String>,
    /// The URL of reports.
    pub webhook_url: String,
    /// The job's own secret for reports.
    pub webhook_token: String,
    /// The right to pull the image from the controller's registry.
    #[serde(default)]
    pub registry: Option<PullAccess>,
    /// The `$id` of the schema of the recipe.
    pub recipe_schema_id: String,
    /// The time at which the job was accepted.
    pub created_at: Timestamp,
    /// The network of the server's record; `net::record` reads it. Without one the machine uses DHCP.
    #[serde(default)]
    pub network: Option<serde_json::Value>,
    /// The disk that the former attempt wrote, of a retry.
    #[serde(default)]
    pub disk_before: Option<FormerDisk>,
}

/// A registry and the credentials for one repository in it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct PullAccess {
    /// The URL of the registry.
    pub url: String,
    /// The user name.
    #[serde(default)]
    pub username: Option<String>,
    /// The password.
    #[serde(default)]
    pub password: Option<String>,
}

impl Job {
    /// Parses the bytes of a `job.json`.
    ///
    /// # Errors
    /// Returns a text without any value of the document when it is not JSON of the expected form.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        // The message of the parser can contain a value, which can be a secret; its place is enough.
        serde_json::from_slice(bytes).map_err(|source| {
            format!(
                "not a job: {:?} error at line {} column {}",
                source.classify(),
                source.line(),
                source.column()
            )
        })
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("job_id", &self.job_id)
            .field("server_serial", &self.server_serial)
            .field("webhook_url", &self.webhook_url)
            .field("registry", &self.registry)
            .field("created_at", &self.created_at)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PullAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullAccess")
            .field("url", &self.url)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::job_json;

    #[test]
    fn a_job_document_is_read_and_unknown_keys_are_ignored() {
        let mut document = job_json("SN1", "2026-01-02T03:04:05.678Z");
        document["later"] = serde_json::json!({"x": 1});
        let job = Job::parse(&serde_json::to_vec(&document).unwrap()).unwrap();
        assert_eq!(job.server_serial, "SN1");
        assert_eq!(job.registry.unwrap().username.as_deref(), Some("job"));
    }

    #[test]
    fn the_network_of_a_job_is_optional() {
        let mut document = job_json("SN1", "2026-01-02T03:04:05.678Z");
        for (network, present) in
            [(serde_json::Value::Null, false), (serde_json::json!({"version": 2}), true)]
        {
            document["network"] = network;
            let job = Job::parse(&serde_json::to_vec(&document).unwrap()).unwrap();
            assert_eq!(job.network.is_some(), present);
        }
    }

    #[test]
    fn the_disk_of_a_former_attempt_is_optional_and_so_are_its_members() {
        let mut document = job_json("SN1", "2026-01-02T03:04:05.678Z");
        let former = |document: &serde_json::Value| {
            Job::parse(&serde_json::to_vec(document).unwrap()).unwrap().disk_before
        };
        assert_eq!(former(&document), None);
        document["disk_before"] = serde_json::json!({"serial": "S1", "later": 1});
        let expected = FormerDisk { serial: Some("S1".to_owned()), wwn: None };
        assert_eq!(former(&document), Some(expected));
    }

    #[test]
    fn a_damaged_job_is_refused_without_quoting_it() {
        let mut document = job_json("SN1", "2026-01-02T03:04:05.678Z");
        document["created_at"] = "secret-value".into();
        let refused = Job::parse(&serde_json::to_vec(&document).unwrap()).unwrap_err();
        assert!(refused.starts_with("not a job") && !refused.contains("secret-value"), "{refused}");
    }

    #[test]
    fn no_secret_is_printed() {
        let document = serde_json::to_vec(&job_json("SN1", "2026-01-02T03:04:05.678Z")).unwrap();
        let shown = format!("{:?}", Job::parse(&document).unwrap());
        assert!(!shown.contains("report-secret") && !shown.contains("pull-secret"), "{shown}");
    }
}
