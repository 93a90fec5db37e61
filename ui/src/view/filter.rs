//! Filters of lists as links. A link filters by the language of the API, so that the rows are those that the number counts.

use super::jobs_verb::JobsVerb;
use crate::words;

/// Jobs that failed.
pub(crate) const FAILED: &str = "outcome:failed";
/// Failures that need a person: of the last day, and no newer job of the server has followed.
pub(crate) const OPEN_FAILURE: &str = "failure:open";
/// Jobs that need a decision.
pub(crate) const HELD: &str = "condition:held,restored";
/// Jobs that wait.
pub(crate) const WAITING: &str = "condition:waiting,retrying";
/// Jobs at which a worker is or is about to be.
pub(crate) const WORKING: &str = "condition:working,due,cancelling,abandoned";
/// Jobs that have not begun.
pub(crate) const QUEUED: &str = "condition:queued,gated,blocked";
/// Jobs that succeeded.
pub(crate) const DONE: &str = "outcome:succeeded";

/// The list of jobs with a filter.
pub(crate) fn jobs(filter: &str) -> String {
    list("/ui/jobs", filter)
}

/// The list of servers with a filter.
pub(crate) fn servers(filter: &str) -> String {
    list("/ui/servers", filter)
}

/// The question before a verb for all jobs of a filter.
pub(crate) fn selection(verb: JobsVerb, filter: &str) -> String {
    list(&format!("/ui/jobs/selection/{}", verb.word()), filter)
}

fn list(path: &str, filter: &str) -> String {
    match filter {
        "" => path.to_owned(),
        filter => format!("{path}?q={}", words::encoded(filter)),
    }
}

/// The term `key:value`; a value with a blank, a comma or a quotation mark is quoted.
pub(crate) fn term(key: &str, value: &str) -> String {
    format!("{key}:{}", quoted(value))
}

/// The term `label=value`.
pub(crate) fn label(label: &str, value: &str) -> String {
    format!("{label}={}", quoted(value))
}

/// The term for rows without a label.
pub(crate) fn without_label(label: &str) -> String {
    format!("-label:{}", quoted(label))
}

fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-+/".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The terms of a filter, divided at blanks outside of quotation marks.
pub(crate) fn terms(text: &str) -> Vec<String> {
    let (mut terms, mut term) = (Vec::new(), String::new());
    let (mut inside, mut escaped) = (false, false);
    for c in text.chars() {
        if c.is_whitespace() && !inside {
            if !term.is_empty() {
                terms.push(std::mem::take(&mut term));
            }
            continue;
        }
        if c == '"' && !escaped {
            inside = !inside;
        }
        escaped = c == '\\' && !escaped;
        term.push(c);
    }
    if !term.is_empty() {
        terms.push(term);
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_where_the_language_needs_it() {
        assert_eq!(term("class", "bmc.media"), "class:bmc.media");
        assert_eq!(label("site", "the quay"), "site=\"the quay\"");
        assert_eq!(term("serial", r#"a"b\c"#), r#"serial:"a\"b\\c""#);
        assert_eq!(terms(r#"a:"b c" "d\" e" f"#), [r#"a:"b c""#, r#""d\" e""#, "f"]);
        assert_eq!(jobs("a b"), "/ui/jobs?q=a%20b");
    }
}
