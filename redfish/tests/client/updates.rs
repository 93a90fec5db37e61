//! Updates against the scripted BMC: what is sent, what is never sent twice, what is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use redfish::{
    Bmc, ErrorKind, Fence, ImageOffer, PreparedUpdate, Profile, TransportError, TransportErrorKind,
    UpdateImage, UpdateRequest, UpdateStart, UpdateState, UploadProgress, choose_way,
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::fake::{Fake, ROOT, Reply, builder, client};

pub(crate) const SERVICE: &str = "/redfish/v1/UpdateService";
pub(crate) const SIMPLE: &str = "/redfish/v1/UpdateService/Actions/SimpleUpdate";
pub(crate) const MULTIPART: &str = "/redfish/v1/UpdateService/upload";
pub(crate) const PUSH: &str = "/redfish/v1/UpdateService/push";
pub(crate) const TASK: &str = "/redfish/v1/TaskService/Tasks/7";
pub(crate) const IMAGE: &str = "the image";
const URL: &str = "http://10.0.0.1/tcanary0grant0abcdef/bios.bin";

/// A BMC that offers every way.
pub(crate) fn fake() -> Arc<Fake> {
    let fake = Fake::new();
    let link = |path: &str| json!({ "@odata.id": path });
    fake.merge(ROOT, json!({ "UpdateService": link(SERVICE), "Tasks": link("/redfish/v1/TaskService") }));
    fake.put(
        SERVICE,
        json!({
            "ServiceEnabled": true, "MultipartHttpPushUri": MULTIPART, "HttpPushUri": PUSH,
            "Actions": { "#UpdateService.SimpleUpdate": { "target": SIMPLE } },
        }),
    );
    fake.put("/redfish/v1/TaskService", json!({ "Tasks": link("/redfish/v1/TaskService/Tasks") }));
    fake.put(
        "/redfish/v1/TaskService/Tasks",
        json!({ "Members": [link("/redfish/v1/TaskService/Tasks/3")] }),
    );
    fake
}

pub(crate) async fn prepared(bmc: &Bmc, request: UpdateRequest) -> PreparedUpdate {
    let service = bmc.update_capability().await.unwrap();
    let offer = ImageOffer { size: IMAGE.len() as u64, schemes: &["http"] };
    let choice = choose_way(&service, &bmc.profile(), &offer).unwrap();
    bmc.prepare_update(&service, choice, &request).await.unwrap()
}

pub(crate) fn image() -> UpdateImage<'static> {
    UpdateImage::Stream { image: Box::new(IMAGE.as_bytes()), length: IMAGE.len() as u64 }
}

/// Starts an update with what the route needs and returns the request that carried it.
pub(crate) async fn start(
    bmc: &Bmc,
    prepared: &PreparedUpdate,
) -> Result<UpdateStart, redfish::RedfishError> {
    let image = match prepared.choice.route {
        redfish::update::UpdateRoute::Simple { .. } => UpdateImage::Url(URL),
        _ => image(),
    };
    bmc.start_update(prepared, image, &UploadProgress::default()).await
}

fn text(body: &Option<Value>) -> String {
    body.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_multipart_upload_has_parameters_first_and_the_image_last() {
    let fake = fake();
    fake.on(Method::POST, MULTIPART, [Reply::status(202).header("location", TASK)]);
    let bmc = client(&fake);
    let request = UpdateRequest {
        targets: vec!["/redfish/v1/Systems/1/Bios".to_owned()],
        apply_time: Some(redfish::ApplyTime::OnReset),
        force: true,
        file_name: "bios 2.bin".to_owned(),
    };
    let update = prepared(&bmc, request).await;
    assert_eq!(update.tasks_before, ["3"]);
    let started = start(&bmc, &update).await.unwrap();
    assert_eq!(started.handle().task.as_deref(), Some(TASK));
    let sent = fake.sent(Method::POST, MULTIPART);
    let body = text(&sent[0].body);
    let parameters = "{\"@Redfish.OperationApplyTime\":\"OnReset\",\"ForceUpdate\":true,\"Targets\":[\"/redfish/v1/Systems/1/Bios\"]}";
    let (first, last) = (body.find(parameters).unwrap(), body.find(IMAGE).unwrap());
    assert!(first < last && body.contains("name=\"UpdateFile\"; filename=\"bios2.bin\""), "{body}");
    assert!(sent[0].header("content-type").unwrap().starts_with("multipart/form-data; boundary="));
}

#[tokio::test(start_paused = true)]
async fn a_simple_update_adds_the_protocol_only_when_the_bmc_demands_it() {
    let fake = fake();
    fake.merge(SERVICE, json!({ "MultipartHttpPushUri": null, "HttpPushUri": null }));
    fake.on(
        Method::POST,
        SIMPLE,
        [
            Reply::error(400, "Base.1.0.ActionParameterMissing", "TransferProtocol is missing"),
            Reply::status(202),
        ],
    );
    let bmc = client(&fake);
    let update = prepared(&bmc, UpdateRequest::default()).await;
    assert!(matches!(start(&bmc, &update).await.unwrap(), UpdateStart::Accepted(_)));
    let bodies: Vec<_> = fake.sent(Method::POST, SIMPLE).into_iter().map(|sent| sent.body.unwrap()).collect();
    assert_eq!(bodies[0], json!({ "ImageURI": URL }));
    assert_eq!(bodies[1], json!({ "ImageURI": URL, "TransferProtocol": "HTTP" }));
}

#[tokio::test(start_paused = true)]
async fn an_image_is_sent_at_most_once_whatever_the_bmc_returns() {
    let lost = || Reply::fails(TransportError::maybe_sent(TransportErrorKind::Lost, "cut"));
    for (reply, maybe) in [
        (Reply::status(401), false),
        (Reply::status(400), false),
        (Reply::status(412), false),
        (Reply::status(307).header("location", "/elsewhere"), false),
        (Reply::status(413), false),
        (Reply::status(429), false),
        (Reply::status(500), true),
        (Reply::status(503), true),
        (Reply::times_out(), true),
        (lost(), true),
        (Reply::fails(TransportError::not_sent(TransportErrorKind::Refused, "refused")), false),
    ] {
        let fake = fake();
        fake.on(Method::POST, MULTIPART, [reply, Reply::status(202)]);
        let bmc = client(&fake);
        let update = prepared(&bmc, UpdateRequest::default()).await;
        match start(&bmc, &update).await {
            Ok(UpdateStart::MaybeAccepted { handle, .. }) => assert!(maybe && !handle.has_task()),
            Ok(UpdateStart::Accepted(_)) => panic!("accepted"),
            Err(error) => assert!(!maybe && !error.maybe_applied(), "{error}"),
        }
        assert_eq!(fake.sent(Method::POST, MULTIPART).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_with_a_session_that_has_ended_is_busy_and_one_with_refused_credentials_is_unauthorized() {
    let refused = || Reply::status(401).header("www-authenticate", "Basic realm=\"bmc\"");
    let basic = Profile { session: redfish::profile::Auth::Basic, ..Profile::generic() };
    for (profile, ended) in [(Profile::generic(), true), (basic, false)] {
        let fake = fake();
        fake.on(Method::POST, MULTIPART, [refused()]);
        let bmc = builder(&fake, profile).build();
        let update = prepared(&bmc, UpdateRequest::default()).await;
        let error = start(&bmc, &update).await.unwrap_err();
        match error.kind {
            ErrorKind::Busy { status: 401, .. } => assert!(ended),
            ErrorKind::Unauthorized { .. } => assert!(!ended),
            _ => panic!("{error}"),
        }
    }
}

/// A command is sent again with a new session, so a second 401 is a refusal and no reason to wait.
#[tokio::test(start_paused = true)]
async fn a_simple_update_that_is_refused_with_a_new_session_too_is_unauthorized() {
    let fake = fake();
    fake.merge(SERVICE, json!({ "MultipartHttpPushUri": null, "HttpPushUri": null }));
    fake.on(Method::POST, SIMPLE, [Reply::status(401), Reply::status(401)]);
    let bmc = client(&fake);
    let update = prepared(&bmc, UpdateRequest::default()).await;
    let error = start(&bmc, &update).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Unauthorized { .. }), "{error}");
    assert_eq!(fake.sent(Method::POST, SIMPLE).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_url_of_an_image_and_no_password_is_stored_or_shown() {
    let fake = fake();
    fake.merge(SERVICE, json!({ "MultipartHttpPushUri": null, "HttpPushUri": null }));
    fake.on(
        Method::POST,
        SIMPLE,
        [Reply::error(400, "X.1.0.Y", &format!("cannot read {URL} (canary-secret)"))],
    );
    let bmc = client(&fake);
    let update = prepared(&bmc, UpdateRequest::default()).await;
    let error = start(&bmc, &update).await.unwrap_err().to_string();
    assert!(!error.contains("canary"), "{error}");
    let stored = serde_json::to_string(&(&update, update.handle())).unwrap();
    assert!(!stored.contains("canary"), "{stored}");
}

/// Owns the server for some pieces only.
struct Pieces(AtomicUsize);

impl Fence for Pieces {
    fn allows(&self, _: Duration) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_stops_when_the_sender_loses_the_server() {
    let fake = fake();
    let update = prepared(&client(&fake), UpdateRequest::default()).await;
    fake.on(Method::POST, MULTIPART, [Reply::status(202)]);
    for owned in 0..8 {
        let bmc = builder(&fake, Profile::generic()).fence(Arc::new(Pieces(AtomicUsize::new(owned)))).build();
        let progress = UploadProgress::default();
        match bmc.start_update(&update, image(), &progress).await {
            Err(error) => assert!(matches!(error.kind, ErrorKind::Fenced), "{owned}: {error}"),
            Ok(_) => {
                assert!(
                    owned >= 5 && progress.is_complete(),
                    "root, login, service, upload and three pieces: {owned}"
                );
                return;
            }
        }
        assert!(!progress.is_complete() && fake.sent(Method::POST, MULTIPART).is_empty());
    }
    panic!("never sent");
}

#[tokio::test(start_paused = true)]
async fn a_large_upload_may_take_longer_than_a_small_one() {
    // Two minutes until the response: a small image has one, ten megabytes have seventeen.
    for (length, arrives) in [(IMAGE.len() as u64, false), (10_000_000, true)] {
        let fake = fake();
        let task = json!({ "@odata.id": TASK, "TaskState": "New" });
        fake.on(Method::POST, MULTIPART, [Reply::json(202, task).after(Duration::from_secs(120))]);
        let bmc = client(&fake);
        let prepared = prepared(&bmc, UpdateRequest::default()).await;
        let image = UpdateImage::Stream { image: Box::new(tokio::io::repeat(7).take(length)), length };
        let started = bmc.start_update(&prepared, image, &UploadProgress::default()).await;
        let accepted = matches!(started, Ok(UpdateStart::Accepted(_)));
        assert_eq!(accepted, arrives, "{length} bytes: {started:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disabled_or_busy_service_is_named_before_anything_is_sent() {
    let fake = fake();
    let bmc = client(&fake);
    let service = bmc.update_capability().await.unwrap();
    let offer = ImageOffer { size: 1, schemes: &[] };
    let choice = choose_way(&service, &bmc.profile(), &offer).unwrap();
    fake.merge(SERVICE, json!({ "HttpPushUriTargetsBusy": true }));
    let error = bmc.prepare_update(&service, choice.clone(), &UpdateRequest::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Busy { .. }), "{error}");
    fake.merge(SERVICE, json!({ "ServiceEnabled": false }));
    let error = bmc.prepare_update(&service, choice, &UpdateRequest::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NotSupported { .. }), "{error}");
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_of_an_update_that_runs_makes_a_bmc_busy_that_shows_no_flag_for_it() {
    const TASKS: &str = "/redfish/v1/TaskService/Tasks";
    let fake = fake();
    let bmc = client(&fake);
    let service = bmc.update_capability().await.unwrap();
    let offer = ImageOffer { size: 1, schemes: &[] };
    let choice = choose_way(&service, &bmc.profile(), &offer).unwrap();
    let members = json!([{ "@odata.id": format!("{TASKS}/3") }, { "@odata.id": format!("{TASKS}/4") }]);
    fake.merge(TASKS, json!({ "Members": members }));
    let scheduled = json!({ "Messages": [{ "Message": "Completed, server reboot pending." }] });
    for (task, busy) in [
        (json!({ "Name": "Firmware update", "TaskState": "Running", "PercentComplete": 40 }), true),
        (json!({ "Name": "Firmware update", "TaskState": "Running", "PercentComplete": 100 }), true),
        (json!({ "Name": "Firmware update", "TaskState": "Completed" }), false),
        (json!({ "Name": "Firmware update", "TaskState": "Exception" }), false),
        (
            json!({ "Name": "Firmware update", "TaskState": "Pending", "Messages": scheduled["Messages"] }),
            false,
        ),
        (json!({ "Name": "Firmware update", "TaskState": "Starting" }), true),
        (json!({ "Name": "Firmware update", "TaskState": "Downloading", "PercentComplete": 10 }), true),
        (json!({ "Name": "Firmware update", "TaskState": "UserIntervention" }), false),
        (json!({ "Name": "Firmware update", "TaskState": "Pending", "PercentComplete": 100 }), false),
        (json!({ "Name": "Firmware update", "TaskState": "Suspended", "PercentComplete": 40 }), false),
        (json!({ "Name": "Firmware update" }), false),
        (json!({ "Name": "Log dump", "TaskState": "Running" }), false),
    ] {
        fake.put(&format!("{TASKS}/4"), task.clone());
        let prepared = bmc.prepare_update(&service, choice.clone(), &UpdateRequest::default()).await;
        match prepared.map_err(|error| error.kind) {
            Ok(prepared) => assert!(!busy && prepared.tasks_before == ["3", "4"], "{task}"),
            Err(ErrorKind::Busy { message, .. }) => {
                assert!(busy && message.contains("task 4"), "{task}: {message}")
            }
            Err(other) => panic!("{task}: {other}"),
        }
    }
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_bmc_cannot_show_stops_no_update_and_a_bmc_that_is_busy_or_silent_does() {
    type Replies = fn() -> Reply;
    type Expected = fn(&ErrorKind) -> bool;
    let (busy, silent): (Expected, Expected) =
        (|kind| matches!(kind, ErrorKind::Busy { .. }), |kind| matches!(kind, ErrorKind::Timeout { .. }));
    let table: [(Replies, Option<Expected>); 5] = [
        (|| Reply::status(404), None),
        (|| Reply::status(500), None),
        (|| Reply::status(503), Some(busy)),
        (|| Reply::status(429), Some(busy)),
        (Reply::times_out, Some(silent)),
    ];
    for (row, (reply, expected)) in table.into_iter().enumerate() {
        let fake = fake();
        let bmc = client(&fake);
        let service = bmc.update_capability().await.unwrap();
        let offer = ImageOffer { size: 1, schemes: &[] };
        let choice = choose_way(&service, &bmc.profile(), &offer).unwrap();
        let replies = std::iter::repeat_with(reply).take(20);
        fake.on(Method::GET, "/redfish/v1/TaskService/Tasks/3", replies);
        let prepared = bmc.prepare_update(&service, choice, &UpdateRequest::default()).await;
        match (prepared, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => assert!(expected(&error.kind), "row {row}: {error}"),
            (prepared, _) => panic!("row {row}: {:?}", prepared.map(|_| "prepared")),
        }
        assert!(fake.mutations().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_reason_for_each_way_is_kept() {
    let fake = fake();
    fake.merge(SERVICE, json!({ "MaxImageSizeBytes": 100 }));
    let bmc = client(&fake);
    let service = bmc.update_capability().await.unwrap();
    let offer = |size, schemes| ImageOffer { size, schemes };
    let none = choose_way(&service, &bmc.profile(), &offer(101, &[])).unwrap_err().to_string();
    assert_eq!(
        none,
        "no way to update this BMC fits: multipart: the image has 101 bytes and the BMC takes at most 100; push: the \
         image has 101 bytes and the BMC takes at most 100; simple: the image is not served to this BMC"
    );
    let choice = choose_way(&service, &bmc.profile(), &offer(101, &["https"])).unwrap();
    assert!(choice.why().ends_with("simple: the BMC reads the image by HTTPS"), "{}", choice.why());
}

#[tokio::test(start_paused = true)]
async fn an_inventory_is_read_over_its_pages_and_an_unreadable_member_is_counted() {
    let fake = fake();
    let link = |path: &str| json!({ "@odata.id": path });
    fake.merge(SERVICE, json!({ "FirmwareInventory": link("/inv") }));
    fake.put(
        "/inv",
        json!({ "Members": [link("/inv/1"), link("/inv/2")], "Members@odata.nextLink": "/inv?p=2" }),
    );
    fake.put("/inv?p=2", json!({ "Members": [link("/inv/3")], "Members@odata.nextLink": "/inv" }));
    fake.put(
        "/inv/1",
        json!({ "Id": "Installed-1-2.0", "Version": "2.0", "SoftwareId": "1", "Updateable": true,
            "ReleaseDate": "2026-01-02", "RelatedItem": [link("/redfish/v1/Systems/1")] }),
    );
    fake.put("/inv/3", json!({ "Id": "Previous-1-1.0", "Version": "" }));
    let bmc = client(&fake);
    let service = bmc.update_capability().await.unwrap();
    let found = bmc.firmware_inventory(&service).await.unwrap();
    assert_eq!((found.items.len(), found.unreadable), (2, 1));
    assert!(found.items[0].is_active() && !found.items[1].is_active());
    assert_eq!(found.items[0].related, ["/redfish/v1/Systems/1"]);
    assert_eq!(found.items[1].version, None);
    assert!(bmc.software_item("/inv/2").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_poll_reads_once_and_follows_the_other_path_when_one_is_missing() {
    let fake = fake();
    fake.on(
        Method::POST,
        MULTIPART,
        [Reply::json(202, json!({ "@odata.id": TASK, "TaskState": "New", "TaskMonitor": "/mon" }))],
    );
    let bmc = client(&fake);
    let update = prepared(&bmc, UpdateRequest::default()).await;
    let handle = start(&bmc, &update).await.unwrap().handle().clone();
    fake.put(TASK, json!({ "TaskState": "Running", "PercentComplete": 12 }));
    let before = fake.journal().len();
    let poll = bmc.poll_update(&handle).await.unwrap();
    assert_eq!((poll.state, fake.journal().len() - before), (UpdateState::Running { percent: Some(12) }, 1));
    fake.on(
        Method::GET,
        TASK,
        [Reply::status(404), Reply::status(404), Reply::status(503).header("retry-after", "20")],
    );
    fake.on(Method::GET, "/mon", [Reply::status(204), Reply::status(404)]);
    assert_eq!(bmc.poll_update(&handle).await.unwrap().state, UpdateState::Done);
    assert_eq!(bmc.poll_update(&handle).await.unwrap().state, UpdateState::Gone);
    let away = bmc.poll_update(&handle).await.unwrap();
    assert!(matches!(away.state, UpdateState::Away { .. }));
    assert_eq!(away.retry_after, Some(Duration::from_secs(20)));
}

#[tokio::test(start_paused = true)]
async fn a_restarting_bmc_that_shows_404_for_everything_has_not_lost_the_task() {
    let fake = fake();
    fake.on(Method::POST, MULTIPART, [Reply::status(202).header("location", TASK)]);
    let bmc = client(&fake);
    let update = prepared(&bmc, UpdateRequest::default()).await;
    let handle = start(&bmc, &update).await.unwrap().handle().clone();
    fake.on(Method::GET, SERVICE, [Reply::status(404)]);
    assert!(matches!(bmc.poll_update(&handle).await.unwrap().state, UpdateState::Away { .. }));
    assert_eq!(bmc.poll_update(&handle).await.unwrap().state, UpdateState::Gone);
}
