//! Connections, the identity check and probes against a simulated BMC, in one process.

use std::sync::Arc;
use std::time::Duration;

use super::test_support::{PASSWORD, SharedSessions};
use super::*;
use async_trait::async_trait;
use engine::{StepEnd, StepError};
use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, InProcess, JournalItem, MediaReader, MediaRefusal, MediaRequest,
    MediaResponse, NullHost, RequestKind, SimBmc, SimBmcConfig,
};
use model::{Serial, Server, StepName, TlsMode};
use parking_lot::Mutex;
use redfish::{
    Endpoint, ErrorKind, Fingerprint, InsertOptions, SystemSelector, TlsVerification, Transport,
    TransportError,
};

const SERIAL: &str = "BMC-1";

struct NoMedia;

#[async_trait]
impl MediaReader for NoMedia {
    async fn fetch(&self, _: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        Ok(MediaResponse { status: 404, ..MediaResponse::default() })
    }
}

/// Connects every address to one simulated BMC.
struct OneBmc(SimBmc);

#[async_trait]
impl BmcConnector for OneBmc {
    fn transport(&self, _: &Endpoint, _: &TlsVerification) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(InProcess::new(self.0.clone())))
    }

    async fn fingerprint(&self, _: &Endpoint) -> Result<Fingerprint, TransportError> {
        panic!("the record accepts any certificate")
    }
}

/// A registered server whose BMC is simulated.
struct Bench {
    sim: SimBmc,
    server: Server,
    services: BmcServices,
}

impl Bench {
    fn new() -> Self {
        let sim =
            SimBmc::new(SimBmcConfig::new(SERIAL, "root", PASSWORD), Arc::new(NullHost), Arc::new(NoMedia));
        let now = "2026-11-20T08:00:00Z".parse().unwrap();
        let server =
            test_support::server(SERIAL.parse().unwrap(), "https://127.0.0.1".to_owned(), now).unwrap();
        let server = Server { tls: TlsMode::Insecure, ..server };
        let services = test_support::services(server.clone(), SharedSessions::default());
        let connections = services.connections.with_connector(Arc::new(OneBmc(sim.clone())));
        let services = BmcServices { connections, ..services };
        Self { sim, server, services }
    }

    /// Discovers the machine and compares its serial number with the record.
    async fn identity(&self) -> Result<Option<model::NewEvent>, StepError> {
        let connected = self.services.connections.reader(&self.server, None).await.unwrap();
        let discovery = connected.bmc.discover(&SystemSelector::serial(SERIAL)).await.unwrap();
        self.services.connections.release(&self.server.serial, &connected.bmc).await;
        identity::verify(&StepName::new("step"), &self.server, &discovery)
    }

    fn changes(&self) -> usize {
        self.sim.journal().iter().filter(|entry| matches!(entry.what, JournalItem::Change(_))).count()
    }
}

/// A store that takes a second to write, as a busy disk does. Remembers the last request that the BMC had when a session was
/// stored.
struct SlowSessions(SimBmc, Arc<Mutex<Vec<RequestKind>>>);

#[async_trait]
impl SessionStore for SlowSessions {
    async fn save(&self, _: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if session.is_some() {
            let last = self.0.journal().into_iter().rev().find_map(|entry| match entry.what {
                JournalItem::Request { operation, .. } => Some(operation),
                JournalItem::Change(_) => None,
            });
            self.1.lock().extend(last);
        }
        Ok(())
    }

    async fn load(&self, _: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<Serial>, Unavailable> {
        Ok(Vec::new())
    }
}

/// A controller that is killed after its first change at a BMC leaves no session that its successor does not know.
#[tokio::test(start_paused = true)]
async fn a_session_is_stored_before_the_first_request_with_it_is_sent() {
    let bench = Bench::new();
    let stored = Arc::<Mutex<Vec<RequestKind>>>::default();
    let sessions = SlowSessions(bench.sim.clone(), Arc::clone(&stored));
    let services = test_support::services(bench.server.clone(), sessions);
    let connections = services.connections.with_connector(Arc::new(OneBmc(bench.sim.clone())));
    let connected = connections.reader(&bench.server, None).await.unwrap();
    connected.bmc.discover(&SystemSelector::serial(SERIAL)).await.unwrap();
    assert_eq!(*stored.lock(), [RequestKind::Login]);
}

#[tokio::test(start_paused = true)]
async fn only_the_registered_machine_or_one_an_operator_allows_passes_the_identity_check() {
    let refused = |checked: Result<_, StepError>| match *checked.unwrap_err().end {
        StepEnd::Fail(failure) => (failure.class, failure.next_action),
        other => panic!("{other:?}"),
    };
    let bench = Bench::new();
    assert!(bench.identity().await.unwrap().is_none());

    let bench = Bench::new();
    bench.sim.inject(Fault::always(FaultTrigger::Read, FaultEffect::WrongSerial("OTHER-9".to_owned())));
    let (class, next) = refused(bench.identity().await);
    assert!(class == class::INPUT && next.contains("--bmc-address"), "{class} {next}");

    let mut bench = Bench::new();
    bench.sim.inject(Fault::always(FaultTrigger::Read, FaultEffect::WrongSerial(String::new())));
    let (class, next) = refused(bench.identity().await);
    assert!(class == class::INPUT && next.contains("--allow-unverified-serial"), "{class} {next}");
    bench.server.allow_unverified_serial = true;
    assert_eq!(bench.identity().await.unwrap().unwrap().kind, "redfish.serial-unverified");
}

#[tokio::test(start_paused = true)]
async fn the_client_of_a_probe_sends_no_change() {
    let bench = Bench::new();
    let connected = bench.services.connections.reader(&bench.server, None).await.unwrap();
    let discovery = connected.bmc.discover(&SystemSelector::serial(SERIAL)).await.unwrap();
    let slot = &discovery.slots[0].uri;
    let refused = connected.bmc.insert(slot, "http://192.0.2.1/a.iso", InsertOptions::default()).await;
    assert!(matches!(refused.unwrap_err().kind, ErrorKind::Fenced));
    assert_eq!(bench.changes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_changes_nothing_and_leaves_no_session() {
    let bench = Bench::new();
    let now = "2026-11-20T08:00:00Z".parse().unwrap();
    let probed = bench.services.probe(&bench.server, false, now).await.unwrap();
    assert_eq!(probed.card["slot_plan"]["plan"], "dual", "{:#}", probed.card);
    assert_eq!(probed.card["host"]["serial_check"], "match", "{:#}", probed.card);
    assert_eq!((bench.changes(), bench.sim.snapshot().open_sessions), (0, 0));
}
