//! Power that is refused, shown late, or not shown; a BMC that restarts itself.

use std::time::Duration;

use lab_bmc::{AlreadyThere, Effect, Fault, FaultCondition, Graceful, Power, ResetType, Success, When};
use serde_json::json;

use super::{SERIAL, SYSTEM, get, play, says, scene};
use crate::kit::struck;

fn shows(power: serde_json::Value) -> Effect {
    Effect::Lie(json!({ "PowerState": power }))
}

gets_over! {
    a_reset_in_the_wrong_state(twin) {
        let busy = says(400, "Base.1.18.InvalidOperationForSystemState");
        twin.faults.push(Fault::once(When::ResetTo(ResetType::On), busy).times(2));
    }
    an_on_refused_for_a_while_after_the_off(twin) {
        twin.starts_on = true;
        let conflict = says(409, "IDRAC.2.8.SYS518");
        twin.faults.push(Fault::once(When::ResetTo(ResetType::On), conflict).times(2));
    }
    an_on_held_back_for_longer_than_tries_would_last(twin) {
        let busy = says(409, "IDRAC.2.8.SYS518");
        twin.faults.push(Fault::once(When::ResetTo(ResetType::On), busy).times(12));
    }
    an_off_refused_because_the_host_is_off(twin) {
        twin.faults.push(Fault::once(get(SYSTEM), shows(json!("On"))));
    }
    an_off_refused_in_an_older_way_because_the_host_is_off(twin) {
        twin.power.already_there = AlreadyThere::BadRequest;
        twin.faults.push(Fault::once(get(SYSTEM), shows(json!("On"))));
    }
    a_host_that_is_on(twin) {
        twin.starts_on = true;
    }
    a_host_that_is_on_and_deaf(twin) {
        twin.starts_on = true;
        twin.power.graceful = Graceful::IgnoredByHost;
    }
    a_host_that_takes_its_time_to_go_off(twin) {
        twin.starts_on = true;
        twin.power.off_time = Duration::from_millis(30);
    }
    a_power_state_that_is_shown_late(twin) {
        twin.starts_on = true;
        twin.power.state_lag = Duration::from_millis(20);
    }
    a_power_state_without_transitions(twin) {
        twin.starts_on = true;
        twin.power.shows_transitions = false;
        twin.power.off_time = Duration::from_millis(20);
    }
    a_power_state_of_null_for_a_while(twin) {
        twin.faults.push(Fault::once(get(SYSTEM), shows(json!(null))));
    }
    a_power_state_on_its_way_for_a_while(twin) {
        twin.starts_on = true;
        twin.faults.push(Fault::once(get(SYSTEM), shows(json!("PoweringOff"))).times(3));
    }
    a_power_state_that_stays_on_its_way(twin) {
        twin.faults.push(Fault::always(get(SYSTEM), shows(json!("PoweringOff"))));
    }
    a_power_state_that_stays_on_its_way_although_the_host_was_on(twin) {
        twin.starts_on = true;
        twin.faults.push(Fault::always(get(SYSTEM), shows(json!("PoweringOff"))));
    }
    a_power_state_of_null_for_good(twin) {
        twin.faults.push(Fault::always(get(SYSTEM), shows(json!(null))));
    }
    a_reset_that_begins_after_its_answer(twin) {
        twin.starts_on = true;
        twin.power.act_delay = Duration::from_millis(20);
    }
    a_reset_that_is_a_task(twin) {
        twin.answers.reset = Success::TaskLocation;
    }
    a_reset_that_is_accepted_and_names_nothing(twin) {
        twin.answers.reset = Success::Accepted;
    }
    reset_types_that_stand_elsewhere(twin) {
        twin.power.action_info = true;
    }
    a_shutdown_that_is_offered_and_not_there(twin) {
        twin.starts_on = true;
        twin.power.not_implemented = vec![ResetType::GracefulShutdown];
    }
    a_power_off_whose_answer_is_lost(twin) {
        twin.starts_on = true;
        twin.faults.push(Fault::once(When::ResetTo(ResetType::ForceOff), Effect::ApplyButDrop));
    }
    a_bmc_that_restarts_before_anything_is_in_it(twin) {
        twin.faults.push(Fault::once(When::Insert, Effect::BmcRestart(Duration::from_millis(300))));
    }
    a_bmc_that_restarts_while_it_is_discovered(twin) {
        twin.faults.push(Fault::once(get(SYSTEM), Effect::BmcRestart(Duration::from_millis(300))));
    }
    a_bmc_that_restarts_in_cleanup(twin) {
        twin.faults.push(Fault::once(When::Eject, Effect::BmcRestart(Duration::from_millis(300))));
    }
}

fails! {
    an_on_that_is_always_refused(twin) {
        twin.faults.push(Fault::always(When::ResetTo(ResetType::On), says(400, "Base.1.18.ActionParameterNotSupported")));
    } => "redfish.power-on", "bmc_refused", ["says no in words of its own"];
    an_on_that_never_has_an_effect(twin) {
        twin.faults.push(Fault::always(When::ResetTo(ResetType::On), Effect::AcceptButIgnore));
    } => "redfish.power-on", "deadline", [];
    a_host_that_cannot_be_forced_off(twin) {
        twin.starts_on = true;
        twin.faults.push(Fault::always(When::ResetTo(ResetType::ForceOff), Effect::AcceptButIgnore));
    } => "redfish.power-off", "deadline", ["was told to power off; its BMC shows On"];
}

/// Media and override are lost, seen, and put back; the host is told again.
#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_instead_of_powering_on() {
    let restart = Fault::once(When::ResetTo(ResetType::On), Effect::BmcRestart(Duration::from_millis(100)))
        .only_if(FaultCondition::AnyMedium);
    let played = play(|twin| twin.faults.push(restart)).await;
    assert!(played.story.contains("redfish.media-reinserted"), "{}", played.story);
    played.ended_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_while_the_host_is_shut_down() {
    let restart = Fault::once(
        When::ResetTo(ResetType::GracefulShutdown),
        Effect::BmcRestart(Duration::from_millis(100)),
    );
    let scene = scene(|twin| twin.faults.push(restart)).await;
    let id = scene.admin.create_job(SERIAL).await;
    struck(scene.twin(SERIAL)).await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.story(&id).await);
    let machine = scene.twin(SERIAL).snapshot();
    assert_eq!((machine.power, machine.boots_from_media), (Power::On, 1));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_switched_on_by_somebody_else_is_not_restarted() {
    let played = play(|twin| {
        twin.faults.push(Fault::once(When::ResetTo(ResetType::On), Effect::ApplyButDrop));
        twin.power.already_there = AlreadyThere::NoOp;
    })
    .await;
    assert_eq!(played.machine.power_ons, 2, "the maintenance OS once and what it installed once");
    played.ended_well().await;
}
