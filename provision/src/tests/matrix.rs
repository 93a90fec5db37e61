//! The failure matrix of the workflow: every step fails, and every step's worker dies, before and after the step's effect.
//! After a death another worker repeats the step.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_bmc::{OverrideEnabled, Power};
use tokio::sync::Notify;

use super::bench::Bench;
use super::*;
use model::{Run, Signal, Snapshot, StepName, StepPhase, Wait, WorkflowVersion};

/// The fault that is injected into one step, once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepFault {
    /// The step fails without any effect.
    FailsBefore,
    /// The step fails after all its effects.
    FailsAfter,
    /// The worker dies before any effect.
    DiesBefore,
    /// The worker dies after all effects and before the commit.
    DiesAfter,
    /// The mutant: the step reports success without any effect.
    OnlyReports,
}

/// A workflow with a fault in one step.
struct FaultyWorkflow {
    workflow: Arc<dyn Workflow>,
    step: &'static str,
    fault: StepFault,
    armed: Arc<AtomicBool>,
    died: Arc<Notify>,
}

impl Workflow for FaultyWorkflow {
    fn name(&self) -> &'static str {
        self.workflow.name()
    }
    fn version(&self) -> WorkflowVersion {
        self.workflow.version()
    }
    fn step(&self, name: &StepName) -> Option<Arc<dyn Step>> {
        let step = self.workflow.step(name)?;
        if *name != self.step {
            return Some(step);
        }
        let (armed, died) = (Arc::clone(&self.armed), Arc::clone(&self.died));
        Some(Arc::new(FaultyStep { name: self.step, step, fault: self.fault, armed, died }))
    }
    fn prepare_child(&self, request: ChildRequest) -> Result<NewRun, ChildRefused> {
        self.workflow.prepare_child(request)
    }
    fn undoes_steps(&self) -> bool {
        self.workflow.undoes_steps()
    }
    fn finish_timeout(&self) -> Duration {
        self.workflow.finish_timeout()
    }
    fn wait_reasons(&self) -> &'static [&'static WaitReason] {
        self.workflow.wait_reasons()
    }
}

struct FaultyStep {
    name: &'static str,
    step: Arc<dyn Step>,
    fault: StepFault,
    armed: Arc<AtomicBool>,
    died: Arc<Notify>,
}

impl FaultyStep {
    async fn inject(&self) -> Option<StepReport> {
        self.armed.store(false, Ordering::SeqCst);
        match self.fault {
            StepFault::FailsBefore | StepFault::FailsAfter => Some(StepReport::fail(model::Failure {
                class: class::TRANSIENT,
                step: StepName::new(self.name),
                summary: "injected failure".to_owned(),
                detail: None,
                next_action: "nothing, this is a test".to_owned(),
            })),
            StepFault::OnlyReports => Some(StepReport::done()),
            StepFault::DiesBefore | StepFault::DiesAfter => {
                self.died.notify_one();
                pending().await
            }
        }
    }
}

#[async_trait]
impl Step for FaultyStep {
    fn policy(&self) -> StepPolicy {
        self.step.policy()
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let armed = self.armed.load(Ordering::SeqCst);
        if armed
            && matches!(self.fault, StepFault::FailsBefore | StepFault::DiesBefore | StepFault::OnlyReports)
            && let Some(report) = self.inject().await
        {
            return report;
        }
        let report = self.step.run(context).await;
        // The fault is injected into the first call that concludes; a call that waits has not all effects. `webhook.wait`
        // concludes outside of a call, so its first call counts.
        let concludes =
            matches!(report.outcome, StepOutcome::Done | StepOutcome::Skipped) || self.name == "webhook.wait";
        if armed
            && concludes
            && let Some(injected) = self.inject().await
        {
            return StepReport { outcome: injected.outcome, ..report };
        }
        report
    }

    async fn undo(&self, context: &StepContext) -> StepReport {
        self.step.undo(context).await
    }

    fn on_signal(&self, snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        self.step.on_signal(snapshot, signal)
    }

    fn on_wait_deadline(&self, snapshot: &Snapshot, wait: &Wait) -> StepReport {
        self.step.on_wait_deadline(snapshot, wait)
    }
}

/// Runs a job with a fault in one step to its end.
async fn run_with_fault(step: &'static str, fault: StepFault, starts_on: bool) -> (Bench, RunId, Run) {
    let bench = Bench::new(|sim_bmc| sim_bmc.starts_on = starts_on).await;
    let (armed, died) = (Arc::new(AtomicBool::new(true)), Arc::<Notify>::default());
    let engine = bench.engine("one", &bench.clock, |workflow| {
        let (armed, died) = (Arc::clone(&armed), Arc::clone(&died));
        Arc::new(FaultyWorkflow { workflow, step, fault, armed, died })
    });
    let id = bench.order(&engine).await;
    let run = tokio::select! {
        run = bench.run_to_end(&engine, id) => Some(run),
        () = died.notified() => None,
    };
    let run = match run {
        Some(run) => run,
        None => bench.run_to_end(&bench.plain_engine("two"), id).await,
    };
    assert!(!armed.load(Ordering::SeqCst), "{step} was not reached");
    (bench, id, run)
}

/// Summarises the end of a job and its machine in one line; also returns the power state.
async fn summary_of((bench, id, run): &(Bench, RunId, Run)) -> (String, &'static str) {
    let snapshot = bench.snapshot(*id).await;
    let outcome = match &run.failure {
        Some(failure) => format!("failed in {}", failure.step),
        None => run.outcome.map_or("-", |outcome| outcome.as_str()).to_owned(),
    };
    let left: Vec<&str> = snapshot
        .steps
        .iter()
        .filter(|step| step.phase == StepPhase::Failed && step.name.starts_with("cleanup"))
        .map(|step| step.name.as_str())
        .collect();
    let machine = bench.sim_bmc.snapshot();
    assert_eq!(machine.ejected_while_running, 0);
    assert_eq!(machine.boot.enabled, OverrideEnabled::Disabled);
    let mounted = machine.slots.iter().filter(|slot| slot.image.is_some()).count();
    let power = if machine.power == Power::Off { "off" } else { "on" };
    let sessions = machine.open_sessions;
    let summary_of = format!(
        "{outcome}, left {left:?}, {} boots, {mounted} mounted, {sessions} sessions",
        machine.boots_from_media
    );
    (summary_of, power)
}

fn steps() -> impl Iterator<Item = &'static str> {
    FORWARD.iter().chain(&[REPORTED]).chain(&FINISH).map(|(name, _)| name.as_str())
}

/// The expected end for a failure of every step before and after its effect. The power states are those of a machine that was
/// off before the job, and of one that was on.
const ENDS: &str = r#"validate before: failed in validate, left [], 0 boots, 0 mounted, 0 sessions, off/on
validate after: failed in validate, left [], 0 boots, 0 mounted, 0 sessions, off/on
iso.build before: failed in iso.build, left [], 0 boots, 0 mounted, 0 sessions, off/on
iso.build after: failed in iso.build, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.discover before: failed in redfish.discover, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.discover after: failed in redfish.discover, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.power-off before: failed in redfish.power-off, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.power-off after: failed in redfish.power-off, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.eject before: failed in redfish.eject, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.eject after: failed in redfish.eject, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.mount.maintenance before: failed in redfish.mount.maintenance, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.mount.maintenance after: failed in redfish.mount.maintenance, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.mount.task before: failed in redfish.mount.task, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.mount.task after: failed in redfish.mount.task, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.boot-override before: failed in redfish.boot-override, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.boot-override after: failed in redfish.boot-override, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.power-on before: failed in redfish.power-on, left [], 0 boots, 0 mounted, 0 sessions, off/on
redfish.power-on after: failed in redfish.power-on, left [], 1 boots, 0 mounted, 0 sessions, off/on
webhook.wait before: failed in webhook.wait, left [], 1 boots, 0 mounted, 0 sessions, off/on
webhook.wait after: failed in webhook.wait, left [], 1 boots, 0 mounted, 0 sessions, off/on
cleanup.power-off before: succeeded, left ["cleanup.power-off", "cleanup.eject"], 1 boots, 2 mounted, 0 sessions, on/on
cleanup.power-off after: succeeded, left ["cleanup.power-off"], 1 boots, 0 mounted, 0 sessions, on/on
cleanup.eject before: succeeded, left ["cleanup.eject", "cleanup.power-on"], 1 boots, 2 mounted, 0 sessions, off/off
cleanup.eject after: succeeded, left ["cleanup.eject"], 1 boots, 0 mounted, 0 sessions, on/on
cleanup.boot-override before: succeeded, left ["cleanup.boot-override"], 1 boots, 0 mounted, 0 sessions, on/on
cleanup.boot-override after: succeeded, left ["cleanup.boot-override"], 1 boots, 0 mounted, 0 sessions, on/on
cleanup.power-on before: succeeded, left ["cleanup.power-on"], 1 boots, 0 mounted, 0 sessions, off/off
cleanup.power-on after: succeeded, left ["cleanup.power-on"], 1 boots, 0 mounted, 0 sessions, on/on
cleanup.grant before: succeeded, left ["cleanup.grant"], 1 boots, 0 mounted, 1 sessions, on/on
cleanup.grant after: succeeded, left ["cleanup.grant"], 1 boots, 0 mounted, 0 sessions, on/on
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_any_step_before_or_after_its_effect_ends_as_the_table_says() {
    let mut ends = String::new();
    for step in steps() {
        for (fault, when) in [(StepFault::FailsBefore, "before"), (StepFault::FailsAfter, "after")] {
            let (off, on) =
                tokio::join!(run_with_fault(step, fault, false), run_with_fault(step, fault, true));
            let ((end, was_off), (same, was_on)) = (summary_of(&off).await, summary_of(&on).await);
            assert_eq!(end, same, "{step} {when}");
            ends += &format!("{step} {when}: {end}, {was_off}/{was_on}\n");
        }
    }
    assert!(ends == ENDS, "{ends}");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_step_repeated_by_a_second_worker_ends_like_a_single_run() {
    let bench = Bench::new(|sim_bmc| sim_bmc.starts_on = true).await;
    let engine = bench.plain_engine("one");
    let id = bench.order(&engine).await;
    let run = bench.run_to_end(&engine, id).await;
    let changes = bench.changes();
    let once = summary_of(&(bench, id, run)).await;
    assert_eq!(once, ("succeeded, left [], 1 boots, 0 mounted, 0 sessions".to_owned(), "on"));
    for step in steps() {
        let (before, after) = tokio::join!(
            run_with_fault(step, StepFault::DiesBefore, true),
            run_with_fault(step, StepFault::DiesAfter, true)
        );
        for twice in [before, after] {
            let end = (summary_of(&twice).await, twice.0.changes());
            assert_eq!(end, (once.clone(), changes.clone()), "{step}: {:#?}", twice.0.events(twice.1).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_reports_success_without_effect_is_detected() {
    let whole = ("succeeded, left [], 1 boots, 0 mounted, 0 sessions".to_owned(), "on");
    for step in ["redfish.mount.maintenance", "cleanup.power-off", "cleanup.eject", "cleanup.power-on"] {
        let said = run_with_fault(step, StepFault::OnlyReports, true).await;
        assert_ne!(summary_of(&said).await, whole, "{step} did nothing and the summary does not show it");
    }
}
