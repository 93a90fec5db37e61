//! The protocol: discovery, strictness, ETags, error bodies.

use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::kit::{Map, ask, config, message_id, request, rig, send, soon, text};
use crate::{IfMatchRule, SimBmc, SlotTree};

/// Every link of every resource resolves, in every slot tree.
#[tokio::test]
async fn every_link_resolves() {
    for tree in [SlotTree::Manager, SlotTree::System, SlotTree::Both] {
        let mut config = config();
        config.slot_tree = tree;
        let bmc = rig(config).bmc;
        let (mut open, mut seen) = (vec!["/redfish/v1/".to_owned()], Vec::new());
        while let Some(path) = open.pop() {
            if seen.contains(&path) {
                continue;
            }
            let (status, body) = ask(&bmc, Method::GET, &path, None).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            assert_eq!(text(&body, "/@odata.id"), path);
            links(&body, &mut open);
            seen.push(path);
        }
        let slots = seen.iter().filter(|path| path.contains("/VirtualMedia/")).count();
        assert_eq!(slots, if tree == SlotTree::Both { 6 } else { 3 }, "{seen:?}");
    }
}

fn links(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match value {
                    Value::String(path) if name == "@odata.id" => found.push(path.clone()),
                    value => links(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| links(value, found)),
        _ => {}
    }
}

async fn refused(bmc: &SimBmc, method: Method, path: &str, body: Option<Value>) -> (u16, String) {
    let (status, body) = ask(bmc, method, path, body).await;
    (status.as_u16(), message_id(&body).rsplit('.').next().unwrap().to_owned())
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_its_message_id() {
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    let insert = format!("{}/Actions/VirtualMedia.InsertMedia", map.slots[0]);
    let image = "http://127.0.0.1:9/t/boot.iso";
    let cases = [
        (Method::GET, "/redfish/v1/Systems/1", None, 404, "ResourceMissingAtURI"),
        (Method::DELETE, map.system.as_str(), None, 405, "OperationNotAllowed"),
        (Method::GET, map.reset.as_str(), None, 405, "OperationNotAllowed"),
        (Method::PATCH, map.slots[0].as_str(), Some(json!({ "Image": image })), 405, "OperationNotAllowed"),
        (Method::GET, "/redfish/v1/Systems?$expand=.", None, 501, "QueryNotSupported"),
        (Method::POST, map.reset.as_str(), Some(json!({})), 400, "ActionParameterMissing"),
        (
            Method::POST,
            map.reset.as_str(),
            Some(json!({ "ResetType": 1 })),
            400,
            "ActionParameterValueTypeError",
        ),
        (
            Method::POST,
            map.reset.as_str(),
            Some(json!({ "ResetType": "Nmi" })),
            400,
            "ActionParameterValueNotInList",
        ),
        (Method::POST, map.reset.as_str(), Some(json!({ "Reset": "On" })), 400, "ActionParameterUnknown"),
        (Method::PATCH, map.system.as_str(), Some(json!({ "PowerState": "On" })), 400, "PropertyNotWritable"),
        (Method::PATCH, map.system.as_str(), Some(json!({ "Colour": "red" })), 400, "PropertyUnknown"),
        (Method::PATCH, map.system.as_str(), Some(json!({ "Boot": { "X": "y" } })), 400, "PropertyUnknown"),
        (
            Method::PATCH,
            map.system.as_str(),
            Some(json!({ "Boot": { "BootSourceOverrideTarget": "Moon" } })),
            400,
            "PropertyValueNotInList",
        ),
        (Method::POST, insert.as_str(), Some(json!({ "image": image })), 400, "ActionParameterUnknown"),
        (Method::POST, insert.as_str(), Some(json!({})), 400, "ActionParameterMissing"),
        (
            Method::POST,
            insert.as_str(),
            Some(json!({ "Image": image, "Inserted": false })),
            400,
            "ActionParameterValueNotInList",
        ),
        (
            Method::POST,
            insert.as_str(),
            Some(json!({ "Image": image, "TransferProtocolType": "NFS" })),
            400,
            "ActionParameterValueNotInList",
        ),
    ];
    for (method, path, body, status, id) in cases {
        let case = format!("{method} {path} {body:?}");
        assert_eq!(refused(&bmc, method, path, body).await, (status, id.to_owned()), "{case}");
    }
    assert_eq!(bmc.snapshot().power_ons, 0);
}

#[tokio::test]
async fn a_body_must_be_declared_and_be_json() {
    let bmc = rig(config()).bmc;
    let map = Map::of(&bmc).await;
    let mut untyped = request(Method::POST, &map.reset, Some(json!({ "ResetType": "On" })));
    untyped.headers_mut().remove(header::CONTENT_TYPE);
    assert_eq!(send(&bmc, untyped).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let mut broken = request(Method::POST, &map.reset, Some(json!({})));
    *broken.body_mut() = "{\"ResetType\":".into();
    assert_eq!(send(&bmc, broken).await.status(), StatusCode::BAD_REQUEST);
    let mut huge = request(Method::POST, &map.reset, Some(json!({})));
    *huge.body_mut() = vec![b' '; 100_000].into();
    assert_eq!(send(&bmc, huge).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(bmc.snapshot().power_ons, 0);
}

#[tokio::test]
async fn a_stale_etag_is_refused_and_the_current_one_taken() {
    let mut config = config();
    config.etag.if_match = IfMatchRule::Required;
    let bmc = rig(config).bmc;
    let map = Map::of(&bmc).await;
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    let etag = send(&bmc, request(Method::GET, &map.system, None)).await.headers()[header::ETAG].clone();
    let patch = |tag: Option<http::HeaderValue>| {
        let mut patch = request(Method::PATCH, &map.system, Some(boot.clone()));
        if let Some(tag) = tag {
            patch.headers_mut().insert(header::IF_MATCH, tag);
        }
        send(&bmc, patch)
    };
    assert_eq!(patch(None).await.status(), StatusCode::PRECONDITION_REQUIRED);
    assert_eq!(patch(Some(etag.clone())).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(patch(Some(etag)).await.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(patch(Some("*".parse().unwrap())).await.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_simulated_bmc_serves_a_socket_and_stops() {
    let bmc = rig(config()).bmc;
    let server = bmc.serve_on_loopback().await.unwrap();
    let client = client();
    let url = format!("{}/redfish/v1/", server.url());
    let response = soon(client.get(&url).send()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["odata-version"], "4.0");
    let head = soon(client.head(&url).send()).await.unwrap();
    assert_eq!(head.status(), 200);
    assert!(soon(head.bytes()).await.unwrap().is_empty());
    bmc.set_reachable(false);
    assert!(soon(client.get(&url).send()).await.is_err());
    bmc.set_reachable(true);
    // The listener comes back after some time.
    soon(async { while tokio::net::TcpStream::connect(server.address()).await.is_err() {} }).await;
    assert_eq!(soon(client.get(&url).send()).await.unwrap().status(), 200);
    soon(server.stop()).await;
    assert!(soon(client.get(&url).send()).await.unwrap_err().is_connect());
}

#[tokio::test]
async fn the_router_responds_like_the_socket() {
    use tower::ServiceExt as _;
    let bmc = rig(config()).bmc;
    let request = http::Request::get("/redfish/v1/").body(axum::body::Body::empty()).unwrap();
    let response = bmc.router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
    let root: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(text(&root, "/RedfishVersion"), "1.15.0");
}

#[tokio::test]
async fn ten_thousand_simulated_bmcs_share_one_reader_and_own_no_task() {
    let reader = std::sync::Arc::new(crate::HttpMediaReader::new().unwrap());
    let host = std::sync::Arc::new(crate::NullHost);
    let mut bmcs = Vec::new();
    for number in 0..10_000 {
        let config = crate::SimBmcConfig::new(format!("S{number}"), "root", "secret");
        let bmc = SimBmc::new(config, host.clone(), reader.clone());
        let root = send(&bmc, http::Request::get("/redfish/v1/").body(bytes::Bytes::new()).unwrap()).await;
        assert_eq!(root.status(), StatusCode::OK);
        bmcs.push(bmc);
    }
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

/// A plain HTTP client that keeps no connection.
pub(super) fn client() -> reqwest::Client {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let client =
        reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().pool_max_idle_per_host(0);
    client.build().unwrap()
}
