//! Suggestion of a known name for a mistyped one.

use strsim::{levenshtein, osa_distance};

use super::definition::Definition;

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
        .map(|candidate| (plain(candidate), candidate))
        .filter(|(plain, _)| lengths_are_near(&name, plain, bound))
        .map(|(plain, candidate)| (levenshtein(&name, &plain), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Whether two names can be within a distance at all. Each start compares all variables of its environment with all settings, so
/// most pairs must cost nothing.
fn lengths_are_near(one: &str, other: &str, bound: usize) -> bool {
    one.chars().count().abs_diff(other.chars().count()) <= bound
}

/// Variables of other programs that differ from a setting in one character: the trusted certificates of OpenSSL.
const OF_OTHERS: [&str; 1] = ["ssl_cert_file"];

/// The setting that a variable probably means although it is none: another case or a `SHOAL_` prefix, one or two mistyped
/// characters, or a secret with the suffix `_FILE` that other programs use. `None` for a variable of another program: the
/// environment has many, so fewer differences are a mistake here than in [`nearest`].
pub(super) fn misspelt<'a>(variable: &str, settings: impl Iterator<Item = &'a Definition>) -> Option<String> {
    let name = plain(variable);
    if name.chars().count() > MAX_NAME_CHARS || OF_OTHERS.contains(&name.as_str()) {
        return None;
    }
    let of_file = name.strip_suffix("_file");
    let meant = settings.filter_map(|setting| {
        let known = setting.key();
        if setting.secret() && of_file == Some(&known) {
            return Some((0, format!("{}=file:PATH", setting.name)));
        }
        let bound = if known.len() < 10 { 1 } else { 2 };
        if !lengths_are_near(&name, &known, bound) {
            return None;
        }
        let distance = osa_distance(&name, &known);
        (distance <= bound).then(|| (distance, setting.name.to_owned()))
    });
    meant.min().map(|(_, meant)| meant)
}

fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace('-', "_");
    name.strip_prefix("shoal_").map(str::to_owned).unwrap_or(name)
}
