//! The schedule of backups and the place where they are kept.
//!
//! ```text
//! BACKUP_SCHEDULE   off | 24h | 03:30                        never | this long after the last one | at this time of day, UTC
//! BACKUP_TARGET     /srv/backups                             a folder
//!                   oci://registry.example:5000/shoal        a repository of an OCI registry, over HTTPS
//!                   oci+http://127.0.0.1:5000/shoal          the same over plain HTTP
//! shoal restore     oci://registry.example/shoal[:TAG|@sha256:HEX]
//! ```

use std::fmt;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use registry::RepositoryName;
use url::{Host, Url};

use super::definition::SettingKind;
use super::values::{InvalidValue, MAX_VALUE_BYTES, digits, duration_text, parse_duration};

/// The bounds of an interval.
const SHORTEST: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(90 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);

/// The schedule by which the controller makes backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupSchedule {
    /// Backups are made on request only.
    Off,
    /// A backup is made this long after the last one.
    Every(Duration),
    /// A backup is made once a day.
    Daily {
        /// The minute of the day, UTC.
        minute: u16,
    },
}

impl BackupSchedule {
    /// The time between two backups; `None` for [`BackupSchedule::Off`].
    pub fn interval(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Every(interval) => Some(interval),
            Self::Daily { .. } => Some(DAY),
        }
    }
}

impl fmt::Display for BackupSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Every(interval) => f.write_str(&duration_text(*interval)),
            Self::Daily { minute } => write!(f, "{:02}:{:02}", minute / 60, minute % 60),
        }
    }
}

pub(super) fn schedule(_: SettingKind, text: &str) -> Result<BackupSchedule, InvalidValue> {
    if text == "off" {
        return Ok(BackupSchedule::Off);
    }
    let of_day = |(hours, minutes): (&str, &str)| {
        let part = |text: &str, most: u64| {
            digits(text)
                .filter(|number| text.len() == 2 && *number <= most)
                .and_then(|n| u16::try_from(n).ok())
        };
        Some(BackupSchedule::Daily { minute: part(hours, 23)? * 60 + part(minutes, 59)? })
    };
    let found = match text.split_once(':') {
        Some(parts) => of_day(parts),
        None => parse_duration(text)
            .filter(|interval| (SHORTEST..=LONGEST).contains(interval))
            .map(BackupSchedule::Every),
    };
    found.ok_or_else(|| {
        InvalidValue::give(format!(
            "off, an interval such as 24h from {} to {}, or a time of day in UTC such as 03:30",
            duration_text(SHORTEST),
            duration_text(LONGEST)
        ))
    })
}

/// The place where backups are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupTarget {
    /// A folder.
    Folder(PathBuf),
    /// A repository of an OCI registry.
    Registry(RegistryTarget),
}

impl fmt::Display for BackupTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Registry(target) => write!(f, "{target}"),
        }
    }
}

/// A repository of an OCI registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryTarget {
    /// `https://host[:port]` or `http://host[:port]`.
    pub base: Url,
    /// The name of the repository.
    pub repository: String,
}

impl RegistryTarget {
    /// Whether bytes and passwords cross the network in the clear.
    pub fn is_plain(&self) -> bool {
        self.base.scheme() == "http"
    }

    /// Whether the registry is on this machine.
    pub fn is_local(&self) -> bool {
        match self.base.host() {
            Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// Parses `oci://host[:port]/repository`, without user, tag and query.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = match text.strip_prefix("oci://") {
            Some(rest) => ("https", rest),
            None => ("http", text.strip_prefix("oci+http://")?),
        };
        let (host, repository) = rest.split_once('/')?;
        let repository: RepositoryName = repository.parse().ok()?;
        let base = Url::parse(&format!("{scheme}://{host}/")).ok()?;
        let bare = base.path() == "/"
            && base.has_host()
            && base.query().is_none()
            && base.fragment().is_none()
            && base.username().is_empty()
            && base.password().is_none();
        bare.then(|| Self { base, repository: repository.to_string() })
    }
}

impl fmt::Display for RegistryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain() { "oci+http" } else { "oci" };
        let host = self.base.host_str().unwrap_or_default();
        write!(f, "{scheme}://{host}")?;
        if let Some(port) = self.base.port() {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", self.repository)
    }
}

pub(super) fn target(_: SettingKind, text: &str) -> Result<BackupTarget, InvalidValue> {
    let refusal = || {
        InvalidValue::give(
            "the absolute path of a folder, or oci://HOST[:PORT]/REPOSITORY without user, tag and query (oci+http:// for plain HTTP)",
        )
    };
    if text.len() > MAX_VALUE_BYTES || text.contains('\0') {
        return Err(refusal());
    }
    if text.starts_with("oci:") || text.starts_with("oci+http:") {
        return RegistryTarget::parse(text).map(BackupTarget::Registry).ok_or_else(refusal);
    }
    let path = Path::new(text);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    (path.is_absolute() && plain && path.file_name().is_some())
        .then(|| BackupTarget::Folder(path.to_owned()))
        .ok_or_else(refusal)
}

/// One backup in a registry, or the newest one of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReference {
    /// The repository.
    pub target: RegistryTarget,
    /// A tag or a digest; `None` for the newest backup.
    pub name: Option<String>,
}

impl BackupReference {
    /// Parses `oci://host[:port]/repository[:tag|@sha256:hex]`. `None` for a text that does not begin like one.
    ///
    /// # Errors
    /// The valid form, when the rest is not one.
    pub fn parse(text: &str) -> Option<Result<Self, &'static str>> {
        const FORM: &str = "give oci://HOST[:PORT]/REPOSITORY, with :TAG or @sha256:DIGEST for one backup";
        if !text.starts_with("oci://") && !text.starts_with("oci+http://") {
            return None;
        }
        let last = text.rfind('/').map_or(0, |at| at + 1);
        let (before, after) = text.split_at(last);
        let (repository, name) = match (after.split_once('@'), after.split_once(':')) {
            (Some((repository, digest)), _) => (repository, Some(digest)),
            (None, Some((repository, tag))) => (repository, Some(tag)),
            (None, None) => (after, None),
        };
        let is_name = |name: &str| {
            let digest = name.strip_prefix("sha256:");
            let hex =
                digest.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            hex || (digest.is_none() && name.parse::<registry::Tag>().is_ok())
        };
        let target = RegistryTarget::parse(&format!("{before}{repository}"));
        Some(match (target, name) {
            (Some(target), None) => Ok(Self { target, name: None }),
            (Some(target), Some(name)) if is_name(name) => Ok(Self { target, name: Some(name.to_owned()) }),
            _ => Err(FORM),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(text: &str) -> Option<BackupTarget> {
        target(SettingKind::BackupTarget, text).ok()
    }

    #[test]
    fn a_schedule_is_off_an_interval_or_a_time_of_day() {
        let parse = |text| schedule(SettingKind::Schedule, text).ok();
        assert_eq!(parse("off"), Some(BackupSchedule::Off));
        assert_eq!(parse("24h"), Some(BackupSchedule::Every(DAY)));
        assert_eq!(parse("03:30"), Some(BackupSchedule::Daily { minute: 210 }));
        assert_eq!(parse("00:00"), Some(BackupSchedule::Daily { minute: 0 }));
        for text in ["", "on", "3:30", "24:00", "12:60", "+1:00", "5m", "91d", "03:30:00", "0003:30"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["off", "10m", "1d", "23:59"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_target_is_an_absolute_folder_or_a_repository_without_credentials() {
        assert_eq!(target_of("/srv/backups"), Some(BackupTarget::Folder("/srv/backups".into())));
        for text in
            ["oci://registry.example:5000/site/shoal", "oci+http://127.0.0.1:5000/shoal", "oci://[::1]/a"]
        {
            assert_eq!(target_of(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "/",
            "backups",
            "/srv/../etc",
            "oci://registry.example",
            "oci://registry.example/",
            "oci://user:secret@registry.example/shoal",
            "oci://registry.example/shoal:tag",
            "oci://registry.example/Shoal",
            "oci://registry.example/shoal?x=1",
            "oci:/registry.example/shoal",
            "https://registry.example/shoal",
        ] {
            assert_eq!(target_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_reference_names_a_repository_a_tag_or_a_digest() {
        let parse = |text: &str| BackupReference::parse(text).map(Result::ok);
        let name = |text: &str| parse(text).unwrap().unwrap().name;
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(name("oci://registry.example:5000/shoal"), None);
        assert_eq!(name("oci://registry.example:5000/shoal:one").as_deref(), Some("one"));
        assert_eq!(name(&format!("oci://registry.example/a/shoal@{digest}")), Some(digest));
        assert_eq!(parse("/srv/backups"), None);
        assert_eq!(parse("oci://registry.example/shoal:"), Some(None));
        assert_eq!(parse("oci://registry.example/shoal@sha256:short"), Some(None));
        assert_eq!(parse("oci://registry.example"), Some(None));
    }
}
