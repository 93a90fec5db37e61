//! Gives installations of firmware URLs of the media server.
//!
//! ```text
//!   seed of the run + component, digest, attempt ──derive──> token ──> /f<token>/<file name>
//!   the file that the step hashed ──kept──> the first request of the BMC: it is neither opened nor hashed again
//! ```
//!
//! Invariant: a token is derived when its grant is issued, and it is not stored.

use std::sync::Arc;

use async_trait::async_trait;

use bmc::Unavailable;
use media::{ImageUse, MediaGrants, MediaToken, OpenBlob, firmware_url};
use model::{Artifact, RunId};
use secrets::{JobTokens, TokenSeeds};
use upkeep::{ImageReads, ImageUrls, IssuedUrl, UrlOrder};

/// The media server of the controller.
pub(super) struct MediaUrls {
    pub(super) grants: MediaGrants,
    pub(super) seeds: TokenSeeds,
}

#[async_trait]
impl ImageUrls for MediaUrls {
    fn issue(&self, order: &UrlOrder<'_>) -> Result<IssuedUrl, String> {
        let file = order.file.file();
        let tokens = JobTokens::new(&self.seeds.seed(&order.run.to_string()));
        let digest = file.sha256.hex();
        let image = ImageUse {
            artifact: Artifact::Firmware,
            digest: &digest,
            slot_plan: order.component,
            attempt: order.attempt,
        };
        let token = MediaToken::derive(&tokens, order.run, &image);
        let url = firmware_url(order.base, &token, file.filename.as_str()).map_err(|why| why.to_string())?;
        let grant = self
            .grants
            .issue(&token, order.run, &image, file.size, None, order.now)
            .map_err(|why| why.to_string())?;
        // Bytes in memory are of the laboratory; a BMC reads them from nowhere.
        let opened = order.file.opened().ok_or("the image is not a file")?;
        self.grants.keep_verified(&grant, OpenBlob { file: Arc::clone(opened), len: file.size });
        Ok(IssuedUrl::new(grant, url))
    }

    async fn reads(&self, token_hash: &str) -> Result<ImageReads, Unavailable> {
        let reads = self.grants.reads_of(token_hash).await.map_err(|why| Unavailable(why.to_string()))?;
        Ok(ImageReads {
            bytes: reads.bytes,
            last_at: reads.last_read_at,
            counted_since: Some(self.grants.counting_since()),
        })
    }

    fn ended(&self, run: RunId) {
        self.grants.end(run);
    }
}
