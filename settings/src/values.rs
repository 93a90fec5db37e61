//! Parsing of the values of settings. An error states the valid form and never repeats the text, because this module does
//! not know whether the text is secret.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use nats_carrier::{ServerUrl, ServerUrlError};
use rustls::pki_types::ServerName;
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use url::{Host, Url};

use access::auth::{
    CertificateEntry, InvalidCertificateEntry, InvalidRoleEntry, JOB_USERNAME, Networks, NoNetworks,
    RoleEntry, TrustedProxies, password_hash_usable,
};
use model::MEDIA_BASE_MAX;
use secrets::SecretSource;

use super::definition::SettingKind;

/// The maximum time limit of a step.
const MAX_STEP_TIME: Duration = Duration::from_secs(30 * 86_400);
/// The maximum length of a value; secrets have another limit.
pub(super) const MAX_VALUE_BYTES: usize = 4096;
/// The maximum length of a short text.
const MAX_TEXT_BYTES: usize = 256;
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// The text is not a valid value; the message states the valid form.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct InvalidValue(String);

impl InvalidValue {
    pub(super) fn give(what: impl Into<String>) -> Self {
        Self(format!("give {}", what.into()))
    }

    fn outside(kind: SettingKind) -> Self {
        Self::give(format!("a {kind}"))
    }
}

/// Whether task images are written to files.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum TaskIsoMode {
    /// Task images are only computed when they are read.
    Computed,
    /// Task images are also written to `TASK_ISO_DIR`.
    File,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

pub(super) fn address(_: SettingKind, text: &str) -> Result<SocketAddr, InvalidValue> {
    let refusal =
        || InvalidValue::give("an IP address and a port, such as 192.0.2.1:8080, [::1]:8080 or :8080");
    match text.strip_prefix(':') {
        Some(port) => {
            let port = port.parse().map_err(|_| refusal())?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
        }
        None => text.parse().map_err(|_| refusal()),
    }
}

/// A listen address that can be switched off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Listener {
    /// The listener is off.
    Off,
    /// The listener has this address.
    At(SocketAddr),
}

impl Listener {
    /// The address of the listener; `None` when it is off.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

pub(super) fn listener(kind: SettingKind, text: &str) -> Result<Listener, InvalidValue> {
    match text {
        "off" => Ok(Listener::Off),
        _ => address(kind, text)
            .map(Listener::At)
            .map_err(|InvalidValue(form)| InvalidValue(format!("{form}, or off"))),
    }
}

/// Parses host names and IP addresses, separated by commas.
pub(super) fn host_names(_: SettingKind, text: &str) -> Result<Vec<String>, InvalidValue> {
    let refusal = || {
        InvalidValue::give("host names or IP addresses separated by commas, such as shoal.example,192.0.2.1")
    };
    let one = |part: &str| {
        let name = part.trim();
        let plain = name.is_ascii() && ServerName::try_from(name).is_ok();
        plain.then(|| name.to_ascii_lowercase())
    };
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    text.split(',').map(one).collect::<Option<Vec<_>>>().ok_or_else(refusal)
}

pub(super) fn trusted_proxies(_: SettingKind, text: &str) -> Result<TrustedProxies, InvalidValue> {
    text.parse().map_err(|why: NoNetworks| InvalidValue::give(why.to_string()))
}

pub(super) fn networks(_: SettingKind, text: &str) -> Result<Networks, InvalidValue> {
    text.parse().map_err(|why: NoNetworks| InvalidValue::give(why.to_string()))
}

pub(super) fn switch(_: SettingKind, text: &str) -> Result<bool, InvalidValue> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(InvalidValue::give("true, false, 1 or 0")),
    }
}

/// Parses a number of digits only, without sign and spaces.
pub(super) fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn within_count(kind: SettingKind, text: &str) -> Result<u64, InvalidValue> {
    let SettingKind::Count { min, max } = kind else { return Err(InvalidValue::outside(kind)) };
    digits(text)
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| InvalidValue::give(format!("a whole number from {min} to {max}")))
}

pub(super) fn count(kind: SettingKind, text: &str) -> Result<usize, InvalidValue> {
    usize::try_from(within_count(kind, text)?).map_err(|_| InvalidValue::outside(kind))
}

pub(super) fn small_count(kind: SettingKind, text: &str) -> Result<u32, InvalidValue> {
    u32::try_from(within_count(kind, text)?).map_err(|_| InvalidValue::outside(kind))
}

pub(super) fn duration(kind: SettingKind, text: &str) -> Result<Duration, InvalidValue> {
    let SettingKind::Duration { min, max } = kind else { return Err(InvalidValue::outside(kind)) };
    parse_duration(text).filter(|length| (min..=max).contains(length)).ok_or_else(|| {
        InvalidValue::give(format!(
            "a duration with its unit, such as 30s, 10m or 4h, from {} to {}",
            duration_text(min),
            duration_text(max)
        ))
    })
}

/// Parses `STEP=TIME,STEP=TIME`. The names of the steps are not checked here.
pub(super) fn step_times(_: SettingKind, text: &str) -> Result<Vec<(String, Duration)>, InvalidValue> {
    let refusal = || {
        InvalidValue::give(
            "entries STEP=TIME separated by commas, such as webhook.wait=90m,redfish.mount.task=5m; from 1s to 30d",
        )
    };
    let one = |part: &str| {
        let (step, time) = part.trim().split_once('=')?;
        let time =
            parse_duration(time).filter(|time| (Duration::from_secs(1)..=MAX_STEP_TIME).contains(time))?;
        (!step.is_empty()).then(|| (step.to_owned(), time))
    };
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    text.split(',').map(one).collect::<Option<Vec<_>>>().ok_or_else(refusal)
}

/// Parses a duration with its unit: whole days, or a friendly or ISO 8601 duration of `jiff`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    if let Some(days) = text.strip_suffix('d').and_then(digits) {
        return days.checked_mul(86_400).map(Duration::from_secs);
    }
    text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok())
}

/// Formats a duration in the largest unit that divides it.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_nanos() != 0 {
        return format!("{}ms", duration.as_millis());
    }
    [(86_400, 'd'), (3600, 'h'), (60, 'm')]
        .into_iter()
        .find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit))
        .map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

pub(super) fn size(kind: SettingKind, text: &str) -> Result<u64, InvalidValue> {
    let SettingKind::Size { min, max } = kind else { return Err(InvalidValue::outside(kind)) };
    let (number, shift) = UNITS
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number.trim_end(), shift)))
        .unwrap_or((text, 0));
    digits(number)
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (min..=max).contains(bytes))
        .ok_or_else(|| {
            InvalidValue::give(format!(
                "bytes, or a number with KiB, MiB, GiB or TiB, from {} to {}",
                size_text(min),
                size_text(max)
            ))
        })
}

/// Parses a size, returned as bytes in digits, or a percentage of the disk, returned unchanged.
pub(super) fn reserve(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    let refusal = || InvalidValue::give("a size such as 1GiB, or 0% to 99% of the disk");
    match text.strip_suffix('%') {
        Some(number) => digits(number).filter(|part| *part < 100).map(|part| format!("{part}%")),
        None => size(SettingKind::Size { min: 0, max: u64::MAX }, text).ok().map(|bytes| bytes.to_string()),
    }
    .ok_or_else(refusal)
}

pub(super) fn memory(kind: SettingKind, text: &str) -> Result<usize, InvalidValue> {
    usize::try_from(size(kind, text)?).map_err(|_| InvalidValue::outside(kind))
}

/// Formats a size in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    UNITS
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift))
        .map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

pub(super) fn path(_: SettingKind, text: &str) -> Result<PathBuf, InvalidValue> {
    let fits = !text.is_empty() && text.len() <= MAX_VALUE_BYTES && !text.contains('\0');
    fits.then(|| PathBuf::from(text)).ok_or_else(|| InvalidValue::give("a path"))
}

pub(super) fn choice<T: FromStr>(kind: SettingKind, text: &str) -> Result<T, InvalidValue> {
    let SettingKind::Choice(words) = kind else { return Err(InvalidValue::outside(kind)) };
    text.parse().map_err(|_| InvalidValue::give(format!("one of {}", words.join(", "))))
}

/// Parses `scheme://host[:port]` and removes a final slash: media URLs are built by appending a path, and some BMCs refuse
/// long or deep paths (decision D1).
pub(super) fn base_url(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    let refusal = || InvalidValue::give("http://HOST[:PORT] or https://HOST[:PORT] and nothing after it");
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    let url = Url::parse(text).map_err(|_| refusal())?;
    if url.as_str().trim_end_matches('/').len() > MEDIA_BASE_MAX {
        return Err(InvalidValue::give(format!(
            "a URL of at most {MEDIA_BASE_MAX} bytes, because BMCs refuse long media URLs: a shorter name, or the address"
        )));
    }
    let bare = matches!(url.scheme(), "http" | "https")
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let reachable = match url.host() {
        Some(Host::Ipv4(ip)) => !ip.is_unspecified(),
        Some(Host::Ipv6(ip)) => !ip.is_unspecified(),
        Some(Host::Domain(_)) => true,
        None => false,
    };
    if !reachable {
        return Err(InvalidValue::give(
            "the host or address at which clients reach the controller, not the listen address",
        ));
    }
    if bare { Ok(url.origin().ascii_serialization()) } else { Err(refusal()) }
}

pub(super) fn nats_server(_: SettingKind, text: &str) -> Result<ServerUrl, InvalidValue> {
    text.parse().map_err(|why: ServerUrlError| InvalidValue::give(why.to_string()))
}

pub(super) fn image_url(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    let refusal =
        || InvalidValue::give("an absolute path, a file:, http: or https: URL, or oci:REPOSITORY:TAG");
    if text.len() > MAX_VALUE_BYTES || text.contains('\0') {
        return Err(refusal());
    }
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    if let Some(name) = text.strip_prefix("oci:") {
        let reference = recipe::ImageReference::parse(name).ok().filter(|reference| reference.host.is_none());
        return reference.map(|_| text.to_owned()).ok_or_else(refusal);
    }
    let url = Url::parse(text).map_err(|_| refusal())?;
    let readable = match url.scheme() {
        "file" => url.to_file_path().is_ok(),
        "http" | "https" => url.host().is_some(),
        _ => false,
    };
    readable.then(|| text.to_owned()).ok_or_else(refusal)
}

/// The location of the key set of an issuer of tokens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeySetLocation {
    /// A file.
    File(PathBuf),
    /// An https URL.
    Url(Url),
}

/// Parses the location of a key set. Plain HTTP is refused: who changes the key set on its way is an administrator.
pub(super) fn key_set(_: SettingKind, text: &str) -> Result<KeySetLocation, InvalidValue> {
    let refusal = || InvalidValue::give("an absolute path, or an https: URL without user and fragment");
    if text.len() > MAX_VALUE_BYTES || text.contains('\0') {
        return Err(refusal());
    }
    if text.starts_with('/') {
        return Ok(KeySetLocation::File(PathBuf::from(text)));
    }
    let url = Url::parse(text).map_err(|_| refusal())?;
    let plain = url.scheme() == "https" && url.host().is_some() && url.fragment().is_none();
    (plain && url.username().is_empty() && url.password().is_none())
        .then_some(KeySetLocation::Url(url))
        .ok_or_else(refusal)
}

pub(super) fn text(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    let fits = (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned()).ok_or_else(|| {
        InvalidValue::give(format!("a text of 1 to {MAX_TEXT_BYTES} bytes without control characters"))
    })
}

pub(super) fn jwt_roles(_: SettingKind, text: &str) -> Result<Vec<RoleEntry>, InvalidValue> {
    let refusal = |why: InvalidRoleEntry| InvalidValue::give(format!("entries separated by commas; {why}"));
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal(InvalidRoleEntry));
    }
    text.split(',').map(|entry| entry.trim().parse().map_err(refusal)).collect()
}

pub(super) fn report_certificates(_: SettingKind, text: &str) -> Result<Vec<CertificateEntry>, InvalidValue> {
    let refusal =
        |why: InvalidCertificateEntry| InvalidValue::give(format!("entries separated by commas; {why}"));
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal(InvalidCertificateEntry));
    }
    text.split(',').map(|entry| entry.trim().parse().map_err(refusal)).collect()
}

pub(super) fn user_name(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    let fits = (1..=256).contains(&text.len())
        && text != JOB_USERNAME
        && !text.chars().any(|character| character == ':' || character.is_control());
    fits.then(|| text.to_owned()).ok_or_else(|| {
        InvalidValue::give(format!("a name without colons and control characters, other than {JOB_USERNAME}"))
    })
}

pub(super) fn password_hash(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    password_hash_usable(text).map_err(|error| InvalidValue(error.to_string()))?;
    Ok(text.to_owned())
}

pub(super) fn secret(_: SettingKind, text: &str) -> Result<SecretSource, InvalidValue> {
    text.parse::<SecretSource>().map_err(|error| InvalidValue(error.to_string()))
}

/// Parses a filter of `tracing` more strictly than `tracing` does: its parser panics on some non-ASCII text, miscounts after
/// a space, and reads a mistyped level (`warning`) as the name of a module, which would silence all other modules.
pub(super) fn log_filter(_: SettingKind, text: &str) -> Result<String, InvalidValue> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_graphic()) && (1..=MAX_VALUE_BYTES).contains(&text.len());
    let levels = text.split(',').all(|part| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok());
    (plain && levels && EnvFilter::try_new(text).is_ok()).then(|| text.to_owned()).ok_or_else(|| {
        InvalidValue::give(
            "error, warn, info, debug or trace, or modules with levels, such as info,engine=debug",
        )
    })
}
