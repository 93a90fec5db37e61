//! The operators of a world who install firmware, and the faults of these installations.
//!
//! ```text
//!   order (a set, downgrade or not, restart allowed | forbidden | in a window, a deadline)
//!        │ acknowledged ─► watched until its end (`watched`) ─► sometimes another version is written by hand: drift
//!        ├── some are cancelled, also while the BMC flashes
//!        └── restart forbidden ─► the operator restarts the host later
//!   faults: updates that lie, hang, fail, lose their task or keep their BMC away; servers that lose power at half of an image; BMCs that
//!   restart; requests without a response
//! ```

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{Component, Fault, FaultEffect, FaultTrigger, FlashFault};
use serde_json::json;

use super::firmware_files::{VERSIONS, set_name};
use super::orders::{self, BY_OPERATOR, LOOK, Restart, cancel_run, waits_for};
use super::rng::WorldRng;
use super::world::World;
use model::{Clock, RunId, Serial};

/// The random streams of this module.
const ORDERS: u64 = 0x7f1e_23ad_0b58_96c1;
const FAULTS: u64 = 0xd2c4_91b7_6e0a_83f5;
/// The longest time without a fault of an update.
const MOST_QUIET: Duration = Duration::from_secs(1200);

/// Installs firmware on one server, one set after another.
pub(super) async fn install(world: Arc<World>, number: u64, serial: Serial) {
    let rng = WorldRng::keyed(world.plan.seed ^ number.rotate_left(32), ORDERS);
    for count in 0..world.plan.installations {
        let share =
            world.plan.fault_time / u32::try_from(world.plan.installations.max(1)).unwrap_or(u32::MAX);
        tokio::time::sleep(rng.time(Duration::from_secs(1), share)).await;
        let Some((id, forbidden)) = order(&world, &rng, &serial, count).await else { continue };
        let cancel = rng.below(5) == 0;
        let cancel_at = world.clock.passed() + rng.seconds(1, 1500);
        let mut restart_at = world.clock.passed() + rng.seconds(300, 3000);
        let mut cancelled = false;
        while !world.observer().peek_ended(id) {
            tokio::time::sleep(LOOK).await;
            let now = world.clock.passed();
            if cancel && !cancelled && now >= cancel_at {
                cancelled = true;
                cancel_run(&world, id).await;
            }
            if forbidden && now >= restart_at && waits_for(&world, id, "restart_forbidden").await {
                world.restart(&serial, BY_OPERATOR);
                restart_at = now + rng.seconds(300, 3000);
            }
        }
        if rng.below(3) == 0 {
            drift(&world, &rng, &serial);
        }
    }
}

/// Orders one installation. Returns its run and whether it may not restart the host.
async fn order(world: &Arc<World>, rng: &WorldRng, serial: &Serial, count: u64) -> Option<(RunId, bool)> {
    let version = rng.choose(&VERSIONS).copied().unwrap_or(VERSIONS[0]);
    let restart = Restart::draw(rng, world.wall_clock().now());
    let mut parameters =
        json!({ "firmware_set": set_name(serial, version), "allow_downgrade": rng.below(3) > 0 });
    restart.add_to(&mut parameters);
    let order = (serial, "firmwareInstall", format!("{serial}-firmware-{count}"));
    // Another condition of the server is open, or its BMC takes no firmware: the operator does not insist.
    let id = orders::order(world, rng, order, &parameters, &[404, 409]).await?;
    // The update of a BMC ends with its restart, which ends its virtual media.
    world.checker.allow_media_loss(serial);
    world.watch_installation(id, serial);
    Some((id, restart.is_forbidden()))
}

/// A person writes another version, past the controller.
fn drift(world: &World, rng: &WorldRng, serial: &Serial) {
    let kind = if rng.below(2) == 0 { Component::Bmc } else { Component::Bios };
    let Some(bmc) = world.bmc(serial) else { return };
    if let Some(old) = bmc.replace_firmware(kind, "1.7") {
        world.note(&format!("{serial}: {kind:?} {old} is replaced by hand"));
    }
}

/// Lets updates and their requests go wrong until the fault time is over.
pub(super) async fn inject_faults(world: Arc<World>) {
    let rng = WorldRng::keyed(world.plan.seed, FAULTS);
    let Some(interval) = world.plan.fault_interval else { return };
    loop {
        tokio::time::sleep(rng.time(Duration::from_secs(1), (interval * 3).min(MOST_QUIET))).await;
        if world.is_quiet() {
            return;
        }
        let Some((serial, bmc)) = world.any_bmc(&rng) else { return };
        if rng.below(8) == 0 {
            let away = rng.seconds(30, 900);
            world.note(&format!("the BMC of {serial} restarts and is away for {} s", away.as_secs()));
            world.checker.allow_media_loss(&serial);
            world.sessions_lost(&serial);
            bmc.restart_bmc(away);
            continue;
        }
        let message = || "the image is not signed".to_owned();
        let away_for = rng.seconds(60, 1200);
        let effects = [
            FaultEffect::Flash(FlashFault::Lie),
            FaultEffect::Flash(FlashFault::Lie),
            FaultEffect::Flash(FlashFault::Hang),
            FaultEffect::Flash(FlashFault::LoseTask),
            FaultEffect::Flash(FlashFault::LoseTask),
            FaultEffect::Flash(FlashFault::Fail { message: message() }),
            FaultEffect::Flash(FlashFault::Critical { message: message() }),
            FaultEffect::Flash(FlashFault::StayAway),
            FaultEffect::Flash(FlashFault::PowerLoss { away: away_for, keeps_version: rng.below(2) == 0 }),
            FaultEffect::Flash(FlashFault::PowerLoss { away: away_for, keeps_version: true }),
            FaultEffect::ApplyButDrop,
            FaultEffect::ApplyButTimeout,
            FaultEffect::ApplyButTimeout,
            FaultEffect::Drop,
            FaultEffect::Delay(rng.seconds(1, 55)),
            FaultEffect::Status {
                status: 503,
                message_id: "Base.1.18.ServiceTemporarilyUnavailable".to_owned(),
                message: "selftest".to_owned(),
            },
        ];
        let effect = rng.choose(&effects).cloned().unwrap_or(FaultEffect::Drop);
        let fault = Fault::once(FaultTrigger::Update, effect);
        world.note(&format!("{serial}: {fault:?}"));
        bmc.inject(fault);
    }
}
