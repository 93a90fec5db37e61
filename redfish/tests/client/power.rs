//! Power: no unneeded request, read-back, and the meaning of refusals.

use http::Method;
use redfish::{
    Bmc, BootTarget, ErrorKind, InsertOptions, PowerState, ResetType, SystemInfo, SystemSelector,
    TransportError, TransportErrorKind,
};
use serde_json::json;

use crate::fake::{Fake, INSERT, RESET, Reply, SLOT, SYSTEM, URL, client};

async fn found(fake: &std::sync::Arc<Fake>) -> (Bmc, SystemInfo) {
    let bmc = client(fake);
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    (bmc, system)
}

#[tokio::test(start_paused = true)]
async fn no_reset_is_sent_to_a_host_in_the_wanted_state() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    let done = bmc.reset(&system, ResetType::ForceOff).await.unwrap();
    assert!(!done.changed && done.confirmed && done.observed == PowerState::Off);
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_in_transition_is_accepted_but_not_confirmed() {
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
async fn a_conflict_in_the_wanted_state_is_success() {
    for status in [400, 409] {
        let fake = Fake::new();
        let (bmc, system) = found(&fake).await;
        fake.on(Method::POST, RESET, [Reply::status(status).effect(SYSTEM, json!({ "PowerState": "On" }))]);
        let done = bmc.reset(&system, ResetType::On).await.unwrap();
        assert!(!done.changed && done.confirmed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_without_effect_is_reported_with_the_message_of_the_bmc() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::error(409, "Base.1.12.ActionParameterValueConflict", "not yet")]);
    let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
    assert!(matches!(&error.kind, ErrorKind::Refused { status: 409, message, .. } if message == "not yet"));
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_bmc_is_transient_and_the_reset_is_not_repeated() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::error(400, "iLO.2.13.InvalidOperationForSystemState", "in POST")]);
    let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
    assert!(error.is_transient() && !error.maybe_applied(), "{error}");
    assert_eq!(fake.mutations().len(), 1);
}

/// The message says more than the status: a BMC that is not ready has not begun the request.
#[tokio::test(start_paused = true)]
async fn a_busy_message_with_a_server_error_is_busy_and_nothing_was_carried_out() {
    for (status, id, code, open) in [
        (500, "IDRAC.2.8.SYS518", "busy", false),
        (500, "Base.1.12.ServiceTemporarilyUnavailable", "busy", false),
        (502, "Base.1.12.ResourceInUse", "busy", false),
        (500, "Base.1.12.OperationTimeout", "server", true),
        (500, "Base.1.12.InternalError", "server", true),
    ] {
        let fake = Fake::new();
        let (bmc, system) = found(&fake).await;
        fake.on(Method::POST, RESET, [Reply::error(status, id, "not ready")]);
        let reset = bmc.reset(&system, ResetType::On).await.unwrap_err();
        fake.on(Method::POST, INSERT, [Reply::error(status, id, "not ready")]);
        let insert = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
        for error in [reset, insert] {
            assert_eq!((error.code(), error.maybe_applied()), (code, open), "{id}: {error}");
            assert!(error.is_transient());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_with_an_unknown_outcome_is_never_repeated() {
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
async fn force_on_replaces_a_missing_on_and_nothing_else_is_replaced() {
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
async fn a_restart_is_sent_and_never_confirmed() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::status(200)]);
    let done = bmc.reset(&system, ResetType::ForceRestart).await.unwrap();
    assert!(done.changed && !done.confirmed);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_back_reports_that_the_reset_was_sent() {
    let fake = Fake::new();
    let (bmc, system) = found(&fake).await;
    fake.on(Method::POST, RESET, [Reply::status(204)]);
    fake.on(Method::GET, SYSTEM, [Reply::status(404)]);
    let error = bmc.reset(&system, ResetType::On).await.unwrap_err();
    assert!(error.maybe_applied());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_said_it_is_on_is_shut_down_without_a_read_before_and_read_back() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "PowerState": "On" }));
    let (bmc, system) = found(&fake).await;
    assert_eq!(bmc.power_state(&system).await.unwrap(), PowerState::On);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let before = fake.sent(Method::GET, SYSTEM).len();
    fake.on(Method::POST, RESET, [Reply::status(204).effect(SYSTEM, json!({ "PowerState": "Off" }))]);
    let done = bmc.shut_down_running(&system).await.unwrap();
    assert!(done.changed && done.confirmed);
    assert_eq!(fake.sent(Method::GET, SYSTEM).len(), before + 1, "the read-back only");

    // It went off after its message, and the BMC refuses the request: it is off, which was wanted.
    fake.on(Method::POST, RESET, [Reply::text(409, "the host is off")]);
    let done = bmc.shut_down_running(&system).await.unwrap();
    assert!(!done.changed && done.confirmed && done.observed == PowerState::Off);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_took_the_address_of_the_discovered_one_gets_no_change() {
    let fake = Fake::new();
    fake.merge(SYSTEM, json!({ "PowerState": "On", "SerialNumber": "SER1", "UUID": "aa-1" }));
    let (bmc, system) = found(&fake).await;
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    // The serial number of the chassis is shown late on some BMCs: the same UUID is the same machine.
    fake.merge(SYSTEM, json!({ "SerialNumber": "chassis" }));
    assert_eq!(bmc.power_state(&system).await.unwrap(), PowerState::On);

    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    fake.merge(SYSTEM, json!({ "SerialNumber": "SER2", "UUID": "bb-2" }));
    tokio::time::advance(std::time::Duration::from_secs(300)).await;
    let refused = bmc.shut_down_running(&system).await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::OtherMachine { .. }));
    let refused = bmc.reset(&system, ResetType::GracefulShutdown).await.unwrap_err();
    assert!(
        matches!(&refused.kind, ErrorKind::OtherMachine { known, shown } if known == "SER1" && shown == "SER2")
    );
    assert!(!refused.is_transient() && !refused.maybe_applied());
    assert!(matches!(bmc.host_status(&system).await.unwrap_err().kind, ErrorKind::OtherMachine { .. }));
    let boot = bmc.set_boot_once(&system, &[BootTarget::Cd], None).await.unwrap_err();
    assert!(matches!(boot.kind, ErrorKind::OtherMachine { .. }));
    assert!(fake.mutations().is_empty());
}
