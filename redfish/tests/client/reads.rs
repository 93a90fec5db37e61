//! Reads: bounded retries of transient failures; redirects, permits, the fence, the observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use redfish::{
    ClientOptions, ErrorKind, Exchange, ExchangeResult, Fence, Observer, Profile, ResetType, SystemSelector,
    TransportError, TransportErrorKind,
};
use serde_json::json;
use tokio::time::Instant;

use crate::fake::{EJECT, Fake, INSERT, RESET, Reply, SLOT, SYSTEM, URL, builder, client, inserted};

#[tokio::test(start_paused = true)]
async fn a_read_succeeds_after_every_transient_failure() {
    let failures = [
        Reply::fails(TransportError::not_sent(TransportErrorKind::Connect, "refused")),
        Reply::times_out(),
        Reply::fails(TransportError::maybe_sent(TransportErrorKind::Lost, "reset")),
        Reply::status(500),
        Reply::text(502, "<html>bad gateway</html>"),
        Reply::status(503),
        Reply::status(429),
        Reply::error(400, "IDRAC.2.4.SYS518", "not ready"),
        Reply::text(200, "<html>starting</html>"),
        Reply::text(200, "{\"Id\": \"CD"),
        Reply::status(200),
        Reply::json(200, json!({ "error": { "message": "starting" } })),
    ];
    for failure in failures {
        let fake = Fake::new();
        let bmc = client(&fake);
        fake.on(Method::GET, SLOT, [failure.clone(), failure]);
        assert_eq!(bmc.slot(SLOT).await.unwrap().id, "CD1");
        assert_eq!(fake.sent(Method::GET, SLOT).len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_cannot_succeed_is_sent_once() {
    let failures = [
        Reply::status(404),
        Reply::status(403),
        Reply::status(400),
        Reply::fails(TransportError::not_sent(TransportErrorKind::PinMismatch, "other certificate")),
        Reply::fails(TransportError::maybe_sent(TransportErrorKind::BodyTooLarge, "50 MB")),
        Reply::status(302).header("location", "/login"),
    ];
    for failure in failures {
        let fake = Fake::new();
        let bmc = client(&fake);
        fake.on(Method::GET, SLOT, [failure]);
        let error = bmc.slot(SLOT).await.unwrap_err();
        assert!(!error.is_transient() && !error.maybe_applied(), "{error}");
        assert_eq!(fake.sent(Method::GET, SLOT).len(), 1, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_are_bounded_in_number_and_in_time() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::GET, SLOT, (0..20).map(|_| Reply::status(500)));
    let error = bmc.slot(SLOT).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Server { status: 500, .. }));
    assert_eq!(fake.sent(Method::GET, SLOT).len(), 5);

    let fake = Fake::new();
    let options = ClientOptions { read_budget: Duration::from_secs(100), ..ClientOptions::default() };
    let bmc = builder(&fake, Profile::generic()).options(options).build();
    fake.on(Method::GET, SLOT, (0..20).map(|_| Reply::status(200).after(Duration::from_secs(900))));
    let started = Instant::now();
    bmc.slot(SLOT).await.unwrap_err();
    assert!(started.elapsed() <= Duration::from_secs(130), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_the_minimum_wait() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::GET, SLOT, [Reply::status(429).header("retry-after", "40")]);
    let started = Instant::now();
    bmc.slot(SLOT).await.unwrap();
    assert!((40..=41).contains(&started.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn a_redirect_on_the_same_origin_keeps_method_body_and_credentials() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let moved = "/redfish/v1/Managers/1/Media/CD1/Insert/";
    fake.on(
        Method::POST,
        INSERT,
        [Reply::status(308).header("location", &format!("https://bmc.example{moved}"))],
    );
    fake.on(Method::POST, moved, [Reply::status(204).effect(SLOT, inserted())]);
    assert!(bmc.insert(SLOT, URL, Default::default()).await.unwrap().confirmed);
    let sent = fake.sent(Method::POST, moved);
    assert_eq!(sent[0].body, Some(json!({ "Image": URL })));
    assert!(sent[0].header("x-auth-token").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_another_origin_is_refused() {
    for target in
        ["https://evil.example/x", "http://bmc.example/x", "https://bmc.example:444/x", "//evil.example/x"]
    {
        let fake = Fake::new();
        let bmc = client(&fake);
        fake.on(Method::GET, SLOT, [Reply::status(307).header("location", target)]);
        let error = bmc.slot(SLOT).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::BadAnswer { lasting: true, .. }), "{error}");
        assert_eq!(fake.journal().len(), 3, "root, login, slot");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_loop_ends() {
    let fake = Fake::new();
    let bmc = client(&fake);
    let other = format!("{SLOT}/");
    fake.on(Method::GET, SLOT, (0..9).map(|_| Reply::status(308).header("location", &other)));
    fake.on(Method::GET, &other, (0..9).map(|_| Reply::status(308).header("location", SLOT)));
    assert!(matches!(bmc.slot(SLOT).await.unwrap_err().kind, ErrorKind::BadAnswer { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_refuses_identity_encoding_gets_all_later_requests_without_it() {
    let fake = Fake::new();
    let bmc = client(&fake);
    fake.on(Method::GET, SLOT, [Reply::status(406)]);
    bmc.slot(SLOT).await.unwrap();
    bmc.slot(SLOT).await.unwrap();
    let encodings: Vec<_> = fake
        .sent(Method::GET, SLOT)
        .iter()
        .map(|sent| sent.header("accept-encoding").map(str::to_owned))
        .collect();
    assert_eq!(encodings, [Some("identity".to_owned()), None, None]);
}

#[tokio::test(start_paused = true)]
async fn at_most_two_requests_are_in_flight_and_one_of_them_mutates() {
    let fake = Fake::new();
    let bmc = client(&fake);
    bmc.slot(SLOT).await.unwrap();
    fake.merge(
        SLOT,
        json!({ "Inserted": true, "Image": "http://10.0.0.1/stale/old.iso", "ConnectedVia": "URI" }),
    );
    let second = Duration::from_secs(1);
    fake.on(Method::POST, EJECT, (0..8).map(|_| Reply::status(204).after(second)));
    fake.on(
        Method::GET,
        SLOT,
        (0..60).map(|_| {
            Reply::json(200, json!({
        "Inserted": true, "Image": "x", "Actions": { "#VirtualMedia.EjectMedia": { "target": EJECT } },
    })).after(second)
        }),
    );
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..12 {
        let bmc = bmc.clone();
        tasks.spawn(async move {
            if at % 2 == 0 { bmc.slot(SLOT).await.map(drop) } else { bmc.eject(SLOT).await.map(drop) }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(fake.most_in_flight(), (2, 1));
    assert_eq!(fake.sent(Method::POST, EJECT).len(), 6);
}

/// A fence whose lease is about to end: it allows only requests that need no time.
struct Expiring;

impl Fence for Expiring {
    fn allows(&self, owned_for: Duration) -> bool {
        assert!(owned_for.is_zero() || owned_for >= Duration::from_secs(1));
        owned_for.is_zero()
    }
}

/// A fence whose lease has ended: it allows nothing.
struct Closed;

impl Fence for Closed {
    fn allows(&self, _owned_for: Duration) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_fence_allows_no_request_not_even_a_login() {
    let fake = Fake::new();
    let bmc = builder(&fake, Profile::generic()).fence(Arc::new(Closed)).build();
    let error = bmc.discover(&SystemSelector::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Fenced), "{error}");
    assert!(fake.journal().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_is_about_to_close_allows_reads_and_no_mutation() {
    let fake = Fake::new();
    let bmc = builder(&fake, Profile::generic()).fence(Arc::new(Expiring)).build();
    let system = bmc.discover(&SystemSelector::default()).await.unwrap().system;
    for error in [
        bmc.reset(&system, ResetType::On).await.unwrap_err(),
        bmc.insert(SLOT, URL, Default::default()).await.unwrap_err(),
        bmc.set_boot_once(&system, &bmc.profile().boot_targets, None).await.unwrap_err(),
    ] {
        assert!(matches!(error.kind, ErrorKind::Fenced) && !error.maybe_applied());
    }
    assert!(fake.mutations().is_empty());
}

#[derive(Default)]
struct Counter(Mutex<Vec<(String, ExchangeResult, u32)>>);

impl Observer for Counter {
    fn exchange(&self, exchange: Exchange<'_>) {
        let what = format!("{} {} {}", exchange.operation, exchange.method, exchange.path);
        self.0.lock().unwrap().push((what, exchange.result, exchange.attempt));
    }
}

#[tokio::test(start_paused = true)]
async fn the_observer_receives_every_request_with_result_and_attempt() {
    let fake = Fake::new();
    let counter = Arc::new(Counter::default());
    let bmc = builder(&fake, Profile::generic()).observer(counter.clone()).build();
    fake.on(Method::GET, SYSTEM, [Reply::times_out()]);
    bmc.discover(&SystemSelector::default()).await.unwrap();
    let seen = counter.0.lock().unwrap().clone();
    assert_eq!(seen.len(), fake.journal().len());
    assert_eq!(seen[1], ("login POST /redfish/v1/Sessions".to_owned(), ExchangeResult::Status(201), 1));
    let system = format!("discover GET {SYSTEM}");
    assert!(seen.contains(&(system.clone(), ExchangeResult::Failed(TransportErrorKind::Timeout), 1)));
    assert!(seen.contains(&(system, ExchangeResult::Status(200), 2)));
    assert_eq!(fake.sent(Method::POST, RESET).len(), 0);
}
