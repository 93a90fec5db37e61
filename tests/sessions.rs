//! Web sessions, through the API.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{ApiResponse, Client, Scene};

const PASSWORD: &str = "correct horse battery staple";

/// A logged-in browser.
struct Browser {
    client: Client,
    cookie: String,
    csrf: String,
    id: String,
}

impl Browser {
    /// Logs a user in, with the cookie of an earlier login if there is one.
    async fn log_in(scene: &Scene, name: &str, former: Option<&str>) -> Self {
        let client = scene.anonymous();
        let request = client.request(Method::POST, "/api/v1/session").basic_auth(name, Some(PASSWORD));
        let request = match former {
            Some(cookie) => request.header("Cookie", cookie),
            None => request,
        };
        let response = client.send(request).await;
        let session = response.expect(201);
        let set = response.header("set-cookie").unwrap();
        let (cookie, attributes) = set.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict");
        assert!(cookie.starts_with("__Host-shoal="), "{cookie}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
        let text = |name: &str| session[name].as_str().unwrap().to_owned();
        assert_eq!((text("name"), &session["current"]), (name.to_owned(), &json!(true)));
        Self { client, cookie: cookie.to_owned(), csrf: text("csrf_token"), id: text("session_id") }
    }

    async fn get(&self, place: &str) -> ApiResponse {
        self.client.send(self.client.request(Method::GET, place).header("Cookie", &self.cookie)).await
    }

    /// A change as a page of the controller sends it.
    async fn change(&self, method: Method, place: &str) -> ApiResponse {
        let request = self.client.request(method, place).header("Cookie", &self.cookie);
        let request = request.header("X-CSRF-Token", &self.csrf).header("Sec-Fetch-Site", "same-origin");
        self.client.send(request).await
    }
}

/// A scene with an administrator `ann` and a viewer `ben`.
async fn scene() -> Scene {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    for (name, role) in [("ann", "admin"), ("ben", "viewer")] {
        let new = json!({ "name": name, "role": role, "password": PASSWORD });
        scene.admin.post("/api/v1/users", &new).await.expect(201);
    }
    scene
}

fn ids(page: &Value) -> Vec<&str> {
    page["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_logs_in_acts_as_its_user_and_logs_out() {
    let scene = scene().await;
    let ann = Browser::log_in(&scene, "ann", None).await;
    let me = ann.get("/api/v1/me").await.expect(200);
    assert_eq!((&me["name"], &me["login"], &me["role"]), (&json!("ann"), &json!("session"), &json!("admin")));
    let own = ann.get("/api/v1/session").await.expect(200);
    assert_eq!((&own["csrf_token"], &own["session_id"]), (&json!(ann.csrf), &json!(ann.id)));
    ann.change(Method::POST, "/api/v1/drain").await.expect(202);
    let events = scene.admin.get("/api/v1/events?limit=1000").await.expect(200).to_string();
    assert!(
        events.contains("ann logged in from 127.0.0.1") && events.contains(r#""actor":"ann""#),
        "{events}"
    );
    let secret = ann.cookie.split_once('=').unwrap().1;
    assert!(!events.contains(secret) && !events.contains(&ann.csrf));

    let ben = Browser::log_in(&scene, "ben", None).await;
    ben.change(Method::POST, "/api/v1/drain").await.refused(403, "forbidden");
    ben.get("/api/v1/users").await.refused(403, "forbidden");
    // A session makes no session, and its password is not known to it.
    ben.change(Method::POST, "/api/v1/session").await.refused(409, "conflict.no_session");
    let out = ben.change(Method::DELETE, "/api/v1/session").await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    ben.get("/api/v1/me").await.refused(401, "unauthorized");
    assert_eq!(ann.get("/api/v1/me").await.status, 200);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_with_a_cookie_needs_the_proof_of_its_session_and_no_other_site() {
    let scene = scene().await;
    let (ann, other) =
        (Browser::log_in(&scene, "ann", None).await, Browser::log_in(&scene, "ann", None).await);
    for (token, site, allowed) in [
        (Some(&ann.csrf), Some("same-origin"), true),
        (Some(&ann.csrf), None, true),
        (None, Some("same-origin"), false),
        (None, None, false),
        (Some(&other.csrf), Some("same-origin"), false),
        (Some(&ann.csrf), Some("cross-site"), false),
        (Some(&ann.csrf), Some("same-site"), false),
    ] {
        let mut request = ann.client.request(Method::POST, "/api/v1/drain").header("Cookie", &ann.cookie);
        if let Some(token) = token {
            request = request.header("X-CSRF-Token", token);
        }
        if let Some(site) = site {
            request = request.header("Sec-Fetch-Site", site);
        }
        let response = ann.client.send(request).await;
        match allowed {
            true => assert!(response.status < 300, "{token:?} {site:?}: {}", response.status),
            false => drop(response.refused(403, "csrf")),
        }
    }
    // A password that the browser remembers is no proof; an API token, which a browser never adds, needs none.
    let cross = |request: reqwest::RequestBuilder| request.header("Sec-Fetch-Site", "cross-site");
    let remembered = ann.client.request(Method::POST, "/api/v1/drain").basic_auth("ann", Some(PASSWORD));
    ann.client.send(cross(remembered)).await.refused(403, "csrf");
    let bearer = scene.admin.request(Method::POST, "/api/v1/drain");
    assert_eq!(scene.admin.send(cross(bearer)).await.status, 200);
    // A script gets no challenge for which the browser would show its own window.
    let script = ann.client.request(Method::GET, "/api/v1/me").header("Sec-Fetch-Mode", "cors");
    assert_eq!(ann.client.send(script).await.header("www-authenticate"), Some("Bearer realm=\"shoal\""));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_and_ended_by_their_user_and_by_administrators() {
    let scene = scene().await;
    let ann = Browser::log_in(&scene, "ann", None).await;
    let (ben, phone) =
        (Browser::log_in(&scene, "ben", None).await, Browser::log_in(&scene, "ben", None).await);
    assert_eq!(ids(&ben.get("/api/v1/sessions").await.expect(200)), [phone.id.as_str(), &ben.id]);
    assert_eq!(ids(&ann.get("/api/v1/sessions").await.expect(200)), [phone.id.as_str(), &ben.id, &ann.id]);
    let foreign = format!("/api/v1/sessions/{}", ann.id);
    ben.change(Method::DELETE, &foreign).await.refused(404, "unknown_session");
    assert_eq!(ben.change(Method::DELETE, &format!("/api/v1/sessions/{}", phone.id)).await.status, 204);
    phone.get("/api/v1/me").await.refused(401, "unauthorized");
    assert_eq!(ann.change(Method::DELETE, &format!("/api/v1/sessions/{}", ben.id)).await.status, 204);
    ben.get("/api/v1/me").await.refused(401, "unauthorized");

    let (ben, phone) =
        (Browser::log_in(&scene, "ben", None).await, Browser::log_in(&scene, "ben", None).await);
    assert_eq!(ben.change(Method::DELETE, "/api/v1/sessions").await.expect(200), json!({ "ended": 2 }));
    phone.get("/api/v1/me").await.refused(401, "unauthorized");
    let ben = Browser::log_in(&scene, "ben", None).await;
    let ended = ann.change(Method::DELETE, "/api/v1/users/ben/sessions").await.expect(200);
    assert_eq!(ended, json!({ "ended": 1 }));
    ben.get("/api/v1/me").await.refused(401, "unauthorized");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_makes_a_new_secret_and_a_chosen_cookie_is_never_taken() {
    let scene = scene().await;
    let chosen = format!("__Host-shoal={}", "a".repeat(40));
    let ben = Browser::log_in(&scene, "ben", Some(&chosen)).await;
    assert_ne!(ben.cookie, chosen);
    let planted = scene.anonymous();
    let request = planted.request(Method::GET, "/api/v1/me").header("Cookie", &chosen);
    planted.send(request).await.refused(401, "unauthorized");
    let again = Browser::log_in(&scene, "ben", Some(&ben.cookie)).await;
    ben.get("/api/v1/me").await.refused(401, "unauthorized");
    assert_eq!(ids(&again.get("/api/v1/sessions").await.expect(200)), [again.id.as_str()]);
    // The seventeenth session ends the first.
    for _ in 0..16 {
        Browser::log_in(&scene, "ben", None).await;
    }
    again.get("/api/v1/me").await.refused(401, "unauthorized");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_time_and_with_a_change_of_its_user() {
    let scene = scene().await;
    let ben = Browser::log_in(&scene, "ben", None).await;
    for _ in 0..3 {
        scene.skip(Duration::from_secs(45 * 60));
        // The use is stored without delaying the request; an earlier one may be stored late.
        let skipped = scene.now().to_string();
        let is_stored = async || {
            let shown = ben.get("/api/v1/session").await.expect(200);
            shown["last_used_at"].as_str().unwrap() >= skipped.as_str()
        };
        while !is_stored().await {}
    }
    scene.skip(Duration::from_secs(61 * 60));
    ben.get("/api/v1/me").await.refused(401, "unauthorized");
    for change in
        [json!({ "role": "operator" }), json!({ "password": PASSWORD }), json!({ "disabled": true })]
    {
        let ben = Browser::log_in(&scene, "ben", None).await;
        assert_eq!(ben.get("/api/v1/me").await.status, 200);
        scene.admin.patch("/api/v1/users/ben", &change).await.expect(200);
        ben.get("/api/v1/me").await.refused(401, "unauthorized");
    }
    // Enabling the user again revives no session.
    scene.admin.patch("/api/v1/users/ben", &json!({ "disabled": false })).await.expect(200);
    assert_eq!(ids(&scene.admin.get("/api/v1/sessions").await.expect(200)), [""; 0]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_the_security_headers_of_its_class() {
    let scene = scene().await;
    const POLICY: Option<&str> = Some("default-src 'none'; frame-ancestors 'none'");
    for (place, policy, cache) in [
        ("/api/v1/me", POLICY, Some("no-store")),
        ("/api/v1/nothing", POLICY, Some("no-store")),
        ("/healthz", POLICY, Some("no-store")),
        ("/openapi.json", POLICY, Some("no-store")),
        ("/v2/", POLICY, None),
        ("/tabcdefghijklmnopqrst/task.iso", None, Some("no-store")),
        ("/media/tasks/x/task.iso", None, Some("no-store")),
    ] {
        let response = scene.anonymous().get(place).await;
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{place}");
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"), "{place}");
        assert_eq!(response.header("content-security-policy"), policy, "{place}");
        assert_eq!(response.header("strict-transport-security"), None, "{place}: plain HTTP");
        if cache.is_some() {
            assert_eq!(response.header("cache-control"), cache, "{place}");
        }
    }
    scene.end().await;
}
