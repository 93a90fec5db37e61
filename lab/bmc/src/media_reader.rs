//! Reads an inserted image as a BMC does: a few requests, in the style of the vendor, show what the image is.
//!
//! ```text
//!   HEAD                              200, Content-Length, no encoding
//!   GET Range: bytes=0-511            206 (or 200: a server without ranges), the boot signature 55 AA
//!   GET Range: bytes=32768-65535      the volume descriptors, 2048 bytes each:
//!                                       01 "CD001"  primary        label at 40, 32 bytes
//!                                       00 "CD001"  boot record    "EL TORITO SPECIFICATION" at 7
//!                                       FF "CD001"  terminator
//! ```
//!
//! [`ReadStyle`] says which of these are sent, in how many ranges and in which version of HTTP. A [`MediaReader`]
//! transports the requests (over a socket, or from memory), so this module needs no network.
//!
//! Invariants: no redirect is followed; at most 64 KiB of a body are kept; an image whose total length changes between
//! responses is refused.
//!
//! Reference: ECMA-119 clause 8 (descriptors), El Torito 1.0 figure 7, RFC 9110 clause 14 (ranges).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{host::MediaUrl, types::ReadStyle};

const SECTOR: usize = 2048;
const FIRST_END: u64 = 511;
const DESCRIPTORS: u64 = 32_768;
const DESCRIPTORS_END: u64 = 65_535;
/// The bytes of the whole image that are kept when ranges are not used.
const WINDOW: usize = 65_536;

/// The facts that the BMC found in an image.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MediaFacts {
    /// The length of the image in bytes.
    pub length: u64,
    /// The volume label; `None` for an image that is not ISO 9660.
    pub volume_id: Option<String>,
    /// Whether the image has an El Torito boot record.
    pub el_torito: bool,
    /// Whether the first sector ends with the boot signature (a disk or hybrid image).
    pub boot_signature: bool,
}

/// The reason why the BMC cannot use an image.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MediaRefusal {
    /// The connection failed or broke.
    #[error("the image server cannot be reached: {0}")]
    Unreachable(String),
    /// The image server returned an error status.
    #[error("the image server returned status {0}")]
    Status(u16),
    /// The response has no Content-Length.
    #[error("the response of the image server has no Content-Length")]
    NoLength,
    /// The response is inconsistent.
    #[error("the response of the image server is not usable: {0}")]
    Unusable(&'static str),
    /// The image is too short, or its length is not a multiple of the sector size.
    #[error("the size of the image, {0} bytes, is not valid")]
    Size(u64),
}

/// One request of a BMC for media.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MediaRequest {
    /// The image.
    pub url: MediaUrl,
    /// HEAD instead of GET.
    pub head: bool,
    /// First and last byte; `None` for the whole image.
    pub range: Option<(u64, u64)>,
    /// The number of bytes of the body to keep.
    pub keep: usize,
    /// Whether the body is read to its end, beyond the bytes to keep.
    pub to_the_end: bool,
    /// HTTP/1.0 instead of 1.1.
    pub http_1_0: bool,
    /// Whether the request comes from the second address.
    pub other_address: bool,
    /// The pace at which the body is read.
    pub pace: ReadPace,
}

/// The pace at which a body is read, and whether the server is trusted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadPace {
    /// The connection is closed after this many bytes of the body.
    pub stop_after: Option<u64>,
    /// The pause after each piece of the body.
    pub pause: Option<Duration>,
    /// Whether a certificate is refused, as by a BMC that verifies certificates and has no authority for it.
    pub trusts_none: bool,
}

/// The response to a [`MediaRequest`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MediaResponse {
    /// The status code.
    pub status: u16,
    /// `Content-Length`.
    pub length: Option<u64>,
    /// `Content-Range`.
    pub content_range: Option<String>,
    /// Whether the body is encoded (compressed).
    pub encoded: bool,
    /// The first bytes of the body, at most [`MediaRequest::keep`].
    pub body: Bytes,
}

/// Transports requests for media. One reader serves any number of simulated BMCs.
#[async_trait]
pub trait MediaReader: Send + Sync {
    /// Sends one request. The caller bounds the time.
    ///
    /// # Errors
    /// When the image server cannot be reached.
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal>;
}

/// Reads the image at the URL in the style of a vendor.
pub(super) async fn inspect(
    reader: &dyn MediaReader,
    url: &MediaUrl,
    style: ReadStyle,
) -> Result<MediaFacts, MediaRefusal> {
    let inspection = Inspection { reader, url, style };
    if style.aborts {
        inspection.fetch(false, None, SECTOR, false).await?;
    }
    if !style.ranges {
        return inspection.whole().await;
    }
    let received = if style.head { Some(inspection.length().await?) } else { None };
    let (first, length) = inspection.range(0, FIRST_END, received).await?;
    let descriptors = if style.parallel {
        inspection.in_quarters(length).await?
    } else {
        inspection.range(DESCRIPTORS, DESCRIPTORS_END, Some(length)).await?.0.to_vec()
    };
    Ok(media_facts(length, &first, &descriptors))
}

struct Inspection<'a> {
    reader: &'a dyn MediaReader,
    url: &'a MediaUrl,
    style: ReadStyle,
}

impl Inspection<'_> {
    async fn fetch(
        &self,
        head: bool,
        range: Option<(u64, u64)>,
        keep: usize,
        to_the_end: bool,
    ) -> Result<MediaResponse, MediaRefusal> {
        let response = self
            .reader
            .fetch(MediaRequest {
                url: self.url.clone(),
                head,
                range,
                keep,
                to_the_end,
                http_1_0: self.style.http_1_0,
                other_address: self.style.other_address,
                pace: ReadPace::default(),
            })
            .await?;
        if response.encoded {
            return Err(MediaRefusal::Unusable("it is compressed"));
        }
        Ok(response)
    }

    async fn length(&self) -> Result<u64, MediaRefusal> {
        match self.fetch(true, None, 0, false).await? {
            MediaResponse { status: 200, length, .. } => length.ok_or(MediaRefusal::NoLength),
            response => Err(MediaRefusal::Status(response.status)),
        }
    }

    async fn whole(&self) -> Result<MediaFacts, MediaRefusal> {
        let response = self.fetch(false, None, WINDOW, true).await?;
        if response.status != 200 {
            return Err(MediaRefusal::Status(response.status));
        }
        let length = response.length.ok_or(MediaRefusal::NoLength)?;
        let body = &response.body;
        let descriptors = body.get(DESCRIPTORS as usize..).unwrap_or_default();
        Ok(media_facts(length, body.get(..FIRST_END as usize + 1).unwrap_or_default(), descriptors))
    }

    async fn in_quarters(&self, length: u64) -> Result<Vec<u8>, MediaRefusal> {
        const QUARTER: u64 = (DESCRIPTORS_END + 1 - DESCRIPTORS) / 4;
        let part = |index: u64| {
            let first = DESCRIPTORS + index * QUARTER;
            self.range(first, first + QUARTER - 1, Some(length))
        };
        let parts = tokio::join!(part(0), part(1), part(2), part(3));
        Ok([parts.0?.0, parts.1?.0, parts.2?.0, parts.3?.0].concat())
    }

    /// The bytes of a range that the image has, and the length of the image.
    async fn range(&self, first: u64, last: u64, total: Option<u64>) -> Result<(Bytes, u64), MediaRefusal> {
        let last = total.map_or(last, |total| last.min(total.saturating_sub(1)));
        if first > last {
            return Ok((Bytes::new(), total.unwrap_or_default()));
        }
        let wanted = usize::try_from(last - first + 1).unwrap_or(WINDOW).min(WINDOW);
        // A server without ranges returns the whole image: the wanted bytes then begin at `first`.
        let skip = usize::try_from(first).unwrap_or(WINDOW);
        let response = self.fetch(false, Some((first, last)), wanted + skip, false).await?;
        let (skip, total) = match response.status {
            206 => (0, check_range(&response, first, last, total)?),
            200 => (skip, response.length.ok_or(MediaRefusal::NoLength)?),
            status => return Err(MediaRefusal::Status(status)),
        };
        let wanted = wanted.min(usize::try_from(total.saturating_sub(first)).unwrap_or(WINDOW));
        if response.body.len() < skip + wanted {
            return Err(MediaRefusal::Unusable("its body ends too early"));
        }
        Ok((response.body.slice(skip..skip + wanted), total))
    }
}

/// The total length in a `Content-Range`, if the range is the requested one.
fn check_range(
    response: &MediaResponse,
    first: u64,
    last: u64,
    total: Option<u64>,
) -> Result<u64, MediaRefusal> {
    let wrong = MediaRefusal::Unusable("its Content-Range is not the requested one");
    let received = response.content_range.as_deref().and_then(|received| received.strip_prefix("bytes "));
    let Some((range, whole)) = received.and_then(|received| received.split_once('/')) else {
        return Err(wrong);
    };
    let Ok(whole) = whole.parse::<u64>() else { return Err(wrong) };
    let last = last.min(whole.saturating_sub(1));
    if total.is_some_and(|total| total != whole) || range != format!("{first}-{last}") {
        return Err(wrong);
    }
    Ok(whole)
}

fn media_facts(length: u64, first: &[u8], descriptors: &[u8]) -> MediaFacts {
    let mut facts = MediaFacts {
        length,
        boot_signature: first.get(510..512) == Some(&[0x55, 0xAA]),
        ..MediaFacts::default()
    };
    for sector in descriptors.chunks_exact(SECTOR) {
        if &sector[1..6] != b"CD001" {
            break;
        }
        match sector[0] {
            0 if sector[7..].starts_with(b"EL TORITO SPECIFICATION") => facts.el_torito = true,
            1 if facts.volume_id.is_none() => {
                facts.volume_id = Some(String::from_utf8_lossy(&sector[40..72]).trim_end().to_owned());
            }
            255 => break,
            _ => {}
        }
    }
    facts
}
