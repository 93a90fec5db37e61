//! The web interface over the socket: headers, logins, roles, forms, and pages with ten thousand jobs.

use std::collections::BTreeMap;

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::kit::{Scene, healthy, silent};

pub(crate) const PASSWORD: &str = "correct horse battery staple";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page or its refusal.
pub(crate) struct Page {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) html: String,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Where a redirect leads.
    pub(crate) fn leads_to(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.html);
        self.header("location").unwrap()
    }

    /// The value of a hidden field.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let field = format!("name=\"{name}\" value=\"");
        let rest = self.html.split_once(&field).unwrap_or_else(|| panic!("no field {name}: {}", self.html)).1;
        rest.split('"').next().unwrap().to_owned()
    }
}

/// A browser that follows no redirect by itself.
pub(crate) struct Browser<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) cookie: String,
}

impl<'a> Browser<'a> {
    pub(crate) fn stranger(scene: &'a Scene) -> Self {
        Self { scene, cookie: String::new() }
    }

    /// Logs in by the form.
    pub(crate) async fn log_in(scene: &'a Scene, user: &str, password: &str) -> Self {
        let stranger = Self::stranger(scene);
        let page =
            stranger.post("/ui/login", &[("user", user), ("password", password), ("next", "/ui/jobs")]).await;
        assert_eq!(page.leads_to(), "/ui/login/done?next=%2Fui%2Fjobs");
        let set = page.header("set-cookie").unwrap();
        let (cookie, attributes) = set.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict");
        Self { scene, cookie: cookie.to_owned() }
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Page {
        let request = match self.cookie.as_str() {
            "" => request,
            cookie => request.header("Cookie", cookie),
        };
        let response = request.header("Sec-Fetch-Mode", "navigate").send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Page { status, headers, html: response.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, place: &str) -> Page {
        self.send(self.scene.anonymous().request(Method::GET, place)).await
    }

    pub(crate) async fn post(&self, place: &str, fields: &[(&str, &str)]) -> Page {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.scene.anonymous().request(Method::POST, place);
        let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(body);
        self.send(request.header("Sec-Fetch-Site", "same-origin")).await
    }
}

pub(crate) async fn scene(specs: Vec<lab_machines::ServerSpec>) -> Scene {
    let scene = Scene::start(specs).await;
    for (name, role) in [("ann", "admin"), ("olga", "operator"), ("ben", "viewer")] {
        let new = json!({ "name": name, "role": role, "password": PASSWORD });
        scene.admin.post("/api/v1/users", &new).await.expect(201);
    }
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_its_headers_and_is_for_a_login_only() {
    let scene = scene(vec![healthy("UI-1")]).await;
    let job = scene.admin.create_job("UI-1").await;
    scene.complete_skipping(&job).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let stranger = Browser::stranger(&scene);
    let job = format!("/ui/jobs/{job}");
    let places = [
        "/ui/",
        "/ui/jobs",
        &job,
        "/ui/jobs/new",
        "/ui/servers",
        "/ui/servers/UI-1",
        "/ui/servers/new",
        "/ui/registry",
        "/ui/events",
        "/ui/settings",
        "/ui/users",
        "/ui/audit",
        "/ui/batches",
        "/ui/account",
        "/ui/find?q=UI",
        "/ui/drain",
        "/ui/login",
        "/ui/servers/UI-1/maintenance",
        "/ui/servers/UI-1/condition",
        "/ui/servers/UI-1/condition?kind=bmcReset",
        "/ui/servers/UI-1/diagnostics",
        "/ui/servers/UI-1/edit",
        "/ui/servers/UI-1/delete",
        "/ui/servers/UI-1/release",
        "/ui/servers/import",
        "/ui/servers/selection/probe?q=serial%3AUI-1",
        "/ui/jobs/selection/retry?q=serial%3AUI-1",
        "/ui/jobs/selection/cancel?q=serial%3AUI-1",
        "/ui/batches/new?q=serial%3AUI-1",
        "/ui/registry/os-images/ubuntu-rootfs",
        "/ui/media",
        "/ui/media?server=UI-1&image=boot",
        "/ui/media?show=ended",
        "/ui/firmware",
        "/ui/webhooks",
        "/ui/webhooks/new",
        "/ui/users/new",
        "/ui/users/olga",
        "/ui/users/olga/delete",
        "/ui/tokens/new",
        "/ui/account/password",
        "/ui/account/sessions/end",
    ];
    for place in places {
        let page = ann.get(place).await;
        assert_eq!(page.status, 200, "{place}: {}", page.html);
        assert!(page.html.starts_with("<!doctype html>"), "{place}");
        assert!(page.html.len() < 64 << 10, "{place} has {} bytes", page.html.len());
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("x-frame-options", "DENY"),
            ("cross-origin-opener-policy", "same-origin"),
            ("content-type", "text/html; charset=utf-8"),
        ] {
            assert_eq!(page.header(name), Some(value), "{place}");
        }
        if place != "/ui/login" {
            let refused = stranger.get(place).await;
            assert!(refused.leads_to().starts_with("/ui/login?next=%2Fui%2F"), "{place}");
            assert_eq!(refused.header("content-security-policy"), Some(POLICY), "{place}");
        }
    }
    // Assets are kept for ever under the name of their content; other names do not exist.
    let page = ann.get("/ui/").await;
    for kind in ["stylesheet\" href=\"", "<script src=\""] {
        let path = page.html.split_once(kind).unwrap().1.split('"').next().unwrap();
        let asset = stranger.get(path).await;
        assert_eq!(asset.status, 200, "{path}");
        assert_eq!(asset.header("cache-control"), Some("public, max-age=31536000, immutable"));
    }
    assert_eq!(stranger.get("/ui/assets/shoal.css").await.status, 404);
    let unknown = ann.get("/ui/nothing").await;
    assert_eq!((unknown.status, unknown.html.contains("no page has this address")), (404, true));
    let missing = ann.get("/ui/servers/NOT-THERE").await;
    assert_eq!((missing.status, missing.html.contains("is not registered")), (404, true));
    assert_eq!(stranger.get("/").await.leads_to(), "/ui/");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_kept_in_a_cookie_and_ends_with_a_logout() {
    let scene = scene(vec![]).await;
    let stranger = Browser::stranger(&scene);
    let refused = stranger.post("/ui/login", &[("user", "ann"), ("password", "wrong")]).await;
    assert_eq!((refused.status, refused.header("set-cookie")), (401, None));
    assert!(refused.header("www-authenticate").is_none(), "a browser would ask in its own window");
    assert!(refused.html.contains("are not valid") && !refused.html.contains("wrong"), "{}", refused.html);
    // A browser that did not keep the cookie learns why, and goes round in no circle.
    let lost = stranger.get("/ui/login/done?next=%2Fui%2F").await;
    assert_eq!((lost.status, lost.html.contains("did not keep the login")), (400, true));
    // A token logs in without a user, and no page shows it.
    let token = scene.admin.token().to_owned();
    let browser = Browser::log_in(&scene, "", &token).await;
    assert_eq!(browser.get("/ui/login/done?next=%2Fui%2Fjobs").await.leads_to(), "/ui/jobs");
    assert_eq!(browser.get("/ui/login/done?next=https%3A%2F%2Fevil.example").await.leads_to(), "/ui/");
    let page = browser.get("/ui/account").await;
    assert!(page.status == 200 && !page.html.contains(&token));
    let out = browser.post("/ui/logout", &[("csrf", &page.hidden("csrf"))]).await;
    assert_eq!(out.leads_to(), "/ui/login");
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert!(browser.get("/ui/").await.leads_to().starts_with("/ui/login"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_needs_the_proof_of_its_session() {
    let scene = scene(vec![silent("UI-1")]).await;
    let job = scene.admin.create_job("UI-1").await;
    scene.wait_skipping(&job, "the report", |job| job["wait"]["reason"] == "report").await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let other = Browser::log_in(&scene, "ann", PASSWORD).await;
    let cancel = format!("/ui/jobs/{job}/cancel");
    let (own, foreign) = (ann.get(&cancel).await.hidden("csrf"), other.get(&cancel).await.hidden("csrf"));
    for proof in ["", "0123", foreign.as_str()] {
        let refused = ann.post(&cancel, &[("csrf", proof), ("reason", "a test")]).await;
        assert_eq!((refused.status, refused.html.contains("csrf")), (403, true), "{proof}");
    }
    let request = scene.anonymous().request(Method::POST, &cancel);
    let request =
        request.header("Content-Type", "application/x-www-form-urlencoded").body(format!("csrf={own}"));
    let refused = ann.send(request.header("Sec-Fetch-Site", "cross-site")).await;
    assert_eq!(refused.status, 403, "a page of another site");
    assert_eq!(scene.admin.job(&job).await["wait"]["reason"], "report", "nothing was cancelled");
    let done = ann.post(&cancel, &[("csrf", &own), ("reason", "a <b>test</b>")]).await;
    assert_eq!(done.leads_to(), format!("/ui/jobs/{job}?done=cancel"));
    let ended = scene.complete_skipping(&job).await;
    assert_eq!(ended["outcome"], "cancelled");
    let audit = scene.admin.get("/api/v1/audit?action=job.cancel").await.expect(200);
    // The sum of the refused requests may stand before it.
    let entries = audit["entries"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["result"] == "ok");
    assert_eq!(entry.map(|entry| &entry["actor"]), Some(&json!("ann")), "{audit}");
    let page = ann.get(&format!("/ui/jobs/{job}")).await;
    assert!(page.html.contains("a &#60;b&#62;test"), "the reason is data: {}", page.html);

    // A retry under the key of its page is made once.
    let retry = format!("/ui/jobs/{job}/retry");
    let question = ann.get(&retry).await;
    let fields = [("csrf", question.hidden("csrf")), ("key", question.hidden("key"))];
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let first = ann.post(&retry, &fields).await.leads_to().to_owned();
    assert_ne!(first, format!("/ui/jobs/{job}?done=retry"));
    assert_eq!(ann.post(&retry, &fields).await.leads_to(), first);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_sees_and_does_what_it_may() {
    let scene = scene(vec![healthy("UI-1")]).await;
    let job = scene.admin.create_job("UI-1").await;
    scene.complete_skipping(&job).await;
    let (olga, ben) =
        (Browser::log_in(&scene, "olga", PASSWORD).await, Browser::log_in(&scene, "ben", PASSWORD).await);
    let page = format!("/ui/jobs/{job}");
    let retry = format!("{page}/retry");
    assert!(olga.get(&page).await.html.contains(&retry));
    assert!(!ben.get(&page).await.html.contains(&retry));
    assert!(!ben.get("/ui/servers").await.html.contains("/ui/servers/new"));
    let proof = ben.get("/ui/account").await.hidden("csrf");
    for place in [retry.as_str(), "/ui/servers/UI-1/maintenance", "/ui/drain", "/ui/servers/UI-1/probe"] {
        let refused = ben.post(place, &[("csrf", &proof)]).await;
        assert_eq!((refused.status, refused.html.contains("no permission")), (403, true), "{place}");
    }
    // A viewer sees no form and no question of a change.
    for place in [
        "/ui/jobs/new",
        "/ui/batches/new",
        "/ui/servers/new",
        "/ui/servers/import",
        "/ui/servers/UI-1/edit",
        "/ui/servers/UI-1/condition",
        "/ui/servers/UI-1/maintenance",
        "/ui/drain",
        retry.as_str(),
    ] {
        let (seen, refused) = (olga.get(place).await, ben.get(place).await);
        assert_eq!((seen.status, refused.status), (200, 403), "{place}");
        assert!(refused.html.contains("ben has no permission"), "{place}: {}", refused.html);
    }
    for place in ["/ui/settings", "/ui/users", "/ui/audit"] {
        assert_eq!((olga.get(place).await.status, ben.get(place).await.status), (403, 403), "{place}");
    }
    // Add, look, put into maintenance and back, as an operator.
    let proof = olga.get("/ui/servers/new").await.hidden("csrf");
    let mut fields: BTreeMap<&str, &str> = [
        ("csrf", proof.as_str()),
        ("serial", "UI-2"),
        ("bmc_address", "http://127.0.0.1:9"),
        ("bmc_username", "u"),
        ("bmc_password", "canary-of-a-form"),
        ("labels", "site"),
    ]
    .into();
    let post = async |fields: &BTreeMap<&str, &str>| {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, *value)).collect();
        olga.post("/ui/servers/new", &fields).await
    };
    let refused = post(&fields).await;
    assert_eq!((refused.status, refused.html.contains("KEY=VALUE")), (400, true), "{}", refused.html);
    assert!(!refused.html.contains("canary-of-a-form"), "a password is not shown again");
    fields.insert("labels", "site=north");
    assert_eq!(post(&fields).await.leads_to(), "/ui/servers/UI-2?done=server");
    let probed = olga.post("/ui/servers/UI-1/probe", &[("csrf", &proof)]).await;
    assert_eq!(probed.leads_to(), "/ui/servers/UI-1?done=probed");
    let card = scene.admin.get("/api/v1/servers/UI-1/card").await.expect(200);
    assert!(card["card"]["slots"].is_array() && card["probed_at"].is_string(), "{card}");
    assert!(olga.get("/ui/servers/UI-1").await.html.contains("probed"));
    let begun = olga.post("/ui/servers/UI-1/maintenance", &[("csrf", &proof), ("reason", "rack")]).await;
    assert_eq!(begun.leads_to(), "/ui/servers/UI-1?done=maintenance");
    assert!(olga.get("/ui/servers/UI-1").await.html.contains("maintenance by olga"));
    let ended = olga.post("/ui/servers/UI-1/maintenance/end", &[("csrf", &proof)]).await;
    assert_eq!(ended.leads_to(), "/ui/servers/UI-1?done=maintenance-end");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_stay_small_with_ten_thousand_jobs_and_the_numbers_are_those_of_the_lists() {
    let scene = scene(vec![]).await;
    let database = scene.folder.path().join("data/provisioner.db");
    tokio::task::spawn_blocking(move || fill(&database)).await.unwrap();
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    for place in ["/ui/", "/ui/jobs", "/ui/jobs?q=outcome%3Afailed", "/ui/servers", "/ui/events"] {
        let page = ann.get(place).await;
        assert_eq!(page.status, 200, "{place}");
        assert!(page.html.len() < 64 << 10, "{place} has {} bytes", page.html.len());
    }
    let overview = scene.admin.get("/api/v1/overview").await.expect(200);
    let held = overview["open"].as_array().unwrap().iter().find(|group| group["state"] == "held").unwrap();
    let listed = scene.admin.get("/api/v1/jobs?limit=500&filter=condition:held,restored").await.expect(200);
    assert_eq!(held["jobs"], json!(listed["jobs"].as_array().unwrap().len()), "{overview}");
    assert_eq!(overview["failures"][0]["jobs"], json!(200), "{overview}");
    // Each link of "needs a person" lists what it counts.
    for group in overview["holds"].as_array().unwrap() {
        let class = group["class"].as_str().unwrap();
        let listed =
            scene.admin.get(&format!("/api/v1/jobs?limit=500&filter=hold:{class}")).await.expect(200);
        assert_eq!(group["jobs"], json!(listed["jobs"].as_array().unwrap().len()), "{group}");
        assert!(ann.get("/ui/").await.html.contains(&format!("/ui/jobs?q=hold%3A{class}")), "{group}");
    }
    for group in overview["failures"].as_array().unwrap() {
        let (class, step) = (group["class"].as_str().unwrap(), group["step"].as_str().unwrap());
        let filter = format!("failure:open class:{class} failed_step:{step}");
        let place = format!("/ui/jobs?q={}", filter.replace(' ', "%20").replace(':', "%3A"));
        let listed = scene.admin.get(&format!("/api/v1/jobs?limit=500&filter={filter}")).await.expect(200);
        assert_eq!(group["jobs"], json!(listed["jobs"].as_array().unwrap().len()), "{group}");
        assert!(group["jobs"] == 1 || ann.get("/ui/").await.html.contains(&place), "{place}");
    }
    scene.end().await;
}

/// Ten thousand ended jobs of two thousand servers, and 150 held ones.
fn fill(database: &std::path::Path) {
    let mut connection = rusqlite::Connection::open(database).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    let transaction = connection.transaction().unwrap();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    for server in 0..2000 {
        transaction
            .execute(
                "INSERT INTO servers (serial, id, bmc_address, bmc_username, bmc_password, labels, created_at, updated_at)
                 VALUES (?1, ?2, 'http://127.0.0.1:9', 'u', 'env:NONE', ?3, ?4, ?4)",
                rusqlite::params![
                    format!("S-{server:04}"),
                    uuid::Uuid::now_v7().to_string(),
                    format!(r#"{{"rack":"r{}","site":"north"}}"#, server % 50),
                    now
                ],
            )
            .unwrap();
    }
    let failure = r#"{"class":"media","step":"webhook.wait","summary":"the image was never read","next_action":"look"}"#;
    let hold = format!(
        r#"{{"class":"operator","detail":"held by ann","since":"{now}","remind_at":"{now}","verbs":["resume","cancel"]}}"#
    );
    for job in 0..10_150 {
        let id = uuid::Uuid::now_v7().to_string();
        let (phase, outcome) = match job {
            _ if job >= 10_000 => ("held", None),
            _ if job >= 9_800 => ("ended", Some("failed")),
            _ => ("ended", Some("succeeded")),
        };
        let failed = outcome == Some("failed");
        transaction
            .execute(
                "INSERT INTO runs (id, workflow, workflow_version, server, root, phase, outcome, hold, failure_class, failure,
                     queue, priority, deadline_at, progress_at, created_by, created_at, updated_at)
                 VALUES (?1, 'provision', 1, ?2, ?1, ?3, ?4, ?5, ?6, ?7, 'default', 0, ?8, ?8, 'ann', ?8, ?8)",
                rusqlite::params![
                    id,
                    format!("S-{:04}", job % 2000),
                    phase,
                    outcome,
                    (phase == "held").then_some(&hold),
                    failed.then_some("media"),
                    failed.then_some(failure),
                    now
                ],
            )
            .unwrap();
        transaction
            .execute("INSERT INTO run_inputs (run, input, plan) VALUES (?1, '{}', '[]')", [id])
            .unwrap();
    }
    transaction.commit().unwrap();
}
