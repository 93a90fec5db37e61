//! The services of the steps of a worker elsewhere: connections to its BMCs, files and inventories from the controller.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize as _;
use serde_json::Value;

use super::keeper::{HeldCall, KeptServers, KeptSessions};
use super::link::{Link, LinkError};
use super::messages::{FileOrder, RedfishSettings, Releasing, StoredHardware};
use bmc::{Addresses, BmcLimits, BmcServices, Bmcs, Unavailable};
use firmware::{Entry, VerifiedFirmware};
use model::{RunId, Serial, Snapshot, error_chain};
use secrets::{KeyRing, Resolver};
use upkeep::{
    FirmwareFileError, FirmwareStore, HardwareLookup, ImageReads, ImageUrls, IssuedUrl, UpkeepAction,
    UpkeepInput, UpkeepServices, UrlOrder,
};

/// How long the controller may pause while it sends a file.
const PAUSE: Duration = Duration::from_secs(60);
/// The deadline of a read of a stored inventory.
const READ: Duration = Duration::from_secs(30);

/// The services of the steps. `key` is of this process only.
pub(super) fn services(
    redfish: &RedfishSettings,
    key: &KeyRing,
    link: &Arc<Link>,
    spool: PathBuf,
) -> Arc<UpkeepServices> {
    let millis = Duration::from_millis;
    let keeper = &link.keeper;
    let connections = Bmcs::new(
        Resolver::new(key),
        key.derive("bmc-sessions"),
        Arc::new(KeptSessions(Arc::clone(keeper))),
        Arc::new(Unobserved),
        redfish::ClientOptions {
            read_timeout: millis(redfish.timeout_ms),
            read_attempts: 2,
            ..redfish::ClientOptions::default()
        },
        BmcLimits {
            each: redfish::LimitOptions {
                rate: redfish.rate,
                burst: redfish.rate.saturating_mul(4),
                breaker_failures: redfish.breaker_failures,
                breaker_open_time: millis(redfish.breaker_open_ms),
            },
            in_flight: redfish.in_flight,
        },
        redfish.authorities.clone().map(String::into_bytes),
    );
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let bmc = BmcServices {
        servers: Box::new(KeptServers(Arc::clone(keeper))),
        connections,
        // A worker serves nothing; see `NoUrls`.
        addresses: Addresses {
            api: nowhere,
            media: nowhere,
            api_tls: None,
            media_tls: None,
            plain_api: false,
            public_url: None,
            media_base_url: None,
        },
        tries: redfish.retries.max(1),
    };
    Arc::new(UpkeepServices {
        bmc: Arc::new(bmc),
        hardware: Box::new(RemoteHardware(Arc::clone(link))),
        firmware: Arc::new(RemoteFiles { link: Arc::clone(link), spool }),
        urls: Arc::new(NoUrls),
        power_ons: redfish.power_ons,
    })
}

/// The requests to BMCs of a worker are not counted.
struct Unobserved;

impl redfish::Observer for Unobserved {
    fn exchange(&self, _: redfish::Exchange<'_>) {}
}

/// The stored inventories of the servers of the calls.
struct RemoteHardware(Arc<Link>);

#[async_trait]
impl HardwareLookup for RemoteHardware {
    async fn hardware(&self, serial: &Serial) -> Result<Option<Value>, Unavailable> {
        let held = self.0.keeper.call_where(|snapshot| snapshot.run.server.as_ref() == Some(serial));
        let Some(HeldCall { key, .. }) = held else { return Ok(None) };
        let read = self.0.repeat::<StoredHardware>("hardware", &Releasing { key }, READ, Some(READ)).await;
        Ok(read.map_err(|why| Unavailable(why.to_string()))?.hardware)
    }
}

/// The firmware files of the controller. A file is received whole, and hashed here, before a byte of it is sent to a BMC.
struct RemoteFiles {
    link: Arc<Link>,
    /// The directory of received files. They have no name there and end with the process.
    spool: PathBuf,
}

fn has_file(snapshot: &Snapshot, digest: &str) -> bool {
    match UpkeepInput::deserialize(&*snapshot.input).map(|input| input.action) {
        Ok(UpkeepAction::Firmware(order)) => order.files.iter().any(|entry| entry.digest == digest),
        _ => false,
    }
}

fn of_controller() -> FirmwareFileError {
    FirmwareFileError::Unusable(
        "the controller holds the firmware files of a run, and no worker elsewhere".to_owned(),
    )
}

#[async_trait]
impl FirmwareStore for RemoteFiles {
    async fn hold(&self, _: RunId, _: &[Entry]) -> Result<(), FirmwareFileError> {
        Err(of_controller())
    }

    async fn open(&self, entry: &Entry) -> Result<VerifiedFirmware, FirmwareFileError> {
        let unavailable = |why: String| FirmwareFileError::Unavailable(why);
        let held = self.link.keeper.call_where(|snapshot| has_file(snapshot, &entry.digest));
        let Some(HeldCall { key, .. }) = held else {
            return Err(unavailable("the worker has no call with this firmware file".to_owned()));
        };
        let order = FileOrder { key, digest: entry.digest.clone() };
        let mut response = self.link.bytes("firmware", &order).await.map_err(|why| match why {
            LinkError::Refused { status: 404, words } => FirmwareFileError::Unusable(words),
            other => unavailable(other.to_string()),
        })?;
        let spool = self.spool.clone();
        let in_spool = |error: io::Error| {
            unavailable(format!("store a firmware file in {}: {error}", self.spool.display()))
        };
        let mut file = tokio::task::spawn_blocking(move || unnamed(&spool))
            .await
            .unwrap_or_else(|panic| Err(io::Error::other(panic)))
            .map_err(in_spool)?;
        let mut received = 0_u64;
        loop {
            let piece = tokio::time::timeout(PAUSE, response.chunk()).await;
            let piece = match piece {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(unavailable(error_chain(&error.without_url()).to_string())),
                Err(_elapsed) => {
                    return Err(unavailable("the controller stopped sending the file".to_owned()));
                }
            };
            received = received.saturating_add(piece.len() as u64);
            if received > entry.file.size {
                return Err(FirmwareFileError::Unusable("the file is longer than its record".to_owned()));
            }
            file = tokio::task::spawn_blocking(move || file.write_all(&piece).map(|()| file))
                .await
                .unwrap_or_else(|panic| Err(io::Error::other(panic)))
                .map_err(in_spool)?;
        }
        if received < entry.file.size {
            return Err(unavailable(format!("{received} of {} bytes of the file arrived", entry.file.size)));
        }
        let of = entry.file.clone();
        let checked = tokio::task::spawn_blocking(move || VerifiedFirmware::check(Arc::new(file), of)).await;
        match checked {
            Ok(Ok(verified)) => Ok(verified),
            Ok(Err(why)) => Err(FirmwareFileError::Unusable(error_chain(&why).to_string())),
            Err(panic) => Err(unavailable(panic.to_string())),
        }
    }

    async fn release(&self, _: RunId) -> Result<(), FirmwareFileError> {
        Err(FirmwareFileError::Unavailable(of_controller().to_string()))
    }
}

/// A file in a directory, without a name.
fn unnamed(directory: &std::path::Path) -> io::Result<File> {
    let path = directory.join(format!("shoal-worker-{}", uuid::Uuid::now_v7()));
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// A worker elsewhere serves no image: a BMC that takes no upload has its installations at the controller.
struct NoUrls;

const NOTHING_SERVED: &str = "a worker elsewhere serves no images";

#[async_trait]
impl ImageUrls for NoUrls {
    fn unserved(&self) -> Option<&'static str> {
        Some(NOTHING_SERVED)
    }

    fn issue(&self, _: &UrlOrder<'_>) -> Result<IssuedUrl, String> {
        Err(NOTHING_SERVED.to_owned())
    }

    async fn reads(&self, _: &str) -> Result<ImageReads, Unavailable> {
        Err(Unavailable(NOTHING_SERVED.to_owned()))
    }

    fn ended(&self, _: RunId) {}
}
