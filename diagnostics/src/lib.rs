//! The diagnostics workflow behind `shoal bmc doctor SERIAL`: every check of a BMC that an operator needs before the first
//! job. A run holds the server's exclusive lock.
//!
//! ```text
//!  forward  diagnostics.prepare (grant of the test image) -> diagnostics.check (all checks)
//!  finish   diagnostics.clean (test image ejected; grant and session ended)
//!
//!  an address that is not registered: direct::run, without a run, a lock or a controller
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`checks`] | the checks themselves, over any client |
//! | [`direct`] | the checks of an unregistered BMC, with a temporary media listener |
//! | `test_image` | the small image that a BMC reads during the media check |
//!
//! Diagnostics are a workflow because they change the BMC: the lease fences them (decision D7), the lock keeps jobs away
//! (decision D13), and after a crash the next controller instance ejects the test image (decision D8). A run leaves the server
//! as it was ([`Purpose::Observe`]): it starts in maintenance too, and a server with nothing but diagnostics can be removed.
//!
//! Invariants
//! - What the checks insert or set is ejected or cleared again; media and settings of others are not changed.
//! - The test image has a separate grant, which ends with the run.
//! - This crate and the other workflows do not use each other. What they share is in `bmc` and `media`.

pub mod checks;
pub mod direct;
mod test_image;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redfish::Discovery;
use serde::{Deserialize, Serialize};
use serde_json::json;

use bmc::probe::ProbeTarget;
use bmc::{BmcServices, ConnectError, Connected, QUEUE, class, failure, from_redfish, unavailable};
use engine::{
    AfterCommit, ChildRefused, ChildRequest, Step, StepContext, StepError, StepPolicy, StepReport,
    WaitReason, Workflow,
};
use media::{ImageUse, MediaGrants, MediaToken, SeedOfRun, Suffix, TaskInputs, media_url};
use model::{
    Artifact, Effect, LockRequest, NewEvent, NewRun, OnConflict, Purpose, RunId, RunPlan, RunRequest, Serial,
    Server, Snapshot, StepInstance, StepName, Time, Verb, WorkflowVersion, error_chain,
};

use checks::{
    AllowedChanges, BootIntent, Check, CheckStatus, Diagnostics, TestMedium, clear_boot, eject_test_medium,
    run_checks,
};

/// The workflow's name.
pub const WORKFLOW: &str = "diagnostics";
const PREPARE: &StepName = &StepName::new("diagnostics.prepare");
const CHECK: &StepName = &StepName::new("diagnostics.check");
const CLEAN: &StepName = &StepName::new("diagnostics.clean");
/// Time limit of one run, including the time in the queue.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The order of an operator to check one server; the input of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiagnosticsOrder {
    /// The server to check.
    pub server: Serial,
    /// Whether the checks also set and clear the boot override.
    pub write_boot: bool,
    /// The ended run that this order repeats.
    #[serde(skip)]
    pub retry_of: Option<RunId>,
}

/// The stored input of a run.
#[derive(Serialize)]
struct DiagnosticsInput<'a> {
    #[serde(flatten)]
    order: &'a DiagnosticsOrder,
    #[serde(flatten)]
    seed: SeedOfRun,
}

impl DiagnosticsOrder {
    /// The order that repeats an ended run; `None` when the input of the run cannot be read.
    pub fn repeat(ended: &Snapshot) -> Option<Self> {
        let order = Self::deserialize(&*ended.input).ok()?;
        Some(Self { retry_of: Some(ended.run.id), ..order })
    }
}

/// Builds a diagnostics run of a server for the engine. The token of its test image is derived from `seed`.
pub fn order(order: &DiagnosticsOrder, id: RunId, seed: SeedOfRun, created_by: &str, now: Time) -> NewRun {
    let input = json!(DiagnosticsInput { order, seed });
    let DiagnosticsOrder { server, retry_of, .. } = order;
    let instance = |name: &&StepName| StepInstance {
        name: (*name).clone(),
        key: String::new(),
        queue: QUEUE.to_owned(),
    };
    let plan = RunPlan {
        forward: [PREPARE, CHECK].iter().map(instance).collect(),
        finish: [CLEAN].iter().map(instance).collect(),
    };
    NewRun {
        id,
        workflow: WORKFLOW.to_owned(),
        workflow_version: WorkflowVersion(1),
        locks: vec![LockRequest {
            resource: model::server_lock(server),
            capacity: 1,
            on_conflict: OnConflict::Refuse,
        }],
        server: Some(server.clone()),
        parent: None,
        purpose: Purpose::Observe,
        request: RunRequest { retry_of: *retry_of, ..RunRequest::default() },
        priority: 0,
        deadline_at: now.plus(TIME_LIMIT),
        created_by: created_by.to_owned(),
        created_at: now,
        input,
        plan,
        effects: Vec::new(),
        events: vec![
            NewEvent::info("diagnostics.requested", format!("diagnostics of {server}")).by(created_by),
        ],
    }
}

/// Returns the result of a diagnostics run; `None` while the run has not ended.
pub fn result_of(snapshot: &Snapshot) -> Option<Diagnostics> {
    if !matches!(snapshot.run.phase, model::Phase::Ended) {
        return None;
    }
    let record = snapshot.records_of(CHECK).last();
    let mut diagnostics: Diagnostics =
        record.and_then(|record| Deserialize::deserialize(&record.output).ok()).unwrap_or_default();
    if let Some(failure) = &snapshot.run.failure {
        diagnostics.checks.push(Check {
            name: "connect".to_owned(),
            status: CheckStatus::Fail,
            found: failure.summary.clone(),
            next_action: failure.next_action.clone(),
        });
    }
    Some(diagnostics)
}

/// The services that the steps use.
pub struct DiagnosticsServices {
    /// The services that every workflow shares.
    pub bmc: Arc<BmcServices>,
    /// The media grants.
    pub grants: MediaGrants,
}

/// The only use of the test image with this digest.
fn test_use(digest: &str) -> ImageUse<'_> {
    ImageUse { artifact: Artifact::Task, digest, slot_plan: WORKFLOW, attempt: 1 }
}

/// The workflow that runs diagnostics of a BMC.
pub struct DiagnosticsWorkflow {
    services: Arc<DiagnosticsServices>,
}

impl DiagnosticsWorkflow {
    /// Creates the workflow over the services.
    pub fn new(services: Arc<DiagnosticsServices>) -> Self {
        Self { services }
    }
}

impl Workflow for DiagnosticsWorkflow {
    fn name(&self) -> &'static str {
        WORKFLOW
    }

    fn version(&self) -> WorkflowVersion {
        WorkflowVersion(1)
    }

    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        let name = [PREPARE, CHECK, CLEAN].into_iter().find(|known| *known == name)?;
        Some(Arc::new(DiagnosticsStep { name, services: Arc::clone(&self.services) }))
    }

    fn prepare_child(&self, _request: ChildRequest) -> Result<NewRun, ChildRefused> {
        Err(ChildRefused("diagnostics are requested by an operator; no workflow can request them".to_owned()))
    }

    fn finish_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// The verbs of diagnostics. They last minutes, so there is no hold; a run that the engine holds can be resumed.
    fn verbs(&self) -> &'static [Verb] {
        &[Verb::Cancel, Verb::Resume]
    }

    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        &bmc::waits::ALL
    }
}

struct DiagnosticsStep {
    name: &'static StepName,
    services: Arc<DiagnosticsServices>,
}

#[async_trait]
impl Step for DiagnosticsStep {
    fn policy(&self) -> StepPolicy {
        StepPolicy {
            call: Duration::from_secs(150),
            budget: TIME_LIMIT,
            attempts: 2,
            interruptible: false,
            runs_past_deadline: self.name == CLEAN,
            ..StepPolicy::default()
        }
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let result = if self.name == PREPARE {
            prepare(&self.services, context)
        } else if self.name == CHECK {
            check_step(&self.services, context).await
        } else {
            clean(&self.services, context).await
        };
        result.into()
    }
}

fn input(step: &StepName, context: &StepContext) -> Result<DiagnosticsOrder, StepError> {
    Deserialize::deserialize(&*context.snapshot.input).map_err(|why| {
        let summary = format!("the stored input of this diagnostics run cannot be read: {why}");
        StepError::fail(failure(model::class::INTERNAL, step, summary, "run the diagnostics again"))
    })
}

fn image(step: &StepName, context: &StepContext) -> Result<Arc<TaskInputs>, StepError> {
    let run = &context.snapshot.run;
    test_image::image(run.id.0, run.created_at).map_err(|why| {
        StepError::fail(failure(class::MEDIA, step, error_chain(&why).to_string(), "report it as a bug"))
    })
}

fn prepare(services: &DiagnosticsServices, context: &StepContext) -> Result<StepReport, StepError> {
    let broken = |why: String| StepError::fail(failure(class::MEDIA, PREPARE, why, "report it as a bug"));
    let run = context.snapshot.run.id;
    let image = image(PREPARE, context)?;
    let digest = image.digest().to_hex();
    let bytes = image.to_bytes().map_err(|why| broken(error_chain(&why).to_string()))?;
    let grant = services
        .grants
        .issue(
            &token_of(PREPARE, context, &digest)?,
            run,
            &test_use(&digest),
            image.len(),
            Some(&bytes),
            context.now(),
        )
        .map_err(|why| broken(error_chain(&why).to_string()))?;
    Ok(StepReport::done().effect(Effect::GrantIssued(Box::new(grant))))
}

fn token_of(step: &StepName, context: &StepContext, digest: &str) -> Result<MediaToken, StepError> {
    let tokens = media::tokens_of(&context.snapshot).map_err(|why| {
        StepError::fail(failure(model::class::INTERNAL, step, why.to_string(), "run the diagnostics again"))
    })?;
    Ok(MediaToken::derive(&tokens, context.snapshot.run.id, &test_use(digest)))
}

/// The test image with the URL of its grant.
struct Granted {
    services: Arc<DiagnosticsServices>,
    url: String,
    hash: String,
}

#[async_trait]
impl TestMedium for Granted {
    fn url(&self) -> &str {
        &self.url
    }

    async fn was_read(&self) -> bool {
        self.services.grants.reads_of(&self.hash).await.is_ok_and(|reads| reads.first_read_at.is_some())
    }
}

fn medium(
    step: &StepName,
    services: &Arc<DiagnosticsServices>,
    context: &StepContext,
    base: &str,
) -> Result<Granted, StepError> {
    let digest = image(step, context)?.digest().to_hex();
    let token = token_of(step, context, &digest)?;
    let url = media_url(base, &token, Artifact::Task, Suffix::Iso).map_err(|_| {
        let next = "set MEDIA_BASE_URL to scheme://address[:port], nothing more";
        StepError::fail(failure(class::MEDIA, step, "there is no usable media URL", next))
    })?;
    Ok(Granted { services: Arc::clone(services), url, hash: token.hash() })
}

async fn server(
    step: &StepName,
    services: &DiagnosticsServices,
    context: &StepContext,
) -> Result<(Server, DiagnosticsOrder), StepError> {
    let input = input(step, context)?;
    match services.bmc.servers.server(&input.server).await {
        Ok(Some(server)) => Ok((server, input)),
        Ok(None) => {
            let summary = format!("server {} is no longer registered", input.server);
            Err(StepError::fail(failure(class::INPUT, step, summary, "register it again")))
        }
        Err(why) => Err(unavailable(step, &why)),
    }
}

async fn check_step(
    services: &Arc<DiagnosticsServices>,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let (server, input) = server(CHECK, services, context).await?;
    let serial = server.serial.as_str();
    let wrong =
        |sentence: String, next: String| StepError::fail(failure(class::INPUT, CHECK, sentence, next));
    let bases =
        services.bmc.media_bases(&server).await.map_err(|why| wrong(why.sentence, why.next_action))?;
    let connected = services.bmc.connections.connect(&server, &context.lease).await.map_err(|why| {
        let why = why.problem(&server.serial);
        wrong(why.sentence, why.next_action)
    })?;
    let seen = connected.learned_fingerprint.as_deref();
    let mut target = ProbeTarget::registered(&server, seen, &bases, context.now());
    if target.secure_media_base.is_some() {
        let selector = redfish::SystemSelector::serial(serial);
        // A BMC that cannot be read is a result of the checks.
        if let Ok(discovery) = connected.bmc.discover(&selector).await {
            target.media_base = target.base_for(&connected.bmc, &discovery);
        }
    }
    let medium = medium(CHECK, services, context, target.media_base)?;
    let intent = Recorded(context);
    let write_boot: Option<&dyn BootIntent> = if input.write_boot { Some(&intent) } else { None };
    let unverified_serial = server.allow_unverified_serial;
    let allowed = AllowedChanges { medium: Ok(&medium), write_boot, unverified_serial };
    // An attempt before this one may have set the boot override; this one then takes it for that of another program.
    let begun = context.own_output::<Diagnostics>().is_some_and(|begun| begun.boot_left_set);
    let mut diagnostics = run_checks(&connected.bmc, &target, &allowed).await;
    diagnostics.boot_left_set |= begun;
    let worst = format!("{:?}", diagnostics.verdict()).to_lowercase();
    let mut report = StepReport::done()
        .with_output(json!(diagnostics))
        .event(NewEvent::info("diagnostics.finished", format!("{serial}: {worst}")));
    let its_own = !diagnostics.another_machine();
    if diagnostics.was_read() && its_own {
        report = report.effect(Effect::ServerSeen { serial: server.serial.clone() });
    }
    if let Some(fingerprint) = connected.learned_fingerprint.filter(|_| its_own) {
        report = report.effect(Effect::ServerPinned { serial: server.serial.clone(), fingerprint });
    }
    Ok(report)
}

/// Records the intent in the output of the step.
struct Recorded<'a>(&'a StepContext);

#[async_trait]
impl BootIntent for Recorded<'_> {
    async fn record(&self) -> bool {
        let begun = Diagnostics { boot_left_set: true, ..Diagnostics::default() };
        self.0.checkpoint(json!(begun)).await.is_ok()
    }
}

async fn clean(services: &Arc<DiagnosticsServices>, context: &StepContext) -> Result<StepReport, StepError> {
    let done = context.snapshot.records_of(CHECK).any(|record| record.phase == model::StepPhase::Done);
    let started = context.snapshot.records_of(CHECK).next().is_some();
    let input = input(CLEAN, context)?;
    let server = services.bmc.servers.server(&input.server).await.map_err(|why| unavailable(CLEAN, &why))?;
    if let Some(server) = server {
        if started && !done {
            eject_everywhere(services, context, &server).await?;
        }
        let outputs = context.snapshot.records_of(CHECK).map(|record| &record.output);
        if outputs.filter_map(|output| Diagnostics::deserialize(output).ok()).any(|found| found.boot_left_set)
        {
            clear_boot_override(services, context, &server).await?;
        }
        services.bmc.connections.close(&server, &context.lease).await;
    }
    let (run, grants) = (context.snapshot.run.id, services.grants.clone());
    let mut report = StepReport::done().effect(Effect::GrantsEnded);
    report.then = Some(AfterCommit(Arc::new(move || grants.end(run))));
    Ok(report)
}

/// Connects to the BMC for the cleanup and reads it; `None` when the record of the server no longer allows a connection.
async fn reached(
    services: &DiagnosticsServices,
    context: &StepContext,
    server: &Server,
) -> Result<Option<(Connected, Discovery)>, StepError> {
    let connected = match services.bmc.connections.connect(server, &context.lease).await {
        Ok(connected) => connected,
        Err(ConnectError::Bmc(error)) => return Err(from_redfish(CLEAN, &error)),
        Err(ConnectError::Record(_)) => return Ok(None),
    };
    let selector = redfish::SystemSelector::serial(server.serial.as_str());
    let discovery = connected.bmc.discover(&selector).await.map_err(|error| from_redfish(CLEAN, &error))?;
    Ok(Some((connected, discovery)))
}

/// Clears the boot override that the check set: the next restart of the host would otherwise be from a medium that is not there.
async fn clear_boot_override(
    services: &DiagnosticsServices,
    context: &StepContext,
    server: &Server,
) -> Result<(), StepError> {
    let Some((connected, discovery)) = reached(services, context, server).await? else { return Ok(()) };
    match clear_boot(&connected.bmc, &discovery.system).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let next = "clear the boot override in the BMC before the next restart of the host";
            let summary = "the boot override that the diagnostics set is still shown after it was cleared";
            Err(StepError::retry(failure(class::TRANSIENT, CLEAN, summary, next)))
        }
        Err(error) => Err(from_redfish(CLEAN, &error)),
    }
}

/// Ejects the test image from every slot: an interrupted check may have left it in any of them.
async fn eject_everywhere(
    services: &Arc<DiagnosticsServices>,
    context: &StepContext,
    server: &Server,
) -> Result<(), StepError> {
    let Ok(bases) = services.bmc.media_bases(server).await else { return Ok(()) };
    let media: Vec<Granted> = std::iter::once(&bases.first)
        .chain(&bases.secure)
        .map(|base| medium(CLEAN, services, context, base))
        .collect::<Result<_, _>>()?;
    let Some((connected, discovery)) = reached(services, context, server).await? else { return Ok(()) };
    for slot in &discovery.slots {
        let Some(medium) = media.iter().find(|medium| slot.holds(&medium.url)) else { continue };
        if let Some(remains) = eject_test_medium(&connected.bmc, &slot.uri, medium).await {
            let next = "eject it in the BMC; the next job also ejects it";
            return Err(StepError::retry(failure(class::TRANSIENT, CLEAN, remains, next)));
        }
    }
    Ok(())
}
