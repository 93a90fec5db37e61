//! Faults: each effect does what it says, as often as it says, to whom it says.

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
use crate::{ConnectionCut, Effect, Fault, Operation, Power, ResetType, SimBmcServer, When};

#[tokio::test]
async fn a_fault_strikes_as_often_as_it_says_and_is_gone() {
    let base = media_server().await;
    let twin = rig(config()).twin;
    let map = Map::of(&twin).await;
    let busy = Effect::Status {
        status: 400,
        message_id: "IDRAC.2.8.SYS518".to_owned(),
        message: "iDRAC is not ready.".to_owned(),
    };
    twin.inject(Fault::once(When::InsertInto("CD2".to_owned()), busy).times(2).after(1));
    let mut told = Vec::new();
    for slot in [0, 1, 1, 1, 1] {
        let (status, body) = map.insert(&twin, slot, &format!("{base}/boot.iso")).await;
        if status == StatusCode::BAD_REQUEST {
            assert_eq!(message_id(&body), "IDRAC.2.8.SYS518");
        }
        told.push(status.as_u16());
    }
    // The first into CD2 passes the rule and is carried out; after the two refusals the slot is found occupied.
    assert_eq!(told, [204, 204, 400, 400, 409]);
    assert!(twin.faults().is_empty());
}

#[tokio::test]
async fn an_accepted_command_can_do_nothing() {
    let base = media_server().await;
    let twin = rig(config()).twin;
    let map = Map::of(&twin).await;
    for when in [When::Insert, When::PatchBoot, When::ResetTo(ResetType::On)] {
        twin.inject(Fault::once(when, Effect::AcceptButIgnore));
    }
    assert_eq!(map.insert(&twin, 0, &format!("{base}/boot.iso")).await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.boot_once(&twin, "Cd").await.0, StatusCode::NO_CONTENT);
    assert_eq!(map.reset(&twin, "On").await.0, StatusCode::NO_CONTENT);
    let state = twin.snapshot();
    assert_eq!((state.power, state.boot.target.as_str()), (Power::Off, "None"));
    assert!(state.slots[0].image.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_command_can_be_carried_out_and_never_be_answered() {
    let twin = rig(config()).twin;
    let map = Map::of(&twin).await;
    twin.inject(Fault::once(When::Reset, Effect::ApplyButTimeout));
    let on = twin.handle(request(Method::POST, &map.reset, Some(json!({ "ResetType": "On" }))));
    let answer = tokio::time::timeout(Duration::from_secs(30), on).await;
    assert!(answer.is_err(), "the client gave up");
    assert_eq!((twin.snapshot().power, twin.power_ons()), (Power::On, 1));
    assert_eq!(operations(&twin), [(Operation::Reset, None)]);

    twin.inject(Fault::once(When::Reset, Effect::ApplyButDrop));
    let off = twin.handle(request(Method::POST, &map.reset, Some(json!({ "ResetType": "ForceOff" }))));
    assert_eq!(off.await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(twin.snapshot().power, Power::Off);
}

#[tokio::test(start_paused = true)]
async fn a_mutation_is_finished_although_the_client_left() {
    let twin = rig(config()).twin;
    let map = Map::of(&twin).await;
    twin.inject(Fault::once(When::Reset, Effect::Delay(Duration::from_secs(60))));
    let on = twin.handle(request(Method::POST, &map.reset, Some(json!({ "ResetType": "On" }))));
    assert!(tokio::time::timeout(Duration::from_secs(10), on).await.is_err());
    assert_eq!(twin.snapshot().power, Power::Off);
    twin.wait_for(|state| state.power == Power::On).await;
}

#[tokio::test(start_paused = true)]
async fn delay_hang_and_drop_without_an_action() {
    let twin = rig(config()).twin;
    let root = || request(Method::GET, "/redfish/v1/", None);
    let started = tokio::time::Instant::now();
    twin.inject(Fault::once(When::Read, Effect::Delay(Duration::from_secs(7))));
    assert_eq!(send(&twin, root()).await.status(), StatusCode::OK);
    assert_eq!(started.elapsed().as_secs(), 7);
    twin.inject(Fault::once(When::Read, Effect::Hang));
    assert_eq!(twin.handle(root()).await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(started.elapsed().as_secs(), 607);
    twin.inject(Fault::once(When::Read, Effect::Drop));
    assert_eq!(twin.handle(root()).await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(send(&twin, root()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn rate_limits_wrong_serials_and_strange_bodies() {
    let twin = rig(config()).twin;
    let map = Map::of(&twin).await;
    twin.inject(Fault::once(When::Anything, Effect::RateLimit { retry_after_seconds: Some(3) }));
    let limited = send(&twin, request(Method::GET, &map.system, None)).await;
    assert_eq!(
        (limited.status().as_u16(), &limited.headers()[header::RETRY_AFTER]),
        (429, &"3".parse().unwrap())
    );

    let of_system = When::Request { method: "GET".to_owned(), path_ends_with: map.system.clone() };
    twin.inject(Fault::once(of_system, Effect::WrongSerial("OTHER".to_owned())));
    let (_, system) = ask(&twin, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/SerialNumber"), "OTHER");
    let (_, system) = ask(&twin, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/SerialNumber"), SERIAL);

    let page =
        Effect::Raw { status: 200, content_type: "text/html".to_owned(), body: "<html>login".to_owned() };
    twin.inject(Fault::once(When::Read, page));
    let html = send(&twin, request(Method::GET, &map.system, None)).await;
    assert_eq!(html.headers()[header::CONTENT_TYPE], "text/html");
    twin.inject(Fault::once(When::Read, Effect::Truncate(20)));
    let short = send(&twin, request(Method::GET, &map.system, None)).await;
    assert_eq!(short.body().len(), 20);
    assert!(serde_json::from_slice::<Value>(short.body()).is_err());

    twin.inject(Fault::always(When::Anything, Effect::Drop));
    twin.clear_faults();
    assert_eq!(send(&twin, request(Method::GET, &map.system, None)).await.status(), StatusCode::OK);
}

async fn login_over(
    server: &SimBmcServer,
    client: &reqwest::Client,
) -> Result<reqwest::Response, reqwest::Error> {
    let url = format!("{}/redfish/v1/SessionService/Sessions", server.url());
    soon(client.post(url).json(&json!({ "UserName": USER, "Password": PASSWORD })).send()).await
}

#[tokio::test]
async fn on_a_socket_a_dropped_request_has_no_answer_and_the_next_one_has() {
    let twin = rig(config()).twin;
    let server = twin.serve_on_loopback().await.unwrap();
    let client = client();
    twin.inject(Fault::once(When::Login, Effect::Drop));
    assert!(login_over(&server, &client).await.is_err());
    assert_eq!(twin.snapshot().logins, 0);
    assert_eq!(login_over(&server, &client).await.unwrap().status(), 201);
}

#[tokio::test]
async fn on_a_socket_a_client_that_hangs_up_ends_its_request() {
    let twin = rig(config()).twin;
    let server = twin.serve_on_loopback().await.unwrap();
    let client = client();
    twin.inject(Fault::once(When::Read, Effect::Hang));
    let request = client.get(format!("{}/redfish/v1/", server.url())).send();
    tokio::select! {
        _ = request => panic!("there is no answer"),
        _ = twin.wait_for(|state| state.in_flight == 1) => {}
    }
    soon(twin.wait_for(|state| state.in_flight == 0)).await;
    assert_eq!(twin.journal().len(), 1);
    soon(server.stop()).await;
}

#[test]
fn faults_are_data() {
    let text = r#"{ "when": { "insert_into": "CD2" }, "times": 3, "effect": { "rate_limit": { "retry_after_seconds": 1 } } }"#;
    let fault: Fault = serde_json::from_str(text).unwrap();
    let expected =
        Fault::once(When::InsertInto("CD2".to_owned()), Effect::RateLimit { retry_after_seconds: Some(1) });
    assert_eq!(fault, expected.times(3));
}
