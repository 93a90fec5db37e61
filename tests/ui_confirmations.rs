//! Confirmations of many: a change is for what its preview showed.

use serde_json::{Value, json};

use crate::kit::{recipe, silent};
use crate::ui::{Browser, PASSWORD, scene};
use crate::ui_changes::{fields, post};

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_is_for_what_was_shown_and_not_for_as_many_others() {
    let scene = scene(["CNF-1", "CNF-2"].map(silent).to_vec()).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let north = async |serial: &str, site: Value| {
        let labels = json!({ "labels": { "site": site } });
        scene.admin.patch(&format!("/api/v1/servers/{serial}"), &labels).await.expect(200);
    };
    north("CNF-1", json!("north")).await;

    // Servers: a new batch and a probe, each previewed with the first server in the north and sent with the second one there.
    let recipe = recipe().to_string();
    let entered = [("q", "site=north"), ("recipe", recipe.as_str())];
    let form = olga.get("/ui/batches/new").await;
    let mut sent = fields(&form, &["csrf", "key"], &entered);
    sent.push(("do", "preview".to_owned()));
    let preview = post(&olga, "/ui/batches/new", &sent).await;
    let mut batch = fields(&preview, &["csrf", "key", "selection"], &entered);
    batch.push(("do", "yes".to_owned()));
    let place = "/ui/servers/selection/probe";
    let question = olga.get(&format!("{place}?q=site%3Dnorth")).await;
    let probe = fields(&question, &["csrf", "q", "selection"], &[]);
    north("CNF-1", Value::Null).await;
    north("CNF-2", json!("north")).await;
    let refused = post(&olga, "/ui/batches/new", &batch).await;
    assert!(refused.status == 400 && refused.html.contains("preview it again"), "{}", refused.html);
    assert_eq!(scene.admin.get("/api/v1/batches").await.expect(200)["batches"], json!([]));
    assert_eq!(post(&olga, place, &probe).await.status, 412);
    assert_eq!(scene.bmc("CNF-2").snapshot().requests, 0, "nothing was read");

    // Jobs: a cancel and a resume, each previewed with the first job and sent with the second one in its place.
    let first = scene.admin.create_job("CNF-1").await;
    scene.admin.awaits_report(&first).await;
    let hold = async |job: &str| {
        scene.admin.post(&format!("/api/v1/jobs/{job}/hold"), &json!({})).await.expect(202);
        scene.wait_skipping(job, "the hold", |job| job["hold"].is_object()).await;
    };
    hold(&first).await;
    let preview = async |verb: &str| {
        let filter = "serial%3ACNF-*%20-condition%3Aended";
        olga.get(&format!("/ui/jobs/selection/{verb}?q={filter}")).await
    };
    let (resume, cancel) = (preview("resume").await, preview("cancel").await);
    assert!(resume.html.contains("Resume 1 job?") && cancel.html.contains("Cancel 1 job?"));
    scene.admin.post(&format!("/api/v1/jobs/{first}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&first).await;
    let second = scene.admin.create_job("CNF-2").await;
    scene.admin.awaits_report(&second).await;
    hold(&second).await;
    for (verb, page) in [("resume", &resume), ("cancel", &cancel)] {
        let sent = fields(page, &["csrf", "q", "expected", "selection"], &[("reason", "a test")]);
        let refused = post(&olga, &format!("/ui/jobs/selection/{verb}"), &sent).await;
        assert_eq!(refused.status, 412, "{verb}: {}", refused.html);
        assert!(
            refused.html.contains("CNF-2") && refused.html.contains("nothing was done"),
            "{}",
            refused.html
        );
        let job = scene.admin.job(&second).await;
        assert!(job["hold"].is_object() && job["outcome"].is_null(), "{verb}: {job}");
    }
    let sent = fields(&preview("cancel").await, &["csrf", "q", "expected", "selection"], &[]);
    assert!(
        post(&olga, "/ui/jobs/selection/cancel", &sent).await.leads_to().ends_with("&done=cancelled-all")
    );
    assert_eq!(scene.complete_skipping(&second).await["outcome"], "cancelled");
    scene.end().await;
}
