//! Webhooks through their pages: made, watched, given up, sent again, disabled, deleted.

use std::time::Duration;

use serde_json::json;

use crate::ui::{Browser, PASSWORD};
use crate::ui_changes::{fields, post};
use crate::webhooks::{Reaction, Receiver, SECRET, job, stir};

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_made_watched_and_its_dead_letter_is_sent_again() {
    let scene = crate::webhooks::scene().await;
    for (name, role) in [("ann", "admin"), ("ben", "viewer")] {
        let user = json!({ "name": name, "role": role, "password": PASSWORD });
        scene.admin.post("/api/v1/users", &user).await.expect(201);
    }
    let receiver = Receiver::good().await;
    let id = job(&scene.admin, "OUT-1").await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let form = ann.get("/ui/webhooks/new").await;
    let short = [("url", receiver.url.as_str()), ("secret", "short-canary"), ("types", ""), ("labels", "")];
    let refused = post(&ann, "/ui/webhooks/new", &fields(&form, &["csrf"], &short)).await;
    assert!(refused.status == 400 && refused.html.contains("<b>Secret:</b>"), "{}", refused.html);
    let entered = [("url", receiver.url.as_str()), ("secret", SECRET), ("types", ""), ("labels", "")];
    let made = post(&ann, "/ui/webhooks/new", &fields(&form, &["csrf"], &entered)).await;
    let page = made.leads_to().trim_end_matches("?done=webhook").to_owned();
    let hook = page.rsplit('/').next().unwrap().to_owned();
    let shown = ann.get(&page).await;
    for secret in ["short-canary", SECRET, "token-in-path"] {
        assert!(!refused.html.contains(secret) && !shown.html.contains(secret), "{secret} is in no page");
    }

    // One event is refused until it is a dead letter.
    receiver.now(|event| Reaction::Respond(if event["type"] == "run.held" { 400 } else { 200 }));
    stir(&scene.admin, &id).await;
    let place = format!("/api/v1/webhooks/{hook}");
    scene.admin.until(&place, "a retried job", |response| response.json()["retrying"] == json!(1)).await;
    let shown = ann.get(&page).await;
    assert!(shown.html.contains("Next attempt") && shown.html.contains("1 attempt"), "{}", shown.html);
    scene.skip(Duration::from_secs(25 * 3600));
    scene.admin.until(&place, "a dead letter", |response| response.json()["dead_letters"] == json!(1)).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    let dead = scene.admin.get(&format!("{place}/dead-letters")).await.expect(200);
    let seq = dead["dead_letters"][0]["seq"].to_string();
    let again = format!("{page}/redeliver?seq={seq}");
    assert!(ann.get(&page).await.html.contains(&again));
    let seen = ben.get(&page).await;
    assert!(seen.html.contains("run.held") && !seen.html.contains("/redeliver"), "{}", seen.html);
    assert!(ben.get("/ui/webhooks").await.html.contains(&page));

    let question = ann.get(&format!("{page}/test")).await;
    let tested = post(&ann, &format!("{page}/test"), &fields(&question, &["csrf"], &[])).await;
    assert!(tested.status == 200 && tested.html.contains("Accepted"), "{}", tested.html);

    receiver.now(|_| Reaction::Respond(200));
    let question = ann.get(&again).await;
    assert_eq!(question.hidden("seq"), seq);
    let foreign = [("csrf", ben.get("/ui/account").await.hidden("csrf")), ("seq", seq.clone())];
    for verb in ["redeliver", "disable", "enable", "delete"] {
        assert_eq!(
            post(&ben, &format!("{page}/{verb}"), &foreign).await.status,
            403,
            "{verb}: a viewer changes nothing"
        );
    }
    let sent = fields(&question, &["csrf", "seq"], &[]);
    let place_of_verb = format!("{page}/redeliver");
    assert_eq!(
        post(&ann, &place_of_verb, &sent[1..]).await.status,
        403,
        "a form needs the proof of its session"
    );
    let wrong = [sent[0].clone(), ("seq", "1".to_owned())];
    let unknown = post(&ann, &place_of_verb, &wrong).await;
    assert!(unknown.status == 404 && unknown.html.contains("is not a dead letter"), "{}", unknown.html);
    assert_eq!(post(&ann, &place_of_verb, &sent).await.leads_to(), format!("{page}?done=redeliver"));
    scene.admin.until(&place, "no dead letter", |response| response.json()["dead_letters"] == json!(0)).await;

    // Disabled, enabled, deleted.
    for (verb, done, disabled) in
        [("disable", "webhook-disabled", true), ("enable", "webhook-enabled", false)]
    {
        let question = ann.get(&format!("{page}/{verb}")).await;
        let sent = fields(&question, &["csrf"], &[("reason", "a <b>test</b>")]);
        assert_eq!(
            post(&ann, &format!("{page}/{verb}"), &sent).await.leads_to(),
            format!("{page}?done={done}")
        );
        let shown = ann.get(&page).await;
        assert_eq!(shown.html.contains("a &#60;b&#62;test"), disabled, "{}", shown.html);
    }
    let question = ann.get(&format!("{page}/delete")).await;
    let deleted = post(&ann, &format!("{page}/delete"), &fields(&question, &["csrf"], &[])).await;
    assert_eq!(deleted.leads_to(), "/ui/webhooks?done=webhook-deleted");
    assert_eq!(ann.get(&page).await.status, 404);
    assert_eq!(ann.get("/ui/webhooks/not-an-id").await.status, 404);
    assert_eq!(ben.get("/ui/webhooks/new").await.status, 403);
    scene.end().await;
}
