//! Short ids: a command takes the beginning of the id of a job, a batch or a webhook if no other begins so.
//!
//! ```text
//!   0192f3a4-5b6c-7abc-8def-0123456789ab   whole: sent as it is
//!   0192f3a4                               the controller looks for two: one is it; none, or several, is an error with candidates
//!   any other text                         sent as it is: the controller refuses it
//! ```
//!
//! Ids are ordered by time, so jobs of one minute have their first eight characters in common; a list shows as many as needed.

use serde_json::Value;

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::output::{join, text};

/// The characters of a whole id.
const WHOLE: usize = 36;
/// The characters of the shortest beginning of an id that the controller accepts.
const LEAST: usize = 4;
/// The number of candidates that an error names.
const CANDIDATES: usize = 10;

/// The id of the only job that begins so.
pub(super) async fn job(client: &Client, given: &str) -> Result<String, CliError> {
    if !is_beginning(given) {
        return Ok(given.to_owned());
    }
    let query = [("id", given.to_owned()), ("limit", (CANDIDATES + 1).to_string())];
    let page = client.get(&["jobs"], &query).await?.body;
    let found = page["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    only("job", "job_id", given, found, |job| {
        let short = match text(job, "/short_id") {
            short if short.is_empty() => text(job, "/job_id"),
            short => short,
        };
        join(&[short, text(job, "/server_serial"), text(job, "/status"), text(job, "/created_at")], "  ")
    })
}

/// The id of the only batch that begins so.
pub(super) async fn batch(client: &Client, given: &str) -> Result<String, CliError> {
    if !is_beginning(given) {
        return Ok(given.to_owned());
    }
    let query = [("id", given.to_owned()), ("limit", (CANDIDATES + 1).to_string())];
    let page = client.get(&["batches"], &query).await?.body;
    let found = page["batches"].as_array().map(Vec::as_slice).unwrap_or_default();
    only("batch", "batch_id", given, found, |batch| {
        join(&[text(batch, "/batch_id"), text(batch, "/created_at")], "  ")
    })
}

/// The id of the only webhook that begins so.
pub(super) async fn webhook(client: &Client, given: &str) -> Result<String, CliError> {
    if !is_beginning(given) {
        return Ok(given.to_owned());
    }
    let page = client.get(&["webhooks"], &[]).await?.body;
    let begins = |hook: &Value| {
        let id = hook["webhook_id"].as_str().unwrap_or_default();
        id.starts_with(&given.to_ascii_lowercase())
    };
    let found: Vec<Value> =
        page["webhooks"].as_array().into_iter().flatten().filter(|hook| begins(hook)).cloned().collect();
    only("webhook", "webhook_id", given, &found, |hook| {
        join(&[text(hook, "/webhook_id"), text(hook, "/target")], "  ")
    })
}

fn is_beginning(text: &str) -> bool {
    (LEAST..WHOLE).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn only(
    what: &'static str,
    key: &str,
    given: &str,
    found: &[Value],
    candidate: impl Fn(&Value) -> String,
) -> Result<String, CliError> {
    match found {
        [] => Err(CliError::Local {
            message: format!("no {what} has an id that begins with {given}; `shoal {what} list` shows them"),
            exit: Exit::NotFound,
        }),
        [one] => Ok(text(one, &format!("/{key}"))),
        many => Err(CliError::AmbiguousId {
            what,
            given: given.to_owned(),
            more: many.len() > CANDIDATES,
            candidates: many.iter().take(CANDIDATES).map(candidate).collect(),
        }),
    }
}

/// The number of characters by which ids of one list differ, eight or more.
pub(super) fn distinct(ids: &[&str]) -> usize {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let shared = sorted
        .windows(2)
        .map(|pair| pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count());
    shared.max().map_or(8, |shared| (shared + 1).max(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_part_of_an_id_is_looked_for() {
        for part in ["0192", "0192F3a4", "0192f3a4-5b6c-7abc-8def-0123456789a"] {
            assert!(is_beginning(part), "{part}");
        }
        for other in ["019", "j-1", "xyz12345", "0192f3a4-5b6c-7abc-8def-0123456789ab", ""] {
            assert!(!is_beginning(other), "{other}");
        }
    }

    #[test]
    fn ids_of_a_list_differ_in_the_characters_that_are_shown() {
        assert_eq!(distinct(&["0192f3a4-1", "0192f3a4-2"]), 10);
        assert_eq!(distinct(&["0192f3a4-1"]), 8);
        assert_eq!(distinct(&["a", "b"]), 8);
    }
}
