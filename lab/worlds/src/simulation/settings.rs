//! The operators of a world who change settings of the BIOS, and the faults of these changes.
//!
//! ```text
//!   order (attributes, sometimes the boot order; restart allowed | forbidden | in a window, a deadline)
//!        │ acknowledged ─► watched until its end (`watched`)
//!        ├── some are cancelled
//!        └── restart forbidden ─► the operator restarts the host later
//!   faults: a write without a response, carried out or not; firmware that keeps a value
//! ```

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{BiosAttribute, Fault, FaultEffect, FaultTrigger, SimBmc, SimBmcConfig};
use serde_json::{Map, Value, json};

use super::operator::{BMC_PASSWORD, BMC_USER};
use super::orders::{self, BY_OPERATOR, LOOK, Restart, cancel_run, waits_for};
use super::rng::WorldRng;
use super::world::World;
use model::{Clock, RunId, Serial};

/// The random stream that chooses the BIOS of each server.
pub(super) const BIOS: u64 = 0x4be1_90d3_7ac2_f658;
/// The random stream of the orders.
const ORDERS: u64 = 0x26f8_c41d_e5b7_0a93;

/// Gives a BMC without a vendor the BIOS of the generic one. Some firmware keeps the old value of an attribute.
pub(super) fn add_bios(config: &mut SimBmcConfig, rng: &WorldRng) {
    if let Ok(generic) = SimBmcConfig::vendor("generic", &config.serial, BMC_USER, BMC_PASSWORD)
        && config.identity.manufacturer == generic.identity.manufacturer
    {
        config.bios = generic.bios;
    }
    if rng.below(5) == 0 {
        let names: Vec<String> = config.bios.attributes.iter().map(|known| known.name.clone()).collect();
        config.bios.keeps.extend(rng.choose(&names).cloned());
    }
}

/// Changes settings of one server, one order after another.
pub(super) async fn apply(world: Arc<World>, number: u64, serial: Serial) {
    let rng = WorldRng::keyed(world.plan.seed ^ number.rotate_left(32), ORDERS);
    let Some(bmc) = world.bmc(&serial) else { return };
    for count in 0..world.plan.settings {
        let share = world.plan.fault_time / u32::try_from(world.plan.settings.max(1)).unwrap_or(u32::MAX);
        tokio::time::sleep(rng.time(Duration::from_secs(1), share)).await;
        if rng.below(2) == 0 && world.faults_active() {
            fail_a_write(&world, &rng, &serial, &bmc);
        }
        let Some((id, forbidden)) = order(&world, &rng, (&serial, &bmc), count).await else { continue };
        let cancel_at = (rng.below(5) == 0).then(|| world.clock.passed() + rng.seconds(1, 900));
        let mut restart_at = world.clock.passed() + rng.seconds(300, 3000);
        let mut cancelled = false;
        while !world.observer().peek_ended(id) {
            tokio::time::sleep(LOOK).await;
            let now = world.clock.passed();
            if !cancelled && cancel_at.is_some_and(|at| now >= at) {
                cancelled = true;
                cancel_run(&world, id).await;
            }
            if forbidden && now >= restart_at && waits_for(&world, id, "restart_forbidden").await {
                world.restart(&serial, BY_OPERATOR);
                restart_at = now + rng.seconds(300, 3000);
            }
        }
    }
}

/// Lets the response of the next write be lost.
fn fail_a_write(world: &World, rng: &WorldRng, serial: &Serial, bmc: &SimBmc) {
    let effects = [FaultEffect::ApplyButDrop, FaultEffect::ApplyButTimeout, FaultEffect::Drop];
    let effect = rng.choose(&effects).cloned().unwrap_or(FaultEffect::Drop);
    let write = FaultTrigger::Path { method: "PATCH".to_owned(), glob: "*ios*".to_owned() };
    let fault = Fault::once(write, effect);
    world.note(&format!("{serial}: {fault:?}"));
    bmc.inject(fault);
}

/// Orders one change. Returns its run and whether it may not restart the host.
async fn order(
    world: &Arc<World>,
    rng: &WorldRng,
    (serial, bmc): (&Serial, &SimBmc),
    count: u64,
) -> Option<(RunId, bool)> {
    let mut parameters = wanted(rng, bmc)?;
    let restart = Restart::draw(rng, world.wall_clock().now());
    restart.add_to(&mut parameters);
    let order = (serial, "biosApply", format!("{serial}-settings-{count}"));
    // Another condition of the server is open: the operator does not insist.
    let id = orders::order(world, rng, order, &parameters, &[409]).await?;
    world.watch_settings(id, serial);
    Some((id, restart.is_forbidden()))
}

/// One or two attributes with a value of each, and sometimes a boot order. `None` for a server whose BMC shows no BIOS.
fn wanted(rng: &WorldRng, bmc: &SimBmc) -> Option<Value> {
    let policy = &bmc.config().bios;
    let known: Vec<&BiosAttribute> = policy.attributes.iter().filter(|known| !known.read_only).collect();
    let mut attributes = Map::new();
    for _ in 0..=rng.below(2) {
        let known = rng.choose(&known)?;
        let value = match known.kind.as_str() {
            "Boolean" => json!(rng.below(2) == 0),
            "Integer" => {
                json!(known.bounds.map_or(1, |(least, most)| if rng.below(2) == 0 { least } else { most }))
            }
            "Enumeration" => json!(rng.choose(&known.values)?),
            _ => continue,
        };
        attributes.insert(known.name.clone(), value);
    }
    if attributes.is_empty() {
        return None;
    }
    let mut parameters = json!({ "attributes": attributes });
    if rng.below(3) == 0
        && let Some(option) = rng.choose(&policy.boot_order)
    {
        parameters["boot_order"] = json!([option]);
    }
    Some(parameters)
}
