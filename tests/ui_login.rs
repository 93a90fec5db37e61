//! Forms of the web interface before and at the login: what a stranger and another site may send.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::ui::{Browser, PASSWORD, scene};

/// The paths of all pages that take a form, from the table of routes, with a word for each parameter.
fn forms() -> Vec<String> {
    routes(|route| route.contains("post("))
}

/// The paths of the routes whose text is meant.
fn routes(meant: impl Fn(&str) -> bool) -> Vec<String> {
    let routes = include_str!("../web/src/lib.rs").replace(char::is_whitespace, "");
    let of_route = routes.split(".route(").skip(1);
    let with_form = of_route.filter(|route| meant(route));
    let path = |route: &str| route.trim_start_matches('"').split('"').next().unwrap().to_owned();
    with_form
        .map(path)
        .map(|path| {
            path.replace("{serial}", "S").replace("{id}", "1").replace("{verb}", "v").replace("{name}", "n")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_form_is_read_before_its_caller_is_known() {
    let scene = scene(vec![]).await;
    let stranger = Browser::stranger(&scene);
    let forms = forms();
    assert!(forms.len() > 20 && forms.contains(&"/ui/servers/import".to_owned()), "{forms:?}");
    for place in forms.iter().filter(|place| !["/ui/login", "/ui/theme"].contains(&place.as_str())) {
        // A page that reads the form first refuses its type.
        let request = scene.anonymous().request(Method::POST, place);
        let request = request.header("Content-Type", "text/plain").body("x".repeat(1 << 10));
        let sent = stranger.send(request.header("Sec-Fetch-Site", "same-origin")).await;
        assert!(
            (303, true) == (sent.status, sent.leads_to().starts_with("/ui/login")),
            "{place}: {}",
            sent.status
        );
    }
    for place in ["/ui/login", "/ui/theme"] {
        let long = "x".repeat(64 << 10);
        let sent = stranger.post(place, &[("user", &long)]).await;
        assert_eq!(sent.status, 413, "{place}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_after_a_form_leads_to_a_page_that_is_shown() {
    let scene = scene(vec![]).await;
    scene.admin.register_at("S", "http://127.0.0.1:1").await;
    let expired = Browser::log_in(&scene, "olga", PASSWORD).await;
    scene.skip(Duration::from_secs(61 * 60));
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let next_of = async |place: &str, referer: &str| {
        let request = scene.anonymous().request(Method::POST, place).header("Sec-Fetch-Site", "same-origin");
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        let sent = expired.send(request.header("Referer", referer).body("csrf=0")).await;
        let login = Browser::stranger(&scene).get(sent.leads_to()).await;
        assert!(login.html.contains("Your login has ended; nothing was done"), "{}", login.html);
        let next = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("next", &login.hidden("next").replace("&#38;", "&"))
            .finish();
        olga.get(&format!("/ui/login/done?{next}")).await.leads_to().to_owned()
    };
    let only_forms = routes(|route| route.contains("post(") && !route.contains("get("));
    assert!(only_forms.len() > 4 && only_forms.contains(&"/ui/drain/end".to_owned()), "{only_forms:?}");
    for place in only_forms.iter().filter(|place| *place != "/ui/theme") {
        for referer in ["https://elsewhere.example/ui/", &format!("{}{place}", scene.admin.base)] {
            let next = next_of(place, referer).await;
            let page = olga.get(&next).await;
            assert_eq!(page.status, 200, "{place} {referer}: {next}: {}", page.html);
        }
    }
    let at = format!("{}/ui/servers?q=site%3Da&done=server", scene.admin.base);
    assert_eq!(next_of("/ui/servers/S/probe", &at).await, "/ui/servers?q=site%3Da");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_form_may_grow_to_is_bounded() {
    let scene = scene(vec![]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let proof = olga.get("/ui/servers/import").await.hidden("csrf");
    let rows = format!("serial\n{}", "A\n".repeat(5001));
    let columns = format!("serial{}\n", ",label:x".repeat(300));
    let long = format!("k={}", "x".repeat(300));
    let labels: String = (0..40).map(|number| format!("k{number}=v ")).collect();
    for (text, labels, why) in [
        ("serial\nA\n", long.as_str(), "at most 32 labels of at most 257 bytes"),
        (rows.as_str(), "", "more than 5000 rows"),
        (columns.as_str(), "", "more than 256 fields"),
        ("serial\nA\n", labels.as_str(), "at most 32 labels"),
    ] {
        let sent =
            olga.post("/ui/servers/import", &[("csrf", &proof), ("text", text), ("labels", labels)]).await;
        assert!(sent.status == 400 && sent.html.contains(why), "{why}: {} {}", sent.status, sent.html);
    }
    let password = "x".repeat(2000);
    let fields = [("csrf", proof.as_str()), ("text", "serial\nA\n"), ("bmc_password", password.as_str())];
    let sent = olga.post("/ui/servers/import", &fields).await;
    assert!(sent.status == 400 && sent.html.contains("at most 1024 bytes"), "{}", sent.status);
    let serials = "A ".repeat(5001);
    let recipe = json!({}).to_string();
    let fields = [("csrf", proof.as_str()), ("serials", serials.as_str()), ("recipe", recipe.as_str())];
    let sent = olga.post("/ui/batches/new", &fields).await;
    assert!(sent.status == 400 && sent.html.contains("more than 5000 servers"), "{}", sent.status);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_site_logs_no_browser_in() {
    let scene = scene(vec![]).await;
    let stranger = Browser::stranger(&scene);
    let token = scene.admin.token().to_owned();
    for (user, password) in [("", token.as_str()), ("ann", PASSWORD)] {
        for (name, value) in [
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Site", "same-site"),
            ("Origin", "https://elsewhere.example"),
        ] {
            let body = url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs([("user", user), ("password", password)])
                .finish();
            let request = scene.anonymous().request(Method::POST, "/ui/login").header(name, value);
            let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(body);
            let sent = stranger.send(request).await;
            assert_eq!((sent.status, sent.header("set-cookie")), (403, None), "{name}: {value}");
            assert!(sent.html.contains("another site"), "{}", sent.html);
        }
    }
    scene.end().await;
}
