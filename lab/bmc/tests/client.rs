//! The Redfish client with simulated BMCs over real sockets; the two share only the specification.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lab_bmc::{
    BootContext, BootSource, Fault, FaultEffect, FaultTrigger, Host, HttpMediaReader, IfMatchRule, SimBmc,
    SimBmcConfig, SimBmcServer, SimBmcSnapshot, SlotTree, VARIANTS,
};
use redfish::{
    Bmc, BmcBuilder, BmcCredentials, BootTarget, ClientOptions, Discovery, ErrorKind, HttpOptions,
    HttpTransport, InsertOptions, PowerState, Profile, ResetType, SerialMatch, SystemSelector,
    TlsVerification,
};

const SERIAL: &str = "SIM0001";
const LIMIT: Duration = Duration::from_secs(20);

/// A host that runs nothing; the simulated BMC shows what it booted.
struct Idle;

impl Host for Idle {
    fn power_on(&self, _: BootContext) {}
    fn power_off(&self, _: &str) {}
}

/// An image that has only a primary volume descriptor and a terminator.
fn image() -> Bytes {
    const SECTOR: usize = 2048;
    let mut image = vec![0; 512 * SECTOR];
    for (sector, kind) in [(16, 1), (17, 255)] {
        let at = sector * SECTOR;
        image[at] = kind;
        image[at + 1..at + 6].copy_from_slice(b"CD001");
        image[at + 6] = 1;
    }
    image[16 * SECTOR + 80..][..4].copy_from_slice(&512_u32.to_le_bytes());
    image[16 * SECTOR + 84..][..4].copy_from_slice(&512_u32.to_be_bytes());
    image[16 * SECTOR + 128..][..4].copy_from_slice(&[0, 8, 8, 0]);
    Bytes::from(image)
}

/// Serves the image under every path, with single ranges.
async fn media_server() -> String {
    let image = image();
    let serve = move |method: Method, headers: HeaderMap| {
        let image = image.clone();
        async move { ranged(&method, &headers, &image) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(serve)).await });
    base
}

fn ranged(method: &Method, headers: &HeaderMap, image: &Bytes) -> Response {
    let asked = headers.get(header::RANGE).and_then(|range| {
        let (from, to) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let from: usize = from.parse().ok()?;
        let to = to.parse().unwrap_or(usize::MAX).min(image.len() - 1);
        (from <= to).then_some((from, to))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-iso9660-image"), (header::ACCEPT_RANGES, "bytes")];
    match asked.filter(|_| *method == Method::GET) {
        Some((from, to)) => {
            let range = [(header::CONTENT_RANGE, format!("bytes {from}-{to}/{}", image.len()))];
            (StatusCode::PARTIAL_CONTENT, kind, range, image.slice(from..=to)).into_response()
        }
        None => (StatusCode::OK, kind, image.clone()).into_response(),
    }
}

/// A simulated BMC on a socket and its client.
struct Bench {
    sim_bmc: SimBmc,
    server: SimBmcServer,
    bmc: Bmc,
    media: String,
}

impl Bench {
    async fn new(config: SimBmcConfig) -> Self {
        Bench::with(config, Profile::generic()).await
    }

    async fn with(config: SimBmcConfig, profile: Profile) -> Self {
        Bench::of(config, profile, |builder| builder).await
    }

    async fn of(
        mut config: SimBmcConfig,
        profile: Profile,
        build: impl FnOnce(BmcBuilder) -> BmcBuilder,
    ) -> Self {
        config.boot.require_boot_record = false;
        let sim_bmc = SimBmc::new(config, Arc::new(Idle), Arc::new(HttpMediaReader::new().unwrap()));
        let server = sim_bmc.serve_on_loopback().await.unwrap();
        let endpoint: redfish::Endpoint = server.url().parse().unwrap();
        let transport =
            HttpTransport::new(&endpoint, &TlsVerification::Insecure, HttpOptions::default()).unwrap();
        let options = ClientOptions { backoff_base: Duration::from_millis(1), ..ClientOptions::default() };
        let builder = Bmc::builder(endpoint, account(), Arc::new(transport), profile).options(options);
        let bmc = build(builder).build();
        Bench { sim_bmc, server, bmc, media: media_server().await }
    }

    fn url(&self, grant: &str, file: &str) -> String {
        format!("{}/t{grant}/{file}", self.media)
    }

    async fn discover(&self) -> Discovery {
        self.bmc.discover(&SystemSelector::serial(SERIAL)).await.unwrap()
    }

    async fn until(&self, fits: impl FnMut(&SimBmcSnapshot) -> bool) -> SimBmcSnapshot {
        tokio::time::timeout(LIMIT, self.sim_bmc.wait_for(fits))
            .await
            .expect("the simulated BMC did not reach the state in time")
    }

    async fn switch(&self, found: &Discovery, reset: ResetType) {
        let goal = reset.goal().unwrap();
        let done = self.bmc.reset(&found.system, reset).await.unwrap();
        assert!(done.changed);
        let mut state = done.observed;
        tokio::time::timeout(LIMIT, async {
            while state != goal {
                tokio::task::yield_now().await;
                state = self.bmc.power_state(&found.system).await.unwrap();
            }
        })
        .await
        .expect("the host did not reach the power state in time");
    }

    async fn stop(self) {
        self.bmc.logout().await.unwrap();
        let end = self.sim_bmc.snapshot();
        assert_eq!(end.open_sessions, 0);
        assert!(end.max_in_flight <= 2 && end.max_mutating_in_flight <= 1);
        self.server.stop().await;
    }
}

fn account() -> BmcCredentials {
    BmcCredentials::new("admin", "canary-secret".to_owned())
}

fn config() -> SimBmcConfig {
    SimBmcConfig::new(SERIAL, "admin", "canary-secret")
}

/// The manager tells its kind, not the maker of the chassis, and not the numbers of its firmware.
#[tokio::test]
async fn each_variant_gets_the_profile_of_its_manager() {
    let expected = [
        ("dell-idrac10-2", "dell-idrac10"),
        ("dell-idrac9-detached", "dell-idrac9-6"),
        ("dell-idrac9-physical-cd", "dell-idrac9-6"),
        ("hpe-ilo6-no-override", "hpe-ilo6"),
        ("hpe-openbmc", "openbmc"),
        ("hpe-xd670", "ami-megarac"),
        ("inspur", "generic"),
        ("nvidia-gh200", "nvidia-gb200"),
        ("smc-x12-cd", "smc-x12"),
    ];
    assert_eq!(
        VARIANTS.iter().map(|variant| variant.name).collect::<Vec<_>>(),
        expected.map(|(name, _)| name)
    );
    for (variant, profile) in expected {
        let config = SimBmcConfig::vendor(variant, SERIAL, "admin", "canary-secret").unwrap().in_time(0.0);
        let bench = Bench::of(config, Profile::generic(), BmcBuilder::detecting).await;
        assert_eq!(bench.discover().await.profile, profile, "{variant}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_host_boots_from_two_images_and_the_bmc_is_left_clean() {
    let bench = Bench::new(config()).await;
    let bmc = &bench.bmc;
    let found = bench.discover().await;
    assert_eq!(found.system.matches_serial(SERIAL), SerialMatch::Match);
    assert_eq!(found.system.power_state, PowerState::Off);
    let slots: Vec<_> = found.slots.iter().filter(|slot| slot.is_cd() && slot.takes_media()).collect();
    let [boot, task] = slots[..] else { panic!("two CD slots") };
    assert!(!bmc.reset(&found.system, ResetType::ForceOff).await.unwrap().changed);
    assert!(!bmc.eject(&boot.uri).await.unwrap().changed);
    for (slot, file) in [(boot, "boot.iso"), (task, "task.iso")] {
        let done = bmc.insert(&slot.uri, &bench.url("abc", file), InsertOptions::default()).await.unwrap();
        assert!(done.changed && done.confirmed);
    }
    let set = bmc.set_boot_once(&found.system, &bmc.profile().boot_targets, None).await.unwrap();
    assert!(set.confirmed && set.observed.targets(&BootTarget::Cd));
    bench.switch(&found, ResetType::On).await;
    let booted = bench.until(|sim_bmc| sim_bmc.boots_from_media == 1).await;
    assert!(matches!(&booted.running, Some(BootSource::Media { slot, .. }) if *slot == boot.id));

    bench.switch(&found, ResetType::ForceOff).await;
    for slot in [boot, task] {
        let done = bmc.eject(&slot.uri).await.unwrap();
        assert!(done.changed && done.confirmed && done.observed.is_empty());
    }
    bmc.clear_boot_override(&found.system).await.unwrap();
    assert!(!bmc.boot_override(&found.system).await.unwrap().is_active());
    bench.switch(&found, ResetType::On).await;
    let end = bench.until(|sim_bmc| sim_bmc.boots_from_disk == 1).await;
    assert_eq!((end.power_ons, end.ejected_while_running, end.logins), (2, 0, 1));
    // Two inserts, the override, on, off, two ejects, on; the consumed override needs no PATCH.
    let mutations = bench.sim_bmc.mutations();
    assert_eq!(mutations.len(), 8, "{mutations:#?}");
    bench.stop().await;
}

/// The second job of a UEFI host whose BMC shows the mode Legacy after the first one.
#[tokio::test]
async fn a_host_without_bios_mode_boots_the_media_of_every_job() {
    let config = SimBmcConfig::vendor("smc-x12", SERIAL, "admin", "canary-secret").unwrap().in_time(0.0);
    let bench = Bench::of(config, Profile::generic(), BmcBuilder::detecting).await;
    let (bmc, found) = (&bench.bmc, bench.discover().await);
    let slot = found.slots.iter().find(|slot| slot.is_cd() && slot.takes_media()).unwrap();
    bmc.insert(&slot.uri, &bench.url("abc", "boot.iso"), InsertOptions::default()).await.unwrap();
    for job in 1..=3 {
        assert!(bmc.boot_media_once(&found, &slot.uri).await.unwrap().confirmed);
        bench.switch(&found, ResetType::On).await;
        let booted = bench.until(|sim_bmc| sim_bmc.boots_from_media + sim_bmc.boots_from_disk == job).await;
        assert_eq!(booted.boots_from_disk, 0, "job {job} has booted the disk");
        bench.switch(&found, ResetType::ForceOff).await;
    }
    bench.stop().await;
}

#[tokio::test]
async fn slots_are_found_once_in_every_tree_and_of_every_kind() {
    for tree in [SlotTree::Manager, SlotTree::System, SlotTree::Both] {
        let mut config = config();
        config.slot_tree = tree;
        let bench = Bench::new(config).await;
        let found = bench.discover().await;
        assert_eq!(found.slots.iter().filter(|slot| slot.is_cd()).count(), 2);
        assert_eq!(found.slots.iter().filter(|slot| slot.is_usb() && !slot.is_cd()).count(), 1);
        bench.stop().await;
    }
    let bench = Bench::new(config().with_single_cd()).await;
    assert_eq!(bench.discover().await.slots.iter().filter(|slot| slot.is_cd()).count(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn an_insert_applied_without_a_response_is_observed_and_not_repeated() {
    for effect in [FaultEffect::ApplyButTimeout, FaultEffect::ApplyButDrop] {
        let profile = Profile { insert_timeout: Duration::from_millis(700), ..Profile::generic() };
        let bench = Bench::with(config(), profile).await;
        let slot = bench.discover().await.slots[0].clone();
        let url = bench.url("abc", "boot.iso");
        bench.sim_bmc.inject(Fault::once(FaultTrigger::Insert, effect));
        let error = bench.bmc.insert(&slot.uri, &url, InsertOptions::default()).await.unwrap_err();
        assert!(error.maybe_applied() && error.is_transient(), "{error}");
        let observed = tokio::time::timeout(LIMIT, async {
            while !bench.bmc.slot(&slot.uri).await.unwrap().holds(&url) {
                tokio::task::yield_now().await;
            }
        });
        observed.await.expect("the slot did not show the image in time");
        let again = bench.bmc.insert(&slot.uri, &url, InsertOptions::default()).await.unwrap();
        assert!(!again.changed && again.confirmed);
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_insert_accepted_without_effect_is_not_confirmed() {
    let bench = Bench::new(config()).await;
    let slot = bench.discover().await.slots[0].clone();
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Insert, FaultEffect::AcceptButIgnore));
    let url = bench.url("abc", "boot.iso");
    let done = bench.bmc.insert(&slot.uri, &url, InsertOptions::default()).await.unwrap();
    assert!(done.changed && !done.confirmed);
    assert!(bench.bmc.insert(&slot.uri, &url, InsertOptions::default()).await.unwrap().confirmed);
    bench.stop().await;
}

#[tokio::test]
async fn a_busy_response_is_classified_and_a_bmc_restart_costs_one_login() {
    let bench = Bench::new(config()).await;
    let found = bench.discover().await;
    let busy = FaultEffect::Status {
        status: 400,
        message_id: "IDRAC.2.8.SYS518".into(),
        message: "not ready".into(),
    };
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Reset, busy));
    let error = bench.bmc.reset(&found.system, ResetType::On).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Busy { status: 400, .. }), "{error}");
    bench.sim_bmc.reset_bmc();
    bench.switch(&found, ResetType::On).await;
    assert_eq!(bench.sim_bmc.snapshot().power_ons, 1);
    assert_eq!(bench.sim_bmc.snapshot().logins, 2);
    bench.stop().await;
}

#[tokio::test]
async fn reads_survive_drops_rate_limits_and_broken_responses() {
    let bench = Bench::new(config()).await;
    let found = bench.discover().await;
    let broken = FaultEffect::Raw { status: 200, content_type: "text/html".into(), body: "<html>".into() };
    for effect in [
        FaultEffect::Drop,
        FaultEffect::RateLimit { retry_after_seconds: Some(0) },
        FaultEffect::Truncate(20),
        broken,
    ] {
        bench.sim_bmc.inject(Fault::once(FaultTrigger::Read, effect));
        assert_eq!(bench.bmc.power_state(&found.system).await.unwrap(), PowerState::Off);
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_wrong_serial_number_is_noticed_before_any_change() {
    let bench = Bench::new(config()).await;
    bench.sim_bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::WrongSerial("OTHER".into())).times(20));
    let found = bench.discover().await;
    assert_eq!(found.system.matches_serial(SERIAL), SerialMatch::Mismatch);
    bench.stop().await;
}

#[tokio::test]
async fn a_bmc_that_requires_if_match_accepts_the_changes() {
    let mut config = config();
    config.etag.if_match = IfMatchRule::Required;
    let bench = Bench::new(config).await;
    let found = bench.discover().await;
    let set = bench.bmc.set_boot_once(&found.system, &[BootTarget::Cd], None).await.unwrap();
    assert!(set.changed && set.confirmed);
    assert!(bench.bmc.clear_boot_override(&found.system).await.unwrap().confirmed);
    bench.stop().await;
}

#[tokio::test]
async fn a_wrong_password_is_not_sent_until_the_account_is_locked() {
    let bench = Bench::new(config()).await;
    let endpoint: redfish::Endpoint = bench.server.url().parse().unwrap();
    let wrong = BmcCredentials::new("admin", "wrong".to_owned());
    let stranger = Bmc::connect(&endpoint, wrong, &TlsVerification::Insecure, Profile::generic()).unwrap();
    for _ in 0..8 {
        let error = stranger.discover(&SystemSelector::default()).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Unauthorized { .. }), "{error}");
    }
    bench.discover().await;
    bench.stop().await;
}

#[tokio::test]
async fn the_session_of_a_crashed_controller_is_deleted_by_its_successor() {
    let bench = Bench::new(config()).await;
    bench.discover().await;
    let left = bench.bmc.session().await.unwrap();
    let endpoint: redfish::Endpoint = bench.server.url().parse().unwrap();
    let next = Bmc::connect(&endpoint, account(), &TlsVerification::Insecure, Profile::generic()).unwrap();
    assert_eq!(bench.sim_bmc.snapshot().open_sessions, 1);
    next.delete_session(&left).await.unwrap();
    assert_eq!(bench.sim_bmc.snapshot().open_sessions, 0);
    next.delete_session(&left).await.unwrap();
    bench.stop().await;
}
