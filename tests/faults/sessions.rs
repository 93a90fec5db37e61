//! Sessions, accounts, licences, preconditions.

use lab_bmc::{EtagKind, EtagPolicy, Fault, FaultTrigger, IfMatchRule, LoginOem};

use super::{SYSTEM, get, run_job, says};

recovers! {
    no_session_free_for_a_moment(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Login, says(503, "IDRAC.2.8.RAC0218")));
    }
    no_session_free_and_the_bmc_forbids_instead(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::Login, says(403, "Base.1.18.SessionLimitExceeded")));
    }
    a_login_that_wants_a_domain(bmc) {
        bmc.session.login_oem = Some(LoginOem {
            vendor: "Contoso".to_owned(),
            property: "Domain".to_owned(),
            value: "LOCAL".to_owned(),
        });
    }
    a_login_that_names_the_session_in_its_body_only(bmc) {
        bmc.session.location = false;
    }
    a_bmc_without_sessions(bmc) {
        bmc.session.offered = false;
    }
    a_weak_etag_that_only_matches_as_a_strong_one(bmc) {
        bmc.etag = EtagPolicy { kind: EtagKind::WeakMatchesStrong, if_match: IfMatchRule::Required };
    }
    a_weak_etag_that_matches_itself(bmc) {
        bmc.etag = EtagPolicy { kind: EtagKind::Weak, if_match: IfMatchRule::Required };
    }
    an_etag_that_is_only_accepted_as_a_star(bmc) {
        bmc.etag = EtagPolicy { kind: EtagKind::Strong, if_match: IfMatchRule::OnlyStar };
    }
    an_empty_etag(bmc) {
        bmc.etag = EtagPolicy { kind: EtagKind::Empty, if_match: IfMatchRule::Optional };
    }
    a_missing_etag_refused_with_412(bmc) {
        bmc.etag = EtagPolicy { kind: EtagKind::Strong, if_match: IfMatchRule::RequiredSays412 };
    }
    a_precondition_that_is_required(bmc) {
        bmc.etag = EtagPolicy { kind: EtagKind::Strong, if_match: IfMatchRule::Required };
    }
    a_resource_that_changed_between_read_and_write(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, says(412, "Base.1.18.PreconditionFailed")));
    }
    a_precondition_required_unexpectedly(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, says(428, "Base.1.18.PreconditionRequired")));
    }
}

fails! {
    a_password_that_must_be_changed(bmc) {
        bmc.session.password_change_required = true;
    } => "redfish.discover", "input", ["the password must be changed first"];
    a_missing_licence_at_the_insert(bmc) {
        bmc.media.licence_missing = Some("iLO.2.14.LicenseKeyRequired".to_owned());
    } => "redfish.mount.maintenance", "unsupported", ["licence missing"];
    a_missing_licence_at_the_login(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Login, says(403, "SMC.1.0.OemLicenseNotPassed")));
    } => "redfish.discover", "unsupported", ["licence missing"];
    a_missing_privilege(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Insert, says(403, "Base.1.18.InsufficientPrivilege")));
    } => "redfish.mount.maintenance", "input", ["the account lacks a privilege"];
    a_change_that_is_never_authorized(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Insert, says(401, "Base.1.18.NoValidSession")));
    } => "redfish.mount.maintenance", "input", ["not authorized"];
    a_read_that_is_never_authorized(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), says(401, "Base.1.18.NoValidSession")));
    } => "redfish.discover", "input", ["not authorized"];
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_all_taken() {
    let ended = run_job(|bmc| bmc.session.limit = 0).await;
    assert_eq!(ended.machine.logins, 0, "Basic authentication needs no session");
    ended.assert_succeeded().await;
}

/// The BMC says that the session has ended, which is false: the client closes the session and logs in again.
async fn ended_before(when: FaultTrigger) {
    let session_ended = Fault::once(when, says(401, "Base.1.18.NoValidSession"));
    let ended = run_job(|bmc| bmc.faults.push(session_ended)).await;
    assert_eq!(ended.machine.logins, 2, "{}", ended.event_log);
    ended.assert_succeeded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_before_a_read() {
    ended_before(get("/CD1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_before_a_change() {
    ended_before(FaultTrigger::PatchBoot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_before_an_insert() {
    ended_before(FaultTrigger::Insert).await;
}
