//! From a setting's text to its value. A refusal says what to give instead and never repeats the text: whoever shows
//! it knows whether the text is secret.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use url::{Host, Url};

use crate::auth::{JOB_USERNAME, password_hash_usable};
use secrets::SecretSource;

use super::definition::Kind;

/// The longest a step may be given.
const MAX_STEP_TIME: Duration = Duration::from_secs(30 * 86_400);
/// No value is longer, except secrets, which have their own bound.
pub(super) const MAX_VALUE_BYTES: usize = 4096;
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Why a text cannot be a value, and what to give instead.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct Unusable(String);

impl Unusable {
    pub(super) fn give(what: impl Into<String>) -> Self {
        Self(format!("give {}", what.into()))
    }

    fn outside(kind: Kind) -> Self {
        Self::give(format!("a {kind}"))
    }
}

/// Whether task images are written to files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskIsoMode {
    /// Computed when read.
    Computed,
    /// Also written to `TASK_ISO_DIR`.
    File,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A word that names none of the choices.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not one of the choices")]
pub struct UnknownWord;

impl FromStr for TaskIsoMode {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "computed" => Ok(Self::Computed),
            "file" => Ok(Self::File),
            _ => Err(UnknownWord),
        }
    }
}

impl FromStr for LogFormat {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownWord),
        }
    }
}

pub(super) fn address(_: Kind, text: &str) -> Result<SocketAddr, Unusable> {
    let refusal = || Unusable::give("an IP address and a port, such as 192.0.2.1:8080, [::1]:8080 or :8080");
    match text.strip_prefix(':') {
        Some(port) => {
            let port = port.parse().map_err(|_| refusal())?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
        }
        None => text.parse().map_err(|_| refusal()),
    }
}

pub(super) fn switch(_: Kind, text: &str) -> Result<bool, Unusable> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Unusable::give("true, false, 1 or 0")),
    }
}

/// The numbers themselves are whole words of digits: no sign, no spaces.
pub(super) fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn within_count(kind: Kind, text: &str) -> Result<u64, Unusable> {
    let Kind::Count { min, max } = kind else { return Err(Unusable::outside(kind)) };
    digits(text)
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| Unusable::give(format!("a whole number from {min} to {max}")))
}

pub(super) fn count(kind: Kind, text: &str) -> Result<usize, Unusable> {
    usize::try_from(within_count(kind, text)?).map_err(|_| Unusable::outside(kind))
}

pub(super) fn small_count(kind: Kind, text: &str) -> Result<u32, Unusable> {
    u32::try_from(within_count(kind, text)?).map_err(|_| Unusable::outside(kind))
}

pub(super) fn duration(kind: Kind, text: &str) -> Result<Duration, Unusable> {
    let Kind::Duration { min, max } = kind else { return Err(Unusable::outside(kind)) };
    length(text).filter(|length| (min..=max).contains(length)).ok_or_else(|| {
        Unusable::give(format!(
            "a time with its unit, such as 30s, 10m or 4h, from {} to {}",
            duration_text(min),
            duration_text(max)
        ))
    })
}

/// `STEP=TIME,STEP=TIME`. Which steps there are is not known here.
pub(super) fn step_times(_: Kind, text: &str) -> Result<Vec<(String, Duration)>, Unusable> {
    let refusal = || {
        Unusable::give(
            "STEP=TIME with commas between them, such as webhook.wait=90m,redfish.mount.task=5m; from 1s to 30d",
        )
    };
    let one = |part: &str| {
        let (step, time) = part.trim().split_once('=')?;
        let time = length(time).filter(|time| (Duration::from_secs(1)..=MAX_STEP_TIME).contains(time))?;
        (!step.is_empty()).then(|| (step.to_owned(), time))
    };
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    text.split(',').map(one).collect::<Option<Vec<_>>>().ok_or_else(refusal)
}

/// A length of time with its unit: what `jiff` reads as a friendly or ISO 8601 duration, and whole days.
pub(super) fn length(text: &str) -> Option<Duration> {
    if let Some(days) = text.strip_suffix('d').and_then(digits) {
        return days.checked_mul(86_400).map(Duration::from_secs);
    }
    text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok())
}

/// A duration in the largest unit that divides it.
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

pub(super) fn size(kind: Kind, text: &str) -> Result<u64, Unusable> {
    let Kind::Size { min, max } = kind else { return Err(Unusable::outside(kind)) };
    let (number, shift) = UNITS
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number.trim_end(), shift)))
        .unwrap_or((text, 0));
    digits(number)
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (min..=max).contains(bytes))
        .ok_or_else(|| {
            Unusable::give(format!(
                "bytes, or a number with KiB, MiB, GiB or TiB, from {} to {}",
                size_text(min),
                size_text(max)
            ))
        })
}

/// A size, as bytes in digits, or a percentage of the disk as it is.
pub(super) fn reserve(_: Kind, text: &str) -> Result<String, Unusable> {
    let refusal = || Unusable::give("a size such as 1GiB, or 0% to 99% of the disk");
    match text.strip_suffix('%') {
        Some(number) => digits(number).filter(|part| *part < 100).map(|part| format!("{part}%")),
        None => size(Kind::Size { min: 0, max: u64::MAX }, text).ok().map(|bytes| bytes.to_string()),
    }
    .ok_or_else(refusal)
}

pub(super) fn memory(kind: Kind, text: &str) -> Result<usize, Unusable> {
    usize::try_from(size(kind, text)?).map_err(|_| Unusable::outside(kind))
}

/// A size in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    UNITS
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift))
        .map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

pub(super) fn path(_: Kind, text: &str) -> Result<PathBuf, Unusable> {
    let fits = !text.is_empty() && text.len() <= MAX_VALUE_BYTES && !text.contains('\0');
    fits.then(|| PathBuf::from(text)).ok_or_else(|| Unusable::give("a path"))
}

pub(super) fn choice<T: FromStr>(kind: Kind, text: &str) -> Result<T, Unusable> {
    let Kind::Choice(words) = kind else { return Err(Unusable::outside(kind)) };
    text.parse().map_err(|_| Unusable::give(format!("one of {}", words.join(", "))))
}

/// `scheme://host[:port]`, kept without a slash at its end: media URLs are built by appending to it, and some BMCs
/// refuse paths that are long or deep (lock L1).
pub(super) fn base_url(_: Kind, text: &str) -> Result<String, Unusable> {
    let refusal = || Unusable::give("http://HOST[:PORT] or https://HOST[:PORT] and nothing after it");
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    let url = Url::parse(text).map_err(|_| refusal())?;
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
        return Err(Unusable::give("the host or address others reach us under, not the one we listen on"));
    }
    if bare { Ok(url.origin().ascii_serialization()) } else { Err(refusal()) }
}

pub(super) fn image_url(_: Kind, text: &str) -> Result<String, Unusable> {
    let refusal = || Unusable::give("an absolute path, or a file:, http: or https: URL");
    if text.len() > MAX_VALUE_BYTES || text.contains('\0') {
        return Err(refusal());
    }
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    let url = Url::parse(text).map_err(|_| refusal())?;
    let readable = match url.scheme() {
        "file" => url.to_file_path().is_ok(),
        "http" | "https" => url.host().is_some(),
        _ => false,
    };
    readable.then(|| text.to_owned()).ok_or_else(refusal)
}

pub(super) fn user_name(_: Kind, text: &str) -> Result<String, Unusable> {
    let fits = (1..=256).contains(&text.len())
        && text != JOB_USERNAME
        && !text.chars().any(|character| character == ':' || character.is_control());
    fits.then(|| text.to_owned()).ok_or_else(|| {
        Unusable::give(format!("a name without colons and control characters, other than {JOB_USERNAME}"))
    })
}

pub(super) fn password_hash(_: Kind, text: &str) -> Result<String, Unusable> {
    password_hash_usable(text).map_err(|error| Unusable(error.to_string()))?;
    Ok(text.to_owned())
}

pub(super) fn secret(_: Kind, text: &str) -> Result<SecretSource, Unusable> {
    text.parse::<SecretSource>().map_err(|error| Unusable(error.to_string()))
}

/// A filter of `tracing`, more strictly than it reads one: its parser panics on some text beyond ASCII, counts wrongly
/// after a space, and takes a mistyped level (`warning`) for the name of a part, which would silence everything else.
pub(super) fn log_filter(_: Kind, text: &str) -> Result<String, Unusable> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_graphic()) && (1..=MAX_VALUE_BYTES).contains(&text.len());
    let levels = text.split(',').all(|part| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok());
    (plain && levels && EnvFilter::try_new(text).is_ok()).then(|| text.to_owned()).ok_or_else(|| {
        Unusable::give(
            "error, warn, info, debug or trace, or parts with levels, such as info,shoal::engine=debug",
        )
    })
}
