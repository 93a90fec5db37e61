//! The audit log and the event log through their pages: filters, downloads.

use serde_json::{Value, json};

use crate::kit::silent;
use crate::ui::{Browser, PASSWORD, scene};

#[tokio::test(flavor = "multi_thread")]
async fn a_download_has_what_the_filters_of_the_page_select() {
    let scene = scene(vec![]).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    for name in ["kim", "leo"] {
        let user = json!({ "name": name, "role": "viewer", "password": "a password of a test" });
        scene.admin.post("/api/v1/users", &user).await.expect(201);
    }
    let query = "action=user.*&target=user%2Fkim";
    let page = ann.get(&format!("/ui/audit?{query}")).await;
    assert!(page.html.contains("user/kim") && !page.html.contains("user/leo"), "{}", page.html);
    for ending in ["csv", "jsonl"] {
        let link = format!("/ui/audit/audit.{ending}?action=user.%2A&#38;target=user%2Fkim");
        assert!(page.html.contains(&link), "{link}: {}", page.html);
    }

    let lines = ann.get(&format!("/ui/audit/audit.jsonl?{query}")).await;
    assert_eq!(
        (lines.status, lines.header("content-type")),
        (200, Some("application/x-ndjson")),
        "{}",
        lines.html
    );
    let name = lines.header("content-disposition").unwrap();
    assert!(name.starts_with("attachment; filename=\"audit-20") && name.ends_with(".jsonl\""), "{name}");
    assert_eq!(lines.header("cache-control"), Some("no-store"));
    let listed = scene.admin.get(&format!("/api/v1/audit?{query}")).await.expect(200)["entries"].clone();
    let entries: Vec<Value> = lines.html.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json!(entries), listed, "page, file and API show the same");
    assert!(lines.html.starts_with("{\"seq\":"), "the members are in the order of the hash: {}", lines.html);

    let table = ann.get(&format!("/ui/audit/audit.csv?{query}")).await;
    assert_eq!(table.header("content-type"), Some("text/csv; charset=utf-8"));
    let rows: Vec<&str> = table.html.lines().collect();
    assert_eq!(
        rows[0],
        "seq,time,actor_kind,actor,actor_id,source,action,target,result,request_id,count,previous,hash"
    );
    assert_eq!(rows.len(), entries.len() + 1);
    assert!(rows[1].contains(",user.create,user/kim,ok,"), "{}", table.html);
    let whole = ann.get("/ui/audit/audit.jsonl").await.html.lines().count();
    assert!(whole > entries.len() + 1, "{whole}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_that_are_not_understood_say_so_and_others_are_kept_from_the_log() {
    let scene = scene(vec![]).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    let wrong = ann.get("/ui/audit?since=yesterday&actor=%3Cb%3E").await;
    assert!(wrong.status == 400 && wrong.html.contains("since is a time such as"), "{}", wrong.html);
    assert!(
        wrong.html.contains("value=\"yesterday\"") && wrong.html.contains("value=\"&#60;b&#62;\""),
        "{}",
        wrong.html
    );
    let refused = ann.get("/ui/audit/audit.csv?since=yesterday").await;
    assert_eq!((refused.status, refused.header("content-disposition")), (400, None), "{}", refused.html);
    assert_eq!(ann.get("/ui/audit?since=2026-01-01").await.status, 200, "a day is a time");
    assert_eq!(ann.get("/ui/audit/other.csv").await.status, 404);
    let olga = Browser::log_in(&scene, "olga", PASSWORD).await;
    let stranger = Browser::stranger(&scene);
    for place in ["/ui/audit", "/ui/audit/audit.csv", "/ui/audit/audit.jsonl"] {
        assert_eq!(olga.get(place).await.status, 403, "{place}");
        assert!(stranger.get(place).await.leads_to().starts_with("/ui/login"), "{place}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_events_has_filters_and_leads_to_older_events_with_them() {
    let scene = scene(vec![silent("PAGE-1"), silent("PAGE-2")]).await;
    let ann = Browser::log_in(&scene, "ann", PASSWORD).await;
    for _ in 0..60 {
        for (serial, on) in [("PAGE-1", true), ("PAGE-2", false)] {
            let change = json!({ "labels": { "asset": if on { "a" } else { "b" } } });
            let place = format!("/api/v1/servers/{serial}");
            scene.admin.patch(&place, &change).await.expect(200);
            scene.admin.patch(&place, &json!({ "labels": { "asset": "c" } })).await.expect(200);
        }
    }
    let filter = "server=PAGE-1&type=server.*&since=2026-01-01";
    let page = ann.get(&format!("/ui/events?{filter}")).await;
    assert_eq!(page.status, 200, "{}", page.html);
    assert!(page.html.contains("PAGE-1") && !page.html.contains("PAGE-2"), "{}", page.html);
    let link = page.html.split("href=\"").find(|part| part.starts_with("/ui/events?before=")).unwrap();
    let link = link.split('"').next().unwrap().replace("&#38;", "&");
    assert!(link.ends_with("&server=PAGE-1&type=server.%2A&since=2026-01-01"), "{link}");
    let older = ann.get(&link).await;
    assert!(older.html.contains("PAGE-1") && !older.html.contains("PAGE-2"), "{}", older.html);
    assert!(!older.html.contains("data-stream"), "an older page does not change");
    let people = ann.get("/ui/events?actor=people").await;
    assert!(
        people.html.contains("PAGE-1")
            && !people.html.contains("<td role=\"cell\" class=\"less\">engine</td>"),
        "{}",
        people.html
    );
    let engine = ann.get("/ui/events?actor=engine").await;
    assert!(!engine.html.contains("PAGE-1"), "{}", engine.html);
    let none = ann.get("/ui/events?server=PAGE-9").await;
    assert!(none.html.contains("No event matches. Take a filter away."), "{}", none.html);
    let wrong = ann.get("/ui/events?level=bad").await;
    assert!(wrong.status == 400 && wrong.html.contains("level is info, warn or error"), "{}", wrong.html);
    scene.end().await;
}
