//! The firmware of a world: images in memory, sets in its database, and the store by which controllers read the images.
//!
//! ```text
//!   BMC of a server: maker, model, components --by the seed--> three sets: newer, newest, older --> database of the world
//!   controller --WorldFirmware (death of the process, a store that is away, damaged bytes)--> FirmwareShelf
//! ```
//!
//! Invariant: there is no thread and no file, so that one seed gives one order of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use lab_bmc::{Component as Kind, SimBmc, firmware_image};
use sha2::{Digest, Sha256};

use super::boundary::Boundary;
use super::firmware_shelf::{FirmwareShelf, Shelved};
use super::rng::WorldRng;
use super::world::World;
use firmware::{Component, Entry, FirmwareFile, InvalidIdentity, Sha256Digest, VerifiedFirmware};
use model::{NewEvent, RunId, Serial};
use store::{StoreError, StoredFirmwareFile, StoredFirmwareSet};
use upkeep::{FirmwareFileError, FirmwareStore};

/// The random stream that chooses the sets.
const SETS: u64 = 0x5e75_0f1f_a3b1_44c9;
/// The versions of the three sets of a server: two that are newer than what is installed, and an older one.
pub(super) const VERSIONS: [&str; 3] = ["98.1", "99.2", "0.1"];
/// Bytes of an image.
const SIZE: usize = 2048;
const MAX_SETS: u32 = 100_000;

/// The name of a set of a server.
pub(super) fn set_name(serial: &Serial, version: &str) -> String {
    format!("{}-{version}", serial.as_str().to_ascii_lowercase())
}

/// Makes the images and the sets of all servers.
pub(super) async fn fill(world: &World) -> Result<(), StoreError> {
    let rng = WorldRng::keyed(world.plan.seed, SETS);
    let mut files = BTreeMap::new();
    for (serial, bmc) in world.bmcs() {
        if !bmc.config().update.takes_images() {
            continue;
        }
        for version in VERSIONS {
            let kinds = components(&bmc, &rng);
            let foreign = rng.below(12) == 0;
            let made: Result<Vec<_>, _> =
                kinds.iter().map(|kind| make(&bmc, kind, version, foreign)).collect();
            // A maker or a model that is no name of firmware has no sets; its orders are refused as those of an unknown set.
            let Ok(made) = made else { continue };
            let row = row(world, set_name(&serial, version), &made);
            let event =
                NewEvent::info("firmware-set.created", format!("the firmware set {} was created", row.name));
            world.observer().create_firmware_set(row, MAX_SETS, event).await?;
            files.extend(made);
        }
    }
    world.firmware.fill(files);
    Ok(())
}

/// One to three components of a server: as a firmware set names it, and as its BMC does.
fn components(bmc: &SimBmc, rng: &WorldRng) -> Vec<(Component, String)> {
    let of = |kind: Kind| bmc.config().service.firmware.iter().find(move |item| item.component == kind);
    let device = |id: &str| match id.to_ascii_lowercase() {
        id if id.contains("cpld") => Component::Cpld,
        _ => Component::Nic,
    };
    let all: Vec<(Component, String)> = [
        of(Kind::Bmc).map(|_| (Component::Bmc, "bmc".to_owned())),
        of(Kind::Bios).map(|_| (Component::Bios, "bios".to_owned())),
        of(Kind::Device).map(|item| (device(&item.id), item.id.clone())),
    ]
    .into_iter()
    .flatten()
    .collect();
    let most = 1 + rng.below(all.len() as u64);
    let from = usize::try_from(rng.below(all.len() as u64)).unwrap_or(0);
    let count = usize::try_from(most).unwrap_or(1);
    all.iter().cycle().skip(from).take(count.min(all.len())).cloned().collect()
}

/// Makes one file with the digest of its manifest.
fn make(
    bmc: &SimBmc,
    (component, named): &(Component, String),
    version: &str,
    foreign: bool,
) -> Result<(String, Shelved), InvalidIdentity> {
    let identity = &bmc.config().identity;
    let image: Arc<[u8]> = firmware_image(named, version, None, SIZE).into();
    let model = if foreign { "Another model" } else { &identity.model };
    let of = (identity.manufacturer.parse()?, BTreeSet::from([model.parse()?]), *component);
    let sha256 = Sha256Digest::new(Sha256::digest(&image).into());
    let name = format!("{component}_{version}.bin").parse()?;
    let file = FirmwareFile::new(of, version, (name, sha256, image.len() as u64))?;
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(firmware::manifest(&file))));
    Ok((digest, Shelved { file, image }))
}

fn row(world: &World, name: String, made: &[(String, Shelved)]) -> StoredFirmwareSet {
    let now = super::state::start();
    let files = made.iter().map(|(digest, Shelved { file, .. })| StoredFirmwareFile {
        repository: firmware::repository(&file.vendor, file.component),
        digest: digest.clone(),
        manifest: String::from_utf8_lossy(&firmware::manifest(file)).into_owned(),
        models: file
            .models()
            .iter()
            .map(|model| [file.component.to_string(), file.vendor.to_string(), model.key()])
            .collect(),
    });
    StoredFirmwareSet {
        id: format!("{name}-{}", world.plan.seed),
        name,
        labels: BTreeMap::new(),
        created_by: "selftest".to_owned(),
        created_at: now,
        files: files.collect(),
    }
}

/// The firmware files as one controller reaches them.
pub(super) struct WorldFirmware {
    pub(super) boundary: Arc<Boundary>,
    pub(super) world: Arc<World>,
}

impl WorldFirmware {
    /// Passes the boundary. The store does not respond now and then.
    async fn reach(&self) -> Result<&FirmwareShelf, FirmwareFileError> {
        self.boundary.call_out().await;
        let shelf = &self.world.firmware;
        if self.world.faults_active() && shelf.chance_per_mille(60) {
            return Err(FirmwareFileError::Unavailable("the firmware store does not respond".to_owned()));
        }
        Ok(shelf)
    }
}

#[async_trait]
impl FirmwareStore for WorldFirmware {
    async fn hold(&self, run: RunId, files: &[Entry]) -> Result<(), FirmwareFileError> {
        let shelf = self.reach().await?;
        shelf.hold(run, files.iter().map(|entry| entry.digest.clone()));
        self.boundary.call_out().await;
        Ok(())
    }

    async fn open(&self, file: &Entry) -> Result<VerifiedFirmware, FirmwareFileError> {
        let shelf = self.reach().await?;
        let gone = || FirmwareFileError::Unusable(format!("{} is gone", file.digest));
        let found = shelf.file(&file.digest).ok_or_else(gone)?;
        let mut image = Arc::clone(&found.image);
        if self.world.faults_active() && shelf.chance_per_mille(15) {
            self.world.note(&format!("a byte of {} is damaged", found.file));
            let mut damaged = image.to_vec();
            damaged[SIZE / 2] ^= 1;
            image = damaged.into();
        }
        let verified = VerifiedFirmware::check_bytes(image, found.file.clone());
        verified.map_err(|why| FirmwareFileError::Unusable(why.to_string()))
    }

    async fn release(&self, run: RunId) -> Result<(), FirmwareFileError> {
        let shelf = self.reach().await?;
        shelf.release(run);
        self.boundary.call_out().await;
        Ok(())
    }
}
