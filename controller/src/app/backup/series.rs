//! The names of the backups that one controller makes.
//!
//! ```text
//!   shoal-3f9a1c2b-000012-20261124T033000Z
//!         series   number time, UTC
//! ```
//!
//! Invariant: names of one series are in the order in which the backups were made, also when the clock was set back.

use super::summary::SeriesPlace;
use model::Time;

const PREFIX: &str = "shoal-";
/// The characters of the id of a series that a name has.
const SERIES: usize = 8;
/// The digits of a number. A controller that makes one each ten minutes uses them up in 19 years.
const NUMBER: usize = 6;

/// The beginning of the names of a series.
pub(super) fn stem(series: &str) -> String {
    let short: String = series.chars().filter(char::is_ascii_hexdigit).take(SERIES).collect();
    format!("{PREFIX}{short}")
}

/// The name of a backup.
pub(super) fn name_of(place: &SeriesPlace, made_at: Time) -> String {
    let time = made_at.timestamp().strftime("%Y%m%dT%H%M%SZ");
    format!("{}-{:0width$}-{time}", stem(&place.id), place.number, width = NUMBER)
}

/// The stem in the name of a backup; `None` for a name that no controller gives.
pub(super) fn stem_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PREFIX)?;
    let mut parts = rest.split('-');
    let (series, number, time) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = series.len() == SERIES && series.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = number.len() >= NUMBER && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = time.len() == 16 && time.bytes().all(|byte| byte.is_ascii_digit() || b"TZ".contains(&byte));
    (hex && digits && is_time && parts.next().is_none()).then(|| &name[..PREFIX.len() + SERIES])
}

/// The newest of these names in each series, the series in the order of their stems.
pub(super) fn newest_of_each(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut newest = std::collections::BTreeMap::<String, String>::new();
    for name in names {
        let Some(stem) = stem_of(&name).map(str::to_owned) else { continue };
        let kept = newest.entry(stem).or_default();
        if name > *kept {
            *kept = name;
        }
    }
    newest.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64, time: &str) -> String {
        let place = SeriesPlace { id: "3f9a1c2b-0000-4000-8000-000000000000".to_owned(), number };
        name_of(&place, time.parse().unwrap())
    }

    #[test]
    fn a_later_backup_has_a_later_name_although_the_clock_was_set_back() {
        let (first, second) = (name(9, "2026-11-24T03:30:00Z"), name(10, "2026-11-23T03:30:00Z"));
        assert_eq!(first, "shoal-3f9a1c2b-000009-20261124T033000Z");
        assert!(second > first);
        let other = first.replace("3f9a1c2b", "aaaaaaaa");
        let names = ["lost+found".to_owned(), first.clone(), second.clone(), other.clone()];
        assert_eq!(newest_of_each(names), [second, other]);
    }

    #[test]
    fn other_names_are_no_backups_of_a_controller() {
        assert_eq!(stem_of(&name(1, "2026-11-24T03:30:00Z")), Some("shoal-3f9a1c2b"));
        for name in [
            "",
            "shoal-2026-11-23",
            "shoal-3f9a1c2b-1-20261124T033000Z",
            ".shoal-3f9a1c2b.partial-1",
            "backup",
        ] {
            assert_eq!(stem_of(name), None, "{name}");
        }
    }
}
