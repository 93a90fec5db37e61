//! Loading of settings: the source with the highest precedence that sets a setting decides.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::definition::{AnySetting, Definition, Setting, SettingDefault, SettingKind};
use super::error::{ConfigErrors, Origin, Problem};
use super::suggest::{misspelt, nearest};
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
    /// The names of all environment variables, of which one that looks like a setting and is none is refused.
    pub variables: Vec<String>,
    /// The configuration file, if one was given.
    pub file: Option<PathBuf>,
}

impl Settings {
    /// Reads and checks all settings.
    ///
    /// # Errors
    /// [`ConfigErrors`] with all problems, each with its origin.
    pub fn load(sources: &Sources<'_>) -> Result<Self, ConfigErrors> {
        Self::of(RawSettings::gather(sources, sources.file.as_deref().map(file::read)))
    }

    /// Reads and checks all settings with this text as the configuration file.
    pub(super) fn load_with_file_text(sources: &Sources<'_>, text: &str) -> Result<Self, ConfigErrors> {
        Self::of(RawSettings::gather(sources, Some(file::parse(text, Path::new("shoal.toml")))))
    }

    /// Reads and checks all settings, and what they refer to: a value that cannot be used hides no problem of another.
    ///
    /// # Errors
    /// Every problem, those of the configuration file by their lines.
    pub fn load_and_check(
        sources: &Sources<'_>,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigErrors> {
        let raw = RawSettings::gather(sources, sources.file.as_deref().map(file::read));
        let (settings, mut problems) = Self::examine(raw);
        if let Some(Err(more)) = settings.as_ref().map(|settings| settings.check_references(environment)) {
            problems.extend(more.0);
        }
        Self::without_problems(settings, problems)
    }

    fn of(raw: RawSettings) -> Result<Self, ConfigErrors> {
        let (settings, problems) = Self::examine(raw);
        Self::without_problems(settings, problems)
    }

    /// The settings, with the default in place of a value that cannot be used, and every problem.
    fn examine(mut raw: RawSettings) -> (Option<Self>, Vec<Problem>) {
        raw.check_each();
        let mut problems = std::mem::take(&mut raw.problems);
        problems.extend(rules::check(&raw));
        for problem in &problems {
            if let Problem::InvalidValue { name, .. } = problem {
                raw.given.remove(name);
            }
        }
        match Self::parse(&raw) {
            Ok(settings) => (Some(settings), problems),
            Err(more) => {
                problems.extend(more.0);
                (None, problems)
            }
        }
    }

    fn without_problems(settings: Option<Self>, mut problems: Vec<Problem>) -> Result<Self, ConfigErrors> {
        match settings {
            Some(settings) if problems.is_empty() => Ok(settings),
            _ => {
                problems.sort_by_key(Problem::line);
                Err(ConfigErrors(problems))
            }
        }
    }
}

/// The texts of all settings that a source sets, before they are parsed.
pub(super) struct RawSettings {
    given: BTreeMap<&'static str, (String, Origin)>,
    problems: Vec<Problem>,
}

impl RawSettings {
    /// Collects the texts, from the highest precedence to the lowest.
    fn gather(sources: &Sources<'_>, file: Option<(Vec<file::FileValue>, Vec<Problem>)>) -> Self {
        let mut raw = Self { given: BTreeMap::new(), problems: Vec::new() };
        raw.take_flags(&sources.flags);
        raw.take_environment(sources.environment);
        if let Some((values, problems)) = file {
            raw.problems.extend(problems);
            raw.take_file(values);
        }
        raw.refuse_misspelt(&sources.variables);
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

    /// Refuses variables such as `SHOAL_DB_PATH` and `WORKER_CONCURENCY`, which would be silently ignored although a setting was
    /// meant. A variable to which a secret setting refers may have any name.
    fn refuse_misspelt(&mut self, variables: &[String]) {
        for variable in variables {
            let known = definitions().any(|definition| definition.name == variable);
            let referred =
                || self.given.values().any(|(text, _)| text.strip_prefix("env:") == Some(variable));
            if known || referred() {
                continue;
            }
            if let Some(meant) = misspelt(variable, definitions()) {
                let origin = Origin::Environment(variable.clone());
                self.problems.push(Problem::Unknown { origin, suggestion: Some(meant) });
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
                let value = (!definition.secret()).then(|| shown(definition.kind, text));
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
        self.origin_of(&setting.definition)
    }

    /// The origin of the value of a row.
    pub(super) fn origin_of(&self, definition: &Definition) -> Origin {
        self.text(definition).map_or(Origin::Default, |(_, origin)| origin)
    }

    pub(super) fn required<T>(&self, setting: &Setting<T>) -> Result<T, ConfigErrors> {
        self.get(setting).ok_or_else(|| {
            ConfigErrors(vec![Problem::Conflict {
                origin: self.origin(setting),
                message: format!("{} has no value; give one", setting.definition.name),
            }])
        })
    }

    pub(super) fn show(&self) -> Vec<Shown> {
        definitions()
            .map(|definition| {
                let (text, origin) = self.text(definition).unwrap_or((String::new(), Origin::Default));
                Shown { name: definition.name, value: shown(definition.kind, text), origin }
            })
            .collect()
    }
}

fn definitions() -> impl Iterator<Item = &'static Definition> {
    SETTINGS.into_iter().map(|setting| setting.definition())
}

/// The text of a setting in a form that may be shown.
fn shown(kind: SettingKind, text: String) -> String {
    match kind {
        _ if text.is_empty() => text,
        SettingKind::Secret if is_reference(&text) => text,
        SettingKind::Secret | SettingKind::PasswordHash => REDACTED.to_owned(),
        SettingKind::ImageUrl
        | SettingKind::KeySet
        | SettingKind::BaseUrl
        | SettingKind::NatsServer
        | SettingKind::BackupTarget => without_credentials(&text),
        // A URL in a setting of another kind.
        _ if text.contains("://") && text.contains('@') => without_credentials(&text),
        _ => text,
    }
}

fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// A URL without user, password and query, because they may be secret.
fn without_credentials(text: &str) -> String {
    let shown = match url::Url::parse(text) {
        // The origin of a scheme that no browser knows is opaque.
        Ok(url) if url.host().is_some() => {
            let host = url.host_str().unwrap_or_default();
            let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
            let path = if url.path() == "/" { "" } else { url.path() };
            format!("{}://{host}{port}{path}", url.scheme())
        }
        // A text that is no URL has no place at which a password ends.
        Err(_) if text.contains("://") => REDACTED.to_owned(),
        _ => text.to_owned(),
    };
    // A text without a host, such as user:password@host, and a path behind a password with a slash.
    if shown.contains('@') { REDACTED.to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of a setting with this value: its refusal, or all settings.
    fn said(name: &str, value: &str) -> String {
        let sources = Sources {
            flags: vec![(name.to_owned(), value.to_owned())],
            environment: &|_| None,
            variables: Vec::new(),
            file: None,
        };
        match Settings::load(&sources) {
            Ok(settings) => format!("{:?}", settings.show()),
            Err(refused) => refused.to_string(),
        }
    }

    #[test]
    fn a_mistyped_url_is_shown_without_its_password() {
        for (name, value) in [
            ("BACKUP_TARGET", "oci://user:canary@host.example/x"),
            ("BACKUP_TARGET", "oci+http://user:canary@host.example"),
            ("BACKUP_TARGET", "oci:user:canary@host.example/x"),
            ("BACKUP_TARGET", "user:canary@host.example/x"),
            ("EVENTS", "shoal:canary@nats.example:4222"),
            ("EVENTS", "nats://shoal:canary@nats.example:4222"),
            ("EVENTS", "nats:shoal:canary@nats.example"),
            ("EVENTS", "nats:/shoal:canary@nats.example"),
            ("MAINTENANCE_ISO_URL", "ftp:user:canary@192.0.2.1/m.iso"),
            ("MAINTENANCE_ISO_URL", "https://user:12/canary@192.0.2.1/m.iso"),
            ("JWT_JWKS", "user:canary@issuer.example/keys"),
            ("MEDIA_BASE_URL", "user:canary@192.0.2.1"),
            ("CONTROLLER_HTTP_ADDR", "http://user:canary@192.0.2.1"),
            ("WORKER_CONCURRENCY", "http://user:canary@192.0.2.1"),
            ("TLS_NAMES", "https://user:canary@192.0.2.1"),
            ("TRUSTED_PROXIES", "https://user:canary@192.0.2.1"),
            ("TLS_KEY_FILE", "https://user:canary@192.0.2.1/key.pem"),
        ] {
            let said = said(name, value);
            assert!(said.contains(name) && !said.contains("canary"), "{value}: {said}");
        }
    }

    #[test]
    fn a_url_without_user_is_shown() {
        for (kind, value) in [
            (SettingKind::BackupTarget, "oci://registry.example:5000/backups"),
            (SettingKind::BackupTarget, "/srv/backups"),
            (SettingKind::NatsServer, "nats://nats.example:4222"),
            (SettingKind::BaseUrl, "http://192.0.2.1:8080"),
            (SettingKind::ImageUrl, "oci:maintenance:1"),
        ] {
            assert_eq!(shown(kind, value.to_owned()), value);
        }
    }
}
