//! Sessions: reused, renewed once, replaced by Basic, deleted; and no secret in any output.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::Method;
use redfish::error::DenialReason;
use redfish::{ErrorKind, Profile, ResetType, SessionHandle, SessionKeeper, SystemSelector};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::fake::{
    Fake, INSERT, PASSWORD, RESET, ROOT, Reply, SESSIONS, SLOT, SYSTEM, TOKEN, URL, builder, client,
};

#[tokio::test(start_paused = true)]
async fn one_session_serves_all_requests_and_is_deleted_at_logout() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let found = bmc.discover(&SystemSelector::default()).await.unwrap();
    bmc.power_state(&found.system).await.unwrap();
    let logins = fake.sent(Method::POST, SESSIONS);
    assert_eq!(logins.len(), 1);
    assert_eq!(logins[0].body, Some(json!({ "UserName": "admin", "Password": PASSWORD })));
    assert_eq!(fake.sent(Method::GET, SYSTEM)[0].header("x-auth-token"), Some("canary-token-1"));
    assert!(fake.journal().iter().all(|sent| sent.header("authorization").is_none()));

    bmc.logout().await.unwrap();
    let deleted = fake.sent(Method::DELETE, "/redfish/v1/Sessions/1");
    assert_eq!(deleted[0].header("x-auth-token"), Some("canary-token-1"));
    bmc.logout().await.unwrap();
    assert_eq!(fake.mutations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_renewed_once_and_the_request_repeated() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    fake.on(
        Method::POST,
        RESET,
        [Reply::status(401), Reply::status(204).effect(SYSTEM, json!({"PowerState": "On"}))],
    );
    let done = bmc.reset(&system, ResetType::On).await.unwrap();
    assert!(done.changed && done.confirmed);
    let tokens: Vec<_> = fake
        .sent(Method::POST, RESET)
        .iter()
        .map(|sent| sent.header("x-auth-token").map(str::to_owned))
        .collect();
    assert_eq!(tokens, [Some("canary-token-1".to_owned()), Some("canary-token-2".to_owned())]);
    // The rejected session may still exist, so it is deleted.
    let deleted: Vec<_> = fake.journal().into_iter().filter(|sent| sent.method == Method::DELETE).collect();
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].header("x-auth-token"), Some("canary-token-2"));
}

#[tokio::test(start_paused = true)]
async fn a_second_401_is_final() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::GET, SLOT, [Reply::status(401), Reply::status(401), Reply::status(401)]);
    let error = bmc.slot(SLOT).await.unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::Unauthorized { denial: DenialReason::Credentials, .. }),
        "{error}"
    );
    assert!(!error.is_transient());
    assert_eq!(fake.sent(Method::GET, SLOT).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_always_returns_401_leaks_no_sessions() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::GET, SLOT, (0..40).map(|_| Reply::status(401)));
    for _ in 0..10 {
        bmc.slot(SLOT).await.unwrap_err();
    }
    let (opened, deleted) = (fake.sent(Method::POST, SESSIONS).len(), fake.mutations().len());
    assert_eq!((opened, deleted), (11, 10));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_with_basic_is_blocked_too() {
    let fake = Fake::new();
    let profile = Profile { session: redfish::profile::Auth::Basic, ..Profile::generic() };
    let bmc = builder(&fake, profile).build();
    let refused = || Reply::status(401).header("www-authenticate", "Basic realm=\"bmc\"");
    fake.on(Method::GET, SLOT, (0..9).map(|_| refused()));
    for _ in 0..5 {
        bmc.slot(SLOT).await.unwrap_err();
    }
    assert_eq!(fake.journal().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_whose_basic_is_switched_off_gets_a_session_although_the_profile_says_basic() {
    let fake = Fake::new();
    let profile = Profile { session: redfish::profile::Auth::Basic, ..Profile::generic() };
    let bmc = builder(&fake, profile.clone()).build();
    fake.on(Method::GET, SLOT, [Reply::status(401)]);
    bmc.slot(SLOT).await.unwrap();
    bmc.slot(SLOT).await.unwrap();
    assert_eq!(fake.sent(Method::POST, SESSIONS).len(), 1);
    assert!(bmc.session().await.is_some());

    // A wrong password too: the BMC has seen it twice, so no third attempt is sent.
    let fake = Fake::new();
    let bmc = builder(&fake, profile).build();
    fake.on(Method::GET, SLOT, (0..9).map(|_| Reply::status(401)));
    fake.on(Method::POST, SESSIONS, (0..9).map(|_| Reply::error(401, "Base.1.0.NoValidSession", "wrong")));
    for _ in 0..5 {
        bmc.slot(SLOT).await.unwrap_err();
    }
    assert_eq!((fake.sent(Method::GET, SLOT).len(), fake.sent(Method::POST, SESSIONS).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn bmcs_without_sessions_get_basic_and_no_second_login() {
    for (status, linked) in [(0, false), (404, true), (405, true), (501, true), (400, true)] {
        let fake = Fake::new();
        if linked {
            fake.on(Method::POST, SESSIONS, [Reply::status(status)]);
        } else {
            fake.put(ROOT, json!({ "Systems": { "@odata.id": "/redfish/v1/Systems" } }));
        }
        let bmc = client(&fake);
        bmc.slot(SLOT).await.unwrap();
        bmc.slot(SLOT).await.unwrap();
        let read = &fake.sent(Method::GET, SLOT)[1];
        assert_eq!(read.header("authorization"), Some("Basic YWRtaW46Y2FuYXJ5LXNlY3JldA=="));
        assert_eq!(fake.sent(Method::POST, SESSIONS).len(), usize::from(linked), "{status}");
        assert!(bmc.session().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_out_of_sessions_is_used_with_basic() {
    let fake = Fake::new();
    fake.on(
        Method::POST,
        SESSIONS,
        [Reply::error(503, "IDRAC.2.4.RAC0218", "The maximum number of sessions is reached")],
    );
    client(&fake).slot(SLOT).await.unwrap();
    assert!(fake.sent(Method::GET, SLOT)[0].header("authorization").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_profile_can_ask_for_basic_from_the_start() {
    let fake = Fake::new();
    let profile = Profile { session: redfish::profile::Auth::Basic, ..Profile::generic() };
    builder(&fake, profile).build().slot(SLOT).await.unwrap();
    assert_eq!(fake.journal().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_session_service_is_followed_when_the_root_does_not_link_sessions() {
    let fake = Fake::new();
    fake.put(ROOT, json!({ "SessionService": { "@odata.id": "/redfish/v1/S" } }));
    fake.put("/redfish/v1/S", json!({ "Sessions": { "@odata.id": SESSIONS } }));
    client(&fake).slot(SLOT).await.unwrap();
    assert_eq!(fake.sent(Method::POST, SESSIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_blocked_before_the_account_is_locked() {
    let fake = Fake::new();
    fake.on(Method::POST, SESSIONS, (0..9).map(|_| Reply::error(401, "Base.1.0.NoValidSession", "wrong")));
    let bmc = client(&fake);
    for _ in 0..5 {
        let error = bmc.slot(SLOT).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Unauthorized { .. }) && !error.is_transient());
    }
    assert_eq!(fake.sent(Method::POST, SESSIONS).len(), 2);
    let error = bmc.slot(SLOT).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Unauthorized { denial: DenialReason::TooManyRejections, .. }));
    tokio::time::advance(std::time::Duration::from_secs(601)).await;
    bmc.slot(SLOT).await.unwrap_err();
    assert_eq!(fake.sent(Method::POST, SESSIONS).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_password_that_must_be_changed_is_reported() {
    let fake = Fake::new();
    fake.on(Method::POST, SESSIONS, [Reply::error(403, "Base.1.8.PasswordChangeRequired", "change it")]);
    let error = client(&fake).slot(SLOT).await.unwrap_err();
    assert!(matches!(
        error.kind,
        ErrorKind::Unauthorized { denial: DenialReason::PasswordChangeRequired, .. }
    ));
    assert!(error.to_string().contains("set a new password"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_login_with_an_unknown_outcome_is_not_repeated() {
    let fake = Fake::new();
    fake.on(Method::POST, SESSIONS, [Reply::times_out()]);
    let error = client(&fake).slot(SLOT).await.unwrap_err();
    assert!(error.maybe_applied() && error.is_transient());
    assert_eq!(fake.sent(Method::POST, SESSIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_left_by_a_crash_is_deleted_with_its_own_token_even_if_it_no_longer_exists() {
    for reply in [204, 404, 401] {
        let fake = Fake::new();
        let uri = "/redfish/v1/Sessions/77";
        fake.on(Method::DELETE, uri, [Reply::status(reply)]);
        let stale = SessionHandle { uri: uri.to_owned(), token: "old".to_owned().into() };
        client(&fake).delete_session(&stale).await.unwrap();
        let journal = fake.journal();
        assert_eq!((journal.len(), journal[0].header("x-auth-token")), (1, Some("old")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_session_is_used_without_a_login() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let kept = SessionHandle { uri: "/redfish/v1/Sessions/5".to_owned(), token: "kept".to_owned().into() };
    bmc.adopt_session(kept).await;
    bmc.slot(SLOT).await.unwrap();
    assert_eq!(fake.journal().len(), 1);
    assert_eq!(fake.journal()[0].header("x-auth-token"), Some("kept"));
    assert_eq!(bmc.session().await.unwrap().token.expose_secret(), "kept");
}

#[derive(Default)]
struct Keeper(Mutex<Vec<String>>);

#[async_trait]
impl SessionKeeper for Keeper {
    async fn opened(&self, session: &SessionHandle) {
        self.0.lock().unwrap().push(format!("opened {}", session.uri));
    }

    fn closed(&self, uri: &str) {
        self.0.lock().unwrap().push(format!("closed {uri}"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_keeper_is_notified_of_every_session() {
    let fake = Fake::new();
    let keeper = Arc::new(Keeper::default());
    let bmc = builder(&fake, Profile::generic()).session_keeper(keeper.clone()).build();
    fake.on(Method::GET, SLOT, [Reply::status(401)]);
    bmc.slot(SLOT).await.unwrap();
    bmc.logout().await.unwrap();
    let saved = keeper.0.lock().unwrap().clone();
    let (one, two) = ("/redfish/v1/Sessions/1", "/redfish/v1/Sessions/2");
    assert_eq!(
        saved,
        [format!("opened {one}"), format!("closed {one}"), format!("opened {two}"), format!("closed {two}")]
    );
}

#[tokio::test(start_paused = true)]
async fn no_secret_appears_in_errors_or_debug_output_even_when_the_bmc_echoes_it() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let echo =
        format!("cannot mount {URL} (path /tcanary0grant0abcdef/boot.iso) for {PASSWORD} with {TOKEN}-1");
    fake.on(Method::POST, INSERT, [Reply::error(400, "Oem.1.0.Echo", &echo)]);
    let error = bmc.insert(SLOT, URL, Default::default()).await.unwrap_err();
    fake.merge(SLOT, crate::fake::inserted());
    let slot = bmc.slot(SLOT).await.unwrap();
    let session = bmc.session().await.unwrap();
    let shown = format!(
        "{error} {error:?} {slot:?} {session:?} {:?}",
        redfish::BmcCredentials::new("u", PASSWORD.to_owned())
    );
    assert!(shown.contains("cannot mount http://10.0.0.1/[redacted]"), "{shown}");
    for secret in [PASSWORD, TOKEN, "tcanary0grant0abcdef"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    let stored = serde_json::to_string(&slot).unwrap();
    assert!(!stored.contains("tcanary"), "{stored}");
}

#[tokio::test(start_paused = true)]
async fn an_echoed_basic_header_is_redacted() {
    let fake = Fake::new();
    let profile = Profile { session: redfish::profile::Auth::Basic, ..Profile::generic() };
    let bmc = builder(&fake, profile).build();
    fake.on(Method::GET, SLOT, [Reply::text(400, "bad header: Basic YWRtaW46Y2FuYXJ5LXNlY3JldA==")]);
    assert!(bmc.slot(SLOT).await.unwrap_err().to_string().contains("Basic [redacted]"));
}
