//! Points in time as operators read them: how long ago, or with `--utc` when.
//!
//! ```text
//!   age         45s  12m  3h5m  20h  2d4h  12d  2y        a time in the future: in 12m
//!   duration    0.4s  12s  1m05s  2h03m                   of a step
//! ```

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The form in which times are shown.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// RFC 3339 instead of ages.
    pub utc: bool,
    /// The present.
    pub now: fn() -> Timestamp,
}

impl Times {
    /// Ages by the clock of this machine.
    pub const AGES: Self = Self { utc: false, now: Timestamp::now };

    /// The text of a time in a cell of a table.
    pub(crate) fn cell(&self, time: Timestamp) -> String {
        if self.utc { utc(time) } else { age(time, (self.now)()) }
    }

    /// The text of a time beside a label.
    pub(crate) fn field(&self, time: Timestamp) -> String {
        if self.utc {
            return utc(time);
        }
        let now = (self.now)();
        let ago = if time <= now { " ago" } else { "" };
        format!("{}{ago} ({})", age(time, now), utc(time))
    }
}

/// The time that a text consists of.
pub(crate) fn time_of(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = (20..=35).contains(&bytes.len()) && bytes[4] == b'-' && bytes[10] == b'T';
    if shape { text.parse().ok() } else { None }
}

/// RFC 3339 in UTC, in whole seconds.
fn utc(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// The age of a time, or the time until it.
pub(crate) fn age(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs();
    if seconds < 0 { format!("in {}", units(-seconds)) } else { units(seconds) }
}

/// A number of seconds in at most two units.
pub(crate) fn coarse(seconds: u64) -> String {
    units(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// A number of seconds, from 0, in at most two units.
fn units(seconds: i64) -> String {
    let two = |unit: i64, name: &str, small: i64, small_name: &str| {
        let rest = seconds % unit / small;
        if rest == 0 {
            format!("{}{name}", seconds / unit)
        } else {
            format!("{}{name}{rest}{small_name}", seconds / unit)
        }
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / MINUTE),
        3600..36_000 => two(HOUR, "h", MINUTE, "m"),
        36_000..172_800 => format!("{}h", seconds / HOUR),
        172_800..864_000 => two(DAY, "d", HOUR, "h"),
        864_000..63_072_000 => format!("{}d", seconds / DAY),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// A duration in the past as text, such as `1m05s`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A duration in the future as text, in whole seconds.
pub(crate) fn remaining(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{}s", seconds.max(1)),
        seconds => duration(Duration::from_secs(seconds)),
    }
}

/// The time between two points; zero if they are in the wrong order.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The begin that `--since` names: a duration before now, or a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// A duration before now.
    Ago(SignedDuration),
    /// A point in time.
    At(Timestamp),
}

impl Since {
    /// The first point in time that is meant.
    pub fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            // A duration that begins before all time means all time.
            Self::Ago(duration) => now.checked_sub(duration).unwrap_or(Timestamp::MIN),
        }
    }
}

impl std::str::FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        // A day begins in UTC, as in a filter.
        if let Ok(time) = format!("{text}T00:00:00Z").parse() {
            return Ok(Self::At(time));
        }
        let mut seconds = 0_i64;
        let mut rest = text;
        while !rest.is_empty() {
            let digits =
                rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
            let (number, behind) = rest.split_at(digits);
            let mut units = behind.chars();
            let unit = match units.next() {
                Some('s') => 1,
                Some('m') => MINUTE,
                Some('h') => HOUR,
                Some('d') => DAY,
                Some('w') => 7 * DAY,
                _ => 0,
            };
            let part =
                number.parse::<i64>().ok().filter(|_| unit > 0).and_then(|number| number.checked_mul(unit));
            seconds = part.and_then(|part| seconds.checked_add(part)).ok_or_else(since_help)?;
            rest = units.as_str();
        }
        if seconds == 0 { Err(since_help()) } else { Ok(Self::Ago(SignedDuration::from_secs(seconds))) }
    }
}

fn since_help() -> String {
    "give a duration such as 30m, 2h or 2d4h, a date such as 2026-11-23, or a time such as 2026-11-23T08:00:00Z".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    #[test]
    fn an_age_has_two_units_at_most() {
        let ages = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3 * 60 + 20, "3m"),
            (3 * HOUR + 5 * MINUTE, "3h5m"),
            (20 * HOUR, "20h"),
            (2 * DAY + 4 * HOUR, "2d4h"),
            (3 * DAY, "3d"),
            (12 * DAY + 4 * HOUR, "12d"),
            (800 * DAY, "2y"),
        ];
        for (seconds, text) in ages {
            assert_eq!(age(at(0), at(seconds)), text);
        }
        assert_eq!(age(at(90), at(0)), "in 1m");
    }

    #[test]
    fn only_a_whole_timestamp_is_a_time() {
        assert!(time_of("2026-01-01T00:00:00.000Z").is_some());
        for text in ["", "2026-01-01", "since 2026-01-01T00:00:00Z", "2026-99-01T00:00:00.000Z"] {
            assert!(time_of(text).is_none(), "{text}");
        }
    }

    #[test]
    fn since_takes_durations_and_times() {
        let ago = |seconds| Since::Ago(SignedDuration::from_secs(seconds));
        assert_eq!("2h".parse(), Ok(ago(2 * HOUR)));
        assert_eq!("2d4h30m".parse(), Ok(ago(2 * DAY + 4 * HOUR + 30 * MINUTE)));
        assert_eq!("2023-11-14T22:13:20Z".parse(), Ok(Since::At(at(0))));
        assert_eq!("2023-11-14".parse(), "2023-11-14T00:00:00Z".parse::<Since>());
        for wrong in ["", "2", "h", "2x", "0s", "-2h", "yesterday", "99999999999999999999d", "2h 3m"] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
        assert_eq!(ago(10).time(at(10)), at(0));
        assert_eq!(ago(i64::MAX / 2).time(at(0)), Timestamp::MIN);
    }

    #[test]
    fn durations_of_steps_are_short() {
        let texts = [(0.44, "0.4s"), (12.0, "12s"), (65.0, "1m05s"), (7380.0, "2h03m")];
        for (seconds, text) in texts {
            assert_eq!(duration(Duration::from_secs_f64(seconds)), text);
        }
    }
}
