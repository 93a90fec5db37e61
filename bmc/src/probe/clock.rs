//! The clock skew of a BMC.

use model::Time;

/// Returns the seconds by which the BMC is ahead (negative: behind); `None` when its date cannot be parsed.
pub fn skew(date: &str, now: Time) -> Option<i64> {
    let bmc: jiff::Timestamp = date.parse().ok()?;
    Some(bmc.as_second() - now.unix_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_of_dates_with_any_offset_is_computed_and_other_texts_have_none() {
        let now = Time::from_timestamp("2026-03-01T12:00:00Z".parse().unwrap());
        assert_eq!(skew("2026-03-01T12:00:05Z", now), Some(5));
        assert_eq!(skew("2026-03-01T13:00:00+02:00", now), Some(-3600));
        assert_eq!(skew("1970-01-01T00:00:00Z", now).map(i64::signum), Some(-1));
        assert_eq!(skew("yesterday", now), None);
    }
}
