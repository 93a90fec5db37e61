//! `shoal job cancel`, `hold`, `resume`, `finish` and `retry`: a verb on one job, or on the jobs that a filter selects.
//!
//! Cancel and retry of a filter are one request of the controller. Hold, resume and finish are one request for each job, so a
//! refusal of one is its row.

use clap::Args;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::ids;
use super::job::watch_to_the_end;
use super::many::{self, JobsRequest, Selection};
use super::output::{Output, plain, text};
use super::repeat::RepeatKey;
use super::watch::PollInterval;
use model::Subject;

/// A job, or the jobs of a filter, and the reason of a verb.
#[derive(Args, Debug)]
pub(super) struct SelectedJobs {
    /// The id of the job, or its beginning; without it, the jobs of a filter
    job: Option<String>,
    #[command(flatten)]
    selection: Selection,
    /// The reason, stored in the events of the jobs
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// A verb on one job.
struct JobVerb {
    job: String,
    reason: Option<String>,
}

impl SelectedJobs {
    pub(super) async fn cancel(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Self { job, selection, reason } = self;
        let filter = selection.or_one(Subject::Jobs, job.as_deref(), "id of the job")?;
        if let Some(job) = job {
            return JobVerb { job, reason }.apply("cancel", "is being cancelled", client, output).await;
        }
        let request = JobsRequest { verb: "cancel", filter: &filter, reason: reason.as_deref() };
        match selection.jobs(request, None, client, output).await? {
            Some(response) if output.json => output.document(&response),
            Some(response) => {
                output.line(format!("{} jobs are being cancelled", text(&response, "/cancelled_now")))
            }
            None => Ok(()),
        }
    }

    /// A verb that the controller has for one job only. `done` says what the job then is.
    pub(super) async fn apply(
        self,
        verb: &str,
        done: &str,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let Self { job, selection, reason } = self;
        let filter = selection.or_one(Subject::Jobs, job.as_deref(), "id of the job")?;
        if let Some(job) = job {
            return JobVerb { job, reason }.apply(verb, done, client, output).await;
        }
        let Some(jobs) = selection.open_jobs(verb, &filter, client, output).await? else { return Ok(()) };
        many::each_of(("job", "jobs"), &jobs, output, async |job, output| {
            let verb_of = JobVerb { job: job.to_owned(), reason: reason.clone() };
            let response = verb_of.post(verb, client).await?;
            if output.json {
                return output.row(&response);
            }
            output.line(format!("job {} {done} ({})", plain(job), text(&response, "/status")))
        })
        .await
    }

    pub(super) async fn retry(
        self,
        key: Option<&str>,
        watch: bool,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let Self { job, selection, reason } = self;
        let filter = selection.or_one(Subject::Jobs, job.as_deref(), "id of the job")?;
        let Some(job) = job else {
            if watch {
                return Err(CliError::Usage(
                    "--watch follows one job; shoal batch watch follows many".to_owned(),
                ));
            }
            let request = JobsRequest { verb: "retry", filter: &filter, reason: reason.as_deref() };
            let key = RepeatKey::many(key)?;
            let batch = selection.jobs(request, Some(&key), client, output).await?;
            return match batch {
                Some(batch) => {
                    many::show_created(&batch, client, output)?;
                    many::none_refused(&batch)
                }
                None => Ok(()),
            };
        };
        let verb = JobVerb { job, reason };
        let (id, body) = verb.order(client).await?;
        let key = RepeatKey::one(key)?;
        let response = key.post(client, &["jobs", &id, "retry"], &body, output).await?.body;
        let Some(job) = response["job_id"].as_str() else {
            return Err(client.unexpected_response(&["jobs", &verb.job, "retry"], "job_id is missing"));
        };
        if output.json {
            output.row(&response)?;
        } else {
            output.line(format!("job {} created as a retry of job {}", plain(job), plain(&verb.job)))?;
        }
        if watch { watch_to_the_end(client, job, PollInterval::default(), output).await } else { Ok(()) }
    }
}

impl JobVerb {
    /// The whole id of the job, and the body of the request.
    async fn order(&self, client: &Client) -> Result<(String, Value), CliError> {
        let body = self.reason.as_ref().map_or_else(|| json!({}), |reason| json!({"reason": reason}));
        Ok((ids::job(client, &self.job).await?, body))
    }

    async fn post(&self, verb: &str, client: &Client) -> Result<Value, CliError> {
        let (job, body) = self.order(client).await?;
        Ok(client.post(&["jobs", &job, verb], &body, HeaderMap::new()).await?.body)
    }

    async fn apply(
        self,
        verb: &str,
        done: &str,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<(), CliError> {
        let response = self.post(verb, client).await?;
        if output.json {
            return output.document(&response);
        }
        // The public status of a job that is cancelled is "failed": that would read as if the cancel had failed.
        let status = match text(&response, "/status").as_str() {
            "failed" | "" => String::new(),
            status => format!(" ({status})"),
        };
        output.line(format!("job {} {done}{status}", plain(&self.job)))?;
        // The words of the controller: a running update, for one, is let finish before a cancelled job ends.
        let words = ["/explain/summary", "/explain/next_action"].into_iter();
        for words in
            words.filter_map(|part| response.pointer(part)?.as_str()).filter(|words| !words.is_empty())
        {
            output.line(plain(words))?;
        }
        Ok(())
    }
}
