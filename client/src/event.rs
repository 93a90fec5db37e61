//! `shoal event list`: the event log of all jobs and servers, or of one job.
//!
//! ```text
//!   the newest of all     latest ──> the PAGE positions before ──> those before … until there are enough, or one is too old
//!   the newest of a job   its whole log, which is short
//!   --watch               what follows the last position that was read
//! ```
//!
//! The API has the log in the order of its positions; time, type and server are compared here. Without `--since` a look back ends after
//! [`MOST_IN_VAIN`] requests that found nothing, so that few events of one server do not read the whole log.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::ids;
use super::live::{Source, WatchArgs};
use super::output::{Column, Output, Since, is_since, plain, text};
use super::watch;
use model::EVENT_TYPES;

/// The positions that are read at once.
const PAGE: u64 = 1000;
/// The most positions of one look back over a part of the log that is empty.
const WIDEST: u64 = 64 * PAGE;
/// The most requests of one look back that find no wanted event.
const MOST_IN_VAIN: usize = 100;

/// Commands for the event log.
#[derive(Debug, Subcommand)]
pub(super) enum EventCommand {
    /// List the newest events of all jobs and servers, the oldest of them first
    List(Box<ListEvents>),
}

/// Arguments of `shoal event list`.
#[derive(Args, Debug)]
pub(super) struct ListEvents {
    /// Only events of this time or later: a duration before now, such as 2h, a date, or a time as RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only events of this type, such as job.created or registry.*; * stands for any characters, ? for one; may be repeated
    #[arg(long = "type", value_name = "GLOB")]
    types: Vec<String>,
    /// Only events of this server
    #[arg(long, value_name = "SERIAL")]
    server: Option<String>,
    /// Only events of this job: its id, or the beginning of it
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// The maximum of listed events
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::many::rows)]
    limit: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Events with the position after which to continue.
struct Listed {
    events: Vec<Value>,
    next: u64,
    /// The position up to which a look back that was ended has read: before it there may be others.
    ended_at: Option<u64>,
}

/// Runs a command.
pub(super) async fn run(
    command: EventCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let EventCommand::List(list) = command;
    // Not refused: a controller of another version, or a former one that wrote this log, has other types.
    for glob in &list.types {
        if !EVENT_TYPES.iter().any(|kind| is_like(glob, kind)) {
            output.note(format!(
                "--type {}: this version has no such event; docs/events.md lists the types",
                plain(glob)
            ));
        }
    }
    let job = match &list.job {
        Some(job) => Some(ids::job(client, job).await?),
        None => None,
    };
    let path = match &job {
        Some(job) => vec!["jobs", job, "events"],
        None => vec!["events"],
    };
    let mut kept: Option<Listed> = None;
    let read = async |output: &mut Output<'_>| {
        let listed = match kept.take() {
            Some(listed) => list.following(listed, &path, client, output).await?,
            None => list.newest(&path, client, output).await?,
        };
        let listed = kept.insert(listed);
        show(listed, output)
    };
    list.watch.list(Source::Events(client), output, read).await
}

impl ListEvents {
    /// The newest events that are wanted.
    async fn newest(&self, path: &[&str], client: &Client, output: &Output<'_>) -> Result<Listed, CliError> {
        let mut listed = match self.job {
            Some(_) => {
                let (mut events, next) = watch::events(client, path, 0).await?;
                events.retain(|event| self.wants(event, output));
                Listed { events, next, ended_at: None }
            }
            None => self.newest_of_all(path, client, output).await?,
        };
        listed.events.drain(..listed.events.len().saturating_sub(self.limit));
        Ok(listed)
    }

    async fn newest_of_all(
        &self,
        path: &[&str],
        client: &Client,
        output: &Output<'_>,
    ) -> Result<Listed, CliError> {
        let query = [("after", "latest".to_owned()), ("limit", "1".to_owned())];
        let Some(next) = client.get(path, &query).await?.body["next"].as_u64() else {
            return Err(client.unexpected_response(path, "the position is missing"));
        };
        let from = self.since.map(|since| since.time((output.times.now)()));
        let (mut high, mut step) = (next, PAGE);
        let mut events: Vec<Value> = Vec::new();
        let mut in_vain = 0;
        while high > 0 && events.len() < self.limit {
            if from.is_none() && in_vain >= MOST_IN_VAIN {
                return Ok(Listed { events, next, ended_at: Some(high) });
            }
            let low = high.saturating_sub(step);
            let (mut part, requests) = between(client, path, low, high).await?;
            let is_old = |event: &Value| from.is_some_and(|from| !is_since(event, "/time", from));
            let begun = part.first().is_some_and(is_old);
            // Events of removed jobs are removed: a part of the log may be empty.
            step = if part.is_empty() { (step * 2).min(WIDEST) } else { PAGE };
            part.retain(|event| self.wants(event, output));
            in_vain += if part.is_empty() { requests } else { 0 };
            part.append(&mut events);
            events = part;
            high = low;
            if begun {
                break;
            }
        }
        Ok(Listed { events, next, ended_at: None })
    }

    /// What was listed, with the events that followed. New events are never left out, also when they are more than the limit.
    async fn following(
        &self,
        mut listed: Listed,
        path: &[&str],
        client: &Client,
        output: &Output<'_>,
    ) -> Result<Listed, CliError> {
        let (mut new, next) = watch::events(client, path, listed.next).await?;
        new.retain(|event| self.wants(event, output));
        let most = self.limit.max(new.len());
        listed.events.append(&mut new);
        listed.events.drain(..listed.events.len().saturating_sub(most));
        listed.next = next;
        Ok(listed)
    }

    fn wants(&self, event: &Value, output: &Output<'_>) -> bool {
        let from = self.since.map(|since| since.time((output.times.now)()));
        let of_type = self.types.is_empty()
            || self.types.iter().any(|glob| is_like(glob, event["type"].as_str().unwrap_or_default()));
        let of_server = self.server.as_ref().is_none_or(|server| event["server_serial"] == **server);
        of_type && of_server && from.is_none_or(|from| is_since(event, "/time", from))
    }
}

/// The events after position `low`, up to position `high`, and the number of requests.
async fn between(
    client: &Client,
    path: &[&str],
    low: u64,
    high: u64,
) -> Result<(Vec<Value>, usize), CliError> {
    let (mut events, mut after, mut requests) = (Vec::new(), low, 0);
    while after < high {
        requests += 1;
        let query = [("after", after.to_string()), ("limit", PAGE.to_string())];
        let mut page = client.get(path, &query).await?.body;
        let Some(Value::Array(mut found)) = page.get_mut("events").map(Value::take) else {
            return Err(client.unexpected_response(path, "the list of events is missing"));
        };
        let last = found.iter().filter_map(|event| event["seq"].as_u64()).max();
        found.retain(|event| event["seq"].as_u64().is_some_and(|seq| seq > after && seq <= high));
        events.append(&mut found);
        match last {
            Some(last) if last > after => after = last,
            _ => break,
        }
    }
    Ok((events, requests))
}

/// Whether a text has the form of a glob: `*` stands for any characters, `?` for one.
fn is_like(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut at, mut place) = (0, 0);
    // The last star, and the place in the text up to which it reaches.
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        match glob.get(at) {
            Some('*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(character) if *character == '?' || *character == text[place] => {
                (at, place) = (at + 1, place + 1);
            }
            _ => match star {
                Some((of, reached)) => {
                    star = Some((of, reached + 1));
                    (at, place) = (of + 1, reached + 1);
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|character| *character == '*')
}

fn show(listed: &Listed, output: &mut Output<'_>) -> Result<(), CliError> {
    if let Some(position) = listed.ended_at {
        output.note(format!(
            "the log was read back to position {position}; for older events give --since TIME, or --job JOB"
        ));
    }
    if output.json {
        let document =
            json!({ "events": listed.events, "next": listed.next, "read_back_to": listed.ended_at });
        return output.document(&document);
    }
    const COLUMNS: [Column<'_>; 8] = [
        Column::new("TIME", 0),
        Column::new("TYPE", 2),
        Column::new("SERVER", 3),
        Column::new("MESSAGE", 1),
        Column::new("LEVEL", 4),
        Column::new("JOB", 5),
        Column::wide("ACTOR"),
        Column::wide("POSITION"),
    ];
    let columns = ["/time", "/type", "/server_serial", "/message", "/level", "/job_id", "/actor", "/seq"];
    let rows: Vec<Vec<String>> =
        listed.events.iter().map(|event| columns.map(|pointer| text(event, pointer)).to_vec()).collect();
    output.columns(&COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn a_glob_of_types_has_stars_and_question_marks() {
        for (glob, text) in [
            ("job.created", "job.created"),
            ("registry.*", "registry.push-tag"),
            ("*", ""),
            ("*.created", "job.created"),
            ("j?b.*", "job.failed"),
            ("*a*b*", "xxaxxbxx"),
            ("*ab", "aab"),
        ] {
            assert!(is_like(glob, text), "{glob} {text}");
        }
        for (glob, text) in
            [("job.*", "registry.push"), ("", "x"), ("j?b", "jb"), ("*a*b", "ba"), ("job", "jobs")]
        {
            assert!(!is_like(glob, text), "{glob} {text}");
        }
    }
}
