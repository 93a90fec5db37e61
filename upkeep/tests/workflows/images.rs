//! Firmware images in memory, for uploads and at URLs from which the simulated BMC reads them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lab_bmc::{MediaReader, MediaRefusal, MediaRequest, MediaResponse};
use sha2::{Digest, Sha256};

use model::{Artifact, Clock, Grant, ManualClock, RunId};
use upkeep::{FirmwareFileError, FirmwareStore, ImageReads, ImageUrls, IssuedUrl, UrlOrder};

/// Firmware files in memory, by digest.
#[derive(Clone, Default)]
pub(crate) struct Files(pub(crate) BTreeMap<String, (firmware::FirmwareFile, Arc<[u8]>)>);

#[async_trait]
impl FirmwareStore for Files {
    async fn hold(&self, _: RunId, _: &[firmware::Entry]) -> Result<(), FirmwareFileError> {
        Ok(())
    }

    async fn open(&self, file: &firmware::Entry) -> Result<firmware::VerifiedFirmware, FirmwareFileError> {
        let gone = || FirmwareFileError::Unusable("there is no file".to_owned());
        let (file, image) = self.0.get(&file.digest).ok_or_else(gone)?;
        let checked = firmware::VerifiedFirmware::check_bytes(Arc::clone(image), file.clone());
        checked.map_err(|why| FirmwareFileError::Unusable(why.to_string()))
    }

    async fn release(&self, _: RunId) -> Result<(), FirmwareFileError> {
        Ok(())
    }
}

/// An image under the path of its URL.
struct Served {
    image: Arc<[u8]>,
    grant: String,
    reads: ImageReads,
}

/// The media server of a controller: the images whose URLs were issued, by the path of the URL.
pub(crate) struct MediaServer {
    clock: Arc<ManualClock>,
    served: Mutex<BTreeMap<String, Served>>,
}

impl MediaServer {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Self {
        Self { clock, served: Mutex::default() }
    }
}

#[async_trait]
impl ImageUrls for MediaServer {
    fn issue(&self, order: &UrlOrder<'_>) -> Result<IssuedUrl, String> {
        let file = order.file.file();
        let image = order.file.in_memory().ok_or("the image is not in memory")?;
        let token = hex(&format!("{} {}", order.component, order.attempt));
        let grant = Grant {
            token_hash: hex(&token),
            run: order.run,
            artifact: Artifact::Firmware,
            inputs: None,
            sha256: file.sha256.hex(),
            size: file.size,
            created_at: order.now,
        };
        let path = format!("f{token}/{}", file.filename);
        let url = format!("{}/{path}", order.base);
        let reads = ImageReads { counted_since: Some(order.now), ..ImageReads::default() };
        let served = Served { image: image.into(), grant: grant.token_hash.clone(), reads };
        self.served.lock().unwrap().insert(path, served);
        Ok(IssuedUrl::new(grant, url))
    }

    async fn reads(&self, token_hash: &str) -> Result<ImageReads, bmc::Unavailable> {
        let served = self.served.lock().unwrap();
        let found = served.values().find(|one| one.grant == token_hash);
        Ok(found.map_or_else(ImageReads::default, |one| one.reads))
    }

    fn ended(&self, _: RunId) {}
}

#[async_trait]
impl MediaReader for MediaServer {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let url = request.url.as_str();
        let mut served = self.served.lock().unwrap();
        let Some(one) = served.iter_mut().find(|(path, _)| url.ends_with(path.as_str())) else {
            return Ok(MediaResponse { status: 404, ..MediaResponse::default() });
        };
        let Served { image, reads, .. } = one.1;
        reads.bytes += image.len() as u64;
        reads.last_at = Some(self.clock.now());
        let body = image[..image.len().min(request.keep)].to_vec().into();
        Ok(MediaResponse { status: 200, length: Some(image.len() as u64), body, ..MediaResponse::default() })
    }
}

/// A worker elsewhere serves no images.
pub(crate) struct NoUrls;

#[async_trait]
impl ImageUrls for NoUrls {
    fn issue(&self, _: &UrlOrder<'_>) -> Result<IssuedUrl, String> {
        Err("nothing is served".to_owned())
    }

    async fn reads(&self, _: &str) -> Result<ImageReads, bmc::Unavailable> {
        Ok(ImageReads::default())
    }

    fn ended(&self, _: RunId) {}
}

fn hex(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
