//! Sessions: login, logout, limit, timeout, lock-out.

use std::time::Duration;

use http::{Method, StatusCode, header};
use serde_json::json;

use super::kit::{PASSWORD, SERIAL, USER, ask, basic, config, message_id, request, rig, send, text};
use crate::{AlreadyThere, SimBmc};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

async fn login(bmc: &SimBmc, password: &str) -> http::Response<bytes::Bytes> {
    let mut login = request(Method::POST, SESSIONS, Some(json!({ "UserName": USER, "Password": password })));
    login.headers_mut().remove(header::AUTHORIZATION);
    send(bmc, login).await
}

async fn with_token(bmc: &SimBmc, method: Method, path: &str, token: &str) -> StatusCode {
    let mut request = request(method, path, None);
    request.headers_mut().remove(header::AUTHORIZATION);
    request.headers_mut().insert("x-auth-token", token.parse().unwrap());
    send(bmc, request).await.status()
}

fn header_of(response: &http::Response<bytes::Bytes>, name: &str) -> String {
    response.headers()[name].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_opened_used_and_closed() {
    let bmc = rig(config()).bmc;
    let response = login(&bmc, PASSWORD).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    let (token, location) = (header_of(&response, "x-auth-token"), header_of(&response, "location"));
    assert_eq!(with_token(&bmc, Method::GET, "/redfish/v1/Systems", &token).await, StatusCode::OK);
    assert_eq!(bmc.snapshot().open_sessions, 1);
    assert_eq!(with_token(&bmc, Method::DELETE, &location, &token).await, StatusCode::NO_CONTENT);
    assert_eq!(bmc.snapshot().open_sessions, 0);
    assert_eq!(with_token(&bmc, Method::GET, "/redfish/v1/Systems", &token).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn one_session_more_than_the_limit_is_refused_with_503() {
    let mut config = config();
    config.session.limit = 2;
    let bmc = rig(config).bmc;
    assert_eq!(login(&bmc, PASSWORD).await.status(), StatusCode::CREATED);
    assert_eq!(login(&bmc, PASSWORD).await.status(), StatusCode::CREATED);
    let refused = login(&bmc, PASSWORD).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body = serde_json::from_slice(refused.body()).unwrap();
    assert!(message_id(&body).ends_with("SessionLimitExceeded"));
}

#[tokio::test(start_paused = true)]
async fn an_unused_session_times_out_and_a_used_one_does_not() {
    let mut config = config();
    config.session.timeout = Duration::from_secs(300);
    let bmc = rig(config).bmc;
    let token = header_of(&login(&bmc, PASSWORD).await, "x-auth-token");
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(with_token(&bmc, Method::GET, "/redfish/v1/Systems", &token).await, StatusCode::OK);
    }
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(with_token(&bmc, Method::GET, "/redfish/v1/Systems", &token).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn wrong_passwords_lock_the_account_for_a_while() {
    let bmc = rig(config()).bmc;
    for _ in 0..5 {
        assert_eq!(login(&bmc, "wrong").await.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(login(&bmc, PASSWORD).await.status(), StatusCode::UNAUTHORIZED);
    tokio::time::advance(Duration::from_secs(301)).await;
    assert_eq!(login(&bmc, PASSWORD).await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn only_the_service_root_and_the_login_need_no_credentials() {
    let bmc = rig(config()).bmc;
    for (path, expected) in [
        ("/redfish", StatusCode::OK),
        ("/redfish/v1/", StatusCode::OK),
        ("/redfish/v1", StatusCode::OK),
        ("/redfish/v1/Systems", StatusCode::UNAUTHORIZED),
        (SESSIONS, StatusCode::UNAUTHORIZED),
        ("/redfish/v1/Nonsense", StatusCode::UNAUTHORIZED),
    ] {
        let mut request = request(Method::GET, path, None);
        request.headers_mut().remove(header::AUTHORIZATION);
        assert_eq!(send(&bmc, request).await.status(), expected, "{path}");
    }
    let mut wrong = request(Method::GET, "/redfish/v1/Systems", None);
    wrong.headers_mut().insert(header::AUTHORIZATION, basic(USER, "wrong"));
    let response = send(&bmc, wrong).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
}

#[tokio::test]
async fn a_bmc_restart_loses_sessions_and_the_override_and_keeps_the_host_running() {
    let mut config = config();
    config.starts_on = true;
    config.power.already_there = AlreadyThere::NoOp;
    let bmc = rig(config).bmc;
    let token = header_of(&login(&bmc, PASSWORD).await, "x-auth-token");
    let map = super::kit::Map::of(&bmc).await;
    map.boot_once(&bmc, "Pxe").await;
    bmc.reset_bmc();
    assert_eq!(with_token(&bmc, Method::GET, "/redfish/v1/Systems", &token).await, StatusCode::UNAUTHORIZED);
    let (_, system) = ask(&bmc, Method::GET, &map.system, None).await;
    assert_eq!(text(&system, "/Boot/BootSourceOverrideTarget"), "None");
    assert_eq!(text(&system, "/PowerState"), "On");
    assert_eq!(text(&system, "/SerialNumber"), SERIAL);
}
