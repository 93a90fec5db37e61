//! The fields of a server that a client may set. All problems are reported in one response.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::openapi::types;
use bmc::{checked_base_url, checked_bmc_address, checked_fingerprint, checked_profile, checked_quirks};
use model::{Server, TlsMode};

/// The maximum of labels.
const MAX_LABELS: usize = 32;
/// The longest key or value of a label, in bytes.
const MAX_LABEL: usize = 128;
/// The longest user name, password and vendor.
const MAX_TEXT: usize = 256;

/// The longest network of a server, in bytes.
const MAX_NETWORK: usize = 32 << 10;

/// The fields of a new server that a request must have.
const REQUIRED: [&str; 4] = ["serial", "bmc_address", "bmc_username", "bmc_password"];

/// The fields of a request: a merge patch (RFC 7396), where an absent field is unchanged and null clears it.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ServerPatch")]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerFields {
    /// The serial number; it cannot be changed.
    #[schemars(with = "Option<types::SerialNumber>")]
    pub(super) serial: Option<String>,
    /// The address of the BMC: a host, or an `http` or `https` URL.
    bmc_address: Option<String>,
    /// The user name, without colon.
    #[schemars(length(min = 1, max = MAX_TEXT))]
    bmc_username: Option<String>,
    /// The password, which is stored encrypted and never returned. A change of the address, a weaker check of the certificate
    /// and another certificate need it in the same request.
    #[schemars(with = "Option<String>")]
    bmc_password: Option<SecretString>,
    /// The vendor, for operators.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", length(max = MAX_TEXT))]
    vendor: Option<Option<String>>,
    /// The profile to use instead of the detected one.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    bmc_profile: Option<Option<String>>,
    /// Flags of the profile to override; a null flag is removed.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<types::Object>")]
    quirks: Option<Option<Map<String, Value>>>,
    /// The network of the machine, for jobs whose recipe has none: the field `network` of a recipe. It replaces the former one as a
    /// whole; null removes it.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<types::Object>")]
    network: Option<Option<Map<String, Value>>>,
    /// Labels; a null label is removed.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<BTreeMap<String, Option<String>>>")]
    labels: Option<Option<BTreeMap<String, Option<String>>>>,
    #[schemars(with = "Option<types::TlsMode>")]
    tls: Option<String>,
    /// The SHA-256 fingerprint of the certificate; null accepts the next certificate that the BMC shows.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    tls_fingerprint: Option<Option<String>>,
    /// Whether a BMC that shows no serial number is accepted.
    allow_unverified_serial: Option<bool>,
    /// The URL under which the BMC reads media.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    media_base_url: Option<Option<String>>,
}

/// The schema of the fields of a new server.
pub(crate) struct NewServer;

impl JsonSchema for NewServer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewServer".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = ServerFields::json_schema(generator);
        schema.insert("description".to_owned(), "A server to register.".into());
        schema.insert("required".to_owned(), REQUIRED.iter().copied().collect());
        schema
    }
}

/// Distinguishes a field that is null from an absent one.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl ServerFields {
    /// The required fields of a new server that are absent.
    pub(super) fn missing(&self) -> Vec<Detail> {
        let given = [
            self.serial.is_some(),
            self.bmc_address.is_some(),
            self.bmc_username.is_some(),
            self.bmc_password.is_some(),
        ];
        let absent = REQUIRED.iter().zip(given).filter(|(_, given)| !given);
        absent
            .map(|(name, _)| Detail::new(&format!("/{name}"), Rule::Required, format!("{name} is required")))
            .collect()
    }

    /// Applies the fields to a server. The password is sealed under its serial number.
    pub(super) fn apply(self, api: &Api, server: &mut Server) -> Result<(), ApiError> {
        let resolver = &api.resolver;
        let mut problems = Vec::new();
        if let Some(network) = self.network {
            let given = network.map(Value::Object);
            let checked = given.as_ref().map(|network| api.services.schemas.network(network)).transpose();
            match (checked, given) {
                (Err(errors), _) => problems.extend(errors.into_iter().map(Detail::from)),
                (Ok(_), Some(given)) if given.to_string().len() > MAX_NETWORK => {
                    let message = format!("at most {MAX_NETWORK} bytes as JSON");
                    problems.push(Detail::new("/network", Rule::Length, message));
                }
                (Ok(_), given) => server.network = given.and_then(object),
            }
        }
        let mut refuse =
            |path: &str, rule: Rule, message: String| problems.push(Detail::new(path, rule, message));
        if let Some(address) = self.bmc_address {
            match checked_bmc_address(&address) {
                Ok(address) => server.bmc_address = address,
                Err(why) => refuse("/bmc_address", Rule::Format, why),
            }
        }
        if let Some(username) = self.bmc_username {
            if (1..=MAX_TEXT).contains(&username.len()) && !username.contains(':') {
                server.bmc_username = username;
            } else {
                refuse("/bmc_username", Rule::Length, format!("1 to {MAX_TEXT} characters without a colon"));
            }
        }
        if let Some(password) = &self.bmc_password {
            match resolver.seal(server.serial.as_str(), password) {
                Ok(sealed) => server.bmc_password = sealed.to_string(),
                Err(why) => refuse("/bmc_password", Rule::Length, why.to_string()),
            }
        }
        if let Some(vendor) = self.vendor {
            match vendor {
                Some(vendor) if vendor.len() > MAX_TEXT => {
                    refuse("/vendor", Rule::Length, format!("at most {MAX_TEXT} characters"));
                }
                vendor => server.vendor = vendor,
            }
        }
        if let Some(profile) = self.bmc_profile {
            match profile.as_deref().map_or(Ok(()), checked_profile) {
                Ok(()) => server.bmc_profile = profile,
                Err(why) => refuse("/bmc_profile", Rule::Enum, why),
            }
        }
        if let Some(quirks) = self.quirks {
            let merged = merge_quirks(server.quirks.take(), quirks);
            if let Err((flag, why)) = merged.as_ref().map_or(Ok(()), checked_quirks) {
                refuse(&format!("/quirks/{flag}"), Rule::Flag, why);
            }
            server.quirks = merged;
        }
        if let Some(labels) = self.labels {
            merge_labels(&mut server.labels, labels);
            let valid = server.labels.len() <= MAX_LABELS
                && server
                    .labels
                    .iter()
                    .all(|(key, value)| key.len() <= MAX_LABEL && value.len() <= MAX_LABEL);
            if !valid {
                refuse(
                    "/labels",
                    Rule::Labels,
                    format!("at most {MAX_LABELS} labels of at most {MAX_LABEL} bytes"),
                );
            }
        }
        if let Some(tls) = self.tls {
            match TlsMode::parse(&tls) {
                Some(mode) => server.tls = mode,
                None => refuse("/tls", Rule::Enum, "tls is one of verify, pinned, insecure".to_owned()),
            }
        }
        if let Some(fingerprint) = self.tls_fingerprint {
            match fingerprint.map(|text| checked_fingerprint(&text)).transpose() {
                Ok(fingerprint) => server.tls_fingerprint = fingerprint,
                Err(why) => refuse("/tls_fingerprint", Rule::Format, why),
            }
        }
        server.allow_unverified_serial =
            self.allow_unverified_serial.unwrap_or(server.allow_unverified_serial);
        if let Some(base) = self.media_base_url {
            match base.map(|base| checked_base_url(&base)).transpose() {
                Ok(base) => server.media_base_url = base,
                Err(why) => refuse("/media_base_url", Rule::Format, why),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(ApiError::invalid(problems)) }
    }

    /// Whether the request has a fingerprint of a certificate, or null in its place.
    pub(super) fn gives_fingerprint(&self) -> bool {
        self.tls_fingerprint.is_some()
    }

    /// The password in the request, to compare with a stored one.
    pub(super) fn password(&self) -> Option<SecretString> {
        self.bmc_password.clone()
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// A merge patch of flags: null removes a flag; null instead of the object removes all.
fn merge_quirks(
    quirks: Option<Map<String, Value>>,
    patch: Option<Map<String, Value>>,
) -> Option<Map<String, Value>> {
    let mut quirks = quirks.unwrap_or_default();
    for (flag, value) in patch? {
        match value {
            Value::Null => drop(quirks.remove(&flag)),
            value => drop(quirks.insert(flag, value)),
        }
    }
    (!quirks.is_empty()).then_some(quirks)
}

fn merge_labels(labels: &mut BTreeMap<String, String>, patch: Option<BTreeMap<String, Option<String>>>) {
    let Some(patch) = patch else { return labels.clear() };
    for (key, value) in patch {
        match value {
            Some(value) => drop(labels.insert(key, value)),
            None => drop(labels.remove(&key)),
        }
    }
}
