//! A machine is installed and booted: our Redfish client, a simulated BMC, real firmware, a medium read by Range.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod payload;

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Method, StatusCode, header},
    response::Response,
    routing::get,
};
use lab_bmc::{Power, SimBmcSnapshot};
use lab_vm::{
    AccelerationChoice, ConsoleMark, DiskSize, Firmware, VirtualMachine, VmConfig, VmSpec, VmTools,
};
use redfish::{
    Bmc, BmcCredentials, Discovery, Endpoint, HttpOptions, HttpTransport, InsertOptions, Profile, ResetType,
    SystemSelector, TlsVerification,
};

use payload::{CD_LINE, INSTALLED_LINE, LOGIN_LINE, medium};

/// Time for anything a machine does. Emulated firmware takes seconds, an emulated UEFI firmware up to a minute.
const TIME_LIMIT: Duration = Duration::from_secs(150);
const SERIAL: &str = "VM-TEST-1";
const PASSWORD: &str = "canary-password";

/// A server of one medium that records the ranges.
#[derive(Clone, Default)]
struct MediaServer {
    medium: Arc<Vec<u8>>,
    ranges: Arc<Mutex<Vec<Option<String>>>>,
    /// The right to read has ended.
    gone: Arc<AtomicBool>,
}

async fn serve(State(server): State<MediaServer>, method: Method, headers: HeaderMap) -> Response {
    if server.gone.load(Ordering::Relaxed) {
        return Response::builder().status(StatusCode::NOT_FOUND).body(Body::empty()).unwrap();
    }
    let length = server.medium.len();
    let response = Response::builder().header(header::ACCEPT_RANGES, "bytes");
    if method == Method::HEAD {
        return response.header(header::CONTENT_LENGTH, length).body(Body::empty()).unwrap();
    }
    let range = headers.get(header::RANGE).map(|value| value.to_str().unwrap().to_owned());
    server.ranges.lock().unwrap().push(range.clone());
    let Some(range) = range else { return response.body(Body::from(server.medium.to_vec())).unwrap() };
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let first: usize = first.parse().unwrap();
    let last = last.parse().unwrap_or(usize::MAX).min(length - 1);
    response
        .status(StatusCode::PARTIAL_CONTENT)
        .header(header::CONTENT_RANGE, format!("bytes {first}-{last}/{length}"))
        .body(Body::from(server.medium[first..=last].to_vec()))
        .unwrap()
}

impl MediaServer {
    /// Serves the test medium on loopback. Returns its URL.
    async fn start() -> (Self, String) {
        let server = Self { medium: Arc::new(medium()), ..Self::default() };
        let router = Router::new().route("/tSECRET/boot.iso", get(serve)).with_state(server.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/tSECRET/boot.iso", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, url)
    }
}

/// A machine and a Redfish client of its BMC.
struct Bench {
    vm: VirtualMachine,
    client: Bmc,
    found: Discovery,
}

impl Bench {
    async fn start(firmware: Firmware, folder: &Path) -> Self {
        let disks = vec![DiskSize::new(64 << 20).unwrap()];
        let mut spec = VmSpec::new(SERIAL).unwrap().with_disks(disks).unwrap().with_memory(256).unwrap();
        spec.firmware = firmware;
        let config = VmConfig {
            spec,
            tools: VmTools::find(firmware, AccelerationChoice::Emulation).await.unwrap(),
            folder: folder.to_owned(),
            address: "127.0.0.1:0".parse().unwrap(),
            username: "root".to_owned(),
            password: PASSWORD.to_owned().into(),
            https: false,
        };
        let vm = VirtualMachine::start(config).await.unwrap();
        let endpoint: Endpoint = vm.bmc_url.parse().unwrap();
        let transport =
            HttpTransport::new(&endpoint, &TlsVerification::Insecure, HttpOptions::default()).unwrap();
        let credentials = BmcCredentials::new("root", PASSWORD.to_owned());
        let client = Bmc::builder(endpoint, credentials, Arc::new(transport), Profile::generic()).build();
        let found = client.discover(&SystemSelector::serial(SERIAL)).await.unwrap();
        Self { vm, client, found }
    }

    async fn reset(&self, kind: ResetType) {
        self.client.reset(&self.found.system, kind).await.unwrap();
    }

    async fn expect(&self, mark: ConsoleMark, text: &str) {
        let wait = self.vm.console().wait_for(mark, text);
        if tokio::time::timeout(TIME_LIMIT, wait).await.is_err() {
            panic!("no {text:?} within {TIME_LIMIT:?}:\n{}", self.vm.console().text_since(mark));
        }
    }

    async fn state(&self, wanted: impl FnMut(&SimBmcSnapshot) -> bool) -> SimBmcSnapshot {
        tokio::time::timeout(TIME_LIMIT, self.vm.bmc.wait_for(wanted)).await.unwrap()
    }
}

/// Whether a process has this word in its command line.
fn is_running(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).any(|line| {
        line.split(|&byte| byte == 0).any(|argument| String::from_utf8_lossy(argument).contains(word))
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs qemu-system-x86 and qemu-block-extra, run by .ci/run"]
async fn a_machine_is_installed_from_a_cd_that_is_read_by_range_and_boots_its_disk_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let (server, url) = MediaServer::start().await;
    let bench = Bench::start(Firmware::Bios, folder.path()).await;
    let slot = bench.found.slots.iter().find(|slot| slot.is_cd() && slot.takes_media()).unwrap();
    bench.client.insert(&slot.uri, &url, InsertOptions::default()).await.unwrap();
    server.ranges.lock().unwrap().clear();
    bench.client.boot_media_once(&bench.found, &slot.uri).await.unwrap();

    // The installer switches the machine off by itself.
    let start = bench.vm.console().mark();
    bench.reset(ResetType::On).await;
    bench.expect(start, CD_LINE).await;
    bench.expect(start, INSTALLED_LINE).await;
    let off = bench.state(|now| now.power == Power::Off).await;
    assert_eq!((off.boots_from_media, off.boots_from_disk), (1, 0));
    let ranges = server.ranges.lock().unwrap().clone();
    assert!(!ranges.is_empty() && ranges.iter().all(Option::is_some), "{ranges:?}");

    // The one-time boot is used up: with the medium still in its slot, the disk boots.
    let second = bench.vm.console().mark();
    bench.reset(ResetType::On).await;
    bench.expect(second, LOGIN_LINE).await;
    assert!(!bench.vm.console().text_since(second).contains(CD_LINE));
    let on = bench.state(|now| now.power == Power::On).await;
    assert_eq!(on.boots_from_disk, 1);

    // An eject while the system runs, then a restart by the system: the BMC chooses the source again.
    bench.client.eject(&slot.uri).await.unwrap();
    let third = bench.vm.console().mark();
    assert!(bench.vm.keyboard().type_text("r"));
    bench.expect(third, LOGIN_LINE).await;
    assert_eq!(bench.state(|now| now.power == Power::On).await.boots_from_disk, 2);

    // A power cut ends the process before the BMC shows the machine as off.
    assert!(is_running(SERIAL));
    bench.reset(ResetType::ForceOff).await;
    bench.state(|now| now.power == Power::Off).await;
    assert!(!is_running(SERIAL) && !bench.vm.keyboard().type_text("q"));

    let text = bench.vm.console().text_since(start);
    assert!(!text.contains("SECRET") && !text.contains("could not be read"), "{text}");
    let log = std::fs::read_to_string(bench.vm.log()).unwrap();
    assert!(log.ends_with(&text), "{log}");
    bench.vm.shutdown().await;

    // Another start of the room: what is installed stays.
    let bench = Bench::start(Firmware::Bios, folder.path()).await;
    let fourth = bench.vm.console().mark();
    bench.reset(ResetType::On).await;
    bench.expect(fourth, LOGIN_LINE).await;
    assert!(bench.vm.keyboard().type_text("q"));
    bench.state(|now| now.power == Power::Off).await;
    bench.vm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs qemu-system-x86 and qemu-block-extra, run by .ci/run"]
async fn a_medium_that_is_gone_at_power_on_is_explained_without_its_url() {
    let folder = tempfile::tempdir().unwrap();
    let (server, url) = MediaServer::start().await;
    let bench = Bench::start(Firmware::Bios, folder.path()).await;
    let slot = bench.found.slots.iter().find(|slot| slot.is_cd() && slot.takes_media()).unwrap();
    bench.client.insert(&slot.uri, &url, InsertOptions::default()).await.unwrap();
    bench.client.boot_media_once(&bench.found, &slot.uri).await.unwrap();
    server.gone.store(true, Ordering::Relaxed);
    let start = bench.vm.console().mark();
    bench.reset(ResetType::On).await;
    bench.expect(start, "QEMU ended unexpectedly").await;
    bench.state(|now| now.power == Power::Off).await;
    let text = bench.vm.console().text_since(start);
    assert!(text.contains("boot.iso") && text.contains("404") && !text.contains("SECRET"), "{text}");
    bench.vm.shutdown().await;
    assert!(!is_running(SERIAL));
}
