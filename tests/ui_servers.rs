//! One server through its pages: changed, deleted, released after a restore.

use serde_json::json;

use crate::kit::{Scene, TIME_LIMIT, healthy, recipe, silent};
use crate::ui::{Browser, PASSWORD, Page, scene};
use crate::ui_changes::{fields, post};

/// The names of the fields that the form of a server shows.
const SHOWN: [&str; 6] =
    ["bmc_address", "bmc_username", "vendor", "bmc_profile", "tls_fingerprint", "media_base_url"];

/// The form of a server as it is shown, with other values for some fields.
fn form<'a>(page: &Page, labels: &str, others: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
    let value = |name: &str| {
        let field = page.html.split_once(&format!("name=\"{name}\"")).unwrap().1.split('>').next().unwrap();
        let value = field.split_once(" value=\"").unwrap().1.split('"').next().unwrap();
        value.to_owned()
    };
    let chosen = page.html.split_once("\" selected>").unwrap().0.rsplit('"').next().unwrap().to_owned();
    let mut sent: Vec<(&str, String)> = SHOWN.iter().map(|name| (*name, value(name))).collect();
    sent.push(("labels", labels.to_owned()));
    sent.push(("tls", chosen));
    sent.retain(|(name, _)| !others.iter().any(|(other, _)| other == name));
    sent.extend(fields(page, &["csrf", "revision"], others));
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_changed_after_a_preview_of_what_differs() {
    let scene = scene(vec![silent("EDT-1"), silent("EDT-2")]).await;
    let (olga, ben) =
        (Browser::log_in(&scene, "olga", PASSWORD).await, Browser::log_in(&scene, "ben", PASSWORD).await);
    let server = async || scene.admin.get("/api/v1/servers/EDT-1").await.expect(200);
    let before = server().await;
    let place = "/ui/servers/EDT-1/edit";
    assert!(olga.get("/ui/servers/EDT-1").await.html.contains(place));
    assert!(!ben.get("/ui/servers/EDT-1").await.html.contains(place));
    let page = olga.get(place).await;
    let labels = "rack=r9\r\nsite=the quay\r\n";
    let changed = form(&page, labels, &[("vendor", "Contoso"), ("bmc_password", "canary-of-an-edit")]);
    let preview = post(&olga, place, &changed).await;
    assert_eq!(preview.status, 200, "{}", preview.html);
    for part in
        ["Change EDT-1?", "Label rack", ">r9<", "the quay", "Contoso", "BMC password", "Change the server"]
    {
        assert!(preview.html.contains(part), "{part}: {}", preview.html);
    }
    assert!(!preview.html.contains("canary-of-an-edit"), "a password is in no page");
    assert_eq!(server().await, before, "a preview writes nothing");

    // The change is for this server and this login.
    let sent = fields(&preview, &["csrf", "revision", "change"], &[]);
    let other = post(&olga, "/ui/servers/EDT-2/edit/confirm", &sent).await;
    assert_eq!(
        (other.status, other.html.contains("preview the change again")),
        (409, true),
        "{}",
        other.html
    );
    let mut foreign = sent.clone();
    foreign[0].1 = ben.get("/ui/account").await.hidden("csrf");
    assert_eq!(post(&ben, "/ui/servers/EDT-1/edit/confirm", &foreign).await.status, 409);
    let mut foreign = changed.clone();
    foreign.retain(|(name, _)| *name != "csrf");
    foreign.push(("csrf", ben.get("/ui/account").await.hidden("csrf")));
    assert_eq!(post(&ben, place, &foreign).await.status, 403, "a viewer changes nothing");
    foreign.retain(|(name, _)| *name != "csrf");
    assert_eq!(post(&olga, place, &foreign).await.status, 403, "a form needs the proof of its session");
    assert_eq!(server().await, before);

    let confirm = format!("{place}/confirm");
    assert_eq!(post(&olga, &confirm, &sent).await.leads_to(), "/ui/servers/EDT-1?done=server-changed");
    let after = server().await;
    assert_eq!(
        (&after["labels"], &after["vendor"]),
        (&json!({ "rack": "r9", "site": "the quay" }), &json!("Contoso"))
    );
    let again = post(&olga, &confirm, &sent).await;
    assert!(again.status == 400 && again.html.contains("has changed since it was read"), "{}", again.html);
    assert!(again.html.contains("site=the quay"), "the form has the values of now: {}", again.html);
    assert_eq!(server().await["revision"], after["revision"], "a form that is sent twice changes once");
    let audit = scene.admin.get("/api/v1/audit?action=server.change").await.expect(200);
    let done = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["result"] == "ok");
    assert_eq!(
        done.map(|entry| &entry["actor"]).collect::<Vec<_>>(),
        ["olga"],
        "a preview is no change: {audit}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_refused_says_why_in_its_form() {
    let scene = scene(vec![silent("EDT-1")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let place = "/ui/servers/EDT-1/edit";
    let page = olga.get(place).await;
    let refused = async |labels: &str, others: &[(&'static str, &str)], parts: &[&str]| {
        let refused = post(&olga, place, &form(&page, labels, others)).await;
        assert_eq!(refused.status, 400, "{others:?}: {}", refused.html);
        for part in parts {
            assert!(refused.html.contains(part), "{part}: {}", refused.html);
        }
    };
    refused("", &[], &["nothing is changed"]).await;
    refused("site", &[], &["KEY=VALUE", "site</textarea>", "aria-invalid"]).await;
    refused("", &[("quirks", "{")], &["<b>Quirks:</b>"]).await;
    refused("", &[("network", "{}x")], &["<b>Network:</b>"]).await;
    refused("", &[("network", r#"{"ethernets": 3}"#)], &["<b>Network /ethernets:</b>", "ethernets&#34;"])
        .await;
    refused("", &[("bmc_address", "not an address")], &["<b>BMC address:</b>", "value=\"not an address\""])
        .await;
    refused(
        "",
        &[("bmc_address", "https://192.0.2.7")],
        &["<b>BMC password:</b>", "is needed", "the address of the BMC changes"],
    )
    .await;
    // A change by another person in between: the form shows the values of now.
    let patch = scene
        .admin
        .request(reqwest::Method::PATCH, "/api/v1/servers/EDT-1")
        .json(&json!({ "vendor": "Fabrikam" }));
    scene.admin.send(patch).await.expect(200);
    refused(
        "a=b",
        &[("vendor", "Contoso")],
        &["has changed since", "value=\"Fabrikam\"", "enter your change again"],
    )
    .await;
    assert_eq!(olga.get("/ui/servers/NOT-THERE/edit").await.status, 404);
    // A token that sees some servers changes none of them.
    let token = json!({ "name": "north", "role": "operator", "labels": { "site": "north" } });
    let token =
        scene.admin.post("/api/v1/tokens", &token).await.expect(201)["token"].as_str().unwrap().to_owned();
    scene
        .admin
        .send(
            scene
                .admin
                .request(reqwest::Method::PATCH, "/api/v1/servers/EDT-1")
                .json(&json!({ "labels": { "site": "north" } })),
        )
        .await
        .expect(200);
    let north = Browser::log_in(&scene, "", &token).await;
    let shown = north.get("/ui/servers/EDT-1").await;
    assert!(
        shown.status == 200 && !shown.html.contains("/edit") && !shown.html.contains("/delete"),
        "{}",
        shown.html
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fingerprint_that_was_entered_before_the_first_contact_stored_one_replaces_none() {
    let scene = scene(vec![silent("PIN-1")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let place = "/ui/servers/PIN-1/edit";
    let (entered, pinned) = ("ab".repeat(32), "cd".repeat(32));
    let sent = form(&olga.get(place).await, "", &[("tls_fingerprint", &entered), ("bmc_password", "secret")]);
    let preview = post(&olga, place, &sent).await;
    assert_eq!(preview.status, 200, "{}", preview.html);
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    database.busy_timeout(TIME_LIMIT).unwrap();
    let pin = "UPDATE servers SET tls_fingerprint = ?1 WHERE serial = 'PIN-1'";
    assert_eq!(database.execute(pin, [&pinned]).unwrap(), 1);
    // What another program wrote is noticed with the next transaction of the controller.
    Browser::log_in(&scene, "olga", PASSWORD).await;
    let confirm = fields(&preview, &["csrf", "revision", "change"], &[]);
    let refused = post(&olga, &format!("{place}/confirm"), &confirm).await;
    assert_eq!(refused.status, 400, "{}", refused.html);
    assert!(refused.html.contains("was entered before the first contact stored"), "{}", refused.html);
    let server = scene.admin.get("/api/v1/servers/PIN-1").await.expect(200);
    assert_eq!(server["tls_fingerprint"], json!(pinned));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_deleted_after_a_question_and_one_with_jobs_stays() {
    let scene = scene(vec![healthy("DEL-1"), silent("DEL-2")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let question = olga.get("/ui/servers/DEL-1/delete").await;
    assert!(question.html.contains("Delete the server"), "{}", question.html);
    let job = scene.admin.create_job("DEL-1").await;
    scene.complete_skipping(&job).await;
    let sent = fields(&question, &["csrf"], &[]);
    for page in
        [post(&olga, "/ui/servers/DEL-1/delete", &sent).await, olga.get("/ui/servers/DEL-1/delete").await]
    {
        assert!([200, 409].contains(&page.status), "{}", page.html);
        assert!(
            page.html.contains("JOB_RETENTION_DAYS") && page.html.contains("/ui/jobs?q=serial%3ADEL-1"),
            "{}",
            page.html
        );
        assert!(!page.html.contains("Delete the server<"), "{}", page.html);
    }
    scene.admin.get("/api/v1/servers/DEL-1").await.expect(200);
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    let foreign = [("csrf", ben.get("/ui/account").await.hidden("csrf"))];
    assert_eq!(post(&ben, "/ui/servers/DEL-2/delete", &foreign).await.status, 403);
    assert_eq!(post(&olga, "/ui/servers/DEL-2/delete", &[]).await.status, 403, "a form needs its proof");
    assert_eq!(
        post(&olga, "/ui/servers/DEL-2/delete", &sent).await.leads_to(),
        "/ui/servers?done=server-deleted"
    );
    assert_eq!(olga.get("/ui/servers/DEL-2").await.status, 404);
    scene.end().await;
}

/// Marks a server as if its data were restored.
fn mark_as_restored(scene: &Scene, serial: &str) {
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    database.busy_timeout(TIME_LIMIT).unwrap();
    let restored =
        r#"{"since":"2026-01-01T00:00:00.000Z","as_of":"2026-01-01T00:00:00.000Z","reason":"a <b>test</b>"}"#;
    let marked =
        database.execute("UPDATE servers SET restored = ?1 WHERE serial = ?2", [restored, serial]).unwrap();
    assert_eq!(marked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_server_is_compared_with_its_machine_and_released() {
    let scene = scene(vec![silent("RES-1")]).await;
    let job = scene.admin.create_job("RES-1").await;
    scene.admin.awaits_report(&job).await;
    mark_as_restored(&scene, "RES-1");
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let place = "/ui/servers/RES-1/release";
    assert!(olga.get("/ui/servers/RES-1").await.html.contains(place));
    let question = olga.get(place).await;
    for part in
        ["a &#60;b&#62;test", "What the BMC shows", "What the data says", &job, "Slot ", "Unfinished jobs"]
    {
        assert!(question.html.contains(part), "{part}: {}", question.html);
    }
    let undecided = post(&olga, place, &fields(&question, &["csrf"], &[("jobs", "")])).await;
    assert!(undecided.status == 409 && undecided.html.contains("has unfinished jobs"), "{}", undecided.html);
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    assert_eq!(ben.get(place).await.status, 403, "a comparison reads the BMC, which a viewer may not");
    let sent = fields(&question, &["csrf"], &[("jobs", "continue")]);
    assert_eq!(post(&olga, place, &sent).await.leads_to(), "/ui/servers/RES-1?done=released");
    assert!(scene.admin.get("/api/v1/servers/RES-1").await.expect(200)["restored"].is_null());
    assert!(!olga.get("/ui/servers/RES-1").await.html.contains(place));
    assert!(olga.get(place).await.html.contains("The server is released"));
    scene.admin.post(&format!("/api/v1/jobs/{job}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&job).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_job_shows_the_boot_mode_of_its_machine() {
    let scene = scene(vec![healthy("UI-MODE")]).await;
    let job = scene.admin.create_job("UI-MODE").await;
    assert_eq!(scene.complete_skipping(&job).await["outcome"], "succeeded");
    let shown = scene.admin.get("/api/v1/servers/UI-MODE").await.expect(200);
    assert_eq!(shown["observed"]["boot_mode"], "UEFI", "{shown:#}");
    let page = Browser::log_in(&scene, "olga", PASSWORD).await.get(&format!("/ui/jobs/{job}")).await;
    assert!(page.html.contains("<dt>Boot mode</dt><dd>UEFI</dd>"), "{}", page.html);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_installation_is_compared_with_the_last_success_of_its_server() {
    let scene = scene(vec![silent("UI-LAST")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let install = async |status: &str, after: Option<&str>| {
        let mut recipe = recipe();
        if let Some(after) = after {
            recipe["after"] = json!(after);
        }
        let order = json!({ "server_serial": "UI-LAST", "recipe": recipe });
        let created = scene.admin.post("/api/v1/jobs", &order).await.expect(202);
        let job = created["job_id"].as_str().unwrap().to_owned();
        scene.admin.awaits_report(&job).await;
        let token = scene.admin.job_document(&job).await["webhook_token"].as_str().unwrap().to_owned();
        let mut report = json!({ "job_id": job, "status": status });
        if status == "failed" {
            report["failed_step"] = json!("image-linux.service");
        }
        scene.admin.report("UI-LAST", &token, &report).await.expect(200);
        let outcome = scene.complete_skipping(&job).await["outcome"].as_str().unwrap().to_owned();
        let page = olga.get(&format!("/ui/jobs/{job}")).await.html;
        assert!(page.contains("<h2 id=\"re\">Recipe</h2>"), "{page}");
        (job, outcome, page)
    };
    let (_, outcome, page) = install("failed", None).await;
    assert_eq!((outcome.as_str(), page.contains("Against the last success")), ("failed", false), "{page}");
    let (success, outcome, page) = install("success", None).await;
    assert_eq!((outcome.as_str(), page.contains("Against the last success")), ("succeeded", false), "{page}");
    let (_, _, page) = install("failed", None).await;
    assert!(page.contains("Recipe and machine are as they were"), "{page}");
    let (_, _, page) = install("failed", Some("off")).await;
    let card = page.split("Against the last success").nth(1).and_then(|card| card.split("</section>").next());
    let card = card.unwrap_or_else(|| panic!("no card: {page}"));
    assert!(card.contains(&format!("/ui/jobs/{success}")), "{card}");
    assert!(
        card.contains("<dt>Afterwards</dt><dd><del class=\"quiet\">none</del> <b>off</b></dd>"),
        "{card}"
    );
    assert!(card.contains("The same: ") && card.contains("Disk"), "{card}");
    scene.end().await;
}
