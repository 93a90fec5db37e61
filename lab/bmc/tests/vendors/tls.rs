//! The same BMCs behind TLS, and without a connection worth the name.

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{Effect, Fault, NullHost, SimBmc, SimBmcServer, When};
use redfish::{
    Endpoint, HttpOptions, HttpTransport, Request, TlsMode, Transport, TransportError, TransportErrorKind,
};

use crate::kit::{Memory, config};

async fn served(vendor: &str) -> (SimBmc, SimBmcServer) {
    let twin = SimBmc::new(config(vendor), Arc::new(NullHost), Memory::bootable());
    let server = twin.serve_tls_on_loopback().await.unwrap();
    (twin, server)
}

fn transport(server: &SimBmcServer, tls: &TlsMode) -> HttpTransport {
    let endpoint: Endpoint = server.url().parse().unwrap();
    HttpTransport::new(&endpoint, tls, HttpOptions::default()).unwrap()
}

async fn root(transport: &HttpTransport) -> Result<u16, TransportError> {
    let request = Request {
        method: http::Method::GET,
        path: "/redfish/v1/".to_owned(),
        headers: http::HeaderMap::new(),
        body: None,
    };
    transport.send(request, Duration::from_secs(20)).await.map(|answer| answer.status.as_u16())
}

#[tokio::test]
async fn a_renewed_certificate_is_not_the_pinned_one_and_no_request_is_seen() {
    let (twin, server) = served("dell-idrac9-6").await;
    let pin = TlsMode::Pin(redfish::Fingerprint(twin.fingerprint().unwrap()));
    assert_eq!(root(&transport(&server, &pin)).await.unwrap(), 200);
    twin.renew_certificate();
    let before = twin.snapshot().requests;
    let refused = root(&transport(&server, &pin)).await.unwrap_err();
    assert_eq!((refused.kind, refused.maybe_sent), (TransportErrorKind::PinMismatch, false));
    assert_eq!(twin.snapshot().requests, before);
    server.stop().await;
}

#[tokio::test]
async fn who_ends_at_tls_1_0_fails_the_handshake_with_an_alert() {
    let (_twin, server) = served("hpe-ilo4").await;
    let refused = root(&transport(&server, &TlsMode::Insecure)).await.unwrap_err();
    assert_eq!((refused.kind, refused.maybe_sent), (TransportErrorKind::LegacyTls, false));
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_can_fail_so_often_and_then_succeed() {
    let (twin, server) = served("generic").await;
    twin.inject(Fault::always(When::Connect, Effect::FailHandshake).times(2));
    let transport = transport(&server, &TlsMode::Insecure);
    for _ in 0..2 {
        assert!(!root(&transport).await.unwrap_err().maybe_sent);
    }
    assert_eq!(root(&transport).await.unwrap(), 200);
    server.stop().await;
}

#[tokio::test]
async fn nobody_listens_while_the_bmc_restarts() {
    let (twin, server) = served("generic").await;
    let transport = transport(&server, &TlsMode::Insecure);
    twin.set_reachable(false);
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match root(&transport).await {
                Err(error) if error.kind == TransportErrorKind::Connect => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    });
    assert!(!refused.await.unwrap().maybe_sent);
    twin.set_reachable(true);
    tokio::time::timeout(Duration::from_secs(20), async { while root(&transport).await.is_err() {} })
        .await
        .unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_connection_is_reset_before_and_in_the_middle_of_an_answer() {
    let twin = SimBmc::new(config("generic"), Arc::new(NullHost), Memory::bootable());
    let server = twin.serve_on_loopback().await.unwrap();
    let transport = transport(&server, &TlsMode::Insecure);
    for effect in [Effect::Reset, Effect::CutBody(20), Effect::Drop] {
        twin.inject(Fault::once(When::Read, effect.clone()));
        let lost = root(&transport).await.unwrap_err();
        assert_eq!((lost.kind, lost.maybe_sent), (TransportErrorKind::Lost, true), "{effect:?}");
    }
    twin.inject(Fault::once(When::Read, Effect::Huge(50 << 20)));
    assert_eq!(root(&transport).await.unwrap_err().kind, TransportErrorKind::BodyTooLarge);
    for effect in [Effect::Chunked, Effect::Trickle(Duration::ZERO)] {
        twin.inject(Fault::once(When::Read, effect.clone()));
        assert_eq!(root(&transport).await.unwrap(), 200, "{effect:?}");
    }
    server.stop().await;
}
