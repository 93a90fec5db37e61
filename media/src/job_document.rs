//! `job.json` and the other files of a task image, rendered from what a job knows.
//!
//! ```text
//! always                              when the recipe brings them
//! job.json            who, whereto    user-data  meta-data  [network-config]  [vendor-data]     cloud-init NoCloud
//! recipe.json         as it was sent  unattend.xml  autounattend.xml  (one text, two names)     Windows
//! recipe.schema.json  its schema      ks.cfg                                                    Kickstart
//! ```
//!
//! Invariants: the same input gives the same bytes; the keys of `job.json` are exactly those below, in this order, and
//! are always all present; what is secret in it is worth this one job and is never printed.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

/// What the maintenance OS learns about its job. Serialised in the order of the fields.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDocument {
    /// The job.
    pub job_id: Uuid,
    /// The machine that may act on it; the maintenance OS compares it with its own.
    pub server_serial: String,
    /// Where the controller's API is.
    pub controller_url: String,
    /// The certificate authority of the controller, PEM.
    pub controller_ca: Option<String>,
    /// Where to report.
    pub webhook_url: String,
    /// The job's own secret for reports.
    pub webhook_token: String,
    /// Where the recipe's images are pulled from.
    pub registry: Option<PullAccess>,
    /// The `$id` of `recipe.schema.json`.
    pub recipe_schema_id: String,
    /// When the job was accepted; in text RFC 3339 with milliseconds.
    #[serde(serialize_with = "milliseconds")]
    pub created_at: Timestamp,
    /// The version of the controller that wrote this.
    pub shoal_version: String,
}

/// A right to pull from one repository, ended with the grant.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullAccess {
    /// Where the registry is.
    pub url: String,
    /// Its user.
    pub username: String,
    /// The job's own password.
    pub password: String,
}

impl JobDocument {
    /// The bytes of `job.json`: no spaces, keys in the order of the fields, one newline at the end.
    ///
    /// # Errors
    /// Never in practice: every field has a form in JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl fmt::Debug for JobDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobDocument")
            .field("job_id", &self.job_id)
            .field("server_serial", &self.server_serial)
            .field("controller_url", &self.controller_url)
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

fn milliseconds<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ"))
}

/// Everything the files of a task image are made of.
#[derive(Clone, Copy)]
pub struct RenderInput<'a> {
    /// `job.json`.
    pub job: &'a JobDocument,
    /// The recipe as it was sent.
    pub recipe: &'a [u8],
    /// The schema it was checked against.
    pub recipe_schema: &'a [u8],
    /// cloud-init user data.
    pub user_data: Option<&'a [u8]>,
    /// cloud-init network configuration.
    pub network_config: Option<&'a [u8]>,
    /// cloud-init vendor data.
    pub vendor_data: Option<&'a [u8]>,
    /// A Windows answer file.
    pub unattend_xml: Option<&'a [u8]>,
    /// A Kickstart file.
    pub ks_cfg: Option<&'a [u8]>,
}

impl fmt::Debug for RenderInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderInput").field("job", &self.job).finish_non_exhaustive()
    }
}

/// The files of a task image by name, in the order of their names.
///
/// cloud-init ignores a NoCloud volume without `user-data` or `meta-data`. So a recipe with only a network
/// configuration or vendor data gets an empty user-data beside it.
///
/// # Errors
/// Never in practice: see [`JobDocument::to_bytes`].
pub fn render(input: &RenderInput<'_>) -> Result<Vec<(String, Vec<u8>)>, serde_json::Error> {
    let mut files = vec![
        ("job.json", input.job.to_bytes()?),
        ("recipe.json", input.recipe.to_vec()),
        ("recipe.schema.json", input.recipe_schema.to_vec()),
    ];
    if input.user_data.or(input.network_config).or(input.vendor_data).is_some() {
        files.push(("user-data", input.user_data.unwrap_or(b"#cloud-config\n").to_vec()));
        files.push(("meta-data", meta_data(input.job).into_bytes()));
    }
    let optional = [
        ("network-config", input.network_config),
        ("vendor-data", input.vendor_data),
        ("unattend.xml", input.unattend_xml),
        ("autounattend.xml", input.unattend_xml),
        ("ks.cfg", input.ks_cfg),
    ];
    files.extend(optional.into_iter().filter_map(|(name, bytes)| bytes.map(|bytes| (name, bytes.to_vec()))));
    files.sort_by_key(|(name, _)| *name);
    Ok(files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect())
}

fn meta_data(job: &JobDocument) -> String {
    let hostname = hostname(&job.server_serial);
    // A service tag like 7E12345 is a number in YAML, and cloud-init wants a text.
    let text = hostname.starts_with(|first: char| first.is_ascii_lowercase())
        && !YAML_WORDS.contains(&hostname.as_str());
    let hostname = if text { hostname } else { format!("\"{hostname}\"") };
    format!("instance-id: {}\nlocal-hostname: {hostname}\n", job.job_id)
}

/// Plain words that YAML reads as something else than a text.
const YAML_WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// A serial as one label of a host name (RFC 1123): lower case, other characters as hyphens, at most 63.
fn hostname(serial: &str) -> String {
    let mapped: String = serial
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let mut label = mapped.trim_matches('-').to_owned();
    label.truncate(63);
    let label = label.trim_end_matches('-');
    if label.is_empty() { "server".to_owned() } else { label.to_owned() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn document() -> JobDocument {
        JobDocument {
            job_id: Uuid::parse_str("0198c0de-0000-7000-8000-0123456789ab").unwrap(),
            server_serial: "SN 0001/A".into(),
            controller_url: "https://192.0.2.1:8443".into(),
            controller_ca: None,
            webhook_url: "https://192.0.2.1:8443/api/v1/status-webhook/SN%200001%2FA".into(),
            webhook_token: "canary-webhook-token".into(),
            registry: Some(PullAccess {
                url: "https://192.0.2.1:8443".into(),
                username: "job".into(),
                password: "canary-pull-password".into(),
            }),
            recipe_schema_id: "https://shoal.dev/provisioner/recipe.schema.json".into(),
            created_at: "2026-01-02T03:04:05.006789Z".parse().unwrap(),
            shoal_version: "0.1.0".into(),
        }
    }

    fn input(job: &JobDocument) -> RenderInput<'_> {
        RenderInput {
            job,
            recipe: b"{}",
            recipe_schema: b"{\"$id\":\"x\"}",
            user_data: None,
            network_config: None,
            vendor_data: None,
            unattend_xml: None,
            ks_cfg: None,
        }
    }

    fn names(input: &RenderInput<'_>) -> Vec<String> {
        render(input).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_document_has_its_keys_in_order_and_ends_with_a_newline() {
        let text = String::from_utf8(document().to_bytes().unwrap()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"job_id":"0198c0de-0000-7000-8000-0123456789ab","server_serial":"SN 0001/A","#,
                r#""controller_url":"https://192.0.2.1:8443","controller_ca":null,"#,
                r#""webhook_url":"https://192.0.2.1:8443/api/v1/status-webhook/SN%200001%2FA","#,
                r#""webhook_token":"canary-webhook-token","#,
                r#""registry":{"url":"https://192.0.2.1:8443","username":"job","password":"canary-pull-password"},"#,
                r#""recipe_schema_id":"https://shoal.dev/provisioner/recipe.schema.json","#,
                r#""created_at":"2026-01-02T03:04:05.006Z","shoal_version":"0.1.0"}"#,
                "\n"
            )
        );
        let back: JobDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(back.to_bytes().unwrap(), text.as_bytes());
    }

    #[test]
    fn secrets_of_the_document_are_never_printed() {
        let job = document();
        assert!(!format!("{job:?} {:?}", input(&job)).contains("canary"));
    }

    #[test]
    fn only_what_the_recipe_brings_is_rendered() {
        let job = document();
        assert_eq!(names(&input(&job)), ["job.json", "recipe.json", "recipe.schema.json"]);
        let linux = RenderInput { user_data: Some(b"#cloud-config\n"), ..input(&job) };
        assert_eq!(
            names(&linux),
            ["job.json", "meta-data", "recipe.json", "recipe.schema.json", "user-data"]
        );
        let network = RenderInput { network_config: Some(b"version: 2\n"), ..input(&job) };
        assert_eq!(
            names(&network),
            ["job.json", "meta-data", "network-config", "recipe.json", "recipe.schema.json", "user-data"]
        );
        let windows = RenderInput { unattend_xml: Some(b"<unattend/>"), ..input(&job) };
        assert_eq!(
            names(&windows),
            ["autounattend.xml", "job.json", "recipe.json", "recipe.schema.json", "unattend.xml"]
        );
        let kickstart = RenderInput { ks_cfg: Some(b"text\n"), ..input(&job) };
        assert_eq!(names(&kickstart), ["job.json", "ks.cfg", "recipe.json", "recipe.schema.json"]);
    }

    #[test]
    fn meta_data_names_the_job_and_the_server() {
        let of = |serial: &str| meta_data(&JobDocument { server_serial: serial.into(), ..document() });
        let id = "instance-id: 0198c0de-0000-7000-8000-0123456789ab\nlocal-hostname: ";
        assert_eq!(of("SN 0001/A"), format!("{id}sn-0001-a\n"));
        assert_eq!(of("7E12345"), format!("{id}\"7e12345\"\n"));
        assert_eq!(of("NO"), format!("{id}\"no\"\n"));
        assert_eq!(of("--"), format!("{id}server\n"));
    }

    proptest! {
        #[test]
        fn a_host_name_is_one_legal_label(serial in ".{0,90}") {
            let label = hostname(&serial);
            prop_assert!((1..=63).contains(&label.len()));
            prop_assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            prop_assert!(!label.starts_with('-') && !label.ends_with('-'));
        }
    }
}
