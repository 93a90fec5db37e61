//! The workflow behind `shoal bmc doctor SERIAL`: an examination under the server's exclusive lock.
//!
//! ```text
//!  forward  doctor.prepare (a tiny image, its grant) -> doctor.check (every check)
//!  finish   doctor.clean (whatever of it is still in a slot comes out; grant and session end)
//! ```
//!
//! It is a workflow because it changes something: its lease fences it, its lock keeps jobs away (lock L13), and after a
//! crash the next incarnation takes the image out again. It belongs to no server's history: a server can be removed with
//! examinations in the log.

#![expect(
    clippy::result_large_err,
    reason = "a step that cannot go on returns its report early, by `?`; it is made once"
)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::bmc::ConnectError;
use super::class;
use super::classify::{failure, from_redfish, unavailable};
use super::probe::checks::{AllowedChanges, Check, Findings, Mark, TestMedium, examine, take_out};
use super::probe::{Subject, learned, test_image, tls, trouble};
use super::services::Site;
use super::steps::{grant_context, settled};
use crate::QUEUE;
use engine::model::{
    Artifact, Effect, Grant, LockRequest, NewEvent, NewRun, OnConflict, Plan, RunId, Serial, Server,
    Snapshot, StepInstance, Time, error_chain,
};
use engine::{AfterCommit, Kind, Order, Reason, Refusal, Step, StepContext, StepPolicy, StepReport, Verdict};
use media::{Suffix, TaskInputs, media_url};
use secrets::seal;

/// The workflow's name.
const KIND: &str = "doctor";
const PREPARE: &str = "doctor.prepare";
const EXAMINE: &str = "doctor.check";
const CLEAN: &str = "doctor.clean";
/// How long an examination may take, the queue included.
const WITHIN: Duration = Duration::from_secs(600);

/// What is examined.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    server: Serial,
    write_boot: bool,
}

/// An examination of a server, to be handed to the engine.
pub fn examination(server: &Serial, write_boot: bool, id: RunId, created_by: &str, now: Time) -> NewRun {
    let instance =
        |name: &&str| StepInstance { name: (*name).to_owned(), key: String::new(), queue: QUEUE.to_owned() };
    let plan = Plan {
        forward: [PREPARE, EXAMINE].iter().map(instance).collect(),
        finish: [CLEAN].iter().map(instance).collect(),
    };
    NewRun {
        id,
        kind: KIND.to_owned(),
        kind_version: 1,
        locks: vec![LockRequest {
            resource: format!("server/{server}"),
            places: 1,
            on_conflict: OnConflict::Refuse,
        }],
        server: None,
        parent: None,
        priority: 0,
        deadline_at: now.plus(WITHIN),
        created_by: created_by.to_owned(),
        created_at: now,
        input: json!(Asked { server: server.clone(), write_boot }),
        plan,
        effects: Vec::new(),
        events: vec![NewEvent::info("doctor.requested", format!("examination of {server}")).by(created_by)],
    }
}

/// What an examination found; `None` as long as it has not ended.
pub fn findings(snapshot: &Snapshot) -> Option<Findings> {
    if !matches!(snapshot.run.phase, engine::model::Phase::Ended) {
        return None;
    }
    let left = snapshot.evidence(EXAMINE).last();
    let mut findings: Findings =
        left.and_then(|record| Deserialize::deserialize(&record.evidence).ok()).unwrap_or_default();
    if let Some(failure) = &snapshot.run.failure {
        findings.checks.push(Check {
            name: "connect".to_owned(),
            mark: Mark::Fail,
            found: failure.summary.clone(),
            next_action: failure.next_action.clone(),
        });
    }
    Some(findings)
}

/// The workflow.
pub struct DiagnosticsWorkflow {
    site: Arc<Site>,
}

impl DiagnosticsWorkflow {
    /// The workflow at a site.
    pub fn new(site: Arc<Site>) -> Self {
        Self { site }
    }
}

impl Kind for DiagnosticsWorkflow {
    fn name(&self) -> &'static str {
        KIND
    }

    fn version(&self) -> u32 {
        1
    }

    fn step(&self, name: &str) -> Option<Arc<dyn Step>> {
        let name = [PREPARE, EXAMINE, CLEAN].into_iter().find(|known| *known == name)?;
        Some(Arc::new(Stage { name, site: Arc::clone(&self.site) }))
    }

    fn prepare(&self, _order: Order) -> Result<NewRun, Refusal> {
        Err(Refusal("an examination is asked for by an operator, not by a workflow".to_owned()))
    }

    fn finish_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn reasons(&self) -> &'static [&'static Reason] {
        &super::waits::ALL
    }
}

struct Stage {
    name: &'static str,
    site: Arc<Site>,
}

#[async_trait]
impl Step for Stage {
    fn policy(&self) -> StepPolicy {
        StepPolicy {
            call: Duration::from_secs(150),
            budget: WITHIN,
            attempts: 2,
            interruptible: false,
            always: self.name == CLEAN,
            ..StepPolicy::default()
        }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        settled(match self.name {
            PREPARE => prepare(&self.site, context),
            EXAMINE => run_checks(&self.site, context).await,
            _ => clean(&self.site, context).await,
        })
    }
}

fn asked(step: &str, context: &StepContext) -> Result<Asked, StepReport> {
    Deserialize::deserialize(&*context.snapshot.input).map_err(|why| {
        let summary = format!("the stored input of this examination cannot be read: {why}");
        StepReport::fail(failure(engine::class::INTERNAL, step, summary, "ask for it again"))
    })
}

fn image(step: &str, context: &StepContext) -> Result<Arc<TaskInputs>, StepReport> {
    let run = &context.snapshot.run;
    test_image::image(run.id.0, run.created_at).map_err(|why| {
        StepReport::fail(failure(class::MEDIA, step, error_chain(&why).to_string(), "report it as a bug"))
    })
}

fn prepare(site: &Site, context: &StepContext) -> Result<StepReport, StepReport> {
    let broken = |why: String| StepReport::fail(failure(class::MEDIA, PREPARE, why, "report it as a bug"));
    let run = context.snapshot.run.id;
    let image = image(PREPARE, context)?;
    let digest = image.digest().to_hex();
    let token = site
        .media_token(run, Artifact::Task, &digest)
        .ok_or_else(|| broken("its token is unusable".to_owned()))?;
    let bytes = image.to_bytes().map_err(|why| broken(error_chain(&why).to_string()))?;
    let frozen = seal(&site.media_key, &grant_context(run), &bytes).map_err(|why| broken(why.to_string()))?;
    Ok(StepReport::done().effect(Effect::GrantIssued(Box::new(Grant {
        token_hash: token.hash(),
        run,
        artifact: Artifact::Task,
        frozen: Some(frozen),
        sha256: digest,
        size: image.len(),
        created_at: context.now(),
    }))))
}

/// The tiny image under its grant.
struct Granted {
    site: Arc<Site>,
    url: String,
    hash: String,
}

#[async_trait]
impl TestMedium for Granted {
    fn url(&self) -> &str {
        &self.url
    }

    async fn was_read(&self) -> bool {
        self.site.grants.evidence(&self.hash).await.is_ok_and(|reads| reads.first_read_at.is_some())
    }
}

fn medium(step: &str, site: &Arc<Site>, context: &StepContext, base: &str) -> Result<Granted, StepReport> {
    let digest = image(step, context)?.digest().to_hex();
    let url = site
        .media_token(context.snapshot.run.id, Artifact::Task, &digest)
        .and_then(|token| Some((media_url(base, &token, Artifact::Task, Suffix::Iso).ok()?, token.hash())));
    let (url, hash) = url.ok_or_else(|| {
        let next = "set MEDIA_BASE_URL to scheme://address[:port], nothing more";
        StepReport::fail(failure(class::MEDIA, step, "there is no usable media URL", next))
    })?;
    Ok(Granted { site: Arc::clone(site), url, hash })
}

async fn server(step: &str, site: &Site, context: &StepContext) -> Result<(Server, Asked), StepReport> {
    let asked = asked(step, context)?;
    match site.directory.server(&asked.server).await {
        Ok(Some(server)) => Ok((server, asked)),
        Ok(None) => {
            let summary = format!("server {} is no longer registered", asked.server);
            Err(StepReport::fail(failure(class::INPUT, step, summary, "register it again")))
        }
        Err(why) => Err(unavailable(step, &why)),
    }
}

async fn run_checks(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let (server, asked) = server(EXAMINE, site, context).await?;
    let serial = server.serial.as_str();
    let wrong =
        |sentence: String, next: String| StepReport::fail(failure(class::INPUT, EXAMINE, sentence, next));
    let base = site.media_base(&server).await.map_err(|why| wrong(why.sentence, why.next_action))?;
    let connected = site.bmcs.connect(&server, &context.lease).await.map_err(|why| match why {
        ConnectError::Record(why) => wrong(why, format!("correct it with `shoal server update {serial}`")),
        ConnectError::Bmc(error) => {
            let why = trouble(&error, Some(serial));
            wrong(why.sentence, why.next_action)
        }
    })?;
    let medium = medium(EXAMINE, site, context, &base)?;
    let subject = Subject {
        serial: Some(serial),
        media_base: &base,
        tls: tls(&server, connected.learned_fingerprint.as_deref()),
        learned: learned(&server),
        now: context.now(),
    };
    let trials = AllowedChanges { medium: Ok(&medium), write_boot: asked.write_boot };
    let findings = examine(&connected.bmc, &subject, &trials).await;
    let worst = format!("{:?}", findings.verdict()).to_lowercase();
    let mut report = StepReport::done()
        .leaving(json!(findings))
        .event(NewEvent::info("doctor.finished", format!("{serial}: {worst}")));
    if let Some(fingerprint) = connected.learned_fingerprint {
        report = report.effect(Effect::ServerPinned { serial: server.serial.clone(), fingerprint });
    }
    Ok(report)
}

async fn clean(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let done =
        context.snapshot.evidence(EXAMINE).any(|record| record.phase == engine::model::StepPhase::Done);
    let begun = context.snapshot.evidence(EXAMINE).next().is_some();
    let asked = asked(CLEAN, context)?;
    let server = site.directory.server(&asked.server).await.map_err(|why| unavailable(CLEAN, &why))?;
    if let Some(server) = server {
        if begun && !done {
            take_out_everywhere(site, context, &server).await?;
        }
        site.bmcs.close(&server, &context.lease).await;
    }
    let (run, grants) = (context.snapshot.run.id, site.grants.clone());
    let mut report = StepReport::done().effect(Effect::GrantsEnded);
    report.then = Some(AfterCommit(Arc::new(move || grants.end(run.0))));
    Ok(report)
}

/// An examination broke off: its image may be in any slot.
async fn take_out_everywhere(
    site: &Arc<Site>,
    context: &StepContext,
    server: &Server,
) -> Result<(), StepReport> {
    let Ok(base) = site.media_base(server).await else { return Ok(()) };
    let medium = medium(CLEAN, site, context, &base)?;
    let connected = match site.bmcs.connect(server, &context.lease).await {
        Ok(connected) => connected,
        Err(ConnectError::Bmc(error)) => return Err(from_redfish(CLEAN, &error)),
        Err(ConnectError::Record(_)) => return Ok(()),
    };
    let selector = redfish::SystemSelector::serial(server.serial.as_str());
    let discovery = connected.bmc.discover(&selector).await.map_err(|error| from_redfish(CLEAN, &error))?;
    for slot in discovery.slots.iter().filter(|slot| slot.holds(&medium.url)) {
        if let Some(left) = take_out(&connected.bmc, &slot.uri, &medium).await {
            let next = "eject it in the BMC; a job does it at its beginning";
            return Err(StepReport::new(Verdict::Retry(failure(class::TRANSIENT, CLEAN, left, next))));
        }
    }
    Ok(())
}
