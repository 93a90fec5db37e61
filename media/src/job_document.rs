//! `job.json` and the other files of a task image, rendered from the job and its recipe.
//!
//! ```text
//! always                              when the recipe contains them
//! job.json            job, addresses  user-data  meta-data  [network-config]  [vendor-data]     cloud-init NoCloud
//! recipe.json         as it was sent  unattend.xml  autounattend.xml  (one text, two names)     Windows
//! recipe.schema.json  its schema      ks.cfg                                                    Kickstart
//! ```
//!
//! Invariants: equal inputs give equal bytes; `job.json` has exactly the keys of [`JobDocument`], all of them, in this
//! order; the secrets in it are valid for this job only and are never printed.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

/// The content of `job.json`: the facts about its job that the maintenance OS reads. Serialised in the order of the fields.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDocument {
    /// The job.
    pub job_id: Uuid,
    /// The serial number of the target server; the maintenance OS compares it with that of its machine.
    pub server_serial: String,
    /// The URL of the controller's API.
    pub controller_url: String,
    /// The certificate authority of the controller, in PEM.
    pub controller_ca: Option<String>,
    /// The URL to which the maintenance OS sends installation reports.
    pub webhook_url: String,
    /// The report token of this job.
    pub webhook_token: String,
    /// The access to the registry with the OS images of the recipe.
    pub registry: Option<PullAccess>,
    /// The network of the maintenance OS, as the recipe has it; without one it uses DHCP.
    pub network: Option<serde_json::Value>,
    /// The disk that the former attempt wrote; of a retry. Other documents have no such key, so their bytes stay what they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_before: Option<FormerDisk>,
    /// The `$id` of `recipe.schema.json`.
    pub recipe_schema_id: String,
    /// The time at which the job was accepted; RFC 3339 with milliseconds.
    #[serde(serialize_with = "milliseconds")]
    pub created_at: Timestamp,
    /// The version of the controller that wrote the document.
    pub shoal_version: String,
}

/// The identity of the disk that an attempt wrote, as the machine reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerDisk {
    /// The serial number.
    pub serial: Option<String>,
    /// The WWN.
    pub wwn: Option<String>,
}

/// The right of one job to pull from one repository. It ends with the job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullAccess {
    /// The URL of the registry.
    pub url: String,
    /// The user name for the registry.
    pub username: String,
    /// The password of this job for the registry.
    pub password: String,
}

impl JobDocument {
    /// The bytes of `job.json`: no spaces, keys in the order of the fields, one newline at the end.
    ///
    /// # Errors
    /// Never in practice: JSON can express every field.
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

/// The inputs of the files of a task image.
#[derive(Clone, Copy)]
pub struct RenderInput<'a> {
    /// The content of `job.json`.
    pub job: &'a JobDocument,
    /// The recipe, byte for byte as the client sent it.
    pub recipe: &'a [u8],
    /// The schema against which the recipe was validated.
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
/// cloud-init ignores a NoCloud volume without `user-data` or `meta-data`. Therefore a recipe with only a network
/// configuration or vendor data also gets an empty `user-data`.
///
/// # Errors
/// Never in practice: JSON can express every field of [`JobDocument`].
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
    // A serial number like 7E12345 is a number in YAML, and cloud-init requires a string.
    let text = hostname.starts_with(|first: char| first.is_ascii_lowercase())
        && !YAML_WORDS.contains(&hostname.as_str());
    let hostname = if text { hostname } else { format!("\"{hostname}\"") };
    format!("instance-id: {}\nlocal-hostname: {hostname}\n", job.job_id)
}

/// Plain words that YAML does not parse as a string.
const YAML_WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// Converts a serial number to a host name label (RFC 1123): lower case, other characters as hyphens, at most 63 characters.
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
            network: None,
            disk_before: None,
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
                r#""network":null,"#,
                r#""recipe_schema_id":"https://shoal.dev/provisioner/recipe.schema.json","#,
                r#""created_at":"2026-01-02T03:04:05.006Z","shoal_version":"0.1.0"}"#,
                "\n"
            )
        );
        let back: JobDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(back.to_bytes().unwrap(), text.as_bytes());
    }

    #[test]
    fn the_network_of_the_recipe_is_in_the_document() {
        let network =
            serde_json::json!({"ethernets": {"lan": {"match": {"macaddress": "52:54:00:12:34:56"}}}});
        let job = JobDocument { network: Some(network), ..document() };
        let text = String::from_utf8(job.to_bytes().unwrap()).unwrap();
        assert!(
            text.contains(r#""network":{"ethernets":{"lan":{"match":{"macaddress":"52:54:00:12:34:56"}}}}"#)
        );
    }

    #[test]
    fn the_document_of_a_retry_names_the_disk_of_the_former_attempt() {
        let disk_before = Some(FormerDisk { serial: Some("S1".into()), wwn: None });
        let text = String::from_utf8(JobDocument { disk_before, ..document() }.to_bytes().unwrap()).unwrap();
        assert!(
            text.contains(r#""network":null,"disk_before":{"serial":"S1","wwn":null},"recipe_schema_id""#)
        );
    }

    #[test]
    fn secrets_of_the_document_are_never_printed() {
        let job = document();
        assert!(!format!("{job:?} {:?}", input(&job)).contains("canary"));
    }

    #[test]
    fn only_the_files_that_the_recipe_contains_are_rendered() {
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
        fn a_host_name_is_one_valid_label(serial in ".{0,90}") {
            let label = hostname(&serial);
            prop_assert!((1..=63).contains(&label.len()));
            prop_assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            prop_assert!(!label.starts_with('-') && !label.ends_with('-'));
        }
    }
}
