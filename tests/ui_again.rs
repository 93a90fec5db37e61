//! Forms that are shown again with what was entered: after a refusal, under a used key, and after a new login.

use serde_json::{Value, json};

use crate::kit::{recipe, silent};
use crate::ui::{Browser, PASSWORD, scene};
use crate::ui_changes::{fields, post};

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_was_sent_before_makes_another_job_under_a_new_key() {
    let scene = scene(["AGN-1", "AGN-2"].map(silent).to_vec()).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let recipe = recipe().to_string();
    let place = "/ui/jobs/new";
    let form = olga.get(place).await;
    let of = |server: &'static str, priority: &'static str| {
        [("server", server), ("recipe", recipe.as_str()), ("priority", priority), ("do", "create")]
    };
    let made = post(&olga, place, &fields(&form, &["csrf", "key"], &of("AGN-1", "0"))).await;
    let first = made.leads_to().split(['/', '?']).nth(3).unwrap().to_owned();

    // The Back button shows the form as it was sent, with its key.
    let again = post(&olga, place, &fields(&form, &["csrf", "key"], &of("AGN-1", "5"))).await;
    assert_eq!(again.status, 400, "{}", again.html);
    for part in [format!("made the job {first}"), "value=\"AGN-1\"".to_owned()] {
        assert!(again.html.contains(&part), "{part}: {}", again.html);
    }
    assert_ne!(again.hidden("key"), form.hidden("key"));
    let sent = fields(&again, &["csrf", "key"], &of("AGN-2", "5"));
    let second = post(&olga, place, &sent).await.leads_to().to_owned();
    assert!(!second.contains(&first), "{second}");
    assert_eq!(post(&olga, place, &sent).await.leads_to(), second, "under its key it is made once");

    let place = "/ui/batches/new";
    let form = olga.get(place).await;
    let of = |serials: &'static str, number: &'static str| {
        [("serials", serials), ("recipe", recipe.as_str()), ("do", "yes"), ("expected", number)]
    };
    let made = post(&olga, place, &fields(&form, &["csrf", "key"], &of("AGN-1", "1"))).await;
    let first = made.leads_to().split(['/', '?']).nth(3).unwrap().to_owned();
    let again = post(&olga, place, &fields(&form, &["csrf", "key"], &of("AGN-1 AGN-2", "2"))).await;
    assert!(again.status == 400 && again.html.contains(&format!("made the batch {first}")), "{}", again.html);
    let sent = fields(&again, &["csrf", "key"], &of("AGN-1 AGN-2", "2"));
    assert!(!post(&olga, place, &sent).await.leads_to().contains(&first));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_registration_keeps_what_was_entered_and_leads_to_the_registered_server() {
    let scene = scene(vec![]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let place = "/ui/servers/new";
    let form = olga.get(place).await;
    let of = |address: &'static str| {
        [
            ("serial", "TWO-1"),
            ("bmc_address", address),
            ("bmc_username", "root"),
            ("bmc_password", "canary-of-a-form"),
        ]
    };
    let made = post(&olga, place, &fields(&form, &["csrf"], &of("http://127.0.0.1:1"))).await;
    assert_eq!(made.leads_to(), "/ui/servers/TWO-1?done=server");
    let refused = post(&olga, place, &fields(&form, &["csrf"], &of("http://127.0.0.1:2"))).await;
    assert_eq!(refused.status, 409, "{}", refused.html);
    for part in [
        "registered with other values",
        "value=\"http://127.0.0.1:2\"",
        "value=\"root\"",
        "href=\"/ui/servers/TWO-1/edit\"",
    ] {
        assert!(refused.html.contains(part), "{part}: {}", refused.html);
    }
    assert!(!refused.html.contains("canary-of-a-form"), "a password is not shown again");
    let server = scene.admin.get("/api/v1/servers/TWO-1").await.expect(200);
    assert_eq!(server["bmc_address"], "http://127.0.0.1:1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_an_earlier_login_is_shown_again_with_what_was_entered() {
    let scene = scene(vec![silent("PRF-1")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let former = Browser::log_in(&scene, "olga", PASSWORD).await;
    let mut entered: Value = recipe();
    entered["environment"] = json!({ "NOTE": "typed for an hour" });
    let entered = entered.to_string();
    for (place, others) in [
        ("/ui/jobs/new", vec![("server", "PRF-1"), ("recipe", &entered), ("do", "create")]),
        ("/ui/jobs/new", vec![("server", "PRF-1"), ("recipe", &entered), ("do", "preview")]),
        (
            "/ui/batches/new",
            vec![("serials", "PRF-1"), ("recipe", &entered), ("do", "yes"), ("expected", "1")],
        ),
    ] {
        let form = former.get(place).await;
        let again = post(&olga, place, &fields(&form, &["csrf", "key"], &others)).await;
        assert_eq!(again.status, 400, "{place}: {}", again.html);
        for part in ["typed for an hour", "PRF-1", "send it again"] {
            assert!(again.html.contains(part), "{place}: {part}: {}", again.html);
        }
        assert_eq!(again.hidden("csrf"), olga.get("/ui/account").await.hidden("csrf"));
        assert_eq!(again.hidden("key"), form.hidden("key"));
    }
    // Another site gives no browser a form to send.
    let body = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("csrf", ""), ("server", "PRF-1"), ("recipe", &entered), ("do", "create")])
        .finish();
    let request = scene.anonymous().request(reqwest::Method::POST, "/ui/jobs/new").body(body);
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let foreign = olga.send(request.header("Sec-Fetch-Site", "cross-site")).await;
    assert_eq!((foreign.status, foreign.html.contains("typed for an hour")), (403, false));
    assert_eq!(scene.admin.get("/api/v1/jobs").await.expect(200)["jobs"], json!([]), "nothing was made");
    scene.end().await;
}
