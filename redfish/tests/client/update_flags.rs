//! The effect of each flag for updates.

use http::Method;
use redfish::profile::UpdateWay;
use redfish::{ApplyTime, UpdateRequest, UpdateState};
use serde_json::{Value, json};

use crate::fake::Reply;
use crate::flags::with;
use crate::updates::{IMAGE, MULTIPART, PUSH, SERVICE, TASK, fake, prepared, start};

/// Starts an update with these flags and returns the body of the request that carried it, as text.
async fn carried(flags: Value, path: &str, request: UpdateRequest) -> (String, Vec<crate::fake::Sent>) {
    let fake = fake();
    fake.on(Method::POST, path, [Reply::status(202).header("location", TASK)]);
    let bmc = with(&fake, flags);
    let update = prepared(&bmc, request).await;
    start(&bmc, &update).await.unwrap();
    let sent = fake.sent(Method::POST, path);
    let body = match &sent[0].body {
        Some(Value::String(text)) => text.clone(),
        body => body.as_ref().map(Value::to_string).unwrap_or_default(),
    };
    (body, sent)
}

pub(crate) async fn update_ways() {
    let fake = fake();
    for way in [UpdateWay::Push, UpdateWay::Simple, UpdateWay::Multipart] {
        let bmc = with(&fake, json!({ "update_ways": [way.as_str(), "push"] }));
        assert_eq!(prepared(&bmc, UpdateRequest::default()).await.choice.route.way(), way);
    }
}

pub(crate) async fn update_push_body() {
    let flags = |body: &str| json!({ "update_ways": ["push"], "update_push_body": body });
    let (raw, sent) = carried(flags("raw"), PUSH, UpdateRequest::default()).await;
    assert_eq!((raw.as_str(), sent[0].header("content-type")), (IMAGE, Some("application/octet-stream")));
    let (form, sent) = carried(flags("session_form"), PUSH, UpdateRequest::default()).await;
    assert!(form.contains("name=\"sessionKey\"") && form.contains("name=\"files[]\""), "{form}");
    let token = sent[0].header("x-auth-token").unwrap();
    assert_eq!(sent[0].header("cookie"), Some(format!("sessionKey={token}").as_str()));
    let fake = fake();
    fake.put(PUSH, json!({ "@odata.etag": "\"inventory\"", "Members": [] }));
    fake.on(Method::POST, PUSH, [Reply::status(201).header("location", "/redfish/v1/stored/1")]);
    let bmc = with(&fake, flags("staged_form"));
    let update = prepared(&bmc, UpdateRequest::default()).await;
    let started = start(&bmc, &update).await.unwrap();
    assert_eq!(fake.sent(Method::POST, PUSH)[0].header("if-match"), Some("\"inventory\""));
    assert_eq!(bmc.poll_update(started.handle()).await.unwrap().state, UpdateState::Uploaded);
}

pub(crate) async fn update_targets() {
    let named = || UpdateRequest { targets: vec!["/redfish/v1/x".to_owned()], ..UpdateRequest::default() };
    for (flag, request, sent) in [
        ("always", UpdateRequest::default(), Some("\"Targets\":[]")),
        ("when_asked", named(), Some("\"Targets\":[\"/redfish/v1/x\"]")),
        ("when_asked", UpdateRequest::default(), None),
        ("never", named(), None),
    ] {
        let (body, _) = carried(json!({ "update_targets": flag }), MULTIPART, request).await;
        assert_eq!(body.contains("Targets"), sent.is_some(), "{flag}: {body}");
        assert!(sent.is_none_or(|sent| body.contains(sent)), "{flag}: {body}");
    }
}

pub(crate) async fn update_apply_time() {
    for (flag, sent) in [("unset", None), ("immediate", Some("Immediate")), ("on_reset", Some("OnReset"))] {
        let flags = json!({ "update_apply_time": flag });
        let (body, _) = carried(flags.clone(), MULTIPART, UpdateRequest::default()).await;
        assert_eq!(body.contains("OperationApplyTime"), sent.is_some(), "{flag}: {body}");
        assert!(sent.is_none_or(|sent| body.contains(sent)), "{flag}: {body}");
        // The caller takes precedence.
        let request = UpdateRequest { apply_time: Some(ApplyTime::Immediate), ..UpdateRequest::default() };
        assert!(carried(flags, MULTIPART, request).await.0.contains("Immediate"));
    }
    let fake = fake();
    let bmc = with(&fake, json!({ "update_apply_time": "on_start_update_request" }));
    assert_eq!(prepared(&bmc, UpdateRequest::default()).await.start, None, "the BMC has no StartUpdate");
    let start = json!({ "Actions": { "#UpdateService.StartUpdate": { "target": "/start" } } });
    fake.merge(SERVICE, start);
    let bmc = with(&fake, json!({ "update_apply_time": "on_start_update_request" }));
    assert_eq!(prepared(&bmc, UpdateRequest::default()).await.start.as_deref(), Some("/start"));
}

pub(crate) async fn update_oem_parameters() {
    let flags = json!({ "update_oem_parameters": { "ImageType": "HPM" } });
    let (body, _) = carried(flags, MULTIPART, UpdateRequest::default()).await;
    assert!(body.contains("name=\"OemParameters\"") && body.contains("{\"ImageType\":\"HPM\"}"), "{body}");
    let (body, _) = carried(json!({}), MULTIPART, UpdateRequest::default()).await;
    assert!(!body.contains("OemParameters"), "{body}");
}

pub(crate) async fn update_state_at() {
    let fake = fake();
    fake.on(Method::POST, MULTIPART, [Reply::status(200)]);
    let bmc = with(&fake, json!({ "update_state_at": "service" }));
    let update = prepared(&bmc, UpdateRequest::default()).await;
    let started = start(&bmc, &update).await.unwrap();
    fake.merge(SERVICE, json!({ "Oem": { "Contoso": { "State": "Updating", "FlashProgressPercent": 40 } } }));
    let poll = bmc.poll_update(started.handle()).await.unwrap();
    assert_eq!(poll.state, UpdateState::Running { percent: Some(40) });
}

/// The body of a `SimpleUpdate` of a BMC that lists these protocols, with these flags.
async fn simple_update(protocols: Value, flags: Value) -> Value {
    let fake = fake();
    let target = "/redfish/v1/UpdateService/Actions/simple";
    let action = json!({ "target": target, "TransferProtocol@Redfish.AllowableValues": protocols });
    fake.merge(SERVICE, json!({ "Actions": { "#UpdateService.SimpleUpdate": action } }));
    fake.on(Method::POST, target, [Reply::status(202).header("location", TASK)]);
    let mut all = json!({ "update_ways": ["simple"] });
    all.as_object_mut().unwrap().extend(flags.as_object().unwrap().clone());
    let bmc = with(&fake, all);
    let update = prepared(&bmc, UpdateRequest::default()).await;
    start(&bmc, &update).await.unwrap();
    let sent = fake.sent(Method::POST, target);
    assert_eq!(sent.len(), 1);
    sent[0].body.clone().unwrap()
}

pub(crate) async fn update_protocol() {
    let lists = || json!(["HTTP", "HTTPS"]);
    for (flag, protocols, named) in [
        ("always", json!([]), true),
        ("when_asked", lists(), true),
        ("when_asked", json!([]), false),
        ("never", lists(), false),
    ] {
        let body = simple_update(protocols, json!({ "update_protocol": flag })).await;
        assert_eq!(body.get("TransferProtocol").is_some(), named, "{flag}: {body}");
        for credential in ["Username", "Password"] {
            assert!(body.get(credential).is_none(), "{body}");
        }
    }
}

pub(crate) async fn update_uri() {
    let url = simple_update(json!([]), json!({})).await;
    assert!(url["ImageURI"].as_str().unwrap().contains("://"), "{url}");
    let bare = simple_update(json!([]), json!({ "update_uri": "without_scheme" })).await;
    let image = bare["ImageURI"].as_str().unwrap();
    assert!(!image.contains("://") && url["ImageURI"].as_str().unwrap().ends_with(image), "{bare}");
    assert!(bare["TransferProtocol"].is_string(), "the scheme is named elsewhere: {bare}");
}
