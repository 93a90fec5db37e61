//! Times on pages: how long ago or until, with the clock time beside it. Always UTC.

use askama::Template;
use askama::filters::HtmlSafe;
use jiff::Timestamp;

/// A time as a page shows it.
#[derive(Template, Clone)]
#[template(
    source = r##"<time datetime="{{ iso }}" title="{{ title }}"><span class="rel">{{ relative }}</span><span class="abs">{{ clock }}</span></time>"##,
    ext = "html"
)]
pub struct When {
    iso: String,
    title: String,
    relative: String,
    clock: String,
}

impl HtmlSafe for When {}

impl When {
    /// A time with its distance from `now`: how long ago it was, or in how long it will be.
    pub fn of(at: Timestamp, now: Timestamp) -> Self {
        let relative = match seconds(now, at) {
            0 => "just now".to_owned(),
            ahead if ahead > 0 => format!("in {}", duration(ahead.unsigned_abs())),
            behind => format!("{} ago", duration(behind.unsigned_abs())),
        };
        Self::saying(at, now, relative)
    }

    /// A time with the duration of the state that began at it.
    pub fn lasting(since: Timestamp, now: Timestamp) -> Self {
        Self::saying(since, now, duration(seconds(since, now).max(0).unsigned_abs()))
    }

    fn saying(at: Timestamp, now: Timestamp, relative: String) -> Self {
        let same_day = at.strftime("%F").to_string() == now.strftime("%F").to_string();
        let clock = at.strftime(if same_day { "%T" } else { "%F %H:%M" }).to_string();
        Self { iso: iso(at), title: format!("{} UTC", at.strftime("%F %T")), relative, clock }
    }

    /// The words of the time since or until.
    pub fn words(&self) -> &str {
        &self.relative
    }

    /// The clock time.
    pub fn clock(&self) -> &str {
        &self.clock
    }
}

/// A time as machines read it, accurate to a second.
pub(crate) fn iso(at: Timestamp) -> String {
    at.strftime("%FT%TZ").to_string()
}

/// The seconds from one time to another.
pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second().saturating_sub(from.as_second())
}

/// A number of seconds in words: the largest unit, and the next one where it matters.
pub(crate) fn duration(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match seconds {
        0..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => match (seconds / HOUR, seconds % HOUR / MINUTE) {
            (hours, minutes) if hours < 10 && minutes > 0 => format!("{hours} h {minutes} min"),
            (hours, _) => format!("{hours} h"),
        },
        _ => match seconds / DAY {
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        },
    }
}

/// The duration of a step in words: accurate to milliseconds below a second, to seconds below an hour.
pub(crate) fn took(from: Timestamp, to: Timestamp) -> String {
    let milliseconds = to.as_millisecond().saturating_sub(from.as_millisecond()).max(0).unsigned_abs();
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..60_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        60_000..3_600_000 => format!("{} min {:02} s", milliseconds / 60_000, milliseconds % 60_000 / 1000),
        _ => duration(milliseconds / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_by_its_distance_and_by_the_clock() {
        let now: Timestamp = "2026-11-23T14:32:06Z".parse().unwrap();
        for (at, relative, clock) in [
            ("2026-11-23T14:32:06Z", "just now", "14:32:06"),
            ("2026-11-23T14:31:44Z", "22 s ago", "14:31:44"),
            ("2026-11-23T13:54:12Z", "37 min ago", "13:54:12"),
            ("2026-11-23T15:01:10Z", "in 29 min", "15:01:10"),
            ("2026-11-23T12:01:10Z", "2 h 30 min ago", "12:01:10"),
            ("2026-11-22T12:00:00Z", "1 day ago", "2026-11-22 12:00"),
            ("2026-12-23T14:32:06Z", "in 30 days", "2026-12-23 14:32"),
        ] {
            let when = When::of(at.parse().unwrap(), now);
            assert_eq!((when.words(), when.clock()), (relative, clock), "{at}");
        }
    }

    #[test]
    fn what_a_step_took_is_as_exact_as_it_is_short() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let begun = at("2026-11-23T14:00:00Z");
        for (ended, text) in [
            ("2026-11-23T14:00:00.040Z", "40 ms"),
            ("2026-11-23T14:00:03.94Z", "3.9 s"),
            ("2026-11-23T14:12:50Z", "12 min 50 s"),
            ("2026-11-23T16:12:50Z", "2 h 12 min"),
            ("2026-11-23T13:00:00Z", "0 ms"),
        ] {
            assert_eq!(took(begun, at(ended)), text, "{ended}");
        }
    }
}
