//! `shoal event list`: the event log of all jobs and servers, or of one job.
//!
//! ```text
//!   the newest   before=latest ──> the page before it ──> … until there are enough, or the log has no more
//!   --watch      after the last position that was read
//! ```
//!
//! The controller finds the events; a request reads a part of the log at most. Without `--since` a look back ends after
//! [`MOST_IN_VAIN`] requests that found nothing.
//!
//! Invariant: a watch shows every event once, also after reads that failed: its position moves with the events that it has.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::ids;
use super::live::{Source, WatchArgs};
use super::output::{Column, Output, Since, text};
use model::EVENT_TYPES;
use model::filter::Glob;

/// The most events of one request.
const PAGE: usize = 1000;
/// The most requests of one look back that find no wanted event.
const MOST_IN_VAIN: usize = 100;
/// The most requests for what followed; the rest is read at the next change.
const MOST_PAGES: usize = 100;

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
    /// Only events before this time: a duration before now, a date, or a time as RFC 3339
    #[arg(long, value_name = "TIME", conflicts_with = "watch")]
    until: Option<Since>,
    /// Only events of this level or a higher one
    #[arg(long, value_name = "LEVEL", value_parser = ["info", "warn", "error"])]
    level: Option<String>,
    /// Only events of this type, such as job.created or registry.*; * stands for any characters, ? for one; may be repeated
    #[arg(long = "type", value_name = "GLOB", value_parser = of_type)]
    types: Vec<Glob>,
    /// Only events that this user, token or part of the program caused, such as engine; people stands for every user and token
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
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

/// One response.
struct Page {
    events: Vec<Value>,
    next: u64,
    previous: Option<u64>,
}

/// Runs a command of `shoal event`.
pub(super) async fn run(
    command: EventCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let EventCommand::List(list) = command;
    // Not refused: a controller of another version, or a former one that wrote this log, has other types.
    for glob in &list.types {
        if !EVENT_TYPES.iter().any(|kind| is_like(glob.as_str(), kind)) {
            output.note(format!(
                "--type {glob}: this version has no such event; docs/events.md lists the types"
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
        list.read(&mut kept, &path, client, output).await?;
        kept.iter().try_for_each(|listed| show(listed, output))
    };
    list.watch.list(Source::Events(client), output, read).await
}

impl ListEvents {
    /// Reads the newest events, or what followed those that are kept. After a failed read the kept ones are as before, with their position.
    async fn read(
        &self,
        kept: &mut Option<Listed>,
        path: &[&str],
        client: &Client,
        output: &Output<'_>,
    ) -> Result<(), CliError> {
        match kept {
            Some(listed) => self.follow(listed, path, client, output).await,
            None => {
                *kept = Some(self.newest(path, client, output).await?);
                Ok(())
            }
        }
    }

    /// The newest events that are wanted.
    async fn newest(&self, path: &[&str], client: &Client, output: &Output<'_>) -> Result<Listed, CliError> {
        let limit = self.limit.min(PAGE);
        let mut page = self.page(path, client, output, ("before", "latest".to_owned()), limit).await?;
        let next = page.next;
        let (mut events, mut in_vain) = (page.events, 0);
        while let Some(previous) = page.previous.filter(|_| events.len() < self.limit) {
            if self.since.is_none() && in_vain >= MOST_IN_VAIN {
                return Ok(Listed { events, next, ended_at: Some(previous) });
            }
            page = self.page(path, client, output, ("before", previous.to_string()), limit).await?;
            in_vain += usize::from(page.events.is_empty());
            page.events.append(&mut events);
            events = std::mem::take(&mut page.events);
        }
        events.drain(..events.len().saturating_sub(self.limit));
        Ok(Listed { events, next, ended_at: None })
    }

    /// Lists the events that followed too. New events are never left out, also when they are more than the limit.
    async fn follow(
        &self,
        listed: &mut Listed,
        path: &[&str],
        client: &Client,
        output: &Output<'_>,
    ) -> Result<(), CliError> {
        let (mut new, mut next) = (Vec::new(), listed.next);
        for _ in 0..MOST_PAGES {
            let mut page = self.page(path, client, output, ("after", next.to_string()), PAGE).await?;
            new.append(&mut page.events);
            if page.next <= next {
                break;
            }
            next = page.next;
        }
        let most = self.limit.max(new.len());
        listed.next = next;
        listed.events.append(&mut new);
        listed.events.drain(..listed.events.len().saturating_sub(most));
        Ok(())
    }

    /// One page of the wanted events at a place of the log.
    async fn page(
        &self,
        path: &[&str],
        client: &Client,
        output: &Output<'_>,
        place: (&'static str, String),
        limit: usize,
    ) -> Result<Page, CliError> {
        // No event is older than 1970, and the API has no times before it.
        let time = |time: &Option<Since>| {
            time.map(|time| time.time((output.times.now)()).max(jiff::Timestamp::UNIX_EPOCH).to_string())
        };
        let types: Vec<&str> = self.types.iter().map(Glob::as_str).collect();
        let types = (!types.is_empty()).then(|| types.join(","));
        let filters = [
            ("server", self.server.clone()),
            ("type", types),
            ("level", self.level.clone()),
            ("actor", self.actor.clone()),
            ("since", time(&self.since)),
            ("until", time(&self.until)),
        ];
        let mut query = vec![place, ("limit", limit.to_string())];
        query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let mut body = client.get(path, &query).await?.body;
        let Some(Value::Array(events)) = body.get_mut("events").map(Value::take) else {
            return Err(client.unexpected_response(path, "the list of events is missing"));
        };
        let Some(next) = body["next"].as_u64() else {
            return Err(client.unexpected_response(path, "the position is missing"));
        };
        Ok(Page { events, next, previous: body["previous"].as_u64() })
    }
}

/// Parses a glob of event types.
fn of_type(text: &str) -> Result<Glob, String> {
    text.parse().map_err(|_| {
        "a type of docs/events.md, or a glob of it: letters, digits, dots and dashes, * for any characters and ? for one".to_owned()
    })
}

/// Whether a text has the form of a glob: `*` stands for any characters, `?` for one.
pub(super) fn is_like(glob: &str, text: &str) -> bool {
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
    use std::io::{BufRead, BufReader, Write};

    use clap::FromArgMatches;
    use serde_json::json;

    use super::{ListEvents, is_like};
    use crate::output::{Format, Output};

    /// A controller that sends these responses, each in a connection of its own, and then the paths that were requested.
    fn responding(responses: Vec<(u16, String)>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requested = move |(status, body): (u16, String)| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let first = lines.next().unwrap();
            assert!(lines.any(|line| line.is_empty()));
            let head =
                format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
            first.split(' ').nth(1).unwrap().to_owned()
        };
        (url, std::thread::spawn(|| responses.into_iter().map(requested).collect()))
    }

    #[tokio::test]
    async fn a_watch_continues_where_it_was_after_a_read_that_failed() {
        let page = |events: &[u64], next: u64| {
            let events: Vec<_> = events.iter().map(|seq| json!({ "seq": seq })).collect();
            (200, json!({ "events": events, "next": next, "previous": null }).to_string())
        };
        let stops = || (503, json!({ "error": "stopping", "message": "it stops" }).to_string());
        let (url, requests) = responding(vec![
            page(&[7, 8], 8),
            stops(),
            // The first page of what followed arrives and the second one does not.
            page(&[9], 9),
            stops(),
            page(&[9], 9),
            page(&[10], 10),
            page(&[], 10),
        ]);
        let client = crate::test_kit::client(&url).unwrap();
        let matches = <ListEvents as clap::Args>::augment_args(clap::Command::new("list"))
            .get_matches_from(["list", "--watch"]);
        let list = ListEvents::from_arg_matches(&matches).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let output = Output::new(&mut out, &mut err, Format::Text);
        let mut kept = None;
        list.read(&mut kept, &["events"], &client, &output).await.unwrap();
        for _ in 0..2 {
            list.read(&mut kept, &["events"], &client, &output).await.unwrap_err();
        }
        list.read(&mut kept, &["events"], &client, &output).await.unwrap();
        let places: Vec<String> = requests
            .join()
            .unwrap()
            .iter()
            .map(|path| path.split(['?', '&']).nth(1).unwrap().to_owned())
            .collect();
        let following = ["after=8", "after=8", "after=9", "after=8", "after=9", "after=10"];
        assert_eq!(places, [&["before=latest"][..], &following].concat());
        let listed = kept.unwrap();
        let numbers: Vec<u64> = listed.events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!((numbers, listed.next), (vec![7, 8, 9, 10], 10));
    }

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
