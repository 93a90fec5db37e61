//! When the next backup is due, by the clock of the wall.
//!
//! ```text
//!   no backup yet, or the last one is in the future (the clock was set back)  ──> now
//!   24h      the last one + 24 h                                              ──> a missed one is due at once
//!   03:30    the first 03:30 UTC after the last one
//!   failed   not before the failure + 1 min, 2 min, 4 min … 1 h
//! ```

use std::time::Duration;

use jiff::Timestamp;

use super::state::BackupFailure;
use model::Time;
use settings::BackupSchedule;

const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: i64 = 86_400;

/// When the next backup is due; `None` without a schedule. A time that has passed means at once.
pub(super) fn next(
    schedule: BackupSchedule,
    last: Option<Time>,
    failure: Option<&BackupFailure>,
    now: Time,
) -> Option<Time> {
    let by_schedule = match (schedule, last.filter(|last| *last <= now)) {
        (BackupSchedule::Off, _) => return None,
        (_, None) => now,
        (BackupSchedule::Every(interval), Some(last)) => last.plus(interval),
        (BackupSchedule::Daily { minute }, Some(last)) => following(last, minute),
    };
    let pause = failure.filter(|failure| failure.at <= now);
    Some(pause.map_or(by_schedule, |failure| by_schedule.max(failure.at.plus(pause_after(failure.attempts)))))
}

/// The pause after failed attempts.
fn pause_after(attempts: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX))
        .min(LONGEST_PAUSE)
}

/// The first time at this minute of a day, in UTC, after a time.
fn following(last: Time, minute: u16) -> Time {
    let seconds = last.unix_seconds();
    let day = seconds.div_euclid(DAY) * DAY;
    let of_day = i64::from(minute) * 60;
    let next = if day + of_day > seconds { day + of_day } else { day + DAY + of_day };
    Timestamp::from_second(next).map_or(last, Time::from_timestamp)
}

/// Whether the last backup, or the start of a controller without one, is further back than a backup may fail and be repeated.
pub(super) fn is_old(schedule: BackupSchedule, since: Time, now: Time) -> bool {
    schedule.interval().is_some_and(|interval| now.since(since) > (interval * 2).max(interval + HOUR))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_DAY: BackupSchedule = BackupSchedule::Every(Duration::from_secs(86_400));
    const AT_HALF_PAST_THREE: BackupSchedule = BackupSchedule::Daily { minute: 210 };

    fn at(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn failure(time: &str, attempts: u32) -> BackupFailure {
        BackupFailure { at: at(time), message: String::new(), attempts }
    }

    #[test]
    fn the_first_backup_is_due_at_once_and_none_without_a_schedule() {
        let now = at("2026-11-24T12:00:00Z");
        assert_eq!(next(EVERY_DAY, None, None, now), Some(now));
        assert_eq!(next(AT_HALF_PAST_THREE, None, None, now), Some(now));
        assert_eq!(next(BackupSchedule::Off, None, None, now), None);
    }

    #[test]
    fn the_next_backup_follows_the_interval_or_the_time_of_day() {
        let (last, now) = (at("2026-11-24T03:30:12Z"), at("2026-11-24T12:00:00Z"));
        assert_eq!(next(EVERY_DAY, Some(last), None, now), Some(at("2026-11-25T03:30:12Z")));
        assert_eq!(next(AT_HALF_PAST_THREE, Some(last), None, now), Some(at("2026-11-25T03:30:00Z")));
        let by_hand = at("2026-11-24T03:29:59Z");
        assert_eq!(next(AT_HALF_PAST_THREE, Some(by_hand), None, now), Some(at("2026-11-24T03:30:00Z")));
    }

    #[test]
    fn a_backup_that_was_missed_is_due_at_once() {
        let (last, now) = (at("2026-11-20T03:30:12Z"), at("2026-11-24T12:00:00Z"));
        assert!(next(EVERY_DAY, Some(last), None, now).unwrap() < now);
        assert!(next(AT_HALF_PAST_THREE, Some(last), None, now).unwrap() < now);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_no_backup() {
        let (last, now) = (at("2027-01-01T00:00:00Z"), at("2026-11-24T12:00:00Z"));
        assert_eq!(next(EVERY_DAY, Some(last), None, now), Some(now));
        let future = failure("2027-01-01T00:00:00Z", 9);
        assert_eq!(next(EVERY_DAY, None, Some(&future), now), Some(now));
    }

    #[test]
    fn a_failed_backup_is_repeated_after_a_growing_pause_of_at_most_an_hour() {
        let now = at("2026-11-24T12:00:00Z");
        let due =
            |attempts| next(EVERY_DAY, None, Some(&failure("2026-11-24T12:00:00Z", attempts)), now).unwrap();
        assert_eq!(due(1), at("2026-11-24T12:01:00Z"));
        assert_eq!(due(2), at("2026-11-24T12:02:00Z"));
        assert_eq!(due(3), at("2026-11-24T12:04:00Z"));
        for attempts in [7, 8, 40, u32::MAX] {
            assert_eq!(due(attempts), at("2026-11-24T13:00:00Z"), "{attempts}");
        }
    }

    #[test]
    fn a_backup_is_old_after_twice_its_interval() {
        let last = at("2026-11-20T00:00:00Z");
        assert!(!is_old(EVERY_DAY, last, at("2026-11-22T00:00:00Z")));
        assert!(is_old(EVERY_DAY, last, at("2026-11-22T00:00:01Z")));
        assert!(!is_old(BackupSchedule::Off, last, at("2027-11-22T00:00:01Z")));
        let often = BackupSchedule::Every(Duration::from_secs(600));
        assert!(!is_old(often, last, at("2026-11-20T01:00:00Z")), "an hour of failures is no alarm");
    }
}
