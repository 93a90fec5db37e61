//! Settings of the BIOS: attributes, checked against the registry of the BIOS.
//!
//! ```text
//!   bios ─► check_bios (registry) ─► set_bios: PATCH Bios/Settings {"Attributes": {…}, "@Redfish.SettingsApplyTime": …}
//!                                        └─► read back: is_set ─► restart of the host ─► is_in_force
//! ```
//!
//! Specification: DSP0268 Bios, AttributeRegistry.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::bmc::{Bmc, ChangeResult};
use crate::discovery::SystemInfo;
use crate::endpoint::SERVICE_ROOT;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::json;
use crate::settings::{AttributeProblem, AttributeRegistry, SettingsView, apply_time};
use crate::update::ApplyTime;
use crate::update::service::is_absent;

const READ: Operation = Operation::ReadSettings;
const WRITE: Operation = Operation::WriteSettings;
const ATTRIBUTES: &str = "Attributes";
/// Maximum number of registries that are looked at.
const MAX_REGISTRIES: usize = 64;

/// The settings of a BIOS.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bios {
    /// Path of the resource.
    pub uri: String,
    /// The id of the attribute registry.
    pub registry: Option<String>,
    /// The attributes.
    pub settings: SettingsView,
}

/// The result of a check of wanted attributes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BiosCheck {
    /// The registry accepts every value.
    Fits,
    /// The registry refuses these values.
    Problems(Vec<AttributeProblem>),
    /// The BMC shows no registry that can be read: it will judge the values itself.
    Unverified {
        /// The reason why the registry cannot be read.
        why: String,
    },
}

impl Bmc {
    /// Reads the settings of the BIOS: two or three requests.
    ///
    /// # Errors
    ///
    /// `NotSupported` when the system shows no BIOS; else when a read fails.
    pub async fn bios(&self, system: &SystemInfo) -> Result<Bios, RedfishError> {
        let system = self.core.cached(READ, &system.uri).await?;
        let Some(uri) = json::link(&system.fields, "Bios") else {
            return Err(RedfishError::not_supported(READ, "the system shows no settings of its BIOS"));
        };
        let place = self.core.settings_resource(READ, &uri).await?;
        let registry = json::word(&place.resource.fields, "AttributeRegistry");
        Ok(Bios { uri, registry, settings: place.view(ATTRIBUTES) })
    }

    /// Checks wanted attributes against the registry of the BIOS.
    ///
    /// # Errors
    ///
    /// When the BMC stops responding; a registry that is missing or cannot be parsed is `Unverified`.
    pub async fn check_bios(
        &self,
        bios: &Bios,
        wanted: &Map<String, Value>,
    ) -> Result<BiosCheck, RedfishError> {
        Ok(match self.bios_registry(bios).await? {
            Err(why) => BiosCheck::Unverified { why },
            Ok(registry) => match registry.check(wanted) {
                problems if problems.is_empty() => BiosCheck::Fits,
                problems => BiosCheck::Problems(problems),
            },
        })
    }

    /// Reads the attribute registry of the BIOS; the inner error says why the BMC shows none that can be read.
    ///
    /// # Errors
    ///
    /// When the BMC stops responding.
    pub async fn bios_registry(
        &self,
        bios: &Bios,
    ) -> Result<Result<AttributeRegistry, String>, RedfishError> {
        let unverified = |why: &str| Ok(Err(why.to_owned()));
        let Some(id) = &bios.registry else { return unverified("the BIOS names no attribute registry") };
        match self.attribute_registry(id).await {
            Ok(Some(registry)) => Ok(Ok(registry)),
            Ok(None) => unverified("the BMC does not show this attribute registry"),
            Err(error) if is_absent(&error) => unverified("the attribute registry cannot be read"),
            Err(error) => Err(error),
        }
    }

    async fn attribute_registry(&self, id: &str) -> Result<Option<AttributeRegistry>, RedfishError> {
        let root = self.core.cached(READ, SERVICE_ROOT).await?;
        let Some(registries) = json::link(&root.fields, "Registries") else { return Ok(None) };
        let members = self.core.members_up_to(READ, &registries, MAX_REGISTRIES).await?;
        // Members are named by the registry without its version: "BiosAttributeRegistry.v1_0_0".
        let stem = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let named = |path: &str| {
            let last = json::last_segment(path);
            last.eq_ignore_ascii_case(id) || stem(last) == stem(id)
        };
        let Some(member) = members.into_iter().find(|member| named(&member.path)) else { return Ok(None) };
        let file = self.core.contents(READ, member).await?;
        let locations = file.fields.get("Location").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut uris =
            locations.iter().take(json::MAX_ENTRIES).filter_map(Value::as_object).filter_map(|location| {
                let uri = json::path_of(&json::word(location, "Uri")?)?;
                Some((json::word(location, "Language").unwrap_or_default(), uri))
            });
        let first = uris.next();
        let english = first.iter().cloned().chain(uris).find(|(language, _)| language.starts_with("en"));
        let Some((_, uri)) = english.or(first) else { return Ok(None) };
        let document = self.core.read(READ, &uri).await?;
        Ok(AttributeRegistry::of(&document.fields))
    }

    /// Brings attributes of the BIOS into the wanted state as far as that is possible without a restart of the host. Nothing is
    /// sent when every wanted value is current or pending.
    ///
    /// The result is confirmed when every value is in force or pending; a restart of the host applies pending values.
    ///
    /// # Errors
    ///
    /// `Config` when the BIOS has no attribute of a wanted name; `Refused` when the BMC does not accept a value; an error
    /// with [`RedfishError::maybe_applied`] when the values may have been written.
    pub async fn set_bios(
        &self,
        bios: &Bios,
        wanted: &Map<String, Value>,
        when: Option<ApplyTime>,
    ) -> Result<ChangeResult<SettingsView>, RedfishError> {
        let place = self.core.settings_resource(WRITE, &bios.uri).await?;
        let view = place.view(ATTRIBUTES);
        let unknown =
            wanted.keys().find(|name| !view.current.is_empty() && !view.current.contains_key(*name));
        if let Some(name) = unknown {
            let detail =
                format!("the BIOS has no attribute {}; names are case-sensitive", json::clip(name, 128));
            return Err(RedfishError::new(WRITE, ErrorKind::Config { detail }));
        }
        let diff = view.compare(wanted);
        if diff.is_set() {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: view });
        }
        let missing = |name: &String| diff.missing.contains(name);
        let values = wanted.iter().filter(|(name, _)| missing(name));
        let values = values.map(|(name, value)| (name.clone(), value.clone())).collect();
        let time = apply_time(&view.apply_times, when);
        let after = self.core.write_settings(WRITE, &place, ATTRIBUTES, values, time).await?;
        let observed = after.view(ATTRIBUTES);
        Ok(ChangeResult { changed: true, confirmed: observed.compare(wanted).is_set(), observed })
    }
}
