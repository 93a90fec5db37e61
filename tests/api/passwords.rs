//! The stored password of a BMC reaches no machine that a caller of the API chooses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use lab_bmc::{Fault, FaultEffect, FaultTrigger};
use lab_machines::{Farm, FarmConfig};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy};

const CODE: &str = "bmc_password_needed";

/// A listener that keeps every byte it receives.
struct Catcher {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Catcher {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let kept = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                // The client sees a BMC that closes the connection.
                let mut chunk = [0; 4096];
                if let Ok(length) = stream.read(&mut chunk).await {
                    bytes.extend_from_slice(&chunk[..length]);
                }
                kept.lock().unwrap().extend(bytes);
            }
        });
        Self { address, received }
    }

    fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }
}

/// A controller with servers whose BMCs use TLS.
async fn secure(serials: &[&str]) -> Scene {
    let mut scene = Scene::bare(Vec::new(), |_, _| {}).await;
    let disks = scene.folder.path().join("secure");
    std::fs::create_dir_all(&disks).unwrap();
    let specs = serials.iter().map(|serial| healthy(serial)).collect();
    let farm = FarmConfig {
        https: true,
        ..FarmConfig::new(specs, BMC_USER, SecretString::from(BMC_PASSWORD), disks)
    };
    let farm = Farm::start(farm).await.unwrap();
    std::mem::replace(&mut scene.farm, farm).shutdown().await;
    scene
}

async fn probe(scene: &Scene, serial: &str) -> Value {
    scene.admin.post(&format!("/api/v1/servers/{serial}/probe"), &json!({})).await.expect(200)
}

/// Sends a change and asserts that it is refused and writes nothing.
async fn refused(scene: &Scene, serial: &str, change: &Value) {
    let place = format!("/api/v1/servers/{serial}");
    let before = scene.admin.get(&place).await.expect(200);
    let body = scene.admin.patch(&place, change).await.refused(422, CODE);
    assert_eq!(body["details"][0]["path"], "/bmc_password", "{change}: {body}");
    assert_eq!(scene.admin.get(&place).await.expect(200), before, "{change}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_address_needs_the_password_and_without_it_the_address_receives_nothing() {
    let scene = Scene::bare(vec![healthy("MOVE-1")], |_, _| {}).await;
    scene.admin.register(scene.server("MOVE-1")).await;
    let catcher = Catcher::start().await;
    for address in [format!("http://{}", catcher.address), format!("https://{}", catcher.address)] {
        refused(&scene, "MOVE-1", &json!({ "bmc_address": address })).await;
        refused(&scene, "MOVE-1", &json!({ "bmc_address": address, "tls": "insecure" })).await;
        refused(&scene, "MOVE-1", &json!({ "bmc_address": address, "bmc_username": "other" })).await;
    }
    probe(&scene, "MOVE-1").await;
    assert_eq!(catcher.received(), b"", "nothing is sent to the address of a refused change");

    // Registering the serial number again is no way round.
    let again = json!({
        "serial": "MOVE-1", "bmc_address": format!("http://{}", catcher.address), "bmc_username": BMC_USER,
        "bmc_password": BMC_PASSWORD,
    });
    scene.admin.post("/api/v1/servers", &again).await.refused(409, "conflict.server");

    let moved = json!({ "bmc_address": format!("http://{}", catcher.address), "bmc_password": "guessed" });
    scene.admin.patch("/api/v1/servers/MOVE-1", &moved).await.expect(200);
    assert_eq!(scene.admin.get("/api/v1/servers/MOVE-1/probe").await.status, 502);
    let received = String::from_utf8_lossy(&catcher.received()).into_owned();
    assert!(received.starts_with("GET /redfish/v1"), "{received:?}");
    assert!(!received.contains(BMC_PASSWORD), "{received:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weaker_check_of_the_certificate_needs_the_password() {
    let scene = secure(&["PIN-1", "PIN-2"]).await;
    scene.admin.register(scene.server("PIN-1")).await;
    probe(&scene, "PIN-1").await;
    let pinned = scene.admin.get("/api/v1/servers/PIN-1").await.expect(200);
    assert!(pinned["tls_fingerprint"].is_string(), "{pinned}");
    let other_pin = "ab".repeat(32);
    let plain = scene.server("PIN-1").bmc_url.replace("https", "http");
    for change in [
        json!({ "tls_fingerprint": null }),
        json!({ "tls_fingerprint": other_pin }),
        json!({ "tls": "insecure" }),
        json!({ "bmc_address": plain }),
        // The certificate at this address is another one.
        json!({ "bmc_address": scene.server("PIN-2").bmc_url }),
        json!({ "bmc_address": scene.server("PIN-2").bmc_url, "tls_fingerprint": null }),
        json!({ "bmc_address": scene.server("PIN-2").bmc_url, "tls": "insecure" }),
    ] {
        refused(&scene, "PIN-1", &change).await;
    }
    let stranger = scene.bmc("PIN-2").snapshot();
    assert_eq!(stranger.logins, 0, "the other BMC received a login");

    // With the password each of them is a decision of the operator.
    let weaker = json!({ "tls_fingerprint": null, "bmc_password": BMC_PASSWORD });
    let server = scene.admin.patch("/api/v1/servers/PIN-1", &weaker).await.expect(200);
    assert_eq!(server["tls_fingerprint"], json!(null));
    // Before the first contact a pin is stricter than none.
    let pin = json!({ "tls_fingerprint": pinned["tls_fingerprint"] });
    scene.admin.patch("/api/v1/servers/PIN-1", &pin).await.expect(200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_shows_its_pinned_certificate_at_another_address_needs_no_password() {
    let scene = secure(&["SAME-1"]).await;
    scene.admin.register(scene.server("SAME-1")).await;
    probe(&scene, "SAME-1").await;
    let pinned = scene.admin.get("/api/v1/servers/SAME-1").await.expect(200);
    let moved = scene.server("SAME-1").bmc_url.replace("127.0.0.1", "localhost");
    assert_ne!(json!(moved), pinned["bmc_address"]);
    let server =
        scene.admin.patch("/api/v1/servers/SAME-1", &json!({ "bmc_address": moved })).await.expect(200);
    assert_eq!(server["bmc_address"], json!(moved));
    assert_eq!(server["tls_fingerprint"], pinned["tls_fingerprint"], "the pin stays");

    // An address that cannot be reached now keeps the pin if the request repeats it: another certificate gets no credentials.
    let catcher = Catcher::start().await;
    let address = format!("https://{}", catcher.address);
    refused(&scene, "SAME-1", &json!({ "bmc_address": address })).await;
    let repeated = json!({ "bmc_address": address, "tls_fingerprint": pinned["tls_fingerprint"] });
    scene.admin.patch("/api/v1/servers/SAME-1", &repeated).await.expect(200);
    assert_eq!(scene.admin.get("/api/v1/servers/SAME-1/probe").await.status, 502);
    let received = catcher.received();
    assert!(received.first().is_none_or(|byte| *byte == 0x16), "only TLS handshakes arrive");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_redirected_to_another_host_sends_it_nothing() {
    let scene = Scene::bare(vec![healthy("AWAY-1")], |_, _| {}).await;
    scene.admin.register(scene.server("AWAY-1")).await;
    let catcher = Catcher::start().await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("http://{}/redfish/v1/SessionService/Sessions", catcher.address);
        let effect = FaultEffect::Answer {
            status,
            headers: BTreeMap::from([("location".to_owned(), location)]),
            body: String::new(),
        };
        scene.bmc("AWAY-1").inject(Fault::once(FaultTrigger::Login, effect.clone()));
        scene.bmc("AWAY-1").inject(Fault::once(FaultTrigger::Read, effect));
        // Whether the probe succeeds without a session does not matter here.
        scene.admin.get("/api/v1/servers/AWAY-1/probe").await;
    }
    assert_eq!(catcher.received(), b"", "the other host received a request");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_has_task_images_read_from_another_host_only_with_the_password() {
    let scene = Scene::bare(vec![healthy("MEDIA-1")], |_, _| {}).await;
    scene.admin.register(scene.server("MEDIA-1")).await;
    let made =
        scene.admin.post("/api/v1/tokens", &json!({ "name": "op", "role": "operator" })).await.expect(201);
    let operator = scene.admin.with_token(made["token"].as_str().unwrap());
    let place = "/api/v1/servers/MEDIA-1";
    let other = json!({ "media_base_url": "http://192.0.2.66:8080" });
    let body = operator.patch(place, &other).await.refused(422, CODE);
    assert_eq!(body["details"][0]["path"], "/bmc_password", "{body}");
    operator.patch(&format!("{place}?dry_run=true"), &other).await.refused(422, CODE);
    assert!(operator.get(place).await.expect(200)["media_base_url"].is_null());
    let known = json!({ "media_base_url": "http://192.0.2.66:8080", "bmc_password": BMC_PASSWORD });
    operator.patch(place, &known).await.expect(200);
    // Back to the controller, and a change of something else, need none.
    operator.patch(place, &json!({ "vendor": "Example" })).await.expect(200);
    operator.patch(place, &json!({ "media_base_url": null })).await.expect(200);
    scene.admin.patch(place, &other).await.expect(200);
    scene.end().await;
}
