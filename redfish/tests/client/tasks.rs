//! Tasks: polled until they end; the result is then read from the resource.

use std::time::Duration;

use http::Method;
use redfish::{
    ChangeResult, ErrorKind, InsertOptions, Profile, RedfishError, Slot, TransportError, TransportErrorKind,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fake::{Fake, INSERT, Reply, SLOT, URL, builder, client, inserted};

const MONITOR: &str = "/redfish/v1/TaskMonitors/9";
const TASK: &str = "/redfish/v1/TaskService/Tasks/9";

fn accepted() -> Reply {
    Reply::status(202).header("location", MONITOR)
}

fn task(state: &str) -> Value {
    json!({ "@odata.id": TASK, "@odata.type": "#Task.v1_4_0.Task", "TaskState": state })
}

async fn insert(fake: &std::sync::Arc<Fake>) -> Result<ChangeResult<Slot>, RedfishError> {
    client(fake).insert(SLOT, URL, InsertOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_monitor_is_polled_until_the_operation_ended() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted().header("retry-after", "3")]);
    let running = || Reply::json(202, task("Running")).header("retry-after", "7");
    fake.on(Method::GET, MONITOR, [running(), running(), Reply::status(204).effect(SLOT, inserted())]);
    let started = Instant::now();
    assert!(insert(&fake).await.unwrap().confirmed);
    assert_eq!(started.elapsed().as_secs(), 17);
}

#[tokio::test(start_paused = true)]
async fn completed_is_final_with_any_status() {
    for status in [200, 202] {
        let fake = Fake::new();
        fake.on(Method::POST, INSERT, [accepted()]);
        fake.on(Method::GET, MONITOR, [Reply::json(status, task("Completed")).effect(SLOT, inserted())]);
        assert!(insert(&fake).await.unwrap().confirmed);
        assert_eq!(fake.sent(Method::GET, MONITOR).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_task_served_with_200_is_not_done() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    let done = Reply::json(200, task("Completed")).effect(SLOT, inserted());
    fake.on(
        Method::GET,
        MONITOR,
        [Reply::json(200, task("New")), Reply::json(200, task("downloading")), done],
    );
    assert!(insert(&fake).await.unwrap().confirmed);
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_reported_with_its_message() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    let mut failed = task("Exception");
    failed["Messages"] = json!([{ "MessageId": "Oem.1.0.NoImage", "Message": format!("cannot read {URL}") }]);
    fake.on(Method::GET, MONITOR, [Reply::json(200, failed)]);
    let error = insert(&fake).await.unwrap_err();
    let ErrorKind::TaskFailed { state, message_id, message } = &error.kind else { panic!("{error}") };
    assert_eq!((state.as_str(), message_id.as_deref()), ("Exception", Some("Oem.1.0.NoImage")));
    assert_eq!(message, "cannot read http://10.0.0.1/[redacted]");
}

#[tokio::test(start_paused = true)]
async fn a_removed_monitor_proves_nothing_and_the_slot_is_read() {
    for holds in [true, false] {
        let fake = Fake::new();
        let effect = if holds { inserted() } else { json!({}) };
        fake.on(Method::POST, INSERT, [accepted().effect(SLOT, effect)]);
        let done = insert(&fake).await.unwrap();
        assert_eq!((done.changed, done.confirmed), (true, holds));
        assert_eq!(fake.sent(Method::GET, MONITOR).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_path_of_the_task_is_used_when_the_monitor_fails() {
    for monitor in [Reply::status(405), Reply::status(404), Reply::status(500)] {
        let fake = Fake::new();
        fake.on(Method::POST, INSERT, [Reply::json(202, task("New")).header("location", MONITOR)]);
        fake.on(Method::GET, MONITOR, [monitor]);
        fake.on(Method::GET, TASK, [Reply::json(200, task("Completed")).effect(SLOT, inserted())]);
        assert!(insert(&fake).await.unwrap().confirmed);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_202_without_monitor_and_task_the_slot_is_read() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [Reply::status(202).effect(SLOT, inserted())]);
    assert!(insert(&fake).await.unwrap().confirmed);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_returned_by_the_monitor_is_that_of_the_operation() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    fake.on(
        Method::GET,
        MONITOR,
        [Reply::error(400, "Base.1.8.ActionParameterValueFormatError", "bad image")],
    );
    let error = insert(&fake).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Refused { status: 400, .. }) && !error.maybe_applied());
}

#[tokio::test(start_paused = true)]
async fn a_few_failed_polls_are_ignored_and_many_are_not() {
    let lost = || Reply::fails(TransportError::maybe_sent(TransportErrorKind::Lost, "reset"));
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    let done = Reply::status(204).effect(SLOT, inserted());
    fake.on(Method::GET, MONITOR, [lost(), Reply::status(503), lost(), done]);
    assert!(insert(&fake).await.unwrap().confirmed);

    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    fake.on(Method::GET, MONITOR, (0..50).map(|_| lost()));
    let error = insert(&fake).await.unwrap_err();
    assert!(error.maybe_applied() && error.is_transient());
    assert_eq!(fake.sent(Method::GET, MONITOR).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn polling_ends_at_the_task_timeout_of_the_profile() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    fake.on(
        Method::GET,
        MONITOR,
        (0..500).map(|_| Reply::json(202, task("Running")).header("retry-after", "0")),
    );
    let started = Instant::now();
    let error = insert(&fake).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Timeout { .. }) && error.maybe_applied());
    assert!(started.elapsed() <= Duration::from_secs(120));
    assert!(fake.sent(Method::GET, MONITOR).len() <= 120);
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_task_of_an_insert_is_not_read_when_the_slot_shows_the_image_and_a_pause_follows() {
    let pause = Profile { settle_after_mount: Duration::from_secs(180), ..Profile::generic() };
    for (profile, shown_at_once, reads) in
        [(pause.clone(), true, 0), (pause, false, 1), (Profile::generic(), true, 1)]
    {
        let fake = Fake::new();
        let post = match shown_at_once {
            true => accepted().effect(SLOT, inserted()),
            false => accepted(),
        };
        fake.on(Method::POST, INSERT, [post]);
        fake.on(Method::GET, MONITOR, [Reply::json(200, task("Completed")).effect(SLOT, inserted())]);
        let bmc = builder(&fake, profile).build();
        assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
        assert_eq!(fake.sent(Method::GET, MONITOR).len(), reads, "shown at once: {shown_at_once}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_reported_also_where_the_slot_is_read_first() {
    let pause = Profile { settle_after_mount: Duration::from_secs(180), ..Profile::generic() };
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [accepted()]);
    fake.on(Method::GET, MONITOR, [Reply::json(200, task("Exception"))]);
    let error = builder(&fake, pause).build().insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::TaskFailed { .. }), "{error:?}");
}
