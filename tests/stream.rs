//! The event stream: every event once and in order, resumable after any event.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Client, Scene, healthy, silent, soon};

/// An open event stream.
struct Stream {
    response: reqwest::Response,
    buffer: String,
}

/// One event of a stream.
#[derive(Debug, PartialEq)]
struct StreamEvent {
    id: Option<i64>,
    event: String,
    data: Value,
}

impl Stream {
    async fn open(client: &Client, place: &str, last: Option<i64>) -> Self {
        let mut request = client.request(Method::GET, place).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, buffer: String::new() }
    }

    /// Returns the next event, or `None` when the server has closed the stream. Comments are skipped.
    async fn next(&mut self) -> Option<StreamEvent> {
        soon("the next event", self.read()).await
    }

    async fn read(&mut self) -> Option<StreamEvent> {
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..end + 2).collect();
                let field = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                        .map(str::to_owned)
                };
                if let Some(data) = field("data") {
                    return Some(StreamEvent {
                        id: field("id").map(|id| id.parse().unwrap()),
                        event: field("event").unwrap(),
                        data: serde_json::from_str(&data).unwrap(),
                    });
                }
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn rest(mut self) -> Vec<StreamEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_job_sends_all_its_events_and_ends() {
    let scene = Scene::start(vec![healthy("LIVE-1")]).await;
    let id = scene.admin.create_job("LIVE-1").await;
    let place = format!("/api/v1/jobs/{id}/events");
    let events = Stream::open(&scene.admin, &place, None).await.rest().await;
    let written = scene.admin.events(&id).await;

    let (end, events) = events.split_last().unwrap();
    assert_eq!((end.event.as_str(), end.id), ("end", None));
    let data: Vec<&Value> = events.iter().map(|event| &event.data).collect();
    assert_eq!(data, written.iter().collect::<Vec<_>>(), "the stream and the pages have the same events");
    for event in events {
        assert_eq!(
            (event.id, event.event.as_str()),
            (event.data["seq"].as_i64(), event.data["type"].as_str().unwrap())
        );
    }
    assert_eq!(events.last().unwrap().event, "run.ended");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reconnects_continues_after_its_last_event() {
    let scene = Scene::start(vec![healthy("BACK-1")]).await;
    let id = scene.admin.create_job("BACK-1").await;
    let place = format!("/api/v1/jobs/{id}/events");
    let mut first = Stream::open(&scene.admin, &place, None).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(first.next().await.unwrap());
    }
    drop(first);
    scene.admin.complete(&id).await;
    let rest = Stream::open(&scene.admin, &place, seen.last().unwrap().id).await.rest().await;
    seen.extend(rest);
    let ids: Vec<i64> = seen.iter().filter_map(|event| event.id).collect();
    let written: Vec<i64> =
        scene.admin.events(&id).await.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(ids, written, "no event is lost or duplicated");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_all_events_follows_the_order_of_the_log() {
    let scene = Scene::start(vec![healthy("ALL-1"), healthy("ALL-2")]).await;
    let mut stream = Stream::open(&scene.admin, "/api/v1/events", None).await;
    let (one, two) = (scene.admin.create_job("ALL-1").await, scene.admin.create_job("ALL-2").await);
    let mut events = Vec::new();
    while events.iter().filter(|event: &&StreamEvent| event.event == "run.ended").count() < 2 {
        events.push(stream.next().await.unwrap());
    }
    let ids: Vec<i64> = events.iter().map(|event| event.id.unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let page = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let written: Vec<i64> =
        page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(ids, written[..ids.len()]);
    for job in [&one, &two] {
        assert!(events.iter().any(|event| event.data["job_id"] == json!(job)));
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_subscribers_receive_events_and_stopping_does_not_wait_for_them() {
    let scene = Scene::start(vec![silent("MANY-1")]).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(Stream::open(&scene.admin, "/api/v1/events", None).await);
    }
    let id = scene.admin.create_job("MANY-1").await;
    for stream in &mut streams {
        loop {
            let event = stream.next().await.unwrap();
            if event.event == "job.created" {
                assert_eq!(event.data["job_id"], json!(id));
                break;
            }
        }
    }
    tokio::time::timeout(Duration::from_secs(8), scene.end()).await.expect("streams end with the controller");
    for stream in streams {
        // The stream ends, cut or closed.
        let _rest = stream.rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_needs_credentials_and_a_valid_position() {
    let scene = Scene::start(vec![]).await;
    let ask = |client: &Client, last: &str| {
        let request = client
            .request(Method::GET, "/api/v1/events")
            .header("accept", "text/event-stream")
            .header("last-event-id", last);
        let client = client.clone();
        async move { client.send(request).await }
    };
    ask(&scene.anonymous(), "0").await.refused(401, "unauthorized");
    for wrong in ["-1", "x", "99999999999999999999"] {
        ask(&scene.admin, wrong).await.refused(400, "validation_error");
    }
    scene.admin.get("/api/v1/events?after=-1").await.refused(400, "validation_error");
    // A client that does not know a position begins at the end.
    let all = scene.admin.get("/api/v1/events").await.expect(200);
    let newest = scene.admin.get("/api/v1/events?after=latest").await.expect(200);
    assert_eq!((&newest["events"], &newest["next"]), (&json!([]), &all["next"]));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_events_have_filters_and_lead_back_through_the_log() {
    let scene = Scene::start(vec![healthy("LOG-1"), healthy("LOG-2")]).await;
    let id = scene.admin.create_job("LOG-1").await;
    scene.admin.complete(&id).await;
    let page = async |query: &str| scene.admin.get(&format!("/api/v1/events?{query}")).await.expect(200);
    let of = |page: &Value| page["events"].as_array().unwrap().clone();
    let whole = page("limit=1000").await;
    let all = of(&whole);
    // Back through the log, three events at a time, from the event after the last one that was read.
    let (mut back, mut before) = (Vec::new(), (whole["next"].as_i64().unwrap() + 1).to_string());
    loop {
        let found = page(&format!("limit=3&before={before}")).await;
        back = [of(&found), back].concat();
        let Some(previous) = found["previous"].as_i64() else { break };
        before = previous.to_string();
    }
    assert_eq!(back, all);
    let server = of(&page("before=latest&server=LOG-1&limit=1000").await);
    assert!(
        server.iter().any(|event| event["job_id"] == json!(id)) && server.len() < all.len(),
        "{server:?}"
    );
    assert!(server.iter().all(|event| event["server_serial"] == "LOG-1"), "{server:?}");
    let ended = of(&page("before=latest&type=run.*,report.*").await);
    assert!(ended.iter().any(|event| event["type"] == "run.ended"), "{ended:?}");
    assert!(ended.iter().all(|event| !event["type"].as_str().unwrap().starts_with("job.")), "{ended:?}");
    assert_eq!(of(&page("before=latest&since=2999-01-01T00:00:00Z").await), [] as [Value; 0]);
    let first = all[0]["time"].as_str().unwrap();
    assert_eq!(of(&page(&format!("after=0&until={first}")).await), [] as [Value; 0]);
    let of_job = scene.admin.get(&format!("/api/v1/jobs/{id}/events?type=run.ended")).await.expect(200);
    assert_eq!(of(&of_job).len(), 1);
    for (wrong, field) in [
        ("before=1&after=1", "before"),
        ("before=-1", "before"),
        ("type=job.[ab]", "type"),
        ("type=", "type"),
        ("level=bad", "level"),
        ("since=yesterday", "since"),
        ("server=a%20b%2F", "server"),
    ] {
        let refused = scene.admin.get(&format!("/api/v1/events?{wrong}")).await;
        let body = refused.refused(400, "validation_error");
        assert_eq!(body["details"][0]["path"], field, "{wrong}: {body}");
    }
    let stream = scene.admin.request(Method::GET, "/api/v1/events?server=LOG-1");
    let stream = scene.admin.send(stream.header("accept", "text/event-stream")).await;
    stream.refused(400, "validation_error");
    scene.end().await;
}
