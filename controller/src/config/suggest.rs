//! The known name that a mistyped one was probably meant to be.

/// Names further away than this share no intention.
const MAX_DISTANCE: usize = 3;
/// No longer name is compared: the cost grows with the product of the lengths.
const MAX_NAME_CHARS: usize = 80;

/// The nearest of the known names, if one is near enough. Case, dashes and a `shoal` prefix do not count.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = plain(name);
    if name.chars().count() > MAX_NAME_CHARS {
        return None;
    }
    let bound = MAX_DISTANCE.min(name.chars().count() / 2);
    known
        .map(|candidate| (distance(&name, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace('-', "_");
    name.strip_prefix("shoal_").map(str::to_owned).unwrap_or(name)
}

/// Insertions, deletions and replacements between two names (Levenshtein), row by row.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
