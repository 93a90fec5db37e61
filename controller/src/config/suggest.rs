//! Suggestion of a known name for a mistyped one.

use strsim::levenshtein;

/// The maximum distance of a suggested name.
const MAX_DISTANCE: usize = 3;
/// The maximum length of a compared name: the cost grows with the product of the lengths.
const MAX_NAME_CHARS: usize = 80;

/// The nearest known name within [`MAX_DISTANCE`]. Case, dashes and a `shoal` prefix are ignored.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = plain(name);
    if name.chars().count() > MAX_NAME_CHARS {
        return None;
    }
    let bound = MAX_DISTANCE.min(name.chars().count() / 2);
    known
        .map(|candidate| (levenshtein(&name, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace('-', "_");
    name.strip_prefix("shoal_").map(str::to_owned).unwrap_or(name)
}
