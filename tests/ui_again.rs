//! Forms that are shown again with what was entered: after a refusal, under a used key, and after a new login.

use serde_json::{Value, json};

use crate::kit::{healthy, recipe, silent};
use crate::ui::{Browser, PASSWORD, Page, scene};
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
    for part in [format!("made the job <a href=\"/ui/jobs/{first}\">"), "value=\"AGN-1\"".to_owned()] {
        assert!(again.html.contains(&part), "{part}: {}", again.html);
    }
    assert_ne!(again.hidden("key"), form.hidden("key"));
    let sent = fields(&again, &["csrf", "key"], &of("AGN-2", "5"));
    let second = post(&olga, place, &sent).await.leads_to().to_owned();
    assert!(!second.contains(&first), "{second}");
    assert_eq!(post(&olga, place, &sent).await.leads_to(), second, "under its key it is made once");

    let place = "/ui/batches/new";
    let form = olga.get(place).await;
    let of = |page: &Page, serials: &'static str| {
        fields(page, &["csrf", "key"], &[("serials", serials), ("recipe", recipe.as_str())])
    };
    let seen = async |serials: &'static str| {
        let mut sent = of(&form, serials);
        sent.push(("do", "preview".to_owned()));
        post(&olga, place, &sent).await.hidden("selection")
    };
    let create = async |page: &Page, serials: &'static str, selection: &str| {
        let mut sent = of(page, serials);
        sent.extend([("do", "yes".to_owned()), ("selection", selection.to_owned())]);
        post(&olga, place, &sent).await
    };
    let (one, both) = (seen("AGN-1").await, seen("AGN-1 AGN-2").await);
    let first = create(&form, "AGN-1", &one).await.leads_to().split(['/', '?']).nth(3).unwrap().to_owned();
    let again = create(&form, "AGN-1 AGN-2", &both).await;
    assert!(again.status == 400 && again.html.contains(&format!("made the batch {first}")), "{}", again.html);
    assert!(!create(&again, "AGN-1 AGN-2", &both).await.leads_to().contains(&first));
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
    let valid = recipe().to_string();
    let servers = [("serials", "PRF-1"), ("recipe", valid.as_str()), ("do", "preview")];
    let form = olga.get("/ui/batches/new").await;
    let preview = post(&olga, "/ui/batches/new", &fields(&form, &["csrf", "key"], &servers)).await;
    let selection = preview.hidden("selection");
    for (place, others) in [
        ("/ui/jobs/new", vec![("server", "PRF-1"), ("recipe", &entered), ("do", "create")]),
        ("/ui/jobs/new", vec![("server", "PRF-1"), ("recipe", &entered), ("do", "preview")]),
        (
            "/ui/batches/new",
            vec![("serials", "PRF-1"), ("recipe", &entered), ("do", "yes"), ("selection", &selection)],
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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_a_busy_server_is_refused_with_its_reason_and_a_link_to_the_job() {
    let scene = scene(vec![silent("BSY-1")]).await;
    let job = scene.admin.create_job("BSY-1").await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let (place, recipe) = ("/ui/jobs/new", recipe().to_string());
    let form = olga.get(place).await;
    let sent = [("server", "BSY-1"), ("recipe", recipe.as_str()), ("do", "create")];
    let refused = post(&olga, place, &fields(&form, &["csrf", "key"], &sent)).await;
    assert_eq!(refused.status, 400, "{}", refused.html);
    for part in ["is active on server BSY-1", &format!("href=\"/ui/jobs/{job}\"")] {
        assert!(refused.html.contains(part), "{part}: {}", refused.html);
    }
    // The server is what is wrong, and not the recipe.
    assert_eq!(refused.html.matches("aria-invalid").count(), 1, "{}", refused.html);
    let field = refused.html.split("<input id=\"sv\"").nth(1).and_then(|rest| rest.split('>').next());
    assert!(field.is_some_and(|field| field.contains("aria-invalid")), "{}", refused.html);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_of_a_retry_says_what_is_lost_and_that_a_newer_installation_has_succeeded() {
    let scene = scene(vec![healthy("RTY-1")]).await;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let job = scene.admin.create_job("RTY-1").await;
        assert_eq!(scene.complete_skipping(&job).await["outcome"], "succeeded");
        jobs.push(job);
    }
    let [older, newer] = jobs.as_slice() else { panic!("two jobs: {jobs:?}") };
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let page = olga.get(&format!("/ui/jobs/{older}")).await;
    assert!(
        page.html.contains(&format!("class=\"btn risk\" href=\"/ui/jobs/{older}/retry\"")),
        "{}",
        page.html
    );
    for (job, has_newer) in [(older, true), (newer, false)] {
        let question = olga.get(&format!("/ui/jobs/{job}/retry")).await.html;
        assert!(question.contains("its disk is written again"), "{question}");
        assert!(question.contains("<button class=\"btn risk\">Retry"), "{question}");
        let link = format!("has succeeded (job <a href=\"/ui/jobs/{newer}\">");
        assert_eq!(question.contains(&link), has_newer, "{question}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_cannot_be_read_is_a_note_on_the_page_of_its_server() {
    let scene = scene(vec![]).await;
    scene.admin.register_at("OFF-1", "http://127.0.0.1:1").await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let page = olga.get("/ui/servers/OFF-1").await;
    let refused = post(&olga, "/ui/servers/OFF-1/probe", &fields(&page, &["csrf"], &[])).await;
    assert_eq!(refused.status, 502, "{}", refused.html);
    for part in ["The BMC was not read", "<h1 id=\"title\" data-live>OFF-1"] {
        assert!(refused.html.contains(part), "{part}: {}", refused.html);
    }
    assert!(!refused.html.contains("The controller failed") && !refused.html.contains("data-stream"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_job_has_not_begun_says_so_and_why() {
    let scene = scene(vec![silent("QUE-1")]).await;
    let reason = json!({ "reason": "rack moved" });
    scene.admin.post("/api/v1/servers/QUE-1/maintenance", &reason).await.expect(202);
    scene.admin.create_job("QUE-1").await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let page = olga.get("/ui/servers/QUE-1").await.html;
    let now =
        page.split("id=\"now\"").nth(1).and_then(|rest| rest.split("</section>").next()).unwrap_or_default();
    assert!(now.contains("A job has not begun") && now.contains("aintenance"), "{now}");
    assert!(!page.contains("A job is at work"), "{page}");
    let list = olga.get("/ui/servers").await.html;
    assert!(list.contains("rack moved; a job of it has not ended"), "{list}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_filter_or_cursor_is_wrong_says_so_and_nothing_about_its_rows() {
    let scene = scene(vec![]).await;
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    for place in ["/ui/jobs?cursor=zzz", "/ui/jobs?q=nothing%3Ax", "/ui/servers?q=nothing%3Ax"] {
        let page = ben.get(place).await.html;
        assert!(page.contains("role=\"alert\""), "{place}: {page}");
        for part in ["No jobs yet", "No servers yet", "matches this filter"] {
            assert!(!page.contains(part), "{place}: {part}");
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_changes_the_recipe_that_was_entered_and_previews_it() {
    let scene = scene(vec![silent("RPR-1")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let typed = serde_json::to_string_pretty(&recipe())
        .unwrap()
        .replace("install-linux.target", "install-linus.target");
    let line = 1 + typed.lines().position(|line| line.contains("install-linus.target")).unwrap();
    for (place, server) in [("/ui/jobs/new", "server"), ("/ui/batches/new", "serials")] {
        let form = olga.get(place).await;
        let sent = [(server, "RPR-1"), ("recipe", typed.as_str()), ("do", "preview")];
        let refused = post(&olga, place, &fields(&form, &["csrf", "key"], &sent)).await;
        assert_eq!(refused.status, 400, "{}", refused.html);
        for part in [&format!("Line {line}."), "Use install-linux.target"] {
            assert!(refused.html.contains(part), "{place}: {part}: {}", refused.html);
        }
        let repair = refused.hidden("repair").replace("&#34;", "\"");
        let mut sent = vec![(server, "RPR-1"), ("recipe", typed.as_str()), ("repair", repair.as_str())];
        sent.push(("do", if server == "serials" { "yes" } else { "create" }));
        let repaired = post(&olga, place, &fields(&refused, &["csrf", "key"], &sent)).await;
        assert_eq!(repaired.status, 200, "{}", repaired.html);
        let text = typed.replace("linus", "linux").replace('"', "&#34;");
        assert!(repaired.html.contains(&text), "{place}: the text is as it was typed: {}", repaired.html);
        // What does not fit the text any more changes nothing.
        let changed = typed.replace("install-linus.target", "install-esxi.targe");
        let sent = [(server, "RPR-1"), ("recipe", changed.as_str()), ("repair", repair.as_str())];
        let stale = post(&olga, place, &fields(&refused, &["csrf", "key"], &sent)).await;
        assert!(stale.html.contains(&changed.replace('"', "&#34;")), "{}", stale.html);
        // Of two disks the last one would be wiped.
        let twice = typed.replace("linus", "linux").replacen('{', "{\"task_target\": \"erase.target\",", 1);
        let sent = [(server, "RPR-1"), ("recipe", twice.as_str())];
        let twice = post(&olga, place, &fields(&refused, &["csrf", "key"], &sent)).await;
        assert_eq!(twice.status, 400, "{}", twice.html);
        assert!(twice.html.contains("task_target"), "{}", twice.html);
    }
    assert_eq!(scene.admin.get("/api/v1/jobs").await.expect(200)["jobs"], json!([]), "nothing was made");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_server_shows_the_job_that_runs_and_not_one_that_waits_behind_it() {
    let scene = scene(vec![silent("PRI-1")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let now = async || {
        let page = olga.get("/ui/servers/PRI-1").await.html;
        let now = page.split("id=\"now\"").nth(1).and_then(|rest| rest.split("</section>").next());
        now.unwrap_or_default().to_owned()
    };
    let job = scene.admin.create_job("PRI-1").await;
    scene.admin.awaits_report(&job).await;
    let queue = async |kind: &str| {
        let order = json!({ "kind": kind, "queue": true });
        let made = scene.admin.post("/api/v1/servers/PRI-1/condition", &order).await.expect(200);
        made["id"].as_str().unwrap().to_owned()
    };
    let waiting = [queue("powerCycleHard").await, queue("bmcReset").await];
    // More than the page lists, and all newer than the job at work.
    for _ in 0..11 {
        let ended = queue("inventoryOOB").await;
        scene.admin.post(&format!("/api/v1/jobs/{ended}/cancel"), &json!({})).await.expect(202);
        scene.complete_skipping(&ended).await;
    }
    let shown = now().await;
    assert!(shown.contains(&format!("/ui/jobs/{job}")) && shown.contains("Now"), "{shown}");
    assert!(!shown.contains("has not begun"), "{shown}");
    // None runs: the one that waits longest is the next.
    scene.admin.post("/api/v1/servers/PRI-1/maintenance", &json!({ "reason": "rack" })).await.expect(202);
    scene.admin.post(&format!("/api/v1/jobs/{job}/cancel"), &json!({})).await.expect(202);
    scene.complete_skipping(&job).await;
    let shown = now().await;
    assert!(shown.contains(&format!("/ui/jobs/{}", waiting[0])), "{waiting:?}: {shown}");
    assert!(shown.contains("A job has not begun") && shown.contains("aintenance"), "{shown}");
    scene.end().await;
}
