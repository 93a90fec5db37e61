//! Authentication and roles of the API.

use access::auth::AuthMode;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use serde_json::{Value, json};
use settings::KeySetLocation;
use sha2::Sha256;

use crate::kit::{Scene, healthy, recipe};

pub(super) const SECRET: &str = "a secret of the tests with 42 characters..";

/// Builds a JSON Web Token, signed here and not with the product's code.
pub(super) fn jwt(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

pub(super) fn soon() -> i64 {
    jiff::Timestamp::now().as_second() + 300
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credentials_only_health_readiness_and_the_document_are_served() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let anonymous = scene.anonymous();
    let table = include_str!("../../golden/routes.txt");
    let routes: Vec<&str> = table.lines().collect();
    assert!(routes.len() >= 11, "the golden table lists all routes");
    for route in routes {
        let path = route
            .replace("{id}", &uuid::Uuid::now_v7().to_string())
            .replace("{serial}", "S-1")
            .replace("{name}", "x");
        let mut statuses = Vec::new();
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE] {
            statuses.push(anonymous.send(anonymous.request(method, &path).json(&json!({}))).await.status);
        }
        if matches!(route, "/ca.pem" | "/healthz" | "/readyz" | "/openapi.json") {
            assert_eq!(statuses, [200, 200, 405, 405, 405], "{route}");
        } else {
            assert!(statuses.contains(&401), "{route}: {statuses:?}");
            assert!(statuses.iter().all(|status| matches!(status, 401 | 405)), "{route}: {statuses:?}");
        }
    }
    for path in ["/v2/", "/v2/os-images/ubuntu-rootfs/manifests/22.04"] {
        assert_eq!(anonymous.get(path).await.status, 401, "{path}");
    }
    let response = anonymous.get("/api/v1/jobs").await;
    response.refused(401, "unauthorized");
    assert!(response.header("www-authenticate").unwrap().starts_with("Basic"));
    anonymous.with_token("not-a-token").get("/api/v1/jobs").await.refused(401, "unauthorized");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_served_without_credentials_only_when_configured() {
    let scene = Scene::bare(vec![], |settings, _| settings.metrics_anonymous = true).await;
    assert_eq!(scene.anonymous().get("/metrics").await.status, 200);
    scene.anonymous().get("/api/v1/jobs").await.refused(401, "unauthorized");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_everything_but_secrets_and_changes_nothing() {
    let scene = Scene::bare(vec![healthy("ROLE-1")], |settings, _| {
        settings.auth_mode = AuthMode::Jwt;
        settings.jwt_secret = Some(SECRET.parse().unwrap());
        settings.worker_concurrency = 0;
    })
    .await;
    assert!(scene.running.first_token.is_none());
    let admin = scene.admin.with_token(&jwt(&json!({ "sub": "ada", "role": "admin", "exp": soon() })));
    let viewer = scene.admin.with_token(&jwt(&json!({ "sub": "rhea", "role": "viewer", "exp": soon() })));
    admin.register(scene.server("ROLE-1")).await;
    let id = admin.create_job("ROLE-1").await;

    for path in [
        "/api/v1/jobs".to_owned(),
        format!("/api/v1/jobs/{id}"),
        format!("/api/v1/jobs/{id}/events"),
        "/api/v1/servers".to_owned(),
        "/api/v1/servers/ROLE-1".to_owned(),
        "/metrics".to_owned(),
    ] {
        assert_eq!(viewer.get(&path).await.status, 200, "{path}");
    }
    // The task image contains the report token: a caller that reads it can report the result of the job.
    let image = format!("/media/tasks/{id}/task.iso");
    viewer.get(&image).await.refused(403, "forbidden");
    admin.get(&image).await.refused(404, "no_task_image");
    let job = json!({ "server_serial": "ROLE-1", "recipe": recipe() });
    let body = viewer.post("/api/v1/jobs", &job).await.refused(403, "forbidden");
    assert!(body["message"].as_str().unwrap().contains("rhea"), "{body}");
    viewer.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.refused(403, "forbidden");
    viewer.post("/api/v1/servers", &json!({})).await.refused(403, "forbidden");
    viewer.patch("/api/v1/servers/ROLE-1", &json!({})).await.refused(403, "forbidden");
    viewer.delete("/api/v1/servers/ROLE-1").await.refused(403, "forbidden");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_expired_forged_or_without_subject_are_refused() {
    let scene = Scene::bare(vec![], |settings, _| {
        settings.auth_mode = AuthMode::Jwt;
        settings.jwt_secret = Some(SECRET.parse().unwrap());
    })
    .await;
    let expired = jwt(&json!({ "sub": "ada", "role": "admin", "exp": soon() - 7200 }));
    let no_subject = jwt(&json!({ "role": "admin", "exp": soon() }));
    let good = jwt(&json!({ "sub": "ada", "role": "viewer", "exp": soon() }));
    let claims = URL_SAFE_NO_PAD.encode(json!({ "sub": "ada", "role": "admin", "exp": soon() }).to_string());
    let parts: Vec<&str> = good.split('.').collect();
    let forged = format!("{}.{claims}.{}", parts[0], parts[2]);
    let unsigned = format!("{}.{claims}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
    for token in [expired, no_subject, forged, unsigned] {
        scene.admin.with_token(&token).get("/api/v1/jobs").await.refused(401, "unauthorized");
    }
    assert_eq!(scene.admin.with_token(&good).get("/api/v1/jobs").await.status, 200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_user_logs_in_with_a_password_and_no_token_is_created() {
    let password = secrecy::SecretString::from("correct horse battery staple");
    let hash = access::auth::hash_password(&password).unwrap();
    let scene = Scene::bare(vec![], move |settings, _| {
        settings.basic_user = Some("ada".to_owned());
        settings.basic_pass_hash = Some(hash);
    })
    .await;
    assert!(scene.running.first_token.is_none());
    let ask = |password: &'static str| {
        let request =
            scene.anonymous().request(Method::GET, "/api/v1/jobs").basic_auth("ada", Some(password));
        let client = scene.anonymous();
        async move { client.send(request).await }
    };
    assert_eq!(ask("correct horse battery staple").await.status, 200);
    ask("incorrect horse").await.refused(401, "unauthorized");
    scene.end().await;
}

/// A token that an identity provider signed with this key.
fn signed(key: &rcgen::KeyPair, kid: &str, claims: &Value) -> String {
    use rcgen::SigningKey;
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": kid });
    let signed = format!("{}.{}", part(&header), part(claims));
    let signature = key.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_of_an_identity_provider_has_the_role_of_a_group_and_is_named_by_events() {
    use rcgen::PublicKeyData;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let public = URL_SAFE_NO_PAD.encode(key.der_bytes());
    let set =
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "2026", "x": public }] });
    let scene = Scene::bare(vec![healthy("JWKS-1")], |settings, folder| {
        let file = folder.join("jwks.json");
        std::fs::write(&file, set.to_string()).unwrap();
        settings.auth_mode = AuthMode::Jwt;
        settings.jwt_jwks = Some(KeySetLocation::File(file));
        settings.jwt_issuer = Some("https://login.example".to_owned());
        settings.jwt_audience = Some("shoal".to_owned());
        settings.jwt_role_claim = "groups".to_owned();
        settings.jwt_roles = ["crew=operator", "chiefs=admin"].map(|entry| entry.parse().unwrap()).to_vec();
        settings.worker_concurrency = 0;
    })
    .await;
    assert!(scene.running.first_token.is_none());
    let claims = |name: &str, group: &str| {
        json!({
            "iss": "https://login.example", "aud": ["shoal", "wiki"], "sub": name, "exp": soon(),
            "groups": ["staff", group]
        })
    };
    let login = |claims: &Value| scene.admin.with_token(&signed(&key, "2026", claims));
    login(&claims("ada", "chiefs")).register(scene.server("JWKS-1")).await;
    let operator = login(&claims("grace", "crew"));
    let id = operator.create_job("JWKS-1").await;
    let events = operator.events(&id).await;
    assert!(events.iter().any(|event| event.to_string().contains("grace")), "{events:?}");
    operator.post("/api/v1/tokens", &json!({})).await.refused(403, "forbidden");
    let mut wrong = vec![claims("eve", "nothing"), claims("eve", "admin")];
    for (name, value) in
        [("aud", json!("wiki")), ("iss", json!("https://other.example")), ("exp", json!(soon() - 7200))]
    {
        let mut claims = claims("eve", "chiefs");
        claims[name] = value;
        wrong.push(claims);
    }
    for claims in wrong {
        login(&claims).get("/api/v1/jobs").await.refused(401, "unauthorized");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_jwts_that_are_not_in_force_leave_the_first_token() {
    // The rules of the settings refuse this; a token must not depend on them.
    let scene = Scene::bare(Vec::new(), |settings, _| {
        settings.auth_mode = AuthMode::Basic;
        settings.jwt_secret = Some(SECRET.parse().unwrap());
    })
    .await;
    scene.admin.get("/api/v1/users").await.expect(200);
    scene.end().await;
}
