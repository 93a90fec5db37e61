//! Packed clusters.
//!
//! Specification: QEMU `docs/interop/qcow2`, "Compressed Clusters Descriptor"; RFC 1951; RFC 8878.

use std::io::Read;

use flate2::bufread::DeflateDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::header::Packing;

/// The largest window of a frame of zstd. QEMU packs a cluster of at most 2 MiB in one frame.
const WINDOW: u64 = 8 << 20;

/// Unpacks clusters, with one decoder for all.
pub(super) struct Unpacker {
    packing: Packing,
    zstd: FrameDecoder,
}

impl Unpacker {
    pub(super) fn new(packing: Packing) -> Self {
        let mut zstd = FrameDecoder::new();
        zstd.set_max_window_size(WINDOW);
        Self { packing, zstd }
    }

    /// Unpacks one cluster, which must be filled. What follows the packed bytes, up to the end of their sector, is not looked at.
    pub(super) fn unpack(&mut self, packed: &[u8], cluster: &mut [u8]) -> Result<(), String> {
        let filled = match self.packing {
            Packing::Deflate => DeflateDecoder::new(packed).read_exact(cluster),
            Packing::Zstd => StreamingDecoder::new_with_decoder(packed, &mut self.zstd)
                .map_err(|source| source.to_string())?
                .read_exact(cluster),
        };
        filled.map_err(|source| source.to_string())
    }
}
