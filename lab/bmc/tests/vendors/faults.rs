//! Every fault effect once: it applies to the selected request and not to the next one.

use std::time::Duration;

use lab_bmc::{
    ConnectionCut, ErrorShape, Fault, FaultCondition, FaultEffect, FaultTrigger, Power, ResetType,
};
use serde_json::{Value, json};

use crate::kit::{Answer, Bmc, IMAGE, ask, once};

async fn with_fault(bmc: &Bmc, effect: FaultEffect) -> Answer {
    bmc.sim_bmc.inject(Fault::once(
        FaultTrigger::Path { method: "GET".to_owned(), glob: "*/Systems/*".to_owned() },
        effect,
    ));
    let response = bmc.get(&bmc.system).await;
    assert!(bmc.sim_bmc.faults().is_empty());
    response
}

#[tokio::test(start_paused = true)]
async fn a_web_front_responds_in_place_of_the_service() {
    let bmc = Bmc::of("generic").await;
    let page = |status: u16, name: &str, value: &str, body: &str| FaultEffect::Answer {
        status,
        headers: [(name.to_owned(), value.to_owned())].into(),
        body: body.to_owned(),
    };
    let login = with_fault(&bmc, page(200, "content-type", "text/html", "<html>Login</html>")).await;
    assert!(login.status == 200 && login.body.is_null() && login.header("content-type") == Some("text/html"));
    let moved = with_fault(&bmc, page(302, "location", "/login", "")).await;
    assert_eq!((moved.status, moved.header("location")), (302, Some("/login")));
    let away = with_fault(&bmc, page(308, "location", "https://192.0.2.9/redfish/v1/Systems/1", "")).await;
    assert_eq!(away.header("location"), Some("https://192.0.2.9/redfish/v1/Systems/1"));
    for when in ["120", "Fri, 31 Dec 1999 23:59:59 GMT", "soon"] {
        let later = with_fault(&bmc, page(429, "retry-after", when, "")).await;
        assert_eq!((later.status, later.header("retry-after")), (429, Some(when)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_body_can_be_malformed_in_many_ways() {
    let bmc = Bmc::of("generic").await;
    let whole = bmc.get(&bmc.system).await;
    assert!(with_fault(&bmc, FaultEffect::ByteOrderMark).await.text.starts_with(b"\xEF\xBB\xBF{"));
    let packed = with_fault(&bmc, FaultEffect::Gzip).await;
    assert!(packed.header("content-encoding") == Some("gzip") && packed.text.starts_with(&[0x1F, 0x8B]));
    let twice = with_fault(&bmc, FaultEffect::DuplicateKey).await;
    assert_eq!(String::from_utf8_lossy(&twice.text).matches("\"@odata.id\":\"/redfish/v1/").count(), {
        String::from_utf8_lossy(&whole.text).matches("\"@odata.id\":\"/redfish/v1/").count() + 1
    });
    let deep = with_fault(&bmc, FaultEffect::Deep(5000)).await;
    assert!(deep.text.len() > 10_000 && deep.body.is_null(), "nested too deep for the parser");
    assert!(with_fault(&bmc, FaultEffect::Truncate(20)).await.body.is_null());
    let wrong = with_fault(&bmc, FaultEffect::ContentType("text/plain".to_owned())).await;
    assert!(wrong.header("content-type") == Some("text/plain") && wrong.body.is_object());
    assert!(with_fault(&bmc, FaultEffect::Chunked).await.header("content-length").is_none());
    let empty = with_fault(
        &bmc,
        FaultEffect::Raw { status: 200, content_type: "application/json".to_owned(), body: String::new() },
    );
    assert!(empty.await.text.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_can_have_every_known_shape() {
    let bmc = Bmc::of("generic").await;
    for (shape, fits) in [
        (
            ErrorShape::InfoIsObject,
            (|body: &Value| body["error"]["@Message.ExtendedInfo"].is_object()) as fn(&Value) -> bool,
        ),
        (ErrorShape::NoEnvelope, |body| {
            body.get("error").is_none() && body["@Message.ExtendedInfo"].is_array()
        }),
        (ErrorShape::NoCode, |body| body["error"].get("code").is_none()),
        (ErrorShape::NoInfo, |body| body["error"].get("@Message.ExtendedInfo").is_none()),
        (ErrorShape::Text, Value::is_null),
    ] {
        bmc.sim_bmc.inject(Fault::once(FaultTrigger::Reset, FaultEffect::ErrorShape(shape)));
        let refused = bmc.power("Nonsense").await;
        assert!(refused.status == 400 && fits(&refused.body), "{shape:?}: {}", refused.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lie_lasts_its_time_and_replaces_only_existing_keys() {
    let bmc = Bmc::of("generic").await;
    let lie = FaultEffect::Lie(json!({ "PowerState": null, "NotThere": 1 }));
    bmc.sim_bmc.inject(Fault::always(FaultTrigger::Read, lie).lasting(Duration::from_secs(45)));
    let shown = bmc.get(&bmc.system).await;
    assert!(shown.body["PowerState"].is_null() && shown.body.get("NotThere").is_none());
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(bmc.get(&bmc.system).await.text("/PowerState"), "Off");
    let stuck = FaultEffect::Lie(json!({ "PowerState": "PoweringOff" }));
    bmc.sim_bmc.inject(Fault::always(FaultTrigger::Read, stuck).only_if(FaultCondition::Power(Power::Off)));
    assert_eq!(bmc.get(&bmc.system).await.text("/PowerState"), "PoweringOff");
    for members in [json!([]), Value::Null] {
        bmc.sim_bmc.clear_faults();
        bmc.sim_bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Lie(json!({ "Members": members }))));
        assert_eq!(bmc.get("/redfish/v1/Systems").await.body["Members"], members);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_restart_loses_everything_except_the_running_host() {
    let bmc = Bmc::of("generic").await;
    let slots = bmc.slots().await;
    bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    bmc.patch(&bmc.system, once("Cd", None)).await;
    bmc.power("On").await;
    bmc.until(|now| now.generation == 1).await;
    let restart = FaultEffect::BmcRestart(Duration::from_secs(120));
    bmc.sim_bmc.inject(Fault::once(FaultTrigger::Read, restart).only_if(FaultCondition::AnyMedium));
    let get = || ask(&bmc.sim_bmc, http::Method::GET, &bmc.system, None, &[]);
    assert_eq!(get().await.unwrap_err(), ConnectionCut::Closed);
    assert_eq!(get().await.unwrap_err(), ConnectionCut::Refused);
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(get().await.unwrap().text("/PowerState"), "On", "the host keeps running");
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], false);
    assert_eq!(bmc.boot().await["BootSourceOverrideEnabled"], "Disabled");
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_can_be_ignored_and_media_can_be_lost_at_power_on() {
    let bmc = Bmc::of("generic").await;
    let slots = bmc.slots().await;
    bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    bmc.patch(&bmc.system, once("Cd", None)).await;
    bmc.sim_bmc.inject(Fault::once(FaultTrigger::ResetTo(ResetType::On), FaultEffect::LoseMedia));
    assert!(!bmc.boots_from_media().await);
    bmc.sim_bmc.inject(Fault::once(
        FaultTrigger::ResetTo(ResetType::GracefulShutdown),
        FaultEffect::AcceptButIgnore,
    ));
    assert_eq!(bmc.power("GracefulShutdown").await.status, 204);
    assert_eq!(bmc.sim_bmc.snapshot().power, Power::On);
}

#[tokio::test(start_paused = true)]
async fn a_fault_with_a_probability_affects_the_same_requests_for_one_seed() {
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let bmc = Bmc::of("generic").await;
        let busy = FaultEffect::Status {
            status: 503,
            message_id: "ServiceTemporarilyUnavailable".to_owned(),
            message: "busy".to_owned(),
        };
        bmc.sim_bmc.inject(Fault::always(FaultTrigger::Read, busy).sometimes(40, seed));
        let mut run = Vec::new();
        for _ in 0..40 {
            run.push(bmc.get(&bmc.system).await.status);
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    assert!(runs[0].contains(&200) && runs[0].contains(&503));
}
