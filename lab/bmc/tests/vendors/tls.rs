//! Simulated BMCs behind TLS, and connections that fail.

use std::sync::Arc;
use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, NullHost, SimBmc, SimBmcServer};
use redfish::{
    Endpoint, HttpOptions, HttpTransport, Request, TlsVerification, Transport, TransportError,
    TransportErrorKind,
};

use crate::kit::{Memory, config};

async fn served(vendor: &str) -> (SimBmc, SimBmcServer) {
    let sim_bmc = SimBmc::new(config(vendor), Arc::new(NullHost), Memory::bootable());
    let server = sim_bmc.serve_tls_on_loopback().await.unwrap();
    (sim_bmc, server)
}

fn transport(server: &SimBmcServer, tls: &TlsVerification) -> HttpTransport {
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
    transport.send(request, Duration::from_secs(20)).await.map(|response| response.status.as_u16())
}

#[tokio::test]
async fn a_renewed_certificate_fails_the_pin_before_any_request() {
    let (sim_bmc, server) = served("dell-idrac9-6").await;
    let pin = TlsVerification::Pin(redfish::Fingerprint(sim_bmc.fingerprint().unwrap()));
    assert_eq!(root(&transport(&server, &pin)).await.unwrap(), 200);
    sim_bmc.renew_certificate();
    let before = sim_bmc.snapshot().requests;
    let refused = root(&transport(&server, &pin)).await.unwrap_err();
    assert_eq!((refused.kind, refused.maybe_sent), (TransportErrorKind::PinMismatch, false));
    assert_eq!(sim_bmc.snapshot().requests, before);
    server.stop().await;
}

#[tokio::test]
async fn a_bmc_limited_to_tls_1_0_fails_the_handshake_with_an_alert() {
    let (_sim_bmc, server) = served("hpe-ilo4").await;
    let refused = root(&transport(&server, &TlsVerification::Insecure)).await.unwrap_err();
    assert_eq!((refused.kind, refused.maybe_sent), (TransportErrorKind::LegacyTls, false));
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_fails_as_often_as_configured_and_then_succeeds() {
    let (sim_bmc, server) = served("generic").await;
    sim_bmc.inject(Fault::always(FaultTrigger::Connect, FaultEffect::FailHandshake).times(2));
    let transport = transport(&server, &TlsVerification::Insecure);
    for _ in 0..2 {
        assert!(!root(&transport).await.unwrap_err().maybe_sent);
    }
    assert_eq!(root(&transport).await.unwrap(), 200);
    server.stop().await;
}

#[tokio::test]
async fn connections_are_refused_while_the_bmc_restarts() {
    let (sim_bmc, server) = served("generic").await;
    let transport = transport(&server, &TlsVerification::Insecure);
    sim_bmc.set_reachable(false);
    // The listener accepts a connection before it knows that the BMC is not reachable.
    let kinds = [TransportErrorKind::Connect, TransportErrorKind::HandshakeCut];
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match root(&transport).await {
                Err(error) if kinds.contains(&error.kind) => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    });
    assert!(!refused.await.unwrap().maybe_sent);
    sim_bmc.set_reachable(true);
    tokio::time::timeout(Duration::from_secs(20), async { while root(&transport).await.is_err() {} })
        .await
        .unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_connection_is_reset_before_and_in_the_middle_of_a_response() {
    let sim_bmc = SimBmc::new(config("generic"), Arc::new(NullHost), Memory::bootable());
    let server = sim_bmc.serve_on_loopback().await.unwrap();
    let transport = transport(&server, &TlsVerification::Insecure);
    for effect in [FaultEffect::Reset, FaultEffect::CutBody(20), FaultEffect::Drop] {
        sim_bmc.inject(Fault::once(FaultTrigger::Read, effect.clone()));
        let lost = root(&transport).await.unwrap_err();
        assert_eq!((lost.kind, lost.maybe_sent), (TransportErrorKind::Lost, true), "{effect:?}");
    }
    sim_bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Huge(50 << 20)));
    assert_eq!(root(&transport).await.unwrap_err().kind, TransportErrorKind::BodyTooLarge);
    for effect in [FaultEffect::Chunked, FaultEffect::Trickle(Duration::ZERO)] {
        sim_bmc.inject(Fault::once(FaultTrigger::Read, effect.clone()));
        assert_eq!(root(&transport).await.unwrap(), 200, "{effect:?}");
    }
    server.stop().await;
}
