//! A simulated BMC on a socket, its client, and a caller that brings one update to its end as a durable engine does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lab_bmc::{
    MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, SimBmc, SimBmcConfig, SimBmcServer,
    firmware_image,
};
use redfish::update::UpdateRoute;
use redfish::{
    Bmc, BmcCredentials, ClientOptions, Discovery, Endpoint, Fingerprint, HttpOptions, HttpTransport,
    ImageOffer, PreparedUpdate, Profile, RedfishError, ResetType, SystemSelector, TlsVerification,
    UpdateHandle, UpdateImage, UpdatePoll, UpdateRequest, UpdateStart, UpdateState, UploadProgress,
    choose_way,
};

pub(crate) const SERIAL: &str = "7CK4LW3";
const USER: &str = "root";
const PASSWORD: &str = "canary-secret";
/// Longer than the check and the write of an image.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// The image is larger than one piece of an upload.
const SIZE: usize = 150_000;

/// The image server of a test: one image for every URL.
struct OneImage(Bytes);

#[async_trait]
impl MediaReader for OneImage {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let body = self.0.slice(..self.0.len().min(request.keep));
        Ok(MediaResponse { status: 200, length: Some(self.0.len() as u64), body, ..MediaResponse::default() })
    }
}

/// An update that a test wants.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) version: &'static str,
    pub(crate) image: Bytes,
}

impl Wanted {
    pub(crate) fn new(component: &'static str, version: &'static str) -> Self {
        Wanted { version, image: firmware_image(component, version, None, SIZE).into() }
    }
}

/// What the caller stores: it survives the end of its process.
#[derive(Default)]
pub(crate) struct Stored {
    prepared: Option<String>,
    handle: Option<String>,
    /// The second request may have been sent.
    starting: bool,
}

/// A simulated BMC and its client.
pub(crate) struct Bench {
    pub(crate) sim: SimBmc,
    pub(crate) server: SimBmcServer,
    pub(crate) bmc: Bmc,
    pub(crate) wanted: Wanted,
    pub(crate) polls: u64,
    pub(crate) states: Vec<UpdateState>,
    tls: TlsVerification,
    flags: redfish::profile::Flags,
}

impl Bench {
    pub(crate) async fn new(vendor: &str, wanted: Wanted) -> Self {
        Bench::of(vendor, wanted, false).await
    }

    pub(crate) async fn of(vendor: &str, wanted: Wanted, tls: bool) -> Self {
        let config = SimBmcConfig::vendor(vendor, SERIAL, USER, PASSWORD).unwrap();
        let media = Arc::new(OneImage(wanted.image.clone()));
        let sim = SimBmc::new(config, Arc::new(NullHost), media);
        let server = match tls {
            true => sim.serve_tls_on_loopback().await.unwrap(),
            false => sim.serve_on_loopback().await.unwrap(),
        };
        let tls = match tls {
            true => TlsVerification::Pin(Fingerprint(sim.fingerprint().unwrap())),
            false => TlsVerification::Insecure,
        };
        let flags = redfish::profile::Flags::default();
        let bmc = client(&server.url(), &tls, &flags);
        Bench { sim, server, bmc, wanted, polls: 0, states: Vec::new(), tls, flags }
    }

    /// Another process of the controller continues: it has the address and nothing of the memory.
    pub(crate) fn new_process(&mut self) {
        self.bmc = client(&self.server.url(), &self.tls, &self.flags);
    }

    /// Sets flags of the operator.
    pub(crate) fn override_flags(&mut self, flags: redfish::profile::Flags) {
        self.flags = flags;
        self.new_process();
    }

    /// Accepts another certificate from now on.
    pub(crate) fn pin(&mut self, tls: TlsVerification) {
        self.tls = tls;
        self.new_process();
    }

    pub(crate) async fn discover(&self) -> Result<Discovery, RedfishError> {
        self.bmc.discover(&SystemSelector::serial(SERIAL)).await
    }

    pub(crate) fn offer(&self) -> ImageOffer<'static> {
        ImageOffer { size: self.wanted.image.len() as u64, schemes: &["http", "https"] }
    }

    pub(crate) async fn prepare(&self) -> Result<PreparedUpdate, RedfishError> {
        let service = self.bmc.update_capability().await?;
        let choice = choose_way(&service, &self.bmc.profile(), &self.offer()).unwrap();
        let request = UpdateRequest { file_name: "firmware.bin".to_owned(), ..UpdateRequest::default() };
        self.bmc.prepare_update(&service, choice, &request).await
    }

    pub(crate) async fn start(&self, prepared: &PreparedUpdate) -> Result<UpdateStart, RedfishError> {
        let progress = UploadProgress::default();
        let started = match &prepared.choice.route {
            UpdateRoute::Simple { protocol, .. } => {
                let url = format!(
                    "{}://192.0.2.1/tcanary0grant0abcdef/firmware.bin",
                    protocol.to_ascii_lowercase()
                );
                self.bmc.start_update(prepared, UpdateImage::Url(&url), &progress).await
            }
            UpdateRoute::Multipart { .. } | UpdateRoute::Push { .. } => {
                let image = Box::new(std::io::Cursor::new(self.wanted.image.clone()));
                let length = self.wanted.image.len() as u64;
                self.bmc.start_update(prepared, UpdateImage::Stream { image, length }, &progress).await
            }
        };
        if let Err(error) = &started {
            assert!(!error.maybe_applied(), "an error means that nothing was accepted: {error}");
        }
        started
    }

    pub(crate) async fn poll(&mut self, handle: &UpdateHandle) -> Result<UpdatePoll, RedfishError> {
        let before = self.sim.snapshot().requests;
        let poll = self.bmc.poll_update(handle).await;
        self.polls += self.sim.snapshot().requests - before;
        let poll = poll?;
        if self.states.last() != Some(&poll.state) {
            self.states.push(poll.state.clone());
        }
        Ok(poll)
    }

    /// Whether the wanted version is installed, read from the BMC.
    pub(crate) async fn is_installed(&self) -> Result<bool, RedfishError> {
        let service = self.bmc.update_capability().await?;
        let inventory = self.bmc.firmware_inventory(&service).await?;
        let runs = |item: &redfish::SoftwareItem| {
            item.is_active()
                && item.version.as_ref().is_some_and(|version| version.as_str() == self.wanted.version)
        };
        Ok(inventory.items.iter().any(runs))
    }

    /// Brings the update to its end. An error ends the process; the next one continues with what is stored.
    pub(crate) async fn run(&mut self, stored: &mut Stored) -> Result<bool, RedfishError> {
        let found = self.discover().await?;
        let prepared: PreparedUpdate = match &stored.prepared {
            Some(text) => serde_json::from_str(text).unwrap(),
            None => {
                let prepared = self.prepare().await?;
                // Stored before the first byte is sent.
                stored.prepared = Some(serde_json::to_string(&prepared).unwrap());
                return Box::pin(self.begin(stored, &found, &prepared)).await;
            }
        };
        match &stored.handle {
            Some(text) => {
                let handle = serde_json::from_str(text).unwrap();
                self.watch(stored, &found, handle).await
            }
            // It is not known whether the start was sent: the BMC is observed first.
            None => {
                let handle = self.bmc.find_update(&prepared.handle()).await?;
                let handle = handle.unwrap_or_else(|| prepared.handle());
                if self.poll(&handle).await?.state == UpdateState::Gone && !self.is_installed().await? {
                    return self.begin(stored, &found, &prepared).await;
                }
                stored.handle = Some(serde_json::to_string(&handle).unwrap());
                self.watch(stored, &found, handle).await
            }
        }
    }

    async fn begin(
        &mut self,
        stored: &mut Stored,
        found: &Discovery,
        prepared: &PreparedUpdate,
    ) -> Result<bool, RedfishError> {
        let handle = match self.start(prepared).await? {
            UpdateStart::Accepted(handle) => handle,
            // As after a crash: look before anything is sent again.
            UpdateStart::MaybeAccepted { error, .. } => return Err(*error),
        };
        stored.handle = Some(serde_json::to_string(&handle).unwrap());
        self.watch(stored, found, handle).await
    }

    /// Sends the second request, unless an earlier process sent it and the BMC shows its task.
    async fn start_uploaded(
        &mut self,
        stored: &mut Stored,
        handle: &UpdateHandle,
    ) -> Result<UpdateHandle, RedfishError> {
        if stored.starting
            && let Some(found) = self.bmc.find_update(&handle.after_start()).await?
        {
            return Ok(found);
        }
        stored.starting = true;
        match self.bmc.start_uploaded(handle).await? {
            UpdateStart::Accepted(handle) => Ok(handle),
            UpdateStart::MaybeAccepted { error, .. } => Err(*error),
        }
    }

    /// Polls until the state is final and returns whether the version is installed.
    async fn watch(
        &mut self,
        stored: &mut Stored,
        found: &Discovery,
        mut handle: UpdateHandle,
    ) -> Result<bool, RedfishError> {
        for _ in 0..200 {
            let poll = self.poll(&handle).await?;
            if let Some(other) = poll.found {
                handle = *other;
                stored.handle = Some(serde_json::to_string(&handle).unwrap());
            }
            match poll.state {
                UpdateState::Queued | UpdateState::Running { .. } => self.sim.skip_flash_time(LONG),
                UpdateState::Uploaded => {
                    handle = self.start_uploaded(stored, &handle).await?;
                    stored.handle = Some(serde_json::to_string(&handle).unwrap());
                }
                UpdateState::NeedsHostRestart | UpdateState::NeedsRestart => {
                    let reset = match self.bmc.power_state(&found.system).await? {
                        redfish::PowerState::Off => ResetType::On,
                        _ => ResetType::ForceRestart,
                    };
                    self.bmc.reset(&found.system, reset).await?;
                }
                UpdateState::Away { .. } => {
                    self.sim.set_reachable(true);
                    tokio::task::yield_now().await;
                }
                _ => return self.is_installed().await,
            }
        }
        panic!("the update does not end: {:?}", self.states);
    }
}

fn client(url: &str, tls: &TlsVerification, flags: &redfish::profile::Flags) -> Bmc {
    let endpoint: Endpoint = url.parse().unwrap();
    let transport = HttpTransport::new(&endpoint, tls, HttpOptions::default()).unwrap();
    let options = ClientOptions {
        backoff_base: Duration::from_millis(1),
        backoff_cap: Duration::from_millis(2),
        ..ClientOptions::default()
    };
    let credentials = BmcCredentials::new(USER, PASSWORD.to_owned());
    let builder = Bmc::builder(endpoint, credentials, Arc::new(transport), Profile::generic());
    builder.options(options).overrides(flags.clone()).detecting().build()
}
