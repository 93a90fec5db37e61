//! The failure matrix over this workflow: every step fails, before and after its act, and breaks off, before and after
//! its act, so that another worker carries it out once more.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_bmc::{OverrideEnabled, Power};
use tokio::sync::Notify;

use super::bench::Bench;
use super::*;
use engine::model::{Run, Signal, Snapshot, StepPhase, Wait};

/// How a step is spoilt, once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// It fails and has done nothing.
    FailsBefore,
    /// It fails and has done everything.
    FailsAfter,
    /// Its worker dies before it does anything.
    DiesBefore,
    /// Its worker dies after everything was done, and nothing of it was written down.
    DiesAfter,
    /// The mutant: it says that it is done and has done nothing.
    OnlySays,
}

/// Any workflow, one step of which is spoilt.
struct Spoilt {
    kind: Arc<dyn Kind>,
    step: &'static str,
    how: How,
    fresh: Arc<AtomicBool>,
    died: Arc<Notify>,
}

impl Kind for Spoilt {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn version(&self) -> u32 {
        self.kind.version()
    }
    fn step(&self, name: &str) -> Option<Arc<dyn Step>> {
        let step = self.kind.step(name)?;
        if name != self.step {
            return Some(step);
        }
        let (fresh, died) = (Arc::clone(&self.fresh), Arc::clone(&self.died));
        Some(Arc::new(SpoiltStep { name: self.step, step, how: self.how, fresh, died }))
    }
    fn prepare(&self, order: Order) -> Result<NewRun, Refusal> {
        self.kind.prepare(order)
    }
    fn undoes_steps(&self) -> bool {
        self.kind.undoes_steps()
    }
    fn finish_timeout(&self) -> Duration {
        self.kind.finish_timeout()
    }
    fn reasons(&self) -> &'static [&'static Reason] {
        self.kind.reasons()
    }
}

struct SpoiltStep {
    name: &'static str,
    step: Arc<dyn Step>,
    how: How,
    fresh: Arc<AtomicBool>,
    died: Arc<Notify>,
}

impl SpoiltStep {
    async fn strike(&self) -> Option<StepReport> {
        self.fresh.store(false, Ordering::SeqCst);
        match self.how {
            How::FailsBefore | How::FailsAfter => Some(StepReport::fail(engine::model::Failure {
                class: class::TRANSIENT.to_owned(),
                step: self.name.to_owned(),
                summary: "spoilt".to_owned(),
                evidence: None,
                next_action: "nothing, this is a drill".to_owned(),
            })),
            How::OnlySays => Some(StepReport::done()),
            How::DiesBefore | How::DiesAfter => {
                self.died.notify_one();
                pending().await
            }
        }
    }
}

#[async_trait]
impl Step for SpoiltStep {
    fn policy(&self) -> StepPolicy {
        self.step.policy()
    }

    async fn run(&self, context: &StepContext) -> StepReport {
        let fresh = self.fresh.load(Ordering::SeqCst);
        if fresh
            && matches!(self.how, How::FailsBefore | How::DiesBefore | How::OnlySays)
            && let Some(report) = self.strike().await
        {
            return report;
        }
        let report = self.step.run(context).await;
        // The first call that concludes; one that still waits has not done everything. The wait for the report concludes
        // outside of a call, so its first call counts.
        let concludes =
            matches!(report.verdict, Verdict::Done | Verdict::Skipped) || self.name == "webhook.wait";
        if fresh
            && concludes
            && let Some(struck) = self.strike().await
        {
            return StepReport { verdict: struck.verdict, ..report };
        }
        report
    }

    async fn undo(&self, context: &StepContext) -> StepReport {
        self.step.undo(context).await
    }

    fn receive(&self, snapshot: &Snapshot, signal: &Signal) -> Option<StepReport> {
        self.step.receive(snapshot, signal)
    }

    fn overdue(&self, snapshot: &Snapshot, wait: &Wait) -> StepReport {
        self.step.overdue(snapshot, wait)
    }
}

/// A job one step of which was spoilt, worked to its end.
async fn spoilt(step: &'static str, how: How, found_on: bool) -> (Bench, RunId, Run) {
    let bench = Bench::new(|twin| twin.starts_on = found_on).await;
    let (fresh, died) = (Arc::new(AtomicBool::new(true)), Arc::<Notify>::default());
    let engine = bench.engine("one", &bench.clock, |kind| {
        let (fresh, died) = (Arc::clone(&fresh), Arc::clone(&died));
        Arc::new(Spoilt { kind, step, how, fresh, died })
    });
    let id = bench.order(&engine).await;
    let run = tokio::select! {
        run = bench.carry_out(&engine, id) => Some(run),
        () = died.notified() => None,
    };
    let run = match run {
        Some(run) => run,
        None => bench.carry_out(&bench.sound("two"), id).await,
    };
    assert!(!fresh.load(Ordering::SeqCst), "{step} was not reached");
    (bench, id, run)
}

/// How a job and its machine ended, in a line; the power of the machine beside it.
async fn line((bench, id, run): &(Bench, RunId, Run)) -> (String, &'static str) {
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
    let machine = bench.twin.snapshot();
    assert_eq!(machine.ejected_while_running, 0);
    assert_eq!(machine.boot.enabled, OverrideEnabled::Disabled);
    let mounted = machine.slots.iter().filter(|slot| slot.image.is_some()).count();
    let power = if machine.power == Power::Off { "off" } else { "on" };
    let sessions = machine.open_sessions;
    let line = format!(
        "{outcome}, left {left:?}, {} boots, {mounted} mounted, {sessions} sessions",
        machine.boots_from_media
    );
    (line, power)
}

fn steps() -> impl Iterator<Item = &'static str> {
    FORWARD.iter().chain(&[REPORTED]).chain(&FINISH).map(|(name, _)| *name)
}

/// Every step failing, before its act and after it, and what that comes to. The power is that of a machine which was found
/// off, and of one which was found on.
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
async fn every_step_failing_before_or_after_its_act_ends_the_job_and_leaves_the_machine_as_the_table_says() {
    let mut ends = String::new();
    for step in steps() {
        for (how, when) in [(How::FailsBefore, "before"), (How::FailsAfter, "after")] {
            let (off, on) = tokio::join!(spoilt(step, how, false), spoilt(step, how, true));
            let ((end, was_off), (same, found_on)) = (line(&off).await, line(&on).await);
            assert_eq!(end, same, "{step} {when}");
            ends += &format!("{step} {when}: {end}, {was_off}/{found_on}\n");
        }
    }
    assert!(ends == ENDS, "{ends}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_carried_out_twice_by_two_workers_ends_like_once() {
    let bench = Bench::new(|twin| twin.starts_on = true).await;
    let engine = bench.sound("one");
    let id = bench.order(&engine).await;
    let run = bench.carry_out(&engine, id).await;
    let changes = bench.changes();
    let once = line(&(bench, id, run)).await;
    assert_eq!(once, ("succeeded, left [], 1 boots, 0 mounted, 0 sessions".to_owned(), "on"));
    for step in steps() {
        let (before, after) =
            tokio::join!(spoilt(step, How::DiesBefore, true), spoilt(step, How::DiesAfter, true));
        for twice in [before, after] {
            let end = (line(&twice).await, twice.0.changes());
            assert_eq!(end, (once.clone(), changes.clone()), "{step}: {:#?}", twice.0.events(twice.1).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_only_says_that_it_is_done_is_caught() {
    let whole = ("succeeded, left [], 1 boots, 0 mounted, 0 sessions".to_owned(), "on");
    for step in ["redfish.mount.maintenance", "cleanup.power-off", "cleanup.eject", "cleanup.power-on"] {
        let said = spoilt(step, How::OnlySays, true).await;
        assert_ne!(line(&said).await, whole, "nobody noticed that {step} did nothing");
    }
}
