//! Faults: each effect applies to the selected requests, as often as configured.

use std::time::Duration;

use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::{
    kit::{
        Map, PASSWORD, SERIAL, USER, ask, config, media_server, message_id, operations, request, rig, send,
        soon, text,
    },
    protocol::client,
};
use crate::{ConnectionCut, Fault, FaultEffect, FaultTrigger, Power, RequestKind, ResetType, SimBmcServer};

#[tokio::test]
async fn a_fault_applies_as_often_as_configured_and_is_removed() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    let busy = FaultEffect::Status {
        status: 400,
        message_id: "IDRAC.2.8.SYS518".to_owned(),
        message: "iDRAC is not ready.".to_owned(),
    };
    bmc.inject(Fault::once(FaultTrigger::InsertInto("CD2".to_owned()), busy).times(2).after(1));
    let mut statuses = Vec::new();
    for slot in [0, 1, 1, 1, 1] {
        let (status, body) = map.insert(&bmc, slot, &format!("{base}/boot.iso")).await;
        if status == StatusCode::BAD_REQUEST {
            assert_eq!(message_id(&body), "IDRAC.2.8.SYS518");
        }
        statuses.push(status.as_u16());
    }
    // The first insert into CD2 passes the fault and is carried out; after the two refusals the slot is occupied.
    assert_eq!(statuses, [204, 204, 400, 400, 409]);
    assert!(bmc.faults().is_empty());
}

#[tokio::test]
async fn an_accepted_command_can_do_nothing() {
    let base = media_server().await;
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    for when in [FaultTrigger::Insert, FaultTrigger::PatchBoot, FaultTrigger::ResetTo(ResetType::On)] {
        bmc.inject(Fault::once(when, FaultEffect::AcceptButIgnore));
    }
    assert_eq!(map.insert(&bmc, 0, &format!("{base}/boot.iso")).await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.boot_once(&bmc, "Cd").await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.reset(&bmc, "On").await.0, StatusCode::NO_CONTENT);
    let state = bmc.snapshot();
    assert_eq!((state.power, state.boot.target.as_str()), (Power::Off, "None"));
    assert!(state.slots[0].image.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_can_be_carried_out_without_a_response() {
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    bmc.inject(Fault::once(FaultTrigger::Reset, FaultEffect::ApplyButTimeout));
    let on = bmc.handle(request(Method::POST, &map.reset, Some(json!({ "ResetType": "On" }))));
    let response = tokio::time::timeout(Duration::from_secs(30), on).await;
    assert!(response.is_err(), "the client gave up");
    assert_eq!((bmc.snapshot().power, bmc.power_ons()), (Power::On, 1));
    assert_eq!(operations(&bmc), [(RequestKind::Reset, None)]);

    bmc.inject(Fault::once(FaultTrigger::Reset, FaultEffect::ApplyButDrop));
    let off = bmc.handle(request(Method::POST, &map.reset, Some(json!({ "ResetType": "ForceOff" }))));
    assert_eq!(off.await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(bmc.snapshot().power, Power::Off);
}

#[tokio::test(start_paused = true)]
async fn a_mutation_is_finished_after_the_client_left() {
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    bmc.inject(Fault::once(FaultTrigger::Reset, FaultEffect::Delay(Duration::from_secs(60))));
    let on = bmc.handle(request(Method::POST, &map.reset, Some(json!({ "ResetType": "On" }))));
    assert!(tokio::time::timeout(Duration::from_secs(10), on).await.is_err());
    assert_eq!(bmc.snapshot().power, Power::Off);
    bmc.wait_for(|state| state.power == Power::On).await;
}

#[tokio::test(start_paused = true)]
async fn delay_hang_and_drop_without_an_action() {
    let bmc = rig(config()).bmc;
    let root = || request(Method::GET, "/redfish/v1/", None);
    let started = tokio::time::Instant::now();
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Delay(Duration::from_secs(7))));
    assert_eq!(send(&bmc, root()).await.status(), StatusCode::OK);
    assert_eq!(started.elapsed().as_secs(), 7);
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Hang));
    assert_eq!(bmc.handle(root()).await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(started.elapsed().as_secs(), 607);
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Drop));
    assert_eq!(bmc.handle(root()).await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(send(&bmc, root()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn rate_limits_wrong_serials_and_strange_bodies() {
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    bmc.inject(Fault::once(FaultTrigger::Anything, FaultEffect::RateLimit { retry_after_seconds: Some(3) }));
    let limited = send(&bmc, request(Method::GET, &map.system, None)).await;
    assert_eq!(
        (limited.status().as_u16(), &limited.headers()[header::RETRY_AFTER]),
        (429, &"3".parse().unwrap())
    );

    let of_system = FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: map.system.clone() };
    bmc.inject(Fault::once(of_system, FaultEffect::WrongSerial("OTHER".to_owned())));
    let (_, system) = ask(&bmc, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/SerialNumber"), "OTHER");
    let (_, system) = ask(&bmc, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/SerialNumber"), SERIAL);

    let page = FaultEffect::Raw {
        status: 200,
        content_type: "text/html".to_owned(),
        body: "<html>login".to_owned(),
    };
    bmc.inject(Fault::once(FaultTrigger::Read, page));
    let html = send(&bmc, request(Method::GET, &map.system, None)).await;
    assert_eq!(html.headers()[header::CONTENT_TYPE], "text/html");
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Truncate(20)));
    let short = send(&bmc, request(Method::GET, &map.system, None)).await;
    assert_eq!(short.body().len(), 20);
    assert!(serde_json::from_slice::<Value>(short.body()).is_err());

    bmc.inject(Fault::always(FaultTrigger::Anything, FaultEffect::Drop));
    bmc.clear_faults();
    assert_eq!(send(&bmc, request(Method::GET, &map.system, None)).await.status(), StatusCode::OK);
}

async fn login_over(
    server: &SimBmcServer,
    client: &reqwest::Client,
) -> Result<reqwest::Response, reqwest::Error> {
    let url = format!("{}/redfish/v1/SessionService/Sessions", server.url());
    soon(client.post(url).json(&json!({ "UserName": USER, "Password": PASSWORD })).send()).await
}

#[tokio::test]
async fn on_a_socket_a_dropped_request_gets_no_response_and_the_next_one_does() {
    let bmc = rig(config()).bmc;
    let server = bmc.serve_on_loopback().await.unwrap();
    let client = client();
    bmc.inject(Fault::once(FaultTrigger::Login, FaultEffect::Drop));
    assert!(login_over(&server, &client).await.is_err());
    assert_eq!(bmc.snapshot().logins, 0);
    assert_eq!(login_over(&server, &client).await.unwrap().status(), 201);
}

#[tokio::test]
async fn on_a_socket_a_client_that_hangs_up_ends_its_request() {
    let bmc = rig(config()).bmc;
    let server = bmc.serve_on_loopback().await.unwrap();
    let client = client();
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Hang));
    let request = client.get(format!("{}/redfish/v1/", server.url())).send();
    tokio::select! {
        _ = request => panic!("the request got a response"),
        _ = bmc.wait_for(|state| state.in_flight == 1) => {}
    }
    soon(bmc.wait_for(|state| state.in_flight == 0)).await;
    assert_eq!(bmc.journal().len(), 1);
    soon(server.stop()).await;
}

#[test]
fn faults_are_data() {
    let text = r#"{ "when": { "insert_into": "CD2" }, "times": 3, "effect": { "rate_limit": { "retry_after_seconds": 1 } } }"#;
    let fault: Fault = serde_json::from_str(text).unwrap();
    let expected = Fault::once(
        FaultTrigger::InsertInto("CD2".to_owned()),
        FaultEffect::RateLimit { retry_after_seconds: Some(1) },
    );
    assert_eq!(fault, expected.times(3));
}
