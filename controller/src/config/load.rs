//! Loading of settings: the source with the highest precedence that sets a setting decides.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::definition::{AnySetting, Definition, Setting, SettingDefault, SettingKind};
use super::error::{ConfigErrors, Origin, Problem};
use super::suggest::nearest;
use super::table::{self, SETTINGS};
use super::{Settings, Shown, file, rules};

/// Shown in place of a secret that is not a reference.
const REDACTED: &str = "(redacted)";

/// The sources of a configuration.
pub struct Sources<'a> {
    /// Flags as pairs of the setting's name (its variable) and the text.
    pub flags: Vec<(String, String)>,
    /// Returns the value of an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// The configuration file, if one was given.
    pub file: Option<PathBuf>,
}

impl Settings {
    /// Reads and checks all settings.
    ///
    /// # Errors
    /// [`ConfigErrors`] with all problems, each with its origin.
    pub fn load(sources: &Sources<'_>) -> Result<Self, ConfigErrors> {
        let mut raw = RawSettings::gather(sources);
        raw.check_each();
        let found = rules::check(&raw);
        raw.problems.extend(found);
        if !raw.problems.is_empty() {
            return Err(ConfigErrors(raw.problems));
        }
        Ok(Self {
            controller_http_addr: raw.required(&table::CONTROLLER_HTTP_ADDR)?,
            media_http_addr: raw.get(&table::MEDIA_HTTP_ADDR),
            media_base_url: raw.get(&table::MEDIA_BASE_URL),
            controller_public_url: raw.get(&table::CONTROLLER_PUBLIC_URL),
            controller_ca_file: raw.get(&table::CONTROLLER_CA_FILE),
            storage_root: raw.required(&table::STORAGE_ROOT)?,
            db_path: raw.required(&table::DB_PATH)?,
            task_iso_dir: raw.required(&table::TASK_ISO_DIR)?,
            task_iso_mode: raw.required(&table::TASK_ISO_MODE)?,
            maintenance_iso_url: raw.get(&table::MAINTENANCE_ISO_URL),
            esxi_installer_url: raw.get(&table::ESXI_INSTALLER_URL),
            enable_registry: raw.required(&table::ENABLE_REGISTRY)?,
            registry_storage: raw.required(&table::REGISTRY_STORAGE)?,
            registry_max_blob_size: raw.required(&table::REGISTRY_MAX_BLOB_SIZE)?,
            registry_reserve: raw.required(&table::REGISTRY_RESERVE)?,
            registry_gc_interval: raw.required(&table::REGISTRY_GC_INTERVAL)?,
            registry_gc_grace_period: raw.required(&table::REGISTRY_GC_GRACE_PERIOD)?,
            registry_gc_untagged: raw.required(&table::REGISTRY_GC_UNTAGGED)?,
            registry_scrub_interval: raw.required(&table::REGISTRY_SCRUB_INTERVAL)?,
            registry_scrub_rate: raw.required(&table::REGISTRY_SCRUB_RATE)?,
            registry_retention: raw.get(&table::REGISTRY_RETENTION).unwrap_or_default(),
            registry_quotas: raw.get(&table::REGISTRY_QUOTAS).unwrap_or_default(),
            registry_read_only: raw.required(&table::REGISTRY_READ_ONLY)?,
            registry_htpasswd_file: raw.get(&table::REGISTRY_HTPASSWD_FILE),
            registry_access_file: raw.get(&table::REGISTRY_ACCESS_FILE),
            registry_anonymous_read: raw.required(&table::REGISTRY_ANONYMOUS_READ)?,
            registry_anonymous_write: raw.required(&table::REGISTRY_ANONYMOUS_WRITE)?,
            registry_immutable_tags: raw.get(&table::REGISTRY_IMMUTABLE_TAGS).unwrap_or_default(),
            registry_sparse_images: raw.get(&table::REGISTRY_SPARSE_IMAGES).unwrap_or_default(),
            auth_mode: raw.required(&table::AUTH_MODE)?,
            auth_none_allow_remote: raw.required(&table::AUTH_NONE_ALLOW_REMOTE)?,
            basic_user: raw.get(&table::BASIC_USER),
            basic_pass_hash: raw.get(&table::BASIC_PASS_HASH),
            jwt_secret: raw.get(&table::JWT_SECRET),
            webhook_secret: raw.get(&table::WEBHOOK_SECRET),
            webhook_secret_old: raw.get(&table::WEBHOOK_SECRET_OLD),
            master_key: raw.get(&table::MASTER_KEY),
            metrics_anonymous: raw.required(&table::METRICS_ANONYMOUS)?,
            max_body_bytes: raw.required(&table::MAX_BODY_BYTES)?,
            worker_concurrency: raw.required(&table::WORKER_CONCURRENCY)?,
            max_power_ons: raw.required(&table::MAX_POWER_ONS)?,
            power_on_settle: raw.required(&table::POWER_ON_SETTLE)?,
            site_limit: raw.required(&table::SITE_LIMIT)?,
            step_timeouts: raw.get(&table::STEP_TIMEOUTS).unwrap_or_default(),
            redfish_timeout: raw.required(&table::REDFISH_TIMEOUT)?,
            redfish_retries: raw.required(&table::REDFISH_RETRIES)?,
            redfish_rate: raw.required(&table::REDFISH_RATE)?,
            redfish_max_in_flight: raw.required(&table::REDFISH_MAX_IN_FLIGHT)?,
            redfish_breaker_failures: raw.required(&table::REDFISH_BREAKER_FAILURES)?,
            redfish_breaker_open_time: raw.required(&table::REDFISH_BREAKER_OPEN_TIME)?,
            redfish_ca_file: raw.get(&table::REDFISH_CA_FILE),
            job_lease_ttl: raw.required(&table::JOB_LEASE_TTL)?,
            job_stuck_timeout: raw.required(&table::JOB_STUCK_TIMEOUT)?,
            job_retention_days: raw.required(&table::JOB_RETENTION_DAYS)?,
            install_min_time: raw.required(&table::INSTALL_MIN_TIME)?,
            install_window: raw.required(&table::INSTALL_WINDOW)?,
            cleanup_timeout: raw.required(&table::CLEANUP_TIMEOUT)?,
            log_level: raw.required(&table::LOG_LEVEL)?,
            log_format: raw.required(&table::LOG_FORMAT)?,
            shown: raw.show(),
        })
    }
}

/// The texts of all settings that a source sets, before they are parsed.
pub(super) struct RawSettings {
    given: BTreeMap<&'static str, (String, Origin)>,
    problems: Vec<Problem>,
}

impl RawSettings {
    /// Collects the texts, from the highest precedence to the lowest.
    fn gather(sources: &Sources<'_>) -> Self {
        let mut raw = Self { given: BTreeMap::new(), problems: Vec::new() };
        raw.take_flags(&sources.flags);
        raw.take_environment(sources.environment);
        if let Some(path) = &sources.file {
            let (values, problems) = file::read(path);
            raw.problems.extend(problems);
            raw.take_file(values);
        }
        raw.refuse_prefixed(sources.environment);
        raw
    }

    fn take_flags(&mut self, flags: &[(String, String)]) {
        for (name, text) in flags {
            let Some(definition) = definitions().find(|definition| definition.name == name) else {
                let suggestion = nearest(name, definitions().map(|definition| definition.name));
                self.problems.push(Problem::Unknown {
                    origin: Origin::Flag(name.clone()),
                    suggestion: suggestion.map(str::to_owned),
                });
                continue;
            };
            let origin = Origin::Flag(definition.flag());
            if matches!(definition.kind, SettingKind::Secret) && !is_reference(text) {
                let reason = "arguments are visible to all users of this machine: give env:NAME or file:PATH";
                self.invalid(definition, origin.clone(), None, reason);
            }
            self.given.insert(definition.name, (text.clone(), origin));
        }
    }

    fn take_environment(&mut self, environment: &dyn Fn(&str) -> Option<OsString>) {
        for definition in definitions() {
            let Some(value) = environment(definition.name) else { continue };
            // Service managers and container files write `NAME=` for an unset variable. An empty secret is refused,
            // because it would silently disable a check.
            if value.is_empty() && !definition.secret() {
                continue;
            }
            let origin = Origin::Environment(definition.name.to_owned());
            match value.into_string() {
                Ok(text) => self.offer(definition, text, origin),
                Err(_) => self.invalid(definition, origin, None, "give UTF-8 text"),
            }
        }
    }

    fn take_file(&mut self, values: Vec<file::FileValue>) {
        for value in values {
            let Some(definition) = definitions().find(|definition| definition.key() == value.key) else {
                let keys: Vec<String> = definitions().map(Definition::key).collect();
                let suggestion = nearest(&value.key, keys.iter().map(String::as_str)).map(str::to_owned);
                self.problems.push(Problem::Unknown { origin: value.origin, suggestion });
                continue;
            };
            match value.text {
                Ok(text) => self.offer(definition, text, value.origin),
                Err(kind) => {
                    let reason = format!("the value is {kind}: give a {} as text", definition.kind);
                    self.invalid(definition, value.origin, None, &reason);
                }
            }
        }
    }

    /// Refuses variables such as `SHOAL_DB_PATH`, which would be silently ignored although `DB_PATH` was meant. A variable
    /// to which a secret setting refers may have such a name.
    fn refuse_prefixed(&mut self, environment: &dyn Fn(&str) -> Option<OsString>) {
        for definition in definitions() {
            let name = format!("SHOAL_{}", definition.name);
            let referred = self.given.values().any(|(text, _)| text.strip_prefix("env:") == Some(&name));
            if environment(&name).is_some() && !referred {
                let suggestion = Some(definition.name.to_owned());
                self.problems.push(Problem::Unknown { origin: Origin::Environment(name), suggestion });
            }
        }
    }

    fn offer(&mut self, definition: &'static Definition, text: String, origin: Origin) {
        self.given.entry(definition.name).or_insert((text, origin));
    }

    fn invalid(&mut self, definition: &Definition, origin: Origin, value: Option<String>, reason: &str) {
        self.problems.push(Problem::InvalidValue {
            name: definition.name,
            origin,
            value,
            reason: reason.to_owned(),
        });
    }

    /// Checks the text of every setting.
    fn check_each(&mut self) {
        for setting in SETTINGS {
            let definition = setting.definition();
            let Some((text, origin)) = self.text(definition) else { continue };
            if let Err(error) = setting.check(&text) {
                let value = (!definition.secret()).then_some(text);
                self.invalid(definition, origin, value, &error.to_string());
            }
        }
    }

    /// The text of a setting with its origin.
    fn text(&self, definition: &Definition) -> Option<(String, Origin)> {
        if let Some(given) = self.given.get(definition.name) {
            return Some(given.clone());
        }
        let text = match definition.default {
            SettingDefault::Unset => return None,
            SettingDefault::Text(text) => text.to_owned(),
            SettingDefault::UnderStorageRoot(path) => {
                let (root, _) = self.text(table::STORAGE_ROOT.definition())?;
                format!("{}/{path}", root.trim_end_matches('/'))
            }
        };
        Some((text, Origin::Default))
    }

    /// The value of a setting. `None` when it is unset or not valid; an invalid value is reported as a problem elsewhere.
    pub(super) fn get<T>(&self, setting: &Setting<T>) -> Option<T> {
        let (text, _) = self.text(&setting.definition)?;
        (setting.parse)(setting.definition.kind, &text).ok()
    }

    /// Whether a source sets the setting, with a valid value or not.
    pub(super) fn is_set<T>(&self, setting: &Setting<T>) -> bool {
        self.given.contains_key(setting.definition.name)
    }

    /// The origin of a setting's value.
    pub(super) fn origin<T>(&self, setting: &Setting<T>) -> Origin {
        self.text(&setting.definition).map_or(Origin::Default, |(_, origin)| origin)
    }

    fn required<T>(&self, setting: &Setting<T>) -> Result<T, ConfigErrors> {
        self.get(setting).ok_or_else(|| {
            ConfigErrors(vec![Problem::Conflict {
                origin: self.origin(setting),
                message: format!("{} has no value; give one", setting.definition.name),
            }])
        })
    }

    fn show(&self) -> Vec<Shown> {
        definitions()
            .map(|definition| {
                let (text, origin) = self.text(definition).unwrap_or((String::new(), Origin::Default));
                let value = match definition.kind {
                    _ if text.is_empty() => text,
                    SettingKind::Secret if is_reference(&text) => text,
                    SettingKind::Secret | SettingKind::PasswordHash => REDACTED.to_owned(),
                    SettingKind::ImageUrl => without_credentials(&text),
                    _ => text,
                };
                Shown { name: definition.name, value, origin }
            })
            .collect()
    }
}

fn definitions() -> impl Iterator<Item = &'static Definition> {
    SETTINGS.into_iter().map(|setting| setting.definition())
}

fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// A URL without user, password and query, because they may be secret.
fn without_credentials(text: &str) -> String {
    match url::Url::parse(text) {
        Ok(url) if url.host().is_some() => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        _ => text.to_owned(),
    }
}
