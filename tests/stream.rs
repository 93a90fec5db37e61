//! The event stream: what happens, as it happens, once and in order, resumable at any place.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Client, Scene, honest, silent, soon};

/// An open stream, read event by event.
struct Stream {
    response: reqwest::Response,
    buffer: String,
}

/// One event of a stream.
#[derive(Debug, PartialEq)]
struct Told {
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

    /// The next event; `None` when the server has closed the stream. Comments do not count as something new.
    async fn next(&mut self) -> Option<Told> {
        soon("the next event", self.read()).await
    }

    async fn read(&mut self) -> Option<Told> {
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
                    return Some(Told {
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

    async fn rest(mut self) -> Vec<Told> {
        let mut all = Vec::new();
        while let Some(told) = self.next().await {
            all.push(told);
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_a_job_from_the_first_event_to_the_last_and_ends() {
    let scene = Scene::start(vec![honest("LIVE-1")]).await;
    let id = scene.admin.create_job("LIVE-1").await;
    let place = format!("/api/v1/jobs/{id}/events");
    let told = Stream::open(&scene.admin, &place, None).await.rest().await;
    let written = scene.admin.events(&id).await;

    let (end, told) = told.split_last().unwrap();
    assert_eq!((end.event.as_str(), end.id), ("end", None));
    let data: Vec<&Value> = told.iter().map(|told| &told.data).collect();
    assert_eq!(data, written.iter().collect::<Vec<_>>(), "the stream and the pages tell the same");
    for one in told {
        assert_eq!(
            (one.id, one.event.as_str()),
            (one.data["seq"].as_i64(), one.data["type"].as_str().unwrap())
        );
    }
    assert_eq!(told.last().unwrap().event, "run.ended");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_goes_on_where_it_was() {
    let scene = Scene::start(vec![honest("BACK-1")]).await;
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
    let ids: Vec<i64> = seen.iter().filter_map(|told| told.id).collect();
    let written: Vec<i64> =
        scene.admin.events(&id).await.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(ids, written, "nothing lost, nothing twice");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_everything_tells_all_jobs_in_the_order_of_the_log() {
    let scene = Scene::start(vec![honest("ALL-1"), honest("ALL-2")]).await;
    let mut stream = Stream::open(&scene.admin, "/api/v1/events", None).await;
    let (one, two) = (scene.admin.create_job("ALL-1").await, scene.admin.create_job("ALL-2").await);
    let mut told = Vec::new();
    while told.iter().filter(|told: &&Told| told.event == "run.ended").count() < 2 {
        told.push(stream.next().await.unwrap());
    }
    let ids: Vec<i64> = told.iter().map(|told| told.id.unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let page = scene.admin.get("/api/v1/events?limit=1000").await.expect(200);
    let written: Vec<i64> =
        page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(ids, written[..ids.len()]);
    for job in [&one, &two] {
        assert!(told.iter().any(|told| told.data["job_id"] == json!(job)));
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_subscribers_are_all_told_and_stopping_does_not_wait_for_them() {
    let scene = Scene::start(vec![silent("MANY-1")]).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(Stream::open(&scene.admin, "/api/v1/events", None).await);
    }
    let id = scene.admin.create_job("MANY-1").await;
    for stream in &mut streams {
        loop {
            let told = stream.next().await.unwrap();
            if told.event == "job.created" {
                assert_eq!(told.data["job_id"], json!(id));
                break;
            }
        }
    }
    tokio::time::timeout(Duration::from_secs(8), scene.end()).await.expect("streams end with the controller");
    for stream in streams {
        // Cut or closed: it ends.
        let _rest = stream.rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_needs_credentials_and_a_place_in_the_log() {
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
    scene.end().await;
}
