//! Power: nothing without need, read back, and what a refusal means.

use http::Method;
use redfish::{
    Bmc, ErrorKind, PowerState, ResetType, SystemInfo, SystemSelector, TransportError, TransportErrorKind,
};
use serde_json::json;

use crate::fake::{Fake, RESET, Reply, SYSTEM, client};

async fn found(fake: &std::sync::Arc<Fake>) -> (Bmc, SystemInfo) {
    let bmc = client(fake);
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    (bmc, system)
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_there_already_is_left_alone() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    let done = bmc.reset(&system, ResetType::ForceOff).await.unwrap();
    assert!(!done.changed && done.confirmed && done.observed == PowerState::Off);
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_on_its_way_is_accepted_but_not_confirmed() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::status(204).effect(SYSTEM, json!({ "PowerState": "PoweringOn" }))]);
    let done = bmc.reset(&system, ResetType::On).await.unwrap();
    assert!(done.changed && !done.confirmed && done.observed == PowerState::PoweringOn);
    assert_eq!(fake.mutations()[0].body, Some(json!({ "ResetType": "On" })));
    fake.merge(SYSTEM, json!({ "PowerState": "On" }));
    assert_eq!(bmc.power_state(&system).await.unwrap(), PowerState::On);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_the_wanted_state_reached_is_success() {
    for status in [400, 409] {
        let fake = Fake::new();
        let (bmc, system) = found(&fake).await;
        fake.on(Method::POST, RESET, [Reply::status(status).effect(SYSTEM, json!({ "PowerState": "On" }))]);
        let done = bmc.reset(&system, ResetType::On).await.unwrap();
        assert!(!done.changed && done.confirmed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_changed_nothing_is_reported_with_the_bmcs_words() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::error(409, "Base.1.12.ActionParameterValueConflict", "not yet")]);
    let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
    assert!(matches!(&error.kind, ErrorKind::Refused { status: 409, message, .. } if message == "not yet"));
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_bmc_is_transient_and_not_asked_twice() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::error(400, "iLO.2.13.InvalidOperationForSystemState", "in POST")]);
    let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
    assert!(error.is_transient() && !error.maybe_applied(), "{error}");
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reset_whose_fate_is_unknown_is_never_repeated() {
    let unknown = [
        Reply::times_out(),
        Reply::fails(TransportError::maybe_sent(TransportErrorKind::Lost, "reset")),
        Reply::status(500),
        Reply::status(502),
    ];
    for reply in unknown {
        let fake = Fake::new();
        let (bmc, system) = found(&fake).await;
        fake.on(Method::POST, RESET, [reply]);
        let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
        assert!(error.maybe_applied() && error.is_transient(), "{error}");
        assert!(error.to_string().contains("read the state"), "{error}");
        assert_eq!(fake.mutations().len(), 1);
    }
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(
        Method::POST,
        RESET,
        [Reply::fails(TransportError::not_sent(TransportErrorKind::Connect, "refused"))],
    );
    assert!(!bmc.reset(&system, ResetType::On).await.unwrap_err().maybe_applied());
}

#[tokio::test(start_paused = true)]
async fn force_on_stands_in_for_a_missing_on_and_nothing_else_is_substituted() {
    let fake = Fake::new();
    fake.merge(
        SYSTEM,
        json!({ "PowerState": "Off", "Actions": { "#ComputerSystem.Reset": {
            "ResetType@Redfish.AllowableValues": ["ForceOn", "ForceOff"],
        }}}),
    );
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::status(204).effect(SYSTEM, json!({ "PowerState": "On" }))]);
    assert!(bmc.reset(&system, ResetType::On).await.unwrap().confirmed);
    assert_eq!(fake.mutations()[0].body, Some(json!({ "ResetType": "ForceOn" })));
    let error = bmc.reset(&system, ResetType::GracefulShutdown).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotSupported { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_sent_and_never_called_confirmed() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::status(200)]);
    let done = bmc.reset(&system, ResetType::ForceRestart).await.unwrap();
    assert!(done.changed && !done.confirmed);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_back_does_not_hide_that_the_reset_went_out() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::status(204)]);
    fake.on(Method::GET, SYSTEM, [Reply::status(404)]);
    let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
    assert!(error.maybe_applied());
}
