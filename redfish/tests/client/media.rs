//! Virtual media: bodies of an insert, PATCH, forms of eject, what counts as empty and as inserted.

use http::Method;
use redfish::profile::{Include, InsertFields};
use redfish::{ErrorKind, InsertOptions, Profile};
use serde_json::{Value, json};

use crate::fake::{EJECT, Fake, INSERT, Reply, SLOT, URL, builder, client, inserted};

fn patch_only(fake: &Fake) {
    fake.merge(SLOT, json!({ "Actions": null }));
}

fn bodies(fake: &Fake) -> Vec<Value> {
    fake.mutations().into_iter().map(|sent| sent.body.unwrap_or(Value::Null)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_smallest_body_is_sent_first_and_the_slot_read_back() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::POST, INSERT, [Reply::status(204).effect(SLOT, inserted())]);
    let done = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    assert!(done.changed && done.confirmed && done.observed.holds(URL));
    assert_eq!(bodies(&fake), [json!({ "Image": URL })]);
    let again = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    assert!(!again.changed && again.confirmed);
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_success_that_shows_nothing_is_not_confirmed() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [Reply::status(204)]);
    let done = client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap();
    assert!(done.changed && !done.confirmed);
}

#[tokio::test(start_paused = true)]
async fn each_member_a_bmc_demands_is_added_once() {
    let fake = Fake::new();
    let asks = |name: &str| {
        let property = format!("#/{name}");
        let info =
            json!([{ "MessageId": "Base.1.8.ActionParameterMissing", "RelatedProperties": [property] }]);
        Reply::json(400, json!({ "error": { "@Message.ExtendedInfo": info } }))
    };
    let taken = Reply::status(200).effect(SLOT, inserted());
    let replies =
        [asks("TransferProtocolType"), asks("TransferMethod"), asks("UserName"), asks("Inserted"), taken];
    fake.on(Method::POST, INSERT, replies);
    assert!(client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
    let sent = bodies(&fake);
    assert_eq!(sent.len(), 5);
    assert_eq!(sent[1], json!({ "Image": URL, "TransferProtocolType": "HTTP" }));
    assert_eq!(
        sent[4],
        json!({
            "Image": URL, "TransferProtocolType": "HTTP", "TransferMethod": "Stream",
            "UserName": "none", "Password": "none", "Inserted": true, "WriteProtected": true,
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_a_bmc_refuses_is_left_out() {
    let fake = Fake::new();
    let fields = InsertFields { inserted: Include::Always, ..Profile::generic().insert_fields };
    let bmc = builder(&fake, Profile { insert_fields: fields, ..Profile::generic() }).build();
    let refused = Reply::error(400, "Base.1.8.ActionParameterUnknown", "The parameter Inserted is unknown");
    fake.on(Method::POST, INSERT, [refused, Reply::status(204).effect(SLOT, inserted())]);
    assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
    assert_eq!(bodies(&fake)[1], json!({ "Image": URL }));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_always_demands_more_ends_the_insert() {
    let fake = Fake::new();
    let forever = "TransferProtocolType TransferMethod UserName Inserted";
    fake.on(Method::POST, INSERT, (0..50).map(|_| Reply::text(400, forever)));
    let error = client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Refused { status: 400, .. }));
    assert_eq!(fake.mutations().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_no_member_ends_at_once() {
    let fake = Fake::new();
    fake.on(Method::POST, INSERT, [Reply::text(400, "Cannot download virtual media: got error 404")]);
    let error = client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("Cannot download"), "{error}");
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn licence_conflict_busy_and_missing_slot_are_distinct_errors() {
    for (status, id, code) in [
        (403, "SMC.1.0.OemLicenseNotPassed", "license"),
        (409, "Base.1.8.Conflict", "refused"),
        (400, "Base.1.8.ResourceInUse", "busy"),
        (404, "Base.1.8.ResourceMissingAtURI", "not_found"),
        (405, "Base.1.8.OperationNotAllowed", "not_supported"),
        (500, "Base.1.8.InternalError", "server"),
    ] {
        let fake = Fake::new();
        fake.on(Method::POST, INSERT, [Reply::error(status, id, "no")]);
        let error = client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.maybe_applied(), status == 500);
        assert_eq!(fake.mutations().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_insert_that_timed_out_is_not_repeated_and_can_be_observed() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::POST, INSERT, [Reply::times_out().effect(SLOT, inserted())]);
    let error = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(error.maybe_applied());
    assert!(bmc.slot(SLOT).await.unwrap().holds(URL));
    assert!(!bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().changed);
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_insert_may_take_as_long_as_the_profile_says() {
    let fake = Fake::new();
    let slow = Reply::status(204).effect(SLOT, inserted()).after(std::time::Duration::from_secs(119));
    fake.on(Method::POST, INSERT, [slow]);
    assert!(client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
}

#[tokio::test(start_paused = true)]
async fn a_slot_without_actions_is_patched_with_shrinking_bodies_under_its_etag() {
    let fake = Fake::new();
    patch_only(&fake);
    fake.merge(SLOT, json!({ "@odata.etag": "\"5\"" }));
    let refused = |name: &str| Reply::error(400, "Base.0.10.PropertyUnknown", &format!("{name} is unknown"));
    let taken = Reply::status(200).effect(SLOT, inserted());
    fake.on(Method::PATCH, SLOT, [refused("WriteProtected"), refused("Inserted"), taken]);
    assert!(client(&fake).insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
    let sent = bodies(&fake);
    assert_eq!(sent[0], json!({ "Image": URL, "Inserted": true, "WriteProtected": true }));
    assert_eq!(sent[1], json!({ "Image": URL, "Inserted": true }));
    assert_eq!(sent[2], json!({ "Image": URL }));
    assert!(fake.mutations().iter().all(|sent| sent.header("if-match") == Some("\"5\"")));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_allows_neither_action_nor_patch_is_not_tried() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let shown = json!({ "Id": "kvm", "Inserted": false });
    fake.on(Method::GET, SLOT, [Reply::json(200, shown).header("allow", "GET, HEAD")]);
    let error = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert_eq!(error.code(), "not_supported");
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_action_that_is_not_allowed_falls_back_to_a_patch_that_is() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let slot = json!({ "Inserted": false, "Actions": { "#VirtualMedia.InsertMedia": { "target": INSERT } } });
    fake.on(Method::GET, SLOT, [Reply::json(200, slot).header("allow", "GET, PATCH")]);
    fake.on(Method::PATCH, SLOT, [Reply::status(204).effect(SLOT, inserted())]);
    assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
}

#[tokio::test(start_paused = true)]
async fn unsafe_urls_and_unsupported_schemes_are_refused_before_sending() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let long = format!("http://10.0.0.1/{}", "a".repeat(300));
    for url in ["http://10.0.0.1/a.iso?sig=1", "http://10.0.0.1/a#b", "boot.iso", long.as_str()] {
        let error = bmc.insert(SLOT, url, InsertOptions::default()).await.unwrap_err();
        assert_eq!(error.code(), "config", "{error}");
    }
    fake.merge(SLOT, json!({ "TransferProtocolType@Redfish.AllowableValues": ["NFS", "CIFS"] }));
    let error = bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap_err();
    assert!(
        error.to_string().contains("reads media by nfs, cifs only, but media are served by http"),
        "{error}"
    );
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_url_in_another_spelling_is_recognised() {
    let fake = Fake::new();
    let bmc = client(&fake);
    for shown in [
        "http://10.0.0.1:80/tcanary0grant0abcdef/boot.iso",
        "HTTP://10.0.0.1/tcanary0grant0abcdef%2Fboot.iso",
    ] {
        fake.merge(SLOT, json!({ "Inserted": true, "Image": shown }));
        assert!(bmc.slot(SLOT).await.unwrap().holds(URL), "{shown}");
    }
    fake.merge(SLOT, json!({ "Image": "http://10.0.0.1/tother/boot.iso" }));
    assert!(!bmc.slot(SLOT).await.unwrap().holds(URL));
}

#[tokio::test(start_paused = true)]
async fn an_empty_slot_is_recognised_by_all_its_properties() {
    for (slot, empty) in [
        (json!({ "Inserted": false, "Image": null }), true),
        (json!({ "Inserted": false, "Image": "" }), true),
        (json!({ "Inserted": false, "Image": URL, "ConnectedVia": "NotConnected" }), true),
        (json!({ "Inserted": false, "Image": URL }), false),
        (json!({ "Inserted": false, "Image": URL, "ConnectedVia": "URI" }), false),
        (json!({ "Inserted": true, "Image": null, "ConnectedVia": "NotConnected" }), false),
        (json!({ "Image": "" }), true),
        (json!({ "Image": URL }), false),
    ] {
        let fake = Fake::new();
        fake.put(SLOT, slot.clone());
        assert_eq!(client(&fake).slot(SLOT).await.unwrap().is_empty(), empty, "{slot}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_slot_is_not_ejected() {
    let fake = Fake::new();
    let done = client(&fake).eject(SLOT).await.unwrap();
    assert!(!done.changed && done.confirmed);
    assert!(fake.mutations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_eject_sends_an_empty_object_and_then_no_body() {
    for refusal in [400, 415] {
        let fake = Fake::new();
        fake.merge(SLOT, inserted());
        let empty = json!({ "Inserted": false, "Image": null, "ConnectedVia": "NotConnected" });
        fake.on(Method::POST, EJECT, [Reply::status(refusal), Reply::status(204).effect(SLOT, empty)]);
        let done = client(&fake).eject(SLOT).await.unwrap();
        assert!(done.changed && done.confirmed);
        assert_eq!(bodies(&fake), [json!({}), Value::Null]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_without_eject_action_is_emptied_by_patch() {
    let fake = Fake::new();
    patch_only(&fake);
    fake.merge(SLOT, inserted());
    fake.on(
        Method::PATCH,
        SLOT,
        [Reply::status(204).effect(SLOT, json!({ "Inserted": false, "Image": null }))],
    );
    assert!(client(&fake).eject(SLOT).await.unwrap().confirmed);
    assert_eq!(bodies(&fake), [json!({ "Image": null, "Inserted": false })]);
}

#[tokio::test(start_paused = true)]
async fn an_eject_that_fails_but_leaves_the_slot_empty_succeeded() {
    for status in [409, 500] {
        let fake = Fake::new();
        fake.merge(SLOT, inserted());
        fake.on(
            Method::POST,
            EJECT,
            [Reply::status(status).effect(SLOT, json!({ "Inserted": false, "Image": "" }))],
        );
        assert!(client(&fake).eject(SLOT).await.unwrap().confirmed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_eject_that_leaves_the_image_is_an_error_or_unconfirmed() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.merge(SLOT, inserted());
    fake.on(Method::POST, EJECT, [Reply::error(409, "Base.1.8.Conflict", "in use"), Reply::status(204)]);
    assert_eq!(bmc.eject(SLOT).await.unwrap_err().status(), Some(409));
    let done = bmc.eject(SLOT).await.unwrap();
    assert!(done.changed && !done.confirmed);
}
