//! Commands for many jobs or servers: what a filter selects, shown first, and changed with `--yes` only.
//!
//! ```text
//!  shoal job cancel -l site=a          preview: the number and the first of them; nothing is changed
//!  shoal job cancel -l site=a --yes    preview, then the change of the jobs of the preview; refused if they are others by then
//!  ... --yes --expect 12               the number comes from an earlier preview
//! ```

use clap::Args;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::connection::Client;
use super::error::CliError;
use super::exit::Exit;
use super::filter::FilterOptions;
use super::output::{Output, counted, join, plain, text};
use super::repeat::RepeatKey;
use model::Subject;

/// The maximum of servers that one command changes.
const MAX_SERVERS: usize = 5000;
/// The maximum of jobs that one command changes one after the other.
const MAX_JOBS: usize = 1000;
/// The maximum of servers that a preview names.
const NAMED: usize = 20;

/// Whether a command changes what its filter selects.
#[derive(Args, Debug)]
pub(super) struct Consent {
    /// Change what the filter selects; without it only a preview is shown
    #[arg(long)]
    yes: bool,
    /// With --yes: change nothing unless the filter selects this number
    #[arg(long, value_name = "N", requires = "yes")]
    expect: Option<u64>,
}

/// One row or a selection of rows.
#[derive(Args, Debug)]
pub(super) struct Selection {
    #[command(flatten)]
    pub(super) filter: FilterOptions,
    #[command(flatten)]
    consent: Consent,
}

/// One server or the servers of a filter, for a command whose `--label` sets labels.
#[derive(Args, Debug)]
pub(super) struct ServerFilter {
    /// The servers for which this holds: KEY:VALUE (such as state:free), LABEL=VALUE, LABEL!=VALUE, or a text; may be
    /// repeated
    #[arg(id = "filter", long = "filter", value_name = "FILTER", allow_hyphen_values = true)]
    terms: Vec<String>,
    /// The servers in this state: free, busy, maintenance, restored, pending-cleanup or unseen
    #[arg(id = "state", long = "state", value_name = "STATE")]
    state: Option<String>,
    /// The servers with this serial number; * stands for any characters, ? for one
    #[arg(id = "serial_glob", long = "serial-glob", value_name = "GLOB")]
    serial_glob: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

impl ServerFilter {
    /// The servers of the filter; `None` after a preview. Without a filter no server. A dry run needs no consent.
    pub(super) async fn servers(
        &self,
        verb: &str,
        dry_run: bool,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Option<Vec<String>>, CliError> {
        let filter = self.text()?;
        self.consent.servers(verb, &filter, dry_run, client, output).await
    }

    /// The servers of the filter, for a command that changes nothing.
    pub(super) async fn selected(&self, client: &Client) -> Result<Vec<String>, CliError> {
        some_serials(&self.text()?, client).await
    }

    fn text(&self) -> Result<String, CliError> {
        let options = FilterOptions::of_servers(self.state.clone(), self.serial_glob.clone());
        options.text_with(Subject::Servers, &self.terms)
    }

    /// Whether there is a filter.
    pub(super) fn is_given(&self) -> bool {
        !self.terms.is_empty() || self.state.is_some() || self.serial_glob.is_some()
    }

    /// Refuses `--yes` without a filter.
    pub(super) fn expect_none(&self) -> Result<(), CliError> {
        self.consent.expect_none()
    }
}

/// A verb for the jobs of a filter.
pub(super) struct JobsRequest<'a> {
    pub(super) verb: &'a str,
    pub(super) filter: &'a str,
    pub(super) reason: Option<&'a str>,
}

impl Consent {
    /// Refuses a consent without a filter.
    pub(super) fn expect_none(&self) -> Result<(), CliError> {
        match self.yes {
            true => Err(CliError::Usage(
                "--yes belongs to a filter; servers that are named one by one need none".to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// The servers of a filter; `None` after a preview. A dry run needs no consent: it shows what it finds by itself.
    ///
    /// # Errors
    /// When the servers cannot be listed; with `--yes` or `--dry-run` also when the filter selects no server, or another number than
    /// was expected.
    pub(super) async fn servers(
        &self,
        verb: &str,
        filter: &str,
        dry_run: bool,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Option<Vec<String>>, CliError> {
        let serials = serials(filter, client).await?;
        match self.expect {
            Some(expected) if expected != serials.len() as u64 => {
                Err(unexpected(serials.len(), "server", "servers", expected))
            }
            // A dry run is what a script checks before the command: nothing to do is a mistake of the filter.
            _ if serials.is_empty() && (self.yes || dry_run) => Err(selects_no("server")),
            _ if self.yes || dry_run => Ok(Some(serials)),
            _ => {
                show_servers(verb, &serials, output)?;
                Ok(None)
            }
        }
    }
}

/// Carries out a change for each server, one after the other. A refusal is shown, and the others go on.
///
/// # Errors
///
/// How many failed, if any did.
pub(super) async fn each(
    serials: &[String],
    output: &mut Output<'_>,
    change: impl AsyncFn(&str, &mut Output<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    each_of(("server", "servers"), serials, output, change).await
}

/// Carries out a change for each of the things that are called `one` and `many`, one after the other. A refusal is shown, with a document
/// as output as a document, and the others go on. An error that all of them would have ends it.
///
/// # Errors
///
/// How many failed, if any did; an error that is not of one thing.
pub async fn each_of(
    (one, many): (&str, &str),
    names: &[String],
    output: &mut Output<'_>,
    change: impl AsyncFn(&str, &mut Output<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut failed = 0_usize;
    for (number, name) in (1_usize..).zip(names) {
        if let Err(error) = change(name, output).await {
            // A watch reads all of them again; what was removed meanwhile is not listed then.
            if output.record.is_some() {
                match error.exit() {
                    _ if error.is_transient() => return Err(error),
                    Exit::NotFound => continue,
                    _ => {}
                }
            }
            failed += 1;
            if output.json {
                output.row(&json!({ one: name, "error": error.to_string() }))?;
            }
            output.note(format!("{one} {}: {error}", plain(name)));
            let left = names.len() - number;
            if left > 0 && error.is_of_all() {
                output.note(format!("{} not tried: it is the same for all", counted(left as u64, one, many)));
                return Err(error);
            }
            if matches!(error, CliError::Lost { .. }) {
                error.hint().iter().for_each(|hint| output.note(format!("hint: {hint}")));
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(CliError::failed(format!("{failed} of {} {many} did not succeed", names.len()))),
    }
}

impl Selection {
    /// Refuses a command that names one row and a filter, or neither.
    pub(super) fn or_one(&self, subject: Subject, one: Option<&str>, what: &str) -> Result<String, CliError> {
        let filter = self.filter.text(subject)?;
        match (one, filter.is_empty()) {
            (Some(_), true) if !self.consent.yes => Ok(filter),
            (None, false) => Ok(filter),
            (None, true) => Err(CliError::Usage(format!(
                "give the {what}, or a filter: -l, --state, --serial-glob, --not"
            ))),
            (Some(_), _) => Err(CliError::Usage(format!("give the {what} or a filter with --yes, not both"))),
        }
    }

    /// Carries out a verb for the jobs of a filter, or previews it. Returns the response of the change.
    pub(super) async fn jobs(
        &self,
        JobsRequest { verb, filter, reason }: JobsRequest<'_>,
        key: Option<&RepeatKey>,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Option<Value>, CliError> {
        let path = ["job-selections", verb];
        let mut body = Map::new();
        body.insert("filter".to_owned(), json!(filter));
        body.extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
        let expected = match self.consent.expect {
            Some(expected) => expected,
            None => {
                let query = [("dry_run", "true".to_owned())];
                // With a key that was used: the jobs that its request selected, not those that are left.
                let headers = key.map_or_else(|| Ok(HeaderMap::new()), RepeatKey::headers)?;
                let preview = client.post_query(&path, &query, &body, headers).await?.body;
                let count = preview["count"].as_u64().unwrap_or(0);
                if !self.consent.yes || count == 0 {
                    show_jobs(verb, &preview, output)?;
                    return if self.consent.yes { Err(selects_no("job")) } else { Ok(None) };
                }
                // The number does not say that the jobs are the same. A controller of an earlier version has no digest of them.
                let selection = preview["selection"].as_str();
                body.extend(selection.map(|selection| ("selection".to_owned(), json!(selection))));
                count
            }
        };
        body.insert("expected".to_owned(), json!(expected));
        let response = match key {
            Some(key) => key.post(client, &path, &body, output).await?,
            None => client.post(&path, &body, HeaderMap::new()).await?,
        };
        Ok(Some(response.body))
    }

    /// The jobs of a filter that have not ended; `None` after a preview.
    pub(super) async fn open_jobs(
        &self,
        verb: &str,
        filter: &str,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Option<Vec<String>>, CliError> {
        let filters = [("filter", format!("{filter} -condition:ended"))];
        let found = client.list(&["jobs"], "jobs", &filters, MAX_JOBS).await?;
        if !found["next"].is_null() {
            return Err(CliError::failed(format!("the filter selects more than {MAX_JOBS} jobs; narrow it")));
        }
        let jobs = found["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
        match self.consent.expect {
            Some(expected) if expected != jobs.len() as u64 => {
                Err(unexpected(jobs.len(), "job", "jobs", expected))
            }
            _ if self.consent.yes && jobs.is_empty() => Err(selects_no("job")),
            _ if self.consent.yes => Ok(Some(jobs.iter().map(|job| text(job, "/job_id")).collect())),
            _ => {
                let first: Vec<Value> = jobs
                    .iter()
                    .take(NAMED)
                    .map(|job| json!({ "job_id": job["job_id"], "server_serial": job["server_serial"] }))
                    .collect();
                let preview = json!({ "dry_run": true, "count": jobs.len(), "first": first });
                show_jobs(verb, &preview, output)?;
                Ok(None)
            }
        }
    }

    /// The servers of a filter; `None` after a preview.
    pub(super) async fn servers(
        &self,
        verb: &str,
        filter: &str,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Option<Vec<String>>, CliError> {
        self.consent.servers(verb, filter, false, client, output).await
    }
}

/// The error of `--expect` that does not hold: a conflict, as the controller reports it for jobs.
fn unexpected(selected: usize, one: &str, many: &str, expected: u64) -> CliError {
    let message = format!(
        "the filter selects {} now and {expected} were expected; nothing was changed",
        counted(selected as u64, one, many)
    );
    CliError::Local { message, exit: Exit::Conflict }
}

/// The error of a command whose filter, perhaps mistyped, selects nothing.
fn selects_no(what: &str) -> CliError {
    CliError::failed(format!("the filter selects no {what}; nothing was changed"))
}

/// The serial numbers of the servers of a filter, for a command that does something with each server.
///
/// # Errors
/// When the servers cannot be listed, or the filter selects none.
pub(super) async fn some_serials(filter: &str, client: &Client) -> Result<Vec<String>, CliError> {
    let serials = serials(filter, client).await?;
    if serials.is_empty() { Err(selects_no("server")) } else { Ok(serials) }
}

/// The serial numbers of the servers of a filter.
pub(super) async fn serials(filter: &str, client: &Client) -> Result<Vec<String>, CliError> {
    listed(&[("filter", filter.to_owned())], client).await
}

/// The serial numbers of all servers, for a command that changes nothing.
pub(super) async fn all_serials(client: &Client) -> Result<Vec<String>, CliError> {
    listed(&[], client).await
}

async fn listed(filters: &[(&str, String)], client: &Client) -> Result<Vec<String>, CliError> {
    let found = client.list(&["servers"], "servers", filters, MAX_SERVERS).await?;
    if !found["next"].is_null() {
        return Err(CliError::failed(format!(
            "these are more than {MAX_SERVERS} servers; give a filter that selects fewer"
        )));
    }
    let rows = found["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(rows.iter().map(|server| text(server, "/serial")).collect())
}

/// Parses the maximum of rows of a list.
pub(super) fn rows(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=1_000_000).contains(number))
        .ok_or_else(|| "give a number from 1 to 1000000".to_owned())
}

fn show_jobs(verb: &str, preview: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(preview);
    }
    let rows: Vec<Vec<String>> = preview["first"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|job| vec![text(job, "/job_id"), text(job, "/server_serial")])
        .collect();
    let count = preview["count"].as_u64().unwrap_or(0);
    if count > 0 {
        output.table(&["JOB", "SERVER"], &rows)?;
        if count > rows.len() as u64 {
            output.line(format!("and {} more", count - rows.len() as u64))?;
        }
    }
    output.line(format!("{verb}: {count} jobs selected"))?;
    left_out(preview, output)?;
    if count > 0 {
        output.note(format!("nothing was changed; add --yes, or --yes --expect {count}"));
    }
    Ok(())
}

/// The number of jobs that a retry leaves out, with the reason.
pub(super) fn superseded(jobs: u64) -> String {
    format!("{jobs} jobs, because a newer installation of the server exists")
}

/// Shows how many jobs a retry leaves out, and why.
fn left_out(response: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    match response["superseded"].as_u64() {
        Some(jobs) if jobs > 0 => output.line(format!("left out: {}", superseded(jobs))),
        _ => Ok(()),
    }
}

/// Shows the servers that a command would change, and what to type to change them.
fn show_servers(verb: &str, serials: &[String], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&json!({ "dry_run": true, "count": serials.len(), "servers": serials }));
    }
    let mut first: Vec<String> = serials.iter().take(NAMED).map(|serial| plain(serial)).collect();
    if serials.len() > NAMED {
        first.push(format!("and {} more", serials.len() - NAMED));
    }
    output.line(format!("{verb}: {} servers selected", serials.len()))?;
    if serials.is_empty() {
        return Ok(());
    }
    output.line(join(&first, ", "))?;
    output.note(format!("nothing was changed; add --yes, or --yes --expect {}", serials.len()));
    Ok(())
}

/// Fails if rows of a created batch were refused.
pub(super) fn none_refused(response: &Value) -> Result<(), CliError> {
    match response["refused"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        refused => Err(CliError::failed(format!(
            "{refused} rows were refused and have no job; correct them and create a batch of them"
        ))),
    }
}

/// Shows a created batch with its refused rows. Returns its id.
pub(super) fn show_created(
    response: &Value,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<String, CliError> {
    let Some(batch) = response["batch_id"].as_str() else {
        return Err(client.unexpected_response(&["batches"], "batch_id is missing"));
    };
    if output.json {
        output.row(response)?;
        return Ok(batch.to_owned());
    }
    let (accepted, refused) = (text(response, "/accepted"), text(response, "/refused"));
    output.line(format!("batch {}: {accepted} jobs accepted, {refused} refused", plain(batch)))?;
    left_out(response, output)?;
    for row in response["rows"].as_array().into_iter().flatten().filter(|row| row["job_id"].is_null()) {
        let place = text(row, "/index");
        output.note(format!("row {place}: {} {}", text(row, "/server_serial"), text(row, "/error/message")));
    }
    Ok(batch.to_owned())
}
