//! Injects the faults of a world. The seed chooses them; all faults end before the final checks.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use lab_bmc::{Fault, FaultEffect, FaultTrigger, ResetType, SimBmc};

use super::rng::WorldRng;
use super::state::ControllerFault;
use super::world::World;
use model::Serial;
use store::HookDecision;

/// Maximum delay of a BMC request: less than the time that the controller waits for a reset. If a BMC carried out an old
/// power-off after it had shown the host as off and on again, no client could detect it (seed 727).
const MAX_DELAY: Duration = Duration::from_secs(58);

/// The random stream of this module. It never changes: recorded seeds replay their worlds with it.
const STREAM: u64 = 0xb0a4_53a0_b4b6_43d5;

/// Injects faults until the fault time is over.
pub(super) async fn inject_faults(world: Arc<World>) {
    let rng = WorldRng::keyed(world.plan.seed, STREAM);
    let Some(interval) = world.plan.fault_interval else { return };
    loop {
        tokio::time::sleep(rng.time(Duration::from_secs(1), interval * 2)).await;
        if world.is_quiet() {
            return;
        }
        let what = rng.below(20);
        if what < 5 && rng.below(3) > 0 {
            // A crash while a BMC is being changed is the hardest case for a controller.
            let _timed_out =
                tokio::time::timeout(Duration::from_secs(1800), world.bmc_changes.notified()).await;
            if world.is_quiet() {
                return;
            }
        }
        match what {
            0 => world.queue_controller_fault(ControllerFault::CrashAfter(rng.below(400))),
            1 | 2 => world.queue_controller_fault(ControllerFault::Crash),
            3 | 4 => world.queue_controller_fault(ControllerFault::Pause(rng.seconds(5, 1500))),
            5 | 6 => {
                let seconds = i64::try_from(rng.below(7200)).unwrap_or(0) - 3600;
                world.note(&format!("the wall clock changes by {seconds} s"));
                world.clock.set(SignedDuration::from_secs(seconds));
            }
            7 | 8 => {
                let how = if rng.below(2) == 0 { HookDecision::Full } else { HookDecision::Locked };
                world.note(&format!("the database fails: {how:?}"));
                world.set_database(how);
                tokio::time::sleep(rng.seconds(1, 240)).await;
                world.set_database(HookDecision::Proceed);
            }
            9 | 10 => make_unreachable(&world, &rng),
            11 => {
                if let Some((serial, bmc)) = world.any_bmc(&rng) {
                    world.note(&format!("the BMC of {serial} restarts"));
                    world.checker.allow_media_loss(&serial);
                    world.sessions_lost(&serial);
                    bmc.reset_bmc();
                }
            }
            _ => {
                if let Some((serial, bmc)) = world.any_bmc(&rng) {
                    let fault = fault(&rng);
                    world.note(&format!("{serial}: {fault:?}"));
                    if matches!(
                        fault.when,
                        FaultTrigger::Logout | FaultTrigger::Login | FaultTrigger::Anything
                    ) {
                        world.sessions_lost(&serial);
                    }
                    bmc.inject(fault);
                }
            }
        }
    }
}

fn make_unreachable(world: &Arc<World>, rng: &WorldRng) {
    let Some((serial, bmc)) = world.any_bmc(rng) else { return };
    let time = rng.seconds(5, 2400);
    world.note(&format!("{serial} is unreachable for {} s", time.as_secs()));
    world.sessions_lost(&serial);
    bmc.set_reachable(false);
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        bmc.set_reachable(true);
    });
}

/// Creates a random fault of a BMC that occurs a few times.
fn fault(rng: &WorldRng) -> Fault {
    let when = [
        FaultTrigger::Anything,
        FaultTrigger::Read,
        FaultTrigger::Mutation,
        FaultTrigger::Mutation,
        FaultTrigger::Login,
        FaultTrigger::Logout,
        FaultTrigger::Insert,
        FaultTrigger::Eject,
        FaultTrigger::Reset,
        FaultTrigger::ResetTo(ResetType::On),
        FaultTrigger::ResetTo(ResetType::ForceOff),
        FaultTrigger::PatchBoot,
    ];
    let when = rng.choose(&when).cloned().unwrap_or(FaultTrigger::Anything);
    let status = |status| FaultEffect::Status {
        status,
        message_id: "Base.1.18.GeneralError".to_owned(),
        message: "selftest".to_owned(),
    };
    let effects = [
        status(500),
        status(503),
        status(400),
        status(409),
        FaultEffect::RateLimit { retry_after_seconds: Some(rng.below(30)) },
        FaultEffect::Hang,
        FaultEffect::Drop,
        FaultEffect::Delay(rng.seconds(1, 100).min(MAX_DELAY)),
        FaultEffect::AcceptButIgnore,
        FaultEffect::ApplyButTimeout,
        FaultEffect::ApplyButTimeout,
        FaultEffect::ApplyButDrop,
        FaultEffect::ApplyButDrop,
        FaultEffect::Truncate(usize::try_from(rng.below(200)).unwrap_or(0)),
    ];
    let effect = rng.choose(&effects).cloned().unwrap_or(FaultEffect::Drop);
    let times = u32::try_from(1 + rng.below(4)).unwrap_or(1);
    let skip = u32::try_from(rng.below(6)).unwrap_or(0);
    Fault::once(when, effect).times(times).after(skip)
}

/// Ends all faults of BMCs.
pub(super) fn end(bmcs: impl Iterator<Item = (Serial, SimBmc)>) {
    for (_, bmc) in bmcs {
        bmc.clear_faults();
        bmc.continue_update();
        bmc.set_reachable(true);
    }
}
