//! Power that is refused, shown late, or not shown; a BMC that restarts itself.

use std::time::Duration;

use lab_bmc::{
    AlreadyThere, Fault, FaultCondition, FaultEffect, FaultTrigger, Graceful, Power, ResetType, Success,
};
use serde_json::json;

use super::{SERIAL, SYSTEM, finished, get, run_job, says, scene};
use crate::kit::all_faults_used;

fn shows(power: serde_json::Value) -> FaultEffect {
    FaultEffect::Lie(json!({ "PowerState": power }))
}

recovers! {
    a_reset_in_the_wrong_state(bmc) {
        let busy = says(400, "Base.1.18.InvalidOperationForSystemState");
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), busy).times(2));
    }
    an_on_refused_for_a_while_after_the_off(bmc) {
        bmc.starts_on = true;
        let conflict = says(409, "IDRAC.2.8.SYS518");
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), conflict).times(2));
    }
    an_on_refused_for_longer_than_the_attempts_last(bmc) {
        let busy = says(409, "IDRAC.2.8.SYS518");
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), busy).times(12));
    }
    an_on_in_conflict_for_a_while_on_a_bmc_of_any_vendor(bmc) {
        let conflict = says(409, "Base.1.18.ActionParameterValueConflict");
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), conflict).times(6));
    }
    an_off_in_conflict_for_a_while_on_a_bmc_of_any_vendor(bmc) {
        bmc.starts_on = true;
        let conflict = says(409, "Base.1.18.ResourceExhaustion");
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::ForceOff), conflict).times(6));
    }
    reads_in_conflict_for_a_while(bmc) {
        let conflict = says(409, "Base.1.18.GeneralError");
        bmc.faults.push(Fault::once(get(SYSTEM), conflict).after(2).times(3));
    }
    a_cleanup_whose_off_and_on_are_in_conflict_for_a_while(bmc) {
        bmc.power.graceful = Graceful::IgnoredByHost;
        let conflict = says(409, "Base.1.18.ActionParameterValueConflict");
        let off = Fault::once(FaultTrigger::ResetTo(ResetType::ForceOff), conflict.clone()).times(6);
        let on = Fault::once(FaultTrigger::ResetTo(ResetType::On), conflict).after(1).times(6);
        bmc.faults.extend([off, on]);
    }
    a_reset_of_a_bmc_that_says_busy_with_a_server_error(bmc) {
        let busy = says(500, "IDRAC.2.8.SYS518");
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), busy).times(4));
    }
    an_off_refused_because_the_host_is_off(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), shows(json!("On"))));
    }
    an_off_refused_in_an_older_way_because_the_host_is_off(bmc) {
        bmc.power.already_there = AlreadyThere::BadRequest;
        bmc.faults.push(Fault::once(get(SYSTEM), shows(json!("On"))));
    }
    a_host_that_is_on(bmc) {
        bmc.starts_on = true;
    }
    a_host_that_is_on_and_ignores_the_shutdown(bmc) {
        bmc.starts_on = true;
        bmc.power.graceful = Graceful::IgnoredByHost;
    }
    a_host_that_powers_off_slowly(bmc) {
        bmc.starts_on = true;
        bmc.power.off_time = Duration::from_millis(30);
    }
    a_power_state_that_is_shown_late(bmc) {
        bmc.starts_on = true;
        bmc.power.state_lag = Duration::from_millis(20);
    }
    a_power_state_without_transitions(bmc) {
        bmc.starts_on = true;
        bmc.power.shows_transitions = false;
        bmc.power.off_time = Duration::from_millis(20);
    }
    a_power_state_of_null_for_a_while(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), shows(json!(null))));
    }
    a_power_state_in_transition_for_a_while(bmc) {
        bmc.starts_on = true;
        bmc.faults.push(Fault::once(get(SYSTEM), shows(json!("PoweringOff"))).times(3));
    }
    a_power_state_that_stays_in_transition(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), shows(json!("PoweringOff"))));
    }
    a_power_state_that_stays_in_transition_although_the_host_was_on(bmc) {
        bmc.starts_on = true;
        bmc.faults.push(Fault::always(get(SYSTEM), shows(json!("PoweringOff"))));
    }
    a_power_state_of_null_for_good(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), shows(json!(null))));
    }
    a_reset_that_begins_after_its_response(bmc) {
        bmc.starts_on = true;
        bmc.power.act_delay = Duration::from_millis(20);
    }
    a_reset_that_is_a_task(bmc) {
        bmc.responses.reset = Success::TaskLocation;
    }
    a_reset_that_is_accepted_and_names_nothing(bmc) {
        bmc.responses.reset = Success::Accepted;
    }
    reset_types_listed_elsewhere(bmc) {
        bmc.power.action_info = true;
    }
    a_shutdown_that_is_listed_and_not_supported(bmc) {
        bmc.starts_on = true;
        bmc.power.not_implemented = vec![ResetType::GracefulShutdown];
    }
    a_power_off_whose_response_is_lost(bmc) {
        bmc.starts_on = true;
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::ForceOff), FaultEffect::ApplyButDrop));
    }
    a_bmc_that_restarts_before_the_first_insert(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Insert, FaultEffect::BmcRestart(Duration::from_millis(300))));
    }
    a_bmc_that_restarts_while_it_is_discovered(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), FaultEffect::BmcRestart(Duration::from_millis(300))));
    }
    a_bmc_that_restarts_in_cleanup(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Eject, FaultEffect::BmcRestart(Duration::from_millis(300))));
    }
}

fails! {
    an_on_that_is_always_refused(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::ResetTo(ResetType::On), says(400, "Base.1.18.ActionParameterNotSupported")));
    } => "redfish.power-on", "bmc_refused", ["reason in the words of the service"];
    an_on_that_never_has_an_effect(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::ResetTo(ResetType::On), FaultEffect::AcceptButIgnore));
    } => "redfish.power-on", "deadline", [];
    a_host_that_cannot_be_forced_off(bmc) {
        bmc.starts_on = true;
        bmc.faults.push(Fault::always(FaultTrigger::ResetTo(ResetType::ForceOff), FaultEffect::AcceptButIgnore));
    } => "redfish.power-off", "deadline", ["power-off was requested; the BMC shows On"];
}

/// Media and override are lost, the controller sees it, sets both again and repeats the power-on.
#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_instead_of_powering_on() {
    let restart = Fault::once(
        FaultTrigger::ResetTo(ResetType::On),
        FaultEffect::BmcRestart(Duration::from_millis(100)),
    )
    .only_if(FaultCondition::AnyMedium);
    let ended = run_job(|bmc| bmc.faults.push(restart)).await;
    assert!(ended.event_log.contains("redfish.media-reinserted"), "{}", ended.event_log);
    ended.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_restarts_while_the_host_is_shut_down() {
    let restart = Fault::once(
        FaultTrigger::ResetTo(ResetType::GracefulShutdown),
        FaultEffect::BmcRestart(Duration::from_millis(100)),
    );
    let scene = scene(|bmc| bmc.faults.push(restart)).await;
    let id = scene.admin.create_job(SERIAL).await;
    all_faults_used(scene.bmc(SERIAL)).await;
    let job = scene.complete_skipping(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let machine = scene.bmc(SERIAL).snapshot();
    assert_eq!((machine.power, machine.boots_from_media), (Power::On, 1));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_already_on_is_not_restarted() {
    let ended = run_job(|bmc| {
        bmc.faults.push(Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::ApplyButDrop));
        bmc.power.already_there = AlreadyThere::NoOp;
    })
    .await;
    assert_eq!(
        ended.machine.power_ons, 2,
        "one power-on for the maintenance OS and one for the installed system"
    );
    ended.assert_succeeded().await;
}

/// Some BMCs read an image while it settles, before the power-on. This read is no sign of a host that boots.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_on_without_effect_is_repeated_although_the_bmc_has_read_the_image_before_it() {
    let dropped = Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::AcceptButIgnore);
    let scene = scene(|bmc| bmc.faults.push(dropped)).await;
    let settles = json!({ "quirks": { "settle_after_mount_s": 180 } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &settles).await.expect(200);
    let id = scene.admin.create_job(SERIAL).await;
    scene.wait_skipping(&id, "the settle time", |job| job["wait"]["reason"] == "settle").await;
    let slots = scene.bmc(SERIAL).snapshot().slots;
    for url in slots.iter().filter_map(|slot| slot.image.as_ref()) {
        let client = scene.anonymous();
        assert_eq!(client.send(client.request(reqwest::Method::GET, url.as_str())).await.status, 200);
    }
    let ended = finished(scene, &id).await;
    assert_eq!(ended.machine.boots_from_media, 1);
    ended.assert_succeeded().await;
}
