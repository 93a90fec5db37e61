//! Joining the sources: the first that says anything about a setting decides.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::definition::{AnySetting, Definition, Kind, Setting, SettingDefault};
use super::error::{ConfigErrors, Origin, Problem};
use super::suggest::nearest;
use super::table::{self, SETTINGS};
use super::{Settings, Shown, file, rules};

/// Shown in place of a secret that is not a reference.
const REDACTED: &str = "(redacted)";

/// What a configuration is read from.
pub struct Sources<'a> {
    /// Flags as (variable's name, text); whoever reads arguments knows which flag is which setting.
    pub flags: Vec<(String, String)>,
    /// The environment.
    pub environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// The configuration file, if one was named.
    pub file: Option<PathBuf>,
}

impl Settings {
    /// Reads and checks all settings.
    ///
    /// # Errors
    /// Every problem there is, each with its place.
    pub fn load(sources: &Sources<'_>) -> Result<Self, ConfigErrors> {
        let mut texts = RawSettings::gather(sources);
        texts.check_each();
        let found = rules::check(&texts);
        texts.problems.extend(found);
        if !texts.problems.is_empty() {
            return Err(ConfigErrors(texts.problems));
        }
        Ok(Self {
            controller_http_addr: texts.required(&table::CONTROLLER_HTTP_ADDR)?,
            media_http_addr: texts.get(&table::MEDIA_HTTP_ADDR),
            media_base_url: texts.get(&table::MEDIA_BASE_URL),
            controller_public_url: texts.get(&table::CONTROLLER_PUBLIC_URL),
            controller_ca_file: texts.get(&table::CONTROLLER_CA_FILE),
            storage_root: texts.required(&table::STORAGE_ROOT)?,
            db_path: texts.required(&table::DB_PATH)?,
            task_iso_dir: texts.required(&table::TASK_ISO_DIR)?,
            task_iso_mode: texts.required(&table::TASK_ISO_MODE)?,
            maintenance_iso_url: texts.get(&table::MAINTENANCE_ISO_URL),
            esxi_installer_url: texts.get(&table::ESXI_INSTALLER_URL),
            enable_registry: texts.required(&table::ENABLE_REGISTRY)?,
            registry_storage: texts.required(&table::REGISTRY_STORAGE)?,
            registry_max_blob_size: texts.required(&table::REGISTRY_MAX_BLOB_SIZE)?,
            registry_reserve: texts.required(&table::REGISTRY_RESERVE)?,
            registry_gc_interval: texts.required(&table::REGISTRY_GC_INTERVAL)?,
            registry_gc_grace_period: texts.required(&table::REGISTRY_GC_GRACE_PERIOD)?,
            registry_gc_untagged: texts.required(&table::REGISTRY_GC_UNTAGGED)?,
            registry_scrub_interval: texts.required(&table::REGISTRY_SCRUB_INTERVAL)?,
            registry_scrub_rate: texts.required(&table::REGISTRY_SCRUB_RATE)?,
            registry_retention: texts.get(&table::REGISTRY_RETENTION).unwrap_or_default(),
            registry_quotas: texts.get(&table::REGISTRY_QUOTAS).unwrap_or_default(),
            registry_read_only: texts.required(&table::REGISTRY_READ_ONLY)?,
            registry_htpasswd_file: texts.get(&table::REGISTRY_HTPASSWD_FILE),
            registry_access_file: texts.get(&table::REGISTRY_ACCESS_FILE),
            registry_anonymous_read: texts.required(&table::REGISTRY_ANONYMOUS_READ)?,
            registry_anonymous_write: texts.required(&table::REGISTRY_ANONYMOUS_WRITE)?,
            registry_immutable_tags: texts.get(&table::REGISTRY_IMMUTABLE_TAGS).unwrap_or_default(),
            registry_sparse_images: texts.get(&table::REGISTRY_SPARSE_IMAGES).unwrap_or_default(),
            auth_mode: texts.required(&table::AUTH_MODE)?,
            auth_none_allow_remote: texts.required(&table::AUTH_NONE_ALLOW_REMOTE)?,
            basic_user: texts.get(&table::BASIC_USER),
            basic_pass_hash: texts.get(&table::BASIC_PASS_HASH),
            jwt_secret: texts.get(&table::JWT_SECRET),
            webhook_secret: texts.get(&table::WEBHOOK_SECRET),
            webhook_secret_old: texts.get(&table::WEBHOOK_SECRET_OLD),
            master_key: texts.get(&table::MASTER_KEY),
            metrics_anonymous: texts.required(&table::METRICS_ANONYMOUS)?,
            max_body_bytes: texts.required(&table::MAX_BODY_BYTES)?,
            worker_concurrency: texts.required(&table::WORKER_CONCURRENCY)?,
            max_power_ons: texts.required(&table::MAX_POWER_ONS)?,
            power_on_settle: texts.required(&table::POWER_ON_SETTLE)?,
            site_limit: texts.required(&table::SITE_LIMIT)?,
            step_timeouts: texts.get(&table::STEP_TIMEOUTS).unwrap_or_default(),
            redfish_timeout: texts.required(&table::REDFISH_TIMEOUT)?,
            redfish_retries: texts.required(&table::REDFISH_RETRIES)?,
            redfish_rate: texts.required(&table::REDFISH_RATE)?,
            redfish_max_in_flight: texts.required(&table::REDFISH_MAX_IN_FLIGHT)?,
            redfish_breaker_failures: texts.required(&table::REDFISH_BREAKER_FAILURES)?,
            redfish_breaker_open_time: texts.required(&table::REDFISH_BREAKER_OPEN_TIME)?,
            redfish_ca_file: texts.get(&table::REDFISH_CA_FILE),
            job_lease_ttl: texts.required(&table::JOB_LEASE_TTL)?,
            job_stuck_timeout: texts.required(&table::JOB_STUCK_TIMEOUT)?,
            job_retention_days: texts.required(&table::JOB_RETENTION_DAYS)?,
            install_min_time: texts.required(&table::INSTALL_MIN_TIME)?,
            install_window: texts.required(&table::INSTALL_WINDOW)?,
            cleanup_timeout: texts.required(&table::CLEANUP_TIMEOUT)?,
            log_level: texts.required(&table::LOG_LEVEL)?,
            log_format: texts.required(&table::LOG_FORMAT)?,
            shown: texts.show(),
        })
    }
}

/// The text of every setting that somebody set, before it means anything.
pub(super) struct RawSettings {
    given: BTreeMap<&'static str, (String, Origin)>,
    problems: Vec<Problem>,
}

impl RawSettings {
    /// Collects from the strongest source to the weakest.
    fn gather(sources: &Sources<'_>) -> Self {
        let mut texts = Self { given: BTreeMap::new(), problems: Vec::new() };
        texts.take_flags(&sources.flags);
        texts.take_environment(sources.environment);
        if let Some(path) = &sources.file {
            let (values, problems) = file::read(path);
            texts.problems.extend(problems);
            texts.take_file(values);
        }
        texts.refuse_prefixed(sources.environment);
        texts
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
            if matches!(definition.kind, Kind::Secret) && !is_reference(text) {
                let reason = "arguments are visible to everybody on this machine: give env:NAME or file:PATH";
                self.unusable(definition, origin.clone(), None, reason);
            }
            self.given.insert(definition.name, (text.clone(), origin));
        }
    }

    fn take_environment(&mut self, environment: &dyn Fn(&str) -> Option<OsString>) {
        for definition in definitions() {
            let Some(value) = environment(definition.name) else { continue };
            // `NAME=` is how service managers and container files leave a variable out. An empty secret is refused all
            // the same: the check it was meant for would silently be off.
            if value.is_empty() && !definition.secret() {
                continue;
            }
            let origin = Origin::Environment(definition.name.to_owned());
            match value.into_string() {
                Ok(text) => self.offer(definition, text, origin),
                Err(_) => self.unusable(definition, origin, None, "give UTF-8 text"),
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
                    let reason = format!("{kind} stands there: give a {} as text", definition.kind);
                    self.unusable(definition, value.origin, None, &reason);
                }
            }
        }
    }

    /// `SHOAL_DB_PATH` would be ignored without a word, although its writer meant `DB_PATH`. A variable that a secret
    /// setting refers to may have such a name.
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

    fn unusable(&mut self, definition: &Definition, origin: Origin, value: Option<String>, reason: &str) {
        self.problems.push(Problem::Unusable {
            name: definition.name,
            origin,
            value,
            reason: reason.to_owned(),
        });
    }

    /// Tries every text that was given.
    fn check_each(&mut self) {
        for setting in SETTINGS {
            let definition = setting.definition();
            let Some((text, origin)) = self.text(definition) else { continue };
            if let Err(error) = setting.check(&text) {
                let value = (!definition.secret()).then_some(text);
                self.unusable(definition, origin, value, &error.to_string());
            }
        }
    }

    /// A setting's text and where it comes from.
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

    /// A setting's value; nothing when it is unset or cannot be used (which is a problem already).
    pub(super) fn get<T>(&self, setting: &Setting<T>) -> Option<T> {
        let (text, _) = self.text(&setting.definition)?;
        (setting.parse)(setting.definition.kind, &text).ok()
    }

    /// Whether somebody set it, usable or not.
    pub(super) fn is_set<T>(&self, setting: &Setting<T>) -> bool {
        self.given.contains_key(setting.definition.name)
    }

    /// Where a setting's value comes from.
    pub(super) fn origin<T>(&self, setting: &Setting<T>) -> Origin {
        self.text(&setting.definition).map_or(Origin::Default, |(_, origin)| origin)
    }

    fn required<T>(&self, setting: &Setting<T>) -> Result<T, ConfigErrors> {
        self.get(setting).ok_or_else(|| {
            ConfigErrors(vec![Problem::Together {
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
                    Kind::Secret if is_reference(&text) => text,
                    Kind::Secret | Kind::PasswordHash => REDACTED.to_owned(),
                    Kind::ImageUrl => without_credentials(&text),
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

/// A location without user, password and query, any of which may be secret.
fn without_credentials(text: &str) -> String {
    match url::Url::parse(text) {
        Ok(url) if url.host().is_some() => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        _ => text.to_owned(),
    }
}
