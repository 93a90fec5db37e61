//! Changes through the pages: imports, many jobs at once, batches, users and tokens, firmware.

use reqwest::Method;
use serde_json::{Value, json};

use crate::firmware_install::{File, set_named};
use crate::kit::{Scene, recipe, silent};
use crate::ui::{Browser, PASSWORD, Page, scene};

/// The hidden fields of the form of a page, with others.
pub(crate) fn fields<'a>(
    page: &Page,
    hidden: &[&'a str],
    others: &[(&'a str, &str)],
) -> Vec<(&'a str, String)> {
    let hidden = hidden.iter().map(|name| (*name, page.hidden(name)));
    hidden.chain(others.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect()
}

pub(crate) async fn post(browser: &Browser<'_>, place: &str, fields: &[(&str, String)]) -> Page {
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    browser.post(place, &fields).await
}

/// Sends a form with a file, as browsers do.
async fn upload(scene: &Scene, browser: &Browser<'_>, fields: &[(&str, &str)]) -> Page {
    let part = |(name, value): &(&str, &str)| {
        format!("--form7\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body = format!("{}--form7--\r\n", fields.iter().map(part).collect::<String>());
    let request = scene.anonymous().request(Method::POST, "/ui/servers/import");
    let request = request.header("Content-Type", "multipart/form-data; boundary=form7").body(body);
    browser.send(request.header("Sec-Fetch-Site", "same-origin")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_imported_after_a_preview_and_a_password_is_in_no_page() {
    let scene = scene(vec![]).await;
    let (olga, ben) =
        (Browser::log_in(&scene, "olga", PASSWORD).await, Browser::log_in(&scene, "ben", PASSWORD).await);
    let proof = olga.get("/ui/servers/import").await.hidden("csrf");
    let table = "Serial Number;IP;label:rack;password\r\nIMP-1;http://127.0.0.1:9;r1;canary-one\r\nIMP-2;http://127.0.0.1:9;r2;\r\nbad serial!;x;;\r\n";
    let sent = [
        ("csrf", proof.as_str()),
        ("text", ""),
        ("file", table),
        ("bmc_username", "root"),
        ("bmc_password", "canary-two"),
        ("labels", "site=north"),
    ];
    let preview = upload(&scene, &olga, &sent).await;
    assert_eq!(preview.status, 200, "{}", preview.html);
    for part in ["Register 2 servers", "IMP-1", "bad serial!", "Refused"] {
        assert!(preview.html.contains(part), "{part}: {}", preview.html);
    }
    assert_eq!(
        scene.admin.get("/api/v1/servers").await.expect(200)["servers"],
        json!([]),
        "a preview writes nothing"
    );
    for secret in ["canary-one", "canary-two"] {
        assert!(!preview.html.contains(secret), "a password is in no page");
    }
    // Another login cannot use the rows, and neither can an altered form.
    let rows = preview.hidden("rows");
    let foreign = ben.get("/ui/account").await.hidden("csrf");
    let refused = ben.post("/ui/servers/import/confirm", &[("csrf", &foreign), ("rows", &rows)]).await;
    assert_eq!((refused.status, refused.html.contains("preview the import again")), (409, true));
    // In the middle: the last character of base64 does not use all of its bits.
    let middle = rows.len() / 2;
    let other = if &rows[middle..=middle] == "A" { "B" } else { "A" };
    let altered = format!("{}{other}{}", &rows[..middle], &rows[middle + 1..]);
    let refused = olga.post("/ui/servers/import/confirm", &[("csrf", &proof), ("rows", &altered)]).await;
    assert_eq!(refused.status, 409);

    let done = olga.post("/ui/servers/import/confirm", &[("csrf", &proof), ("rows", &rows)]).await;
    assert!(done.status == 200 && done.html.contains("2 servers registered"), "{}", done.html);
    let server = scene.admin.get("/api/v1/servers/IMP-1").await.expect(200);
    assert_eq!(
        (&server["bmc_username"], &server["labels"]),
        (&json!("root"), &json!({ "rack": "r1", "site": "north" }))
    );

    // A row that cannot be read stops no other, and the rows keep their numbers.
    let gap = "serial,bmc,user,password\r\nIMP-3\r\nIMP-4,http://127.0.0.1:9,root,canary-four\r\n";
    let preview = upload(&scene, &olga, &[("csrf", &proof), ("text", gap)]).await;
    for part in ["Register 1 server", "line 2 has 1 field, the header has 4", "row 1<", "row 2<", "IMP-4"] {
        assert!(preview.html.contains(part), "{part}: {}", preview.html);
    }
    let rows = preview.hidden("rows");
    let done = olga.post("/ui/servers/import/confirm", &[("csrf", &proof), ("rows", &rows)]).await;
    for part in ["1 server registered", "1 refused", "line 2 has 1 field"] {
        assert!(done.html.contains(part), "{part}: {}", done.html);
    }
    let none = upload(&scene, &olga, &[("csrf", &proof), ("text", "serial,bmc\r\nIMP-3\r\n")]).await;
    assert!(none.status == 200 && none.html.contains("line 2 has 1 field"), "{}", none.html);
    assert!(!none.html.contains("name=\"rows\""), "there is nothing to register: {}", none.html);

    // What cannot be read is explained in the form; a pasted table with passwords is not shown again.
    let wrong = "serial,bmc,password,mood\r\nA,b,canary-three,good\r\n";
    let refused = upload(&scene, &olga, &[("csrf", &proof), ("text", wrong)]).await;
    assert_eq!((refused.status, refused.html.contains("mood")), (400, true), "{}", refused.html);
    assert!(!refused.html.contains("canary-three"));
    let proof = ben.get("/ui/account").await.hidden("csrf");
    let refused = upload(&scene, &ben, &[("csrf", &proof), ("text", "serial,bmc\r\nA,b\r\n")]).await;
    assert_eq!(refused.status, 403, "a viewer imports nothing");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_jobs_of_a_filter_are_cancelled_and_retried_with_the_number_that_was_seen() {
    let scene = scene(["ALL-1", "ALL-2"].map(silent).to_vec()).await;
    let first = scene.admin.create_job("ALL-1").await;
    scene.admin.awaits_report(&first).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let place = "/ui/jobs/selection/cancel";
    let preview = olga.get(&format!("{place}?q=serial%3AALL-*")).await;
    assert!(preview.html.contains("Cancel 1 job?") && preview.html.contains("ALL-1"), "{}", preview.html);
    let second = scene.admin.create_job("ALL-2").await;
    scene.admin.awaits_report(&second).await;

    let sent = fields(&preview, &["csrf", "q", "expected", "selection"], &[("reason", "a test")]);
    let refused = post(&olga, place, &sent).await;
    assert_eq!(refused.status, 412, "the number has changed");
    assert!(
        refused.html.contains("Cancel 2 jobs?") && refused.html.contains("nothing was done"),
        "{}",
        refused.html
    );
    assert!(scene.admin.job(&first).await["outcome"].is_null());

    let sent = fields(&refused, &["csrf", "q", "expected", "selection"], &[("reason", "a test")]);
    let done = post(&olga, place, &sent).await;
    assert_eq!(done.leads_to(), "/ui/jobs?q=serial%3AALL-*&done=cancelled-all");
    for job in [&first, &second] {
        assert_eq!(scene.complete_skipping(job).await["outcome"], "cancelled");
    }
    let preview = olga.get("/ui/jobs/selection/retry?q=serial%3AALL-*").await;
    let sent = fields(
        &preview,
        &["csrf", "q", "expected", "selection", "key"],
        &[("canary", "1"), ("stop_after", "x")],
    );
    assert_eq!(post(&olga, "/ui/jobs/selection/retry", &sent).await.status, 400, "a limit is a number");
    let sent = fields(
        &preview,
        &["csrf", "q", "expected", "selection", "key"],
        &[("canary", "1"), ("stop_after", "1")],
    );
    let batch = post(&olga, "/ui/jobs/selection/retry", &sent).await;
    let place = batch.leads_to().to_owned();
    assert!(place.starts_with("/ui/batches/") && place.ends_with("?done=batch-retry"), "{place}");
    let page = olga.get(&place).await;
    assert!(
        page.html.contains("1 canary first") && page.html.contains("The first jobs run alone"),
        "{}",
        page.html
    );
    assert!(olga.get("/ui/jobs/selection/finish?q=a").await.status == 404);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_jobs_are_resumed_from_the_overview_with_the_number_that_was_seen() {
    let scene = scene(["HELD-1", "HELD-2"].map(silent).to_vec()).await;
    let mut jobs = Vec::new();
    for serial in ["HELD-1", "HELD-2"] {
        let job = scene.admin.create_job(serial).await;
        scene.admin.awaits_report(&job).await;
        jobs.push(job);
    }
    let hold = async |job: &str| {
        scene.admin.post(&format!("/api/v1/jobs/{job}/hold"), &json!({})).await.expect(202);
        scene.wait_skipping(job, "the hold", |job| job["hold"].is_object()).await
    };
    let held = hold(&jobs[0]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let place = format!("/ui/jobs/selection/resume?q=hold%3A{}", held["hold"]["class"].as_str().unwrap());
    let overview = olga.get("/ui/").await;
    assert!(overview.html.contains(&place), "{}", overview.html);
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    assert!(!ben.get("/ui/").await.html.contains(&place), "a viewer resumes nothing");
    assert_eq!(ben.get(&place).await.status, 403);

    let preview = olga.get(&place).await;
    assert!(preview.html.contains("Resume 1 job?") && preview.html.contains("HELD-1"), "{}", preview.html);
    hold(&jobs[1]).await;
    let target = "/ui/jobs/selection/resume";
    let sent = fields(&preview, &["csrf", "q", "selection"], &[("reason", "the switch works")]);
    let refused = post(&olga, target, &sent).await;
    assert_eq!((refused.status, refused.html.contains("Resume 2 jobs?")), (412, true), "{}", refused.html);
    let sent = fields(&refused, &["csrf", "q", "selection"], &[("reason", "the switch works")]);
    let done = post(&olga, target, &sent).await;
    assert!(done.leads_to().ends_with("&done=resumed-all"), "{}", done.leads_to());
    for job in &jobs {
        scene.wait_skipping(job, "its continuation", |job| job["hold"].is_null()).await;
        assert!(scene.admin.event_log(job).await.contains("the switch works"));
    }
    assert!(olga.get(&place).await.html.contains("Only held jobs can be resumed."));
    assert_eq!(olga.get(target).await.status, 400, "a filter without a term selects nothing");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_made_from_a_filter_explains_its_failures_and_is_retried() {
    let scene = scene(["BAT-1", "BAT-2"].map(silent).to_vec()).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let form = olga.get("/ui/batches/new?q=serial%3ABAT-*").await;
    let recipe = recipe().to_string();
    let entered = [
        ("q", "serial:BAT-*"),
        ("recipe", recipe.as_str()),
        ("max_parallel", "1"),
        ("stop_after", "1"),
        ("labels", "wave=3"),
    ];
    let mut sent = fields(&form, &["csrf", "key"], &entered);
    sent.push(("do", "preview".to_owned()));
    let preview = post(&olga, "/ui/batches/new", &sent).await;
    assert!(preview.html.contains("Create 2 jobs") && preview.html.contains("Accepted"), "{}", preview.html);
    assert_eq!(
        scene.admin.get("/api/v1/batches").await.expect(200)["batches"],
        json!([]),
        "a preview writes nothing"
    );
    let mut sent = fields(&preview, &["csrf", "key"], &entered);
    sent.push(("do", "yes".to_owned()));
    let refused = post(&olga, "/ui/batches/new", &sent).await;
    assert_eq!(
        (refused.status, refused.html.contains("selects 2 servers now")),
        (400, true),
        "{}",
        refused.html
    );
    sent.push(("selection", preview.hidden("selection")));
    let made = post(&olga, "/ui/batches/new", &sent).await.leads_to().to_owned();
    assert_eq!(post(&olga, "/ui/batches/new", &sent).await.leads_to(), made, "under its key it is made once");
    let place = made.split('?').next().unwrap().to_owned();

    // The first job fails: the batch stops and says why.
    let id = place.rsplit('/').next().unwrap().to_owned();
    let jobs = scene.admin.get(&format!("/api/v1/jobs?batch={id}&server_serial=BAT-1")).await.expect(200);
    let first = jobs["jobs"][0]["job_id"].as_str().unwrap().to_owned();
    scene.admin.awaits_report(&first).await;
    let token = scene.admin.job_document(&first).await["webhook_token"].as_str().unwrap().to_owned();
    let report = json!({ "job_id": first, "status": "failed", "failed_step": "image-linux.service" });
    scene.admin.report("BAT-1", &token, &report).await.expect(200);
    scene.complete_skipping(&first).await;
    let page = olga.get(&place).await;
    for part in
        ["The batch stopped after 1 failure", "image-linux.service", "What to do:", ">BAT-1<", "/continue"]
    {
        assert!(page.html.contains(part), "{part}: {}", page.html);
    }
    let retry = format!("{place}/retry");
    let question = olga.get(&retry).await;
    assert!(question.html.contains("Retry 1 failed job"), "{}", question.html);
    // The number is that of the question: with another one nothing is done, and the question is asked again.
    let hidden = ["csrf", "key", "cause", "selection"];
    let other = fields(&question, &hidden, &[("canary", "1"), ("expected", "2")]);
    let refused = post(&olga, &retry, &other).await;
    assert!(refused.status == 412 && refused.html.contains("Retry 1 failed job"), "{}", refused.html);
    let cause = page.html.split("/retry?cause=").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let of_cause = olga.get(&format!("{retry}?cause={cause}")).await;
    assert_eq!((of_cause.hidden("cause").as_str(), of_cause.hidden("expected").as_str()), (cause, "1"));
    assert_eq!(of_cause.hidden("selection"), question.hidden("selection"), "there is one cause");
    let others = [("canary", "1"), ("selection", "0123456789abcdef")];
    let other = fields(&question, &["csrf", "key", "cause", "expected"], &others);
    assert_eq!(post(&olga, &retry, &other).await.status, 412, "as many other jobs");
    let hidden = ["csrf", "key", "cause", "expected", "selection"];
    let sent = fields(&question, &hidden, &[("canary", "1")]);
    let new = post(&olga, &retry, &sent).await.leads_to().to_owned();
    assert_eq!(post(&olga, &retry, &sent).await.leads_to(), new, "a retry is made once");
    assert!(olga.get(&new).await.html.contains("repeats failures of"));
    let question = olga.get(&format!("{place}/continue")).await;
    let sent = fields(&question, &["csrf"], &[]);
    assert_eq!(
        post(&olga, &format!("{place}/continue"), &sent).await.leads_to(),
        format!("{place}?done=batch-continue")
    );
    // A cancel reaches what is under way too, if that is asked for.
    let running = scene.admin.get(&format!("/api/v1/jobs?batch={id}&server_serial=BAT-2")).await.expect(200);
    let running = running["jobs"][0]["job_id"].as_str().unwrap().to_owned();
    scene.admin.awaits_report(&running).await;
    let question = olga.get(&format!("{place}/cancel")).await;
    assert!(question.html.contains("All that have not ended: 1 job"), "{}", question.html);
    assert!(!question.html.contains("Cancel 0 jobs"), "{}", question.html);
    let numbers = ["csrf", "expected_queued", "expected_running"];
    let sent = fields(&question, &numbers, &[("which", "all"), ("reason", "a test")]);
    assert_eq!(
        post(&olga, &format!("{place}/cancel"), &sent).await.leads_to(),
        format!("{place}?done=batch")
    );
    assert_eq!(scene.complete_skipping(&running).await["outcome"], "cancelled");
    assert!(olga.get(&format!("{place}/cancel")).await.html.contains("nothing to cancel"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_question_cancels_no_job_that_has_begun_since() {
    let scene = scene(["OLD-1", "OLD-2"].map(silent).to_vec()).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let rows: Vec<Value> =
        ["OLD-1", "OLD-2"].iter().map(|serial| json!({ "server_serial": serial })).collect();
    let body = json!({ "recipe": recipe(), "rows": rows, "canary": 1 });
    let batch = scene.admin.post("/api/v1/batches", &body).await.expect(202);
    let ids: Vec<String> = batch["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["job_id"].as_str().unwrap().to_owned())
        .collect();
    scene.admin.awaits_report(&ids[0]).await;
    let id = batch["batch_id"].as_str().unwrap();
    let place = format!("/ui/batches/{id}/cancel");
    let old = olga.get(&place).await;
    assert!(old.html.contains("All that have not ended: 2 jobs"), "{}", old.html);
    assert!(old.html.contains("1 job is under way"), "{}", old.html);
    // The job behind the canary, too: nothing was touched yet.
    let of_job = format!("/ui/jobs/{}/cancel", ids[1]);
    let old_of_job = olga.get(&of_job).await;
    assert!(old_of_job.html.contains("has not begun"), "{}", old_of_job.html);

    scene.admin.post(&format!("/api/v1/batches/{id}/continue"), &json!({})).await.expect(202);
    scene.admin.awaits_report(&ids[1]).await;
    let hidden = ["csrf", "expected_queued", "expected_running"];
    let sent = fields(&old, &hidden, &[("which", "all"), ("reason", "a test")]);
    let asked = post(&olga, &place, &sent).await;
    assert_eq!(asked.status, 412, "{}", asked.html);
    assert!(asked.html.contains("2 jobs are under way"), "{}", asked.html);
    assert_eq!(
        (asked.hidden("expected_queued").as_str(), asked.hidden("expected_running").as_str()),
        ("0", "2")
    );
    let sent = fields(&old_of_job, &["csrf", "revision"], &[("reason", "a test")]);
    let asked_of_job = post(&olga, &of_job, &sent).await;
    assert_eq!(asked_of_job.status, 412, "{}", asked_of_job.html);
    assert!(asked_of_job.html.contains("a disk may be left half written"), "{}", asked_of_job.html);
    assert!(!asked_of_job.html.contains("name=\"revision\""), "a running job changes all the time");
    for job in &ids {
        assert_eq!(scene.admin.job(job).await["outcome"], Value::Null, "nothing was cancelled");
    }

    // Fewer jobs than the question said are no reason to ask again.
    let sent = fields(&asked_of_job, &["csrf"], &[("reason", "a test")]);
    assert!(post(&olga, &of_job, &sent).await.leads_to().ends_with("?done=cancel"));
    assert_eq!(scene.complete_skipping(&ids[1]).await["outcome"], "cancelled");
    let sent = fields(&asked, &hidden, &[("which", "all"), ("reason", "a test")]);
    assert!(post(&olga, &place, &sent).await.leads_to().ends_with("?done=batch"));
    assert_eq!(scene.complete_skipping(&ids[0]).await["outcome"], "cancelled");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_changed_without_beginning_is_cancelled_by_the_question_that_said_so() {
    let scene = scene(vec![silent("OLD-3")]).await;
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    scene.admin.post("/api/v1/servers/OLD-3/maintenance", &json!({ "reason": "a test" })).await.expect(202);
    let job = scene.admin.create_job("OLD-3").await;
    let place = format!("/ui/jobs/{job}/cancel");
    let old = olga.get(&place).await;
    for verb in ["hold", "resume"] {
        scene.admin.post(&format!("/api/v1/jobs/{job}/{verb}"), &json!({})).await.expect(202);
    }
    let sent = fields(&old, &["csrf", "revision"], &[("reason", "a test")]);
    assert!(post(&olga, &place, &sent).await.leads_to().ends_with("?done=cancel"));
    assert_eq!(scene.complete_skipping(&job).await["outcome"], "cancelled");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_tokens_are_made_changed_and_a_token_is_shown_once() {
    let scene = scene(vec![]).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let form = ann.get("/ui/users/new").await;
    let short = fields(&form, &["csrf"], &[("name", "kim"), ("role", "viewer"), ("password", "short")]);
    let refused = post(&ann, "/ui/users/new", &short).await;
    assert_eq!((refused.status, refused.html.contains("value=\"kim\"")), (400, true), "{}", refused.html);
    assert!(!refused.html.contains("\"short\""), "a password is not shown again");
    let sent = fields(&form, &["csrf"], &[("name", "kim"), ("role", "viewer"), ("password", PASSWORD)]);
    assert_eq!(post(&ann, "/ui/users/new", &sent).await.leads_to(), "/ui/users?done=user-created");
    let kim = Browser::log_in(&scene, "kim", PASSWORD).await;
    let other = Browser::log_in(&scene, "kim", PASSWORD).await;

    // The own password: the other login ends, this browser is logged in again.
    let form = kim.get("/ui/account/password").await;
    let new = "another horse battery staple";
    let wrong = fields(&form, &["csrf"], &[("current", "not it"), ("password", new)]);
    assert_eq!(post(&kim, "/ui/account/password", &wrong).await.status, 400);
    let foreign = [("csrf", "0".to_owned()), ("current", PASSWORD.to_owned()), ("password", new.to_owned())];
    assert_eq!(
        post(&kim, "/ui/account/password", &foreign).await.status,
        403,
        "a form needs the proof of its session"
    );
    let sent = fields(&form, &["csrf"], &[("current", PASSWORD), ("password", new)]);
    let changed = post(&kim, "/ui/account/password", &sent).await;
    assert_eq!(changed.leads_to(), "/ui/account?done=password");
    let cookie = changed.header("set-cookie").unwrap().split("; ").next().unwrap().to_owned();
    assert!(other.get("/ui/account").await.leads_to().starts_with("/ui/login"), "the other login has ended");
    let kim = Browser { cookie, ..kim };
    assert_eq!(kim.get("/ui/account").await.status, 200);
    let second = Browser::log_in(&scene, "kim", new).await;
    let sent = fields(&kim.get("/ui/account/sessions/end").await, &["csrf"], &[]);
    assert_eq!(post(&kim, "/ui/account/sessions/end", &sent).await.leads_to(), "/ui/account?done=sessions");
    assert!(second.get("/ui/account").await.leads_to().starts_with("/ui/login"));
    assert_eq!(kim.get("/ui/account").await.status, 200, "this login goes on");

    // An administrator disables the user.
    let form = ann.get("/ui/users/kim").await;
    let sent = fields(&form, &["csrf"], &[("role", "operator"), ("password", ""), ("disabled", "yes")]);
    assert_eq!(post(&ann, "/ui/users/kim", &sent).await.leads_to(), "/ui/users?done=user");
    let user = scene.admin.get("/api/v1/users/kim").await.expect(200);
    assert!(user["role"] == "operator" && user["disabled_at"].is_string(), "{user}");
    assert!(kim.get("/ui/account").await.leads_to().starts_with("/ui/login"));

    // A token: its text is in one response only, and it works.
    let form = ann.get("/ui/tokens/new").await;
    let sent = fields(
        &form,
        &["csrf"],
        &[("name", "ci"), ("role", "viewer"), ("lasts", "30"), ("labels", ""), ("registry", "")],
    );
    let issued = post(&ann, "/ui/tokens/new", &sent).await;
    let token =
        |page: &Page| page.html.split_once("data-copy=\"").unwrap().1.split('"').next().unwrap().to_owned();
    let text = token(&issued);
    assert_eq!(issued.header("cache-control"), Some("no-store"));
    assert_eq!(scene.admin.with_token(&text).get("/api/v1/me").await.expect(200)["name"], "ci");
    let again = post(&ann, "/ui/tokens/new", &sent).await;
    assert_eq!(
        (again.status, again.html.contains(&text)),
        (400, false),
        "a reload makes no second one: {}",
        again.html
    );
    assert!(!ann.get("/ui/users").await.html.contains(&text));
    let question = ann.get("/ui/tokens/ci/rotate").await;
    let rotated = post(&ann, "/ui/tokens/ci/rotate", &fields(&question, &["csrf"], &[])).await;
    assert_ne!(token(&rotated), text);
    assert_eq!(scene.admin.with_token(&text).get("/api/v1/me").await.status, 401);
    let sent = fields(&ann.get("/ui/tokens/ci/revoke").await, &["csrf"], &[]);
    assert_eq!(post(&ann, "/ui/tokens/ci/revoke", &sent).await.leads_to(), "/ui/users?done=token");
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    for place in ["/ui/users/new", "/ui/users/kim", "/ui/tokens/new", "/ui/users/kim/delete"] {
        assert_eq!(olga.get(place).await.status, 403, "{place}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_a_user_that_was_shown_before_another_change_keeps_that_change() {
    let scene = scene(vec![]).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let form = ann.get("/ui/users/ben").await;
    let body = json!({ "disabled": true, "role": "operator" });
    scene.admin.patch("/api/v1/users/ben", &body).await.expect(200);

    let hidden = ["csrf", "was_role", "was_disabled"];
    let sent = fields(&form, &hidden, &[("role", "viewer"), ("password", "another horse battery staple")]);
    assert_eq!(post(&ann, "/ui/users/ben", &sent).await.leads_to(), "/ui/users?done=user");
    let user = scene.admin.get("/api/v1/users/ben").await.expect(200);
    assert!(user["role"] == "operator" && user["disabled_at"].is_string(), "{user}");
    let events = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let of_ben = |event: &&Value| event["type"] == "user.changed" && event["data"]["user"] == "ben";
    let last = events["events"].as_array().unwrap().iter().rfind(of_ben).unwrap().clone();
    assert_eq!(last["message"], "user ben changed: new password");
    assert_eq!(last["data"], json!({ "user": "ben", "role": null, "disabled": null, "password": true }));
    // The own changes of the form are made.
    let form = ann.get("/ui/users/ben").await;
    let sent = fields(&form, &hidden, &[("role", "operator"), ("password", "")]);
    post(&ann, "/ui/users/ben", &sent).await.leads_to();
    let user = scene.admin.get("/api/v1/users/ben").await.expect(200);
    assert!(user["role"] == "operator" && user["disabled_at"].is_null(), "{user}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_shows_its_tags_with_sizes_and_platforms_and_what_holds_them() {
    let scene = scene(vec![silent("REG-1")]).await;
    let list = scene.admin.get("/api/v1/registry/repositories").await.expect(200);
    let row = &list["repositories"][0];
    assert!(row["bytes"].as_u64().unwrap() > 1000 && row["changed_at"].is_string(), "{list}");
    let name = row["name"].as_str().unwrap().to_owned();
    let place = format!("/api/v1/registry/repositories/{}", name.replace('/', "%2F"));
    let detail = scene.admin.get(&place).await.expect(200);
    let tag = &detail["tags"][0];
    assert_eq!((&detail["name"], &detail["bytes"]), (&row["name"], &row["bytes"]));
    assert_eq!(tag["bytes"], row["bytes"], "all content of the repository is below its tag: {detail}");
    assert!(
        tag["pushed_at"].is_string() && tag["digest"].as_str().unwrap().starts_with("sha256:"),
        "{detail}"
    );
    scene.admin.get("/api/v1/registry/repositories/no%2Fsuch").await.refused(404, "unknown_repository");
    scene.admin.get("/api/v1/registry/repositories/NO..such").await.refused(404, "unknown_repository");

    let job = scene.admin.create_job("REG-1").await;
    scene.admin.awaits_report(&job).await;
    let detail = scene.admin.get(&place).await.expect(200);
    assert_eq!(detail["held"][0]["job_id"], json!(job), "{detail}");
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    let page = ben.get(&format!("/ui/registry/{name}")).await;
    for part in [
        &format!("/ui/jobs/{job}"),
        "skopeo copy --src-tls-verify=false docker://",
        tag["tag"].as_str().unwrap(),
    ] {
        assert!(page.html.contains(part), "{part}: {}", page.html);
    }
    assert!(ben.get("/ui/registry").await.html.contains(&format!("/ui/registry/{name}")));
    // Behind a proxy, clients reach the registry by the name of the proxy and check its certificate.
    let proxied = async |place: &str| {
        let request = scene.anonymous().request(Method::GET, place).header("X-Forwarded-Proto", "https");
        ben.send(request.header("X-Forwarded-Host", "shoal.example")).await.html
    };
    let login = "This page came over plain HTTP";
    assert!(ben.get("/ui/login").await.html.contains(login));
    assert!(!proxied("/ui/login").await.contains(login));
    let proxied = proxied("/ui/registry").await;
    assert!(proxied.contains("skopeo login shoal.example"), "{proxied}");
    assert!(!proxied.contains("tls-verify=false") && !proxied.contains("shoal ca export"), "{proxied}");
    assert_eq!(ben.get("/ui/registry/no/such").await.status, 404);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_deleted_on_the_page_of_its_repository_by_an_administrator() {
    let scene = scene(vec![silent("REG-2")]).await;
    let list = scene.admin.get("/api/v1/registry/repositories").await.expect(200);
    let name = list["repositories"][0]["name"].as_str().unwrap().to_owned();
    let detail = format!("/api/v1/registry/repositories/{}", name.replace('/', "%2F"));
    let tag = scene.admin.get(&detail).await.expect(200)["tags"][0].clone();
    let job = scene.admin.create_job("REG-2").await;
    scene.admin.awaits_report(&job).await;
    let page = format!("/ui/registry/{name}");
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    assert!(!ben.get(&page).await.html.contains("/ui/tags/delete"));
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let html = ann.get(&page).await.html;
    let question = html.split("href=\"").find(|rest| rest.starts_with("/ui/tags/delete")).unwrap();
    let question = question.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    assert_eq!(ben.get(&question).await.status, 403);
    let asked = ann.get(&question).await;
    let held = format!("Its content stays as long as job <a href=\"/ui/jobs/{job}\">");
    assert!(asked.status == 200 && asked.html.contains(&held), "{}", asked.html);
    let send = async |browser: &Browser<'_>, digest: &str| {
        let sent = fields(&asked, &["csrf", "repository", "tag"], &[("digest", digest)]);
        post(browser, "/ui/tags/delete", &sent).await
    };
    let digest = tag["digest"].as_str().unwrap();
    assert_eq!(asked.hidden("digest"), digest);
    let again = send(&ann, &format!("sha256:{:064}", 7)).await;
    assert_eq!((again.status, again.hidden("digest").as_str()), (412, digest), "{}", again.html);
    assert_eq!(ann.get(&question.replace("tag=", "tag=no-")).await.status, 404);
    assert_eq!(send(&ben, digest).await.status, 403);
    assert_eq!(scene.admin.get(&detail).await.expect(200)["tags"][0]["tag"], tag["tag"]);
    assert_eq!(send(&ann, digest).await.leads_to(), format!("{page}?done=tag-deleted"));
    let shown = ann.get(&format!("{page}?done=tag-deleted")).await;
    assert!(shown.status == 200 && shown.html.contains("The tag was deleted."), "{}", shown.html);
    assert_eq!(scene.admin.get(&detail).await.expect(200)["tags"], json!([]));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn firmware_is_planned_before_it_is_installed_and_each_component_is_followed() {
    const VENDOR: &str = "dell-idrac9-6";
    let scene = crate::firmware_install::scene(VENDOR, |_| {}).await;
    let token = scene.admin.token().to_owned();
    let browser = Browser::log_in(&scene, "", &token).await;
    let place = "/ui/servers/FW-1/condition";
    set_named("all", &scene.admin, VENDOR, &[File::of("bios", "99.1")]).await;
    let page = browser.get(&format!("{place}?kind=firmwareInstall&set=all")).await;
    assert!(page.html.contains("There is no plan"), "the inventory is not known yet: {}", page.html);

    // The inventory first, as the page says.
    let question = browser.get(&format!("{place}?kind=inventoryOOB")).await;
    let sent = fields(&question, &["csrf", "kind", "set", "key"], &[("do", "yes")]);
    let made = post(&browser, place, &sent).await.leads_to().to_owned();
    assert_eq!(post(&browser, place, &sent).await.leads_to(), made, "under its key it is made once");
    let job = made.split(['/', '?']).nth(3).unwrap().to_owned();
    scene.complete_skipping(&job).await;
    let server = browser.get("/ui/servers/FW-1").await;
    assert!(server.html.contains("the set all fits"), "{}", server.html);

    let plan = browser.get(&format!("{place}?kind=firmwareInstall")).await;
    for part in ["The plan", "bios", "99.1", "Install", "1 component is installed"] {
        assert!(plan.html.contains(part), "{part}: {}", plan.html);
    }
    assert!(browser.get("/ui/firmware").await.html.contains("/ui/firmware/sets/all"));
    assert!(browser.get("/ui/firmware/sets/all").await.html.contains("bios_99.1.bin"));
    let sent = fields(&plan, &["csrf", "kind", "set", "key"], &[("do", "yes")]);
    let made = post(&browser, place, &sent).await.leads_to().to_owned();
    let job = made.split(['/', '?']).nth(3).unwrap().to_owned();
    let ended = scene.complete_skipping(&job).await;
    assert_eq!(ended["outcome"], "succeeded", "{}", scene.admin.event_log(&job).await);
    let page = browser.get(&format!("/ui/jobs/{job}")).await;
    assert!(page.html.contains("Send the file: bios"), "each component is named: {}", page.html);
    let server = browser.get("/ui/servers/FW-1").await;
    assert!(
        server.html.contains("Conditions") && server.html.contains("Install firmware"),
        "{}",
        server.html
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_diagnostics_are_shown_and_many_bmcs_are_looked_at() {
    let scene = scene(vec![crate::kit::healthy("DIA-1"), crate::kit::healthy("DIA-2")]).await;
    let last = async || scene.admin.get("/api/v1/servers/DIA-1/diagnostics").await.expect(200);
    assert_eq!(last().await["diagnostics_id"], Value::Null);
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let question = olga.get("/ui/servers/DIA-1/diagnostics").await;
    let done = post(&olga, "/ui/servers/DIA-1/diagnostics", &fields(&question, &["csrf"], &[])).await;
    assert!(done.leads_to().starts_with("/ui/servers/DIA-1?done=diagnos"), "{}", done.leads_to());
    let ended = |response: &crate::kit::ApiResponse| response.json()["verdict"].is_string();
    scene.admin.until("/api/v1/servers/DIA-1/diagnostics", "the diagnostics", ended).await;
    let found = last().await;
    assert!(found["ended_at"].is_string() && !found["checks"].as_array().unwrap().is_empty(), "{found}");
    assert!(olga.get("/ui/servers/DIA-1").await.html.contains("Diagnostics"));

    let place = "/ui/servers/selection/probe";
    let question = olga.get(&format!("{place}?q=serial%3ADIA-*")).await;
    let sent = fields(&question, &["csrf", "q", "selection"], &[]);
    let page = post(&olga, place, &sent).await;
    assert!(page.status == 200 && page.html.contains("2 of 2 BMCs responded"), "{}", page.html);
    let mut other = sent.clone();
    other[2].1 = String::new();
    assert_eq!(post(&olga, place, &other).await.status, 412);
    let ben = Browser::log_in(&scene, "ben", PASSWORD).await;
    let mut sent = sent;
    sent[0].1 = ben.get("/ui/account").await.hidden("csrf");
    assert_eq!(post(&ben, place, &sent).await.status, 403, "a viewer probes nothing");
    scene.end().await;
}
