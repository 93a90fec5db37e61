//! One thing wrong with a recipe, told so that a person can mend it.
//!
//! ```text
//! { "path":    "/partition_layout/0/size",   JSON Pointer (RFC 6901) to the place, or to where the missing field goes
//!   "field":   "size",                       its last segment, "" for the recipe as a whole
//!   "code":    "pattern",                    the schema keyword that failed, or a rule of our own
//!   "message": "`partition_layout/0/size` …" }
//! ```
//!
//! Codes that are no schema keywords: `json`, `utf8`, `duplicate_key`, `too_large`, `too_deep`, `too_many_values`,
//! `too_many_errors`, `recipe_version`, `maxBytes`, `base64`, `size_range`, `nil_type`, `whole_disk`, `rest_twice`,
//! `percent_sum`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// No answer lists more errors than this.
pub const MAX_ERRORS: usize = 50;

const MAX_PATH_CHARS: usize = 256;
const MAX_FIELD_CHARS: usize = 64;
const MAX_MESSAGE_CHARS: usize = 600;

/// One error of a recipe: where, which rule, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct FieldError {
    /// JSON Pointer to the offending place; one of more than 256 characters is cut and ends in `…`.
    pub path: String,
    /// Last segment of the path, unescaped; empty for the whole recipe.
    pub field: String,
    /// The failed schema keyword or the name of our own rule.
    pub code: String,
    /// A sentence for a person. Holds sizes, never contents, of payload fields.
    pub message: String,
}

impl FieldError {
    pub(super) fn new(path: &str, code: &str, message: impl AsRef<str>) -> Self {
        let field = path.rsplit_once('/').map_or("", |(_, last)| last);
        Self {
            path: cut(path, MAX_PATH_CHARS),
            field: cut(&field.replace("~1", "/").replace("~0", "~"), MAX_FIELD_CHARS),
            code: code.to_owned(),
            message: cut(message.as_ref(), MAX_MESSAGE_CHARS),
        }
    }
}

/// The pointer to member `segment` of the value at `path`.
pub(super) fn child(path: &str, segment: &str) -> String {
    format!("{path}/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// How messages name the value at `path`.
pub(super) fn display(path: &str) -> String {
    match path.strip_prefix('/') {
        None => "The recipe".to_owned(),
        // Names come from the recipe too: no line breaks or terminal escapes in a log.
        Some(rest) => format!("`{}`", cut(rest, MAX_FIELD_CHARS).escape_debug()),
    }
}

/// The first `limit` characters of `text`, marked when there was more.
pub(super) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Order of pointers as a reader of the document expects it: item 9 before item 10.
pub(super) fn by_path(a: &str, b: &str) -> Ordering {
    let mut right = b.split('/');
    for left in a.split('/') {
        let Some(right) = right.next() else { return Ordering::Greater };
        let order = match (left.parse::<u64>(), right.parse::<u64>()) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            _ => left.cmp(right),
        };
        if order.is_ne() {
            return order;
        }
    }
    if right.next().is_some() { Ordering::Less } else { Ordering::Equal }
}

/// Cuts a list of errors to [`MAX_ERRORS`], the last of which then says that there are more.
pub(super) fn bounded(mut errors: Vec<FieldError>) -> Vec<FieldError> {
    if errors.len() > MAX_ERRORS {
        errors.truncate(MAX_ERRORS - 1);
        let message = "There are more errors than are listed; mend these first.";
        errors.push(FieldError::new("", "too_many_errors", message));
    }
    errors
}
