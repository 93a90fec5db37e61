//! Connections, the identity check and probes against a simulated BMC, in one process.

use std::sync::Arc;

use async_trait::async_trait;
use lab_bmc::{
    Fault, FaultEffect, FaultTrigger, InProcess, JournalItem, MediaReader, MediaRefusal, MediaRequest,
    MediaResponse, NullHost, SimBmc, SimBmcConfig,
};
use redfish::{
    Endpoint, ErrorKind, Fingerprint, InsertOptions, SystemSelector, TlsVerification, Transport,
    TransportError,
};
use secrets::{MasterKey, Resolver};

use super::*;
use engine::model::{Serial, Server, TlsMode};
use engine::{StepOutcome, StepReport};

const SERIAL: &str = "BMC-1";

struct NoMedia;

#[async_trait]
impl MediaReader for NoMedia {
    async fn fetch(&self, _: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        Ok(MediaResponse { status: 404, ..MediaResponse::default() })
    }
}

struct NoMetrics;

impl redfish::Observer for NoMetrics {
    fn exchange(&self, _: redfish::Exchange<'_>) {}
}

struct NoSessions;

#[async_trait]
impl SessionStore for NoSessions {
    async fn save(&self, _: &Serial, _: Option<SealedSession>) -> Result<(), Unavailable> {
        Ok(())
    }

    async fn load(&self, _: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<Serial>, Unavailable> {
        Ok(Vec::new())
    }
}

struct OneServer(Server);

#[async_trait]
impl ServerLookup for OneServer {
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable> {
        Ok((*serial == self.0.serial).then(|| self.0.clone()))
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
        let sim = SimBmc::new(
            SimBmcConfig::new(SERIAL, "root", "calvin-and-hobbes"),
            Arc::new(NullHost),
            Arc::new(NoMedia),
        );
        let key = MasterKey::from_bytes(&[7; 32]);
        let password = Resolver::new(&key).seal(SERIAL, &"calvin-and-hobbes".into()).unwrap();
        let server = Server {
            bmc_address: "https://127.0.0.1".to_owned(),
            bmc_username: "root".to_owned(),
            bmc_password: password.to_string(),
            tls: TlsMode::Insecure,
            ..Server::unknown(SERIAL.parse().unwrap(), "2026-11-20T08:00:00Z".parse().unwrap())
        };
        let listen = "127.0.0.1:8080".parse().unwrap();
        let connections = Bmcs::new(
            Resolver::new(&key),
            key.derive("bmc-sessions"),
            Arc::new(NoSessions),
            Arc::new(NoMetrics),
            redfish::ClientOptions { read_attempts: 1, ..redfish::ClientOptions::default() },
            BmcLimits { each: redfish::LimitOptions::none(), in_flight: 16 },
            None,
        )
        .with_connector(Arc::new(OneBmc(sim.clone())));
        let services = BmcServices {
            servers: Box::new(OneServer(server.clone())),
            connections,
            addresses: Addresses { api: listen, media: listen, public_url: None, media_base_url: None },
            tries: 1,
        };
        Self { sim, server, services }
    }

    /// Discovers the machine and compares its serial number with the record.
    async fn identity(&self) -> Result<Option<engine::model::NewEvent>, StepReport> {
        let connected = self.services.connections.reader(&self.server, None).await.unwrap();
        let discovery = connected.bmc.discover(&SystemSelector::serial(SERIAL)).await.unwrap();
        self.services.connections.release(&self.server.serial, &connected.bmc).await;
        identity::verify("step", &self.server, &discovery)
    }

    fn changes(&self) -> usize {
        self.sim.journal().iter().filter(|entry| matches!(entry.what, JournalItem::Change(_))).count()
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_registered_machine_or_one_an_operator_allows_passes_the_identity_check() {
    let refused = |checked: Result<_, StepReport>| match checked.unwrap_err().outcome {
        StepOutcome::Fail(failure) => (failure.class, failure.next_action),
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
