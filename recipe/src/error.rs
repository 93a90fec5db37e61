//! Recipe errors, with the location and a message for the author of the recipe.
//!
//! ```text
//! { "path":    "/partition_layout/0/size",   JSON Pointer (RFC 6901) to the value, or to the missing field
//!   "field":   "size",                       the last segment of the path, "" for the recipe as a whole
//!   "code":    "pattern",                    the schema keyword that failed, or a Shoal rule
//!   "message": "`partition_layout/0/size` …",
//!   "repair":  { "set": "20G" } }              a change that removes the error, where there is one
//! ```
//!
//! Codes that are not schema keywords: `json`, `utf8`, `duplicate_key`, `too_large`, `too_deep`, `too_many_values`,
//! `too_many_errors`, `recipe_version`, `maxBytes`, `base64`, `size_range`, `nil_type`, `whole_disk`, `rest_twice`,
//! `percent_sum`, `oci_url`, `address`, `network`, `mount`, `mkfs_options`, `not_for_target`, `size_order`, `least_size`, `storage`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::repair::Repair;

/// Maximum number of errors in one list.
pub const MAX_ERRORS: usize = 50;

const MAX_PATH_CHARS: usize = 256;
const MAX_FIELD_CHARS: usize = 64;
const MAX_MESSAGE_CHARS: usize = 600;

/// One error of a recipe: location, rule and message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct FieldError {
    /// JSON Pointer to the wrong value. A pointer of more than 256 characters is cut and ends in `…`.
    pub path: String,
    /// The last segment of the path, unescaped; empty for the whole recipe.
    pub field: String,
    /// The schema keyword that failed, or the name of a Shoal rule.
    pub code: String,
    /// The message. It shows sizes of payload fields, never their contents.
    pub message: String,
    /// A change of the recipe that removes the error, where one value is the probable meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Box<Repair>>,
}

impl FieldError {
    /// An error at a place of the document; the message is a sentence.
    pub fn new(path: &str, code: &str, message: impl AsRef<str>) -> Self {
        let field = path.rsplit_once('/').map_or("", |(_, last)| last);
        Self {
            path: cut(path, MAX_PATH_CHARS),
            field: cut(&unescaped(field), MAX_FIELD_CHARS),
            code: code.to_owned(),
            message: cut(message.as_ref(), MAX_MESSAGE_CHARS),
            repair: None,
        }
    }

    /// Adds a change that removes the error. One at a path that was cut is left out.
    pub(super) fn repaired_by(mut self, repair: Option<Repair>) -> Self {
        self.repair = repair.filter(|_| !self.path.ends_with('…')).map(Box::new);
        self
    }
}

/// Returns the pointer (RFC 6901) to member `segment` of the value at `path`.
pub fn child(path: &str, segment: &str) -> String {
    format!("{path}/{}", escaped(segment))
}

/// Returns the name of a member as a segment of a pointer (RFC 6901).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns a segment of a pointer (RFC 6901) as the name of a member.
pub fn unescaped(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// Returns the name of the value at `path` for messages.
pub(super) fn display(path: &str) -> String {
    match path.strip_prefix('/') {
        None => "The recipe".to_owned(),
        // Field names come from the recipe: escaping keeps line breaks and terminal escapes out of logs.
        Some(rest) => format!("`{}`", cut(rest, MAX_FIELD_CHARS).escape_debug()),
    }
}

/// Returns the first `limit` characters of `text`, followed by `…` if it is longer.
pub(super) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Compares pointers in document order, with numbers by value: item 9 before item 10.
pub(super) fn by_path(a: &str, b: &str) -> Ordering {
    let mut right = b.split('/');
    for left in a.split('/') {
        let Some(right) = right.next() else { return Ordering::Greater };
        // Numbers before texts: 50, 100, 1a. The order must be total, or a sort may panic.
        let order = match (left.parse::<u64>(), right.parse::<u64>()) {
            (Ok(one), Ok(other)) => one.cmp(&other).then_with(|| left.cmp(right)),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => left.cmp(right),
        };
        if order.is_ne() {
            return order;
        }
    }
    if right.next().is_some() { Ordering::Less } else { Ordering::Equal }
}

/// Cuts a list of errors to [`MAX_ERRORS`]; the last one then says that there are more.
pub(super) fn bounded(mut errors: Vec<FieldError>) -> Vec<FieldError> {
    if errors.len() > MAX_ERRORS {
        errors.truncate(MAX_ERRORS - 1);
        let message = "There are more errors than are listed; correct these first.";
        errors.push(FieldError::new("", "too_many_errors", message));
    }
    errors
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A sort with another order may panic.
        #[test]
        fn pointers_have_a_total_order(pointers in prop::collection::vec("(/[019a]{0,2}){0,2}", 3)) {
            let [a, b, c] = [&pointers[0], &pointers[1], &pointers[2]];
            prop_assert_eq!(by_path(a, b), by_path(b, a).reverse());
            prop_assert_eq!(by_path(a, b).is_eq(), a == b);
            if by_path(a, b).is_le() && by_path(b, c).is_le() {
                prop_assert!(by_path(a, c).is_le(), "{a} {b} {c}");
            }
        }
    }
}
