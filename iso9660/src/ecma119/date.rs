//! Dates (8.4.26.1 in descriptors, 9.1.5 in records).
//!
//! ```text
//! record, 7 bytes       year-1900 | month | day | hour | minute | second | offset from GMT in 15 minutes, signed
//! descriptor, 17 bytes  YYYY MM DD HH MM SS CC as digits | offset      unspecified: sixteen '0' and a zero byte
//! ```
//!
//! Written dates are always UTC with offset 0, so the time zone of the host has no effect. Calendar arithmetic follows
//! the proleptic Gregorian calendar, counted in days from 1 March of year 0 so that a leap day is the last day of its
//! year.

use std::ops::RangeInclusive;

/// The years that both forms can represent.
const YEARS: RangeInclusive<i64> = 1900..=2155;

/// The 17 bytes of an unspecified date.
pub(crate) const UNSPECIFIED: [u8; 17] = *b"0000000000000000\0";

/// A date and time in UTC that both forms can represent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Date {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl Date {
    /// Returns the date `epoch` seconds after 1970, if its year can be represented.
    pub(crate) fn from_epoch(epoch: i64) -> Option<Date> {
        let (days, seconds) = (epoch.div_euclid(86_400), epoch.rem_euclid(86_400));
        let (year, month, day) = civil(days)?;
        let part = |value: i64| u8::try_from(value).ok();
        Some(Date {
            year,
            month,
            day,
            hour: part(seconds / 3600)?,
            minute: part(seconds / 60 % 60)?,
            second: part(seconds % 60)?,
        })
    }

    /// Returns the 7 bytes of a directory record (9.1.5).
    pub(crate) fn record(&self) -> [u8; 7] {
        // Construction keeps the year in range.
        let year = u8::try_from(self.year - 1900).unwrap_or(u8::MAX);
        [year, self.month, self.day, self.hour, self.minute, self.second, 0]
    }

    /// Returns the 17 bytes of a descriptor (8.4.26.1).
    pub(crate) fn descriptor(&self) -> [u8; 17] {
        let digits = format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}00",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        );
        let mut bytes = UNSPECIFIED;
        bytes[..16].copy_from_slice(digits.as_bytes());
        bytes
    }
}

/// Returns the seconds since 1970 of a record's date, if it is valid.
pub(crate) fn parse_record(bytes: [u8; 7]) -> Option<i64> {
    let [year, month, day, hour, minute, second, offset] = bytes;
    seconds(1900 + i64::from(year), month, day, hour, minute, second, offset)
}

/// Returns the seconds since 1970 of a descriptor's date, if it is specified and valid.
pub(crate) fn parse_descriptor(bytes: [u8; 17]) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| {
        bytes[range]
            .iter()
            .try_fold(0_i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let small = |range| number(range).and_then(|value| u8::try_from(value).ok());
    seconds(
        number(0..4)?,
        small(4..6)?,
        small(6..8)?,
        small(8..10)?,
        small(10..12)?,
        small(12..14)?,
        bytes[16],
    )
}

/// Returns the seconds since 1970 of a local time with an offset from UTC in quarters of an hour, if both are valid.
pub(crate) fn seconds(
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    offset: u8,
) -> Option<i64> {
    let valid = YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let quarters = i64::from(offset.cast_signed());
    (valid && (-48..=52).contains(&quarters)).then(|| {
        let local = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        days(year, i64::from(month), i64::from(day)) * 86_400 + local - quarters * 900
    })
}

/// Returns the days from 1970-01-01 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Returns year, month and day of a number of days after 1970-01-01, if the year can be represented.
fn civil(days_after: i64) -> Option<(i64, u8, u8)> {
    // The mean year is wrong by one at most, so the candidates on both sides cover it.
    let guess = 1970 + days_after / 365;
    if !(0..=4000).contains(&guess) {
        return None;
    }
    let estimate = 1970 + days_after * 400 / 146_097;
    let year = (estimate - 1..=estimate + 1).rev().find(|year| days(*year, 1, 1) <= days_after)?;
    let month = (1..=12).rev().find(|month| days(year, *month, 1) <= days_after)?;
    let day = days_after - days(year, month, 1) + 1;
    YEARS.contains(&year).then_some(())?;
    Some((year, u8::try_from(month).ok()?, u8::try_from(day).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_of_a_known_date() {
        let date = Date::from_epoch(1_700_000_000).unwrap();
        assert_eq!(date.record(), [0x7b, 0x0b, 0x0e, 0x16, 0x0d, 0x14, 0x00]);
        assert_eq!(&date.descriptor(), b"2023111422132000\0");
    }

    #[test]
    fn leap_days_and_the_ends_of_the_range() {
        assert_eq!(&Date::from_epoch(951_782_400).unwrap().descriptor(), b"2000022900000000\0");
        assert_eq!(&Date::from_epoch(0).unwrap().descriptor(), b"1970010100000000\0");
        assert_eq!(&Date::from_epoch(-2_208_988_800).unwrap().descriptor(), b"1900010100000000\0");
        assert_eq!(Date::from_epoch(-2_208_988_801), None);
        assert_eq!(&Date::from_epoch(5_869_583_999).unwrap().descriptor(), b"2155123123595900\0");
        assert_eq!(Date::from_epoch(5_869_584_000), None);
        assert_eq!(Date::from_epoch(i64::MAX), None);
        assert_eq!(Date::from_epoch(i64::MIN), None);
    }

    #[test]
    fn unspecified_and_impossible_dates_are_none() {
        assert_eq!(parse_descriptor(UNSPECIFIED), None);
        assert_eq!(parse_record([0; 7]), None);
        assert_eq!(parse_record([70, 13, 1, 0, 0, 0, 0]), None);
        assert_eq!(parse_record([70, 1, 1, 0, 0, 0, 100]), None);
        assert_eq!(parse_record([70, 1, 1, 1, 0, 0, 4]), Some(0));
    }

    proptest! {
        #[test]
        fn every_writable_date_reads_back(epoch in -2_208_988_800_i64..5_869_584_000) {
            let date = Date::from_epoch(epoch).unwrap();
            prop_assert_eq!(parse_record(date.record()), Some(epoch));
            prop_assert_eq!(parse_descriptor(date.descriptor()), Some(epoch));
        }
    }
}
