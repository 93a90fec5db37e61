//! `SimpleUpdate`: the BMC reads the image from a URL, before or after its response.
//!
//! ```text
//!   answers_first   202 with the task ─► Stage::Fetching ── image read ──► Stage::Checking
//!                                              └──────────── not read ───► the task fails, with the reason
//!   else            image read ─► 202 ─► Stage::Checking
//! ```
//!
//! Invariants: no message contains the URL, because its path is a secret; an image that arrives after the restart of the BMC
//! starts nothing.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    image::{ImageFacts, ImageReader},
    progress::{Job, Stage, TaskView},
};
use crate::{
    actions::object,
    call::Call,
    config::SimplePolicy,
    faults::{FetchFault, FlashFault},
    host::MediaUrl,
    media_reader::{MediaRequest, ReadPace},
    reply::{ErrorReply, Reply},
    sim_bmc::SimBmc,
    state::State,
};

const SIMPLE: &str = "UpdateService.SimpleUpdate";
const FETCH_LIMIT: Duration = Duration::from_secs(60);
/// The bytes of an image that are kept to read its first line.
const LINE: usize = 1024;

impl SimBmc {
    pub(super) async fn simple_update(
        &self,
        call: &Call,
        fault: Option<FlashFault>,
        fetch: Option<FetchFault>,
    ) -> Result<Reply, ErrorReply> {
        let body = object(call)?.ok_or_else(|| ErrorReply::parameter_missing(SIMPLE, "ImageURI"))?;
        let policy = self.inner.config.update.simple.as_ref();
        let policy = policy.ok_or_else(|| ErrorReply::not_found(&call.path))?;
        check_simple(body, policy)?;
        let uri = body.get("ImageURI").ok_or_else(|| ErrorReply::parameter_missing(SIMPLE, "ImageURI"))?;
        let uri = uri.as_str().ok_or_else(|| ErrorReply::parameter_type(SIMPLE, "ImageURI"))?;
        if uri.starts_with('/') {
            let stored = self.state().updates.stored.clone();
            let Some((_, facts)) = stored.filter(|(path, _)| path == uri) else {
                return Err(ErrorReply::parameter_format(
                    SIMPLE,
                    "ImageURI",
                    "no stored image has this path",
                ));
            };
            return self.begin_update((&facts, &[]), false, fault);
        }
        let url = image_url(body, policy, uri)?;
        if policy.answers_first {
            return self.begin_fetch(url, fault, fetch);
        }
        match self.fetch_image(&url, fetch).await {
            Ok(facts) => {
                self.state().updates.images += 1;
                let reply = self.begin_update((&facts, &[]), false, fault)?;
                self.state().updates.accept(&facts);
                Ok(reply)
            }
            Err(message) => self.begin_failed(&message),
        }
    }

    /// Reads the image, as the fault wants it.
    async fn fetch_image(&self, url: &str, fault: Option<FetchFault>) -> Result<ImageFacts, String> {
        let mut pace = ReadPace::default();
        let mut url = url.to_owned();
        match &fault {
            Some(FetchFault::Never) => std::future::pending().await,
            Some(FetchFault::Unreachable) => return Err("The image server cannot be reached.".to_owned()),
            Some(FetchFault::WrongPath) => {
                let (folder, name) = url.rsplit_once('/').unwrap_or_default();
                url = format!("{folder}x/{name}");
            }
            Some(FetchFault::StopAfter(bytes)) => pace.stop_after = Some(*bytes),
            Some(FetchFault::Slow(pause)) => pace.pause = Some(*pause),
            Some(FetchFault::RefuseCertificate) => pace.trusts_none = true,
            Some(FetchFault::Twice) => {
                self.read_image(&url, pace).await?;
            }
            Some(FetchFault::Damaged) | None => {}
        }
        let facts = self.read_image(&url, pace).await?;
        match fault {
            Some(FetchFault::Damaged) => Err("The checksum of the image is wrong.".to_owned()),
            _ => Ok(facts),
        }
    }

    async fn read_image(&self, url: &str, pace: ReadPace) -> Result<ImageFacts, String> {
        let request = MediaRequest {
            url: MediaUrl::new(url),
            head: false,
            range: None,
            keep: LINE,
            to_the_end: true,
            http_1_0: false,
            other_address: false,
            pace,
        };
        let fetched = tokio::time::timeout(FETCH_LIMIT, self.inner.media.fetch(request)).await;
        let response = fetched.map_err(|_| "The image server does not respond.".to_owned())?;
        let response = response.map_err(|refusal| refusal.to_string())?;
        if response.status != 200 {
            return Err(format!("The image server returned status {}.", response.status));
        }
        let length = response.length.ok_or_else(|| "The image has no length.".to_owned())?;
        let mut reader = ImageReader::default();
        reader.feed(&response.body);
        reader.finish(Some(length)).map_err(|_| "The image is not valid.".to_owned())
    }

    /// Responds, then reads the image.
    fn begin_fetch(
        &self,
        url: String,
        fault: Option<FlashFault>,
        fetch: Option<FetchFault>,
    ) -> Result<Reply, ErrorReply> {
        let mut state = self.state();
        if state.updates.is_busy() {
            return Err(ErrorReply::busy());
        }
        let State { updates, tasks, .. } = &mut *state;
        let task = (!self.shows_state_at_service()).then(|| tasks.begin("Firmware update"));
        updates.fetches += 1;
        let number = updates.fetches;
        let job = unknown_image(task, fault, Stage::Fetching { number });
        updates.show(tasks, &job, TaskView::running("Uploading", "Running", 0));
        updates.job = Some(job);
        let shown = task.and_then(|id| tasks.show(&self.inner.config, id));
        let bmc = self.clone();
        tokio::spawn(async move {
            let fetched = bmc.fetch_image(&url, fetch).await;
            bmc.fetched(number, fetched);
            bmc.notify();
        });
        Ok(self.update_accepted(task, shown))
    }

    /// The end of a read: the image is checked, or the task fails.
    fn fetched(&self, number: u64, fetched: Result<ImageFacts, String>) {
        let at = self.elapsed();
        let mut state = self.state();
        let reads = |job: &mut Job| matches!(&job.stage, Stage::Fetching { number: of } if *of == number);
        // A BMC that has restarted meanwhile has no such update.
        let Some(job) = state.updates.job.take_if(reads) else { return };
        let fit = fetched.and_then(|facts| {
            state.updates.images += 1;
            match self.item_for(&state, &facts, &[]) {
                Ok(item) => Ok((item, facts)),
                Err(unfit) => Err(unfit.text().to_owned()),
            }
        });
        match fit {
            Ok((item, facts)) => {
                state.updates.accept(&facts);
                self.begin_job(&mut state, at, (item, &facts.version), job.task, (false, job.fault));
            }
            Err(message) => {
                let State { updates, tasks, .. } = &mut *state;
                updates.show(tasks, &job, TaskView::failed("Exception", &message));
            }
        }
    }

    /// An update whose image could not be read before the response: accepted, and its task fails.
    fn begin_failed(&self, message: &str) -> Result<Reply, ErrorReply> {
        let mut state = self.state();
        if state.updates.is_busy() {
            return Err(ErrorReply::busy());
        }
        let State { updates, tasks, .. } = &mut *state;
        let task = (!self.shows_state_at_service()).then(|| tasks.begin("Firmware update"));
        let job = unknown_image(task, None, Stage::Checked);
        updates.show(tasks, &job, TaskView::failed("Exception", message));
        let shown = task.and_then(|id| tasks.show(&self.inner.config, id));
        Ok(self.update_accepted(task, shown))
    }
}

/// An update whose image is not known yet.
fn unknown_image(task: Option<u64>, fault: Option<FlashFault>, stage: Stage) -> Job {
    Job { item: 0, version: String::new(), record: usize::MAX, task, explicit_start: false, fault, stage }
}

/// The URL of the image, if its scheme is one that the BMC reads.
fn image_url(body: &Map<String, Value>, policy: &SimplePolicy, uri: &str) -> Result<String, ErrorReply> {
    let wrong = |why| Err(ErrorReply::parameter_format(SIMPLE, "ImageURI", why));
    let protocol = body.get("TransferProtocol").and_then(Value::as_str);
    let url = match (policy.no_scheme, uri.contains("://"), protocol) {
        (true, true, _) => return wrong("it has a scheme"),
        (true, false, Some(protocol)) => format!("{}://{uri}", protocol.to_ascii_lowercase()),
        _ => uri.to_owned(),
    };
    let scheme = url.split("://").next().unwrap_or_default();
    match policy.protocols.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        true => Ok(url),
        false => wrong("its scheme is not supported"),
    }
}

fn check_simple(body: &Map<String, Value>, policy: &SimplePolicy) -> Result<(), ErrorReply> {
    for (name, value) in body {
        match name.as_str() {
            "ImageURI" | "@Redfish.OperationApplyTime" | "ForceUpdate" | "Username" | "Password" => {}
            "Targets" if !policy.refuses_targets => {}
            "TransferProtocol" => {
                let word = value.as_str().ok_or_else(|| ErrorReply::parameter_type(SIMPLE, name))?;
                if !policy.protocols.iter().any(|known| known == word) {
                    return Err(ErrorReply::parameter_not_in_list(SIMPLE, name, word));
                }
            }
            _ => return Err(ErrorReply::parameter_unknown(SIMPLE, name)),
        }
    }
    let stored = body.get("ImageURI").and_then(Value::as_str).is_some_and(|uri| uri.starts_with('/'));
    if policy.protocol_required && !stored && !body.contains_key("TransferProtocol") {
        return Err(ErrorReply::parameter_missing(SIMPLE, "TransferProtocol"));
    }
    Ok(())
}
