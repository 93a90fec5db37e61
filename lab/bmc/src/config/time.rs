//! Durations in data files: a number with its unit, such as `45s` or `3m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    serializer.collect_str(&format_args!("{:#}", SignedDuration::from_millis(millis)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time: SignedDuration = text.parse().map_err(D::Error::custom)?;
    Duration::try_from(time).map_err(D::Error::custom)
}
